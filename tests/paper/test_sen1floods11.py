"""Sen1Floods11: chips become the documented tiles, what is missing stays missing, and bad input is named."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.paper.tiny_floods import COUNTS, EVENTS, chip_names, make_chip, write_chip, write_floods, write_lists
from toporo.data.images import TileStore
from toporo.errors import DataError, DatasetNotFoundError, NothingToTestError, SettingError, UnknownNameError
from toporo.files import sha256
from toporo.paper import sen1floods11
from toporo.paper.flood_chips import read_geotiff, standardize
from toporo.paper.loaded import BenchmarkData
from toporo.paper.sen1floods11 import load, validation_rows

TRAIN = tuple(event for event in EVENTS if event != "Bolivia")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that no test changes."""
    folder = tmp_path_factory.mktemp("floods")
    write_floods(folder)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A bucket to spoil; its data folder is ``tmp_path``."""
    return write_floods(tmp_path, ("Bolivia", "Ghana", "Spain"), counts={"train": 1, "valid": 1})


def tiles(benchmark: BenchmarkData) -> TileStore:
    assert isinstance(benchmark.store, TileStore)
    return benchmark.store


def image_file(root: Path, chip: str) -> Path:
    return root / "data/flood_events/HandLabeled/S1Hand" / f"{chip}_S1Hand.tif"


def label_file(root: Path, chip: str) -> Path:
    return root / "data/flood_events/HandLabeled/LabelHand" / f"{chip}_LabelHand.tif"


def chips_of(root: Path, event: str) -> list[str]:
    return [chip for chip in sen1floods11.read_lists(root) if chip.startswith(f"{event}_")]


def refused(folder: Path, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        load(folder, **{"tile": 16, **options})  # type: ignore[arg-type]
    return str(caught.value)


def test_events_are_groups_and_bolivia_is_held_out(shared: Path) -> None:
    benchmark = load(shared, tile=16)
    assert (benchmark.name, benchmark.task) == ("sen1floods11", "segmentation")
    assert benchmark.train == TRAIN
    assert benchmark.test == ("Bolivia",)
    assert tuple(benchmark.data.groups) == EVENTS
    assert tuple(benchmark.graph.names) == EVENTS
    assert not benchmark.graph.edges
    assert benchmark.data.x.dtype == np.int64
    assert_array_equal(benchmark.data.x, np.arange(len(tiles(benchmark))))
    assert benchmark.data.groups.decode(benchmark.data.codes) == [c.split("_")[0] for c in tiles(benchmark).chips]


@pytest.mark.parametrize("event", TRAIN)
def test_bolivia_never_trains(shared: Path, event: str) -> None:
    benchmark = load(shared, tile=32, test=event)
    assert benchmark.test == (event,)
    assert set(benchmark.train) == set(TRAIN) - {event}
    assert set(benchmark.data.groups) == set(TRAIN)


@pytest.mark.parametrize("tile", [1, 8, 16, 32])
def test_tiles_laid_side_by_side_are_the_chip(shared: Path, tile: int) -> None:
    store = tiles(load(shared, tile=tile))
    for chip in ("Bolivia_100", "Spain_507"):
        image, label = make_chip(chip)
        image[:, np.isnan(image).any(axis=0)] = np.nan
        label[np.isnan(image[0])] = -1
        x, y = np.full_like(image, np.inf), np.full_like(label, 9)
        for row in [row for row, name in enumerate(store.chips) if name == chip]:
            top, left = store.corners[row]
            x[:, top : top + tile, left : left + tile] = store.x[row]
            y[top : top + tile, left : left + tile] = store.y[row]
        kept = y != 9
        assert kept.any()
        assert_array_equal(x[:, kept], image[:, kept])
        assert_array_equal(y[kept], label[kept])
        assert (label[~kept] == -1).all()  # no labelled pixel is lost


def test_a_pixel_measured_in_one_channel_only_is_missing_in_both(shared: Path) -> None:
    """And has no label; a pixel without a label keeps its measurement, or the input would tell about labels."""
    store = tiles(load(shared, tile=32))
    missing = np.isnan(store.x)
    assert missing.any()
    assert_array_equal(missing[:, 0], missing[:, 1])
    assert (store.y[missing[:, 0]] == -1).all()
    assert ((store.y == -1) & ~missing[:, 0]).any()
    assert set(np.unique(store.y)) == {-1, 0, 1}
    assert (store.x.dtype, store.y.dtype) == (np.float32, np.int8)


def test_the_target_of_a_tile_is_whether_it_has_water(shared: Path) -> None:
    benchmark = load(shared, tile=8)
    expected = [(y == 1).any() for y in tiles(benchmark).y]
    assert_array_equal(benchmark.data.y, expected)
    assert set(benchmark.data.y) == {0, 1}


def test_no_tile_is_without_a_valid_pixel(shared: Path) -> None:
    """The generator's unlabelled strip is higher than two pixels, so tiles of two pixels show it."""
    benchmark = load(shared, tile=2)
    assert (tiles(benchmark).y >= 0).any(axis=(1, 2)).all()
    assert len(tiles(benchmark)) < len(chip_names()) * 16**2


def test_the_same_files_give_the_same_benchmark_and_others_another(shared: Path, tmp_path: Path) -> None:
    first = load(shared, tile=16)
    assert load(shared, tile=16).fingerprint == first.fingerprint
    assert load(shared, tile=8).fingerprint != first.fingerprint
    root = write_floods(tmp_path)
    assert load(tmp_path, tile=16).fingerprint == first.fingerprint
    image, label = make_chip("Ghana_200")
    label[3, 4] = 1 - label[3, 4]
    write_chip(root, "Ghana_200", image, label)
    changed = load(tmp_path, tile=16)
    assert tiles(changed).digest != tiles(first).digest
    assert changed.fingerprint != first.fingerprint


def test_progress_counts_the_chips_that_are_read(shared: Path) -> None:
    steps: list[tuple[int, int]] = []

    def show(done: int, total: int) -> None:
        steps.append((done, total))

    first = load(shared, tile=32, test="Spain", progress=show)
    count = len(chip_names())
    assert steps == [(done, count) for done in range(1, count + 1)]
    second = load(shared, tile=32, test="India", progress=show)
    assert len(steps) == count, "the chips were read a second time"
    assert second.store is first.store


def test_an_event_without_water_cannot_be_tested_on(tmp_path: Path) -> None:
    root = write_floods(tmp_path)
    for chip in chips_of(root, "Ghana"):
        image, label = make_chip(chip)
        write_chip(root, chip, image, np.minimum(label, 0))
    with pytest.raises(NothingToTestError, match=r"no water in the \d+ tile\(s\) of the test event 'Ghana'"):
        load(tmp_path, tile=16, test="Ghana")
    assert "Ghana" in load(tmp_path, tile=16).train


def test_official_lists_decide_what_validates(shared: Path) -> None:
    benchmark = load(shared, tile=16)
    assert benchmark.about["splits"] == "official"
    split = validation_rows(benchmark, seed=0)
    roles = np.array(tiles(benchmark).roles)
    assert set(roles[split.train.x]) == {"train"}
    assert set(roles[split.validation.x]) == {"valid"}
    assert set(roles) == {"train", "valid", "test", "bolivia"}
    used = {*split.train.x.tolist(), *split.validation.x.tolist()}
    assert {roles[row] for row in range(len(roles)) if row not in used} == {"test", "bolivia"}
    for part in (split.train, split.validation):
        assert tuple(part.groups) == TRAIN
    assert validation_rows(benchmark, seed=1).train.fingerprint == split.train.fingerprint


def test_missing_chips_are_counted_and_the_rest_is_used(
    tmp_path: Path, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not load(tmp_path, tile=16).about["subset"]
    gone, half = chips_of(root, "Spain")[0], chips_of(root, "Ghana")[1]
    image_file(root, gone).unlink()
    label_file(root, half).unlink()
    with caplog.at_level(logging.INFO, logger="toporo"):
        benchmark = load(tmp_path, tile=16)
    assert "4 of 6 chips" in caplog.text
    assert benchmark.about["subset"]
    assert benchmark.about["chips"] == {"listed": 6, "found": 4}
    assert not {gone, half} & set(tiles(benchmark).chips)
    assert json.loads(json.dumps(dict(benchmark.about)))["empty_events"] == []
    for chip in chips_of(root, "Spain"):
        image_file(root, chip).unlink(missing_ok=True)
    benchmark = load(tmp_path, tile=16)
    assert (benchmark.train, benchmark.about["empty_events"]) == (("Ghana",), ["Spain"])
    for chip in chips_of(root, "Ghana"):
        image_file(root, chip).unlink()
    assert "no usable tile of any training event" in refused(tmp_path)
    for chip in chips_of(root, "Bolivia"):
        image_file(root, chip).unlink()
    assert "0 of the 6 chips in the lists" in refused(tmp_path)


@pytest.mark.parametrize("lacking", ["measurement", "label"])
def test_a_chip_without_a_valid_pixel_is_dropped_and_named(tmp_path: Path, root: Path, lacking: str) -> None:
    first, second = chips_of(root, "Spain")
    spoiled = {
        chip: (np.full_like(image, np.nan), label) if lacking == "measurement" else (image, np.full_like(label, -1))
        for chip, (image, label) in ((chip, make_chip(chip)) for chip in (first, second))
    }
    write_chip(root, first, *spoiled[first])
    benchmark = load(tmp_path, tile=16)
    assert list(benchmark.about["dropped"]) == [first]
    assert f"no {lacking}" in benchmark.about["dropped"][first]
    assert first not in tiles(benchmark).chips
    write_chip(root, second, *spoiled[second])
    benchmark = load(tmp_path, tile=16)
    assert benchmark.train == ("Ghana",)
    assert set(benchmark.graph.names) == set(benchmark.data.groups) == {"Bolivia", "Ghana"}
    message = refused(tmp_path, test="Spain")
    assert "no usable tile of the test event 'Spain'" in message
    assert f"{first} (no {lacking}" in message


def test_infinite_decibels_are_missing(tmp_path: Path, root: Path) -> None:
    """The logarithm of no echo at all."""
    chip = chips_of(root, "Ghana")[0]
    image, label = make_chip(chip)
    image[1, 5, 6] = -np.inf
    write_chip(root, chip, image, label)
    store = tiles(load(tmp_path, tile=32))
    row = store.chips.index(chip)
    assert np.isnan(store.x[row, :, 5, 6]).all()
    assert store.y[row, 5, 6] == -1


def test_without_chips_to_validate_a_share_of_the_tiles_does(tmp_path: Path) -> None:
    write_floods(tmp_path, ("Bolivia", "Ghana", "Spain"), counts={"train": 2})
    benchmark = load(tmp_path, tile=16)
    assert benchmark.about["splits"] == "tiles"
    split, again, other = (validation_rows(benchmark, seed) for seed in (0, 0, 1))
    assert split.validation.fingerprint == again.validation.fingerprint != other.validation.fingerprint
    assert sorted([*split.train.x, *split.validation.x]) == benchmark.data.select(benchmark.train).x.tolist()
    for event in benchmark.train:
        assert split.validation.sizes[event] == round(0.2 * benchmark.data.sizes[event])


def test_channels_are_scaled_by_the_training_rows_alone(shared: Path) -> None:
    benchmark = load(shared, tile=16)
    store, rows = tiles(benchmark), validation_rows(benchmark, 0).train.x
    scaled, valid = standardize(store.x, rows), np.isfinite(store.x)
    assert scaled.dtype == np.float32
    assert (scaled[~valid] == 0).all()
    for channel in range(2):
        values = scaled[rows, channel][valid[rows, channel]].astype(np.float64)
        assert_allclose([values.mean(), values.std()], [0, 1], atol=1e-6)
    others = store.x.copy()
    others[np.setdiff1d(np.arange(len(store)), rows)] += 1000
    assert_array_equal(standardize(others, rows)[rows], scaled[rows])


def test_channels_that_cannot_be_scaled_are_named() -> None:
    x = np.random.default_rng(0).normal(size=(3, 2, 4, 4)).astype(np.float32)
    x[0, 1], x[1, 1] = np.nan, -0.1
    with pytest.raises(DataError, match="channel 1 has no measurement of the 1 row"):
        standardize(x, np.array([0]))
    with pytest.raises(DataError, match=r"channel 1 is -0\.1 in every pixel of the 2 row"):
        standardize(x, np.array([0, 1]))


Chip = tuple[npt.NDArray[Any], npt.NDArray[Any]]
NOT_CHIPS: dict[str, tuple[Callable[[npt.NDArray[Any], npt.NDArray[Any]], Chip], str, str]] = {
    "sizes": (lambda image, label: (image, label[:16, :16]), "S1Hand", "is 32×32 pixels, but its label"),
    "one channel": (lambda image, label: (image[:1], label), "S1Hand", "holds 1 channel(s)"),
    "three channels": (lambda image, label: (image[[0, 1, 0]], label), "S1Hand", "holds 3 channel(s)"),
    "integers": (lambda image, label: (np.nan_to_num(image).astype(np.int16), label), "S1Hand", "of int16 numbers"),
    "two labels": (lambda image, label: (image, np.stack([label, label])), "LabelHand", "has 2 channels, expected 1"),
    "another label": (lambda image, label: (image, np.where(label == 1, 255, label)), "LabelHand", "(water): 255, in"),
    "nan label": (lambda image, label: (image, np.where(label == 1, np.nan, label)), "LabelHand", "(water): nan, in"),
}


@pytest.mark.parametrize("name", NOT_CHIPS)
def test_pixels_of_something_else_are_refused(tmp_path: Path, root: Path, name: str) -> None:
    spoil, kind, message = NOT_CHIPS[name]
    chip = chips_of(root, "Ghana")[0]
    image, label = spoil(*make_chip(chip))
    write_chip(root, chip, image, label.astype(np.float32 if name == "nan label" else np.int16))
    found = refused(tmp_path)
    assert message in found
    assert f"{chip}_{kind}.tif" in found


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tile": 33}, DataError, "32×32 pixels, which tile=33 does not divide. Expected one of 32, 16, 8, 4, 2, 1"),
        ({"tile": 0}, SettingError, "tile"),
        ({"test": "bolivia"}, UnknownNameError, r"unknown test event 'bolivia'. Did you mean 'Bolivia'\?"),
        ({"test": "USA"}, NothingToTestError, "name no chip of the test event 'USA'"),
        ({"source": "online"}, UnknownNameError, "source"),
        ({"source": "generated"}, SettingError, "cannot be generated"),
        ({"source": "published"}, DataError, "differs from the published file"),
    ],
)
def test_wrong_options_are_errors(shared: Path, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load(shared, **options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no list .*flood_valid_data.csv. Expected four"),
        (b"Ghana_1_S1Hand.tif", "line 1: found 'Ghana_1_S1Hand.tif'"),
        (b"Ghana_1_S1Hand.tif,Ghana_2_LabelHand.tif", "line 1: found"),
        (b"../Ghana_1_S1Hand.tif,../Ghana_1_LabelHand.tif", "line 1: found"),
        (b"Ghana_200_S1Hand.tif,Ghana_200_LabelHand.tif", "Ghana_200 is already in flood_train_data.csv"),
        (b"\x80\x81\xff", "flood_valid_data.csv is not text"),
    ],
)
def test_lists_of_something_else_are_refused(tmp_path: Path, root: Path, content: bytes | None, message: str) -> None:
    path = root / "splits/flood_handlabeled/flood_valid_data.csv"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load(tmp_path, tile=16)


def test_lists_without_a_chip_are_refused(tmp_path: Path, root: Path) -> None:
    write_lists(root, {})
    assert "name no chip" in refused(tmp_path)


@pytest.mark.usefixtures("no_data")
def test_without_a_folder_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"any data folder: there is none\. Copy gs://sen1floods11"):
        load()
    with pytest.raises(DatasetNotFoundError, match=r"sen1floods11/v1\.1"):
        load(tmp_path)


def test_the_real_lists(real_data: Path) -> None:
    root = real_data / sen1floods11.FOLDER
    roles = sen1floods11.read_lists(root)
    counts = {role: list(roles.values()).count(role) for role in COUNTS | {"bolivia": 0}}
    assert counts == {"train": 252, "valid": 89, "test": 90, "bolivia": 15}
    assert sorted({chip.split("_")[0] for chip in roles}) == list(sen1floods11.EVENTS)
    assert {role: sha256(sen1floods11.list_path(root, role)) for role in roles.values()} == sen1floods11.CHECKSUMS


def test_the_real_chips(real_data: Path) -> None:
    """Whatever part of the bucket is there: reading some chips twice tells whether tiles are where they belong."""
    root = real_data / sen1floods11.FOLDER
    benchmark = load(real_data, tile=256)
    store, about = tiles(benchmark), benchmark.about
    assert about["chips"]["listed"] == 446
    assert about["subset"] == (about["chips"]["found"] < 446)
    assert benchmark.test == ("Bolivia",)
    for row in range(0, len(store), max(1, len(store) // 6)):
        image, label = (
            read_geotiff(image_file(root, store.chips[row])),
            read_geotiff(label_file(root, store.chips[row])),
        )
        top, left = store.corners[row]
        place = slice(top, top + 256), slice(left, left + 256)
        assert_array_equal(store.x[row], image[:, *place])
        assert_array_equal(store.y[row], np.where(np.isnan(image[0, *place]), -1, label[0, *place]))
    for chip, why in {"Paraguay_34417": "no measurement", "Ghana_83483": "no label"}.items():
        if image_file(root, chip).is_file():
            assert why in about["dropped"][chip]
    assert -15 < np.nanmean(store.x[:, 0]) < -8  # VV of land and some water, in decibels
    assert -23 < np.nanmean(store.x[:, 1]) < -14
    water, land = (np.nanmean(store.x[:, 0][store.y == label]) for label in (1, 0))
    assert water < land - 3
    if about["subset"]:
        assert benchmark.source == "file"
        assert "of the 446 chips in the lists" in refused(real_data, source="published")
