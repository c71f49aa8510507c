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
from toporo.data import GroupedData
from toporo.errors import DataError, GroupMismatchError, SettingError
from toporo.paper.theory import BallProblem, BoundBreakdown, bound, bound_breakdown
from toporo.paper.theory.bound import classifier_distance, confidence_term, mixture_emd, rademacher
from toporo.topology import diffusion_emd

WEIGHTS = {"g0": 0.5, "g1": 0.25, "g2": 0.25}
Q = np.array([0.5, 0.25, 0.25])
THETA = np.array([0.6, -0.3])


def task(data: GroupedData, ball_radius: float = 1.0) -> BallProblem:
    return BallProblem(data, loss="logistic", ball_radius=ball_radius)


def unseen(x: np.ndarray, y: object = (-1.0, 1.0)) -> GroupedData:
    """Rows of a test group."""
    return GroupedData.from_arrays(x, np.resize(y, len(x)), ["new"] * len(x))


def small(**changes) -> BoundBreakdown:
    data = blobs(rows=10)
    given = {"problem": task(data), "theta": THETA, "weights": WEIGHTS, "test": unseen(data.x[:12] + 0.1)} | changes
    return bound_breakdown(**{"signs": 200} | given)


def weighted(data: GroupedData, q: np.ndarray = Q) -> np.ndarray:
    return task(data).row_weights(q)[:, None] * data.x


# ---------------------------------------------------------------- terms


def test_the_complexity_is_the_mean_over_all_signs() -> None:
    """Six rows have 64 sign vectors, which can be listed."""
    points = weighted(blobs(rows=2))
    exact = 3.0 * np.mean([np.linalg.norm(np.array(s) @ points) for s in itertools.product([-1, 1], repeat=6)])
    estimate = rademacher(points, 3.0, signs=4000)
    assert abs(estimate.value - exact) <= 5 * estimate.error
    assert estimate.error < 0.02 * exact


def test_the_confidence_term() -> None:
    counts = np.array([100.0, 300.0])
    pooled = confidence_term(np.array([0.25, 0.75]), counts, 0.05)
    assert pooled == pytest.approx(3 * math.sqrt(math.log(40) / (2 * 400)))  # weights by size: one sample of 400
    alone = confidence_term(np.array([1.0, 0.0]), counts, 0.05)
    assert alone == pytest.approx(3 * math.sqrt(math.log(40) / (2 * 100)))  # all weight on one group: a sample of 100


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
        room.append(complexity + confidence_term(q, np.array([20.0, 40.0]), 0.05))
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


def test_both_distances_follow_the_weights_and_ignore_groups_without_any() -> None:
    rng = np.random.default_rng(0)
    x, test = np.concatenate([rng.normal(size=(100, 2)) + 6.0, rng.normal(size=(100, 2))]), rng.normal(size=(80, 2))
    data = GroupedData.from_arrays(x, np.resize([-1, 1], 200), ["far"] * 100 + ["near"] * 100)
    weights = [np.array([q, 1 - q]) for q in (0.0, 0.5, 1.0)]
    near, between, far = (classifier_distance(task(data), q, test).value for q in weights)
    assert near < 0.25
    assert between == pytest.approx(0.5, abs=0.2)
    assert far > 0.95
    emd = [mixture_emd(task(data), q, test) for q in weights]
    assert emd[0] < emd[1] < emd[2]
    moved = GroupedData.from_arrays(x + 100.0 * (data.codes == 0)[:, None], data.y, data.ids)
    assert classifier_distance(task(moved), weights[0], test).value == near


def test_the_emd_of_a_mixture_is_the_groups_at_a_vertex_and_convex_between() -> None:
    """At a vertex it is the distance between two groups on the same data graph. Densities are linear in the weights
    and a norm is convex, so a mixture is never farther than the mean of its parts."""
    data, test = blobs(rows=12), blobs(rows=8, seed=5).x[:14]
    pairs = diffusion_emd(np.concatenate([data.x, test]), [*data.ids.names, *["test"] * 14], scales=5)
    ends = [mixture_emd(task(data), vertex, test) for vertex in np.eye(3)]
    assert ends == pytest.approx([pairs.between(name, "test") for name in data.groups], rel=1e-5)
    assert mixture_emd(task(data), Q, test) <= float(Q @ ends) * (1 + 1e-6)


# ---------------------------------------------------------------- the breakdown


def test_the_breakdown_adds_up() -> None:
    data, breakdown = blobs(rows=10), small()
    ramp = np.clip(1 - data.x @ THETA * data.y, 0, 1)
    assert breakdown.empirical == pytest.approx(sum(q * ramp[data.codes == e].mean() for e, q in enumerate(Q)))
    assert breakdown.complexity == pytest.approx(2 * rademacher(weighted(data), 1.0, signs=200).value)
    assert breakdown.confidence == pytest.approx(confidence_term(Q, np.full(3, 10.0), 0.05))
    terms = (breakdown.empirical, breakdown.complexity, breakdown.distance, breakdown.confidence)
    assert breakdown.total == pytest.approx(sum(terms))
    assert (breakdown.test_group, breakdown.weights) == ("new", WEIGHTS)
    # a bound for every q at once is above the one for this q, term by term
    assert breakdown.chosen_complexity >= breakdown.complexity
    assert breakdown.chosen_confidence == pytest.approx(3 * math.sqrt(math.log(2 * 3 / 0.05) / 20))
    assert small(weights={"g2": 0.25, "g0": 0.5, "g1": 0.25}) == breakdown  # joined by name


def test_vacuous_and_the_rows_it_would_take() -> None:
    breakdown = replace(small(), empirical=0.1, complexity=0.3, distance=0.2, confidence=0.5)
    assert breakdown.total == pytest.approx(1.1)
    assert breakdown.vacuous
    assert breakdown.rows_factor == pytest.approx((0.8 / 0.7) ** 2)
    assert not replace(breakdown, complexity=0.1).vacuous
    assert replace(breakdown, distance=0.9).rows_factor is None


def test_labels_of_the_test_group_are_for_comparison_only() -> None:
    x = blobs(rows=10).x[:12] + 0.1
    labels = np.resize([-1.0, -1.0, 1.0], 12)
    breakdown = small(test=unseen(x, labels))
    assert breakdown.test_risk == pytest.approx(np.clip(1 - x @ THETA * labels, 0, 1).mean())
    assert replace(breakdown, test_risk=0.0) == replace(small(), test_risk=0.0)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"weights": {"g0": 0.5, "g1": 0.5}}, GroupMismatchError, "In the data but not in the weights: 'g2'"),
        ({"weights": {"g0": 0.5, "g1": 0.5, "g2": 0.5}}, DataError, "weights sum to 1.5"),
        ({"test": unseen(np.zeros((4, 3)))}, DataError, r"a test input \(3,\)"),
        ({"test": unseen(np.zeros((1, 2)))}, DataError, "has a single row"),
        ({"test": blobs()}, DataError, "of 3 groups"),
        ({"test": unseen(np.zeros((4, 2)), 7.0)}, DataError, "targets hold 7"),
        ({"theta": np.zeros(3)}, DataError, r"θ has shape \(3,\)"),
        ({"theta": np.array([np.nan, 0.0])}, DataError, "θ has norm nan"),
        ({"theta": np.array([2.0, 0.0])}, DataError, "outside the class ‖θ‖ ≤ 1"),
        ({"signs": 1}, SettingError, "signs is 1"),
        ({"delta": 1.5}, SettingError, "delta is 1.5"),
    ],
)
def test_bad_input(changes: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        small(**changes)
