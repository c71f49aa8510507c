"""Parts of every page: the verdict, sections, and the environment that renders templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

import toporo
from toporo.pages.table import Table
from toporo.text import printable
from toporo.topology.draw import TEST_COLOR, TRAIN_COLOR

#: Colours of figures and their counterparts in dark mode; colour scales are the same in both modes.
DARK_COLORS = {
    "#ffffff": "#14181f", "#f6f7f9": "#1e222a", "#eef0f2": "#272d32", "#e5e7eb": "#2e333c", "#d9dde3": "#353d48",
    "#d1d5db": "#3e454f", "#c4c9d1": "#474e5b", "#b0b5bd": "#59606b", "#9ca3af": "#646d7c", "#9aa1ab": "#68717d",
    "#8a8f98": "#797f89", "#6b7280": "#8d94a0", "#374151": "#b1bac7", "#1f2937": "#c7cdd6", "#111827": "#d3d7df",
    "#000000": "#ededed", "#0072b2": "#2f86d0", "#d55e00": "#f08a4b", "#009e73": "#2fb38a", "#cc79a7": "#e59ac6",
    "#56b4e9": "#a8e0ff", "#e69f00": "#ffd35c", "#606060": "#6f6f6f", "#dbeafe": "#1e3a5f", "#fde3cf": "#4a2c14",
    TRAIN_COLOR: "#6ea8e8", TEST_COLOR: "#f0a040",
}  # fmt: skip


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
    context : its variables; ``version`` and ``dark_colors`` are always there.
    """
    environment = Environment(
        loader=PackageLoader("toporo", "pages"),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    common = {"version": toporo.__version__, "dark_colors": DARK_COLORS}
    return environment.get_template(template).render(**common, **context)


def _printable(value: object) -> object:
    """Escape control characters in text that is not markup."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
