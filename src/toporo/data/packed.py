"""Decoded images on disk: one file of raw pixels that is mapped into memory, and a manifest beside it.

A packed folder holds ``pixels.u8`` (bytes, ``(n, size, size, 3)``) and ``manifest.json``. The manifest is written last
and removed first, so a folder that has one is whole. It knows the files that the pixels were decoded from (name, bytes,
time of change, sha256) and the sha256 of the pixels; both are compared when the folder is opened:

- a source file that came, went or has another length makes the folder stale; so does one with another time of change,
  unless its sha256 is still the same (a copied data set has new times);
- pixels of another length are corrupt; their sha256 is computed when they are opened for the first time, and again
  whenever the file's time of change is not the one it had then.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from toporo.data.images import ImageFile, decode_portions
from toporo.data.stores import ImageStore, image_digest
from toporo.errors import DataError
from toporo.files import sha256, write_text, write_whole
from toporo.progress import Report, logger

SCHEMA = "toporo.packed/1"
PIXELS = "pixels.u8"
MANIFEST = "manifest.json"
#: Seconds after which a half-written file is taken to be nobody's.
_ABANDONED = 3600.0


@dataclass(frozen=True)
class Manifest:
    """What a packed folder holds.

    Attributes
    ----------
    size : height and width of every image.
    names, classes : see :class:`~toporo.data.stores.ImageStore`.
    bytes, modified, checksums : of the source files, in the order of the names; times in nanoseconds.
    pixels : sha256 of the pixels.
    digest : of the store.
    checked : when the file of pixels had last been changed as its sha256 was found right; None before that.
    """

    size: int
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
    """The images of these files from a packed folder, which is made first if it is absent, stale or corrupt.

    ``verify=True`` computes the sha256 of the pixels even if it was found right before.
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
    """The images of a packed folder, whatever became of the files they were decoded from."""
    return _open(Path(folder), read_manifest(Path(folder)), verify=verify)


def verify(folder: str | os.PathLike[str]) -> Manifest:
    """Compute the sha256 of the pixels; a :class:`~toporo.errors.DataError` unless it is the manifest's."""
    manifest = read_manifest(Path(folder))
    _open(Path(folder), manifest, verify=True)
    return manifest


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
    """The manifest, with the files' times of change; an error unless it is of exactly these files."""
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

    def write(path: Path) -> None:
        with path.open("wb") as stream:
            for portion in decode_portions(files, size, workers=workers, progress=progress, title=title):
                stream.write(portion.pixels.data)
                digest.update(portion.pixels.data)
                checksums.extend(portion.checksums)
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
    for part in folder.glob(f".{PIXELS}.*.part"):
        if time.time() - part.stat().st_mtime > _ABANDONED:
            part.unlink(missing_ok=True)
    free = shutil.disk_usage(folder).free
    if free < wanted:
        raise DataError(
            f"packing images into {folder} takes {wanted / 1e9:.2f} GB, but only {free / 1e9:.2f} GB are free there. "
            "Name a folder on another disk, or none to keep the images in memory."
        )


# ---------------------------------------------------------------------- the manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a packed folder; an error if there is none or it is not one of ours."""
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"{folder} is not a folder of packed images: it has no {MANIFEST}.")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        schema = content.pop("schema")
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in content.items()
        }
        manifest = Manifest(**fields)
        whole = len(manifest.names) == len(manifest.bytes) == len(manifest.modified) == len(manifest.checksums) > 0
        digest = image_digest(manifest.pixels, manifest.size, manifest.names, manifest.classes)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{path} is damaged: expected a manifest as {SCHEMA} has it. {_again(folder)}") from None
    if schema != SCHEMA or not whole or digest != manifest.digest:
        raise DataError(f"{path} does not fit {SCHEMA}, or contradicts itself. {_again(folder)}")
    return manifest


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    write_text(folder / MANIFEST, json.dumps({"schema": SCHEMA, **asdict(manifest)}, indent=1) + "\n")


def _remember(folder: Path, manifest: Manifest) -> None:
    """Save what was found out; a folder that cannot be written to only has to find it out again."""
    with contextlib.suppress(OSError):
        _write_manifest(folder, manifest)


def _again(folder: Path) -> str:
    return f"Delete {folder}; it is made again when the data set is loaded with this cache."
