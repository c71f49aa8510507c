"""Many models on regions held out: errors as by hand, failures that stop nobody, words that claim no more than that."""

from __future__ import annotations

import csv
import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import LinearSVC

import toporo as tr
from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.tables import Contest, Entrant, Interval, Judgement
from toporo.tables.contest import CONTROL, MODEL, SHUFFLED, YOURS, error_difference, mean_over_groups

PLACES = [f"g{place:02d}" for place in range(10)]
CHAIN = list(pairwise(PLACES))
NEW = ["g08", "g09"]


def chain(rows: int = 12, groups: int = 10) -> dict[str, list[Any]]:
    """Groups in a row, neighbours alike: the level of y is a wave along it."""
    rng = np.random.default_rng(0)
    place = np.repeat(np.arange(groups), rows)
    x = rng.normal(size=(len(place), 2))
    y = x[:, 0] + 2.0 * np.sin(place / 2.0) + 0.3 * rng.normal(size=len(place))
    return {"g": [f"g{i:02d}" for i in place], "a": x[:, 0].tolist(), "b": x[:, 1].tolist(), "y": y.tolist()}


class Silent(Ridge):
    """Predicts nothing."""

    def predict(self, X: Any) -> Any:
        return np.full(len(X), np.nan)


class Broken(Ridge):
    """Cannot be fitted."""

    def fit(self, X: Any, y: Any) -> Any:
        raise RuntimeError("out of order\nand more")


@pytest.fixture(scope="module")
def contest() -> Contest:
    own = {"mine": LinearRegression(), "silent": Silent(), "broken": Broken()}
    return tr.compare_models(
        chain(), target="y", group="g", graph=CHAIN, test_groups=NEW, estimators=own, fast=True, folds=3
    )


# ---------------------------------------------------------------- numbers


def by_hand(held: list[str]) -> dict[str, float]:
    """The error of least squares by group, fitted to the training groups that are not held."""
    table = chain()
    x, y, g = np.column_stack([table["a"], table["b"]]), np.asarray(table["y"]), np.asarray(table["g"])
    known = ~np.isin(g, [*held, *NEW])
    model = LinearRegression().fit(x[known], y[known])
    return {name: float(np.sqrt(np.mean((model.predict(x[g == name]) - y[g == name]) ** 2))) for name in held}


def test_errors_are_those_of_models_that_have_not_seen_the_region(contest: Contest) -> None:
    assert sorted(sum(contest.regions, ())) == PLACES[:8]
    assert len(contest.regions) == 3
    errors = {name: error for region in contest.regions for name, error in by_hand(list(region)).items()}
    mine = contest["mine"]
    assert mine.regions is not None
    assert mine.regions.by_group == pytest.approx(errors)
    assert mine.regions.error.value == pytest.approx(np.mean(list(errors.values())))
    assert mine.test is not None
    assert mine.test.by_group == pytest.approx(by_hand(NEW))
    assert contest.test_groups == tuple(NEW)


def test_ratios_are_to_erm_and_differences_to_the_reference_paired(contest: Contest) -> None:
    assert contest.reference == "linear, TRO"
    judged = {entrant.name: entrant.regions for entrant in contest.entrants if entrant.regions is not None}
    erm, reference, kriged = (judged[name] for name in ("linear, ERM", contest.reference, "kriged"))
    assert erm.ratio == 1.0
    assert kriged.ratio == pytest.approx(kriged.error.value / erm.error.value)
    assert reference.difference == Interval(0.0, 0.0, 0.0)
    apart = [kriged.by_group[name] - reference.by_group[name] for name in reference.by_group]
    assert kriged.difference.value == pytest.approx(np.mean(apart))
    assert min(apart) <= kriged.difference.low < kriged.difference.high <= max(apart)
    assert contest.difference("kriged", contest.reference) == kriged.difference
    assert contest.difference(contest.reference, "kriged").value == pytest.approx(-kriged.difference.value)
    errors = [each.error.value for each in judged.values()]
    assert errors == sorted(errors)


def test_differences_that_are_rounding_are_none() -> None:
    assert error_difference({"a": 1.0, "b": 2.0}, {"a": 1.0 + 1e-9, "b": 2.0}, 100, 0.9, 0) == Interval(0, 0, 0)
    assert error_difference({"a": 1.0}, {"a": 1.1}, 100, 0.9, 0).value == pytest.approx(-0.1)


def test_a_graph_that_matters_is_seen_to(contest: Contest) -> None:
    names = [f"g{place:02d}" for place in range(18)]
    table, edges = chain(8, len(names)), list(pairwise(names))
    long = tr.compare_models(table, target="y", group="g", graph=edges, fast=True, folds=5)
    assert long.words()[0].startswith("Kriged is best; the graph helps: kriged is better by ")
    assert {SHUFFLED["kriged"], SHUFFLED["linear, TRO"]} <= {e.name for e in contest.entrants if e.kind == CONTROL}


def test_what_fails_is_named_and_the_others_go_on(contest: Contest) -> None:
    out = {entrant.name: entrant.note for entrant in contest.entrants if entrant.regions is None}
    assert out == {"silent": "it predicts NaN or infinity", "broken": "RuntimeError: out of order and more"}
    assert [entrant.name for entrant in contest.entrants[-2:]] == list(out)
    told = next(sentence for sentence in contest.words() if sentence.startswith("Left out"))
    assert "“silent” (it predicts NaN or infinity)" in told
    assert contest["mine"].kind == YOURS
    with pytest.raises(UnknownNameError, match="unknown model 'nobody'"):
        contest["nobody"]


def test_the_same_seed_gives_the_same_table_as_text_csv_and_json(contest: Contest, tmp_path: Any) -> None:
    own = {"mine": LinearRegression(), "silent": Silent(), "broken": Broken()}
    settings: dict[str, Any] = {"target": "y", "group": "g", "graph": CHAIN, "test_groups": NEW, "fast": True}
    steps: list[tuple[int, int]] = []
    again = tr.compare_models(
        chain(), estimators=own, folds=3, progress=lambda done, total: steps.append((done, total)), **settings
    )
    assert again.to_csv(tmp_path / "table.csv") == contest.to_csv() == (tmp_path / "table.csv").read_text()
    assert steps[-1][0] == steps[-1][1] == len(steps)
    rows = list(csv.DictReader(contest.to_csv().splitlines()))
    assert [row["model"] for row in rows] == [entrant.name for entrant in contest.entrants]
    assert float(rows[0]["error"]) == contest.entrants[0].regions.error.value  # type: ignore[union-attr]
    assert rows[-1]["error"] == ""
    content = json.loads(json.dumps(contest.to_dict(), allow_nan=False))
    assert content["words"] == contest.words()
    assert content["models"][-1] == {"name": "broken", "kind": "yours", "note": "RuntimeError: out of order and more",
                                     "regions": None, "test": None}  # fmt: skip
    assert str(contest).splitlines()[0] == contest.words()[0]
    assert "left out" in str(contest)


def test_auto_and_each_of_its_candidates_take_part() -> None:
    table = {name: column[: 12 * 8] for name, column in chain().items()}
    contest = tr.compare_models(table, target="y", group="g", graph=CHAIN, folds=2, budget=0.001)
    names = {entrant.name: entrant.kind for entrant in contest.entrants if entrant.regions is not None}
    assert contest.reference == "auto"
    assert {"trees", "trees with context", "linear", "linear, groups alike"} <= names.keys()
    assert names["auto, shuffled graph"] == CONTROL
    assert names["trees"] == names["auto"] == MODEL
    assert len(contest.regions) == 1, "the first region is judged in any case"
    assert "Only 1 of 2 regions could be held out: the budget was spent." in contest.words()


# ---------------------------------------------------------------- tables of other kinds


def test_classes_are_judged_by_log_loss_and_accuracy() -> None:
    table = chain()
    table["y"] = np.where(np.asarray(table["y"]) > 0, "high", "low").tolist()
    table["y"][:12] = ["rare"] * 12  # in g00 alone
    settings: dict[str, Any] = {"target": "y", "group": "g", "fast": True, "folds": 5}
    contest = tr.compare_models(table, estimators={"machine": LinearSVC()}, **settings)
    assert contest.metric == "log_loss"
    machine, erm = contest["machine"].regions, contest["linear, ERM"].regions
    assert machine is not None
    assert erm is not None
    assert math.isnan(machine.error.value)
    assert 0.5 < machine.accuracy < 1
    assert contest["machine"].note == "no probabilities: judged by accuracy alone"
    assert 0 < erm.error.value < contest["constant"].regions.error.value  # type: ignore[union-attr]
    assert "g00" not in erm.by_group
    assert "12 rows in regions held out are not judged: no other group has their class." in contest.words()
    assert contest.words()[0].endswith("; there is no graph.")


def test_weights_reach_every_estimator() -> None:
    table = chain()
    table["w"] = [100.0 if group == "g03" else 1.0 for group in table["g"]]
    own = {"mine": LinearRegression()}
    settings: dict[str, Any] = {"target": "y", "group": "g", "estimators": own, "fast": True, "folds": 2}
    with pytest.raises(SettingError, match="KNeighborsRegressor takes no sample_weight"):
        tr.compare_models(table, weight="w", **settings | {"estimators": own | {"near": KNeighborsRegressor()}})
    weighed = tr.compare_models(table, weight="w", **settings)
    plain = tr.compare_models({name: column for name, column in table.items() if name != "w"}, **settings)
    moved = {e.name for e in plain.entrants if e.regions.by_group != weighed[e.name].regions.by_group}  # type: ignore[union-attr]
    assert {"mine", "constant"} <= moved


def test_rows_without_weight_count_nothing() -> None:
    table = chain(6)
    less = {name: column[1:] for name, column in table.items()}
    table["w"] = [0.0] + [1.0] * (len(table["g"]) - 1)
    settings: dict[str, Any] = {"target": "y", "group": "g", "estimators": {"mine": Ridge()}, "fast": True, "folds": 2}
    weighed, without = tr.compare_models(table, weight="w", **settings), tr.compare_models(less, **settings)
    assert weighed["mine"].regions.by_group == pytest.approx(without["mine"].regions.by_group)  # type: ignore[union-attr]


def test_test_groups_without_targets_leave_the_regions() -> None:
    table = chain()
    table["y"] = [None if group in NEW else y for group, y in zip(table["g"], table["y"], strict=True)]
    contest = tr.compare_models(table, target="y", group="g", test_groups=NEW, fast=True, folds=2)
    assert contest.test_groups == ()
    assert contest.words()[-1].startswith("No row of the test groups has a target")


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"estimators": [Ridge()]}, SettingError, "expected estimators by name"),
        ({"estimators": {"mine": Ridge}}, SettingError, r"'mine' is a class: make an estimator of it, Ridge\("),
        ({"estimators": {"mine": 3}}, SettingError, r"of type int, which has no fit\(\) and no predict\(\)"),
        ({"estimators": {"constant": Ridge()}}, SettingError, "toporo's own have that name"),
        ({"budget": 0}, SettingError, "budget is 0"),
        ({"folds": 1}, SettingError, "folds is 1"),
        ({"test_groups": PLACES[2:]}, DataError, r"2 training groups \('g00', 'g01'\).* at least 3"),
        ({"task": "ranking"}, LookupError, "unknown task 'ranking'"),
    ],
)
def test_mistakes_are_named(given: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        tr.compare_models(chain(), target="y", group="g", **({"fast": True} | given))


def test_a_target_of_one_class_in_all_regions_but_one_cannot_be_learned() -> None:
    table = chain()
    table["y"] = ["yes" if group == "g00" else "no" for group in table["g"]]
    table = {name: column[: 12 * 3] for name, column in table.items()}
    contest = tr.compare_models(table, target="y", group="g", fast=True, folds=3)
    assert ("g00",) not in contest.regions
    assert len(contest.regions) == 2


# ---------------------------------------------------------------- words


def made(errors: dict[str, list[float]], kinds: dict[str, str] | None = None, *, graph: bool = True) -> Contest:
    """A contest whose errors by group are as given; the first is the reference."""
    reference = next(iter(errors))
    entrants = []
    for name, values in errors.items():
        by_group = {f"g{place}": value for place, value in enumerate(values)}
        others = {f"g{place}": value for place, value in enumerate(errors[reference])}
        apart = error_difference(by_group, others, 200, 0.95, 0)
        judged = Judgement(mean_over_groups(values, 200, 0.95, 0), math.nan, 1.0, apart, by_group)
        kind = (kinds or {}).get(name, CONTROL if name == "constant" or "shuffled" in name else MODEL)
        entrants.append(Entrant(name, kind, judged))
    regions = tuple((f"g{place}",) for place in range(len(errors[reference])))
    entrants.sort(key=lambda entrant: entrant.regions.error.value)  # type: ignore[union-attr]
    return Contest("regression", "rmse", tuple(entrants), reference, regions, (), graph, (), {}, resamples=200)


EVEN, WAVY = [1.0] * 8, [1.2, 0.8] * 4


def test_the_best_is_best_only_if_clearly_better_than_each() -> None:
    clear = made({"auto": EVEN, "trees": [0.5] * 8, "constant": [2.0] * 8})
    assert clear.words()[0].startswith("Trees are best; ")
    near = made({"auto": EVEN, "trees": [0.99 * x for x in WAVY], "constant": [2.0] * 8})
    assert near.words()[0].startswith("Trees have the lowest RMSE, not clearly lower than auto; ")
    assert near.words()[1].startswith("auto is not clearly different from trees in RMSE (worse by 0.01, ")


def test_the_best_on_a_shuffled_graph_is_nobodys_rival() -> None:
    twin = made({"auto": EVEN, SHUFFLED["auto"]: [0.99 * x for x in WAVY], "trees": [1.5] * 8, "constant": [2.0] * 8})
    assert twin.words()[0].startswith("Auto is best; the graph adds nothing that shows: ")


def test_few_groups_tell_nothing() -> None:
    few = made({"auto": EVEN[:4], "trees": [0.5] * 4, "constant": [2.0] * 4})
    assert few.words()[0].startswith("Trees have the lowest RMSE, but 4 groups are too few to tell; ")


def test_whoever_loses_to_a_constant_is_called_by_name() -> None:
    lost = made({"auto": [0.9] * 8, "trees": [3.0] * 8, "linear, TRO": [2.5] * 8, "constant": EVEN})
    assert "Lose to a constant: “linear, TRO”, trees." in lost.words()
    none = made({"auto": WAVY, "trees": [3.0] * 8, "constant": [0.99] * 8})
    assert none.words()[0].startswith("No model is clearly better than a constant (the lowest RMSE: constant); ")


@pytest.mark.parametrize(
    ("shuffled", "words"),
    [
        ([1.5] * 8, "the graph helps: auto is better by 0.5 in RMSE than with its groups shuffled."),
        ([0.5] * 8, "the graph misleads: auto is worse by 0.5 in RMSE than with its groups shuffled."),
        (WAVY, "the graph adds nothing that shows: auto is not clearly better than with its groups shuffled."),
        (EVEN, "the graph adds nothing that shows: auto is not clearly better than with its groups shuffled."),
    ],
)
def test_the_graph_is_worth_what_it_gains_over_a_shuffled_one(shuffled: list[float], words: str) -> None:
    contest = made({"auto": EVEN, SHUFFLED["auto"]: shuffled, "constant": [2.0] * 8})
    assert contest.words()[0].endswith(words)


def test_nor_is_it_worth_anything_if_others_do_as_well_without() -> None:
    """A model that trusts its graph blindly is worse with a shuffled one, which says nothing for the graph."""
    contest = made({"kriged": EVEN, SHUFFLED["kriged"]: [3.0] * 8, "trees": WAVY, "constant": [2.0] * 8})
    assert contest.words()[0].endswith(
        "the graph adds nothing that shows: kriged is not clearly better than trees without it."
    )
    assert not any("to a constant" in sentence for sentence in contest.words()), "a shuffled graph is to lose"
    contest = made({"kriged": EVEN, SHUFFLED["kriged"]: [3.0] * 8, "trees": [0.5] * 8, "constant": [2.0] * 8})
    assert contest.words()[0] == (
        "Trees are best; the graph does not help: kriged is worse by 0.5 in RMSE than trees without it."
    )


def test_a_graph_without_a_model_that_uses_it_is_not_judged() -> None:
    assert made({"trees": EVEN}).words()[0].endswith("what the graph is worth could not be judged.")
    assert made({"trees": EVEN}, graph=False).words()[0].endswith("there is no graph.")


def test_yours_are_compared_with_the_reference() -> None:
    contest = made({"auto": EVEN, "mine": [1.5] * 8, "constant": [2.0] * 8}, {"mine": YOURS})
    assert "“mine” is worse by 0.5 (0.5 to 0.5) than auto in RMSE." in contest.words()
