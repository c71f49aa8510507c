"""Any model by the weights of its rows: which weights, and bad input."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_classifier, is_regressor
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import toporo as tr
from tests.estimators.cases import CHAIN, labels, numbers
from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoWarning
from toporo.estimators import RobustClassifier, RobustRegressor

NUMBERS, LABELS = numbers(), labels()
WORLD: dict[str, Any] = {"graph": CHAIN, "test_groups": ["x", "y"]}
BOTH = [(RobustRegressor, Ridge(), NUMBERS), (RobustClassifier, LogisticRegression(), LABELS)]


def uneven(seed: int = 0) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Four groups of 120, 60, 15 and 5 rows; the last two go another way than the first."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(list("abcd"), [120, 60, 15, 5])
    x = rng.normal(size=(200, 2))
    slope = np.where(np.isin(groups, ["c", "d"]), -2.0, 2.0)
    return x, slope * x[:, 0] + x[:, 1] + 0.1 * rng.normal(size=200), groups


# ---------------------------------------------------------------- what the weights are


def test_weights_sum_to_the_rows_and_are_shared_alike_within_a_group() -> None:
    x, y, groups = uneven()
    model = RobustRegressor(Ridge(), **WORLD).fit(x, y, groups=groups)
    rows = model.sample_weight(groups)
    assert rows.sum() == pytest.approx(len(rows))
    assert model.group_weights_ == model.prior_.weights
    for name, share in model.group_weights_.items():
        own = rows[groups == name]
        np.testing.assert_allclose(own, len(rows) * share / len(own))
    np.testing.assert_allclose(model.estimator_.coef_, Ridge().fit(x, y, sample_weight=rows).coef_)


def test_groups_count_alike_by_a_uniform_prior() -> None:
    x, y, groups = uneven()
    model = RobustRegressor(DummyRegressor(), prior="uniform").fit(x, y, groups=groups)
    assert model.group_weights_ == dict.fromkeys("abcd", 0.25)
    assert float(model.predict(x[:1])[0]) == pytest.approx(np.mean([y[groups == name].mean() for name in "abcd"]))


@pytest.mark.parametrize("settings", [WORLD, {"graph": CHAIN}, {}, {"prior": {"a": 4, "b": 3, "c": 2, "d": 1}}])
def test_the_prior_is_that_of_the_linear_estimators(settings: dict[str, Any]) -> None:
    model = RobustRegressor(Ridge(), **settings).fit(NUMBERS.x, NUMBERS.y, NUMBERS.groups)
    exact = tr.TRORegressor(**settings).fit(NUMBERS.x, NUMBERS.y, NUMBERS.groups)
    assert (model.prior_, model.topology_, model.test_groups_) == (exact.prior_, exact.topology_, exact.test_groups_)


@pytest.mark.filterwarnings("ignore:.* are in effect")
def test_a_weight_of_two_is_a_row_twice_and_none_is_no_row() -> None:
    x, y, groups = uneven()
    times = np.random.default_rng(0).integers(0, 3, len(y))
    times[[0, 120, 180, 195]] = 1
    model = RobustRegressor(Ridge(), **WORLD, prior="betweenness")
    one = clone(model).fit(x, y, groups, sample_weight=times)
    other = clone(model).fit(*(np.repeat(each, times, axis=0) for each in (x, y, groups)))
    assert one.group_weights_ == pytest.approx(other.group_weights_)
    np.testing.assert_allclose(one.predict(x), other.predict(x))


@pytest.mark.parametrize(
    "inner", [LogisticRegression(), HistGradientBoostingClassifier(max_iter=20), RidgeClassifier()]
)
def test_classes(inner: Any) -> None:
    table = labels(classes=3)
    model = RobustClassifier(inner, **WORLD).fit(table.x, table.y, table.groups)
    assert model.classes_.tolist() == sorted(set(table.y))
    assert model.score(table.x, table.y) > 0.5
    assert hasattr(model, "predict_proba") == hasattr(inner, "predict_proba")


# ---------------------------------------------------------------- scikit-learn


def checked() -> list[Any]:
    trees = {"max_iter": 5, "min_samples_leaf": 5, "random_state": 0}
    return [
        RobustRegressor(HistGradientBoostingRegressor(**trees)),
        RobustClassifier(HistGradientBoostingClassifier(**trees)),
    ]


def as_scikit_learn_has_it(estimator: Any) -> dict[str, str]:
    """What scikit-learn's own boosting fails."""
    if "HistGradientBoosting" not in type(estimator.estimator).__name__:
        return {}
    return {"check_sample_weight_equivalence_on_dense_data": "leaves have a least number of rows, not of weight"}


@parametrize_with_checks(checked(), expected_failed_checks=as_scikit_learn_has_it)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # the checks know no groups
        check(estimator)


@pytest.mark.parametrize(("kind", "inner", "table"), BOTH)
def test_copies_pickles_and_kinds(kind: Any, inner: Any, table: Any) -> None:
    model = kind(inner, **WORLD).fit(table.x, table.y, groups=table.groups)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(table.x), model.predict(table.x))
    fresh = clone(model)
    assert not hasattr(fresh, "estimator_")
    assert not hasattr(fresh, "n_features_in_")
    assert fresh.fit(table.x, table.y, groups=table.groups).group_weights_ == model.group_weights_
    assert is_classifier(model) == (kind is RobustClassifier)
    assert is_regressor(model) == (kind is RobustRegressor)


def test_frames_and_several_targets() -> None:
    frame = pd.DataFrame(NUMBERS.x, columns=["a", "b", "c"])
    y = np.column_stack([NUMBERS.y, NUMBERS.x[:, 0]])
    model = RobustRegressor(Ridge()).fit(frame, y, groups=NUMBERS.groups)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert model.n_features_in_ == 3
    assert model.predict(frame).shape == (200, 2)


@pytest.mark.parametrize("routing", [False, True])
def test_weights_reach_the_last_step_of_a_pipeline(routing: bool) -> None:
    inner = make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), Ridge()))
    x, y, groups = uneven()
    with sklearn.config_context(enable_metadata_routing=routing):
        model = RobustRegressor(inner, **WORLD).fit(x, y, groups=groups)
    alone = Ridge().fit(StandardScaler().fit_transform(x), y, sample_weight=model.sample_weight(groups))
    np.testing.assert_allclose(model.estimator_[-1][-1].coef_, alone.coef_)


def test_groups_and_weights_are_routed() -> None:
    given = {"groups": NUMBERS.groups, "sample_weight": np.random.default_rng(0).uniform(0.5, 2.0, 200)}
    with sklearn.config_context(enable_metadata_routing=True):
        model = RobustRegressor(Ridge(), **WORLD).set_fit_request(sample_weight=True)
        model.set_score_request(sample_weight=True)
        grid = {"prior": ["auto", "uniform"], "estimator__alpha": [0.1, 1.0]}
        search = GridSearchCV(model, grid, cv=GroupKFold(2)).fit(NUMBERS.x, NUMBERS.y, **given)
        direct = clone(model).set_params(**search.best_params_).fit(NUMBERS.x, NUMBERS.y, **given)
        assert search.best_estimator_.group_weights_ == direct.group_weights_
        scores = cross_validate(
            clone(model), NUMBERS.x, NUMBERS.y, params=given, cv=GroupKFold(2), return_estimator=True
        )
    assert all(len(one.group_weights_) == 2 for one in scores["estimator"])


def test_one_group_is_the_estimator_alone_and_says_so() -> None:
    alone = Ridge().fit(NUMBERS.x, NUMBERS.y).predict(NUMBERS.x)
    with pytest.warns(TopoRoWarning, match="one group, 'a': Ridge is fitted as it would be alone"):
        model = RobustRegressor(Ridge()).fit(NUMBERS.x, NUMBERS.y, groups=["a"] * 200)
    np.testing.assert_array_equal(model.predict(NUMBERS.x), alone)
    with pytest.warns(TopoRoWarning, match="fit\\(\\) got no groups"):
        model = RobustRegressor(Ridge()).fit(NUMBERS.x, NUMBERS.y)
    np.testing.assert_array_equal(model.predict(NUMBERS.x), alone)
    assert model.prior_ is None


# ---------------------------------------------------------------- weights for others


def test_weights_of_some_rows_keep_their_proportions() -> None:
    x, y, groups = uneven()
    model = RobustRegressor(Ridge(), prior="uniform").fit(x, y, groups=groups)
    some = model.sample_weight(["d", "a", "a", "a"])
    np.testing.assert_allclose(some, [2.0, 2 / 3, 2 / 3, 2 / 3])
    with pytest.raises(GroupMismatchError, match=r"1 group\(s\) that were not trained on have no weight: 'z'"):
        model.sample_weight(["a", "z"])


# ---------------------------------------------------------------- bad input


class NoTags(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A model of another library."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.mean_ = np.average(y, weights=sample_weight)
        self.n_features_in_ = np.shape(X)[1]
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.mean_)


def test_whatever_takes_weights_will_do() -> None:
    x, y, groups = uneven()
    model = RobustRegressor(NoTags(), prior="uniform").fit(x, y, groups=groups)
    assert model.predict(x)[0] == pytest.approx(np.mean([y[groups == name].mean() for name in "abcd"]))


@pytest.mark.parametrize(
    ("settings", "fitting", "error", "message"),
    [
        ({"estimator": KNeighborsRegressor()}, {}, SettingError, "KNeighborsRegressor takes no sample_weight"),
        (
            {"estimator": make_pipeline(StandardScaler(), KNeighborsRegressor())},
            {},
            SettingError,
            "last step of the pipeline, takes no sample_weight",
        ),
        ({"estimator": make_pipeline(StandardScaler(), "passthrough")}, {}, SettingError, "sample_weight"),
        ({"estimator": Ridge}, {}, SettingError, "Pass an instance, not the class"),
        ({"estimator": "trees"}, {}, SettingError, "expected a regressor"),
        ({"estimator": LogisticRegression()}, {}, SettingError, "use RobustClassifier"),
        ({"test_groups": ["x"]}, {}, SettingError, "pass graph= too"),
        ({"prior": "harmonic"}, {}, SettingError, "give a graph"),
        ({"prior": {"a": 1.0, "b": 1.0}}, {}, GroupMismatchError, "prior"),
        ({"graph": CHAIN[:1]}, {}, GroupMismatchError, "not in the graph"),
        ({"graph": CHAIN}, {"groups": None}, SettingError, "fit\\(\\) got none"),
        ({}, {"groups": ["a"]}, DataError, "groups 1"),
        ({}, {"sample_weight": np.zeros(200)}, DataError, "zero in every row"),
        ({}, {"sample_weight": NUMBERS.groups != "b"}, DataError, "empty group\\(s\\).*'b'"),
        ({}, {"sample_weight": -np.ones(200)}, DataError, "at least 0"),
        ({}, {"y": np.full(200, np.nan)}, DataError, "NaN"),
    ],
)
def test_bad_input_is_an_error(settings: dict[str, Any], fitting: dict[str, Any], error: Any, message: str) -> None:
    model = RobustRegressor(**{"estimator": Ridge(), **settings})
    with pytest.raises(error, match=message):
        model.fit(**{"X": NUMBERS.x, "y": NUMBERS.y, "groups": NUMBERS.groups, **fitting})


def test_bad_classes_are_an_error() -> None:
    with pytest.raises(DataError, match="For numbers use RobustRegressor"):
        RobustClassifier(LogisticRegression()).fit(NUMBERS.x, NUMBERS.y, NUMBERS.groups)
    with pytest.raises(SettingError, match="use RobustRegressor"):
        RobustClassifier(RandomForestRegressor()).fit(LABELS.x, LABELS.y, LABELS.groups)
    assert RobustClassifier(RandomForestClassifier(10)).fit(LABELS.x, LABELS.y, LABELS.groups).classes_.size == 2


def test_other_boosted_trees_take_weights_and_votes() -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="the extra trees is not installed")
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b", "c", "d"], 60)
    x = rng.normal(size=(240, 2))
    y = np.sign(x[:, 0]) * (1.0 + (groups == "d")) + 0.1 * rng.normal(size=240)
    trees = lightgbm.LGBMRegressor(n_estimators=20, min_child_samples=5, n_jobs=1, verbose=-1)
    model = RobustRegressor(trees, prior="uniform").fit(x, y, groups=groups)
    assert np.corrcoef(model.predict(x), y)[0, 1] > 0.9
    weights = model.sample_weight(groups)
    assert np.array_equal(trees.fit(x, y, sample_weight=weights).predict(x), model.predict(x))
    votes = tr.AutoRegressor(candidates={"lightgbm": trees}).fit(x, y, groups=groups)
    assert "lightgbm" in votes.predict_each(x, groups)
