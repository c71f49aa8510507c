"""Progress: a function that is told every step, a bar for people, lines in a log, or silence."""

from __future__ import annotations

import io
import logging
import sys
from typing import Any

import pytest

from toporo import progress
from toporo.progress import Progress


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


def test_what_the_function_raises_stops_the_work() -> None:
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(3, stop)


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


def test_true_is_a_bar_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toporo")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    run(3, True)
    assert "about to count" in terminal.getvalue()
    assert "counting sheep" in terminal.getvalue()
    assert capsys.readouterr().out == ""
    assert caplog.messages == []


def test_true_in_a_file_is_what_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A bar is for a terminal; its control codes would litter a file."""
    run(3, True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.strip() == "about to count"


def test_none_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toporo")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    run(3, None)
    assert "about to count" in terminal.getvalue()
    assert "counting sheep" in terminal.getvalue()
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


def test_without_standard_error_there_is_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As under pythonw."""
    caplog.set_level(logging.INFO, "toporo")
    monkeypatch.setattr(sys, "stderr", None)
    run(3, None)
    assert caplog.messages == ["about to count"]


def test_the_bar_goes_when_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress("counting sheep", 3, True) as bar:
        assert bar._bar._bar.live.is_started
    assert not bar._bar._bar.live.is_started
    with pytest.raises(ZeroDivisionError), Progress("counting sheep", 3, True) as bar:
        _ = 1 // 0
    assert not bar._bar._bar.live.is_started
