"""A table from start to end: runs, in parallel and resumable; rows; files."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import save

from toporo.bench.base import BENCHMARKS, Benchmark, load_dataset
from toporo.bench.fits import FITS, Assignment, Runtime
from toporo.bench.loaded import BenchmarkData
from toporo.bench.protocols import BenchMethod, Variant
from toporo.bench.results import (
    RUN_SCHEMA,
    Job,
    Outcome,
    brought_sources,
    make_rows,
    read_sealed,
    set_aside,
    write_rows,
)
from toporo.bench.vision import TOPOLOGY, VisionChoices, check_rows, describe, settle
from toporo.errors import DataError, NothingToTestError, SettingError, TopoRoError, TopoRoWarning
from toporo.machine import follow, one_thread, signals_held, tidily
from toporo.objectives import OBJECTIVES
from toporo.training.loop import read_about
from toporo.types import Record

#: Called with (jobs done, jobs in all, the job that just ended or None at the start, images per second it trained at).
Progress = Callable[[int, int, Job | None, float | None], None]
T = TypeVar("T")
#: Phases of a run that leave checkpoints.
PHASES = ("features", "main")


def reproduce(
    name: str,
    out: str | os.PathLike[str],
    *,
    protocol: str = "fair",
    seeds: int = 3,
    methods: Iterable[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    source: str = "auto",
    workers: int = 1,
    progress: Progress | None = None,
    once: Iterable[str] = (),
    vision: VisionChoices | None = None,
    say: Callable[[str], object] | None = None,
    **options: str | None,
) -> Outcome:
    """Run one of the paper's tables and write ``out/results.json``.

    Every run is stored under ``out/runs`` as it ends and checkpointed while it goes, so calling this again after an
    interruption goes on from there and gives the same figures; what is damaged is set aside with a warning, and run
    again. ``options`` choose among a benchmark's variants, e.g. ``split="east-west"``; all of them unless given.

    Parameters
    ----------
    name : of the benchmark.
    out : folder for results; made if need be.
    protocol : ``"fair"``, ours, or another that the benchmark has, such as ``"paper"``.
    seeds : how many: 0, 1, …
    methods : names; those of the protocol's table unless given.
    data, source : see :func:`toporo.load_dataset`.
    workers : runs at a time.
    progress : called as runs end.
    once : names of further methods, for the first seed alone.
    vision : where and how to train networks for images.
    say : called before the first run with a line on what of the data cannot be used, if anything.
    options : of the variants.
    """
    benchmark = BENCHMARKS[name].under(protocol)
    variants = benchmark.get_variants(**options)
    settled, runtime, loading = settle(benchmark, vision, Path(out))
    # As they are settled: a user's choices are in them too.
    chosen = settled.get_methods(settled.methods if methods is None else methods)
    single = [method for method in (settled.get_methods(once) if once else []) if method not in chosen]
    if seeds < 1 or workers < 1:
        raise SettingError(f"seeds={seeds}, jobs={workers}: expected at least 1 of each.")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file: give a folder for the results.")
    loaded, skipped = _load(name, variants, data, source, loading)
    check_rows(benchmark, loaded.values())
    if say is not None and (line := benchmark.left_out(list(loaded.values()))):
        say(line)
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    jobs = [
        Job(
            settled.for_variant(variant),
            method,
            seed,
            loaded[variant.name].fingerprint,
            variant.name,
            _brought(benchmark, method),
        )
        for methods_now, seeds_now in ((chosen, seeds), (single, 1))
        for variant in variants
        if variant.name in loaded
        for method in methods_now
        for seed in range(seeds_now if method.seeded else 1)
    ]
    keys = [job.key for job in jobs]
    stored = {key: job.finished(folder, network=runtime.keep_models) for job, key in zip(jobs, keys, strict=True)}
    records = {key: record for key, record in stored.items() if record is not None}
    resumed = len(records)
    pending = [job for job, key in zip(jobs, keys, strict=True) if key not in records]
    if progress is not None:
        progress(resumed, len(jobs), None, None)
    for job in pending:
        _set_aside_damaged(job, folder)
    calls = [(job, (job, loaded[job.variant], folder, runtime)) for job in pending]
    with closing(run_each(run_job, calls, workers)) as runs:
        for job, record in runs:
            records[job.key] = record
            if progress is not None:
                progress(len(records), len(jobs), job, record.get("timing", {}).get("images_per_second"))
    ordered = [records[key] for key in keys]
    rows = make_rows(settled, ordered)
    about = describe(benchmark, settled, ordered, list(loaded.values()), skipped)
    if benchmark.protocol is not BENCHMARKS[name].protocol:
        about = {"protocol": protocol, **(about or {})}
    write_rows(rows, folder / "results.json", about)
    return Outcome(settled, loaded, rows, ordered, jobs, resumed, about)


def _load(
    name: str, variants: Sequence[Variant], data: str | os.PathLike[str] | None, source: str, loading: Mapping[str, Any]
) -> tuple[dict[str, BenchmarkData], dict[str, str]]:
    """The data of every variant; and why some have none, where others have some."""
    loaded: dict[str, BenchmarkData] = {}
    skipped: dict[str, str] = {}
    for variant in variants:
        try:
            loaded[variant.name] = load_dataset(name, data, source=source, **variant.options, **loading)
        except NothingToTestError as error:
            if len(variants) == 1:
                raise
            skipped[variant.name] = str(error)
    if not loaded:
        raise DataError("; ".join(skipped.values()))
    return loaded, skipped


def _brought(benchmark: Benchmark, method: BenchMethod) -> str:
    return brought_sources(benchmark.load, OBJECTIVES[method.objective] if method.objective else None)


def run_job(job: Job, loaded: BenchmarkData, out: Path, runtime: Runtime | None = None) -> dict[str, Any]:
    """Do one run and store it; picks up from its checkpoint, or returns the record if it was done before."""
    runtime = runtime or Runtime()
    done = job.finished(out, network=runtime.keep_models)
    if done is not None:
        return done
    checkpoint = functools.partial(job.checkpoint_path, out)
    # The same bytes on any machine: runs, not operations, are done in parallel.
    with one_thread(torch=True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TopoRoWarning)
        fitted = FITS[job.method.model](
            Assignment(
                job.protocol,
                job.method,
                job.seed,
                loaded,
                checkpoint,
                functools.partial(_shared_path, job, out),
                runtime,
            )
        )
    record = {
        "schema": RUN_SCHEMA,
        "key": job.key,
        "benchmark": loaded.name,
        "variant": job.variant,
        "source": loaded.source,
        "method": job.method.name,
        "settings": {"objective": job.method.objective, **job.method.settings, "prior": job.method.prior},
        "seed": job.seed,
        "prior": fitted.prior.to_dict() if fitted.prior else None,
        "topology": json.loads(fitted.graph.to_json()) if fitted.graph else None,
        "choice": fitted.choice,
        "warnings": sorted({str(w.message) for w in caught if issubclass(w.category, TopoRoWarning)}),
        "history": [entry.to_dict() for entry in fitted.history],
    }
    for name, value in (("samples", fitted.samples), ("timing", fitted.timing)):
        if value is not None:
            record[name] = dict(value)
    if fitted.timing is not None:
        record["network_kept"] = runtime.keep_models
    tensors = {key: value.contiguous() for key, value in fitted.tensors.items()}
    record = job.store(out, record, save(tensors), network=runtime.keep_models)
    for phase in PHASES:
        checkpoint(phase).unlink(missing_ok=True)
    return record


def _shared_path(job: Job, out: Path, name: str) -> Path:
    """The file of this name that all runs of a seed share, made by the ERM run among them."""
    if "erm" in job.protocol.known:
        erm = job.protocol.method("erm")
        job = replace(job, method=erm, brought=_brought(BENCHMARKS[job.protocol.benchmark], erm))
    return out / "runs" / f"{job.key}.{name}"


def _set_aside_damaged(job: Job, out: Path) -> None:
    """What an earlier process left of a run for this one to go on from, where it is damaged."""
    read_sealed(_shared_path(job, out, TOPOLOGY))
    for phase in PHASES:
        path = job.checkpoint_path(out, phase)
        try:
            read_about(path)
        except FileNotFoundError:
            pass
        except DataError as error:
            set_aside(path, str(error).removesuffix(" Delete it to start over."))


def run_each(
    work: Callable[..., Record], calls: Sequence[tuple[T, tuple[Any, ...]]], workers: int
) -> Generator[tuple[T, Record], None, None]:
    """Call ``work`` with each job's arguments, in so many processes, and yield jobs with results as they end."""
    if workers == 1 or len(calls) <= 1:
        for job, arguments in calls:
            yield job, work(*arguments)
        return
    # Fresh interpreters, not forks: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    waiting = iter(calls)
    running: dict[Future[Record], T] = {}
    theirs, ours = context.Pipe(duplex=False)
    # Ours is closed first, however this ends: that is what ends the workers, and then the pool.
    with theirs, ProcessPoolExecutor(min(workers, len(calls)), context, follow, (theirs,)) as pool, ours:
        while True:
            # No more than can run at once, so that an interruption leaves no queue to work off.
            for job, arguments in islice(waiting, workers - len(running)):
                try:
                    with signals_held():
                        running[pool.submit(tidily, work, *arguments)] = job
                except (BrokenProcessPool, OSError, ValueError) as error:
                    if isinstance(error, OSError) and error.errno is not None:  # the system's: no process to be had
                        raise
                    # A pool that breaks while a worker starts closes the pipes which it is handed.
                    raise _killed([*running.values(), job]) from None
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    record = future.result()
                except BrokenProcessPool:
                    raise _killed(running.values()) from None
                yield running.pop(future), record


def _killed(jobs: Iterable[object]) -> TopoRoError:
    names = ", ".join(map(str, jobs))
    return TopoRoError(
        f"a worker was killed, perhaps for want of memory, while these ran: {names}. What is done is kept: run it "
        "again to go on, with fewer jobs at a time if memory was short."
    )
