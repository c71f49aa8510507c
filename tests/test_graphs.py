"""Graphs in every form that people have them in."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from scipy import sparse

from toporo.errors import GraphError, GroupMismatchError, SettingError
from toporo.graphs import as_graph, check_groups
from toporo.topology import GroupGraph

EDGES = [("a", "b", 1.0), ("b", "c", 2.5)]
EXPECTED = GroupGraph.from_edges(EDGES)
CHAIN = GroupGraph.from_edges([("NY", "PA"), ("PA", "OH"), ("OH", "IN")])
MATRIX = np.array([[0, 1.0, 0], [1.0, 0, 2.5], [0, 2.5, 0]])


def frame(library: Any) -> Any:
    columns = {"from": ["a", "b"], "to": ["b", "c"], "length": [1.0, 2.5]}
    return library.table(columns) if library is pa else library.DataFrame(columns)


def network() -> nx.Graph:
    graph = nx.Graph()
    graph.add_weighted_edges_from(EDGES)
    return graph


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(EXPECTED, id="a graph"),
        pytest.param(EDGES, id="triples"),
        pytest.param([list(edge) for edge in EDGES], id="lists"),
        pytest.param({"b": {"a": 1.0, "c": 2.5}}, id="neighbours with lengths"),
        pytest.param(np.array(EDGES, dtype=object), id="an array"),
        pytest.param(network(), id="networkx"),
        pytest.param(frame(pd), id="pandas edges"),
        pytest.param(frame(pl), id="polars edges"),
        pytest.param(frame(pa), id="pyarrow edges"),
        pytest.param(pd.DataFrame(MATRIX, index=list("abc"), columns=list("abc")), id="pandas square"),
    ],
)
def test_every_form_gives_the_same_graph(given: Any) -> None:
    assert as_graph(given) == EXPECTED


def test_three_edges_without_titles_are_not_taken_for_a_matrix() -> None:
    edges = [("a", "b", 1.0), ("b", "c", 2.0), ("c", "d", 3.0)]
    assert as_graph(pd.DataFrame(edges)) == GroupGraph.from_edges(edges)


class Polygon:
    """As much of shapely's as tells it from other cells."""

    __geo_interface__ = property(lambda self: {"type": "Polygon", "coordinates": ()})

    def __repr__(self) -> str:
        return "<POLYGON ((0 0, 1 0, 1 1, 0 0))>"


class GeoDataFrame(pd.DataFrame):
    """As much of geopandas' as tells it from a data frame."""

    __geo_interface__ = property(lambda self: {"type": "FeatureCollection", "features": []})


class W:
    """As much of libpysal's as tells it from a mapping: its items are names with weights by neighbour."""

    neighbors: ClassVar = {"a": ["b"], "b": ["a", "c"], "c": ["b"], "z": []}

    def __iter__(self) -> Iterator[Any]:
        return ((name, dict.fromkeys(others, 1.0)) for name, others in self.neighbors.items())


AREAS = {"state": ["a", "b"], "geometry": [Polygon(), None]}


def test_polygons_are_no_edges() -> None:
    with pytest.raises(GraphError, match=r"DataFrame with geometries, .* libpysal\.graph\.Graph\.build_contiguity\("):
        as_graph(GeoDataFrame(AREAS))
    with pytest.raises(
        GraphError, match=r"the data frame has 2 column\(s\), 'state', 'geometry': expected two of names"
    ):
        as_graph(pd.DataFrame(AREAS))


def test_spatial_weights_are_not_taken_for_lengths() -> None:
    assert as_graph(W()) == GroupGraph.from_edges([("a", "b"), ("b", "c"), ("z",)])


LONE = {"from": ["a", "b", "z"], "to": ["b", "c", None], "length": [1.0, 2.5, None]}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param([*EDGES, ("z",)], id="edges"),
        pytest.param({"b": {"a": 1.0, "c": 2.5}, "z": []}, id="neighbours"),
        pytest.param(pd.DataFrame(LONE), id="pandas edges"),
        pytest.param(pd.DataFrame(LONE).fillna({"to": ""}), id="pandas edges, empty text"),
        pytest.param(pl.DataFrame(LONE), id="polars edges"),
        pytest.param(pa.table(LONE), id="pyarrow edges"),
        pytest.param(pd.DataFrame(np.pad(MATRIX, (0, 1)), index=list("abcz"), columns=list("abcz")), id="square"),
    ],
)
def test_every_form_may_have_a_group_without_an_edge(given: Any, tmp_path: Path) -> None:
    graph = as_graph(given)
    assert graph == GroupGraph.from_edges(EDGES, nodes=["z"])
    graph.to_json(tmp_path / "graph.json")
    assert as_graph(tmp_path / "graph.json") == graph


@pytest.mark.parametrize("suffix", [".json", ".csv", ".tsv", ".txt", ".csv.gz", ".parquet", ".feather", ".arrow"])
def test_every_kind_of_file(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"edges{suffix}"
    if suffix == ".json":
        EXPECTED.to_json(file)
    elif suffix == ".parquet":
        pyarrow.parquet.write_table(frame(pa), file)
    elif suffix in (".feather", ".arrow"):
        pyarrow.feather.write_feather(frame(pa), file)
    else:
        sign = {".tsv": "\t", ".txt": ";"}.get(suffix, ",")
        text = "\n".join(sign.join(map(str, edge)) for edge in [("from", "to", "length"), *EDGES]).encode()
        file.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    assert as_graph(file) == as_graph(str(file)) == EXPECTED


@pytest.fixture
def csv_file(tmp_path: Path) -> Any:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "edges.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


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
def test_csv_dialects(content: str | bytes, csv_file: Any) -> None:
    assert as_graph(csv_file(content)) == CHAIN


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
def test_csv_groups_without_an_edge(content: str, csv_file: Any) -> None:
    graph = as_graph(csv_file(content))
    assert graph == CHAIN.replace(names=[*CHAIN.names, "HI"])
    assert graph.isolates == ("HI",)


@pytest.mark.parametrize("content", ["a,b\nb,c\n", "group1,group2\ngroup2,group3\n", "u,v\nv,w\n"])
def test_csv_first_edge_is_no_header_when_its_names_come_again(content: str, csv_file: Any) -> None:
    """An edge lost in silence changes every centrality."""
    assert len(as_graph(csv_file(content)).edges) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("NY\nOH\n", r"edges\.csv holds no edges: expected lines such as NY,PA"),
        ("NY,PA\nOH;IN\n", r"line 2: found \['OH;IN'\].*or one name for a group without an edge"),
        ("NY,PA\nHI,,2\n", r"line 2: found \['HI', '', '2'\]"),
        ("NY,PA\n\nOH,IN,1,2\n", r"line 3: found"),
        ("NY,PA\n,OH\n", r"line 2: found \['', 'OH'\]"),
        ("NY,PA,far\n", r"line 1: the length 'far' is not a number.*If this line is a header"),
        ("NY,PA,0\n", r"'NY'–'PA' has length 0.0: a length is a positive"),
        ("NY,PA,nan\n", r"'NY'–'PA' has length nan: a length is a positive"),
        ("NY,NY\n", r"'NY' has an edge to itself"),
        ("NY,PA,1\nPA,NY,2\n", r"'PA'–'NY' is given twice with different lengths \(1 and 2\)"),
        ("", r"edges\.csv holds no edges"),
        ("source,target\n", r"edges\.csv holds no edges"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", r"cannot read \S*edges\.csv as a text file of edges in UTF-8"),
    ],
)
def test_csv_errors_name_the_line_or_the_edge(content: str | bytes, message: str, csv_file: Any) -> None:
    with pytest.raises(GraphError, match=message):
        as_graph(csv_file(content))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "of type int: expected a GroupGraph, the path"),
        ("borders", "no such graph file: borders. Expected a file of edges"),
        ("none.csv", "no such graph file: none.csv"),
        (MATRIX, r"array of shape \(3, 3\).*from_adjacency\(matrix, names"),
        (sparse.csr_array(MATRIX), r"array of shape \(3, 3\)"),
        (np.zeros((4, 5)), r"array of shape \(4, 5\)"),
        (pd.DataFrame({"a": ["x"]}), r"the data frame has 1 column\(s\), 'a': expected two of names"),
        (pd.DataFrame({n: ["x"] for n in "abcd"}), r"has 4 column\(s\)"),
        (pd.DataFrame({"a": ["x"], "b": ["y"], "length": ["far"]}), "has length 'far': a length is a positive"),
        (network().to_directed(), "directed"),
        ([], "edge list is empty"),
        ([("a", "b", "c", "d")], "expected a pair"),
    ],
)
def test_what_is_no_graph_is_an_error_that_says_what_to_give(given: Any, says: str) -> None:
    with pytest.raises(GraphError, match=says):
        as_graph(given)


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"edges.{suffix}"
    file.write_bytes({"parquet": b"PAR1 a,b", "feather": b"ARROW1 a,b"}[suffix])
    with pytest.raises(GraphError, match=f"cannot be read as a {suffix.capitalize()}"):
        as_graph(file)


def test_groups_are_checked_against_the_graph() -> None:
    assert check_groups(EXPECTED, ["a", "b"], None) is None
    assert check_groups(EXPECTED, ["a", "b"], np.array(["c", "c"])) == ("c",)


@pytest.mark.parametrize(
    ("train", "test", "error", "says"),
    [
        (["a", "q"], None, GroupMismatchError, r"training group\(s\) not in the graph: 'q'.*has 4 groups"),
        (["a"], ["q"], GroupMismatchError, r"test group\(s\) not in the graph: 'q'"),
        (["a", "b"], ["b"], GroupMismatchError, "in the training data: 'b'"),
        (["a", 1], None, GroupMismatchError, r"Is 1 meant to be '1'\?"),
        (["a"], "b", SettingError, r"expected a list of names, such as \['b'\]"),
        (["a"], 3, SettingError, "expected a list"),
        (["a"], [], SettingError, "test_groups is empty"),
    ],
)
def test_groups_that_do_not_fit(train: Any, test: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        check_groups(EXPECTED.replace(names="abc1"), train, test)
