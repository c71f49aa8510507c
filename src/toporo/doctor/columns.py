"""Checks of the features one by one: constant, identifying rows, missing, giving the group or the target away; and of
rows that come twice.
"""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from toporo.data.frame import Numbers, Texts
from toporo.doctor.measure import LUCK, TELLING, Case, Codes, Profile, agreement, balanced_sample, check
from toporo.doctor.results import Finding, flag, it, note, percent, risky, serious, some
from toporo.errors import listed
from toporo.text import many
from toporo.types import Array

#: Fewest rows of which no two share a value that are not chance.
ENOUGH = 20
#: Shares of missing cells that are worth a word, and that are a risk.
SOME, MUCH = 0.05, 0.4
#: Share by which missing cells must be commoner in one group than in another to say so.
GAP = 0.5
#: Names of columns that number rows.
_KEY = re.compile(r"(^|[\W_])(id|ids|key|uuid|guid|index|idx|nr|no|number|row|rowid)$", re.IGNORECASE)
#: A correlation with the target from here on is the target in another unit.
SAME = 0.999
#: Of the target's variance, what a single column may explain at most without a word.
EXPLAINED = 0.99
#: Rows on which a column's power to predict is tried, and rows that this takes.
TRIED, FEWEST = 5000, 40
#: More classes than this are not tried: a single column does not tell them apart.
MOST_CLASSES = 50


def is_identifier(profile: Profile) -> bool:
    """Whether a column names rows: text or whole numbers of which no two rows share one.

    Whole numbers must also lie as densely as a count of rows does, or stand in a column that is named like one.
    """
    if profile.known < ENOUGH or not profile.unique:
        return False
    if profile.kind == "text":
        return True
    dense = profile.high - profile.low + 1 <= 1.5 * profile.known
    return profile.kind == "number" and profile.whole and (dense or _KEY.search(profile.name) is not None)


@check
def no_features(case: Case) -> Iterator[Finding]:
    """Nothing to learn from."""
    if case.encoder is None or not case.encoder.names:
        yield serious(
            "no-features",
            "No column can be used as a feature",
            f"Of {many(len(case.features), 'column')} beside the group and the target, every one is empty, "
            "constant or an identifier.",
            "Add columns that say something about a row, or name one with --features.",
            case.features,
            1.0,
        )


@check
def empty_or_constant(case: Case) -> Iterator[Finding]:
    """Columns without a value, or with the same everywhere."""
    for code, what, wanted in (("empty-column", "empty", 0), ("constant-column", "the same in every row", 1)):
        names = [name for name, profile in case.profiles.items() if profile.distinct == wanted]
        if names:
            yield note(
                code,
                f"{many(len(names), 'column is', 'columns are')} {what}",
                f"{listed(names)}. Nothing can be learned from {it(names)}.",
                "Nothing to do: a fit leaves them out and says so."
                if not case.chosen
                else "Take them out of --features.",
                *case.of_features(names),
            )


@check
def group_level(case: Case) -> Iterator[Finding]:
    """Columns that are the same within every group: there are as many values to learn from as groups."""
    constant = [p for p in case.profiles.values() if p.group_level and not (p.kind == "text" and p.tells_group)]
    if constant:
        names = [profile.name for profile in constant]
        shown = some(f"{p.name!r} ({many(p.distinct, 'value')})" for p in constant)
        yield risky(
            "group-level-column",
            f"{many(len(names), 'column is', 'columns are')} constant within every group",
            f"{shown}. However many rows there are, a model sees only "
            f"{many(len(case.names), 'group')} here, and can use such a column to remember them.",
            f"Keep what is known of a new group and means the same there; else {flag('--exclude', names, 8)}.",
            *case.of_features(names),
        )


@check
def identifiers(case: Case) -> Iterator[Finding]:
    """Columns that name rows: text is left out by itself, numbers are not."""
    naming = [profile for profile in case.profiles.values() if is_identifier(profile)]
    detail = "{}: no two rows share a value. What a model learns from it holds for these rows only."
    text = [profile.name for profile in naming if profile.kind == "text"]
    if text:
        yield note(
            "identifier",
            f"{many(len(text), 'column names', 'columns name')} every row",
            detail.format(listed(text)),
            "Nothing to do: a fit leaves such text out, unless --features names it.",
            *case.of_features(text),
        )
    numbers = [profile.name for profile in naming if profile.kind == "number"]
    if numbers:
        yield risky(
            "identifier",
            f"{many(len(numbers), 'column numbers', 'columns number')} the rows",
            detail.format(listed(numbers)),
            f"{flag('--exclude', numbers, 8)}.",
            *case.of_features(numbers),
        )


@check
def many_levels(case: Case) -> Iterator[Finding]:
    """Text with more values than a fit keeps."""
    if case.encoder is None:
        return
    levels = {
        name: profile.distinct
        for name, profile in case.profiles.items()
        if profile.kind == "text" and name in case.encoder.left_out and profile.distinct > 1
        if not is_identifier(profile)
    }
    if levels:
        shown = some(f"{name!r} ({count:,} values)" for name, count in levels.items())
        yield note(
            "many-levels",
            f"{many(len(levels), 'column of text has', 'columns of text have')} too many values to be used",
            f"{shown}. A fit leaves them out.",
            f"To use the commonest values all the same, name them: {flag('--features', levels, 8)} (with the others).",
            *case.of_features(levels),
        )


@check
def missing_values(case: Case) -> Iterator[Finding]:
    """Columns with many missing cells, and columns that are missing where the group says so."""
    total = np.asarray(list(case.sizes.values()), dtype=float)
    overall: dict[str, float] = {}
    uneven: dict[str, tuple[list[str], float, float]] = {}
    for name, profile in case.profiles.items():
        if not profile.known:
            continue
        share = 1.0 - profile.known / max(1.0, total.sum())
        by_group = 1.0 - profile.sizes / np.maximum(total, 1.0)
        # A group of a few rows misses everything by luck now and then.
        counted = total >= 5
        if counted.sum() >= 2 and by_group[counted].max() - by_group[counted].min() >= GAP:
            worst = by_group[counted].max()
            who = [case.names[i] for i in np.flatnonzero(counted & (by_group >= worst - 0.1))]
            uneven[name] = (who, float(worst), float(by_group[counted].min()))
        if share >= (MUCH if name in uneven else SOME):
            overall[name] = share
    if overall:
        names = sorted(overall, key=lambda name: (-overall[name], name))
        shown, least = some(f"{name!r} {percent(overall[name])}" for name in names), percent(SOME)
        yield Finding(
            "risky" if overall[names[0]] >= MUCH else "note",
            "missing-values",
            f"{many(len(names), f'column lacks {least} of its', f'columns lack {least} of their')} values or more",
            f"Missing: {shown}. A fit fills in the median and adds a column that says where.",
            "Find out why they are missing; leave columns that are mostly empty out: "
            f"{flag('--exclude', [n for n in names if overall[n] >= MUCH] or names[:1], 8)}.",
            tuple(names),
            overall[names[0]],
        )
    if uneven:
        entirely = [name for name, (_, worst, _) in uneven.items() if worst == 1.0]
        each = (
            f"{name!r}: {percent(worst)} in {listed(who, limit=4)}, {percent(best)} elsewhere at best"
            for name, (who, worst, best) in uneven.items()
        )
        yield risky(
            "missing-in-groups",
            f"{many(len(uneven), 'column is', 'columns are')} missing in some groups"
            + (" entirely" if entirely else " far more than in others"),
            f"{some(each, 5, '; ')}. That a value is missing tells the group, and in a new group it may mean something "
            "else.",
            f"Leave them out unless they are recorded wherever the model will be used: {flag('--exclude', uneven, 8)}.",
            *case.of_features(uneven),
        )


@check
def shared_rows(case: Case) -> Iterator[Finding]:
    """Rows with the same features and target in two groups: groups that are not apart."""
    rows = np.flatnonzero(case.codes >= 0)
    if len(case.names) < 2 or not case.features or len(rows) < 4:
        return
    hashes, codes = case.hashes[rows], case.codes[rows]
    order = np.lexsort((codes, hashes))
    values, starts, counts = np.unique(hashes[order], return_index=True, return_counts=True)
    first, last = codes[order][starts], codes[order][starts + counts - 1]
    across = first != last  # sorted by group within a value
    if not across.any() or not _rich(case, len(values), len(rows)):
        return
    affected = int(counts[across].sum())
    share = affected / len(rows)
    if affected < 4 and share < 0.01:
        return
    test = np.asarray([name in set(case.test) for name in case.names])[codes[order]]
    leaks = int((np.logical_or.reduceat(test, starts) & np.logical_or.reduceat(~test, starts)).sum())
    pairs = Counter((case.names[a], case.names[b]) for a, b in zip(first[across], last[across], strict=True))
    top = sorted(pairs, key=lambda pair: (-pairs[pair], pair))[:3]
    shown = ", ".join(f"{pairs[pair]} in both {pair[0]!r} and {pair[1]!r}" for pair in top)
    what = "features and target" if case.target is not None else "values"
    yield Finding(
        "serious" if leaks or share >= 0.1 else "risky",
        "shared-rows",
        f"{many(affected, 'row comes', 'rows come')} in several groups",
        f"The same {what} in more than one group, e.g. {shown}; {percent(share)} of all rows."
        + (f" {many(leaks, 'such row is', 'such rows are')} in a training and a test group." if leaks else "")
        + " Groups that share rows are not apart: a test on one is no test.",
        "Find out which group each belongs to, and keep it there once.",
        tuple(dict.fromkeys(name for pair in top for name in pair)),
        share,
    )


def _rich(case: Case, distinct: int, rows: int) -> bool:
    """Whether rows say so much that two hardly agree by luck."""
    if 2 * distinct >= rows:
        return True
    return any(p.distinct >= max(ENOUGH, 0.2 * distinct) for p in case.profiles.values())


# ---------------------------------------------------------------- leaks


def identifying(case: Case) -> set[str]:
    """Columns that settle which group a row is of: nothing else could be seen beside them."""
    return {
        name
        for name, profile in case.profiles.items()
        if is_identifier(profile) or (profile.tells_group and (profile.kind == "text" or profile.group_level))
    }


@check
def leaks_group(case: Case) -> Iterator[Finding]:
    """A column whose value tells the group lets a model remember groups instead of learning what holds across them."""
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
    numbers = {
        profile.name: profile
        for profile in profiles
        if profile.kind != "text" and not profile.group_level and (profile.apart or profile.tells_group)
    }
    if numbers:
        yield risky(
            "leaks-group",
            f"{many(len(numbers), 'column of numbers tells', 'columns of numbers tell')} the groups apart",
            some(map(_how_number, numbers.values()), 5, "; ")
            + ". A model can tell the group from it, and has to extrapolate in a new group.",
            f"If it is a stand-in for the group (a code, a date of collection): {flag('--exclude', numbers, 8)}.",
            *case.of_features(numbers),
        )


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


def target_leaks(case: Case) -> dict[str, str]:
    """By column that gives the target away, how it does so."""
    rows = np.flatnonzero(case.labelled)
    if len(rows) < FEWEST or case.target is None:
        return {}
    tried = rows[balanced_sample(case.hashes[rows], np.zeros(len(rows), dtype=np.int64), [0], TRIED)]
    wanted = [
        name
        for name, profile in case.profiles.items()
        if profile.distinct >= 2 and not (profile.kind == "text" and is_identifier(profile))
    ]
    ways = {name: _gives_away(case, name, rows, tried) for name in wanted}
    return {name: how for name, how in ways.items() if how is not None}


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
        scaled = np.ldexp(target, -np.frexp(np.abs(target).max())[1])  # neither squares nor sums can overflow
        scaled -= scaled.mean()
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


@check
def leaks_target(case: Case) -> Iterator[Finding]:
    """A column that is the target in disguise: the fit will look perfect and be of no use."""
    leaks = target_leaks(case)
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
