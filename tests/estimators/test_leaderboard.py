"""The leaderboard of an ensemble as a table and as a picture."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest
from matplotlib import pyplot

from tests.estimators.test_auto import CHAIN, NEW, fitted, rows
from toporo import AutoRegressor
from toporo.estimators.coefficients import percent
from toporo.estimators.leaderboard import CandidateScore, Leaderboard

SCORES = (
    CandidateScore("trees", 1.02, 1.1, 0.6),
    CandidateScore("mine", 0.9, 1.3, 0.4),
    CandidateScore("linear", 1.3, 2.4, 0.0, "far off in some groups"),
    CandidateScore("broken", math.nan, math.nan, 0.0, "ValueError: no\nthanks " + "a" * 100),
)


@pytest.fixture(scope="module")
def model() -> AutoRegressor:
    x, y, g, known = rows()
    return AutoRegressor(graph=CHAIN).fit(x[known], y[known] + 2.0 * np.sin(g[known] / 3.0), groups=g[known])


def test_csv_and_json_have_every_digit_and_no_nan() -> None:
    table = Leaderboard(SCORES)
    cells = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [cell["candidate"] for cell in cells] == ["trees", "mine", "linear", "broken"]
    assert cells[3]["error"] == ""
    assert cells[3]["note"] == SCORES[3].note
    assert json.loads(json.dumps(table.to_dict(), allow_nan=False))[1] == {
        "candidate": "mine", "error": 0.9, "worst": 1.3, "weight": 0.4, "note": None,
    }  # fmt: skip
    assert table.to_pandas()["weight"].sum() == 1.0
    assert [row.name for row in table[1:3]] == ["mine", "linear"]
    assert "<td>0.6</td>" in table._repr_html_()


def test_the_table_of_a_model_is_its_leaderboard(model: AutoRegressor) -> None:
    table = model.explain()
    assert table.rows == model.leaderboard_
    assert "seconds" not in table.columns, "the same seed gives the same bytes"
    again, _ = fitted("linear", graph=CHAIN)
    same, _ = fitted("linear", graph=CHAIN)
    assert again.explain() == same.explain()


def test_the_picture_is_of_the_graph_or_of_weights(model: AutoRegressor) -> None:
    ax = model.plot()
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"training groups", "test groups"}
    without, _ = fitted()
    ax = without.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == [row.name for row in without.leaderboard_]
    assert [bar.get_width() for bar in ax.patches] == [row.weight for row in without.leaderboard_]
    pyplot.close("all")


def test_it_says_who_carries_it_and_how_much_the_graph_counts(model: AutoRegressor) -> None:
    table = model.explain()
    first = table[0]
    assert f"It is carried by {first.name} ({100 * first.weight:.0f} %)" in str(table)
    assert f"the graph counts for {percent(model.gate_)}" in str(table)
    assert {row["group"] for row in table.about["effects"] if not row["trained"]} == set(NEW)
    json.dumps(table.about, allow_nan=False)
    without, _ = fitted()
    assert "There is no graph" in str(without.explain())
    assert without.explain().about["effects"] == []
