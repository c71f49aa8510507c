"""Download a file of a data set. It gets its name only after it has been checked."""

from __future__ import annotations

import errno
import hashlib
import http.client
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from toporo.errors import DataError, SettingError, TopoRoError
from toporo.files import replacing

#: ``report(done, total)`` in bytes; the total is None where the server does not tell it.
Received: TypeAlias = Callable[[int, int | None], object]

#: Seconds to wait for a silent server.
TIMEOUT = 30.0


class DownloadError(TopoRoError):
    """Raised if a file cannot be downloaded."""


def download(
    url: str,
    target: Path,
    *,
    checksum: str | None = None,
    check: Callable[[Path], object] | None = None,
    most: int = 1 << 30,
    report: Received | None = None,
) -> str:
    """Download a file of at most ``most`` bytes and return its SHA-256 checksum, which must be ``checksum`` if given.

    ``check`` raises :class:`~toporo.errors.DataError` where the content is not right. ``report`` is told of progress.
    """
    digest, done = hashlib.sha256(), 0
    try:
        with replacing(target) as file:
            for chunk, total in _receive(url):
                done += len(chunk)
                if max(done, total or 0) > most:
                    raise DownloadError(f"{url}: the server sends more than the {most} bytes that the file can have.")
                file.write(chunk)
                digest.update(chunk)
                if report is not None:
                    report(done, total)
            if checksum not in (None, digest.hexdigest()):
                raise DownloadError(f"{url}: what came has the sha256 {digest.hexdigest()}, expected {checksum}.")
            file.flush()
            if check is not None:
                check(Path(file.name))
    except DataError as error:
        raise DownloadError(f"{url}: what came is not usable and was removed. {error}") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(error.errno, f"{error.strerror}, and nothing was kept", str(target)) from error
        raise
    return digest.hexdigest()


def _receive(url: str) -> Iterator[tuple[bytes, int | None]]:
    """Yield the content of a file in chunks, each with the size of the whole file if the server states it."""
    if not url.startswith(("https://", "http://")):
        raise SettingError(f"{url!r} is not an address on the web: expected https://…")
    done = 0
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "toporo"})  # noqa: S310  # checked above
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310
            if url.startswith("https:") and not response.url.startswith("https:"):
                raise DownloadError(f"{url}: the server sends us on to {response.url}, which is not secure.")
            length = response.headers.get("Content-Length")
            total = int(length) if length else None
            while chunk := response.read(1 << 16):
                done += len(chunk)
                yield chunk, total
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"{url}: the server answered {error.code} {error.reason}.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        offline = "; this machine seems to be offline" if isinstance(reason, socket.gaierror) else ""
        raise DownloadError(f"{url}: no connection ({reason}){offline}.") from None
    if total not in (None, done):
        raise DownloadError(f"{url}: the connection was dropped after {done} of {total} bytes.")
