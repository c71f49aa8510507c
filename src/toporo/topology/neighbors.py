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

Indices = npt.NDArray[np.int32] | npt.NDArray[np.int64]

#: Up to this many dimensions neighbours are found by a k-d tree, beyond it by brute force.
#:
#: Seconds for 15 neighbours of points drawn from one Gaussian, the worst case, and, after the slash, from clusters of
#: four dimensions inside the d given; two cores:
#:
#:     n        d    k-d tree   brute force
#:     20 000   8    0.5/0.1    0.7
#:     20 000   16   7.5/0.1    0.8
#:     20 000   64   -          1.1
#:     100 000  8    5.5/1.5    29
#:     100 000  16   -  /2.1    42
#:     100 000  64   -          68
TREE_DIMENSIONS = 8

#: Candidates beyond those asked for, where they are found with rounded distances and sorted by exact ones.
SPARE = 4
#: Rows of queries at a time, and the bytes that a block of distances may take.
CHUNK = 1 << 16
BLOCK_BYTES = 1 << 28


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
        """The same for the points in another order."""
        rank = np.empty(len(order), dtype=self.indices.dtype)
        rank[order] = np.arange(len(order))
        return replace(self, distances=self.distances[order], indices=rank[self.indices[order]])


def nearest(points: Array, neighbors: int) -> Neighbors:
    """Distances and indices of every point's ``neighbors`` nearest other points.

    The search is exact: a k-d tree in up to :data:`TREE_DIMENSIONS` dimensions, brute force in more. Equal distances
    are sorted by index. Brute force takes candidates by :math:`|a|^2 + |b|^2 - 2ab`, so neighbours that are nearer to
    each other than about 1e-7 of the cloud's extent may be confused. Indices are 32-bit unless there are 2³¹ points or
    more.
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
    known = search(points, int(neighbors))
    if scale != 1.0:
        known.distances[...] *= scale
    return known


def locality_order(points: Array) -> npt.NDArray[np.intp]:
    """A permutation that puts near points near each other: the leaves of a k-d tree, read in order.

    In more than three dimensions the tree is built on the three leading principal axes.
    """
    if points.shape[1] > 3:
        points, _ = _scaled(points)
        centre = points.mean(axis=0)
        second = np.zeros((points.shape[1], points.shape[1]))
        with one_thread():  # the last bits of a product may depend on the number of threads
            for rows in _chunks(len(points)):
                block = points[rows] - centre
                second += block.T @ block
            points = points @ np.linalg.eigh(second)[1][:, -3:]
    return np.asarray(cKDTree(points, copy_data=False).indices, dtype=np.intp)


def _tree(points: Array, k: int) -> Neighbors:
    """scipy's k-d tree, asked in the order of its leaves: what one query read, the next finds in the cache."""
    tree = cKDTree(points, copy_data=False)
    order, workers = tree.indices, cores()
    distances, indices = _empty(len(points), k)
    asked = min(len(points), k + 2)  # the point itself, and one more to see whether the last is as far as the next
    for part in _chunks(len(points)):
        rows = order[part]
        far, nearby = tree.query(points[rows], k=asked, workers=workers)
        own = nearby == rows[:, None]
        own[~own.any(axis=1), -1] = True  # among duplicates a point may not find itself
        far, nearby = far[~own].reshape(-1, asked - 1), nearby[~own].reshape(-1, asked - 1)
        distances[rows], indices[rows] = far[:, :k], nearby[:, :k]
        _settle_ties(tree, points, rows[(far[:, 1:] == far[:, :-1]).any(axis=1)], distances, indices)
    return Neighbors(distances, indices, "kd-tree")


def _settle_ties(tree: cKDTree, points: Array, rows: npt.NDArray[np.intp], distances: Array, indices: Indices) -> None:
    """Rows with equal distances anew: all that are as far as the last are found, and put in order by index.

    The tree gives those that it comes upon first.
    """
    n, k = len(points), distances.shape[1]
    asked = k + 1
    while len(rows):
        asked, left = min(n, 2 * asked), []
        for part in _chunks(len(rows), max(1, BLOCK_BYTES // 64 // asked)):
            far, nearby = tree.query(points[rows[part]], k=asked, workers=cores())
            whole = (far[:, -1] > far[:, k] * (1 + 1e-14)) | (asked == n)
            _settle(points, rows[part][whole], nearby[whole], distances, indices)
            left.append(rows[part][~whole])
        rows = np.concatenate(left)


def _brute_force(points: Array, k: int) -> Neighbors:
    """scikit-learn's brute force, in blocks of matrix products."""
    from sklearn.neighbors import NearestNeighbors

    n = len(points)
    centred = points - points.mean(axis=0)
    model = NearestNeighbors(n_neighbors=min(n, k + 1 + SPARE), algorithm="brute").fit(centred)
    distances, indices = _empty(n, k)
    parts = list(_chunks(n))
    with one_thread(), _rows_in_parallel(len(range(n)[parts[-1]])):  # scikit-learn's own limit of BLAS does not nest
        for part in parts:
            candidates = model.kneighbors(centred[part], return_distance=False)
            _settle(points, np.arange(n)[part], candidates, distances, indices)
    return Neighbors(distances, indices, "scikit-learn")


def _settle(points: Array, rows: Any, candidates: npt.NDArray[Any], distances: Array, indices: Indices) -> None:
    """Write the nearest of each row's candidates, without the point itself, by squared distance and then by index.

    The distances are those of the points as given, however the candidates were found. In few dimensions squares are
    added up one after the other, as the k-d tree does.
    """
    k = distances.shape[1]
    candidates = np.sort(candidates, axis=1)
    measured = np.empty(candidates.shape)
    height = max(1, (BLOCK_BYTES >> 4) // (8 * candidates.shape[1] * points.shape[1]))
    for part in _chunks(len(candidates), height):
        difference = points[candidates[part]]
        difference -= points[rows[part], None, :]
        if points.shape[1] > TREE_DIMENSIONS:
            measured[part] = np.einsum("ijk,ijk->ij", difference, difference)
        else:
            difference *= difference
            measured[part] = sum(difference[:, :, j] for j in range(points.shape[1]))
    measured[candidates == np.asarray(rows)[:, None]] = np.inf
    order = np.argsort(measured, axis=1, kind="stable")[:, :k]
    distances[rows] = np.sqrt(np.take_along_axis(measured, order, axis=1))
    indices[rows] = np.take_along_axis(candidates, order, axis=1)


def _scaled(points: Array) -> tuple[Array, float]:
    """Points whose squares neither overflow nor vanish, and the power of two they were divided by."""
    largest = max(abs(float(points.max())), abs(float(points.min())))
    if largest == 0.0 or 1e-100 < largest < 1e100:
        return points, 1.0
    scale = 2.0 ** (np.frexp(largest)[1] - 1)
    return points / scale, float(scale)


def _empty(n: int, k: int) -> tuple[Array, Any]:
    return np.empty((n, k)), np.empty((n, k), dtype=np.int32 if n < 2**31 else np.int64)


def _chunks(n: int, size: int | None = None) -> Iterator[slice]:
    """Slices of ``range(n)`` of at most ``size``, as equal as can be; the last is the shortest."""
    if n:
        size = size or CHUNK
        size = -(-n // -(-n // size))
        yield from (slice(start, min(start + size, n)) for start in range(0, n, size))


def _rows_in_parallel(rows: int) -> AbstractContextManager[Any]:
    """Few enough threads for scikit-learn to share out the queries among them.

    With fewer than 1024 queries a thread it shares out the points instead, and among equal distances the one chosen
    would depend on the number of threads.
    """
    from threadpoolctl import threadpool_info, threadpool_limits

    most = max(1, (rows - 1) // 1024)
    if any(pool["user_api"] == "openmp" and pool["num_threads"] > most for pool in threadpool_info()):
        limits: AbstractContextManager[Any] = threadpool_limits(most, user_api="openmp")
        return limits
    return nullcontext()
