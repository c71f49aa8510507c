"""Encoder: from typed columns to the matrix that a model takes, by rules fitted once and saved with the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np

from toporo.data.frame import Column, Frame, Numbers, Texts
from toporo.errors import DataError, SettingError, UnknownNameError, listed
from toporo.schema import LARGEST, as_type
from toporo.types import Array

#: Numbers written at a time: a block of rows stays in the processor's cache while its columns are filled.
BLOCK = 1 << 16
#: Rows written at a time however many columns there are.
FEWEST_ROWS = 512
#: Levels without a column of their own that :class:`Differences` tells apart, for each column; the others are one.
MOST_UNSEEN = 1000
#: Text with more levels than this, and no level twice, is taken for an identifier.
FEW_LEVELS = 10
#: Begins messages about a stored encoder.
STORED = "not a stored preprocessing (fit the model again, or copy its files anew)"
#: A finite number that was stored.
Stored = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]


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
    kind: Annotated[str, msgspec.Meta(pattern="^(number|date)$")]
    fill: Stored
    flag: bool
    low: Stored
    high: Stored

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the outputs, unless other columns have the same."""
        return (self.name,) * (self.low < self.high) + (f"{self.name} is missing",) * self.flag

    def check(self) -> None:
        """Refuse values that no column can have."""
        if not self.low <= self.fill <= self.high:
            raise DataError(
                f"{STORED}: the rule for column {self.name!r} fills {self.fill!r} in, outside its range from "
                f"{self.low!r} to {self.high!r}."
            )
        if self.low == self.high and not self.flag:
            raise DataError(f"{STORED}: the rule for column {self.name!r} has a range of a single value, {self.low!r}.")


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
    levels: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    other: bool
    missing: bool
    kind: str = "text"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the outputs, unless other columns have the same."""
        known = (*self.levels, *("other",) * self.other)
        return (*(f"{self.name} = {level}" for level in known), *(f"{self.name} is missing",) * self.missing)

    def check(self) -> None:
        """Refuse values that no column can have."""
        if list(self.levels) != sorted(set(self.levels)):
            raise DataError(f"{STORED}: the rule for column {self.name!r} has no ascending list of levels.")


Rule = NumberRule | CategoryRule


@dataclass(frozen=True)
class Differences:
    """Differences between a table and the training data; those of its portions add up.

    Attributes
    ----------
    unseen : by column, how many rows have which level that has no output of its own: it was not in training, or,
        where there is an output for other levels, was too rare there.
    filled : by column, how many values are missing.
    outside : by column, how many numbers are outside the training range, where a model extrapolates.
    """

    unseen: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    filled: Mapping[str, int] = field(default_factory=dict)
    outside: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Differences) -> Differences:
        unseen = {name: dict(levels) for name, levels in self.unseen.items()}
        for name, levels in other.unseen.items():
            met = unseen.setdefault(name, {})
            for level, count in levels.items():
                key = level if level in met or len(met) < MOST_UNSEEN else "…"
                met[key] = met.get(key, 0) + count
        return Differences(unseen, _added(self.filled, other.filled), _added(self.outside, other.outside))


@dataclass(frozen=True, eq=False)
class Encoded:
    """Encoded rows.

    Attributes
    ----------
    matrix : (rows, outputs), finite, each row in one piece.
    differences : between the table and the training data.
    """

    matrix: Array
    differences: Differences


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
        most_levels: int = 50,
    ) -> Encoder:
        """Find the rules for a training table.

        Parameters
        ----------
        features : the columns to use, in this order; unless given, all that are of use.
        exclude : columns not to use.
        categorical : columns of numbers or dates whose values are names of things.
        most_levels : text with more levels is left out as a likely identifier, unless it is named in ``features``
            or ``categorical``: then the commonest so many are used (of equally common ones the first in the
            alphabet), and an output for all others.
        """
        named, without, names_of_things = _asked(frame, features, exclude, categorical, most_levels)
        if not len(frame):
            raise DataError(f"{frame.where} has no rows: expected some to learn the preprocessing from.")
        candidates = [name for name in frame.names if name not in without] if named is None else named
        rules: dict[str, Rule] = {}
        reasons: dict[str, str] = dict(frame.unusable)
        for name in candidates:
            as_text = name in names_of_things
            required = as_text or named is not None
            column = frame.text(name) if as_text else frame[name]
            rule = _find_rule(name, column, most_levels, required)
            if isinstance(rule, str):
                reasons[name] = rule
            else:
                rules[name] = rule
        for name in frame.names:
            if name not in rules:
                reasons.setdefault(name, "excluded" if name in without else "not among the features named")
        left_out = {name: reasons[name] for name in (*frame.names, *frame.unusable) if name in reasons}
        if not rules:
            why = ", ".join(f"{name!r} ({reason})" for name, reason in left_out.items() if name not in without)
            raise DataError(
                f"{frame.where} has no column to use as a feature{f': {why}' if why else ''}. Give a table with at "
                "least one column of numbers, dates or text that varies."
            )
        return cls(tuple(rules.values()), left_out)

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
        """The outputs, each with a name of its own.

        A name that two would have stays with the column that is called so, else with the first in the alphabet;
        the others get ``(2)``, ``(3)``, … after it.
        """
        labels = [(label, rule.name, place) for rule in self.rules for place, label in enumerate(rule.labels)]
        wanted, given = {label for label, *_ in labels}, dict[str, tuple[str, int]]()
        for label, column, place in sorted(labels, key=lambda entry: (entry[0], entry[0] != entry[1], *entry[1:])):
            name, count = label, 1
            while name in given or (count > 1 and name in wanted):
                count += 1
                name = f"{label} ({count})"
            given[name] = column, place
        name_of = {output: name for name, output in given.items()}
        return tuple(name_of[column, place] for _, column, place in labels)

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
        matrix = np.empty((len(frame), len(self.names)))
        writers: list[_NumberWriter | _CategoryWriter] = []
        at = 0
        for rule in self.rules:
            writers.append(
                _NumberWriter(rule, frame, at) if isinstance(rule, NumberRule) else _category(rule, frame, at)
            )
            at += len(rule.labels)
        step = max(FEWEST_ROWS, BLOCK // at)
        for start in range(0, len(frame), step):
            rows = slice(start, start + step)
            for writer in writers:
                writer.write(matrix[rows], rows)
        differences = Differences(
            unseen={w.rule.name: w.unseen for w in writers if isinstance(w, _CategoryWriter) and w.unseen},
            filled={w.rule.name: w.filled for w in writers if w.filled},
            outside={w.rule.name: w.outside for w in writers if isinstance(w, _NumberWriter) and w.outside},
        )
        return Encoded(matrix, differences)

    def remarks(self, differences: Differences) -> tuple[str, ...]:
        """Describe the counts, one line per column and kind of difference, in the order of the columns."""
        lines = []
        for rule in self.rules:
            missing, beyond = differences.filled.get(rule.name), differences.outside.get(rule.name)
            levels = differences.unseen.get(rule.name)
            if missing:
                lines.append(f"{rule.name!r}: {missing} missing value(s), {_treatment(rule)}")
            if levels and isinstance(rule, CategoryRule):
                common = sorted(levels, key=lambda level: (level == "…", -levels[level], level))
                shown = ", ".join(f"{level!r} {levels[level]}" for level in common[:5])
                what = "treated as 'other'" if rule.other else "unknown from training"
                more = f", … ({len(levels)} levels)" if len(levels) > 5 else ""
                lines.append(f"{rule.name!r}: {sum(levels.values())} row(s) with a level {what}: {shown}{more}")
            if beyond and isinstance(rule, NumberRule):
                low, high = (_shown(value, rule.kind) for value in (rule.low, rule.high))
                lines.append(f"{rule.name!r}: {beyond} value(s) outside the training range, {low} to {high}")
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the rules as plain JSON can hold them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: object) -> Encoder:
        """Restore what :meth:`to_dict` returned; refuse anything else."""
        stored = as_type(content, _StoredEncoder, STORED)
        rules: list[Rule] = []
        for entry in stored.rules:
            kind: type[Rule] = CategoryRule if entry.get("kind") == "text" else NumberRule
            rules.append(as_type(entry, kind, STORED))
            rules[-1].check()
        names = [rule.name for rule in rules]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1 or name in stored.left_out]
        if twice:
            raise DataError(f"{STORED}: column(s) dealt with twice: {listed(twice)}.")
        return cls(tuple(rules), stored.left_out)


class _StoredEncoder(msgspec.Struct):
    rules: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    left_out: dict[str, str]


# ---------------------------------------------------------------- finding the rules


def _asked(
    frame: Frame, features: Sequence[str] | None, exclude: Iterable[str], categorical: Iterable[str], most_levels: int
) -> tuple[list[str] | None, set[str], set[str]]:
    """Return the columns to use, not to use, and to use as categories; refuse contradictions."""
    for what, names in (("features", features), ("exclude", exclude), ("categorical", categorical)):
        if isinstance(names, str):
            raise SettingError(f"{what} is the text {names!r}: expected a list of columns, such as [{names!r}].")
    if isinstance(most_levels, bool) or not isinstance(most_levels, int) or most_levels < 1:
        raise SettingError(f"most_levels is {most_levels!r}: expected a whole number of at least 1.")
    named = None if features is None else list(features)
    without, things = list(exclude), list(categorical)
    for name in (*(named or ()), *without, *things):
        if name in frame.unusable and name not in without:
            raise DataError(f"{frame.where}: column {name!r} cannot be used: {frame.unusable[name]}. Leave it out.")
        if name not in frame.columns and name not in frame.unusable:
            raise UnknownNameError("column", name, frame.names)
    twice = [name for name in dict.fromkeys(named or ()) if (named or []).count(name) > 1]
    if twice:
        raise SettingError(f"column(s) named as features more than once: {listed(twice)}. Name each once.")
    both = [name for name in dict.fromkeys((*(named or ()), *things)) if name in without]
    if both:
        raise SettingError(f"column(s) both named for use and excluded: {listed(both)}. Choose one.")
    beside = [name for name in dict.fromkeys(things) if named is not None and name not in named]
    if beside:
        raise SettingError(f"column(s) named as categorical but not among the features: {listed(beside)}. Add them.")
    return named, set(without), set(things)


def _find_rule(name: str, column: Column, most_levels: int, required: bool) -> Rule | str:
    """Return the rule for a column, or the reason why it has none."""
    lacking = bool(column.missing.any())
    if isinstance(column, Numbers):
        known = column.values[~column.missing] if lacking else column.values
        if not len(known):
            return "empty"
        return number_rule(name, column.kind, float(known.min()), float(known.max()), lacking, median_of(known))
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.levels))
    count_of = {level: int(count) for level, count in zip(column.levels, counts, strict=True) if count}
    return category_rule(name, count_of, lacking, most_levels, required)


def number_rule(name: str, kind: str, low: float, high: float, lacking: bool, median: float) -> NumberRule | str:
    """Return the rule for a column of numbers, or the reason why it has none.

    Parameters
    ----------
    name, kind : the column, and ``"number"`` or ``"date"``.
    low, high : its range.
    lacking : whether a value is missing.
    median : of those that are not.
    """
    low, high = low + 0.0, high + 0.0  # no negative zero
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DataError(f"column {name!r} holds infinite values. Correct them, or leave the column out.")
    return "constant" if low == high and not lacking else NumberRule(name, kind, median, lacking, low, high)


def category_rule(
    name: str, count_of: Mapping[str, int], lacking: bool, most_levels: int, required: bool
) -> CategoryRule | str:
    """Return the rule for a column of text, or the reason why it has none.

    Parameters
    ----------
    name, count_of : the column, and how many rows have which level.
    lacking : whether a value is missing.
    most_levels, required : see :meth:`Encoder.fit`; whether the column was named.
    """
    if not count_of:
        return "empty"
    if len(count_of) == 1 and not lacking:
        return "constant"
    if not required and len(count_of) > most_levels:
        return (
            f"text with {len(count_of)} levels, more than {most_levels}: an identifier? Name it as a feature to use it"
        )
    if not required and len(count_of) > FEW_LEVELS and max(count_of.values()) == 1:
        return "text that differs in every row: an identifier? Name it as a feature to use it"
    kept = sorted(count_of, key=lambda level: (-count_of[level], level))[:most_levels]
    return CategoryRule(name, tuple(sorted(kept)), other=len(kept) < len(count_of), missing=lacking)


def median_of(values: Array) -> float:
    """Return the middle value, or half way between the two in the middle."""
    upper = len(values) // 2
    lower = (len(values) - 1) // 2
    ordered = np.partition(values, (lower, upper))
    a, b = float(ordered[lower]), float(ordered[upper])
    middle = (a + b) / 2
    return (middle if math.isfinite(middle) else a / 2 + b / 2) + 0.0


# ---------------------------------------------------------------- applying them


class _NumberWriter:
    """Fills the outputs of a column of numbers, a block of rows at a time."""

    def __init__(self, rule: NumberRule, frame: Frame, at: int) -> None:
        self.rule, self.frame, self.filled, self.outside = rule, frame, 0, 0
        self.values = _numbers(rule, frame)
        varies = rule.low < rule.high
        self.value_at = at if varies else None
        self.flag_at = at + varies if rule.flag else None

    def write(self, block: Array, rows: slice) -> None:
        rule, values = self.rule, self.values[rows]
        missing = np.isnan(values)
        lacking = int(np.count_nonzero(missing))
        self.filled += lacking
        beyond = int(np.count_nonzero(values < rule.low) + np.count_nonzero(values > rule.high))
        self.outside += beyond
        if beyond and np.isinf(values).any():
            row = self.frame.first + rows.start + int(np.isinf(values).argmax())
            raise DataError(
                f"{self.frame.where}, row {row}: column {rule.name!r} holds an infinite value. Correct it, or leave it "
                "empty to have it filled in."
            )
        if self.value_at is not None:
            block[:, self.value_at] = values
            if lacking:
                block[missing, self.value_at] = rule.fill
        if self.flag_at is not None:
            block[:, self.flag_at] = missing


class _CategoryWriter:
    """Fills the outputs of a column of text, a block of rows at a time."""

    def __init__(self, rule: CategoryRule, column: Texts, at: int) -> None:
        self.rule, self.codes, self.span = rule, column.codes, slice(at, at + len(rule.labels))
        place_of = {level: place for place, level in enumerate(rule.levels)}
        rest = len(rule.levels) if rule.other else -1
        absent = len(rule.levels) + rule.other if rule.missing else rest
        # The last entry is for code -1, which is a missing value.
        self.place = np.asarray([*(place_of.get(level, rest) for level in column.levels), absent])
        counts = np.bincount(np.where(column.codes < 0, len(column.levels), column.codes), minlength=len(self.place))
        self.filled = int(counts[-1])
        self.unseen = {
            level: int(count)
            for level, count in zip(column.levels, counts[:-1], strict=True)
            if count and level not in place_of
        }

    def write(self, block: Array, rows: slice) -> None:
        places = self.place[self.codes[rows]]
        ones = np.flatnonzero(places >= 0)
        outputs = block[:, self.span]
        outputs[:] = 0.0
        outputs[ones, places[ones]] = 1.0


def _category(rule: CategoryRule, frame: Frame, at: int) -> _CategoryWriter:
    return _CategoryWriter(rule, frame.text(rule.name), at)


def _numbers(rule: NumberRule, frame: Frame) -> Array:
    """Return the numbers of a column; refuse one of another kind than in training, unless it is empty."""
    column = frame[rule.name]
    if column.missing.all():
        return np.full(len(column), np.nan)
    if isinstance(column, Numbers) and column.kind == rule.kind:
        return column.values
    row = int((~column.missing).argmax())
    kind = "text" if isinstance(column, Texts) else f"{column.kind}s"
    cell = frame.text(rule.name)
    raise DataError(
        f"{frame.where}: column {rule.name!r} holds {kind} (row {frame.first + row}: "
        f"{cell.levels[cell.codes[row]]!r}), but held {rule.kind}s in training. Correct its cells, or train with it as "
        "it is now."
    )


def _added(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in (*a, *b)}


def _treatment(rule: Rule) -> str:
    if isinstance(rule, NumberRule):
        return f"filled with the median, {_shown(rule.fill, rule.kind)}"
    if rule.missing:
        return "as some were in training"
    return "treated as 'other'" if rule.other else "though none was in training"


def _shown(value: float, kind: str) -> str:
    if kind == "date" and abs(value) < 3e6:
        return str(np.datetime64(math.floor(value), "D"))
    return f"{value:g}"
