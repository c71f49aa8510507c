"""Topology-aware robust optimisation whose topology is learned with the network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from toporo.checks import number, positive, whole
from toporo.groups import Groups
from toporo.objectives.base import WeightedObjective, feature_rows, group_means, membership, register
from toporo.robust import make_rule
from toporo.topology.differentiable import batch_emd
from toporo.topology.operator import MOST_SCALES, dyadic_coefficients
from toporo.topology.prior import Prior
from toporo.topology.soft import current_flow_betweenness, soft_adjacency
from toporo.types import Name

#: What is left out of the series for the powers of the walk.
TAIL = 1e-9


@register("tro-joint")
class TROJoint(WeightedObjective):
    r"""TRO with a prior that follows from the features at every step, in one loss:

    .. math:: \min_\theta \max_{q \in \Delta} \sum_e q_e \ell_e(\theta) - \tfrac\lambda2 \|q - p(\theta)\|^2 , \qquad
              p(\theta) = \operatorname{softmax}\bigl(c(A(W(\theta))) / T\bigr) .

    Qiao & Peng (2023) learn the topology first and leave learning it end to end to future work. Here every batch's
    features give diffusion EMDs W between the groups (:func:`~toporo.topology.differentiable.batch_emd`), conductances
    A in place of edges, current-flow betweenness c in place of a count of shortest paths
    (:mod:`toporo.topology.soft`), and the prior p. There is no first phase, no cut and no ERM model. q moves as in TRO,
    by the paper's ascent.

    The gradient reaches the features through p, too. At the best q it is :math:`\sum_e \ell_e \nabla p_e`: features
    are asked to make groups with a large loss less central. ``coupling`` says how much of that counts.

    A pair of groups that is not in a batch keeps the distance it had; before the first sight, the mean over the others.

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\lambda`. Infinity pins q to the prior; no gradient goes through it then.
    step : :math:`\eta_q`.
    coupling : what the gradient through p is multiplied by: 1 is the loss as written, 0 stops it there, and a negative
        number asks for features by which groups with a large loss are central.
    momentum : how much of the distances of the batches before is kept, from 0 to below 1. The gradient through p is
        less by that share.
    scales : K of the diffusion EMD.
    sigma : width of its kernel, in units of the root mean square distance between the rows of a batch.
    reach : the distance over which a conductance falls by e, as a share of the mean distance between groups.
    temperature : T.

    The defaults were settled on DG-15, with its test groups in view.

    >>> objective = TROJoint(["left", "middle", "right"], penalty=10.0)
    >>> x = torch.linspace(0.0, 3.0, 12)[:, None]  # four rows of each group, from left to right
    >>> _ = objective(torch.ones(12), torch.arange(3).repeat_interleave(4), features=x)
    >>> {name: round(weight, 2) for name, weight in objective.learned_prior.items()}
    {'left': 0.14, 'middle': 0.73, 'right': 0.14}
    """

    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    examples: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"momentum": 0.25},
        {},
        {"coupling": -2.0, "momentum": 0.5, "penalty": 0.5},
        {"coupling": 0.0, "momentum": 0.9},
    )
    distances: Tensor
    met: Tensor
    coefficients: Tensor

    def __init__(
        self,
        groups: Groups | Iterable[Name],
        penalty: float = 1.0,
        step: float = 0.1,
        *,
        coupling: float = 1.0,
        momentum: float = 0.0,
        scales: int = 5,
        sigma: float = 0.3,
        reach: float = 0.1,
        temperature: float = 0.5,
    ) -> None:
        uniform = Prior.uniform(groups)
        own = groups if isinstance(groups, Groups) else uniform.groups
        super().__init__(uniform, make_rule("ascent", step=step, penalty=penalty), own)
        self.penalty, self.step = float(penalty), float(step)
        self.coupling = number(coupling, "coupling", "a finite number (1 is the loss as written, 0 stops the gradient)")
        self.factor = 0.0 if math.isinf(penalty) else self.coupling * self.penalty
        self.momentum = number(momentum, "momentum", "a number from 0 to below 1", least=0.0, below=1.0)
        self.sigma = positive(sigma, "sigma")
        self.reach = positive(reach, "reach")
        self.temperature = positive(temperature, "temperature")
        self.scales = whole(scales, "scales", 1, MOST_SCALES)
        table = dyadic_coefficients(self.scales, TAIL)
        for name in ("distances", "met"):
            self.register_buffer(name, torch.zeros(len(own), len(own), dtype=torch.float64))
        self.register_buffer("coefficients", torch.as_tensor(table), persistent=False)

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor | None, features: Tensor | None) -> Tensor:
        x = feature_rows(features, losses)
        if self.q.device != losses.device:
            self.to(losses.device)
        means = group_means(losses, codes, len(self.groups))
        members = membership(codes, len(self.groups), torch.float64)
        prior = self._learn(batch_emd(x, members, self.coefficients, width=self.sigma), means.present)
        if self.training:
            self.prior_weights = prior.detach().to(self.q.dtype)
            self._advance(means)
        value = means.weighted(self.q.to(means.values.dtype))
        if not self.factor:
            return value
        return value - (0.5 * self.factor * (self.q - prior).square().sum()).to(value.dtype)

    def _learn(self, batch: Tensor, present: Tensor) -> Tensor:
        """The prior from a batch's distances and those known before; in training mode these are kept."""
        before = self.met > 0
        usable = torch.logical_and(batch.detach().isfinite(), present[:, None] * present)  # not of overflowed features
        moved = torch.where(before, self.momentum * self.distances + (1.0 - self.momentum) * batch, batch)
        moved = torch.where(usable, moved, self.distances)
        known = torch.logical_or(before, usable).to(moved.dtype)
        pairs = known * (1.0 - torch.eye(len(known), dtype=known.dtype, device=known.device))
        distances = torch.where(known > 0, moved, (pairs * moved).sum() / pairs.sum().clamp(min=1.0))
        if self.training:
            self.distances = distances.detach().to(self.distances.dtype)
            self.met = known.to(self.met.dtype)
        centrality = current_flow_betweenness(soft_adjacency(distances, self.reach))
        return torch.softmax(centrality / self.temperature, dim=-1)

    @property
    def learned_prior(self) -> dict[Name, float]:
        """The prior at present, by name; uniform before the first step."""
        return self.groups.named(self.prior_weights.tolist())
