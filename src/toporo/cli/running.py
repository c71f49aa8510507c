"""Running a command: the registry, exit codes, interruptions, warnings and the log on standard error."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import typer

from toporo.cli.terminal import say
from toporo.errors import TopoRoWarning
from toporo.progress import Progress, Watch, current_watch
from toporo.registry import Registry
from toporo.text import printable

#: Commands that were imported: functions as typer takes them, or a ``typer.Typer`` of several.
COMMANDS: Registry[Any] = Registry("command")
register = COMMANDS.register

#: Exit codes: 0 all went well, 1 a mistake in what was asked or given, 2 a mistake in how it was typed.
USER_ERROR = 1
INTERRUPTED, TERMINATED = 130, 143


def use_utf8() -> None:
    """Let what goes into a file or a pipe be UTF-8 wherever it is written, and a terminal show what it can.

    What goes to a stream that is closed goes nowhere.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # for as long as the command runs
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
            if not stream.isatty():
                stream.reconfigure(encoding="utf-8", newline="\n")


@contextmanager
def interruptible(outcome: str | Path = "") -> Iterator[None]:
    """Ctrl-C ends a command with a sentence that says what is left of its work, and exit code 130; SIGTERM with 143.

    ``outcome`` is that sentence; or the file that is the work, which by then has been replaced or has not.

    Where SIGINT is ignored it stays so, and the command goes on: a script that starts a job with ``&`` has it ignored,
    because Ctrl-C is then meant for the script.
    """
    before = _inode(outcome)
    try:
        yield
    except KeyboardInterrupt as end:
        if isinstance(outcome, Path):
            outcome = "nothing was written" if _inode(outcome) == before else f"{outcome} had been written"
        what, code = ("terminated", TERMINATED) if isinstance(end, Terminated) else ("interrupted", INTERRUPTED)
        say(f"toporo: {what}{f'; {outcome}' if outcome else ''}.", err=True)
        raise typer.Exit(code) from None


@contextmanager
def working(title: str, outcome: str | Path, *, quiet: bool) -> Iterator[None]:
    """Work that people wait for: progress is shown unless it is to be quiet, and it can be interrupted.

    ``title`` is what is being done, ``outcome`` what :func:`interruptible` takes.
    """
    with interruptible(outcome), Watch(title, quiet=quiet):
        yield


def _inode(path: str | Path) -> int | None:
    """What changes when another file takes a file's place."""
    return path.stat().st_ino if isinstance(path, Path) and path.exists() else None


class Terminated(KeyboardInterrupt):
    """SIGTERM came: whatever tidies up after Ctrl-C does so now, too."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises :class:`Terminated`, unless it is ignored or the program around has plans of its own for it."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: object) -> None:  # noqa: ARG001  # as Python calls it
    raise Terminated


@contextmanager
def printable_usage() -> Iterator[None]:
    """Mistakes in how a command was typed repeat it; see :func:`say`."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's, or click's in older releases of typer
            error.format_message = partial(printable, error.format_message())
        raise


@contextmanager
def plain_warnings() -> Iterator[None]:
    """toporo's warnings as lines on standard error, without the file names of Python's."""
    with warnings.catch_warnings():

        def show(
            message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
        ) -> None:
            if issubclass(category, TopoRoWarning):
                say(f"toporo: warning: {message}", err=True)
            else:
                say(warnings.formatwarning(message, category, filename, lineno).rstrip(), err=True)

        warnings.showwarning = show
        warnings.simplefilter("always", TopoRoWarning)
        yield


class SayingHandler(logging.Handler):
    """Prints lines of the log on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, unless it is mere information and the command is quiet."""
        watch = current_watch()
        if record.levelno >= logging.WARNING or watch is None or not watch.quiet:
            say(f"toporo: {self.format(record)}", err=True)


@contextmanager
def log_on_stderr() -> Iterator[None]:
    """What long work says where no terminal shows a bar."""
    log, handler = logging.getLogger("toporo"), SayingHandler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class RunProgress:
    """A bar of runs on a terminal, a line per run elsewhere.

    Parameters
    ----------
    title : names the work.
    quiet : show no progress, neither of the runs nor within them; remarks are shown all the same.
    """

    def __init__(self, title: str, *, quiet: bool = False) -> None:
        self._title = title
        self._watch, self._runs = Watch(title, quiet=quiet), Progress(title, 0)

    def __enter__(self) -> Self:
        self._watch.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._watch.__exit__(*exception)

    def report(self, done: int, total: int, run: Any) -> None:
        """Show how many runs are done and which one ended last; without a run, none has ended yet."""
        runs = self._runs
        if run is None:
            self._runs = runs = Progress(self._title, total)
            self._watch.begin(runs)
        runs.done, runs.title = done, f"{self._title}: {done:,}/{total:,} runs"
        self._watch.update()
        if not self._watch.live and not self._watch.quiet:
            last = run or (f"{done} found from before" if done else "starting")
            say(f"{runs.title} ({last})", err=True)
