"""Progress of long work: a bar on a terminal, lines in the log ``toporo`` elsewhere.

Loops report steps to a :class:`Progress`; a :class:`Watch` shows the outermost one that is under way.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from toporo.text import printable, time_text

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

#: ``report(done, total)``, called after every step.
Report: TypeAlias = Callable[[int, int], object]

#: Seconds between two lines in a log, and before a bar appears, so that short work does not flash one.
LOG_EVERY, PATIENCE = 10.0, 2.0

logger = logging.getLogger("toporo")


def make_console(*, stderr: bool = False, width: int | None = None, highlight: bool = False) -> Console:
    """Return a console of rich that shows names as they are, whatever control characters they hold."""
    from rich.console import Console

    class PrintableConsole(Console):
        def render(self, *what: Any, **how: Any) -> Any:
            for segment in super().render(*what, **how):
                yield segment if segment.control else segment._replace(text=printable(segment.text))

    return PrintableConsole(stderr=stderr, width=width, highlight=highlight)


class Progress:
    """Steps of one piece of work, reported to a function or to the :class:`Watch` of this thread.

    Parameters
    ----------
    title : what is being done.
    total : how many steps there are; 0 if nobody knows.
    show : a function to call with (done, total), or whether the work is shown where no :class:`Watch` is on.

    >>> with Progress("counting", 2, show=lambda done, total: print(done, "of", total)) as progress:
    ...     for _ in range(2):
    ...         progress.step()
    1 of 2
    2 of 2
    """

    def __init__(self, title: str, total: int, show: bool | Report | None = None) -> None:
        self.title, self.total, self.done = title, total, 0
        self._report = show if callable(show) else None
        self._watch = None if callable(show) else _WATCH.get()
        self._own = Watch(title) if self._watch is None and show in (True, None) else None

    def __enter__(self) -> Progress:
        if self._own is not None:
            self._watch = self._own.__enter__()
        if self._watch is not None:
            self._watch.begin(self)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._watch is not None:
            self._watch.end(self)
        if self._own is not None:
            self._own.__exit__(*exception)

    def say(self, text: str) -> None:
        """Print a line above the bar, or log it."""
        if self._watch is not None:
            self._watch.say(text)

    def step(self, title: str | None = None, *, steps: int = 1) -> None:
        """Report that one step is done, or several; ``title`` names the work from here on, if it changes."""
        self.title = title or self.title
        self.done = min(self.done + steps, self.total or self.done + steps)
        if self._report is not None:
            self._report(self.done, self.total)
        elif self._watch is not None:
            self._watch.update()


def tracked(items: Collection[T], title: str | Callable[[T], str]) -> Iterator[T]:
    """Yield items one by one, each a step that is reported to a :class:`Watch`, if one is on.

    Parameters
    ----------
    items : the items of a loop.
    title : names the work, or a function that names the work on an item.
    """
    with Progress(title if isinstance(title, str) else "", len(items), False) as progress:
        for item in items:
            progress.title = title if isinstance(title, str) else title(item)
            yield item
            progress.step()


class Watch:
    """Shows the progress of all work in this thread until it is over.

    After two seconds there is a bar on a terminal; elsewhere a line in the log ``toporo`` every ten seconds. Work
    inside of work moves the outer bar by a part of a step.

    Parameters
    ----------
    title : names the work while no part of it says more.
    quiet : show nothing.

    >>> with Watch("counting", quiet=True) as watch:
    ...     for _ in tracked(range(2), "counting flocks"):
    ...         print(watch.line())
    counting flocks
    counting flocks: 50 %, 1 s left
    """

    def __init__(self, title: str, *, quiet: bool = False) -> None:
        self._title, self.quiet = title, quiet
        self._parts: list[Progress] = []
        self._share, self._start, self._logged = 0.0, time.monotonic(), time.monotonic()
        self._bar = None if quiet else _make_bar(title)
        self._timer = threading.Timer(PATIENCE, self._bar.start) if self._bar is not None else None

    @property
    def live(self) -> bool:
        """True on a terminal, where a bar is shown."""
        return self._bar is not None

    def __enter__(self) -> Self:
        self._token = _WATCH.set(self)
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        _WATCH.reset(self._token)
        if self._timer is not None and self._bar is not None:
            self._timer.cancel()
            self._timer.join()
            self._bar.stop()

    def begin(self, part: Progress) -> None:
        """Note that a part of the work begins."""
        self._parts.append(part)
        if len(self._parts) == 1:
            self._share, self._start = 0.0, time.monotonic()
            self.update()

    def end(self, part: Progress) -> None:
        """Note that a part of the work, and all inside of it, is over."""
        if part in self._parts:
            del self._parts[self._parts.index(part) :]

    def update(self) -> None:
        """Show how much of the outermost part is done."""
        share, width = 0.0, 1.0
        for part in self._parts:
            width /= part.total or 1
            share += width * (part.done if part.total else 0)
        self._share = max(share, self._share)
        if self._bar is not None:
            known = 1.0 if self._share else None
            title = self._parts[0].title if self._parts else self._title
            self._bar.update(self._bar.task_ids[0], description=title, total=known, completed=self._share)
        elif not self.quiet and time.monotonic() - self._logged > LOG_EVERY:
            self._logged = time.monotonic()
            logger.info("%s", self.line())

    def say(self, text: str) -> None:
        """Print a line above the bar, or log it."""
        if not self.quiet and not self.print_above(f"toporo: {text}"):
            logger.info("%s", text)

    def print_above(self, text: str) -> bool:
        """Print a line above the bar; return False where there is none now."""
        if self._bar is None or not self._bar.live.is_started:
            return False
        self._bar.console.print(printable(text), markup=False, emoji=False, soft_wrap=True)
        return True

    def line(self) -> str:
        """Return the title of the outermost part, the share that is done, and the time that the rest will take."""
        title = self._parts[0].title if self._parts else self._title
        if not self._parts or not self._share:
            return title
        left = (time.monotonic() - self._start) * (1 / self._share - 1)
        return f"{title}: {100 * self._share:.0f} %" + (f", {time_text(max(left, 1.0))} left" if left >= 0 else "")


def _make_bar(title: str) -> Any:
    """Return a bar of rich on standard error; None if that is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty() or (console := make_console(stderr=True)).is_dumb_terminal:
        return None
    from rich import progress
    from rich.table import Column

    bar = progress.Progress(
        progress.SpinnerColumn("line"),
        progress.TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
        progress.BarColumn(console.width // 4),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        expand=True,
        redirect_stdout=False,
        redirect_stderr=False,  # see print_above
    )
    bar.add_task(title, total=None)
    return bar


def current_watch() -> Watch | None:
    """Return the :class:`Watch` on the work of this thread, if there is one."""
    return _WATCH.get()


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)
