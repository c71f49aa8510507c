"""From features to the diffusion operator of the data graph, on the host or on the device that will use it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from toporo.errors import DataError
from toporo.progress import logger
from toporo.topology.device import build_operator, device_bytes
from toporo.topology.grid import GPU_BYTES, MOST_DIMENSIONS
from toporo.topology.neighbors import exact_backend, locality_order, nearest
from toporo.topology.operator import (
    DiffusionOperator,
    DistinctPoints,
    Kernel,
    Sigma,
    bandwidth,
    dense_affinity,
    knn_kernel,
)
from toporo.topology.plan import free_memory
from toporo.types import Array


def on_device_pays(
    shape: tuple[int, ...], kernel: str, search: str, neighbors: int, device: str, limit: int | None
) -> bool:
    """Whether to build the graph on the device: a GPU, a kNN kernel, few dimensions, and memory enough on it."""
    points, dimensions = shape
    if device == "cpu" or kernel != "knn" or dimensions > MOST_DIMENSIONS:
        return False
    by_grid = search == "grid" or (search in ("auto", "exact") and exact_backend(points, dimensions, device) == "grid")
    room = [size for size in (free_memory(device), limit) if size is not None]
    return by_grid and device_bytes(points, dimensions, neighbors) + 2 * GPU_BYTES <= min(room, default=2**63)


def build(
    points: Array, kernel: str, sigma: Sigma, neighbors: int, search: str, device: str, on_device: bool
) -> tuple[DiffusionOperator, npt.NDArray[np.intp], dict[str, Any]]:
    """The operator over the distinct points, the point of each row given, and how it was made.

    Parameters
    ----------
    points : (n, d), checked.
    kernel, sigma, neighbors, search : as :func:`~toporo.topology.diffusion.diffusion_emd` takes them.
    device : where neighbours are found, and the rest too if ``on_device``.
    on_device : whether to build the whole graph there; where its memory turns out too small, the host takes over.
    """
    described: dict[str, Any] = {"kernel": kernel, "sigma": sigma if isinstance(sigma, str) else float(sigma)}
    if on_device:
        try:
            resident, place, how = build_operator(points, sigma, neighbors, device)
            return resident, place, described | how
        except torch.OutOfMemoryError:
            logger.info("%s has too little memory to build the data graph: built on the CPU", device)
    matrix, merged, how = _kernel(points, kernel, sigma, neighbors, search, device)
    return DiffusionOperator.from_kernel(matrix, merged.counts, checked=True), merged.place, described | how


def _kernel(
    points: Array, kernel: str, sigma: Sigma, neighbors: int, search: str, device: str
) -> tuple[Kernel, DistinctPoints, dict[str, Any]]:
    """A kernel over the distinct points, which points those are, and how it was made."""
    distinct = DistinctPoints.of(points)
    if len(distinct.points) == 1:
        raise DataError(f"all {len(points)} points coincide: there is nothing to tell groups apart by.")
    if (kernel == "knn" or sigma == "knn") and neighbors >= len(distinct.points) < len(points):
        raise DataError(
            f"{len(distinct.points)} distinct points (of {len(points)}) cannot have {neighbors} neighbours each: give "
            f"more points or neighbors={len(distinct.points) - 1}."
        )
    described: dict[str, Any] = {}
    known = None
    if kernel == "knn" or sigma == "knn":
        backend = "auto" if search == "exact" else search
        known = nearest(distinct.points, neighbors, backend=backend, device=device)
        described |= {"neighbors": neighbors, "search": known.backend, "recall": known.recall}
    width = bandwidth(distinct.points, sigma, neighbors=neighbors, known=known)
    described["sigma_value"] = width
    if kernel == "knn" and known is not None:
        order = locality_order(distinct.points)
        distinct, known = distinct.reordered(order), known.reordered(order)
        return knn_kernel(known, width), distinct, described
    return dense_affinity(distinct.points, width, neighbors=neighbors), distinct, described
