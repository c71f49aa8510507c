"""Folds that hold out every group once, and whose pooled distances are like the test's."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from tests.topology.strategies import graphs
from toporo.choice.cross_fitting import cross_fit, folds
from toporo.choice.hops import HopFold, matched_folds
from toporo.errors import TopoRoWarning
from toporo.groups import Groups
from toporo.topology.graph import GroupGraph

LAW = settings(max_examples=25, deadline=None, derandomize=True)
GRID = GroupGraph.from_edges(
    [((i, j), (i + 1, j)) for i in range(9) for j in range(10)]
    + [((i, j), (i, j + 1)) for i in range(10) for j in range(9)]
)
RIGHT = [name for name in GRID.names if name[0] > 7]
LEFT = [name for name in GRID.names if name[0] <= 7]


def unlike(graph: GroupGraph, train, test, held: tuple[HopFold, ...]) -> float:
    to_train = graph.hops(train)
    return wasserstein_distance(
        [hop for fold in held for hop in fold.hops.values()], [to_train[name] for name in test or ()] or [1]
    )


@given(graphs(min_nodes=4, max_nodes=9), st.integers(0, 2), st.integers(2, 3), st.integers(0, 5))
@LAW
@pytest.mark.filterwarnings("ignore::toporo.errors.TopoRoWarning")
def test_every_group_is_held_out_once(graph, unseen, parts, seed):
    unseen = min(unseen, len(graph) - 3)
    train, test = graph.names[: len(graph) - unseen], graph.names[len(graph) - unseen :]
    held = matched_folds(graph, train, test, parts, seed)
    assert len(held) == parts
    assert sorted(name for fold in held for name in fold.held_out) == sorted(train)
    for fold in held:
        assert 0 < len(fold.held_out) <= max(math.ceil(len(train) / parts), len(train) // 2)
        hops = graph.hops([name for name in train if name not in fold.held_out])
        assert fold.hops == {name: hops[name] for name in fold.held_out}


@pytest.mark.parametrize("kind", ["matched", "random", "turns"])
def test_every_row_is_predicted_once(kind):
    ids = Groups.of([name for name in GRID.names for _ in range(2)])
    masks = folds(ids, GRID, (), kind=kind, parts=4, seed=3)
    seen = cross_fit(lambda fold: fold.held_out.astype(float), masks).by_row()
    np.testing.assert_array_equal(seen, np.arange(len(ids)))


def test_folds_are_as_far_away_as_the_test():
    """Two columns to the right of a grid are one and two hops away; scattered groups are one, nearly always."""
    assert unlike(GRID, LEFT, RIGHT, matched_folds(GRID, LEFT, RIGHT, 5, 0)) < 0.1
    ring = GroupGraph.from_edges([(i, (i + 1) % 30) for i in range(30)] + [(i, 100 + i) for i in range(30)])
    assert unlike(ring, range(30), range(100, 130), matched_folds(ring, range(30), range(100, 130), 5, 0)) == 0.0
    assert unlike(ring, range(30), None, matched_folds(ring, range(30), None, 5, 0)) == 0.0


def every_division(groups: int, parts: int):
    for labels in product(range(parts), repeat=groups):
        sizes = np.bincount(labels, minlength=parts)
        if sizes.min() and sizes.max() <= max(math.ceil(groups / parts), groups // 2):
            yield np.array(labels)


@given(graphs(min_nodes=6, max_nodes=8, connected=True), st.integers(2, 3))
@LAW
def test_no_division_at_all_is_much_more_like_the_test(graph, parts):
    train, test = graph.names[:-2], graph.names[-2:]
    hops = np.array([[graph.hops([a])[b] for a in train] for b in train])
    to_train = graph.hops(train)
    best = min(
        wasserstein_distance(
            np.where(labels[:, None] != labels, hops, np.inf).min(axis=1), [to_train[name] for name in test]
        )
        for labels in every_division(len(train), parts)
    )
    assert best - 1e-9 <= unlike(graph, train, test, matched_folds(graph, train, test, parts, 0)) <= best + 0.1


def test_test_groups_that_no_path_reaches_are_one_hop_beyond():
    graph = GroupGraph.from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (6, 7), (8, 9)])
    with pytest.warns(TopoRoWarning, match="no path leads .* to 2 of 2 test groups"):
        held = matched_folds(graph, [0, 1, 2, 3, 4, 6, 7], [8, 9], 2, 0)
    assert math.inf in {hop for fold in held for hop in fold.hops.values()}
    assert all(math.isfinite(fold.likeness) for fold in held)


def test_a_seed_is_a_set_of_folds_and_names_may_come_in_any_order():
    drawn = [matched_folds(GRID, LEFT, RIGHT, 5, seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert matched_folds(GRID, LEFT[::-1], RIGHT, 5, 0) == drawn[0]
