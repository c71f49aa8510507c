"""GroupGraph: the same graph from every form it can be given in; exact round trips, errors that name the culprit."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from toporo.errors import DataError, GraphError, GroupMismatchError, TopoRoError
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


@pytest.fixture
def csv_file(tmp_path: Path) -> Any:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "edges.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


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
        pytest.param(lambda: GroupGraph.from_adjacency(sparse.csr_matrix(MATRIX), NAMES), id="sparse matrix"),
        pytest.param(lambda: GroupGraph.from_adjacency(LENGTH_MATRIX, NAMES, weighted=False), id="lengths ignored"),
        pytest.param(lambda: GroupGraph.from_networkx(nx.Graph(EDGES)), id="networkx"),
        pytest.param(
            lambda: GroupGraph.from_neighbors({"PA": ["NY", "OH"], "IN": {"OH"}}), id="neighbours, one direction"
        ),
        pytest.param(
            lambda: GroupGraph.from_neighbors({"NY": ["PA"], "PA": ("NY", "OH"), "OH": ["PA", "IN"], "IN": ["OH"]}),
            id="neighbours, both directions",
        ),
    ],
)
def test_every_form_gives_the_same_graph(same: Any, chain: GroupGraph) -> None:
    assert same() == chain
    assert hash(same()) == hash(chain)
    assert not same().is_weighted


@pytest.mark.parametrize(
    "same",
    [
        pytest.param(lambda: GroupGraph.from_edges([(b, a, str(length)) for a, b, length in LONG]), id="edges"),
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
    assert same().is_weighted


def test_a_mapping_of_edges_keeps_its_lengths(roads: GroupGraph) -> None:
    """``graph.edges`` is such a mapping; reading it back must not silently set every length to 1."""
    assert GroupGraph.from_edges(roads.edges) == roads


@quick
@given(graphs(), st.randoms(use_true_random=False))
def test_equality_ignores_order_and_direction_of_the_edges(graph: GroupGraph, random: Any) -> None:
    edges = [[*random.sample(pair, 2), length] for pair, length in graph.edges.items()]
    random.shuffle(edges)
    again = GroupGraph.from_edges(edges, nodes=random.sample(graph.names, len(graph)))
    assert again == graph
    assert hash(again) == hash(graph)
    assert list(again.edges) == list(graph.edges)


def test_equality_sees_groups_edges_and_lengths_but_not_the_origin(chain: GroupGraph, roads: GroupGraph) -> None:
    assert chain != roads
    assert chain != GroupGraph.from_edges(EDGES[:2], nodes=["IN"])
    assert chain != GroupGraph.from_edges(EDGES, nodes=["CA"])
    assert chain != EDGES
    assert chain == GroupGraph(chain.names, chain.edges, origin=Origin("learned"), positions={"NY": (0, 0)})


@quick
@given(graphs())
def test_adjacency_round_trip(graph: GroupGraph) -> None:
    matrix = graph.adjacency(weighted=True)
    np.testing.assert_array_equal(graph.adjacency(), matrix > 0)
    assert GroupGraph.from_adjacency(matrix, graph.names, weighted=True) == graph


@quick
@given(graphs())
def test_networkx_round_trip(graph: GroupGraph) -> None:
    exported = graph.to_networkx()
    assert {frozenset((a, b)): w for a, b, w in exported.edges.data("weight")} == {
        frozenset(pair): length for pair, length in graph.edges.items()
    }
    assert GroupGraph.from_networkx(exported) == graph


def test_networkx_loops_are_dropped_like_the_diagonal_of_an_adjacency(chain: GroupGraph) -> None:
    assert GroupGraph.from_networkx(nx.Graph([*EDGES, ("NY", "NY")])) == chain


def test_groups_that_touch_nobody_are_kept() -> None:
    expected = GroupGraph(["a", "b", "c"], {("a", "b"): 1.0})
    assert GroupGraph.from_edges([("a", "b")], nodes=["c"]) == expected
    assert GroupGraph.from_neighbors({"a": ["b"], "c": []}) == expected
    assert expected.neighbors("c") == {}


def test_names_may_be_any_hashable_values() -> None:
    graph = GroupGraph.from_edges([(np.int64(1), "1"), ("1", ("x", 2))])
    assert graph.neighbors("1") == {1: 1.0, ("x", 2): 1.0}
    assert 1 in graph
    assert (1, 2) not in graph


def test_neighbors_both_ways_with_lengths(roads: GroupGraph) -> None:
    assert roads.neighbors("PA") == {"NY": 2.0, "OH": 0.5}
    assert roads.neighbors("NY") == {"PA": 2.0}


def test_what_is_handed_out_is_a_copy(chain: GroupGraph) -> None:
    chain.edges.clear()
    chain.neighbors("NY").clear()
    assert chain == GroupGraph.from_edges(EDGES)


def test_repr_says_what_it_holds(chain: GroupGraph, roads: GroupGraph) -> None:
    assert repr(chain) == "GroupGraph(4 groups, 3 edges, given)"
    assert repr(roads) == "GroupGraph(4 groups, 3 edges, weighted, given)"


# ---------------------------------------------------------------------- CSV


@pytest.mark.parametrize(
    "content",
    [
        "NY,PA\nPA,OH\nOH,IN\n",
        "source,target\nNY,PA\nPA,OH\nOH,IN\n",
        "From,To\r\nNY,PA\r\nPA,OH\r\nOH,IN",
        "source,target,length\nNY,PA,1\nPA,OH,1.0\nOH,IN,1e0\n",
        '\n"NY", PA \n\n,\nPA,OH\nOH,IN\n\n',
        b"\xef\xbb\xbfNY,PA\nPA,OH\nOH,IN\n",
        b"\xef\xbb\xbfsource,target\nNY,PA\nPA,OH\nOH,IN\n",
    ],
    ids=["plain", "header", "CRLF", "header and lengths", "quotes, spaces, empty lines", "BOM", "BOM and header"],
)
def test_csv_dialects(content: str | bytes, csv_file: Any, chain: GroupGraph) -> None:
    assert GroupGraph.from_csv(csv_file(content)) == chain


def test_csv_lengths_and_delimiter(csv_file: Any, roads: GroupGraph) -> None:
    path = csv_file("from;to;distance\nNY;PA;2\nPA;OH;0.5\nOH;IN;1\n")
    assert GroupGraph.from_csv(str(path), delimiter=";") == roads


def test_csv_header_as_told(csv_file: Any) -> None:
    assert GroupGraph.from_csv(csv_file("Land,Nachbar\nNY,PA\n"), header=True).names == ("NY", "PA")
    assert GroupGraph.from_csv(csv_file("source,target\nNY,PA\n"), header=False).names == (
        "NY",
        "PA",
        "source",
        "target",
    )


@pytest.mark.parametrize(
    "content",
    [
        "NY,PA\nHI\nPA,OH\nOH,IN\n",
        "source,target\nHI,\nNY,PA\nPA,OH\nOH,IN\n",
        "NY,PA,1\nPA,OH,1\nOH,IN,1\nHI,,\n",
        "HI\nNY,PA\nPA,OH\nOH,IN\nNY\n",
    ],
    ids=["name alone", "empty cell", "empty cells", "first, and one that has edges"],
)
def test_csv_groups_without_an_edge(content: str, csv_file: Any, chain: GroupGraph) -> None:
    graph = GroupGraph.from_csv(csv_file(content))
    assert graph == GroupGraph.from_edges(chain.edges, nodes=["HI"])
    assert graph.isolated == ("HI",)


def test_a_group_alone_on_the_first_line_is_no_header(csv_file: Any) -> None:
    assert GroupGraph.from_csv(csv_file("target\nNY,PA\n")).names == ("NY", "PA", "target")


@pytest.mark.parametrize("content", ["a,b\nb,c\n", "group1,group2\ngroup2,group3\n", "u,v\nv,w\n"])
def test_csv_first_edge_is_no_header_when_its_names_come_again(content: str, csv_file: Any) -> None:
    """An edge lost in silence changes every centrality."""
    assert len(GroupGraph.from_csv(csv_file(content)).edges) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("NY\nOH\n", r"edges\.csv, line 1: found \['NY'\], expected two group names"),
        ("NY,PA\nOH;IN\n", r"line 2: found \['OH;IN'\].*or one name for a group without an edge"),
        ("NY,PA\nHI,,2\n", r"line 2: found \['HI', '', '2'\]"),
        ("NY,PA\n\nOH,IN,1,2\n", r"line 3: found"),
        ("NY,PA\n,OH\n", r"line 2: found \['', 'OH'\]"),
        ("NY;PA\nPA;OH\n", r"line 1: found \['NY;PA'\].*separated by ','"),
        ("NY,PA,far\n", r"line 1: the length 'far' is not a number.*header=True"),
        ("NY,PA,0\n", r"'NY'–'PA' has length 0: a length is positive"),
        ("NY,PA,nan\n", r"'NY'–'PA' has length nan: a length is positive"),
        ("NY,NY\n", r"'NY' has an edge to itself"),
        ("NY,PA,1\nPA,NY,2\n", r"'PA'–'NY' is given twice with different lengths \(1 and 2\)"),
        ("", r"edges\.csv holds no edges"),
        ("source,target\n", r"edges\.csv holds no edges"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", r"edges\.csv is not a text file in UTF-8"),
    ],
)
def test_csv_errors_name_the_line_or_the_edge(content: str | bytes, message: str, csv_file: Any) -> None:
    with pytest.raises(GraphError, match=message):
        GroupGraph.from_csv(csv_file(content))


def test_csv_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "no.csv", tmp_path):
        with pytest.raises(GraphError, match=f"no such file of edges: {path}"):
            GroupGraph.from_csv(path)


# ---------------------------------------------------------------------- hops, components, subgraphs


@quick
@given(graphs(), st.data())
def test_hops_are_networkx_shortest_path_lengths(graph: GroupGraph, data: Any) -> None:
    sources = data.draw(st.lists(st.sampled_from(graph.names), min_size=1, max_size=3))
    reach = [nx.single_source_shortest_path_length(graph.to_networkx(), source) for source in sources]
    expected = {name: min(lengths.get(name, math.inf) for lengths in reach) for name in graph.names}
    assert graph.hops(sources) == expected


def test_hops_count_edges_not_lengths(roads: GroupGraph) -> None:
    assert roads.hops(["NY"]) == {"NY": 0, "PA": 1, "OH": 2, "IN": 3}
    assert roads.hops(["NY", "IN"]) == {"NY": 0, "PA": 1, "OH": 1, "IN": 0}
    assert set(roads.hops([]).values()) == {math.inf}


@quick
@given(graphs())
def test_components_are_those_of_networkx_largest_first(graph: GroupGraph) -> None:
    parts = graph.components()
    assert {frozenset(part) for part in parts} == set(map(frozenset, nx.connected_components(graph.to_networkx())))
    assert parts == sorted(parts, key=lambda part: (-len(part), part))
    assert all(list(part) == sorted(part) for part in parts)


@quick
@given(graphs(min_nodes=2), st.data())
def test_subgraph_keeps_exactly_the_edges_inside(graph: GroupGraph, data: Any) -> None:
    kept = data.draw(st.sets(st.sampled_from(graph.names), min_size=1))
    part = graph.subgraph(kept)
    assert GroupGraph.from_networkx(graph.to_networkx().subgraph(kept)) == part
    assert set(part.names) == kept


def test_subgraph_keeps_origin_and_positions() -> None:
    origin = Origin("learned", True, {"cut": "knn"})
    graph = GroupGraph("abc", {("a", "b"): 2.0}, origin=origin, positions={"a": (0, 1), "b": (2, 3), "c": (4, 5)})
    part = graph.subgraph(["b", "a"])
    assert part.origin == origin
    assert part.positions == {"a": (0, 1), "b": (2, 3)}


# ---------------------------------------------------------------------- stability

KEPT = {("NY", "PA"): 1.0, ("OH", "PA"): 0.25, ("IN", "OH"): 0.0}


def stable(**changes: Any) -> GroupGraph:
    """The chain with a fraction for each edge."""
    return GroupGraph(NAMES, {(a, b): length for a, b, length in LONG}, **({"stability": KEPT} | changes))


def test_stability_is_by_edge_in_their_order_whichever_way_it_was_given() -> None:
    graph = stable(stability={(b, a): kept for (a, b), kept in reversed(KEPT.items())})
    assert graph.stability == {("IN", "OH"): 0.0, ("NY", "PA"): 1.0, ("OH", "PA"): 0.25}
    assert list(graph.stability or {}) == list(graph.edges)
    assert stable(stability=None).stability is None


def test_graphs_are_equal_whether_or_not_stability_was_measured(roads: GroupGraph) -> None:
    assert stable() == roads
    assert hash(stable()) == hash(roads)
    assert roads.stability is None


def test_stability_is_handed_out_as_a_copy() -> None:
    graph = stable()
    assert graph.stability is not None
    graph.stability.clear()
    assert len(graph.stability) == 3


REDRAWN = [{("NY", "PA"): 1.5, ("OH", "PA"): 2.0}, {("NY", "PA"): 1.25, ("IN", "OH"): 3.0}]


def test_the_edges_of_resamples_survive_json_and_go_with_their_groups(roads: GroupGraph) -> None:
    graph = stable(redrawn=[{(b, a): length for (a, b), length in draw.items()} for draw in REDRAWN])
    for same in (graph, GroupGraph.from_json(graph.to_json())):
        assert list(same.redrawn) == REDRAWN
        part = same.subgraph(["NY", "PA"])
        assert list(part.redrawn) == [{("NY", "PA"): 1.5}, {("NY", "PA"): 1.25}]
    assert roads.redrawn == ()
    assert "redrawn" not in json.loads(roads.to_json())


@pytest.mark.parametrize(
    ("redrawn", "message"),
    [
        ([["NY", "PA", [1.0, None]], ["OH", "PA", [1.0]]], "is damaged: .* one length per resample"),
        ([["NY", "PA", [-1.0]]], "is damaged: .* > 0"),
        ([["NY", "PA", ["long"]]], "is damaged: .* found text"),
        ([["NY", "NY", [1.0]]], "an edge to itself"),
        ([["NY", "XX", [1.0]]], "'XX'"),
    ],
)
def test_damaged_resamples_are_refused(redrawn: list[Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        GroupGraph.from_json(json.dumps(json.loads(stable().to_json()) | {"redrawn": redrawn}))


def test_stability_survives_json(tmp_path: Path, roads: GroupGraph) -> None:
    again = GroupGraph.from_json(stable().to_json())
    assert again.stability == stable().stability
    assert again == stable()
    stable().to_json(tmp_path / "graph.json")
    assert GroupGraph.from_json(tmp_path / "graph.json").stability == stable().stability
    assert "stability" not in json.loads(roads.to_json())
    assert GroupGraph.from_json(roads.to_json()).stability is None


@pytest.mark.parametrize("names", [[1, 2, "1"], [("a", 1), ("a", 2), "a"], [True, 0.5, "x"]], ids=str)
def test_stability_in_json_is_by_names_of_any_type(names: list[Any]) -> None:
    a, b, c = names
    graph = GroupGraph(names, {(a, b): 1.0, (b, c): 2.0}, stability={(a, b): 0.5, (c, b): 1.0})
    assert GroupGraph.from_json(graph.to_json()).stability == graph.stability


def test_a_graph_without_edges_may_have_been_measured() -> None:
    graph = GroupGraph("ab", {}, stability={})
    assert graph.stability == {}
    assert GroupGraph.from_json(graph.to_json()).stability == {}


def test_subgraph_keeps_the_stability_of_its_edges() -> None:
    assert stable().subgraph(["NY", "PA", "IN"]).stability == {("NY", "PA"): 1.0}
    assert stable().subgraph(["NY", "IN"]).stability == {}
    assert stable(stability=None).subgraph(["NY", "PA"]).stability is None


def test_networkx_edges_carry_their_stability(roads: GroupGraph) -> None:
    edges = stable().to_networkx().edges
    assert {(a, b): edges[a, b]["stability"] for a, b in KEPT} == KEPT
    assert edges["NY", "PA"]["weight"] == 2.0
    assert all("stability" not in data for _, _, data in roads.to_networkx().edges(data=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({("OH", "PA"): None}, "stability is given for 2 edges of 3: expected a fraction from 0 to 1 for each edge"),
        ({("IN", "PA"): 0.5}, "stability is given for 4 edges of 3"),
        ({("OH", "PA"): None, ("IN", "PA"): 0.5}, "stability is given for 3 edges of 3"),
        ({("OH", "PA"): 1.5}, "a fraction from 0 to 1"),
        ({("OH", "PA"): -0.1}, "a fraction from 0 to 1"),
        ({("OH", "PA"): math.nan}, "a fraction from 0 to 1"),
        ({("OH", "PA"): "often"}, "a fraction from 0 to 1|not a number"),
        ({("PA", "OH"): 0.75}, "twice|given for"),
    ],
    ids=["missing", "no such edge", "another edge", "above 1", "below 0", "nan", "text", "twice and different"],
)
def test_bad_stability(changes: dict[Any, Any], message: str) -> None:
    given_stability = {pair: kept for pair, kept in (KEPT | changes).items() if kept is not None}
    with pytest.raises(GraphError, match=message):
        stable(stability=given_stability)


@pytest.mark.parametrize(
    "rows", [[["NY", "PA", 0.5]], [["NY", "PA"]], 7, {"NY": 1}, [["NY", "PA", "x"]], [["NY", "PA", 2.0]]], ids=str
)
def test_damaged_stability_in_json_is_a_graph_error(rows: Any) -> None:
    content = json.loads(stable().to_json()) | {"stability": rows}
    with pytest.raises(GraphError, match=r"damaged|stability is given for"):
        GroupGraph.from_json(json.dumps(content))


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


def test_json_file_is_written_whole_or_not_at_all(
    tmp_path: Path, chain: GroupGraph, roads: GroupGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graph.json"
    chain.to_json(path)

    def crash(*_: object) -> None:
        raise OSError("power cut")

    monkeypatch.setattr("os.replace", crash)
    with pytest.raises(OSError, match="power cut"):
        roads.to_json(path)
    assert GroupGraph.from_json(path) == chain
    assert list(tmp_path.iterdir()) == [path]


def test_names_that_json_cannot_hold_are_refused() -> None:
    with pytest.raises(DataError, match="cannot be written to a file"):
        GroupGraph.from_edges([(b"NY", b"PA")]).to_json()


def test_positions_are_keyed_by_group_name() -> None:
    """Names as numpy hands them out are plain names here too, in files as in memory."""
    graph = GroupGraph([0, 1], {(0, 1): 1}, positions={np.int64(0): (0, 0), np.int64(1): (1, 1)})
    assert GroupGraph.from_json(graph.to_json()).positions == {0: (0, 0), 1: (1, 1)}


def test_positions_of_strangers_are_an_error_that_lists_them() -> None:
    with pytest.raises(TopoRoError, match="'Z'"):
        GroupGraph("ab", {("a", "b"): 1}, positions={"a": (0, 0), "Z": (1, 1)})


HEAD = '"schema": "toporo.graph/1", "groups": ["a", "b"]'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": "toporo.graph/1", ', r"the JSON text is not valid JSON \(.*line 1"),
        ('{"schema": "toporo.graph/9"}', r"expected schema 'toporo.graph/1', found 'toporo.graph/9'"),
        ("{}", r"expected schema 'toporo.graph/1', found None"),
        (f"{{{HEAD}}}", r"damaged: its form is wrong: it lacks edges"),
        (f'{{{HEAD}, "edges": [["a", "b"]]}}', r"damaged: .*expected a list of length 3, found 2, at edges\[0\]"),
        (f'{{{HEAD}, "edges": [["a", null, 1]]}}', r"damaged: not a group name: None"),
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
        (f'{{{HEAD}, "edges": [["a", "b", NaN]]}}', r"'a'–'b' has length nan"),
        (f'{{{HEAD}, "edges": [["a", "b", 1], ["a", "b", 2]]}}', r"'a'–'b' is given twice with different lengths"),
    ],
)
def test_damaged_json_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        GroupGraph.from_json(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such graph file: .*graph.json"),
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


WHOLE = f'{HEAD}, "edges": [["a", "b", 1]]'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{HEAD}, "edges": [["a", "b", {"9" * 5000}]]', r"not valid JSON \(Exceeds the limit"),
        (f'{HEAD}, "edges": [["a", "b", {10**400}]]', r"a number is larger than 1\.8e\+308"),
        (f'{WHOLE}, "positions": [["a", [0, {10**400}]]]', r"a number is larger than 1\.8e\+308"),
        (f'{WHOLE}, "positions": [["a", [0, "1"]]]', r"expected a number, found text, at positions\[0\]\[1\]\[1\]"),
        (f'{WHOLE}, "positions": [["a", [0, 1e200]]]', r"position of 'a' is not a pair of numbers within 1e\+100"),
        (f'{WHOLE}, "positions": [["a", [0, 1]], ["a", [1, 1]]]', r"positions: a group is there twice"),
        (f'{WHOLE}, "origin": {{"details": [1]}}', r"expected a mapping, found a list, at origin\.details"),
        (f'{WHOLE}, "origin": {{"details": {{"x": {"[" * 100}{"]" * 100}}}}}', r"lists within lists, more than 64"),
        (f'{WHOLE}, "more": {"[" * 100_000}', r"not valid JSON \(lists within lists without end\)"),
        (f'{WHOLE}, "origin": {{"kind": "\\ud800"}}', r"is not text in UTF-8"),
        (f'{WHOLE}, "origin": {{"kind": "\ud800"}}', r"is no text"),
    ],
    ids=[
        *("5000 digits", "length of 10**400", "position of 10**400", "text position", "far position", "twice"),
        *("details a list", "nested", "nested without end", "half a sign escaped", "half a sign"),
    ],
)  # fmt: skip
def test_a_stranger_s_graph_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        GroupGraph.from_json(f"{{{text}}}")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "."])
def test_what_is_no_name_of_a_file_is_a_graph_error(name: str) -> None:
    with pytest.raises(GraphError, match="cannot read the graph file"):
        GroupGraph.from_json(name)


@pytest.mark.parametrize(
    "positions", [{"a": (0, 10**400)}, {"a": "xy"}, {"a": 3}, {"a": (1, 2, 3)}, {"a": (0, math.inf)}]
)
def test_positions_are_pairs_of_numbers(positions: Any) -> None:
    with pytest.raises(GraphError, match="position of 'a'"):
        GroupGraph("ab", {("a", "b"): 1}, positions=positions)


def test_a_length_beyond_double_precision_is_a_graph_error() -> None:
    with pytest.raises(GraphError, match="is not a number"):
        GroupGraph.from_edges([("a", "b", 10**400)])
    with pytest.raises(GraphError, match="a length is positive and finite"):
        GroupGraph("ab", {("a", "b"): 10**400})
    with pytest.raises(GraphError, match="must hold numbers"):
        GroupGraph.from_adjacency([[0, 10**400], [10**400, 0]], names=["a", "b"])


def test_threads_that_save_one_file_leave_a_whole_one_at_all_times(tmp_path: Path, roads: GroupGraph) -> None:
    path, other = tmp_path / "graph.json", GroupGraph.from_edges([("NY", "PA", 2.5)])
    roads.to_json(path)

    def save(graph: GroupGraph) -> None:
        for _ in range(50):
            graph.to_json(path)
            assert GroupGraph.from_json(path) in (roads, other)

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(save, graph) for graph in (roads, other) * 4]:
            done.result()
    assert [file.name for file in tmp_path.iterdir()] == ["graph.json"]


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([], "the edge list is empty"),
        ([("a", "b"), "cd"], r"edge 1 is 'cd': expected a pair"),
        ([()], r"edge 0 is \(\): .*or \(a,\) for a group that touches nobody"),
        ([("a", None, 2.0)], r"edge 0 is \('a', None, 2.0\): expected a pair"),
        ([("a", "b", 1, 2)], "edge 0 is"),
        ([3], "edge 0 is 3"),
        ([{"a", "b"}], "edge 0 is"),
        ([("a", "a")], "'a' has an edge to itself"),
        ([("a", "b", 0)], "'a'–'b' has length 0: a length is positive and finite"),
        ([("a", "b", -1)], "has length -1"),
        ([("a", "b", math.inf)], "has length inf"),
        ([("a", "b", math.nan)], "has length nan"),
        ([("a", "b", "far")], "edge 0, 'a'–'b': the length 'far' is not a number"),
        ([("a", "b", None)], "the length None is not a number"),
        ([("a", "b", 1), ("a", "b", 2)], r"'a'–'b' is given twice with different lengths \(1 and 2\)"),
        ([("a", "b", 1), ("b", "a", 2)], r"'b'–'a' is given twice with different lengths \(1 and 2\)"),
    ],
)
def test_bad_edges(edges: list[Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        GroupGraph.from_edges(edges)


@pytest.mark.parametrize(
    ("matrix", "names", "message"),
    [
        ([[0, -1], [-1, 0]], "ab", "negative entry: -1 between 'a' and 'b'"),
        ([[0, 1], [0, 0]], "ab", "not symmetric: 'a'→'b' is 1 but 'b'→'a' is 0"),
        ([[0, 1], [2, 0]], "ab", "not symmetric: 'a'→'b' is 1 but 'b'→'a' is 2"),
        ([[0, math.nan], [math.nan, 0]], "ab", "NaN or infinite"),
        ([[0, math.inf], [math.inf, 0]], "ab", "NaN or infinite"),
        ([[0, 1, 0], [1, 0, 1]], "ab", r"square; found shape \(2, 3\)"),
        ([0, 1], "ab", r"square; found shape \(2,\)"),
        ([[0, 1], [1, 0]], "aa", r"2 rows, but 1 distinct names were given \(2 in all\)"),
        ([[0, 1], [1, 0]], "abc", r"2 rows, but 3 distinct names"),
        ([["x", 1], [1, 0]], "ab", "must hold numbers"),
        (sparse.csr_array([[0.0, -2], [-2, 0]]), "ab", "negative entry: -2"),
        (sparse.csr_array([[0.0, 2], [0, 0]]), "ab", "not symmetric"),
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
        (nx.from_edgelist([("a", "b", {"weight": "far"})]), "the length 'far' is not a number"),
    ],
)
def test_bad_networkx(graph: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        GroupGraph.from_networkx(graph)


@pytest.mark.parametrize("others", ["b", 2, None], ids=repr)
def test_neighbours_must_be_a_collection_of_names(others: Any) -> None:
    with pytest.raises(GraphError, match="neighbours of 'a'"):
        GroupGraph.from_neighbors({"a": others})


def test_edge_to_a_group_that_is_not_there() -> None:
    with pytest.raises(GraphError, match="'a'–'z' names 'z', which is not among the graph's groups"):
        GroupGraph("ab", {("a", "z"): 1.0})


@pytest.mark.parametrize("call", ["hops", "subgraph", "require"])
def test_unknown_groups_are_listed_beside_those_of_the_graph(call: str, chain: GroupGraph) -> None:
    with pytest.raises(
        GroupMismatchError, match=r"not in the graph: 'XX', 'YY'\. The graph has 4 groups: 'IN', 'NY', 'OH', 'PA'"
    ):
        getattr(chain, call)(["NY", "XX", "YY", "XX"])


def test_neighbors_of_a_stranger(chain: GroupGraph) -> None:
    with pytest.raises(GroupMismatchError, match="not in the graph: 'XX'"):
        chain.neighbors("XX")


def test_missing_names_are_refused() -> None:
    with pytest.raises(DataError, match="group name is missing"):
        GroupGraph.from_edges([(None, "a")])


def test_a_data_frame_brings_its_own_names_and_they_are_not_overruled() -> None:
    frame = pd.DataFrame([[0, 2.0, 0], [2.0, 0, 1], [0, 1, 0]], index=list("cab"), columns=list("cab"))
    assert GroupGraph.from_adjacency(frame).edges == {("a", "b"): 1.0, ("a", "c"): 2.0}
    with pytest.raises(GraphError, match="they must be the same, in the same order"):
        GroupGraph.from_adjacency(frame, names=list("abc"))
    with pytest.raises(GraphError, match="pass names="):
        GroupGraph.from_adjacency(frame.to_numpy())


def test_neighbours_may_come_with_lengths() -> None:
    assert GroupGraph.from_neighbors({"a": {"b": 2.0}, "b": ["c"]}).edges == {("a", "b"): 2.0, ("b", "c"): 1.0}


def test_rounding_does_not_make_a_matrix_asymmetric() -> None:
    matrix = np.array([[0, 0.1 + 0.2], [0.3, 0]])
    assert len(GroupGraph.from_adjacency(matrix, names="ab").edges) == 1


def test_one_name_given_as_text_is_not_taken_apart() -> None:
    with pytest.raises(GroupMismatchError, match=r"Write \['NY'\]"):
        GroupGraph.from_edges([("NY", "PA")]).hops("NY")
