"""What all figures are drawn with: one style and width, axes, marks and keys; and figures as SVG text."""

from __future__ import annotations

import functools
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence, Sized
from typing import Any, ParamSpec
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, ListedColormap, LogNorm, Normalize, to_hex, to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter

from toporo.errors import DataError
from toporo.pages.render import GREYS, Section
from toporo.pages.table import Table
from toporo.text import printable, short_name
from toporo.topology.draw import mark_group

Parameters = ParamSpec("Parameters")

#: Inches across a figure, which can be read on a telephone, and across one that scrolls there, such as a map.
WIDTH, WIDE = 4.3, 9.2
#: Letters of a line of a title, and of a name beside a row, that a figure has room for.
TITLE_LETTERS, NAME_LETTERS = 48, 22
#: Inches of a row of a key.
KEY_ROW = 0.17
#: CSS pixels on a page of a point of a figure: at most, and at least where a figure scrolls.
ENLARGED, SCROLLED = 1.65, 1.03
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
SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
#: Numbers with more decimals than a path on a page needs: a tenth of a point is enough.
_LONG = re.compile(r"-?\d+\.\d{2,}")


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
        for text in (ax.title, getattr(ax, "_left_title"), ax.xaxis.label):  # noqa: B009 (a title on the left has no getter)
            text.set_text(_wrapped(text.get_text()))
        for axis in (ax.xaxis, ax.yaxis):
            locator = axis.get_major_locator()
            if isinstance(locator, MaxNLocator):
                locator.set_params(nbins=4)
    for text in figure.texts:
        text.set_text(_wrapped(text.get_text()))


def _wrapped(text: str) -> str:
    return "\n".join(line for part in text.split("\n") for line in textwrap.wrap(part, TITLE_LETTERS) or [""])


def canvas(height: float, panels: int = 1, *, columns: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, one below the other.

    Parameters
    ----------
    height : of a panel, in inches.
    panels : how many there are.
    columns : panels side by side, where each has little text.
    options : as ``Figure.subplots`` takes them.
    """
    rows = -(-panels // columns)
    figure = Figure(figsize=(WIDTH, rows * height), layout=ConstrainedLayoutEngine(h_pad=0.08))
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).ravel())
    for ax in axes[panels:]:
        ax.set_visible(False)
    return figure, axes[:panels]


def to_svg(name: str, figure: Figure) -> str:
    """The figure as an SVG element to put into a page: the same bytes at every call, identifiers of its own.

    Signs that matplotlib's font lacks are the reader's browser's to draw. What :func:`~toporo.topology.draw.mark_group`
    marked has the attribute ``data-key`` and the group's name as its title, lines with a label have ``data-series``.
    """
    _name_series(figure)
    buffer = io.StringIO()
    with warnings.catch_warnings(), mpl.rc_context(STYLE):
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support .* natively")
        # savefig would draw it twice, first for nothing but the layout, which drawing sees to anyhow.
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    root = ElementTree.fromstring(printable(buffer.getvalue()))  # noqa: S314 (matplotlib's own)
    for metadata in root.findall(f"{SVG}metadata"):
        root.remove(metadata)
    for element in root.iter():
        element.tag = element.tag.removeprefix(SVG)
        if element.get("id", "").startswith("image"):  # which two pictures alike would share, and nothing refers to
            del element.attrib["id"]
        element.attrib = dict(_attribute(name, *pair) for pair in element.items())
        if element.tag != "text":
            element.text = (element.text or "").strip()
        element.tail = None
        if "data-key" in element.attrib:
            element.set("class", "hit")
    for hit in root.findall(".//*[@data-key]"):
        ElementTree.SubElement(hit, "title").text = hit.get("data-key")
    root.attrib |= {"xmlns": SVG.strip("{}"), "xmlns:xlink": XLINK.strip("{}"), "style": _size(figure)}
    return ElementTree.tostring(root, encoding="unicode")


def _attribute(figure: str, name: str, value: str) -> tuple[str, str]:
    """An attribute as it stands on a page: marks for the script, identifiers of this figure alone, short numbers."""
    for mark, kept in (("group:", "data-key"), ("series:", "data-series")):
        if name == "id" and value.startswith(mark):
            return kept, value.removeprefix(mark)
    if name == "id":
        return name, f"{figure}-{value}"
    if name == f"{XLINK}href":
        return "xlink:href", f"#{figure}-{value[1:]}" if value.startswith("#") else value
    if name == "d":
        return name, _LONG.sub(_rounded, re.sub(r"\s*([A-Za-z])\s*", r"\1", value.strip()))
    if name in ("x", "y"):
        return name, _LONG.sub(_rounded, value)
    return name, value.replace("url(#", f"url(#{figure}-")


def _size(figure: Figure) -> str:
    """How wide a figure may be on a page, and how narrow: one that is wide scrolls, so that it can be read."""
    points = 72 * figure.get_figwidth()
    least = f"; min-width: {SCROLLED * points:.0f}px" if figure.get_figwidth() > WIDTH else ""
    return f"max-width: {ENLARGED * points:.0f}px{least}"


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


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


def figure_section(
    name: str, title: str, text: str, figure: Figure, tables: tuple[Table, ...] = (), **rest: Any
) -> Section:
    """A section around a figure.

    Parameters
    ----------
    name, title, text, tables, rest : of the section.
    figure : what it shows.
    """
    return Section(name, title, text, to_svg(name, figure), tables, **{"alt": alternative(figure)} | rest)


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


def name_ticks(ax: Axes, names: Iterable[Hashable], *, few: int = 10) -> None:
    """Names below their places 0, 1, 2, …; more than a few of them are small and upright."""
    names = list(names)
    texts = [str(name) for name in names]
    many = len(texts) > few
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
    names = [short_name(name, NAME_LETTERS) for name in names]
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


def key(figure: Figure, handles: Sequence[Any], **options: Any) -> None:
    """What the marks mean, below the axes, for which the figure grows; in two columns where the labels are short."""
    columns = len(handles)
    if figure.get_figwidth() <= WIDTH:
        longest = max((len(str(handle.get_label())) for handle in handles), default=0)
        columns = min(columns, 2 if longest <= NAME_LETTERS else 1)
        rows = -(-len(handles) // max(columns, 1)) + ("title" in options)
        figure.set_figheight(figure.get_figheight() + KEY_ROW * rows)
    figure.legend(handles=handles, loc="outside lower left", ncols=max(columns, 1), fontsize=8, **options)
