"""Files of a table: on a disk or in an object store (``s3://bucket/folder``, ``gs://bucket/folder``), by their names.

pyarrow's file systems read object stores, with credentials from where they look for them: the environment, a profile,
the machine. An address holds none, so whatever repeats it (an error, a log, a model) discloses none.
"""

from __future__ import annotations

import glob
import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from toporo.data.formats import described, format_of, reading, store_error
from toporo.errors import DataError, SettingError, listed
from toporo.text import is_address, spelled

#: Options that may follow the ? of an address; none of them is secret.
OPTIONS = ("endpoint_override", "region", "scheme")
SCHEMES = ("s3", "gs", "gcs", "file")
#: Seconds to wait for a store: for a connection, for an answer, and of Google's for all attempts together.
CONNECT, ANSWER, RETRYING = 5.0, 10.0, 10
#: Variables with the region of a bucket, which else has to be looked up.
_REGIONS = {"AWS_REGION", "AWS_DEFAULT_REGION"}
#: Requests until a store has failed.
ATTEMPTS = 3
#: First characters of names of files that are not part of a table, and the name of a folder of a hive partition.
_HIDDEN, PARTITION = (".", "_"), re.compile(r"([^=/]+)=([^/]*)")
_PATTERN = re.compile(r"[*?\[]")
Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Files:
    """The files of a table.

    Attributes
    ----------
    where : what was asked for, without options.
    base : the folder that names of partitions are relative to.
    sizes : bytes by path or address, in order of the names.
    options : of an object store.
    """

    where: str
    base: str
    sizes: dict[str, int]
    options: Options = ()


def find_files(where: str, given: str | None = None) -> Files:
    """Find the files of a table.

    Parameters
    ----------
    where : a file, a folder, a pattern such as ``"sales/*.parquet"``, or an address such as ``"s3://bucket/sales"``.
        Names that begin with a dot or an underscore do not count.
    given : the format, where suffixes do not tell it.
    """
    files = _at_address(where) if is_address(where) else _on_disk(where, given)
    if not files.sizes:
        reason = "matches no file" if _PATTERN.search(files.where) else "holds no table"
        raise DataError(f"{files.where} {reason}: expected files in Parquet, Feather or CSV. Check the name.")
    return files


def _on_disk(where: str, given: str | None) -> Files:
    path = Path(where)
    with reading(spelled(where), "csv"), suppress(FileNotFoundError, NotADirectoryError):
        path.stat()  # links may lead nowhere
    if path.is_dir():
        inside = (each for each in path.rglob("*") if each.is_file())
        base, names = where, [str(each) for each in inside if not _hidden(each.relative_to(path).parts)]
    elif path.exists():
        base, names = str(path.parent), [where]
    elif _PATTERN.search(where):
        base = fixed_part(where)
        matching = glob.glob(where, recursive=True)  # noqa: PTH207  # a pattern may be absolute
        names = [each for each in matching if Path(each).is_file() and not _hidden(Path(each[len(base) :]).parts)]
    else:
        raise DataError(f"no such file: {spelled(where)}. Expected {described(format_of(where, given))}.")
    names.sort(key=lambda name: Path(name).as_posix())
    with reading(where, "parquet"):
        return Files(where, base, {name: Path(name).stat().st_size for name in names})


def _at_address(address: str) -> Files:
    where, options = split_address(address)
    pattern = _PATTERN.search(where)
    base = fixed_part(where) if pattern else where.rstrip("/")
    wanted = re.compile(_translated(where)) if pattern else None
    sizes = {
        path: size
        for path, size in sorted(_listing(base, file_system(where, options)))
        if (wanted is None or wanted.match(path))
        and (path == base or not _hidden(PurePosixPath(path[len(base) :].lstrip("/")).parts))
    }
    return Files(where, base, sizes, options)


def fixed_part(pattern: str) -> str:
    """Return the folder before the first special character of a pattern, or the whole of another name."""
    sign = _PATTERN.search(pattern)
    if not sign:
        return pattern
    return re.sub(r"[^/\\]*\Z" if os.sep == "\\" else r"[^/]*\Z", "", pattern[: sign.start()])


def _hidden(parts: Iterable[str]) -> bool:
    """Return whether a file, or a folder around it, is not part of a table; folders of partitions always are."""
    return any(part.startswith(_HIDDEN) and not PARTITION.fullmatch(part) for part in parts)


def _translated(pattern: str) -> str:
    """Return the regular expression for a pattern of paths."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]/]+\])", pattern)
    sets = {piece: piece.replace("\\", r"\\").replace("[!", "[^") for piece in pieces if piece.startswith("[")}
    return "".join((parts | sets).get(piece) or re.escape(piece) for piece in pieces) + r"\Z"


# ---------------------------------------------------------------------- object stores


def split_address(address: str) -> tuple[str, Options]:
    """Return an address that may be shown, and its options; refuse one that holds a secret, or might.

    >>> split_address("s3://bucket/sales?region=eu-west-1")
    ('s3://bucket/sales', (('region', 'eu-west-1'),))
    """
    start, _, query = address.partition("?")  # a pattern with a ? is for files of a disk
    scheme, _, rest = start.partition("://")
    if scheme.lower() not in SCHEMES:
        shown = f"{scheme}://{rest.rpartition('@')[2]}"
        raise DataError(
            f"cannot read {shown}: expected a file, a folder, or an address such as s3://bucket/folder, "
            "gs://bucket/folder or file:///folder. Copy the table to one of these first."
        )
    options = tuple(parse_qsl(query, keep_blank_values=True))
    if "@" in rest.partition("/")[0] or any("@" in value for _, value in options):
        raise SettingError(
            "the address holds a user or a secret, which would be written into logs and models: leave it out, and give "
            "credentials in the environment or a profile, as for other tools of the store."
        )
    strange = sorted({name for name, _ in options}.difference(OPTIONS))
    if strange:
        raise SettingError(
            f"{start} has {listed(strange)} behind its ?: expected one of {listed(OPTIONS)}, and nothing secret. Give "
            "credentials in the environment or a profile."
        )
    return f"{scheme.lower()}://{rest}", options


@contextmanager
def _answering(address: str) -> Iterator[None]:
    """Turn errors of a store into a :class:`DataError`."""
    import pyarrow as pa

    try:
        yield
    except (DataError, SettingError):
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise store_error(address, error) from None


def _listing(address: str, system: Any) -> list[tuple[str, int]]:
    """Return the address and size of a file, or of each below a folder."""
    from pyarrow import fs

    scheme = address.partition("://")[0]
    with _answering(address):
        path = _path(address)
        about = system.get_file_info(path)
        if about.type == fs.FileType.File:
            return [(f"{scheme}://{about.path}", about.size)]
        infos = system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    return [(f"{scheme}://{info.path}", info.size or 0) for info in infos if info.type == fs.FileType.File]


def open_file(path: str, system: Any) -> io.BufferedReader:
    """Open a file to read its bytes.

    Parameters
    ----------
    path : a path or an address.
    system : the file system of an address; see :func:`file_system`.
    """
    if system is None:
        return Path(path).open("rb")
    return io.BufferedReader(system.open_input_file(_path(path)), 1 << 20)


def _path(address: str) -> str:
    """Return the name that a file system has for an address."""
    scheme, _, inner = address.partition("://")
    return unquote(inner) if scheme == "file" else inner.rstrip("/")


def file_system(address: str, options: Options) -> Any:
    """Return pyarrow's file system for an address; None for a path.

    Parameters
    ----------
    address : a path, or an address as :func:`split_address` returns it.
    options : of the store.
    """
    if not is_address(address):
        return None
    scheme, _, rest = address.partition("://")
    with _answering(address):
        return _system(scheme, rest.partition("/")[0], dict(options))


def _system(scheme: str, bucket: str, options: dict[str, str]) -> Any:
    """Return a file system whose waits are bounded: by default, requests go on for minutes."""
    from pyarrow import fs

    given = {name: value for name, value in options.items() if value}
    if scheme == "file":
        return fs.LocalFileSystem()
    if not bucket:
        raise DataError(f"{scheme}:// names no bucket: expected an address such as {scheme}://bucket/folder.")
    if scheme != "s3":
        given.pop("region", None)
        return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=RETRYING), **given)
    elsewhere = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if elsewhere and "endpoint_override" not in given:  # which pyarrow does not always heed
        scheme, sign, place = elsewhere.partition("://")
        given = {"scheme": scheme, "endpoint_override": place.rstrip("/")} | given if sign else given
    if not ({"region", "endpoint_override"} & given.keys() or _REGIONS & os.environ.keys()):
        given["region"] = fs.resolve_s3_region(bucket)
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
    return fs.S3FileSystem(connect_timeout=CONNECT, request_timeout=ANSWER, retry_strategy=retries, **given)


def without_query(address: str) -> str:
    """Return an address or a file name that a model may store: without options and without a user.

    >>> without_query("s3://key:secret@bucket/sales?region=eu"), without_query("what?.csv")
    ('s3://bucket/sales', 'what?.csv')
    """
    if not is_address(address):
        return address
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
