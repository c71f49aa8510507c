"""Nearest neighbours by the backend that suits the number of points and their dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial import cKDTree

from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.machine import cores, one_thread
from toporo.topology.grid import MOST_DIMENSIONS, nearest_in_cells
from toporo.types import Array

Indices = npt.NDArray[np.int32] | npt.NDArray[np.int64]

# How "auto" decides. Seconds for 15 neighbours of points drawn from one Gaussian, the worst case, and, after the slash,
# from clusters of four dimensions inside the d given; two cores:
#
#     n        d    k-d tree   brute force   IVF (recall 0.99)
#     20 000   8    0.5/0.1    0.7           0.8/0.4
#     20 000   16   7.5/0.1    0.8           2.4/0.3
#     20 000   64   -          1.1           8.2/0.9
#     100 000  8    5.5/1.5    29            5.2/2.8
#     100 000  16   -  /2.1    42            33 /2.5
#     100 000  64   -          68            -  /7
#
# The tree wins up to eight dimensions at either size; with ten a Gaussian of 100 000 already takes it over a minute.
# Brute force needs a second for 20 000 points of any dimension and grows with the square of their number. The inverted
# file is approximate, so "auto" never takes it.

#: Up to this many dimensions "auto" takes the k-d tree.
TREE_DIMENSIONS = 8

#: From this many points on, by dimension, "auto" takes the grid on a GPU, and else brute force: in four dimensions the
#: grid looks at 1100 of 20 000 points. Settled by such counts; not measured on a GPU.
GRID_WORTH = {1: 0, 2: 0, 3: 0, 4: 20_000}

#: Queries whose recall is measured, the recall to reach, and the number of lists read at first.
SAMPLE = 500
RECALL = 0.99
PROBES = 4
#: Lists of the inverted file, as a multiple of the square root of the number of points.
LISTS = 2.0

#: Candidates beyond those asked for, where they are found with rounded distances and put in order with exact ones.
SPARE = 4
#: Rows of queries at a time, and the bytes that a block of distances may take.
CHUNK = 1 << 16
BLOCK_BYTES = 1 << 28


@dataclass(frozen=True)
class Neighbors:
    """Every point's nearest other points, nearest first, and how they were found."""

    distances: Array
    indices: npt.NDArray[np.int32]
    backend: str
    #: Share of the true neighbours that were found, measured on a sample of queries; 1 for exact backends.
    recall: float

    def reordered(self, order: npt.NDArray[np.intp]) -> Neighbors:
        """The same for the points in another order."""
        rank = np.empty(len(order), dtype=self.indices.dtype)
        rank[order] = np.arange(len(order))
        return replace(self, distances=self.distances[order], indices=rank[self.indices[order]])


def nearest(points: Array, neighbors: int, *, backend: str = "auto", device: str = "cpu") -> Neighbors:
    """Distances and indices of every point's ``neighbors`` nearest other points.

    ``backend`` is a name of :data:`BACKENDS` or ``"auto"``, which is exact: a k-d tree in few dimensions and
    scikit-learn's brute force in more; on a CUDA ``device`` a grid in few dimensions and brute force in more. Only
    ``"faiss-ivf"`` is approximate. The tree and the grid put equal distances in the order of their indices, and so
    agree. Brute force takes candidates by :math:`|a|^2 + |b|^2 - 2ab`, so neighbours that are nearer to each other than
    about 1e-7 of the cloud's extent may be confused. Indices are 32-bit unless there are 2³¹ points or more.
    """
    n, dimensions = points.shape
    if int(neighbors) != neighbors or neighbors < 1:
        raise SettingError(f"neighbors is {neighbors!r}: expected a whole number of at least 1.")
    if n <= neighbors:
        raise DataError(
            f"{n} points cannot have {neighbors} neighbours each: give more points or neighbors={max(1, n - 1)}."
        )
    if backend not in ("auto", *BACKENDS):
        raise UnknownNameError("neighbour backend", backend, ["auto", *BACKENDS])
    k = int(neighbors)
    points, scale = scaled(points)
    known = BACKENDS[exact_backend(n, dimensions, device) if backend == "auto" else backend](points, k, device)
    if scale != 1.0:
        known.distances[...] *= scale
    return known


def locality_order(points: Array) -> npt.NDArray[np.intp]:
    """A permutation that puts near points near each other: the leaves of a k-d tree, read in order.

    In more than three dimensions the tree is built on the three leading principal axes.
    """
    if points.shape[1] > 3:
        points, _ = scaled(points)
        centre = points.mean(axis=0)
        second = np.zeros((points.shape[1], points.shape[1]))
        with one_thread():  # the last bits of a product may depend on the number of threads
            for rows in _chunks(len(points)):
                block = points[rows] - centre
                second += block.T @ block
            points = points @ np.linalg.eigh(second)[1][:, -3:]
    return np.asarray(cKDTree(points, copy_data=False).indices, dtype=np.intp)


# ---------------------------------------------------------------------- backends: (points, k, device) -> Neighbors


def _tree(points: Array, k: int, _device: str) -> Neighbors:
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
    return Neighbors(distances, indices, "kd-tree", 1.0)


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


def _grid(points: Array, k: int, device: str) -> Neighbors:
    """Cells of a grid on a torch device (:mod:`.grid`); for few dimensions."""
    if points.shape[1] > MOST_DIMENSIONS:
        raise SettingError(
            f"backend='grid' is for at most {MOST_DIMENSIONS} dimensions, and the points have {points.shape[1]}: use "
            "'torch', or 'auto'."
        )
    distances, indices, _ = nearest_in_cells(on_device(points, device), k)
    return Neighbors(distances.cpu().numpy(), indices.cpu().numpy(), "grid", 1.0)


def _scikit(points: Array, k: int, _device: str) -> Neighbors:
    """scikit-learn's brute force, blocked into matrix products."""
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
    return Neighbors(distances, indices, "scikit-learn", 1.0)


def _torch(points: Array, k: int, device: str) -> Neighbors:
    """Brute force in double precision on a torch device, block by block."""
    cloud = on_device(points, device)
    cloud -= cloud.mean(dim=0)
    squares = (cloud * cloud).sum(dim=1)
    n, wanted = len(points), min(len(points) - 1, k + SPARE)
    height = min(n, 1024)
    width = max(wanted, BLOCK_BYTES // 16 // height)  # the block, and as much again for the selection
    distances, indices = _empty(n, k)
    for top in range(0, n, height):
        queries = cloud[top : top + height]
        best = torch.empty((len(queries), 0), dtype=torch.float64, device=device)
        chosen = torch.empty((len(queries), 0), dtype=torch.int64, device=device)
        for left in range(0, n, width):
            block = torch.addmm(squares[left : left + width], queries, cloud[left : left + width].T, alpha=-2)
            start, stop = max(top, left), min(top + len(queries), left + block.shape[1])
            if start < stop:  # the block holds distances of points to themselves
                own = torch.arange(start, stop, device=device)
                block[own - top, own - left] = torch.inf
            near, where = block.topk(min(wanted, block.shape[1]), dim=1, largest=False, sorted=False)
            best, chosen = torch.cat([best, near], dim=1), torch.cat([chosen, where + left], dim=1)
            if best.shape[1] > wanted:
                best, where = best.topk(wanted, dim=1, largest=False, sorted=False)
                chosen = chosen.gather(1, where)
        _settle(points, np.arange(top, top + len(queries)), chosen.cpu().numpy(), distances, indices)
    return Neighbors(distances, indices, "torch", 1.0)


def _faiss_ivf(points: Array, k: int, _device: str) -> Neighbors:
    """faiss's inverted file, reading as many lists as the recall asks for."""
    try:
        faiss = import_module("faiss")
    except ImportError:
        raise SettingError(
            "backend='faiss-ivf' needs faiss, which is not installed: pip install 'toporo[ann]'."
        ) from None
    return _inverted_file(faiss, points, k)


Backend = Callable[[Array, int, str], Neighbors]

#: The backends by name. Each takes points, the number of neighbours and the torch device.
BACKENDS: dict[str, Backend] = {
    "kd-tree": _tree,
    "scikit-learn": _scikit,
    "faiss-ivf": _faiss_ivf,
    "torch": _torch,
    "grid": _grid,
}


def exact_backend(n: int, dimensions: int, device: str) -> str:
    """The backend that "auto" takes, by the number of points, their dimensions and the device."""
    if device.startswith("cuda"):
        return "grid" if n >= GRID_WORTH.get(dimensions, math.inf) else "torch"
    return "kd-tree" if dimensions <= TREE_DIMENSIONS else "scikit-learn"


# ---------------------------------------------------------------------- the inverted file


def _inverted_file(faiss: ModuleType, points: Array, k: int) -> Neighbors:
    """Approximate neighbours.

    Threads take part only where each query stands alone: products of matrices may round differently with their
    number, and a point on the border of two lists would then move.
    """
    n, dimensions = points.shape
    centred = points - points.mean(axis=0)
    single = (centred / (np.abs(centred).max() or 1.0)).astype(np.float32)
    lists = min(n, max(1, round(LISTS * n**0.5)))
    quantizer = faiss.IndexFlatL2(dimensions)
    index = faiss.IndexIVFFlat(quantizer, dimensions, lists)
    index.cp.seed = 1234
    index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = 1, 40
    with one_thread(openmp=True):
        index.train(single)
        index.add(single)
    wanted = min(n, k + 1 + SPARE)

    def search(rows: npt.NDArray[np.intp], probes: int) -> npt.NDArray[np.int64]:
        queries = single[rows]
        with one_thread(openmp=True):
            far, which = quantizer.search(queries, probes)
        index.nprobe = probes
        candidates: npt.NDArray[np.int64] = index.search_preassigned(queries, wanted, which, far)[1]
        return candidates

    sample = np.sort(np.random.default_rng(0).choice(n, min(n, SAMPLE), replace=False))
    true = _settled(points, sample, _exact_rows(centred, sample, wanted), k)[0]
    probes = min(PROBES, lists)
    while True:
        recall = _recall(_settled(points, sample, search(sample, probes), k)[0], true)
        if recall >= RECALL or probes == lists:
            break
        probes = min(2 * probes, lists)
    distances, indices = _empty(n, k)
    order = locality_order(points)
    for part in _chunks(n, max(1, min(CHUNK, BLOCK_BYTES // 12 // probes))):
        rows = order[part]
        candidates = search(rows, probes)
        short = np.flatnonzero(np.sum((candidates >= 0) & (candidates != rows[:, None]), axis=1) < k)
        if len(short):
            candidates[short] = _exact_rows(centred, rows[short], wanted)
        _settle(points, rows, candidates, distances, indices)
    return Neighbors(distances, indices, "faiss-ivf", _recall(distances[sample], true))


def _recall(distances: Array, true: Array) -> float:
    """The share of true neighbours found, by their distances: of those as far as the last, any will do."""
    last = true[:, -1:]
    inside = np.sum(distances < last, axis=1)
    at_last = np.minimum(np.sum(distances == last, axis=1), np.sum(true == last, axis=1))
    return float(np.mean(inside + at_last) / true.shape[1])


def _exact_rows(centred: Array, rows: npt.NDArray[np.intp], k: int) -> npt.NDArray[np.int64]:
    """The ``k`` points nearest to each of a few rows, themselves among them, in no particular order."""
    nearby = np.empty((len(rows), k), dtype=np.int64)
    squares = np.einsum("ij,ij->i", centred, centred)
    with one_thread():
        for part in _chunks(len(rows), max(1, BLOCK_BYTES // 16 // len(centred))):
            block = centred[rows[part]] @ centred.T
            block *= -2.0
            block += squares
            nearby[part] = np.argpartition(block, k - 1, axis=1)[:, :k]
    return nearby


# ---------------------------------------------------------------------- shared parts


def on_device(points: Array, device: str) -> torch.Tensor:
    """A copy of points on a torch device, or an error that names it."""
    try:
        return torch.tensor(points, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError) as problem:
        raise SettingError(f"device is {device!r}, which torch cannot use here: {problem}") from None


def _settle(points: Array, rows: Any, candidates: npt.NDArray[Any], distances: Array, indices: Indices) -> None:
    """Write the ``candidates`` for ``rows`` into the results."""
    distances[rows], indices[rows] = _settled(points, rows, candidates, distances.shape[1])


def _settled(points: Array, rows: Any, candidates: npt.NDArray[Any], k: int) -> tuple[Array, npt.NDArray[Any]]:
    """The ``k`` nearest of each row's candidates, without the point itself, by squared distance and then by index.

    The distances are those of the points as given, whichever way the candidates were come by; -1 is no candidate. In
    few dimensions squares are added up one after the other, as the k-d tree and the grid do.
    """
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
    measured[(candidates == np.asarray(rows)[:, None]) | (candidates < 0)] = np.inf
    order = np.argsort(measured, axis=1, kind="stable")[:, :k]
    return np.sqrt(np.take_along_axis(measured, order, axis=1)), np.take_along_axis(candidates, order, axis=1)


def scaled(points: Array) -> tuple[Array, float]:
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
