r"""Losses of a linear model, group by group, with the derivatives that an exact solver needs.

A model is a matrix :math:`\theta` of D rows and k columns: D is the number of features, plus one row (the last) for the
intercept; k is the number of outputs. Two losses:

- :class:`SquaredLosses`: :math:`\ell_e(\theta) = \frac{1}{n_e}\sum_{i \in e} \|y_i - \theta^\top x_i\|^2`, summed over
  outputs. All that the rows have to say is in each group's normal equations, so they are read once and every
  evaluation afterwards costs :math:`m D^2`, however many rows there were.
- :class:`~toporo.robust.logistic.LogisticLosses`:
  :math:`\ell_e(\theta) = \frac{1}{n_e}\sum_{i \in e} -\log \Pr(y_i \mid \theta^\top x_i)`, for two classes (k = 1) or
  more (k classes, softmax). Rows are kept, in the order of their groups.

Rows may carry weights; :math:`n_e` is then their sum in a group. The same bytes come out on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dposv

from toporo.errors import DataError, GroupMismatchError, listed
from toporo.groups import GroupIds, Groups
from toporo.machine import cores, one_thread
from toporo.types import Array, Name

T = TypeVar("T")

#: Rows that are worked on at a time, so that copies stay small beside the data.
CHUNK = 1 << 16


def as_inputs(x: Any, groups: Iterable[Name] | GroupIds) -> tuple[Any, GroupIds]:
    """Inputs as a matrix and the groups of its rows, checked against each other."""
    inputs = as_numbers(x, "x")
    if inputs.ndim != 2 or not inputs.size:
        raise DataError(f"x has shape {inputs.shape}: expected rows × features, at least one of each.")
    ids = groups if isinstance(groups, GroupIds) else Groups.of(groups)
    if len(ids) != len(inputs):
        raise DataError(f"x has {len(inputs)} rows and groups {len(ids)}: they must agree, in the same order.")
    codes = as_numbers(ids.codes, "groups").astype(np.int64)
    if not 0 <= codes.min() <= codes.max() < len(ids.groups):
        raise GroupMismatchError(
            f"group codes run from {codes.min()} to {codes.max()}, but there are {len(ids.groups)} groups."
        )
    return inputs, GroupIds(codes, ids.groups)


def as_numbers(values: Any, what: str) -> npt.NDArray[Any]:
    """An array of numbers from an array, a list or a tensor; text is refused."""
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{what} must hold numbers; found {array.dtype}. Encode text and categories first.")
    return array


def as_targets(y: Any, rows: int) -> Any:
    """Targets as a matrix with a row for every row of inputs."""
    targets = as_numbers(y, "y")
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.ndim != 2 or len(targets) != rows or not targets.shape[1]:
        raise DataError(f"y has shape {targets.shape}: expected {rows} rows, as x has, and one column per output.")
    return targets


def as_labels(y: Any, rows: int) -> npt.NDArray[Any]:
    """One label per row, none missing."""
    labels = np.asarray(y.detach().cpu() if hasattr(y, "detach") else y)
    if labels.ndim != 1 or len(labels) != rows:
        raise DataError(f"y has shape {labels.shape}: expected {rows} labels, one per row of x.")
    if labels.dtype.kind == "f":
        refuse_infinite(labels, "y")
    if labels.dtype == object and any(label is None or label != label for label in labels):
        raise DataError("y holds missing labels: drop those rows first.")
    return labels


def as_classes(labels: npt.NDArray[Any]) -> tuple[tuple[Any, ...], npt.NDArray[np.int64]]:
    """The classes in order, and every row's code among them."""
    kinds = sorted({type(label).__name__ for label in labels}) if labels.dtype == object else []
    try:
        classes, codes = np.unique(labels, return_inverse=True)
    except TypeError:
        raise DataError(f"y holds labels of types {', '.join(kinds)}, which have no order: use one type.") from None
    if len(classes) < 2:
        raise DataError(f"y holds a single class, {classes.tolist()[0]!r}: there is nothing to tell apart.")
    if labels.dtype.kind == "f" and len(classes) > max(20, len(labels) // 10):
        raise DataError(
            f"y holds {len(classes)} different decimal numbers, which look like measurements and not like classes: "
            "fit_linear is for those."
        )
    return tuple(classes.tolist()), codes.astype(np.int64)


def as_weights(sample_weight: Any, ids: GroupIds) -> Array | None:
    """Row weights, or None for equal ones; a group without weight is refused."""
    if sample_weight is None:
        counts = np.bincount(ids.codes, minlength=len(ids.groups))
        _refuse_empty(ids.groups, counts)
        return None
    weights = as_numbers(sample_weight, "sample_weight").astype(np.float64)
    if weights.shape != (len(ids),) or not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise DataError(
            f"sample_weight has shape {weights.shape}: expected {len(ids)} finite numbers of at least 0, one per row."
        )
    _refuse_empty(ids.groups, np.bincount(ids.codes, weights, minlength=len(ids.groups)))
    return weights


def weighted_rows(
    inputs: Any, targets: Any, ids: GroupIds, sample_weight: Any
) -> tuple[Any, Any, GroupIds, Array | None]:
    """Rows with their weights (None for equal ones); those without weight might as well not be there, and go."""
    weights = as_weights(sample_weight, ids)
    if weights is None or weights.all():
        return inputs, targets, ids, weights
    counted = weights > 0
    return inputs[counted], targets[counted], GroupIds(ids.codes[counted], ids.groups), weights[counted]


def _refuse_empty(groups: Groups, mass: npt.NDArray[Any]) -> None:
    empty = [name for name, count in zip(groups, mass, strict=True) if not count > 0]
    if empty:
        raise DataError(f"empty group(s), without a row that counts: {listed(empty)}. Drop them or give them rows.")


def refuse_infinite(values: npt.NDArray[Any], what: str) -> None:
    """Raise if a number is NaN or infinite, naming the first row."""
    if values.dtype.kind != "f":
        return
    for start in range(0, len(values), CHUNK):
        finite = np.isfinite(values[start : start + CHUNK])
        if not finite.all():
            bad = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
            raise DataError(
                f"{what} holds NaN or infinite values in {int(bad.sum())} of {len(values)} rows (first: row "
                f"{int(np.argmax(bad))}). Impute or drop those rows first."
            )


def refuse_one_class(
    groups: Groups,
    targets: npt.NDArray[np.int64],
    starts: npt.NDArray[np.intp],
    sizes: npt.NDArray[Any],
    classes: Sequence[Any],
) -> None:
    """``targets`` in the order of groups."""
    low, high = np.minimum.reduceat(targets, starts), np.maximum.reduceat(targets, starts)
    lone = [name for name, a, b in zip(groups, low, high, strict=True) if a == b]
    if lone:
        first = groups.encode([lone[0]])[0]
        raise DataError(
            f"{len(lone)} of {len(groups)} group(s) have rows of one class only: {listed(lone)} ({lone[0]!r}: all "
            f"{sizes[first]} rows are {classes[low[first]]!r}). The worst case over groups would learn to answer by "
            "the group. Merge such groups with others or drop them, or pass one_class='allow' if it is meant."
        )


def members_of(ids: GroupIds) -> list[npt.NDArray[np.intp]]:
    """The rows of each group, in order."""
    codes = ids.codes
    small = codes.astype(np.uint16) if len(ids.groups) < (1 << 16) else codes  # short keys are sorted in one pass
    order = np.argsort(small, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes, minlength=len(ids.groups)))[:-1])


def column_means(values: npt.NDArray[Any]) -> Array:
    """Column means; of NaN, NaN, which is reported later."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums = [values[start : start + CHUNK].sum(axis=0, dtype=np.float64) for start in range(0, len(values), CHUNK)]
        return np.asarray(np.sum(sums, axis=0) / len(values), dtype=np.float64)


def in_chunks(work: Callable[[slice], Array], rows: int) -> Array:
    """A product row by row, chunks in parallel."""
    return np.concatenate(for_each(chunks(rows), work, rows))


def chunks(rows: int) -> list[slice]:
    """Spans of at most ``CHUNK`` rows."""
    return [slice(start, start + CHUNK) for start in range(0, rows, CHUNK)]


def for_each(items: Sequence[Any], work: Callable[[Any], T], rows: int) -> list[T]:
    """Work on every item, on all cores if there are many rows; the last bits do not depend on how many those are."""
    with one_thread():
        if len(items) == 1 or rows < CHUNK or cores() == 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(cores()) as pool:
            return list(pool.map(work, items))


TOO_LARGE = "holds numbers too large to be squared: scale the columns first."


class Curve(Protocol):
    """Losses along a straight line from a place."""

    @property
    def batch(self) -> int:
        """How many distances are worth trying at once."""

    def losses(self, ts: Array) -> Array:
        """Every group's loss at each of these distances, distances × m."""

    def place(self, t: float) -> Place:
        """The place at distance t."""


class Place(Protocol):
    """A model at which losses have been evaluated, keeping what the derivatives can reuse."""

    @property
    def theta(self) -> Array:
        """The model, D × k."""

    @property
    def losses(self) -> Array:
        """Every group's loss, m."""

    @property
    def jacobian(self) -> Array:
        """The gradient of every group's loss, m × Dk."""

    def hessian(self, q: Array) -> Array:
        """Of the q-weighted loss: D × D if the outputs share it and have nothing between them, else Dk × Dk."""

    def along(self, direction: Array) -> Curve:
        """The line in a direction."""


class GroupLosses(Protocol):
    """Convex losses of a linear model by group."""

    @property
    def groups(self) -> Groups:
        """Whose losses these are."""

    @property
    def shape(self) -> tuple[int, int]:
        """D and k."""

    @property
    def intercept(self) -> bool:
        """Whether the last row of a model is an intercept."""

    @property
    def quick(self) -> bool:
        """Whether :meth:`excess` costs no more than a step."""

    def at(self, theta: Array) -> Place:
        """Evaluate a model."""

    def excess(self, place: Place, q: Array, pull: Array) -> float:
        r"""At most how far the loss at a place is above the least any model has, under weights q and the ridge.

        The loss is :math:`L(\theta) = \sum_e q_e \ell_e(\theta) + \frac12\langle\theta, r \odot \theta\rangle` with
        r = ``pull`` (D × k).
        """


# ---------------------------------------------------------------- squared error


@dataclass(frozen=True, eq=False)
class SquaredLosses:
    r"""Squared error by group: :math:`\langle\theta, A_e\theta\rangle - 2\langle B_e, \theta\rangle + c_e`.

    Attributes
    ----------
    gram, cross, square : :math:`A_e` (m × D × D), :math:`B_e` (m × D × k) and :math:`c_e` (m), all means over rows.
    counts : total weight of the rows of each group.
    input_shift, target_shift : subtracted from inputs and targets before anything else, so that few digits are lost.
        A model here is one of shifted data; :meth:`coefficients` gives the one of the data as they came.
    """

    groups: Groups
    counts: Array
    gram: Array
    cross: Array
    square: Array
    input_shift: Array
    target_shift: Array
    intercept: bool

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any, groups: Iterable[Name] | GroupIds, *, intercept: bool = True, sample_weight: Any = None
    ) -> SquaredLosses:
        """Read the rows once and keep every group's normal equations.

        Parameters
        ----------
        x, y, groups : one row per sample; y may have several columns.
        intercept : whether models have one.
        sample_weight : one weight per row, within its group.
        """
        inputs, ids = as_inputs(x, groups)
        targets = as_targets(y, len(inputs))
        inputs, targets, ids, weights = weighted_rows(inputs, targets, ids, sample_weight)
        members = members_of(ids)
        shifts = (
            (column_means(inputs), column_means(targets))
            if intercept
            else (np.zeros(inputs.shape[1]), np.zeros(targets.shape[1]))
        )

        def moments(rows: npt.NDArray[np.intp]) -> tuple[Array, float]:
            """The second moments of [x, 1, y] over a group's rows."""
            width = inputs.shape[1] + intercept + targets.shape[1]
            total, mass = np.zeros((width, width)), 0.0
            for span in chunks(len(rows)):
                part = rows[span]
                block = np.empty((len(part), width))
                with np.errstate(invalid="ignore"):
                    np.subtract(inputs[part], shifts[0], out=block[:, : inputs.shape[1]])
                    np.subtract(targets[part], shifts[1], out=block[:, width - targets.shape[1] :])
                if intercept:
                    block[:, inputs.shape[1]] = 1.0
                if weights is None:
                    mass += float(len(part))
                else:
                    block *= np.sqrt(weights[part])[:, None]
                    mass += float(weights[part].sum())
                with np.errstate(over="ignore", invalid="ignore"):  # found out below
                    total += block.T @ block
            return total / mass, mass

        by_group = for_each(members, moments, len(inputs))
        size = inputs.shape[1] + intercept
        second = np.stack([total for total, _ in by_group])
        if not np.isfinite(second).all():
            refuse_infinite(inputs, "x")
            refuse_infinite(targets, "y")
            raise DataError(f"x or y {TOO_LARGE}")
        return cls(
            groups=ids.groups,
            counts=np.array([mass for _, mass in by_group]),
            gram=np.ascontiguousarray(second[:, :size, :size]),
            cross=np.ascontiguousarray(second[:, :size, size:]),
            square=np.trace(second[:, size:, size:], axis1=1, axis2=2),
            input_shift=shifts[0],
            target_shift=shifts[1],
            intercept=intercept,
        )

    def select(self, names: Iterable[Name]) -> Self:
        """The losses of some of the groups. Shifts stay as they are, so a model is worth the same here and there."""
        groups = Groups(names)
        codes = self.groups.encode(groups)
        return type(self)(
            groups=groups,
            counts=self.counts[codes],
            gram=self.gram[codes],
            cross=self.cross[codes],
            square=self.square[codes],
            input_shift=self.input_shift,
            target_shift=self.target_shift,
            intercept=self.intercept,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a model."""
        return self.cross.shape[1], self.cross.shape[2]

    @property
    def quick(self) -> bool:
        """It takes one factorisation."""
        return True

    @cached_property
    def flat_gram(self) -> Array:
        """The quadratics, one group per row."""
        return self.gram.reshape(len(self.groups), -1)

    def products(self, theta: Array) -> Array:
        r""":math:`A_e \theta` for every group."""
        size, outputs = self.shape
        return (self.gram.reshape(-1, size) @ theta).reshape(-1, size, outputs)

    def at(self, theta: Array) -> Place:
        """Evaluate a model."""
        return _SquaredPlace(self, theta, self.products(theta))

    def excess(self, place: Place, q: Array, pull: Array) -> float:
        r"""Exactly :math:`\frac12 \langle g, H^{-1} g\rangle`: the loss is quadratic, with gradient g and Hessian H."""
        gradient = (q @ place.jacobian).reshape(self.shape) + pull * place.theta
        hessian = place.hessian(q) + np.diag(pull[:, 0])
        _, solved, failed = dposv(hessian, gradient)
        if not failed:
            return 0.5 * float(np.sum(gradient * solved))
        # Weights on groups that leave a direction free; the gradient has no part in it.
        units = np.sqrt(np.maximum(hessian.diagonal(), np.finfo(float).tiny))
        values, vectors = np.linalg.eigh(hessian / np.outer(units, units))
        seen = values > len(values) * np.finfo(float).eps * values[-1]
        return 0.5 * float(np.sum((vectors.T @ (gradient / units[:, None]))[seen] ** 2 / values[seen, None]))

    def coefficients(self, theta: Array) -> tuple[Array, Array]:
        """Coefficients (features × outputs) and intercepts for the data as they came."""
        if not self.intercept:
            return theta.copy(), np.zeros(theta.shape[1])
        return theta[:-1].copy(), theta[-1] + self.target_shift - self.input_shift @ theta[:-1]


@dataclass(frozen=True, eq=False)
class _SquaredPlace:
    problem: SquaredLosses
    theta: Array
    products: Array
    _known: dict[bytes, Array] = field(default_factory=dict)

    @cached_property
    def losses(self) -> Array:
        inner: Array = np.einsum("edk,dk->e", self.products - 2.0 * self.problem.cross, self.theta)
        return np.maximum(self.problem.square + inner, 0.0)

    @cached_property
    def jacobian(self) -> Array:
        flat: Array = (2.0 * (self.products - self.problem.cross)).reshape(len(self.losses), -1)
        return flat

    def hessian(self, q: Array) -> Array:
        key = q.tobytes()  # asked for once to step and once to certify
        if key not in self._known:
            size, _ = self.problem.shape
            self._known[key] = ((2.0 * q) @ self.problem.flat_gram).reshape(size, size)
        return self._known[key]

    def along(self, direction: Array) -> Curve:
        return _SquaredCurve(self, direction, self.problem.products(direction))


@dataclass(frozen=True, eq=False)
class _SquaredCurve:
    """Along a line the losses are parabolas: one pass over the normal equations gives them for every distance."""

    start: _SquaredPlace
    direction: Array
    products: Array

    @cached_property
    def slope(self) -> Array:
        return np.asarray(self.start.jacobian @ self.direction.reshape(-1))

    @cached_property
    def bend(self) -> Array:
        return np.asarray(np.einsum("edk,dk->e", self.products, self.direction))

    @property
    def batch(self) -> int:
        return 6

    def losses(self, ts: Array) -> Array:
        return np.maximum(self.start.losses + ts[:, None] * self.slope + (ts**2)[:, None] * self.bend, 0.0)

    def place(self, t: float) -> Place:
        start = self.start
        return _SquaredPlace(start.problem, start.theta + t * self.direction, start.products + t * self.products)
