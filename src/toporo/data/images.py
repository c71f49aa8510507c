"""Image files: found by their suffixes, decoded in parallel; bad ones are named together.

Pillow decodes outside the interpreter's lock, so threads keep every core busy and the pixels never travel between
processes.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError
from toporo.machine import cores
from toporo.progress import Progress, Report


@dataclass(frozen=True, eq=False)
class ImageStore:
    """Images of one size, with a class each.

    Attributes
    ----------
    images : uint8, ``(n, height, width, 3)``, red, green, blue.
    names : of the files, relative to the data set's folder, in the order of the rows.
    classes : names; a row's target is a place in them.
    digest : a checksum of all the above.
    """

    images: npt.NDArray[np.uint8]
    names: tuple[str, ...]
    classes: tuple[str, ...]
    digest: str

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, eq=False)
class TileStore:
    """Square pieces of radar chips with a label per pixel.

    Attributes
    ----------
    x : float32, ``(n, channels, side, side)``, in decibels; NaN where there is no measurement.
    y : int8, ``(n, side, side)``: 1 water, 0 land, −1 no label or no measurement.
    chips : the chip each tile was cut from.
    roles : what the official lists use each tile's chip for: train, valid, test or bolivia.
    digest : a checksum of all the above.
    """

    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.int8]
    chips: tuple[str, ...]
    roles: tuple[str, ...]
    digest: str

    def __len__(self) -> int:
        return len(self.x)


#: Files with other endings (lists, thumbnails' data bases, …) are passed over.
IMAGE_ENDINGS = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
#: What such files hold, by Pillow's names; of others it knows some call programs.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
#: Pixels of an image. A file of a few kilobytes can claim any number; decoding takes up to eight bytes for each.
MOST_PIXELS = 2**26
#: Images that are decoded between two chances to be interrupted.
AT_ONCE = 256
#: Bad files that a message names one by one.
NAMED = 5


@dataclass(frozen=True)
class ImageFile:
    """A file of an image as its folder lists it.

    Attributes
    ----------
    name : relative to the folder of the data set.
    path : of the file.
    bytes, modified : its size, and the time of its last change in nanoseconds.
    """

    name: str
    path: Path
    bytes: int
    modified: int


def find_images(folder: Path, root: Path) -> list[ImageFile]:
    """Return the image files in a folder and its subfolders, sorted by name; hidden files are passed over.

    Parameters
    ----------
    folder : to search.
    root : folder that names are relative to.
    """
    files = []
    for place, _, names in os.walk(folder, followlinks=True):
        for name in names:
            path = Path(place, name)
            if path.suffix.lower() in IMAGE_ENDINGS and not name.startswith("."):
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
    """Decode the content of an image file to ``(size, size, 3)`` red, green, blue.

    As DomainBed reads it: converted to RGB, orientation marks ignored, resized by Pillow's bilinear filter without
    keeping the aspect ratio. An image that has the size already is not touched.
    """
    from PIL import Image

    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if image.width * image.height > MOST_PIXELS:
            raise DataError(f"{image.width} × {image.height} pixels, more than the {MOST_PIXELS} that are decoded")
        plain = image.convert("RGB")
    if plain.size != (size, size):
        plain = plain.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(plain)


def decode_all(
    files: Sequence[ImageFile],
    classes: Sequence[str],
    size: int,
    *,
    progress: bool | Report | None = None,
    title: str = "decoding images",
) -> ImageStore:
    """Decode images into memory, in a thread per core.

    If some cannot be decoded, the others still are, and a :class:`~toporo.errors.DataError` at the end names them.

    Parameters
    ----------
    files : in the order of the rows.
    classes : names.
    size : height and width that images are resized to.
    progress : see :class:`toporo.progress.Progress`.
    title : of the progress.
    """
    _require_pillow()
    pixels = np.empty((len(files), size, size, 3), dtype=np.uint8)
    bad: list[tuple[ImageFile, str]] = []
    with ThreadPoolExecutor(cores()) as pool, Progress(title, len(files), progress) as shown:
        for start in range(0, len(files), AT_ONCE):
            part = files[start : start + AT_ONCE]
            for file, problem in zip(part, pool.map(_decode_file, part, pixels[start:]), strict=True):
                if problem:
                    bad.append((file, problem))
                shown.step()
    if bad:
        raise DataError(_complaint(bad, len(files)))
    names = tuple(file.name for file in files)
    content = (hashlib.sha256(pixels.data).hexdigest(), size, names, tuple(classes))
    return ImageStore(pixels, names, tuple(classes), hashlib.sha256(repr(content).encode()).hexdigest())


def _decode_file(file: ImageFile, out: npt.NDArray[np.uint8]) -> str:
    """Decode a file into an array; return what is wrong with it, or nothing."""
    try:
        content = file.path.read_bytes()
        if not content:
            return "empty"
        out[...] = decode(content, len(out))
    except Exception as error:  # decoders of broken files raise whatever they stumble over
        return _problem(error)
    return ""


def _problem(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, MemoryError):
        return "more than fits into memory"
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
