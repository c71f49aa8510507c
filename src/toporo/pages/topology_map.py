"""A learned topology on the map of the states, where the borders are the given one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from toporo.errors import SettingError
from toporo.pages.figures import STYLE
from toporo.pages.regression import CENTRALITY_COLORS
from toporo.pages.us_map import load_outlines
from toporo.topology.draw import TEST_COLOR
from toporo.topology.graph import GroupGraph

Edge = tuple[Any, Any]

BORDER_EDGE, LAND = "#374151", "#eef0f2"
#: Diameter of a state's disc in points: two letters fit in, and discs of small neighbours just about beside each other.
DISC = 13.0


def learned_on_map(
    learned: Mapping[str, tuple[GroupGraph, Mapping[Any, float]]], given: GroupGraph, *, label: str = "prior weight"
) -> Figure:
    """Edges of learned graphs (title to graph and a weight for each of its states) where the states lie.

    Edges that are in the given graph, common borders, are dark; the others are in a colour of their own.
    """
    if not learned:
        raise SettingError(
            "a map of learned topologies needs at least one; found none. Pass {title: (graph, weights)}."
        )
    norm = Normalize(0.0, max(float(value) for _, weights in learned.values() for value in weights.values()))
    tall = max(_height(graph.names) for graph, _ in learned.values())
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 1.2 + min(9.2 / len(learned) * tall, 4.6)), layout="constrained")
        axes = figure.subplots(1, len(learned), squeeze=False)[0]
        for ax, (title, (graph, weights)) in zip(axes, learned.items(), strict=True):
            borders = {frozenset(edge) for edge in given.subgraph(graph.names).edges}
            kept = [edge for edge in graph.edges if frozenset(edge) in borders]
            _land(ax, [str(name) for name in graph.names])
            _lines(ax, [edge for edge in graph.edges if frozenset(edge) not in borders], TEST_COLOR)
            _lines(ax, kept, BORDER_EDGE)
            _discs(ax, weights, norm)
            ax.set_title(f"{title}: {len(graph.edges)} edges, {len(kept)} of the {len(borders)} borders")
        bar = figure.colorbar(
            ScalarMappable(norm, CENTRALITY_COLORS), ax=list(axes), orientation="horizontal", shrink=0.35, aspect=40,
            pad=0.02,
        )  # fmt: skip
        bar.set_label(label)
        bar.outline.set_visible(False)
        handles = [
            Line2D([], [], color=BORDER_EDGE, lw=1.2, label="learned, and a border"),
            Line2D([], [], color=TEST_COLOR, lw=1.2, label="learned, no border"),
        ]
        figure.legend(handles=handles, loc="outside lower right", fontsize=8)
        return figure


def _corners(names: Iterable[Any]) -> tuple[Any, Any]:
    """The south-west and the north-east corner of these states together."""
    outlines = load_outlines()
    points = np.concatenate([polygon for name in names for polygon in outlines.polygons(str(name))])
    return points.min(axis=0), points.max(axis=0)


def _height(names: Iterable[Any]) -> float:
    """How tall these states are together, relative to their width."""
    (west, south), (east, north) = _corners(names)
    return float((north - south) / (east - west))


def _land(ax: Axes, codes: Sequence[str]) -> None:
    """The states as a pale ground, and nothing of the others."""
    outlines = load_outlines()
    pieces = [polygon for code in codes for polygon in outlines.polygons(code)]
    ax.add_collection(PolyCollection(pieces, facecolors=LAND, edgecolors="#ffffff", linewidths=0.8, zorder=1))
    (west, south), (east, north) = _corners(codes)
    ax.set_xlim(west - 12, east + 12)
    ax.set_ylim(south - 12, north + 12)
    ax.set_aspect("equal")
    ax.set_axis_off()


def _lines(ax: Axes, edges: Iterable[Edge], color: str) -> None:
    at = load_outlines().labels
    lines = [[at[str(a)], at[str(b)]] for a, b in edges]
    ax.add_collection(LineCollection(lines, colors=color, linewidths=1.0, alpha=0.8, zorder=2))


def _discs(ax: Axes, weights: Mapping[Any, float], norm: Normalize) -> None:
    at = load_outlines().labels
    for name in sorted(weights, key=str):
        fill = CENTRALITY_COLORS(norm(float(weights[name])))
        dark = np.dot(fill[:3], (0.299, 0.587, 0.114)) < 0.5
        ax.plot(*at[str(name)], marker="o", ms=DISC, mfc=fill, mec="#ffffff", mew=0.8, zorder=3)
        ax.text(
            *at[str(name)], str(name), size=6, color="#ffffff" if dark else "#111827", ha="center", va="center",
            zorder=4,
        )  # fmt: skip
