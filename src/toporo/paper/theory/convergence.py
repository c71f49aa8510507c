r"""Theorem 1, executable: projected primal–dual SGD on a convex problem, its exact duality gap, and the bound on it.

The problem is

.. math:: \min_{\|\theta\|_2 \le R}\ \max_{q \in \Delta}\ R(\theta, q) = \sum_e q_e \ell_e(\theta) - \lambda D(q\|p),
          \qquad D(q\|p) = \tfrac12 \|q - p\|_2^2 ,

with a linear model and a convex loss, so that :math:`\ell_e` is a mean over the rows of group e.

**One step** draws ``batch`` rows of every group, uniformly and with replacement. With :math:`\hat\ell_e` the mean loss
over the rows drawn of group e,

.. math:: g_\theta = \sum_e q_e \nabla \hat\ell_e(\theta),\qquad g_q = \hat\ell(\theta) - \lambda (q - p)

have the gradients of R as expectations, and

.. math:: \theta \leftarrow \mathrm{Proj}_{\|\theta\| \le R}(\theta - \eta_\theta g_\theta),\qquad
          q \leftarrow \mathrm{Proj}_\Delta(q + \eta_q g_q),\qquad
          \eta_\theta = \frac{2R}{G_\theta \sqrt T},\quad \eta_q = \frac{2}{G_q \sqrt T} .

**The bound.** Start at :math:`\theta_1 = 0`, :math:`q_1 = p`, and let :math:`E\|g_\theta\|^2 \le G_\theta^2` and
:math:`E\|g_q\|^2 \le G_q^2`. For the averages of the T iterates,

.. math:: E\Big[\max_q R(\bar\theta, q) - \min_\theta R(\theta, \bar q)\Big]
          \le \frac{3 R G_\theta + 3 G_q}{\sqrt T} .

*Why.* R is convex in θ and concave in q, so the gap is at most the maximum over (u, v) of
:math:`\frac1T \sum_t \langle \nabla_\theta R, \theta_t - u\rangle + \langle \nabla_q R, v - q_t\rangle`. Projected
steps give :math:`\sum_t \langle g_\theta, \theta_t - u\rangle \le \frac{\|u\|^2}{2\eta} + \frac\eta2 \sum_t
\|g_\theta\|^2 \le (\tfrac14 + 1) R G_\theta \sqrt T` with the step above. The noise :math:`g - \nabla R` has mean zero
but u depends on it: against a second, imagined sequence of projected steps along the noise alone (Nemirovski et al.
2009, Lemma 6.1), whose size is ours to choose, it adds at most :math:`R G_\theta \sqrt T`. Together
:math:`2.25\,R G_\theta`. For q, where two points are at most :math:`\sqrt2` apart, the same steps give
:math:`(\tfrac12 + 1 + \sqrt2)\, G_q < 3 G_q`. So the constants of the paper hold, the maximum inside the expectation.

Second moments are all it takes: :func:`certified_constants` bounds them from the data, :func:`estimated_constants`
measures them in a pilot run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toporo.checks import whole
from toporo.errors import SettingError
from toporo.paper.theory.ball import LOSSES, BallProblem, duality_gap, project_ball
from toporo.progress import Progress, Report
from toporo.robust import project_simplex
from toporo.types import Array

#: Steps whose random rows are drawn at once.
CHUNK = 64
#: Random streams of pilot runs start with this, so that no later run draws the same rows.
_PILOT = 1_000_003


# ---------------------------------------------------------------- constants, step sizes, bound


@dataclass(frozen=True)
class Constants:
    r"""Bounds on the second moments of both stochastic gradients.

    Parameters
    ----------
    theta, q : :math:`G_\theta` and :math:`G_q`.
    how : how they were found.
    """

    theta: float
    q: float
    how: str

    def __post_init__(self) -> None:
        if not (0 < self.theta < math.inf and 0 < self.q < math.inf):
            raise SettingError(f"G_θ = {self.theta!r}, G_q = {self.q!r}: expected positive numbers.")


def certified_constants(problem: BallProblem) -> Constants:
    r"""Bounds on the second moments of both stochastic gradients, everywhere on the ball and the simplex.

    On the ball :math:`|\theta^\top x| \le r = R\|x\|`. With s the steepest slope of the loss there and L its largest
    value (for the squared loss :math:`r + |y|` and half its square, for the logistic :math:`1/(1 + e^{-r})` and
    :math:`\log(1 + e^r)`), convexity of the squared norm gives

    .. math:: E\|g_\theta\|^2 \le \sum_e q_e \frac1{n_e}\sum_{i \in e} s_i^2\|x_i\|^2
              \le \max_e \frac1{n_e}\sum_{i \in e} s_i^2\|x_i\|^2 = G_\theta^2 ,

    and the triangle inequality, with the vertex of the simplex farthest from p,

    .. math:: \sqrt{E\|g_q\|^2} \le \Big(\sum_e \frac1{n_e}\sum_{i \in e} L_i^2\Big)^{1/2}
              + \lambda \max_e \|1_e - p\| = G_q .

    Both hold for any batch size.

    Parameters
    ----------
    problem : the problem.
    """
    loss = LOSSES[problem.loss]
    norms = np.linalg.norm(problem.x, axis=1)
    reach = problem.ball_radius * norms
    slopes = (loss.steepest(reach, problem.y) * norms) ** 2 * problem.row_shares
    values = loss.largest(reach, problem.y) ** 2 * problem.row_shares
    farthest = np.linalg.norm(np.eye(len(problem.groups)) - problem.prior, axis=1).max()
    return Constants(
        theta=math.sqrt(np.add.reduceat(slopes, problem.starts).max()),
        q=math.sqrt(values.sum()) + problem.penalty * float(farthest),
        how="certified",
    )


def estimated_constants(
    problem: BallProblem, *, steps: int = 512, seeds: Sequence[int] = tuple(range(8)), batch: int = 1
) -> Constants:
    """The largest norms of both stochastic gradients met in pilot runs.

    Smaller than the certified ones, which look at the whole ball, and no guarantee: :func:`measure_convergence` records
    whether they covered what its own runs met. The pilots' seeds are kept apart from those of later runs.

    Parameters
    ----------
    problem : the problem.
    steps : of a pilot run.
    seeds : one pilot run each.
    batch : rows drawn of every group at each step.
    """
    pilots = [(_PILOT, *key) for key in seed_keys(seeds)]
    with Progress("pilot", 1, False) as silent:
        met = _descend(problem, [certified_constants(problem)], [whole(steps, "steps", 1)], pilots, batch, silent)
    return Constants(float(met.largest_theta.max()), float(met.largest_q.max()), how="estimated")


def step_sizes(constants: Constants, ball_radius: float, steps: int) -> tuple[float, float]:
    r""":math:`\eta_\theta = 2R / (G_\theta\sqrt T)` and :math:`\eta_q = 2 / (G_q\sqrt T)`.

    Parameters
    ----------
    constants, ball_radius, steps : the G's, R and T.

    >>> step_sizes(Constants(theta=4.0, q=2.0, how="by hand"), ball_radius=3.0, steps=100)
    (0.15, 0.1)
    """
    root = math.sqrt(whole(steps, "steps", 1))
    return 2.0 * ball_radius / (constants.theta * root), 2.0 / (constants.q * root)


def gap_bound(constants: Constants, ball_radius: float, steps: int) -> float:
    r""":math:`(3 R G_\theta + 3 G_q) / \sqrt T`.

    Parameters
    ----------
    constants, ball_radius, steps : the G's, R and T.

    >>> gap_bound(Constants(theta=4.0, q=2.0, how="by hand"), ball_radius=3.0, steps=100)
    4.2
    """
    return (3.0 * ball_radius * constants.theta + 3.0 * constants.q) / math.sqrt(whole(steps, "steps", 1))


# ---------------------------------------------------------------- projected primal–dual SGD


@dataclass(frozen=True, eq=False)
class Averages:
    """Averaged iterates, one run per row, and the norms of the stochastic gradients met on the way."""

    theta: Array
    q: Array
    mean_square_theta: Array
    mean_square_q: Array
    largest_theta: Array
    largest_q: Array


def averaged_iterates(
    problem: BallProblem, steps: int, *, constants: Constants | None = None, seeds: Sequence[int] = (0,), batch: int = 1
) -> Averages:
    """Run projected primal–dual SGD with Theorem 1's step sizes.

    Parameters
    ----------
    problem : the problem.
    steps : T.
    constants : :func:`certified_constants` unless given.
    seeds : one run each.
    batch : rows drawn of every group at each step.
    """
    constants = constants or certified_constants(problem)
    with Progress("projected SGD", 1, False) as silent:
        return _descend(problem, [constants], [whole(steps, "steps", 1)], seed_keys(seeds), batch, silent)


def check_horizons(horizons: Sequence[int]) -> list[int]:
    """Numbers of steps T in order, each once; at least two."""
    steps = sorted({whole(value, "T", 1) for value in horizons})
    if len(steps) < 2:
        raise SettingError(f"horizons are {list(horizons)!r}: a slope needs at least two different numbers of steps.")
    return steps


def seed_keys(seeds: Sequence[int]) -> list[tuple[int, ...]]:
    """What a run's random stream starts from, by seed."""
    numbers = [whole(seed, "a seed", 0) for seed in seeds]
    if not numbers or len(set(numbers)) < len(numbers):
        raise SettingError(f"seeds are {list(seeds)!r}: expected at least one, and none twice.")
    return [(seed,) for seed in numbers]


def _descend(
    problem: BallProblem,
    constants: Sequence[Constants],
    horizons: Sequence[int],
    keys: Sequence[tuple[int, ...]],
    batch: int,
    progress: Progress,
) -> Averages:
    """All runs side by side, one lane per (T, seed, constants), in that order; T decreases, so finished lanes are last.

    The rows that a lane draws depend on its T and its seed alone.
    """
    loss, m, d, batch = LOSSES[problem.loss], len(problem.groups), problem.x.shape[1], whole(batch, "batch", 1)
    lanes = [(steps, each) for steps in horizons for _ in keys for each in constants]
    sizes = np.array([step_sizes(each, problem.ball_radius, steps) for steps, each in lanes])
    lasts = np.array([steps for steps, _ in lanes])
    streams = [np.random.default_rng([*key, steps]) for steps in horizons for key in keys]
    theta, q = np.zeros((len(lanes), d)), np.tile(problem.prior, (len(lanes), 1))
    sums = np.zeros((len(lanes), d)), np.zeros((len(lanes), m))
    squares, largest = np.zeros((2, len(lanes))), np.zeros((2, len(lanes)))
    columns = np.tile(np.arange(m), batch)
    for start in range(0, horizons[0], CHUNK):
        live = int((lasts > start).sum())
        used = streams[: live // len(constants)]
        drawn = np.stack([rng.integers(0, problem.counts, size=(CHUNK, batch, m)) for rng in used], axis=1)
        rows = (drawn + problem.starts).reshape(CHUNK, len(used), batch * m).repeat(len(constants), axis=1)
        for offset in range(min(CHUNK, horizons[0] - start)):
            k = int((lasts > start + offset).sum())
            x, y = problem.x[rows[offset, :k]], problem.y[rows[offset, :k]]
            sums[0][:k] += theta[:k]
            sums[1][:k] += q[:k]
            z = (x @ theta[:k, :, None])[..., 0]
            losses = loss.value(z, y).reshape(k, batch, m).mean(axis=1)
            pull = loss.slope(z, y) * q[:k, columns] / batch
            g_theta = (pull[:, None, :] @ x)[:, 0]
            g_q = losses - problem.penalty * (q[:k] - problem.prior)
            for i, gradient in enumerate((g_theta, g_q)):
                norm = (gradient**2).sum(axis=1)
                squares[i, :k] += norm
                largest[i, :k] = np.maximum(largest[i, :k], norm)
            theta[:k] = project_ball(theta[:k] - sizes[:k, :1] * g_theta, problem.ball_radius)
            q[:k] = project_simplex(q[:k] + sizes[:k, 1:] * g_q)
        progress.step()
    return Averages(
        theta=sums[0] / lasts[:, None],
        q=sums[1] / lasts[:, None],
        mean_square_theta=squares[0] / lasts,
        mean_square_q=squares[1] / lasts,
        largest_theta=np.sqrt(largest[0]),
        largest_q=np.sqrt(largest[1]),
    )


# ---------------------------------------------------------------- the theorem at work


@dataclass(frozen=True, eq=False)
class Convergence:
    """Duality gaps of the averaged iterates, against the bound.

    Attributes
    ----------
    horizons : the numbers of steps T, increasing; every T is runs of its own, because the step sizes depend on it.
    seeds : one run each, at every T.
    gaps, accuracy : (T, seeds), each an upper bound of the true gap by at most the accuracy.
    bounds : Theorem 1's bound on the expected gap, by T.
    constants : the G's behind step sizes and bound.
    covered : whether the gradients met had mean squares within the G's at every T. For certified constants it cannot
        be otherwise but for chance; for estimated ones it is what makes the bound apply.
    slope, slope_spread : of log gap (mean over seeds) on log T over the upper half of the horizons, and the standard
        deviation of that slope over seeds.
    """

    horizons: tuple[int, ...]
    seeds: tuple[int, ...]
    gaps: Array
    accuracy: float
    bounds: Array
    constants: Constants
    covered: bool
    slope: float
    slope_spread: float

    @property
    def means(self) -> Array:
        """The gap by T, averaged over seeds."""
        return np.asarray(self.gaps.mean(axis=1))

    @property
    def holds(self) -> bool:
        """Whether the mean gap is below the bound at every T."""
        return bool((self.means <= self.bounds).all())

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {
            "constants": {"how": self.constants.how, "theta": self.constants.theta, "q": self.constants.q},
            "steps": list(self.horizons),
            "seeds": list(self.seeds),
            "gaps": self.gaps.tolist(),
            "gap_accuracy": self.accuracy,
            "bounds": self.bounds.tolist(),
            "covered": self.covered,
            "holds": self.holds,
            "slope": self.slope,
            "slope_spread": self.slope_spread,
        }


def measure_convergence(
    problem: BallProblem,
    horizons: Sequence[int],
    *,
    seeds: Sequence[int] = tuple(range(10)),
    constants: Constants | None = None,
    batch: int = 1,
    progress: bool | Report | None = False,
) -> Convergence:
    """Run Theorem 1: projected SGD for every number of steps and seed, the exact gap of each, and the bound beside it.

    Parameters
    ----------
    problem : the problem.
    horizons : numbers of steps T, at least two.
    seeds : one run each, at every T.
    constants : :func:`certified_constants` unless given.
    batch : rows drawn of every group at each step.
    progress : whether to show it; None on a terminal only.
    """
    chosen = [constants or certified_constants(problem)]
    return compare_constants(problem, horizons, chosen, seeds=seeds, batch=batch, progress=progress)[0]


def compare_constants(
    problem: BallProblem,
    horizons: Sequence[int],
    constants: Sequence[Constants],
    *,
    seeds: Sequence[int] = tuple(range(10)),
    batch: int = 1,
    progress: bool | Report | None = False,
) -> tuple[Convergence, ...]:
    """:func:`measure_convergence` for several constants at once, on the same random rows; faster than one by one.

    Parameters
    ----------
    problem, horizons, seeds, batch, progress : as there.
    constants : the pairs of G's to compare.
    """
    steps = check_horizons(horizons)
    if not constants:
        raise SettingError("no constants given: expected at least one pair of G's.")
    keys = seed_keys(seeds)
    with Progress("Theorem 1", -(-steps[-1] // CHUNK), progress) as bar:
        runs = _descend(problem, constants, steps[::-1], keys, batch, bar)
    gap = duality_gap(problem, runs.theta, runs.q)
    shape = (len(steps), len(keys), len(constants))
    gaps, accuracy, of_theta, of_q = (
        part.reshape(shape)[::-1] for part in (gap.value, gap.accuracy, runs.mean_square_theta, runs.mean_square_q)
    )
    return tuple(
        _summary(
            problem, steps, keys, each, gaps[..., i], float(accuracy[..., i].max()), of_theta[..., i], of_q[..., i]
        )
        for i, each in enumerate(constants)
    )


def _summary(
    problem: BallProblem,
    steps: Sequence[int],
    keys: Sequence[tuple[int, ...]],
    constants: Constants,
    gaps: Array,
    accuracy: float,
    of_theta: Array,
    of_q: Array,
) -> Convergence:
    """What the gaps and the gradients' mean squares, (T, seeds) each, come to."""
    slopes = log_slopes(steps, gaps)
    within = (of_theta.mean(axis=1) <= constants.theta**2) & (of_q.mean(axis=1) <= constants.q**2)
    return Convergence(
        horizons=tuple(steps),
        seeds=tuple(key[0] for key in keys),
        gaps=gaps,
        accuracy=accuracy,
        bounds=np.array([gap_bound(constants, problem.ball_radius, value) for value in steps]),
        constants=constants,
        covered=bool(within.all()),
        slope=float(log_slopes(steps, gaps.mean(axis=1, keepdims=True))[0]),
        slope_spread=float(slopes.std(ddof=1)) if len(slopes) > 1 else 0.0,
    )


def log_slopes(steps: Sequence[int], gaps: Array) -> Array:
    """Least-squares slopes of log gap on log T, a column each, over the upper half of the horizons (at least two)."""
    upper = slice(min(len(steps) // 2, len(steps) - 2), None)
    t = np.log(np.asarray(steps[upper], dtype=np.float64))
    logs = np.log(np.maximum(gaps[upper], np.finfo(np.float64).tiny))
    centred = t - t.mean()
    return np.asarray((centred[:, None] * logs).sum(axis=0) / (centred**2).sum())
