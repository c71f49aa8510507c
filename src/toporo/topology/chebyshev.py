r"""Dyadic diffusion filters as Chebyshev series.

All dyadic powers of an operator with spectrum in [-1, 1] come out of **one** Chebyshev recurrence: the coefficients of
:math:`x^N` are binomial probabilities, so they are known in closed form, decay like a Gaussian of width
:math:`\sqrt N`, and the sum of those left out bounds the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from toporo.types import Array

#: Coefficients below this cannot change a float64 sum; a series is never continued beyond.
FINEST_TAIL = 1e-17


def dyadic_coefficients(scales: int) -> Array:
    r"""Compute Chebyshev coefficients of :math:`x^{2^k}`, k = 0 … scales, as rows, as far as float64 sees them.

    For N of the same parity as j, :math:`x^N = \sum_j 2^{1-N} \binom{N}{(N-j)/2} T_j(x)` (half of that for j = 0), that
    is, twice a binomial probability. The sum of the coefficients left out, at most :data:`FINEST_TAIL`, bounds the
    error on [-1, 1].

    >>> dyadic_coefficients(1)  # x = T_1 and x^2 = 1/2 + T_2 / 2
    array([[0. , 1. , 0. ],
           [0.5, 0. , 0.5]])
    """
    rows = []
    for power in 2 ** np.arange(scales + 1):
        order = np.arange(power + 1)
        values = 2.0 * binom.pmf((power - order) // 2, power, 0.5) * (order % 2 == power % 2)
        values[0] /= 2.0
        tails = np.cumsum(values[::-1])[::-1]
        rows.append(values[: int((tails > FINEST_TAIL).sum())])
    longest = max(map(len, rows))
    return np.array([np.pad(row, (0, longest - len(row))) for row in rows])


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
        """Bound of the weighted error of filter k at (k, j) if everything from column j on is dropped."""
        tails = np.cumsum(np.abs(self.table)[:, ::-1], axis=1)[:, ::-1]
        return np.asarray(np.pad(tails, ((0, 0), (0, 1))) * self.weights[:, None])

    def truncated(self, error: float) -> tuple[list[Array], float]:
        """Cut each filter's row so that together, weighted, they are off by at most ``error``; return by how much too.

        The allowance is shared equally. Where even the full rows are not that accurate, they are returned whole.
        """
        lengths = [max(1, int((tails > error / len(self.table)).sum())) for tails in self._tails]
        rows = [row[:length] for row, length in zip(self.table, lengths, strict=True)]
        missing = sum(float(tails[length]) for tails, length in zip(self._tails, lengths, strict=True))
        return rows, missing + 2.0 * FINEST_TAIL * float(self.weights.sum())  # the table leaves two powers' tails out


@cache
def _table(scales: int) -> Array:
    powers = dyadic_coefficients(scales)
    table = np.concatenate([np.diff(powers, axis=0), powers[-1:]])
    table.flags.writeable = False
    return table


@dataclass(frozen=True)
class Schedule:
    """Filters that step j of the recurrence adds to, and their coefficients of T_{j-2} and of T_j.

    T_{j-2} is still there when T_j replaces it, so two terms go in at a time, every fourth step and at the end. T_1
    goes in apart, and odd terms above do not occur (see :class:`DyadicFilters`).

    Attributes
    ----------
    order : the last step, at least 2.
    starts : step j's part of the others is starts[j] to starts[j + 1].
    use, before, after : filters, coefficients of T_{j-2}, coefficients of T_j.
    """

    order: int
    starts: npt.NDArray[np.int64]
    use: npt.NDArray[np.int64]
    before: Array
    after: Array

    @classmethod
    def of(cls, rows: Sequence[Array]) -> Schedule:
        """Make the schedule of filters with these coefficients."""
        lengths = np.array([len(row) for row in rows])
        order = max(2, int(lengths.max()) - 1)
        table = np.array([np.pad(row, (0, order + 1 - len(row))) for row in rows])
        use, before, after = [], [], []
        counts = np.zeros(order + 2, dtype=np.int64)
        for j in range(2, order + 1, 2):
            pair = j % 4 == 2  # else T_{j-2} went in two steps ago
            if pair or j + 2 > order:
                taken = np.flatnonzero(lengths > (j - 2 if pair else j))
                counts[j + 1] = len(taken)
                use.append(taken)
                before.append(table[taken, j - 2] * pair)
                after.append(table[taken, j])
        return cls(order, np.cumsum(counts), np.concatenate(use), np.concatenate(before), np.concatenate(after))
