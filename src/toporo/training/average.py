"""Means of a network's weights over training steps.

A mean over many steps lies in the middle of the region that single steps wander through: it is more accurate in unseen
groups and varies less from one evaluation to the next.
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
#: Evaluations in a row without a lower validation loss after which a window begins, and with a loss above the limit
#: after which it ends; and the limit, as a multiple of the mean loss at the beginning. The authors' settings.
PATIENCE_BEGIN, PATIENCE_END, TOLERANCE = 3, 6, 1.3


class UniformAverage(AveragedModel):
    """The mean of a network's weights and floating-point buffers after every step from a given one on.

    Parameters
    ----------
    network : the network, on the device it is trained on.
    after : number of steps that are left out.
    """

    def __init__(self, network: nn.Module, after: int = 0) -> None:
        super().__init__(network, multi_avg_fn=_add, use_buffers=True)
        self.module.eval().requires_grad_(False)
        self.after = after

    def step(self, network: nn.Module, done: int) -> None:
        """Add the weights after a step; ``done`` steps came before it."""
        if done >= self.after:
            self.update_parameters(network)

    def evaluated(self, network: nn.Module, metrics: Mapping[str, Any]) -> None:
        """Take note of an evaluation of the network."""

    def mean(self) -> nn.Module | None:
        """The network with the mean as its weights, if there is a mean yet."""
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
        steps = torch._foreach_sub(values, means)
        torch._foreach_div_(steps, count + 1)
        torch._foreach_add_(means, steps)
    else:
        torch._foreach_copy_(means, values)


class SwadAverage:
    """The mean of the weights after every step of a window in which the validation loss is low (Cha et al. 2021).

    The window begins where the loss was not lower in the :data:`PATIENCE_BEGIN` evaluations that follow. It ends before
    :data:`PATIENCE_END` evaluations in a row above :data:`TOLERANCE` times the mean loss at its beginning, or with the
    training. If the training is too short for a window to begin, there is no mean.

    Parameters
    ----------
    network : the network, on the device it is trained on.
    """

    def __init__(self, network: nn.Module) -> None:
        #: Steps since the last evaluation; those certainly in the window; and those from one evaluation to the next
        #: that may yet be left out, with the loss at the later one.
        self._since, self._window = UniformAverage(network), UniformAverage(network)
        self._recent: list[tuple[UniformAverage, float]] = []
        self._limit = math.inf  # until the window begins
        self._over = False

    def step(self, network: nn.Module, done: int) -> None:
        """As :meth:`UniformAverage.step`."""
        if not self._over:
            self._since.step(network, done)

    def evaluated(self, network: nn.Module, metrics: Mapping[str, Any]) -> None:
        """Begin or end the window by the validation loss."""
        loss = metrics.get("validation_loss")
        if not isinstance(loss, float):
            raise SettingError(
                f"average={SWAD!r} finds its window by the validation loss: expected evaluate to return a number as "
                f"'validation_loss', found {', '.join(map(repr, metrics)) or 'nothing'}. Add it, or average from a "
                "round on."
            )
        if self._over or not self._since.n_averaged:
            return
        self._recent.append((self._since, loss))
        self._since = UniformAverage(network)
        if self._limit == math.inf:
            self._recent = self._recent[-PATIENCE_BEGIN:]
            losses = [loss for _, loss in self._recent]
            if len(losses) == PATIENCE_BEGIN and losses[0] == min(losses):
                self._limit = TOLERANCE * math.fsum(losses) / PATIENCE_BEGIN
            return
        last = [loss for _, loss in self._recent[-PATIENCE_END:]]
        self._over = len(last) == PATIENCE_END and min(last) > self._limit
        certain = max(0, len(self._recent) - PATIENCE_END + (not self._over))
        for mean, _ in self._recent[:certain]:
            self._window.merge(mean)
        self._recent = [] if self._over else self._recent[certain:]

    def mean(self) -> nn.Module | None:
        """As :meth:`UniformAverage.mean`."""
        if self._limit == math.inf:
            return None
        total = UniformAverage(self._window.module)
        for part in (self._window, *(mean for mean, _ in self._recent)):
            if part.n_averaged:
                total.merge(part)
        return total.module

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors from which :meth:`load_state_dict` goes on."""
        parts = {"since": self._since, "window": self._window}
        parts |= {f"recent{number}": mean for number, (mean, _) in enumerate(self._recent)}
        progress = [self._limit, float(self._over), *(loss for _, loss in self._recent)]
        state = {"progress": torch.tensor(progress, dtype=torch.float64)}
        return state | {f"{part}.{key}": value for part in parts for key, value in parts[part].state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""

        def part(name: str) -> UniformAverage:
            mean = UniformAverage(self._window.module)
            mean.load_state_dict({key: state[f"{name}.{key}"] for key in mean.state_dict()})
            return mean

        self._limit, over, *losses = state["progress"].tolist()
        self._over, self._since, self._window = bool(over), part("since"), part("window")
        self._recent = [(part(f"recent{number}"), loss) for number, loss in enumerate(losses)]


def make_average(network: nn.Module, kind: int | str | None) -> UniformAverage | SwadAverage | None:
    """The average that a training plan asks for.

    Parameters
    ----------
    network : the network, on the device it is trained on.
    kind : number of steps before the first one that counts, ``"swad"``, or None.
    """
    if kind is None:
        return None
    return SwadAverage(network) if kind == SWAD else UniformAverage(network, int(kind))
