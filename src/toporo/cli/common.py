"""What the commands share: exit codes, options, progress and messages on standard error."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from toporo.errors import DataError, SettingError, TopoRoWarning

if TYPE_CHECKING:
    from toporo.bench.results import Job


#: Exit codes: 0 all went well, 1 a mistake in what was asked or given, 2 a mistake in how it was typed.
USER_ERROR = 1
INTERRUPTED = 130


def split_names(text: str | None, flag: str) -> list[str] | None:
    """Names between commas; one that holds a comma stands in double quotes."""
    import csv

    if text is None:
        return None
    try:
        names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error as error:
        raise typer.BadParameter(f"cannot be read as names between commas ({error}).", param_hint=flag) from None
    if not all(names) or not names:
        raise typer.BadParameter(f"{text!r} has an empty name: expected names between commas.", param_hint=flag)
    return names


def delimiter_sign(text: str) -> str:
    """What stands between cells, from an option that may spell a tab out."""
    sign = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(sign) != 1 or sign in '"\r\n':
        raise typer.BadParameter(f"{text!r} is not a single character such as , or ; (for a tab say tab).")
    return sign


def data_source(text: str) -> str | BinaryIO:
    """Where a table is read from: a path, or standard input for ``-``."""
    if text != "-":
        return text
    if sys.stdin is None:
        raise DataError("standard input is closed: give the name of a file, or a pipe.")
    return sys.stdin.buffer


def check_writable(
    data: str, wanted: Mapping[str, Path | None], *, endings: Mapping[str, Iterable[str]] | None = None
) -> None:
    """What would keep a file from being written is an error before the work, not after.

    ``wanted`` holds paths by flag, ``data`` the table that none of them may overwrite, and ``endings`` by flag how a
    name may end, without the dot.
    """
    taken = {} if data == "-" else {Path(data).resolve(): "the table itself"}
    for flag, path in wanted.items():
        if path is None:
            continue
        allowed = list((endings or {}).get(flag, ()))
        if allowed and path.suffix.lower().removeprefix(".") not in allowed:
            raise SettingError(f"{flag} {path}: expected a name that ends in {', '.join('.' + s for s in allowed)}.")
        if not path.parent.is_dir():
            raise SettingError(f"{flag} {path}: there is no folder {path.parent}. Make it first, or choose another.")
        if path.exists() and not path.is_file():
            raise SettingError(f"{flag} {path}: that is not a plain file. Give the name of one.")
        if not os.access(path.parent, os.W_OK):
            raise SettingError(f"{flag} {path}: the folder {path.parent} may not be written to. Choose another.")
        other = taken.setdefault(path.resolve(), flag)
        if other != flag:
            raise SettingError(f"{flag} {path} is {other}: give every file a name of its own.")


def option(help: str, panel: str, *names: str, **settings: Any) -> Any:  # noqa: A002  # as typer calls it
    """A typer option in one of the panels of a help page."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **settings)


def use_utf8() -> None:
    """Let what goes into a file or a pipe be UTF-8 wherever it is written, and a terminal show what it can."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if stream.isatty():
                stream.reconfigure(errors="backslashreplace")
            else:
                stream.reconfigure(encoding="utf-8", newline="\n")


_DATA = "Data"
#: Options and arguments that several commands have.
Delimiter = Annotated[
    str, option("What stands between cells; tab for a tab.", _DATA, callback=delimiter_sign, metavar="SIGN")
]
Exclude = Annotated[str | None, option("Columns not to use.", _DATA, metavar="NAMES")]
Categorical = Annotated[str | None, option("Columns of numbers that are names of things.", _DATA, metavar="NAMES")]
GroupColumn = Annotated[str, option("Column with the group of every row.", _DATA, metavar="COLUMN")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, written by toporo fit.")]


def many(count: int, thing: str) -> str:
    """A count and its noun: ``1 edge``, ``2 edges``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


@contextmanager
def plain_warnings() -> Iterator[None]:
    """toporo's warnings as lines on standard error, without the file names of Python's."""
    import warnings

    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, TopoRoWarning):
                typer.echo(f"toporo: warning: {message}", err=True)
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        warnings.simplefilter("always", TopoRoWarning)
        yield


@contextmanager
def log_on_stderr() -> Iterator[None]:
    """What long work says where no terminal shows a bar."""
    log, handler = logging.getLogger("toporo"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("toporo: %(message)s"))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _run_name(job: Job) -> str:
    return " ".join(part for part in (job.variant, job.method.name, f"seed {job.seed}") if part)


class RunProgress:
    """A bar on a terminal, a line a run elsewhere; always on standard error."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self._live = console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not self._live,
        )
        self._task = self._bar.add_task(title, total=None)
        self._title = title

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int, job: Job | None, speed: float | None = None) -> None:
        self._bar.update(self._task, completed=done, total=total)
        what = _run_name(job) + (f", {speed:,.0f} images/s" if speed else "") if job else ""
        if job is not None:
            self._bar.update(self._task, description=f"{self._title} {what}")
        if not self._live:
            what = what if job else f"{done} found from before" if done else "starting"
            typer.echo(f"{self._title}: {done}/{total} runs ({what})", err=True)

    def say(self, text: str) -> None:
        """One line, above the bar where there is one."""
        if self._live:
            self._bar.console.print(f"toporo: {text}", highlight=False, markup=False)
        else:
            typer.echo(f"toporo: {text}", err=True)


class DownloadProgress:
    """A bar of bytes on a terminal, elsewhere only what is said; always on standard error."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._live,
            transient=True,
        )
        self._task = self._bar.add_task(title, total=None, visible=False)

    def __enter__(self) -> DownloadProgress:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int | None) -> None:
        self._bar.update(self._task, completed=done, total=total, visible=True)

    def say(self, text: str) -> None:
        """One line above the bar, or in the log."""
        if self._live:
            self._console.print(f"toporo: {text}", markup=False, soft_wrap=True)
        else:
            typer.echo(f"toporo: {text}", err=True)
