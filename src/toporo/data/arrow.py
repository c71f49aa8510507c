"""Tables of any kind as portions of pyarrow arrays; what is wrong with a file is said in words."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np

from toporo.errors import DataError, SettingError, UnknownNameError, listed
from toporo.files import parse_json
from toporo.text import spelled

#: How files of cells between delimiters are called; one without an ending is taken for such a file.
CSV_SUFFIXES = frozenset({"", ".csv", ".tsv", ".tab", ".txt", ".dat", ".data"})
_SUFFIXES = dict.fromkeys(CSV_SUFFIXES, "csv") | {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".ipc": "feather",
}
_FORMATS = {"csv": "CSV", "parquet": "Parquet", "feather": "Feather (Arrow IPC)"}
_GZIP = b"\x1f\x8b"
#: How files begin that are no text, whatever their name says.
_MAGIC = {b"PAR1": "a Parquet file", b"ARROW1": "a Feather file", b"PK\x03\x04": "a workbook or a zip archive",
          _GZIP: "a gzip archive"}  # fmt: skip
_SPACED = re.compile(r'\s+".*"\s*', flags=re.DOTALL)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
#: Bytes parsed at a time, hence the longest row there may be; and the longest header.
_BLOCK, _HEAD = 1 << 22, 1 << 22
#: A packed table may take 256 MiB, and beyond that a thousand times the room of its file, as gzip at its best.
_ALWAYS, _RATIO = 1 << 28, 1000
#: How a message of Feather begins, since its version 0.15.
_CONTINUES = 0xFFFFFFFF
#: Types of text, by name, for older pyarrow lacks some.
STRINGS = ("string", "large_string", "string_view")
_LABEL = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True, eq=False)
class Opened:
    """A table that was opened but not yet read.

    Attributes
    ----------
    where : the table for messages.
    names : the columns, in order; white space around a name is gone, and one without a name is "".
    cells : whether every cell is text, as in a CSV file, so types are to be found out.
    batches : portions of at most so many rows of the columns at these places, in that order.
    unusable : columns that not even pyarrow can hold, each with the reason; they have no portions.
    most : bytes that all portions together may take; one that takes more is no table but a trap.
    rows : how many there are, where the file says it.
    first : the number of the first row, of a table that is part of one.
    """

    where: str
    names: tuple[str, ...]
    cells: bool
    batches: Callable[[Sequence[int], int], Iterator[list[Any]]]
    unusable: dict[str, str] = field(default_factory=dict)
    most: float = math.inf
    rows: int | None = None
    first: int = 1


@contextmanager
def open_table(source: Any, *, format: str | None = None, delimiter: str = ",") -> Iterator[Opened]:  # noqa: A002
    """Open a table to read it in portions.

    Parameters
    ----------
    source : a path, a stream of bytes, a data frame of pandas, polars or pyarrow, or a mapping of columns. A CSV file
        may be packed with gzip, if its name ends in .gz (.csv.gz, .tsv.gz, …).
    format : "csv", "parquet" or "feather", where the ending of a path does not say it.
    delimiter : what stands between the cells of a CSV file.
    """
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise SettingError(f"delimiter is {delimiter!r}: expected a single character such as ',' or ';'.")
    with ExitStack() as stack:
        if isinstance(source, str | os.PathLike):
            where, kind = spelled(source), format_of(source, format)
            if "\0" in where:
                raise DataError(f"no such file: {where!r}. A name of a file has no NUL in it.")
            with in_words(where, kind):
                opened = open_file(stack, stack.enter_context(Path(source).open("rb")), where, kind, delimiter)
        elif callable(getattr(source, "read", None)):  # a data frame may have a column of this name
            where, kind = "standard input", format_of("", format)
            with in_words(where, kind):
                if kind == "csv":
                    opened = _open_csv(source, where, delimiter, tabs=False)
                else:
                    within = _Within(io.BytesIO(source.read()), where, kind)
                    opened = _open_parquet(within, where) if kind == "parquet" else _open_feather(within, where)
        else:
            opened = _open_memory(source)
        yield opened


def open_file(
    stack: ExitStack,
    stream: io.BufferedReader,
    where: str,
    kind: str,
    delimiter: str = ",",
    row_groups: Sequence[int] | None = None,
    threads: bool = True,
) -> Opened:
    """A table from the stream of a file; what goes wrong is for :func:`in_words`.

    Parameters
    ----------
    stack : what closes the file that was packed; the stream itself is the caller's.
    stream : of bytes, to be sought in unless it is CSV.
    where : the name of the file.
    kind : ``csv``, ``parquet`` or ``feather``.
    delimiter : what stands between the cells of a CSV file, unless its name says that there are tabs.
    row_groups : the only ones to read of a Parquet file.
    threads : whether columns of a Parquet file are read at the same time.
    """
    if kind == "csv":
        tabs = Path(_unpacked_name(where)).suffix.lower() in (".tsv", ".tab")
        plain = stack.enter_context(_unpacked(stream, where)) if _is_packed(where) else stream
        return _open_csv(plain, where, delimiter, tabs=tabs)
    within = _Within(stream, where, kind)
    return _open_parquet(within, where, row_groups, threads) if kind == "parquet" else _open_feather(within, where)


def most_unpacked(size: int) -> int:
    """How much a table may grow when its files, of so many bytes, are unpacked; as :class:`Opened` has it."""
    return _ALWAYS + _RATIO * size


def format_of(path: str | os.PathLike[str], given: str | None = None) -> str:
    """``csv``, ``parquet`` or ``feather``, by what was said or else by the ending of a name."""
    if given is not None:
        formats = [*_FORMATS, "tsv", "arrow", "ipc"]
        if given not in formats:
            raise UnknownNameError("format", given, formats)
        return _SUFFIXES[f".{given}"]
    suffix = Path(_unpacked_name(path)).suffix.lower()
    if suffix not in _SUFFIXES:
        known = ", ".join(sorted(name for name in _SUFFIXES if name))
        raise DataError(
            f"{path}: what kind of table is a {suffix} file? Expected a name that ends in one of {known}, or in .gz "
            "after that of a CSV file. Rename or convert it; a spreadsheet saves as 'CSV UTF-8', another archive must "
            "be unpacked."
        )
    if _is_packed(path) and _SUFFIXES[suffix] != "csv":
        raise DataError(f"{path}: only CSV files are read packed with gzip. Unpack it: gunzip {Path(path).name}.")
    return _SUFFIXES[suffix]


def _is_packed(path: str | os.PathLike[str]) -> bool:
    return Path(path).suffix.lower() == ".gz"


def _unpacked_name(path: str | os.PathLike[str]) -> str:
    """The name of a file without its .gz."""
    name = str(path)
    return name[: -len(".gz")] if _is_packed(path) else name


def _unpacked(stream: io.BufferedReader, where: str) -> BinaryIO:
    """What a file packed with gzip holds, unpacked as it is read."""
    start = stream.peek(len(_GZIP))[: len(_GZIP)]
    if start and start != _GZIP:
        raise DataError(
            f"{where} is not packed with gzip, though its name ends in .gz. Give it the ending of what it is, or pack "
            "it: gzip FILE."
        )
    return cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb"))


@contextmanager
def in_words(where: str, kind: str) -> Iterator[None]:
    """What goes wrong while a file is opened or read is a :class:`DataError`."""
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        expected = "a CSV file whose first line names the columns" if kind == "csv" else f"a {_FORMATS[kind]} file"
        raise DataError(f"no such file: {where}. Expected {expected}.") from None
    except MemoryError:  # lengths that lie do not come so far
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        why = "it ends too soon" if isinstance(error, EOFError) else re.split(r" \(| 0x", str(error))[0]
        raise DataError(f"{where} is damaged or cut short: {why}. Copy it again, or pack the table again.") from None
    except UnicodeDecodeError as error:
        why = f"byte 0x{error.object[error.start]:02x} is not valid there"
        raise DataError(_not_utf8(where, why) if kind == "csv" else _damaged(where, kind, f"no UTF-8: {why}")) from None
    except Exception as error:  # whatever pyarrow makes of damaged files
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"cannot read {where}: {error.strerror}.") from None
        if kind == "csv" and not isinstance(error, pa.ArrowException | OSError):
            raise
        why = str(error).partition("\n")[0].rstrip(".")
        raise DataError(f"cannot read {where}: {why}." if kind == "csv" else _damaged(where, kind, why)) from None


def trap(where: str) -> str:
    """What is said of a file that unpacks without end."""
    return (
        f"{where} unpacks to more than {_RATIO:,} times its size and {_ALWAYS >> 20} MiB: no table does. Write it "
        "anew, with fewer rows or columns if need be."
    )


def _damaged(where: str, kind: str, why: str) -> str:
    return (
        f"{where} cannot be read as a {_FORMATS[kind]} file ({why}). Is it whole, and is it one? Write it anew, or "
        "give it the ending of what it is."
    )


# ---------------------------------------------------------------------- CSV


def _not_utf8(where: str, why: str, instead: str = "latin1") -> str:
    return (
        f"{where} is not text in UTF-8 ({why}). "
        f"In a spreadsheet, save it as 'CSV UTF-8'; elsewhere convert it, e.g. iconv -f {instead} -t utf-8."
    )


def _csv_error(message: str, where: str) -> str:
    if "UTF8" in message or "UTF-8" in message:
        return _not_utf8(where, "a cell holds bytes that are not valid")
    if "straddling" in message or "out of sync" in message:
        return (
            f"{where} has a row of more than {_BLOCK >> 20} MiB: a double quote that is not closed, as a rule. Check "
            "the quotes; one inside of a quoted cell is written twice."
        )
    return f"{where}: not valid CSV ({message.splitlines()[0].rstrip('.')})."


def _open_csv(stream: BinaryIO, where: str, delimiter: str, *, tabs: bool) -> Opened:
    head = _take(stream, _HEAD)
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise DataError(
                f"{where} is {what}, not text: expected a CSV file. Give a Parquet or Feather file its ending "
                "(.parquet, .feather), a CSV file packed with gzip the ending .csv.gz, and unpack or convert others."
            )
    if head[:2] in _UTF16 or b"\0" in head[:2]:
        raise DataError(_not_utf8(where, "it looks like UTF-16", "utf-16"))
    if b"\0" in head.partition(b"\n")[0]:
        raise DataError(f"{where} is not text, for its first line holds NUL bytes: expected a CSV file.")
    try:
        header, rest, delimiter = _header(head, delimiter, tabs)
    except csv.Error as error:
        raise DataError(f"{where}, first line: not valid CSV ({error}). Check the quotes in that line.") from None
    _check_header(header, delimiter, where)

    def batches(places: Sequence[int], rows: int) -> Iterator[list[Any]]:
        start = rest or _take(stream, 1)
        if not start:
            return
        with in_words(where, "csv"):
            yield from _csv_batches(_Joined(start, stream), where, delimiter, len(header), places, rows)

    return Opened(where, tuple(header), True, batches)


def _take(stream: BinaryIO, size: int) -> bytes:
    """The next bytes, fewer only at the end; some streams give less than they are asked for."""
    content = b""
    while len(content) < size:
        more = stream.read(size - len(content))
        if not more:
            break
        content += more
    return content


def _check_header(header: Sequence[str], delimiter: str, where: str) -> None:
    """The names in a first line, unless there are none or the delimiter is not theirs."""
    if not header:
        raise DataError(f"{where} is empty: expected a first line that names the columns, and a line for every point.")
    if len(header) == 1:
        other = next((sign for sign in ";\t|," if sign != delimiter and sign in header[0]), None)
        if other is not None:
            raise DataError(
                f"{where} has a single column, {shown(header[0])}: it looks as if cells were separated by {other!r}. "
                f"Say so: --delimiter {'tab' if other == chr(9) else repr(other)} (delimiter={other!r})."
            )
    _check_names(header, where)


def _check_names(names: Sequence[str], where: str) -> None:
    """No two columns may have one name; none at all is no name."""
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise DataError(f"{where} has several columns named {listed(twice)}: give each a name of its own.")


def shown(cell: str, limit: int = 40) -> str:
    """A cell for a message."""
    cell = cell.strip()
    return repr(cell if len(cell) <= limit else f"{cell[:limit]}…")


def _header(head: bytes, delimiter: str, tabs: bool) -> tuple[list[str], bytes, str]:
    """The names of the columns, what follows them, and the delimiter."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    text = decoder.decode(head, final=len(head) < _HEAD)
    undecoded = decoder.getstate()[0]
    consumed = 0

    def lines() -> Iterator[str]:
        nonlocal consumed
        for line in io.StringIO(text, newline=""):
            consumed += len(line)
            yield line

    if tabs and delimiter == "," and "\t" in text.lstrip().partition("\n")[0]:
        delimiter = "\t"
    for row in csv.reader(lines(), delimiter=delimiter, skipinitialspace=delimiter != " ", strict=True):
        if consumed == len(text) and len(head) == _HEAD:
            raise csv.Error(f"it is longer than {_HEAD >> 20} MiB")
        if len(row) > 1 or (row and row[0].strip()):
            return [name.strip() for name in row], text[consumed:].encode() + undecoded, delimiter
    return [], b"", delimiter


class _Joined(io.RawIOBase):
    """Bytes that were read already, then the rest of a stream, which is the caller's to close; and the last of all."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest, self.last = head, rest, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = len(self._head) or _BLOCK
        content, self._head = self._head[:size], self._head[size:]
        content = content or self._rest.read(size) or b""
        self.last = content.rstrip()[-1:] or self.last
        return content


def _csv_batches(
    stream: _Joined, where: str, delimiter: str, width: int, places: Sequence[int], rows: int
) -> Iterator[list[Any]]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    blank = 0

    def ragged(row: Any) -> str:
        nonlocal blank
        if not row.text.strip():
            blank += 1
            return "skip"
        open_quote = row.text.count('"') % 2 == 1
        remedy = (
            "A double quote in it is not closed: close it, or write a quote that is part of a cell twice."
            if open_quote
            else "Is the first line a title? Remove it: the names of the columns come first."
            if width == 1
            else "A cell with the delimiter in it must stand in double quotes."
        )
        wrong.append(
            f"{where}, row {row.number - blank} after the header: found {row.actual_columns} cells, expected {width} "
            f"as in the header. {remedy}"
        )
        return "error"

    wrong: list[str] = []
    names = [str(place) for place in range(width)]
    wanted = [*(names[place] for place in places), names[-1]]  # the last column tells whether its quotes were closed
    try:
        reader = arrow_csv.open_csv(
            stream,
            read_options=arrow_csv.ReadOptions(column_names=names, block_size=_BLOCK, use_threads=False),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=ragged
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), include_columns=list(dict.fromkeys(wanted))
            ),
        )
        last = ""
        for batch in reader:
            columns = [batch.column(names[place]) for place in places]
            if not last:
                _refuse_spaces(columns, where)
            if batch.num_rows:
                last = batch.column(names[-1])[-1].as_py()
            yield from _cut(columns, batch.num_rows, rows)
    except pa.ArrowInvalid as error:
        raise DataError(wrong[0] if wrong else _csv_error(str(error), where)) from None
    if ("\n" in last or "\r" in last) and stream.last != b'"':
        raise DataError(
            f"{where}: not valid CSV (a double quote before {last.strip()[:40]!r} is not closed). Check the quotes of "
            "the last row; one inside of a quoted cell is written twice."
        )


def _refuse_spaces(columns: Sequence[Any], where: str) -> None:
    """A quote after a space would be part of the cell, and whoever writes so does it from the first row on."""
    for column in columns:
        cell = next((cell for cell in column.slice(0, 100).to_pylist() if _SPACED.match(cell or "")), None)
        if cell is not None:
            raise DataError(
                f"{where}: a space stands before the double quote of {shown(cell)}, so the quote is part of the "
                "cell. Write cells without spaces between them."
            )


def _cut(columns: Sequence[Any], length: int, rows: int) -> Iterator[list[Any]]:
    for start in range(0, length, rows):
        yield [column.slice(start, rows) for column in columns]


# ---------------------------------------------------------------------- Parquet, Feather, memory


class _Within(io.RawIOBase):
    """A file that pyarrow reads and never maps: one cut short meanwhile, or whose lengths lie, costs an error alone."""

    def __init__(self, stream: BinaryIO, where: str, kind: str) -> None:
        self._stream, self.size = stream, stream.seek(0, os.SEEK_END)
        stream.seek(0)
        if not self.size:
            raise DataError(f"{where} is empty: expected a {_FORMATS[kind]} file.")

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

    @property
    def most(self) -> int:
        """How much a table may grow when it is unpacked, as :class:`Opened` has it."""
        return most_unpacked(self.size)


def _open_parquet(file: _Within, where: str, row_groups: Sequence[int] | None = None, threads: bool = True) -> Opened:
    """A Parquet file, or some of its row groups."""
    from pyarrow import parquet

    opened = parquet.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)  # a row group need not fit into memory
    given = opened.schema_arrow.names
    names = column_names(opened.schema_arrow, where)

    def batches(places: Sequence[int], rows: int) -> Iterator[list[Any]]:
        with in_words(where, "parquet"):
            columns = [given[place] for place in places]
            for batch in opened.iter_batches(rows, row_groups, columns, use_threads=threads):
                batch.validate(full=True)
                yield [batch.column(given[place]) for place in places]

    return Opened(where, names, False, batches, most=file.most, rows=_rows_of(opened.metadata, row_groups))


def _rows_of(metadata: Any, row_groups: Sequence[int] | None) -> int:
    """How many rows there are in these row groups, as far as they exist."""
    wanted = range(metadata.num_row_groups) if row_groups is None else row_groups
    return sum(metadata.row_group(place).num_rows for place in wanted if place < metadata.num_row_groups)


def _open_feather(file: _Within, where: str) -> Opened:
    from pyarrow import ipc

    whole = file.read(6) == b"ARROW1"  # else the same without an index at the end
    file.seek(0)
    start = ipc.open_file if whole else ipc.open_stream
    names = column_names(start(file).schema, where)
    if max(_unpacked_sizes(file, whole), default=0) > file.most:
        raise DataError(trap(where))

    def batches(places: Sequence[int], rows: int) -> Iterator[list[Any]]:
        with in_words(where, "feather"):
            file.seek(0)
            wanted = sorted(places)
            reader = start(file, options=ipc.IpcReadOptions(included_fields=wanted))
            for batch in map(reader.get_batch, range(reader.num_record_batches)) if whole else reader:
                batch.validate(full=True)  # else what is damaged is a crash, not an error
                yield from _cut([batch.column(wanted.index(place)) for place in places], batch.num_rows, rows)

    return Opened(where, names, False, batches, most=file.most)


def _unpacked_sizes(file: _Within, whole: bool) -> Iterator[int]:
    """How many bytes each packed portion of a Feather file says it holds, which pyarrow would take on trust.

    What a portion consists of must be within the file.
    """

    def at(place: int, form: str) -> tuple[int, ...]:
        file.seek(place)
        return struct.unpack(form, file.read(struct.calcsize(form)))

    def follow(place: int) -> int:
        return place + at(place, "<I")[0]

    def field_of(table: int, number: int) -> int:
        """Where a table of flatbuffers has a field, 0 where it lacks it."""
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
            raise ValueError("it ends too soon")  # put in words by the caller

    def blocks() -> Iterator[tuple[int, int]]:
        """Where messages begin, and how long each is without what it is about."""
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


def _open_memory(source: Any) -> Opened:
    """A table of pyarrow or what can become one, or columns by name."""
    import pyarrow as pa

    where = "the data frame"
    table: Any = None
    unusable: dict[str, str] = {}
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        table, unusable = _table([(name, source.iloc[:, j]) for j, name in enumerate(source.columns)], where)
    elif isinstance(source, Mapping):
        where = "the data"
        table, unusable = _table(list(source.items()), where)
    elif hasattr(source, "to_arrow"):
        table = source.to_arrow()
    elif hasattr(source, "collect_schema"):
        raise DataError("the table is a lazy frame: collect() it first.")
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
    names = column_names(table.schema, where)

    def batches(places: Sequence[int], rows: int) -> Iterator[list[Any]]:
        for batch in table.select(list(places)).to_batches(max_chunksize=rows):
            yield batch.columns

    return Opened(where, names, False, batches, unusable)


def column_names(schema: Any, where: str) -> tuple[str, ...]:
    """The names of the columns; row labels that pandas wrote beside them, and named itself, are none."""
    labels = _row_labels(schema.metadata or {})
    stripped = tuple("" if name in labels else name.strip() for name in schema.names)
    for kind in schema.types:
        getattr(getattr(kind, "value_type", kind), "tz", None)  # fails where a time zone is no text
    if not stripped:
        raise DataError(f"{where} has no columns: expected named columns and a row for every point.")
    _check_names(stripped, where)
    return stripped


def _row_labels(metadata: Mapping[bytes, bytes]) -> set[str]:
    """The columns of row labels that pandas made up a name for; what a stranger wrote instead counts as none."""
    try:
        labels = msgspec.convert(parse_json(metadata[b"pandas"], "").get("index_columns"), list[str | dict[str, Any]])
    except (AttributeError, KeyError, DataError, msgspec.ValidationError):
        return set()
    return {label for label in labels if isinstance(label, str) and _LABEL.fullmatch(label)}


def _table(columns: Sequence[tuple[Any, Any]], where: str) -> tuple[Any, dict[str, str]]:
    """Columns of Python or numpy values as a table, and those that are beyond pyarrow, empty there, with the reason."""
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
        return pa.Table.from_arrays(arrays, names=names), unusable
    except UnicodeEncodeError as error:
        raise DataError(f"a column of {where} is called {error.object!r}, which is no text: rename it.") from None


def _array(values: Any) -> Any:
    """A column as an array of pyarrow, or the reason why it cannot be one."""
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
        return f"it holds {error.object!r}, which is no text"


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def _absent(value: Any) -> bool:
    """None, NaN, NaT and pandas.NA are the values that do not equal themselves, or refuse to say."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def kind_of(kind: Any) -> str | None:
    """What a column of a type of pyarrow is to us."""
    from pyarrow import types

    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        return "number"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "date"
    if types.is_dictionary(kind):
        return None if kind_of(kind.value_type) is None else "text"
    return "text" if types.is_boolean(kind) or str(kind) in STRINGS else None
