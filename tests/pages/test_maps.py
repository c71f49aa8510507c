"""Maps and graphs: outlines are right, and every group is drawn in its colour."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Text

from toporo.errors import DataError, GroupMismatchError
from toporo.pages.charts import INK, LOG_FROM, ON_DARK, ON_LIGHT, color_scale, to_svg
from toporo.pages.maps import MISSING, SMALL, draw_globe, draw_states, graph_chart, state_maps
from toporo.pages.outlines import load_land, load_outlines
from toporo.topology.draw import TEST_COLOR, layout
from toporo.topology.graph import GroupGraph

#: Who shares a land border (or a lake's) with whom, each pair once.
BORDERS = """
AL:FL,GA,MS,TN AR:LA,MO,MS,OK,TN,TX AZ:CA,NM,NV,UT CA:NV,OR CO:KS,NE,NM,OK,UT,WY CT:MA,NY,RI DE:MD,NJ,PA FL:GA
GA:NC,SC,TN IA:IL,MN,MO,NE,SD,WI ID:MT,NV,OR,UT,WA,WY IL:IN,KY,MO,WI IN:KY,MI,OH KS:MO,NE,OK KY:MO,OH,TN,VA,WV
LA:MS,TX MA:NH,NY,RI,VT MD:PA,VA,WV ME:NH MI:OH,WI MN:ND,SD,WI MO:NE,OK,TN MS:TN MT:ND,SD,WY NC:SC,TN,VA ND:SD
NE:SD,WY NH:VT NJ:NY,PA NM:OK,TX NV:OR,UT NY:PA,VT OH:PA,WV OK:TX OR:WA PA:WV SD:WY TN:VA UT:WY VA:WV
"""
PAIRS = {(a, b) for a, others in (part.split(":") for part in BORDERS.split()) for b in others.split(",")}
MAP = load_outlines()
CODES = list(MAP.rings)
#: Earth's radius over the scale of the projection, in kilometres.
UNIT = 6371 / 1300


def area(line: np.ndarray) -> float:
    x, y = line.T
    return abs(float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum())) / 2


def middle(code: str) -> np.ndarray:
    return MAP.polygons(code)[0].mean(axis=0)


def drawn(values: dict[str, float], **settings: object) -> tuple[Axes, ScalarMappable]:
    ax = Figure(figsize=(9, 6)).subplots()
    return ax, draw_states(ax, values, **settings)  # type: ignore[arg-type]


def fills(ax: Axes) -> dict[str, str]:
    """Colours by state."""
    return {code: to_hex(patch.get_facecolor()) for code, patch in zip(CODES, ax.patches, strict=True)}


def written(svg: str) -> list[str]:
    return re.findall(r">([A-Z]{2})</text>", svg)


def test_outlines_are_the_48_states_that_share_borders_as_in_reality() -> None:
    assert sorted({code for pair in PAIRS for code in pair}) == CODES
    assert len(CODES) == 48
    users: dict[int, set[str]] = {}
    for code, rings in MAP.rings.items():
        for arc in (arc for ring in rings for arc in ring):
            users.setdefault(arc if arc >= 0 else ~arc, set()).add(code)
    assert set(users) == set(range(len(MAP.arcs)))
    assert {tuple(sorted(states)) for states in users.values() if len(states) > 1} == PAIRS


@pytest.mark.parametrize(("one", "other"), sorted(PAIRS))
def test_neighbours_have_border_points_in_common(one: str, other: str) -> None:
    points = [{tuple(p) for line in MAP.polygons(code) for p in line} for code in (one, other)]
    assert len(points[0] & points[1]) >= 2


@pytest.mark.parametrize(("one", "other"), [("AZ", "CO"), ("NM", "UT")])
def test_four_corners_meet_in_one_point(one: str, other: str) -> None:
    points = [{tuple(p) for line in MAP.polygons(code) for p in line} for code in (one, other)]
    assert len(points[0] & points[1]) == 1


def test_polygons_are_closed_and_no_borders_cross() -> None:
    for code in CODES:
        for line in MAP.polygons(code):
            assert (line[0] == line[-1]).all()
            assert area(line) > 10
        assert area(MAP.polygons(code)[0]) == max(map(area, MAP.polygons(code)))
    assert crossings(MAP.arcs) == 0


def crossings(lines: Iterable[np.ndarray]) -> int:
    lines = list(lines)
    start = np.concatenate([np.rint(line[:-1] * 10) for line in lines])
    end = np.concatenate([np.rint(line[1:] * 10) for line in lines])

    def side(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        step, way = b - a, c - a
        return np.sign(step[..., 0] * way[..., 1] - step[..., 1] * way[..., 0])

    def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return side(a[:, None], b[:, None], start) * side(a[:, None], b[:, None], end) < 0

    cut = apart(start, end)
    return int((cut & cut.T).sum()) // 2


def test_the_check_for_crossings_sees_one() -> None:
    assert crossings([np.array([[0.0, 0.0], [2.0, 2.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])]) == 1


@pytest.mark.parametrize(("code", "km2"), [("CO", 269_600), ("KS", 213_100), ("WY", 253_300), ("IA", 145_700)])
def test_areas_are_true(code: str, km2: float) -> None:
    assert sum(map(area, MAP.polygons(code))) * UNIT**2 == pytest.approx(km2, rel=0.01)


@pytest.mark.parametrize("way", [["CA", "NV", "UT", "CO", "KS", "MO", "KY", "VA"], ["OR", "SD", "OH", "NY", "ME"]])
def test_states_lie_from_west_to_east(way: list[str]) -> None:
    east = [middle(code)[0] for code in way]
    assert east == sorted(east)


def test_north_is_up() -> None:
    north = [middle(code)[1] for code in ("TX", "OK", "KS", "NE", "SD", "ND")]
    assert north == sorted(north)


@pytest.mark.parametrize("code", CODES)
def test_labels_are_inside_their_state(code: str) -> None:
    assert Path(MAP.polygons(code)[0]).contains_point(MAP.labels[code])


def test_the_file_is_small_and_says_where_it_comes_from_and_under_which_licence() -> None:
    folder = files("toporo.pages")
    text = folder.joinpath("us_outlines.json").read_text(encoding="utf-8")
    assert len(text) < 40_000
    about = json.loads(text)["about"]
    assert "us-atlas" in about["source"]
    assert "Census" in about["data"]
    assert "Permission to use, copy, modify" in folder.joinpath("us_outlines.LICENSE").read_text(encoding="utf-8")


@given(st.sets(st.sampled_from(CODES)))
def test_a_set_of_states_and_the_others_have_the_same_border_but_for_the_coast(some: set[str]) -> None:
    def around(codes: Iterable[str]) -> set[bytes]:
        return {line.tobytes() for line in MAP.border(codes)}

    assert around(some) ^ around(set(CODES) - some) == around(CODES)


def test_the_border_of_one_state_is_its_outline() -> None:
    length = sum(np.hypot(*np.diff(line, axis=0).T).sum() for line in MAP.border(["MI"]))
    assert length == pytest.approx(sum(np.hypot(*np.diff(line, axis=0).T).sum() for line in MAP.polygons("MI")))


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_colour_scale_keeps_the_order_and_reaches_no_further_than_its_ends(values: list[float]) -> None:
    values = sorted(values)
    at = np.asarray(color_scale(values)(values))
    assert (np.diff(at) >= -1e-9).all()
    assert at.min() >= 0
    assert at.max() <= 1


@pytest.mark.parametrize(
    ("values", "kind", "ends"),
    [
        ([1.0, LOG_FROM], Normalize, (1.0, LOG_FROM)),
        ([1.0, LOG_FROM * 1.01], LogNorm, (1.0, LOG_FROM * 1.01)),
        ([0.0, 1.0, 100.0], LogNorm, (1.0, 100.0)),
        ([1e-30, 1.0], LogNorm, (1e-3, 1.0)),
        ([-1.0, 100.0], Normalize, (-1.0, 100.0)),
        ([0.0, 0.0], Normalize, (-1.0, 1.0)),
        ([2.0], Normalize, (1.8, 2.2)),
        ([], Normalize, (0.0, 1.0)),
    ],
)
def test_a_colour_scale_is_logarithmic_only_for_skewed_values(
    values: list[float], kind: type[Normalize], ends: tuple[float, float]
) -> None:
    norm = color_scale(values)
    assert type(norm) is kind
    assert (norm.vmin, norm.vmax) == pytest.approx(ends)


def test_each_state_has_the_colour_of_its_value_fill_or_absence() -> None:
    ax, _ = drawn({"CA": 0.0, "NY": 1.0, "KS": 0.5}, cmap="gray", fills={"TX": "#123456"})
    others = fills(ax)
    assert [others.pop(code) for code in ("CA", "NY", "KS", "TX")] == ["#000000", "#ffffff", "#808080", "#123456"]
    assert len(others) == 44
    assert set(others.values()) == {MISSING}


def test_codes_are_light_on_dark_and_dark_on_light() -> None:
    ax, _ = drawn({"CA": 0.0, "KS": 1.0}, cmap="viridis")
    colors = {text.get_text(): text.get_color() for text in ax.texts}
    assert (colors["CA"], colors["KS"]) == (ON_DARK, ON_LIGHT)
    assert colors["TX"] == INK, "missing states are grey, by night dark grey"


def test_the_same_bytes_at_every_call_whatever_the_order_of_the_values() -> None:
    values = {code: float(i) for i, code in enumerate(CODES)}
    backwards = dict(reversed(values.items()))
    svgs = []
    for order in (values, backwards):
        ax, _ = drawn(order, outlined=["NY", "PA"])
        svgs.append(to_svg("map", ax.get_figure()))  # type: ignore[arg-type]
    assert svgs[0] == svgs[1]
    assert sorted([*written(svgs[0]), *SMALL]) == CODES


def test_no_labels_on_wish() -> None:
    ax, _ = drawn({"NY": 1.0}, labels=False)
    assert not ax.texts


def test_labels_do_not_overlap_on_a_map_as_wide_as_a_phone() -> None:
    figure = state_maps({"a": {"NY": 1.0}}, "value")
    figure.draw_without_rendering()
    boxes = {text.get_text(): Text.get_window_extent(text) for text in figure.axes[0].texts}
    assert len(boxes) == 48 - len(SMALL)
    assert not [(a, b) for a in boxes for b in boxes if a < b and boxes[a].overlaps(boxes[b])]


def test_nothing_coloured_is_a_map_too() -> None:
    ax, _ = drawn({})
    assert fills(ax) == dict.fromkeys(CODES, MISSING)
    assert len(ax.texts) == 48 - len(SMALL)


@pytest.mark.parametrize("place", ["values", "fills", "outlined"])
def test_what_is_no_state_of_the_map_is_named(place: str) -> None:
    arguments: dict[str, object] = {"values": {}}
    arguments[place] = ["AK", "Kansas"] if place == "outlined" else {"AK": 1.0, "Kansas": 2.0, "KS": 1.0}
    with pytest.raises(GroupMismatchError, match=r"'AK', 'Kansas'.*two-letter codes"):
        drawn(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_must_be_finite(value: float) -> None:
    with pytest.raises(DataError, match=r"'TX'.*Leave the state out"):
        drawn({"TX": value})


def test_given_ends_are_the_ends_of_the_scale() -> None:
    _, colored = drawn({"NY": 1.0, "PA": 2.0}, norm=Normalize(0.0, 4.0))
    assert (colored.norm.vmin, colored.norm.vmax) == (0.0, 4.0)


def test_states_with_a_value_or_a_fill_are_marked_as_groups() -> None:
    ax, _ = drawn({"NY": 1.0, "PA": 2.0}, fills={"TX": "#123456"})
    marks = {state.get_gid() for state in ax.patches}
    assert marks == {"group:NY", "group:PA", "group:TX", None}
    assert 'data-key="NY" class="hit"' in to_svg("map", ax.get_figure())  # type: ignore[arg-type]


def test_state_maps_share_one_scale() -> None:
    figure = state_maps({"a": {"NY": 1.0}, "b": {"NY": 9.0, "PA": 1.0}}, "value", fills={"a": {"TX": "#123456"}})
    one, other = (fills(ax) for ax in figure.axes[:2])
    assert one["NY"] == other["PA"] != other["NY"]
    assert (one["TX"], other["TX"]) == ("#123456", MISSING)


# ---------------------------------------------------------------- graphs


LINE = GroupGraph.from_edges([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])


def test_a_graph_shows_sizes_as_areas_and_test_groups_as_squares() -> None:
    sizes = {"a": 0.0, "b": 1.0}
    figure = graph_chart(LINE, {"": {"a": 1.0, "b": 2.0}}, "loss", squares={"e"}, sizes=sizes, ringed={"e"})
    ax = figure.axes[0]
    circles, squares, rings = ax.collections[1:]
    assert [len(np.asarray(marks.get_offsets())) for marks in (circles, squares, rings)] == [4, 1, 1]
    largest, *others = circles.get_sizes()  # small nodes on top
    assert largest > max(others)
    assert np.asarray(circles.get_offsets())[0].tolist() == list(layout(LINE)["b"])
    assert to_hex(squares.get_edgecolor()[0]) == TEST_COLOR
    assert np.asarray(rings.get_offsets())[0].tolist() == list(layout(LINE)["e"])
    assert {text.get_text() for text in ax.texts} == set("abcde")
    names = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert names == ["trained on", "not trained on", "no rows in training", "ring: outside of what validation has seen"]


def test_names_on_a_large_graph_are_those_of_the_largest_groups() -> None:
    names = [f"a name of g{i}" for i in range(300)]
    sizes = {name: 1.0 if i % 30 == 0 else 0.01 for i, name in enumerate(names)}
    figure = graph_chart(GroupGraph(names, {}), {"": sizes}, "loss", sizes=sizes)
    figure.draw_without_rendering()
    shown = {text.get_text() for text in figure.axes[0].texts if text.get_visible()}
    assert set(names[::30]) <= shown
    assert len(shown) < len(names)


def test_a_graph_of_states_stands_on_their_land() -> None:
    names = ("New York", "Vermont", "Maine", "New Hampshire", "Hawaii")
    graph, values = GroupGraph.from_edges(list(pairwise(names))), dict.fromkeys(names, 1.0)
    ax = graph_chart(graph, {"": values}, "loss").axes[0]
    assert len(ax.patches) == 48
    at = layout(graph)
    assert at["New York"][0] < at["Vermont"][0] < at["New Hampshire"][0] < at["Maine"][0]
    assert all(ax.viewLim.contains(*place) for place in at.values())
    placed = GroupGraph(graph.names, graph.edges, positions={name: (0.0, float(i)) for i, name in enumerate(names)})
    assert not graph_chart(placed, {"": values}, "loss").axes[0].patches


# ---------------------------------------------------------------- the globe


def on_land(lon: float, lat: float) -> bool:
    """Inside an odd number of rings: lakes are holes."""
    rings = (Path(ring) for path in load_land() for ring in path.to_polygons())
    return sum(ring.contains_point((lon, lat)) for ring in rings) % 2 == 1


@pytest.mark.parametrize("place", [(-65.0, -15.0), (-1.2, 9.5), (86.0, 25.5), (178.0, 67.0), (-175.0, 66.5)])
def test_land_is_land(place: tuple[float, float]) -> None:
    assert on_land(*place)


@pytest.mark.parametrize("place", [(-30.0, 0.0), (-150.0, 30.0), (75.0, -20.0), (51.0, 42.0), (-85.0, 60.0)])
def test_oceans_and_large_lakes_are_not(place: tuple[float, float]) -> None:
    """The last two: the Caspian Sea, Hudson Bay."""
    assert not on_land(*place)


def test_the_globe_is_drawn_whole() -> None:
    ax = Figure().subplots()
    draw_globe(ax)
    assert sum(len(c.get_paths()) for c in ax.collections) == len(load_land())
    assert ax.get_xlim() == (-180.0, 180.0)


def test_outlines_of_the_globe_name_their_source_and_are_not_jagged() -> None:
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
