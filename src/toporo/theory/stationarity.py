r"""Theorem 2, executable: how near a non-convex training run is to a stationary point.

The theorem is about points :math:`(\theta, q)` with

.. math:: \|\nabla_\theta R(\theta, q)\| \le \varepsilon,\qquad
          \max_{q' \in \Delta} R(\theta, q') - R(\theta, q) \le \delta,\qquad
          R(\theta, q) = \sum_e q_e \ell_e(\theta) - \lambda D(q\|p) .

Both left-hand sides can be measured: the first by one pass over all training rows with q held still, the second because
the inner maximum has a closed form. What they come to while a network trains is a measurement; the theorem's rate is
for plain SGD with its own step sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toporo.checks import whole
from toporo.data.batches import tensors
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, SettingError
from toporo.objectives import IWERM, GroupDRO, Objective, WeightedObjective
from toporo.robust import best_response, constrained_response, get_divergence

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

    >>> from toporo.models import MLP
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
