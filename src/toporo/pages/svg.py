"""Matplotlib figures as SVG elements of a page: one style, marks for the script, and a text alternative."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from toporo.text import printable

#: Width in inches of a figure that a phone can show, and of one that scrolls there, such as a map.
WIDTH, WIDE = 4.3, 9.2
#: CSS pixels per point of a figure: at most, and at least where a figure scrolls.
MOST_PIXELS, LEAST_PIXELS = 1.65, 1.03
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
    "text.parse_math": False,  # names are text: a dollar starts no formula
}
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
#: Numbers with more decimals than needed: a tenth of a point is enough.
_LONG = re.compile(r"-?\d+\.\d{2,}")

ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)


def to_svg(name: str, figure: Figure) -> str:
    """Render a figure as an SVG element: the same bytes at every call, with identifiers that no other figure has.

    Artists marked by :func:`~toporo.topology.draw.mark_group` have the attribute ``data-key`` and the group's name as
    their title, labelled lines have ``data-series``. The browser draws the characters that matplotlib's font lacks.

    Parameters
    ----------
    name : unique on the page.
    figure : the figure.
    """
    _mark_series(figure)
    buffer = io.StringIO()
    with warnings.catch_warnings(), mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support .* natively")
        # savefig would draw twice, the first time for the layout only, which drawing computes anyway
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    root = ElementTree.fromstring(printable(buffer.getvalue()))  # noqa: S314 (matplotlib's own)
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    for element in list(root.iter()):
        _clean(element)
    width = 72 * figure.get_figwidth()
    least = f"; min-width: {LEAST_PIXELS * width:.0f}px" if figure.get_figwidth() > WIDTH else ""
    root.set("style", f"max-width: {MOST_PIXELS * width:.0f}px{least}")
    return ElementTree.tostring(root, encoding="unicode")


def _clean(element: ElementTree.Element) -> None:
    """Replace the identifiers of groups by marks for the script, and shorten numbers and white space."""
    identifier = element.get("id", "")
    if element.tag in (f"{{{SVG}}}g", f"{{{SVG}}}image"):  # nothing refers to these
        element.attrib.pop("id", None)
    if identifier.startswith("group:"):
        element.attrib |= {"data-key": identifier.removeprefix("group:"), "class": "hit"}
        ElementTree.SubElement(element, f"{{{SVG}}}title").text = element.get("data-key")
    elif identifier.startswith("series:"):
        element.set("data-series", identifier.removeprefix("series:"))
    elif identifier.startswith("legend"):
        element.set("class", "legend")
    for key in {"d", "x", "y"} & element.attrib.keys():
        element.set(key, _LONG.sub(lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), element.attrib[key]))
    if "d" in element.attrib:
        element.set("d", re.sub(r"\s*([A-Za-z])\s*", r"\1", element.attrib["d"].strip()))
    if element.tag not in (f"{{{SVG}}}text", f"{{{SVG}}}title"):
        element.text = (element.text or "").strip()
    element.tail = None


def _mark_series(figure: Figure) -> None:
    """Mark lines that have a label, and their entries in a legend, by that label."""
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


def _legends(figure: Figure) -> list[Legend]:
    return [*figure.legends, *(legend for ax in figure.axes if (legend := ax.get_legend()) is not None)]


def alternative_text(figure: Figure) -> str:
    """Describe a figure for readers who cannot see it: its panels, their axes, and its key."""
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
