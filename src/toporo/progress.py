"""Progress of long work: a bar on a terminal, lines in a log elsewhere."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from toporo.text import printable, time_text

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

#: ``report(done, total)``, called after every step.
Report: TypeAlias = Callable[[int, int], object]

#: Seconds between two lines in a log.
LOG_EVERY = 10.0
#: Seconds before a bar appears, so that short work does not flash one; and between two looks at it.
PATIENCE, LOOK_EVERY = 2.0, 0.2
#: On a narrower terminal there are words alone.
ROOM_FOR_BAR = 60
#: What stands behind a bar, by what it counts: the names of rich's columns.
COLUMNS = {
    "share": ("TaskProgressColumn", "TimeRemainingColumn"),
    "items": ("MofNCompleteColumn", "TimeElapsedColumn", "TimeRemainingColumn"),
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
    counts : ``"share"`` (per cent) or ``"items"``.
    stays : leave the bar on the screen when the work is done.
    mark : what every line that is said begins with.
    quiet : show no bar, and say nothing.
    """

    def __init__(
        self, title: str, counts: str = "share", *, stays: bool = False, mark: str = "", quiet: bool = False
    ) -> None:
        from rich import progress

        self.console = make_console(stderr=True)
        self.live, self.quiet, self._mark = self.console.is_terminal and not quiet, quiet, mark
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
        if not self.quiet:
            self.console.print(printable(f"{self._mark}{text}"), markup=False, emoji=False, soft_wrap=True)


class Progress:
    """Steps of one piece of work, shown as the user wants them.

    Parameters
    ----------
    title : what is being done.
    total : how many steps there are; 0 if nobody knows.
    show : a function to call with (done, total); True for a bar on standard error; False for none; None for a bar if
        standard error is a terminal, else a line now and then in the log ``toporo`` (level INFO). Where a
        :class:`Watch` is on, steps are told to that instead of all but a function.

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
        live = show is True or (show is None and sys.stderr is not None and sys.stderr.isatty())
        self._bar = Bar(title) if live and self._watch is None else None
        self._logged = show is None and not live
        self._last = time.monotonic()

    def __enter__(self) -> Progress:
        if self._watch is not None:
            self._watch.begin(self)
        elif self._bar is not None:
            self._bar.__enter__()
            self._bar(0, self.total)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._watch is not None:
            self._watch.end(self)
        elif self._bar is not None:
            self._bar.__exit__(*exception)

    def say(self, text: str) -> None:
        """One line beside the bar, or in the log."""
        if self._watch is not None:
            self._watch.say(text)
        elif self._bar is not None:
            self._bar.say(text)
        elif self._logged:
            logger.info("%s", text)

    def step(self, title: str | None = None, *, steps: int = 1) -> None:
        """One step is done, or several; ``title`` is what is done from here on, if not the same."""
        self.title = title or self.title
        self.done = min(self.done + steps, self.total or self.done + steps)
        if self._report is not None:
            self._report(self.done, self.total)
        elif self._watch is not None:
            self._watch.look()
        elif self._bar is not None:
            self._bar(self.done, self.total)
        elif self._logged and time.monotonic() - self._last > LOG_EVERY:
            self._last = time.monotonic()
            logger.info("%s: %d of %d steps", self.title, self.done, self.total)


def tracked(items: Collection[T], title: str | Callable[[T], str]) -> Iterator[T]:
    """Items one after the other, each a step that a :class:`Watch` is told of; without one, nothing is shown.

    Parameters
    ----------
    items : what a loop goes over.
    title : what it does, or a function that says what it does with an item.
    """
    with Progress(title if isinstance(title, str) else "", len(items), False) as progress:
        for item in items:
            progress.title = title if isinstance(title, str) else title(item)
            yield item
            progress.step()


class Watch:
    """Shows whoever waits for a command what it does: every :class:`Progress` in its thread reports to it.

    After two seconds there is a bar on a terminal until the work is done; elsewhere a line in the log ``toporo`` every
    ten seconds. Work that is over sooner shows nothing. Work inside of work moves the outer bar by a part of a step.

    Parameters
    ----------
    title : what is being done while no part of the work says more.
    quiet : show nothing, whatever the parts ask for.

    >>> with Watch("counting", quiet=True) as watch:
    ...     for _ in tracked(range(2), "counting flocks"):
    ...         print(watch.line())
    counting flocks
    counting flocks: 50 %, 1 s left
    """

    def __init__(self, title: str, *, quiet: bool = False) -> None:
        self._title, self.quiet = title, quiet
        self._parts: list[Progress] = []
        self._start = self._last = time.monotonic()
        self._share = 0.0
        self._over = threading.Event()
        self._thread = None if quiet else threading.Thread(target=self._show, name="progress", daemon=True)
        self._console: Console | None = None

    def __enter__(self) -> Self:
        self._token = _WATCH.set(self)
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        _WATCH.reset(self._token)
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def begin(self, part: Progress) -> None:
        """A part of the work begins."""
        self._parts.append(part)
        if len(self._parts) == 1:
            self._start = self._last = time.monotonic()
            self._share = 0.0

    def end(self, part: Progress) -> None:
        """A part of the work, and all inside of it, is over."""
        if part in self._parts:
            del self._parts[self._parts.index(part) :]

    def look(self) -> None:
        """A step is done: note how much of the outermost part, and when."""
        share, width = 0.0, 1.0
        for part in self._parts:
            width /= part.total or 1
            share += width * (part.done if part.total else 0)
        if share > self._share:
            self._share, self._last = share, time.monotonic()

    def say(self, text: str) -> None:
        """One line above the bar, or in the log."""
        if self._thread is not None and not self.above(f"toporo: {text}"):
            logger.info("%s", text)

    def above(self, text: str) -> bool:
        """Print a line above the bar; False where there is none now."""
        console = self._console
        if console is not None:
            console.print(printable(text), markup=False, emoji=False, soft_wrap=True)
        return console is not None

    def line(self) -> str:
        """Return the title of the work, the share that is done, and the time that the rest will take."""
        title, share, left = self._state()
        return f"{title}: {100 * share:.0f} %{f', {left} left' if left else ''}" if share else title

    def _state(self) -> tuple[str, float, str]:
        parts = self._parts[:1]  # a copy: the work goes on meanwhile
        if not parts or not parts[0].total or not self._share:
            return (parts[0].title if parts else self._title), 0.0, ""
        took = self._last - self._start
        left = took * (1 / self._share - 1) - (time.monotonic() - self._last)
        return parts[0].title, self._share, time_text(max(left, 1.0))

    def _show(self) -> None:
        """Look at the work now and then until it is over."""
        with suppress(OSError, ValueError):  # standard error may be closed
            console = make_console(stderr=True)
            if sys.stderr is not None and sys.stderr.isatty() and not console.is_dumb_terminal:
                if not self._over.wait(PATIENCE):
                    self._draw(console)
            else:
                while not self._over.wait(LOG_EVERY):
                    logger.info("%s", self.line())

    def _draw(self, console: Console) -> None:
        from rich import progress
        from rich.table import Column

        title = progress.TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1))
        bar = progress.Progress(
            progress.SpinnerColumn("line"),
            title,
            *([progress.BarColumn(console.width // 4)] if console.width >= ROOM_FOR_BAR else []),
            progress.TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
            console=console,
            transient=True,
            expand=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,  # see above_bar
        )
        task = bar.add_task(self._state()[0], total=None, left="")
        with bar:
            self._console = console
            while True:
                what, share, left = self._state()
                text = f"{100 * share:.0f} %{f', {left} left' if left else ''}" if share else ""
                bar.update(task, description=what, total=1 if share else None, completed=share, left=text, refresh=True)
                if self._over.wait(LOOK_EVERY):
                    break
            self._console = None


def all_quiet() -> bool:
    """Return whether a :class:`Watch` is on that shows nothing."""
    watch = _WATCH.get()
    return watch is not None and watch.quiet


def above_bar(text: str) -> bool:
    """Print a line above the bar that a :class:`Watch` shows; False where none does."""
    watch = _WATCH.get()
    return watch is not None and watch.above(text)


#: Who watches the work of this thread, if anyone.
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)
