r"""The convex–concave problem that Theorem 1 is about, its exact duality gap, and its solution without noise.

.. math:: \min_{\|\theta\|_2 \le R}\ \max_{q \in \Delta}\ R(\theta, q) = \sum_e q_e \ell_e(\theta) - \lambda D(q\|p),
          \qquad D(q\|p) = \tfrac12 \|q - p\|_2^2 :

a linear model on a ball against the worst mixture of groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toporo.checks import non_negative, one_of, positive, whole
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, SettingError
from toporo.groups import Groups
from toporo.robust import best_response, project_simplex
from toporo.topology.prior import Prior
from toporo.types import Array, Name

#: Newton steps on the ball, and halvings of one, before giving up; a handful is the rule.
NEWTON_STEPS, HALVINGS = 100, 40
#: Iterations of the secular equation, which Newton's method solves monotonically and quadratically.
SECULAR_STEPS = 60
#: What a ball's radius is expected to be.
LARGEST_NORM = "a positive number, the largest norm of θ"


class Loss(NamedTuple):
    r"""A convex loss of a prediction z and a target y, its derivatives in z, and its suprema over :math:`|z| \le r`."""

    name: str
    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    curvature: Callable[[Array, Array], Array]
    largest: Callable[[Array, Array], Array]
    steepest: Callable[[Array, Array], Array]


def _sigmoid(z: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z)))


#: Name to loss: half the squared error, and the logistic loss of targets -1 and 1.
LOSSES: dict[str, Loss] = {
    "squared": Loss(
        "squared",
        value=lambda z, y: 0.5 * (z - y) ** 2,
        slope=lambda z, y: z - y,
        curvature=lambda z, y: np.ones_like(z - y),
        largest=lambda r, y: 0.5 * (r + np.abs(y)) ** 2,
        steepest=lambda r, y: r + np.abs(y),
    ),
    "logistic": Loss(
        "logistic",
        value=lambda z, y: np.logaddexp(0.0, -y * z),
        slope=lambda z, y: -y * _sigmoid(-y * z),
        curvature=lambda z, y: _sigmoid(z) * _sigmoid(-z),
        largest=lambda r, y: np.logaddexp(0.0, r),
        steepest=lambda r, y: _sigmoid(r),
    ),
}


@dataclass(frozen=True, eq=False)
class BallProblem:
    """The convex–concave problem at the head of this module; build it with :meth:`from_data`.

    Attributes
    ----------
    x, y : inputs, with a column of ones if there is an intercept, and targets (-1 and 1 for the logistic loss), the
        rows of a group together.
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
        ball_radius: float,
        penalty: float = 0.0,
        prior: Prior | Mapping[Any, float] | None = None,
        intercept: bool = True,
    ) -> BallProblem:
        """From grouped data.

        Parameters
        ----------
        data : the rows; the logistic loss takes any two targets.
        loss : ``"squared"`` or ``"logistic"``.
        ball_radius : R, the largest norm of θ.
        penalty : λ.
        prior : p by group name; uniform unless given.
        intercept : whether to add a column of ones.
        """
        one_of(loss, "loss", LOSSES)
        positive(ball_radius, "ball_radius", LARGEST_NORM)
        non_negative(penalty, "penalty")
        if prior is None:
            prior = Prior.uniform(data.groups)
        elif not isinstance(prior, Prior):
            prior = Prior(prior)
        order = np.argsort(data.codes, kind="stable")
        return cls(
            x=design(data.x, intercept)[order],
            y=(signs_of(data.y) if loss == "logistic" else targets(data.y))[order],
            counts=np.bincount(data.codes, minlength=len(data.groups)),
            groups=data.groups,
            loss=loss,
            ball_radius=float(ball_radius),
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

    def losses(self, theta: Array) -> Array:
        """The groups' losses at θ: (…, d) to (…, m)."""
        rows = LOSSES[self.loss].value(theta @ self.x.T, self.y) * self.row_shares
        return np.asarray(np.add.reduceat(rows, self.starts, axis=-1))

    def value(self, theta: Array, q: Array) -> Array:
        """R(θ, q)."""
        return np.asarray((q * self.losses(theta)).sum(axis=-1) - self.penalty * self.divergence(q))

    def divergence(self, q: Array) -> Array:
        """D(q‖p)."""
        return np.asarray(0.5 * ((q - self.prior) ** 2).sum(axis=-1))

    def gradient(self, theta: Array, q: Array) -> Array:
        """The gradient of R in θ."""
        slopes = LOSSES[self.loss].slope(theta @ self.x.T, self.y)
        return np.asarray((slopes * self.row_weights(q)) @ self.x)

    def hessian(self, theta: Array, q: Array) -> Array:
        """The second derivative of R in θ."""
        bends = LOSSES[self.loss].curvature(theta @ self.x.T, self.y) * self.row_weights(q)
        return np.asarray(np.swapaxes(bends[..., None] * self.x, -1, -2) @ self.x)

    def row_weights(self, q: Array) -> Array:
        """q_e / n_e of every row's group."""
        return np.asarray(np.repeat(q, self.counts, axis=-1) * self.row_shares)


def design(x: Any, intercept: bool) -> Array:
    """Inputs as a matrix of floats, one row per sample, with a column of ones at the end for an intercept."""
    inputs = np.asarray(x, dtype=np.float64)
    if inputs.ndim != 2:
        raise DataError(f"x has shape {inputs.shape}: linear models take one row of numbers per sample.")
    return np.column_stack([inputs, np.ones(len(inputs))]) if intercept else inputs


def targets(y: Any) -> Array:
    """One number per sample."""
    values = np.asarray(y, dtype=np.float64)
    if values.ndim != 1:
        raise DataError(f"y has shape {values.shape}: expected one target per sample.")
    return values


def signs_of(y: Any) -> Array:
    """Two classes as -1 and 1, in the order of their labels."""
    values = targets(y)
    classes = np.unique(values)
    if len(classes) != 2:
        raise DataError(f"y holds {len(classes)} different value(s): the logistic loss is for two classes.")
    return np.asarray(np.where(values == classes[1], 1.0, -1.0))


def project_ball(theta: Array, radius: float) -> Array:
    """The nearest point of the ball, along the last axis."""
    norm = np.sqrt((theta**2).sum(axis=-1, keepdims=True))
    return np.asarray(theta * (radius / np.maximum(norm, radius)))


# ---------------------------------------------------------------- the gap


@dataclass(frozen=True, eq=False)
class BallMinimum:
    """A minimiser of the q-weighted loss on the ball, the value there, and what no θ of the ball gets below."""

    theta: Array
    value: Array
    lower: Array


@dataclass(frozen=True, eq=False)
class DualityGap:
    """The duality gap at (θ, q).

    Attributes
    ----------
    value, accuracy : an upper bound of it, and at most how far that is above the true one.
    """

    value: Array
    accuracy: Array


def duality_gap(problem: BallProblem, theta: Array, q: Array, *, tol: float = 1e-9) -> DualityGap:
    r""":math:`\max_{q'} R(\theta, q') - \min_{\|\theta'\| \le R} R(\theta', q)` at θ in the ball, q in the simplex.

    The maximum has a closed form; the minimum is :func:`minimum_on_ball`'s certified lower bound. Both arguments may
    have a leading axis.

    Parameters
    ----------
    problem : the problem.
    theta, q : the point.
    tol : how exact the minimum is to be.
    """
    theta, q = _checked_points(problem, theta, q)
    worst = best_response(problem.losses(theta), problem.prior, problem.penalty)
    highest = problem.value(theta, worst)
    least = minimum_on_ball(problem, q, tol=tol)
    return DualityGap(
        value=np.asarray(highest - (least.lower - problem.penalty * problem.divergence(q))),
        accuracy=np.asarray(least.value - least.lower),
    )


def minimum_on_ball(problem: BallProblem, q: Array, *, tol: float = 1e-9) -> BallMinimum:
    r""":math:`\min_{\|\theta\| \le R} \sum_e q_e \ell_e(\theta)`, with a certificate.

    Newton's method on the ball: the second-order model is minimised on it exactly (:func:`_model_on_ball`), and the
    step towards that minimiser halved until the value falls. For the squared loss the model is the loss itself and one
    step does. Convexity certifies: no point of the ball is lower than the tangent plane's lowest,

    .. math:: f(\theta) - \langle \nabla f(\theta), \theta\rangle - R \|\nabla f(\theta)\| ,

    and the iteration ends where f is within ``tol`` of that.

    Parameters
    ----------
    problem : the problem.
    q : weights by group, with or without a leading axis.
    tol : how exact the minimum is to be.
    """
    positive(tol, "tol")
    single, weights = np.ndim(q) == 1, np.atleast_2d(np.asarray(q, dtype=np.float64))
    theta = np.zeros((len(weights), problem.x.shape[1]))
    value, slope = _weighted(problem, theta, weights)
    lower = np.full(len(weights), -np.inf)
    for _ in range(NEWTON_STEPS):
        plane = value - (slope * theta).sum(axis=1) - problem.ball_radius * np.linalg.norm(slope, axis=1)
        lower = np.maximum(lower, plane)
        open_ = np.flatnonzero(value - lower > tol)
        if not len(open_):
            break
        here, of = theta[open_], weights[open_]
        bend = problem.hessian(here, of)
        target = _model_on_ball(bend, (bend @ here[..., None])[..., 0] - slope[open_], problem.ball_radius)
        step = _halved(problem, here, target - here, value[open_], of)
        theta[open_] += step[:, None] * (target - here)
        moved = _weighted(problem, theta[open_], of)
        value[open_], slope[open_] = moved
        if not step.any():  # rounding: nothing falls any more
            break
    return BallMinimum(*(part[0] if single else part for part in (theta, value, lower)))


def _weighted(problem: BallProblem, theta: Array, q: Array) -> tuple[Array, Array]:
    """The q-weighted loss and its gradient."""
    return np.asarray((q * problem.losses(theta)).sum(axis=-1)), problem.gradient(theta, q)


def _halved(problem: BallProblem, theta: Array, move: Array, value: Array, q: Array) -> Array:
    """How far to go along each move for the loss not to rise: 1, ½, ¼, … or, where it rises all the same, 0.

    A rise by rounding is none: near the minimum the certificate, which looks at slopes, still gains by a step.
    """
    step = np.ones(len(theta))
    most = value + 8.0 * np.finfo(float).eps * np.abs(value)
    for _ in range(HALVINGS):
        reached = (q * problem.losses(theta + step[:, None] * move)).sum(axis=-1)
        rising = reached > most
        if not rising.any():
            return step
        step = np.where(rising, step / 2.0, step)
    return np.where(rising, 0.0, step)


def _model_on_ball(matrix: Array, vector: Array, radius: float) -> Array:
    r""":math:`\arg\min_{\|u\| \le R} \tfrac12 u^\top A u - b^\top u` for positive semidefinite A, along a leading axis.

    In the eigenbasis of A, :math:`u = (A + \nu)^{-1} b` with :math:`\nu = 0` if that is inside, else with the one ν
    that puts it on the sphere: the root of :math:`1/\|u(\nu)\| - 1/R`, to which Newton's method climbs from below.
    """
    values, basis = np.linalg.eigh(matrix)
    values = np.maximum(values, 0.0)
    b = (np.swapaxes(basis, -1, -2) @ vector[..., None])[..., 0]
    # Directions without curvature carry no slope but rounding; a hair of curvature keeps them at zero.
    values = np.maximum(values, 1e-15 * values.max(axis=-1, keepdims=True) + 1e-300)
    # ‖u(ν)‖ ≥ ‖b‖ / (largest + ν): no root lies below this.
    size = np.linalg.norm(b, axis=-1, keepdims=True)
    nu = np.maximum(size / radius - values.max(axis=-1, keepdims=True), 0.0)
    for _ in range(SECULAR_STEPS):
        u = b / (values + nu)
        squared = (u**2).sum(axis=-1, keepdims=True)
        norm = np.sqrt(squared)
        outside = norm > radius * (1.0 + 1e-15)
        if not outside.any():
            break
        fall = (u**2 / (values + nu)).sum(axis=-1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            climb = squared / fall * (norm - radius) / radius
        nu = np.where(outside, nu + climb, nu)
    u = b / (values + nu)
    norm = np.linalg.norm(u, axis=-1, keepdims=True)
    u = np.where(norm > radius, u * (radius / np.where(norm > 0, norm, 1.0)), u)
    return np.asarray((basis @ u[..., None])[..., 0])


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


@dataclass(frozen=True, eq=False)
class SaddlePoint:
    """A model on the ball and the worst weights for it, with a certified duality gap.

    Attributes
    ----------
    theta, q, gap : all three.
    groups : whose weights q are, in its order.
    """

    theta: Array
    q: Array
    gap: float
    groups: Groups

    @property
    def weights(self) -> dict[Name, float]:
        """q by group name."""
        return self.groups.named(self.q)


def solve_saddle(problem: BallProblem, *, tol: float = 1e-4, steps: int = 50_000) -> SaddlePoint:
    r"""The problem solved without noise, by the extragradient method (Korpelevich 1976), to a gap of ``tol``.

    Steps are half the inverse of the derivatives' Lipschitz constants, which follow from the data: with H the largest
    curvature of a group's loss on the ball and J the largest norm of the Jacobian, :math:`1 / (2 (H + J))` for θ and
    :math:`1 / (2 (J + \lambda))` for q. Both the last iterate and the average of them are tried for the gap.

    Parameters
    ----------
    problem : the problem.
    tol : the gap to reach.
    steps : after how many steps to give up.
    """
    loss = LOSSES[problem.loss]
    norms = np.linalg.norm(problem.x, axis=1)
    sharpest = loss.curvature(np.zeros_like(problem.y), problem.y)  # both losses bend most at a prediction of zero
    bend = np.add.reduceat(sharpest * norms**2 * problem.row_shares, problem.starts).max()
    steep = loss.steepest(problem.ball_radius * norms, problem.y) * norms * problem.row_shares
    jacobian = float(np.linalg.norm(np.add.reduceat(steep, problem.starts)))
    eta_theta, eta_q = 0.5 / (bend + jacobian), 0.5 / (jacobian + problem.penalty)

    def stepped(theta: Array, q: Array, at_theta: Array, at_q: Array) -> tuple[Array, Array]:
        slope = problem.losses(at_theta) - problem.penalty * (at_q - problem.prior)
        return (
            project_ball(theta - eta_theta * problem.gradient(at_theta, at_q), problem.ball_radius),
            np.asarray(project_simplex(q + eta_q * slope)),
        )

    theta, q = np.zeros(problem.x.shape[1]), problem.prior.copy()
    sums = np.zeros_like(theta), np.zeros_like(q)
    best = math.inf
    for done in range(1, whole(steps, "steps", 1) + 1):
        half = stepped(theta, q, theta, q)
        theta, q = stepped(theta, q, *half)
        sums = sums[0] + half[0], sums[1] + half[1]
        if done % 250 == 0:
            candidates = np.stack([theta, sums[0] / done]), np.stack([q, sums[1] / done])
            gaps = duality_gap(problem, *candidates, tol=tol / 10.0).value
            best = float(gaps.min())
            if best <= tol:
                nearest = int(gaps.argmin())
                return SaddlePoint(candidates[0][nearest], candidates[1][nearest], best, problem.groups)
    raise SettingError(
        f"the duality gap is still {best:.2g} after {steps} steps: allow more steps than that, or a tol above {tol:g}."
    )
