"""Checks of the features one by one: constant, identifying rows, missing; and of rows that come twice."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from toporo.doctor.case import Case, Check, Profile
from toporo.doctor.results import Finding
from toporo.doctor.words import count_of, flag, percent, some
from toporo.errors import listed

#: Rows from which on it is no accident that no two share a value.
ENOUGH = 20
#: Shares of missing cells that are worth a word, and that are a risk.
SOME, MUCH = 0.05, 0.4
#: Share by which missing cells must be commoner in one group than in another to say so.
GAP = 0.5
#: Names of columns that number rows.
_KEY = re.compile(r"(^|[\W_])(id|ids|key|uuid|guid|index|idx|nr|no|number|row|rowid)$", re.IGNORECASE)


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


def no_features(case: Case) -> Iterator[Finding]:
    """Nothing to learn from."""
    if case.encoder is None or not case.encoder.names:
        yield Finding(
            "serious",
            "no-features",
            "No column can be used as a feature",
            f"Of {count_of(len(case.features), 'column')} beside the group and the target, every one is empty, "
            "constant or an identifier.",
            "Add columns that say something about a row, or name one with --features.",
            case.features,
            1.0,
        )


def empty_or_constant(case: Case) -> Iterator[Finding]:
    """Columns without a value, or with the same everywhere."""
    for code, what, wanted in (("empty-column", "empty", 0), ("constant-column", "the same in every row", 1)):
        found = [name for name, profile in case.profiles.items() if profile.distinct == wanted]
        if found:
            yield Finding(
                "note",
                code,
                f"{count_of(len(found), 'column is', 'columns are')} {what}",
                f"{listed(found)}. Nothing can be learned from {'it' if len(found) == 1 else 'them'}.",
                "Nothing to do: a fit leaves them out and says so."
                if not case.chosen
                else "Take them out of --features.",
                tuple(found),
                len(found) / max(1, len(case.features)),
            )


def group_level(case: Case) -> Iterator[Finding]:
    """Columns that are the same within every group: there are as many values to learn from as groups."""
    found = [p for p in case.profiles.values() if p.group_level and not (p.kind == "text" and _tells(p))]
    if found:
        names = [profile.name for profile in found]
        shown = some(f"{p.name!r} ({count_of(p.distinct, 'value')})" for p in found)
        yield Finding(
            "risky",
            "group-level-column",
            f"{count_of(len(names), 'column is', 'columns are')} constant within every group",
            f"{shown}. However many rows there are, a model sees only "
            f"{count_of(len(case.names), 'group')} here, and can use such a column to remember them.",
            f"Keep what is known of a new group and means the same there; else {flag('--exclude', names, 8)}.",
            tuple(names),
            len(names) / max(1, len(case.features)),
        )


def _tells(profile: Profile) -> bool:
    return profile.by_group is not None and profile.by_group.telling


def identifiers(case: Case) -> Iterator[Finding]:
    """Columns that name rows: text is left out by itself, numbers are not."""
    found = [profile for profile in case.profiles.values() if is_identifier(profile)]
    for kinds, severity, step in (
        (("text",), "note", "Nothing to do: a fit leaves such text out, unless --features names it."),
        (("number",), "risky", ""),
    ):
        names = [profile.name for profile in found if profile.kind in kinds]
        if names:
            yield Finding(
                severity,
                "identifier",
                f"{count_of(len(names), 'column numbers', 'columns number')} the rows"
                if severity == "risky"
                else f"{count_of(len(names), 'column names', 'columns name')} every row",
                f"{listed(names)}: no two rows share a value. What a model learns from it holds for these rows only.",
                step or f"{flag('--exclude', names, 8)}.",
                tuple(names),
                len(names) / max(1, len(case.features)),
            )


def many_levels(case: Case) -> Iterator[Finding]:
    """Text with more values than a fit keeps."""
    if case.encoder is None:
        return
    found = {
        name: profile.distinct
        for name, profile in case.profiles.items()
        if profile.kind == "text" and name in case.encoder.left_out and profile.distinct > 1
    }
    found = {name: count for name, count in found.items() if not is_identifier(case.profiles[name])}
    if found:
        shown = some(f"{name!r} ({count:,} values)" for name, count in found.items())
        yield Finding(
            "note",
            "many-levels",
            f"{count_of(len(found), 'column of text has', 'columns of text have')} too many values to be used",
            f"{shown}. A fit leaves them out.",
            f"To use the commonest values all the same, name them: {flag('--features', found, 8)} (with the others).",
            tuple(found),
            len(found) / max(1, len(case.features)),
        )


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
        shown = some(f"{name!r} {percent(overall[name])}" for name in names)
        yield Finding(
            "risky" if overall[names[0]] >= MUCH else "note",
            "missing-values",
            f"{count_of(len(names), 'column lacks', 'columns lack')} {percent(SOME)} of its values or more"
            if len(names) == 1
            else f"{len(names)} columns lack {percent(SOME)} of their values or more",
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
        yield Finding(
            "risky",
            "missing-in-groups",
            f"{count_of(len(uneven), 'column is', 'columns are')} missing in some groups"
            + (" entirely" if entirely else " far more than in others"),
            f"{some(each, 5, '; ')}. That a value is missing tells the group, and in a new group it may mean something "
            "else.",
            f"Leave them out unless they are recorded wherever the model will be used: {flag('--exclude', uneven, 8)}.",
            tuple(uneven),
            len(uneven) / max(1, len(case.features)),
        )


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
    test = np.asarray([name in set(case.test) for name in case.names])
    kinds = np.asarray(
        [test[codes[order][s : s + c]].any() for s, c in zip(starts[across], counts[across], strict=True)]
    )
    plain = np.asarray(
        [(~test[codes[order][s : s + c]]).any() for s, c in zip(starts[across], counts[across], strict=True)]
    )
    leaks = int((kinds & plain).sum())
    pairs: dict[tuple[str, str], int] = {}
    for a, b in zip(first[across], last[across], strict=True):
        pair = (case.names[a], case.names[b])
        pairs[pair] = pairs.get(pair, 0) + 1
    top = sorted(pairs, key=lambda pair: (-pairs[pair], pair))[:3]
    shown = ", ".join(f"{pairs[pair]} in both {pair[0]!r} and {pair[1]!r}" for pair in top)
    what = "features and target" if case.target is not None else "values"
    yield Finding(
        "serious" if leaks or share >= 0.1 else "risky",
        "shared-rows",
        f"{count_of(affected, 'row comes', 'rows come')} in several groups",
        f"The same {what} in more than one group, e.g. {shown}; {percent(share)} of all rows."
        + (f" {count_of(leaks, 'such row is', 'such rows are')} in a training and a test group." if leaks else "")
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


CHECKS: tuple[Check, ...] = (
    no_features,
    empty_or_constant,
    group_level,
    identifiers,
    many_levels,
    missing_values,
    shared_rows,
)
