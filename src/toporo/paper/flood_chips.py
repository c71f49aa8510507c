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
from toporo.machine import cores
from toporo.paper.loaded import FileState, file_state
from toporo.progress import Progress, Report

#: The bucket, its folder in a data folder, and the folder of its lists.
BUCKET = "gs://sen1floods11"
FOLDER = "sen1floods11/v1.1"
LISTS = Path("splits/flood_handlabeled")
#: Folders of images and labels in the bucket.
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
#: Limits far above any chip: a damaged header can claim any size and number of pages.
MAX_BYTES, MAX_PAGES = 2**27, 32

Pixels: TypeAlias = npt.NDArray[Any]


# ---------------------------------------------------------------------- the folder and its lists


def find_folder(folder: Path) -> Path | None:
    """Return the copy of the bucket's folder: in a data folder, or the given one itself."""
    candidates = (folder / FOLDER, folder)
    return next((root for root in candidates if (root / LISTS).is_dir() or (root / IMAGES).is_dir()), None)


def list_paths(root: Path) -> dict[str, Path]:
    """Return the path of the publishers' list of each role."""
    return {role: root / LISTS / f"flood_{role}_data.csv" for role in CHECKSUMS}


def read_lists(root: Path) -> dict[str, str]:
    """Return the role of each chip in the four official lists, in the order of the chips' names."""
    roles: dict[str, str] = {}
    for role, path in list_paths(root).items():
        if not path.is_file():
            raise DataError(f"no list {path}. Expected four, of the roles {', '.join(CHECKSUMS)}. {EXPECTED}")
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise DataError(f"{path} is not text, expected a list of file names. {EXPECTED}") from None
        for number, line in enumerate(map(str.strip, lines), 1):
            if not line:
                continue
            match = _PAIR.fullmatch(line)
            if match is None:
                raise DataError(
                    f"{path}, line {number}: found {line[:80]!r}, expected the image and the label of one chip, such "
                    "as 'Ghana_103272_S1Hand.tif,Ghana_103272_LabelHand.tif'."
                )
            if match[1] in roles:
                raise DataError(
                    f"{path}, line {number}: chip {match[1]} is already in flood_{roles[match[1]]}_data.csv. Expected "
                    "every chip once, so that none is both trained on and tested on."
                )
            roles[match[1]] = role
    if not roles:
        raise DataError(f"the lists in {root / LISTS} name no chip. {EXPECTED}")
    return dict(sorted(roles.items()))


def existing_chips(root: Path, roles: Mapping[str, str]) -> dict[str, str]:
    """Return the chips whose image and label exist, with their roles."""
    return {chip: role for chip, role in roles.items() if all(path.is_file() for path in chip_paths(root, chip))}


def file_states(folder: Path | None) -> list[FileState]:
    """Return the states of the folder, with the number of its chips, and of the official lists."""
    root = find_folder(folder) if folder is not None else None
    if root is None:
        return [(FOLDER, "absent (toporo data get sen1floods11 says how to get it)")]
    try:
        roles = read_lists(root)
        state = f"found ({len(existing_chips(root, roles))} of {len(roles)} chips)"
    except DataError as error:
        state = f"damaged ({error})"
    lists = [file_state(path, CHECKSUMS[role]) for role, path in list_paths(root).items() if path.is_file()]
    return [(str(root), state), *lists]


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
    """Read the first image of a file in its data type, the channels before height and width.

    The floating point number that the file declares as "no data" becomes NaN.
    """
    tifffile = require_geotiff()
    try:
        with tifffile.TiffFile(path) as tiff:
            _check_header(path, tiff)
            series = tiff.series[0]
            pixels: Pixels = series.asarray(maxworkers=1)
            if pixels.dtype.kind == "f" and "GDAL_NODATA" in series.keyframe.tags:
                pixels[pixels == pixels.dtype.type(series.keyframe.nodata)] = np.nan
            return np.moveaxis(pixels, 2, 0) if series.axes == "YXS" else pixels
    except DataError:
        raise
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise DataError(
            f"{path} cannot be read as a GeoTIFF ({str(error) or type(error).__name__}). It is damaged, or something "
            "else saved under this name, such as a server's error message: fetch it again."
        ) from error


def _check_header(path: Path, tiff: Any) -> None:
    """Check the number of images, their size, and that the file contains all their bytes.

    A list of pages may be circular, which tifffile would follow for hours, and some decoders fill missing bytes with
    zeros.
    """
    for number in range(MAX_PAGES + 1):
        try:
            page = tiff.pages[number]
        except IndexError:
            break
        if number == MAX_PAGES or len(page.subifds or ()) > MAX_PAGES:
            raise DataError(f"{path} says that it holds more than {MAX_PAGES} images: it is damaged, or not a chip.")
    series = tiff.series[0]
    claimed = max(series.nbytes, math.prod(series.keyframe.chunks) * series.dtype.itemsize)
    if claimed > MAX_BYTES:
        raise DataError(
            f"{path} says that its image has shape {series.shape} and takes {claimed / 2**30:.3g} GiB, expected at "
            f"most {MAX_BYTES / 2**30:g}: it is damaged, or not a chip."
        )
    pages = [page for page in series.pages if page is not None]
    ends = [sum(part) for page in pages for part in zip(page.dataoffsets, page.databytecounts, strict=True)]
    size, needed = path.stat().st_size, max(ends, default=0)
    if needed > size:
        raise DataError(f"{path} is truncated: it has {size} bytes, expected at least {needed}. Fetch it again.")


# ---------------------------------------------------------------------- chips


def chip_paths(root: Path, chip: str) -> tuple[Path, Path]:
    """Return the paths of a chip's image and its label."""
    return root / IMAGES / f"{chip}_S1Hand.tif", root / LABELS / f"{chip}_LabelHand.tif"


def read_chips(root: Path, roles: Mapping[str, str], tile: int, report: bool | Report | None) -> TileStore:
    """Read the tiles of chips (chip to role) that have a pixel with a measurement and a label.

    The last result (1 GB for all chips) is reused if no file has changed. ``report`` is as in
    :class:`toporo.progress.Progress`.
    """
    stamps = [path.stat() for chip in roles for path in chip_paths(root, chip)]
    changes = tuple((stamp.st_size, stamp.st_mtime_ns) for stamp in stamps)
    return _read_all(root, tuple(roles.items()), tile, changes, report)


@lru_cache(maxsize=1)  # the variants of a table, one per test event, share the chips
def _read_all(
    root: Path, roles: tuple[tuple[str, str], ...], tile: int, _changes: object, report: bool | Report | None
) -> TileStore:
    x, y, corners, names, used = [], [], [], [], []
    with Progress("reading chips", len(roles), report) as progress, ThreadPoolExecutor(min(8, cores())) as pool:
        chips = pool.map(lambda entry: _read_chip(root, entry[0], tile), roles)
        for (chip, role), (image, label) in zip(roles, chips, strict=True):
            missing = ~np.isfinite(image).all(axis=0)
            image[:, missing], label[missing] = np.nan, -1
            labels = _cut(label[None], tile)[:, 0]
            usable = np.flatnonzero((labels >= 0).any(axis=(1, 2)))
            x.append(_cut(image, tile)[usable])
            y.append(labels[usable])
            corners.append(tile * np.indices([side // tile for side in label.shape]).reshape(2, -1).T[usable])
            names += [chip] * len(usable)
            used += [role] * len(usable)
            progress.step()
    arrays = np.concatenate(x), np.concatenate(y), np.concatenate(corners)
    digest = hashlib.sha256(repr((arrays[0].shape, tuple(names), tuple(used))).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return TileStore(arrays[0], arrays[1], tuple(names), arrays[2], tuple(used), digest.hexdigest())


def _read_chip(root: Path, chip: str, tile: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]:
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
    if any(side % tile for side in label.shape):
        common = math.gcd(*label.shape)
        divisors = [side for side in range(common, 0, -1) if common % side == 0]
        raise DataError(
            f"{paths[0]} is {label.shape[0]}×{label.shape[1]} pixels, which tile={tile} does not divide. Expected one "
            f"of {', '.join(map(str, divisors[:8]))}."
        )
    return image.astype(np.float32, copy=False), label.astype(np.int8)


def _cut(pixels: Pixels, tile: int) -> Pixels:
    """Cut channels, height and width into tiles, row by row: ``(tiles, channels, tile, tile)``."""
    channels, height, width = pixels.shape
    grid = pixels.reshape(channels, height // tile, tile, width // tile, tile)
    return grid.transpose(1, 3, 0, 2, 4).reshape(-1, channels, tile, tile)
