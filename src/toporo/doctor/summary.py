"""What is said of a case beside its findings: groups at a glance, what was looked at, and the next command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.doctor.case import Case
from toporo.doctor.results import Finding, GroupSummary
from toporo.doctor.words import flag

#: Findings whose columns the next command leaves out.
TO_EXCLUDE = {("serious", "leaks-group"), ("serious", "leaks-target"), ("risky", "identifier")}
#: Findings that a fit without ``--drop-missing`` would stop at.
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


@dataclass(frozen=True)
class Asked:
    """What :func:`~toporo.doctor.examine` was asked."""

    source: Any
    group: str
    target: str | None
    graph: Any
    test_groups: tuple[str, ...]
    task: str
    features: tuple[str, ...] | None
    exclude: tuple[str, ...]
    categorical: tuple[str, ...]
    delimiter: str
    seed: int


def summaries(case: Case) -> tuple[GroupSummary, ...]:
    """One record a group: training groups, test groups, groups to come."""
    cells = max(1, len(case.features))
    known = np.zeros(len(case.names))
    for profile in case.profiles.values():
        known += profile.sizes
    _, values = _target_of(case)
    recognised = {} if case.separability is None else case.separability.recognised
    hops: Mapping[Any, float] = {}
    if case.graph is not None and (inside := [name for name in case.train if name in case.graph]):
        hops = case.graph.hops(inside)
    found = []
    for place, name in enumerate(case.names):
        near = None if case.distances is None else case.distances.nearest(name)
        training = name not in case.test
        found.append(
            GroupSummary(
                name=name,
                role="training" if training else "test",
                rows=case.sizes[name],
                missing=float(1.0 - known[place] / (cells * case.sizes[name])) if case.features else 0.0,
                target=values.get(name),
                nearest=None if near is None else near[0],
                distance=None if near is None else near[1],
                recognised=recognised.get(name),
                prior=None if case.prior is None or name not in case.prior.weights else case.prior[name],
                hops=None if training else hops.get(name),
            )
        )
    others = [str(name) for name in case.graph.names] if case.graph is not None else []
    for name in dict.fromkeys((*case.test, *others)):
        if name not in case.sizes:
            found.append(GroupSummary(name=name, role="to come", rows=0, hops=hops.get(name)))
    roles = ("training", "test", "to come")
    return tuple(sorted(found, key=lambda summary: roles.index(summary.role)))


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
    from toporo import __version__

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


def next_command(case: Case, asked: Asked, findings: Sequence[Finding]) -> str:
    """The command to go on with, what leaks left out."""
    leaking = [name for f in findings if (f.severity, f.code) in TO_EXCLUDE for name in f.subjects]
    source = "-" if hasattr(asked.source, "read") else _path(asked.source, "TABLE.csv")
    parts = ["toporo fit", source, f"--target {'COLUMN' if asked.target is None else shlex.quote(asked.target)}"]
    parts.append(f"--group {shlex.quote(asked.group)}")
    if asked.task != "auto":
        parts.append(f"--task {asked.task}")
    if asked.graph is not None:
        parts.append(f"--graph {_path(asked.graph, 'GRAPH.csv')}")
    elif case.distances is not None and case.distances.beyond_chance:
        parts.append("--learn-graph")
    if case.test:
        parts.append(flag("--test-groups", case.test))
    if asked.features is not None:
        parts.append(flag("--features", [name for name in asked.features if name not in leaking] or asked.features))
    out = list(dict.fromkeys([*asked.exclude, *(leaking if asked.features is None else [])]))
    if out:
        parts.append(flag("--exclude", out))
    kept = [name for name in asked.categorical if name not in leaking]
    if kept:
        parts.append(flag("--categorical", kept))
    if any(finding.code in TO_DROP for finding in findings):
        parts.append("--drop-missing")
    if asked.delimiter != ",":
        parts.append(f"--delimiter {'tab' if asked.delimiter == chr(9) else shlex.quote(asked.delimiter)}")
    return " ".join([*parts, "--out model"])


def blocking(findings: Sequence[Finding]) -> list[int]:
    """The numbers, from 1 on, of findings that must be put right before that command works."""
    return [number for number, finding in enumerate(findings, 1) if finding.code in BLOCKING]


def _path(given: Any, otherwise: str) -> str:
    return shlex.quote(str(given)) if isinstance(given, str | os.PathLike) else otherwise
