"""Correlation alignment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from torch import Tensor

from toporo.checks import non_negative
from toporo.groups import Groups
from toporo.objectives.base import Objective, feature_rows, group_means, membership, pair_sum, pairs, register
from toporo.types import Name


@register("coral")
class CORAL(Objective):
    r"""Mean group loss plus the difference of the groups' feature means and covariances (Sun & Saenko 2016):

    .. math:: \min_\theta \frac1m \sum_e \ell_e(\theta) + \lambda \binom{m}{2}^{-1} \sum_{e < f}
              \Big( \frac1d \|\mu_e - \mu_f\|^2 + \frac1{d^2} \|C_e - C_f\|_F^2 \Big) ,

    as DomainBed has it (Gulrajani & Lopez-Paz 2021), over the groups in the batch. A group with one sample in it has a
    mean and no covariance: its pairs compare means alone.

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\lambda`.

    >>> import torch
    >>> features = torch.tensor([[0.0], [2.0], [0.0], [2.0]])  # the same in both groups
    >>> CORAL(["NY", "PA"])(torch.ones(4), torch.tensor([0, 0, 1, 1]), features=features).item()
    1.0
    """

    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    def __init__(self, groups: Groups | Iterable[Name], penalty: float = 1.0) -> None:
        super().__init__(groups)
        self.penalty = non_negative(penalty, "penalty")

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor, features: Tensor) -> Tensor:
        means = group_means(losses, codes, len(self.groups))
        x = feature_rows(features, losses)
        members = membership(codes, len(self.groups), x.dtype)
        return means.mean() + self.penalty * _misalignment(x, members, means.present)


def _misalignment(x: Tensor, members: Tensor, present: Tensor) -> Tensor:
    r"""Mean over pairs of groups of the mean squared difference of means, and of covariances.

    Of the covariances only inner products are computed, without matrices (d, d) of deep features:
    :math:`\langle \sum_i x_i x_i^\top, \sum_j x_j x_j^\top \rangle = \sum_{ij} (x_i^\top x_j)^2`.
    """
    d = x.shape[1]
    counts = members.sum(dim=0)
    centres = (members.T @ x) / counts.clamp(min=1.0)[:, None]
    # The differences do not change if all centres move; from their average none drowns in a common offset.
    average = centres.sum(dim=0) / present.sum().clamp(min=1.0)
    offsets = present[:, None] * (centres - average)
    several = (counts > 1).to(x.dtype)
    scaled = members * (several / (counts - 1.0).clamp(min=1.0))
    centred = x - members @ centres
    products = scaled.T @ (centred @ centred.T) ** 2 @ scaled
    apart = pair_sum(offsets @ offsets.T, present) / d + pair_sum(products, several) / d**2
    return apart / pairs(present)
