"""Formats of table files, told by their first bytes and read by pyarrow: CSV (also gzipped), Parquet and Feather."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from toporo.errors import DataError, TopoRoError, listed

_MAGIC = {b"PAR1": "parquet", b"ARROW1": "feather", b"\xff\xff\xff\xff": "feather", b"\x1f\x8b": "csv"}
#: By format, the words for it in messages about a file that is not one, and what to do.
_FORMATS = {
    "": ("", "Check the name or the address, and the permission to read it; of a store also the network and the "
         "credentials (in the environment or a profile)."),
    "csv": (" as CSV", "Expected whole text in UTF-8 (a spreadsheet saves it as 'CSV UTF-8') whose first line names "
            "the columns. A cell with the delimiter or a line break in it stands in double quotes, and a double quote "
            "in it is written twice."),
    "parquet": (" as a Parquet file", "Is it whole? Write it anew."),
    "feather": (" as a Feather (Arrow IPC) file", "Is it whole? Write it anew."),
}  # fmt: skip
#: Bytes of a CSV file that are parsed at a time, hence the longest row.
BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class TableFile:
    """An open file of a table.

    Attributes
    ----------
    schema : the columns, without white space around a name, "" for a column without a name; strings in CSV.
    batches : yields record batches with the columns at these positions.
    row_groups : rows of each row group of a Parquet file.
    """

    schema: Any
    batches: Callable[[Sequence[int]], Iterator[Any]]
    row_groups: tuple[int, ...] | None = None


def format_of(stream: Any, where: str) -> str:
    """Return ``csv``, ``parquet`` or ``feather``; the first bytes tell it, whatever a file is called.

    Parameters
    ----------
    stream, where : the open file and its name.
    """
    start = stream.read(6)
    kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
    if kind is None and (start.startswith(b"PK\x03\x04") or b"\0" in start):
        raise DataError(
            f"{where} is a workbook, an archive or text in UTF-16: expected a table in CSV, Parquet or Feather. Save a "
            "spreadsheet as 'CSV UTF-8', unpack an archive, and convert text: iconv -f utf-16 -t utf-8."
        )
    return kind or "csv"


@contextmanager
def reading(where: str, kind: str = "") -> Iterator[None]:
    """Turn errors of the system and of pyarrow into a :class:`DataError` that names the file."""
    import pyarrow as pa

    try:
        yield
    except TopoRoError:
        raise
    except FileNotFoundError:
        raise DataError(
            f"{where} has disappeared since the table was listed. Wait until nothing writes to the table, and start "
            "again."
        ) from None
    except pa.ArrowMemoryError as error:
        raise DataError(
            f"{where} cannot be read: not enough memory ({error}). If the file is not that large, it is damaged: write "
            "it anew."
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # pyarrow raises anything for damaged files
        known = isinstance(error, OSError) and error.errno
        why = os.strerror(known) if known else " ".join(str(error).split())[:300].rstrip(".")
        what, remedy = _FORMATS["" if known or "AWS Error" in why else kind]
        raise DataError(f"{where} cannot be read{what} ({why}). {remedy}") from None


def open_table_file(
    source: Callable[[], Any], where: str, kind: str, delimiter: str = ",", row_groups: Sequence[int] | None = None
) -> TableFile:
    """Open a file of a table, to be used within :func:`reading`.

    Parameters
    ----------
    source : opens the file.
    where, kind : its name and format.
    delimiter : separates cells, unless the suffix says that tabs do.
    row_groups : of a Parquet file, the only ones to read.
    """
    if kind == "csv":
        return _open_csv(source, where, delimiter)
    return _open_parquet(source(), where, row_groups) if kind == "parquet" else _open_feather(source(), where)


def _open_parquet(stream: Any, where: str, row_groups: Sequence[int] | None) -> TableFile:
    """Open a Parquet file; one row group need not fit into memory."""
    from pyarrow import parquet

    # The scanner of pyarrow.dataset would decode a whole row group before it gives out the first rows.
    file = parquet.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
    schema, metadata = file.schema_arrow, file.metadata

    def batches(places: Sequence[int]) -> Iterator[Any]:
        columns = [schema.names[place] for place in places]
        for batch in file.iter_batches(1 << 16, row_groups, columns):
            yield batch.select(columns)

    rows = tuple(metadata.row_group(place).num_rows for place in range(metadata.num_row_groups))
    return TableFile(_schema(schema.names, schema.types, where), batches, rows)


def _open_feather(stream: Any, where: str) -> TableFile:
    """Open a Feather (Arrow IPC) file or stream."""
    from pyarrow import ipc

    indexed = stream.read(6) == b"ARROW1"
    stream.seek(0)
    file = ipc.open_file(stream) if indexed else ipc.open_stream(stream)

    def batches(places: Sequence[int]) -> Iterator[Any]:
        for batch in map(file.get_batch, range(file.num_record_batches)) if indexed else file:
            yield batch.select(list(places))

    return TableFile(_schema(file.schema.names, file.schema.types, where), batches)


def _schema(names: Sequence[str], types: Sequence[Any], where: str) -> Any:
    """Return a schema with the names of columns as tables have them."""
    import pyarrow as pa

    return pa.schema(list(zip(column_names(names, where), types, strict=True)))


def column_names(names: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the names of columns, "" for row labels that pandas stored and named itself; refuse repeated ones.

    Parameters
    ----------
    names, where : the columns as they are stored, and the table for messages.
    """
    if not names:
        raise DataError(f"{where} has no columns: expected named columns and a row for every point.")
    stripped = tuple("" if name.startswith("__index_level_") else name.strip() for name in names)
    twice = [name for name, count in Counter(stripped).items() if name and count > 1]
    if twice:
        raise DataError(f"{where} has several columns named {listed(twice)}: give each a name of its own.")
    return stripped


# ---------------------------------------------------------------------- CSV


def _open_csv(source: Callable[[], Any], where: str, delimiter: str) -> TableFile:
    """Open a CSV file, whose cells are strings; its first rows are parsed here, for the names of the columns."""
    import pyarrow as pa
    from pyarrow import csv

    packed = source().read(2) == b"\x1f\x8b"
    if delimiter == "," and where.lower().removesuffix(".gz").endswith((".tsv", ".tab")):
        delimiter = "\t"

    def unpacked() -> Any:
        return pa.CompressedInputStream(source(), "gzip") if packed else source()

    def parse(columns: Sequence[str] = ()) -> Any:
        return csv.open_csv(
            unpacked(),
            csv.ReadOptions(block_size=BLOCK, use_threads=False),
            csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string()), include_columns=columns),
        )

    def batches(places: Sequence[int]) -> Iterator[Any]:
        last, wanted = "", [titles[place] for place in places]
        for batch in parse(list(dict.fromkeys([*wanted, titles[-1]]))):
            if batch.num_rows:
                last = batch.column(titles[-1])[-1].as_py()
                yield batch.select(wanted)
        if "\n" in last or "\r" in last:
            _check_closed(unpacked(), last, where)

    titles = parse().schema.names
    schema = _schema(titles, [pa.string()] * len(titles), where)
    other = next((sign for sign in ";\t|," if sign != delimiter and sign in titles[0]), None)
    if len(titles) == 1 and other is not None:
        raise DataError(
            f"{where} has a single column, {titles[0]!r:.42}: it looks as if cells were separated by {other!r}. Say "
            f"so: --delimiter {'tab' if other == chr(9) else repr(other)} (delimiter={other!r})."
        )
    return TableFile(schema, batches)


def _check_closed(stream: Any, last: str, where: str) -> None:
    """Refuse a last cell of several lines unless the last sign of the file is a double quote."""
    end = b""
    while block := stream.read(BLOCK):
        end = block.rstrip()[-1:] or end
    if end != b'"':
        raise DataError(
            f"{where}: not valid CSV (a double quote before {last.strip()!r:.42} is not closed). Check the quotes of "
            "the last row; one inside of a quoted cell is written twice."
        )
