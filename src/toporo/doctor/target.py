"""Checks of the target, in the training groups only: a test group's targets are looked at by nobody before training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.doctor.case import Case, Codes, check
from toporo.doctor.results import Finding, percent, risky, serious, some
from toporo.errors import TopoRoError, listed, muted
from toporo.tables.read import prepare_table
from toporo.text import many
from toporo.types import Array

#: Fewest rows of a group whose range is worth a word.
COUNTED = 10
#: Least share of the variance of numbers, and of whether a row is of a class, between groups that is worth a word.
BETWEEN, BETWEEN_CLASSES = 0.5, 0.1


@check
def missing_roles(case: Case) -> Iterator[Finding]:
    """Rows that belong to no group, and training rows without a target."""
    lacking = case.codes < 0
    if lacking.any():
        share = float(lacking.mean())
        yield serious(
            "group-missing",
            f"{many(int(lacking.sum()), 'row has', 'rows have')} no group",
            f"Column {case.roles.group!r} is empty in {percent(share)} of the rows (first: row "
            f"{int(lacking.argmax()) + case.frame.first}).",
            "Fill the column in, or leave those rows out with --drop-rows.",
            (case.roles.group,),
            share,
        )
    if case.target is None:
        return
    absent = case.training_rows & ~case.labelled
    if absent.any():
        left = np.bincount(case.codes[case.labelled], minlength=len(case.names))
        without = [name for name, rows in zip(case.names, left, strict=True) if not rows and name in case.train]
        share = float(absent.sum() / case.training_rows.sum())
        yield serious(
            "target-missing",
            f"{many(int(absent.sum()), 'training row has', 'training rows have')} no target",
            f"Column {case.target!r} is empty in {percent(share)} of them."
            + (f" Nothing is left of {listed(without)}." if without else ""),
            "Fill the column in, or leave those rows out with --drop-rows"
            + (f"; if {listed(without, limit=4)} are to be predicted, name them in --test-groups." if without else "."),
            tuple(without) or (case.target,),
            share,
        )


@check
def refused_table(case: Case) -> Iterator[Finding]:
    """Whatever else makes a fit refuse the rows that have a group and a target."""
    if case.target is None or not case.labelled.any():
        return
    rows = np.flatnonzero((case.codes >= 0) & (case.labelled | ~case.training_rows))
    try:
        with muted():
            prepare_table(case.frame.take(rows), replace(case.roles, graph=case.graph))
    except TopoRoError as error:
        yield serious("refused", "A fit refuses this table", str(error), "Put that right first.", (), 1.0)


@check
def lone_classes(case: Case) -> Iterator[Finding]:
    """Classes that a single training group has."""
    if case.labels is None:
        return
    codes, y = case.codes[case.labelled], case.labels.codes[case.labelled]
    owners: dict[str, set[str]] = {}
    for label, group in np.unique(np.stack([y, codes]), axis=1).T.tolist():
        owners.setdefault(case.labels.levels[label], set()).add(case.names[group])
    alone = {level: min(who) for level, who in owners.items() if len(who) == 1}
    if alone and len(case.train) > 1 and len(owners) <= max(20, len(y) // 2):
        yield risky(
            "lone-class",
            f"{many(len(alone), 'class is', 'classes are')} found in a single training group",
            f"{some((f'{level!r} in {name!r}' for level, name in alone.items()), 5)}. With that group held out, "
            "nothing is known of the class: probabilities and the penalty are settled without it.",
            "Join it with another class, or collect it in other groups.",
            tuple(alone),
            len(alone) / len(owners),
        )


@check
def target_by_group(case: Case) -> Iterator[Finding]:
    """Numbers that differ mostly between groups, or classes whose shares differ much."""
    codes = case.codes[case.labelled]
    if case.labels is not None:
        classes = case.labels.codes[case.labelled]
        shares = {level: _between(classes == code, codes) for code, level in enumerate(case.labels.levels)}
        least, alone = BETWEEN_CLASSES, list[str]()
        between, what = max((share, repr(level)) for level, share in shares.items()) if shares else (0.0, "")
    elif case.target_values is not None:
        y, what, least = case.target_values[case.labelled], repr(case.target), BETWEEN
        between, alone = _between(y, codes), _alone(case, y, codes)
    else:
        return
    if len(codes) >= COUNTED and (alone or between >= least):
        ranges = f" Ranges that meet no other group's: {listed(alone)}." if alone else ""
        yield risky(
            "target-shift",
            "Groups differ much in their targets",
            f"{percent(max(0.0, between))} of the variance of {what} lies between groups.{ranges} What a model learns "
            "is mostly which group it is in, and a new one may lie outside all of them.",
            "Consider a target relative to its group (a change, a ratio), and look at hold-out groups with "
            "toporo evaluate.",
            tuple(alone),
            max(between, case.of_groups(alone)[1]),
        )


def _alone(case: Case, y: Array, codes: Codes) -> list[str]:
    """Return groups whose range of targets meets no other group's."""
    counts = np.bincount(codes, minlength=len(case.names))
    low, high = np.full(len(case.names), np.inf), np.full(len(case.names), -np.inf)
    np.minimum.at(low, codes, y)
    np.maximum.at(high, codes, y)
    counted = counts >= 2
    meets: npt.NDArray[np.int64] = ((low <= high[:, None]) & (low[:, None] <= high) & counted).sum(axis=1)
    enough = np.flatnonzero((counts >= COUNTED) & (meets == 1))
    return [case.names[i] for i in enough] if counted.sum() > 1 else []


def _between(y: npt.NDArray[Any], codes: Codes) -> float:
    """Return the share of the variance that lies between groups, less what group means explain by chance."""
    counts = np.bincount(codes)
    means = np.bincount(codes, y) / np.maximum(counts, 1)
    total, within = float(((y - y.mean()) ** 2).sum()), float(((y - means[codes]) ** 2).sum())
    free = len(y) - int((counts > 0).sum())
    groups = int((counts >= 2).sum())
    return 1.0 - (within / free) / (total / (len(y) - 1)) if free > 0 and total > 0 and groups > 1 else 0.0
