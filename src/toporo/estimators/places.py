"""Places of rows to predict: their groups, where these are in the graph, and the means of their inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, is_classifier
from sklearn.metrics import accuracy_score, r2_score

from toporo.errors import GroupMismatchError, listed
from toporo.estimators.rows import UNKNOWN, ids_to_predict, warn_unknown
from toporo.groups import GroupIds, Groups
from toporo.robust.kriged import KrigedFit
from toporo.robust.modes import GraphModes
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

Neighbors = Mapping[Name, Iterable[Name]]


@dataclass(frozen=True, eq=False)
class GroupMeans:
    """Sums of inputs by group, which can be added up over portions of rows; missing values do not count.

    Attributes
    ----------
    groups : of the rows.
    sums, counts : of values, (groups, inputs).
    rows, outside : number of rows, and of those with inputs far beyond the training range.
    """

    groups: Groups
    sums: Array
    counts: Array
    rows: int
    outside: int

    @classmethod
    def of(cls, ids: GroupIds, inputs: Array, weights: Array | None = None, outside: int = 0) -> Self:
        """Add up rows.

        Parameters
        ----------
        ids, inputs, weights : group, inputs and weight of each row.
        outside : number of rows far beyond the training range.
        """
        there, mass = np.isfinite(inputs), np.ones(len(inputs)) if weights is None else weights
        sums, counts = (
            np.stack(
                [np.bincount(ids.codes, mass * column, len(ids.groups)) for column in columns.T], axis=1, dtype=float
            )
            for columns in (np.where(there, inputs, 0.0), there)
        )
        return cls(ids.groups, sums, counts, len(inputs), outside)

    def __add__(self, other: GroupMeans) -> GroupMeans:
        groups = Groups([*self.groups, *other.groups])
        sums, counts = (np.zeros((len(groups), self.sums.shape[1])) for _ in range(2))
        for part in (self, other):
            at = groups.encode(part.groups)
            sums[at] += part.sums
            counts[at] += part.counts
        return GroupMeans(groups, sums, counts, self.rows + other.rows, self.outside + other.outside)

    def means(self, groups: Groups) -> tuple[Array, Array]:
        """Return the mean inputs of groups, NaN where no value is known, and the number of values of each mean."""
        at = self.groups.encode(groups)
        with np.errstate(invalid="ignore"):
            return self.sums[at] / self.counts[at], self.counts[at]


#: Means of the inputs of the groups to predict, by the kind of inputs that a model takes means of.
Context = Mapping[str, GroupMeans]


def add_contexts(one: Context | None, other: Context) -> Context:
    """Add up the contexts of two portions of rows."""
    return other if one is None else {kind: one[kind] + other[kind] for kind in other}


@dataclass(frozen=True, eq=False)
class Places:
    """Places of the rows to predict.

    Attributes
    ----------
    ids : the group of each row.
    neighbors : of groups that are not in the graph, the groups there that they are next to.
    context : of all rows to predict, where these are some of them; None where they are all.
    """

    ids: GroupIds
    neighbors: Neighbors = field(default_factory=dict)
    context: Context | None = None

    @property
    def unknown(self) -> bool:
        """True for rows whose group is not known."""
        return UNKNOWN in self.ids.groups

    def group_means(self, kind: str, make: Callable[[], Context]) -> GroupMeans:
        """Return the means of a kind of inputs: those of the context or, without one, of the rows themselves."""
        return (self.context or make())[kind]


class GroupAwareEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Estimators whose predictions depend on the group of a row."""

    __metadata_request__fit = {"groups": True}  # noqa: RUF012  # scikit-learn's own name and type
    __metadata_request__predict = {"groups": True}  # noqa: RUF012
    __metadata_request__predict_proba = {"groups": True}  # noqa: RUF012
    __metadata_request__score = {"groups": True}  # noqa: RUF012

    groups_: Groups

    def score(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Return R² of the predictions or, of a classifier, the share of rows whose class is right.

        Parameters
        ----------
        X, y, groups, sample_weight : as in :meth:`fit`.
        """
        metric = accuracy_score if is_classifier(self) else r2_score
        return float(metric(y, self.predict(X, groups), sample_weight=sample_weight))

    def _places(self, groups: Any, rows: int, neighbors: Neighbors | None, context: Context | None = None) -> Places:
        """Return where rows to predict are; rows without groups are of an unknown one, with a warning."""
        ids = ids_to_predict(groups, self.groups_, rows)
        warn_unknown(ids.groups)
        return Places(ids, neighbors or {}, context)


# ---------------------------------------------------------------- in the graph


def hops_to(
    graph: GroupGraph | None, trained: Iterable[Name], names: Iterable[Name], neighbors: Neighbors | None = None
) -> Array:
    """Return the hops from groups to the nearest training group: 1 without a graph, the most plus one without a path.

    Parameters
    ----------
    graph : over the groups, perhaps not all.
    trained : the groups that a model was fitted to.
    names : the groups in question.
    neighbors : of groups that are not in the graph, those there that they are next to.
    """
    asked = list(names)
    if graph is None:
        return np.ones(len(asked))
    away = dict(graph.hops(list(trained)))
    for name, others in (neighbors or {}).items():
        away[name] = 1.0 + min((away[other] for other in others if other in away), default=math.inf)
    beyond = 1.0 + max(hops for hops in away.values() if math.isfinite(hops))
    return np.array([min(away.get(name, beyond), beyond) for name in asked])


def conductances(graph: GroupGraph) -> npt.NDArray[np.float64]:
    """Return the weights of the edges between groups: one over their lengths."""
    index = {name: node for node, name in enumerate(graph.names)}
    matrix = np.zeros((len(index), len(index)))
    for (a, b), length in graph.edges.items():
        matrix[index[a], index[b]] = matrix[index[b], index[a]] = 1.0 / length
    return matrix


def placed(
    graph: GroupGraph | None, groups: Groups, kind: type[GraphModes] = GraphModes
) -> tuple[GraphModes | None, list[int]]:
    """Return the modes of a graph, and the places of the training groups in it."""
    if graph is None:
        return None, []
    graph.require(groups, what="group(s) of the data")
    modes = kind.of(conductances(graph))
    # In the layout that a model folder gives them back in: products of matrices differ by it in their last bits.
    modes = kind(modes.values, np.ascontiguousarray(modes.vectors))
    return modes, [graph.names.index(name) for name in groups]


def check_placed(fit: KrigedFit, graph: GroupGraph | None) -> None:
    """Raise unless the modes of a fit are those of the graph's groups, at the places of the training groups."""
    if (graph is None) != (fit.modes is None):
        raise GroupMismatchError("its graph and the modes of the graph do not go together.")
    if graph is not None and fit.modes is not None:
        graph.require(fit.factors.groups)
        places = [graph.names.index(name) for name in fit.factors.groups]
        if len(fit.modes.vectors) != len(graph) or places != fit.places.tolist():
            raise GroupMismatchError("its array 'modes.vectors' is not that of the graph's groups.")


def positions(
    fit: KrigedFit, graph: GroupGraph | None, groups: Groups, neighbors: Neighbors
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return the vectors of groups in the modes of a fit, and their numbers among its groups, -1 for new ones."""
    trained = {name: code for code, name in enumerate(fit.factors.groups)}
    own = np.array([trained.get(name, -1) for name in groups])
    if fit.modes is None or graph is None:
        return np.zeros((len(groups), 0)), own
    return near(fit.modes.vectors, graph, groups, neighbors), own


def near(values: Array, graph: GroupGraph, groups: Groups, neighbors: Neighbors) -> Array:
    """Return values of groups: outside of the graph the mean over neighbours, and 0 for an unknown group."""
    index = {name: node for node, name in enumerate(graph.names)}
    strange = [name for name in groups if name not in index and name not in neighbors and name != UNKNOWN]
    if strange:
        raise GroupMismatchError(
            f"group(s) that are not in the graph: {listed(strange)}. Say which groups they are next to, "
            f"neighbors={{{strange[0]!r}: [...]}} (toporo predict --neighbors), leave their rows out, "
            "--drop-rows (of tables: drop_rows=True), or fit with a graph that has them."
        )
    rows = []
    for name in groups:
        if name == UNKNOWN:
            rows.append(np.zeros_like(values[0]))
            continue
        beside = [name] if name in index else list(neighbors[name])
        graph.require(beside, what=f"neighbour(s) of {name!r}")
        rows.append(values[[index[other] for other in beside]].mean(axis=0))
    return np.array(rows)
