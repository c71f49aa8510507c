r"""Diffusion Earth Mover's Distance between groups of points on a data graph.

From a symmetric kernel K over all points (Qiao & Peng 2023, Sec. 3.1; Tong et al. 2021):

.. math::
    Q = \mathrm{diag}(K 1),\quad M = Q^{-1} K Q^{-1},\quad D = \mathrm{diag}(M 1),\quad P = D^{-1} M,\quad
    \mu_e^{t} = P^{t}\, 1_{X_e} / n_e ,

.. math::
    W(e, e') = \sum_{k=0}^{K} \| T_k(e) - T_k(e') \|_1,\qquad
    T_k = 2^{-(K-k-1)\alpha} (\mu^{2^{k+1}} - \mu^{2^k})\ (k < K),\qquad T_K = \mu^{2^K} .

All dyadic powers come out of **one** Chebyshev recurrence on the symmetric operator
:math:`S = D^{-1/2} M D^{-1/2}`, whose spectrum lies in [-1, 1]: the Chebyshev coefficients of :math:`x^N` are binomial
probabilities, so they are known in closed form, decay like a Gaussian of width :math:`\sqrt N`, and their discarded
tail bounds the error.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.spatial.distance import cdist
from scipy.stats import binom
from threadpoolctl import threadpool_limits

from toporo.errors import DataError, GroupMismatchError, SettingError, UnknownNameError, listed, warn
from toporo.groups import GroupIds, Groups
from toporo.topology.affinity import Sigma, bandwidth, check_features, dense_affinity, knn_affinity

__all__ = ["DiffusionOperator", "GroupDistances", "diffusion_emd", "dyadic_coefficients", "dyadic_densities"]

Array = npt.NDArray[np.float64]
Kernel: TypeAlias = Any  # a dense float64 array or a scipy CSR array

#: Up to this many points ``kernel="auto"`` takes the dense kernel of the paper, beyond it the kNN kernel.
DENSE_LIMIT = 2000
#: The coarsest diffusion time is 2^scales; beyond this nothing is left to diffuse, only memory to fill.
MOST_SCALES = 20
#: Entries of a dense kernel below this fraction of the smallest row sum are dropped.
NEGLIGIBLE = 1e-25
#: A dense kernel with a smaller fraction of entries left is multiplied as a sparse one.
SPARSE_BELOW = 0.2
#: The smallest distance to expect; if it turns out smaller, the recurrence is run again with a finer tail.
LIKELY_SMALLEST = 0.05
#: Coefficients below this cannot change a float64 sum; the tail is never cut finer.
FINEST_TAIL = 1e-17


@dataclass(frozen=True)
class GroupDistances:
    """Distances between groups, and how they were computed.

    Attributes
    ----------
    groups : the groups, in the order of the matrix.
    matrix : (m, m), symmetric, zero diagonal.
    error : bound on the absolute truncation error of an entry.
    settings : what was used: kernel, sigma, neighbours, scales, alpha, Chebyshev order, …
    """

    groups: Groups
    matrix: Array
    error: float
    settings: dict[str, Any]

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The groups, in the order of the matrix."""
        return self.groups.names

    def between(self, a: Hashable, b: Hashable) -> float:
        """The distance between two groups, by name."""
        i, j = self.groups.encode([a, b])
        return float(self.matrix[i, j])


@dataclass(frozen=True)
class DiffusionOperator:
    """The symmetric diffusion operator S of a kernel and the density D that relates it to the walk P.

    ``P^t x = D^{-1/2} S^t D^{1/2} x``.
    """

    symmetric: Kernel
    density: Array

    @classmethod
    def from_kernel(cls, kernel: Any) -> DiffusionOperator:
        """Anisotropic normalisation (the density of the points divided out), then symmetrisation."""
        matrix = check_kernel(kernel)
        degree = np.asarray(matrix.sum(axis=1)).ravel()
        if (degree <= 0).any():
            raise DataError(
                f"{int((degree <= 0).sum())} point(s) have no affinity to any point, themselves included "
                f"(first: {int(np.argmax(degree <= 0))}). Use a larger sigma or more neighbours."
            )
        flattened = _scale(_without_negligible(matrix, degree), 1.0 / degree)
        density = np.asarray(flattened.sum(axis=1)).ravel()
        return cls(_scale(flattened, 1.0 / np.sqrt(density)), density)


def diffusion_emd(
    features: Any,
    groups: Any,
    *,
    affinity: Any = None,
    kernel: str = "auto",
    neighbors: int = 15,
    sigma: Sigma = "knn",
    scales: int = 10,
    alpha: float = 0.5,
    tol: float = 1e-6,
) -> GroupDistances:
    """Distances between all pairs of groups of points (the formula is at the head of this module).

    Parameters
    ----------
    features : (n, d) numbers, numpy or torch; may be None if ``affinity`` is given.
    groups : one group name a row, or :class:`~toporo.groups.GroupIds`.
    affinity : a ready symmetric, non-negative (n, n) kernel, dense or scipy-sparse.
    kernel : ``"dense"``, ``"knn"``, or ``"auto"`` (dense up to 2000 points).
    neighbors, sigma : of the kernel; see :mod:`toporo.topology.affinity`.
    scales : K, the number of dyadic scales; the coarsest diffusion time is 2^K.
    alpha : how strongly fine scales are damped, in (0, 1/2] for an equivalence with the geodesic EMD.
    tol : relative accuracy of the distances; the recurrence is lengthened until its bound meets it.

    Deterministic: the same input gives the same bytes, on one thread or several.
    """
    ids = groups if isinstance(groups, GroupIds) else Groups.of(groups)
    if len(ids.groups) < 2:
        raise DataError(f"only one group, {ids.groups.names[0]!r}: distances between groups need at least two.")
    if not (1 <= scales <= MOST_SCALES and int(scales) == scales):
        raise SettingError(
            f"scales is {scales!r}: expected a whole number from 1 to {MOST_SCALES} (the paper uses 10)."
        )
    if not (alpha > 0 and np.isfinite(alpha)):
        raise SettingError(f"alpha is {alpha!r}: expected a positive number (the paper uses 0.5).")
    if not 0 < tol < 1:
        raise SettingError(f"tol is {tol!r}: expected a relative accuracy between 0 and 1.")
    settings: dict[str, Any] = {"scales": int(scales), "alpha": float(alpha), "tol": float(tol)}
    with threadpool_limits(limits=1, user_api="blas"):  # several BLAS threads would change the last bits
        if affinity is None:
            if features is None:
                raise DataError("neither features nor affinity given: pass one of them.")
            points = check_features(features)
            _check_lengths(len(points), ids)
            affinity, described = _build_kernel(points, kernel, sigma, neighbors)
        else:
            described = {"kernel": "given"}
        operator = DiffusionOperator.from_kernel(affinity)
        _check_lengths(len(operator.density), ids)
        matrix, error, order = _refine(operator, group_indicators(ids), int(scales), alpha, tol)
    _warn_if_uncertified(ids.groups, matrix, error, tol)
    settings |= described | {"order": order, "points": len(operator.density)}
    return GroupDistances(ids.groups, matrix, error, settings)


def _refine(
    operator: DiffusionOperator, indicators: Array, scales: int, alpha: float, tol: float
) -> tuple[Array, float, int]:
    """Distances, a bound on their error and the products taken; the tail is cut finer until the bound meets ``tol``."""
    per_tail = _error_per_tail(operator, indicators, scales, alpha)
    tail = max(FINEST_TAIL, min(1e-4, tol * LIKELY_SMALLEST / per_tail))
    while True:
        densities, order = dyadic_densities(operator, indicators, scales=scales, tail=tail)
        matrix = distances_from_densities(densities, alpha)
        error = per_tail * tail
        if _certified(matrix, error, tol) or tail <= FINEST_TAIL:
            return matrix, error, order
        # Overlapping groups have small distances: what is relative to them needs a finer absolute tail.
        tail = max(FINEST_TAIL, min(tol * _smallest(matrix) / per_tail, tail / 10.0) / 2.0)


def _warn_if_uncertified(groups: Groups, matrix: Array, error: float, tol: float) -> None:
    if not _certified(matrix, error, tol):
        smallest = _smallest(matrix)
        i, j = np.argwhere((matrix == smallest) & ~np.eye(len(matrix), dtype=bool))[0]
        warn(
            f"groups {groups.names[i]!r} and {groups.names[j]!r} can hardly be told apart (distance {smallest:.1e}): "
            f"the relative accuracy tol={tol:g} is not certified for them.",
        )


def _certified(matrix: Array, error: float, tol: float) -> bool:
    """Whether the error is within ``tol`` of the smallest *true* distance, which may be off by that error itself."""
    return error <= tol * (_smallest(matrix) - error)


def _smallest(matrix: Array) -> float:
    return float(matrix[np.triu_indices(len(matrix), 1)].min())


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
        left_out = np.cumsum(values[::-1])[::-1]  # what is lost if everything from here on is dropped
        kept = int((left_out > tail).sum())
        row = np.zeros(int(order[kept - 1]) + 1)
        row[order[:kept]] = values[:kept]
        rows.append(row)
    coefficients = np.zeros((scales + 1, max(len(row) for row in rows)))
    for k, row in enumerate(rows):
        coefficients[k, : len(row)] = row
    return coefficients


def dyadic_densities(operator: DiffusionOperator, indicators: Array, *, scales: int, tail: float) -> tuple[Array, int]:
    r""":math:`\mu^{2^k} = P^{2^k} x` for k = 0 … scales, shape (scales + 1, n, m), and the products it took."""
    coefficients = dyadic_coefficients(scales, tail)
    root = np.sqrt(operator.density)[:, None]
    previous = root * indicators  # T_0(S) x
    current = np.asarray(operator.symmetric @ previous)  # T_1(S) x
    total = coefficients[:, 0, None, None] * previous + coefficients[:, 1, None, None] * current
    for j in range(2, coefficients.shape[1]):
        previous, current = current, 2.0 * np.asarray(operator.symmetric @ current) - previous
        for k in np.flatnonzero(coefficients[:, j]):
            total[k] += coefficients[k, j] * current
    return total / root, coefficients.shape[1] - 1


def distances_from_densities(densities: Array, alpha: float) -> Array:
    """The weighted l1 distances between the columns of the multiscale densities."""
    scales = len(densities) - 1
    matrix = np.zeros((densities.shape[2],) * 2)
    for k in range(scales):
        weight = 2.0 ** (-(scales - k - 1) * alpha)
        difference = (densities[k + 1] - densities[k]).T
        matrix += weight * cdist(difference, difference, "cityblock")
    coarsest = densities[scales].T
    return np.asarray(matrix + cdist(coarsest, coarsest, "cityblock"))


def group_indicators(ids: GroupIds) -> Array:
    """Columns ``1_{X_e} / n_e``, one a group."""
    codes = np.asarray(ids.codes)
    if codes.dtype.kind not in "iu" or not 0 <= codes.min() <= codes.max() < len(ids.groups):
        raise GroupMismatchError(
            f"group codes are {codes.dtype} from {codes.min()} to {codes.max()}: expected integers from 0 to "
            f"{len(ids.groups) - 1}."
        )
    counts = np.bincount(codes, minlength=len(ids.groups))
    if (counts == 0).any():
        empty = [name for name, count in zip(ids.groups, counts, strict=True) if count == 0]
        raise DataError(f"group(s) without a single point: {listed(empty)}. Leave them out or give them points.")
    indicators = np.zeros((len(codes), len(ids.groups)))
    indicators[np.arange(len(codes)), codes] = 1.0 / counts[codes]
    return indicators


def check_kernel(kernel: Any) -> Kernel:
    """A kernel as a dense array or CSR matrix: square, finite, symmetric, non-negative."""
    matrix: Any = sparse.csr_array(kernel) if sparse.issparse(kernel) else np.asarray(kernel)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise DataError(f"an affinity is a square matrix over all points; found shape {matrix.shape}.")
    matrix = matrix.astype(np.float64)
    values = matrix.data if sparse.issparse(matrix) else matrix
    if not np.isfinite(values).all():
        raise DataError("the affinity holds NaN or infinite entries.")
    if (values < 0).any():
        raise DataError(f"the affinity holds negative entries (smallest: {values.min():g}); affinities are ≥ 0.")
    asymmetry = float(abs(matrix - matrix.T).max())
    if asymmetry > 1e-10 * float(abs(matrix).max()):
        raise DataError(
            f"the affinity is not symmetric (largest difference: {asymmetry:g}); symmetrise first, e.g. (K + K.T) / 2."
        )
    return matrix


def _build_kernel(points: Array, kernel: str, sigma: Sigma, neighbors: int) -> tuple[Kernel, dict[str, Any]]:
    if kernel == "auto":
        kernel = "dense" if len(points) <= DENSE_LIMIT else "knn"
    if kernel not in ("dense", "knn"):
        raise UnknownNameError("kernel", kernel, ["auto", "dense", "knn"])
    width = bandwidth(points, sigma, neighbors=neighbors)
    build = dense_affinity if kernel == "dense" else knn_affinity
    described = {"kernel": kernel, "sigma": sigma if isinstance(sigma, str) else width, "sigma_value": width}
    if kernel == "knn" or sigma == "knn":
        described["neighbors"] = int(neighbors)
    return build(points, width, neighbors=neighbors), described


def _check_lengths(points: int, ids: GroupIds) -> None:
    if points != len(ids):
        raise DataError(f"{points} points but {len(ids)} group labels: give one label a point, in the same order.")


def _scale(matrix: Kernel, factors: Array) -> Kernel:
    """``diag(f) A diag(f)`` for dense and sparse A."""
    if sparse.issparse(matrix):
        diagonal = sparse.diags_array(factors)
        return sparse.csr_array(diagonal @ matrix @ diagonal)
    return np.asarray(matrix * factors[:, None] * factors[None, :])


def _without_negligible(matrix: Kernel, degree: Array) -> Kernel:
    """Drop what cannot change a row by a rounding error; sparse if little is left.

    A Gaussian kernel between far points underflows into denormal numbers, which cost many times an ordinary product.
    """
    if sparse.issparse(matrix):
        return matrix
    kept = matrix >= NEGLIGIBLE * degree.min()
    thinned = np.where(kept, matrix, 0.0)
    return sparse.csr_array(thinned) if kept.mean() < SPARSE_BELOW else thinned


def _error_per_tail(operator: DiffusionOperator, indicators: Array, scales: int, alpha: float) -> float:
    r"""Bound on the error of a distance if each power is off by at most 1 in operator norm.

    In the symmetric frame :math:`\|\delta\|_2 \le tail\,\|D^{1/2}x\|_2`, and back in the walk's frame
    :math:`\|D^{-1/2}\delta\|_1 \le \|D^{-1/2}1\|_2\,\|\delta\|_2`. Two groups a distance, two powers a difference.
    """
    start = np.sqrt((operator.density[:, None] * indicators**2).sum(axis=0)).max()
    back = np.sqrt((1.0 / operator.density).sum())
    terms = 2.0 * sum(2.0 ** (-(scales - k - 1) * alpha) for k in range(scales)) + 1.0
    return float(2.0 * terms * start * back)
