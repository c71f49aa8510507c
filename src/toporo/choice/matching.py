r"""Groups divided into folds so that those held out are as far from those kept as test groups are from training groups.

The folds of a round hold out every group once. Write d_e for the distance from group e, in the fold that holds it out,
to the nearest group that is kept. The rounds are chosen one after the other, each for the least

.. math:: W_1\bigl(\{d_e : \text{all groups and rounds so far}\}, \{\text{distances of the test groups}\}\bigr).

The more pieces the groups are cut into before these are dealt out to folds, the nearer every group is to a kept one:
from as many pieces as folds (far) to as many as groups (near), several cuts of each are tried. From the best one,
groups move to other folds where that does no harm. Cutting into pieces, and choosing their number by the Wasserstein
distance, is what kNNDM does for points on a map (Linnenbrink et al., "kNNDM CV", Geosci. Model Dev., 2024): in
kilometres, once, and without the moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, GroupMismatchError, listed, warn
from toporo.groups import Groups, plain_name
from toporo.types import Array, Name

Labels = npt.NDArray[np.intp]

#: Numbers of pieces to try, and cuts of each.
CUTS, TRIES = 16, 6
#: Moves that are tried from the best cut.
MOVES = 2000
#: The most that a fold holds out, as a share of the groups, unless equal folds are larger.
LARGEST_FOLD = 0.5


@dataclass(frozen=True)
class HopFold:
    """Groups held out, how many hops each is from the nearest group that is kept, and how like the test that is.

    ``likeness`` is the Wasserstein-1 distance, in hops, between the distribution of ``hops`` and that of the test
    groups' hops to the nearest training group: 0 is the same. With distances in place of a graph, hops are distances;
    where there is nothing to be like, they are left out and the likeness is NaN.
    """

    held_out: tuple[Name, ...]
    hops: dict[Name, float]
    likeness: float


@dataclass(frozen=True, eq=False)
class Between:
    """Distances between any two of some groups."""

    groups: Groups
    matrix: Array

    @classmethod
    def of(cls, given: Any) -> Self:
        """From what :func:`~toporo.diffusion_emd` returns, or a square data frame with names as index and columns."""
        if isinstance(given, cls):
            return given
        if hasattr(given, "matrix") and hasattr(given, "names"):
            names, columns, cells = given.names, given.names, given.matrix
        elif hasattr(given, "index") and hasattr(given, "columns"):
            names, columns, cells = given.index, given.columns, given
        else:
            raise DataError(
                f"distances are of type {type(given).__name__}: expected what diffusion_emd returns, or a square data "
                "frame with the groups' names as index and columns."
            )
        names, columns = [plain_name(name) for name in names], [plain_name(name) for name in columns]
        groups = Groups(names)
        if names != columns or len(groups) < len(names):
            raise DataError(
                f"the rows of the distances are {listed(names)}, the columns {listed(columns)}: they must be the same, "
                "in the same order, each group once, e.g. frame.loc[names, names]."
            )
        try:
            matrix = np.asarray(cells, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"the distances are not numbers ({error}): expected finite numbers of at least 0."
            ) from None
        valid = np.isfinite(matrix) & (matrix >= 0) & np.isclose(matrix, matrix.T)
        if not valid.all():
            i, j = np.argwhere(~valid)[0]
            raise DataError(
                f"the distance from {names[i]!r} to {names[j]!r} is {matrix[i, j]:g}, that back {matrix[j, i]:g}: "
                "expected finite numbers of at least 0, the same in both directions."
            )
        order = np.argsort(groups.encode(names))
        return cls(groups, matrix[np.ix_(order, order)])

    def require(self, names: Iterable[Name], *, what: str) -> list[Name]:
        """The names as a list of distinct groups; an error that lists those without distances."""
        wanted = list(dict.fromkeys(plain_name(name) for name in names))
        unknown = [name for name in wanted if name not in self.groups]
        if unknown:
            raise GroupMismatchError(
                f"{what} without distances: {listed(unknown)}. There are distances between {len(self.groups)} groups: "
                f"{listed(self.groups.names)}. Add a row and a column for each missing group, or leave them out."
            )
        return wanted

    def among(self, names: Sequence[Name]) -> Array:
        """Between any two of these groups."""
        codes = self.groups.encode(self.require(names, what="group(s) of the data"))
        return self.matrix[np.ix_(codes, codes)]

    def nearest(self, names: Sequence[Name], others: Sequence[Name]) -> dict[Name, float]:
        """From each of these groups to the nearest of others."""
        away = self.matrix[np.ix_(self.groups.encode(names), self.groups.encode(others))]
        return dict(zip(names, away.min(axis=1).tolist(), strict=True))

    def __repr__(self) -> str:
        return f"Between({len(self.groups)} groups)"


def matched_folds(
    names: Sequence[Name],
    hops: Array,
    aim: Sequence[float],
    n_splits: int,
    repeats: int,
    seed: int,
    *,
    beyond: float = math.inf,
) -> tuple[HopFold, ...]:
    """Rounds of folds, of which each holds out every group once.

    Parameters
    ----------
    names : the groups.
    hops : between any two of them, or any other distances.
    aim : the distances from test groups to the nearest group; empty for folds of equal size, drawn at random.
    n_splits : folds of a round; of fewer groups, each is one.
    repeats : how many rounds.
    seed : of the draws.
    beyond : what larger distances count as, infinite ones too.
    """
    warn_of_unreached(aim)
    folds = min(n_splits, len(names))
    reached, like = np.minimum(hops, beyond), np.minimum(aim, beyond)
    made = []
    for labels in matched(reached, like if len(aim) else None, folds, repeats, seed):
        for mask in labels == np.arange(folds)[:, None]:
            away = hops[mask][:, ~mask].min(axis=1)
            held_out = tuple(name for name, inside in zip(names, mask, strict=True) if inside)
            if len(aim):
                near = dict(zip(held_out, away.tolist(), strict=True))
                made.append(HopFold(held_out, near, apart(np.minimum(away, beyond), like)))
            else:
                made.append(HopFold(held_out, {}, math.nan))
    return tuple(made)


def matched(distances: Array, aim: Array | None, n_splits: int, repeats: int, seed: int) -> Labels:
    """The fold of every group, (repeats, groups).

    Parameters
    ----------
    distances : (groups, groups), finite.
    aim : the distances from test groups to the nearest training group; None for folds of equal size, drawn at random.
    n_splits : folds of a round, at most as many as groups.
    repeats : how many rounds.
    seed : of the draws.
    """
    rng = np.random.default_rng(seed)
    groups = len(distances)
    if aim is None:
        return np.array([rng.permutation(groups) % n_splits for _ in range(repeats)])
    rounds: list[Labels] = []
    pooled = np.zeros(0)
    for _ in range(repeats):
        rounds.append(_one_round(distances, aim, n_splits, pooled, rng))
        pooled = np.append(pooled, _nearest(_to_folds(distances, rounds[-1], n_splits), rounds[-1]))
    return np.array(rounds)


def apart(a: Array, b: Array) -> float:
    """The Wasserstein-1 distance between two samples: the area between their cumulative shares.

    >>> apart(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    1.5
    """
    a, b, grid = np.sort(a), np.sort(b), np.sort(np.concatenate([a, b]))
    shares = [np.searchsorted(each, grid[:-1], side="right") / len(each) for each in (a, b)]
    return float((np.abs(shares[0] - shares[1]) * np.diff(grid)).sum())


def never_trained_on(test_groups: Sequence[Name], known: Sequence[Name]) -> Sequence[Name]:
    """The test groups, if none is among those of the data."""
    both = [name for name in test_groups if name in set(known)]
    if both:
        raise GroupMismatchError(
            f"test group(s) in the data: {listed(both)}. A test group is one that training never sees; leave its rows "
            "out, or take it out of test_groups."
        )
    return test_groups


def warn_of_unreached(aim: Sequence[float]) -> None:
    """Say how many test groups no path leads to."""
    unreached = sum(math.isinf(hop) for hop in aim)
    if unreached:
        warn(
            f"no path leads from the training groups to {unreached} of {len(aim)} test groups: the farthest groups "
            "that can be held out stand for them. Add the edges that join the pieces of the graph, or leave those test "
            "groups out."
        )


# ---------------------------------------------------------------- a round


def _one_round(distances: Array, aim: Array, n_splits: int, pooled: Array, rng: np.random.Generator) -> Labels:
    """A division that, pooled with the rounds before, is most like the aim."""
    groups = len(distances)
    best, least = np.arange(groups) % n_splits, np.inf
    for pieces in np.unique(np.round(np.geomspace(n_splits, groups, CUTS)).astype(int)):
        for _ in range(TRIES):
            labels = _dealt(_pieces(distances, pieces, rng), n_splits, rng)
            value = apart(np.append(pooled, _nearest(_to_folds(distances, labels, n_splits), labels)), aim)
            if value < least and np.bincount(labels).max() <= _most(groups, n_splits):
                best, least = labels, value
    return _moved(distances, aim, best, n_splits, pooled, rng)


def _pieces(distances: Array, count: int, rng: np.random.Generator) -> Labels:
    """Every group to the nearest of some centres drawn at random; between equally near ones the draw decides."""
    centres = rng.permutation(len(distances))[:count]
    away = distances[centres] + 1e-6 * distances.max() * rng.random((count, len(distances)))
    away[np.arange(count), centres] = -1.0  # no centre's piece is empty
    nearest: Labels = np.argmin(away, axis=0)
    return nearest


def _dealt(pieces: Labels, n_splits: int, rng: np.random.Generator) -> Labels:
    """Pieces to folds, the largest first, each to the fold with the fewest groups so far."""
    sizes = np.bincount(pieces)
    fold, total = np.zeros(len(sizes), dtype=np.intp), np.zeros(n_splits)
    for piece in np.lexsort((rng.random(len(sizes)), -sizes)):
        fold[piece] = np.argmin(total)
        total[fold[piece]] += sizes[piece]
    return fold[pieces]


def _moved(
    distances: Array, aim: Array, labels: Labels, n_splits: int, pooled: Array, rng: np.random.Generator
) -> Labels:
    """Groups moved one by one, to the fold of the nearest other group or to any, unless the folds become less like."""
    labels, to_folds = labels.copy(), _to_folds(distances, labels, n_splits)
    least = apart(np.append(pooled, _nearest(to_folds, labels)), aim)
    sizes = np.bincount(labels, minlength=n_splits)
    for group, other, near in zip(
        rng.integers(len(labels), size=MOVES), rng.integers(n_splits, size=MOVES), rng.random(MOVES) < 0.5, strict=True
    ):
        old = labels[group]
        new = np.argmin(np.where(np.arange(n_splits) == old, np.inf, to_folds[group])) if near else other
        if new == old or sizes[old] == 1 or sizes[new] >= _most(len(labels), n_splits):
            continue
        labels[group] = new
        changed = to_folds.copy()
        changed[:, old] = distances[:, labels == old].min(axis=1)
        changed[:, new] = np.minimum(changed[:, new], distances[:, group])
        value = apart(np.append(pooled, _nearest(changed, labels)), aim)
        if value <= least:  # as like will do: what stands in the way moves on
            least, to_folds = value, changed
            sizes[[old, new]] += -1, 1
        else:
            labels[group] = old
    return labels


def _most(groups: int, n_splits: int) -> int:
    return max(-(-groups // n_splits), int(LARGEST_FOLD * groups))


def _to_folds(distances: Array, labels: Labels, n_splits: int) -> Array:
    """From every group to the nearest in each fold, (groups, folds)."""
    return np.column_stack([distances[:, labels == fold].min(axis=1) for fold in range(n_splits)])


def _nearest(to_folds: Array, labels: Labels) -> Array:
    """From every group to the nearest in another fold."""
    others = np.where(np.arange(to_folds.shape[1]) == labels[:, None], np.inf, to_folds)
    return np.asarray(others.min(axis=1))
