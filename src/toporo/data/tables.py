"""Tables from CSV files: numbers by column and a group by row, read a portion at a time, without pandas."""

from __future__ import annotations

import csv
import io
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, TextIO

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError, UnknownNameError, listed
from toporo.groups import GroupIds, Groups

__all__ = ["Table", "read_table"]

Array = npt.NDArray[np.float64]
#: A path, or a stream of bytes such as ``sys.stdin.buffer``.
Source = str | os.PathLike[str] | BinaryIO

#: How an absent number is written, in small letters; an absent group is an empty cell and nothing else.
MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "null", "none"})
#: Rows taken into columns at a time.
PORTION = 1 << 14


@dataclass(frozen=True)
class Table:
    """Features and groups of a table's rows, and what of it was not used.

    Attributes
    ----------
    names : the features, in the order of the columns of ``features``.
    features : (rows, features), finite.
    ids : the group of every row.
    left_out : the other columns, each with the reason.
    dropped : rows dropped because a value was missing.
    lost : groups that have no row left because of that.
    """

    names: tuple[str, ...]
    features: Array
    ids: GroupIds
    left_out: dict[str, str] = field(default_factory=dict)
    dropped: int = 0
    lost: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.features)

    def standardised(self) -> Table:
        """Every feature centred and divided by its standard deviation, over all rows; constant ones are left out."""
        varying = np.flatnonzero(self.features.max(axis=0) != self.features.min(axis=0)).tolist()
        constant = {name: "constant" for j, name in enumerate(self.names) if j not in varying}
        if not varying:
            raise DataError(
                f"every feature is constant ({listed(constant)}): there is nothing to tell groups apart by."
            )
        features = np.empty((len(self), len(varying)))
        for place, j in enumerate(varying):
            features[:, place] = _standardised(self.features[:, j])
        names = tuple(self.names[j] for j in varying)
        return replace(self, names=names, features=features, left_out=self.left_out | constant)


def read_table(
    source: Source,
    group: str,
    *,
    features: Sequence[str] | None = None,
    exclude: Iterable[str] = (),
    delimiter: str = ",",
    drop_missing: bool = False,
) -> Table:
    """Read a CSV file in UTF-8 whose first line names the columns.

    Parameters
    ----------
    source : a path, or a stream of bytes.
    group : the column with every row's group. A name is text, kept as it is but for white space around it.
    features : columns of numbers; unless given, all whose every value is one, but ``group`` and ``exclude``.
    delimiter : what stands between cells.
    drop_missing : leave rows without a group or without the value of a feature out; else they are an error.
    """
    where = str(source) if isinstance(source, str | os.PathLike) else "standard input"
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise SettingError(f"delimiter is {delimiter!r}: expected a single character such as ',' or ';'.")
    with _opened(source, where) as stream:
        records = _records(stream, delimiter, where)
        header = [name.strip() for name in next(records, (0, []))[1]]
        _check_header(header, delimiter, where)
        named = [name for name in header if name]
        for name in (group, *(features or ()), *exclude):
            if name not in named:
                raise UnknownNameError("column", name, named)
        columns, left_out = _wanted(header, group, features, set(exclude))
        codes, lines, names = _fill(columns, records, header, group, where)
    if not lines:
        raise DataError(f"{where} has a header but no rows: expected a line of values for every point.")
    if features is None:
        for column in columns:
            reason = column.unusable()
            if reason:
                left_out[column.name] = reason
        columns = [column for column in columns if column.name not in left_out]
        left_out = {name or "(no name)": left_out[name] for name in header if name in left_out}
    if not columns:
        why = ", ".join(f"{name!r} ({reason})" for name, reason in left_out.items())
        raise DataError(f"{where} has no column of numbers to use{f': {why}' if why else ''}.")
    return _table(columns, codes, lines, names, group, left_out, drop_missing, where)


class _Column:
    """The numbers of one column, or the first of its cells that is none."""

    def __init__(self, name: str, place: int, required: bool) -> None:
        self.name, self.place, self.required = name, place, required
        self.values = array("d")
        self.text: tuple[int, str] | None = None

    def extend(self, cells: Sequence[str], lines: Sequence[int], where: str) -> None:
        if self.text is not None:
            return
        if "_" not in "".join(cells):  # Python reads 1_000 as a number, tables do not
            try:
                self.values.extend(array("d", map(float, cells)))
            except ValueError:
                pass
            else:
                return
        for cell, line in zip(cells, lines, strict=True):
            number = _number(cell)
            if number is None:
                if self.required:
                    raise DataError(
                        f"{where}, line {line}, column {self.name!r}: {_shown(cell)} is not a number, but the column "
                        "is named as a feature. Correct the cell, or leave the column out."
                    )
                self.text, self.values = (line, cell.strip()), array("d")
                return
            self.values.append(number)

    def unusable(self) -> str | None:
        """Why this column is not a feature, if it is not."""
        if self.text is not None:
            return f"not numbers: {_shown(self.text[1])} in line {self.text[0]}"
        return "empty" if np.isnan(np.frombuffer(self.values)).all() else None


def _number(cell: str) -> float | None:
    cell = cell.strip()
    if cell.lower() in MISSING:
        return float("nan")
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _shown(cell: str, limit: int = 40) -> str:
    cell = cell.strip()
    return repr(cell if len(cell) <= limit else f"{cell[:limit]}…")


@contextmanager
def _opened(source: Source, where: str) -> Iterator[TextIO]:
    """The text of a source; what goes wrong while it is read is a :class:`DataError`."""
    try:
        if isinstance(source, str | os.PathLike):
            with Path(source).open(encoding="utf-8-sig", newline="") as stream:
                yield stream
        else:
            text = io.TextIOWrapper(source, encoding="utf-8-sig", newline="")
            try:
                yield text
            finally:
                text.detach()  # the stream is the caller's to close
    except FileNotFoundError:
        raise DataError(f"no such file: {where}. Expected a CSV file whose first line names the columns.") from None
    except OSError as error:
        raise DataError(f"cannot read {where}: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where} is not text in UTF-8 (byte 0x{error.object[error.start]:02x} is not valid there). "
            "In a spreadsheet, save it as 'CSV UTF-8'; elsewhere convert it, e.g. iconv -f latin1 -t utf-8."
        ) from None


def _records(stream: TextIO, delimiter: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of their first line; blank lines are passed over."""
    reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=delimiter != " ", strict=True)
    line = 1
    try:
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{where}, line {line}: not valid CSV ({error}). Check the quotes in that line.") from None


def _check_header(header: Sequence[str], delimiter: str, where: str) -> None:
    if not header:
        raise DataError(f"{where} is empty: expected a first line that names the columns, and a line for every point.")
    if len(header) == 1:
        other = next((sign for sign in ";\t|," if sign != delimiter and sign in header[0]), None)
        if other is not None:
            raise DataError(
                f"{where} has a single column, {_shown(header[0])}: it looks as if cells were separated by {other!r}. "
                f"Say so: --delimiter {'tab' if other == chr(9) else repr(other)}."
            )
    twice = [name for name in dict.fromkeys(header) if name and header.count(name) > 1]
    if twice:
        raise DataError(f"{where} has several columns named {listed(twice)}: give each a name of its own.")


def _wanted(
    header: Sequence[str], group: str, features: Sequence[str] | None, exclude: set[str]
) -> tuple[list[_Column], dict[str, str]]:
    """The columns to read numbers from, and those that are out from the start."""
    for names, what in ((features or (), "a feature"), (exclude, "excluded")):
        if group in names:
            raise SettingError(f"column {group!r} holds the groups, so it cannot be {what}.")
    if features is not None:
        both = [name for name in features if name in exclude]
        if both:
            raise SettingError(f"column(s) both named as features and excluded: {listed(both)}. Decide for one.")
        return [_Column(name, header.index(name), True) for name in dict.fromkeys(features)], {}
    # A column without a name is as a rule the row numbers that a data frame wrote.
    left_out = {name: "excluded" if name else "it has no name" for name in header if not name or name in exclude}
    rest = [(place, name) for place, name in enumerate(header) if name != group and name not in left_out]
    return [_Column(name, place, False) for place, name in rest], left_out


def _fill(
    columns: Sequence[_Column], records: Iterator[tuple[int, list[str]]], header: Sequence[str], group: str, where: str
) -> tuple[array[int], array[int], list[str]]:
    """Read all rows into the columns; codes of the groups (-1 for none), line numbers, and the groups as met."""
    place, width = header.index(group), len(header)
    codes, lines, met = array("q"), array("q"), {"": -1}
    rows: list[list[str]] = []

    def take() -> None:
        cells = list(zip(*rows, strict=True))
        for name in map(str.strip, cells[place]):
            codes.append(met.setdefault(name, len(met) - 1))
        for column in columns:
            column.extend(cells[column.place], lines[-len(rows) :], where)
        rows.clear()

    for line, row in records:
        if len(row) != width:
            raise DataError(
                f"{where}, line {line}: found {len(row)} cells, expected {width} as in the header. A cell with the "
                "delimiter in it must stand in double quotes."
            )
        rows.append(row)
        lines.append(line)
        if len(rows) == PORTION:
            take()
    if rows:
        take()
    return codes, lines, list(met)[1:]


def _table(
    columns: Sequence[_Column],
    codes: array[int],
    lines: array[int],
    names: list[str],
    group: str,
    left_out: dict[str, str],
    drop_missing: bool,
    where: str,
) -> Table:
    """Put columns together, without the rows that miss something, if those may be dropped."""
    met = np.frombuffer(codes, dtype=np.int64)
    features = np.empty((len(lines), len(columns)))
    for place, column in enumerate(columns):
        features[:, place] = np.frombuffer(column.values)
        column.values = array("d")
    absent = np.column_stack([met < 0, np.isnan(features)])
    incomplete = np.asarray(absent.any(axis=1))
    dropped = int(incomplete.sum())
    if dropped:
        titles = [group, *(column.name for column in columns)]
        if not drop_missing:
            raise DataError(_missing(absent, incomplete, titles, lines, where))
        if dropped == len(lines):
            counts = _counts(absent, titles)
            raise DataError(
                f"{where}: every row lacks a value ({counts}), so that none is left. Leave such columns out."
            )
        features, met = features[~incomplete], met[~incomplete]
    infinite = np.isinf(features)
    if infinite.any():
        row, place = np.argwhere(infinite)[0]
        line = lines[int(np.flatnonzero(~incomplete)[row])]
        raise DataError(
            f"{where} holds {int(infinite.sum())} infinite value(s) (first: line {line}, column "
            f"{columns[place].name!r}). Correct them, or leave the column out."
        )
    kept = np.unique(met)
    groups = Groups(names[code] for code in kept)
    canonical = np.full(len(names), -1)
    canonical[kept] = groups.encode(names[code] for code in kept)
    return Table(
        names=tuple(column.name for column in columns),
        features=features,
        ids=GroupIds(canonical[met], groups),
        left_out=left_out,
        dropped=dropped,
        lost=tuple(sorted(name for name in names if name not in groups)),
    )


def _missing(
    absent: npt.NDArray[np.bool_],
    incomplete: npt.NDArray[np.bool_],
    titles: Sequence[str],
    lines: Sequence[int],
    where: str,
) -> str:
    row = int(incomplete.argmax())
    return (
        f"{where}: {int(incomplete.sum())} of {len(incomplete)} rows lack a value (first: line {lines[row]}, column "
        f"{titles[int(absent[row].argmax())]!r}; by column: {_counts(absent, titles)}). Fill them in, exclude such a "
        "column, or leave those rows out with --drop-missing (drop_missing=True)."
    )


def _counts(absent: npt.NDArray[np.bool_], titles: Sequence[str]) -> str:
    """``'age' 3, 'height' 1``."""
    counts = zip(titles, absent.sum(axis=0).tolist(), strict=True)
    shown = [f"{title!r} {count}" for title, count in counts if count]
    return ", ".join(shown[:8]) + (f", … ({len(shown)} columns)" if len(shown) > 8 else "")


def _standardised(column: Array) -> Array:
    values = np.ldexp(column, -np.frexp(np.abs(column).max())[1])  # neither squares nor sums can overflow
    ordered = np.sort(values)  # the order of the rows must not decide the last bits
    return np.asarray((values - ordered.mean()) / ordered.std())
