"""Descent–ascent is the iteration of the theorems, and slopes are those of the upper half of the horizons."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.paper.theory.cases import problem
from tests.paper.theory.test_convergence import second_moments
from toporo.errors import SettingError
from toporo.paper.theory.ball import LOSSES
from toporo.paper.theory.rates import Rate, check_horizons, descent_ascent, log_slope
from toporo.robust import project_simplex


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("radius", [0.1, math.inf])
def test_iterates_agree_with_a_plain_loop(loss: str, radius: float) -> None:
    """With one row per group nothing is random."""
    task = replace(problem(loss, penalty=0.5, rows=1), ball_radius=radius)
    theta, q, lengths = np.zeros(3), task.prior, []
    rule = LOSSES[loss]
    for step in descent_ascent(task, steps=60, sizes=(0.2, 0.3), seeds=[0, 1]):
        g_theta = (rule.slope(task.x @ theta, task.y) * task.row_weights(q)) @ task.x
        g_q = task.losses(theta) - 0.5 * (q - task.prior)
        for found, expected in zip(step, (theta, q, g_theta, g_q), strict=True):
            assert found == pytest.approx(np.stack([expected, expected]), abs=1e-12)
        theta = theta - 0.2 * g_theta
        theta = theta * min(1.0, radius / np.linalg.norm(theta))
        q = project_simplex(q + 0.3 * g_q)
        lengths.append(np.linalg.norm(theta))
    assert max(lengths) == pytest.approx(0.1) if radius == 0.1 else max(lengths) > 0.5


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_have_the_exact_second_moments(loss: str) -> None:
    """At (0, p), over many seeds."""
    task = problem(loss, rows=10)
    first = next(descent_ascent(task, steps=1, sizes=(1.0, 1.0), seeds=range(2000)))
    exact = second_moments(task, np.zeros(3), task.prior)
    for gradient, expected in zip((first.theta_gradient, first.q_gradient), exact, strict=True):
        squares = (gradient**2).sum(axis=1)
        assert abs(squares.mean() - expected) <= 5 * squares.std() / math.sqrt(len(squares)) + 1e-12


def test_slopes_use_the_upper_half() -> None:
    gaps = np.array([[9.0, 9.0], [9.0, 9.0], [4.0, 8.0], [2.0, 2.0]])
    assert log_slope([1, 4, 16, 64], gaps) == pytest.approx([-0.5, -1.0])
    assert log_slope([16, 64], gaps[2:]) == pytest.approx([-0.5, -1.0])


def test_a_rate_compares_power_means_with_the_bound() -> None:
    rate = Rate((16, 64), (0, 1), np.array([[3.0, 4.0], [1.0, 1.0]]), np.array([3.53, 1.0]))
    assert rate.means == pytest.approx([3.5, 1.0])
    assert rate.holds
    quadratic = Rate(rate.horizons, rate.seeds, rate.values, rate.bounds, power=2)
    assert quadratic.means == pytest.approx([math.sqrt(12.5), 1.0])
    assert not quadratic.holds
    assert rate.slope_spread == pytest.approx(math.log(4 / 3) / math.log(4) / math.sqrt(2))


@pytest.mark.parametrize("horizons", [[0, 4], [4, -1], [4, 2.5], [8], [8, 8], []])
def test_horizons_that_give_no_slope_are_refused(horizons: list[float]) -> None:
    with pytest.raises(SettingError, match=r"T is|two different"):
        check_horizons(horizons)
    assert check_horizons([64, 16, 64]) == (16, 64)
