"""From a table to a model: roles, tasks, test groups, topology, and what is refused."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tables.cases import RIVER, TRAINED, as_csv, floods, only, river
from toporo.data.frame import read_frame
from toporo.errors import (
    DataError,
    GraphError,
    GroupMismatchError,
    SettingError,
    TopoRoError,
    TopoRoWarning,
    UnknownNameError,
)
from toporo.tables import fit_table
from toporo.tables.read import guess_task


def fit(table: Any = None, **settings: Any) -> Any:
    return fit_table(
        river() if table is None else table, **{"target": "y", "group": "station", "penalty": 1.0} | settings
    )


# ---------------------------------------------------------------- test groups and topology


def test_rows_of_test_groups_are_never_trained_on() -> None:
    whole, without = river(), only(river(), station=TRAINED)
    spoiled = whole | {"y": [1e9 if s == "mouth" else y for s, y in zip(whole["station"], whole["y"], strict=True)]}
    fits = [fit(table, graph=RIVER, test_groups=["mouth"]) for table in (whole, without, spoiled)]
    assert fits[0].groups == tuple(sorted(TRAINED))
    for other in fits[1:]:
        assert np.array_equal(fits[0].estimator.coef_, other.estimator.coef_)
    assert [f.about["rows_set_aside"] for f in fits] == [40, 0, 40]


def test_test_groups_may_lack_targets() -> None:
    table = river()
    table["y"] = [None if s == "mouth" else y for s, y in zip(table["station"], table["y"], strict=True)]
    assert fit(table, graph=RIVER, test_groups=["mouth"]).about["rows"] == 160


def test_the_prior_looks_towards_the_test_groups() -> None:
    model = fit(graph=RIVER, test_groups=["mouth"])
    rows = {row.group: row for row in model.explain()}
    assert rows["lower"].prior == max(row.prior for row in rows.values())
    assert {name: row.hops for name, row in rows.items()} == {"spring": 4, "upper": 3, "middle": 2, "lower": 1}


def test_a_learned_graph_spans_test_groups_and_says_what_it_saw() -> None:
    table = river()
    table["x"] = [x + 3 * [*TRAINED, "mouth"].index(s) for x, s in zip(table["x"], table["station"], strict=True)]
    model = fit(table, graph="learn", test_groups=["mouth"], features=["x"])
    assert set(model.graph.names) == {*TRAINED, "mouth"}
    assert "lower" in model.graph.neighbors("mouth")
    assert model.estimator.prior_.saw == ("test inputs",)
    alone = fit(only(table, station=TRAINED), graph="learn", features=["x"])
    assert set(alone.graph.names) == set(TRAINED)
    assert alone.estimator.prior_.saw == ()


def test_a_graph_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in RIVER))
    model = fit(graph=tmp_path / "edges.csv", test_groups=["mouth"])
    assert np.array_equal(model.estimator.coef_, fit(graph=RIVER, test_groups=["mouth"]).estimator.coef_)


def test_names_of_a_graph_are_text_like_those_of_a_table() -> None:
    numbers = {name: i for i, name in enumerate([*TRAINED, "mouth"])}
    table = river() | {"station": [numbers[name] for name in river()["station"]]}
    model = fit(table, graph=[(numbers[a], numbers[b]) for a, b in RIVER], test_groups=["4"])
    assert model.graph.hops(["4"])["0"] == 4
    with pytest.raises(GraphError, match="the same when written as text: 1, '1'"):
        fit(table, graph=[(1, 2), ("1", 3), (0, 1), (3, 4)])


def test_the_penalty_is_chosen_by_leaving_groups_out() -> None:
    model = fit(penalty="auto", graph=RIVER, test_groups=["mouth"])
    scores = model.estimator.penalty_scores_
    assert model.estimator.penalty_ == min(scores, key=lambda score: score.score).penalty
    assert len(scores) > 5


def test_few_groups_and_networks_take_the_plain_penalty() -> None:
    assert fit(only(river(), station=TRAINED[:3]), penalty="auto").estimator.penalty_ == 1.0
    assert fit(penalty="auto", model="mlp", epochs=1, hidden=(3,)).estimator.penalty_ == 1.0


def test_where_no_fold_has_all_classes_the_plain_penalty_is_taken_with_a_word() -> None:
    table = floods()
    own = {name: f"class of {name}" for name in table["station"]}
    table["flood"] = [own[s] if i % 2 else "common" for i, s in enumerate(table["station"])]
    with pytest.warns(TopoRoWarning, match=r"none of \d+ folds can be fitted.* The penalty is 1\.$"):
        model = fit(table, target="flood", penalty="auto")
    assert model.estimator.penalty_ == 1.0


def test_methods_are_the_ends_of_the_penalty() -> None:
    worst, even = fit(method="group-dro", penalty="auto"), fit(method="erm", penalty="auto")
    assert np.allclose(worst.estimator.coef_, fit(penalty=0.0).estimator.coef_, atol=1e-4)
    assert np.allclose(even.estimator.coef_, fit(penalty=math.inf).estimator.coef_, atol=1e-6)
    assert max(worst.estimator.group_losses_.values()) < max(even.estimator.group_losses_.values())


def test_methods_without_a_prior_still_know_hops() -> None:
    for method in ("group-dro", "erm"):
        model = fit(method=method, penalty="auto", graph=RIVER, test_groups=["mouth"])
        assert {score.group: score.hops for score in model.evaluate(river(2)).groups}["mouth"] == 1


def test_tau_replaces_the_penalty() -> None:
    assert fit(penalty="auto", radius=0.0).estimator.group_weights_ == pytest.approx(dict.fromkeys(fit().groups, 0.2))


# ---------------------------------------------------------------- tasks and columns


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b", "a"], "classification"),
        ([0, 1, 1], "classification"),
        ([1.5, 2.5, 1.5], "classification"),
        ([0, 1, 2], "regression"),
        ([0.1, 0.2, None], "classification"),
        ([True, False, True], "classification"),
    ],
)
def test_tasks_are_guessed_from_the_target(values: list[Any], task: str) -> None:
    assert guess_task(read_frame({"y": values})["y"]) == task


def test_numbers_as_classes_are_written_as_in_the_table() -> None:
    table = floods()
    table["flood"] = [int(value == "yes") for value in table["flood"]]
    model = fit(table, target="flood")
    assert model.classes == ("0", "1")
    assert set(model.predict(table)) == {"0", "1"}
    assert model.evaluate(table).overall["accuracy"].value > 0.8


def test_three_classes() -> None:
    table = river()
    table["size"] = [("small", "mid", "large")[int(np.digitize(y, [-0.5, 0.8]))] for y in table.pop("y")]
    model = fit(table, target="size")
    assert model.classes == ("large", "mid", "small")
    assert np.allclose(model.predict_proba(table).sum(axis=1), 1)
    assert model.evaluate(table).overall["accuracy"].value > 0.6


def test_columns_say_what_became_of_them() -> None:
    table = river() | {"same": [1] * 200, "id": [f"row {i}" for i in range(200)], "w": [1.0] * 200}
    model = fit(table, weight="w", exclude=["depth"])
    found = {column.name: (column.role, column.kind) for column in model.columns}
    assert found == {
        "station": ("group", "text"), "x": ("feature", "number"), "depth": ("left out", ""),
        "bed": ("feature", "text"), "y": ("target", "number"), "same": ("left out", "number"),
        "id": ("left out", "text"), "w": ("weight", "number"),
    }  # fmt: skip
    notes = {column.name: column.note for column in model.columns}
    assert "3 levels" in notes["bed"]
    assert "constant" in notes["same"]
    assert all(notes[name] for name in ("depth", "id"))


def test_the_order_of_rows_and_columns_does_not_matter() -> None:
    table = river()
    order = np.random.default_rng(0).permutation(200)
    moved = {name: [table[name][i] for i in order] for name in reversed(table)}
    one, other = fit(table, graph=RIVER, test_groups=["mouth"]), fit(moved, graph=RIVER, test_groups=["mouth"])
    assert np.allclose(one.predict(table)[order], other.predict(moved), atol=1e-5)
    assert one.estimator.group_weights_ == pytest.approx(other.estimator.group_weights_, abs=1e-4)


def test_weights_count_like_repeated_rows() -> None:
    table = only(river(), station=TRAINED)
    twice = {
        name: column + [v for v, s in zip(column, table["station"], strict=True) if s == "lower"][:20]
        for name, column in table.items()
    }
    first = [i for i, s in enumerate(table["station"]) if s == "lower"][:20]
    weighted = table | {"w": [2.0 if i in first else 1.0 for i in range(160)]}
    for name in (twice, weighted):
        name["depth"] = [0.0 if value is None else value for value in name["depth"]]
    given = {"prior": "uniform", "ridge": 1e-3}  # automatic ones go by rows in effect
    one, other = fit(twice, **given), fit(weighted, weight="w", **given)
    assert np.allclose(one.predict(river(4)), other.predict(river(4)), atol=1e-4)


def test_a_stream_a_file_and_a_mapping_give_the_same(tmp_path: Path) -> None:
    text = as_csv(river())
    (tmp_path / "river.csv").write_text(text)
    models = [fit(io.BytesIO(text.encode())), fit(tmp_path / "river.csv"), fit()]
    assert all(np.array_equal(models[0].estimator.coef_, other.estimator.coef_) for other in models[1:])
    predictions = [
        models[0].predict(io.BytesIO(text.encode())),
        models[0].predict(tmp_path / "river.csv", rows=7),
        models[0].predict(river()),
    ]
    assert all(np.allclose(predictions[0], other, rtol=1e-12) for other in predictions[1:])


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"target": "yy"}, UnknownNameError, "unknown column 'yy'. Did you mean 'y'"),
        ({"group": "Station"}, UnknownNameError, "Did you mean 'station'"),
        ({"features": ["nothing"]}, UnknownNameError, "nothing"),
        ({"method": "magic"}, UnknownNameError, "method 'magic'"),
        ({"test_groups": ["sea"]}, DataError, "test group.* without a row: 'sea'"),
        ({"graph": RIVER, "test_groups": ["sea"]}, GroupMismatchError, "'sea'"),
        ({"graph": RIVER[:2]}, GroupMismatchError, "'lower'"),
        ({"test_groups": [*TRAINED, "mouth"]}, DataError, "every row is of a test group"),
        ({"target": "bed", "task": "regression"}, DataError, r"'bed' holds text: '\w+', say, is no number"),
        ({"target": "x", "task": "classification"}, DataError, "too many for classes"),
        ({"weight": "bed"}, DataError, "does not hold numbers"),
        ({"weight": "x"}, DataError, "negative"),
        ({"penalty": -1.0}, SettingError, "penalty"),
        ({"method": "group-dro", "penalty": 1.0}, SettingError, "worst group alone"),
        ({"method": "erm", "penalty": 1.0}, SettingError, "all groups alike"),
        ({"target": "depth"}, DataError, r"lack 'depth' \(first: row 1\).*--drop-rows"),
        ({"model": "forest"}, TopoRoError, "forest"),
    ],
)
def test_a_wrong_request_is_a_clear_error(settings: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        fit(**settings)


def test_words_for_missing_are_no_class() -> None:
    table = floods()
    table["flood"] = ["NA" if i % 10 == 0 else value for i, value in enumerate(table["flood"])]
    with pytest.raises(DataError, match="30 of 300 rows lack 'flood'"):
        fit(table, target="flood")
    model = fit(table, target="flood", drop_rows=True)
    assert model.classes == ("no", "yes")
    assert sum(score.rows for score in model.evaluate(table).groups) == 270


def test_what_is_wrong_in_an_excluded_column_does_not_matter() -> None:
    table = river() | {"broken": [math.inf] * 200}
    with pytest.raises(DataError, match="infinite"):
        fit(table)
    assert "broken" not in fit(table, exclude=["broken"]).encoder.columns


def test_an_unknown_setting_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown setting 'ridges'\. Did you mean 'ridge'"):
        fit(ridges=1.0)


def test_a_target_that_never_varies_is_an_error() -> None:
    with pytest.raises(DataError, match="nothing to predict"):
        fit(river() | {"y": [1.0] * 200}, task="regression")
    with pytest.raises(DataError, match="single class, 'a'"):
        fit(river() | {"y": ["a"] * 200})


def test_rows_without_group_or_target_are_left_out_only_when_asked() -> None:
    table = river()
    table["station"][3] = None
    table["y"][5] = None
    with pytest.raises(DataError, match=r"1 of 200 rows lack 'station' \(first: row 4\)"):
        fit(table)
    assert fit(table, drop_rows=True).about["rows"] == 198


def test_predicting_needs_the_same_columns() -> None:
    model, table = fit(), river(3)
    del table["bed"]
    with pytest.raises(DataError, match="'bed'"):
        model.predict(table)
    with pytest.raises(DataError, match=r"row 1, column 'x': 'far' is not a number"):
        model.predict(river(3) | {"x": ["far"] * 200})
    with pytest.raises(SettingError, match="no probabilities"):
        model.predict_proba(river(3))


def test_judging_needs_targets_and_groups() -> None:
    model, table = fit(), river(3)
    with pytest.raises(DataError, match="is empty"):
        model.evaluate(table | {"y": [None] * 200})
    with pytest.raises(DataError, match="no group in column 'station'"):
        model.evaluate(table | {"station": [None, *table["station"][1:]]})


def test_a_model_is_shown_in_one_line() -> None:
    """So are the parts that are made of a number by group."""
    model = fit()
    assert repr(model) == "TableModel(TRORegressor, regression of 'y', 5 groups)"
    assert repr(model.held_out) == f"HeldOut(5 groups, growth {model.held_out.growth:.2g})"
    assert repr(model.estimator.prior_) == "Prior(5 groups, uniform, 5.0 in effect)"
