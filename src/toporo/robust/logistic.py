"""Logistic losses by group, binary and multinomial, for the exact solver."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError
from toporo.groups import GroupIds, Groups
from toporo.robust.group_losses import (
    TOO_LARGE,
    Place,
    as_classes,
    as_inputs,
    as_labels,
    chunks,
    column_means,
    for_each,
    in_chunks,
    members_of,
    refuse_infinite,
    refuse_one_class,
    weighted_rows,
)
from toporo.types import Array, Name

P = TypeVar("P", bound=Place)

#: An intercept's gradient that counts as zero: what it could still change is this times how far it is off.
INTERCEPT_SLACK = 1e-12
#: The square of a larger number would be none.
LARGEST = 1e150
ONE_CLASS = ("error", "allow")


def chances_of(scores: Array) -> Array:
    """The probability of class one, or of every class, by row."""
    if scores.shape[1] == 1:
        with np.errstate(over="ignore"):  # exp of a large negative score: a probability of zero
            return np.asarray(1.0 / (1.0 + np.exp(-scores)))
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def row_losses(scores: Array, targets: npt.NDArray[np.integer]) -> Array:
    r""":math:`-\log\Pr(y_i)` by row from scores :math:`\theta^\top x_i`."""
    if scores.shape[1] == 1:
        return np.asarray(np.logaddexp(0.0, np.where(targets == 1, -scores[:, 0], scores[:, 0])))
    top = scores.max(axis=1)
    own = np.take_along_axis(scores, targets[:, None], axis=1)[:, 0]
    return np.asarray(np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - own)


def residuals_of(chances: Array, targets: npt.NDArray[np.integer], share: Array) -> Array:
    """Probability less truth, times the row's share of its group: the gradient by the scores."""
    off = chances.copy()
    if off.shape[1] == 1:
        off[:, 0] -= targets == 1
    else:
        off[np.arange(len(off)), targets] -= 1.0
    off *= share[:, None]
    return off


def excess_over(place: Place, best: Place, q: Array, pull: Array) -> float:
    """At most how far the loss at a place is above the least, given the place with the best intercept for q."""
    gradient = (q @ best.jacobian).reshape(pull.shape) + pull * best.theta
    held = pull > 0
    return float(q @ (place.losses - best.losses)) + 0.5 * float(np.sum(gradient[held] ** 2 / pull[held]))


@dataclass(frozen=True, eq=False)
class LogisticLosses:
    """Negative log-likelihood by group of a logistic (two classes) or softmax (more) model.

    Attributes
    ----------
    inputs : rows in the order of their groups, shifted by their mean, a one at the end for the intercept.
    targets : which class each row is (a code into ``classes``).
    share : every row's weight within its group; they sum to one in a group.
    starts : where each group's rows begin.
    """

    groups: Groups
    counts: Array
    classes: tuple[Any, ...]
    inputs: Array
    targets: npt.NDArray[np.int64]
    share: Array
    starts: npt.NDArray[np.intp]
    input_shift: Array
    intercept: bool

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
    ) -> LogisticLosses:
        """Sort the rows by group.

        Parameters
        ----------
        x, y, groups : one row per sample; y holds classes.
        intercept : whether models have one.
        sample_weight : one weight per row, within its group.
        one_class : what a group whose rows are all of one class means: an ``"error"``, because such a group's worst
            case pulls the model towards a constant, or nothing (``"allow"``).
        """
        if one_class not in ONE_CLASS:
            raise SettingError(f"one_class is {one_class!r}: expected {' or '.join(map(repr, ONE_CLASS))}.")
        inputs, ids = as_inputs(x, groups)
        inputs, labels, ids, weights = weighted_rows(inputs, as_labels(y, len(inputs)), ids, sample_weight)
        classes, targets = as_classes(labels)
        members = members_of(ids)
        order = np.concatenate(members)
        sizes = np.array([len(rows) for rows in members])
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)
        if one_class == "error":
            refuse_one_class(ids.groups, targets[order], starts, sizes, classes)
        refuse_infinite(inputs, "x")
        shift = column_means(inputs) if intercept else np.zeros(inputs.shape[1])
        kept = np.empty((len(order), inputs.shape[1] + intercept))
        for part in chunks(len(order)):
            np.subtract(inputs[order[part]], shift, out=kept[part, : inputs.shape[1]])
        if intercept:
            kept[:, -1] = 1.0
        if not max(kept.max(), -kept.min()) < LARGEST:
            raise DataError(f"x {TOO_LARGE}")
        row_weights = np.ones(len(order)) if weights is None else weights[order]
        counts = np.add.reduceat(row_weights, starts)
        return cls(
            groups=ids.groups,
            counts=counts,
            classes=classes,
            inputs=kept,
            targets=targets[order],
            share=row_weights / np.repeat(counts, sizes),
            starts=starts,
            input_shift=shift,
            intercept=intercept,
        )

    def select(self, names: Iterable[Name]) -> Self:
        """The losses of some of the groups. Shift and classes stay, so a model is worth the same here and there."""
        groups = Groups(names)
        codes, spans = self.groups.encode(groups), self.spans
        kept = [spans[code] for code in codes]
        sizes = [span.stop - span.start for span in kept]
        return type(self)(
            groups=groups,
            counts=self.counts[codes],
            classes=self.classes,
            inputs=np.concatenate([self.inputs[span] for span in kept]),
            targets=np.concatenate([self.targets[span] for span in kept]),
            share=np.concatenate([self.share[span] for span in kept]),
            starts=np.cumsum([0, *sizes[:-1]], dtype=np.intp),
            input_shift=self.input_shift,
            intercept=self.intercept,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a model."""
        return self.inputs.shape[1], 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def quick(self) -> bool:
        """It takes several passes over the rows."""
        return False

    @property
    def spans(self) -> list[slice]:
        """Where each group's rows are."""
        return [slice(a, b) for a, b in zip(self.starts, [*self.starts[1:], len(self.targets)], strict=True)]

    def at(self, theta: Array) -> _LogisticPlace:
        """Evaluate a model."""
        return _LogisticPlace(self, theta, in_chunks(lambda part: self.inputs[part] @ theta, len(self.inputs)))

    def excess(self, place: Place, q: Array, pull: Array) -> float:
        r"""By Fenchel's inequality, at the model whose intercept is best for q and whose weights W are as they are.

        There the intercept's gradient is zero and the loss is at most :math:`\|\nabla_W L\|^2 / 2r` above its least,
        which the ridge's strong convexity gives for W and the dual of the likelihood for W and intercept together.
        """
        best = self._best_intercept(place, q) if self.intercept else place  # with the same weights, so the same ridge
        return math.inf if best is None else excess_over(place, best, q, pull)

    def _best_intercept(self, place: Place, q: Array) -> Place | None:
        """Newton's method on the intercept alone, until its gradient is rounding; None if it does not get there."""
        row_weights = np.repeat(q, np.diff([*self.starts, len(self.targets)])) * self.share
        here = self.at(place.theta) if not isinstance(place, _LogisticPlace) else place
        for _ in range(100):
            gradient = q @ np.add.reduceat(here.residuals, self.starts, axis=0)
            if np.abs(gradient).max() <= INTERCEPT_SLACK:
                return here
            curvature = np.diag(row_weights @ here.chances) - (here.chances * row_weights[:, None]).T @ here.chances
            step = -np.linalg.pinv(curvature, rcond=1e-12, hermitian=True) @ gradient
            if not np.abs(step @ gradient) > 0:  # all probabilities are 0 or 1: no curvature to go by
                step = -np.sign(gradient)
            step *= min(1.0, max(3.0, 0.5 * np.abs(here.theta[-1]).max()) / np.abs(step).max())
            line, t = here.along(np.vstack([np.zeros((len(here.theta) - 1, len(step))), step])), 1.0
            most = float(q @ here.losses) * (1.0 + 1e-14)  # near the end the loss moves by less than rounding
            while t > 1e-6 and q @ line.place(t).losses > most:
                t *= 0.5
            if t <= 1e-6:
                return here if np.abs(gradient).max() <= 1e3 * INTERCEPT_SLACK else None
            here = line.place(t)
        return None

    def coefficients(self, theta: Array) -> tuple[Array, Array]:
        """Coefficients (features × outputs) and intercepts for the data as they came."""
        if not self.intercept:
            return theta.copy(), np.zeros(theta.shape[1])
        return theta[:-1].copy(), theta[-1] - self.input_shift @ theta[:-1]

    def by_group(self, rows: Array) -> Array:
        """Means by group of one value per row."""
        means: Array = np.add.reduceat(rows * self.share, self.starts)
        return means


@dataclass(frozen=True, eq=False)
class _LogisticPlace:
    problem: LogisticLosses
    theta: Array
    scores: Array

    @cached_property
    def losses(self) -> Array:
        return self.problem.by_group(row_losses(self.scores, self.problem.targets))

    @cached_property
    def chances(self) -> Array:
        """The probability of class one, or of every class, by row."""
        return chances_of(self.scores)

    @cached_property
    def residuals(self) -> Array:
        """Probability less truth, times the row's share of its group: the gradient by the scores."""
        return residuals_of(self.chances, self.problem.targets, self.problem.share)

    @cached_property
    def jacobian(self) -> Array:
        problem, off = self.problem, self.residuals
        return np.stack(
            for_each(problem.spans, lambda span: (problem.inputs[span].T @ off[span]).reshape(-1), len(off))
        )

    def hessian(self, q: Array) -> Array:
        problem = self.problem
        size, outputs = problem.shape
        self.chances  # noqa: B018  # before the threads ask for it
        weights = np.repeat(q, np.diff([*problem.starts, len(problem.targets)])) * problem.share
        spans = chunks(len(weights))
        tasks = [(a, b, span) for a in range(outputs) for b in range(a + 1) for span in spans]
        total = np.zeros((size, outputs, size, outputs))

        def block(task: tuple[int, int, slice]) -> Array:
            a, b, span = task
            chances, rows = self.chances[span], problem.inputs[span]
            curvature = weights[span] * chances[:, a] * (float(a == b) - chances[:, b])
            return np.asarray(rows.T @ (rows * curvature[:, None]))

        for (a, b, _), part in zip(tasks, for_each(tasks, block, len(weights)), strict=True):
            total[:, a, :, b] += part
            if a != b:
                total[:, b, :, a] += part
        return total.reshape(size * outputs, size * outputs)

    def along(self, direction: Array) -> TriedCurve[_LogisticPlace]:
        problem, theta, scores = self.problem, self.theta, self.scores
        moved = in_chunks(lambda part: problem.inputs[part] @ direction, len(problem.inputs))
        return TriedCurve(lambda t: _LogisticPlace(problem, theta + t * direction, scores + t * moved))


@dataclass(frozen=True, eq=False)
class TriedCurve(Generic[P]):
    """A line along which places are tried one at a time; see :class:`~toporo.robust.group_losses.Curve`.

    Attributes
    ----------
    at : makes the place at a distance.
    """

    at: Callable[[float], P]
    _known: dict[float, P] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        """One."""
        return 1

    def losses(self, ts: Array) -> Array:
        """Every group's loss at each of these distances."""
        return np.stack([self.place(float(t)).losses for t in ts])

    def place(self, t: float) -> P:
        """The place at distance t."""
        if t not in self._known:  # tried first, then taken
            self._known.clear()
            self._known[t] = self.at(t)
        return self._known[t]
