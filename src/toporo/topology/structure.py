"""Groups, edges and walks: what measures, priors and drawings need of a graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from toporo.checks import as_number
from toporo.errors import GraphError, GroupMismatchError, listed
from toporo.groups import Groups, plain_name
from toporo.types import Array, Name

if TYPE_CHECKING:
    import networkx as nx


#: The largest coordinate on a drawing.
FARTHEST = 1e100


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


class GraphStructure:
    """An undirected graph whose nodes are group names; :class:`~toporo.GroupGraph` adds ways to make and use one.

    Parameters
    ----------
    nodes : the groups' names.
    lengths : the edges, ``{(a, b): length}``; positive lengths, a pair once or the same both ways.
    origin : where it came from; a given graph unless said otherwise.
    positions : of groups on a drawing, ``{name: (x, y)}``.
    stability : by edge, the fraction of resamples that keep it.
    redrawn : the edges as each resample has them, ``{(a, b): length}``.
    """

    def __init__(
        self,
        nodes: Iterable[Name],
        lengths: Mapping[tuple[Name, Name], float],
        *,
        origin: Origin | None = None,
        positions: Mapping[Name, tuple[float, float]] | None = None,
        stability: Mapping[tuple[Name, Name], float] | None = None,
        redrawn: Iterable[Mapping[tuple[Name, Name], float]] = (),
    ) -> None:
        self.groups = Groups(nodes)
        self.origin = origin or Origin()
        self.positions = {plain_name(name): _place(name, at) for name, at in positions.items()} if positions else None
        self.require(self.positions or (), what="group(s) with a position but")
        edges: dict[tuple[Name, Name], float] = {}
        neighbors: dict[Name, dict[Name, float]] = {name: {} for name in self.groups}
        for (a, b), given in lengths.items():
            a, b, length = plain_name(a), plain_name(b), as_number(given)
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
        self._redrawn = tuple(_in_order(draw, self.groups, rank) for draw in redrawn)

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
    def redrawn(self) -> tuple[dict[tuple[Name, Name], float], ...]:
        """Length by edge in each bootstrap resample of a learned graph's points; empty where there is none."""
        return tuple(dict(draw) for draw in self._redrawn)

    @property
    def isolated(self) -> tuple[Name, ...]:
        """The groups that touch nobody."""
        return tuple(name for name in self.names if not self._neighbors[name])

    @property
    def is_weighted(self) -> bool:
        """Whether any edge has a length other than 1."""
        return any(length != 1.0 for length in self._edges.values())

    def neighbors(self, name: Name) -> dict[Name, float]:
        """The groups that touch ``name``, and how long each edge is."""
        self.require([name])
        return dict(self._neighbors[plain_name(name)])

    def require(self, names: Iterable[Name], *, what: str = "group(s)") -> list[Name]:
        """The ``names`` as a list of distinct groups; an error that lists those (``what``) the graph does not have."""
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
        return isinstance(other, GraphStructure) and self.groups == other.groups and self._edges == other._edges

    def __hash__(self) -> int:
        return hash((self.groups, frozenset(self._edges.items())))

    def __repr__(self) -> str:
        kind = "weighted, " if self.is_weighted else ""
        return f"{type(self).__name__}({len(self)} groups, {len(self._edges)} edges, {kind}{self.origin.kind})"

    # ------------------------------------------------------------------ walks on it

    def hops(self, sources: Iterable[Name]) -> dict[Name, float]:
        """Fewest edges from any of ``sources`` to every group: an int, or ``math.inf`` where there is no path."""
        frontier = self.require(sources, what="source group(s)")
        reached: dict[Name, float] = dict.fromkeys(frontier, 0)
        distance = 0
        while frontier:
            distance += 1
            new = {other for name in frontier for other in self._neighbors[name] if other not in reached}
            reached |= dict.fromkeys(new, distance)
            frontier = list(new)
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

    def subgraph(self, names: Iterable[Name]) -> Self:
        """The graph of the groups ``names`` and the edges among them."""
        kept = set(self.require(names))
        edges, *redrawn = (
            {pair: length for pair, length in lengths.items() if pair[0] in kept and pair[1] in kept}
            for lengths in (self._edges, *self._redrawn)
        )
        positions = {n: at for n, at in self.positions.items() if n in kept} if self.positions else None
        stability = {pair: self._stability[pair] for pair in edges} if self._stability is not None else None
        return type(self)(kept, edges, origin=self.origin, positions=positions, stability=stability, redrawn=redrawn)

    def with_positions(self, positions: Mapping[Name, tuple[float, float]] | None) -> Self:
        """The same graph, drawn with its groups at ``positions``, ``{name: (x, y)}``, y upwards.

        Groups without one stand among their neighbours; without any the layout decides.
        """
        return type(self)(
            self.names,
            self._edges,
            origin=self.origin,
            positions=positions,
            stability=self._stability,
            redrawn=self._redrawn,
        )

    def adjacency(self, *, weighted: bool = False) -> Array:
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


def _in_order(
    lengths: Mapping[tuple[Name, Name], float], groups: Groups, rank: Mapping[Name, int]
) -> dict[tuple[Name, Name], float]:
    """Checked lengths, each pair in the order of the groups."""
    edges = {}
    for pair, given in lengths.items():
        a, b = sorted(map(plain_name, pair), key=lambda name: rank.get(name, -1))
        edges[a, b] = as_number(given)
        _check_edge(a, b, edges[a, b], groups)
    return edges


def _by_edge(stability: Mapping[tuple[Name, Name], float], edges: Iterable[tuple[Name, Name]]) -> dict[Any, float]:
    """Fractions in the order of the edges: one for each, within 0 and 1."""
    try:
        given = {frozenset(plain_name(name) for name in pair): float(kept) for pair, kept in stability.items()}
    except (TypeError, ValueError, OverflowError):
        raise GraphError("stability holds what is not a number.") from None
    if len(given) < len(stability):
        raise GraphError("stability is given twice for an edge.")
    pairs = list(edges)
    if set(given) != {frozenset(pair) for pair in pairs} or not all(0.0 <= kept <= 1.0 for kept in given.values()):
        raise GraphError(
            f"stability is given for {len(given)} edges of {len(pairs)}: expected a fraction from 0 to 1 for each edge."
        )
    return {pair: given[frozenset(pair)] for pair in pairs}


def _place(name: Name, at: Any) -> tuple[float, float]:
    """A place on a drawing: two numbers that a drawing can reach."""
    try:
        x, y = map(as_number, at)
    except (TypeError, ValueError):
        x = y = math.nan
    if not (abs(x) <= FARTHEST and abs(y) <= FARTHEST):
        raise GraphError(f"the position of {name!r} is not a pair of numbers within {FARTHEST:g} of 0.")
    return x, y


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
