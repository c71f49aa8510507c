r"""The convex–concave problem of Theorem 1: a linear model on a ball against the worst mixture of groups.

.. math:: \min_{\|\theta\|_2 \le R}\ \max_{q \in \Delta}\ R(\theta, q) = \sum_e q_e \ell_e(\theta) - \lambda D(q\|p),
          \qquad D(q\|p) = \tfrac12 \|q - p\|_2^2 .

Its solution and its duality gap come from the exact solver (:mod:`toporo.robust.saddle`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toporo.checks import non_negative, one_of, positive
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, SettingError
from toporo.groups import GroupIds, Groups
from toporo.robust import DIVERGENCES, LogisticLosses, SquaredLosses, best_response
from toporo.robust.saddle import Saddle, SaddleProblem
from toporo.topology.prior import Prior
from toporo.types import Array


class Loss(NamedTuple):
    r"""A loss of a prediction z and a target y, its slope in z, and suprema of both over :math:`|z| \le r`."""

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    largest: Callable[[Array, Array], Array]
    steepest: Callable[[Array, Array], Array]


def _sigmoid(z: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z)))


#: Losses by name: half the squared error; and of targets -1 and 1 the logistic loss, and the sigmoid of the negative
#: margin, which is bounded, has bounded derivatives and is not convex.
LOSSES: dict[str, Loss] = {
    "squared": Loss(
        value=lambda z, y: 0.5 * (z - y) ** 2,
        slope=lambda z, y: z - y,
        largest=lambda r, y: 0.5 * (r + np.abs(y)) ** 2,
        steepest=lambda r, y: r + np.abs(y),
    ),
    "logistic": Loss(
        value=lambda z, y: np.logaddexp(0.0, -y * z),
        slope=lambda z, y: -y * _sigmoid(-y * z),
        largest=lambda r, y: np.logaddexp(0.0, r),
        steepest=lambda r, y: _sigmoid(r),
    ),
    "sigmoid": Loss(
        value=lambda z, y: 0.5 * (1.0 - np.tanh(0.5 * y * z)),
        slope=lambda z, y: -y * _sigmoid(-y * z) * (1.0 - _sigmoid(-y * z)),
        largest=lambda r, y: _sigmoid(r),
        steepest=lambda r, y: np.full(np.shape(r), 0.25),
    ),
}


@dataclass(frozen=True, eq=False)
class BallProblem:
    """The problem at the head of this module; build it with :meth:`from_data`.

    Attributes
    ----------
    x, y : inputs, with a column of ones if there is an intercept, and targets (numbers for the squared loss, else -1
        and 1), sorted by group.
    counts : rows by group.
    groups : the groups, in the order of the rows, of ``counts`` and of ``prior``.
    loss : a key of :data:`LOSSES`.
    ball_radius, penalty, prior : R, λ and p.

    θ is a vector, q has one weight per group; a leading axis of both runs over a batch of points.
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
        ball_radius: float | None,
        penalty: float = 0.0,
        prior: Prior | Mapping[Any, float] | None = None,
        intercept: bool = True,
    ) -> BallProblem:
        """Make a problem from grouped data.

        Parameters
        ----------
        data : the rows; losses other than the squared one take any two targets.
        loss : a key of :data:`LOSSES`.
        ball_radius : R, the largest norm of θ; None if θ may be any vector.
        penalty : λ.
        prior : p by group name; uniform unless given.
        intercept : whether to add a column of ones.
        """
        one_of(loss, "loss", LOSSES)
        if ball_radius is not None:
            positive(ball_radius, "ball_radius", "a positive number, the largest norm of θ")
        non_negative(penalty, "penalty")
        if prior is None:
            prior = Prior.uniform(data.groups)
        elif not isinstance(prior, Prior):
            prior = Prior(prior)
        order = np.argsort(data.codes, kind="stable")
        return cls(
            x=design(data.x, intercept)[order],
            y=(_targets(data.y) if loss == "squared" else _signs(data.y))[order],
            counts=np.bincount(data.codes, minlength=len(data.groups)),
            groups=data.groups,
            loss=loss,
            ball_radius=math.inf if ball_radius is None else float(ball_radius),
            penalty=float(penalty),
            prior=data.groups.align(prior.weights, what="the prior"),
        )

    @cached_property
    def row_shares(self) -> Array:
        """1 / n_e of every row's group."""
        return np.repeat(1.0 / self.counts, self.counts)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of every group."""
        return np.concatenate([[0], np.cumsum(self.counts)[:-1]])

    def row_weights(self, q: Array) -> Array:
        """q_e / n_e of every row's group."""
        return np.asarray(np.repeat(q, self.counts, axis=-1) * self.row_shares)

    def losses(self, theta: Array) -> Array:
        """The groups' losses at θ: (…, d) to (…, m)."""
        rows = LOSSES[self.loss].value(theta @ self.x.T, self.y) * self.row_shares
        return np.asarray(np.add.reduceat(rows, self.starts, axis=-1))

    def gradient(self, theta: Array, q: Array) -> Array:
        """The gradient of R in θ."""
        return np.asarray((LOSSES[self.loss].slope(theta @ self.x.T, self.y) * self.row_weights(q)) @ self.x)

    def divergence(self, q: Array) -> Array:
        """D(q‖p)."""
        return np.asarray(DIVERGENCES["l2"].value(q, self.prior))

    def value(self, theta: Array, q: Array) -> Array:
        """R(θ, q)."""
        return np.asarray((q * self.losses(theta)).sum(axis=-1) - self.penalty * self.divergence(q))

    @cached_property
    def group_losses(self) -> LogisticLosses | SquaredLosses:
        """The groups' losses for the exact solver, which takes convex losses."""
        ids = GroupIds(np.repeat(np.arange(len(self.counts)), self.counts), self.groups)
        if self.loss == "logistic":
            return LogisticLosses.from_arrays(self.x, self.y, ids, intercept=False, one_class="allow")
        half = math.sqrt(0.5)  # half the squared error
        return SquaredLosses.from_arrays(half * self.x, half * self.y, ids, intercept=False)

    def saddle(self, q: Array, penalty: float, tol: float) -> Saddle:
        """Solve for a penalty and the prior ``q``, to a relative gap."""
        losses, l2 = self.group_losses, DIVERGENCES["l2"]
        return SaddleProblem(losses, 0.0, q, l2, tol=tol, ball_radius=self.ball_radius).penalised(penalty)


def design(x: Any, intercept: bool) -> Array:
    """Convert inputs to a matrix of floats, one row per sample, with a column of ones at the end for an intercept."""
    inputs = np.asarray(x, dtype=np.float64)
    if inputs.ndim != 2:
        raise DataError(f"x has shape {inputs.shape}: linear models take one row of numbers per sample.")
    return np.column_stack([inputs, np.ones(len(inputs))]) if intercept else inputs


def _targets(y: Any) -> Array:
    """Convert targets to a vector of floats."""
    values = np.asarray(y, dtype=np.float64)
    if values.ndim != 1:
        raise DataError(f"y has shape {values.shape}: expected one target per sample.")
    return values


def _signs(y: Any) -> Array:
    """Convert two classes to -1 and 1, in the order of their labels."""
    values = _targets(y)
    classes = np.unique(values)
    if len(classes) != 2:
        raise DataError(f"y holds {len(classes)} different value(s): the loss is for two classes.")
    return np.asarray(np.where(values == classes[1], 1.0, -1.0))


def project_ball(theta: Array, radius: float) -> Array:
    """Return the nearest point of the ball, along the last axis."""
    if math.isinf(radius):
        return theta
    norm = np.sqrt((theta**2).sum(axis=-1, keepdims=True))
    return np.asarray(theta * (radius / np.maximum(norm, radius)))


class DualityGap(NamedTuple):
    """An upper bound of a duality gap.

    Attributes
    ----------
    value : the bound.
    accuracy : the most by which the bound may exceed the true gap.
    """

    value: Array
    accuracy: Array


def duality_gap(problem: BallProblem, theta: Array, q: Array, *, tol: float = 1e-9) -> DualityGap:
    r""":math:`\max_{q'} R(\theta, q') - \min_{\|\theta'\| \le R} R(\theta', q)` at θ in the ball, q in the simplex.

    The maximum has a closed form; the minimum is the solver's certified lower bound. Both arguments may have a leading
    axis.

    Parameters
    ----------
    problem : the problem.
    theta, q : the point.
    tol : relative accuracy of the minimum.

    Examples
    --------
    >>> data = GroupedData.from_arrays([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 2.0, 5.0], ["a", "a", "b", "b"])
    >>> problem = BallProblem.from_data(data, loss="squared", ball_radius=2.0)
    >>> solution = solve_saddle(problem)
    >>> bool(duality_gap(problem, solution.point.theta[:, 0], solution.q).value < 1e-6)
    True
    """
    theta, q = _checked_points(problem, theta, q)
    worst = best_response(problem.losses(theta), problem.prior, problem.penalty)
    least = [problem.saddle(own, math.inf, positive(tol, "tol")) for own in q.reshape(-1, q.shape[-1])]
    lower = np.reshape([found.value - found.gap for found in least], q.shape[:-1])
    gap = problem.value(theta, worst) - (lower - problem.penalty * problem.divergence(q))
    return DualityGap(np.asarray(gap), np.reshape([found.gap for found in least], q.shape[:-1]))


def _checked_points(problem: BallProblem, theta: Array, q: Array) -> tuple[Array, Array]:
    theta, q = np.asarray(theta, dtype=np.float64), np.asarray(q, dtype=np.float64)
    expected = (problem.x.shape[1], len(problem.groups))
    if theta.shape[-1:] != expected[:1] or q.shape[-1:] != expected[1:] or theta.shape[:-1] != q.shape[:-1]:
        raise DataError(
            f"θ has shape {theta.shape} and q {q.shape}: expected {expected[0]} coefficients and {expected[1]} "
            "weights, with the same leading axes."
        )
    if not (np.isfinite(theta).all() and np.isfinite(q).all()):
        raise DataError("θ or q holds NaN or infinite values.")
    norm = float(np.linalg.norm(theta, axis=-1).max())
    if norm > problem.ball_radius * (1.0 + 1e-9):
        raise DataError(f"θ has norm {norm:g}, outside the ball of radius {problem.ball_radius:g}: project it first.")
    off = float(np.abs(q.sum(axis=-1) - 1.0).max())
    if off > 1e-6 or float(q.min()) < -1e-9:
        raise DataError(f"q is no distribution: it sums to 1 within {off:g}, its smallest weight is {q.min():g}.")
    return theta, q


def solve_saddle(problem: BallProblem, *, tol: float = 1e-6) -> Saddle:
    """Return the saddle point of the problem, with its certified gap.

    Parameters
    ----------
    problem : the problem.
    tol : relative gap to reach.
    """
    found = problem.saddle(problem.prior, problem.penalty, positive(tol, "tol"))
    if found.gap > tol * abs(found.value):
        raise SettingError(f"the duality gap is still {found.gap:.2g}: allow a tol above {tol:g}.")
    return found
