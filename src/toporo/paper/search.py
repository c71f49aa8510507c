"""What a search found: every rule for choosing settings, what it gets and what it misses.

Rules that may not see the test groups' labels choose by rows of the training groups that were set aside, or by regions
of training groups held out, as far from the others as the test groups are from the training groups.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins
from scipy.stats import spearmanr

from toporo.cluster import LOCAL, Cluster, RayCluster, check_engine, cluster
from toporo.errors import DataError, SettingError
from toporo.files import write_text
from toporo.machine import cores
from toporo.paper.base import BENCHMARKS, load_dataset
from toporo.paper.loaded import BenchmarkData
from toporo.paper.protocols import BenchMethod, Protocol
from toporo.paper.results import BETTER, read_results, read_sealed, write_sealed
from toporo.paper.runner import run_each
from toporo.paper.sweep import SCHEMA, SweepPlan, Trial, make_plan, run_trial, seconds
from toporo.schema import as_type
from toporo.training import pick_device
from toporo.types import Record

#: Rules: the table's own settings, those that do best on rows of the training groups, in regions held out, in the test.
RULES = ("own", "validation", "regions", "oracle")
#: Those that choose among settings without test labels.
SEEING = ("validation", "regions")
#: How the title of a column ends under which the epoch was chosen, too.
EPOCH_TOO = ", epoch too"
#: By method, seed and fold, of every setting: round, validation and test, evaluation by evaluation.
_Figures = dict[tuple[str, int, int], dict[str, list[list[float]]]]
#: By setting and round, what every rule sees.
_Scores = dict[tuple[str, int], dict[str, float]]


class Choice(Struct):
    """What a rule gets for a method, by seed.

    Attributes
    ----------
    values : the figure over all test groups; where several settings look equally good, the mean over them.
    regrets : how much worse than the best of all that was tried.
    taken : the settings and the epoch; of several, the first and how many there are.
    """

    values: list[float]
    regrets: list[float]
    taken: list[dict[str, Any]]


class Searched(Struct):
    """What was found for a method.

    Attributes
    ----------
    title : the method's.
    settings : those tried, in a fixed order, the method's own first.
    last : test figures after the last epoch, by setting and seed.
    rules : what a rule gets that chooses the settings; all train to the last epoch.
    epochs : what it gets if it chooses the epoch, too.
    ranks : by rule, how well it ranks the settings after the last epoch: Spearman's correlation with the test figures,
        mean over seeds; None where all are equal, or there are fewer than three.
    """

    title: str
    settings: list[dict[str, Any]]
    last: list[list[float]]
    rules: dict[str, Choice]
    epochs: dict[str, Choice]
    ranks: dict[str, float | None]


class VariantSearch(Struct):
    """A variant's search: its folds (who is held out, how like the test that is), and the methods by name."""

    variant: str
    title: str
    digits: int
    runs: int
    folds: list[dict[str, Any]]
    methods: dict[str, Searched]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Titles and cells: what every rule gets, with its mean regret; and how well rules rank settings."""
        more = [f"{rule}{EPOCH_TOO}" for rule in (*SEEING, "oracle")]
        titles = ["method", "settings", *RULES, *(f"rank by {rule}" for rule in SEEING), *more]
        rows = []
        for one in self.methods.values():
            ranks = ["–" if rank is None else f"{rank:.2f}" for rank in one.ranks.values()]
            rows.append([one.title, str(len(one.settings)), *self._cells(one.rules), *ranks, *self._cells(one.epochs)])
        return titles, rows

    def _cells(self, rules: Mapping[str, Choice]) -> list[str]:
        return [
            _mean_sd(choice.values, self.digits)
            + ("" if rule == "oracle" else f" ({np.mean(choice.regrets):.{self.digits}f})")
            for rule, choice in rules.items()
        ]


class Search(Struct):
    """What :func:`search_settings` found, and what its file holds."""

    schema: str
    benchmark: str
    protocol: str
    search: str
    seeds: int
    variants: list[VariantSearch]


def read_search(path: Path, benchmark: str) -> Search:
    """The search of a benchmark in a file that :func:`search_settings` wrote."""
    stored = as_type(read_results(path), Search, f"{path} is not a search of toporo")
    if stored.schema != SCHEMA or stored.benchmark != benchmark:
        raise DataError(f"{path} has a search of {stored.benchmark} ({stored.schema}): expected {benchmark}, {SCHEMA}.")
    return stored


def judge(plan: SweepPlan, records: Mapping[str, Record]) -> VariantSearch:
    """What every rule gets for every method."""
    figures: _Figures = {}
    methods: dict[str, BenchMethod] = {}
    for trial in plan.trials:
        methods[trial.method.name] = trial.method
        place = (trial.method.name, trial.seed, trial.fold)
        figures.setdefault(place, {})[json.dumps(trial.settings, sort_keys=True)] = records[trial.key]["history"]
    seeds = sorted({seed for _, seed, _ in figures})
    methods_searched = {}
    for name in (name for name in plan.protocol.known if name in methods):
        method = plan.protocol.method(name)
        by_seed = [_scores(figures, name, seed, len(plan.data), plan.protocol) for seed in seeds]
        own = json.dumps(dict(method.settings), sort_keys=True)
        order = sorted({key for scores in by_seed for key, _ in scores}, key=lambda key: (key != own, key))
        last = max(at for scores in by_seed for _, at in scores)
        methods_searched[name] = Searched(
            method.title,
            [json.loads(key) for key in order],
            [_short(scores[key, last]["oracle"] for scores in by_seed if (key, last) in scores) for key in order],
            {rule: _choose(rule, [_at(scores, last) for scores in by_seed], plan.protocol, own) for rule in RULES},
            {rule: _choose(rule, by_seed, plan.protocol, own) for rule in RULES if rule != "own"},
            {rule: _rank(rule, by_seed, last) for rule in SEEING},
        )
    variant = plan.protocol.variants[0]
    folds = [
        {"held_out": list(data.test), "likeness": round(likeness, 6)}
        for data, likeness in zip(plan.data[1:], plan.likeness, strict=True)
    ]
    title = f"{plan.protocol.title} {variant.title}".strip()
    return VariantSearch(variant.name, title, plan.protocol.digits, len(plan.trials), folds, methods_searched)


def _scores(figures: _Figures, name: str, seed: int, folds: int, protocol: Protocol) -> _Scores:
    """What every rule sees of a setting and an epoch; of runs that came to an end on all folds."""
    scale = protocol.whole.scale
    held_out: dict[tuple[str, int], list[float]] = {}
    for fold in range(1, folds):
        for key, history in figures[name, seed, fold].items():
            for at, _, value in history:
                held_out.setdefault((key, int(at)), []).append(scale * value)
    return {
        (key, int(at)): {
            "validation": scale * validation,
            "regions": float(np.mean(held_out[key, int(at)])),
            "oracle": scale * test,
        }
        for key, history in figures[name, seed, 0].items()
        for at, validation, test in history
        if len(held_out.get((key, int(at)), ())) == folds - 1
    }


def _at(scores: _Scores, last: int) -> _Scores:
    """What is seen of the last epoch alone."""
    return {(key, at): score for (key, at), score in scores.items() if at == last}


def _choose(rule: str, by_seed: Sequence[_Scores], protocol: Protocol, own: str) -> Choice:
    best = BETTER[protocol.better]
    values, regrets, taken = [], [], []
    for scores in by_seed:
        if rule == "own":
            equal = [place for place in scores if place[0] == own]
        else:
            top = best([score[rule] for score in scores.values()])
            equal = [place for place, score in scores.items() if score[rule] == top]
        value = float(np.mean([scores[place]["oracle"] for place in equal]))
        values.append(value)
        regrets.append(abs(best([score["oracle"] for score in scores.values()]) - value))
        taken.append({"settings": json.loads(equal[0][0]), "epoch": equal[0][1], "equal": len(equal)})
    return Choice(_short(values), _short(regrets), taken)


def _rank(rule: str, by_seed: Sequence[_Scores], last: int) -> float | None:
    correlations = []
    for scores in by_seed:
        ends = _at(scores, last).values()
        pairs = np.array([[score[rule], score["oracle"]] for score in ends])
        if len(pairs) > 2 and np.ptp(pairs, axis=0).min() > 0:
            correlations.append(float(spearmanr(pairs[:, 0], pairs[:, 1]).statistic))
    return round(float(np.mean(correlations)), 4) if correlations else None


# ---------------------------------------------------------------------- from start to end


def _short(values: Iterable[float]) -> list[float]:
    return [round(value, 6) for value in values]


def _mean_sd(values: Sequence[float], digits: int) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def search_settings(
    name: str,
    out: str | os.PathLike[str],
    *,
    search: str = "paper",
    protocol: str = "fair",
    seeds: int = 3,
    methods: Iterable[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    source: str = "auto",
    workers: int | None = 1,
    device: str = "cpu",
    engine: str = LOCAL,
    progress: Callable[[int, int, Trial | None], None] | None = None,
    say: Callable[[str], object] | None = None,
    **options: str | None,
) -> Search:
    """Try a grid of settings for every method, and write ``out/search.json``: what each rule would choose.

    Runs are stored under ``out/search`` as they end, so calling this again goes on from there.

    Parameters
    ----------
    name : of the benchmark.
    out : folder for results; made if need be.
    search : a name in :data:`SEARCHES`.
    protocol, seeds, data, source : see :func:`toporo.paper.runner.reproduce`.
    methods : names; those of the protocol's table that there is a grid for unless given.
    workers : runs at a time; on a GPU one is best; None for as many as the engine has room for.
    device : ``"auto"``, ``"cpu"`` or ``"cuda"``.
    engine : see :func:`toporo.paper.runner.reproduce`.
    progress : called with runs done, runs in all and the one that ended.
    say : called with a line on how much there is to do, before it begins.
    options : of the variants.
    """
    check_engine(engine)
    benchmark = BENCHMARKS[name].under(protocol)
    folder, where = Path(out), pick_device(device)
    if engine != LOCAL and where != "cpu":
        raise SettingError(f"--engine {engine} with --device {where}: a cluster's runs are done on CPUs.")
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file: give a folder for the results.")
    wanted = list(methods) if methods is not None else None
    plans = [
        make_plan(
            benchmark,
            variant,
            load_dataset(name, data, source=source, **variant.options),
            search=search,
            seeds=seeds,
            methods=wanted,
            device=where,
        )
        for variant in benchmark.get_variants(**options)
    ]
    records: dict[str, Record] = {}
    pending: list[tuple[SweepPlan, Trial]] = []
    for plan in plans:
        for trial in plan.trials:
            record = read_sealed(trial.path(folder))
            if record is None:
                pending.append((plan, trial))
            else:
                records[trial.key] = record
    total, left = sum(len(plan.trials) for plan in plans), len(pending)
    with cluster(engine if pending else LOCAL) as machines:
        (folder / "search").mkdir(parents=True, exist_ok=True)
        room = workers or (cores() if engine == LOCAL else machines.workers)
        if say is not None:
            about = (
                sum(seconds(plan, [t for own, t in pending if own is plan], room) for plan in plans) if left else 0.0
            )
            kept = f", {total - left:,} of them done before" if left < total else ""
            say(
                f"{total:,} runs{kept}: {len(plans[0].data) - 1} folds and all training groups, {seeds} seed(s); about "
                f"{_told(about)} with {room} job(s). Interrupt it at any time: the same command goes on."
            )
        done = total - left
        if progress is not None:
            progress(done, total, None)
        with closing(_run_trials(pending, folder, machines, room)) as runs:
            for trial, record in runs:
                records[trial.key] = record
                done += 1
                if progress is not None:
                    progress(done, total, trial)
    outcome = Search(SCHEMA, name, protocol, search, seeds, [judge(plan, records) for plan in plans])
    write_text(folder / "search.json", json.dumps(to_builtins(outcome), ensure_ascii=False, indent=1))
    return outcome


def _run_trials(
    pending: Sequence[tuple[SweepPlan, Trial]], folder: Path, machines: Cluster, workers: int
) -> Generator[tuple[Trial, Record], None, None]:
    """Runs with records as they end, stored in the folder; other machines need not see it."""
    if not isinstance(machines, RayCluster):
        calls = [(trial, (trial, plan.data[trial.fold], folder)) for plan, trial in pending]
        yield from run_each(run_trial, calls, workers)
        return
    data = {
        trial.fingerprint: machines.share(plan.data[trial.fold])
        for plan, trial in {trial.fingerprint: (plan, trial) for plan, trial in pending}.values()
    }
    shared = [(trial, (trial, data[trial.fingerprint])) for _, trial in pending]
    with closing(machines.each(_run_in_scratch, shared, ahead=workers)) as runs:
        for trial, record in runs:
            write_sealed(trial.path(folder), record)
            yield trial, record


def _run_in_scratch(trial: Trial, loaded: BenchmarkData) -> Record:
    with tempfile.TemporaryDirectory(prefix="toporo-") as place:
        return run_trial(trial, loaded, Path(place))


def _told(about: float) -> str:
    return f"{about:.0f} s" if about < 100 else f"{about / 60:.0f} min"
