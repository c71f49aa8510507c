"""What pages share: titled figures."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from toporo.pages.figures import to_svg


@dataclass(frozen=True)
class Section:
    """A titled figure with a sentence on how to read it; ``name`` is its file's."""

    name: str
    title: str
    text: str
    svg: str


def figure_section(name: str, title: str, text: str, figure: Figure) -> Section:
    """A section around a figure."""
    return Section(name, title, text, to_svg(name, figure))
