"""Theorem 1 holds: the constants cover the gradients, the expected gap is below the bound, and it falls at its rate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.paper.theory.cases import problem, spiral
from toporo import Prior
from toporo.data import GroupedData
from toporo.paper.theory import BallProblem, Rate, convergence, measure_convergence
from toporo.paper.theory.ball import CONVEX, LOSSES
from toporo.paper.theory.convergence import gradient_bounds
from toporo.paper.theory.rates import Iterates, descent_ascent

HORIZONS = [2**k for k in range(6, 11)]
#: The rate is -1/2. Slopes near 0 or -1 are other rates.
SLOPES = (-0.65, -0.33)


def second_moments(task: BallProblem, theta: np.ndarray, q: np.ndarray) -> tuple[float, float]:
    """E‖g‖² of both stochastic gradients with one row per group: the square of the mean, and variances by group."""
    loss, z = LOSSES[task.loss], task.data.x @ theta
    slopes, values = loss.slope(z, task.data.y)[:, None] * task.data.x, loss.value(z, task.data.y)
    spans = np.split(np.arange(len(z)), task.starts[1:])
    spread = sum(q[e] ** 2 * slopes[rows].var(axis=0).sum() for e, rows in enumerate(spans))
    g_theta, g_q = task.gradient(theta, q), task.losses(theta) - task.penalty * (q - task.p)
    return float(g_theta @ g_theta + spread), float(g_q @ g_q + sum(values[rows].var() for rows in spans))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(CONVEX), st.sampled_from([0.0, 2.0]), st.floats(0.1, 20.0), st.integers(0, 10_000))
def test_the_constants_cover_the_gradients_everywhere(loss: str, penalty: float, ball_radius: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    task = problem(loss, penalty, ball_radius, seed=seed)
    constants = gradient_bounds(task)
    for _ in range(20):
        direction = rng.normal(size=3)
        theta = ball_radius * direction / np.linalg.norm(direction)  # gradients are largest on the edge
        of_theta, of_q = second_moments(task, theta, rng.dirichlet(np.full(3, 0.3)))
        assert of_theta <= constants["theta"] ** 2 * (1 + 1e-12)
        assert of_q <= constants["q"] ** 2 * (1 + 1e-12)


def test_the_constants_are_attained() -> None:
    """One row per group, each as wrong as the ball allows, and q at a vertex."""
    data = GroupedData.from_arrays([[1.0], [1.0]], [-2.0, -2.0], ["a", "b"])
    task = BallProblem(data, "squared", Prior.uniform(data.groups), ball_radius=3.0)
    moments = second_moments(task, np.array([3.0]), np.array([1.0, 0.0]))
    assert gradient_bounds(task) == pytest.approx({"theta": 5.0, "q": math.hypot(12.5, 12.5)})
    assert np.sqrt(moments) == pytest.approx((5.0, math.hypot(12.5, 12.5)))


def spiral_gap(loss: str = "logistic", penalty: float = 0.0) -> Rate:
    data = spiral()
    task = BallProblem(data, loss, Prior.uniform(data.groups), penalty, ball_radius=1.0)
    return measure_convergence(task, HORIZONS, range(5))


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("loss", CONVEX)
def test_the_bound_holds_and_the_gap_falls_at_its_rate(loss: str, penalty: float) -> None:
    gap = spiral_gap(loss, penalty)
    assert gap.holds
    assert SLOPES[0] <= gap.slope <= SLOPES[1]
    assert gap.bound_slope == pytest.approx(-0.5)
    if penalty == 0.0:  # the check has power: a bound that fell like 1/T would not hold
        assert gap.means[-1] > gap.bounds[-1] / math.sqrt(HORIZONS[-1])


@pytest.mark.parametrize("power", [0.5, -0.5])
def test_steps_of_another_order_lose_the_rate(power: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(problem: BallProblem, steps: int, sizes: tuple[float, float], seeds: Sequence[int]) -> Iterates:
        return descent_ascent(problem, steps, (sizes[0] * steps**power, sizes[1] * steps**power), seeds)

    monkeypatch.setattr(convergence, "descent_ascent", other)
    assert not SLOPES[0] <= spiral_gap().slope <= SLOPES[1]


def test_a_run_depends_on_its_own_steps_and_seed_alone() -> None:
    alone = measure_convergence(problem(), [16, 64], [3])
    among = measure_convergence(problem(), [8, 16, 64, 130], [0, 3, 7])
    assert among.values[1:3, 1] == pytest.approx(alone.values[:, 0], rel=1e-9)
