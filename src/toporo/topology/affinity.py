"""Features to a data graph: Gaussian kernels, dense or between nearest neighbours only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.spatial.distance import cdist, pdist

from toporo.errors import DataError, GroupMismatchError, SettingError, UnknownNameError, listed
from toporo.groups import GroupIds
from toporo.topology.neighbors import Neighbors, nearest
from toporo.types import Array

Sigma = float | Literal["median", "knn"]

#: Beyond this many points the median distance is taken over a subsample of this size, the same one at every call.
MEDIAN_SAMPLE = 2000
#: Up to here differences of coordinates, which lose no digits, cost no more than products.
FEW_DIMENSIONS = 16


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


def check_codes(points: int, ids: GroupIds) -> npt.NDArray[Any]:
    """One code per point, at least two groups, every group with a point."""
    if len(ids.groups) < 2:
        raise DataError(f"only one group, {ids.groups.names[0]!r}: distances between groups need at least two.")
    if points != len(ids):
        raise DataError(f"{points} points but {len(ids)} group labels: give one label per point, in the same order.")
    codes = np.asarray(ids.codes.detach().cpu() if hasattr(ids.codes, "detach") else ids.codes)
    if codes.shape != (points,) or codes.dtype.kind not in "iu":
        raise GroupMismatchError(
            f"group codes are {codes.dtype} of shape {codes.shape}: expected one integer per point."
        )
    if not 0 <= codes.min() <= codes.max() < len(ids.groups):
        raise GroupMismatchError(
            f"group codes are {codes.dtype} from {codes.min()} to {codes.max()}: expected integers from 0 to "
            f"{len(ids.groups) - 1}."
        )
    counts = np.bincount(codes, minlength=len(ids.groups))
    if (counts == 0).any():
        empty = [name for name, count in zip(ids.groups, counts, strict=True) if count == 0]
        raise DataError(f"group(s) without a single point: {listed(empty)}. Leave them out or give them points.")
    return codes


@dataclass(frozen=True)
class DistinctPoints:
    """Points with coincident ones merged, in an order that depends on the points alone and not on how they came.

    Attributes
    ----------
    points : (u, d), sorted by their first coordinate, then the second, …
    place : for each row given, its point.
    counts : how many rows each point stands for.
    """

    points: Array
    place: npt.NDArray[np.intp]
    counts: Array

    @classmethod
    def of(cls, rows: Array) -> DistinctPoints:
        """Sort and merge rows."""
        order = np.argsort(rows[:, 0], kind="stable")
        first = rows[order, 0]
        tied = np.zeros(len(rows), dtype=bool)
        tied[1:] = first[1:] == first[:-1]
        tied[:-1] |= tied[1:]
        if tied.any():  # the other coordinates decide
            among = order[tied]
            order[tied] = among[np.lexsort(rows[among].T[::-1])]
        points = rows[order]
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (points[1:] != points[:-1]).any(axis=1)
        rank = np.cumsum(new) - 1
        place = np.empty(len(rows), dtype=np.intp)
        place[order] = rank
        return cls(points[new], place, np.bincount(rank).astype(np.float64))

    def reordered(self, order: npt.NDArray[np.intp]) -> DistinctPoints:
        """The same points in another order."""
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return DistinctPoints(self.points[order], rank[self.place], self.counts[order])


def dense_affinity(features: Any, sigma: Sigma = "knn", *, neighbors: int = 15) -> Array:
    r"""All-pairs kernel :math:`K_{ij} = \exp(-\|f_i - f_j\|^2 / \sigma^2)` (Qiao & Peng 2023, Sec. 3.1)."""
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
    r"""The same kernel between nearest neighbours only, symmetrised by union; the diagonal is 1.

    Entry (i, j) is :math:`\exp(-\|f_i - f_j\|^2 / \sigma^2)` if j is among i's ``neighbors`` nearest points or i
    among j's, else 0.
    """
    points = _centered(features)
    known = nearest(points, neighbors, exact=True)
    return knn_kernel(known, bandwidth(points, sigma, neighbors=neighbors, known=known))


def knn_kernel(known: Neighbors, width: float) -> sparse.csr_array:
    """The kernel of :func:`knn_affinity` from neighbours that are known."""
    n, k = known.indices.shape
    values = known.distances / width
    np.square(values, out=values)
    np.exp(-values, out=values)
    starts = np.arange(0, n * k + 1, k, dtype=np.int32 if n * k < 2**31 else np.int64)
    directed = sparse.csr_array((values.ravel(), known.indices.ravel(), starts), shape=(n, n))
    kernel = directed.maximum(directed.T.tocsr())
    del directed, values
    kernel = sparse.csr_array(kernel + sparse.eye_array(n, format="csr"))  # a point is not its own neighbour
    kernel.sort_indices()
    return kernel


def bandwidth(features: Array, sigma: Sigma, *, neighbors: int = 15, known: Neighbors | None = None) -> float:
    """The kernel width: a positive number as given, ``"median"`` or ``"knn"``.

    ``"median"`` is the median distance between two points; ``"knn"`` the median distance from a point to its
    ``neighbors``-th nearest one, which follows the local spacing of the data and not its extent. Neighbours that are
    ``known`` are not looked for again.
    """
    if isinstance(sigma, str):
        if sigma == "median":
            sample = features
            if len(features) > MEDIAN_SAMPLE:
                sample = features[np.random.default_rng(0).choice(len(features), MEDIAN_SAMPLE, replace=False)]
            width = float(np.median(pdist(sample)))
        elif sigma == "knn":
            known = known or nearest(features, neighbors, exact=True)
            width = float(np.median(known.distances[:, -1]))
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
