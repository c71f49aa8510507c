r"""Theorem 2: the distance of non-convex training from a stationary point, and a bound on it.

The theorem is about points :math:`(\theta, q)` with

.. math:: \|\nabla_\theta R(\theta, q)\| \le \varepsilon,\qquad
          \max_{q' \in \Delta} R(\theta, q') - R(\theta, q) \le \delta,\qquad
          R(\theta, q) = \sum_e q_e \ell_e(\theta) - \lambda D(q\|p) .

Both left-hand sides can be measured: the first by one pass over all training rows with q fixed, the second because
the inner maximum has a closed form. For a network in training, :func:`training_stationarity` measures both; there is no
bound beside it.

**The bound** is for plain stochastic descent in θ and projected ascent in q, with steps :math:`\eta_\theta` and
:math:`\eta_q \le 1/\lambda`, and :math:`D = \tfrac12\|q - p\|^2`, :math:`\lambda > 0`. Constants and argument are our
own, not the paper's; the argument is standard (Lin, Jin & Jordan 2020), and the paper's may differ. Assume that every
:math:`\ell_e` has an L-Lipschitz gradient; the vector of losses changes by at most J times what θ changes by; the
stochastic gradients are unbiased with :math:`E\|g_\theta\|^2 \le G_\theta^2`, :math:`E\|g_q\|^2 \le G_q^2`; and
:math:`\Phi(\theta) = \max_q R(\theta, q)` starts at most A above its infimum. Then, on average over the T iterates,

.. math:: E[\delta_t] \le \bar\delta = \frac1{\eta_q T} + \frac{\eta_q G_q^2}2
          + \frac{J^2 G_\theta^2 \eta_\theta^2}{2\lambda^3\eta_q^2} ,\qquad
          E\|\nabla_\theta R(\theta_t, q_t)\|^2 \le \bar\varepsilon^2 = \frac{2A}{\eta_\theta T}
          + \Big(L + \frac{J^2}\lambda\Big) \eta_\theta G_\theta^2 + \frac{2J^2}\lambda\,\bar\delta .

**Proof.** The best response :math:`q^*_t` is a projection of :math:`p + \ell/\lambda`, so it moves by at most
:math:`J/\lambda` times what θ moves by. R is λ-strongly concave in q, so a projected step gives
:math:`2\eta_q \delta_t \le (1 - \eta_q\lambda)\|q_t - q^*_t\|^2 - E\|q_{t+1} - q^*_t\|^2 + \eta_q^2 G_q^2`. Young's
inequality puts :math:`q^*_{t+1}` in place of :math:`q^*_t` for :math:`J^2 G_\theta^2\eta_\theta^2 / (\lambda^3\eta_q)`,
and the sum over t telescopes from :math:`\|q_1 - q^*_1\|^2 \le 2`. The gradient of Φ is
:math:`\nabla_\theta R(\theta, q^*)`, Lipschitz with :math:`L + J^2/\lambda` and within :math:`J\|q^* - q\|` of
:math:`\nabla_\theta R(\theta, q)`, where :math:`\|q^* - q\|^2 \le 2\delta/\lambda`; the descent lemma for Φ does
the rest.

**The rate.** :math:`\eta_\theta \propto T^{-3/5}` and :math:`\eta_q \propto T^{-2/5}` balance the terms:
:math:`\bar\varepsilon = O(T^{-1/5})` and :math:`\bar\delta = O(T^{-2/5})`. At :math:`\lambda = 0` there is no such
bound: the best response may jump.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from toporo.checks import one_of, positive
from toporo.data import GroupedData, tensors
from toporo.errors import SettingError
from toporo.objectives import TRO, GroupDRO, WeightedObjective
from toporo.paper.theory.ball import BallProblem, inner_suboptimality
from toporo.paper.theory.rates import Rate, descent_ascent


class Stationarity(NamedTuple):
    r"""Both quantities of Theorem 2, or bounds on them.

    Attributes
    ----------
    gradient_norm : :math:`\|\nabla_\theta R(\theta, q)\|`.
    dual_suboptimality : :math:`\max_{q'} R(\theta, q') - R(\theta, q)`.
    """

    gradient_norm: float
    dual_suboptimality: float


# ---------------------------------------------------------------- while a network trains


def training_stationarity(
    model: nn.Module, objective: WeightedObjective, data: GroupedData, loss: Callable[[Tensor, Tensor], Tensor]
) -> Stationarity:
    """Measure both quantities of Theorem 2 at a model and the objective's present q, in one pass over all rows.

    Call it from ``fit(evaluate=...)``, which puts the model into evaluation mode. Gradients that the parameters hold
    are not touched.

    Parameters
    ----------
    model : the network.
    objective : the objective it is trained with: group DRO, or TRO with a finite penalty and no radius.
    data : the training rows.
    loss : per-sample task loss, as for :func:`toporo.training.fit`.

    >>> data = GroupedData.from_arrays([[0.0], [1.0]], [0.0, 1.0], ["a", "b"])
    >>> exact = nn.Linear(1, 1)
    >>> exact.weight.data[:], exact.bias.data[:] = 1.0, 0.0
    >>> training_stationarity(exact, TRO({"a": 0.5, "b": 0.5}), data, lambda outputs, y: (outputs[:, 0] - y) ** 2)
    Stationarity(gradient_norm=0.0, dual_suboptimality=0.0)
    """
    if isinstance(objective, TRO) and objective.radius is None and math.isfinite(objective.penalty):
        penalty, divergence = objective.penalty, objective.divergence
    elif isinstance(objective, GroupDRO):
        penalty, divergence = 0.0, "l2"
    else:
        raise SettingError(
            f"the inner maximum of {type(objective).__name__} is not known: Theorem 2 is measured for GroupDRO, and "
            "for TRO with a finite penalty and no radius."
        )
    q = data.groups.align(objective.weights, what=f"the groups of {type(objective).__name__}")
    prior = data.groups.align(objective.prior.weights, what="the prior")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    counts = np.bincount(data.codes)
    x, y, _ = tensors(data, parameters[0].device)
    with torch.enable_grad():
        values = loss(model(x), y)
        total = (values * torch.as_tensor((q / counts)[data.codes]).to(values)).sum()
        gradient = torch.autograd.grad(total, parameters, allow_unused=True)
    losses = np.bincount(data.codes, values.detach().double().cpu().numpy()) / counts
    norm = math.sqrt(sum(float(part.double().square().sum()) for part in gradient if part is not None))
    return Stationarity(norm, float(inner_suboptimality(losses, q, prior, penalty, divergence)))


# ---------------------------------------------------------------- the bound


@dataclass(frozen=True)
class SmoothConstants:
    r"""Constants of a problem in the bound of Theorem 2.

    Attributes
    ----------
    smoothness, jacobian : L and J.
    theta, q : :math:`G_\theta` and :math:`G_q`.
    above : A, the height of Φ above its infimum at the start.
    penalty : λ.
    """

    smoothness: float
    jacobian: float
    theta: float
    q: float
    above: float
    penalty: float

    def step_sizes(self, steps: int) -> tuple[float, float]:
        r""":math:`\eta_\theta = a\,T^{-3/5}` and :math:`\eta_q = b\,T^{-2/5}`, but at most :math:`1/\lambda`.

        :math:`k^3 = 2 J^2 G_\theta^2 / (\lambda^3 G_q^2)`, :math:`a^{5/3} = 2 A \lambda / (J^2 G_q^2 k)` and
        :math:`b = k\,a^{2/3}` minimise the bound on the gradient without its terms of lower order.
        """
        k = (2.0 * (self.jacobian * self.theta / self.q) ** 2 / self.penalty**3) ** (1 / 3)
        a = (2.0 * self.above * self.penalty / (k * (self.jacobian * self.q) ** 2)) ** (3 / 5)
        return a * steps ** (-3 / 5), min(k * a ** (2 / 3) * steps ** (-2 / 5), 1.0 / self.penalty)

    def bound(self, steps: int, sizes: tuple[float, float]) -> Stationarity:
        r""":math:`\bar\varepsilon` and :math:`\bar\delta` after T steps of these sizes.

        >>> ours = SmoothConstants(smoothness=1.0, jacobian=1.0, theta=1.0, q=2.0, above=1.0, penalty=1.0)
        >>> bound = ours.bound(steps=100, sizes=(0.02, 0.1))
        >>> round(bound.dual_suboptimality, 6), round(bound.gradient_norm**2, 6)
        (0.32, 1.68)
        """
        eta_theta, eta_q = sizes
        drift = (self.jacobian * self.theta * eta_theta / eta_q) ** 2 / (2.0 * self.penalty**3)
        delta = 1.0 / (eta_q * steps) + eta_q * self.q**2 / 2.0 + drift
        bend = self.smoothness + self.jacobian**2 / self.penalty
        descent = 2.0 * self.above / (eta_theta * steps) + bend * eta_theta * self.theta**2
        return Stationarity(math.sqrt(descent + 2.0 * self.jacobian**2 / self.penalty * delta), delta)


def sigmoid_constants(problem: BallProblem) -> SmoothConstants:
    r"""Return constants of a linear model with the sigmoid loss and λ > 0, proven for all θ.

    The loss lies between 0 and 1, its slope within 1/4, its curvature within :math:`1/(6\sqrt3)`. A constant added to
    all of :math:`g_q` changes no projected step, so one half is subtracted from every loss, and
    :math:`G_q = \tfrac12\sqrt m + \lambda\max_e\|1_e - p\|`. At θ = 0 all losses are 1/2, so A = 1/2.
    """
    one_of(problem.loss, "loss with known constants", ("sigmoid",))
    positive(problem.penalty, "penalty", "a positive number: at λ = 0 Theorem 2 has no bound here")
    norms = np.linalg.norm(problem.data.x, axis=1)
    mean, mean_square = problem.group_means(norms), problem.group_means(norms**2)
    return SmoothConstants(
        smoothness=float(mean_square.max()) / (6.0 * math.sqrt(3.0)),
        jacobian=float(np.linalg.norm(mean)) / 4.0,
        theta=math.sqrt(mean_square.max()) / 4.0,
        q=0.5 * math.sqrt(len(problem.data.groups)) + problem.penalty * problem.farthest_vertex,
        above=0.5,
        penalty=problem.penalty,
    )


def measure_stationarity(
    problem: BallProblem, horizons: Sequence[int], seeds: Sequence[int] = range(10)
) -> tuple[Rate, Rate]:
    r"""Run Theorem 2 with the sigmoid loss: both quantities for every T and seed, and the bound on each.

    The first rate is that of :math:`(\frac1T\sum_t \|\nabla_\theta R(\theta_t, q_t)\|^2)^{1/2}`, the second that of
    :math:`\frac1T\sum_t \delta_t`.

    Parameters
    ----------
    problem : as for :func:`sigmoid_constants`.
    horizons : numbers of steps T, increasing, at least two.
    seeds : one run each, at every T.
    """
    constants, means, bounds = sigmoid_constants(problem), [], []
    for steps in horizons:
        sizes = constants.step_sizes(steps)
        mean = np.zeros((2, len(seeds)))
        for theta, q in zip(*descent_ascent(problem, steps, sizes, seeds), strict=True):
            gap = inner_suboptimality(problem.losses(theta), q, problem.p, problem.penalty)
            mean += np.stack([(problem.gradient(theta, q) ** 2).sum(axis=-1), gap]) / steps
        means.append(mean)
        bounds.append(constants.bound(steps, sizes))
    squares, dual = np.array(means).swapaxes(0, 1)
    about = problem.loss, problem.penalty, asdict(constants), horizons
    norm_bounds, dual_bounds = np.array(bounds).T
    return (
        Rate("gradient_norm", *about, np.sqrt(squares), norm_bounds, power=2),
        Rate("dual_suboptimality", *about, dual, dual_bounds),
    )
