"""Download a file of a data set into memory, so nothing is written before the whole file has been checked."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request

from toporo.errors import SettingError, TopoRoError

#: Seconds to wait for a silent server.
TIMEOUT = 30.0


class DownloadError(TopoRoError):
    """Raised if a file cannot be downloaded."""


def download(url: str, most: int) -> bytes:
    """Return the content of a file of at most ``most`` bytes."""
    if not url.startswith(("https://", "http://")):
        raise SettingError(f"{url!r} is not an address on the web: expected https://…")
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "toporo"})  # noqa: S310  # checked above
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310
            content: bytes = response.read(most + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"{url}: the server answered {error.code} {error.reason}.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DownloadError(f"{url}: no connection ({getattr(error, 'reason', error)}).") from None
    if len(content) > most:
        raise DownloadError(f"{url}: the server sends more than the {most} bytes that the file can have.")
    return content
