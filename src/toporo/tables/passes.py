"""Rows of a table larger than memory for a logistic model, which passes over them chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from toporo.data.encode import Encoder
from toporo.data.frame import Numbers, Texts, frames_of
from toporo.data.table import Table
from toporo.errors import DataError
from toporo.estimators.rows import Scaling
from toporo.groups import Groups
from toporo.machine import one_thread
from toporo.robust.logistic import RowBlock, Sums, added
from toporo.tables.survey import ReadingPlan, training_rows
from toporo.types import Array


@dataclass(frozen=True, eq=False)
class RowEncoder:
    """Turns the rows of a chunk into blocks for a logistic model.

    Attributes
    ----------
    encoder, scaling : from columns to inputs.
    labels : the sorted classes.
    groups, mass : the groups, and the weight of the rows of each.
    """

    encoder: Encoder
    scaling: Scaling
    labels: tuple[str, ...]
    groups: Groups
    mass: Array

    def blocks(self, dataset: Table, index: int, plan: ReadingPlan) -> Iterator[RowBlock]:
        """Read the training rows of a chunk that have weight, in portions."""
        needed = [*self.encoder.columns, *plan.roles.columns.values()]
        kinds = {name: plan.kinds[name] for name in dict.fromkeys(needed)}
        class_of = {label: place for place, label in enumerate(self.labels)}
        group_of = {name: place for place, name in enumerate(self.groups)}
        for frame in frames_of(dataset.only([dataset.chunks[index]]), kinds, plan.rows):
            told = training_rows(frame, plan)
            used, weights = told.train, np.ones(len(frame))
            if plan.roles.weight is not None:
                column = frame[plan.roles.weight]
                weights = column.values if isinstance(column, Numbers) else weights
                used = used & (weights > 0)
            if not used.any():
                continue
            rows = frame if used.all() else frame.take(used)
            inputs = self.encoder.transform(rows).matrix
            inputs -= self.scaling.center
            inputs /= self.scaling.scale
            inputs = np.column_stack([inputs, np.ones(len(inputs))])  # the last is the intercept
            target, names = frame.text(plan.target), told.names
            target = target.known() if isinstance(frame[plan.target], Texts) else target
            classes = np.array([*(class_of.get(level, -1) for level in target.levels), -1])[target.codes[used]]
            if (classes < 0).any():
                raise DataError(
                    f"{frame.where} has changed since it was first read: it has new classes. Wait until nothing "
                    "writes to the table, and start again."
                )
            codes = np.array([*(group_of.get(name, -1) for name in names.levels), -1])[names.codes[used]]
            yield RowBlock.of(inputs, classes, codes, weights[used] / self.mass[codes])


def sums_of_chunk(
    dataset: Table, index: int, plan: ReadingPlan, encoder: RowEncoder, work: Callable[..., Sums], *args: Any
) -> Sums:
    """Sum ``work(block, *args)`` over the blocks of a chunk.

    Parameters
    ----------
    dataset, index, plan : the table, which chunk, and how it is read.
    encoder : makes blocks of rows.
    work, args : as for :meth:`ChunkRows.total`.
    """
    with one_thread():
        return added(work(block, *args) for block in encoder.blocks(dataset, index, plan))


@dataclass(frozen=True, eq=False)
class ChunkRows:
    """Rows of a table in chunks; a :class:`~toporo.robust.logistic.RowSource`.

    Attributes
    ----------
    over : calls :func:`sums_of_chunk` for every chunk with further arguments, and yields the sums in their order.
    encoder : makes blocks of rows.
    """

    over: Callable[..., Iterator[Sums]]
    encoder: RowEncoder

    def total(self, work: Callable[..., Sums], *args: Any) -> Sums:
        """Sum ``work(block, *args)`` over all chunks; ``work`` is a function at the top of a module."""
        return added(self.over(self.encoder, work, *args))
