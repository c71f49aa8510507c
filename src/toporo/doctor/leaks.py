"""Checks of columns that give the group or the target away, and of columns that only look so: earlier targets."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from toporo.choice.cross_fitting import Fold, cross_fit, folds
from toporo.data.frame import Numbers, Texts
from toporo.doctor.case import LUCK, TELLING, Case, Codes, Profile, balanced_sample, check
from toporo.doctor.results import Finding, flag, note, percent, risky, serious, some
from toporo.groups import GroupIds, Groups
from toporo.text import many
from toporo.types import Array

#: A correlation with the target from here on is nearly the target, if within groups it is at least the second number:
#: a column that differs between groups as the target does, and not within them, is no stand-in for it.
NEAR, INSIDE = 0.97, 0.9
#: Rows on which a column's power to predict is tried, and rows that this takes.
TRIED, FEWEST = 5000, 40
#: Classes with fewer rows are not tried, nor are targets of more classes: a single column does not tell them apart.
FEWEST_OF_CLASS, MOST_CLASSES = 6, 50
#: Leaves of the tree that tries a column of numbers.
LEAVES = 64
#: A column of whole numbers with at most so many values per group may be a code.
CODES = 5
#: Share of a column's values that are the targets of other rows of the group, which makes it a lag.
LAGGED = 0.5


# ---------------------------------------------------------------- of the group


@check
def leaks_group(case: Case) -> Iterator[Finding]:
    """A column whose value settles the group lets a model remember groups instead of learning what holds across them.

    Text that does so is of no use in a new group. Numbers may be, so they are a risk if they are codes: whole numbers,
    few by group. That numbers differ between groups is not enough: a lag of the target does, wherever the target does.
    """
    profiles = [profile for profile in case.profiles.values() if not profile.identifier]
    text = [profile for profile in profiles if profile.kind == "text" and profile.tells_group]
    level = [profile for profile in profiles if profile.group_level and profile not in text]
    codes = [p for p in profiles if p.tells_group and p.whole and p.distinct <= CODES * len(case.names)]
    codes = [profile for profile in codes if profile not in level]
    if text:
        yield serious(
            "leaks-group",
            f"{many(len(text), 'column gives', 'columns give')} the group away",
            f"{some(map(_how, text), 5, '; ')}. In a new group every value is new, so what is learned from it is of no "
            "use there.",
            f"{flag('--exclude', _names(text), 8)}.",
            *case.of_features(_names(text)),
        )
    if codes:
        yield risky(
            "leaks-group",
            f"{many(len(codes), 'column of numbers tells', 'columns of numbers tell')} the groups apart",
            f"{some(map(_how, codes), 5, '; ')}. A model can tell the group from it, and has to extrapolate in a new "
            "group.",
            f"If it is a stand-in for the group, such as a code: {flag('--exclude', _names(codes), 8)}.",
            *case.of_features(_names(codes)),
        )
    if level:
        shown = some(f"{profile.name!r} ({many(profile.distinct, 'value')})" for profile in level)
        yield risky(
            "group-level-column",
            f"{many(len(level), 'column is', 'columns are')} constant within every group",
            f"{shown}. However many rows there are, a model sees only {many(len(case.names), 'group')} here, and can "
            "use such a column to remember them.",
            f"Keep what is known of a new group and means the same there; else {flag('--exclude', _names(level), 8)}.",
            *case.of_features(_names(level)),
        )


def _names(profiles: list[Profile]) -> list[str]:
    return [profile.name for profile in profiles]


def _how(profile: Profile) -> str:
    if profile.settled == 1.0:
        return f"{profile.name!r} has {many(profile.distinct, 'value')}, and none of them occurs in two groups"
    return f"{profile.name!r} settles the group for {percent(profile.settled)} of the rows that share a value"


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
        shown = some((f"{name!r} is the target of another row of the group in {how}" for name, how in lags.items()), 5)
        yield note(
            "lagged-target",
            f"{many(len(lags), 'column is', 'columns are')} the target of earlier rows",
            f"{shown}. That is no leak, if earlier targets are known where the model will be used.",
            "Compare with predicting no change. If nothing is known of a new group's earlier targets: "
            f"{flag('--exclude', lags, 8)}.",
            *case.of_features(lags),
        )


def target_leaks(case: Case) -> tuple[dict[str, str], dict[str, str]]:
    """Return how each column that gives the target away does so, and the share of each that has earlier targets."""
    rows = np.flatnonzero(case.labelled)
    leaks: dict[str, str] = {}
    lags: dict[str, str] = {}
    if len(rows) < FEWEST or (case.labels is None and case.target_values is None):
        return leaks, lags
    tried = rows[balanced_sample(case.hashes[rows], np.zeros(len(rows), dtype=np.int64), [0], TRIED)]
    for name, profile in case.profiles.items():
        column = case.frame[name]
        known, some_rows = rows[~column.missing[rows]], tried[~column.missing[tried]]
        identifier = profile.identifier and profile.kind == "text"
        if profile.distinct < 2 or identifier or len(some_rows) < max(FEWEST, len(tried) / 2):
            continue
        values = (column.codes.astype(np.float64) if isinstance(column, Texts) else column.values)[some_rows]
        leaves = len(column.levels) if isinstance(column, Texts) else 0
        groups, y, lag = case.codes[some_rows], case.target_values, 0.0
        if case.labels is not None:
            how = _tells_classes(values, case.labels.codes[some_rows].astype(np.int64), groups, leaves)
        else:
            how = None if y is None else _tells_numbers(values, y[some_rows], groups, leaves)
        if how is None:
            continue
        if y is not None and isinstance(column, Numbers):
            lag = _lagged(column.values[known], y[known], case.codes[known])
        if lag >= LAGGED:
            lags[name] = percent(lag)
        else:
            leaks[name] = how
    return leaks, lags


def _out_of_fold(values: Array, y: Array | Codes, leaves: int, classes: bool) -> Array:
    """Return what a shallow tree of one column predicts for rows that it was not fitted to."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    x = np.unique(values, return_inverse=True)[1].reshape(-1, 1)  # the order is all that a tree sees
    kind = DecisionTreeClassifier if classes else DecisionTreeRegressor
    settings = {"class_weight": "balanced"} if classes else {"min_samples_leaf": 2}

    def predict(fold: Fold) -> Array:
        tree = kind(max_leaf_nodes=max(LEAVES, leaves), random_state=0, **settings)
        guesses: Array = tree.fit(x[fold.kept], y[fold.kept]).predict(x[fold.held_out])
        return guesses

    return cross_fit(predict, folds(GroupIds(np.zeros(len(y), np.int64), Groups(["all"])), parts=3)).by_row()


def _tells_classes(values: Array, y: Codes, groups: Codes, leaves: int) -> str | None:
    """Return how a column tells the classes, if it does: also in rows of another class than most of their group."""
    counts = np.bincount(y)
    kept = np.flatnonzero(counts >= FEWEST_OF_CLASS)
    if not 2 <= len(kept) <= MOST_CLASSES:
        return None
    inside = np.isin(y, kept)
    values, y, groups = values[inside], y[inside], groups[inside]
    right = _out_of_fold(values, y, leaves, classes=True) == y
    accuracy = float(np.mean([right[y == label].mean() for label in kept]))
    chance = 1.0 / len(kept)
    table = np.zeros((int(groups.max()) + 1, len(counts)))
    np.add.at(table, (groups, y), 1)
    odd = y != table.argmax(axis=1)[groups]
    lucky = counts[kept].min() * math.log(chance) > math.log(LUCK)
    if accuracy < chance + TELLING * (1.0 - chance) or lucky or not odd.any() or right[odd].mean() < INSIDE:
        return None
    return f"predicts it by itself (balanced accuracy {percent(accuracy)})"


def _tells_numbers(values: Array, y: Array, groups: Codes, leaves: int) -> str | None:
    """Return how a column tells numbers, if it does: as they are or by a step function, within groups too."""
    if y.min() == y.max():
        return None
    guesses = [_out_of_fold(values, y, leaves, classes=False), *([values] if not leaves else [])]
    for straight, inside in (_correlations(guess, y, groups) for guess in guesses):
        if inside >= INSIDE and max(straight, inside) >= NEAR:
            return f"predicts it by itself (correlation {straight:.3f}, within groups {inside:.3f})"
    return None


def _correlations(a: Array, b: Array, groups: Codes) -> tuple[float, float]:
    """Return the correlation of two columns, and that within groups; the first again where groups do not say."""
    sizes = np.bincount(groups)
    shares = []
    for means in (lambda x: x.mean(), lambda x: (np.bincount(groups, x) / np.maximum(sizes, 1))[groups]):
        p, q = a - means(a), b - means(b)
        scale = float(np.linalg.norm(p) * np.linalg.norm(q))
        shares.append(abs(float(p @ q)) / scale if scale > 1e-9 * np.linalg.norm(a) * np.linalg.norm(b) else 0.0)
    says = len(a) - int((sizes > 0).sum()) >= FEWEST
    return shares[0], shares[1] if says else shares[0]


def _lagged(values: Array, y: Array, groups: Codes) -> float:
    """Return the share of values that are, to six digits, the target of another row of their group, but not their own.

    Where targets repeat they are met anywhere, so nothing is said.
    """
    mine, theirs = (np.round(column / (float(np.abs(y).max()) or 1.0), 6) for column in (values, y))
    _, keys = np.unique(np.concatenate([mine, theirs]), return_inverse=True)
    keys = keys.reshape(-1) * (int(groups.max()) + 1) + np.tile(groups, 2)
    if 2 * len(np.unique(keys[len(y) :])) < len(y):
        return 0.0
    return float((np.isin(keys[: len(y)], keys[len(y) :]) & (mine != theirs)).mean())
