"""The runs of a search: every method with every setting of a grid, on all training groups and on parts of them.

Runs of one objective are trained together (:mod:`toporo.training.many`), as programs that are stored one by one.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from toporo.bench.base import BENCHMARKS, Benchmark
from toporo.bench.fits import TARGETS, Assignment, build_model, method_objective, network_prior, train_settings
from toporo.bench.loaded import BenchmarkData
from toporo.bench.protocols import PENALTIES, BenchMethod, Protocol, Variant
from toporo.bench.results import code_versions, key_fields, read_sealed, write_sealed
from toporo.choice.splits import hop_folds
from toporo.data.batches import tensors
from toporo.data.grouped import GroupedData, Split
from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.machine import one_thread
from toporo.topology.prior import Prior
from toporo.training.many import ManyMLP, train_many
from toporo.types import Record

SCHEMA = "toporo.search/1"
#: The paper's grid of steps for q.
STEPS = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
#: Penalties that DomainBed draws from, as a grid, and shares of a run for the warm-up: 10, 100 and 500 of 2,000 steps.
_PENALTIES, _WARM_UPS = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4), (0.005, 0.05, 0.25)


def _grid(**values: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    return tuple(dict(zip(values, each, strict=True)) for each in itertools.product(*values.values()))


#: Name of a search to the settings it tries, by objective; a method's own are tried too.
SEARCHES: dict[str, dict[str, tuple[dict[str, Any], ...]]] = {
    "paper": {
        "erm": ({},),
        "iw-erm": ({},),
        "irm": _grid(penalty=_PENALTIES, warm_up_share=_WARM_UPS),
        "vrex": _grid(penalty=_PENALTIES, warm_up_share=_WARM_UPS),
        "sd": _grid(penalty=(1e-5, 1e-4, 1e-3, 1e-2, 0.1)),
        "group-dro": _grid(step=STEPS),
        "tro": _grid(penalty=PENALTIES, step=STEPS),
    }
}
#: Regions that are held out, at most.
FOLDS = 3
#: Rows that are evaluated at a time, so that activations stay near a core.
PORTION = 128
#: Evaluations in a run.
EVALUATIONS = 20
#: Weights of all runs of one program together, as many as stay near a core; and runs, at least and at most.
NEAR, FEWEST, MOST = 220_000, 1, 45
#: Runs in one program on a GPU, which is never busy enough.
ON_GPU = 512


@dataclass(frozen=True)
class Trial:
    """A run of a search: a method with a setting and a seed."""

    method: BenchMethod
    seed: int

    @property
    def settings(self) -> dict[str, Any]:
        """Of its objective."""
        return dict(self.method.settings)


@dataclass(frozen=True)
class Program:
    """Runs that are trained together, on all training groups (fold 0) or on those that a fold keeps."""

    protocol: Protocol
    fold: int
    trials: tuple[Trial, ...]
    fingerprint: str
    device: str = "cpu"

    def __str__(self) -> str:
        names = ", ".join(dict.fromkeys(trial.method.name for trial in self.trials))
        runs = "1 run" if len(self.trials) == 1 else f"{len(self.trials)} runs"
        return f"{runs} of {names}{f', fold {self.fold}' if self.fold else ''}"

    @property
    def key(self) -> str:
        """A hash of everything that determines the outcome."""
        content = {
            "schema": SCHEMA,
            "code": code_versions(*(trial.method for trial in self.trials)),
            "protocol": key_fields(self.protocol),
            "trials": [[t.method.name, t.method.objective, t.method.prior, t.settings, t.seed] for t in self.trials],
            "data": self.fingerprint,
            "device": self.device,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()[:16]

    def path(self, out: Path) -> Path:
        """Where its histories go."""
        return out / "search" / f"{self.key}.json"


@dataclass(frozen=True)
class SweepPlan:
    """All programs of a search.

    Attributes
    ----------
    protocol : with as many evaluations as a search makes.
    data : the benchmark's, then that of every fold: regions of training groups in the test groups' place.
    likeness : of every fold; see :class:`toporo.choice.splits.HopFold`.
    programs : the longest first.
    """

    protocol: Protocol
    data: tuple[BenchmarkData, ...]
    likeness: tuple[float, ...]
    programs: tuple[Program, ...]

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return sum(len(program.trials) for program in self.programs)


def make_plan(
    benchmark: Benchmark,
    variant: Variant,
    loaded: BenchmarkData,
    *,
    search: str = "paper",
    seeds: int = 3,
    methods: Iterable[str] | None = None,
    device: str = "cpu",
) -> SweepPlan:
    """What a search consists of.

    Parameters
    ----------
    benchmark : under its protocol.
    variant, loaded : which of its variants, and the data.
    search : a name in :data:`SEARCHES`.
    seeds : how many.
    methods : names; those of the protocol's table that the search has a grid for, but for λ = 0, unless given.
    device : where programs are to run.
    """
    if search not in SEARCHES:
        raise UnknownNameError("search", search, SEARCHES)
    grids = SEARCHES[search]
    settled = benchmark.protocol.for_variant(variant)
    if settled.unit != "epochs" or settled.model != "mlp":
        raise SettingError(f"--search is for networks on plain rows; {benchmark.name} has none.")
    protocol = replace(settled, evaluate_every=max(1, settled.rounds // EVALUATIONS))
    names = [name for name in protocol.methods if name != "tro-lambda0"] if methods is None else methods
    asked = protocol.get_methods(names)
    chosen = [method for method in asked if method.objective in grids]
    without = [method.name for method in asked if method not in chosen]
    if without and (methods is not None or not chosen):
        raise SettingError(
            f"the search {search!r} has no grid for {', '.join(without)}: it tries {', '.join(grids)} on networks."
        )
    folds = _folds(loaded)
    data = (loaded, *(data for data, _ in folds))
    trials = [
        Trial(replace(method, settings=settings), seed)
        for method in chosen
        for seed in range(seeds)
        for settings in _settings(method, grids[str(method.objective)])
    ]
    weights = sum(p.numel() for p in build_model(protocol, loaded, 0).parameters())
    size = ON_GPU if device != "cpu" else min(MOST, max(FEWEST, NEAR // weights))
    programs = [
        Program(protocol, fold, tuple(alike[at : at + size]), each.fingerprint, device)
        for fold, each in enumerate(data)
        for alike in _alike(trials)
        for at in range(0, len(alike), size)
    ]
    programs.sort(key=lambda program: -len(program.trials))
    return SweepPlan(protocol, data, tuple(likeness for _, likeness in folds), tuple(programs))


def _settings(method: BenchMethod, grid: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The method's own settings, then those of the grid that are others; what a grid is silent of is the method's."""
    own = dict(method.settings)
    every = [own, *({**own, **settings} for settings in grid)]
    return [settings for place, settings in enumerate(every) if settings not in every[:place]]


def _alike(trials: Iterable[Trial]) -> Iterator[list[Trial]]:
    """Trials that can be trained as one: of an objective, and with the same warm-up."""
    kinds: dict[Any, list[Trial]] = {}
    for trial in trials:
        others = {key: value for key, value in trial.settings.items() if key not in ("penalty", "step")}
        kinds.setdefault((trial.method.objective, json.dumps(others, sort_keys=True)), []).append(trial)
    yield from kinds.values()


def _folds(loaded: BenchmarkData) -> list[tuple[BenchmarkData, float]]:
    """The training groups alone, with regions of them in the place of the test groups; and how like those they are."""
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


# ---------------------------------------------------------------------- runs


def run_program(program: Program, loaded: BenchmarkData, out: Path) -> Record:
    """Train a program's runs, and store their histories; or return them if they are there."""
    done = read_sealed(program.path(out))
    if done is not None:
        return done
    with one_thread(torch=True), warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        with tempfile.TemporaryDirectory() as place:
            histories = _train(program, loaded, program.protocol.rounds, Path(place))
    record = {"schema": SCHEMA, "key": program.key, "histories": histories}
    write_sealed(program.path(out), record)
    return record


def _train(program: Program, loaded: BenchmarkData, rounds: int, place: Path) -> list[list[list[float]]]:
    """For every run and evaluation: round, validation, test. A network for a prior's features is kept in ``place``."""
    protocol = replace(program.protocol, rounds=rounds)
    benchmark = BENCHMARKS[protocol.benchmark].under(protocol.name)
    splits: dict[int, Split] = {}
    priors: dict[tuple[str | None, int], Prior | None] = {}
    models, objectives, data, settings = [], [], [], []
    for trial in program.trials:
        given = Assignment(
            protocol, trial.method, trial.seed, loaded, partial(_checkpoint, place, trial.seed), place.joinpath
        )
        if trial.seed not in splits:
            splits[trial.seed] = benchmark.split(loaded, trial.seed, protocol.validation)
        kind = (trial.method.prior, trial.seed)
        if kind not in priors:
            priors[kind] = network_prior(given, splits[trial.seed])[0]
        model = build_model(protocol, loaded, trial.seed)
        how = train_settings(protocol, trial.seed)
        models.append(model)
        settings.append(how)
        data.append(splits[trial.seed].train)
        objectives.append(method_objective(trial.method, data[-1], priors[kind], model, how))
    evaluate = _evaluator(program, loaded, [splits[trial.seed].validation for trial in program.trials])
    loss, every = TARGETS[protocol.task].loss, protocol.evaluate_every
    histories = train_many(
        models, objectives, data, loss, settings, evaluate=evaluate, evaluate_every=every, device=program.device
    )
    return [
        [[entry.round, entry.metrics["validation"], entry.metrics["test"]] for entry in history if entry.metrics]
        for history in histories
    ]


def _checkpoint(place: Path, seed: int, phase: str) -> Path:
    return place / f"{phase}-{seed}"


def _evaluator(
    program: Program, loaded: BenchmarkData, validation: Sequence[GroupedData]
) -> Callable[[ManyMLP], list[dict[str, Any]]]:
    by_group = TARGETS[program.protocol.task].by_group
    benchmark = BENCHMARKS[program.protocol.benchmark]
    test = loaded.data.select(loaded.test)
    test_x = tensors(test, program.device)[0]
    own_x = {id(rows): tensors(rows, program.device)[0] for rows in validation}
    validation_x = torch.stack([own_x[id(rows)] for rows in validation])

    def mean(outputs: Any, rows: GroupedData) -> float:
        return float(np.mean(list(by_group(outputs, rows).values())))

    def tested(outputs: Any) -> float:
        if program.fold:  # what a benchmark's summary knows of its test groups does not hold for these
            return mean(outputs, test)
        return float(benchmark.summary(by_group(outputs, test), loaded)[program.protocol.whole.key])

    def evaluate(network: ManyMLP) -> list[dict[str, Any]]:
        held_out, in_test = (
            torch.cat([network(part) for part in torch.split(x, PORTION, dim=-2)], dim=1).cpu().numpy()
            for x in (validation_x, test_x)
        )
        return [
            {"validation": mean(own, rows), "test": tested(outputs)}
            for own, rows, outputs in zip(held_out, validation, in_test, strict=True)
        ]

    return evaluate


def seconds(plan: SweepPlan, pending: Sequence[Program], workers: int) -> float:
    """About how long these programs take: two epochs and an evaluation are tried, with one program of every kind."""
    rounds = plan.protocol.rounds
    costs: dict[str, float] = {}
    for program in pending:
        kind = str(program.trials[0].method.objective)
        if kind not in costs:
            one, two = (_tried(program, plan.data[program.fold], epochs) for epochs in (1, 2))
            epoch = max(0.0, two - one)
            costs[kind] = (epoch * rounds + max(0.0, one - epoch) * min(rounds, EVALUATIONS)) / len(program.trials)
    each = (costs[str(p.trials[0].method.objective)] * len(p.trials) for p in pending)
    return sum(each) / min(workers, max(1, len(pending)))


def _tried(program: Program, loaded: BenchmarkData, epochs: int) -> float:
    """Seconds that so many epochs and one evaluation take; the second time, when all is warm."""
    short = replace(_without_learning(program), protocol=replace(program.protocol, evaluate_every=epochs))
    for _ in range(2):
        begun = time.perf_counter()
        with one_thread(torch=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _train(short, loaded, epochs, Path())
    return time.perf_counter() - begun


def _without_learning(program: Program) -> Program:
    """The same without learning a prior, which takes as long as a run: for trying how fast runs are."""
    return replace(
        program,
        trials=tuple(
            replace(trial, method=replace(trial.method, prior=trial.method.prior and "uniform"))
            for trial in program.trials
        ),
    )
