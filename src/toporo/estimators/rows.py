"""Rows in memory: their groups, weights, columns and targets, checked; and a graph that is learned from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from toporo import topology
from toporo.data.grouped import group_rng
from toporo.errors import DataError, SettingError, listed, warn
from toporo.groups import GroupIds, Groups, is_missing
from toporo.robust.rows import LARGEST, chunks, refuse_infinite, weighted_rows
from toporo.text import many
from toporo.topology.effect import PER_COLUMN, effective_rows, heaviest, rows_in_effect, too_few
from toporo.types import Array, Name

#: The one group of rows that came without any.
EVERYONE = "all"
#: The group of rows to predict that came without any, where the model was fitted with groups.
UNKNOWN = "(unknown group)"
#: A column whose spread is below this share of its mean is constant but for rounding.
CONSTANT = 1e-12
#: A graph is learned from at most so many rows of a group.
LEARN_ROWS = 200
#: ... and seen from near: at the paper's ten scales raw inputs run into one. Of a chain of groups, ten scales recover
#: three edges in four, and four scales all of them.
LEARN_SCALES = 4
#: ... where a point has so many neighbours, or as many as there are.
LEARN_NEIGHBORS = 15
#: Resamples that say how sure the graph is, up to so many points; beyond the last it would take longer than the fit.
LEARN_RESAMPLES = {10_000: 20, 25_000: 5}


# ---------------------------------------------------------------- columns


@dataclass(frozen=True, eq=False)
class Scaling:
    """Center of each column, which is subtracted, and scale, which it is divided by afterwards."""

    center: Array
    scale: Array

    def check(self) -> None:
        """Raise unless columns can be divided by their scale."""
        if self.center.shape != self.scale.shape or not np.isfinite([self.center, self.scale]).all():
            raise DataError("its center and scale are not finite, or of unlike shapes.")
        if not (self.scale > 0).all():
            raise DataError("its array 'scale' holds numbers that are not positive.")

    @classmethod
    def of(cls, values: npt.NDArray[Any], weights: Array | None = None, *, what: str) -> Scaling:
        """Measure means and standard deviations of the columns; of a constant one the deviation counts as 1.

        Parameters
        ----------
        values : rows × columns.
        weights : of the rows; None if all are alike.
        what : name of the values in errors.
        """
        mass = float(len(values)) if weights is None else float(weights.sum())
        parts = chunks(len(values))
        with np.errstate(over="ignore", invalid="ignore"):  # numbers that are too large are refused below
            low = np.min([values[part].min(axis=0) for part in parts], axis=0).astype(np.float64)
            high = np.max([values[part].max(axis=0) for part in parts], axis=0).astype(np.float64)
            mean = np.sum([_sum(values[part], weights, part) for part in parts], axis=0) / mass
            mean = np.clip(mean, low, high)  # of a constant column exactly its value
            squares = [_sum((values[part] - mean) ** 2, weights, part) for part in parts]
            deviation = np.sqrt(np.sum(squares, axis=0) / mass)
        return cls.known(mean, deviation, low, high, what=what)

    @classmethod
    def known(cls, mean: Array, deviation: Array, low: Array, high: Array, *, what: str) -> Scaling:
        """Scale by known means and deviations; numbers that are too large to be squared are an error.

        Parameters
        ----------
        mean, deviation, low, high : of the columns; ``low`` and ``high`` are the least and the largest value.
        what : name of the values in errors.
        """
        largest = max(float(np.abs(low).max(initial=0.0)), float(np.abs(high).max(initial=0.0)))
        if not largest <= LARGEST:
            raise DataError(
                f"{what} holds numbers up to {largest:.2g}, too large to be squared and added up (the limit is "
                f"{LARGEST:g}): give it in a larger unit."
            )
        center = np.clip(mean, low, high)
        return cls(center, np.where(deviation > CONSTANT * np.abs(center), deviation, 1.0))

    def apply(self, values: npt.NDArray[Any], dtype: Any = np.float64) -> npt.NDArray[Any]:
        """Return a scaled copy."""
        out = np.empty(values.shape, dtype)
        for part in chunks(len(values)):
            out[part] = (values[part] - self.center) / self.scale
        return out


def _sum(values: npt.NDArray[Any], weights: Array | None, part: slice) -> Array:
    if weights is None:
        return np.asarray(values.sum(axis=0, dtype=np.float64))
    return np.asarray((values * weights[part, None]).sum(axis=0, dtype=np.float64))


# ---------------------------------------------------------------- rows


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows in memory.

    Attributes
    ----------
    x : inputs as they came.
    y : targets as they came, or codes of classes.
    ids : every row's group.
    weights : of the rows within their groups; None if all are alike.
    """

    x: Any
    y: npt.NDArray[Any]
    ids: GroupIds
    weights: Array | None = None

    @cached_property
    def shares(self) -> Array:
        """Weight of every row within its group."""
        return np.ones(len(self.y)) if self.weights is None else self.weights

    @cached_property
    def mass(self) -> Array:
        """Weight of the rows of each group together."""
        return np.asarray(np.bincount(self.ids.codes, self.shares, minlength=len(self.ids.groups)), np.float64)

    @property
    def in_effect(self) -> dict[Name, float]:
        """Rows in effect by group: fewer where they do not count alike."""
        return effective_rows(self.ids.codes, self.ids.groups, self.weights)

    def take(self, rows: npt.NDArray[np.intp]) -> Rows:
        """Return some of the rows; groups keep their codes."""
        ids = GroupIds(self.ids.codes[rows], self.ids.groups)
        return Rows(take_rows(self.x, rows), self.y[rows], ids, None if self.weights is None else self.weights[rows])

    def weights_for(self, mixture: Array) -> Array:
        """Return weights of the rows for a mixture of the groups; they sum to what the rows count together.

        Groups without rows leave their share to the others.
        """
        present = np.where(self.mass > 0, mixture, 0.0)
        if not present.any():  # none of the mixture is here: all groups that are count alike
            present = (self.mass > 0).astype(np.float64)
        share = present / present.sum() * self.mass.sum() / np.where(self.mass > 0, self.mass, 1.0)
        return np.asarray(self.shares * share[self.ids.codes])


def counted(
    x: npt.NDArray[Any], y: npt.NDArray[Any], ids: GroupIds, sample_weight: Any
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], GroupIds, Array | None]:
    """Return rows that have weight, with their weights; a group without weight is an error that names it."""
    refuse_no_weight(sample_weight)
    x, y, ids, weights = weighted_rows(x, y, ids, sample_weight)
    if weights is not None:  # only their ratios count, and by a power of two no digit is lost
        weights = np.ldexp(weights, -int(np.frexp(weights.max())[1]))
    return x, y, ids, weights


def left_in_effect(
    weights: Mapping[Name, float], sizes: Mapping[Name, int], own: Mapping[Name, float], columns: int
) -> float:
    """Count the rows in effect; warn where there are fewer than ten per column, unless all rows are of one group.

    Parameters
    ----------
    weights, sizes, own : by group: its weight, its rows, and its rows in effect.
    columns : number of columns of features.
    """
    rows = rows_in_effect(weights, own)
    if len(weights) > 1 and too_few(rows, columns):
        warn(
            f"{math.floor(rows)} of {many(sum(sizes.values()), 'row')} are in effect for {many(columns, 'column')}, "
            f"fewer than {PER_COLUMN} per column. The heaviest rows are those of {listed(heaviest(weights, own))}. "
            "Use a larger ridge or penalty, a more even prior or fewer columns, or merge small groups."
        )
    return rows


def refuse_no_weight(sample_weight: Any) -> None:
    """Raise if there are weights, and all of them are zero."""
    if sample_weight is not None and not np.any(np.asarray(sample_weight)):
        raise DataError(
            "the weight (sample_weight) is zero in every row: no row counts. Give at least some a positive weight."
        )


def group_ids(groups: Any, rows: int) -> GroupIds:
    """Return every row's group, by name, from a list, an array, a Series of pandas or polars, or GroupIds."""
    if isinstance(groups, GroupIds):
        ids = _occurring(groups)
    else:
        if isinstance(groups, str | bytes) or not hasattr(groups, "__iter__"):
            raise DataError(f"groups is {groups!r}: expected a group name for each of the {rows} rows.")
        if len(getattr(groups, "shape", (rows,))) != 1:
            raise DataError(f"groups has shape {tuple(groups.shape)}: expected one group name per row, in one column.")
        column = next((getattr(groups, way)() for way in ("tolist", "to_list") if hasattr(groups, way)), None)
        ids = _coded(list(groups) if column is None else column)
    if len(ids) != rows:
        raise DataError(f"X has {rows} rows and groups {len(ids)}: they must agree, in the same order.")
    return ids


def one_group(name: Name, rows: int) -> GroupIds:
    """Return the same group for every row."""
    return GroupIds(np.zeros(rows, np.int64), Groups([name]))


def ids_to_predict(groups: Any, trained: Groups, rows: int) -> GroupIds:
    """Return the group of every row to predict; without groups that of a fit without groups, or an unknown group."""
    if groups is not None:
        return group_ids(groups, rows)
    return one_group(EVERYONE if trained.names == (EVERYONE,) else UNKNOWN, rows)


def warn_unknown(groups: Groups) -> None:
    """Warn if rows to predict have no groups, but the training rows had."""
    if UNKNOWN in groups:
        warn(
            "no groups were given for the rows to predict, but the model was fitted with groups: the rows are treated "
            "as rows of an unknown group, without an effect of the group. Pass groups=, one name per row."
        )


def check_known(groups: Any, trained: Groups) -> None:
    """Raise unless the groups of rows that need intervals are known: these are as wide as the group is far away."""
    if groups is None and trained.names != (EVERYONE,):
        raise DataError("an interval depends on the group of the row, and no groups were given: pass groups=.")


def refuse_graph_alone(graph: Any, groups: Any) -> None:
    """Raise if there is a graph over the groups, but rows to fit to came without groups."""
    if groups is None and graph is not None:
        raise SettingError("graph is over groups, but fit() got none: call fit(X, y, groups=...), one name per row.")


def _coded(column: list[Any]) -> GroupIds:
    """Do as ``Groups.of`` does, but fast for many rows of few groups."""
    met: dict[Any, int] = {}
    try:
        codes = np.fromiter((met.setdefault(name, len(met)) for name in column), np.int64, len(column))
    except TypeError:  # not hashable: named by the slow way
        return Groups.of(column)
    distinct = Groups.of(list(met))
    return GroupIds(distinct.codes[codes], distinct.groups)


def _occurring(ids: GroupIds) -> GroupIds:
    """Leave out groups without rows: some rows of a table come with all of its groups."""
    codes = np.asarray(ids.codes.detach().cpu() if hasattr(ids.codes, "detach") else ids.codes)
    if codes.ndim != 1 or codes.dtype.kind not in "iu" or not codes.size:
        raise DataError(f"group codes have shape {codes.shape} and type {codes.dtype}: expected one integer per row.")
    GroupIds(codes, ids.groups).require_in_range()
    used, index = np.unique(codes, return_inverse=True)
    kept = Groups(ids.groups.decode(used))
    return GroupIds(kept.encode(ids.groups.decode(used))[index], kept)


def sizes_of(ids: GroupIds) -> dict[Name, int]:
    """Count the rows of each group."""
    counts = np.bincount(ids.codes, minlength=len(ids.groups))
    return {name: int(count) for name, count in zip(ids.groups, counts, strict=True)}


def draw(ids: GroupIds, most: int, seed: int) -> npt.NDArray[np.intp]:
    """Draw at most so many rows of every group, each from a random stream of its own; return their numbers."""
    chosen = []
    starts = np.cumsum(np.bincount(ids.codes, minlength=len(ids.groups)))[:-1]
    for name, rows in zip(ids.groups, np.split(np.argsort(ids.codes, kind="stable"), starts), strict=True):
        picked = rows if len(rows) <= most else np.sort(group_rng(name, seed).permutation(rows)[:most])
        chosen.append(picked)
    return np.sort(np.concatenate(chosen))


def some_of(ids: GroupIds, rows: npt.NDArray[np.intp]) -> GroupIds:
    """Return the groups of some rows, without those that have none among them."""
    return group_ids(GroupIds(ids.codes[rows], ids.groups), len(rows))


def row_count(x: Any) -> int:
    """Count the rows of an array, a frame, a sparse matrix or a list."""
    return int(x.shape[0]) if hasattr(x, "shape") else len(x)


def column_count(x: Any) -> int:
    """Count the columns of an array, a frame, a sparse matrix or a list."""
    shape = x.shape if hasattr(x, "shape") else np.asarray(x).shape
    return int(shape[1]) if len(shape) > 1 else 1


def take_rows(x: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Return some rows of an array, a frame, a sparse matrix or a list."""
    return x.iloc[rows] if hasattr(x, "iloc") else np.asarray(x)[rows] if isinstance(x, list) else x[rows]


# ---------------------------------------------------------------- targets


def target_column(y: Any) -> npt.NDArray[Any]:
    """Return targets as one column, one per row."""
    if y is None:
        raise DataError("fit requires y to be passed, but the target y is None: give one target per row.")
    shape = np.asarray(y).shape
    if len(shape) != 1 and shape[1:] != (1,):
        raise DataError(f"y has shape {shape}: expected one target per row.")
    return np.asarray(column_or_1d(y, warn=True))


def check_numbers(target: npt.NDArray[Any], classifier: str) -> Array:
    """Convert targets to finite numbers; the error for text names the ``classifier`` to use instead."""
    try:
        numbers = target.astype(np.float64)
    except (TypeError, ValueError):
        text = next((value for value in target.tolist() if not isinstance(value, int | float)), target[0])
        raise DataError(f"y holds {text!r}: expected numbers. For classes use {classifier}.") from None
    refuse_infinite(numbers, "y")
    return numbers


def check_classes(target: npt.NDArray[Any], regressor: str) -> None:
    """Raise unless all targets are classes; the error for numbers names the ``regressor`` to use instead."""
    refuse_infinite(target, "y")
    if target.dtype.kind == "O" and any(is_missing(label) for label in target.ravel()):
        raise DataError("y holds missing classes: drop those rows first.")
    try:
        check_classification_targets(target)
    except ValueError as error:
        raise DataError(f"{error} For numbers use {regressor}.") from None


def encode_classes(target: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the classes, sorted, and the code of every row's class."""
    classes, codes = np.unique(target, return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            f"y holds one class only, {classes.tolist()[0]!r}, in the rows that count: need at least two classes."
        )
    return classes, codes.astype(np.int64)


# ---------------------------------------------------------------- a graph of the rows


def learn_graph_of(
    x: Any,
    groups: Any,
    *,
    test_x: Any = None,
    test_groups: Any = None,
    rows: int = LEARN_ROWS,
    seed: int = 0,
    **settings: Any,
) -> topology.GroupGraph:
    """Learn a graph from a sample of rows, in units of the training columns' standard deviations.

    Parameters
    ----------
    x, groups : inputs of the training rows, and their groups.
    test_x, test_groups : the same of unlabelled rows of test groups; both or neither.
    rows : at most so many of a group, drawn at random by the group's name and ``seed``.
    seed : of the draw, and of the graph's resamples.
    settings : of :func:`toporo.learn_topology`; unless given, ``scales`` is 4 and ``resamples`` 20 up to 10 000 points,
        5 up to 25 000, and 0 beyond.
    """
    if (test_x is None) != (test_groups is None):
        raise DataError("test_x and test_groups go together: give both or neither.")
    inputs = np.asarray(x)
    units = Scaling.of(inputs, what="X")

    def sample(values: Any, names: Any) -> tuple[Any, GroupIds]:
        ids = group_ids(names, len(values))
        drawn = draw(ids, rows, seed)
        return units.apply(values[drawn]), GroupIds(ids.codes[drawn], ids.groups)

    features, ids = sample(inputs, groups)
    if test_x is not None:
        test_features, test_ids = sample(np.asarray(test_x), test_groups)
        features, ids = np.concatenate([features, test_features]), Groups.of([*ids.names, *test_ids.names])
        settings["test_groups"] = test_ids.groups
    if "neighbors" not in settings:
        # Categories alone make few different points; no point has more neighbours than there are others.
        settings["neighbors"] = max(1, min(LEARN_NEIGHBORS, len(np.unique(features, axis=0)) - 1))
    count = next((some for most, some in LEARN_RESAMPLES.items() if len(features) <= most), 0)
    usual = {"scales": LEARN_SCALES, "resamples": count}
    return topology.learn_topology(features, ids, seed=seed, **(usual | settings))
