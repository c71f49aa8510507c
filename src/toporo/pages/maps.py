"""Graphs and maps: groups joined by edges, and the 48 contiguous states coloured by values."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from toporo.pages.charts import (
    ERROR_COLORS,
    SIGNED_COLORS,
    VALUE_COLORS,
    canvas,
    color_bar,
    color_scale,
    drawn,
    key,
    mark,
    readable,
)
from toporo.pages.outlines import RINGS, border, polygons, require_states
from toporo.pages.svg import WIDTH
from toporo.topology.draw import FIRM_COLOR, OTHER_COLOR, TEST_COLOR, draw_nodes, edge_handles, layout, mark_group
from toporo.topology.graph import GroupGraph
from toporo.topology.states import STATES
from toporo.types import Name

MISSING, BORDER = "#eef0f2", "#ffffff"
#: States too small for their code.
SMALL = ("CT", "DE", "MA", "MD", "NH", "NJ", "RI", "VT")
#: Groups whose names are written on small graphs too.
FEW = 15


# ---------------------------------------------------------------- graphs


@drawn
def graph_chart(
    graph: GroupGraph,
    panels: Mapping[str, Mapping[Name, float]],
    label: str,
    *,
    signed: bool = False,
    squares: Collection[object] = (),
    sizes: Mapping[Any, float] | None = None,
) -> Figure:
    """Draw the graph with its groups coloured by values, a panel per title.

    Parameters
    ----------
    graph : the graph.
    panels : values by group, by title of the panel.
    label : of the colours.
    signed : whether colours differ below and above zero.
    squares : groups drawn as squares: those not trained on.
    sizes : areas of the circles relative to each other; all the same unless given.
    """
    columns = 1 if len(panels) <= 2 else 2
    values = [value for by_group in panels.values() for value in by_group.values()]
    norm, colors = color_scale(values, signed=signed), SIGNED_COLORS if signed else ERROR_COLORS
    squares, valued = {*graph.names} & {*squares}, set().union(*panels.values())
    at, named = layout(graph), columns == 1 or len(graph) <= FEW
    figure, axes = canvas(4.0 if len(panels) == 1 else 0.4 + 0.75 * WIDTH / columns, len(panels), columns=columns)
    for ax, (title, by_group) in zip(axes, panels.items(), strict=True):
        fills = {name: to_hex(mpl.colormaps[colors](norm(value))) for name, value in by_group.items()}
        fills = dict.fromkeys(squares, "#ffffff") | fills
        draw_nodes(graph, ax, at, fills, squares=squares, sizes=sizes, labels=named, scale=1 / columns)
        ax.set_title(title, fontsize=9)
    color_bar(figure, norm, colors, label, axes)
    handles = [mark("trained on", mfc="#d1d5db", mec="#374151")]
    if squares:
        handles.append(mark("not trained on", "s", mfc="#d1d5db" if valued & squares else "white", mec=TEST_COLOR))
    if valued | squares < {*graph.names}:
        handles.append(mark("no rows in training", color=OTHER_COLOR))
    key(figure, [*handles, *edge_handles(graph)])
    return figure


# ---------------------------------------------------------------- the states


def draw_states(
    ax: Axes,
    values: Mapping[str, float],
    *,
    cmap: str = VALUE_COLORS,
    norm: Normalize | None = None,
    fills: Mapping[str, str] | None = None,
    outlined: Collection[str] = (),
    label_size: float | None = 6.5,
) -> ScalarMappable:
    """Draw the 48 contiguous states, and return the colour scale of the values for a colour bar.

    States with a value or a fill are marked as groups, see :func:`toporo.topology.draw.mark_group`. Codes of small
    states are not written; a page shows them on hover.

    Parameters
    ----------
    ax : the axes, which then show the map and nothing else.
    values : numbers by state code; a state without a finite value is pale.
    cmap : the colours.
    norm : the scale, by default from :func:`~toporo.pages.charts.color_scale`.
    fills : plain colours by code of states without a value.
    outlined : states with a dark line around all of them together.
    label_size : of the codes in points; None leaves them out.
    """
    fills = fills or {}
    require_states([*values, *fills, *outlined])
    values = {code: value for code, value in values.items() if math.isfinite(value)}
    norm = norm or color_scale(values.values())
    colors = dict.fromkeys(RINGS, MISSING) | dict(fills)
    colors |= {code: to_hex(mpl.colormaps[cmap](norm(value))) for code, value in values.items()}
    for code, color in colors.items():
        outline = Path.make_compound_path(*(Path(line, closed=True) for line in polygons(code)))
        state = PathPatch(outline, fc=color, ec=BORDER, lw=0.6, joinstyle="round", zorder=1)
        if code in values or code in fills:
            mark_group(state, code)
        ax.add_patch(state)
        if label_size is not None and code not in SMALL:
            text: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 4, "color": readable(color)}
            ax.text(*STATES[code][1:], code, size=label_size, **text)
    ax.add_collection(LineCollection(border(outlined), colors=FIRM_COLOR, linewidths=0.8, capstyle="round", zorder=2))
    ax.autoscale_view()
    ax.set_aspect("equal")
    ax.set_axis_off()
    return ScalarMappable(norm, cmap)


@drawn
def state_maps(
    panels: Mapping[str, Mapping[str, float]],
    label: str,
    *,
    cmap: str = VALUE_COLORS,
    fills: Mapping[str, str] | None = None,
) -> Figure:
    """Draw maps of the states on one colour scale, with a line around the states that have a value.

    Parameters
    ----------
    panels : values by state code, by title of the map.
    label : of the colours.
    cmap : the colours.
    fills : plain colours by code of states without a value.
    """
    columns = 1 if len(panels) <= 2 else 2
    values = [value for by_state in panels.values() for value in by_state.values()]
    norm = color_scale(values)
    figure, axes = canvas(0.65 * WIDTH / columns + 0.4, len(panels), columns=columns)
    for ax, (title, by_state) in zip(axes, panels.items(), strict=True):
        size = 5.0 if columns == 1 else None
        draw_states(ax, by_state, cmap=cmap, norm=norm, fills=fills, outlined=by_state, label_size=size)
        ax.set_title(title, fontsize=9)
    color_bar(figure, norm, cmap, label, axes)
    return figure
