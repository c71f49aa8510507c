"""Candidates, votes, and the effect on what they leave."""

from __future__ import annotations

import errno
import io
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsRegressor

from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoWarning
from toporo.estimators import auto, auto_fit, candidates, resume
from toporo.estimators.auto import AutoClassifier, AutoRegressor
from toporo.estimators.ensemble import ensemble_weights
from toporo.estimators.kriged import KrigedRegressor
from toporo.estimators.places import Places
from toporo.groups import Groups

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
    trees = ("trees", "trees with context", "trees on a kriged model")
    steps, (x, y, g, known) = fitted("steps")
    assert sum(steps.weights_.values()) == pytest.approx(1.0)
    assert sum(steps.weights_[name] for name in trees) > 0.95
    assert next(row for row in steps.leaderboard_ if row.name == "linear").note == "far off in some groups"
    assert np.mean((steps.predict(x[~known], groups=g[~known]) - y[~known]) ** 2) < 0.35
    linear, (x, y, g, known) = fitted("linear")
    assert sum(vote for name, vote in linear.weights_.items() if name.startswith(("linear", "kriged"))) > 0.3
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

    votes = ensemble_weights(said, wanted, safe, shares)
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
    assert model.model_.ensemble.sharpness < 0.9
    voted = model.predict_each(x[~known], groups=g[~known])
    plain = sum(vote * voted[name] for name, vote in model.weights_.items())
    chances = model.predict_proba(x[~known], groups=g[~known])
    assert log_loss(y[~known], chances) < log_loss(y[~known], plain)
    sure = AutoClassifier().fit(x[known], (x[:, 0] > 0)[known], groups=g[known])
    assert sure.model_.ensemble.sharpness == 1.0 or sure.model_.ensemble.sharpness > 0.8


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
    mine = {"mine": LinearRegression(), "with slopes": KrigedRegressor(graph=CHAIN)}
    x, _, g, _ = rows()
    y = 3.0 * np.sin(g / 3.0) * x[:, 0]
    model = AutoRegressor(graph=CHAIN, candidates=mine).fit(x, y, groups=g)
    assert "mine" in model.weights_
    assert model.weights_["with slopes"] > 0.3
    with pytest.warns(
        TopoRoWarning, match=r"2 candidate\(s\) could not be fitted .*refuses \(RuntimeError: no thanks\)"
    ):
        model, (x, _, g, _) = fitted(candidates={"refuses": Refuses(), "says nothing": SaysNothing()})
    assert "refuses" not in model.weights_
    assert [row.name for row in model.leaderboard_[-2:]] == ["refuses", "says nothing"]
    assert "NaN or infinity" in model.leaderboard_[-1].note
    assert np.isfinite(model.predict(x, groups=g)).all()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"candidates": {"trees": Ridge()}}, SettingError, "candidates has 'trees': these are there already"),
        ({"candidates": ["trees"]}, SettingError, "candidates is a list: expected estimators by name"),
        ({"candidates": {"a": 3}}, SettingError, "candidates has 'a': expected estimators"),
        ({"folds": 1}, SettingError, "folds"),
        ({"graph": [(0, 1)]}, GroupMismatchError, "not in the graph"),
    ],
)
def test_bad_settings_are_an_error(settings: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        fitted(**settings)


@pytest.mark.parametrize(
    ("rows_given", "message"), [([["a", "b"]] * 90, "X holds text .*fit_table"), ([1.0] * 90, "Expected 2D array")]
)
def test_inputs_that_are_no_table_of_numbers_are_an_error(rows_given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        AutoRegressor().fit(rows_given, np.zeros(90), groups=np.repeat([0, 1, 2], 30))


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_groups_have_votes_and_no_effect(count: int) -> None:
    x, y, g, _ = rows("linear")
    some = g < count
    model = AutoRegressor(graph=CHAIN).fit(x[some], y[some], groups=g[some])
    assert model.gate_ == 0.0
    assert "kriged" not in model.weights_
    said = model.predict(x[~some], groups=g[~some])
    assert np.corrcoef(said, y[~some])[0, 1] > 0.8
    assert model.out_of_fold_.shape == (PER * count,)


def test_rows_without_groups_are_all_of_one() -> None:
    x, y, _, _ = rows("linear")
    model = AutoRegressor().fit(x[:300], y[:300])
    assert model.score(x[300:], y[300:]) > 0.8
    assert "in rows left out" in str(model.explain())
    assert "groups left out" not in str(model.explain())
    assert "some groups" not in str(model.explain())
    with pytest.raises(SettingError, match=r"graph is over groups, but fit.* got none"):
        AutoRegressor(graph=CHAIN).fit(x, y)


def test_rows_to_predict_without_groups_are_of_an_unknown_group() -> None:
    """Each by itself, without an effect of the group, whatever candidate votes."""
    x, y, g, _ = rows("linear")
    y = y + 5.0 * np.sin(g / 3.0)
    model = AutoRegressor(graph=CHAIN, folds=2, candidates={"mine": KrigedRegressor(graph=CHAIN)}).fit(x, y, groups=g)
    with pytest.warns(TopoRoWarning, match="no groups were given for the rows to predict"):
        values = model.predict(x)
    with pytest.warns(TopoRoWarning, match="no groups were given"):
        np.testing.assert_allclose(model.predict(x[:7]), values[:7], rtol=1e-9)
    with pytest.warns(TopoRoWarning, match="no groups were given"):
        assert set(model.predict_each(x)) == {*AutoRegressor()._usual(), "mine"} - {"linear, by prior"}
    with pytest.warns(TopoRoWarning, match="no groups were given"):
        alone = model.score(x, y)
    assert alone < model.score(x, y, groups=g)
    slope, intercept = np.polyfit(values, x @ [2.0, -1.0, 0.5], 1)
    assert slope == pytest.approx(1.0, abs=0.1)
    assert intercept == pytest.approx(-np.mean(5.0 * np.sin(np.arange(M) / 3.0)), abs=0.5)
    with pytest.warns(TopoRoWarning, match="no groups were given"):
        _, low, high = model.predict(x[:1], interval=0.9)
    assert low < values[0] < high


def quick(kind: type = AutoRegressor, **settings: Any) -> Any:
    return kind(folds=2, **settings)


@pytest.mark.parametrize(
    ("kind", "y", "message"),
    [
        (AutoRegressor, [1.0, np.nan] * 45, "y holds NaN or infinite values in 45 of 90 rows"),
        (AutoRegressor, ["a", "b"] * 45, "y holds 'a': expected numbers. For classes use AutoClassifier"),
        (AutoRegressor, [[1.0, 2.0]] * 90, "expected one target per row"),
        (AutoClassifier, [1.5, np.nan] * 45, "y holds NaN"),
        (AutoClassifier, np.array(["a", None] * 45, dtype=object), "missing classes"),
        (AutoClassifier, np.linspace(0.0, 1.0, 90), "For numbers use AutoRegressor"),
        (AutoClassifier, ["a"] * 90, "one class only"),
        (AutoRegressor, None, "requires y"),
    ],
)
def test_targets_are_checked_before_anything_is_fitted(
    kind: type, y: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "fit_candidates", lambda *_, **__: pytest.fail("a candidate was fitted"))
    with pytest.raises(DataError, match=message):
        kind().fit(np.zeros((90, 1)), y)


def test_weights_for_a_candidate_that_takes_none_are_an_error() -> None:
    x, y, g, _ = rows("linear")
    with pytest.raises(SettingError, match="KNeighborsRegressor takes no sample_weight"):
        quick(candidates={"mine": KNeighborsRegressor()}).fit(x, y, groups=g, sample_weight=np.ones(len(y)))


def test_weights_count() -> None:
    x, y, g, known = rows("linear")
    wrong = g % 2 == 0
    y = np.where(wrong, -y, y)
    weights = np.where(wrong, 1e-3, 1.0)
    model = AutoRegressor().fit(x[known], y[known], groups=g[known], sample_weight=weights[known])
    right = ~known & ~wrong
    assert np.corrcoef(model.predict(x[right], groups=g[right]), y[right])[0, 1] > 0.8


def test_rows_of_weight_zero_do_not_count() -> None:
    x, y, g, _ = rows("linear")
    x, y, g = x[::6], y[::6], g[::6]
    kept = np.arange(len(y)) % 5 > 0
    spoiled = np.where(kept, y, 1e6)
    one = quick().fit(x, spoiled, groups=g, sample_weight=kept.astype(float))
    other = quick().fit(x[kept], y[kept], groups=g[kept], sample_weight=np.ones(kept.sum()))
    np.testing.assert_array_equal(one.predict(x, groups=g), other.predict(x, groups=g))


def test_a_budget_is_kept_and_one_too_small_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(np.arange(0.0, 1e6, 0.01))
    monkeypatch.setattr(auto_fit, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(auto, "usable_threads", lambda: 1)
    with pytest.warns(TopoRoWarning, match=r"trees with context .not tried: the budget was spent"):
        model, (x, _, g, _) = fitted("linear", budget=0.16)
    assert {"constant", "linear", "trees"} == set(model.weights_)
    assert (
        next(row for row in model.leaderboard_ if row.name == "linear, TRO").note == "not tried: the budget was spent"
    )
    assert np.isfinite(model.predict(x, groups=g)).all()
    with pytest.raises(
        SettingError, match=r"the budget of 0.05 s was spent before one candidate was fitted.*--model linear"
    ):
        fitted("linear", budget=0.05)
    with pytest.raises(SettingError, match="budget"):
        fitted("linear", budget=-1.0)


@pytest.mark.parametrize("why", ["no folder", "no space"])
def test_results_that_cannot_be_stored_do_not_cost_a_candidate(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    if why == "no space":

        def full(path: Path) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(resume, "replacing", full)
    folder = tmp_path / ("file" if why == "no folder" else "") / "work"
    with pytest.warns(
        TopoRoWarning, match="the fit goes on, but its results cannot be kept in .*choose another"
    ) as met:
        model, _ = fitted("linear", folds=2, resume=folder)
    assert len(met) == 1
    assert set(model.weights_) == set(fitted("linear", folds=2)[0].weights_)


# ---------------------------------------------------------------- fits in threads


def results(model: Any, x: Any, g: Any) -> list[Any]:
    said = [*model.predict_each(x, groups=g).values(), model.out_of_fold_, model.predict(x, groups=g)]
    return [model.leaderboard_, model.weights_, model.evidence_, *(each.tobytes() for each in said)]


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_the_same_bytes_on_any_number_of_workers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, g, _ = (each[: 8 * PER] for each in rows())
    given, y = x, y > 0 if kind == "classes" else y
    estimator = (AutoClassifier if kind == "classes" else AutoRegressor)(graph=CHAIN, folds=2)
    found = []
    for workers in (1, 2, 4):
        monkeypatch.setattr(auto, "usable_threads", lambda workers=workers: workers)
        model = clone(estimator).fit(given, y, groups=g)
        found.append(results(model, given, g))
    assert found[0] == found[1] == found[2]


def test_columns_with_missing_values_of_pandas_are_fitted() -> None:
    rng = np.random.default_rng(0)
    counts = pd.array([None, *rng.integers(9, size=119)], dtype="Int64")
    frame = pd.DataFrame({"count": counts, "level": rng.normal(size=120)})
    frame["open"] = pd.array([True, None] * 60)
    y = frame["level"].to_numpy()
    assert AutoRegressor(folds=2).fit(frame, y).predict(frame).shape == (120,)


def test_out_of_fold_predictions_do_not_know_the_group() -> None:
    x, y, g, _ = rows()
    y = y + 5.0 * np.sin(g / 3.0)
    y[g == 3] += 40.0  # no other group shows it
    assert AutoRegressor(graph=CHAIN).fit(x, y, groups=g).out_of_fold_[g == 3].mean() < 20.0


def test_an_interrupted_fit_goes_on(tmp_path: Path) -> None:
    settings = {"graph": CHAIN, "resume": tmp_path / "work"}
    model, (x, _, g, _) = fitted("linear", **settings)
    files = sorted((tmp_path / "work").iterdir())
    assert len(files) == len(model.weights_)
    files[0].write_bytes(b"cut short")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume.Store, "write", lambda self, name, values: files.remove(self._file(name)))
        again, _ = fitted("linear", **settings)
    assert len(files) == len(model.weights_) - 1, "one candidate is fitted again"
    np.testing.assert_array_equal(again.predict(x, groups=g), model.predict(x, groups=g))


def test_fits_run_on_one_thread_each_and_those_of_the_user_in_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[Any]] = {"usual": set(), "own": set()}

    def note(rows: Any) -> Any:
        seen["usual"].add(threading.current_thread())
        return candidates.constant(rows)

    class Notes(LinearRegression):  # type: ignore[misc]
        def fit(self, *given: Any) -> Any:
            seen["own"].add(threading.current_thread())
            return super().fit(*given)

    usual = {"constant": candidates.Candidate(note, safe="always")}
    monkeypatch.setattr(AutoRegressor, "_usual", lambda self: usual)
    monkeypatch.setattr(auto, "usable_threads", lambda: 2)
    fitted(folds=2, candidates={"mine": Notes()})
    assert threading.current_thread() not in seen["usual"]
    assert seen["own"] == {threading.current_thread()}


def test_of_many_rows_some_are_drawn_to_judge_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_fit, "MOST_ROWS", 300)
    model, (x, y, g, known) = fitted("linear", graph=CHAIN)
    judged = np.isfinite(model.out_of_fold_)
    assert 250 <= judged.sum() <= 300
    assert set(g[known][judged]) == set(g[known])
    assert model.group_sizes_[0] == PER
    assert np.corrcoef(model.predict(x[~known], groups=g[~known]), y[~known])[0, 1] > 0.9


def test_shrinkage_is_chosen_by_groups_left_out() -> None:
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(12), 10)
    x = rng.normal(size=(120, 40))
    y = x[:, 0] + rng.normal(size=120) + rng.normal(size=12)[g] * x[:, 1]
    new = rng.normal(size=(2000, 40))
    ids = Groups.of(g.tolist())
    chosen = candidates.linear(candidates.Training(x, y, ids, None, None, None, (), 0))(new, Places(ids))[:, 0]
    hardly = Ridge(alpha=1.0).fit(x, y).predict(new)
    assert np.mean((chosen - new[:, 0]) ** 2) < 0.8 * np.mean((hardly - new[:, 0]) ** 2)
