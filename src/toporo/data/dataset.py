"""Tables that may be many files: a folder, a pattern, hive's ``state=NY/…``, an address of an object store.

A table consists of *pieces*, spans of row groups of Parquet files or whole files of other formats. They depend on the
files alone, so whatever is added up piece by piece comes to the same bytes, whoever reads which piece.
"""

from __future__ import annotations

import glob
import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from toporo.data import arrow
from toporo.data.arrow import Opened, column_names, format_of, in_words, kind_of, most_unpacked, open_file
from toporo.data.stores import ObjectStore, speaking_of, split_address
from toporo.errors import DataError, listed
from toporo.text import is_address, many, spelled

#: Rows that a piece has at least, unless its file has fewer.
PIECE_ROWS = 1 << 20
#: Bytes that are asked for at a time.
FETCHED = 1 << 23
_PATTERN = re.compile(r"[*?\[]")
#: How a folder of hive's is called, and the value that says that there is none.
_KEY, _NONE = re.compile(r"([^=/]+)=([^/]*)"), "__HIVE_DEFAULT_PARTITION__"
#: Names that files of other purposes begin with, in folders that are tables.
_HIDDEN = (".", "_")


@dataclass(frozen=True)
class Piece:
    """Some rows of a table, which can be read by themselves.

    Attributes
    ----------
    path : of the file.
    format : ``"csv"``, ``"parquet"`` or ``"feather"``.
    row_groups : of a Parquet file; None of others.
    rows : how many there are; None where only reading tells.
    keys : columns that the folders' names say, by name.
    first : the number of the first row within the file.
    span : where it begins and ends in a Parquet file, in bytes.
    """

    path: str
    format: str
    row_groups: tuple[int, ...] | None = None
    rows: int | None = None
    keys: tuple[tuple[str, str], ...] = ()
    first: int = 1
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class Dataset:
    """A table of files that agree on their columns.

    Attributes
    ----------
    where : the table for messages; an address without what stands behind its ?.
    names : its columns, those that folders say last.
    pieces : in order of the files' names.
    kinds : by column ``"number"``, ``"date"`` or ``"text"``; None where cells have to tell.
    size : bytes of all files; packed or not.
    delimiter : of CSV files.
    types : of columns that have not the same in all files, by name: what they are read as.
    numbers : columns of folders' names that are numbers.
    cells : whether every cell is text, as in CSV files.
    options : of an object store.
    """

    where: str
    names: tuple[str, ...]
    pieces: tuple[Piece, ...]
    kinds: Mapping[str, str | None]
    size: int
    delimiter: str = ","
    types: Mapping[str, Any] = field(default_factory=dict)
    numbers: frozenset[str] = frozenset()
    cells: bool = False
    options: tuple[tuple[str, str], ...] = ()

    @property
    def rows(self) -> int | None:
        """How many there are; None where only reading tells."""
        counts = [piece.rows for piece in self.pieces]
        return None if None in counts else sum(count or 0 for count in counts)

    def only(self, pieces: Iterable[Piece]) -> Dataset:
        """The same table with these of its pieces alone."""
        return replace(self, pieces=tuple(pieces))

    @contextmanager
    def open(self, piece: Piece | None = None, *, threads: bool = False) -> Iterator[Opened]:
        """The whole table, or one piece, to be read in portions.

        Parameters
        ----------
        piece : one of :attr:`pieces`.
        threads : whether its columns are read at the same time; else pieces may be.
        """
        if piece is None:
            yield Opened(self.where, self.names, self.cells, self._all, most=most_unpacked(self.size))
            return
        with ExitStack() as stack:
            with _in_words(piece.path, piece.format):
                opened = _open(stack, piece, self.delimiter, self.options, threads)
                self._check_unchanged(piece, opened)
            yield replace(
                opened,
                names=self.names,
                batches=lambda places, rows: self._some(opened, piece, places, rows),
                first=piece.first,
            )

    def fetch(self, piece: Piece) -> None:
        """Have the system read a piece from the disk before it is opened, where it can.

        Parameters
        ----------
        piece : one of :attr:`pieces`.
        """
        if piece.span is None or is_address(piece.path) or not hasattr(os, "posix_fadvise"):
            return
        with suppress(OSError, OverflowError), Path(piece.path).open("rb") as stream:
            end = min(piece.span[1], os.fstat(stream.fileno()).st_size)  # what a file says of itself may lie
            for start in range(piece.span[0], end, FETCHED):
                os.posix_fadvise(stream.fileno(), start, FETCHED, os.POSIX_FADV_WILLNEED)

    def parts(self) -> Iterator[Opened]:
        """Piece by piece; each is closed when the next is asked for. Without any, the whole that has no rows."""
        for piece in self.pieces or (None,):
            with self.open(piece, threads=True) as opened:
                yield opened

    def _all(self, places: Sequence[int], rows: int) -> Iterator[list[Any]]:
        for piece in self.pieces:
            with self.open(piece, threads=True) as opened:
                yield from opened.batches(places, rows)

    def _check_unchanged(self, piece: Piece, opened: Opened) -> None:
        """Whether a file still is what it was when the table was listed."""
        keys = dict(piece.keys)
        lacking = [name for name in self.names if name and name not in keys and name not in opened.names]
        other = piece.rows is not None and opened.rows is not None and piece.rows != opened.rows
        if lacking or other:
            what = f"lacks {listed(lacking)} by now" if lacking else f"has {many(opened.rows or 0, 'row')} by now"
            expected = "" if lacking else f" where it had {many(piece.rows or 0, 'row')}"
            raise DataError(
                f"{piece.path} has changed since the table was listed: it {what}{expected}. Wait until nothing writes "
                "to the table, and start again."
            )

    def _some(self, opened: Opened, piece: Piece, places: Sequence[int], rows: int) -> Iterator[list[Any]]:
        """Portions with the columns in the table's order, in its types, and with what the folders say."""
        keys, names = dict(piece.keys), [self.names[place] for place in places]
        own = [opened.names.index(name) for name in names if name not in keys]
        counting = [] if own else [next(place for place, name in enumerate(opened.names) if name)]  # for its length
        with _in_words(piece.path, piece.format):
            for arrays in opened.batches([*own, *counting], rows):
                length, given = len(arrays[0]), iter(arrays)
                yield [
                    self._key(name, keys[name], length) if name in keys else self._as(name, next(given))
                    for name in names
                ]

    def _as(self, name: str, array: Any) -> Any:
        import pyarrow as pa

        wanted = self.types.get(name)
        if wanted is None or array.type == wanted:
            return array
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_float16(array.type):  # which pyarrow does not cast
            return pa.array(array.to_numpy(zero_copy_only=False).astype("float64"), wanted, from_pandas=True)
        return array.cast(wanted, safe=False)

    def _key(self, name: str, value: str, length: int) -> Any:
        import pyarrow as pa

        if self.cells:
            return pa.repeat(pa.scalar(value, pa.string()), length)
        if name in self.numbers:
            return pa.repeat(pa.scalar(float(value) if value else None, pa.float64()), length)
        codes = pa.repeat(pa.scalar(0, pa.int32()), length)
        return pa.DictionaryArray.from_arrays(codes, pa.array([value or None], pa.string()))


def is_dataset(source: Any) -> bool:
    """Whether a source is more than a file: a folder, a pattern that is no file's name, or an address."""
    if not isinstance(source, str | os.PathLike):
        return isinstance(source, Dataset)
    text = os.fspath(source)
    if not isinstance(text, str) or "\0" in text:
        return False
    return is_address(text) or Path(text).is_dir() or (bool(_PATTERN.search(text)) and not Path(text).exists())


def find_dataset(source: Any, *, format: str | None = None, delimiter: str = ",") -> Dataset:  # noqa: A002
    """Look for the files of a table, and whether they agree.

    Parameters
    ----------
    source : a file, a folder, a pattern such as ``"sales/*.parquet"``, or an address such as ``"s3://bucket/sales"``.
        Folders within it that are called as ``state=NY`` give a column ``state``. Names that begin with a dot or an
        underscore do not count.
    format : "csv", "parquet" or "feather", where the endings of names do not say it.
    delimiter : what stands between the cells of CSV files.
    """
    if isinstance(source, Dataset):
        return source
    where = spelled(source)
    options: tuple[tuple[str, str], ...] = ()
    if is_address(where):
        where, options = split_address(where)
        base, files = _addressed(where, options)
    else:
        base, files = _local(where)
    if not files:
        what = "matches no file" if _PATTERN.search(where) else "holds no table"
        raise DataError(f"{where} {what}: expected files in Parquet, Feather or CSV. Check the name.")
    kind = _one_format([path for path, _ in files], where, format)
    keys = [_keys(path[len(base) :]) for path, _ in files]
    _check_keys([path for path, _ in files], keys)
    first, pieces, types = _agreed(
        [Piece(path, kind, keys=own) for (path, _), own in zip(files, keys, strict=True)], delimiter, options
    )
    twice = [name for name, _ in keys[0] if name in first.names]
    if twice:
        raise DataError(
            f"{files[0][0]} has the column(s) {listed(twice)}, which the names of its folders say too: expected one or "
            "the other. Drop the column, or rename the folders."
        )
    cells = kind == "csv"
    numbers = frozenset(
        name for place, (name, _) in enumerate(keys[0]) if all(_is_number(own[place][1]) for own in keys)
    )
    said = {name: None if cells else "number" if name in numbers else "text" for name, _ in keys[0]}
    return Dataset(
        where=where,
        names=(*first.names, *said),
        pieces=tuple(pieces),
        kinds=first.kinds | said,
        size=sum(size for _, size in files),
        delimiter=delimiter,
        types=types,
        numbers=numbers,
        cells=cells,
        options=options,
    )


def dataset_of(source: Any, *, format: str | None = None, delimiter: str = ",") -> Dataset | None:  # noqa: A002
    """A table that has pieces: one of many files, or a Parquet file; None for others.

    Parameters
    ----------
    source, format, delimiter : as for :func:`open_table`.
    """
    if not is_dataset(source):
        named = isinstance(source, str | os.PathLike) and "\0" not in spelled(source) and Path(source).is_file()
        if not named or format_of(source, format) != "parquet":
            return None
    return find_dataset(source, format=format, delimiter=delimiter)


@contextmanager
def open_table(source: Any, *, format: str | None = None, delimiter: str = ",") -> Iterator[Opened]:  # noqa: A002
    """Open a table of any kind to read it in portions.

    Parameters
    ----------
    source : as for :func:`toporo.data.arrow.open_table`, or what :func:`find_dataset` takes.
    format : "csv", "parquet" or "feather", where the ending of a path does not say it.
    delimiter : what stands between the cells of a CSV file.
    """
    if is_dataset(source):
        with find_dataset(source, format=format, delimiter=delimiter).open() as opened:
            yield opened
        return
    with arrow.open_table(source, format=format, delimiter=delimiter) as opened:
        yield opened


def open_parts(source: Any, *, format: str | None = None, delimiter: str = ",") -> Iterator[Opened]:  # noqa: A002
    """The same piece by piece, each by its own name; what is no table of many files is one piece.

    Parameters
    ----------
    source, format, delimiter : as for :func:`open_table`.
    """
    if is_dataset(source):
        yield from find_dataset(source, format=format, delimiter=delimiter).parts()
        return
    with arrow.open_table(source, format=format, delimiter=delimiter) as opened:
        yield opened


# ---------------------------------------------------------------------- files


def _local(where: str) -> tuple[str, list[tuple[str, int]]]:
    """The folder whose names say nothing, and the files with their sizes, in order of their names."""
    path = Path(where)
    if path.is_dir():
        inside = (each for each in path.rglob("*") if each.is_file())
        shown = [each for each in inside if not _hidden(each.relative_to(path).parts)]
        base, names = str(path), [str(each) for each in shown]
    elif path.exists():
        base, names = str(path.parent), [where]
    elif _PATTERN.search(where):
        base = _fixed(where)
        matching = glob.glob(where, recursive=True)  # noqa: PTH207  # a pattern may be absolute
        names = [each for each in matching if Path(each).is_file() and not _hidden(Path(each[len(base) :]).parts)]
    else:
        raise DataError(f"no such file: {where}. Expected a file, a folder or a pattern such as data/*.parquet.")
    names.sort(key=lambda name: Path(name).as_posix())
    with _in_words(where, "parquet"):
        return base, [(name, Path(name).stat().st_size) for name in names]


def _addressed(where: str, options: tuple[tuple[str, str], ...]) -> tuple[str, list[tuple[str, int]]]:
    """The same at an address; files are addresses themselves."""
    pattern = _PATTERN.search(where)
    base = _fixed(where) if pattern else where.rstrip("/")
    files = sorted(ObjectStore(where, options).listing(base))
    if not pattern:
        return base, [(path, size) for path, size in files if path == base or not _hidden(_inner(path, base))]
    wanted = re.compile(_translated(where))
    return base, [(path, size) for path, size in files if wanted.match(path) and not _hidden(_inner(path, base))]


def _inner(path: str, base: str) -> tuple[str, ...]:
    return PurePosixPath(path[len(base) :].lstrip("/")).parts


def _fixed(pattern: str) -> str:
    """The folder before the first sign of a pattern."""
    sign = _PATTERN.search(pattern)
    return re.sub(r"[^/\\]*\Z" if os.sep == "\\" else r"[^/]*\Z", "", pattern[: sign.start() if sign else None])


def _hidden(parts: Iterable[str]) -> bool:
    """Whether a file or a folder around it is not meant; a folder of hive's always is."""
    return any(part.startswith(_HIDDEN) and not _KEY.fullmatch(part) for part in parts)


def _translated(pattern: str) -> str:
    """A pattern of paths as a regular expression."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]/]+\])", pattern)
    sets = {piece: piece.replace("\\", r"\\").replace("[!", "[^") for piece in pieces if piece.startswith("[")}
    return "".join((parts | sets).get(piece) or re.escape(piece) for piece in pieces) + r"\Z"


def _one_format(paths: Sequence[str], where: str, given: str | None) -> str:
    """The format of all files."""
    formats: dict[str, str] = {}
    for path in paths:
        formats.setdefault(format_of(path, given), path)
    if len(formats) > 1:
        (one, a), (other, b) = list(formats.items())[:2]
        suffix = "".join(PurePosixPath(a).suffixes[-1:])
        folder = (_fixed(where) if _PATTERN.search(where) else where).rstrip("/")
        raise DataError(
            f"{where} holds files of several formats: {a} is {one}, {b} is {other}. Expected one: give a pattern such "
            f"as {folder}/**/*{suffix}, or convert the others."
        )
    return next(iter(formats))


def _keys(inner: str) -> tuple[tuple[str, str], ...]:
    """What the names of folders say, hive's way, from outside to inside."""
    matches = map(_KEY.fullmatch, PurePosixPath(inner.replace(os.sep, "/")).parts[:-1])
    pairs = ((unquote(m[1]).strip(), unquote(m[2])) for m in matches if m)
    return tuple((name, "" if value == _NONE else value) for name, value in pairs)


def _check_keys(paths: Sequence[str], keys: Sequence[tuple[tuple[str, str], ...]]) -> None:
    """All folders must say the same columns, and each once."""
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
    """Whether a key is a number that is written as such: 2024, not 01.

    >>> [_is_number(value) for value in ("2024", "-1.5", "", "01", "1e3", "nan", "-0")]
    [True, True, True, False, False, False, False]
    """
    try:
        number = float(value or 0)
    except ValueError:
        return False
    whole = math.isfinite(number) and number.is_integer() and abs(number) <= 2**53
    return not value or (math.isfinite(number) and value == (str(int(number)) if whole else repr(number)))


# ---------------------------------------------------------------------- what is in a file


@dataclass(frozen=True)
class _Schema:
    names: tuple[str, ...]
    kinds: dict[str, str | None]
    types: dict[str, Any]


def _agreed(
    files: Sequence[Piece], delimiter: str, options: tuple[tuple[str, str], ...]
) -> tuple[_Schema, list[Piece], dict[str, Any]]:
    """The columns of the first file, the pieces of all, and what columns of differing types are read as."""
    store = ObjectStore(files[0].path, options) if is_address(files[0].path) else None
    first, pieces = _look(files[0], delimiter, store)
    types: dict[str, Any] = {}
    for file in files[1:]:
        schema, parts = _look(file, delimiter, store)
        pieces += parts
        types |= _agree(first, schema, files[0].path, file.path)
    return first, pieces, types


def _look(piece: Piece, delimiter: str, store: ObjectStore | None) -> tuple[_Schema, list[Piece]]:
    """The columns of a file, and its pieces."""
    from pyarrow import ipc, parquet

    with _in_words(piece.path, piece.format), ExitStack() as stack:
        if piece.format == "csv":
            opened = open_file(stack, stack.enter_context(_stream(piece.path, store)), piece.path, "csv", delimiter)
            return _Schema(opened.names, dict.fromkeys(filter(None, opened.names)), {}), [piece]
        stream = stack.enter_context(_stream(piece.path, store))
        if not stream.peek(1):
            raise DataError(f"{piece.path} is empty: expected a table. Write it anew, or remove it.")
        if piece.format == "feather":
            open_file(stack, stream, piece.path, "feather")  # whose lengths are looked at, unlike pyarrow's
            whole = stream.seek(0) == 0 and stream.read(6) == b"ARROW1"
            stream.seek(0)
            return _typed((ipc.open_file if whole else ipc.open_stream)(stream).schema, piece.path), [piece]
        file = parquet.ParquetFile(stream)
        counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        columns = [file.metadata.row_group(i).column(0) for i in range(len(counts) if file.metadata.num_columns else 0)]
        starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
        return _typed(file.schema_arrow, piece.path), _spans(piece, counts, [*starts, stream.seek(0, os.SEEK_END)])


def _spans(piece: Piece, counts: Sequence[int], starts: Sequence[int]) -> list[Piece]:
    spans: list[Piece] = []
    groups: list[int] = []
    rows, first = 0, 1
    for place, count in enumerate(counts):
        groups.append(place)
        rows += count
        if rows >= PIECE_ROWS or (rows and place == len(counts) - 1):
            span = (starts[groups[0]], starts[place + 1]) if len(starts) > len(counts) else None
            spans.append(replace(piece, row_groups=tuple(groups), rows=rows, first=first, span=span))
            groups, rows, first = [], 0, first + rows
    return spans


def _typed(schema: Any, where: str) -> _Schema:
    names = column_names(schema, where)
    types = {name: kind for name, kind in zip(names, schema.types, strict=True) if name}
    return _Schema(names, {name: kind_of(kind) for name, kind in types.items()}, types)


def _agree(first: _Schema, other: _Schema, a: str, b: str) -> dict[str, Any]:
    """What columns of differing types are read as; other columns or kinds are an error.

    A column without any value, which has a type of its own, agrees with all.
    """
    import pyarrow as pa

    lacking = [name for name in first.kinds if name not in other.kinds]
    more = [name for name in other.kinds if name not in first.kinds]
    if lacking or more:
        what = [f"it lacks {listed(lacking)}"] * bool(lacking) + [f"it has {listed(more)} besides"] * bool(more)
        raise DataError(
            f"{b} has other columns than {a}: {' and '.join(what)}. Expected the same in all files of a table: write "
            "it anew, or leave it out by a pattern."
        )
    types: dict[str, Any] = {}
    for name, theirs in other.types.items():
        ours = first.types[name]
        if pa.types.is_null(ours) and not pa.types.is_null(theirs):
            first.types[name], first.kinds[name] = theirs, other.kinds[name]
            ours = theirs
            types[name] = _joint(other.kinds[name], theirs)
        elif pa.types.is_null(theirs) and not pa.types.is_null(ours):
            types[name] = _joint(first.kinds[name], ours)
        elif other.kinds[name] != first.kinds[name]:
            raise DataError(
                f"{b}, column {name!r}: it holds values of type {theirs}, but those of {a} are of type {ours}. "
                "Expected the same kind in all files of a table: convert the column."
            )
        elif theirs != ours:
            types[name] = _joint(first.kinds[name], ours)
    return types


def _joint(kind: str | None, other: Any) -> Any:
    """What a column of several types is read as."""
    import pyarrow as pa

    known = {"number": pa.float64(), "date": pa.timestamp("us"), "text": pa.string()}
    return other if kind is None else known[kind]


def _stream(path: str, store: ObjectStore | None) -> io.BufferedReader:
    return Path(path).open("rb") if store is None else io.BufferedReader(store.open(path), 1 << 20)


def _open(
    stack: ExitStack, piece: Piece, delimiter: str, options: tuple[tuple[str, str], ...], threads: bool = False
) -> Opened:
    """One file, or some row groups of it."""
    store = ObjectStore(piece.path, options) if is_address(piece.path) else None
    stream = stack.enter_context(_stream(piece.path, store))
    return open_file(stack, stream, piece.path, piece.format, delimiter, piece.row_groups, threads)


@contextmanager
def _in_words(path: str, kind: str) -> Iterator[None]:
    """What goes wrong with a file that was there when the table was listed."""
    with in_words(path, kind):
        try:
            yield
        except FileNotFoundError:
            raise DataError(
                f"{path} has disappeared since the table was listed. Wait until nothing writes to the table, and start "
                "again."
            ) from None
        except OSError as error:
            if is_address(path) and not isinstance(error, DataError):
                with speaking_of(path):
                    raise
            raise
