"""Names of nodes that never overlap: each beside its node, or hidden."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice, product
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from toporo.text import sign_width
from toporo.types import Array

#: Size of names, the room between a node and its name, and that around a name, in points.
SIZE, GAP, ROOM = 7.5, 1.5, np.array([2.0, 0.5])
COLOR = "#111827"
#: The first names rather cover nodes than being hidden; names beyond the most are not tried.
FIRST, MOST = 15, 300
#: Sides and corners of a node, the best first; alignments of a name that stands there.
SIDES = ((0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (1, 1), (-1, -1), (-1, 1))
ACROSS, UP = {-1: "right", 0: "center", 1: "left"}, {-1: "top", 0: "center_baseline", 1: "bottom"}


class NodeNames(Artist):
    """Names of nodes, placed anew whenever their axes are drawn, because what fits depends on the size of the picture.

    A name stands on the side of its node that faces away from the neighbours. The most important name is placed first;
    a name without room is hidden.

    Parameters
    ----------
    ax : the axes.
    at : places of all nodes.
    reach : radius of each node in points.
    texts : names by node, the most important first.
    edges : pairs of nodes.
    """

    def __init__(
        self,
        ax: Axes,
        at: Mapping[Any, Any],
        reach: Mapping[Any, float],
        texts: Mapping[Any, str],
        edges: Iterable[tuple[Any, Any]],
    ) -> None:
        super().__init__()
        self._ax, self._at, self._reach, self._edges = ax, at, reach, list(edges)
        style: dict[str, Any] = {"textcoords": "offset points", "size": SIZE, "color": COLOR, "zorder": 4}
        self._texts: dict[Any, Text] = {}
        for name, text in islice(texts.items(), MOST):
            self._texts[name] = ax.annotate(text, at[name], (0, 0), annotation_clip=False, **style)
            self._texts[name].set_in_layout(False)
        self.set_zorder(-100.0)  # names are placed before anything is drawn
        self.set_in_layout(False)
        ax.add_artist(self)

    def draw(self, renderer: Any) -> None:
        """Place the names for the picture that is about to be drawn."""
        pixels = self._ax.figure.dpi / 72.0
        at = {name: self._ax.transData.transform(tuple(place)) for name, place in self._at.items()}
        towards = {name: np.zeros(2) for name in at}  # the neighbours
        for a, b in self._edges:
            step = (at[b] - at[a]) / max(float(np.hypot(*(at[b] - at[a]))), 1e-9)
            towards[a], towards[b] = towards[a] + step, towards[b] - step
        nodes = {name: Bbox([at[name] - pixels * size, at[name] + pixels * size]) for name, size in self._reach.items()}
        frame = self._ax.get_window_extent(renderer)
        taken: list[Bbox] = []
        for number, (name, text) in enumerate(self._texts.items()):
            size = _extent(text, renderer, pixels)
            sides = sorted(SIDES, key=lambda side: round(_cost(side, towards[name]), 3))
            others = [box for other, box in nodes.items() if other != name]
            text.set_visible(False)
            for boxes, side in product(([*taken, *others], taken)[: 1 + (number < FIRST)], sides):
                away = (self._reach[name] + GAP) * np.array(side) * (0.8 if all(side) else 1.0)
                low = at[name] + pixels * away + (np.array(side) - 1) / 2 * size
                box = Bbox([low - pixels * ROOM, low + size + pixels * ROOM])
                inside = np.all(box.min >= frame.min) and np.all(box.max <= frame.max)
                if inside and not box.count_overlaps(boxes):
                    text.set(position=away, ha=ACROSS[side[0]], va=UP[side[1]], visible=True)
                    taken.append(box)
                    break


def _extent(text: Text, renderer: Any, pixels: float) -> Array:
    """Return the size of a text in pixels, with the width that a browser gives to signs which the font may lack."""
    text.set_visible(True)  # a hidden text has no width
    extent = Text.get_window_extent(text, renderer)
    broad = sum(sign_width(sign) == 2 for sign in text.get_text())
    return np.array([extent.width + 0.4 * pixels * SIZE * broad, extent.height])


def _cost(side: tuple[int, int], towards: Array) -> float:
    """Measure how far a side faces towards the neighbours; corners look worse."""
    return float(towards @ side) / math.hypot(*side) + 0.2 * all(side)
