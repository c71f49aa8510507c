"""Domain-adversarial training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toporo.checks import non_negative, number
from toporo.errors import DataError
from toporo.groups import Groups
from toporo.objectives.base import Objective, feature_rows, group_means, membership, register
from toporo.types import Name


@register("dann")
class DANN(Objective):
    r"""Mean group loss, and features from which a discriminator cannot tell the groups (Ganin et al. 2016):

    .. math:: \min_\theta \max_\phi \frac1m \sum_e \ell_e(\theta) - \lambda \frac1m \sum_e d_e(\theta, \phi) ,

    with :math:`d_e` the cross entropy of a network :math:`\phi` that guesses the group of each sample of e. Both sides
    move in the same step: the discriminator's parameters are this objective's ``parameters()``, for the optimiser to
    take along, and a backward pass gives them the plain gradient of the cross entropy, and the features its reverse
    times :math:`\lambda`. The value is what the network :math:`\theta` minimises.

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    width : the number of features, d of (n, d).
    penalty : :math:`\lambda`. At 0 the discriminator learns and the network takes no notice.
    hidden : units in each of the discriminator's two hidden layers.
    seed : of the discriminator's initial weights.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    examples: ClassVar[Sequence[Mapping[str, Any]]] = ({"width": 4, "hidden": 6},)

    def __init__(
        self, groups: Groups | Iterable[Name], width: int, penalty: float = 1.0, *, hidden: int = 256, seed: int = 0
    ) -> None:
        for what, units in (("width", width), ("hidden", hidden)):
            number(units, what, "a number of units of at least 1", least=1)
        super().__init__(groups)
        self.width = int(width)
        self.penalty = non_negative(penalty, "penalty")
        generator = torch.Generator().manual_seed(seed)
        # The last layer starts at zero: no group is set apart by its position, and nothing is reversed before anything
        # is learned.
        self.first = _linear(self.width, hidden, generator)
        self.second = _linear(hidden, hidden, generator)
        self.last = _linear(hidden, len(self.groups), None)
        self._keep_to_groups()

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Tensor | None, features: Tensor | None) -> Tensor:
        x = feature_rows(features, losses)
        if x.shape[1] != self.width:
            raise DataError(
                f"features of shape {tuple(x.shape)}, but the discriminator takes {self.width} per sample: build DANN "
                f"with width={x.shape[1]}."
            )
        if self.last.weight.device != losses.device:
            self.to(losses.device)
        guesses = F.log_softmax(self._guess(_Reverse.apply(x, self.penalty)), dim=1)  # type: ignore[no-untyped-call]
        means = group_means(losses, codes, len(self.groups))
        members = membership(codes, len(self.groups), x.dtype)
        shares = members / (members.sum(dim=0).clamp(min=1.0) * means.present.sum().clamp(min=1.0))
        entropy = -(shares * guesses).sum()
        # The gradient is that of the reversal; the value becomes the one that it is the network's gradient of.
        return means.mean() + entropy - (1.0 + self.penalty) * entropy.detach()

    def _guess(self, x: Tensor) -> Tensor:
        """Logits of the groups, in the type of the features whatever that of the parameters."""
        for layer in (self.first, self.second):
            x = F.relu(F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype)))
        return F.linear(x, self.last.weight.to(x.dtype), self.last.bias.to(x.dtype))


class _Reverse(torch.autograd.Function):
    """The identity, whose gradient is turned round and scaled."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        return -ctx.scale * slopes[0], None


def _linear(inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Linear:
    """A linear layer with torch's default initialisation from our own stream, or all zeros."""
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    bound = inputs**-0.5
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            if generator is None:
                parameter.zero_()
            else:
                parameter.uniform_(-bound, bound, generator=generator)
    return layer
