r"""Any model by the weights of its rows.

Whatever takes ``sample_weight`` can be fitted to a mixture q of groups: a row of group e, of which there are
:math:`n_e`, weighs :math:`q_e / n_e`. What remains is which mixture. It may be the rows' own, the same for every group,
a prior that comes from a graph of groups, or TRO's answer to what models lose,

.. math:: q = \arg\max_{q \in \Delta} \sum_e q_e \ell_e - \lambda D(q\|p) .

:math:`\ell_e` must come from models that have not seen group e: trees lose next to nothing in rows that they were
fitted to. So groups are left out in parts. To tell groups apart by their losses takes less than the best model: a few
hundred rows of each, and a quarter of an ensemble's trees. The model itself is then fitted once, with the final
weights, as anyone would who has them.

Weights that change between blocks of trees (``warm_start``) would save part of that, and are wrong: in scikit-learn 1.9
the weights decide the bins of HistGradientBoosting, and trees of one block misread rows that were binned for the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, has_fit_parameter

from toporo.checks import one_of, penalty_number, whole
from toporo.choice.cross_fitting import Fold, cross_fit, folds
from toporo.choice.penalty import PriorMaker
from toporo.errors import DataError, GroupMismatchError, SettingError, listed, warn
from toporo.estimators.base import graph_and_test, ids_or_one
from toporo.estimators.rows import (
    Scaling,
    WeighedRows,
    check_classes,
    column_count,
    draw,
    group_ids,
    learn_graph_of,
    left_in_effect,
    refuse_no_weight,
    sizes_of,
)
from toporo.groups import GroupIds, Groups
from toporo.robust.divergences import best_response, get_divergence
from toporo.robust.rows import as_weights, refuse_infinite
from toporo.topology.effect import cap_weights
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array, Name

#: Which mixture of groups a model is fitted to.
WEIGHTS = ("rows", "groups", "prior", "tro")
#: What a group's loss is measured with: at most so many of its rows, ...
ROWS = 500
#: ... and this share of an ensemble's trees, of which the first do most of the work, but never fewer than so many.
TREES, FEWEST = 0.25, 10
#: With weights, scikit-learn 1.9 takes longer to find the bins of its histograms than to grow a hundred trees.
BINS = 0.25
#: Probabilities count as at least this in a loss: one sure mistake must not outweigh a group.
LEAST = 1e-3


def _has(name: str) -> Callable[[Any], bool]:
    """Whether the model inside has a method."""

    def check(self: Any) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), name)
        return True

    return check


class RobustEstimator(MetaEstimatorMixin, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """Weights and the fit; what differs between classes and numbers is in the two classes below."""

    estimator_: Any
    group_weights_: dict[Name, float]
    losses_: dict[Name, float] | None
    rows_in_effect_: float | None
    prior_: Prior | None
    topology_: GroupGraph | None
    test_groups_: tuple[Name, ...] | None

    #: Whether the target is a class.
    _classes: ClassVar[bool]

    # Without groups there is nothing to weigh, so metadata routing asks for them.
    __metadata_request__fit = {"groups": True}  # noqa: RUF012  # scikit-learn's own name and type

    def __init__(
        self,
        estimator: Any,
        *,
        weights: str = "prior",
        graph: Any = None,
        test_groups: Any = None,
        prior: Any = "auto",
        penalty: float = 1.0,
        divergence: str = "chi2",
        rounds: int = 2,
        folds: int = 3,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.weights = weights
        self.graph = graph
        self.test_groups = test_groups
        self.prior = prior
        self.penalty = penalty
        self.divergence = divergence
        self.rounds = rounds
        self.folds = folds
        self.random_state = random_state

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
        self._check_settings()
        self._check_estimator()
        table = self._table(X, y, groups, sample_weight)
        names = table.ids.groups
        self.topology_, self.test_groups_ = graph_and_test(
            self, names, lambda: learn_graph_of(table.x, table.ids, seed=int(self.random_state))
        )
        alone = len(names) == 1
        if alone and groups is not None:
            warn(f"all {len(table.y)} rows are of one group, {names.names[0]!r}: {self._ordinary()}.")
        self.prior_, most, own, columns = None, None, table.in_effect, column_count(table.x)
        if self.weights in ("prior", "tro") and not alone:
            maker = PriorMaker(self.prior, self.topology_, self.test_groups_ is not None, rows=own, columns=columns)
            self.prior_, most = maker.prior(names, self.test_groups_), maker.most(names)
        q, self.losses_ = self._start(table), None
        if self.weights == "tro" and not alone:
            q, losses = self._respond(table, q)
            q = q if most is None else cap_weights(q, names.align(most))
            self.losses_ = names.named(losses)
        self.group_weights_ = names.named(q)
        self.estimator_ = _fitted(self.estimator, table, q)
        by = self.group_weights_, sizes_of(table.ids), own, columns
        self.rows_in_effect_ = left_in_effect(*by, quiet=self.weights == "rows")
        return self

    # ------------------------------------------------------------ before the fit

    def _check_settings(self) -> None:
        one_of(self.weights, "weights", WEIGHTS)
        penalty_number(self.penalty)
        get_divergence(self.divergence)
        whole(self.rounds, "rounds", 1)
        whole(self.folds, "folds", 2)
        whole(self.random_state, "random_state", 0)

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

    def _table(self, x: Any, y: Any, groups: Any, sample_weight: Any) -> WeighedRows:
        """Rows that count, checked as far as the estimator does not."""
        if y is None:
            raise DataError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        check_consistent_length(x, y)
        target = self._checked_target(np.asarray(y))
        ids = ids_or_one(self, groups, len(target), self._ordinary())
        refuse_no_weight(sample_weight)
        given = as_weights(sample_weight, ids)
        shares = np.ones(len(target)) if given is None else given
        table = WeighedRows(x, target, ids, shares)
        return table if shares.all() else table.take(np.flatnonzero(shares))

    @abstractmethod
    def _checked_target(self, target: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Targets that are of the right kind."""

    def _ordinary(self) -> str:
        return f"{type(self.estimator).__name__} is fitted as it would be alone"

    def _start(self, table: WeighedRows) -> Array:
        """The mixture before anything responds to losses."""
        groups = table.ids.groups
        if self.prior_ is not None:
            return groups.align(self.prior_.weights)
        mass = table.mass
        return np.full(len(groups), 1.0 / len(groups)) if self.weights == "groups" else mass / mass.sum()

    # ------------------------------------------------------------ the worst mixture

    def _respond(self, table: WeighedRows, prior: Array) -> tuple[Array, Array]:
        r"""The mixture that answers what models lose in groups that they have not seen, and what they lose.

        With :math:`f_q` the model fitted to q, :math:`g(q) = \min_f \langle q, \ell(f)\rangle` is concave and has the
        gradient :math:`\ell(f_q)`. A step of :math:`2/(t+2)` towards the best response to that is one of generalised
        conditional gradients on :math:`g(q) - \lambda D(q\|p)`, without a setting of its own. Here it is taken with
        losses of models that lack the group, so it leads to a q that answers what its own models lose elsewhere.
        """
        seed = int(self.random_state)
        few = table.take(draw(table.ids, ROWS, seed))
        masks = folds(few.ids, parts=int(self.folds), seed=seed)
        light, units = _lighter(self.estimator), self._units(few)

        def lost(fold: Fold) -> Array:
            held_out = self._lost(light, few.take(fold.kept), q, few.take(fold.held_out))
            return np.asarray((held_out / units).mean(axis=1))

        q = prior
        for turn in range(int(self.rounds)):
            losses = np.bincount(few.ids.codes, few.shares * cross_fit(lost, masks).by_row()) / few.mass
            _refuse_undefined(losses, table.ids.groups)
            q = q + 2.0 / (turn + 2.0) * (best_response(losses, prior, self.penalty, self.divergence) - q)
        return q, losses

    @abstractmethod
    def _units(self, table: WeighedRows) -> Array:
        """What losses are divided by, one per output."""

    @abstractmethod
    def _lost(self, estimator: Any, kept: WeighedRows, q: Array, held_out: WeighedRows) -> Array:
        """What a model that is fitted to the rows kept, by a mixture of groups, loses in others: rows × outputs."""

    # ------------------------------------------------------------ after the fit

    def sample_weight(self, groups: Any) -> Array:
        """Weights of rows, for fitting something else to the same mixture of groups.

        Parameters
        ----------
        groups : every row's group, training groups all of them. Where some training groups are missing, the others
            keep their proportions.

        Returns
        -------
        One weight per row; they sum to the number of rows.
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
        table = WeighedRows(None, codes, GroupIds(codes, trained), np.ones(len(codes)))
        return table.weights(trained.align(self.group_weights_))

    def predict(self, X: Any) -> Any:  # noqa: N803
        """What the fitted estimator predicts.

        Parameters
        ----------
        X : as the estimator takes it.
        """
        check_is_fitted(self)
        return self.estimator_.predict(X)

    @property
    def n_features_in_(self) -> int:
        """How many columns there were in training."""
        return int(self._inner().n_features_in_)

    @property
    def feature_names_in_(self) -> npt.NDArray[Any]:
        """What they were called."""
        return np.asarray(self._inner().feature_names_in_)

    def _inner(self) -> Any:
        if "estimator_" not in vars(self):
            raise AttributeError(f"{type(self).__name__} is not fitted yet: call fit() first.")
        return self.estimator_

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

    .. math:: \min_f \sum_e \frac{q_e}{n_e} \sum_{i \in e} \ell(f(x_i), y_i)

    with the mixture q by ``weights``. "prior" is the default because it costs one fit, and no other was clearly better:
    on four tables that this was settled on, its error is 0.97 of that by rows for linear models and 1.01 for boosted
    trees; that of "tro" is 0.98 and 1.00 (benchmarks/results/weighted_linear.md and weighted_trees.md).

    Parameters
    ----------
    estimator : any regressor whose ``fit`` takes ``sample_weight``, of scikit-learn or with the same manners (LightGBM,
        XGBoost, CatBoost), or a pipeline that ends in one; transformers get no weights. It is not changed.
    weights : q. "rows": each row counts the same, as without all this. "groups": each group does. "prior": the prior's
        weights. "tro": the best response to what models lose in groups that they have not seen.
    graph, test_groups, prior : p, as in :class:`TRORegressor`: which groups touch, in any form that
        :func:`toporo.graphs.as_graph` takes, or "learn" (where X is all numbers); names of the groups that the model is
        for; "auto", "uniform", a measure, a Prior or {group: weight}. Without a graph the prior is uniform, and "prior"
        the same as "groups".
    penalty : λ of "tro", the price of a mixture away from the prior: with chi2 and 1, a group whose loss is 1 above the
        mean counts twice. 0 is the worst group alone, infinity the prior.
    divergence : D of "tro": "chi2", "kl" or "l2". The first is the default because it takes a group for what its prior
        says; l2 does not, and leaves most of many groups without any weight.
    rounds : how often "tro" responds: each time models are fitted with the weights found so far.
    folds : into how many parts groups are divided, each left out in turn. "tro" costs ``rounds * folds`` fits to at
        most 500 rows of a group, with a quarter of the trees where there are any, beside the one fit to all rows.
    random_state : a number; which groups are left out together depends on it.

    Attributes
    ----------
    estimator_ : the estimator, fitted to all rows with :meth:`sample_weight` as weights.
    group_weights_ : q, by group.
    rows_in_effect_ : Kish's count: how many rows, weighed alike, would say as much. None in models of older files.
    prior_ : p, of "prior" and "tro"; else, and for a single group, None. An automatic one, and "tro" with it, gives no
        group more than its rows can bear (:func:`toporo.topology.effect.most_weight`).
    losses_ : of "tro", by group: the squared error of models that have not seen it, over the target's variance, so a
        model that knows only the mean has a loss of 1; else None.
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

    def _units(self, table: WeighedRows) -> Array:
        return Scaling.of(_columns(table.y), table.shares, center=True, what="y").scale ** 2

    def _lost(self, estimator: Any, kept: WeighedRows, q: Array, held_out: WeighedRows) -> Array:
        values = _fitted(estimator, kept, q).predict(held_out.x)
        return (_columns(values) - _columns(held_out.y)) ** 2


class RobustClassifier(ClassifierMixin, RobustEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Any classifier that takes ``sample_weight``, fitted to a mixture of groups that is made for test groups.

    The same as :class:`RobustRegressor` but for the loss of "tro": the log loss, with probabilities of at least 0.001,
    or of a classifier without probabilities the share of wrong answers.

    Parameters
    ----------
    estimator : any classifier whose ``fit`` takes ``sample_weight``, or a pipeline that ends in one. It is not changed.
    weights, graph, test_groups, prior, penalty, divergence, rounds, folds, random_state : see
        :class:`RobustRegressor`.

    Attributes
    ----------
    classes_ : the classes, sorted.
    estimator_, group_weights_, rows_in_effect_, prior_, losses_, topology_, test_groups_, n_features_in_,
    feature_names_in_ : see :class:`RobustRegressor`.

    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> x, state = np.array([[-2.0], [-1.0], [1.0], [2.0]] * 3), np.repeat(["NY", "PA", "OH"], 4)
    >>> model = RobustClassifier(LogisticRegression(), weights="groups").fit(x, x[:, 0] > 0, groups=state)
    >>> model.predict([[1.5]]).tolist(), round(model.group_weights_["OH"], 3)
    ([True], 0.333)
    """

    _classes = True

    def _checked_target(self, target: npt.NDArray[Any]) -> npt.NDArray[Any]:
        check_classes(target, "RobustRegressor")
        return target

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes, sorted."""
        return np.asarray(self._inner().classes_)

    def _units(self, table: WeighedRows) -> Array:  # noqa: ARG002  # a log loss has none
        return np.ones(1)

    def _lost(self, estimator: Any, kept: WeighedRows, q: Array, held_out: WeighedRows) -> Array:
        present = np.unique(kept.y)
        if len(present) == 1:  # a model that has met one class knows no other
            return _log_loss((held_out.y == present[0])[:, None].astype(np.float64))
        model = _fitted(estimator, kept, q)
        if not hasattr(model, "predict_proba"):
            return np.asarray(model.predict(held_out.x) != held_out.y, np.float64)[:, None]
        own = held_out.y[:, None] == model.classes_
        return _log_loss(np.where(own, model.predict_proba(held_out.x), 0.0).sum(axis=1, keepdims=True))

    @available_if(_has("predict_proba"))  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """The fitted estimator's probabilities of the classes, in the order of ``classes_``.

        Parameters
        ----------
        X : as the estimator takes it.
        """
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @available_if(_has("decision_function"))  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def decision_function(self, X: Any) -> Any:  # noqa: N803
        """The fitted estimator's scores.

        Parameters
        ----------
        X : as the estimator takes it.
        """
        check_is_fitted(self)
        return self.estimator_.decision_function(X)


# ---------------------------------------------------------------- the estimator inside


def _refuse_undefined(losses: Array, groups: Groups) -> None:
    lost = [name for name, loss in zip(groups, losses, strict=True) if not np.isfinite(loss)]
    if lost:
        raise DataError(
            f"the estimator, fitted without them, predicts NaN or infinity in {len(lost)} group(s): {listed(lost)}. "
            "Mend the estimator, or use weights that need no losses ('rows', 'groups' or 'prior')."
        )


def _columns(values: Any) -> Array:
    return np.asarray(values, np.float64).reshape(len(values), -1)


def _log_loss(chances: Array) -> Array:
    return -np.log(np.clip(chances, LEAST, 1.0))


def weight_name(estimator: Any) -> str:
    """The parameter of fit that takes weights of rows: of a pipeline, that of its last step."""
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
    named : what else its ``fit`` takes.
    """
    if weights is None:
        return estimator.fit(x, y, **named)
    # Without metadata routing, a pipeline takes weights by the name of its last step.
    no_routing = config_context(enable_metadata_routing=False) if isinstance(estimator, Pipeline) else nullcontext()
    with no_routing:
        return estimator.fit(x, y, **{weight_name(estimator): weights}, **named)


def _fitted(estimator: Any, table: WeighedRows, q: Array) -> Any:
    """A copy of the estimator, fitted to a mixture of groups."""
    weights = table.weights(q)
    return fit_weighted(clone(estimator), table.x, table.y, None if (weights == 1.0).all() else weights)


def _lighter(estimator: Any) -> Any:
    """The estimator with fewer trees, if it is an ensemble of them."""
    light = clone(estimator)
    last, path = light, ""
    while isinstance(last, Pipeline):
        name, last = last.steps[-1]
        path += f"{name}__"
    fewer = {"n_estimators": TREES, "iterations": TREES}
    if isinstance(last, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
        fewer = {"max_iter": TREES, "max_bins": BINS}
    given = last.get_params(deep=False)
    for setting, share in fewer.items():
        if isinstance(given.get(setting), int):
            light.set_params(**{path + setting: max(min(given[setting], FEWEST), round(share * given[setting]))})
    return light
