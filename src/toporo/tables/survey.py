"""One pass over a table that may be larger than memory: what a fit needs to know of its rows.

Every chunk of the table (:class:`~toporo.data.table.Chunk`) is read by itself, in portions, and comes to a
:class:`Survey`; surveys are added in the order of the chunks. So the same bytes come out whoever reads which chunk.

Columns get their kinds from the files, or in CSV from the first rows, and text its outputs as levels are met. If it
turns out that a column is something else, it is read as that from the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.data.encode import MOST_LEVELS, Encoder, NumberRule, Rule, category_rule, number_rule
from toporo.data.frame import Frame, Numbers, OtherKindError, Texts, frames_of
from toporo.data.table import Table
from toporo.errors import DataError
from toporo.machine import one_thread
from toporo.robust.factors import GroupFactors
from toporo.tables.roles import Roles
from toporo.types import Array

Mask = npt.NDArray[np.bool_]
#: By group or class that has enough rows, the key that others must be below to be drawn.
Bounds = dict[str, np.uint64]
#: Levels of a column of text that are counted unless it was named; with so many it has no input.
MOST_MET = 10_000
#: Distinct numbers of a target that are counted, unless they are classes.
MOST_VALUES = 50
#: Levels of a column that was named, or of classes, which are all to be counted.
MOST_COUNTED = 1_000_000
#: Rows of a group, and of a class, that are drawn however few that is of all.
LEAST = 20
_LAST = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class ReadingPlan:
    """How a table is read.

    Attributes
    ----------
    kinds : by column, the features among them: ``"number"``, ``"date"`` or ``"text"``.
    features : the columns to make inputs of.
    required : those of them that were named: text then has inputs even if there are many levels.
    roles : columns and groups, without the graph.
    fills : by column of numbers, what stands for a missing value until the median is known.
    kept : by column of text that has many levels, those with an input of their own, if they are known.
    known : groups of the graph, if rows of other groups are skipped.
    moments : whether the target is a number whose moments are wanted.
    classification : whether the target is classes even if it holds numbers; text always is.
    rows : of a portion.
    wanted, share : how many rows are drawn, about, and which share of all that is.
    most_bytes : that the sums may take.
    """

    kinds: Mapping[str, str]
    features: tuple[str, ...]
    required: frozenset[str]
    roles: Roles
    fills: Mapping[str, float]
    kept: Mapping[str, tuple[str, ...]]
    known: frozenset[str] | None
    moments: bool
    classification: bool
    rows: int
    wanted: int
    share: float
    most_bytes: int

    @property
    def threshold(self) -> np.uint64:
        """Rows whose key is below it are drawn."""
        return np.uint64(min(int(self.share * 2.0**64), 2**64 - 1))

    @property
    def target(self) -> str:
        """The column to predict."""
        return self.roles.require_target()

    @property
    def by_class(self) -> bool:
        """Whether the target is classes."""
        return self.classification or self.kinds[self.target] == "text"


@dataclass(frozen=True)
class Span:
    """Of a column of numbers: its range over the training rows, and how many values are there and are missing."""

    low: float = np.inf
    high: float = -np.inf
    known: int = 0
    missing: int = 0

    def __add__(self, other: Span) -> Span:
        ends = min(self.low, other.low), max(self.high, other.high)
        return Span(*ends, self.known + other.known, self.missing + other.missing)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Rows that are kept as they are, each with the key by which it was drawn."""

    frame: Frame
    keys: npt.NDArray[np.uint64]

    def __add__(self, other: Drawn) -> Drawn:
        return Drawn(Frame.joined([self.frame, other.frame]), np.concatenate([self.keys, other.keys]))

    def thinned(self, plan: ReadingPlan) -> tuple[Drawn, list[Bounds]]:
        """Rows below the threshold, and of each group and class those with the least keys; the bounds of these."""
        drawn, all_bounds = self.keys < plan.threshold, []
        for column in strata(self.frame, training_rows(self.frame, plan), plan):
            few, bounds = _least(column, self.keys, plan)
            drawn |= few
            all_bounds.append(bounds)
        return Drawn(self.frame.take(drawn), self.keys[drawn]), all_bounds


def strata(frame: Frame, portion: PortionRows, plan: ReadingPlan) -> list[Texts]:
    """Return the columns by whose levels rows are drawn: the group and, of training rows with a weight, the class.

    Parameters
    ----------
    frame, portion, plan : rows, what they are for, and how the table is read.
    """
    columns = [replace(portion.names, codes=np.where(portion.train | portion.apart, portion.names.codes, -1))]
    if plan.by_class:
        labels = frame.text(plan.target)
        labels = labels.known() if isinstance(frame[plan.target], Texts) else labels
        weight = None if plan.roles.weight is None else frame[plan.roles.weight]
        counting = portion.train & (weight.values > 0) if isinstance(weight, Numbers) else portion.train
        columns.append(replace(labels, codes=np.where(counting, labels.codes, -1)))
    return columns


def _least(column: Texts, keys: npt.NDArray[np.uint64], plan: ReadingPlan) -> tuple[Mask, Bounds]:
    """The rows of each level with the least keys, and of levels that have enough, the key that others must be below."""
    few, order = np.zeros(len(keys), bool), np.lexsort((keys, column.codes))
    order = order[np.searchsorted(column.codes[order], 0) :]
    if not len(order):
        return few, {}
    codes, sorted_keys = column.codes[order], keys[order]
    first = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    sizes = np.diff(np.append(first, len(codes)))
    least = min(LEAST, max(1, plan.wanted // len(first)))
    few[order] = np.arange(len(order)) - np.repeat(first, sizes) < least
    full = first[sizes >= least]
    return few, {column.levels[codes[place]]: sorted_keys[place + least - 1] for place in full}


def _candidates(column: Texts, keys: npt.NDArray[np.uint64], known: Bounds) -> Mask:
    """Rows that may be among those with the least keys of their level."""
    bounds = np.array([known.get(name, _LAST) for name in column.levels], dtype=np.uint64)
    used = column.codes >= 0
    if not used.any():
        return used
    # Of a level with many rows here, a few times as many as are drawn have keys below this; else all may.
    sizes = np.bincount(column.codes[used], minlength=len(bounds))
    likely = np.where(sizes > 4 * LEAST, 4.0 * LEAST / np.maximum(sizes, 1), 1.0) * (2.0**64 - 2048.0)
    below = used & (keys < np.minimum(bounds, likely.astype(np.uint64))[column.codes])
    short = np.bincount(column.codes[below], minlength=len(bounds)) < np.minimum(sizes, LEAST)
    if (short := short & (bounds > likely)).any():
        below |= used & short[column.codes] & (keys < bounds[column.codes])
    return below


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of rows; add those of chunks to get the table's.

    Attributes
    ----------
    moments : of the training rows that count.
    spans : of columns of numbers, the target among them.
    levels : by column of text, how many training rows have which level; "" is for those that have none.
    values : of a target of numbers, how often each occurs, as long as they are few.
    rows, trained, apart : rows in all, those to train on, and those of test groups.
    groups : rows by group, test groups too.
    skipped : rows by group that is not known.
    drawn : some of the rows.
    """

    moments: GroupFactors | None
    spans: dict[str, Span]
    levels: dict[str, Counter[str]]
    values: Counter[float]
    rows: int
    trained: int
    apart: int
    groups: Counter[str]
    skipped: Counter[str]
    drawn: Drawn | None

    def plus(self, other: Survey, plan: ReadingPlan) -> Survey:
        """Those of this and the next chunk."""
        levels = {name: count + other.levels[name] for name, count in self.levels.items()}
        moments: Any = _added(self.moments, other.moments)
        out = {name for name, count in levels.items() if _many(name, count, plan)}
        if moments is not None and any(_column_of(slot) in out for slot in moments.columns):
            moments = moments.select_columns([slot for slot in moments.columns if _column_of(slot) not in out])
        drawn: Any = _added(self.drawn, other.drawn)
        return Survey(
            moments=moments,
            spans={name: span + other.spans[name] for name, span in self.spans.items()},
            levels={name: _fewer(name, count, plan) for name, count in levels.items()},
            values=_fewer_values(self.values + other.values, plan),
            rows=self.rows + other.rows,
            trained=self.trained + other.trained,
            apart=self.apart + other.apart,
            groups=self.groups + other.groups,
            skipped=self.skipped + other.skipped,
            drawn=None if drawn is None else drawn.thinned(plan)[0],
        )

    def encoder(self, plan: ReadingPlan, medians: Mapping[str, float], left_out: Mapping[str, str]) -> Encoder:
        """How columns become numbers, as :meth:`Encoder.fit` would find it.

        Parameters
        ----------
        plan : how the table was read.
        medians : by column of numbers.
        left_out : columns that are not used for other reasons.
        """
        rules: dict[str, Rule] = {}
        reasons = dict(left_out)
        for name in plan.features:
            if plan.kinds[name] == "text":
                counts = Counter({level: count for level, count in self.levels[name].items() if level})
                rule: Rule | str = category_rule(name, counts, self.levels[name][""] > 0, name in plan.required)
                if isinstance(rule, str) and len(self.levels[name]) == MOST_MET:  # more were not counted
                    rule = rule.replace("text with", "text with at least")
            else:
                span = self.spans[name]
                rule = "empty"
                if span.known:
                    ends = span.low, span.high, span.missing > 0
                    rule = number_rule(name, plan.kinds[name], *ends, medians[name])
            if isinstance(rule, str):
                reasons[name] = rule
            else:
                rules[name] = rule
        return Encoder(tuple(rules.values()), reasons)

    def inputs(self, encoder: Encoder, plan: ReadingPlan, *, target: bool = True) -> tuple[GroupFactors, Array, Array]:
        """Factors of what an encoder gives, with the target or without; and the range of each column."""
        if self.moments is None:
            raise DataError("no row is left to train on.")
        place_of = {slot: place for place, slot in enumerate(self.moments.columns)}
        rows: list[dict[Hashable, float]] = []
        ends: list[tuple[float, float]] = []
        for rule in encoder.rules:
            if isinstance(rule, NumberRule):
                if rule.low < rule.high:
                    rows.append({("number", rule.name): 1.0})
                    if rule.flag:
                        rows[-1]["missing", rule.name] = rule.fill - plan.fills.get(rule.name, 0.0)
                    ends.append((rule.low, rule.high))
                rows += [{("missing", rule.name): 1.0}] * rule.flag
                ends += [(0.0, 1.0)] * rule.flag
            else:
                rows += [{("level", rule.name, level): 1.0} for level in rule.levels]
                rows += [{("other", rule.name): 1.0}] * rule.other
                rows += [{("missing", rule.name): 1.0}] * rule.missing
                ends += [(0.0, 1.0)] * len(rule.labels)
        if target:
            ends.append((self.spans[plan.target].low, self.spans[plan.target].high))
        matrix = np.zeros((len(rows), len(place_of)))
        for row, parts in enumerate(rows):
            for slot, factor in parts.items():
                if slot in place_of:  # a level of rows that do not count has none
                    matrix[row, place_of[slot]] = factor
        low, high = (np.array(side) for side in zip(*ends, strict=True))
        factors = self.moments.mapped(encoder.names, matrix)
        if not target:
            factors = replace(factors, targets=factors.targets[:, :, :0], residual=factors.residual[:, :0])
        return factors, low, high


def _added(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _column_of(slot: Hashable) -> str | None:
    """The column of text that a slot is of."""
    return slot[1] if isinstance(slot, tuple) and slot[0] in ("level", "other") else None


def _many(name: str, counts: Counter[str], plan: ReadingPlan) -> bool:
    """Whether a column of text has too many levels for each to have an input, and it is not known which do."""
    return name not in plan.kept and len(counts) - ("" in counts) > MOST_LEVELS


def _fewer_values(values: Counter[float], plan: ReadingPlan) -> Counter[float]:
    """Counts of a target's numbers: of all if they are classes, else as many as show that they are many."""
    if not plan.classification:
        return Counter(dict(sorted(values.items())[: MOST_VALUES + 1]))
    if len(values) > MOST_COUNTED:
        raise DataError(
            f"target {plan.target!r} has more than {MOST_COUNTED:,} different numbers: too many for classes. If they "
            "are numbers to predict, say --task regression (task='regression')."
        )
    return values


def _fewer(name: str, counts: Counter[str], plan: ReadingPlan) -> Counter[str]:
    """Counts of levels as far as they are of interest."""
    if name in plan.required or name == plan.target:
        if len(counts) > MOST_COUNTED:
            raise DataError(
                f"column {name!r} has more than {MOST_COUNTED:,} different texts: an identifier? Leave it out."
            )
        return counts
    if len(counts) <= MOST_MET:
        return counts
    kept = sorted(counts)[:MOST_MET]  # the first by name, "" among them: the same however chunks are added up
    return Counter({level: counts[level] for level in kept})


# ---------------------------------------------------------------- a chunk


def survey_chunk(dataset: Table, index: int, plan: ReadingPlan) -> Survey | OtherKindError:
    """Read one chunk of a table; what turned out to be of another kind than planned is returned, not raised.

    Parameters
    ----------
    dataset, index : the table, and which of its chunks.
    plan : how to read it.
    """
    chunk = dataset.chunks[index]
    reader = _Reader(plan, index)
    try:
        with one_thread():
            for frame in frames_of(dataset.only([chunk]), plan.kinds, plan.rows):
                reader.add(frame)
    except OtherKindError as error:
        return error
    return reader.survey()


@dataclass(frozen=True, eq=False)
class PortionRows:
    """Which rows of a portion are to be trained on, which are of test groups, and their groups."""

    names: Texts
    train: Mask
    apart: Mask
    skipped: Counter[str]


def training_rows(frame: Frame, plan: ReadingPlan) -> PortionRows:
    """Tell the rows of a portion apart; one that lacks what it needs is an error unless it may be dropped.

    Parameters
    ----------
    frame : with the columns of the plan.
    plan : how the table is read.
    """
    names = frame.text(plan.roles.group)
    _refuse_missing(frame, names.missing, plan.roles.group, plan)
    apart = np.isin(names.codes, [code for code, name in enumerate(names.levels) if name in plan.roles.test_groups])
    train = ~names.missing & ~apart
    skipped: Counter[str] = Counter()
    if plan.known is not None:
        strange = [code for code, name in enumerate(names.levels) if name not in plan.known]
        out = np.isin(names.codes, strange)
        counts = np.bincount(names.codes[out], minlength=len(names.levels))
        skipped = Counter({names.levels[code]: int(counts[code]) for code in strange if counts[code]})
        train, apart = train & ~out, apart & ~out
    for name in (plan.target, plan.roles.weight):
        if name is not None:
            column = frame[name]
            lacking = (column.known() if isinstance(column, Texts) and name == plan.target else column).missing
            _refuse_missing(frame, lacking & train, name, plan)
            train = train & ~lacking
    return PortionRows(names, train, apart, skipped)


def _refuse_missing(frame: Frame, lacking: Mask, name: str, plan: ReadingPlan) -> None:
    if lacking.any() and not plan.roles.drop_rows:
        raise DataError(
            f"{frame.where}: row {int(lacking.argmax()) + frame.first} lacks {name!r}, and perhaps others do. Fill "
            "them in, or leave such rows out with --drop-rows (drop_rows=True)."
        )


class _Reader:
    """Adds up the portions of a chunk."""

    def __init__(self, plan: ReadingPlan, index: int) -> None:
        self.plan, self.index, self.row = plan, index, 0
        self.factors: GroupFactors | None = None
        self.spans = {name: Span() for name, kind in plan.kinds.items() if kind != "text"}
        texts = [name for name, kind in plan.kinds.items() if kind == "text" and name != plan.roles.group]
        self.levels: dict[str, Counter[str]] = {name: Counter() for name in texts}
        self.values: Counter[float] = Counter()
        self.trained = self.apart = 0
        self.groups: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.parts: list[Drawn] = []
        self.base, self.waiting = 0, 0
        self.bounds: list[Bounds] = [{}, {}]  # of groups and classes

    def add(self, frame: Frame) -> None:
        keys = _keys(self.index, self.row, len(frame))
        self.row += len(frame)
        told = training_rows(frame, self.plan)
        self.skipped += told.skipped
        used = told.train | told.apart
        counts = np.bincount(told.names.codes[used], minlength=len(told.names.levels))
        self.groups.update({name: int(count) for name, count in zip(told.names.levels, counts, strict=True) if count})
        self.trained += int(told.train.sum())
        self.apart += int(told.apart.sum())
        self._draw(frame, keys, told)
        if not told.train.any():
            return
        train = frame if told.train.all() else frame.take(told.train)
        if train is not frame:
            train = replace(train, first=frame.first)
        codes = told.names.codes[told.train]
        self._measure(train, told.names, codes)

    def _measure(self, train: Frame, names: Texts, codes: npt.NDArray[np.int32]) -> None:
        plan = self.plan
        inputs: dict[Hashable, Array] = {}
        target_values = np.zeros((len(codes), 0))
        for name in dict.fromkeys([*plan.features, plan.target]):
            column = train[name]
            if isinstance(column, Numbers):
                filled, missing = self._filled(name, column)
                if name == plan.target:
                    target_values = filled[:, None]
                    continue
                inputs["number", name] = filled
                if missing is not None:
                    inputs["missing", name] = missing
            elif name == plan.target:
                self._ones(name, column.known())  # counts the classes
            else:
                inputs |= self._ones(name, column)
        target = train[plan.target]
        if isinstance(target, Numbers) and (plan.classification or len(self.values) <= MOST_VALUES):
            distinct, often = np.unique(target.values, return_counts=True)
            self.values.update(dict(zip(distinct.tolist(), often.tolist(), strict=True)))
            self.values = _fewer_values(self.values, plan)
        weights = self._weights(train)
        if weights is not None and not weights.all():
            counted = weights > 0
            codes, weights = codes[counted], weights[counted]
            inputs, target_values = {name: v[counted] for name, v in inputs.items()}, target_values[counted]
        if not len(codes):
            return
        part = GroupFactors.from_portion(names.levels, codes, inputs, target_values, weights)
        self.factors = part if self.factors is None else self.factors + part
        if self.factors.roots.nbytes > plan.most_bytes:
            raise DataError(
                f"sums for {len(self.factors.groups):,} groups and {self.factors.width} columns take more than the "
                "memory limit leaves: raise it, use fewer features (--features), or join groups."
            )

    def _filled(self, name: str, column: Numbers) -> tuple[Array, Array | None]:
        """Numbers without gaps, and where the gaps were, if there were any."""
        values, (low, high) = column.values, column.ends
        if not np.isnan(low):
            self.spans[name] += Span(low, high, len(values), 0)
            return values, None
        gaps = column.missing
        lacking = int(gaps.sum())
        if lacking < len(values):
            low, high = float(np.nanmin(values)), float(np.nanmax(values))
            self.spans[name] += Span(low, high, len(values) - lacking, lacking)
        else:
            self.spans[name] += Span(missing=lacking)
        return np.where(gaps, self.plan.fills.get(name, 0.0), values), gaps.astype(np.float64)

    def _ones(self, name: str, column: Texts) -> dict[Hashable, Array]:
        """A column of zeros and ones for each level that is to have one."""
        counts = np.bincount(
            np.where(column.codes < 0, len(column.levels), column.codes), minlength=len(column.levels) + 1
        )
        met = self.levels[name]
        met.update({level: int(count) for level, count in zip((*column.levels, ""), counts, strict=True) if count})
        self.levels[name] = _fewer(name, met, self.plan)
        ones: dict[Hashable, Array] = {}
        if counts[-1]:
            ones["missing", name] = (column.codes < 0).astype(np.float64)
        if _many(name, met, self.plan):
            return ones
        own = self.plan.kept.get(name, column.levels)
        for code, level in enumerate(column.levels):
            slot = ("level", name, level) if level in own else ("other", name)
            here = (column.codes == code).astype(np.float64)
            ones[slot] = ones[slot] + here if slot in ones else here
        return ones

    def _weights(self, train: Frame) -> Array | None:
        if self.plan.roles.weight is None:
            return None
        column = train[self.plan.roles.weight]
        values = column.values if isinstance(column, Numbers) else np.zeros(0)
        if (values < 0).any():
            row = int((values < 0).argmax())
            raise DataError(
                f"{train.where}: weight {self.plan.roles.weight!r} is negative ({values[row]:g}): expected at least 0 "
                "in every row."
            )
        return values

    # ------------------------------------------------------------ some of the rows

    def _draw(self, frame: Frame, keys: npt.NDArray[np.uint64], told: PortionRows) -> None:
        wanted = (told.train | told.apart) & (keys < self.plan.threshold)
        for column, bounds in zip(strata(frame, told, self.plan), self.bounds, strict=False):
            wanted |= _candidates(column, keys, bounds)
        if not wanted.any():
            return
        some, known = Drawn(frame.take(wanted), keys[wanted]).thinned(self.plan)
        self._tighten(known)
        self.parts.append(some)
        self.waiting += len(some.keys)
        if self.waiting > max(self.base, 1 << 15):
            self._thin()

    def _tighten(self, lower: list[Bounds]) -> None:
        for bounds, new in zip(self.bounds, lower, strict=False):
            bounds |= {name: min(bound, bounds.get(name, _LAST)) for name, bound in new.items()}

    def _thin(self) -> None:
        if self.parts:
            drawn = Drawn(
                Frame.joined([part.frame for part in self.parts]), np.concatenate([p.keys for p in self.parts])
            )
            thinned, bounds = drawn.thinned(self.plan)
            self.parts, self.base, self.waiting = [thinned], len(thinned.keys), 0
            self._tighten(bounds)

    def survey(self) -> Survey:
        self._thin()
        return Survey(
            moments=self.factors,
            spans=self.spans,
            levels=self.levels,
            values=self.values,
            rows=self.row,
            trained=self.trained,
            apart=self.apart,
            groups=self.groups,
            skipped=self.skipped,
            drawn=self.parts[0] if self.parts else None,
        )


def _keys(index: int, first: int, rows: int) -> npt.NDArray[np.uint64]:
    """A number for every row that looks random and depends on its place in the table alone (splitmix64)."""
    with np.errstate(over="ignore"):
        z = np.arange(first, first + rows, dtype=np.uint64) + np.uint64((index + 1) << 40)
        z = z * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


# ---------------------------------------------------------------- medians


def values_between(
    dataset: Table, index: int, plan: ReadingPlan, brackets: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[int, Array]]:
    """Of a chunk's training rows, by column: how many values are below a bracket, and those inside it.

    Parameters
    ----------
    dataset, index, plan : as for :func:`survey_chunk`.
    brackets : by column, the least and the largest value inside.
    """
    chunk = dataset.chunks[index]
    needed = [*brackets, *plan.roles.columns.values()]
    kinds = {name: plan.kinds[name] for name in dict.fromkeys(needed)}
    below: Counter[str] = Counter()
    inside: dict[str, list[Array]] = {name: [] for name in brackets}
    with one_thread():
        for frame in frames_of(dataset.only([chunk]), kinds, plan.rows):
            train = training_rows(frame, plan).train
            for name, (low, high) in brackets.items():
                column = frame[name]
                values = column.values[train] if isinstance(column, Numbers) else np.zeros(0)
                below[name] += int(np.count_nonzero(values < low))
                inside[name].append(values[(values >= low) & (values <= high)])
    return {name: (below[name], np.concatenate([np.zeros(0), *parts])) for name, parts in inside.items()}
