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
from scipy.sparse.csgraph import connected_components

from toporo.types import Array

Kernel: TypeAlias = Any  # a dense float64 array or a scipy CSR array

#: Entries of a dense kernel below this fraction of the smallest row sum are dropped.
NEGLIGIBLE = 1e-25


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
    def from_kernel(cls, kernel: Kernel, weights: Array) -> DiffusionOperator:
        """Anisotropic normalisation (the density of the points divided out), then symmetrisation.

        The kernel, which is symmetric and non-negative, is overwritten.
        """
        degree = np.asarray(kernel @ weights).ravel()
        if not sparse.issparse(kernel):
            # Between far points it underflows into denormal numbers, which cost many times an ordinary product.
            kernel[kernel < NEGLIGIBLE * degree.min()] = 0.0
        matrix = _scale(kernel, 1.0 / degree)
        density = np.asarray(matrix @ weights).ravel()
        return cls(_scale(matrix, np.sqrt(weights / density)), density, weights)

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

    @property
    def size(self) -> int:
        """Bytes that S, its factors and the groups on it take, about."""
        return self.nonzeros * (16 if self.is_sparse else 8) + 100 * len(self)

    @cached_property
    def pieces(self) -> npt.NDArray[np.int32]:
        """For every point the number of the connected piece that it lies in."""
        if not self.is_sparse and (self.symmetric > 0).all():
            return np.zeros(len(self), dtype=np.int32)
        return np.asarray(connected_components(sparse.csr_array(self.symmetric), directed=False)[1])


def _scale(matrix: Kernel, factors: Array) -> Kernel:
    """Compute ``diag(f) A diag(f)`` for dense and sparse A, in place."""
    if sparse.issparse(matrix):
        matrix.data *= factors[matrix.indices]
        matrix.data *= np.repeat(factors, np.diff(matrix.indptr))
    else:
        matrix *= factors[:, None]
        matrix *= factors[None, :]
    return matrix
