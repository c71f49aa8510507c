"""From run records to the rows of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toporo.errors import DataError
from toporo.experiments.protocols import METHODS, Protocol
from toporo.files import write_text
from toporo.selection import SELECTIONS, select
from toporo.topology.prior import Prior

__all__ = ["Row", "make_rows", "read_rows", "write_rows"]


@dataclass(frozen=True)
class Row:
    """One method under one selection rule: mean and sample standard deviation over seeds, and what it saw."""

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


def make_rows(protocol: Protocol, records: Iterable[dict[str, Any]]) -> list[Row]:
    """All selection rules over all methods, methods in the tables' order, seeds in ascending order."""
    by_method: dict[str, list[dict[str, Any]]] = {}
    for record in sorted(records, key=lambda r: r["seed"]):
        by_method.setdefault(record["method"], []).append(record)
    rows = []
    for method in (method for name, method in METHODS.items() if name in by_method):
        runs = by_method[method.name]
        prior = Prior.from_dict(runs[0]["prior"]) if runs[0]["prior"] else None
        for rule in SELECTIONS.values():
            values = []
            for run in runs:
                metrics = [epoch["metrics"] for epoch in run["history"]]
                values.append(round(100.0 * metrics[select(metrics, rule.name)]["test"], 6))
            rows.append(
                Row(
                    benchmark=protocol.benchmark,
                    method=method.name,
                    metric=protocol.metric,
                    selection=rule.name,
                    mean=round(float(np.mean(values)), 6),
                    sd=round(float(np.std(values, ddof=1)), 6) if len(values) > 1 else None,
                    per_seed=values,
                    paper=protocol.paper.get(method.name),
                    saw=[*(prior.saw if prior else ()), *rule.saw],
                    source=runs[0]["source"],
                    control=method.control,
                )
            )
    return rows


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
