"""Theorem 3, term by term: each is what its formula says, and together they do bound the risk."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import ClassifierMixin
from sklearn.linear_model import LogisticRegression

from tests.paper.theory.cases import blobs
from toporo import Prior
from toporo.data import GroupedData
from toporo.paper.theory import BallProblem, BoundBreakdown, bound, bound_breakdown
from toporo.paper.theory.bound import classifier_distance, rademacher

Q = np.array([0.5, 0.25, 0.25])


def task(data: GroupedData, ball_radius: float = 1.0) -> BallProblem:
    return BallProblem(data, "logistic", Prior.uniform(data.groups), ball_radius=ball_radius)


def small(labels: object = (-1.0, 1.0)) -> tuple[np.ndarray, BoundBreakdown]:
    """The coefficients of a model fitted to three groups of ten rows, and its bound in a group of twelve."""
    problem, x = task(blobs(rows=10)), blobs(rows=10).x[:12] + 0.1
    saddle = problem.solve(Q, math.inf)
    test = GroupedData.from_arrays(x, np.resize(labels, 12), ["new"] * 12)
    return saddle.point.theta[:, 0], bound_breakdown(problem, saddle, test)


def weighted(data: GroupedData) -> np.ndarray:
    return task(data).row_weights(Q)[:, None] * data.x


# ---------------------------------------------------------------- terms


def test_the_complexity_is_the_mean_over_all_signs() -> None:
    """Six rows have 64 sign vectors, which can be listed."""
    points = weighted(blobs(rows=2))
    exact = 3.0 * np.mean([np.linalg.norm(np.array(s) @ points) for s in itertools.product([-1, 1], repeat=6)])
    estimate = rademacher(points, 3.0, signs=4000)
    assert abs(estimate.value - exact) <= 5 * estimate.error
    assert estimate.error < 0.02 * exact


def test_without_a_shift_the_bound_holds_for_a_model_fitted_to_noise() -> None:
    """Labels independent of the inputs: all that training gains is overfitting, and the terms cover it."""
    gains, room = [], []
    q = np.array([0.5, 0.5])
    for draw in range(25):
        rng = np.random.default_rng([7, draw])
        x, fresh = rng.normal(size=(60, 12)), rng.normal(size=(4000, 12))
        x, fresh = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, fresh))
        data = GroupedData.from_arrays(x, rng.choice([-1.0, 1.0], 60), ["a"] * 20 + ["b"] * 40)
        problem = task(data, ball_radius=4.0)
        theta, rows = problem.solve(q, math.inf, 1e-9).point.theta[:, 0], problem.row_weights(q)
        empirical = rows @ np.clip(1.0 - data.x @ theta * data.y, 0.0, 1.0)
        true = np.clip(1.0 - fresh @ theta * rng.choice([-1.0, 1.0], 4000), 0.0, 1.0).mean()
        complexity = 2 * rademacher(rows[:, None] * data.x, 4.0, signs=300).value
        gains.append(true - empirical)
        room.append(complexity + 3 * math.sqrt(0.5 * math.log(40) * (q**2 / [20, 40]).sum()))
    assert min(gains) > 0  # the empirical risk alone is no bound
    assert (np.array(gains) <= room).all()


# ---------------------------------------------------------------- distances


@pytest.mark.parametrize("classifier", [LogisticRegression(), bound.CLASSIFIER])
@pytest.mark.parametrize("by", [0.0, 1.0, 3.0])
def test_the_classifier_sees_at_most_the_total_variation(
    by: float, classifier: ClassifierMixin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two unit Gaussians it is 2Φ(d/2) − 1, and one threshold sees all of it."""
    monkeypatch.setattr(bound, "CLASSIFIER", classifier)
    rng = np.random.default_rng(0)
    data = GroupedData.from_arrays(rng.normal(size=(500, 1)), np.resize([-1, 1], 500), ["a"] * 250 + ["b"] * 250)
    estimate = classifier_distance(task(data), np.array([0.5, 0.5]), rng.normal(loc=by, size=(250, 1)))
    true = 2 * norm.cdf(by / 2) - 1
    assert 0.0 <= estimate.value <= min(true + 3 * max(estimate.error, 0.02), 1.0)
    if isinstance(classifier, LogisticRegression):
        assert estimate.value >= true - 4 * max(estimate.error, 0.02)


def test_the_distance_follows_the_weights_and_ignores_groups_without_any() -> None:
    rng = np.random.default_rng(0)
    x, test = np.concatenate([rng.normal(size=(100, 2)) + 6.0, rng.normal(size=(100, 2))]), rng.normal(size=(80, 2))
    data = GroupedData.from_arrays(x, np.resize([-1, 1], 200), ["far"] * 100 + ["near"] * 100)
    weights = [np.array([q, 1 - q]) for q in (0.0, 0.5, 1.0)]
    near, between, far = (classifier_distance(task(data), q, test).value for q in weights)
    assert near < 0.25
    assert between == pytest.approx(0.5, abs=0.2)
    assert far > 0.95
    moved = GroupedData.from_arrays(x + 100.0 * (data.codes == 0)[:, None], data.y, data.ids)
    assert classifier_distance(task(moved), weights[0], test).value == near


# ---------------------------------------------------------------- the breakdown


def test_the_breakdown_adds_up() -> None:
    data, (theta, breakdown) = blobs(rows=10), small()
    ramp = np.clip(1 - data.x @ theta * data.y, 0, 1)
    assert breakdown.test_group == "new"
    assert breakdown.empirical == pytest.approx(sum(q * ramp[data.codes == e].mean() for e, q in enumerate(Q)))
    assert breakdown.complexity == pytest.approx(2 * rademacher(weighted(data), 1.0).value)
    assert breakdown.confidence == pytest.approx(3 * math.sqrt(0.5 * math.log(40) * (Q**2).sum() / 10))
    terms = (breakdown.empirical, breakdown.complexity, breakdown.distance, breakdown.confidence)
    assert breakdown.total == pytest.approx(sum(terms))


def test_labels_of_the_test_group_are_for_comparison_only() -> None:
    labels = np.resize([-1.0, -1.0, 1.0], 12)
    theta, breakdown = small(labels)
    x = blobs(rows=10).x[:12] + 0.1
    assert breakdown.test_risk == pytest.approx(np.clip(1 - x @ theta * labels, 0, 1).mean())
    assert replace(breakdown, test_risk=0.0) == replace(small()[1], test_risk=0.0)
