"""From run records to the rows of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toporo.errors import DataError
from toporo.experiments.protocols import Method, Metric, Protocol
from toporo.files import write_text
from toporo.selection import SELECTIONS, SelectionRule, select
from toporo.topology.prior import Prior

__all__ = ["Row", "make_rows", "read_rows", "write_rows"]

Record = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One method, metric and selection rule: mean and sample standard deviation over seeds, and what it saw.

    A method without epochs has rows of the rule ``last`` alone: the model as it was fitted. One that no seed changes
    has a single value and no standard deviation.
    """

    benchmark: str
    method: str
    metric: str
    selection: str
    mean: float
    sd: float | None
    per_seed: list[float]
    paper: float | None
    saw: list[str]
    source: str
    control: bool
    variant: str = ""


def make_rows(protocol: Protocol, records: Iterable[Record]) -> list[Row]:
    """Rows of all variants, methods, selection rules and metrics, in the tables' order; seeds in ascending order."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=lambda r: r["seed"]):
        found.setdefault((record["variant"], record["method"]), []).append(record)
    return [
        _row(protocol, method, metric, rule, found[variant.name, method.name])
        for variant in protocol.variants
        for method in protocol.get_methods()
        if (variant.name, method.name) in found
        for rule in SELECTIONS.values()
        if method.has_epochs or rule.name == "last"
        for metric in protocol.metrics
    ]


def _row(protocol: Protocol, method: Method, metric: Metric, rule: SelectionRule, runs: Sequence[Record]) -> Row:
    values = []
    for run in runs:
        epochs = [epoch["metrics"] for epoch in run["history"]]
        values.append(round(metric.scale * epochs[select(epochs, rule.name, protocol.better)][metric.key], 6))
    first = runs[0]
    prior = Prior.from_dict(first["prior"]) if first["prior"] else None
    return Row(
        benchmark=protocol.benchmark,
        method=method.name,
        metric=metric.name,
        selection=rule.name,
        mean=round(float(np.mean(values)), 6),
        sd=round(float(np.std(values, ddof=1)), 6) if len(values) > 1 else None,
        per_seed=values,
        paper=protocol.paper(first["variant"], method.name, metric.name),
        saw=[*(prior.saw if prior else ()), *rule.saw],
        source=first["source"],
        control=method.control,
        variant=first["variant"],
    )


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """As a JSON array of records, which pandas and jq read as it is."""
    write_text(path, json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n")


def read_rows(path: Path) -> list[Row]:
    """The inverse of :func:`write_rows`."""
    try:
        return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        raise DataError(
            f"no results in {path.parent}: run `toporo reproduce` with --out {path.parent} first."
        ) from None
    except (json.JSONDecodeError, TypeError) as error:
        raise DataError(f"{path} is not a results file of toporo ({error}).") from None
