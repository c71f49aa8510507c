"""Tables of any source: files, folders, patterns, object stores, streams and data frames, all read in chunks.

A *chunk* is a span of row groups of a Parquet file, a whole file of another format, or 2**20 rows of a table in memory.
Chunks depend on the source alone, so whatever is added up chunk by chunk comes to the same bytes, whoever reads which
chunk.
"""

from __future__ import annotations

import io
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import unquote

from toporo.data.arrow import as_arrow, column_names, kind_of, open_feather, open_parquet
from toporo.data.cells import open_csv
from toporo.data.formats import TableFile, format_of, most_unpacked, reading
from toporo.data.stores import PARTITION, Files, Options, file_system, find_files, fixed_part, open_file
from toporo.errors import DataError, SettingError, listed
from toporo.text import is_address, many, spelled

#: Rows of a chunk of a table in memory, and at least of a Parquet file that has as many.
CHUNK_ROWS = 1 << 20
#: Bytes that the system is asked to read ahead at a time.
FETCHED = 1 << 23
#: The value of a hive partition that says that there is none.
_NONE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table, which can be read by themselves.

    Attributes
    ----------
    path : of the file; of a table in memory the name for messages.
    row_groups : of a Parquet file; None of others.
    rows : how many there are; None where only reading tells.
    keys : values of hive partitions, by column.
    first : the number of the first row within the file.
    span : where the chunk begins and ends in a Parquet file, in bytes.
    """

    path: str
    row_groups: tuple[int, ...] | None = None
    rows: int | None = None
    keys: tuple[tuple[str, str], ...] = ()
    first: int = 1
    span: tuple[int, int] | None = None


class Batch(NamedTuple):
    """Arrays of some columns, the file they are from, and the number of their first row in it."""

    where: str
    first: int
    arrays: list[Any]


@dataclass(frozen=True)
class Table:
    """A table whose files, if there are several, agree on their columns.

    Attributes
    ----------
    where : the table for messages; an address without its options.
    names : its columns, those of hive partitions last.
    chunks : in order of the files' names and of the rows.
    kinds : ``"number"``, ``"date"`` or ``"text"`` by column; empty where every cell is text.
    unusable : columns of other types, each with the reason.
    format : ``"csv"``, ``"parquet"`` or ``"feather"``; ``"memory"`` of other tables.
    size : bytes of all files, compressed or not.
    delimiter : of CSV files.
    numbers : columns of hive partitions that are numbers.
    options : of an object store.
    held : a table of pyarrow, or a stream that was opened and can be read once.
    """

    where: str
    names: tuple[str, ...]
    chunks: tuple[Chunk, ...]
    kinds: Mapping[str, str]
    unusable: Mapping[str, str]
    format: str
    size: int = 0
    delimiter: str = ","
    numbers: frozenset[str] = frozenset()
    options: Options = ()
    held: Any = field(default=None, compare=False)

    @property
    def cells(self) -> bool:
        """True where every cell is text, as in CSV files, so types are yet to be found."""
        return self.format == "csv"

    @property
    def rows(self) -> int | None:
        """The number of rows; None where only reading tells."""
        counts = [chunk.rows for chunk in self.chunks]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def most(self) -> float:
        """Bytes that all rows together may take; a Parquet or Feather file that takes more is a trap."""
        return most_unpacked(self.size) if self.size and not self.cells else math.inf

    def only(self, chunks: Iterable[Chunk]) -> Table:
        """Return the same table with these of its chunks alone."""
        return replace(self, chunks=tuple(chunks))

    def batches(self, names: Sequence[str], rows: int, chunk: Chunk | None = None) -> Iterator[Batch]:
        """Read some columns.

        Parameters
        ----------
        names : of the columns, in the order of the arrays.
        rows : of a batch at most.
        chunk : the only one to read; then its columns are read one after the other, for other chunks may be read at
            the same time.
        """
        for each in self.chunks if chunk is None else (chunk,):
            first = each.first
            for arrays in self._arrays(each, names, rows, threads=chunk is None):
                yield Batch(spelled(each.path), first, arrays)
                first += len(arrays[0])

    def fetch(self, chunk: Chunk) -> None:
        """Ask the system to read a chunk from the disk before it is needed, where it can.

        Parameters
        ----------
        chunk : one of :attr:`chunks`.
        """
        if chunk.span is None or is_address(chunk.path) or not hasattr(os, "posix_fadvise"):
            return
        with suppress(OSError, OverflowError), Path(chunk.path).open("rb") as stream:
            end = min(chunk.span[1], os.fstat(stream.fileno()).st_size)  # the metadata of a file may be false
            for start in range(chunk.span[0], end, FETCHED):
                os.posix_fadvise(stream.fileno(), start, FETCHED, os.POSIX_FADV_WILLNEED)

    def _arrays(self, chunk: Chunk, names: Sequence[str], rows: int, *, threads: bool) -> Iterator[list[Any]]:
        places = [self.names.index(name) for name in names]
        if self.format == "memory":
            part = self.held.select(places).slice(chunk.first - 1, chunk.rows)
            yield from (batch.columns for batch in part.to_batches(max_chunksize=rows))
            return
        if self.held is not None:
            yield from self.held.batches(places, rows)
            return
        where = spelled(chunk.path)
        with reading(where, self.format), ExitStack() as stack:
            stream = stack.enter_context(open_file(chunk.path, file_system(chunk.path, self.options)))
            file = _open(stack, stream, where, self.format, self.delimiter, chunk.row_groups, threads=threads)
            self._check_unchanged(chunk, file)
            keys = dict(chunk.keys)
            stored = [file.names.index(name) for name in names if name not in keys]
            counted = [] if stored else [next(place for place, name in enumerate(file.names) if name)]
            for arrays in file.batches([*stored, *counted], rows):
                given, length = iter(arrays), len(arrays[0])
                yield [self._key(name, keys[name], length) if name in keys else next(given) for name in names]

    def _check_unchanged(self, chunk: Chunk, file: TableFile) -> None:
        """Refuse a file that is not the one that was there when the table was listed."""
        keys, rows = dict(chunk.keys), _rows_of(file, chunk.row_groups)
        lacking = [name for name in self.names if name and name not in keys and name not in file.names]
        if lacking or rows != chunk.rows:
            change = f"lacks {listed(lacking)} by now" if lacking else f"has {many(rows or 0, 'row')} by now"
            expected = "" if lacking else f" where it had {many(chunk.rows or 0, 'row')}"
            raise DataError(
                f"{spelled(chunk.path)} has changed since the table was listed: it {change}{expected}. Wait until "
                "nothing writes to the table, and start again."
            )

    def _key(self, name: str, value: str, length: int) -> Any:
        """Return a column with the value of a hive partition in every row."""
        import pyarrow as pa

        if self.cells:
            return pa.repeat(pa.scalar(value, pa.string()), length)
        if name in self.numbers:
            return pa.repeat(pa.scalar(float(value) if value else None, pa.float64()), length)
        codes = pa.repeat(pa.scalar(0, pa.int32()), length)
        return pa.DictionaryArray.from_arrays(codes, pa.array([value or None], pa.string()))


def find_table(source: Any, *, format: str | None = None, delimiter: str = ",") -> Table:  # noqa: A002
    """Find the files of a table and check that they agree, or open a table in memory.

    Parameters
    ----------
    source : a file, a folder, a pattern such as ``"sales/*.parquet"``, an address such as ``"s3://bucket/sales"``, a
        stream of bytes, a data frame of pandas, polars or pyarrow, or a mapping of names to columns. Folders called
        ``state=NY`` give a column ``state``. Names that begin with a dot or an underscore do not count. A CSV file may
        be packed with gzip, if its name ends in .gz (.csv.gz, .tsv.gz, …).
    format : "csv", "parquet" or "feather", where the endings of names do not say it.
    delimiter : separates the cells of CSV files.
    """
    if isinstance(source, Table):
        return source
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise SettingError(f"delimiter is {delimiter!r}: expected a single character such as ',' or ';'.")
    if isinstance(source, str | os.PathLike):
        path, where = os.fsdecode(source), spelled(source)
        if "\0" in path:
            raise DataError(f"no such file: {path!r}. A name of a file has no NUL in it.")
        if is_rereadable(source):
            return _of_files(find_files(path, format), format, delimiter)
        with reading(where, "csv"):
            return _of_stream(Path(path).open("rb"), where, format_of(path, format), delimiter)
    if callable(getattr(source, "read", None)):  # a data frame may have a column of this name
        return _of_stream(source, "standard input", format_of("", format), delimiter)
    table, where, unusable = as_arrow(source)
    starts = range(0, len(table), CHUNK_ROWS)
    chunks = [Chunk(where, rows=min(CHUNK_ROWS, len(table) - start), first=start + 1) for start in starts]
    names = column_names(table.schema, where)
    return _typed(Table(where, names, tuple(chunks), {}, unusable, "memory", held=table), table.schema.types)


def is_rereadable(source: Any) -> bool:
    """Return whether a source is files that can be read several times: no pipe, stream or table in memory."""
    if isinstance(source, Table):
        return source.held is None
    if not isinstance(source, str | os.PathLike):
        return False
    with suppress(OSError, ValueError):  # reading it says what is wrong
        mode = Path(os.fsdecode(source)).stat().st_mode
        return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    return True


def _of_stream(stream: BinaryIO, where: str, kind: str, delimiter: str) -> Table:
    """Open a stream that can be read once."""
    with reading(where, kind):
        size = 0
        if kind != "csv":
            content = stream.read()
            stream, size = io.BytesIO(content), len(content)
        file = _open(ExitStack(), stream, where, kind, delimiter)
    return _typed(Table(where, file.names, (Chunk(where),), {}, {}, kind, size, held=file), file.types or ())


def _open(
    stack: ExitStack,
    stream: BinaryIO,
    where: str,
    kind: str,
    delimiter: str,
    row_groups: Sequence[int] | None = None,
    *,
    threads: bool = True,
) -> TableFile:
    if kind == "csv":
        return open_csv(stack, stream, where, delimiter)
    if kind == "feather":
        return open_feather(stream, where)
    return open_parquet(stream, where, row_groups, threads=threads)


def _rows_of(file: TableFile, row_groups: Sequence[int] | None) -> int | None:
    """Count the rows in these row groups, as far as they exist."""
    if file.row_groups is None:
        return None
    wanted = range(len(file.row_groups)) if row_groups is None else row_groups
    return sum(file.row_groups[place][0] for place in wanted if place < len(file.row_groups))


def _typed(table: Table, types: Sequence[Any]) -> Table:
    """Add the kinds of columns by their types, and the reasons why others cannot be used."""
    by_name = {name: kind for name, kind in zip(table.names, types, strict=False) if name not in ("", *table.unusable)}
    unusable = {
        name: f"it holds values of type {kind}, which are neither numbers nor dates nor text"
        for name, kind in by_name.items()
        if kind_of(kind) is None
    }
    kinds = {name: kind_of(kind) or "" for name, kind in by_name.items() if name not in unusable}
    return replace(table, kinds={**table.kinds, **kinds}, unusable={**table.unusable, **unusable})


# ---------------------------------------------------------------------- several files


def _of_files(files: Files, given: str | None, delimiter: str) -> Table:
    """Look into each file, and check that all agree."""
    paths = list(files.sizes)
    kind = _one_format(paths, files.where, given)
    keys = [_keys(path[len(files.base) :]) for path in paths]
    _check_keys(paths, keys)
    system = file_system(paths[0], files.options)
    first: TableFile | None = None
    types: dict[str, Any] = {}
    chunks: list[Chunk] = []
    for path, own in zip(paths, keys, strict=True):
        where = spelled(path)
        with reading(where, kind), ExitStack() as stack:
            stream = stack.enter_context(open_file(path, system))
            file = _open(stack, stream, where, kind, delimiter)
        chunks += _chunks(Chunk(path, keys=own), file, files.sizes[path])
        by_name = dict(zip(file.names, file.types or file.names, strict=True))
        if first is None:
            first, types = file, by_name
        else:
            _agree(types, by_name, spelled(paths[0]), where, cells=kind == "csv")
    names = first.names if first is not None else ()
    partitions = [name for name, _ in keys[0]]
    if twice := [name for name in partitions if name in names]:
        raise DataError(
            f"{paths[0]} has the column(s) {listed(twice)}, which the names of its folders say too: expected one or "
            "the other. Drop the column, or rename the folders."
        )
    numbers = frozenset(name for place, name in enumerate(partitions) if all(_is_number(own[place][1]) for own in keys))
    kinds = {} if kind == "csv" else {name: "number" if name in numbers else "text" for name in partitions}
    table = Table(
        where=spelled(files.where),
        names=(*names, *partitions),
        chunks=tuple(chunks),
        kinds=kinds,
        unusable={},
        format=kind,
        size=sum(files.sizes.values()),
        delimiter=delimiter,
        numbers=numbers,
        options=files.options,
    )
    return table if kind == "csv" else _typed(table, [types[name] for name in names])


def _chunks(chunk: Chunk, file: TableFile, size: int) -> list[Chunk]:
    """Cut a Parquet file into chunks of whole row groups; a file of another format is one chunk."""
    if file.row_groups is None:
        return [chunk]
    chunks: list[Chunk] = []
    groups: list[int] = []
    rows, first = 0, 1
    ends = [*(start for _, start in file.row_groups[1:]), size]
    for place, (count, _) in enumerate(file.row_groups):
        groups.append(place)
        rows += count
        if rows >= CHUNK_ROWS or (rows and place == len(ends) - 1):
            span = (file.row_groups[groups[0]][1], ends[place])
            chunks.append(replace(chunk, row_groups=tuple(groups), rows=rows, first=first, span=span))
            groups, rows, first = [], 0, first + rows
    return chunks


def _agree(types: dict[str, Any], other: dict[str, Any], a: str, b: str, *, cells: bool) -> None:
    """Refuse a file with other columns, or columns of another kind, than the first.

    A column without any value, which has a type of its own, agrees with all.
    """
    import pyarrow as pa

    lacking = [name for name in types if name and name not in other]
    more = [name for name in other if name and name not in types]
    if lacking or more:
        differences = [f"it lacks {listed(lacking)}"] * bool(lacking) + [f"it has {listed(more)} besides"] * bool(more)
        raise DataError(
            f"{b} has other columns than {a}: {' and '.join(differences)}. Expected the same in all files of a table: "
            "write it anew, or leave it out by a pattern."
        )
    for name, theirs in other.items() if not cells else ():
        ours = types.get(name, theirs)
        if pa.types.is_null(ours):
            types[name] = theirs
        elif not pa.types.is_null(theirs) and kind_of(theirs) != kind_of(ours):
            raise DataError(
                f"{b}, column {name!r}: it holds values of type {theirs}, but those of {a} are of type {ours}. "
                "Expected the same kind in all files of a table: convert the column."
            )


def _one_format(paths: Sequence[str], where: str, given: str | None) -> str:
    """Return the format of all files."""
    formats: dict[str, str] = {}
    for path in paths:
        formats.setdefault(format_of(path, given), path)
    if len(formats) > 1:
        (one, a), (other, b) = list(formats.items())[:2]
        suffix = "".join(PurePosixPath(a).suffixes[-1:])
        folder = fixed_part(where).rstrip("/")
        raise DataError(
            f"{where} holds files of several formats: {a} is {one}, {b} is {other}. Expected one: give a pattern such "
            f"as {folder}/**/*{suffix}, or convert the others."
        )
    return next(iter(formats))


def _keys(inner: str) -> tuple[tuple[str, str], ...]:
    """Return the values of hive partitions in a path, the outermost first."""
    matches = map(PARTITION.fullmatch, PurePosixPath(inner.replace(os.sep, "/")).parts[:-1])
    pairs = ((unquote(m[1]).strip(), unquote(m[2])) for m in matches if m)
    return tuple((name, "" if value == _NONE else value) for name, value in pairs)


def _check_keys(paths: Sequence[str], keys: Sequence[tuple[tuple[str, str], ...]]) -> None:
    """Refuse files whose folders have other partitions than the first, or the same twice."""
    expected = [name for name, _ in keys[0]]
    for path, own in zip(paths, keys, strict=True):
        names = [name for name, _ in own]
        if names != expected:
            said, others = (f"say {listed(each)}" if each else "say nothing" for each in (names, expected))
            raise DataError(
                f"{path} lies in folders that {said}, but {paths[0]} in folders that {others}: expected folders such "
                "as state=NY of the same columns, in the same order, around every file. Move it, or give a pattern."
            )
    twice = sorted({name for name in expected if expected.count(name) > 1})
    if twice:
        raise DataError(f"{paths[0]} lies in folders that say {listed(twice)} twice: expected once. Rename one.")


def _is_number(value: str) -> bool:
    """Return whether the value of a partition is a number that is written as such: 2024, not 01.

    >>> [_is_number(value) for value in ("2024", "-1.5", "", "01", "1e3", "nan", "-0")]
    [True, True, True, False, False, False, False]
    """
    try:
        number = float(value or 0)
    except ValueError:
        return False
    whole = math.isfinite(number) and number.is_integer() and abs(number) <= 2**53
    return not value or (math.isfinite(number) and value == (str(int(number)) if whole else repr(number)))
