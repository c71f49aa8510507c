"""Maps and graphs: the outlines are right, and every group has its colour."""

from __future__ import annotations

import re

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

from toporo.errors import GroupMismatchError
from toporo.pages.charts import INK, LOG_FROM, ON_DARK, ON_LIGHT, color_scale
from toporo.pages.maps import MISSING, SMALL, draw_states, graph_chart, state_maps
from toporo.pages.outlines import RINGS, border, polygons
from toporo.pages.svg import to_svg
from toporo.topology.graph import GroupGraph
from toporo.topology.states import STATES

CODES = list(RINGS)


def drawn(values: dict[str, float], **settings: object) -> tuple[Axes, ScalarMappable]:
    ax = Figure(figsize=(9, 6)).subplots()
    return ax, draw_states(ax, values, **settings)  # type: ignore[arg-type]


def fills(ax: Axes) -> dict[str, str]:
    """Colours by state."""
    return {code: to_hex(patch.get_facecolor()) for code, patch in zip(CODES, ax.patches, strict=True)}


# ---------------------------------------------------------------- the outlines


@pytest.mark.parametrize("code", CODES)
def test_an_outline_is_closed_and_around_the_place_of_its_code(code: str) -> None:
    lines = polygons(code)
    assert all((line[0] == line[-1]).all() for line in lines)
    assert Path(lines[0]).contains_point(STATES[code][1:])


@given(st.sets(st.sampled_from(CODES)))
def test_a_set_of_states_and_the_others_have_the_same_border_except_for_the_coast(some: set[str]) -> None:
    def around(codes: set[str]) -> set[bytes]:
        return {line.tobytes() for line in border(codes)}

    assert around(some) ^ around(set(CODES) - some) == around(set(CODES))


# ---------------------------------------------------------------- colours


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_colour_scale_keeps_the_order_and_ends_at_its_ends(values: list[float]) -> None:
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
    norm = color_scale([*values, float("nan")])
    assert type(norm) is kind
    assert (norm.vmin, norm.vmax) == pytest.approx(ends)


def test_a_signed_colour_scale_is_symmetric() -> None:
    norm = color_scale([-3.0, 0.5], signed=True)
    assert (norm.vmin, norm.vmax) == (-3.0, 3.0)
    assert color_scale([0.0], signed=True)(0.0) == 0.5


# ---------------------------------------------------------------- maps of states


def test_each_state_has_the_colour_of_its_value_fill_or_absence() -> None:
    ax, scale = drawn({"CA": 0.0, "NY": 1.0, "KS": 0.5, "UT": float("nan")}, cmap="gray", fills={"TX": "#123456"})
    colors = fills(ax)
    assert [colors.pop(code) for code in ("CA", "NY", "KS", "TX")] == ["#000000", "#ffffff", "#808080", "#123456"]
    assert len(colors) == 44
    assert set(colors.values()) == {MISSING}
    assert (scale.norm.vmin, scale.norm.vmax) == (0.0, 1.0)
    assert {state.get_gid() for state in ax.patches} == {"group:CA", "group:NY", "group:KS", "group:TX", None}


def test_codes_are_light_on_dark_and_dark_on_light() -> None:
    ax, _ = drawn({"CA": 0.0, "KS": 1.0}, cmap="viridis")
    colors = {text.get_text(): text.get_color() for text in ax.texts}
    assert (colors["CA"], colors["KS"]) == (ON_DARK, ON_LIGHT)
    assert colors["TX"] == INK, "missing states are grey, in dark mode dark grey"


def test_codes_of_small_states_are_left_to_hovering() -> None:
    svg = to_svg("map", drawn({code: float(i) for i, code in enumerate(CODES)})[0].get_figure())  # type: ignore[arg-type]
    assert sorted([*re.findall(r">([A-Z]{2})</text>", svg), *SMALL]) == CODES
    assert svg.count('class="hit"') == len(CODES)


def test_codes_do_not_overlap_on_a_phone_and_maps_share_a_scale() -> None:
    figure = state_maps({"a": {"NY": 1.0}, "b": {"NY": 9.0, "PA": 1.0}}, "value", fills={"TX": "#123456"})
    one, other = (fills(ax) for ax in figure.axes[:2])
    assert one["NY"] == other["PA"] != other["NY"]
    assert one["TX"] == other["TX"] == "#123456"
    figure.draw_without_rendering()
    boxes = {text.get_text(): Text.get_window_extent(text) for text in figure.axes[0].texts}
    assert len(boxes) == 48 - len(SMALL)
    assert not [(a, b) for a in boxes for b in boxes if a < b and boxes[a].overlaps(boxes[b])]
    assert not drawn({}, label_size=None)[0].texts


def test_unknown_states_are_named() -> None:
    with pytest.raises(GroupMismatchError, match=r"'AK', 'Kansas', 'Guam'.*two-letter codes"):
        drawn({"AK": 1.0, "KS": 1.0}, fills={"Kansas": "#123456"}, outlined=["Guam"])


# ---------------------------------------------------------------- graphs


LINE = GroupGraph.from_edges([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])


def test_a_graph_has_a_key_and_every_group_is_shown_on_hover() -> None:
    figure = graph_chart(LINE, {"": {"a": 1.0, "b": 2.0}}, "loss", squares={"e"})
    names = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert names == ["trained on", "not trained on", "no rows in training"]
    assert to_svg("f", figure).count('class="hit"') == len(LINE)
