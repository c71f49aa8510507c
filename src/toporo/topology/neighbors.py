"""Exact nearest neighbours: a k-d tree in few dimensions, blocked brute force otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from toporo.errors import DataError, SettingError
from toporo.machine import cores, one_thread
from toporo.types import Array

#: Up to this many dimensions neighbours are found by a k-d tree, beyond it by brute force. For 100 000 points of one
#: Gaussian, the worst case for a tree, that takes 5.5 s in eight dimensions on two cores, and brute force 29 s.
TREE_DIMENSIONS = 8
#: Candidates beyond those asked for, where they are found with rounded distances and sorted by exact ones.
SPARE = 4
#: Rows of queries at a time, and the bytes that a block of differences may take.
CHUNK = 1 << 16
BLOCK_BYTES = 1 << 24


@dataclass(frozen=True)
class Neighbors:
    """The nearest other points of every point, nearest first.

    Attributes
    ----------
    distances, indices : (n, k) each.
    search : how they were found, ``"kd-tree"`` or ``"scikit-learn"`` (its brute force).
    """

    distances: Array
    indices: npt.NDArray[np.int32]
    search: str

    def reordered(self, order: npt.NDArray[np.intp]) -> Neighbors:
        """Return the same for the points in another order."""
        rank = np.argsort(order).astype(self.indices.dtype)
        return replace(self, distances=self.distances[order], indices=rank[self.indices[order]])


def nearest(points: Array, neighbors: int) -> Neighbors:
    """Find every point's ``neighbors`` nearest other points.

    The search is exact: a k-d tree in up to :data:`TREE_DIMENSIONS` dimensions, brute force in more. Brute force takes
    candidates by :math:`|a|^2 + |b|^2 - 2ab`, so neighbours that are nearer to each other than about 1e-7 of the
    cloud's extent may be confused.
    """
    n, dimensions = points.shape
    if int(neighbors) != neighbors or neighbors < 1:
        raise SettingError(f"neighbors is {neighbors!r}: expected a whole number of at least 1.")
    if n <= neighbors:
        raise DataError(
            f"{n} points cannot have {neighbors} neighbours each: give more points or neighbors={max(1, n - 1)}."
        )
    points, scale = _scaled(points)
    search = _tree if dimensions <= TREE_DIMENSIONS else _brute_force
    found = search(points, int(neighbors))
    if scale != 1.0:
        found.distances[...] *= scale
    return found


def locality_order(points: Array) -> npt.NDArray[np.intp]:
    """Order points so that near ones are near each other: the leaves of a k-d tree, read in order.

    In more than three dimensions the tree is built on the three leading principal axes.
    """
    if points.shape[1] > 3:
        points, _ = _scaled(points)
        centre = points.mean(axis=0)
        second = np.zeros((points.shape[1], points.shape[1]))
        with one_thread():  # the last bits of a product may depend on the number of threads
            for rows in _chunks(len(points), CHUNK):
                block = points[rows] - centre
                second += block.T @ block
            points = points @ np.linalg.eigh(second)[1][:, -3:]
    return np.asarray(cKDTree(points, copy_data=False).indices, dtype=np.intp)


def _tree(points: Array, k: int) -> Neighbors:
    """Ask scipy's k-d tree in the order of its leaves: what one query read, the next finds in the cache."""
    tree = cKDTree(points, copy_data=False)
    found = _empty(len(points), k, "kd-tree")
    for part in _chunks(len(points), CHUNK):
        rows = tree.indices[part]
        distances, indices = tree.query(points[rows], k=k + 1, workers=cores())
        itself = indices == rows[:, None]
        itself[~itself.any(axis=1), -1] = True  # among duplicates a point may not find itself
        found.distances[rows] = distances[~itself].reshape(-1, k)
        found.indices[rows] = indices[~itself].reshape(-1, k)
    return found


def _brute_force(points: Array, k: int) -> Neighbors:
    """Take candidates from scikit-learn's brute force, and sort them by their exact distances."""
    from sklearn.neighbors import NearestNeighbors

    n = len(points)
    centred = points - points.mean(axis=0)
    model = NearestNeighbors(n_neighbors=min(n, k + 1 + SPARE), algorithm="brute").fit(centred)
    found = _empty(n, k, "scikit-learn")
    parts = list(_chunks(n, CHUNK))
    with one_thread(), _rows_in_parallel(len(range(n)[parts[-1]])):  # scikit-learn's own limit of BLAS does not nest
        for part in parts:
            candidates = np.sort(model.kneighbors(centred[part], return_distance=False), axis=1)
            _sort_candidates(points, np.arange(n)[part], candidates, found)
    return found


def _sort_candidates(points: Array, rows: npt.NDArray[Any], candidates: npt.NDArray[Any], found: Neighbors) -> None:
    """Write the nearest of each row's candidates, without the point itself, by distance and then by index."""
    k = found.distances.shape[1]
    for part in _chunks(len(rows), max(1, BLOCK_BYTES // (8 * candidates.shape[1] * points.shape[1]))):
        difference = points[candidates[part]] - points[rows[part], None, :]
        squares = np.einsum("ijk,ijk->ij", difference, difference)
        squares[candidates[part] == rows[part, None]] = np.inf
        order = np.argsort(squares, axis=1, kind="stable")[:, :k]
        found.distances[rows[part]] = np.sqrt(np.take_along_axis(squares, order, axis=1))
        found.indices[rows[part]] = np.take_along_axis(candidates[part], order, axis=1)


def _scaled(points: Array) -> tuple[Array, float]:
    """Scale points so that squares neither overflow nor vanish; return the power of two they were divided by too."""
    largest = max(abs(float(points.max())), abs(float(points.min())))
    if largest == 0.0 or 1e-100 < largest < 1e100:
        return points, 1.0
    scale = 2.0 ** (np.frexp(largest)[1] - 1)
    return points / scale, float(scale)


def _empty(n: int, k: int, search: str) -> Neighbors:
    return Neighbors(np.empty((n, k)), np.empty((n, k), dtype=np.int32), search)


def _chunks(n: int, size: int) -> Iterator[slice]:
    """Yield slices of ``range(n)`` of at most ``size``, as equal as can be; the last is the shortest."""
    size = -(-n // -(-n // size))
    yield from (slice(start, min(start + size, n)) for start in range(0, n, size))


def _rows_in_parallel(rows: int) -> AbstractContextManager[Any]:
    """Limit the threads so that scikit-learn shares out the queries among them.

    With fewer than 1024 queries a thread it shares out the points instead, and among equal distances the one chosen
    would depend on the number of threads.
    """
    from threadpoolctl import threadpool_info, threadpool_limits

    most = max(1, (rows - 1) // 1024)
    if any(pool["user_api"] == "openmp" and pool["num_threads"] > most for pool in threadpool_info()):
        limits: AbstractContextManager[Any] = threadpool_limits(most, user_api="openmp")
        return limits
    return nullcontext()
