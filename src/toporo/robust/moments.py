r"""What linear models need to know of rows, group by group, gathered a portion at a time.

Of group e with rows :math:`z_i` and weights :math:`w_i` that is :math:`n_e = \sum w_i`, the mean :math:`\bar z_e` and
the scatter :math:`S_e = \sum w_i (z_i - \bar z_e)(z_i - \bar z_e)^\top`. Those of two portions give those of both
(Chan, Golub & LeVeque, 1983):

.. math:: S = S_a + S_b + \frac{n_a n_b}{n_a + n_b} (\bar z_a - \bar z_b)(\bar z_a - \bar z_b)^\top.

A squared error, and so every linear model here, depends on nothing else: rows are read once, and never kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError
from toporo.groups import Groups
from toporo.robust.group_factors import GroupFactors
from toporo.robust.group_losses import TOO_LARGE, SquaredLosses
from toporo.types import Array

#: Runs of rows of a group that are shorter than this are multiplied many at a time.
SHORT = 32
#: Numbers between columns of a portion: columns that began a power of two apart would share few places in a cache.
APART = 24
#: Numbers that are multiplied at a time.
CELLS = 1 << 22


@dataclass(frozen=True, eq=False)
class GroupMoments:
    """Counts, means and scatter by group.

    Attributes
    ----------
    names : the groups, in order.
    slots : what the columns of z are called.
    rows, mass, squares : of each group how many rows there are, the sum of their weights and that of the squares.
    means : (m, p).
    scatter : (m, p, p).
    """

    names: tuple[str, ...]
    slots: tuple[Hashable, ...]
    rows: npt.NDArray[np.int64]
    mass: Array
    squares: Array
    means: Array
    scatter: Array

    def __add__(self, other: GroupMoments) -> GroupMoments:
        """Those of both; a column that one of the two lacks is zero in all of its rows."""
        names = tuple(sorted({*self.names, *other.names}))
        slots = tuple(dict.fromkeys([*self.slots, *other.slots]))
        total = self._within(names, slots)
        if total is self:  # what was handed in stays as it is
            total = replace(self, **{name: getattr(self, name).copy() for name in _ARRAYS})
        at, own = _places(names, other.names), _places(slots, other.slots)
        if not len(at):
            return total
        mean = np.zeros((len(at), len(slots)))
        mean[:, own] = other.means
        before, added = total.mass[at], other.mass
        both = before + added
        apart = mean - total.means[at]
        total.means[at] += apart * (added / both)[:, None]
        apart *= np.sqrt(before * added / both)[:, None]
        cells = max(1, CELLS // max(1, len(slots)) ** 2)
        for first in range(0, len(at), cells):
            some = slice(first, first + cells)
            total.scatter[at[some]] += apart[some, :, None] * apart[some, None, :]
            total.scatter[np.ix_(at[some], own, own)] += other.scatter[some]
        for name in ("rows", "mass", "squares"):
            getattr(total, name)[at] += getattr(other, name)
        return total

    def _within(self, names: tuple[str, ...], slots: tuple[Hashable, ...]) -> GroupMoments:
        """The same with further groups, that have no rows, and further columns, that are zero."""
        if (names, slots) == (self.names, self.slots):
            return self
        at, own, m, p = _places(names, self.names), _places(slots, self.slots), len(names), len(slots)
        whole = GroupMoments(
            names, slots, np.zeros(m, np.int64), np.zeros(m), np.zeros(m), np.zeros((m, p)), np.zeros((m, p, p))
        )
        for name in ("rows", "mass", "squares"):
            getattr(whole, name)[at] = getattr(self, name)
        whole.means[np.ix_(at, own)] = self.means
        whole.scatter[np.ix_(at, own, own)] = self.scatter
        return whole

    def only(self, slots: Sequence[Hashable]) -> GroupMoments:
        """Those of some of the columns."""
        own = _places(self.slots, slots)
        scatter = np.ascontiguousarray(self.scatter[:, own][:, :, own])
        return replace(self, slots=tuple(slots), means=self.means[:, own], scatter=scatter)

    def mapped(self, slots: Sequence[Hashable], matrix: Array) -> GroupMoments:
        """Those of :math:`A z`, with A = ``matrix`` (new columns × columns) and new names."""
        # One group at a time: a product of all of them would take as much room again.
        scatter = np.empty((len(self.names), len(matrix), len(matrix)))
        for place, own in enumerate(self.scatter):
            scatter[place] = matrix @ own @ matrix.T
        return replace(self, slots=tuple(slots), means=self.means @ matrix.T, scatter=scatter)

    @cached_property
    def groups(self) -> Groups:
        """The groups, whose order is that of the names."""
        groups = Groups(self.names)
        if groups.names != self.names:
            raise DataError("group names are not in order: expected them as Groups has them.")
        return groups

    @property
    def mean(self) -> Array:
        """Over all rows."""
        return np.asarray(self.mass @ self.means / self.mass.sum())

    @property
    def variance(self) -> Array:
        """Of the columns over all rows."""
        within = np.einsum("gjj->j", self.scatter)
        between = self.mass @ (self.means - self.mean) ** 2
        return np.asarray((within + between) / self.mass.sum())

    def scaled(self, center: Array, scale: Array) -> GroupMoments:
        """Those of :math:`(z - c) / s`."""
        with np.errstate(over="ignore", invalid="ignore"):
            means = (self.means - center) / scale
            scatter = self.scatter / scale[:, None] / scale
        if not (np.isfinite(means).all() and np.isfinite(scatter).all()):
            raise DataError(f"the table {TOO_LARGE}")
        return replace(self, means=means, scatter=scatter)

    def squared_losses(self, outputs: int, *, intercept: bool) -> SquaredLosses:
        """Losses of a linear model whose targets are the last so many columns; the others are the inputs."""
        d, mass = self.means.shape[1] - outputs, self.mass[:, None, None]
        shift = self.mean[:d] if intercept else np.zeros(d)
        means = self.means - np.append(shift, np.zeros(outputs))
        second = self.scatter / mass + means[:, :, None] * means[:, None, :]
        gram, cross = second[:, :d, :d], second[:, :d, d:]
        if intercept:
            own = np.concatenate([means[:, :d], np.ones((len(means), 1))], axis=1)
            gram = np.concatenate([gram, means[:, None, :d]], axis=1)
            gram = np.concatenate([gram, own[:, :, None]], axis=2)
            cross = np.concatenate([cross, means[:, None, d:]], axis=1)
        return SquaredLosses(
            groups=self.groups,
            counts=self.mass,
            gram=np.ascontiguousarray(gram),
            cross=np.ascontiguousarray(cross),
            square=np.trace(second[:, d:, d:], axis1=1, axis2=2),
            input_shift=shift,
            target_shift=np.zeros(outputs),
            intercept=intercept,
        )

    def factors(self, outputs: int) -> GroupFactors:
        r"""What kriging needs: roots R with :math:`R^\top R = S`, and the targets in their terms."""
        d, m = self.means.shape[1] - outputs, len(self.names)
        roots, targets = np.zeros((m, d + 1, d + 1)), np.zeros((m, d + 1, outputs))
        roots[:, 0, 0] = np.sqrt(self.mass)
        targets[:, 0] = np.sqrt(self.mass)[:, None] * self.means[:, d:]
        left = np.zeros(outputs)
        for place, own in enumerate(self.scatter):
            values, vectors = np.linalg.eigh(own[:d, :d])
            seen = values > d * np.finfo(float).eps * max(float(values[-1]), np.finfo(float).tiny)
            root = np.sqrt(values[seen])
            roots[place, 1 : 1 + len(root), 1:] = root[:, None] * vectors[:, seen].T
            targets[place, 1 : 1 + len(root)] = (vectors[:, seen].T @ own[:d, d:]) / root[:, None]
            left += np.maximum(own.diagonal()[d:] - (targets[place, 1:] ** 2).sum(axis=0), 0.0)
        return GroupFactors(self.groups, self.means[:, :d], roots, targets, left, self.mass)


#: What is added up.
_ARRAYS = ("rows", "mass", "squares", "means", "scatter")


def _places(among: Sequence[Hashable], wanted: Sequence[Hashable]) -> npt.NDArray[np.intp]:
    place_of = {name: place for place, name in enumerate(among)}
    return np.array([place_of[name] for name in wanted], dtype=np.intp)


#: The slot of the column of ones, whose products with the others are their sums.
_ONE = ("one",)


class MomentSums:
    """Sums over portions of one piece of a table, in columns and groups that become more as they are met.

    Numbers are taken less a shift, the mean of the first portion, so that few digits are lost.
    """

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self._slots: dict[Hashable, int] = {_ONE: 0}
        self._shift = np.zeros(1)
        self._rows, self._squares = np.zeros(0, np.int64), np.zeros(0)
        self._products = np.zeros((0, 1, 1))
        self._room = np.empty(0)

    def add(
        self,
        names: Sequence[str],
        codes: npt.NDArray[np.integer],
        columns: dict[Hashable, Array],
        numbers: int,
        weights: Array | None = None,
    ) -> None:
        """Add a portion.

        Parameters
        ----------
        names, codes : the groups, and every row's group among them.
        columns : of z, by slot, the first ``numbers`` of them numbers and the others zeros and ones.
        numbers : how many are to be shifted.
        weights : of the rows, above 0.
        """
        if not len(codes):
            return
        order = None
        if (np.diff(codes) < 0).any():  # short keys are sorted in one pass
            order = np.argsort(codes.astype(np.uint16) if len(names) < 1 << 16 else codes, kind="stable")
        codes = codes if order is None else codes[order]
        starts = np.flatnonzero(np.r_[True, np.diff(codes) > 0])
        at, own = self._grown([names[code] for code in codes[starts]], [_ONE, *columns])
        z = self._rows_of(len(own), len(codes))
        z[0] = 1.0
        for place, (slot, values) in enumerate(zip(own[1:], columns.values(), strict=True)):
            if np.isnan(self._shift[slot]):
                self._shift[slot] = values.mean() if place < numbers else 0.0
            into = z[place + 1]
            if order is not None:
                values = np.take(values, order, out=into, mode="clip")  # else numpy makes a copy in between
            np.subtract(values, self._shift[slot], out=into)
        self._rows[at] += np.diff(np.append(starts, len(codes)))
        if weights is None:
            self._squares[at] += np.diff(np.append(starts, len(codes)))
        else:
            share = weights if order is None else weights[order]
            self._squares[at] += np.add.reduceat(share**2, starts)
            z *= np.sqrt(share)
        self._multiply(z, starts, at, own)

    def _rows_of(self, columns: int, rows: int) -> Array:
        """Room for a portion, used again for the next: new room is slow, for the system clears it."""
        wide = rows + APART
        if self._room.size < columns * wide:
            self._room = np.empty(columns * wide)
        return self._room[: columns * wide].reshape(columns, wide)[:, :rows]

    def _grown(
        self, names: Sequence[str], slots: Sequence[Hashable]
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Room for these groups and columns, and where they are."""
        at = np.array([self.places.setdefault(name, len(self.places)) for name in names], dtype=np.intp)
        own = np.array([self._slots.setdefault(slot, len(self._slots)) for slot in slots], dtype=np.intp)
        m, p = len(self._rows), len(self._shift)
        if len(self.places) > m or len(self._slots) > p:
            more, wide = m if len(self.places) <= m else max(len(self.places), 2 * m), len(self._slots)
            self._shift = np.append(self._shift, np.full(wide - p, np.nan))
            self._rows = np.append(self._rows, np.zeros(more - m, np.int64))
            self._squares = np.append(self._squares, np.zeros(more - m))
            products = np.zeros((more, wide, wide))
            products[:m, :p, :p] = self._products
            self._products = products
        return at, own

    def _multiply(
        self, z: Array, starts: npt.NDArray[np.intp], at: npt.NDArray[np.intp], own: npt.NDArray[np.intp]
    ) -> None:
        ends = np.append(starts[1:], z.shape[1])
        whole = len(own) == self._products.shape[1] and bool((np.diff(own) == 1).all())
        long = ends - starts >= SHORT
        for group, start, end in zip(at[long].tolist(), starts[long].tolist(), ends[long].tolist(), strict=True):
            part = z[:, start:end]
            if whole:
                self._products[group] += part @ part.T
            else:
                self._products[group][np.ix_(own, own)] += part @ part.T
        short = np.flatnonzero(~long)
        if not len(short):
            return
        most = int((ends - starts)[short].max())
        step = max(1, CELLS // (len(own) * max(most, len(own))))
        for first in range(0, len(short), step):
            some = short[first : first + step]
            places = starts[some, None] + np.arange(most)
            inside = places < ends[some, None]
            rows = z[:, np.minimum(places, z.shape[1] - 1)] * inside  # (p, groups, rows)
            rows = rows.transpose(1, 0, 2)
            self._products[np.ix_(at[some], own, own)] += rows @ rows.transpose(0, 2, 1)

    @property
    def columns(self) -> int:
        """How many columns there are so far."""
        return len(self._slots) - 1

    @property
    def bytes(self) -> int:
        """Room that the sums take."""
        return int(self._products.nbytes)

    def total(self) -> GroupMoments:
        """What was added up, in the order of names."""
        names = sorted(self.places)
        order = np.array([self.places[name] for name in names], dtype=np.intp)
        mass, sums = self._products[order, 0, 0], self._products[order, 0, 1:]
        means = sums / mass[:, None]
        scatter = np.empty((len(names), self.columns, self.columns))
        for place, own in enumerate(order.tolist()):
            np.subtract(self._products[own, 1:, 1:], np.outer(means[place], sums[place]), out=scatter[place])
        return GroupMoments(
            tuple(names),
            tuple(self._slots)[1:],
            self._rows[order],
            mass,
            self._squares[order],
            means + self._shift[1:],
            scatter,
        )
