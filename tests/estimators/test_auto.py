"""Candidates, votes, and the effect on what they leave."""

from __future__ import annotations

import io
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import log_loss

from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoWarning
from toporo.estimators.auto import AutoClassifier, AutoRegressor, _votes
from toporo.estimators.kriged import KrigedRegressor

M, PER = 20, 30
CHAIN = [(place, place + 1) for place in range(M - 1)]
NEW = (5, 6, 13)


def rows(kind: str = "steps", seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets, groups, and which rows are known."""
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(M), PER)
    x = rng.normal(size=(len(g), 3))
    y = {"steps": 3.0 * np.sign(x[:, 0]) * (x[:, 1] > 0), "linear": x @ [2.0, -1.0, 0.5]}[kind]
    return x, y + 0.3 * rng.normal(size=len(g)), g, ~np.isin(g, NEW)


def fitted(kind: str = "steps", **settings: Any) -> tuple[AutoRegressor, tuple[Any, ...]]:
    x, y, g, known = rows(kind)
    return AutoRegressor(**settings).fit(x[known], y[known], groups=g[known]), (x, y, g, known)


def test_votes_go_to_who_is_right() -> None:
    trees = ("trees", "trees with context", "trees on a linear model")
    steps, (x, y, g, known) = fitted("steps")
    assert sum(steps.votes_.values()) == pytest.approx(1.0)
    assert sum(steps.votes_[name] for name in trees) > 0.95
    assert next(row for row in steps.league_ if row.name == "linear").note == "far off in some groups"
    assert np.mean((steps.predict(x[~known], groups=g[~known]) - y[~known]) ** 2) < 0.35
    linear, (x, y, g, known) = fitted("linear")
    assert linear.votes_["linear"] + linear.votes_["linear, groups alike"] > 0.3
    alone = HistGradientBoostingRegressor(random_state=0).fit(x[known], y[known]).predict(x[~known])
    together = linear.predict(x[~known], groups=g[~known])
    assert np.mean((together - y[~known]) ** 2) < 0.8 * np.mean((alone - y[~known]) ** 2)


def test_votes_are_the_least_of_their_formula() -> None:
    rng = np.random.default_rng(0)
    said, shares = rng.normal(size=(200, 1, 4)), rng.uniform(0.5, 2.0, 200)
    wanted = said[..., 0] * 0.7 + said[..., 1] * 0.3 + 0.1 * rng.normal(size=(200, 1))
    safe = said[..., 2:].mean(axis=-1)

    def lost(v: np.ndarray) -> float:
        together = said @ v
        return float(shares @ ((wanted - together) ** 2 + (together - safe) ** 2)[:, 0])

    votes = _votes(said, wanted, safe, shares)
    assert votes.sum() == pytest.approx(1.0)
    others = rng.dirichlet(np.full(4, 0.5), size=2000)
    assert lost(votes) <= min(map(lost, others)) + 1e-9
    assert lost(votes) <= min(lost(0.999 * votes + 0.001 * corner) for corner in np.eye(4)) + 1e-9


def test_what_is_left_follows_the_graph_where_there_is_one() -> None:
    x, y, g, known = rows()
    y = y + 2.0 * np.sin(g / 3.0)
    errors = {}
    for name, graph in (("graph", CHAIN), ("none", None)):
        model = AutoRegressor(graph=graph).fit(x[known], y[known], groups=g[known])
        errors[name] = np.mean((model.predict(x[~known], groups=g[~known]) - y[~known]) ** 2)
        assert (model.gate_ > 0.9) == (graph is not None)
        assert ("There is no graph" in str(model.explain())) == (graph is None)
    assert errors["graph"] < 0.6 * errors["none"]
    values, low, high = AutoRegressor(graph=CHAIN).fit(x, y, groups=g).predict(x, groups=g, interval=0.9)
    assert np.all((low < values) & (values < high))


def test_frames_with_gaps_and_text_and_an_array_of_the_same() -> None:
    x, y, g, known = rows()
    x[::13, 1] = np.nan
    kind = np.where(x[:, 2] > 0, "up", "down")
    y = y + (kind == "up")
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(kind=kind, empty=np.nan)
    model = AutoRegressor(graph=CHAIN).fit(frame[known], y[known], groups=g[known])
    assert not model.league_[0].note
    new = frame[~known].assign(kind="sideways")  # a text that nobody has seen
    assert np.isfinite(model.predict(new, groups=g[~known])).all()
    assert set(model.predict_each(frame[:3], groups=g[:3])) == set(model.votes_)
    assert np.mean((model.predict(frame[~known], groups=g[~known]) - y[~known]) ** 2) < 0.6


def test_classes_have_probabilities_and_effects() -> None:
    x, _, g, known = rows()
    chance = 1.0 / (1.0 + np.exp(-x[:, 0] - 3.0 * np.sin(g / 3.0)))
    kinds = np.where(np.random.default_rng(1).random(len(g)) < chance, "yes", "no")
    model = AutoClassifier(graph=CHAIN).fit(x[known], kinds[known], groups=g[known])
    plain = AutoClassifier().fit(x[known], kinds[known], groups=g[known])
    chances = model.predict_proba(x[~known], groups=g[~known])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert list(model.classes_) == ["no", "yes"]
    assert model.gate_ > 0.5
    new = x[~known], kinds[~known], g[~known]
    assert model.score(*new) > plain.score(*new) + 0.1
    three = np.where(x[:, 1] > 1.0, "perhaps", kinds)
    chances = AutoClassifier().fit(x[known], three[known], groups=g[known]).predict_proba(x[:5], groups=g[:5])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_probabilities_are_no_surer_than_they_turned_out_to_be() -> None:
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(M), PER)
    x, y = rng.normal(size=(len(g), 2)), rng.random(len(g)) < 0.5  # nothing to be known
    known = ~np.isin(g, NEW)
    model = AutoClassifier().fit(x[known], y[known], groups=g[known])
    assert model.sureness_ < 0.9
    voted = model.predict_each(x[~known], groups=g[~known])
    plain = sum(vote * voted[name] for name, vote in model.votes_.items())
    chances = model.predict_proba(x[~known], groups=g[~known])
    assert log_loss(y[~known], chances) < log_loss(y[~known], plain)
    sure = AutoClassifier().fit(x[known], (x[:, 0] > 0)[known], groups=g[known])
    assert sure.sureness_ == 1.0 or sure.sureness_ > 0.8


def test_the_same_seed_gives_the_same_and_nothing_is_lost_on_the_way() -> None:
    model, (x, _, g, known) = fitted("linear", graph=CHAIN)
    again, _ = fitted("linear", graph=CHAIN)
    said = model.predict(x[~known], groups=g[~known])
    np.testing.assert_array_equal(said, again.predict(x[~known], groups=g[~known]))
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    np.testing.assert_array_equal(joblib.load(file).predict(x[~known], groups=g[~known]), said)
    assert clone(model).get_params() == model.get_params()


def test_weights_count() -> None:
    x, y, g, known = rows("linear")
    wrong = g % 2 == 0
    y = np.where(wrong, -y, y)
    weights = np.where(wrong, 1e-3, 1.0)
    model = AutoRegressor().fit(x[known], y[known], groups=g[known], sample_weight=weights[known])
    right = ~known & ~wrong
    assert np.corrcoef(model.predict(x[right], groups=g[right]), y[right])[0, 1] > 0.8


class Refuses(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Cannot be fitted."""

    def fit(self, X: Any, y: Any) -> Any:
        raise RuntimeError("no thanks\nreally")

    def predict(self, X: Any) -> Any:
        raise NotImplementedError


class SaysNothing(Ridge):  # type: ignore[misc]
    """Predicts NaN."""

    def predict(self, X: Any) -> Any:
        return np.full(len(X), np.nan)


def test_candidates_of_ones_own_and_those_that_fail() -> None:
    mine = {"mine": LinearRegression(), "kriged": KrigedRegressor(graph=CHAIN)}
    model, _ = fitted("linear", graph=CHAIN, candidates=mine)
    assert model.votes_["mine"] + model.votes_["kriged"] > 0.1
    with pytest.warns(
        TopoRoWarning, match=r"2 candidate\(s\) could not be fitted .*refuses \(RuntimeError: no thanks\)"
    ):
        model, (x, _, g, _) = fitted(candidates={"refuses": Refuses(), "says nothing": SaysNothing()})
    assert "refuses" not in model.votes_
    assert [row.name for row in model.league_[-2:]] == ["refuses", "says nothing"]
    assert "NaN or infinity" in model.league_[-1].note
    assert np.isfinite(model.predict(x, groups=g)).all()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"candidates": {"trees": Ridge()}}, SettingError, "candidates has 'trees': these are there already"),
        ({"candidates": {"a": 3}}, SettingError, "candidates has 'a': expected estimators"),
        ({"folds": 1}, SettingError, "folds"),
        ({"graph": [(0, 1)]}, GroupMismatchError, "not in the graph"),
    ],
)
def test_bad_settings_are_an_error(settings: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        fitted(**settings)


@pytest.mark.parametrize(
    ("rows_given", "message"),
    [([["a", "b"]] * 90, "X is no table of numbers .*pandas frame"), ([1.0] * 90, "X has shape")],
)
def test_inputs_that_are_no_table_of_numbers_are_an_error(rows_given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        AutoRegressor().fit(rows_given, np.zeros(90), groups=np.repeat([0, 1, 2], 30))


def test_two_groups_are_too_few() -> None:
    x, y, g, _ = rows()
    with pytest.raises(DataError, match=r"2 group\(s\): expected at least three"):
        AutoRegressor().fit(x[g < 2], y[g < 2], groups=g[g < 2])
