"""Checks of columns that give the group or the target away, and of columns that only look so: lags."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from toporo.data.frame import Numbers, Texts
from toporo.doctor.columns import is_identifier, time_column
from toporo.doctor.measure import LUCK, TELLING, Case, Codes, Profile, agreement, balanced_sample, check
from toporo.doctor.results import Finding, flag, note, percent, risky, serious, some
from toporo.text import many
from toporo.types import Array

#: A correlation with the target from here on is the target in another unit.
SAME = 0.999
#: A correlation from here on is nearly the target, if within groups it is at least the second number: a column that
#: differs between groups as the target does, and not within them, is no stand-in for it.
NEAR, INSIDE = 0.97, 0.9
#: Of the target's variance, what the steps of a column, or the levels of a text, may explain without a word.
EXPLAINED = 0.99
#: Rows on which a column's power to predict is tried, and rows that this takes.
TRIED, FEWEST = 5000, 40
#: More classes than this are not tried: a single column does not tell them apart.
MOST_CLASSES = 50
#: A column of whole numbers with at most so many values per group may be a code.
CODES = 5
#: A correlation with the target within groups, beyond luck, that makes a column more than a stand-in for the group.
RELATED = 0.1
#: Share of a column's values that are the targets of other rows of the group, which makes it a lag.
LAGGED = 0.5


def identifying(case: Case) -> set[str]:
    """Columns that settle which group a row is of: nothing else could be seen beside them."""
    return {
        name
        for name, profile in case.profiles.items()
        if is_identifier(profile) or (profile.tells_group and (profile.kind == "text" or profile.group_level))
    }


# ---------------------------------------------------------------- of the group


@check
def leaks_group(case: Case) -> Iterator[Finding]:
    """A column whose value tells the group lets a model remember groups instead of learning what holds across them.

    That numbers differ between groups is not enough: a lag of the target does, wherever the target does. What counts is
    a code, or a range of its own in every group that says nothing of the target within them.
    """
    if len(case.names) < 2:
        return
    profiles = [profile for profile in case.profiles.values() if not is_identifier(profile)]
    text = {profile.name: profile for profile in profiles if profile.kind == "text" and profile.tells_group}
    if text:
        yield serious(
            "leaks-group",
            f"{many(len(text), 'column gives', 'columns give')} the group away",
            some(map(_how_text, text.values()), 5, "; ") + ". In a new "
            "group every value is new, so what is learned from it is of no use there.",
            f"{flag('--exclude', text, 8)}.",
            *case.of_features(text),
        )
    numbers = {profile.name: profile for profile in profiles if _stands_in(case, profile)}
    if numbers:
        yield risky(
            "leaks-group",
            f"{many(len(numbers), 'column of numbers tells', 'columns of numbers tell')} the groups apart",
            some(map(_how_number, numbers.values()), 5, "; ")
            + ". A model can tell the group from it, and has to extrapolate in a new group.",
            f"If it is a stand-in for the group (a code, a date of collection): {flag('--exclude', numbers, 8)}.",
            *case.of_features(numbers),
        )


def _stands_in(case: Case, profile: Profile) -> bool:
    """Whether a column of numbers may be there in the group's place."""
    if profile.kind == "text" or profile.group_level:
        return False
    code = profile.tells_group and profile.whole and profile.distinct <= CODES * len(case.names)
    return (profile.apart or code) and not (profile.kind == "number" and _related(case, profile.name))


def _related(case: Case, name: str) -> bool:
    """Whether a column goes with the target within groups, which a stand-in for the group does not."""
    column, y = case.frame[name], case.target_values
    if y is None or not isinstance(column, Numbers):
        return False
    rows = np.flatnonzero(case.labelled & ~column.missing)
    if len(rows) < FEWEST:
        return False
    inside = _within(column.values[rows], y[rows], case.codes[rows])
    return inside is not None and abs(inside) >= max(RELATED, 4.0 / math.sqrt(len(rows)))


def _how_text(profile: Profile) -> str:
    share = 1.0 if profile.by_group is None else profile.by_group.share
    if share < 1.0:
        return f"{profile.name!r} settles the group for {percent(share)} of the rows that share a value"
    each = "each group has one of its own" if profile.group_level else "none of them occurs in two groups"
    return f"{profile.name!r} has {many(profile.distinct, 'value')}, and {each}"


def _how_number(profile: Profile) -> str:
    if profile.apart:
        return f"{profile.name!r} has a range of its own in every group"
    share = 1.0 if profile.by_group is None else profile.by_group.share
    return f"a value of {profile.name!r} settles the group for {percent(share)} of the rows that share one"


# ---------------------------------------------------------------- of the target


@check
def leaks_target(case: Case) -> Iterator[Finding]:
    """A column that is the target in disguise makes a fit look perfect and be of no use; an earlier target is none."""
    leaks, lags = target_leaks(case)
    if leaks:
        shown = some((f"{name!r} {how}" for name, how in leaks.items()), 5, "; ")
        yield serious(
            "leaks-target",
            f"{many(len(leaks), 'column gives', 'columns give')} the target away",
            f"Of {case.target!r}: {shown}. Ask whether it is known at the time of prediction, or made from the target.",
            f"{flag('--exclude', leaks, 8)}, unless it is known before the target is.",
            tuple(leaks),
            1.0,
        )
    if lags:
        shown = some((f"{name!r} {how}" for name, how in lags.items()), 5, "; ")
        yield note(
            "lagged-target",
            f"{many(len(lags), 'column is', 'columns are')} the target of earlier rows",
            f"{shown}. That is no leak, if earlier targets are known where the model will be used.",
            "Compare with predicting no change. If nothing is known of a new group's earlier targets: "
            f"{flag('--exclude', lags, 8)}.",
            *case.of_features(lags),
        )


def target_leaks(case: Case) -> tuple[dict[str, str], dict[str, str]]:
    """By column that gives the target away, how; and by column that has earlier targets, how that is seen."""
    rows = np.flatnonzero(case.labelled)
    if len(rows) < FEWEST or case.target is None:
        return {}, {}
    tried = rows[balanced_sample(case.hashes[rows], np.zeros(len(rows), dtype=np.int64), [0], TRIED)]
    wanted = [
        name
        for name, profile in case.profiles.items()
        if profile.distinct >= 2 and not (profile.kind == "text" and is_identifier(profile))
    ]
    ways = {name: how for name in wanted if (how := _gives_away(case, name, rows, tried)) is not None}
    before = _before(case, rows) if ways else None
    lags = {name: how for name in ways if (how := _lag(case, name, rows, before)) is not None}
    return {name: how for name, how in ways.items() if name not in lags}, lags


def _gives_away(case: Case, name: str, rows: Codes, tried: Codes) -> str | None:
    column = case.frame[name]
    known = rows[~column.missing[rows]]
    if len(known) < FEWEST or 2 * len(known) < len(rows):
        return None
    if case.labels is not None:
        return _classes(column, case.labels, case.codes, known, tried)
    y = case.target_values
    return None if y is None else _numbers(column, y, case.codes, known, tried)


def _classes(column: Numbers | Texts, labels: Texts, codes: Codes, known: Codes, tried: Codes) -> str | None:
    y = labels.codes[known].astype(np.int64)
    if isinstance(column, Texts):
        values = column.codes[known].astype(np.int64)
    else:
        unique, inverse = np.unique(column.values[known], return_inverse=True)
        if 2 * len(unique) > len(known):
            return _best_cut(column.values[tried], labels.codes[tried].astype(np.int64), codes[tried])
        values = inverse.reshape(-1).astype(np.int64)
    settled = agreement(values, y)
    if settled.telling:
        # Where each group has a class of its own, a column that tells the group tells the class, and no more.
        usual = agreement(codes[known], y).share
        if settled.share - usual < TELLING * (1.0 - usual):
            return None
        exact = settled.share == 1.0
        return "settles it" if exact else f"settles it for {percent(settled.share)} of the rows that share a value"
    if isinstance(column, Texts):
        return None
    return _best_cut(column.values[tried], labels.codes[tried].astype(np.int64), codes[tried])


def _best_cut(values: Array, y: Codes, codes: Codes) -> str | None:
    """Whether a few cuts through a column tell the classes apart, on rows the cuts were not made on.

    The rows that are of another class than most of their group must be told as well.
    """
    from sklearn.model_selection import StratifiedKFold
    from sklearn.tree import DecisionTreeClassifier

    counts = np.bincount(y)
    kept = np.flatnonzero(counts >= 6)
    if not 2 <= len(kept) <= MOST_CLASSES:
        return None
    inside = np.isin(y, kept)
    values, y, codes = _ranks(values)[inside], y[inside], codes[inside]
    right = np.zeros(len(y), dtype=bool)
    for train, test in StratifiedKFold(3).split(values[:, None], y):
        model = DecisionTreeClassifier(max_leaf_nodes=max(4, 2 * len(kept)), class_weight="balanced", random_state=0)
        right[test] = model.fit(values[train, None], y[train]).predict(values[test, None]) == y[test]
    accuracy = float(np.mean([right[y == label].mean() for label in kept]))
    chance = 1.0 / len(kept)
    lucky = counts[kept].min() * math.log(chance) > math.log(LUCK)
    skilled = (accuracy - chance) / (1.0 - chance) >= TELLING
    table = np.zeros((int(codes.max()) + 1, len(counts)))
    np.add.at(table, (codes, y), 1)
    odd = y != table.argmax(axis=1)[codes]
    told = bool(odd.any()) and float(right[odd].mean()) >= TELLING - 0.05
    return f"predicts it by itself (balanced accuracy {percent(accuracy)})" if skilled and told and not lucky else None


def _numbers(column: Numbers | Texts, y: Array, codes: Codes, known: Codes, tried: Codes) -> str | None:
    target = y[known]
    if target.min() == target.max():
        return None
    if isinstance(column, Texts):
        return _levels(column.codes[known].astype(np.int64), target, codes[known])
    straight, inside = _both(column.values[known], target, codes[known])
    if abs(inside) >= INSIDE and abs(straight) > SAME:
        return f"is the same but for a factor (correlation {straight:.4f})"
    if abs(inside) >= INSIDE and max(abs(straight), abs(inside)) >= NEAR:
        return f"is nearly the same (correlation {straight:.3f}, within groups {inside:.3f})"
    guesses = _steps(column.values[tried], y[tried])
    straight, inside = _both(guesses, y[tried], codes[tried])
    if inside >= INSIDE and straight**2 >= EXPLAINED:
        return f"explains {percent(straight**2)} of its variance by itself"
    return None


def _levels(values: Codes, y: Array, codes: Codes) -> str | None:
    """Whether the levels of a text explain a number, overall and within groups."""
    scaled = np.ldexp(y, -np.frexp(np.abs(y).max())[1])  # neither squares nor sums can overflow
    cells = np.unique(codes * (int(values.max()) + 1) + values, return_inverse=True)[1].reshape(-1)
    overall = _explained(scaled, np.zeros(len(y), dtype=np.int64), values)
    inside = _explained(scaled, codes, cells)
    if overall is None or overall < EXPLAINED or (inside is not None and inside < EXPLAINED):
        return None
    return f"explains {percent(overall)} of its variance"


def _explained(y: Array, whole: Codes, parts: Codes) -> float | None:
    """Of the variance around the means of ``whole``, what the means of ``parts`` explain; None if that says nothing."""
    left = []
    for codes in (whole, parts):
        counts = np.bincount(codes)
        spare = len(y) - int((counts > 0).sum())
        if spare < FEWEST:
            return None
        means = np.bincount(codes, y) / np.maximum(counts, 1)
        left.append(float(((y - means[codes]) ** 2).sum()) / spare)
    return 1.0 - left[1] / left[0] if left[0] > 1e-24 else None


def _both(a: Array, b: Array, codes: Codes) -> tuple[float, float]:
    """The correlation of two columns, and that within groups; the first again where groups do not say."""
    straight, inside = _correlation(a, b), _within(a, b, codes)
    return straight, straight if inside is None else inside


def _within(a: Array, b: Array, codes: Codes) -> float | None:
    """The correlation of deviations from the means of groups; None where hardly a group has two rows that differ."""
    counts = np.bincount(codes)
    if len(a) - int((counts > 0).sum()) < FEWEST:
        return None
    centred = []
    for values in (_unit(a), _unit(b)):
        means = np.bincount(codes, values) / np.maximum(counts, 1)
        centred.append(values - means[codes])
    spreads = [float(each.std()) for each in centred]
    return float(np.mean(centred[0] * centred[1])) / (spreads[0] * spreads[1]) if min(spreads) > 1e-6 else None


def _correlation(a: Array, b: Array) -> float:
    """Of two columns of any size; 0 where one of them is constant."""
    return float(np.mean(_unit(a) * _unit(b)))


def _unit(values: Array) -> Array:
    scaled = values / max(float(np.abs(values).max()), 1e-300)
    centred = scaled - scaled.mean()
    spread = float(centred.std())
    return np.asarray(centred / spread) if spread > 1e-12 else np.zeros_like(centred)


def _ranks(values: Array) -> Array:
    """Numbers by their order, which is all a tree sees of them; missing ones stay missing."""
    _, places = np.unique(values, return_inverse=True)
    return np.where(np.isnan(values), np.nan, places.reshape(-1).astype(np.float64))


def _steps(values: Array, y: Array) -> Array:
    """What a function of 64 steps of one column says of rows it was not made on."""
    from sklearn.model_selection import KFold
    from sklearn.tree import DecisionTreeRegressor

    values, y = _ranks(values), _unit(y)
    guesses = np.zeros(len(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for train, test in KFold(3, shuffle=True, random_state=0).split(values):
            model: Any = DecisionTreeRegressor(max_leaf_nodes=64, min_samples_leaf=2, random_state=0)
            guesses[test] = model.fit(values[train, None], y[train]).predict(values[test, None])
    return guesses


# ---------------------------------------------------------------- lags


def _before(case: Case, rows: Codes) -> tuple[Codes, Codes] | None:
    """Rows of a series by group, and the row before each of them; None where there is no time, or no series."""
    name = time_column(case)
    column = None if name is None else case.frame[name]
    if not isinstance(column, Numbers):
        return None
    rows = rows[~column.missing[rows]]
    order = rows[np.lexsort((column.values[rows], case.codes[rows]))]
    together = case.codes[order][1:] == case.codes[order][:-1]
    later = column.values[order][1:] > column.values[order][:-1]
    if together.sum() < FEWEST or (together & later).sum() < 0.9 * together.sum():
        return None  # several rows of a group at one time are no series
    return order[1:][together & later], order[:-1][together & later]


def _lag(case: Case, name: str, rows: Codes, before: tuple[Codes, Codes] | None) -> str | None:
    """How a column is seen to hold earlier targets: it is nearer to the row before than to its own."""
    column, y = case.frame[name], case.target_values
    if y is None or not isinstance(column, Numbers):
        return None
    if before is not None:
        now, then = (each[~column.missing[before[0]]] for each in before)
        if len(now) < FEWEST:
            return None
        earlier, own = (abs(_correlation(column.values[now], y[each])) for each in (then, now))
        lagging = earlier > own and earlier >= NEAR
        return f"goes with the row before ({earlier:.3f}) more than with its own ({own:.3f})" if lagging else None
    known = rows[~column.missing[rows]]
    share, own = _elsewhere(column.values[known], y[known], case.codes[known])
    return f"is the target of another row of the group in {percent(share)}" if share >= LAGGED > own else None


def _elsewhere(values: Array, y: Array, codes: Codes) -> tuple[float, float]:
    """The shares of values that are the target of another row of their group, and of their own, to six digits."""
    digits = 6 - np.frexp(max(float(np.abs(y).max()), 1e-300))[1] * math.log10(2.0)
    rounded = [np.round(_shifted(each, digits)) for each in (values, y)]
    own = rounded[0] == rounded[1]
    _, keys = np.unique(np.concatenate(rounded), return_inverse=True)
    keys = keys.reshape(-1) * (int(codes.max()) + 1) + np.tile(codes, 2)
    mine, theirs = keys[: len(y)], keys[len(y) :]
    if 2 * len(np.unique(theirs)) < len(y):
        return 0.0, 0.0  # targets that repeat are met anywhere
    return float((np.isin(mine, theirs) & ~own).mean()), float(own.mean())


def _shifted(values: Array, digits: float) -> Array:
    """Numbers times a power of ten, which may be beyond all numbers."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.asarray(np.clip(np.nan_to_num(values * 10.0 ** min(max(digits, -300.0), 300.0)), -1e15, 1e15))
