"""Features to a data graph: Gaussian kernels, dense or between nearest neighbours only."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist

from toporo.errors import DataError, SettingError, UnknownNameError

__all__ = ["Sigma", "bandwidth", "check_features", "dense_affinity", "knn_affinity", "nearest"]

Sigma = float | Literal["median", "knn"]
Array = npt.NDArray[np.float64]

#: Beyond this many points the median distance is taken over a subsample of this size, the same one at every call.
MEDIAN_SAMPLE = 2000


def check_features(features: Any, *, what: str = "features") -> Array:
    """Features as a finite (n, d) float array, or a :class:`DataError` that says where they are not."""
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
    r"""All-pairs kernel :math:`K_{ij} = \exp(-\|f_i - f_j\|^2 / \sigma^2)` (Qiao & Peng 2023, Sec. 3.1)."""
    points = _centered(features)
    width = bandwidth(points, sigma, neighbors=neighbors)
    squares = np.einsum("ij,ij->i", points, points)
    distances = squares[:, None] + squares[None, :] - 2.0 * points @ points.T
    np.maximum(distances, 0.0, out=distances)
    distances += distances.T  # products of floats need not be symmetric to the last bit; the kernel must be
    distances *= -0.5 / width**2
    np.fill_diagonal(distances, 0.0)
    return np.asarray(np.exp(distances, out=distances))


def knn_affinity(features: Any, sigma: Sigma = "knn", *, neighbors: int = 15) -> sparse.csr_array:
    r"""The same kernel between nearest neighbours only, symmetrised by union; the diagonal is 1.

    Entry (i, j) is :math:`\exp(-\|f_i - f_j\|^2 / \sigma^2)` if j is among i's ``neighbors`` nearest points or i
    among j's, else 0.
    """
    points = _centered(features)
    distances, indices = nearest(points, neighbors)
    width = bandwidth(points, sigma, neighbors=neighbors, distances=distances)
    n, k = indices.shape
    values = np.exp(-((distances / width) ** 2))
    directed = sparse.csr_array((values.ravel(), indices.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    union = directed.maximum(directed.T).tolil()
    union.setdiag(1.0)
    kernel = sparse.csr_array(union)
    kernel.sort_indices()
    return kernel


def bandwidth(features: Array, sigma: Sigma, *, neighbors: int = 15, distances: Array | None = None) -> float:
    """The kernel width: a positive number as given, ``"median"`` or ``"knn"``.

    ``"median"`` is the median distance between two points; ``"knn"`` the median distance from a point to its
    ``neighbors``-th nearest one, which follows the local spacing of the data and not its extent.
    """
    if isinstance(sigma, str):
        if sigma == "median":
            sample = features
            if len(features) > MEDIAN_SAMPLE:
                sample = features[np.random.default_rng(0).choice(len(features), MEDIAN_SAMPLE, replace=False)]
            width = float(np.median(pdist(sample)))
        elif sigma == "knn":
            far = nearest(features, neighbors)[0] if distances is None else distances
            width = float(np.median(far[:, -1]))
        else:
            raise UnknownNameError("sigma", sigma, ["median", "knn", "a positive number"])
        if width == 0.0:
            raise DataError(
                f"sigma={sigma!r} comes out as 0: more than half of the points coincide with "
                f"{'each other' if sigma == 'median' else f'their {neighbors} nearest neighbours'}. "
                "Remove duplicate points, use more neighbours, or give sigma as a number."
            )
        return width
    try:
        width = float(sigma)
    except (TypeError, ValueError):
        width = float("nan")
    if not (width > 0 and np.isfinite(width)):
        raise SettingError(f"sigma is {sigma!r}: expected a positive number, 'median' or 'knn'.")
    return width


def _centered(features: Any) -> Array:
    """Checked features moved to their mean: far from the origin, squared distances would lose their digits."""
    points = check_features(features)
    return np.asarray(points - points.mean(axis=0))


def nearest(features: Array, neighbors: int) -> tuple[Array, npt.NDArray[np.intp]]:
    """Distances and indices of every point's ``neighbors`` nearest other points, nearest first."""
    n, dimensions = features.shape
    if int(neighbors) != neighbors or neighbors < 1:
        raise SettingError(f"neighbors is {neighbors!r}: expected a whole number of at least 1.")
    if n <= neighbors:
        raise DataError(
            f"{n} points cannot have {neighbors} neighbours each: give more points or neighbors={max(1, n - 1)}."
        )
    if dimensions <= 8:
        distances, indices = cKDTree(features).query(features, k=neighbors + 1)
    else:
        from sklearn.neighbors import NearestNeighbors

        distances, indices = NearestNeighbors(n_neighbors=neighbors + 1).fit(features).kneighbors(features)
    # A point is its own nearest neighbour, except among duplicates, where it may come later or not at all.
    own = indices == np.arange(n)[:, None]
    own[~own.any(axis=1), -1] = True
    keep = ~own
    return distances[keep].reshape(n, neighbors), indices[keep].reshape(n, neighbors)
