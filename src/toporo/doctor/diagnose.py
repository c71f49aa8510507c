"""Look at a table before training: what is wrong, what is risky, and what to do next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Unpack

import numpy as np

from toporo.choice.penalty import PriorMaker
from toporo.data.encode import Encoder
from toporo.data.frame import Frame, read_frame
from toporo.doctor.case import CHECKS, Case, balanced_sample
from toporo.doctor.measure import MOST_GROUPS, group_distances, group_separability, sample_size
from toporo.doctor.results import Diagnosis, Finding, GroupSummary, flag, ranked
from toporo.doctor.shift import measure_shift
from toporo.errors import DataError, TopoRoError, listed, muted
from toporo.groups import Groups
from toporo.progress import Progress
from toporo.tables.read import guess_task
from toporo.tables.roles import LEARN, RoleKeywords, Roles
from toporo.text import spelled
from toporo.topology.prior import Prior
from toporo.version import __version__

#: In the next command, the file with the names of test groups that take more letters than this.
TEST_GROUPS, ROOM = "test-groups.txt", 240
#: Findings whose columns the next command leaves out.
TO_EXCLUDE = {("serious", "leaks-group"), ("serious", "leaks-target"), ("risky", "identifier")}
#: Findings that a fit without ``--drop-rows`` would stop at, and those that it refuses to go on with.
TO_DROP, BLOCKING = {"group-missing", "target-missing"}, {"refused"}
#: The largest number that a table may hold: squares and their sums are numbers, too.
LARGEST = 1e100


def examine(
    source: Any,
    *,
    group: str,
    target: str | None = None,
    delimiter: str = ",",
    seed: int = 0,
    **roles: Unpack[RoleKeywords],
) -> Diagnosis:
    """Find what is wrong or risky about a table before training on it.

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
    frame = read_frame(source, text=asked.text_columns, delimiter=delimiter)
    frame = replace(frame, columns=frame.columns | {name: frame.text(name) for name in asked.categorical})
    case, sample = _measured(prepare(frame, asked), seed)
    findings = ranked(finding for check in CHECKS for finding in check(case))
    blocking = [number for number, finding in enumerate(findings, 1) if finding.code in BLOCKING]
    following = next_command(case, source, asked, findings, delimiter)
    shown, values = _target_of(case)
    facts = facts_of(case, seed) | sample | {"target_shown": shown, "next": following, "first": blocking}
    return Diagnosis(findings, summaries(case, values), case.distances, case.separability, facts)


def prepare(frame: Frame, asked: Roles) -> Case:
    """Return the case as far as it needs no sample.

    Parameters
    ----------
    frame, asked : the table, and its columns and groups as they were given.
    """
    for name in (*asked.columns.values(), *asked.named, *(n for n in asked.exclude if n not in frame.unusable)):
        frame[name]  # an unknown one is an error that lists those there are
    column = frame.text(asked.group)
    if not column.levels:
        raise DataError(
            f"{frame.where}: no row has a group: column {asked.group!r} is empty. Fill it in, or name another."
        )
    if set(column.levels) <= set(asked.test_groups):
        raise DataError(f"every group is a test group ({listed(column.levels)}): leave at least one to train on.")
    wanted = asked.features or [name for name in frame.names if name not in asked.exclude]
    case = Case(
        frame=frame,
        roles=asked.read_graph(),
        task=None if asked.target is None else asked.task,
        features=tuple(name for name in wanted if name not in asked.columns.values()),
        names=column.levels,
        codes=column.codes.astype(np.int64),
    )
    if asked.target is not None and asked.task == "auto":
        case = replace(case, task=guess_task(frame[asked.target].take(case.labelled)))
    case = replace(case, encoder=_encoder(case))
    return replace(case, prior=_prior(case))


def _encoder(case: Case) -> Encoder | None:
    """Return the preprocessing that a fit would find on the training rows; None where no column is of use."""
    frame = Frame({name: case.frame[name] for name in case.features}, case.frame.where)
    try:
        return Encoder.fit(
            frame.take(case.training_rows),
            features=case.roles.features,
            categorical=[name for name in case.roles.categorical if name in frame],
        )
    except DataError:
        return None


def _prior(case: Case) -> Prior | None:
    """Return what a fit would take for a prior, if the graph lets it."""
    if case.graph is None:
        return None
    train, test = ([name for name in names if name in case.graph] for names in (case.train, case.test))
    if len(train) < 2:
        return None
    with muted():  # a check says it
        try:
            maker = PriorMaker("auto", case.graph, bool(test), rows=case.sizes, columns=case.width)
            return maker.prior(Groups(train), test or None)
        except TopoRoError:
            return None


# ---------------------------------------------------------------- what is measured


def _measured(case: Case, seed: int) -> tuple[Case, dict[str, Any]]:
    """Return the case with distances, separability and losses, and how they were measured."""
    if case.encoder is None:
        why = "no column can be used as a feature"
        return case, {"not_measured": {"distances": why, "separability": why}}
    inputs = [rule.name for rule in case.encoder.rules for _ in rule.labels]
    kept = [index for index, name in enumerate(inputs) if name not in case.identifying] or list(range(len(inputs)))
    columns = [inputs[index] for index in kept]
    by_size = sorted(case.names, key=lambda name: (name not in case.test, -case.sizes[name], name))
    wanted = sorted(case.names.index(name) for name in by_size[:MOST_GROUPS])
    names = [case.names[code] for code in wanted]
    rows = balanced_sample(case.hashes, case.codes, wanted, sample_size(len(names), len(kept)), seed)
    frame = Frame({name: case.frame[name] for name in case.encoder.columns}, case.frame.where).take(rows)
    matrix = case.encoder.transform(frame).matrix[:, kept]
    codes = np.searchsorted(np.asarray(wanted), case.codes[rows])
    found: dict[str, Any] = {}
    with Progress("examining how far apart groups are", 3, False) as shown:
        try:
            found["distances"] = group_distances(matrix, codes, names, seed)
        except TopoRoError as error:
            found["distances"] = str(error)
        shown.step("examining what tells groups apart")
        found["separability"] = group_separability(matrix, codes, names, columns, seed)
        shown.step("examining groups held out")
        case = replace(case, **{name: part for name, part in found.items() if not isinstance(part, str)})
        case, failed = measure_shift(case, seed)
    parts = {"losses": case.losses, "ahead": case.ahead, "graph_evidence": case.evidence}
    return case, {
        "sampled_rows": len(rows),
        "sampled_groups": len(names),
        "measured_without": sorted(set(inputs) - set(columns)),
        "not_measured": {name: why for name, why in found.items() if isinstance(why, str)} | failed,
        **{name: None if part is None else asdict(part) for name, part in parts.items()},
    }


# ---------------------------------------------------------------- what is said beside the findings


def summaries(case: Case, values: Mapping[str, float]) -> tuple[GroupSummary, ...]:
    """Return one record per group: training groups, test groups, groups without rows.

    Parameters
    ----------
    case : the table.
    values : what is shown of the target, by training group.
    """
    known = sum((profile.sizes for profile in case.profiles.values()), np.zeros(len(case.names)))
    found = case.separability
    recognised = {} if found is None else dict(zip(found.names, np.diag(found.confusion).tolist(), strict=True))
    inside = [] if case.graph is None else [name for name in case.train if name in case.graph]
    hops: Mapping[Any, float] = case.graph.hops(inside) if case.graph is not None and inside else {}
    groups = []
    for code, name in enumerate(case.names):
        nearest, distance = (case.distances and case.distances.nearest(name, case.names)) or (None, None)
        training = name not in case.test
        groups.append(
            GroupSummary(
                name=name,
                role="training" if training else "test",
                rows=case.sizes[name],
                missing=float(1.0 - known[code] / (len(case.features) * case.sizes[name])) if case.features else 0.0,
                target=values.get(name),
                nearest=nearest,
                distance=distance,
                recognised=recognised.get(name),
                prior=None if case.prior is None else case.prior.weights.get(name),
                hops=None if training else hops.get(name),
            )
        )
    groups.sort(key=lambda summary: summary.role == "test")
    others = dict.fromkeys((*case.test, *(() if case.graph is None else map(str, case.graph.names))))
    empty = [GroupSummary(name, "no rows", hops=hops.get(name)) for name in others if name not in case.sizes]
    return (*groups, *empty)


def _target_of(case: Case) -> tuple[str | None, dict[str, float]]:
    """Return what is shown of the target in a table of groups, and its value by training group."""
    rows = case.labelled
    if not rows.any():
        return None, {}
    if case.labels is not None:
        labels = case.labels.codes[rows]
        # Of two classes the second (yes after no, 1 after 0), of more the commonest.
        totals = np.bincount(labels)
        shown = int(np.flatnonzero(totals)[-1]) if (totals > 0).sum() == 2 else int(totals.argmax())
        title, values = f"share of {case.labels.levels[shown]!r}", (labels == shown).astype(np.float64)
    elif case.target_values is not None:
        title, values = f"mean of {case.target!r}", case.target_values[rows]
    else:
        return None, {}
    groups = case.codes[rows]
    counts, sums = np.bincount(groups), np.bincount(groups, values)
    return title, {case.names[i]: float(sums[i] / counts[i]) for i in np.flatnonzero(counts)}


def facts_of(case: Case, seed: int) -> dict[str, Any]:
    """Return what was looked at, as plain values."""
    prior = case.prior
    return {
        "source": case.frame.where,
        "rows": len(case.frame),
        "group": case.roles.group,
        "groups": len(case.names),
        "training_groups": len(case.train),
        "test_groups": list(case.test),
        "target": case.target,
        "task": case.task,
        "features": [] if case.encoder is None else list(case.encoder.columns),
        "left_out": {} if case.encoder is None else dict(case.encoder.left_out) | dict(case.frame.unusable),
        "encoded_columns": case.width,
        "graph": None if case.graph is None else {"groups": len(case.graph), "edges": len(case.graph.edges)},
        "prior": None if prior is None else {"measure": prior.measure, "effective_groups": prior.effective_groups},
        "seed": seed,
        "toporo": __version__,
    }


def next_command(case: Case, source: Any, asked: Roles, findings: Sequence[Finding], delimiter: str = ",") -> str:
    """Return the command to go on with, which leaves out columns that leak."""
    leaking = [name for f in findings if (f.severity, f.code) in TO_EXCLUDE for name in f.subjects]
    named = None if asked.features is None else [name for name in asked.features if name not in leaking]
    learn = LEARN if case.distances is not None and case.distances.beyond_chance else None
    test = flag("--test-groups", case.test)
    lists = {
        "--features": named if named is None else named or asked.features,
        "--exclude": dict.fromkeys([*asked.exclude, *(leaking if named is None else [])]),
        "--categorical": [name for name in asked.categorical if name not in leaking],
    }
    parts = [
        "toporo fit " + ("-" if hasattr(source, "read") else _path(source, "TABLE.csv")),
        f"--target {'COLUMN' if asked.target is None else shlex.quote(asked.target)}",
        f"--group {shlex.quote(asked.group)}",
        "" if asked.weight is None else f"--weight {shlex.quote(asked.weight)}",
        "" if asked.task == "auto" else f"--task {asked.task}",
        f"--graph {_path(asked.graph or learn, 'GRAPH.csv')}" if asked.graph is not None or learn else "",
        (test if len(test) <= ROOM else f"--test-groups @{TEST_GROUPS}") if case.test else "",
        *(flag(option, names) for option, names in lists.items() if names),
        "--drop-rows" if asked.drop_rows or any(finding.code in TO_DROP for finding in findings) else "",
        "" if delimiter == "," else f"--delimiter {'tab' if delimiter == chr(9) else shlex.quote(delimiter)}",
        "--out model",
    ]
    return " ".join(filter(None, parts))


def _path(given: Any, otherwise: str) -> str:
    return shlex.quote(spelled(given)) if isinstance(given, str | os.PathLike) else otherwise
