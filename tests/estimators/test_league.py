"""The league of a model by votes as a table, in words and as a picture."""

from __future__ import annotations

import csv
import io
import json
import math
from copy import copy

import numpy as np
import pytest
from matplotlib import pyplot

from tests.estimators.test_auto import CHAIN, NEW, fitted, rows
from toporo import AutoClassifier, AutoRegressor
from toporo.estimators.league import LeagueTable, Standing

LEAGUE = (
    Standing("trees", 1.02, 1.1, 0.6),
    Standing("mine", 0.9, 1.3, 0.4),
    Standing("linear", 1.3, 2.4, 0.0, "far off in some groups"),
    Standing("broken", math.nan, math.nan, 0.0, "ValueError: no\nthanks " + "a" * 100),
)


@pytest.fixture(scope="module")
def model() -> AutoRegressor:
    x, y, g, known = rows()
    return AutoRegressor(graph=CHAIN).fit(x[known], y[known] + 2.0 * np.sin(g[known] / 3.0), groups=g[known])


def test_a_candidate_is_a_line() -> None:
    lines = LeagueTable(LEAGUE).lines().splitlines()
    assert lines[0].split() == ["candidate", "error", "worst", "vote", "note"]
    assert lines[1].split() == ["trees", "1.020", "1.100", "60", "%"]
    assert lines[3].endswith("0 %  far off in some groups")
    assert "–" in lines[4]
    assert len(lines) == 5
    assert len(lines[4]) < 120, "a long note, of several lines, is cut"
    assert "note" not in LeagueTable(LEAGUE[:2]).lines()


def test_csv_and_json_have_every_digit_and_no_nan() -> None:
    table = LeagueTable(LEAGUE)
    cells = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [cell["candidate"] for cell in cells] == ["trees", "mine", "linear", "broken"]
    assert cells[3]["error"] == ""
    assert cells[3]["note"] == LEAGUE[3].note
    assert json.loads(json.dumps(table.to_dict(), allow_nan=False))[1] == {
        "candidate": "mine", "error": 0.9, "worst": 1.3, "vote": 0.4, "note": "",
    }  # fmt: skip
    assert table.to_pandas()["vote"].sum() == 1.0
    assert [row.name for row in table[1:3]] == ["mine", "linear"]
    assert "<td>60 %</td>" in table._repr_html_()


def test_the_table_of_a_model_is_its_league(model: AutoRegressor) -> None:
    table = model.explain()
    assert table.rows == model.league_
    assert "seconds" not in table.columns, "the same seed gives the same bytes"
    again, _ = fitted("linear", graph=CHAIN)
    same, _ = fitted("linear", graph=CHAIN)
    assert again.explain() == same.explain()


def test_it_says_who_carries_it_and_what_the_graph_adds(model: AutoRegressor) -> None:
    sure = copy(model)
    sure.gate_ = 0.97
    words = str(sure.explain())
    first = model.league_[0]
    assert f"It is carried by {first.name} ({100 * first.vote:.0f} %)" in words
    assert "In what is left, the graph counts for 97 %: neighbours are alike." in words
    follow = sum(row.vote for row in model.league_ if "kriged" in row.name)
    assert follow > 0.005
    assert f"candidates that may follow the graph themselves have {100 * follow:.0f} % of the votes." in words
    effects = model.effect(NEW)
    most = max(effects, key=lambda name: abs(effects[name].value))
    assert f"most in {most} ({abs(effects[most].value):.3g})" in words
    about = model.explain().about
    assert about["shares"] == {"graph": model.gate_}
    assert {row["group"] for row in about["effects"] if not row["trained"]} == set(NEW)
    json.dumps(about, allow_nan=False)


def test_a_graph_that_does_not_count_moves_nothing(model: AutoRegressor) -> None:
    silent = copy(model)
    silent.gate_ = 0.04
    assert "In what is left, the graph counts for 4 %: neighbours are no more alike" in str(silent.explain())
    assert "moves predictions" not in str(silent.explain())
    without, _ = fitted()
    assert "There is no graph" in str(without.explain())
    assert without.explain().about["effects"] == []


def test_classes_have_effects_by_class() -> None:
    x, _, g, known = rows()
    chance = 1.0 / (1.0 + np.exp(-x[:, 0] - 3.0 * np.sin(g / 3.0)))
    kinds = np.where(np.random.default_rng(1).random(len(g)) < chance, "yes", "no")
    table = AutoClassifier(graph=CHAIN).fit(x[known], kinds[known], groups=g[known]).explain()
    assert "in log-odds (root mean square)" in str(table)
    assert all(len(row["effect"]) == 2 for row in table.about["effects"])
    json.dumps(table.about, allow_nan=False)


def test_the_picture_is_of_the_graph_or_of_votes(model: AutoRegressor) -> None:
    ax = model.plot()
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"training groups", "test groups"}
    without, _ = fitted()
    ax = without.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == [row.name for row in without.league_]
    assert [bar.get_width() for bar in ax.patches] == [row.vote for row in without.league_]
    pyplot.close("all")
