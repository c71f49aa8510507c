"""Maximum mean discrepancy."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from toporo.objectives.base import GroupMeans, PenalizedObjective, mean_over_pairs, membership, register

#: Inverse squared widths of the kernel, those of DomainBed: for squared distances from 0.001 to 1000.
GAMMAS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


@register("mmd")
class MMD(PenalizedObjective):
    r"""Mean group loss plus the squared distance of the groups' features in a kernel's space (Li et al. 2018):

    .. math:: \min_\theta \frac1m \sum_e \ell_e(\theta) + \lambda \binom{m}{2}^{-1} \sum_{e < f}
              \big( \bar k_{ee} + \bar k_{ff} - 2 \bar k_{ef} \big),
              \qquad k(x, x') = \sum_\gamma \exp(-\gamma \|x - x'\|^2) ,

    as DomainBed has it (Gulrajani & Lopez-Paz 2021), over the groups in the batch; :math:`\bar k_{ef}` is the mean over
    all pairs of a sample of e and one of f.

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\lambda`.
    warm_up : number of steps for which :math:`\lambda` counts as :math:`\min(1, \lambda)`.

    >>> import torch
    >>> features = torch.tensor([[0.0], [2.0], [0.0], [2.0]])  # the same in both groups
    >>> MMD(["NY", "PA"])(torch.ones(4), torch.tensor([0, 0, 1, 1]), features=features).item()
    1.0
    """

    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    def penalise(self, means: GroupMeans, codes: Tensor, *, logits: Any, features: Any) -> Tensor:
        members = membership(codes, len(self.groups), features.dtype)
        shares = members / members.sum(dim=0).clamp(min=1.0)
        return mean_over_pairs(shares.T @ _kernel(features) @ shares, means.present, means.present)


def _kernel(x: Tensor) -> Tensor:
    """Sum of Gaussian kernels between all samples, (n, n)."""
    x = x - x.mean(dim=0)  # a common offset would cost the squares digits, and does not change distances
    products = x @ x.T
    squares = products.diagonal()
    distances = (squares[:, None] + squares - 2.0 * products).clamp(min=0.0)
    return torch.stack([torch.exp(-gamma * distances) for gamma in GAMMAS]).sum(dim=0)
