"""Correlation alignment."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from toporo.objectives.base import GroupMeans, PenalizedObjective, mean_over_pairs, membership, register


@register("coral")
class CORAL(PenalizedObjective):
    r"""Mean group loss plus the difference of the groups' feature means and covariances (Sun & Saenko 2016):

    .. math:: \min_\theta \frac1m \sum_e \ell_e(\theta) + \lambda \binom{m}{2}^{-1} \sum_{e < f}
              \Big( \frac1d \|\mu_e - \mu_f\|^2 + \frac1{d^2} \|C_e - C_f\|_F^2 \Big) ,

    as DomainBed has it (Gulrajani & Lopez-Paz 2021), over the groups in the batch. A group with one sample in it has a
    mean and no covariance: its pairs compare means alone.

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\lambda`.
    warm_up : number of steps for which :math:`\lambda` counts as :math:`\min(1, \lambda)`.

    >>> import torch
    >>> features = torch.tensor([[0.0], [2.0], [0.0], [2.0]])  # the same in both groups
    >>> CORAL(["NY", "PA"])(torch.ones(4), torch.tensor([0, 0, 1, 1]), features=features).item()
    1.0
    """

    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    def penalise(self, means: GroupMeans, codes: Tensor, *, logits: Any, features: Any) -> Tensor:
        return _misalignment(features, membership(codes, len(self.groups), features.dtype), means.present)


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
    by_means = mean_over_pairs(offsets @ offsets.T, present, present)
    return by_means / d + mean_over_pairs(products, several, present) / d**2
