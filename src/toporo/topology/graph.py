"""Group graph: an undirected graph whose nodes are group names.

An edge has a *length*, a distance between two groups, which is 1 unless given. Hops and centralities count edges and
ignore lengths.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from toporo.checks import as_number
from toporo.errors import DataError, GraphError, GroupMismatchError, closest, listed
from toporo.files import parse_json, write_text
from toporo.groups import Groups, name_from_json, name_to_json, named_from_json, plain_name
from toporo.schema import Finite, Positive, as_type
from toporo.topology.edges import Edge, adjacency_edges, ordered_edges, parse_edges
from toporo.types import Name

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

    from toporo.topology.prior import Prior

Position: TypeAlias = tuple[float, float]

SCHEMA = "toporo.graph/1"
REMEDY = "Add the missing groups and their edges to the graph, or leave them out of the data."
#: The largest coordinate of a position.
FARTHEST = 1e100


@dataclass(frozen=True)
class Origin:
    """The source of a graph; a prior made from the graph repeats it, so every result states what it saw.

    Attributes
    ----------
    kind : ``"given"`` (a physical graph) or ``"learned"`` (cut from distances between groups' data).
    saw_test_inputs : whether inputs of test groups took part in learning it.
    details : how it was learned: features, kernel, scales, cut, …
    """

    kind: str = "given"
    saw_test_inputs: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)


class StoredGraph(msgspec.Struct):
    """The JSON form of a graph."""

    groups: list[Any]
    edges: list[tuple[Any, Any, float]]
    origin: Origin = Origin()
    positions: list[tuple[Any, tuple[Finite, Finite]]] = []
    bootstrap_edges: list[tuple[Any, Any, list[Positive | None]]] = []


class GroupGraph:
    """An undirected graph over groups, keyed by group name.

    Build one with :meth:`from_edges`, :meth:`from_adjacency` or :meth:`from_networkx`, read one from a file or a data
    frame with :func:`toporo.as_graph`, or learn one from data with :func:`toporo.learn_topology`.

    Parameters
    ----------
    names : the groups.
    edges : ``{(a, b): length}`` or triples ``(a, b, length)``. A pair may be given both ways with the same length.
    origin : the source of the graph; a given graph by default.
    positions : places of groups on a drawing, ``{name: (x, y)}`` with y upwards.
    bootstrap_edges : the edges of each bootstrap resample of a learned graph's points, ``{(a, b): length}``.

    Attributes
    ----------
    groups : the groups and their codes.
    names : the groups, in canonical order.
    edges : length by edge, each edge once, in the order of the groups.
    origin, positions, bootstrap_edges : as given; ``positions`` is None where no group has one.

    >>> graph = GroupGraph.from_edges([("NY", "PA"), ("PA", "OH"), ("OH", "IN")])
    >>> graph.hops(["NY"])["IN"]
    3
    """

    def __init__(
        self,
        names: Iterable[Name],
        edges: Mapping[Edge, float] | Iterable[tuple[Name, Name, float]],
        *,
        origin: Origin | None = None,
        positions: Mapping[Name, Position] | None = None,
        bootstrap_edges: Iterable[Mapping[Edge, float]] = (),
    ) -> None:
        self.groups = Groups(names)
        self.names = self.groups.names
        self.origin = origin or Origin()
        self.positions = {plain_name(name): _position(name, at) for name, at in (positions or {}).items()} or None
        self.require(self.positions or (), what="group(s) with a position but")
        self.edges = ordered_edges(edges, self.groups)
        self.bootstrap_edges = tuple(ordered_edges(draw, self.groups) for draw in bootstrap_edges)
        self._neighbors: dict[Name, dict[Name, float]] = {name: {} for name in self.groups}
        for (a, b), length in self.edges.items():
            self._neighbors[a][b] = self._neighbors[b][a] = length

    # ------------------------------------------------------------------ conversions

    @classmethod
    def from_edges(cls, edges: Iterable[Any] | Mapping[Any, Any], nodes: Iterable[Name] = ()) -> GroupGraph:
        """Build a graph from pairs ``(a, b)``, triples ``(a, b, length)`` or a mapping.

        Parameters
        ----------
        edges : pairs, triples, and ``(a,)`` for a group without an edge; or a mapping by group to its neighbours,
            ``{a: [b, c]}`` or ``{a: {b: length}}``.
        nodes : further groups, which need not have an edge.

        >>> GroupGraph.from_edges([("NY", "PA"), ("HI",)]).names
        ('HI', 'NY', 'PA')
        >>> GroupGraph.from_edges({"PA": ["NY", "OH"]}).edges
        {('NY', 'PA'): 1.0, ('OH', 'PA'): 1.0}
        """
        found, triples = parse_edges(edges)
        names = [*nodes, *found]
        if not names:
            raise GraphError("the edge list is empty: a graph needs at least one edge, or nodes=[...].")
        return cls(names, triples)

    @classmethod
    def from_adjacency(cls, matrix: Any, names: Sequence[Name]) -> GroupGraph:
        """Build a graph from a symmetric, non-negative matrix, dense or sparse, whose row i is the group ``names[i]``.

        Entries other than zero are edge lengths. The diagonal is ignored.
        """
        return cls(names, adjacency_edges(matrix, [plain_name(name) for name in names]))

    @classmethod
    def from_networkx(cls, graph: nx.Graph, *, length: str = "weight") -> GroupGraph:
        """Build a graph from an undirected networkx graph; the edge attribute ``length`` is its length (1 if absent).

        Loops are ignored, like the diagonal of an adjacency matrix.
        """
        if graph.is_directed():
            raise GraphError("the networkx graph is directed; pass graph.to_undirected() if both ways mean the same.")
        if graph.is_multigraph():
            raise GraphError("the networkx graph is a multigraph; pass nx.Graph(graph) to merge parallel edges.")
        edges = [(a, b, data.get(length, 1.0)) for a, b, data in graph.edges(data=True) if a != b]
        return cls.from_edges(edges, nodes=graph.nodes)

    def to_networkx(self) -> nx.Graph:
        """Return a networkx graph; lengths are the edge attribute ``weight``, :attr:`stability` is ``stability``."""
        import networkx as nx

        graph = nx.Graph()
        graph.add_nodes_from(self.names)
        graph.add_weighted_edges_from((a, b, length) for (a, b), length in self.edges.items())
        nx.set_edge_attributes(graph, self.stability or {}, "stability")
        return graph

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the graph as JSON text, and write it to ``path`` if given, whole or not at all."""
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "origin": asdict(self.origin),
            "groups": [name_to_json(name) for name in self.names],
            "edges": [[name_to_json(a), name_to_json(b), length] for (a, b), length in self.edges.items()],
        }
        if self.positions:
            content["positions"] = [[name_to_json(name), list(at)] for name, at in self.positions.items()]
        if self.bootstrap_edges:
            content["bootstrap_edges"] = [  # the length of a pair in each resample, null in those without it
                [name_to_json(a), name_to_json(b), [draw.get((a, b)) for draw in self.bootstrap_edges]]
                for a, b in dict.fromkeys(pair for draw in self.bootstrap_edges for pair in draw)
            ]
        text = json.dumps(content, indent=1, ensure_ascii=False)
        if path is not None:
            write_text(path, text + "\n")
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> GroupGraph:
        """Read a graph from ``source``: a file written by :meth:`to_json`, or its text."""
        is_text = str(source).lstrip().startswith("{")
        where = "the JSON text" if is_text else str(source)
        try:
            content = parse_json(str(source) if is_text else Path(where).read_bytes(), where)
        except DataError as error:
            raise GraphError(str(error)) from None
        except (OSError, ValueError) as error:  # no such file, a folder, a name that is too long or holds a NUL
            raise GraphError(f"cannot read the graph file {where!r:.200}: {error!s:.200}.") from None
        return cls.from_dict(content, where)

    @classmethod
    def from_dict(cls, content: Any, where: str = "the graph") -> GroupGraph:
        """Build a graph from ``content``, the parsed JSON of :meth:`to_json`; errors begin with ``where``."""
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            schema = content.get("schema") if isinstance(content, dict) else type(content).__name__
            raise GraphError(f"{where} is not a toporo graph: expected schema {SCHEMA!r}, found {schema!r:.50}.")
        try:
            stored = as_type(content, StoredGraph, "its form is wrong")
            draws = [((name_from_json(a), name_from_json(b)), lengths) for a, b, lengths in stored.bootstrap_edges]
            if len({len(lengths) for _, lengths in draws}) > 1:
                raise DataError("its bootstrap_edges do not have one length per resample.")
            return cls(
                [name_from_json(name) for name in stored.groups],
                [(name_from_json(a), name_from_json(b), length) for a, b, length in stored.edges],
                origin=stored.origin,
                positions=named_from_json(stored.positions, "its positions"),
                bootstrap_edges=[
                    {pair: length for pair, lengths in draws if (length := lengths[draw]) is not None}
                    for draw in range(len(draws[0][1]) if draws else 0)
                ],
            )
        except DataError as error:
            raise GraphError(f"{where} is damaged: {error}") from None

    # ------------------------------------------------------------------ properties

    @property
    def stability(self) -> dict[Edge, float] | None:
        """The fraction of bootstrap resamples that keep each edge of a learned graph; None without resamples."""
        draws = self.bootstrap_edges
        return {edge: sum(edge in draw for draw in draws) / len(draws) for edge in self.edges} if draws else None

    @property
    def isolates(self) -> tuple[Name, ...]:
        """The groups without an edge."""
        return tuple(name for name in self.names if not self._neighbors[name])

    def __len__(self) -> int:
        return len(self.groups)

    def __contains__(self, name: object) -> bool:
        return name in self.groups

    def __eq__(self, other: object) -> bool:
        """Compare groups, edges and lengths; origin, positions and resamples do not matter."""
        return isinstance(other, GroupGraph) and self.groups == other.groups and self.edges == other.edges

    def __hash__(self) -> int:
        return hash((self.groups, frozenset(self.edges.items())))

    def __repr__(self) -> str:
        weighted = "weighted, " if any(length != 1.0 for length in self.edges.values()) else ""
        return f"GroupGraph({len(self)} groups, {len(self.edges)} edges, {weighted}{self.origin.kind})"

    # ------------------------------------------------------------------ queries

    def require(self, names: Iterable[Name], *, what: str = "group(s)", remedy: str = REMEDY) -> list[Name]:
        """Return ``names`` as a list of distinct groups; an error lists unknown ones.

        Parameters
        ----------
        names : of groups.
        what, remedy : the words for them in the error, and what it advises.
        """
        wanted = list(dict.fromkeys(plain_name(name) for name in names))
        unknown = [name for name in wanted if name not in self.groups]
        if unknown:
            of_text = {str(name): name for name in self.names}
            near = closest(str(unknown[0]), list(of_text))
            hint = f" Is {unknown[0]!r} meant to be {of_text[near]!r}?" if near else ""
            raise GroupMismatchError(
                f"{what} not in the graph: {listed(unknown)}. The graph has {len(self)} groups: {listed(self.names)}."
                f"{hint} {remedy}"
            )
        return wanted

    def neighbors(self, name: Name) -> dict[Name, float]:
        """Return the groups that touch ``name``, with the length of each edge."""
        self.require([name])
        return dict(self._neighbors[plain_name(name)])

    def hops(self, sources: Iterable[Name]) -> dict[Name, float]:
        """Return the fewest edges from any of ``sources`` to every group: an int, or ``math.inf`` without a path."""
        frontier = self.require(sources, what="source group(s)")
        reached: dict[Name, float] = dict.fromkeys(frontier, 0)
        distance = 0
        while frontier:
            distance += 1
            frontier = list({other for name in frontier for other in self._neighbors[name]} - reached.keys())
            reached |= dict.fromkeys(frontier, distance)
        return {name: reached.get(name, math.inf) for name in self.names}

    def components(self) -> list[tuple[Name, ...]]:
        """Return the connected components, largest first, each in canonical order."""
        import networkx as nx

        parts = [Groups(part).names for part in nx.connected_components(self.to_networkx())]
        return sorted(parts, key=len, reverse=True)

    def subgraph(self, names: Iterable[Name]) -> GroupGraph:
        """Return the graph of the groups ``names`` and the edges among them."""
        kept = set(self.require(names))
        edges, *draws = (
            {pair: length for pair, length in lengths.items() if kept.issuperset(pair)}
            for lengths in (self.edges, *self.bootstrap_edges)
        )
        positions = {name: at for name, at in (self.positions or {}).items() if name in kept}
        return GroupGraph(kept, edges, origin=self.origin, positions=positions, bootstrap_edges=draws)

    def replace(self, **changes: Any) -> GroupGraph:
        """Return the graph with ``changes`` to parameters of the constructor, e.g. ``positions={name: (x, y)}``."""
        same = {name: getattr(self, name) for name in ("names", "edges", "origin", "positions", "bootstrap_edges")}
        return GroupGraph(**(same | changes))

    # ------------------------------------------------------------------ use

    def prior(self, train: Iterable[Name], test: Iterable[Name] | None = None, **settings: Any) -> Prior:
        """Return the prior over ``train`` groups by their centrality, towards ``test`` groups if given.

        The default is that of the estimators; ``measure="betweenness"`` is the paper's. ``settings`` are those of
        :func:`toporo.topology.make_prior`: ``measure``, ``temperature``, …
        """
        from toporo.topology.centrality_prior import make_prior  # which needs this module

        return make_prior(self, train, test, **settings)

    def plot(self, ax: Axes | None = None, **settings: Any) -> Axes:
        """Draw the graph with matplotlib, on ``ax`` if given, and return the axes.

        ``settings`` are those of :func:`toporo.topology.draw.draw_graph`: ``train`` and ``test`` groups in two colors,
        node area by ``sizes`` (e.g. a centrality).
        """
        from toporo.topology.draw import draw_graph  # which needs this module

        return draw_graph(self, ax, **settings)


def _position(name: Name, at: Any) -> Position:
    """Check a position: two numbers that a drawing can reach."""
    try:
        x, y = map(as_number, at)
    except (TypeError, ValueError):
        x = y = math.nan
    if not (abs(x) <= FARTHEST and abs(y) <= FARTHEST):
        raise GraphError(f"the position of {name!r} is not a pair of numbers within {FARTHEST:g} of 0.")
    return x, y
