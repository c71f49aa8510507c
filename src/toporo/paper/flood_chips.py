"""Radar chips of Sen1Floods11: read in parallel, checked, cut into tiles, and scaled by training rows alone."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import array_api_compat
import numpy as np
import numpy.typing as npt

from toporo.data.images import TileStore
from toporo.errors import DataError, DatasetNotFoundError, SettingError, listed
from toporo.machine import cores
from toporo.progress import Progress, Report

#: How a TIFF file begins: byte order, then the version, classic or big.
_STARTS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")


#: A damaged header can ask for all the memory there is; no chip comes near this many bytes, or pages.
_MOST_BYTES, _MOST_PAGES = 2**27, 32


def require_geotiff() -> Any:
    """The module ``tifffile``, or an error that says how to install what reading needs."""
    try:
        import imagecodecs  # noqa: F401
        import tifffile
    except ImportError as error:
        raise SettingError(
            f"reading GeoTIFF files needs tifffile and imagecodecs, but {error.name} is not installed: pip install "
            "'toporo[geo]'."
        ) from None
    return tifffile


def read_geotiff(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """The pixels of a file's first image: ``(channels, height, width)``, in the file's own type of numbers.

    Of floating point numbers, those that the file declares to mean "no data" become NaN.
    """
    tifffile, file = require_geotiff(), Path(path)
    _check_start(file)
    try:
        with tifffile.TiffFile(file) as tiff:
            _check_pages(file, tiff.pages)
            series = tiff.series[0]
            _check_whole(file, series)
            pixels, axes = series.asarray(maxworkers=1), series.axes
            nodata = series.keyframe.nodata if "GDAL_NODATA" in series.keyframe.tags else np.nan
        pixels = _channels_first(file, pixels, axes)
        if pixels.dtype.kind == "f" and not np.isnan(nodata):
            pixels[pixels == pixels.dtype.type(nodata)] = np.nan
    except DataError:
        raise
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise DataError(
            f"{file} cannot be read as a GeoTIFF: {str(error) or type(error).__name__}. The file is truncated or "
            "damaged: fetch it again."
        ) from error
    return pixels


def _check_start(file: Path) -> None:
    if not file.is_file():
        raise DatasetNotFoundError(f"no such file: {file}. Expected a GeoTIFF.")
    with file.open("rb") as stream:
        start = stream.read(4)
    if not start:
        raise DataError(f"{file} is empty, expected a GeoTIFF: fetch it again.")
    if start not in _STARTS:
        raise DataError(
            f"{file} is not a GeoTIFF: it begins with {start!r}, expected one of {', '.join(map(repr, _STARTS))}. It "
            "may be a server's error message saved under this name: fetch it again."
        )


def _check_pages(file: Path, pages: Any) -> None:
    """The list of pages has an end: where it runs in a circle, tifffile would follow it for hours."""
    for place in range(_MOST_PAGES):
        try:
            page = pages[place]
        except IndexError:
            return
        if len(page.subifds or ()) > _MOST_PAGES:
            break
    raise DataError(f"{file} says that it holds more than {_MOST_PAGES} images: it is damaged, or not a chip.")


def _check_whole(file: Path, series: Any) -> None:
    """Compare the file with what its header says: some decoders fill what is missing with zeros and say nothing."""
    ends = [
        offset + count
        for page in series.pages
        if page is not None
        for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True)
    ]
    size = file.stat().st_size
    largest = max(series.nbytes, math.prod(series.keyframe.chunks) * series.dtype.itemsize)
    if largest > _MOST_BYTES:
        raise DataError(
            f"{file} says that its image has shape {series.shape}, and that it takes {largest / 2**30:.3g} GiB: "
            f"expected at most {_MOST_BYTES / 2**30:g}. The file is damaged, or not a chip."
        )
    if ends and max(ends) > size:
        raise DataError(f"{file} is truncated: it has {size} bytes, expected at least {max(ends)}. Fetch it again.")


def _channels_first(file: Path, pixels: npt.NDArray[Any], axes: str) -> npt.NDArray[Any]:
    if pixels.ndim == 2:
        pixels, axes = pixels[None], "S" + axes
    if pixels.ndim != 3 or "Y" not in axes or "X" not in axes:
        raise DataError(
            f"{file} holds an array of shape {pixels.shape} (axes {axes}), expected one image: channels, height, width."
        )
    height, width = axes.index("Y"), axes.index("X")
    return np.ascontiguousarray(pixels.transpose(3 - height - width, height, width))


CHANNELS = ("VV", "VH")
#: Folders of a bucket.
IMAGES = Path("data/flood_events/HandLabeled/S1Hand")
LABELS = Path("data/flood_events/HandLabeled/LabelHand")

#: Tiles whose sums are taken at a time.
_BLOCK = 64

Pixels: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Tiles:
    """Usable tiles of one chip, or why there are none."""

    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.int8]
    corners: npt.NDArray[np.int64]
    dropped: str | None
    total: int


def _read_tiles(root: Path, chip: str, tile: int) -> _Tiles:
    image, label = chip_paths(root, chip)
    x, y = _read_image(image), _read_label(label)
    if x.shape[1:] != y.shape:
        raise DataError(
            f"{image} is {_by(x.shape[1:])} pixels, but its label {label.name} {_by(y.shape)}: expected the same size."
        )
    _check_tile(image, x.shape[1:], tile)
    measured, labelled = np.logical_and.reduce(np.isfinite(x)), y >= 0
    x[:, ~measured] = np.nan
    y[~measured] = -1
    tiles_x, tiles_y, corners = _cut(x, tile), _cut(y[None], tile)[:, 0], _corners(y.shape, tile)
    usable = np.flatnonzero((tiles_y >= 0).any(axis=(1, 2)))
    why = None if len(usable) else _why_unusable(measured, labelled)
    return _Tiles(tiles_x[usable], tiles_y[usable], corners[usable], why, len(tiles_y))


def _cut(pixels: Pixels, tile: int) -> Pixels:
    """Channels, height and width to tiles, row by row: ``(tiles, channels, tile, tile)``."""
    channels, height, width = pixels.shape
    grid = pixels.reshape(channels, height // tile, tile, width // tile, tile)
    return grid.transpose(1, 3, 0, 2, 4).reshape(-1, channels, tile, tile)


def _corners(size: tuple[int, ...], tile: int) -> npt.NDArray[np.int64]:
    """Row and column of the first pixel of every tile, in the order of :func:`_cut`."""
    return tile * np.indices([side // tile for side in size], dtype=np.int64).reshape(2, -1).T


def _why_unusable(measured: Pixels, labelled: Pixels) -> str:
    if not measured.any():
        return "no measurement: every pixel is NaN"
    if not labelled.any():
        return "no label: every pixel is −1"
    return "no pixel has both a measurement and a label"


def chip_paths(root: Path, chip: str) -> tuple[Path, Path]:
    """Where a chip's image and its label are."""
    return root / IMAGES / f"{chip}_S1Hand.tif", root / LABELS / f"{chip}_LabelHand.tif"


def _read_image(path: Path) -> npt.NDArray[np.float32]:
    pixels = read_geotiff(path)
    if len(pixels) != len(CHANNELS):
        raise DataError(
            f"{path} has {len(pixels)} channel(s) of {_by(pixels.shape[1:])} pixels, expected {len(CHANNELS)}: "
            f"{' and '.join(CHANNELS)} of Sentinel-1."
        )
    if pixels.dtype.kind != "f":
        raise DataError(f"{path} holds {pixels.dtype} numbers, expected backscatter in decibels as floating point.")
    return pixels.astype(np.float32, copy=False)


def _read_label(path: Path) -> npt.NDArray[np.int8]:
    pixels = read_geotiff(path)
    if len(pixels) != 1:
        raise DataError(f"{path} has {len(pixels)} channels, expected 1: a label per pixel.")
    known = np.isin(pixels, (-1, 0, 1))
    if not known.all():
        others = np.unique(pixels[~known]).tolist()
        raise DataError(
            f"{path} has labels other than −1 (no label), 0 (land) and 1 (water): {listed(others, 5)}, in "
            f"{int((~known).sum())} pixel(s)."
        )
    labels: npt.NDArray[np.int8] = pixels[0].astype(np.int8)
    return labels


def _check_tile(path: Path, size: tuple[int, ...], tile: int) -> None:
    if any(side % tile for side in size):
        fits = [side for side in range(1, min(size) + 1) if not any(full % side for full in size)]
        raise DataError(
            f"{path} is {_by(size)} pixels, which tile={tile} does not divide. Expected one of "
            f"{', '.join(map(str, fits[::-1][:8]))}."
        )


def _by(size: tuple[int, ...]) -> str:
    return "×".join(map(str, size))


@dataclass(frozen=True, eq=False)
class ChipTiles:
    """All chips that were asked for; ``totals`` are their tiles, usable or not."""

    store: TileStore
    dropped: Mapping[str, str]
    totals: Mapping[str, int]


#: What was read last and the files it was read from: the variants of a table, one a test event, share it.
_LAST: dict[tuple[Any, ...], ChipTiles] = {}


def read_chips(root: Path, roles: Mapping[str, str], tile: int, shown: bool | Report | None, subset: str) -> ChipTiles:
    """All chips, read again only if a file has changed; half a gigabyte is kept, of a whole bucket twice that."""
    stamps = [path.stat() for chip in roles for path in chip_paths(root, chip)]
    key = (root, tile, tuple(roles.items()), tuple((stamp.st_size, stamp.st_mtime_ns) for stamp in stamps))
    if key not in _LAST:
        _LAST.clear()
        with Progress("reading chips", len(roles), shown) as progress:
            if subset:
                progress.say(subset)
            _LAST[key] = _read_all(root, roles, tile, progress)
    return _LAST[key]


def _read_all(root: Path, roles: Mapping[str, str], tile: int, progress: Progress) -> ChipTiles:
    parts: list[_Tiles] = []
    with ThreadPoolExecutor(max_workers=min(8, cores())) as pool:
        for part in pool.map(lambda chip: _read_tiles(root, chip, tile), roles):
            parts.append(part)
            progress.step()
    x = np.concatenate([part.x for part in parts])
    y = np.concatenate([part.y for part in parts])
    corners = np.concatenate([part.corners for part in parts])
    chips = tuple(chip for chip, part in zip(roles, parts, strict=True) for _ in part.y)
    used = tuple(roles[chip] for chip in chips)
    return ChipTiles(
        store=TileStore(x, y, chips, corners, used, _digest(x, y, corners, chips, used)),
        dropped={chip: part.dropped for chip, part in zip(roles, parts, strict=True) if part.dropped is not None},
        totals={chip: part.total for chip, part in zip(roles, parts, strict=True)},
    )


def _digest(x: Pixels, y: Pixels, corners: Pixels, *names: tuple[str, ...]) -> str:
    digest = hashlib.sha256(repr((x.shape, names)).encode())
    for array in (x, y, corners):
        for row in array:
            digest.update(np.ascontiguousarray(row).data)
    return digest.hexdigest()


# ---------------------------------------------------------------------- scaling


@dataclass(frozen=True)
class ChannelScaling:
    """Mean and standard deviation of every channel, in decibels."""

    mean: tuple[float, ...]
    sd: tuple[float, ...]


def fit_scaling(store: TileStore, rows: npt.ArrayLike) -> ChannelScaling:
    """Mean and standard deviation of the measurements in these rows of a store; pixels without one do not count."""
    chosen = _checked_rows(store, rows)
    channels = [_moments(store, chosen, channel) for channel in range(store.x.shape[1])]
    return ChannelScaling(tuple(mean for mean, _ in channels), tuple(sd for _, sd in channels))


def _moments(store: TileStore, rows: npt.NDArray[np.int64], channel: int) -> tuple[float, float]:
    """In two passes, block by block: a bucket's pixels in double precision would not fit beside themselves."""

    def measured() -> Iterator[npt.NDArray[np.float64]]:
        for start in range(0, len(rows), _BLOCK):
            values = store.x[rows[start : start + _BLOCK], channel]
            yield values[np.isfinite(values)].astype(np.float64)

    count, total, lowest, highest = 0, 0.0, math.inf, -math.inf
    for values in measured():
        count, total = count + values.size, total + float(values.sum())
        lowest = min(lowest, float(values.min(initial=math.inf)))
        highest = max(highest, float(values.max(initial=-math.inf)))
    if not count:
        raise DataError(
            f"{_channel(channel)} has no measurement in the {len(rows)} row(s) to scale by: expected at least one."
        )
    if lowest == highest:
        raise DataError(
            f"{_channel(channel)} is {lowest:g} in every pixel of the {len(rows)} row(s) to scale by: expected "
            "measurements that differ."
        )
    mean = total / count
    return mean, math.sqrt(sum(float(((values - mean) ** 2).sum()) for values in measured()) / count)


def apply_scaling(x: Any, scaling: ChannelScaling) -> Any:
    """Standardise ``(…, channels, height, width)``, a numpy array or a torch tensor; what is missing becomes 0."""
    if x.ndim < 3 or x.shape[-3] != len(scaling.mean):
        raise DataError(
            f"x has shape {tuple(x.shape)}, expected (…, {len(scaling.mean)}, height, width): the scaling is of "
            f"{len(scaling.mean)} channels."
        )
    xp = array_api_compat.array_namespace(x)
    mean, sd = (
        xp.reshape(xp.asarray(values, dtype=x.dtype, device=array_api_compat.device(x)), (-1, 1, 1))
        for values in (scaling.mean, scaling.sd)
    )
    scaled = (x - mean) / sd
    return xp.where(xp.isfinite(scaled), scaled, xp.zeros_like(scaled))


def _checked_rows(store: TileStore, rows: npt.ArrayLike) -> npt.NDArray[np.int64]:
    chosen = np.asarray(rows)
    if chosen.ndim != 1 or not len(chosen) or chosen.dtype.kind not in "iu":
        raise DataError(
            f"the rows to scale by are {chosen.dtype} of shape {chosen.shape}: expected a list of row numbers, at "
            "least one."
        )
    if chosen.min() < 0 or chosen.max() >= len(store):
        raise DataError(
            f"the rows to scale by run from {chosen.min()} to {chosen.max()}, but the store has rows 0 to "
            f"{len(store) - 1}."
        )
    return chosen.astype(np.int64)


def _channel(number: int) -> str:
    return f"channel {number} ({CHANNELS[number]})" if number < len(CHANNELS) else f"channel {number}"
