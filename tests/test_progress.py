"""Progress: a function that is told every step, a bar for people, lines in a log, or silence."""

from __future__ import annotations

import io
import logging
import sys
import time
from typing import Any

import pytest

from toporo import progress
from toporo.progress import Progress, Watch, tracked


class Terminal(io.StringIO):
    """Standard error that people look at."""

    def isatty(self) -> bool:
        return True


def run(total: int, show: Any) -> None:
    with Progress("counting sheep", total, show) as bar:
        bar.say("about to count")
        for _ in range(total):
            bar.step()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Time that passes by so many seconds whenever somebody looks."""

    def tick(seconds: float) -> None:
        now = iter(range(10**6))
        monkeypatch.setattr(progress.time, "monotonic", lambda: seconds * next(now))

    return tick


def test_a_function_is_told_every_step(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toporo")
    told: list[tuple[int, int]] = []
    run(3, lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert capsys.readouterr() == ("", "")
    assert caplog.messages == []


def test_false_is_silence(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "toporo")
    clock(60)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    run(3, False)
    assert terminal.getvalue() == ""
    assert capsys.readouterr() == ("", "")
    assert caplog.messages == []


@pytest.mark.parametrize("show", [True, None])
def test_on_a_terminal_there_is_a_bar_on_standard_error(
    show: bool | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "toporo")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    run(3, show)
    assert "about to count" in terminal.getvalue()
    assert "counting sheep" in terminal.getvalue()
    assert capsys.readouterr().out == ""
    assert caplog.messages == []


def test_none_is_lines_in_the_log_elsewhere(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, clock: Any
) -> None:
    caplog.set_level(logging.INFO, "toporo")
    clock(60)
    run(3, None)
    assert caplog.messages[0] == "about to count"
    assert caplog.messages[1:] == [f"counting sheep: {done} of 3 steps" for done in (1, 2, 3)]
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    assert capsys.readouterr() == ("", "")


def test_lines_in_the_log_come_now_and_then(caplog: pytest.LogCaptureFixture, clock: Any) -> None:
    """A look a second and ten seconds between lines."""
    caplog.set_level(logging.INFO, "toporo")
    clock(1.0)
    run(60, None)
    assert 3 <= len(caplog.messages) - 1 <= 6


# ---------------------------------------------------------------- whoever waits


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that shows itself at once."""
    for name in ("PATIENCE", "LOOK_EVERY", "LOG_EVERY"):
        monkeypatch.setattr(progress, name, 0.01)


def until(done: Any) -> None:
    """Wait for another thread."""
    end = time.monotonic() + 10
    while not done() and time.monotonic() < end:
        time.sleep(0.005)
    assert done()


def test_a_watch_says_what_is_done_and_how_long_the_rest_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Watch("working", quiet=True) as watch:
        assert watch.line() == "working"
        lines = []
        for _ in tracked(range(4), "counting flocks"):
            lines.append(watch.line())
            now[0] += 10
        assert lines == [
            "counting flocks",
            *(f"counting flocks: {p} %, {s} s left" for p, s in ((25, 30), (50, 20), (75, 10))),
        ]
        assert watch.line() == "working"


def test_work_inside_of_work_moves_the_outer_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    seen = []
    with Watch("working", quiet=True) as watch:
        for _flock in tracked("ab", "flock {}".format):
            for _ in tracked(range(2), "counting sheep"):
                seen.append(watch.line())
                now[0] += 60
    assert seen == ["flock a", "flock a: 25 %, 3 min left", "flock b: 50 %, 2 min left", "flock b: 75 %, 60 s left"]


def test_the_rest_is_counted_down_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Watch("working", quiet=True) as watch, Progress("counting", 2, False) as counting:
        now[0] = 20.0
        counting.step()
        now[0] = 32.0
        assert watch.line() == "counting: 50 %, 8 s left"
        now[0] = 90.0
        assert watch.line() == "counting: 50 %, 1 s left"
        counting.step("resting", steps=7)
        assert watch.line() == "resting: 100 %, 1 s left"


def test_short_work_flashes_no_bar(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toporo")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with Watch("working"):
        run(3, True)
    assert terminal.getvalue() == "", "not even what a part asks for"
    assert caplog.messages == ["about to count"]


@pytest.mark.usefixtures("hasty")
def test_a_watch_draws_a_bar_on_a_terminal_and_takes_it_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toporo")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with Watch("working"), Progress("counting sheep", 2, False) as counting:
        until(lambda: "counting sheep" in terminal.getvalue())
        counting.say("half is done")
        counting.step()
        until(lambda: "50 %, 1 s left" in terminal.getvalue())
    assert "toporo: half is done" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K"), "the line of the bar is cleared"
    assert caplog.messages == []


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_watch_writes_lines_where_there_is_no_bar(
    term: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toporo")
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("FORCE_COLOR", "1")  # which must not put a bar into a file
    monkeypatch.setattr(sys, "stderr", stream := Terminal() if term == "dumb" else io.StringIO())
    with Watch("working"), Progress("counting sheep", 2, False) as counting:
        counting.step()
        until(lambda: "counting sheep: 50 %, 1 s left" in caplog.messages)
    assert stream.getvalue() == ""


@pytest.mark.usefixtures("hasty")
def test_a_quiet_watch_silences_the_parts(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toporo")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with Watch("working", quiet=True):
        run(3, True)
        run(3, None)
        time.sleep(0.05)
    assert (terminal.getvalue(), caplog.messages) == ("", [])
