"""GeoTIFF: pixels come out as they went in, and a damaged file is an error that names it, never wrong pixels."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from toporo.errors import DataError, DatasetNotFoundError, SettingError
from toporo.paper import flood_chips as geotiff
from toporo.paper.flood_chips import read_geotiff

PIXELS = np.arange(2 * 24 * 16, dtype=np.float32).reshape(2, 24, 16) / 7


def written(path: Path, pixels: object = PIXELS, **options: object) -> Path:
    plain = {"photometric": "minisblack", "metadata": None, "planarconfig": "separate", "compression": "lzw"}
    tifffile.imwrite(path, pixels, **{key: value for key, value in (plain | options).items() if value is not None})
    return path


@pytest.mark.parametrize("compression", [None, "lzw", "zlib", "zstd"])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_channels_come_first_whatever_the_file_does(tmp_path: Path, compression: str | None, byteorder: str) -> None:
    options = {"compression": compression, "byteorder": byteorder}
    apart = written(tmp_path / "apart.tif", **options)
    together = written(tmp_path / "together.tif", PIXELS.transpose(1, 2, 0), planarconfig="contig", **options)
    tiled = written(tmp_path / "tiled.tif", tile=(16, 16), **options)
    pages = written(tmp_path / "pages.tif", planarconfig=None, **options)
    for path in (apart, together, tiled, pages):
        assert_array_equal(read_geotiff(path), PIXELS)


def test_one_channel_has_a_first_axis_too(tmp_path: Path) -> None:
    labels = np.array([[-1, 0, 1], [1, 1, 0]], dtype=np.int16)
    found = read_geotiff(written(tmp_path / "label.tif", labels, planarconfig=None))
    assert found.dtype == np.int16
    assert_array_equal(found, labels[None])


def test_declared_no_data_is_nan_and_a_plain_zero_is_a_zero(tmp_path: Path) -> None:
    """Without a declaration tifffile answers 0, which is a possible measurement."""
    pixels = PIXELS.copy()
    pixels[1, 2, 3] = -9999.0
    declared = read_geotiff(written(tmp_path / "a.tif", pixels, extratags=[(42113, "s", 0, "-9999", True)]))
    assert np.isnan(declared[1, 2, 3])
    assert np.isnan(declared).sum() == 1
    assert read_geotiff(written(tmp_path / "b.tif"))[0, 0, 0] == 0.0


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"\x89PNG\r\n\x1a\n"])
def test_another_kind_of_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "chip.tif"
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as a GeoTIFF") as caught:
        read_geotiff(path)
    assert str(path) in str(caught.value)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"chip\.tif"):
        read_geotiff(tmp_path / "chip.tif")


@pytest.mark.parametrize("compression", [None, "lzw", "zlib"])
def test_no_beginning_of_a_file_passes_for_the_whole(tmp_path: Path, compression: str | None) -> None:
    path = written(tmp_path / "whole.tif", compression=compression)
    content = path.read_bytes()
    part = tmp_path / "part.tif"
    for length in sorted({*range(0, len(content), 41), len(content) - 1}):
        part.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"part\.tif"):
            read_geotiff(part)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_file_gives_an_array_or_our_error(changes: list[tuple[int, int]]) -> None:
    with TemporaryDirectory() as folder:
        path = written(Path(folder) / "chip.tif")
        content = bytearray(path.read_bytes())
        for place, value in changes:
            content[4 + place % (len(content) - 4)] = value
        path.write_bytes(content)
        with suppress(DataError):
            assert read_geotiff(path).ndim == 3


def test_a_header_that_asks_for_all_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "chip.tif")
    monkeypatch.setattr(geotiff, "_MOST_BYTES", PIXELS.nbytes)
    read_geotiff(path)
    monkeypatch.setattr(geotiff, "_MOST_BYTES", PIXELS.nbytes - 1)
    with pytest.raises(DataError, match=r"chip\.tif says that its image has shape \(2, 24, 16\)"):
        read_geotiff(path)


def test_a_header_that_asks_for_a_vast_tile_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "chip.tif", tile=(16, 16))
    with tifffile.TiffFile(path, mode="r+") as tiff:
        tiff.pages[0].tags["TileWidth"].overwrite(2**24)
    with pytest.raises(DataError, match=r"chip\.tif says that its image has shape \(2, 24, 16\) and takes 1 GiB"):
        read_geotiff(path)


def test_a_list_of_pages_in_a_circle_is_refused(tmp_path: Path) -> None:
    """It would be followed for hours."""
    path = tmp_path / "chip.tif"
    with tifffile.TiffWriter(path) as tiff:
        tiff.write(PIXELS[0], metadata=None)
        tiff.write(PIXELS[0, :8], metadata=None)
    with tifffile.TiffFile(path) as tiff:
        start, end = tiff.pages[0].offset, tiff.pages.next_page_offset
    with path.open("r+b") as stream:
        stream.seek(end)
        stream.write(start.to_bytes(4, "little"))
    with pytest.raises(DataError, match=r"chip\.tif says that it holds more than 32 images"):
        read_geotiff(path)


def test_more_than_one_image_in_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "stack.tif"
    tifffile.imwrite(path, np.zeros((3, 2, 8, 8), np.float32), photometric="minisblack", planarconfig="separate")
    with pytest.raises(DataError, match=r"stack\.tif holds an array of shape \(3, 2, 8, 8\)"):
        read_geotiff(path)


@pytest.mark.parametrize("package", ["tifffile", "imagecodecs"])
def test_without_the_extra_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    path = written(tmp_path / "chip.tif")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingError, match=rf"{package} is not installed: pip install 'toporo\[geo\]'"):
        read_geotiff(path)
