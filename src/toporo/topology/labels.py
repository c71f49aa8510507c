"""Names on a drawing, none over another: each beside its node, at the end of a line, or not at all."""

from __future__ import annotations

import cmath
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox, IdentityTransform

from toporo.text import sign_width
from toporo.types import Array

DARK, LEADER = "#111827", "#6b7280"
#: Points between a node and its name, and that are kept free left and right of a name, and over and under it.
GAP, BESIDE, OVER = 1.5, 2.0, 0.5
#: The share of an axes' width that is kept free on either side for names, at most.
SIDE_ROOM = 0.2
#: Sides and corners of a node that a name may stand at, the first that is best: which way, and which of its own points.
SIDES: tuple[tuple[complex, tuple[float, float]], ...] = (
    (-1j, (0.5, 1.0)),
    (1j, (0.5, 0.0)),
    (1, (0.0, 0.5)),
    (-1, (1.0, 0.5)),
    (0.8 - 0.8j, (0.0, 1.0)),
    (0.8 + 0.8j, (0.0, 0.0)),
    (-0.8 - 0.8j, (1.0, 1.0)),
    (-0.8 + 0.8j, (1.0, 0.0)),
)
#: Names that are tried at most, and measured to know the widest.
MOST, MEASURED = 300, 40
#: How far away, in points beyond the node, and in how many directions a name may stand at the end of a line.
FAR, DIRECTIONS = (10.0, 18.0, 28.0, 40.0, 54.0, 70.0), 16
#: A name less than so many points from another node could be that one's.
CROWDED = 3.0
#: Names of more nodes than this have no lines, which would be a thicket, but for the first few.
LED, FIRST = 60, 15
_ACROSS: dict[float, Literal["left", "center", "right"]] = {0.0: "left", 0.5: "center", 1.0: "right"}
_UP: dict[float, Literal["bottom", "center", "top"]] = {0.0: "bottom", 0.5: "center", 1.0: "top"}


class Spot(NamedTuple):
    """Where a name may stand: its offset from the node, the point of it that stands there, what it covers; its line."""

    offset: complex
    pivot: tuple[float, float]
    box: Array
    line: Array | None = None


@dataclass
class Scene:
    """What is on a drawing, in points.

    Attributes
    ----------
    inside : left, bottom, right and top of what names may cover.
    points, reach : the middles of the nodes, and from there to their borders.
    starts, ends : of the edges.
    taken : what names and keys cover.
    lines : from nodes to names that stand farther away.
    """

    inside: Array
    points: Array
    reach: Array
    starts: Array
    ends: Array
    taken: Array
    lines: list[Array] = field(default_factory=list)

    @property
    def nodes(self) -> Array:
        """What the nodes cover."""
        return np.hstack([self.points - self.reach[:, None], self.points + self.reach[:, None]])

    def place(self, node: int, wide: float, high: float, *, on: bool, far: bool, must: bool) -> Spot | None:
        """The best free place for a name of this size; None without one.

        Parameters
        ----------
        node, wide, high : whose name it is, and its size.
        on : whether it stands on its node; else beside it.
        far : whether it may stand at the end of a line.
        must : whether it rather covers nodes than being left out.
        """
        here, reach = self.points[node], float(self.reach[node])
        if on:
            spot = _beside(here, 0j, (0.5, 0.5), wide, high)
            return spot if self._is_free(spot, self.taken) else None
        others = np.delete(self.nodes, node, axis=0)
        full = np.vstack([self.taken, others])
        ends = (*self.ends[(self.starts == here).all(axis=1)], *self.starts[(self.ends == here).all(axis=1)])
        ways = [complex(*(there - here)) for there in ends]
        near = [_beside(here, (reach + GAP) * side, pivot, wide, high) for side, pivot in SIDES]
        choices = [(near, full), *((_led(here, reach, away, wide, high), full) for away in FAR if far)]
        choices += [(near, self.taken)] * must
        for spots, covered in choices:
            free = [spot for spot in spots if self._is_free(spot, covered)]
            if free:
                return min(free, key=lambda spot: self._cost(spot, ways, others))
        return None

    def add(self, spot: Spot) -> None:
        """Let a name stand there."""
        self.taken = np.vstack([self.taken, spot.box])
        if spot.line is not None:
            self.lines.append(spot.line)

    def crossed(self, box: Array) -> int:
        """How many edges run through a box."""
        return int(_crosses(box, self.starts, self.ends).sum())

    def _is_free(self, spot: Spot, full: Array) -> bool:
        within = (spot.box[:2] >= self.inside[:2]).all() and (spot.box[2:] <= self.inside[2:]).all()
        if not within or _overlaps(spot.box, full).any():
            return False
        lines = np.array(self.lines).reshape(-1, 2, 2)
        if _crosses(spot.box, lines[:, 0], lines[:, 1]).any():
            return False
        return spot.line is None or not _crosses(full, spot.line[0], spot.line[1]).any()

    def _cost(self, spot: Spot, ways: Sequence[complex], others: Array) -> tuple[float, ...]:
        """How far from good a place is: near other nodes, so that it could be theirs; across edges; near its own."""
        side = spot.offset
        crowded = int(_overlaps(spot.box + CROWDED * np.array([-1, -1, 1, 1]), others).sum())
        apart = min((_between(side, way) for way in ways), default=0.0)
        return crowded, self.crossed(spot.box), 0.0 not in (side.real, side.imag), -apart


class NodeNames(Artist):
    """Names of nodes, placed anew whenever their axes are drawn: what fits depends on the size of the picture.

    The most important name is placed first. Each goes to the free side of its node that crosses the fewest edges, else
    to the end of a line nearby; where there is no room it is hidden, unless it is one of the first few.

    Parameters
    ----------
    ax : the axes.
    at : where all nodes stand.
    reach : from the middle of a node to its border, in points.
    texts : what is written, by node; the most important first. Nodes may be left out, and of very many are.
    edges : pairs of nodes.
    size : of the text, in points.
    on : by node, the colour of a name that may stand on it, and its size.
    """

    def __init__(
        self,
        ax: Axes,
        at: Mapping[Any, Any],
        reach: Mapping[Any, float],
        texts: Mapping[Any, str],
        edges: Iterable[tuple[Any, Any]],
        *,
        size: float,
        on: Mapping[Any, tuple[str, float]] | None = None,
    ) -> None:
        super().__init__()
        self._ax = ax
        texts = dict(islice(texts.items(), MOST))
        index = {name: number for number, name in enumerate(at)}
        self._points = np.array([tuple(point) for point in at.values()], dtype=np.float64).reshape(-1, 2)
        self._reach = np.array([reach[name] for name in at], dtype=np.float64)
        self._edges = np.array([(index[a], index[b]) for a, b in edges], dtype=np.intp).reshape(-1, 2)
        self._nodes = [index[name] for name in texts]
        sizes = [on[name][1] if on and name in on else size for name in texts]
        self._on = [bool(on and name in on) for name in texts]
        self._wider = [em * 0.4 * _broad_signs(text) for em, text in zip(sizes, texts.values(), strict=True)]
        self._texts: list[Annotation] = []
        for (name, text), em, inside in zip(texts.items(), sizes, self._on, strict=True):
            color = on[name][0] if on and inside else DARK
            background = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.3}  # a rim: text as paths
            written = ax.annotate(text, at[name], (0, 0), textcoords="offset points", size=em, color=color, zorder=4,
                                  bbox=background, annotation_clip=False)  # fmt: skip
            written.set_in_layout(False)
            self._texts.append(written)
        self._lines = Line2D([], [], color=LEADER, lw=0.5, zorder=3.8, transform=IdentityTransform())
        self._lines.set_in_layout(False)
        beside = [text for text, inside in zip(texts.values(), self._on, strict=True) if not inside]
        if beside and ax.get_autoscale_on():
            _make_room(ax, size * widest(ax, beside))
        ax.add_line(self._lines)
        self.set_zorder(-100.0)  # names are placed before anything is drawn
        self.set_in_layout(False)
        ax.add_artist(self)

    def draw(self, renderer: Any) -> None:
        """Place the names for the picture that is about to be drawn."""
        scale = 72.0 / self._ax.figure.dpi
        scene = self._scene(renderer, scale)
        for number, (node, text) in enumerate(zip(self._nodes, self._texts, strict=True)):
            text.set_visible(True)  # what is hidden has no width
            box = Text.get_window_extent(text, renderer)
            wide, high = box.width * scale + self._wider[number], box.height * scale
            first = number < FIRST
            far = first or len(self._nodes) <= LED
            spot = scene.place(node, wide, high, on=self._on[number], far=far, must=first)
            text.set_visible(spot is not None)
            if spot is None:
                continue
            scene.add(spot)
            text.set_position((spot.offset.real, spot.offset.imag))
            text.set_horizontalalignment(_ACROSS[spot.pivot[0]])
            text.set_verticalalignment("center_baseline" if self._on[number] else _UP[spot.pivot[1]])
            background = text.get_bbox_patch()
            if background is not None:
                background.set_visible(not self._on[number] and scene.crossed(spot.box) > 0)
        gap = np.full((1, 2), math.nan)
        path = [part for line in scene.lines for part in (line / scale, gap)]
        self._lines.set_data(*(np.vstack(path).T if path else ([], [])))

    def _scene(self, renderer: Any, scale: float) -> Scene:
        """The drawing without its names."""
        points = np.asarray(self._ax.transData.transform(self._points)) * scale
        keys = [
            _scaled(each.get_window_extent(renderer), scale)
            for each in self._ax.get_children()
            if isinstance(each, Legend) and each.get_visible()
        ]
        return Scene(
            inside=_scaled(self._ax.get_window_extent(renderer), scale),
            points=points,
            reach=self._reach,
            starts=points[self._edges[:, 0]],
            ends=points[self._edges[:, 1]],
            taken=np.array(keys, dtype=np.float64).reshape(-1, 4),
        )


def _beside(here: Array, far: complex, pivot: tuple[float, float], wide: float, high: float) -> Spot:
    """A place of a name of this size."""
    left, bottom = here[0] + far.real - wide * pivot[0], here[1] + far.imag - high * pivot[1]
    box = np.array([left - BESIDE, bottom - OVER, left + wide + BESIDE, bottom + high + OVER])
    return Spot(far, pivot, box)


def _led(here: Array, reach: float, away: float, wide: float, high: float) -> Iterator[Spot]:
    """Places around a node at the ends of lines of one length."""
    for step in range(DIRECTIONS):
        way = cmath.rect(1.0, 2 * math.pi * step / DIRECTIONS)
        across, up = (0.5 if abs(part) < 0.3 else 0.0 if part > 0 else 1.0 for part in (way.real, way.imag))
        start, end = (reach * way, (reach + away) * way)
        line = here + np.array([[start.real, start.imag], [end.real, end.imag]])
        yield _beside(here, end, (across, up), wide, high)._replace(line=line)


def _make_room(ax: Axes, widest: float) -> None:
    """Margins in which names beside the outermost nodes fit."""
    wide = ax.get_window_extent().width * 72.0 / ax.figure.dpi
    side = min(widest + 8.0, SIDE_ROOM * wide)
    ax.margins(x=max(0.06, side / max(wide - 2 * side, 1.0)), y=0.08)
    ax.autoscale_view()


def _scaled(box: Bbox, scale: float) -> Array:
    return np.array([box.x0, box.y0, box.x1, box.y1]) * scale


def widest(ax: Axes, texts: Iterable[str]) -> float:
    """How wide the widest text is, in ems; of many, the longest are measured."""
    longest = sorted(set(texts), key=lambda text: -len(text) - _broad_signs(text))[:MEASURED]
    sample = ax.text(0.5, 0.5, "", size=100.0, transform=ax.transAxes)
    widths = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")  # said when the picture is made
        for text in longest:
            sample.set_text(text)
            ems = float(sample.get_window_extent().width) * 72.0 / ax.figure.dpi / 100.0
            widths.append(ems + 0.4 * _broad_signs(text))
    sample.remove()
    return max(widths, default=0.0)


def _broad_signs(text: str) -> int:
    """Signs that a font may lack and a browser has, where they are broader than what stands for them."""
    return sum(sign_width(sign) == 2 for sign in text)


def _overlaps(box: Array, boxes: Array) -> npt.NDArray[np.bool_]:
    return np.asarray(((box[:2] < boxes[:, 2:]) & (boxes[:, :2] < box[2:])).all(axis=1))


def _crosses(box: Array, starts: Array, ends: Array) -> npt.NDArray[np.bool_]:
    """Which lines have a point in a box: those that enter it, across and up, before they leave it.

    Many lines and one box, or one line and many boxes.
    """
    along = ends - starts
    along = np.where(along == 0, 1e-12, along)
    first, second = (box[..., :2] - starts) / along, (box[..., 2:] - starts) / along
    enter, leave = np.minimum(first, second).max(axis=-1), np.maximum(first, second).min(axis=-1)
    return np.asarray(np.maximum(enter, 0.0) < np.minimum(leave, 1.0))


def _between(a: complex, b: complex) -> float:
    """The angle between two directions."""
    return abs(cmath.phase(a * b.conjugate()))
