"""Descent–ascent is the iteration of the theorems, and slopes are those of the upper half of the horizons."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.paper.theory.cases import problem
from toporo.paper.theory.ball import LOSSES
from toporo.paper.theory.rates import Rate, descent_ascent
from toporo.robust import project_simplex


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("radius", [0.1, math.inf])
def test_iterates_agree_with_a_plain_loop(loss: str, radius: float) -> None:
    """With one row per group nothing is random."""
    task = replace(problem(loss, penalty=0.5, rows=1), ball_radius=radius)
    theta, q = np.zeros(3), task.p
    for step in zip(*descent_ascent(task, 60, (0.2, 0.3), [0, 1]), strict=True):
        for part, expected in zip(step, (theta, q), strict=True):
            assert part == pytest.approx(np.stack([expected, expected]), abs=1e-12)
        g_theta, g_q = task.gradient(theta, q), task.losses(theta) - 0.5 * (q - task.p)
        theta = theta - 0.2 * g_theta
        theta = theta * min(1.0, radius / np.linalg.norm(theta))
        q = project_simplex(q + 0.3 * g_q)
    assert np.linalg.norm(theta) == pytest.approx(0.1) if radius == 0.1 else np.linalg.norm(theta) > 0.1


@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_are_derivatives(loss: str) -> None:
    z, y, rule = np.linspace(-3.0, 3.0, 601), 1.0, LOSSES[loss]
    assert (rule.value(z + 1e-6, y) - rule.value(z - 1e-6, y)) / 2e-6 == pytest.approx(rule.slope(z, y), abs=1e-8)


def test_a_rate_compares_power_means_with_the_bound() -> None:
    rate = Rate("gap", "squared", 1.0, {}, (16, 64), np.array([[3.0, 4.0], [1.0, 1.0]]), np.array([3.53, 1.0]))
    assert rate.means == pytest.approx([3.5, 1.0])
    assert rate.holds
    quadratic = replace(rate, power=2)
    assert quadratic.means == pytest.approx([math.sqrt(12.5), 1.0])
    assert not quadratic.holds


def test_slopes_are_those_of_the_upper_half_of_the_horizons() -> None:
    values, bounds = np.array([[9.0], [9.0], [4.0], [2.0]]), np.array([9.0, 9.0, 8.0, 2.0])
    rate = Rate("gap", "squared", 1.0, {}, (1, 4, 16, 64), values, bounds)
    assert (rate.slope, rate.bound_slope) == pytest.approx((-0.5, -1.0))
