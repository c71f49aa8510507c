"""Checks of the target, in the training groups only: a test group's targets are looked at by nobody before training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.data.frame import Numbers
from toporo.doctor.measure import Case, check
from toporo.doctor.results import Finding, listed, note, percent, risky, serious, some
from toporo.text import many, number

#: A class with a smaller share of the rows is rare.
RARE = 0.05
#: Shares of a class that differ by more between groups are worth a word.
RATE_GAP = 0.3
#: Fewest rows of a group whose share of a class or range is worth a word.
COUNTED = 10
#: How many interquartile ranges beyond the quartiles a target is far out.
FAR_OUT = 8.0
#: Least share of the target's variance between groups that is worth a word.
BETWEEN = 0.5
#: Whole numbers of which so few differ may be classes.
FEW_NUMBERS = 10


@check
def no_target(case: Case) -> Iterator[Finding]:
    """Without a target, half of the checks have nothing to look at."""
    if case.target is None:
        yield note(
            "no-target",
            "No target was named",
            "Leaks and imbalance of the target were not looked for, and the target may be among the features.",
            "Name it: --target COLUMN.",
        )


@check
def target_missing(case: Case) -> Iterator[Finding]:
    """Training rows without a target."""
    if case.target is None:
        return
    absent = case.training_rows & case.frame[case.target].missing
    count, rows = int(absent.sum()), int(case.training_rows.sum())
    if not count:
        return
    by_group = np.bincount(case.codes[absent], minlength=len(case.names))
    without = [name for name, lacking in zip(case.names, by_group, strict=True) if 0 < lacking == case.sizes[name]]
    if count == rows:
        detail = f"Column {case.target!r} is empty in every training row."
    else:
        detail = f"Column {case.target!r} is empty in {percent(count / rows)} of them."
    if without and count < rows:
        detail += f" Nothing is left of {listed(without)}."
    yield serious(
        "target-missing",
        f"{many(count, 'training row has', 'training rows have')} no target",
        detail,
        f"If these groups are those to predict, say --test-groups with {listed(without, limit=4)}; else --drop-rows."
        if without and count < rows
        else "Fill the column in, or leave those rows out with --drop-rows.",
        tuple(without) or (case.target,),
        count / rows,
    )


@check
def constant_target(case: Case) -> Iterator[Finding]:
    """A target that is the same everywhere, or the same within every group."""
    values = _codes(case)
    if case.target is None or values is None or not len(values):
        return
    groups = case.codes[case.labelled]
    if len(np.unique(values)) == 1:
        yield serious(
            "constant-target",
            "The target is the same in every training row",
            f"{case.target!r} does not vary: there is nothing to predict.",
            "Give --target another column, or look at how the rows were chosen.",
            (case.target,),
            1.0,
        )
        return
    pairs = np.unique(np.stack([groups, values]), axis=1)
    sizes = np.bincount(groups, minlength=len(case.names))
    if len(pairs[0]) == len(np.unique(groups)) and (sizes >= 2).any() and len(pairs[0]) > 1:
        yield serious(
            "target-by-group",
            "The target is constant within every training group",
            f"Which group a row is of settles {case.target!r}: there are as many cases as groups "
            f"({len(pairs[0])}), not as many as rows.",
            "If the target belongs to groups, make a table with one row per group; else look for an error in it.",
            (case.target,),
            1.0,
        )


def _codes(case: Case) -> npt.NDArray[Any] | None:
    """The target of the labelled rows, in any form that tells equals from others."""
    if case.labels is not None:
        return case.labels.codes[case.labelled]
    return None if case.target_values is None else case.target_values[case.labelled]


@check
def text_as_numbers(case: Case) -> Iterator[Finding]:
    """A regression on text cannot be."""
    if case.target is not None and case.task == "regression" and not isinstance(case.frame[case.target], Numbers):
        yield serious(
            "target-not-numbers",
            "The target is text, so it cannot be regressed on",
            f"Column {case.target!r} holds text such as {case.frame.text(case.target).levels[:1]}.",
            "Correct the cells that are no numbers, or say --task classification.",
            (case.target,),
            1.0,
        )


@check
def dates_as_numbers(case: Case) -> Iterator[Finding]:
    """Dates to predict are numbers of days."""
    if case.target is not None and case.frame[case.target].kind == "date" and case.task == "regression":
        yield note(
            "date-target",
            "The target holds dates",
            f"{case.target!r} is predicted as a number: days since 1970-01-01.",
            "Consider the days since something that happened to the row, which mean the same in every group.",
            (case.target,),
        )


@check
def numbers_as_classes(case: Case) -> Iterator[Finding]:
    """Numbers that may be names of classes, and classes that may be numbers."""
    if case.target_values is not None:
        values = np.unique(case.target_values[case.labelled])
        if (
            2 < len(values) <= FEW_NUMBERS
            and (values == np.round(values)).all()
            and case.labelled.sum() > 3 * len(values)
        ):
            yield note(
                "classes-as-numbers",
                "The target's numbers may be classes",
                f"{case.target!r} takes {len(values)} whole numbers only ({', '.join(f'{v:g}' for v in values)}), and "
                "will be predicted as a number.",
                "If they are names of classes, say --task classification.",
                (str(case.target),),
            )
    elif case.labels is not None:
        classes = len(np.unique(case.labels.codes[case.labelled]))
        if classes > max(20, int(case.labelled.sum()) // 2):
            yield serious(
                "too-many-classes",
                f"The target has {many(classes, 'class', 'classes')} in {many(int(case.labelled.sum()), 'row')}",
                f"Column {case.target!r} holds text that hardly repeats.",
                "If it should be numbers, correct the cells that are not; else give --target another column.",
                (str(case.target),),
                1.0,
            )


@check
def classes_by_group(case: Case) -> Iterator[Finding]:
    """Classes that are rare, that some groups lack, or whose share differs much between groups."""
    if case.labels is None or not case.labelled.any():
        return
    levels = case.labels.levels
    y, groups = case.labels.codes[case.labelled].astype(np.int64), case.codes[case.labelled]
    table = np.bincount(groups * len(levels) + y, minlength=len(case.names) * len(levels))
    table = table.reshape(len(case.names), len(levels))
    there = np.flatnonzero(table.sum(axis=0))
    if len(there) < 2 or len(there) > max(20, len(y) // 2):
        return
    if ((table > 0).sum(axis=1) <= 1).all():
        return  # each group has one class: that is said elsewhere
    totals = table.sum(axis=0)
    rare = [int(label) for label in there if totals[label] < RARE * len(y) * min(1.0, 2 / len(there))]
    if rare:
        shown = some(f"{levels[label]!r} {percent(totals[label] / len(y))}" for label in rare)
        yield note(
            "rare-class",
            f"{many(len(rare), 'class is', 'classes are')} rare",
            f"Of the training rows: {shown}. Accuracy hardly notices a rare class.",
            "Judge by log loss and balanced accuracy, which toporo evaluate gives.",
            tuple(levels[label] for label in rare),
            len(rare) / len(there),
        )
    counted = np.flatnonzero(table.sum(axis=1) >= COUNTED)
    yield from _lone_classes(case, table, there)
    if len(counted) < 2:
        return
    sizes = table[counted].sum(axis=1)
    # A class is missed where it should be there: by its overall share, some rows were to be expected.
    expected = sizes[:, None] * (totals / len(y))[None, :]
    absent = (table[counted] == 0) & (expected >= 5)
    lacking = {
        case.names[group]: [levels[k] for k in np.flatnonzero(absent[i])]
        for i, group in enumerate(counted)
        if absent[i].any()
    }
    if lacking:
        shown = some((f"{name!r} has no {listed(missing, limit=3)}" for name, missing in lacking.items()), 5, "; ")
        yield risky(
            "absent-class",
            f"{many(len(lacking), 'training group lacks', 'training groups lack')} a class",
            f"{shown}. The loss of such a group is small for a model that never predicts the class.",
            "Find out whether the class cannot occur there or was not recorded; merge groups if need be.",
            *case.of_groups(lacking),
        )
    shares, pooled = table[counted] / sizes[:, None], totals / len(y)
    noise = 2 * np.sqrt(pooled * (1 - pooled) / sizes[:, None])  # a small group's share must stand out by more
    gaps = (shares - noise).max(axis=0) - (shares + noise).min(axis=0)
    label = int(np.argmax(gaps))
    if gaps[label] > RATE_GAP:
        least, most = int((shares + noise)[:, label].argmin()), int((shares - noise)[:, label].argmax())
        low, high = case.names[counted[least]], case.names[counted[most]]
        yield risky(
            "label-shift",
            "The classes' shares differ much between groups",
            f"{levels[label]!r} makes {percent(float(shares[least, label]))} of {low!r} and "
            f"{percent(float(shares[most, label]))} of {high!r} ({percent(float(pooled[label]))} overall).",
            "Look at the loss of every group after the fit (toporo explain), not at the mean alone.",
            (low, high),
            float(gaps[label]),
        )


def _lone_classes(case: Case, table: npt.NDArray[Any], there: npt.NDArray[Any]) -> Iterator[Finding]:
    """Groups that have rows of one class only, and classes that one group has alone."""
    groups = [case.names[group] for group in np.flatnonzero((table > 0).sum(axis=1) == 1)]
    if groups:
        yield note(
            "one-class-group",
            f"{many(len(groups), 'training group has', 'training groups have')} rows of one class only",
            f"{listed(groups)}. The worst case over groups can be met there by answering by the group.",
            "Merge such groups with others, or raise the penalty.",
            *case.of_groups(groups),
        )
    owners = {int(label): np.flatnonzero(table[:, label]) for label in there}
    alone = {label: case.names[who[0]] for label, who in owners.items() if len(who) == 1}
    if alone and case.labels is not None:
        levels = case.labels.levels
        shown = some((f"{levels[label]!r} in {name!r}" for label, name in alone.items()), 5)
        yield risky(
            "lone-class",
            f"{many(len(alone), 'class is', 'classes are')} found in a single training group",
            f"{shown}. With that group held out, nothing is known of the class: probabilities and the penalty are "
            "settled without it.",
            "Join it with another class, or collect it in other groups.",
            tuple(levels[label] for label in alone),
            len(alone) / len(there),
        )


@check
def target_by_group(case: Case) -> Iterator[Finding]:
    """A number to predict whose groups hardly overlap, or with values far out."""
    if case.target_values is None or case.labelled.sum() < COUNTED:
        return
    y, groups = case.target_values[case.labelled], case.codes[case.labelled]
    quarter, half, three = np.quantile(y, [0.25, 0.5, 0.75])
    with np.errstate(over="ignore"):  # from what is infinitely wide nothing is far
        width = three - quarter
        far = (y < quarter - FAR_OUT * width) | (y > three + FAR_OUT * width)
        worst = float(y[np.abs(y - half).argmax()])
    if width > 0 and far.any():
        yield Finding(
            "risky" if far.mean() < 0.005 else "note",
            "target-outliers",
            f"{many(int(far.sum()), 'target is', 'targets are')} far from all others",
            f"{case.target!r} has its middle half between {number(quarter, digits=4)} and {number(three, digits=4)}, "
            f"but goes as far as {number(worst, digits=4)}. Squared errors make such rows rule the fit.",
            "Look at these rows; if they are right, predict the logarithm or clip them.",
            (str(case.target),),
            float(far.mean()),
        )
    counts = np.bincount(groups, minlength=len(case.names))
    counted = np.flatnonzero(counts >= 2)
    if len(counted) < 2:
        return
    low, high = np.full(len(case.names), np.inf), np.full(len(case.names), -np.inf)
    np.minimum.at(low, groups, y)
    np.maximum.at(high, groups, y)
    alone = [
        case.names[i]
        for i in np.flatnonzero(counts >= COUNTED)
        if not any(j != i and low[j] <= high[i] and low[i] <= high[j] for j in counted)
    ]
    scale = max(float(np.abs(y).max()), 1e-300)
    z = y / scale
    means = np.bincount(groups, z, minlength=len(case.names)) / np.maximum(counts, 1)
    total = float(((z - z.mean()) ** 2).sum())
    within = float(((z - means[groups]) ** 2).sum())
    # Adjusted for what group means explain by chance.
    free = len(y) - int((counts > 0).sum())
    between = 1.0 - (within / free) / (total / (len(y) - 1)) if free > 0 and total > 0 else 0.0
    if alone or between >= BETWEEN:
        detail = f"{percent(max(0.0, between))} of the variance of {case.target!r} lies between groups."
        if alone:
            detail += f" Ranges that meet no other group's: {listed(alone)}."
        yield risky(
            "target-shift",
            "Groups differ much in their targets",
            f"{detail} What a model learns is mostly which group it is in, and a new one may lie outside all of them.",
            "Consider a target relative to its group (a change, a ratio), and look at hold-out groups with "
            "toporo evaluate.",
            tuple(alone),
            max(between, case.of_groups(alone)[1]),
        )
