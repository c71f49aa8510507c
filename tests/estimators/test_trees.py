"""Boosted trees as plain arrays: the same predictions, and damage that is seen."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from safetensors.numpy import load, save
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

from tests.estimators.cases import CHAIN, labels, numbers
from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.estimators import RobustClassifier, RobustRegressor, trees
from toporo.estimators.packing import pack, unpack
from toporo.estimators.state import dump_state, load_state
from toporo.estimators.trees import StoredTrees


def rows(seed: int = 0) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Rows with missing values, and a target that depends on where they are missing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2500, 4))
    y = np.exp(0.5 * x[:, 0] + np.sin(3 * x[:, 1])) + 0.1 * rng.random(2500)
    missing = rng.random(x.shape) < 0.1
    y[missing[:, 2]] += 1.0
    x[missing] = np.nan
    return x, y


REGRESSIONS: list[dict[str, Any]] = [
    {},
    {"loss": "absolute_error"},
    {"loss": "poisson"},
    {"loss": "gamma"},
    {"loss": "quantile", "quantile": 0.8},
    {"max_iter": 1},
    {"early_stopping": True, "max_depth": 2, "learning_rate": 0.3},
    {"max_leaf_nodes": 200, "min_samples_leaf": 1},
]


@pytest.mark.parametrize("settings", REGRESSIONS, ids=str)
def test_numbers_are_the_same_to_the_last_bit(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "ROWS", 300)
    x, y = rows()
    model = HistGradientBoostingRegressor(random_state=0, **{"max_iter": 30, **settings}).fit(x, y)
    stored = StoredTrees.of(model)
    new = np.vstack([rows(1)[0], np.full((1, 4), np.nan), [[np.inf, -np.inf, 0.0, 1e300]]])
    np.testing.assert_array_equal(stored.predict(new), model.predict(new))
    again = unpack(StoredTrees, *pack(stored))
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    with pytest.raises(AttributeError, match="no probabilities"):
        stored.predict_proba(new)


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_are_the_same_to_the_last_bit(classes: int) -> None:
    x, y = rows()
    labels = np.array(["low", "middle", "high"])[np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))]
    model = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(
        pd.DataFrame(x, columns=list("abcd")), labels
    )
    stored = StoredTrees.of(model)
    again = unpack(StoredTrees, *pack(stored))
    new = rows(1)[0]
    frame = pd.DataFrame(new, columns=list("abcd"))
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    assert again.n_features_in_ == 4


def some() -> StoredTrees:
    x, y = rows()
    return StoredTrees.of(HistGradientBoostingRegressor(max_iter=3, random_state=0).fit(x, y))


def test_only_what_can_be_written_is_taken() -> None:
    x, y = rows()
    with pytest.raises(SettingError, match="found a RandomForestRegressor"):
        StoredTrees.of(RandomForestRegressor(2).fit(x, y))
    with pytest.raises(NotFittedError):
        StoredTrees.of(HistGradientBoostingRegressor())
    categories = np.column_stack([x, np.arange(len(x)) % 5])
    model = HistGradientBoostingRegressor(max_iter=2, categorical_features=[4]).fit(categories, y)
    with pytest.raises(SettingError, match="encode categories"):
        StoredTrees.of(model)


def test_trees_of_another_scikit_learn_are_refused() -> None:
    """Whose nodes mean something else."""
    x, y = rows()
    model = HistGradientBoostingRegressor(max_iter=3).fit(x, y)
    stored = StoredTrees.of(model)
    other = replace(stored, left=stored.right, right=stored.left)
    with pytest.raises(SettingError, match="not as expected"):
        other._compare(model)


def damaged(**changes: Any) -> dict[str, npt.NDArray[Any]]:
    arrays = {name: array.copy() for name, array in pack(some())[1].items()}
    for name, change in changes.items():
        arrays[name] = change(arrays[name])
    return arrays


def put(place: int, value: Any) -> Any:
    def change(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        array.ravel()[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (damaged(left=put(0, 0)), "damaged"),
        (damaged(left=put(1, 0)), "damaged"),
        (damaged(right=put(0, 10_000)), "damaged"),
        (damaged(right=put(0, -1)), "damaged"),
        (damaged(feature=put(0, 4)), "damaged"),
        (damaged(feature=put(0, -1)), "damaged"),
        (damaged(roots=put(0, 10_000)), "damaged"),
        (damaged(value=put(0, np.inf)), "finite numbers"),
        (damaged(threshold=put(0, np.nan)), "holds NaN"),
        (damaged(baseline=lambda a: np.append(a, 0.0)), "output"),
        (damaged(roots=lambda a: np.hstack([a, a])), "output"),
        (damaged(value=lambda a: a[:-1]), "unlike lengths"),
        (damaged(value=lambda a: a.astype(np.float32)), "'value'"),
        (damaged(left=lambda a: a.astype(np.uint8)), "'left'"),
        (damaged(roots=lambda a: a[0]), "output"),
        (damaged() | {"more": np.zeros(1)}, "more"),
        ({k: v for k, v in damaged().items() if k != "left"}, "'left'"),
    ],
)
def test_damage_is_seen(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        unpack(StoredTrees, pack(some())[0], arrays)


def test_bad_use_is_an_error() -> None:
    stored = some()
    with pytest.raises(UnknownNameError, match="link"):
        replace(stored, link="probit").check()
    with pytest.raises(DataError, match="link is 'classes', and it has no classes"):
        replace(stored, link="classes").check()
    with pytest.raises(DataError, match="X has 3 features, but the trees are for 4"):
        stored.predict(np.zeros((2, 3)))


# ---------------------------------------------------------------- in a weighted model


def weighted(kind: Any, **settings: Any) -> Any:
    table = numbers() if kind is RobustRegressor else labels(classes=3)
    trees_of = HistGradientBoostingRegressor if kind is RobustRegressor else HistGradientBoostingClassifier
    frame = pd.DataFrame(table.x, columns=["size", "größe", "<b>"])
    inner = trees_of(max_iter=8, random_state=np.int64(3))
    return kind(inner, **settings).fit(frame, table.y, groups=table.groups), frame, table


def through_files(model: Any) -> tuple[Any, Any]:
    """Through the text of a file and the bytes of another."""
    content, arrays = dump_state(model)
    return json.loads(json.dumps(content, allow_nan=False)), load(save(arrays))


WORLD: dict[str, Any] = {"graph": CHAIN, "test_groups": ["x", "y"]}


@pytest.mark.parametrize("kind", [RobustRegressor, RobustClassifier])
@pytest.mark.parametrize(
    "settings",
    [{"weights": "rows"}, {**WORLD}, {"weights": "tro", **WORLD}, {"weights": "tro", "penalty": math.inf}],
    ids=["rows", "prior", "tro", "tro without a graph"],
)
def test_a_weighted_model_comes_back_the_same(kind: Any, settings: dict[str, Any]) -> None:
    model, frame, table = weighted(kind, **settings)
    other = load_state(*through_files(model))
    for method in ("predict", "predict_proba"):
        if hasattr(model, method):
            np.testing.assert_array_equal(getattr(other, method)(frame), getattr(model, method)(frame))
    for name in ("group_weights_", "losses_", "prior_", "topology_", "test_groups_", "n_features_in_"):
        assert getattr(other, name) == getattr(model, name), name
    assert other.feature_names_in_.tolist() == list(frame.columns)
    assert through_files(other)[0] == through_files(model)[0]
    again = clone(other).fit(frame, table.y, groups=table.groups)
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    with pytest.raises(DataError, match="in this order"):
        other.predict(frame[frame.columns[::-1]])


def test_other_models_by_weights_are_not_stored() -> None:
    table = numbers()
    with pytest.raises(SettingError, match="found a Ridge: expected a HistGradientBoosting"):
        dump_state(RobustRegressor(Ridge()).fit(table.x, table.y, groups=table.groups))
    bound = HistGradientBoostingRegressor(max_iter=2, monotonic_cst=[1, 0, 0])
    with pytest.raises(SettingError, match="no plain values: 'monotonic_cst'"):
        dump_state(RobustRegressor(bound).fit(table.x, table.y, groups=table.groups))


STATE = through_files(weighted(RobustRegressor, weights="tro", **WORLD)[0])


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (("settings", "weights"), "row", "unknown weights 'row'"),
        (("settings", "penalty"), "auto", "penalty"),
        (("settings", "folds"), 1, "folds is 1"),
        (("settings", "graph"), "there", "its graph is 'there'"),
        (("estimator", "max_trees"), 3, "no such setting: 'max_trees'"),
        (("estimator", "max_iter"), [3], "estimator"),
        (("trees", "inputs"), 2, "names of features"),
        (("trees", "names"), ["a"], "names of features"),
        (("trees", "link"), "probit", "probit"),
        (("groups", 0, "weight"), 0.9, "do not sum to one"),
        (("groups", 0, "loss"), None, "its loss is missing for 'a'"),
        (("groups", 0, "name"), "zz", "out of order"),
        (("prior",), {"weights": []}, "not a stored estimator"),
        (("graph",), None, "graph"),
        (("test_groups",), ["nowhere"], "nowhere"),
        (("class",), "RobustClassifier", "not a stored estimator"),
    ],
)
def test_malformed_content_is_an_error(where: tuple[Any, ...], value: Any, says: str) -> None:
    content = copy.deepcopy(STATE[0])
    part = content
    for key in where[:-1]:
        part = part[key]
    part[where[-1]] = value
    with pytest.raises(DataError, match="not a stored estimator: ") as caught:
        load_state(content, STATE[1])
    assert says in str(caught.value)
