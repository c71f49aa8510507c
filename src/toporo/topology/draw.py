"""Drawings of group graphs, one for plots and pages: where groups stand, and how nodes, edges and names look."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from toporo.text import printable, short_name
from toporo.topology.graph import GroupGraph
from toporo.topology.states import STATES
from toporo.types import Array, Name

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

Point: TypeAlias = tuple[float, float]

TRAIN_COLOR, TEST_COLOR, OTHER_COLOR = "#2563a8", "#d97706", "#8a8f98"
EDGE_COLOR, FIRM_COLOR = "#9aa1ab", "#1f2937"
#: Legend of edges that a share of the resamples keeps.
SHARES = {1.0: "in all resamples", 0.5: "in half of them", 0.0: "in none"}
#: Columns that a name takes at most.
NAME_COLUMNS = 24
#: Connected groups whose distances are all drawn as well as possible; more are only kept apart.
EXACT = 200
#: Fewest groups that are taken for states if all are called like states.
FEWEST_STATES = 3


def mark_group(artist: Artist, name: object) -> None:
    """Give an artist the id of a group, ``<g id="group:NAME">`` in an SVG: pages highlight all artists of a group."""
    artist.set_gid(f"group:{printable(str(name))}")


def draw_graph(
    graph: GroupGraph,
    ax: Axes | None = None,
    *,
    train: Iterable[Name] | None = None,
    test: Iterable[Name] | None = None,
    sizes: Mapping[Any, float] | None = None,
) -> Axes:
    """Draw a graph with training groups as circles and test groups as squares, in two colors, and the names that fit.

    Parameters
    ----------
    graph, ax : the graph, and the axes; new ones if not given.
    train, test : groups by color.
    sizes : by group, e.g. a centrality; the area of a node grows with it.
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    if ax is None:
        _, ax = plt.subplots(figsize=(6, 5), layout="constrained")
    inside = graph.require(train or (), what="training group(s)")
    outside = graph.require(test or (), what="test group(s)")
    graph.require(sizes or (), what="sized group(s)")
    kinds = {"training groups": (inside, TRAIN_COLOR, "o"), "test groups": (outside, TEST_COLOR, "s")}
    colors = {name: color for names, color, _ in kinds.values() for name in names}
    kinds["other groups"] = ([name for name in graph.names if colors and name not in colors], OTHER_COLOR, "o")
    draw_nodes(graph, ax, layout(graph), colors, squares=outside, sizes=sizes)
    handles = [
        Line2D([], [], ls="", marker=marker, ms=7, mec="white", color=color, label=title)
        for title, (names, color, marker) in kinds.items()
        if names
    ]
    handles += edge_handles(graph)
    if handles:  # below the axes, where no node is
        options: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "frameon": False, "fontsize": 8}
        legend = ax.legend(handles=handles, ncols=3, **options)
        legend.set_clip_on(False)  # or no room would be made for it
    return ax


def draw_nodes(
    graph: GroupGraph,
    ax: Axes,
    at: Mapping[Name, Point],
    colors: Mapping[Name, str],
    *,
    squares: Collection[object] = (),
    sizes: Mapping[Any, float] | None = None,
    labels: bool = True,
    scale: float = 1.0,
) -> None:
    """Draw edges by the share of resamples that keep them, groups in their colors, and the names that fit.

    Parameters
    ----------
    graph, ax : the graph, and the axes, which then show it and nothing else.
    at : places of the groups, from :func:`layout`.
    colors : by group; those without one are grey.
    squares : groups drawn as squares.
    sizes : by group; the area of a node grows with it. All are the same unless given.
    labels : whether names are written.
    scale : multiplies the area of all nodes.
    """
    from matplotlib.collections import LineCollection

    from toporo.topology.labels import NodeNames

    shares = graph.stability or {}
    if known_places(graph) and ax.get_autoscale_on() and ax.get_aspect() == "auto":  # a map has one scale
        ax.set_aspect("equal", adjustable="datalim")
    pairs = sorted(graph.edges, key=lambda pair: shares.get(pair, 0.0))  # firm ones on top
    looks = [edge_look(shares.get(pair) if shares else None) for pair in pairs]
    edges = LineCollection(
        [(at[a], at[b]) for a, b in pairs],
        colors=[(look["color"], look["alpha"]) for look in looks],
        linewidths=[look["lw"] for look in looks],
        zorder=1,
    )
    ax.add_collection(edges)
    squares, sizes = set(squares), sizes or {}
    base = scale * (240.0 if len(graph) <= 20 else 110.0 if len(graph) <= 80 else 60.0)
    largest = max(sizes.values(), default=0.0)
    areas = {name: base * (0.3 + 2.7 * sizes.get(name, 0.0) / largest if largest else 0.6) for name in graph.names}
    widths = {name: round(math.sqrt(area), 1) for name, area in areas.items()}
    order = sorted(graph.names, key=lambda name: (-widths[name], -len(graph.neighbors(name))))
    for name in order:  # small nodes on top of large ones
        marker, rim, width = ("s", TEST_COLOR, 1.5) if name in squares else ("o", "#374151", 0.6)
        fill = colors.get(name, OTHER_COLOR)
        (node,) = ax.plot(*at[name], marker, ms=widths[name], mfc=fill, mec=rim, mew=width, zorder=2, clip_on=False)
        mark_group(node, name)
        node.set_in_layout(False)
    if labels:
        NodeNames(ax, ((short_name(name, NAME_COLUMNS), at[name], widths[name] / 2) for name in order))
    ax.margins(0.16 if labels else 0.1, 0.1)
    ax.set_axis_off()


def edge_look(kept: float | None) -> dict[str, Any]:
    """Return the style of an edge that a share of the resamples keeps; None without resamples."""
    if kept is None:
        return {"color": EDGE_COLOR, "lw": 0.8, "alpha": 0.65}
    return {"color": FIRM_COLOR, "lw": 0.8 + 1.6 * kept, "alpha": 0.35 + 0.65 * kept}


def edge_handles(graph: GroupGraph) -> list[Line2D]:
    """Return the entries of a legend for edges that differ by the resamples that keep them; empty if none do."""
    from matplotlib.lines import Line2D

    return [Line2D([], [], label=label, **edge_look(share)) for share, label in SHARES.items() if graph.stability]


# ---------------------------------------------------------------- layout


def known_places(graph: GroupGraph) -> dict[Name, Point]:
    """Return the graph's own positions, which some groups may lack, or those of states if all groups are states.

    States are known by postal code or name. Empty if no place is known.
    """
    states = {word: (x, y) for code, (name, x, y) in STATES.items() for word in (code, name)}
    if graph.positions or len(graph) < FEWEST_STATES or not states.keys() >= set(graph.names):
        return dict(graph.positions or {})
    return {name: states[str(name)] for name in graph.names}


def layout(graph: GroupGraph) -> dict[Name, Point]:
    """Return a place for each group, the same at every call.

    Groups with a place (:func:`known_places`) stand there, north up; the others at the mean of their neighbours that
    have one, or below. Without places, near groups stand near each other, and components apart.
    """
    known = known_places(graph)
    at = _completed(graph, known) if known else _spread(graph)
    return {name: (float(at[name][0]), float(at[name][1])) for name in graph.names}


def _completed(graph: GroupGraph, known: Mapping[Name, Point]) -> dict[Name, Array]:
    """Place the groups without a known place."""
    at = {name: np.array(point) for name, point in known.items()}
    corner, span = np.min(list(at.values()), axis=0), float(np.ptp(list(at.values()), axis=0).max()) or 1e-9
    for number, name in enumerate(name for name in graph.names if name not in known):
        beside = [at[other] for other in graph.neighbors(name) if other in at] or [corner - [0.0, 0.15 * span]]
        aside = np.array([math.cos(2.4 * number), math.sin(2.4 * number)])  # one neighbour's place is taken
        at[name] = np.mean(beside, axis=0) + 0.05 * span * aside
    return at


def _spread(graph: GroupGraph) -> dict[Name, Array]:
    """Lay out a graph without places, wider than tall, nearest groups about 1 apart."""
    import networkx as nx

    drawn = graph.to_networkx()
    if len(graph) <= EXACT:
        hops = dict(nx.all_pairs_shortest_path_length(drawn))
        apart = 1.0 + 0.6 * max(max(row.values()) for row in hops.values())  # between groups that no path joins
        distances = {a: {b: hops[a].get(b, apart) for b in drawn} for a in drawn}
        at = nx.kamada_kawai_layout(drawn, dist=distances)
    else:
        at = nx.spring_layout(drawn, seed=0)
    points: Array = np.array(list(at.values()), dtype=np.float64)
    points = points - points.mean(axis=0)
    if len(points) > 1:
        points = points @ np.linalg.svd(points, full_matrices=False)[2].T
        gaps = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
        np.fill_diagonal(gaps, np.inf)
        points = points / (float(gaps.min(axis=1).mean()) or 1.0)
    return dict(zip(at, points, strict=True))
