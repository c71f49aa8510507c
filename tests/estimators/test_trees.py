"""Boosted trees as plain arrays: the same predictions, and damage that is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import NotFittedError

from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.estimators import trees
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
    again = StoredTrees.from_arrays(stored.arrays(), stored.inputs, stored.link, None)
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
    again = StoredTrees.from_arrays(stored.arrays(), 4, stored.link, model.classes_)
    new = rows(1)[0]
    frame = pd.DataFrame(new, columns=list("abcd"))
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(frame))
    np.testing.assert_array_equal(again.predict(new), model.predict(frame))
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
    arrays = {name: array.copy() for name, array in some().arrays().items()}
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
        (damaged(value=put(0, np.inf)), "not finite"),
        (damaged(threshold=put(0, np.nan)), "not finite"),
        (damaged(baseline=put(0, np.nan)), "output"),
        (damaged(baseline=lambda a: np.append(a, 0.0)), "output"),
        (damaged(roots=lambda a: np.hstack([a, a])), "output"),
        (damaged(value=lambda a: a[:-1]), "unlike lengths"),
        (damaged(value=lambda a: a.astype(np.float32)), "'value'"),
        (damaged(left=lambda a: a.astype(np.uint8)), "'left'"),
        (damaged(roots=lambda a: a[0]), "'roots'"),
        (damaged() | {"more": np.zeros(1)}, "more"),
        ({k: v for k, v in damaged().items() if k != "left"}, "'left'"),
    ],
)
def test_damage_is_seen(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        StoredTrees.from_arrays(arrays, 4, "identity", None)


def test_bad_use_is_an_error() -> None:
    arrays = some().arrays()
    with pytest.raises(UnknownNameError, match="link"):
        StoredTrees.from_arrays(arrays, 4, "probit", None)
    with pytest.raises(DataError, match="link is 'classes', and it has no classes"):
        StoredTrees.from_arrays(arrays, 4, "classes", None)
    with pytest.raises(DataError, match="output"):
        StoredTrees.from_arrays(arrays, 4, "classes", np.arange(3))
    with pytest.raises(DataError, match="X has 3 features, but the trees are for 4"):
        some().predict(np.zeros((2, 3)))
