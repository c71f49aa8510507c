"""The runs of a search: every method with every setting of a grid, on all training groups and on parts of them."""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from toporo.choice.splits import hop_folds
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, DivergedError, SettingError, UnknownNameError
from toporo.machine import one_thread
from toporo.paper.base import Benchmark
from toporo.paper.fits import TARGETS, Assignment, Runtime, build_model, network_prior, train_network
from toporo.paper.loaded import BenchmarkData
from toporo.paper.protocols import PENALTIES, BenchMethod, Protocol, Variant
from toporo.paper.results import code_versions, key_fields, read_sealed, write_sealed
from toporo.training import RoundRecord, outputs_of
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
#: Evaluations in a run.
EVALUATIONS = 20


@dataclass(frozen=True)
class Trial:
    """A run of a search: a method with a setting and a seed, on all training groups or on those that a fold keeps.

    Attributes
    ----------
    protocol, method, seed : what is run.
    fold : 0 for all training groups.
    fingerprint : of the data.
    device : where it is trained.
    """

    protocol: Protocol
    method: BenchMethod
    seed: int
    fold: int
    fingerprint: str
    device: str = "cpu"

    def __str__(self) -> str:
        settings = "".join(f" {name}={value}" for name, value in self.settings.items())
        return f"{self.method.name}{settings} seed {self.seed}{f', fold {self.fold}' if self.fold else ''}"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of its objective."""
        return dict(self.method.settings)

    @cached_property
    def key(self) -> str:
        """A hash of everything that determines the outcome."""
        content = {
            "schema": SCHEMA,
            "code": code_versions(self.method),
            "protocol": key_fields(self.protocol),
            "method": [self.method.name, self.method.objective, self.method.prior, self.settings],
            "seed": self.seed,
            "data": self.fingerprint,
            "device": self.device,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()[:16]

    def path(self, out: Path) -> Path:
        """Where its history is stored."""
        return out / "search" / f"{self.key}.json"


@dataclass(frozen=True)
class SweepPlan:
    """All runs of a search.

    Attributes
    ----------
    protocol : with as many evaluations as a search makes.
    data : the benchmark's, then that of every fold: regions of training groups in the test groups' place.
    likeness : of every fold; see :class:`toporo.choice.splits.HopFold`.
    trials : the runs.
    """

    protocol: Protocol
    data: tuple[BenchmarkData, ...]
    likeness: tuple[float, ...]
    trials: tuple[Trial, ...]


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
    device : where runs are to be trained.
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
    trials = tuple(
        Trial(protocol, replace(method, settings=settings), seed, fold, each.fingerprint, device)
        for fold, each in enumerate(data)
        for method in chosen
        for seed in range(seeds)
        for settings in _settings(method, grids[str(method.objective)])
    )
    return SweepPlan(protocol, data, tuple(likeness for _, likeness in folds), trials)


def _settings(method: BenchMethod, grid: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The method's own settings, then those of the grid that are others; what a grid is silent of is the method's."""
    own = dict(method.settings)
    every = [own, *({**own, **settings} for settings in grid)]
    return [settings for place, settings in enumerate(every) if settings not in every[:place]]


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


def run_trial(trial: Trial, loaded: BenchmarkData, out: Path) -> Record:
    """Do one run and store its history; or return its record if it was done before."""
    done = read_sealed(trial.path(out))
    if done is not None:
        return done
    # The same figures on any machine: runs, not operations, are done in parallel.
    with one_thread(torch=True), warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        record = {"schema": SCHEMA, "key": trial.key, "history": _train(trial, loaded)}
    write_sealed(trial.path(out), record)
    return record


def _train(trial: Trial, loaded: BenchmarkData) -> list[list[float]]:
    """For every evaluation: round, validation, test. A run that diverges ends there."""
    by_group = TARGETS[trial.protocol.task].by_group
    records: list[RoundRecord] = []
    with tempfile.TemporaryDirectory(prefix="toporo-") as folder:
        place = Path(folder).joinpath
        runtime = Runtime(trial.device)
        given = Assignment(trial.protocol, trial.method, trial.seed, loaded, place, place, runtime)
        split = given.split()
        prior, _ = network_prior(given, split)
        model = build_model(trial.protocol, loaded, trial.seed)

        def mean(network: nn.Module, rows: GroupedData) -> float:
            return float(np.mean(list(by_group(outputs_of(network, rows, trial.device), rows).values())))

        def tested(network: nn.Module) -> float:
            if trial.fold:  # what a benchmark's summary knows of its test groups does not hold for these
                return mean(network, given.test)
            values = by_group(outputs_of(network, given.test, trial.device), given.test)
            return float(given.benchmark.summary(values, loaded)[trial.protocol.whole.key])

        def evaluate(network: nn.Module) -> dict[str, Any]:
            return {"validation": mean(network, split.validation), "test": tested(network)}

        with suppress(DivergedError):
            train_network(given, split, model, trial.method, prior, evaluate=evaluate, on_record=records.append)
    return [
        [record.round, record.metrics["validation"], record.metrics["test"]] for record in records if record.metrics
    ]


def seconds(plan: SweepPlan, pending: Sequence[Trial], workers: int) -> float:
    """About how long these runs take: two epochs and an evaluation are tried, with one run of every kind."""
    rounds = plan.protocol.rounds
    costs: dict[tuple[str | None, bool], float] = {}
    for trial in pending:
        kind = _kind(trial)
        if kind not in costs:
            one, two = (_tried(trial, plan.data[trial.fold], epochs) for epochs in (1, 2))
            epoch = max(0.0, two - one)
            features = epoch * rounds if trial.method.prior == "data" else 0.0  # of the network that these come from
            costs[kind] = epoch * rounds + max(0.0, one - epoch) * min(rounds, EVALUATIONS) + features
    return sum(costs[_kind(trial)] for trial in pending) / min(workers, max(1, len(pending)))


def _kind(trial: Trial) -> tuple[str | None, bool]:
    return trial.method.objective, trial.method.prior == "data"


def _tried(trial: Trial, loaded: BenchmarkData, epochs: int) -> float:
    """Seconds that so many epochs and one evaluation take the second time, without learning a prior."""
    method = replace(trial.method, prior=trial.method.prior and "uniform")
    short = replace(trial, protocol=replace(trial.protocol, rounds=epochs, evaluate_every=epochs), method=method)
    for _ in range(2):
        begun = time.perf_counter()
        with one_thread(torch=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _train(short, loaded)
    return time.perf_counter() - begun
