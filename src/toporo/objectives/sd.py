"""Spectral decoupling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from torch import Tensor

from toporo.checks import non_negative
from toporo.groups import Groups
from toporo.objectives.base import Objective, register
from toporo.types import Name


@register("sd")
class SD(Objective):
    r"""Mean loss plus an l2 penalty on the logits (Pezeshki et al. 2021), so that strong features do not starve others:

    .. math:: \min_\theta \frac1n \sum_i \ell_i(\theta) + \frac{\lambda}{nC} \sum_i \|f_\theta(x_i)\|^2 ,

    with C logits per sample. The square is a mean over all of them, over the positions of dense logits (n, classes,
    height, width, …) too, so the penalty does not depend on the number of classes or the image size.
    Positions without a label count.

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    penalty : :math:`\lambda`.

    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0]])
    >>> SD(["NY"], penalty=0.5)(torch.tensor([1.0]), torch.tensor([0]), logits=logits).item()  # 1 + 2 / 2
    2.0
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def __init__(self, groups: Groups | Iterable[Name], penalty: float = 0.1) -> None:
        super().__init__(groups)
        self.penalty = non_negative(penalty, "penalty")

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Any, features: Any) -> Tensor:
        squares: Tensor = logits
        return losses.mean() + self.penalty * squares.mean()

    def per_row(self, losses: Tensor, logits: Tensor) -> Tensor:
        """Reduce logits to their mean square by row."""
        return (logits.to(losses.dtype) ** 2).reshape(len(logits), -1).mean(dim=1)
