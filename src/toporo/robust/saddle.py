r"""The convex saddle point of group weights and a linear model, solved to a certified gap.

.. math:: \min_\theta \max_{q \in \Delta} \; L(\theta, q) - \lambda D(q\|p),
          \qquad L(\theta, q) = \sum_e q_e \ell_e(\theta) + \rho \|W\|^2,

where W are the rows of :math:`\theta` without the intercept; or over the ball :math:`\|\theta\| \le R` without a ridge.
Maximising over q in closed form (:mod:`toporo.robust.divergences`) leaves a convex function F of :math:`\theta` alone,
which for :math:`\lambda > 0` has a continuous gradient :math:`\nabla_\theta L(\theta, q^*)` and the (generalised)
Hessian

.. math:: \nabla^2_\theta L(\theta, q^*) + \tfrac1\lambda J^\top C J,
          \qquad C = \mathrm{diag}(w) - w w^\top / \textstyle\sum w,

with J the groups' gradients and w the mobility of the best response.

**Certificate.** F at any :math:`\theta` is an upper bound of the saddle value, and
:math:`G(q) = \min_\theta L(\theta, q) - \lambda D(q\|p)` at any q a lower one. The losses bound how far L is above its
least value (:meth:`~toporo.robust.losses.GroupLosses.suboptimality`), which gives G without solving for it. On a ball
no point is below the lowest of the tangent plane: L is at most :math:`\langle g, \theta\rangle + R\|g\|` above its
least, g its gradient. The difference of the two bounds is reported, and decides when to stop.

**Strategies**, tried in this order until the gap is small:

- *Newton's method* with a line search, from the start given or from a model of zeros (Qi & Sun 1993 on semismooth
  Newton methods). On a ball, each step goes towards the minimiser of the second-order model on the ball.
- *Newton's method from the solution without a penalty*, for small penalties. At :math:`\lambda = 0`, where F has kinks,
  that solution comes from the *proximal point method* (Rockafellar 1976): q is the limit of l2 problems whose prior is
  the last q, each solved by Newton's method.

With a radius, :math:`D(q\|p) \le \tau`, the multiplier :math:`\lambda` is found by bisection. The certificate is that
of the constrained problem and holds whatever :math:`\lambda` the search stopped at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg.lapack import dposv

from toporo.robust.divergences import DIVERGENCES, Divergence, best_response
from toporo.robust.losses import GroupLosses, Point
from toporo.robust.weights import constrained_response
from toporo.types import Array

MAX_STEPS = 200
#: Newton steps after which another strategy is tried, and the factor between the proximal point method's penalties.
PATIENCE, SHRINK = 12, 0.1
#: Where the value is next to nothing, the gap is relative to this share of what the model at the start loses.
FLOOR = 1e-12
#: Added to a Hessian's diagonal, relative to it: directions that nothing decides stay where they are.
JITTER = 1e-12
#: The multiplier of a radius is searched for in steps of this many logarithms, and then between them.
STRIDE = 4.0


@dataclass(frozen=True, eq=False)
class Saddle:
    """An approximate saddle point.

    Attributes
    ----------
    point, q : the model, and weights over all groups.
    value, gap : the upper bound, and how far below it the lower bound is.
    penalty : λ (for a radius, the multiplier found).
    steps : number of Newton steps.
    """

    point: Point
    q: Array
    value: float
    gap: float
    penalty: float
    steps: int


@dataclass(frozen=True)
class _Inner:
    r"""Inner problem :math:`\max_q \langle q, \ell\rangle - \lambda D(q\|c)`, with no q above ``most`` (l2 only)."""

    divergence: type[Divergence]
    centre: Array
    penalty: float
    most: Array | None = None

    def respond(self, losses: Array) -> Array:
        """Return the best q for each row of losses."""
        if math.isinf(self.penalty):
            return self.centre + 0.0 * losses
        if self.most is not None:
            return np.stack([capped_response(row, self.centre, self.penalty, self.most) for row in losses])
        return np.asarray(best_response(losses, self.centre, self.penalty, self.divergence))

    def cost(self, q: Array) -> Any:
        """Return the penalty's part."""
        pinned = math.isinf(self.penalty) or self.penalty == 0
        return 0.0 if pinned else self.penalty * self.divergence.value(q, self.centre)

    def bend(self, jacobian: Array, q: Array) -> Array:
        r"""Return U with :math:`U^\top U = \frac1\lambda J^\top C J`; without rows if q does not move."""
        mobility = self.divergence.mobility(q, self.centre)
        if self.most is not None:
            mobility = np.where(q < self.most, mobility, 0.0)
        moving = np.flatnonzero(mobility > 0)
        if math.isinf(self.penalty) or len(moving) < 2:
            return np.empty((0, jacobian.shape[1]))
        root = np.sqrt(mobility[moving])
        scaled = root[:, None] * jacobian[moving]
        unit = root / np.linalg.norm(root)
        return np.asarray((scaled - unit[:, None] * (unit @ scaled)) / math.sqrt(self.penalty))


class SaddleProblem:
    """Losses, a ridge or a ball, a prior and a divergence; solved for any penalty or radius from any starting point.

    Parameters
    ----------
    losses, ridge : of the rows, and ρ.
    prior, divergence : p and D. Groups without prior never get weight if D is infinite there.
    tol : relative gap to reach.
    most : largest weight of each group, not below the prior's; for l2 and a penalty.
    ball_radius : R, with no ridge.
    start : a model to start from (D × k); zeros unless given.
    """

    def __init__(
        self,
        losses: GroupLosses,
        ridge: float,
        prior: Array,
        divergence: type[Divergence],
        *,
        tol: float = 1e-6,
        most: Array | None = None,
        ball_radius: float | None = None,
        start: Array | None = None,
    ) -> None:
        self.losses, self.divergence, self.tol, self.most = losses, divergence, tol, most
        self.ball_radius = ball_radius
        self.support = np.arange(len(prior)) if divergence.bounded else np.flatnonzero(prior > 0)
        self.prior = prior[self.support]
        #: Second derivatives of the ridge.
        self.ridge = np.full(losses.shape, 2.0 * ridge)
        if losses.intercept:
            self.ridge[-1] = 0.0
        point = losses.at(np.zeros(losses.shape) if start is None else start)
        self.start = Saddle(point, self.over_all(self.prior), math.inf, math.inf, math.inf, 0)
        self.floor = max(FLOOR * float(np.max(point.losses)), float(np.finfo(float).tiny))

    # ------------------------------------------------------------ strategies

    def penalised(self, penalty: float, start: Saddle | None = None) -> Saddle:
        """Solve for a penalty from zero to infinity, from the saddle point of another penalty if there is one."""
        start = start or self.start
        if math.isinf(penalty) or not start.point.theta.any():
            start = self._newton(start.point, self._inner(math.inf), MAX_STEPS)
        if math.isinf(penalty):
            return start
        if penalty == 0:
            return self._proximal(start)
        inner = self._inner(penalty)
        first = self._newton(start.point, inner, PATIENCE)
        if self.certified(first):
            return first
        free = self._proximal(start)
        second = self._newton(free.point, inner, MAX_STEPS)
        best = min(first, self._judged(free.point, free.q[self.support], inner), second, key=lambda saddle: saddle.gap)
        return replace(best, steps=first.steps + free.steps + second.steps)

    def _proximal(self, start: Saddle) -> Saddle:
        """Solve without a penalty: a vanishing l2 penalty keeps q near the last q."""
        wanted = replace(self._inner(0.0), divergence=DIVERGENCES["l2"])
        near, centre = max(self._spread(start.point), self.floor), self.prior
        if self.floor < start.penalty < near:
            near, centre = start.penalty, start.q[self.support]
        point, steps, best = start.point, 0, replace(start, gap=math.inf)
        for _ in range(MAX_STEPS):
            found = self._newton(point, replace(wanted, centre=centre, penalty=near), 4 * PATIENCE)
            point, centre, steps = found.point, found.q[self.support], steps + found.steps
            best = min(best, self._judged(point, centre, wanted), key=lambda saddle: saddle.gap)
            if self.certified(best):
                break
            # Nearer only from where Newton's method arrived; else the penalty was too small for it.
            near = max(near * SHRINK, self.floor) if self.certified(found) else near / SHRINK
        return replace(best, steps=steps)

    def constrained(self, radius: float) -> Saddle:
        """Solve for D(q‖p) at most a radius, by a search for the multiplier."""
        found = self.penalised(math.inf)
        if radius == 0:
            return found
        log = math.log(max(self._spread(found.point), self.floor))
        low, high, bottom = -math.inf, math.inf, log + math.log(FLOOR)
        best, steps = replace(found, gap=math.inf), 0
        for _ in range(MAX_STEPS):
            found = self.penalised(math.exp(log) if log > bottom else 0.0, found)
            best, steps = min(best, self._within(found, radius), key=lambda saddle: saddle.gap), steps + found.steps
            if self.certified(best) or log <= bottom:
                break
            if float(self.divergence.value(found.q[self.support], self.prior)) > radius:
                low, log = log, log + STRIDE
            else:
                high, log = log, log - STRIDE
            if math.isfinite(high - low):
                log = 0.5 * (low + high)
        return replace(best, steps=steps)

    def _within(self, found: Saddle, radius: float) -> Saddle:
        """Certify a point of the constrained problem, by its q, or by the worst q in the radius if that is outside."""
        losses, q = found.point.losses[self.support], found.q[self.support]
        worst = constrained_response(losses, self.prior, radius, self.divergence)
        if float(self.divergence.value(q, self.prior)) > radius:
            q = worst
        value = float(worst @ losses) + self._ridge_of(found.point.theta)
        gap = max(float((worst - q) @ losses), 0.0) + self._suboptimality(found.point, q)
        return replace(found, q=self.over_all(q), value=value, gap=gap)

    def extrapolated(self, penalty: float, last: Saddle, before: Saddle) -> Saddle:
        """Start a penalty from the best model along the line through the last two of a path."""
        if penalty == 0 or math.isinf(penalty):
            return last
        step = last.point.theta - before.point.theta
        points = [self.losses.at(last.point.theta + t * step) for t in np.linspace(0.0, 1.5, 7)]
        _, reached = self._worst(points, self._inner(penalty))
        return replace(last, point=points[int(np.argmin(reached))])

    # ------------------------------------------------------------ Newton's method at one penalty

    def _newton(self, point: Point, inner: _Inner, patience: int) -> Saddle:
        """Minimise F from a point, until the gap is small, nothing moves, or patience ends."""
        (q,), (value,) = self._worst([point], inner)
        steps, gap = 0, math.inf
        while steps < patience:
            gradient = self._gradient(point, q)
            gap = self._suboptimality(point, q) if self._promising(gradient, value) else math.inf
            if gap <= self._allowed(value):
                break
            found = self._line_search(point, q, value, gradient, inner)
            if found is None:
                break
            point, q, value = found
            steps, gap = steps + 1, math.inf
        if math.isinf(gap):
            gap = self._suboptimality(point, q)
        return Saddle(point, self.over_all(q), float(value), gap, inner.penalty, steps)

    def _line_search(
        self, point: Point, q: Array, value: float, gradient: Array, inner: _Inner
    ) -> tuple[Point, Array, float] | None:
        """Go along Newton's step until F falls enough (Armijo): the point, q and F there; None if F does not fall.

        Where losses cost next to nothing, several distances are tried at once and the best is taken. The whole step is
        also taken if F stays where it is but for rounding and its gradient halves, as a proof may need.
        """
        step = self._direction(point, q, gradient, inner.bend(point.jacobian[self.support], q))
        decrease, at_once = -float(gradient @ step), 6 if self.losses.cheap else 1
        for first in range(0, 36, at_once):
            distances = 0.5 ** np.arange(first, first + at_once, dtype=np.float64)
            ends = [self.losses.at(point.theta + t * step.reshape(self.losses.shape)) for t in distances]
            worst, reached = self._worst(ends, inner)
            best = int(np.argmin(reached))
            if reached[best] < value - 1e-4 * distances[best] * decrease:
                return ends[best], worst[best], reached[best]
            settled = first == 0 and reached[0] <= value + 1e-13 * abs(value)
            if settled and np.linalg.norm(self._gradient(ends[0], worst[0])) <= 0.5 * np.linalg.norm(gradient):
                return ends[0], worst[0], reached[0]
        return None

    def _direction(self, point: Point, q: Array, gradient: Array, bend: Array) -> Array:
        r"""Return Newton's direction, :math:`-(H + U^\top U)^{-1} g`, or that of the model's minimum on the ball."""
        hessian = self.losses.hessian(point.theta, self.over_all(q))
        diagonal = hessian.diagonal()
        largest = max(float(diagonal.max()), self.floor)
        jitter = JITTER * np.where(diagonal > 0, diagonal, largest)
        hessian = hessian + np.diag(self.ridge.reshape(-1) + jitter) + bend.T @ bend
        if self.ball_radius is not None:
            here = point.theta.reshape(-1)
            return minimum_on_ball(hessian, hessian @ here - gradient, self.ball_radius) - here
        _, step, failed = dposv(hessian, -gradient)
        return np.asarray(np.linalg.lstsq(hessian, -gradient, rcond=None)[0] if failed else step)

    # ------------------------------------------------------------ pieces

    def _gradient(self, point: Point, q: Array) -> Array:
        return np.asarray(q @ point.jacobian[self.support] + (self.ridge * point.theta).reshape(-1))

    def _inner(self, penalty: float) -> _Inner:
        return _Inner(self.divergence, self.prior, penalty, self.most)

    def _worst(self, points: Sequence[Point], inner: _Inner) -> tuple[Array, Array]:
        """Return the best responses at points, and F there."""
        losses = np.stack([point.losses[self.support] for point in points])
        q = inner.respond(losses)
        ridges = np.array([self._ridge_of(point.theta) for point in points])
        return q, (q * losses).sum(axis=1) - inner.cost(q) + ridges

    def _judged(self, point: Point, q: Array, inner: _Inner) -> Saddle:
        """Certify a point and any weights."""
        _, (value,) = self._worst([point], inner)
        reached = float(q @ point.losses[self.support] - inner.cost(q)) + self._ridge_of(point.theta)
        gap = max(float(value) - reached, 0.0) + self._suboptimality(point, q)
        return Saddle(point, self.over_all(q), float(value), gap, inner.penalty, 0)

    def _promising(self, gradient: Array, value: float) -> bool:
        """Tell whether the gap is worth computing, which for logistic losses takes several passes over the rows."""
        if self.losses.cheap or self.ball_radius is not None:
            return True
        ridge = self.ridge.reshape(-1)
        held = ridge > 0
        return float(np.sum(gradient[held] ** 2 / ridge[held])) <= 2.0 * self._allowed(value)

    def _suboptimality(self, point: Point, q: Array) -> float:
        if self.ball_radius is not None:
            gradient = q @ point.jacobian[self.support]
            return max(float(gradient @ point.theta.ravel()) + self.ball_radius * float(np.linalg.norm(gradient)), 0.0)
        return max(self.losses.suboptimality(point, self.over_all(q), self.ridge), 0.0)

    def _ridge_of(self, theta: Array) -> float:
        return 0.5 * float(np.sum(self.ridge * theta**2))

    def _allowed(self, value: float) -> float:
        return max(self.tol * abs(value), self.floor)

    def certified(self, saddle: Saddle) -> bool:
        """Tell whether the gap is within the tolerance."""
        return saddle.gap <= self._allowed(saddle.value)

    def _spread(self, point: Point) -> float:
        return float(np.ptp(point.losses[self.support]))

    def over_all(self, q: Array) -> Array:
        """Return weights over all groups."""
        weights = np.zeros(len(self.losses.groups))
        weights[self.support] = q
        return weights


def capped_response(losses: Array, prior: Array, penalty: float, most: Array) -> Array:
    r""":math:`\arg\max_q \langle q, \ell\rangle - \frac\lambda2 \|q - p\|^2` with no q above its cap.

    Without a penalty the worst groups are filled up to their caps, one after the other. With one,
    :math:`q = \min(\max(v - \tau, 0), c)` with :math:`v = p + \ell / \lambda`. Its sum is piecewise linear in
    :math:`\tau`, with a break where an entry leaves 0 or reaches its cap.
    """
    below = losses - losses.max()
    if penalty == 0:
        order = np.argsort(-below, kind="stable")
        q: Array = np.empty_like(below)
        q[order] = np.diff(np.minimum(np.cumsum(most[order]), 1.0), prepend=0.0)
        return q
    values = prior + below / penalty
    breaks = np.concatenate([values, values - most])
    order = np.argsort(-breaks)
    breaks, moving = breaks[order], np.cumsum(np.repeat([1.0, -1.0], len(values))[order])
    sums = np.append(0.0, np.cumsum(moving[:-1] * -np.diff(breaks)))
    q = np.clip(values - np.interp(1.0, sums, breaks), 0.0, most)
    inside = (q > 0) & (q < most)
    q[inside] += (1.0 - q.sum()) / max(inside.sum(), 1)  # rounding
    return q


def minimum_on_ball(matrix: Array, vector: Array, radius: float) -> Array:
    r""":math:`\arg\min_{\|u\| \le R} \tfrac12 u^\top A u - b^\top u` for positive semidefinite A.

    In the eigenbasis of A, :math:`u = (A + \nu)^{-1} b` with :math:`\nu = 0` if that is inside, else with the one ν
    that puts it on the sphere: the root of :math:`1/\|u(\nu)\| - 1/R`, to which Newton's method climbs from below
    (Moré & Sorensen 1983).
    """
    values, basis = np.linalg.eigh(matrix)
    # Directions without curvature carry no slope but rounding; a hair of curvature keeps them at zero.
    values = np.maximum(values, 1e-15 * values[-1] + 1e-300)
    b = basis.T @ vector
    nu = max(float(np.linalg.norm(b)) / radius - values[-1], 0.0)  # no root lies below this
    for _ in range(60):
        u = b / (values + nu)
        norm = float(np.linalg.norm(u))
        if norm <= radius * (1.0 + 1e-15):
            break
        nu += norm**2 / float(np.sum(u**2 / (values + nu))) * (norm - radius) / radius
    u = b / (values + nu)
    return np.asarray(basis @ u * min(1.0, radius / max(float(np.linalg.norm(u)), 1e-300)))
