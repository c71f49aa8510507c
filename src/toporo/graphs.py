"""Group graphs from any form: every function that takes a graph converts it with :func:`as_graph`."""

from __future__ import annotations

import csv
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from toporo.data.formats import format_of
from toporo.data.table import Table, find_table
from toporo.errors import DataError, GraphError, GroupMismatchError, SettingError, listed
from toporo.files import open_text
from toporo.groups import is_missing
from toporo.topology.graph import GroupGraph
from toporo.types import Name

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
        - the path of a graph written by ``to_json`` (.json), or of a file of edges (text, also gzipped, Parquet or
          Feather): two columns of names and optionally one of lengths. A group without an edge has a line of its own,
          with its name alone or with an empty second cell. In text files all names are text, and the first line is
          taken for a header if it reads like one (``source,target``, ``from,to,length``, …) and none of its cells is a
          name further down;
        - edges: pairs, triples, ``(a,)`` for a group without an edge, or an array of two or three columns;
        - a pandas or polars data frame, or a pyarrow table, of edges; or an adjacency matrix as a pandas frame, whose
          index has the labels of its columns;
        - a networkx graph, or weights of libpysal, of which the lengths are not used;
        - ``{group: [neighbours]}`` or ``{group: {neighbour: length}}``; a group without an edge has no neighbours.

    >>> as_graph([("NY", "PA"), ("PA", "OH")])
    GroupGraph(3 groups, 2 edges, given)
    >>> as_graph({"PA": ["NY", "OH"]}) == as_graph([("NY", "PA"), ("PA", "OH")])
    True
    """
    if isinstance(given, GroupGraph):
        return given
    if isinstance(given, str | os.PathLike):
        return _read_graph(Path(given))
    if hasattr(given, "is_directed") and hasattr(given, "nodes"):
        return GroupGraph.from_networkx(given)
    if hasattr(type(given), "__geo_interface__"):
        raise GraphError(
            f"the graph is a {type(given).__name__} with geometries, which does not say which groups touch. libpysal "
            "finds that: libpysal.graph.Graph.build_contiguity(frame.set_index('group')), where 'group' is the column "
            "of group names, is a graph. If other columns hold edges, leave the geometries out."
        )
    if isinstance(getattr(given, "neighbors", None), Mapping):  # libpysal.weights.W, libpysal.graph.Graph
        return GroupGraph.from_edges(given.neighbors)
    if hasattr(given, "columns") and hasattr(given, "shape"):
        index = list(given.index) if hasattr(given, "iloc") else []
        if index and index != list(range(len(index))) and set(index) == set(given.columns):
            return GroupGraph.from_adjacency(given[index].to_numpy(), index)
        return _from_table(given)
    if hasattr(given, "shape"):
        if hasattr(given, "toarray") or given.ndim != 2 or given.shape[1] not in (2, 3) or _is_square(given):
            raise GraphError(
                f"the graph is an array of shape {tuple(given.shape)}, which does not say what its rows are called: "
                "use GroupGraph.from_adjacency(matrix, names=[...]), or give edges in two or three columns."
            )
        return GroupGraph.from_edges(given.tolist())
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


# ---------------------------------------------------------------- files and frames


def _is_square(array: Any) -> bool:
    """Return whether an array could be an adjacency matrix."""
    return array.shape[0] == array.shape[1] and array.dtype.kind in "fiub"


def _read_graph(file: Path) -> GroupGraph:
    """Read a graph from a file."""
    if not file.is_file():
        raise GraphError(
            f"no such graph file: {file}. Expected a file of edges (lines such as NY,PA) or JSON of toporo topology."
        )
    if file.suffix.lower() == ".json":
        return GroupGraph.from_json(file)
    try:
        with file.open("rb") as stream:
            kind = format_of(stream, str(file))
    except (DataError, OSError) as error:
        raise GraphError(str(error)) from None
    return _read_edges(file) if kind == "csv" else _from_table(file)


def _from_table(source: Any) -> GroupGraph:
    """Build a graph from a table of edges."""
    try:
        table: Table = find_table(source)
        columns = [name for name in table.names if name not in table.unusable]
        if len(columns) not in (2, 3) or table.unusable:
            raise GraphError(
                f"{table.where} has {len(table.names)} column(s), {listed(table.names)}: expected two of names and "
                "optionally one of lengths."
            )
        batches = table.batches(columns, MOST_EDGES)
        edges = [edge for *_, arrays in batches for edge in zip(*(array.to_pylist() for array in arrays), strict=True)]
    except DataError as error:
        raise GraphError(str(error)) from None
    return GroupGraph.from_edges(edge[:1] if all(map(_is_empty, edge[1:])) else edge for edge in edges)


def _is_empty(cell: object) -> bool:
    return is_missing(cell) or (isinstance(cell, str) and not cell.strip())


def _read_edges(file: Path) -> GroupGraph:
    """Read a text file of edges: a line has two names and optionally a length, or the name of a group without edges."""
    delimiter = delimiter_of(file)
    try:
        with open_text(file) as stream:
            reader = csv.reader(stream, delimiter=delimiter)
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError) as error:  # not whole, not text, …
        raise GraphError(f"cannot read {file} as a text file of edges in UTF-8: {error}.") from None
    names = {cell for _, row in lines[1:] for cell in row[:2]}
    if lines and len(lines[0][1]) > 1 and all(cell.lower() in HEADERS and cell not in names for cell in lines[0][1]):
        lines = lines[1:]
    if not any(any(row[1:]) for _, row in lines):
        raise GraphError(f"{file} holds no edges: expected lines such as NY,PA or NY,PA,1.5.")
    edges: list[list[Any]] = []
    for n, row in lines:
        alone = not any(row[1:])
        if len(row) > 3 or not row[0] or not (any(row[1:2]) or (alone and not set(DELIMITERS) & set(row[0]))):
            raise GraphError(
                f"{file}, line {n}: found {row!r}, expected two group names and optionally a length "
                f"(separated by {delimiter!r}), or one name for a group without an edge."
            )
        try:
            edges.append(row[:1] if alone else [*row[:2], *map(float, filter(None, row[2:]))])
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
