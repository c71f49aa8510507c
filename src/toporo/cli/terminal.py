"""Text and tables on standard output and standard error."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Sequence
from textwrap import fill
from typing import Any, Literal

import typer

from toporo.progress import current_watch, make_console
from toporo.text import many, printable, write_data

#: A longer name is broken where there is little room.
LONG_WORD = 24
#: Names and options stay in one piece.
WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
#: Width of tables where no terminal says another.
WIDTH = 132


def say(message: str, *, err: bool = False) -> None:
    """A line for people, on standard output or standard error: names in it cannot command the terminal."""
    watch = current_watch() if err else None
    if watch is None or not watch.print_above(message):
        typer.echo(printable(message), err=err)


def tell(sentence: str) -> None:
    """A sentence for people on standard output: on a terminal no word is broken at the end of a line."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    say(sentence if width is None else fill(sentence, width, **WHOLE_WORDS))


def say_data(text: str) -> None:
    """Data for programs on standard output; see :func:`write_data`."""
    write_data(sys.stdout, f"{text}\n")


def print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Collection[int] = (),
    most: int | None = None,
    thing: str = "row",
) -> None:
    """A table on standard output, as wide as the terminal; columns of ``numbers`` stand to the right.

    Where there is little room, heads and cells break between words, and the last columns of numbers are left out.
    Of more rows than ``most`` the first are shown, and how many more of that ``thing`` there are.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    console = make_console(width=None if sys.stdout.isatty() else WIDTH)
    heads = [printable(title, keep="") for title in titles]
    cells = [[printable(cell, keep="") for cell in row] for row in rows[: shown_of(len(rows), most)]]
    places, room = list(range(len(heads))), console.width
    own = [max((cell_len(row[place]) for row in cells), default=0) for place in places]
    widths = [max(own[place], cell_len(heads[place]), 1) for place in places]
    table = Table()
    if sum(widths) + 3 * len(heads) >= room:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        words = [" ".join([heads[place], *(row[place] for row in cells)]).split() for place in places]
        least = [max(map(cell_len, each), default=1) for each in words]
        least = [size if place in numbers else min(size, LONG_WORD) for place, size in enumerate(least)]
        while (
            sum(least[place] + 2 for place in places) >= room and (last := max({*places} & {*numbers}, default=1)) > 1
        ):
            places.remove(last)
        widths = [max(size, each) for size, each in zip(own, least, strict=True)]
        while sum(widths[place] + 2 for place in places) >= room:
            widest = max(places, key=lambda place: widths[place] - least[place])
            if widths[widest] <= least[widest]:
                break
            widths[widest] -= 1
    for place in places:
        justify: Literal["right", "left"] = "right" if place in numbers else "left"
        table.add_column(Text(heads[place]), justify=justify, overflow="fold", width=widths[place])
    for row in cells:
        table.add_row(*(Text(row[place]) for place in places))
    console.print(table)
    if len(places) < len(heads):
        say(f"No room for {', '.join(titles[place] for place in range(len(heads)) if place not in places)}.")
    say_more(len(rows) - len(cells), thing)


def shown_of(count: int, most: int | None) -> int:
    """How many of so many lines are shown, of which at most so many have room: one alone is not left out.

    >>> shown_of(9, 10), shown_of(11, 10), shown_of(12, 10), shown_of(12, None)
    (9, 11, 10, 12)
    """
    return count if most is None or count <= most + 1 else most


def say_more(count: int, thing: str) -> None:
    """How many more there are than were shown, if any."""
    if count > 0:
        say(f"… {many(count, f'more {thing}')} (--verbose)")
