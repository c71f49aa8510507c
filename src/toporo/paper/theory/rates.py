"""Stochastic descent–ascent, and how fast a measured quantity and its bound fall with the number of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from toporo.paper.theory.ball import LOSSES, BallProblem
from toporo.robust import project_simplex
from toporo.types import Array


class Iterates(NamedTuple):
    """Iterates before each step, (steps, runs, …)."""

    theta: Array
    q: Array


def descent_ascent(problem: BallProblem, steps: int, sizes: tuple[float, float], seeds: Sequence[int]) -> Iterates:
    r"""Run projected stochastic descent in θ and ascent in q, for all seeds side by side.

    A run starts at :math:`\theta = 0`, :math:`q = p`, and θ stays in the problem's ball. Each step draws one row of
    every group, uniformly and with replacement. With :math:`\hat\ell_e` the loss on the row drawn of group e,

    .. math:: g_\theta = \sum_e q_e \nabla \hat\ell_e(\theta),\qquad g_q = \hat\ell(\theta) - \lambda (q - p) .

    Parameters
    ----------
    problem : the problem.
    steps, sizes : T, and :math:`\eta_\theta` and :math:`\eta_q`.
    seeds : one run per seed. The rows drawn depend on the seed and T alone.
    """
    loss, data = LOSSES[problem.loss], problem.data
    streams = [np.random.default_rng([seed, steps]) for seed in seeds]
    rows = np.stack([rng.integers(0, problem.counts, size=(steps, len(data.groups))) for rng in streams], axis=1)
    theta, q = np.zeros((len(seeds), data.x.shape[1])), np.tile(problem.p, (len(seeds), 1))
    iterates = []
    for drawn in rows + problem.starts:
        iterates.append((theta, q))
        x, y = data.x[drawn], data.y[drawn]
        z = (x @ theta[..., None])[..., 0]
        theta_gradient = ((loss.slope(z, y) * q)[:, None] @ x)[:, 0]
        q_gradient = loss.value(z, y) - problem.penalty * (q - problem.p)
        theta = theta - sizes[0] * theta_gradient
        theta = theta / np.maximum(np.linalg.norm(theta, axis=1, keepdims=True) / problem.ball_radius, 1.0)
        q = np.asarray(project_simplex(q + sizes[1] * q_gradient))
    return Iterates(*map(np.array, zip(*iterates, strict=True)))


@dataclass(frozen=True, eq=False)
class Rate:
    """A quantity measured after T steps, for several T, and the bound on its mean.

    Attributes
    ----------
    quantity, loss, penalty : name of the quantity, and loss and λ of the problem.
    constants : behind step sizes and bounds, by name.
    horizons : the numbers of steps T, increasing. Each T has runs of its own because step sizes depend on it.
    values : the quantity, (T, seeds).
    bounds : on the mean over seeds, by T.
    power : exponent of that mean: 2 for a norm whose mean square is bounded.
    """

    quantity: str
    loss: str
    penalty: float
    constants: Mapping[str, float]
    horizons: Sequence[int]
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
        """Slope of the logarithm of the mean on log T, by least squares over the upper half of the T."""
        return self._slope_of(self.means)

    @property
    def bound_slope(self) -> float:
        """Slope of the logarithm of the bound on log T."""
        return self._slope_of(self.bounds)

    def _slope_of(self, values: Array) -> float:
        upper = slice(min(len(self.horizons) // 2, len(self.horizons) - 2), None)
        return float(np.polyfit(np.log(self.horizons[upper]), np.log(values[upper]), 1)[0])
