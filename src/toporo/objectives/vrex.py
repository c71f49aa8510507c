"""Variance risk extrapolation."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from toporo.checks import non_negative
from toporo.groups import Groups
from toporo.objectives.base import Objective, group_means, register
from toporo.types import Name


@register("vrex")
class VREx(Objective):
    r"""Mean group loss plus the variance over groups (Krueger et al. 2021):

    .. math:: \min_\theta \frac1m \sum_e \ell_e(\theta) + \beta\, \mathrm{Var}_e(\ell_e(\theta)) .

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\beta`.
    """

    def __init__(self, groups: Groups | Iterable[Name], penalty: float = 1.0) -> None:
        super().__init__(groups)
        self.penalty = non_negative(penalty, "penalty")

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor | None, features: Tensor | None) -> Tensor:
        means = group_means(losses, codes, len(self.groups))
        average = means.mean()
        squares = means.present * (means.values - average) ** 2
        return average + self.penalty * squares.sum() / means.present.sum().clamp(min=1.0)
