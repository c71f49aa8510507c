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
- *Proximal point method* (Rockafellar 1976) for l2, and at :math:`\lambda = 0`, where F has kinks: q is the limit of
  problems whose prior is the last q, each solved by Newton's method.
- *Newton's method from the solution without a penalty* for KL and chi-square, which have trouble with small ones.

With a radius, :math:`D(q\|p) \le \tau`, the multiplier :math:`\lambda` is found by a secant search. The certificate is
that of the constrained problem and holds whatever :math:`\lambda` the search stopped at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg.lapack import dposv

from toporo.robust.divergences import DIVERGENCES, Divergence, best_response
from toporo.robust.losses import GroupLosses, Point, SearchLine
from toporo.robust.simplex import project_capped
from toporo.robust.weights import constrained_response
from toporo.types import Array

MAX_STEPS = 200
#: Newton steps after which another strategy is tried, and the factor between the proximal point method's penalties.
PATIENCE, SHRINK = 12, 0.1
#: Where the value is next to nothing, the gap is relative to this share of what a model of zeros loses.
FLOOR = 1e-12
#: Added to a Hessian's diagonal, relative to it: directions that nothing decides stay where they are.
JITTER = 1e-12
#: A penalty this many times the losses' spread leaves q at the prior, as far as numbers can tell.
HUGE = 1e14


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
        """Return the best q."""
        if math.isinf(self.penalty):
            return self.centre + 0.0 * losses
        if self.most is not None:
            return capped_response(losses, self.centre, self.penalty, self.most)
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
    ) -> None:
        self.losses, self.divergence, self.tol, self.most = losses, divergence, tol, most
        self.ball_radius = ball_radius
        self.support = np.arange(len(prior)) if divergence.bounded else np.flatnonzero(prior > 0)
        self.prior = prior[self.support]
        #: Second derivatives of the ridge.
        self.ridge = np.full(losses.shape, 2.0 * ridge)
        if losses.intercept:
            self.ridge[-1] = 0.0
        self.floor = max(FLOOR * float(np.max(losses.at(np.zeros(losses.shape)).losses)), float(np.finfo(float).tiny))

    # ------------------------------------------------------------ strategies

    def penalised(self, penalty: float, start: Saddle | None = None) -> Saddle:
        """Solve for a penalty from zero to infinity, from a model or from the saddle point of another penalty."""
        start = start or self.from_model(np.zeros(self.losses.shape))
        if math.isinf(penalty) or not start.point.theta.any():
            start = self._newton(start.point, self._inner(math.inf))
        if math.isinf(penalty):
            return start
        if penalty > HUGE * self._spread(start.point):
            pinned = self._newton(start.point, self._inner(math.inf))
            if penalty > HUGE * self._spread(pinned.point):
                return replace(pinned, penalty=penalty)
        if penalty == 0:
            return self._proximal(penalty, start)
        first = self._newton(start.point, self._inner(penalty), PATIENCE)
        if self.certified(first):
            return first
        second = (self._proximal if self.divergence.bounded else self._from_free)(penalty, start)
        return replace(min(first, second, key=lambda saddle: saddle.gap), steps=first.steps + second.steps)

    def _from_free(self, penalty: float, start: Saddle) -> Saddle:
        """Start from the solution without a penalty, or return that."""
        free, inner = self._proximal(0.0, start), self._inner(penalty)
        onwards = self._newton(free.point, inner)
        best = min(self._judged(free.point, free.q[self.support], inner), onwards, key=lambda saddle: saddle.gap)
        return replace(best, steps=free.steps + onwards.steps)

    def _proximal(self, penalty: float, start: Saddle) -> Saddle:
        """Add a vanishing second penalty that keeps q near the last q; both are l2 and make one of their sum."""
        wanted = replace(self._inner(penalty), divergence=DIVERGENCES["l2"])
        near, centre = max(self._spread(start.point), self.floor), self.prior
        if self.floor < start.penalty < near:
            near, centre = start.penalty, start.q[self.support]
        point, steps, best = start.point, 0, replace(start, value=math.inf, gap=math.inf, penalty=penalty)
        for _ in range(MAX_STEPS):
            mixed = (penalty * self.prior + near * centre) / (penalty + near)
            inner = self._newton(point, replace(wanted, centre=mixed, penalty=penalty + near), 4 * PATIENCE)
            point, centre, steps = inner.point, inner.q[self.support], steps + inner.steps
            best = min(best, self._judged(point, centre, wanted), key=lambda saddle: saddle.gap)
            if self.certified(best):
                break
            # Nearer only from where Newton's method arrived; else the second penalty was too small for it.
            near = max(near * SHRINK, self.floor) if self.certified(inner) else near / SHRINK
        return replace(best, steps=steps)

    def constrained(self, radius: float, start: Saddle | None = None) -> Saddle:
        """Solve for D(q‖p) at most a radius, by a search for the multiplier."""
        pinned = self.penalised(math.inf, start)
        if radius == 0:
            return pinned
        widest = max(self._spread(pinned.point), self.floor)
        found, steps, best = pinned, 0, replace(pinned, value=math.inf, gap=math.inf)
        penalty, low, high, before = widest, 0.0, math.inf, None
        for tries in range(MAX_STEPS):
            found = self.penalised(penalty, found)
            q, steps = found.q[self.support], steps + found.steps
            best = min([best, *self._within(found.point, q, radius, penalty)], key=lambda saddle: saddle.gap)
            if self.certified(best) or 0 < high <= low * (1.0 + 1e-14):
                break
            # D falls with the penalty, at most like its inverse square: a secant step in logarithms, between bounds.
            ratio = float(self.divergence.value(q, self.prior)) / radius
            low, high = (penalty, high) if ratio > 1 else (low, penalty)
            here, slope = np.log([penalty, max(ratio, 1e-300)]), -2.0
            if before is not None and here[0] != before[0]:
                slope = (here[1] - before[1]) / (here[0] - before[0])
            guess, before = math.exp(np.clip(here[0] - here[1] / min(slope, -0.1), -700.0, 700.0)), here
            if low == 0.0:
                guess = min(max(guess, 1e-3 * penalty), (0.5 if tries < 3 else 0.01) * penalty)
            elif math.isinf(high):
                guess = max(guess, 1.01 * penalty)
            elif not low < guess < high:
                guess = math.sqrt(low * high)
            penalty = guess
            if penalty < FLOOR * widest:  # even without a penalty q stays inside
                free = self.penalised(0.0, found)
                steps += free.steps
                if float(self.divergence.value(free.q[self.support], self.prior)) <= radius:
                    return replace(free, steps=steps)
                best = min([best, *self._within(free.point, q, radius, 0.0)], key=lambda saddle: saddle.gap)
                break
        return replace(best, steps=steps)

    def _within(self, point: Point, q: Array, radius: float, penalty: float) -> list[Saddle]:
        """Certify a point of the constrained problem, by its best response and by q drawn into the radius."""
        losses = point.losses[self.support]
        worst = constrained_response(losses, self.prior, radius, self.divergence)
        value = float(worst @ losses) + self._ridge_of(point.theta)
        distance = float(self.divergence.value(q, self.prior))
        inside = q
        if distance > radius:  # D is convex and zero at the prior
            inside = self.prior + max(math.sqrt(radius / distance), radius / distance) * (q - self.prior)
            if float(self.divergence.value(inside, self.prior)) > radius:
                inside = self.prior + (radius / distance) * (q - self.prior)
        gaps = [max(float((worst - q) @ losses), 0.0) + self._suboptimality(point, q) for q in (worst, inside)]
        return [
            Saddle(point, self.over_all(q), value, gap, penalty, 0)
            for q, gap in zip((worst, inside), gaps, strict=True)
        ]

    # ------------------------------------------------------------ Newton's method at one penalty

    def _newton(self, point: Point, inner: _Inner, patience: int = MAX_STEPS) -> Saddle:
        """Minimise F from a point, until the gap is small, nothing moves, or patience ends."""
        q, value = self._worst(point, inner)
        steps = 0
        while True:
            jacobian = point.jacobian[self.support]
            gradient = self._gradient(point, q)
            if self._promising(gradient, value) or steps >= patience:
                gap = self._suboptimality(point, q)
                if gap <= self._allowed(value) or steps >= patience:
                    break
            step = self._direction(point, q, gradient, inner.bend(jacobian, q)).reshape(self.losses.shape)
            found = self._line_search(point, step, inner, value, gradient)
            if found is None:
                gap = self._suboptimality(point, q)
                break
            point, q, value = found
            steps += 1
        return Saddle(point, self.over_all(q), value, gap, inner.penalty, steps)

    def _line_search(
        self, point: Point, step: Array, inner: _Inner, value: float, gradient: Array
    ) -> tuple[Point, Array, float] | None:
        """Go along a step until F falls enough (Armijo): the point, q and F there; None if F does not fall.

        Where losses along the line cost next to nothing, several distances are tried at once and the best is taken.
        The whole step is also taken if F stays where it is but for rounding and its gradient halves, as a proof may
        need.
        """
        line, decrease = point.along(step), -float(gradient @ step.reshape(-1))
        at_once = 6 if self.losses.cheap else 1
        for first in range(0, 36, at_once):
            ts: Array = 0.5 ** np.arange(first, first + at_once, dtype=np.float64)
            best, q, reached = self._best_along(line, ts, point.theta, step, inner)
            if reached < value - 1e-4 * best * decrease:
                return line.point(best), q, reached
        end = line.point(1.0)
        q, reached = self._worst(end, inner)
        settled = reached <= value + 1e-13 * abs(value)
        if settled and np.linalg.norm(self._gradient(end, q)) <= 0.5 * np.linalg.norm(gradient):
            return end, q, reached
        return None

    def _best_along(
        self, line: SearchLine, ts: Array, theta: Array, step: Array, inner: _Inner
    ) -> tuple[float, Array, float]:
        """Return the distance at which F is least, with q and F there."""
        losses = line.losses(ts)[:, self.support]
        q = inner.respond(losses)
        slope, bend = float(np.sum(self.ridge * theta * step)), float(np.sum(self.ridge * step**2))
        ridge = self._ridge_of(theta) + ts * slope + 0.5 * ts**2 * bend
        reached = (q * losses).sum(axis=1) - inner.cost(q) + ridge
        best = int(np.argmin(reached))
        return float(ts[best]), q[best], float(reached[best])

    def extrapolated(self, penalty: float, last: Saddle, before: Saddle) -> Saddle:
        """Start a penalty from the best model along the line through the last two of a path."""
        if penalty == 0 or math.isinf(penalty):
            return last
        step, theta = last.point.theta - before.point.theta, last.point.theta
        line = last.point.along(step)
        t, _, _ = self._best_along(line, np.linspace(0.0, 1.5, 7), theta, step, self._inner(penalty))
        return replace(last, point=line.point(t)) if t else last

    def _gradient(self, point: Point, q: Array) -> Array:
        return np.asarray(q @ point.jacobian[self.support] + (self.ridge * point.theta).reshape(-1))

    def _direction(self, point: Point, q: Array, gradient: Array, bend: Array) -> Array:
        r"""Return Newton's direction, :math:`-(H + U^\top U)^{-1} g`, or that of the model's minimum on the ball."""
        size, outputs = self.losses.shape
        hessian = point.hessian(self.over_all(q))
        alike = len(hessian) < size * outputs or outputs == 1  # one matrix for every output
        ridge = self.ridge[:, 0] if alike else self.ridge.reshape(-1)
        diagonal = hessian.diagonal()
        largest = max(float(diagonal.max()), self.floor)
        hessian = hessian + np.diag(ridge + JITTER * np.where(diagonal > 0, diagonal, largest))
        if self.ball_radius is not None:
            whole, here = np.kron(hessian, np.eye(size * outputs // len(hessian))) + bend.T @ bend, point.theta.ravel()
            return minimum_on_ball(whole, whole @ here - gradient, self.ball_radius) - here
        if len(hessian) == size * outputs:
            return -_solve(hessian + bend.T @ bend, gradient)
        if size * outputs <= len(bend):
            return -_solve(np.kron(hessian, np.eye(outputs)) + bend.T @ bend, gradient)
        # Fewer moving groups than parameters: solve in the space of groups (Woodbury).
        columns = np.concatenate([gradient[None], bend]).reshape(-1, size, outputs).transpose(1, 0, 2)
        solved = _solve(hessian, columns.reshape(size, -1)).reshape(size, -1, outputs).transpose(1, 0, 2)
        flat = solved.reshape(len(bend) + 1, -1)
        if not len(bend):
            return np.asarray(-flat[0])
        inner = np.eye(len(bend)) + bend @ flat[1:].T
        step: Array = _solve(inner, bend @ flat[0]) @ flat[1:] - flat[0]
        return step

    # ------------------------------------------------------------ pieces

    def _inner(self, penalty: float) -> _Inner:
        return _Inner(self.divergence, self.prior, penalty, self.most)

    def _worst(self, point: Point, inner: _Inner) -> tuple[Array, float]:
        """Return the best response, and F."""
        losses = point.losses[self.support]
        q = inner.respond(losses)
        return q, float(q @ losses - inner.cost(q)) + self._ridge_of(point.theta)

    def _judged(self, point: Point, q: Array, inner: _Inner) -> Saddle:
        """Certify a point and any weights."""
        losses = point.losses[self.support]
        worst = inner.respond(losses)
        highest = float(worst @ losses - inner.cost(worst))
        gap = max(highest - float(q @ losses - inner.cost(q)), 0.0) + self._suboptimality(point, q)
        return Saddle(point, self.over_all(q), highest + self._ridge_of(point.theta), gap, inner.penalty, 0)

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

    def from_model(self, theta: Array) -> Saddle:
        """Make a starting point of a model (D × k)."""
        return Saddle(self.losses.at(theta), self.over_all(self.prior), math.inf, math.inf, math.inf, 0)

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

    Without a penalty the worst groups are filled up to their caps, one after the other.
    """
    below = losses - losses.max(axis=-1, keepdims=True)
    if penalty > 0:
        return np.asarray(project_capped(prior + below / penalty, most))
    order = np.argsort(-below, axis=-1, kind="stable")
    filled = np.minimum(np.cumsum(most[order], axis=-1), 1.0)
    q: Array = np.empty_like(below)
    np.put_along_axis(q, order, np.diff(filled, axis=-1, prepend=0.0), axis=-1)
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


def _solve(matrix: Array, right: Array) -> Array:
    """Solve with a positive definite matrix."""
    _, solution, failed = dposv(matrix, right)
    if failed:
        solution = np.linalg.lstsq(matrix, right, rcond=None)[0]
    return np.asarray(solution)
