r"""Theorem 2, executable: how near a non-convex training run is to a stationary point, and what bounds that.

The theorem is about points :math:`(\theta, q)` with

.. math:: \|\nabla_\theta R(\theta, q)\| \le \varepsilon,\qquad
          \max_{q' \in \Delta} R(\theta, q') - R(\theta, q) \le \delta,\qquad
          R(\theta, q) = \sum_e q_e \ell_e(\theta) - \lambda D(q\|p) .

Both left-hand sides can be measured: the first by one pass over all training rows with q held still, the second because
the inner maximum has a closed form. What they come to while a network trains (:class:`Stationarity`) is a measurement.

**The bound** is for plain stochastic descent in θ and projected ascent in q, with steps :math:`\eta_\theta` and
:math:`\eta_q \le 1/\lambda`, and :math:`D = \tfrac12\|q - p\|^2`, :math:`\lambda > 0`. Constants and argument are our
own, and the argument is standard (Lin, Jin & Jordan 2020); those of the paper's proof may differ. Assumed: every
:math:`\ell_e` has an L-Lipschitz gradient; the vector of losses changes by at most J times what θ changes by; the
stochastic gradients are unbiased with :math:`E\|g_\theta\|^2 \le G_\theta^2`, :math:`E\|g_q\|^2 \le G_q^2`; and
:math:`\Phi(\theta) = \max_q R(\theta, q)` starts at most A above its infimum. Then, on average over the T iterates,

.. math:: E[\delta_t] \le \bar\delta = \frac1{\eta_q T} + \frac{\eta_q G_q^2}2
          + \frac{J^2 G_\theta^2 \eta_\theta^2}{2\lambda^3\eta_q^2} ,\qquad
          E\|\nabla_\theta R(\theta_t, q_t)\|^2 \le \bar\varepsilon^2 = \frac{2A}{\eta_\theta T}
          + \Big(L + \frac{J^2}\lambda\Big) \eta_\theta G_\theta^2 + \frac{2J^2}\lambda\,\bar\delta .

*Why.* The best response :math:`q^*_t` is a projection of :math:`p + \ell/\lambda`, so it moves by at most
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toporo.checks import positive, whole
from toporo.data.batches import tensors
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, SettingError
from toporo.objectives import IWERM, GroupDRO, Objective, WeightedObjective
from toporo.paper.theory.ball import BallProblem
from toporo.paper.theory.convergence import check_horizons, log_slopes, seed_keys
from toporo.robust import best_response, constrained_response, get_divergence, project_simplex
from toporo.types import Array

Evaluate = Callable[[nn.Module], dict[str, Any]]


@dataclass(frozen=True)
class StationarityPoint:
    """Both quantities of Theorem 2 at one model and one q.

    Attributes
    ----------
    gradient_norm, dual_suboptimality : the two left-hand sides.
    """

    gradient_norm: float
    dual_suboptimality: float


class Stationarity:
    """Measures both quantities of Theorem 2 while a model trains; goes where ``train(evaluate=…)`` wants a function.

    Parameters
    ----------
    objective : the one being trained with, whose q, prior, penalty and divergence are read at every call:
        TRO (any update and divergence), group DRO or IW-ERM.
    data : the training rows.
    loss : per-sample task loss, as for :func:`toporo.training.train`.
    then : another ``evaluate`` to call as well; what it returns is kept beside ours.
    rows : rows a pass works on at a time.

    Nothing is touched: not the model's mode nor its gradients, not q, not the random state.

    >>> from toporo.training import MLP
    >>> from toporo.objectives import TRO
    >>> from toporo.training import TrainSettings, train
    >>> data = GroupedData.from_arrays([[0.0], [1.0], [2.0]], [0, 1, 1], ["a", "a", "b"])
    >>> objective = TRO({"a": 0.5, "b": 0.5})
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> history = train(MLP(1, 2, (4,)), objective, data, loss, TrainSettings(rounds=2, per_group=1),
    ...                 evaluate=Stationarity(objective, data, loss))
    >>> sorted(history[-1].metrics)
    ['dual_suboptimality', 'gradient_norm']
    """

    def __init__(
        self,
        objective: Objective,
        data: GroupedData,
        loss: Callable[[Tensor, Tensor], Tensor],
        *,
        then: Evaluate | None = None,
        rows: int = 65_536,
    ) -> None:
        if not isinstance(objective, WeightedObjective):
            raise SettingError(
                f"{type(objective).__name__} has no weights q: Theorem 2 is about objectives with an inner maximum, "
                "such as TRO or GroupDRO."
            )
        _inner_settings(objective)  # an objective that cannot be measured is an error now, not after an epoch
        data.groups.require_same(objective.groups, what=f"the groups of {type(objective).__name__}")
        self._objective, self._data, self._loss, self._then = objective, data, loss, then
        self._rows = whole(rows, "rows", 1)
        self._codes = torch.as_tensor(objective.groups.encode(data.groups))[torch.as_tensor(data.codes)]
        self._counts = torch.bincount(self._codes, minlength=len(objective.groups)).to(torch.float64)

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        """Both quantities, as ``train`` wants them, and what ``then`` found."""
        ours = asdict(self.measure(model))
        theirs = self._then(model) if self._then is not None else {}
        both = sorted(ours.keys() & theirs.keys())
        if both:
            raise SettingError(f"the other evaluation returns {', '.join(both)} too: give its results other names.")
        return ours | theirs

    def measure(self, model: nn.Module) -> StationarityPoint:
        """Both quantities for this model and the objective's present q."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not parameters:
            raise DataError("the model has no parameters that are trained: there is no gradient to measure.")
        q = self._objective.q.detach().to("cpu", torch.float64)
        with _undisturbed(model):
            losses, gradient = self._pass(model, parameters, (q / self._counts)[self._codes])
        norm = math.sqrt(sum(float(part.double().square().sum()) for part in gradient))
        return StationarityPoint(norm, inner_suboptimality(self._objective, losses.numpy(), q.numpy()))

    def _pass(self, model: nn.Module, parameters: list[nn.Parameter], weights: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The groups' mean losses, and the gradient of their sum weighted by q."""
        device = parameters[0].device
        x, y, _ = tensors(self._data, device)
        gradient = [torch.zeros_like(parameter) for parameter in parameters]
        losses = torch.zeros(len(self._objective.groups), dtype=torch.float64)
        for start in range(0, len(x), self._rows):
            part = slice(start, start + self._rows)
            values = self._loss(model(x[part]), y[part])
            if values.shape != (len(x[part]),):
                raise DataError(
                    f"the loss has shape {tuple(values.shape)} for {len(x[part])} rows: give one value per row "
                    "(reduction='none')."
                )
            losses.index_add_(0, self._codes[part], values.detach().to("cpu", torch.float64))
            total = (values * weights[part].to(values)).sum()
            slopes = torch.autograd.grad(total, parameters, allow_unused=True)
            for into, more in zip(gradient, slopes, strict=True):
                if more is not None:
                    into += more
        return losses / self._counts, gradient


def inner_suboptimality(objective: WeightedObjective, losses: Any, q: Any) -> float:
    r""":math:`\max_{q'} R(\theta, q') - R(\theta, q)` for the groups' losses at θ, by the objective's inner problem.

    With ``update="constrained"`` the maximum is over :math:`D(q'\|p) \le \tau` and nothing is subtracted; with an
    infinite penalty only the prior is admitted and the result is 0.

    Parameters
    ----------
    objective : TRO, group DRO or IW-ERM.
    losses, q : by group, in the order of ``objective.groups``.
    """
    penalty, radius, divergence = _inner_settings(objective)
    losses, q = np.asarray(losses, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if losses.shape != (len(objective.groups),) or q.shape != losses.shape:
        raise DataError(
            f"losses have shape {losses.shape} and q {q.shape}: expected one value for each of the "
            f"{len(objective.groups)} groups."
        )
    if not np.isfinite(losses).all():
        raise DataError("a group's loss is not finite: lower the learning rate, or check the inputs' scale.")
    prior = objective.prior_weights.detach().cpu().numpy()
    if radius is not None:
        worst = prior if radius == 0 else constrained_response(losses, prior, radius, divergence)
        return float(max((worst - q) @ losses, 0.0))
    if math.isinf(penalty):
        return 0.0
    chosen = get_divergence(divergence)
    worst = best_response(losses, prior, penalty, chosen)
    cost = penalty * (chosen.value(worst, prior) - chosen.value(q, prior)) if penalty else 0.0
    return float(max((worst - q) @ losses - cost, 0.0))


def _inner_settings(objective: WeightedObjective) -> tuple[float, float | None, str]:
    """λ, τ (None without a constraint) and the divergence of an objective's inner maximum."""
    settings = objective.settings
    if isinstance(objective, GroupDRO):
        return 0.0, None, "l2"
    if isinstance(objective, IWERM):
        return math.inf, None, "l2"
    if "penalty" not in settings:
        raise SettingError(
            f"{type(objective).__name__} does not say in its settings which penalty keeps q near the prior: the inner "
            "maximum is known for TRO, GroupDRO and IWERM."
        )
    return float(settings["penalty"]), settings.get("radius"), str(settings.get("divergence", "l2"))


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode with gradients on; every part's own mode and the random state are put back."""
    modes = [(part, part.training) for part in model.modules()]
    cuda = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=cuda), torch.enable_grad():
        model.eval()
        try:
            yield
        finally:
            for part, before in modes:
                part.training = before


# ---------------------------------------------------------------- the right-hand side


@dataclass(frozen=True)
class SmoothConstants:
    r"""What the bound at the head of this module knows of a problem.

    Parameters
    ----------
    smoothness, jacobian : L and J.
    theta, q : :math:`G_\theta` and :math:`G_q`.
    above : A, how far Φ is above its infimum at the start.
    penalty : λ.
    """

    smoothness: float
    jacobian: float
    theta: float
    q: float
    above: float
    penalty: float

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            positive(value, name)


def stationarity_steps(constants: SmoothConstants, steps: int) -> tuple[float, float]:
    r""":math:`\eta_\theta = a\,T^{-3/5}` and :math:`\eta_q = b\,T^{-2/5}`, but at most :math:`1/\lambda`.

    With :math:`k^3 = 2 J^2 G_\theta^2 / (\lambda^3 G_q^2)`, :math:`a^{5/3} = 2 A \lambda / (J^2 G_q^2 k)` and
    :math:`b = k\,a^{2/3}` make the bound on the gradient least, its terms of lower order left aside.

    Parameters
    ----------
    constants, steps : of the problem, and T.
    """
    c, t = constants, whole(steps, "steps", 1)
    k = (2.0 * (c.jacobian * c.theta / c.q) ** 2 / c.penalty**3) ** (1 / 3)
    a = (2.0 * c.above * c.penalty / (k * (c.jacobian * c.q) ** 2)) ** (3 / 5)
    return a * t ** (-3 / 5), min(k * a ** (2 / 3) * t ** (-2 / 5), 1.0 / c.penalty)


def stationarity_bound(
    constants: SmoothConstants, steps: int, sizes: tuple[float, float] | None = None
) -> StationarityPoint:
    r""":math:`\bar\varepsilon` and :math:`\bar\delta` of the bound at the head of this module.

    Parameters
    ----------
    constants, steps : of the problem, and T.
    sizes : :math:`\eta_\theta` and :math:`\eta_q`; :func:`stationarity_steps` unless given.

    >>> ours = SmoothConstants(smoothness=1.0, jacobian=1.0, theta=1.0, q=2.0, above=1.0, penalty=1.0)
    >>> bound = stationarity_bound(ours, steps=100, sizes=(0.02, 0.1))
    >>> round(bound.dual_suboptimality, 6), round(bound.gradient_norm**2, 6)
    (0.32, 1.68)
    """
    c, t = constants, whole(steps, "steps", 1)
    eta_theta, eta_q = sizes or stationarity_steps(c, t)
    if positive(eta_q, "η_q") * c.penalty > 1.0 + 1e-12:
        raise SettingError(f"η_q is {eta_q:g}: the bound is for steps of at most 1/λ = {1.0 / c.penalty:g}.")
    drift = (c.jacobian * c.theta * positive(eta_theta, "η_θ") / eta_q) ** 2 / (2.0 * c.penalty**3)
    delta = 1.0 / (eta_q * t) + eta_q * c.q**2 / 2.0 + drift
    bend = c.smoothness + c.jacobian**2 / c.penalty
    square = 2.0 * c.above / (eta_theta * t) + bend * eta_theta * c.theta**2 + 2.0 * c.jacobian**2 / c.penalty * delta
    return StationarityPoint(math.sqrt(square), delta)


# ---------------------------------------------------------------- a problem whose constants are known


def _sigmoid_loss(margins: Array) -> tuple[Array, Array]:
    r""":math:`\sigma(-yz)` of margins yz, and its derivative in them."""
    values = 0.5 * (1.0 - np.tanh(0.5 * margins))
    return values, values * (values - 1.0)


@dataclass(frozen=True, eq=False)
class SigmoidProblem:
    r"""A linear model, free to go anywhere, with the loss :math:`\sigma(-y\,\theta^\top x)`: bounded and not convex.

    Attributes
    ----------
    rows : a problem whose rows, prior and λ are meant, and neither its loss nor its ball; λ > 0, targets -1 and 1.
    """

    rows: BallProblem

    def __post_init__(self) -> None:
        positive(self.rows.penalty, "penalty", "a positive number: at λ = 0 Theorem 2 has no bound here")
        if set(np.unique(self.rows.y)) != {-1.0, 1.0}:
            raise DataError("the sigmoid loss is for targets -1 and 1.")

    @property
    def constants(self) -> SmoothConstants:
        r"""By proof, everywhere: the loss lies between 0 and 1, its slope within 1/4, its curvature within
        :math:`1/(6\sqrt3)`.

        A constant added to all of :math:`g_q` changes no projected step. So one half is taken off every loss, and
        :math:`G_q = \tfrac12\sqrt m + \lambda\max_e\|1_e - p\|`. At θ = 0 all losses are 1/2, so A = 1/2.
        """
        rows, m = self.rows, len(self.rows.groups)
        norms = np.linalg.norm(rows.x, axis=1)
        mean, square = (np.add.reduceat(norms**k * rows.row_shares, rows.starts) for k in (1, 2))
        farthest = float(np.linalg.norm(np.eye(m) - rows.prior, axis=1).max())
        return SmoothConstants(
            smoothness=float(square.max()) / (6.0 * math.sqrt(3.0)),
            jacobian=float(np.linalg.norm(mean)) / 4.0,
            theta=math.sqrt(square.max()) / 4.0,
            q=0.5 * math.sqrt(m) + rows.penalty * farthest,
            above=0.5,
            penalty=rows.penalty,
        )

    def measure(self, theta: Array, q: Array) -> tuple[Array, Array]:
        """The squared norm of the gradient in θ, and the sub-optimality of q; a leading axis runs over points."""
        rows = self.rows
        values, slopes = _sigmoid_loss(rows.y * (theta @ rows.x.T))
        gradient = (slopes * rows.y * rows.row_weights(q)) @ rows.x
        losses = np.add.reduceat(values * rows.row_shares, rows.starts, axis=-1)
        worst = best_response(losses, rows.prior, rows.penalty)
        higher, here = ((w * losses).sum(axis=-1) - rows.penalty * rows.divergence(w) for w in (worst, q))
        return (gradient**2).sum(axis=-1), np.maximum(higher - here, 0.0)

    def descend(self, steps: int, sizes: tuple[float, float], seeds: Sequence[int]) -> tuple[Array, Array]:
        """Both quantities, averaged over the iterates of a run, by seed; one row of each group is drawn per step."""
        rows, k = self.rows, len(seeds)
        theta, q = np.zeros((k, rows.x.shape[1])), np.tile(rows.prior, (k, 1))
        streams = [np.random.default_rng([seed, steps]) for seed in seeds]
        drawn = np.stack([rng.integers(0, rows.counts, (steps, len(rows.counts))) for rng in streams], axis=1)
        sums = np.zeros((2, k))
        for chosen in drawn + rows.starts:
            sums += self.measure(theta, q)
            x, y = rows.x[chosen], rows.y[chosen]
            losses, slopes = _sigmoid_loss(y * (x @ theta[:, :, None])[..., 0])
            theta = theta - sizes[0] * ((slopes * y * q)[:, None, :] @ x)[:, 0]
            q = project_simplex(q + sizes[1] * (losses - rows.penalty * (q - rows.prior)))
        return sums[0] / steps, sums[1] / steps


@dataclass(frozen=True, eq=False)
class StationarityRates:
    r"""Both sides of Theorem 2 by the number of steps.

    Attributes
    ----------
    horizons, seeds : T, increasing, and the seeds; every T is runs of its own.
    gradient_norm : :math:`(\frac1T\sum_t \|\nabla_\theta R(\theta_t, q_t)\|^2)^{1/2}`, (T, seeds).
    dual_suboptimality : :math:`\frac1T\sum_t \delta_t`, (T, seeds).
    bounds : on both, by T.
    constants : behind steps and bounds.
    """

    horizons: tuple[int, ...]
    seeds: tuple[int, ...]
    gradient_norm: Array
    dual_suboptimality: Array
    bounds: tuple[StationarityPoint, ...]
    constants: SmoothConstants

    @property
    def sides(self) -> dict[str, tuple[Array, Array]]:
        """Left and right of both quantities by T; left is the (for gradients, quadratic) mean over seeds."""
        left = {
            "gradient_norm": np.sqrt((self.gradient_norm**2).mean(axis=1)),
            "dual_suboptimality": self.dual_suboptimality.mean(axis=1),
        }
        return {name: (mean, np.array([getattr(b, name) for b in self.bounds])) for name, mean in left.items()}

    @property
    def slopes(self) -> dict[str, tuple[float, float]]:
        """Of the logarithms of both sides on log T, over the upper half of the horizons."""
        both = {name: log_slopes(self.horizons, np.column_stack(pair)) for name, pair in self.sides.items()}
        return {name: (float(left), float(right)) for name, (left, right) in both.items()}

    @property
    def holds(self) -> bool:
        """Whether left is below right at every T."""
        return all(bool((left <= right).all()) for left, right in self.sides.values())

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {
            "constants": asdict(self.constants),
            "steps": list(self.horizons),
            "seeds": list(self.seeds),
            "gradient_norm": self.gradient_norm.tolist(),
            "dual_suboptimality": self.dual_suboptimality.tolist(),
            "bounds": [asdict(bound) for bound in self.bounds],
            "slopes": {name: list(pair) for name, pair in self.slopes.items()},
            "holds": self.holds,
        }


def measure_stationarity(
    problem: SigmoidProblem, horizons: Sequence[int], *, seeds: Sequence[int] = tuple(range(10))
) -> StationarityRates:
    """Run Theorem 2: descent and ascent with its steps for every T and seed, both quantities, and the bound on each.

    Parameters
    ----------
    problem : the problem.
    horizons : numbers of steps T, at least two.
    seeds : one run each, at every T.
    """
    steps, constants = check_horizons(horizons), problem.constants
    chosen = [key[0] for key in seed_keys(seeds)]
    squares, below = zip(*(problem.descend(t, stationarity_steps(constants, t), chosen) for t in steps), strict=True)
    return StationarityRates(
        horizons=tuple(steps),
        seeds=tuple(chosen),
        gradient_norm=np.sqrt(np.array(squares)),
        dual_suboptimality=np.array(below),
        bounds=tuple(stationarity_bound(constants, t) for t in steps),
        constants=constants,
    )
