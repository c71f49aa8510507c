"""Gaussian kernels over points, dense or between nearest neighbours only."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist, pdist

from toporo.checks import positive
from toporo.errors import DataError, UnknownNameError
from toporo.machine import one_thread
from toporo.topology.neighbors import TREE_DIMENSIONS, Neighbors, nearest
from toporo.types import Array

Sigma = float | Literal["median", "knn"]

#: The largest feature; squares of larger ones leave the range of float64.
LARGEST = 1e100
#: Beyond this many points the median distance is taken over a subsample of this size, the same one at every call.
MEDIAN_SAMPLE = 2000
#: Up to here differences of coordinates, which lose no digits, cost no more than products.
FEW_DIMENSIONS = 16


def check_features(features: Any) -> Array:
    """Return features as a finite (n, d) float array, or raise a :class:`DataError` that names a bad row."""
    if hasattr(features, "detach"):  # a torch tensor, on any device
        features = features.detach().cpu().double().numpy()
    try:
        array = np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"features must be numbers; found {type(features).__name__} with other content.") from None
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"features must be a table of shape (points, dimensions); found shape {array.shape}.")
    array = np.ascontiguousarray(array)  # the memory layout decides the order of sums, and so the last bits
    bad = ~(np.abs(array) <= LARGEST).all(axis=1)
    if bad.any():
        raise DataError(
            f"features hold NaN or infinite values (or beyond {LARGEST:g}) in {int(bad.sum())} of {len(array)} rows "
            f"(first: row {int(np.argmax(bad))}). Impute or drop those rows first."
        )
    return array


def gaussian_kernel(points: Array, kernel: str, sigma: Sigma, neighbors: int) -> tuple[Any, dict[str, Any]]:
    r"""Compute :math:`K_{ij} = \exp(-\|f_i - f_j\|^2 / \sigma^2)` (Qiao & Peng 2023, Sec. 3.1), and a record of it.

    Parameters
    ----------
    points : (n, d), finite.
    kernel : ``"dense"``: between all pairs; ``"knn"``: zero unless j is among i's nearest points or i among j's.
    sigma : the width: a positive number, ``"median"`` or ``"knn"`` (:func:`bandwidth`).
    neighbors : the number of nearest points, for the kernel and for ``sigma="knn"``.
    """
    settings: dict[str, Any] = {"kernel": kernel, "sigma": sigma}
    found = None
    if kernel == "knn" or sigma == "knn":
        found = nearest(points, neighbors)
        search = "kd-tree" if points.shape[1] <= TREE_DIMENSIONS else "scikit-learn"
        settings |= {"neighbors": neighbors, "search": search, "recall": 1.0}  # the search is exact
    width = settings["sigma_value"] = bandwidth(points, sigma, found)
    if not isinstance(sigma, str):
        settings["sigma"] = width
    with one_thread():
        matrix = knn_kernel(found, width) if kernel == "knn" and found else dense_kernel(points, width)
    return matrix, settings


def dense_kernel(points: Array, width: float) -> Array:
    """Compute the kernel between all pairs of points."""
    points = points - points.mean(axis=0)  # far from the origin, squared distances would lose their digits
    points /= width
    if points.shape[1] <= FEW_DIMENSIONS:
        distances = cdist(points, points, "sqeuclidean")
    else:
        squares = np.einsum("ij,ij->i", points, points)
        distances = squares[:, None] + squares[None, :] - 2.0 * points @ points.T
        np.maximum(distances, 0.0, out=distances)
        distances = 0.5 * (distances + distances.T)  # products of floats need not be symmetric to the last bit
        np.fill_diagonal(distances, 0.0)
    np.negative(distances, out=distances)
    return np.asarray(np.exp(distances, out=distances))


def knn_kernel(found: Neighbors, width: float) -> sparse.csr_array:
    """Compute the kernel between nearest neighbours, symmetrised by union; the diagonal is 1."""
    n, k = found.indices.shape
    values = found.distances / width
    np.square(values, out=values)
    np.exp(-values, out=values)
    starts = np.arange(0, n * k + 1, k, dtype=np.int32 if n * k < 2**31 else np.int64)
    directed = sparse.csr_array((values.ravel(), found.indices.ravel(), starts), shape=(n, n))
    kernel = directed.maximum(directed.T.tocsr())
    del directed, values
    kernel = sparse.csr_array(kernel + sparse.eye_array(n, format="csr"))  # a point is not its own neighbour
    kernel.sort_indices()
    return kernel


def bandwidth(points: Array, sigma: Sigma, found: Neighbors | None) -> float:
    """Compute the kernel width: a positive number as given, ``"median"`` or ``"knn"``.

    ``"median"`` is the median distance between two points; ``"knn"`` the median distance from a point to the last of
    the neighbours that were ``found``, which follows the local spacing of the data and not its extent.
    """
    if not isinstance(sigma, str):
        return positive(sigma, "sigma", "a positive number, 'median' or 'knn'")
    if sigma == "knn" and found:
        width = float(np.median(found.distances[:, -1]))
    elif sigma == "median":
        if len(points) > MEDIAN_SAMPLE:
            points = points[np.random.default_rng(0).choice(len(points), MEDIAN_SAMPLE, replace=False)]
        width = float(np.median(pdist(points)))
    else:
        raise UnknownNameError("sigma", sigma, ["median", "knn", "a positive number"])
    if width == 0.0:
        raise DataError(
            f"sigma={sigma!r} comes out as 0: more than half of the points coincide with others. Remove duplicate "
            "points, use more neighbours, or give sigma as a number."
        )
    return width
