r"""Linear models on a ball against the worst mixture of groups.

.. math:: \min_{\|\theta\|_2 \le R}\ \max_{q \in \Delta}\ R(\theta, q) = \sum_e q_e \ell_e(\theta) - \lambda D(q\|p),
          \qquad D(q\|p) = \tfrac12 \|q - p\|_2^2 .

For convex losses the saddle point and the duality gap come from the exact solver (:mod:`toporo.robust.saddle`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from toporo.checks import one_of
from toporo.data import GroupedData
from toporo.errors import DataError, listed
from toporo.robust import LogisticLosses, Saddle, SaddleProblem, SquaredLosses, best_response, get_divergence
from toporo.topology import Prior
from toporo.types import Array


class Loss(NamedTuple):
    """A loss of a prediction z and a target y, and its slope in z."""

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]


#: Losses of single rows by name. The logistic loss and the sigmoid of the negative margin are for targets -1 and 1; the
#: sigmoid is bounded, has bounded derivatives and is not convex.
LOSSES: dict[str, Loss] = {
    "squared": Loss(lambda z, y: 0.5 * (z - y) ** 2, lambda z, y: z - y),
    "logistic": Loss(lambda z, y: np.logaddexp(0.0, -y * z), lambda z, y: -y * expit(-y * z)),
    "sigmoid": Loss(lambda z, y: expit(-y * z), lambda z, y: -y * expit(-y * z) * expit(y * z)),
}
CONVEX = ("squared", "logistic")


@dataclass(frozen=True, eq=False)
class BallProblem:
    """The problem at the head of this module.

    Parameters
    ----------
    data : the rows, with a column of ones if the model has an intercept; they are sorted by group. Losses other than
        the squared one take targets -1 and 1.
    loss : a key of ``LOSSES``: ``"squared"``, ``"logistic"`` or ``"sigmoid"``.
    prior : p.
    penalty : λ, not negative.
    ball_radius : R, the largest norm of θ; infinity if θ may be any vector.

    θ is a vector, q has one weight per group; leading axes of both run over a batch of points.
    """

    data: GroupedData
    loss: str
    prior: Prior
    penalty: float = 0.0
    ball_radius: float = math.inf

    def __post_init__(self) -> None:
        one_of(self.loss, "loss", LOSSES)
        others = set(self.data.y.tolist()) - {-1, 1}
        if others and self.loss != "squared":
            raise DataError(f"the targets hold {listed(sorted(others))}: expected two classes, -1 and 1.")
        object.__setattr__(self, "data", self.data.take(np.argsort(self.data.codes, kind="stable")))

    @cached_property
    def p(self) -> Array:
        """The prior in the order of the groups."""
        return self.data.groups.align(self.prior.weights, what="the prior")

    @property
    def farthest_vertex(self) -> float:
        r""":math:`\max_e \|1_e - p\|`, the distance of p from the farthest vertex of the simplex."""
        return float(np.linalg.norm(np.eye(len(self.p)) - self.p, axis=1).max())

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """Number of rows by group."""
        return np.bincount(self.data.codes)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of every group."""
        return np.cumsum(self.counts) - self.counts

    def group_means(self, values: Array) -> Array:
        """Average one value per row, along the last axis, over the rows of each group."""
        return np.asarray(np.add.reduceat(values, self.starts, axis=-1) / self.counts)

    def row_weights(self, q: Array) -> Array:
        """q_e / n_e of every row's group."""
        return np.asarray(np.repeat(q / self.counts, self.counts, axis=-1))

    def losses(self, theta: Array) -> Array:
        """The groups' losses at θ: (…, d) to (…, m)."""
        return self.group_means(LOSSES[self.loss].value(theta @ self.data.x.T, self.data.y))

    def gradient(self, theta: Array, q: Array) -> Array:
        """The gradient of R in θ."""
        slopes = LOSSES[self.loss].slope(theta @ self.data.x.T, self.data.y)
        return np.asarray((slopes * self.row_weights(q)) @ self.data.x)

    @cached_property
    def group_losses(self) -> LogisticLosses | SquaredLosses:
        """The groups' convex losses, as the exact solver takes them."""
        one_of(self.loss, "convex loss", CONVEX)
        x, y, ids = self.data.x, self.data.y, self.data.ids
        if self.loss == "logistic":
            return LogisticLosses.from_arrays(x, y, ids, intercept=False)
        half = math.sqrt(0.5)  # half the squared error
        return SquaredLosses.from_arrays(half * x, half * y, ids, intercept=False)

    def solve(self, prior: Array, penalty: float, tol: float = 1e-6) -> Saddle:
        """Find the saddle point under a prior and a penalty.

        Parameters
        ----------
        prior, penalty : p and λ; an infinite λ keeps q at p.
        tol : relative gap to reach.
        """
        divergence = get_divergence("l2")
        problem = SaddleProblem(self.group_losses, 0.0, prior, divergence, tol=tol, ball_radius=self.ball_radius)
        return problem.penalised(penalty)


def inner_suboptimality(losses: Array, q: Array, prior: Array, penalty: float, divergence: str = "l2") -> Array:
    r""":math:`\max_{q'} R(\theta, q') - R(\theta, q)` for the groups' losses at θ; the last axis runs over groups."""
    worst, value = best_response(losses, prior, penalty, divergence), get_divergence(divergence).value
    cost = penalty * (value(worst, prior) - value(q, prior)) if penalty else 0.0
    return np.asarray(np.maximum(((worst - q) * losses).sum(axis=-1) - cost, 0.0))


def duality_gap(problem: BallProblem, theta: Array, q: Array) -> Array:
    r""":math:`\max_{q'} R(\theta, q') - \min_{\|\theta'\| \le R} R(\theta', q)` of points, one per row.

    The maximum has a closed form. The minimum is the solver's certified lower bound, so the gap is never too small.

    Parameters
    ----------
    problem : the problem.
    theta, q : the points, θ in the ball and q in the simplex.

    Examples
    --------
    >>> data = GroupedData.from_arrays([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 2.0, 5.0], ["a", "a", "b", "b"])
    >>> problem = BallProblem(data, "squared", Prior.uniform(data.groups), ball_radius=2.0)
    >>> saddle = problem.solve(problem.p, problem.penalty)
    >>> bool(duality_gap(problem, saddle.point.theta.T, saddle.q[None]) < 1e-6)
    True
    """
    losses = problem.losses(theta)
    minima = [problem.solve(weights, math.inf, 1e-9) for weights in q]
    above_minimum = (q * losses).sum(axis=-1) - [least.value - least.gap for least in minima]
    return np.asarray(inner_suboptimality(losses, q, problem.p, problem.penalty) + above_minimum)
