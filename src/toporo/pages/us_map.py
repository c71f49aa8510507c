"""A map of the 48 contiguous states, coloured by a number for each.

The outlines ship with the package (``us_outlines.json``, which says where they come from and under which licence) as
arcs: a border that two states share is one line that both use. So neighbours meet without gaps, and the border of a set
of states is the arcs that only one of its states uses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import Colormap, ListedColormap, LogNorm, Normalize, to_rgb
from matplotlib.path import Path

from toporo.errors import DataError, GroupMismatchError, SettingError, listed
from toporo.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Point = tuple[float, float]

MISSING = "#eef0f2"
BORDER, OUTLINE, INK, LEADER = "#ffffff", "#1f2937", "#111827", "#6b7280"
#: West, east, south and north of the drawing: the states and the labels beside them.
FRAME = (10.0, 982.0, -612.0, -8.0)
#: States too small for a label: where it stands in the sea or north of the border, and where its line ends.
BESIDE: dict[str, tuple[Point, Point]] = {
    "VT": ((848.0, -86.0), (870.0, -124.0)),
    "NH": ((878.0, -66.0), (892.0, -124.0)),
    "MA": ((962.0, -160.0), (905.0, -169.0)),
    "RI": ((952.0, -189.0), (905.0, -182.0)),
    "CT": ((936.0, -216.0), (894.0, -187.0)),
    "NJ": ((902.0, -241.0), (866.0, -231.0)),
    "DE": ((902.0, -267.0), (855.0, -264.0)),
    "MD": ((902.0, -293.0), (859.0, -276.0)),
}
#: Positive values further apart than this factor get a logarithmic colour scale, over this factor at most.
LOG_FROM, LOG_SPAN = 30.0, 1e3


@dataclass(frozen=True)
class Outlines:
    """The states as rings of shared arcs; y points north, the units are those of the file.

    Attributes
    ----------
    arcs : border lines, an (n, 2) array each.
    rings : numbers of arcs by state, the largest piece first; ``~i`` is arc i backwards.
    labels : where a state's code is written.
    """

    arcs: tuple[Array, ...]
    rings: Mapping[str, tuple[tuple[int, ...], ...]]
    labels: Mapping[str, Point]

    def require(self, codes: Iterable[Any], *, what: str = "state(s)") -> list[str]:
        """The codes as a list; an error that lists those which are no state of the map."""
        if isinstance(codes, str):
            raise GroupMismatchError(
                f"{what} must be a list of state codes; found the text {codes!r}: write [{codes!r}]."
            )
        wanted = list(dict.fromkeys(codes))
        unknown = [code for code in wanted if code not in self.rings]
        if unknown:
            raise GroupMismatchError(
                f"{what} not on the map: {listed(unknown)}. Expected two-letter codes of the 48 contiguous states, "
                f"such as {listed(list(self.rings)[:3])}. Rename them, or leave them out of the map."
            )
        return wanted

    def polygons(self, code: str) -> list[Array]:
        """The closed lines around a state's pieces; the last point of each is the first."""
        self.require([code])
        return [self._joined(ring) for ring in self.rings[code]]

    def border(self, codes: Iterable[str]) -> list[Array]:
        """The lines around a set of states, without the borders inside it."""
        used: dict[int, int] = {}
        for code in self.require(codes):
            for arc in (arc for ring in self.rings[code] for arc in ring):
                index = arc if arc >= 0 else ~arc
                used[index] = used.get(index, 0) + 1
        return [self.arcs[index] for index, times in sorted(used.items()) if times == 1]

    def _joined(self, ring: tuple[int, ...]) -> Array:
        parts = [self.arcs[arc] if arc >= 0 else self.arcs[~arc][::-1] for arc in ring]
        return np.concatenate([parts[0], *(part[1:] for part in parts[1:])])


@cache
def load_outlines() -> Outlines:
    """The outlines that ship with the package."""
    content = json.loads(files("toporo.pages").joinpath("us_outlines.json").read_text(encoding="utf-8"))
    grid = float(content["grid"])
    arcs = tuple(np.cumsum(np.reshape(arc, (-1, 2)), axis=0) * grid for arc in content["arcs"])
    states = content["states"]
    return Outlines(
        arcs=arcs,
        rings={code: tuple(tuple(ring) for ring in at["rings"]) for code, at in states.items()},
        labels={code: (at["label"][0] * grid, at["label"][1] * grid) for code, at in states.items()},
    )


def part_of(name: str, low: float = 0.0, high: float = 1.0) -> Colormap:
    """A stretch of one of matplotlib's colour maps, to leave out ends that are too pale or too dark."""
    return ListedColormap(mpl.colormaps[name](np.linspace(low, high, 256)), name=f"{name} {low:g} to {high:g}")


def color_scale(values: Iterable[float]) -> Normalize:
    """One scale for all values: linear, or logarithmic where the positive ones differ by more than ``LOG_FROM`` times.

    The logarithmic scale spans ``LOG_SPAN`` times at most; what is smaller, and zero, has the colour of its lower end.
    Values all alike stand in the middle of the scale.
    """
    found = np.array([_finite(value) for value in values])
    if not found.size:
        return Normalize(0.0, 1.0)
    low, high = float(found.min()), float(found.max())
    if low >= 0 and high > 0:
        least = float(found[found > 0].min())
        if high / least > LOG_FROM:
            return LogNorm(max(least, high / LOG_SPAN), high, clip=True)
    if low == high:
        around = abs(low) * 0.1 or 1.0
        return Normalize(low - around, high + around)
    return Normalize(low, high)


def draw_states(
    ax: Axes,
    values: Mapping[str, float],
    *,
    cmap: str | Colormap = "viridis",
    norm: Normalize | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    fills: Mapping[str, str] | None = None,
    missing: str = MISSING,
    outlined: Collection[str] = (),
    labels: bool = True,
    label_size: float = 6.5,
) -> PathCollection:
    """Draw the 48 states on ``ax``, those with a value in its colour; returns what a colour bar is made from.

    Parameters
    ----------
    values : numbers by state code; they must be finite (leave a state out to have it drawn as missing).
    norm, vmin, vmax : the scale, as :func:`color_scale` makes it unless given; either ``norm`` or the two ends.
    fills : plain colours by state code for states without a value.
    missing : the colour of the states in neither.
    outlined : states around which, as a whole, a dark line is drawn.
    labels : whether to write the codes, dark on light fills and light on dark ones.
    label_size : size of the codes in points; about 6.5 on a map across a page, 5 on half of one.
    """
    map_ = load_outlines()
    given = {code: _finite(values[code], of=code) for code in map_.require(values, what="coloured state(s)")}
    plain = {code: (fills or {})[code] for code in map_.require(fills or (), what="filled state(s)")}
    map_.require(outlined, what="outlined state(s)")
    twice = [code for code in given if code in plain]
    if twice:
        raise SettingError(f"states with both a value and a fill: {listed(twice)}. Give each state one of the two.")
    if norm is not None and (vmin is not None or vmax is not None):
        raise SettingError("a map takes either norm or vmin and vmax; found both. Set the ends on the norm.")
    if norm is None:
        norm = color_scale(given.values())
        norm.vmin = norm.vmin if vmin is None else vmin
        norm.vmax = norm.vmax if vmax is None else vmax

    rest = [code for code in map_.rings if code not in given]
    around: dict[str, Any] = {"edgecolors": BORDER, "linewidths": 0.6, "joinstyle": "round"}
    colors = [plain.get(code, missing) for code in rest]
    ax.add_collection(PathCollection([_path(map_, code) for code in rest], facecolors=colors, zorder=1, **around))
    codes = [code for code in map_.rings if code in given]
    colored = PathCollection([_path(map_, code) for code in codes], cmap=cmap, norm=norm, zorder=1, **around)
    numbers = np.array([given[code] for code in codes])
    colored.set_array(numbers)
    ax.add_collection(colored)
    if outlined:
        lines = map_.border(outlined)
        ax.add_collection(LineCollection(lines, colors=OUTLINE, linewidths=0.8, capstyle="round", zorder=2))
    if labels:
        shades = colored.to_rgba(numbers) if codes else ()
        shown = dict(zip(rest, colors, strict=True)) | dict(zip(codes, shades, strict=True))
        _write_labels(ax, map_, shown, label_size)
    ax.set_xlim(FRAME[0], FRAME[1])
    ax.set_ylim(FRAME[2], FRAME[3])
    ax.set_aspect("equal")
    ax.set_axis_off()
    return colored


def _path(map_: Outlines, code: str) -> Path:
    """A state with all its pieces as one path."""
    return Path.make_compound_path(*(Path(polygon, closed=True) for polygon in map_.polygons(code)))


def _write_labels(ax: Axes, map_: Outlines, fills: Mapping[str, Any], size: float) -> None:
    for code, at in map_.labels.items():
        if code in BESIDE:
            (x, y), end = BESIDE[code]
            line = {"arrowstyle": "-", "color": LEADER, "lw": 0.5, "shrinkA": 0.5, "shrinkB": 0.0}
            ax.annotate(code, end, (x, y), size=size, color=INK, ha="center", va="center", zorder=4, arrowprops=line)
            ax.plot(*end, marker="o", ms=1.6, mew=0, color=_readable(fills[code]), zorder=4)
        else:
            ax.text(*at, code, size=size, color=_readable(fills[code]), ha="center", va="center", zorder=4)


def _readable(fill: Any) -> str:
    """Dark or white, whichever stands out more on the fill (relative luminance, WCAG 2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(fill)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return INK if (luminance + 0.05) / 0.058 > 1.05 / (luminance + 0.05) else "#ffffff"


def _finite(value: float, of: str | None = None) -> float:
    number = float(value)
    if not math.isfinite(number):
        where = f" for {of!r}" if of else ""
        raise DataError(
            f"a map needs finite numbers; found {number}{where}. Leave the state out to draw it as missing."
        )
    return number
