"""Layers and import cycles."""

from __future__ import annotations

from pathlib import Path

import grimp
import networkx as nx
import pytest
from importlinter import cli

ROOT = Path(__file__).parents[1]
#: Imports in methods of a class by modules that need the class.
LAZY = {
    ("toporo.topology.graph", "toporo.topology.draw"),
    ("toporo.topology.graph", "toporo.topology.centrality_prior"),
}


def cycles(edges: list[tuple[str, str]]) -> list[set[str]]:
    """Sets of modules each of which imports all the others of the set, if by way of some of them."""
    return [knot for knot in nx.strongly_connected_components(nx.DiGraph(edges)) if len(knot) > 1]


def test_cycles_are_seen() -> None:
    assert cycles([("a", "b"), ("b", "c"), ("c", "d")]) == []
    assert cycles([("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]) == [{"b", "c"}]


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Neither at their tops nor in functions, but for a few; those for type checkers alone may."""
    graph = grimp.build_graph("toporo", exclude_type_checking_imports=True, cache_dir=None)
    edges = [(module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module)]
    assert len(edges) > 500
    assert cycles([edge for edge in edges if edge not in LAZY]) == []


def test_modules_import_only_from_layers_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pyproject.toml lists them."""
    monkeypatch.chdir(ROOT)
    assert cli.lint_imports(no_cache=True) == cli.EXIT_STATUS_SUCCESS
