"""A multilayer perceptron with visible features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """``inputs -> hidden (ReLU) -> … -> outputs``.

    ``features(x)`` are the activations before the last layer, from which the data-driven topology is learned;
    ``model(x)`` are logits or predicted values.

    Parameters
    ----------
    inputs, outputs : number of inputs and of outputs.
    hidden : widths of the layers between.
    seed : determines the initial weights.
    std : standard deviation of normal initial weights with biases 0; by default torch's initialisation.

    >>> net = MLP(inputs=2, outputs=3, seed=0)
    >>> tuple(net(torch.zeros(5, 2)).shape), tuple(net.features(torch.zeros(5, 2)).shape)
    ((5, 3), (5, 64))
    """

    def __init__(
        self, inputs: int, outputs: int, hidden: Sequence[int] = (64, 64), *, seed: int = 0, std: float | None = None
    ) -> None:
        super().__init__()
        sizes = [inputs, *hidden]
        generator = torch.Generator().manual_seed(seed)
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [_linear(before, after, generator, std), nn.ReLU()]
        self.width = sizes[-1]
        self.body = nn.Sequential(*layers)
        self.head = _linear(sizes[-1], outputs, generator, std)

    def features(self, x: Tensor) -> Tensor:
        """Penultimate activations."""
        out: Tensor = self.body(x.to(self.head.weight.dtype))
        return out

    def with_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits or predicted values, and features."""
        features = self.features(x)
        return self.head(features), features

    def forward(self, x: Tensor) -> Tensor:
        """Logits or predicted values."""
        return self.with_features(x)[0]


def _linear(inputs: int, outputs: int, generator: torch.Generator, std: float | None = None) -> nn.Linear:
    """Return a linear layer with initial weights drawn from the generator instead of the global stream."""
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    bound = inputs**-0.5
    with torch.no_grad():
        if std is not None:
            layer.weight.normal_(0.0, std, generator=generator)
            layer.bias.zero_()
        else:
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)
    return layer
