"""Dyadic filters as Chebyshev series: the polynomials they stand for, and an error that is what it is said to be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toporo.topology.chebyshev import FINEST_TAIL, DyadicFilters

quick = settings(deadline=None, max_examples=60)

#: From -1 to 1, denser at the ends, where the powers change fast.
GRID = np.cos(np.linspace(0, np.pi, 801))


def powers(scales: int) -> np.ndarray:
    """x^(2^k) on the grid, k = 0 … scales, as rows."""
    return np.array([GRID ** (2**k) for k in range(scales + 1)])


def filters(scales: int) -> np.ndarray:
    """x^(2^(k+1)) - x^(2^k), and the coarsest power, on the grid."""
    return np.concatenate([np.diff(powers(scales), axis=0), powers(scales)[-1:]])


def series(coefficients: np.ndarray) -> np.ndarray:
    """A sum of T_j(x) = cos(j arccos x) on the grid."""
    return np.asarray(coefficients @ np.cos(np.outer(np.arange(np.shape(coefficients)[-1]), np.arccos(GRID))))


# ---------------------------------------------------------------------- filters


@pytest.mark.parametrize("scales", [1, 2, 3, 6, 10, 14])
def test_a_row_of_the_table_is_a_filter(scales: int) -> None:
    table = DyadicFilters(scales, 0.5).table
    assert len(table) == scales + 1
    np.testing.assert_allclose(series(table), filters(scales), rtol=0, atol=1e-13)


# ---------------------------------------------------------------------- truncation


@quick
@given(st.integers(1, 12), st.floats(0.05, 3.0), st.floats(-14, 0.5).map(lambda power: 10.0**power))
def test_the_true_error_is_within_what_is_reported_and_that_within_what_was_asked(
    scales: int, alpha: float, error: float
) -> None:
    chosen = DyadicFilters(scales, alpha)
    rows, reported = chosen.truncated(error)
    assert len(rows) == scales + 1
    off = [np.abs(series(row) - full).max() for row, full in zip(rows, filters(scales), strict=True)]
    assert chosen.weights @ off <= reported + 1e-13 * chosen.weights.sum()  # rounding of the powers here
    assert reported <= error + FINEST_TAIL * chosen.weights.sum()


@quick
@given(st.integers(1, 12), st.floats(0.05, 3.0), st.floats(-14, 0.5).map(lambda power: 10.0**power))
def test_no_row_is_longer_than_its_share_of_the_error_needs(scales: int, alpha: float, error: float) -> None:
    chosen = DyadicFilters(scales, alpha)
    share = error / (scales + 1)
    for row, whole, weight in zip(chosen.truncated(error)[0], chosen.table, chosen.weights, strict=True):
        np.testing.assert_array_equal(row, whole[: len(row)])
        assert weight * np.abs(whole[len(row) :]).sum() <= share * (1 + 1e-9)
        if len(row) > 1:
            assert weight * np.abs(whole[len(row) - 1 :]).sum() > share * (1 - 1e-9)
