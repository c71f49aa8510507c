r"""Any model by the weights of its rows.

Whatever takes ``sample_weight`` can be fitted to a mixture p of groups that a graph gives: a row of group e, of which
there are :math:`n_e`, weighs :math:`p_e / n_e`.

A worst-case mixture, by the losses of models that have not seen a group, was no better on real tables
(benchmarks/results/weighted_linear.md and weighted_trees.md), so there is none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, has_fit_parameter

from toporo.errors import DataError, GroupMismatchError, SettingError, listed
from toporo.estimators.base import GroupPrior, WeighedGroups, adopt, training_groups
from toporo.estimators.rows import Rows, check_classes, column_count, group_ids, refuse_no_weight, sizes_of
from toporo.groups import GroupIds, Groups
from toporo.robust.rows import as_weights, refuse_infinite
from toporo.types import Array, Name


def _has_probabilities(self: Any) -> bool:
    return hasattr(getattr(self, "estimator_", self.estimator), "predict_proba")


class RobustEstimator(MetaEstimatorMixin, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """Weights and the fit; the kinds of targets differ in the two classes below."""

    estimator_: Any
    group_weights_: dict[Name, float]

    #: Whether the target is a class.
    _classes: ClassVar[bool]

    # Without groups there is nothing to weigh, so metadata routing asks for them.
    __metadata_request__fit = {"groups": True}  # noqa: RUF012  # scikit-learn's own name and type

    def __init__(self, estimator: Any, *, graph: Any = None, test_groups: Any = None, prior: Any = "auto") -> None:
        self.estimator = estimator
        self.graph = graph
        self.test_groups = test_groups
        self.prior = prior

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Find the weights, and fit the estimator with them.

        Parameters
        ----------
        X, y : as the estimator takes them; rows must be an array or a frame that can be indexed by number.
        groups : every row's group: any hashable names in a list, an array, a Series, or :class:`~toporo.GroupIds`.
            Without them all rows are one group, and the estimator is fitted as it would be alone.
        sample_weight : how much a row counts within its group, by default all alike.

        Returns
        -------
        The estimator itself, fitted.
        """
        self._check_estimator()
        rows = self._rows(X, y, groups, sample_weight)
        names = rows.ids.groups
        known = GroupPrior.of(self, names, rows.in_effect, column_count(rows.x))
        weights = {names.names[0]: 1.0} if known.prior is None else dict(known.prior.weights)
        shares = rows.weights_for(names.align(weights))
        given = None if (shares == 1.0).all() else shares
        inner = fit_weighted(clone(self.estimator), rows.x, rows.y, given)
        return self._adopt(inner, known.weighed(weights, sizes_of(rows.ids)))

    def _adopt(self, inner: Any, groups: WeighedGroups) -> Self:
        """Take over what was fitted, now or before it was stored."""
        self.estimator_, self._groups = inner, groups
        adopt(self, groups)
        for name in ("n_features_in_", "feature_names_in_", "classes_"):
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))
        return self

    def _check_estimator(self) -> None:
        """Raise unless the estimator is of the right kind and takes weights."""
        kind = "classifier" if self._classes else "regressor"
        given = self.estimator
        if isinstance(given, type) or not (hasattr(given, "fit") and hasattr(given, "get_params")):
            hint = " Pass an instance, not the class." if isinstance(given, type) else ""
            raise SettingError(f"estimator is {given!r}: expected a {kind} as scikit-learn has them.{hint}")
        tags = given.__sklearn_tags__() if hasattr(given, "__sklearn_tags__") else None
        if tags is not None and tags.estimator_type not in (kind, None):
            other = "RobustRegressor" if self._classes else "RobustClassifier"
            raise SettingError(f"{type(given).__name__} is a {tags.estimator_type}, not a {kind}: use {other}.")
        weight_name(given)

    def _rows(self, x: Any, y: Any, groups: Any, sample_weight: Any) -> Rows:
        """Return rows that count, checked as far as the estimator does not."""
        if y is None:
            raise DataError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        check_consistent_length(x, y)
        target = self._checked_target(np.asarray(y))
        ordinary = f"{type(self.estimator).__name__} is fitted as it would be alone"
        ids = training_groups(self, groups, len(target), ordinary)
        refuse_no_weight(sample_weight)
        rows = Rows(x, target, ids, as_weights(sample_weight, ids))
        return rows if rows.shares.all() else rows.take(np.flatnonzero(rows.shares))

    @abstractmethod
    def _checked_target(self, target: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return targets if they are of the right kind."""

    # ------------------------------------------------------------ after the fit

    def sample_weight(self, groups: Any) -> Array:
        """Return weights of rows, for fitting something else to the same mixture of groups; they sum to the rows.

        Parameters
        ----------
        groups : every row's group, training groups all of them. Where some training groups are missing, the others
            keep their proportions.
        """
        check_is_fitted(self)
        ids = group_ids(groups, len(groups))
        unknown = [name for name in ids.groups if name not in self.group_weights_]
        if unknown:
            raise GroupMismatchError(
                f"{len(unknown)} group(s) that were not trained on have no weight: {listed(unknown)}. Leave their rows "
                f"out; training groups are {listed(self.group_weights_)}."
            )
        trained = Groups(self.group_weights_)
        codes = trained.encode(ids.groups)[ids.codes]
        return Rows(None, codes, GroupIds(codes, trained)).weights_for(trained.align(self.group_weights_))

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Predict by the fitted estimator.

        Parameters
        ----------
        X : as the estimator takes it.
        """
        check_is_fitted(self)
        return self.estimator_.predict(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            inner = self.estimator.__sklearn_tags__()
            tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
            tags.non_deterministic = inner.non_deterministic
            tags.regressor_tags = inner.regressor_tags or tags.regressor_tags
            tags.classifier_tags = inner.classifier_tags or tags.classifier_tags
        return tags


class RobustRegressor(RegressorMixin, RobustEstimator):  # type: ignore[misc]  # scikit-learn has no types
    r"""Any regressor that takes ``sample_weight``, fitted to a mixture of groups that is made for test groups.

    .. math:: \min_f \sum_e \frac{p_e}{n_e} \sum_{i \in e} \ell(f(x_i), y_i)

    On four tables that this was settled on, its error is 0.97 of that of equal rows for linear models and 1.01 for
    boosted trees (benchmarks/results/weighted_linear.md and weighted_trees.md).

    Parameters
    ----------
    estimator : any regressor whose ``fit`` takes ``sample_weight``, of scikit-learn or with the same manners (LightGBM,
        XGBoost, CatBoost), or a pipeline that ends in one; transformers get no weights. It is not changed.
    graph, test_groups, prior : p, as in :class:`TRORegressor`: which groups touch, in any form that
        :func:`toporo.graphs.as_graph` takes; names of the groups that the model is for; "auto", "uniform", a measure,
        a Prior or {group: weight}. Without a graph the prior is uniform.

    Attributes
    ----------
    estimator_ : the estimator, fitted to all rows with :meth:`sample_weight` as weights.
    group_weights_, group_sizes_ : p and the rows, by group.
    rows_in_effect_ : Kish's count: how many rows, weighed alike, would say as much.
    prior_ : p; None for a single group. An automatic one gives no group more than its rows can bear
        (:func:`toporo.topology.effect.most_weight`).
    topology_, test_groups_ : the graph and the test groups, or None.
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> rng = np.random.default_rng(0)
    >>> x, state = rng.normal(size=(300, 2)), np.repeat(["NY", "PA", "OH"], 100)
    >>> y = x[:, 0] + (state == "OH") * x[:, 1]
    >>> borders = [("NY", "PA"), ("PA", "OH"), ("OH", "IN")]
    >>> model = RobustRegressor(HistGradientBoostingRegressor(), graph=borders, test_groups=["IN"])
    >>> model = model.fit(x, y, groups=state)
    >>> {name: round(weight, 3) for name, weight in model.group_weights_.items()}
    {'NY': 0.167, 'OH': 0.667, 'PA': 0.167}
    >>> model.sample_weight(["NY", "NY", "OH"]).round(3).tolist()
    [0.3, 0.3, 2.4]
    """

    _classes = False

    def _checked_target(self, target: npt.NDArray[Any]) -> npt.NDArray[Any]:
        refuse_infinite(target, "y")
        return target


class RobustClassifier(ClassifierMixin, RobustEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Any classifier that takes ``sample_weight``, fitted to a mixture of groups that is made for test groups.

    Parameters
    ----------
    estimator : any classifier whose ``fit`` takes ``sample_weight``, or a pipeline that ends in one. It is not changed.
    graph, test_groups, prior : see :class:`RobustRegressor`.

    Attributes
    ----------
    classes_ : the classes, sorted.
    estimator_, group_weights_, group_sizes_, rows_in_effect_, prior_, topology_, test_groups_, n_features_in_,
    feature_names_in_ : see :class:`RobustRegressor`.

    >>> from sklearn.linear_model import LogisticRegression
    >>> x, state = np.array([[-2.0], [-1.0], [1.0], [2.0]] * 3), np.repeat(["NY", "PA", "OH"], 4)
    >>> model = RobustClassifier(LogisticRegression(), prior="uniform").fit(x, x[:, 0] > 0, groups=state)
    >>> model.predict([[1.5]]).tolist(), round(model.group_weights_["OH"], 3)
    ([True], 0.333)
    """

    _classes = True

    def _checked_target(self, target: npt.NDArray[Any]) -> npt.NDArray[Any]:
        check_classes(target, "RobustRegressor")
        return target

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Predict probabilities of the classes by the fitted estimator, in the order of ``classes_``.

        Parameters
        ----------
        X : as the estimator takes it.
        """
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)


# ---------------------------------------------------------------- the estimator inside


def weight_name(estimator: Any) -> str:
    """Return the parameter of fit that takes weights of rows: of a pipeline, that of its last step."""
    last, path = estimator, []
    while isinstance(last, Pipeline):
        name, last = last.steps[-1]
        path.append(name)
    if not hasattr(last, "fit") or not has_fit_parameter(last, "sample_weight"):
        what = f"{last!r}, the last step of the pipeline," if path else type(last).__name__
        raise SettingError(
            f"{what} takes no sample_weight in fit, so no weights can reach it: use an estimator that does, such as "
            "HistGradientBoosting, Ridge, LogisticRegression or RandomForest, by itself or as a pipeline's last step."
        )
    return "__".join([*path, "sample_weight"])


def fit_weighted(estimator: Any, x: Any, y: Any, weights: Any, **named: Any) -> Any:
    """Fit an estimator to rows with weights, or None; one that cannot take weights is an error.

    Parameters
    ----------
    estimator : any, or a pipeline: the last step of it gets the weights.
    x, y, weights : the rows.
    named : further arguments of its ``fit``.
    """
    if weights is None:
        return estimator.fit(x, y, **named)
    # Without metadata routing, a pipeline takes weights by the name of its last step.
    no_routing = config_context(enable_metadata_routing=False) if isinstance(estimator, Pipeline) else nullcontext()
    with no_routing:
        return estimator.fit(x, y, **{weight_name(estimator): weights}, **named)
