"""Diffusion EMD: the Chebyshev route against plain repeated squaring, its error bound, its laws and its errors."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from toporo.checks import parse_memory
from toporo.errors import DataError, SettingError, TopoRoWarning, UnknownNameError
from toporo.groups import GroupIds, Groups
from toporo.topology import data_graph, diffusion
from toporo.topology.diffusion import GroupDiffusion, GroupDistances, diffusion_emd
from toporo.topology.kernel import gaussian_kernel

from .engines import ON_CPU, emd, needs_numba, prepare

quick = settings(deadline=None, max_examples=25)


def kernel_of(points: np.ndarray, kernel: str, sigma: Any, neighbors: int = 15) -> np.ndarray:
    matrix = gaussian_kernel(points, kernel, sigma, neighbors)[0]
    return np.asarray(matrix if kernel == "dense" else matrix.toarray())


def oracle(
    kernel: np.ndarray, labels: Any, scales: int = 10, alpha: float = 0.5, row_weights: np.ndarray | float = 1.0
) -> np.ndarray:
    """The distances straight from the definition: dense matrices, powers by repeated squaring, float64."""
    q = kernel.sum(axis=1)
    m = kernel / q[:, None] / q[None, :]
    walk = m / m.sum(axis=1, keepdims=True)
    members = (np.asarray(labels)[:, None] == np.unique(labels)[None, :]) * np.reshape(row_weights, (-1, 1))
    start = members / members.sum(axis=0)
    mu = []
    for _ in range(scales + 1):
        mu.append(walk @ start)
        walk = walk @ walk
    terms = [2.0 ** (-(scales - k - 1) * alpha) * (mu[k + 1] - mu[k]) for k in range(scales)] + [mu[scales]]
    return np.asarray(sum(cdist(term.T, term.T, "cityblock") for term in terms))


def clusters(groups: int = 4, size: int = 20, dimensions: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Groups of points along a line, next ones overlapping."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(groups), size)
    return rng.normal(size=(groups * size, dimensions)) + 1.5 * labels[:, None], labels


def cloud(n: int, groups: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """One cloud in the plane, cut into groups from left to right; its kNN graph is in one piece."""
    points = np.random.default_rng(seed).random((n, 2))
    labels = np.empty(n, dtype=np.int64)
    labels[np.argsort(points[:, 0])] = np.arange(n) * groups // n
    return points, labels


def repeated(points: np.ndarray, labels: np.ndarray, copies: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Every point as often as chance has it, ``copies`` times on average; copies may be in other groups."""
    rng = np.random.default_rng(seed)
    chosen = np.concatenate([np.arange(len(points)), rng.integers(0, len(points), (copies - 1) * len(points))])
    given_labels = np.concatenate([labels, rng.permutation(labels[chosen[len(points) :]])])
    order = rng.permutation(len(chosen))
    return points[chosen][order], given_labels[order]


@contextmanager
def quiet() -> Iterator[None]:
    """Without our warnings, where a law holds whether or not one is due."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)
        yield


def assert_close(found: GroupDistances, expected: np.ndarray, relative: float = 1e-6) -> None:
    np.testing.assert_allclose(found.matrix, expected, rtol=relative, atol=0)


# ---------------------------------------------------------------------- against the definition


@pytest.mark.parametrize("alpha", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("scales", [1, 4, 10])
@pytest.mark.parametrize("kernel", ["dense", "knn"])
def test_agrees_with_repeated_squaring(kernel: str, scales: int, alpha: float) -> None:
    points, labels = clusters()
    found = diffusion_emd(points, labels, kernel=kernel, sigma=1.2, neighbors=6, scales=scales, alpha=alpha)
    assert_close(found, oracle(kernel_of(points, kernel, 1.2, 6), labels, scales, alpha))


@quick
@given(
    hnp.arrays(float, (7, 2), elements=st.floats(0, 3)), st.integers(1, 10), st.sampled_from([1e-1, 1e-3, 1e-5, 1e-7])
)
def test_the_error_bound_holds_and_meets_the_tolerance(points: np.ndarray, scales: int, tol: float) -> None:
    labels = [0, 0, 0, 1, 1, 2, 2]
    expected = oracle(kernel_of(points, "dense", 1.0), labels, scales)
    smallest = expected[np.triu_indices(3, 1)].min()
    assume(smallest > 1e-6)  # groups that cannot be told apart have a test of their own
    found = diffusion_emd(points, labels, sigma=1.0, scales=scales, tol=tol)
    assert found.error <= tol * smallest * (1 + 1e-9)
    assert np.abs(found.matrix - expected).max() <= found.error + 1e-12  # rounding of the oracle


def test_a_coarse_tolerance_really_truncates_within_its_bound() -> None:
    """The bound is tested where truncation, not rounding, makes the error."""
    points, labels = clusters()
    found = diffusion_emd(points, labels, sigma=0.3, tol=0.5)
    error = np.abs(found.matrix - oracle(kernel_of(points, "dense", 0.3), labels)).max()
    assert 1e-11 < error <= found.error


@pytest.mark.parametrize("shift", [1e-3, 1e-6])
@pytest.mark.parametrize(
    ("kernel", "engine"), [("dense", "scipy"), ("knn", "scipy"), pytest.param("knn", "numba", marks=needs_numba)]
)
def test_tiny_distances_are_as_accurate(kernel: str, engine: str, shift: float) -> None:
    """Every point of one group beside its twin in the other: the absolute tail must follow the distance down."""
    points, _ = cloud(60, 2)
    twins = np.concatenate([points, points + shift])
    labels = np.repeat(["a", "b"], 60)
    found = emd(twins, labels, engine, kernel=kernel, sigma=0.2, neighbors=12)
    assert found.between("a", "b") < (10 * shift if kernel == "dense" else 0.05)
    assert_close(found, oracle(kernel_of(twins, kernel, 0.2, 12), labels))


def test_groups_that_cannot_be_told_apart_warn() -> None:
    points, _ = clusters(groups=1)
    with pytest.warns(TopoRoWarning, match="'a' and 'b' can hardly be told apart"):
        found = diffusion_emd(np.tile(points, (2, 1)), np.repeat(["a", "b"], len(points)), sigma=1.0)
    assert found.between("a", "b") < 1e-12


@pytest.mark.parametrize("engine", ON_CPU)
@pytest.mark.parametrize("copies", [1, 4])
def test_weighted_rows_are_weighted_measures(engine: str, copies: int) -> None:
    points, labels = repeated(*clusters(size=15), copies)
    weights = np.random.default_rng(5).integers(0, 4, len(points)).astype(float)
    prepared = prepare(points, labels, engine, kernel="knn", sigma=1.5, neighbors=8)
    distinct, stands_for = np.unique(points, axis=0, return_inverse=True)
    kernel = kernel_of(distinct, "knn", 1.5, 8)[np.ix_(stands_for.ravel(), stands_for.ravel())]
    assert_close(prepared.distances(1e-6, weights), oracle(kernel, labels, row_weights=weights))
    assert_close(prepared.distances(1e-6), oracle(kernel, labels))
    np.testing.assert_array_equal(
        prepared.distances(1e-6, np.full(len(points), 2.0)).matrix, prepared.distances(1e-6).matrix
    )


@pytest.mark.parametrize(
    "weights",
    [np.repeat([0.0, 1.0], [20, 60]), np.full(80, np.nan), np.repeat([-1.0, 1.0], [5, 75])],
    ids=["a group without weight", "nan", "negative"],
)
def test_bad_row_weights(weights: np.ndarray) -> None:
    prepared = GroupDiffusion.prepare(*clusters(), sigma=1.0)
    with pytest.raises(DataError, match="row_weights: expected finite numbers of at least 0, and some row of each"):
        prepared.distances(1e-6, weights)


# ---------------------------------------------------------------------- points that coincide


@pytest.mark.parametrize("copies", [2, 6])
def test_merged_points_give_the_distances_over_all_points(copies: int) -> None:
    """Dense kernel: the oracle knows nothing of merging."""
    points, labels = repeated(*clusters(), copies)
    found = diffusion_emd(points, labels, kernel="dense", sigma=1.0)
    assert (found.settings["points"], found.settings["distinct_points"]) == (80 * copies, 80)
    assert_close(found, oracle(kernel_of(points, "dense", 1.0), labels))


@pytest.mark.parametrize("engine", ON_CPU)
def test_many_duplicates_do_not_shrink_the_kernel(engine: str) -> None:
    """Over all rows the 5th neighbour of most is a copy, and a width from it would be 0."""
    points, labels = repeated(*clusters(), 10)
    with pytest.raises(DataError, match="comes out as 0"):
        kernel_of(points, "knn", "knn", 5)
    found = emd(points, labels, engine, kernel="knn", neighbors=5)
    distinct, stands_for = np.unique(points, axis=0, return_inverse=True)
    kernel = kernel_of(distinct, "knn", "knn", 5)
    assert_close(found, oracle(kernel[np.ix_(stands_for.ravel(), stands_for.ravel())], labels))


# ---------------------------------------------------------------------- a graph in pieces


def two_pieces(gap: float) -> tuple[np.ndarray, np.ndarray]:
    """Groups a and b in one cloud, c and d in another."""
    points, labels = cloud(120, 4)
    return points + gap * (labels >= 2)[:, None], np.array(list("abcd"))[labels]


@pytest.mark.parametrize("engine", ON_CPU)
def test_pieces_are_named_and_moving_them_apart_changes_nothing(engine: str) -> None:
    found = []
    for gap in (5.0, 50.0, 5e5):
        with pytest.warns(
            TopoRoWarning, match=r"falls into 2 pieces .*60 points of 'a', 'b'; 60 points of 'c', 'd'.*more neighbours"
        ):
            found.append(emd(*two_pieces(gap), engine, kernel="knn", neighbors=8))
    assert {distances.settings["pieces"] for distances in found} == {2}
    for far in found[1:]:
        assert_close(far, found[0].matrix, 1e-6)
    within = [found[0].between("a", "b"), found[0].between("c", "d")]
    between = [found[0].between(x, y) for x in "ab" for y in "cd"]
    assert max(within) < min(between)


# ---------------------------------------------------------------------- memory


@pytest.mark.parametrize("engine", ON_CPU)
def test_blocks_that_fit_a_limit_give_the_same_bytes(engine: str) -> None:
    points, labels = cloud(700, 70)
    settings = {"kernel": "knn", "neighbors": 8, "scales": 6}
    unlimited, blocks = emd(points, labels, engine, **settings), set()
    for limit in ("3MB", "1700KB", "900KB", "750KB"):
        prepared = prepare(points, labels, engine, memory_limit=limit, **settings)
        found = prepared.distances()
        assert found.matrix.tobytes() == unlimited.matrix.tobytes()
        assert found.error == unlimited.error
        assert found.settings["predicted_peak"] <= parse_memory(limit)
        blocks.add(prepared.blocks[:3])
    assert len(blocks) > 2, "blocks differ"


@pytest.mark.parametrize("alpha", [0.5, 8.0])
def test_progress_of_a_large_run_reaches_its_total(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where so strong a damping leaves only a constant of the finest filters."""
    monkeypatch.setattr(diffusion, "LOG_ABOVE", 1.0)
    done: list[tuple[int, int]] = []
    show = diffusion.Progress
    monkeypatch.setattr(diffusion, "Progress", lambda title, total, _: show(title, total, lambda *at: done.append(at)))
    diffusion_emd(*cloud(700, 20), kernel="knn", neighbors=8, alpha=alpha, scales=6, memory_limit="3MB")
    assert done == [(step, done[-1][1]) for step in range(1, done[-1][1] + 1)]


@pytest.mark.parametrize("engine", ON_CPU)
@pytest.mark.parametrize(("limit", "filters"), [(None, 7), (23e6, 1)])
def test_the_peak_is_as_predicted_and_within_the_limit(engine: str, limit: float | None, filters: int) -> None:
    settings = {"kernel": "knn", "neighbors": 10, "scales": 6, "tol": 1e-3, "memory_limit": limit}
    points, labels = cloud(20_000, 20)
    prepared = prepare(points, labels, engine, **settings)
    prepared.distances()  # what compiling takes is not counted
    tracemalloc.start()
    try:
        found = emd(points, labels, engine, **settings)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert prepared.blocks.filters == filters
    assert peak <= 1.15 * found.settings["predicted_peak"]
    assert peak >= 0.7 * found.settings["predicted_peak"], "the prediction is not idle"
    assert limit is None or peak <= limit


def test_a_limit_that_cannot_be_met_is_an_error() -> None:
    with pytest.raises(SettingError, match=r"500 points and 5 groups need at least .* may be used 1.0 KiB"):
        diffusion_emd(*cloud(500, 5), kernel="knn", memory_limit="1KiB")


# ---------------------------------------------------------------------- laws


@quick
@given(st.integers(0, 999), st.integers(2, 6), st.sampled_from(["dense", "knn"]))
def test_is_a_metric(seed: int, groups: int, kernel: str) -> None:
    points, labels = clusters(groups, size=8, seed=seed)
    with quiet():  # five neighbours of eight points need not join all groups
        matrix = diffusion_emd(points, labels, kernel=kernel, neighbors=5, scales=5).matrix
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(matrix.diagonal(), 0.0)
    assert (matrix[~np.eye(groups, dtype=bool)] > 0).all()
    detours = (matrix[:, :, None] + matrix[None, :, :]).min(axis=1)
    assert (matrix <= detours * (1 + 1e-12)).all()


@quick
@given(
    hnp.arrays(np.int64, st.tuples(st.integers(20, 50), st.sampled_from([1, 2, 4, 9])), elements=st.integers(-2, 2)),
    st.integers(0, 999),
    st.sampled_from(["dense", "knn"]),
)
def test_ties_are_broken_by_the_points_and_not_by_their_order(points: np.ndarray, seed: int, kernel: str) -> None:
    """Points of an integer lattice: equal distances everywhere, and many points more than once."""
    assume(len(np.unique(points, axis=0)) > 3)
    rng = np.random.default_rng(seed)
    labels = np.concatenate([[0, 1, 2], rng.integers(0, 3, len(points) - 3)])
    order = rng.permutation(len(points))
    settings = {"kernel": kernel, "neighbors": 3, "scales": 5}
    with quiet():
        found = diffusion_emd(points, labels, **settings).matrix
        shuffled = diffusion_emd(points[order], labels[order], **settings).matrix
    np.testing.assert_allclose(shuffled, found, rtol=1e-9, atol=1e-13)


@quick
@given(st.integers(0, 99), st.permutations(["x", 3, ("a", 1), "b"]))
def test_names_are_only_names(seed: int, names: list[Any]) -> None:
    """Renaming the groups, which also reorders them, renames the distances."""
    points, labels = clusters(seed=seed, size=9)
    by_number = diffusion_emd(points, labels, scales=6)
    by_name = diffusion_emd(points, [names[code] for code in labels], scales=6)
    for a in range(4):
        for b in range(4):
            assert by_name.between(names[a], names[b]) == pytest.approx(by_number.between(a, b), rel=1e-9)


@pytest.mark.parametrize(("kernel", "dimensions"), [("dense", 2), ("knn", 2), ("knn", 20)])
def test_clusters_far_apart_keep_their_digits(kernel: str, dimensions: int) -> None:
    points, labels = clusters(groups=2, size=30, dimensions=dimensions)
    settings = {"kernel": kernel, "sigma": float(dimensions), "neighbors": 12}
    near = diffusion_emd(points, labels, **settings).matrix[0, 1]
    points, labels = np.concatenate([points, points + 3e6]), np.concatenate([labels, labels + 2])
    with pytest.warns(TopoRoWarning, match="2 pieces"):
        matrix = diffusion_emd(points, labels, **settings).matrix
    assert [matrix[0, 1], matrix[2, 3]] == pytest.approx([near, near], rel=1e-6)


@pytest.mark.parametrize(
    "convert",
    [
        pytest.param(lambda x, g: (torch.tensor(x, requires_grad=True), g.tolist()), id="torch features"),
        pytest.param(lambda x, g: (x.tolist(), Groups.of(g)), id="lists and ids"),
        pytest.param(lambda x, g: (x, GroupIds(torch.tensor(g), Groups(g))), id="ids with torch codes"),
        pytest.param(lambda x, g: (x, torch.tensor(g)), id="torch labels"),
    ],
)
def test_labels_and_features_in_any_container(convert: Any) -> None:
    points, labels = clusters()
    expected = diffusion_emd(points, labels).matrix
    np.testing.assert_array_equal(diffusion_emd(*convert(points, labels)).matrix, expected)


# ---------------------------------------------------------------------- determinism and records


@pytest.mark.parametrize("kernel", ["dense", "knn"])
@pytest.mark.parametrize("dimensions", [3, 20])
def test_same_bytes_twice_and_on_one_thread_or_two(kernel: str, dimensions: int) -> None:
    points, labels = clusters(groups=7, size=101, dimensions=dimensions)
    found = []
    for threads in (1, 1, 2):
        with threadpool_limits(threads):
            distances = diffusion_emd(points, labels, kernel=kernel, scales=4)
            found.append((distances.matrix.tobytes(), distances.error))
    assert found[0] == found[1], "two runs on one thread differ"
    assert found[0] == found[2], "one thread and two differ"


def test_the_result_records_how_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    points, labels = clusters()
    dense = diffusion_emd(points, labels, sigma="median", scales=3, alpha=0.4, tol=1e-5)
    width = np.median(cdist(points, points)[np.triu_indices(len(points), 1)])
    assert dense.settings == {
        "kernel": "dense",
        "sigma": "median",
        "sigma_value": pytest.approx(width),
        "scales": 3,
        "alpha": 0.4,
        "tol": 1e-5,
        "order": 8,  # x^8 has degree 8, and nothing of it may be left out
        "points": len(points),
        "distinct_points": len(points),
        "entries": len(points) ** 2,
        "pieces": 1,
        "engine": "scipy",
        "device": "cpu",
        "predicted_peak": 8 * 80**2 + 100 * 80 + 80 * 8 * 8 * (3 + 4),  # kernel, factors, three states and four filters
    }
    monkeypatch.setattr(data_graph, "DENSE_LIMIT", len(points) - 1)
    settings = diffusion_emd(points, labels, neighbors=9).settings
    assert (settings["kernel"], settings["neighbors"]) == ("knn", 9)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"neighbors": "a"}, SettingError, "neighbors is 'a'"),
        ({"tol": "1e-6"}, SettingError, "tol is '1e-6'"),
        ({"alpha": None}, SettingError, "alpha is None"),
        ({"features": np.full(8, 2.5)}, DataError, "all 8 points coincide: groups cannot be told apart"),
        ({"features": np.arange(8) % 3}, DataError, "3 distinct points cannot have 3 neighbours each"),
        ({"groups": GroupIds(np.arange(8) % 2, Groups("abc"))}, DataError, "without a single point: 'c'"),
        ({"groups": ["a"] * 8}, DataError, "only one group, 'a': .* at least two"),
        ({"groups": list("aabb")}, DataError, "8 points but 4 group labels"),
        ({"groups": []}, DataError, "no groups given"),
        ({"features": [[0.0], [np.nan]] * 4}, DataError, r"NaN or infinite values .* in 4 of 8 rows \(first: row 1\)"),
        ({"kernel": "gauss"}, UnknownNameError, "unknown kernel 'gauss'.*auto, dense, knn"),
        ({"sigma": "mean"}, UnknownNameError, "unknown sigma 'mean'"),
        ({"neighbors": 8}, DataError, "8 distinct points cannot have 8 neighbours"),
        ({"scales": 0}, SettingError, "scales is 0"),
        ({"alpha": -0.5}, SettingError, "alpha is -0.5"),
        ({"tol": 1}, SettingError, "tol is 1"),
        ({"tol": np.nan}, SettingError, "tol is nan"),
        ({"device": "cuda:99"}, SettingError, "device='cuda:99', but torch sees"),
        ({"memory_limit": "much"}, SettingError, "memory_limit is 'much'"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_bad_input(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"features": np.arange(8.0), "groups": list("aaaabbbb"), "neighbors": 3} | changes
    with pytest.raises(error, match=message):
        diffusion_emd(arguments.pop("features"), arguments.pop("groups"), **arguments)
