"""Checks of the features one by one: unused, identifying rows, missing; and of rows that come twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from toporo.data.frame import Frame, Numbers
from toporo.doctor.case import Case, check
from toporo.doctor.results import Finding, flag, note, percent, risky, some
from toporo.errors import listed
from toporo.tables.read import taken_for_text
from toporo.text import many

#: Shares of missing cells that are worth a word, and that are a risk.
SOME, MUCH = 0.05, 0.4
#: Share by which missing cells must be commoner in one group than in another to say so.
GAP = 0.5
#: Shares of all rows, or of the test rows, that come in several groups: worth a word, a risk, and serious.
FEW_SHARED, SOME_SHARED, MANY_SHARED = 0.001, 0.01, 0.1
#: Names of columns that say when, and of those that say when something began.
_WHEN = re.compile(r"(^|[\W_])((year|yr|date|time|timestamp)s?|(weeks|months|days|quarters)_since_(the_)?start)$")
_BEGAN = re.compile(r"birth|built|build|construct|model|made|found|renov|open|start_|hire")
#: Fewest points in time that make a column one of time.
TIMES = 4


def time_column(case: Case) -> str | None:
    """Return the column that says when a row was, if there is one: dates, or numbers that are named so.

    Excluded columns count, too. Where several do, dates come first, then the one with the most values.
    """
    times: dict[str, tuple[bool, int]] = {}
    for name in case.frame.names:
        column = case.frame[name]
        if name in (case.roles.group, case.target) or not isinstance(column, Numbers):
            continue
        plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        if _BEGAN.search(plain) or not (column.kind == "date" or _WHEN.search(plain)):
            continue
        rows = np.flatnonzero((case.codes >= 0) & ~column.missing)
        values, codes = np.unique(column.values[rows], return_inverse=True)
        pairs = np.unique(case.codes[rows] * len(values) + codes.reshape(-1)) // max(1, len(values))
        several = 2 * (np.bincount(pairs) > 1).sum() >= len(np.unique(pairs))  # most groups are seen at several times
        if len(values) >= TIMES and several:
            times[name] = (column.kind == "date", len(values))
    return max(times, key=lambda name: (times[name], name), default=None)


@check
def unused_columns(case: Case) -> Iterator[Finding]:
    """Columns that a fit leaves out."""
    if case.encoder is not None and (out := case.encoder.left_out):
        yield note(
            "unused-column",
            f"{many(len(out), 'column', 'columns')} will not be used",
            f"{some((f'{name!r} ({why})' for name, why in out.items()), 5)}.",
            "Nothing to do: a fit leaves them out. Look at them if they should hold something.",
            *case.of_features(out),
        )


@check
def identifiers(case: Case) -> Iterator[Finding]:
    """Columns that number rows."""
    names = [name for name, profile in case.profiles.items() if profile.identifier and profile.kind == "number"]
    if names:
        yield risky(
            "identifier",
            f"{many(len(names), 'column numbers', 'columns number')} the rows",
            f"{listed(names)}: no two rows share a value. What a model learns from it holds for these rows only.",
            f"{flag('--exclude', names, 8)}.",
            *case.of_features(names),
        )


@check
def numbers_as_text(case: Case) -> Iterator[Finding]:
    """Columns that were probably meant to hold numbers or dates."""
    names = [*([case.target] if case.target is not None else []), *case.features]
    rows = Frame({name: case.frame[name] for name in names}).take(np.flatnonzero(case.training_rows))
    for reason, columns, remedy in taken_for_text(rows, names, case.roles.categorical):
        yield risky(
            "numbers-as-text",
            f"{many(len(columns), 'column is', 'columns are')} read as text, because {reason}",
            f"{some(f'{name!r} ({examples})' for name, examples in columns.items())}. As text, every value is a "
            "category of its own.",
            remedy,
            *case.of_features(columns),
        )


@check
def missing_values(case: Case) -> Iterator[Finding]:
    """Columns with many missing cells, and columns that are missing where the group says so."""
    total = np.asarray(list(case.sizes.values()), dtype=float)
    counted = total >= 5  # a group of a few rows misses everything by luck now and then
    overall: dict[str, float] = {}
    uneven: dict[str, str] = {}
    for name, profile in case.profiles.items():
        if not profile.known:
            continue
        share, by_group = 1.0 - profile.known / total.sum(), 1.0 - profile.sizes / total
        worst, best = by_group[counted].max(initial=0.0), by_group[counted].min(initial=1.0)
        if worst - best >= GAP:
            who = [case.names[i] for i in np.flatnonzero(counted & (by_group >= worst - 0.1))]
            uneven[name] = f"{name!r}: {percent(worst)} in {listed(who, limit=4)}, {percent(best)} elsewhere at best"
        if share >= (MUCH if name in uneven else SOME):
            overall[name] = float(share)
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
        yield risky(
            "missing-in-groups",
            f"{many(len(uneven), 'column is', 'columns are')} missing in some groups far more than in others",
            f"{some(uneven.values(), 5, '; ')}. That a value is missing tells the group, and in a new group it may "
            "mean something else.",
            f"Leave them out unless they are recorded wherever the model will be used: {flag('--exclude', uneven, 8)}.",
            *case.of_features(uneven),
        )


@check
def shared_rows(case: Case) -> Iterator[Finding]:
    """Rows that come in two groups: groups that are not apart.

    Rows are compared by features and target, or with test groups, whose targets are not read, by features alone. They
    must say enough that two hardly agree by luck.
    """
    rows = np.flatnonzero(case.codes >= 0)
    hashes, codes = (case.feature_hashes if case.test else case.hashes)[rows], case.codes[rows]
    order = np.lexsort((codes, hashes))
    _, starts, counts = np.unique(hashes[order], return_index=True, return_counts=True)
    first, last = codes[order][starts], codes[order][starts + counts - 1]
    across = first != last  # sorted by group within a value
    if not across.any() or 2 * len(starts) < len(rows):
        return
    affected = int(counts[across].sum())
    test = np.isin(codes[order], [code for code, name in enumerate(case.names) if name in case.test])
    both = np.logical_or.reduceat(test, starts) & np.logical_or.reduceat(~test, starts)
    known = float(np.add.reduceat(test, starts)[both].sum() / max(1, int(test.sum())))  # of the test rows
    share = max(affected / len(rows), known)
    if share < FEW_SHARED or (affected < 4 and share < SOME_SHARED):
        return
    pairs = Counter((case.names[a], case.names[b]) for a, b in zip(first[across], last[across], strict=True))
    top = sorted(pairs, key=lambda pair: (-pairs[pair], pair))[:3]
    leaks = f" {percent(known)} of the test rows are in a training group too." if known else ""
    yield Finding(
        "serious" if share >= MANY_SHARED else "risky" if share >= SOME_SHARED else "note",
        "shared-rows",
        f"{many(affected, 'row comes', 'rows come')} in several groups",
        f"The same {'features' if case.test or case.target is None else 'features and target'} in more than one group, "
        f"e.g. {', '.join(f'{pairs[pair]} in both {pair[0]!r} and {pair[1]!r}' for pair in top)}; "
        f"{percent(affected / len(rows))} of all rows.{leaks} Groups that share rows are not apart: a test on one is "
        "no test.",
        "Find out which group each belongs to, and keep it there once.",
        tuple(dict.fromkeys(name for pair in top for name in pair)),
        share,
    )
