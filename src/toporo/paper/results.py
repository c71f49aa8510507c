"""Result rows: evaluations selected by a rule, means over seeds, and results files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import defstruct
from scipy.stats import t as student

from toporo.errors import DataError, UnknownNameError
from toporo.files import read_json, write_text
from toporo.paper.loaded import BenchmarkData
from toporo.paper.protocols import BenchMethod, Metric, Protocol, Variant
from toporo.paper.runs import Run
from toporo.schema import Count, as_type
from toporo.topology.prior import Prior
from toporo.types import AVERAGED, Record

#: In place of a variant's name: all of them.
AVERAGE = "average"
SCHEMA = "toporo.results/2"


@dataclass(frozen=True)
class SelectionRule:
    """A rule that selects one evaluation of a run.

    Attributes
    ----------
    name, title : on the command line, and in tables.
    by : metric that is best at the selected evaluation; empty for the last evaluation.
    saw : what the rule had to see of the test groups.
    averaged : whether metrics are those of the averaged weights.
    """

    name: str
    title: str
    by: str = ""
    saw: tuple[str, ...] = ()
    averaged: bool = False

    def titled(self, unit: str = "epochs") -> str:
        """Return the title for evaluations in another unit than epochs."""
        return self.title.replace("epoch", unit.removesuffix("s"))


#: Rules that tables show. Of equal evaluations the earliest is selected.
SELECTIONS: dict[str, SelectionRule] = {
    rule.name: rule
    for rule in (
        SelectionRule("last", "last epoch"),
        SelectionRule("averaged", "averaged weights", averaged=True),
        SelectionRule("validation", "validation-selected", "validation"),
        SelectionRule("oracle", "best epoch (oracle)", "test", saw=("test labels",)),
    )
}


def select(history: Sequence[Record], rule: str, better: str = "higher") -> Record:
    """Return the metrics of the evaluation that a rule selects.

    A rule for averaged weights returns their metrics under the usual names, and the usual ones where there are none.

    Parameters
    ----------
    history : metrics of the evaluations.
    rule : name in :data:`SELECTIONS`.
    better : whether ``"higher"`` or ``"lower"`` metrics are better.
    """
    if rule not in SELECTIONS:
        raise UnknownNameError("selection rule", rule, SELECTIONS)
    if better not in ("higher", "lower"):
        raise UnknownNameError("direction", better, ("higher", "lower"))
    if not history:
        raise DataError("there is no epoch to select from: the run has not trained yet.")
    chosen = SELECTIONS[rule]
    if chosen.by:
        best = max if better == "higher" else min
        return best(history, key=lambda metrics: metrics[chosen.by])
    metrics = history[-1]
    if not chosen.averaged:
        return metrics
    return {**metrics, **{k.removeprefix(AVERAGED): v for k, v in metrics.items() if k.startswith(AVERAGED)}}


# ---------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Row:
    """One method, metric and selection rule: mean and sample standard deviation over seeds.

    A method without rounds has rows of the rule ``last`` only. A method that does not depend on the seed has a single
    value and no standard deviation.

    Attributes
    ----------
    paper : the published figure, if there is one.
    saw : what went into the figure of the test groups.
    source : of the data.
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


def _statistics(values: Sequence[float]) -> dict[str, Any]:
    """Return mean, standard deviation and values as fields of a row."""
    rounded = [round(float(value), 6) for value in values]
    sd = round(float(np.std(rounded, ddof=1)), 6) if len(rounded) > 1 else None
    return {"mean": round(float(np.mean(rounded)), 6), "sd": sd, "per_seed": rounded}


def make_rows(protocol: Protocol, records: Iterable[Record]) -> list[Row]:
    """Return the rows of all variants, methods, selection rules and metrics in the order of the tables."""
    runs: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=lambda r: r["seed"]):
        runs.setdefault((record["variant"], record["method"]), []).append(record)
    rows = [
        _row(protocol, method, metric, rule, runs[variant.name, method.name])
        for variant in protocol.variants
        for method in protocol.get_methods()
        if (variant.name, method.name) in runs
        for rule in (SELECTIONS[name] for name in protocol.rules)
        if method.trained or rule.name == "last"
        for metric in protocol.metrics
    ]
    return rows if protocol.average is None else [*rows, *_averages(protocol, rows)]


def _row(protocol: Protocol, method: BenchMethod, metric: Metric, rule: SelectionRule, runs: Sequence[Record]) -> Row:
    histories = [[entry["metrics"] for entry in run["history"]] for run in runs]
    first = runs[0]
    prior = Prior.from_dict(first["prior"]) if first["prior"] else None
    return Row(
        benchmark=protocol.benchmark,
        method=method.name,
        metric=metric.name,
        selection=rule.name,
        **_statistics(
            [metric.scale * select(history, rule.name, protocol.better)[metric.key] for history in histories]
        ),
        paper=protocol.paper(first["variant"], method.name, metric.name),
        saw=[*(prior.saw if prior else ()), *rule.saw],
        source=first["source"],
        control=method.control,
        variant=first["variant"],
    )


def _averages(protocol: Protocol, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield means over all variants, seed by seed, for methods that ran on every one of several variants."""
    variants = list(dict.fromkeys(row.variant for row in rows))
    # A published average is over all variants; beside one over some of them it would mislead.
    published = (protocol.average or {}) if len(variants) == len(protocol.variants) else {}
    by_column: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        by_column.setdefault((row.method, row.selection, row.metric), []).append(row)
    for (method, _, metric), own in by_column.items():
        if len(variants) < 2 or len(own) < len(variants):
            continue
        seeds = min(len(row.per_seed) for row in own)
        yield replace(
            own[0],
            **_statistics([float(np.mean([row.per_seed[i] for row in own])) for i in range(seeds)]),
            paper=published.get(method) if metric == protocol.whole.name else None,
            variant=AVERAGE,
        )


def headlines(protocol: Protocol, rows: Sequence[Row], metric: str | None = None) -> dict[tuple[str, str], Row]:
    """Return the row that stands for a method by variant and method: that of the protocol's rule, or else the last.

    Parameters
    ----------
    protocol : of the benchmark.
    rows : of any number of variants.
    metric : name of a column; by default the one over all test groups.
    """
    column = metric or protocol.whole.name
    chosen: dict[tuple[str, str], Row] = {}
    for rule in ("last", protocol.headline):
        chosen |= {(r.variant, r.method): r for r in rows if (r.metric, r.selection) == (column, rule)}
    return chosen


@dataclass(frozen=True)
class Paired:
    """Differences between a method and another on the same variant with the same seed.

    Attributes
    ----------
    method : its name.
    differences : by variant and seed, positive where the method is better.
    """

    method: str
    differences: npt.NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Mean over all pairs."""
        return float(self.differences.mean())

    def interval(self, *, of_variants: bool) -> tuple[float, float]:
        """Return the 95 % interval of the mean by Student's t over all pairs, or over the means of variants."""
        draws = self.differences.mean(axis=1) if of_variants else self.differences.ravel()
        half = float(student.ppf(0.975, len(draws) - 1) * draws.std(ddof=1) / len(draws) ** 0.5)
        return self.mean - half, self.mean + half


def pair_up(protocol: Protocol, rows: Iterable[Row]) -> list[Paired]:
    """Compare every method with the baseline, if all variants ran with the same two or more seeds."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if (row.selection, row.metric) == (protocol.headline, protocol.whole.name) and row.variant != AVERAGE:
            values.setdefault(row.method, {})[row.variant] = row.per_seed
    theirs = values.pop(protocol.baseline.name, {}) if protocol.baseline is not None else {}
    seeds = {len(own) for own in theirs.values()}
    if len(theirs) < 2 or len(seeds) != 1 or seeds == {1}:
        return []
    return [
        Paired(method, protocol.sign * np.array([np.subtract(own[variant], theirs[variant]) for variant in theirs]))
        for method, own in values.items()
        if own.keys() == theirs.keys() and {len(each) for each in own.values()} == seeds
    ]


# ---------------------------------------------------------------------- files

#: What captions read of a results file beside its rows; older files have steps.
Chips = defstruct("Chips", [("found", Count), ("listed", Count)])
Data = defstruct("Data", [("rows", Count, 0), ("complete", bool | None, None), ("chips", Chips | None, None)])
Rounds = defstruct("Rounds", [("rounds", Count, 0), ("steps", Count, 0)])
About = defstruct("About", [("settings", Rounds, None), ("data", Data, None), ("skipped", dict[str, str], None)])


def write_rows(rows: Iterable[Row], path: Path, about: Mapping[str, Any] | None = None) -> None:
    """Write rows as a JSON array of objects; with ``about``, as an object that has the array under ``"rows"``."""
    plain = [asdict(row) for row in rows]
    content = plain if about is None else {"schema": SCHEMA, "about": about, "rows": plain}
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a results file."""
    content = read_results(path)
    rows = content.get("rows") if isinstance(content, dict) else content
    return as_type(rows, list[Row], f"{path} is not a results file of toporo")


def read_about(path: Path) -> dict[str, Any]:
    """Read hardware, time and settings of a results file; empty if it has none."""
    content = read_results(path)
    about = content.get("about") if isinstance(content, dict) else None
    as_type(about, About | None, f"{path} is not a results file of toporo")  # type: ignore[arg-type]  # a union
    return about or {}


def read_results(path: Path) -> Any:
    """Read a JSON file of results; errors say what to do."""
    try:
        return read_json(path)
    except FileNotFoundError:
        raise DataError(
            f"no results in {path.parent}: run `toporo reproduce` with --out {path.parent} first."
        ) from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder: give the results.json in it.") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from None
    except DataError as error:
        raise DataError(f"{path} is not a results file of toporo: {error}") from None


# ---------------------------------------------------------------------- a whole table


@dataclass(frozen=True)
class VariantOutcome:
    """One variant of an outcome: its own protocol, data, rows, records and runs."""

    variant: Variant
    protocol: Protocol
    loaded: BenchmarkData
    rows: list[Row]
    records: list[Record]
    runs: list[Run]

    @property
    def title(self) -> str:
        """The benchmark's title with the variant's."""
        return f"{self.protocol.title} {self.variant.title}".strip()


@dataclass(frozen=True)
class Outcome:
    """The result of a reproduction: rows of all tables, their runs and records, and the data by variant.

    Attributes
    ----------
    protocol : as it was run.
    loaded : data by variant.
    rows, records, runs : in the order of the tables.
    resumed : number of runs that were done before.
    about : hardware, time and settings for the results file, if there is something to tell.
    """

    protocol: Protocol
    loaded: Mapping[str, BenchmarkData]
    rows: list[Row]
    records: list[Record]
    runs: list[Run]
    resumed: int
    about: Mapping[str, Any] | None = None

    @property
    def parts(self) -> list[VariantOutcome]:
        """The variants."""
        return [
            VariantOutcome(
                variant,
                self.protocol.for_variant(variant),
                self.loaded[variant.name],
                [row for row in self.rows if row.variant == variant.name],
                [record for record in self.records if record["variant"] == variant.name],
                [run for run in self.runs if run.variant == variant.name],
            )
            for variant in self.protocol.variants
            if variant.name in self.loaded
        ]
