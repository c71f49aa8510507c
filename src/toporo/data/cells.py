"""CSV files: cells of text between delimiters, parsed by pyarrow under a header that Python's csv module reads."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, cast

from toporo.data.formats import TableFile, check_names, encoding_error, is_packed, reading, unpacked_name
from toporo.errors import DataError

_GZIP = b"\x1f\x8b"
#: First bytes of files that are not text, whatever their name.
_MAGIC = {b"PAR1": "a Parquet file", b"ARROW1": "a Feather file", b"PK\x03\x04": "a workbook or a zip archive",
          _GZIP: "a gzip archive"}  # fmt: skip
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SPACED = re.compile(r'\s+".*"\s*', flags=re.DOTALL)
#: Bytes parsed at a time, hence the longest row; and the longest header.
BLOCK, HEAD = 1 << 22, 1 << 22


def open_csv(stack: ExitStack, stream: BinaryIO, where: str, delimiter: str) -> TableFile:
    """Read the header of a CSV file.

    Parameters
    ----------
    stack : closes the decompressed file; the stream itself belongs to the caller.
    stream : of bytes; not necessarily seekable.
    where : the name of the file.
    delimiter : separates cells, unless the suffix says that tabs do.
    """
    if is_packed(where):
        stream = stack.enter_context(_unpacked(stream, where))
    head = _take(stream, HEAD)
    _check_text(head, where)
    tabs = Path(unpacked_name(where)).suffix.lower() in (".tsv", ".tab")
    try:
        header, rest, delimiter = _header(head, delimiter, tabs)
    except csv.Error as error:
        raise DataError(f"{where}, first line: not valid CSV ({error}). Check the quotes in that line.") from None
    _check_header(header, delimiter, where)

    def batches(places: Sequence[int], rows: int) -> Iterator[list[Any]]:
        start = rest or _take(stream, 1)
        if start:
            with reading(where, "csv"):
                yield from _parse(_Joined(start, stream), where, delimiter, len(header), places, rows)

    return TableFile(tuple(header), batches)


def _unpacked(stream: BinaryIO, where: str) -> BinaryIO:
    """Decompress a gzip file while it is read."""
    start = cast(io.BufferedReader, stream).peek(len(_GZIP))[: len(_GZIP)]
    if start and start != _GZIP:
        raise DataError(
            f"{where} is not packed with gzip, though its name ends in .gz. Give it the ending of what it is, or pack "
            "it: gzip FILE."
        )
    return cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb"))


def _take(stream: BinaryIO, size: int) -> bytes:
    """Read so many bytes, fewer only at the end; some streams give less than they are asked for."""
    content = b""
    while len(content) < size:
        more = stream.read(size - len(content))
        if not more:
            break
        content += more
    return content


def _check_text(head: bytes, where: str) -> None:
    """Refuse the first bytes of a file that is not text in UTF-8."""
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            raise DataError(
                f"{where} is {kind}, not text: expected a CSV file. Give a Parquet or Feather file its ending "
                "(.parquet, .feather), a CSV file packed with gzip the ending .csv.gz, and unpack or convert others."
            )
    if head[:2] in _UTF16 or b"\0" in head[:2]:
        raise encoding_error(where, "it looks like UTF-16", "utf-16")
    if b"\0" in head.partition(b"\n")[0]:
        raise DataError(f"{where} is not text, for its first line holds NUL bytes: expected a CSV file.")


def _header(head: bytes, delimiter: str, tabs: bool) -> tuple[list[str], bytes, str]:
    """Return the names of the columns, the bytes after them, and the delimiter."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    text = decoder.decode(head, final=len(head) < HEAD)
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
        if consumed == len(text) and len(head) == HEAD:
            raise csv.Error(f"it is longer than {HEAD >> 20} MiB")
        if len(row) > 1 or (row and row[0].strip()):
            return [name.strip() for name in row], text[consumed:].encode() + undecoded, delimiter
    return [], b"", delimiter


def _check_header(header: Sequence[str], delimiter: str, where: str) -> None:
    """Refuse a header without names, and one whose delimiter is another."""
    if not header:
        raise DataError(f"{where} is empty: expected a first line that names the columns, and a line for every point.")
    if len(header) == 1:
        other = next((sign for sign in ";\t|," if sign != delimiter and sign in header[0]), None)
        if other is not None:
            raise DataError(
                f"{where} has a single column, {shown(header[0])}: it looks as if cells were separated by {other!r}. "
                f"Say so: --delimiter {'tab' if other == chr(9) else repr(other)} (delimiter={other!r})."
            )
    check_names(header, where)


def shown(cell: str, limit: int = 40) -> str:
    """Quote a cell in a message."""
    cell = cell.strip()
    return repr(cell if len(cell) <= limit else f"{cell[:limit]}…")


class _Joined(io.RawIOBase):
    """Bytes that were read already, then the rest of a stream; remembers the last byte that is not white space."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest, self.last = head, rest, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = len(self._head) or BLOCK
        content, self._head = self._head[:size], self._head[size:]
        content = content or self._rest.read(size) or b""
        self.last = content.rstrip()[-1:] or self.last
        return content


def _parse(
    stream: _Joined, where: str, delimiter: str, width: int, places: Sequence[int], rows: int
) -> Iterator[list[Any]]:
    """Yield the cells of some columns as strings."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    ragged = _RaggedRows(where, width)
    names = [str(place) for place in range(width)]
    wanted = [*(names[place] for place in places), names[-1]]  # the last column shows whether its quotes were closed
    try:
        reader = arrow_csv.open_csv(
            stream,
            read_options=arrow_csv.ReadOptions(column_names=names, block_size=BLOCK, use_threads=False),
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
            for start in range(0, batch.num_rows, rows):
                yield [column.slice(start, rows) for column in columns]
    except pa.ArrowInvalid as error:
        raise DataError(ragged.problem) if ragged.problem else _csv_error(str(error), where) from None
    if ("\n" in last or "\r" in last) and stream.last != b'"':
        raise DataError(
            f"{where}: not valid CSV (a double quote before {last.strip()[:40]!r} is not closed). Check the quotes of "
            "the last row; one inside of a quoted cell is written twice."
        )


class _RaggedRows:
    """Handler of rows that have not as many cells as the header: skips blank lines, describes the first other one."""

    def __init__(self, where: str, width: int) -> None:
        self.where, self.width, self.blank, self.problem = where, width, 0, ""

    def __call__(self, row: Any) -> str:
        if not row.text.strip():
            self.blank += 1
            return "skip"
        remedy = (
            "A double quote in it is not closed: close it, or write a quote that is part of a cell twice."
            if row.text.count('"') % 2 == 1
            else "Is the first line a title? Remove it: the names of the columns come first."
            if self.width == 1
            else "A cell with the delimiter in it must stand in double quotes."
        )
        self.problem = self.problem or (
            f"{self.where}, row {row.number - self.blank} after the header: found {row.actual_columns} cells, expected "
            f"{self.width} as in the header. {remedy}"
        )
        return "error"


def _refuse_spaces(columns: Sequence[Any], where: str) -> None:
    """Refuse quotes after a space, which would be part of the cell; files that have them do from the first row on."""
    for column in columns:
        cell = next((cell for cell in column.slice(0, 100).to_pylist() if _SPACED.match(cell or "")), None)
        if cell is not None:
            raise DataError(
                f"{where}: a space stands before the double quote of {shown(cell)}, so the quote is part of the "
                "cell. Write cells without spaces between them."
            )


def _csv_error(message: str, where: str) -> DataError:
    """Explain an error of pyarrow's parser."""
    if "UTF8" in message or "UTF-8" in message:
        return encoding_error(where, "a cell holds bytes that are not valid")
    if "straddling" in message or "out of sync" in message:
        return DataError(
            f"{where} has a row of more than {BLOCK >> 20} MiB: a double quote that is not closed, as a rule. Check "
            "the quotes; one inside of a quoted cell is written twice."
        )
    return DataError(f"{where}: not valid CSV ({message.splitlines()[0].rstrip('.')}).")
