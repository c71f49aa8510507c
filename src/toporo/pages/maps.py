"""Graphs and maps: groups joined by edges, the 48 contiguous states coloured by values, and the globe."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import Colormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch

from toporo.pages.charts import canvas, color_bar, color_scale, drawn, finite, key, mark, part_of, readable, stroke
from toporo.pages.outlines import Point, load_land, load_outlines
from toporo.pages.svg import WIDTH
from toporo.text import short_name
from toporo.topology.draw import (
    DARK,
    EDGE_COLOR,
    FIRM_COLOR,
    OTHER_COLOR,
    TEST_COLOR,
    add_hits,
    as_map,
    layout,
    mark_group,
)
from toporo.topology.graph import GroupGraph
from toporo.topology.labels import NodeNames
from toporo.topology.states import state_codes
from toporo.types import Name

MISSING, BORDER = "#eef0f2", "#ffffff"
#: Land behind a graph: its own states, and others.
OWN_LAND, OTHER_LAND = "#e6e9ed", "#f3f5f7"
LAND, COAST = "#dfe3e8", "#c3c9d1"
#: West, east, south and north of the map of the globe.
GLOBE = (-180.0, 180.0, -60.0, 85.0)
#: States too small for their code.
SMALL = ("CT", "DE", "MA", "MD", "NH", "NJ", "RI", "VT")
#: Perceptually ordered, light to dark, without the palest end that would pass for grey.
VALUE_COLORS, ERROR_COLORS = part_of("YlGnBu", 0.12, 1.0), part_of("YlOrRd", 0.12, 1.0)
#: Below and above zero.
SIGNED_COLORS = part_of("RdBu_r", 0.06, 0.94)
#: Groups whose names are written on small graphs too.
FEW = 15
#: A group outside of what validation has seen.
OUTSIDE = "outside of what validation has seen"


# ---------------------------------------------------------------- graphs


@drawn
def graph_chart(
    graph: GroupGraph,
    panels: Mapping[str, Mapping[Name, float]],
    label: str,
    *,
    cmap: Colormap = ERROR_COLORS,
    norm: Normalize | None = None,
    squares: Collection[object] = (),
    sizes: Mapping[Any, float] | None = None,
    ringed: Collection[object] = (),
    kinds: tuple[str, str, str] = ("trained on", "not trained on", "no rows in training"),
) -> Figure:
    """Draw the graph with its groups coloured by values, a panel per title.

    Parameters
    ----------
    graph : the graph.
    panels : values by group, by title of the panel.
    label : of the colours.
    cmap, norm : colours and their scale; the scale follows from the values unless given.
    squares : groups drawn as squares: test groups.
    sizes : areas of the circles relative to each other; all the same unless given.
    ringed : groups with a dashed ring: outside of what validation has seen.
    kinds : names in the key of circles with a value, squares, and circles without a value.
    """
    columns = 1 if len(panels) <= 2 else 2
    values = [value for by_group in panels.values() for value in by_group.values()]
    norm = norm or color_scale(values)
    at = layout(graph)
    figure, axes = canvas(4.0 if len(panels) == 1 else 0.4 + 0.75 * WIDTH / columns, len(panels), columns=columns)
    for ax, (title, by_group) in zip(axes, panels.items(), strict=True):
        draw_ground(ax, graph, at)
        colors = {name: to_hex(cmap(norm(value))) for name, value in by_group.items()}
        _draw_groups(ax, graph, at, colors, squares, sizes or {}, ringed, 1.0 / columns)
        ax.set_title(title, fontsize=9)
    color_bar(figure, ScalarMappable(norm, cmap), label, values, ax=axes)
    known = {name for by_group in panels.values() for name in by_group}
    hollow = "#d1d5db" if known & set(squares) else "white"
    handles = [mark(kinds[0], mfc="#d1d5db", mec="#374151")]
    handles += [mark(kinds[1], "s", mfc=hollow, mec=TEST_COLOR)] * any(name in squares for name in graph.names)
    handles += [mark(kinds[2], color=OTHER_COLOR)] * any(n not in known and n not in squares for n in graph.names)
    handles += [stroke(f"ring: {OUTSIDE}", color=DARK, ls="--")] * any(name in ringed for name in graph.names)
    key(figure, handles)
    return figure


def _draw_groups(
    ax: Axes,
    graph: GroupGraph,
    at: Mapping[Any, Any],
    colors: Mapping[Any, str],
    squares: Collection[object],
    sizes: Mapping[Any, float],
    ringed: Collection[object],
    scale: float,
) -> None:
    """Draw edges, groups in their colours, and the names that fit; ``scale`` is that of a node's area."""
    lines = [[at[a], at[b]] for a, b in graph.edges]
    ax.add_collection(LineCollection(lines, colors=EDGE_COLOR, linewidths=0.8, alpha=0.7, zorder=1))
    base = scale * (240.0 if len(graph) <= 20 else 110.0 if len(graph) <= 80 else 60.0)
    largest = max(sizes.values(), default=0.0) or 1.0
    areas = {name: base * (0.6 if name in colors else 0.5 if name in squares else 0.3) for name in graph.names}
    areas |= {name: base * (0.25 + 2.75 * size / largest) for name, size in sizes.items()}
    order = sorted(graph.names, key=lambda name: -areas[name])  # small nodes on top of large ones
    for names, color, width, marker in (
        ([name for name in order if name not in squares], "#374151", 0.6, "o"),
        ([name for name in order if name in squares], TEST_COLOR, 1.5, "s"),
    ):
        fills = [colors.get(name, OTHER_COLOR if marker == "o" else "#ffffff") for name in names]
        _scatter(
            ax, at, names, s=[areas[name] for name in names], c=fills, edgecolor=color, linewidth=width, marker=marker
        )
    beyond = [name for name in graph.names if name in ringed]
    _scatter(ax, at, beyond, s=1.6 * base, c="none", edgecolor=DARK, linewidth=1.0, ls="--", zorder=5)
    ax.margins(0.1)
    reach = {name: math.sqrt(areas[name]) / 2 for name in graph.names}
    if len(graph) <= FEW or scale == 1.0:
        texts = {name: short_name(name, 24 if len(graph) <= 20 else 18) for name in order}
        NodeNames(ax, at, reach, texts, graph.edges, size=7.5)
    add_hits(ax, at, reach)
    ax.set_axis_off()


def _scatter(ax: Axes, at: Mapping[Any, Any], names: Sequence[Any], **style: Any) -> None:
    if names:
        ax.scatter(*np.array([at[name] for name in names], dtype=np.float64).T, **({"zorder": 2} | style))


def draw_ground(ax: Axes, graph: GroupGraph, at: Mapping[Name, Point]) -> None:
    """Draw what a graph stands on: the land of states, or nothing but one scale across and up if it has positions."""
    codes = {} if graph.positions else state_codes(graph.names)
    if graph.positions:
        as_map(ax)
    if not codes:
        return
    states = load_outlines()
    own = [code for code in codes.values() if code in states.rings]  # not Alaska, Hawaii and the District of Columbia
    for code in states.rings:
        land = PathPatch(states.path(code), fc=OWN_LAND if code in own else OTHER_LAND, ec=BORDER, lw=0.8, zorder=0.5)
        ax.add_patch(land)
    points = np.vstack([*states.corners(own), *at.values()])
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.array([0.1, 0.05]) * (high - low)  # names are broader than high
    ax.set(xlim=(low[0] - room[0], high[0] + room[0]), ylim=(low[1] - room[1], high[1] + room[1]), aspect="equal")


# ---------------------------------------------------------------- the states


def draw_states(
    ax: Axes,
    values: Mapping[str, float],
    *,
    cmap: str | Colormap = "viridis",
    norm: Normalize | None = None,
    fills: Mapping[str, str] | None = None,
    outlined: Collection[str] = (),
    labels: bool = True,
    label_size: float = 6.5,
) -> ScalarMappable:
    """Draw the 48 contiguous states, those with a value in its colour, and return the scale for a colour bar.

    States with a value or a fill are marked as groups, see :func:`toporo.topology.draw.mark_group`. Codes that do not
    fit into their state are left out; pages show them on hover.

    Parameters
    ----------
    ax : the axes, which then show the map and nothing else.
    values : numbers by state code; they must be finite (leave a state out to draw it as missing).
    cmap : the colours.
    norm : the scale, as :func:`~toporo.pages.charts.color_scale` makes it unless given.
    fills : plain colours by state code for states without a value; states in neither are pale.
    outlined : states with a dark line around all of them together.
    labels : whether to write the codes, dark on light fills and light on dark ones.
    label_size : size of the codes in points; about 6.5 on a map across a page, 5 on half of one.
    """
    states = load_outlines()
    numbers = {code: finite(values[code], of=code) for code in states.require(values, what="coloured state(s)")}
    plain = {code: (fills or {})[code] for code in states.require(fills or (), what="filled state(s)")}
    colored = ScalarMappable(norm or color_scale(numbers.values()), cmap)
    colors = dict.fromkeys(states.rings, MISSING) | plain
    rgba = np.asarray(colored.to_rgba(np.array([*numbers.values()])))
    colors |= {code: to_hex(tuple(color)) for code, color in zip(numbers, rgba, strict=True)}
    for code, color in colors.items():
        state = PathPatch(states.path(code), fc=color, ec=BORDER, lw=0.6, joinstyle="round", zorder=1)
        if code in numbers or code in plain:
            mark_group(state, code)
        ax.add_patch(state)
        if labels and code not in SMALL:
            text: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 4, "color": readable(color)}
            ax.text(*states.labels[code], code, size=label_size, **text)
    border = states.border(states.require(outlined, what="outlined state(s)"))
    ax.add_collection(LineCollection(border, colors=FIRM_COLOR, linewidths=0.8, capstyle="round", zorder=2))
    ax.autoscale_view()
    ax.set_aspect("equal")
    ax.set_axis_off()
    return colored


@drawn
def state_maps(
    panels: Mapping[str, Mapping[str, float]],
    label: str,
    *,
    cmap: Colormap = VALUE_COLORS,
    fills: Mapping[str, Mapping[str, str]] | None = None,
    handles: Sequence[Any] = (),
) -> Figure:
    """Draw maps of the states on one colour scale, with a line around the states that have a value.

    Parameters
    ----------
    panels : values by state code, by title of the map.
    label : of the colours.
    cmap : the colours.
    fills : plain colours by state code, by title of the map.
    handles : entries of the key.
    """
    columns = 1 if len(panels) <= 2 else 2
    values = [value for by_state in panels.values() for value in by_state.values()]
    norm = color_scale(values)
    figure, axes = canvas(0.65 * WIDTH / columns + 0.4, len(panels), columns=columns)
    for ax, (title, by_state) in zip(axes, panels.items(), strict=True):
        looks: dict[str, Any] = {"fills": (fills or {}).get(title), "labels": columns == 1, "label_size": 5.0}
        draw_states(ax, by_state, cmap=cmap, norm=norm, outlined=by_state, **looks)
        ax.set_title(title, fontsize=9)
    color_bar(figure, ScalarMappable(norm, cmap), label, values, ax=axes)
    key(figure, handles)
    return figure


# ---------------------------------------------------------------- the globe


def draw_globe(ax: Axes) -> None:
    """Draw the continents on axes that then show longitudes and latitudes and nothing else."""
    land = PathCollection(load_land(), facecolors=LAND, edgecolors=COAST, linewidths=0.4, zorder=0.3)
    ax.add_collection(land, autolim=False)
    ax.set(xlim=GLOBE[:2], ylim=GLOBE[2:], aspect="equal")
    ax.set_axis_off()
