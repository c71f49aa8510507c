"""Invariant risk minimisation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor

from toporo.errors import DataError
from toporo.groups import Groups
from toporo.objectives.base import GroupMeans, PenalizedObjective, group_means, membership, register
from toporo.types import Name


@register("irm")
class IRM(PenalizedObjective):
    r"""Mean group loss plus the IRMv1 penalty (Arjovsky et al. 2019):

    .. math:: \min_\theta \frac1m \sum_e \ell_e(\theta) + \lambda \frac1m \sum_e g_e(\theta)\, g'_e(\theta),
              \qquad g_e = \partial_w\, \ell_e(w \cdot f_\theta)|_{w=1},

    where :math:`g_e` is of every second row of e in the batch, beginning with the first, and :math:`g'_e` of the
    others: the product of two independent estimates has the square of the derivative as its expectation, which the
    square of one has not. A group with a single row in the batch has no penalty.

    The derivative by a scale on the logits is :math:`\langle \partial \ell_i / \partial f_i, f_i \rangle` for each
    sample, so it works for any task loss, and for dense logits too: a loss that is a mean over pixels brings the mean
    along. (Scaling log-probabilities instead, as the paper's published code does, makes the penalty degenerate.)

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\lambda`.
    warm_up : number of steps for which :math:`\lambda` counts as :math:`\min(1, \lambda)`. With too few the penalty
        wins before anything was learned; with as many as the run has it never counts in full.

    >>> import torch
    >>> import torch.nn.functional as F
    >>> logits, groups = torch.zeros(8, 2, requires_grad=True), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    >>> losses = F.cross_entropy(logits, torch.tensor([0, 1] * 4), reduction="none")
    >>> round(IRM(["NY", "PA"], warm_up=0)(losses, groups, logits=logits).item(), 3)  # the loss alone
    0.693
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def __init__(self, groups: Groups | Iterable[Name], penalty: float = 100.0, warm_up: int = 500) -> None:
        super().__init__(groups, penalty, warm_up)

    def per_row(self, losses: Tensor, logits: Tensor) -> Tensor:
        """Reduce logits to the derivative of each row's loss by their scale."""
        slope = None
        if logits.requires_grad and losses.requires_grad:
            (slope,) = torch.autograd.grad(losses.sum(), logits, create_graph=True, allow_unused=True)
        if slope is None:
            raise DataError("IRM differentiates losses by logits: give those they come from, with gradients enabled.")
        by_scale = slope.to(losses.dtype) * logits.to(losses.dtype)
        return by_scale.flatten(1).sum(dim=1) if logits.ndim > 1 else by_scale

    def penalise(self, means: GroupMeans, codes: Tensor, *, logits: Any, features: Any) -> Tensor:
        m = len(self.groups)
        members = membership(codes, m, logits.dtype)
        numbers = (members.cumsum(dim=0) * members).sum(dim=1).long()  # of rows within their groups, from 1
        halves = group_means(logits, 2 * codes + numbers % 2, 2 * m)
        pair = halves.values.view(m, 2)
        one, other = pair[:, 0], pair[:, 1]  # prod()'s backward pass would look at values
        both = halves.present.view(m, 2).amin(dim=1)
        return (both * one * other).sum() / both.sum().clamp(min=1.0)
