"""What one model gains over another on the same rows."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.tables.cases import floods, only, river
from toporo.errors import DataError, SettingError
from toporo.tables import Evaluation, compare, fit_table
from toporo.tables.contest import constant_in_words, over_constant, unfair
from toporo.tables.evaluate import evaluate


def judged(errors: dict[str, float], rows: int = 50, **settings: Any) -> Any:
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
    with pytest.raises(DataError, match=r"not judged by the same rows: they differ in \d group.* 'm"):
        compare(whole, part)
    classes = fit_table(floods(), target="flood", group="station", penalty=1.0)
    with pytest.raises(SettingError, match="a regression cannot be compared with a classification"):
        compare(whole, classes.evaluate(floods()))


def test_the_gain_is_over_groups_that_were_not_trained_on() -> None:
    errors = {"a": 9.0, "b": 9.0, "c": 1.0, "d": 2.0}
    mine, theirs = (judged(each, trained=["a", "b"]) for each in (errors, dict.fromkeys(errors, 4.0)))
    found = compare(mine, theirs)
    assert found.over == ("d", "c")
    assert (found.gain.value, found.better, len(found.gains)) == (pytest.approx(2.5), 2, 4)
    assert "than old in RMSE, mean over groups not trained on; it is better in 2 of 2 groups." in found.words(
        "new", "old"
    )
    worse = replace(mine, constant=dict.fromkeys(errors, 1.0))
    assert "mean over groups not trained on" in constant_in_words(worse, "model")
    assert constant_in_words(replace(mine, constant=dict.fromkeys(errors, 4.0)), "model") == ""
    both = compare(mine, judged(dict.fromkeys(errors, 4.0), trained=["a", "d"]))
    assert both.over == ("c",)


# ---------------------------------------------------------------- words, and a constant


def test_words_say_better_worse_or_no_clear_difference() -> None:
    errors = {f"g{i}": 1.0 + i for i in range(8)}
    other = {name: error + 0.5 for name, error in errors.items()}
    mine, theirs = judged(errors), judged(other)
    better = compare(mine, theirs).words("new", "old")
    assert (
        better == "new is better by 0.5 (0.5 to 0.5) than old in RMSE, mean over groups; it is better in 8 of 8 groups."
    )
    assert compare(theirs, mine).words("old", "new").startswith("old is worse by 0.5 (0.5 to 0.5) than new in RMSE")
    assert compare(mine, mine).words("new", "new").startswith("new is as good as new in RMSE")
    wavy = judged({name: error + (0.5 if place % 2 else -0.4) for place, (name, error) in enumerate(errors.items())})
    told = compare(wavy, mine).words("new", "old")
    assert told.startswith("new is not clearly different from old in RMSE (worse by 0.05, from ")
    few = compare(judged({"a": 1.0, "b": 2.0}), judged({"a": 2.0, "b": 3.0})).words("new", "old")
    assert few.endswith("2 groups are too few to be sure.")
    one = compare(judged({"a": 1.0}), judged({"a": 2.0})).words("new", "old")
    assert "better by 1 than old in RMSE (without an interval)" in one


def test_a_constant_is_judged_by_group_beside_the_model() -> None:
    groups = ["a", "a", "b", "b"]
    numbers = evaluate("regression", [1, 3, 5, 9], [1, 3, 5, 9], groups, constant=3.0, resamples=20)
    assert numbers.constant == pytest.approx({"a": math.sqrt(2), "b": math.sqrt(20)})
    classes = evaluate("classification", ["x", "y", "x", "x"], list("xxxx"), groups, constant="x", resamples=20)
    assert classes.constant == {"a": 0.5, "b": 1.0}
    huge = evaluate("regression", [1e299, 3e299], [0.0, 0.0], ["a", "a"], constant=2e299, resamples=0)
    assert huge.constant == pytest.approx({"a": 1e299})
    again = Evaluation.from_dict(json.loads(json.dumps(numbers.to_dict())))
    assert again.constant == numbers.constant
    old = {key: value for key, value in numbers.to_dict().items() if key != "constant"}
    assert Evaluation.from_dict(old).constant == {}
    assert over_constant(Evaluation.from_dict(old)) is None


def against_constant(errors: dict[str, float], constant: float) -> str:
    return constant_in_words(replace(judged(errors), constant=dict.fromkeys(errors, constant)), "model")


def test_a_model_that_loses_to_a_constant_is_called_so() -> None:
    errors = {f"g{i}": 2.0 + 0.1 * i for i in range(8)}
    told = against_constant(errors, 1.0)
    assert told.startswith("model loses to a constant, the mean of the training target: it is worse by 1.35 (")
    assert against_constant(errors, 5.0) == ""
    assert "model is not clearly better than a constant" in against_constant(errors, 2.3)
    # of a model from before, which does not know its constant: by R²
    unknown = evaluate("regression", [1.0, 2.0, 3.0], [3.0, 2.0, 1.0], ["a", "a", "a"], resamples=20)
    assert constant_in_words(unknown, "old") == (
        "old loses to a constant: the mean of these rows is nearer to them than its predictions (R² -3, all rows "
        "together)."
    )
    assert constant_in_words(evaluate("regression", [1, 2], [1, 2], ["a", "a"], resamples=0), "old") == ""


def test_a_fitted_model_knows_its_constant() -> None:
    table = river()
    model = fit_table(table, target="y", group="station", penalty=1.0)
    assert model.constant == pytest.approx(np.mean(table["y"]))
    assert over_constant(model.evaluate(table)).gain.value > 0  # type: ignore[union-attr]
    classes = fit_table(floods(), target="flood", group="station", penalty=1.0)
    assert classes.constant == max(("yes", "no"), key=floods()["flood"].count)
    assert replace(model, about={**model.about, "constant": "junk"}).constant is None
    assert replace(model, about={**model.about, "constant": math.inf}).constant is None


def test_groups_that_one_of_two_was_trained_on_make_it_unfair() -> None:
    mine = evaluate("regression", [1, 2], [1, 2], ["a", "b"], trained=["a"], resamples=0)
    theirs = evaluate("regression", [1, 2], [1, 2], ["a", "b"], trained=["a", "b"], resamples=0)
    assert unfair(mine, mine, "new", "old") == ""
    assert unfair(mine, theirs, "new", "old").startswith(
        "This is not fair: old was trained on 'b', and new was not. Fit"
    )
