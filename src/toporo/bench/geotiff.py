"""Reading the pixels of GeoTIFF files, the format of radar and satellite images.

Needs the extra ``geo`` (tifffile and imagecodecs), which is imported when the first file is read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, DatasetNotFoundError, SettingError

#: How a TIFF file begins: byte order, then the version, classic or big.
_STARTS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")


#: A damaged header can ask for all the memory there is; no chip comes near this many bytes.
_MOST_BYTES = 2**30


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
            series = tiff.series[0]
            _check_whole(file, series)
            pixels, axes = series.asarray(maxworkers=1), series.axes
            nodata = series.keyframe.nodata if "GDAL_NODATA" in series.keyframe.tags else np.nan
    except DataError:
        raise
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise DataError(
            f"{file} cannot be read as a GeoTIFF: {str(error) or type(error).__name__}. The file is truncated or "
            "damaged: fetch it again."
        ) from error
    pixels = _channels_first(file, pixels, axes)
    if pixels.dtype.kind == "f" and not np.isnan(nodata):
        pixels[pixels == pixels.dtype.type(nodata)] = np.nan
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


def _check_whole(file: Path, series: Any) -> None:
    """Compare the file with what its header says: some decoders fill what is missing with zeros and say nothing."""
    ends = [
        offset + count
        for page in series.pages
        if page is not None
        for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True)
    ]
    size = file.stat().st_size
    if series.nbytes > _MOST_BYTES:
        raise DataError(
            f"{file} says that its image has shape {series.shape}, {series.nbytes / 2**30:.3g} GiB: expected at most "
            f"{_MOST_BYTES / 2**30:g}. The file is damaged, or not a chip."
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
