"""Names on a drawing, none over another: each on or beside its node, or not at all."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from itertools import islice, product
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.textpath import TextPath
from matplotlib.transforms import Bbox

from toporo.text import sign_width
from toporo.types import Array

DARK = "#111827"
#: Points between a node and its name, and that are kept free around a name.
GAP, ROOM = 1.5, np.array([2.0, 0.5])
#: Names that rather cover nodes than being left out, that are tried at most, and measured to know the widest.
FIRST, MOST, MEASURED = 15, 300, 40
#: Sides and corners of a node, the first that is best; alignments of a name that stands there.
SIDES = ((0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (1, 1), (-1, -1), (-1, 1))
ACROSS, UP = {-1: "right", 0: "center", 1: "left"}, {-1: "top", 0: "center", 1: "bottom"}


class NodeNames(Artist):
    """Names of nodes, placed anew whenever their axes are drawn: what fits depends on the size of the picture.

    The most important name is placed first, on the side of its node that faces away from the neighbours; a name
    without room is hidden.

    Parameters
    ----------
    ax : the axes.
    at : where all nodes stand.
    reach : from the middle of a node to its border, in points.
    texts : what is written, by node; the most important first. Nodes may be left out, and of very many are.
    edges : pairs of nodes.
    size : of the text, in points.
    on : by node, the colour of a name that stands on it, and its size.
    """

    def __init__(
        self, ax: Axes, at: Mapping[Any, Any], reach: Mapping[Any, float], texts: Mapping[Any, str],
        edges: Iterable[tuple[Any, Any]], *, size: float, on: Mapping[Any, tuple[str, float]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._ax, self._at, self._reach, self._edges, self._on = ax, at, reach, list(edges), on or {}
        self._texts: dict[Any, Text] = {}
        for name, text in islice(texts.items(), MOST):
            color, points = self._on.get(name, (DARK, size))
            self._texts[name] = ax.annotate(text, at[name], (0, 0), textcoords="offset points", zorder=4,
                                            size=points, color=color, annotation_clip=False)  # fmt: skip
            self._texts[name].set_in_layout(False)
        if ax.get_autoscale_on() and self._texts.keys() - self._on.keys():
            ax.margins(0.16, 0.1)
        self.set_zorder(-100.0)  # names are placed before anything is drawn
        self.set_in_layout(False)
        ax.add_artist(self)

    def draw(self, renderer: Any) -> None:
        """Place the names for the picture that is about to be drawn."""
        pixels = self._ax.figure.dpi / 72.0
        at = {name: self._ax.transData.transform(tuple(place)) for name, place in self._at.items()}
        ways = {name: np.zeros(2) for name in at}  # to the neighbours
        for a, b in self._edges:
            way = (at[b] - at[a]) / max(float(np.hypot(*(at[b] - at[a]))), 1e-9)
            ways[a], ways[b] = ways[a] + way, ways[b] - way
        nodes = {name: Bbox([at[name] - pixels * size, at[name] + pixels * size]) for name, size in self._reach.items()}
        frame = self._ax.get_window_extent(renderer)
        taken = [each.get_window_extent(renderer) for each in self._ax.get_children() if isinstance(each, Legend)]
        for number, (name, text) in enumerate(self._texts.items()):
            text.set_visible(True)  # what is hidden has no width
            extent = Text.get_window_extent(text, renderer)
            size = np.array(
                [extent.width + 0.4 * pixels * float(text.get_fontsize()) * _broad(text.get_text()), extent.height]
            )
            text.set_visible(False)
            sides = [(0, 0)] if name in self._on else sorted(SIDES, key=lambda side: round(_cost(side, ways[name]), 3))
            others = [] if name in self._on else [box for other, box in nodes.items() if other != name]
            for full, side in product(([*taken, *others], taken)[: 1 + (number < FIRST)], sides):
                away = (self._reach[name] + GAP) * np.array(side) * (0.8 if all(side) else 1.0)
                low = at[name] + pixels * away + (np.array(side) - 1) / 2 * size
                box = Bbox([low - pixels * ROOM, low + size + pixels * ROOM])
                inside = np.all(box.min >= frame.min) and np.all(box.max <= frame.max)
                if inside and not box.count_overlaps(full):
                    across, up = ACROSS[side[0]], UP[side[1]] if any(side) else "center_baseline"
                    text.set(position=away, ha=across, va=up, visible=True)
                    taken.append(box)
                    break


def _cost(side: tuple[int, int], way: Array) -> float:
    """How far a side faces towards the neighbours; corners look worse."""
    return float(way @ side) / math.hypot(*side) + 0.2 * all(side)


def widest(texts: Iterable[str]) -> float:
    """How wide the widest text is, in ems; of many, the longest are measured."""
    longest = sorted(set(texts), key=lambda text: -len(text) - _broad(text))[:MEASURED]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")  # said when the picture is made
        widths = [TextPath((0, 0), text, size=1.0).get_extents().width + 0.4 * _broad(text) for text in longest]
    return max(widths, default=0.0)


def _broad(text: str) -> int:
    """Signs that a font may lack and a browser has, where they are broader than what stands for them."""
    return sum(sign_width(sign) == 2 for sign in text)
