"""Fitted candidates: frozen dataclasses of arrays and of other predictors, which predict and can be stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax

from toporo.errors import DataError, SettingError, muted
from toporo.estimators.kriged_model import KrigedModel
from toporo.estimators.places import Context, GroupMeans, Places
from toporo.estimators.trees import StoredTrees
from toporo.groups import GroupIds
from toporo.machine import one_thread
from toporo.types import Array

#: Inputs of linear models count at most so many standard deviations beyond what was seen.
BEYOND = 1.0
#: Boosted trees predict fewer rows than this on one thread: several wait for one another after every tree.
MANY_ROWS = 1 << 16
#: The kind of inputs of which trees with context take means by group.
KIND = "inputs"


class Predictor(ABC):
    """A fitted candidate."""

    @abstractmethod
    def __call__(self, x: Array, at: Places) -> Array:
        """Predict rows: (rows, classes or 1)."""

    def group_context(self, x: Array, ids: GroupIds) -> Context:  # noqa: ARG002
        """Return the means of inputs by group that predictions take, from some of the rows to predict."""
        return {}


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs in standard deviations, gaps filled with medians, none farther than one beyond what was seen.

    Attributes
    ----------
    fill, center, scale, low, high : of every column; the range in standard deviations.
    """

    fill: Array
    center: Array
    scale: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, x: Array) -> Inputs:
        """Measure the rows that a model is fitted to."""
        there = np.isfinite(x)
        if there.all():
            fill, values = np.median(x, axis=0), x
        else:
            kept = np.where(there, x, np.nan)
            kept[:, ~there.any(axis=0)] = 0.0
            fill = np.nanmedian(kept, axis=0)
            values = np.where(there, x, fill)
        center, scale = values.mean(axis=0), values.std(axis=0)
        scale = np.where(scale > 1e-12 * np.abs(center), scale, 1.0)
        low, high = ((end - center) / scale for end in (values.min(axis=0), values.max(axis=0)))
        return cls(fill, center, scale, low - BEYOND, high + BEYOND)

    def __call__(self, x: Array) -> Array:
        """Return scaled rows."""
        values = np.where(np.isfinite(x), x, self.fill)
        values -= self.center
        values /= self.scale
        return np.asarray(np.clip(values, self.low, self.high, out=values))

    def check(self) -> None:
        """Raise unless columns can be divided by their scale."""
        if not (self.scale > 0).all():
            raise DataError("its array 'scale' holds numbers that are not positive.")


@dataclass(frozen=True, eq=False)
class Constant(Predictor):
    """The same prediction for every row."""

    values: Array

    def __call__(self, x: Array, at: Places) -> Array:  # noqa: ARG002
        return np.tile(self.values, (len(x), 1))


@dataclass(frozen=True, eq=False)
class Linear(Predictor):
    """A linear model; of classes, one of log-odds.

    Attributes
    ----------
    inputs : scaling.
    coef, intercept : (inputs, outputs) and (outputs,).
    codes : of the classes that it knows, among all; None for numbers.
    count : number of classes; 1 for numbers.
    """

    inputs: Inputs
    coef: Array
    intercept: Array
    codes: npt.NDArray[np.int64] | None = None
    count: int = 1

    def __call__(self, x: Array, at: Places) -> Array:  # noqa: ARG002
        scores = self.inputs(x) @ self.coef + self.intercept
        if self.codes is None:
            return np.asarray(scores)
        out = np.zeros((len(scores), self.count))
        if scores.shape[1] == 1:
            second = expit(scores[:, 0])
            out[:, self.codes] = np.column_stack([1.0 - second, second])
        else:
            out[:, self.codes] = softmax(scores, axis=1)
        return out


@dataclass(frozen=True, eq=False)
class Boosted(Predictor):
    """Boosted trees, of columns that had some value in training: scikit-learn fails on others.

    Attributes
    ----------
    kept : the columns.
    model : of scikit-learn, or :class:`~toporo.estimators.trees.StoredTrees`.
    codes, count : see :class:`Linear`.
    """

    kept: npt.NDArray[np.int64]
    model: Any = field(metadata={"stored": StoredTrees})
    codes: npt.NDArray[np.int64] | None = None
    count: int = 1

    def __call__(self, x: Array, at: Places) -> Array:  # noqa: ARG002
        some = x if len(self.kept) == x.shape[1] else x[:, self.kept]
        with one_thread(openmp=True) if len(x) < MANY_ROWS else nullcontext():
            if self.codes is None:
                return np.asarray(self.model.predict(some), dtype=np.float64).reshape(-1, 1)
            out = np.zeros((len(x), self.count))
            out[:, self.codes] = self.model.predict_proba(some)
        return out

    def packed(self) -> Boosted:
        """Return the same with trees as arrays."""
        return self if isinstance(self.model, StoredTrees) else replace(self, model=StoredTrees.of(self.model))

    def check(self) -> None:
        """Raise unless there is a column for each of the trees' inputs."""
        if self.kept.shape != (self.model.inputs,) or not len(self.kept) or (self.kept < 0).any():
            raise DataError("its trees look at columns that are not there.")


@dataclass(frozen=True, eq=False)
class WithContext(Predictor):
    """Trees whose inputs are those of a row and the means of its group."""

    trees: Boosted

    def __call__(self, x: Array, at: Places) -> Array:
        return self.trees(with_means(x, at), at)

    def group_context(self, x: Array, ids: GroupIds) -> Context:
        return {KIND: GroupMeans.of(ids, x)}


def with_means(x: Array, at: Places) -> Array:
    """Return the inputs, and beside them the means over the rows of each group."""
    if at.unknown:
        return np.column_stack([x, np.full_like(x, np.nan)])
    means = at.group_means(KIND, lambda: {KIND: GroupMeans.of(at.ids, x)}).means(at.ids.groups)[0]
    return np.column_stack([x, means[at.ids.codes]])


@dataclass(frozen=True, eq=False)
class Kriging(Predictor):
    """A kriged model of scaled inputs."""

    inputs: Inputs
    model: KrigedModel

    def __call__(self, x: Array, at: Places) -> Array:
        return self.model(self.inputs(x), at)

    def group_context(self, x: Array, ids: GroupIds) -> Context:
        return self.model.group_context(self.inputs(x), ids)


@dataclass(frozen=True, eq=False)
class Sum(Predictor):
    """The sum of a model and of trees that were fitted to its residuals."""

    below: Predictor
    above: Boosted

    def __call__(self, x: Array, at: Places) -> Array:
        return self.below(x, at) + self.above(x, at)

    def group_context(self, x: Array, ids: GroupIds) -> Context:
        return self.below.group_context(x, ids)


@dataclass(frozen=True, eq=False)
class OfEstimator(Predictor):
    """A fitted estimator of the user's: values, or probabilities of all classes. It cannot be stored.

    Attributes
    ----------
    model : the estimator.
    grouped : it takes groups.
    classes : all of them, sorted; None for numbers.
    """

    model: Any
    grouped: bool
    classes: npt.NDArray[Any] | None

    def __call__(self, x: Array, at: Places) -> Array:
        named: dict[str, Any] = {"groups": None if at.unknown else at.ids.names} if self.grouped else {}
        with muted():
            if self.classes is None:
                return np.asarray(self.model.predict(x, **named), dtype=np.float64).reshape(-1, 1)
            out = np.zeros((len(x), len(self.classes)))
            out[:, np.searchsorted(self.classes, self.model.classes_)] = self.model.predict_proba(x, **named)
        return out

    def packed(self) -> OfEstimator:
        """Raise: only its code can make it again."""
        raise SettingError(f"a {type(self.model).__name__} of one's own cannot be stored.")
