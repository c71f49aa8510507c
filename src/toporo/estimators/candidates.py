"""Models that stand for votes (:mod:`toporo.estimators.auto`): how each is fitted to rows, and what it then says.

A fitted candidate is made of plain arrays wherever it can be, so that it can be written to a file and read again
without running anything (:mod:`toporo.estimators.auto_state`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import has_fit_parameter

from toporo.choice.cross_fitting import folds
from toporo.errors import DataError, SettingError, muted
from toporo.estimators.classes import TROClassifier, TRORegressor
from toporo.estimators.kriged import GroupInputs, KrigedLevels
from toporo.estimators.kriged_state import KrigedModel
from toporo.estimators.packing import UNSTORED
from toporo.estimators.rows import UNKNOWN, row_count
from toporo.estimators.trees import StoredTrees
from toporo.estimators.weighted import fit_weighted
from toporo.groups import GroupIds
from toporo.machine import one_thread
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

#: Inputs of linear models count at most so many standard deviations beyond what was seen, and columns of text have at
#: most so many indicators.
BEYOND, INDICATORS = 1.0, 20
#: How much coefficients of standardised inputs are shrunk, as a share of what all rows weigh: the best in groups left
#: out.
RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
#: Parts that groups are divided into for that.
RIDGE_PARTS = 5
#: A kriged candidate has at most so many effects: with more, boosted trees would be done long before.
MOST_EFFECTS = 500
#: How far weights of groups may go from the prior: the votes choose among these.
PENALTY = 1.0
#: Boosted trees predict fewer rows than this on one thread: several wait for one another after every tree.
MANY_ROWS = 1 << 16

Near = Mapping[Name, Iterable[Name]]
#: What a fitted candidate says of rows of groups, (rows, classes or 1). Groups that are not in the graph come with
#: those that they are next to.
Say = Callable[[Any, GroupIds, Near], Array]
#: By candidate, what it knows of the groups of rows to predict, where not all of these are given at a time.
Told = Mapping[str, GroupInputs | None]


@dataclass(frozen=True, eq=False)
class Training:
    """Rows that candidates are fitted to.

    Attributes
    ----------
    x : an array of numbers, or a pandas frame.
    y, ids, weights : of every row; weights are None where all are alike.
    classes : all of them, sorted; None for numbers.
    graph : over the groups, or None.
    toward : groups of the graph that will be predicted.
    seed : of what is drawn.
    memo : what several candidates have in common, by name.
    locks : by name, so that what several threads ask for is made once.
    among : more rows that these are of, where they are some of them.
    """

    x: Any
    y: npt.NDArray[Any]
    ids: GroupIds
    weights: Array | None
    classes: npt.NDArray[Any] | None
    graph: GroupGraph | None
    toward: tuple[Name, ...]
    seed: int
    memo: dict[str, Any] = field(default_factory=dict)
    locks: dict[str, Lock] = field(default_factory=dict)
    among: Training | None = None

    @property
    def shares(self) -> Array:
        """How much every row counts."""
        return np.ones(len(self.y)) if self.weights is None else self.weights

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What is made the first time that it is asked for."""
        with self.locks.setdefault(name, Lock()):
            if name not in self.memo:
                self.memo[name] = make()
        return self.memo[name]

    @property
    def inputs(self) -> Inputs:
        """How linear models see the inputs."""
        inputs: Inputs = self.once("inputs", lambda: Inputs.of(self.x))
        return inputs

    @property
    def z(self) -> Array:
        """The inputs as linear models see them."""
        z: Array = self.once("z", lambda: self.inputs(self.x))
        return z


Maker = Callable[[Training], Say]


# ---------------------------------------------------------------- what fitted candidates say


class Predictor(ABC):
    """A fitted candidate: a frozen dataclass of arrays and of other predictors, so that it can be stored."""

    @abstractmethod
    def __call__(self, x: Any, ids: GroupIds, near: Near) -> Array:
        """Predict rows of groups: (rows, classes or 1)."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs in standard deviations, gaps filled with medians, none farther than one beyond what was seen.

    Attributes
    ----------
    fill, center, scale, low, high : of every column; the range in standard deviations.
    encode : a frame's columns as numbers, texts as indicators; None for arrays.
    """

    fill: Array
    center: Array
    scale: Array
    low: Array
    high: Array
    encode: Any = None

    @classmethod
    def of(cls, x: Any) -> Inputs:
        """From the rows that a model is fitted to."""
        encode = None
        if hasattr(x, "iloc"):
            texts = OneHotEncoder(handle_unknown="ignore", max_categories=INDICATORS, sparse_output=False)
            numbers = make_column_selector(dtype_include=["number", "bool"])
            encode = make_column_transformer(
                ("passthrough", numbers), (texts, make_column_selector(dtype_exclude=["number", "bool"]))
            ).fit(x)
        values = _matrix(x, encode)
        there = np.isfinite(values)
        if there.all():
            fill = np.median(values, axis=0)
        else:
            kept = np.where(there, values, np.nan)
            kept[:, ~there.any(axis=0)] = 0.0
            fill = np.nanmedian(kept, axis=0)
            values = np.where(there, values, fill)
        center, scale = values.mean(axis=0), values.std(axis=0)
        scale = np.where(scale > 1e-12 * np.abs(center), scale, 1.0)
        low, high = ((end - center) / scale for end in (values.min(axis=0), values.max(axis=0)))
        return cls(fill, center, scale, low - BEYOND, high + BEYOND, encode)

    def packed(self) -> Inputs:
        """Return itself, to be stored; of a frame it cannot be."""
        if self.encode is not None:
            raise SettingError(
                "a model that was fitted to a pandas frame cannot be stored: fit it to an array of numbers, or let "
                "tr.fit_table make one of the table."
            )
        return self

    def check(self) -> None:
        """Raise unless columns can be divided by their scale."""
        if not (self.scale > 0).all():
            raise DataError("its array 'scale' holds numbers that are not positive.")

    def __call__(self, x: Any) -> Array:
        """The same of other rows.

        Parameters
        ----------
        x : as in :meth:`of`.
        """
        values = _matrix(x, self.encode)
        values = np.where(np.isfinite(values), values, self.fill)
        values -= self.center
        values /= self.scale
        return np.asarray(np.clip(values, self.low, self.high, out=values))


def _matrix(x: Any, encode: Any) -> Array:
    return np.asarray(x if encode is None else encode.transform(x), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Linear(Predictor):
    """A linear model; of classes, whose places are given, one of log-odds."""

    inputs: Inputs
    coef: Array  # inputs × outputs
    intercept: Array
    places: npt.NDArray[np.int64] | None = None
    count: int = 1

    def __call__(self, x: Any, ids: GroupIds, near: Near) -> Array:  # noqa: ARG002
        scores = self.inputs(x) @ self.coef + self.intercept
        if self.places is None:
            return np.asarray(scores)
        out = np.zeros((len(scores), self.count))
        if scores.shape[1] == 1:
            second = expit(scores[:, 0])
            out[:, self.places] = np.column_stack([1.0 - second, second])
        else:
            out[:, self.places] = softmax(scores, axis=1)
        return out


@dataclass(frozen=True, eq=False)
class Boosted(Predictor):
    """Boosted trees, of columns that had some value in training: scikit-learn fails on others."""

    kept: npt.NDArray[np.int64]
    model: Any = field(metadata={"stored": StoredTrees})
    places: npt.NDArray[np.int64] | None = None
    count: int = 1

    def packed(self) -> Boosted:
        """Return the same with trees as arrays."""
        return self if isinstance(self.model, StoredTrees) else replace(self, model=StoredTrees.of(self.model))

    def check(self) -> None:
        """Raise unless there is a column for each of the trees' inputs."""
        if self.kept.shape != (self.model.inputs,) or (self.kept < 0).any():
            raise DataError("its trees look at columns that are not there.")

    def __call__(self, x: Any, ids: GroupIds, near: Near) -> Array:  # noqa: ARG002
        some = _columns_of(x, self.kept)
        with one_thread(openmp=True) if row_count(x) < MANY_ROWS else nullcontext():
            if self.places is None:
                return np.asarray(self.model.predict(some), dtype=np.float64).reshape(-1, 1)
            out = np.zeros((row_count(x), self.count))
            out[:, self.places] = self.model.predict_proba(some)
        return out


@dataclass(frozen=True, eq=False)
class OfKriged(Predictor):
    """A kriged model of scaled inputs; ``told`` are the mean inputs of groups, where these are known beforehand."""

    model: Any = field(metadata={"stored": KrigedModel})
    inputs: Inputs
    told: GroupInputs | None = field(default=None, metadata=UNSTORED)

    def __call__(self, x: Any, ids: GroupIds, near: Near) -> Array:
        groups = None if UNKNOWN in ids.groups else ids.names
        with muted():
            values = self.model.predict(self.inputs(x), groups=groups, neighbors=near, inputs=self.told)
        return np.asarray(values, dtype=np.float64).reshape(-1, 1)

    def packed(self) -> OfKriged:
        """Return the same with a model that can be stored."""
        return replace(self, model=KrigedModel.of(self.model))

    def unpacked(self) -> OfKriged:
        """Return the same with an estimator."""
        return replace(self, model=self.model.estimator())


@dataclass(frozen=True, eq=False)
class OfModel:
    """Any fitted model of others: values, or probabilities of all classes. It cannot be stored."""

    model: Any
    grouped: bool
    classes: npt.NDArray[Any] | None

    def __call__(self, x: Any, ids: GroupIds, near: Near) -> Array:  # noqa: ARG002
        named: dict[str, Any] = {"groups": None if UNKNOWN in ids.groups else ids.names} if self.grouped else {}
        with muted():
            if self.classes is None:
                return np.asarray(self.model.predict(x, **named), dtype=np.float64).reshape(-1, 1)
            out = np.zeros((row_count(x), len(self.classes)))
            out[:, np.searchsorted(self.classes, self.model.classes_)] = self.model.predict_proba(x, **named)
        return out


@dataclass(frozen=True, eq=False)
class InContext(Predictor):
    """The same of inputs and the means of the group's."""

    say: Predictor
    told: GroupInputs | None = field(default=None, metadata=UNSTORED)

    def __call__(self, x: Any, ids: GroupIds, near: Near) -> Array:
        return self.say(in_context(x, ids, self.told), ids, near)


@dataclass(frozen=True, eq=False)
class Sum(Predictor):
    """Two together."""

    below: Predictor
    above: Predictor

    def __call__(self, x: Any, ids: GroupIds, near: Near) -> Array:
        return self.below(x, ids, near) + self.above(x, ids, near)


@dataclass(frozen=True, eq=False)
class Same(Predictor):
    """The same of every row."""

    values: Array

    def __call__(self, x: Any, ids: GroupIds, near: Near) -> Array:  # noqa: ARG002
        return np.tile(self.values, (row_count(x), 1))


def tell(say: Say, x: Any, ids: GroupIds, told: GroupInputs | None) -> GroupInputs | None:
    """What a candidate needs to know of the groups of rows, a portion of these at a time; None if it needs nothing.

    Parameters
    ----------
    say : the candidate.
    x, ids : some of the rows, and their groups.
    told : of the portions before.
    """
    if isinstance(say, Sum):
        return tell(say.below, x, ids, told)
    if isinstance(say, InContext):
        return (told or GroupInputs()).add(ids, numbers_of(x))
    if isinstance(say, OfKriged):
        gathered: GroupInputs = say.model.gather(say.inputs(x), ids.names, told)
        return gathered
    return None


def knowing(say: Any, told: GroupInputs | None) -> Any:
    """A candidate that was told of all rows, so that it can be asked for some of them.

    Parameters
    ----------
    say, told : as :func:`tell` has them.
    """
    if isinstance(say, Sum):
        return Sum(knowing(say.below, told), say.above)
    return replace(say, told=told) if isinstance(say, InContext | OfKriged) else say


# ---------------------------------------------------------------- candidates


def constant(rows: Training) -> Predictor:
    """The mean, or the shares of the classes."""
    if rows.classes is None:
        return Same(np.array([np.average(rows.y, weights=rows.weights)]))
    return Same(np.array([np.average(rows.y == label, weights=rows.weights) for label in rows.classes]))


def linear(rows: Training) -> Predictor:
    """Ridge regression, shrunk as it is best in groups left out, or logistic regression."""
    return _linear(rows, rows.weights)


def groups_alike(rows: Training) -> Predictor:
    """The linear model with weights by which every group counts the same."""
    return _linear(rows, _weights_by(rows, np.ones(len(rows.ids.groups))))


def by_prior(rows: Training) -> Predictor:
    """The linear model with weights by which groups count as the graph has it, half of it even."""
    return _linear(rows, _weights_by(rows, _prior(rows)))


def _linear(rows: Training, weights: Array | None) -> Predictor:
    if rows.classes is None:
        return Linear(rows.inputs, *_ridge(rows.z, rows.y, rows.ids, weights, rows.seed))
    model = LogisticRegression(max_iter=1000).fit(rows.z, rows.y, sample_weight=weights)
    return Linear(rows.inputs, model.coef_.T, model.intercept_, _places(rows, model), len(rows.classes))


def _weights_by(rows: Training, mixture: Array) -> Array:
    """Weights of rows by which groups count by a mixture, as many in all."""
    shares = rows.shares
    mass = np.bincount(rows.ids.codes, shares, minlength=len(rows.ids.groups))
    weights = shares * (mixture / mass)[rows.ids.codes]
    return np.asarray(weights * (shares.sum() / weights.sum()))


def _prior(rows: Training) -> Array:
    if rows.graph is None or not rows.toward or len(rows.ids.groups) < 2:
        raise NotHereError("there is no graph with groups to predict, or nothing to weigh")
    with muted():  # that a learned prior is in doubt has been said once
        prior = rows.graph.prior(rows.ids.groups, rows.toward)
    return np.array([prior.weights[name] for name in rows.ids.groups])


class NotHereError(DataError):
    """A candidate that is not for such rows: left out, without a word of warning."""


def against_the_worst(rows: Training) -> Predictor:
    """The linear model against the worst mixture of groups near the prior (TRO), or near all alike."""
    if len(rows.ids.groups) < 2:
        raise NotHereError("there is nothing to weigh")
    kind = TRORegressor if rows.classes is None else TROClassifier
    near: dict[str, Any] = {}
    if rows.graph is not None and rows.toward:
        near = {"graph": rows.graph, "test_groups": rows.toward}
    with muted():
        model = kind(penalty=PENALTY, **near).fit(rows.z, rows.y, groups=rows.ids, sample_weight=rows.weights)
    coef, intercept = np.atleast_2d(model.coef_).T, np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
    if rows.classes is None:
        return Linear(rows.inputs, coef, intercept)
    return Linear(rows.inputs, coef, intercept, _places(rows, model), len(rows.classes))


def kriged(rows: Training) -> OfKriged:
    """A linear model with means of the group's inputs and levels of the groups that follow the graph."""

    def make() -> OfKriged:
        places = len(rows.ids.groups) if rows.graph is None else len(rows.graph)
        effects = 1 + 2 * rows.z.shape[1] + places
        if effects > MOST_EFFECTS or len(rows.ids.groups) < 3:
            raise NotHereError(f"it would have {effects} effects of {places} groups")
        with muted():
            model = KrigedLevels(graph=rows.graph)
            model._start = None if rows.among is None else kriged(rows.among).model.fit_
            model.fit(rows.z, rows.y, groups=rows.ids, sample_weight=rows.weights)
        return OfKriged(model, rows.inputs)

    found: OfKriged = rows.once("kriged", make)
    return found


def trees(rows: Training, **settings: Any) -> Predictor:
    """scikit-learn's histogram gradient boosting as it comes."""
    there = rows.x.notna().to_numpy() if hasattr(rows.x, "iloc") else ~np.isnan(rows.x)
    kept = np.flatnonzero(there.any(axis=0)).astype(np.int64)
    kind = HistGradientBoostingRegressor if rows.classes is None else HistGradientBoostingClassifier
    model = kind(random_state=rows.seed, **settings).fit(_columns_of(rows.x, kept), rows.y, rows.weights)
    if rows.classes is None:
        return Boosted(kept, model)
    return Boosted(kept, model, _places(rows, model), len(rows.classes))


def small_trees(rows: Training) -> Predictor:
    """The same with few leaves."""
    return trees(rows, max_leaf_nodes=6)


def trees_in_context(rows: Training) -> Predictor:
    """Boosted trees with the means of the group's inputs as further columns."""
    return InContext(trees(_with(rows, x=in_context(rows.x, rows.ids))))


def trees_on_top(rows: Training) -> Predictor:
    """Boosted trees on what a kriged model leaves of its own rows; a linear one, if that is not for such rows."""
    below: Predictor
    try:
        below = kriged(rows)
    except NotHereError:
        below = linear(rows)
    return Sum(below, trees(_with(rows, y=rows.y - below(rows.x, rows.ids, {})[:, 0])))


def of_estimator(estimator: Any) -> Maker:
    """Any estimator as a candidate; it gets groups and weights if it takes them."""
    grouped = has_fit_parameter(estimator, "groups")

    def make(rows: Training) -> Say:
        named: dict[str, Any] = {"groups": rows.ids.names} if grouped else {}
        return OfModel(fit_weighted(clone(estimator), rows.x, rows.y, rows.weights, **named), grouped, rows.classes)

    return make


# ---------------------------------------------------------------- parts of them


def _with(rows: Training, **other: Any) -> Training:
    """The same rows with other inputs or targets."""
    given = {"x": rows.x, "y": rows.y} | other
    return Training(given["x"], given["y"], rows.ids, rows.weights, rows.classes, rows.graph, rows.toward, rows.seed)


def _places(rows: Training, model: Any) -> npt.NDArray[np.int64]:
    """Where the classes that a model has seen are among all."""
    return np.asarray(np.searchsorted(np.asarray(rows.classes), model.classes_), np.int64)


def _columns_of(x: Any, kept: npt.NDArray[np.int64]) -> Any:
    if len(kept) == x.shape[1]:
        return x
    return x.iloc[:, kept] if hasattr(x, "iloc") else x[:, kept]


def in_context(x: Any, ids: GroupIds, told: GroupInputs | None = None) -> Any:
    """The inputs, and the means of those that are numbers over the rows of every group: those given, or all told of."""
    numbers = numbers_of(x)
    if UNKNOWN in ids.groups:
        means = np.full_like(numbers, np.nan)
    else:
        means = (told or GroupInputs().add(ids, numbers)).of(ids.groups)[0][ids.codes]
    if not hasattr(x, "iloc"):
        return np.column_stack([numbers, means])
    named = x.set_axis(map(str, x.columns), axis=1)  # scikit-learn refuses names of several types
    return named.assign(**{f"mean of column {place} of the group": column for place, column in enumerate(means.T)})


def numbers_of(x: Any) -> Array:
    """Return the columns of numbers."""
    return np.asarray(x.select_dtypes(include=["number", "bool"]) if hasattr(x, "iloc") else x, dtype=np.float64)


def _ridge(z: Array, y: Array, ids: GroupIds, weights: Array | None, seed: int) -> tuple[Array, Array]:
    """Coefficients and intercept of ridge regression, shrunk as it is best in groups left out."""
    y = np.asarray(y, dtype=np.float64)
    masks = folds(ids, parts=RIDGE_PARTS, seed=seed) if len(ids.groups) > 1 else (np.ones(len(y), dtype=bool),)
    parts = [Moments.of(z[part], y[part], None if weights is None else weights[part]) for part in masks]
    everything = Moments.sum(parts)
    shrink = (1.0 / everything.mass, *RIDGES)
    best = 0
    if len(parts) > 1:
        lost = np.zeros(len(shrink))
        for part in parts:
            rest = Moments.sum([other for other in parts if other is not part])
            lost += [part.lost(*each) for each in rest.solve(shrink)]
        best = int(np.argmin(lost))
    coef, intercept = everything.solve(shrink[best : best + 1])[0]
    return coef[:, None], np.array([intercept])


@dataclass(frozen=True, eq=False)
class Moments:
    """All that ridge regression needs to know of rows: weighted sums of inputs, targets and their products."""

    mass: float
    x: Array
    y: float
    xx: Array
    xy: Array
    yy: float

    @classmethod
    def of(cls, z: Array, y: Array, weights: Array | None) -> Moments:
        """From rows."""
        w = np.ones(len(y)) if weights is None else weights
        scaled = z if weights is None else z * w[:, None]
        return cls(float(w.sum()), scaled.sum(axis=0), float(w @ y), z.T @ scaled, scaled.T @ y, float(w @ (y * y)))

    @classmethod
    def sum(cls, parts: Sequence[Moments]) -> Moments:
        """Of the rows of all parts."""
        return cls(
            *(sum(column[1:], column[0]) for column in zip(*(vars(part).values() for part in parts), strict=True))
        )

    def solve(self, shrink: Sequence[float]) -> list[tuple[Array, float]]:
        """Coefficients and the intercept, for each of these shares of shrinkage."""
        values, vectors = np.linalg.eigh(self.xx / self.mass - np.outer(self.x, self.x) / self.mass**2)
        pull = vectors.T @ (self.xy / self.mass - self.x * (self.y / self.mass**2))
        out = []
        for share in shrink:
            coef = vectors @ (pull / (np.maximum(values, 0.0) + share))
            out.append((coef, (self.y - float(self.x @ coef)) / self.mass))
        return out

    def lost(self, coef: Array, intercept: float) -> float:
        """The sum of squared errors."""
        square = self.yy + float(coef @ self.xx @ coef) + self.mass * intercept**2
        return square - 2.0 * (float(coef @ self.xy) + intercept * (self.y - float(coef @ self.x)))
