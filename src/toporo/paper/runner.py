"""A table from start to end: runs, in parallel and resumable; rows; files."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import save

from toporo.cluster import LOCAL, Cluster, RayCluster, check_engine, cluster
from toporo.errors import DataError, NothingToTestError, SettingError, TopoRoError, TopoRoWarning
from toporo.files import Claims, replacing
from toporo.machine import cores, follow, one_thread, signals_held, tidily
from toporo.paper.base import BENCHMARKS, load_dataset
from toporo.paper.fits import FITS, Assignment, Runtime
from toporo.paper.loaded import BenchmarkData
from toporo.paper.protocols import BenchMethod, Protocol, Variant
from toporo.paper.results import RUN_SCHEMA, Job, Outcome, make_rows, read_sealed, set_aside, write_rows
from toporo.paper.vision import TOPOLOGY, VisionChoices, check_rows, describe, settle
from toporo.text import many
from toporo.training.checkpoint import read_checkpoint
from toporo.types import Record

#: Called with (jobs done, jobs in all, the job that just ended or None at the start, images per second it trained at).
Progress = Callable[[int, int, Job | None, float | None], None]
T = TypeVar("T")
R = TypeVar("R")
#: Seconds between two looks at what another process does.
LOOK_EVERY = 0.5
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
    workers: int | None = 1,
    progress: Progress | None = None,
    once: Iterable[str] = (),
    vision: VisionChoices | None = None,
    say: Callable[[str], object] | None = None,
    engine: str = LOCAL,
    **options: str | None,
) -> Outcome:
    """Run one of the paper's tables and write ``out/results.json``.

    The table has the methods asked for and, beside them, all others with stored runs in ``out`` that have the same
    protocol, settings and data: a method can be added to a table without the others.

    Every run is stored under ``out/runs`` as it ends and checkpointed while it goes, so calling this again after an
    interruption goes on from there and gives the same figures; what is damaged is set aside with a warning, and run
    again. ``options`` choose among a benchmark's variants, e.g. ``split="east-west"``; all of them unless given.

    Parameters
    ----------
    name : of the benchmark.
    out : folder for results; made if need be.
    protocol : ``"fair"``, ours, or another that the benchmark has, such as ``"paper"``.
    seeds : how many: 0, 1, …
    methods : names of those to run; those of the protocol's table unless given.
    data, source : see :func:`toporo.load_dataset`.
    workers : runs at a time; None for as many as the engine has room for.
    progress : called as runs end.
    once : names of further methods, for the first seed alone.
    vision : where and how to train networks for images.
    say : called before the first run with a line on what of the data cannot be used, if anything.
    engine : where runs are done: ``"local"``, ``"ray"`` or the address of a Ray cluster; see :mod:`toporo.cluster`.
    options : of the variants.
    """
    check_engine(engine)
    benchmark = BENCHMARKS[name].under(protocol)
    variants = benchmark.get_variants(**options)
    settled, runtime, loading = settle(benchmark, vision, Path(out))
    # As they are settled: a user's choices are in them too.
    chosen = settled.get_methods(settled.methods if methods is None else methods)
    single = [method for method in (settled.get_methods(once) if once else []) if method not in chosen]
    if seeds < 1 or (workers is not None and workers < 1):
        raise SettingError(f"seeds={seeds}, jobs={workers}: expected at least 1 of each.")
    if engine != LOCAL and runtime.device != "cpu":
        raise SettingError(
            f"--engine {engine} with --device {runtime.device}: a cluster's runs are done on CPUs. Use --device cpu, "
            "or this command without --engine on every machine with a GPU, and one folder for all."
        )
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file: give a folder for the results.")
    loaded, skipped = _load(name, variants, data, source, loading)
    check_rows(benchmark, loaded.values())
    if say is not None and (line := benchmark.left_out(list(loaded.values()))):
        say(line)
    jobs = _make_jobs(settled, loaded, ((chosen, seeds), (single, 1)))
    keys = [job.key for job in jobs]
    records: dict[str, Record] = {}
    for job, key in zip(jobs, keys, strict=True):
        if (record := job.finished(folder, network=runtime.keep_models)) is not None:
            records[key] = record
    resumed = len(records)
    pending = [job for job, key in zip(jobs, keys, strict=True) if key not in records]
    with cluster(engine if pending else LOCAL) as where:
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        if progress is not None:
            progress(resumed, len(jobs), None, None)
        for job in pending:
            _set_aside_damaged(job, folder)
        with closing(_run_all(pending, loaded, folder, runtime, where, workers, say)) as runs:
            for job, record in runs:
                records[job.key] = record
                if progress is not None:
                    progress(len(records), len(jobs), job, record.get("timing", {}).get("images_per_second"))
    kept = list(_stored_runs(settled, loaded, folder, {method.name for method in (*chosen, *single)}))
    jobs += [job for job, _ in kept]
    ordered = [*(records[key] for key in keys), *(record for _, record in kept)]
    rows = make_rows(settled, ordered)
    about = describe(benchmark, settled, ordered, list(loaded.values()), skipped)
    if benchmark.protocol is not BENCHMARKS[name].protocol:
        about = {"protocol": protocol, **(about or {})}
    write_rows(rows, folder / "results.json", about)
    return Outcome(settled, loaded, rows, ordered, jobs, resumed, about)


def _make_jobs(
    settled: Protocol, loaded: Mapping[str, BenchmarkData], methods: Iterable[tuple[Iterable[BenchMethod], int]]
) -> list[Job]:
    """One job for every variant, method and seed, of methods with how many seeds each is to have."""
    return [
        Job(settled.for_variant(variant), method, seed, loaded[variant.name].fingerprint, variant.name)
        for methods_now, seeds_now in methods
        for variant in settled.variants
        if variant.name in loaded
        for method in methods_now
        for seed in range(seeds_now if method.seeded else 1)
    ]


def _stored_runs(
    settled: Protocol, loaded: Mapping[str, BenchmarkData], folder: Path, asked: Set[str]
) -> Iterator[tuple[Job, Record]]:
    """Runs in the folder of methods that were not asked for, with the same settings and data, from seed 0 on."""
    others = [method for method in settled.get_methods() if method.name not in asked]
    for job in _make_jobs(settled, loaded, ((others, 1),)):
        while (record := job.finished(folder)) is not None:
            yield job, record
            if not job.method.seeded:
                break
            job = replace(job, seed=job.seed + 1)


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
        job = replace(job, method=job.protocol.method("erm"))
    return out / "runs" / f"{job.key}.{name}"


def _set_aside_damaged(job: Job, out: Path) -> None:
    """What an earlier process left of a run for this one to go on from, where it is damaged."""
    read_sealed(_shared_path(job, out, TOPOLOGY))
    for phase in PHASES:
        path = job.checkpoint_path(out, phase)
        try:
            read_checkpoint(path)
        except FileNotFoundError:
            pass
        except DataError as error:
            set_aside(path, str(error).removesuffix(" Delete it to start over."))


# ---------------------------------------------------------------------- many runs


def _run_all(
    pending: list[Job],
    loaded: Mapping[str, BenchmarkData],
    out: Path,
    runtime: Runtime,
    where: Cluster,
    workers: int | None,
    say: Callable[[str], object] | None,
) -> Generator[tuple[Job, Record], None, None]:
    """Jobs with records as they end: run here, or by another process at work on this folder, which is waited for."""
    waited = False
    while pending:
        if isinstance(where, RayCluster):
            runs = _run_elsewhere(pending, loaded, out, runtime, where, workers)
        else:
            calls = [(job, (job, loaded[job.variant], out, runtime)) for job in pending]
            runs = run_each(_run_unclaimed, calls, workers or cores())
        with closing(runs):
            ended = set()
            for job, record in runs:
                if record is not None:
                    ended.add(job.key)
                    yield job, record
        pending = [job for job in pending if job.key not in ended]
        if pending and not waited and say is not None:
            say(f"{many(len(pending), 'run')} under way in another process on {out}: waiting for what it leaves.")
            waited = True
        while pending and not _free(pending, out):
            time.sleep(LOOK_EVERY)
            for job in list(pending):
                if (record := job.finished(out, network=runtime.keep_models)) is not None:
                    pending.remove(job)
                    yield job, record


def _free(jobs: Sequence[Job], out: Path) -> bool:
    """Whether nobody is at work on one of these; its process may have died."""
    with Claims(out / "runs") as claims:
        return any(claims.take(job.key) for job in jobs)


def _run_unclaimed(job: Job, loaded: BenchmarkData, out: Path, runtime: Runtime) -> Record | None:
    """Do one run, unless another process is at it."""
    with Claims(out / "runs") as claims:
        return run_job(job, loaded, out, runtime) if claims.take(job.key) else None


def _run_elsewhere(
    pending: Sequence[Job],
    loaded: Mapping[str, BenchmarkData],
    out: Path,
    runtime: Runtime,
    where: RayCluster,
    workers: int | None,
) -> Generator[tuple[Job, Record | None], None, None]:
    """Runs on machines that do not see this folder: what they leave comes back, and is stored here."""
    data = {name: where.share(loaded[name]) for name in dict.fromkeys(job.variant for job in pending)}
    with Claims(out / "runs") as claims:

        def calls() -> Iterator[tuple[Job, tuple[Any, ...]]]:
            for job in pending:
                if claims.take(job.key):
                    shared = _shared_path(job, out, TOPOLOGY)
                    yield job, (job, data[job.variant], runtime, shared.read_bytes() if shared.exists() else None)

        with closing(where.each(_run_in_scratch, calls(), ahead=workers)) as runs:
            for job, (record, model, topology) in runs:
                if record["key"] != job.key:
                    raise TopoRoError(f"{job} was run elsewhere by other code ({record['key']}): expected {job.key}.")
                if topology is not None:
                    with replacing(_shared_path(job, out, TOPOLOGY)) as stream:
                        stream.write(topology)
                record = job.store(out, record, model, network=runtime.keep_models)
                for phase in PHASES:
                    job.checkpoint_path(out, phase).unlink(missing_ok=True)
                claims.give_back(job.key)
                yield job, record


def _run_in_scratch(
    job: Job, loaded: BenchmarkData, runtime: Runtime, topology: bytes | None
) -> tuple[Record, bytes, bytes | None]:
    """Do one run in a folder of its own: record, model, and the topology that runs of a seed share if it made that."""
    with tempfile.TemporaryDirectory(prefix="toporo-") as place:
        out = Path(place)
        shared = _shared_path(job, out, TOPOLOGY)
        shared.parent.mkdir()
        if topology is not None:
            shared.write_bytes(topology)
        record = run_job(job, loaded, out, runtime)
        made = shared.read_bytes() if topology is None and shared.exists() else None
        return record, job.model_path(out).read_bytes(), made


def run_each(
    work: Callable[..., R], calls: Sequence[tuple[T, tuple[Any, ...]]], workers: int
) -> Generator[tuple[T, R], None, None]:
    """Call ``work`` with each job's arguments, in so many processes, and yield jobs with results as they end."""
    if workers == 1 or len(calls) <= 1:
        for job, arguments in calls:
            yield job, work(*arguments)
        return
    # Fresh interpreters, not forks: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    waiting = iter(calls)
    running: dict[Future[R], T] = {}
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
