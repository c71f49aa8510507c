"""The duality gap is exact: nothing on the ball is lower, nothing on the simplex is higher."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tests.paper.theory.cases import problem, spiral
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, SettingError
from toporo.paper.theory import BallProblem, duality_gap, solve_saddle
from toporo.robust import best_response

CONVEX = ("squared", "logistic")
LOSS = st.sampled_from(CONVEX)


def ball_points(rng: np.random.Generator, count: int, size: int, ball_radius: float) -> np.ndarray:
    points = rng.normal(size=(count, size))
    lengths = ball_radius * rng.uniform(size=(count, 1)) ** (1.0 / size)
    return points / np.linalg.norm(points, axis=1, keepdims=True) * lengths


@settings(max_examples=40, deadline=None)
@given(LOSS, st.floats(0.05, 50.0), st.integers(0, 10_000))
def test_no_point_of_the_ball_is_below_the_certified_minimum(loss: str, ball_radius: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    task = problem(loss, ball_radius=ball_radius, rows=8, features=int(rng.integers(1, 5)), seed=seed)
    q = rng.dirichlet(np.ones(3))
    found = task.saddle(q, math.inf, 1e-9)
    theta = found.point.theta[:, 0]
    assert np.linalg.norm(theta) <= ball_radius * (1 + 1e-12)
    assert found.gap <= 1e-9
    assert found.value == pytest.approx(float(q @ task.losses(theta)), abs=1e-12)
    tried = ball_points(rng, 500, task.x.shape[1], ball_radius)
    near = theta + 1e-3 * ball_radius * rng.normal(size=(200, len(theta)))
    tried = np.concatenate([tried, near[np.linalg.norm(near, axis=1) <= ball_radius]])
    assert (task.losses(tried) @ q >= found.value - found.gap - 1e-15).all()


@pytest.mark.parametrize("loss", CONVEX)
@pytest.mark.parametrize("ball_radius", [0.1, 1.0, 1e3])
def test_the_minimum_agrees_with_a_general_solver(loss: str, ball_radius: float) -> None:
    task = problem(loss, ball_radius=ball_radius, rows=30)
    q = np.array([0.2, 0.5, 0.3])
    peer = minimize(
        lambda theta: float(q @ task.losses(theta)),
        np.zeros(3),
        jac=lambda theta: task.gradient(theta, q),
        constraints={
            "type": "ineq", "fun": lambda theta: ball_radius**2 - theta @ theta, "jac": lambda theta: -2.0 * theta
        },
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )  # fmt: skip
    assert task.saddle(q, math.inf, 1e-9).value == pytest.approx(peer.fun, abs=1e-6)


def test_inputs_that_repeat_each_other_leave_the_minimum_certified() -> None:
    """Copies of a column make the Hessian singular: infinitely many minimisers, one value."""
    data = spiral()
    doubled = GroupedData.from_arrays(np.column_stack([data.x, data.x]), data.y, data.ids)
    for loss in CONVEX:
        task = BallProblem.from_data(doubled, loss=loss, ball_radius=5.0)
        assert task.saddle(task.prior, math.inf, 1e-9).gap <= 1e-9


def test_classes_that_a_line_parts_are_no_trouble_on_a_large_ball() -> None:
    """Without the ball the logistic loss of separable data has no minimiser."""
    x = np.array([[-1.0], [-2.0], [1.0], [2.0]])
    task = BallProblem.from_data(
        GroupedData.from_arrays(x, [0, 0, 1, 1], ["a", "b", "a", "b"]), loss="logistic", ball_radius=100.0
    )
    found = task.saddle(np.array([0.5, 0.5]), math.inf, 1e-9)
    assert 0 <= found.gap <= 1e-9
    assert found.value < 1e-9
    assert found.point.theta[0] > 0


@pytest.mark.parametrize("loss", CONVEX)
@pytest.mark.parametrize("penalty", [0.0, 0.3, 5.0])
def test_the_gap_agrees_with_brute_force(loss: str, penalty: float) -> None:
    """One coefficient and two groups: both players' choices can be listed."""
    rng = np.random.default_rng(3)
    data = GroupedData.from_arrays(rng.normal(size=(12, 1)), np.tile([-1.0, 1.0], 6), ["a"] * 6 + ["b"] * 6)
    task = BallProblem.from_data(
        data, loss=loss, ball_radius=1.5, penalty=penalty, prior={"a": 0.2, "b": 0.8}, intercept=False
    )
    thetas = np.linspace(-1.5, 1.5, 20_001)[:, None]
    shares = np.linspace(0.0, 1.0, 20_001)
    mixtures = np.stack([shares, 1.0 - shares], axis=1)
    for theta, q in ((np.array([0.4]), np.array([0.5, 0.5])), (np.array([-1.5]), np.array([1.0, 0.0]))):
        highest = float(task.value(np.broadcast_to(theta, (len(mixtures), 1)), mixtures).max())
        lowest = float(task.value(thetas, np.broadcast_to(q, (len(thetas), 2))).min())
        assert float(duality_gap(task, theta, q).value) == pytest.approx(highest - lowest, abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(LOSS, st.sampled_from([0.0, 0.5, 10.0]), st.integers(0, 10_000))
def test_the_gap_is_never_negative_and_batches_change_nothing(loss: str, penalty: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    task = problem(loss, penalty, seed=seed)
    theta, q = ball_points(rng, 4, 3, 1.0), rng.dirichlet(np.ones(3), size=4)
    together = duality_gap(task, theta, q)
    assert (together.value >= -1e-12).all()
    assert (together.accuracy <= 1e-9).all()
    for i in range(4):
        assert float(duality_gap(task, theta[i], q[i]).value) == pytest.approx(together.value[i], abs=1e-9)


@pytest.mark.parametrize("loss", CONVEX)
@pytest.mark.parametrize("penalty", [0.0, 1.0, 100.0])
def test_the_solver_reaches_the_gap_it_claims(loss: str, penalty: float) -> None:
    task = problem(loss, penalty, rows=20)
    found = solve_saddle(task, tol=1e-8)
    theta = found.point.theta[:, 0]
    assert float(duality_gap(task, theta, found.q).value) <= 1.01e-8
    if penalty == 100.0:  # so strong a penalty leaves q where its best response says
        response = best_response(task.losses(theta), task.prior, penalty)
        assert found.q == pytest.approx(response, abs=1e-6)


def test_a_gap_that_is_not_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toporo.robust.saddle.MAX_STEPS", 1)
    monkeypatch.setattr("toporo.robust.saddle.PATIENCE", 1)
    with pytest.raises(SettingError, match=r"the duality gap is still .* allow a tol above"):
        solve_saddle(problem(penalty=0.0))


def test_points_outside_the_problem_are_refused() -> None:
    task = problem()
    theta, q = np.zeros(3), np.full(3, 1 / 3)
    for bad_theta, bad_q, message in (
        (np.zeros(2), q, "expected 3 coefficients and 3 weights"),
        (theta, np.full(2, 0.5), "expected 3 coefficients and 3 weights"),
        (np.array([np.nan, 0.0, 0.0]), q, "NaN or infinite"),
        (np.array([3.0, 0.0, 0.0]), q, "outside the ball of radius 1"),
        (theta, np.array([0.5, 0.4, 0.0]), "no distribution"),
        (theta, np.array([1.5, -0.5, 0.0]), "no distribution"),
    ):
        with pytest.raises(DataError, match=message):
            duality_gap(task, bad_theta, bad_q)
    with pytest.raises(SettingError, match="tol is 0"):
        duality_gap(task, theta, q, tol=0.0)
