r"""The exact duality gap of a :class:`~toporo.theory.problem.SaddleProblem`, and its solution without noise."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from toporo.checks import whole
from toporo.errors import DataError, SettingError
from toporo.groups import Groups
from toporo.robust import best_response, project_simplex
from toporo.theory.problem import LOSSES, SaddleProblem, project_ball
from toporo.types import Array

#: Newton steps on the ball, and halvings of one, before giving up; a handful is the rule.
NEWTON_STEPS, HALVINGS = 100, 40
#: Iterations of the secular equation, which Newton's method solves monotonically and quadratically.
SECULAR_STEPS = 60


@dataclass(frozen=True, eq=False)
class BallMinimum:
    """A minimiser of the q-weighted loss on the ball, the value there, and what no θ of the ball gets below."""

    theta: Array
    value: Array
    lower: Array


@dataclass(frozen=True, eq=False)
class DualityGap:
    """The duality gap at (θ, q): ``value`` is an upper bound of it, at most ``accuracy`` above the true one."""

    value: Array
    accuracy: Array


def duality_gap(problem: SaddleProblem, theta: Array, q: Array, *, tol: float = 1e-9) -> DualityGap:
    r""":math:`\max_{q'} R(\theta, q') - \min_{\|\theta'\| \le R} R(\theta', q)` at θ in the ball, q in the simplex.

    The maximum has a closed form; the minimum is :func:`minimum_on_ball`'s certified lower bound. Both arguments may
    have a leading axis.
    """
    theta, q = _checked_points(problem, theta, q)
    worst = best_response(problem.losses(theta), problem.prior, problem.penalty)
    highest = problem.value(theta, worst)
    least = minimum_on_ball(problem, q, tol=tol)
    return DualityGap(
        value=np.asarray(highest - (least.lower - problem.penalty * problem.divergence(q))),
        accuracy=np.asarray(least.value - least.lower),
    )


def minimum_on_ball(problem: SaddleProblem, q: Array, *, tol: float = 1e-9) -> BallMinimum:
    r""":math:`\min_{\|\theta\| \le R} \sum_e q_e \ell_e(\theta)`, with a certificate.

    Newton's method on the ball: the second-order model is minimised on it exactly (:func:`_model_on_ball`), and the
    step towards that minimiser halved until the value falls. For the squared loss the model is the loss itself and one
    step does. Convexity certifies: no point of the ball is lower than the tangent plane's lowest,

    .. math:: f(\theta) - \langle \nabla f(\theta), \theta\rangle - R \|\nabla f(\theta)\| ,

    and the iteration ends where f is within ``tol`` of that.
    """
    if not 0 < tol < math.inf:
        raise SettingError(f"tol is {tol!r}: expected a positive number.")
    single, weights = np.ndim(q) == 1, np.atleast_2d(np.asarray(q, dtype=np.float64))
    theta = np.zeros((len(weights), problem.x.shape[1]))
    value, slope = _weighted(problem, theta, weights)
    lower = np.full(len(weights), -np.inf)
    for _ in range(NEWTON_STEPS):
        plane = value - (slope * theta).sum(axis=1) - problem.radius * np.linalg.norm(slope, axis=1)
        lower = np.maximum(lower, plane)
        open_ = np.flatnonzero(value - lower > tol)
        if not len(open_):
            break
        here, of = theta[open_], weights[open_]
        bend = problem.hessian(here, of)
        target = _model_on_ball(bend, (bend @ here[..., None])[..., 0] - slope[open_], problem.radius)
        step = _halved(problem, here, target - here, value[open_], of)
        theta[open_] += step[:, None] * (target - here)
        moved = _weighted(problem, theta[open_], of)
        value[open_], slope[open_] = moved
        if not step.any():  # rounding: nothing falls any more
            break
    found = (theta, value, lower)
    return BallMinimum(*(part[0] if single else part for part in found))


def _weighted(problem: SaddleProblem, theta: Array, q: Array) -> tuple[Array, Array]:
    """The q-weighted loss and its gradient."""
    return np.asarray((q * problem.losses(theta)).sum(axis=-1)), problem.gradient(theta, q)


def _halved(problem: SaddleProblem, theta: Array, move: Array, value: Array, q: Array) -> Array:
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


def _checked_points(problem: SaddleProblem, theta: Array, q: Array) -> tuple[Array, Array]:
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
    if norm > problem.radius * (1.0 + 1e-9):
        raise DataError(f"θ has norm {norm:g}, outside the ball of radius {problem.radius:g}: project it first.")
    off = float(np.abs(q.sum(axis=-1) - 1.0).max())
    if off > 1e-6 or float(q.min()) < -1e-9:
        raise DataError(f"q is no distribution: it sums to 1 within {off:g}, its smallest weight is {q.min():g}.")
    return theta, q


@dataclass(frozen=True, eq=False)
class SaddlePoint:
    """A model on the ball and the worst weights for it, with a certified duality gap."""

    theta: Array
    q: Array
    gap: float
    groups: Groups

    @property
    def weights(self) -> dict[Hashable, float]:
        """q by group name."""
        return self.groups.named(self.q)


def solve_saddle(problem: SaddleProblem, *, tol: float = 1e-4, steps: int = 50_000) -> SaddlePoint:
    r"""The problem solved without noise, by the extragradient method (Korpelevich 1976), to a gap of ``tol``.

    Steps are half the inverse of the derivatives' Lipschitz constants, which follow from the data: with H the largest
    curvature of a group's loss on the ball and J the largest norm of the Jacobian, :math:`1 / (2 (H + J))` for θ and
    :math:`1 / (2 (J + \lambda))` for q. Both the last iterate and the average of them are tried for the gap.
    """
    loss = LOSSES[problem.loss]
    norms = np.linalg.norm(problem.x, axis=1)
    sharpest = loss.curvature(np.zeros_like(problem.y), problem.y)  # both losses bend most at a prediction of zero
    bend = np.add.reduceat(sharpest * norms**2 * problem.row_shares, problem.starts).max()
    steep = loss.steepest(problem.radius * norms, problem.y) * norms * problem.row_shares
    jacobian = float(np.linalg.norm(np.add.reduceat(steep, problem.starts)))
    eta_theta, eta_q = 0.5 / (bend + jacobian), 0.5 / (jacobian + problem.penalty)

    def stepped(theta: Array, q: Array, at_theta: Array, at_q: Array) -> tuple[Array, Array]:
        slope = problem.losses(at_theta) - problem.penalty * (at_q - problem.prior)
        return (
            project_ball(theta - eta_theta * problem.gradient(at_theta, at_q), problem.radius),
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
