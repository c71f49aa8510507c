r"""How central each training group is.

Every measure is a function ``(graph, train, test, weighted) -> {training group: value}``. With test groups it measures
from the training groups to them (the paper's physical topology); without (``test`` is None), among the training groups
(its data-driven topology), and ``graph`` is then the subgraph of the training groups. ``weighted`` says whether edge
lengths count. Names are checked before it is called. ``@register("name")`` adds one.
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
from toporo.topology.structure import GraphStructure
from toporo.types import Name

Values: TypeAlias = dict[Name, float]
Measure: TypeAlias = Callable[[GraphStructure, list[Name], list[Name] | None, bool], Values]

#: Name of a measure to its function; entry points of the group ``toporo.centralities`` add to it.
MEASURES: Registry[Measure] = Registry("centrality measure", "toporo.centralities")
register = MEASURES.register


def centrality(
    graph: GraphStructure,
    train: Iterable[Name],
    test: Iterable[Name] | None = None,
    *,
    measure: str = "betweenness",
    weighted: bool = False,
) -> Values:
    """Centrality of each training group.

    Parameters
    ----------
    graph : a given or learned graph.
    train, test : names of groups. With ``test=None`` the centrality is that in the subgraph of the training groups:
        other groups and their edges take no part. With test groups, paths may pass through any group.
    measure : a name of :data:`MEASURES`.
    weighted : whether edge lengths count. In the paper they do not: one hop is one hop.

    >>> import toporo as tr
    >>> line = tr.GroupGraph.from_edges([("NY", "PA"), ("PA", "OH"), ("OH", "IN")])
    >>> centrality(line, ["NY", "PA", "OH"], ["IN"])  # paths to IN that pass through
    {'NY': 0.0, 'PA': 1.0, 'OH': 2.0}
    """
    function = MEASURES[measure]
    inside = graph.require(train, what="training group(s)")
    outside = graph.require(test, what="test group(s)") if test is not None else None
    if len(inside) < 2:
        raise GraphError(f"only {len(inside)} training group(s): {listed(inside)}. Centrality compares at least two.")
    if outside is not None:
        _check_test(graph, inside, outside)
    else:
        graph = graph.subgraph(inside)
    isolated = [name for name in inside if not graph.neighbors(name)]
    if isolated:
        among = "" if outside is not None else " to another training group"
        warn(
            f"training group(s) without any edge{among}: {listed(isolated)}. Their centrality is the lowest possible; "
            "add their edges, or leave them out."
        )
    return function(graph, inside, outside, weighted)


@register("betweenness")
def betweenness(graph: GraphStructure, train: list[Name], test: list[Name] | None, weighted: bool = False) -> Values:
    r"""How many shortest paths pass through a group: :math:`c_e = \sum_{s,t} \sigma(s,t|e) / \sigma(s,t)`.

    s runs over training groups and t over test groups (every pair once), or over unordered pairs of training groups
    when there are no test groups. End points do not count. These are raw path counts, not normalised.
    """
    import networkx as nx

    targets = train if test is None else test
    weight = "weight" if weighted else None
    counts = nx.betweenness_centrality_subset(graph.to_networkx(), train, targets, normalized=False, weight=weight)
    # networkx halves the sum on undirected graphs, which is right only where both orders of a pair were counted.
    factor = 1.0 if test is None else 2.0
    return {name: factor * counts[name] for name in train}


@register("degree")
def degree(graph: GraphStructure, train: list[Name], test: list[Name] | None, weighted: bool = False) -> Values:
    """How many groups touch a group: of all groups, or without test groups of the training groups.

    With ``weighted``, a neighbour counts as 1 / length.
    """
    return {name: sum(1.0 / length if weighted else 1.0 for length in graph.neighbors(name).values()) for name in train}


@register("closeness")
def closeness(graph: GraphStructure, train: list[Name], test: list[Name] | None, weighted: bool = False) -> Values:
    """One over the mean distance to the test groups (or the other training groups); unreachable ones do not count.

    As usual for graphs in pieces, the value is multiplied by the fraction of targets that can be reached.
    """
    import networkx as nx

    targets = train if test is None else test
    full = graph.to_networkx()
    values = {}
    for name in train:
        reach = nx.single_source_dijkstra_path_length(full, name, weight="weight" if weighted else None)
        others = [other for other in targets if other != name]
        lengths = [reach[other] for other in others if other in reach]
        values[name] = (len(lengths) / sum(lengths)) * (len(lengths) / len(others)) if lengths else 0.0
    return values


@register("harmonic")
def harmonic(graph: GraphStructure, train: list[Name], test: list[Name] | None, weighted: bool = False) -> Values:
    r"""Where a random walk from the test groups first enters the training set.

    The walk starts at a test group drawn uniformly and steps to a neighbour drawn uniformly (with ``weighted``,
    in proportion to 1 / length) until it meets a training group. With transition blocks :math:`P_{UU}, P_{UE}` of the
    other groups U into U and into the training set E, the hitting probabilities solve
    :math:`(I - P_{UU}) H = P_{UE}`. The values sum to 1: this measure is a distribution already.
    """
    if test is None:
        raise SettingError("the harmonic measure walks from the test groups: name them with test=[...].")
    reach = graph.hops(train)
    starts = [name for name in test if reach[name] < math.inf]
    absorbing = {name: column for column, name in enumerate(train)}
    walking = [name for name in graph.names if name not in absorbing and reach[name] < math.inf]
    row_of = {name: row for row, name in enumerate(walking)}
    stay = sparse.lil_array((len(walking), len(walking)))
    enter = np.zeros((len(walking), len(train)))
    for name, row in row_of.items():
        conductance = {o: 1.0 / length if weighted else 1.0 for o, length in graph.neighbors(name).items()}
        total = sum(conductance.values())
        for other, value in conductance.items():
            if other in absorbing:
                enter[row, absorbing[other]] = value / total
            else:
                stay[row, row_of[other]] = value / total
    start = np.zeros(len(walking))
    start[[row_of[name] for name in starts]] = 1.0 / len(starts)
    # One solve with the transposed system instead of one a training group: start^T (I - P_UU)^-1 P_UE.
    visits = spsolve(sparse.csc_array(sparse.eye_array(len(walking)) - stay).T.tocsc(), start)
    return {name: float(value) for name, value in zip(train, np.atleast_1d(visits) @ enter, strict=True)}


def _check_test(graph: GraphStructure, train: list[Name], test: list[Name]) -> None:
    if not test:
        raise GraphError("the list of test groups is empty: name at least one, or pass test=None.")
    both = [name for name in test if name in set(train)]
    if both:
        raise GroupMismatchError(
            f"group(s) both in training and in test: {listed(both)}. A test group is one that training never sees; "
            "take them out of one of the two."
        )
    reach = graph.hops(train)
    lost = [name for name in test if reach[name] == math.inf]
    if len(lost) == len(test):
        raise GraphError(
            f"no path leads from any training group to any test group: the graph has {len(graph.components())} "
            f"pieces, and the test groups ({listed(test)}) lie in others than the training groups. Add edges that join "
            "them, or use a prior that needs no test groups (test=None)."
        )
    if lost:
        warn(
            f"no path leads from the training groups to test group(s) {listed(lost)}: the graph is disconnected, and "
            "they do not count towards centrality."
        )
