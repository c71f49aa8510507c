"""Edges of a group graph from the forms that they are given in, checked and ordered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from toporo.checks import as_number
from toporo.errors import GraphError
from toporo.groups import Groups, plain_name
from toporo.types import Name

Edge: TypeAlias = tuple[Name, Name]
Triple: TypeAlias = tuple[Name, Name, float]


def parse_edges(edges: Iterable[Any] | Mapping[Any, Any]) -> tuple[list[Name], list[Triple]]:
    """Return the groups and the triples ``(a, b, length)`` of edges; see :meth:`toporo.GroupGraph.from_edges`."""
    names: list[Name] = []
    triples: list[Triple] = []
    for number, edge in enumerate(_neighbor_edges(edges) if isinstance(edges, Mapping) else edges):
        cells = tuple(edge) if isinstance(edge, tuple | list | np.ndarray) else ()
        if not 1 <= len(cells) <= 3:
            raise GraphError(
                f"edge {number} is {edge!r}: expected a pair (a, b) or a triple (a, b, length), or (a,) for a "
                "group that touches nobody."
            )
        names += cells[:2]
        if len(cells) > 1:
            triples.append((cells[0], cells[1], cells[2] if len(cells) == 3 else 1.0))
    return names, triples


def adjacency_edges(matrix: Any, labels: list[Name]) -> list[Triple]:
    """Return the triples of a symmetric, non-negative matrix, dense or sparse, whose row i is ``labels[i]``."""
    try:
        array = np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise GraphError("the adjacency matrix must hold numbers.") from None
    if array.shape != (len(labels), len(labels)) or len(set(labels)) != len(labels):
        raise GraphError(
            f"the adjacency matrix has shape {array.shape}, and {len(set(labels))} distinct names were given "
            f"({len(labels)} in all): expected a square matrix and one distinct name per row."
        )
    wrong = ~(np.isfinite(array) & (array >= 0) & np.isclose(array, array.T, rtol=1e-9, atol=0.0))
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise GraphError(
            f"the adjacency matrix has {array[i, j]:.12g} from {labels[i]!r} to {labels[j]!r} and "
            f"{array[j, i]:.12g} back: expected 0 for 'no edge', else 1 or a positive length, the same both ways. "
            "If one way is enough, symmetrise it first, e.g. np.maximum(A, A.T)."
        )
    rows, columns = np.nonzero(np.triu(array, 1))
    return [(labels[i], labels[j], float(array[i, j])) for i, j in zip(rows, columns, strict=True)]


def ordered_edges(edges: Mapping[Edge, float] | Iterable[Triple], groups: Groups) -> dict[Edge, float]:
    """Check edges, and sort each pair and all pairs by the order of the groups."""
    triples = ((a, b, length) for (a, b), length in edges.items()) if isinstance(edges, Mapping) else edges
    code_of = {name: code for code, name in enumerate(groups)}
    found: dict[tuple[int, int], float] = {}
    for a, b, given in triples:
        a, b, length = plain_name(a), plain_name(b), as_number(given)
        for name in (a, b):
            if name not in code_of:
                raise GraphError(f"edge {a!r}–{b!r} names {name!r}, which is not among the graph's groups.")
        if a == b:
            raise GraphError(f"{a!r} has an edge to itself; a group graph has no loops. Remove that edge.")
        if not (length > 0 and math.isfinite(length)):
            raise GraphError(
                f"edge {a!r}–{b!r} has length {given!r:.50}: a length is a positive and finite number. Leave the edge "
                "out to say that the two groups do not touch."
            )
        i, j = sorted((code_of[a], code_of[b]))
        if found.setdefault((i, j), length) != length:
            raise GraphError(
                f"edge {a!r}–{b!r} is given twice with different lengths ({found[i, j]:g} and {length:g}). The graph "
                "is undirected: give each pair once, or the same length both ways."
            )
    return {(groups.names[i], groups.names[j]): found[i, j] for i, j in sorted(found)}


def _neighbor_edges(neighbors: Mapping[Any, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield edges from neighbours by group."""
    for name, others in neighbors.items():
        if isinstance(others, str) or not isinstance(others, Iterable):
            raise GraphError(
                f"the neighbours of {name!r} are {others!r}: expected a list of names, or {{neighbour: length}}."
            )
        yield (name,)
        for other in others:
            yield (name, other, others[other]) if isinstance(others, Mapping) else (name, other)
