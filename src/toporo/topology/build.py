"""From features to the diffusion operator of the data graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError
from toporo.topology.neighbors import locality_order, nearest
from toporo.topology.operator import (
    DiffusionOperator,
    DistinctPoints,
    Kernel,
    Sigma,
    bandwidth,
    dense_affinity,
    knn_kernel,
)
from toporo.types import Array


def build(
    points: Array, kernel: str, sigma: Sigma, neighbors: int
) -> tuple[DiffusionOperator, npt.NDArray[np.intp], dict[str, Any]]:
    """The operator over the distinct points, the point of each row given, and how it was made.

    Parameters
    ----------
    points : (n, d), checked.
    kernel, sigma, neighbors : as :func:`~toporo.topology.diffusion.diffusion_emd` takes them.
    """
    described: dict[str, Any] = {"kernel": kernel, "sigma": sigma if isinstance(sigma, str) else float(sigma)}
    matrix, merged, how = _kernel(points, kernel, sigma, neighbors)
    return DiffusionOperator.from_kernel(matrix, merged.counts, checked=True), merged.place, described | how


def _kernel(points: Array, kernel: str, sigma: Sigma, neighbors: int) -> tuple[Kernel, DistinctPoints, dict[str, Any]]:
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
        known = nearest(distinct.points, neighbors)
        described |= {"neighbors": neighbors, "search": known.search, "recall": 1.0}  # the search is exact
    width = bandwidth(distinct.points, sigma, neighbors=neighbors, known=known)
    described["sigma_value"] = width
    if kernel == "knn" and known is not None:
        order = locality_order(distinct.points)
        distinct, known = distinct.reordered(order), known.reordered(order)
        return knn_kernel(known, width), distinct, described
    return dense_affinity(distinct.points, width, neighbors=neighbors), distinct, described
