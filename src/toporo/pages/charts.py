"""Figures of pages: size and style, colours, axes, keys, and line charts.

Charts take plain values and return figures. :mod:`toporo.pages.rows` has bars and intervals by row,
:mod:`toporo.pages.heat` matrices, and :mod:`toporo.pages.maps` graphs and maps.
"""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, ListedColormap, LogNorm, Normalize, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter

from toporo.errors import DataError
from toporo.pages.render import GREYS, Section
from toporo.pages.svg import STYLE, WIDTH, alternative_text, to_svg
from toporo.pages.table import Table
from toporo.text import short_name
from toporo.topology.draw import mark_group
from toporo.types import Array

Parameters = ParamSpec("Parameters")
Values = Sequence[float] | Array

#: Characters of a line of a title, and of a name beside a row, that a figure has room for.
TITLE_LETTERS, NAME_LETTERS = 48, 22
#: Inches of a row of a key.
KEY_ROW = 0.17
#: Colour-blind safe (Okabe & Ito 2008; their grey is darker here, to tell it from the green).
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#606060", "#000000")
SOFT, GRID, INK, SHADE = "#6b7280", "#e5e7eb", "#111827", "#f6f7f9"
#: Text on a fill that is the same by day and by night.
ON_LIGHT, ON_DARK = "#0b0f14", "#fefefe"
#: Round steps between ticks.
TICK_STEPS = (1, 2, 2.5, 5, 10)
#: Positive values further apart than this factor get a logarithmic colour scale, over the second factor at most.
LOG_FROM, LOG_SPAN = 30.0, 1e3
#: Positive values further apart than this factor get a logarithmic axis.
LOG_AXIS_FROM = 8.0
#: Lines of at most this many points have a mark at each.
MARKED = 8


# ---------------------------------------------------------------- figures


def drawn(make: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """Let a function draw its figure in the style of the pages; titles and labels are broken into lines that fit."""

    @functools.wraps(make)
    def styled(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Figure:
        with mpl.rc_context(STYLE):
            figure = make(*args, **kwargs)
        if figure.get_figwidth() <= WIDTH:
            _fit(figure)
        return figure

    return styled


def _fit(figure: Figure) -> None:
    """Break long titles and labels into lines, and leave out ticks for which there is no room."""
    for ax in figure.axes:
        place = ax.get_subplotspec()
        letters = TITLE_LETTERS // (1 if place is None else place.get_gridspec().ncols)
        for text in (ax.title, getattr(ax, "_left_title"), ax.xaxis.label):  # noqa: B009 (a title on the left has no getter)
            parts = text.get_text().split("\n")
            text.set_text("\n".join(line for part in parts for line in textwrap.wrap(part, letters) or [""]))
        for axis in (ax.xaxis, ax.yaxis):
            locator = axis.get_major_locator()
            if isinstance(locator, MaxNLocator):
                locator.set_params(nbins=4)


def canvas(height: float, panels: int = 1, *, columns: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """Make a figure and its panels, one below the other.

    Parameters
    ----------
    height : of a panel, in inches.
    panels : number of panels.
    columns : panels side by side, where each has little text.
    options : as ``Figure.subplots`` takes them.
    """
    rows = -(-panels // columns)
    figure = Figure(figsize=(WIDTH, rows * height), layout=ConstrainedLayoutEngine(h_pad=0.08))
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).ravel())
    for ax in axes[panels:]:
        ax.set_visible(False)
    return figure, axes[:panels]


def figure_section(
    name: str, title: str, text: str, figure: Figure | Table, tables: tuple[Table, ...] = (), **rest: Any
) -> Section:
    """Make a section of a figure or a table.

    Parameters
    ----------
    name, title, text, tables, rest : of the section.
    figure : the figure; or a table, which comes first then.
    """
    if isinstance(figure, Table):
        return Section(name, title, text, tables=(figure, *tables), **rest)
    return Section(name, title, text, to_svg(name, figure), tables, **{"alt": alternative_text(figure)} | rest)


# ---------------------------------------------------------------- colours


def part_of(name: str, low: float = 0.0, high: float = 1.0) -> Colormap:
    """Return a part of one of matplotlib's colour maps, to leave out ends that are too pale or too dark."""
    return ListedColormap(mpl.colormaps[name](np.linspace(low, high, 256)), name=f"{name} {low:g} to {high:g}")


def color_scale(values: Iterable[float]) -> Normalize:
    """Return one scale for all values: logarithmic if the positive ones differ by more than ``LOG_FROM`` times.

    A logarithmic scale spans ``LOG_SPAN`` times at most; smaller values, and zero, have the colour of its lower end.
    Equal values have the colour in the middle.
    """
    numbers = np.array([finite(value) for value in values])
    if not numbers.size:
        return Normalize(0.0, 1.0)
    low, high = float(numbers.min()), float(numbers.max())
    if low >= 0 and high > 0:
        least = float(numbers[numbers > 0].min())
        if high / least > LOG_FROM:
            return LogNorm(max(least, high / LOG_SPAN), high, clip=True)
    if low == high:
        around = abs(low) * 0.1 or 1.0
        return Normalize(low - around, high + around)
    return Normalize(low, high)


def finite(value: float, of: str | None = None) -> float:
    """Return the value, which must be finite to have a colour; ``of`` is the name that a message gives it."""
    number = float(value)
    if not math.isfinite(number):
        where = f" for {of!r}" if of else ""
        raise DataError(
            f"a map needs finite numbers; found {number}{where}. Leave the state out to draw it as missing."
        )
    return number


def readable(fill: Any) -> str:
    """Return dark or white, the one with more contrast on the fill (relative luminance, WCAG 2).

    Greys change places in the dark; the colour of text on them changes with them.
    """
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(fill)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    dark = (luminance + 0.05) / 0.055 > 1.05 / (luminance + 0.05)
    if to_hex(fill) in GREYS:
        return INK if dark else "#ffffff"
    return ON_LIGHT if dark else ON_DARK


def color_bar(figure: Figure, colored: Any, label: str, values: Iterable[float] = (), **place: Any) -> Colorbar:
    """Draw the key of a colour scale below the axes.

    Parameters
    ----------
    figure : the figure.
    colored : the scale, as matplotlib's ``ScalarMappable``.
    label : of the scale.
    values : what has these colours; the scale has an arrow where they go beyond it.
    place : as ``Figure.colorbar`` takes it.
    """
    norm, known = colored.norm, [value for value in values if math.isfinite(value)] or [colored.norm.vmin]
    beyond = (min(known) < norm.vmin - 1e-9 * abs(norm.vmin), max(known) > norm.vmax + 1e-9 * abs(norm.vmax))
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[beyond]
    place = {"shrink": 0.8, "aspect": 30, "pad": 0.02} | place
    bar = figure.colorbar(colored, orientation="horizontal", extend=extend, **place)
    bar.ax.xaxis.set_major_locator(MaxNLocator(5, steps=TICK_STEPS))
    if isinstance(norm, LogNorm):
        log_ticks(bar.ax.xaxis)
        label += ", log scale"
    label += "; beyond it at the arrow" * (extend != "neither")
    bar.set_label(label, size=8.5)
    bar.ax.tick_params(labelsize=8, length=2)
    bar.outline.set_visible(False)
    return bar


# ---------------------------------------------------------------- axes and keys


def far_apart(values: Iterable[float], factor: float = LOG_AXIS_FROM) -> bool:
    """Return whether the finite values are positive and differ by more than a factor."""
    known = [value for value in values if math.isfinite(value)]
    return bool(known) and min(known) > 0 and max(known) / min(known) > factor


def log_ticks(axis: Any, *, decades: bool = False) -> None:
    """Put plain numbers at 1, 2 and 5 of a decade; at more of them within one decade, or at decades alone."""
    low, high = axis.get_view_interval()
    subs = (1.0,) if decades or high > 1e5 * low else (1.0, 2.0, 5.0) if high > 5 * low else range(1, 10)
    axis.set_major_locator(LogLocator(subs=list(subs), numticks=20))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def name_ticks(ax: Axes, names: Iterable[Hashable], *, few: int = 10) -> None:
    """Write names below 0, 1, 2, …, upright if there are more than a few of them, and mark them for the script."""
    names = list(names)
    upright = len(names) > few or max(len(str(name)) for name in names) * len(names) > 45
    ax.set_xticks(range(len(names)), [short_name(name, 14) for name in names], fontsize=7 if upright else 8,
                  rotation=90 * upright)  # fmt: skip
    for i, name in enumerate(names):
        mark_group(ax.axvspan(i - 0.5, i + 0.5, facecolor="none", lw=0, zorder=9), name)


def bare(ax: Axes) -> None:
    """Remove ticks and frame."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def mark(label: str, marker: str = "o", **style: Any) -> Line2D:
    """Return a mark for a key."""
    looks: dict[str, Any] = {"ms": 6, "mew": 1.3, **style}
    return Line2D([], [], ls="", marker=marker, label=label, **looks)


def stroke(label: str, **style: Any) -> Line2D:
    """Return a line for a key, thin and dotted by default."""
    looks: dict[str, Any] = {"color": SOFT, "lw": 0.9, "ls": ":", **style}
    return Line2D([], [], label=label, **looks)


def key(figure: Figure, handles: Sequence[Any], **options: Any) -> None:
    """Explain the marks below the axes, and make the figure higher for it."""
    if not handles:
        return
    columns = len(handles)
    if figure.get_figwidth() <= WIDTH:
        longest = max(len(str(handle.get_label())) for handle in handles)
        columns = min(columns, 2 if longest <= NAME_LETTERS else 1)
        rows = -(-len(handles) // columns) + ("title" in options)
        figure.set_figheight(figure.get_figheight() + KEY_ROW * rows)
    figure.legend(handles=handles, loc="outside lower left", ncols=columns, fontsize=8, **options)


# ---------------------------------------------------------------- lines


@dataclass(frozen=True)
class Line:
    """A line of a chart, with a band from ``low`` to ``high``; ``style`` as :func:`line_styles` gives it."""

    y: Values
    label: str = ""
    low: Values | None = None
    high: Values | None = None
    style: Mapping[str, Any] | None = None


@drawn
def line_chart(
    x: Sequence[Any],
    panels: Mapping[str, Sequence[Line]],
    label: str,
    *,
    log: str = "",
    limits: tuple[float | None, float | None] = (None, None),
    levels: Mapping[str, float] | None = None,
    shared: bool = False,
    title: str = "",
) -> Figure:
    """Draw lines over common points.

    Parameters
    ----------
    x : the points: whole numbers, numbers on a logarithmic axis, or names.
    panels : lines by the title of their panel.
    label : below the last axis.
    log : logarithmic axes: ``"x"``, ``"y"`` or ``"xy"``.
    limits : of the upright axes; None where the values decide.
    levels : values of level lines by label.
    shared : whether the panels have one scale.
    title : of the key.
    """
    named = not all(isinstance(point, int | float | np.number) for point in x)
    at = range(len(x)) if named else x
    figure, axes = canvas(2.7, len(panels), sharey=shared)
    for ax, (heading, lines) in zip(axes, panels.items(), strict=True):
        for line, default in zip(lines, line_styles(map(str, range(len(lines)))).values(), strict=True):
            style = dict(line.style or default) | ({"marker": "o", "ms": 3.0} if len(at) <= MARKED else {})
            band = (line.y, line.y) if line.low is None or line.high is None else (line.low, line.high)
            curve(ax, at, line.y, *band, label=line.label or None, **style)
        for i, (text, value) in enumerate((levels or {}).items()):
            ax.axhline(value, color=SOFT, lw=1.1, ls=(":", "--", "-.")[i % 3], label=text)
        ax.set_title(heading, loc="left")
        if "y" in log:
            ax.set_yscale("log")
            log_ticks(ax.yaxis)
        if "x" in log:
            ax.set_xscale("log")
            log_ticks(ax.xaxis, decades=True)
        elif named:
            name_ticks(ax, x)
        else:
            ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.grid(axis="y", color=GRID, lw=0.6)
        ax.set_axisbelow(True)
    for ax in axes:
        ax.set_ylim(*limits)
    axes[-1].set_xlabel(label)
    handles = {text: handle for ax in axes for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    key(figure, list(handles.values()), **({"title": title} if title else {}))
    return figure


def curve(ax: Axes, x: Any, y: Any, low: Any, high: Any, **style: Any) -> None:
    """Draw a line, shaded from low to high."""
    ax.plot(x, y, lw=1.6, **style)
    band = ax.fill_between(x, low, high, color=style["color"], alpha=0.15, lw=0)
    if style.get("label"):
        band.set_gid(f"series:{style['label']}")


def line_styles(titles: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and dash of lines by title; the same titles look the same in all figures of a report."""
    return {
        title: {"color": COLORS[i % len(COLORS)], "ls": "-" if i < len(COLORS) else "--"}
        for i, title in enumerate(titles)
    }
