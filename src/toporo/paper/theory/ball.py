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

from toporo.checks import non_negative, number, one_of
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, listed
from toporo.groups import GroupIds, Groups
from toporo.robust import LogisticLosses, SquaredLosses, best_response, get_divergence
from toporo.robust.saddle import Saddle, SaddleProblem
from toporo.topology.prior import Prior
from toporo.types import Array


class Loss(NamedTuple):
    r"""A loss of a prediction z and a target y, its slope in z, and suprema of both over :math:`|z| \le r`."""

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    largest: Callable[[Array, Array], Array]
    steepest: Callable[[Array, Array], Array]


#: Losses by name. The logistic loss and the sigmoid of the negative margin are for targets -1 and 1; the sigmoid is
#: bounded, has bounded derivatives and is not convex.
LOSSES: dict[str, Loss] = {
    "squared": Loss(
        value=lambda z, y: 0.5 * (z - y) ** 2,
        slope=lambda z, y: z - y,
        largest=lambda r, y: 0.5 * (r + np.abs(y)) ** 2,
        steepest=lambda r, y: r + np.abs(y),
    ),
    "logistic": Loss(
        value=lambda z, y: np.logaddexp(0.0, -y * z),
        slope=lambda z, y: -y * expit(-y * z),
        largest=lambda r, y: np.logaddexp(0.0, r),
        steepest=lambda r, y: expit(r),
    ),
    "sigmoid": Loss(
        value=lambda z, y: expit(-y * z),
        slope=lambda z, y: -y * expit(-y * z) * expit(y * z),
        largest=lambda r, y: expit(r),
        steepest=lambda r, y: np.full(np.shape(r), 0.25),
    ),
}


@dataclass(frozen=True, eq=False)
class BallProblem:
    """The problem at the head of this module; build it with :meth:`from_data`.

    Attributes
    ----------
    x, y : inputs with a column of ones for the intercept at the end, and targets, sorted by group.
    counts : number of rows by group.
    groups : in the order of the rows, of ``counts`` and of ``prior``.
    loss : a key of :data:`LOSSES`.
    ball_radius, penalty, prior : R, λ and p.

    θ is a vector, q has one weight per group; leading axes of both run over a batch of points.
    """

    x: Array
    y: Array
    counts: npt.NDArray[np.int64]
    groups: Groups
    loss: str
    ball_radius: float
    penalty: float
    prior: Array

    @classmethod
    def from_data(
        cls,
        data: GroupedData,
        *,
        loss: str,
        penalty: float = 0.0,
        ball_radius: float = math.inf,
        prior: Prior | None = None,
    ) -> BallProblem:
        """Make a problem from grouped data.

        Parameters
        ----------
        data : the rows; losses other than the squared one take targets -1 and 1.
        loss : a key of :data:`LOSSES`.
        penalty : λ.
        ball_radius : R, the largest norm of θ; infinity if θ may be any vector.
        prior : p; uniform unless given.
        """
        one_of(loss, "loss", LOSSES)
        non_negative(penalty, "penalty")
        number(ball_radius, "ball_radius", "a positive number, the largest norm of θ", above=0.0, infinite=True)
        if data.x.ndim != 2 or data.y.ndim != 1:
            raise DataError(
                f"x has shape {data.x.shape} and y {data.y.shape}: linear models take one row of numbers and one "
                "target per sample."
            )
        if loss != "squared":
            require_signs(data)
        order = np.argsort(data.codes, kind="stable")
        return cls(
            x=with_intercept(data.x)[order],
            y=data.y[order].astype(np.float64),
            counts=np.bincount(data.codes),
            groups=data.groups,
            loss=loss,
            ball_radius=float(ball_radius),
            penalty=float(penalty),
            prior=data.groups.align((prior or Prior.uniform(data.groups)).weights, what="the prior"),
        )

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of every group."""
        return np.concatenate([[0], np.cumsum(self.counts)[:-1]])

    def group_means(self, values: Array) -> Array:
        """Average one value per row, along the last axis, over the rows of each group."""
        return np.asarray(np.add.reduceat(values, self.starts, axis=-1) / self.counts)

    def row_weights(self, q: Array) -> Array:
        """q_e / n_e of every row's group."""
        return np.asarray(np.repeat(q / self.counts, self.counts, axis=-1))

    def losses(self, theta: Array) -> Array:
        """The groups' losses at θ: (…, d) to (…, m)."""
        return self.group_means(LOSSES[self.loss].value(theta @ self.x.T, self.y))

    def gradient(self, theta: Array, q: Array) -> Array:
        """The gradient of R in θ."""
        return np.asarray((LOSSES[self.loss].slope(theta @ self.x.T, self.y) * self.row_weights(q)) @ self.x)

    @cached_property
    def group_losses(self) -> LogisticLosses | SquaredLosses:
        """The groups' convex losses, as the exact solver takes them."""
        ids = GroupIds(np.repeat(np.arange(len(self.counts)), self.counts), self.groups)
        if self.loss == "logistic":
            return LogisticLosses.from_arrays(self.x, self.y, ids, intercept=False, one_class="allow")
        half = math.sqrt(0.5)  # half the squared error
        return SquaredLosses.from_arrays(half * self.x, half * self.y, ids, intercept=False)

    def solve(self, prior: Array, penalty: float, tol: float = 1e-6) -> Saddle:
        """Find the saddle point under a prior and a penalty.

        Parameters
        ----------
        prior, penalty : p and λ; an infinite λ keeps q at p.
        tol : relative gap to reach.
        """
        problem = SaddleProblem(
            self.group_losses, 0.0, prior, get_divergence("l2"), tol=tol, ball_radius=self.ball_radius
        )
        return problem.penalised(penalty)


def with_intercept(x: Array) -> Array:
    """Add a column of ones at the end."""
    return np.column_stack([x, np.ones(len(x))])


def require_signs(data: GroupedData) -> None:
    """Raise an error unless all targets are -1 or 1."""
    others = sorted(set(data.y.tolist()) - {-1, 1})
    if others:
        raise DataError(f"the targets hold {listed(others)}: expected two classes, -1 and 1.")


def inner_suboptimality(losses: Array, q: Array, prior: Array, penalty: float, divergence: str = "l2") -> Array:
    r""":math:`\max_{q'} R(\theta, q') - R(\theta, q)` for the groups' losses at θ; the last axis runs over groups."""
    worst, value = best_response(losses, prior, penalty, divergence), get_divergence(divergence).value
    cost = penalty * (value(worst, prior) - value(q, prior)) if penalty else 0.0
    return np.asarray(np.maximum(((worst - q) * losses).sum(axis=-1) - cost, 0.0))


def duality_gap(problem: BallProblem, theta: Array, q: Array, *, tol: float = 1e-9) -> Array:
    r""":math:`\max_{q'} R(\theta, q') - \min_{\|\theta'\| \le R} R(\theta', q)` of points, one per row.

    The maximum has a closed form. The minimum is the solver's certified lower bound, so the gap is never too small.

    Parameters
    ----------
    problem : the problem.
    theta, q : the points, θ in the ball and q in the simplex.
    tol : relative accuracy of the minimum.

    Examples
    --------
    >>> data = GroupedData.from_arrays([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 2.0, 5.0], ["a", "a", "b", "b"])
    >>> problem = BallProblem.from_data(data, loss="squared", ball_radius=2.0)
    >>> saddle = problem.solve(problem.prior, problem.penalty)
    >>> bool(duality_gap(problem, saddle.point.theta.T, saddle.q[None]) < 1e-6)
    True
    """
    losses = problem.losses(theta)
    minima = [problem.solve(weights, math.inf, tol) for weights in q]
    above_minimum = (q * losses).sum(axis=-1) - [least.value - least.gap for least in minima]
    return np.asarray(inner_suboptimality(losses, q, problem.prior, problem.penalty) + above_minimum)
