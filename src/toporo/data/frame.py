"""Frames: columns of numbers, dates and text, read from files and data frames of any kind, whole or in portions.

White space around names and cells does not count. An absent number or date is written as one of ``MISSING``; an absent
text is an empty cell and nothing else, for ``NA`` may be Namibia and ``none`` an answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.data.arrow import STRINGS, kind_of
from toporo.data.cells import shown
from toporo.data.formats import bomb_error
from toporo.data.table import CHUNK_ROWS, Batch, Chunk, Table, find_table
from toporo.errors import DataError, SettingError, UnknownNameError, listed
from toporo.types import Array

Rows = npt.NDArray[Any] | Sequence[int] | Sequence[bool] | slice

#: How an absent number is written, in small letters; an absent group is an empty cell and nothing else.
MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "null", "none"})
_KINDS = {"number": "a number", "date": "a date (2024-05-31, perhaps with a time)", "text": "text"}
_PORTION = 65_536  # rows read at a time
_DAY = 86_400_000_000  # in microseconds
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d(:\d\d){0,2}([.,]\d+)?(Z|[+-]\d\d:?\d\d)?)?", flags=re.ASCII)


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of numbers, NaN where one is missing; ``kind`` is "number", or "date" for days since 1970-01-01."""

    values: Array
    kind: str = "number"

    def __len__(self) -> int:
        return len(self.values)

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Mask of the rows that have no value."""
        return np.isnan(self.values)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The least and the largest value; NaN if one is missing, or there are none."""
        return (float(self.values.min()), float(self.values.max())) if len(self.values) else (np.nan, np.nan)

    def take(self, rows: Rows) -> Numbers:
        """Return some rows, by position or by a mask."""
        return replace(self, values=self.values[rows if isinstance(rows, slice) else np.asarray(rows)])

    def as_text(self) -> Texts:
        """Return the same column as text: 3 is "3", 2.5 is "2.5", day 1 is "1970-01-02"."""
        distinct, codes = np.unique(self.values, return_inverse=True)
        written = [None if np.isnan(value) else _written(value, self.kind) for value in distinct.tolist()]
        return _texts(written, codes)


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of text: ``levels`` are what occurs, sorted, and ``codes`` which of them a row has, -1 for none."""

    codes: npt.NDArray[np.int32]
    levels: tuple[str, ...]

    kind = "text"

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Mask of the rows that have no value."""
        return self.codes < 0

    def take(self, rows: Rows) -> Texts:
        """Return some rows, by position or by a mask, with the levels that occur in them."""
        codes = self.codes[rows if isinstance(rows, slice) else np.asarray(rows)]
        return _texts(self.levels, codes)

    def known(self) -> Texts:
        """Return the same column with NA, null, none and the like (``MISSING``) as missing."""
        return _texts([None if level.lower() in MISSING else level for level in self.levels], self.codes)

    def tolist(self) -> list[str | None]:
        """Return the text of every row."""
        return [None if code < 0 else self.levels[code] for code in self.codes.tolist()]


Column = Numbers | Texts


@dataclass(frozen=True, eq=False)
class Frame:
    """Columns of one length by name.

    Attributes
    ----------
    columns : in the order of the table.
    where : the table for messages: "sales.csv", "standard input", "the data frame".
    first : the number of the first row, where the one after the header is 1.
    unusable : columns that are neither numbers nor dates nor text, each with the reason.
    written : some of the columns as the table has them written: 007 rather than 7.
    """

    columns: dict[str, Column]
    where: str = "the data frame"
    first: int = 1
    unusable: dict[str, str] = field(default_factory=dict)
    written: dict[str, Texts] = field(default_factory=dict)

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
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        written = {name: column.take(rows) for name, column in self.written.items()}
        return replace(self, columns=columns, first=1, written=written)

    def text(self, name: str) -> Texts:
        """Return a column of any kind as text."""
        column = self.written[name] if name in self.written else self[name]
        return column if isinstance(column, Texts) else column.as_text()

    @classmethod
    def joined(cls, frames: Sequence[Frame]) -> Frame:
        """Join portions of one table.

        Parameters
        ----------
        frames : with the same columns, in the order of the rows.
        """
        first = frames[0]
        if len(frames) == 1:
            return first
        columns = {name: _joined([frame.columns[name] for frame in frames]) for name in first.names}
        return replace(first, columns=columns, written={})

    def distinct(self, name: str) -> int:
        """Count the different values of a column, without missing ones."""
        column = self[name]
        if isinstance(column, Texts):
            return len(column.levels)
        return len(np.unique(column.values[~column.missing]))


def _joined(parts: Sequence[Column]) -> Column:
    if isinstance(parts[0], Numbers):
        return Numbers(np.concatenate([part.values for part in parts if isinstance(part, Numbers)]), parts[0].kind)
    texts = [part for part in parts if isinstance(part, Texts)]
    levels = sorted({level for part in texts for level in part.levels})
    place_of = {level: place for place, level in enumerate(levels)}
    # The last entry is for code -1, which is a missing value.
    codes = [np.array([*(place_of[level] for level in part.levels), -1], np.int32)[part.codes] for part in texts]
    return Texts(np.concatenate(codes), tuple(levels))


class OtherKindError(DataError):
    """A cell is not of the kind that its column was taken for."""

    def __init__(self, message: str, column: str = "") -> None:
        super().__init__(message)
        self.column = column


def read_frame(
    source: Any,
    *,
    text: Iterable[str] = (),
    columns: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    format: str | None = None,  # noqa: A002
    delimiter: str = ",",
) -> Frame:
    """Read a whole table.

    In a CSV file a column holds numbers if each of its cells that is not missing is one, else dates if each is one as
    ISO 8601 writes it (a time without a zone is taken for UTC), else text; a column of missing cells alone holds
    numbers. Elsewhere columns have types: categories and booleans are text. Columns without a name are dropped,
    and so are row labels that pandas wrote and named itself.

    Parameters
    ----------
    source : a path (.csv, .tsv, .txt, each also with .gz; .parquet, .feather, .arrow), a folder of such files, a
        pattern, an address such as ``s3://bucket/folder``, a stream of bytes, a data frame of pandas, polars or
        pyarrow, a mapping of names to sequences (see :func:`toporo.data.table.find_table`), or a :class:`Frame`.
    text : columns to keep as text, as they are written: 01 is not 1. One that is not there does no harm.
    columns : the only ones to read; all unless given.
    exclude : columns not to read.
    format : "csv", "parquet" or "feather", where the ending of a path does not say it.
    delimiter : what stands between the cells of a CSV file.
    """
    as_text = _names(text)
    if isinstance(source, Frame):
        return _of_frame(source, as_text, columns, exclude)
    table = find_table(source, format=format, delimiter=delimiter)
    names = _chosen(table, columns, exclude)
    unusable = {name: table.unusable[name] for name in names if name in table.unusable}
    names = [name for name in names if name not in unusable]
    if not names:
        why = "; ".join(f"{name!r}: {reason}" for name, reason in unusable.items())
        raise DataError(f"{table.where} has no column that can be used{f' ({why})' if why else ''}.")
    kinds = {name: "text" if name in as_text else table.kinds.get(name, "") for name in names}
    portions: list[Any] = []
    size = 0
    for batch in table.batches(names, _PORTION if table.size else CHUNK_ROWS):
        size += sum(array.nbytes + 8 * len(array) for array in batch.arrays)  # as read, and as numbers
        if size > table.most:
            raise bomb_error(table.where)
        portions.append(batch.arrays if table.cells else _frame(batch, kinds))
    if not portions:
        raise _no_rows(table.where)
    if not table.cells:
        return replace(Frame.joined(portions), where=table.where, first=1, unusable=unusable)
    return Frame(_guess(names, portions, table.where, as_text), table.where)


def stream_frames(
    source: Any,
    kinds: Mapping[str, str],
    *,
    optional: Iterable[str] = (),
    written: Iterable[str] = (),
    format: str | None = None,  # noqa: A002
    delimiter: str = ",",
    rows: int = _PORTION,
) -> Iterator[Frame]:
    """Read columns of known kinds a portion of at most ``rows`` rows at a time, in memory that does not grow.

    Parameters
    ----------
    source, format, delimiter : as in :func:`read_frame`.
    kinds : "number", "date" or "text" by column; a cell that is not of its kind is an error.
    optional : those of them that need not be there.
    written : those of them to have as they are written, too (:attr:`Frame.written`).
    """
    wrong = {name: kind for name, kind in kinds.items() if kind not in _KINDS}
    if wrong:
        raise SettingError(f"unknown kind(s) of column: {wrong}. Expected one of {listed(_KINDS)}.")
    if rows < 1:
        raise SettingError(f"rows is {rows}: expected at least 1.")
    table = find_table(source, format=format, delimiter=delimiter)
    absent = [name for name in kinds if name not in table.names and name not in _names(optional)]
    if absent:
        raise DataError(
            f"{table.where} lacks the column(s) {listed(absent)}. It has: {listed(filter(None, table.names), 20)}. "
            "Rename or add what is missing."
        )
    present = {name: kind for name, kind in kinds.items() if name in table.names}
    if not present:
        raise DataError(f"{table.where} has none of the column(s) {listed(kinds)}.")
    any_rows = False
    for frame in frames_of(table, present, rows, written=_names(written)):
        any_rows = True
        yield frame
    if not any_rows:
        raise _no_rows(table.where)


def frames_of(
    table: Table,
    kinds: Mapping[str, str],
    rows: int,
    chunk: Chunk | None = None,
    *,
    copy: bool = True,
    written: Collection[str] = (),
) -> Iterator[Frame]:
    """Read columns of a table a portion at a time.

    Parameters
    ----------
    table : that has these columns.
    kinds : by column; a cell that is not of its kind is an :class:`OtherKindError`.
    rows : of a portion at most.
    chunk : the only chunk to read.
    copy : give every frame numbers of its own; else they may be read-only.
    written : as for :func:`stream_frames`.
    """
    for name in kinds:
        if name in table.unusable:
            raise _unusable(name, table.where, table.unusable[name])
    for batch in table.batches(list(kinds), rows, chunk):
        if len(batch.arrays[0]):
            yield _frame(batch, kinds, copy=copy, written=written)


def head_frame(table: Table, names: Sequence[str], chunk: Chunk) -> Frame:
    """Read the first rows of a chunk; cells get the kind that these rows suggest.

    Parameters
    ----------
    table : that has these columns.
    names : the columns to read.
    chunk : one of the table's.
    """
    kinds = {name: table.kinds.get(name, "") for name in names if name not in table.unusable}
    batch = next(table.batches(list(kinds), _PORTION, chunk), None)
    if batch is None:
        raise _no_rows(table.where)
    if table.cells:
        return Frame(_guess(names, [batch.arrays], batch.where, set()), table.where)
    return replace(_frame(batch, kinds), unusable={n: table.unusable[n] for n in names if n in table.unusable})


def _of_frame(frame: Frame, text: set[str], columns: Iterable[str] | None, exclude: Iterable[str]) -> Frame:
    """Return columns of a frame as :func:`read_frame` would read them."""
    out, only = _names(exclude), None if columns is None else _names(columns)
    for name in sorted(out | (only or set())):
        if name not in frame.columns and name not in frame.unusable:
            raise UnknownNameError("column", name, frame.names)
    kept = [name for name in frame.names if name not in out and (only is None or name in only)]
    unusable = {name: why for name, why in frame.unusable.items() if name not in out}
    whole = {name: frame.text(name) if name in text else frame[name] for name in kept}
    return replace(frame, columns=whole, unusable=unusable)


def _names(given: Iterable[str]) -> set[str]:
    return {given} if isinstance(given, str) else set(given)


def _unusable(name: str, where: str, why: str) -> DataError:
    return DataError(f"column {name!r} of {where} cannot be used: {why}. Convert the column, or leave it out.")


class NoRowsError(DataError):
    """A table without rows, which as a part of one that has some does no harm."""


def _no_rows(where: str) -> NoRowsError:
    return NoRowsError(f"{where} has a header but no rows: expected a line of values for every point.")


def _chosen(table: Table, columns: Iterable[str] | None, exclude: Iterable[str]) -> list[str]:
    """Return the columns to read, in the order of the table."""
    out, only = _names(exclude), None if columns is None else _names(columns)
    known = [name for name in table.names if name]
    for name in sorted(out | (only or set())):
        if name not in known:
            raise UnknownNameError("column", name, known)
    return [name for name in known if name not in out and (only is None or name in only)]


# ---------------------------------------------------------------------- kinds of columns


def _guess(names: Sequence[str], portions: Sequence[list[Any]], where: str, as_text: set[str]) -> dict[str, Column]:
    """Find the kinds of columns of cells; drops the arrays from ``portions``, for cells take more room than numbers."""
    import pyarrow as pa

    columns: dict[str, Column] = {}
    for name in names:
        cells = pa.chunked_array([arrays.pop(0) for arrays in portions])
        column = _as_texts(cells) if name in as_text else _guess_kind(cells)
        columns[name] = column if isinstance(column, Texts) else _finite(column, where, name, 1)
    return columns


def _guess_kind(cells: Any) -> Column:
    """Return cells as numbers if each is one, else as dates if each is one, else as text."""
    for kind, parse in (("number", _number_cells), ("date", _date_cells)):
        values, odd = _parsed(cells, parse)
        if odd is None:
            return Numbers(values, kind)
    return _as_texts(cells)


def _frame(batch: Batch, kinds: Mapping[str, str], *, copy: bool = True, written: Collection[str] = ()) -> Frame:
    """Return the columns of a batch as their kinds."""
    import pyarrow as pa

    frame = Frame({}, batch.where, batch.first)
    for name, array in zip(kinds, batch.arrays, strict=True):
        frame.columns[name] = _of_kind(array, kinds[name], batch, name, copy)
        if name in written and kinds[name] != "text":
            frame.written[name] = _as_texts(pa.chunked_array([array]))
    return frame


def _of_kind(array: Any, kind: str, batch: Batch, name: str, copy: bool) -> Column:
    """Return an array as a column of a kind."""
    import pyarrow as pa

    column = pa.chunked_array([array])
    stored = kind_of(column.type)
    if kind == "text":
        return _as_texts(column)
    if stored == "text" and not pa.types.is_boolean(column.type):
        values, odd = _parsed(_strings(column), _number_cells if kind == "number" else _date_cells)
        if odd is not None:
            raise OtherKindError(
                f"{batch.where}, row {batch.first + odd}, column {name!r}: {shown(str(column[odd]))} is not "
                f"{_KINDS[kind]}, which is what the column must hold. Correct the cell, or leave it empty if the value "
                "is not known.",
                name,
            )
    elif stored == kind == "number" and pa.types.is_float64(array.type) and not (copy or array.null_count):
        values = array.to_numpy()
    elif stored == kind:
        values = _values(column, kind)
    elif column.null_count == len(column):
        values = np.full(len(column), np.nan)
    else:
        raise DataError(
            f"{batch.where}, column {name!r}: it holds values of type {column.type}, but each must be {_KINDS[kind]}. "
            "Convert the column."
        )
    return _finite(Numbers(values, kind), batch.where, name, batch.first)


def _finite(numbers: Numbers, where: str, name: str, first: int) -> Numbers:
    """Return a column of numbers unchanged; refuse an infinite number."""
    if np.isfinite(numbers.ends).all():
        return numbers
    infinite = np.isinf(numbers.values)
    if infinite.any():
        raise DataError(
            f"{where} holds {int(infinite.sum())} infinite value(s) (first: row {first + int(infinite.argmax())}, "
            f"column {name!r}). Correct them, empty those cells, or exclude the column."
        )
    return numbers


def _values(column: Any, kind: str) -> Array:
    """Return numbers, or days since 1970-01-01, of a column of such a type."""
    import pyarrow as pa

    if kind == "number":
        if not pa.types.is_float16(column.type):
            column = column.cast(pa.float64(), safe=False)
        return np.array(column.to_numpy(), dtype=np.float64)  # a copy: the original may belong to a portion
    moments = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False)
    return np.asarray(moments.cast(pa.int64()).to_numpy(), dtype=np.float64) / _DAY


# ---------------------------------------------------------------------- cells


def number(cell: str) -> float | None:
    """Return the number that a cell holds, NaN if it stands for a missing one; None for other cells."""
    cell = cell.strip()
    if cell.lower() in MISSING:
        return float("nan")
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _parsed(column: Any, parse: Any) -> tuple[Array, int | None]:
    """Parse all cells, up to the position of the first that cannot be parsed."""
    values, start = np.empty(len(column)), 0
    for chunk in column.chunks:
        parsed, odd = parse(chunk)
        if odd is not None:
            return values, start + odd
        values[start : start + len(chunk)] = parsed
        start += len(chunk)
    return values, None


def _number_cells(cells: Any) -> tuple[Any, int | None]:
    """Parse cells as numbers: by pyarrow where it and Python agree on all, else by Python."""
    import pyarrow as pa

    try:
        values = cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
        if not np.isnan(values).any():
            return values, None
    except pa.ArrowInvalid:
        pass
    stripped, missing = _stripped(cells)
    try:
        values = stripped.cast(pa.float64()).to_numpy(zero_copy_only=False)
        if not np.isnan(values[~missing]).any():  # nan(1) is none to Python
            return values, None
    except pa.ArrowInvalid:
        pass
    return _one_by_one(cells, number)


def _date_cells(cells: Any) -> tuple[Any, int | None]:
    """Parse cells as days, in the same manner."""
    import pyarrow as pa

    stripped, _ = _stripped(cells)
    for zone in (None, "UTC"):
        try:
            return _values(stripped.cast(pa.timestamp("us", zone)), "date"), None
        except pa.ArrowInvalid:
            pass
    return _one_by_one(cells, _day)


def _stripped(cells: Any) -> tuple[Any, npt.NDArray[np.bool_]]:
    """Return cells without white space around them, missing ones as nulls, and the mask of these."""
    import pyarrow as pa
    from pyarrow import compute

    bare = compute.utf8_trim_whitespace(cells)
    missing = compute.is_in(compute.ascii_lower(bare), value_set=pa.array(sorted(MISSING), bare.type))
    missing = compute.or_(missing, compute.is_null(bare))
    return compute.if_else(missing, pa.scalar(None, bare.type), bare), missing.to_numpy(zero_copy_only=False)


def _one_by_one(cells: Any, parse: Any) -> tuple[Array, int | None]:
    values = np.empty(len(cells))
    for place, cell in enumerate(cells.to_pylist()):
        value = np.nan if cell is None else parse(cell)
        if value is None:
            return values, place
        values[place] = value
    return values, None


def _day(cell: str) -> float | None:
    cell = cell.strip()
    if cell.lower() in MISSING:
        return np.nan
    if not _ISO.fullmatch(cell):
        return None
    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        return None
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * _DAY + since.seconds * 1_000_000 + since.microseconds) / _DAY


# ---------------------------------------------------------------------- text


def _decoded(column: Any) -> Any:
    """Replace categories by their values."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column
    values = column.type.value_type
    plain = pa.large_string() if str(values) in STRINGS else values  # not all kernels know all kinds of strings
    return pa.chunked_array([part.dictionary.cast(plain).take(part.indices) for part in column.chunks], plain)


def _strings(column: Any) -> Any:
    """Return a column as strings; numbers are written as they are."""
    import pyarrow as pa

    column = _decoded(column)
    large = column.nbytes > 1 << 30  # offsets of 32 bits reach to 2 GiB
    return column.cast(pa.large_string() if large else pa.string())


def _as_texts(column: Any) -> Texts:
    """Return a column of any usable type as text."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type) and column.num_chunks == 1 and str(column.type.value_type) in STRINGS:
        part = column.chunk(0)
        if len(part.dictionary) <= len(part):  # else few of its texts occur
            cells = part.dictionary.cast(pa.large_string()).to_pylist()
            codes = part.indices.cast(pa.int32()).fill_null(-1).to_numpy(zero_copy_only=False)
            return _texts([cell.strip() or None if cell else None for cell in cells], codes)
    column = _decoded(column)
    if pa.types.is_floating(column.type) or kind_of(column.type) == "date":
        kind = kind_of(column.type) or ""
        return Numbers(_values(column, kind), kind).as_text()
    encoded = _strings(column).dictionary_encode().combine_chunks()
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    if not chunks:
        return Texts(np.empty(0, np.int32), ())
    codes = np.concatenate([chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False) for chunk in chunks])
    return _texts([cell.strip() or None for cell in chunks[0].dictionary.to_pylist()], codes)


def _texts(cells: Sequence[str | None], codes: npt.NDArray[Any]) -> Texts:
    """Return a column of text from cells, several of which may be equal or None, and a code per row, -1 for none."""
    occurring = np.zeros(len(cells) + 1, dtype=bool)  # the last is where -1 points to
    occurring[codes] = True
    used = {cell for cell, occurs in zip(cells, occurring.tolist(), strict=False) if occurs and cell is not None}
    levels = tuple(sorted(used))
    code_of: dict[str | None, int] = {level: code for code, level in enumerate(levels)}
    recoded = np.array([*(code_of.get(cell, -1) for cell in cells), -1], dtype=np.int32)
    return Texts(recoded[codes], levels)


def _written(value: float, kind: str) -> str:
    if kind == "date":
        moment = np.datetime64(round(value * 86_400_000), "ms")
        whole = np.datetime_as_string(moment, unit="ms")
        return whole.removesuffix(".000").removesuffix("T00:00:00")
    return str(int(value)) if value.is_integer() and abs(value) <= 2**53 else repr(value)
