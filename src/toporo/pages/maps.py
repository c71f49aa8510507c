"""Groups on maps: the 48 contiguous states coloured by a number for each, and places on the globe."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from toporo.errors import DataError, GroupMismatchError, SettingError, listed
from toporo.pages import charts
from toporo.pages.charts import INK, SOFT, WIDE, WIDTH
from toporo.pages.figures import TopologyRuns, draw_counted_edges, hop_title, require_same, short_number
from toporo.pages.outlines import Outlines, Point, load_land, load_outlines
from toporo.topology.draw import FIRM_COLOR, TEST_COLOR, TRAIN_COLOR, add_hits, as_map, draw_graph, mark_group
from toporo.topology.graph import GroupGraph
from toporo.topology.states import state_codes
from toporo.types import Name

Frame = tuple[float, float, float, float]

MISSING, BORDER, TRAIN_FILL = "#eef0f2", "#ffffff", "#d9dde3"
#: Land behind a graph: its states, and others.
OWN_LAND, OTHER_LAND = "#e6e9ed", "#f3f5f7"
#: Test states by distance from the training states: the farther, the paler; beyond the last, as the last.
HOP_FILLS = ("#b4bbc5", "#d0d5dc", "#e8ebee")
#: Perceptually ordered, light to dark, without the palest end that would pass for grey.
CENTRALITY_COLORS, ERROR_COLORS = charts.part_of("YlGnBu", 0.12, 1.0), charts.part_of("YlOrRd", 0.05, 1.0)
#: West, east, south and north of the states and the labels beside them.
FRAME: Frame = (10.0, 982.0, -612.0, -8.0)
#: States too small for a label: where it stands in the sea or north of the border, and where its line ends.
BESIDE: dict[str, tuple[Point, Point]] = {
    "VT": ((848.0, -86.0), (870.0, -124.0)),
    "NH": ((878.0, -66.0), (892.0, -124.0)),
    "MA": ((962.0, -160.0), (905.0, -169.0)),
    "RI": ((952.0, -189.0), (905.0, -182.0)),
    "CT": ((936.0, -216.0), (894.0, -187.0)),
    "NJ": ((902.0, -241.0), (866.0, -231.0)),
    "DE": ((902.0, -267.0), (855.0, -264.0)),
    "MD": ((902.0, -293.0), (859.0, -276.0)),
}
#: Diameter of a state's disc in points: two letters fit in, and discs of small neighbours just about beside each other.
DISC = 13.0
SEA, LAND, COAST, LINES = "#f4f7fa", "#dfe3e8", "#c3c9d1", "#e3e9ef"
#: Degrees that are shown around the outermost places, and at least altogether.
AROUND, ACROSS, UP = (22.0, 16.0), 90.0, 50.0
#: The whole of the map of the globe.
GLOBE: Frame = (-180.0, 180.0, -60.0, 85.0)


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
    groups: Mapping[str, Name] | None = None,
) -> ScalarMappable:
    """Draw the 48 states on ``ax``, those with a value in its colour; returns what a colour bar is made from.

    States with a value or a fill are marked as groups, see :func:`toporo.topology.draw.mark_group`.

    Parameters
    ----------
    ax : the axes, which then show the map and nothing else.
    values : numbers by state code; they must be finite (leave a state out to have it drawn as missing).
    cmap : the colours.
    norm : the scale, as :func:`~toporo.pages.charts.color_scale` makes it unless given.
    fills : plain colours by state code for states without a value; those in neither are pale.
    outlined : states around which, as a whole, a dark line is drawn.
    labels : whether to write the codes, dark on light fills and light on dark ones.
    label_size : size of the codes in points; about 6.5 on a map across a page, 5 on half of one.
    groups : what the groups are called that are states, by code; the same unless given.
    """
    states = load_outlines()
    given = {code: charts.finite(values[code], of=code) for code in states.require(values, what="coloured state(s)")}
    plain = {code: (fills or {})[code] for code in states.require(fills or (), what="filled state(s)")}
    states.require(outlined, what="outlined state(s)")
    twice = [code for code in given if code in plain]
    if twice:
        raise SettingError(f"states with both a value and a fill: {listed(twice)}. Give each state one of the two.")
    norm = norm or charts.color_scale(given.values())
    around: dict[str, Any] = {"edgecolors": BORDER, "linewidths": 0.6, "joinstyle": "round", "zorder": 1}
    called: dict[str, Name] = {code: code for code in (*given, *plain)} | dict(groups or {})
    shown: dict[str, Any] = {}
    for code in states.rings:
        if code in given:
            state = PathCollection([states.path(code)], cmap=cmap, norm=norm, **around)
            state.set_array(np.array([given[code]]))
            shown[code] = state.to_rgba(np.array([given[code]]))[0]
        else:
            shown[code] = plain.get(code, MISSING)
            state = PathCollection([states.path(code)], facecolors=[shown[code]], **around)
        if code in called:
            mark_group(state, called[code])
        ax.add_collection(state)
    if outlined:
        lines = states.border(outlined)
        ax.add_collection(LineCollection(lines, colors=FIRM_COLOR, linewidths=0.8, capstyle="round", zorder=2))
    if labels:
        _write_labels(ax, states, shown, label_size)
    _show(ax, FRAME)
    return ScalarMappable(norm, cmap)


def contiguous_states(names: Iterable[Name]) -> dict[Name, str]:
    """The states that all these groups are named after, by group; empty unless all are on the map of the 48."""
    everyone = list(names)
    codes = state_codes(everyone)
    return codes if len(codes) == len(everyone) and codes and set(codes.values()) <= set(load_outlines().rings) else {}


def draw_state_land(ax: Axes, codes: Iterable[str], at: Iterable[Point]) -> Frame:
    """States as land behind a graph that stands on them: these, and paler those around; returns what is shown.

    Parameters
    ----------
    ax : the axes.
    codes : the states of the graph; Alaska, Hawaii and the District of Columbia have no land here.
    at : where its groups stand.
    """
    states = load_outlines()
    own = [code for code in codes if code in states.rings]
    for code in states.rings:
        land = PathPatch(states.path(code), fc=OWN_LAND if code in own else OTHER_LAND, ec=BORDER, lw=0.8, zorder=0.5)
        ax.add_patch(land)
    points = np.vstack([*states.corners(own), *at])
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.array([0.1, 0.05]) * (high - low)  # names are broader than high
    (west, south), (east, north) = low - room, high + room
    frame = (float(west), float(east), float(south), float(north))
    _show(ax, frame)
    return frame


def draw_ground(ax: Axes, graph: GroupGraph, at: Mapping[Name, Point]) -> Frame | None:
    """What a graph stands on: the land of states, whose frame is returned; one scale where it has positions; nothing.

    ``at`` is the graph's layout.
    """
    codes = {} if graph.positions else state_codes(graph.names)
    if codes:
        return draw_state_land(ax, codes.values(), at.values())
    if graph.positions:
        as_map(ax)
    return None


def _show(ax: Axes, frame: Frame) -> None:
    """The frame of a map and no axes."""
    ax.set_xlim(frame[0], frame[1])
    ax.set_ylim(frame[2], frame[3])
    ax.set_aspect("equal")
    ax.set_axis_off()


def _write_labels(ax: Axes, states: Outlines, fills: Mapping[str, Any], size: float) -> None:
    text: dict[str, Any] = {"size": size, "ha": "center", "va": "center", "zorder": 4}
    for code, at in states.labels.items():
        color = charts.readable(fills[code])
        if code in BESIDE:
            place, end = BESIDE[code]
            line = {"arrowstyle": "-", "color": SOFT, "lw": 0.5, "shrinkA": 0.5, "shrinkB": 0.0}
            ax.annotate(code, end, place, color=INK, arrowprops=line, **text)
            ax.plot(*end, marker="o", ms=1.6, mew=0, color=color, zorder=4)
        else:
            ax.text(*at, code, color=color, **text)


@dataclass(frozen=True)
class Shift:
    """One split of the states, for :func:`centrality_map`.

    Attributes
    ----------
    title : over the map.
    centrality : a number (centrality or prior weight) for every training state.
    train, test : state codes.
    hops : how many borders a test state is away from the training states; may be empty.
    """

    title: str
    centrality: Mapping[str, float]
    train: Sequence[str]
    test: Sequence[str]
    hops: Mapping[str, int] = field(default_factory=dict)


@charts.drawn
def centrality_map(*shifts: Shift, label: str = "centrality") -> Figure:
    """Training states by their centrality, test states in grey by distance: where the shift is crossed, and to where.

    One panel per split, all on one colour scale; ``label`` says what the colours are.
    """
    if not shifts:
        raise SettingError("a centrality map needs at least one split; found none. Pass Shift(...) for each.")
    for shift in shifts:
        require_same(shift.centrality, shift.train, f"centralities of {shift.title!r}", "training states")
        both = sorted(set(shift.train) & set(shift.test))
        if both:
            raise GroupMismatchError(f"states of {shift.title!r} in both train and test: {listed(both)}.")
    classes = sorted({shift.hops[code] for shift in shifts for code in shift.test if code in shift.hops})
    patches = [
        (_hop_fill(hop), hop_title(str(hop)) if i else f"test states: {hop_title(str(hop))}")
        for i, hop in enumerate(classes)
    ]
    if any(code not in shift.hops for shift in shifts for code in shift.test):
        patches.append((_hop_fill(None), "test states" if not classes else "distance unknown"))
    return _state_maps(
        {shift.title: shift.centrality for shift in shifts},
        [{code: _hop_fill(shift.hops.get(code)) for code in shift.test} for shift in shifts],
        CENTRALITY_COLORS,
        f"{label} of training states",
        patches,
    )


@charts.drawn
def error_map(errors: Mapping[str, Mapping[str, float]], train: Sequence[str], *, label: str = "test MSE") -> Figure:
    """Error in every test state (title to error by state): a map per method on one colour scale.

    The states in ``train`` are grey; ``label`` says what the colours are.
    """
    if not errors:
        raise SettingError("an error map needs at least one method; found none. Pass {title: {state: error}}.")
    for title, by_state in errors.items():
        both = sorted(set(by_state) & set(train))
        if both:
            raise GroupMismatchError(f"test errors of {title!r} for training states: {listed(both)}. Leave them out.")
        if not by_state:
            raise DataError(f"no test errors for {title!r}: expected {{state: error}}. Leave the method out.")
    gaps = any(len({*train, *by_state}) < len(load_outlines().rings) for by_state in errors.values())
    patches = [(TRAIN_FILL, "training states")] * bool(train) + [(MISSING, "no value")] * gaps
    means = {title: short_number(math.fsum(by.values()) / len(by)) for title, by in errors.items()}
    return _state_maps(
        {f"{title}  ·  mean {means[title]}": by_state for title, by_state in errors.items()},
        [dict.fromkeys(train, TRAIN_FILL)] * len(errors),
        ERROR_COLORS,
        label,
        patches,
    )


def _state_maps(
    values: Mapping[str, Mapping[str, float]],
    fills: Sequence[Mapping[str, str]],
    colors: Colormap,
    label: str,
    patches: Sequence[tuple[str, str]],
) -> Figure:
    """Maps by their titles on one colour scale, states with a value outlined; below, the scale and the fills."""
    everything = [value for by_state in values.values() for value in by_state.values()]
    norm = charts.color_scale(everything)
    figure, axes, below = _map_panels(list(values))
    for ax, by_state, plain in zip(axes, values.values(), fills, strict=True):
        colored = draw_states(
            ax, by_state, cmap=colors, norm=norm, fills=plain, outlined=list(by_state),
            label_size=7.0 if len(values) == 1 else 5.6,
        )  # fmt: skip
    high = figure.get_figheight()
    clipped = isinstance(norm, LogNorm) and norm.vmin is not None and min(everything) < norm.vmin * (1 - 1e-9)
    place = figure.add_axes((0.35 / WIDE, 0.25 / high, 3.5 / WIDE, 0.11 / high))
    charts.color_bar(figure, colored, "", across=True, cax=place, extend="min" if clipped else "neither")
    label += ", log scale" * isinstance(norm, LogNorm) + "; less, or zero, at the arrow" * clipped
    figure.text(0.35 / WIDE, 0.4 / high, label, size=8.5, va="bottom")
    handles = [Patch(facecolor=color, edgecolor="#9ca3af", lw=0.5, label=text) for color, text in patches]
    if handles:
        below.legend(handles=handles, loc="center right", ncols=len(handles), fontsize=8, handlelength=1.5,
                     handleheight=1.1, columnspacing=1.2, bbox_to_anchor=(1 - 0.2 / WIDE, 0.62))  # fmt: skip
    return figure


def _map_panels(titles: Sequence[str]) -> tuple[Figure, list[Axes], Axes]:
    """Maps in one or two columns, an incomplete last row in the middle; below them room for the key."""
    columns = 1 if len(titles) == 1 else 2
    rows = -(-len(titles) // columns)
    wide = 7.0 if columns == 1 else WIDE / 2 - 0.08
    high = wide * (FRAME[3] - FRAME[2]) / (FRAME[1] - FRAME[0])
    head, foot = 0.28, 0.56
    total = rows * (high + head) + foot
    figure = Figure(figsize=(WIDE, total))
    axes = []
    for i, title in enumerate(titles):
        row, column = divmod(i, columns)
        in_row = min(columns, len(titles) - row * columns)
        left = (WIDE - in_row * wide) / (in_row + 1) * (column + 1) + column * wide
        bottom = total - (row + 1) * (high + head)
        ax = figure.add_axes((left / WIDE, bottom / total, wide / WIDE, high / total))
        ax.set_title(title, pad=4, fontsize=10 if len(title) <= 48 else 8)
        axes.append(ax)
    below = figure.add_axes((0.0, 0.0, 1.0, foot / total))
    below.set_axis_off()
    return figure, axes, below


def _hop_fill(hop: int | None) -> str:
    return HOP_FILLS[1] if hop is None else HOP_FILLS[min(max(hop, 1), len(HOP_FILLS)) - 1]


@charts.drawn
def learned_on_map(
    learned: Mapping[str, tuple[GroupGraph, Mapping[Any, float]]], given: GroupGraph, *, label: str = "prior weight"
) -> Figure:
    """Edges of learned graphs (title to graph and a weight for each of its states) where the states lie.

    Edges that are in the given graph, common borders, are dark; the others are in a colour of their own. ``label``
    says what the weights are.
    """
    if not learned:
        raise SettingError(
            "a map of learned topologies needs at least one; found none. Pass {title: (graph, weights)}."
        )
    states = load_outlines()
    norm = Normalize(0.0, max(float(value) for _, weights in learned.values() for value in weights.values()))
    corners = {title: states.corners(map(str, graph.names)) for title, (graph, _) in learned.items()}
    tall = max(float(np.divide(*(east_north - west_south)[::-1])) for west_south, east_north in corners.values())
    figure, axes = charts.canvas(0.6 + min(WIDTH * tall, 4.6), len(learned))
    for ax, (title, (graph, weights)) in zip(axes, learned.items(), strict=True):
        borders = {frozenset(edge) for edge in given.subgraph(graph.names).edges}
        kept = [edge for edge in graph.edges if frozenset(edge) in borders]
        land = [states.path(str(name)) for name in graph.names]
        ax.add_collection(PathCollection(land, facecolors=MISSING, edgecolors=BORDER, linewidths=0.8, zorder=1))
        (west, south), (east, north) = corners[title]
        _show(ax, (west - 12, east + 12, south - 12, north + 12))
        for edges, color in (([e for e in graph.edges if e not in kept], TEST_COLOR), (kept, FIRM_COLOR)):
            lines = [[states.labels[str(a)], states.labels[str(b)]] for a, b in edges]
            ax.add_collection(LineCollection(lines, colors=color, linewidths=1.0, alpha=0.8, zorder=2))
        for name in sorted(weights, key=str):
            fill, at = CENTRALITY_COLORS(norm(float(weights[name]))), states.labels[str(name)]
            ax.plot(*at, marker="o", ms=DISC, mfc=fill, mec=BORDER, mew=0.8, zorder=3)
            ax.text(*at, str(name), size=6, color=charts.readable(fill), ha="center", va="center", zorder=4)
        add_hits(ax, {name: states.labels[str(name)] for name in weights}, dict.fromkeys(weights, DISC / 2))
        ax.set_title(f"{title}: {len(graph.edges)} edges, {len(kept)} of the {len(borders)} borders")
    colors = ScalarMappable(norm, CENTRALITY_COLORS)
    charts.color_bar(figure, colors, label, across=True, ax=axes, shrink=0.8, aspect=40)
    solid = {"ls": "-", "lw": 1.2}
    handles = [charts.stroke("learned, and a border", color=FIRM_COLOR, **solid),
               charts.stroke("learned, no border", color=TEST_COLOR, **solid)]  # fmt: skip
    charts.key(figure, handles)
    return figure


# ---------------------------------------------------------------- the globe


def frame_of(positions: Collection[Point]) -> Frame:
    """West, east, south and north of a map of these places, with room around them, within the globe."""
    if not positions:
        raise SettingError("a map needs at least one place; found none.")
    for lon, lat in positions:
        if not (math.isfinite(lon) and math.isfinite(lat) and abs(lon) <= 180 and abs(lat) <= 90):
            raise DataError(f"a place at ({lon}, {lat}): expected a longitude from −180 to 180, a latitude to ±90.")
    ends: list[float] = []
    for values, around, least, low, high in (
        ([lon for lon, _ in positions], AROUND[0], ACROSS, GLOBE[0], GLOBE[1]),
        ([lat for _, lat in positions], AROUND[1], UP, GLOBE[2], GLOBE[3]),
    ):
        start, end = min(values) - around, max(values) + around
        lacking = max(0.0, least - (end - start)) / 2
        ends += [max(low, start - lacking), min(high, end + lacking)]
    return ends[0], ends[1], ends[2], ends[3]


def draw_land(ax: Axes, frame: Frame = GLOBE) -> None:
    """Land, sea and a net of degrees on ``ax``, which then shows the frame and nothing else."""
    west, east, south, north = frame
    corners = Path([(west, south), (east, south), (east, north), (west, north), (west, south)], closed=True)
    ax.add_collection(PathCollection([corners], facecolors=SEA, linewidths=0.0, zorder=0.1), autolim=False)
    step = 30 if east - west > 120 else 10
    ax.vlines(np.arange(-180, 181, step), south, north, color=LINES, lw=0.6, zorder=0.2)
    ax.hlines(np.arange(-90, 91, step), west, east, color=LINES, lw=0.6, zorder=0.2)
    seen = [path for path in load_land() if path.get_extents().overlaps(corners.get_extents())]
    land = PathCollection(seen, facecolors=LAND, edgecolors=COAST, linewidths=0.4, zorder=0.3)
    ax.add_collection(land, autolim=False)
    _show(ax, frame)


@charts.drawn
def event_map(
    learned: TopologyRuns | None,
    positions: Mapping[Name, Point],
    train: Collection[Name],
    test: Collection[Name],
    *,
    what: str = "event",
) -> Figure:
    """Where the groups lie: training groups sized by centrality, with the edges that were learned; test groups square.

    Groups without a position are left out. ``what`` is what a group is called.
    """
    shown = [name for name in (*train, *test) if name in positions]
    at = {name: positions[name] for name in shown}
    frame = frame_of(list(at.values()))
    sizes = {name: value for name, value in learned.centrality.items() if name in at} if learned else {}
    figure, (ax,) = charts.canvas(min(WIDTH * (frame[3] - frame[2]) / (frame[1] - frame[0]) + 0.8, 6.5))
    draw_land(ax, frame)
    edges = [edge for edge in (learned.counts if learned else ()) if edge[0] in at and edge[1] in at]
    draw_graph(
        GroupGraph(shown, dict.fromkeys(edges, 1.0), positions=at),
        ax,
        train=[name for name in train if name in at],
        test=[name for name in test if name in at],
        sizes=sizes,
    )
    legend = ax.get_legend()
    if legend is not None:
        legend.remove()
    handles = [
        charts.mark(f"training {what}s, area by centrality", "o", ms=7, color=TRAIN_COLOR),
        charts.mark(f"held-out {what}", "s", ms=7, color=TEST_COLOR),
    ]
    if learned:
        handles += draw_counted_edges(ax, at, learned)
    charts.key(figure, handles)
    return figure
