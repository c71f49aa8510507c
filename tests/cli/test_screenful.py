"""What a command prints fits a screen of 80 columns and 40 lines, reads well there, and --verbose has the rest."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import check_line
from tests.tables.cases import as_csv
from toporo.cli.terminal import print_table, tell

Run = Callable[..., Any]
NAMES = [f"county {place}" for place in range(40)]


def look_at_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> None:
    """What is printed from here on is for a terminal of so many columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def bare(text: str) -> list[str]:
    """Lines as they are seen."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).splitlines()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Forty counties in a row, six of them to test on, and 150 columns."""
    rng = np.random.default_rng(0)
    place = np.repeat(np.arange(40), 8)
    x = rng.normal(size=(len(place), 150))
    y = 8000 + 900 * x[:, 0] + 30 * place + 100 * rng.normal(size=len(place))
    columns = {f"x{i}": x[:, i].round(2).tolist() for i in range(150)}
    columns |= {"code": [f"c{i}" for i in range(len(place))], "y": y.round().tolist()}
    (tmp_path / "t.csv").write_text(as_csv({"county": [NAMES[i] for i in place], **columns}))
    edges = "".join(f"{a},{b}\n" for a, b in pairwise(NAMES))
    (tmp_path / "e.csv").write_text(f"source,target\n{edges}")
    (tmp_path / "far away.txt").write_text("".join(f"{name}\n" for name in NAMES[-6:]))
    return tmp_path


FIT = ("fit", "t.csv", "--target", "y", "--group", "county", "--graph", "e.csv", "--set", "penalty=1", "--out", "m")
TEST = ("--test-groups", "@far away.txt")


def test_a_fit_an_explanation_and_an_evaluation_fit_a_screen(
    toporo: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at_a_terminal(monkeypatch)
    for words, more in (
        ((*FIT, *TEST), ("… 143 more columns (--verbose)", "… 24 more lines (--verbose)")),
        (("explain", "m"), ("… 16 more lines (--verbose)",)),
        (("evaluate", "m", "t.csv", "--set", "resamples=20"), ("… 31 more groups (--verbose)",)),
    ):
        short = bare(toporo(*words).out)
        whole = bare(toporo(*words, "--verbose", *["--overwrite"] * (words[0] == "fit")).out)
        assert len(short) <= 40, short
        assert max(map(len, short)) <= 80
        assert set(more) <= set(short)
        assert "--verbose)" not in "".join(whole)
        assert len(whole) > len(short) + 7
        assert not re.search(r"\de[+-]\d", "\n".join(short)), "numbers as people write them"


def test_columns_that_are_not_used_come_first(toporo: Run, files: Path) -> None:
    page = toporo(*FIT, *TEST).out
    assert page.index(" y ") < page.index(" county ") < page.index(" code ") < page.index(" x0 ")


def test_the_next_command_is_as_it_was_typed(toporo: Run, tmp_path: Path) -> None:
    table = {"county": [name for name in NAMES[:4] for _ in range(6)], "x": [i * i % 7 for i in range(24)]}
    (tmp_path / "my table.csv").write_text(as_csv(table))
    (tmp_path / "far away.txt").write_text(NAMES[3])
    done = toporo("doctor", "my table.csv", "--group", "county", *TEST)
    assert done.code == 0, done.err
    line = next(line for line in done.out.splitlines() if line.startswith("Next"))
    assert "fit 'my table.csv'" in line
    assert "--test-groups '@far away.txt'" in line
    check_line(shlex.split(line.partition("toporo ")[2]))


# ---------------------------------------------------------------- each by itself


def test_a_narrow_table_breaks_no_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_a_terminal(monkeypatch, 40)
    print_table(["group", "mean of sales", "recognised", "hops away"], [["training", "18,277", "20 %", "2"]])
    lines = bare(capsys.readouterr().out)
    for word in ("group", "mean", "sales", "recognised", "hops", "training", "18,277"):
        assert word in "\n".join(lines)
    assert max(map(len, lines)) <= 40


def test_no_number_is_broken_where_there_is_no_room_for_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at_a_terminal(monkeypatch, 32)
    row = ["a name of three words", "8,040 [7,900, 8,180]", "123,456,789", "0.5812345678"]
    print_table(["group", "rmse", "mae", "r2"], [row], numbers=[1, 2, 3])
    lines = bare(capsys.readouterr().out)
    assert lines[-1] == "No room for r2."
    assert max(map(len, lines)) <= 32
    for word in ("8,040", "[7,900,", "8,180]", "123,456,789", "three"):
        assert word in "\n".join(lines)


def test_more_rows_than_asked_for_are_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at_a_terminal(monkeypatch)
    print_table(["group"], [["a"], ["b"], ["c"], ["d"]], most=2, thing="group")
    lines = bare(capsys.readouterr().out)
    assert lines[-1] == "… 2 more groups (--verbose)"
    assert " c " not in "\n".join(lines)
    print_table(["group"], [["a"], ["b"], ["c"]], most=2, thing="group")
    assert " c " in "\n".join(bare(capsys.readouterr().out)), "one alone is not left out"


def test_sentences_break_between_words_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at_a_terminal(monkeypatch, 20)
    tell("one two-three " * 3)
    assert bare(capsys.readouterr().out) == ["one two-three one", "two-three one", "two-three"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    tell("one two-three " * 3)
    assert bare(capsys.readouterr().out) == ["one two-three " * 3]
