"""The learned topology: each cut against a hand-made distance matrix, and an honest record of what was seen."""

from __future__ import annotations

import json
import warnings
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toporo.errors import GroupMismatchError, SettingError, TopoRoWarning, UnknownNameError
from toporo.groups import Groups
from toporo.topology import CUTS, GroupDistances, GroupGraph, cut_graph, diffusion_emd, learn_topology
from toporo.topology import learn as learning
from toporo.topology.diffusion import GroupDiffusion
from toporo.topology.learn import contrast, resample

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


def kept(given: GroupDistances, cut: str, k: int) -> set[tuple[Any, Any]]:
    """Edges of a cut that takes k nearest groups."""
    mask = CUTS[cut](given.matrix, 80.0, k)
    np.testing.assert_array_equal(mask, mask.T)
    return {(given.names[i], given.names[j]) for i, j in np.argwhere(np.triu(mask, 1))}


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
        ({"cut": "knn"}, "ab cd"),  # log 4 rounds to one neighbour
        ({}, "ab cd bc"),
        ({"cut": "mst-knn-ties"}, "ab cd bc"),  # from a pair to the other at least 5, and 6 is more than 5.5
    ],
)
def test_cuts_by_hand(settings: dict[str, Any], kept: str) -> None:
    graph = quiet_cut(distances(HAND), **settings)
    assert graph.edges == {tuple(pair): HAND[pair] for pair in sorted(kept.split())}


def test_cuts_by_hand_with_two_neighbours() -> None:
    by_hand = distances(HAND)
    assert kept(by_hand, "knn", 3) == {tuple(pair) for pair in HAND}
    # d's second is b at 7, and 9 is more than 7.7
    assert kept(by_hand, "mst-knn-ties", 2) == {tuple(pair) for pair in HAND if pair != "ad"}


@quick
@given(random_distances(), st.integers(1, 4))
def test_mst_knn_is_connected_and_unites_tree_and_neighbours(given_distances: GroupDistances, k: int) -> None:
    tree = nx.minimum_spanning_tree(nx.from_numpy_array(given_distances.matrix))
    expected = {tuple(sorted(edge)) for edge in tree.edges} | kept(given_distances, "knn", k)
    assert kept(given_distances, "mst-knn", k) == expected
    assert len(cut_graph(given_distances, "mst-knn").components()) == 1  # no warning: pytest would show it


@st.composite
def tied_distances(draw: Any) -> GroupDistances:
    """Few different distances, zero among them, between groups 0 … m-1."""
    m = draw(st.integers(2, 7))
    upper = np.triu_indices(m, 1)
    matrix = np.zeros((m, m))
    values = st.sampled_from([0.0, 1.0, 1.05, 1.25, 2.0, 8.0])
    matrix[upper] = draw(st.lists(values, min_size=len(upper[0]), max_size=len(upper[0])))
    return GroupDistances(Groups(range(m)), matrix + matrix.T, 0.0, {})


@quick
@given(tied_distances(), st.integers(1, 4))
def test_ties_keep_what_is_as_short_as_the_way_around(given_distances: GroupDistances, k: int) -> None:
    """By the formula, its longest steps from Floyd and Warshall's recurrence."""
    matrix, k = given_distances.matrix, min(k, len(given_distances.matrix) - 1)
    around = matrix.copy()
    for step in range(len(matrix)):
        around = np.minimum(around, np.maximum(around[:, [step]], around[[step], :]))
    kth = np.sort(matrix, axis=1)[:, k]  # the first is the group itself
    expected = matrix <= 1.1 * np.maximum(around, np.maximum(kth[:, None], kth[None, :]))
    assert kept(given_distances, "mst-knn-ties", k) == {(i, j) for i, j in np.argwhere(np.triu(expected, 1))}
    assert kept(given_distances, "mst-knn-ties", k) >= kept(given_distances, "mst-knn", k)


@quick
@given(tied_distances(), st.randoms(use_true_random=False), st.integers(-40, 40))
def test_ties_do_not_depend_on_the_order_of_groups_or_the_unit(
    given_distances: GroupDistances, random: Any, unit: int
) -> None:
    """Names are dealt to the rows anew: an edge goes with its groups."""
    m = len(given_distances.matrix)
    order = random.sample(range(m), m)
    moved = GroupDistances(Groups(range(m)), 2.0**unit * given_distances.matrix[np.ix_(order, order)], 0.0, {})
    edges = {frozenset(order[i] for i in edge) for edge in cut_graph(moved, "mst-knn-ties").edges}
    assert edges == {frozenset(edge) for edge in cut_graph(given_distances, "mst-knn-ties").edges}


def test_groups_at_distance_zero_are_joined() -> None:
    """Coinciding groups must not read as 'no edge' in the spanning tree."""
    graph = cut_graph(distances({"ab": 0.0, "bc": 1.0, "ac": 2.0}))
    assert set(graph.edges) == {("a", "b"), ("b", "c")}
    assert 0 < graph.edges["a", "b"] < 1e-300


@pytest.mark.parametrize("cut", ["knn", "percentile"])
def test_a_cut_that_disconnects_warns_and_says_what_would_not(cut: str) -> None:
    with pytest.warns(TopoRoWarning, match=rf"cut='{cut}' leaves the learned graph in 2 pieces .*'a', 'b'.*mst-knn"):
        cut_graph(distances(HAND), cut, percentile=50)


def test_unknown_cut_lists_the_valid_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown cut 'mst'.*knn, mst-knn, mst-knn-ties, percentile"):
        cut_graph(distances(HAND), "mst")
    assert set(CUTS) == {"knn", "mst-knn", "mst-knn-ties", "percentile"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"percentile": 0}, "percentile is 0"),
        ({"percentile": 101}, "percentile is 101"),
        ({"percentile": np.nan}, "percentile is nan"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        cut_graph(distances(HAND), **settings)


# ---------------------------------------------------------------------- from features


def test_learning_twice_gives_the_same_file_another_seed_another_and_shuffled_rows_the_same_edges() -> None:
    x, g = points(5)
    graph = learn_topology(x, g, scales=5)
    assert learn_topology(x, g, scales=5).to_json() == graph.to_json()
    assert learn_topology(x, g, scales=5, seed=4).to_json() != graph.to_json()
    order = np.random.default_rng(1).permutation(len(x))
    shuffled = learn_topology(x[order], g[order], scales=5)
    assert set(shuffled.edges) == set(graph.edges)
    assert shuffled.stability == graph.stability
    assert shuffled.origin.details["contrast"] == pytest.approx(graph.origin.details["contrast"], rel=1e-9)


def test_a_learned_graph_survives_its_file_whatever_type_its_settings_had() -> None:
    """Settings out of a numpy grid (np.arange, np.logspace) are numpy scalars, which JSON does not know."""
    graph = learn_topology(*points(), scales=np.int64(3), neighbors=np.int64(5), sigma=np.float32(2))
    again = GroupGraph.from_json(graph.to_json())
    assert again == graph
    assert again.origin == graph.origin


def test_a_graph_with_test_groups_records_that_their_inputs_were_seen() -> None:
    graph = learn_topology(*points(4), test_groups=["c", "d"], scales=4, resamples=0)
    assert graph.names == ("a", "b", "c", "d")
    assert graph.origin.saw_test_inputs is True
    assert GroupGraph.from_json(graph.to_json()).origin.saw_test_inputs is True
    with pytest.raises(GroupMismatchError, match=r"unknown group.*'x'.*Known groups: 'a', 'b'"):
        learn_topology(*points(2), test_groups=["x"])


# ---------------------------------------------------------------------- resamples


def chain(size: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Five groups in a row, each touching the next."""
    labels = np.repeat(np.arange(5), size)
    x = np.random.default_rng(0).normal(size=(5 * size, 2)) + 2.5 * np.outer(labels, [1, 0])
    return x, np.array(list("abcde"))[labels]


def noise(groups: int = 6, size: int = 15, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """One cloud whose labels mean nothing."""
    x = np.random.default_rng(seed).normal(size=(groups * size, 2))
    return x, np.repeat(np.arange(groups), size)


@pytest.mark.parametrize("cut", sorted(CUTS))
def test_learning_is_distances_then_cut_and_stability_how_often_a_draw_has_the_edge(cut: str) -> None:
    x, g = chain(size=12)
    how: dict[str, Any] = {"cut": cut, "percentile": 70}
    graph = learn_topology(x, g, scales=4, resamples=6, **how)
    found = diffusion_emd(x, g, scales=4)
    assert graph == quiet_cut(found, **how)
    draws = resample(GroupDiffusion.prepare(x, g, scales=4), 6)
    cuts = [quiet_cut(draw, **how) for draw in draws]
    assert graph.stability == {edge: pytest.approx(sum(edge in cut.edges for cut in cuts) / 6) for edge in graph.edges}
    assert list(graph.bootstrap_edges) == [pytest.approx(cut.edges, rel=1e-3) for cut in cuts]
    recorded = {"scales": 4, "resamples": 6, "cut": cut, "error": found.error}
    recorded |= {"percentile": 70.0} if cut == "percentile" else {"nearest_groups": 2}
    assert graph.origin.details.items() >= recorded.items()
    assert graph.origin.saw_test_inputs is False


def test_resamples_are_taken_unasked_only_of_few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    x, g = chain(size=10)
    monkeypatch.setattr(learning, "FEW_POINTS", 50)
    monkeypatch.setattr(learning, "DEFAULT_RESAMPLES", 3)
    assert learn_topology(x, g, scales=3).origin.details["resamples"] == 3
    monkeypatch.setattr(learning, "FEW_POINTS", 49)
    graph = learn_topology(x, g, scales=3)
    assert graph.stability is None
    assert not {"resamples", "contrast"} & set(graph.origin.details)


@pytest.mark.filterwarnings("ignore:the learned topology is not informative")
def test_three_groups_without_meaning_have_a_uniform_prior_and_three_in_a_row_a_middle() -> None:
    """Three alike are a chain by the spanning tree, which one is its middle being chance."""
    x, g = noise(groups=3, size=40)
    names = list(range(3))
    with pytest.warns(TopoRoWarning, match="not distinguishable from chance"):
        chance = learn_topology(x, g, scales=4).prior(names)
    assert learn_topology(x, g, scales=4).prior(names, cautious=False).distance_to_uniform > 0.29
    assert set(chance.weights.values()) == {1 / 3}
    x, g = chain()
    graph = learn_topology(x[g < "d"], g[g < "d"], scales=4, cut="mst-knn-ties")
    prior = graph.prior("abc")  # no warning: pytest would raise it
    assert prior.weights["b"] == pytest.approx(2 / 3)
    assert (prior.bootstrap_rms, prior.fallback_reason) == (0.0, "")
    assert GroupGraph.from_json(graph.to_json()).prior("abc") == prior


def test_labels_without_meaning_are_unstable_and_warn() -> None:
    with pytest.warns(TopoRoWarning, match=r"not informative: distances between groups differ by 0\.\d times"):
        graph = learn_topology(*noise(), neighbors=8)
    assert np.mean(list((graph.stability or {}).values())) < 0.75
    assert graph.origin.details["contrast"] < 1


@pytest.mark.parametrize("resamples", [-1, 1, 2.5, np.nan, "many"])
def test_bad_resamples_are_an_error_before_the_work(resamples: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the work began")

    monkeypatch.setattr(GroupDiffusion, "prepare", never)
    with pytest.raises(SettingError, match=rf"resamples is {resamples!r}.* expected"):
        learn_topology(*chain(), resamples=resamples)


def test_contrast_by_hand() -> None:
    """Distances 1, 2, 3 have a standard deviation of 1; draws that differ by 2 have one of √2."""
    given_distances = distances({"ab": 1.0, "bc": 2.0, "ac": 3.0})
    draws = tuple(distances({"ab": 1.0 + d, "bc": 2.0 + d, "ac": 3.0 + d}) for d in (-1, 1))
    assert contrast(given_distances, draws) == pytest.approx(2**-0.5)
    assert contrast(given_distances, (given_distances, given_distances)) is None


def test_the_file_of_a_graph_without_a_contrast_is_plain_json() -> None:
    """Two groups are one pair, which has nothing to differ from. Infinity is no JSON."""
    x, g = chain()
    two = learn_topology(x[:80], g[:80], scales=4, resamples=3)
    single = learn_topology([[0.0], [1.0], [2.5]], list("abc"), sigma=1.0, resamples=3)
    for graph in (two, single):
        json.loads(graph.to_json(), parse_constant=pytest.fail)
        assert GroupGraph.from_json(graph.to_json()).origin == graph.origin


def test_a_cut_of_one_s_own_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CUTS, "_things", dict(CUTS))

    @CUTS.register("complete")
    def complete(matrix: np.ndarray, percentile: float, k: int) -> np.ndarray:
        """Every pair."""
        return np.ones(matrix.shape, dtype=bool)

    graph = learn_topology(*chain(), cut="complete", scales=4, resamples=0)
    assert len(graph.edges) == len(graph) * (len(graph) - 1) // 2
    assert graph.origin.details["cut"] == "complete"
