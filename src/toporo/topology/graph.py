"""Which groups are related: an undirected graph whose nodes are group names.

An edge may carry a *length* (a distance between the two groups, 1 unless said otherwise). Hops count edges and ignore
lengths; weighted measures use them.
"""

from __future__ import annotations

import csv
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from toporo.errors import DataError, GraphError, listed
from toporo.files import open_text, parse_json, write_text
from toporo.groups import is_missing, name_from_json, name_to_json, named_from_json, plain_name
from toporo.schema import Finite, Positive, Share, as_type
from toporo.topology.draw import draw_graph
from toporo.topology.prior import Prior, make_prior
from toporo.topology.structure import GraphStructure, Origin
from toporo.types import Name

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

SCHEMA = "toporo.graph/1"


class StoredGraph(msgspec.Struct):
    """What :meth:`GroupGraph.to_json` writes."""

    groups: list[Any]
    edges: list[tuple[Any, Any, float]]
    origin: Origin = Origin()
    positions: list[tuple[Any, tuple[Finite, Finite]]] = []
    stability: list[tuple[Any, Any, Share]] | None = None
    redrawn: list[tuple[Any, Any, list[Positive | None]]] = []


class GroupGraph(GraphStructure):
    """An undirected graph over groups, keyed by group name.

    Build one with :meth:`from_edges`, :meth:`from_adjacency`, :meth:`from_networkx`, :meth:`from_neighbors`,
    :meth:`from_csv` or :meth:`from_json`, or learn one from data with :func:`toporo.learn_topology`.

    Parameters
    ----------
    nodes, lengths : the groups' names, and the edges, ``{(a, b): length}``.
    origin, positions : where it came from, and places on a drawing.
    stability, redrawn : the share of resamples that keep an edge, and the edges of each resample.

    >>> graph = GroupGraph.from_edges([("NY", "PA"), ("PA", "OH"), ("OH", "IN")])
    >>> graph.hops(["NY"])["IN"]
    3
    """

    # ------------------------------------------------------------------ construction

    @classmethod
    def from_edges(
        cls, edges: Iterable[Sequence[Any]] | Mapping[Any, float], nodes: Iterable[Name] | None = None
    ) -> GroupGraph:
        """From pairs ``(a, b)``, triples ``(a, b, length)`` or ``{(a, b): length}``, as :attr:`edges` gives them.

        ``(a,)`` or ``(a, None)`` is a group that touches nobody, and ``nodes`` adds others.

        >>> GroupGraph.from_edges([("NY", "PA"), ("HI",)]).names
        ('HI', 'NY', 'PA')
        """
        if isinstance(edges, Mapping):
            edges = [(*pair, length) for pair, length in edges.items()]
        lengths: dict[tuple[Name, Name], float] = {}
        alone: dict[Name, None] = {}
        for number, edge in enumerate(edges):
            indexable = hasattr(edge, "__getitem__") and not isinstance(edge, str | Mapping)
            half = indexable and len(edge) == 3 and is_missing(edge[1]) and not is_missing(edge[2])
            if not indexable or len(edge) not in (1, 2, 3) or half:
                raise GraphError(
                    f"edge {number} is {edge!r}: expected a pair (a, b) or a triple (a, b, length), or (a,) for a "
                    "group that touches nobody."
                )
            if all(is_missing(cell) for cell in edge[1:]):
                alone[plain_name(edge[0])] = None
                continue
            pair = (plain_name(edge[0]), plain_name(edge[1]))
            length = _as_length(edge[2], f"edge {number}, {pair[0]!r}–{pair[1]!r}") if len(edge) == 3 else 1.0
            if pair in lengths and lengths[pair] != length:
                raise GraphError(
                    f"edge {pair[0]!r}–{pair[1]!r} is given twice with different lengths "
                    f"({lengths[pair]:g} and {length:g}). Give each pair once."
                )
            lengths[pair] = length
        everyone = {name: None for pair in lengths for name in pair} | alone
        everyone |= {plain_name(name): None for name in nodes or ()}
        if not everyone:
            raise GraphError("the edge list is empty: a graph needs at least one edge, or nodes=[...].")
        return cls(everyone, lengths)

    @classmethod
    def from_adjacency(
        cls, matrix: Any, names: Sequence[Name] | None = None, *, weighted: bool | None = None
    ) -> GroupGraph:
        """From a symmetric, non-negative matrix; row i is the group ``names[i]``. The diagonal is ignored.

        A pandas data frame brings its own names. Non-zero entries are edges. With ``weighted`` (the default when an
        entry other than 0 and 1 occurs) they are lengths, else every edge has length 1.
        """
        labels = _matrix_names(matrix, names)
        dense = matrix.toarray() if hasattr(matrix, "toarray") else matrix
        try:
            array = np.asarray(dense, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise GraphError("the adjacency matrix must hold numbers.") from None
        if array.ndim != 2 or array.shape[0] != array.shape[1]:
            raise GraphError(f"an adjacency matrix is square; found shape {array.shape}.")
        if len(labels) != len(array) or len(set(labels)) != len(labels):
            raise GraphError(
                f"the adjacency matrix has {len(array)} rows, but {len(set(labels))} distinct names were given "
                f"({len(labels)} in all). Give one distinct name per row."
            )
        if not np.isfinite(array).all():
            raise GraphError("the adjacency matrix holds NaN or infinite entries; use 0 for 'no edge'.")
        if (array < 0).any():
            i, j = np.argwhere(array < 0)[0]
            raise GraphError(
                f"the adjacency matrix has a negative entry: {array[i, j]:g} between {labels[i]!r} and {labels[j]!r}. "
                "Entries are 0 for 'no edge', else 1 or a positive length."
            )
        uneven = ~np.isclose(array, array.T, rtol=1e-9, atol=0.0)
        if uneven.any():
            i, j = np.argwhere(uneven)[0]
            raise GraphError(
                f"the adjacency matrix is not symmetric: {labels[i]!r}→{labels[j]!r} is {array[i, j]:.12g} but "
                f"{labels[j]!r}→{labels[i]!r} is {array[j, i]:.12g}. The graph is undirected; "
                "symmetrise first, e.g. np.maximum(A, A.T)."
            )
        if weighted is None:
            weighted = bool(((array != 0) & (array != 1)).any())
        rows, columns = np.nonzero(np.triu(array, 1))
        lengths = {
            (labels[i], labels[j]): float(array[i, j]) if weighted else 1.0 for i, j in zip(rows, columns, strict=True)
        }
        return cls(labels, lengths)

    @classmethod
    def from_networkx(cls, graph: nx.Graph, *, length: str = "weight") -> GroupGraph:
        """From an undirected networkx graph; the edge attribute ``length`` is its length (1 where absent).

        Loops are left out, as the diagonal of an adjacency matrix is.
        """
        if graph.is_directed():
            raise GraphError("the networkx graph is directed; pass graph.to_undirected() if both ways mean the same.")
        if graph.is_multigraph():
            raise GraphError("the networkx graph is a multigraph; pass nx.Graph(graph) to merge parallel edges.")
        edges = [(a, b, data.get(length, 1.0)) for a, b, data in graph.edges(data=True) if a != b]
        return cls.from_edges(edges, nodes=graph.nodes)

    @classmethod
    def from_neighbors(cls, neighbors: Mapping[Any, Iterable[Name] | Mapping[Any, float]]) -> GroupGraph:
        """From ``neighbors``: ``{group: its neighbours}`` or ``{group: {neighbour: length}}``, one way is enough."""
        edges: list[tuple[Any, ...]] = []
        for name, others in neighbors.items():
            if isinstance(others, str) or not isinstance(others, Iterable):
                raise GraphError(f"the neighbours of {name!r} are {others!r}: expected a list of names.")
            if isinstance(others, Mapping):
                edges += [(name, other, length) for other, length in others.items()]
            else:
                edges += [(name, other) for other in others]
        return cls.from_edges(edges, nodes=neighbors)

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str], *, delimiter: str = ",", header: bool | None = None) -> GroupGraph:
        """From a file of edges, which may be packed (.gz): two columns of names and optionally a third of lengths.

        A group without an edge has a line of its own: its name alone, or an empty second cell (``HI`` or ``HI,``).
        Unless ``header`` says so, the first row is taken for one if all its cells read like it (``source,target``,
        ``from,to,length``, …) and none of them is a name further down. All names are text. ``path`` is the file,
        ``delimiter`` what stands between its cells.
        """
        file = Path(path)
        if not file.is_file():
            raise GraphError(f"no such file of edges: {file}. Expected a CSV with the columns source,target[,length].")
        try:
            with open_text(file) as stream:
                rows = [
                    (n, [cell.strip() for cell in row])
                    for n, row in enumerate(csv.reader(stream, delimiter=delimiter), 1)
                ]
        except UnicodeDecodeError:
            raise GraphError(f"{file} is not a text file in UTF-8: expected a CSV of edges.") from None
        except (OSError, EOFError, zlib.error, csv.Error) as error:  # not packed, not whole, or a cell without end
            raise GraphError(f"cannot read {file}: {error}.") from None
        rows = [(n, row) for n, row in rows if any(row)]
        if header is None and rows:
            names = {cell for _, row in rows[1:] for cell in row[:2]}
            two = len(rows[0][1]) > 1  # a name alone is a group
            header = two and all(cell.lower() in _HEADERS and cell not in names for cell in rows[0][1])
        if header:
            rows = rows[1:]
        joined = any(len(row) > 1 and row[1] for _, row in rows)
        for n, row in rows:
            alone = _is_alone(row) and (joined or len(row) > 1)  # names alone and nothing else are no graph
            if len(row) > 3 or not row[0] or not (alone or any(row[1:2])):
                raise GraphError(
                    f"{file}, line {n}: found {row!r}, expected two group names and optionally a length "
                    f"(separated by {delimiter!r}), or one name for a group without an edge."
                )
        if not rows:
            raise GraphError(f"{file} holds no edges: expected lines such as NY,PA or NY,PA,1.5.")
        hint = "" if header else " (if this line is a header, pass header=True)"
        edges = [
            (*row[:2], _as_length(row[2], f"{file}, line {n}", hint)) if len(row) == 3 and row[1] else row[:2]
            for n, row in rows
        ]
        return cls.from_edges(edge if any(edge[1:]) else edge[:1] for edge in edges)

    # ------------------------------------------------------------------ other forms

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """As JSON text; written to ``path`` too, if given (all of it or nothing)."""
        content = {
            "schema": SCHEMA,
            "origin": {
                "kind": self.origin.kind,
                "saw_test_inputs": self.origin.saw_test_inputs,
                "details": dict(self.origin.details),
            },
            "groups": [name_to_json(name) for name in self.names],
            "edges": [[name_to_json(a), name_to_json(b), length] for (a, b), length in self._edges.items()],
        }
        if self.positions:
            content["positions"] = [[name_to_json(name), list(at)] for name, at in self.positions.items()]
        if self._stability is not None:
            content["stability"] = [
                [name_to_json(a), name_to_json(b), kept] for (a, b), kept in self._stability.items()
            ]
        if self._redrawn:
            content["redrawn"] = [  # a pair's length in every resample, null in those that leave it out
                [name_to_json(a), name_to_json(b), [draw.get((a, b)) for draw in self._redrawn]]
                for a, b in dict.fromkeys(pair for draw in self._redrawn for pair in draw)
            ]
        text = json.dumps(content, indent=1, ensure_ascii=False)
        if path is not None:
            write_text(path, text + "\n")
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> GroupGraph:
        """From a file written by :meth:`to_json`, or from its text (``source``)."""
        text: str | bytes = str(source)
        where = "the JSON text"
        if not str(source).lstrip().startswith("{"):
            where = str(source)
            try:
                text = Path(where).read_bytes()
            except FileNotFoundError:
                raise GraphError(f"no such graph file: {where}.") from None
            except (OSError, ValueError) as error:  # a folder, a name that is too long or holds a NUL
                raise GraphError(f"cannot read the graph file {where!r:.200}: {error!s:.200}.") from None
        try:
            content = parse_json(text, where)
        except DataError as error:
            raise GraphError(str(error)) from None
        return cls.from_dict(content, where)

    @classmethod
    def from_dict(cls, content: Any, where: str = "the graph") -> GroupGraph:
        """From ``content``: what :meth:`to_json` wrote, read as JSON; messages begin with ``where``."""
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            schema = content.get("schema") if isinstance(content, dict) else type(content).__name__
            raise GraphError(f"{where} is not a toporo graph: expected schema {SCHEMA!r}, found {schema!r:.50}.")
        try:
            stored = as_type(content, StoredGraph, "its form is wrong")
            names = [name_from_json(name) for name in stored.groups]
            edges = cls.from_edges([(name_from_json(a), name_from_json(b), x) for a, b, x in stored.edges], names)
            kept = {(name_from_json(a), name_from_json(b)): share for a, b, share in stored.stability or ()}
            return cls(
                names,
                edges.edges,
                origin=stored.origin,
                positions=named_from_json(stored.positions, "its positions") or None,
                stability=None if stored.stability is None else kept,
                redrawn=_by_draw([((name_from_json(a), name_from_json(b)), x) for a, b, x in stored.redrawn]),
            )
        except DataError as error:
            raise GraphError(f"{where} is damaged: {error}") from None

    # ------------------------------------------------------------------ conveniences

    def prior(self, train: Iterable[Name], test: Iterable[Name] | None = None, **settings: Any) -> Prior:
        """The prior over ``train`` groups by their centrality, towards ``test`` groups if given.

        The default is that of the estimators; ``measure="betweenness"`` is the paper's. ``settings`` are those of
        :func:`toporo.topology.prior.make_prior`: ``measure``, ``temperature``, …
        """
        return make_prior(self, train, test, **settings)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        train: Iterable[Name] | None = None,
        test: Iterable[Name] | None = None,
        sizes: Mapping[Any, float] | None = None,
        labels: bool = True,
    ) -> Axes:
        """Draw the graph: train and test groups in two colours, a node's area by ``sizes`` (e.g. its centrality).

        Groups stand at their :attr:`positions`; states of the USA, by code or name, where they lie on a map. Names are
        written where there is room, the largest groups' first, unless ``labels`` is false. Returns the matplotlib axes,
        ``ax`` if given.
        """
        return draw_graph(self, ax, train=train, test=test, sizes=sizes, labels=labels)


def _matrix_names(matrix: Any, names: Sequence[Name] | None) -> list[Name]:
    """The names of a matrix' rows: those given, those of a data frame, or, where it has both, only if they agree."""
    given = [plain_name(name) for name in names] if names is not None else None
    if hasattr(matrix, "index") and hasattr(matrix, "columns"):
        own = [plain_name(name) for name in matrix.index]
        if own != [plain_name(name) for name in matrix.columns] or (given is not None and given != own):
            raise GraphError(
                f"the data frame's rows are {listed(own)}, its columns {listed(matrix.columns)}"
                f"{f' and names {listed(given)}' if given is not None else ''}: they must be the same, in the same "
                "order, e.g. frame.loc[names, names]."
            )
        return own
    if given is None:
        raise GraphError("the adjacency matrix has no names of its own: pass names=[...], one per row.")
    return given


def _by_draw(pairs: Sequence[tuple[Any, list[float | None]]]) -> list[dict[Any, float]]:
    """From a pair's lengths in all resamples to a resample's lengths of all pairs."""
    if len({len(lengths) for _, lengths in pairs}) > 1:
        raise DataError("its redrawn pairs do not have one length per resample.")
    every = zip(*(lengths for _, lengths in pairs), strict=True)
    return [{pair: x for (pair, _), x in zip(pairs, draw, strict=True) if x is not None} for draw in every]


def _is_alone(row: Sequence[str]) -> bool:
    """Whether a line is a group without an edge, and not an edge with another sign between its names."""
    return not any(row[1:]) and (len(row) > 1 or not any(sign in row[0] for sign in "\t,;"))


def _as_length(value: Any, where: str, hint: str = "") -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise GraphError(f"{where}: the length {value!r:.50} is not a number{hint}.") from None


_HEADERS = {"source", "target", "from", "to", "a", "b", "u", "v", "src", "dst", "group", "neighbor", "neighbour"}
_HEADERS |= {f"{word}{gap}{i}" for word in ("group", "node", "state") for gap in ("", "_") for i in (1, 2, "a", "b")}
_HEADERS |= {"length", "weight", "distance"}
