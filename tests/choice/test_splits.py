"""Splitters over graphs: what is held out, by name, and that scikit-learn takes them for its own."""

from __future__ import annotations

import math
import pickle
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_validate

from tests.topology.strategies import graphs
from toporo.choice.hops import hop_folds
from toporo.choice.splits import GraphHopSplit, LeaveRegionOut
from toporo.errors import DataError, GraphError, GroupMismatchError, SettingError, TopoRoWarning
from toporo.paper.configuration import grow_region, regions
from toporo.topology.graph import GroupGraph

LAW = settings(max_examples=40, deadline=None, derandomize=True)
#: A row of ten groups; the last three are for the test, at one, two and three hops.
CHAIN = GroupGraph.from_edges([(i, i + 1) for i in range(9)])
TRAIN, TEST = range(7), (7, 8, 9)
GRID = GroupGraph.from_edges(
    [((i, j), (i + 1, j)) for i in range(5) for j in range(6)]
    + [((i, j), (i, j + 1)) for i in range(6) for j in range(5)]
)


def connected(graph: GroupGraph, names: tuple) -> bool:
    return len(graph.subgraph(names).components()) == 1


def rows_of(groups, fold):
    return {groups[i] for i in fold}


@pytest.fixture
def table():
    """Three rows for each of the chain's training groups, in no order."""
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(list(TRAIN), 3))
    x = rng.normal(size=(len(groups), 2))
    return x, x @ [1.0, -1.0] + groups, groups


# ---------------------------------------------------------------- what scikit-learn asks of a splitter

SPLITTERS = [LeaveRegionOut(CHAIN, max_splits=6), GraphHopSplit(CHAIN), GraphHopSplit(CHAIN, TEST, n_splits=3)]


@pytest.mark.parametrize("split", SPLITTERS, ids=repr)
def test_rows_are_divided_by_group_and_each_row_is_on_one_side(split, table):
    x, y, groups = table
    folds = list(split.split(x, y, groups))
    assert len(folds) == split.get_n_splits(x, y, groups) == len(split.regions(TRAIN))
    for (train, test), held_out in zip(folds, split.regions(groups), strict=True):
        assert train.dtype.kind == test.dtype.kind == "i"
        assert sorted([*train, *test]) == list(range(len(x)))
        assert rows_of(groups, test) == set(held_out)
        assert not rows_of(groups, train) & set(held_out)


@pytest.mark.parametrize("split", SPLITTERS, ids=repr)
@pytest.mark.parametrize("routing", [False, True])
def test_scikit_learn_passes_the_groups_on(split, table, routing):
    """As to its own GroupKFold: by groups= without metadata routing, in params with it, nothing to be requested."""
    x, y, groups = table
    expected = [LinearRegression().fit(x[a], y[a]).score(x[b], y[b]) for a, b in split.split(x, y, groups)]
    given = {"params": {"groups": groups}} if routing else {"groups": groups}
    with sklearn.config_context(enable_metadata_routing=routing):
        scores = cross_validate(LinearRegression(), x, y, cv=split, **given)["test_score"]
        np.testing.assert_allclose(scores, expected)
        search = GridSearchCV(Ridge(), {"alpha": [0.1, 100.0]}, cv=split).fit(x, y, groups=groups)
        assert search.n_splits_ == len(expected)
        again = clone(search).fit(x, y, groups=groups)
        assert again.cv_results_["mean_test_score"].tolist() == search.cv_results_["mean_test_score"].tolist()


@pytest.mark.parametrize("split", SPLITTERS, ids=repr)
def test_copies_split_alike(split):
    for copy in (clone(split, safe=False), pickle.loads(pickle.dumps(split))):
        assert copy is not split
        assert repr(copy) == repr(split)
        assert copy.regions(TRAIN) == split.regions(TRAIN)


def test_a_splitter_shows_its_settings():
    shown = [" ".join(repr(split).split()) for split in (LeaveRegionOut(CHAIN), GraphHopSplit(CHAIN, [9, 8]))]
    assert shown == [
        "LeaveRegionOut(graph=GroupGraph(10 groups, 9 edges, given), max_splits=60)",
        "GraphHopSplit(graph=GroupGraph(10 groups, 9 edges, given), n_splits=5, test_groups=(9, 8))",
    ]


def test_group_names_may_come_as_any_kind_of_column():
    graph = GroupGraph.from_edges([("ä", "b"), ("b", "c"), ("c", "d")])
    names = ["c", "ä", "b", "d", "c"]
    split = LeaveRegionOut(graph)
    series = pd.Series(names)
    columns = [names, np.array(names), np.array(names, dtype=object), series, series.astype("category")]
    splits = [[test.tolist() for _, test in split.split(np.zeros(5), groups=column)] for column in columns]
    assert all(folds == splits[0] for folds in splits)
    assert splits[0][:4] == [[2], [0, 4], [3], [1]]


# ---------------------------------------------------------------- regions


@given(graphs(min_nodes=2, max_nodes=9))
@LAW
def test_regions_are_connected_and_different_and_at_most_half_of_the_groups(graph):
    held_out = LeaveRegionOut(graph).regions(graph.names)
    assert len({frozenset(region) for region in held_out}) == len(held_out) > 0
    assert all(connected(graph, region) for region in held_out)
    assert {len(region) for region in held_out} <= set(range(1, max(1, len(graph) // 2) + 1))


@given(graphs(min_nodes=3, max_nodes=9))
@LAW
def test_with_room_for_all_they_are_the_regions_around_every_group(graph):
    expected = {frozenset(region) for region in regions(graph, graph.names)}
    held_out = LeaveRegionOut(graph, max_splits=10_000).regions(graph.names)
    assert {frozenset(region) for region in held_out} == expected
    around = {frozenset(grow_region(graph, name, 2)) for name in graph.names}
    if len(graph) > 3:
        assert {frozenset(region) for region in held_out if len(region) == 2} == {r for r in around if len(r) == 2}


@pytest.mark.parametrize("most", [5, 12, 18, 36, 60])
def test_of_many_regions_those_taken_cover_sizes_and_groups(most):
    held_out = LeaveRegionOut(GRID, max_splits=most).regions(GRID.names)
    counts = np.bincount([len(region) for region in held_out], minlength=19)[1:]
    assert len(held_out) == most
    assert counts[-1] > 0, "the largest size is the hardest question"
    assert counts.max() - counts[counts > 0].min() <= 1
    times = {name: sum(name in region for region in held_out) for name in GRID.names}
    assert min(times.values()) >= (most >= 12)
    assert max(times.values()) <= 2 * min(times.values()) + 2


def test_regions_are_connected_among_the_groups_of_the_data():
    """A path through a group without data does not join two groups."""
    held_out = LeaveRegionOut(CHAIN, max_splits=100).regions([0, 1, 3, 4])
    assert held_out == [(0,), (1,), (3,), (4,), (0, 1), (3, 4)]
    assert LeaveRegionOut(CHAIN).regions([4, 2]) == [(2,), (4,)], "two groups: one of them at a time"


def test_hundreds_of_groups_are_covered_from_a_few():
    long = GroupGraph.from_edges([(i, i + 1) for i in range(399)])
    held_out = LeaveRegionOut(long, max_splits=40).regions(long.names)
    assert len(held_out) == 40
    centres = sorted(np.mean(region) for region in held_out)
    assert centres[0] < 100
    assert centres[-1] > 299
    folds = GraphHopSplit(long, range(390, 400), n_splits=3).folds(range(390))
    assert all(fold.likeness < 0.5 for fold in folds)
    assert all(not set(a.held_out) & set(b.held_out) for a, b in combinations(folds, 2))


# ---------------------------------------------------------------- hops


def test_held_out_groups_are_as_far_as_the_test_groups():
    """At one end of a chain the test groups are 1, 2 and 3 hops away; three groups at the other end are, too."""
    split = GraphHopSplit(CHAIN, TEST, n_splits=2)
    first, second = split.folds(TRAIN)
    assert (first.held_out, second.held_out) == ((0, 1, 2), (4, 5, 6))
    assert first.hops == {0: 3, 1: 2, 2: 1}
    assert first.likeness == second.likeness == 0.0


@given(graphs(min_nodes=4, max_nodes=9), st.integers(0, 3), st.integers(1, 4))
@LAW
@pytest.mark.filterwarnings("ignore::toporo.errors.TopoRoWarning")
def test_likeness_is_the_distance_between_the_hops(graph, unseen, most):
    """... with "no path" one hop beyond the longest path, as computed by somebody else."""
    unseen = min(unseen, len(graph) - 3)
    train, test = graph.names[: len(graph) - unseen], graph.names[len(graph) - unseen :]
    folds = hop_folds(graph, train, test or None, most)
    to_train = graph.hops(train)
    aim = [to_train[name] for name in test] or [1]
    within = [graph.hops([a])[b] for a in train for b in train]
    beyond = 1 + max(hop for hop in [*within, *aim, 1] if math.isfinite(hop))
    assert len({fold.held_out for fold in folds}) == len(folds) >= min(most, len(train))
    for fold in folds:
        kept = [name for name in train if name not in fold.held_out]
        assert len(kept) >= max(2, len(train) / 3)
        hops = graph.hops(kept)
        assert fold.hops == {name: hops[name] for name in fold.held_out}
        distance = wasserstein_distance(np.minimum(list(fold.hops.values()), beyond), np.minimum(aim, beyond))
        assert fold.likeness == pytest.approx(distance, abs=1e-6)


@given(graphs(min_nodes=5, max_nodes=8, connected=True))
@LAW
def test_no_set_at_all_is_much_more_like_the_test(graph):
    """Candidates are few of all sets; where the best is much better, something is missing among them."""
    train, test = graph.names[:-2], graph.names[-2:]
    to_train = graph.hops(train)
    aim, best = [to_train[name] for name in test], math.inf
    for size in range(1, len(train) - max(2, math.ceil(len(train) / 3)) + 1):
        for held_out in combinations(train, size):
            hops = graph.hops([name for name in train if name not in held_out])
            best = min(best, wasserstein_distance([hops[name] for name in held_out], aim))
    assert hop_folds(graph, train, test, 1)[0].likeness <= best + 0.5


def test_without_test_groups_every_held_out_group_touches_a_kept_one():
    folds = GraphHopSplit(GRID).folds(GRID.names)
    assert len(folds) == 5
    assert all(set(fold.hops.values()) == {1} and fold.likeness == 0.0 for fold in folds)
    held_out = [name for fold in folds for name in fold.held_out]
    assert len(set(held_out)) == len(held_out), "no group twice while there are others"
    assert len(held_out) >= 18, "folds of one group each would be easy and say little"


def test_folds_overlap_only_where_that_is_worth_it():
    """On a ring any arc is as good as another: five arcs of four groups that share nothing."""
    ring = GroupGraph.from_edges([(i, (i + 1) % 24) for i in range(24)] + [(0, 100), (12, 101), (100, 102), (101, 103)])
    folds = GraphHopSplit(ring, [100, 101, 102, 103], n_splits=5).folds(range(24))
    assert all(fold.likeness == 0.0 for fold in folds)
    assert all(not set(a.held_out) & set(b.held_out) for a, b in combinations(folds, 2))


def test_test_groups_that_no_path_reaches():
    """Said, and then the farthest that can be held out is the aim."""
    graph = GroupGraph.from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (8, 9)])
    with pytest.warns(TopoRoWarning, match="no path leads .* to 2 of 2 test groups"):
        fold = GraphHopSplit(graph, [8, 9], n_splits=1).folds(range(6))[0]
    reachable = [
        np.mean([graph.hops(set(range(6)) - set(held_out))[name] for name in held_out])
        for size in range(1, 5)
        for held_out in combinations(range(6), size)
    ]
    assert np.mean(list(fold.hops.values())) == max(reachable) == 2.5


def test_a_piece_of_its_own_stands_for_test_groups_beyond_reach():
    graph = GroupGraph.from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (6, 7), (8, 9)])
    with pytest.warns(TopoRoWarning, match="no path"):
        fold = GraphHopSplit(graph, [8, 9], n_splits=1).folds([0, 1, 2, 3, 4, 6, 7])[0]
    assert (fold.held_out, fold.likeness) == ((6, 7), 0.0)
    assert fold.hops == {6: math.inf, 7: math.inf}


# ---------------------------------------------------------------- by name


@given(graphs(min_nodes=4, max_nodes=9), st.randoms(use_true_random=False))
@LAW
def test_the_order_of_rows_changes_nothing(graph, random):
    rows = [name for name in graph.names for _ in range(2)]
    random.shuffle(rows)
    for split in (LeaveRegionOut(graph, max_splits=5), GraphHopSplit(graph, n_splits=3)):
        shuffled = [rows_of(rows, test) for _, test in split.split(np.zeros(len(rows)), groups=rows)]
        assert shuffled == [set(region) for region in split.regions(graph.names)]


@given(st.permutations(range(10)))
@LAW
def test_any_other_names_give_the_renamed_folds_where_nothing_is_equal(names):
    """Both ends of the chain are like the test; which comes first is by name, that they are the two is not."""
    renamed = GroupGraph.from_edges([(names[a], names[b]) for a, b in CHAIN.edges])
    plain, other = GraphHopSplit(CHAIN, TEST, n_splits=2), GraphHopSplit(renamed, [names[i] for i in TEST], n_splits=2)
    expected = {frozenset(names[i] for i in region) for region in plain.regions(TRAIN)}
    assert {frozenset(region) for region in other.regions([names[i] for i in TRAIN])} == expected


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("split", [LeaveRegionOut(CHAIN), GraphHopSplit(CHAIN)], ids=repr)
def test_groups_that_the_graph_does_not_have_are_listed(split):
    with pytest.raises(GroupMismatchError, match=r"group\(s\) of the data not in the graph: 'x', 'y'"):
        list(split.split(np.zeros(5), groups=[0, 1, 2, "y", "x"]))
    with pytest.raises(DataError, match="pass groups="):
        list(split.split(np.zeros(3)))
    with pytest.raises(DataError, match="found 1 group"):
        list(split.split(np.zeros(2), groups=[4, 4]))
    with pytest.raises(ValueError, match="inconsistent"):
        list(split.split(np.zeros(3), groups=[0, 1]))


def test_test_groups_have_no_rows():
    with pytest.raises(GroupMismatchError, match=r"test group\(s\) in the data: 8"):
        GraphHopSplit(CHAIN, TEST).regions([0, 1, 2, 8])
    with pytest.raises(GroupMismatchError, match="not in the graph: 'nowhere'"):
        GraphHopSplit(CHAIN, ["nowhere"])


def test_too_few_groups_say_what_to_do():
    with pytest.raises(DataError, match=r"needs at least 3.*KFold"):
        GraphHopSplit(CHAIN).regions([0, 1])
    with pytest.raises(DataError, match=r"can be held out in 3 ways, .* use n_splits=3 or less"):
        GraphHopSplit(CHAIN).regions([0, 1, 2])
    assert GraphHopSplit(CHAIN, n_splits=3).regions([0, 1, 2]) == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LeaveRegionOut(CHAIN, max_splits=True), "max_splits is True"),
        (lambda: GraphHopSplit(CHAIN, n_splits=0), "n_splits is 0"),
        (lambda: GraphHopSplit(CHAIN, []), "test_groups is empty"),
    ],
)
def test_settings_out_of_range(make, message):
    with pytest.raises(SettingError, match=message):
        make()


def test_any_form_of_a_graph_will_do():
    edges = list(CHAIN.edges)
    assert LeaveRegionOut(edges).graph == GraphHopSplit(edges, [edges[0][0]]).graph == CHAIN
    with pytest.raises(GraphError, match="of type NoneType: expected a GroupGraph"):
        GraphHopSplit(None)
