"""Typed columns, made from arrays of pyarrow: numbers, dates and text.

White space around cells does not count. A missing number or date is written as one of ``MISSING``; a missing text is an
empty cell and nothing else, for ``NA`` may be Namibia and ``none`` an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError
from toporo.types import Array

Rows = npt.NDArray[Any] | Sequence[int] | Sequence[bool] | slice

#: How a missing number is written, in small letters.
MISSING = ("", "nan", "na", "n/a", "#n/a", "null", "none")
#: The largest number that a column may hold: its square can be added up.
LARGEST = 1e100
_KINDS = {"number": "a number", "date": "a date (2024-05-31, perhaps with a time)"}
_DAY = 86_400_000_000  # in microseconds


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
        return _texts(self.levels, self.codes[rows if isinstance(rows, slice) else np.asarray(rows)])

    def known(self) -> Texts:
        """Return the same column with NA, null, none and the like (``MISSING``) as missing."""
        return _texts([None if level.lower() in MISSING else level for level in self.levels], self.codes)

    def tolist(self) -> list[str | None]:
        """Return the text of every row."""
        return [None if code < 0 else self.levels[code] for code in self.codes.tolist()]


Column = Numbers | Texts


def joined(parts: Sequence[Column]) -> Column:
    """Return portions of a column as one; the numbers are copied."""
    if isinstance(parts[0], Numbers):
        return Numbers(np.concatenate([part.values for part in parts if isinstance(part, Numbers)]), parts[0].kind)
    texts = [part for part in parts if isinstance(part, Texts)]
    levels = tuple(sorted({level for part in texts for level in part.levels}))
    code_of = {level: code for code, level in enumerate(levels)}
    # The last entry is for code -1, which is a missing value.
    codes = [np.array([*(code_of[level] for level in part.levels), -1], np.int32)[part.codes] for part in texts]
    return Texts(np.concatenate(codes), levels)


class OtherKindError(DataError):
    """A cell is not of the kind that its column was taken for.

    Attributes
    ----------
    column : the column.
    kind : what to take it for instead.
    """

    def __init__(self, message: str, column: str = "", kind: str = "text") -> None:
        super().__init__(message)
        self.column, self.kind = column, kind


# ---------------------------------------------------------------------- from arrays of pyarrow


def kind_of(given: Any) -> str | None:
    """Return what a type of pyarrow holds: ``"number"``, ``"date"`` or ``"text"``; None for other types."""
    from pyarrow import types

    if types.is_integer(given) or types.is_floating(given) or types.is_decimal(given) or types.is_null(given):
        return "number"
    if types.is_date(given) or types.is_timestamp(given):
        return "date"
    if types.is_dictionary(given):
        return None if kind_of(given.value_type) is None else "text"
    if types.is_boolean(given) or types.is_string(given) or types.is_large_string(given) or types.is_string_view(given):
        return "text"
    return None


def numbers_of(array: Any, kind: str, name: str, where: str, first: int) -> Numbers:
    """Return an array as a column of numbers or dates; refuse cells of another kind and numbers that are too large.

    Parameters
    ----------
    array, kind : of pyarrow, and ``"number"`` or ``"date"``.
    name, where, first : the column, the file and the number of the first row, for messages.
    """
    import pyarrow as pa

    stored = kind_of(array.type)
    if array.null_count == len(array):
        values = np.full(len(array), np.nan)
    elif stored == kind:
        values = _values(array, kind)
    elif stored != "text" or pa.types.is_boolean(array.type):
        raise DataError(
            f"{where}, column {name!r}: it holds values of type {array.type}, but each must be {_KINDS[kind]}. "
            "Convert the column."
        )
    else:
        try:
            values = _parsed(_strings(array), kind)
        except pa.ArrowInvalid as error:
            raise _other_kind(_strings(array), kind, name, where, first, str(error)) from None
    numbers = Numbers(values, kind)
    if not max(map(abs, numbers.ends)) <= LARGEST:
        beyond = np.abs(values) > LARGEST
        if beyond.any():
            what = "infinite value(s)" if np.isinf(values).any() else f"value(s) beyond {LARGEST:g}"
            raise DataError(
                f"{where} holds {int(beyond.sum())} {what} (first: row {first + int(beyond.argmax())}, "
                f"column {name!r}). Correct them, empty those cells, or exclude the column."
            )
    return numbers


def _other_kind(cells: Any, kind: str, name: str, where: str, first: int, message: str) -> OtherKindError:
    """Return the error for a cell that pyarrow cannot parse, which its message quotes."""
    from pyarrow import compute

    quoted = re.search(r"string: '(.*)' as a scalar", message, flags=re.DOTALL)
    cell = quoted[1] if quoted else ""
    row = first + max(0, compute.index(compute.utf8_trim_whitespace(cells), cell).as_py())
    return OtherKindError(
        f"{where}, row {row}, column {name!r}: {cell!r:.42} is not {_KINDS[kind]}, which is what the column must "
        "hold. Correct the cell, or leave it empty if the value is not known.",
        name,
        "text" if kind == "date" or kind_of_cells(cells[row - first :][:1]) == "text" else "date",
    )


def _values(array: Any, kind: str) -> Array:
    """Return numbers, or days since 1970-01-01, of an array of such a type; they may be read-only."""
    import pyarrow as pa

    if kind == "date":
        array = array.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    values = np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return values / _DAY if kind == "date" else values


def _parsed(cells: Any, kind: str) -> Array:
    """Parse cells as numbers or dates; the first that is not of the kind is an error of pyarrow that quotes it."""
    import pyarrow as pa
    from pyarrow import compute

    if kind == "number":
        with suppress(pa.ArrowInvalid):  # none is missing or has white space around it
            return _values(cells.cast(pa.float64()), kind)
    bare = compute.utf8_trim_whitespace(cells)
    missing = compute.is_in(compute.ascii_lower(bare), value_set=pa.array(MISSING, bare.type))
    bare = compute.if_else(missing, pa.scalar(None, bare.type), bare)
    if kind == "number":
        return _values(bare.cast(pa.float64()), kind)
    with suppress(pa.ArrowInvalid):
        return _values(bare.cast(pa.timestamp("us", "UTC")), kind)
    return _values(bare.cast(pa.timestamp("us")), kind)


def kind_of_cells(cells: Any) -> str:
    """Return ``"number"`` if each cell is one, else ``"date"`` if each is one, else ``"text"``."""
    import pyarrow as pa

    for kind in ("number", "date"):
        with suppress(pa.ArrowInvalid):
            _parsed(cells, kind)
            return kind
    return "text"


def number(cell: str) -> float | None:
    """Return the number that a cell holds, NaN if it stands for a missing one; None for other cells."""
    cell = cell.strip()
    if cell.lower() in MISSING:
        return float("nan")
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _strings(array: Any) -> Any:
    """Return an array as strings: numbers are written as they are, categories replaced by their values."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        return array.dictionary.cast(pa.large_string()).take(array.indices)
    return array if pa.types.is_string(array.type) else array.cast(pa.large_string())


def texts_of(array: Any) -> Texts:
    """Return an array of any usable type as a column of text."""
    import pyarrow as pa

    kind = kind_of(array.type)
    if kind == "date" or pa.types.is_floating(array.type):
        return Numbers(_values(array, kind or ""), kind or "").as_text()
    encoded = _strings(array).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return _texts([cell.strip() or None for cell in encoded.dictionary.to_pylist()], codes)


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
