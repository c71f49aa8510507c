r"""Divide groups into folds that are as far from the kept groups as test groups are from training groups.

Folds hold out every group once. Write d_e for the distance from group e, in the fold that holds it out, to the nearest
kept group. The division is chosen for the least

.. math:: W_1\bigl(\{d_e : \text{all groups}\}, \{\text{distances of the test groups}\}\bigr).

The more pieces the groups are cut into before the pieces are dealt to folds, the nearer every group is to a kept one:
from as many pieces as folds (far) to as many as groups (near), several cuts of each number are tried. From the best
one, groups move to other folds where that does no harm. Cutting into pieces, and choosing their number by the
Wasserstein distance, is what kNNDM does for points on a map (Linnenbrink et al., "kNNDM CV", Geosci. Model Dev., 2024):
in kilometres, and without the moves.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from toporo.types import Array

Labels = npt.NDArray[np.intp]

#: Numbers of pieces to try, and cuts of each.
CUTS, TRIES = 16, 6
#: Moves that are tried from the best cut.
MOVES = 2000
#: The most that a fold holds out, as a share of the groups, unless equal folds are larger.
LARGEST_FOLD = 0.5


def match_folds(distances: Array, aim: Array, n_splits: int, seed: int) -> Labels:
    """Return the fold of every group.

    Parameters
    ----------
    distances : between groups, (groups, groups), finite.
    aim : the distances from test groups to the nearest training group.
    n_splits : the number of folds, at most that of the groups.
    seed : of the draws.
    """
    rng = np.random.default_rng(seed)
    groups = len(distances)
    best, least = np.arange(groups) % n_splits, np.inf
    for pieces in np.unique(np.round(np.geomspace(n_splits, groups, CUTS)).astype(int)):
        for _ in range(TRIES):
            labels = _dealt(_pieces(distances, pieces, rng), n_splits, rng)
            value = _unlikeness(_to_folds(distances, labels, n_splits), labels, aim)
            if value < least and np.bincount(labels).max() <= _most(groups, n_splits):
                best, least = labels, value
    return _moved(distances, aim, best, n_splits, rng)


def _pieces(distances: Array, count: int, rng: np.random.Generator) -> Labels:
    """Assign every group to the nearest of some centres drawn at random; the draw decides between equally near ones."""
    centres = rng.permutation(len(distances))[:count]
    away = distances[centres] + 1e-6 * distances.max() * rng.random((count, len(distances)))
    away[np.arange(count), centres] = -1.0  # no centre's piece is empty
    nearest: Labels = np.argmin(away, axis=0)
    return nearest


def _dealt(pieces: Labels, n_splits: int, rng: np.random.Generator) -> Labels:
    """Deal pieces to folds, the largest first, each to the fold with the fewest groups so far."""
    sizes = np.bincount(pieces)
    fold, total = np.zeros(len(sizes), dtype=np.intp), np.zeros(n_splits)
    for piece in np.lexsort((rng.random(len(sizes)), -sizes)):
        fold[piece] = np.argmin(total)
        total[fold[piece]] += sizes[piece]
    return fold[pieces]


def _moved(distances: Array, aim: Array, labels: Labels, n_splits: int, rng: np.random.Generator) -> Labels:
    """Move groups one by one, to the fold of the nearest other group or to any, unless the folds become less like."""
    labels, to_folds = labels.copy(), _to_folds(distances, labels, n_splits)
    least = _unlikeness(to_folds, labels, aim)
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
        value = _unlikeness(changed, labels, aim)
        if value <= least:  # a move that changes nothing is taken too, so that what stands in the way moves on
            least, to_folds = value, changed
            sizes[[old, new]] += -1, 1
        else:
            labels[group] = old
    return labels


def _most(groups: int, n_splits: int) -> int:
    """Return the most groups that a fold may hold out."""
    return max(-(-groups // n_splits), int(LARGEST_FOLD * groups))


def _to_folds(distances: Array, labels: Labels, n_splits: int) -> Array:
    """Return the distance from every group to the nearest in each fold, (groups, folds)."""
    return np.column_stack([distances[:, labels == fold].min(axis=1) for fold in range(n_splits)])


def _unlikeness(to_folds: Array, labels: Labels, aim: Array) -> float:
    """Return the Wasserstein-1 distance from the distances to the nearest group of another fold to the aim."""
    from scipy.stats import wasserstein_distance

    others = np.where(np.arange(to_folds.shape[1]) == labels[:, None], np.inf, to_folds)
    return float(wasserstein_distance(others.min(axis=1), aim))
