"""Tables of any source: files, folders, patterns, object stores, streams and data frames, all read in chunks.

A *chunk* is a span of row groups of a Parquet file, a whole file of another format, or 2**20 rows of a table in memory.
Chunks depend on the source alone, so whatever is added up chunk by chunk comes to the same bytes, whoever reads which
chunk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toporo.data.columns import kind_of, kind_of_cells
from toporo.data.formats import TableFile, column_names, format_of, open_table_file, reading
from toporo.data.sources import Files, HeldFile, find_files
from toporo.errors import DataError, SettingError, listed
from toporo.text import spelled

#: Rows of a chunk of a table in memory, and at least of a Parquet file that has as many.
CHUNK_ROWS = 1 << 20
#: Errors of pyarrow for values that it cannot hold in a column.
_REFUSED = (ValueError, TypeError, OverflowError, NotImplementedError)


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table, which can be read by themselves.

    Attributes
    ----------
    path : of the file; of a table in memory the name for messages.
    rows : their number; None where only reading tells.
    row_groups : of a Parquet file; None of others.
    keys : values of hive partitions, by column.
    first : the number of the first row within the file.
    """

    path: str
    rows: int | None = None
    row_groups: tuple[int, ...] | None = None
    keys: tuple[tuple[str, str], ...] = ()
    first: int = 1


@dataclass(frozen=True, eq=False)
class Table:
    """A table whose files, if there are several, agree on their columns.

    Attributes
    ----------
    where : the table for messages; an address without its options.
    names : its columns, those of hive partitions last.
    chunks : in order of the files' names and of the rows.
    kinds : ``"number"``, ``"date"`` or ``"text"`` by column; empty for CSV, where every cell is text.
    unusable : columns of other types, each with the reason.
    format : ``"csv"``, ``"parquet"`` or ``"feather"``; ``"memory"`` of a data frame.
    source : the :class:`~toporo.data.sources.Files`, or a table of pyarrow.
    delimiter : of CSV files.
    """

    where: str
    names: tuple[str, ...]
    chunks: tuple[Chunk, ...]
    kinds: Mapping[str, str]
    unusable: dict[str, str]
    format: str
    source: Any
    delimiter: str = ","

    @property
    def size(self) -> int:
        """Bytes of all files, compressed or not."""
        return sum(self.source.sizes.values()) if isinstance(self.source, Files) else 0

    @property
    def rows(self) -> int | None:
        """The number of rows; None where only reading tells."""
        counts = [chunk.rows for chunk in self.chunks]
        return None if None in counts else sum(count or 0 for count in counts)

    def only(self, chunks: Iterable[Chunk]) -> Table:
        """Return the same table with these of its chunks alone."""
        return replace(self, chunks=tuple(chunks))

    def batches(self, names: Sequence[str], rows: int) -> Iterator[tuple[str, int, list[Any]]]:
        """Yield the file, the number of the first row in it, and the arrays of some columns, a batch of rows at a time.

        Parameters
        ----------
        names : of the columns, in the order of the arrays.
        rows : of a batch at most.
        """
        for chunk in self.chunks:
            where, first = chunk.path, chunk.first
            if isinstance(self.source, Files):
                where = self.source.name(chunk.path)
                batches = self._read(chunk, where, names)
            else:
                places = [self.names.index(name) for name in names]
                batches = iter(self.source.select(places).slice(first - 1, chunk.rows).to_batches())
            for batch in batches:
                for start in range(0, batch.num_rows, rows):
                    arrays = batch.slice(start, rows).columns
                    yield where, first, arrays
                    first += len(arrays[0])

    def _read(self, chunk: Chunk, where: str, names: Sequence[str]) -> Iterator[Any]:
        """Yield record batches of a chunk of a file, with the values of hive partitions."""
        import pyarrow as pa

        with reading(where, self.format):
            file = _open(self.source, chunk.path, self.format, self.delimiter, chunk.row_groups)
            keys = dict(chunk.keys)
            stored = [name for name in names if name not in keys] or [next(filter(None, file.schema.names))]
            rows = 0
            for batch in file.batches([file.schema.names.index(name) for name in stored]):
                if self.kinds:
                    batch.validate(full=True)  # else damage is a crash, not an error
                columns = {name: pa.repeat(pa.scalar(value), batch.num_rows) for name, value in keys.items()}
                columns |= dict(zip(stored, batch.columns, strict=True))
                rows += batch.num_rows
                yield pa.RecordBatch.from_arrays([columns[name] for name in names], list(names))
            if chunk.rows not in (None, rows):
                raise DataError(
                    f"{where} has changed since the table was listed, or is damaged: found {rows} rows where "
                    f"{chunk.rows} are expected. Wait until nothing writes to the table, and start again."
                )


def find_table(source: Any, *, delimiter: str = ",") -> Table:
    """Find the files of a table and check that they agree, or open a table in memory.

    Parameters
    ----------
    source : a file, a folder, a pattern such as ``"sales/*.parquet"``, an address such as ``"s3://bucket/sales"``, a
        stream of bytes, a data frame of pandas, polars or pyarrow, or a mapping of names to columns. Files hold CSV,
        gzipped or not, Parquet or Feather, whatever they are called. Folders called ``state=NY`` give a column
        ``state``. Names that begin with a dot or an underscore do not count.
    delimiter : separates the cells of CSV files; tabs do in those whose name ends in .tsv or .tab.
    """
    if isinstance(source, Table):
        return source
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise SettingError(f"delimiter is {delimiter!r}: expected a single character such as ',' or ';'.")
    if isinstance(source, str | os.PathLike):
        if is_rereadable(source):
            return _of_files(find_files(os.fspath(source)), delimiter)
        with reading(spelled(source)):
            return _of_stream(spelled(source), Path(source).read_bytes(), delimiter)
    if callable(getattr(source, "read", None)):  # a data frame may have a column of this name
        return _of_stream("standard input", source.read(), delimiter)
    return _in_memory(source)


def is_rereadable(source: Any) -> bool:
    """Return whether a source is files that can be read several times: no pipe, stream or data frame."""
    if not isinstance(source, str | os.PathLike):
        return isinstance(source, Table) and source.format != "memory"
    try:
        os.fspath(source).encode()  # pyarrow opens no other names
        mode = Path(source).stat().st_mode
    except UnicodeEncodeError:
        return False
    except (OSError, ValueError):
        return True  # reading it says what is wrong
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


# ---------------------------------------------------------------------- files


def _of_stream(where: str, content: bytes, delimiter: str) -> Table:
    """Return a table of bytes that were read from a stream."""
    return _of_files(Files(where, HeldFile(content), {where: len(content)}, where), delimiter)


def _open(files: Files, path: str, kind: str, delimiter: str, *more: Any) -> TableFile:
    """Open one of the files."""
    return open_table_file(lambda: files.system.open_input_file(path), files.name(path), kind, delimiter, *more)


def _of_files(files: Files, delimiter: str) -> Table:
    """Look into each file, and check that all agree."""
    import pyarrow as pa

    first, *_ = files.sizes
    with reading(files.where):
        kind = format_of(files.system.open_input_file(first), files.name(first))
    schema: Any = None
    chunks: list[Chunk] = []
    for path in files.sizes:
        with reading(where := files.name(path), kind):
            file = _open(files, path, kind, delimiter)
            schema = _unified(schema or file.schema, file.schema, files.name(first), where)
            chunks += _chunks(path, files.keys(path), file)
    keys = [name for name, _ in chunks[0].keys] if chunks else []
    for chunk in chunks:
        if [name for name, _ in chunk.keys] != keys or len(set(keys)) < len(keys) or set(keys) & set(schema.names):
            raise DataError(
                f"{chunk.path} does not fit the table {files.where}: expected folders such as state=NY of the same "
                f"columns around every file ({listed(keys) if keys else 'none'}), each once, and no such column in the "
                "files. Move the file, rename the folder, or give a pattern."
            )
    kinds, unusable = _kinds(schema)
    kinds |= {name: kind_of_cells(pa.array([dict(chunk.keys)[name] for chunk in chunks])) for name in keys}
    names = (*schema.names, *keys)
    return Table(files.where, names, tuple(chunks), {} if kind == "csv" else kinds, unusable, kind, files, delimiter)


def _unified(schema: Any, theirs: Any, a: str, b: str) -> Any:
    """Add the types of a file to those of the first; refuse other columns, or columns of another kind."""
    import pyarrow as pa

    def plain(given: Any) -> Any:  # categories may be text in another file
        return pa.string() if pa.types.is_dictionary(given) else given

    named = [pa.schema([(field.name, plain(field.type)) for field in one if field.name]) for one in (schema, theirs)]
    why = listed(sorted(set(named[0].names) ^ set(named[1].names)))
    try:
        if not why:
            return pa.unify_schemas(named, promote_options="permissive")
    except pa.ArrowTypeError as error:
        why = str(error).rstrip(".")
    raise DataError(
        f"{b} has other columns than {a}: {why}. Expected the same columns of the same kind in all files of a table: "
        "write it anew, or leave it out by a pattern."
    )


def _chunks(path: str, keys: tuple[tuple[str, str], ...], file: TableFile) -> Iterator[Chunk]:
    """Cut a Parquet file into chunks of whole row groups; a file of another format is one chunk."""
    if file.row_groups is None:
        yield Chunk(path, keys=keys)
        return
    groups: list[int] = []
    rows, first = 0, 1
    for place, count in enumerate(file.row_groups):
        groups.append(place)
        rows += count
        if rows >= CHUNK_ROWS or (rows and place == len(file.row_groups) - 1):
            yield Chunk(path, rows, tuple(groups), keys, first)
            groups, rows, first = [], 0, first + rows


def _kinds(schema: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the kinds of columns by their types, and the reasons why others cannot be used."""
    kinds = {field.name: kind for field in schema if (kind := kind_of(field.type)) is not None}
    reason = "it holds values of type {}, which are neither numbers nor dates nor text"
    others = {field.name: reason.format(field.type) for field in schema if field.name not in kinds}
    return kinds, others


# ---------------------------------------------------------------------- memory


def _in_memory(source: Any) -> Table:
    """Return a table of a data frame of pandas, polars or pyarrow, or of a mapping of names to columns."""
    import pyarrow as pa

    where = "the data" if isinstance(source, Mapping) else "the data frame"
    unusable: dict[str, str] = {}
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        data = _of_columns([(name, source.iloc[:, j]) for j, name in enumerate(source.columns)], where, unusable)
    elif isinstance(source, Mapping):
        data = _of_columns(list(source.items()), where, unusable)
    elif hasattr(source, "collect"):
        raise DataError("the table is a lazy frame: collect() it first.")
    else:
        try:
            data = pa.table(source)
        except _REFUSED:
            raise DataError(
                f"cannot read a table from {type(source).__name__}: expected a path, a stream of bytes, a data frame "
                "of pandas, polars or pyarrow, or a mapping of names to columns."
            ) from None
    titles = column_names(data.schema.names, where)
    names = tuple(filter(None, titles))
    data = data.select([place for place, name in enumerate(titles) if name]).rename_columns(list(names))
    starts = range(0, len(data), CHUNK_ROWS)
    chunks = tuple(Chunk(where, min(CHUNK_ROWS, len(data) - start), first=start + 1) for start in starts)
    kinds, others = _kinds(data.schema)
    kinds = {name: kind for name, kind in kinds.items() if name not in unusable}
    return Table(where, names, chunks, kinds, others | unusable, "memory", data)


def _of_columns(columns: Sequence[tuple[Any, Any]], where: str, unusable: dict[str, str]) -> Any:
    """Return a table of pyarrow; columns that it cannot hold are empty, and ``unusable`` has the reason."""
    import pyarrow as pa

    arrays: list[Any] = []
    for name, values in columns:
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise DataError(f"column {name!r} of {where} is a {type(values).__name__}: expected a sequence of values.")
        try:
            arrays.append(_array(values))
        except _REFUSED as error:
            unusable[str(name).strip()] = " ".join(str(error).split())
            arrays.append(pa.nulls(len(values)))
    try:
        return pa.Table.from_arrays(arrays, names=[str(name) for name, _ in columns])
    except _REFUSED as error:
        raise DataError(
            f"{where} cannot be made a table: {error}. Give columns of one length, named by text."
        ) from None


def _array(values: Any) -> Any:
    """Return a column as an array of pyarrow; values of several types become text."""
    import pyarrow as pa

    with suppress(*_REFUSED):
        return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, from_pandas=True)
    cells = [pa.array([value], from_pandas=True).cast(pa.string())[0].as_py() for value in values]
    return pa.array(cells, pa.string())
