r"""Dyadic powers as Chebyshev series, and where the series may stop.

All dyadic powers of an operator with spectrum in [-1, 1] come out of **one** Chebyshev recurrence: the coefficients of
:math:`x^N` are binomial probabilities, so they are known in closed form, decay like a Gaussian of width
:math:`\sqrt N`, and the sum of those left out bounds the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy.stats import binom

from toporo.checks import as_number, whole
from toporo.errors import SettingError
from toporo.types import Array

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
