"""Checks of the groups themselves: how many, how large, how they are spelt."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

import numpy as np

from toporo.doctor.case import Case, Check
from toporo.doctor.results import Finding
from toporo.doctor.words import count_of, percent, some
from toporo.errors import listed

#: Fewer rows make a group's loss mostly noise; below the second number, nothing but noise.
SMALL, TINY = 20, 5
#: How many times the smallest group the largest may be, and the share of all rows that makes one group all there is.
UNEVEN, DOMINANT = 50, 0.9


def spelling(name: str) -> str:
    """A name without what people write in several ways: case, blanks, dashes, leading zeros, width of letters."""
    plain = re.sub(r"[\s_\-–—./]+", "", unicodedata.normalize("NFKC", name).casefold())
    if re.fullmatch(r"\d+0", plain) and re.search(r"\.0$", name.strip()):
        plain = plain[:-1]  # 3.0 is 3
    return plain.lstrip("0") or plain


def look_alikes(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Sets of names that differ only in spelling."""
    sets: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        sets.setdefault(spelling(name), []).append(name)
    return [tuple(found) for found in sets.values() if len(found) > 1]


def single_group(case: Case) -> Iterator[Finding]:
    """One group, or one to train on: there is nothing to be robust over."""
    if len(case.names) == 1:
        yield Finding(
            "serious",
            "one-group",
            "There is a single group",
            f"Every row of column {case.group!r} says {case.names[0]!r}. Robustness is over groups: it needs several.",
            "Give --group another column, or fit an ordinary model.",
            case.names,
            1.0,
        )
    elif len(case.train) == 1:
        yield Finding(
            "serious",
            "one-training-group",
            "There is a single group to train on",
            f"All groups but {case.train[0]!r} are test groups.",
            "Name fewer groups in --test-groups.",
            case.train,
            1.0,
        )


def group_per_row(case: Case) -> Iterator[Finding]:
    """Groups of one row throughout: the column names rows, not groups."""
    rows = sum(case.sizes.values())
    if rows > 2 and 2 * len(case.names) > rows:
        yield Finding(
            "serious",
            "group-per-row",
            "Nearly every row is a group of its own",
            f"Column {case.group!r} has {count_of(len(case.names), 'group')} in {count_of(rows, 'row')}: it looks like "
            "an identifier of rows.",
            "Give --group a column whose values many rows share, or merge groups into larger ones.",
            (case.group,),
            1.0,
        )


def small_groups(case: Case) -> Iterator[Finding]:
    """Groups whose loss is mostly noise, as such and for the number of features."""
    sizes = {name: case.sizes[name] for name in case.train}
    small = sorted((name for name in sizes if sizes[name] < SMALL), key=lambda name: (sizes[name], name))
    if small:
        tiny = [name for name in small if sizes[name] < TINY]
        shown = some(f"{name!r} ({sizes[name]})" for name in small)
        yield Finding(
            "serious" if tiny else "risky",
            "small-group",
            f"{count_of(len(small), 'training group has', 'training groups have')} fewer than {SMALL} rows",
            f"Rows: {shown}. The loss of a small group is mostly noise, and the worst case over groups follows the "
            "noise.",
            "Merge them with groups that are like them, collect more rows, or leave them out.",
            tuple(small),
            case.share_of_groups(small),
        )
    scarce = [name for name in sizes if SMALL <= sizes[name] < 2 * case.width]
    if scarce:
        least = min(scarce, key=lambda name: (sizes[name], name))
        yield Finding(
            "risky",
            "small-for-features",
            f"{count_of(len(scarce), 'training group has', 'training groups have')} few rows for "
            f"{count_of(case.width, 'column')} of features",
            f"{listed(scarce)}; the smallest is {least!r} with {count_of(sizes[least], 'row')}. With fewer than two "
            "rows a column a linear model can fit a group's noise.",
            "Use fewer features (--features), or a stronger ridge.",
            tuple(scarce),
            case.share_of_groups(scarce),
        )


def uneven_groups(case: Case) -> Iterator[Finding]:
    """One group that is nearly everything, or sizes far apart."""
    sizes = {name: case.sizes[name] for name in case.train}
    if len(sizes) < 2:
        return
    largest = max(sizes, key=lambda name: (sizes[name], name))
    smallest = min(sizes, key=lambda name: (sizes[name], name))
    share = sizes[largest] / sum(sizes.values())
    if share >= DOMINANT or sizes[largest] >= UNEVEN * sizes[smallest]:
        yield Finding(
            "risky" if share >= DOMINANT else "note",
            "uneven-groups",
            f"One group holds {percent(share)} of the training rows"
            if share >= DOMINANT
            else "Groups are of very uneven sizes",
            f"{largest!r} has {count_of(sizes[largest], 'row')}, {smallest!r} has {sizes[smallest]:,}. Methods here "
            "weigh groups, not rows: a row of a small group counts for many of a large one.",
            "Fine if every group matters alike; else compare with --method erm, and look at the small groups' losses.",
            (largest, smallest),
            share,
        )


def group_missing(case: Case) -> Iterator[Finding]:
    """Rows that belong to no group."""
    absent = int((case.codes < 0).sum())
    if absent:
        row = int(np.argmax(case.codes < 0)) + case.frame.first
        yield Finding(
            "serious",
            "group-missing",
            f"{count_of(absent, 'row has', 'rows have')} no group",
            f"Column {case.group!r} is empty in {percent(absent / len(case.codes))} of the rows (first: row {row}).",
            "Fill the column in, or leave those rows out with --drop-missing.",
            (case.group,),
            absent / len(case.codes),
        )


def spelt_alike(case: Case) -> Iterator[Finding]:
    """Groups whose names differ only in case or blanks: probably one group."""
    sets = look_alikes([*case.names, *case.test])
    if sets:
        shown = some((" and ".join(repr(name) for name in alike) for alike in sets), 5, "; ")
        yield Finding(
            "serious",
            "spelt-alike",
            f"{count_of(len(sets), 'group is', 'groups are')} written in several ways",
            f"{shown}. Names are compared as they are: these are different groups to every method.",
            f"Write each in one way in column {case.group!r} (and in --test-groups).",
            tuple(name for alike in sets for name in alike),
            case.share_of_groups(name for alike in sets for name in alike),
        )


CHECKS: tuple[Check, ...] = (
    single_group,
    group_per_row,
    small_groups,
    uneven_groups,
    group_missing,
    spelt_alike,
)
