"""Checks of the features one by one: constant, identifying rows, missing; and of rows that come twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from toporo.data.frame import Frame, Numbers
from toporo.doctor.measure import Case, Profile, check
from toporo.doctor.results import Finding, flag, it, listed, note, percent, risky, serious, some
from toporo.tables.read import taken_for_text
from toporo.text import many

#: Fewest rows of which no two share a value that are not chance.
ENOUGH = 20
#: Shares of missing cells that are worth a word, and that are a risk.
SOME, MUCH = 0.05, 0.4
#: Share by which missing cells must be commoner in one group than in another to say so.
GAP = 0.5
#: Shares of all rows, or of the test rows, that come in several groups: worth a word, and serious.
FEW_SHARED, MANY_SHARED = 0.001, 0.1
#: Names of columns that number rows.
_KEY = re.compile(r"(^|[\W_])(id|ids|key|uuid|guid|index|idx|nr|no|number|row|rowid)$", re.IGNORECASE)
#: Names of columns that say when, …
_WHEN = re.compile(r"(^|[\W_])(year|yr|date|time|timestamp|week|month|day|quarter|period)s?(_since_(the_)?start)?$")
#: … or when something began, …
_BEGAN = re.compile(r"birth|built|build|construct|model|made|found|renov|open|start_|hire")
#: … and the most that a number comes to that begins anew every year.
_ROUND = {"month": 12, "day": 31, "quarter": 4, "week": 53}
#: Fewest points in time that make a column one of time.
TIMES = 4


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


def time_column(case: Case) -> str | None:
    """The column that says when a row was, if there is one: dates, or numbers that are named so.

    Excluded columns count, too. Where several do, dates come first, then the one with the most values.
    """
    times: dict[str, tuple[bool, int]] = {}
    for name in case.frame.names:
        column = case.frame[name]
        if name in (case.group, case.target) or not isinstance(column, Numbers):
            continue
        plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        met, dated = _WHEN.search(plain), column.kind == "date"
        if _BEGAN.search(plain) or not (dated or met):
            continue
        rows = np.flatnonzero((case.codes >= 0) & ~column.missing)
        values, codes = np.unique(column.values[rows], return_inverse=True)
        most = -np.inf if dated or met is None or met.group(3) else _ROUND.get(met.group(2), -np.inf)
        if len(values) < TIMES or values[-1] <= most:
            continue
        pairs = np.unique(case.codes[rows] * len(values) + codes.reshape(-1)) // len(values)
        if 2 * (np.bincount(pairs) > 1).sum() >= len(np.unique(pairs)):  # most groups are seen at several times
            times[name] = (dated, len(values))
    return max(times, key=lambda name: (times[name], name), default=None)


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
def numbers_as_text(case: Case) -> Iterator[Finding]:
    """Columns that were probably meant to hold numbers or dates."""
    names = [*([case.target] if case.target is not None else []), *case.features]
    rows = Frame({name: case.frame[name] for name in names}).take(np.flatnonzero(case.training_rows))
    for reason, columns, remedy in taken_for_text(rows, names):
        shown = some(f"{name!r} ({examples})" for name, examples in columns.items())
        yield risky(
            "numbers-as-text",
            f"{many(len(columns), 'column is', 'columns are')} read as text, because {reason}",
            f"{shown}. As text, every value is a category of its own.",
            remedy,
            *case.of_features(list(columns)),
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
    """Rows with the same features and target in two groups: groups that are not apart.

    Targets of test groups are not read. Rows there count by their features, if equal features in training groups come
    with equal targets.
    """
    hashes, rows, what = case.hashes, np.flatnonzero(case.codes >= 0), "features and target"
    if case.target is None:
        what = "values"
    elif case.test:
        train = np.flatnonzero(case.training_rows)
        by_features, by_both = (len(np.unique(each[train])) for each in (case.feature_hashes, case.hashes))
        if len(case.train) > 1 and by_both <= 1.1 * by_features:
            hashes, what = case.feature_hashes, "features"
        else:
            rows = train
    if len(case.names) < 2 or not case.features or len(rows) < 4:
        return
    hashes, codes = hashes[rows], case.codes[rows]
    order = np.lexsort((codes, hashes))
    values, starts, counts = np.unique(hashes[order], return_index=True, return_counts=True)
    first, last = codes[order][starts], codes[order][starts + counts - 1]
    across = first != last  # sorted by group within a value
    if not across.any() or not _rich(case, len(values), len(rows)):
        return
    affected = int(counts[across].sum())
    share = affected / len(rows)
    test = np.asarray([name in set(case.test) for name in case.names])[codes[order]]
    both = np.logical_or.reduceat(test, starts) & np.logical_or.reduceat(~test, starts)
    known = np.add.reduceat(test, starts)[both].sum() / max(1, int(test.sum()))  # of the test rows
    if max(share, known) < FEW_SHARED or (affected < 4 and share < 0.01):
        return
    leaks = int(both.sum())
    pairs = Counter((case.names[a], case.names[b]) for a, b in zip(first[across], last[across], strict=True))
    top = sorted(pairs, key=lambda pair: (-pairs[pair], pair))[:3]
    shown = ", ".join(f"{pairs[pair]} in both {pair[0]!r} and {pair[1]!r}" for pair in top)
    yield Finding(
        "serious" if max(share, known) >= MANY_SHARED else "risky" if max(share, known) >= 0.01 else "note",
        "shared-rows",
        f"{many(affected, 'row comes', 'rows come')} in several groups",
        f"The same {what} in more than one group, e.g. {shown}; {percent(share)} of all rows."
        + (
            f" {many(leaks, 'such row is', 'such rows are')} in a training and a test group: {percent(float(known))} "
            "of the test rows."
            if leaks
            else ""
        )
        + " Groups that share rows are not apart: a test on one is no test.",
        "Find out which group each belongs to, and keep it there once.",
        tuple(dict.fromkeys(name for pair in top for name in pair)),
        float(max(share, known)),
    )


def _rich(case: Case, distinct: int, rows: int) -> bool:
    """Whether rows say so much that two hardly agree by luck."""
    if 2 * distinct >= rows:
        return True
    return any(p.distinct >= max(ENOUGH, 0.2 * distinct) for p in case.profiles.values())
