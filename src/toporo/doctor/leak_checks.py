"""Checks for columns that give away what they should not: the group, or the target."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.data.frame import Numbers, Texts
from toporo.doctor.case import LUCK, TELLING, Case, Check, Profile, agreement
from toporo.doctor.column_checks import is_identifier
from toporo.doctor.results import Finding
from toporo.doctor.rows import balanced_sample
from toporo.doctor.words import count_of, flag, percent, some
from toporo.types import Array

Codes = npt.NDArray[np.int64]

#: A correlation with the target from here on is the target in another unit.
SAME = 0.999
#: Of the target's variance, what a single column may explain at most without a word.
EXPLAINED = 0.99
#: Rows on which a column's power to predict is tried, and rows that this takes.
TRIED, FEWEST = 5000, 40
#: More classes than this are not tried: a single column does not tell them apart.
MOST_CLASSES = 50


def identifying(case: Case) -> set[str]:
    """Columns that would settle which group a row is of, so that nothing else could be seen beside them."""
    return {
        name
        for name, profile in case.profiles.items()
        if is_identifier(profile) or (_tells(profile) and (profile.kind == "text" or profile.group_level))
    }


def _tells(profile: Profile) -> bool:
    return not is_identifier(profile) and profile.by_group is not None and profile.by_group.telling


def leaks_group(case: Case) -> Iterator[Finding]:
    """A column whose value tells the group lets a model remember groups instead of learning what holds across them."""
    if len(case.names) < 2:
        return
    text = [name for name, profile in case.profiles.items() if profile.kind == "text" and _tells(profile)]
    if text:
        found = [case.profiles[name] for name in text]
        yield Finding(
            "serious",
            "leaks-group",
            f"{count_of(len(text), 'column gives', 'columns give')} the group away",
            some(map(_how_text, found), 5, "; ") + ". In a new "
            "group every value is new, so that what is learned from it is of no use there.",
            f"{flag('--exclude', text, 8)}.",
            tuple(text),
            len(text) / len(case.features),
        )
    numbers = [
        profile
        for profile in case.profiles.values()
        if profile.kind != "text"
        and not profile.group_level
        and not is_identifier(profile)
        and (profile.apart or _tells(profile))
    ]
    if numbers:
        names = [profile.name for profile in numbers]
        yield Finding(
            "risky",
            "leaks-group",
            f"{count_of(len(names), 'column of numbers tells', 'columns of numbers tell')} the groups apart",
            some(map(_how_number, numbers), 5, "; ")
            + ". A model can tell the group from it, and has to extrapolate in a new group.",
            f"If it is a stand-in for the group (a code, a date of collection): {flag('--exclude', names, 8)}.",
            tuple(names),
            len(names) / len(case.features),
        )


def _how_text(profile: Profile) -> str:
    found = profile.by_group
    share = 1.0 if found is None else found.share
    if share < 1.0:
        return f"{profile.name!r} settles the group for {percent(share)} of the rows that share a value"
    each = "each group has one of its own" if profile.group_level else "none of them occurs in two groups"
    return f"{profile.name!r} has {count_of(profile.distinct, 'value')}, and {each}"


def _how_number(profile: Profile) -> str:
    if profile.apart:
        return f"{profile.name!r} has a range of its own in every group"
    share = 1.0 if profile.by_group is None else profile.by_group.share
    return f"a value of {profile.name!r} settles the group for {percent(share)} of the rows that share one"


def target_leaks(case: Case) -> dict[str, str]:
    """By column that gives the target away, how it does so."""
    rows = np.flatnonzero(case.labelled)
    if len(rows) < FEWEST or case.target is None:
        return {}
    tried = rows[balanced_sample(case.hashes[rows], np.zeros(len(rows), dtype=np.int64), [0], TRIED)]
    found: dict[str, str] = {}
    for name, profile in case.profiles.items():
        if profile.distinct < 2 or (profile.kind == "text" and is_identifier(profile)):
            continue
        how = _gives_away(case, name, rows, tried)
        if how is not None:
            found[name] = how
    return found


def _gives_away(case: Case, name: str, rows: Codes, tried: Codes) -> str | None:
    column = case.frame[name]
    known = rows[~column.missing[rows]]
    if len(known) < FEWEST or 2 * len(known) < len(rows):
        return None
    if case.labels is not None:
        return _classes(column, case.labels, known, tried)
    y = case.target_values
    return None if y is None else _numbers(column, y, known, tried)


def _classes(column: Numbers | Texts, labels: Texts, known: Codes, tried: Codes) -> str | None:
    y = labels.codes[known].astype(np.int64)
    if isinstance(column, Texts):
        values = column.codes[known].astype(np.int64)
    else:
        unique, inverse = np.unique(column.values[known], return_inverse=True)
        if 2 * len(unique) > len(known):
            return _best_cut(column.values[tried], labels.codes[tried].astype(np.int64))
        values = inverse.reshape(-1).astype(np.int64)
    settled = agreement(values, y)
    if settled.telling:
        exact = settled.share == 1.0
        return "settles it" if exact else f"settles it for {percent(settled.share)} of the rows that share a value"
    return None if isinstance(column, Texts) else _best_cut(column.values[tried], labels.codes[tried].astype(np.int64))


def _best_cut(values: Array, y: Codes) -> str | None:
    """Whether a few cuts through a column tell the classes apart, on rows the cuts were not made on."""
    from sklearn.model_selection import StratifiedKFold
    from sklearn.tree import DecisionTreeClassifier

    counts = np.bincount(y)
    kept = np.flatnonzero(counts >= 6)
    if not 2 <= len(kept) <= MOST_CLASSES:
        return None
    inside = np.isin(y, kept)
    values, y = _ranks(values)[inside], y[inside]
    hits: dict[int, list[bool]] = {int(label): [] for label in kept}
    for train, test in StratifiedKFold(3).split(values[:, None], y):
        model = DecisionTreeClassifier(max_leaf_nodes=max(4, 2 * len(kept)), class_weight="balanced", random_state=0)
        right = model.fit(values[train, None], y[train]).predict(values[test, None]) == y[test]
        for label, hit in zip(y[test], right, strict=True):
            hits[int(label)].append(bool(hit))
    accuracy = float(np.mean([np.mean(each) for each in hits.values()]))
    chance = 1.0 / len(kept)
    lucky = counts[kept].min() * math.log(chance) > math.log(LUCK)
    skilled = (accuracy - chance) / (1.0 - chance) >= TELLING
    return f"predicts it by itself (balanced accuracy {percent(accuracy)})" if skilled and not lucky else None


def _numbers(column: Numbers | Texts, y: Array, known: Codes, tried: Codes) -> str | None:
    target = y[known]
    if target.min() == target.max():
        return None
    if isinstance(column, Texts):
        codes = column.codes[known].astype(np.int64)
        levels = len(np.unique(codes))
        spare = len(known) - levels
        if spare < FEWEST:
            return None
        scaled = target - target.mean()
        counts = np.bincount(codes)
        means = np.bincount(codes, scaled) / np.maximum(counts, 1)
        inside = float(((scaled - means[codes]) ** 2).sum()) / spare
        explained = 1.0 - inside / (float((scaled**2).sum()) / (len(known) - 1))
        return f"explains {percent(explained)} of its variance" if explained >= EXPLAINED else None
    straight = _correlation(column.values[known], target)
    if abs(straight) > SAME:
        return f"is the same but for a factor (correlation {straight:.4f})"
    explained = _steps(column.values[tried], y[tried])
    return f"explains {percent(explained)} of its variance by itself" if explained >= EXPLAINED else None


def _correlation(a: Array, b: Array) -> float:
    """Of two columns of any size; 0 where one of them is constant."""
    a, b = (_unit(values) for values in (a, b))
    return float(np.mean(a * b))


def _unit(values: Array) -> Array:
    scaled = values / max(float(np.abs(values).max()), 1e-300)
    centred = scaled - scaled.mean()
    spread = float(centred.std())
    return np.asarray(centred / spread) if spread > 1e-12 else np.zeros_like(centred)


def _ranks(values: Array) -> Array:
    """Numbers by their order, which is all a tree sees of them; missing ones stay missing."""
    _, places = np.unique(values, return_inverse=True)
    return np.where(np.isnan(values), np.nan, places.reshape(-1).astype(np.float64))


def _steps(values: Array, y: Array) -> float:
    """The share of variance that a function of 64 steps of one column explains, on rows it was not made on."""
    from sklearn.model_selection import KFold
    from sklearn.tree import DecisionTreeRegressor

    values, y = _ranks(values), _unit(y)
    left = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for train, test in KFold(3, shuffle=True, random_state=0).split(values):
            model: Any = DecisionTreeRegressor(max_leaf_nodes=64, min_samples_leaf=2, random_state=0)
            fitted = model.fit(values[train, None], y[train])
            left += float(((fitted.predict(values[test, None]) - y[test]) ** 2).sum())
    return 1.0 - left / max(float((y**2).sum()), 1e-300)


def leaks_target(case: Case) -> Iterator[Finding]:
    """A column that is the target in disguise: the fit will look perfect and be of no use."""
    found = target_leaks(case)
    if found:
        shown = some((f"{name!r} {how}" for name, how in found.items()), 5, "; ")
        yield Finding(
            "serious",
            "leaks-target",
            f"{count_of(len(found), 'column gives', 'columns give')} the target away",
            f"Of {case.target!r}: {shown}. Ask whether it is known at the time of prediction, or made from the target.",
            f"{flag('--exclude', found, 8)}, unless it is known before the target is.",
            tuple(found),
            1.0,
        )


CHECKS: tuple[Check, ...] = (leaks_group, leaks_target)
