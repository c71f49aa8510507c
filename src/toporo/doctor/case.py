"""The table that checks look at: its roles, profiles of its columns, and rows by their content."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from toporo.data.encode import Encoder
from toporo.data.frame import Column, Frame, Numbers, Texts
from toporo.doctor.results import Ahead, Distances, Finding, GraphEvidence, Losses, Separability
from toporo.tables.roles import Roles
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

#: More than luck is what luck alone gives less often than this.
LUCK = 1e-4
#: From here on (0 is guessing, 1 is always right) one column is said to tell another.
TELLING = 0.95
#: Fewest rows of which no two share a value that are not chance.
ENOUGH = 20
#: Names of columns that number rows.
_KEY = re.compile(r"(^|[\W_])(id|ids|key|uuid|guid|index|idx|nr|no|number|row|rowid)$", re.IGNORECASE)
#: Of the hash of rows.
_ODD, _FIRST, _SECOND = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_ABSENT = np.uint64(0x2545F4914F6CDD1D)


@dataclass(frozen=True, eq=False)
class Profile:
    """One feature in all rows that have a group.

    Attributes
    ----------
    name, kind : of the column; the kind is ``"number"``, ``"date"`` or ``"text"``.
    distinct : how many values there are.
    sizes : by group, how many of its rows have a value.
    single : by group, whether all its values are the same.
    settled : of the rows beyond the first of every value, the share that is of the value's commonest group.
    tells_group : whether a value settles the group, or nearly, and not by luck.
    whole : whether all values are whole numbers.
    spread : the largest number less the smallest.
    """

    name: str
    kind: str
    distinct: int
    sizes: Codes
    single: Mask
    settled: float
    tells_group: bool
    whole: bool = False
    spread: float = math.nan

    @property
    def known(self) -> int:
        """The number of rows that have a value."""
        return int(self.sizes.sum())

    @property
    def identifier(self) -> bool:
        """True if it names rows: text or whole numbers of which no two rows share one.

        Whole numbers must also lie as densely as a count of rows does, or stand in a column that is named like one.
        """
        if self.known < ENOUGH or self.distinct < self.known or self.kind == "date":
            return False
        dense = self.spread + 1 <= 1.5 * self.known
        return self.kind == "text" or (self.whole and (dense or _KEY.search(self.name) is not None))

    @property
    def group_level(self) -> bool:
        """True if it is the same within every group, and not overall."""
        several = self.sizes >= 2
        return self.distinct > 1 and bool(several.any()) and bool(self.single[self.sizes > 0].all())

    @classmethod
    def of(cls, name: str, column: Column, codes: Codes, groups: int) -> Profile:
        """Measure a column; ``codes`` are the groups of the rows, -1 for none."""
        known = ~column.missing & (codes >= 0)
        labels = codes[known]
        given = column.codes.astype(np.float64) if isinstance(column, Texts) else column.values
        levels, values = np.unique(given[known], return_inverse=True)
        pairs, counts = np.unique(values.reshape(-1) * groups + labels, return_counts=True)
        commonest = np.zeros(len(levels), dtype=np.int64)
        np.maximum.at(commonest, pairs // groups, counts)
        sizes = np.bincount(labels, minlength=groups)
        spare = len(labels) - len(levels)  # rows whose value nobody shares say nothing
        settled = float((commonest.sum() - len(levels)) / spare) if spare else 0.0
        usual = float(sizes.max() / len(labels)) if len(labels) else 1.0
        tells = usual < 1 and settled >= usual + TELLING * (1 - usual) and spare * math.log(usual) < math.log(LUCK)
        profile = cls(
            name, column.kind, len(levels), sizes, np.bincount(pairs % groups, minlength=groups) == 1, settled, tells
        )
        if isinstance(column, Texts) or not len(levels):
            return profile
        return replace(profile, whole=bool((levels == np.round(levels)).all()), spread=float(levels[-1] - levels[0]))


@dataclass(frozen=True, eq=False)
class Case:
    """A table with its roles, and what was measured on a sample of its rows.

    Attributes
    ----------
    frame, roles : the table, and its columns and groups; its graph has been read.
    task : ``"classification"``, ``"regression"``, or None without a target.
    features : the columns that could be features: all but the group, the target and those excluded.
    names : groups with rows, in the order of the codes.
    codes : by row, the code of its group; -1 where it has none.
    prior : the default prior from the graph, or None.
    encoder : the preprocessing of a fit, or None where no column is of use.
    distances, separability, losses, ahead, evidence : measured, or None.
    """

    frame: Frame
    roles: Roles
    task: str | None
    features: tuple[str, ...]
    names: tuple[str, ...]
    codes: Codes
    prior: Prior | None = None
    encoder: Encoder | None = None
    distances: Distances | None = None
    separability: Separability | None = None
    losses: Losses | None = None
    ahead: Ahead | None = None
    evidence: GraphEvidence | None = None

    @property
    def target(self) -> str | None:
        """The column to predict."""
        return self.roles.target

    @property
    def test(self) -> tuple[str, ...]:
        """Test groups, with or without rows."""
        return self.roles.test_groups

    @property
    def graph(self) -> GroupGraph | None:
        """The graph over groups, by their names as text."""
        return self.roles.given_graph

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Rows by group."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))
        return dict(zip(self.names, counts.tolist(), strict=True))

    @cached_property
    def train(self) -> tuple[str, ...]:
        """The groups to train on."""
        return tuple(name for name in self.names if name not in set(self.test))

    @cached_property
    def training_rows(self) -> Mask:
        """The rows of those groups."""
        train = set(self.train)
        return np.asarray([*(name in train for name in self.names), False])[self.codes]

    @cached_property
    def labelled(self) -> Mask:
        """Training rows with a target; test groups' targets are nobody's business before training."""
        if self.target is None:
            return np.zeros(len(self.frame), dtype=bool)
        return np.asarray(self.training_rows & ~self.frame[self.target].missing)

    @cached_property
    def labels(self) -> Texts | None:
        """The target as classes, or None."""
        return self.frame.text(self.target) if self.target is not None and self.task == "classification" else None

    @cached_property
    def target_values(self) -> Array | None:
        """The target as numbers, for a regression."""
        column = self.frame[self.target] if self.target is not None and self.task == "regression" else None
        return column.values if isinstance(column, Numbers) else None

    @cached_property
    def profiles(self) -> dict[str, Profile]:
        """By feature."""
        return {name: Profile.of(name, self.frame[name], self.codes, len(self.names)) for name in self.features}

    @cached_property
    def identifying(self) -> set[str]:
        """Columns that settle which row or group a row is: nothing else could be seen beside them."""
        return {
            name
            for name, profile in self.profiles.items()
            if profile.identifier or (profile.tells_group and (profile.kind == "text" or profile.group_level))
        }

    @cached_property
    def feature_hashes(self) -> Hashes:
        """A number for every row by its features."""
        return row_hashes(self.frame, self.features)

    @cached_property
    def hashes(self) -> Hashes:
        """A number for every row by its features and, in training groups, its target."""
        if self.target is None:
            return self.feature_hashes
        return np.where(self.training_rows, row_hashes(self.frame, [*self.features, self.target]), self.feature_hashes)

    @property
    def width(self) -> int:
        """Columns of the matrix that a model would see."""
        return 0 if self.encoder is None else len(self.encoder.names)

    def of_features(self, names: Collection[str]) -> tuple[tuple[str, ...], float]:
        """Return the features that a finding is about, and how large a part of all they are."""
        return tuple(names), len(names) / max(1, len(self.features))

    def of_groups(self, names: Collection[str]) -> tuple[tuple[str, ...], float]:
        """Return the groups that a finding is about, and how large a part of all they are."""
        return tuple(names), len(set(names)) / max(1, len(self.names))


#: A check looks at a case and yields what it finds.
Check = Callable[[Case], Iterable[Finding]]
#: Every check there is; findings are ranked, so the order of checks does not matter.
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    """Add a check.

    Parameters
    ----------
    function : it takes a case and yields what it finds; it is returned as it is.
    """
    CHECKS.append(function)
    return function


# ---------------------------------------------------------------- rows by their content


def _mixed(values: Hashes) -> Hashes:
    """Return SplitMix64's finaliser (Steele, Lea & Flood 2014): each bit of the input reaches each of the output."""
    mixed = values + _ODD
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _of_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def row_hashes(frame: Frame, names: Iterable[str]) -> Hashes:
    """Return one number per row: equal for rows that are equal in these columns, in any order."""
    total = np.zeros(len(frame), dtype=np.uint64)
    for name in names:
        column = frame[name]
        if isinstance(column, Texts):
            levels = np.asarray([*map(_of_text, column.levels), int(_ABSENT)], dtype=np.uint64)
            values = levels[column.codes]
        else:
            plain = np.ascontiguousarray(np.where(column.missing, 0.0, column.values + 0.0))  # -0.0 is 0.0
            values = np.where(column.missing, _ABSENT, plain.view(np.uint64))
        total += _mixed(values ^ np.uint64(_of_text(name)))
    return _mixed(total)


def balanced_sample(hashes: Hashes, codes: Codes, wanted: Sequence[int], per_group: int, seed: int = 0) -> Codes:
    """Return at most so many rows of every wanted group: which ones follows from their content, not from their order.

    Equal rows are told apart by counting them: a value that half the rows share makes half the sample.
    """
    rows = np.flatnonzero(np.isin(codes, wanted))
    order = rows[np.lexsort((hashes[rows], codes[rows]))]
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (hashes[order][1:] == hashes[order][:-1]) & (codes[order][1:] == codes[order][:-1])
    position = np.arange(len(order))
    repeats = position - np.maximum.accumulate(np.where(same, 0, position))
    keys = _mixed(hashes[order] ^ _mixed(repeats.astype(np.uint64) + np.uint64(_of_text(f"sample {seed}"))))
    drawn = np.lexsort((keys, codes[order]))
    chosen = codes[order][drawn]
    starts = np.searchsorted(chosen, chosen, side="left")
    return np.asarray(order[drawn][np.arange(len(chosen)) - starts < per_group])
