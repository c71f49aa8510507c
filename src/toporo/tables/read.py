"""What commands settle first about a table: what columns are for, which rows lack something, what to predict."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.data.encode import Encoder
from toporo.data.frame import Column, Frame, Numbers, Texts, number, read_frame
from toporo.errors import DataError, listed, warn
from toporo.estimators.rows import learn_graph_of
from toporo.graphs import check_groups
from toporo.groups import GroupIds, Groups
from toporo.tables.model import skipped_in_words
from toporo.tables.roles import Roles
from toporo.text import number as shown
from toporo.text import spelled
from toporo.topology.graph import GroupGraph
from toporo.types import Array

Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

#: Share of numbers among the values of a column of text that was meant to hold numbers.
NEARLY_ALL = 0.95
#: What numbers are written with elsewhere, less what stands for nothing; and dates.
_SIGNS = str.maketrans("\u2212", "-", "$€£¥%'\u00a0\u202f")
_NUMBER = re.compile(r"[+-]?\d+(,\d+)*([.]\d+)?", flags=re.ASCII)
_DATE = re.compile(r"\d{1,4}[/.]\d{1,2}[/.]\d{1,4}", flags=re.ASCII)
#: Of whole numbers, so many different ones are still worth a word that they could be classes.
FEW_NUMBERS = 10
#: Why a column may have been taken for text against what was meant, and what to do about it.
_TAKEN_FOR_TEXT = {
    "a few of many values are no numbers": "Correct such cells, or leave them empty, if they are to be numbers.",
    "their numbers have commas or other signs": "Write a decimal comma as a point, and leave other signs out.",
    "their dates are written in another way": "Write dates as 2024-05-31.",
}


def complete_rows(frame: Frame, rows: Rows, columns: Sequence[str], drop: bool) -> Rows:
    """Those of the rows that have all of these columns; others are an error unless they may be dropped."""
    absent = np.zeros(len(rows), bool)
    for name in columns:
        lacking = frame[name].missing[rows]
        if lacking.any() and not drop:
            raise DataError(
                f"{frame.where}: {int(lacking.sum())} of {len(rows)} rows lack {name!r} (first: row "
                f"{int(rows[lacking.argmax()]) + frame.first}). Fill them in, or leave those rows out with "
                "--drop-rows (drop_rows=True)."
            )
        absent |= lacking
    if absent.all():
        raise DataError(f"{frame.where}: no row has {' and '.join(map(repr, columns))}, so none is left.")
    return rows[~absent]


def only(table: Frame, rows: Rows) -> Frame:
    """These rows; all of them without a copy."""
    return table if len(rows) == len(table) else table.take(rows)


def ids_of(column: Texts) -> GroupIds:
    """The groups that a column of text names."""
    groups = Groups(column.levels)
    return GroupIds(groups.encode(column.levels)[column.codes], groups)


# ---------------------------------------------------------------- a table to fit to


@dataclass(frozen=True, eq=False)
class PreparedTable:
    """A table as models take it; see :func:`prepare_table`.

    Attributes
    ----------
    table, frame, train : all rows, those that have a group, and those to train on.
    apart : which rows of ``frame`` are of test groups.
    task : ``"classification"`` or ``"regression"``.
    encoder : how columns become numbers, as learned from ``train``.
    x, y, ids, weights : inputs, targets, groups and weights of ``train``; weights are None unless a column holds them.
    graph : the graph over the groups, if there is one.
    roles : columns and groups, as asked for.
    source : what the table is called.
    """

    table: Frame
    frame: Frame
    train: Frame
    apart: Mask
    task: str
    encoder: Encoder
    x: Array
    y: npt.NDArray[Any]
    ids: GroupIds
    weights: Array | None
    graph: GroupGraph | None
    roles: Roles
    source: str

    @property
    def target(self) -> str:
        """The column to predict."""
        return self.roles.require_target()

    @property
    def counts(self) -> dict[str, int]:
        """Rows that a model is fitted to, and others."""
        trained, apart = len(self.train), int(self.apart.sum())
        return {"rows": trained, "rows_set_aside": apart, "rows_dropped": len(self.table) - trained - apart}

    @property
    def group_count(self) -> int:
        """Groups that have rows, test groups among them."""
        return len(self.frame.text(self.roles.group).levels)

    def missing(self, name: str) -> int:
        """How many values a column lacks in the training rows."""
        return int(self.train[name].missing.sum())

    def target_note(self, task: str) -> str:
        """A few words on the target."""
        column = self.train[self.target]
        if task == "classification":
            labels = self.train.text(self.target)
            counts = np.bincount(labels.codes, minlength=len(labels.levels))
            return classes_in_words(dict(zip(labels.levels, counts.tolist(), strict=True)))
        values, kind = (column.values, column.kind) if isinstance(column, Numbers) else (np.zeros(1), "number")
        return numbers_in_words(float(values.min()), float(values.max()), kind, np.unique(values))

    def constant(self, task: str) -> float | str:
        """What a model must beat: the mean of the target, or the commonest class."""
        weights = None if self.weights is None else self.weights / self.weights.max()  # only their ratios count
        if task == "regression":
            largest = float(np.abs(self.y).max()) or 1.0  # sums of huge numbers would be infinite
            return largest * float(np.average(self.y / largest, weights=weights))
        labels, codes = np.unique(self.y, return_inverse=True)
        return str(labels[np.bincount(codes, weights).argmax()])


def classes_in_words(counts: Mapping[str, int]) -> str:
    """How many classes there are, and the first of them with their rows."""
    shown = ", ".join(f"{level} ({count})" for level, count in list(counts.items())[:6])
    return f"{len(counts)} classes: {shown}{', …' if len(counts) > 6 else ''}"


def numbers_in_words(low: float, high: float, kind: str, distinct: Array) -> str:
    """The range of a target; of a few whole numbers, that they could be classes."""
    few = len(distinct)
    classes = kind == "number" and few <= FEW_NUMBERS and bool((distinct == np.round(distinct)).all())
    hint = f"; {few} whole numbers: if they are classes, say so (task)" if classes else ""
    return f"{written(low, kind)} to {written(high, kind)}{hint}"


def prepare_table(source: Any, roles: Roles, **reading: Any) -> PreparedTable:
    """Read a table, set the rows of test groups aside and make numbers of the others.

    Parameters
    ----------
    source : as for :func:`fit_table`.
    roles : its columns and groups.
    reading : ``delimiter``.
    """
    target, group, weight = roles.require_target(), roles.group, roles.weight
    roles = roles.read_graph()
    asked, graph = roles.test_groups, roles.given_graph
    table = read_frame(source, text=roles.text_columns, exclude=roles.exclude, **reading)
    table = _with_known_target(table, roles)
    grouped = complete_rows(table, np.arange(len(table)), [group], roles.drop_rows)
    if graph is not None and roles.drop_rows:
        grouped = _known_rows(table, grouped, group, graph)
    frame = only(table, grouped)
    names = frame.text(group)
    _check_test_groups(names, roles)
    apart = np.isin(names.codes, [names.levels.index(name) for name in asked if name in names.levels])
    if apart.all():
        raise DataError(f"every row is of a test group ({listed(asked)}): leave at least one group to train on.")
    used = complete_rows(table, grouped[~apart], [target] if weight is None else [target, weight], roles.drop_rows)
    train = only(table, used)
    for reason, columns, remedy in taken_for_text(
        train, [target, *(roles.features or train.names)], {group, weight, *roles.categorical}
    ):
        shown = ", ".join(f"{name!r} ({examples})" for name, examples in columns.items())
        warn(f"column(s) read as text, because {reason}: {shown}. {remedy}")
    task = guess_task(train[target]) if roles.task == "auto" else roles.task
    y = _targets(train, target, task)
    weights = None if weight is None else _weights(train, weight, used + table.first)
    encoder = Encoder.fit(
        train, features=roles.features, exclude=list(roles.columns.values()), categorical=roles.categorical
    )
    x, ids = encoder.transform(train).matrix, ids_of(train.text(group))
    topology = _graph(roles, x, ids, encoder, frame, apart)
    called = spelled(Path(source).name) if isinstance(source, str | os.PathLike) else table.where
    return PreparedTable(table, frame, train, apart, task, encoder, x, y, ids, weights, topology, roles, called)


def guess_task(column: Column) -> str:
    """Text is classes, and so are numbers of which only two differ; else it is regression."""
    if isinstance(column, Texts):
        return "classification"
    known = column.values[~column.missing]
    return "classification" if len(known) and len(np.unique(known)) <= 2 else "regression"


def _with_known_target(frame: Frame, roles: Roles) -> Frame:
    """Return the frame, if it has the columns; words such as NA in a target of text mean that there is none."""
    for what, name in roles.columns.items():
        if name in frame.unusable:
            raise DataError(f"{what} {name!r} cannot be used: {frame.unusable[name]}.")
        frame[name]
    column = frame[target := roles.require_target()]
    return replace(frame, columns=frame.columns | {target: column.known()}) if isinstance(column, Texts) else frame


def taken_for_text(
    frame: Frame, names: Iterable[str], meant: Collection[str | None] = ()
) -> Iterator[tuple[str, dict[str, str], str]]:
    """Columns that were probably meant to hold numbers or dates: why they do not, examples by name, and what to do.

    Parameters
    ----------
    frame, names : the rows, and the columns to look at.
    meant : columns that are to be text.
    """
    suspects: dict[str, dict[str, str]] = {reason: {} for reason in _TAKEN_FOR_TEXT}
    for name in dict.fromkeys(names):
        column = frame.columns.get(name)
        if name in meant or not isinstance(column, Texts):
            continue
        levels = column.known().levels
        strange = [level for level in levels if number(level) is None]
        if 0 < len(strange) <= len(levels) * (1 - NEARLY_ALL):
            suspects["a few of many values are no numbers"][name] = listed(strange, 4)
        elif strange and len(levels) > 1:
            if all(_NUMBER.fullmatch(level.translate(_SIGNS)) for level in levels):
                suspects["their numbers have commas or other signs"][name] = repr(strange[0])
            elif all(_DATE.fullmatch(level) for level in levels):
                suspects["their dates are written in another way"][name] = repr(strange[0])
    yield from ((reason, columns, _TAKEN_FOR_TEXT[reason]) for reason, columns in suspects.items() if columns)


def _check_test_groups(names: Texts, roles: Roles) -> None:
    """Raise if test groups have no rows and there is no graph to find them in."""
    strange = [name for name in roles.test_groups if name not in names.levels]
    if strange and roles.given_graph is None:
        hint = "to learn a graph that reaches them" if roles.learns_graph else "unless a graph has them"
        raise DataError(
            f"test group(s) without a row: {listed(strange)}. They need rows {hint}. The table has "
            f"{listed(names.levels)}."
        )


def _targets(frame: Frame, target: str, task: str) -> npt.NDArray[Any]:
    column = frame[target]
    if task == "classification":
        labels = frame.text(target)
        if len(labels.levels) < 2:
            raise DataError(f"target {target!r} has a single class, {labels.levels[0]!r}: there is nothing to predict.")
        if len(labels.levels) > max(20, len(frame) // 2):
            remedy = (
                "Is it an identifier? Name another target."
                if isinstance(column, Texts)
                else "If they are numbers to predict, say --task regression (task='regression')."
            )
            raise DataError(
                f"target {target!r} has {len(labels.levels)} different values in {len(frame)} rows: too many for "
                f"classes. {remedy}"
            )
        return np.asarray(labels.levels, dtype=object)[labels.codes]
    if isinstance(column, Texts):
        words = [code for code, level in enumerate(column.levels) if number(level) is None]
        row = int(np.isin(column.codes, words).argmax())
        raise DataError(
            f"target {target!r} holds text: {column.levels[column.codes[row]]!r}, say, is no number to predict. "
            "Correct such cells, or say --task classification (task='classification')."
        )
    if column.values.max() == column.values.min():
        value = written(column.values[0], column.kind)
        raise DataError(f"target {target!r} is {value} in all rows: there is nothing to predict.")
    if column.kind == "date":
        warn(f"target {target!r} holds dates, and is predicted as a number: days since 1970-01-01.")
    return column.values


def _weights(frame: Frame, weight: str, numbers: Rows) -> Array:
    column = frame[weight]
    if isinstance(column, Texts) or column.kind != "number":
        raise DataError(f"weight {weight!r} does not hold numbers: expected a weight of at least 0 per row.")
    if (column.values < 0).any():
        row = int((column.values < 0).argmax())
        raise DataError(
            f"{frame.where}, row {numbers[row]}: weight {weight!r} is negative ({column.values[row]:g}): expected at "
            "least 0 in every row."
        )
    return column.values


def _known_rows(table: Frame, rows: Rows, group: str, graph: GroupGraph) -> Rows:
    """Rows whose group the graph has; says how many others there are."""
    column = table.text(group)
    names = np.asarray(column.levels, dtype=object)[column.codes[rows]]
    out = ~np.isin(names, [str(name) for name in graph.names])
    if out.all():
        raise DataError(
            f"no row is of a group of the graph: the table has {listed(column.levels)}, the graph "
            f"{listed(graph.names)}. Write them in the same way."
        )
    if out.any():
        warn(f"{skipped_in_words(Counter(names[out].tolist()))}.")
    return rows[~out]


def _graph(roles: Roles, x: Array, ids: GroupIds, encoder: Encoder, frame: Frame, apart: Mask) -> GroupGraph | None:
    """Return the graph that was given, once its groups are checked, or learn it if asked to."""
    if (given := roles.given_graph) is not None:
        check_groups(given, ids.groups, roles.test_groups or None)
        return given
    if not roles.learns_graph:
        return None
    if not roles.test_groups:
        return learn_graph_of(x, ids)
    test = frame.take(np.flatnonzero(apart))
    return learn_graph_of(x, ids, test_x=encoder.transform(test).matrix, test_groups=ids_of(test.text(roles.group)))


def written(value: float, kind: str) -> str:
    """A number to be shown, or a date; what may be a year has no sign between its thousands.

    >>> written(2007.0, "number"), written(8040.0, "number")
    ('2007', '8,040')
    """
    if kind == "number" and 1000 <= value < 3000 and value == int(value):
        return str(int(value))
    return shown(value, digits=6) if kind == "number" else Numbers(np.array([value]), kind).as_text().levels[0]


# ---------------------------------------------------------------- points of a topology


@dataclass(frozen=True)
class Points:
    """Rows as points of a space in which distances are measured, each with its group.

    Attributes
    ----------
    names : the features, in the order of the columns of ``features``.
    features : (rows, features), finite.
    ids : the group of every row.
    left_out : the other columns, each with the reason.
    dropped : rows dropped because they lack a group.
    remarks : what was filled in or put together, one line per column.
    """

    names: tuple[str, ...]
    features: Array
    ids: GroupIds
    left_out: dict[str, str] = field(default_factory=dict)
    dropped: int = 0
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.features)

    def standardised(self) -> Points:
        """Every feature centred and divided by its standard deviation, over all rows."""
        features = np.empty_like(self.features)
        for place, column in enumerate(self.features.T):
            features[:, place] = _standardised(column)
        return replace(self, features=features)


def read_points(source: Any, roles: Roles, *, delimiter: str = ",") -> Points:
    """Read a table as a fit does: text becomes categories, and missing features are filled in and marked.

    Parameters
    ----------
    source : as for :func:`toporo.data.frame.read_frame`.
    roles : its columns and groups; a target is not used. Names of groups are text, as written.
    delimiter : what stands between the cells of a CSV file.
    """
    group, named = roles.group, roles.features
    exclude = [*roles.exclude, *(name for name in roles.columns.values() if name != group)]
    wanted = None if named is None else [group, *named]
    table = read_frame(source, text=[group], columns=wanted, exclude=exclude, delimiter=delimiter)
    rows = complete_rows(table, np.arange(len(table)), [group], roles.drop_rows)
    frame = only(table, rows)
    encoder = Encoder.fit(frame, features=named, exclude=[group])
    encoded = encoder.transform(frame)
    left_out = dict.fromkeys(exclude, "excluded") | encoder.left_out
    return Points(
        names=encoder.names,
        features=encoded.matrix,
        ids=ids_of(frame.text(group)),
        left_out={name: why for name, why in left_out.items() if name != group},
        dropped=len(table) - len(rows),
        remarks=tuple(encoded.remarks()),
    )


def _standardised(column: Array) -> Array:
    values = np.ldexp(column, -np.frexp(np.abs(column).max())[1])  # neither squares nor sums can overflow
    ordered = np.sort(values)  # the order of the rows must not decide the last bits
    return np.asarray((values - ordered.mean()) / ordered.std())
