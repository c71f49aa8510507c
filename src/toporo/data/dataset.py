"""Tables that may be many files: a folder, a pattern, hive's ``state=NY/…``, an address of an object store.

A table consists of *pieces*, spans of row groups of Parquet files or whole files of other formats. They depend on the
files alone, so whatever is added up piece by piece comes to the same bytes, whoever reads which piece.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from toporo.data import arrow
from toporo.data.arrow import Opened, column_names, format_of, in_words, kind_of
from toporo.errors import DataError, SettingError, listed
from toporo.text import spelled

#: Rows that a piece has at least, unless its file has fewer.
PIECE_ROWS = 1 << 20
#: Begins an address; a single letter is a drive.
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_PATTERN = re.compile(r"[*?\[]")
#: How a folder of hive's is called.
_KEY = re.compile(r"([^=/]+)=([^/]*)")
#: Names that files of other purposes begin with, in folders that are tables.
_HIDDEN = (".", "_")
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d*[1-9])?", flags=re.ASCII)


@dataclass(frozen=True)
class Piece:
    """Some rows of a table, which can be read by themselves.

    Attributes
    ----------
    path : of the file.
    format : ``"csv"``, ``"parquet"`` or ``"feather"``.
    row_groups : of a Parquet file; None of others.
    rows : how many there are; None where only reading tells.
    first : the number of its first row in the file, where the one after the header is 1.
    keys : columns that the folders' names say, by name.
    """

    path: str
    format: str
    row_groups: tuple[int, ...] | None = None
    rows: int | None = None
    first: int = 1
    keys: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Dataset:
    """A table of files that agree on their columns.

    Attributes
    ----------
    where : the table for messages.
    names : its columns, those that folders say last.
    pieces : in order of the files' names.
    kinds : by column ``"number"``, ``"date"`` or ``"text"``; None where cells have to tell.
    size : bytes of all files; packed or not.
    delimiter : of CSV files.
    types : of columns that have not the same in all files, by name: what they are read as.
    numbers : columns of folders' names that are numbers.
    """

    where: str
    names: tuple[str, ...]
    pieces: tuple[Piece, ...]
    kinds: Mapping[str, str | None]
    size: int
    delimiter: str = ","
    types: Mapping[str, Any] = ()  # type: ignore[assignment]  # an empty mapping would be shared
    numbers: frozenset[str] = frozenset()

    @property
    def rows(self) -> int | None:
        """How many there are; None where only reading tells."""
        counts = [piece.rows for piece in self.pieces]
        return None if None in counts else sum(count or 0 for count in counts)

    @contextmanager
    def open(self, piece: Piece | None = None) -> Iterator[Opened]:
        """The whole table, or one piece, to be read in portions.

        Parameters
        ----------
        piece : one of :attr:`pieces`.
        """
        if piece is None:
            yield Opened(self.where, self.names, self.pieces[0].format == "csv", self._all)
            return
        with ExitStack() as stack, in_words(piece.path, piece.format):
            opened = stack.enter_context(_open_file(piece, self.delimiter))
            yield replace(
                opened, names=self.names, batches=lambda places, rows: self._some(opened, piece, places, rows)
            )

    def _all(self, places: Sequence[int], rows: int) -> Iterator[list[Any]]:
        for piece in self.pieces:
            with self.open(piece) as opened:
                yield from opened.batches(places, rows)

    def _some(self, opened: Opened, piece: Piece, places: Sequence[int], rows: int) -> Iterator[list[Any]]:
        """Portions with the columns in the table's order, in its types, and with what the folders say."""
        keys, names = dict(piece.keys), [self.names[place] for place in places]
        own = [opened.names.index(name) for name in names if name not in keys]
        counting = [] if own else [0]  # a portion without columns has no length
        for arrays in opened.batches([*own, *counting], rows):
            length, given = len(arrays[0]), iter(arrays)
            yield [
                self._key(name, keys[name], length) if name in keys else self._as(name, next(given)) for name in names
            ]

    def _as(self, name: str, array: Any) -> Any:
        import pyarrow as pa

        wanted = dict(self.types).get(name)
        if wanted is None or array.type == wanted:
            return array
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        return array.cast(wanted, safe=False)

    def _key(self, name: str, value: str, length: int) -> Any:
        import pyarrow as pa

        if value == "__HIVE_DEFAULT_PARTITION__":
            value = ""
        if name in self.numbers:
            return pa.repeat(pa.scalar(float(value) if value else None, pa.float64()), length)
        codes = pa.repeat(pa.scalar(0, pa.int32()), length)
        return pa.DictionaryArray.from_arrays(codes, pa.array([value or None], pa.string()))


def is_dataset(source: Any) -> bool:
    """Whether a source is more than a file: a folder, a pattern that is no file's name, or an address."""
    if not isinstance(source, str | os.PathLike):
        return isinstance(source, Dataset)
    text = os.fspath(source)
    if _ADDRESS.match(text):
        return True
    return "\0" not in text and (Path(text).is_dir() or (bool(_PATTERN.search(text)) and not Path(text).exists()))


def find_dataset(source: Any, *, format: str | None = None, delimiter: str = ",") -> Dataset:  # noqa: A002
    """Look for the files of a table, and whether they agree.

    Parameters
    ----------
    source : a file, a folder, a pattern such as ``"sales/*.parquet"``, or an address such as ``"s3://bucket/sales"``.
    format : "csv", "parquet" or "feather", where the endings of names do not say it.
    delimiter : what stands between the cells of CSV files.
    """
    if isinstance(source, Dataset):
        return source
    where = spelled(source)
    files = _addressed(where) if _ADDRESS.match(where) else _local(where)
    if not files:
        raise DataError(f"{where} has no files: expected tables in Parquet, Feather or CSV. Check the name.")
    formats: dict[str, str] = {}
    for path, _ in files:
        formats.setdefault(format_of(PurePosixPath(path).name, format), path)
    if len(formats) > 1:
        (one, a), (other, b) = list(formats.items())[:2]
        raise DataError(
            f"{where} has files of several formats: {a} is {one}, {b} is {other}. Give a pattern that leaves some out, "
            f"such as {where.rstrip('/')}/*{PurePosixPath(a).suffix}, or convert them."
        )
    (kind,) = formats
    keys = [_keys(path, where) for path, _ in files]
    for (path, _), own in zip(files, keys, strict=True):
        if [name for name, _ in own] != [name for name, _ in keys[0]]:
            raise DataError(
                f"{path} lies in folders that say {listed([n for n, _ in own])}, but {files[0][0]} in folders that say "
                f"{listed([n for n, _ in keys[0]])}: expected the same of all. Move it, or give a pattern."
            )
    pieces: list[Piece] = []
    first: _Schema | None = None
    types: dict[str, Any] = {}
    for (path, _), own in zip(files, keys, strict=True):
        blank = Piece(path, kind, keys=own)
        with in_words(path, kind):
            schema, parts = _look(blank, delimiter)
        pieces += parts
        if first is None:
            first = schema
        else:
            types |= _agree(first, schema, files[0][0], path)
    assert first is not None  # noqa: S101  # there is a file
    twice = [name for name, _ in keys[0] if name in first.names]
    if twice:
        raise DataError(f"{where}: {listed(twice)} is both a column of {files[0][0]} and said by its folder. Drop one.")
    numbers = frozenset(
        name
        for place, (name, _) in enumerate(keys[0])
        if all(_WHOLE.fullmatch(own[place][1]) or not own[place][1] for own in keys)
    )
    kinds = dict(first.kinds) | {name: "number" if name in numbers else "text" for name, _ in keys[0]}
    names = (*first.names, *(name for name, _ in keys[0]))
    size = sum(size for _, size in files)
    return Dataset(where, names, tuple(pieces), kinds, size, delimiter, types, numbers)


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


# ---------------------------------------------------------------------- files


def _local(where: str) -> list[tuple[str, int]]:
    path = Path(where)
    if path.is_dir():
        inside = sorted(each for each in path.rglob("*") if each.is_file())
        shown = [each for each in inside if not any(p.startswith(_HIDDEN) for p in each.relative_to(path).parts)]
        return [(str(each), each.stat().st_size) for each in shown]
    if path.exists():
        return [(where, path.stat().st_size)]
    if not _PATTERN.search(where):
        raise DataError(f"no such file: {where}. Expected a file, a folder or a pattern such as data/*.parquet.")
    return [
        (each, Path(each).stat().st_size)
        for each in sorted(glob.glob(where, recursive=True))  # noqa: PTH207  # a pattern may be absolute
        if Path(each).is_file()
    ]


def _addressed(where: str) -> list[tuple[str, int]]:
    """Files at an address, which are themselves addresses."""
    import pyarrow as pa
    from pyarrow import fs

    parts = urlsplit(where)
    if "@" in parts.netloc:
        raise SettingError(
            "the address holds a user or a secret, which would be written into logs and models: leave it out, and give "
            "credentials in the environment or a profile, as for other tools of the store."
        )
    system, inner = _system(where)
    base = where.removesuffix(inner) if where.endswith(inner) else f"{parts.scheme}://"
    pattern = _PATTERN.search(inner)
    folder = inner[: pattern.start()].rpartition("/")[0] if pattern else inner
    try:
        about = system.get_file_info(folder)
        if about.type == fs.FileType.File:
            return [(f"{base}{about.path}", about.size)]
        listing = system.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=False))
    except (OSError, pa.ArrowException) as error:
        why = str(error).partition("\n")[0]
        raise DataError(f"cannot list {where}: {why}. Check the address, and the credentials of its store.") from None
    wanted = re.compile(glob.translate(inner, recursive=True) if hasattr(glob, "translate") else _translated(inner))
    files = []
    for each in sorted(listing, key=lambda info: info.path):
        inside = each.path[len(folder) :].strip("/")
        hidden = any(part.startswith(_HIDDEN) for part in inside.split("/"))
        if each.type == fs.FileType.File and not hidden and (not pattern or wanted.match(each.path)):
            files.append((f"{base}{each.path}", each.size or 0))
    return files


def _translated(pattern: str) -> str:
    """A pattern of paths as a regular expression, for Pythons whose glob does not do it."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return "".join(parts.get(piece, re.escape(piece)) for piece in pieces) + r"\Z"


def _system(address: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    try:
        return fs.FileSystem.from_uri(address)  # type: ignore[no-any-return]
    except (ValueError, OSError, pa.ArrowException) as error:
        why = str(error).partition("\n")[0]
        raise DataError(
            f"cannot use the address {address}: {why}. Expected one such as s3://bucket/folder, gs://bucket/folder or "
            "file:///folder."
        ) from None


def _stream(path: str) -> Any:
    """A file that pyarrow reads and never maps."""
    import pyarrow as pa

    if _ADDRESS.match(path):
        system, inner = _system(path)
        return system.open_input_file(inner)
    return pa.OSFile(path)


def _keys(path: str, where: str) -> tuple[tuple[str, str], ...]:
    """What the names of folders say, hive's way, from outside to inside."""
    folders = PurePosixPath(path[len(where) :] if path.startswith(where) else path).parts[:-1]
    return tuple((m[1], unquote(m[2])) for m in map(_KEY.fullmatch, folders) if m)


@dataclass(frozen=True)
class _Schema:
    names: tuple[str, ...]
    kinds: Mapping[str, str | None]
    types: Mapping[str, Any]


def _look(piece: Piece, delimiter: str) -> tuple[_Schema, list[Piece]]:
    """The columns of a file, and its pieces."""
    from pyarrow import ipc, parquet

    if piece.format == "csv":
        with _open_file(piece, delimiter) as opened:
            return _Schema(opened.names, dict.fromkeys(opened.names), {}), [piece]
    with _stream(piece.path) as stream:
        if piece.format == "feather":
            reader = ipc.open_file(stream)
            rows = sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
            return _typed(reader.schema, piece.path), [replace(piece, rows=rows)]
        file = parquet.ParquetFile(stream)
        counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        return _typed(file.schema_arrow, piece.path), _spans(piece, counts)


def _spans(piece: Piece, counts: Sequence[int]) -> list[Piece]:
    spans: list[Piece] = []
    groups: list[int] = []
    rows, first = 0, 1
    for place, count in enumerate(counts):
        groups.append(place)
        rows += count
        if rows >= PIECE_ROWS or place == len(counts) - 1:
            spans.append(replace(piece, row_groups=tuple(groups), rows=rows, first=first))
            groups, rows, first = [], 0, first + rows
    return spans


def _typed(schema: Any, where: str) -> _Schema:
    names = column_names(schema, where)
    types = dict(zip(names, schema.types, strict=True))
    return _Schema(names, {name: kind_of(kind) for name, kind in types.items()}, types)


def _agree(first: _Schema, other: _Schema, a: str, b: str) -> dict[str, Any]:
    """What columns of differing types are read as; other columns or kinds are an error."""
    import pyarrow as pa

    lacking = [name for name in first.names if name not in other.names]
    more = [name for name in other.names if name not in first.names]
    if lacking or more:
        found = [f"it lacks {listed(lacking)}"] * bool(lacking) + [f"it has {listed(more)} besides"] * bool(more)
        raise DataError(
            f"{b} has other columns than {a}: {' and '.join(found)}. Expected the same in all files of a table: write "
            "it anew, or leave it out by a pattern."
        )
    types: dict[str, Any] = {}
    for name, kind in first.kinds.items():
        if other.kinds[name] != kind:
            raise DataError(
                f"{b}, column {name!r}: it holds values of type {other.types[name]}, but {a} has {first.types[name]}. "
                "Expected the same kind in all files of a table: convert the column."
            )
        if kind is not None and other.types[name] != first.types[name]:
            types[name] = {"number": pa.float64(), "date": pa.timestamp("us")}.get(kind, pa.string())
    return types


@contextmanager
def _open_file(piece: Piece, delimiter: str) -> Iterator[Opened]:
    """One file, or some row groups of it."""
    if piece.format != "parquet":
        if not _ADDRESS.match(piece.path):
            with arrow.open_table(piece.path, format=piece.format, delimiter=delimiter) as opened:
                yield opened
            return
        system, inner = _system(piece.path)
        packed = "gzip" if piece.path.endswith(".gz") else None
        with (
            system.open_input_stream(inner, compression=packed) as stream,
            arrow.open_table(stream, format=piece.format, delimiter=delimiter) as opened,
        ):
            yield replace(opened, where=piece.path)
        return
    with _stream(piece.path) as stream:
        yield arrow.open_parquet(stream, piece.path, piece.row_groups)
