"""The report of floods: the map, the tiles and the events, whether all chips are there or a few."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tests.pages.deep_cases import EVENTS, SWEPT, flood_outcome, lake, only
from tests.pages.page import figures
from tests.pages.test_html import Page
from toporo.errors import DataError
from toporo.pages.pictures import LAND, MISSED, MISSING, WATER, Tile, _compare, tile_iou
from toporo.paper import sections
from toporo.paper import sen1floods11 as floods
from toporo.paper.report import write_report
from toporo.paper.results import Results
from toporo.paper.runs import Store

EACH = ("scores", "learned", "weights", "groups", "steps", "lambda", "map", "tiles")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    folder = tmp_path_factory.mktemp("floods")
    found = flood_outcome(folder, ("Bolivia", "Spain"), ("erm", "tro-data", "tro-uniform", *SWEPT[::2]), seeds=2)
    write_report(found, folder)
    return found, folder


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


# ---------------------------------------------------------------- the page


def test_the_page_holds_every_figure_of_each_event(outcome: tuple[Results, Path]) -> None:
    folder = outcome[1]
    html = (folder / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(html)
    assert page.stack == []
    names = {f"{each}-{event}" for each in EACH for event in ("bolivia", "spain")}
    assert set(names) <= set(re.findall(r'<section id="([^"]+)"', html))
    drawn = {path.stem for path in (folder / "figures").iterdir()}
    assert drawn == {name for name in names if not name.startswith("groups")}, "groups are a table"
    assert figures(html) == len(drawn)
    targets = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert all(target.startswith(("#", "data:image/png;base64,")) for target in targets)
    identifiers = re.findall(r'\bid="([^"]+)"', html)
    assert len(set(identifiers)) == len(identifiers)


def test_a_subset_is_marked_at_the_top_and_in_every_chapter(outcome: tuple[Results, Path]) -> None:
    found, folder = outcome
    html = (folder / "report.html").read_text(encoding="utf-8")
    notice = html.index("A subset: 14 of the 446 hand-labelled chips were at hand.")
    left_out = html.index("Left out, without a usable pixel: Paraguay_34417 (no measurement).")
    assert notice < left_out < html.index("<table")
    whole = {name: replace(b, about={**b.about, "subset": False}) for name, b in found.data.items()}
    assert floods.remarks(list(whole.values())) == [
        "Left out, without a usable pixel: Paraguay_34417 (no measurement)."
    ]
    none = [replace(each, about={**each.about, "dropped": {}}) for each in whole.values()]
    assert floods.remarks(none) == []


def test_erm_alone_has_a_map_without_edges(outcome: tuple[Results, Path]) -> None:
    part = only(outcome[0], "erm").parts[0]
    by_name = {section.name.split("-")[0]: section for section in floods.sections(part)}
    assert list(by_name) == ["scores", "groups", "steps", "map", "tiles"]
    assert "Lines join" not in by_name["map"].text
    assert not any("edge in" in text for text in texts(by_name["map"].svg))


def test_values_that_are_not_defined_are_dashes(outcome: tuple[Results, Path]) -> None:
    (section,) = sections.groups_section(outcome[0].parts[0])
    (table,) = section.tables
    assert sum(row.count("–") for row in table.rows) == 3, "Ghana, for each method"
    assert set(EVENTS) <= {column.removesuffix(" (held out)") for column in table.columns}


def test_lambda_is_on_a_line_with_the_others_as_levels(outcome: tuple[Results, Path]) -> None:
    (section,) = sections.penalty_section(outcome[0].parts[0])
    shown = texts(section.svg)
    assert {"0.001", "0.1", "1", "10"} <= set(shown)
    assert {"ERM, test", "TRO-data, test", "TRO-data, validation, training events"} <= set(shown)


# ---------------------------------------------------------------- tiles


def test_tiles_say_how_well_water_was_found(outcome: tuple[Results, Path]) -> None:
    (section,) = floods._samples(outcome[0].parts[0])
    shown = texts(section.svg)
    assert {"radar, VV", "label", "water missed", "land taken for water"} <= set(shown)
    assert sum(text.startswith("IoU 0.") for text in shown) == 6
    assert shown.count("no water, none found") == 2


def test_a_run_without_its_tiles_is_named(outcome: tuple[Results, Path], tmp_path: Path) -> None:
    part = replace(outcome[0].parts[0], store=Store(tmp_path))
    with pytest.raises(DataError, match=r"is missing.*erm-s0-.*run it again"):
        floods._samples(part)
    path = Store(tmp_path).path(next(run for run in part.runs if run.method.name == "erm"), "safetensors")
    path.parent.mkdir()
    save_file({"other": np.zeros(1, np.float32)}, path)
    with pytest.raises(DataError, match=r"no tensor 'sample.water'"):
        floods._samples(part)


def test_tiles_of_another_size_are_refused() -> None:
    radar, label = lake(0)
    with pytest.raises(DataError, match=r"\(64, 64\), ERM \(32, 32\).*another tile size"):
        Tile("a tile", radar[0], label, {"ERM": np.zeros((32, 32), np.float16)})


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
