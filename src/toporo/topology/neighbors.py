"""Exact nearest neighbours: a k-d tree in few dimensions, blocked brute force otherwise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from toporo.errors import DataError
from toporo.machine import cores, one_thread
from toporo.types import Array

#: Up to this many dimensions neighbours are found by a k-d tree, beyond it by brute force. For 100 000 points of one
#: Gaussian, the worst case for a tree, that takes 5.5 s in eight dimensions on two cores, and brute force 29 s.
TREE_DIMENSIONS = 8
#: Candidates beyond those asked for, where they are found with rounded distances and sorted by exact ones.
SPARE = 4
#: Bytes that a block of differences may take.
BLOCK_BYTES = 1 << 24


class Neighbors(NamedTuple):
    """The nearest other points of every point, nearest first.

    Attributes
    ----------
    distances, indices : (n, k) each.
    """

    distances: Array
    indices: npt.NDArray[np.int32]


def nearest(points: Array, neighbors: int) -> Neighbors:
    """Find every point's ``neighbors`` nearest other points.

    The search is exact: a k-d tree in up to :data:`TREE_DIMENSIONS` dimensions, brute force in more. Brute force takes
    candidates by :math:`|a|^2 + |b|^2 - 2ab`, so neighbours that are nearer to each other than about 1e-7 of the
    cloud's extent may be confused.
    """
    n, dimensions = points.shape
    if n <= neighbors:
        raise DataError(
            f"{n} distinct points cannot have {neighbors} neighbours each: give more points or "
            f"neighbors={max(1, n - 1)}."
        )
    search = _tree if dimensions <= TREE_DIMENSIONS else _brute_force
    distances, indices = search(points, neighbors)
    return Neighbors(distances, indices.astype(np.int32))


def locality_order(points: Array) -> npt.NDArray[np.intp]:
    """Order points so that near ones are near each other: the leaves of a k-d tree, read in order.

    In more than three dimensions the tree is built on the three leading principal axes.
    """
    if points.shape[1] > 3:
        centred = points - points.mean(axis=0)
        with one_thread():  # the last bits of a product may depend on the number of threads
            points = centred @ np.linalg.eigh(centred.T @ centred)[1][:, -3:]
    return np.asarray(cKDTree(points, copy_data=False).indices, dtype=np.intp)


def _tree(points: Array, k: int) -> tuple[Array, npt.NDArray[np.intp]]:
    """Ask scipy's k-d tree."""
    distances, indices = cKDTree(points, copy_data=False).query(points, k=k + 1, workers=cores())
    itself = indices == np.arange(len(points))[:, None]
    itself[~itself.any(axis=1), -1] = True  # among duplicates a point may not find itself
    return distances[~itself].reshape(-1, k), indices[~itself].reshape(-1, k)


def _brute_force(points: Array, k: int) -> tuple[Array, npt.NDArray[np.intp]]:
    """Take candidates from scikit-learn's brute force, and sort them by their exact distances, then by index."""
    from sklearn.neighbors import NearestNeighbors

    n = len(points)
    centred = points - points.mean(axis=0)
    model = NearestNeighbors(n_neighbors=min(n, k + 1 + SPARE), algorithm="brute").fit(centred)
    # Up to 1024 points a thread, scikit-learn shares out the points and not the queries; which of several points at the
    # same distance it chooses then depends on the number of threads. Its own limit of BLAS does not nest.
    with one_thread(openmp=n <= 1024 * cores()):
        candidates = np.sort(model.kneighbors(centred, return_distance=False), axis=1)
    distances, indices = np.empty((n, k)), np.empty((n, k), dtype=np.intp)
    size = max(1, BLOCK_BYTES // (8 * candidates.shape[1] * points.shape[1]))
    for start in range(0, n, size):
        rows = slice(start, start + size)
        difference = points[candidates[rows]] - points[rows, None, :]
        squares = np.einsum("ijk,ijk->ij", difference, difference)
        squares[candidates[rows] == np.arange(n)[rows, None]] = np.inf
        order = np.argsort(squares, axis=1, kind="stable")[:, :k]
        distances[rows] = np.sqrt(np.take_along_axis(squares, order, axis=1))
        indices[rows] = np.take_along_axis(candidates[rows], order, axis=1)
    return distances, indices
