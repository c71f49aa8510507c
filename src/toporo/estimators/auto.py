"""Weighted mean of several models, with a kriged effect of the group: the estimators.

Which model holds in groups that nobody has seen cannot be told from the rows that it was fitted to, and hardly from a
few regions held out: whoever picks the best on them is often misled. So all candidates
(:mod:`toporo.estimators.candidates`) are fitted without some groups at a time, get weights by their out-of-fold
predictions (:mod:`toporo.estimators.ensemble`), and their residuals are kriged over the graph
(:mod:`toporo.estimators.effects`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from toporo.checks import number, whole
from toporo.choice.cross_fitting import Fold, OutOfFold, folds
from toporo.errors import DataError, SettingError, listed
from toporo.estimators.auto_fit import fit_candidates, judging_rows, taken
from toporo.estimators.auto_model import AutoModel
from toporo.estimators.base import plot_bars
from toporo.estimators.candidates import CANDIDATES, SAFE, Candidate, Training, of_estimator
from toporo.estimators.effects import GroupEffect, GroupEffects
from toporo.estimators.ensemble import Ensemble, OutOfFoldTable, best_sharpness, sharpened
from toporo.estimators.intervals import FEWEST, Intervals, check_level, scores_of, why_none
from toporo.estimators.leaderboard import Leaderboard, effect_facts, effect_size
from toporo.estimators.places import Context, GroupAwareEstimator, Neighbors
from toporo.estimators.predictors import Predictor
from toporo.estimators.resume import Store
from toporo.estimators.rows import (
    EVERYONE,
    check_classes,
    check_numbers,
    encode_classes,
    group_ids,
    ids_to_predict,
    one_group,
    refuse_graph_alone,
    refuse_no_weight,
    sizes_of,
    some_of,
    target_column,
)
from toporo.estimators.weighted import weight_name
from toporo.graphs import as_graph
from toporo.machine import one_thread, usable_threads
from toporo.robust.rows import as_weights, refuse_huge
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class AutoEstimator(GroupAwareEstimator, ABC):
    """Fits, predictions and explanation of ensembles of numbers and of classes."""

    model_: AutoModel
    candidates_: dict[str, Predictor]
    out_of_fold_: Array | None

    #: The only candidates; all that are registered for numbers, or for classes, where this is None.
    _only: ClassVar[tuple[str, ...] | None] = None

    def __init__(
        self,
        *,
        graph: Any = None,
        test_groups: Iterable[Name] | None = None,
        candidates: Mapping[str, Any] | None = None,
        folds: int = 5,
        budget: float | None = None,
        resume: str | os.PathLike[str] | None = None,
        random_state: int = 0,
    ) -> None:
        self.graph = graph
        self.test_groups = test_groups
        self.candidates = candidates
        self.folds = folds
        self.budget = budget
        self.resume = resume
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # ------------------------------------------------------------ the fit

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fit all candidates, weigh them, and krige their residuals.

        Parameters
        ----------
        X : rows × features, numbers; values may be missing.
        y : targets, one per row.
        groups : every row's group, by name. Without them, or with one, nothing is known of how groups differ, and
            candidates are judged by held-out rows.
        sample_weight : of rows.
        """
        if self.budget is not None:
            number(self.budget, "budget", "seconds, more than 0, or None", least=0.0)
        whole(self.folds, "folds", 2)
        whole(self.random_state, "random_state", 0)
        refuse_graph_alone(self.graph, groups)
        x, target = self._numbers(X, reset=True), target_column(y)
        check_consistent_length(x, target)
        target = self._checked(target)
        extremes = [reduce(x, initial=0.0, where=np.isfinite(x)) for reduce in (np.min, np.max)]
        refuse_huge(np.array(extremes), "X")
        ids = one_group(EVERYONE, len(x)) if groups is None else group_ids(groups, len(x))
        refuse_no_weight(sample_weight)
        weights = as_weights(sample_weight, ids)
        if weights is not None:
            for each in dict(self.candidates or {}).values():
                weight_name(each)  # an error before the work starts
            if not weights.all():  # rows that do not count
                there = np.flatnonzero(weights)
                x, target, ids, weights = x[there], target[there], some_of(ids, there), weights[there]
        graph = None if self.graph is None else as_graph(self.graph)
        if graph is not None:
            graph.require(ids.groups, what="group(s) of the data")
        classes = encode_classes(target)[0] if is_classifier(self) else None
        asked = self.test_groups if self.test_groups is not None else () if graph is None else graph.names
        test = tuple(name for name in asked if name not in ids.groups)
        workers = usable_threads()
        with one_thread(openmp=True):
            return self._fit(Training(x, target, ids, weights, classes, graph, test, self.random_state), workers)

    @abstractmethod
    def _checked(self, target: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return targets that are numbers, or classes."""

    def _numbers(self, x: Any, *, reset: bool) -> Array:
        """Return inputs as an array of numbers, with the same columns as in the fit."""
        try:
            found: Array = validate_data(
                self, x, reset=reset, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=1 + reset
            )
        except ValueError as error:
            if "could not convert" not in str(error):
                raise DataError(str(error)) from None
            raise DataError(
                f"X holds text ({error}): encode it as numbers, or fit the whole table with toporo.fit_table."
            ) from None
        return found

    def _fit(self, every: Training, workers: int) -> Self:
        rows = judging_rows(every.ids, self.random_state)
        some = every if len(rows) == len(every.y) else taken(every, rows, every.test_groups)
        parts = folds(some.ids, parts=self.folds, seed=self.random_state)
        if not parts:
            raise DataError(f"{len(some.ids)} row(s): expected at least two.")
        usual = self._usual()
        store = None if self.resume is None else Store(Path(self.resume), some, self.folds)
        tried: dict[str, Any] = {"workers": workers, "store": store, "budget": self.budget}
        found = fit_candidates(usual, self._own(usual), every, some, parts, **tried)
        classes, groups = every.classes, len(some.ids.groups)
        wanted = np.asarray(some.y[:, None] if classes is None else some.y[:, None] == classes, dtype=np.float64)
        table = OutOfFoldTable(found.predictions, wanted, some.mass, parts)
        always, unless_far = (
            [name for name in found.predictions if name in usual and usual[name].safe == when] for when in SAFE
        )
        far = f"far off in some {'groups' if groups > 1 else 'rows'}"
        weights, scores = table.weigh(table.safe(always, unless_far), found.failed, far)
        positive = {name: weight for name, weight in weights.items() if weight > 0.0}
        mean = np.sum([weight * found.predictions[name] for name, weight in positive.items()], axis=0)
        sharpness = 1.0 if classes is None else best_sharpness(mean, wanted, some.mass)
        mean = sharpened(mean, sharpness)
        effects = GroupEffects.fit(some.y, _column(mean, classes), some.ids, some.weights, every.graph, classes)
        intervals = None
        if groups >= FEWEST:
            mean = effects.combine(mean, effects.out_of_fold(some.ids, parts))
            scores_by_row, out = scores_of(some.y, _column(mean, classes), classes), Fold.of(parts)
            held_out = OutOfFold(out, [scores_by_row[fold.held_out] for fold in out], [])
            intervals = Intervals.of_folds(held_out, some.ids, every.graph)
        self.candidates_ = {name: found.final[name] for name in found.predictions}
        out_of_fold = np.full((len(every.y), mean.shape[1]), np.nan)
        out_of_fold[rows] = mean
        self.out_of_fold_ = _column(out_of_fold, classes)
        ensemble = Ensemble(positive, {name: found.final[name] for name in positive}, sharpness)
        test = None if self.test_groups is None else tuple(self.test_groups)
        settings = test, int(self.folds), int(self.random_state)
        sizes, inputs = sizes_of(every.ids), every.x.shape[1]
        return self._adopt(AutoModel(ensemble, effects, intervals, scores, sizes, inputs, classes, *settings))

    @classmethod
    def from_model(cls, model: AutoModel) -> Self:
        """Make a fitted estimator of its model; it knows the candidates that have weight."""
        settings: dict[str, Any] = {"folds": model.folds, "random_state": model.seed}
        test = None if model.test_groups is None else list(model.test_groups)
        made = cls(graph=model.effects.graph, test_groups=test, **settings)._adopt(model)
        if is_classifier(made) != (model.classes is not None):
            raise DataError(
                f"its class is {cls.__name__}, its model one of {'numbers' if model.classes is None else 'classes'}."
            )
        made.n_features_in_, made.candidates_, made.out_of_fold_ = model.inputs, model.ensemble.members, None
        return made

    def _adopt(self, model: AutoModel) -> Self:
        """Hold a fitted model, and set the attributes that follow from it."""
        self.model_, effects = model, model.effects
        if model.classes is not None:
            self.classes_ = model.classes
        self.groups_, self.group_sizes_, self.topology_ = effects.groups, model.sizes, effects.graph
        self.leaderboard_, self.intervals_ = model.scores, model.intervals
        self.weights_ = {row.name: row.weight for row in model.scores if not np.isnan(row.error)}
        self.evidence_, self.gate_ = effects.evidence, effects.gate
        self.effects_ = effects.by_name(effects.groups)
        self.saw_ = ("test adjacency",)
        return self

    def _usual(self) -> dict[str, Candidate]:
        """Return the registered candidates for numbers, or for classes."""
        classes = is_classifier(self)
        return {
            name: each
            for name, each in CANDIDATES.items()
            if (each.classes if classes else each.numbers) and (self._only is None or name in self._only)
        }

    def _own(self, usual: Iterable[str]) -> dict[str, Candidate]:
        """Return the user's candidates."""
        if not isinstance(self.candidates or {}, Mapping):
            raise SettingError(
                f"candidates is a {type(self.candidates).__name__}: expected estimators by name, such as "
                '{"mine": RandomForestRegressor()}, which are added to the usual ones.'
            )
        own = dict(self.candidates or {})
        if not own.keys().isdisjoint(usual):
            raise SettingError(f"candidates has {listed(own.keys() & set(usual))}: these are there already.")
        strange = [name for name, each in own.items() if not (hasattr(each, "fit") and hasattr(each, "predict"))]
        if strange:
            raise SettingError(f"candidates has {listed(strange)}: expected estimators as scikit-learn has them.")
        return {name: Candidate(of_estimator(each)) for name, each in own.items()}

    # ------------------------------------------------------------ predictions

    def predict(
        self,
        X: Any,  # noqa: N803
        groups: Any = None,
        *,
        interval: float | None = None,
        neighbors: Neighbors | None = None,
        context: Context | None = None,
    ) -> Any:
        """Predicted values, or the likeliest class.

        Parameters
        ----------
        X : as in :meth:`fit`.
        groups : every row's group. Without them, if there were groups in training, rows are of an unknown group: no
            effect is added, the means of the group's inputs count as missing, and intervals are those of the farthest
            groups. A warning says so.
        interval : with a share such as 0.9, at most 0.999, ``(values, lower, upper)`` is returned, or ``(classes,
            sets)``, where sets says which of ``classes_`` may be right, rows × classes: of so many rows in groups that
            the model was not trained on, going by those held out, the target is inside
            (:mod:`toporo.estimators.intervals`). In groups that it was trained on, more are.
        neighbors : groups that are not in the graph, and which groups there they are next to.
        context : of all rows to predict, where these are some of them, by :meth:`group_context`.
        """
        check_is_fitted(self)
        intervals = self.model_.intervals
        if interval is not None:
            check_level(interval)
            if intervals is None:
                raise SettingError(f"the model has no intervals: {why_none(len(self.groups_), costly=False)}.")
            intervals.require_level(interval)
        x = self._numbers(X, reset=False)
        at = self._places(groups, len(x), neighbors, context)
        output = self.model_(x, at)
        classes = self.model_.classes
        values = output[:, 0] if classes is None else classes[output.argmax(axis=1)]
        if interval is None or intervals is None:
            return values
        if classes is not None:
            return values, intervals.sets(output, interval, self.model_.distances(at))
        half = intervals.threshold(interval, self.model_.distances(at))
        return values, values - half, values + half

    @available_if(is_classifier)  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def predict_proba(
        self,
        X: Any,  # noqa: N803
        groups: Any = None,
        *,
        neighbors: Neighbors | None = None,
        context: Context | None = None,
    ) -> Array:
        """Probabilities of the classes, in the order of ``classes_``.

        Parameters
        ----------
        X, groups, neighbors, context : see :meth:`predict`.
        """
        check_is_fitted(self)
        x = self._numbers(X, reset=False)
        return self.model_(x, self._places(groups, len(x), neighbors, context))

    def predict_each(self, X: Any, groups: Any = None) -> dict[str, Array]:  # noqa: N803
        """Predictions of every candidate by itself: values, or probabilities of the classes.

        Parameters
        ----------
        X, groups : as in :meth:`predict`.
        """
        check_is_fitted(self)
        x = self._numbers(X, reset=False)
        at = self._places(groups, len(x), None)
        each = {name: predictor(x, at) for name, predictor in self.candidates_.items()}
        return {name: values if is_classifier(self) else values[:, 0] for name, values in each.items()}

    def group_context(self, X: Any, groups: Any = None) -> Context:  # noqa: N803
        """Means of the inputs of groups to predict, from some of the rows; those of several portions can be added up.

        Parameters
        ----------
        X, groups : as in :meth:`predict`.
        """
        check_is_fitted(self)
        x = self._numbers(X, reset=False)
        return self.model_.group_context(x, ids_to_predict(groups, self.groups_, len(x)))

    # ------------------------------------------------------------ explanation

    def effect(self, groups: Iterable[Name], *, neighbors: Neighbors | None = None) -> dict[Name, GroupEffect]:
        """Effects of groups, by name.

        Parameters
        ----------
        groups : names, of training groups or any others in the graph.
        neighbors : groups that are not in the graph, and which groups there they are next to.
        """
        check_is_fitted(self)
        return self.model_.effects.by_name(groups, neighbors)

    def explain(self) -> Leaderboard:
        """Table of the candidates with their errors in held-out groups (or rows) and weights, and the group effects."""
        check_is_fitted(self)
        graph: GroupGraph | None = self.topology_
        effects = {} if graph is None else self.effect(graph.names)
        facts = effect_facts(self.leaderboard_, self.evidence_, None if graph is None else self.gate_, effects)
        return Leaderboard(self.leaderboard_, facts, "groups" if len(self.groups_) > 1 else "rows")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the graph with the effects of groups as sizes, or without a graph the ensemble weights as bars.

        Parameters
        ----------
        ax : the matplotlib axes to draw on; by default new ones.
        """
        import matplotlib as mpl

        check_is_fitted(self)
        with mpl.rc_context({"text.parse_math": False}):  # a dollar in a name is one
            graph: GroupGraph | None = self.topology_
            if graph is None:
                return plot_bars(ax, {row.name: row.weight for row in self.leaderboard_}, "ensemble weight")
            sizes = {name: effect_size(effect) for name, effect in self.effect(graph.names).items()}
            test = [name for name in graph.names if name not in self.groups_]
            return graph.plot(ax, train=list(self.groups_), test=test or None, sizes=sizes)


class AutoRegressor(RegressorMixin, AutoEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The weighted mean of several models, with a kriged effect of the group: for tables of numbers to predict.

    Candidates are a constant; linear models by rows, by groups, by the graph's prior and against the worst mixture near
    it (TRO); a kriged model, whose groups have levels that follow the graph; boosted trees, these with the means of the
    group's inputs as further columns, and these on the residuals of a kriged model. Each is fitted without some groups
    at a time, and weighted by its predictions for these. The residuals are kriged over the graph. See
    :mod:`toporo.estimators.ensemble` for the formulas. Candidates and how far predictions are drawn to the safe mean
    were settled on four tables with their test errors in view (0.919 of the error of boosted trees there), and judged
    once on four others (0.851).

    Parameters
    ----------
    graph : over the groups, test groups among them, in any form that :func:`toporo.graphs.as_graph` takes; without one
        new groups have no effect.
    test_groups : those that will be predicted, for the graph's prior; unless given, all of the graph that are not
        trained on.
    candidates : more of them: names to estimators, which get ``groups`` if they take them. They are fitted in turn in
        the calling thread, after the usual ones, which are fitted in parallel: on as many threads as there are usable
        cores, or as the environment variable ``OMP_NUM_THREADS`` says. OpenMP has one thread in every fit.
    folds : into how many parts groups are divided.
    budget : seconds. Candidates that are not done by then have no weight. None: as long as it takes, which is about as
        long as 25 fits of boosted trees on one thread; of more than 100,000 rows, so many are drawn to judge by.
    resume : a folder in which to keep what is done, so that a fit that is cut short goes on from there.
    random_state : a number; which groups are together depends on it.

    Attributes
    ----------
    model_ : the fitted model, a value (:class:`toporo.estimators.auto_model.AutoModel`).
    leaderboard_ : every candidate's error in held-out groups and its weight; :meth:`explain` prints it.
    weights_ : ensemble weights by name, summing to 1. :meth:`predict_each` gives the predictions of each.
    evidence_, gate_, effects_, saw_ : of the group effect, as in :class:`Kriged`.
    out_of_fold_ : predictions for training rows with weight by fits that have not seen their group; NaN for rows that
        were not drawn to judge candidates, and None in a model that was loaded.

    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(range(12), 20)
    >>> x = rng.normal(size=(240, 1))
    >>> y = x[:, 0] + groups + rng.normal(size=240)
    >>> model = AutoRegressor(graph=[(i, i + 1) for i in range(11)])
    >>> model = model.fit(x[groups != 8], y[groups != 8], groups=groups[groups != 8])
    >>> round(float(model.predict([[0.0]], groups=[8])[0]))
    8
    """

    score = AutoEstimator.score  # with groups

    def _checked(self, target: npt.NDArray[Any]) -> npt.NDArray[Any]:
        numbers = check_numbers(target, "AutoClassifier")
        refuse_huge(numbers, "y")
        return numbers


class AutoClassifier(ClassifierMixin, AutoEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The same for classes: the weighted mean of probabilities, with a kriged effect on their log-odds.

    Models are surer of themselves than they should be in groups that they have not seen. So the mean is taken to the
    power, at most 1, that gives the least log loss in held-out groups.

    Parameters
    ----------
    graph, test_groups, candidates, folds, budget, resume, random_state : see :class:`AutoRegressor`; candidates must
        have ``predict_proba``. The usual ones are linear and boosted trees, none of them kriged.

    Attributes
    ----------
    classes_ : sorted.
    model_, leaderboard_, weights_, evidence_, gate_, effects_, saw_, out_of_fold_ : see :class:`AutoRegressor`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, town = rng.normal(size=(90, 2)), np.repeat(["A", "B", "C"], 30)
    >>> kind = np.where(x[:, 0] > 0, "wet", "dry")
    >>> model = AutoClassifier(folds=2).fit(x, kind, groups=town)
    >>> model.predict([[2.0, 0.0]], groups=["B"]).tolist(), round(sum(model.weights_.values()), 6)
    (['wet'], 1.0)
    """

    score = AutoEstimator.score  # with groups

    def _checked(self, target: npt.NDArray[Any]) -> npt.NDArray[Any]:
        check_classes(target, "AutoRegressor")
        return target


class TreesRegressor(AutoRegressor):
    """Boosted trees alone: a control for :class:`AutoRegressor`, with the same intervals and explanation."""

    _only = ("trees",)


class TreesClassifier(AutoClassifier):
    """Boosted trees alone: a control for :class:`AutoClassifier`."""

    _only = ("trees",)


def _column(values: Array, classes: npt.NDArray[Any] | None) -> Array:
    """Return predictions of numbers as one column."""
    return values[:, 0] if classes is None else values
