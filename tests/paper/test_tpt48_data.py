"""TPT-48: NOAA's file is read as it is or refused with a reason, and the benchmark is the documented one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.paper.fake_nclimdiv import fake_lines, row, write_fake
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, DatasetNotFoundError, GroupMismatchError, SettingError, UnknownNameError
from toporo.paper import BENCHMARKS, load_dataset, tpt48
from toporo.paper.loaded import cache_folder, data_folder, mse_by_group
from toporo.paper.tpt48 import SPLITS, STATES, make_split

NAME = "climdiv-tmpcst-v1.0.0-20240906"
Change = Callable[[list[str]], list[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_fake(tmp_path / "tpt48" / NAME)
    return tmp_path


def refused(path: Path, content: bytes | str | Change) -> str:
    """The message for a file with this content."""
    if callable(content):
        content = "".join(f"{line}\n" for line in content(fake_lines()))
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError) as caught:
        tpt48.read_temperatures(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "toporo data get tpt48" in message
    return message


# ---------------------------------------------------------------------- the file


def test_temperatures_are_those_in_the_file(folder: Path) -> None:
    found = tpt48.read_temperatures(folder / "tpt48" / NAME)
    assert set(found) == set(STATES)
    assert all(values.shape == (12, 12) for values in found.values())
    line = next(line for line in fake_lines() if line.startswith(f"{STATES['NY'].noaa:03d}0022013"))
    assert_array_equal(found["NY"][2013 - 2008], [float(field) for field in line[10:].split()])


def test_line_ends_of_another_system_do_not_matter(folder: Path, tmp_path: Path) -> None:
    path = folder / "tpt48" / NAME
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes().rstrip().replace(b"\n", b"\r\n"))
    found, expected = tpt48.read_temperatures(other), tpt48.read_temperatures(path)
    for code in STATES:
        assert_array_equal(found[code], expected[code])


def test_the_real_file(real_data: Path) -> None:
    found = tpt48.read_temperatures(real_data / "tpt48" / tpt48.FILE)
    assert_array_equal(found["AL"][0, :3], [43.0, 49.2, 55.2])
    assert found["FL"].mean() > found["TX"].mean() > found["NY"].mean() > found["ND"].mean()


def test_rows_that_nobody_wants_may_lack_months(tmp_path: Path) -> None:
    """The present year, and Alaska."""
    assert any("-99.90" in line for line in fake_lines())
    lines = [row(50, 2010, [-99.9] * 12) if line.startswith("0500022010") else line for line in fake_lines()]
    (tmp_path / "f").write_text("\n".join(lines))
    assert len(tpt48.read_temperatures(tmp_path / "f")) == 48


@pytest.mark.parametrize("kept", [1, 10, 50, 93])
def test_a_file_that_ends_in_the_middle_of_a_line(tmp_path: Path, kept: int) -> None:
    content = "\n".join(fake_lines()[:200]) + "\n" + fake_lines()[200][:kept]
    assert "line 201, the last one, is cut short after" in refused(tmp_path / "f", content)


def test_a_file_that_ends_between_two_lines(tmp_path: Path) -> None:
    message = refused(tmp_path / "f", lambda lines: [line for line in lines if line < "0460022010"])
    assert "no rows of 2 state(s) from 2008 to 2019: Wisconsin (WI), Wyoming (WY)" in message
    assert "lacks years from 2008 to 2019: New York (NY) 2018, 2019; Ohio (OH) 2011." in refused(
        tmp_path / "f",
        lambda lines: [line for line in lines if not line.startswith(("0300022018", "0300022019", "0330022011"))],
    )


CONTENT = "".join(f"{line}\n" for line in fake_lines()).encode()


@given(st.integers(0, len(CONTENT)))
@settings(max_examples=30, deadline=None)
def test_a_file_cut_anywhere_is_refused_or_has_all_that_is_needed(kept: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "f")
        path.write_bytes(CONTENT[:kept])
        try:
            found = tpt48.read_temperatures(path)
        except DataError:
            return
        path.write_bytes(CONTENT)
        whole = tpt48.read_temperatures(path)
        assert all((found[code] == whole[code]).all() for code in STATES)


@given(st.integers(0, len(CONTENT) - 1), st.binary(min_size=1, max_size=9))
@settings(max_examples=30, deadline=None)
def test_damage_anywhere_is_refused_or_harmless_but_never_another_error(at: int, damage: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "f")
        path.write_bytes(CONTENT[:at] + damage + CONTENT[at + len(damage) :])
        try:
            found = tpt48.read_temperatures(path)
        except DataError:
            return
        assert all(np.isfinite(found[code]).all() and found[code].shape == (12, 12) for code in STATES)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"no such file: .*toporo data get tpt48"):
        tpt48.read_temperatures(tmp_path / "gone")


def replaced(start: str, by: str) -> Change:
    return lambda lines: [by if line.startswith(start) else line for line in lines]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"  \n\n", "is empty"),
        (b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>", "is a web page"),
        (b"\n <html>", "is a web page"),
        (b"\x1f\x8b\x08\x00\xde\xad\xbe\xef", "line 1: found byte 0x8b, expected plain ASCII text"),
        (b"\x00\x01\x02\x03" * 50, "line 1: found '\\x00\\x01"),
        ("state,year,jan\nNY,2008,30.1\n", "line 1: found 'state,year,jan', expected NOAA's fixed width layout"),
        ("\n".join(fake_lines()).encode("utf-16"), "another encoding (Unicode with a byte order mark)"),
        ("\n".join(fake_lines()).encode("utf-8-sig"), "another encoding (Unicode with a byte order mark)"),
        (b"\n".join(line.encode() for line in fake_lines()[:5]) + "\n°F".encode("latin-1"), "line 6: found byte 0xb0"),
        (lambda lines: [line.replace("002", "001", 1) for line in lines], "element 01 is precipitation, expected 02"),
        (lambda lines: [line[:4] + "05" + line[6:] for line in lines], "element 05 is something else, expected 02"),
        (lambda lines: ["0101021895" + line[10:] for line in lines], "a row of a climate division"),
        (lambda lines: [*lines[:9], "", *lines[9:]], "line 10: found ''"),
        (lambda lines: [*lines[:9], lines[9][:40], *lines[10:]], "line 10: found '001002"),
        (lambda lines: [line for line in lines for _ in range(2)], "line 6: a second row of Alabama (AL) in 2008"),
        (replaced("0010022009", fake_lines()[3].replace(".", " ", 1)), "line 4: '  4"),
        (
            replaced("0300022010", row(30, 2010, [20.0] * 10 + [-99.9] * 2)),
            "no temperature of New York (NY) for Nov, Dec 2010 (-99.90 means missing)",
        ),
        (replaced("0300022010", row(30, 2010, [20.0] * 11 + [843.1])), "has 843.1 °F for New York (NY) in Dec 2010"),
    ],
)
def test_a_foreign_or_damaged_file_is_refused_with_the_reason(
    tmp_path: Path, content: bytes | str | Change, message: str
) -> None:
    assert message in refused(tmp_path / "f", content)


# ---------------------------------------------------------------------- the benchmark


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("window", "trained", "tested"), [("season", 12, 12), ("sliding", 133, 12), ("all-sliding", 133, 133)]
)
def test_windows_are_months_of_the_file_in_one_scale(
    folder: Path, split: str, window: str, trained: int, tested: int
) -> None:
    """Undone, the scale gives the file's months back; the training months have mean 0 and deviation 1."""
    benchmark = tpt48.load(folder, split=split, window=window)
    data, about = benchmark.data, benchmark.about
    assert (data.x.shape[1], data.y.shape[1], data.x.dtype, data.y.dtype) == (6, 6, np.float64, np.float64)
    assert benchmark.train == SPLITS[split].train
    assert benchmark.test == SPLITS[split].test
    assert benchmark.task == "regression"
    assert data.sizes == dict.fromkeys(benchmark.train, trained) | dict.fromkeys(benchmark.test, tested)
    months = {code: values.ravel() for code, values in tpt48.read_temperatures(folder / "tpt48" / NAME).items()}
    for code in STATES:
        rows = data.rows(code)
        step = 144 // 12 if len(rows) == 12 else 1
        for start, x, y in zip(range(0, 133, step), data.x[rows], data.y[rows], strict=True):
            both = np.concatenate([x, y]) * about["sd"] + about["mean"]
            assert_allclose(both, months[code][start : start + 12], atol=1e-10)
    every = np.concatenate([months[code] for code in benchmark.train])
    assert about["mean"] == pytest.approx(every.mean())
    assert about["sd"] == pytest.approx(every.std())


def test_what_is_on_record(folder: Path) -> None:
    benchmark = tpt48.load(folder, split="north-south", window="sliding")
    about = dict(benchmark.about)
    assert set(about) == {"split", "window", "hops", "mean", "sd", "unit", "release", "sha256", "years"}
    assert (about["split"], about["window"], about["unit"]) == ("north-south", "sliding", "°F")
    assert (about["release"], about["years"], len(about["sha256"])) == ("20240906", (2008, 2019), 64)
    assert about["hops"]["DE"] == 1
    assert set(about["hops"]) == set(benchmark.test)
    assert (benchmark.name, benchmark.source) == ("tpt48", "file")
    assert set(benchmark.graph.names) == set(STATES)


def test_splits_and_windows_are_other_benchmarks_and_the_same_call_the_same_one(folder: Path) -> None:
    calls = [{}, {"split": "north-south"}, {"window": "sliding"}, {"window": "all-sliding"}]
    first, second = ([tpt48.load(folder, **call).fingerprint for call in calls] for _ in range(2))
    assert first == second
    assert len(set(first)) == 4


def test_ones_own_split_leaves_other_states_out(folder: Path) -> None:
    benchmark = tpt48.load(folder, split=make_split(["NY", "PA"], ["OH"]))
    assert set(benchmark.data.groups) == {"NY", "PA", "OH"}
    assert benchmark.about["hops"] == {"OH": 1}
    assert benchmark.about["split"] == "own"


def test_the_newest_release_is_taken_wherever_it_lies(folder: Path) -> None:
    write_fake(folder / "climdiv-tmpcst-v1.0.0-20231231", seed=1)
    assert tpt48.load(folder).about["release"] == "20240906"
    write_fake(folder / "climdiv-tmpcst-v1.0.0-20250101", seed=1)
    write_fake(folder / "tpt48/climdiv-tmpcst-v1.0.1-20250101", seed=2)
    for other in ("climdiv-tmpcst-v1.0.0-20260101.part", "climdiv-tmpcst-v1.0.0-20260101.sha256", "climdiv-tmpcst-x"):
        (folder / "tpt48" / other).write_text("not a release")
    assert [path.name[-14:] for path in tpt48.find_releases(folder)] == [
        "1.0.1-20250101",
        "1.0.0-20250101",
        "1.0.0-20240906",
        "1.0.0-20231231",
    ]
    assert tpt48.load(folder).about["release"] == "20250101"


@pytest.mark.usefixtures("no_data")
def test_without_the_file_the_message_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetNotFoundError, match=r"there is none. Fetch .*: toporo data get tpt48 \(or by hand from h"
    ):
        tpt48.load()
    with pytest.raises(DatasetNotFoundError, match=f"in {tmp_path} or its tpt48/.*get tpt48 --data {tmp_path}"):
        tpt48.load(tmp_path)


def test_published_means_the_known_release(folder: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=f"no {tpt48.FILE} in .* It has '{NAME}': --source auto takes that"):
        tpt48.load(folder, source="published")
    write_fake(folder / tpt48.FILE)
    with pytest.raises(DataError, match=f"differs from NOAA's release .* expected {tpt48.CHECKSUM}"):
        tpt48.load(folder, source="published")


def test_wrong_names_are_errors_that_list_the_right_ones(folder: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot be generated. Fetch them with: toporo data get tpt48"):
        tpt48.load(folder, source="generated")
    with pytest.raises(UnknownNameError, match=r"unknown source 'web'. Valid names: auto, published"):
        tpt48.load(folder, source="web")
    with pytest.raises(UnknownNameError, match=r"unknown window 'slide'. Did you mean 'sliding'\?"):
        tpt48.load(folder, window="slide")
    with pytest.raises(UnknownNameError, match="unknown split 'up-down'"):
        tpt48.load(folder, split="up-down")


@pytest.mark.usefixtures("no_data")
def test_the_registry_passes_options_on_and_knows_them(folder: Path) -> None:
    benchmark = load_dataset("tpt48", folder, split="north-south", window="sliding")
    assert benchmark.fingerprint == tpt48.load(folder, split="north-south", window="sliding").fingerprint
    with pytest.raises(UnknownNameError, match=r"option of tpt48 'splits'. Did you mean 'split'\? .*: split, window"):
        load_dataset("tpt48", folder, splits="north-south")
    with pytest.raises(UnknownNameError, match=r"unknown option of dg15 'split'. Valid names: seed"):
        load_dataset("dg15", split="east-west")
    assert load_dataset("dg15").task == "classification"
    assert BENCHMARKS["tpt48"].fetch is tpt48.fetch
    assert BENCHMARKS["dg15"].fetch is None


@pytest.mark.usefixtures("no_data")
def test_the_cache_is_a_data_folder_once_it_is_there() -> None:
    assert data_folder() is None
    write_fake(cache_folder() / "tpt48" / NAME)
    assert data_folder() == cache_folder()
    assert tpt48.load().about["release"] == "20240906"


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert cache_folder() == tmp_path / ".cache/toporo"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert cache_folder() == tmp_path / "c/toporo"


# ---------------------------------------------------------------------- the metric


def ridge(train: GroupedData, test: GroupedData, strength: float) -> np.ndarray:
    """argmin over W, b of mean ‖y − Wx − b‖² + strength ‖W‖², applied to the test rows."""
    x, y = train.x - train.x.mean(axis=0), train.y - train.y.mean(axis=0)
    weights = np.linalg.solve(x.T @ x / len(x) + strength * np.eye(6), x.T @ y / len(x))
    return (test.x - train.x.mean(axis=0)) @ weights + train.y.mean(axis=0)


@pytest.mark.parametrize(("split", "expected"), [("east-west", 0.2917), ("north-south", 0.2176)])
def test_linear_regression_on_the_published_file_gives_the_documented_error(
    real_data: Path, split: str, expected: float
) -> None:
    benchmark = load_dataset("tpt48", real_data, source="published", split=split)
    assert benchmark.source == "published"
    test = benchmark.data.select(benchmark.test)
    predictions = ridge(benchmark.data.select(benchmark.train), test, 0.01)
    errors = tpt48.by_hop(mse_by_group(predictions, test), benchmark.about["hops"])
    assert errors.all == pytest.approx(expected, abs=5e-4)


def test_errors_are_summed_over_outputs_and_averaged_over_rows() -> None:
    y = np.zeros((3, 2))
    data = GroupedData.from_arrays(np.zeros((3, 1)), y, ["b", "a", "a"])
    predictions = np.array([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]])
    expected = {"a": (9 + 1) / 2, "b": 5.0}
    assert mse_by_group(predictions, data) == expected
    assert mse_by_group(torch.tensor(predictions, requires_grad=True), data) == expected
    with pytest.raises(DataError, match=r"predictions have shape \(3, 1\), the targets \(3, 2\)"):
        mse_by_group(predictions[:, :1], data)
    flat = GroupedData.from_arrays(np.zeros((2, 1)), np.zeros(2), ["a", "a"])
    assert mse_by_group([1.0, 3.0], flat) == {"a": 5.0}


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(0, 100)), min_size=1, max_size=12), st.randoms())
@settings(deadline=None)
def test_all_is_the_mean_of_classes_weighted_by_their_states(states: list[tuple[int, float]], random: object) -> None:
    """Whatever the order of the states, and whatever else has a value."""
    values = {f"s{i}": value for i, (_, value) in enumerate(states)}
    hops = {f"s{i}": hop for i, (hop, _) in enumerate(states)}
    errors = tpt48.by_hop(values | {"trained on": 1e9}, hops)
    weighted = sum(errors.hops[hop] * list(hops.values()).count(hop) for hop in errors.hops) / len(hops)
    assert errors.all == pytest.approx(weighted)
    assert list(errors.hops) == sorted(set(hops.values()))
    names = list(hops)
    random.shuffle(names)  # type: ignore[attr-defined]
    again = tpt48.by_hop(values, {name: hops[name] for name in names})
    assert again.all == pytest.approx(errors.all)
    assert again.hops == pytest.approx(errors.hops)


def test_a_test_state_without_a_value_is_an_error() -> None:
    with pytest.raises(GroupMismatchError, match=r"no value for test group\(s\) 'OH'"):
        tpt48.by_hop({"NY": 1.0}, {"NY": 1, "OH": 2})
    with pytest.raises(DataError, match="no hop classes given"):
        tpt48.by_hop({"NY": 1.0}, {})
