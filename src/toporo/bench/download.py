"""Getting a data set's file from its publisher: resumed where it broke off, checked before it gets its name.

While a download is under way there are two files beside the place of the final one: ``NAME.part`` with what has come,
and ``NAME.part.json`` with the server's mark of that version (its ETag, or the time of its last change), so that the
rest of another version is never glued on. More bytes than the file has, or may have where that is not known, are not
taken; a disk that is full keeps nothing. A release whose checksum is not known is checked by reading it; the
checksum that it then has is kept in ``NAME.sha256``, in the format of ``sha256sum``, to notice later damage.
"""

from __future__ import annotations

import errno
import http.client
import json
import logging
import os
import re
import shutil
import socket
import ssl
import stat
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from toporo.bench.loaded import ENVIRONMENT, cache_folder, find_file
from toporo.errors import DataError, SettingError, TopoRoError
from toporo.files import flush_folder, make_folder, read_json, sha256, write_text

#: ``report(done, total)`` in bytes; the total is None where the server does not tell it.
Received: TypeAlias = Callable[[int, int | None], object]
#: Told in a line what happens.
Say: TypeAlias = Callable[[str], object]
#: A file or folder, and what became of it: ``"intact"``, ``"differs"``, ``"damaged (why)"``, ``"absent (what to do)"``.
FileState: TypeAlias = tuple[str, str]
T = TypeVar("T")

CHUNK = 1 << 16
#: The most bytes of a file of which no less is known.
MOST = 1 << 30
#: Answers that may be another one soon.
PASSING = (408, 425, 429, 500, 502, 503, 504)
NOT_FOUND, BEYOND_THE_END, PARTIAL = 404, 416, 206
#: The disk, or one's share of it, is full.
FULL = (errno.ENOSPC, errno.EDQUOT)
#: A number of bytes in a server's answer.
_COUNT = re.compile(r"[0-9]{1,18}")

logger = logging.getLogger("toporo")


class DownloadError(TopoRoError, OSError):
    """A file could not be downloaded; the message says what to do instead."""


class _GoneError(DownloadError):
    """The server does not have it."""


class _NoRoomError(DownloadError):
    """The disk is full, or would be."""


class _PassingError(Exception):
    """What another attempt may mend."""


@dataclass(frozen=True)
class Fetch:
    """How to get a data set's file from a publisher who keeps only the newest release.

    Attributes
    ----------
    url : the publisher's folder, ending in a slash.
    current : the file there whose content is the date of the newest release, as YYYYMMDD.
    file : a release's file name, with ``{release}`` for its date.
    folder : where files go in the data folder.
    checksums, sizes : file name to sha256 and to bytes, of those releases that are known.
    most : bytes that any release has at most.
    releases : those that a data folder already has, newest first.
    check : raises :class:`~toporo.errors.DataError` unless a file is complete.
    """

    url: str
    current: str
    file: str
    folder: str
    checksums: Mapping[str, str]
    releases: Callable[[Path], list[Path]]
    check: Callable[[Path], object]
    sizes: Mapping[str, int] = field(default_factory=dict)
    most: int = MOST


@dataclass(frozen=True)
class Patience:
    """How often to try, seconds before the second attempt (doubling), seconds to wait for a silent server."""

    attempts: int = 5
    pause: float = 1.0
    timeout: float = 30.0


@dataclass(frozen=True)
class Fetched:
    """A file of a data set: where it is, whether its checksum is the published one, whether it was downloaded now."""

    path: Path
    release: str
    sha256: str
    published: bool
    fresh: bool


def download_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Where to put downloads: as given, else ``$TOPORO_DATA``, else the cache. It need not exist."""
    name = given if given is not None else os.environ.get(ENVIRONMENT)
    return Path(name).expanduser() if name else cache_folder()


def state_of(source: Fetch, path: Path) -> str:
    """``intact`` or ``differs`` by the file's checksum; where none is known, ``complete`` or ``damaged`` by reading."""
    known = source.checksums.get(path.name) or _recorded(path)
    if known is not None:
        return "intact" if sha256(path) == known else "differs"
    try:
        source.check(path)
    except DataError:
        return "damaged"
    return "complete"


def release_states(name: str, source: Fetch, folder: Path | None) -> list[FileState]:
    """Every release of a benchmark's file in a data folder, with its state."""
    there = source.releases(folder) if folder is not None else []
    absent = f"{source.folder}/{source.file.format(release='YYYYMMDD')}"
    return [(str(path), state_of(source, path)) for path in there] or [(absent, f"absent (toporo data get {name})")]


def file_state(folder: Path | None, file: str, checksum: str, absent: str = "absent") -> FileState:
    """A file with a published checksum, in a data folder or its own place there, with its state."""
    path = find_file(folder, file, Path(file).name) if folder is not None else None
    if path is None:
        return file, absent
    return str(path), "intact" if sha256(path) == checksum else "differs"


def fetch(
    source: Fetch,
    folder: Path,
    *,
    release: str | None = None,
    url: str | None = None,
    report: Received | None = None,
    say: Say = logger.info,
    patience: Patience | None = None,
) -> Fetched:
    """Make sure that a data folder has a data set's file: one that is there and sound, else a download.

    Parameters
    ----------
    folder : the data folder; made if need be.
    release : its date as YYYYMMDD. Unless given: the newest one that is there, else the publisher's newest.
    url : another place that serves the same files.
    report, say : told of the bytes that have come, and of what happens.
    patience : how often and how long to try.
    """
    base = _checked_url(url or source.url)
    if release is not None and not re.fullmatch(r"\d{8}", release):
        raise SettingError(f"release is {release!r}: expected a date as YYYYMMDD, such as 20200106.")
    name = source.file.format(release=release or "YYYYMMDD")
    there = [path for path in source.releases(folder) if release is None or path.name == name]
    if there:
        state = state_of(source, there[0])
        if state in ("intact", "complete"):
            return _fetched(source, there[0], fresh=False)
        say(f"{there[0]} {'differs from what it was' if state == 'differs' else 'is damaged'}: fetching again")
    patience = patience or Patience()
    place = folder / source.folder
    try:
        if release is None:
            name = source.file.format(release=_current(urllib.parse.urljoin(base, source.current), patience, say))
        address = urllib.parse.urljoin(base, name)
        say(f"fetching {address}")
        download(
            address,
            place / name,
            checksum=source.checksums.get(name),
            most=source.sizes.get(name, source.most),
            check=source.check,
            report=report,
            say=say,
            patience=patience,
        )
    except _NoRoomError:
        raise
    except DownloadError as error:
        newest = "The publisher keeps only the newest release: leave --release out to get it. "
        raise DownloadError(
            f"{error} {newest if release is not None and isinstance(error, _GoneError) else ''}Try again later (a "
            f"download that broke off goes on where it was), or fetch {name} by hand from {base} with a browser or on "
            f"another machine, put it into {place} and go on."
        ) from error
    newest_here = source.releases(folder)[0]
    if release is None and newest_here.name != name:
        say(f"{newest_here} passes for a newer release and would be used: remove it")
    return _fetched(source, place / name, fresh=True)


def download(
    url: str,
    target: Path,
    *,
    checksum: str | None = None,
    most: int = MOST,
    check: Callable[[Path], object] | None = None,
    report: Received | None = None,
    say: Say = logger.info,
    patience: Patience | None = None,
) -> None:
    """Download a file, going on from what an earlier call left; it gets its name only once it is found right.

    With a ``checksum`` (sha256) that is what right means; else ``check`` must not raise
    :class:`~toporo.errors.DataError`, and the checksum is recorded beside the file. A file of more than ``most`` bytes
    is not taken.
    """
    patience = patience or Patience()
    make_folder(target.parent)
    with _part(target) as part:
        try:
            _retried(lambda: _receive(url, part, most, report, patience.timeout), url, patience, say)
            digest = sha256(part.path)
            if checksum is not None and digest != checksum:
                part.clear()
                raise DownloadError(
                    f"{url}: what came has the sha256 {digest}, expected {checksum}: it was damaged on the way, or is "
                    "another file now. It was removed."
                )
            if checksum is None:
                try:
                    if check is not None:
                        check(part.path)
                except DataError as error:
                    part.clear()
                    raise DownloadError(f"{url}: what came is not usable and was removed. {error}") from None
                write_text(_record(target), f"{digest}  {target.name}\n")
            part.finish(target)
        except OSError as error:
            if error.errno not in FULL:
                raise
            part.clear()
            raise _NoRoomError(
                f"{url}: {target.parent} is full ({error.strerror}); what had come was removed. {_ROOM}"
            ) from error


def _fetched(source: Fetch, path: Path, *, fresh: bool) -> Fetched:
    digest = sha256(path)
    published = source.checksums.get(path.name) == digest
    return Fetched(path, release=path.name[-8:], sha256=digest, published=published, fresh=fresh)


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _recorded(path: Path) -> str | None:
    """The checksum that was written down when the file was downloaded."""
    try:
        text = _record(path).read_text(encoding="ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    match = re.match(r"([0-9a-f]{64})\s", text)
    return match[1] if match else None


def _checked_url(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("https", "http") and parts.hostname and (parts.port or True)
    except ValueError:  # a port that is no number, a broken IPv6 address
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise SettingError(f"{url!r} is not the address of a folder on the web: expected https://…/")
    return url if url.endswith("/") else f"{url}/"


def _current(url: str, patience: Patience, say: Say) -> str:
    """The date of the publisher's newest release."""

    def read() -> bytes:
        with _open(url, {}, patience.timeout) as response:
            return _read(response, 1000, patience.timeout)

    content = _retried(read, url, patience, say).strip()
    if not re.fullmatch(rb"\d{8}", content):
        raise DownloadError(f"{url}: found {content[:40]!r}, expected the date of the newest release as YYYYMMDD.")
    return content.decode("ascii")


# ---------------------------------------------------------------------- one attempt, and the next


def _retried(attempt: Callable[[], T], url: str, patience: Patience, say: Say) -> T:
    """Try until it works; a mishap that will not pass is an error at once."""
    for number in range(1, patience.attempts):
        try:
            return attempt()
        except _PassingError as mishap:
            say(f"{mishap}; trying again ({number + 1} of {patience.attempts})")
            time.sleep(patience.pause * 2 ** (number - 1))
    try:
        return attempt()
    except _PassingError as mishap:
        raise DownloadError(f"{url}: {mishap}, at the last of {patience.attempts} attempts.") from None


_ROOM = "Make room, or name a folder on another disk with --data, and fetch it again."


def _receive(url: str, part: _Part, most: int, report: Received | None, timeout: float) -> None:
    """Ask for what is not there yet, and append it; what cannot be continued is begun again."""
    held, mark = part.size, part.mark_of(url)
    headers = {"Range": f"bytes={held}-", "If-Range": mark} if 0 < held < most and mark else {}
    try:
        response = _open(url, headers, timeout)
    except _BeyondError:
        part.clear()
        raise _PassingError("the server has less than what came before") from None
    with response:
        if response.status == PARTIAL:
            if not _continues(response, held, mark):
                part.clear()
                raise _PassingError("the server goes on with another version of the file")
        else:
            held = 0
            part.begin(url, _mark(response))
        length = response.headers.get("Content-Length", "")
        total = held + int(length) if _COUNT.fullmatch(length) else None
        if total is not None:
            _check_room(url, part, held, total, most)
        while chunk := _read(response, CHUNK, timeout):
            held += len(chunk)
            if held > most:
                raise _too_long(url, part, f"more than {most}", most)
            part.append(chunk)
            if report is not None:
                report(held, total)
    if total is not None and held != total:
        raise _PassingError(f"the connection was dropped after {held} of {total} bytes")


def _check_room(url: str, part: _Part, held: int, total: int, most: int) -> None:
    """What is to come is not more than the file has, and fits on the disk."""
    if total > most:
        raise _too_long(url, part, str(total), most)
    free = shutil.disk_usage(part.path.parent).free
    if total - held > free:
        raise _NoRoomError(f"{url}: {total - held} bytes are to come, {part.path.parent} has room for {free}. {_ROOM}")


def _too_long(url: str, part: _Part, sent: str, most: int) -> DownloadError:
    part.clear()
    return DownloadError(
        f"{url}: the server sends {sent} bytes, but the file has {most} at most: it is another file, or the server is "
        "broken. What came was removed."
    )


def _continues(response: http.client.HTTPResponse, held: int, mark: str | None) -> bool:
    """Whether a partial answer starts where we are, in the version we have."""
    span = re.match(r"bytes ([0-9]{1,18})-", response.headers.get("Content-Range", ""))
    dated = mark is not None and not mark.startswith('"')  # a partial answer need not repeat the time of the change
    return span is not None and int(span[1]) == held > 0 and _mark(response) in ((mark, None) if dated else (mark,))


def _mark(response: http.client.HTTPResponse) -> str | None:
    """What tells this version of the file from another byte for byte; a weak ETag does not."""
    tag = response.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


# ---------------------------------------------------------------------- the network


class _BeyondError(Exception):
    """The server has nothing from there on."""


def _open(url: str, headers: dict[str, str], timeout: float) -> http.client.HTTPResponse:
    headers = {"User-Agent": "toporo", "Accept-Encoding": "identity"} | headers
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  # the scheme was checked
    try:
        response: http.client.HTTPResponse = _opener().open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        answer = f"the server answered {error.code} {http.client.responses.get(error.code, '')}".rstrip()
        if error.code == BEYOND_THE_END:
            raise _BeyondError from None
        if error.code in PASSING:
            raise _PassingError(answer) from None
        raise (_GoneError if error.code == NOT_FOUND else DownloadError)(f"{url}: {answer}.") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionError) and not isinstance(error.reason, ConnectionRefusedError):
            raise _dropped(error.reason, timeout) from None
        raise DownloadError(f"{url}: {_unreachable(error.reason, timeout)}.") from None
    except DownloadError:
        raise
    except ValueError as error:  # an address that it sends us on to and that is none
        raise DownloadError(f"{url}: the server's answer cannot be followed ({error}).") from None
    except (OSError, http.client.HTTPException) as error:
        raise _dropped(error, timeout) from None
    return response


def _read(response: http.client.HTTPResponse, count: int, timeout: float) -> bytes:
    try:
        return response.read(count)
    except http.client.IncompleteRead as error:  # what came last is worth keeping; the length tells that it is short
        return error.partial
    except (OSError, http.client.HTTPException) as error:
        raise _dropped(error, timeout) from None


def _dropped(error: Exception, timeout: float) -> _PassingError:
    if isinstance(error, TimeoutError):
        return _PassingError(f"no answer within {timeout:g} s")
    return _PassingError(f"the connection was dropped ({error or type(error).__name__})")


def _unreachable(reason: object, timeout: float) -> str:
    """Why no connection came about."""
    if isinstance(reason, socket.gaierror):
        return "the name of the server cannot be looked up; this machine seems to be offline"
    if isinstance(reason, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(reason, TimeoutError):
        return f"no connection within {timeout:g} s"
    if isinstance(reason, ssl.SSLError):
        return f"no secure connection ({reason})"
    return f"no connection ({reason})"


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a server elsewhere, but never from a secure connection to an open one."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.type == "https" and not newurl.lower().startswith("https:"):
            raise DownloadError(f"{req.full_url}: the server sends us on to {newurl}, which is not secure.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """The standard library's, for the web alone: no local files, no FTP."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
        _Redirects,
    ):
        opener.add_handler(handler())
    return opener


# ---------------------------------------------------------------------- what has come so far


class _Note(msgspec.Struct):
    """Where a part is from, and the version it is of."""

    url: str
    mark: str


@dataclass(frozen=True)
class _Part:
    """The beginning of a file, and a note of where it is from."""

    path: Path
    descriptor: int

    @property
    def note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    @property
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def mark_of(self, url: str) -> str | None:
        """The version that the part is of, if it is from this address."""
        try:
            note = msgspec.convert(read_json(self.note), _Note)
        except (OSError, DataError, msgspec.ValidationError):
            return None
        return note.mark if note.url == url and note.mark.isascii() and note.mark.isprintable() else None

    def begin(self, url: str, mark: str | None) -> None:
        """Start again with nothing, and a note."""
        self.clear()
        if mark is not None:
            write_text(self.note, json.dumps({"url": url, "mark": mark}))

    def append(self, chunk: bytes) -> None:
        left = memoryview(chunk)
        while left:
            left = left[os.write(self.descriptor, left) :]

    def clear(self) -> None:
        """Keep nothing. The note goes first, so that no part ever has another's; the empty file goes in the end."""
        self.note.unlink(missing_ok=True)
        os.ftruncate(self.descriptor, 0)

    def finish(self, target: Path) -> None:
        """Give the file its name, once it is on the disk."""
        os.fsync(self.descriptor)
        self.path.replace(target)
        self.note.unlink(missing_ok=True)
        flush_folder(target.parent)


@contextmanager
def _part(target: Path) -> Iterator[_Part]:
    """The part of a target, ours alone where the system can lock files; an empty one does not stay."""
    path = target.with_name(f"{target.name}.part")
    descriptor = _open_plain(path)
    while not _lock(descriptor, path):
        os.close(descriptor)
        descriptor = _open_plain(path)
    part = _Part(path, descriptor)
    try:
        yield part
    finally:
        if not part.size:
            part.note.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _open_plain(path: Path) -> int:
    """A file to append to that has this name alone: what is a link, or anything else, makes way and is not written."""
    if os.path.lexists(path) and not (stat.S_ISREG((status := path.lstat()).st_mode) and status.st_nlink == 1):
        path.unlink()
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.open(path, flags, 0o666)


def _lock(descriptor: int, path: Path) -> bool:
    """Whether the file is ours; not if another process was done with it, and its name, in this very moment."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DownloadError(f"{path} is being fetched by another process: wait for it to end.") from None
    except OSError:  # a file system without locks
        return True
    return os.path.lexists(path) and os.path.samestat(os.fstat(descriptor), path.lstat())
