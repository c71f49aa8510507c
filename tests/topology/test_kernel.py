"""Kernels: the formula to the last digits, exactly symmetric, and errors that name the offending rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, pdist

from toporo.errors import DataError, SettingError
from toporo.topology.kernel import check_features, gaussian_kernel


def cloud(n: int = 60, dimensions: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, dimensions))


def kernel_of(points: np.ndarray, kernel: str, sigma: Any, neighbors: int = 15) -> np.ndarray:
    matrix = gaussian_kernel(points, kernel, sigma, neighbors)[0]
    return np.asarray(matrix if kernel == "dense" else matrix.toarray())


def width_of(points: np.ndarray, sigma: Any, neighbors: int = 15) -> float:
    return float(gaussian_kernel(points, "dense", sigma, neighbors)[1]["sigma_value"])


def formula(points: np.ndarray, sigma: float) -> np.ndarray:
    """K_ij = exp(-|f_i - f_j|^2 / sigma^2), from differences."""
    return np.exp(-cdist(points, points, "sqeuclidean") / sigma**2)


# ---------------------------------------------------------------------- the kernels


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 40), st.integers(1, 20), st.floats(0.3, 10), st.integers(0, 999))
def test_dense_kernel_is_the_formula(n: int, dimensions: int, sigma: float, seed: int) -> None:
    points = cloud(n, dimensions, seed)
    kernel = kernel_of(points, "dense", sigma)
    np.testing.assert_allclose(kernel, formula(points, sigma), rtol=1e-11, atol=1e-15)
    np.testing.assert_array_equal(kernel, kernel.T)
    np.testing.assert_array_equal(kernel.diagonal(), 1.0)


@settings(deadline=None, max_examples=30)
@given(st.integers(8, 40), st.sampled_from([1, 3, 12, 20]), st.integers(1, 7), st.integers(0, 999))
def test_knn_kernel_is_the_dense_one_on_its_support(n: int, dimensions: int, neighbors: int, seed: int) -> None:
    points = cloud(n, dimensions, seed)
    kernel = kernel_of(points, "knn", 2.0, neighbors)
    distances = cdist(points, points) + np.diag(np.full(n, np.inf))
    near = distances <= np.sort(distances, axis=1)[:, neighbors - 1 : neighbors]
    support = near | near.T | np.eye(n, dtype=bool)
    np.testing.assert_array_equal(kernel > 0, support)
    np.testing.assert_allclose(kernel[support], formula(points, 2.0)[support], rtol=1e-11)
    np.testing.assert_array_equal(kernel, kernel.T)
    np.testing.assert_array_equal(kernel.diagonal(), 1.0)


# ---------------------------------------------------------------------- the width


@pytest.mark.parametrize("dimensions", [3, 12])
def test_sigma_knn_is_the_median_distance_to_the_kth_neighbour(dimensions: int) -> None:
    points = cloud(60, dimensions)
    width = np.median(np.sort(cdist(points, points), axis=1)[:, 7])
    assert width_of(points, "knn", 7) == pytest.approx(width, rel=1e-10)
    np.testing.assert_allclose(kernel_of(points, "dense", "knn", 7), formula(points, width), rtol=1e-9)
    sparse = kernel_of(points, "knn", "knn", 7)
    np.testing.assert_allclose(sparse[sparse > 0], formula(points, width)[sparse > 0], rtol=1e-9)


def test_median_of_many_points_is_not_fooled_by_their_order() -> None:
    """Beyond 2000 points the median is over a subsample. Rows of two sources that alternate are a common layout."""
    points = np.random.default_rng(0).random(2400)[:, None]
    points[1::2] *= 100
    assert width_of(points, "median") == pytest.approx(np.median(pdist(points)), rel=0.2)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_rows_that_are_not_finite_are_counted_and_the_first_is_named(bad: float) -> None:
    points = cloud()
    points[[7, 9], 1] = bad
    with pytest.raises(DataError, match=r"NaN or infinite values .* in 2 of 60 rows \(first: row 7\)"):
        check_features(points)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros((2, 2, 2)), r"shape \(points, dimensions\); found shape \(2, 2, 2\)"),
        (np.zeros((3, 0)), r"found shape \(3, 0\)"),
        ([["a", "b"]], "features must be numbers; found list"),
        ([[1, 2], [3]], "features must be numbers"),
    ],
)
def test_features_are_a_table_of_numbers(features: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_features(features)


def test_half_precision_tensors_are_read() -> None:
    """Activations under autocast come as bfloat16, which numpy does not have."""
    for dtype in (torch.float16, torch.bfloat16):
        assert check_features(torch.ones(2, 1, dtype=dtype)).tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("sigma", [0, -1.0, np.nan, np.inf, None], ids=repr)
def test_sigma_must_be_positive(sigma: Any) -> None:
    with pytest.raises(SettingError, match=r"sigma is .*: expected a positive number, 'median' or 'knn'"):
        kernel_of(cloud(), "dense", sigma)


@pytest.mark.parametrize("sigma", ["median", "knn"])
def test_duplicates_that_leave_no_width_are_explained(sigma: str) -> None:
    points = np.concatenate([np.zeros((50, 2)), cloud(10, 2)])
    with pytest.raises(DataError, match=f"sigma='{sigma}' comes out as 0.*coincide"):
        kernel_of(points, "knn", sigma, 3)
