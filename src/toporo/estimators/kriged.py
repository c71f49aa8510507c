"""A linear model whose coefficients follow a graph of the groups, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from toporo.checks import number, one_of
from toporo.errors import DataError, GroupMismatchError, listed, warn
from toporo.estimators.coefficients import KrigedPart
from toporo.estimators.rows import EVERYONE, Scaling, counted, group_ids, sizes_of
from toporo.graphs import as_graph
from toporo.groups import GroupIds, Groups
from toporo.robust.group_factors import GraphModes, GroupFactors
from toporo.robust.group_losses import chunks
from toporo.robust.kriged import MODELS, KrigedFit, fit_kriged
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

#: Inputs this many standard deviations beyond what was seen in training are worth a word.
FAR = 1.0
#: In place of a variance of nothing.
SMALL = 1e-12
#: Where the mean inputs of a group to predict come from.
CONTEXTS = ("rows", "row")


class KrigedRegressor(KrigedPart, RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    r"""Coefficients that vary from group to group, smoothly over a graph, as far as the data say so.

    The model, with :math:`\bar x_g` the mean input of group g, is

    .. math:: y = b_0 + x^\top b + \bar x_g^\top c + u_g + (x - \bar x_g)^\top v_g + \varepsilon .

    Intercepts u and slopes v have a part that follows the graph and one that does not; how much of each there is, and
    whether groups differ at all, is decided by the likelihood of the training rows, and five nested models are averaged
    by their evidence (:mod:`toporo.robust.kriged`). For a group never trained on, the graph says what its coefficients
    are likely to be; without evidence for it they are those of all groups together.

    Parameters
    ----------
    graph : over the groups, test groups among them, in any form that :func:`toporo.graphs.as_graph` takes; the longer
        an edge, the less it says. Without one this is a mixed model: groups differ, and nobody knows how new ones do.
    context : ``"rows"``: the mean input of a group never trained on is that of its rows to predict, shrunk towards the
        mean of all groups as far as few rows say little. ``"row"``: every row by itself, whatever else is predicted.

    Attributes
    ----------
    evidence_ : the weight of every nested model, by name.
    gate_ : the weight of those that have the graph in them.
    saw_ : what of test groups predictions look at: ``"test adjacency"``, ``"test inputs"``.
    groups_, group_sizes_ : the training groups, and their rows by name.
    fit_ : what was found (:class:`toporo.robust.kriged.KrigedFit`), in units of the columns' standard deviations.

    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(range(12), 20)  # twelve in a row, whose slope grows from one to the next
    >>> x = rng.normal(size=(240, 1))
    >>> y = groups * x[:, 0] + rng.normal(size=240)
    >>> model = KrigedRegressor(graph=[(place, place + 1) for place in range(11)])
    >>> model = model.fit(x[groups != 8], y[groups != 8], groups=groups[groups != 8])
    >>> slope = model.predict([[1.0]], groups=[8]) - model.predict([[0.0]], groups=[8])
    >>> round(float(slope[0]))
    8
    """

    __metadata_request__fit = {"groups": True}  # noqa: RUF012  # scikit-learn's own name and type
    __metadata_request__predict = {"groups": True}  # noqa: RUF012

    def __init__(self, *, graph: Any = None, context: str = "rows") -> None:
        self.graph = graph
        self.context = context

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fit the model.

        Parameters
        ----------
        X : rows × features.
        y : targets, one per row or several columns of them.
        groups : every row's group, by name. Without them all rows are one group: an ordinary regression.
        sample_weight : a row with weight 2 counts as two.
        """
        one_of(self.context, "context", CONTEXTS)
        x, target = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        self._one_column = target.ndim == 1
        target = np.asarray(target, dtype=np.float64).reshape(len(x), -1)
        ids = GroupIds(np.zeros(len(x), np.int64), Groups([EVERYONE])) if groups is None else group_ids(groups, len(x))
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        x, target, ids, shares = counted(x, target, ids, weights)
        if weights is not None and shares is not None:
            shares = shares * (weights.sum() / shares.sum())  # as they came: a weight is a number of rows
        self.scaling_ = Scaling.of(x, shares, center=True, what="X")
        self.target_scaling_ = Scaling.of(target, shares, center=True, what="y")
        self.target_scaling_.check_squares("y")
        self.topology_ = None if self.graph is None else as_graph(self.graph)
        modes, places = placed(self.topology_, ids.groups)
        scaled = self.scaling_.apply(x)
        self.range_ = scaled.min(axis=0), scaled.max(axis=0)
        factors = GroupFactors.from_rows(scaled, self.target_scaling_.apply(target), ids, shares)
        alone = {"one model": MODELS["one model"]} if len(ids.groups) == 1 else None
        self.fit_ = fit_kriged(factors, modes, places, alone)
        self.groups_, self.group_sizes_ = ids.groups, sizes_of(ids)
        self.spread_ = _spread(scaled, ids, factors.means)
        self._weigh()
        return self

    def _weigh(self) -> None:
        """What the fit speaks for, and what of test groups predictions see."""
        self.evidence_ = self.fit_.evidence
        self.gate_ = sum(weight for name, weight in self.evidence_.items() if "graph" in name)
        self.saw_ = (("test adjacency",) if self.topology_ is not None else ()) + (
            ("test inputs",) if self.context == "rows" else ()
        )

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
        neighbors: Mapping[Name, Iterable[Name]] | None = None,
    ) -> Any:
        """Predicted values.

        Parameters
        ----------
        X : rows × features, as in :meth:`fit`. Inputs beyond what was seen in training count as the nearest that was.
        groups : every row's group; not needed if there were none in training.
        interval : with a share such as 0.9, ``(values, lower, upper)`` is returned: with that probability, by the
            model, a row's target lies between.
        neighbors : groups that are not in the graph, and which groups there they are next to.
        """
        check_is_fitted(self)
        if interval is not None:
            number(interval, "interval", "a share between 0 and 1", least=0.0, below=1.0)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        ids = self._ids(groups, len(x))
        scaled = self._clipped(self.scaling_.apply(x))
        own = np.array([self.groups_.names.index(name) if name in self.groups_ else -1 for name in ids.groups])[
            ids.codes
        ]
        vectors = vectors_of(self.fit_, self.topology_, ids.groups, neighbors or {})[ids.codes]
        means = self._means(scaled, ids, own)
        parts = [self.fit_.moments(*(each[part] for each in (scaled, means, vectors, own))) for part in chunks(len(x))]
        values = self._in_units(np.concatenate([centre for centre, _ in parts]))
        if interval is None:
            return values
        variance = np.concatenate([spread for _, spread in parts]) + self.fit_.noise
        half = norm.ppf(0.5 + interval / 2) * np.sqrt(variance) * self.target_scaling_.scale
        half = half[:, 0] if self._one_column else half
        return values, values - half, values + half

    def _in_units(self, scaled: Array) -> Array:
        values = scaled * self.target_scaling_.scale + self.target_scaling_.center
        return np.asarray(values[:, 0] if self._one_column else values)

    def _ids(self, groups: Any, rows: int) -> GroupIds:
        if groups is not None:
            return group_ids(groups, rows)
        if self.groups_.names != (EVERYONE,):
            raise DataError(
                f"predict() got no groups, but the model has coefficients by group: call predict(X, groups=...), with "
                f"one name for each of the {rows} rows."
            )
        return GroupIds(np.zeros(rows, np.int64), self.groups_)

    def _clipped(self, scaled: Array) -> Array:
        low, high = self.range_
        far = (np.maximum(low - scaled, scaled - high) > FAR).any(axis=1)
        if far.any():
            warn(
                f"{int(far.sum())} of {len(scaled)} rows have inputs far beyond what was seen in training: they count "
                "as the nearest that was."
            )
        return np.clip(scaled, low, high)

    def _means(self, scaled: Array, ids: GroupIds, own: Array) -> Array:
        """Mean inputs of every row's group: those of training, or of the rows, as far as these can be trusted."""
        known = self.fit_.likelihood.factors.means
        between, within = self.spread_
        counts = np.bincount(ids.codes, minlength=len(ids.groups))[:, None]
        seen = scaled
        if self.context == "rows":
            totals = np.zeros((len(ids.groups), scaled.shape[1]))
            np.add.at(totals, ids.codes, scaled)
            seen, rows = (totals / counts)[ids.codes], counts[ids.codes]
        else:
            rows = np.ones((len(scaled), 1))
        means = between / (between + within / rows + SMALL) * seen
        means[own >= 0] = known[own[own >= 0]]
        return np.asarray(means)


def placed(graph: GroupGraph | None, groups: Groups) -> tuple[GraphModes | None, list[int]]:
    """The modes of a graph, and where the training groups are in it."""
    if graph is None:
        return None, []
    graph.require(groups, what="group(s) of the data")
    modes = GraphModes.of(_conductances(graph))
    # In the layout that a model folder gives them back in: products of matrices differ by it in their last bits.
    modes = GraphModes(modes.values, np.ascontiguousarray(modes.vectors))
    return modes, [graph.names.index(name) for name in groups]


def vectors_of(
    fit: KrigedFit, graph: GroupGraph | None, groups: Groups, neighbors: Mapping[Name, Iterable[Name]]
) -> Array:
    """Places of groups in the modes that a fit kept; of those not in the graph, between their neighbours."""
    modes = fit.likelihood.modes
    if modes is None or graph is None:
        return np.zeros((len(groups), 0))
    index = {name: place for place, name in enumerate(graph.names)}
    strange = [name for name in groups if name not in index and name not in neighbors]
    if strange:
        raise GroupMismatchError(
            f"group(s) that are not in the graph: {listed(strange)}. Say which groups they are next to, "
            f"neighbors={{{strange[0]!r}: [...]}} (toporo predict --neighbors), or fit with a graph that has them."
        )
    rows = []
    for name in groups:
        near = [name] if name in index else list(neighbors[name])
        graph.require(near, what=f"neighbour(s) of {name!r}")
        rows.append(modes.vectors[[index[other] for other in near]].mean(axis=0))
    return np.array(rows)


def _spread(scaled: Array, ids: GroupIds, means: Array) -> tuple[Array, Array]:
    """Variances of the columns between groups and within them."""
    sizes = np.bincount(ids.codes, minlength=len(ids.groups))[:, None]
    within = ((scaled - means[ids.codes]) ** 2).sum(axis=0) / max(1, len(scaled) - len(ids.groups))
    between = means.var(axis=0, ddof=1) if len(means) > 1 else np.zeros(means.shape[1])
    return np.maximum(between - within * np.mean(1 / sizes), 0.0), within


def _conductances(graph: GroupGraph) -> npt.NDArray[np.float64]:
    """How much neighbours have to do with each other: one over the length of the edge."""
    places = {name: place for place, name in enumerate(graph.names)}
    matrix = np.zeros((len(places), len(places)))
    for (a, b), length in graph.edges.items():
        matrix[places[a], places[b]] = matrix[places[b], places[a]] = 1.0 / length
    return matrix
