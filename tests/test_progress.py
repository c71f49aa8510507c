"""Progress: a function that is told every step, a bar for people, lines in a log, or silence."""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from toporo import progress
from toporo.progress import Progress, Watch, tracked


class Terminal(io.StringIO):
    """Standard error that people look at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Make standard error a terminal, from the call on: pytest captures it before."""

    def replace() -> Terminal:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", stream := Terminal())
        return stream

    return replace


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    """Lines for the log count."""
    caplog.set_level(logging.INFO, "toporo")


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let seconds pass; no others do."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def pass_by(seconds: float) -> None:
        now[0] += seconds

    return pass_by


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that shows itself at once."""
    for name in ("PATIENCE", "LOG_EVERY"):
        monkeypatch.setattr(progress, name, 0.01)


def until(done: Callable[[], bool]) -> None:
    """Wait for another thread."""
    end = time.monotonic() + 10
    while not done() and time.monotonic() < end:
        time.sleep(0.005)
    assert done()


def run(total: int, show: Any, wait: Callable[[float], None] | None = None, seconds: float = 0.0) -> None:
    with Progress("counting sheep", total, show) as bar:
        bar.say("about to count")
        for _ in range(total):
            if wait is not None:
                wait(seconds)
            bar.step()


def test_a_function_is_told_every_step_and_nothing_is_shown(
    terminal: Callable[[], Terminal], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    stream = terminal()
    told: list[tuple[int, int]] = []
    run(3, lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    run(3, False)
    assert (stream.getvalue(), capsys.readouterr().out, caplog.messages) == ("", "", [])


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("show", [True, None])
def test_on_a_terminal_there_is_a_bar(
    show: bool | None,
    terminal: Callable[[], Terminal],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = terminal()
    with Progress("counting sheep", 2, show) as bar:
        until(lambda: "counting sheep" in stream.getvalue())
        bar.step()
        bar.say("half is done")
        until(lambda: "50%" in stream.getvalue())
    assert "toporo: half is done" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K"), "the line of the bar is cleared"
    assert (capsys.readouterr().out, caplog.messages) == ("", [])


@pytest.mark.parametrize(("seconds", "lines"), [(60.0, 3), (5.0, 1)])
@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_elsewhere_there_are_lines_in_the_log_now_and_then(
    seconds: float,
    lines: int,
    stream: io.StringIO | None,
    wait: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without standard error, too, as under pythonw."""
    monkeypatch.setattr(sys, "stderr", stream)
    run(3, None, wait, seconds)
    assert caplog.messages[0] == "about to count"
    assert caplog.messages[-1] == "counting sheep: 100 %, 1 s left"
    assert len(caplog.messages) == 1 + lines
    assert stream is None or stream.getvalue() == ""


def test_an_error_of_the_function_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run(3, lambda done, total: done // 0)


# ---------------------------------------------------------------- watches


def test_a_watch_says_what_is_done_and_how_long_the_rest_takes(wait: Callable[[float], None]) -> None:
    with Watch("working", quiet=True) as watch:
        assert watch.line() == "working"
        lines = []
        for _ in tracked(range(4), "counting flocks"):
            lines.append(watch.line())
            wait(10)
        shares = [f"counting flocks: {p} %, {s} s left" for p, s in ((25, 30), (50, 20), (75, 10))]
        assert lines == ["counting flocks", *shares]
        assert watch.line() == "working"


def test_work_inside_of_work_moves_the_outer_bar(wait: Callable[[float], None]) -> None:
    seen = []
    with Watch("working", quiet=True) as watch:
        for _flock in tracked("ab", "flock {}".format):
            for _ in tracked(range(2), "counting sheep"):
                seen.append(watch.line())
                wait(60)
    assert seen == ["flock a", "flock a: 25 %, 3 min left", "flock b: 50 %, 2 min left", "flock b: 75 %, 60 s left"]


def test_short_work_flashes_no_bar(terminal: Callable[[], Terminal], caplog: pytest.LogCaptureFixture) -> None:
    stream = terminal()
    with Watch("working"):
        run(3, True)
    assert stream.getvalue() == "", "not even what a part asks for"
    assert caplog.messages == ["about to count"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_watch_writes_lines_where_there_is_no_bar(
    term: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("FORCE_COLOR", "1")  # which must not put a bar into a file
    monkeypatch.setattr(sys, "stderr", stream := Terminal() if term == "dumb" else io.StringIO())
    with Watch("working"), Progress("counting sheep", 2, False) as counting:
        time.sleep(0.05)
        counting.step()
    assert "counting sheep: 50 %, 1 s left" in caplog.messages
    assert stream.getvalue() == ""


@pytest.mark.usefixtures("hasty")
def test_a_quiet_watch_silences_the_parts(terminal: Callable[[], Terminal], caplog: pytest.LogCaptureFixture) -> None:
    stream = terminal()
    with Watch("working", quiet=True):
        run(3, True)
        run(3, None)
        time.sleep(0.05)
    assert (stream.getvalue(), caplog.messages) == ("", [])
