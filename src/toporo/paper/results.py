"""Stored runs: keys, records and result rows."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, defstruct
from safetensors import SafetensorError
from safetensors.numpy import load
from scipy.stats import t as student

from toporo.errors import DataError, UnknownNameError, warn
from toporo.files import locked, read_json, sha256, write_text, write_whole
from toporo.paper.loaded import BenchmarkData
from toporo.paper.protocols import BenchMethod, Metric, Protocol, Variant
from toporo.schema import Count, as_type
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import AVERAGED, Record

Best = Callable[[Sequence[float]], float]
#: Which of several values is the best one.
BETTER: dict[str, Best] = {"higher": max, "lower": min}


@dataclass(frozen=True)
class SelectionRule:
    """A rule by name.

    Attributes
    ----------
    name, title : on the command line, and in tables.
    pick : from one metrics record per evaluation and :data:`BETTER`'s function to the index of the chosen record.
    saw : what the rule had to see of the test groups.
    averaged : whether it is of the averaged weights.
    """

    name: str
    title: str
    pick: Callable[[Sequence[Record], Best], int]
    saw: tuple[str, ...] = ()
    averaged: bool = False

    def titled(self, unit: str = "epochs") -> str:
        """The title for records of another unit than epochs."""
        return self.title.replace("epoch", unit.removesuffix("s"))


def _first_best(key: str) -> Callable[[Sequence[Record], Best], int]:
    def pick(history: Sequence[Record], best: Best) -> int:
        values = [record[key] for record in history]
        return values.index(best(values))

    return pick


def _last(history: Sequence[Record], best: Best) -> int:  # noqa: ARG001  # as rules have it
    return len(history) - 1


#: The rules that tables show. Of equal epochs the earliest is taken.
SELECTIONS: dict[str, SelectionRule] = {
    rule.name: rule
    for rule in (
        SelectionRule("last", "last epoch", _last),
        SelectionRule("averaged", "averaged weights", _last, averaged=True),
        SelectionRule("validation", "validation-selected", _first_best("validation")),
        SelectionRule("oracle", "best epoch (oracle)", _first_best("test"), saw=("test labels",)),
    )
}


def select(history: Sequence[Record], rule: str, better: str = "higher") -> Record:
    """The metrics of the epoch a rule chooses; ``better`` says whether ``"higher"`` or ``"lower"`` ones are.

    A rule of averaged weights gives theirs under the names of the others, and the others where there are none.
    """
    if rule not in SELECTIONS:
        raise UnknownNameError("selection rule", rule, SELECTIONS)
    if better not in BETTER:
        raise UnknownNameError("direction", better, BETTER)
    if not history:
        raise DataError("there is no epoch to select from: the run has not trained yet.")
    metrics = history[SELECTIONS[rule].pick(history, BETTER[better])]
    if not SELECTIONS[rule].averaged:
        return metrics
    return {**metrics, **{k.removeprefix(AVERAGED): v for k, v in metrics.items() if k.startswith(AVERAGED)}}


#: In place of a variant's name: all of them.
AVERAGE = "average"
SCHEMA, RUN_SCHEMA = "toporo.results/2", "toporo.run/2"
#: Version of the code behind stored runs, part of their key. Raise it by one with every change to toporo that may alter
#: the outcome of a run (methods, models, training, splits, priors, metrics): stored runs are then run again. Changes to
#: figures, tables, pages and messages leave it alone. What another package adds has versions of its own: the
#: ``code_version`` of its objectives and of its benchmarks' protocols.
CODE_VERSION = 1
#: Fields of a protocol that are not in a run's key, because they do not change its outcome.
FIELDS_NOT_IN_KEY = (
    "title", "methods", "extra", "variants", "metric", "metrics", "better", "digits", "changes", "notes", "unit",
    "rules", "headline", "average",
)  # fmt: skip
#: The same of a method.
METHOD_FIELDS_NOT_IN_KEY = ("title", "control", "everywhere", "uses")


#: What captions say of the data and the settings, of what a results file tells beside its rows; older ones say steps.
Chips = defstruct("Chips", [("found", Count), ("listed", Count)])
Data = defstruct("Data", [("rows", Count, 0), ("complete", bool | None, None), ("chips", Chips | None, None)])
Rounds = defstruct("Rounds", [("rounds", Count, 0), ("steps", Count, 0)])
About = defstruct("About", [("settings", Rounds, None), ("data", Data, None), ("skipped", dict[str, str], None)])


# ---------------------------------------------------------------------- runs


class StoredRun(Struct):
    """The record of a run, as far as tables and pages read it."""

    key: str
    variant: str
    source: str
    method: str
    seed: int
    settings: dict[str, Any]
    prior: dict[str, Any] | None
    topology: dict[str, Any] | None
    choice: dict[str, Any] | None
    warnings: list[str]
    history: list[dict[str, Any]]
    timing: dict[str, Any] | None = None
    network_kept: bool = True


@dataclass(frozen=True)
class Job:
    """A method on a benchmark with a seed.

    Its files are named by a hash of everything that determines the outcome: settings, seed, data and code versions.

    Attributes
    ----------
    protocol, method, seed : what is run.
    fingerprint : of the data.
    variant : its name.
    """

    protocol: Protocol
    method: BenchMethod
    seed: int
    fingerprint: str
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.variant} {self.method.name} seed {self.seed}".strip()

    @property
    def key(self) -> str:
        """``method-seed-hash``: equal keys mean equal results."""
        content = {
            "schema": RUN_SCHEMA,
            "code": code_versions(self.method),
            "protocol": key_fields(self.protocol),
            "method": {k: v for k, v in asdict(self.method).items() if k not in METHOD_FIELDS_NOT_IN_KEY},
            "seed": self.seed,
            "variant": self.variant,
            "data": self.fingerprint,
        }
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()
        return f"{self.method.name}-s{self.seed}-{digest[:12]}"

    def record_path(self, out: Path) -> Path:
        """Where its record goes once it is done."""
        return out / "runs" / f"{self.key}.json"

    def model_path(self, out: Path) -> Path:
        """Where its trained model goes."""
        return out / "runs" / f"{self.key}.safetensors"

    def checkpoint_path(self, out: Path, phase: str) -> Path:
        """Where a phase of it leaves its checkpoints."""
        return out / "runs" / f"{self.key}.{phase}.checkpoint"

    def finished(self, out: Path, *, network: bool = False) -> dict[str, Any] | None:
        """Its stored record, if it is done; where its network is wanted, if that was stored too.

        Of a run whose record or model is not as it was stored, the damaged file is set aside: it is not done.
        """
        record, model = read_sealed(self.record_path(out)), self.model_path(out)
        if record is None or not model.is_file():
            return None
        try:
            self._check(record)
        except DataError as error:
            set_aside(self.record_path(out), f"{self.record_path(out)} is not the record of its run: {error}")
            return None
        if sha256(model) != record.pop("model", None):
            set_aside(model, f"{model} is not as its run left it.")
            return None
        return None if network and not record.get("network_kept", True) else record

    def _check(self, record: Record) -> None:
        """Whether a record is this run's, and what tables and pages read of it is what they expect."""
        from toporo.training import RoundRecord  # torch takes seconds that loading a data set need not wait for

        stored = as_type(record, StoredRun, "the record of a run")
        named = (stored.key, stored.variant, stored.method, stored.seed)
        if named != (self.key, self.variant, self.method.name, self.seed):
            raise DataError("it names another run.")
        if stored.prior is not None:
            Prior.from_dict(stored.prior)
        if stored.topology is not None:
            GroupGraph.from_json(json.dumps(stored.topology))
        wanted = [metric.key for metric in self.protocol.metrics] + (
            ["validation", "test"] if self.method.trained else []
        )
        for entry in stored.history:
            metrics = RoundRecord.from_dict(entry).metrics
            as_type({key: metrics.get(key) for key in wanted}, dict[str, float], "the metrics of a round")
        if not stored.history:
            raise DataError("it has no history.")

    def store(self, out: Path, record: Record, model: bytes, *, network: bool = False) -> Record:
        """Store record and model, and return the record: that of another process if it was first with this run."""
        with locked(out / "runs"):
            done = self.finished(out, network=network)
            if done is None:
                write_whole(self.model_path(out), lambda stream: stream.write(model))
                write_sealed(self.record_path(out), {**record, "model": hashlib.sha256(model).hexdigest()})
        return done or record

    def read_tensors(self, out: Path) -> dict[str, npt.NDArray[Any]]:
        """What it stored of its model."""
        path = self.model_path(out)
        try:
            return load(path.read_bytes())
        except FileNotFoundError:
            raise DataError(f"{path} is missing, which has the model of {self.key}: run it again.") from None
        except SafetensorError as error:
            raise DataError(f"{path} is damaged ({error}): run it again.") from None


def write_sealed(path: Path, content: Record) -> None:
    """Write JSON that carries a checksum of what it says."""
    plain = json.loads(json.dumps(content))
    write_text(path, json.dumps({**plain, "checksum": _checksum(plain)}))


def read_sealed(path: Path) -> dict[str, Any] | None:
    """What :func:`write_sealed` wrote; None if there is no such file, or if it was damaged and is now set aside."""
    try:
        return check_seal(path)
    except FileNotFoundError:
        return None
    except DataError as error:
        set_aside(path, str(error))
        return None


def check_seal(path: Path) -> dict[str, Any]:
    """What :func:`write_sealed` wrote; an error if it is damaged."""
    content = read_json(path)
    if not isinstance(content, dict) or content.pop("checksum", None) != _checksum(content):
        raise DataError(f"{path} is not as it was written: its checksum is of other content.")
    return content


def _checksum(content: Record) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def set_aside(path: Path, why: str) -> None:
    """Give a damaged file another name, so that it is neither used nor lost, and warn of it."""
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in itertools.count())
    place = next(name for name in names if not name.exists())
    with suppress(FileNotFoundError):  # another process was quicker
        path.rename(place)
        warn(f"{why} It is set aside as {place.name}, and what it was of is run again.")


def code_versions(*methods: BenchMethod) -> dict[str, Any]:
    """Versions of the code that runs of these methods depend on: toporo's, torch's and their objectives'."""
    from toporo.objectives import OBJECTIVES  # torch takes seconds that loading a data set need not wait for

    names = {method.objective for method in methods if method.objective is not None}
    own = {name: OBJECTIVES[name].code_version for name in sorted(names)}
    return {"toporo": CODE_VERSION, "torch": version("torch"), "objectives": own}


def key_fields(protocol: Protocol) -> dict[str, Any]:
    """The fields of a protocol that determine the outcome of a run."""
    return {k: v for k, v in asdict(protocol).items() if k not in FIELDS_NOT_IN_KEY}


# ---------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Row:
    """One method, metric and selection rule: mean and sample standard deviation over seeds, and what it saw.

    A method without rounds has rows of the rule ``last`` alone: the model as it was fitted. One that no seed changes
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


@dataclass(frozen=True)
class Paired:
    """How much better a method is than another, each time on the same variant and with the same seed.

    Attributes
    ----------
    method : its name.
    differences : by variant and seed, positive where it is better.
    """

    method: str
    differences: npt.NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Over all pairs."""
        return float(self.differences.mean())

    def interval(self, *, of_variants: bool) -> tuple[float, float]:
        """Where the mean lies with 95 % by Student's t: pairs as draws, or variants' means as draws."""
        draws = self.differences.mean(axis=1) if of_variants else self.differences.ravel()
        half = float(student.ppf(0.975, len(draws) - 1) * draws.std(ddof=1) / len(draws) ** 0.5)
        return self.mean - half, self.mean + half


def pair_up(protocol: Protocol, rows: Iterable[Row], against: str = "erm") -> list[Paired]:
    """Every method of the table against one of them, where all variants ran with the same two or more seeds."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if (row.selection, row.metric) == (protocol.headline, protocol.whole.name) and row.variant != AVERAGE:
            values.setdefault(row.method, {})[row.variant] = row.per_seed
    theirs = values.pop(against, {})
    seeds = {len(own) for own in theirs.values()}
    if len(theirs) < 2 or len(seeds) != 1 or seeds == {1}:
        return []
    sign = 1.0 if protocol.better == "higher" else -1.0
    return [
        Paired(method, sign * np.array([np.subtract(own[variant], theirs[variant]) for variant in theirs]))
        for method, own in values.items()
        if own.keys() == theirs.keys() and {len(each) for each in own.values()} == seeds
    ]


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
            paper=published.get(method) if metric == protocol.whole.name else None,
            variant=AVERAGE,
        )


def _row(protocol: Protocol, method: BenchMethod, metric: Metric, rule: SelectionRule, runs: Sequence[Record]) -> Row:
    values = []
    for run in runs:
        metrics = [entry["metrics"] for entry in run["history"]]
        values.append(round(metric.scale * select(metrics, rule.name, protocol.better)[metric.key], 6))
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
    plain = [asdict(row) for row in rows]
    content = plain if about is None else {"schema": SCHEMA, "about": about, "rows": plain}
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_rows(path: Path) -> list[Row]:
    """The rows of what :func:`write_rows` wrote."""
    content = read_results(path)
    rows = content.get("rows") if isinstance(content, dict) else content
    return as_type(rows, list[Row], f"{path} is not a results file of toporo")


def read_about(path: Path) -> dict[str, Any]:
    """Hardware, time and settings of what :func:`write_rows` wrote; empty where it was not told."""
    content = read_results(path)
    about = content.get("about") if isinstance(content, dict) else None
    as_type(about, About | None, f"{path} is not a results file of toporo")  # type: ignore[arg-type]  # a union
    return about or {}


def read_results(path: Path) -> Any:
    """What a file of results holds; errors say what to do."""
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
    """One variant of an outcome: its own protocol, data, rows, records and jobs."""

    variant: Variant
    protocol: Protocol
    loaded: BenchmarkData
    rows: list[Row]
    records: list[Record]
    jobs: list[Job]

    @property
    def title(self) -> str:
        """The benchmark's title with the variant's."""
        return f"{self.protocol.title} {self.variant.title}".strip()


@dataclass(frozen=True)
class Outcome:
    """What a reproduction gives: rows of all tables, the records behind them, and the data by variant."""

    protocol: Protocol
    loaded: Mapping[str, BenchmarkData]
    rows: list[Row]
    records: list[Record]
    jobs: list[Job]
    resumed: int
    about: Mapping[str, Any] | None = None

    @property
    def parts(self) -> list[VariantOutcome]:
        """Each variant by itself."""
        return [
            VariantOutcome(
                variant,
                self.protocol.for_variant(variant),
                self.loaded[variant.name],
                [row for row in self.rows if row.variant == variant.name],
                [record for record in self.records if record["variant"] == variant.name],
                [job for job in self.jobs if job.variant == variant.name],
            )
            for variant in self.protocol.variants
            if variant.name in self.loaded
        ]
