"""Drawing a group graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from toporo.groups import plain_name
from toporo.text import printable
from toporo.topology.graph import GroupGraph
from toporo.topology.states import state_places
from toporo.types import Array, Name

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Point = tuple[float, float]
Corner = Literal["upper right", "upper left", "lower left", "lower right"]

TRAIN_COLOR = "#2563a8"
TEST_COLOR = "#d97706"
OTHER_COLOR = "#8a8f98"
EDGE_COLOR, FIRM_COLOR = "#9aa1ab", "#1f2937"
#: Points of names on nodes, and of those beside them.
ON_SIZE, BESIDE_SIZE = 7.0, 8.0
#: Height of a capital, in ems.
CAPITAL = 0.73
#: Letters of a name that are shown.
LONGEST = 30
#: Dark on light nodes, light on dark ones: at least 5 to 1 either way.
LABEL_COLORS = {TRAIN_COLOR: "white"}
DARK = "#111827"
#: Groups of one piece whose distances are all drawn as well as can be; more are only kept apart.
EXACT = 200
#: How wide a drawing of several pieces is, for a height of 1.
BREADTH = 1.5


def group_id(name: object) -> str:
    """What the artists of a group are called in an SVG: ``<g id="group:NAME">``."""
    return f"group:{printable(str(name))}"


def mark_group(artist: Artist, name: object) -> None:
    """Let an artist stand for a group, by its :func:`group_id`: pages light up all that stands for one."""
    artist.set_gid(group_id(name))


def add_hits(ax: Axes, at: Mapping[Any, Any], reach: Mapping[Any, float]) -> None:
    """A circle per group that nobody sees and a mouse meets: on its node, a little larger.

    Parameters
    ----------
    ax : the axes.
    at : where the groups stand.
    reach : from the middle of a group's node to its border, in points.
    """
    from matplotlib.lines import Line2D

    for name, points in sorted(reach.items(), key=lambda item: -item[1]):  # small ones on top
        x, y = at[name]
        size = math.ceil(2 * points + 4)  # whole points: an SVG then holds each size once
        hit = Line2D([x], [y], ls="", marker="o", ms=size, mew=0, color=DARK, alpha=0, zorder=9, clip_on=False)
        mark_group(hit, name)
        hit.set_in_layout(False)
        ax.add_line(hit)


def draw_graph(
    graph: GroupGraph,
    ax: Axes | None = None,
    *,
    train: Iterable[Name] | None = None,
    test: Iterable[Name] | None = None,
    sizes: Mapping[Any, float] | None = None,
    labels: bool = True,
) -> Axes:
    """See :meth:`toporo.GroupGraph.plot`."""
    import matplotlib.pyplot as plt
    import networkx as nx

    if ax is None:
        _, ax = plt.subplots(figsize=(6, 5), layout="constrained")
    inside = set(graph.require(train, what="training group(s)")) if train is not None else set()
    outside = set(graph.require(test, what="test group(s)")) if test is not None else set()
    given = {plain_name(name): float(value) for name, value in (sizes or {}).items()}
    graph.require(given, what="sized group(s)")
    largest = max(given.values(), default=0.0)
    at = layout(graph)
    if known_places(graph):
        as_map(ax)
    drawn = graph.to_networkx()
    _draw_edges(graph, drawn, at, ax)
    base = 200.0 if len(graph) <= 20 else 70.0 if len(graph) <= 80 else 30.0
    others = "other groups" if inside or outside else "groups"
    kinds = (
        ("training groups", TRAIN_COLOR, "o", [name for name in graph.names if name in inside]),
        ("test groups", TEST_COLOR, "s", [name for name in graph.names if name in outside]),
        (others, OTHER_COLOR, "o", [name for name in graph.names if name not in inside | outside]),
    )
    reach: dict[Name, float] = {}  # from the middle of a node to its border, in points
    on: dict[Name, str] = {}  # the colour of a name that stands on its node
    for title, color, shape, names in kinds:
        if not names:
            continue
        names = sorted(names, key=lambda name: -given.get(name, 0.0))  # small nodes on top of large ones
        areas = [base * (1.0 + 4.0 * (given.get(name, 0.0) / largest if largest > 0 else 0.0)) for name in names]
        nx.draw_networkx_nodes(
            drawn,
            at,
            nodelist=names,
            node_size=areas,
            node_color=color,
            node_shape=shape,
            edgecolors="white",
            linewidths=0.8,
            ax=ax,
            label=title,
        )
        reach |= {name: (area**0.5) / 2 for name, area in zip(names, areas, strict=True)}
        on |= dict.fromkeys(names, LABEL_COLORS.get(color, DARK))
    if labels:
        _names(graph, at, ax, reach, on, given)
    add_hits(ax, at, reach)
    if graph.stability:
        _stability_legend(ax)
    if inside or outside:
        legend = ax.legend(frameon=False, fontsize=8, loc=_emptiest_corner(at.values()))
        for handle in legend.legend_handles:
            if handle is not None and hasattr(handle, "set_sizes"):
                handle.set_sizes([60.0])
    ax.set_axis_off()
    return ax


def as_map(ax: Axes) -> None:
    """The same scale across and up, unless the axes have limits of their own."""
    if ax.get_autoscale_on() and ax.get_aspect() == "auto":
        ax.set_aspect("equal", adjustable="datalim")


def _emptiest_corner(places: Iterable[Any]) -> Corner:
    """The corner that nodes keep farthest away from."""
    points = np.array([tuple(place) for place in places], dtype=np.float64).reshape(-1, 2)
    span = np.ptp(points, axis=0)
    points = (points - points.min(axis=0)) / np.where(span > 0, span, 1.0)
    corners: dict[Corner, Point] = {
        "upper right": (1.0, 1.0),
        "upper left": (0.0, 1.0),
        "lower left": (0.0, 0.0),
        "lower right": (1.0, 0.0),
    }
    return max(corners, key=lambda corner: float(np.hypot(*(points - corners[corner]).T).min()))


def _draw_edges(graph: GroupGraph, drawn: Any, at: Mapping[Name, Any], ax: Axes) -> None:
    """Edges alike, or, where it is known, the thicker and darker the more resamples keep them."""
    import networkx as nx

    stability = graph.stability
    if not stability:
        nx.draw_networkx_edges(drawn, at, ax=ax, edge_color=EDGE_COLOR, width=0.8, alpha=0.6)
        return
    pairs = sorted(stability, key=stability.__getitem__)  # firm ones on top
    styles = [_style(stability[pair]) for pair in pairs]
    colors = [(FIRM_COLOR, opacity) for _, opacity in styles]
    nx.draw_networkx_edges(drawn, at, edgelist=pairs, ax=ax, edge_color=colors, width=[width for width, _ in styles])


def _style(kept: float) -> tuple[float, float]:
    """Width and opacity of an edge that this share of resamples keeps."""
    return 0.8 + 1.6 * kept, 0.35 + 0.65 * kept


def _stability_legend(ax: Axes) -> None:
    """Below the axes, where no node is; the legend of the kinds of groups stays ``ax.get_legend()``."""
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

    shares = (1.0, 0.5, 0.0)
    handles = [Line2D([], [], color=FIRM_COLOR, lw=width, alpha=opacity) for width, opacity in map(_style, shares)]
    labels = [f"{100 * kept:.0f} %" for kept in shares]
    legend = Legend(
        ax, handles, labels, title="kept in resamples", ncols=len(shares), frameon=False, fontsize=8, title_fontsize=8,
        loc="upper center", bbox_to_anchor=(0.5, 0.0), borderaxespad=0.2,
    )  # fmt: skip
    ax.add_artist(legend)
    legend.set_clip_on(False)  # or no room would be made for it


def _names(
    graph: GroupGraph,
    at: Mapping[Name, Point],
    ax: Axes,
    reach: Mapping[Name, float],
    on: Mapping[Name, str],
    sizes: Mapping[Name, float],
) -> None:
    """Names on nodes that would hold the widest of them, so that nodes of one size look alike; the others beside."""
    from toporo.topology.labels import NodeNames, widest  # matplotlib, which most calls do without

    order = sorted(graph.names, key=lambda name: (-sizes.get(name, 0.0), -len(graph.neighbors(name))))
    texts = {name: shown_name(name) for name in order}
    needed = abs(complex(ON_SIZE * widest(texts.values()), ON_SIZE * CAPITAL)) / 2
    within = {name: (color, ON_SIZE) for name, color in on.items() if reach[name] - 0.4 >= needed}
    NodeNames(ax, at, reach, texts, graph.edges, size=BESIDE_SIZE, on=within)


def shown_name(name: Name) -> str:
    """A name on one line; one too long to leave room for the graph loses its middle."""
    text = printable(" ".join(str(name).split()))
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2].rstrip()}…{text[1 - LONGEST // 2 :].lstrip()}"


# ---------------------------------------------------------------- where groups stand


def known_places(graph: GroupGraph) -> dict[Name, Point]:
    """Where groups lie: the graph's own positions, else those of the states that all groups, or most, are named after.

    Empty where neither is known; a few groups may be without a place.
    """
    return dict(graph.positions) if graph.positions else state_places(graph.names)


def layout(graph: GroupGraph) -> dict[Name, Point]:
    """Where the groups stand on a drawing, the same at every call.

    Groups with a place (:func:`known_places`) stand there, north up; the few without one at the mean of their
    neighbours, or below. Without places, near groups stand near each other, and pieces side by side.
    """
    known = known_places(graph)
    at = _completed(graph, known) if known else _in_pieces(graph)
    return {name: at[name] for name in graph.names}


def _completed(graph: GroupGraph, known: Mapping[Name, Point]) -> dict[Name, Point]:
    """All places, from those of most."""
    at = dict(known)
    points = np.array(list(known.values()))
    low, span = points.min(axis=0), max(float(np.ptp(points, axis=0).max()), 1e-9)
    left = [name for name in graph.names if name not in at]
    turn = 0
    while left:
        near = {name: [at[other] for other in graph.neighbors(name) if other in at] for name in left}
        placed = [name for name in left if near[name]]
        if not placed:
            break
        for name in placed:  # a little aside: the mean of one neighbour is that neighbour
            turn += 1
            x, y = np.mean(near[name], axis=0)
            at[name] = (x + 0.05 * span * math.cos(2.4 * turn), y + 0.05 * span * math.sin(2.4 * turn))
        left = [name for name in left if name not in at]
    for number, name in enumerate(left):
        at[name] = (float(low[0]) + 0.08 * span * number, float(low[1]) - 0.12 * span)
    return at


def _in_pieces(graph: GroupGraph) -> dict[Name, Point]:
    """Connected pieces, each drawn for itself, in rows; one unit is about the distance of two groups."""
    parts = graph.components()
    if len(parts) == 1:
        return _piece(graph)
    pieces = [_lying(_piece(graph.subgraph(part))) for part in parts]
    order = sorted(pieces, key=lambda piece: -float(np.ptp(list(piece.values()), axis=0)[1]))
    sizes = [np.ptp(list(piece.values()), axis=0) + 1.0 for piece in order]
    widest = max(max(float(size[0]) for size in sizes), math.sqrt(BREADTH * sum(float(size.prod()) for size in sizes)))
    at: dict[Name, Point] = {}
    x = top = high = 0.0
    for piece, (wide, tall) in zip(order, sizes, strict=True):
        if x > 0 and x + wide > widest + 1e-9:
            x, top, high = 0.0, top - high, 0.0
        high = max(high, float(tall))
        low = np.min(list(piece.values()), axis=0)
        for name, (px, py) in piece.items():
            at[name] = (x + px - low[0] + 0.5, top - high / 2 - tall / 2 + 0.5 + py - low[1])
        x += float(wide)
    return at


def _piece(graph: GroupGraph) -> dict[Name, Point]:
    """Where the groups of one piece stand."""
    import networkx as nx

    drawn = graph.to_networkx()
    exact = len(graph) <= EXACT
    at = nx.kamada_kawai_layout(drawn, weight=None) if exact else nx.spring_layout(drawn, seed=0)
    return {name: (float(x), float(y)) for name, (x, y) in at.items()}


def _lying(at: Mapping[Name, Point]) -> dict[Name, Point]:
    """A piece turned so that it is wider than tall, nearest groups at a distance of about 1."""
    points: Array = np.array(list(at.values()))
    if len(points) == 1:
        return dict.fromkeys(at, (0.0, 0.0))
    points = points - points.mean(axis=0)
    points = points @ np.linalg.svd(points, full_matrices=False)[2].T
    apart = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    np.fill_diagonal(apart, np.inf)
    points = points / (float(apart.min(axis=1).mean()) or 1.0)
    return {name: (float(x), float(y)) for name, (x, y) in zip(at, points, strict=True)}
