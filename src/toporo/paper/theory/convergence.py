r"""Theorem 1: projected primal–dual SGD on a convex problem, its exact duality gap, and the bound on it.

The problem is that of :mod:`toporo.paper.theory.ball` with a convex loss: R is convex in θ and concave in q.

**The method** is :func:`~toporo.paper.theory.rates.descent_ascent`. Its stochastic gradients :math:`g_\theta` and
:math:`g_q` have the gradients of R as expectations, and

.. math:: \theta \leftarrow \mathrm{Proj}_{\|\theta\| \le R}(\theta - \eta_\theta g_\theta),\qquad
          q \leftarrow \mathrm{Proj}_\Delta(q + \eta_q g_q),\qquad
          \eta_\theta = \frac{2R}{G_\theta \sqrt T},\quad \eta_q = \frac{2}{G_q \sqrt T} .

**The bound.** Start at :math:`\theta_1 = 0`, :math:`q_1 = p`, and let :math:`E\|g_\theta\|^2 \le G_\theta^2` and
:math:`E\|g_q\|^2 \le G_q^2`. For the averages of the T iterates,

.. math:: E\Big[\max_q R(\bar\theta, q) - \min_\theta R(\theta, \bar q)\Big]
          \le \frac{3 R G_\theta + 3 G_q}{\sqrt T} .

**Proof.** R is convex in θ and concave in q, so the gap is at most the maximum over (u, v) of
:math:`\frac1T \sum_t \langle \nabla_\theta R, \theta_t - u\rangle + \langle \nabla_q R, v - q_t\rangle`. Projected
steps give :math:`\sum_t \langle g_\theta, \theta_t - u\rangle \le \frac{\|u\|^2}{2\eta} + \frac\eta2 \sum_t
\|g_\theta\|^2 \le (\tfrac14 + 1) R G_\theta \sqrt T` with the step above. The noise :math:`g - \nabla R` has mean zero
but u depends on it: compared with a second, imagined sequence of projected steps along the noise alone (Nemirovski et
al. 2009, Lemma 6.1), whose step size is free, it adds at most :math:`R G_\theta \sqrt T`. Together
:math:`2.25\,R G_\theta`. For q, where two points are at most :math:`\sqrt2` apart, the same steps give
:math:`(\tfrac12 + 1 + \sqrt2)\, G_q < 3 G_q`. So the constants of the paper hold with the maximum inside the
expectation.

Only second moments are needed: :func:`certified_constants` bounds them from the data, :func:`estimated_constants`
measures them in pilot runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toporo.checks import one_of
from toporo.paper.theory.ball import CONVEX, LOSSES, BallProblem, duality_gap
from toporo.paper.theory.rates import Rate, check_horizons, descent_ascent

#: Steps and number of the pilot runs, and the start of their random streams, so that no later run draws the same rows.
PILOT_STEPS, PILOT_RUNS, PILOT_STREAM = 512, 8, 1_000_003


@dataclass(frozen=True)
class Constants:
    r"""Bounds on the second moments of both stochastic gradients.

    Attributes
    ----------
    how : ``"certified"`` or ``"estimated"``.
    theta, q : :math:`G_\theta` and :math:`G_q`.
    """

    how: str
    theta: float
    q: float

    def step_sizes(self, ball_radius: float, steps: int) -> tuple[float, float]:
        r""":math:`\eta_\theta = 2R / (G_\theta\sqrt T)` and :math:`\eta_q = 2 / (G_q\sqrt T)`.

        >>> Constants("certified", theta=4.0, q=2.0).step_sizes(ball_radius=3.0, steps=100)
        (0.15, 0.1)
        """
        root = math.sqrt(steps)
        return 2.0 * ball_radius / (self.theta * root), 2.0 / (self.q * root)

    def gap_bound(self, ball_radius: float, steps: int) -> float:
        r""":math:`(3 R G_\theta + 3 G_q) / \sqrt T`.

        >>> Constants("certified", theta=4.0, q=2.0).gap_bound(ball_radius=3.0, steps=100)
        4.2
        """
        return (3.0 * ball_radius * self.theta + 3.0 * self.q) / math.sqrt(steps)


def certified_constants(problem: BallProblem) -> Constants:
    r"""Bound the second moments of both stochastic gradients everywhere on the ball and the simplex.

    On the ball :math:`|\theta^\top x| \le r = R\|x\|`. There a convex loss has its steepest slope s and its largest
    value L at :math:`r` or at :math:`-r`. Convexity of the squared norm gives

    .. math:: E\|g_\theta\|^2 \le \sum_e q_e \frac1{n_e}\sum_{i \in e} s_i^2\|x_i\|^2
              \le \max_e \frac1{n_e}\sum_{i \in e} s_i^2\|x_i\|^2 = G_\theta^2 ,

    and the triangle inequality, with the vertex of the simplex farthest from p,

    .. math:: \sqrt{E\|g_q\|^2} \le \Big(\sum_e \frac1{n_e}\sum_{i \in e} L_i^2\Big)^{1/2}
              + \lambda \max_e \|1_e - p\| = G_q .

    Parameters
    ----------
    problem : the problem.
    """
    one_of(problem.loss, "convex loss", CONVEX)
    loss, norms = LOSSES[problem.loss], np.linalg.norm(problem.data.x, axis=1)
    ends = problem.ball_radius * norms * np.array([[-1.0], [1.0]])
    steepest, largest = (np.abs(of(ends, problem.data.y)).max(axis=0) for of in (loss.slope, loss.value))
    theta = math.sqrt(problem.group_means((steepest * norms) ** 2).max())
    q = math.sqrt(problem.group_means(largest**2).sum()) + problem.penalty * problem.farthest_vertex
    return Constants("certified", theta, q)


def estimated_constants(problem: BallProblem) -> Constants:
    """Return the largest norms of both stochastic gradients in pilot runs with the certified steps.

    They are smaller than the certified constants, which cover the whole ball, and no guarantee:
    :func:`measure_convergence` records whether they covered the gradients of its own runs.

    Parameters
    ----------
    problem : the problem.
    """
    sizes = certified_constants(problem).step_sizes(problem.ball_radius, PILOT_STEPS)
    pilots = descent_ascent(problem, steps=PILOT_STEPS, sizes=sizes, seeds=range(PILOT_RUNS), stream=(PILOT_STREAM,))
    theta, q = np.sqrt(pilots.squared_norms.max(axis=(1, 2)))
    return Constants("estimated", float(theta), float(q))


@dataclass(frozen=True, eq=False)
class Convergence:
    """Duality gaps of the averaged iterates against Theorem 1's bound.

    Attributes
    ----------
    loss, penalty, ball_radius : of the problem.
    constants : the G's behind step sizes and bound.
    gap : the gaps, and the bound on their mean.
    covered : whether the mean squares of the gradients were within the G's at every T. For certified constants only
        chance prevents it; for estimated ones it is the condition under which the bound applies.
    """

    loss: str
    penalty: float
    ball_radius: float
    constants: Constants
    gap: Rate
    covered: bool


def measure_convergence(
    problem: BallProblem, constants: Constants, horizons: Sequence[int], seeds: Sequence[int] = range(10)
) -> Convergence:
    """Run Theorem 1: projected SGD for every number of steps and seed, the exact gap of each, and the bound.

    Parameters
    ----------
    problem : the problem.
    constants : :func:`certified_constants` or :func:`estimated_constants` of it.
    horizons : numbers of steps T, at least two.
    seeds : one run each, at every T.
    """
    horizons, radius = check_horizons(horizons), problem.ball_radius
    gaps, mean_squares = [], []
    for steps in horizons:
        iterates = descent_ascent(problem, steps=steps, sizes=constants.step_sizes(radius, steps), seeds=seeds)
        gaps.append(duality_gap(problem, iterates.theta.mean(axis=0), iterates.q.mean(axis=0)))
        mean_squares.append(iterates.squared_norms.mean(axis=(1, 2)))
    bounds = np.array([constants.gap_bound(radius, steps) for steps in horizons])
    return Convergence(
        problem.loss,
        problem.penalty,
        radius,
        constants,
        Rate(horizons, tuple(seeds), np.array(gaps), bounds),
        bool((np.array(mean_squares) <= np.array([constants.theta, constants.q]) ** 2).all()),
    )
