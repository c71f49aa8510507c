"""Random group graphs for property tests."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import strategies as st

from toporo.topology import GroupGraph

LENGTHS = (0.5, 1.0, 1.5, 2.0)


@st.composite
def graphs(draw: Any, min_nodes: int = 1, max_nodes: int = 8, connected: bool = False) -> GroupGraph:
    """Any graph over 0 … n-1, in one piece if ``connected``."""
    n = draw(st.integers(min_nodes, max_nodes))
    lengths = st.sampled_from(LENGTHS)
    pairs = list(combinations(range(n), 2))
    edges = draw(st.dictionaries(st.sampled_from(pairs), lengths)) if pairs else {}
    if connected:
        for child in range(1, n):
            edges.setdefault((draw(st.integers(0, child - 1)), child), draw(lengths))
    return GroupGraph(range(n), edges)
