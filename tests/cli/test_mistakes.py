"""Messages about mistakes at the command line: each names what was found; docs/errors.md shows the common ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toporo.tables import fit_table

STATES = ("AZ", "CA", "ID", "NV", "OR", "UT")
ROWS = [f"{STATES[i % 6]},{10 + 7 * i % 13},{20 + 5 * i % 43}" for i in range(120)]
FIT = "fit sales.csv --target sold --group state --out new"
COMPARE = "compare sales.csv --target sold --group state --fast"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sales.csv").write_text("\n".join(["state,price,sold", *ROWS, ""]))
    (tmp_path / "double.csv").write_text("state,price,price\nAZ,1,2\n")
    (tmp_path / "negative.csv").write_text("\n".join(["state,price,sold,count", *(f"{row},-3" for row in ROWS), ""]))
    (tmp_path / "empty.txt").write_text("")
    fit_table(tmp_path / "sales.csv", target="sold", group="state", penalty=1.0).save(tmp_path / "model")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("fit double.csv --target price --group state --out new", 1, "several columns named 'price'"),
        (f"{FIT} --features price,,state", 2, "'price,,state' has an empty name"),
        (f"{FIT} --exclude prise", 1, "unknown column 'prise'. Did you mean 'price'?"),
        (FIT.replace("sales", "negative") + " --weight count", 1, "row 1: weight 'count' is negative (-3)"),
        (f"{FIT} --test-groups WY", 1, "test group(s) without a row: 'WY'"),
        (f"{FIT} --test-groups @south.txt", 2, "cannot read south.txt"),
        (f"{FIT} --model kriged --set radius=5", 1, "leave radius out"),
        ("predict model", 2, "Missing argument 'DATA'"),
        ("predict model sales.csv --json --out sold.csv", 2, "--json prints to standard output"),
        ("predict model sales.csv --keep order", 1, "lacks the column(s) 'order'"),
        ("predict model https://example.org/new.csv", 1, "cannot read https://example.org/new.csv: expected a file"),
        ("evaluate model sales.csv --set level=95", 1, "level is 95.0: expected a number between 0 and 1"),
        ("evaluate model sales.csv --out sales.csv", 1, "--out sales.csv is the table itself"),
        (f"{COMPARE} --set folds=1", 2, "expected a whole number of at least 2"),
        (f"{COMPARE} --against-estimator forest", 1, "Expected MODULE:NAME"),
        (f"{COMPARE} --against-estimator my_models:forest", 1, "No module named 'my_models'"),
        (f"{COMPARE} --against-estimator sklearn.linear_model:Rigde", 1, "has no attribute 'Rigde'"),
        ("topology sales.csv", 2, "Missing option '--group' / '-g'"),
        ("topology sales.csv --group state --test-groups Ut", 1, "unknown test group 'Ut'. Did you mean 'UT'?"),
        ("topology sales.csv --group state --out a.png --out b.svg", 1, "the picture goes to a.png already"),
        ("doctor sales.csv --group state --target revenue", 1, "unknown column 'revenue'"),
        ("doctor sales.csv --group state --test-groups @empty.txt", 2, "'@empty.txt' has no names"),
        ("doctor sales.csv --group state --graph empty.txt", 1, "empty.txt holds no edges"),
        ("reproduce dg-15", 2, "unknown value 'dg-15'. Did you mean 'dg15'?"),
        ("data table pacs --out pacs.csv", 2, "Valid names: dg15, dg60, tpt48"),
        ("report model sales.csv --out sales.csv", 1, "--out sales.csv is the table itself"),
        ("reproduce pacs --data . --set size=4", 2, "expected a whole number of at least 8"),
        ("reproduce dg15 --methods erm,tro", 1, "unknown method 'tro'"),
    ],
)
def test_a_mistake_is_named(
    command: str, code: int, says: str, folder: Path, toporo: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "1000")
    monkeypatch.setenv("COLUMNS", "1000")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = toporo(*shlex.split(command))
    assert (done.code, done.out) == (code, "")
    assert says in re.sub(r"\x1b\[[0-9;]*m", "", done.err)
    assert "Traceback" not in done.err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
