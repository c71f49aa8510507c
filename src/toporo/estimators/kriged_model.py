"""Linear model whose coefficients follow a graph of the groups, as a value that predicts and can be stored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.stats import norm

from toporo.errors import DataError
from toporo.estimators.places import Context, GroupMeans, Places, check_placed, conductances, near, placed, positions
from toporo.estimators.rows import Scaling
from toporo.groups import GroupIds, Groups
from toporo.robust.factors import GroupFactors
from toporo.robust.kriged import LEVELS, MODELS, KrigedFit, fit_kriged
from toporo.robust.modes import GraphModes, WalkModes
from toporo.robust.panel import PanelFit
from toporo.robust.rows import chunks
from toporo.topology.graph import GroupGraph
from toporo.types import Array

#: Inputs count up to so many standard deviations beyond what was seen in training: a linear model bears that, and an
#: outlier is cut. Settled on temperatures of 1900 to 2007.
FAR = 1.0
#: Where the mean inputs of a group to predict come from.
CONTEXTS = ("rows", "row", "none")
#: The share of the local regression, and its ridge. Settled on temperatures of 1900 to 2007 and made-up data.
LOCAL, LOCAL_RIDGE = 0.25, 0.01
#: In place of a variance or a weight of nothing.
SMALL = 1e-12
#: The kind of inputs of which this model takes means by group.
KIND = "standardised inputs"


@dataclass(frozen=True, eq=False)
class KrigedModel:
    """Coefficients by group. For the model see :class:`~toporo.KrigedRegressor`.

    Attributes
    ----------
    graph : over the groups, or None.
    context : one of :data:`CONTEXTS`.
    local : share of the local regression in groups never trained on, before it is multiplied by the evidence.
    fit : the nested models, in units of the columns' standard deviations.
    inputs, targets : scaling of the columns.
    low, high : range of the scaled inputs in training.
    between, within : variances of the scaled inputs between groups and within them.
    panel : shocks by time step, or None.
    """

    graph: GroupGraph | None
    context: Literal["rows", "row", "none"]
    local: float
    fit: KrigedFit
    inputs: Scaling
    targets: Scaling
    low: Array
    high: Array
    between: Array
    within: Array
    panel: PanelFit | None = None

    @classmethod
    def of(
        cls,
        factors: GroupFactors,
        scalings: tuple[Scaling, Scaling],
        limits: tuple[Array, Array],
        graph: GroupGraph | None = None,
        *,
        context: Literal["rows", "row", "none"] = "rows",
        slopes: bool = True,
        start: KrigedFit | None = None,
    ) -> KrigedModel:
        """Fit to the factors of scaled rows.

        Parameters
        ----------
        factors : of the rows.
        scalings : of inputs and targets.
        limits : the least and the largest of each scaled input.
        graph, context : see :class:`KrigedModel`.
        slopes : let slopes vary between groups; without, only intercepts vary, and far groups get the mean of all.
        start : a fit to nearly the same rows, from which the search for variances starts.
        """
        modes, places = placed(graph, factors.groups, GraphModes if slopes else WalkModes)
        wanted = {
            name: parts
            for name, parts in (MODELS if slopes else LEVELS).items()
            if name == "one model" or (len(factors.groups) > 1 and (context != "none" or "omega_c" not in parts))
        }
        fit = fit_kriged(factors, modes, places, wanted, start=start)
        within = factors.within[: factors.width] / max(1.0, factors.mass.sum() - len(factors.mass))
        between = factors.means.var(axis=0, ddof=1) if len(factors.groups) > 1 else np.zeros(factors.width)
        between = np.maximum(between - within * np.mean(1 / factors.mass), 0.0)
        return cls(graph, context, LOCAL if slopes else 0.0, fit, *scalings, *limits, between, within)

    # ------------------------------------------------------------ what follows from the fit

    @property
    def groups(self) -> Groups:
        """The training groups."""
        return self.fit.factors.groups

    @property
    def gate(self) -> float:
        """Weight of the nested models that follow the graph."""
        return sum(weight for name, weight in self.fit.evidence.items() if "graph" in name)

    @property
    def saw(self) -> tuple[str, ...]:
        """Information about test groups that predictions use."""
        return (
            *(("test adjacency",) if self.graph is not None else ()),
            *(("test inputs",) if self.context == "rows" else ()),
            *(("targets of training groups at the same time",) if self.panel is not None else ()),
        )

    @cached_property
    def local_coefficients(self) -> Array | None:
        """Local regressions by group of the graph, weighted by random walks; None if they have no share."""
        if self.graph is None or self.local * self.gate <= 0:
            return None
        return self.fit.factors.weighted_ridge(first_met(self.graph, self.groups), LOCAL_RIDGE)

    def coefficients(self, names: Groups, fit: KrigedFit | None = None) -> Array:
        """Return levels and slopes of groups, (groups, d + 1, outputs), in units of standard deviations.

        Parameters
        ----------
        names : training groups, or any others of the graph.
        fit : other weights of the nested models, for coefficients without the local regression.
        """
        vectors, own = positions(self.fit, self.graph, names, {})
        theta = (fit or self.fit).coefficients(np.zeros((len(names), self.fit.factors.width)), vectors, own)
        if fit is None and self.graph is not None and self.local_coefficients is not None:
            share, local = self.local * self.gate, near(self.local_coefficients, self.graph, names, {})
            theta[own < 0] = (1.0 - share) * theta[own < 0] + share * local[own < 0]
        return theta

    # ------------------------------------------------------------ predictions

    def __call__(self, x: Array, at: Places) -> Array:
        """Predict rows: (rows, outputs)."""
        return self.moments(x, at)[0] * self.targets.scale + self.targets.center

    def group_context(self, x: Array, ids: GroupIds, weights: Array | None = None) -> Context:
        """Return the means of the inputs of groups to predict."""
        scaled = self.inputs.apply(x)
        outside = (np.maximum(self.low - scaled, scaled - self.high) > FAR).any(axis=1)
        return {KIND: GroupMeans.of(ids, self._clipped(scaled), weights, int(outside.sum()))}

    def moments(self, x: Array, at: Places, *, spread: bool = False) -> tuple[Array, Array]:
        """Return mean and, if wanted, variance of rows without noise, in units of the targets' standard deviations."""
        scaled, codes = self._clipped(self.inputs.apply(x)), at.ids.codes
        vectors, own = positions(self.fit, self.graph, at.ids.groups, at.neighbors)
        vectors, own = vectors[codes], own[codes]
        means = self._means(scaled, own, at, at.group_means(KIND, lambda: self.group_context(x, at.ids)))
        parts = [[each[part] for each in (scaled, means, vectors, own)] for part in chunks(len(x))]
        if spread:
            both = [self.fit.moments(*part) for part in parts]
            centre, variance = (np.concatenate([moments[i] for moments in both]) for i in (0, 1))
        else:
            centre, variance = np.concatenate([self.fit.values(*part) for part in parts]), np.zeros((0, 0))
        new = own < 0
        if self.graph is not None and self.local_coefficients is not None and new.any() and not at.unknown:
            share, there = (
                self.local * self.gate,
                near(self.local_coefficients, self.graph, at.ids.groups, at.neighbors),
            )
            rows = np.column_stack([np.ones(int(new.sum())), scaled[new]])
            centre[new] *= 1.0 - share
            centre[new] += share * np.einsum("nj,njk->nk", rows, there[codes[new]])
        return centre, variance

    def intervals(self, x: Array, at: Places, times: Array | None, level: float | None) -> tuple[Array, ...]:
        """Return values and, with a level, lower and upper ends, (rows, outputs) each; with shocks of time steps."""
        centre, spread = self.moments(x, at, spread=level is not None)
        noise = np.broadcast_to(self.fit.noise, centre.shape)
        if self.panel is not None and times is not None:
            vectors, _ = positions(self.fit, self.graph, at.ids.groups, at.neighbors)
            shock, variance, lasting = self.panel.moments(times, vectors[at.ids.codes])
            same = lasting[:, None] ** 2
            centre, noise = centre + shock, (1.0 - same) * noise + same * self.panel.noise + variance
        values = centre * self.targets.scale + self.targets.center
        if level is None:
            return (values,)
        half = norm.ppf(0.5 + level / 2) * np.sqrt(spread + noise) * self.targets.scale
        return values, values - half, values + half

    def residuals(self, x: Array, y: Array, ids: GroupIds) -> Array:
        """Return the residuals of training rows, scaled inputs and targets."""
        likelihood = self.fit.likelihood
        where = likelihood.factors.means[ids.codes], likelihood.vectors[ids.codes], ids.codes
        parts = [self.fit.values(x[part], *(each[part] for each in where)) for part in chunks(len(x))]
        return np.asarray(y - np.concatenate(parts))

    def _clipped(self, scaled: Array) -> Array:
        return np.clip(scaled, self.low - FAR, self.high + FAR)

    def _means(self, scaled: Array, own: Array, at: Places, context: GroupMeans) -> Array:
        """Return the mean inputs of each row's group: those of training or, shrunk, of the rows to predict."""
        if self.context == "rows" and not at.unknown:
            seen, counts = context.means(at.ids.groups)
            means = (self.between / (self.between + self.within / counts + SMALL) * seen)[at.ids.codes]
        else:
            shown = np.zeros_like(scaled) if self.context == "none" else scaled
            means = self.between / (self.between + self.within + SMALL) * shown
        means[own >= 0] = self.fit.factors.means[own[own >= 0]]
        return np.asarray(means)

    def check(self) -> None:
        """Raise unless its parts fit together."""
        d, k = self.fit.factors.width, self.fit.factors.outputs
        if self.inputs.scale.shape != (d,) or self.targets.scale.shape != (k,) or not d:
            raise DataError(f"its factors are of {d} inputs and {k} targets: its array 'scale' has another shape.")
        for name in ("low", "high", "between", "within"):
            if getattr(self, name).shape != (d,):
                raise DataError(f"its array {name!r} has shape {getattr(self, name).shape}, expected {(d,)}.")
        if (self.between < 0).any() or (self.within < 0).any() or (self.low > self.high).any():
            raise DataError("its ranges or variances of inputs hold numbers beyond what they may.")
        if not 0.0 <= self.local <= 1.0 or (self.panel is not None and self.panel.outputs != k):
            raise DataError("its local regression, or its shocks, are not those of its targets.")
        check_placed(self.fit, self.graph)
        for fit in () if self.panel is None else self.panel.fits:
            check_placed(fit, self.graph)


def first_met(graph: GroupGraph, groups: Groups) -> Array:
    """Return by group of the graph the probabilities that a random walk first meets each training group."""
    weights = conductances(graph)
    inside = np.array([name in groups for name in graph.names])
    out = np.zeros((len(inside), len(groups)))
    out[inside, [groups.names.index(name) for name in graph.names if name in groups]] = 1.0
    if not inside.all():
        laplacian = np.diag(weights.sum(axis=1)) - weights
        new = np.ix_(~inside, ~inside)
        # A walk in a piece of the graph without training groups meets all of them alike.
        faint = SMALL * max(1.0, float(weights.max(initial=0.0)))
        enter = weights[np.ix_(~inside, inside)] @ out[inside] + faint / len(groups)
        out[~inside] = np.linalg.solve(laplacian[new] + faint * np.eye(len(laplacian[new])), enter)
        out[~inside] /= out[~inside].sum(axis=1, keepdims=True)
    return out
