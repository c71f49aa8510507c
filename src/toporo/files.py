"""Files: written whole or not at all, read packed or not."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TextIO, cast


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary neighbour of ``path``, then rename it over the target.

    A reader sees the old file or the new one, never half of either, also when the process is killed in between.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        write(temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text whole or not at all."""
    write_whole(path, lambda temporary: _write(temporary, text))


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)


def sha256(path: Path) -> str:
    """Checksum of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def open_text(path: str | os.PathLike[str]) -> TextIO:
    """A text file in UTF-8 to read, unpacked where its name ends in ``.gz``; line ends stay as they are."""
    file = Path(path)
    opened = gzip.open if file.suffix.lower() == ".gz" else open
    return cast(TextIO, opened(file, "rt", encoding="utf-8-sig", newline=""))
