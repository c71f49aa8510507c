"""The learned topology: each cut against a hand-made distance matrix, and an honest record of what was seen."""

from __future__ import annotations

import warnings
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoWarning, UnknownNameError
from toporo.groups import Groups
from toporo.topology import CUTS, GroupDistances, GroupGraph, cut_graph, diffusion_emd, learn_topology

quick = settings(deadline=None, max_examples=60)

#: Two pairs of near groups, a-b and c-d, some way apart.
HAND = {"ab": 1.0, "cd": 2.0, "bc": 5.0, "ac": 6.0, "bd": 7.0, "ad": 9.0}


def distances(pairs: dict[str, float]) -> GroupDistances:
    """From {"ab": distance, …}."""
    groups = Groups(sorted(set("".join(pairs))))
    matrix = np.zeros((len(groups), len(groups)))
    for (a, b), value in pairs.items():
        i, j = groups.encode([a, b])
        matrix[i, j] = matrix[j, i] = value
    return GroupDistances(groups, matrix, 0.0, {"scales": 4})


def quiet_cut(*args: Any, **kwargs: Any) -> GroupGraph:
    """Cut without the warning about graphs in pieces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)
        return cut_graph(*args, **kwargs)


@st.composite
def random_distances(draw: Any, min_groups: int = 2, max_groups: int = 7) -> GroupDistances:
    """Distinct distances between groups 0 … m-1."""
    m = draw(st.integers(min_groups, max_groups))
    upper = np.triu_indices(m, 1)
    matrix = np.zeros((m, m))
    matrix[upper] = draw(st.permutations(range(1, len(upper[0]) + 1)))
    return GroupDistances(Groups(range(m)), matrix + matrix.T, 0.0, {})


def points(groups: int = 3, size: int = 15, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Groups along a line, next ones overlapping."""
    labels = np.repeat(np.arange(groups), size)
    rng = np.random.default_rng(seed)
    return rng.normal(size=(groups * size, 2)) + 1.5 * labels[:, None], np.array(list("abcdefg"))[labels]


# ---------------------------------------------------------------------- the cuts


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"cut": "percentile", "percentile": 50}, "ab cd"),  # of 0 (4 times) and each distance twice: 3.5
        ({"cut": "percentile"}, "ab cd bc ac"),  # the 80th percentile is 7, and 7 is not below it
        ({"cut": "percentile", "percentile": 100}, "ab cd bc ac bd"),
        ({"cut": "knn"}, "ab cd"),  # log 4 rounds to one neighbour
        ({"cut": "knn", "nearest_groups": 2}, "ab cd bc ac bd"),
        ({"cut": "knn", "nearest_groups": 99}, "ab cd bc ac bd ad"),
        ({}, "ab cd bc"),
        ({"cut": "mst-knn", "nearest_groups": 1}, "ab cd bc"),
        ({"cut": "mst-knn", "nearest_groups": 2}, "ab cd bc ac bd"),
    ],
)
def test_cuts_by_hand(settings: dict[str, Any], kept: str) -> None:
    graph = quiet_cut(distances(HAND), **settings)
    assert graph.edges == {tuple(pair): HAND[pair] for pair in sorted(kept.split())}


@quick
@given(random_distances(), st.floats(1, 100))
def test_percentile_is_of_the_whole_flattened_matrix(given_distances: GroupDistances, percentile: float) -> None:
    """The published rule: the zero diagonal and both triangles count."""
    matrix = given_distances.matrix
    bound = np.percentile(matrix.flatten(), percentile)
    graph = quiet_cut(given_distances, "percentile", percentile=percentile)
    expected = np.where((matrix < bound) & (matrix > 0), matrix, 0.0)
    np.testing.assert_array_equal(graph.adjacency(weighted=True), expected)


@quick
@given(random_distances(), st.integers(1, 4))
def test_knn_keeps_what_is_near_from_either_side(given_distances: GroupDistances, k: int) -> None:
    matrix = given_distances.matrix
    rank = matrix.argsort(axis=1).argsort(axis=1)  # 0 is the group itself
    near = (rank >= 1) & (rank <= k)
    graph = quiet_cut(given_distances, "knn", nearest_groups=k)
    np.testing.assert_array_equal(graph.adjacency(), near | near.T)


@quick
@given(random_distances(), st.integers(1, 4))
def test_mst_knn_is_connected_and_unites_tree_and_neighbours(given_distances: GroupDistances, k: int) -> None:
    tree = nx.minimum_spanning_tree(nx.from_numpy_array(given_distances.matrix))
    neighbours = quiet_cut(given_distances, "knn", nearest_groups=k)
    graph = cut_graph(given_distances, "mst-knn", nearest_groups=k)  # no warning: pytest would show it
    assert len(graph.components()) == 1
    assert set(graph.edges) == {tuple(sorted(edge)) for edge in tree.edges} | set(neighbours.edges)


@quick
@given(random_distances(min_groups=3, max_groups=3))
def test_three_groups_give_a_chain_without_the_longest_edge(given_distances: GroupDistances) -> None:
    """The topology that the paper draws for PACS."""
    graph = cut_graph(given_distances)
    assert sorted(graph.edges.values()) == [1.0, 2.0]


def test_groups_at_distance_zero_are_joined() -> None:
    """Coinciding groups must not read as 'no edge' in the spanning tree."""
    graph = cut_graph(distances({"ab": 0.0, "bc": 1.0, "ac": 2.0}))
    assert set(graph.edges) == {("a", "b"), ("b", "c")}
    assert 0 < graph.edges["a", "b"] < 1e-300


@pytest.mark.parametrize("unit", [1e-12, 1e12])
@pytest.mark.parametrize("cut", sorted(CUTS))
def test_cuts_do_not_depend_on_the_unit_of_the_distances(cut: str, unit: float) -> None:
    scaled = distances({pair: unit * value for pair, value in HAND.items()})
    assert set(quiet_cut(scaled, cut).edges) == set(quiet_cut(distances(HAND), cut).edges)


@pytest.mark.parametrize("cut", ["knn", "percentile"])
def test_a_cut_that_disconnects_warns_and_says_what_would_not(cut: str) -> None:
    with pytest.warns(TopoRoWarning, match=rf"cut='{cut}' leaves the learned graph in 2 pieces .*'a', 'b'.*mst-knn"):
        cut_graph(distances(HAND), cut, percentile=50)


def test_unknown_cut_lists_the_valid_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown cut 'mst'.*knn, mst-knn, percentile"):
        cut_graph(distances(HAND), "mst")
    assert set(CUTS) == {"knn", "mst-knn", "percentile"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"percentile": 0}, "percentile is 0"),
        ({"percentile": 101}, "percentile is 101"),
        ({"percentile": np.nan}, "percentile is nan"),
        ({"nearest_groups": 0}, "nearest_groups is 0"),
        ({"nearest_groups": 1.5}, "nearest_groups is 1.5"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        cut_graph(distances(HAND), **settings)


@pytest.mark.parametrize(
    ("settings", "recorded"),
    [
        ({"cut": "percentile", "percentile": 70}, {"scales": 4, "error": 0.0, "cut": "percentile", "percentile": 70}),
        ({"cut": "knn", "nearest_groups": 2}, {"scales": 4, "error": 0.0, "cut": "knn", "nearest_groups": 2}),
        ({}, {"scales": 4, "error": 0.0, "cut": "mst-knn", "nearest_groups": 1}),
    ],
)
def test_the_graph_records_its_cut(settings: dict[str, Any], recorded: dict[str, Any]) -> None:
    origin = quiet_cut(distances(HAND), **settings).origin
    assert (origin.kind, origin.saw_test_inputs, origin.details) == ("learned", False, recorded)


# ---------------------------------------------------------------------- from features


def test_learning_is_distances_then_cut() -> None:
    x, g = points(5)
    settings = {"scales": 4, "sigma": 1.0}
    graph = learn_topology(x, g, cut="knn", nearest_groups=2, **settings)
    assert graph == cut_graph(diffusion_emd(x, g, **settings), "knn", nearest_groups=2)
    assert graph.origin.details.items() >= {"scales": 4, "sigma": 1.0, "cut": "knn", "nearest_groups": 2}.items()
    assert graph.origin.saw_test_inputs is False


def test_groups_on_a_line_give_the_line() -> None:
    graph = learn_topology(*points(3), scales=4)
    assert set(graph.edges) == {("a", "b"), ("b", "c")}


def test_learning_twice_gives_the_same_file_and_shuffled_rows_the_same_edges() -> None:
    x, g = points(5)
    graph = learn_topology(x, g, scales=5)
    assert learn_topology(x, g, scales=5).to_json() == graph.to_json()
    order = np.random.default_rng(1).permutation(len(x))
    assert set(learn_topology(x[order], g[order], scales=5).edges) == set(graph.edges)


def test_a_learned_graph_survives_its_file_whatever_type_its_settings_had() -> None:
    """Settings out of a numpy grid (np.arange, np.logspace) are numpy scalars, which JSON does not know."""
    graph = learn_topology(*points(), scales=np.int64(3), neighbors=np.int64(5), sigma=np.float32(2))
    again = GroupGraph.from_json(graph.to_json())
    assert again == graph
    assert again.origin == graph.origin


def test_test_inputs_add_their_groups_and_are_recorded() -> None:
    x, g = points(4)
    train = g < "c"
    graph = learn_topology(x[train], g[train], test_features=x[~train], test_groups=g[~train], scales=4)
    assert graph == learn_topology(x, g, scales=4)  # the same rows, the same graph
    assert graph.origin.saw_test_inputs is True
    assert GroupGraph.from_json(graph.to_json()).origin.saw_test_inputs is True


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"test_groups": list("bx")}, GroupMismatchError, "both in training and in test: 'b'"),
        ({"test_groups": None}, DataError, "go together: give both or neither"),
        ({"test_features": None}, DataError, "go together: give both or neither"),
        ({"test_features": np.zeros((2, 3))}, DataError, "features have 2 columns but test_features 3"),
        ({"test_features": np.zeros((3, 2))}, DataError, "test_features has 3 rows but 2 group labels"),
        ({"groups": list("ab")}, DataError, "^features has 30 rows but 2 group labels"),
        (
            {"test_features": np.full((2, 2), np.nan)},
            DataError,
            "test_features hold NaN or infinite values in 2 of 2 rows",
        ),
        ({"features": np.full((30, 2), np.inf)}, DataError, "^features hold NaN or infinite values in 30 of 30 rows"),
    ],
)
def test_bad_test_rows(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    x, g = points(2)
    arguments = {"features": x, "groups": g, "test_features": np.zeros((2, 2)), "test_groups": list("xy")} | changes
    with pytest.raises(error, match=message):
        learn_topology(**arguments)


def test_one_group_cannot_be_a_topology() -> None:
    with pytest.raises(DataError, match="only one group, 'a'"):
        learn_topology(*points(1))
