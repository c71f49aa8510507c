"""Files of a table: on a disk or in an object store (``s3://bucket/folder``), by file, folder, pattern or address.

pyarrow's file systems list and open them. They find the credentials of a store in the environment, in a profile or on
the machine. An address holds none, so what repeats it (an error, a log, a model) discloses none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qsl, unquote

from toporo.data.formats import reading
from toporo.errors import DataError, SettingError, listed
from toporo.text import is_address, spelled

#: Options that may follow the ? of an address; none of them is secret.
OPTIONS = ("endpoint_override", "region", "scheme")
SCHEMES = ("s3", "gs", "gcs", "file")
#: First characters of names that are not part of a table, and the name of a folder of a hive partition.
_HIDDEN, _PARTITION = (".", "_"), re.compile(r"([^=/]+)=([^/]*)")
_PATTERN = re.compile(r"[*?\[]")
#: The value of a hive partition for rows without a value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class HeldFile:
    """File system of a single file: what was read from a stream."""

    content: bytes

    def open_input_file(self, _path: str) -> Any:
        """Open the content as a file of pyarrow."""
        import pyarrow as pa

        return pa.BufferReader(self.content)


@dataclass(frozen=True)
class Files:
    """The files of a table.

    Attributes
    ----------
    where : the source for messages, without options.
    system : pyarrow's file system, or :class:`HeldFile`.
    sizes : bytes by path, in order of the paths.
    folder : what the paths begin with before the folders of partitions.
    store : what addresses begin with: ``"s3://"``; nothing on a disk.
    """

    where: str
    system: Any
    sizes: dict[str, int]
    folder: str
    store: str = ""

    def name(self, path: str) -> str:
        """Return the name of a file for messages."""
        return spelled(f"{self.store}{path}")

    def keys(self, path: str) -> tuple[tuple[str, str], ...]:
        """Return the names and values of the hive partitions of a file, the outermost first."""
        folders = PurePosixPath(path[len(self.folder) :]).parts[:-1]
        pairs = [(unquote(m[1]).strip(), unquote(m[2])) for m in map(_PARTITION.fullmatch, folders) if m]
        return tuple((name, "" if value == _NO_VALUE else value) for name, value in pairs)


def find_files(source: str) -> Files:
    """Find the files of a table.

    Parameters
    ----------
    source : a file, a folder, a pattern such as ``"sales/*.parquet"``, or an address such as ``"s3://bucket/sales"``.
        Names that begin with a dot or an underscore do not count.
    """
    from pyarrow import fs

    store, path, system = _locate(source)
    where = spelled(f"{store}{path}")
    with reading(where):
        about = system.get_file_info(path)
        if about.type == fs.FileType.File:
            return Files(where, system, {path: about.size}, path, store)
        pattern = about.type == fs.FileType.NotFound and _PATTERN.search(path)
        if about.type == fs.FileType.NotFound and not (pattern or store):
            raise DataError(f"no such file: {where}. Expected a file, a folder or a pattern of tables.")
        folder = path[: path.rfind("/", 0, pattern.start()) + 1] if pattern else path
        inner = re.compile(_translated(path[len(folder) :]) if pattern else ".*", re.DOTALL)
        deep = not pattern or "/" in path[len(folder) :] or "**" in path
        selector = fs.FileSelector(folder.rstrip("/") or folder or ".", recursive=deep, allow_not_found=True)
        infos = [info for info in system.get_file_info(selector) if info.type == fs.FileType.File]
    sizes = {info.path if folder else info.path.removeprefix("./"): info.size or 0 for info in infos}
    names = {name: name[len(folder) :].lstrip("/") for name in sorted(sizes)}
    kept = {name: sizes[name] for name, rest in names.items() if inner.fullmatch(rest) and not _hidden(rest)}
    if not kept:
        reason = "matches no file" if pattern else "holds no table"
        raise DataError(f"{where} {reason}: expected files in CSV, Parquet or Feather. Check the name.")
    return Files(where, system, kept, folder, store)


def _locate(source: str) -> tuple[str, str, Any]:
    """Return the store of a source, the path in it and its file system; refuse an address that may hold a secret."""
    from pyarrow import fs

    if not is_address(source):
        return "", source, fs.LocalFileSystem()
    start, _, query = source.partition("?")  # a pattern with a ? is for files of a disk
    scheme, _, path = start.partition("://")
    scheme = scheme.lower()
    if scheme not in SCHEMES:
        raise DataError(
            f"cannot read {scheme}://{path.rpartition('@')[2]}: expected a file, a folder, or an address such as "
            "s3://bucket/folder, gs://bucket/folder or file:///folder. Copy the table to one of these first."
        )
    if "@" in path.partition("/")[0] or "@" in unquote(query):
        raise SettingError(
            "the address holds a user or a secret, which would be written into logs and models: leave it out, and give "
            "credentials in the environment or a profile, as for other tools of the store."
        )
    strange = sorted({name for name, _ in parse_qsl(query, keep_blank_values=True)}.difference(OPTIONS))
    if strange:
        raise SettingError(
            f"{start} has {listed(strange)} behind its ?: expected one of {listed(OPTIONS)}, and nothing secret. Give "
            "credentials in the environment or a profile."
        )
    if scheme == "file":
        return "", unquote(path), fs.LocalFileSystem()
    bucket = path.partition("/")[0]
    if not bucket:
        raise DataError(f"{scheme}:// names no bucket: expected an address such as {scheme}://bucket/folder.")
    with reading(start):
        system, _ = fs.FileSystem.from_uri(f"{scheme}://{bucket}?{query}")
    return f"{scheme}://", path.rstrip("/"), system


def _hidden(inner: str) -> bool:
    """Return whether a file, or a folder around it, is not part of a table; folders of partitions always are."""
    return any(part.startswith(_HIDDEN) and not _PARTITION.fullmatch(part) for part in PurePosixPath(inner).parts)


def _translated(pattern: str) -> str:
    """Return the regular expression for a pattern of paths."""
    signs = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]/]+\])", pattern)
    sets = {piece: piece.replace("\\", r"\\").replace("[!", "[^") for piece in pieces if piece.startswith("[")}
    return "".join((signs | sets).get(piece) or re.escape(piece) for piece in pieces)
