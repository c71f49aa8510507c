"""Which groups hang together: an undirected graph whose nodes are group names.

An edge may carry a *length* (a distance between the two groups, 1 unless said otherwise). Hops count edges and ignore
lengths; weighted measures use them.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from toporo.errors import GraphError, GroupMismatchError, listed
from toporo.files import open_text, write_text
from toporo.groups import Groups, name_from_json, name_to_json, plain_name
from toporo.types import Name

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

    from toporo.topology.prior import Prior


SCHEMA = "toporo.graph/1"


@dataclass(frozen=True)
class Origin:
    """Where a graph came from; a prior made from it repeats this, so that every result can say what it saw.

    Attributes
    ----------
    kind : ``"given"`` (a physical graph) or ``"learned"`` (cut from distances between groups' data).
    saw_test_inputs : whether inputs of test groups took part in learning it.
    details : how it was learned: features, kernel, scales, cut, …
    """

    kind: str = "given"
    saw_test_inputs: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)


class GroupGraph:
    """An undirected graph over groups, keyed by group name.

    Build one with :meth:`from_edges`, :meth:`from_adjacency`, :meth:`from_networkx`, :meth:`from_neighbors`,
    :meth:`from_csv` or :meth:`from_json`, or learn one from data with :func:`toporo.learn_topology`.

    >>> graph = GroupGraph.from_edges([("NY", "PA"), ("PA", "OH"), ("OH", "IN")])
    >>> graph.hops(["NY"])["IN"]
    3
    """

    def __init__(
        self,
        nodes: Iterable[Name],
        lengths: Mapping[tuple[Name, Name], float],
        *,
        origin: Origin | None = None,
        positions: Mapping[Name, tuple[float, float]] | None = None,
        stability: Mapping[tuple[Name, Name], float] | None = None,
    ) -> None:
        self.groups = Groups(nodes)
        self.origin = origin or Origin()
        self.positions = {plain_name(name): at for name, at in positions.items()} if positions else None
        self.require(self.positions or (), what="group(s) with a position but")
        edges: dict[tuple[Name, Name], float] = {}
        neighbors: dict[Name, dict[Name, float]] = {name: {} for name in self.groups}
        for (a, b), given in lengths.items():
            a, b, length = plain_name(a), plain_name(b), float(given)
            _check_edge(a, b, length, self.groups)
            if b in neighbors[a] and neighbors[a][b] != length:
                raise GraphError(
                    f"edge {a!r}–{b!r} is given twice with different lengths ({neighbors[a][b]:g} and {length:g}). "
                    "The graph is undirected: give each pair once, or the same length both ways."
                )
            neighbors[a][b] = neighbors[b][a] = length
        rank = {name: code for code, name in enumerate(self.names)}
        for a in self.names:
            for b in sorted(neighbors[a], key=rank.__getitem__):
                if rank[a] < rank[b]:
                    edges[(a, b)] = neighbors[a][b]
        self._edges = edges
        self._neighbors = neighbors
        self._stability = _by_edge(stability, edges) if stability is not None else None

    # ------------------------------------------------------------------ construction

    @classmethod
    def from_edges(
        cls, edges: Iterable[Sequence[Any]] | Mapping[Any, float], nodes: Iterable[Name] | None = None
    ) -> GroupGraph:
        """From pairs ``(a, b)``, triples ``(a, b, length)`` or ``{(a, b): length}``, as :attr:`edges` gives them.

        ``nodes`` adds groups that touch nobody.
        """
        if isinstance(edges, Mapping):
            edges = [(*pair, length) for pair, length in edges.items()]
        lengths: dict[tuple[Name, Name], float] = {}
        for number, edge in enumerate(edges):
            indexable = hasattr(edge, "__getitem__") and not isinstance(edge, str | Mapping)
            if not indexable or len(edge) not in (2, 3):
                raise GraphError(f"edge {number} is {edge!r}: expected a pair (a, b) or a triple (a, b, length).")
            pair = (plain_name(edge[0]), plain_name(edge[1]))
            length = _as_length(edge[2], f"edge {number}, {pair[0]!r}–{pair[1]!r}") if len(edge) == 3 else 1.0
            if pair in lengths and lengths[pair] != length:
                raise GraphError(
                    f"edge {pair[0]!r}–{pair[1]!r} is given twice with different lengths "
                    f"({lengths[pair]:g} and {length:g}). Give each pair once."
                )
            lengths[pair] = length
        everyone = {name: None for pair in lengths for name in pair} | {plain_name(n): None for n in nodes or ()}
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
        except (TypeError, ValueError):
            raise GraphError("the adjacency matrix must hold numbers.") from None
        if array.ndim != 2 or array.shape[0] != array.shape[1]:
            raise GraphError(f"an adjacency matrix is square; found shape {array.shape}.")
        if len(labels) != len(array) or len(set(labels)) != len(labels):
            raise GraphError(
                f"the adjacency matrix has {len(array)} rows, but {len(set(labels))} distinct names were given "
                f"({len(labels)} in all). Give one distinct name a row."
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
        """From ``{group: its neighbours}`` or ``{group: {neighbour: length}}``; one direction is enough."""
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

        Unless ``header`` says so, the first row is taken for one if all its cells read like it (``source,target``,
        ``from,to,length``, …) and none of them is a name further down. All names are text.
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
        except (OSError, EOFError) as error:  # not packed, or not whole
            raise GraphError(f"cannot read {file}: {error}.") from None
        rows = [(n, row) for n, row in rows if any(row)]
        if header is None and rows:
            names = {cell for _, row in rows[1:] for cell in row[:2]}
            header = all(cell.lower() in _HEADERS and cell not in names for cell in rows[0][1])
        if header:
            rows = rows[1:]
        for n, row in rows:
            if len(row) not in (2, 3) or not row[0] or not row[1]:
                raise GraphError(
                    f"{file}, line {n}: found {row!r}, expected two group names and optionally a length "
                    f"(separated by {delimiter!r})."
                )
        if not rows:
            raise GraphError(f"{file} holds no edges: expected lines such as NY,PA or NY,PA,1.5.")
        hint = "" if header else " (if this line is a header, pass header=True)"
        return cls.from_edges(
            (row[0], row[1]) if len(row) == 2 else (row[0], row[1], _as_length(row[2], f"{file}, line {n}", hint))
            for n, row in rows
        )

    # ------------------------------------------------------------------ what it holds

    @property
    def names(self) -> tuple[Name, ...]:
        """The groups, in canonical order."""
        return self.groups.names

    @property
    def edges(self) -> dict[tuple[Name, Name], float]:
        """Length by edge, each edge once."""
        return dict(self._edges)

    @property
    def stability(self) -> dict[tuple[Name, Name], float] | None:
        """By edge of a learned graph, the fraction of bootstrap resamples that keep it; None where not measured."""
        return dict(self._stability) if self._stability is not None else None

    @property
    def is_weighted(self) -> bool:
        """Whether any edge has a length other than 1."""
        return any(length != 1.0 for length in self._edges.values())

    def neighbors(self, name: Name) -> dict[Name, float]:
        """The groups that touch ``name``, and how long each edge is."""
        self.require([name])
        return dict(self._neighbors[plain_name(name)])

    def require(self, names: Iterable[Name], *, what: str = "group(s)") -> list[Name]:
        """The names as a list of distinct groups; an error that lists those the graph does not have."""
        if isinstance(names, str) and len(names) > 1 and names in self.groups:
            raise GroupMismatchError(f"{what} must be a list of names; found the text {names!r}. Write [{names!r}].")
        wanted = list(dict.fromkeys(plain_name(name) for name in names))
        unknown = [name for name in wanted if name not in self.groups]
        if unknown:
            raise GroupMismatchError(
                f"{what} not in the graph: {listed(unknown)}. The graph has {len(self)} groups: {listed(self.names)}. "
                "Add the missing groups and their edges to the graph, or leave them out of the data."
            )
        return wanted

    def __len__(self) -> int:
        return len(self.groups)

    def __contains__(self, name: object) -> bool:
        return name in self.groups

    def __eq__(self, other: object) -> bool:
        """Same groups, same edges, same lengths; where they came from does not matter."""
        return isinstance(other, GroupGraph) and self.groups == other.groups and self._edges == other._edges

    def __hash__(self) -> int:
        return hash((self.groups, frozenset(self._edges.items())))

    def __repr__(self) -> str:
        kind = "weighted, " if self.is_weighted else ""
        return f"GroupGraph({len(self)} groups, {len(self._edges)} edges, {kind}{self.origin.kind})"

    # ------------------------------------------------------------------ walks on it

    def hops(self, sources: Iterable[Name]) -> dict[Name, float]:
        """Fewest edges from any of ``sources`` to every group: an int, or ``math.inf`` where there is no path."""
        frontier = self.require(sources, what="source group(s)")
        reached: dict[Name, float] = dict.fromkeys(frontier, 0)
        distance = 0
        while frontier:
            distance += 1
            found = {other for name in frontier for other in self._neighbors[name] if other not in reached}
            reached |= dict.fromkeys(found, distance)
            frontier = list(found)
        return {name: reached.get(name, math.inf) for name in self.names}

    def components(self) -> list[tuple[Name, ...]]:
        """Connected components, largest first, each in canonical order."""
        left = dict.fromkeys(self.names)
        parts: list[tuple[Name, ...]] = []
        while left:
            reach = self.hops([next(iter(left))])
            part = tuple(name for name in self.names if reach[name] < math.inf)
            parts.append(part)
            for name in part:
                del left[name]
        return sorted(parts, key=len, reverse=True)

    def subgraph(self, names: Iterable[Name]) -> GroupGraph:
        """The graph of these groups and the edges among them."""
        kept = set(self.require(names))
        edges = {pair: length for pair, length in self._edges.items() if pair[0] in kept and pair[1] in kept}
        positions = {n: at for n, at in self.positions.items() if n in kept} if self.positions else None
        stability = {pair: self._stability[pair] for pair in edges} if self._stability is not None else None
        return GroupGraph(kept, edges, origin=self.origin, positions=positions, stability=stability)

    # ------------------------------------------------------------------ other forms

    def adjacency(self, *, weighted: bool = False) -> npt.NDArray[np.float64]:
        """The matrix in the order of :attr:`names`: 0/1, or lengths when ``weighted``."""
        matrix = np.zeros((len(self), len(self)))
        for (a, b), length in self._edges.items():
            i, j = self.groups.encode([a, b])
            matrix[i, j] = matrix[j, i] = length if weighted else 1.0
        return matrix

    def to_networkx(self) -> nx.Graph:
        """As a networkx graph; lengths are the edge attribute ``weight``, fractions of resamples ``stability``."""
        import networkx as nx

        graph = nx.Graph()
        graph.add_nodes_from(self.names)
        graph.add_weighted_edges_from((a, b, length) for (a, b), length in self._edges.items())
        if self._stability is not None:
            nx.set_edge_attributes(graph, self._stability, "stability")
        return graph

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
        text = json.dumps(content, indent=1, ensure_ascii=False)
        if path is not None:
            write_text(path, text + "\n")
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> GroupGraph:
        """From a file written by :meth:`to_json`, or from its text."""
        text = str(source)
        where = "the JSON text"
        if not text.lstrip().startswith("{"):
            where = text
            if not Path(text).is_file():
                raise GraphError(f"no such graph file: {text}.")
            try:
                text = Path(text).read_text(encoding="utf-8-sig")
            except UnicodeDecodeError:
                raise GraphError(f"{where} is not a text file in UTF-8: expected a graph written by toporo.") from None
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise GraphError(f"{where} is not valid JSON ({error}).") from None
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            found = content.get("schema") if isinstance(content, dict) else type(content).__name__
            raise GraphError(f"{where} is not a toporo graph: expected schema {SCHEMA!r}, found {found!r}.")
        try:
            names = [name_from_json(name) for name in content["groups"]]
            edges = cls.from_edges([(name_from_json(a), name_from_json(b), x) for a, b, x in content["edges"]], names)
            positions = {name_from_json(name): (x, y) for name, (x, y) in content.get("positions", [])}
            return cls(
                names,
                edges.edges,
                origin=Origin(**content.get("origin", {})),
                positions=positions or None,
                stability=_stability_from_json(content),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, GraphError):
                raise
            raise GraphError(f"{where} is damaged: {type(error).__name__}: {error}.") from None

    # ------------------------------------------------------------------ conveniences

    def prior(self, train: Iterable[Name], test: Iterable[Name] | None = None, **settings: Any) -> Prior:
        """The prior over ``train`` groups by their centrality; see :func:`toporo.topology.prior.make_prior`."""
        from toporo.topology.prior import make_prior

        return make_prior(self, train, test, **settings)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        train: Iterable[Name] | None = None,
        test: Iterable[Name] | None = None,
        sizes: Mapping[Any, float] | None = None,
        labels: bool | None = None,
    ) -> Axes:
        """Draw the graph: train and test groups in two colours, a node's area by ``sizes`` (e.g. its centrality).

        Labels are shown for up to 60 groups unless said otherwise. Returns the matplotlib axes.
        """
        from toporo.topology.draw import draw_graph

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
        raise GraphError("the adjacency matrix has no names of its own: pass names=[...], one a row.")
    return given


def _by_edge(stability: Mapping[tuple[Name, Name], float], edges: Iterable[tuple[Name, Name]]) -> dict[Any, float]:
    """Fractions in the order of the edges: one for each, within 0 and 1."""
    try:
        given = {frozenset(plain_name(name) for name in pair): float(kept) for pair, kept in stability.items()}
    except (TypeError, ValueError):
        raise GraphError("stability holds what is not a number.") from None
    if len(given) < len(stability):
        raise GraphError("stability is given twice for an edge.")
    pairs = list(edges)
    if set(given) != {frozenset(pair) for pair in pairs} or not all(0.0 <= kept <= 1.0 for kept in given.values()):
        raise GraphError(
            f"stability is given for {len(given)} edges of {len(pairs)}: expected a fraction from 0 to 1 for each edge."
        )
    return {pair: given[frozenset(pair)] for pair in pairs}


def _stability_from_json(content: Mapping[str, Any]) -> dict[tuple[Name, Name], float] | None:
    rows = content.get("stability")
    return {(name_from_json(a), name_from_json(b)): float(kept) for a, b, kept in rows} if rows is not None else None


def _check_edge(a: Name, b: Name, length: float, groups: Groups) -> None:
    for name in (a, b):
        if name not in groups:
            raise GraphError(f"edge {a!r}–{b!r} names {name!r}, which is not among the graph's groups.")
    if a == b:
        raise GraphError(f"{a!r} has an edge to itself; a group graph has no loops. Remove that edge.")
    if not (length > 0 and math.isfinite(length)):
        raise GraphError(
            f"edge {a!r}–{b!r} has length {length:g}: a length is positive and finite. Leave the edge out to say that "
            "the two groups do not touch."
        )


def _as_length(value: Any, where: str, hint: str = "") -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise GraphError(f"{where}: the length {value!r} is not a number{hint}.") from None


_HEADERS = {"source", "target", "from", "to", "a", "b", "u", "v", "src", "dst", "group", "neighbor", "neighbour"}
_HEADERS |= {f"{word}{gap}{i}" for word in ("group", "node", "state") for gap in ("", "_") for i in (1, 2, "a", "b")}
_HEADERS |= {"length", "weight", "distance"}
