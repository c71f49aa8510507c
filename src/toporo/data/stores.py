"""Files of object stores, by their addresses: ``s3://bucket/folder``, ``gs://bucket/folder``.

pyarrow's own file systems read them, with credentials from where they look for them: the environment, a profile, the
machine. An address holds none, so whatever repeats it (an error, a log, a model) tells none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from toporo.errors import DataError, SettingError, listed
from toporo.text import is_address

#: What may stand behind the ? of an address; none of it is secret.
OPTIONS = ("endpoint_override", "region", "scheme")
SCHEMES = ("s3", "gs", "gcs", "file")
#: Seconds to wait for a store: for a connection, for an answer, and of Google's for all attempts together.
CONNECT, ANSWER, RETRYING = 5.0, 10.0, 10
#: Variables that say where a bucket is, which else has to be asked.
_SETTLING = {"AWS_REGION", "AWS_DEFAULT_REGION"}
#: How often a request is made before it has failed.
ATTEMPTS = 3


def split_address(address: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """An address as it may be shown, and its options; one that holds a secret, or might, is an error without it.

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


class ObjectStore:
    """A file system that an address is of.

    Parameters
    ----------
    address : as :func:`split_address` gives it.
    options : of the store, by name.
    """

    def __init__(self, address: str, options: tuple[tuple[str, str], ...] = ()) -> None:
        self.scheme, _, rest = address.partition("://")
        with speaking_of(address):
            self.system = _system(self.scheme, rest.partition("/")[0], dict(options))

    def path(self, address: str) -> str:
        """What the file system calls a file."""
        inner = address.partition("://")[2]
        return unquote(inner) if self.scheme == "file" else inner.rstrip("/")

    def listing(self, address: str) -> list[tuple[str, int]]:
        """The address and size of a file, or of each below a folder."""
        from pyarrow import fs

        path = self.path(address)
        with speaking_of(address):
            about = self.system.get_file_info(path)
            if about.type == fs.FileType.File:
                return [(f"{self.scheme}://{about.path}", about.size)]
            infos = self.system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        return [(f"{self.scheme}://{info.path}", info.size or 0) for info in infos if info.type == fs.FileType.File]

    def open(self, address: str) -> Any:
        """The stream of a file."""
        return self.system.open_input_file(self.path(address))


@contextmanager
def speaking_of(address: str) -> Iterator[None]:
    """What a store says when it does not answer, or refuses, is a :class:`DataError`."""
    import pyarrow as pa

    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, DataError | SettingError):
            raise
        why = " ".join(str(error).split())[:300].rstrip(".")
        raise DataError(
            f"cannot read {address}: {why}. Check the address, the network, and that the credentials of the store (in "
            "the environment or a profile) may read it."
        ) from None


def _system(scheme: str, bucket: str, options: dict[str, str]) -> Any:
    """A file system whose waits are bounded: by themselves, stores are asked for minutes."""
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
    if elsewhere and "endpoint_override" not in given:  # which pyarrow heeds in some ways of asking alone
        scheme, sign, place = elsewhere.partition("://")
        given = {"scheme": scheme, "endpoint_override": place.rstrip("/")} | given if sign else given
    if not ({"region", "endpoint_override"} & given.keys() or _SETTLING & os.environ.keys()):
        given["region"] = fs.resolve_s3_region(bucket)
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
    return fs.S3FileSystem(connect_timeout=CONNECT, request_timeout=ANSWER, retry_strategy=retries, **given)


def without_query(address: str) -> str:
    """An address, or the name of a file, as a model may tell it: without what stands behind the ?, and without a user.

    >>> without_query("s3://key:secret@bucket/sales?region=eu"), without_query("what?.csv")
    ('s3://bucket/sales', 'what?.csv')
    """
    if not is_address(address):
        return address
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
