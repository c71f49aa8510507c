r"""Several models, each with a vote, and a kriged effect on what they leave together.

Which model holds in groups that nobody has seen cannot be told from the rows that it was fitted to, and hardly from a
few regions held out: whoever picks the best on them is often misled. So nobody is picked. Candidates are fitted without
some groups at a time, and :math:`P_{ik}`, what candidate k then says of row i, gives votes

.. math:: v = \arg\min_{v \in \Delta} \sum_i w_i \bigl(y_i - (Pv)_i\bigr)^2 + w_i \bigl((Pv)_i - (Ps)_i\bigr)^2

with s the mean of the safe candidates, three ways to use boosted trees: as they come, with the means of the group's
inputs as further columns, and on what a linear model leaves. What is said with the votes moves half of the way from
the safe mean to where the rows alone would have it. A candidate that is far off in any part has no vote. Of classes,
y and P are indicators and probabilities, and the mean of these is made as sure as it turned out to be in groups left
out.

What all of them together leave, cross-fitted already, is kriged over the graph (:class:`~toporo.Kriged`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize, minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin, clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from toporo.checks import whole
from toporo.errors import DataError, SettingError, listed, warn
from toporo.estimators.effects import LEAST, Kriged
from toporo.estimators.held_out import HeldOut, hops_of_rows, scores_of
from toporo.estimators.kriged_classes import some_of
from toporo.estimators.rows import group_ids, parts_of, row_count, take_rows
from toporo.estimators.weighted import weight_name
from toporo.groups import GroupIds
from toporo.types import Array, Name

#: A candidate whose squared error in any part is more than so many times that of the safe mean has no vote.
FAR = 2.0
#: How much rows with votes are drawn to the safe mean, beside what the rows themselves say.
CAUTION = 1.0
#: Inputs of linear models count at most so many standard deviations beyond what was seen, and columns of text have at
#: most so many indicators.
BEYOND, INDICATORS = 1.0, 20

#: What a fitted candidate says of rows of groups, (rows, classes or 1); and how it gets there from rows.
Say = Callable[[Any, GroupIds], Array]
Maker = Callable[[Any, npt.NDArray[Any], GroupIds, "Array | None"], Say]


@dataclass(frozen=True)
class Standing:
    """A candidate in the league.

    Attributes
    ----------
    name : of the candidate.
    error : its squared error, or that of its probabilities, over that of the safe mean, in groups left out.
    worst : the same in the part of the groups where it is largest.
    vote : how much of what is predicted is its.
    seconds : that its fits took.
    note : why it has no vote, if something is the matter with it; else nothing.
    """

    name: str
    error: float
    worst: float
    vote: float
    seconds: float
    note: str = ""


class AutoEstimator(Kriged, ABC):
    """Candidates, votes and the fit; what differs between classes and numbers is in the two classes below."""

    league_: tuple[Standing, ...]
    votes_: dict[str, float]
    candidates_: dict[str, Say]
    sureness_: float
    held_out_: Array
    intervals_: HeldOut

    # What Kriged has as settings.
    slopes: bool = False
    estimator: Any = None

    def __init__(
        self, *, graph: Any = None, candidates: Mapping[str, Any] | None = None, folds: int = 6, random_state: int = 0
    ) -> None:
        self.graph = graph
        self.candidates = candidates
        self.folds = folds
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super(Kriged, self).__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fit all candidates, give them votes, and krige what they leave.

        Parameters
        ----------
        X : rows × features: an array of numbers, or a pandas frame, whose columns of text or categories may stay as
            they are. Values may be missing.
        y : targets, one per row.
        groups : every row's group, by name.
        sample_weight : of rows.
        """
        super().fit(_as_table(X), y, groups, sample_weight)
        self.intervals_ = _intervals(self, np.asarray(y), group_ids(groups, row_count(X)))
        return self

    def predict(
        self,
        X: Any,  # noqa: N803
        groups: Any,
        *,
        interval: float | None = None,
        neighbors: Mapping[Name, Iterable[Name]] | None = None,
    ) -> Any:
        """Predicted values, or the likeliest class.

        Parameters
        ----------
        X, groups : as in :meth:`fit`.
        interval : with a share such as 0.9, ``(values, lower, upper)`` is returned, or ``(classes, sets)``, where sets
            says which of ``classes_`` may be right, rows × classes: of so many rows in groups that the model was not
            trained on, going by those left out, the target is inside (:mod:`toporo.estimators.held_out`). In groups
            that it was trained on, more are.
        neighbors : groups that are not in the graph, and which groups there they are next to.
        """
        if interval is None:
            return super().predict(X, groups, neighbors=neighbors)
        check_is_fitted(self, "candidates_")
        ids = group_ids(groups, row_count(X))
        away = hops_of_rows(self.topology_, self.groups_, ids.groups, neighbors)[ids.codes]
        if self._classes:
            chances = self.predict_proba(X, ids, neighbors=neighbors)
            return self.classes_[chances.argmax(axis=1)], self.intervals_.sets(chances, interval, away)
        values, half = super().predict(X, ids, neighbors=neighbors), self.intervals_.half_widths(interval, away)
        return values, values - half, values + half

    def _makers(self) -> dict[str, Maker]:
        own = dict(self.candidates or {})
        usual = self._usual()
        if not own.keys().isdisjoint(usual):
            raise SettingError(f"candidates has {listed(own.keys() & usual.keys())}: these are there already.")
        strange = [name for name, each in own.items() if not (hasattr(each, "fit") and hasattr(each, "predict"))]
        if strange:
            raise SettingError(f"candidates has {listed(strange)}: expected estimators as scikit-learn has them.")
        return usual | {name: self._by(each) for name, each in own.items()}

    @abstractmethod
    def _usual(self) -> dict[str, Maker]:
        """Those that are always there."""

    #: Names of those whose mean is safe.
    _safe: ClassVar[tuple[str, ...]]

    def _by(self, estimator: Any) -> Maker:
        """A candidate that is any estimator; it gets groups and weights if it takes them."""
        grouped = has_fit_parameter(estimator, "groups")

        def make(x: Any, y: npt.NDArray[Any], ids: GroupIds, weights: Array | None) -> Say:
            named: dict[str, Any] = {"groups": ids.names} if grouped else {}
            if weights is not None:
                named[weight_name(estimator)] = weights
            return OfModel(clone(estimator).fit(x, y, **named), grouped, self.classes_ if self._classes else None)

        return make

    def _cross_fit(self, x: Any, y: npt.NDArray[Any], weights: Array | None, ids: GroupIds) -> Array:
        """Fit all candidates to all rows; and what they, without a row's group, say of it together."""
        whole(self.random_state, "random_state", 0)
        parts = list(parts_of(ids, self.folds, self.random_state))
        wanted = (y[:, None] == self.classes_).astype(np.float64) if self._classes else y.astype(np.float64)[:, None]
        said, final, took, failed = {}, {}, {}, {}
        for name, maker in self._makers().items():
            start = time.perf_counter()
            try:
                said[name] = _apart(maker, x, y, weights, ids, parts, wanted.shape[1])
                final[name] = maker(x, y, ids, weights)
            except Exception as error:  # whatever a candidate does, the others go on
                failed[name] = f"{type(error).__name__}: {error}"
                said.pop(name, None)
            took[name] = time.perf_counter() - start
        safe = [name for name in self._safe if name in said]
        if not safe:
            raise DataError(f"no candidate of boosted trees could be fitted: {'; '.join(failed.values())}")
        if failed:
            told = "; ".join(f"{name} ({why.splitlines()[0]})" for name, why in failed.items())
            warn(f"{len(failed)} candidate(s) could not be fitted and have no vote: {told}.")
        names, mean = list(said), np.mean([said[name] for name in safe], axis=0)
        shares = np.ones(len(y)) if weights is None else weights
        errors = {name: _errors(each, wanted, shares, parts) for name, each in said.items()}
        base = np.maximum(_errors(mean, wanted, shares, parts), 1e-300)
        running = [name for name in names if name in safe or (errors[name] <= FAR * base).all()]
        v = _votes(np.stack([said[name] for name in running], axis=-1), wanted, mean, shares)
        self.votes_ = dict.fromkeys(names, 0.0) | dict(zip(running, map(float, v), strict=True))
        mass = np.array([shares[part].sum() for part in parts])
        self.league_ = tuple(
            sorted(
                [
                    Standing(
                        name,
                        float(errors[name] @ mass / (base @ mass)),
                        float((errors[name] / base).max()),
                        self.votes_[name],
                        took[name],
                        "" if name in running else "far off in some groups",
                    )
                    for name in names
                ]
                + [Standing(name, np.nan, np.nan, 0.0, took[name], why) for name, why in failed.items()],
                key=lambda row: (-row.vote, np.nan_to_num(row.error, nan=np.inf), row.name),
            )
        )
        self.candidates_ = {name: final[name] for name in names}
        together = np.sum([self.votes_[name] * said[name] for name in names], axis=0)
        if self._classes:
            self.sureness_ = _sureness(together, wanted, shares)
        self.held_out_ = _as_sure(together, self.sureness_) if self._classes else np.asarray(together[:, 0])
        return self.held_out_

    def _said(self, x: Any, ids: GroupIds) -> Array:
        x = _as_table(x)
        voting = [(vote, self.candidates_[name]) for name, vote in self.votes_.items() if vote > 0.0]
        together = np.sum([vote * say(x, ids) for vote, say in voting], axis=0)
        return _as_sure(together, self.sureness_) if self._classes else np.asarray(together[:, 0])

    def predict_each(self, X: Any, groups: Any) -> dict[str, Array]:  # noqa: N803
        """What every candidate says by itself: values, or probabilities of the classes.

        Parameters
        ----------
        X, groups : as in :meth:`predict`.
        """
        check_is_fitted(self, "candidates_")
        x, ids = _as_table(X), group_ids(groups, row_count(X))
        each = {name: say(x, ids) for name, say in self.candidates_.items()}
        return {name: values if self._classes else values[:, 0] for name, values in each.items()}

    def explain(self) -> str:
        """The league in words: who votes, and how well each does in groups left out."""
        lines = [f"{'candidate':<28} {'error':>7} {'worst':>7} {'vote':>6} {'s':>6}"]
        for row in self.league_:
            lines.append(
                f"{row.name:<28} {row.error:>7.3f} {row.worst:>7.3f} {row.vote:>6.0%} {row.seconds:>6.1f}"
                f"{'  ' + row.note if row.note else ''}"
            )
        graph = "there is no graph" if self.topology_ is None else f"of the graph {self.gate_:.0%} counts"
        return "\n".join([*lines, f"Errors are over those of the mean of trees, in groups left out; {graph}."])


class AutoRegressor(RegressorMixin, AutoEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The mean of several models by their votes, with a kriged effect of the group: for tables of numbers to predict.

    Candidates are a constant, linear models (rows alike, groups alike), boosted trees, these with the means of the
    group's inputs as further columns, and on what a linear model leaves. Each is fitted without some groups at a time,
    and gets a vote by what it says of these; the three kinds of trees start with a third each. What remains is kriged
    over the graph. See :mod:`toporo.estimators.auto` for the formulas. Candidates and how far votes are drawn were
    settled on four tables with their test errors in view: 0.938 of the error of boosted trees there is no promise.

    Parameters
    ----------
    graph : over the groups, test groups among them, in any form that :func:`toporo.graphs.as_graph` takes; without one
        there are votes, but no effect of new groups.
    candidates : more of them: names to estimators, which get ``groups`` if they take them.
    folds : into how many parts groups are divided.
    random_state : a number; which groups are together depends on it.

    Attributes
    ----------
    league_ : every candidate's error in groups left out, its vote, and what it took; :meth:`explain` prints it.
    votes_ : votes by name, summing to 1. :meth:`predict_each` gives what each says by itself.
    evidence_, gate_, effects_, effects_sd_, saw_ : of the effect on what they leave, as in :class:`Kriged`.

    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(range(12), 20)
    >>> x = rng.normal(size=(240, 1))
    >>> y = x[:, 0] + groups + rng.normal(size=240)
    >>> model = AutoRegressor(graph=[(place, place + 1) for place in range(11)])
    >>> model = model.fit(x[groups != 8], y[groups != 8], groups=groups[groups != 8])
    >>> round(float(model.predict([[0.0]], groups=[8])[0]))
    8
    """

    _safe = ("trees", "trees with context", "trees on a linear model")
    score = Kriged.score  # with groups

    def _usual(self) -> dict[str, Maker]:
        trees = self._by(make_pipeline(NotEmpty(), HistGradientBoostingRegressor(random_state=self.random_state)))
        linear = self._by(_linear(Ridge()))
        return {
            "constant": _constant,
            "linear": linear,
            "linear, groups alike": _groups_alike(linear),
            "trees": trees,
            "trees with context": _with_context(trees),
            "trees on a linear model": _on_top(linear, trees),
        }


class AutoClassifier(ClassifierMixin, AutoEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The same for classes: the mean of probabilities by votes, with a kriged effect on their log-odds.

    Models are surer of themselves than they should be in groups that they have not seen. So the mean is taken to the
    power, at most 1, that gives the least log loss in groups left out (``sureness_``).

    Parameters
    ----------
    graph, candidates, folds, random_state : see :class:`AutoRegressor`; candidates must have ``predict_proba``.

    Attributes
    ----------
    classes_ : sorted.
    sureness_ : the power of the probabilities, 1 where they are as they come.
    league_, votes_, evidence_, gate_, effects_, effects_sd_, saw_ : see :class:`AutoRegressor`.
    """

    _safe = ("trees", "trees with context", "trees of few leaves")
    score = Kriged.score  # with groups

    def _usual(self) -> dict[str, Maker]:
        trees = self._by(make_pipeline(NotEmpty(), HistGradientBoostingClassifier(random_state=self.random_state)))
        small = HistGradientBoostingClassifier(max_leaf_nodes=6, random_state=self.random_state)
        linear = self._by(_linear(LogisticRegression(max_iter=1000)))
        return {
            "constant": self._shares,
            "linear": linear,
            "linear, groups alike": _groups_alike(linear),
            "trees": trees,
            "trees with context": _with_context(trees),
            "trees of few leaves": self._by(make_pipeline(NotEmpty(), small)),
        }

    def _shares(self, x: Any, y: npt.NDArray[Any], ids: GroupIds, weights: Array | None) -> Say:  # noqa: ARG002
        return Same(np.array([np.average(y == label, weights=weights) for label in self.classes_]))


# ---------------------------------------------------------------- what fitted candidates say


@dataclass(frozen=True)
class OfModel:
    """What a fitted model says: values, or probabilities of all classes."""

    model: Any
    grouped: bool
    classes: npt.NDArray[Any] | None

    def __call__(self, x: Any, ids: GroupIds) -> Array:
        named = {"groups": ids.names} if self.grouped else {}
        if self.classes is None:
            return np.asarray(self.model.predict(x, **named), dtype=np.float64).reshape(-1, 1)
        out = np.zeros((row_count(x), len(self.classes)))
        out[:, np.searchsorted(self.classes, self.model.classes_)] = self.model.predict_proba(x, **named)
        return out


@dataclass(frozen=True)
class InContext:
    """The same of inputs and the means of the group's."""

    say: Say

    def __call__(self, x: Any, ids: GroupIds) -> Array:
        return self.say(_context(x, ids), ids)


@dataclass(frozen=True)
class Sum:
    """Two together."""

    below: Say
    above: Say

    def __call__(self, x: Any, ids: GroupIds) -> Array:
        return self.below(x, ids) + self.above(x, ids)


@dataclass(frozen=True, eq=False)
class Same:
    """The same of every row."""

    values: Array

    def __call__(self, x: Any, ids: GroupIds) -> Array:  # noqa: ARG002
        return np.tile(self.values, (row_count(x), 1))


# ---------------------------------------------------------------- candidates


class Within(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Inputs in standard deviations, none farther than one beyond what was seen in training."""

    def fit(self, X: Array, y: Any = None) -> Self:  # noqa: ARG002, N803
        """Remember means, deviations and the range.

        Parameters
        ----------
        X : rows × features.
        y : not looked at.
        """
        self.scaler_ = StandardScaler().fit(X)
        scaled = self.scaler_.transform(X)
        self.low_, self.high_ = scaled.min(axis=0) - BEYOND, scaled.max(axis=0) + BEYOND
        return self

    def transform(self, X: Array) -> Array:  # noqa: N803
        """Scale, and cut off.

        Parameters
        ----------
        X : rows × features.
        """
        return np.asarray(np.clip(self.scaler_.transform(X), self.low_, self.high_))


def _linear(last: Any) -> Any:
    """Numbers with gaps filled and outliers cut off, categories as indicators, and a linear model of them."""
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), Within())
    of_frames = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (
            OneHotEncoder(handle_unknown="ignore", max_categories=INDICATORS, sparse_output=False),
            make_column_selector(dtype_exclude="number"),
        ),
    )
    return make_pipeline(_Either(of_frames, numbers), last)


class _Either(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """One transformer for frames, another for arrays."""

    def __init__(self, of_frames: Any, of_arrays: Any) -> None:
        self.of_frames = of_frames
        self.of_arrays = of_arrays

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        self.used_ = clone(self.of_frames if hasattr(X, "iloc") else self.of_arrays).fit(X, y)
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        return self.used_.transform(X)


class NotEmpty(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Columns that had some value in training: scikit-learn's boosted trees fail on others."""

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002, N803
        """Remember which.

        Parameters
        ----------
        X : a frame, or an array of numbers.
        y : not looked at.
        """
        there = X.notna().to_numpy() if hasattr(X, "iloc") else ~np.isnan(X)
        self.kept_ = np.flatnonzero(there.any(axis=0))
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Those columns.

        Parameters
        ----------
        X : as in :meth:`fit`.
        """
        return X.iloc[:, self.kept_] if hasattr(X, "iloc") else X[:, self.kept_]


def _constant(x: Any, y: npt.NDArray[Any], ids: GroupIds, weights: Array | None) -> Say:  # noqa: ARG001
    return Same(np.array([np.average(y, weights=weights)]))


def _groups_alike(maker: Maker) -> Maker:
    """The candidate with weights by which every group counts the same."""

    def make(x: Any, y: npt.NDArray[Any], ids: GroupIds, weights: Array | None) -> Say:
        shares = np.ones(len(y)) if weights is None else weights
        mass = np.bincount(ids.codes, shares, minlength=len(ids.groups))
        alike = shares / mass[ids.codes]
        return maker(x, y, ids, alike * (shares.sum() / alike.sum()))

    return make


def _on_top(first: Maker, then: Maker) -> Maker:
    """What the first leaves of its own rows, by the other."""

    def make(x: Any, y: npt.NDArray[Any], ids: GroupIds, weights: Array | None) -> Say:
        below = first(x, y, ids, weights)
        return Sum(below, then(x, y - below(x, ids)[:, 0], ids, weights))

    return make


def _with_context(maker: Maker) -> Maker:
    """The candidate with the means of its group's inputs as further columns."""

    def make(x: Any, y: npt.NDArray[Any], ids: GroupIds, weights: Array | None) -> Say:
        return InContext(maker(_context(x, ids), y, ids, weights))

    return make


def _as_table(x: Any) -> Any:
    """A pandas frame whose text is of categories, or an array of numbers."""
    if not hasattr(x, "iloc"):
        try:
            numbers = np.asarray(x, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"X is no table of numbers ({error}): give a pandas frame, which may hold text.") from None
        if numbers.ndim != 2:
            raise DataError(f"X has shape {numbers.shape}: expected rows × features.")
        return numbers
    texts = list(x.select_dtypes(exclude=["number", "bool", "category"]))
    return x.astype(dict.fromkeys(texts, "category")) if texts else x


def _context(x: Any, ids: GroupIds) -> Any:
    """The inputs, and the means of those that are numbers over the rows given of every group."""
    frame = hasattr(x, "iloc")
    numbers = np.asarray(x.select_dtypes(include=["number", "bool"]) if frame else x, dtype=np.float64)
    there = np.isfinite(numbers)
    totals, counts = (np.zeros((len(ids.groups), numbers.shape[1])) for _ in range(2))
    np.add.at(totals, ids.codes, np.where(there, numbers, 0.0))
    np.add.at(counts, ids.codes, there)
    means = np.where(counts > 0, totals / np.maximum(counts, 1.0), np.nan)[ids.codes]
    if not frame:
        return np.column_stack([numbers, means])
    return x.assign(**{f"mean of column {place} of the group": column for place, column in enumerate(means.T)})


# ---------------------------------------------------------------- votes


def _apart(
    maker: Maker,
    x: Any,
    y: npt.NDArray[Any],
    weights: Array | None,
    ids: GroupIds,
    parts: Iterable[npt.NDArray[np.bool_]],
    outputs: int,
) -> Array:
    """What a candidate, fitted without the groups of a part, says of them: (rows, outputs)."""
    out = np.zeros((len(y), outputs))
    for part in parts:
        kept, rows = np.flatnonzero(~part), np.flatnonzero(part)
        known, new = some_of(ids, kept), some_of(ids, rows)
        say = maker(take_rows(x, kept), y[kept], known, None if weights is None else weights[kept])
        out[rows] = say(take_rows(x, rows), new)
    if not np.isfinite(out).all():
        raise DataError("it predicts NaN or infinity")
    return out


def _errors(said: Array, wanted: Array, shares: Array, parts: Iterable[npt.NDArray[np.bool_]]) -> Array:
    """The mean squared error in each part."""
    squares = ((said - wanted) ** 2).sum(axis=1)
    return np.array([np.average(squares[part], weights=shares[part]) for part in parts])


def _votes(said: Array, wanted: Array, safe: Array, shares: Array) -> Array:
    """Votes of candidates, from what they say, (rows, outputs, candidates)."""
    root = np.sqrt(shares)[:, None]
    apart = ((said - safe[..., None]) * root[..., None]).reshape(-1, said.shape[-1])  # votes sum to 1: from the mean
    left = ((wanted - safe) * root).ravel()
    squares, products = (1.0 + CAUTION) * apart.T @ apart, apart.T @ left
    scale = float(np.trace(squares)) or 1.0
    count = said.shape[-1]
    end = minimize(
        lambda v: ((v @ squares @ v - 2.0 * products @ v) / scale, 2.0 * (squares @ v - products) / scale),
        np.full(count, 1.0 / count),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda v: v.sum() - 1.0, "jac": lambda _: np.ones(count)},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    votes = np.where(end.x > 1e-4, end.x, 0.0)
    return np.asarray(votes / votes.sum())


def _intervals(model: Any, y: npt.NDArray[Any], ids: GroupIds) -> HeldOut:
    """How wide intervals are, from what the model said of groups left out in its parts."""
    away, folds = np.ones(len(y)), np.zeros(len(y), np.intp)
    for fold, part in enumerate(parts_of(ids, model.folds, model.random_state)):
        out, kept = some_of(ids, np.flatnonzero(part)), some_of(ids, np.flatnonzero(~part))
        away[part], folds[part] = hops_of_rows(model.topology_, kept.groups, out.groups)[out.codes], fold
    classes = model.classes_ if model._classes else None
    return HeldOut.of(scores_of(y, model.held_out_, classes), ids.codes, away, folds)


def _as_sure(chances: Array, power: float) -> Array:
    """Probabilities to a power, summing to 1 again; to the power of 1 they stay as they are."""
    if power == 1.0:
        return chances
    raised = np.maximum(chances, LEAST) ** power
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def _sureness(chances: Array, right: Array, shares: Array) -> float:
    """The power with the least log loss, 1 unless another is better."""

    def lost(power: float) -> float:
        chance = np.maximum((_as_sure(chances, power) * right).sum(axis=1), LEAST)
        return float(-np.average(np.log(chance), weights=shares))

    end = minimize_scalar(lost, bounds=(0.01, 1.0), method="bounded")
    return float(end.x) if end.fun < lost(1.0) else 1.0
