"""Sen1Floods11: chips become the documented tiles, what is missing stays missing, and bad input is named."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.paper.tiny_floods import (
    COUNTS,
    EVENTS,
    PLACES,
    chip_names,
    make_chip,
    write_chip,
    write_floods,
    write_lists,
    write_metadata,
)
from toporo.data.images import TileStore
from toporo.errors import DataError, DatasetNotFoundError, NothingToTestError, SettingError, UnknownNameError
from toporo.files import sha256
from toporo.paper import sen1floods11
from toporo.paper.flood_chips import ChannelScaling, apply_scaling, fit_scaling, read_geotiff
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


# ---------------------------------------------------------------------- the benchmark


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


def test_the_target_of_a_tile_is_whether_it_has_water(shared: Path) -> None:
    benchmark = load(shared, tile=8)
    expected = [(y == 1).any() for y in tiles(benchmark).y]
    assert_array_equal(benchmark.data.y, expected)
    assert set(benchmark.data.y) == {0, 1}


def test_no_tile_is_without_a_valid_pixel(shared: Path) -> None:
    """The generator's unlabelled strip is higher than two pixels, so tiles of two pixels show it."""
    benchmark = load(shared, tile=2)
    assert (tiles(benchmark).y >= 0).any(axis=(1, 2)).all()
    counts = benchmark.about["tiles"]
    assert counts["dropped"] > 0
    assert counts["kept"] + counts["dropped"] == len(chip_names()) * 16**2


@pytest.mark.parametrize("given", ["", "sen1floods11", "sen1floods11/v1.1"])
def test_the_folder_may_be_the_bucket_or_hold_it(shared: Path, given: str) -> None:
    assert load(shared / given, tile=32).fingerprint == load(shared, tile=32).fingerprint


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


def test_where_and_when_the_events_were(shared: Path) -> None:
    about = load(shared, tile=32).about
    assert set(about["positions"]) == {"Bolivia", "Ghana", "India", "Mekong"}  # the metadata say Cambodia
    assert_allclose(about["positions"]["Mekong"], PLACES["Cambodia"])
    assert_allclose(about["positions"]["Bolivia"], PLACES["Bolivia"])
    assert about["dates"]["Ghana"] == "2018-02-15"


def test_the_middle_of_several_outlines_is_weighed_by_area(tmp_path: Path) -> None:
    def box(x: float, width: float) -> list[list[list[float]]]:
        return [[[x, 0], [x, 1], [x + width, 1], [x + width, 0], [x, 0]]]

    geometry = {"type": "MultiPolygon", "coordinates": [box(0, 1), [box(9, 3)[0][::-1]]]}
    feature = {"properties": {"location": "Spain", "s1_date": "2019/09/17"}, "geometry": geometry}
    (tmp_path / "Sen1Floods11_Metadata.geojson").write_text(json.dumps({"features": [feature]}))
    assert_allclose(sen1floods11.read_metadata(tmp_path).positions["Spain"], ((0.5 + 3 * 10.5) / 4, 0.5))


def test_a_bucket_without_metadata_loads(tmp_path: Path, root: Path) -> None:
    (root / "Sen1Floods11_Metadata.geojson").unlink()
    assert load(tmp_path, tile=16).about["positions"] == {}


def test_what_it_is_about_can_be_written_as_json(shared: Path) -> None:
    about = dict(load(shared, tile=16).about)
    assert json.loads(json.dumps(about))["tile"] == 16


# ---------------------------------------------------------------------- part of the chips


def test_missing_chips_are_counted_and_the_rest_is_used(
    tmp_path: Path, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="toporo"):
        assert not load(tmp_path, tile=16).about["subset"]
    assert "subset" not in caplog.text
    gone, half = chips_of(root, "Spain")[0], chips_of(root, "Ghana")[1]
    image_file(root, gone).unlink()
    label_file(root, gone).unlink()
    label_file(root, half).unlink()
    with caplog.at_level(logging.INFO, logger="toporo"):
        benchmark = load(tmp_path, tile=16)
    assert "4 of 6 chips" in caplog.text
    assert benchmark.about["subset"]
    assert benchmark.about["chips"] == {
        "listed": 6,
        "found": 4,
        "missing": 2,
        "missing_names": [half, gone],
        "missing_halves": [label_file(root, half).name],
    }
    assert benchmark.train == ("Ghana", "Spain")
    assert not {gone, half} & set(tiles(benchmark).chips)


def test_many_missing_chips_are_named_in_part(tmp_path: Path, root: Path) -> None:
    roles = sen1floods11.read_lists(root)
    write_lists(root, roles | {f"Ghana_{number}": "train" for number in range(30)})
    chips = load(tmp_path, tile=16).about["chips"]
    assert (chips["found"], chips["missing"], len(chips["missing_names"])) == (6, 30, 20)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda image, label: (np.full_like(image, np.nan), label), "no measurement"),
        (lambda image, label: (image, np.full_like(label, -1)), "no label"),
        (
            lambda image, label: (
                np.where(np.arange(32) < 9, image, np.nan).astype(np.float32),
                np.where(np.arange(32) < 9, -1, label).astype(np.int16),
            ),
            "no pixel has both",
        ),
    ],
    ids=["all NaN", "all −1", "never both"],
)
def test_a_chip_without_a_valid_pixel_is_dropped_and_named(
    tmp_path: Path, root: Path, spoil: Callable[..., tuple[npt.NDArray[np.float32], npt.NDArray[np.int16]]], why: str
) -> None:
    first, second = chips_of(root, "Spain")
    write_chip(root, first, *spoil(*make_chip(first)))
    benchmark = load(tmp_path, tile=16)
    assert list(benchmark.about["dropped"]) == [first]
    assert why in benchmark.about["dropped"][first]
    assert first not in tiles(benchmark).chips
    assert benchmark.about["empty_events"] == {}
    write_chip(root, second, *spoil(*make_chip(second)))
    benchmark = load(tmp_path, tile=16)
    assert benchmark.train == ("Ghana",)
    assert why in benchmark.about["empty_events"]["Spain"]
    assert "Spain" not in benchmark.data.groups
    assert "Spain" not in benchmark.graph.names
    message = refused(tmp_path, test="Spain")
    assert "no usable tile of the test event 'Spain'" in message
    assert first in message


def test_an_event_without_chips_is_no_group(tmp_path: Path, root: Path) -> None:
    for chip in chips_of(root, "Spain"):
        image_file(root, chip).unlink()
    benchmark = load(tmp_path, tile=16)
    assert benchmark.train == ("Ghana",)
    assert benchmark.about["empty_events"] == {"Spain": "none of its 2 chip(s) is there"}
    for chip in chips_of(root, "Ghana"):
        image_file(root, chip).unlink()
    assert "no usable tile of any training event" in refused(tmp_path)


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


def test_a_changed_chip_is_read_again(tmp_path: Path) -> None:
    root = write_floods(tmp_path)
    before = load(tmp_path, tile=16)
    chip = chips_of(root, "India")[0]
    image, label = make_chip(chip, seed=7)
    write_chip(root, chip, image, label)
    assert load(tmp_path, tile=16).fingerprint != before.fingerprint


def test_rows_of_an_event_that_neither_trains_nor_tests_are_left_out(shared: Path) -> None:
    benchmark = load(shared, tile=16, test="India")
    assert "Bolivia" not in benchmark.data.groups
    chips = {tiles(benchmark).chips[row] for row in benchmark.data.x}
    assert not any(chip.startswith("Bolivia") for chip in chips)
    assert len(benchmark.data) < len(tiles(benchmark))


def test_an_event_without_water_cannot_be_tested_on(tmp_path: Path) -> None:
    root = write_floods(tmp_path)
    for chip in chips_of(root, "Ghana"):
        image, label = make_chip(chip)
        write_chip(root, chip, image, np.minimum(label, 0))
    with pytest.raises(NothingToTestError, match=r"no water in the \d+ tile\(s\) of the test event 'Ghana'"):
        load(tmp_path, tile=16, test="Ghana")
    assert "Ghana" in load(tmp_path, tile=16).train


# ---------------------------------------------------------------------- training and validation


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


def test_tiles_split_within_events_by_seed(shared: Path) -> None:
    benchmark = load(shared, tile=16, splits="tiles")
    assert benchmark.about["splits"] == "tiles"
    split, again, other = (validation_rows(benchmark, seed) for seed in (0, 0, 1))
    assert split.validation.fingerprint == again.validation.fingerprint != other.validation.fingerprint
    assert sorted([*split.train.x, *split.validation.x]) == benchmark.data.select(TRAIN).x.tolist()
    for event in TRAIN:
        total = benchmark.data.sizes[event]
        assert split.validation.sizes[event] == round(0.2 * total)
    assert validation_rows(benchmark, 0, 0.5).validation.sizes[TRAIN[0]] == round(0.5 * benchmark.data.sizes[TRAIN[0]])


def test_auto_takes_tiles_where_an_event_lacks_a_list(tmp_path: Path) -> None:
    write_floods(tmp_path, ("Bolivia", "Ghana", "Spain"), counts={"train": 2})
    assert load(tmp_path, tile=16).about["splits"] == "tiles"
    message = refused(tmp_path, splits="official")
    assert "Ghana (valid), Spain (valid)" in message
    assert "splits='tiles'" in message


# ---------------------------------------------------------------------- scaling


def test_scaled_training_pixels_have_mean_0_and_deviation_1(shared: Path) -> None:
    benchmark = load(shared, tile=16)
    store, rows = tiles(benchmark), validation_rows(benchmark, 0).train.x
    scaling = fit_scaling(store, rows)
    scaled = apply_scaling(store.x[rows], scaling)
    valid = np.isfinite(store.x[rows])
    assert (~valid).any()
    assert scaled.dtype == np.float32
    assert (scaled[~valid] == 0).all()
    for channel in range(2):
        values = scaled[:, channel][valid[:, channel]].astype(np.float64)
        assert_allclose([values.mean(), values.std()], [0, 1], atol=1e-6)
    assert_array_equal(apply_scaling(torch.from_numpy(store.x[rows]), scaling).numpy(), scaled)


def test_scaling_sees_the_given_rows_alone(shared: Path) -> None:
    benchmark = load(shared, tile=16)
    store, rows = tiles(benchmark), validation_rows(benchmark, 0).train.x
    others = store.x.copy()
    others[np.setdiff1d(np.arange(len(store)), rows)] += 1000
    changed = TileStore(others, store.y, store.chips, store.corners, store.roles, "changed")
    assert fit_scaling(changed, rows) == fit_scaling(store, rows)
    assert fit_scaling(changed, np.arange(len(store))) != fit_scaling(store, np.arange(len(store)))


def pixel_store(x: npt.NDArray[np.float32]) -> TileStore:
    count, _, side, _ = x.shape
    return TileStore(x, np.zeros((count, side, side), np.int8), ("a",) * count, np.zeros((count, 2), int), (), "")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 150), st.floats(-40, 10), st.floats(0.01, 10), st.floats(0, 0.9))
def test_scaling_is_numpys_over_the_measured_pixels(
    seed: int, count: int, mean: float, sd: float, missing: float
) -> None:
    """More tiles than are summed at a time are among the cases."""
    rng = np.random.default_rng(seed)
    x = rng.normal(mean, sd, (count, 2, 3, 3)).astype(np.float32)
    x[np.broadcast_to(rng.random((count, 1, 3, 3)) < missing, x.shape)] = np.nan
    x[0, :, 0, :2] = mean, mean + sd
    found = fit_scaling(pixel_store(x), np.arange(count))
    values = [x[:, channel].astype(np.float64) for channel in range(2)]
    assert_allclose(found.mean, [np.nanmean(channel) for channel in values], rtol=1e-9, atol=1e-9)
    assert_allclose(found.sd, [np.nanstd(channel) for channel in values], rtol=1e-9)


def test_what_cannot_be_scaled_by_is_named() -> None:
    x = np.random.default_rng(0).normal(size=(3, 2, 4, 4)).astype(np.float32)
    x[0, 1], x[1, 1] = np.nan, -0.1
    store = pixel_store(x)
    with pytest.raises(DataError, match=r"channel 1 \(VH\) has no measurement in the 1 row"):
        fit_scaling(store, [0])
    with pytest.raises(DataError, match=r"channel 1 \(VH\) is -0\.1 in every pixel of the 2 row"):
        fit_scaling(store, [0, 1])
    assert fit_scaling(store, [0, 1, 2]).sd[1] > 0
    for rows in ([], [[0]], [True, False, True], [0.5]):
        with pytest.raises(DataError, match="expected a list of row numbers"):
            fit_scaling(store, rows)
    for rows in ([-1], [3]):
        with pytest.raises(DataError, match="the store has rows 0 to 2"):
            fit_scaling(store, rows)
    with pytest.raises(DataError, match=r"shape \(3, 1, 4, 4\), expected \(…, 2, height, width\)"):
        apply_scaling(x[:, :1], ChannelScaling((0.0, 0.0), (1.0, 1.0)))


# ---------------------------------------------------------------------- bad input


def test_label_and_image_of_different_sizes(tmp_path: Path, root: Path) -> None:
    chip = chips_of(root, "Ghana")[0]
    write_chip(root, chip, make_chip(chip)[0], make_chip(chip, side=16)[1])
    message = refused(tmp_path)
    assert message.startswith(f"{image_file(root, chip)} is 32×32 pixels")
    assert f"{chip}_LabelHand.tif 16×16" in message


@pytest.mark.parametrize("channels", [1, 3])
def test_wrong_channel_count(tmp_path: Path, root: Path, channels: int) -> None:
    chip = chips_of(root, "Ghana")[0]
    image, label = make_chip(chip)
    write_chip(root, chip, np.concatenate([image, image])[:channels], label)
    assert f"{image_file(root, chip)} has {channels} channel(s) of 32×32 pixels, expected 2" in refused(tmp_path)


def test_a_label_of_several_channels_and_an_image_of_whole_numbers(tmp_path: Path, root: Path) -> None:
    chip = chips_of(root, "Ghana")[0]
    image, label = make_chip(chip)
    write_chip(root, chip, np.nan_to_num(image).astype(np.int16), label)
    assert f"{image_file(root, chip)} holds int16 numbers, expected backscatter in decibels" in refused(tmp_path)
    write_chip(root, chip, image, np.stack([label, label]))
    assert f"{label_file(root, chip)} has 2 channels, expected 1" in refused(tmp_path)


@pytest.mark.parametrize("value", [2, 255, -2, float("nan")])
def test_labels_other_than_the_three(tmp_path: Path, root: Path, value: float) -> None:
    """255 as well, which one byte would take for −1."""
    chip = chips_of(root, "Spain")[0]
    image, label = make_chip(chip)
    label = label.astype(np.float32 if value != value else np.int16)
    label[4, 5:7] = value
    write_chip(root, chip, image, label)
    message = refused(tmp_path)
    assert message.startswith(f"{label_file(root, chip)} has labels other than")
    assert f"{value}, in 2 pixel(s)" in message


@pytest.mark.parametrize("file", [image_file, label_file])
def test_a_truncated_chip_and_one_of_another_kind(tmp_path: Path, root: Path, file: Callable[..., Path]) -> None:
    path = file(root, chips_of(root, "Spain")[1])
    path.write_bytes(path.read_bytes()[:-9])
    assert f"{path} is truncated" in refused(tmp_path)
    path.write_bytes(b"<Error><Code>AccessDenied</Code></Error>")
    assert f"{path} is not a GeoTIFF" in refused(tmp_path)


@pytest.mark.parametrize("tile", [5, 31, 33, 64])
def test_a_tile_that_does_not_divide_the_chip(shared: Path, tile: int) -> None:
    message = refused(shared, tile=tile)
    assert f"32×32 pixels, which tile={tile} does not divide" in message
    assert "32, 16, 8, 4, 2, 1" in message


@pytest.mark.parametrize("tile", [0, -16, True, 16.0])
def test_a_tile_that_is_no_size(shared: Path, tile: object) -> None:
    with pytest.raises(SettingError, match="tile is"):
        load(shared, tile=tile)  # type: ignore[arg-type]


def test_an_unknown_test_event(shared: Path) -> None:
    message = refused(shared, test="bolivia")
    assert "unknown test event 'bolivia'. Did you mean 'Bolivia'?" in message
    assert "'Spain'" in message


def test_other_settings(shared: Path) -> None:
    with pytest.raises(UnknownNameError, match="source"):
        load(shared, source="online")
    with pytest.raises(UnknownNameError, match="splits"):
        load(shared, splits="random")
    with pytest.raises(SettingError, match="cannot be generated"):
        load(shared, source="generated")


def test_no_lists(tmp_path: Path, root: Path) -> None:
    missing = root / "splits/flood_handlabeled/flood_valid_data.csv"
    missing.unlink()
    assert f"no list {missing}. Expected four" in refused(tmp_path)


def test_lists_without_a_chip(tmp_path: Path, root: Path) -> None:
    write_lists(root, {})
    assert "name no chip" in refused(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "Ghana_1_S1Hand.tif",
        "Ghana_1_S1Hand.tif,Ghana_2_LabelHand.tif",
        "../Ghana_1_S1Hand.tif,../Ghana_1_LabelHand.tif",
        "image,label",
    ],
)
def test_a_line_that_is_no_chip(tmp_path: Path, root: Path, line: str) -> None:
    path = root / "splits/flood_handlabeled/flood_train_data.csv"
    path.write_text(f"{path.read_text()}\n{line}\n")
    message = refused(tmp_path)
    assert message.startswith(f"{path}, line 4: found {line!r}")


def test_a_chip_in_two_lists(tmp_path: Path, root: Path) -> None:
    path = root / "splits/flood_handlabeled/flood_valid_data.csv"
    path.write_text(path.read_text() + "Ghana_200_S1Hand.tif,Ghana_200_LabelHand.tif\n")
    assert "chip Ghana_200 is already in flood_train_data.csv" in refused(tmp_path)


def test_lists_that_are_no_text(tmp_path: Path, root: Path) -> None:
    path = root / "splits/flood_handlabeled/flood_test_data.csv"
    path.write_bytes(b"\x80\x81\xff")
    assert f"{path} is not text" in refused(tmp_path)


def test_no_chips_at_all(tmp_path: Path, root: Path) -> None:
    for chip in sen1floods11.read_lists(root):
        label_file(root, chip).unlink()
    assert "none of the 6 chips in the lists" in refused(tmp_path)


def with_corner(corner: str) -> str:
    return (
        '{"features": [{"properties": {"location": "Spain", "s1_date": "2019/09/17"}, "geometry": '
        f'{{"type": "Polygon", "coordinates": [[[0, 0], [0, 1], {corner}]]}}}}]}}'
    )


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"features": [{}]}', '{"features": 3}', "not json", "[" * 100_000, '{"features": [' + "9" * 5000 + "]}"]
    + [
        with_corner(corner)
        for corner in ("[1e308, -1e308]", "[NaN, 0]", "[1]", "[]", '"ab"', "[" + "9" * 5000 + ", 0]")
    ]
    + [with_corner("[1, 1]").replace("Spain", r"\ud800"), with_corner("[1, 1]").replace("Polygon", "Point")],
    ids=range(15),
)
def test_metadata_that_cannot_be_read(tmp_path: Path, root: Path, content: str) -> None:
    path = root / "Sen1Floods11_Metadata.geojson"
    path.write_text(content)
    assert f"{path} cannot be read" in refused(tmp_path)


def test_metadata_whose_outline_is_a_line(tmp_path: Path, root: Path) -> None:
    write_metadata(root)
    path = root / "Sen1Floods11_Metadata.geojson"
    content = json.loads(path.read_text())
    content["features"][0]["geometry"]["coordinates"] = [[[0, 0], [1, 1], [0, 0]]]
    path.write_text(json.dumps(content))
    assert "an outline without an area" in refused(tmp_path)


@pytest.mark.usefixtures("no_data")
def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="any data folder: there is none"):
        load()
    with pytest.raises(DatasetNotFoundError, match=r"sen1floods11/v1\.1/"):
        load(tmp_path)


def test_published_insists_on_the_official_lists_and_on_every_chip(tmp_path: Path, root: Path) -> None:
    assert load(tmp_path, tile=16).source == "file"
    assert "differ(s) from the publishers'" in refused(tmp_path, source="published")


# ---------------------------------------------------------------------- the real files


def test_the_real_lists(real_data: Path) -> None:
    root = sen1floods11.find_root(real_data)
    roles = sen1floods11.read_lists(root)
    counts = {role: list(roles.values()).count(role) for role in COUNTS | {"bolivia": 0}}
    assert counts == {"train": 252, "valid": 89, "test": 90, "bolivia": 15}
    assert tuple(sorted({chip.split("_")[0] for chip in roles})) == sen1floods11.EVENTS
    assert {path: sha256(real_data / path) for path in sen1floods11.FILES} == sen1floods11.FILES


def test_the_real_metadata_know_every_event(real_data: Path) -> None:
    metadata = sen1floods11.read_metadata(sen1floods11.find_root(real_data))
    assert set(metadata.positions) == {*sen1floods11.EVENTS, "Colombia"}
    assert_allclose(metadata.positions["Sri-Lanka"], (81.1, 7.5), atol=0.1)
    assert_allclose(metadata.positions["USA"], (-95.0, 39.7), atol=0.1)
    assert metadata.dates["Spain"] == "2019-09-17"


def test_the_real_chips(real_data: Path) -> None:
    """Whatever part of the bucket is there: reading some chips twice tells whether tiles are where they belong."""
    root = sen1floods11.find_root(real_data)
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
    scaling = fit_scaling(store, benchmark.data.select(benchmark.train).x)
    assert -15 < scaling.mean[0] < -8  # VV of land and some water, in decibels
    assert -23 < scaling.mean[1] < -14
    water, land = (np.nanmean(store.x[:, 0][store.y == label]) for label in (1, 0))
    assert water < land - 3
    if about["subset"]:
        assert benchmark.source == "file"
        assert "of the 446 chips in the lists" in refused(real_data, source="published")
