r"""From features to a kernel, its diffusion operator, and the operator's dyadic powers.

Kernels are Gaussian, dense or between nearest neighbours only.

From a symmetric kernel K over distinct points, the u-th standing for :math:`w_u` coincident ones:

.. math::
    q = K w,\quad M = \mathrm{diag}(q)^{-1} K\, \mathrm{diag}(q)^{-1},\quad D = \mathrm{diag}(M w),\quad
    P = D^{-1} M\, \mathrm{diag}(w) .

With w = 1 this is the anisotropic walk of Qiao & Peng (2023, Sec. 3.1). Merging coincident points changes nothing: they
have the same neighbours, so after one step of the walk they carry the same value.

All dyadic powers of an operator with spectrum in [-1, 1] come out of **one** Chebyshev recurrence: the coefficients of
:math:`x^N` are binomial probabilities, so they are known in closed form, decay like a Gaussian of width
:math:`\sqrt N`, and the sum of those left out bounds the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from scipy.spatial.distance import cdist, pdist
from scipy.stats import binom

from toporo.checks import as_number, whole
from toporo.errors import DataError, GroupMismatchError, SettingError, UnknownNameError, listed
from toporo.groups import GroupIds
from toporo.topology.neighbors import Neighbors, locality_order, nearest
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
    known = nearest(points, neighbors)
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
            known = known or nearest(features, neighbors)
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


Order: TypeAlias = npt.NDArray[np.intp]
Kernel: TypeAlias = Any  # a dense float64 array or a scipy CSR array

#: Entries of a dense kernel below this fraction of the smallest row sum are dropped.
NEGLIGIBLE = 1e-25
#: A dense kernel with a smaller fraction of entries left is multiplied as a sparse one.
SPARSE_BELOW = 0.2
#: A given sparse kernel over more points is reordered so that neighbours lie near each other in memory.
REORDER_ABOVE = 5000


@dataclass(frozen=True)
class DiffusionOperator:
    r"""The symmetric form S of the walk P: :math:`P^t x = (wD)^{-1/2} S^t (wD)^{1/2} x`.

    Attributes
    ----------
    symmetric : :math:`S = (w/D)^{1/2} M (w/D)^{1/2}`, dense or CSR; its spectrum lies in [-1, 1].
    density : D.
    weights : w, how many coincident points each point stands for.
    """

    symmetric: Kernel
    density: Array
    weights: Array

    @classmethod
    def from_kernel(cls, kernel: Any, weights: Array | None = None, *, checked: bool = False) -> DiffusionOperator:
        """Anisotropic normalisation (the density of the points divided out), then symmetrisation.

        A ``checked`` kernel is known to be symmetric and is overwritten.
        """
        matrix = kernel if checked else check_kernel(kernel)
        w = np.ones(matrix.shape[0]) if weights is None else weights
        values = matrix.data if sparse.issparse(matrix) else matrix
        largest = float(values.max(initial=0.0))
        if largest > 0.0 and not 1e-100 < largest < 1e100:
            values /= largest  # the walk does not depend on the unit
        degree = np.asarray(matrix @ w).ravel()
        if (degree <= 0).any():
            raise DataError(
                f"{int((degree <= 0).sum())} point(s) have no affinity to any point, themselves included "
                f"(first: {int(np.argmax(degree <= 0))}). Use a larger sigma or more neighbours."
            )
        matrix = _scale(_without_negligible(matrix, degree), 1.0 / degree)
        density = np.asarray(matrix @ w).ravel()
        return cls(_scale(matrix, np.sqrt(w / density)), density, w)

    def __len__(self) -> int:
        return len(self.density)

    @property
    def enter(self) -> Array:
        """Factors from the walk's frame into that of S."""
        return np.asarray(np.sqrt(self.weights * self.density))

    @property
    def leave(self) -> Array:
        """Factors back, times the number of points that each point stands for, as l1 norms over all points need."""
        return np.asarray(np.sqrt(self.weights / self.density))

    @property
    def is_sparse(self) -> bool:
        """Whether S is a CSR matrix."""
        return bool(sparse.issparse(self.symmetric))

    @property
    def nonzeros(self) -> int:
        """Stored entries of S."""
        return int(self.symmetric.nnz) if self.is_sparse else int(self.symmetric.size)

    def pieces(self) -> npt.NDArray[np.int32]:
        """For every point, the number of the connected piece it lies in; the largest piece is 0."""
        if not self.is_sparse and (self.symmetric > 0).all():
            return np.zeros(len(self), dtype=np.int32)
        _, labels = connected_components(sparse.csr_array(self.symmetric), directed=False)
        by_size = np.argsort(-np.bincount(labels), kind="stable")
        rank = np.empty_like(by_size)
        rank[by_size] = np.arange(len(by_size))
        return np.asarray(rank[labels], dtype=np.int32)


def reordered(kernel: Kernel, points: Array | None = None) -> tuple[Kernel, Order | None]:
    """A large sparse kernel with neighbours near each other in memory, and the order that does it; others as given.

    The order is the points' k-d order if they are known, else reverse Cuthill–McKee's, which sees the kernel alone.
    """
    if not sparse.issparse(kernel) or kernel.shape[0] <= REORDER_ABOVE:
        return kernel, None
    if points is not None:
        order = locality_order(points)
    else:
        order = np.asarray(reverse_cuthill_mckee(sparse.csr_matrix(kernel), symmetric_mode=True), dtype=np.intp)
    return permuted(kernel, order), order


def permuted(matrix: sparse.csr_array, order: Order) -> sparse.csr_array:
    """Rows and columns of a CSR matrix in another order; indices sorted."""
    place = np.empty(len(order), dtype=matrix.indices.dtype)
    place[order] = np.arange(len(order))
    rows = matrix[order]
    rows.indices = place[rows.indices]
    rows.has_sorted_indices = False
    rows.sort_indices()
    return rows


def check_kernel(kernel: Any) -> Kernel:
    """A kernel as a dense array or CSR matrix of our own: square, finite, symmetric, non-negative."""
    try:
        matrix: Any = sparse.csr_array(kernel) if sparse.issparse(kernel) else np.asarray(kernel)
    except ValueError:  # rows of different lengths
        raise DataError("an affinity is a square matrix over all points; found rows of different lengths.") from None
    if matrix.dtype.kind == "c":
        raise DataError(f"the affinity must hold numbers; found {matrix.dtype}.")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise DataError(f"an affinity is a square matrix over all points; found shape {matrix.shape}.")
    try:
        matrix = matrix.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(f"the affinity must hold numbers; found {matrix.dtype}.") from None
    if sparse.issparse(matrix):
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    values = matrix.data if sparse.issparse(matrix) else matrix
    if not np.isfinite(values).all():
        raise DataError("the affinity holds NaN or infinite entries.")
    if (values < 0).any():
        raise DataError(f"the affinity holds negative entries (smallest: {values.min():g}); affinities are ≥ 0.")
    alone = np.diff(matrix.indptr) == 0 if sparse.issparse(matrix) else ~(matrix > 0).any(axis=1)
    if alone.any():
        raise DataError(
            f"{int(alone.sum())} point(s) have no affinity to any point, themselves included (first: "
            f"{int(np.argmax(alone))}). Leave them out, or give each an affinity to itself."
        )
    difference = abs(matrix - matrix.T)
    asymmetry = float(difference.max())
    if asymmetry > 0 and float((difference - 1e-10 * _larger(matrix)).max()) > 0:
        raise DataError(
            f"the affinity is not symmetric (largest difference: {asymmetry:g}); symmetrise first, e.g. (K + K.T) / 2."
        )
    return matrix


def _larger(matrix: Kernel) -> Kernel:
    """Entrywise, the larger of a matrix and its transpose."""
    return matrix.maximum(matrix.T) if sparse.issparse(matrix) else np.maximum(matrix, matrix.T)


def _scale(matrix: Kernel, factors: Array) -> Kernel:
    """``diag(f) A diag(f)`` for dense and sparse A, in place."""
    if sparse.issparse(matrix):
        matrix.data *= factors[matrix.indices]
        matrix.data *= np.repeat(factors, np.diff(matrix.indptr))
    else:
        matrix *= factors[:, None]
        matrix *= factors[None, :]
    return matrix


def _without_negligible(matrix: Kernel, degree: Array) -> Kernel:
    """Drop what cannot change a row by a rounding error; sparse if little is left.

    A Gaussian kernel between far points underflows into denormal numbers, which cost many times an ordinary product.
    """
    if sparse.issparse(matrix):
        return matrix
    kept = matrix >= NEGLIGIBLE * degree.min()
    matrix[~kept] = 0.0
    return sparse.csr_array(matrix) if kept.mean() < SPARSE_BELOW else matrix


#: The coarsest diffusion time is 2^scales; beyond this nothing is left to diffuse, only memory to fill.
MOST_SCALES = 20
#: The smallest distance to expect; the first series is cut for it.
LIKELY_SMALLEST = 0.05

#: Coefficients below this cannot change a float64 sum; a series is never continued beyond.
FINEST_TAIL = 1e-17


def check_scales(scales: Any, alpha: Any, tol: Any) -> tuple[int, float, float]:
    """The number of scales, the damping of fine ones and the accuracy, as numbers within their bounds."""
    count = whole(scales, "scales", 1, MOST_SCALES, " (the paper uses 10)")
    damping, accuracy = as_number(alpha), as_number(tol)
    if not (damping > 0 and np.isfinite(damping)):
        raise SettingError(f"alpha is {alpha!r}: expected a positive number (the paper uses 0.5).")
    if not 0 < accuracy < 1:
        raise SettingError(f"tol is {tol!r}: expected a relative accuracy between 0 and 1.")
    return count, damping, accuracy


def dyadic_coefficients(scales: int, tail: float) -> Array:
    r"""Chebyshev coefficients of :math:`x^{2^k}`, k = 0 … scales, as rows; truncated where every row's tail is small.

    For N of the same parity as j, :math:`x^N = \sum_j 2^{1-N} \binom{N}{(N-j)/2} T_j(x)` (half of that for j = 0), that
    is, twice a binomial probability. The sum of the coefficients left out bounds the error on [-1, 1].

    >>> dyadic_coefficients(1, 1e-9)  # x = T_1 and x^2 = 1/2 + T_2 / 2
    array([[0. , 1. , 0. ],
           [0.5, 0. , 0.5]])
    """
    rows = []
    for k in range(scales + 1):
        power = 2**k
        order = np.arange(power % 2, power + 1, 2)
        values = 2.0 * binom.pmf((power - order) // 2, power, 0.5)
        if order[0] == 0:
            values[0] /= 2.0
        kept = int((_left_out(values) > tail).sum())
        row = np.zeros(int(order[kept - 1]) + 1)
        row[order[:kept]] = values[:kept]
        rows.append(row)
    coefficients = np.zeros((scales + 1, max(len(row) for row in rows)))
    for k, row in enumerate(rows):
        coefficients[k, : len(row)] = row
    return coefficients


@dataclass(frozen=True)
class DyadicFilters:
    r"""The filters of diffusion EMD, :math:`x^{2^{k+1}} - x^{2^k}` (k < K) and :math:`x^{2^K}`, with their weights.

    A row of :attr:`table` is one filter's Chebyshev coefficients; columns of odd order above 1 are zero, since every
    power but the first is even.
    """

    scales: int
    alpha: float

    @property
    def table(self) -> Array:
        """Coefficients as far as float64 sees them, (scales + 1, columns)."""
        return _table(self.scales)

    @cached_property
    def weights(self) -> Array:
        r""":math:`2^{-(K-k-1)\alpha}` for the differences, 1 for the coarsest."""
        finer = 2.0 ** (-(self.scales - 1 - np.arange(self.scales)) * self.alpha)
        return np.append(finer, 1.0)

    @cached_property
    def _tails(self) -> Array:
        """Entry (k, j): what filter k can be off by, times its weight, if everything from column j on is dropped."""
        tails = np.cumsum(np.abs(self.table)[:, ::-1], axis=1)[:, ::-1]
        return np.asarray(np.pad(tails, ((0, 0), (0, 1))) * self.weights[:, None])

    def truncated(self, error: float) -> tuple[list[Array], float]:
        """Each filter's row cut so that together, weighted, they are off by at most ``error``; and by how much.

        The allowance is shared equally. Where even the full rows are not that accurate, they are returned whole.
        """
        lengths = [max(1, int((tails > error / len(self.table)).sum())) for tails in self._tails]
        rows = [row[:length] for row, length in zip(self.table, lengths, strict=True)]
        missing = sum(float(tails[length]) for tails, length in zip(self._tails, lengths, strict=True))
        return rows, missing + 2.0 * FINEST_TAIL * float(self.weights.sum())  # the table leaves two powers' tails out


@cache
def _table(scales: int) -> Array:
    powers = dyadic_coefficients(scales, FINEST_TAIL)
    table = np.concatenate([np.diff(powers, axis=0), powers[-1:]])
    table.flags.writeable = False
    return table


def _left_out(values: Array) -> Array:
    """What is lost at each place if everything from there on is dropped."""
    return np.asarray(np.cumsum(values[::-1])[::-1])
