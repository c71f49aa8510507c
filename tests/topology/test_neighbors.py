"""Neighbours: both searches against all distances, and the same bytes on one thread or two."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from toporo.topology import neighbors as module
from toporo.topology.neighbors import Neighbors, locality_order, nearest

SEARCHES = ("k-d tree", "brute force")


def find(search: str, points: np.ndarray, k: int) -> Neighbors:
    """Neighbours by one search, whatever the number of dimensions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TREE_DIMENSIONS", 10**9 if search == "k-d tree" else 0)
        return nearest(points, k)


def cloud(n: int = 200, dimensions: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, dimensions))


def clusters(n: int, dimensions: int, seed: int = 0) -> np.ndarray:
    """Forty clusters of three dimensions each."""
    rng = np.random.default_rng(seed)
    label = rng.integers(40, size=n)
    axes = rng.normal(size=(40, 3, dimensions))
    return 4 * rng.normal(size=(40, dimensions))[label] + np.einsum("nz,nzd->nd", rng.normal(size=(n, 3)), axes[label])


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


@pytest.mark.parametrize("search", SEARCHES)
@settings(deadline=None, max_examples=25)
@given(st.integers(2, 60), st.sampled_from([1, 2, 3, 5, 12, 40]), st.integers(1, 20), st.integers(0, 999))
def test_every_search_finds_the_nearest(search: str, n: int, dimensions: int, k: int, seed: int) -> None:
    k = min(k, n - 1)
    points = cloud(n, dimensions, seed)
    before = points.copy()
    found = find(search, points, k)
    check(points, found, k)
    np.testing.assert_allclose(found.distances, truth(points, k), rtol=1e-12)
    np.testing.assert_array_equal(points, before)


@pytest.mark.parametrize("search", SEARCHES)
@settings(deadline=None, max_examples=15)
@given(st.integers(3, 40), st.integers(1, 4), st.integers(1, 8), st.integers(0, 999))
def test_ties_and_duplicates(search: str, n: int, dimensions: int, k: int, seed: int) -> None:
    """Points of a coarse lattice: most distances are shared, many are 0."""
    k = min(k, n - 1)
    points = np.random.default_rng(seed).integers(0, 3, size=(n, dimensions)).astype(np.float64)
    found = find(search, points, k)
    check(points, found, k)
    np.testing.assert_allclose(found.distances, truth(points, k), rtol=1e-12)


# ---------------------------------------------------------------------- the same bytes


@pytest.mark.parametrize("search", SEARCHES)
def test_threads_do_not_change_a_byte(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lattice = np.random.default_rng(0).integers(0, 3, size=(1000, 5)).astype(np.float64)
    for points in [cloud(4001, 11), lattice, clusters(3000, 30)]:
        answers = []
        for threads in (1, 2, 3):
            monkeypatch.setattr(module, "cores", lambda threads=threads: threads)
            with threadpool_limits(threads):
                found = find(search, points, 9)
                answers.append(found.distances.tobytes() + found.indices.tobytes() + locality_order(points).tobytes())
        assert answers[0] == answers[1] == answers[2]


# ---------------------------------------------------------------------- order in memory


@pytest.mark.parametrize("points", [cloud(5000, 2), cloud(5000, 3), clusters(5000, 25)], ids=["2", "3", "25"])
def test_locality_order_keeps_neighbours_together(points: np.ndarray) -> None:
    order = locality_order(points)
    np.testing.assert_array_equal(np.sort(order), np.arange(5000))
    place = np.argsort(order)
    near = cKDTree(points).query(points, k=6)[1][:, 1:]
    apart = np.median(np.abs(place[near] - place[:, None]))
    assert apart < 200  # a third of the 5000 in any order
