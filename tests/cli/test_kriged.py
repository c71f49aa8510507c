"""``toporo fit --model kriged`` and what the other commands make of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tables.cases import RIVER, STATIONS, STREAM, as_csv, floods, river
from toporo.tables import load_model

Run = Callable[..., Any]
FIT = ("fit", "river.csv", "--target", "y", "--group", "station", "--model", "kriged", "--out", "model")
GRAPH = ("--graph", "edges.csv", "--test-groups", "lock,mouth")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "river.csv").write_text(as_csv(river(groups=STATIONS)))
    (tmp_path / "new.csv").write_text(as_csv(river(3, groups=STATIONS)))
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in STREAM))
    return tmp_path


@pytest.fixture
def fitted(toporo: Run, files: Path) -> Path:
    done = toporo(*FIT, *GRAPH)
    assert done.code == 0, done.err
    return files / "model"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_fit_says_what_the_rows_speak_for(toporo: Run, files: Path) -> None:
    done = toporo(*FIT, *GRAPH)
    assert done.code == 0, done.err
    for words in (
        "280 rows in 7 groups",
        "80 rows of test groups set aside",
        "slope of x",
        "The graph counts for over 99 %",
    ):
        assert words in done.out
    for words in ("Prior", "Penalty"):
        assert words not in done.out
    content = json.loads(toporo(*FIT, *GRAPH, "--overwrite", "--json").out, parse_constant=pytest.fail)
    assert content["penalty"] is None
    assert content["shares"]["graph"] > 0.99
    assert {row["group"] for row in content["groups"]} == set(STATIONS)


def test_predict_writes_intervals(toporo: Run, fitted: Path) -> None:
    done = toporo("predict", "model", "new.csv", "--interval", "0.8")
    assert done.code == 0, done.err
    table = rows(done.out)
    assert list(table[0]) == ["station", "prediction", "lower", "upper"]
    columns = np.array([[float(row[name]) for name in ("prediction", "lower", "upper")] for row in table]).T
    assert np.array_equal(columns, load_model(fitted).predict("new.csv", interval=0.8))
    piped = toporo("predict", "model", "-", stdin=Path("new.csv").read_text())
    assert [row["prediction"] for row in rows(piped.out)] == [row["prediction"] for row in table]
    assert toporo("predict", "model", "new.csv", "--interval", "0.8", "--out", "p.parquet").code == 0


def test_predict_takes_groups_and_their_neighbors(toporo: Run, fitted: Path) -> None:
    lines = Path("new.csv").read_text().splitlines()
    Path("bare.csv").write_text("\n".join(line.partition(",")[2] for line in lines))
    done = toporo("predict", "model", "bare.csv")
    assert (done.code, done.out) == (1, "")
    assert "lacks the column 'station'. A kriged model has coefficients by group" in done.err
    Path("sea.csv").write_text("\n".join([lines[0], *("sea," + line.partition(",")[2] for line in lines[-40:])]))
    done = toporo("predict", "model", "sea.csv")
    assert done.code == 1
    assert "not in the graph: 'sea'" in done.err
    Path("both.csv").write_text(Path("new.csv").read_text() + "\n".join(Path("sea.csv").read_text().splitlines()[1:]))
    done = toporo("predict", "model", "both.csv", "--drop-rows")
    assert done.code == 0, done.err
    assert done.out == toporo("predict", "model", "new.csv").out
    assert "toporo: left out 40 rows of 1 group that the graph does not have: 'sea' (40)" in done.err
    assert toporo("predict", "model", "new.csv", "--interval", "1").code == 2


def test_two_models_with_other_groups_say_what_to_do(toporo: Run, fitted: Path) -> None:
    """``plain`` takes any group and ``model`` does not; ``region`` has another column of groups."""
    text = Path("new.csv").read_text()
    Path("more.csv").write_text(text + text[text.index("mouth") :].replace("mouth", "sea"))
    linear = [*FIT[:-3], "linear", "--set", "penalty=1"]
    assert toporo(*linear, "--out", "plain").code == 0
    done = toporo("evaluate", "plain", "more.csv", "--against", "model", "--set", "resamples=20")
    assert done.code == 1
    assert "model: group(s) that are not in the graph: 'sea'" in done.err
    assert "--drop-rows" in done.err
    asked = ["evaluate", "plain", "more.csv", "--against", "model", "--set", "resamples=20"]
    done = toporo(*asked, "--drop-rows", "--json")
    assert done.code == 0, done.err
    assert done.err.count("left out 40 rows of 1 group that the graph does not have: 'sea' (40)") == 1
    done = toporo("evaluate", "plain", "more.csv", "--against", "model", "--unseen", "--drop-rows")
    assert done.code == 1
    assert "no row of the table is in groups that it was not trained on" in done.err
    assert toporo(*linear, "--out", "other", "--test-groups", "mouth").code == 0
    done = toporo("evaluate", "model", "new.csv", "--against", "other", "--unseen", "--set", "resamples=20")
    assert done.code == 1
    assert "they differ in 1 group, with so many rows: 'lock' (40 and 0)" in done.err
    assert "fit both with the same test groups, or take the rows of these groups out" in done.err
    assert toporo(*linear[:5], "bed", *linear[6:], "--out", "region").code == 0
    done = toporo("evaluate", "model", "new.csv", "--against", "region")
    assert done.code == 1
    assert "region: regression of 'y' by 'bed'" in done.err


def test_explain_prints_draws_and_writes(toporo: Run, fitted: Path) -> None:
    done = toporo("explain", "model", "--out", "groups.csv", "--out", "groups.png")
    assert done.code == 0, done.err
    for words in ("neighbours are alike", "follows the graph", "Without the graph", "The CSV (--out) has 1 more input"):
        assert words in done.out
    assert len(rows(Path("groups.csv").read_text())) == 9
    assert "slope of bed = sand" in rows(Path("groups.csv").read_text())[0]
    assert Path("groups.png").stat().st_size > 5000
    content = json.loads(toporo("explain", "model", "--json").out, parse_constant=pytest.fail)
    assert set(content["evidence"]) == set(load_model(fitted).estimator.evidence_)
    assert content["groups"][0]["slopes"]["x"] > 2


def test_classes_go_all_the_way(toporo: Run, tmp_path: Path) -> None:
    (tmp_path / "floods.csv").write_text(as_csv(floods()))
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in RIVER))
    done = toporo("fit", "floods.csv", "--target", "flood", *FIT[4:], "--graph", "edges.csv", "--test-groups", "mouth")
    assert done.code == 0, done.err
    assert "Coefficients are of the share of 'yes'" in done.out
    table = rows(toporo("predict", "model", "floods.csv").out)
    assert list(table[0]) == ["station", "prediction", "probability of no", "probability of yes"]
    for arguments in (["evaluate", "model", "floods.csv", "--set", "resamples=20"], ["explain", "model"]):
        assert toporo(*arguments).code == 0
    done = toporo("report", "model", "floods.csv", "--set", "resamples=20")
    assert done.code == 0, done.err
    assert "one of 2 classes of" in done.out
    assert "flood: difference from the mean" in (tmp_path / "report.html").read_text(encoding="utf-8")
    done = toporo("predict", "model", "floods.csv", "--interval", "0.9")
    assert (done.code, done.out) == (1, "")
    assert "Fit it with --set intervals=true" in done.err
