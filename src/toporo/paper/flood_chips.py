"""Files of Sen1Floods11: the official lists, GeoTIFF images and labels, and the tiles that chips are cut into."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from toporo.data import TileStore
from toporo.errors import DataError, SettingError, listed
from toporo.files import sha256
from toporo.machine import cores
from toporo.progress import Progress, Report

#: The bucket, and its folder in a data folder.
BUCKET = "gs://sen1floods11"
FOLDER = "sen1floods11/v1.1"
#: Folders of the lists, the images and the labels in the bucket.
LISTS = Path("splits/flood_handlabeled")
IMAGES = Path("data/flood_events/HandLabeled/S1Hand")
LABELS = Path("data/flood_events/HandLabeled/LabelHand")
#: Checksums of the publishers' lists by role. Chips have no published checksums.
CHECKSUMS = {
    "train": "57be4dc440bf8a526effa77e06d4b8cb7a8484589c0bffa201d8e0f49e994beb",
    "valid": "04999b82b93e393c32a54ac85b2bf8a18b671f7a6f43a9478b340e8a9b9647fb",
    "test": "8b598c9438042f3ed8aed4484268387fae1aa5b660882e1c5b4c1218eba63d67",
    "bolivia": "4775d100fae1f1ca66a842b8af6d2a97b8bfc5847f29d88ff0affff2c1e22768",
}
HOW_TO_GET = f"Copy {BUCKET}/v1.1 with Google Cloud's tools; it goes into the data folder as {FOLDER}."
EXPECTED = f"Expected the layout of the bucket {BUCKET}, folder v1.1."
_PAIR = re.compile(r"([^_/\\,]+_[^_/\\,]+)_S1Hand\.tif,\1_LabelHand\.tif")
#: Limit far above any chip: a damaged header can claim any size.
MAX_BYTES = 2**27

Pixels: TypeAlias = npt.NDArray[Any]


# ---------------------------------------------------------------------- lists


def list_path(root: Path, role: str) -> Path:
    """Return the path of the publishers' list of the chips with a role."""
    return root / LISTS / f"flood_{role}_data.csv"


def read_lists(root: Path) -> dict[str, str]:
    """Return the role of each chip in the four official lists, in the order of the chips' names."""
    roles: dict[str, str] = {}
    for role in CHECKSUMS:
        path = list_path(root, role)
        if not path.is_file():
            raise DataError(f"no list {path}. Expected four, of the roles {', '.join(CHECKSUMS)}. {EXPECTED}")
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split(), 1):
            match = _PAIR.fullmatch(line)
            if match is None:
                raise DataError(
                    f"{path}, line {number}: found {line[:80]!r}, expected the image and the label of one chip, such "
                    "as 'Ghana_103272_S1Hand.tif,Ghana_103272_LabelHand.tif'."
                )
            roles[match[1]] = role
    return dict(sorted(roles.items()))


def has_official_lists(root: Path) -> bool:
    """Return whether the lists are the publishers'."""
    return all(sha256(list_path(root, role)) == checksum for role, checksum in CHECKSUMS.items())


def chip_paths(root: Path, chip: str) -> tuple[Path, Path]:
    """Return the paths of a chip's image and its label."""
    return root / IMAGES / f"{chip}_S1Hand.tif", root / LABELS / f"{chip}_LabelHand.tif"


def existing_chips(root: Path, roles: Mapping[str, str]) -> dict[str, str]:
    """Return the chips whose image and label exist, with their roles."""
    return {chip: role for chip, role in roles.items() if all(path.is_file() for path in chip_paths(root, chip))}


def check(root: Path) -> str:
    """Return the number of chips that are there, and whether the lists are the publishers'."""
    roles = read_lists(root)
    count = f"{len(existing_chips(root, roles))} of {len(roles)} chips"
    return f"found ({count})" if has_official_lists(root) else f"differs ({count}, of lists that are not the official)"


# ---------------------------------------------------------------------- GeoTIFF files


def require_geotiff() -> Any:
    """Return the module ``tifffile``, or raise an error that says how to install it and its codecs."""
    try:
        import imagecodecs  # noqa: F401
        import tifffile
    except ImportError as error:
        raise SettingError(
            f"reading GeoTIFF files needs tifffile and imagecodecs, but {error.name} is not installed: pip install "
            "'toporo[geo]'."
        ) from None
    return tifffile


def read_geotiff(path: Path) -> Pixels:
    """Read the first image of a file in its data type; several channels come before height and width.

    A header that claims more than :data:`MAX_BYTES`, and a file without all of its bytes, which decoders would fill
    with zeros, are errors.
    """
    tifffile = require_geotiff()
    try:
        with tifffile.TiffFile(path) as tiff:
            page = tiff.pages.first
            claimed = max(page.nbytes, math.prod(page.chunks) * page.dtype.itemsize)
            if claimed > MAX_BYTES:
                raise DataError(
                    f"{path} says that its image has shape {page.shape} and takes {claimed / 2**30:.3g} GiB, expected "
                    f"at most {MAX_BYTES / 2**30:g}: it is damaged, or not a chip."
                )
            size, needed = path.stat().st_size, max(map(sum, zip(page.dataoffsets, page.databytecounts, strict=True)))
            if needed > size:
                raise DataError(f"{path} is truncated: it has {size} bytes, expected {needed} or more. Fetch it again.")
            pixels: Pixels = page.asarray(maxworkers=1)
            return pixels
    except DataError:
        raise
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise DataError(
            f"{path} cannot be read as a GeoTIFF ({str(error) or type(error).__name__}). It is damaged, or something "
            "else saved under this name, such as a server's error message: fetch it again."
        ) from error


# ---------------------------------------------------------------------- chips


def read_chips(root: Path, roles: Mapping[str, str], size: int, report: bool | Report | None) -> TileStore:
    """Read the tiles of chips (chip to role) that have a pixel with a measurement and a label.

    The last result (1 GB for all chips) is reused if no file has changed. ``report`` is as in
    :class:`toporo.progress.Progress`.
    """
    stamps = [path.stat() for chip in roles for path in chip_paths(root, chip)]
    changes = tuple((stamp.st_size, stamp.st_mtime_ns) for stamp in stamps)
    return _read_all(root, tuple(roles.items()), size, changes, report)


@lru_cache(maxsize=1)  # the variants of a table, one per test event, share the chips
def _read_all(
    root: Path, roles: tuple[tuple[str, str], ...], size: int, _changes: object, report: bool | Report | None
) -> TileStore:
    x, y, names, used = [], [], [], []
    with Progress("reading chips", len(roles), report) as progress, ThreadPoolExecutor(min(8, cores())) as pool:
        chips = pool.map(lambda entry: _read_chip(root, entry[0], size), roles)
        for (chip, role), (image, label) in zip(roles, chips, strict=True):
            missing = ~np.isfinite(image).all(axis=0)
            image[:, missing], label[missing] = np.nan, -1
            labels = _cut(label[None], size)[:, 0]
            usable = np.flatnonzero((labels >= 0).any(axis=(1, 2)))
            x.append(_cut(image, size)[usable])
            y.append(labels[usable])
            names += [chip] * len(usable)
            used += [role] * len(usable)
            progress.step()
    arrays = np.concatenate(x), np.concatenate(y)
    digest = hashlib.sha256(repr((arrays[0].shape, tuple(names), tuple(used))).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return TileStore(*arrays, tuple(names), tuple(used), digest.hexdigest())


def _read_chip(root: Path, chip: str, size: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]:
    paths = chip_paths(root, chip)
    image, label = map(read_geotiff, paths)
    if image.ndim != 3 or len(image) != 2 or image.dtype.kind != "f":
        raise DataError(
            f"{paths[0]} holds {image.dtype} numbers of shape {image.shape}, expected floating point decibels of shape "
            "(2, height, width): the channels VV and VH of Sentinel-1."
        )
    if label.shape != image.shape[1:]:
        raise DataError(
            f"{paths[1]} has shape {label.shape}, expected a label per pixel of the image: {image.shape[1:]}."
        )
    unknown = label[~np.isin(label, (-1, 0, 1))]
    if unknown.size:
        raise DataError(
            f"{paths[1]} has labels other than −1 (no label), 0 (land) and 1 (water): "
            f"{listed(np.unique(unknown).tolist(), 5)}, in {unknown.size} pixel(s)."
        )
    if size < 1 or any(side % size for side in label.shape):
        raise DataError(
            f"{paths[0]} is {label.shape[0]}×{label.shape[1]} pixels: expected a size of tiles that divides both, "
            f"found {size}."
        )
    return image.astype(np.float32, copy=False), label.astype(np.int8)


def _cut(pixels: Pixels, size: int) -> Pixels:
    """Cut channels, height and width into tiles, row by row: ``(tiles, channels, size, size)``."""
    channels, height, width = pixels.shape
    grid = pixels.reshape(channels, height // size, size, width // size, size)
    return grid.transpose(1, 3, 0, 2, 4).reshape(-1, channels, size, size)
