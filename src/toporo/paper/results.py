"""Results of a table: rows by method, metric and selection rule, comparisons with the baseline, results files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import defstruct
from scipy.stats import t as student

from toporo.errors import DataError
from toporo.files import read_json, write_text
from toporo.paper.base import BENCHMARKS, Benchmark
from toporo.paper.loaded import BenchmarkData
from toporo.paper.methods import BenchMethod
from toporo.paper.protocols import Metric, Protocol, Variant
from toporo.paper.runs import Store
from toporo.schema import Count, as_type
from toporo.topology import GroupGraph, Prior
from toporo.types import AVERAGED, Name, Record

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
    if not history:
        raise DataError("there is no epoch to select from: the run has not trained yet.")
    selection, last = SELECTIONS[rule], history[-1]
    if selection.by:
        best = max if better == "higher" else min
        return best(history, key=lambda metrics: metrics[selection.by])
    if selection.averaged:
        return {**last, **{k.removeprefix(AVERAGED): v for k, v in last.items() if k.startswith(AVERAGED)}}
    return last


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
    selected = [select(history, rule.name, protocol.better) for history in histories]
    first = runs[0]
    prior = Prior.from_dict(first["prior"]) if first["prior"] else None
    return Row(
        benchmark=protocol.benchmark,
        method=method.name,
        metric=metric.name,
        selection=rule.name,
        **_statistics([metric.scale * metrics[metric.key] for metrics in selected]),
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
    for (method, _, metric), column in by_column.items():
        if len(column) == len(variants) > 1:
            by_seed = zip(*(row.per_seed for row in column), strict=False)
            yield replace(
                column[0],
                **_statistics([float(np.mean(values)) for values in by_seed]),
                paper=published.get(method) if metric == protocol.whole.name else None,
                variant=AVERAGE,
            )


# ---------------------------------------------------------------------- a table


@dataclass(frozen=True)
class TopologyRuns:
    """Topology as several runs learned it: one graph and one prior per run, on the same groups.

    Attributes
    ----------
    graphs, priors : in the order of the runs.
    """

    graphs: tuple[GroupGraph, ...]
    priors: tuple[Prior, ...]

    @property
    def union(self) -> GroupGraph:
        """Graph of all edges; it has the runs as its resamples, so a drawing shows how many runs have an edge."""
        first = self.graphs[0]
        edges = dict.fromkeys(edge for graph in self.graphs for edge in graph.edges)
        runs = [graph.edges for graph in self.graphs]
        return GroupGraph(first.names, dict.fromkeys(edges, 1.0), origin=first.origin, bootstrap_edges=runs)

    @property
    def kept(self) -> dict[tuple[Any, Any], float]:
        """Share of all runs' resamples by edge, largest first; empty where nothing was resampled."""
        draws = [draw for graph in self.graphs for draw in graph.bootstrap_edges]
        return {edge: count / len(draws) for edge, count in Counter(chain.from_iterable(draws)).most_common()}

    @property
    def kinds(self) -> int:
        """Number of different sets of edges."""
        return len({frozenset(graph.edges) for graph in self.graphs})

    def weights(self, name: Name) -> list[float]:
        """Return the weight of a group in the prior of each run."""
        return [prior.weights[name] for prior in self.priors]

    @property
    def centrality(self) -> dict[Name, float]:
        """Mean over runs; of the prior's weights where centralities were not kept."""
        values = [prior.centrality or prior.weights for prior in self.priors]
        return {name: float(np.mean([by_name[name] for by_name in values])) for name in self.priors[0].weights}


@dataclass(frozen=True)
class Results:
    """The result rows of a benchmark and, if it was run here, the data and records behind them.

    Attributes
    ----------
    protocol : as it was run.
    rows : in the order of the tables.
    about : hardware, time and settings; empty if there is nothing to tell.
    data : by variant.
    records : of the runs, in the order of the tables.
    store : the stored runs.
    """

    protocol: Protocol
    rows: list[Row]
    about: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, BenchmarkData] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    store: Store = field(default_factory=lambda: Store(Path()))

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark's definition."""
        return BENCHMARKS[self.protocol.benchmark]

    @property
    def variant(self) -> Variant:
        """The variant, for results of one."""
        return self.protocol.variants[0]

    @property
    def loaded(self) -> BenchmarkData:
        """The data, for results of one variant."""
        return self.data[self.variant.name]

    @property
    def title(self) -> str:
        """The benchmark's title with the variant's, for results of one."""
        return f"{self.protocol.title} {self.variant.title}".strip()

    @property
    def parts(self) -> list[Results]:
        """The results of each variant that was run."""
        return [
            replace(
                self,
                protocol=self.protocol.for_variant(variant),
                rows=rows,
                records=[record for record in self.records if record["variant"] == variant.name],
            )
            for variant in self.protocol.variants
            if (rows := [row for row in self.rows if row.variant == variant.name])
        ]

    def headlines(self, metric: str | None = None) -> dict[tuple[str, str], Row]:
        """Return the row that stands for a method by variant and method: that of the protocol's rule, or else the last.

        ``metric`` is the name of a column; by default the one over all test groups.
        """
        column = metric or self.protocol.whole.name
        chosen: dict[tuple[str, str], Row] = {}
        for rule in ("last", self.protocol.headline):
            chosen |= {(r.variant, r.method): r for r in self.rows if (r.metric, r.selection) == (column, rule)}
        return chosen

    def pairs(self) -> list[Paired]:
        """Compare every method with the baseline, if all variants ran with the same two or more seeds."""
        figures: dict[str, dict[str, list[float]]] = {}
        for (variant, method), row in self.headlines().items():
            if variant != AVERAGE:
                figures.setdefault(method, {})[variant] = row.per_seed
        reference = figures.pop(self.protocol.baseline.name, {}) if self.protocol.baseline is not None else {}
        seeds = {variant: len(values) for variant, values in reference.items()}
        if len(reference) < 2 or len(set(seeds.values())) != 1 or 1 in seeds.values():
            return []
        return [
            Paired(method, self.protocol.sign * np.array([np.subtract(ours[v], reference[v]) for v in reference]))
            for method, ours in figures.items()
            if {variant: len(values) for variant, values in ours.items()} == seeds
        ]

    def learned_topologies(self) -> TopologyRuns | None:
        """Return the learned topology and prior of every seed, if the method that learns one was run on one variant."""
        name = self.protocol.learned.name if self.protocol.learned else ""
        runs = [r for r in self.records if r["method"] == name and r["topology"] and r["prior"]]
        if not runs:
            return None
        runs.sort(key=lambda run: run["seed"])
        return TopologyRuns(
            tuple(GroupGraph.from_json(json.dumps(run["topology"])) for run in runs),
            tuple(Prior.from_dict(run["prior"]) for run in runs),
        )

    def write(self, path: Path) -> None:
        """Write the rows as a JSON array or, if there is something to tell about them, as an object that has both."""
        rows = [asdict(row) for row in self.rows]
        content = {"schema": SCHEMA, "about": self.about, "rows": rows} if self.about else rows
        write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, path: Path, benchmark: str | None = None) -> Results:
        """Read a results file, which must be of the benchmark if one is named."""
        content = read_results(path)
        if not isinstance(content, dict):
            content = {"rows": content}
        about: dict[str, Any] = content.get("about") or {}
        rows = as_type(content.get("rows"), list[Row], f"{path} is not a results file of toporo")
        as_type(about, About, f"{path} is not a results file of toporo")
        names = sorted({row.benchmark for row in rows})
        if len(names) != 1 or benchmark not in (None, *names):
            found = f"results of {', '.join(names)}" if names else "no rows"
            raise DataError(f"{path} has {found}: expected those of {benchmark or 'one benchmark'}.")
        protocol = BENCHMARKS[names[0]].under(about.get("protocol", "fair")).protocol
        settings = about.get("settings", {})
        rounds = settings.get("rounds", settings.get("steps", protocol.rounds))  # older files call rounds steps
        return cls(replace(protocol, rounds=rounds), rows, about)


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


# ---------------------------------------------------------------------- files

#: What captions read of a results file beside its rows; older files have steps.
Chips = defstruct("Chips", [("found", Count), ("listed", Count)])
Data = defstruct("Data", [("rows", Count, 0), ("complete", bool | None, None), ("chips", Chips | None, None)])
Rounds = defstruct("Rounds", [("rounds", Count, 0), ("steps", Count, 0)])
About = defstruct(
    "About",
    [("protocol", str, "fair"), ("settings", Rounds, None), ("data", Data, None), ("skipped", dict[str, str], None)],
)


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
