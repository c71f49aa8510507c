"""What kriging needs to know of rows and of a graph: factors of every group's rows, and modes of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError
from toporo.groups import Groups
from toporo.robust.group_losses import as_inputs, as_numbers
from toporo.types import Array

#: Numbers that are factored at a time.
CELLS = 1 << 22


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
        sizes = np.bincount(ids.codes, minlength=len(ids.groups))
        if not sizes.all():
            raise DataError(f"group {ids.groups.names[int(sizes.argmin())]!r} has no row: leave it out of the groups.")
        m, (d, k) = len(sizes), (inputs.shape[1], targets.shape[1])
        means, roots = np.zeros((m, d)), np.zeros((m, d + 1, d + 1))
        products, left, rows = np.zeros((m, d + 1, k)), np.zeros((m, k)), np.zeros(m)
        for groups, members in _batches(ids.codes, sizes, d + k + 2):
            means[groups], roots[groups], products[groups], left[groups], rows[groups] = _factor(
                inputs[members].astype(np.float64), targets[members], np.where(members >= 0, weights[members], 0.0)
            )
        return cls(ids.groups, means, roots, products, left.sum(axis=0), rows)

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


def _batches(
    codes: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp], width: int
) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Groups of similar size, and their rows, (groups, rows), -1 where a group has fewer: many factors at once."""
    order, starts = np.argsort(codes, kind="stable"), np.cumsum(sizes) - sizes
    longest = np.maximum(width, 2 ** np.ceil(np.log2(sizes))).astype(np.intp)
    for length in np.unique(longest):
        alike = np.flatnonzero(longest == length)
        count = max(1, CELLS // (int(length) * width))
        for groups in np.split(alike, range(count, len(alike), count)):
            most = max(width, int(sizes[groups].max()))
            places = starts[groups, None] + np.arange(most)
            inside = np.arange(most) < sizes[groups, None]
            yield groups, np.where(inside, order[np.minimum(places, len(order) - 1)], -1)


def _factor(x: Array, y: Array, weights: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Mean, R, Q'y, what is left of y'y, rows; of groups with so many rows each, those of weight 0 for none."""
    mass = weights.sum(axis=1)
    mean = np.einsum("gn,gnj->gj", weights, x) / mass[:, None]
    root = np.sqrt(weights)[:, :, None]
    design = np.concatenate([np.ones((*weights.shape, 1)), x - mean[:, None]], axis=2) * root
    q, r = np.linalg.qr(design)
    scaled = y * root
    inside = q.transpose(0, 2, 1) @ scaled
    left = scaled - q @ inside
    return mean, r, inside, np.einsum("gnk,gnk->gk", left, left), mass


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


class WalkModes(GraphModes):
    r"""The modes for another kernel, :math:`K \propto (I + t L / \bar d)^{-1}`, the constant mode among them.

    What it suggests for a group is a mean over where a random walk from there, which may end on the way, first meets a
    known group: never more than is seen anywhere, and nothing far away, where the heat kernel carries trends on.
    """

    @classmethod
    def of(cls, adjacency: Any) -> WalkModes:
        """The modes of a symmetric matrix of weights that are at least 0."""
        modes = GraphModes.of(adjacency)
        m = len(modes.vectors)
        return cls(np.append(0.0, modes.values), np.column_stack([np.full(m, m**-0.5), modes.vectors]))

    def shares(self, time: float) -> tuple[Array, Array]:
        """Variances of the modes of K, mean of its diagonal 1, and the derivative of their logarithms by the time."""
        falling = 1.0 / (1.0 + time * self.values)
        total, slopes = falling.sum(), -falling * self.values
        return len(self.vectors) * falling / total, slopes - float(falling @ slopes / total)
