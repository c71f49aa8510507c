"""Group graphs from any form that people have them in: every function that takes a graph takes it in here."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from toporo.data.arrow import open_table
from toporo.errors import DataError, GraphError, GroupMismatchError, SettingError, closest, listed
from toporo.files import open_text
from toporo.groups import is_missing, plain_name
from toporo.topology.graph import GroupGraph
from toporo.types import Name

#: File names' endings to what the file holds.
SUFFIXES = {".json": "json", ".csv": "text", ".tsv": "text", ".txt": "text", ".parquet": "parquet"}
SUFFIXES |= dict.fromkeys((".feather", ".arrow", ".ipc"), "feather")
#: Edges read at a time.
MOST_EDGES = 1 << 20
#: What may stand between the cells of a text file of edges: the first that occurs, in the first line that has one. A
#: space only if no line has another, as it may be part of a name.
DELIMITERS = ("\t", ",", ";")
EXPECTED = (
    "expected a GroupGraph, the path of a file, a list of edges (a, b) or (a, b, length), a data frame of edges, "
    "a networkx graph or {group: its neighbours}"
)


def as_graph(given: Any) -> GroupGraph:
    """A graph from any form that a graph may have.

    Parameters
    ----------
    given : one of

        - a :class:`~toporo.GroupGraph`;
        - the path of a graph written by ``to_json`` (.json), or of a file of edges (.csv, .tsv, .txt, also with .gz,
          .parquet, .feather): two columns of names and optionally one of lengths. A group without an edge has a line
          of its own, with its name alone or with an empty second cell. In text files all names are text;
        - edges: pairs, triples, ``(a,)`` for a group without an edge, ``{(a, b): length}``, or an array of two or
          three columns;
        - a pandas or polars data frame, or a pyarrow table, of edges; or a square one of who touches whom, whose rows
          are labelled like its columns (by the index, or without one by the first column);
        - a networkx graph;
        - ``{group: [neighbours]}`` or ``{group: {neighbour: length}}``; a group without an edge has no neighbours.

    >>> as_graph([("NY", "PA"), ("PA", "OH")])
    GroupGraph(3 groups, 2 edges, given)
    >>> as_graph({"PA": ["NY", "OH"]}) == as_graph([("NY", "PA"), ("PA", "OH")])
    True
    """
    if isinstance(given, GroupGraph):
        return given
    if isinstance(given, str | os.PathLike):
        return _read(given)
    if hasattr(given, "is_directed") and hasattr(given, "nodes"):
        return GroupGraph.from_networkx(given)
    if _is_geometry(given):
        raise _geometry_error(given)
    if isinstance(getattr(given, "neighbors", None), Mapping):  # libpysal.weights.W, libpysal.graph.Graph
        raise GraphError(
            f"the graph is a {type(given).__name__} of weights, which are not lengths: pass its attribute .neighbors "
            f"for edges without lengths. Otherwise {EXPECTED}."
        )
    if hasattr(given, "columns") and hasattr(given, "shape"):
        return _from_frame(given)
    if isinstance(given, Mapping):
        pairs = bool(given) and all(isinstance(key, tuple) and len(key) == 2 for key in given)
        if pairs and all(isinstance(value, int | float | np.number) for value in given.values()):
            return GroupGraph.from_edges(given)
        return GroupGraph.from_neighbors(given)
    if isinstance(given, np.ndarray) or hasattr(given, "toarray"):
        return GroupGraph.from_edges(_edge_rows(given))
    if isinstance(given, Iterable):
        return GroupGraph.from_edges(given)
    raise GraphError(f"the graph is of type {type(given).__name__}: {EXPECTED}.")


def with_text_names(graph: GroupGraph) -> GroupGraph:
    """The graph for a table, whose group names are text: 1 becomes ``"1"``."""
    written = {name: _written(name) for name in graph.names}
    if all(name == text for name, text in written.items()):
        return graph
    if len(set(written.values())) < len(written):
        twice = [name for name, text in written.items() if list(written.values()).count(text) > 1]
        raise GraphError(f"groups of the graph are the same when written as text: {listed(twice)}. Rename some.")
    return GroupGraph(
        written.values(),
        {(written[a], written[b]): length for (a, b), length in graph.edges.items()},
        origin=graph.origin,
        positions={written[name]: at for name, at in graph.positions.items()} if graph.positions else None,
    )


def _written(name: Name) -> str:
    """A name as a table has it: whole numbers have no decimals."""
    return str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)


def _read(path: str | os.PathLike[str]) -> GroupGraph:
    """A graph from a file; its ending says what it holds."""
    file = Path(path)
    name = file.name.lower()
    kind = SUFFIXES.get(Path(name.removesuffix(".gz")).suffix)
    if kind is None or (kind != "text" and name.endswith(".gz")):
        raise GraphError(
            f"the graph is {str(path)!r}, which is no file of a known kind (.json, .csv, .tsv, .txt, .parquet, "
            f".feather): {EXPECTED}."
        )
    if not file.is_file():
        raise GraphError(
            f"no such graph file: {file}. Expected a file of edges (lines such as NY,PA) or JSON of toporo topology."
        )
    if kind == "json":
        return GroupGraph.from_json(file)
    if kind == "text":
        return GroupGraph.from_csv(file, delimiter=delimiter_of(file))
    try:
        with open_table(file) as table:
            portions = list(table.batches(range(len(table.names)), MOST_EDGES))
    except DataError as error:
        raise GraphError(str(error)) from None
    places = range(len(table.names))
    columns = [[cell for portion in portions for cell in portion[place].to_pylist()] for place in places]
    return _from_columns(list(table.names), columns, str(file))


def delimiter_of(file: Path) -> str:
    """The sign between cells; what is not text is refused by its reader, which says why."""
    spaces = False
    try:
        with open_text(file) as stream:
            for line in stream:
                spaces |= " " in line.strip()
                if signs := [sign for sign in DELIMITERS if sign in line.strip(" \r\n")]:
                    return signs[0]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return ","
    return " " if spaces else ","


# ---------------------------------------------------------------- frames and arrays


def _from_frame(frame: Any) -> GroupGraph:
    """Edges, or who touches whom."""
    if hasattr(frame, "index") and _labelled_alike(frame):
        return GroupGraph.from_adjacency(frame)
    names, columns = _columns(frame)
    if any(_is_geometry(cell) for column in columns for cell in column):
        raise _geometry_error(frame)
    return _from_columns(names, columns, "the data frame")


def _is_geometry(value: Any) -> bool:
    """Whether a value is a shape or a map, of shapely, geopandas or another library."""
    return hasattr(type(value), "__geo_interface__")


def _geometry_error(given: Any) -> GraphError:
    return GraphError(
        f"the graph is a {type(given).__name__} with geometries, which does not say which groups touch. libpysal finds "
        "that: libpysal.graph.Graph.build_contiguity(frame.set_index('group')).neighbors, where 'group' is the column "
        f"of group names, is a graph. If other columns hold edges, leave the geometries out. Otherwise {EXPECTED}."
    )


def _from_columns(names: list[Any], columns: list[list[Any]], where: str) -> GroupGraph:
    if _first_names_rows(names, columns):
        matrix = np.array(columns[1:], dtype=object).T
        return GroupGraph.from_adjacency(matrix, names=columns[0])
    if len(columns) not in (2, 3):
        raise GraphError(
            f"{where} has {len(columns)} column(s), {listed(names)}: expected two of names and optionally one of "
            "lengths, or a square one whose rows are labelled like its columns."
        )
    edges: Iterable[tuple[Any, ...]] = zip(*columns, strict=True)
    return GroupGraph.from_edges([edge[:1] if all(map(_is_empty, edge[1:])) else edge for edge in edges])


def _is_empty(cell: object) -> bool:
    """Whether a cell of a frame holds nothing."""
    return is_missing(cell) or (isinstance(cell, str) and not cell.strip())


def _columns(frame: Any) -> tuple[list[Any], list[list[Any]]]:
    """Names and values of the columns of a pandas or polars frame or a pyarrow table."""
    if hasattr(frame, "column_names"):  # pyarrow, whose .columns are the values
        return list(frame.column_names), [column.to_pylist() for column in frame.columns]
    names = list(frame.columns)
    if hasattr(frame, "iloc"):
        return names, [frame.iloc[:, place].tolist() for place in range(len(names))]
    return names, [frame[name].to_list() for name in names]


def _labelled_alike(frame: Any) -> bool:
    """Whether a pandas frame's rows are its columns, and it holds numbers that could be an adjacency matrix.

    Three edges without a header also have the rows 0, 1, 2 and the columns 0, 1, 2: those are not symmetric.
    """
    rows, columns = list(frame.index), list(frame.columns)
    if len(rows) != len(columns) or set(rows) != set(columns):
        return False
    if rows != list(range(len(rows))):
        return True
    values = frame.to_numpy()
    return values.dtype.kind in "fiub" and bool((values == values.T).all())


def _first_names_rows(names: list[Any], columns: list[list[Any]]) -> bool:
    """Whether the first column says what the others are called: a square table without an index."""
    return len(columns) > 1 and columns[0] == names[1:] and len(set(names[1:])) == len(names) - 1


def _edge_rows(array: Any) -> Any:
    if hasattr(array, "toarray") or array.ndim != 2:
        shape, edges = array.shape, None
    else:
        numbers = array.dtype.kind in "fiub"
        square = array.shape[0] == array.shape[1] and numbers and bool((array == array.T).all())
        shape, edges = array.shape, None if square or array.shape[1] not in (2, 3) else array.tolist()
    if edges is None:
        raise GraphError(
            f"the graph is an array of shape {tuple(shape)}, which does not say what its rows are called: use "
            "GroupGraph.from_adjacency(matrix, names=[...]), or give edges in two or three columns."
        )
    return edges


# ---------------------------------------------------------------- graph and data


def check_groups(graph: GroupGraph, train: Iterable[Name], test: Any) -> tuple[Name, ...] | None:
    """The test groups as names (None where there are none); all groups must be in the graph, none in both."""
    remedy = "Add them and their edges, or a line with the name alone, or leave their rows out of the data"
    _require(graph, train, "training group(s)", f"{remedy} (toporo fit --skip-unknown-groups).")
    if test is None:
        return None
    if isinstance(test, str | bytes) or not isinstance(test, Iterable):
        raise SettingError(f"test_groups is {test!r}: expected a list of names, such as [{test!r}].")
    names = tuple(dict.fromkeys(plain_name(name) for name in test))
    if not names:
        raise SettingError("test_groups is empty: name at least one group, or leave it at None.")
    _require(
        graph, names, "test group(s)", "Add them and their edges to the graph, or leave them out of the test groups."
    )
    inside = set(train)
    both = [name for name in names if name in inside]
    if both:
        raise GroupMismatchError(
            f"test group(s) that are in the training data: {listed(both)}. A test group is one that training never "
            "sees: take its rows out of the data, or its name out of the test groups."
        )
    return names


def _require(graph: GroupGraph, names: Iterable[Name], what: str, remedy: str) -> None:
    missing = [name for name in names if name not in graph]
    if not missing:
        return
    written = {str(name): name for name in graph.names}
    alike = [(name, written[str(name)]) for name in missing if str(name) in written]
    hint = f" Mind their type: it has {alike[0][1]!r}, which is not {alike[0][0]!r}." if alike else ""
    near = closest(str(missing[0]), [str(name) for name in graph.names]) if not alike else None
    hint += f" Is {missing[0]!r} meant to be {near!r}?" if near else ""
    raise GroupMismatchError(
        f"{what} not in the graph: {listed(missing)}. The graph has {len(graph)} groups: {listed(graph.names)}.{hint} "
        f"{remedy}"
    )
