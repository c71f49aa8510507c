"""Long work shows itself: a bar on a terminal, quiet lines in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

#: ``report(done, total)``, called after every step.
Report: TypeAlias = Callable[[int, int], object]

#: Seconds between two lines in a log.
LOG_EVERY = 10.0

logger = logging.getLogger("toporo")


class Progress:
    """Steps of one piece of work, shown as the user wants them.

    Parameters
    ----------
    title : what is being done.
    total : how many steps there are.
    show : a function to call with (done, total); True for a bar on standard error; False for none; None for a bar if
        standard error is a terminal, else a line now and then in the log ``toporo`` (level INFO).

    >>> with Progress("counting", 2, show=lambda done, total: print(done, "of", total)) as progress:
    ...     for _ in range(2):
    ...         progress.step()
    1 of 2
    2 of 2
    """

    def __init__(self, title: str, total: int, show: bool | Report | None = None) -> None:
        self._title, self._total, self._done = title, total, 0
        self._report = show if callable(show) else None
        self._live = show is True or (show is None and sys.stderr is not None and sys.stderr.isatty())
        self._logged = show is None and not self._live
        self._last = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if self._live:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._title, total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """One line beside the bar, or in the log."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False)
        elif self._logged:
            logger.info("%s", text)

    def step(self) -> None:
        """One step is done."""
        self._done += 1
        if self._report is not None:
            self._report(self._done, self._total)
        elif self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        elif self._logged and time.monotonic() - self._last > LOG_EVERY:
            self._last = time.monotonic()
            logger.info("%s: %d of %d steps", self._title, self._done, self._total)
