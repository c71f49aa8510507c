"""Folds that hold out every group equally often, and whose pooled distances are like the test's."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_predict

from tests.topology.strategies import graphs
from toporo.choice.cross_fitting import random_parts
from toporo.choice.matching import wasserstein
from toporo.choice.splits import GraphHopSplit
from toporo.errors import DataError, GraphError, SettingError, TopoRoWarning
from toporo.topology.graph import GroupGraph

LAW = settings(max_examples=25, deadline=None, derandomize=True)
#: A row of ten groups; the last three are for the test, at one, two and three hops.
CHAIN = GroupGraph.from_edges([(i, i + 1) for i in range(9)])
TRAIN, TEST = range(7), (7, 8, 9)
GRID = GroupGraph.from_edges(
    [((i, j), (i + 1, j)) for i in range(9) for j in range(10)]
    + [((i, j), (i, j + 1)) for i in range(10) for j in range(9)]
)
RIGHT = [name for name in GRID.names if name[0] > 7]
LEFT = [name for name in GRID.names if name[0] <= 7]


def times_held_out(folds, names) -> set[int]:
    return {sum(name in fold.held_out for fold in folds) for name in names}


# ---------------------------------------------------------------- every group equally often


@given(graphs(min_nodes=4, max_nodes=9), st.integers(0, 2), st.integers(2, 3), st.integers(1, 3), st.integers(0, 5))
@LAW
@pytest.mark.filterwarnings("ignore::toporo.errors.TopoRoWarning")
def test_every_round_holds_out_every_group_once(graph, unseen, n_splits, repeats, seed):
    unseen = min(unseen, len(graph) - 3)
    train, test = graph.names[: len(graph) - unseen], graph.names[len(graph) - unseen :] or None
    split = GraphHopSplit(graph, test, n_splits=n_splits, repeats=repeats, seed=seed)
    folds = split.folds(train)
    assert len(folds) == split.get_n_splits() == n_splits * repeats
    for start in range(0, len(folds), n_splits):
        assert times_held_out(folds[start : start + n_splits], train) == {1}
    for fold in folds:
        assert 0 < len(fold.held_out) <= max(math.ceil(len(train) / n_splits), len(train) // 2)
        hops = graph.hops([name for name in train if name not in fold.held_out])
        assert fold.hops == {name: hops[name] for name in fold.held_out}


def test_likeness_is_pooled_over_folds_and_rounds():
    split = GraphHopSplit(GRID, RIGHT, n_splits=4, repeats=2)
    folds = split.folds(LEFT)
    pooled = [hop for fold in folds for hop in fold.hops.values()]
    assert len(pooled) == 2 * len(LEFT)
    aim = list(split.test_hops(LEFT).values())
    assert split.likeness(LEFT) == pytest.approx(wasserstein_distance(pooled, aim))
    assert folds[0].likeness == pytest.approx(wasserstein_distance(list(folds[0].hops.values()), aim))


def test_likeness_of_folds_taken_one_by_one():
    split = GraphHopSplit(CHAIN, TEST, n_splits=2)
    assert split.likeness(TRAIN) == 0.0
    assert GraphHopSplit(CHAIN, TEST, n_splits=1).likeness(TRAIN) == 0.0
    assert times_held_out(split.folds(TRAIN), TRAIN) == {0, 1}, "the middle of the row is never held out"


def test_all_rows_can_be_predicted():
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(list(TRAIN), 3))
    x = rng.normal(size=(21, 2))
    cv = GraphHopSplit(CHAIN, TEST, n_splits=3, repeats=1)
    assert cross_val_predict(LinearRegression(), x, x[:, 0], cv=cv, groups=groups) == pytest.approx(x[:, 0])


# ---------------------------------------------------------------- like the test


@pytest.mark.parametrize("repeats", [1, 3])
def test_folds_are_as_far_away_as_the_test(repeats):
    """Two columns to the right of a grid are one and two hops away; scattered groups are one, nearly always."""
    split = GraphHopSplit(GRID, RIGHT, repeats=repeats)
    assert split.likeness(LEFT) < 0.1
    scattered = [random_parts(len(LEFT), 5, seed) for seed in range(repeats)]
    hops = [
        hop
        for labels in scattered
        for fold in range(5)
        for name, hop in GRID.hops([n for n, k in zip(LEFT, labels, strict=True) if k != fold]).items()
        if name in LEFT and labels[LEFT.index(name)] == fold
    ]
    assert wasserstein_distance(hops, list(split.test_hops(LEFT).values())) > 0.4


def test_test_groups_next_door_get_scattered_folds():
    ring = GroupGraph.from_edges([(i, (i + 1) % 30) for i in range(30)] + [(i, 100 + i) for i in range(30)])
    split = GraphHopSplit(ring, range(100, 130), repeats=2)
    assert split.likeness(range(30)) == 0.0
    assert GraphHopSplit(ring, repeats=2).likeness(range(30)) == 0.0, "without test groups, one hop"


def every_division(groups: int, n_splits: int):
    for labels in product(range(n_splits), repeat=groups):
        sizes = np.bincount(labels, minlength=n_splits)
        if sizes.min() and sizes.max() <= max(math.ceil(groups / n_splits), groups // 2):
            yield np.array(labels)


@given(graphs(min_nodes=6, max_nodes=8, connected=True), st.integers(2, 3))
@LAW
def test_no_division_at_all_is_much_more_like_the_test(graph, n_splits):
    train, test = graph.names[:-2], graph.names[-2:]
    split = GraphHopSplit(graph, test, n_splits=n_splits, repeats=1)
    hops = np.array([[graph.hops([a])[b] for a in train] for b in train])
    aim = list(split.test_hops(train).values())
    best = min(
        wasserstein_distance(np.where(labels[:, None] != labels, hops, np.inf).min(axis=1), aim)
        for labels in every_division(len(train), n_splits)
    )
    assert best - 1e-9 <= split.likeness(train) <= best + 0.1


@given(*[st.lists(st.floats(0, 10), min_size=1, max_size=8)] * 2)
@LAW
def test_the_wasserstein_distance_is_that_of_scipy(a, b):
    assert wasserstein(np.array(a), np.array(b)) == pytest.approx(wasserstein_distance(a, b), abs=1e-9)


def test_test_groups_that_no_path_reaches_are_one_hop_beyond():
    graph = GroupGraph.from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (6, 7), (8, 9)])
    split = GraphHopSplit(graph, [8, 9], n_splits=2, repeats=1)
    with pytest.warns(TopoRoWarning, match="no path leads .* to 2 of 2 test groups"):
        folds = split.folds([0, 1, 2, 3, 4, 6, 7])
    assert math.inf in {hop for fold in folds for hop in fold.hops.values()}
    assert all(math.isfinite(fold.likeness) for fold in folds)


# ---------------------------------------------------------------- the draw


def test_a_seed_is_a_set_of_folds():
    drawn = [GraphHopSplit(GRID, RIGHT, repeats=2, seed=seed).regions(LEFT) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    first, second = drawn[0][:5], drawn[0][5:]
    assert first != second, "a round that repeats another says nothing new"


def test_names_may_come_in_any_order():
    split = GraphHopSplit(GRID, RIGHT, repeats=1)
    assert split.regions(LEFT[::-1]) == split.regions(LEFT)


def test_without_test_groups_and_a_graph_whole_groups_are_drawn():
    split = GraphHopSplit(n_splits=3, repeats=2)
    folds = split.folds(TRAIN)
    assert sorted(len(fold.held_out) for fold in folds) == [2, 2, 2, 2, 3, 3]
    assert times_held_out(folds, TRAIN) == {2}
    assert all(fold.hops == {} and math.isnan(fold.likeness) for fold in folds)
    assert math.isnan(split.likeness(TRAIN))
    assert split.test_hops(TRAIN) == {}


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: GraphHopSplit(CHAIN, repeats=0), SettingError, "repeats is 0"),
        (lambda: GraphHopSplit(CHAIN, repeats=1, seed=-1), SettingError, "seed is -1"),
        (lambda: GraphHopSplit(CHAIN, repeats=1, n_splits=1), SettingError, "n_splits is 1: .* at least 2"),
        (lambda: GraphHopSplit(None, TEST, repeats=1), SettingError, "give a graph"),
        (lambda: GraphHopSplit(CHAIN, [], repeats=1), SettingError, "test_groups is empty"),
        (lambda: GraphHopSplit(), GraphError, "expected a GroupGraph"),
        (lambda: GraphHopSplit(CHAIN, repeats=1).folds([0, 1, 2]), DataError, "in 3 ways, .* use n_splits=3"),
        (lambda: GraphHopSplit(repeats=1).folds(["a"]), DataError, "found 1 group"),
    ],
)
def test_settings_that_do_not_go_together(make, error, message):
    with pytest.raises(error, match=message):
        make()
