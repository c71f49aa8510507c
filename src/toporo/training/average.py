"""Means of a network's weights over training steps.

A mean over many steps is more accurate in unseen groups than single steps, and varies less between evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from toporo.errors import SettingError

SWAD = "swad"
#: SWAD's window begins after this many evaluations without a lower validation loss, and ends after this many in a row
#: with a loss above this multiple of the mean loss at its beginning. The authors' settings.
PATIENCE_BEGIN, PATIENCE_END, TOLERANCE = 3, 6, 1.3


def make_average(kind: int | str | None, network: nn.Module, per_round: int) -> UniformAverage | SwadAverage | None:
    """Return the mean that a plan's ``average`` asks for; ``per_round`` is the number of steps in a round."""
    if kind is None:
        return None
    return UniformAverage(network, kind * per_round) if isinstance(kind, int) else SwadAverage(network)


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

    def evaluated(self, metrics: Mapping[str, Any]) -> None:
        """Do nothing: the mean does not depend on evaluations."""

    def mean(self) -> nn.Module | None:
        """Return a network with the mean as its weights, if there is a mean yet."""
        return self.module if self.n_averaged else None

    @torch.no_grad()
    def merge(self, other: UniformAverage) -> None:
        """Make this the mean over the steps of both."""
        self.n_averaged += other.n_averaged
        share = float(other.n_averaged.double() / self.n_averaged)
        for mean, value in zip(self.module.state_dict().values(), other.module.state_dict().values(), strict=True):
            mean.lerp_(value, share) if mean.is_floating_point() else mean.copy_(value)


@torch.no_grad()
def _add(means: Any, values: Any, count: Any) -> None:
    """Add values to means over ``count`` values without waiting for the device; copy counters."""
    if means[0].is_floating_point():
        torch._foreach_add_(means, torch._foreach_div(torch._foreach_sub(values, means), count + 1))
    else:
        torch._foreach_copy_(means, values)


class SwadAverage(nn.Module):
    """Mean of the weights over the steps of a window in which the validation loss is low (Cha et al. 2021).

    The window begins at an evaluation whose loss is the lowest of :data:`PATIENCE_BEGIN`. It ends before
    :data:`PATIENCE_END` evaluations in a row above :data:`TOLERANCE` times the mean loss at its beginning, or with the
    training. In a training that is too short for a window to begin, there is no mean.

    Parameters
    ----------
    network : the network, on the device it is trained on.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        #: Means over the steps from one evaluation to the next, with the losses at all evaluations but the coming one.
        #: The first part of a window grows by the parts that can no longer turn out to be beyond its end.
        self.parts: Any = nn.ModuleList([UniformAverage(network)])
        self._losses: list[float] = []
        self._limit = math.inf  # until the window begins
        self._over = False

    def step(self, network: nn.Module, done: int) -> None:
        """Add the weights after a step; ``done`` steps came before it."""
        if not self._over:
            self.parts[-1].step(network, done)

    def evaluated(self, metrics: Mapping[str, Any]) -> None:
        """Begin or end the window by the validation loss."""
        loss = metrics.get("validation_loss")
        if not isinstance(loss, float):
            raise SettingError(
                f"average={SWAD!r} finds its window by the validation loss: expected evaluate to return a number as "
                f"'validation_loss', found {', '.join(map(repr, metrics)) or 'nothing'}. Add it, or average from a "
                "round on."
            )
        if self._over or not self.parts[-1].n_averaged:
            return
        self.parts.append(UniformAverage(self.parts[-1].module))
        self._losses.append(loss)
        if self._limit == math.inf:
            del self.parts[: -PATIENCE_BEGIN - 1], self._losses[:-PATIENCE_BEGIN]
            if len(self._losses) == PATIENCE_BEGIN and self._losses[0] == min(self._losses):
                self._limit = TOLERANCE * math.fsum(self._losses) / PATIENCE_BEGIN
        elif len(self._losses) > PATIENCE_END and min(self._losses[-PATIENCE_END:]) > self._limit:
            self._over = True
            del self.parts[-PATIENCE_END - 1 : -1], self._losses[-PATIENCE_END:]
        elif len(self._losses) > PATIENCE_END:
            self.parts[0].merge(self.parts[1])
            del self.parts[1], self._losses[1]

    def mean(self) -> nn.Module | None:
        """Return a network with the mean as its weights, if the window has begun."""
        if self._limit == math.inf:
            return None
        total = UniformAverage(self.parts[0].module)
        for part in self.parts[:-1]:
            total.merge(part)
        return total.module

    def get_extra_state(self) -> Tensor:
        """Return the state besides the parts, for ``state_dict``."""
        return torch.tensor([self._limit, float(self._over), *self._losses], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the result of :meth:`get_extra_state`, with as many parts as ``load_state_dict`` then fills."""
        self._limit, over, *self._losses = state.tolist()
        self._over = bool(over)
        self.parts = nn.ModuleList(UniformAverage(self.parts[0].module) for _ in range(len(self._losses) + 1))
