"""Graphs and maps: groups joined by edges, and the 48 contiguous states coloured by values."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from toporo.errors import DataError
from toporo.pages.charts import canvas, color_bar, color_scale, drawn, key, mark, part_of, readable
from toporo.pages.outlines import RINGS, border, polygons, require_states
from toporo.pages.svg import WIDTH
from toporo.topology.draw import FIRM_COLOR, OTHER_COLOR, TEST_COLOR, draw_nodes, edge_handles, layout, mark_group
from toporo.topology.graph import GroupGraph
from toporo.topology.states import STATES
from toporo.types import Name

MISSING, BORDER = "#eef0f2", "#ffffff"
#: States too small for their code.
SMALL = ("CT", "DE", "MA", "MD", "NH", "NJ", "RI", "VT")
#: Perceptually ordered, light to dark, without the palest end that would pass for grey.
VALUE_COLORS, ERROR_COLORS = part_of("YlGnBu", 0.12, 1.0), part_of("YlOrRd", 0.12, 1.0)
#: Below and above zero.
SIGNED_COLORS = part_of("RdBu_r", 0.06, 0.94)
#: Share of the values that a signed colour scale spans, so a few outliers do not decide it.
NEARLY_ALL = 0.95
#: Groups whose names are written on small graphs too.
FEW = 15
#: Description of groups without validation evidence.
OUTSIDE = "outside of what validation has seen"


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
    ringed: Collection[object] = (),
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
    ringed : groups with a dashed ring: those outside of what validation has seen.
    """
    columns = 1 if len(panels) <= 2 else 2
    values = [value for by_group in panels.values() for value in by_group.values()]
    norm, cmap = (_signed_scale(values), SIGNED_COLORS) if signed else (color_scale(values), ERROR_COLORS)
    squares, ringed = {*graph.names} & {*squares}, {*graph.names} & {*ringed}
    valued = set().union(*panels.values())
    at, named = layout(graph), columns == 1 or len(graph) <= FEW
    figure, axes = canvas(4.0 if len(panels) == 1 else 0.4 + 0.75 * WIDTH / columns, len(panels), columns=columns)
    for ax, (title, by_group) in zip(axes, panels.items(), strict=True):
        colors = dict.fromkeys(squares, "#ffffff") | {name: to_hex(cmap(norm(v))) for name, v in by_group.items()}
        draw_nodes(graph, ax, at, colors, squares=squares, sizes=sizes, ringed=ringed, labels=named, scale=1 / columns)
        ax.set_title(title, fontsize=9)
    color_bar(figure, norm, cmap, label, values, axes)
    handles = [mark("trained on", mfc="#d1d5db", mec="#374151")]
    if squares:
        handles.append(mark("not trained on", "s", mfc="#d1d5db" if valued & squares else "white", mec=TEST_COLOR))
    if valued | squares < {*graph.names}:
        handles.append(mark("no rows in training", color=OTHER_COLOR))
    if ringed:
        handles.append(mark(f"ring: {OUTSIDE}", "", color=FIRM_COLOR, lw=0.9, ls="--"))
    key(figure, [*handles, *edge_handles(graph)])
    return figure


def _signed_scale(values: Sequence[float]) -> Normalize:
    """Return a symmetric scale around zero."""
    sizes = np.abs(values)
    most = float(np.quantile(sizes, NEARLY_ALL)) or float(sizes.max()) or 1.0
    return Normalize(-most, most)


# ---------------------------------------------------------------- the states


def draw_states(
    ax: Axes,
    values: Mapping[str, float],
    *,
    cmap: str | Colormap = "viridis",
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
    values : finite numbers by state code; a state without a value is pale.
    cmap : the colours.
    norm : the scale, by default from :func:`~toporo.pages.charts.color_scale`.
    fills : plain colours by code of states without a value.
    outlined : states with a dark line around all of them together.
    label_size : of the codes in points; None leaves them out.
    """
    fills = dict(fills or {})
    codes = require_states(values, what="coloured state(s)")
    require_states(fills, what="filled state(s)")
    around = border(require_states(outlined, what="outlined state(s)"))
    for code in codes:
        if not math.isfinite(values[code]):
            raise DataError(
                f"a map needs finite numbers; found {float(values[code])} for {code!r}. Leave the state out to draw it "
                "as missing."
            )
    colored = ScalarMappable(norm or color_scale(values.values()), cmap)
    rgba = np.asarray(colored.to_rgba(np.array([values[code] for code in codes], dtype=np.float64)))
    colors = dict.fromkeys(RINGS, MISSING) | fills
    colors |= {code: to_hex(tuple(color)) for code, color in zip(codes, rgba, strict=True)}
    for code, color in colors.items():
        outline = Path.make_compound_path(*(Path(line, closed=True) for line in polygons(code)))
        state = PathPatch(outline, fc=color, ec=BORDER, lw=0.6, joinstyle="round", zorder=1)
        if code in values or code in fills:
            mark_group(state, code)
        ax.add_patch(state)
        if label_size is not None and code not in SMALL:
            text: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 4, "color": readable(color)}
            ax.text(*STATES[code][1:], code, size=label_size, **text)
    ax.add_collection(LineCollection(around, colors=FIRM_COLOR, linewidths=0.8, capstyle="round", zorder=2))
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
) -> Figure:
    """Draw maps of the states on one colour scale, with a line around the states that have a value.

    Parameters
    ----------
    panels : values by state code, by title of the map.
    label : of the colours.
    cmap : the colours.
    fills : plain colours by state code, by title of the map.
    """
    columns = 1 if len(panels) <= 2 else 2
    values = [value for by_state in panels.values() for value in by_state.values()]
    norm = color_scale(values)
    figure, axes = canvas(0.65 * WIDTH / columns + 0.4, len(panels), columns=columns)
    for ax, (title, by_state) in zip(axes, panels.items(), strict=True):
        size = 5.0 if columns == 1 else None
        draw_states(
            ax, by_state, cmap=cmap, norm=norm, fills=(fills or {}).get(title), outlined=by_state, label_size=size
        )
        ax.set_title(title, fontsize=9)
    color_bar(figure, norm, cmap, label, values, axes)
    return figure
