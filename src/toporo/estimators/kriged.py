"""A linear model whose coefficients follow a graph of the groups, as a scikit-learn estimator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted, validate_data

from toporo.checks import number, one_of
from toporo.errors import DataError, listed, warn
from toporo.estimators.coefficients import KrigedPart
from toporo.estimators.places import SMALL, near, placed, trust, vectors_of, walks
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
    sizes_of,
    warn_unknown,
)
from toporo.estimators.training_rows import TrainingRows
from toporo.graphs import as_graph
from toporo.groups import GroupIds, Groups
from toporo.machine import free_bytes
from toporo.robust.factors import GroupFactors
from toporo.robust.kriged import LEVELS, MODELS, KrigedFit, fit_kriged
from toporo.robust.likelihood import MOST_EFFECTS
from toporo.robust.modes import GraphModes, WalkModes
from toporo.robust.panel import fit_panel
from toporo.robust.rows import chunks
from toporo.types import Array, Name

#: Inputs count up to so many standard deviations beyond what was seen in training: a linear model bears that, and an
#: outlier is cut. Settled on temperatures of 1900 to 2007.
FAR = 1.0
#: Where the mean inputs of a group to predict come from.
CONTEXTS = ("rows", "row", "none")
#: The share of the local regression, and its ridge. Settled on temperatures of 1900 to 2007 and made-up data.
LOCAL, LOCAL_RIDGE = 0.25, 0.01


class GroupInputs:
    """Inputs of rows to predict, added up by group, a portion of the rows at a time; missing ones do not count.

    Attributes
    ----------
    places : of the groups met so far.
    rows, far : how many rows there were, and how many of them are far beyond what was seen in training.
    """

    def __init__(self) -> None:
        self.places: dict[Name, int] = {}
        self.rows = self.far = 0
        self._counts = self._totals = np.zeros((0, 0))  # columns × groups

    def add(self, ids: GroupIds, inputs: Array, weights: Array | None = None, far: int = 0) -> Self:
        """Add rows, so many of which are far."""
        there, ones = np.isfinite(inputs), np.ones(len(inputs)) if weights is None else weights
        at = self._grown(ids.groups, inputs.shape[1], len(inputs), far)
        known = np.ones((1, len(inputs))) if there.all() else there.T
        self._counts[:, at] += np.stack([np.bincount(ids.codes, ones * each, len(at)) for each in known])
        for total, column in zip(self._totals, np.where(there, inputs, 0.0).T, strict=True):
            np.add.at(total, at[ids.codes], ones * column)  # row by row: portions of any size come to the same bits
        return self

    def plus(self, other: GroupInputs) -> Self:
        """Add those of another."""
        at = self._grown(other.places, len(other._totals), other.rows, other.far)
        self._counts[:, at] += other._counts
        self._totals[:, at] += other._totals
        return self

    def _grown(self, groups: Iterable[Name], columns: int, rows: int, far: int) -> npt.NDArray[np.intp]:
        """Room for groups of so many more rows, and where they are."""
        if not self.places:
            self._counts, self._totals = np.zeros((columns, 0)), np.zeros((columns, 0))
        at = np.array([self.places.setdefault(name, len(self.places)) for name in groups], dtype=np.intp)
        more = np.zeros((columns, len(self.places) - self._counts.shape[1]))
        self._counts, self._totals = (np.concatenate([each, more], axis=1) for each in (self._counts, self._totals))
        self.rows, self.far = self.rows + rows, self.far + far
        return at

    def of(self, groups: Groups) -> tuple[Array, Array]:
        """Mean inputs of groups, and how many values each is of."""
        at = [self.places[name] for name in groups]
        totals, counts = self._totals.T[at], self._counts.T[at]
        with np.errstate(invalid="ignore"):
            return totals / counts, counts


class KrigedRegressor(KrigedPart, RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
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
        an edge, the less it says. Without one this is a mixed model: groups differ, and nobody knows how new ones do.
    context : ``"rows"``: the mean input of a group never trained on is that of its rows to predict, shrunk towards the
        mean of all groups as far as few rows say little. ``"row"``: every row by itself, whatever else is predicted.
        ``"none"``: no input of other rows is looked at, and groups with other means have nothing else in common.

    Attributes
    ----------
    evidence_ : the weight of every nested model, by name.
    gate_ : the weight of those that have the graph in them.
    trust_ : of every group in the graph, or every training group: how much of what can differ between groups is known
        of its coefficients, from 0 (no more than of any group) to 1.
    saw_ : what of test groups predictions look at: ``"test adjacency"``, ``"test inputs"``.
    groups_, group_sizes_ : the training groups, and their rows by name.
    fit_ : what was found (:class:`toporo.robust.kriged.KrigedFit`), in units of the columns' standard deviations.
    panel_ : what was found of time steps (:class:`toporo.robust.panel.PanelFit`), or None.

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
    __metadata_request__score = {"groups": True}  # noqa: RUF012

    #: What the graph's modes are, and whether slopes vary.
    _modes: ClassVar[type[GraphModes]] = GraphModes
    _slopes: ClassVar[bool] = True
    #: The share of the local regression in groups never trained on.
    _local: ClassVar[float] = LOCAL
    #: A fit to nearly the same rows.
    _start: KrigedFit | None = None

    def __init__(self, *, graph: Any = None, context: str = "rows") -> None:
        self.graph = graph
        self.context = context

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
        one_of(self.context, "context", CONTEXTS)
        x, target = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        self._one_column = target.ndim == 1
        target = np.asarray(target, dtype=np.float64).reshape(len(x), -1)
        refuse_graph_alone(self.graph, groups)
        ids = one_group(EVERYONE, len(x)) if groups is None else group_ids(groups, len(x))
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        times = None if time is None else _times(time, len(x))
        x, target, ids, shares = counted(x, target, ids, weights)
        if weights is not None and shares is not None:
            shares = shares * (weights.sum() / shares.sum())  # as they came: a weight is a number of rows
            times = None if times is None else times[weights > 0]
        self.scaling_ = Scaling.of(x, shares, what="X")
        self.target_scaling_ = Scaling.of(target, shares, what="y")
        scaled = self.scaling_.apply(x)
        self.range_ = scaled.min(axis=0), scaled.max(axis=0)
        factors = GroupFactors.from_rows(scaled, self.target_scaling_.apply(target), ids, shares)
        modes, places = self._krige(factors)
        self.groups_, self.group_sizes_ = ids.groups, sizes_of(ids)
        self.spread_ = _spread(factors)
        self._weigh()
        self.panel_ = None
        if times is not None:
            left = self._left(scaled, self.target_scaling_.apply(target), ids)
            self.panel_ = fit_panel(left, ids, times, modes, places, np.ones(len(x)) if shares is None else shares)
            self.saw_ += ("targets of training groups at the same time",)
        return self

    def _krige(self, factors: GroupFactors) -> tuple[GraphModes | None, list[int]]:
        """Fit to factors of scaled rows; return modes and places in the graph."""
        groups = factors.groups
        self.topology_ = None if self.graph is None else as_graph(self.graph)
        _check_memory(len(groups), factors.width, 0 if self.topology_ is None else len(self.topology_.names))
        modes, places = placed(self.topology_, groups, self._modes)
        wanted = {
            name: parts
            for name, parts in (MODELS if self._slopes else LEVELS).items()
            if name == "one model" or (len(groups) > 1 and (self.context != "none" or "omega_c" not in parts))
        }
        self.fit_ = fit_kriged(factors, modes, places, wanted, start=self._start)
        return modes, places

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
        one_of(self.context, "context", CONTEXTS)
        self.n_features_in_, self._one_column = len(low) - 1, True
        rows, d = TrainingRows.of_moments(moments, low, high), moments.width
        self.scaling_, self.target_scaling_ = rows.inputs, rows.targets  # type: ignore[assignment]  # of numbers
        factors = moments.scaled(
            np.append(self.scaling_.center, self.target_scaling_.center),
            np.append(self.scaling_.scale, self.target_scaling_.scale),
        )
        self.range_ = tuple(self.scaling_.apply(end[None, :d])[0] for end in (low, high))
        self._krige(factors)
        self.panel_ = None
        self.groups_, self.group_sizes_ = rows.groups, rows.sizes
        self.spread_ = _spread(factors)
        self._weigh()
        return self

    def _weigh(self) -> None:
        """All that follows from the fit and the graph: also when they come from a file."""
        self.evidence_ = self.fit_.evidence
        self.gate_ = sum(weight for name, weight in self.evidence_.items() if "graph" in name)
        self.saw_ = (("test adjacency",) if self.topology_ is not None else ()) + (
            ("test inputs",) if self.context == "rows" else ()
        )
        self.trust_ = trust(self.fit_, self.topology_)
        self.local_ = None
        if self.topology_ is not None and self._local * self.gate_ > 0:
            counts = walks(self.topology_, self.groups_)
            self.local_ = self.fit_.likelihood.factors.weighted_ridge(counts, LOCAL_RIDGE)

    def _left(self, x: Array, y: Array, ids: GroupIds) -> Array:
        """What the model leaves of the training rows."""
        likelihood = self.fit_.likelihood
        where = likelihood.factors.means[ids.codes], likelihood.vectors[ids.codes], ids.codes
        parts = [self.fit_.values(x[part], *(each[part] for each in where)) for part in chunks(len(x))]
        return np.asarray(y - np.concatenate(parts))

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
        means: Mapping[Name, Iterable[float]] | None = None,
        time: Any = None,
        inputs: GroupInputs | None = None,
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
        means : mean inputs of groups never trained on, where they are known better than from the rows given.
        time : every row's time step, if there was one in training.
        inputs : of all rows to predict, where these are some of them, by :meth:`gather`.
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
        centre, spread = self._moments(x, groups, neighbors, means=means, spread=interval is not None, inputs=inputs)
        noise = np.broadcast_to(self.fit_.noise, centre.shape)
        if self.panel_ is not None:
            ids = ids_to_predict(groups, self.groups_, len(x))
            vectors = vectors_of(self.fit_, self.topology_, ids.groups, neighbors or {})[ids.codes]
            shock, variance, holds = self.panel_.moments(_times(time, len(x)), vectors)
            same = holds[:, None] ** 2
            centre, noise = centre + shock, (1.0 - same) * noise + same * self.panel_.noise + variance
        values = self._in_units(centre)
        if interval is None:
            return values
        half = norm.ppf(0.5 + interval / 2) * np.sqrt(spread + noise) * self.target_scaling_.scale
        half = half[:, 0] if self._one_column else half
        return values, values - half, values + half

    def score(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """R² of the predictions.

        Parameters
        ----------
        X, y, groups, sample_weight : as in :meth:`fit`.
        """
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def _moments(
        self,
        x: Array,
        groups: Any,
        neighbors: Mapping[Name, Iterable[Name]] | None,
        weights: Array | None = None,
        means: Mapping[Name, Iterable[float]] | None = None,
        *,
        spread: bool = True,
        inputs: GroupInputs | None = None,
    ) -> tuple[Array, Array]:
        """Mean and, if wanted, variance of rows without noise, in units of the targets' standard deviations."""
        ids = ids_to_predict(groups, self.groups_, len(x))
        scaled, far = self._clipped(self.scaling_.apply(x))
        if inputs is None:
            inputs = GroupInputs().add(ids, scaled, weights, far)
            self.warn_of(inputs)
        own = np.array([self.groups_.names.index(name) if name in self.groups_ else -1 for name in ids.groups])[
            ids.codes
        ]
        vectors = vectors_of(self.fit_, self.topology_, ids.groups, neighbors or {})[ids.codes]
        own_means = self._means(scaled, ids, own, inputs, means or {})
        rows = scaled, own_means, vectors, own
        parts = [[each[part] for each in rows] for part in chunks(len(x))]
        if spread:
            both = [self.fit_.moments(*part) for part in parts]
            centre, variance = (np.concatenate([part[place] for part in both]) for place in (0, 1))
        else:
            centre, variance = np.concatenate([self.fit_.values(*part) for part in parts]), np.zeros((0, 0))
        if self.local_ is not None and (own < 0).any() and UNKNOWN not in ids.groups:
            share, new = self._local * self.gate_, own < 0
            there = near(self.local_, self.topology_, ids.groups, neighbors or {})[ids.codes[new]]
            opinion = np.einsum("nj,njk->nk", np.column_stack([np.ones(int(new.sum())), scaled[new]]), there)
            centre[new] = (1.0 - share) * centre[new] + share * opinion
        return centre, variance

    def _in_units(self, scaled: Array) -> Array:
        values = scaled * self.target_scaling_.scale + self.target_scaling_.center
        return np.asarray(values[:, 0] if self._one_column else values)

    def _clipped(self, scaled: Array) -> tuple[Array, int]:
        """Inputs, none of them far beyond what was seen in training, and how many rows had such."""
        low, high = self.range_
        far = (np.maximum(low - scaled, scaled - high) > FAR).any(axis=1)
        return np.clip(scaled, low - FAR, high + FAR), int(far.sum())

    def gather(
        self, rows: Any, groups: Any = None, inputs: GroupInputs | None = None, weights: Array | None = None
    ) -> GroupInputs:
        """Look at rows to predict, a portion at a time, before they are predicted a portion at a time.

        Parameters
        ----------
        rows, groups : as ``X`` and ``groups`` of :meth:`predict`.
        inputs : of the portions before.
        weights : of the rows.
        """
        x = validate_data(self, rows, reset=False, dtype=np.float64)
        scaled, far = self._clipped(self.scaling_.apply(x))
        return (inputs or GroupInputs()).add(ids_to_predict(groups, self.groups_, len(x)), scaled, weights, far)

    def warn_of(self, inputs: GroupInputs) -> None:
        """Say what there is to be said of rows to predict.

        Parameters
        ----------
        inputs : of all of them.
        """
        groups = Groups(inputs.places)
        warn_unknown(groups)
        self._warn_without_graph(groups)
        if inputs.far:
            warn(
                f"{inputs.far} of {inputs.rows} rows have inputs far beyond what was seen in training: they count as "
                "if they were one standard deviation beyond."
            )
        self._warn_of_distance(groups)

    def _warn_without_graph(self, groups: Groups) -> None:
        new = [name for name in groups if name not in self.groups_ and name != UNKNOWN]
        if self.topology_ is None and new:
            warn(
                f"{len(new)} of {len(groups)} group(s) were not trained on ({listed(new)}), and there is no graph: "
                "this is a mixed model, and they get what all groups have in common. Fit with graph= to let neighbours "
                "speak for them."
            )

    def _warn_of_distance(self, groups: Groups) -> None:
        if self.topology_ is None or self.gate_ < 0.5:
            return
        hops = self.topology_.hops(list(self.groups_))
        far = [name for name in groups if 3 <= hops.get(name, 0) < math.inf]
        if far:
            warn(
                f"{len(far)} of {len(groups)} group(s) are three hops or more from any training group "
                f"({listed(far)}): what the graph says there holds as far as trends go on (0.7 times the squared error "
                "of a linear model on temperatures by state), and misleads where they turn around (3.7 times on "
                "made-up data). See trust_, or train on groups nearer to them."
            )
        apart = [name for name in groups if hops.get(name, 0) == math.inf]
        if apart:
            warn(
                f"{len(apart)} of {len(groups)} group(s) are not connected to any training group ({listed(apart)}): "
                "for them the graph says nothing, and they get what all groups have in common. Add their edges."
            )

    def _means(
        self, scaled: Array, ids: GroupIds, own: Array, inputs: GroupInputs, given: Mapping[Name, Iterable[float]]
    ) -> Array:
        """Mean inputs of every row's group: those of training, or of the rows, as far as these can be trusted."""
        known = self.fit_.likelihood.factors.means
        between, within = self.spread_
        if self.context == "rows" and UNKNOWN not in ids.groups:
            seen, rows = inputs.of(ids.groups)
            means = (between / (between + within / rows + SMALL) * seen)[ids.codes]
        else:
            shown = np.zeros_like(scaled) if self.context == "none" else scaled
            means = between / (between + within + SMALL) * shown
        for name, values in given.items():
            row = np.asarray(list(values), dtype=np.float64)
            if row.shape != (scaled.shape[1],) or not np.isfinite(row).all():
                raise DataError(f"means of {name!r}: expected {scaled.shape[1]} finite numbers, one for each input.")
            if name in ids.groups:
                means[ids.codes == ids.groups.names.index(name)] = self._clipped(self.scaling_.apply(row[None]))[0]
        means[own >= 0] = known[own[own >= 0]]
        return np.asarray(means)


class KrigedLevels(KrigedRegressor):
    """A kriged model whose groups differ in their level alone, with the kernel of random walks: quick, and careful."""

    _modes = WalkModes
    _slopes = False
    _local = 0.0


def _check_memory(m: int, d: int, nodes: int) -> None:
    """An error before the work starts, if it cannot end."""
    effects = min(MOST_EFFECTS, 1 + 2 * d + nodes * (d + 1))
    needed, free = 8 * (10 * m * (d + 1) ** 2 + 6 * effects**2 + 5 * nodes**2), free_bytes()
    if free is not None and needed > free:
        raise DataError(
            f"{m} groups with {d} inputs and a graph of {nodes} need about {needed / 2**30:.1f} GiB, and "
            f"{free / 2**30:.1f} GiB are free: use fewer inputs (columns that matter, or a few principal components), "
            "or fewer groups."
        )


def _times(time: Any, rows: int) -> Array:
    """Time steps as numbers: dates in days."""
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


def _spread(factors: GroupFactors) -> tuple[Array, Array]:
    """Variances of the inputs between groups and within them."""
    means, mass = factors.means, factors.mass
    within = factors.within[: factors.width] / max(1.0, mass.sum() - len(mass))
    between = means.var(axis=0, ddof=1) if len(means) > 1 else np.zeros(means.shape[1])
    return np.maximum(between - within * np.mean(1 / mass), 0.0), within
