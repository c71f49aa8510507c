"""Tables from files: numbers by column and a group by row. CSV is read so that every message has its line."""

from __future__ import annotations

import csv
import io
import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError, UnknownNameError, listed
from toporo.groups import GroupIds, Groups
from toporo.types import Array

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
    """Read a CSV file in UTF-8 whose first line names the columns, or a Parquet or Feather file.

    Parameters
    ----------
    source : a path, its ending telling which kind of file it is, or a stream of bytes, which is CSV.
    group : the column with every row's group. A name is text, kept as it is but for white space around it.
    features : columns of numbers; unless given, all whose every value is one, but ``group`` and ``exclude``.
    delimiter : what stands between the cells of a CSV file.
    drop_missing : leave rows without a group or without the value of a feature out; else they are an error.
    """
    where = str(source) if isinstance(source, str | os.PathLike) else "standard input"
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise SettingError(f"delimiter is {delimiter!r}: expected a single character such as ',' or ';'.")
    exclude = tuple(exclude)
    _check_choice(group, features, set(exclude))
    if isinstance(source, str | os.PathLike) and not is_csv(source):
        return _typed(source, group, features, exclude, drop_missing, where)
    with _opened(source, where) as stream:
        records = _records(stream, delimiter, where)
        header = [name.strip() for name in next(records, (0, []))[1]]
        check_header(header, delimiter, where)
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
    titles, values = [column.name for column in columns], map(_Column.taken, columns)
    met = np.frombuffer(codes, dtype=np.int64)
    return _table(titles, values, met, names, group, left_out, drop_missing, where, lambda row: f"line {lines[row]}")


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Whether a file holds cells between delimiters, by its ending."""
    from toporo.data.arrow import format_of

    return format_of(path) == "csv"


def _typed(
    source: str | os.PathLike[str],
    group: str,
    features: Sequence[str] | None,
    exclude: Iterable[str],
    drop_missing: bool,
    where: str,
) -> Table:
    """Read a file whose columns have types."""
    from toporo.data.frame import Texts, read_frame

    chosen = None if features is None else [group, *features]
    frame = read_frame(source, text=[group], columns=chosen, exclude=exclude)
    groups = frame.text(group)
    numbers: dict[str, Array] = {}
    left_out = dict.fromkeys(exclude, "excluded") | frame.unusable
    for name in features if features is not None else [name for name in frame.names if name != group]:
        column = frame[name]
        if isinstance(column, Texts):
            row = int((~column.missing).argmax())
            left_out[name] = f"not numbers: {shown(column.levels[column.codes[row]])} in row {row + 1}"
        elif column.kind == "date":
            left_out[name] = "dates, not numbers"
        elif features is None and column.missing.all():
            left_out[name] = "empty"
        else:
            numbers[name] = column.values
        if features is not None and name in left_out:
            raise DataError(
                f"{where}, column {name!r}: {left_out[name]}, but the column is named as a feature. Convert it, or "
                "leave it out."
            )
    return _table(
        list(numbers),
        iter(numbers.values()),
        groups.codes,
        list(groups.levels),
        group,
        left_out,
        drop_missing,
        where,
        lambda row: f"row {row + 1}",
    )


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
            value = number(cell)
            if value is None:
                if self.required:
                    raise DataError(
                        f"{where}, line {line}, column {self.name!r}: {shown(cell)} is not a number, but the column "
                        "is named as a feature. Correct the cell, or leave the column out."
                    )
                self.text, self.values = (line, cell.strip()), array("d")
                return
            self.values.append(value)

    def taken(self) -> Array:
        """The numbers, which are then the caller's alone."""
        values, self.values = np.frombuffer(self.values), array("d")
        return values

    def unusable(self) -> str | None:
        """Why this column is not a feature, if it is not."""
        if self.text is not None:
            return f"not numbers: {shown(self.text[1])} in line {self.text[0]}"
        return "empty" if np.isnan(np.frombuffer(self.values)).all() else None


def number(cell: str) -> float | None:
    """What a cell says, NaN if it says that there is no number; None if it says something else."""
    cell = cell.strip()
    if cell.lower() in MISSING:
        return float("nan")
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def shown(cell: str, limit: int = 40) -> str:
    """A cell for a message."""
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
        raise DataError(
            f"no such file: {where}. Expected a CSV file whose first line names the columns, or Parquet or Feather."
        ) from None
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


def check_header(header: Sequence[str], delimiter: str, where: str) -> None:
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
    check_names(header, where)


def check_names(names: Sequence[str], where: str) -> None:
    """No two columns may have one name; none at all is no name."""
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise DataError(f"{where} has several columns named {listed(twice)}: give each a name of its own.")


def _check_choice(group: str, features: Sequence[str] | None, exclude: set[str]) -> None:
    for names, what in ((features or (), "a feature"), (exclude, "excluded")):
        if group in names:
            raise SettingError(f"column {group!r} holds the groups, so it cannot be {what}.")
    both = [name for name in features or () if name in exclude]
    if both:
        raise SettingError(f"column(s) both named as features and excluded: {listed(both)}. Decide for one.")


def _wanted(
    header: Sequence[str], group: str, features: Sequence[str] | None, exclude: set[str]
) -> tuple[list[_Column], dict[str, str]]:
    """The columns to read numbers from, and those that are out from the start."""
    if features is not None:
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
    names: Sequence[str],
    values: Iterator[Array],
    met: npt.NDArray[Any],
    met_names: Sequence[str],
    group: str,
    left_out: dict[str, str],
    drop_missing: bool,
    where: str,
    place_of: Callable[[int], str],
) -> Table:
    """Put columns together, without the rows that miss something, if those may be dropped."""
    if not names:
        why = ", ".join(f"{name!r} ({reason})" for name, reason in left_out.items())
        raise DataError(f"{where} has no column of numbers to use{f': {why}' if why else ''}.")
    features = np.empty((len(met), len(names)))
    for j, column in enumerate(values):
        features[:, j] = column
    absent = np.column_stack([met < 0, np.isnan(features)])
    incomplete = np.asarray(absent.any(axis=1))
    dropped = int(incomplete.sum())
    if dropped:
        titles = [group, *names]
        if not drop_missing:
            raise DataError(_missing(absent, incomplete, titles, place_of, where))
        if dropped == len(met):
            counts = _counts(absent, titles)
            raise DataError(
                f"{where}: every row lacks a value ({counts}), so that none is left. Leave such columns out."
            )
        features, met = features[~incomplete], met[~incomplete]
    infinite = np.isinf(features)
    if infinite.any():
        row, j = np.argwhere(infinite)[0]
        first = place_of(int(np.flatnonzero(~incomplete)[row]))
        raise DataError(
            f"{where} holds {int(infinite.sum())} infinite value(s) (first: {first}, column {names[j]!r}). Correct "
            "them, or leave the column out."
        )
    kept = np.unique(met)
    groups = Groups(met_names[code] for code in kept)
    canonical = np.full(len(met_names), -1)
    canonical[kept] = groups.encode(met_names[code] for code in kept)
    return Table(
        names=tuple(names),
        features=features,
        ids=GroupIds(canonical[met], groups),
        left_out=left_out,
        dropped=dropped,
        lost=tuple(sorted(name for name in met_names if name not in groups)),
    )


def _missing(
    absent: npt.NDArray[np.bool_],
    incomplete: npt.NDArray[np.bool_],
    titles: Sequence[str],
    place_of: Callable[[int], str],
    where: str,
) -> str:
    row = int(incomplete.argmax())
    return (
        f"{where}: {int(incomplete.sum())} of {len(incomplete)} rows lack a value (first: {place_of(row)}, column "
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
