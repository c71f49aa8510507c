"""Centralities against independent computations: enumerated shortest paths, absorbing walks, hand examples."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toporo.errors import GraphError, GroupMismatchError, SettingError, TopoRoWarning, UnknownNameError
from toporo.topology.centrality import MEASURES, betweenness, centrality
from toporo.topology.graph import GroupGraph

from .strategies import graphs

quick = settings(deadline=None, max_examples=60)

#: a – b – c – x – y
CHAIN = GroupGraph.from_edges([("a", "b"), ("b", "c"), ("c", "x"), ("x", "y")])


def count_paths(graph: GroupGraph, inside: list[Any], pairs: Iterable[tuple[Any, Any]]) -> dict[Any, float]:
    """Sum over pairs of the fraction of shortest paths that pass through a group, by listing every path."""
    full = graph.to_networkx()
    counts = dict.fromkeys(inside, 0.0)
    for s, t in pairs:
        if nx.has_path(full, s, t):
            paths = list(nx.all_shortest_paths(full, s, t))
            for name in counts:
                counts[name] += sum(name in path[1:-1] for path in paths) / len(paths)
    return counts


def absorb(graph: GroupGraph, inside: list[Any], outside: list[Any]) -> dict[Any, float]:
    """Where the walk from the test groups ends, by taking the absorbing chain to the power 2^40."""
    strength = nx.to_numpy_array(graph.to_networkx(), weight=None)
    step = strength / strength.sum(axis=1, keepdims=True)
    codes = graph.groups.encode(inside)
    step[codes] = np.eye(len(graph))[codes]
    start = np.bincount(graph.groups.encode(outside), minlength=len(graph)) / len(outside)
    end = start @ np.linalg.matrix_power(step, 2**40)
    return {name: end[code] for name, code in zip(inside, codes, strict=True)}


@st.composite
def splits(draw: Any, **kwargs: Any) -> tuple[GroupGraph, list[Any], list[Any]]:
    """A graph, at least two training groups, at least one test group, perhaps others."""
    graph = draw(graphs(min_nodes=3, max_nodes=7, **kwargs))
    order = draw(st.permutations(graph.names))
    train = draw(st.integers(2, len(order) - 1))
    test = draw(st.integers(1, len(order) - train))
    return graph, order[:train], order[train : train + test]


# ---------------------------------------------------------------------- betweenness


@quick
@given(splits())
def test_betweenness_counts_every_train_test_pair_once(split: Any) -> None:
    graph, train, test = split
    expected = count_paths(graph, train, itertools.product(train, test))
    assert betweenness(graph, train, test) == pytest.approx(expected)


@quick
@given(splits())
def test_betweenness_without_test_groups_counts_unordered_training_pairs(split: Any) -> None:
    graph, train, _ = split
    expected = count_paths(graph, train, itertools.combinations(train, 2))
    assert betweenness(graph, train, None) == pytest.approx(expected)


@pytest.mark.parametrize("measure", [name for name in MEASURES if name != "harmonic"])
def test_without_test_groups_other_groups_take_no_part(measure: str) -> None:
    """Nor would a prior say so: its ``saw`` is empty."""
    edges = [("a", "x"), ("x", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    graph = GroupGraph.from_edges(edges)  # the shortest path from a to b leads through x
    expected = centrality(graph.subgraph("abcd"), "abcd", measure=measure)
    assert centrality(graph, "abcd", measure=measure) == expected
    assert expected["d"] > expected["b"]


# ---------------------------------------------------------------------- degree and closeness


def test_degree_by_hand() -> None:
    star = GroupGraph.from_edges([("m", "a", 2), ("m", "b", 4), ("m", "x", 1), ("a", "b", 1)])
    assert centrality(star, ["m", "a", "b"], ["x"], measure="degree") == {"m": 3, "a": 2, "b": 2}
    assert centrality(star, ["m", "a", "b"], measure="degree") == {"m": 2, "a": 2, "b": 2}  # among training groups


def test_closeness_by_hand() -> None:
    """One over the mean distance: to x and y, or to the other training groups."""
    assert centrality(CHAIN, "abc", "xy", measure="closeness") == {"a": 1 / 3.5, "b": 1 / 2.5, "c": 1 / 1.5}
    assert centrality(CHAIN, "abc", measure="closeness") == {"a": 1 / 1.5, "b": 1, "c": 1 / 1.5}
    roads = GroupGraph.from_edges([("a", "b", 2), ("b", "x", 0.5)])
    assert centrality(roads, "ab", "x", measure="closeness") == {"a": 1 / 2, "b": 1}
    pieces = GroupGraph.from_edges([("a", "x"), ("a", "y"), ("b", "z")])
    values = centrality(pieces, "ab", "xyz", measure="closeness")  # times the fraction that can be reached
    assert values == {"a": pytest.approx(2 / 3), "b": pytest.approx(1 / 3)}


# ---------------------------------------------------------------------- harmonic


@quick
@given(splits(connected=True))
def test_harmonic_is_where_the_walk_is_absorbed(split: Any) -> None:
    graph, train, test = split
    found = centrality(graph, train, test, measure="harmonic")
    assert found == pytest.approx(absorb(graph, train, test), abs=1e-10)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)


def test_harmonic_of_a_graph_in_pieces_starts_where_a_training_group_can_be_reached() -> None:
    pieces = GroupGraph.from_edges([("a", "x", 1.0), ("b", "x", 3.0), ("c", "y"), ("z", "other")], nodes=["alone"])
    with pytest.warns(TopoRoWarning, match=r"to test group\(s\) 'z', 'alone'"):
        found = centrality(pieces, "abc", ["x", "z", "alone"], measure="harmonic")
    assert found == pytest.approx({"a": 1 / 2, "b": 1 / 2, "c": 0.0})
    both = centrality(pieces, "abc", ["x", "y"], measure="harmonic")
    assert both == pytest.approx({"a": 1 / 4, "b": 1 / 4, "c": 1 / 2})


def test_harmonic_needs_test_groups() -> None:
    with pytest.raises(SettingError, match=r"walks from the test groups: name them with test="):
        centrality(CHAIN, "abc", measure="harmonic")


# ---------------------------------------------------------------------- laws of all measures


@pytest.mark.parametrize("measure", sorted(MEASURES))
@quick
@given(split=splits(connected=True), random=st.randoms(use_true_random=False))
def test_values_go_by_name(measure: str, split: Any, random: Any) -> None:
    """Renaming the groups and naming them in another order renames the values."""
    graph, train, test = split
    rename = dict(zip(graph.names, random.sample([f"g{i}" for i in graph.names], len(graph)), strict=True))
    renamed = GroupGraph.from_edges([(rename[a], rename[b], length) for (a, b), length in graph.edges.items()])
    values = centrality(graph, train, test, measure=measure)
    names = [iter([rename[name] for name in reversed(part)]) for part in (train, test)]
    again = centrality(renamed, *names, measure=measure)
    assert {rename[name]: value for name, value in values.items()} == pytest.approx(again, abs=1e-12)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("train", "test", "settings", "error", "message"),
    [
        (
            "abc",
            "xy",
            {"measure": "pagerank"},
            UnknownNameError,
            "unknown centrality measure 'pagerank'.*betweenness, closeness, degree, harmonic",
        ),
        ("abc", "cx", {}, GroupMismatchError, "both in training and in test: 'c'"),
        (
            "abQR",
            "x",
            {},
            GroupMismatchError,
            r"training group\(s\) not in the graph: 'Q', 'R'. The graph has 5 groups: 'a', 'b', 'c', 'x', 'y'",
        ),
        ("abc", "xQ", {}, GroupMismatchError, r"test group\(s\) not in the graph: 'Q'"),
        ("abc", "", {}, GraphError, "list of test groups is empty"),
        ("a", "x", {}, GraphError, r"only 1 training group\(s\): 'a'"),
        ("aa", None, {}, GraphError, r"only 1 training group\(s\): 'a'"),
        ("", "x", {}, GraphError, r"only 0 training group\(s\)"),
    ],
    ids=["measure", "overlap", "unknown train", "unknown test", "no test", "one train", "one train twice", "no train"],
)
def test_bad_input(train: str, test: str | None, settings: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        centrality(CHAIN, train, test, **settings)


@pytest.mark.parametrize("measure", sorted(MEASURES))
def test_no_path_from_train_to_test_is_an_error(measure: str) -> None:
    graph = GroupGraph.from_edges([("a", "b"), ("x", "y")])
    with pytest.raises(GraphError, match=r"no path leads from any training group.*2 pieces.*'x', 'y'"):
        centrality(graph, "ab", "xy", measure=measure)


@pytest.mark.parametrize("measure", sorted(MEASURES))
def test_test_groups_out_of_reach_warn_and_do_not_count(measure: str) -> None:
    near = GroupGraph.from_edges([("a", "b"), ("b", "x")])
    far = GroupGraph.from_edges([("a", "b"), ("b", "x"), ("y", "z")])
    with pytest.warns(TopoRoWarning, match=r"test group\(s\) 'y'") as caught:
        values = centrality(far, "ab", "xy", measure=measure)
    assert len(caught) == 1, [str(warning.message) for warning in caught]
    if measure != "closeness":  # which is scaled by the share of targets in reach
        assert values == centrality(near, "ab", "x", measure=measure)


@pytest.mark.parametrize("measure", sorted(MEASURES))
def test_an_isolated_training_group_warns_and_comes_last(measure: str) -> None:
    graph = GroupGraph.from_edges([("a", "b"), ("b", "x")], nodes=["lone"])
    with pytest.warns(TopoRoWarning, match=r"training group\(s\) without any edge: 'lone'"):
        values = centrality(graph, ["a", "b", "lone"], ["x"], measure=measure)
    assert values["lone"] == 0 == min(values.values())


# ---------------------------------------------------------------------- one more


def test_a_measure_of_one_s_own_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MEASURES, "_things", dict(MEASURES))

    @MEASURES.register("nearness")
    def nearness(graph: GroupGraph, train: list[Any], test: list[Any] | None) -> dict[Any, float]:
        """One over the hops to the nearest test group."""
        hops = graph.hops(test or train)
        return {name: 1.0 / hops[name] for name in train}

    assert centrality(CHAIN, "abc", "xy", measure="nearness") == {"a": 1 / 3, "b": 1 / 2, "c": 1}
    assert CHAIN.prior("abc", "xy", measure="nearness", normalization="sum")["c"] == pytest.approx(6 / 11)
    with pytest.raises(SettingError, match="already a centrality measure named 'degree'"):
        MEASURES.register("degree")(nearness)
    with pytest.raises(UnknownNameError, match=r"Did you mean 'nearness'"):
        centrality(CHAIN, "abc", "xy", measure="nearnes")
