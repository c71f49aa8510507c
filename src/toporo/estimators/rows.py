"""Training rows on their way into a model: groups found, weights checked, columns measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.data.grouped import group_rng
from toporo.errors import DataError, GroupMismatchError
from toporo.estimators.scaling import Scaling
from toporo.groups import GroupIds, Groups
from toporo.robust.rows import in_chunks, members_of, weighted_rows
from toporo.types import Array, Name

#: The one group of rows that came without any.
EVERYONE = "all"


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that count.

    Attributes
    ----------
    x : inputs as they came, n × p.
    y : targets as they came (n × outputs), or codes of classes (n).
    ids, weights : every row's group and its weight (None: all alike).
    inputs, targets : how the columns are scaled; a class is not.
    classes : how many there are; None for a regression.
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    ids: GroupIds
    weights: Array | None
    inputs: Scaling
    targets: Scaling | None
    classes: int | None

    @classmethod
    def prepare(
        cls,
        x: npt.NDArray[Any],
        y: npt.NDArray[Any],
        ids: GroupIds,
        weights: Array | None,
        *,
        classes: int | None,
        standardize: bool,
        center: bool,
    ) -> Rows:
        """Measure the columns of rows that all count."""
        inputs, targets = Scaling.none(x.shape[1]), None
        if classes is None:
            targets = Scaling.none(y.shape[1])
        if standardize:
            inputs = Scaling.of(x, weights, center=center, what="X")
            if classes is None:
                targets = Scaling.of(y, weights, center=center, what="y")
                targets.check_squares("y")
        return cls(x, y, ids, weights, inputs, targets, classes)

    @property
    def groups(self) -> Groups:
        """The groups, all of which occur."""
        return self.ids.groups

    @property
    def outputs(self) -> int:
        """How many numbers, or classes, a row's answer is chosen from."""
        return self.y.shape[1] if self.classes is None else self.classes

    @property
    def sizes(self) -> dict[Name, int]:
        """Rows by group."""
        counts = np.bincount(self.ids.codes, minlength=len(self.groups))
        return {name: int(count) for name, count in zip(self.groups, counts, strict=True)}

    def take(self, places: npt.NDArray[np.intp]) -> Rows:
        """Some of the rows, of every group at least one, on the same scales."""
        return Rows(
            self.x[places],
            self.y[places],
            GroupIds(self.ids.codes[places], self.groups),
            None if self.weights is None else self.weights[places],
            self.inputs,
            self.targets,
            self.classes,
        )

    def losses(self, scores: Array) -> dict[Name, float]:
        """By group: mean squared error over rows and outputs, or log loss of scores (log-odds, or one a class)."""
        if self.classes is None:
            return _means(((scores - self.y) ** 2).mean(axis=1), self.ids, self.weights)
        if scores.shape[1] == 1:
            rows = np.logaddexp(0.0, np.where(self.y == 1, -scores[:, 0], scores[:, 0]))
        else:
            top = scores.max(axis=1)
            own = np.take_along_axis(scores, self.y[:, None], axis=1)[:, 0]
            rows = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - own
        return _means(rows, self.ids, self.weights)

    def one_class_groups(self) -> list[Name]:
        """Groups whose rows are all of one class."""
        low, high = np.full(len(self.groups), self.outputs), np.full(len(self.groups), -1)
        np.minimum.at(low, self.ids.codes, self.y)
        np.maximum.at(high, self.ids.codes, self.y)
        return [name for name, a, b in zip(self.groups, low, high, strict=True) if a == b]


def counted(
    x: npt.NDArray[Any], y: npt.NDArray[Any], ids: GroupIds, sample_weight: Any
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], GroupIds, Array | None]:
    """Rows with their weights, less those that have none; a group without weight is an error that names it."""
    if sample_weight is not None and not np.any(np.asarray(sample_weight)):
        raise DataError(
            "the weight (sample_weight) is zero in every row: no row counts. Give at least some a positive weight."
        )
    x, y, ids, weights = weighted_rows(x, y, ids, sample_weight)
    if weights is not None:  # only their ratios count, and by a power of two no digit is lost
        weights = np.ldexp(weights, -int(np.frexp(weights.max())[1]))
    return x, y, ids, weights


def group_ids(groups: Any, rows: int) -> GroupIds:
    """The group of every row, by name, from a list, an array, a Series of pandas or polars, or GroupIds."""
    if isinstance(groups, GroupIds):
        found = _occurring(groups)
    else:
        if isinstance(groups, str | bytes) or not hasattr(groups, "__iter__"):
            raise DataError(f"groups is {groups!r}: expected a group name for each of the {rows} rows.")
        if len(getattr(groups, "shape", (rows,))) != 1:
            raise DataError(f"groups has shape {tuple(groups.shape)}: expected one group name a row, in one column.")
        column = next((getattr(groups, way)() for way in ("tolist", "to_list") if hasattr(groups, way)), None)
        found = _coded(list(groups) if column is None else column)
    if len(found) != rows:
        raise DataError(f"X has {rows} rows and groups {len(found)}: they must agree, in the same order.")
    return found


def _coded(column: list[Any]) -> GroupIds:
    """Like ``Groups.of``, and quick where the names are few and the rows many."""
    met: dict[Any, int] = {}
    try:
        codes = np.fromiter((met.setdefault(name, len(met)) for name in column), np.int64, len(column))
    except TypeError:  # not hashable: named by the slow way
        return Groups.of(column)
    distinct = Groups.of(list(met))
    return GroupIds(distinct.codes[codes], distinct.groups)


def _occurring(ids: GroupIds) -> GroupIds:
    """GroupIds whose groups all occur: whoever took some of the rows of a table kept all of its groups."""
    codes = np.asarray(ids.codes.detach().cpu() if hasattr(ids.codes, "detach") else ids.codes)
    if codes.ndim != 1 or codes.dtype.kind not in "iu" or not codes.size:
        raise DataError(f"group codes have shape {codes.shape} and type {codes.dtype}: expected an integer a row.")
    if not 0 <= codes.min() <= codes.max() < len(ids.groups):
        raise GroupMismatchError(
            f"group codes run from {codes.min()} to {codes.max()}, but there are {len(ids.groups)} groups."
        )
    used, place = np.unique(codes, return_inverse=True)
    kept = Groups(ids.groups.decode(used))
    return GroupIds(kept.encode(ids.groups.decode(used))[place], kept)


def draw(ids: GroupIds, most: int, seed: int) -> npt.NDArray[np.intp]:
    """Places of at most so many rows of every group, drawn from a random stream of the group's own."""
    chosen = []
    for name, rows in zip(ids.groups, members_of(ids), strict=True):
        picked = rows if len(rows) <= most else np.sort(group_rng(name, seed).permutation(rows)[:most])
        chosen.append(picked)
    return np.sort(np.concatenate(chosen))


def _means(values: Array, ids: GroupIds, weights: Array | None) -> dict[Name, float]:
    """Weighted means of one value a row."""
    shares = np.ones(len(values)) if weights is None else weights
    totals = np.bincount(ids.codes, values * shares, minlength=len(ids.groups))
    return ids.groups.named(totals / np.bincount(ids.codes, shares, minlength=len(ids.groups)))


def linear_scores(x: npt.NDArray[Any], coef: Array, intercept: Array) -> Array:
    """Rows × outputs, the same bytes on any number of threads."""
    return in_chunks(lambda part: x[part] @ coef + intercept, len(x))
