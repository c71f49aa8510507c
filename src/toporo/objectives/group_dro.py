"""Group distributionally robust optimisation."""

from __future__ import annotations

from collections.abc import Iterable

from toporo.groups import Groups
from toporo.objectives.base import WeightedObjective, register
from toporo.robust import mirror
from toporo.topology.prior import Prior
from toporo.types import Name


@register("group-dro")
class GroupDRO(WeightedObjective):
    r"""The worst mixture of groups, without a prior: :math:`\min_\theta \max_{q \in \Delta} \sum_e q_e \ell_e(\theta)`.

    The weights follow the exponentiated gradient of Sagawa et al. (2020). With projected gradients instead, it is TRO
    with a uniform prior and penalty 0.

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    step : step size of the weights.

    >>> import torch
    >>> objective = GroupDRO(["NY", "PA"], step=1.0)
    >>> _ = objective(torch.tensor([1.0, 3.0]), torch.tensor([0, 1]))
    >>> round(objective.weights["PA"], 3)  # e³ / (e + e³)
    0.881
    """

    def __init__(self, groups: Groups | Iterable[Name], step: float = 0.01) -> None:
        super().__init__(Prior.uniform(groups), mirror(step, penalty=0.0))
        self.step = float(step)
