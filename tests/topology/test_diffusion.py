"""Diffusion EMD: the Chebyshev route against plain repeated squaring, its error bound, its laws and its errors."""

from __future__ import annotations

import re
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
from scipy import sparse
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from toporo.checks import parse_memory
from toporo.errors import DataError, SettingError, TopoRoWarning, UnknownNameError
from toporo.groups import GroupIds, Groups
from toporo.topology import data_graph, diffusion, operator
from toporo.topology.choose_engine import installed
from toporo.topology.diffusion import GroupDiffusion, GroupDistances, diffusion_emd
from toporo.topology.engine import Engine
from toporo.topology.kernel import dense_affinity, knn_affinity
from toporo.topology.memory import graph_bytes

quick = settings(deadline=None, max_examples=25)

needs_numba = pytest.mark.skipif(not installed("numba"), reason="needs numba; this machine has none")
ENGINES = ["scipy", pytest.param("numba", marks=needs_numba)]


def oracle(
    kernel: Any, labels: Any, scales: int = 10, alpha: float = 0.5, row_weights: np.ndarray | float = 1.0
) -> np.ndarray:
    """The distances straight from the definition: dense matrices, powers by repeated squaring, float64."""
    dense = kernel.toarray() if sparse.issparse(kernel) else np.asarray(kernel, dtype=float)
    q = dense.sum(axis=1)
    m = dense / q[:, None] / q[None, :]
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
    build = dense_affinity if kernel == "dense" else knn_affinity
    found = diffusion_emd(points, labels, kernel=kernel, sigma=1.2, neighbors=6, scales=scales, alpha=alpha)
    assert_close(found, oracle(build(points, 1.2, neighbors=6), labels, scales, alpha))


@quick
@given(
    hnp.arrays(float, (7, 7), elements=st.floats(0, 1)), st.integers(1, 10), st.sampled_from([1e-1, 1e-3, 1e-5, 1e-7])
)
def test_the_error_bound_holds_and_meets_the_tolerance(values: np.ndarray, scales: int, tol: float) -> None:
    kernel = values + values.T + 0.01 * np.eye(7) + 1e-9  # connected, if barely
    labels = [0, 0, 0, 1, 1, 2, 2]
    expected = oracle(kernel, labels, scales)
    smallest = expected[np.triu_indices(3, 1)].min()
    assume(smallest > 1e-6)  # groups that cannot be told apart have a test of their own
    found = diffusion_emd(None, labels, affinity=kernel, scales=scales, tol=tol)
    assert found.error <= tol * smallest * (1 + 1e-9)
    assert np.abs(found.matrix - expected).max() <= found.error + 1e-13  # rounding of the oracle


def test_a_coarse_tolerance_really_truncates_within_its_bound() -> None:
    """The bound is tested where truncation, not rounding, makes the error."""
    points, labels = clusters()
    found = diffusion_emd(points, labels, sigma=0.3, tol=0.5)
    error = np.abs(found.matrix - oracle(dense_affinity(points, 0.3), labels)).max()
    assert 1e-11 < error <= found.error


@pytest.mark.parametrize("shift", [1e-3, 1e-6])
@pytest.mark.parametrize(
    ("kernel", "engine"), [("dense", "auto"), ("knn", "scipy"), pytest.param("knn", "numba", marks=needs_numba)]
)
def test_tiny_distances_are_as_accurate(kernel: str, engine: str, shift: float) -> None:
    """Every point of one group beside its twin in the other: the absolute tail must follow the distance down."""
    points, _ = cloud(60, 2)
    twins = np.concatenate([points, points + shift])
    labels = np.repeat(["a", "b"], 60)
    found = diffusion_emd(twins, labels, kernel=kernel, sigma=0.2, neighbors=12, engine=engine)
    assert found.between("a", "b") < (10 * shift if kernel == "dense" else 0.05)
    build = dense_affinity if kernel == "dense" else knn_affinity
    assert_close(found, oracle(build(twins, 0.2, neighbors=12), labels))


def test_groups_that_cannot_be_told_apart_warn() -> None:
    points, _ = clusters(groups=1)
    with pytest.warns(TopoRoWarning, match="'a' and 'b' can hardly be told apart"):
        found = diffusion_emd(np.tile(points, (2, 1)), np.repeat(["a", "b"], len(points)), sigma=1.0)
    assert found.between("a", "b") < 1e-12


@pytest.mark.parametrize("engine", ENGINES)
def test_a_group_with_nearly_all_points_warns_and_is_right(engine: str) -> None:
    points, _ = cloud(300, 2)
    labels = np.array(["all"] * 297 + ["few"] * 3)
    with pytest.warns(TopoRoWarning, match=r"group 'all' holds 99.0% of the points: .*Consider a subsample"):
        found = diffusion_emd(points, labels, kernel="knn", sigma=0.1, neighbors=8, engine=engine)
    assert_close(found, oracle(knn_affinity(points, 0.1, neighbors=8), labels))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("copies", [1, 4])
def test_weighted_rows_are_weighted_measures(engine: str, copies: int) -> None:
    points, labels = repeated(*clusters(size=15), copies)
    weights = np.random.default_rng(5).integers(0, 4, len(points)).astype(float)
    prepared = GroupDiffusion.prepare(points, labels, kernel="knn", sigma=1.5, neighbors=8, engine=engine)
    stands_for = np.unique(points, axis=0, return_inverse=True)[1].ravel()
    kernel = knn_affinity(np.unique(points, axis=0), 1.5, neighbors=8).toarray()[np.ix_(stands_for, stands_for)]
    assert_close(prepared.distances(1e-6, weights), oracle(kernel, labels, row_weights=weights))
    assert_close(prepared.distances(1e-6), oracle(kernel, labels))
    np.testing.assert_array_equal(
        prepared.distances(1e-6, np.full(len(points), 2.0)).matrix, prepared.distances(1e-6).matrix
    )


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), r"\b3\b.*\b80\b|\b80\b.*\b3\b"),
        (np.repeat([0.0, 1.0], [20, 60]), r"\b0\b"),
        (np.full(80, np.nan), "(?i)nan|finite"),
        (np.repeat([-1.0, 1.0], [5, 75]), "(?i)negative|≥ 0|at least 0"),
    ],
    ids=["too few", "a group without weight", "nan", "negative"],
)
def test_bad_row_weights(weights: np.ndarray, message: str) -> None:
    prepared = GroupDiffusion.prepare(*clusters(), sigma=1.0)
    with pytest.raises(DataError, match=message):
        prepared.distances(1e-6, weights)


# ---------------------------------------------------------------------- points that coincide


@pytest.mark.parametrize("copies", [2, 6])
def test_merged_points_give_the_distances_over_all_points(copies: int) -> None:
    """Dense kernel: the oracle knows nothing of merging."""
    points, labels = repeated(*clusters(), copies)
    found = diffusion_emd(points, labels, kernel="dense", sigma=1.0)
    assert (found.settings["points"], found.settings["distinct_points"]) == (80 * copies, 80)
    assert_close(found, oracle(dense_affinity(points, 1.0), labels))


@pytest.mark.parametrize("engine", ENGINES)
def test_many_duplicates_do_not_shrink_the_kernel(engine: str) -> None:
    """Over all rows the 5th neighbour of most is a copy, and a width from it would be 0."""
    points, labels = repeated(*clusters(), 10)
    with pytest.raises(DataError, match="comes out as 0"):
        knn_affinity(points, "knn", neighbors=5)
    found = diffusion_emd(points, labels, kernel="knn", neighbors=5, engine=engine)
    stands_for = np.unique(points, axis=0, return_inverse=True)[1].ravel()
    kernel = knn_affinity(np.unique(points, axis=0), "knn", neighbors=5).toarray()
    assert_close(found, oracle(kernel[np.ix_(stands_for, stands_for)], labels))


# ---------------------------------------------------------------------- a graph in pieces


def two_pieces(gap: float) -> tuple[np.ndarray, np.ndarray]:
    """Groups a and b in one cloud, c and d in another."""
    points, labels = cloud(120, 4)
    return points + gap * (labels >= 2)[:, None], np.array(list("abcd"))[labels]


@pytest.mark.parametrize("engine", ENGINES)
def test_pieces_are_named_and_moving_them_apart_changes_nothing(engine: str) -> None:
    found = []
    for gap in (5.0, 50.0, 5e5):
        with pytest.warns(
            TopoRoWarning, match=r"falls into 2 pieces .*60 points of 'a', 'b'; 60 points of 'c', 'd'.*more neighbours"
        ):
            found.append(diffusion_emd(*two_pieces(gap), kernel="knn", neighbors=8, engine=engine))
    assert {distances.settings["pieces"] for distances in found} == {2}
    for far in found[1:]:
        assert_close(far, found[0].matrix, 1e-6)
    within = [found[0].between("a", "b"), found[0].between("c", "d")]
    between = [found[0].between(x, y) for x in "ab" for y in "cd"]
    assert max(within) < min(between)


def test_pieces_of_a_dense_kernel_call_for_a_larger_sigma_and_only_three_are_listed() -> None:
    points = np.repeat(np.arange(5.0), 4)[:, None] * 1e3 + np.tile(np.arange(4.0), 5)[:, None]
    with pytest.warns(TopoRoWarning, match=r"5 pieces .*'a'; 4 points of .*; 4 points of .*; …\).*a larger sigma"):
        found = diffusion_emd(points, np.repeat(list("abcde"), 4), kernel="dense", sigma=1.0)
    assert found.settings["pieces"] == 5


# ---------------------------------------------------------------------- memory


@pytest.mark.parametrize("engine", ENGINES)
def test_blocks_that_fit_a_limit_give_the_same_bytes_and_progress_reaches_its_total(engine: str) -> None:
    points, labels = cloud(700, 70)
    settings = {"kernel": "knn", "neighbors": 8, "scales": 6, "engine": engine}
    unlimited, blocks = diffusion_emd(points, labels, **settings), set()
    for limit in ("3MB", "1700KB", "900KB", "750KB"):
        done: list[tuple[int, int]] = []
        found = diffusion_emd(
            points, labels, memory_limit=limit, progress=lambda *steps, done=done: done.append(steps), **settings
        )
        assert found.matrix.tobytes() == unlimited.matrix.tobytes()
        assert found.error == unlimited.error
        assert found.settings["predicted_peak"] <= parse_memory(limit)
        assert done == [(step, done[-1][1]) for step in range(1, done[-1][1] + 1)]
        blocks.add(GroupDiffusion.prepare(points, labels, memory_limit=limit, **settings).blocks[:3])
    assert len(blocks) > 2, "blocks differ"


def test_progress_reaches_its_total_where_a_filter_is_of_order_zero() -> None:
    """So strong a damping leaves only a constant of the finest filters."""
    done: list[tuple[int, int]] = []
    settings = {"kernel": "knn", "neighbors": 8, "alpha": 8.0, "scales": 6}
    diffusion_emd(*cloud(700, 20), progress=lambda *steps: done.append(steps), **settings)
    assert done == [(step, done[-1][1]) for step in range(1, done[-1][1] + 1)]


def test_a_large_run_tells_its_memory(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(diffusion, "LOG_ABOVE", 1.0)
    with caplog.at_level("INFO", "toporo"):
        diffusion_emd(*cloud(300, 5), kernel="knn", scales=3)
    (line,) = caplog.messages
    assert re.search(r"5 groups, \d+ products on cpu \(scipy\); about .* at the peak; several times as fast", line)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("limit", "filters"), [(None, 7), (23e6, 1)])
def test_the_peak_is_as_predicted_and_within_the_limit(engine: str, limit: float | None, filters: int) -> None:
    settings = {"kernel": "knn", "neighbors": 10, "scales": 6, "tol": 1e-3, "engine": engine, "memory_limit": limit}
    points, labels = cloud(20_000, 20)
    prepared = GroupDiffusion.prepare(points, labels, **settings)
    prepared.distances()  # what compiling takes is not counted
    tracemalloc.start()
    try:
        found = diffusion_emd(points, labels, **settings)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert prepared.blocks.filters == filters
    assert peak <= 1.15 * found.settings["predicted_peak"]
    assert peak >= 0.7 * found.settings["predicted_peak"], "the prediction is not idle"
    assert limit is None or peak <= limit


@pytest.mark.parametrize("kernel", ["dense", "knn"])
def test_a_limit_that_cannot_be_met_is_an_error_before_the_work(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    points, labels = cloud(500, 5)
    given_kernel = knn_affinity(points)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("this should not have been called")

    monkeypatch.setattr(data_graph, "merge_points", never)
    monkeypatch.setattr(Engine, "fields", never)
    with pytest.raises(SettingError, match=rf"memory_limit is 1.0 KiB, but building the {kernel} kernel of 500 points"):
        diffusion_emd(points, labels, kernel=kernel, memory_limit="1KiB")
    building = graph_bytes(500, 2, 15 if kernel == "knn" else None)[0]
    with pytest.raises(SettingError, match=r"but building the|but 500 points and 5 groups need at least"):
        diffusion_emd(points, labels, kernel=kernel, memory_limit=building - 1)
    with pytest.raises(SettingError, match=r"memory_limit is 1.0 KiB, but 500 points and 5 groups need at least"):
        diffusion_emd(None, labels, affinity=given_kernel, memory_limit="1KiB")
    monkeypatch.setattr(diffusion, "free_memory", lambda device: 2**18)
    with pytest.raises(SettingError, match=rf"^free memory is 256.0 KiB, but building the {kernel} kernel"):
        diffusion_emd(points, labels, kernel=kernel)


def test_what_is_free_on_the_device_is_the_limit_unless_a_smaller_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"cpu": 1000, "cuda:0": 500}
    monkeypatch.setattr(diffusion, "free_memory", free.__getitem__)
    for given_limit, device, expected in (
        (None, "cpu", (1000, "free memory")),
        (2000, "cpu", (2000, "memory_limit")),
        (None, "cuda:0", (500, "free memory of cuda:0")),
        (800, "cuda:0", (500, "free memory of cuda:0")),
        (300, "cuda:0", (300, "memory_limit")),
    ):
        assert diffusion._limit(diffusion.Settings(memory_limit=given_limit), device) == expected


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


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("beside", [False, True])
def test_a_given_kernel_may_be_put_in_another_order(beside: bool, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the features beside it, or by itself."""
    points, labels = cloud(300, 5)
    kernel = knn_affinity(points, neighbors=8)
    expected = diffusion_emd(None, labels, affinity=kernel, engine="scipy").matrix
    monkeypatch.setattr(operator, "REORDER_ABOVE", 100)
    before = kernel.copy()
    found = diffusion_emd(points if beside else None, labels, affinity=kernel, engine=engine)
    assert_close(found, expected, 1e-10)
    assert abs(kernel - before).max() == 0, "the caller's kernel was changed"


@pytest.mark.parametrize("kernel", ["dense", "knn"])
@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_the_unit_of_the_features_does_not_matter(unit: float, kernel: str) -> None:
    points, labels = clusters()
    expected = diffusion_emd(points, labels, kernel=kernel).matrix
    assert_close(diffusion_emd(points * unit, labels, kernel=kernel), expected)


@pytest.mark.parametrize(("kernel", "dimensions"), [("dense", 2), ("knn", 2), ("knn", 20)])
def test_clusters_far_apart_keep_their_digits(kernel: str, dimensions: int) -> None:
    points, labels = clusters(groups=2, size=30, dimensions=dimensions)
    settings = {"kernel": kernel, "sigma": float(dimensions), "neighbors": 12}
    near = diffusion_emd(points, labels, **settings).matrix[0, 1]
    points, labels = np.concatenate([points, points + 3e6]), np.concatenate([labels, labels + 2])
    with pytest.warns(TopoRoWarning, match="2 pieces"):
        matrix = diffusion_emd(points, labels, **settings).matrix
    assert [matrix[0, 1], matrix[2, 3]] == pytest.approx([near, near], rel=1e-6)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("unit", [1e-320, 1e-200, 1e200, 1e308])
def test_the_unit_of_a_given_kernel_does_not_matter(unit: float, form: Any) -> None:
    """Or it is an error; but nothing that goes on for ever."""
    kernel = np.array([[1.0, 0.5, 0.1], [0.5, 1.0, 0.5], [0.1, 0.5, 1.0]])
    expected = diffusion_emd(None, list("abc"), affinity=kernel, scales=4).matrix
    try:
        found = diffusion_emd(None, list("abc"), affinity=form(unit * kernel), scales=4)
    except DataError:
        assert not 1e-300 < unit < 1e300
    else:
        assert_close(found, expected, 1e-2 if unit < 1e-300 else 1e-6)


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
            found.append(diffusion_emd(points, labels, kernel=kernel, scales=4).matrix.tobytes())
    assert found[0] == found[1], "two runs on one thread differ"
    assert found[0] == found[2], "one thread and two differ"


def test_the_bound_is_the_same_on_one_thread_or_two() -> None:
    bounds = set()
    for threads in (1, 2):
        with threadpool_limits(threads):
            bounds.add(diffusion_emd(*cloud(12_000, 5), kernel="knn", scales=3, tol=1e-2, engine="scipy").error)
    assert len(bounds) == 1


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
    monkeypatch.setattr(diffusion, "DENSE_LIMIT", len(points) - 1)
    settings = diffusion_emd(points, labels, neighbors=9).settings
    assert (settings["kernel"], settings["neighbors"]) == ("knn", 9)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"neighbors": "a"}, SettingError, "neighbors is 'a'"),
        ({"neighbors": np.nan}, SettingError, "neighbors is nan"),
        ({"tol": "1e-6"}, SettingError, "tol is '1e-6'"),
        ({"alpha": None}, SettingError, "alpha is None"),
        ({"affinity": np.eye(7)}, DataError, "7 points but 8 group labels"),
        ({"affinity": np.eye(8), "features": np.zeros((7, 1))}, DataError, "features have 7 rows, the affinity 8"),
        ({"features": np.full(8, 2.5)}, DataError, "all 8 points coincide: groups cannot be told apart"),
        ({"features": np.arange(8) % 3}, DataError, "3 distinct points .of 8. cannot have 3 neighbours each"),
        ({"groups": GroupIds(np.arange(8) % 2, Groups("abc"))}, DataError, "without a single point: 'c'"),
        ({"groups": ["a"] * 8}, DataError, "only one group, 'a': .* at least two"),
        ({"groups": list("aabb")}, DataError, "8 points but 4 group labels"),
        ({"groups": []}, DataError, "no groups given"),
        ({"features": None}, DataError, "neither features nor affinity given"),
        ({"features": [[0.0], [np.nan]] * 4}, DataError, r"NaN or infinite values in 4 of 8 rows \(first: row 1\)"),
        (
            {"features": None, "affinity": np.eye(8)[:7]},
            DataError,
            r"square matrix over all points; found shape \(7, 8\)",
        ),
        ({"kernel": "gauss"}, UnknownNameError, "unknown kernel 'gauss'.*auto, dense, knn"),
        ({"sigma": "mean"}, UnknownNameError, "unknown sigma 'mean'"),
        ({"neighbors": 8}, DataError, r"8 (distinct )?points .*cannot have 8 neighbours"),
        ({"scales": 0}, SettingError, "scales is 0"),
        ({"scales": 2.5}, SettingError, "scales is 2.5"),
        ({"scales": np.nan}, SettingError, "scales is nan"),
        ({"alpha": 0}, SettingError, "alpha is 0"),
        ({"alpha": -0.5}, SettingError, "alpha is -0.5"),
        ({"alpha": np.nan}, SettingError, "alpha is nan"),
        ({"alpha": np.inf}, SettingError, "alpha is inf"),
        ({"tol": 0}, SettingError, "tol is 0"),
        ({"tol": 1}, SettingError, "tol is 1"),
        ({"tol": np.nan}, SettingError, "tol is nan"),
        ({"engine": "nubma"}, UnknownNameError, "unknown engine 'nubma'. Did you mean 'numba'"),
        ({"engine": "numba", "kernel": "dense", "sigma": 9.0}, SettingError, "works on the CPU and on sparse kernels"),
        ({"device": "cuda:99"}, SettingError, "device='cuda:99', but torch sees"),
        ({"memory_limit": "much"}, SettingError, "memory_limit is 'much'"),
        ({"memory_limit": 0}, SettingError, "memory_limit is 0"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_bad_input(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"features": np.arange(8.0), "groups": list("aaaabbbb"), "neighbors": 3} | changes
    with pytest.raises(error, match=message):
        diffusion_emd(arguments.pop("features"), arguments.pop("groups"), **arguments)


def test_a_tolerance_beyond_float64_is_said_to_be_that() -> None:
    points, labels = clusters()
    with pytest.warns(TopoRoWarning, match="as near as float64 can resolve at this tol"):
        diffusion_emd(points, labels, tol=1e-15)


def test_a_point_without_affinity_has_the_number_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "REORDER_ABOVE", 4)
    affinity = np.eye(9) + np.eye(9, k=1) + np.eye(9, k=-1)
    affinity[2] = affinity[:, 2] = 0.0
    with pytest.raises(DataError, match=r"1 point\(s\) have no affinity .* \(first: 2\)"):
        diffusion_emd(None, list("aaabbbccc"), affinity=sparse.csr_array(affinity))
