"""What metrics need to know of rows, by group: a *tally*, and tallies of some rows and of others can be put together.

So predictions are judged a portion of a table at a time: of a group of more than
:data:`~toporo.tables.resample.EXACT_ROWS` rows only moments are kept, of smaller ones the few numbers of every row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.tables import resample
from toporo.tables.resample import LossMoments, Metrics, Sample, Whole
from toporo.types import Array

#: The largest number that is judged, and the power of 2 beyond which numbers are reckoned in another unit.
LARGEST_TARGET, MIDDLE = 1e300, 200
#: Spread of a resample's target, relative to its size, below which there is nothing but rounding.
NO_SPREAD = 1e-12
#: All rows, those inside of what validation has seen, and the others.
ALL, INSIDE, OUTSIDE = "all", "inside", "outside"

Cell = tuple[Any, bool]


@dataclass(frozen=True)
class Judge:
    """What is looked at in a row: ``"errors"`` (target and error), ``"loss"``, ``"width"``, ``"set_size"`` or none.

    Rows are counted too, in cells: of classes, by whether each was recognised, or of rows inside their interval.
    """

    what: str
    classes: bool = False

    def unit(self, size: int) -> int:
        """The power of 2 to reckon in, for numbers below this one."""
        if self.what == "errors":  # else squares, or the squares of those, would be infinite or nothing
            return size - min(max(size, -MIDDLE), MIDDLE)
        return size if self.what in ("width", "set_size") else 0

    def losses(self, raw: Array, unit: int) -> tuple[Array, float]:
        """Losses of rows, in an order that follows from them, and the number that was subtracted from the target."""
        if self.what != "errors":
            return np.ldexp(np.sort(raw, axis=1), -unit), 0.0
        order = np.lexsort((raw[1], raw[0]))
        target, error = np.ldexp(raw[0][order], -unit), np.ldexp(raw[1][order], -unit)
        centre = float(target[len(target) // 2]) + 0.0
        apart = target - centre
        return np.stack([error**2, np.abs(error), apart, apart**2]), centre

    def moments(self, raw: Array, unit: int) -> LossMoments:
        """Of rows."""
        losses, centre = self.losses(raw, unit)
        return LossMoments.of(np.ascontiguousarray(losses) + 0.0, centre, unit)

    def metrics(self, unit: int) -> Metrics:
        """Of sums in a unit."""
        if self.what == "errors":
            return lambda sums: _errors(sums, unit)
        if self.classes:
            return _hits_and_loss if self.what else _hits
        return lambda sums: _covered(sums, self.what, unit)


@dataclass(frozen=True, eq=False)
class Tally:
    """Of the rows of a group, by one judge.

    Attributes
    ----------
    rows : how many.
    cells : rows by cell.
    held : of few rows, the numbers of each, (some, rows); of more, their moments.
    """

    rows: int
    cells: Mapping[Cell, int]
    held: Array | LossMoments

    @classmethod
    def of(cls, judge: Judge, raw: Array, cells: Mapping[Cell, int], unit: int) -> Tally:
        """Of rows."""
        rows = raw.shape[1]
        return cls(rows, cells, raw if rows <= resample.EXACT_ROWS else judge.moments(raw, unit))

    def and_of(self, other: Tally, judge: Judge) -> Tally:
        """Of both's rows."""
        cells = dict(self.cells)
        for cell, count in other.cells.items():
            cells[cell] = cells.get(cell, 0) + count
        if isinstance(self.held, LossMoments) or isinstance(other.held, LossMoments):
            return Tally(self.rows + other.rows, cells, self._moments(judge).and_of(other._moments(judge)))
        raw = np.concatenate([self.held, other.held], axis=1)
        return Tally.of(judge, raw, cells, judge.unit(_size(raw)))

    def _moments(self, judge: Judge) -> LossMoments:
        held = self.held
        return held if isinstance(held, LossMoments) else judge.moments(held, judge.unit(_size(held)))

    def sample(self, judge: Judge, cells: Sequence[Cell], unit: int) -> Sample:
        """As the bootstrap takes it."""
        counts = np.asarray([self.cells.get(cell, 0) for cell in cells], dtype=np.float64)
        if isinstance(self.held, LossMoments):
            return Sample(self.held.within(unit), counts)
        losses, centre = judge.losses(self.held, unit)
        return Sample(losses, counts, centre)


@dataclass(frozen=True, eq=False)
class Seen:
    """Rows to be judged: for each judge the numbers of every row, and which cell it is in.

    Attributes
    ----------
    judges : what is looked at.
    raw : for each judge, (some, rows).
    places : for each judge every row's place in ``cells``; None where it counts none.
    cells : for each judge.
    outside : whether each row is outside of what validation has seen; None if that is not known.
    off : how far each row's target is from a constant; None if none is known.
    """

    judges: tuple[Judge, ...]
    raw: tuple[Array, ...]
    places: tuple[Whole | None, ...]
    cells: tuple[tuple[Cell, ...], ...]
    outside: npt.NDArray[np.bool_] | None = None
    off: Array | None = None

    @classmethod
    def joined(cls, several: Sequence[Seen]) -> Seen:
        """Of consecutive rows, those of several."""
        first = several[0]
        if len(several) == 1:
            return first
        cells, places = [], []
        for number in range(len(first.judges)):
            index = {
                cell: place for place, cell in enumerate(dict.fromkeys(c for s in several for c in s.cells[number]))
            }
            cells.append(tuple(index))
            moved = [
                np.asarray([index[cell] for cell in each.cells[number]], dtype=np.int64)[own]
                for each in several
                if (own := each.places[number]) is not None
            ]
            places.append(np.concatenate(moved) if moved else None)
        return cls(
            judges=first.judges,
            raw=tuple(np.concatenate([each.raw[k] for each in several], axis=1) for k in range(len(first.judges))),
            places=tuple(places),
            cells=tuple(cells),
            outside=_joined([each.outside for each in several]),
            off=_joined([each.off for each in several]),
        )

    def take(self, rows: slice) -> Seen:
        """Some of the rows."""
        return replace(
            self,
            raw=tuple(raw[:, rows] for raw in self.raw),
            places=tuple(None if places is None else places[rows] for places in self.places),
            outside=None if self.outside is None else self.outside[rows],
            off=None if self.off is None else self.off[rows],
        )


def _joined(parts: Sequence[npt.NDArray[Any] | None]) -> npt.NDArray[Any] | None:
    there = [part for part in parts if part is not None]
    return np.concatenate(there) if there else None


@dataclass(eq=False)
class Tallies:
    """Of a table or a part of it.

    Attributes
    ----------
    judges : what is looked at.
    sizes : for each judge the power of 2 below which its numbers are.
    groups : tallies by where rows are, group and judge.
    pooled : the same of all groups together.
    off : of saying the same of every row, by group: the largest number, and the sum of squares in its unit.
    """

    judges: tuple[Judge, ...]
    sizes: list[int] = field(default_factory=list)
    groups: dict[str, dict[str, list[Tally]]] = field(default_factory=dict)
    pooled: dict[str, list[Tally]] = field(default_factory=dict)
    off: dict[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, seen: Seen, codes: Whole, names: Sequence[str]) -> Tallies:
        """Of rows, each of the group with its code."""
        tallies = cls(seen.judges, [_size(raw) for raw in seen.raw])
        order = np.argsort(codes, kind="stable")
        wheres: dict[str, Whole] = {ALL: order}
        if seen.outside is not None:
            wheres |= {INSIDE: order[~seen.outside[order]], OUTSIDE: order[seen.outside[order]]}
        for where, rows in wheres.items():
            if len(rows):
                bounds = np.flatnonzero(np.diff(codes[rows])) + 1
                tallies.groups[where] = {
                    names[codes[each[0]]]: tallies._each(seen, each) for each in np.split(rows, bounds)
                }
                tallies.pooled[where] = tallies._each(seen, rows)
        if seen.off is not None:
            tallies.off = _off(seen.off, codes, names)
        return tallies

    def _each(self, seen: Seen, rows: Whole) -> list[Tally]:
        tallies = []
        for judge, size, raw, places, cells in zip(
            seen.judges, self.sizes, seen.raw, seen.places, seen.cells, strict=True
        ):
            counts = np.bincount(places[rows], minlength=len(cells)).tolist() if places is not None else []
            held = {cell: count for cell, count in zip(cells, counts, strict=False) if count}
            tallies.append(Tally.of(judge, raw[:, rows], held, judge.unit(size)))
        return tallies

    def add(self, other: Tallies) -> None:
        """Put those of further rows to these; the order of doing so makes a difference to rounding alone."""
        self.sizes = [max(pair) for pair in zip(self.sizes, other.sizes, strict=True)] if self.sizes else other.sizes
        for where, groups in other.groups.items():
            own = self.groups.setdefault(where, {})
            for name, tallies in groups.items():
                own[name] = self._both(own[name], tallies) if name in own else tallies
            mine = self.pooled.get(where)
            self.pooled[where] = other.pooled[where] if mine is None else self._both(mine, other.pooled[where])
        for name, (peak, squares) in other.off.items():
            before, sum_before = self.off.get(name, (peak, 0.0))
            unit = max(peak, before)
            total = sum_before * (before / unit) ** 2 + squares * (peak / unit) ** 2
            self.off[name] = (unit, total)

    def _both(self, one: list[Tally], other: list[Tally]) -> list[Tally]:
        return [a.and_of(b, judge) for a, b, judge in zip(one, other, self.judges, strict=True)]

    @property
    def held(self) -> int:
        """About how many bytes these are."""
        small = (tally.held.nbytes for groups in self.groups.values() for each in groups.values() for tally in each
                 if not isinstance(tally.held, LossMoments))  # fmt: skip
        return sum(small) + 2000 * sum(map(len, self.groups.values()))

    def samples(self, where: str, known: Sequence[Any]) -> Iterable[tuple[dict[str, Sample], Sample, Metrics]]:
        """For each judge the samples of groups and of all together, and its metrics; ``known`` classes come first."""
        for place, (judge, size) in enumerate(zip(self.judges, self.sizes, strict=True)):
            unit, cells = judge.unit(size), self._cells(place, known)
            of_groups = {
                name: tallies[place].sample(judge, cells, unit) for name, tallies in self.groups[where].items()
            }
            yield of_groups, self.pooled[where][place].sample(judge, cells, unit), judge.metrics(unit)

    def _cells(self, place: int, known: Sequence[Any]) -> list[Cell]:
        """All cells of a judge: not as met, for the order of rows must not matter."""
        held = self.pooled[ALL][place].cells
        if not held:
            return []
        if not self.judges[place].classes:
            return [(None, False), (None, True)]
        others = sorted({label for label, _ in held}.difference(known))
        return [(label, hit) for label in [*known, *others] for hit in (False, True)]

    def rows(self, where: str) -> dict[str, int]:
        """How many there are, by group."""
        return {name: tallies[0].rows for name, tallies in sorted(self.groups.get(where, {}).items())}

    def constant(self) -> dict[str, float]:
        """The leading metric by group of saying the same of every row."""
        counts = self.rows(ALL)
        if self.judges[0].classes:
            return {name: squares / counts[name] for name, (_, squares) in sorted(self.off.items())}
        return {name: peak * math.sqrt(squares / counts[name]) for name, (peak, squares) in sorted(self.off.items())}


def _size(raw: Array) -> int:
    """The power of 2 below which numbers are."""
    return int(np.frexp(np.abs(raw).max(initial=0.0))[1])


def _off(off: Array, codes: Whole, names: Sequence[str]) -> dict[str, tuple[float, float]]:
    order = np.lexsort((off, codes))  # another order of rows must not round otherwise
    off, codes = off[order], codes[order]
    unit = float(off.max()) or 1.0  # squares of huge numbers would be infinite
    squares = np.bincount(codes, (off / unit) ** 2, len(names))
    return {names[code]: (unit, float(squares[code])) for code in np.unique(codes).tolist()}


# ---------------------------------------------------------------- metrics as functions of sums over rows


def _errors(sums: Array, unit: int) -> dict[str, Array]:
    """Of sums in a unit that is this power of 2."""
    rows, squared, absolute, target, spread = sums.T
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        varies = spread / rows - (target / rows) ** 2
        varies = np.where(varies > NO_SPREAD * spread / rows, varies, np.nan)
        rmse, mae = np.ldexp(np.sqrt(squared / rows), unit), np.ldexp(absolute / rows, unit)
        return {"rmse": rmse, "mae": mae, "r2": 1.0 - squared / rows / varies}


def _covered(sums: Array, name: str, unit: int) -> dict[str, Array]:
    """Of intervals, apart from what predictions are judged by: that is to stay the same with and without them."""
    shares = {"coverage": sums[:, -1] / sums[:, 0]}
    return shares | {name: np.ldexp(sums[:, 1] / sums[:, 0], unit)} if name else shares


def _hits(sums: Array) -> dict[str, Array]:
    rows, wrong, right = sums[:, 0], sums[:, 1::2], sums[:, 2::2]
    with np.errstate(divide="ignore", invalid="ignore"):
        seen = wrong + right
        recall = np.where(seen > 0, right / seen, 0.0).sum(axis=1)
        many = np.count_nonzero(seen, axis=1)
        return {"accuracy": right.sum(axis=1) / rows, "balanced_accuracy": np.where(many > 1, recall / many, np.nan)}


def _hits_and_loss(sums: Array) -> dict[str, Array]:
    hits = _hits(np.delete(sums, 1, axis=1))
    return {
        "accuracy": hits["accuracy"],
        "log_loss": sums[:, 1] / sums[:, 0],
        "balanced_accuracy": hits["balanced_accuracy"],
    }
