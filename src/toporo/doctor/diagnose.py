"""Look at a table before training: what is wrong, what is risky, and what to do next."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from toporo.choice.priors import PriorMaker
from toporo.data.encode import Encoder
from toporo.data.frame import Frame, read_frame
from toporo.doctor import (
    column_checks,
    graph_checks,
    group_checks,
    leak_checks,
    shift_checks,
    target_checks,
)
from toporo.doctor.case import Case, Check
from toporo.doctor.leak_checks import identifying
from toporo.doctor.measure import MOST_GROUPS, group_distances, group_separability, sample_size
from toporo.doctor.results import Diagnosis, ranked
from toporo.doctor.rows import balanced_sample
from toporo.doctor.summary import Asked, blocking, facts_of, next_command, summaries
from toporo.errors import DataError, SettingError, TopoRoError, TopoRoWarning, UnknownNameError, listed
from toporo.graphs import as_graph, with_text_names
from toporo.groups import Groups
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior

#: Every check, in the order in which they run; each is a function from a case to findings.
CHECKS: tuple[Check, ...] = (
    *group_checks.CHECKS,
    *column_checks.CHECKS,
    *leak_checks.CHECKS,
    *target_checks.CHECKS,
    *graph_checks.CHECKS,
    *shift_checks.CHECKS,
)


TASKS = ("auto", "classification", "regression")


def examine(
    source: Any,
    *,
    group: str,
    target: str | None = None,
    graph: Any = None,
    test_groups: Iterable[str] = (),
    task: str = "auto",
    features: Sequence[str] | None = None,
    exclude: Iterable[str] = (),
    categorical: Iterable[str] = (),
    format: str | None = None,  # noqa: A002  # as read_frame calls it
    delimiter: str = ",",
    seed: int = 0,
) -> Diagnosis:
    """What is wrong or risky about a table before training on it.

    Counts, ranges and leaks are exact over all rows. Distances between groups and how well they can be told apart
    are measured on a sample that follows from the rows' content: their order changes nothing. Targets of test groups
    are not looked at.

    Parameters
    ----------
    source : a CSV, Parquet or Feather file, a stream of CSV, a pandas, polars or arrow table, or columns by name.
    group, target : columns; without a target, what concerns it is not looked at.
    graph : which groups touch, in any form that :func:`toporo.graphs.as_graph` takes.
    test_groups : groups to come, with rows or in the graph.
    task : ``"classification"``, ``"regression"`` or ``"auto"``, as a fit would take it.
    features, exclude, categorical : columns, as a fit would take them.
    seed : of the sample, the folds and the resamples.

    >>> rows = {"site": ["a", "b"] * 30, "code": ["A1", "B1"] * 30, "x": [(i * i) % 31 for i in range(60)]}
    >>> found = examine(rows, group="site")
    >>> found.findings[0].code, found.findings[0].subjects
    ('leaks-group', ('code',))
    """
    if isinstance(test_groups, str):
        raise SettingError(f"test_groups is the text {test_groups!r}: expected a list of names.")
    asked = Asked(
        source=source,
        group=group,
        target=target,
        graph=graph,
        test_groups=tuple(dict.fromkeys(str(name) for name in test_groups)),
        task=task,
        features=None if features is None else tuple(dict.fromkeys(features)),
        exclude=tuple(exclude),
        categorical=tuple(categorical),
        delimiter=delimiter,
        seed=seed,
    )
    if isinstance(source, Frame):
        frame = source
    else:
        frame = read_frame(source, text=[group, *asked.categorical], format=format, delimiter=delimiter)
    frame = replace(frame, columns=frame.columns | {name: frame.text(name) for name in asked.categorical})
    _check(frame, asked)
    case, sample = _measured(prepare(frame, asked), seed)
    findings = ranked([finding for check in CHECKS for finding in check(case)])
    facts = facts_of(case, sample, seed) | {"next": next_command(case, asked, findings), "first": blocking(findings)}
    return Diagnosis(findings, summaries(case), case.distances, case.separability, facts)


# ---------------------------------------------------------------- what is asked


def _check(frame: Frame, asked: Asked) -> None:
    if asked.task not in TASKS:
        raise UnknownNameError("task", asked.task, TASKS)
    roles = {"the group": asked.group} | ({"the target": asked.target} if asked.target is not None else {})
    named = asked.features or ()
    for name in (*roles.values(), *named, *(name for name in asked.exclude if name not in frame.unusable)):
        frame[name]  # an unknown one is an error that lists those there are
    if asked.group == asked.target:
        raise SettingError(f"column {asked.group!r} cannot be both the group and the target: name two columns.")
    for what, name in roles.items():
        for names, use in ((named, "a feature"), (asked.exclude, "excluded")):
            if name in names:
                raise SettingError(f"column {name!r} is {what}, so it cannot be {use}.")
    both = [name for name in named if name in asked.exclude]
    if both:
        raise SettingError(f"column(s) both named as features and excluded: {listed(both)}. Decide for one.")


def prepare(frame: Frame, asked: Asked) -> Case:
    """The case as far as it needs no sample."""
    column = frame.text(asked.group)
    if not column.levels:
        raise DataError(
            f"{frame.where}: no row has a group: column {asked.group!r} is empty. Fill it in, or name another."
        )
    if set(column.levels) <= set(asked.test_groups):
        raise DataError(f"every group is a test group ({listed(column.levels)}): leave at least one to train on.")
    wanted = asked.features or [name for name in frame.names if name not in asked.exclude]
    graph = _graph(asked.graph)
    case = Case(
        frame=frame,
        group=asked.group,
        target=asked.target,
        task=None,
        features=tuple(name for name in wanted if name not in (asked.group, asked.target)),
        chosen=asked.features is not None,
        names=column.levels,
        codes=column.codes.astype(np.int64),
        test=asked.test_groups,
        graph=graph,
    )
    return replace(case, task=_task(case, asked.task), encoder=_encoder(case, asked.categorical), prior=_prior(case))


def _graph(given: Any) -> GroupGraph | None:
    return None if given is None else with_text_names(as_graph(given))


def _task(case: Case, task: str) -> str | None:
    from toporo.tables.fit import guess_task

    if case.target is None:
        return None
    rows = np.flatnonzero(case.labelled)
    return guess_task(case.frame[case.target].take(rows)) if task == "auto" else task


def _encoder(case: Case, categorical: Sequence[str]) -> Encoder | None:
    """The preprocessing that a fit would find on the training rows; None where no column is of use."""
    rows = case.training_rows
    columns = {name: case.frame[name] for name in case.features}
    frame = Frame(columns, case.frame.where)
    try:
        return Encoder.fit(
            frame if rows.all() else frame.take(np.flatnonzero(rows)),
            features=list(case.features) if case.chosen else None,
            categorical=[name for name in categorical if name in columns],
        )
    except DataError:
        return None


def _prior(case: Case) -> Prior | None:
    """What a fit would take for a prior, if the graph lets it."""
    if case.graph is None:
        return None
    train = [name for name in case.train if name in case.graph]
    test = [name for name in case.test if name in case.graph]
    if len(train) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # a check says it
        try:
            return PriorMaker("auto", case.graph, bool(test)).prior(Groups(train), test or None)
        except TopoRoError:
            return None


# ---------------------------------------------------------------- what is measured


def _measured(case: Case, seed: int) -> tuple[Case, dict[str, Any]]:
    """The case with distances and separability, and how they were measured."""
    if case.encoder is None or not case.encoder.names:
        why = "no column can be used as a feature"
        return case, {"not_measured": {"distances": why, "separability": why}}
    skipped = identifying(case)
    inputs = [rule.name for rule in case.encoder.rules for _ in rule.labels]
    kept = [place for place, name in enumerate(inputs) if name not in skipped] or list(range(len(inputs)))
    without = sorted(set(inputs) - {inputs[place] for place in kept})
    by_size = sorted(case.names, key=lambda name: (name not in case.test, -case.sizes[name], name))
    names = sorted(by_size[:MOST_GROUPS])
    code_of = {name: code for code, name in enumerate(case.names)}
    wanted = [code_of[name] for name in names]
    rows = balanced_sample(case.hashes, case.codes, wanted, sample_size(len(names), len(kept)), seed)
    frame = Frame({name: case.frame[name] for name in case.encoder.columns}, case.frame.where).take(rows)
    matrix = case.encoder.transform(frame).matrix[:, kept]
    codes = np.searchsorted(np.asarray(wanted), case.codes[rows])
    failed: dict[str, str] = {}
    distances: Any = _or_why(lambda: group_distances(matrix, codes, names, seed), "distances", failed)
    columns = [inputs[place] for place in kept]
    told: Any = _or_why(lambda: group_separability(matrix, codes, names, columns, seed), "separability", failed)
    how = {
        "sampled_rows": len(rows),
        "sampled_groups": len(names),
        "measured_without": without,
        "not_measured": failed,
    }
    return replace(case, distances=distances, separability=told), how


def _or_why(measure: Any, what: str, failed: dict[str, str]) -> Any:
    """What was measured; where it could not be, None and the reason on record."""
    try:
        found = measure()
    except TopoRoError as error:
        found = str(error)
    if isinstance(found, str):
        failed[what] = found
        return None
    return found
