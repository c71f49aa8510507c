"""Drawing a group graph."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toporo.groups import plain_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toporo.topology.graph import GroupGraph

__all__ = ["TEST_COLOR", "TRAIN_COLOR", "draw_graph", "layout"]

TRAIN_COLOR = "#2563a8"
TEST_COLOR = "#d97706"
OTHER_COLOR = "#8a8f98"
LABEL_LIMIT = 60


def draw_graph(
    graph: GroupGraph,
    ax: Axes | None = None,
    *,
    train: Iterable[Hashable] | None = None,
    test: Iterable[Hashable] | None = None,
    sizes: Mapping[Any, float] | None = None,
    labels: bool | None = None,
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
    show = labels if labels is not None else len(graph) <= LABEL_LIMIT
    at = layout(graph)
    drawn = graph.to_networkx()
    nx.draw_networkx_edges(drawn, at, ax=ax, edge_color="#9aa1ab", width=0.8, alpha=0.6)
    base = 160.0 if len(graph) <= 20 else 70.0
    others = "other groups" if inside or outside else "groups"
    kinds = (
        ("training groups", TRAIN_COLOR, "o", [name for name in graph.names if name in inside]),
        ("test groups", TEST_COLOR, "s", [name for name in graph.names if name in outside]),
        (others, OTHER_COLOR, "o", [name for name in graph.names if name not in inside | outside]),
    )
    for title, color, shape, names in kinds:
        if not names:
            continue
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
    if show:
        nx.draw_networkx_labels(
            drawn, at, ax=ax, font_size=7, font_color="white", labels={n: str(n) for n in graph.names}
        )
    if inside or outside:
        legend = ax.legend(frameon=False, fontsize=8, loc="best")
        for handle in legend.legend_handles:
            if handle is not None and hasattr(handle, "set_sizes"):
                handle.set_sizes([60.0])
    ax.set_axis_off()
    return ax


def layout(graph: GroupGraph) -> dict[Hashable, Any]:
    """Positions of the groups: the graph's own where it has them, else a layout that is the same at every call."""
    import networkx as nx

    if graph.positions and all(name in graph.positions for name in graph.names):
        return dict(graph.positions)
    drawn = graph.to_networkx()
    if nx.is_connected(drawn) and len(graph) <= 200:
        return dict(nx.kamada_kawai_layout(drawn, weight=None))
    return dict(nx.spring_layout(drawn, seed=0))
