"""Batches with the same number of rows from every group."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from toporo.data.grouped import GroupedData, group_rng
from toporo.errors import SettingError
from toporo.groups import GroupIds


def group_batches(
    data: GroupedData, per_group: int = 32, *, epochs: int = 1, seed: int = 0, device: str | torch.device = "cpu"
) -> Iterator[tuple[Tensor, Tensor, GroupIds]]:
    """Group-balanced batches ``(x, y, groups)`` for ``epochs`` passes, ready for an objective.

    An epoch passes once over the largest group; smaller ones start over in a new order. Floats come as float32,
    integers as int64. Batches depend on the seed and the epoch alone.

    Parameters
    ----------
    data : the rows.
    per_group : rows of each group in every batch.
    epochs : passes over the largest group.
    seed : of the order.
    device : where the batches are to be.

    >>> data = GroupedData.from_arrays([[1.0], [2.0], [3.0]], [0, 1, 1], ["NY", "PA", "PA"])
    >>> [(tuple(x.shape), groups.names) for x, y, groups in group_batches(data, per_group=2)]
    [((4, 1), ['NY', 'NY', 'PA', 'PA'])]
    """
    if epochs < 1 or seed < 0:
        raise SettingError(f"epochs={epochs!r}, seed={seed!r}: expected at least one epoch and a seed of at least 0.")
    x, y, codes = tensors(data, device)
    for epoch in range(epochs):
        # One copy per epoch: on a GPU a copy per batch would wait for the device every time.
        for rows in torch.as_tensor(batch_rows(data, per_group, seed=seed, epoch=epoch), device=torch.device(device)):
            yield x[rows], y[rows], GroupIds(codes[rows], data.groups)


def tensors(data: GroupedData, device: str | torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, targets and group codes of grouped data as tensors.

    Parameters
    ----------
    data : the rows.
    device : where the tensors are.
    """
    x, y = (
        torch.as_tensor(array, dtype=torch.float32 if array.dtype.kind == "f" else torch.int64)
        for array in (data.x, data.y)
    )
    return x.to(device), y.to(device), torch.as_tensor(data.codes).to(device)


def steps_per_epoch(data: GroupedData, per_group: int) -> int:
    """Batches in one epoch."""
    if int(per_group) != per_group or per_group < 1:
        raise SettingError(f"per_group is {per_group!r}: expected a whole number of at least 1.")
    return max(1, max(data.sizes.values()) // per_group)


def batch_rows(
    data: GroupedData, per_group: int, *, seed: int, epoch: int, paired: bool = False
) -> npt.NDArray[np.intp]:
    """Row numbers of one epoch's batches, shape (steps, groups * per_group): a pure function of seed and epoch.

    Groups are shuffled each by itself; ``paired``, all in the same order.
    """
    need = steps_per_epoch(data, per_group) * per_group
    columns = []
    for name in data.groups:
        rng = group_rng("all" if paired else name, seed, epoch)
        rows = data.rows(name)
        passes = -(-need // len(rows))
        columns.append(np.concatenate([rng.permutation(rows) for _ in range(passes)])[:need].reshape(-1, per_group))
    return np.concatenate(columns, axis=1)
