"""Means of a network's weights along its training, kept beside the weights themselves.

A mean over many steps lies in the middle of the region that single steps wander through: it holds better in groups
that nobody has seen, and jumps less from one evaluation to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from toporo.errors import DataError, SettingError
from toporo.types import AVERAGED, Record

SWAD = "swad"
#: Evaluations in a row without a lower validation loss after which a window begins, and with a loss above the limit
#: after which it ends; and the limit, as a multiple of the mean loss at the beginning. The authors' settings.
PATIENCE_BEGIN, PATIENCE_END, TOLERANCE = 3, 6, 1.3


@dataclass
class _Mean:
    """The mean of lists of tensors, so many of them."""

    count: int = 0
    tensors: list[Tensor] = field(default_factory=list)

    def add(self, tensors: Sequence[Tensor], count: int = 1) -> None:
        self.count += count
        if not self.tensors:
            self.tensors = [tensor.clone() for tensor in tensors]
        else:
            torch._foreach_lerp_(self.tensors, list(tensors), count / self.count)


class WeightAverage:
    """A mean of a network's weights, and of its floating-point buffers; this one is of nothing.

    Parameters
    ----------
    network : the network, on the device it is trained on.
    """

    def __init__(self, network: nn.Module) -> None:
        state = network.state_dict(keep_vars=True)
        self._now = {name: value.detach() for name, value in state.items() if value.is_floating_point()}

    def step(self, before: int) -> None:
        """A step was done; ``before`` it so many rounds were."""

    def evaluated(self, metrics: Mapping[str, Any]) -> None:
        """The weights were evaluated, with these metrics."""

    def mean(self) -> list[Tensor] | None:
        """The mean at present, if there is one."""
        return None

    def parts(self) -> dict[str, _Mean]:
        """All means that it keeps, by name."""
        return {}

    def about(self) -> Record:
        """What else it keeps, as JSON values."""
        return {}

    def restore(self, means: dict[str, _Mean], about: Record) -> None:
        """Take up :meth:`parts` and :meth:`about`."""

    def evaluate(self, network: nn.Module, evaluate: Callable[[nn.Module], dict[str, Any]]) -> dict[str, Any]:
        """What ``evaluate`` says of the network, and of the network with the mean as its weights."""
        metrics = evaluate(network)
        self.evaluated(metrics)
        if self.mean() is None:
            return metrics
        with self.in_place():
            return metrics | {f"{AVERAGED}{name}": value for name, value in evaluate(network).items()}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the network have the mean as its weights."""
        before = [value.clone() for value in self._now.values()]
        self.finish()
        try:
            yield
        finally:
            self._put(before)

    def finish(self) -> None:
        """Give the network the mean as its weights for good, if there is one."""
        mean = self.mean()
        if mean is not None:
            self._put(mean)

    def save(self) -> tuple[dict[str, Tensor], Record]:
        """All it keeps, for a checkpoint."""
        parts = {name: mean for name, mean in self.parts().items() if mean.count}
        tensors = {
            f"{part}.{name}": tensor
            for part, mean in parts.items()
            for name, tensor in zip(self._now, mean.tensors, strict=True)
        }
        return tensors, {"counts": {name: mean.count for name, mean in parts.items()}, **self.about()}

    def load(self, tensors: Mapping[str, Tensor], about: Record) -> None:
        """Take up what :meth:`save` gave."""
        try:
            means = {
                part: _Mean(int(count), [tensors[f"{part}.{name}"].to(now) for name, now in self._now.items()])
                for part, count in about["counts"].items()
            }
            self.restore(means, about)
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"the averaged weights cannot be read ({error}).") from None

    def _put(self, values: Sequence[Tensor]) -> None:
        with torch.no_grad():
            torch._foreach_copy_(list(self._now.values()), list(values))


class UniformAverage(WeightAverage):
    """The mean of the weights after every step, once so many rounds are done.

    Parameters
    ----------
    network : the network, on the device it is trained on.
    after : so many rounds.
    """

    def __init__(self, network: nn.Module, after: int) -> None:
        super().__init__(network)
        self._after, self._mean = after, _Mean()

    def step(self, before: int) -> None:
        if before >= self._after:
            self._mean.add(list(self._now.values()))

    def mean(self) -> list[Tensor] | None:
        return self._mean.tensors or None

    def parts(self) -> dict[str, _Mean]:
        return {"mean": self._mean}

    def restore(self, means: dict[str, _Mean], about: Record) -> None:  # noqa: ARG002  # as all averages have it
        self._mean = means.get("mean", _Mean())


class SwadAverage(WeightAverage):
    """The mean of the weights after every step of a window in which the validation loss is low (Cha et al. 2021).

    The window begins where the loss was not lower in the :data:`PATIENCE_BEGIN` evaluations that follow, and ends
    before :data:`PATIENCE_END` evaluations in a row above :data:`TOLERANCE` times the mean loss at its beginning; where
    these do not come, with the training. Of a training that is too short for a window to begin there is no mean.

    Parameters
    ----------
    network : the network, on the device it is trained on.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        self._since, self._window = _Mean(), _Mean()
        #: Means from one evaluation to the next, with the loss at the later one; those that may yet be left out.
        self._recent: list[tuple[_Mean, float]] = []
        self._limit: float | None = None
        self._over = False

    def step(self, before: int) -> None:  # noqa: ARG002  # as all averages have it
        if not self._over:
            self._since.add(list(self._now.values()))

    def evaluated(self, metrics: Mapping[str, Any]) -> None:
        loss = metrics.get("validation_loss")
        if not isinstance(loss, float):
            raise SettingError(
                f"average={SWAD!r} finds its window by the validation loss: expected evaluate to return a number as "
                f"'validation_loss', found {', '.join(map(repr, metrics)) or 'nothing'}. Add it, or average from a "
                "round on."
            )
        if self._over or not self._since.count:
            return
        self._recent.append((self._since, loss))
        self._since = _Mean()
        losses = [each for _, each in self._recent]
        if self._limit is None:
            self._recent = self._recent[-PATIENCE_BEGIN:]
            losses = losses[-PATIENCE_BEGIN:]
            if len(losses) == PATIENCE_BEGIN and losses[0] == min(losses):
                self._limit = TOLERANCE * math.fsum(losses) / PATIENCE_BEGIN
        elif len(losses) >= PATIENCE_END and min(losses[-PATIENCE_END:]) > self._limit:
            self._over = True
            self._keep(self._recent[:-PATIENCE_END])
            self._recent = []
        else:
            self._keep(self._recent[: -PATIENCE_END + 1])
            self._recent = self._recent[-PATIENCE_END + 1 :]

    def _keep(self, sure: Sequence[tuple[_Mean, float]]) -> None:
        for mean, _ in sure:
            self._window.add(mean.tensors, mean.count)

    def mean(self) -> list[Tensor] | None:
        if self._limit is None:
            return None
        total = _Mean()
        for mean in (self._window, *(mean for mean, _ in self._recent)):
            if mean.count:
                total.add(mean.tensors, mean.count)
        return total.tensors

    def parts(self) -> dict[str, _Mean]:
        recent = {f"recent.{place}": mean for place, (mean, _) in enumerate(self._recent)}
        return {"since": self._since, "window": self._window, **recent}

    def about(self) -> Record:
        return {"losses": [loss for _, loss in self._recent], "limit": self._limit, "over": self._over}

    def restore(self, means: dict[str, _Mean], about: Record) -> None:
        self._since, self._window = means.get("since", _Mean()), means.get("window", _Mean())
        self._recent = [(means[f"recent.{place}"], float(loss)) for place, loss in enumerate(about["losses"])]
        self._limit = None if about["limit"] is None else float(about["limit"])
        self._over = bool(about["over"])


def make_average(network: nn.Module, how: int | str | None) -> WeightAverage:
    """The average that the settings of a training ask for.

    Parameters
    ----------
    network : the network, on the device it is trained on.
    how : the rounds before the first step that counts, ``"swad"``, or None.
    """
    if how is None:
        return WeightAverage(network)
    return SwadAverage(network) if how == SWAD else UniformAverage(network, int(how))
