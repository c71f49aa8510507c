"""Where the pixels of a benchmark are: grouped data hold row numbers, a store holds what the rows look like.

Splitting and balancing then move row numbers about and never copy an image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError


def image_digest(pixels: str, size: int, names: Sequence[str], classes: Sequence[str]) -> str:
    """The digest of a store of square images whose pixels have this sha256."""
    return hashlib.sha256(repr((pixels, size, tuple(names), tuple(classes))).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class ImageStore:
    """Photographs, drawings, …: one class each.

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
    """The file that the array is a read-only map of, from its first byte to its last."""
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
