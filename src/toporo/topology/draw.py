"""Drawings of group graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from toporo.groups import plain_name
from toporo.text import printable, short_name
from toporo.topology.graph import GroupGraph
from toporo.topology.states import state_places
from toporo.types import Array, Name

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Point: TypeAlias = tuple[float, float]

TRAIN_COLOR = "#2563a8"
TEST_COLOR = "#d97706"
OTHER_COLOR = "#8a8f98"
EDGE_COLOR, FIRM_COLOR = "#9aa1ab", "#1f2937"
#: Names on white and on light nodes are dark, on dark nodes white: a contrast of at least 4.5 to 1. Pages in dark mode
#: swap the greys, also ``DARK``, but keep the colour of names on light nodes.
DARK = "#111827"
LABEL_COLORS = {TRAIN_COLOR: "white", TEST_COLOR: "#0b0f14", OTHER_COLOR: "#0b0f14"}
#: Size of names in points.
LABEL_SIZE = 7.5
#: Connected groups whose distances are all drawn as well as possible; more are only kept apart.
EXACT = 200
#: Width of a drawing of several components, for a height of 1.
BREADTH = 1.5


def mark_group(artist: Artist, name: object) -> None:
    """Give an artist the id of a group, ``<g id="group:NAME">`` in an SVG: pages highlight all artists of a group."""
    artist.set_gid(f"group:{printable(str(name))}")


def add_hits(ax: Axes, at: Mapping[Any, Any], reach: Mapping[Any, float]) -> None:
    """Add an invisible circle per group that reacts to the mouse, a little larger than its node.

    Parameters
    ----------
    ax : the axes.
    at : places of the groups.
    reach : radius of each group's node in points.
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
    """Draw a graph: train and test groups in two colors, edges by the share of resamples that keep them.

    Groups stand at their positions; states of the USA, by code or name, where they lie on a map. Names are written
    where there is room, the largest groups' first.

    Parameters
    ----------
    graph, ax : the graph, and the axes; new ones if not given.
    train, test : groups by color.
    sizes : by group, e.g. a centrality; the area of a node grows with it.
    labels : whether names are written.
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    from toporo.topology.labels import NodeNames

    if ax is None:
        _, ax = plt.subplots(figsize=(6, 5), layout="constrained")
    inside = graph.require(train or (), what="training group(s)")
    outside = graph.require(test or (), what="test group(s)")
    others = [name for name in graph.names if name not in {*inside, *outside}]
    given = {plain_name(name): float(value) for name, value in (sizes or {}).items()}
    graph.require(given, what="sized group(s)")
    base = 200.0 if len(graph) <= 20 else 70.0 if len(graph) <= 80 else 30.0
    largest = max(given.values(), default=0.0) or 1.0
    areas = {name: base * (1.0 + 4.0 * given.get(name, 0.0) / largest) for name in graph.names}
    at = layout(graph)
    if known_places(graph):
        as_map(ax)
    edges = _draw_edges(graph, at, ax)
    kinds: list[Artist] = []
    colors: dict[Name, str] = {}
    for title, color, marker, members in (
        ("training groups", TRAIN_COLOR, "o", inside),
        ("test groups", TEST_COLOR, "s", outside),
        ("other groups" if inside or outside else "groups", OTHER_COLOR, "o", others),
    ):
        if members:
            names = sorted(members, key=lambda name: -areas[name])  # small nodes on top of large ones
            x, y = zip(*(at[name] for name in names), strict=True)
            style: dict[str, Any] = {"marker": marker, "edgecolors": "white", "linewidths": 0.8, "zorder": 2}
            ax.scatter(x, y, [areas[name] for name in names], color, label=title, **style)
            colors |= dict.fromkeys(names, LABEL_COLORS[color])
            kinds.append(Line2D([], [], ls="", marker=marker, ms=7, mec="white", color=color, label=title))
    reach = {name: area**0.5 / 2 for name, area in areas.items()}
    if labels:
        order = sorted(graph.names, key=lambda name: (-areas[name], -len(graph.neighbors(name))))
        texts = {name: short_name(name) for name in order}
        NodeNames(ax, at, reach, texts, graph.edges, size=LABEL_SIZE, on=colors)
    add_hits(ax, at, reach)
    _add_legend(ax, [row for row in (kinds if inside or outside else [], edges) if row])
    ax.set_axis_off()
    return ax


def as_map(ax: Axes) -> None:
    """Use the same scale in both directions, unless the axes have limits of their own."""
    if ax.get_autoscale_on() and ax.get_aspect() == "auto":
        ax.set_aspect("equal", adjustable="datalim")


def _add_legend(ax: Axes, rows: list[list[Artist]]) -> None:
    """Add a legend of rows of handles below the axes, where no node is."""
    from matplotlib.lines import Line2D

    if rows:
        blank = Line2D([], [], ls="", label=" ")
        handles = [handle for column in zip_longest(*rows, fillvalue=blank) for handle in column]
        legend = ax.legend(
            handles=handles,
            ncols=max(map(len, rows)),
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            frameon=False,
            fontsize=8,
        )
        legend.set_clip_on(False)  # or no room would be made for it


def _draw_edges(graph: GroupGraph, at: Mapping[Name, Point], ax: Axes) -> list[Artist]:
    """Draw edges, thicker and darker the more resamples keep them; return the handles of a legend of that."""
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    shares = graph.stability or {}
    pairs = sorted(graph.edges, key=lambda pair: shares.get(pair, 0.0))  # firm ones on top
    styles = [_edge_style(shares[pair]) if shares else (0.8, 0.6) for pair in pairs]
    color = FIRM_COLOR if shares else EDGE_COLOR
    colors, widths = [(color, opacity) for _, opacity in styles], [width for width, _ in styles]
    ax.add_collection(LineCollection([(at[a], at[b]) for a, b in pairs], colors=colors, linewidths=widths))
    handles: list[Artist] = []
    for share, label in ((1.0, "in all resamples"), (0.5, "in half of them"), (0.0, "in none")):
        width, opacity = _edge_style(share)
        handles.append(Line2D([], [], color=color, lw=width, alpha=opacity, label=label))
    return handles if shares else []


def _edge_style(kept: float) -> tuple[float, float]:
    """Width and opacity of an edge that this share of resamples keeps."""
    return 0.8 + 1.6 * kept, 0.35 + 0.65 * kept


# ---------------------------------------------------------------- layout


def known_places(graph: GroupGraph) -> dict[Name, Point]:
    """Return the graph's own positions, or those of the states that all or most groups are named after.

    Empty if neither is known; a few groups may be without a place.
    """
    return dict(graph.positions) if graph.positions else state_places(graph.names)


def layout(graph: GroupGraph) -> dict[Name, Point]:
    """Return a place for each group, the same at every call.

    Groups with a place (:func:`known_places`) stand there, north up; the few without one at the mean of their
    neighbours, or below. Without places, near groups stand near each other, and components side by side.
    """
    known = known_places(graph)
    at = _completed(graph, known) if known else _packed(graph)
    return {name: at[name] for name in graph.names}


def _completed(graph: GroupGraph, known: Mapping[Name, Point]) -> dict[Name, Point]:
    """Place the groups without a known place, those with most placed neighbours first."""
    at = dict(known)
    points = np.array(list(known.values()))
    (left, bottom), span = points.min(axis=0), max(float(np.ptp(points, axis=0).max()), 1e-9)
    missing = [name for name in graph.names if name not in at]
    for number in range(len(missing)):
        placed = {name: [at[other] for other in graph.neighbors(name) if other in at] for name in missing}
        name = max(missing, key=lambda name: len(placed[name]))
        missing.remove(name)
        if placed[name]:  # a little aside: the mean of one neighbour is that neighbour
            x, y = np.mean(placed[name], axis=0) + 0.05 * span * np.array(
                [math.cos(2.4 * number), math.sin(2.4 * number)]
            )
        else:
            x, y = left + 0.08 * span * number, bottom - 0.12 * span
        at[name] = (float(x), float(y))
    return at


def _packed(graph: GroupGraph) -> dict[Name, Point]:
    """Lay out each component by itself, and pack them in rows; one unit is about the distance of two groups."""
    components = [_component(graph.subgraph(names)) for names in graph.components()]
    components.sort(key=lambda places: -float(np.ptp(list(places.values()), axis=0)[1]))
    sizes = [np.ptp(list(places.values()), axis=0) + 1.0 for places in components]
    breadth = max(max(size[0] for size in sizes), math.sqrt(BREADTH * sum(size.prod() for size in sizes)))
    at: dict[Name, Point] = {}
    x = y = height = 0.0
    for places, (width, tall) in zip(components, sizes, strict=True):
        if x > 0 and x + width > breadth + 1e-9:
            x, y, height = 0.0, y - height, 0.0
        height = max(height, tall)
        corner = np.min(list(places.values()), axis=0) - 0.5
        at |= {
            name: (float(x + px - corner[0]), float(y - (height + tall) / 2 + py - corner[1]))
            for name, (px, py) in places.items()
        }
        x += width
    return at


def _component(graph: GroupGraph) -> dict[Name, Point]:
    """Lay out a connected graph, wider than tall, with nearest groups at a distance of about 1."""
    import networkx as nx

    drawn = graph.to_networkx()
    at = nx.kamada_kawai_layout(drawn, weight=None) if len(graph) <= EXACT else nx.spring_layout(drawn, seed=0)
    points: Array = np.array(list(at.values()), dtype=np.float64)
    points = points - points.mean(axis=0)
    if len(points) > 1:
        points = points @ np.linalg.svd(points, full_matrices=False)[2].T
        apart = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
        np.fill_diagonal(apart, np.inf)
        points = points / (float(apart.min(axis=1).mean()) or 1.0)
    return {name: (float(x), float(y)) for name, (x, y) in zip(at, points, strict=True)}
