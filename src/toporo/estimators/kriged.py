"""A linear model whose coefficients follow a graph of the groups, as a scikit-learn estimator."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from toporo.checks import number, one_of
from toporo.errors import DataError, listed, warn
from toporo.estimators.base import plot_bars
from toporo.estimators.coefficients import CoefficientTable, coefficient_table
from toporo.estimators.kriged_model import CONTEXTS, KIND, KrigedModel
from toporo.estimators.places import Context, GroupAwareEstimator, GroupMeans, Neighbors, Places
from toporo.estimators.rows import (
    EVERYONE,
    UNKNOWN,
    Scaling,
    check_known,
    counted,
    group_ids,
    ids_to_predict,
    one_group,
    refuse_graph_alone,
    warn_unknown,
)
from toporo.estimators.summary import Summary
from toporo.graphs import as_graph
from toporo.robust.factors import GroupFactors
from toporo.robust.kriged import KrigedFit
from toporo.robust.panel import PanelFit, fit_panel
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class KrigedEstimator(GroupAwareEstimator):
    """Settings, context and explanation of kriged models of numbers and of classes."""

    model_: Any
    n_features_in_: int
    group_sizes_: dict[Name, int]
    topology_: GroupGraph | None
    evidence_: dict[str, float]
    gate_: float
    saw_: tuple[str, ...]
    fit_: KrigedFit

    def __init__(self, *, graph: Any = None, context: str = "rows") -> None:
        self.graph = graph
        self.context = context

    @property
    @abstractmethod
    def _regression(self) -> KrigedModel:
        """The fitted regression."""

    @classmethod
    def from_model(cls, model: Any) -> Self:
        """Make a fitted estimator of its model."""
        made = cls()._adopt(model)
        made.graph, made.context = made.topology_, made._regression.context
        made.n_features_in_ = made.fit_.factors.width
        return made

    def _adopt(self, model: Any) -> Self:
        """Hold a model, and set the attributes that follow from it."""
        self.model_ = model
        inner, fit = self._regression, self._regression.fit
        self.groups_, self.topology_, self.fit_, self.evidence_ = inner.groups, inner.graph, fit, fit.evidence
        self.group_sizes_ = {name: int(rows) for name, rows in zip(inner.groups, fit.factors.rows, strict=True)}
        self.gate_, self.saw_ = inner.gate, inner.saw
        return self

    def group_context(self, X: Any, groups: Any = None) -> Context:  # noqa: N803
        """Means of the inputs of groups to predict, from some of the rows; those of several portions can be added up.

        Parameters
        ----------
        X, groups : as in ``predict``.
        """
        x = validate_data(self, X, reset=False, dtype=np.float64)
        return self._regression.group_context(x, ids_to_predict(groups, self.groups_, len(x)))

    def warn_about(self, context: Context) -> None:
        """Warn about groups and inputs to predict that are far from the training data.

        Parameters
        ----------
        context : of all rows to predict.
        """
        warn_about(self._regression, context[KIND])

    def explain(self, names: Sequence[str] | None = None) -> CoefficientTable:
        """Table of the groups, those that differ most first, with the evidence.

        Parameters
        ----------
        names : of the inputs; those of the columns that it was fitted to unless given.
        """
        check_is_fitted(self)
        if names is None:
            names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])
        outputs = self._regression.fit.factors.outputs
        labels = [""] if outputs == 1 else [f" ({label})" for label in getattr(self, "classes_", range(outputs))]
        table = coefficient_table(self._regression, self.group_sizes_, [str(name) for name in names], labels)
        if not hasattr(self, "classes_"):
            return table
        which = repr(str(self.classes_[1])) if len(self.classes_) == 2 else "each class"
        of = f"Coefficients are of the share of {which}, which calibration then makes a probability."
        return replace(table, facts={**table.facts, "words": [*table.facts["words"], of]})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the graph with differences from the mean group as sizes, or without a graph these as bars.

        Parameters
        ----------
        ax : the matplotlib axes to draw on; by default new ones.
        """
        import matplotlib as mpl

        table = self.explain()
        differences = {row.group: row.difference for row in table}
        with mpl.rc_context({"text.parse_math": False}):  # a dollar in a name is one
            if self.topology_ is None:
                return plot_bars(ax, differences, "difference from the mean group")
            test = [row.group for row in table if not row.size]
            return self.topology_.plot(ax, train=list(self.groups_), test=test or None, sizes=differences)


class KrigedRegressor(RegressorMixin, KrigedEstimator):  # type: ignore[misc]  # scikit-learn has no types
    r"""Coefficients that vary from group to group, smoothly over a graph, as far as the data say so.

    The model, with :math:`\bar x_g` the mean input of group g, is

    .. math:: y = b_0 + x^\top b + \bar x_g^\top c + u_g + (x - \bar x_g)^\top v_g + \varepsilon ,

    or with :math:`x^\top v_g` in it. Intercepts u and slopes v have a part that follows the graph and one that does
    not; how much of each there is, and whether groups differ at all, is decided by the likelihood of the training rows,
    and nested models are averaged by their evidence (:mod:`toporo.robust.kriged`). For a group never trained on, the
    graph says what its coefficients are likely to be; without evidence for it they are those of all groups together.
    A quarter of the predictions there, as far as there is evidence for the graph, comes from a ridge regression in
    which training groups count as a random walk on the graph from that group first meets them. The quarter was settled
    on temperatures of 1900 to 2007 and made-up data, with errors in test groups in view.

    Parameters
    ----------
    graph : over the groups, test groups among them, in any form that :func:`toporo.graphs.as_graph` takes; the longer
        an edge, the less it says. Without one this is a mixed model, and new groups get what all groups have in common.
    context : ``"rows"``: the mean input of a group never trained on is that of its rows to predict, shrunk towards the
        mean of all groups as far as few rows say little. ``"row"``: every row by itself, whatever else is predicted.
        ``"none"``: no input of other rows is looked at, and groups with other means have nothing else in common.

    Attributes
    ----------
    model_ : the fitted model, a value (:class:`~toporo.estimators.kriged_model.KrigedModel`).
    evidence_ : the weight of every nested model, by name.
    gate_ : the weight of those that have the graph in them.
    saw_ : what of test groups predictions look at: ``"test adjacency"``, ``"test inputs"``.
    groups_, group_sizes_, topology_ : the training groups, their rows by name, and the graph.
    fit_ : the nested models (:class:`toporo.robust.kriged.KrigedFit`), in units of the columns' standard deviations.
    panel_ : shocks by time step (:class:`toporo.robust.panel.PanelFit`), or None.

    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(range(12), 20)  # twelve in a row, whose slope grows from one to the next
    >>> x = rng.normal(size=(240, 1))
    >>> y = groups * x[:, 0] + rng.normal(size=240)
    >>> model = KrigedRegressor(graph=[(i, i + 1) for i in range(11)])
    >>> model = model.fit(x[groups != 8], y[groups != 8], groups=groups[groups != 8])
    >>> slope = model.predict([[1.0]], groups=[8]) - model.predict([[0.0]], groups=[8])
    >>> round(float(slope[0]))
    8
    """

    model_: KrigedModel
    score = KrigedEstimator.score  # with groups

    @property
    def _regression(self) -> KrigedModel:
        return self.model_

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None, *, time: Any = None) -> Self:  # noqa: N803
        """Fit the model.

        Parameters
        ----------
        X : rows × features.
        y : targets, one per row or several columns of them.
        groups : every row's group, by name. Without them all rows are one group: an ordinary regression.
        sample_weight : a row with weight 2 counts as two.
        time : of a panel, every row's time step, as a number or a date: what training groups have in common at a step,
            all of them or neighbours, is then carried over to groups never trained on (:mod:`toporo.robust.panel`).
        """
        context: Any = one_of(self.context, "context", CONTEXTS)
        x, target = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        target = np.asarray(target, dtype=np.float64).reshape(len(x), -1)
        refuse_graph_alone(self.graph, groups)
        ids = one_group(EVERYONE, len(x)) if groups is None else group_ids(groups, len(x))
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        times = None if time is None else _times(time, len(x))
        x, target, ids, shares = counted(x, target, ids, weights)
        if weights is not None and shares is not None:
            shares = shares * (weights.sum() / shares.sum())  # as they came: a weight is a number of rows
            times = None if times is None else times[weights > 0]
        inputs, targets = (Scaling.of(each, shares, center=True, what=name) for each, name in ((x, "X"), (target, "y")))
        x, target = inputs.apply(x), targets.apply(target)
        factors = GroupFactors.from_rows(x, target, ids, shares)
        limits = x.min(axis=0), x.max(axis=0)
        model = KrigedModel.of(factors, (inputs, targets), limits, self._graph(), context=context)
        if times is not None:
            residuals, fit = model.residuals(x, target, ids), model.fit
            mass = np.ones(len(x)) if shares is None else shares
            panel = fit_panel(residuals, ids, times, fit.modes, fit.places.tolist(), mass)
            model = replace(model, panel=panel)
        return self._adopt(model)

    def fit_moments(self, moments: GroupFactors, low: Array, high: Array) -> Self:
        """Fit to rows of which only the moments are at hand: to all of a table larger than memory, say.

        Parameters
        ----------
        moments : of inputs and, in the last column, the target, by group.
        low, high : the least and the largest value of each of these columns.

        Returns
        -------
        The estimator itself, fitted; the same as :meth:`fit` makes it from the rows, but for rounding.
        """
        context: Any = one_of(self.context, "context", CONTEXTS)
        self.n_features_in_ = len(low) - 1
        summary = Summary.of(moments, low, high, standardize=True, center=True)
        scaled_low, scaled_high = (summary.inputs.apply(end[None, : summary.width])[0] for end in (low, high))
        scalings = summary.inputs, summary.targets
        model = KrigedModel.of(summary.scaled(), scalings, (scaled_low, scaled_high), self._graph(), context=context)
        return self._adopt(model)

    def _graph(self) -> Any:
        return None if self.graph is None else as_graph(self.graph)

    @property
    def _one_column(self) -> bool:
        return self.model_.fit.factors.outputs == 1

    @property
    def panel_(self) -> PanelFit | None:
        """Shocks by time step."""
        return self.model_.panel

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(
        self,
        X: Any,  # noqa: N803
        groups: Any = None,
        *,
        interval: float | None = None,
        neighbors: Neighbors | None = None,
        time: Any = None,
        context: Context | None = None,
    ) -> Any:
        """Predicted values.

        Parameters
        ----------
        X : rows × features, as in :meth:`fit`. Inputs more than a standard deviation beyond what was seen in training
            count as if they were one beyond.
        groups : every row's group. Without them, if there were groups in training, each row is of an unknown group: it
            gets what all groups have in common, with a warning.
        interval : with a share such as 0.9, ``(values, lower, upper)`` is returned: with that probability, by the
            model, a row's target lies between. It needs groups if there were groups in training.
        neighbors : groups that are not in the graph, and which groups there they are next to.
        time : every row's time step, if there was one in training.
        context : of all rows to predict, where these are some of them, by :meth:`group_context`.
        """
        check_is_fitted(self)
        if interval is not None:
            number(interval, "interval", "a share between 0 and 1", least=0.0, below=1.0)
            check_known(groups, self.groups_)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        if (time is None) != (self.panel_ is None):
            raise DataError(
                "predict() got no time, but the model was fitted with one: call predict(X, groups=..., time=...)."
                if time is None
                else "predict() got a time, but the model was fitted without: call fit(..., time=...), or leave it out."
            )
        at = places_of(self.model_, x, groups, neighbors, context)
        found = self.model_.intervals(x, at, None if time is None else _times(time, len(x)), interval)
        values = tuple(each[:, 0] if each.shape[1] == 1 else each for each in found)
        return values[0] if interval is None else values


def places_of(
    model: KrigedModel, x: Array, groups: Any, neighbors: Neighbors | None, context: Context | None = None
) -> Places:
    """Return where rows to predict are; unless a context is given, it is that of the rows, with warnings about them."""
    ids = ids_to_predict(groups, model.groups, len(x))
    if context is None:
        context = model.group_context(x, ids)
        warn_about(model, context[KIND])
    return Places(ids, neighbors or {}, context)


def warn_about(model: KrigedModel, means: GroupMeans) -> None:
    """Warn about groups and inputs to predict that are far from the training data."""
    groups, graph = means.groups, model.graph
    warn_unknown(groups)
    new = [name for name in groups if name not in model.groups and name != UNKNOWN]
    if graph is None and new:
        warn(
            f"{len(new)} of {len(groups)} group(s) were not trained on ({listed(new)}), and there is no graph: "
            "this is a mixed model, and they get what all groups have in common. Fit with graph= to let neighbours "
            "speak for them."
        )
    if means.outside:
        warn(
            f"{means.outside} of {means.rows} rows have inputs far beyond what was seen in training: they count as "
            "if they were one standard deviation beyond."
        )
    if graph is None or model.gate < 0.5:
        return
    hops = graph.hops(list(model.groups))
    far = [name for name in groups if 3 <= hops.get(name, 0) < math.inf]
    if far:
        warn(
            f"{len(far)} of {len(groups)} group(s) are three hops or more from any training group "
            f"({listed(far)}): predictions there hold as far as trends go on (0.7 times the squared error of a linear "
            "model on temperatures by state), and mislead where they turn around (3.7 times on made-up data). Train "
            "on groups nearer to them."
        )
    apart = [name for name in groups if hops.get(name, 0) == math.inf]
    if apart:
        warn(
            f"{len(apart)} of {len(groups)} group(s) are not connected to any training group ({listed(apart)}): "
            "for them the graph says nothing, and they get what all groups have in common. Add their edges."
        )


def _times(time: Any, rows: int) -> Array:
    """Return time steps as numbers: dates in days."""
    given = np.asarray(time)
    if given.dtype.kind == "M":
        given = np.where(np.isnat(given), np.nan, (given - np.datetime64(0, "s")) / np.timedelta64(1, "D"))
    try:
        numbers = given.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"time holds {given.dtype} such as {given.ravel().tolist()[0]!r}: expected numbers, or dates of numpy or "
            "pandas."
        ) from None
    if numbers.shape != (rows,) or not np.isfinite(numbers).all():
        missing = int(np.sum(~np.isfinite(numbers)))
        raise DataError(
            f"time has shape {numbers.shape} and {missing} missing value(s): expected one time for each of {rows} rows."
        )
    return numbers
