"""Any model plus what it leaves, kriged: an effect of each group never trained on, as the graph suggests it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from toporo.checks import whole
from toporo.data.grouped import group_rng
from toporo.errors import DataError, SettingError
from toporo.estimators.kriged import placed, vectors_of
from toporo.estimators.rows import group_ids
from toporo.graphs import as_graph
from toporo.groups import GroupIds
from toporo.robust.group_factors import GroupFactors
from toporo.robust.kriged import KrigedFit, fit_kriged
from toporo.types import Array, Name

#: Nested models of the effects, averaged by their evidence: none at all, without the graph, with it, both.
EFFECTS = {
    "no effect": (),
    "independent groups": ("omega_0",),
    "graph": ("tau_0", "time"),
    "graph and independent groups": ("omega_0", "tau_0", "time"),
}
#: Probabilities are kept this far from 0 and 1.
LEAST = 1e-3
#: How often log-odds are put in place of probabilities anew: effects are small, and settle at once.
ROUNDS = 4


class Kriged(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    r"""Any regressor or classifier, plus an effect of the group: :math:`\hat y = f(x) + \hat u_g`.

    What a model leaves of groups that it has not seen is alike in neighbouring groups, if a graph is worth anything.
    So f is fitted without some groups at a time, what it leaves of these is taken as :math:`u_g` and noise,
    :math:`u \sim N(0, s^2(\tau_0 K + \omega_0 I))`, with K a kernel on the graph and all variances by their likelihood
    (:mod:`toporo.robust.kriged`), and a group never trained on gets the mean that follows from its neighbours. Where
    the graph says nothing, nothing is added: :math:`\hat u_g` is 0. Groups that f was trained on are left to f.

    Of a classifier, effects are on the scale of the log-odds, class by class.

    Parameters
    ----------
    estimator : f, any scikit-learn regressor or classifier with ``predict_proba``. It costs ``folds`` + 1 fits.
    graph : over the groups, test groups among them, in any form that :func:`toporo.graphs.as_graph` takes.
    folds : into how many parts groups are divided.
    random_state : a number; which groups are together depends on it.

    Attributes
    ----------
    estimator_ : f, fitted to all rows.
    evidence_ : the weight of every nested model, by name; of a classifier, mean over the classes.
    gate_ : the weight of those that have the graph in them.
    effects_ : of the training groups, by name: what their neighbours and they themselves suggest, in units of the
        target or as log-odds of the classes.
    saw_ : what of test groups predictions look at.

    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(range(12), 20)  # twelve in a row, each higher than the one before
    >>> x = rng.normal(size=(240, 1))
    >>> y = x[:, 0] + groups + rng.normal(size=240)
    >>> model = Kriged(LinearRegression(), graph=[(place, place + 1) for place in range(11)])
    >>> model = model.fit(x[groups != 8], y[groups != 8], groups=groups[groups != 8])
    >>> round(float(model.predict([[0.0]], groups=[8])[0]))
    8
    """

    __metadata_request__fit = {"groups": True}  # noqa: RUF012  # scikit-learn's own name and type
    __metadata_request__predict = {"groups": True}  # noqa: RUF012
    __metadata_request__predict_proba = {"groups": True}  # noqa: RUF012

    def __init__(self, estimator: Any, *, graph: Any, folds: int = 6, random_state: int = 0) -> None:
        self.estimator = estimator
        self.graph = graph
        self.folds = folds
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = self.estimator.__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags = inner.estimator_type, inner.classifier_tags
        tags.regressor_tags, tags.input_tags, tags.target_tags = (
            inner.regressor_tags,
            inner.input_tags,
            inner.target_tags,
        )
        return tags

    def fit(self, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fit the model, and the effects to what it leaves.

        Parameters
        ----------
        X, y : as the estimator takes them; rows must be an array or a frame that can be indexed by number.
        groups : every row's group, by name.
        sample_weight : of rows, for an estimator that takes it.
        """
        whole(self.folds, "folds", 2)
        target = np.asarray(y)
        ids = group_ids(groups, len(target))
        if len(ids.groups) < 3:
            raise DataError(f"{len(ids.groups)} group(s): expected at least three, for effects to be told from noise.")
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if weights is not None and not has_fit_parameter(self.estimator, "sample_weight"):
            raise SettingError(f"{type(self.estimator).__name__} takes no sample_weight: leave it out.")
        self.topology_ = as_graph(self.graph)
        modes, places = placed(self.topology_, ids.groups)
        self._classes = is_classifier(self.estimator)
        if self._classes:
            self.classes_ = np.unique(target)
        elif target.ndim != 1:
            raise DataError(f"y has shape {target.shape}: expected one target per row.")
        left_out = [self._apart(X, target, weights, held_out) for held_out in self._parts(ids)]
        self.estimator_ = self._fitted(X, target, weights)
        guesses = np.zeros((len(target), len(self.classes_)) if self._classes else len(target))
        for rows, values in left_out:
            guesses[rows] = values

        def fit_effects(values: Array, weights: Array | None) -> KrigedFit:
            return fit_kriged(GroupFactors.from_values(values, ids, weights), modes, places, EFFECTS, level=False)

        if self._classes:
            self.fits_ = [
                _log_odds(target == label, guesses[:, place], ids, weights, fit_effects)
                for place, label in enumerate(self.classes_)
            ]
        else:
            self.fits_ = [fit_effects(target - guesses, weights)]
        self.groups_ = ids.groups
        self.evidence_ = {name: float(np.mean([fit.evidence[name] for fit in self.fits_])) for name in EFFECTS}
        self.gate_ = sum(weight for name, weight in self.evidence_.items() if "graph" in name)
        effects = np.column_stack([_own_effects(fit) for fit in self.fits_])
        self.effects_ = {
            name: row.tolist() if self._classes else float(row[0])
            for name, row in zip(ids.groups, effects, strict=True)
        }
        self.saw_ = ("test adjacency",)
        return self

    def predict(self, X: Any, groups: Any, *, neighbors: Mapping[Name, Iterable[Name]] | None = None) -> Any:  # noqa: N803
        """Predicted values, or the likeliest class.

        Parameters
        ----------
        X : as the estimator takes it.
        groups : every row's group.
        neighbors : groups that are not in the graph, and which groups there they are next to.
        """
        check_is_fitted(self)
        if self._classes:
            return self.classes_[np.argmax(self.predict_proba(X, groups, neighbors=neighbors), axis=1)]
        values = np.asarray(self.estimator_.predict(X), dtype=np.float64)
        return values + self._added(groups, len(values), neighbors)[:, 0]

    def predict_proba(self, X: Any, groups: Any, *, neighbors: Mapping[Name, Iterable[Name]] | None = None) -> Array:  # noqa: N803
        """Probabilities of the classes, in the order of ``classes_``.

        Parameters
        ----------
        X, groups, neighbors : see :meth:`predict`.
        """
        check_is_fitted(self)
        if not self._classes:
            raise AttributeError(f"{type(self.estimator).__name__} is a regressor: it has no probabilities.")
        chances = self.estimator_.predict_proba(X)
        added = self._added(groups, len(chances), neighbors)
        moved = 1.0 / (1.0 + np.exp(-(_logit(chances) + added)))
        kept = (added == 0.0).all(axis=1)  # to the last digit
        return np.asarray(np.where(kept[:, None], chances, moved / moved.sum(axis=1, keepdims=True)))

    def _added(self, groups: Any, rows: int, neighbors: Mapping[Name, Iterable[Name]] | None) -> Array:
        """The effect of every row's group, by class; 0 for groups that the model was trained on."""
        ids = group_ids(groups, rows)
        new = np.array([name not in self.groups_ for name in ids.groups])
        vectors = vectors_of(self.fits_[0], self.topology_, ids.groups, neighbors or {})
        effects = np.column_stack([_effects(fit, vectors, np.full(len(vectors), -1)) for fit in self.fits_])
        return np.asarray(np.where(new[:, None], effects, 0.0)[ids.codes])

    def _parts(self, ids: GroupIds) -> Iterator[npt.NDArray[np.bool_]]:
        """Rows of groups that are left out together."""
        order = group_rng("folds", self.random_state).permutation(len(ids.groups))
        part = np.empty(len(order), dtype=np.intp)
        part[order] = np.arange(len(order)) % min(self.folds, len(order))
        for number in range(part.max() + 1):
            yield part[ids.codes] == number

    def _apart(
        self, x: Any, y: npt.NDArray[Any], weights: Array | None, held_out: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.bool_], Array]:
        """What a model that has not seen these rows' groups says of them."""
        kept = np.flatnonzero(~held_out)
        model = self._fitted(_take(x, kept), y[kept], None if weights is None else weights[kept])
        rows = _take(x, np.flatnonzero(held_out))
        if not self._classes:
            return held_out, np.asarray(model.predict(rows), dtype=np.float64)
        chances = np.full((int(held_out.sum()), len(self.classes_)), LEAST)
        chances[:, np.searchsorted(self.classes_, model.classes_)] = model.predict_proba(rows)
        return held_out, chances

    def _fitted(self, x: Any, y: npt.NDArray[Any], weights: Array | None) -> Any:
        model = clone(self.estimator)
        return model.fit(x, y) if weights is None else model.fit(x, y, sample_weight=weights)


def _take(x: Any, rows: npt.NDArray[np.intp]) -> Any:
    return x.iloc[rows] if hasattr(x, "iloc") else np.asarray(x)[rows] if isinstance(x, list) else x[rows]


def _logit(chances: Array) -> Array:
    kept = np.clip(chances, LEAST, 1.0 - LEAST)
    return np.asarray(np.log(kept / (1.0 - kept)))


def _effects(fit: KrigedFit, vectors: Array, own: npt.NDArray[Any]) -> Array:
    nothing = np.zeros((len(vectors), 0))
    return fit.moments(nothing, nothing, vectors, own)[0][:, 0]


def _own_effects(fit: KrigedFit) -> Array:
    return _effects(fit, fit.likelihood.vectors, np.arange(len(fit.likelihood.vectors)))


def _log_odds(
    right: npt.NDArray[np.bool_], chances: Array, ids: GroupIds, weights: Array | None, fit_effects: Any
) -> KrigedFit:
    """Effects on the log-odds of a class: what is left of it, over its slope, as often as it takes to settle."""
    base = _logit(chances)
    effects = np.zeros(len(ids.groups))
    for _ in range(ROUNDS):
        p = 1.0 / (1.0 + np.exp(-(base + effects[ids.codes])))
        slope = p * (1.0 - p)
        fit: KrigedFit = fit_effects(
            effects[ids.codes] + (right - p) / slope, slope if weights is None else slope * weights
        )
        effects = _own_effects(fit)
    return fit
