"""Whoever waits for a command is shown what it does, on a terminal and in a log, unless that is not wanted."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tables.cases import NEW, STREAM, as_csv, river
from tests.tables.cases import STATIONS as NAMES
from toporo import progress
from toporo.cli.running import use_utf8, working
from toporo.cli.terminal import say, tell

Run = Callable[..., Any]
OF_TABLE = ("t.csv", "--group", "station", "--target", "y")
TEST = ("--graph", "e.csv", "--test-groups", ",".join(NEW))
#: By command: what it shows while it works, and what is to be typed.
LINES: dict[str, tuple[str, ...]] = {
    "examining": ("doctor", *OF_TABLE, *TEST),
    "choosing the penalty": ("fit", *OF_TABLE, *TEST, "--model", "linear", "--out", "linear"),
    "searching for variances": ("fit", *OF_TABLE, *TEST, "--model", "kriged", "--out", "kriged"),
    "training the network": ("fit", *OF_TABLE, *TEST, "--model", "mlp", "--set", "epochs=40", "--out", "mlp"),
    "resampling": ("topology", *OF_TABLE, "--set", "resamples=3"),
    "resampling rows": ("evaluate", "linear", "t.csv"),
    "predicting": ("predict", "linear", "t.csv", "--out", "p.csv"),
    "comparing: linear": ("compare", *OF_TABLE, *TEST, "--fast", "--set", "folds=2"),
}
#: Runs command lines one after the other in one process, with bars that appear at once.
DRIVER = """
import json, sys, time
from toporo import progress
from toporo.cli.running import use_utf8, working
from toporo.cli.terminal import say, tell
from toporo.cli import main
progress.PATIENCE = 0.001
for words in json.loads(sys.argv[1]):
    sys.argv = ["toporo", *words]
    try:
        main()
    except SystemExit as end:
        print("exit", end.code, flush=True)
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(as_csv(river(groups=NAMES, rows=12)))
    (tmp_path / "e.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in STREAM))
    return tmp_path


def test_a_log_has_lines_and_none_with_quiet_or_json(toporo: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command that can take long; quick ones once more, those that print JSON with --json, the others with -q."""
    monkeypatch.setattr(progress, "LOG_EVERY", 0.003)
    for shown, words in LINES.items():
        done = toporo(*words)
        assert done.code == 0, done.err
        assert re.search(rf"^toporo: {shown}", done.err, re.MULTILINE), (shown, done.err)
        assert shown not in done.out
        flags = {"fit": ("--overwrite", "-q"), "evaluate": ("--json",), "predict": ("-q",), "report": ("--json",)}
        if words[0] in flags and words[-1] not in ("kriged", "mlp"):
            silent = toporo(*words, *flags[words[0]])
            assert silent.code == 0, silent.err
            assert shown not in silent.err, (words, silent.err)


def on_terminal(folder: Path, lines: list[list[str]], columns: int = 80, **env: str) -> str:
    """What a terminal of so many columns is sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    child = subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(lines)],
        cwd=folder, env=plain | {"TERM": "xterm"} | env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 1 << 16)
        except OSError:  # the last one has closed it
            break
    os.close(ours)
    assert child.wait() == 0
    return seen.decode()


def test_a_terminal_has_bars_that_fit_it_and_go(files: Path) -> None:
    lines = [list(words) for shown, words in LINES.items() if shown in ("choosing the penalty", "resampling")]
    text = on_terminal(
        files, [*lines, ["predict", "linear", "t.csv"], [*lines[0], "--overwrite", "-q"]], columns=70, LC_ALL="C"
    )
    assert "Traceback" not in text
    parts = text.split("exit 0")
    assert len(parts) == 5, text
    for part, shown in zip(parts, ("choosing the penalty", "resampling, to see"), strict=False):
        frames = [frame for frame in re.split(r"\r|\n|\x1b\[1A", part) if f" {shown}" in frame]
        assert frames, part
        assert any(re.search(r"\d+%", frame) for frame in frames), frames
        bare = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame) for frame in frames]
        assert max(map(len, bare)) <= 70, max(frames, key=len)
        assert part.count("\x1b[?25l") == part.count("\x1b[?25h"), "the cursor is back"
    assert "\x1b[" not in parts[2], "rows on a terminal show by themselves that they come"
    assert "\x1b[?25l" not in parts[3], "quiet"


def test_a_stream_that_is_closed_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    use_utf8()
    with sys.stdout, sys.stderr, working("counting", quiet=False):
        tell("to nobody")
        say("to nobody", err=True)
