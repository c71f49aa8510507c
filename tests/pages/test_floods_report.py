"""The report of floods: the map, the tiles and the events, whether all chips are there or a few."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.path import Path as Outline
from safetensors.numpy import save_file

from tests.pages.deep_cases import EVENTS, PLACES, SWEPT, flood_outcome, lake, only
from tests.pages.page import figures
from tests.pages.test_html import Page
from toporo.errors import DataError, SettingError
from toporo.pages.charts import to_svg
from toporo.pages.maps import GLOBE, draw_land, event_map, frame_of, load_land
from toporo.pages.pictures import LAND, MISSED, MISSING, Tile, _byte, _compared, _radar, tile_iou, tile_samples
from toporo.paper import sections
from toporo.paper import sen1floods11 as floods
from toporo.paper.report import write_report
from toporo.paper.results import Outcome

EACH = ("scores", "learned", "weights", "groups", "steps", "lambda", "map", "tiles")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    folder = tmp_path_factory.mktemp("floods")
    found = flood_outcome(folder, ("Bolivia", "Spain"), ("erm", "tro-data", "tro-uniform", *SWEPT[::2]), seeds=2)
    write_report(found, folder)
    return found, folder


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


# ---------------------------------------------------------------- the page


def test_the_page_holds_every_figure_of_each_event(outcome: tuple[Outcome, Path]) -> None:
    folder = outcome[1]
    html = (folder / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(html)
    assert page.stack == []
    names = {path.stem for path in (folder / "figures").iterdir()}
    assert names == {f"{each}-{event}" for each in EACH for event in ("bolivia", "spain")}
    assert figures(html) == len(names)
    targets = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert all(target.startswith(("#", "data:image/png;base64,")) for target in targets)
    identifiers = re.findall(r'\bid="([^"]+)"', html)
    assert len(set(identifiers)) == len(identifiers)


def test_a_subset_is_marked_at_the_top_and_in_every_chapter(outcome: tuple[Outcome, Path]) -> None:
    found, folder = outcome
    html = (folder / "report.html").read_text(encoding="utf-8")
    notice = html.index("A subset: 14 of the 446 hand-labelled chips were at hand.")
    left_out = html.index("Left out, without a usable pixel: Paraguay_34417 (no measurement).")
    assert notice < left_out < html.index("<table")
    whole = {name: replace(b, about={**b.about, "subset": False}) for name, b in found.loaded.items()}
    complete = replace(found, loaded=whole)
    assert floods.notices(complete) == ["Left out, without a usable pixel: Paraguay_34417 (no measurement)."]
    none = {name: replace(b, about={**b.about, "dropped": {}}) for name, b in whole.items()}
    assert floods.notices(replace(found, loaded=none)) == []


def test_erm_alone_has_a_map_without_edges(outcome: tuple[Outcome, Path]) -> None:
    found, folder = outcome
    part = only(found, "erm").parts[0]
    by_name = {section.name.split("-")[0]: section for section in floods.sections(part, folder)}
    assert list(by_name) == ["scores", "groups", "steps", "map", "tiles"]
    assert "Lines join" not in by_name["map"].text
    assert not any("edge in" in text for text in texts(by_name["map"].svg))


def test_values_that_are_not_defined_are_dashes(outcome: tuple[Outcome, Path]) -> None:
    (section,) = sections.groups_section(outcome[0].parts[0], "event", "IoU")
    shown = texts(section.svg)
    assert shown.count("–") == 3, "Ghana, for each method"
    assert set(EVENTS) <= set(shown)


def test_lambda_is_on_a_line_with_the_others_as_levels(outcome: tuple[Outcome, Path]) -> None:
    (section,) = sections.penalty_section(outcome[0].parts[0], "IoU", "event")
    shown = texts(section.svg)
    assert {"0.001", "0.1", "1", "10"} <= set(shown)
    assert {"ERM, test", "TRO-data, test", "TRO-data, validation, training events"} <= set(shown)


# ---------------------------------------------------------------- tiles


def test_tiles_with_water_come_first_and_say_how_well_it_was_found(outcome: tuple[Outcome, Path]) -> None:
    found, folder = outcome
    (section,) = floods._tiles(found.parts[0], folder)
    shown = texts(section.svg)
    assert {"radar, VV", "label", "water missed", "land taken for water"} <= set(shown)
    assert sum(text.startswith("IoU 0.") for text in shown) == 6
    assert shown.count("no water, none found") == 2
    assert shown.index("Bolivia_137") < shown.index("Bolivia_136"), "the one without water is last"


def test_a_run_without_its_tiles_is_named(outcome: tuple[Outcome, Path], tmp_path: Path) -> None:
    part = outcome[0].parts[0]
    with pytest.raises(DataError, match=r"is missing.*erm-s0-.*run it again"):
        floods._tiles(part, tmp_path)
    path = next(job for job in part.jobs if job.method.name == "erm").model_path(tmp_path)
    path.parent.mkdir()
    save_file({"other": np.zeros(1, np.float32)}, path)
    with pytest.raises(DataError, match=r"no tensor 'sample.water'"):
        floods._tiles(part, tmp_path)


def test_tiles_of_another_size_are_refused() -> None:
    radar, label = lake(0)
    with pytest.raises(DataError, match=r"\(64, 64\), ERM \(32, 32\).*another tile size"):
        Tile("a tile", radar[0], label, {"ERM": np.zeros((32, 32), np.float16)})
    with pytest.raises(SettingError, match="at least one"):
        tile_samples([])


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
    picture = _compared(tile, "m")[0]
    assert [tuple(p) for p in picture[1:]] == [tuple(_byte(color)) for color in (MISSED, LAND, MISSING)]
    assert tuple(_radar(radar)[0, 3]) == tuple(_byte(MISSING))
    assert tuple(_radar(np.full((1, 2), np.nan))[0, 0]) == tuple(_byte(MISSING)), "nothing measured is no error"


# ---------------------------------------------------------------- the map


def on_land(lon: float, lat: float) -> bool:
    """Inside an odd number of rings: lakes are holes."""
    rings = (Outline(ring) for path in load_land() for ring in path.to_polygons())
    return sum(ring.contains_point((lon, lat)) for ring in rings) % 2 == 1


@pytest.mark.parametrize("event", EVENTS)
def test_floods_are_on_land(event: str) -> None:
    assert on_land(*PLACES[event])


@pytest.mark.parametrize("place", [(-30.0, 0.0), (-150.0, 30.0), (75.0, -20.0), (51.0, 42.0), (-85.0, 60.0)])
def test_oceans_and_large_lakes_are_not(place: tuple[float, float]) -> None:
    """The last two: the Caspian Sea, Hudson Bay."""
    assert not on_land(*place)


@pytest.mark.parametrize("place", [(178.0, 67.0), (-175.0, 66.5)])
def test_land_goes_on_beyond_the_end_of_the_map(place: tuple[float, float]) -> None:
    assert on_land(*place)


def test_outlines_say_where_they_come_from_and_are_not_jagged() -> None:
    folder = files("toporo.pages")
    content = json.loads(folder.joinpath("world_outlines.json").read_text(encoding="utf-8"))
    assert "world-atlas 2.0.2" in content["about"]["source"]
    assert "Natural Earth" in content["about"]["data"]
    assert "Permission to use, copy, modify" in folder.joinpath("world_outlines.LICENSE").read_text(encoding="utf-8")
    for rings in content["polygons"]:
        for ring in rings:
            steps = np.reshape(ring, (-1, 2))
            assert (steps[1:].sum(axis=0) == 0).all(), "every ring is closed"
            assert np.abs(steps[1:]).max() * content["grid"] < 30, "no line goes around the globe"


@given(st.lists(st.tuples(st.floats(-180, 180), st.floats(-60, 85)), min_size=1, max_size=8))
def test_a_frame_holds_all_places_and_stays_on_the_globe(places: list[tuple[float, float]]) -> None:
    west, east, south, north = frame_of(places)
    assert GLOBE[0] <= west < east <= GLOBE[1]
    assert GLOBE[2] <= south < north <= GLOBE[3]
    assert all(west <= lon <= east and south <= lat <= north for lon, lat in places)


@pytest.mark.parametrize("place", [(200.0, 0.0), (0.0, math.nan), (0.0, -91.0)])
def test_places_off_the_globe_are_refused(place: tuple[float, float]) -> None:
    with pytest.raises(DataError, match="expected a longitude"):
        frame_of([place])


def test_a_map_needs_a_place() -> None:
    with pytest.raises(SettingError, match="at least one place"):
        event_map(None, {}, ["a"], ["b"])


def test_a_map_shows_events_where_they_are_and_the_frame_alone() -> None:
    figure = event_map(None, {"a": (10.0, 20.0), "b": (-60.0, -15.0)}, ["a"], ["b"])
    (ax,) = figure.axes
    spots = {
        tuple(map(float, at)) for c in ax.collections for at in np.ma.getdata(c.get_offsets()) if tuple(at) != (0, 0)
    }
    assert {(10.0, 20.0), (-60.0, -15.0)} <= spots
    assert ax.get_xlim() == pytest.approx((-82.0, 32.0))
    assert {"a", "b", "held-out event"} <= set(texts(to_svg("f", figure)))


def test_only_land_in_the_frame_is_drawn() -> None:
    drawn = {}
    for name, frame in {"globe": GLOBE, "Australia": (110.0, 155.0, -45.0, -10.0)}.items():
        ax = Figure().subplots()
        draw_land(ax, frame)
        drawn[name] = sum(len(c.get_paths()) for c in ax.collections if isinstance(c, PathCollection))
        assert ax.get_xlim() == frame[:2]
    assert 2 <= drawn["Australia"] < drawn["globe"] == len(load_land()) + 1
    assert isinstance(load_land()[0], Outline)
