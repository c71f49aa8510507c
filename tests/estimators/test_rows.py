"""Rows on their way into a model: a graph learned from them."""

from typing import Any

import numpy as np
import pytest

from toporo.errors import DataError
from toporo.estimators.rows import learn_graph_of


def three_groups() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b", "c"], 40)
    return rng.normal(size=(120, 2)) + 1.5 * np.array([[0, 0], [1, 0], [2, 0]]).repeat(40, axis=0), groups


def test_a_learned_graph_does_not_depend_on_units() -> None:
    x, groups = three_groups()
    graph = learn_graph_of(x, groups)
    assert graph.origin.kind == "learned"
    assert set(graph.edges) == {("a", "b"), ("b", "c")}
    assert learn_graph_of(x * [1e6, 1e-3] + 7.0, groups).edges.keys() == graph.edges.keys()


def test_a_learned_graph_takes_only_so_many_rows_of_a_group() -> None:
    x, groups = three_groups()
    far = np.concatenate([x, x[:40] + 1e-9])  # "a" has 80 rows
    many = np.concatenate([groups, groups[:40]])
    kept = learn_graph_of(far, many, rows=10, resamples=0)
    again = learn_graph_of(far, many, rows=10, resamples=0)
    other = learn_graph_of(far, many, rows=10, seed=1, resamples=0)
    assert kept.edges == again.edges
    assert kept.edges != other.edges
    assert kept.edges != learn_graph_of(far, many, rows=100, resamples=0).edges


def test_test_rows_take_part_in_learning_only_with_their_groups() -> None:
    x, groups = three_groups()
    graph = learn_graph_of(x[:80], groups[:80], test_x=x[80:], test_groups=groups[80:])
    assert graph.names == ("a", "b", "c")
    assert graph.origin.saw_test_inputs
    with pytest.raises(DataError, match="go together"):
        learn_graph_of(x, groups, test_x=x)
