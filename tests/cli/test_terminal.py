"""Names from strangers at the terminal: they are shown and never obeyed, and data for programs keeps every byte."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer

from tests.tables.cases import RIVER, as_csv, river
from toporo.cli.running import interruptible, log_on_stderr
from toporo.cli.terminal import say
from toporo.text import printable

Run = Callable[..., Any]
#: A title, a cleared screen, a colour in one byte, text turned round, an end of line, a rubout, a return.
EVIL = {
    "spring": "sp\x1b]0;owned\x07\x1b[2J",
    "upper": "up\x9b31m",
    "middle": "mid\u202eelddim\u2066",
    "lower": "lo\u2028wer\x08\x7f",
    "mouth": "mo\x85uth",
    "sand": "sa\x1b[8mnd",
    "x": "x\x1b[2J",
    "station": "st\x1b]0;t\x07",
}
FILE, MODEL, GRAPH = "t\x1b[2J\r.csv", "m\x9b2J", "e\u202e.csv"
#: What may not reach a terminal: all that commands it or misleads the eye.
UNWANTED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: Runs command lines one after the other in one process, as each would run in its own.
DRIVER = """
import json, sys
from toporo.cli import main
for words in json.loads(open(sys.argv[1], encoding="utf-8").read()):
    sys.argv = ["toporo", *words]
    try:
        main()
    except SystemExit as end:
        print("exit", end.code, flush=True)
"""
FIT = ("--target", "y", "--group", EVIL["station"], "--set", "penalty=1")
LINES = [
    ["fit", FILE, *FIT, "--graph", GRAPH, "--test-groups", EVIL["mouth"], "--out", MODEL],
    ["fit", FILE, *FIT, "--out", "j", "--json"],
    ["explain", MODEL, "--out", "e\x1b.csv", "--out", "e\x1b.svg"],
    ["explain", MODEL, "--json"],
    ["evaluate", MODEL, FILE, "--against", "j", "--set", "resamples=20"],
    ["evaluate", MODEL, FILE, "--set", "resamples=20", "--json"],
    ["predict", MODEL, FILE],
    ["predict", MODEL, FILE, "--keep", f"{EVIL['station']},bed,{EVIL['x']}"],
    ["predict", MODEL, FILE, "--json"],
    ["predict", MODEL, FILE, "--out", "p\x1b.csv"],
    ["report", MODEL, FILE, "--set", "resamples=20", "--out", "r\x1b.html"],
    ["report", MODEL, "--out", "r.html", "--json"],
    ["topology", FILE, "--group", EVIL["station"], "--exclude", "y", "--set", "resamples=2", "--out", "t.svg"],
    ["topology", FILE, "--group", EVIL["station"], "--exclude", "y", "--json"],
    ["doctor", FILE, "--group", EVIL["station"], "--target", "y", "--out", "d\x9b.html", "--out", "d.svg"],
    ["data", "list", "--data", "no\x1b[2J"],
    ["data", "table", "tpt48", "--data", "no\x1b[2J", "--out", "o.csv"],
    # mistakes: in what is given, and in how it is typed
    ["fit", "none\x1b[2J.csv", *FIT, "--out", "n"],
    ["fit", FILE, "--target", "y\x1b[2J", "--group", "g\x9b", "--out", "n"],
    ["predict", "none\x1b[2J", FILE],
    ["reproduce", "b\x1b[2J\u202e"],
    ["predict", MODEL, FILE, "--keep", "k\u202e"],
    ["explain", MODEL, "--out", "p\x1b[2J.\x9bgif"],
    ["fit", FILE, "--wrong\x1b[2J"],
    ["no\x1b[2Jcommand\u202e"],
    ["--no\x9boption"],
    ["fit", FILE, *FIT, "--out", "n", "--set", "penalty=p\x1b[2J"],
    ["fit", FILE, *FIT, "--out", "n", "--set", "method=m\u202e\x9b"],
    ["fit", FILE, *FIT, "--out", "n", "--delimiter", "\x1b\x9b"],
]


def evil(text: str) -> str:
    for plain, name in EVIL.items():
        text = re.sub(rf"\b{plain}\b", lambda _, name=name: name, text)
    return text


@pytest.fixture
def files(tmp_path: Path, toporo: Run) -> Path:
    for name, text in (
        (FILE, as_csv(river())),
        (GRAPH, "source,target\n" + "".join(f"{a},{b}\n" for a, b in RIVER)),
        ("lines.json", ""),
    ):
        (tmp_path / name).write_text(evil(text), encoding="utf-8")
    (tmp_path / "lines.json").write_text(json.dumps(LINES), encoding="utf-8")
    return tmp_path


def run_all(folder: Path, **streams: Any) -> subprocess.Popen[bytes]:
    plain = {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200", "TOPORO_DATA": "", "PYTHONIOENCODING": ""}
    command = [sys.executable, "-c", DRIVER, "lines.json"]
    return subprocess.Popen(command, cwd=folder, env=os.environ | plain, stdin=subprocess.DEVNULL, **streams)


def exits(text: str) -> list[str]:
    return re.findall(r"^exit (\w+)", text, re.MULTILINE)


def test_no_name_commands_the_terminal(files: Path) -> None:
    """Every command and many mistakes, on a pseudo-terminal whose every byte is looked at."""
    ours, theirs = pty.openpty()
    child = run_all(files, stdout=theirs, stderr=theirs)
    os.close(theirs)
    read = io.BytesIO()
    while True:
        try:
            read.write(os.read(ours, 1 << 16) or b"")
        except OSError:  # the last one has closed it
            break
    os.close(ours)
    assert child.wait() == 0
    seen = read.getvalue().decode().replace("\r\n", "\n")  # as a terminal's driver ends lines
    assert exits(seen) == ["0"] * 15 + ["1"] * 5 + ["2"] + ["1"] * 2 + ["2"] * 6, seen
    assert "sp\\u001b]0;owned\\u0007\\u001b[2J" in seen
    hit = UNWANTED.search(seen)
    assert hit is None, repr(seen[hit.start() - 200 : hit.end() + 20])


def test_in_a_pipe_data_keeps_every_byte_and_messages_none(files: Path) -> None:
    child = run_all(files, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = (stream.decode() for stream in child.communicate())
    assert UNWANTED.search(err) is None
    assert "Traceback" not in err
    texts = re.split(r"^exit \w+\n", out, flags=re.MULTILINE)
    for line, text in zip(LINES, texts, strict=False):
        if line[0] == "predict" and len(line) > 3 and line[3] == "--keep" and line[4].startswith("st"):
            rows = list(csv.reader(io.StringIO(text)))
            assert rows[0] == [EVIL["station"], "bed", EVIL["x"], "prediction"]
            assert rows[1][0] == EVIL["spring"]
        elif line[0] == "predict" and line[-1] == "--json":
            assert json.loads(text.splitlines()[0])[EVIL["station"]] == EVIL["spring"]
        elif line[-1] == "--json":
            assert EVIL["upper"] in json.dumps(json.loads(text), ensure_ascii=False)
        elif line != ["predict", MODEL, FILE]:
            assert UNWANTED.search(text) is None, line
    for picture in ("e\x1b.svg", "t.svg", "d.svg"):
        ElementTree.parse(files / picture)
    page = (files / "r.html").read_text(encoding="utf-8")
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(svg)


# ---------------------------------------------------------------- each door


def test_writing_stays_writing() -> None:
    """Letters of every script, combining marks, joiners, wide spaces, signs of money and pictures."""
    for text in ("Größe", "Исток", "名前\u3000字", "می\u200cخواهم", "👩\u200d🔬", "é e\u0301", "10\u00a0€", "क्\u200dष"):
        assert printable(text) == text


def test_warnings_of_others_show_names(capsys: pytest.CaptureFixture[str]) -> None:
    with log_on_stderr():
        warnings.warn("a \x1b[2J", RuntimeWarning, stacklevel=1)
    err = capsys.readouterr().err
    assert "RuntimeWarning: a \\u001b[2J" in err
    assert UNWANTED.search(err) is None


def test_the_log_shows_names(toporo: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    from toporo import cli

    monkeypatch.setattr(cli, "app", lambda **_: logging.getLogger("toporo").info("at %s", "\x1b[2J"))
    assert toporo().err == "toporo: at \\u001b[2J\n"


def test_what_is_left_of_the_work_shows_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), interruptible("finished runs are in \x1b[2J"):
        raise KeyboardInterrupt
    assert "in \\u001b[2J." in capsys.readouterr().err


def test_half_a_sign_is_said_too(capsys: pytest.CaptureFixture[str]) -> None:
    """A file's name that is not UTF-8, for one."""
    say(f"model: {os.fsdecode(b'm' + bytes([255]))}")
    assert capsys.readouterr().out == "model: m\\udcff\n"
