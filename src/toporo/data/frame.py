"""Frames: columns of numbers, dates and text, read from tables of any source, whole or in portions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toporo.data.columns import Column as Column
from toporo.data.columns import Numbers as Numbers
from toporo.data.columns import OtherKindError as OtherKindError
from toporo.data.columns import Rows, joined, kind_of_cells, numbers_of, texts_of
from toporo.data.columns import Texts as Texts
from toporo.data.columns import number as number
from toporo.data.table import CHUNK_ROWS, Table, find_table
from toporo.errors import DataError, UnknownNameError, listed

#: A packed table read whole may take 256 MiB, and beyond that a thousand times the size of its files.
ALWAYS, RATIO = 1 << 28, 1000
_PORTION = 65_536  # rows read at a time


@dataclass(frozen=True, eq=False)
class Frame:
    """Columns of one length by name.

    Attributes
    ----------
    columns : in the order of the table.
    where : the table for messages: "sales.csv", "standard input", "the data frame".
    first : the number of the first row, where the one after the header is 1.
    unusable : columns that are neither numbers nor dates nor text, each with the reason.
    """

    columns: dict[str, Column]
    where: str = "the data frame"
    first: int = 1
    unusable: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> Column:
        if name in self.columns:
            return self.columns[name]
        if name in self.unusable:
            raise _unusable(name, self.where, self.unusable[name])
        raise UnknownNameError("column", name, self.columns)

    def take(self, rows: Rows) -> Frame:
        """Return some rows, numbered from 1, by position or by a mask."""
        return replace(self, columns={name: column.take(rows) for name, column in self.columns.items()}, first=1)

    def text(self, name: str) -> Texts:
        """Return a column of any kind as text."""
        column = self[name]
        return column if isinstance(column, Texts) else column.as_text()

    @classmethod
    def joined(cls, frames: Sequence[Frame]) -> Frame:
        """Join portions of one table; the numbers are copied.

        Parameters
        ----------
        frames : with the same columns, in the order of the rows.
        """
        columns = {name: joined([frame.columns[name] for frame in frames]) for name in frames[0].names}
        return replace(frames[0], columns=columns)


class NoRowsError(DataError):
    """A table without rows, which as a part of one that has some does no harm."""


# ---------------------------------------------------------------------- reading


def read_frame(
    source: Any,
    *,
    text: Iterable[str] = (),
    columns: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    delimiter: str = ",",
) -> Frame:
    """Read a whole table.

    In a CSV file a column holds numbers if each of its cells that is not missing is one, else dates if each is one as
    ISO 8601 writes it (with a zone in all cells or in none; without one they are taken for UTC), else text; a column of
    missing cells alone holds numbers. Elsewhere columns have types: categories and booleans are text. Columns without a
    name are dropped, and so are row labels that pandas wrote and named itself.

    Parameters
    ----------
    source : anything that :func:`toporo.data.table.find_table` takes, or a :class:`Frame`.
    text : columns to keep as text, as they are written: 01 is not 1. One that is not there does no harm.
    columns : the only ones to read; all unless given.
    exclude : columns not to read.
    delimiter : separates the cells of a CSV file.
    """
    table = source if isinstance(source, Frame) else find_table(source, delimiter=delimiter)
    only = None if columns is None else _names(columns)
    as_text, out, known = _names(text), _names(exclude), [*table.names, *table.unusable]
    for name in sorted(out | (only or set())):
        if name not in known:
            raise UnknownNameError("column", name, known)
    chosen = [name for name in known if name not in out and (only is None or name in only)]
    names = [name for name in dict.fromkeys(chosen) if name not in table.unusable]
    unusable = {name: why for name, why in table.unusable.items() if name in chosen}
    if isinstance(table, Frame):
        kept = {name: table.text(name) if name in as_text else table[name] for name in names}
        return replace(table, columns=kept, unusable=unusable)
    if not names:
        why = "; ".join(f"{name!r}: {reason}" for name, reason in unusable.items())
        raise DataError(f"{table.where} has no column that can be used{f' ({why})' if why else ''}.")
    head = head_frame(table, names).columns if not table.kinds else {}
    kinds = {name: "text" if name in as_text else head[name].kind if head else table.kinds[name] for name in names}
    while True:
        try:
            frame = _whole(table, kinds)
        except OtherKindError as error:
            kinds[error.column] = error.kind
        else:
            return replace(frame, unusable=unusable)


def _whole(table: Table, kinds: Mapping[str, str]) -> Frame:
    """Read columns of known kinds, unless they unpack to more than any table takes."""
    frames: list[Frame] = []
    size, most = 0, ALWAYS + RATIO * table.size
    for batch in table.batches(list(kinds), _PORTION if table.size else CHUNK_ROWS):
        size += sum(array.nbytes + 8 * len(array) for array in batch[2])  # as read, and as numbers
        if table.size and size > most and table.format != "csv":
            raise DataError(
                f"{table.where} unpacks to more than {RATIO:,} times its size and {ALWAYS >> 20} MiB: no table does. "
                "Write it anew, with fewer rows or columns if need be."
            )
        frames.append(_frame(*batch, kinds))
    if not frames:
        raise _no_rows(table)
    return replace(Frame.joined(frames), where=table.where, first=1)


def stream_frames(
    source: Any, kinds: Mapping[str, str], *, optional: Iterable[str] = (), delimiter: str = ",", rows: int = _PORTION
) -> Iterator[Frame]:
    """Read columns of known kinds a portion of at most ``rows`` rows at a time, in memory that does not grow.

    Parameters
    ----------
    source, delimiter : as in :func:`read_frame`.
    kinds : "number", "date" or "text" by column; a cell that is not of its kind is an error.
    optional : those of them that need not be there.
    """
    table = find_table(source, delimiter=delimiter)
    absent = [name for name in kinds if name not in table.names and name not in _names(optional)]
    present = {name: kind for name, kind in kinds.items() if name in table.names}
    if absent or not present:
        raise DataError(
            f"{table.where} lacks the column(s) {listed(absent or kinds)}. It has: "
            f"{listed(table.names, 20)}. Rename or add what is missing."
        )
    any_rows = False
    for frame in frames_of(table, present, rows):
        any_rows = True
        yield frame
    if not any_rows:
        raise _no_rows(table)


def frames_of(table: Table, kinds: Mapping[str, str], rows: int) -> Iterator[Frame]:
    """Read columns of a table a portion at a time; numbers may be read-only.

    Parameters
    ----------
    table : that has these columns.
    kinds : by column; a cell that is not of its kind is an :class:`OtherKindError`.
    rows : of a portion at most.
    """
    for name in kinds:
        if name in table.unusable:
            raise _unusable(name, table.where, table.unusable[name])
    for batch in table.batches(list(kinds), rows):
        yield _frame(*batch, kinds)


def head_frame(table: Table, names: Sequence[str]) -> Frame:
    """Read the first rows of a table; cells get the kind that these rows suggest.

    Parameters
    ----------
    table : that has these columns.
    names : the columns to read.
    """
    usable = [name for name in names if name not in table.unusable]
    batch = next(table.batches(usable, _PORTION), None)
    if batch is None:
        raise _no_rows(table)
    arrays = zip(usable, batch[2], strict=True)
    kinds = {name: table.kinds[name] if table.kinds else kind_of_cells(array) for name, array in arrays}
    unusable = {name: table.unusable[name] for name in names if name in table.unusable}
    return replace(_frame(*batch, kinds), where=table.where, unusable=unusable)


def _names(given: Iterable[str]) -> set[str]:
    return {given} if isinstance(given, str) else set(given)


def _no_rows(table: Table) -> NoRowsError:
    return NoRowsError(f"{table.where} has a header but no rows: expected a line of values for every point.")


def _unusable(name: str, where: str, why: str) -> DataError:
    return DataError(f"column {name!r} of {where} cannot be used: {why}. Convert the column, or leave it out.")


def _frame(where: str, first: int, arrays: Sequence[Any], kinds: Mapping[str, str]) -> Frame:
    """Return arrays as columns of their kinds."""
    frame = Frame({}, where, first)
    for array, (name, kind) in zip(arrays, kinds.items(), strict=True):
        frame.columns[name] = texts_of(array) if kind == "text" else numbers_of(array, kind, name, where, first)
    return frame
