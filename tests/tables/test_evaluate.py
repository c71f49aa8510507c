"""Metrics are what their formulas say, intervals cover what they should, and the order of rows does not matter."""

from __future__ import annotations

import csv
import io
import json
import math
import warnings
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn import metrics as reference

from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.groups import GroupIds, Groups
from toporo.tables import resample
from toporo.tables.evaluate import Evaluation, GroupScore, evaluate
from toporo.tables.resample import Interval

Y = [1.0, 2.0, 3.0, 10.0, 14.0, 5.0]
PREDICTED = [1.0, 4.0, 3.0, 13.0, 10.0, 5.5]
GROUPS = ["NY", "NY", "NY", "PA", "PA", "OH"]
CLASSES = ["cat", "dog", "owl"]


def score(result: Evaluation, group: str) -> GroupScore:
    (found,) = (score for score in result.groups if score.group == group)
    return found


def values(metrics: dict[str, Interval]) -> dict[str, float]:
    return {name: interval.value for name, interval in metrics.items()}


def simulated(seed: int, sizes: list[int]) -> tuple[Any, Any, list[str]]:
    """A target, predictions with an error that grows from group to group, and the groups."""
    random = np.random.default_rng(seed)
    names = np.repeat([f"g{i}" for i in range(len(sizes))], sizes)
    spread = np.repeat(1.0 + np.arange(len(sizes)), sizes)
    y = random.normal(size=len(names))
    return y, y + spread * random.normal(size=len(names)), names.tolist()


def judged(seed: int, sizes: list[int]) -> dict[str, Any]:
    """The same for classes, with probabilities."""
    random = np.random.default_rng(seed)
    names = np.repeat([f"g{i}" for i in range(len(sizes))], sizes)
    chances = random.dirichlet(np.ones(3), len(names))
    observed = np.asarray(CLASSES)[random.integers(3, size=len(names))]
    predicted = np.asarray(CLASSES)[chances.argmax(axis=1)]
    return {"y": observed, "predicted": predicted, "groups": names.tolist(), "probabilities": chances}


# ---------------------------------------------------------------------- values


def test_regression_by_hand() -> None:
    result = evaluate("regression", Y, PREDICTED, GROUPS, resamples=0)
    assert (result.task, result.metric) == ("regression", "rmse")
    assert [entry.group for entry in result.groups] == ["PA", "NY", "OH"]
    assert result.worst is result.groups[0]
    assert values(result.worst.metrics) == pytest.approx({"rmse": math.sqrt(12.5), "mae": 3.5, "r2": 1 - 25 / 8})
    assert values(score(result, "NY").metrics) == pytest.approx({"rmse": math.sqrt(4 / 3), "mae": 2 / 3, "r2": -1.0})
    assert score(result, "OH").metrics["rmse"].value == 0.5
    assert math.isnan(score(result, "OH").metrics["r2"].value)
    assert [entry.rows for entry in result.groups] == [2, 3, 1]


def test_each_group_counts_the_same_in_the_headline_and_each_row_beside_it() -> None:
    result = evaluate("regression", Y, PREDICTED, GROUPS, resamples=0)
    assert values(result.overall) == pytest.approx(
        {
            "rmse": (math.sqrt(12.5) + math.sqrt(4 / 3) + 0.5) / 3,
            "mae": (3.5 + 2 / 3 + 0.5) / 3,
            "r2": (1 - 25 / 8 - 1.0) / 2,  # one row has none
        }
    )
    assert values(result.pooled) == pytest.approx(
        {"rmse": math.sqrt(29.25 / 6), "mae": 9.5 / 6, "r2": reference.r2_score(Y, PREDICTED)}
    )


def test_classification_by_hand() -> None:
    result = evaluate(
        "classification",
        ["cat", "cat", "dog", "dog", "owl"],
        ["cat", "dog", "dog", "dog", "cat"],
        ["a", "a", "a", "b", "b"],
        probabilities=[[0.5, 0.5, 0], [0.25, 0.75, 0], [0, 1, 0], [0.2, 0.8, 0], [1, 0, 0]],
        classes=CLASSES,
        resamples=0,
    )
    assert (result.task, result.metric, result.worst.group) == ("classification", "accuracy", "b")
    assert list(result.overall) == ["accuracy", "log_loss", "balanced_accuracy"]
    assert values(score(result, "a").metrics) == pytest.approx(
        {"accuracy": 2 / 3, "log_loss": -(math.log(0.5) + math.log(0.25)) / 3, "balanced_accuracy": (0.5 + 1) / 2}
    )
    assert values(score(result, "b").metrics) == pytest.approx(
        {"accuracy": 0.5, "log_loss": -(math.log(0.8) + math.log(1e-15)) / 2, "balanced_accuracy": 0.5}
    )
    assert values(result.pooled)["balanced_accuracy"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert values(result.overall)["accuracy"] == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_the_reference_agrees_group_by_group() -> None:
    y, predicted, names = simulated(0, [5, 40, 700])
    result = evaluate("regression", y, predicted, names, resamples=0)
    for name in set(names):
        mine = np.asarray(names) == name
        found, given_ = score(result, name).metrics, (y[mine], predicted[mine])
        assert found["rmse"].value == pytest.approx(reference.root_mean_squared_error(*given_))
        assert found["mae"].value == pytest.approx(reference.mean_absolute_error(*given_))
        assert found["r2"].value == pytest.approx(reference.r2_score(*given_))
    rows = judged(0, [30, 60])
    judgement = evaluate("classification", classes=CLASSES, resamples=0, **rows)
    for name in ("g0", "g1"):
        mine = np.asarray(rows["groups"]) == name
        observed, guessed = rows["y"][mine], rows["predicted"][mine]
        found = score(judgement, name).metrics
        assert found["accuracy"].value == pytest.approx(reference.accuracy_score(observed, guessed))
        assert found["balanced_accuracy"].value == pytest.approx(reference.balanced_accuracy_score(observed, guessed))
        assert found["log_loss"].value == pytest.approx(
            reference.log_loss(observed, rows["probabilities"][mine], labels=CLASSES)
        )


@pytest.mark.parametrize("target", [0.1, 1e9 + 0.1, -7.0])
def test_a_target_that_does_not_vary_has_no_r2(target: float) -> None:
    result = evaluate("regression", [target] * 7, np.arange(7.0), ["a"] * 7)
    assert all(math.isnan(x) for x in vars(result.worst.metrics["r2"]).values())
    assert math.isnan(result.overall["r2"].value)
    assert result.worst.metrics["rmse"].low > 0


def test_r2_of_a_target_far_from_zero_is_that_of_one_near_it() -> None:
    y, predicted, names = simulated(1, [30, 30])
    near = evaluate("regression", y, predicted, names)
    far = evaluate("regression", y + 2.0**30, predicted + 2.0**30, names)
    for found, expected in ((far.worst, near.worst), (far.groups[1], near.groups[1])):
        assert_allclose([*vars(found.metrics["r2"]).values()], [*vars(expected.metrics["r2"]).values()], rtol=1e-4)
    assert far.pooled["r2"].value == pytest.approx(near.pooled["r2"].value)
    # The rows are not the same, so that other groups are drawn.
    assert_allclose([*vars(far.pooled["r2"]).values()], [*vars(near.pooled["r2"]).values()], rtol=0.15)


def test_groups_far_apart_do_not_spoil_one_anothers_r2() -> None:
    """Sums are taken near each group's own target; only then are they moved to a common one."""
    y, predicted, names = simulated(2, [30, 30])
    shift = np.where(np.asarray(names) == "g0", 0.0, 2.0**28)
    alone, beside = (
        evaluate("regression", y, predicted, names),
        evaluate("regression", y + shift, predicted + shift, names),
    )
    assert_allclose(
        [*vars(score(beside, "g1").metrics["r2"]).values()],
        [*vars(score(alone, "g1").metrics["r2"]).values()],
        rtol=1e-4,
    )
    assert beside.pooled["r2"].value == pytest.approx(1.0)
    assert beside.pooled["r2"].high == pytest.approx(1.0)


def test_one_class_has_no_balanced_accuracy() -> None:
    result = evaluate("classification", ["a", "a"], ["a", "b"], ["g", "g"], resamples=10)
    assert math.isnan(result.overall["balanced_accuracy"].value)
    assert result.overall["accuracy"].value == 0.5


def test_a_class_that_the_model_does_not_know_is_never_right() -> None:
    result = evaluate(
        "classification",
        ["emu", "cat"],
        ["cat", "cat"],
        ["g", "g"],
        probabilities=[[1, 0], [1, 0]],
        classes=["cat", "dog"],
    )
    assert result.worst.metrics["accuracy"].value == 0.5
    assert result.worst.metrics["log_loss"].value == pytest.approx(-math.log(1e-15) / 2)


@pytest.mark.parametrize(("y", "predicted"), [([0, 1, 1], [0.0, 1.0, 0.0]), ([False, True, True], [0, 1, 0])])
def test_classes_may_be_numbers(y: list[Any], predicted: list[Any]) -> None:
    result = evaluate("classification", y, predicted, ["g"] * 3, resamples=0)
    assert result.overall["accuracy"].value == pytest.approx(2 / 3)


def test_ids_are_taken_as_names_are() -> None:
    groups = Groups(["unused", *GROUPS])
    ids = GroupIds(groups.encode(GROUPS), groups)
    assert repr(evaluate("regression", Y, PREDICTED, ids)) == repr(evaluate("regression", Y, PREDICTED, GROUPS))


def test_of_equally_bad_groups_the_larger_comes_first_then_the_first_in_the_alphabet() -> None:
    result = evaluate("regression", np.zeros(4), np.ones(4), ["c", "b", "a", "a"], resamples=0)
    assert [entry.group for entry in result.groups] == ["a", "b", "c"]


# ---------------------------------------------------------------------- distances


def test_groups_by_distance() -> None:
    y, predicted, names = simulated(3, [10] * 6)
    hops = {"g0": 0, "g2": 2, "g3": 1, "g4": math.inf, "elsewhere": 9}
    result = evaluate("regression", y, predicted, names, hops=hops, trained=["g0", "g1", "gone"])
    assert list(result.by_hop) == ["0 (trained on)", "1", "2", "no path", "not in the graph"]
    assert {entry.group: (entry.hops, entry.trained) for entry in result.groups} == {
        "g0": (0, True),
        "g1": (0, True),
        "g2": (2, False),
        "g3": (1, False),
        "g4": (math.inf, False),
        "g5": (None, False),
    }
    trained = evaluate("regression", y[:20], predicted[:20], names[:20], resamples=1000)
    assert result.by_hop["0 (trained on)"] == trained.overall
    assert result.by_hop["1"] == score(result, "g3").metrics
    assert evaluate("regression", y, predicted, names, trained=["g0"]).by_hop == {}


@pytest.mark.parametrize("far", [0, -1, math.nan])
def test_a_group_that_was_not_trained_on_is_some_way_off(far: float) -> None:
    with pytest.raises(DataError, match=f"group 'NY' is {far!r} hops from the nearest training group: expected more"):
        evaluate("regression", Y, PREDICTED, GROUPS, hops={"NY": far})


# ---------------------------------------------------------------------- intervals


def test_one_row_has_no_interval() -> None:
    result = evaluate("regression", Y, PREDICTED, GROUPS)
    alone = score(result, "OH").metrics
    assert alone["rmse"].value == 0.5
    assert all(math.isnan(x) for name in alone for x in (alone[name].low, alone[name].high))
    assert result.overall["rmse"].low < result.overall["rmse"].value < result.overall["rmse"].high


def test_a_single_row_in_all_has_none_either() -> None:
    for result in (
        evaluate("regression", [1], [2], ["a"], hops={"a": 1}),
        evaluate("classification", ["x"], ["x"], ["a"], hops={"a": 1}),
    ):
        found = [result.overall, result.pooled, result.worst.metrics, *result.by_hop.values()]
        assert all(math.isnan(entry.low) and math.isnan(entry.high) for metrics in found for entry in metrics.values())
        assert not math.isnan(result.overall[result.metric].value)


def test_with_one_group_rows_alone_are_resampled() -> None:
    y, predicted, names = simulated(4, [50])
    result = evaluate("regression", y, predicted, names)
    assert result.overall == result.pooled == result.worst.metrics


def test_groups_that_are_all_of_one_row_still_have_a_mean_with_an_interval() -> None:
    result = evaluate("regression", np.zeros(20), np.arange(20.0), [f"g{i}" for i in range(20)])
    found = result.overall["mae"]
    spread = np.arange(20.0).std() / math.sqrt(20)
    assert found.value == 9.5
    assert_allclose([found.low, found.high], [9.5 - 1.96 * spread, 9.5 + 1.96 * spread], rtol=0.1)


def test_no_resamples_no_intervals() -> None:
    result = evaluate("regression", Y, PREDICTED, GROUPS, resamples=0)
    assert all(math.isnan(entry.low) and math.isnan(entry.high) for entry in result.overall.values())
    assert not math.isnan(result.overall["rmse"].value)


@pytest.mark.parametrize("rows", [80, 501])
def test_the_interval_of_a_mean_is_that_of_the_normal_distribution(rows: int) -> None:
    """Of the mean absolute error: ±1.96 standard errors, both by counting rows and by the normal distribution."""
    y, predicted, names = simulated(5, [rows])
    found = evaluate("regression", y, predicted, names, resamples=4000).worst.metrics["mae"]
    error = np.abs(predicted - y).std() / math.sqrt(rows)
    assert_allclose([found.low - found.value, found.high - found.value], [-1.96 * error, 1.96 * error], rtol=0.1)


@pytest.mark.parametrize("metric", ["rmse", "mae", "r2", "accuracy", "log_loss", "balanced_accuracy"])
def test_many_rows_by_the_normal_distribution_are_as_if_they_were_drawn(
    monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    def found() -> Interval:
        if metric in ("rmse", "mae", "r2"):
            y, predicted, names = simulated(6, [400])
            predicted = 0.7 * y + 0.3 * predicted
            return evaluate("regression", y, predicted, names, resamples=4000).worst.metrics[metric]
        return evaluate("classification", classes=CLASSES, resamples=4000, **judged(6, [400])).worst.metrics[metric]

    drawn = found()
    monkeypatch.setattr(resample, "EXACT_ROWS", 399)
    normal = found()
    width = drawn.high - drawn.low
    assert normal.value == drawn.value
    assert_allclose([normal.low, normal.high], [drawn.low, drawn.high], atol=0.08 * width, rtol=0)


@pytest.mark.parametrize(("level", "least", "most"), [(0.9, 0.82, 0.96), (0.5, 0.38, 0.62)])
def test_intervals_of_groups_cover_the_truth_as_often_as_they_say(level: float, least: float, most: float) -> None:
    """200 groups of normal errors, of which the true rmse and mae are known."""
    random = np.random.default_rng(7)
    names = np.repeat([f"g{i}" for i in range(200)], 60)
    y, error = random.normal(size=len(names)), random.normal(size=len(names))
    result = evaluate("regression", y, y + error, names.tolist(), resamples=300, level=level)
    for metric, truth in (("rmse", 1.0), ("mae", math.sqrt(2 / math.pi)), ("r2", 0.0)):
        found = [entry.metrics[metric] for entry in result.groups]
        assert least < np.mean([entry.low <= truth <= entry.high for entry in found]) < most


def test_intervals_of_accuracy_cover_the_truth_as_often_as_they_say() -> None:
    random = np.random.default_rng(8)
    names = np.repeat([f"g{i}" for i in range(300)], 80)
    y = random.integers(2, size=len(names))
    predicted = np.where(random.random(len(names)) < 0.7, y, 1 - y)
    result = evaluate("classification", y, predicted, names.tolist(), resamples=300, level=0.9)
    for metric in ("accuracy", "balanced_accuracy"):
        found = [entry.metrics[metric] for entry in result.groups]
        assert 0.83 < np.mean([entry.low <= 0.7 <= entry.high for entry in found]) < 0.96


def test_the_interval_of_the_mean_covers_the_mean_of_all_groups_there_could_be() -> None:
    """60 tables of 20 groups, whose errors have a scale that is drawn anew for each group."""
    random, hits, between = np.random.default_rng(9), {"overall": 0, "pooled": 0}, 0.4
    names = np.repeat([f"g{i}" for i in range(20)], 15).tolist()
    for _ in range(60):
        error = np.repeat(np.exp(between * random.normal(size=20)), 15) * random.normal(size=300)
        result = evaluate("regression", np.zeros(300), error, names, resamples=200, level=0.9)
        truth = math.sqrt(2 / math.pi) * math.exp(between**2 / 2)
        for which in hits:
            found = getattr(result, which)["mae"]
            hits[which] += found.low <= truth <= found.high
    assert 48 <= hits["overall"] <= 60
    assert 48 <= hits["pooled"] <= 60


def test_a_mean_over_many_small_groups_lies_in_its_interval() -> None:
    """Resamples of three rows have a lower rmse on average; over many groups that is more than the interval's width."""
    error = np.random.default_rng(10).normal(size=4500)
    names = np.repeat([f"g{i}" for i in range(1500)], 3).tolist()
    found = evaluate("regression", np.zeros(4500), error, names, resamples=200).overall["rmse"]
    assert found.low < found.value < found.high
    assert found.high - found.low < 0.1


@pytest.mark.parametrize("y", [[0.1, 0.2, 0.7], [1 / 3, 0.9, 1.7], [-5.3, 0.1, 7.7]])
def test_resamples_whose_target_varies_by_rounding_alone_do_not_count(y: list[float]) -> None:
    """One in nine has a single row three times; divided by what rounding leaves, r2 would be astronomical."""
    found = evaluate("regression", y, np.asarray(y) + 0.1, ["a"] * 3).worst.metrics["r2"]
    assert found.low > -100


@pytest.mark.parametrize("right", [0, 1])
def test_what_never_happened_gives_no_width(right: int) -> None:
    found = evaluate("classification", [1] * 9, [right] * 9, ["a"] * 5 + ["b"] * 4)
    assert found.overall["accuracy"] == found.worst.metrics["accuracy"] == Interval(right, right, right)


def test_other_groups_do_not_change_an_interval_and_seeds_do() -> None:
    y, predicted, names = simulated(11, [20, 600, 30])
    whole, part = (
        evaluate("regression", y, predicted, names),
        evaluate("regression", y[:620], predicted[:620], names[:620]),
    )
    for name in ("g0", "g1"):
        assert score(whole, name) == score(part, name)
    other = evaluate("regression", y, predicted, names, seed=1)
    for name in ("g0", "g1", "g2"):
        assert score(other, name).metrics["rmse"] != score(whole, name).metrics["rmse"]
        assert score(other, name).metrics["rmse"].value == score(whole, name).metrics["rmse"].value


def test_portions_of_random_numbers_make_no_difference_to_values_and_little_to_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y, predicted, names = simulated(12, [20, 30])
    whole = evaluate("regression", y, predicted, names)
    monkeypatch.setattr(resample, "PORTION", 70)
    parts = evaluate("regression", y, predicted, names)
    for found, expected in ((parts.worst.metrics, whole.worst.metrics), (parts.overall, whole.overall)):
        assert found["rmse"].value == expected["rmse"].value
        width = expected["rmse"].high - expected["rmse"].low
        assert_allclose(
            [found["rmse"].low, found["rmse"].high], [expected["rmse"].low, expected["rmse"].high], atol=0.15 * width
        )


# ---------------------------------------------------------------------- laws


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.integers(0, 99),
    st.sampled_from(["numbers", "classes", "classes with probabilities"]),
    st.booleans(),
)
def test_the_order_of_rows_does_not_matter(sizes: list[int], seed: int, what: str, big: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if big:
            patch.setattr(resample, "EXACT_ROWS", 2)
        random = np.random.default_rng(seed)
        rows: dict[str, Any]
        if what != "numbers":
            rows, task = judged(seed, sizes), "classification"
            if what == "classes":
                del rows["probabilities"]
        else:
            y, predicted, names = simulated(seed, sizes)
            # Rounded, so that there are ties, zeros of both signs, and targets that do not vary.
            rows, task = (
                {"y": np.round(y) * 0.5, "predicted": np.round(predicted) * -0.5, "groups": names},
                "regression",
            )
        extra = {"classes": CLASSES} if "probabilities" in rows else {}
        distinct = sorted(set(rows["groups"]))
        hops = {name: float(1 + place % 2) for place, name in enumerate(distinct)}
        before = evaluate(task, hops=hops, resamples=50, **rows, **extra)

        order = random.permutation(len(rows["y"]))
        moved = {key: np.asarray(value)[order].tolist() for key, value in rows.items() if key != "probabilities"}
        moved |= {"probabilities": rows["probabilities"][order]} if "probabilities" in rows else {}
        after = evaluate(task, hops=hops, resamples=50, **moved, **extra)
        for part in ("overall", "pooled", "by_hop", "groups"):
            assert repr(getattr(after, part)) == repr(getattr(before, part))  # to the last bit; nan is not nan


@pytest.mark.parametrize("many", [1, 1000])
def test_zeros_of_either_sign_are_the_same_whatever_their_order(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(resample, "EXACT_ROWS", many)
    y, error, names = np.asarray([0.0, -0.0, 1.0, 3.0, 5.0]), np.asarray([1.0, 1.0, -1.0, 2.0, 4.0]), list("aaabb")
    before = evaluate("regression", y, y + error, names, resamples=50)
    order = [1, 0, 2, 3, 4]
    assert repr(evaluate("regression", y[order], (y + error)[order], names, resamples=50)) == repr(before)


# ---------------------------------------------------------------------- written


def evaluated() -> Evaluation:
    hops = {"NY": 0, "PA": math.inf}
    return evaluate("regression", Y, PREDICTED, GROUPS, hops=hops, trained=["NY"], resamples=50, level=0.8, seed=3)


def test_json_is_valid_and_read_back() -> None:
    result = evaluated()
    text = json.dumps(result.to_dict(), allow_nan=False)
    content = json.loads(text)
    assert content["worst"] == "PA"
    assert [entry["hops"] for entry in content["groups"]] == ["inf", 0.0, None]
    assert content["groups"][2]["metrics"]["r2"] == {"value": None, "low": None, "high": None}
    assert repr(Evaluation.from_dict(content)) == repr(result)
    assert (content["level"], content["resamples"], content["seed"]) == (0.8, 50, 3)


def test_the_headline_is_of_groups_that_were_not_trained_on() -> None:
    mixed = evaluated()
    alone = [name != "NY" for name in GROUPS]
    y, predicted, names = (np.asarray(column)[alone] for column in (Y, PREDICTED, GROUPS))
    new = evaluate("regression", y, predicted, names.tolist(), resamples=50, level=0.8, seed=3)
    assert mixed.headline_groups == ("PA", "OH")
    assert mixed.headline == mixed.unseen
    assert mixed.headline["rmse"].value == new.overall["rmse"].value != mixed.overall["rmse"].value
    assert new.headline == new.overall
    assert new.unseen == {}
    trained = evaluate("regression", Y, PREDICTED, GROUPS, trained=set(GROUPS), resamples=0)
    assert trained.headline == trained.overall
    old = {key: value for key, value in mixed.to_dict().items() if key != "unseen"}
    assert Evaluation.from_dict(old).headline == Evaluation.from_dict(old).overall


@pytest.mark.parametrize(
    "damage", [{"groups": [{}]}, {"worst": "XX"}, {"overall": {"rmse": {"value": "high"}}}, {"by_hop": None}]
)
def test_what_is_not_an_evaluation_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="not a stored evaluation"):
        Evaluation.from_dict(evaluated().to_dict() | damage)


def test_csv_has_a_line_a_group(tmp_path: Path) -> None:
    result = evaluated()
    text = result.to_csv(tmp_path / "by_group.csv")
    assert (tmp_path / "by_group.csv").read_text(encoding="utf-8") == text
    lines = list(csv.DictReader(io.StringIO(text)))
    names = [f"{metric}{end}" for metric in ("rmse", "mae", "r2") for end in ("", "_low", "_high")]
    assert list(lines[0]) == ["group", "rows", "hops", "trained", *names]
    assert [(line["group"], line["rows"], line["hops"], line["trained"]) for line in lines] == [
        ("PA", "2", "inf", "false"),
        ("NY", "3", "0", "true"),
        ("OH", "1", "", "false"),
    ]
    for line, entry in zip(lines, result.groups, strict=True):
        for metric, interval in entry.metrics.items():
            cells = [line[metric], line[f"{metric}_low"], line[f"{metric}_high"]]
            assert [float(cell or "nan") for cell in cells] == pytest.approx(
                [*vars(interval).values()], nan_ok=True, rel=0
            )


def test_csv_quotes_what_needs_it() -> None:
    names = ['a,"b"', "Ωmega\nnew line"]
    text = evaluate("regression", [1, 2], [1, 1], names, resamples=0).to_csv()
    assert {line["group"] for line in csv.DictReader(io.StringIO(text))} == set(names)


def test_text_table() -> None:
    lines = evaluated().lines()
    assert [line.split("  ")[0] for line in lines] == [
        "",
        "mean over 2 groups not trained on",
        "mean over 3 groups",
        "all rows together",
        "hops 0 (trained on)",
        "hops 2",
        "hops no path",
        "PA",
        "NY",
        "OH",
    ]
    assert lines[0].split() == ["rows", "hops", "rmse", "mae", "r2"]
    assert lines[7].split()[:3] == ["PA", "2", "no"]
    place = lines[0].index("rmse")
    assert all(line[place - 1] == " " and line[place].isdigit() for line in lines[1:])
    assert evaluated().lines(1)[-2:] == [lines[7], "… and 2 more group(s)"]
    names = [f"group {i} {'x' * 60}" for i in range(30)]
    shown = str(evaluate("regression", np.zeros(30), np.arange(30.0), names, resamples=0)).splitlines()
    assert len(shown) == 24
    assert shown[-1] == "… and 10 more group(s)"
    assert shown[3].startswith("group 29 xxxx")
    assert "x" * 32 not in shown[3]


# ---------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"task": "ranking"}, UnknownNameError, "unknown task 'ranking'"),
        ({"y": [1.0] * 5}, DataError, r"y has the shape \(5,\), expected \(6,\)"),
        ({"predicted": np.zeros((6, 1))}, DataError, r"predicted has the shape \(6, 1\)"),
        (
            {"y": [*Y[:5], math.nan]},
            DataError,
            r"y has 1 value\(s\) that are missing or infinite, the first at place 5",
        ),
        ({"predicted": [math.inf, *Y[1:]]}, DataError, "predicted has 1 value"),
        ({"y": ["a"] * 6}, DataError, "y holds what is not a number"),
        ({"groups": [1, 2, 3, 4, 5, 6]}, DataError, "groups are to be text, found 1, 2"),
        ({"groups": []}, DataError, "there are no rows to evaluate"),
        ({"groups": ["a"] * 5}, DataError, r"y has the shape \(6,\), expected \(5,\)"),
        ({"resamples": -1}, SettingError, "resamples is -1: expected a whole number of at least 0"),
        ({"resamples": 10.0}, SettingError, "resamples is 10.0"),
        ({"seed": True}, SettingError, "seed is True"),
        ({"level": 95}, SettingError, "level is 95: expected a number between 0 and 1"),
        ({"level": math.nan}, SettingError, "level is nan"),
    ],
)
def test_regression_refuses(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    given_ = {"task": "regression", "y": Y, "predicted": PREDICTED, "groups": GROUPS} | changes
    with pytest.raises(error, match=message):
        evaluate(**given_)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"y": ["a", None]}, DataError, "y lacks a class at place 1"),
        ({"predicted": np.asarray(["a", math.nan], dtype=object)}, DataError, "predicted lacks a class at place 1"),
        ({"y": ["a", math.nan]}, DataError, "y lacks a class at place 1"),
        ({"y": ["a", 1]}, DataError, "y has both text and numbers for classes: 'a' and 1"),
        ({"y": ["a"]}, DataError, r"y has the shape \(1,\), expected \(2,\): one class"),
        ({"predicted": [0, 1]}, DataError, "y has classes such as 'a', predicted such as 0: text and numbers"),
        ({"classes": ["a", "c"]}, DataError, "predicted has 'b', which is not among the classes 'a', 'c'"),
        ({"classes": None}, SettingError, "probabilities are given without classes"),
        ({"probabilities": [[1.0], [1.0]]}, DataError, r"probabilities have the shape \(2, 1\), expected \(2, 2\)"),
        ({"probabilities": [[0.5, 0.5], [0.5, 0.6]]}, DataError, r"1 row\(s\) of probabilities are none, .* place 1"),
        ({"probabilities": [[1.5, -0.5], [0.5, 0.5]]}, DataError, r"place 0: \[1.5, -0.5\]"),
        ({"probabilities": [[math.nan, 1.0], [0.5, 0.5]]}, DataError, "place 0"),
    ],
)
def test_classification_refuses(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    plain = {"y": ["a", "b"], "predicted": ["a", "b"], "groups": ["g", "g"]}
    given_ = plain | {"probabilities": [[0.5, 0.5], [0.5, 0.5]], "classes": ["a", "b"]} | changes
    with pytest.raises(error, match=message):
        evaluate("classification", **given_)


@pytest.mark.parametrize("rows", [4, 600])  # counted, and drawn from a normal distribution
@pytest.mark.parametrize("unit", [990, 700, 400, -400, -900])
def test_numbers_whose_squares_are_beyond_all_are_judged_like_others(unit: int, rows: int) -> None:
    y, predicted = np.random.default_rng(0).normal(size=(2, 3 * rows))
    groups = np.repeat(["a", "b", "c"], rows).tolist()
    usual = 200 if unit > 0 else -205
    plain = evaluate("regression", np.ldexp(y, usual), np.ldexp(predicted, usual), groups, resamples=50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        far = evaluate("regression", np.ldexp(y, unit), np.ldexp(predicted, unit), groups, resamples=50)
    for here, there in (
        (far.pooled, plain.pooled),
        (far.overall, plain.overall),
        (far.worst.metrics, plain.worst.metrics),
    ):
        for name, interval in there.items():
            times = 0 if name == "r2" else unit - usual
            assert vars(here[name]) == {key: pytest.approx(math.ldexp(x, times)) for key, x in vars(interval).items()}


def test_numbers_too_large_to_be_added_up_are_refused() -> None:
    with pytest.raises(DataError, match=r"y holds numbers beyond 1e\+300: give the target in a larger unit"):
        evaluate("regression", [1e308, -1e308], [0, 0], ["a", "b"])
    with pytest.raises(DataError, match="predicted holds numbers beyond"):
        evaluate("regression", [0, 0], [1e301, 0], ["a", "b"])


def test_the_last_bits_of_a_prediction_do_not_move_intervals() -> None:
    """Processors round differently; random numbers must not follow from losses."""
    y, predicted, groups = simulated(0, [30, 20, 700])
    nearby = np.nextafter(np.asarray(predicted), np.inf)
    before, after = (evaluate("regression", y, values, groups, resamples=50) for values in (predicted, nearby))
    for one, other in ((before.overall, after.overall), (before.pooled, after.pooled)):
        for metric, interval in one.items():
            assert_allclose(astuple(other[metric]), astuple(interval), rtol=1e-9)
