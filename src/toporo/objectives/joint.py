"""Topology-aware robust optimisation whose topology is learned with the network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from toporo.checks import number, positive, whole
from toporo.groups import Groups
from toporo.objectives.base import GroupMeans, WeightedObjective, feature_rows, group_means, membership, register
from toporo.robust import make_rule
from toporo.topology.differentiable import batch_emd
from toporo.topology.operator import FINEST_TAIL, MOST_SCALES, dyadic_coefficients
from toporo.topology.prior import Prior
from toporo.topology.soft import current_flow_betweenness, soft_adjacency
from toporo.types import Name


@register("tro-joint")
class TROJoint(WeightedObjective):
    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    examples: ClassVar[Sequence[Mapping[str, Any]]] = ({}, {"agreement": 5.0, "penalty": 0.5}, {"agreement": -2.0, "warm": 2})
    distances: Tensor
    met: Tensor
    steps: Tensor
    coefficients: Tensor

    def __init__(
        self,
        groups: Groups | Iterable[Name],
        penalty: float = 1.0,
        step: float = 0.1,
        *,
        agreement: float = 0.0,
        warm: int = 0,
        momentum: float = 0.9,
        reach: float = 0.2,
        width: float = 0.5,
        scales: int = 5,
        temperature: float = 1.0,
    ) -> None:
        own = groups if isinstance(groups, Groups) else Groups(groups)
        super().__init__(Prior.uniform(own), make_rule("ascent", step=step, penalty=penalty), own)
        self.agreement = number(agreement, "agreement", "a finite number")
        self.ramp = whole(warm, "ramp", 0)
        self.momentum = number(momentum, "momentum", "a number from 0 to below 1", least=0.0, below=1.0)
        self.reach = positive(reach, "reach")
        self.width = positive(width, "sigma")
        self.temperature = positive(temperature, "temperature")
        scales = whole(scales, "scales", 1, MOST_SCALES)
        m = len(own)
        self.register_buffer("distances", torch.zeros(m, m, dtype=torch.float64))
        self.register_buffer("met", torch.zeros(m, m, dtype=torch.float64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        table = torch.as_tensor(dyadic_coefficients(scales, 1e-9))
        self.register_buffer("coefficients", table, persistent=False)

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor | None, features: Tensor | None) -> Tensor:
        x = feature_rows(features, losses)
        if self.q.device != losses.device:
            self.to(losses.device)
        means = group_means(losses, codes, len(self.groups))
        members = membership(codes, len(self.groups), torch.float64)
        distances, usable = self._mixed(batch_emd(x, members, self.coefficients, width=self.width), means.present)
        centrality = current_flow_betweenness(soft_adjacency(distances, self.reach))
        prior = torch.softmax(centrality / self.temperature, dim=-1)
        ready = (self.steps >= self.ramp).to(prior.dtype)
        prior = ready * prior + (1.0 - ready) / len(self.groups)
        if self.training:
            self.distances = distances.detach().to(self.distances.dtype)
            self.met = torch.maximum(self.met, usable)
            self.prior_weights = prior.detach().to(self.q.dtype)
            self.steps = self.steps + 1
            self._advance(means)
        q = self.q.to(means.values.dtype)
        value = means.weighted(q)
        if self.agreement:
            apart = 0.5 * (self.q - prior).square().sum()
            value = value + self.agreement * apart.to(value.dtype)
        return value

    def _mixed(self, batch, present):
        pair = (present[:, None] * present).to(self.met.dtype)
        usable = torch.logical_and(batch.detach().isfinite(), pair)
        before = self.met > 0
        new = torch.where(before, self.momentum * self.distances + (1.0 - self.momentum) * batch, batch)
        mixed = torch.where(usable, new, self.distances)
        known = torch.logical_or(usable, before).to(mixed.dtype)
        off = known * (1.0 - torch.eye(len(mixed), dtype=mixed.dtype, device=mixed.device))
        typical = (off * mixed).sum() / off.sum().clamp(min=1.0)
        return torch.where(known > 0, mixed, typical), usable.to(self.met.dtype)
