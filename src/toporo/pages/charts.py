"""What all figures are drawn with: one style and width, axes, marks and keys; and figures as SVG text."""

from __future__ import annotations

import functools
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence, Sized
from contextvars import ContextVar
from typing import Any, Literal, ParamSpec
from weakref import WeakKeyDictionary

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, ListedColormap, LogNorm, Normalize, to_hex, to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter

from toporo.errors import DataError
from toporo.pages.render import GREYS, Grid, Section
from toporo.text import printable, short_name
from toporo.topology.draw import mark_group

Parameters = ParamSpec("Parameters")
Place = Literal["lower left", "lower center", "lower right", "upper right"]

#: Inches across a page, and across one on a telephone.
WIDTH, NARROW = 9.2, 4.0
#: Letters of a title, and of a name beside a row, that a narrow figure has room for.
NARROW_TITLE, NARROW_NAME = 46, 20
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#6b7280",
    "axes.grid": False,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "toporo",
    "text.parse_math": False,  # names are text: a dollar starts no formula
}
#: Colour-blind safe (Okabe & Ito 2008; their grey is darker here, so that nobody takes it for the green).
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#606060", "#000000")
SOFT, GRID, INK, SHADE = "#6b7280", "#e5e7eb", "#111827", "#f6f7f9"
#: Text on a fill that is the same by day and by night.
ON_LIGHT, ON_DARK = "#0b0f14", "#fefefe"
#: Steps between ticks that people can add up.
TICK_STEPS = (1, 2, 2.5, 5, 10)
#: Positive values further apart than this factor get a logarithmic colour scale, over the second factor at most.
LOG_FROM, LOG_SPAN = 30.0, 1e3
#: Lines of no more points than this have a mark at each.
MARKED = 8
#: Numbers with more decimals than a path on a page needs: a tenth of a point is enough.
_LONG = re.compile(r"-?\d+\.\d{2,}")


_narrow: ContextVar[bool] = ContextVar("narrow", default=False)
_again: WeakKeyDictionary[Figure, Callable[[], Figure]] = WeakKeyDictionary()


# ---------------------------------------------------------------- figures


def drawn(make: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """Let a function draw its figure in the style of the pages, and again where a page is narrow."""

    @functools.wraps(make)
    def styled(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Figure:
        with mpl.rc_context(STYLE):
            figure = make(*args, **kwargs)
        _again[figure] = functools.partial(styled, *args, **kwargs)
        return figure

    return styled


def is_narrow() -> bool:
    """Whether what is being drawn is for a telephone."""
    return _narrow.get()


def canvas(
    height: float, rows: int = 1, columns: int = 1, *, panels: int | None = None, square: bool = False, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure as wide as a page, and its axes row by row; on a narrow page one below the other.

    Parameters
    ----------
    height : in inches.
    rows, columns : of the axes.
    panels : how many axes are wanted; the others are hidden.
    square : whether what is drawn keeps its shape, as maps do, so that a narrow figure is a low one.
    options : as ``Figure.subplots`` takes them.
    """
    width, shown = WIDTH, rows * columns if panels is None else panels
    if is_narrow():
        width, height, rows, columns = NARROW, _stacked(height, rows, columns, shown, square=square), shown, 1
        options = {name: value for name, value in options.items() if not name.endswith("_ratios")}
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).ravel())
    for ax in axes[len(axes) if panels is None else panels :]:
        ax.set_visible(False)
    return figure, axes[:panels]


def _stacked(height: float, rows: int, columns: int, panels: int, *, square: bool) -> float:
    """The height of a figure whose panels stand one below the other."""
    each = height / rows
    return panels * (min(each, 0.5 + each * columns * NARROW / WIDTH) if square else each)


def to_svg(name: str, figure: Figure) -> str:
    """The figure as an SVG element to put into a page: the same bytes at every call, identifiers of its own.

    Signs that matplotlib's font lacks are the reader's browser's to draw. What :func:`~toporo.topology.draw.mark_group`
    marked has the attribute ``data-key``, lines with a label have ``data-series``.
    """
    _name_series(figure)
    buffer = io.StringIO()
    with warnings.catch_warnings(), mpl.rc_context(STYLE):
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support .* natively")
        # savefig would draw it twice, first for nothing but the layout, which drawing sees to anyhow.
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    svg = re.sub(r"^.*?(?=<svg)", "", printable(buffer.getvalue()), count=1, flags=re.DOTALL)
    svg = re.sub(r'(?<= d=")[^"]*', _shortened, svg)
    svg = re.sub(r' id="image[0-9a-f]+"', "", svg)  # which two pictures alike would share, and nothing refers to
    svg = re.sub(r'(?<= [xy]=")-?\d+\.\d{2,}(?=")', _rounded, svg)
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r">\s+<", "><", svg)
    svg = re.sub(r' id="group:([^"]*)"', r' class="hit" data-key="\1"', svg)
    svg = re.sub(r' id="series:([^"]*)"', r' data-series="\1"', svg)
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)


def _legends(figure: Figure) -> list[Legend]:
    own = (*figure.legends, *(ax.get_legend() for ax in figure.axes))
    return [legend for legend in own if legend is not None]


def _name_series(figure: Figure) -> None:
    """Mark lines and bands that have a label, and what a key says of them, by that label."""
    for ax in figure.axes:
        labelled: list[tuple[Any, Any]] = [(artist, artist.get_label()) for artist in ax.lines]
        for box in ax.containers:
            if isinstance(box, ErrorbarContainer):
                labelled += [(artist, box.get_label()) for artist in box.get_children()]
        for artist, label in labelled:
            if artist.get_gid() is None and label and not str(label).startswith("_"):
                artist.set_gid(f"series:{label}")
    for legend in _legends(figure):
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            for part in (handle, text):
                if part is not None:
                    part.set_gid(f"series:{text.get_text()}")


def _shortened(path: re.Match[str]) -> str:
    """A path without the decimals and the blanks that nobody sees."""
    return _LONG.sub(_rounded, re.sub(r"\s*([A-Za-z])\s*", r"\1", path[0].strip()))


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def figure_section(
    name: str, title: str, text: str, figure: Figure, grids: tuple[Grid, ...] = (), **rest: Any
) -> Section:
    """A section around a figure, which is drawn twice: for a wide page and for a narrow one.

    Parameters
    ----------
    name, title, text, grids, rest : of the section.
    figure : from a function that is ``drawn``; one that is not is shown as it is, and moves from side to side.
    """
    rest = {"narrow": _narrow_svg(name, figure), "alt": alternative(figure)} | rest
    return Section(name, title, text, to_svg(name, figure), grids, **rest)


def _narrow_svg(name: str, figure: Figure) -> str:
    """The figure drawn again for a narrow page; nothing where it cannot be narrower."""
    again = _again.get(figure)
    if again is None or figure.get_figwidth() <= 1.1 * NARROW:
        return ""
    token = _narrow.set(True)
    try:
        small = again()
    finally:
        _narrow.reset(token)
    if small.get_figwidth() > 1.1 * NARROW:
        return ""
    for ax in small.axes:
        for text in (ax.title, getattr(ax, "_left_title"), ax.xaxis.label):  # noqa: B009 (a title on the left has no getter)
            text.set_text(_wrapped(text.get_text()))
        for axis in (ax.xaxis, ax.yaxis):
            locator = axis.get_major_locator()
            if isinstance(locator, MaxNLocator):
                locator.set_params(nbins=4)
    for text in small.texts:
        text.set_text(_wrapped(text.get_text()))
    return to_svg(f"{name}-narrow", small)


def _wrapped(text: str) -> str:
    return "\n".join(line for part in text.split("\n") for line in textwrap.wrap(part, NARROW_TITLE) or [""])


def alternative(figure: Figure) -> str:
    """What a figure shows, for those who cannot see it: its panels, their axes and its key."""
    parts = []
    for ax in figure.axes:
        if ax.get_visible() and ax.get_label() != "<colorbar>":
            title = " ".join(filter(None, (ax.get_title(loc) for loc in ("left", "center"))))
            across = f"across: {ax.get_xlabel()}" if ax.get_xlabel() else ""
            up = f"up: {ax.get_ylabel()}" if ax.get_ylabel() else ""
            parts.append(", ".join(filter(None, [title, across, up])))
    bars = [ax.get_xlabel() or ax.get_ylabel() for ax in figure.axes if ax.get_label() == "<colorbar>"]
    names = list(dict.fromkeys(text.get_text() for legend in _legends(figure) for text in legend.get_texts()))
    parts += [f"colours: {label}" for label in bars if label]
    parts += [f"key: {'; '.join(names)}"] if names else []
    return " ".join(". ".join(filter(None, parts)).split())


# ---------------------------------------------------------------- colours


def part_of(name: str, low: float = 0.0, high: float = 1.0) -> Colormap:
    """A stretch of one of matplotlib's colour maps, to leave out ends that are too pale or too dark."""
    return ListedColormap(mpl.colormaps[name](np.linspace(low, high, 256)), name=f"{name} {low:g} to {high:g}")


def color_scale(values: Iterable[float]) -> Normalize:
    """One scale for all values: linear, or logarithmic where the positive ones differ by more than ``LOG_FROM`` times.

    The logarithmic scale spans ``LOG_SPAN`` times at most; what is smaller, and zero, has the colour of its lower end.
    Values all alike stand in the middle of the scale.
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
    """The value, which must be one that has a place on a scale of colours; ``of`` is whose it is."""
    number = float(value)
    if not math.isfinite(number):
        where = f" for {of!r}" if of else ""
        raise DataError(
            f"a map needs finite numbers; found {number}{where}. Leave the state out to draw it as missing."
        )
    return number


def readable(fill: Any) -> str:
    """Dark or white, whichever stands out more on the fill (relative luminance, WCAG 2).

    On greys, which change places in the dark, it changes with them.
    """
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(fill)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    dark = (luminance + 0.05) / 0.055 > 1.05 / (luminance + 0.05)
    if to_hex(fill) in GREYS:
        return INK if dark else "#ffffff"
    return ON_LIGHT if dark else ON_DARK


def color_bar(figure: Figure, colored: Any, label: str, *, across: bool = False, **place: Any) -> Colorbar:
    """The key of a colour scale, with few ticks; ``place`` as ``Figure.colorbar`` takes it."""
    if "cax" not in place:
        place = {"shrink": 0.8, "aspect": 20, "pad": 0.02} | place
    bar = figure.colorbar(colored, orientation="horizontal" if across else "vertical", **place)
    axis = bar.ax.xaxis if across else bar.ax.yaxis
    axis.set_major_locator(MaxNLocator(5, steps=TICK_STEPS))
    if isinstance(colored.norm, LogNorm):
        log_ticks(axis)
        label += ", log scale" if label else ""
    bar.set_label(label, size=8.5)
    bar.ax.tick_params(labelsize=8, length=2)
    bar.outline.set_visible(False)
    return bar


# ---------------------------------------------------------------- axes


def log_ticks(axis: Any, *, decades: bool = False) -> None:
    """Plain numbers at 1, 2 and 5 of a decade; at more of them where there is less than one, or at decades alone."""
    low, high = axis.get_view_interval()
    subs = (1.0,) if decades or high > 1e5 * low else (1.0, 2.0, 5.0) if high > 5 * low else range(1, 10)
    axis.set_major_locator(LogLocator(subs=list(subs), numticks=20))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def name_ticks(ax: Axes, names: Iterable[Hashable], *, few: int = 20) -> None:
    """Names below their places 0, 1, 2, …; more than a few of them are small and upright."""
    names = list(names)
    texts = [str(name) for name in names]
    many = len(texts) > (few // 2 if is_narrow() else few)
    ax.set_xticks(range(len(texts)), texts, fontsize=6 if many else 8, rotation=90 * many)
    for i, name in enumerate(names):
        mark_group(ax.axvspan(i - 0.5, i + 0.5, facecolor="none", lw=0, zorder=9), name)


def name_rows(
    axes: Sequence[Axes], names: Sequence[str], *, keys: Sequence[Hashable] | None = None, rest: bool = False
) -> None:
    """Rows with a name each, the first on top, every second shaded; one more row for the rest.

    Parameters
    ----------
    axes : side by side, or one below the other.
    names : as they are written.
    keys : whose rows they are, if that is not what is written.
    rest : whether there is one more row.
    """
    keys = names if keys is None else keys
    names = [short_name(name, NARROW_NAME) for name in names] if is_narrow() else names
    count = len(names) + rest
    for ax in axes:
        for i in range(0, count, 2):
            ax.axhspan(i - 0.5, i + 0.5, color=SHADE, lw=0, zorder=0)
        for i, key in enumerate(keys):
            mark_group(ax.axhspan(i - 0.5, i + 0.5, facecolor="none", lw=0, zorder=9), key)
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(count - 0.5, -0.5)


def in_row(ax: Axes, row: float, text: str, *, middle: bool = False) -> None:
    """Words in a row where there is nothing to draw."""
    place = {"x": 0.5, "ha": "center", "size": 7} if middle else {"x": 0.01, "size": 8}
    ax.text(y=row, s=text, transform=ax.get_yaxis_transform(), color=SOFT, va="center", zorder=5, **place)


def level_lines(ax: Axes) -> None:
    """Faint lines at the ticks of the upright axis, behind all else."""
    ax.grid(axis="y", color=GRID, lw=0.6)
    ax.set_axisbelow(True)


def bare(ax: Axes) -> None:
    """Neither ticks nor a frame."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


# ---------------------------------------------------------------- marks and keys


def line_style(index: int) -> dict[str, Any]:
    """Colour and dash of the index-th line."""
    return {"color": COLORS[index % len(COLORS)], "ls": "-" if index < len(COLORS) else "--"}


def line_styles(titles: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and dash of lines by their titles: the same titles look the same in all figures of a report."""
    return {title: line_style(i) for i, title in enumerate(titles)}


def few_points(points: Sized) -> dict[str, Any]:
    """A mark at each point where they are so few that the line between them is a guess."""
    return {"marker": "o", "ms": 3.0, "clip_on": False} if len(points) <= MARKED else {}


def curve(ax: Axes, x: Any, y: Any, low: Any, high: Any, *, shade: float = 0.15, **style: Any) -> None:
    """A line, shaded from low to high."""
    ax.plot(x, y, lw=1.6, **style)
    band = ax.fill_between(x, low, high, color=style["color"], alpha=shade, lw=0)
    if "label" in style:
        band.set_gid(f"series:{style['label']}")


def spread(ax: Axes, place: float, value: float, low: float, high: float, *, across: bool = True, **style: Any) -> None:
    """A dot at a value in its place, with a bar from low to high where there are such ends."""
    ends = None
    if math.isfinite(low) and math.isfinite(high) and (low, high) != (value, value):
        ends = [[max(value - low, 0.0)], [max(high - value, 0.0)]]
    looks: dict[str, Any] = {"ls": "", "marker": "o", "ms": 5, "elinewidth": 1.4, "capsize": 0, "zorder": 3, **style}
    if across:
        ax.errorbar(value, place, xerr=ends, **looks)
    else:
        ax.errorbar(place, value, yerr=ends, **looks)


def mark(label: str, marker: str = "o", **style: Any) -> Line2D:
    """A mark for a key."""
    looks: dict[str, Any] = {"ms": 6, "mew": 1.3, **style}
    return Line2D([], [], ls="", marker=marker, label=label, **looks)


def stroke(label: str, **style: Any) -> Line2D:
    """A line for a key, thin and dotted unless told otherwise."""
    looks: dict[str, Any] = {"color": SOFT, "lw": 0.9, "ls": ":", **style}
    return Line2D([], [], label=label, **looks)


def key(figure: Figure, handles: Sequence[Any], place: Place = "lower right", *, columns: int | None = None) -> None:
    """What the marks mean, outside the axes."""
    columns = columns or len(handles)
    if is_narrow():
        columns = min(columns, 1 if any(len(str(handle.get_label())) > NARROW_NAME for handle in handles) else 2)
    options: dict[str, Any] = {"loc": f"outside {place}", "ncols": columns, "fontsize": 8}
    figure.legend(handles=handles, **options)


def key_beside(ax: Axes, **options: Any) -> None:
    """What the lines mean, right of the axes; below them where the page is narrow."""
    place: dict[str, Any] = {"bbox_to_anchor": (1.0, 1.0), "loc": "upper left"}
    if is_narrow():
        labels = ax.get_legend_handles_labels()[1]
        few = max(map(len, labels), default=0) <= NARROW_NAME
        place = {"bbox_to_anchor": (0.0, -0.22), "loc": "upper left", "ncols": 2 if few else 1}
    ax.legend(fontsize=8, **place, **options)
