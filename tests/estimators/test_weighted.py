"""Any model by the weights of its rows: which weights, what comes of them, and bad input."""

from __future__ import annotations

import math
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
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import toporo as tr
from tests.estimators.cases import CHAIN, labels, numbers
from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoError, TopoRoWarning
from toporo.estimators import RobustClassifier, RobustRegressor, weighted
from toporo.robust.divergences import best_response

NUMBERS, LABELS = numbers(), labels()
WORLD: dict[str, Any] = {"graph": CHAIN, "test_groups": ["x", "y"]}
#: A prior that is named, so that nothing is taken from groups of few rows.
GIVEN = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
BOTH = [(RobustRegressor, Ridge(), NUMBERS), (RobustClassifier, LogisticRegression(), LABELS)]


def uneven(seed: int = 0) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Four groups of 120, 60, 15 and 5 rows; the last two go another way than the first."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(list("abcd"), [120, 60, 15, 5])
    x = rng.normal(size=(200, 2))
    slope = np.where(np.isin(groups, ["c", "d"]), -2.0, 2.0)
    return x, slope * x[:, 0] + x[:, 1] + 0.1 * rng.normal(size=200), groups


# ---------------------------------------------------------------- what the weights are


@pytest.mark.parametrize("weights", weighted.WEIGHTS)
def test_weights_sum_to_the_rows_and_are_shared_alike_within_a_group(weights: str) -> None:
    x, y, groups = uneven()
    model = RobustRegressor(Ridge(), weights=weights, **WORLD).fit(x, y, groups=groups)
    rows = model.sample_weight(groups)
    assert rows.sum() == pytest.approx(len(rows))
    assert sum(model.group_weights_.values()) == pytest.approx(1.0)
    for name, share in model.group_weights_.items():
        own = rows[groups == name]
        np.testing.assert_allclose(own, len(rows) * share / len(own))
    np.testing.assert_allclose(model.estimator_.coef_, Ridge().fit(x, y, sample_weight=rows).coef_)


def test_rows_are_the_estimator_alone_to_the_last_bit() -> None:
    x, y, groups = uneven()
    model = RobustRegressor(HistGradientBoostingRegressor(), weights="rows").fit(x, y, groups=groups)
    assert model.group_weights_ == pytest.approx({"a": 0.6, "b": 0.3, "c": 0.075, "d": 0.025})
    assert (model.sample_weight(groups) == 1.0).all()
    np.testing.assert_array_equal(model.predict(x), HistGradientBoostingRegressor().fit(x, y).predict(x))
    assert (model.prior_, model.losses_) == (None, None)


def test_groups_count_alike() -> None:
    x, y, groups = uneven()
    model = RobustRegressor(DummyRegressor(), weights="groups").fit(x, y, groups=groups)
    assert model.group_weights_ == dict.fromkeys("abcd", 0.25)
    assert float(model.predict(x[:1])[0]) == pytest.approx(np.mean([y[groups == name].mean() for name in "abcd"]))


def test_the_prior_is_that_of_the_linear_estimators() -> None:
    for settings in (WORLD, {"graph": CHAIN}, {}, {"prior": dict(zip("abcd", [4, 3, 2, 1], strict=True))}):
        model = RobustRegressor(Ridge(), weights="prior", **settings).fit(NUMBERS.x, NUMBERS.y, NUMBERS.groups)
        exact = tr.TRORegressor(**settings).fit(NUMBERS.x, NUMBERS.y, NUMBERS.groups)
        assert model.prior_ == exact.prior_
        assert model.group_weights_ == model.prior_.weights
        assert (model.topology_, model.test_groups_) == (exact.topology_, exact.test_groups_)


def test_a_graph_is_learned_from_the_rows() -> None:
    rng = np.random.default_rng(0)
    place = np.arange(300) % 5
    x = rng.normal(size=(300, 2)) + 2.0 * place[:, None] * [1.0, 0.0]
    groups = np.array(list("abcde"))[place]
    model = RobustRegressor(Ridge(), weights="prior", graph="learn").fit(x, x[:, 1], groups=groups)
    assert model.topology_ == tr.TRORegressor(graph="learn").fit(x, x[:, 1], groups=groups).topology_
    assert model.prior_.measure == "betweenness"


@pytest.mark.filterwarnings("ignore:.* are in effect")
def test_tro_is_the_best_response_to_losses_in_groups_never_seen() -> None:
    """By hand: each group left out of a least-squares fit by the prior, in units of the target's spread."""
    x, y, groups = uneven()
    model = RobustRegressor(LinearRegression(), weights="tro", rounds=1, folds=4, penalty=2.0, prior=GIVEN)
    model.fit(x, y, groups=groups)
    prior = model.prior_.weights
    losses = {}
    for name in "abcd":
        kept = groups != name
        w = np.array([prior[other] / np.sum(groups == other) for other in groups[kept]])
        alone = LinearRegression().fit(x[kept], y[kept], sample_weight=w)
        losses[name] = np.mean((alone.predict(x[~kept]) - y[~kept]) ** 2) / y.var()
    assert model.losses_ == pytest.approx(losses)
    q = best_response(np.array(list(losses.values())), np.array([prior[name] for name in "abcd"]), 2.0, "chi2")
    assert list(model.group_weights_.values()) == pytest.approx(q.tolist())


def test_groups_that_are_hard_to_predict_weigh_more_and_end_up_better() -> None:
    x, y, groups = uneven()
    plain = RobustRegressor(Ridge(), weights="groups").fit(x, y, groups=groups)
    tro = RobustRegressor(Ridge(), weights="tro", penalty=0.3).fit(x, y, groups=groups)
    hard = max(tro.losses_, key=lambda name: tro.losses_[name])
    assert tro.group_weights_[hard] > plain.group_weights_[hard]

    def error(model: Any) -> float:
        mine = groups == hard
        return float(np.mean((model.predict(x[mine]) - y[mine]) ** 2))

    assert error(tro) < error(plain)


@pytest.mark.filterwarnings("ignore:.* are in effect")
def test_the_penalty_runs_from_the_worst_group_to_the_prior() -> None:
    x, y, groups = uneven()
    given = {"prior": GIVEN}
    far, near = (
        RobustRegressor(Ridge(), weights="tro", penalty=penalty, **given).fit(x, y, groups=groups)
        for penalty in (math.inf, 1e-9)
    )
    assert far.group_weights_ == pytest.approx(far.prior_.weights)
    prior = RobustRegressor(Ridge(), weights="prior", **given).fit(x, y, groups=groups)
    np.testing.assert_allclose(far.predict(x), prior.predict(x))
    once = clone(near).set_params(rounds=1).fit(x, y, groups=groups)
    assert once.group_weights_[max(once.losses_, key=once.losses_.get)] == pytest.approx(1.0)


def test_whole_numbers_may_have_decimals() -> None:
    given = {"rounds": 2.0, "folds": np.float64(3), "random_state": 1.0}
    one, other = (
        RobustRegressor(Ridge(), weights="tro", **settings).fit(NUMBERS.x, NUMBERS.y, NUMBERS.groups)
        for settings in (given, {name: int(value) for name, value in given.items()})
    )
    assert one.group_weights_ == other.group_weights_


def test_losses_of_the_target_in_another_unit_are_the_same() -> None:
    one, other = (
        RobustRegressor(LinearRegression(), weights="tro").fit(NUMBERS.x, unit * NUMBERS.y + 7, NUMBERS.groups)
        for unit in (1.0, 1000.0)
    )
    assert one.losses_ == pytest.approx(other.losses_)
    assert one.group_weights_ == pytest.approx(other.group_weights_)


def test_rows_in_another_order_and_groups_of_other_types_give_the_same() -> None:
    order = np.random.default_rng(1).permutation(200)
    model = RobustRegressor(LinearRegression(), weights="tro", **WORLD)
    one = clone(model).fit(NUMBERS.x, NUMBERS.y, NUMBERS.groups)
    other = clone(model).fit(NUMBERS.x[order], NUMBERS.y[order], pd.Series(NUMBERS.groups[order]))
    assert one.group_weights_ == pytest.approx(other.group_weights_)


@pytest.mark.filterwarnings("ignore:.* are in effect")
def test_a_weight_of_two_is_a_row_twice_and_none_is_no_row() -> None:
    x, y, groups = uneven()
    times = np.random.default_rng(0).integers(0, 3, len(y))
    times[[0, 120, 180, 195]] = 1
    for weights in weighted.WEIGHTS:
        model = RobustRegressor(Ridge(), weights=weights, **WORLD, prior="betweenness")
        one = clone(model).fit(x, y, groups, sample_weight=times)
        other = clone(model).fit(*(np.repeat(each, times, axis=0) for each in (x, y, groups)))
        assert one.group_weights_ == pytest.approx(other.group_weights_)
        np.testing.assert_allclose(one.predict(x), other.predict(x))


def test_losses_are_measured_on_a_few_rows_and_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []

    class Counting(RandomForestRegressor):  # type: ignore[misc]  # scikit-learn has no types
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            sizes.append((len(X), self.n_estimators))
            return super().fit(X, y, sample_weight)

    monkeypatch.setattr(weighted, "ROWS", 10)
    RobustRegressor(Counting(n_estimators=40, max_depth=2), weights="tro", folds=2, rounds=1).fit(
        NUMBERS.x, NUMBERS.y, NUMBERS.groups
    )
    assert sizes == [(20, 10), (20, 10), (200, 40)]


@pytest.mark.parametrize(
    ("estimator", "few"),
    [
        (HistGradientBoostingRegressor(), {"max_iter": 25, "max_bins": 64}),
        (HistGradientBoostingRegressor(max_iter=12, max_bins=20), {"max_iter": 10, "max_bins": 10}),
        (make_pipeline(StandardScaler(), RandomForestRegressor()), {"randomforestregressor__n_estimators": 25}),
        (LogisticRegression(), {"max_iter": 100}),
    ],
)
def test_only_trees_are_left_out(estimator: Any, few: dict[str, int]) -> None:
    """A solver's ``max_iter`` is no number of trees."""
    before = estimator.get_params()
    light = weighted._lighter(estimator).get_params()
    assert {name: light[name] for name in few} == few
    assert estimator.get_params() == before


# ---------------------------------------------------------------- classes


@pytest.mark.parametrize(
    "inner", [LogisticRegression(), HistGradientBoostingClassifier(max_iter=20), RidgeClassifier()]
)
@pytest.mark.parametrize("classes", [2, 3])
def test_classes(inner: Any, classes: int) -> None:
    table = labels(classes=classes)
    model = RobustClassifier(inner, weights="tro", **WORLD).fit(table.x, table.y, table.groups)
    assert model.classes_.tolist() == sorted(set(table.y))
    assert model.score(table.x, table.y) > 0.5
    assert hasattr(model, "predict_proba") == hasattr(inner, "predict_proba")
    assert all(0 < loss < 2.5 for loss in model.losses_.values())
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(model.predict_proba(table.x).sum(axis=1), 1.0)


def test_losses_of_classes_by_hand() -> None:
    model = RobustClassifier(LogisticRegression(), weights="tro", folds=4, rounds=1)
    model.fit(LABELS.x, LABELS.y, LABELS.groups)
    for name in "abcd":
        kept = LABELS.groups != name
        alone = LogisticRegression().fit(LABELS.x[kept], LABELS.y[kept])  # groups are of one size
        own = alone.predict_proba(LABELS.x[~kept])[np.arange(60), np.searchsorted(alone.classes_, LABELS.y[~kept])]
        assert model.losses_[name] == pytest.approx(-np.log(own).mean(), rel=1e-6)


def test_classes_that_only_some_groups_have() -> None:
    y = np.where(LABELS.groups == "a", "rare", LABELS.y)
    model = RobustClassifier(LogisticRegression(), weights="tro", folds=4, rounds=1).fit(LABELS.x, y, LABELS.groups)
    assert model.losses_["a"] == pytest.approx(-math.log(weighted.LEAST))
    only = np.where(np.isin(LABELS.groups, ["a", "b"]), "left", "right")
    model = RobustClassifier(LogisticRegression(), weights="tro", folds=2).fit(LABELS.x, only, LABELS.groups)
    assert np.isfinite(list(model.losses_.values())).all()


# ---------------------------------------------------------------- scikit-learn


def checked() -> list[Any]:
    trees = {"max_iter": 5, "min_samples_leaf": 5, "random_state": 0}
    return [
        *(RobustRegressor(Ridge(), weights=weights) for weights in weighted.WEIGHTS),
        RobustClassifier(LogisticRegression()),
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
    model = kind(inner, weights="tro", **WORLD).fit(table.x, table.y, groups=table.groups)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(table.x), model.predict(table.x))
    fresh = clone(model)
    assert not hasattr(fresh, "estimator_")
    assert not hasattr(fresh, "n_features_in_")
    assert fresh.fit(table.x, table.y, groups=table.groups).group_weights_ == model.group_weights_
    assert is_classifier(model) == (kind is RobustClassifier)
    assert is_regressor(model) == (kind is RobustRegressor)


def test_frames_and_several_targets() -> None:
    frame = pd.DataFrame(NUMBERS.x, columns=["a", "b", "c"])
    y = np.column_stack([NUMBERS.y, 1e6 * NUMBERS.x[:, 0]])
    model = RobustRegressor(Ridge(), weights="tro").fit(frame, y, groups=NUMBERS.groups)
    other = RobustRegressor(Ridge(), weights="tro").fit(frame, y / [1.0, 1e6], groups=NUMBERS.groups)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert model.n_features_in_ == 3
    assert model.predict(frame).shape == (200, 2)
    assert model.losses_ == pytest.approx(other.losses_), "each column in its own unit"


@pytest.mark.parametrize("routing", [False, True])
def test_weights_reach_the_last_step_of_a_pipeline(routing: bool) -> None:
    inner = make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), Ridge()))
    x, y, groups = uneven()
    with sklearn.config_context(enable_metadata_routing=routing):
        model = RobustRegressor(inner, weights="groups").fit(x, y, groups=groups)
    alone = Ridge().fit(StandardScaler().fit_transform(x), y, sample_weight=model.sample_weight(groups))
    np.testing.assert_allclose(model.estimator_[-1][-1].coef_, alone.coef_)


def test_groups_and_weights_are_routed() -> None:
    given = {"groups": NUMBERS.groups, "sample_weight": np.random.default_rng(0).uniform(0.5, 2.0, 200)}
    with sklearn.config_context(enable_metadata_routing=True):
        model = RobustRegressor(Ridge(), **WORLD).set_fit_request(sample_weight=True)
        model.set_score_request(sample_weight=True)
        grid = {"weights": list(weighted.WEIGHTS), "estimator__alpha": [0.1, 1.0]}
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
    model = RobustRegressor(Ridge(), weights="groups").fit(x, y, groups=groups)
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
    model = RobustRegressor(NoTags(), weights="groups").fit(x, y, groups=groups)
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
        ({"weights": "row"}, {}, TopoRoError, "Did you mean 'rows'"),
        ({"penalty": -1}, {}, SettingError, "penalty is -1"),
        ({"random_state": None}, {}, SettingError, "random_state is None"),
        ({"weights": "tro", "divergence": "l3"}, {}, TopoRoError, "divergence 'l3'"),
        ({"weights": "tro", "rounds": 0}, {}, SettingError, "rounds is 0"),
        ({"weights": "tro", "folds": 1}, {}, SettingError, "folds is 1"),
        ({"test_groups": ["x"]}, {}, SettingError, "pass graph= too"),
        ({"weights": "prior", "prior": "harmonic"}, {}, SettingError, "give a graph"),
        ({"weights": "prior", "prior": {"a": 1.0, "b": 1.0}}, {}, GroupMismatchError, "prior"),
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


def test_predictions_that_are_no_numbers_are_an_error() -> None:
    class Lost(NoTags):
        def predict(self, X: Any) -> Any:
            return np.full(len(X), np.nan)

    with pytest.raises(DataError, match="predicts NaN or infinity in 4 group"):
        RobustRegressor(Lost(), weights="tro").fit(NUMBERS.x, NUMBERS.y, NUMBERS.groups)


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
    model = RobustRegressor(trees, weights="groups").fit(x, y, groups=groups)
    assert np.corrcoef(model.predict(x), y)[0, 1] > 0.9
    weights = model.sample_weight(groups)
    assert np.array_equal(trees.fit(x, y, sample_weight=weights).predict(x), model.predict(x))
    votes = tr.AutoRegressor(candidates={"lightgbm": trees}).fit(x, y, groups=groups)
    assert "lightgbm" in votes.predict_each(x, groups)
