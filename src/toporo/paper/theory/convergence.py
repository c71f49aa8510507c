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

Only second moments are needed, which :func:`gradient_bounds` computes from the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from toporo.checks import one_of
from toporo.paper.theory.ball import CONVEX, LOSSES, BallProblem, duality_gap
from toporo.paper.theory.rates import Rate, descent_ascent


def gradient_bounds(problem: BallProblem) -> dict[str, float]:
    r"""Bound the root mean squares of both stochastic gradients everywhere on the ball and the simplex.

    On the ball :math:`|\theta^\top x| \le r = R\|x\|`. There a convex loss has its steepest slope s and its largest
    value L at :math:`r` or at :math:`-r`. Convexity of the squared norm gives

    .. math:: E\|g_\theta\|^2 \le \sum_e q_e \frac1{n_e}\sum_{i \in e} s_i^2\|x_i\|^2
              \le \max_e \frac1{n_e}\sum_{i \in e} s_i^2\|x_i\|^2 = G_\theta^2 ,

    and the triangle inequality, with the vertex of the simplex farthest from p,

    .. math:: \sqrt{E\|g_q\|^2} \le \Big(\sum_e \frac1{n_e}\sum_{i \in e} L_i^2\Big)^{1/2}
              + \lambda \max_e \|1_e - p\| = G_q .
    """
    one_of(problem.loss, "convex loss", CONVEX)
    loss, norms = LOSSES[problem.loss], np.linalg.norm(problem.data.x, axis=1)
    ends = problem.ball_radius * norms * np.array([[-1.0], [1.0]])
    steepest, largest = (np.abs(of(ends, problem.data.y)).max(axis=0) for of in (loss.slope, loss.value))
    theta = math.sqrt(problem.group_means((steepest * norms) ** 2).max())
    q = math.sqrt(problem.group_means(largest**2).sum()) + problem.penalty * problem.farthest_vertex
    return {"theta": theta, "q": q}


def measure_convergence(problem: BallProblem, horizons: Sequence[int], seeds: Sequence[int] = range(10)) -> Rate:
    """Run Theorem 1: projected SGD for every number of steps and seed, the exact gap of each, and the bound.

    Parameters
    ----------
    problem : the problem, with a convex loss and a finite R.
    horizons : numbers of steps T, increasing, at least two.
    seeds : one run each, at every T.
    """
    constants, radius, gaps = gradient_bounds(problem), problem.ball_radius, []
    roots, theta, q = np.sqrt(horizons), constants["theta"], constants["q"]
    for steps, root in zip(horizons, roots, strict=True):
        run = descent_ascent(problem, steps, (2.0 * radius / (theta * root), 2.0 / (q * root)), seeds)
        gaps.append(duality_gap(problem, run.theta.mean(axis=0), run.q.mean(axis=0)))
    bounds = (3.0 * radius * theta + 3.0 * q) / roots
    return Rate("gap", problem.loss, problem.penalty, constants, horizons, np.array(gaps), bounds)
