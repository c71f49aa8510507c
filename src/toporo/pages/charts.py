"""Parts of figures: size and style, colours, axes and keys, and line charts.

Charts take plain values and return figures. :mod:`toporo.pages.rows` draws values by row, and
:mod:`toporo.pages.maps` graphs and maps.
"""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LogNorm, Normalize, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter

from toporo.pages.render import DARK_COLORS, Section
from toporo.pages.svg import STYLE, WIDTH, alternative_text, to_svg
from toporo.pages.table import Table
from toporo.text import printable
from toporo.types import Array

Parameters = ParamSpec("Parameters")
Values = Sequence[float] | Array

#: Characters that fit on a line of a title, and in a name beside a row.
TITLE_LETTERS, NAME_LETTERS = 48, 22
#: Inches of a row of a key.
KEY_ROW = 0.17
#: Colour-blind safe (Okabe & Ito 2008), with a darker grey that differs more from the green.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#606060", "#000000")
SOFT, GRID, INK, SHADE = "#6b7280", "#e5e7eb", "#111827", "#f6f7f9"
#: Colour maps of values and of errors, from light to dark, and of values below and above zero.
VALUE_COLORS, ERROR_COLORS, SIGNED_COLORS = "YlGnBu", "YlOrRd", "RdBu_r"
#: Text on a fill that is the same in light and dark mode.
ON_LIGHT, ON_DARK = "#0b0f14", "#fefefe"
#: Round steps between ticks.
TICK_STEPS = (1, 2, 2.5, 5, 10)
#: Positive values with a larger ratio get a logarithmic colour scale, which spans at most the second ratio.
LOG_FROM, LOG_SPAN = 30.0, 1e3
#: Lines of at most this many points have a mark at each.
MARKED = 8


# ---------------------------------------------------------------- figures


def drawn(make: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """Decorate a function that draws a figure: apply the style of the pages, and wrap long titles and labels."""

    @functools.wraps(make)
    def styled(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Figure:
        with mpl.rc_context(STYLE):
            figure = make(*args, **kwargs)
        if figure.get_figwidth() <= WIDTH:
            _fit(figure)
        return figure

    return styled


def _fit(figure: Figure) -> None:
    """Wrap long titles and labels, and reduce the number of ticks."""
    for ax in figure.axes:
        spec = ax.get_subplotspec()
        letters = TITLE_LETTERS // (1 if spec is None else spec.get_gridspec().ncols)
        for text in (ax.title, ax.xaxis.label):
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
    columns : panels side by side, for panels with little text.
    options : as for ``Figure.subplots``.
    """
    rows = -(-panels // columns)
    figure = Figure(figsize=(WIDTH, rows * height), layout=ConstrainedLayoutEngine(h_pad=0.08))
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).ravel())
    for ax in axes[panels:]:
        ax.set_visible(False)
    return figure, axes[:panels]


def figure_section(name: str, title: str, text: str, figure: Figure, tables: tuple[Table, ...] = ()) -> Section:
    """Make a section of a page from a figure and the tables below it."""
    return Section(name, title, text, to_svg(name, figure), tables, alternative_text(figure))


# ---------------------------------------------------------------- colours


def color_scale(values: Iterable[float], *, signed: bool = False) -> Normalize:
    """Return one scale for finite values: logarithmic if the ratio of the positive ones is above ``LOG_FROM``.

    A logarithmic scale spans at most the ratio ``LOG_SPAN``; smaller values, and zero, get the colour of its lower
    end. Equal values get the colour in the middle.

    Parameters
    ----------
    values : all values that the scale is for.
    signed : whether the scale is symmetric around zero.
    """
    numbers = np.array([value for value in values if math.isfinite(value)])
    if not numbers.size:
        return Normalize(0.0, 1.0)
    low, high = float(numbers.min()), float(numbers.max())
    if signed:
        most = max(-low, high) or 1.0
        return Normalize(-most, most)
    if low >= 0 and high > 0:
        least = float(numbers[numbers > 0].min())
        if high / least > LOG_FROM:
            return LogNorm(max(least, high / LOG_SPAN), high, clip=True)
    around = (abs(low) * 0.1 or 1.0) if low == high else 0.0
    return Normalize(low - around, high + around)


def readable(fill: Any) -> str:
    """Return the text colour, dark or white, with more contrast on the fill (relative luminance, WCAG 2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(fill)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    dark = (luminance + 0.05) / 0.055 > 1.05 / (luminance + 0.05)
    if to_hex(fill) in DARK_COLORS:  # dark mode swaps the fill, and so the colour of text on it
        return INK if dark else "#ffffff"
    return ON_LIGHT if dark else ON_DARK


def color_bar(figure: Figure, norm: Normalize, cmap: str, label: str, axes: Any) -> Colorbar:
    """Draw the key of a colour scale below the axes."""
    looks: dict[str, Any] = {"orientation": "horizontal", "shrink": 0.8, "aspect": 30, "pad": 0.02}
    bar = figure.colorbar(ScalarMappable(norm, cmap), ax=axes, **looks)
    bar.ax.xaxis.set_major_locator(MaxNLocator(5, steps=TICK_STEPS))
    if isinstance(norm, LogNorm):
        log_ticks(bar.ax.xaxis)
        label += ", log scale"
    bar.set_label(label, size=8.5)
    bar.ax.tick_params(labelsize=8, length=2)
    bar.outline.set_visible(False)
    return bar


# ---------------------------------------------------------------- axes and keys


def log_ticks(axis: Any) -> None:
    """Put plain numbers at 1, 2 and 5 of a decade: at more of them within one decade, at 1 alone of many decades."""
    low, high = axis.get_view_interval()
    subs = (1.0,) if high > 1e4 * low else (1.0, 2.0, 5.0) if high > 5 * low else range(1, 10)
    axis.set_major_locator(LogLocator(subs=list(subs), numticks=20))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def mark(label: str, marker: str = "o", **style: Any) -> Line2D:
    """Return an entry of a key: a marker, or a line with the style ``ls``."""
    return Line2D([], [], marker=marker, label=label, **{"ls": "", "ms": 6, "mew": 1.3, **style})


def key(figure: Figure, handles: Sequence[Any]) -> None:
    """Add a key below the axes, and make the figure higher for it."""
    if not handles:
        return
    columns = 2 if max(len(str(handle.get_label())) for handle in handles) <= NAME_LETTERS else 1
    figure.set_figheight(figure.get_figheight() + KEY_ROW * -(-len(handles) // columns))
    legend = figure.legend(handles=handles, loc="outside lower left", ncols=columns, fontsize=8)
    for drawn_line, *entry in zip(handles, legend.legend_handles, legend.get_texts(), strict=True):
        for part in entry:
            if part is not None:
                part.set_gid(drawn_line.get_gid())


# ---------------------------------------------------------------- lines


@dataclass(frozen=True)
class Line:
    """Line of a chart, with a band from ``low`` to ``high``; ``style`` as from :func:`line_styles`."""

    y: Values
    label: str = ""
    low: Values | None = None
    high: Values | None = None
    style: Mapping[str, Any] | None = None

    @classmethod
    def over_seeds(cls, values: Any, label: str, style: Mapping[str, Any] | None = None) -> Line:
        """Make a line of means over seeds with a band of one sample standard deviation; NaN is left out.

        Parameters
        ----------
        values : an array of shape (seeds, points).
        label, style : of the line.
        """
        runs = np.ma.masked_invalid(np.asarray(values, dtype=np.float64))
        mean, sd = np.ma.filled(runs.mean(axis=0), np.nan), np.ma.filled(runs.std(axis=0, ddof=1), 0.0)
        return cls(mean, label, mean - sd, mean + sd, style)


@drawn
def line_chart(
    x: Sequence[float],
    panels: Mapping[str, Sequence[Line]],
    label: str,
    *,
    log: str = "",
    shared: bool = False,
    levels: Mapping[str, float] | None = None,
) -> Figure:
    """Draw lines over common points; pointing at a line or its key sets it off from the others.

    Parameters
    ----------
    x : the points: whole numbers, or any numbers on a logarithmic axis.
    panels : lines by the title of their panel.
    label : below the last axis.
    log : logarithmic axes: ``"x"``, ``"y"``, ``"xy"`` or ``""``.
    shared : whether all panels have the same upright scale, from 0 unless it is logarithmic.
    levels : values of level lines by label.
    """
    figure, axes = canvas(2.7, len(panels), sharey=shared)
    for ax, (heading, lines) in zip(axes, panels.items(), strict=True):
        for line, default in zip(lines, line_styles(map(str, range(len(lines)))).values(), strict=True):
            style = dict(line.style or default) | ({"marker": "o", "ms": 3.0} if len(x) <= MARKED else {})
            _draw_line(ax, x, line, style)
        for i, (text, value) in enumerate((levels or {}).items()):
            ax.axhline(value, color=SOFT, lw=1.1, ls=(":", "--", "-.")[i % 3], label=text)
        ax.set_title(heading)
        if "y" in log:
            ax.set_yscale("log")
            log_ticks(ax.yaxis)
        if "x" in log:
            ax.set_xscale("log")
            log_ticks(ax.xaxis)
        else:
            ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.grid(axis="y", color=GRID, lw=0.6)
        ax.set_axisbelow(True)
    if shared and "y" not in log:
        axes[0].set_ylim(bottom=0.0)
    axes[-1].set_xlabel(label)
    handles = {text: handle for ax in axes for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    key(figure, list(handles.values()))
    return figure


def _draw_line(ax: Axes, x: Any, line: Line, style: Mapping[str, Any]) -> None:
    """Draw a line and its band, both marked by the line's label."""
    parts: list[Artist] = [*ax.plot(x, line.y, lw=1.6, label=line.label or None, **style)]
    if line.low is not None and line.high is not None:
        parts.append(ax.fill_between(x, line.low, line.high, color=style["color"], alpha=0.15, lw=0))
    for part in parts:
        if line.label:
            part.set_gid(f"line:{printable(line.label)}")


def line_styles(titles: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return colour and dash of lines by title, so they look the same in all figures of a report."""
    return {
        title: {"color": COLORS[i % len(COLORS)], "ls": "-" if i < len(COLORS) else "--"}
        for i, title in enumerate(titles)
    }
