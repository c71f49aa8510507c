r"""The convex saddle point of group weights and a linear model, solved to a certified gap.

.. math:: \min_\theta \max_{q \in \Delta} \; L(\theta, q) - \lambda D(q\|p),
          \qquad L(\theta, q) = \sum_e q_e \ell_e(\theta) + \rho \|W\|^2,

where W are the rows of :math:`\theta` without the intercept. Maximising over q in closed form
(:mod:`toporo.robust.divergences`) leaves a convex function F of :math:`\theta` alone, which for :math:`\lambda > 0` has
a continuous gradient :math:`\nabla_\theta L(\theta, q^*)` and the (generalised) Hessian

.. math:: \nabla^2_\theta L(\theta, q^*) + \tfrac1\lambda J^\top C J,
          \qquad C = \mathrm{diag}(w) - w w^\top / \textstyle\sum w,

with J the groups' gradients and w the mobility of the best response. Newton's method with a line search minimises it
in a handful of steps (Qi & Sun 1993 on semismooth Newton methods).

**Certificate.** F at any :math:`\theta` is an upper bound of the saddle value, and
:math:`G(q) = \min_\theta L(\theta, q) - \lambda D(q\|p)` at any q a lower one. The losses say how far above its least
value L is (:meth:`~toporo.robust.group_losses.GroupLosses.excess`), which gives G without solving for it. The
difference of the two is what is reported, and what decides when to stop.

**No penalty.** At :math:`\lambda = 0` F has kinks. There q is found as the limit of problems whose prior is the last q
(the proximal point method; Rockafellar 1976), each solved as above; the certificate is that of the plain problem.

**A radius.** With :math:`D(q\|p) \le \tau` the multiplier :math:`\lambda` is found by a secant search; the certificate
is that of the constrained problem and holds whatever :math:`\lambda` the search stopped at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg.lapack import dposv

from toporo.robust.divergences import DIVERGENCES, Divergence, best_response
from toporo.robust.group_losses import Curve, GroupLosses, Place
from toporo.robust.simplex import project_capped
from toporo.robust.weights import constrained_response
from toporo.types import Array

MAX_STEPS = 200
#: Newton steps after which a penalty is approached by way of larger ones, each this many times smaller.
PATIENCE, SHRINK = 12, 0.1
#: Where the value is next to nothing, the gap is relative to this share of what a model of zeros loses.
FLOOR = 1e-12
#: Added to a Hessian's diagonal, relative to it: directions that nothing decides stay where they are.
JITTER = 1e-12
#: A penalty this many times the losses' spread leaves q where the prior is, as far as numbers can tell.
HUGE = 1e14


@dataclass(frozen=True, eq=False)
class Saddle:
    """An approximate saddle point.

    Attributes
    ----------
    place, q : the model, and weights over all groups.
    value, gap : the upper bound, and how far below it the lower bound is.
    penalty : λ (for a radius, the multiplier found).
    steps : Newton steps taken.
    """

    place: Place
    q: Array
    value: float
    gap: float
    penalty: float
    steps: int


@dataclass(frozen=True)
class _Game:
    r"""What q plays: :math:`\max_q \langle q, \ell\rangle - \lambda D(q\|c)`, over the groups it may choose from."""

    divergence: type[Divergence]
    centre: Array
    penalty: float
    most: Array | None = None  # no q above these; with l2 alone

    def respond(self, losses: Array) -> Array:
        """The best q."""
        if math.isinf(self.penalty):
            return self.centre + 0.0 * losses
        if self.most is not None:
            return capped_response(losses, self.centre, self.penalty, self.most)
        response: Array = self.divergence.best_response(losses, self.centre, self.penalty)
        return response

    def cost(self, q: Array) -> Any:
        """The penalty's part."""
        return 0.0 if math.isinf(self.penalty) else self.penalty * self.divergence.value(q, self.centre)

    def bend(self, jacobian: Array, q: Array) -> Array:
        r"""U with :math:`U^\top U = \frac1\lambda J^\top C J`; without rows if q does not move."""
        mobility = self.divergence.mobility(q, self.centre)
        if self.most is not None:
            mobility = np.where(q < self.most, mobility, 0.0)
        moving = np.flatnonzero(mobility > 0)
        if math.isinf(self.penalty) or len(moving) < 2:
            return np.empty((0, jacobian.shape[1]))
        root = np.sqrt(mobility[moving])
        scaled = root[:, None] * jacobian[moving]
        unit = root / np.linalg.norm(root)
        bent: Array = (scaled - unit[:, None] * (unit @ scaled)) / math.sqrt(self.penalty)
        return bent


class SaddleProblem:
    """Losses, a ridge, a prior and a divergence; solved for any penalty or radius from any starting place.

    Groups outside ``support`` never get weight: those without prior, for divergences that are infinite there. With l2
    and a penalty, no group gets more than ``most``, nor does the prior give it more.
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
    ) -> None:
        self.losses, self.divergence, self.tol, self.most = losses, divergence, tol, most
        self.support = np.arange(len(prior)) if divergence.bounded else np.flatnonzero(prior > 0)
        self.prior = prior[self.support]
        self.pull = np.full(losses.shape, 2.0 * ridge)
        if losses.intercept:
            self.pull[-1] = 0.0
        self._zero = losses.at(np.zeros(losses.shape))
        self.floor = max(FLOOR * float(np.max(self._zero.losses)), float(np.finfo(float).tiny))

    # ------------------------------------------------------------ the forms

    def penalised(self, penalty: float, start: Saddle | None = None) -> Saddle:
        """At a penalty from zero to infinity, starting from the saddle point of a larger one if there is one."""
        return self._penalised(penalty, start.place if start else self._zero, start)

    def constrained(self, radius: float, start: Saddle | None = None) -> Saddle:
        """The worst q with D(q‖p) at most the radius."""
        return self._constrained(radius, start.place if start else self._zero)

    def _penalised(self, penalty: float, start: Place, known: Saddle | None = None) -> Saddle:
        if math.isinf(penalty):
            return self._newton(start, _Game(self.divergence, self.prior, penalty, self.most))
        if start is self._zero:
            start = self._newton(start, _Game(self.divergence, self.prior, math.inf, self.most)).place
        if penalty > HUGE * self._spread(start):
            pinned = self._newton(start, _Game(self.divergence, self.prior, math.inf, self.most))
            if penalty > HUGE * self._spread(pinned.place):
                return replace(pinned, penalty=penalty)
        tried: list[Saddle] = []
        if penalty > 0:
            tried.append(self._newton(start, _Game(self.divergence, self.prior, penalty, self.most), PATIENCE))
        for attempt in self._attempts(penalty, start, known):
            if tried and tried[-1].gap <= self.allowed(tried[-1].value):
                break
            tried.append(attempt())
        best = min(tried, key=lambda saddle: saddle.gap)
        return replace(best, steps=sum(saddle.steps for saddle in tried))

    def _attempts(self, penalty: float, start: Place, known: Saddle | None) -> list[Callable[[], Saddle]]:
        """What to try where Newton's method does not get there at once."""
        if penalty == 0 or self.divergence.bounded:
            return [lambda: self._proximal(penalty, start, known)]
        return [lambda: self._continued(penalty, start), lambda: self._nearly_free(penalty, start)]

    def _nearly_free(self, penalty: float, start: Place) -> Saddle:
        """So small a penalty is next to none: from the answer without one, or that answer itself."""
        free, game = self._proximal(0.0, start), _Game(self.divergence, self.prior, penalty, self.most)
        losses, q = free.place.losses[self.support], free.q[self.support]
        worst, value = self._worst(free.place.losses, free.place.theta, game)
        gap = max(float((worst - q) @ losses - game.cost(worst) + game.cost(q)), 0.0) + self._excess(free.place, q)
        onwards = self._newton(free.place, game)
        best = min((replace(free, value=value, gap=gap, penalty=penalty), onwards), key=lambda saddle: saddle.gap)
        return replace(best, steps=free.steps + onwards.steps)

    def _continued(self, penalty: float, start: Place) -> Saddle:
        """Through ever smaller penalties, each from the last one's model."""
        place, steps, via = start, 0, max(self._spread(start), penalty)
        while via * SHRINK > penalty:
            way = self._newton(place, _Game(self.divergence, self.prior, via, self.most), PATIENCE)
            place, steps, via = way.place, steps + way.steps, via * SHRINK
        last = self._newton(place, _Game(self.divergence, self.prior, penalty, self.most))
        return replace(last, steps=steps + last.steps)

    def _proximal(self, penalty: float, start: Place, known: Saddle | None = None) -> Saddle:
        """With a vanishing second penalty that keeps q near the last q; both are l2 and make one of their sum."""
        wanted = _Game(DIVERGENCES["l2"], self.prior, penalty, self.most)
        near, centre = max(self._spread(start), self.floor), self.prior
        if known is not None and self.floor < known.penalty < near:
            near, centre = known.penalty, known.q[self.support]
        place, steps = start, 0
        best = Saddle(start, self.whole(self.prior), math.inf, math.inf, penalty, 0)
        for _ in range(MAX_STEPS):
            mixed = (penalty * self.prior + near * centre) / (penalty + near)
            inner = self._newton(place, _Game(wanted.divergence, mixed, penalty + near, self.most), 4 * PATIENCE)
            place, centre, steps = inner.place, inner.q[self.support], steps + inner.steps
            losses = place.losses[self.support]
            worst = self._free(losses, penalty)
            highest = float(worst @ losses - wanted.cost(worst))
            gap = max(highest - float(centre @ losses - wanted.cost(centre)), 0.0) + self._excess(place, centre)
            if gap < best.gap:
                best = Saddle(place, inner.q, highest + self._ridge(place.theta), gap, penalty, steps)
            if best.gap <= self.allowed(best.value):
                break
            # Nearer only from where Newton's method arrived; else the second penalty was too small for it.
            near = max(near * SHRINK, self.floor) if inner.gap <= self.allowed(inner.value) else near / SHRINK
        return replace(best, steps=steps)

    def _free(self, losses: Array, penalty: float) -> Array:
        """The best response by l2, also without a penalty."""
        if self.most is not None:
            return capped_response(losses, self.prior, penalty, self.most)
        response: Array = best_response(losses, self.prior, penalty, DIVERGENCES["l2"])
        return response

    def _constrained(self, radius: float, start: Place) -> Saddle:
        place = self._newton(start, _Game(self.divergence, self.prior, math.inf, self.most)).place
        if radius == 0:
            return self._penalised(math.inf, place)
        widest = max(self._spread(place), self.floor)
        search, steps = _Search(widest), 0
        best = Saddle(place, self.whole(self.prior), math.inf, math.inf, math.inf, 0)
        for _ in range(MAX_STEPS):
            free_of_radius = self._penalised(search.penalty, place)
            place, steps = free_of_radius.place, steps + free_of_radius.steps
            q = free_of_radius.q[self.support]
            distance = float(self.divergence.value(q, self.prior))
            tries = self._within(place, q, distance, radius, search.penalty)
            best = min([best, *tries], key=lambda candidate: candidate.gap)
            if best.gap <= self.allowed(best.value):
                break
            search = search.after(distance / radius)
            if search.penalty < FLOOR * widest:  # even without a penalty q stays inside
                free = self._penalised(0.0, place)
                steps, inner = steps + free.steps, free.q[self.support]
                if float(self.divergence.value(inner, self.prior)) <= radius:
                    return replace(free, steps=steps)
                tries = self._within(free.place, q, distance, radius, 0.0)
                best = min([best, *tries], key=lambda candidate: candidate.gap)
                break
            if search.settled:
                break
        return replace(best, steps=steps)

    def _within(self, place: Place, q: Array, distance: float, radius: float, penalty: float) -> list[Saddle]:
        """Certificates of the constrained problem at a place: by its best response, and by q drawn into the radius."""
        losses = place.losses[self.support]
        worst = constrained_response(losses, self.prior, radius, self.divergence)
        value = float(worst @ losses) + self._ridge(place.theta)
        inside = q
        if distance > radius:  # D is convex and zero at the prior
            share = max(math.sqrt(radius / distance), radius / distance)
            inside = self.prior + share * (q - self.prior)
            if float(self.divergence.value(inside, self.prior)) > radius:
                inside = self.prior + (radius / distance) * (q - self.prior)
        return [
            Saddle(
                place,
                self.whole(weights),
                value,
                max(float((worst - weights) @ losses), 0.0) + self._excess(place, weights),
                penalty,
                0,
            )
            for weights in (worst, inside)
        ]

    # ------------------------------------------------------------ Newton's method at one penalty

    def _newton(self, place: Place, game: _Game, patience: int = MAX_STEPS) -> Saddle:
        """Minimise F from a place, until the gap is small, nothing moves, or patience ends."""
        q, value = self._worst(place.losses, place.theta, game)
        steps = 0
        while True:
            jacobian = place.jacobian[self.support]
            gradient = q @ jacobian + (self.pull * place.theta).reshape(-1)
            if self._promising(gradient, value) or steps >= patience:
                gap = self._excess(place, q)
                if gap <= self.allowed(value) or steps >= patience:
                    break
            direction = self._direction(place, q, gradient, game.bend(jacobian, q))
            decrease = -float(gradient @ direction)
            line = place.along(direction.reshape(self.losses.shape))
            move = self._search(line, place.theta, direction.reshape(self.losses.shape), game, value, decrease)
            if move is None:  # no progress that values can show
                move = self._by_gradient(line, gradient, game, value)
            if move is None:
                gap = self._excess(place, q)
                break
            t, q, value = move
            place, steps = line.place(t), steps + 1
        return Saddle(place, self.whole(q), value, gap, game.penalty, steps)

    def _worst(self, losses: Array, theta: Array, game: _Game) -> tuple[Array, float]:
        """The best response, and F."""
        seen = losses[self.support]
        q = game.respond(seen)
        return q, float(q @ seen - game.cost(q)) + self._ridge(theta)

    def _search(
        self, line: Curve, theta: Array, step: Array, game: _Game, value: float, decrease: float
    ) -> tuple[float, Array, float] | None:
        """How far to go along the line so that F falls enough (Armijo), with q and F there; None if it does not.

        Where losses along the line cost next to nothing, several distances are tried at once and the best is taken.
        """
        slope, bend = float(np.sum(self.pull * theta * step)), float(np.sum(self.pull * step**2))
        ridge = self._ridge(theta)
        for first in range(0, 36, line.batch):
            ts: Array = 0.5 ** np.arange(first, first + line.batch, dtype=np.float64)
            losses = line.losses(ts)[:, self.support]
            q = game.respond(losses)
            reached = (q * losses).sum(axis=1) - game.cost(q) + ridge + ts * slope + 0.5 * ts**2 * bend
            best = int(np.argmin(reached))
            if reached[best] < value - 1e-4 * ts[best] * decrease:
                return float(ts[best]), q[best], float(reached[best])
        return None

    def _by_gradient(
        self, line: Curve, gradient: Array, game: _Game, value: float
    ) -> tuple[float, Array, float] | None:
        """The whole step, if F stays where it is but for rounding and its gradient halves, as the proof may need."""
        place = line.place(1.0)
        q, reached = self._worst(place.losses, place.theta, game)
        there = q @ place.jacobian[self.support] + (self.pull * place.theta).reshape(-1)
        if reached <= value + 1e-13 * abs(value) and np.linalg.norm(there) <= 0.5 * np.linalg.norm(gradient):
            return 1.0, q, reached
        return None

    def _direction(self, place: Place, q: Array, gradient: Array, bend: Array) -> Array:
        r"""Newton's: :math:`-(H + U^\top U)^{-1} g`."""
        size, outputs = self.losses.shape
        hessian = place.hessian(self.whole(q))
        alike = len(hessian) < size * outputs or outputs == 1  # one matrix for every output
        pull = self.pull[:, 0] if alike else self.pull.reshape(-1)
        own = hessian.diagonal()
        hessian = hessian + np.diag(pull + JITTER * np.where(own > 0, own, max(float(own.max()), self.floor)))
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

    def foreseen(self, penalty: float, place: Place, step: Array) -> Place:
        """Where along the last move of a path to start the next solve: as far as F falls."""
        if penalty == 0 or math.isinf(penalty):
            return place
        line, ts = place.along(step), np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5])
        game = _Game(self.divergence, self.prior, penalty, self.most)
        losses = line.losses(ts)[:, self.support]
        q = game.respond(losses)
        ridge = np.array([self._ridge(place.theta + t * step) for t in ts])
        best = int(np.argmin((q * losses).sum(axis=1) - game.cost(q) + ridge))
        return line.place(float(ts[best])) if best else place

    # ------------------------------------------------------------ pieces

    def _promising(self, gradient: Array, value: float) -> bool:
        """Whether it is worth asking for the gap, which for logistic losses takes several passes over the rows."""
        if self.losses.quick:
            return True
        pull = self.pull.reshape(-1)
        held = pull > 0
        return float(np.sum(gradient[held] ** 2 / pull[held])) <= 2.0 * self.allowed(value)

    def _excess(self, place: Place, q: Array) -> float:
        return max(self.losses.excess(place, self.whole(q), self.pull), 0.0)

    def _ridge(self, theta: Array) -> float:
        return 0.5 * float(np.sum(self.pull * theta**2))

    def allowed(self, value: float) -> float:
        return max(self.tol * abs(value), self.floor)

    def _spread(self, place: Place) -> float:
        return float(np.ptp(place.losses[self.support]))

    def whole(self, q: Array) -> Array:
        everyone = np.zeros(len(self.losses.groups))
        everyone[self.support] = q
        return everyone


@dataclass(frozen=True)
class _Search:
    """The multiplier at which D(q‖p) meets the radius; D falls as it grows, at first like its inverse square."""

    penalty: float
    low: float = 0.0  # too small: q lies outside
    high: float = math.inf  # too large
    before: tuple[float, float] | None = None
    tries: int = 0

    def after(self, ratio: float) -> _Search:
        """The next one, having found D to be ``ratio`` times the radius."""
        here = (math.log(self.penalty), math.log(max(ratio, 1e-300)))
        low = self.penalty if ratio > 1 else self.low
        high = self.high if ratio > 1 else self.penalty
        slope = -2.0
        if self.before is not None and here[0] != self.before[0]:
            slope = (here[1] - self.before[1]) / (here[0] - self.before[0])
        guess = math.exp(min(max(here[0] - here[1] / min(slope, -0.1), -700.0), 700.0))
        if low == 0.0:
            guess = min(max(guess, 1e-3 * self.penalty), (0.5 if self.tries < 3 else 0.01) * self.penalty)
        elif math.isinf(high):
            guess = max(guess, 1.01 * self.penalty)
        elif not low < guess < high:
            guess = math.sqrt(low * high)
        return _Search(guess, low, high, here, self.tries + 1)

    @property
    def settled(self) -> bool:
        """Whether there is nothing left between the bounds."""
        return self.low > 0 and self.high <= self.low * (1.0 + 1e-14)


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


def _solve(matrix: Array, right: Array) -> Array:
    """With a positive definite matrix."""
    _, solution, failed = dposv(matrix, right)
    if failed:
        solution = np.linalg.lstsq(matrix, right, rcond=None)[0]
    return np.asarray(solution)
