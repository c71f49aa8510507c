r"""The diffusion operator of a kernel.

From a symmetric kernel K over distinct points, the u-th standing for :math:`w_u` coincident ones:

.. math::
    q = K w,\quad M = \mathrm{diag}(q)^{-1} K\, \mathrm{diag}(q)^{-1},\quad D = \mathrm{diag}(M w),\quad
    P = D^{-1} M\, \mathrm{diag}(w) .

With w = 1 this is the anisotropic walk of Qiao & Peng (2023, Sec. 3.1). Merging coincident points changes nothing: they
have the same neighbours, so after one step of the walk they carry the same value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from toporo.errors import DataError
from toporo.topology.neighbors import locality_order
from toporo.types import Array

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
        """True if S is a CSR matrix."""
        return bool(sparse.issparse(self.symmetric))

    @property
    def nonzeros(self) -> int:
        """Stored entries of S."""
        return int(self.symmetric.nnz) if self.is_sparse else int(self.symmetric.size)

    @cached_property
    def pieces(self) -> npt.NDArray[np.int32]:
        """For every point the number of the connected piece it lies in; the largest piece is 0."""
        if not self.is_sparse and (self.symmetric > 0).all():
            return np.zeros(len(self), dtype=np.int32)
        _, labels = connected_components(sparse.csr_array(self.symmetric), directed=False)
        by_size = np.argsort(-np.bincount(labels), kind="stable")
        rank = np.empty_like(by_size)
        rank[by_size] = np.arange(len(by_size))
        return np.asarray(rank[labels], dtype=np.int32)


def reordered(kernel: Kernel, points: Array | None = None) -> tuple[Kernel, Order | None]:
    """Bring neighbours near each other in memory in a large sparse kernel; return it and the order, or None.

    The order is the points' k-d order if they are given, else reverse Cuthill–McKee's, which sees the kernel alone.
    """
    if not sparse.issparse(kernel) or kernel.shape[0] <= REORDER_ABOVE:
        return kernel, None
    if points is not None:
        order = locality_order(points)
    else:
        order = np.asarray(reverse_cuthill_mckee(sparse.csr_matrix(kernel), symmetric_mode=True), dtype=np.intp)
    rows = kernel[order]
    rows.indices = np.argsort(order).astype(rows.indices.dtype)[rows.indices]
    rows.has_sorted_indices = False
    rows.sort_indices()
    return rows, order


def check_kernel(kernel: Any) -> Kernel:
    """Return a copy of a kernel as a dense array or CSR matrix: square, finite, symmetric, non-negative."""
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
    difference = abs(matrix - matrix.T)
    if float((difference - 1e-10 * matrix - 1e-10 * matrix.T).max()) > 0:
        raise DataError(
            f"the affinity is not symmetric (largest difference: {float(difference.max()):g}); symmetrise first, e.g. "
            "(K + K.T) / 2."
        )
    lonely = np.flatnonzero(np.asarray(matrix.sum(axis=1)).ravel() <= 0)
    if len(lonely):
        raise DataError(
            f"{len(lonely)} point(s) have no affinity to any point, themselves included (first: {lonely[0]}). Leave "
            "them out, or give each an affinity to itself."
        )
    return matrix


def _scale(matrix: Kernel, factors: Array) -> Kernel:
    """Compute ``diag(f) A diag(f)`` for dense and sparse A, in place."""
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
