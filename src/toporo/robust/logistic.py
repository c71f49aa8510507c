"""Logistic losses by group, binary and multinomial, from passes over rows in memory or elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from toporo.checks import one_of
from toporo.errors import SettingError
from toporo.groups import GroupIds, Groups
from toporo.robust.losses import GroupLosses, Point, SearchLine
from toporo.robust.rows import (
    as_classes,
    as_inputs,
    as_labels,
    chunks,
    for_each,
    refuse_huge,
    refuse_one_class,
    weighted_rows,
)
from toporo.types import Array, Name

#: An intercept's gradient that counts as zero: what it could still change is this times how far it is off.
INTERCEPT_SLACK = 1e-12
ONE_CLASS = ("error", "allow")

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
    if scores.shape[1] == 1:
        with np.errstate(over="ignore"):  # exp of a large negative score: a probability of zero
            return np.asarray(1.0 / (1.0 + np.exp(-scores)))
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def row_losses(scores: Array, classes: npt.NDArray[np.integer]) -> Array:
    r"""Return :math:`-\log\Pr(y_i)` by row from scores :math:`\theta^\top x_i`."""
    if scores.shape[1] == 1:
        return np.asarray(np.logaddexp(0.0, np.where(classes == 1, -scores[:, 0], scores[:, 0])))
    top = scores.max(axis=1)
    observed = np.take_along_axis(scores, classes[:, None], axis=1)[:, 0]
    return np.asarray(np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - observed)


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
class LogisticLosses(GroupLosses):
    """Negative log-likelihood by group of a logistic (two classes) or softmax (more) model.

    Attributes
    ----------
    groups, counts, input_shift, target_shift, intercept : as for :class:`~toporo.robust.losses.GroupLosses`.
    classes : sorted classes.
    rows : source of the rows.
    """

    classes: tuple[Any, ...]
    rows: RowSource

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        groups: Iterable[Name] | GroupIds,
        *,
        intercept: bool = True,
        sample_weight: Any = None,
        one_class: str = "error",
        scale: Array | None = None,
    ) -> LogisticLosses:
        """Sort rows in memory by group.

        Parameters
        ----------
        x, y, groups : one row per sample; y holds classes.
        intercept : whether models have one.
        sample_weight : one weight per row, within its group.
        one_class : ``"error"`` refuses groups whose rows are all of one class, because the worst case over groups
            would pull the model towards a constant; ``"allow"`` admits them.
        scale : divides the inputs, by column.
        """
        one_of(one_class, "one_class", ONE_CLASS)
        inputs, ids = as_inputs(x, groups)
        inputs, labels, ids, weights = weighted_rows(inputs, as_labels(y, len(inputs)), ids, sample_weight)
        classes, targets = as_classes(labels)
        order = np.argsort(ids.codes, kind="stable")
        codes, targets = ids.codes[order], targets[order]
        if one_class == "error":
            refuse_one_class(ids.groups, targets, codes, classes)
        refuse_huge(inputs, "x")
        if weights is not None:
            refuse_huge(weights, "sample_weight")
        shift = inputs.mean(axis=0, dtype=np.float64) if intercept else np.zeros(inputs.shape[1])
        scale = np.ones(len(shift)) if scale is None else scale
        kept = np.ones((len(order), len(shift) + intercept))
        for part in chunks(len(order)):
            kept[part, : len(shift)] = (inputs[order[part]] - shift) / scale
        row_weights = np.ones(len(order)) if weights is None else weights[order]
        counts = np.asarray(np.bincount(codes, row_weights), dtype=np.float64)
        rows = MemoryRows(kept, targets, codes, row_weights / counts[codes])
        return cls(ids.groups, counts, shift / scale, 0.0, intercept, classes, rows)

    def select(self, names: Iterable[Name]) -> Self:
        """Return the losses of some of the groups; shift and classes stay, so a model is worth the same here and there.

        Only for rows in memory.
        """
        groups = Groups(names)
        codes = self.groups.encode(groups)
        counts, rows = self.counts[codes], self.memory.select(codes)
        return type(self)(groups, counts, self.input_shift, 0.0, self.intercept, self.classes, rows)

    def coefficients(self, theta: Array) -> tuple[Array, Array]:
        """Return coefficients and intercepts for the data as they came; those of several classes have mean zero.

        A constant added to the intercepts of all classes changes no probability, and would be left to rounding.
        """
        coef, intercept = super().coefficients(theta)
        return coef, intercept - intercept.mean() if len(intercept) > 1 else intercept

    @property
    def memory(self) -> MemoryRows:
        """The rows, which must be in memory."""
        if not isinstance(self.rows, MemoryRows):
            raise SettingError("groups can only be selected of rows in memory: draw some of the rows.")
        return self.rows

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a model, D and k."""
        return len(self.input_shift) + self.intercept, 1 if len(self.classes) == 2 else len(self.classes)

    def at(self, theta: Array) -> _LogisticPoint:
        """Evaluate a model, by a pass over the rows when a value is first asked for."""
        return _LogisticPoint(self, theta)

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
        here = point if isinstance(point, _LogisticPoint) else self.at(point.theta)
        for _ in range(100):
            _, slopes, bends = here.sums
            gradient = q @ slopes[:, -1]
            if np.abs(gradient).max() <= INTERCEPT_SLACK:
                return here
            step = -np.linalg.pinv(np.tensordot(q, bends, axes=1), rcond=1e-12, hermitian=True) @ gradient
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


@dataclass(frozen=True, eq=False)
class _LogisticPoint(Point):
    problem: LogisticLosses
    theta: Array

    @cached_property
    def sums(self) -> Sums:
        """Losses, gradients and intercept Hessians of the groups, from a pass over the rows."""
        return self.problem.rows.total(block_derivatives, self.theta, len(self.problem.groups))

    @property
    def losses(self) -> Array:
        if not self.theta.any():  # no pass is needed
            return np.full(len(self.problem.groups), math.log(len(self.problem.classes)))
        return self.sums[0]

    @property
    def jacobian(self) -> Array:
        return self.sums[1].reshape(len(self.problem.groups), -1)

    def hessian(self, q: Array) -> Array:
        (total,) = self.problem.rows.total(block_hessian, self.theta, q)
        return np.asarray(total.reshape(self.theta.size, self.theta.size))

    def along(self, direction: Array) -> SearchLine:
        """Evaluate points one at a time; each is kept, because it is tried first and then taken."""
        point = cache(lambda t: _LogisticPoint(self.problem, self.theta + t * direction))
        return SearchLine(lambda ts: np.stack([point(float(t)).losses for t in ts]), point)
