"""From run records to the rows of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from toporo.bench.definitions import Metric, Protocol
from toporo.bench.methods import Method
from toporo.choice.selection import SELECTIONS, SelectionRule, select
from toporo.errors import DataError
from toporo.files import write_text
from toporo.topology.prior import Prior
from toporo.types import Record

#: In place of a variant's name: all of them.
AVERAGE = "average"
SCHEMA = "toporo.results/2"


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
    rows = [
        _row(protocol, method, metric, rule, found[variant.name, method.name])
        for variant in protocol.variants
        for method in protocol.get_methods()
        if (variant.name, method.name) in found
        for rule in SELECTIONS.values()
        if method.has_epochs or rule.name == "last"
        for metric in protocol.metrics
    ]
    return rows if protocol.average is None else [*rows, *_averages(protocol, rows)]


def _averages(protocol: Protocol, rows: Sequence[Row]) -> Iterator[Row]:
    """The mean over all variants, seed by seed, of the methods that ran on every one; where there are several."""
    variants = list(dict.fromkeys(row.variant for row in rows))
    # A published average is over all of them; beside one over some it would mislead.
    published = (protocol.average or {}) if len(variants) == len(protocol.variants) else {}
    by_place: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        by_place.setdefault((row.method, row.selection, row.metric), []).append(row)
    for (method, _, metric), each in by_place.items():
        seeds = min(len(row.per_seed) for row in each)
        if len(variants) < 2 or len(each) < len(variants):
            continue
        values = [round(float(np.mean([row.per_seed[i] for row in each])), 6) for i in range(seeds)]
        yield replace(
            each[0],
            mean=round(float(np.mean(values)), 6),
            sd=round(float(np.std(values, ddof=1)), 6) if seeds > 1 else None,
            per_seed=values,
            paper=published.get(method) if metric == protocol.metrics[-1].name else None,
            variant=AVERAGE,
        )


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


def write_rows(rows: Iterable[Row], path: Path, about: Mapping[str, Any] | None = None) -> None:
    """As a JSON array of records, which pandas and jq read as it is.

    With ``about`` (hardware, time, settings) as an object that has the array under ``"rows"``.
    """
    found = [asdict(row) for row in rows]
    content = found if about is None else {"schema": SCHEMA, "about": about, "rows": found}
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_rows(path: Path) -> list[Row]:
    """The rows of what :func:`write_rows` wrote."""
    content = _read(path)
    try:
        return [Row(**row) for row in (content["rows"] if isinstance(content, dict) else content)]
    except (TypeError, KeyError) as error:
        raise DataError(f"{path} is not a results file of toporo ({error}).") from None


def read_about(path: Path) -> dict[str, Any]:
    """Hardware, time and settings of what :func:`write_rows` wrote; empty where it was not told."""
    content = _read(path)
    about = content.get("about") if isinstance(content, dict) else None
    return about if isinstance(about, dict) else {}


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"no results in {path.parent}: run `toporo reproduce` with --out {path.parent} first."
        ) from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder: give the results.json in it.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a results file of toporo ({error}).") from None
