"""Drawing a group graph."""

from __future__ import annotations

import cmath
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from toporo.groups import plain_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toporo.topology.graph import GroupGraph

__all__ = ["TEST_COLOR", "TRAIN_COLOR", "draw_graph", "layout"]

TRAIN_COLOR = "#2563a8"
TEST_COLOR = "#d97706"
OTHER_COLOR = "#8a8f98"
LABEL_LIMIT = 60
EDGE_COLOR, FIRM_COLOR = "#9aa1ab", "#1f2937"
#: Names up to this long stand on the node, longer ones beside it: below, above, right or left, the first that is best.
SHORT = 3
SIDES: tuple[tuple[complex, Literal["center", "left", "right"], Literal["center", "top", "bottom"]], ...] = (
    (-1j, "center", "top"),
    (1j, "center", "bottom"),
    (1, "left", "center"),
    (-1, "right", "center"),
)
#: Dark on light nodes, light on dark ones: at least 5 to 1 either way.
LABEL_COLORS = {TRAIN_COLOR: "white"}
DARK = "#111827"


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
    _draw_edges(graph, drawn, at, ax)
    base = 160.0 if len(graph) <= 20 else 70.0
    others = "other groups" if inside or outside else "groups"
    kinds = (
        ("training groups", TRAIN_COLOR, "o", [name for name in graph.names if name in inside]),
        ("test groups", TEST_COLOR, "s", [name for name in graph.names if name in outside]),
        (others, OTHER_COLOR, "o", [name for name in graph.names if name not in inside | outside]),
    )
    within = all(len(str(name)) <= SHORT for name in graph.names)
    reach: dict[Hashable, float] = {}  # from the middle of a node to its border, in points
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
        reach |= {name: (area**0.5) / 2 for name, area in zip(names, areas, strict=True)}
        if show and within:
            _on_nodes(names, at, ax, LABEL_COLORS.get(color, DARK))
    if show and not within:
        _beside_nodes(graph, at, ax, reach)
    if graph.stability:
        _stability_legend(ax)
    if inside or outside:
        legend = ax.legend(frameon=False, fontsize=8, loc="best")
        for handle in legend.legend_handles:
            if handle is not None and hasattr(handle, "set_sizes"):
                handle.set_sizes([60.0])
    ax.set_axis_off()
    return ax


def _draw_edges(graph: GroupGraph, drawn: Any, at: Mapping[Hashable, Any], ax: Axes) -> None:
    """Edges alike, or, where it is known, the thicker and darker the more resamples keep them."""
    import networkx as nx

    if not graph.stability:
        nx.draw_networkx_edges(drawn, at, ax=ax, edge_color=EDGE_COLOR, width=0.8, alpha=0.6)
        return
    pairs = sorted(graph.stability, key=graph.stability.__getitem__)  # firm ones on top
    styles = [_style(graph.stability[pair]) for pair in pairs]
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


def _on_nodes(names: Iterable[Hashable], at: Mapping[Hashable, Any], ax: Axes, color: str) -> None:
    for name in names:
        x, y = at[name]
        ax.text(x, y, str(name), size=7, color=color, ha="center", va="center", clip_on=True)


def _beside_nodes(graph: GroupGraph, at: Mapping[Hashable, Any], ax: Axes, reach: Mapping[Hashable, float]) -> None:
    """Names too long for their nodes: on the side farthest from a node's edges, dark with a white rim."""
    from matplotlib.patheffects import withStroke

    ax.margins(0.12)
    places = {name: ax.transData.transform(at[name]) for name in graph.names}
    for name in graph.names:
        ways = [complex(*(places[other] - places[name])) for other in graph.neighbors(name)]
        side, ha, va = max(SIDES, key=lambda way: min((_between(way[0], edge) for edge in ways), default=0.0))
        far = (reach[name] + 1.5) * side
        ax.annotate(
            str(name), at[name], (far.real, far.imag), textcoords="offset points", size=8, color=DARK,
            ha=ha, va=va, zorder=4, path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip


def _between(a: complex, b: complex) -> float:
    """The angle between two directions."""
    return abs(cmath.phase(a * b.conjugate()))


def layout(graph: GroupGraph) -> dict[Hashable, Any]:
    """Positions of the groups: the graph's own where it has them, else a layout that is the same at every call."""
    import networkx as nx

    if graph.positions and all(name in graph.positions for name in graph.names):
        return dict(graph.positions)
    drawn = graph.to_networkx()
    if nx.is_connected(drawn) and len(graph) <= 200:
        return dict(nx.kamada_kawai_layout(drawn, weight=None))
    return dict(nx.spring_layout(drawn, seed=0))
