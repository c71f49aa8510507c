"""What the estimators share: from rows, groups and settings to a fitted model, group by group."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from toporo.choice.penalty import PenaltyChoice, PenaltyScore, PriorMaker
from toporo.errors import SettingError, warn
from toporo.estimators import linear
from toporo.estimators.explain import GroupRow, GroupTable
from toporo.estimators.rows import (
    EVERYONE,
    Rows,
    Scaling,
    check_classes,
    counted,
    encode_classes,
    group_ids,
    learn_graph_of,
    left_in_effect,
    one_group,
)
from toporo.estimators.settings import Settings, check_settings
from toporo.estimators.summary import PassedRows, Summary
from toporo.graphs import as_graph, check_groups
from toporo.groups import GroupIds, Groups
from toporo.robust.factors import GroupFactors
from toporo.robust.linear import RobustFit
from toporo.text import printable
from toporo.topology.draw import TRAIN_COLOR
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array, Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inputs of these types are taken as they are, without a copy.
DTYPES = [np.float64, np.float32]
#: The longest name in a picture.
LABEL = 40
#: How groups reach an estimator that others call.
HOW = (
    "In a Pipeline: <step>__groups=. In GridSearchCV or cross_validate: groups=, after "
    "sklearn.set_config(enable_metadata_routing=True)."
)


def torch_part() -> ModuleType:
    """What trains, applies and restores networks."""
    from toporo.estimators import nets  # a linear model needs no torch, which takes seconds to load

    return nets


def ids_or_one(model: Any, groups: Any, rows: int, ordinary: str) -> GroupIds:
    """Every row's group; without any, one for all of them, with a warning.

    Parameters
    ----------
    model : an estimator; settings of it that speak of groups are an error where there are none.
    groups : as ``fit`` got them.
    rows : how many there are.
    ordinary : what becomes of a fit to a single group.
    """
    if groups is not None:
        return group_ids(groups, rows)
    named = [name for name in ("graph", "test_groups") if getattr(model, name) is not None]
    named += [] if isinstance(model.prior, str) else ["prior"]
    if named:
        raise SettingError(
            f"{' and '.join(named)} speak of groups, but fit() got none: call fit(X, y, groups=...), with one name "
            f"per row. {HOW}"
        )
    warn(f"fit() got no groups, so all rows are one and {ordinary}. Pass groups=, one name per row. {HOW}")
    return one_group(EVERYONE, rows)


def graph_and_test(
    model: Any, groups: Groups, learn: Callable[[], GroupGraph]
) -> tuple[GroupGraph | None, tuple[Name, ...] | None]:
    """An estimator's graph and the test groups in it, both None where there is no graph.

    Parameters
    ----------
    model : an estimator with the settings ``graph`` and ``test_groups``.
    groups : of the training rows.
    learn : makes the graph where ``graph="learn"``.
    """
    if model.graph is None:
        if model.test_groups is not None:
            raise SettingError("test_groups are places in a graph, and there is none: pass graph= too.")
        return None, None
    if isinstance(model.graph, str) and model.graph == "learn":
        if model.test_groups is not None:
            raise SettingError(
                "graph='learn' learns from the training rows alone, in which there are no test groups. Learn it "
                "beforehand from the rows of all groups with toporo.learn_topology(X, groups, test_groups=...) and "
                "pass it as graph=."
            )
        return (None if len(groups) == 1 else learn()), None
    graph = as_graph(model.graph)
    return graph, check_groups(graph, groups, model.test_groups)


class GroupEstimator(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """Fitting, explaining and drawing; what differs between classes and numbers is in the two parts below.

    A subclass with a constructor of its own fixes the settings that it does not offer in its body.
    """

    n_features_in_: int
    group_weights_: dict[Name, float]
    group_losses_: dict[Name, float]
    group_sizes_: dict[Name, int]
    rows_in_effect_: float
    ridge_: float
    centrality_: dict[Name, float] | None
    hops_: dict[Name, float] | None
    prior_: Prior | None
    topology_: GroupGraph | None
    test_groups_: tuple[Name, ...] | None
    history_: list[Any]
    penalty_: float | None
    penalty_scores_: tuple[PenaltyScore, ...] | None
    choice_: PenaltyChoice | None
    fit_: RobustFit | None
    net_: Any
    scaling_: Scaling
    target_scaling_: Scaling | None

    #: How a network's weights move: ``"tro"`` or ``"group-dro"``.
    _robust: ClassVar[str] = "tro"
    #: Whether the target is a class.
    _classes: ClassVar[bool]

    # Without groups the model is an ordinary regression, so metadata routing asks for them.
    __metadata_request__fit = {"groups": True}  # noqa: RUF012  # scikit-learn's own name and type

    def __init__(
        self,
        *,
        graph: Any = None,
        test_groups: Any = None,
        model: Any = "linear",
        penalty: float | str = "auto",
        radius: float | None = None,
        divergence: str = "l2",
        prior: Any = "auto",
        normalization: str | None = None,
        temperature: float = 1.0,
        ridge: float | str = "auto",
        fit_intercept: bool = True,
        standardize: bool = True,
        tol: float = 1e-6,
        hidden: Sequence[int] = (64, 64),
        epochs: int = 100,
        per_group: int = 32,
        learning_rate: float = 1e-3,
        step: float = 0.1,
        random_state: Any = 0,
        device: Any = "cpu",
    ) -> None:
        self.graph = graph
        self.test_groups = test_groups
        self.model = model
        self.penalty = penalty
        self.radius = radius
        self.divergence = divergence
        self.prior = prior
        self.normalization = normalization
        self.temperature = temperature
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.tol = tol
        self.hidden = hidden
        self.epochs = epochs
        self.per_group = per_group
        self.learning_rate = learning_rate
        self.step = step
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fit the model.

        Parameters
        ----------
        X : rows × features: an array, or a pandas or polars frame. It is not changed.
        y : targets, one per row; a regression may have several columns.
        groups : every row's group: any hashable names in a list, an array, a Series, or
            :class:`~toporo.GroupIds`. Without them all rows are one group and the fit is an ordinary regression.
        sample_weight : how much a row counts within its group, by default all alike; how much the group counts is up to
            the method. Where prior and ridge are given a weight of 2 is a row twice; automatic ones go by rows in
            effect, which are then fewer.

        Returns
        -------
        The estimator itself, fitted.
        """
        settings = check_settings(self, classes=self._classes)
        x, target = self._validated(X, y)
        ids = self._ids(groups, len(x))
        x, target, ids, weights = counted(x, target, ids, sample_weight)
        target, classes = self._encoded(target)
        rows = Rows.prepare(
            x, target, ids, weights, classes=classes, standardize=settings.standardize, center=settings.fit_intercept
        )
        self._fit_rows(rows, settings, named=groups is not None)
        return self

    def _fit_rows(self, rows: linear.AnyRows, settings: Settings, *, named: bool = True) -> None:
        """Fit to rows that were measured; ``named`` says whether somebody named their groups."""
        graph, test = self._topology(rows, settings)
        own = rows.in_effect
        maker = PriorMaker(
            self.prior, graph, test is not None, self.normalization, settings.temperature, own, self.n_features_in_
        )
        alone = len(rows.groups) == 1
        prior = None if alone else maker.prior(rows.groups, test)
        self._remember(rows, maker, prior, test)
        if prior is not None and prior.fallback_reason:
            maker = replace(maker, doubted=True)
        if alone and named:
            warn(f"all {rows.count} rows are of one group, {rows.groups.names[0]!r}: {self._ordinary()}.")
        if settings.network and isinstance(rows, Rows):
            self._fit_network(rows, prior, settings)
        else:
            self._fit_linear(rows, maker, prior, settings)
        self.rows_in_effect_ = left_in_effect(self.group_weights_, rows.sizes, own, self.n_features_in_)

    # ------------------------------------------------------------ before the fit

    @abstractmethod
    def _validated(self, X: Any, y: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:  # noqa: N803
        """Rows and targets as arrays that scikit-learn has checked."""

    @abstractmethod
    def _encoded(self, target: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], int | None]:
        """Targets as numbers, and how many classes there are; None for a regression."""

    def _ordinary(self) -> str:
        return f"the fit is an ordinary {'logistic' if self._classes else 'ridge'} regression, without a worst case"

    def _ids(self, groups: Any, rows: int) -> GroupIds:
        return ids_or_one(self, groups, rows, self._ordinary())

    def _topology(self, rows: linear.AnyRows, settings: Settings) -> tuple[GroupGraph | None, tuple[Name, ...] | None]:
        def learn() -> GroupGraph:
            if isinstance(rows, Rows):
                return learn_graph_of(rows.x, rows.ids, scaling=rows.inputs, seed=settings.seed)
            raise SettingError("a graph is learned from rows, and there are only their moments: learn it beforehand.")

        return graph_and_test(self, rows.groups, learn)

    def _remember(
        self, rows: linear.AnyRows, maker: PriorMaker, prior: Prior | None, test: tuple[Name, ...] | None
    ) -> None:
        """What of the groups is known before the fit."""
        self.topology_, self.test_groups_, self.prior_ = maker.graph, test, prior
        self.group_sizes_ = rows.sizes
        self.centrality_ = maker.centrality(rows.groups, test, prior)
        self.hops_ = None
        if maker.graph is not None and test is not None:
            hops = maker.graph.hops(test)
            self.hops_ = {name: hops[name] for name in rows.groups}
        self.scaling_, self.target_scaling_ = rows.inputs, rows.targets

    # ------------------------------------------------------------ the fit

    def _fit_linear(self, rows: linear.AnyRows, maker: PriorMaker, prior: Prior | None, settings: Settings) -> None:
        labels = getattr(self, "classes_", np.empty(0)).tolist()
        model = linear.fit(rows, prior, maker, self.test_groups_, settings, labels=labels)
        self._set_coefficients(np.ascontiguousarray(model.coef.T), model.intercept)
        self.group_weights_ = dict(model.solved.weights)
        if not isinstance(rows, PassedRows) and rows.classes is None:
            self.group_losses_ = rows.losses_of(model.coef, model.intercept)
        else:
            self.group_losses_ = dict(model.solved.losses)
        self.penalty_, self.choice_, self.fit_ = model.solved.penalty, model.choice, model.solved
        self.ridge_ = model.solved.ridge
        self.penalty_scores_ = None if model.choice is None else model.choice.scores
        self.history_, self.net_ = [model.record], None

    def _fit_network(self, rows: Rows, prior: Prior | None, settings: Settings) -> None:
        penalty: Any = math.inf if prior is None else None if settings.radius is not None else settings.penalty
        rows.warn_of_one_class(penalty)
        model = torch_part().fit(rows, prior, settings, model=self.model, robust=self._robust, device=self.device)
        self.net_, self.history_, self.group_weights_ = model.net, model.history, model.weights
        self.penalty_, self.penalty_scores_, self.choice_, self.fit_ = penalty, None, None, None
        self.ridge_ = settings.ridge or 0.0
        self.group_losses_ = rows.losses(self._network_scores(rows.x))

    def _set_coefficients(self, coef: Array, intercept: Array) -> None:
        """In scikit-learn's shapes, from outputs × features and outputs."""
        self.coef_, self.intercept_ = coef, intercept

    # ------------------------------------------------------------ after the fit

    def _scores(self, X: Any) -> Array:  # noqa: N803
        """Rows × outputs: predicted values, log-odds of the second of two classes, or one score per class."""
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=DTYPES)
        if self.net_ is not None:
            return self._network_scores(x)
        # Unlike a product of matrices, this gives a row the same bits beside any other rows.
        scores: Array = np.einsum("ij,kj->ik", x, np.atleast_2d(self.coef_)) + np.atleast_1d(self.intercept_)
        return scores

    def _network_scores(self, x: npt.NDArray[Any]) -> Array:
        scores: Array = torch_part().apply_net(self.net_, x, self.scaling_, self.device)
        if self.target_scaling_ is not None:
            return scores * self.target_scaling_.scale + self.target_scaling_.center
        return scores[:, 1:] - scores[:, :1] if scores.shape[1] == 2 else scores

    def explain(self) -> GroupTable:
        """A table of the training groups, the heaviest weight first.

        Returns
        -------
        By group its rows, loss, centrality, prior, weight and hops to the nearest test group
        (:class:`~toporo.estimators.explain.GroupTable`): print it, or use its ``to_pandas()``, ``to_csv()``, ….
        """
        check_is_fitted(self)
        groups = Groups(self.group_sizes_)
        prior: Mapping[Name, float] = self.prior_.weights if self.prior_ is not None else dict.fromkeys(groups, 1.0)
        table = [
            GroupRow(
                group=name,
                size=self.group_sizes_[name],
                loss=self.group_losses_[name],
                centrality=None if self.centrality_ is None else self.centrality_[name],
                prior=prior[name],
                weight=self.group_weights_[name],
                hops=None if self.hops_ is None else self.hops_[name],
            )
            for name in groups
        ]
        return GroupTable.of(table, self.rows_in_effect_, 0.0 if self.prior_ is None else self.prior_.capped_mass)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the graph with the groups' weights as sizes, or without a graph the weights as bars.

        Parameters
        ----------
        ax : the matplotlib axes to draw on; by default new ones.
        """
        import matplotlib as mpl

        check_is_fitted(self)
        with mpl.rc_context({"text.parse_math": False}):  # a dollar in a name is one
            if self.topology_ is None:
                return plot_bars(ax, {row.group: row.weight for row in self.explain()}, "weight in the worst case")
            return self.topology_.plot(
                ax, train=list(self.group_sizes_), test=self.test_groups_, sizes=self.group_weights_
            )


def plot_bars(ax: Axes | None, values: Mapping[Name, float], label: str) -> Axes:
    """Groups as bars, in the order given.

    Parameters
    ----------
    ax : the matplotlib axes to draw on; by default new ones.
    values : by group.
    label : what they are.
    """
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(6, max(2.0, 0.8 + 0.22 * len(values))), layout="constrained")
    places = range(len(values))
    ax.barh(places, list(values.values()), color=TRAIN_COLOR)
    names = [printable(str(name), keep="") for name in values]
    ax.set_yticks(places, [name if len(name) <= LABEL else f"{name[:LABEL]}…" for name in names])
    ax.invert_yaxis()
    ax.set_xlabel(label)
    return ax


class ClassifierPart(GroupEstimator):
    """Targets that are classes."""

    classes_: npt.NDArray[Any]
    coef_: Array
    intercept_: Array
    _classes = True

    def _validated(self, X: Any, y: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:  # noqa: N803
        x, target = validate_data(self, X, y, dtype=DTYPES)
        check_classes(target, type(self).__name__.replace("Classifier", "Regressor"))
        return x, target

    def _encoded(self, target: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], int | None]:
        self.classes_, codes = encode_classes(target)
        return codes, len(self.classes_)

    def fit_passes(
        self, moments: GroupFactors, some: tuple[Any, Any, GroupIds, Array | None], low: Array, high: Array, passes: Any
    ) -> Self:
        """Fit a logistic model to rows that are not at hand but can be looked at in passes.

        Parameters
        ----------
        moments : of the inputs, by group: of all rows.
        some : inputs, classes, groups and weights of rows drawn from them, some of every group and class.
        low, high : the least and the largest value of each input.
        passes : makes :class:`~toporo.robust.LogisticLosses` for a scaling, with an intercept or without.

        Returns
        -------
        The estimator itself, fitted; the same as :meth:`fit` makes it from all rows but for the solver's tolerance, and
        for a penalty that was chosen on other rows.
        """
        settings = check_settings(self, classes=True)
        self.n_features_in_ = len(low)
        x, target, ids, weights = counted(*some)
        codes, classes = self._encoded(target)
        center = settings.fit_intercept
        inputs = Scaling.none(len(low))
        if settings.standardize:
            mean, variance = moments.mean, moments.variance
            middle, square = (mean, variance) if center else (np.zeros(len(low)), variance + mean**2)
            inputs = Scaling.known(middle, np.sqrt(square), low, high, what="X")
        rows = Rows(x, codes, ids, weights, inputs, None, classes)
        labels = tuple(self.classes_.tolist())
        self._fit_rows(PassedRows(moments, rows, inputs, labels, passes), settings)
        return self

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """Scores: the log-odds of the second class where there are two, one per class where there are more.

        Parameters
        ----------
        X : rows × features, as in :meth:`fit`.
        """
        scores = self._scores(X)
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """The probability of every class, in the order of ``classes_``.

        Parameters
        ----------
        X : rows × features, as in :meth:`fit`.
        """
        scores = self._scores(X)
        if scores.shape[1] == 1:
            scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances: Array = raised / raised.sum(axis=1, keepdims=True)
        return chances

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        """The likeliest class of every row.

        Parameters
        ----------
        X : rows × features, as in :meth:`fit`.
        """
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[chosen])


class RegressorPart(GroupEstimator):
    """Targets that are numbers, in one column or several."""

    coef_: Array
    intercept_: Any
    _classes = False
    _one_column: bool

    def _validated(self, X: Any, y: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:  # noqa: N803
        x, target = validate_data(self, X, y, dtype=DTYPES, multi_output=True, y_numeric=True)
        self._one_column = target.ndim == 1
        return x, np.asarray(target, dtype=np.float64).reshape(len(x), -1)

    def _encoded(self, target: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], int | None]:
        return target, None

    def fit_moments(self, moments: GroupFactors, low: Array, high: Array) -> Self:
        """Fit a linear model to rows of which only the moments are at hand: to all of a table larger than memory, say.

        Parameters
        ----------
        moments : of inputs and, in the last column, the target, by group; means and scatter decide the model.
        low, high : the least and the largest value of each of these columns.

        Returns
        -------
        The estimator itself, fitted; the same as :meth:`fit` makes it from the rows, but for rounding.
        """
        settings = check_settings(self, classes=False)
        if settings.network:
            raise SettingError("a network is trained on rows, not on their moments: use fit, or model='linear'.")
        self.n_features_in_, self._one_column = len(low) - 1, True
        summary = Summary.of(moments, low, high, standardize=settings.standardize, center=settings.fit_intercept)
        self._fit_rows(summary, settings)
        return self

    def _set_coefficients(self, coef: Array, intercept: Array) -> None:
        if self._one_column:
            self.coef_, self.intercept_ = coef[0], float(intercept[0])
        else:
            self.coef_, self.intercept_ = coef, intercept

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Predicted values, in the units and columns of y.

        Parameters
        ----------
        X : rows × features, as in :meth:`fit`.
        """
        scores = self._scores(X)
        return np.asarray(scores[:, 0] if self._one_column else scores)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
