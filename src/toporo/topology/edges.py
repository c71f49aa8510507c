"""Edges of a group graph from the forms that they are given in, checked and ordered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from toporo.checks import as_number
from toporo.errors import GraphError
from toporo.groups import Groups, is_missing, plain_name
from toporo.types import Name

Edge: TypeAlias = tuple[Name, Name]
Triple: TypeAlias = tuple[Name, Name, float]


def parse_edges(edges: Iterable[Any] | Mapping[Any, Any]) -> tuple[list[Name], list[Triple]]:
    """Return the groups and the triples ``(a, b, length)`` of edges; see :meth:`toporo.GroupGraph.from_edges`."""
    names: list[Name] = []
    triples: list[Triple] = []
    for number, edge in enumerate(_mapping_edges(edges) if isinstance(edges, Mapping) else edges):
        cells = list(edge) if isinstance(edge, Sequence | np.ndarray) and not isinstance(edge, str) else []
        alone = all(map(is_missing, cells[1:]))
        if not 1 <= len(cells) <= 3 or (not alone and is_missing(cells[1])):
            raise GraphError(
                f"edge {number} is {edge!r}: expected a pair (a, b) or a triple (a, b, length), or (a,) for a "
                "group that touches nobody."
            )
        names += cells[:1] if alone else cells[:2]
        if not alone:
            triples.append((cells[0], cells[1], _length(cells, number)))
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
                f"edge {a!r}–{b!r} has length {length:g}: a length is positive and finite. Leave the edge out to say "
                "that the two groups do not touch."
            )
        i, j = sorted((code_of[a], code_of[b]))
        if found.setdefault((i, j), length) != length:
            raise GraphError(
                f"edge {a!r}–{b!r} is given twice with different lengths ({found[i, j]:g} and {length:g}). The graph "
                "is undirected: give each pair once, or the same length both ways."
            )
    return {(groups.names[i], groups.names[j]): found[i, j] for i, j in sorted(found)}


def _mapping_edges(mapping: Mapping[Any, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield edges from lengths by pair, or neighbours by group."""
    for key, value in mapping.items():
        if isinstance(value, Real) and isinstance(key, tuple) and len(key) == 2:
            yield (*key, value)
        elif isinstance(value, str) or not isinstance(value, Iterable):
            raise GraphError(
                f"the neighbours of {key!r} are {value!r}: expected a list of names, or {{neighbour: length}}."
            )
        else:
            yield (key,)
            others = value.items() if isinstance(value, Mapping) else ((other,) for other in value)
            yield from ((key, *other) for other in others)


def _length(cells: Sequence[Any], number: int) -> float:
    """Return the length of an edge given as a pair or a triple."""
    try:
        return float(cells[2]) if len(cells) == 3 else 1.0
    except (TypeError, ValueError, OverflowError):
        raise GraphError(
            f"edge {number}, {cells[0]!r}–{cells[1]!r}: the length {cells[2]!r:.50} is not a number."
        ) from None
