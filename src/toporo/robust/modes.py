"""Modes of a graph's Laplacian, and the kernels over groups that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from toporo.errors import DataError
from toporo.types import Array


@dataclass(frozen=True)
class GraphModes:
    r"""Eigenvectors of a graph's Laplacian over its mean degree, smoothest first, without the constant one.

    Their kernel is the heat kernel :math:`K \propto \exp(-t L / \bar d)`.

    Attributes
    ----------
    values : eigenvalues, (k,).
    vectors : eigenvectors of length 1, (groups, k).
    """

    values: Array
    vectors: Array

    @classmethod
    def of(cls, adjacency: Any) -> GraphModes:
        """Compute the modes of a symmetric matrix of weights that are at least 0."""
        weights = np.asarray(adjacency, dtype=np.float64)
        degrees = weights.sum(axis=1)
        laplacian = np.diag(degrees) - weights
        values, vectors = np.linalg.eigh(laplacian / max(float(degrees.mean()), 1e-12))
        # In a graph of several pieces the constant is one of several modes of value 0: take it out of all of them.
        flat = int(np.sum(values < 1e-9))
        smooth = vectors[:, :flat] - vectors[:, :flat].mean(axis=0)
        pieces = np.linalg.svd(smooth, full_matrices=False)[0][:, : flat - 1]
        values = np.append(np.zeros(flat - 1), np.maximum(values[flat:], 0.0))
        return cls(values, np.column_stack([pieces, vectors[:, flat:]]))

    def check(self) -> None:
        """Raise unless there is an eigenvalue of at least 0 for each vector."""
        if self.vectors.ndim != 2 or self.values.shape != self.vectors.shape[1:] or (self.values < 0).any():
            raise DataError(f"its array 'modes.vectors' has shape {self.vectors.shape}, or modes.values are negative.")

    def shares(self, time: float) -> tuple[Array, Array]:
        """Return the variances of the modes of K, mean of its diagonal 1, and their logarithmic derivatives by t."""
        weights = np.exp(-time * self.values)
        total = weights.sum()
        return len(self.vectors) * weights / total, float(weights @ self.values / total) - self.values


class WalkModes(GraphModes):
    r"""Modes for the kernel :math:`K \propto (I + t L / \bar d)^{-1}`, the constant mode among them.

    The prediction for a group is a mean over the training groups that a random walk from there, which may end on the
    way, meets first: never beyond the range of the data, and zero far away, where the heat kernel extrapolates trends.
    """

    @classmethod
    def of(cls, adjacency: Any) -> WalkModes:
        """Compute the modes of a symmetric matrix of weights that are at least 0."""
        modes = GraphModes.of(adjacency)
        m = len(modes.vectors)
        return cls(np.append(0.0, modes.values), np.column_stack([np.full(m, m**-0.5), modes.vectors]))

    def shares(self, time: float) -> tuple[Array, Array]:
        """Return the variances of the modes of K, mean of its diagonal 1, and their logarithmic derivatives by t."""
        weights = 1.0 / (1.0 + time * self.values)
        total, slopes = weights.sum(), -weights * self.values
        return len(self.vectors) * weights / total, slopes - float(weights @ slopes / total)
