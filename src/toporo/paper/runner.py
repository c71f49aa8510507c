"""Run a table: in parallel, resumable, and shared between commands on one folder."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

from safetensors.torch import save

from toporo.checks import whole
from toporo.errors import DataError, DivergedError, NothingToTestError, SettingError, TopoRoError, TopoRoWarning
from toporo.files import Claims
from toporo.machine import cores, follow, one_thread, signals_held, tidily
from toporo.paper.base import BENCHMARKS, ON_CPU, VisionChoices, load_dataset
from toporo.paper.fits import FITS, Assignment
from toporo.paper.loaded import BenchmarkData
from toporo.paper.methods import BenchMethod
from toporo.paper.protocols import Protocol, Variant
from toporo.paper.results import Results, make_rows
from toporo.paper.runs import SCHEMA, Run, Store, set_aside
from toporo.text import many
from toporo.training import read_checkpoint
from toporo.types import Record

#: Called with (runs done, runs in all, the run that just ended or None at the start).
Progress = Callable[[int, int, Run | None], None]
Say = Callable[[str], object]
#: Record and model of a run.
Done: TypeAlias = tuple[Record, bytes]
#: Seconds between two looks at the runs of another process.
LOOK_EVERY = 0.5


def quiet(*_: object) -> None:
    """Show nothing: the default for progress and remarks."""


def reproduce(
    name: str,
    out: str | os.PathLike[str],
    *,
    protocol: str = "fair",
    seeds: int = 3,
    methods: Iterable[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    source: str = "auto",
    workers: int | None = 1,
    progress: Progress = quiet,
    vision: VisionChoices | None = None,
    say: Say = quiet,
    variant: str | None = None,
) -> Results:
    """Run one of the paper's tables and write ``out/results.json``.

    The table has the methods asked for and all others with stored runs in ``out`` that have the same protocol,
    settings and data: a method can be added to a table without repeating the others.

    Every run is stored under ``out/runs`` when it ends and checkpointed before, so the same call after an interruption
    continues and gives the same figures. Damaged files are set aside with a warning, and their runs repeated.

    Parameters
    ----------
    name : of the benchmark.
    out : folder for results; created if it does not exist.
    protocol : ``"fair"``, ours, or another that the benchmark has, such as ``"paper"``.
    seeds : number of seeds: 0, 1, …
    methods : names; by default those of the protocol's table.
    data, source : see :func:`toporo.load_dataset`.
    workers : runs at a time; None for one per core.
    progress : called as runs end.
    vision : device, network and training of benchmarks on images.
    say : called with remarks for people: parts of the data that cannot be used, runs of other processes.
    variant : names of variants, separated by commas, e.g. ``"east-west/*"``; by default all of them.
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
    chosen = settled.get_methods(settled.methods if methods is None else methods)
    whole(seeds, "seeds", 1)
    store = Store(Path(out))
    runner = Runner(store, runtime, workers, progress, say)
    loaded, skipped = _load(name, variants, data, source)
    for part in loaded.values():
        benchmark.split(part, 0, settled.validation)  # too few rows are an error before the first run
    for remark in dict.fromkeys(remark for part in loaded.values() for remark in part.remarks):
        say(remark)
    runs = _make_runs(settled, loaded, chosen, seeds)
    by_key = runner.do(runs, loaded.values())
    for run in runs:
        if (message := by_key[run.key].get("diverged")) is not None:
            raise DivergedError(f"{run}: {message}")
    records = [by_key[run.key] for run in runs]
    records += _stored_records(settled, loaded, store, {method.name for method in chosen})
    about: dict[str, Any] = {} if protocol == BENCHMARKS[name].protocol.name else {"protocol": protocol}
    if benchmark.networks:
        about |= images.describe(settled, records, next(iter(loaded.values())), skipped)
    results = Results(settled, make_rows(settled, records), about, loaded, records, store)
    results.write(Path(out, "results.json"))
    return results


def _make_runs(
    settled: Protocol, loaded: Mapping[str, BenchmarkData], methods: Iterable[BenchMethod], seeds: int
) -> list[Run]:
    """Return a run for every variant, method and seed."""
    return [
        Run(settled.for_variant(variant), method, seed, loaded[variant.name].fingerprint, variant.name)
        for variant in settled.variants
        if variant.name in loaded
        for method in methods
        for seed in range(seeds if method.seeded else 1)
    ]


def _stored_records(
    settled: Protocol, loaded: Mapping[str, BenchmarkData], store: Store, excluded: Set[str]
) -> Iterator[Record]:
    """Yield stored records of other methods with the same settings and data, from seed 0 on."""
    others = [method for method in settled.get_methods() if method.name not in excluded]
    for run in _make_runs(settled, loaded, others, 1):
        while (record := store.read(run.key)) is not None and not record.get("diverged"):
            yield record
            if not run.method.seeded:
                break
            run = replace(run, seed=run.seed + 1)


def _load(
    name: str, variants: Sequence[Variant], data: str | os.PathLike[str] | None, source: str
) -> tuple[dict[str, BenchmarkData], dict[str, str]]:
    """Return the data of every variant, and the reasons why some have none if others have some."""
    loaded: dict[str, BenchmarkData] = {}
    skipped: dict[str, str] = {}
    for variant in variants:
        try:
            loaded[variant.name] = load_dataset(name, data, source=source, **variant.options)
        except NothingToTestError as error:
            if len(variants) == 1:
                raise
            skipped[variant.name] = str(error)
    if not loaded:
        raise DataError("; ".join(skipped.values()))
    return loaded, skipped


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


@dataclass(frozen=True)
class Runner:
    """Does the runs that a store does not have yet; wrong settings are errors before anything is read or written.

    Attributes
    ----------
    store : holds the results of runs.
    runtime : device and initial weights.
    workers : runs at a time; None for one per core.
    progress : called as runs end.
    say : called with remarks for people.
    """

    store: Store
    runtime: VisionChoices = ON_CPU
    workers: int | None = 1
    progress: Progress = quiet
    say: Say = quiet

    def __post_init__(self) -> None:
        if self.workers is not None:
            whole(self.workers, "jobs", 1)
        out = self.store.folder.parent
        if out.exists() and not out.is_dir():
            raise DataError(f"{out} is a file: give a folder for the results.")

    def do(self, runs: Sequence[Run], data: Iterable[BenchmarkData]) -> dict[str, Record]:
        """Do the runs that are not stored yet, and return all records by key."""
        store, by_fingerprint = self.store, {loaded.fingerprint: loaded for loaded in data}
        records = {run.key: record for run in runs if (record := store.read(run.key)) is not None}
        pending = [run for run in runs if run.key not in records]
        store.folder.mkdir(parents=True, exist_ok=True)
        self.progress(len(records), len(runs), None)
        for run in pending:
            _set_aside_damaged(run, store)
        with closing(self._finished(pending, by_fingerprint)) as finished:
            for run, record in finished:
                records[run.key] = record
                self.progress(len(records), len(runs), run)
        return records

    def _finished(
        self, pending: list[Run], data: Mapping[str, BenchmarkData]
    ) -> Generator[tuple[Run, Record], None, None]:
        """Yield runs with records as they end, done here or by another process at work on this folder."""
        store, waited = self.store, False
        while pending:
            with Claims(store.folder) as claims:
                unclaimed = (run for run in pending if claims.take(run.key) and store.read(run.key) is None)
                calls = ((run, data[run.fingerprint], store, self.runtime) for run in unclaimed)
                with closing(_in_processes(calls, self.workers or cores())) as results:
                    for run, (record, model) in results:
                        store.write(record, model)
                        yield run, record
                        pending = [other for other in pending if other.key != run.key]
            for run in list(pending):
                if (stored := store.read(run.key)) is not None:
                    pending.remove(run)
                    yield run, stored
            if pending:
                if not waited:
                    self.say(f"{many(len(pending), 'run')} under way in another process on {store.folder}: waiting.")
                waited = True
                time.sleep(LOOK_EVERY)


def _set_aside_damaged(run: Run, store: Store) -> None:
    """Set aside damaged files that an earlier process left for this run to continue from."""
    for path in store.checkpoints(run.key):
        try:
            read_checkpoint(path)
        except FileNotFoundError:  # another process has just finished the run
            pass
        except DataError as error:
            set_aside(path, str(error))


def _in_processes(
    calls: Iterable[tuple[Run, BenchmarkData, Store, VisionChoices]], workers: int
) -> Generator[tuple[Run, Done], None, None]:
    """Yield runs with the results of :func:`do_run` as they end.

    Several workers are processes of their own, which end with this one. A single worker, or a single run, is done here.
    """
    rest = iter(calls)
    first = list(islice(rest, workers))
    waiting = chain(first, rest)
    if len(first) <= 1:
        for call in waiting:
            yield call[0], do_run(*call)
        return
    # Fresh interpreters, not forks: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    running: dict[Future[Done], Run] = {}
    theirs, ours = context.Pipe(duplex=False)
    # Ours is closed first, however this ends: that is what ends the workers, and then the pool.
    with theirs, ProcessPoolExecutor(len(first), context, follow, (theirs,)) as pool, ours:
        while True:
            # No more than can run at once, so an interruption leaves no queue to work off.
            for call in islice(waiting, workers - len(running)):
                try:
                    with signals_held():
                        running[pool.submit(tidily, do_run, *call)] = call[0]  # type: ignore[arg-type]  # as do_run takes them
                except (BrokenProcessPool, OSError, ValueError) as error:
                    if isinstance(error, OSError) and error.errno is not None:  # the system's: no process to be had
                        raise
                    # A pool that breaks while a worker starts closes the pipes which it is handed.
                    raise _killed([*running.values(), call[0]]) from None
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    result = future.result()
                except BrokenProcessPool:
                    raise _killed(running.values()) from None
                yield running.pop(future), result


def _killed(runs: Iterable[Run]) -> TopoRoError:
    names = ", ".join(map(str, runs))
    return TopoRoError(
        f"a worker was killed, perhaps for want of memory, while these ran: {names}. What is done is kept: run it "
        "again to go on, with fewer jobs at a time if memory was short."
    )
