"""What every page is made of: sections, tables, and the one environment that renders templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

import toporo
from toporo.text import printable


@dataclass(frozen=True)
class Grid:
    """A table of text, for a page or the terminal.

    Attributes
    ----------
    columns, rows : titles, and one cell per column in every row.
    words : titles of the columns that hold no numbers.
    title : above the table; what is clicked where it is folded.
    folded : whether the table opens at a click.
    wide : whether it may leave the column of text.
    marked : rows, by number, to the class that styles them.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ()
    title: str = ""
    folded: bool = False
    wide: bool = False
    marked: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """A titled part of a page, in the order in which it is shown; all but the title may be missing.

    Attributes
    ----------
    name : its anchor, and the name of its figure's file.
    title : its heading.
    text : how to read it.
    svg : its figure.
    grids : its tables.
    statement : what is claimed, before anything else.
    findings : sentences below the figure.
    assumptions : what the section rests on, at its end.
    """

    name: str
    title: str
    text: str = ""
    svg: str = ""
    grids: tuple[Grid, ...] = ()
    statement: str = ""
    findings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def render(template: str, **context: Any) -> str:
    """A template of this package as text: names are escaped, and one that is not given is an error.

    Parameters
    ----------
    template : its file name, such as ``"model.html"``; pages extend ``base.html``.
    context : what it shows; ``version`` is there without being given.
    """
    return _environment().get_template(template).render(version=toporo.__version__, **context)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("toporo", "pages"),
        autoescape=True,
        finalize=_readable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _readable(value: object) -> object:
    """What a template shows: of text, signs that a page must not hold are written out."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
