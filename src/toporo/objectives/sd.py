"""Spectral decoupling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from torch import Tensor

from toporo.checks import non_negative
from toporo.errors import DataError
from toporo.groups import Groups
from toporo.objectives.base import Objective, register
from toporo.types import Name


@register("sd")
class SD(Objective):
    r"""Mean loss plus an l2 penalty on the logits (Pezeshki et al. 2021), so that strong features do not starve others:

    .. math:: \min_\theta \frac1n \sum_i \ell_i(\theta) + \frac{\lambda}{2n} \sum_i \|f_\theta(x_i)\|^2 .

    Dense logits (n, classes, height, width, …) are penalised by the square at a position, averaged over positions as
    the loss is, so that the penalty means the same at every image size. Positions without a label count too.

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\lambda`.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def __init__(self, groups: Groups | Iterable[Name], penalty: float = 0.1) -> None:
        super().__init__(groups)
        self.penalty = non_negative(penalty, "penalty")

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor | None, features: Tensor | None) -> Tensor:
        if logits is None:
            raise DataError("SD needs logits.")
        squares = logits.to(losses.dtype) ** 2
        if squares.ndim > 2:
            squares = squares.flatten(2).mean(dim=2)
        return losses.mean() + 0.5 * self.penalty * squares.reshape(len(losses), -1).sum(dim=1).mean()
