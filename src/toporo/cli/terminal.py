"""Text and tables on standard output and standard error."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import typer

from toporo.progress import current_watch, make_console
from toporo.text import many, printable, write_data

#: Width of tables where no terminal says another, and of words that are not broken.
WIDTH, LONG_WORD = 132, 24


def say(message: str, *, err: bool = False) -> None:
    """Print a line on standard output or standard error: names in it cannot command the terminal."""
    watch = current_watch() if err else None
    if watch is None or not watch.print_above(message):
        typer.echo(printable(message), err=err)


def tell(*sentences: str, indent: str = "") -> None:
    """Print sentences on standard output, on a terminal in lines that break between words; empty ones are left out."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10**6
    for sentence in filter(None, sentences):
        blanks = " " * len(indent)
        say(fill(indent + sentence, width, subsequent_indent=blanks, break_long_words=False, break_on_hyphens=False))


def say_data(content: Any) -> None:
    """Print JSON, or text that is JSON, on standard output; see :func:`write_data`."""
    text = content if isinstance(content, str) else json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_data(sys.stdout, f"{text}\n")


def say_files(files: Mapping[str, Path], *, err: bool) -> None:
    """Print which files were written."""
    for what, path in files.items():
        say(f"{what}: {path}", err=err)


def say_more(count: int, thing: str) -> None:
    """Print how many more there are than were shown, if any."""
    if count > 0:
        say(f"… {many(count, f'more {thing}')} (--verbose)")


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Collection[int] = ()) -> None:
    """Print a table as wide as the terminal, with columns of ``numbers`` to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = make_console(width=None if sys.stdout.isatty() else WIDTH)
    lines = [[Text(printable(cell, keep="")) for cell in row] for row in (titles, *rows)]
    room = console.width - sum(max(text.cell_len for text in column) + 3 for column in zip(*lines, strict=True))
    table = Table() if room > 0 else Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for place, title in enumerate(lines[0]):
        words = [word.cell_len for line in lines for word in line[place].split(" ")]
        least = min(LONG_WORD, max(words, default=1))  # where there is little room, cells break between words
        table.add_column(title, justify="right" if place in numbers else "left", overflow="fold", min_width=least)
    for line in lines[1:]:
        table.add_row(*line)
    console.print(table)
