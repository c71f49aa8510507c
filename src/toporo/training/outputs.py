"""Outputs and features of a network for many rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from toporo.data import GroupedData, tensors
from toporo.training.plan import TrainingPlan
from toporo.training.step import autocast


@torch.no_grad()
def outputs_at(
    network: nn.Module,
    x: Tensor,
    rows: npt.NDArray[np.int64],
    plan: TrainingPlan,
    *,
    prepare: Callable[[Tensor], Tensor] | None = None,
    features: bool = False,
    batch: int = 500,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ``(row numbers, outputs)`` of portions of rows, on the device, in evaluation mode.

    Parameters
    ----------
    network : the network.
    x : stored inputs, on the device of the plan.
    rows : row numbers in ``x``.
    plan : device and precision.
    prepare : conversion of stored inputs to the network's; none by default.
    features : return ``network.features(x)`` instead of outputs.
    batch : rows per portion.
    """
    training = network.training
    network.eval()
    function: Any = network.features if features else network
    try:
        for part in torch.split(torch.as_tensor(rows, device=x.device), batch):
            inputs = x.index_select(0, part)
            with autocast(plan):
                outputs = function(inputs if prepare is None else prepare(inputs))
            yield part, outputs if plan.precision == "fp32" else outputs.float()
    finally:
        network.train(training)


def outputs_of(
    model: nn.Module, data: GroupedData, device: str | torch.device = "cpu", *, features: bool = False
) -> npt.NDArray[Any]:
    """Logits or predicted values of every row.

    Parameters
    ----------
    model : the network.
    data : the rows.
    device : where to compute.
    features : return the activations before the last layer, ``model.features(x)``, instead.
    """
    x, n = tensors(data, device)[0], len(data)
    ((_, outputs),) = outputs_at(model, x, np.arange(n), TrainingPlan(), features=features, batch=n)
    return outputs.cpu().numpy()
