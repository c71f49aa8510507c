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

from toporo.errors import DataError
from toporo.groups import GroupIds, Groups
from toporo.robust.rows import as_inputs, as_targets, for_each, refuse_huge, weighted_rows
from toporo.types import Array, Name

#: Numbers in the longest span of a group, and in a batch of several spans.
CELLS, BATCH = 1 << 22, 1 << 19
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

    def check(self) -> None:
        """Raise unless the arrays have the shapes and ranges of factors."""
        m, d = len(self.groups), len(self.columns)
        k = self.targets.shape[-1] if self.targets.ndim == 3 else 0
        shapes = {"rows": (m,), "squares": (m,), "roots": (m, d + 1, d + 1), "targets": (m, d + 1, k)}
        for name, shape in (shapes | {"residual": (m, k)}).items():
            if getattr(self, name).shape != shape or not k:
                raise DataError(f"its array {name!r} has shape {getattr(self, name).shape}, expected {shape}.")
        for name, least in (("rows", 1), ("squares", 0), ("residual", 0)):
            if (getattr(self, name) < least).any():
                raise DataError(f"its array {name!r} holds numbers beyond what it may.")

    @classmethod
    def from_rows(cls, x: Any, y: Any, groups: Iterable[Name] | GroupIds, sample_weight: Any = None) -> GroupFactors:
        """Factor the rows of each group.

        Parameters
        ----------
        x : inputs, rows × features.
        y : targets, one or several per row.
        groups : the group of each row.
        sample_weight : weights; a row with weight 2 counts as two. 1 unless given.
        """
        inputs, ids = as_inputs(x, groups)
        targets = as_targets(y, len(inputs))
        inputs, targets, ids, weights = weighted_rows(inputs, targets, ids, sample_weight)
        refuse_huge(inputs, "x")
        refuse_huge(targets, "y")
        if weights is not None:
            refuse_huge(weights, "sample_weight")
        return cls._of(inputs, targets, ids, weights)

    @classmethod
    def from_values(cls, values: Any, groups: Iterable[Name] | GroupIds, sample_weight: Any = None) -> GroupFactors:
        """Factor rows without inputs, e.g. the residuals of a model.

        Parameters
        ----------
        values : one or several numbers per row.
        groups, sample_weight : as for :meth:`from_rows`.
        """
        return cls.from_rows(np.zeros((len(values), 1)), values, groups, sample_weight).select_columns([])

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
        groups = Groups(names[code] for code in present)
        new_codes = groups.encode([names[code] for code in present])
        x = np.column_stack([*inputs.values()]) if inputs else np.zeros((len(codes), 0))
        factors = cls._of(x, targets, GroupIds(new_codes[inverse], groups), weights)
        return replace(factors, columns=tuple(inputs))

    @classmethod
    def _of(cls, x: Any, y: Any, ids: GroupIds, weights: Array | None) -> GroupFactors:
        m, (n, d) = len(ids.groups), x.shape
        plain = np.ones(n) if weights is None else weights
        sizes = np.bincount(ids.codes, minlength=m)
        owner, batches = _batches(ids.codes, sizes, d + y.shape[1] + 1)

        def factor(batch: tuple[Any, npt.NDArray[np.intp]]) -> tuple[Array, Array]:
            members = batch[1]
            rows = np.concatenate([x[members], y[members]], axis=2, dtype=np.float64)
            return _factor(np.where(members >= 0, plain[members], 0.0), rows, d)

        in_order = np.argsort(np.concatenate([spans for spans, _ in batches]))
        found = zip(*for_each(batches, factor, n), strict=True)
        by_span, left = (np.concatenate(parts)[in_order] for parts in found)
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        whole, residual = by_span[first], np.add.reduceat(left, first)
        for group in np.flatnonzero(np.diff(first, append=len(owner)) > 1):  # long groups were factored in spans
            stacked = by_span[owner == group].reshape(1, -1, by_span.shape[2])
            (whole[group],), (more,) = _triangle(stacked, d + 1)
            residual[group] += more
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
    def target_means(self) -> Array:
        """Weighted mean targets, (m, k)."""
        return np.asarray(self.targets[:, 0] / self.roots[:, 0, :1])

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
        means = np.concatenate([self.means, self.target_means], axis=1)
        return np.asarray(self.mass @ means / self.mass.sum())

    @property
    def variance(self) -> Array:
        """Variances of inputs and targets over all rows, (d + k,)."""
        means = np.concatenate([self.means, self.target_means], axis=1)
        return np.asarray((self.within + self.mass @ (means - self.mean) ** 2) / self.mass.sum())

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
        with np.errstate(all="ignore"):
            inputs = (self.roots[:, :, 1:] - first * center[:d]) / scale[:d]
            targets = (self.targets - first * center[d:]) / scale[d:]
            residual = self.residual / scale[d:] ** 2
        if not (np.isfinite(inputs).all() and np.isfinite(targets).all() and np.isfinite(residual).all()):
            raise DataError("the table holds numbers too large to be squared: scale the columns first.")
        return replace(self, roots=np.concatenate([first, inputs], axis=2), targets=targets, residual=residual)


#: Arrays that are added where only one side has rows of a group.
_ARRAYS = ("rows", "squares", "roots", "targets", "residual")


def _batches(
    codes: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp], width: int
) -> tuple[npt.NDArray[np.intp], list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]]:
    """Split groups into spans of rows and spans into batches of similar length.

    Returns the group of each span, and for each batch the numbers of its spans and their rows, (spans, rows), -1 where
    a span has fewer.
    """
    most = max(width, CELLS // width)
    pieces = np.maximum(-(-sizes // most), 1)
    owner = np.repeat(np.arange(len(sizes)), pieces)
    before = (np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * most
    starts = np.repeat(np.cumsum(sizes) - sizes, pieces) + before
    lengths = np.minimum(np.repeat(sizes, pieces) - before, most)
    order = np.argsort(codes.astype(np.uint16) if len(sizes) < 1 << 16 else codes, kind="stable")
    batches = []
    classes = 2 ** np.ceil(np.log2(np.maximum(lengths, 8)))
    for size in np.unique(classes):
        alike = np.flatnonzero(classes == size)
        step = max(1, BATCH // (int(size) * width))
        for spans in np.split(alike, range(step, len(alike), step)):
            numbers = np.arange(int(lengths[spans].max()))
            inside = numbers < lengths[spans, None]
            members = order[np.minimum(starts[spans, None] + numbers, len(order) - 1)]
            batches.append((spans, np.where(inside, members, -1)))
    return owner, batches


def _factor(weights: Array, rows: Array, d: int) -> tuple[Array, Array]:
    """Factor the rows of each group, which are overwritten.

    Parameters
    ----------
    weights, rows : (groups, rows), and [x, y] of each, (groups, rows, d + k).
    d : number of inputs.

    Returns R and Q'y side by side, (groups, d + 1, 1 + d + k), and the squares left, (groups, k).
    """
    mass = weights.sum(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):  # the result is checked
        means = np.einsum("gn,gnj->gj", weights, rows) / mass[:, None]
        rows -= means[:, None]
        rows *= np.sqrt(weights)[:, :, None]
    whole = np.zeros((len(rows), d + 1, 1 + rows.shape[2]))
    whole[:, 0, 0] = 1.0
    whole[:, 0, 1:] = means
    whole[:, 0] *= np.sqrt(mass)[:, None]
    whole[:, 1:, 1:], left = _triangle(rows, d)
    return whole, left


def _parts(whole: Array, d: int) -> tuple[Array, Array]:
    """Split what is side by side: R and Q'y."""
    return np.ascontiguousarray(whole[..., : d + 1]), np.ascontiguousarray(whole[..., d + 1 :])


def _triangle(rows: Array, d: int) -> tuple[Array, Array]:
    """Factor [x, y] = ``rows``, (groups, rows, d + k): return [R, Q'y], (groups, d, d + k), and the squares left."""
    count, n, width = rows.shape
    inner = np.zeros((count, d, width))
    if n <= d:  # the rows themselves are a root
        inner[:, :n] = rows
        return inner, np.zeros((count, width - d))
    factor = np.stack([_tall(matrix) for matrix in rows]) if width and n >= TALL * width else _householder(rows)
    inner[:] = factor[:, :d]
    return inner, np.einsum("grk,grk->gk", factor[:, d:, d:], factor[:, d:, d:])


def _tall(rows: Array) -> Array:
    """Factor one tall matrix: by Cholesky's method where that loses no digits, else by Householder's."""
    with np.errstate(all="ignore"):  # a column of zeros, or numbers too large to be squared
        gram = rows.T @ rows
        scale = np.sqrt(gram.diagonal())
        factor, failed = dpotrf(gram / np.outer(scale, scale), lower=0, clean=1)
    if failed or not factor.diagonal().min() ** 2 >= SAFE:
        return _householder(rows)
    return np.asarray(factor * scale)


def _householder(rows: Array) -> Array:
    return np.asarray(np.linalg.qr(rows, mode="r"))
