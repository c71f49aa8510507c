"""Image files to pixels: found by their endings, decoded in parallel, all bad ones named together.

Pillow decodes outside the interpreter's lock, so threads keep every core busy and the pixels never travel between
processes.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError
from toporo.machine import cores
from toporo.progress import Progress, Report

#: Files with other endings (lists, thumbnails' data bases, …) are passed over.
ENDINGS = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
#: Bytes of pixels that are decoded before they are handed on.
PORTION = 48 * 2**20
#: Bad files that a message names one by one.
NAMED = 5


@dataclass(frozen=True)
class ImageFile:
    """A file as the folder shows it: name relative to the data set's folder, bytes, time of its last change in ns."""

    name: str
    path: Path
    bytes: int
    modified: int


@dataclass(frozen=True, eq=False)
class Portion:
    """Decoded images that follow each other in the list of files, and each file's sha256."""

    pixels: npt.NDArray[np.uint8]
    checksums: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Decoded:
    """All images in memory, and the sha256 of their pixels."""

    pixels: npt.NDArray[np.uint8]
    checksum: str


def find_images(folder: Path, root: Path) -> list[ImageFile]:
    """The image files in a folder and the folders in it, sorted by name; hidden files are passed over."""
    files = []
    for place, _, names in os.walk(folder, followlinks=True):
        for name in names:
            path = Path(place, name)
            if path.suffix.lower() in ENDINGS and not name.startswith("."):
                length, modified = _status(path)
                files.append(ImageFile(path.relative_to(root).as_posix(), path, length, modified))
    return sorted(files, key=lambda file: file.name)


def _status(path: Path) -> tuple[int, int]:
    """Bytes and time of change; of a link that leads nowhere zeros: it is named with the other files that are bad."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def decode(content: bytes, size: int) -> npt.NDArray[np.uint8]:
    """An image file's content as ``(size, size, 3)`` red, green, blue.

    As DomainBed reads it: converted to RGB, orientation marks ignored, resized by Pillow's bilinear filter without
    keeping the aspect ratio. An image that has the size already is not touched.
    """
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        plain = image.convert("RGB")
    if plain.size != (size, size):
        plain = plain.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(plain)


def decode_portions(
    files: Sequence[ImageFile],
    size: int,
    *,
    workers: int | None = None,
    progress: bool | Report | None = None,
    title: str = "decoding images",
) -> Iterator[Portion]:
    """Decode the files in order, a portion at a time, in ``workers`` threads (one per core unless told).

    If some cannot be decoded, the others still are, and a :class:`~toporo.errors.DataError` at the end names them.
    """
    _require_pillow()
    if workers is not None and workers < 1:
        raise SettingError(f"workers is {workers!r}: expected a whole number of at least 1, or None for one per core.")
    step = max(1, PORTION // (3 * size * size))
    bad: list[tuple[ImageFile, str]] = []
    with ThreadPoolExecutor(workers or cores()) as pool, Progress(title, len(files), progress) as shown:
        for start in range(0, len(files), step):
            part = files[start : start + step]
            pixels = np.empty((len(part), size, size, 3), dtype=np.uint8)
            checksums = []
            for file, outcome in zip(part, pool.map(_decode_file, part, pixels), strict=True):
                checksums.append(outcome.checksum)
                if outcome.problem:
                    bad.append((file, outcome.problem))
                shown.step()
            if not bad:
                yield Portion(pixels, tuple(checksums))
    if bad:
        raise DataError(_complaint(bad, len(files)))


def decode_all(
    files: Sequence[ImageFile],
    size: int,
    *,
    workers: int | None = None,
    progress: bool | Report | None = None,
    title: str = "decoding images",
) -> Decoded:
    """Decode the files into one array, with one portion beside it at any time."""
    pixels = np.empty((len(files), size, size, 3), dtype=np.uint8)
    digest, done = hashlib.sha256(), 0
    for portion in decode_portions(files, size, workers=workers, progress=progress, title=title):
        digest.update(portion.pixels.data)
        pixels[done : done + len(portion.pixels)] = portion.pixels
        done += len(portion.pixels)
    return Decoded(pixels, digest.hexdigest())


@dataclass(frozen=True)
class _Outcome:
    checksum: str
    problem: str


def _decode_file(file: ImageFile, out: npt.NDArray[np.uint8]) -> _Outcome:
    checksum = ""
    try:
        content = file.path.read_bytes()
        checksum = hashlib.sha256(content).hexdigest()
        if not content:
            return _Outcome(checksum, "empty")
        out[...] = decode(content, len(out))
    except MemoryError:
        raise
    except Exception as error:  # decoders of broken files raise whatever they stumble over
        return _Outcome(checksum, _problem(error))
    return _Outcome(checksum, "")


def _problem(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _complaint(bad: Sequence[tuple[ImageFile, str]], total: int) -> str:
    named = "; ".join(f"{file.path} ({problem})" for file, problem in bad[:NAMED])
    more = f"; … ({len(bad)} in all)" if len(bad) > NAMED else ""
    return (
        f"{len(bad)} of {total} image files cannot be decoded: {named}{more}. Expected whole images; fetch these files "
        "again, or delete them to go on without them."
    )


def _require_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise SettingError(
            "reading images needs Pillow, which is not installed: pip install 'toporo[vision]'."
        ) from None
