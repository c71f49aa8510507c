"""How commands show tables and write pictures, and names that come from a file."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toporo.cli.common import split_names
from toporo.errors import DataError, SettingError, warn
from toporo.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Kinds of pictures, with what keeps the time of writing out of each.
PICTURES: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
#: Width of tables where no terminal says another.
WIDTH = 132


def refuse_inside(model: Path, wanted: Mapping[str, Path | None]) -> None:
    """A file among those of a model would damage it, or be lost when it is replaced."""
    for flag, path in wanted.items():
        if path is not None and path.resolve().parent == model.resolve():
            raise SettingError(f"{flag} {path} is in the folder of the model: choose a place of its own.")


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Collection[int] = ()) -> None:
    """A table on standard output, as wide as the terminal; columns of ``numbers`` stand to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for place, title in enumerate(titles):
        table.add_column(Text(title), justify="right" if place in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False).print(table)


def names_or_file(text: str | None, flag: str) -> list[str] | None:
    """Names between commas, or ``@FILE`` with one name per line."""
    if text is None or not text.startswith("@"):
        if text is not None and Path(text).suffix and Path(text).is_file():
            raise typer.BadParameter(f"{text} is a file: to read names from it, say @{text}.", param_hint=flag)
        return split_names(text, flag)
    path = Path(text[1:])
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise DataError(
            f"{flag} {text}: cannot read {path} ({why}). Expected a text file with one name per line."
        ) from None
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise typer.BadParameter(f"{path} holds no names: expected one per line.", param_hint=flag)
    return names


def write_picture(path: Path, draw: Callable[[], Figure]) -> None:
    """Draw a figure and write it in the form its name asks for; the same bytes every time."""
    import matplotlib as mpl

    kind = path.suffix.lower().removeprefix(".")
    signs = "the picture's font lacks signs that are in names: they are drawn as boxes."
    with (
        mpl.rc_context({"svg.hashsalt": "toporo", "text.parse_math": False}),  # a dollar in a name is one
        warnings.catch_warnings(record=True) as met,
    ):
        warnings.simplefilter("always")
        figure = draw()
        write_whole(path, lambda part: figure.savefig(part, format=kind, dpi=150, metadata=PICTURES[kind]))
    for message in dict.fromkeys(signs if "Glyph" in str(one.message) else str(one.message) for one in met):
        warn(message)


def graph_figure(draw: Callable[[Axes], object], groups: int) -> Figure:
    """A figure whose size suits so many groups, its axes filled by ``draw``."""
    from matplotlib.figure import Figure

    side = min(14.0, max(5.0, 1.5 * groups**0.5))
    figure = Figure(figsize=(1.2 * side, side), layout="constrained")
    draw(figure.subplots())
    return figure
