"""GroupGraph: the same graph from every form it can be given in; exact round trips, errors that name the culprit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from toporo.errors import GraphError, GroupMismatchError, TopoRoError
from toporo.topology import GroupGraph, Origin

from .strategies import graphs

quick = settings(deadline=None, max_examples=60)

EDGES = [("NY", "PA"), ("PA", "OH"), ("OH", "IN")]
LONG = [("NY", "PA", 2.0), ("PA", "OH", 0.5), ("OH", "IN", 1.0)]
NAMES = ["IN", "NY", "OH", "PA"]


@pytest.fixture
def chain() -> GroupGraph:
    """NY – PA – OH – IN."""
    return GroupGraph.from_edges(EDGES)


@pytest.fixture
def roads() -> GroupGraph:
    """The same with lengths."""
    return GroupGraph.from_edges(LONG)


# ---------------------------------------------------------------------- one graph, many forms

MATRIX = np.array([[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0]])
LENGTH_MATRIX = np.array([[0, 0, 1, 0], [0, 0, 0, 2.0], [1, 0, 0, 0.5], [0, 2.0, 0.5, 0]])


@pytest.mark.parametrize(
    "same",
    [
        pytest.param(lambda: GroupGraph.from_edges([(b, a) for a, b in reversed(EDGES)]), id="edges reversed"),
        pytest.param(lambda: GroupGraph.from_edges(EDGES + [(b, a) for a, b in EDGES]), id="edges both ways"),
        pytest.param(lambda: GroupGraph.from_edges(np.array(EDGES)), id="edges as an array"),
        pytest.param(lambda: GroupGraph.from_edges([(a, b, 1) for a, b in EDGES]), id="edges of length 1"),
        pytest.param(lambda: GroupGraph.from_adjacency(MATRIX, NAMES), id="adjacency"),
        pytest.param(
            lambda: GroupGraph.from_adjacency(MATRIX.astype(bool).tolist(), NAMES), id="nested lists of bools"
        ),
        pytest.param(lambda: GroupGraph.from_adjacency(MATRIX + 3 * np.eye(4), NAMES), id="adjacency with a diagonal"),
        pytest.param(
            lambda: GroupGraph.from_adjacency(MATRIX[::-1, ::-1], NAMES[::-1]), id="adjacency in another order"
        ),
        pytest.param(lambda: GroupGraph.from_adjacency(sparse.coo_array(MATRIX), NAMES), id="sparse array"),
        pytest.param(lambda: GroupGraph.from_networkx(nx.Graph([*EDGES, ("NY", "NY")])), id="networkx with a loop"),
        pytest.param(lambda: GroupGraph.from_edges({"PA": ["NY", "OH"], "IN": {"OH"}}), id="neighbours, one way"),
        pytest.param(
            lambda: GroupGraph.from_edges({"NY": ["PA"], "PA": ("NY", "OH"), "OH": ["PA", "IN"], "IN": ["OH"]}),
            id="neighbours, both ways",
        ),
    ],
)
def test_every_form_gives_the_same_graph(same: Any, chain: GroupGraph) -> None:
    assert same() == chain
    assert hash(same()) == hash(chain)
    assert set(same().edges.values()) == {1.0}


@pytest.mark.parametrize(
    "same",
    [
        pytest.param(lambda: GroupGraph.from_edges([(b, a, length) for a, b, length in LONG]), id="edges"),
        pytest.param(lambda: GroupGraph(NAMES, {(a, b): length for a, b, length in LONG}), id="lengths by pair"),
        pytest.param(
            lambda: GroupGraph.from_edges({"PA": {"NY": 2, "OH": 0.5}, "OH": {"IN": 1}}), id="neighbours by group"
        ),
        pytest.param(lambda: GroupGraph.from_adjacency(LENGTH_MATRIX, NAMES), id="adjacency"),
        pytest.param(lambda: GroupGraph.from_adjacency(sparse.csc_array(LENGTH_MATRIX), NAMES), id="sparse"),
        pytest.param(
            lambda: GroupGraph.from_networkx(nx.from_edgelist((a, b, {"km": w}) for a, b, w in LONG), length="km"),
            id="networkx attribute",
        ),
    ],
)
def test_every_form_keeps_the_lengths(same: Any, roads: GroupGraph) -> None:
    assert same() == roads
    assert same().neighbors("PA") == {"NY": 2.0, "OH": 0.5}
    assert repr(same()) == "GroupGraph(4 groups, 3 edges, weighted, given)"


def test_rounding_does_not_make_a_matrix_asymmetric_and_groups_that_touch_nobody_are_kept() -> None:
    matrix = np.array([[0, 0.1 + 0.2, 0], [0.3, 0, 0], [0, 0, 0]])
    graph = GroupGraph.from_adjacency(matrix, names="abc")
    assert len(graph.edges) == 1
    for same in (graph, GroupGraph.from_edges([("a", "b")], nodes=["c"]), GroupGraph.from_edges({"a": ["b"], "c": []})):
        assert same.isolates == ("c",)
        assert same.neighbors("c") == {}


def test_equality_sees_groups_edges_and_lengths_but_not_the_origin(chain: GroupGraph, roads: GroupGraph) -> None:
    assert chain != roads
    assert chain != GroupGraph.from_edges(EDGES[:2], nodes=["IN"])
    assert chain != GroupGraph.from_edges(EDGES, nodes=["CA"])
    assert chain != EDGES
    assert chain == GroupGraph(chain.names, chain.edges, origin=Origin("learned"), positions={"NY": (0, 0)})


@quick
@given(graphs())
def test_round_trips_through_networkx_and_its_adjacency(graph: GroupGraph) -> None:
    exported = graph.to_networkx()
    assert GroupGraph.from_networkx(exported) == graph
    assert GroupGraph.from_adjacency(nx.to_numpy_array(exported, nodelist=graph.names), graph.names) == graph


# ---------------------------------------------------------------------- hops, components, subgraphs


@quick
@given(graphs(), st.data())
def test_hops_are_networkx_shortest_path_lengths(graph: GroupGraph, data: Any) -> None:
    sources = data.draw(st.lists(st.sampled_from(graph.names), min_size=1, max_size=3))
    reach = [nx.single_source_shortest_path_length(graph.to_networkx(), source) for source in sources]
    expected = {name: min(lengths.get(name, math.inf) for lengths in reach) for name in graph.names}
    assert graph.hops(sources) == expected


def test_subgraph_keeps_origin_and_positions_and_an_edge_needs_both_its_groups() -> None:
    origin = Origin("learned", True, {"cut": "knn"})
    graph = GroupGraph("abc", {("a", "b"): 2.0}, origin=origin, positions={"a": (0, 1), "b": (2, 3), "c": (4, 5)})
    part = graph.subgraph(["b", "a"])
    assert (part.origin, part.positions) == (origin, {"a": (0, 1), "b": (2, 3)})
    with pytest.raises(GraphError, match="'a'–'z' names 'z', which is not among the graph's groups"):
        graph.replace(edges={("a", "z"): 1.0})


# ---------------------------------------------------------------------- resamples

DRAWS = [{("NY", "PA"): 1.5, ("OH", "PA"): 2.0}, {("NY", "PA"): 1.25, ("IN", "OH"): 3.0, ("IN", "NY"): 1.0}]


def resampled() -> GroupGraph:
    """The chain with the edges of two resamples, given in any order."""
    draws = [{(b, a): length for (a, b), length in reversed(draw.items())} for draw in DRAWS]
    return GroupGraph(NAMES, LONG, bootstrap_edges=draws)


def test_stability_is_the_fraction_of_resamples_that_keep_an_edge(roads: GroupGraph) -> None:
    assert resampled().stability == {("IN", "OH"): 0.5, ("NY", "PA"): 1.0, ("OH", "PA"): 0.5}
    assert list(resampled().stability or {}) == list(roads.edges)
    assert nx.get_edge_attributes(resampled().to_networkx(), "stability") == resampled().stability
    assert roads.stability is None
    assert resampled() == roads
    assert hash(resampled()) == hash(roads)


def test_resamples_survive_json_and_go_with_their_groups(roads: GroupGraph) -> None:
    for same in (
        resampled(),
        GroupGraph.from_json(resampled().to_json()),
        resampled().replace(positions={"NY": (0, 1)}),
    ):
        assert list(same.bootstrap_edges) == DRAWS
        part = same.subgraph(["NY", "PA"])
        assert list(part.bootstrap_edges) == [{("NY", "PA"): 1.5}, {("NY", "PA"): 1.25}]
    assert roads.bootstrap_edges == ()
    assert "bootstrap_edges" not in json.loads(roads.to_json())


# ---------------------------------------------------------------------- JSON


@quick
@given(
    st.lists(
        st.text(max_size=3) | st.integers(-9, 9) | st.tuples(st.text(max_size=2), st.integers(0, 3)),
        min_size=1,
        unique=True,
    ),
    st.data(),
)
def test_json_round_trip_is_exact(names: list[Any], data: Any) -> None:
    drawn = data.draw(
        st.dictionaries(st.tuples(st.sampled_from(names), st.sampled_from(names)), st.floats(1e-300, 1e300))
    )
    edges = {pair: w for pair, w in drawn.items() if pair[0] != pair[1] and pair[::-1] not in drawn}
    origin = Origin(
        "learned", data.draw(st.booleans()), {"sigma": data.draw(st.floats(0.1, 9)), "cut": "knn", "order": 3}
    )
    places = st.none() | st.fixed_dictionaries({name: st.tuples(st.floats(-9, 9), st.floats(-9, 9)) for name in names})
    graph = GroupGraph(names, edges, origin=origin, positions=data.draw(places))
    again = GroupGraph.from_json(graph.to_json())
    assert again == graph
    assert [type(name) for name in again.names] == [type(name) for name in graph.names]
    assert again.origin == graph.origin
    assert again.positions == graph.positions
    assert again.to_json() == graph.to_json()


def test_json_file_round_trip(tmp_path: Path, roads: GroupGraph) -> None:
    path = tmp_path / "new folder" / "graph.json"
    text = roads.to_json(path)
    assert json.loads(text) == json.loads(path.read_text(encoding="utf-8"))
    assert GroupGraph.from_json(path) == GroupGraph.from_json(str(path)) == roads
    assert list(path.parent.iterdir()) == [path]


HEAD = '"schema": "toporo.graph/1", "groups": ["a", "b"]'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": "toporo.graph/1", ', r"the JSON text is not valid JSON \(.*line 1"),
        ('{"schema": "toporo.graph/9"}', r"expected schema 'toporo.graph/1', found 'toporo.graph/9'"),
        (f"{{{HEAD}}}", r"damaged: its form is wrong: it lacks edges"),
        (f'{{{HEAD}, "edges": [["a", "b"]]}}', r"damaged: .*expected a list of length 3, found 2, at edges\[0\]"),
        (
            f'{{{HEAD}, "edges": [["a", "b", null]]}}',
            r"damaged: .*expected a number, found nothing, at edges\[0\]\[2\]",
        ),
        (f'{{{HEAD}, "edges": 3}}', r"damaged: .*expected a list, found a whole number, at edges"),
        (
            f'{{{HEAD}, "edges": [], "origin": {{"kind": 1}}}}',
            r"damaged: .*expected text, found a whole number, at origin.kind",
        ),
        (f'{{{HEAD}, "edges": [], "positions": [["a", [1]]]}}', r"damaged: .*of length 2, found 1, at positions"),
        (f'{{{HEAD}, "edges": [["a", "z", 1]]}}', r"'a'–'z' names 'z', which is not among the graph's groups"),
        (f'{{{HEAD}, "edges": [], "positions": [["a", [0, 1e200]]]}}', "is not a pair of numbers within 1e"),
        (f'{{{HEAD}, "edges": [], "bootstrap_edges": [["a", "b", [-1]]]}}', r"is damaged: .* > 0"),
        (f'{{{HEAD}, "edges": [], "bootstrap_edges": [["a", "b", []], ["b", "a", [1]]]}}', "one length per resample"),
        (f'{{{HEAD}, "edges": [["a", "b", 1], ["a", "b", 2]]}}', r"'a'–'b' is given twice with different lengths"),
    ],
)
def test_damaged_json_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        GroupGraph.from_json(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the graph file .*graph.json.*No such file"),
        (b"NY,PA\n", "graph.json is not valid JSON"),
        (b'["NY"]', "graph.json is not a toporo graph.*found 'list'"),
        (b"\x89PNG\xff", "graph.json"),
    ],
    ids=["absent", "CSV", "JSON of another kind", "binary"],
)
def test_unreadable_json_files_are_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(GraphError, match=message):
        GroupGraph.from_json(path)


@pytest.mark.parametrize(
    "positions", [{"a": (0, 10**400)}, {"a": "xy"}, {"a": 3}, {"a": (1, 2, 3)}, {"a": (0, math.inf)}]
)
def test_positions_are_pairs_of_numbers(positions: Any) -> None:
    with pytest.raises(GraphError, match="position of 'a'"):
        GroupGraph("ab", {("a", "b"): 1}, positions=positions)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([], "the edge list is empty"),
        ([("a", "b"), "cd"], r"edge 1 is 'cd': expected a pair"),
        ([(None, "a")], "group name is missing"),
        ([()], r"edge 0 is \(\): .*or \(a,\) for a group that touches nobody"),
        ([("a", None, 2.0)], "group name is missing"),
        ([{"a", "b"}], "edge 0 is"),
        ([("a", "a")], "'a' has an edge to itself"),
        ([("a", "b", 0)], "'a'–'b' has length 0: a length is a positive and finite number"),
        ([("a", "b", math.inf)], "has length inf"),
        ([("a", "b", math.nan)], "has length nan"),
        ([("a", "b", "far")], "'a'–'b' has length 'far': a length is a positive"),
        ([("a", "b", 1), ("a", "b", 2)], r"'a'–'b' is given twice with different lengths \(1 and 2\)"),
        ([("a", "b", 1), ("b", "a", 2)], r"'b'–'a' is given twice with different lengths \(1 and 2\)"),
    ],
)
def test_bad_edges(edges: list[Any], message: str) -> None:
    with pytest.raises(TopoRoError, match=message):
        GroupGraph.from_edges(edges)


@pytest.mark.parametrize(
    ("matrix", "names", "message"),
    [
        ([[0, -1], [-1, 0]], "ab", "-1 from 'a' to 'b' and -1 back: expected 0"),
        ([[0, 1], [0, 0]], "ab", "1 from 'a' to 'b' and 0 back.*the same both ways"),
        ([[0, math.nan], [math.nan, 0]], "ab", "nan from"),
        ([[0, 1, 0], [1, 0, 1]], "ab", r"shape \(2, 3\)"),
        ([[0, 1], [1, 0]], "aa", r"1 distinct names were given \(2 in all\)"),
        ([[0, 1], [1, 0]], "abc", r"3 distinct names"),
        ([["x", 1], [1, 0]], "ab", "must hold numbers"),
        (sparse.csr_array([[0.0, -2], [-2, 0]]), "ab", "-2 from"),
    ],
)
def test_bad_adjacency(matrix: Any, names: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        GroupGraph.from_adjacency(matrix, list(names))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.DiGraph([("a", "b")]), r"directed; pass graph\.to_undirected\(\)"),
        (nx.MultiGraph([("a", "b")]), r"multigraph; pass nx\.Graph\(graph\)"),
        (nx.Graph(), "the edge list is empty"),
        (nx.from_edgelist([("a", "b", {"weight": "far"})]), "has length 'far'"),
    ],
)
def test_bad_networkx(graph: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        GroupGraph.from_networkx(graph)


@pytest.mark.parametrize("others", ["b", 2, None], ids=repr)
def test_neighbours_must_be_a_collection_of_names(others: Any) -> None:
    with pytest.raises(GraphError, match="neighbours of 'a'"):
        GroupGraph.from_edges({"a": others})


@pytest.mark.parametrize(
    "call",
    [
        lambda chain: chain.hops(["NY", "XX", "YY", "XX"]),
        lambda chain: chain.subgraph(["NY", "XX", "YY"]),
        lambda chain: chain.replace(positions={"XX": (0, 0), "NY": (0, 1), "YY": (1, 1)}),
    ],
)
def test_unknown_groups_are_listed_beside_those_of_the_graph(call: Any, chain: GroupGraph) -> None:
    with pytest.raises(
        GroupMismatchError, match=r"not in the graph: 'XX', 'YY'\. The graph has 4 groups: 'IN', 'NY', 'OH', 'PA'"
    ):
        call(chain)
