"""Results of a table: rows by method, metric and selection rule, and results files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from toporo.errors import DataError, DivergedError
from toporo.files import read_json, write_text
from toporo.paper.base import BENCHMARKS, Benchmark
from toporo.paper.loaded import BenchmarkData
from toporo.paper.methods import BenchMethod
from toporo.paper.protocols import Metric, Protocol, Variant
from toporo.paper.runs import Store
from toporo.schema import Count, as_type
from toporo.topology import Prior
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
    selection : name in :data:`SELECTIONS`; in a search, one of its rules for choosing settings.
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


def statistics(values: Iterable[float]) -> dict[str, Any]:
    """Return mean, standard deviation and values as fields of a row."""
    rounded = [round(float(value), 6) for value in values]
    sd = round(float(np.std(rounded, ddof=1)), 6) if len(rounded) > 1 else None
    return {"mean": round(float(np.mean(rounded)), 6), "sd": sd, "per_seed": rounded}


def make_row(
    protocol: Protocol, method: BenchMethod, run: Record, rule: SelectionRule, metric: Metric, values: Iterable[float]
) -> Row:
    """Return the row of a method's runs, of which ``run`` is one, with a value per seed."""
    saw = Prior.from_dict(run["prior"]).saw if run["prior"] else ()
    return Row(
        benchmark=protocol.benchmark,
        method=method.name,
        metric=metric.name,
        selection=rule.name,
        **statistics(values),
        paper=protocol.paper(run["variant"], method.name, metric.name),
        saw=list(dict.fromkeys([*saw, *rule.saw])),
        source=run["source"],
        control=method.control,
        variant=run["variant"],
    )


def make_rows(protocol: Protocol, records: Iterable[Record]) -> list[Row]:
    """Return the rows of all variants, methods, selection rules and metrics in the order of the tables."""
    runs: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=lambda r: r["seed"]):
        runs.setdefault((record["variant"], record["method"]), []).append(record)
    rows = []
    for variant, method in product(protocol.variants, protocol.get_methods()):
        of_method = runs.get((variant.name, method.name), [])
        for run in of_method:
            if "diverged" in run:
                raise DivergedError(f"{variant.name} {method.name} seed {run['seed']}: {run['diverged']}".strip())
        histories = [[entry["metrics"] for entry in run["history"]] for run in of_method]
        for rule in (SELECTIONS[name] for name in protocol.rules if method.trained or name == "last"):
            selected = [select(history, rule.name, protocol.better) for history in histories]
            for metric in protocol.metrics if of_method else ():
                values = [metric.scale * metrics[metric.key] for metrics in selected]
                rows.append(make_row(protocol, method, of_method[0], rule, metric, values))
    return rows if protocol.average is None else [*rows, *_averages(protocol, rows)]


def _averages(protocol: Protocol, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield means over all variants, seed by seed, for methods that ran on every one of several variants."""
    variants = {row.variant for row in rows}
    # A published average is over all variants; beside one over some of them it would mislead.
    published = (protocol.average or {}) if len(variants) == len(protocol.variants) else {}
    by_column: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        by_column.setdefault((row.method, row.selection, row.metric), []).append(row)
    for (method, _, metric), column in by_column.items():
        if len(column) == len(variants) > 1:
            means = [float(np.mean(values)) for values in zip(*(row.per_seed for row in column), strict=False)]
            paper = published.get(method) if metric == protocol.whole.name else None
            yield replace(column[0], **statistics(means), paper=paper, variant=AVERAGE)


# ---------------------------------------------------------------------- a table


@dataclass(frozen=True)
class Results:
    """The result rows of a benchmark and, if it was run here, the data and records behind them.

    Attributes
    ----------
    protocol : as it was run.
    rows : in the order of the tables.
    about : hardware, time and settings; of a search, the settings tried.
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

    @property
    def tried(self) -> dict[str, dict[str, TriedSettings]]:
        """The settings that a search tried, by variant and method; empty for results of a table."""
        return as_type(self.about.get("search", {}), dict[str, dict[str, TriedSettings]], "the settings of a search")

    def headlines(self, metric: str | None = None) -> dict[tuple[str, str], Row]:
        """Return the row that stands for a method by variant and method: that of the protocol's rule, or else the last.

        ``metric`` is the name of a column; by default the one over all test groups.
        """
        column = metric or self.protocol.whole.name
        chosen: dict[tuple[str, str], Row] = {}
        for rule in ("last", self.protocol.headline):
            chosen |= {(r.variant, r.method): r for r in self.rows if (r.metric, r.selection) == (column, rule)}
        return chosen

    def write(self, path: Path) -> None:
        """Write the rows, and what there is to tell about them, as JSON."""
        content = {"schema": SCHEMA, "about": self.about, "rows": [asdict(row) for row in self.rows]}
        write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, path: Path, benchmark: str | None = None) -> Results:
        """Read a results file, which must be of the benchmark if one is named."""
        try:
            content = read_json(path)
        except OSError as error:
            raise DataError(f"cannot read the results {path}: {error.strerror}. Give a results.json.") from None
        stored = as_type(content, ResultsFile, f"{path} is not a results file of toporo")
        names = sorted({row.benchmark for row in stored.rows})
        if len(names) != 1 or benchmark not in (None, *names):
            found = f"results of {', '.join(names)}" if names else "no rows"
            raise DataError(f"{path} has {found}: expected those of {benchmark or 'one benchmark'}.")
        protocol = BENCHMARKS[names[0]].under(stored.about.protocol).protocol
        rounds = stored.about.settings.rounds or protocol.rounds
        return cls(replace(protocol, rounds=rounds), stored.rows, content.get("about", {}))


# ---------------------------------------------------------------------- files


class TriedSettings(Struct):
    """Settings that a search tried for a method, and by rule how well it ranks them."""

    settings: list[dict[str, Any]]
    ranks: dict[str, float | None]


class Rounds(Struct, frozen=True):
    """Number of rounds among the settings of a results file; 0 if they are the protocol's."""

    rounds: Count = 0


class About(Struct, frozen=True):
    """Parts of a results file's description that are read again."""

    protocol: str = "fair"
    settings: Rounds = Rounds()
    remarks: list[str] = []  # msgspec copies it


class ResultsFile(Struct):
    """Content of a results file."""

    rows: list[Row]
    about: About = About()
