"""TPT-48: NOAA's file is read as it is or refused with a reason, and the benchmark is the documented one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.paper.fake_nclimdiv import fake_lines, noaa, row, write_fake
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, UnknownNameError
from toporo.paper import load_dataset, nclimdiv
from toporo.paper.loaded import cache_folder, data_folder, mse_by_group
from toporo.paper.nclimdiv import STATES
from toporo.paper.tpt48 import BORDERS, SPLITS, hop_classes

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
        nclimdiv.read_temperatures(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "toporo data get tpt48" in message
    return message


# ---------------------------------------------------------------------- the file


def test_temperatures_are_those_in_the_file(folder: Path, tmp_path: Path) -> None:
    """With line ends of another system too; rows of other years and regions may lack months."""
    assert any("-99.90" in line for line in fake_lines())
    found = nclimdiv.read_temperatures(folder / "tpt48" / NAME)
    assert set(found) == set(STATES)
    line = next(line for line in fake_lines() if line.startswith(f"{noaa('NY'):03d}0022013"))
    assert_array_equal(found["NY"][2013 - 2008], [float(field) for field in line[10:].split()])
    lines = [row(50, 2010, [-99.9] * 12) if line.startswith("0500022010") else line for line in fake_lines()]
    (tmp_path / "other").write_bytes("\r\n".join(lines).encode())
    again = nclimdiv.read_temperatures(tmp_path / "other")
    assert all((found[code] == again[code]).all() and found[code].shape == (12, 12) for code in STATES)


def test_the_real_file(real_data: Path) -> None:
    found = nclimdiv.read_temperatures(real_data / "tpt48/climdiv-tmpcst-v1.0.0-20200106")
    assert_array_equal(found["AL"][0, :3], [43.0, 49.2, 55.2])
    assert found["FL"].mean() > found["TX"].mean() > found["NY"].mean() > found["ND"].mean()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"  \n\n", r"lacks rows .*'AL in 2008', .* \(576 in all\)"),
        (b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>", "line 1: found '<!DOCTYPE html>'"),
        ("\n".join(fake_lines()).encode("utf-16"), "line 1: found "),
        ("\n".join(fake_lines()[:200]) + "\n00100", "line 201: found '00100'"),
        (lambda lines: [line.replace("002", "001", 1) for line in lines], "line 1: found '0010012006"),
        (lambda lines: [line for line in lines if "0330022011" not in line], r"2008 to 2019: 'OH in 2011'\."),
    ],
)
def test_a_foreign_or_damaged_file_is_refused_with_the_reason(
    tmp_path: Path, content: bytes | str | Change, message: str
) -> None:
    assert re.search(message, refused(tmp_path / "f", content))


# ---------------------------------------------------------------------- the states


def test_the_graph_is_that_of_common_borders(real_data: Path) -> None:
    facts = json.loads((real_data / "tpt48/us_states.json").read_text())
    assert {tuple(edge) for edge in facts["edges"]} == set(BORDERS)
    assert {state["abbr"]: int(state["noaa"]) for state in facts["states"]} == {code: noaa(code) for code in STATES}
    for key, name in (("EW", "east-west"), ("NS", "north-south")):
        assert sorted(facts["splits"][key]["train"]) == sorted(SPLITS[name].train)
        assert sorted(facts["splits"][key]["test"]) == sorted(SPLITS[name].test)
        assert facts["splits"][key]["hop"] == hop_classes(SPLITS[name])


def test_every_border_is_there_once() -> None:
    assert len(BORDERS) == len(set(BORDERS)) == 105
    assert all(one < other for one, other in BORDERS)


@pytest.mark.parametrize(("name", "sizes"), [("east-west", (8, 7, 9)), ("north-south", (10, 6, 8))])
def test_the_papers_splits_are_halves_with_its_hop_classes(name: str, sizes: tuple[int, ...]) -> None:
    split = SPLITS[name]
    assert len(split.train) == len(split.test) == 24
    assert sorted(split.train + split.test) == sorted(STATES)
    assert tuple(Counter(hop_classes(split).values())[hop] for hop in (1, 2, 3)) == sizes


# ---------------------------------------------------------------------- the benchmark


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("window", "trained", "tested"), [("season", 12, 12), ("sliding", 133, 12), ("all-sliding", 133, 133)]
)
def test_windows_are_months_of_the_file_in_one_scale(
    folder: Path, split: str, window: str, trained: int, tested: int
) -> None:
    """Undone, the scale gives the file's months back; the training months have mean 0 and deviation 1."""
    benchmark = load_dataset("tpt48", folder, split=split, window=window)
    data, about = benchmark.data, benchmark.about
    assert (data.x.shape[1], data.y.shape[1], data.x.dtype, data.y.dtype) == (6, 6, np.float64, np.float64)
    assert benchmark.train == SPLITS[split].train
    assert benchmark.test == SPLITS[split].test
    assert data.sizes == dict.fromkeys(benchmark.train, trained) | dict.fromkeys(benchmark.test, tested)
    months = {code: values.ravel() for code, values in nclimdiv.read_temperatures(folder / "tpt48" / NAME).items()}
    for code in STATES:
        rows = data.rows(code)
        step = 144 // 12 if len(rows) == 12 else 1
        for start, x, y in zip(range(0, 133, step), data.x[rows], data.y[rows], strict=True):
            both = np.concatenate([x, y]) * about["sd"] + about["mean"]
            assert_allclose(both, months[code][start : start + 12], atol=1e-10)
    every = np.concatenate([months[code] for code in benchmark.train])
    assert about["mean"] == pytest.approx(every.mean())
    assert about["sd"] == pytest.approx(every.std())


def test_the_newest_release_is_taken(folder: Path) -> None:
    write_fake(folder / "tpt48/climdiv-tmpcst-v1.0.0-20231231", seed=1)
    assert load_dataset("tpt48", folder).about["release"] == "20240906"
    (folder / "tpt48/climdiv-tmpcst-x").write_text("not a release")
    write_fake(folder / "tpt48/climdiv-tmpcst-v1.0.1-20250101", seed=2)
    assert load_dataset("tpt48", folder).about["release"] == "20250101"


@pytest.mark.usefixtures("no_data")
def test_the_cache_is_a_data_folder_once_it_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not data_folder().exists()
    write_fake(cache_folder() / "tpt48" / NAME)
    assert data_folder() == cache_folder()
    assert load_dataset("tpt48").about["release"] == "20240906"
    monkeypatch.setenv("HOME", str(tmp_path))
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert cache_folder() == tmp_path / ".cache/toporo"


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": "slide"}, r"unknown window 'slide'. Did you mean 'sliding'\?"),
        ({"splits": "up"}, r"option of tpt48 'splits'. Did you mean 'split'\? .*: split, window"),
    ],
)
def test_wrong_options_are_errors(folder: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        load_dataset("tpt48", folder, **options)


# ---------------------------------------------------------------------- the metric


def test_errors_are_summed_over_outputs_and_averaged_over_rows() -> None:
    y = np.zeros((3, 2))
    data = GroupedData.from_arrays(np.zeros((3, 1)), y, ["b", "a", "a"])
    predictions = np.array([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]])
    expected = {"a": (9 + 1) / 2, "b": 5.0}
    assert mse_by_group(predictions, data) == expected
