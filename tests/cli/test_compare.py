"""``toporo compare``: a table of models, a page, and estimators of the user's own from an import path."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tables.cases import as_csv
from tests.tables.test_contest import CHAIN, chain

Run = Callable[..., Any]
OWN = """
from sklearn.linear_model import Ridge

ridge = Ridge()


class Models:
    Strong = Ridge


def weak():
    return Ridge(1000.0)
"""
ASKED = ("compare", "waves.csv", "--target", "y", "--group", "g", "--fast", "--set", "folds=2")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A table, a graph and a module."""
    (tmp_path / "waves.csv").write_text(as_csv(chain(6)))
    (tmp_path / "edges.csv").write_text("".join(f"{a},{b}\n" for a, b in CHAIN))
    (tmp_path / "own_models.py").write_text(OWN)
    yield tmp_path
    sys.modules.pop("own_models", None)


def test_words_and_a_table_are_printed_and_files_written(toporo: Run, folder: Path) -> None:
    own = ("own_models:ridge", "own_models:weak", "own_models:Models.Strong")
    flags = [word for path in own for word in ("--against-estimator", path)]
    done = toporo(*ASKED, "--graph", "edges.csv", *flags, "--out", "page.html", "--out", "models.csv")
    assert done.code == 0, done.err
    assert "; the graph " in done.out.splitlines()[0]
    assert "Errors are means over 10 groups, held out in 2 regions" in done.out
    assert "page: page.html\ntable: models.csv" in done.out
    rows = list(csv.DictReader((folder / "models.csv").read_text().splitlines()))
    assert {row["model"] for row in rows if row["kind"] == "yours"} == set(own)
    errors = {row["model"]: float(row["error"]) for row in rows}
    assert errors["own_models:ridge"] == errors["own_models:Models.Strong"] < errors["own_models:weak"]
    assert "<svg" in (folder / "page.html").read_text(encoding="utf-8")
    assert str(folder) not in sys.path


def test_json_is_all_that_is_printed(toporo: Run, folder: Path) -> None:
    done = toporo(*ASKED, "--test-groups", "g09", "--json", "--out", "models.csv")
    content = json.loads(done.out, parse_constant=pytest.fail)
    assert content["test_groups"] == ["g09"]
    assert content["about"]["source"] == "waves.csv"
    assert {"constant", "linear, ERM", "kriged"} <= {model["name"] for model in content["models"]}
    assert done.err == "table: models.csv\n"


def test_a_module_that_cannot_be_imported_says_why(toporo: Run, folder: Path) -> None:
    (folder / "own_models.py").write_text("raise OSError('no licence')")
    done = toporo(*ASKED, "--against-estimator", "own_models:ridge")
    assert done.code == 1
    assert "own_models:ridge: OSError: no licence." in done.err
    assert done.out == ""
