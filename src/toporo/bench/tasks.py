"""What classification and regression differ in: a sample's loss, a network's outputs, a group's measure."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from toporo.bench.base import Benchmark
from toporo.bench.tpt48 import by_hop, mse_by_group
from toporo.data.grouped import GroupedData
from toporo.training import accuracy_by_group, outputs_of

ByGroup = dict[Hashable, float]


@dataclass(frozen=True)
class Task:
    """A kind of target.

    Attributes
    ----------
    loss : per-sample loss ``(outputs, targets) -> (n,)``.
    outputs : how many outputs a network needs.
    by_group : a network's accuracy or error in every group.
    summary : from the values of the test groups to an epoch's metrics: ``"test"``, ``"by_group"``, …
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    outputs: Callable[[GroupedData], int]
    by_group: Callable[[nn.Module, GroupedData], ByGroup]
    summary: Callable[[ByGroup, Benchmark], dict[str, Any]]


def _mean(values: ByGroup, benchmark: Benchmark) -> dict[str, Any]:  # noqa: ARG001  # summaries share one signature
    return {"test": float(np.mean(list(values.values()))), "by_group": values}


def _mean_by_hop(values: ByGroup, benchmark: Benchmark) -> dict[str, Any]:
    found = by_hop(values, benchmark.about["hops"])
    classes = {f"hop {hop}": value for hop, value in found.hops.items()}
    return {"test": found.all, **classes, "by_group": values}


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - targets) ** 2).flatten(1).sum(dim=1)


#: Name to task.
TASKS: dict[str, Task] = {
    "classification": Task(
        loss=partial(F.cross_entropy, reduction="none"),
        outputs=lambda data: int(data.y.max()) + 1,
        by_group=accuracy_by_group,
        summary=_mean,
    ),
    "regression": Task(
        loss=_squared_error,
        outputs=lambda data: int(data.y.shape[1]),
        by_group=lambda model, data: mse_by_group(outputs_of(model, data), data),
        summary=_mean_by_hop,
    ),
}
