"""Image files: found by their suffixes, decoded in parallel, packed into one file; bad ones are named together.

Pillow decodes outside the interpreter's lock, so threads keep every core busy and the pixels never travel between
processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError
from toporo.files import read_json, sha256, write_text, write_whole
from toporo.machine import cores
from toporo.progress import Progress, Report, logger


def image_digest(pixels: str, size: int, names: Sequence[str], classes: Sequence[str]) -> str:
    """Return the digest of a store of square images whose pixels have this sha256."""
    return hashlib.sha256(repr((pixels, size, tuple(names), tuple(classes))).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class ImageStore:
    """Images of one size, with a class each.

    Attributes
    ----------
    images : uint8, ``(n, height, width, 3)``, red, green, blue; may be mapped from a file.
    names : of the files, relative to the data set's folder, in the order of the rows.
    classes : names; a row's target is a place in them.
    digest : a checksum of all the above.

    Pixels mapped from a file are not pickled: a copy in another process maps the same file.
    """

    images: npt.NDArray[np.uint8]
    names: tuple[str, ...]
    classes: tuple[str, ...]
    digest: str

    def __len__(self) -> int:
        return len(self.images)

    def __reduce__(self) -> tuple[Any, ...]:
        file = _whole_file(self.images)
        if file is None:
            return ImageStore, (np.asarray(self.images), self.names, self.classes, self.digest)
        return _mapped, (file, file.stat().st_mtime_ns, self.images.shape, self.names, self.classes, self.digest)


def _whole_file(images: npt.NDArray[np.uint8]) -> Path | None:
    """Return the file that an array is a read-only map of, from its first byte to its last; None for other arrays."""
    if not isinstance(images, np.memmap) or images.mode != "r" or images.filename is None:
        return None
    file = Path(images.filename)
    whole = images.flags.c_contiguous and images.offset == 0 and file.is_file() and file.stat().st_size == images.nbytes
    return file if whole else None


def _mapped(
    file: Path, modified: int, shape: tuple[int, ...], names: tuple[str, ...], classes: tuple[str, ...], digest: str
) -> ImageStore:
    if not file.is_file() or file.stat().st_mtime_ns != modified:
        raise DataError(f"{file} is gone or was written again since these images were loaded: load the data set again.")
    return ImageStore(np.memmap(file, np.uint8, "r", shape=shape), names, classes, digest)


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
#: Bytes of pixels that are decoded before they are handed on.
PORTION = 48 * 2**20
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


@dataclass(frozen=True, eq=False)
class Portion:
    """Decoded images that follow each other in the list of files, and each file's sha256."""

    pixels: npt.NDArray[np.uint8]
    checksums: tuple[str, ...]


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
    classes: Sequence[str],
    size: int,
    *,
    workers: int | None = None,
    progress: bool | Report | None = None,
    title: str = "decoding images",
) -> ImageStore:
    """Decode images into memory.

    Parameters
    ----------
    files : in the order of the rows.
    classes : names.
    size : height and width that images are resized to.
    workers : number of threads; one per core by default.
    progress : see :class:`toporo.progress.Progress`.
    title : of the progress.
    """
    pixels = np.empty((len(files), size, size, 3), dtype=np.uint8)
    digest, done = hashlib.sha256(), 0
    for portion in decode_portions(files, size, workers=workers, progress=progress, title=title):
        digest.update(portion.pixels.data)
        pixels[done : done + len(portion.pixels)] = portion.pixels
        done += len(portion.pixels)
    names = tuple(file.name for file in files)
    return ImageStore(pixels, names, tuple(classes), image_digest(digest.hexdigest(), size, names, classes))


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
    except Exception as error:  # decoders of broken files raise whatever they stumble over
        return _Outcome(checksum, _problem(error))
    return _Outcome(checksum, "")


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


SCHEMA = "toporo.packed/1"
PIXELS = "pixels.u8"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """Content of a packed folder.

    Attributes
    ----------
    size : height and width of every image.
    names, classes : see :class:`~toporo.data.images.ImageStore`.
    bytes, modified, checksums : of the source files, in the order of the names; times in nanoseconds.
    pixels : sha256 of the pixels.
    digest : of the store.
    checked : when the file of pixels had last been changed as its sha256 was found right; None before that.
    """

    size: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    names: tuple[str, ...]
    classes: tuple[str, ...]
    bytes: tuple[int, ...]
    modified: tuple[int, ...]
    checksums: tuple[str, ...]
    pixels: str
    digest: str
    checked: int | None = None

    @property
    def length(self) -> int:
        """Bytes that the file of pixels must have."""
        return 3 * self.size * self.size * len(self.names)


# ---------------------------------------------------------------------- use


def load_packed(
    folder: str | os.PathLike[str],
    files: Sequence[ImageFile],
    classes: Sequence[str],
    size: int,
    *,
    verify: bool = False,
    workers: int | None = None,
    progress: bool | Report | None = None,
    title: str = "packing images",
) -> ImageStore:
    """Return the images of these files from a packed folder, which is made first if it is absent, stale or corrupt.

    Parameters
    ----------
    folder : packed, or to be.
    files, classes, size, workers, progress, title : as for :func:`decode_all`.
    verify : compute the sha256 of the pixels even if it was right before.
    """
    place = Path(folder)
    problem = "nothing there yet"
    if (place / MANIFEST).exists():
        try:
            manifest = _current(place, read_manifest(place), files, classes, size)
            return _open(place, manifest, verify=verify)
        except DataError as error:
            problem = str(error).removesuffix(_again(place)).rstrip(". ")
    logger.info("%s: %d images into %s (%s)", title, len(files), place, problem)
    return _open(place, pack(place, files, classes, size, workers=workers, progress=progress, title=title), verify=True)


def open_packed(folder: str | os.PathLike[str], *, verify: bool = False) -> ImageStore:
    """Return the images of a packed folder, also if the files they were decoded from have changed or are gone."""
    return _open(Path(folder), read_manifest(Path(folder)), verify=verify)


def _open(folder: Path, manifest: Manifest, *, verify: bool) -> ImageStore:
    path = folder / PIXELS
    if not path.is_file():
        raise DataError(f"{folder} has a {MANIFEST} but no {PIXELS}. {_again(folder)}")
    status = path.stat()
    if status.st_size != manifest.length:
        raise DataError(
            f"{path} has {status.st_size} bytes, expected {manifest.length} for {len(manifest.names)} images of "
            f"{manifest.size} × {manifest.size}: it is cut short or of something else. {_again(folder)}"
        )
    if verify or manifest.checked != status.st_mtime_ns:
        digest = sha256(path)
        if digest != manifest.pixels:
            raise DataError(f"{path} is corrupt: its sha256 is {digest}, expected {manifest.pixels}. {_again(folder)}")
        _remember(folder, replace(manifest, checked=status.st_mtime_ns))
    shape = (len(manifest.names), manifest.size, manifest.size, 3)
    return ImageStore(np.memmap(path, np.uint8, "r", shape=shape), manifest.names, manifest.classes, manifest.digest)


def _current(
    folder: Path, manifest: Manifest, files: Sequence[ImageFile], classes: Sequence[str], size: int
) -> Manifest:
    """Return the manifest with the files' times of change; refuse one of other files."""
    if manifest.size != size or manifest.classes != tuple(classes):
        raise DataError(f"{folder} holds images of another size or of other classes. {_again(folder)}")
    known = dict(
        zip(manifest.names, zip(manifest.bytes, manifest.modified, manifest.checksums, strict=True), strict=True)
    )
    gone = len(known.keys() - {file.name for file in files})
    changed = [file.name for file in files if not _same(file, known.get(file.name))]
    if changed or manifest.names != tuple(file.name for file in files):
        raise DataError(
            f"{folder} was packed from other files: {len(changed)} are new or changed, {gone} are gone. "
            f"{_again(folder)}"
        )
    times = tuple(file.modified for file in files)
    if times == manifest.modified:
        return manifest
    updated = replace(manifest, modified=times)
    _remember(folder, updated)
    return updated


def _same(file: ImageFile, known: tuple[int, int, str] | None) -> bool:
    if known is None or known[0] != file.bytes:
        return False
    return known[1] == file.modified or known[2] == sha256(file.path)


# ---------------------------------------------------------------------- packing


def pack(
    folder: str | os.PathLike[str],
    files: Sequence[ImageFile],
    classes: Sequence[str],
    size: int,
    *,
    workers: int | None = None,
    progress: bool | Report | None = None,
    title: str = "packing images",
) -> Manifest:
    """Decode the files into a packed folder, a portion at a time; whatever was packed there is replaced.

    Where that fails, what was there before is there still, and nothing else.
    """
    place = Path(folder)
    checksums: list[str] = []
    digest = hashlib.sha256()

    def write(stream: BinaryIO) -> None:
        for portion in decode_portions(files, size, workers=workers, progress=progress, title=title):
            stream.write(portion.pixels.data)
            digest.update(portion.pixels.data)
            checksums.extend(portion.checksums)
        stream.flush()  # a full disk is noticed while the old manifest still stands
        (place / MANIFEST).unlink(missing_ok=True)

    try:
        with _removed_if_in_vain(place):
            _make_room(place, 3 * size * size * len(files))
            write_whole(place / PIXELS, write)
            names = tuple(file.name for file in files)
            manifest = Manifest(
                size=size,
                names=names,
                classes=tuple(classes),
                bytes=tuple(file.bytes for file in files),
                modified=tuple(file.modified for file in files),
                checksums=tuple(checksums),
                pixels=digest.hexdigest(),
                digest=image_digest(digest.hexdigest(), size, names, classes),
            )
            _write_manifest(place, manifest)
    except OSError as error:
        raise DataError(
            f"cannot pack images into {place}: {error.strerror or error}. Name a folder that can be written to, or "
            "none to keep the images in memory."
        ) from error
    return manifest


@contextlib.contextmanager
def _removed_if_in_vain(folder: Path) -> Iterator[None]:
    """Whatever fails within: of the folders that were not there before, this one and those above, none stays empty."""
    absent = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # someone else has put something there
            for place in absent:
                place.rmdir()
        raise


def _make_room(folder: Path, wanted: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < wanted:
        raise DataError(
            f"packing images into {folder} takes {wanted / 1e9:.2f} GB, but only {free / 1e9:.2f} GB are free there. "
            "Name a folder on another disk, or none to keep the images in memory."
        )


# ---------------------------------------------------------------------- the manifest


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a packed folder; refuse one that toporo did not write."""
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"{folder} is not a folder of packed images: it has no {MANIFEST}.")
    try:
        content = read_json(path)
        manifest = msgspec.convert(content, Manifest)
    except (DataError, msgspec.ValidationError):
        raise DataError(f"{path} is damaged: expected a manifest as {SCHEMA} has it. {_again(folder)}") from None
    whole = len(manifest.names) == len(manifest.bytes) == len(manifest.modified) == len(manifest.checksums) > 0
    digest = image_digest(manifest.pixels, manifest.size, manifest.names, manifest.classes)
    if content.get("schema") != SCHEMA or not whole or digest != manifest.digest:
        raise DataError(f"{path} does not fit {SCHEMA}, or contradicts itself. {_again(folder)}")
    return manifest


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    write_text(folder / MANIFEST, json.dumps({"schema": SCHEMA, **asdict(manifest)}, indent=1) + "\n")


def _remember(folder: Path, manifest: Manifest) -> None:
    """Save a manifest; in a folder that cannot be written to it is computed again the next time."""
    with contextlib.suppress(OSError):
        _write_manifest(folder, manifest)


def _again(folder: Path) -> str:
    return f"Delete {folder}; it is made again when the data set is loaded with this cache."
