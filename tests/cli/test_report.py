"""``toporo report``: one page about a model folder, with an evaluation where a table is given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tables.cases import RIVER, as_csv, river
from toporo.cli import report as command
from toporo.tables import fit_table, load_model

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder."""
    folder = tmp_path_factory.mktemp("models") / "model"
    fit_table(river(), target="y", group="station", graph=RIVER, test_groups=["mouth"], model="linear").save(folder)
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "new.csv").write_text(as_csv(river(3)))
    return tmp_path / "new.csv"


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is tested elsewhere."""
    monkeypatch.setattr(command, "write_model_report", lambda model, out, **more: out)


def test_a_page_without_a_table_replaces_an_earlier_one(toporo: Run, stored: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old")
    before = {file: file.read_bytes() for file in stored.iterdir()}
    done = toporo("report", stored)
    assert done.code == 0, done.err
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "160 rows in 4 groups" in done.out
    assert "160 rows in 4 groups" in page
    assert "was not evaluated" in page
    assert done.out.rstrip().endswith("report: report.html")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert {file: file.read_bytes() for file in stored.iterdir()} == before


def test_the_page_gets_the_evaluation_asked_for(
    toporo: Run, stored: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(command, "write_model_report", lambda _, out, **more: asked.update(more, out=out))
    done = toporo("report", stored, "new.csv", "--out", "page.html", "--set", "resamples=50", "--set", "seed=7")
    assert done.code == 0, done.err
    assert "Evaluated on new.csv, 200 rows in 5 groups (1 not trained on)" in done.out
    evaluation = load_model(stored).evaluate(str(table), resamples=50, seed=7)
    assert asked == {"evaluation": evaluation, "source": "new.csv", "out": Path("page.html")}


@pytest.mark.usefixtures("unwritten")
def test_json_is_all_that_is_printed(toporo: Run, stored: Path, table: Path) -> None:
    done = toporo("report", stored, table, "--json", "--set", "resamples=50")
    content = json.loads(done.out, parse_constant=pytest.fail)
    assert "200 rows in 5 groups" in " ".join(content["summary"])
    assert content["evaluation"]["source"] == "new.csv"
    assert content["evaluation"]["resamples"] == 50
    assert {row["group"] for row in content["groups"]} == {"spring", "upper", "middle", "lower"}
    assert {score["group"] for score in content["evaluation"]["groups"]} >= {"mouth"}
    assert "report.html" in done.err


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere is not a model folder"),
        (["{model}", "nowhere.csv"], "nowhere.csv"),
        (["{model}", "--out", "no/such/page.html"], "there is no folder no/such"),
        (["{model}", "--out", "."], "not a plain file"),
        (["{model}", "new.csv", "--out", "new.csv"], "is the table itself"),
        (["{model}", "--out", "{model}/model.json"], "is in the folder"),
        (["{model}", "short.csv"], "'depth'"),
    ],
)
def test_a_mistake_is_a_message_and_nothing_is_written(
    toporo: Run, stored: Path, table: Path, arguments: list[str], words: str
) -> None:
    (table.parent / "short.csv").write_text("station,x,bed,y\nmouth,1,sand,2\n")
    before = sorted(table.parent.rglob("*"))
    manifest = (stored / "model.json").read_bytes()
    done = toporo("report", *(argument.format(model=stored) for argument in arguments))
    assert done.code == 1
    assert words in done.err
    assert done.out == ""
    assert sorted(table.parent.rglob("*")) == before
    assert (stored / "model.json").read_bytes() == manifest
