"""What one model gains over another on the same rows."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tests.tables.cases import floods, only, river
from toporo.errors import DataError, SettingError
from toporo.tables import compare, fit_table
from toporo.tables.evaluate import evaluate


def judged(errors: dict[str, float], rows: int = 50, **settings: float) -> object:
    """An evaluation whose rmse by group is as given."""
    groups = np.repeat(list(errors), rows)
    signs = np.tile([1.0, -1.0], len(groups) // 2)
    return evaluate(
        "regression", signs * np.repeat(list(errors.values()), rows), np.zeros(len(groups)), groups.tolist(), **settings
    )


def test_gains_are_differences_by_name_and_less_error_is_a_gain() -> None:
    found = compare(judged({"a": 1.0, "b": 2.0, "c": 3.0}), judged({"c": 3.5, "b": 2.0, "a": 2.0}))
    assert found.metric == "rmse"
    assert found.gains == pytest.approx({"a": 1.0, "b": 0.0, "c": 0.5})
    assert found.gain.value == pytest.approx(0.5)
    assert found.better == 2
    assert 0 <= found.gain.low <= 0.5 <= found.gain.high <= 1


def test_what_makes_groups_hard_for_both_is_no_part_of_the_interval() -> None:
    hard = {f"g{i}": 1.0 + i for i in range(30)}
    mine, control = judged(hard), judged({name: error + 0.1 for name, error in hard.items()})
    found = compare(mine, control)
    assert found.gain.low == pytest.approx(found.gain.high) == pytest.approx(0.1)
    assert mine.overall["rmse"].high > control.overall["rmse"].low, "by eye the two could not be told apart"


def test_more_accuracy_is_a_gain() -> None:
    table = floods()
    model = fit_table(table, target="flood", group="station", penalty=1.0)
    worse = fit_table(table, target="flood", group="station", penalty=1.0, features=["bed"])
    found = compare(model.evaluate(table), worse.evaluate(table))
    assert found.metric == "accuracy"
    assert found.gain.value > 0.1
    back = compare(worse.evaluate(table), model.evaluate(table))
    assert back.gain.value == pytest.approx(-found.gain.value)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["better"] == found.better


def test_a_single_group_has_no_interval() -> None:
    found = compare(judged({"a": 1.0}), judged({"a": 2.0}))
    assert found.gain.value == pytest.approx(1.0)
    assert math.isnan(found.gain.low)
    assert found.to_dict()["gain"]["low"] is None


def test_other_rows_or_tasks_are_an_error() -> None:
    model = fit_table(river(), target="y", group="station", penalty=1.0)
    whole, part = model.evaluate(river()), model.evaluate(only(river(), station=["upper", "lower"]))
    with pytest.raises(DataError, match=r"not judged by the same rows: they differ in group.* 'm"):
        compare(whole, part)
    classes = fit_table(floods(), target="flood", group="station", penalty=1.0)
    with pytest.raises(SettingError, match="a regression cannot be compared with a classification"):
        compare(whole, classes.evaluate(floods()))
