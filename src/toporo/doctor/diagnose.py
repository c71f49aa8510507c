"""Look at a table before training: what is wrong, what is risky, and what to do next."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from toporo.choice.penalty import PriorMaker
from toporo.data.encode import Encoder
from toporo.data.frame import Frame, read_frame
from toporo.doctor.leaks import identifying
from toporo.doctor.measure import (
    CHECKS,
    MOST_GROUPS,
    Case,
    balanced_sample,
    group_distances,
    group_separability,
    sample_size,
)
from toporo.doctor.results import ROOM, Diagnosis, Finding, GroupSummary, flag, ranked
from toporo.doctor.shift import measure_shift
from toporo.errors import DataError, TopoRoError, TopoRoWarning, listed
from toporo.groups import Groups
from toporo.progress import Progress
from toporo.tables.read import guess_task
from toporo.tables.roles import LEARN, RoleKeywords, Roles
from toporo.text import spelled
from toporo.topology.prior import Prior
from toporo.version import __version__

#: In the next command, the file with the names of test groups that are too many to be shown.
TEST_GROUPS = "test-groups.txt"
#: Findings whose columns the next command leaves out.
TO_EXCLUDE = {("serious", "leaks-group"), ("serious", "leaks-target"), ("risky", "identifier")}
#: Findings that a fit without ``--drop-rows`` would stop at.
TO_DROP = {"group-missing", "target-missing"}
#: Findings that a fit refuses to go on with.
BLOCKING = {
    "constant-target",
    "no-features",
    "not-in-graph",
    "target-not-numbers",
    "too-many-classes",
    "unknown-test-group",
}


def examine(
    source: Any,
    *,
    group: str,
    target: str | None = None,
    delimiter: str = ",",
    seed: int = 0,
    **roles: Unpack[RoleKeywords],
) -> Diagnosis:
    """What is wrong or risky about a table before training on it.

    Counts, ranges and leaks are exact over all rows. Distances between groups and how well they can be told apart
    are measured on a sample that follows from the rows' content: their order changes nothing. Targets of test groups
    are not looked at.

    Parameters
    ----------
    source : a CSV (also .gz), Parquet or Feather file, a stream of CSV, a pandas, polars or arrow table, or columns by
        name.
    group, target : columns; without a target, what concerns it is not looked at.
    delimiter : what stands between the cells of a CSV file.
    seed : of the sample, the folds and the resamples.
    roles : ``graph``, ``test_groups``, ``task``, ``features``, ``exclude``, ``categorical`` and ``weight``, as for
        :func:`toporo.fit_table`. Of a graph that is to be learned nothing is known yet.

    >>> rows = {"site": ["a", "b"] * 30, "code": ["A1", "B1"] * 30, "x": [(i * i) % 31 for i in range(60)]}
    >>> diagnosis = examine(rows, group="site")
    >>> diagnosis.findings[0].code, diagnosis.findings[0].subjects
    ('leaks-group', ('code',))
    """
    asked = Roles.of(group=group, target=target, **roles)
    frame = source if isinstance(source, Frame) else read_frame(source, text=asked.text_columns, delimiter=delimiter)
    frame = replace(frame, columns=frame.columns | {name: frame.text(name) for name in asked.categorical})
    excluded = [name for name in asked.exclude if name not in frame.unusable]
    for name in (*asked.columns.values(), *asked.named, *excluded):
        frame[name]  # an unknown one is an error that lists those there are
    case, sample = _measured(prepare(frame, asked), seed)
    findings = ranked([finding for check in CHECKS for finding in check(case)])
    following = next_command(case, source, asked, findings, delimiter)
    facts = facts_of(case, sample, seed) | {"next": following, "first": blocking(findings)}
    return Diagnosis(findings, summaries(case), case.distances, case.separability, facts)


# ---------------------------------------------------------------- what is asked


def prepare(frame: Frame, roles: Roles) -> Case:
    """The case as far as it needs no sample."""
    column = frame.text(roles.group)
    if not column.levels:
        raise DataError(
            f"{frame.where}: no row has a group: column {roles.group!r} is empty. Fill it in, or name another."
        )
    if set(column.levels) <= set(roles.test_groups):
        raise DataError(f"every group is a test group ({listed(column.levels)}): leave at least one to train on.")
    wanted = roles.features or [name for name in frame.names if name not in roles.exclude]
    case = Case(
        frame=frame,
        group=roles.group,
        target=roles.target,
        task=None,
        features=tuple(name for name in wanted if name not in roles.columns.values()),
        chosen=roles.features is not None,
        names=column.levels,
        codes=column.codes.astype(np.int64),
        test=roles.test_groups,
        graph=roles.read_graph().given_graph,
    )
    return replace(case, task=_task(case, roles.task), encoder=_encoder(case, roles.categorical), prior=_prior(case))


def _task(case: Case, task: str) -> str | None:
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
            maker = PriorMaker("auto", case.graph, bool(test), rows=case.sizes, columns=case.width)
            return maker.prior(Groups(train), test or None)
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
    columns = [inputs[place] for place in kept]
    with Progress("examining how far apart groups are", 3, False) as shown:
        distances: Any = _or_why(lambda: group_distances(matrix, codes, names, seed), "distances", failed)
        shown.step("examining what tells groups apart")
        told: Any = _or_why(lambda: group_separability(matrix, codes, names, columns, seed), "separability", failed)
        shown.step("examining groups held out")
        case, others = measure_shift(replace(case, distances=distances, separability=told), seed)
    how = {"sampled_rows": len(rows), "sampled_groups": len(names), "measured_without": without, "not_measured": failed}
    failed |= others
    parts = {"losses": case.losses, "ahead": case.ahead, "graph_evidence": case.evidence}
    return case, how | {name: None if part is None else asdict(part) for name, part in parts.items()}


def _or_why(measure: Any, what: str, failed: dict[str, str]) -> Any:
    """What was measured; where it could not be, None and the reason on record."""
    try:
        result = measure()
    except TopoRoError as error:
        result = str(error)
    if isinstance(result, str):
        failed[what] = result
        return None
    return result


# ---------------------------------------------------------------- what is said beside the findings


def summaries(case: Case) -> tuple[GroupSummary, ...]:
    """One record per group: training groups, test groups, groups without rows."""
    cells = max(1, len(case.features))
    known = np.zeros(len(case.names))
    for profile in case.profiles.values():
        known += profile.sizes
    _, values = _target_of(case)
    recognised = {} if case.separability is None else case.separability.recognised
    hops: Mapping[Any, float] = {}
    if case.graph is not None and (inside := [name for name in case.train if name in case.graph]):
        hops = case.graph.hops(inside)
    groups = []
    for place, name in enumerate(case.names):
        nearest, distance = (case.distances and case.distances.nearest(name)) or (None, None)
        training = name not in case.test
        groups.append(
            GroupSummary(
                name=name,
                role="training" if training else "test",
                rows=case.sizes[name],
                missing=float(1.0 - known[place] / (cells * case.sizes[name])) if case.features else 0.0,
                target=values.get(name),
                nearest=nearest,
                distance=distance,
                recognised=recognised.get(name),
                prior=None if case.prior is None or name not in case.prior.weights else case.prior[name],
                hops=None if training else hops.get(name),
            )
        )
    for name in dict.fromkeys((*case.test, *case.graph_names)):
        if name not in case.sizes:
            groups.append(GroupSummary(name=name, role="no rows", rows=0, hops=hops.get(name)))
    roles = ("training", "test", "no rows")
    return tuple(sorted(groups, key=lambda summary: roles.index(summary.role)))


def _target_of(case: Case) -> tuple[str | None, dict[str, float]]:
    """What is shown of the target in a table of groups, and by training group its value."""
    rows = case.labelled
    if case.target is None or not rows.any():
        return None, {}
    groups = case.codes[rows]
    counts = np.bincount(groups, minlength=len(case.names))
    values: npt.NDArray[np.float64]
    if case.labels is not None:
        labels = case.labels.codes[rows]
        # Of two classes the second (yes after no, 1 after 0), of more the commonest.
        totals = np.bincount(labels, minlength=len(case.labels.levels))
        shown = int(np.flatnonzero(totals)[-1]) if (totals > 0).sum() == 2 else int(totals.argmax())
        title = f"share of {case.labels.levels[shown]!r}"
        values = (labels == shown).astype(np.float64)
    elif case.target_values is not None:
        title, values = f"mean of {case.target!r}", case.target_values[rows]
    else:
        return None, {}
    sums = np.bincount(groups, values / np.maximum(counts, 1)[groups], minlength=len(case.names))
    return title, {name: float(sums[i]) for i, name in enumerate(case.names) if counts[i]}


def facts_of(case: Case, sample: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """What was looked at, as plain values."""
    prior = case.prior
    return {
        "source": case.frame.where,
        "rows": len(case.frame),
        "group": case.group,
        "groups": len(case.names),
        "training_groups": len(case.train),
        "test_groups": list(case.test),
        "target": case.target,
        "task": case.task,
        "target_shown": _target_of(case)[0],
        "features": [] if case.encoder is None else list(case.encoder.columns),
        "left_out": {} if case.encoder is None else dict(case.encoder.left_out) | dict(case.frame.unusable),
        "encoded_columns": case.width,
        "graph": None if case.graph is None else {"groups": len(case.graph), "edges": len(case.graph.edges)},
        "prior": None if prior is None else {"measure": prior.measure, "effective_groups": prior.effective_groups},
        "seed": seed,
        "toporo": __version__,
        **sample,
    }


def next_command(case: Case, source: Any, roles: Roles, findings: Sequence[Finding], delimiter: str = ",") -> str:
    """Return the command to go on with, which leaves out columns that leak."""
    leaking = [name for f in findings if (f.severity, f.code) in TO_EXCLUDE for name in f.subjects]
    table = "-" if hasattr(source, "read") else _path(source, "TABLE.csv")
    parts = ["toporo fit", table, f"--target {'COLUMN' if roles.target is None else shlex.quote(roles.target)}"]
    parts.append(f"--group {shlex.quote(roles.group)}")
    if roles.weight is not None:
        parts.append(f"--weight {shlex.quote(roles.weight)}")
    if roles.task != "auto":
        parts.append(f"--task {roles.task}")
    if roles.graph is not None:
        parts.append(f"--graph {_path(roles.graph, 'GRAPH.csv')}")
    elif case.distances is not None and case.distances.beyond_chance:
        parts.append(f"--graph {LEARN}")
    if case.test:
        every = flag("--test-groups", case.test)
        parts.append(every if len(every) <= ROOM else f"--test-groups @{TEST_GROUPS}")
    if roles.features is not None:
        parts.append(flag("--features", [name for name in roles.features if name not in leaking] or roles.features))
    out = list(dict.fromkeys([*roles.exclude, *(leaking if roles.features is None else [])]))
    if out:
        parts.append(flag("--exclude", out))
    kept = [name for name in roles.categorical if name not in leaking]
    if kept:
        parts.append(flag("--categorical", kept))
    if roles.drop_rows or any(finding.code in TO_DROP for finding in findings):
        parts.append("--drop-rows")
    if delimiter != ",":
        parts.append(f"--delimiter {'tab' if delimiter == chr(9) else shlex.quote(delimiter)}")
    return " ".join([*parts, "--out model"])


def blocking(findings: Sequence[Finding]) -> list[int]:
    """The numbers, from 1 on, of findings that must be put right before that command works."""
    return [number for number, finding in enumerate(findings, 1) if finding.code in BLOCKING]


def _path(given: Any, otherwise: str) -> str:
    return shlex.quote(spelled(given)) if isinstance(given, str | os.PathLike) else otherwise
