"""Names of nodes that never overlap: below its node, or hidden."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.transforms import Bbox

#: Size of names, and the room between a node and its name, in points.
SIZE, GAP = 7.5, 1.5
COLOR = "#111827"


class NodeNames(Artist):
    """Names of nodes that fit, chosen anew whenever their axes are drawn: what fits depends on the picture's size.

    Parameters
    ----------
    ax : the axes.
    names : text, place and radius in points of each node, the most important first. A name that would cover an earlier
        one, or leave the axes, is hidden.
    """

    def __init__(self, ax: Axes, names: Iterable[tuple[str, Any, float]]) -> None:
        super().__init__()
        style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "top", "annotation_clip": False}
        self._ax, self._texts = ax, list[Text]()
        for text, at, radius in names:
            self._texts.append(ax.annotate(text, at, (0, -radius - GAP), size=SIZE, color=COLOR, zorder=4, **style))
            self._texts[-1].set_in_layout(False)
        self.set_zorder(-100.0)  # names are chosen before anything is drawn
        self.set_in_layout(False)
        ax.add_artist(self)

    def draw(self, renderer: Any) -> None:
        """Show the names that fit the picture that is about to be drawn."""
        frame = self._ax.get_window_extent(renderer)
        taken: list[Bbox] = []
        for text in self._texts:
            text.set_visible(True)  # a hidden text has no width
            box = text.get_window_extent(renderer)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            text.set_visible(inside and not box.count_overlaps(taken))
            if text.get_visible():
                taken.append(box)
