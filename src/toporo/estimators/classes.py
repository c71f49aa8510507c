r"""Linear models and networks under the worst mixture of groups near a prior.

.. math:: \min_\theta \max_{q \in \Delta} \sum_e q_e \ell_e(\theta) + \rho\|\theta\|^2 - \lambda D(q\|p)

with :math:`\ell_e` a training group's mean loss, p a prior over the training groups that comes from a graph of groups,
and q the worst mixture of groups near it. A linear model is solved exactly; a network is trained.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from toporo.choice.penalty import PenaltyChoice, PenaltyScore
from toporo.estimators import linear
from toporo.estimators.base import GroupPrior, WeighedGroups, adopt, plot_bars, training_groups
from toporo.estimators.explain import GroupTable
from toporo.estimators.models import Fit, LinearModel, Model
from toporo.estimators.rows import Rows, Scaling, check_classes, counted, encode_classes
from toporo.estimators.settings import Settings
from toporo.estimators.training_rows import TrainingRows
from toporo.groups import GroupIds
from toporo.robust.factors import GroupFactors
from toporo.robust.logistic import LogisticLosses
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array, Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inputs of these types are taken as they are, without a copy.
DTYPES = [np.float64, np.float32]


class TROEstimator(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """Fit, explanation and picture; the kinds of targets differ below.

    A subclass with a constructor of its own fixes the settings that it does not offer in its body.
    """

    n_features_in_: int
    group_weights_: dict[Name, float]
    group_losses_: dict[Name, float]
    group_sizes_: dict[Name, int]
    rows_in_effect_: float
    ridge_: float
    prior_: Prior | None
    topology_: GroupGraph | None
    test_groups_: tuple[Name, ...] | None
    penalty_: float | None
    penalty_scores_: tuple[PenaltyScore, ...] | None
    choice_: PenaltyChoice | None
    history_: tuple[Any, ...]
    scaling_: Scaling
    model_: Model

    #: Whether the target is a class, and whether a network's weights move as in group DRO.
    _classes: ClassVar[bool]
    _group_dro: ClassVar[bool] = False

    # Without groups the model is an ordinary regression, so metadata routing asks for them.
    __metadata_request__fit = {"groups": True}  # noqa: RUF012  # scikit-learn's own name and type

    def __init__(
        self,
        *,
        graph: Any = None,
        test_groups: Any = None,
        model: Any = "linear",
        penalty: Any = "auto",
        prior: Any = "auto",
        divergence: str = "l2",
        ridge: float | str = "auto",
        random_state: Any = 0,
    ) -> None:
        self.graph = graph
        self.test_groups = test_groups
        self.model = model
        self.penalty = penalty
        self.prior = prior
        self.divergence = divergence
        self.ridge = ridge
        self.random_state = random_state

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
        settings = Settings.of(self, classes=self._classes)
        x, target = self._validated(X, y)
        kind = "logistic" if self._classes else "ridge"
        ordinary = f"the fit is an ordinary {kind} regression, without a worst case"
        ids = training_groups(self, groups, len(x), ordinary)
        x, target, ids, weights = counted(x, target, ids, sample_weight)
        target, labels = self._encoded(target)
        return self._fit(TrainingRows.of(Rows(x, target, ids, weights), labels), settings)

    def _fit(self, rows: TrainingRows, settings: Settings) -> Self:
        known = GroupPrior.of(self, rows.groups, rows.in_effect, rows.width)
        if settings.network is None:
            found, weights = linear.fit(rows, known, settings)
        else:
            from toporo.estimators import nets  # a linear model needs no torch, which takes seconds to load

            found, weights = nets.fit(rows, known.prior, settings, settings.network, group_dro=self._group_dro)
        self._settings = settings
        return self._adopt(known.weighed(weights, rows.sizes), found)

    def _adopt(self, groups: WeighedGroups, found: Fit) -> Self:
        """Take over what was fitted, now or before it was stored."""
        self._groups, self._found = groups, found
        adopt(self, groups)
        adopt(self, found)
        self.penalty_scores_ = None if self.choice_ is None else self.choice_.scores
        if isinstance(self.model_, LinearModel):
            self._set_coefficients(self.model_)
        return self

    @abstractmethod
    def _validated(self, X: Any, y: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:  # noqa: N803
        """Return rows and targets as arrays that scikit-learn has checked."""

    @abstractmethod
    def _encoded(self, target: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], tuple[Any, ...] | None]:
        """Return targets as numbers, and the classes; None for a regression."""

    @abstractmethod
    def _set_coefficients(self, model: LinearModel) -> None:
        """Set coefficients and intercepts in scikit-learn's shapes."""

    def _scores(self, X: Any) -> Array:  # noqa: N803
        """Return predicted values, log-odds of the second of two classes, or one score per class: rows × outputs."""
        check_is_fitted(self)
        return self.model_(validate_data(self, X, reset=False, dtype=DTYPES))

    def explain(self) -> GroupTable:
        """Return a table of the training groups, the heaviest weight first."""
        check_is_fitted(self)
        return self._groups.table(self.group_losses_)

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


class TRORegressor(RegressorMixin, TROEstimator):  # type: ignore[misc]  # scikit-learn has no types
    r"""Topology-aware robust regression: least squares solved exactly, or a network.

    .. math:: \min_\theta \max_{q \in \Delta} \sum_e q_e \ell_e(\theta) + \rho\|\theta\|^2 - \lambda D(q\|p)

    Inputs and targets are scaled by their means and standard deviations first, so penalty and ridge mean the same in
    any unit: a loss of 1 is that of a model that knows only the mean. y may have several columns.

    Parameters
    ----------
    graph : which groups touch, in any form that :func:`toporo.graphs.as_graph` takes (a GroupGraph, edges, a data
        frame, a path, …), over all training groups at least.
    test_groups : names in the graph of the groups that the model is for, none of them in the data. The prior then
        looks from them, also where a search by others (GridSearchCV) holds training groups out; ``penalty="auto"``
        looks from the groups held out instead.
    model : ``"linear"``, or a :class:`toporo.Net`.
    penalty : λ, the price of a mixture of groups away from the prior: 0 is the worst group alone, infinity the prior's
        own mixture. ``"auto"`` chooses among ten by holding regions of training groups out; for fewer than four
        groups, or a network, it is 1. A :class:`toporo.Radius` bounds D(q‖p) instead.
    prior : p: ``"auto"``, ``"uniform"``, a measure (``"harmonic"``, ``"betweenness"``, ``"degree"``,
        ``"closeness"``), a toporo.Prior or {group: weight}. Automatic is harmonic from the test groups, betweenness
        where there is only a graph, in both cases half of it spread evenly over all groups; else uniform. With it no
        row has more than 1 / (10 (d + 1)) of all weight, for d columns (or twice its share, if that is more), in the
        prior and, with l2 and a penalty above 0, in the worst case: so 10 rows per column are in effect. A prior that
        is named is left as it is; for a softmax of a measure pass ``graph.prior(...)``.
    divergence : D: ``"l2"``, ``"kl"`` or ``"chi2"``.
    ridge : ρ, which shrinks the coefficients, but not the intercept (of a network, all parameters). May be 0 if the
        features determine a linear model without it. ``"auto"`` is 0.1 d / n for d columns and n rows in effect, and
        at least 0.001: that of a network, and of a single group.
    random_state : decides a network's start and batches, and a sample of many rows of classes.

    Attributes
    ----------
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.
    coef_, intercept_ : of a linear model, in the units of X and y.
    group_weights_, group_losses_, group_sizes_ : by group: its weight in the worst case, the mean squared error over
        rows and columns in the units of y, its rows.
    rows_in_effect_, ridge_ : Kish's count by the weights in the worst case: how many rows, weighed alike, would say as
        much; and the ridge in use. A warning says where there are fewer than ten rows in effect per column.
    prior_, topology_, test_groups_ : prior (None for a single group), graph and test groups, or None.
    penalty_, choice_ : the penalty in use (for a radius the multiplier; infinity for a single group), and how "auto"
        came to it.
    history_ : one record per epoch, or of a linear model its solution (:class:`toporo.robust.linear.RobustFit`) in
        standardised units; empty for a model that was read.
    model_ : the fitted model, a function of rows.

    >>> rng = np.random.default_rng(0)
    >>> x, state = rng.normal(size=(300, 2)), np.repeat(["NY", "PA", "OH"], 100)
    >>> y = 10 * (x @ [1.0, 2.0] + (state == "OH") * x[:, 0])
    >>> model = TRORegressor(penalty=0.1).fit(x, y, groups=state)
    >>> max(model.group_weights_, key=model.group_weights_.get), model.coef_.shape
    ('OH', (2,))
    """

    coef_: Array
    intercept_: Any
    _classes = False
    _one_column: bool

    def _validated(self, X: Any, y: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:  # noqa: N803
        x, target = validate_data(self, X, y, dtype=DTYPES, multi_output=True, y_numeric=True)
        self._one_column = target.ndim == 1
        return x, np.asarray(target, dtype=np.float64).reshape(len(x), -1)

    def _encoded(self, target: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], tuple[Any, ...] | None]:
        return target, None

    def fit_moments(self, moments: GroupFactors, low: Array, high: Array) -> Self:
        """Fit a linear model to sums over rows: to all rows of a table larger than memory, say.

        Parameters
        ----------
        moments : of inputs and, in the last column, the target, by group.
        low, high : the least and the largest value of each of these columns.

        Returns
        -------
        The estimator itself, fitted; the same as :meth:`fit` makes it from the rows, but for rounding.
        """
        settings = Settings.of(self, classes=False)
        self.n_features_in_, self._one_column = moments.width, True
        return self._fit(TrainingRows.of_moments(moments, low, high), settings)

    def _set_coefficients(self, model: LinearModel) -> None:
        one = self._one_column
        self.coef_ = model.coef[0] if one else model.coef
        self.intercept_ = float(model.intercept[0]) if one else model.intercept

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Predict values, in the units and columns of y.

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


class TROClassifier(ClassifierMixin, TROEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Topology-aware robust classification: logistic regression solved exactly, or a network.

    The same as :class:`TRORegressor` for classes: losses are log losses, and the ridge of a linear model is positive.

    Parameters
    ----------
    graph, test_groups, model, penalty, prior, divergence, ridge, random_state : see :class:`TRORegressor`.

    Attributes
    ----------
    classes_ : the classes, sorted.
    n_features_in_, feature_names_in_, coef_, intercept_, group_weights_, group_losses_, group_sizes_, rows_in_effect_,
    ridge_, prior_, topology_, test_groups_, penalty_, choice_, history_, model_ : see :class:`TRORegressor`.

    >>> rng = np.random.default_rng(0)
    >>> x, state = rng.normal(size=(300, 2)), np.repeat(["NY", "PA", "OH"], 100)
    >>> y = x[:, 0] + (state == "OH") * x[:, 1] > 0
    >>> borders = [("NY", "PA"), ("PA", "OH"), ("OH", "IN")]
    >>> model = TROClassifier(graph=borders, test_groups=["IN"]).fit(x, y, groups=state)
    >>> model.explain()[0].group, model.explain()[0].hops
    ('OH', 1)
    """

    classes_: npt.NDArray[Any]
    coef_: Array
    intercept_: Array
    _classes = True

    def _validated(self, X: Any, y: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:  # noqa: N803
        x, target = validate_data(self, X, y, dtype=DTYPES)
        check_classes(target, type(self).__name__.replace("Classifier", "Regressor"))
        return x, target

    def _encoded(self, target: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], tuple[Any, ...] | None]:
        self.classes_, codes = encode_classes(target)
        return codes, tuple(self.classes_.tolist())

    def fit_passes(
        self,
        moments: GroupFactors,
        some: tuple[Any, Any, GroupIds, Array | None],
        low: Array,
        high: Array,
        passes: Callable[[Scaling], LogisticLosses],
    ) -> Self:
        """Fit a logistic model in passes over rows that are not in memory.

        Parameters
        ----------
        moments : of the inputs, by group: of all rows.
        some : inputs, classes, groups and weights of rows drawn from them, some of every group and class.
        low, high : the least and the largest value of each input.
        passes : makes :class:`~toporo.robust.LogisticLosses` for a scaling of the inputs.

        Returns
        -------
        The estimator itself, fitted; the same as :meth:`fit` makes it from all rows but for the solver's tolerance, and
        for a penalty that was chosen on other rows.
        """
        settings = Settings.of(self, classes=True)
        self.n_features_in_ = moments.width
        x, target, ids, weights = counted(*some)
        codes, labels = self._encoded(target)
        sums, sample = TrainingRows.of_moments(moments, low, high), Rows(x, codes, ids, weights)
        return self._fit(TrainingRows.of_passes(sums, sample, labels or (), passes), settings)

    def _set_coefficients(self, model: LinearModel) -> None:
        self.coef_, self.intercept_ = model.coef, model.intercept

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """Return scores: the log-odds of the second class where there are two, one per class where there are more.

        Parameters
        ----------
        X : rows × features, as in :meth:`fit`.
        """
        scores = self._scores(X)
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Predict the probability of every class, in the order of ``classes_``.

        Parameters
        ----------
        X : rows × features, as in :meth:`fit`.
        """
        scores = self._scores(X)
        if scores.shape[1] == 1:
            scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        """Predict the likeliest class of every row.

        Parameters
        ----------
        X : rows × features, as in :meth:`fit`.
        """
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[chosen])


class _GroupDRO(TROEstimator):
    """Settings of the estimators for the worst group alone."""

    graph = None
    test_groups = None
    penalty = 0.0
    prior = "uniform"
    divergence = "l2"
    _group_dro = True

    def __init__(self, *, model: Any = "linear", ridge: float | str = "auto", random_state: Any = 0) -> None:
        self.model = model
        self.ridge = ridge
        self.random_state = random_state


class GroupDRORegressor(_GroupDRO, TRORegressor):
    """The best regression for the worst training group: :class:`TRORegressor` with a penalty of 0 and no topology.

    A network is trained by the exponentiated gradient of Sagawa et al. (2020) with the ``step`` of its
    :class:`toporo.Net`.

    Parameters
    ----------
    model, ridge, random_state : see :class:`TRORegressor`.

    >>> rng = np.random.default_rng(0)
    >>> x, state = rng.normal(size=(90, 1)), np.repeat(["NY", "PA", "OH"], 30)
    >>> model = GroupDRORegressor().fit(x, x[:, 0] + (state == "OH") * rng.normal(size=90), groups=state)
    >>> max(model.group_weights_, key=model.group_weights_.get)  # the noisy one
    'OH'
    """


class GroupDROClassifier(_GroupDRO, TROClassifier):
    """The best classifier for the worst training group: :class:`TROClassifier` with a penalty of 0 and no topology.

    A network is trained by the exponentiated gradient of Sagawa et al. (2020) with the ``step`` of its
    :class:`toporo.Net`.

    Parameters
    ----------
    model, ridge, random_state : see :class:`TRORegressor`.

    >>> x, state = np.array([[-2.0], [-1.0], [1.0], [2.0]] * 3), np.repeat(["NY", "PA", "OH"], 4)
    >>> model = GroupDROClassifier().fit(x, np.where(x[:, 0] > 0, "wet", "dry"), groups=state)
    >>> model.predict([[1.5]]).tolist(), model.penalty_
    (['wet'], 0.0)
    """
