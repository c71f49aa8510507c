"""Parts of every page: the verdict, sections, and the environment that renders templates."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

import toporo
from toporo.pages.table import Table
from toporo.text import printable
from toporo.topology.draw import TEST_COLOR, TRAIN_COLOR

#: Greys of paper, ink and lines, which dark mode swaps, and the dark counterparts of other colours. Colour scales are
#: the same in both modes.
GREYS = ("#ffffff", "#f6f7f9", "#f4f7fa", "#f3f5f7", "#eef0f2", "#e8ebee", "#e6e9ed", "#e5e7eb", "#e3e9ef", "#dfe3e8",
         "#d9dde3", "#d1d5db", "#d0d5dc", "#c4c9d1", "#c3c9d1", "#b4bbc5", "#b0b5bd", "#9ca3af", "#9aa1ab", "#8a8f98",
         "#6b7280", "#374151", "#1f2937", "#111827", "#000000")  # fmt: skip
NIGHT = {"#ffffff": "#14181f", TRAIN_COLOR: "#6ea8e8", TEST_COLOR: "#f0a040", "#0072b2": "#2f86d0",
         "#d55e00": "#f08a4b", "#009e73": "#2fb38a", "#cc79a7": "#e59ac6", "#56b4e9": "#a8e0ff", "#e69f00": "#ffd35c",
         "#606060": "#6f6f6f", "#dbeafe": "#1e3a5f", "#fde3cf": "#4a2c14"}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """Main result of a page in one sentence; ``tone`` is ``"good"``, ``"bad"`` or empty."""

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Section:
    """Part of a page.

    Attributes
    ----------
    name : its anchor, and the name of its figure's file.
    title : its heading.
    text : how to read it.
    svg : its figure.
    tables : its tables, below the figure.
    alt : description of the figure for readers who cannot see it.
    """

    name: str
    title: str
    text: str = ""
    svg: str = ""
    tables: tuple[Table, ...] = ()
    alt: str = ""


def render(template: str, **context: Any) -> str:
    """Render a template of this package; text is escaped, and a missing variable is an error.

    Parameters
    ----------
    template : its file name, such as ``"model.html"``; pages extend ``base.html``.
    context : its variables; ``version`` and ``night_colors`` are always there.
    """
    environment = Environment(
        loader=PackageLoader("toporo", "pages"),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    common = {"version": toporo.__version__, "night_colors": night_colors()}
    return environment.get_template(template).render(**common, **context)


@cache
def night_colors() -> dict[str, str]:
    """Return the dark counterpart of each colour of figures."""
    dark = {}
    for grey in GREYS:
        red, green, blue = bytes.fromhex(grey[1:])
        hue, light, depth = colorsys.rgb_to_hls(red / 255, green / 255, blue / 255)
        counterpart = colorsys.hls_to_rgb(hue, 0.1 + 0.83 * (1 - light) ** 0.85, min(depth, 0.16))
        dark[grey] = "#" + bytes(round(255 * part) for part in counterpart).hex()
    return dark | NIGHT


def _printable(value: object) -> object:
    """Escape control characters in text that is not markup."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
