"""What a command prints fits a screen of 80 columns and 40 lines, reads well there, and --verbose has the rest."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
        (("evaluate", "m", "t.csv", "--set", "resamples=20"), ("… 30 more groups (--verbose)",)),
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


# ---------------------------------------------------------------- each by itself


def test_a_narrow_table_breaks_no_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_a_terminal(monkeypatch, 40)
    print_table(["group", "mean of sales", "recognised", "hops away"], [["training", "18,277", "20 %", "2"]])
    lines = bare(capsys.readouterr().out)
    for word in ("group", "mean", "sales", "recognised", "hops", "training", "18,277"):
        assert word in "\n".join(lines)
    assert max(map(len, lines)) <= 40


def test_sentences_break_between_words_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at_a_terminal(monkeypatch, 20)
    tell("one two-three " * 3)
    assert bare(capsys.readouterr().out) == ["one two-three one", "two-three one", "two-three"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    tell("one two-three " * 3)
    assert bare(capsys.readouterr().out) == ["one two-three one two-three one two-three"]
