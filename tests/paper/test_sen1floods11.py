"""Sen1Floods11: chips become the documented tiles, missing values stay missing, and bad input is named."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.paper.tiny_floods import COUNTS, EVENTS, make_chip, write_chip, write_floods
from toporo.data.images import TileStore
from toporo.errors import DataError, NothingToTestError, UnknownNameError
from toporo.paper import BENCHMARKS, load_dataset, sen1floods11
from toporo.paper.flood_chips import FOLDER, chip_paths, read_geotiff, read_lists
from toporo.paper.image_fits import standardize
from toporo.paper.loaded import BenchmarkData
from toporo.paper.sen1floods11 import validation_rows

TRAIN = tuple(event for event in EVENTS if event != "Bolivia")
load = partial(load_dataset, "sen1floods11")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that no test changes."""
    folder = tmp_path_factory.mktemp("floods")
    write_floods(folder)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A bucket to damage; its data folder is ``tmp_path``."""
    return write_floods(tmp_path, ("Bolivia", "Ghana", "Spain"), counts={"train": 1, "valid": 1})


def tiles(benchmark: BenchmarkData) -> TileStore:
    assert isinstance(benchmark.store, TileStore)
    return benchmark.store


def chips_of(root: Path, event: str) -> list[str]:
    return [chip for chip in read_lists(root) if chip.startswith(f"{event}_")]


def refused(folder: Path, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        load(folder, **{"size": 16, **options})
    return str(caught.value)


# ---------------------------------------------------------------------- groups and tiles


@pytest.mark.parametrize("test", EVENTS)
def test_events_are_groups_and_bolivia_never_trains(shared: Path, test: str) -> None:
    benchmark = load(shared, size=32, test=test)
    store = tiles(benchmark)
    assert benchmark.test == (test,)
    assert benchmark.train == tuple(event for event in TRAIN if event != test)
    assert set(benchmark.graph.names) == {*benchmark.train, test}
    assert benchmark.data.groups.decode(benchmark.data.codes) == [
        store.chips[i].split("_")[0] for i in benchmark.data.x
    ]


@pytest.mark.parametrize("side", [2, 8, 32])
def test_tiles_are_those_of_the_chip_row_by_row(shared: Path, side: int) -> None:
    """Without tiles that have no valid pixel; the target of a tile is whether it has water."""
    benchmark = load(shared, size=side)
    store = tiles(benchmark)
    assert_array_equal(benchmark.data.y, (store.y[benchmark.data.x] == 1).any(axis=(1, 2)))
    for chip in ("Bolivia_100", "Spain_507"):
        image, label = make_chip(chip)
        image[:, np.isnan(image).any(axis=0)] = np.nan
        label[np.isnan(image[0])] = -1
        places = [slice(start, start + side) for start in range(0, 32, side)]
        windows = list(product(places, places))
        usable = [window for window in windows if (label[window] >= 0).any()]
        rows = [row for row, name in enumerate(store.chips) if name == chip]
        assert_array_equal(store.x[rows], [image[:, *window] for window in usable])
        assert_array_equal(store.y[rows], [label[window] for window in usable])


def test_a_pixel_measured_in_one_channel_only_is_missing_in_both(tmp_path: Path, root: Path) -> None:
    """And has no label; so is infinity, the logarithm of no echo. A pixel without a label keeps its measurement."""
    chip = chips_of(root, "Ghana")[0]
    image, label = make_chip(chip)
    image[1, 5, 6] = -np.inf
    write_chip(root, chip, image, label)
    store = tiles(load(tmp_path, size=32))
    missing = np.isnan(store.x)
    assert missing[store.chips.index(chip), 0, 5, 6]
    assert_array_equal(missing[:, 0], missing[:, 1])
    assert (store.y[missing[:, 0]] == -1).all()
    assert ((store.y == -1) & ~missing[:, 0]).any()


def test_the_same_files_give_the_same_benchmark_and_others_another(shared: Path, tmp_path: Path) -> None:
    first, root = load(shared, size=16), write_floods(tmp_path)
    assert load(tmp_path, size=16).fingerprint == first.fingerprint
    image, label = make_chip("Ghana_200")
    label[3, 4] = 1 - label[3, 4]
    write_chip(root, "Ghana_200", image, label)
    assert load(tmp_path, size=16).fingerprint != first.fingerprint


def test_chips_are_read_once_for_all_events(shared: Path) -> None:
    assert load(shared, size=32, test="Spain").store is load(shared, size=32, test="India").store


# ---------------------------------------------------------------------- validation and scale


def test_official_lists_decide_what_validates(shared: Path) -> None:
    benchmark = load(shared, size=16)
    split, roles = validation_rows(benchmark, seed=0), np.array(tiles(benchmark).roles)
    assert set(roles[split.train.x]) == {"train"}
    assert set(roles[split.validation.x]) == {"valid"}
    unused = np.setdiff1d(np.arange(len(roles)), [*split.train.x, *split.validation.x])
    assert set(roles[unused]) == {"test", "bolivia"}
    assert tuple(split.train.groups) == tuple(split.validation.groups) == TRAIN
    assert validation_rows(benchmark, seed=1).train.fingerprint == split.train.fingerprint


def test_without_chips_to_validate_a_share_of_the_tiles_does(tmp_path: Path) -> None:
    write_floods(tmp_path, ("Bolivia", "Ghana", "Spain"), counts={"train": 2})
    benchmark = load(tmp_path, size=16)
    split, other = (validation_rows(benchmark, seed) for seed in (0, 1))
    assert split.validation.fingerprint != other.validation.fingerprint
    assert sorted([*split.train.x, *split.validation.x]) == benchmark.data.select(benchmark.train).x.tolist()
    for event in benchmark.train:
        assert split.validation.sizes[event] == round(0.2 * benchmark.data.sizes[event])


def test_channels_are_scaled_by_the_training_rows_alone(shared: Path) -> None:
    benchmark = load(shared, size=16)
    store, rows = tiles(benchmark), validation_rows(benchmark, 0).train.x
    scaled, valid = standardize(store.x, rows), np.isfinite(store.x)
    assert (scaled[~valid] == 0).all()
    for channel in range(2):
        values = scaled[rows, channel][valid[rows, channel]].astype(np.float64)
        assert_allclose([values.mean(), values.std()], [0, 1], atol=1e-6)
    others = store.x.copy()
    others[np.setdiff1d(np.arange(len(store)), rows)] += 1000
    assert_array_equal(standardize(others, rows)[rows], scaled[rows])


# ---------------------------------------------------------------------- incomplete data


def test_missing_chips_are_counted_and_the_rest_is_used(tmp_path: Path, root: Path) -> None:
    assert load(tmp_path, size=16).remarks == ()
    without_image, without_label = chips_of(root, "Spain")[0], chips_of(root, "Ghana")[1]
    chip_paths(root, without_image)[0].unlink()
    chip_paths(root, without_label)[1].unlink()
    benchmark = load(tmp_path, size=16)
    assert benchmark.remarks[0].startswith("A subset: 4 of the 6 hand-labelled chips were at hand.")
    assert benchmark.about["chips"] == {"listed": 6, "found": 4}
    assert not {without_image, without_label} & set(tiles(benchmark).chips)
    for event, message in {"Ghana": "", "Spain": "of 0 training event", "Bolivia": "of no chip in the lists"}.items():
        for chip in chips_of(root, event):
            chip_paths(root, chip)[0].unlink(missing_ok=True)
        assert message in refused(tmp_path) if message else load(tmp_path, size=16).train == ("Spain",)


@pytest.mark.parametrize(("lacking", "value"), [(0, np.nan), (1, -1)])
def test_a_chip_without_a_valid_pixel_is_left_out_and_named(
    tmp_path: Path, root: Path, lacking: int, value: float
) -> None:
    """Without a measurement, or without a label."""
    for chip, train in zip(chips_of(root, "Spain"), (("Ghana", "Spain"), ("Ghana",)), strict=True):
        pixels = make_chip(chip)
        pixels[lacking][...] = value
        write_chip(root, chip, *pixels)
        benchmark = load(tmp_path, size=16)
        assert benchmark.remarks[0].startswith("Left out, without a usable pixel: ")
        assert chip in benchmark.remarks[0]
        assert benchmark.train == train
    assert set(benchmark.graph.names) == set(benchmark.data.groups) == {"Bolivia", "Ghana"}
    assert "has 0 usable tile(s) of the test event 'Spain'" in refused(tmp_path, test="Spain")


def test_an_event_without_water_cannot_be_tested_on(tmp_path: Path, root: Path) -> None:
    for chip in chips_of(root, "Ghana"):
        image, label = make_chip(chip)
        write_chip(root, chip, image, np.minimum(label, 0))
    with pytest.raises(NothingToTestError, match=r"\d+ usable tile\(s\) of the test event 'Ghana', none with water"):
        load(tmp_path, size=16, test="Ghana")
    assert "Ghana" in load(tmp_path, size=16).train


# ---------------------------------------------------------------------- refusals


Chip = tuple[npt.NDArray[Any], npt.NDArray[Any]]
NOT_CHIPS: dict[str, tuple[str, Callable[[npt.NDArray[Any], npt.NDArray[Any]], Chip]]] = {
    "has shape (16, 16), expected a label per": ("LabelHand", lambda image, label: (image, label[:16, :16])),
    "expected floating point decibels of shape": ("S1Hand", lambda image, label: (image[:1], label)),
    "of shape (3, 32, 32), expected": ("S1Hand", lambda image, label: (image[[0, 1, 0]], label)),
    "holds int16 numbers": ("S1Hand", lambda image, label: (np.nan_to_num(image).astype(np.int16), label)),
    "(water): 255, in": ("LabelHand", lambda image, label: (image, np.where(label == 1, 255, label).astype(np.int16))),
    "(water): nan, in": ("LabelHand", lambda image, label: (image, np.where(label == 1, np.float32("nan"), label))),
}


@pytest.mark.parametrize("message", NOT_CHIPS)
def test_pixels_of_something_else_are_refused(tmp_path: Path, root: Path, message: str) -> None:
    kind, change = NOT_CHIPS[message]
    chip = chips_of(root, "Ghana")[0]
    write_chip(root, chip, *change(*make_chip(chip)))
    found = refused(tmp_path)
    assert message in found
    assert f"{chip}_{kind}.tif" in found


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 33}, DataError, "32×32 pixels: expected a size of tiles that divides both, found 33"),
        ({"size": 0}, DataError, "found 0"),
        ({"test": "bolivia"}, UnknownNameError, r"unknown test event 'bolivia'. Did you mean 'Bolivia'\?"),
        ({"test": "USA"}, NothingToTestError, "0 usable tile"),
    ],
)
def test_wrong_options_are_errors(shared: Path, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load(shared, **{"size": 16, **options})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no list .*flood_valid_data.csv. Expected four"),
        (b"Ghana_1_S1Hand.tif", "line 1: found 'Ghana_1_S1Hand.tif'"),
        (b"Ghana_1_S1Hand.tif,Ghana_2_LabelHand.tif", "line 1: found"),
        (b"../Ghana_1_S1Hand.tif,../Ghana_1_LabelHand.tif", "line 1: found"),
        (b"\x80\x81\xff", "line 1: found"),
    ],
)
def test_lists_of_something_else_are_refused(tmp_path: Path, root: Path, content: bytes | None, message: str) -> None:
    path = root / "splits/flood_handlabeled/flood_valid_data.csv"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load(tmp_path, size=16)


# ---------------------------------------------------------------------- the real data


def test_the_real_lists(real_data: Path) -> None:
    roles = read_lists(real_data / FOLDER)
    counts = {role: list(roles.values()).count(role) for role in COUNTS | {"bolivia": 0}}
    assert counts == {"train": 252, "valid": 89, "test": 90, "bolivia": 15}
    assert sorted({chip.split("_")[0] for chip in roles}) == list(sen1floods11.EVENTS)
    assert BENCHMARKS["sen1floods11"].state(real_data)[1].startswith("found (")


def test_the_real_chips(real_data: Path) -> None:
    """Whatever part of the bucket is there: reading some chips twice tells whether tiles are where they belong."""
    root, benchmark = real_data / FOLDER, load(real_data, size=256)
    store, about = tiles(benchmark), benchmark.about
    assert about["chips"]["listed"] == 446
    for row in range(0, len(store), max(1, len(store) // 6)):
        if store.chips.count(store.chips[row]) == 4:
            image, label = map(read_geotiff, chip_paths(root, store.chips[row]))
            top, left = np.array(divmod(row - store.chips.index(store.chips[row]), 2)) * 256
            window = slice(top, top + 256), slice(left, left + 256)
            assert_array_equal(store.x[row], image[:, *window])
            assert_array_equal(store.y[row], np.where(np.isnan(image[0, *window]), -1, label[window]))
    for chip in ("Paraguay_34417", "Ghana_83483"):  # without a measurement, without a label
        assert (chip in benchmark.remarks[-1]) == chip_paths(root, chip)[0].is_file()
    assert -15 < np.nanmean(store.x[:, 0]) < -8  # VV of land and some water, in decibels
    assert -23 < np.nanmean(store.x[:, 1]) < -14
    water, land = (np.nanmean(store.x[:, 0][store.y == label]) for label in (1, 0))
    assert water < land - 3
