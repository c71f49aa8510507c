"""Group-balanced batches of rows that lie on the training device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from toporo.checks import whole
from toporo.data import GroupedData, group_rng, tensors
from toporo.data.batches import batch_rows, steps_per_epoch
from toporo.errors import DataError
from toporo.training.plan import TrainingPlan

RowNumbers: TypeAlias = npt.NDArray[np.int64]
#: Conversion of stored inputs, targets and uniform random numbers of a batch to inputs and targets of the network.
Prepare: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]

#: Steps whose random numbers are drawn together.
BLOCK = 50


class Batches:
    """Training rows, and batches that depend on the seed and the number of the step alone.

    Parameters
    ----------
    x, y : inputs, of any type, and targets of all rows of a data set.
    rows : the rows to train on: their numbers in ``x`` as inputs, and their groups.
    per_group : rows of every group in a batch.
    paired : draw rows at the same positions of all groups together, for groups of one size.
    prepare : augmentation, ``(x, y, uniforms) -> (x, y)``; by default none.
    draws : uniform random numbers per row that ``prepare`` takes.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        rows: GroupedData,
        per_group: int = 32,
        *,
        paired: bool = False,
        prepare: Prepare | None = None,
        draws: int = 0,
    ) -> None:
        if len(x) != len(y):
            raise DataError(f"{len(x)} inputs but {len(y)} targets: expected one target per input.")
        self.x, self.y, self.rows, self.per_group = x, y, rows, whole(per_group, "per_group", 1)
        self.paired, self.prepare, self.draws = paired, prepare, draws
        self.numbers: RowNumbers = rows.x

    @classmethod
    def of(cls, data: GroupedData, per_group: int = 32, *, paired: bool = False) -> Batches:
        """Batches of grouped data whose inputs are the network's.

        Parameters
        ----------
        data : the training rows.
        per_group, paired : as in :class:`Batches`.
        """
        x, y, _ = tensors(data, "cpu")
        batches = cls(x, y, data, per_group, paired=paired)
        batches.numbers = np.arange(len(data))
        return batches

    @property
    def size(self) -> int:
        """Rows in a batch."""
        return len(self.rows.groups) * self.per_group

    def steps(self, plan: TrainingPlan, rounds: int | None = None) -> int:
        """Number of steps in these rounds of a plan; by default in all."""
        per_round = steps_per_epoch(self.rows, self.per_group) if plan.unit == "epochs" else 1
        return per_round * (plan.rounds if rounds is None else rounds)

    def draw(self, plan: TrainingPlan, first: int, last: int) -> tuple[RowNumbers, npt.NDArray[np.float32]]:
        """Row numbers (steps, rows) and uniforms (steps, rows, draws) of the rounds from ``first`` up to ``last``."""
        if plan.unit == "epochs":
            draw = partial(batch_rows, self.rows, self.per_group, seed=plan.seed, paired=self.paired)
            rows = np.concatenate([draw(epoch=epoch) for epoch in range(first, last)])
        else:
            count, paired = last - first, self.paired
            rows = stream_rows(self.rows, self.per_group, seed=plan.seed, first=first, count=count, paired=paired)
        start = self.steps(plan, first)
        return self.numbers[rows], stream_uniforms(self.size, self.draws, seed=plan.seed, first=start, count=len(rows))


def stream_rows(
    data: GroupedData, per_group: int, *, seed: int, first: int, count: int, paired: bool = False
) -> RowNumbers:
    """Positions in ``data`` of the rows of ``count`` steps from ``first`` on, shape (count, groups * per_group).

    Every pass over a group has a new order. A step depends neither on the other groups nor on the steps that are drawn
    together with it.
    """
    columns = []
    for name in data.groups:
        rows = data.rows(name)
        start, stop = first * per_group, (first + count) * per_group
        passes = range(start // len(rows), -(-stop // len(rows)))
        order = np.concatenate(
            [group_rng("all" if paired else name, seed, number).permutation(rows) for number in passes]
        )
        columns.append(order[start - passes.start * len(rows) :][: stop - start].reshape(count, per_group))
    return np.concatenate(columns, axis=1)


def stream_uniforms(width: int, draws: int, *, seed: int, first: int, count: int) -> npt.NDArray[np.float32]:
    """Uniform random numbers of ``count`` steps from ``first`` on, shape (count, width, draws)."""
    if not draws:
        return np.empty((count, width, 0), dtype=np.float32)
    blocks = range(first // BLOCK, -(-(first + count) // BLOCK))
    drawn = [
        np.random.default_rng([seed, 1, block]).random((BLOCK, width, draws), dtype=np.float32) for block in blocks
    ]
    return np.concatenate(drawn)[first - blocks.start * BLOCK :][:count]
