"""The map of the 48 states: its outlines are right, and every state is drawn in its colour, once, with its name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import LogNorm, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Text

from toporo.errors import DataError, GroupMismatchError, SettingError
from toporo.pages.charts import INK, LOG_FROM, ON_DARK, ON_LIGHT, color_scale, to_svg
from toporo.pages.maps import BESIDE, FRAME, MISSING, contiguous_states, draw_state_land, draw_states, load_outlines

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
    """Colours by state, told apart by their outlines."""
    paths = {Path(MAP.polygons(code)[0]).vertices.tobytes(): code for code in CODES}
    fills = {}
    for state in ax.collections:
        if isinstance(state, PathCollection):
            state.update_scalarmappable()
            first = next(p for p in state.get_paths()[0].to_polygons(closed_only=True))
            fills[paths[np.ascontiguousarray(first).tobytes()]] = to_hex(state.get_facecolor()[0])
    return fills


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


def test_polygons_are_closed_within_the_frame_and_no_borders_cross() -> None:
    for code in CODES:
        for line in MAP.polygons(code):
            assert (line[0] == line[-1]).all()
            assert area(line) > 10
            assert FRAME[0] < line[:, 0].min() < line[:, 0].max() < FRAME[1]
            assert FRAME[2] < line[:, 1].min() < line[:, 1].max() < FRAME[3]
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
def test_labels_and_leader_lines_end_inside_their_state(code: str) -> None:
    inside = Path(MAP.polygons(code)[0])
    assert inside.contains_point(MAP.labels[code])
    if code in BESIDE:
        text, end = BESIDE[code]
        assert inside.contains_point(end)
        assert not any(Path(line).contains_point(text) for other in CODES for line in MAP.polygons(other))
        assert FRAME[0] < text[0] < FRAME[1]
        assert FRAME[2] < text[1] < FRAME[3]


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
    assert sorted(written(svgs[0])) == CODES


def test_no_labels_and_no_outline_on_wish() -> None:
    ax, _ = drawn({"NY": 1.0}, labels=False)
    assert not ax.texts
    assert not [c for c in ax.collections if isinstance(c, LineCollection)]


def test_labels_do_not_overlap_on_a_map_half_a_page_wide() -> None:
    figure = Figure(figsize=(4.5, 3.0))
    ax = figure.add_axes((0, 0, 1, 1))
    draw_states(ax, {}, label_size=5.6)
    figure.draw_without_rendering()
    boxes = {text.get_text(): Text.get_window_extent(text) for text in ax.texts}
    assert len(boxes) == 48
    touching = [(a, b) for a in boxes for b in boxes if a < b and boxes[a].overlaps(boxes[b])]
    assert touching == []
    assert [code for code, box in boxes.items() if box.x0 < 0 or box.x1 > figure.bbox.x1] == []


def test_nothing_coloured_is_a_map_too() -> None:
    ax, _ = drawn({})
    assert fills(ax) == dict.fromkeys(CODES, MISSING)
    assert len(ax.texts) == 48


@pytest.mark.parametrize("place", ["values", "fills", "outlined"])
def test_what_is_no_state_of_the_map_is_named(place: str) -> None:
    arguments: dict[str, object] = {"values": {}}
    arguments[place] = ["AK", "Kansas"] if place == "outlined" else {"AK": 1.0, "Kansas": 2.0, "KS": 1.0}
    with pytest.raises(GroupMismatchError, match=r"'AK', 'Kansas'.*two-letter codes"):
        drawn(**arguments)  # type: ignore[arg-type]


def test_one_text_for_a_list_of_states_is_refused() -> None:
    with pytest.raises(GroupMismatchError, match="list of state codes"):
        drawn({}, outlined="NY")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_must_be_finite(value: float) -> None:
    with pytest.raises(DataError, match=r"'TX'.*Leave the state out"):
        drawn({"TX": value})


def test_contradicting_settings_are_refused() -> None:
    with pytest.raises(SettingError, match="both a value and a fill: 'NY'"):
        drawn({"NY": 1.0}, fills={"NY": "red"})


def test_given_ends_are_the_ends_of_the_scale() -> None:
    _, colored = drawn({"NY": 1.0, "PA": 2.0}, norm=Normalize(0.0, 4.0))
    assert (colored.norm.vmin, colored.norm.vmax) == (0.0, 4.0)


def test_states_with_a_value_or_a_fill_are_marked_with_the_names_of_their_groups() -> None:
    ax, _ = drawn({"NY": 1.0, "PA": 2.0}, fills={"TX": "#123456"}, groups={"NY": "New York"})
    marks = {state.get_gid() for state in ax.collections}
    assert marks == {"group:New York", "group:PA", "group:TX", None}
    assert 'data-key="New York" class="hit"' in to_svg("map", ax.get_figure())  # type: ignore[arg-type]


def test_land_behind_a_graph_holds_its_states_and_its_groups() -> None:
    ax = Figure(figsize=(9, 6)).subplots()
    west, east, south, north = draw_state_land(ax, ["ME", "NH", "HI"], [(900.0, -100.0), (221.0, -581.0)])
    assert len(ax.patches) == 48
    assert len({to_hex(patch.get_facecolor()) for patch in ax.patches}) == 2
    high = MAP.corners(["ME", "NH"])[1]
    assert west < 221 < high[0] < east
    assert south < -581 < high[1] < north
    assert (ax.get_xlim(), ax.get_ylim()) == ((west, east), (south, north))


def test_contiguous_states_are_all_groups_or_none() -> None:
    assert contiguous_states(["NY", "Vermont", "maine"]) == {"NY": "NY", "Vermont": "VT", "maine": "ME"}
    assert contiguous_states(["NY", "VT", "ME", "AK"]) == {}
    assert contiguous_states(["NY", "VT", "ME", "NH", "MA", "Ontario"]) == {}
    assert contiguous_states([]) == {}
