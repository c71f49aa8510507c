"""Drawing a group graph."""

from __future__ import annotations

import cmath
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from toporo.groups import plain_name
from toporo.text import printable
from toporo.topology.structure import GraphStructure
from toporo.types import Array, Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRAIN_COLOR = "#2563a8"
TEST_COLOR = "#d97706"
OTHER_COLOR = "#8a8f98"
LABEL_LIMIT = 60
EDGE_COLOR, FIRM_COLOR = "#9aa1ab", "#1f2937"
#: Points of names on nodes, and of those beside them.
ON_SIZE, BESIDE_SIZE = 7.0, 8.0
#: Height of a capital, in ems.
CAPITAL = 0.73
#: Letters of a name that are shown.
LONGEST = 30
#: Sides and corners of a node that a name may stand at, the first that is best.
SIDES: tuple[tuple[complex, Literal["center", "left", "right"], Literal["center", "top", "bottom"]], ...] = (
    (-1j, "center", "top"),
    (1j, "center", "bottom"),
    (1, "left", "center"),
    (-1, "right", "center"),
    (0.8 - 0.8j, "left", "top"),
    (0.8 + 0.8j, "left", "bottom"),
    (-0.8 - 0.8j, "right", "top"),
    (-0.8 + 0.8j, "right", "bottom"),
)
#: Dark on light nodes, light on dark ones: at least 5 to 1 either way.
LABEL_COLORS = {TRAIN_COLOR: "white"}
DARK = "#111827"


def mark_group(artist: Any, name: object) -> None:
    """Let what is drawn stand for a group: pages light up all that stands for one."""
    artist.set_gid(f"group:{name}")


def draw_graph(
    graph: GraphStructure,
    ax: Axes | None = None,
    *,
    train: Iterable[Name] | None = None,
    test: Iterable[Name] | None = None,
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
    base = 200.0 if len(graph) <= 20 else 70.0
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
    if show:
        _names(graph, at, ax, reach, on)
    if graph.stability:
        _stability_legend(ax)
    if inside or outside:
        legend = ax.legend(frameon=False, fontsize=8, loc="best")
        for handle in legend.legend_handles:
            if handle is not None and hasattr(handle, "set_sizes"):
                handle.set_sizes([60.0])
    ax.set_axis_off()
    return ax


def _draw_edges(graph: GraphStructure, drawn: Any, at: Mapping[Name, Any], ax: Axes) -> None:
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


def _names(
    graph: GraphStructure, at: Mapping[Name, Any], ax: Axes, reach: Mapping[Name, float], on: Mapping[Name, str]
) -> None:
    """Names on nodes that would hold the widest of them, so that nodes of one size look alike; the others beside."""
    texts = {name: _shown(name) for name in graph.names}
    widths = _widths(ax, texts)
    needed = abs(complex(ON_SIZE * max(widths.values()), ON_SIZE * CAPITAL)) / 2
    within = [name for name in graph.names if reach[name] - 0.4 >= needed]
    for name in within:
        x, y = at[name]
        ax.text(x, y, texts[name], size=ON_SIZE, color=on[name], ha="center", va="center_baseline", clip_on=True)
    beside = [name for name in graph.names if name not in set(within)]
    if not beside:
        return
    ax.margins(0.06)
    ax.autoscale_view()
    sides = _sides(graph, _places(graph, at, ax), reach, {name: widths[name] for name in beside})
    for name, (side, ha, va) in sides.items():
        far = (reach[name] + 1.5) * side
        ax.annotate(
            texts[name], at[name], (far.real, far.imag), textcoords="offset points", size=BESIDE_SIZE, color=DARK,
            ha=ha, va=va, zorder=4,
            bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.3},  # a rim would make text paths
        )  # fmt: skip


def _shown(name: Name) -> str:
    """A name on one line; one too long to leave room for the graph loses its middle."""
    text = printable(" ".join(str(name).split()))
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2].rstrip()}…{text[1 - LONGEST // 2 :].lstrip()}"


def _widths(ax: Axes, texts: Mapping[Name, str]) -> dict[Name, float]:
    """How wide names are, in ems."""
    sample = ax.text(0.5, 0.5, "", size=100.0, transform=ax.transAxes)
    widths = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")  # said when the picture is made
        for name, text in texts.items():
            sample.set_text(text)
            widths[name] = float(sample.get_window_extent().width) * 72.0 / ax.figure.dpi / 100.0
    sample.remove()
    return widths


def _places(graph: GraphStructure, at: Mapping[Name, Any], ax: Axes) -> Array:
    """Where the nodes stand, in points."""
    points = ax.transData.transform([at[name] for name in graph.names]) * 72.0 / ax.figure.dpi
    return np.asarray(points, dtype=np.float64)


def _sides(
    graph: GraphStructure, places: Array, reach: Mapping[Name, float], widths: Mapping[Name, float]
) -> dict[Name, tuple[complex, Literal["center", "left", "right"], Literal["center", "top", "bottom"]]]:
    """For each name the side where it covers the fewest nodes and names, then edges; far from its own."""
    index = {name: i for i, name in enumerate(graph.names)}
    radii = np.array([reach[name] for name in graph.names])[:, None]
    taken = np.hstack([places - radii, places + radii])
    edges = np.array([[index[a], index[b]] for a, b in graph.edges], dtype=np.intp).reshape(-1, 2)
    starts, ends = places[edges[:, 0]], places[edges[:, 1]]
    chosen = {}
    for name, width in widths.items():
        here = places[index[name]]
        others = np.delete(taken, index[name], axis=0)
        ways = [complex(*(places[index[other]] - here)) for other in graph.neighbors(name)]
        boxes = [_box(here, (reach[name] + 1.5) * side, ha, va, width) for side, ha, va in SIDES]
        costs = [
            (
                int(_overlaps(box, others).sum()),
                int(_crosses(box, starts, ends).sum()),
                abs(side) != 1,
                -min((_between(side, way) for way in ways), default=0.0),
            )
            for box, (side, _, _) in zip(boxes, SIDES, strict=True)
        ]
        best = min(range(len(SIDES)), key=costs.__getitem__)
        chosen[name] = SIDES[best]
        taken = np.vstack([taken, boxes[best]])
    return chosen


def _box(here: Array, far: complex, ha: str, va: str, width: float) -> Array:
    """What a name this wide covers: left, bottom, right and top, in points."""
    wide, high = BESIDE_SIZE * width, BESIDE_SIZE * 1.2
    left = here[0] + far.real - wide * {"left": 0.0, "center": 0.5, "right": 1.0}[ha]
    bottom = here[1] + far.imag - high * {"bottom": 0.0, "center": 0.5, "top": 1.0}[va]
    return np.array([left, bottom, left + wide, bottom + high])


def _overlaps(box: Array, boxes: Array) -> npt.NDArray[np.bool_]:
    return np.asarray(((box[:2] < boxes[:, 2:]) & (boxes[:, :2] < box[2:])).all(axis=1))


def _crosses(box: Array, starts: Array, ends: Array) -> npt.NDArray[np.bool_]:
    """Which lines have a point in the box: those that enter it, across and up, before they leave it."""
    along = ends - starts
    along = np.where(along == 0, 1e-12, along)
    first, second = (box[:2] - starts) / along, (box[2:] - starts) / along
    enter, leave = np.minimum(first, second).max(axis=1), np.maximum(first, second).min(axis=1)
    return np.asarray(np.maximum(enter, 0.0) < np.minimum(leave, 1.0))


def _between(a: complex, b: complex) -> float:
    """The angle between two directions."""
    return abs(cmath.phase(a * b.conjugate()))


def layout(graph: GraphStructure) -> dict[Name, Any]:
    """Positions of the groups: the graph's own where it has them, else a layout that is the same at every call."""
    import networkx as nx

    if graph.positions and all(name in graph.positions for name in graph.names):
        return dict(graph.positions)
    drawn = graph.to_networkx()
    if nx.is_connected(drawn) and len(graph) <= 200:
        return dict(nx.kamada_kawai_layout(drawn, weight=None))
    return dict(nx.spring_layout(drawn, seed=0))
