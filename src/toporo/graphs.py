"""Group graphs from any form: every function that takes a graph converts it with :func:`as_graph`."""

from __future__ import annotations

import csv
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toporo.data.table import find_table
from toporo.errors import DataError, GraphError, GroupMismatchError, SettingError, listed
from toporo.files import open_text
from toporo.groups import is_missing
from toporo.topology.graph import GroupGraph
from toporo.types import Name

#: Kinds of files by suffix.
SUFFIXES = {".json": "json", ".csv": "text", ".tsv": "text", ".txt": "text", ".parquet": "parquet"}
SUFFIXES |= dict.fromkeys((".feather", ".arrow", ".ipc"), "feather")
#: Edges read at a time.
MOST_EDGES = 1 << 20
#: Delimiters of a text file of edges: the first that occurs, in the first line that has one. A space only if no line
#: has another, as it may be part of a name.
DELIMITERS = ("\t", ",", ";")
#: Words that a header of a text file of edges consists of.
HEADERS = {"source", "target", "from", "to", "a", "b", "u", "v", "src", "dst", "group", "neighbor", "neighbour"}
HEADERS |= {f"{word}{gap}{i}" for word in ("group", "node", "state") for gap in ("", "_") for i in (1, 2, "a", "b")}
HEADERS |= {"length", "weight", "distance"}
EXPECTED = (
    "expected a GroupGraph, the path of a file, a list of edges (a, b) or (a, b, length), a data frame of edges, "
    "a networkx graph or {group: its neighbours}"
)


def as_graph(given: Any) -> GroupGraph:
    """Convert a graph from any form.

    Parameters
    ----------
    given : one of

        - a :class:`~toporo.GroupGraph`;
        - the path of a graph written by ``to_json`` (.json), or of a file of edges (.csv, .tsv, .txt, also with .gz,
          .parquet, .feather): two columns of names and optionally one of lengths. A group without an edge has a line
          of its own, with its name alone or with an empty second cell. In text files all names are text, and the first
          line is taken for a header if it reads like one (``source,target``, ``from,to,length``, …) and none of its
          cells is a name further down;
        - edges: pairs, triples, ``(a,)`` for a group without an edge, or an array of two or three columns;
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
        return _read_graph(given)
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
    if isinstance(given, np.ndarray) or hasattr(given, "toarray"):
        return GroupGraph.from_edges(_edge_rows(given))
    if isinstance(given, Iterable):
        return GroupGraph.from_edges(given)
    raise GraphError(f"the graph is of type {type(given).__name__}: {EXPECTED}.")


def with_text_names(graph: GroupGraph) -> GroupGraph:
    """Return the graph for a table, whose group names are text: 1 becomes ``"1"``."""
    text = {name: _as_text(name) for name in graph.names}
    if all(name == written for name, written in text.items()):
        return graph
    if len(set(text.values())) < len(text):
        twice = [name for name, written in text.items() if list(text.values()).count(written) > 1]
        raise GraphError(f"groups of the graph are the same when written as text: {listed(twice)}. Rename some.")
    return graph.replace(
        names=text.values(),
        edges={(text[a], text[b]): length for (a, b), length in graph.edges.items()},
        positions={text[name]: at for name, at in (graph.positions or {}).items()},
        bootstrap_edges=[
            {(text[a], text[b]): length for (a, b), length in draw.items()} for draw in graph.bootstrap_edges
        ],
    )


def _as_text(name: Name) -> str:
    """Write a name as a table has it: whole numbers have no decimals."""
    return str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)


# ---------------------------------------------------------------- files


def _read_graph(path: str | os.PathLike[str]) -> GroupGraph:
    """Read a graph from a file of the kind that its suffix names."""
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
        return _read_edges(file)
    try:
        table = find_table(file)
        batches = [batch.arrays for batch in table.batches(table.names, MOST_EDGES)]
    except DataError as error:
        raise GraphError(str(error)) from None
    columns = [[cell for batch in batches for cell in batch[place].to_pylist()] for place in range(len(table.names))]
    return _from_columns(list(table.names), columns, str(file))


def _read_edges(file: Path) -> GroupGraph:
    """Read a text file of edges: a line has two names and optionally a length, or the name of a group without edges."""
    delimiter = delimiter_of(file)
    try:
        with open_text(file) as stream:
            reader = csv.reader(stream, delimiter=delimiter)
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except UnicodeDecodeError:
        raise GraphError(f"{file} is not a text file in UTF-8: expected a CSV of edges.") from None
    except (OSError, EOFError, zlib.error, csv.Error) as error:  # not packed, not whole, or a cell without end
        raise GraphError(f"cannot read {file}: {error}.") from None
    if lines and _is_header([row for _, row in lines]):
        lines = lines[1:]
    if not lines:
        raise GraphError(f"{file} holds no edges: expected lines such as NY,PA or NY,PA,1.5.")
    has_edges = any(any(row[1:2]) for _, row in lines)
    edges: list[list[Any]] = []
    for n, row in lines:
        # A file of single cells is no graph, and a cell with another delimiter in it no name.
        alone = not any(row[1:]) and (len(row) > 1 or (has_edges and not any(sign in row[0] for sign in DELIMITERS)))
        if len(row) > 3 or not row[0] or not (alone or any(row[1:2])):
            raise GraphError(
                f"{file}, line {n}: found {row!r}, expected two group names and optionally a length "
                f"(separated by {delimiter!r}), or one name for a group without an edge."
            )
        try:
            edges.append([*row[:2], *map(float, filter(None, row[2:]))] if any(row[1:]) else row[:1])
        except ValueError:
            raise GraphError(
                f"{file}, line {n}: the length {row[2]!r:.50} is not a number. If this line is a header, call its "
                "columns source, target and length."
            ) from None
    return GroupGraph.from_edges(edges)


def delimiter_of(file: Path) -> str:
    """Find the delimiter of a text file; what is not text is refused by its reader, which says why."""
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


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first of some rows reads like a header; a name alone is a group."""
    names = {cell for row in rows[1:] for cell in row[:2]}
    return len(rows[0]) > 1 and all(cell.lower() in HEADERS and cell not in names for cell in rows[0])


# ---------------------------------------------------------------- frames and arrays
def _from_frame(frame: Any) -> GroupGraph:
    """Build a graph from a frame of edges or a square one."""
    if hasattr(frame, "index") and _is_square(frame):
        return GroupGraph.from_adjacency(frame[list(frame.index)].to_numpy(), list(frame.index))
    names, columns = _columns(frame)
    if any(_is_geometry(cell) for column in columns for cell in column):
        raise _geometry_error(frame)
    return _from_columns(names, columns, "the data frame")


def _is_geometry(value: Any) -> bool:
    """Return whether a value is a shape or a map, of shapely, geopandas or another library."""
    return hasattr(type(value), "__geo_interface__")


def _geometry_error(given: Any) -> GraphError:
    return GraphError(
        f"the graph is a {type(given).__name__} with geometries, which does not say which groups touch. libpysal finds "
        "that: libpysal.graph.Graph.build_contiguity(frame.set_index('group')).neighbors, where 'group' is the column "
        f"of group names, is a graph. If other columns hold edges, leave the geometries out. Otherwise {EXPECTED}."
    )


def _from_columns(names: list[Any], columns: list[list[Any]], where: str) -> GroupGraph:
    """Build a graph from two columns of names and optionally one of lengths, or a square table without an index."""
    if len(columns) > 1 and columns[0] == names[1:] and len(set(names[1:])) == len(names) - 1:
        return GroupGraph.from_adjacency(np.array(columns[1:], dtype=object).T, columns[0])
    if len(columns) not in (2, 3):
        raise GraphError(
            f"{where} has {len(columns)} column(s), {listed(names)}: expected two of names and optionally one of "
            "lengths, or a square one whose rows are labelled like its columns."
        )
    edges: Iterable[tuple[Any, ...]] = zip(*columns, strict=True)
    return GroupGraph.from_edges(edge[:1] if all(map(_is_empty, edge[1:])) else edge for edge in edges)


def _is_empty(cell: object) -> bool:
    return is_missing(cell) or (isinstance(cell, str) and not cell.strip())


def _columns(frame: Any) -> tuple[list[Any], list[list[Any]]]:
    """Return names and values of the columns of a pandas or polars frame or a pyarrow table."""
    if hasattr(frame, "column_names"):  # pyarrow, whose .columns are the values
        return list(frame.column_names), [column.to_pylist() for column in frame.columns]
    names = list(frame.columns)
    if hasattr(frame, "iloc"):
        return names, [frame.iloc[:, place].tolist() for place in range(len(names))]
    return names, [frame[name].to_list() for name in names]


def _is_square(frame: Any) -> bool:
    """Return whether a pandas frame has the same labels on its rows and columns, and could be an adjacency matrix.

    Three edges without a header also have the rows 0, 1, 2 and the columns 0, 1, 2: those are not symmetric.
    """
    rows, columns = list(frame.index), list(frame.columns)
    if len(rows) != len(columns) or set(rows) != set(columns):
        return False
    return rows != list(range(len(rows))) or _is_symmetric(frame.to_numpy())


def _is_symmetric(array: Any) -> bool:
    """Return whether an array is a symmetric matrix of numbers."""
    return array.dtype.kind in "fiub" and array.shape == array.T.shape and bool((array == array.T).all())


def _edge_rows(array: Any) -> list[list[Any]]:
    """Return the rows of an array of two or three columns, unless it may be an adjacency matrix."""
    if hasattr(array, "toarray") or array.ndim != 2 or array.shape[1] not in (2, 3) or _is_symmetric(array):
        raise GraphError(
            f"the graph is an array of shape {tuple(array.shape)}, which does not say what its rows are called: use "
            "GroupGraph.from_adjacency(matrix, names=[...]), or give edges in two or three columns."
        )
    return list(array.tolist())


# ---------------------------------------------------------------- graph and data


def check_groups(graph: GroupGraph, train: Iterable[Name], test: Any) -> tuple[Name, ...] | None:
    """Return the names of the test groups, or None; all groups must be in the graph, and none in both sets."""
    inside = graph.require(
        train,
        what="training group(s)",
        remedy="Add them and their edges, or a line with the name alone, or leave their rows out of the data (toporo "
        "fit --drop-rows).",
    )
    if test is None:
        return None
    if isinstance(test, str | bytes) or not isinstance(test, Iterable):
        raise SettingError(f"test_groups is {test!r}: expected a list of names, such as [{test!r}].")
    names = tuple(
        graph.require(
            test,
            what="test group(s)",
            remedy="Add them and their edges to the graph, or leave them out of the test groups.",
        )
    )
    if not names:
        raise SettingError("test_groups is empty: name at least one group, or leave it at None.")
    both = [name for name in names if name in set(inside)]
    if both:
        raise GroupMismatchError(
            f"test group(s) that are in the training data: {listed(both)}. A test group is one that training never "
            "sees: take its rows out of the data, or its name out of the test groups."
        )
    return names
