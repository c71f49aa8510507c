r"""Intervals and sets of classes for groups never trained on, from out-of-fold predictions.

A row of a held-out group has a *score*: of numbers :math:`|y - \hat y|`, of classes the log-odds
:math:`\log(\max_k p_k / p_y)` of the likeliest class against the right one. An interval holds all targets, and a set
all classes, whose score is at most :math:`t\,d^\gamma`, with d the hops from the row's group to the nearest kept group
(1 without a graph). Two numbers are estimated:

- :math:`\gamma \geq 0`, the growth of scores with distance. Groups differ, and those far away may be easy ones, so a
  group is compared with itself: held out with a few others, it has kept neighbours; held out with its whole region, it
  has none. Over all groups, the log of the mean score is regressed on the log of the distance within groups. Regions
  that are cut at random are milder than those that come to be predicted, so the slope counts as much as what was seen
  on four tables, 0.2 ± 0.1, and where no group was held out at several distances that alone counts.
- t, the quantile of :math:`s / d^\gamma` over rows, each group counting the same. Coverage is to be of new groups, of
  which few were seen: with the quantile at the nominal level, fewer rows than that would be inside. So the level is
  raised until, mean over groups, that many rows of a group are below the quantile of all *other* groups. If their
  largest score is not enough, it is stretched. This is near the guarantee of hierarchical conformal prediction
  (Lee, Barber & Willett, 2023) where groups differ, and does not pay for it where they are alike: with 14 groups, that
  is the quantile at 96 % in place of 90 %.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone, is_classifier

from toporo.checks import number
from toporo.choice.cross_fitting import Fold, Mask, OutOfFold, cross_fit, folds
from toporo.choice.penalty import PriorMaker
from toporo.errors import DataError, SettingError, TopoRoError, warn
from toporo.estimators.places import GroupAwareEstimator, hops_to
from toporo.estimators.rows import draw, some_of
from toporo.groups import GroupIds
from toporo.text import many
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array, Name

Codes = npt.NDArray[np.integer[Any]]

#: Fewest groups that show how far groups differ.
FEWEST = 3
#: Growth of scores with distance unless a table shows another: the power, and its standard deviation between tables.
GROWTH, APART = 0.2, 0.1
#: Probabilities count at least as much, so that no score is infinite.
LEAST_CHANCE = 1e-6
#: Levels for which thresholds are kept, and in how many steps levels are raised.
LEVELS, STEPS = np.append(np.arange(1, 200) / 200, 0.999), 1000
#: How far the largest score is stretched at most, and in how many steps.
STRETCH, STRETCHES = 100.0, 400
#: Parts that groups are held out in, near and far; and rows that models are fitted to again.
FOLDS, MOST_ROWS = 6, 30_000


@dataclass(frozen=True, eq=False)
class Intervals:
    """Thresholds of the scores of rows in groups never trained on.

    Attributes
    ----------
    levels, thresholds : levels, rising, and the score below which so many rows of a new group are, one hop away.
    growth : the power of the distance that scores grow with.
    groups : number of groups that were held out.

    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(range(200), 25)
    >>> intervals = Intervals.of(np.abs(rng.normal(size=200)[groups] + rng.normal(size=5000)), groups)
    >>> half = intervals.threshold(0.9, [1.0, 4.0])  # the 95 % point of N(0, 2) is 2.3
    >>> round(float(half[0]), 1), round(float(half[1] / half[0]), 2)
    (2.3, 1.32)
    """

    levels: Array
    thresholds: Array
    growth: float
    groups: int

    @classmethod
    def of(cls, scores: Any, codes: Any, distances: Any = None, folds: Any = None) -> Self:
        """Estimate thresholds from the scores of held-out rows, some of them held out several times.

        Parameters
        ----------
        scores : of the rows, at least 0: see :func:`scores_of`.
        codes : every row's group, as a number.
        distances : from the row's group to the nearest kept group, 1 unless given.
        folds : number of the fold; of rows that occur once, None will do.
        """
        scores, codes = np.asarray(scores, dtype=np.float64), np.unique(codes, return_inverse=True)[1]
        if not np.isfinite(scores).all() or (scores < 0).any():
            raise DataError("scores of held-out rows are negative or not finite: expected at least 0.")
        count = int(codes.max(initial=-1)) + 1
        if count < FEWEST:
            raise DataError(f"{count} group(s) held out: expected at least {FEWEST}, to tell how far groups differ.")
        away = np.ones(len(scores)) if distances is None else np.maximum(np.asarray(distances, dtype=np.float64), 1.0)
        growth = _growth(scores, codes, away, np.zeros(len(codes), np.intp) if folds is None else np.asarray(folds))
        return cls(LEVELS, _thresholds(scores / away**growth, codes, count), growth, count)

    @classmethod
    def of_folds(cls, scores: OutOfFold, ids: GroupIds, graph: GroupGraph | None) -> Self:
        """Estimate thresholds from out-of-fold scores; distances are hops over the graph.

        Parameters
        ----------
        scores : as the values of cross-fitting.
        ids : the group of every row.
        graph : over the groups; without one, distances do not count.
        """
        away = []
        for fold in scores.folds:
            kept = ids.groups.decode(np.unique(ids.codes[fold.kept]))
            away.append(hops_to(graph, kept, ids.groups)[ids.codes[fold.held_out]])
        return cls.of(np.concatenate(scores.values), ids.codes[scores.rows], np.concatenate(away), scores.fold_of_row)

    def require_level(self, level: Any) -> float:
        """Return the level if there is a threshold for it; raise otherwise.

        Parameters
        ----------
        level : the share of rows that is to be inside.
        """
        if check_level(level) > self.levels[-1]:
            raise SettingError(
                f"interval is {level}: held-out groups show thresholds up to {self.levels[-1]:g}, not beyond. Ask for "
                f"{self.levels[-1]:g} or less."
            )
        return float(level)

    def threshold(self, level: float, distances: Any) -> Array:
        """Return the largest score inside by row: of numbers, half the width of their intervals.

        Parameters
        ----------
        level : the share of rows that is to be inside, above 0 and at most the last of ``levels``, 0.999.
        distances : from each row's group to the nearest training group (:func:`hops_to`); at least 1 counts.
        """
        score = np.interp(self.require_level(level), self.levels, self.thresholds)
        return np.asarray(score * np.maximum(np.asarray(distances, dtype=np.float64), 1.0) ** self.growth)

    def sets(self, chances: Array, level: float, distances: Any) -> npt.NDArray[np.bool_]:
        """Return which classes are in the set, (rows, classes): the likeliest always is.

        Parameters
        ----------
        chances : probabilities, (rows, classes).
        level, distances : see :meth:`threshold`.
        """
        inside = _behind(chances) <= self.threshold(level, distances)[:, None]
        return np.asarray(inside | (chances == chances.max(axis=1, keepdims=True)))

    def check(self) -> None:
        """Raise unless intervals widen with their level."""
        levels, thresholds = self.levels, self.thresholds
        if levels.ndim != 1 or levels.shape != thresholds.shape or len(levels) < 2:
            raise DataError(f"its intervals have {levels.shape} levels and {thresholds.shape} thresholds.")
        rising = (np.diff(levels) > 0).all() and (np.diff(thresholds) >= 0).all() and thresholds[0] >= 0
        inside = levels[0] > 0 and levels[-1] < 1 and 0 <= self.growth < math.inf and self.groups >= FEWEST
        if not (rising and inside):
            raise DataError("its intervals do not widen with their level, or hold numbers that cannot be.")


def check_level(interval: Any) -> float:
    """Return the level of an interval if it is one."""
    return number(interval, "interval", "a share between 0 and 1, such as 0.9", above=0.0, below=1.0)


def scores_of(target: npt.NDArray[Any], predictions: Array, classes: npt.NDArray[Any] | None) -> Array:
    """Return absolute errors of numbers, or log-odds of the likeliest class against the right one.

    Parameters
    ----------
    target : numbers, or classes.
    predictions : numbers, or probabilities of the classes, (rows, classes).
    classes : sorted; None of numbers.
    """
    if classes is None:
        return np.asarray(np.abs(np.asarray(target, dtype=np.float64) - predictions))
    return _behind(predictions)[np.arange(len(target)), np.searchsorted(classes, target)]


def _behind(chances: Array) -> Array:
    logs = np.log(np.maximum(chances, LEAST_CHANCE))
    return np.asarray(logs.max(axis=1, keepdims=True) - logs)


def why_none(groups: int, *, costly: bool) -> str:
    """Explain why a model has no intervals, and what to do.

    Parameters
    ----------
    groups : number of groups that it was fitted to.
    costly : it takes long to fit.
    """
    if groups < FEWEST:
        return (
            f"it was fitted to {many(groups, 'group')}, and fewer than {FEWEST} do not show how far off it is in "
            "others. Fit it to more groups"
        )
    if costly:
        return "they take up to twelve more fits. Fit it with --set intervals=true (intervals=True)"
    return "it could not be fitted without some of its groups. Fit it again"


# ---------------------------------------------------------------- fits without some groups


def refitted(
    model: Any,
    x: Array,
    y: npt.NDArray[Any],
    ids: GroupIds,
    weights: Array | None = None,
    *,
    graph: GroupGraph | None = None,
    test_groups: Iterable[Name] = (),
) -> Intervals | None:
    """Estimate intervals of a fitted model by fits without some groups at a time; None where that cannot be done.

    Groups are held out in six parts drawn at random and, with a graph, in up to six more: as far from the kept groups
    as the test groups are, or connected regions of all sizes.

    Parameters
    ----------
    model : fitted to all of the rows; a penalty that it chose is kept.
    x, y, ids, weights : the rows, targets, groups and weights that it was fitted to. Of many rows some are drawn.
    graph : over the groups; without one, distances do not count.
    test_groups : in the graph, those that the model is for.
    """
    if len(ids.groups) < FEWEST:
        return None
    if len(ids) > MOST_ROWS:
        some = draw(ids, max(MOST_ROWS // len(ids.groups), 20), 0)
        x, y, ids = x[some], y[some], GroupIds(ids.codes[some], ids.groups)
        weights = None if weights is None else weights[some]
    classes = model.classes_ if is_classifier(model) else None

    def score(fold: Fold) -> Array:
        return scores_of(y[fold.held_out], _predict_without(model, x, y, ids, weights, fold), classes)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all rows gave the same warnings
        masks = _folds(graph, ids, list(test_groups))
        # Where one class is missing among the kept groups, say, a fit fails.
        found = cross_fit(score, masks, "fitting without some groups, for intervals", skip=(TopoRoError,))
    failed = found.failures
    if len(np.unique(ids.codes[found.rows])) < FEWEST or not all(np.isfinite(each).all() for each in found.values):
        why = str(failed[0]) if failed else "they predict NaN or infinity."
        count = f"{len(failed) or 'all'} of {len(masks)}"
        warn(f"the model has no intervals: {count} fits without some groups failed. {why}")
        return None
    return Intervals.of_folds(found, ids, graph)


def _folds(graph: GroupGraph | None, ids: GroupIds, test_groups: list[Name]) -> tuple[Mask, ...]:
    """Return folds of random groups and, with a graph, of groups far from the others."""
    near = folds(ids, parts=FOLDS)
    if graph is None:
        return near
    if not test_groups:
        return near + folds(ids, graph, kind="regions", parts=FOLDS)
    parts = max(2, min(FOLDS, len(ids.groups) // 3))  # of few groups few folds: a single one has kept neighbours
    return near + folds(ids, graph, test_groups, kind="matched", parts=parts)


def _predict_without(
    model: Any, x: Array, y: npt.NDArray[Any], ids: GroupIds, weights: Array | None, fold: Fold
) -> Array:
    """Predict the rows of a fold by a model that is fitted to the others: values, or probabilities of all classes."""
    out, kept = fold.held_out, fold.kept
    known, new = some_of(ids, kept), some_of(ids, out)
    fewer, settings = clone(model), model.get_params(deep=False)
    if settings.get("penalty") == "auto" and settings.get("radius") is None:
        fewer.set_params(penalty=model.penalty_)
    if settings.get("test_groups") is not None:
        fewer.set_params(test_groups=list(new.groups))
    if isinstance(settings.get("prior"), Prior | Mapping):
        left = PriorMaker(settings["prior"], None, False).fold(list(known.groups), ())
        fewer.set_params(prior="uniform" if left is None else left)
    fewer.fit(x[kept], y[kept], groups=known, sample_weight=None if weights is None else weights[kept])
    named = {"groups": new} if isinstance(fewer, GroupAwareEstimator) else {}
    if not is_classifier(model):
        return np.asarray(fewer.predict(x[out], **named))
    chances = np.zeros((len(out), len(model.classes_)))
    chances[:, np.searchsorted(model.classes_, fewer.classes_)] = fewer.predict_proba(x[out], **named)
    return chances


# ---------------------------------------------------------------- two numbers


def _growth(scores: Array, codes: Codes, away: Array, folds: Codes) -> float:
    """Return the power of the distance, from groups that were held out at several distances."""
    _, places, at = np.unique(np.stack([codes, folds]), axis=1, return_index=True, return_inverse=True)
    at = at.reshape(-1)
    if not scores.max() > 0:
        return GROWTH
    means = np.bincount(at, scores / scores.max()) / np.bincount(at)
    group, size = codes[places], np.log(np.maximum(means, 1e-3 * means.mean()))
    far = np.log(away[places])
    counts = np.bincount(group)

    def within(values: Array) -> Array:
        return np.asarray(values - (np.bincount(group, values) / counts)[group])

    far, size = within(far), within(size)
    moved = np.bincount(group, far**2)
    some = int((moved > 1e-9).sum())
    if some < 2:
        return GROWTH
    slope = float(far @ size / moved.sum())
    error = (np.bincount(group, far * (size - slope * far)) ** 2).sum() / moved.sum() ** 2 * some / (some - 1)
    worth = APART**2 / (2.0 * APART**2 + error)
    return float(max(0.0, (1.0 - worth) * GROWTH + worth * slope))


def _thresholds(scores: Array, codes: Codes, count: int) -> Array:
    """Return the score below which each of :data:`LEVELS` is in a new group, each group counting the same."""
    order = np.lexsort((scores, codes))
    by_group = np.split(scores[order], np.cumsum(np.bincount(codes))[:-1])
    ranked = np.argsort(scores, kind="stable")
    weight = np.cumsum((1.0 / np.bincount(codes)[codes])[ranked]) / count
    shares = np.arange(1, STEPS + 1) / STEPS
    places = np.minimum(np.searchsorted(weight, shares - 1e-9), len(scores) - 1)
    grid = np.unique(np.append(scores[ranked][places], scores.max()))
    below = np.stack([np.searchsorted(own, grid, side="right") / len(own) for own in by_group])
    total = below.sum(axis=0)
    covered, largest = np.zeros(STEPS), np.zeros(count)
    for place, own in enumerate(below):
        others = (total - own) / (count - 1)
        at = np.minimum(np.searchsorted(others, shares - 1e-9), len(grid) - 1)
        covered += own[at] / count
        largest[place] = grid[at[-1]]
    raised = np.searchsorted(np.maximum.accumulate(covered), LEVELS - 1e-9)
    raised = np.maximum(raised, np.searchsorted(shares, LEVELS - 1e-9))  # never below the share itself
    at = np.minimum(np.searchsorted(total / count, shares[np.minimum(raised, STEPS - 1)] - 1e-9), len(grid) - 1)
    thresholds = grid[at]
    short = raised >= STEPS
    if short.any():
        factors = np.geomspace(1.0, STRETCH, STRETCHES)
        inside = np.mean(
            [
                np.searchsorted(own, factors * most, "right") / len(own)
                for own, most in zip(by_group, largest, strict=True)
            ],
            axis=0,
        )
        enough = np.minimum(np.searchsorted(inside, LEVELS[short] - 1e-9), STRETCHES - 1)
        thresholds[short] = factors[enough] * min(grid[-1], np.finfo(np.float64).max / STRETCH)
    return np.maximum.accumulate(thresholds)
