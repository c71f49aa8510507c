"""A multilayer perceptron with visible features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from toporo.errors import SettingError

__all__ = ["MLP"]


class MLP(nn.Module):
    """``inputs -> hidden (ReLU) -> … -> outputs``.

    ``features(x)`` are the activations before the last layer, from which the data-driven topology is learned;
    ``model(x)`` are logits or predicted values. Initial weights depend on ``seed`` alone.
    """

    def __init__(self, inputs: int, outputs: int, hidden: Sequence[int] = (64, 64), *, seed: int = 0) -> None:
        super().__init__()
        sizes = [inputs, *hidden]
        if min(*sizes, outputs) < 1:
            raise SettingError(
                f"every layer needs at least one unit; found inputs, hidden, outputs = {[*sizes, outputs]}."
            )
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(sizes[-1], outputs)
        generator = torch.Generator().manual_seed(seed)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                bound = layer.in_features**-0.5  # torch's own default, from a generator of our own
                with torch.no_grad():
                    layer.weight.uniform_(-bound, bound, generator=generator)
                    layer.bias.uniform_(-bound, bound, generator=generator)

    def features(self, x: Tensor) -> Tensor:
        """Penultimate activations."""
        out: Tensor = self.body(x)
        return out

    def forward(self, x: Tensor) -> Tensor:
        """Logits or predicted values."""
        out: Tensor = self.head(self.features(x))
        return out

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Logits or predicted values, without gradients."""
        return self.forward(x)
