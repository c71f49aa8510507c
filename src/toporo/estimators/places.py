"""Where groups are in a graph, as kriged models need to know it: modes, neighbours, random walks, trust."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.errors import GroupMismatchError, listed
from toporo.estimators.rows import UNKNOWN
from toporo.groups import Groups
from toporo.robust.kriged import KrigedFit
from toporo.robust.modes import GraphModes
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

#: In place of a variance or a weight of nothing.
SMALL = 1e-12


def placed(
    graph: GroupGraph | None, groups: Groups, kind: type[GraphModes] = GraphModes
) -> tuple[GraphModes | None, list[int]]:
    """The modes of a graph, and where the training groups are in it."""
    if graph is None:
        return None, []
    graph.require(groups, what="group(s) of the data")
    modes = kind.of(conductances(graph))
    # In the layout that a model folder gives them back in: products of matrices differ by it in their last bits.
    modes = kind(modes.values, np.ascontiguousarray(modes.vectors))
    return modes, [graph.names.index(name) for name in groups]


def vectors_of(
    fit: KrigedFit, graph: GroupGraph | None, groups: Groups, neighbors: Mapping[Name, Iterable[Name]]
) -> Array:
    """Places of groups in the modes that a fit kept; of those not in the graph, between their neighbours."""
    modes = fit.likelihood.modes
    if modes is None or graph is None:
        return np.zeros((len(groups), 0))
    return near(modes.vectors, graph, groups, neighbors)


def near(values: Array, graph: Any, groups: Groups, neighbors: Mapping[Name, Iterable[Name]]) -> Array:
    """Values by group of the graph, for these groups: the mean over its neighbours if not in it, 0 if unknown."""
    index = {name: place for place, name in enumerate(graph.names)}
    strange = [name for name in groups if name not in index and name not in neighbors and name != UNKNOWN]
    if strange:
        raise GroupMismatchError(
            f"group(s) that are not in the graph: {listed(strange)}. Say which groups they are next to, "
            f"neighbors={{{strange[0]!r}: [...]}}, leave their rows out, "
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


def walks(graph: GroupGraph, groups: Groups) -> Array:
    """Where a random walk from each group of the graph first meets a training group, (groups of the graph, m)."""
    weights = conductances(graph)
    inside = np.array([name in groups for name in graph.names])
    out = np.zeros((len(inside), len(groups)))
    out[inside, [groups.names.index(name) for name in graph.names if name in groups]] = 1.0
    if not inside.all():
        laplacian = np.diag(weights.sum(axis=1)) - weights
        new = np.ix_(~inside, ~inside)
        # Who meets nobody, in a piece of the graph without training groups, meets all alike.
        faint = SMALL * max(1.0, float(weights.max(initial=0.0)))
        enter = weights[np.ix_(~inside, inside)] @ out[inside] + faint / len(groups)
        out[~inside] = np.linalg.solve(laplacian[new] + faint * np.eye(len(laplacian[new])), enter)
        out[~inside] /= out[~inside].sum(axis=1, keepdims=True)
    return out


def trust(fit: KrigedFit, graph: GroupGraph | None) -> dict[Name, float]:
    """One less the variance of a group's coefficients over the usual one between groups, intercept and slopes alike."""
    trained = fit.likelihood.factors.groups
    names = tuple(trained) if graph is None else graph.names
    modes = fit.likelihood.modes
    vectors = np.zeros((len(names), 0)) if modes is None else modes.vectors
    own = np.array([trained.names.index(name) if name in trained else -1 for name in names])
    d = fit.likelihood.factors.width
    nowhere = np.zeros((len(names), d))
    before, after = (np.zeros(len(names)) for _ in range(2))
    for place in range(d + 1):
        unit = np.zeros((len(names), d + 1))
        unit[:, place] = 1.0
        for solved, weight in fit.counting:
            before += weight * solved.between(unit, nowhere, vectors)
            after += weight * solved.variances(unit, nowhere, vectors, own, apart=True)
    usual = float(before.mean())
    share = 1.0 - after / usual if usual > SMALL else np.ones(len(names))
    return {name: float(value) for name, value in zip(names, np.clip(share, 0.0, 1.0), strict=True)}


def conductances(graph: GroupGraph) -> npt.NDArray[np.float64]:
    """How much neighbours have to do with each other: one over the length of the edge."""
    places = {name: place for place, name in enumerate(graph.names)}
    matrix = np.zeros((len(places), len(places)))
    for (a, b), length in graph.edges.items():
        matrix[places[a], places[b]] = matrix[places[b], places[a]] = 1.0 / length
    return matrix
