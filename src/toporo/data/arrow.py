"""Tables of pyarrow: Parquet and Feather files, checked before they are used, and columns in memory."""

from __future__ import annotations

import io
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any, BinaryIO

import msgspec
import numpy as np

from toporo.data.formats import TableFile, bomb_error, check_names, described, most_unpacked, reading
from toporo.errors import DataError
from toporo.files import parse_json

#: Begins a message of a Feather file, since version 0.15 of the format.
_CONTINUES = 0xFFFFFFFF
#: Types of text, by name: older versions of pyarrow lack some.
STRINGS = ("string", "large_string", "string_view")
_LABEL = re.compile(r"__index_level_\d+__")


def kind_of(kind: Any) -> str | None:
    """Return what a type of pyarrow holds: ``"number"``, ``"date"`` or ``"text"``; None for other types."""
    from pyarrow import types

    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        return "number"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "date"
    if types.is_dictionary(kind):
        return None if kind_of(kind.value_type) is None else "text"
    return "text" if types.is_boolean(kind) or str(kind) in STRINGS else None


def column_names(schema: Any, where: str) -> tuple[str, ...]:
    """Return the names of the columns; "" for row labels that pandas stored and named itself."""
    labels = _row_labels(schema.metadata or {})
    stripped = tuple("" if name in labels else name.strip() for name in schema.names)
    for kind in schema.types:
        getattr(getattr(kind, "value_type", kind), "tz", None)  # fails where a time zone is not valid text
    if not stripped:
        raise DataError(f"{where} has no columns: expected named columns and a row for every point.")
    check_names(stripped, where)
    return stripped


def _row_labels(metadata: Mapping[bytes, bytes]) -> set[str]:
    """Return the columns of row labels that pandas named itself; other metadata than pandas writes has none."""
    try:
        labels = msgspec.convert(parse_json(metadata[b"pandas"], "").get("index_columns"), list[str | dict[str, Any]])
    except (AttributeError, KeyError, DataError, msgspec.ValidationError):
        return set()
    return {label for label in labels if isinstance(label, str) and _LABEL.fullmatch(label)}


# ---------------------------------------------------------------------- Parquet and Feather


class _Bounded(io.RawIOBase):
    """A file that is read, never mapped: one that is cut short meanwhile, or has false lengths, is an error."""

    def __init__(self, stream: BinaryIO, where: str, kind: str) -> None:
        self._stream, self.size = stream, stream.seek(0, os.SEEK_END)
        stream.seek(0)
        if not self.size:
            raise DataError(f"{where} is empty: expected {described(kind)}. Write it anew, or remove it.")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def read(self, size: int = -1) -> bytes:
        left = max(0, self.size - self._stream.tell())
        return self._stream.read(left if size < 0 else min(size, left))  # Python takes the memory before it reads


def open_parquet(
    stream: BinaryIO, where: str, row_groups: Sequence[int] | None = None, *, threads: bool = True
) -> TableFile:
    """Open a Parquet file; one row group need not fit into memory.

    Parameters
    ----------
    stream : of bytes, seekable.
    where : the name of the file.
    row_groups : the only ones to read.
    threads : read columns at the same time.
    """
    from pyarrow import parquet

    # The scanner of pyarrow.dataset would decode a whole row group before it gives out the first rows.
    file = parquet.ParquetFile(_Bounded(stream, where, "parquet"), buffer_size=1 << 20, pre_buffer=False)
    schema, groups = file.schema_arrow, [file.metadata.row_group(place) for place in range(file.num_row_groups)]
    firsts = [group.column(0) for group in groups if file.metadata.num_columns]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in firsts] or [0] * len(groups)

    def batches(places: Sequence[int], rows: int) -> Iterator[list[Any]]:
        with reading(where, "parquet"):
            columns = [schema.names[place] for place in places]
            for batch in file.iter_batches(rows, row_groups, columns, use_threads=threads):
                batch.validate(full=True)
                yield [batch.column(name) for name in columns]

    row_counts = tuple((group.num_rows, start) for group, start in zip(groups, starts, strict=True))
    return TableFile(column_names(schema, where), batches, tuple(schema.types), row_counts)


def open_feather(stream: BinaryIO, where: str) -> TableFile:
    """Open a Feather (Arrow IPC) file or stream.

    Parameters
    ----------
    stream : of bytes, seekable.
    where : the name of the file.
    """
    from pyarrow import ipc

    file = _Bounded(stream, where, "feather")
    whole = file.read(6) == b"ARROW1"  # else a stream, without an index at the end
    file.seek(0)
    start = ipc.open_file if whole else ipc.open_stream
    schema = start(file).schema
    names = column_names(schema, where)
    if max(_unpacked_sizes(file, whole), default=0) > most_unpacked(file.size):
        raise bomb_error(where)

    def batches(places: Sequence[int], rows: int) -> Iterator[list[Any]]:
        with reading(where, "feather"):
            file.seek(0)
            wanted = sorted(places)
            reader = start(file, options=ipc.IpcReadOptions(included_fields=wanted))
            for batch in map(reader.get_batch, range(reader.num_record_batches)) if whole else reader:
                batch.validate(full=True)  # else damage is a crash, not an error
                for first in range(0, batch.num_rows, rows):
                    yield [batch.column(wanted.index(place)).slice(first, rows) for place in places]

    return TableFile(names, batches, tuple(schema.types))


def _unpacked_sizes(file: _Bounded, whole: bool) -> Iterator[int]:
    """Yield how many bytes each compressed portion of a Feather file claims to hold, which pyarrow would believe.

    The parts of a portion must be within the file.
    """

    def at(place: int, form: str) -> tuple[int, ...]:
        file.seek(place)
        return struct.unpack(form, file.read(struct.calcsize(form)))

    def follow(place: int) -> int:
        return place + at(place, "<I")[0]

    def field_of(table: int, number: int) -> int:
        """Return where a table of flatbuffers has a field, 0 if it lacks it."""
        index = table - at(table, "<i")[0]
        held = at(index, "<H")[0] > 4 + 2 * number
        offset = at(index + 4 + 2 * number, "<H")[0] if held else 0
        return table + offset if offset else 0

    def entries(table: int, number: int, form: str) -> Iterator[tuple[int, ...]]:
        if place := field_of(table, number):
            (count,) = at(follow(place), "<I")
            yield from struct.iter_unpack(form, file.read(count * struct.calcsize(form)))

    def check_end(start: int, length: int) -> None:
        if not 0 <= length <= file.size - start:
            raise ValueError("it ends too soon")  # explained by the caller

    def blocks() -> Iterator[tuple[int, int]]:
        """Yield where each message begins, and its length without its body."""
        if whole:
            footer = follow(file.size - 10 - at(file.size - 10, "<i")[0])
            yield from {(block[0], block[1]) for kind in (2, 3) for block in entries(footer, kind, "<qi4xq")}
            return
        place = 0
        while place + 8 <= file.size:
            mark, length = at(place, "<Ii")
            if mark != _CONTINUES:
                length = mark - 4  # as versions before 0.15 wrote it
            if length <= 0:
                return
            yield place, length + 8
            message = follow(place + (8 if mark == _CONTINUES else 4))
            body = field_of(message, 3)
            place += length + 8 + (max(0, at(body, "<q")[0]) if body else 0)

    for begin, length in blocks():
        message = follow(begin + (8 if at(begin, "<I")[0] == _CONTINUES else 4))
        kind, header, body = (field_of(message, number) for number in (1, 2, 3))
        check_end(begin + length, at(body, "<q")[0] if body else 0)
        if kind and header and at(kind, "<B")[0] in (2, 3):
            batch = follow(header)
            if at(kind, "<B")[0] == 2:  # categories, within a table of their own
                batch = follow(field_of(batch, 1))
            parts = [(begin + length + offset, size) for offset, size in entries(batch, 2, "<qq")]
            for part, size in parts:
                check_end(part, size)
            if field_of(batch, 3):  # packed: its length stands before each part
                yield sum(max(0, at(part, "<q")[0]) for part, size in parts if size >= 8)


# ---------------------------------------------------------------------- memory


def as_arrow(source: Any) -> tuple[Any, str, dict[str, str]]:
    """Return a table in memory as one of pyarrow, its name for messages, and columns that pyarrow cannot hold.

    Parameters
    ----------
    source : a data frame of pandas, polars or pyarrow, or a mapping of names to columns.
    """
    import pyarrow as pa

    where = "the data frame"
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        return _from_columns([(name, source.iloc[:, j]) for j, name in enumerate(source.columns)], where)
    if isinstance(source, Mapping):
        return _from_columns(list(source.items()), "the data")
    if hasattr(source, "collect_schema") and not hasattr(source, "to_arrow"):
        raise DataError("the table is a lazy frame: collect() it first.")
    table: Any = None
    if hasattr(source, "to_arrow"):
        table = source.to_arrow()
    elif isinstance(source, pa.RecordBatch):
        table = pa.Table.from_batches([source])
    elif isinstance(source, pa.Table) or hasattr(source, "__arrow_c_stream__"):
        with suppress(pa.ArrowInvalid):  # a column by itself
            table = pa.table(source)
    if not isinstance(table, pa.Table):
        raise DataError(
            f"cannot read a table from {type(source).__name__}: expected a path, a stream of bytes, a data frame of "
            "pandas, polars or pyarrow, or a mapping of names to columns."
        )
    return table, where, {}


def _from_columns(columns: Sequence[tuple[Any, Any]], where: str) -> tuple[Any, str, dict[str, str]]:
    """Convert columns of Python or numpy values; those that pyarrow cannot hold are empty, with the reason."""
    import pyarrow as pa

    arrays: list[Any] = []
    unusable: dict[str, str] = {}
    for name, values in columns:
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise DataError(f"column {name!r} of {where} is a {type(values).__name__}: expected a sequence of values.")
        array = _array(values)
        if isinstance(array, str):
            unusable[str(name).strip()] = array
            array = pa.nulls(len(values))
        arrays.append(array)
    names = [str(name) for name, _ in columns]
    if len(set(map(len, arrays))) > 1:
        lengths = dict(zip(names, map(len, arrays), strict=True))
        raise DataError(f"the columns of {where} differ in length: {lengths}. Each needs a value for every row.")
    try:
        return pa.Table.from_arrays(arrays, names=names), where, unusable
    except UnicodeEncodeError as error:
        raise DataError(
            f"a column of {where} is called {error.object!r}, which is not valid Unicode: rename it."
        ) from None


def _array(values: Any) -> Any:
    """Return a column as an array of pyarrow, or the reason why it cannot be one."""
    import pyarrow as pa

    if isinstance(values, np.ndarray) and values.ndim != 1:
        return f"it has {values.ndim} dimensions"
    try:
        return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass
    plain = [None if _absent(value) else value for value in values]
    if all(value is None or (isinstance(value, Real | Decimal) and not isinstance(value, bool)) for value in plain):
        return pa.array([None if value is None else _float(value) for value in plain], pa.float64())
    strange = next((v for v in plain if not isinstance(v, str | Real | Decimal | date | np.bool_ | None)), None)
    if strange is not None:
        return f"it holds Python objects such as {type(strange).__name__}"
    words = {True: "true", False: "false"}
    cells = [None if v is None else words[bool(v)] if isinstance(v, bool | np.bool_) else str(v) for v in plain]
    try:
        return pa.array(cells, pa.string())
    except UnicodeEncodeError as error:
        return f"it holds {error.object!r}, which is not valid Unicode"


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def _absent(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas.NA, which does not equal itself or refuses to be compared."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"
