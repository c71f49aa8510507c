"""Files: written whole or not at all, and flushed before they count; read packed or not; JSON from anyone."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Self, TextIO, cast

from toporo.errors import DataError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

#: How the name of a file that is not yet whole ends, and the most bytes of the target's name that it begins with.
PART, _LONGEST = ".part", 200
#: An empty file whose bytes are locked by those at work in its folder.
CLAIMS = "claims"
#: Half of a sign in JSON's escapes; json pairs what it can and lets the rest through.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


# ---------------------------------------------------------------------- writing


@contextmanager
def replacing(path: str | os.PathLike[str], like: Path | None = None) -> Iterator[BinaryIO]:
    """A new file to write to, which takes the place of ``path`` when the block ends well.

    A reader sees the old file or the new one, never half of either, also when the process is killed or the disk is
    full. The new file stands beside its target under a name no other process or thread has, is made without following
    links, has the permissions of the old one (or of ``like``; those of the umask where there is none) and is on the
    disk before it is renamed. Whatever ends the block early removes it; what a killed process left is removed by the
    next one to write the same target. A link at ``path`` is replaced, not followed. The new file's own path is its
    ``name``.
    """
    target = Path(path)
    make_folder(target.parent)
    _sweep(target)
    part, descriptor = _create(target)
    try:
        try:
            _keep_permissions(descriptor, like or target)
            with open(part, "wb", opener=lambda *_: os.dup(descriptor)) as stream:  # so named
                yield stream
            os.fsync(descriptor)
            if fcntl is not None:  # still locked: nobody takes it for abandoned
                part.replace(target)
        finally:
            os.close(descriptor)
        if fcntl is None:  # Windows renames no open file
            part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    flush_folder(target.parent)


def write_whole(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill a file that then takes the place of ``path``; see :func:`replacing`."""
    with replacing(path) as stream:
        write(stream)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text whole or not at all."""
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        sign = error.object[error.start]
        raise DataError(f"{path} was not written: a name in it holds {sign!r}, which is no text. Correct it.") from None
    write_whole(path, lambda stream: stream.write(content))


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, each on the disk before the next."""
    absent = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(absent):
        place.mkdir(exist_ok=True)
        flush_folder(place.parent)


def flush_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system knows how."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder if need be, and be the only one of those who lock it, where the system has locks; others wait."""
    while True:
        make_folder(folder)
        if fcntl is None:
            yield
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not os.fstat(descriptor).st_nlink:  # removed while we waited
                continue
            yield
            return
        finally:
            os.close(descriptor)


class Claims:
    """Claims of processes, on one machine or several that share a file system, to work in a folder.

    A claim is a lock on one byte of the folder's file :data:`CLAIMS`: it ends with its process, in whichever way. Where
    the file system has no locks, everybody's claim is granted. Locks are of a process: one of these at a time in each.

    Parameters
    ----------
    folder : where the work's files are; made if need be.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self._file = os.open(folder / CLAIMS, os.O_RDWR | os.O_CREAT, 0o666) if fcntl is not None else -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if fcntl is not None:
            os.close(self._file)

    def take(self, name: str) -> bool:
        """Claim this work until the process ends; return False if another process has claimed it."""
        if fcntl is None:
            return True
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(name))
        except OSError as error:
            return error.errno not in (errno.EACCES, errno.EAGAIN)  # the others: a file system without locks
        return True


def _byte(name: str) -> int:
    """Return the byte of the file of claims for a name; there are enough for no two to meet."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


def _stem(target: Path) -> str:
    """Return the prefix of the names of a target's unfinished files; a file system takes names up to 255 bytes."""
    return f".{os.fsdecode(os.fsencode(target.name)[:_LONGEST])}."


def _create(target: Path) -> tuple[Path, int]:
    """A new, empty, locked file beside the target."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    while True:
        part = target.with_name(f"{_stem(target)}{secrets.token_hex(4)}{PART}")
        try:
            descriptor = os.open(part, flags, 0o666)
        except FileExistsError:
            continue
        if _lock(descriptor) and os.fstat(descriptor).st_nlink:
            return part, descriptor
        os.close(descriptor)  # taken for abandoned in the moment before it was locked


def _lock(descriptor: int) -> bool:
    """Lock a file; return False if another process has it. True where the system has no locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _sweep(target: Path) -> None:
    """Remove what killed processes left of this target: unfinished files that nobody holds locked."""
    ours = re.compile(re.escape(_stem(target)) + "[0-9a-f]+" + re.escape(PART))
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if ours.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                _remove_abandoned(Path(entry.path))


def _remove_abandoned(part: Path) -> None:
    if fcntl is None:  # where there are no locks, who knows whether it is abandoned
        return
    with suppress(OSError):
        descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held by a living writer: BlockingIOError
            part.unlink()
        finally:
            os.close(descriptor)


def _keep_permissions(descriptor: int, target: Path) -> None:
    """Give a new file the owner and the permissions of a plain file, if it is one."""
    if not hasattr(os, "fchmod") or target.is_symlink() or not target.is_file():
        return
    old, new = target.stat(), os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        with suppress(OSError):  # only root may give a file away
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, old.st_mode & 0o777)


# ---------------------------------------------------------------------- reading


def sha256(path: Path) -> str:
    """Checksum of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def open_text(path: str | os.PathLike[str]) -> TextIO:
    """A text file in UTF-8 to read, unpacked where its name ends in ``.gz``; line ends stay as they are."""
    file = Path(path)
    opened = gzip.open if file.suffix.lower() == ".gz" else open
    return cast(TextIO, opened(file, "rt", encoding="utf-8-sig", newline=""))


def parse_json(text: str | bytes, where: object) -> Any:
    """Parse JSON from an untrusted source; errors are a :class:`DataError` that begins with ``where``.

    Errors include bytes that are not UTF-8, numbers of thousands of digits, endless nesting and unpaired surrogates.
    """
    try:
        plain = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        content = json.loads(plain)
        if _SURROGATE.search(plain):
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise DataError(f"{where} is not valid JSON (lists within lists without end).") from None
    except UnicodeError:
        raise DataError(f"{where} is not text in UTF-8.") from None
    except ValueError as error:
        raise DataError(f"{where} is not valid JSON ({str(error).partition(';')[0]}).") from None
    return content


def read_json(path: Path) -> Any:
    """Parse a JSON file; see :func:`parse_json`. A file that cannot be read is an ``OSError``."""
    return parse_json(path.read_bytes(), path)
