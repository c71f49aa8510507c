"""GeoTIFF: a damaged file is an error that names it, never wrong pixels, a crash or hours of work."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.testing import assert_array_equal

from toporo.errors import DataError, SettingError
from toporo.paper import flood_chips
from toporo.paper.flood_chips import read_geotiff

PIXELS = np.arange(2 * 24 * 16, dtype=np.float32).reshape(2, 24, 16) / 7


def written(path: Path, pixels: np.ndarray = PIXELS, **options: object) -> Path:
    plain = {"photometric": "minisblack", "metadata": None, "planarconfig": "separate", "compression": "lzw"}
    tifffile.imwrite(path, pixels, **{**plain, **options})
    return path


@pytest.mark.parametrize(
    "options", [{}, {"compression": "zlib", "tile": (16, 16)}, {"compression": None, "byteorder": ">"}]
)
def test_pixels_come_out_as_they_went_in_and_no_part_passes_for_the_whole(tmp_path: Path, options: dict) -> None:
    path, part = written(tmp_path / "chip.tif", **options), tmp_path / "part.tif"
    assert_array_equal(read_geotiff(path), PIXELS)
    content = path.read_bytes()
    for length in sorted({*range(0, len(content), 41), len(content) - 1}):
        part.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"part\.tif"):
            read_geotiff(part)


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"\x89PNG\r\n\x1a\n"])
def test_another_kind_of_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "chip.tif").write_bytes(content)
    with pytest.raises(DataError, match=r"chip\.tif cannot be read as a GeoTIFF"):
        read_geotiff(tmp_path / "chip.tif")


def test_a_header_that_asks_for_too_much_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "chip.tif", tile=(16, 16))
    with tifffile.TiffFile(path, mode="r+") as tiff:
        tiff.pages[0].tags["TileWidth"].overwrite(2**24)
    with pytest.raises(DataError, match=r"chip\.tif says that its image has shape \(2, 24, 16\) and takes 1 GiB"):
        read_geotiff(path)
    monkeypatch.setattr(flood_chips, "MAX_BYTES", PIXELS.nbytes - 1)
    with pytest.raises(DataError, match=r"chip\.tif says that its image has shape \(2, 24, 16\)"):
        read_geotiff(written(tmp_path / "chip.tif"))


@pytest.mark.parametrize("package", ["tifffile", "imagecodecs"])
def test_without_the_extra_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingError, match=rf"{package} is not installed: pip install 'toporo\[geo\]'"):
        read_geotiff(tmp_path / "chip.tif")
