"""Radar chips of Sen1Floods11: reading, checks, tiles, and scaling by training rows."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from toporo.data.images import TileStore
from toporo.errors import DataError, DatasetNotFoundError, SettingError, listed
from toporo.machine import cores
from toporo.progress import Progress, Report

CHANNELS = ("VV", "VH")
#: Folders of images and labels in the bucket.
IMAGES = Path("data/flood_events/HandLabeled/S1Hand")
LABELS = Path("data/flood_events/HandLabeled/LabelHand")
#: Limits far above any chip: a damaged header can claim any size and number of pages.
_MOST_BYTES, _MOST_PAGES = 2**27, 32

Pixels: TypeAlias = npt.NDArray[Any]


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


def read_geotiff(path: str | os.PathLike[str]) -> Pixels:
    """Read the first image of a file: ``(channels, height, width)``, in the data type of the file.

    The floating point number that the file declares as "no data" becomes NaN.
    """
    tifffile, file = require_geotiff(), Path(path)
    if not file.is_file():
        raise DatasetNotFoundError(f"no such file: {file}. Expected a GeoTIFF.")
    try:
        with tifffile.TiffFile(file) as tiff:
            _check_header(file, tiff)
            series = tiff.series[0]
            pixels, axes = series.asarray(maxworkers=1), series.axes
            nodata = series.keyframe.nodata if "GDAL_NODATA" in series.keyframe.tags else np.nan
    except DataError:
        raise
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise DataError(
            f"{file} cannot be read as a GeoTIFF ({str(error) or type(error).__name__}). It is damaged, or something "
            "else saved under this name, such as a server's error message: fetch it again."
        ) from error
    if pixels.ndim == 2:
        pixels, axes = pixels[None], "S" + axes
    if pixels.ndim != 3 or "Y" not in axes or "X" not in axes:
        raise DataError(
            f"{file} holds an array of shape {pixels.shape} (axes {axes}), expected one image: channels, height, width."
        )
    height, width = axes.index("Y"), axes.index("X")
    pixels = np.ascontiguousarray(pixels.transpose(3 - height - width, height, width))
    if pixels.dtype.kind == "f" and not np.isnan(nodata):
        pixels[pixels == pixels.dtype.type(nodata)] = np.nan
    return pixels


def _check_header(file: Path, tiff: Any) -> None:
    """Check the number of images, their size, and that the file contains all their bytes.

    A list of pages may be circular, which tifffile would follow for hours, and some decoders fill missing bytes with
    zeros.
    """
    for number in range(_MOST_PAGES + 1):
        try:
            page = tiff.pages[number]
        except IndexError:
            break
        if number == _MOST_PAGES or len(page.subifds or ()) > _MOST_PAGES:
            raise DataError(f"{file} says that it holds more than {_MOST_PAGES} images: it is damaged, or not a chip.")
    series = tiff.series[0]
    pages = [page for page in series.pages if page is not None]
    ends = [sum(part) for page in pages for part in zip(page.dataoffsets, page.databytecounts, strict=True)]
    size, claimed = file.stat().st_size, max(series.nbytes, math.prod(series.keyframe.chunks) * series.dtype.itemsize)
    if claimed > _MOST_BYTES:
        raise DataError(
            f"{file} says that its image has shape {series.shape} and takes {claimed / 2**30:.3g} GiB, expected at "
            f"most {_MOST_BYTES / 2**30:g}: it is damaged, or not a chip."
        )
    if max(ends, default=0) > size:
        raise DataError(f"{file} is truncated: it has {size} bytes, expected at least {max(ends)}. Fetch it again.")


# ---------------------------------------------------------------------- chips


def chip_paths(root: Path, chip: str) -> tuple[Path, Path]:
    """Return the paths of a chip's image and its label."""
    return root / IMAGES / f"{chip}_S1Hand.tif", root / LABELS / f"{chip}_LabelHand.tif"


def _read_image(path: Path) -> npt.NDArray[np.float32]:
    pixels = read_geotiff(path)
    if len(pixels) != len(CHANNELS) or pixels.dtype.kind != "f":
        raise DataError(
            f"{path} holds {len(pixels)} channel(s) of {pixels.dtype} numbers, expected {len(CHANNELS)} "
            f"({' and '.join(CHANNELS)} of Sentinel-1) of floating point decibels."
        )
    return pixels.astype(np.float32, copy=False)


def _read_label(path: Path) -> npt.NDArray[np.int8]:
    pixels = read_geotiff(path)
    if len(pixels) != 1:
        raise DataError(f"{path} has {len(pixels)} channels, expected 1: a label per pixel.")
    unknown = pixels[~np.isin(pixels, (-1, 0, 1))]
    if unknown.size:
        raise DataError(
            f"{path} has labels other than −1 (no label), 0 (land) and 1 (water): "
            f"{listed(np.unique(unknown).tolist(), 5)}, in {unknown.size} pixel(s)."
        )
    labels: npt.NDArray[np.int8] = pixels[0].astype(np.int8)
    return labels


@dataclass(frozen=True, eq=False)
class ChipTiles:
    """Usable tiles of chips, and the reasons why other chips have none."""

    store: TileStore
    dropped: Mapping[str, str]


def read_chips(root: Path, roles: Mapping[str, str], tile: int, shown: bool | Report | None, note: str) -> ChipTiles:
    """Read chips (chip to role). The last result (1 GB for all chips) is reused if no file has changed.

    ``shown`` is as in :class:`toporo.progress.Progress`, and ``note`` a line for it.
    """
    stamps = [path.stat() for chip in roles for path in chip_paths(root, chip)]
    changes = tuple((stamp.st_size, stamp.st_mtime_ns) for stamp in stamps)
    return _read_all(root, tuple(roles.items()), tile, changes, shown, note)


@lru_cache(maxsize=1)  # the variants of a table, one per test event, share the chips
def _read_all(
    root: Path, roles: tuple[tuple[str, str], ...], tile: int, _changes: object, shown: bool | Report | None, note: str
) -> ChipTiles:
    x, y, corners, names, used, dropped = [], [], [], [], [], {}
    with Progress("reading chips", len(roles), shown) as progress, ThreadPoolExecutor(min(8, cores())) as pool:
        if note:
            progress.say(note)
        read = pool.map(lambda entry: _read_chip(root, entry[0], tile), roles)
        for (chip, role), (image, label) in zip(roles, read, strict=True):
            missing = ~np.isfinite(image).all(axis=0)
            image[:, missing], label[missing] = np.nan, -1
            tiles = _cut(label[None], tile)[:, 0]
            usable = np.flatnonzero((tiles >= 0).any(axis=(1, 2)))
            if not len(usable):
                dropped[chip] = "no measurement: every pixel is NaN" if missing.all() else "no label: every pixel is −1"
            x.append(_cut(image, tile)[usable])
            y.append(tiles[usable])
            corners.append(tile * np.indices([side // tile for side in label.shape]).reshape(2, -1).T[usable])
            names += [chip] * len(usable)
            used += [role] * len(usable)
            progress.step()
    arrays = np.concatenate(x), np.concatenate(y), np.concatenate(corners)
    digest = hashlib.sha256(repr((arrays[0].shape, tuple(names), tuple(used))).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return ChipTiles(TileStore(arrays[0], arrays[1], tuple(names), arrays[2], tuple(used), digest.hexdigest()), dropped)


def _read_chip(root: Path, chip: str, tile: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]:
    paths = chip_paths(root, chip)
    image, label = _read_image(paths[0]), _read_label(paths[1])
    sizes = ["×".join(map(str, size)) for size in (image.shape[1:], label.shape)]
    if sizes[0] != sizes[1]:
        raise DataError(
            f"{paths[0]} is {sizes[0]} pixels, but its label {paths[1].name} {sizes[1]}: expected the same size."
        )
    if any(side % tile for side in label.shape):
        fits = [side for side in range(min(label.shape), 0, -1) if not any(full % side for full in label.shape)]
        raise DataError(
            f"{paths[0]} is {sizes[0]} pixels, which tile={tile} does not divide. Expected one of "
            f"{', '.join(map(str, fits[:8]))}."
        )
    return image, label


def _cut(pixels: Pixels, tile: int) -> Pixels:
    """Cut channels, height and width into tiles, row by row: ``(tiles, channels, tile, tile)``."""
    channels, height, width = pixels.shape
    grid = pixels.reshape(channels, height // tile, tile, width // tile, tile)
    return grid.transpose(1, 3, 0, 2, 4).reshape(-1, channels, tile, tile)


def standardize(x: npt.NDArray[np.float32], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Scale every channel to mean 0 and standard deviation 1 over the measurements in some rows.

    Parameters
    ----------
    x : tiles, ``(n, channels, height, width)``; NaN marks a missing measurement and becomes 0.
    rows : the tiles that mean and standard deviation are computed from: those to train on.
    """
    scaled = np.empty_like(x)
    for number, channel in enumerate(np.moveaxis(x, 1, 0)):
        values = channel[rows]
        values = values[np.isfinite(values)]
        if not values.size or values.min() == values.max():
            found = f"is {values[0]:g} in every pixel" if values.size else "has no measurement"
            raise DataError(
                f"channel {number} {found} of the {len(rows)} row(s) to scale by: expected measurements that differ."
            )
        mean, sd = float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))
        scaled[:, number] = np.nan_to_num((channel - mean) / sd, posinf=0.0, neginf=0.0)
    return scaled
