"""Image files: found by their suffixes, decoded in parallel, packed into one file; bad ones are named together.

Pillow decodes outside the interpreter's lock, so threads keep every core busy and the pixels never travel between
processes.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError
from toporo.files import read_json, write_text, write_whole
from toporo.machine import cores
from toporo.progress import Progress, Report, logger

#: Files with other endings (lists, thumbnails' data bases, …) are passed over.
IMAGE_ENDINGS = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
#: What such files hold, by Pillow's names; of others it knows some call programs.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
#: Pixels of an image. A file of a few kilobytes can claim any number; decoding takes up to eight bytes for each.
MOST_PIXELS = 2**26
#: Files that are decoded at a time, so that few images wait to be handed on.
AT_ONCE = 256
#: Bad files that a message names one by one.
NAMED = 5
#: Files of a folder of packed images.
PIXELS, MANIFEST = "pixels.u8", "manifest.json"


@dataclass(frozen=True, eq=False)
class ImageStore:
    """Images of one size, with a class each.

    Pixels mapped from a file are not pickled: a copy in another process maps the same file.

    Attributes
    ----------
    images : uint8, ``(n, height, width, 3)``, red, green, blue; may be mapped from a file.
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

    def __reduce__(self) -> tuple[Any, ...]:
        rest = (self.names, self.classes, self.digest)
        if isinstance(self.images, np.memmap) and isinstance(self.images.base, mmap.mmap):  # not a part of a map
            return _mapped, (self.images.filename, self.images.shape, *rest)
        return ImageStore, (np.asarray(self.images), *rest)


def _mapped(
    file: str | os.PathLike[str], shape: tuple[int, ...], names: tuple[str, ...], classes: tuple[str, ...], digest: str
) -> ImageStore:
    """Return images whose pixels stay in their file."""
    return ImageStore(np.memmap(file, np.uint8, "r", shape=shape), names, classes, digest)


@dataclass(frozen=True, eq=False)
class TileStore:
    """Square pieces of radar chips with a label per pixel.

    Attributes
    ----------
    x : float32, ``(n, channels, side, side)``, in decibels; NaN where there is no measurement.
    y : int8, ``(n, side, side)``: 1 water, 0 land, −1 no label or no measurement.
    chips : the chip each tile was cut from.
    corners : ``(n, 2)``, row and column of a tile's first pixel in its chip.
    roles : what the official lists use each tile's chip for: train, valid, test or bolivia.
    digest : a checksum of all the above.
    """

    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.int8]
    chips: tuple[str, ...]
    corners: npt.NDArray[np.int64]
    roles: tuple[str, ...]
    digest: str

    def __len__(self) -> int:
        return len(self.x)


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
        for path in (Path(place, name) for name in names if not name.startswith(".")):
            if path.suffix.lower() in IMAGE_ENDINGS:
                status = path.stat() if path.exists() else path.lstat()  # a link to nothing is named with bad files
                files.append(ImageFile(path.relative_to(root).as_posix(), path, status.st_size, status.st_mtime_ns))
    return sorted(files, key=lambda file: file.name)


# ---------------------------------------------------------------------- decoding


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


def decode_each(
    files: Sequence[ImageFile],
    size: int,
    *,
    workers: int | None = None,
    progress: bool | Report | None = None,
    title: str = "decoding images",
) -> Iterator[npt.NDArray[np.uint8]]:
    """Decode images in parallel and yield them in order.

    If some cannot be decoded, the others still are, and a :class:`~toporo.errors.DataError` at the end names them.

    Parameters
    ----------
    files : in the order of the rows.
    size : height and width that images are resized to.
    workers : number of threads; one per core by default.
    progress : see :class:`toporo.progress.Progress`.
    title : of the progress.
    """
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise SettingError(
            "reading images needs Pillow, which is not installed: pip install 'toporo[vision]'."
        ) from None
    if workers is not None and workers < 1:
        raise SettingError(f"workers is {workers!r}: expected a whole number of at least 1, or None for one per core.")
    bad: list[str] = []
    with ThreadPoolExecutor(workers or cores()) as pool, Progress(title, len(files), progress) as shown:
        for start in range(0, len(files), AT_ONCE):
            part = files[start : start + AT_ONCE]
            for file, image in zip(part, pool.map(_decode_file, part, repeat(size)), strict=True):
                if isinstance(image, str):
                    bad.append(f"{file.path} ({image})")
                elif not bad:
                    yield image
                shown.step()
    if bad:
        more = f"; … ({len(bad)} in all)" if len(bad) > NAMED else ""
        raise DataError(
            f"{len(bad)} of {len(files)} image files cannot be decoded: {'; '.join(bad[:NAMED])}{more}. Expected whole "
            "images; fetch these files again, or delete them to go on without them."
        )


def _decode_file(file: ImageFile, size: int) -> npt.NDArray[np.uint8] | str:
    """Decode a file, or return what is wrong with it."""
    from PIL import UnidentifiedImageError

    try:
        content = file.path.read_bytes()
        return decode(content, size) if content else "empty"
    except UnidentifiedImageError:
        return "not an image"
    except Exception as error:  # decoders of broken files raise whatever they stumble over
        return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def decode_all(files: Sequence[ImageFile], classes: Sequence[str], size: int, **options: Any) -> ImageStore:
    """Decode images into memory.

    Parameters
    ----------
    files, size, options : as for :func:`decode_each`.
    classes : names.
    """
    pixels = np.empty((len(files), size, size, 3), dtype=np.uint8)
    for row, image in enumerate(decode_each(files, size, **options)):
        pixels[row] = image
    names = tuple(file.name for file in files)
    return ImageStore(pixels, names, tuple(classes), _digest(hashlib.sha256(pixels.data), size, names, classes))


def _digest(pixels: Any, size: int, names: Sequence[str], classes: Sequence[str]) -> str:
    """Return the digest of a store of square images whose pixels have this checksum."""
    return hashlib.sha256(repr((pixels.hexdigest(), size, tuple(names), tuple(classes))).encode()).hexdigest()


# ---------------------------------------------------------------------- packing


def load_packed(
    folder: str | os.PathLike[str], files: Sequence[ImageFile], classes: Sequence[str], size: int, **options: Any
) -> ImageStore:
    """Return the images of these files from a packed folder, which is made first unless it is of the same files.

    Files are the same if their names, sizes and times of change are. The manifest is written after the pixels, so a
    folder that was interrupted is made again.

    Parameters
    ----------
    folder : packed, or to be.
    files, size, options : as for :func:`decode_each`.
    classes : names.
    """
    place, names = Path(folder), tuple(file.name for file in files)
    source = repr((size, tuple(classes), [(file.name, file.bytes, file.modified) for file in files]))
    checksum = hashlib.sha256(source.encode()).hexdigest()
    shape = (len(files), size, size, 3)
    digest = _packed_digest(place, checksum, int(np.prod(shape)))
    if digest is None:
        title = options.setdefault("title", "packing images")
        logger.info("%s: %d images into %s", title, len(files), place)
        try:
            digest = _digest(_pack(place, files, size, options), size, names, classes)
            write_text(place / MANIFEST, json.dumps({"files": checksum, "digest": digest}, indent=1) + "\n")
        except OSError as error:
            raise DataError(
                f"cannot pack images into {place}: {error.strerror or error}. Name a folder that can be written to and "
                "has room, or none to keep the images in memory."
            ) from error
    return _mapped(place / PIXELS, shape, names, tuple(classes), digest)


def _packed_digest(folder: Path, checksum: str, length: int) -> str | None:
    """Return the digest of the images packed in a folder; None unless they are of the files with this checksum."""
    try:
        manifest = read_json(folder / MANIFEST)
        same = manifest["files"] == checksum and (folder / PIXELS).stat().st_size == length
        return str(manifest["digest"]) if same else None
    except (OSError, DataError, TypeError, KeyError):
        return None


def _pack(folder: Path, files: Sequence[ImageFile], size: int, options: dict[str, Any]) -> Any:
    """Decode the files into a packed folder, and return the checksum of the pixels."""
    checksum = hashlib.sha256()

    def write(stream: BinaryIO) -> None:
        for image in decode_each(files, size, **options):
            content = image.tobytes()
            stream.write(content)
            checksum.update(content)

    (folder / MANIFEST).unlink(missing_ok=True)
    write_whole(folder / PIXELS, write)
    return checksum
