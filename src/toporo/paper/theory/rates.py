"""Stochastic descent–ascent, and how fast a measured quantity and its bound fall with the number of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from toporo.checks import whole
from toporo.errors import SettingError
from toporo.paper.theory.ball import LOSSES, BallProblem
from toporo.robust import project_simplex
from toporo.types import Array


class Iterates(NamedTuple):
    """Iterates before each step and the stochastic gradients there, (steps, runs, …)."""

    theta: Array
    q: Array
    theta_gradient: Array
    q_gradient: Array

    @property
    def squared_norms(self) -> Array:
        """Squared norms of both stochastic gradients, (2, steps, runs)."""
        return np.stack([(gradient**2).sum(axis=-1) for gradient in (self.theta_gradient, self.q_gradient)])


def descent_ascent(
    problem: BallProblem, *, steps: int, sizes: tuple[float, float], seeds: Sequence[int], stream: tuple[int, ...] = ()
) -> Iterates:
    r"""Run projected stochastic descent in θ and ascent in q, for all seeds side by side.

    A run starts at :math:`\theta = 0`, :math:`q = p`, and θ stays in the problem's ball. Each step draws one row of
    every group, uniformly and with replacement. With :math:`\hat\ell_e` the loss on the row drawn of group e,

    .. math:: g_\theta = \sum_e q_e \nabla \hat\ell_e(\theta),\qquad g_q = \hat\ell(\theta) - \lambda (q - p) .

    Parameters
    ----------
    problem : the problem.
    steps, sizes : T, and :math:`\eta_\theta` and :math:`\eta_q`.
    seeds, stream : one run per seed. The rows drawn depend on ``stream``, the seed and T alone.
    """
    loss, data = LOSSES[problem.loss], problem.data
    streams = [np.random.default_rng([*stream, seed, steps]) for seed in seeds]
    rows = np.stack([rng.integers(0, problem.counts, size=(steps, len(data.groups))) for rng in streams], axis=1)
    theta, q = np.zeros((len(seeds), data.x.shape[1])), np.tile(problem.p, (len(seeds), 1))
    iterates = []
    for drawn in rows + problem.starts:
        x, y = data.x[drawn], data.y[drawn]
        z = (x @ theta[..., None])[..., 0]
        theta_gradient = ((loss.slope(z, y) * q)[:, None] @ x)[:, 0]
        q_gradient = loss.value(z, y) - problem.penalty * (q - problem.p)
        iterates.append((theta, q, theta_gradient, q_gradient))
        theta = theta - sizes[0] * theta_gradient
        theta = theta / np.maximum(np.linalg.norm(theta, axis=1, keepdims=True) / problem.ball_radius, 1.0)
        q = np.asarray(project_simplex(q + sizes[1] * q_gradient))
    return Iterates(*map(np.array, zip(*iterates, strict=True)))


def check_horizons(horizons: Sequence[int]) -> tuple[int, ...]:
    """Return numbers of steps T sorted and without repetitions; at least two."""
    steps = sorted({whole(value, "T", 1) for value in horizons})
    if len(steps) < 2:
        raise SettingError(f"horizons are {list(horizons)!r}: a slope needs at least two different numbers of steps.")
    return tuple(steps)


def log_slope(horizons: Sequence[int], values: Array) -> Array:
    """Least-squares slope of log values on log T over the upper half of the horizons (at least two), by column."""
    upper = slice(min(len(horizons) // 2, len(horizons) - 2), None)
    logs = np.log(np.maximum(values[upper], np.finfo(np.float64).tiny))
    return np.asarray(np.polyfit(np.log(horizons[upper]), logs, 1)[0])


@dataclass(frozen=True, eq=False)
class Rate:
    """A quantity measured after T steps, for several T, and the bound on its mean.

    Attributes
    ----------
    horizons : the numbers of steps T, increasing. Each T has runs of its own because step sizes depend on it.
    seeds : one run per seed and T.
    values : the quantity, (T, seeds).
    bounds : on the mean over seeds, by T.
    power : exponent of that mean: 2 for a norm whose mean square is bounded.
    """

    horizons: tuple[int, ...]
    seeds: tuple[int, ...]
    values: Array
    bounds: Array
    power: int = 1

    @property
    def means(self) -> Array:
        """The power mean over seeds, by T."""
        return np.asarray((self.values**self.power).mean(axis=1) ** (1.0 / self.power))

    @property
    def holds(self) -> bool:
        """True if the mean is at most the bound at every T."""
        return bool((self.means <= self.bounds).all())

    @property
    def slope(self) -> float:
        """Slope of the logarithm of the mean on log T; see :func:`log_slope`."""
        return float(log_slope(self.horizons, self.means))

    @property
    def slope_spread(self) -> float:
        """Standard deviation over seeds of the slope."""
        slopes = log_slope(self.horizons, self.values)
        return float(slopes.std(ddof=1)) if len(slopes) > 1 else 0.0

    @property
    def bound_slope(self) -> float:
        """Slope of the logarithm of the bound on log T."""
        return float(log_slope(self.horizons, self.bounds))
