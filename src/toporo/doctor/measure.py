"""What checks look at: a table as they see it, and how far apart its groups are on a sample of its rows."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.data.encode import Encoder
from toporo.data.frame import Column, Frame, Numbers, Texts
from toporo.doctor.results import Ahead, Distances, Finding, GraphEvidence, Losses, Separability, seriated
from toporo.errors import TopoRoWarning
from toporo.groups import GroupIds, Groups
from toporo.machine import one_thread
from toporo.topology.diffusion import GroupDiffusion
from toporo.topology.graph import GroupGraph
from toporo.topology.learn import contrast, cut_graph, resample
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
    distances, separability, losses, ahead, evidence : measured, or None.
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
    losses: Losses | None = None
    ahead: Ahead | None = None
    evidence: GraphEvidence | None = None

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
    def feature_hashes(self) -> Hashes:
        """A number for every row by its features."""
        return row_hashes(self.frame, self.features)

    @cached_property
    def hashes(self) -> Hashes:
        """A number for every row by its features and, in training groups, its target."""
        if self.target is None:
            return self.feature_hashes
        return np.where(self.training_rows, row_hashes(self.frame, [*self.features, self.target]), self.feature_hashes)

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
    """Add a check.

    Parameters
    ----------
    function : it takes a case and yields what it finds; it is returned as it is.
    """
    CHECKS.append(function)
    return function


Codes = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

#: Rows per group, points in all, and cells in all, of the sample.
EACH, POINTS, CELLS = 200, 4000, 2_000_000
#: Groups that take part in what is costly.
MOST_GROUPS = 100
#: Neighbours of a point in the data graph, where there are so many.
NEIGHBORS = 15
#: Dyadic scales: after 2^4 steps what diffuses has told near groups from far ones, and the few points that nothing is
#: near to, which rule at long times, have not.
SCALES = 4
#: Relative accuracy of a distance; a sample is far less accurate.
TOL = 1e-3
#: By number of groups: up to so many groups, so many resamples and so many random deals of rows to groups.
EFFORT = ((40, 10, 8), (MOST_GROUPS, 4, 5))
#: Rows a group needs to take part in cross-validation.
FEWEST_ROWS = 5
TREES = 40
#: Up to so many groups a linear classifier is quick enough to be tried beside the trees.
FEW_GROUPS = 50


#: Of the hash of rows.
_ODD, _FIRST, _SECOND = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_ABSENT = np.uint64(0x2545F4914F6CDD1D)


# ---------------------------------------------------------------- rows by their content


def _mixed(values: Hashes) -> Hashes:
    """SplitMix64's finaliser (Steele, Lea & Flood 2014): every bit of the input reaches every bit of the output."""
    mixed = values + _ODD
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _of_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def row_hashes(frame: Frame, names: Iterable[str]) -> Hashes:
    """One number per row: equal for rows that are equal in these columns, in any order."""
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


def balanced_sample(hashes: Hashes, codes: Codes, wanted: Sequence[int], each: int, seed: int = 0) -> Codes:
    """At most ``each`` rows of every wanted group: which ones follows from their content, not from their place.

    Equal rows are told apart by counting them: a value that half the rows share makes half the sample.
    """
    inside = np.zeros(int(codes.max(initial=-1)) + 2, dtype=bool)
    inside[list(wanted)] = True
    inside[-1] = False  # where code -1, no group, leads
    rows = np.flatnonzero(inside[codes])
    order = rows[np.lexsort((hashes[rows], codes[rows]))]
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (hashes[order][1:] == hashes[order][:-1]) & (codes[order][1:] == codes[order][:-1])
    place = np.arange(len(order))
    repeats = place - np.maximum.accumulate(np.where(same, 0, place))
    keys = _mixed(hashes[order] ^ _mixed(repeats.astype(np.uint64) + np.uint64(_of_text(f"sample {seed}"))))
    drawn = np.lexsort((keys, codes[order]))
    chosen = codes[order][drawn]
    starts = np.searchsorted(chosen, chosen, side="left")
    return np.asarray(order[drawn][np.arange(len(chosen)) - starts < each])


# ---------------------------------------------------------------- groups by their rows


def sample_size(groups: int, width: int) -> int:
    """Rows to take of every group."""
    points = min(POINTS, max(500, CELLS // max(1, width)))
    return max(2, min(EACH, points // max(1, groups)))


def standardised(matrix: Array) -> Array:
    """Columns centred and divided by their standard deviation; those that are constant are left out."""
    scaled = _scaled(matrix)
    return np.ascontiguousarray(scaled[:, scaled.any(axis=0)])


def group_distances(matrix: Array, codes: Codes, names: Sequence[str], seed: int = 0) -> Distances | str:
    """Diffusion EMD between groups with what chance would give, or why there is none.

    Chance is measured by dealing the rows to groups of the same sizes at random, on the same data graph.
    """
    points = standardised(matrix)
    if len(names) < 2:
        return "there is a single group"
    distinct = len(np.unique(points, axis=0)) if points.shape[1] else 1
    if distinct < 3:
        return f"the sampled rows have {'one single point' if distinct == 1 else 'only two points'} in their features"
    ids = GroupIds(codes, Groups(names))
    _, resamples, deals = next((e for e in EFFORT if len(names) <= e[0]), EFFORT[-1])
    rng = np.random.default_rng([seed, len(names)])
    # On small samples several threads wait for each other.
    with one_thread(torch=True, openmp=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # what they warn of is looked at here
        near = min(NEIGHBORS, distinct - 1)
        kernel = "knn" if distinct > 3 * near else "dense"
        prepared = GroupDiffusion.prepare(points, ids, kernel=kernel, neighbors=near, scales=SCALES, tol=TOL)
        measured = prepared.distances(TOL)
        redrawn = resample(prepared, resamples, seed=seed, tol=TOL)
        shuffled = (GroupIds(rng.permutation(codes), ids.groups) for _ in range(deals))
        dealt = [replace(prepared, graph=replace(prepared.graph, ids=some)).distances(TOL) for some in shuffled]
        edges = set(cut_graph(measured).edges)
        kept = [len(edges & set(cut_graph(draw).edges)) / len(edges) for draw in redrawn]
    pairs = np.triu_indices(len(names), 1)
    typical = float(measured.matrix[pairs].mean())
    means = np.asarray([draw.matrix[pairs].mean() for draw in dealt])
    spread = float(means.std(ddof=1))
    return Distances(
        names=tuple(names),
        matrix=measured.matrix,
        order=seriated(measured.matrix, names),
        typical=typical,
        chance=float(means.mean()),
        chance_spread=spread,
        by_chance=np.asarray(np.mean([draw.matrix for draw in dealt], axis=0)),
        beyond_chance=bool(typical > means.max() and typical > means.mean() + 3 * spread),
        contrast=contrast(measured, redrawn),
        stability=float(np.mean(kept)),
        points=len(points),
    )


def group_separability(
    matrix: Array, codes: Codes, names: Sequence[str], columns: Sequence[str], seed: int = 0
) -> Separability | str:
    """How well a classifier tells the groups apart, or why that was not measured.

    Extremely randomised trees, and for few groups logistic regression beside them (the better of the two counts),
    in stratified folds. ``columns`` names the table's column behind every column of the matrix.
    """
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    sizes = np.bincount(codes, minlength=len(names))
    taking = np.flatnonzero(sizes >= FEWEST_ROWS)
    if len(taking) < 2:
        return f"fewer than two groups have {FEWEST_ROWS} rows"
    rows = np.isin(codes, taking)
    x, y = _scaled(matrix[rows]), np.searchsorted(taking, codes[rows])
    if not x.shape[1] or not (x != x[0]).any():
        return "the features are constant"
    count = len(taking)
    folds = 5 if count <= FEW_GROUPS // 5 else 3
    makers: dict[str, Any] = {
        "extremely randomised trees": lambda: ExtraTreesClassifier(
            TREES, min_samples_leaf=2, class_weight="balanced", random_state=seed
        )
    }
    if count <= FEW_GROUPS:
        makers["logistic regression"] = lambda: LogisticRegression(class_weight="balanced", max_iter=300)
    tables = {name: np.zeros((count, count)) for name in makers}
    shares = np.zeros(x.shape[1])
    splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
    with one_thread(openmp=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a linear model that has not quite converged classifies well enough
        for inside, outside in splitter.split(x, y):
            for name, make in makers.items():
                model = make().fit(x[inside], y[inside])
                np.add.at(tables[name], (y[outside], model.predict(x[outside])), 1.0)
                shares += getattr(model, "feature_importances_", 0.0)
    confusions = {name: table / table.sum(axis=1, keepdims=True) for name, table in tables.items()}
    best = max(confusions, key=lambda name: float(np.trace(confusions[name])))
    confusion = confusions[best]
    recall = np.diag(confusion)
    by_column: dict[str, float] = {}
    for name, share in zip(columns, shares / max(float(shares.sum()), 1e-300), strict=True):
        by_column[name] = by_column.get(name, 0.0) + float(share)
    kept = tuple(names[int(i)] for i in taking)
    return Separability(
        accuracy=float(recall.mean()),
        chance=1.0 / count,
        error=float(np.sqrt((recall * (1 - recall) / sizes[taking]).sum()) / count),
        names=kept,
        confusion=confusion,
        features=tuple(sorted(by_column.items(), key=lambda item: (-item[1], item[0]))),
        classifier=best,
        folds=folds,
        points=len(y),
        left_out=tuple(name for name in names if name not in kept),
    )


def _scaled(matrix: Array) -> Array:
    """The same with constant columns kept, as zeros: every column stays in its place."""
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    scaled = matrix / np.where(largest > 0, largest, 1.0)  # neither squares nor sums can overflow
    centred = scaled - scaled.mean(axis=0)
    spread = centred.std(axis=0)
    return np.asarray(np.where(spread > 1e-12, centred / np.where(spread > 1e-12, spread, 1.0), 0.0))
