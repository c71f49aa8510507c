"""Coefficients of linear models in units that people can read."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.tables.cases import RIVER, floods, river
from toporo.estimators.league import LeagueTable, Standing
from toporo.tables import TableModel, fit_table


def fit(**settings: object) -> TableModel:
    return fit_table(river(), target="y", group="station", **{"graph": RIVER, "penalty": 1.0} | settings)  # type: ignore[arg-type]


def test_a_coefficient_is_what_one_more_unit_does() -> None:
    model, table = fit(), river(3)
    moved = model.predict(table | {"x": [value + 0.5 for value in table["x"]]}) - model.predict(table)
    rows = {row.input: row for row in model.coefficients}
    assert np.allclose(moved, 0.5 * rows["x"].per_unit)
    deviation = np.std([x for x, name in zip(river()["x"], river()["station"], strict=True) if name in model.groups])
    assert rows["x"].comparable == pytest.approx(rows["x"].per_unit * deviation, rel=0.02)
    sizes = [abs(row.comparable) for row in model.coefficients]
    assert sizes == sorted(sizes, reverse=True)
    assert model.coefficients[0].input == "x"


def test_classes_are_moved_by_log_odds_or_scores() -> None:
    two = fit_table(floods(), target="flood", group="station", penalty=1.0)
    assert {row.of for row in two.coefficients} == {"yes"}
    assert "By how much the log-odds of 'yes' changes" in str(two.explain())
    table = floods()
    table["flood"] = [
        "drought" if x < -1 and flood == "no" else flood for x, flood in zip(table["x"], table["flood"], strict=True)
    ]
    three = fit_table(table, target="flood", group="station", penalty=1.0)
    assert {row.of for row in three.coefficients} == {"drought", "no", "yes"}
    assert three.coefficients.columns[:2] == ["class", "input"]
    assert "By how much the score of a class changes" in str(three.explain())


def test_a_dozen_is_printed_and_all_are_in_json() -> None:
    table = river(rows=80)
    rng = np.random.default_rng(0)
    many = table | {f"x{i}": rng.normal(size=len(table["x"])).tolist() for i in range(20)}
    explained = fit_table(many, target="y", group="station", penalty=1.0).explain()
    inputs = len(explained.about["coefficients"])
    assert inputs > 20
    printed = str(explained)
    assert f"the 12 largest of {inputs}:" in printed
    assert printed.count("\n") == len(explained) + 2 + 1 + 12, "groups, a title each, an empty line, a dozen"
    assert "largest" not in explained.below(None)
    assert explained.below(None).count("\n") == 1 + 1 + inputs
    json.dumps(explained.about, allow_nan=False)


def test_a_network_and_votes_have_none() -> None:
    network = fit(model="mlp", epochs=1)
    assert len(network.coefficients) == 0
    assert str(network.explain()).endswith("There are no coefficients to read.")
    votes = LeagueTable((Standing("trees", 1.0, 1.0, 1.0),))
    assert "has no coefficients of its own" in str(votes)
