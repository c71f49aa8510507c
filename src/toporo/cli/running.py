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
from typing import Any

import typer

from toporo.cli.terminal import say
from toporo.errors import TopoRoWarning
from toporo.progress import Watch, current_watch
from toporo.registry import Registry
from toporo.text import printable

#: Commands that were imported: functions as typer takes them, or a ``typer.Typer`` of several.
COMMANDS: Registry[Any] = Registry("command")
register = COMMANDS.register

#: Exit codes: 0 all went well, 1 a mistake in what was asked or given, 2 a mistake in how it was typed.
USER_ERROR = 1
INTERRUPTED, TERMINATED = 130, 143


def use_utf8() -> None:
    """Write UTF-8 to files and pipes, and show on a terminal what it can; closed streams go nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # for as long as the command runs
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
            if not stream.isatty():
                stream.reconfigure(encoding="utf-8", newline="\n")


class Terminated(KeyboardInterrupt):
    """SIGTERM came: what tidies up after Ctrl-C does so now, too."""


@contextmanager
def interruptible(outcome: str = "") -> Iterator[None]:
    """End a command at Ctrl-C with a sentence about what is left of its work and exit code 130; at SIGTERM with 143.

    Where SIGINT is ignored the command goes on: a script that starts a job with ``&`` has it ignored.
    """
    try:
        yield
    except KeyboardInterrupt as end:
        what, code = ("terminated", TERMINATED) if isinstance(end, Terminated) else ("interrupted", INTERRUPTED)
        say(f"toporo: {what}{f'; {outcome}' if outcome else ''}.", err=True)
        raise typer.Exit(code) from None


@contextmanager
def working(title: str, *, quiet: bool, outcome: str = "no file was left half-written") -> Iterator[None]:
    """Show the progress of work unless it is to be quiet; ``outcome`` is as for :func:`interruptible`."""
    with interruptible(outcome), Watch(title, quiet=quiet):
        yield


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM raise :class:`Terminated`, unless it is ignored or the program around handles it."""
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
    """Make the messages of typer, which repeat what was typed, printable; see :func:`say`."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's, or click's in older releases of typer
            error.format_message = partial(printable, error.format_message())
        raise


class _Handler(logging.Handler):
    """Prints lines of the log and warnings on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, unless it is mere information and the command is quiet."""
        watch = current_watch()
        if record.levelno >= logging.WARNING or watch is None or not watch.quiet:
            say(f"toporo: {self.format(record)}", err=True)


def _show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
    """Print a warning: toporo's without the file name that Python's have."""
    ours = issubclass(category, TopoRoWarning)
    plain = f"toporo: warning: {message}"
    say(plain if ours else warnings.formatwarning(message, category, filename, lineno).rstrip(), err=True)


@contextmanager
def log_on_stderr() -> Iterator[None]:
    """Print the log and warnings of toporo on standard error."""
    log, handler = logging.getLogger("toporo"), _Handler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # type: ignore[assignment]  # as Python calls it
            warnings.simplefilter("always", TopoRoWarning)
            yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
