"""Run a table: in parallel, resumable, and shared between commands on one folder."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from safetensors.torch import save

from toporo.checks import whole
from toporo.errors import DataError, NothingToTestError, SettingError, TopoRoWarning
from toporo.files import Claims
from toporo.machine import cores, follow, one_thread, signals_held, tidily
from toporo.paper.base import BENCHMARKS, ON_CPU, VisionChoices, load_dataset
from toporo.paper.fits import FITS, Assignment
from toporo.paper.loaded import BenchmarkData
from toporo.paper.methods import BenchMethod
from toporo.paper.protocols import Protocol, Variant
from toporo.paper.results import Results, make_rows
from toporo.paper.runs import PROTOCOL_FIELDS_NOT_IN_KEY, SCHEMA, Run, Store
from toporo.paper.search import evaluate_rules, hold_out_regions, prepare_search
from toporo.progress import logger
from toporo.types import Record

#: Called with (runs done, runs in all, the run that just ended or None at the start).
Progress = Callable[[int, int, Run | None], object]
#: Record and model of a run.
Done: TypeAlias = tuple[Record, bytes]
#: Seconds between two looks at the runs of other processes.
LOOK_EVERY = 0.5


def reproduce(
    name: str,
    out: str | os.PathLike[str],
    *,
    protocol: str = "fair",
    seeds: int = 3,
    methods: Iterable[str] | None = None,
    variant: str | None = None,
    search: bool = False,
    data: str | os.PathLike[str] | None = None,
    source: str = "auto",
    workers: int | None = 1,
    progress: Progress = lambda *_: None,
    vision: VisionChoices | None = None,
) -> Results:
    """Run one of the paper's tables, or search over the settings of its methods, and write ``out/results.json``.

    Every run is stored under ``out/runs`` when it ends and checkpointed before, so the same call after an interruption
    continues and gives the same figures, and a method can be added to a table without repeating the others. Runs with
    damaged files are repeated, with a warning.

    Parameters
    ----------
    name : of the benchmark.
    out : folder for results; created if it does not exist.
    protocol : ``"fair"``, ours, or another that the benchmark has, such as ``"paper"``.
    seeds : number of seeds: 0, 1, …
    methods : names; by default those of the protocol's table, in a search those of them that have a grid.
    variant : names of variants, separated by commas, e.g. ``"east-west/*"``; by default all of them.
    search : try a grid of settings for every method, and evaluate rules that choose among them.
    data, source : see :func:`toporo.load_dataset`.
    workers : runs at a time; None for one per core.
    progress : called as runs end.
    vision : device, network and training of benchmarks on images.
    """
    benchmark, runtime = BENCHMARKS[name].under(protocol), ON_CPU
    if benchmark.networks:
        from toporo.paper import vision as images  # it loads networks that other benchmarks do not need

        benchmark, runtime = images.settle(benchmark, vision or VisionChoices())
    elif vision is not None:
        raise SettingError(
            f"device, weights, network, steps and the like are for benchmarks on images; {name} is none."
        )
    settled, variants = benchmark.protocol, benchmark.get_variants(variant)
    if search:
        settled, chosen = prepare_search(settled, methods)
    else:
        chosen = settled.get_methods(settled.methods if methods is None else methods)
    whole(seeds, "seeds", 1)
    workers = cores() if workers is None else whole(workers, "jobs", 1)
    if Path(out).exists() and not Path(out).is_dir():
        raise DataError(f"{out} is a file: give a folder for the results.")
    loaded, remarks = _load(name, variants, data, source)
    for part in loaded.values():
        benchmark.split(part, 0, settled.validation)  # too few rows are an error before the first run
    for remark in remarks:
        logger.warning("%s", remark)
    store = Store(Path(out))
    folds = {name: hold_out_regions(part) if search else (part,) for name, part in loaded.items()}
    runs = make_runs(settled, folds, chosen, seeds)
    records = do_runs(runs, list(chain(*folds.values())), store, runtime=runtime, workers=workers, progress=progress)
    settings = {key: value for key, value in asdict(settled).items() if key not in PROTOCOL_FIELDS_NOT_IN_KEY}
    settings["methods"] = {record["method"]: record["settings"] for record in records}
    about = {"protocol": protocol, "remarks": remarks, "settings": settings}
    if benchmark.networks:
        about |= images.describe(settled, records, next(iter(loaded.values())))
    results = Results(settled, [], about, loaded, records, store)
    results = evaluate_rules(results) if search else replace(results, rows=make_rows(settled, records))
    results.write(Path(out, "results.json"))
    return results


def make_runs(
    protocol: Protocol, folds: Mapping[str, Sequence[BenchmarkData]], methods: Iterable[BenchMethod], seeds: int
) -> list[Run]:
    """Return a run for every variant, fold of its data, method and seed; fold 0 has the benchmark's own test groups."""
    return [
        Run(protocol.for_variant(variant), method, seed, data.fingerprint, variant.name, fold)
        for variant in protocol.variants
        for fold, data in enumerate(folds.get(variant.name, ()))
        for method in methods
        for seed in range(seeds if method.seeded else 1)
    ]


def _load(
    name: str, variants: Sequence[Variant], data: str | os.PathLike[str] | None, source: str
) -> tuple[dict[str, BenchmarkData], list[str]]:
    """Return the data of the variants that have some, and remarks about what is missing."""
    loaded: dict[str, BenchmarkData] = {}
    remarks: list[str] = []
    for variant in variants:
        try:
            loaded[variant.name] = load_dataset(name, data, source=source, **variant.options)
        except NothingToTestError as error:
            remarks.append(f"Not run: {variant.name}. {error}")
    if not loaded:
        raise DataError(" ".join(remarks))
    remarks += (remark for part in loaded.values() for remark in part.remarks)
    return loaded, list(dict.fromkeys(remarks))


# ---------------------------------------------------------------------- one run


def do_run(run: Run, loaded: BenchmarkData, store: Store, runtime: VisionChoices) -> Done:
    """Do a run, or continue from its checkpoint; the result is returned and not yet stored."""
    if BENCHMARKS[run.protocol.benchmark].networks:
        import toporo.paper.vision  # noqa: F401  # it registers the fits of networks on images

    # The same bytes on any machine: runs, not operations, are done in parallel.
    with one_thread(torch=True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TopoRoWarning)
        fitted = FITS[run.method.model](Assignment(run, loaded, store, runtime))
    method = run.method
    record = {
        "schema": SCHEMA,
        "key": run.key,
        "benchmark": loaded.name,
        "variant": run.variant,
        "fold": run.fold,
        "source": loaded.source,
        "method": method.name,
        "settings": {"objective": method.objective, **method.settings, "prior": method.prior},
        "seed": run.seed,
        "prior": fitted.prior.to_dict() if fitted.prior else None,
        "topology": json.loads(fitted.graph.to_json()) if fitted.graph else None,
        "choice": fitted.choice,
        "warnings": sorted({str(w.message) for w in caught if issubclass(w.category, TopoRoWarning)}),
        "history": [entry.to_dict() for entry in fitted.history],
    }
    optional = {"timing": fitted.timing, "diverged": fitted.diverged}
    record |= {name: value for name, value in optional.items() if value is not None}
    return record, save({key: value.contiguous() for key, value in fitted.tensors.items()})


# ---------------------------------------------------------------------- many runs


def do_runs(
    runs: Sequence[Run],
    data: Sequence[BenchmarkData],
    store: Store,
    *,
    runtime: VisionChoices = ON_CPU,
    workers: int = 1,
    progress: Progress = lambda *_: None,
) -> list[Record]:
    """Do the runs that are not stored yet, and return the records of all.

    This process, its helpers and those of other commands on the folder take runs that nobody else has claimed. A claim
    ends with its process, so the run of one that was killed is done by another.

    Parameters
    ----------
    runs, data, store : the runs, the data that they name by its fingerprint, and where they are stored.
    runtime : device and initial weights of networks on images.
    workers : processes at a time, this one among them.
    progress : called as runs end.
    """
    records = {run.key: record for run in runs if (record := store.read(run.key)) is not None}
    progress(len(records), len(runs), None)
    pending = [run for run in runs if run.key not in records]
    with _helpers(min(workers, len(pending)) - 1, pending, data, store, runtime):
        for run, record in _work(pending, data, store, runtime):
            records[run.key] = record
            progress(len(records), len(runs), run)
    return [records[run.key] for run in runs]


def _work(
    pending: Sequence[Run], data: Sequence[BenchmarkData], store: Store, runtime: VisionChoices
) -> Iterator[tuple[Run, Record]]:
    """Do runs that no other process has claimed until all are stored; yield each with its record."""
    by_fingerprint = {loaded.fingerprint: loaded for loaded in data}
    while pending:
        waiting = []
        for run in pending:
            with Claims(store.folder) as claims:
                if not claims.take(run.key):
                    waiting.append(run)
                    continue
                record = store.read(run.key)
                if record is None:
                    record, model = do_run(run, by_fingerprint[run.fingerprint], store, runtime)
                    store.write(record, model)
            yield run, record
        if len(waiting) == len(pending):
            time.sleep(LOOK_EVERY)
        pending = waiting


@contextmanager
def _helpers(count: int, pending: Sequence[Run], *given: Any) -> Iterator[None]:
    """Have other processes work on the same runs; they end with this one, which meets any error of theirs itself."""
    if count < 1:
        yield
        return
    # Fresh interpreters, not forks: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    # Ours is closed first, however this ends: that is what ends the helpers, and then the pool.
    with theirs, ProcessPoolExecutor(count, context, follow, (theirs,)) as pool, ours:
        for number in range(1, count + 1):
            # Each begins elsewhere: on a file system without locks few runs are done twice.
            start = number * len(pending) // (count + 1)
            with suppress(BrokenProcessPool), signals_held():
                pool.submit(tidily, _help, [*pending[start:], *pending[:start]], *given)
        yield


def _help(*given: Any) -> None:
    warnings.simplefilter("ignore")
    deque(_work(*given), maxlen=0)
