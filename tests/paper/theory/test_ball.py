"""The duality gap is exact: nothing on the ball is lower, nothing on the simplex is higher."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.paper.theory.cases import PRIOR, blobs, problem, spiral
from toporo import Prior
from toporo.data import GroupedData
from toporo.errors import DataError, GroupMismatchError, UnknownNameError
from toporo.paper.theory import BallProblem
from toporo.paper.theory.ball import CONVEX, duality_gap


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CONVEX), st.sampled_from([0.0, 0.5, 10.0]), st.floats(0.05, 50.0), st.integers(0, 10_000))
def test_no_point_of_the_ball_is_below_the_certified_minimum(
    loss: str, penalty: float, ball_radius: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    task = problem(loss, penalty, ball_radius, rows=8, features=int(rng.integers(1, 5)), seed=seed)
    tried = rng.normal(size=(500, task.data.x.shape[1]))
    tried *= ball_radius * rng.uniform(size=(500, 1)) / np.linalg.norm(tried, axis=1, keepdims=True)
    q = rng.dirichlet(np.ones(3), size=4)
    minima = [task.solve(weights, math.inf, 1e-9) for weights in q]
    for least, weights in zip(minima, q, strict=True):
        assert np.linalg.norm(least.point.theta) <= ball_radius * (1 + 1e-12)
        assert least.gap <= 1e-9
        assert (task.losses(tried) @ weights >= least.value - least.gap - 1e-15).all()
    assert (duality_gap(task, tried[:4], q) >= -1e-12).all()


@pytest.mark.parametrize("loss", CONVEX)
@pytest.mark.parametrize("penalty", [0.0, 0.3, 5.0])
def test_the_gap_agrees_with_brute_force(loss: str, penalty: float) -> None:
    """One coefficient and two groups: both players' choices can be listed."""
    rng = np.random.default_rng(3)
    data = GroupedData.from_arrays(rng.normal(size=(12, 1)), np.tile([-1.0, 1.0], 6), ["a"] * 6 + ["b"] * 6)
    prior = Prior({"a": 0.2, "b": 0.8})
    task = BallProblem(data, loss, prior, penalty, ball_radius=1.5)
    thetas, shares = np.linspace(-1.5, 1.5, 20_001)[:, None], np.linspace(0.0, 1.0, 20_001)
    mixtures = np.stack([shares, 1.0 - shares], axis=1)
    theta, q = np.array([[0.4], [-1.5]]), np.array([[0.5, 0.5], [1.0, 0.0]])
    costs = 0.5 * penalty * ((mixtures - task.p) ** 2).sum(axis=1)
    highest = (mixtures @ task.losses(theta).T - costs[:, None]).max(axis=0)
    lowest = (task.losses(thetas) @ q.T).min(axis=0) - 0.5 * penalty * ((q - task.p) ** 2).sum(axis=1)
    assert duality_gap(task, theta, q) == pytest.approx(highest - lowest, abs=1e-6)


@pytest.mark.parametrize("loss", CONVEX)
@pytest.mark.parametrize("penalty", [0.0, 1.0, 100.0])
def test_the_saddle_point_has_the_gap_it_claims(loss: str, penalty: float) -> None:
    task = problem(loss, penalty, rows=20)
    saddle = task.solve(task.p, penalty, 1e-8)
    assert duality_gap(task, saddle.point.theta.T, saddle.q[None]) <= 1.01e-8


@pytest.mark.parametrize("loss", CONVEX)
def test_minima_that_are_not_unique_or_far_away_are_certified(loss: str) -> None:
    """Copies of a column make the Hessian singular; separable classes have no minimiser without the ball."""
    data = spiral()
    doubled = GroupedData.from_arrays(np.column_stack([data.x, data.x]), data.y, data.ids)
    apart = GroupedData.from_arrays([[-1.0], [-2.0], [1.0], [2.0]], [-1, -1, 1, 1], ["a", "b", "a", "b"])
    for rows, radius in ((doubled, 5.0), (apart, 100.0)):
        task = BallProblem(rows, loss, Prior.uniform(rows.groups), ball_radius=radius)
        assert 0 <= task.solve(task.p, math.inf, 1e-9).gap <= 1e-9


def test_bad_input() -> None:
    data = blobs()
    with pytest.raises(UnknownNameError, match="unknown loss 'hinge'"):
        BallProblem(data, "hinge", PRIOR)
    with pytest.raises(UnknownNameError, match="unknown convex loss 'sigmoid'"):
        problem("sigmoid").solve(np.full(3, 1 / 3), 1.0)
    with pytest.raises(DataError, match="two classes, -1 and 1"):
        BallProblem(GroupedData.from_arrays(data.x, data.y > 0, data.ids), "logistic", PRIOR)
    with pytest.raises(GroupMismatchError, match="'g9'"):
        _ = BallProblem(data, "logistic", Prior({"g0": 0.5, "g9": 0.5})).p
