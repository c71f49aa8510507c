"""Encoder: from typed columns to the matrix that a model takes, by rules fitted once and saved with the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from toporo.data.columns import LARGEST, Column, Texts, numbers_of
from toporo.data.frame import Frame
from toporo.errors import DataError, SettingError, listed
from toporo.types import Array

#: Text with more levels is left out as a likely identifier unless it is named; then so many levels are used.
MOST_LEVELS = 50
#: Text with more levels than this, and no level twice, is taken for an identifier.
FEW_LEVELS = 10


@dataclass(frozen=True)
class NumberRule:
    """Rule for a column of numbers or dates, which is used unchanged.

    Attributes
    ----------
    name : the column.
    kind : ``"number"`` or ``"date"`` (days since 1970-01-01).
    fill : what stands for a missing value: the median in training.
    flag : whether a further output says where a value was missing; only if one was in training.
    low, high : the range in training. Where they are equal, the flag is all that is used.
    """

    name: str
    kind: str
    fill: float
    flag: bool
    low: float
    high: float

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the outputs, unless other columns have the same."""
        return (self.name,) * (self.low < self.high) + (f"{self.name} is missing",) * self.flag

    def check(self) -> None:
        """Refuse values that no column can have."""
        ordered = -LARGEST <= self.low <= self.fill <= self.high <= LARGEST
        if not ordered or not self.labels or self.kind not in ("number", "date"):
            raise DataError(
                f"the rule for column {self.name!r} ({self.kind}) fills {self.fill!r} in, outside its range from "
                f"{self.low!r} to {self.high!r}, or has no output."
            )

    def write(self, values: Array, out: Array) -> None:
        """Fill the outputs of all rows."""
        if self.low < self.high:
            out[:, 0] = np.where(np.isnan(values), self.fill, values)
        if self.flag:
            out[:, -1] = np.isnan(values)


@dataclass(frozen=True)
class CategoryRule:
    """Rule for a column of text: one output per level, 1 where a row has it and 0 elsewhere.

    Attributes
    ----------
    name : the column.
    levels : those with an output of their own, in ascending order.
    other : whether one output stands for all other levels; only if training had more than were kept.
    missing : whether one output says where a value was missing; only if one was in training.
    """

    name: str
    levels: tuple[str, ...]
    other: bool
    missing: bool

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the outputs, unless other columns have the same."""
        known = (*self.levels, *("other",) * self.other)
        return (*(f"{self.name} = {level}" for level in known), *(f"{self.name} is missing",) * self.missing)

    def check(self) -> None:
        """Refuse values that no column can have."""
        if not self.levels or list(self.levels) != sorted(set(self.levels)):
            raise DataError(f"the rule for column {self.name!r} has no ascending list of levels.")

    def write(self, column: Texts, out: Array) -> None:
        """Fill the outputs of all rows, which are zeros."""
        place_of = {level: place for place, level in enumerate(self.levels)}
        rest = len(self.levels) if self.other else -1
        absent = len(self.levels) + self.other if self.missing else rest
        # The last entry is for code -1, which is a missing value.
        places = np.asarray([*(place_of.get(level, rest) for level in column.levels), absent])[column.codes]
        ones = np.flatnonzero(places >= 0)
        out[ones, places[ones]] = 1.0


Rule = NumberRule | CategoryRule


@dataclass(frozen=True, eq=False)
class Encoded:
    """Encoded rows, and how they differ from the training data.

    Attributes
    ----------
    matrix : (rows, outputs), finite, each row in one piece.
    unseen : by column, how many rows have which level that has no output of its own: it was not in training, or,
        where there is an output for other levels, was too rare there.
    filled : by column, how many values are missing.
    outside : by column, how many numbers are outside the training range, where a model extrapolates.
    """

    matrix: Array
    unseen: Mapping[str, Mapping[str, int]]
    filled: Mapping[str, int]
    outside: Mapping[str, int]

    def remarks(self) -> Iterator[str]:
        """Describe the counts, the largest first, in a line per kind of difference and column of text."""
        if self.filled:
            yield f"missing values filled in: {_listed(self.filled)}"
        if self.outside:
            yield f"outside the range seen in training: {_listed(self.outside)}"
        for name, levels in self.unseen.items():
            yield f"levels of {name!r} without an input of their own: {_listed(levels)}"


@dataclass(frozen=True)
class Encoder:
    """The preprocessing of a table: one rule for each column that is used.

    Numbers and dates stay as they are (a model that needs them on one scale sees to it itself), text becomes one
    output a level. A missing number is filled with the training median, and a further output says so if training
    had such a case. A level that has no output goes to the output for other levels or, where there is none, gives
    zeros; so does a missing level that training had none of. Nothing depends on the order of rows, and the order of
    columns decides the order of the outputs only.

    Attributes
    ----------
    rules : in the order of the outputs.
    left_out : the other columns, each with the reason.

    >>> from toporo.data.frame import read_frame
    >>> frame = read_frame({"age": [31, None, 45], "colour": ["red", "blue", "red"], "unit": ["m", "m", "m"]})
    >>> encoder = Encoder.fit(frame)
    >>> encoder.names
    ('age', 'age is missing', 'colour = blue', 'colour = red')
    >>> encoder.left_out
    {'unit': 'constant'}
    >>> encoder.transform(frame).matrix
    array([[31.,  0.,  0.,  1.],
           [38.,  1.,  1.,  0.],
           [45.,  0.,  0.,  1.]])
    """

    rules: tuple[Rule, ...]
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        frame: Frame,
        *,
        features: Sequence[str] | None = None,
        exclude: Iterable[str] = (),
        categorical: Iterable[str] = (),
    ) -> Encoder:
        """Find the rules for a training table.

        Parameters
        ----------
        frame : the table.
        features : the columns to use, in this order; unless given, all that are of use. Text with many levels is left
            out as a likely identifier, unless it is named here or in ``categorical``: then the commonest levels are
            used (of equally common ones the first in the alphabet), and an output for all others.
        exclude : columns not to use.
        categorical : columns of numbers or dates whose values are names of things.
        """
        used, without = list(frame.names if features is None else features), set(exclude)
        required = {*(features or ()), *categorical}
        for name in required:
            frame[name]  # refuses a name that is not there
        if beside := sorted(required.difference(used)):
            raise SettingError(
                f"column(s) named as categorical but not among the features: {listed(beside)}. Add them."
            )
        reasons = dict(frame.unusable)
        reasons |= {name: "not among the features named" for name in frame.names if name not in used}
        reasons |= {name: "excluded" for name in (*frame.names, *frame.unusable) if name in without}
        rules: dict[str, Rule] = {}
        for name in used:
            if name in reasons:
                continue
            rule = _find_rule(name, frame.text(name) if name in categorical else frame[name], name in required)
            if isinstance(rule, str):
                reasons[name] = rule
            else:
                rules[name] = rule
        left_out = {name: reasons[name] for name in (*frame.names, *frame.unusable) if name in reasons}
        if not rules:
            why = ", ".join(f"{name!r} ({reason})" for name, reason in left_out.items() if name not in without)
            raise DataError(
                f"{frame.where} has no column to use as a feature{f': {why}' if why else ''}. Give a table with at "
                "least one column of numbers, dates or text that varies."
            )
        return cls(tuple(rules.values()), left_out)

    def check(self) -> None:
        """Refuse rules that are not one for each of some columns."""
        if not self.rules or len({*self.columns, *self.left_out}) < len(self.rules) + len(self.left_out):
            raise DataError("its encoder has no rules, or deals with a column twice.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns a table must have."""
        return tuple(rule.name for rule in self.rules)

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of these columns: ``"number"``, ``"date"`` or ``"text"``."""
        return {rule.name: rule.kind if isinstance(rule, NumberRule) else "text" for rule in self.rules}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The outputs, each with a name of its own: where several would have the same, ``(2)``, ``(3)``, … follow."""
        names: dict[str, None] = {}
        for label in (label for rule in self.rules for label in rule.labels):
            name, count = label, 1
            while name in names:
                count += 1
                name = f"{label} ({count})"
            names[name] = None
        return tuple(names)

    def transform(self, frame: Frame) -> Encoded:
        """Apply the rules to a table, which may have further columns."""
        absent = [name for name in self.columns if name not in frame.columns]
        if absent:
            why = ", ".join(f"{name!r}: {frame.unusable[name]}" for name in absent if name in frame.unusable)
            raise DataError(
                f"{frame.where} lacks {len(absent)} column(s) that the model was trained with: {listed(absent)}"
                f"{f' ({why})' if why else ''}. Found: {listed(frame.names, 20)}. Add them, "
                "under the same names."
            )
        matrix = np.zeros((len(frame), len(self.names)))
        filled, outside, unseen = dict[str, int](), dict[str, int](), dict[str, dict[str, int]]()
        at = 0
        for rule in self.rules:
            out = matrix[:, at : (at := at + len(rule.labels))]
            if isinstance(rule, NumberRule):
                values = _numbers(rule, frame)
                rule.write(values, out)
                missing = np.count_nonzero(np.isnan(values))
                if beyond := np.count_nonzero((values < rule.low) | (values > rule.high)):
                    outside[rule.name] = int(beyond)
            else:
                column, levels = frame.text(rule.name), set(rule.levels)
                rule.write(column, out)
                missing = np.count_nonzero(column.missing)
                if new := {level: n for level, n in level_counts(column).items() if level not in levels}:
                    unseen[rule.name] = new
            if missing:
                filled[rule.name] = int(missing)
        return Encoded(matrix, unseen, filled, outside)


# ---------------------------------------------------------------- rules of columns


def _find_rule(name: str, column: Column, required: bool) -> Rule | str:
    """Return the rule for a column, or the reason why it has none."""
    lacking = bool(column.missing.any())
    if isinstance(column, Texts):
        return category_rule(name, level_counts(column), lacking, required)
    known = column.values[~column.missing] if lacking else column.values
    if not len(known):
        return "empty"
    return number_rule(name, column.kind, float(known.min()), float(known.max()), lacking, float(np.median(known)))


def number_rule(name: str, kind: str, low: float, high: float, lacking: bool, median: float) -> NumberRule | str:
    """Return the rule for a column of numbers, or the reason why it has none.

    Parameters
    ----------
    name, kind : the column, and ``"number"`` or ``"date"``.
    low, high : its range.
    lacking : whether a value is missing.
    median : of those that are not.
    """
    low, high, median = low + 0.0, high + 0.0, median + 0.0  # no negative zero
    return "constant" if low == high and not lacking else NumberRule(name, kind, median, lacking, low, high)


def category_rule(name: str, count_of: Mapping[str, int], lacking: bool, required: bool) -> CategoryRule | str:
    """Return the rule for a column of text, or the reason why it has none.

    Parameters
    ----------
    name, count_of : the column, and how many rows have which level.
    lacking : whether a value is missing.
    required : whether the column was named.
    """
    if not count_of:
        return "empty"
    if len(count_of) == 1 and not lacking:
        return "constant"
    identifier = "an identifier? Name it as a feature to use it"
    if not required and len(count_of) > MOST_LEVELS:
        return f"text with {len(count_of)} levels, more than {MOST_LEVELS}: {identifier}"
    if not required and len(count_of) > FEW_LEVELS and max(count_of.values()) == 1:
        return f"text that differs in every row: {identifier}"
    kept = sorted(count_of, key=lambda level: (-count_of[level], level))[:MOST_LEVELS]
    return CategoryRule(name, tuple(sorted(kept)), other=len(kept) < len(count_of), missing=lacking)


def level_counts(column: Texts) -> dict[str, int]:
    """Return how many rows have which level."""
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.levels))
    return {level: int(count) for level, count in zip(column.levels, counts, strict=True) if count}


def _numbers(rule: NumberRule, frame: Frame) -> Array:
    """Return the numbers of a column, parsed if it is text; refuse one of another kind than in training."""
    import pyarrow as pa

    column = frame[rule.name]
    if isinstance(column, Texts):
        cells = pa.array(column.tolist(), pa.string())
        column = numbers_of(cells, rule.kind, rule.name, frame.where, frame.first)
    if column.kind != rule.kind and not column.missing.all():
        raise DataError(
            f"{frame.where}: column {rule.name!r} holds {column.kind}s, but held {rule.kind}s in training. Correct its "
            "cells, or train with it as it is now."
        )
    return column.values


def _listed(counts: Mapping[str, int]) -> str:
    largest = sorted(counts, key=lambda name: (-counts[name], name))[:8]
    return ", ".join(f"{name!r} {counts[name]}" for name in largest) + ", …" * (len(counts) > 8)
