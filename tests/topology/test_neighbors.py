"""Neighbours: every backend against all distances, recall against the truth, the same bytes on one thread or two."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_info, threadpool_limits

from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.topology import grid
from toporo.topology import neighbors as module
from toporo.topology.grid import MOST_DIMENSIONS
from toporo.topology.neighbors import BACKENDS, Neighbors, locality_order, nearest

EXACT = [name for name in BACKENDS if name != "faiss-ivf"]


@pytest.fixture
def faiss() -> Any:
    return pytest.importorskip("faiss")


def cloud(n: int = 200, dimensions: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, dimensions))


def clusters(n: int, dimensions: int, seed: int = 0) -> np.ndarray:
    """Forty clusters of three dimensions each: what an inverted file is good at."""
    rng = np.random.default_rng(seed)
    label = rng.integers(40, size=n)
    axes = rng.normal(size=(40, 3, dimensions))
    return 4 * rng.normal(size=(40, dimensions))[label] + np.einsum("nz,nzd->nd", rng.normal(size=(n, 3)), axes[label])


def within(backend: str, dimensions: int) -> int:
    """As many dimensions as a backend can have."""
    return min(dimensions, MOST_DIMENSIONS) if backend == "grid" else dimensions


def truth(points: np.ndarray, k: int) -> np.ndarray:
    """Distances to the k nearest others, from all differences."""
    everyone = cdist(points, points)
    np.fill_diagonal(everyone, np.inf)
    return np.sort(everyone, axis=1)[:, :k]


def check(points: np.ndarray, found: Neighbors, k: int) -> None:
    """Shapes, types, order, no point its own neighbour, none twice, and distances that belong to the indices."""
    n = len(points)
    assert found.distances.shape == found.indices.shape == (n, k)
    assert found.distances.dtype == np.float64
    assert found.indices.dtype == np.int32
    assert found.indices.min() >= 0
    assert found.indices.max() < n
    assert (found.indices != np.arange(n)[:, None]).all()
    assert (np.diff(np.sort(found.indices, axis=1), axis=1) > 0).all()
    assert (np.diff(found.distances, axis=1) >= 0).all()
    measured = np.linalg.norm(points[:, None] - points[found.indices], axis=2)
    np.testing.assert_allclose(found.distances, measured, rtol=1e-12, atol=1e-300)


# ---------------------------------------------------------------------- agreement with all distances


@pytest.mark.parametrize("backend", EXACT)
@settings(deadline=None, max_examples=25)
@given(st.integers(2, 60), st.sampled_from([1, 2, 3, 5, 12, 40]), st.integers(1, 20), st.integers(0, 999))
def test_exact_backends_find_the_nearest(backend: str, n: int, dimensions: int, k: int, seed: int) -> None:
    k = min(k, n - 1)
    points = cloud(n, within(backend, dimensions), seed)
    found = nearest(points, k, backend=backend)
    check(points, found, k)
    np.testing.assert_allclose(found.distances, truth(points, k), rtol=1e-12)
    assert (found.backend, found.recall) == (backend, 1.0)


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 120), st.sampled_from([1, 3, 12]), st.integers(1, 20), st.integers(0, 999))
def test_faiss_reports_the_recall_it_has(n: int, dimensions: int, k: int, seed: int) -> None:
    """With fewer points than the sample, every query is measured."""
    pytest.importorskip("faiss")
    k = min(k, n - 1)
    points = cloud(n, dimensions, seed)
    found = nearest(points, k, backend="faiss-ivf")
    check(points, found, k)
    true = truth(points, k)
    assert found.recall >= module.RECALL
    assert found.recall == pytest.approx(np.mean(found.distances <= true[:, -1:] * (1 + 1e-12)), abs=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(deadline=None, max_examples=15)
@given(st.integers(3, 40), st.integers(1, 4), st.integers(1, 8), st.integers(0, 999))
def test_ties_and_duplicates(backend: str, n: int, dimensions: int, k: int, seed: int) -> None:
    """Points of a coarse lattice: most distances are shared, many are 0."""
    if backend == "faiss-ivf":
        pytest.importorskip("faiss")
    k = min(k, n - 1)
    points = np.random.default_rng(seed).integers(0, 3, size=(n, dimensions)).astype(np.float64)
    found = nearest(points, k, backend=backend)
    check(points, found, k)
    if found.recall == 1.0:
        np.testing.assert_allclose(found.distances, truth(points, k), rtol=1e-12)
    else:
        assert backend == "faiss-ivf"


@pytest.mark.parametrize("backend", BACKENDS)
def test_points_that_all_coincide(backend: str) -> None:
    if backend == "faiss-ivf":
        pytest.importorskip("faiss")
    points = np.full((50, 4), 7.3)
    found = nearest(points, 3, backend=backend)
    check(points, found, 3)
    np.testing.assert_array_equal(found.distances, 0.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_distances_are_in_the_order_of_their_indices(backend: str) -> None:
    if backend == "faiss-ivf":
        pytest.importorskip("faiss")
    points = np.array([[0.0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [9, 9]])
    np.testing.assert_array_equal(nearest(points, 4, backend=backend).indices[0], [1, 2, 3, 4])


@pytest.mark.parametrize("dimensions", [3, 12])
@pytest.mark.parametrize("backend", BACKENDS)
def test_far_from_the_origin(backend: str, dimensions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stamps, say: single precision, or |a|^2 + |b|^2 - 2ab, would not see the differences."""
    if backend == "faiss-ivf":
        pytest.importorskip("faiss")
    monkeypatch.setattr(module, "RECALL", 2.0)  # all lists
    points = cloud(150, within(backend, dimensions)) + 1e9
    found = nearest(points, 6, backend=backend)
    check(points, found, 6)
    assert found.recall == 1.0
    np.testing.assert_allclose(found.distances, truth(points, 6), rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
@pytest.mark.parametrize("backend", BACKENDS)
def test_units_whose_squares_are_no_numbers(backend: str, unit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend == "faiss-ivf":
        pytest.importorskip("faiss")
    monkeypatch.setattr(module, "RECALL", 2.0)  # all lists
    points = cloud(80, 4)
    found = nearest(points * unit, 5, backend=backend)
    np.testing.assert_allclose(found.distances / unit, truth(points, 5), rtol=1e-12)
    np.testing.assert_array_equal(found.indices, nearest(points, 5, backend=backend).indices)


@pytest.mark.parametrize("backend", BACKENDS)
def test_small_blocks_give_the_same(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend == "faiss-ivf":
        pytest.importorskip("faiss")
    points = clusters(1500, within(backend, 9))
    whole = nearest(points, 7, backend=backend)
    monkeypatch.setattr(module, "CHUNK", 97)
    monkeypatch.setattr(module, "BLOCK_BYTES", 1 << 20)
    monkeypatch.setattr(grid, "CPU_BYTES", 1 << 20)
    parts = nearest(points, 7, backend=backend)
    np.testing.assert_array_equal(whole.indices, parts.indices)
    np.testing.assert_allclose(whole.distances, parts.distances, rtol=1e-15)


@pytest.mark.parametrize("backend", BACKENDS)
def test_input_is_left_alone(backend: str) -> None:
    if backend == "faiss-ivf":
        pytest.importorskip("faiss")
    points = cloud(60, 5)
    before = points.copy()
    nearest(points, 4, backend=backend)
    np.testing.assert_array_equal(points, before)


# ---------------------------------------------------------------------- the inverted file


def test_faiss_reaches_its_recall_without_reading_everything(faiss: Any) -> None:
    points = clusters(4000, 16)
    found = nearest(points, 10, backend="faiss-ivf")
    check(points, found, 10)
    true = np.mean(found.distances <= truth(points, 10)[:, -1:] * (1 + 1e-12))
    assert true < 1.0  # approximate indeed
    assert found.recall >= module.RECALL
    assert abs(found.recall - true) < 0.01


def test_recall_is_measured(faiss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One list a query, with no recall to reach: the number says how bad that is."""
    monkeypatch.setattr(module, "PROBES", 1)
    monkeypatch.setattr(module, "RECALL", 0.0)
    points = cloud(1500, 10)
    true = truth(points, 8)[:, -1:] * (1 + 1e-12)
    sampled = nearest(points, 8, backend="faiss-ivf")
    assert 0.05 < sampled.recall < 0.8
    assert sampled.recall == pytest.approx(np.mean(sampled.distances <= true), abs=0.05)
    monkeypatch.setattr(module, "SAMPLE", 1500)
    measured = nearest(points, 8, backend="faiss-ivf")
    assert measured.recall == pytest.approx(np.mean(measured.distances <= true), abs=1e-12)
    np.testing.assert_array_equal(sampled.indices, measured.indices)


def test_recall_counts_equal_distances_once() -> None:
    """By hand: of the two at distance 2 any will do, but a third does not stand in for the one at 1."""
    true = np.array([[1.0, 2.0, 2.0]])
    assert module._recall(np.array([[1.0, 2.0, 2.0]]), true) == 1.0
    assert module._recall(np.array([[2.0, 2.0, 2.0]]), true) == pytest.approx(2 / 3)
    assert module._recall(np.array([[1.0, 2.0, 3.0]]), true) == pytest.approx(2 / 3)
    assert module._recall(np.array([[1.0, np.inf, np.inf]]), true) == pytest.approx(1 / 3)


def test_more_lists_are_read_until_the_recall_is_reached(faiss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    points = cloud(1500, 10)
    recalls = []
    for wanted in [0.0, 0.9, 0.99, 2.0]:
        monkeypatch.setattr(module, "RECALL", wanted)
        recalls.append(nearest(points, 8, backend="faiss-ivf").recall)
    assert recalls[0] < 0.9 <= recalls[1] < 0.99 <= recalls[2]
    assert recalls[3] == 1.0  # never enough: all lists


def test_rows_that_lists_cannot_fill_are_searched_exactly(faiss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of its own for each of 30 distant points: they have no neighbour in it."""
    monkeypatch.setattr(module, "PROBES", 1)
    monkeypatch.setattr(module, "RECALL", 0.0)
    lonely = np.eye(30) * 1e3 * (1 + np.arange(30))[:, None]
    points = np.vstack([lonely, cloud(970, 30)])
    found = nearest(points, 5, backend="faiss-ivf")
    check(points, found, 5)
    np.testing.assert_allclose(found.distances[:30], truth(points, 5)[:30], rtol=1e-12)


# ---------------------------------------------------------------------- the same bytes


@pytest.mark.parametrize("backend", ["kd-tree", "scikit-learn", "faiss-ivf"])
def test_threads_do_not_change_a_byte(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend == "faiss-ivf":
        pytest.importorskip("faiss")
    lattice = np.random.default_rng(0).integers(0, 3, size=(1000, 5)).astype(np.float64)
    for points in [cloud(4001, 11), lattice, clusters(3000, 30)]:
        answers = []
        for threads in (1, 2, 3):
            monkeypatch.setattr(module, "cores", lambda threads=threads: threads)
            with threadpool_limits(threads):
                found = nearest(points, 9, backend=backend)
                answers.append(found.distances.tobytes() + found.indices.tobytes() + locality_order(points).tobytes())
        assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_twice_the_same_bytes(backend: str) -> None:
    if backend == "faiss-ivf":
        pytest.importorskip("faiss")
    points = clusters(1200, within(backend, 10))
    np.random.seed(1)  # noqa: NPY002  # global state must not matter
    first = nearest(points, 6, backend=backend)
    np.random.seed(2)  # noqa: NPY002
    second = nearest(points, 6, backend=backend)
    assert first.distances.tobytes() == second.distances.tobytes()
    assert first.indices.tobytes() == second.indices.tobytes()
    assert first.recall == second.recall


def test_few_queries_are_not_shared_out_by_points() -> None:
    """scikit-learn's threads for n queries: as many as have more than 1024 each, at least one."""
    import sklearn.neighbors  # noqa: F401  # loads its OpenMP

    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "openmp"}

    with threadpool_limits(4, user_api="openmp"):
        for rows, expected in [(10, 1), (1025, 1), (2049, 2), (9000, 4)]:
            with module._rows_in_parallel(rows):
                assert threads() == {expected}
        assert threads() == {4}


# ---------------------------------------------------------------------- the choice of a backend


def chosen(n: int, dimensions: int, **keywords: Any) -> str:
    """The backend of "auto"."""
    points = cloud(n, dimensions)
    found = nearest(points, 3, **keywords)
    check(points, found, 3)
    return found.backend


def test_auto_follows_the_dimension() -> None:
    assert chosen(30, 8) == "kd-tree"
    assert chosen(30, 9) == "scikit-learn"


def test_auto_is_exact_for_many_points_in_many_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where faiss is installed, whose neighbours are approximate."""
    none = Neighbors(np.empty((30_000, 3)), np.empty((30_000, 3), dtype=np.int32), "scikit-learn", 1.0)
    monkeypatch.setitem(sys.modules, "faiss", ModuleType("faiss"))
    monkeypatch.setattr(module, "_inverted_file", lambda *_: pytest.fail("nobody asked for approximate neighbours"))
    monkeypatch.setitem(BACKENDS, "scikit-learn", lambda *_: none)
    assert nearest(np.eye(30_000, 9), 3) is none


def test_auto_on_a_gpu_is_the_grid_in_few_dimensions_and_torch_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "grid"):
        plain = module.BACKENDS[name]
        monkeypatch.setitem(module.BACKENDS, name, lambda points, k, _, plain=plain: plain(points, k, "cpu"))
    monkeypatch.setitem(module.GRID_WORTH, 4, 60)
    assert chosen(59, 4, device="cuda:0") == "torch"
    assert chosen(60, 4, device="cuda:0") == "grid"
    assert chosen(60, 9, device="cuda") == "torch"
    assert chosen(5, 3, device="cuda") == "grid"


# ---------------------------------------------------------------------- errors


def test_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(SettingError, match=r"pip install 'toporo\[ann\]'"):
        nearest(cloud(), 3, backend="faiss-ivf")


def test_unknown_backend_lists_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match=r"Did you mean 'kd-tree'\? Valid names: auto, faiss-ivf, grid, kd-tree"):
        nearest(cloud(), 3, backend="kdtree")


@pytest.mark.parametrize("bad", [0, -1, 2.5])
def test_neighbors_must_be_a_whole_number(bad: Any) -> None:
    with pytest.raises(SettingError, match=f"neighbors is {bad}: expected a whole number of at least 1"):
        nearest(cloud(), bad)


def test_too_few_points() -> None:
    with pytest.raises(DataError, match="5 points cannot have 5 neighbours each: give more points or neighbors=4"):
        nearest(cloud(5), 5)
    assert nearest(cloud(5), 4).indices.shape == (5, 4)


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_there(device: str) -> None:
    for backend in ("torch", "grid"):
        with pytest.raises(SettingError, match=f"device is '{device}', which torch cannot use here"):
            nearest(cloud(), 3, backend=backend, device=device)


def test_the_grid_is_for_few_dimensions() -> None:
    with pytest.raises(SettingError, match="at most 6 dimensions, and the points have 7: use 'torch'"):
        nearest(cloud(20, 7), 3, backend="grid")


# ---------------------------------------------------------------------- order in memory


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 20])
def test_locality_order_is_a_permutation(dimensions: int) -> None:
    order = locality_order(cloud(777, dimensions))
    assert order.dtype == np.intp
    np.testing.assert_array_equal(np.sort(order), np.arange(777))


@pytest.mark.parametrize("points", [cloud(5000, 2), cloud(5000, 3), clusters(5000, 25)], ids=["2", "3", "25"])
def test_locality_order_keeps_neighbours_together(points: np.ndarray) -> None:
    place = np.argsort(locality_order(points))
    near = cKDTree(points).query(points, k=6)[1][:, 1:]
    apart = np.median(np.abs(place[near] - place[:, None]))
    assert apart < 200  # a third of the 5000 in any order


def test_locality_order_follows_the_widest_axes() -> None:
    """Seven dimensions of noise in front of one that counts, in a unit whose square is no number."""
    points = np.hstack([1e-6 * cloud(600, 7), cloud(600, 1, seed=1)]) * 1e200
    place = np.argsort(locality_order(points))
    ranks = np.argsort(np.argsort(points[:, 7]))
    near = np.abs(ranks[:, None] - ranks) == 1
    assert np.median(np.abs(place[:, None] - place)[near]) < 60
