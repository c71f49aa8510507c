"""What kriging needs to know of rows and of a graph: factors of every group's rows, and modes of the graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from toporo.errors import DataError
from toporo.groups import GroupIds, Groups
from toporo.robust.group_losses import as_inputs, as_numbers
from toporo.types import Array


@dataclass(frozen=True)
class GroupFactors:
    r"""What the rows of every group say: thin QR factors of :math:`W^{1/2}[1, x - \bar x]`, and y in their terms.

    Attributes
    ----------
    groups : in the order of the arrays.
    means : weighted mean inputs, (m, d).
    roots : R, (m, d + 1, d + 1), rows of zeros below where a group has few rows.
    targets : :math:`Q^\top W^{1/2} y`, (m, d + 1, k).
    residual : sum of squares that no coefficients explain, (k,).
    rows : how many rows there are in each group, those with weights counted by them, (m,).
    """

    groups: Groups
    means: Array
    roots: Array
    targets: Array
    residual: Array
    rows: Array

    @classmethod
    def from_rows(cls, x: Any, y: Any, groups: Any, sample_weight: Any = None) -> GroupFactors:
        """Read the rows once.

        Parameters
        ----------
        x : inputs, rows × features, standardised.
        y : targets, one or several per row, centred.
        groups : the group of every row.
        sample_weight : weights above 0; a row with weight 2 counts as two. 1 unless given.
        """
        inputs, ids = as_inputs(x, groups)
        targets = as_numbers(y, "y").reshape(len(inputs), -1).astype(np.float64)
        weights = np.ones(len(inputs)) if sample_weight is None else as_numbers(sample_weight, "sample_weight")
        if weights.shape != (len(inputs),) or not np.all(np.isfinite(weights)) or weights.min(initial=1.0) <= 0:
            raise DataError(f"sample_weight: expected {len(inputs)} finite weights above 0, one per row.")
        if not (np.isfinite(inputs).all() and np.isfinite(targets).all()):
            raise DataError("x and y must be finite: fill in or leave out missing values first.")
        parts = [_factor(*part) for part in _by_group(inputs, targets, weights, ids)]
        return cls(
            ids.groups,
            np.stack([part[0] for part in parts]),
            np.stack([part[1] for part in parts]),
            np.stack([part[2] for part in parts]),
            np.sum([part[3] for part in parts], axis=0),
            np.array([part[4] for part in parts]),
        )

    @classmethod
    def from_values(cls, values: Any, groups: Any, sample_weight: Any = None) -> GroupFactors:
        """Read rows without inputs: what is left of them by a model, say.

        Parameters
        ----------
        values : one or several numbers per row.
        groups, sample_weight : as in :meth:`from_rows`.
        """
        factors = cls.from_rows(np.zeros((len(values), 1)), values, groups, sample_weight)
        # An input that never varies explains nothing: what fell on its direction is left over.
        left = np.einsum("gik,gik->k", factors.targets[:, 1:], factors.targets[:, 1:])
        return replace(
            factors,
            means=factors.means[:, :0],
            roots=factors.roots[:, :1, :1],
            targets=factors.targets[:, :1],
            residual=factors.residual + left,
        )

    def weighted_ridge(self, weights: Array, ridge: float) -> Array:
        """Coefficients of ridge regressions in which groups count by weights, (regressions, d + 1, k), of 1 and x.

        Parameters
        ----------
        weights : of the groups, however many rows they have, (regressions, m), each summing to 1.
        ridge : added to the mean squares of the inputs.
        """
        d = self.width
        roots = self.plain_roots / np.sqrt(self.rows)[:, None, None]
        targets = self.targets / np.sqrt(self.rows)[:, None, None]
        squares = np.tensordot(weights, roots.transpose(0, 2, 1) @ roots, axes=1)
        squares[:, range(1, d + 1), range(1, d + 1)] += ridge
        moments = np.tensordot(weights, roots.transpose(0, 2, 1) @ targets, axes=1)
        return np.asarray(np.linalg.solve(squares, moments), dtype=np.float64)

    @cached_property
    def plain_roots(self) -> Array:
        r"""R of :math:`W^{1/2}[1, x]`: triangular no more, but with the same Q."""
        shift = np.tile(np.eye(self.width + 1), (len(self.means), 1, 1))
        shift[:, 0, 1:] = self.means
        return np.asarray(self.roots @ shift)

    @property
    def width(self) -> int:
        """Features."""
        return int(self.means.shape[1])

    @property
    def outputs(self) -> int:
        """Targets per row."""
        return int(self.targets.shape[2])


def _by_group(x: Array, y: Array, weights: Array, ids: GroupIds) -> Any:
    order = np.argsort(ids.codes, kind="stable")
    ends = np.cumsum(np.bincount(ids.codes, minlength=len(ids.groups)))
    for name, rows in zip(ids.groups, np.split(order, ends[:-1]), strict=True):
        if not len(rows):
            raise DataError(f"group {name!r} has no row: leave it out of the groups.")
        yield x[rows].astype(np.float64), y[rows], weights[rows]


def _factor(x: Array, y: Array, weights: Array) -> tuple[Array, Array, Array, Array, float]:
    """Mean, R, Q'y, what is left of y'y, rows; of one group."""
    n, d = x.shape
    mean = np.average(x, axis=0, weights=weights)
    root = np.sqrt(weights)[:, None]
    design = np.column_stack([np.ones(n), x - mean]) * root
    q, r = np.linalg.qr(design)
    scaled = y * root
    inside = q.T @ scaled
    full_r, full_z = np.zeros((d + 1, d + 1)), np.zeros((d + 1, y.shape[1]))
    full_r[: len(r)], full_z[: len(r)] = r, inside
    left = scaled - q @ inside
    return mean, full_r, full_z, np.einsum("nk,nk->k", left, left), float(weights.sum())


# ---------------------------------------------------------------------- which groups are alike


@dataclass(frozen=True)
class GraphModes:
    """The modes of a graph's Laplacian over its mean degree, smoothest first, without the constant one.

    Attributes
    ----------
    values : (k,).
    vectors : (groups, k), columns of length 1.
    """

    values: Array
    vectors: Array

    @classmethod
    def of(cls, adjacency: Any) -> GraphModes:
        """The modes of a symmetric matrix of weights that are at least 0."""
        weights = np.asarray(adjacency, dtype=np.float64)
        degrees = weights.sum(axis=1)
        laplacian = np.diag(degrees) - weights
        values, vectors = np.linalg.eigh(laplacian / max(float(degrees.mean()), 1e-12))
        m = len(weights)
        # In a graph of several pieces the constant is one of several modes of value 0: take it out of all of them.
        flat = int(np.sum(values < 1e-9))
        smooth = vectors[:, :flat] - vectors[:, :flat].mean(axis=0)
        pieces = np.linalg.svd(smooth, full_matrices=False)[0][:, : flat - 1]
        return cls(
            np.concatenate([np.zeros(flat - 1), np.maximum(values[flat:], 0.0)]),
            np.column_stack([pieces, vectors[:, flat:]]) if m > 1 else np.zeros((m, 0)),
        )

    def first(self, count: int) -> GraphModes:
        """The smoothest ones."""
        return GraphModes(self.values[:count], self.vectors[:, :count])

    def shares(self, time: float) -> tuple[Array, Array]:
        """Variances of the modes of K, mean of its diagonal 1, and the derivative of their logarithms by the time."""
        falling = np.exp(-time * self.values)
        total = falling.sum()
        return len(self.vectors) * falling / total, float(falling @ self.values / total) - self.values
