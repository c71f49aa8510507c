"""Gaussian kernels over points, dense or between nearest neighbours only."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist, pdist

from toporo.checks import positive
from toporo.errors import DataError, UnknownNameError
from toporo.topology.neighbors import Neighbors, nearest
from toporo.types import Array

Sigma = float | Literal["median", "knn"]

#: Beyond this many points the median distance is taken over a subsample of this size, the same one at every call.
MEDIAN_SAMPLE = 2000
#: Up to here differences of coordinates, which lose no digits, cost no more than products.
FEW_DIMENSIONS = 16


def check_features(features: Any, *, what: str = "features") -> Array:
    """Return features as a finite (n, d) float array, or raise a :class:`DataError` that says where they are not."""
    if hasattr(features, "detach"):  # a torch tensor, on any device
        features = features.detach().cpu().double().numpy()
    try:
        array = np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{what} must be numbers; found {type(features).__name__} with other content.") from None
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"{what} must be a table of shape (points, dimensions); found shape {array.shape}.")
    array = np.ascontiguousarray(array)  # the memory layout decides the order of sums, and so the last bits
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise DataError(
            f"{what} hold NaN or infinite values in {int(bad.sum())} of {len(array)} rows (first: row "
            f"{int(np.argmax(bad))}). Impute or drop those rows first."
        )
    return array


def dense_affinity(features: Any, sigma: Sigma = "knn", *, neighbors: int = 15) -> Array:
    r"""Compute the all-pairs kernel :math:`K_{ij} = \exp(-\|f_i - f_j\|^2 / \sigma^2)` (Qiao & Peng 2023, Sec. 3.1)."""
    points = _centered(features)
    width = bandwidth(points, sigma, neighbors=neighbors)
    points /= width  # first, as squares of large or small numbers leave the range of float64
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


def knn_affinity(features: Any, sigma: Sigma = "knn", *, neighbors: int = 15) -> sparse.csr_array:
    r"""Compute the kernel between nearest neighbours only, symmetrised by union; the diagonal is 1.

    Entry (i, j) is :math:`\exp(-\|f_i - f_j\|^2 / \sigma^2)` if j is among i's ``neighbors`` nearest points or i
    among j's, else 0.
    """
    points = _centered(features)
    found = nearest(points, neighbors)
    return knn_kernel(found, bandwidth(points, sigma, neighbors=neighbors, found=found))


def knn_kernel(found: Neighbors, width: float) -> sparse.csr_array:
    """Compute the kernel of :func:`knn_affinity` from neighbours."""
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


def bandwidth(features: Array, sigma: Sigma, *, neighbors: int = 15, found: Neighbors | None = None) -> float:
    """Compute the kernel width: a positive number as given, ``"median"`` or ``"knn"``.

    ``"median"`` is the median distance between two points; ``"knn"`` the median distance from a point to its
    ``neighbors``-th nearest one, which follows the local spacing of the data and not its extent. Neighbours that were
    ``found`` are not searched for again.
    """
    if isinstance(sigma, str):
        if sigma == "median":
            sample = features
            if len(features) > MEDIAN_SAMPLE:
                sample = features[np.random.default_rng(0).choice(len(features), MEDIAN_SAMPLE, replace=False)]
            width = float(np.median(pdist(sample)))
        elif sigma == "knn":
            found = found or nearest(features, neighbors)
            width = float(np.median(found.distances[:, -1]))
        else:
            raise UnknownNameError("sigma", sigma, ["median", "knn", "a positive number"])
        if width == 0.0:
            raise DataError(
                f"sigma={sigma!r} comes out as 0: more than half of the points coincide with "
                f"{'each other' if sigma == 'median' else f'their {neighbors} nearest neighbours'}. "
                "Remove duplicate points, use more neighbours, or give sigma as a number."
            )
        return width
    return positive(sigma, "sigma", "a positive number, 'median' or 'knn'")


def _centered(features: Any) -> Array:
    """Check features and subtract their mean: far from the origin, squared distances would lose their digits."""
    points = check_features(features)
    return np.asarray(points - points.mean(axis=0))
