r"""Centrality of training groups.

A measure is a function ``(graph, train, test) -> {training group: value}``. With test groups it measures from the
training groups to them (the paper's physical topology). Without (``test`` is None) it measures among the training
groups (the paper's data-driven topology), and ``graph`` is the subgraph of the training groups. Edge lengths do not
count: one hop is one hop. Names are checked before the call. ``@register("name")`` adds a measure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

from toporo.errors import GraphError, GroupMismatchError, SettingError, listed, warn
from toporo.registry import Registry
from toporo.topology.graph import GroupGraph
from toporo.types import Name

Values: TypeAlias = dict[Name, float]
Measure: TypeAlias = Callable[[GroupGraph, list[Name], list[Name] | None], Values]

#: Measures by name; entry points of the group ``toporo.centralities`` add to them.
MEASURES: Registry[Measure] = Registry("centrality measure", "toporo.centralities")
register = MEASURES.register


def centrality(
    graph: GroupGraph, train: Iterable[Name], test: Iterable[Name] | None = None, *, measure: str = "betweenness"
) -> Values:
    """Return the centrality of each training group.

    Parameters
    ----------
    graph : a given or learned graph.
    train, test : names of groups. With ``test=None`` the centrality is that in the subgraph of the training groups:
        other groups and their edges take no part. With test groups, paths may pass through any group.
    measure : a name of :data:`MEASURES`.

    >>> import toporo as tr
    >>> line = tr.GroupGraph.from_edges([("NY", "PA"), ("PA", "OH"), ("OH", "IN")])
    >>> centrality(line, ["NY", "PA", "OH"], ["IN"])  # paths to IN that pass through
    {'NY': 0.0, 'PA': 1.0, 'OH': 2.0}
    """
    function = MEASURES[measure]
    train = graph.require(train, what="training group(s)")
    if len(train) < 2:
        raise GraphError(f"only {len(train)} training group(s): {listed(train)}. Centrality compares at least two.")
    if test is None:
        graph = graph.subgraph(train)
    else:
        test = graph.require(test, what="test group(s)")
        _check_test(graph, train, test)
    isolates = [name for name in train if not graph.neighbors(name)]
    if isolates:
        warn(
            f"training group(s) without any edge{' to another training group' if test is None else ''}: "
            f"{listed(isolates)}. Their centrality is the lowest possible; add their edges, or leave them out."
        )
    return function(graph, train, test)


@register("betweenness")
def betweenness(graph: GroupGraph, train: list[Name], test: list[Name] | None) -> Values:
    r"""Count the shortest paths through a group: :math:`c_e = \sum_{s,t} \sigma(s,t|e) / \sigma(s,t)`.

    s runs over training groups and t over test groups (every pair once), or over unordered pairs of training groups
    when there are no test groups. End points do not count. These are raw path counts, not normalised.
    """
    import networkx as nx

    targets = train if test is None else test
    counts = nx.betweenness_centrality_subset(graph.to_networkx(), train, targets, normalized=False)
    # networkx halves the sum on undirected graphs, which is right only where both orders of a pair were counted.
    factor = 1.0 if test is None else 2.0
    return {name: factor * counts[name] for name in train}


@register("degree")
def degree(graph: GroupGraph, train: list[Name], test: list[Name] | None) -> Values:
    """Count the neighbours of a group: among all groups, or without test groups among the training groups."""
    return {name: float(len(graph.neighbors(name))) for name in train}


@register("closeness")
def closeness(graph: GroupGraph, train: list[Name], test: list[Name] | None) -> Values:
    """Invert the mean distance to the test groups (or the other training groups); unreachable ones do not count.

    As usual for disconnected graphs, the value is multiplied by the fraction of targets that can be reached.
    """
    targets = train if test is None else test
    values = {}
    for name in train:
        hops = graph.hops([name])
        others = [other for other in targets if other != name]
        reached = [hops[other] for other in others if hops[other] < math.inf]
        values[name] = (len(reached) / sum(reached)) * (len(reached) / len(others)) if reached else 0.0
    return values


@register("harmonic")
def harmonic(graph: GroupGraph, train: list[Name], test: list[Name] | None) -> Values:
    r"""Compute where a random walk from the test groups first enters the training set.

    The walk starts at a test group drawn uniformly and steps to a neighbour drawn uniformly until it meets a training
    group. With transition blocks :math:`P_{UU}, P_{UE}` of the other groups U into U and into the training set E, the
    hitting probabilities solve :math:`(I - P_{UU}) H = P_{UE}`. The values sum to 1: this measure is a distribution
    already.
    """
    import networkx as nx

    if test is None:
        raise SettingError("the harmonic measure walks from the test groups: name them with test=[...].")
    reach = graph.hops(train)
    code_of = {name: code for code, name in enumerate(graph.names)}
    inside = [code_of[name] for name in train]
    outside = [code_of[name] for name, hops in reach.items() if 0 < hops < math.inf]
    walk = nx.to_scipy_sparse_array(graph.to_networkx(), graph.names, dtype=float, weight=None)[outside]
    steps = sparse.csr_array(walk / walk.sum(axis=1)[:, None])
    starts = [code_of[name] for name in test if reach[name] < math.inf]
    start = np.isin(outside, starts) / len(starts)
    # One solve with the transposed system instead of one per training group: start^T (I - P_UU)^-1 P_UE.
    visits = spsolve((sparse.eye_array(len(outside)) - steps[:, outside]).T.tocsc(), start)
    values = np.atleast_1d(visits) @ steps[:, inside]
    return {name: float(value) for name, value in zip(train, values, strict=True)}


def _check_test(graph: GroupGraph, train: list[Name], test: list[Name]) -> None:
    """Check that test groups are apart from the training groups, and that a path leads to some of them."""
    if not test:
        raise GraphError("the list of test groups is empty: name at least one, or pass test=None.")
    if both := [name for name in test if name in train]:
        raise GroupMismatchError(
            f"group(s) both in training and in test: {listed(both)}. A test group is one that training never sees; "
            "take them out of one of the two."
        )
    reach = graph.hops(train)
    unreached = [name for name in test if reach[name] == math.inf]
    if len(unreached) == len(test):
        raise GraphError(
            f"no path leads from any training group to any test group: the graph has {len(graph.components())} "
            f"pieces, and the test groups ({listed(test)}) lie in others than the training groups. Add edges that join "
            "them, or use a prior that needs no test groups (test=None)."
        )
    if unreached:
        warn(
            f"no path leads from the training groups to test group(s) {listed(unreached)}: the graph is disconnected, "
            "and they do not count towards centrality."
        )
