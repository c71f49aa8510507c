"""Formats of table files: their suffixes, limits on what they unpack to, and errors while they are read."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toporo.errors import DataError, UnknownNameError, listed
from toporo.text import is_address

#: Suffixes of files of cells between delimiters; a file without a suffix is one of them.
CSV_SUFFIXES = frozenset({"", ".csv", ".tsv", ".tab", ".txt", ".dat", ".data"})
_SUFFIXES = dict.fromkeys(CSV_SUFFIXES, "csv") | {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".ipc": "feather",
}
_TITLES = {"csv": "CSV", "parquet": "Parquet", "feather": "Feather (Arrow IPC)"}
#: A packed table may take 256 MiB, and beyond that a thousand times the size of its files, the best ratio of gzip.
ALWAYS, RATIO = 1 << 28, 1000


@dataclass(frozen=True, eq=False)
class TableFile:
    """An open file of a table.

    Attributes
    ----------
    names : the columns, in order, without white space around a name; "" for a column without a name.
    batches : yields arrays of the columns at these positions, in that order, at most so many rows at a time.
    types : of the columns; None where every cell is text.
    row_groups : rows and first byte of each row group of a Parquet file.
    """

    names: tuple[str, ...]
    batches: Callable[[Sequence[int], int], Iterator[list[Any]]]
    types: tuple[Any, ...] | None = None
    row_groups: tuple[tuple[int, int], ...] | None = None


def format_of(path: str | os.PathLike[str], given: str | None = None) -> str:
    """Return ``csv``, ``parquet`` or ``feather``: the given format, or that of the suffix."""
    if given is not None:
        formats = [*_TITLES, "tsv", "arrow", "ipc"]
        if given not in formats:
            raise UnknownNameError("format", given, formats)
        return _SUFFIXES[f".{given}"]
    suffix = Path(unpacked_name(path)).suffix.lower()
    if suffix not in _SUFFIXES:
        known = ", ".join(sorted(name for name in _SUFFIXES if name))
        raise DataError(
            f"{path}: what kind of table is a {suffix} file? Expected a name that ends in one of {known}, or in .gz "
            "after that of a CSV file. Rename or convert it; a spreadsheet saves as 'CSV UTF-8', another archive must "
            "be unpacked."
        )
    if is_packed(path) and _SUFFIXES[suffix] != "csv":
        raise DataError(f"{path}: only CSV files are read packed with gzip. Unpack it: gunzip {Path(path).name}.")
    return _SUFFIXES[suffix]


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Return whether a name ends in .gz."""
    return Path(path).suffix.lower() == ".gz"


def unpacked_name(path: str | os.PathLike[str]) -> str:
    """Return the name of a file without its .gz."""
    name = str(path)
    return name[: -len(".gz")] if is_packed(path) else name


def described(kind: str) -> str:
    """Return the words for a file of a format in messages."""
    return "a CSV file whose first line names the columns" if kind == "csv" else f"a {_TITLES[kind]} file"


def most_unpacked(size: int) -> int:
    """Return how many bytes the content of packed files of so many bytes may take."""
    return ALWAYS + RATIO * size


def bomb_error(where: str) -> DataError:
    """Return the error for a file that unpacks to more than :func:`most_unpacked`."""
    return DataError(
        f"{where} unpacks to more than {RATIO:,} times its size and {ALWAYS >> 20} MiB: no table does. Write it "
        "anew, with fewer rows or columns if need be."
    )


def encoding_error(where: str, why: str, encoding: str = "latin1") -> DataError:
    """Return the error for a text file that is not UTF-8."""
    return DataError(
        f"{where} is not text in UTF-8 ({why}). "
        f"In a spreadsheet, save it as 'CSV UTF-8'; elsewhere convert it, e.g. iconv -f {encoding} -t utf-8."
    )


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse a table in which several columns have the same name."""
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise DataError(f"{where} has several columns named {listed(twice)}: give each a name of its own.")


@contextmanager
def reading(where: str, kind: str) -> Iterator[None]:
    """Turn errors of the system, of pyarrow and of decoders into a :class:`DataError` that names the file."""
    import pyarrow as pa

    try:
        yield
    except (DataError, MemoryError):
        raise
    except FileNotFoundError:
        raise DataError(
            f"{where} has disappeared since the table was listed. Wait until nothing writes to the table, and start "
            "again."
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        why = "it ends too soon" if isinstance(error, EOFError) else re.split(r" \(| 0x", str(error))[0]
        raise DataError(f"{where} is damaged or cut short: {why}. Copy it again, or pack the table again.") from None
    except UnicodeDecodeError as error:
        why = f"byte 0x{error.object[error.start]:02x} is not valid there"
        raise encoding_error(where, why) if kind == "csv" else _damaged(where, kind, f"no UTF-8: {why}") from None
    except Exception as error:  # pyarrow raises anything for damaged files
        if isinstance(error, OSError) and is_address(where):
            raise store_error(where, error) from None
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"cannot read {where}: {error.strerror}.") from None
        if kind == "csv" and not isinstance(error, pa.ArrowException | OSError):
            raise
        why = str(error).partition("\n")[0].rstrip(".")
        raise DataError(f"cannot read {where}: {why}.") if kind == "csv" else _damaged(where, kind, why) from None


def store_error(address: str, error: Exception) -> DataError:
    """Return the error for an object store that does not answer or refuses."""
    why = " ".join(str(error).split())[:300].rstrip(".")
    return DataError(
        f"cannot read {address}: {why}. Check the address, the network, and that the credentials of the store (in "
        "the environment or a profile) may read it."
    )


def _damaged(where: str, kind: str, why: str) -> DataError:
    return DataError(
        f"{where} cannot be read as a {_TITLES[kind]} file ({why}). Is it whole, and is it one? Write it anew, or "
        "give it the ending of what it is."
    )
