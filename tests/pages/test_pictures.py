"""Pictures and radar tiles with the predictions of methods."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toporo.errors import DataError
from toporo.pages.pictures import LAND, MISSED, MISSING, WATER, Tile, _compare, tile_iou


def test_tiles_of_another_size_are_refused() -> None:
    label = np.zeros((64, 64), np.int8)
    with pytest.raises(DataError, match=r"\(64, 64\), ERM \(32, 32\).*another tile size"):
        Tile("a tile", np.zeros((64, 64)), label, {"ERM": np.zeros((32, 32), np.float16)})


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0))
def test_iou_counts_only_pixels_with_a_label_and_a_measurement(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    label = rng.integers(-1, 2, (6, 6)).astype(np.int8)
    radar = np.where(rng.random((6, 6)) < 0.2, np.nan, -10.0)
    water = (rng.random((6, 6)) < share).astype(np.float16)
    both = either = 0
    for i in range(6):
        for j in range(6):
            if label[i, j] >= 0 and not math.isnan(radar[i, j]):
                both += label[i, j] == 1 and water[i, j] > 0.5
                either += label[i, j] == 1 or water[i, j] > 0.5
    expected = both / either if either else math.nan
    found = tile_iou(Tile("t", radar, label, {"m": water}), "m")
    assert found == pytest.approx(expected, nan_ok=True)


def test_pixels_are_coloured_by_what_became_of_them() -> None:
    radar = np.array([[-20.0, -20.0, -5.0, np.nan]])
    label = np.array([[1, 1, 0, -1]], dtype=np.int8)
    tile = Tile("t", radar, label, {"m": np.array([[0.9, 0.1, 0.1, 0.9]])})
    assert _compare(tile, "m").tolist() == [[WATER, MISSED, LAND, MISSING]]
