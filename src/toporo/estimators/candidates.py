"""Candidates of :class:`~toporo.AutoRegressor` and :class:`~toporo.AutoClassifier`: functions that fit them to rows.

A candidate is a function with a line ``@candidate("name")``. It gets :class:`Training` rows and returns a
:class:`~toporo.estimators.predictors.Predictor`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import has_fit_parameter

from toporo.choice.cross_fitting import folds
from toporo.errors import DataError, muted
from toporo.estimators.classes import TROClassifier, TRORegressor
from toporo.estimators.kriged_model import KrigedModel
from toporo.estimators.places import Places
from toporo.estimators.predictors import (
    Boosted,
    Constant,
    Inputs,
    Kriging,
    Linear,
    OfEstimator,
    Predictor,
    Sum,
    WithContext,
    with_means,
)
from toporo.estimators.rows import Scaling
from toporo.estimators.weighted import fit_weighted
from toporo.groups import GroupIds, Groups
from toporo.registry import Registry
from toporo.robust.factors import GroupFactors
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

#: How much coefficients of standardised inputs are shrunk, as a share of the weight of all rows: the best in held-out
#: groups.
RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
#: Parts that groups are divided into for that.
RIDGE_PARTS = 5
#: A kriged candidate has at most so many effects: with more, boosted trees would be done long before.
MOST_EFFECTS = 500
#: How far weights of groups may go from the prior: ensemble weights choose among these.
PENALTY = 1.0


@dataclass(frozen=True, eq=False)
class Training:
    """Rows that candidates are fitted to.

    Attributes
    ----------
    x, y, ids, weights : of every row; weights are None where all are alike.
    classes : all of them, sorted; None for numbers.
    graph : over the groups, or None.
    test_groups : groups of the graph that will be predicted.
    seed : of what is drawn.
    whole : the rows of which these are some, in a fold.
    memo, locks : results that several candidates share, by name, and locks so that they are computed once.
    """

    x: Array
    y: npt.NDArray[Any]
    ids: GroupIds
    weights: Array | None
    classes: npt.NDArray[Any] | None
    graph: GroupGraph | None
    test_groups: tuple[Name, ...]
    seed: int
    whole: Training | None = None
    memo: dict[str, Any] = field(default_factory=dict)
    locks: dict[str, Lock] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Compute what several candidates share the first time that it is needed."""
        with self.locks.setdefault(name, Lock()):
            if name not in self.memo:
                self.memo[name] = make()
        return self.memo[name]

    def changed(self, **fields: Any) -> Training:
        """Return other rows, of which nothing is computed yet."""
        return replace(self, **({"whole": None} | fields), memo={}, locks={})

    @property
    def mass(self) -> Array:
        """Weight of every row."""
        return np.ones(len(self.y)) if self.weights is None else self.weights

    @property
    def inputs(self) -> Inputs:
        """Scaling of the inputs for linear models."""
        inputs: Inputs = self.once("inputs", lambda: Inputs.of(self.x))
        return inputs

    @property
    def z(self) -> Array:
        """The scaled inputs."""
        z: Array = self.once("z", lambda: self.inputs(self.x))
        return z


Fitter = Callable[[Training], Predictor]
F = TypeVar("F", bound=Callable[..., Predictor])


#: Candidates of the safe mean are in it always, or unless their error is far off.
SAFE = ("always", "unless far off")


@dataclass(frozen=True)
class Candidate:
    """A way to fit a predictor.

    Attributes
    ----------
    fit : fits it.
    numbers, classes : it predicts these.
    safe : when it is in the safe mean: one of :data:`SAFE`, or nothing for never.
    """

    fit: Fitter
    numbers: bool = True
    classes: bool = True
    safe: str = ""


CANDIDATES: Registry[Candidate] = Registry("candidate")


def candidate(name: str, **traits: Any) -> Callable[[F], F]:
    """Add a function to the candidates.

    Parameters
    ----------
    name : new among candidates.
    traits : see :class:`Candidate`.
    """

    def add(fit: F) -> F:
        CANDIDATES.register(name)(Candidate(fit, **traits))
        return fit

    return add


class NotApplicableError(DataError):
    """A candidate that is not for such rows: left out, without a warning."""


@candidate("constant")
def constant(rows: Training) -> Predictor:
    """Predict the mean, or the shares of the classes."""
    columns = [rows.y] if rows.classes is None else [rows.y == label for label in rows.classes]
    return Constant(np.array([np.average(column, weights=rows.weights) for column in columns]))


@candidate("linear", safe="unless far off")
def linear(rows: Training) -> Predictor:
    """Ridge regression with the shrinkage that is best in held-out groups, or logistic regression."""
    return _linear(rows, rows.weights)


@candidate("trees", safe="always")
def trees(rows: Training, **settings: Any) -> Boosted:
    """scikit-learn's histogram gradient boosting as it comes."""
    kept = np.flatnonzero(~np.isnan(rows.x).all(axis=0)).astype(np.int64)
    x = rows.x if len(kept) == rows.x.shape[1] else rows.x[:, kept]
    kind = HistGradientBoostingRegressor if rows.classes is None else HistGradientBoostingClassifier
    model = kind(random_state=rows.seed, **settings).fit(x, rows.y, rows.weights)
    return Boosted(kept, model) if rows.classes is None else Boosted(kept, model, *_codes(rows, model))


@candidate("trees with context", safe="always")
def trees_with_context(rows: Training) -> Predictor:
    """Boosted trees with the means of the group's inputs as further columns."""
    return WithContext(trees(rows.changed(x=with_means(rows.x, Places(rows.ids)))))


@candidate("trees of few leaves", numbers=False, safe="always")
def small_trees(rows: Training) -> Predictor:
    """Boosted trees with few leaves."""
    return trees(rows, max_leaf_nodes=6)


@candidate("kriged", classes=False)
def kriged(rows: Training) -> Kriging:
    """A linear model with means of the group's inputs and levels of the groups that follow the graph."""

    def make() -> Kriging:
        nodes = len(rows.ids.groups) if rows.graph is None else len(rows.graph)
        effects = 1 + 2 * rows.z.shape[1] + nodes
        if effects > MOST_EFFECTS or len(rows.ids.groups) < 3:
            raise NotApplicableError(f"it would have {effects} effects of {nodes} groups")
        x, y = rows.z, np.asarray(rows.y, np.float64)[:, None]
        inputs, targets = (Scaling.of(each, rows.weights, center=True, what="rows") for each in (x, y))
        x, y = inputs.apply(x), targets.apply(y)
        factors, limits = GroupFactors.from_rows(x, y, rows.ids, rows.weights), (x.min(axis=0), x.max(axis=0))
        start = None if rows.whole is None else kriged(rows.whole).model.fit
        with muted():
            model = KrigedModel.of(factors, (inputs, targets), limits, rows.graph, slopes=False, start=start)
        return Kriging(rows.inputs, model)

    found: Kriging = rows.once("kriged", make)
    return found


@candidate("trees on a kriged model", classes=False)
def trees_on_kriged(rows: Training) -> Predictor:
    """Boosted trees fitted to the residuals of a kriged model or, where that is not for such rows, of a linear one."""
    below: Predictor
    try:
        below = kriged(rows)
    except NotApplicableError:
        below = linear(rows)
    return Sum(below, trees(rows.changed(y=rows.y - below(rows.x, Places(rows.ids))[:, 0])))


@candidate("linear, groups alike")
def groups_alike(rows: Training) -> Predictor:
    """The linear model with weights by which every group counts the same."""
    return _linear(rows, _weights_by(rows, np.ones(len(rows.ids.groups))))


@candidate("linear, by prior")
def by_prior(rows: Training) -> Predictor:
    """The linear model with the prior of the graph as weights of groups."""
    if rows.graph is None or not rows.test_groups or len(rows.ids.groups) < 2:
        raise NotApplicableError("there is no graph with groups to predict, or nothing to weigh")
    with muted():  # a fallback of a learned prior has had its warning
        prior = rows.graph.prior(rows.ids.groups, rows.test_groups)
    return _linear(rows, _weights_by(rows, np.array([prior.weights[name] for name in rows.ids.groups])))


@candidate("linear, TRO")
def tro(rows: Training) -> Predictor:
    """The linear model against the worst mixture of groups near the prior (TRO), or near all alike."""
    if len(rows.ids.groups) < 2:
        raise NotApplicableError("there is nothing to weigh")
    kind = TRORegressor if rows.classes is None else TROClassifier
    near: dict[str, Any] = {}
    if rows.graph is not None and rows.test_groups:
        near = {"graph": rows.graph, "test_groups": rows.test_groups}
    with muted():
        model = kind(penalty=PENALTY, **near).fit(rows.z, rows.y, groups=rows.ids, sample_weight=rows.weights)
    coef, intercept = np.atleast_2d(model.coef_).T, np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
    return Linear(rows.inputs, coef, intercept, *(() if rows.classes is None else _codes(rows, model)))


def of_estimator(estimator: Any) -> Fitter:
    """Make a candidate of any estimator; it gets groups and weights if it takes them."""
    grouped = has_fit_parameter(estimator, "groups")

    def fit(rows: Training) -> Predictor:
        named: dict[str, Any] = {"groups": rows.ids.names} if grouped else {}
        return OfEstimator(fit_weighted(clone(estimator), rows.x, rows.y, rows.weights, **named), grouped, rows.classes)

    return fit


# ---------------------------------------------------------------- parts of them


def _codes(rows: Training, model: Any) -> tuple[npt.NDArray[np.int64], int]:
    """Return the codes of the classes that a model has seen, and the number of all."""
    classes = np.asarray(rows.classes)
    return np.asarray(np.searchsorted(classes, model.classes_), np.int64), len(classes)


def _linear(rows: Training, weights: Array | None) -> Predictor:
    if rows.classes is None:
        return Linear(rows.inputs, *_ridge(rows, weights))
    model = LogisticRegression(max_iter=1000).fit(rows.z, rows.y, sample_weight=weights)
    return Linear(rows.inputs, model.coef_.T, model.intercept_, *_codes(rows, model))


def _weights_by(rows: Training, mixture: Array) -> Array:
    """Return weights of rows by which groups count by a mixture; the sum of the weights stays."""
    mass = rows.mass
    by_group = np.bincount(rows.ids.codes, mass, minlength=len(rows.ids.groups))
    weights = mass * (mixture / by_group)[rows.ids.codes]
    return np.asarray(weights * (mass.sum() / weights.sum()))


def _ridge(rows: Training, weights: Array | None) -> tuple[Array, Array]:
    """Return coefficients and intercept of ridge regression with the shrinkage that is best in held-out groups."""
    part = np.zeros(len(rows.y), dtype=np.int64)
    if len(rows.ids.groups) > 1:
        for number, mask in enumerate(folds(rows.ids, parts=RIDGE_PARTS, seed=rows.seed)):
            part[mask] = number
    count = int(part.max()) + 1
    factors = GroupFactors.from_rows(rows.z, rows.y, GroupIds(part, Groups(range(count))), weights)
    mass = factors.mass
    shrink = (1.0 / mass.sum(), *RIDGES)
    best = 0
    if count > 1:
        kept = mass * (1.0 - np.eye(count))
        kept /= kept.sum(axis=1, keepdims=True)

        def loss(share: float) -> float:
            theta = factors.weighted_ridge(kept, share)
            return float(((factors.roots @ theta - factors.targets) ** 2).sum())

        best = int(np.argmin([loss(share) for share in shrink]))
    theta = factors.weighted_ridge((mass / mass.sum())[None], shrink[best])[0]
    return theta[1:], theta[0]
