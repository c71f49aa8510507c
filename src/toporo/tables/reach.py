r"""How far rows are from what a model was trained on, and whether its validation has been that far.

The idea is the area of applicability of Meyer and Pebesma (2021), which R's CAST computes. Of a row x with training
rows :math:`x_i`, standard deviations s of the inputs and weights w by how much the model listens to each,

.. math:: d(x) = \min_i \lVert w \circ (x - x_i) / s \rVert \,/\, \bar d

with :math:`\bar d` the mean distance between two training rows. Whole groups are held out of the training rows in turn;
the distances of their rows to those kept are what validation has seen, and a row that is farther than the upper whisker
of these (a box and whisker plot's: 1.5 times the middle half above it) is outside. So is a row of a group that is more
hops from any training group than a group held out was from those kept, and one with an input that is more than a
standard deviation out of its range in training.

Hops count only where test groups were named. That was settled with errors of the development tables in view
(``benchmarks/reach.py``): without names, groups held out are drawn at random, and hops told nothing of errors.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist

from toporo.choice.cross_fitting import Mask, cross_fit, folds
from toporo.data.grouped import group_rng
from toporo.errors import DataError, SettingError
from toporo.estimators.packing import check_arrays
from toporo.estimators.rows import Scaling, draw, group_ids
from toporo.groups import GroupIds
from toporo.robust.rows import for_each
from toporo.schema import AtLeastOne, Positive, as_type
from toporo.text import many
from toporo.topology.graph import GroupGraph
from toporo.types import Array

Rows = npt.NDArray[np.intp]

#: Training rows that are kept: at most so many, at least so many however many inputs there are, and numbers in them.
MOST_ROWS, FEWEST_ROWS, CELLS = 2000, 500, 1 << 17
#: Rows whose distances are computed at a time, and rows that a thread takes at a time.
AT_ONCE, SPAN = 128, 1 << 13
#: Rows on which inputs are shuffled to see how much the model listens to them, and rows whose mean distance is taken.
SHUFFLED_ROWS, PAIRED_ROWS = 400, 1000
#: Inputs that count less than this share of the one that counts most are left out.
HARDLY = 0.01
#: Parts that groups are held out in; from so many and up to so many training groups they are like the test, by hops.
FOLDS, FEWEST_MATCHED, MOST_MATCHED = 6, 4, 1000
#: An input may be so many standard deviations out of its range in training.
BEYOND = 1.0
#: What is farther than this, in standard deviations, is taken for this far; and the least limit, in usual distances.
FARTHEST, LEAST = 1e6, 1e-3


@dataclass(frozen=True)
class GroupReach:
    """How far one group of a table is from what was trained on.

    Attributes
    ----------
    rows, outside : how many rows it has, and how many of them are outside.
    reach : the median over its rows; at most 1 is inside.
    hops : to the nearest training group; ``inf`` if there is no path, None if that is not known.
    reason : the commonest of its rows outside, if these are more than half; else nothing.
    """

    rows: int
    outside: int
    reach: float
    hops: float | None
    reason: str


@dataclass(frozen=True, eq=False)
class RowReach:
    """How far rows are from what was trained on.

    Attributes
    ----------
    values : one number per row; at most 1 is inside of what validation has seen. It is the largest of three: the
        distance over the farthest that is inside, the hops over the most that were bridged, and by how many standard
        deviations the inputs are out of range.
    distance : to the nearest training row; 1 is the mean distance between two training rows.
    reasons : why a row is outside, in words; empty for those inside.
    groups : every row's group; None where there are none, or no name in a row.
    hops : to the nearest training group, by group; those that the graph does not have are left out.
    """

    values: Array
    distance: Array
    reasons: npt.NDArray[Any]
    groups: npt.NDArray[Any] | None = None
    hops: Mapping[str, float] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def outside(self) -> Mask:
        """Whether each row is."""
        return np.asarray(self.values > 1.0)

    @cached_property
    def by_group(self) -> dict[str, GroupReach]:
        """Groups by name; none where rows came without groups."""
        if self.groups is None:
            return {}
        named = np.flatnonzero([name is not None for name in self.groups])
        names, codes = np.unique(self.groups[named].astype(str), return_inverse=True)
        return {str(name): self._of_group(str(name), named[codes == place]) for place, name in enumerate(names)}

    def _of_group(self, name: str, rows: Rows) -> GroupReach:
        reasons, often = np.unique(self.reasons[rows][self.outside[rows]].astype(str), return_counts=True)
        count = int(often.sum())
        reason = str(reasons[often.argmax()]) if 2 * count > len(rows) else ""
        hops = None if self.hops is None else self.hops.get(name)
        return GroupReach(len(rows), count, float(np.median(self.values[rows])), hops, reason)

    @classmethod
    def joined(cls, parts: Sequence[RowReach]) -> RowReach:
        """Those of the portions of a table as one.

        Parameters
        ----------
        parts : in the order of the rows.
        """
        groups = [part.groups for part in parts if part.groups is not None]
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.distance for part in parts]),
            np.concatenate([part.reasons for part in parts]),
            np.concatenate(groups) if groups else None,
            parts[0].hops,
        )


def hops_from(
    graph: GroupGraph | None, trained: Sequence[str], neighbors: Mapping[str, Iterable[str]] | None = None
) -> dict[str, float] | None:
    """Hops of every group of a graph to the nearest training group; None without a graph.

    Parameters
    ----------
    graph, trained : the graph and the training groups.
    neighbors : groups that it does not have, and those there that they are next to.
    """
    if graph is None:
        return None
    hops = {str(name): hop for name, hop in graph.hops(trained).items()}
    near = {name: [hops.get(other, math.inf) for other in others] for name, others in (neighbors or {}).items()}
    return {name: 1 + min(each, default=math.inf) for name, each in near.items()} | hops


class StoredReach(msgspec.Struct):
    """What :meth:`Reach.to_state` gives beside arrays."""

    usual: Positive
    limit: Positive
    most_hops: AtLeastOne | None
    pathless: bool


@dataclass(frozen=True, eq=False)
class Reach:
    """Where the training rows of a model are, and how far from them its validation has been.

    Attributes
    ----------
    center, scale : means and standard deviations of the inputs in training.
    weights : how much the model listens to each input, the most 1.
    low, high : the range of each input in training.
    rows : some of the training rows, scaled and weighted, without the inputs that have no weight.
    usual : the mean distance between two of them.
    limit : the largest distance that is inside, over the usual one.
    most_hops : from a group held out to the nearest one kept, at most; None without a graph or without test groups,
        and then only groups to which no path leads are too far.
    pathless : whether no path led from one of them to any that was kept.
    """

    center: Array
    scale: Array
    weights: Array
    low: Array
    high: Array
    rows: Array
    usual: float
    limit: float
    most_hops: int | None
    pathless: bool

    @classmethod
    def of(
        cls,
        estimator: Any,
        x: Array,
        ids: GroupIds,
        *,
        graph: GroupGraph | None = None,
        test_groups: Sequence[str] = (),
        sample_weight: Array | None = None,
    ) -> Reach | None:
        """Measure the rows that a model was fitted to; None where their numbers are too large to be squared.

        Parameters
        ----------
        estimator : fitted to the rows.
        x, ids : inputs of the rows, and their groups.
        graph : over the groups.
        test_groups : that the model is for: groups held out are as many hops from those kept as these are from the
            training groups, as far as possible; without them, and without a graph, they are drawn at random.
        sample_weight : of the rows; those without any were not trained on.
        """
        if sample_weight is not None and not sample_weight.all():
            x, ids = x[sample_weight > 0], GroupIds(ids.codes[sample_weight > 0], ids.groups)
        ids = group_ids(ids, len(x))
        try:
            scaling = Scaling.of(x, what="X")
        except DataError:
            return None
        weights = listened_to(estimator, x, ids)
        used = np.flatnonzero(weights)
        most = min(MOST_ROWS, max(FEWEST_ROWS, CELLS // max(1, len(used))))
        places = _some(ids, most)
        ids = group_ids(GroupIds(ids.codes[places], ids.groups), len(places))
        rows = _scaled(x[places], scaling)[:, used] * weights[used]
        parts = _folds(ids, graph, test_groups)
        held = cross_fit(lambda fold: _nearest(rows[fold.kept], rows[fold.held_out]), parts)
        usual = float(pdist(rows[:: -(-len(rows) // PAIRED_ROWS)]).mean()) if len(rows) > 1 else 0.0
        usual = usual if usual > 0.0 else 1.0
        hops = [] if graph is None or len(ids.groups) < 2 else _bridged(graph, ids, parts)
        return cls(
            center=scaling.center,
            scale=scaling.scale,
            weights=weights,
            low=x.min(axis=0),
            high=x.max(axis=0),
            rows=np.ascontiguousarray(rows),
            usual=usual,
            limit=max(_whisker(held.by_row() if parts else np.zeros(len(rows))) / usual, LEAST),
            # Without test groups folds are groups drawn at random, most of them next to others: hops tell nothing then.
            most_hops=max([1, *(int(hop) for hop in hops if math.isfinite(hop))]) if hops and test_groups else None,
            pathless=math.inf in hops,
        )

    def too_many(self, hops: float) -> bool:
        """Whether a group so many hops away is outside; ``inf`` is no path.

        Parameters
        ----------
        hops : to the nearest training group.
        """
        if math.isinf(hops):
            return not self.pathless
        return self.most_hops is not None and hops > self.most_hops

    def of_rows(
        self, x: Array, groups: npt.NDArray[Any] | None = None, hops: Mapping[str, float] | None = None
    ) -> RowReach:
        """How far rows are.

        Parameters
        ----------
        x : their inputs.
        groups : their groups, None where a row has none; without them there are no hops.
        hops : from groups to the nearest training group, ``inf`` where there is no path. Of groups left out, hops are
            not known and do not count.
        """
        scaling = Scaling(self.center, self.scale)
        used = np.flatnonzero(self.weights)
        distance = _nearest(self.rows, _scaled(x, scaling)[:, used] * self.weights[used]) / self.usual
        with np.errstate(over="ignore"):
            apart = np.maximum(self.low[used] - x[:, used], x[:, used] - self.high[used]) / self.scale[used]
        beyond = np.clip(apart, 0.0, FARTHEST)
        values = np.maximum(distance / self.limit, beyond.max(axis=1, initial=0.0) / BEYOND)
        away, no_path = np.zeros(len(x)), math.inf
        most = self.most_hops or 0
        if groups is not None and hops is not None:
            no_path = len(hops) + 1.0  # longer than any path, unless validation met such a case
            counted = {name: no_path if math.isinf(hop) else hop if most else 0.0 for name, hop in hops.items()}
            away = np.array([counted.get(name, 0.0) for name in groups.tolist()])
            away[(away == no_path) & self.pathless] = 0.0
            values = np.maximum(values, away / max(most, 1))
        reasons = np.full(len(x), "", dtype=object)
        out = np.flatnonzero(values > 1.0)
        far, many_hops = distance[out] > self.limit, away[out] > most
        kinds = np.stack([far, np.where(many_hops, away[out], 0.0), (beyond[out] > BEYOND).sum(axis=1)], axis=1)
        for kind in np.unique(kinds, axis=0):
            reasons[out[(kinds == kind).all(axis=1)]] = _reason(*kind.tolist(), no_path=no_path)
        return RowReach(values, distance, reasons, groups, hops)

    # ------------------------------------------------------------------ stored

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Values that JSON can hold, and arrays."""
        values = {name: getattr(self, name) for name in ("usual", "limit", "most_hops", "pathless")}
        return values, {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], inputs: int) -> Reach:
        """The inverse of :meth:`to_state`; whatever that cannot have given is refused.

        Parameters
        ----------
        values, arrays : what it gave.
        inputs : how many the model takes.
        """
        stored = as_type(dict(values), StoredReach, "its reach is wrong")
        used = int(np.count_nonzero(arrays["weights"])) if "weights" in arrays else 0
        kept = len(arrays["rows"]) if np.ndim(arrays.get("rows", 0)) == 2 else 0
        check_arrays(arrays, dict.fromkeys(_ARRAYS[:-1], (inputs,)) | {"rows": (kept, used)})
        if not kept or not (arrays["scale"] > 0).all() or not (arrays["low"] <= arrays["high"]).all():
            raise DataError("its reach has no rows, a scale that is not positive or a range that is none.")
        if not ((arrays["weights"] >= 0) & (arrays["weights"] <= 1)).all():
            raise DataError("its reach has weights that are not from 0 to 1.")
        given: dict[str, Any] = {**arrays, **msgspec.structs.asdict(stored)}
        return cls(**given)


_ARRAYS = ("center", "scale", "weights", "low", "high", "rows")


def required(reach: Reach | None) -> Reach:
    """A model's reach, if it has one."""
    if reach is None:
        raise SettingError(
            "the model does not know how far its training rows reach: it was fitted by an earlier toporo, or its reach "
            "was left out. Fit it again."
        )
    return reach


def listened_to(estimator: Any, x: Array, ids: GroupIds) -> Array:
    """How much a model listens to each input: how far predictions move if the input is shuffled among rows, the most 1.

    Of a linear model that is the size of the coefficient times the standard deviation of the input. No targets take
    part. What hardly counts is 0.

    Parameters
    ----------
    estimator : fitted.
    x, ids : inputs of rows that it was fitted to, and their groups, of which some are drawn.
    """
    places = _some(ids, SHUFFLED_ROWS)
    inputs, names = np.array(x[places]), [ids.groups.names[code] for code in ids.codes[places]]
    ask = estimator.predict_proba if hasattr(estimator, "classes_") else estimator.predict
    named = {"groups": names} if "groups" in inspect.signature(ask).parameters else {}

    def said() -> Array:
        return np.asarray(ask(inputs, **named), dtype=np.float64).reshape(len(inputs), -1)

    before, moved = said(), np.zeros(x.shape[1])
    order = group_rng("shuffled", 0).permutation(len(inputs))
    other = np.roll(order, 1)  # no row keeps its own
    for place in range(len(moved)):
        column = inputs[:, place].copy()
        inputs[order, place] = column[other]
        with np.errstate(over="ignore", invalid="ignore"):
            moved[place] = np.sqrt(np.mean((said() - before) ** 2))
        inputs[:, place] = column
    moved[~np.isfinite(moved)] = 0.0
    most = moved.max()
    share = moved / most if most > 0.0 else moved
    return np.where(share < HARDLY, 0.0, share)


# ---------------------------------------------------------------- small parts


def _some(ids: GroupIds, most: int) -> Rows:
    """At most so many rows, of all groups alike as far as they have them."""
    places = draw(ids, max(1, most // len(ids.groups)), 0)
    return places if len(places) <= most else np.sort(group_rng("rows", 0).permutation(places)[:most])


def _scaled(x: Array, scaling: Scaling) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(np.clip(scaling.apply(x), -FARTHEST, FARTHEST), dtype=np.float64)


def _nearest(kept: Array, rows: Array) -> Array:
    """Distances to the nearest of those kept; none at all if the model listens to no input."""
    squares, turned = (kept**2).sum(axis=1), -2.0 * kept.T

    def work(some: slice) -> Array:
        own = rows[some]
        nearest, scores = np.empty(len(own), np.intp), np.empty((AT_ONCE, len(kept)))  # new room each time is slow
        for start in range(0, len(own), AT_ONCE):
            part = own[start : start + AT_ONCE]
            near = np.matmul(part, turned, out=scores[: len(part)])
            near += squares
            near.argmin(axis=1, out=nearest[start : start + AT_ONCE])
        return np.asarray(np.sqrt(((own - kept[nearest]) ** 2).sum(axis=1)))

    spans = [slice(start, start + SPAN) for start in range(0, len(rows), SPAN)]
    return np.concatenate(for_each(spans, work, len(rows))) if spans else np.zeros(0)


def _folds(ids: GroupIds, graph: GroupGraph | None, test_groups: Sequence[str]) -> tuple[Mask, ...]:
    """Return folds of whole groups, or of rows of the only group."""
    if graph is not None and test_groups and FEWEST_MATCHED <= len(ids.groups) <= MOST_MATCHED:
        hops = graph.hops(ids.groups)
        test = [name for name in test_groups if name in hops and math.isfinite(hops[name])]
        if test:
            return folds(ids, graph, test, kind="matched", parts=min(FOLDS, len(ids.groups) // 2))
    return folds(ids, parts=FOLDS)


def _bridged(graph: GroupGraph, ids: GroupIds, parts: Sequence[Mask]) -> list[float]:
    """Hops from every group held out to the nearest that was kept."""
    bridged: list[float] = []
    for part in parts:
        out, kept = (ids.groups.decode(np.unique(ids.codes[rows])) for rows in (part, ~part))
        hops = graph.hops(kept)
        bridged += [hops[name] for name in out]
    return bridged


def _whisker(values: Array) -> float:
    low, high = np.quantile(values, [0.25, 0.75])
    return float(min(high + 1.5 * (high - low), values.max()))


def _reason(far: float, hops: float, inputs: float, *, no_path: float) -> str:
    away = "no path to any training group" if hops == no_path else f"{hops:.0f} hops from any training group"
    reasons = {"far from any training row": far, away: hops, f"{many(int(inputs), 'input')} far out of range": inputs}
    return "; ".join(reason for reason, holds in reasons.items() if holds)
