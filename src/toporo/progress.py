"""Long work shows itself: a bar on a terminal, quiet lines in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from toporo.text import printable

if TYPE_CHECKING:
    from rich.console import Console

#: ``report(done, total)``, called after every step.
Report: TypeAlias = Callable[[int, int], object]

#: Seconds between two lines in a log.
LOG_EVERY = 10.0
#: What stands behind a bar, by what it counts: the names of rich's columns.
COLUMNS = {
    "share": ("TaskProgressColumn", "TimeRemainingColumn"),
    "items": ("MofNCompleteColumn", "TimeElapsedColumn", "TimeRemainingColumn"),
    "bytes": ("DownloadColumn", "TimeRemainingColumn"),
}

logger = logging.getLogger("toporo")


def make_console(*, stderr: bool = False, width: int | None = None, highlight: bool = False) -> Console:
    """A console of rich's on which a name is only shown, whatever signs it holds."""
    from rich.console import Console

    class PrintableConsole(Console):
        def render(self, *what: Any, **how: Any) -> Any:
            for segment in super().render(*what, **how):
                yield segment if segment.control else segment._replace(text=printable(segment.text))

    return PrintableConsole(stderr=stderr, width=width, highlight=highlight)


class Bar:
    """A bar on standard error where that is a terminal; elsewhere only what is said.

    Parameters
    ----------
    title : what stands before the bar.
    counts : ``"share"`` (per cent), ``"items"`` or ``"bytes"``.
    stays : leave the bar on the screen when the work is done.
    mark : what every line that is said begins with.
    """

    def __init__(self, title: str, counts: str = "share", *, stays: bool = False, mark: str = "") -> None:
        from rich import progress

        self.console = make_console(stderr=True)
        self.live, self._mark = self.console.is_terminal, mark
        columns = [getattr(progress, name)() for name in COLUMNS[counts]]
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            *columns,
            console=self.console,
            disable=not self.live,
            transient=not stays,
        )
        self._task = self._bar.add_task(title, total=None, visible=False)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int | None, title: str | None = None) -> None:
        """So much is done of so much, which may not be known yet."""
        named: dict[str, Any] = {} if title is None else {"description": title}
        self._bar.update(self._task, completed=done, total=total, visible=True, **named)

    def say(self, text: str) -> None:
        """One line, above the bar where there is one."""
        self.console.print(printable(f"{self._mark}{text}"), markup=False, emoji=False, soft_wrap=True)


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
        live = show is True or (show is None and sys.stderr is not None and sys.stderr.isatty())
        self._bar = Bar(title) if live else None
        self._logged = show is None and not live
        self._last = time.monotonic()

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.__enter__()
            self._bar(0, self._total)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(*exception)

    def say(self, text: str) -> None:
        """One line beside the bar, or in the log."""
        if self._bar is not None:
            self._bar.say(text)
        elif self._logged:
            logger.info("%s", text)

    def step(self) -> None:
        """One step is done."""
        self._done += 1
        if self._report is not None:
            self._report(self._done, self._total)
        elif self._bar is not None:
            self._bar(self._done, self._total)
        elif self._logged and time.monotonic() - self._last > LOG_EVERY:
            self._last = time.monotonic()
            logger.info("%s: %d of %d steps", self._title, self._done, self._total)
