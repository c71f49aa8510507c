"""Domain-adversarial training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toporo.checks import non_negative, number, positive
from toporo.errors import DataError
from toporo.groups import Groups
from toporo.objectives.base import Objective, feature_rows, group_means, membership, register
from toporo.types import Name


@register("dann")
class DANN(Objective):
    r"""Mean group loss, and features from which a discriminator cannot tell the groups (Ganin et al. 2016):

    .. math:: \min_\theta \max_\phi \frac1m \sum_e \ell_e(\theta) - \lambda\, d(\theta, \phi) , \qquad
              d = \frac1m \sum_e d_e + \gamma \frac1n \sum_i \| \nabla_{z_i} \textstyle\sum_j c_j \|^2 ,

    with :math:`d_e` the mean over e's samples of :math:`c_i`, the cross entropy of a network :math:`\phi` that guesses
    the group of a sample from its features :math:`z_i`. The two sides move in turn: a call in training mode first
    takes a step of Adam for the discriminator, which is this objective's own; the value that it returns, with the
    discriminator held fixed, is the network's to minimise. Both sides have the betas that such games want
    (:attr:`betas`).

    DomainBed alternates instead: one step for the discriminator, then one for the network, each on a batch of its own.
    In as many steps its network moves half as often as here.

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    width : the number of features, d of (n, d).
    penalty : :math:`\lambda`. At 0 the discriminator learns and the network takes no notice.
    hidden : units in each of the discriminator's two hidden layers.
    learning_rate : of the discriminator; best the network's.
    gradient_penalty : :math:`\gamma`, against a discriminator that changes too fast from one sample to the next.
    seed : of the discriminator's initial weights.

    >>> import torch
    >>> objective = DANN(["NY", "PA"], width=1)
    >>> loss = objective(torch.ones(2), torch.tensor([0, 1]), features=torch.tensor([[0.0], [2.0]], requires_grad=True))
    >>> loss.requires_grad
    True
    """

    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    examples: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"width": 4, "hidden": 6},
        {"width": 4, "hidden": 6, "gradient_penalty": 0.1},
    )
    betas = (0.5, 0.9)
    slopes: Tensor
    squares: Tensor
    steps: Tensor

    def __init__(
        self,
        groups: Groups | Iterable[Name],
        width: int,
        penalty: float = 1.0,
        *,
        hidden: int = 256,
        learning_rate: float = 5e-5,
        gradient_penalty: float = 0.0,
        seed: int = 0,
    ) -> None:
        for what, units in (("width", width), ("hidden", hidden)):
            number(units, what, "a number of units of at least 1", least=1)
        super().__init__(groups)
        self.width, self.hidden, self.seed = int(width), int(hidden), int(seed)
        self.penalty = non_negative(penalty, "penalty")
        self.learning_rate = positive(learning_rate, "learning_rate")
        self.gradient_penalty = non_negative(gradient_penalty, "gradient_penalty")
        generator = torch.Generator().manual_seed(self.seed)
        # The last layer starts at zero: no group is set apart by its position.
        self.first = _linear(self.width, self.hidden, generator)
        self.second = _linear(self.hidden, self.hidden, generator)
        self.last = _linear(self.hidden, len(self.groups), None)
        size = sum(parameter.numel() for parameter in self.parameters())
        for name, shape in (("slopes", size), ("squares", size), ("steps", ())):
            self.register_buffer(name, torch.zeros(shape))
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
        if self.training:
            self._learn(x.detach(), codes)
        own = [parameter.detach() for parameter in self.parameters()]
        means = group_means(losses, codes, len(self.groups))
        return means.mean() - self.penalty * self._guessing_loss(own, x, codes)

    def _guessing_loss(self, parameters: Sequence[Tensor], x: Tensor, codes: Tensor) -> Tensor:
        """How badly a discriminator with these parameters tells the groups; in the features' type."""
        with torch.set_grad_enabled(torch.is_grad_enabled() or self.gradient_penalty > 0):
            if self.gradient_penalty and not x.requires_grad:
                x = x.detach().requires_grad_()
            hidden = x
            w = [parameter.to(x.dtype) for parameter in parameters]
            for weight, bias in ((w[0], w[1]), (w[2], w[3])):
                hidden = F.relu(F.linear(hidden, weight, bias))
            guesses = F.log_softmax(F.linear(hidden, w[4], w[5]), dim=1)
            members = membership(codes, len(self.groups), x.dtype)
            counts = members.sum(dim=0)
            shares = members / (counts.clamp(min=1.0) * (counts > 0).sum().clamp(min=1))
            loss = -(shares * guesses).sum()
            if self.gradient_penalty:
                (slope,) = torch.autograd.grad(-(members * guesses).sum(), x, create_graph=True)
                loss = loss + self.gradient_penalty * slope.square().sum(dim=1).mean()
        return loss

    def _learn(self, x: Tensor, codes: Tensor) -> None:
        """A step of Adam, in place, so that it can be captured with the rest."""
        own = list(self.parameters())
        with torch.enable_grad():
            parts = torch.autograd.grad(self._guessing_loss(own, x, codes), own)
        with torch.no_grad():
            slope = torch.cat([part.flatten() for part in parts])
            self.steps.add_(1)
            self.slopes.lerp_(slope, 1.0 - self.betas[0])
            self.squares.lerp_(slope.square(), 1.0 - self.betas[1])
            first, second = (1.0 - beta**self.steps for beta in self.betas)
            change = self.learning_rate * (self.slopes / first) / ((self.squares / second).sqrt() + 1e-8)
            parts = torch.split(change, [parameter.numel() for parameter in own])
            for parameter, part in zip(own, parts, strict=True):
                parameter.sub_(part.view_as(parameter))


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
