"""Passes of a logistic model over a table that is larger than memory, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.data.dataset import Dataset
from toporo.data.encode import Encoder
from toporo.data.frame import Numbers, Texts, frames_of
from toporo.errors import DataError
from toporo.estimators.rows import Scaling
from toporo.machine import one_thread
from toporo.robust.moments import GroupMoments
from toporo.robust.passes import PassedLosses, Sums, portion_hessian, portion_sums
from toporo.tables.survey import ReadingPlan, training_rows
from toporo.types import Array


@dataclass(frozen=True, eq=False)
class Lens:
    """How rows become what a pass adds up.

    Attributes
    ----------
    encoder, scaling : from columns to inputs.
    intercept : whether a one follows them.
    labels : the classes, in order.
    groups, mass : in order, and the weight of the rows of each.
    """

    encoder: Encoder
    scaling: Scaling
    intercept: bool
    labels: tuple[str, ...]
    groups: tuple[str, ...]
    mass: Array

    def rows(
        self, dataset: Dataset, index: int, plan: ReadingPlan
    ) -> Iterator[tuple[Array, npt.NDArray[np.intp], npt.NDArray[np.intp], Array]]:
        """Portions of a piece: inputs, classes, groups and shares of the training rows that count."""
        needed = [*self.encoder.columns, plan.group, plan.target, *([plan.weight] if plan.weight else [])]
        kinds = {name: plan.kinds[name] for name in dict.fromkeys(needed)}
        class_of = {label: place for place, label in enumerate(self.labels)}
        group_of = {name: place for place, name in enumerate(self.groups)}
        piece = dataset.pieces[index]
        with dataset.open(piece) as opened:
            for frame in frames_of(opened, kinds, plan.rows, copy=False):
                told = training_rows(frame, plan)
                used, weights = told.train, np.ones(len(frame))
                if plan.weight is not None:
                    column = frame[plan.weight]
                    weights = column.values if isinstance(column, Numbers) else weights
                    used = used & (weights > 0)
                if not used.any():
                    continue
                rows = frame if used.all() else frame.take(used)
                inputs = self.encoder.transform(rows).matrix
                inputs -= self.scaling.center
                inputs /= self.scaling.scale
                if self.intercept:
                    inputs = np.column_stack([inputs, np.ones(len(inputs))])
                target, names = frame.text(plan.target), told.names
                target = target.known() if isinstance(frame[plan.target], Texts) else target
                classes = np.array([*(class_of.get(level, -1) for level in target.levels), -1])[target.codes[used]]
                if (classes < 0).any():
                    raise DataError(
                        f"{frame.where} has changed since it was first read: it has new classes. Wait until nothing "
                        "writes to the table, and start again."
                    )
                codes = np.array([*(group_of.get(name, -1) for name in names.levels), -1])[names.codes[used]]
                yield inputs, classes, codes, weights[used] / self.mass[codes]


def look_at_piece(dataset: Dataset, index: int, plan: ReadingPlan, lens: Lens, theta: Array) -> Sums:
    """What a piece adds to a pass at a model.

    Parameters
    ----------
    dataset, index, plan, lens : the table, which piece, and how it is read.
    theta : the model.
    """
    m, (size, outputs) = len(lens.groups), theta.shape
    total = np.zeros(m), np.zeros((m, size, outputs)), np.zeros((m, outputs, outputs))
    with one_thread():
        for inputs, classes, codes, share in lens.rows(dataset, index, plan):
            for whole, part in zip(total, portion_sums(inputs, classes, codes, share, m, theta), strict=True):
                whole += part
    return total


def bend_of_piece(dataset: Dataset, index: int, plan: ReadingPlan, lens: Lens, theta: Array, q: Array) -> Array:
    """What a piece adds to the Hessian.

    Parameters
    ----------
    dataset, index, plan, lens, theta : as in :func:`look_at_piece`.
    q : weights of the groups.
    """
    size, outputs = theta.shape
    total = np.zeros((size, outputs, size, outputs))
    with one_thread():
        for inputs, _, codes, share in lens.rows(dataset, index, plan):
            total += portion_hessian(inputs, q[codes] * share, theta)
    return total


def passed_losses(over: Callable[..., Iterator[Any]], lens: Lens, moments: GroupMoments, center: Array) -> PassedLosses:
    """Losses whose passes go over all pieces, added up in their order.

    Parameters
    ----------
    over : calls a function with every piece, and more arguments; what it comes to in the order of the pieces.
    lens : how rows are read.
    moments : of the inputs.
    center : what was subtracted from them.
    """

    def look(theta: Array) -> Sums:
        sums: Any = None
        for part in over(look_at_piece, lens, theta):
            sums = part if sums is None else tuple(a + b for a, b in zip(sums, part, strict=True))
        return sums  # type: ignore[no-any-return]  # there is a piece

    def bend(theta: Array, q: Array) -> Array:
        total: Any = 0.0
        for part in over(bend_of_piece, lens, theta, q):
            total = total + part
        return np.asarray(total.reshape(theta.size, theta.size))

    return PassedLosses(
        groups=moments.groups,
        counts=moments.mass,
        classes=lens.labels,
        width=len(lens.encoder.names) + lens.intercept,
        look=look,
        bend=bend,
        input_shift=center / lens.scaling.scale,
        intercept=lens.intercept,
    )
