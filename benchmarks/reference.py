"""Diffusion EMD by its definition, with dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist


def indicators_of(codes: np.ndarray) -> np.ndarray:
    """Columns ``1_{X_e} / n_e``, one per group."""
    counts = np.bincount(codes)
    indicators = np.zeros((len(codes), len(counts)))
    indicators[np.arange(len(codes)), codes] = 1.0 / counts[codes]
    return indicators


def squaring_densities(kernel: Any, indicators: np.ndarray, scales: int = 10) -> list[np.ndarray]:
    """The densities by definition: the walk of a kernel squared again and again, as a dense matrix."""
    dense = kernel.toarray() if sparse.issparse(kernel) else kernel
    degree = dense.sum(1)
    flattened = dense / degree[:, None] / degree[None, :]
    power = flattened / flattened.sum(1)[:, None]
    densities = [power @ indicators]
    for _ in range(scales):
        power = power @ power
        densities.append(power @ indicators)
    return densities


def weighted_l1(densities: list[np.ndarray], alpha: float = 0.5) -> np.ndarray:
    """The distances by definition, from the densities of all scales."""
    scales = len(densities) - 1
    total = cdist(densities[-1].T, densities[-1].T, "cityblock")
    for k in range(scales):
        difference = (densities[k + 1] - densities[k]).T
        total += 2.0 ** (-(scales - k - 1) * alpha) * cdist(difference, difference, "cityblock")
    return total


def relative_differences(distances: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """One per pair."""
    pairs = np.triu_indices(len(exact), 1)
    return np.abs(distances - exact)[pairs] / exact[pairs]
