"""What the checks look at: a table with its roles, and a profile of every column."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from toporo.data.encode import Encoder
from toporo.data.frame import Column, Frame, Numbers, Texts
from toporo.doctor.measure import Codes, Hashes, row_hashes
from toporo.doctor.results import Distances, Finding, Separability
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array

Mask = npt.NDArray[np.bool_]

#: More than luck is what luck alone gives less often than this.
LUCK = 1e-4
#: From here on (0 is guessing, 1 is always right) one column is said to tell another.
TELLING = 0.95


@dataclass(frozen=True)
class Agreement:
    """How far the value of one column settles a label.

    Of the rows beyond the first of every value, the share that has the commonest label of its value: rows whose value
    nobody shares say nothing.

    Attributes
    ----------
    share : that share.
    spare : the number of rows beyond the first of every value.
    baseline : the share of the commonest label over all rows.
    """

    share: float
    spare: int
    baseline: float

    @property
    def skill(self) -> float:
        """The share on a scale from 0 (the commonest label always) to 1 (the value settles the label)."""
        return (self.share - self.baseline) / (1.0 - self.baseline) if self.baseline < 1 else 0.0

    @property
    def telling(self) -> bool:
        """Whether the value settles the label, or nearly, and not by luck."""
        return self.skill >= TELLING and self.spare * math.log(self.baseline) < math.log(LUCK)


def agreement(values: Codes, labels: Codes) -> Agreement:
    """Of codes of values and of labels, both from 0 on."""
    if not len(values):
        return Agreement(0.0, 0, 1.0)
    baseline = float(np.bincount(labels).max() / len(labels))
    width = int(labels.max()) + 1
    pairs, counts = np.unique(values * width + labels, return_counts=True)
    largest = np.zeros(int(values.max()) + 1, dtype=np.int64)
    np.maximum.at(largest, pairs // width, counts)
    met = int((largest > 0).sum())
    spare = len(values) - met
    return Agreement(float((largest.sum() - met) / spare) if spare else 0.0, spare, baseline)


def disjoint(low: Array, high: Array, sizes: Codes) -> bool:
    """Whether ranges, one per group, leave each other alone, and not by luck: random ranks would hardly do so."""
    order = np.argsort(low, kind="stable")
    if len(low) < 2 or not (high[order][:-1] < low[order][1:]).all():
        return False
    ways = math.lgamma(len(low) + 1) + sum(math.lgamma(size + 1) for size in sizes) - math.lgamma(sizes.sum() + 1)
    return ways < math.log(LUCK)


@dataclass(frozen=True, eq=False)
class Profile:
    """One feature in all rows that have a group.

    Attributes
    ----------
    name, kind : of the column; the kind is ``"number"``, ``"date"`` or ``"text"``.
    known : how many of these rows have a value.
    distinct : how many values there are.
    sizes : by group, how many of its rows have a value.
    single : by group, whether all its values are the same.
    by_group : how far a value settles the group; None where hardly two rows share one.
    apart : whether groups have ranges of numbers of their own.
    whole : whether all values are whole numbers.
    low, high : the range of numbers; NaN for text.
    """

    name: str
    kind: str
    known: int
    distinct: int
    sizes: Codes
    single: Mask
    by_group: Agreement | None
    apart: bool = False
    whole: bool = False
    low: float = math.nan
    high: float = math.nan

    @property
    def unique(self) -> bool:
        """Whether no two rows share a value."""
        return self.distinct == self.known

    @property
    def tells_group(self) -> bool:
        """Whether a value settles the group, or nearly."""
        return self.by_group is not None and self.by_group.telling

    @property
    def group_level(self) -> bool:
        """Whether it is the same within every group, and not overall."""
        several = self.sizes >= 2
        return self.distinct > 1 and bool(several.any()) and bool(self.single[self.sizes > 0].all())


def _profile(name: str, column: Column, codes: Codes, groups: int) -> Profile:
    known = ~column.missing & (codes >= 0)
    labels = codes[known]
    sizes = np.bincount(labels, minlength=groups)
    if isinstance(column, Texts):
        values = column.codes[known].astype(np.int64)
        distinct = len(np.unique(values))
        met = np.unique(labels * (len(column.levels) + 1) + values) // (len(column.levels) + 1)
        single = np.bincount(met, minlength=groups) == 1
        return Profile(name, "text", len(labels), distinct, sizes, single, agreement(values, labels))
    numbers = column.values[known]
    unique, inverse = np.unique(numbers, return_inverse=True)
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(low, labels, numbers)
    np.maximum.at(high, labels, numbers)
    there = sizes > 0
    return Profile(
        name=name,
        kind=column.kind,
        known=len(numbers),
        distinct=len(unique),
        sizes=sizes,
        single=low == high,
        by_group=agreement(inverse.reshape(-1).astype(np.int64), labels) if 2 * len(unique) <= len(numbers) else None,
        apart=disjoint(low[there], high[there], sizes[there]),
        whole=bool((numbers == np.round(numbers)).all()),
        low=float(unique[0]) if len(unique) else math.nan,
        high=float(unique[-1]) if len(unique) else math.nan,
    )


@dataclass(frozen=True, eq=False)
class Case:
    """A table with its roles, and what was measured on a sample of its rows.

    Attributes
    ----------
    frame : the table.
    group, target : columns; the target may be None.
    task : ``"classification"``, ``"regression"``, or None without a target.
    features : the columns that could be features: all but the group, the target and those excluded.
    chosen : whether the features were named by the user.
    names : groups with rows, in the order of the codes.
    codes : by row, the code of its group; -1 where it has none.
    test : test groups, with or without rows.
    graph : over groups, by their names as text, or None.
    prior : the default prior from that graph, or None.
    encoder : the preprocessing of a fit, or None where no column is of use.
    distances, separability : measured, or None.
    """

    frame: Frame
    group: str
    target: str | None
    task: str | None
    features: tuple[str, ...]
    chosen: bool
    names: tuple[str, ...]
    codes: Codes
    test: tuple[str, ...]
    graph: GroupGraph | None = None
    prior: Prior | None = None
    encoder: Encoder | None = None
    distances: Distances | None = None
    separability: Separability | None = None

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Rows by group."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))
        return {name: int(count) for name, count in zip(self.names, counts, strict=True)}

    @cached_property
    def train(self) -> tuple[str, ...]:
        """The groups to train on."""
        return tuple(name for name in self.names if name not in set(self.test))

    @cached_property
    def graph_names(self) -> tuple[str, ...]:
        """The groups of the graph, if there is one."""
        return () if self.graph is None else tuple(map(str, self.graph.names))

    @cached_property
    def training_rows(self) -> Mask:
        """The rows of those groups."""
        keep = np.asarray([*(name in set(self.train) for name in self.names), False])
        return np.asarray(keep[self.codes])

    @cached_property
    def profiles(self) -> dict[str, Profile]:
        """By feature."""
        return {name: _profile(name, self.frame[name], self.codes, len(self.names)) for name in self.features}

    @cached_property
    def hashes(self) -> Hashes:
        """By row, a number that its features and its target settle."""
        names = [*self.features, *([self.target] if self.target is not None else [])]
        return row_hashes(self.frame, names)

    @cached_property
    def width(self) -> int:
        """Columns of the matrix that a model would see."""
        return 0 if self.encoder is None else len(self.encoder.names)

    @cached_property
    def labels(self) -> Texts | None:
        """The target as classes, or None."""
        return self.frame.text(self.target) if self.target is not None and self.task == "classification" else None

    @cached_property
    def labelled(self) -> Mask:
        """Training rows with a target; test groups' targets are nobody's business before training."""
        if self.target is None:
            return np.zeros(len(self.frame), dtype=bool)
        return np.asarray(self.training_rows & ~self.frame[self.target].missing)

    @cached_property
    def target_values(self) -> Array | None:
        """The target as numbers, for a regression."""
        column = self.frame[self.target] if self.target is not None and self.task == "regression" else None
        return column.values if isinstance(column, Numbers) else None

    def of_features(self, names: Collection[str]) -> tuple[tuple[str, ...], float]:
        """Features that a finding is about, and how large a part of all they are."""
        return tuple(names), len(names) / max(1, len(self.features))

    def of_groups(self, names: Collection[str]) -> tuple[tuple[str, ...], float]:
        """Groups that a finding is about, and how large a part of all they are."""
        return tuple(names), len(set(names)) / max(1, len(self.names))


#: A check looks at a case and yields what it finds.
Check = Callable[[Case], Iterable[Finding]]
#: Every check there is; findings are ranked, so the order of checks does not matter.
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    """Add a check."""
    CHECKS.append(function)
    return function
