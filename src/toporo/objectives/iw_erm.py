"""Importance-weighted ERM."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from toporo.objectives.base import WeightedObjective, register
from toporo.robust import exact
from toporo.topology.prior import Prior


@register("iw-erm")
class IWERM(WeightedObjective):
    r"""Fixed weights, :math:`\min_\theta \sum_e p_e \ell_e(\theta)`: TRO with an infinite penalty.

    The control that shows what a prior does by itself, without any worst case.

    Parameters
    ----------
    prior : a :class:`~toporo.Prior`, or weights by group name.

    >>> import torch
    >>> IWERM({"NY": 0.25, "PA": 0.75})(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 1, 1])).item()  # 1/4 + 3/4 of 4
    3.25
    """

    takes_prior: ClassVar[bool] = True

    def __init__(self, prior: Prior | Mapping[Any, float]) -> None:
        super().__init__(prior, exact(math.inf))
