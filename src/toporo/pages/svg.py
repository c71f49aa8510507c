"""Matplotlib figures as SVG elements of a page: one style, marks for the script, and a text alternative."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from toporo.text import printable

#: Width in inches of a figure that fits on a phone, and of one that scrolls there.
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
    "text.parse_math": False,  # a dollar in a name does not start a formula
}
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
#: CSS classes by the prefix of an artist's identifier: ``group:NAME`` or ``line:LABEL``.
CLASSES = {"group": "hit", "line": "hit line"}
#: Numbers with more decimals than needed: a tenth of a point is enough.
_LONG = re.compile(r"-?\d+\.\d{2,}")

ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)


def to_svg(name: str, figure: Figure) -> str:
    """Render a figure as an SVG element.

    The same figure always gives the same bytes, and identifiers are unique on the page. Artists with the id
    ``group:NAME`` (see :func:`~toporo.topology.draw.mark_group`) or ``line:LABEL`` get the attribute ``data-key`` and
    a title. The browser draws the characters that matplotlib's font lacks.

    Parameters
    ----------
    name : unique on the page.
    figure : the figure.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings(), mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support .* natively")
        # savefig would draw twice, first for a layout that drawing computes anyway
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    root = ElementTree.fromstring(printable(buffer.getvalue()))  # noqa: S314 (matplotlib's own output)
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    for element in list(root.iter()):
        _clean(element)
    width = 72 * figure.get_figwidth()
    least = f"; min-width: {LEAST_PIXELS * width:.0f}px" if figure.get_figwidth() > WIDTH else ""
    root.set("style", f"max-width: {MOST_PIXELS * width:.0f}px{least}")
    return ElementTree.tostring(root, encoding="unicode")


def _clean(element: ElementTree.Element) -> None:
    """Replace identifiers of marked artists by attributes, and shorten numbers and white space."""
    kind, _, key = element.get("id", "").partition(":")
    if element.tag in (f"{{{SVG}}}g", f"{{{SVG}}}image"):  # nothing refers to these
        element.attrib.pop("id", None)
    if kind in CLASSES:
        element.attrib |= {"data-key": key, "class": CLASSES[kind]}
        ElementTree.SubElement(element, f"{{{SVG}}}title").text = key
    for name in {"d", "x", "y"} & element.attrib.keys():
        element.set(name, _LONG.sub(lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), element.attrib[name]))
    if "d" in element.attrib:
        element.set("d", re.sub(r"\s*([A-Za-z])\s*", r"\1", element.attrib["d"].strip()))
    if element.tag not in (f"{{{SVG}}}text", f"{{{SVG}}}title"):
        element.text = (element.text or "").strip()
    element.tail = None


def alternative_text(figure: Figure) -> str:
    """Describe the panels, axes and key of a figure for readers who cannot see it."""
    parts = []
    for ax in figure.axes:
        if ax.get_visible():
            across = "colours" if ax.get_label() == "<colorbar>" else "across"
            labels = [f"{word}: {text}" for word, text in ((across, ax.get_xlabel()), ("up", ax.get_ylabel())) if text]
            parts.append(", ".join([*filter(None, [ax.get_title()]), *labels]))
    legends = [*figure.legends, *(legend for ax in figure.axes if (legend := ax.get_legend()) is not None)]
    names = dict.fromkeys(text.get_text() for legend in legends for text in legend.get_texts())
    parts += [f"key: {'; '.join(names)}"] if names else []
    return " ".join(". ".join(filter(None, parts)).split())
