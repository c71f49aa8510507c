"""Descent–ascent is the iteration of the theorems, and slopes are those of the upper half of the horizons."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.paper.theory.cases import problem
from toporo.errors import SettingError
from toporo.paper.theory.ball import LOSSES
from toporo.paper.theory.rates import Rate, check_horizons, descent_ascent, log_slope
from toporo.robust import project_simplex


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("radius", [0.1, math.inf])
def test_iterates_agree_with_a_plain_loop(loss: str, radius: float) -> None:
    """With one row per group nothing is random."""
    task = replace(problem(loss, penalty=0.5, rows=1), ball_radius=radius)
    theta, q = np.zeros(3), task.p
    for step in zip(*descent_ascent(task, steps=60, sizes=(0.2, 0.3), seeds=[0, 1]), strict=True):
        g_theta, g_q = task.gradient(theta, q), task.losses(theta) - 0.5 * (q - task.p)
        for part, expected in zip(step, (theta, q, g_theta, g_q), strict=True):
            assert part == pytest.approx(np.stack([expected, expected]), abs=1e-12)
        theta = theta - 0.2 * g_theta
        theta = theta * min(1.0, radius / np.linalg.norm(theta))
        q = project_simplex(q + 0.3 * g_q)
    assert np.linalg.norm(theta) == pytest.approx(0.1) if radius == 0.1 else np.linalg.norm(theta) > 0.1


@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_are_derivatives(loss: str) -> None:
    z, y, rule = np.linspace(-3.0, 3.0, 601), 1.0, LOSSES[loss]
    assert (rule.value(z + 1e-6, y) - rule.value(z - 1e-6, y)) / 2e-6 == pytest.approx(rule.slope(z, y), abs=1e-8)


def test_a_rate_compares_power_means_with_the_bound() -> None:
    rate = Rate((16, 64), (0, 1), np.array([[3.0, 4.0], [1.0, 1.0]]), np.array([3.53, 1.0]))
    assert rate.means == pytest.approx([3.5, 1.0])
    assert rate.holds
    quadratic = replace(rate, power=2)
    assert quadratic.means == pytest.approx([math.sqrt(12.5), 1.0])
    assert not quadratic.holds
    assert rate.slope_spread == pytest.approx(math.log(4 / 3) / math.log(4) / math.sqrt(2))
    values = np.array([[9.0, 9.0], [9.0, 9.0], [4.0, 8.0], [2.0, 2.0]])
    assert log_slope([1, 4, 16, 64], values) == pytest.approx([-0.5, -1.0])  # of the upper half


@pytest.mark.parametrize("horizons", [[0, 4], [4, 2.5], [8, 8], []])
def test_horizons_that_give_no_slope_are_refused(horizons: list[float]) -> None:
    with pytest.raises(SettingError, match=r"T is|two different"):
        check_horizons(horizons)
    assert check_horizons([64, 16, 64]) == (16, 64)
