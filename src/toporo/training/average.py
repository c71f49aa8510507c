"""Mean of a network's weights over training steps.

It is more accurate in unseen groups than the weights of single steps, and varies less between evaluations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel


class UniformAverage(AveragedModel):
    """Mean of a network's weights and floating-point buffers over training steps.

    Parameters
    ----------
    network : the network, on the device it is trained on.
    after : number of steps before the first one that counts.
    """

    def __init__(self, network: nn.Module, after: int = 0) -> None:
        super().__init__(network, multi_avg_fn=_add, use_buffers=True)
        self.module.eval().requires_grad_(False)
        self.after = after

    def step(self, network: nn.Module, done: int) -> None:
        """Add the weights after a step; ``done`` steps came before it."""
        if done >= self.after:
            self.update_parameters(network)

    def mean(self) -> nn.Module | None:
        """Return a network with the mean as its weights, if there is a mean yet."""
        return self.module if self.n_averaged else None


@torch.no_grad()
def _add(means: Any, values: Any, count: Any) -> None:
    """Add values to means over ``count`` values without waiting for the device; copy counters."""
    if means[0].is_floating_point():
        torch._foreach_add_(means, torch._foreach_div(torch._foreach_sub(values, means), count + 1))
    else:
        torch._foreach_copy_(means, values)
