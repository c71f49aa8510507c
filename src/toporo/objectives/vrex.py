"""Variance risk extrapolation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from toporo.groups import Groups
from toporo.objectives.base import GroupMeans, PenalizedObjective, register
from toporo.types import Name


@register("vrex")
class VREx(PenalizedObjective):
    r"""Mean group loss plus the variance over groups (Krueger et al. 2021):

    .. math:: \min_\theta \frac1m \sum_e \ell_e(\theta) + \beta\, \mathrm{Var}_e(\ell_e(\theta)) .

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\beta`.
    warm_up : number of steps for which :math:`\beta` counts as :math:`\min(1, \beta)`. With as many as the run has the
        penalty never counts in full.

    >>> import torch
    >>> VREx(["NY", "PA"], penalty=1.0, warm_up=0)(torch.tensor([1.0, 3.0]), torch.tensor([0, 1])).item()  # 2 + 1
    3.0
    """

    def __init__(self, groups: Groups | Iterable[Name], penalty: float = 10.0, warm_up: int = 500) -> None:
        super().__init__(groups, penalty, warm_up)

    def penalise(self, means: GroupMeans, codes: Tensor, *, logits: Any, features: Any) -> Tensor:
        squares = means.present * (means.values - means.mean()) ** 2
        return squares.sum() / means.present.sum().clamp(min=1.0)
