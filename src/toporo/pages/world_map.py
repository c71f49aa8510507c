"""Groups where they lie on the globe: a plain map, longitude across and latitude up.

The outlines ship with the package (``world_outlines.json``, which says where they come from and under which licence).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path

from toporo.errors import DataError, SettingError
from toporo.pages.figures import STYLE
from toporo.pages.network_figures import WIDTH, Learned, draw_counted_edges
from toporo.topology.draw import TEST_COLOR, TRAIN_COLOR, draw_graph
from toporo.topology.graph import GroupGraph
from toporo.types import Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Point = tuple[float, float]
Frame = tuple[float, float, float, float]

SEA, LAND, COAST, LINES = "#f4f7fa", "#dfe3e8", "#c3c9d1", "#e3e9ef"
#: Degrees that are shown around the outermost groups, and at least altogether.
AROUND, ACROSS, UP = (22.0, 16.0), 90.0, 50.0
#: The whole of the map.
GLOBE: Frame = (-180.0, 180.0, -60.0, 85.0)


@cache
def load_land() -> tuple[Path, ...]:
    """The continents and large islands, the largest first; lakes are holes."""
    content = json.loads(files("toporo.pages").joinpath("world_outlines.json").read_text(encoding="utf-8"))
    grid = float(content["grid"])
    return tuple(
        Path.make_compound_path(
            *(Path(np.cumsum(np.reshape(ring, (-1, 2)), axis=0) * grid, closed=True) for ring in rings)
        )
        for rings in content["polygons"]
    )


def frame_of(positions: Collection[Point]) -> Frame:
    """West, east, south and north of a map of these places, with room around them, within the globe."""
    if not positions:
        raise SettingError("a map needs at least one place; found none.")
    for lon, lat in positions:
        if not (math.isfinite(lon) and math.isfinite(lat) and abs(lon) <= 180 and abs(lat) <= 90):
            raise DataError(f"a place at ({lon}, {lat}): expected a longitude from −180 to 180, a latitude to ±90.")
    found = []
    for values, around, least, low, high in (
        ([lon for lon, _ in positions], AROUND[0], ACROSS, GLOBE[0], GLOBE[1]),
        ([lat for _, lat in positions], AROUND[1], UP, GLOBE[2], GLOBE[3]),
    ):
        start, end = min(values) - around, max(values) + around
        missing = max(0.0, least - (end - start)) / 2
        found += [max(low, start - missing), min(high, end + missing)]
    return found[0], found[1], found[2], found[3]


def draw_land(ax: Axes, frame: Frame = GLOBE) -> None:
    """Land, sea and a net of degrees on ``ax``, which then shows the frame and nothing else."""
    west, east, south, north = frame
    ax.set_xlim(west, east)
    ax.set_ylim(south, north)
    ax.set_aspect("equal")
    corners = Path([(west, south), (east, south), (east, north), (west, north), (west, south)], closed=True)
    ax.add_collection(PathCollection([corners], facecolors=SEA, linewidths=0.0, zorder=0.1), autolim=False)
    step = 30 if east - west > 120 else 10
    ax.vlines(np.arange(-180, 181, step), south, north, color=LINES, lw=0.6, zorder=0.2)
    ax.hlines(np.arange(-90, 91, step), west, east, color=LINES, lw=0.6, zorder=0.2)
    seen = [path for path in load_land() if path.get_extents().overlaps(corners.get_extents())]
    ax.add_collection(
        PathCollection(seen, facecolors=LAND, edgecolors=COAST, linewidths=0.4, zorder=0.3), autolim=False
    )
    ax.set_axis_off()


def event_map(
    learned: Learned | None,
    positions: Mapping[Name, Point],
    train: Collection[Name],
    test: Collection[Name],
    *,
    what: str = "event",
) -> Figure:
    """Where the groups lie: training groups sized by centrality, with the edges that were learned; test groups square.

    Groups without a position are left out.
    """
    shown = [name for name in (*train, *test) if name in positions]
    at = {name: positions[name] for name in shown}
    frame = frame_of(list(at.values()))
    sizes = {name: value for name, value in learned.centrality.items() if name in at} if learned else {}
    with mpl.rc_context(STYLE):
        height = WIDTH * (frame[3] - frame[2]) / (frame[1] - frame[0]) + 0.35
        figure = Figure(figsize=(WIDTH, min(height, 6.5)), layout="constrained")
        ax = figure.subplots()
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
            Line2D([], [], ls="", marker="o", ms=7, color=TRAIN_COLOR, label=f"training {what}s, area by centrality"),
            Line2D([], [], ls="", marker="s", ms=7, color=TEST_COLOR, label=f"held-out {what}"),
        ]
        if learned:
            handles += draw_counted_edges(ax, at, learned)
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
        return figure
