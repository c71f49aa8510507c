"""Domain-adversarial training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.adam import adam

from toporo.checks import non_negative, positive, whole
from toporo.errors import DataError
from toporo.groups import Groups
from toporo.objectives.base import Objective, group_means, membership, register
from toporo.types import Name


@register("dann")
class DANN(Objective):
    r"""Mean group loss, and features from which a discriminator cannot tell the groups (Ganin et al. 2016):

    .. math:: \min_\theta \max_\phi \frac1m \sum_e \ell_e(\theta) - \lambda\, \frac1m \sum_e d_e(\theta, \phi) ,

    with :math:`d_e` the mean over e's samples of the cross entropy of a discriminator :math:`\phi` that guesses the
    group of a sample from its features. A call in training mode first takes a step of Adam for the discriminator, which
    is part of this objective's state. It returns the loss of the network, with the discriminator held fixed. Both
    optimisers have the betas that such games need (:attr:`betas`).

    DomainBed alternates instead: one step for the discriminator, then one for the network, each on a batch of its own.
    In as many steps its network moves half as often as here.

    Parameters
    ----------
    groups : all groups of the training rows, by name.
    width : the number of features, d of (n, d).
    penalty : :math:`\lambda`. At 0 the discriminator learns, and the network is not affected.
    hidden : units in each of the discriminator's two hidden layers.
    learning_rate : of the discriminator; best the network's.

    >>> import torch
    >>> objective = DANN(["NY", "PA"], width=1)
    >>> loss = objective(torch.ones(2), torch.tensor([0, 1]), features=torch.tensor([[0.0], [2.0]], requires_grad=True))
    >>> loss.requires_grad
    True
    """

    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    examples: ClassVar[Sequence[Mapping[str, Any]]] = ({"width": 4, "hidden": 6},)
    betas = (0.5, 0.9)
    discriminator: Tensor
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
    ) -> None:
        super().__init__(groups)
        self.width, self.hidden = whole(width, "width", 1), whole(hidden, "hidden", 1)
        self.penalty = non_negative(penalty, "penalty")
        self.learning_rate = positive(learning_rate, "learning_rate")
        sizes = (self.width, self.hidden, self.hidden, len(self.groups))
        #: Shapes of weights and biases, layer by layer; all lie one after the other in one buffer.
        self._shapes = [shape for a, b in pairwise(sizes) for shape in ((b, a), (b,))]
        self.register_buffer("discriminator", torch.zeros(sum(torch.Size(shape).numel() for shape in self._shapes)))
        generator, layers = torch.Generator().manual_seed(0), self._layers(self.discriminator)
        for weight, bias in zip(layers[0:4:2], layers[1:4:2], strict=True):  # the last stays 0: no group is set apart
            bound = weight.shape[1] ** -0.5
            weight.uniform_(-bound, bound, generator=generator)
            bias.uniform_(-bound, bound, generator=generator)
        self.register_buffer("slopes", torch.zeros_like(self.discriminator))
        self.register_buffer("squares", torch.zeros_like(self.discriminator))
        self.register_buffer("steps", torch.zeros(()))
        self._bind_state_to_groups()

    def compute(self, losses: Tensor, codes: Tensor, *, logits: Any, features: Any) -> Tensor:
        if features.shape[1] != self.width:
            raise DataError(
                f"features of shape {tuple(features.shape)}, but the discriminator takes {self.width} per sample: "
                f"build DANN with width={features.shape[1]}."
            )
        if self.training:
            self._learn(features.detach(), codes)
        means = group_means(losses, codes, len(self.groups))
        return means.mean() - self.penalty * self._guessing_loss(self.discriminator, features, codes)

    def _layers(self, parameters: Tensor) -> list[Tensor]:
        """Weights and biases of the discriminator, as views."""
        parts = torch.split(parameters, [torch.Size(shape).numel() for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _guessing_loss(self, parameters: Tensor, x: Tensor, codes: Tensor) -> Tensor:
        """Mean over groups of the cross entropy of a discriminator with these parameters."""
        w, m = self._layers(parameters.to(x.dtype)), len(self.groups)
        hidden = F.relu(F.linear(F.relu(F.linear(x, w[0], w[1])), w[2], w[3]))
        guesses = F.log_softmax(F.linear(hidden, w[4], w[5]), dim=1)
        return group_means(-(membership(codes, m, x.dtype) * guesses).sum(dim=1), codes, m).mean()

    def _learn(self, x: Tensor, codes: Tensor) -> None:
        """A step of Adam for the discriminator."""
        parameters = self.discriminator.detach().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self._guessing_loss(parameters, x, codes), parameters)
        beta1, beta2 = self.betas
        with torch.no_grad():  # differentiable is the variant that never looks at the number of steps
            adam(
                [self.discriminator], [slope], [self.slopes], [self.squares], [], [self.steps], differentiable=True,
                amsgrad=False, maximize=False, weight_decay=0.0, eps=1e-8, beta1=beta1, beta2=beta2,
                lr=self.learning_rate,
            )  # fmt: skip
