"""Empirical risk minimisation."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from toporo.objectives.base import Objective, register


@register("erm")
class ERM(Objective):
    r"""The mean loss over samples, :math:`\min_\theta \frac1n \sum_i \ell_i(\theta)`; groups play no part.

    On group-balanced batches this is the mean over groups, i.e. TRO with a uniform prior and an infinite penalty.

    Parameters
    ----------
    groups : all groups of the training rows, by name.

    >>> import torch
    >>> ERM(["NY", "PA"])(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 1, 1])).item()
    3.0
    """

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Any, features: Any) -> Tensor:
        return losses.mean()
