"""Invariant risk minimisation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor

from toporo.checks import non_negative, number
from toporo.errors import DataError
from toporo.groups import Groups
from toporo.objectives.base import Objective, group_means, register
from toporo.types import Name


@register("irm")
class IRM(Objective):
    r"""Mean group loss plus the IRMv1 penalty (Arjovsky et al. 2019):

    .. math:: \min_\theta \frac1m \sum_e \ell_e(\theta)
              + \lambda \frac1m \sum_e \big( \partial_w\, \ell_e(w \cdot f_\theta)|_{w=1} \big)^2 .

    The derivative by a scale on the logits is :math:`\langle \partial \ell_i / \partial f_i, f_i \rangle` for each
    sample, so it works for any task loss, and for dense logits too: a loss that is a mean over pixels brings the mean
    along. (Scaling log-probabilities instead, as the paper's published code does, makes
    the penalty degenerate.)

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\lambda`.
    anneal : for this many steps the penalty counts as min(1, penalty), as in the authors' experiments. With
        a penalty above 1 the sum is divided by it afterwards, to keep the gradient's scale.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    steps: Tensor

    def __init__(self, groups: Groups | Iterable[Name], penalty: float = 1.0, anneal: int = 0) -> None:
        super().__init__(groups)
        self.penalty = non_negative(penalty, "penalty")
        self.anneal = int(number(anneal, "anneal", "a number of steps of at least 0", least=0))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor | None, features: Tensor | None) -> Tensor:
        if logits is None or not logits.requires_grad or not losses.requires_grad:
            raise DataError("IRM differentiates the losses by the logits: call it with gradients enabled.")
        if self.steps.device != losses.device:
            self.to(losses.device)
        (slope,) = torch.autograd.grad(losses.sum(), logits, create_graph=True, allow_unused=True)
        if slope is None:
            raise DataError("the losses do not come from these logits: give the very tensor they were computed from.")
        slope, logits = slope.to(losses.dtype), logits.to(losses.dtype)
        by_scale = (slope * logits).flatten(1).sum(dim=1) if logits.ndim > 1 else slope * logits
        means = group_means(losses, codes, len(self.groups))
        slopes = group_means(by_scale, codes, len(self.groups))
        invariance = (slopes.values**2).sum() / slopes.present.sum().clamp(min=1.0)
        ready = (self.steps >= self.anneal).to(losses.dtype)
        factor = ready * self.penalty + (1.0 - ready) * min(1.0, self.penalty)
        if self.training:
            self.steps = self.steps + 1
        return (means.mean() + factor * invariance) / factor.clamp(min=1.0)
