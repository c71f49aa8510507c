r"""QR factors of the rows of each group: all that a squared error or a Gaussian likelihood needs of them.

Group e with inputs :math:`X_e`, targets :math:`Y_e` and row weights :math:`W_e` has the thin factorisation

.. math:: W_e^{1/2} [1, X_e] = Q_e R_e .

:class:`GroupFactors` keeps :math:`R_e`, :math:`Q_e^\top W_e^{1/2} Y_e` and the squares of Y that no coefficients
explain. Counts, means, scatter and Gram matrices are views of these. Factors of two sets of rows give those of both:
R is that of the stacked triangles (TSQR; Demmel et al. 2012), so rows are read once, in portions, and never kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf

from toporo.groups import GroupIds, Groups
from toporo.robust.rows import as_inputs, as_targets, for_each, refuse_huge, weighted_rows
from toporo.types import Array, Name

#: Numbers in a batch of groups whose factors are added.
CELLS = 1 << 22
#: A matrix this many times as long as wide is factored by way of its Gram matrix if no column has more than
#: ``1 - SAFE`` of its variance explained by those before it: R is then exact to eps / SAFE.
TALL, SAFE = 4, 1e-3


@dataclass(frozen=True, eq=False)
class GroupFactors:
    r"""Thin QR factors of :math:`W^{1/2}[1, X]` by group, and the targets in their terms.

    Attributes
    ----------
    groups : in the order of the arrays.
    columns : names of the inputs.
    rows, squares : number of rows, and the sum of their squared weights, (m,).
    roots : R, (m, d + 1, d + 1). Any root of the same Gram matrix will do whose first column is zero from its second
        entry on.
    targets : :math:`Q^\top W^{1/2} Y`, (m, d + 1, k).
    residual : weighted squares of Y that no coefficients explain, (m, k).
    """

    groups: Groups
    columns: tuple[Hashable, ...]
    rows: Array
    squares: Array
    roots: Array
    targets: Array
    residual: Array

    @classmethod
    def from_rows(cls, x: Any, y: Any, groups: Iterable[Name] | GroupIds, sample_weight: Any = None) -> GroupFactors:
        """Factor the rows of each group.

        Parameters
        ----------
        x : inputs, rows × features; no features for the residuals of a model, say.
        y : targets, one or several per row.
        groups : the group of each row.
        sample_weight : weights; a row with weight 2 counts as two. 1 unless given.
        """
        inputs, ids = as_inputs(x, groups)
        targets = as_targets(y, len(inputs))
        inputs, targets, ids, weights = weighted_rows(inputs, targets, ids, sample_weight)
        refuse_huge(inputs, "x")
        refuse_huge(targets, "y")
        return cls._of(inputs, targets, ids, weights)

    @classmethod
    def from_portion(
        cls,
        names: Sequence[Name],
        codes: npt.NDArray[np.integer],
        inputs: dict[Hashable, Array],
        targets: Array,
        weights: Array | None = None,
    ) -> GroupFactors:
        """Factor a portion of a table; portions are then added.

        Parameters
        ----------
        names, codes : groups, and the code of each row's group among them. Groups without a row are left out.
        inputs : columns by name.
        targets : rows × targets.
        weights : of the rows, above 0.
        """
        present, inverse = np.unique(codes, return_inverse=True)
        ids = Groups.of([names[code] for code in present])
        x = np.column_stack([*inputs.values()]) if inputs else np.zeros((len(codes), 0))
        factors = cls._of(x, targets, GroupIds(ids.codes[inverse], ids.groups), weights)
        return replace(factors, columns=tuple(inputs))

    @classmethod
    def _of(cls, x: Any, y: Any, ids: GroupIds, weights: Array | None) -> GroupFactors:
        m, (n, d) = len(ids.groups), x.shape
        plain = np.ones(n) if weights is None else weights
        sizes = np.bincount(ids.codes, minlength=m)
        by_group = np.split(np.argsort(ids.codes, kind="stable"), np.cumsum(sizes)[:-1])

        def factor(members: npt.NDArray[np.intp]) -> tuple[Array, Array]:
            return _factor(plain[members], np.concatenate([x[members], y[members]], axis=1, dtype=np.float64), d)

        whole, residual = (np.stack(parts) for parts in zip(*for_each(by_group, factor, n), strict=True))
        squares = np.asarray(np.bincount(ids.codes, plain**2, minlength=m), dtype=np.float64)
        return cls(ids.groups, tuple(range(d)), sizes.astype(np.float64), squares, *_parts(whole, d), residual)

    # ------------------------------------------------------------ views

    @property
    def width(self) -> int:
        """Number of inputs."""
        return len(self.columns)

    @property
    def outputs(self) -> int:
        """Number of targets per row."""
        return int(self.targets.shape[2])

    @cached_property
    def mass(self) -> Array:
        """Sum of the row weights of each group, (m,)."""
        return np.asarray(self.roots[:, 0, 0] ** 2)

    @cached_property
    def means(self) -> Array:
        """Weighted mean inputs, (m, d)."""
        return np.asarray(self.roots[:, 0, 1:] / self.roots[:, 0, :1])

    @cached_property
    def both_means(self) -> Array:
        """Weighted mean inputs and targets, (m, d + k)."""
        return np.concatenate([self.means, self.targets[:, 0] / self.roots[:, 0, :1]], axis=1)

    @cached_property
    def centred_roots(self) -> Array:
        r"""R of :math:`W^{1/2}[1, x - \bar x]`, with the same Q."""
        roots = self.roots.copy()
        roots[:, 0, 1:] = 0.0
        return roots

    @property
    def within(self) -> Array:
        """Sums of squares of inputs and targets about the means of their group, over all groups, (d + k,)."""
        inner = np.concatenate([self.roots[:, 1:, 1:], self.targets[:, 1:]], axis=2)
        residual = np.append(np.zeros(self.width), self.residual.sum(axis=0))
        return np.asarray(np.einsum("grj,grj->j", inner, inner) + residual)

    @property
    def mean(self) -> Array:
        """Means of inputs and targets over all rows, (d + k,)."""
        return np.asarray(self.mass @ self.both_means / self.mass.sum())

    @property
    def variance(self) -> Array:
        """Variances of inputs and targets over all rows, (d + k,)."""
        return np.asarray((self.within + self.mass @ (self.both_means - self.mean) ** 2) / self.mass.sum())

    def weighted_ridge(self, weights: Array, ridge: float) -> Array:
        """Fit ridge regressions in which groups count by weights, (regressions, d + 1, k), of 1 and x.

        Parameters
        ----------
        weights : of the groups, however many rows they have, (regressions, m), each summing to 1.
        ridge : added to the mean squares of the inputs.
        """
        inner = np.arange(1, self.width + 1)
        roots, targets = (part / np.sqrt(self.mass)[:, None, None] for part in (self.roots, self.targets))
        squares = np.tensordot(weights, roots.transpose(0, 2, 1) @ roots, axes=1)
        squares[:, inner, inner] += ridge
        moments = np.tensordot(weights, roots.transpose(0, 2, 1) @ targets, axes=1)
        return np.asarray(np.linalg.solve(squares, moments), dtype=np.float64)

    # ------------------------------------------------------------ other rows and columns

    def __add__(self, other: GroupFactors) -> GroupFactors:
        """Factors of both sets of rows; a column that one of them lacks is zero in all of its rows."""
        names = {*self.groups, *other.groups}
        groups = self.groups if len(names) == len(self.groups) else Groups(names)
        columns = tuple(dict.fromkeys([*self.columns, *other.columns]))
        a, b = self._embed(groups, columns), other._embed(groups, columns)
        sums = {name: getattr(a, name) + getattr(b, name) for name in _ARRAYS}
        shared, d = np.flatnonzero((a.rows > 0) & (b.rows > 0)), len(columns)
        step = max(1, CELLS // (2 * d + 2) ** 2)
        for some in np.split(shared, range(step, len(shared), step)):
            stacked = [np.concatenate([part.roots[some], part.targets[some]], axis=2) for part in (a, b)]
            whole, left = _triangle(np.concatenate(stacked, axis=1), d + 1)
            sums["roots"][some], sums["targets"][some] = _parts(whole, d)
            sums["residual"][some] += left
        return GroupFactors(groups, columns, **sums)

    def _embed(self, groups: Groups, columns: Sequence[Hashable]) -> GroupFactors:
        """Add groups without rows and columns of zeros."""
        if (groups, tuple(columns)) == (self.groups, self.columns):
            return self
        number_of = {name: number for number, name in enumerate(columns)}
        kept = np.array([0, *(1 + number_of[name] for name in self.columns)])
        at, m, d = groups.encode(self.groups), len(groups), len(columns)
        arrays = {"rows": np.zeros(m), "squares": np.zeros(m), "residual": np.zeros((m, self.outputs))}
        for name, array in arrays.items():
            array[at] = getattr(self, name)
        roots, targets = np.zeros((m, d + 1, d + 1)), np.zeros((m, d + 1, self.outputs))
        roots[np.ix_(at, np.arange(len(kept)), kept)] = self.roots
        targets[at, : len(kept)] = self.targets
        return GroupFactors(groups, tuple(columns), roots=roots, targets=targets, **arrays)

    def select(self, groups: npt.NDArray[np.intp]) -> GroupFactors:
        """Return the factors of some of the groups, whose numbers are given in ascending order."""
        arrays = {name: getattr(self, name)[groups] for name in _ARRAYS}
        return GroupFactors(Groups(self.groups.decode(groups)), self.columns, **arrays)

    def select_columns(self, columns: Sequence[Hashable]) -> GroupFactors:
        """Return the factors of some of the inputs."""
        number_of = {name: number for number, name in enumerate(self.columns)}
        return self.mapped(columns, np.eye(self.width)[[number_of[name] for name in columns]])

    def mapped(self, columns: Sequence[Hashable], matrix: Array) -> GroupFactors:
        """Return the factors of inputs :math:`A x`.

        Parameters
        ----------
        columns : names of the new inputs.
        matrix : A, (new inputs, inputs).
        """
        rows = np.concatenate([self.roots[:, :, :1], self.roots[:, :, 1:] @ matrix.T, self.targets], axis=2)
        whole, left = _triangle(rows, len(matrix) + 1)
        roots, targets = _parts(whole, len(matrix))
        return replace(self, columns=tuple(columns), roots=roots, targets=targets, residual=self.residual + left)

    def scaled(self, center: Array, scale: Array) -> GroupFactors:
        """Return the factors of inputs and targets less ``center`` over ``scale``, both (d + k,)."""
        d, first = self.width, self.roots[:, :, :1]
        inputs = (self.roots[:, :, 1:] - first * center[:d]) / scale[:d]
        targets = (self.targets - first * center[d:]) / scale[d:]
        roots, residual = np.concatenate([first, inputs], axis=2), self.residual / scale[d:] ** 2
        return replace(self, roots=roots, targets=targets, residual=residual)


#: Arrays that are added where only one side has rows of a group.
_ARRAYS = ("rows", "squares", "roots", "targets", "residual")


def _factor(weights: Array, rows: Array, d: int) -> tuple[Array, Array]:
    """Factor the rows of a group, which are overwritten.

    Parameters
    ----------
    weights, rows : (rows,), and [x, y], (rows, d + k).
    d : number of inputs.

    Returns R and Q'y side by side, (d + 1, 1 + d + k), and the squares left, (k,).
    """
    mass = weights.sum()
    means = weights @ rows / mass
    whole = np.zeros((d + 1, 1 + rows.shape[1]))
    whole[0] = np.sqrt(mass) * np.append(1.0, means)
    rows -= means
    rows *= np.sqrt(weights)[:, None]
    inner, left = _triangle(rows[None], d)
    whole[1:, 1:] = inner[0]
    return whole, left[0]


def _parts(whole: Array, d: int) -> tuple[Array, Array]:
    """Split what is side by side: R and Q'y."""
    return np.ascontiguousarray(whole[..., : d + 1]), np.ascontiguousarray(whole[..., d + 1 :])


def _triangle(rows: Array, d: int) -> tuple[Array, Array]:
    """Factor [x, y] = ``rows``, (groups, rows, d + k): return [R, Q'y], (groups, d, d + k), and the squares left."""
    count, n, width = rows.shape
    tall = 0 < TALL * width <= n
    factor = np.stack([_tall(matrix) for matrix in rows]) if tall else _householder(rows)
    upper, lower = factor[:, :d], factor[:, d:, d:]
    inner = np.zeros((count, d, width))
    inner[:, : upper.shape[1]] = upper
    return inner, np.einsum("grk,grk->gk", lower, lower)


def _tall(rows: Array) -> Array:
    """Factor one tall matrix: by Cholesky's method where that loses no digits, else by Householder's."""
    gram = rows.T @ rows
    scale = np.sqrt(gram.diagonal())
    if scale.all():
        factor, failed = dpotrf(gram / np.outer(scale, scale), lower=0, clean=1)
        if not failed and factor.diagonal().min() ** 2 >= SAFE:
            return np.asarray(factor * scale)
    return _householder(rows)


def _householder(rows: Array) -> Array:
    return np.asarray(np.linalg.qr(rows, mode="r"))
