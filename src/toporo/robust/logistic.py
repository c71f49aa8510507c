"""Logistic losses by group, binary and multinomial, from passes over rows in memory or elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, cast

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax, softmax

from toporo.groups import GroupIds, Groups
from toporo.robust.losses import GroupLosses, Point
from toporo.robust.rows import as_classes, as_inputs, as_labels, chunks, for_each, refuse_huge, weighted_rows
from toporo.types import Array, Name

#: An intercept's gradient that counts as zero: what it could still change is this times how far it is off.
INTERCEPT_SLACK = 1e-12

#: Arrays that a pass adds up over rows.
Sums = tuple[Array, ...]


# ---------------------------------------------------------------- rows


@dataclass(frozen=True, eq=False)
class RowBlock:
    """A block of rows, sorted by group.

    Attributes
    ----------
    inputs : shifted and scaled, a one at the end for the intercept, n × D.
    classes : class code of each row.
    share : weight of each row within its group.
    groups, starts : group code of each run of rows, and its first row.
    """

    inputs: Array
    classes: npt.NDArray[np.integer]
    share: Array
    groups: npt.NDArray[np.integer]
    starts: npt.NDArray[np.intp]

    @classmethod
    def of(
        cls, inputs: Array, classes: npt.NDArray[np.integer], codes: npt.NDArray[np.integer], share: Array
    ) -> RowBlock:
        """Sort rows by their group codes, unless they are sorted."""
        if (np.diff(codes) < 0).any():
            order = np.argsort(codes, kind="stable")
            inputs, classes, codes, share = inputs[order], classes[order], codes[order], share[order]
        starts = np.flatnonzero(np.r_[True, np.diff(codes) > 0])
        return cls(inputs, classes, share, codes[starts], starts)


class RowSource(Protocol):
    """Rows that can be passed over, in memory or elsewhere."""

    def total(self, work: Callable[..., Sums], *args: Any) -> Sums:
        """Sum ``work(block, *args)`` over all blocks of rows, always in the same order."""


def added(parts: Iterable[Sums]) -> Sums:
    """Add up the arrays of each part, in order; parts without rows are empty."""
    total: Sums = ()
    for part in parts:
        total = tuple(a + b for a, b in zip(total, part, strict=True)) if total and part else total or part
    return total


@dataclass(frozen=True, eq=False)
class MemoryRows:
    """Rows in memory, sorted by group; a :class:`RowSource`.

    Attributes
    ----------
    inputs, classes, codes, share : as for :meth:`RowBlock.of`, of all rows.
    """

    inputs: Array
    classes: npt.NDArray[np.integer]
    codes: npt.NDArray[np.integer]
    share: Array

    @cached_property
    def blocks(self) -> list[RowBlock]:
        """The rows in chunks."""
        return [
            RowBlock.of(self.inputs[span], self.classes[span], self.codes[span], self.share[span])
            for span in chunks(len(self.codes))
        ]

    def total(self, work: Callable[..., Sums], *args: Any) -> Sums:
        """Sum over all blocks."""
        return added(for_each(self.blocks, lambda block: work(block, *args), len(self.codes)))

    def select(self, groups: npt.NDArray[np.integer]) -> MemoryRows:
        """Return the rows of these groups, in ascending order, with new codes."""
        kept = np.isin(self.codes, groups)
        codes = np.searchsorted(groups, self.codes[kept])
        return MemoryRows(self.inputs[kept], self.classes[kept], codes, self.share[kept])


def probabilities(scores: Array) -> Array:
    """Return the probability of class one, or of every class, by row."""
    if scores.shape[1] > 1:
        return np.asarray(softmax(scores, axis=1))
    with np.errstate(over="ignore"):  # exp of a large negative score: a probability of zero
        return np.asarray(1.0 / (1.0 + np.exp(-scores)))


def row_losses(scores: Array, classes: npt.NDArray[np.integer]) -> Array:
    r"""Return :math:`-\log\Pr(y_i)` by row from scores :math:`\theta^\top x_i`."""
    if scores.shape[1] == 1:
        return np.asarray(np.logaddexp(0.0, np.where(classes == 1, -scores[:, 0], scores[:, 0])))
    return -np.take_along_axis(log_softmax(scores, axis=1), classes[:, None], axis=1)[:, 0]


def block_derivatives(block: RowBlock, theta: Array, m: int) -> Sums:
    """Return the part of a block in the m groups' losses (m), gradients (m × D × k) and intercept Hessians (m × k × k).

    Parameters
    ----------
    block : of rows.
    theta : the model, D × k.
    m : number of groups.
    """
    scores = block.inputs @ theta
    chances = probabilities(scores)
    residuals = chances.copy()
    if scores.shape[1] == 1:
        residuals[:, 0] -= block.classes == 1
    else:
        residuals[np.arange(len(residuals)), block.classes] -= 1.0
    residuals *= block.share[:, None]
    size, outputs = theta.shape
    losses, slopes, bends = np.zeros(m), np.zeros((m, size, outputs)), np.zeros((m, outputs, outputs))
    losses[block.groups] = np.add.reduceat(row_losses(scores, block.classes) * block.share, block.starts)
    runs = zip(block.groups, block.starts, [*block.starts[1:], len(residuals)], strict=True)
    for group, start, stop in runs:
        slopes[group] = block.inputs[start:stop].T @ residuals[start:stop]
    for a, b in zip(*np.tril_indices(outputs), strict=True):
        curved = block.share * chances[:, a] * (float(a == b) - chances[:, b])
        bends[block.groups, a, b] = bends[block.groups, b, a] = np.add.reduceat(curved, block.starts)
    return losses, slopes, bends


def block_hessian(block: RowBlock, theta: Array, q: Array) -> Sums:
    """Return the part of a block in the Hessian of the q-weighted loss, D × k × D × k.

    Parameters
    ----------
    block : of rows.
    theta, q : the model, and weights of the groups.
    """
    chances = probabilities(block.inputs @ theta)
    weights = np.repeat(q[block.groups], np.diff(np.append(block.starts, len(chances)))) * block.share
    size, outputs = theta.shape
    total = np.zeros((size, outputs, size, outputs))
    for a, b in zip(*np.tril_indices(outputs), strict=True):
        curvature = weights * chances[:, a] * (float(a == b) - chances[:, b])
        total[:, a, :, b] = total[:, b, :, a] = block.inputs.T @ (block.inputs * curvature[:, None])
    return (total,)


# ---------------------------------------------------------------- losses


@dataclass(frozen=True, eq=False)
class LogisticPoint(Point):
    """Losses and gradients, and ``bends``, the Hessian of each group's loss in the intercepts, m × k × k."""

    bends: Array


@dataclass(frozen=True, eq=False)
class LogisticLosses(GroupLosses):
    """Negative log-likelihood by group of a logistic (two classes) or softmax (more) model.

    Attributes
    ----------
    groups, input_shift, target_shift, intercept : as for :class:`~toporo.robust.losses.GroupLosses`.
    classes : sorted classes.
    rows : source of the rows.
    """

    classes: tuple[Any, ...]
    rows: RowSource

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any, groups: Iterable[Name] | GroupIds, *, intercept: bool = True, sample_weight: Any = None
    ) -> LogisticLosses:
        """Sort rows in memory by group.

        Parameters
        ----------
        x, y, groups : one row per sample; y holds classes.
        intercept : whether models have one.
        sample_weight : one weight per row, within its group.
        """
        inputs, ids = as_inputs(x, groups)
        inputs, labels, ids, weights = weighted_rows(inputs, as_labels(y, len(inputs)), ids, sample_weight)
        classes, targets = as_classes(labels)
        refuse_huge(inputs, "x")
        order = np.argsort(ids.codes, kind="stable")
        codes, row_weights = ids.codes[order], np.ones(len(order)) if weights is None else weights[order]
        shift = inputs.mean(axis=0, dtype=np.float64) if intercept else np.zeros(inputs.shape[1])
        kept = np.ones((len(order), len(shift) + intercept))
        np.subtract(inputs[order], shift, out=kept[:, : len(shift)])
        rows = MemoryRows(kept, targets[order], codes, row_weights / np.bincount(codes, row_weights)[codes])
        return cls(ids.groups, shift, 0.0, intercept, classes, rows)

    def select(self, names: Iterable[Name]) -> Self:
        """Return the losses of some of the groups; shift and classes stay, so a model is worth the same here and there.

        Only for rows in memory.
        """
        groups = Groups(names)
        codes = self.groups.encode(groups)
        return replace(self, groups=groups, rows=self.memory.select(codes))

    def coefficients(self, theta: Array) -> tuple[Array, Array]:
        """Return coefficients and intercepts for the data as they came; those of several classes have mean zero.

        A constant added to the intercepts of all classes changes no probability, and would be left to rounding.
        """
        coef, intercept = super().coefficients(theta)
        return coef, intercept - intercept.mean() if len(intercept) > 1 else intercept

    @property
    def memory(self) -> MemoryRows:
        """The rows, which must be in memory."""
        return cast("MemoryRows", self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a model, D and k."""
        return len(self.input_shift) + self.intercept, 1 if len(self.classes) == 2 else len(self.classes)

    def at(self, theta: Array) -> LogisticPoint:
        """Evaluate a model, by a pass over the rows."""
        losses, slopes, bends = self.rows.total(block_derivatives, theta, len(self.groups))
        return LogisticPoint(theta, losses, slopes.reshape(len(losses), -1), bends)

    def hessian(self, theta: Array, q: Array) -> Array:
        """Return the Hessian of the q-weighted loss at a model, by a pass over the rows."""
        (total,) = self.rows.total(block_hessian, theta, q)
        return np.asarray(total.reshape(theta.size, theta.size))

    def suboptimality(self, point: Point, q: Array, ridge: Array) -> float:
        r"""By Fenchel's inequality, at the model whose intercept is best for q and whose weights W are as they are.

        There the intercept's gradient is zero and the loss is at most :math:`\|\nabla_W L\|^2 / 2r` above its least,
        which the ridge's strong convexity gives for W and the dual of the likelihood for W and intercept together.
        """
        best = self._best_intercept(point, q) if self.intercept else point
        if best is None:
            return math.inf
        gradient = (q @ best.jacobian).reshape(ridge.shape) + ridge * best.theta
        held = ridge > 0
        return float(q @ (point.losses - best.losses)) + 0.5 * float(np.sum(gradient[held] ** 2 / ridge[held]))

    def _best_intercept(self, point: Point, q: Array) -> Point | None:
        """Newton's method on the intercept alone, until its gradient is rounding; None if it does not get there."""
        here = cast("LogisticPoint", point)
        for _ in range(100):
            gradient = (q @ here.jacobian).reshape(self.shape)[-1]
            if np.abs(gradient).max() <= INTERCEPT_SLACK:
                return here
            step = -np.linalg.pinv(np.tensordot(q, here.bends, axes=1), rcond=1e-12, hermitian=True) @ gradient
            if not np.abs(step @ gradient) > 0:  # all probabilities are 0 or 1: no curvature to go by
                step = -np.sign(gradient)
            step *= min(1.0, max(3.0, 0.5 * np.abs(here.theta[-1]).max()) / np.abs(step).max())
            move = np.vstack([np.zeros((len(here.theta) - 1, len(step))), step])
            most = float(q @ here.losses) * (1.0 + 1e-14)  # near the end the loss moves by less than rounding
            t, nearer = 1.0, self.at(here.theta + move)
            while t > 1e-6 and q @ nearer.losses > most:
                t *= 0.5
                nearer = self.at(here.theta + t * move)
            if t <= 1e-6:
                return here if np.abs(gradient).max() <= 1e3 * INTERCEPT_SLACK else None
            here = nearer
        return None
