"""Search over settings: the figures that each rule for choosing settings reaches, and the best of all settings.

Rules that may not see the labels of the test groups choose by rows of the training groups that were set aside, or by
regions of training groups held out, as far from the others as the test groups are from the training groups.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, to_builtins
from scipy.stats import spearmanr

from toporo.checks import whole
from toporo.choice import hop_folds
from toporo.errors import DataError, DivergedError, SettingError
from toporo.files import write_text
from toporo.pages import Table
from toporo.paper.base import BENCHMARKS, Benchmark, load_dataset
from toporo.paper.loaded import BenchmarkData
from toporo.paper.methods import BenchMethod
from toporo.paper.protocols import Protocol, Variant
from toporo.paper.results import read_results
from toporo.paper.runner import Progress, Runner, Say, quiet
from toporo.paper.runs import Run, Store
from toporo.paper.tables import METHOD, NONE, mean_sd, print_tables
from toporo.schema import as_type
from toporo.types import Record

SCHEMA = "toporo.search/1"
#: Largest number of regions held out, and evaluations of a run.
FOLDS, EVALUATIONS = 3, 20
#: Rules without test labels; and all: the table's own settings, then those best on validation rows of the training
#: groups, in regions held out, and on the test groups.
LABEL_FREE = ("validation", "regions")
RULES = ("own", *LABEL_FREE, "oracle")


# ---------------------------------------------------------------------- runs


@dataclass(frozen=True)
class SearchPlan:
    """All runs of a search on one variant.

    Attributes
    ----------
    protocol : with as many evaluations as a search makes.
    data : of the benchmark, then of every fold: regions of training groups in place of the test groups.
    likeness : of every fold; see :class:`toporo.choice.hops.HopFold`.
    runs : of all methods, settings, seeds and folds.
    """

    protocol: Protocol
    data: tuple[BenchmarkData, ...]
    likeness: tuple[float, ...]
    runs: tuple[Run, ...]


def make_plan(
    benchmark: Benchmark,
    variant: Variant,
    loaded: BenchmarkData,
    *,
    seeds: int = 3,
    methods: Iterable[str] | None = None,
) -> SearchPlan:
    """Return the runs of a search.

    Parameters
    ----------
    benchmark : under its protocol.
    variant, loaded : one of its variants, and the data.
    seeds : number of seeds.
    methods : names; by default those of the protocol's table that have a grid, except λ = 0.
    """
    settled = benchmark.protocol.for_variant(variant)
    if settled.unit != "epochs" or settled.model != "mlp":
        raise SettingError(f"--search is for networks on plain rows; {benchmark.name} has none.")
    protocol = replace(settled, evaluate_every=max(1, settled.rounds // EVALUATIONS))
    candidates = protocol.get_methods(protocol.methods if methods is None else methods)
    if methods is None:
        candidates = [method for method in candidates if method.settings.get("penalty") != 0.0]
    chosen = [method for method in candidates if method.grid is not None]
    without = [method.name for method in candidates if method.grid is None]
    if without and (methods is not None or not chosen):
        able = [method.name for method in protocol.get_methods() if method.grid is not None]
        raise SettingError(
            f"{', '.join(without)} cannot be searched, without a grid of settings; expected some of {', '.join(able)}."
        )
    folds = _folds(loaded)
    data = (loaded, *(data for data, _ in folds))
    runs = tuple(
        Run(protocol, replace(method, settings=settings), seed, part.fingerprint, variant.name, fold)
        for fold, part in enumerate(data)
        for method in chosen
        for seed in range(seeds)
        for settings in _settings(method)
    )
    return SearchPlan(protocol, data, tuple(likeness for _, likeness in folds), runs)


def _settings(method: BenchMethod) -> list[dict[str, Any]]:
    """Return the method's own settings, then those of its grid on top of them, each once."""
    grid, settings = method.grid or {}, [dict(method.settings)]
    for values in itertools.product(*grid.values()):
        if (changed := {**method.settings, **dict(zip(grid, values, strict=True))}) not in settings:
            settings.append(changed)
    return settings


def _folds(loaded: BenchmarkData) -> list[tuple[BenchmarkData, float]]:
    """Return the training groups with regions of them in place of the test groups, and how like those they are."""
    if len(loaded.train) < 3:
        raise DataError(
            f"{loaded.name} has {len(loaded.train)} training groups: a search holds some of them out and trains on at "
            "least two, so expected three or more."
        )
    rows = loaded.data.select(loaded.train)
    made = []
    for fold in hop_folds(loaded.graph, loaded.train, loaded.test, FOLDS):
        kept = tuple(name for name in loaded.train if name not in fold.held_out)
        made.append((replace(loaded, data=rows, train=kept, test=fold.held_out), fold.likeness))
    return made


# ---------------------------------------------------------------------- results


class Choice(Struct):
    """Result of a rule for a method, by seed.

    Attributes
    ----------
    values : the figure over all test groups; the mean over settings that look equally good.
    regrets : difference to the best of all figures.
    taken : settings and epoch; of several equal ones the first, and how many there are.
    """

    values: list[float]
    regrets: list[float]
    taken: list[dict[str, Any]]


class MethodSearch(Struct):
    """Results for a method.

    Attributes
    ----------
    title : the method's.
    settings : those tried, the method's own first; without those that diverged.
    last : test figures after the last epoch, by setting and seed.
    rules : results of rules that choose the settings; all train to the last epoch.
    epochs : results of rules that choose the epoch too.
    ranks : by rule, Spearman's correlation of its score with the test figure over settings, after the last epoch, mean
        over seeds; None if all are equal, or there are fewer than three.
    """

    title: str
    settings: list[dict[str, Any]]
    last: list[list[float]]
    rules: dict[str, Choice]
    epochs: dict[str, Choice]
    ranks: dict[str, float | None]


class VariantSearch(Struct):
    """Results for a variant: its folds (groups held out and their likeness to the test), and the methods by name."""

    variant: str
    title: str
    digits: int
    runs: int
    folds: list[dict[str, Any]]
    methods: dict[str, MethodSearch]


class Search(Struct):
    """Result of :func:`search_settings`, and content of its file."""

    schema: str
    benchmark: str
    protocol: str
    seeds: int
    variants: list[VariantSearch]


def read_search(path: Path, benchmark: str) -> Search:
    """Read a benchmark's search from a file that :func:`search_settings` wrote."""
    stored = as_type(read_results(path), Search, f"{path} is not a search of toporo")
    if stored.schema != SCHEMA or stored.benchmark != benchmark:
        raise DataError(f"{path} has a search of {stored.benchmark} ({stored.schema}): expected {benchmark}, {SCHEMA}.")
    return stored


def search_settings(
    name: str,
    out: str | os.PathLike[str],
    *,
    protocol: str = "fair",
    seeds: int = 3,
    methods: Sequence[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    source: str = "auto",
    workers: int | None = 1,
    progress: Progress = quiet,
    say: Say = quiet,
    variant: str | None = None,
) -> Search:
    """Try a grid of settings for every method, and write the result of every rule to ``out/search.json``.

    Runs are stored as they end, so the same call after an interruption continues. Parameters are those of
    :func:`toporo.paper.runner.reproduce`; by default methods are those of the table that have a grid.
    """
    whole(seeds, "seeds", 1)
    runner = Runner(Store(Path(out)), workers=workers, progress=progress, say=say)
    benchmark = BENCHMARKS[name].under(protocol)
    plans = []
    for chosen in benchmark.get_variants(variant):
        loaded = load_dataset(name, data, source=source, **chosen.options)
        plans.append(make_plan(benchmark, chosen, loaded, seeds=seeds, methods=methods))
    runs = [run for plan in plans for run in plan.runs]
    say(f"{len(runs):,} runs: {len(plans[0].data) - 1} folds and all training groups, {seeds} seed(s).")
    records = runner.do(runs, [part for plan in plans for part in plan.data])
    outcome = Search(SCHEMA, name, protocol, seeds, [evaluate_rules(plan, records) for plan in plans])
    write_text(Path(out, "search.json"), json.dumps(to_builtins(outcome), ensure_ascii=False, indent=1))
    return outcome


def evaluate_rules(plan: SearchPlan, records: Mapping[str, Record]) -> VariantSearch:
    """Return the result of every rule for every method; ``records`` are by key."""
    protocol, variant = plan.protocol, plan.protocol.variants[0]
    runs: dict[str, list[Run]] = {}
    for run in plan.runs:
        runs.setdefault(run.method.name, []).append(run)
    folds = [
        {"held_out": list(data.test), "likeness": round(likeness, 6)}
        for data, likeness in zip(plan.data[1:], plan.likeness, strict=True)
    ]
    methods = {name: _evaluate_method(protocol, runs[name], records) for name in runs}
    title = f"{protocol.title} {variant.title}".strip()
    return VariantSearch(variant.name, title, protocol.digits, len(plan.runs), folds, methods)


def _evaluate_method(protocol: Protocol, runs: Sequence[Run], records: Mapping[str, Record]) -> MethodSearch:
    """Return the result of every rule for the runs of a method; the first runs have its own settings."""
    settings: list[dict[str, Any]] = []
    for run in runs:
        if run.method.settings not in settings:
            settings.append(dict(run.method.settings))
    epochs = [int(entry["round"]) for entry in max((records[run.key]["history"] for run in runs), key=len)]
    scores = _scores(protocol, runs, records, settings, len(epochs))
    if np.isnan(scores["own"]).all(axis=(1, 2)).any():
        raise DivergedError(f"{runs[0].method.name}: training diverged with the settings of the table.")

    def choose(rule: str, start: int) -> Choice:
        """Apply a rule to the evaluations from one on, by its number."""
        best = np.nanmax if protocol.better == "higher" else np.nanmin
        values, regrets, taken = [], [], []
        for candidates, figures in zip(scores[rule][..., start:], scores["oracle"][..., start:], strict=True):
            equal = candidates == best(candidates)
            setting, epoch = np.argwhere(equal)[0]
            values.append(float(figures[equal].mean()))
            regrets.append(abs(float(best(figures)) - values[-1]))
            chosen = {"settings": settings[setting], "epoch": epochs[start:][epoch]}
            taken.append({**chosen, "equal": int(equal.sum())})
        return Choice(_short(values), _short(regrets), taken)

    last = scores["oracle"][..., -1].T
    kept = [setting for setting in range(len(settings)) if np.isfinite(last[setting]).any()]
    return MethodSearch(
        runs[0].method.title,
        [settings[setting] for setting in kept],
        [_short(last[setting][np.isfinite(last[setting])]) for setting in kept],
        {rule: choose(rule, -1) for rule in RULES},
        {rule: choose(rule, 0) for rule in (*LABEL_FREE, "oracle")},
        {rule: _rank(scores[rule][..., -1], scores["oracle"][..., -1]) for rule in LABEL_FREE},
    )


def _scores(
    protocol: Protocol, runs: Sequence[Run], records: Mapping[str, Record], settings: Sequence[Any], epochs: int
) -> dict[str, npt.NDArray[np.float64]]:
    """Return what each rule looks at by seed, setting and epoch; NaN for settings that diverged on some fold."""
    metric = protocol.whole
    shape = (1 + max(run.fold for run in runs), 1 + max(run.seed for run in runs), len(settings), epochs)
    test, validation = np.full(shape, np.nan), np.full(shape, np.nan)
    for run in runs:
        history = [entry["metrics"] for entry in records[run.key]["history"]]
        if history:
            at = run.fold, run.seed, settings.index(run.method.settings)
            test[at] = [metric.scale * metrics[metric.key] for metrics in history]
            validation[at] = [metric.scale * metrics["validation"] for metrics in history]
    diverged = np.isnan(test).any(axis=0)
    own = np.where(np.arange(len(settings))[:, None] == 0, 0.0, np.full(shape[1:], np.nan))
    scores = {"own": own, "validation": validation[0], "regions": test[1:].mean(axis=0), "oracle": test[0]}
    return {rule: np.where(diverged, np.nan, values) for rule, values in scores.items()}


def _rank(scores: npt.NDArray[np.float64], figures: npt.NDArray[np.float64]) -> float | None:
    """Return the rank correlation of scores and figures over settings, mean over seeds."""
    correlations = []
    for pairs in np.stack([scores, figures], axis=1):
        pairs = pairs[:, ~np.isnan(pairs[1])]
        if pairs.shape[1] > 2 and np.ptp(pairs, axis=1).min() > 0:
            correlations.append(float(spearmanr(*pairs).statistic))
    return round(float(np.mean(correlations)), 4) if correlations else None


def _short(values: Iterable[float]) -> list[float]:
    return [round(float(value), 6) for value in values]


# ---------------------------------------------------------------------- tables


def search_table(part: VariantSearch) -> Table:
    """Return a variant's search: figure and mean regret of every rule, and how well rules rank settings."""

    def cells(choices: Mapping[str, Choice]) -> list[str]:
        return [
            mean_sd(float(np.mean(c.values)), float(np.std(c.values, ddof=1)) if len(c.values) > 1 else None, digits)
            + ("" if rule == "oracle" else f" ({np.mean(c.regrets):.{digits}f})")
            for rule, c in choices.items()
        ]

    digits = part.digits
    titles = (METHOD, "settings", *RULES, *(f"rank by {rule}" for rule in LABEL_FREE))
    rows = []
    for one in part.methods.values():
        ranks = [NONE if rank is None else f"{rank:.2f}" for rank in one.ranks.values()]
        rows.append((one.title, str(len(one.settings)), *cells(one.rules), *ranks, *cells(one.epochs)))
    return Table((*titles, *(f"{rule}, epoch too" for rule in (*LABEL_FREE, "oracle"))), tuple(rows), (METHOD,))


def print_search(outcome: Search, style: str = "terminal") -> None:
    """Print the result of a search: for a ``"terminal"``, as ``"markdown"`` or as ``"json"``."""
    metric = BENCHMARKS[outcome.benchmark].under(outcome.protocol).protocol.metric
    titled = [
        (
            f"{part.title}: {metric} with settings as each rule chooses them, mean ± sd over {outcome.seeds} seed(s), "
            f"and in brackets how much the best of all tried would be better; {part.runs:,} runs.",
            search_table(part),
        )
        for part in outcome.variants
    ]
    print_tables(to_builtins(outcome), titled, style)
