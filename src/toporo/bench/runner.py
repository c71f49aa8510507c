"""A table from start to end: jobs, in parallel and resumable; rows; files."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from toporo.bench.assignment import Runtime
from toporo.bench.base import Benchmark
from toporo.bench.datasets import load_dataset
from toporo.bench.deep import Deep, check_rows, describe, dropped_chips, settle
from toporo.bench.definitions import Protocol, Variant
from toporo.bench.jobs import Job, run_job
from toporo.bench.protocols import get_protocol
from toporo.bench.results import Row, make_rows, write_rows
from toporo.errors import DataError, NothingToTestError, SettingError
from toporo.types import Record

#: Called with (jobs done, jobs in all, the job that just ended or None at the start, images a second it trained at).
Progress = Callable[[int, int, Job | None, float | None], None]
#: Chips left out that are named one by one before the runs.
NAMED = 5


@dataclass(frozen=True)
class Part:
    """One variant of an outcome: its own protocol, benchmark, rows, records and jobs."""

    variant: Variant
    protocol: Protocol
    benchmark: Benchmark
    rows: list[Row]
    records: list[Record]
    jobs: list[Job]

    @property
    def title(self) -> str:
        """The benchmark's title with the variant's."""
        return f"{self.protocol.title} {self.variant.title}".strip()


@dataclass(frozen=True)
class Outcome:
    """What a reproduction gives: rows of all tables, the records behind them, and the benchmark by variant."""

    protocol: Protocol
    benchmarks: Mapping[str, Benchmark]
    rows: list[Row]
    records: list[Record]
    jobs: list[Job]
    resumed: int
    about: Mapping[str, Any] | None = None

    @property
    def parts(self) -> list[Part]:
        """Each variant by itself."""
        return [
            Part(
                variant,
                self.protocol.for_variant(variant),
                self.benchmarks[variant.name],
                [row for row in self.rows if row.variant == variant.name],
                [record for record in self.records if record["variant"] == variant.name],
                [job for job in self.jobs if job.variant == variant.name],
            )
            for variant in self.protocol.variants
            if variant.name in self.benchmarks
        ]


def reproduce(
    name: str,
    out: str | os.PathLike[str],
    *,
    seeds: int = 3,
    methods: Iterable[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    source: str = "auto",
    workers: int = 1,
    progress: Progress | None = None,
    once: Iterable[str] = (),
    deep: Deep | None = None,
    say: Callable[[str], object] | None = None,
    **options: str | None,
) -> Outcome:
    """Run one of the paper's tables and write ``out/results.json``.

    Every run is stored under ``out/runs`` as it ends and checkpointed while it goes, so calling this again after an
    interruption goes on from there and gives the same figures. ``options`` choose among a benchmark's variants, e.g.
    ``split="east-west"``; all of them unless given.

    Parameters
    ----------
    methods : names; those of the protocol's table unless given.
    once : names of further methods, for the first seed alone.
    deep : where and how to train networks for images.
    say : called before the first run with a line on what of the data cannot be used, if anything.
    """
    protocol = get_protocol(name)
    variants = protocol.get_variants(**options)
    runtime = Runtime()
    loading: dict[str, Any] = {}
    if protocol.unit == "steps":
        protocol, runtime, loading = settle(protocol, deep or Deep(), Path(out))
    elif deep is not None:
        raise SettingError(
            f"device, weights, network, steps and the like are for benchmarks on images; {name} is none."
        )
    # As they are settled: a user's choices are in them too.
    chosen = protocol.get_methods(protocol.methods if methods is None else methods)
    single = [method for method in (protocol.get_methods(once) if once else []) if method not in chosen]
    if seeds < 1 or workers < 1:
        raise SettingError(f"seeds={seeds}, jobs={workers}: expected at least 1 of each.")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file: give a folder for the results.")
    benchmarks, skipped = _load(name, variants, data, source, loading)
    if protocol.unit == "steps":
        check_rows(protocol, benchmarks.values())
    if say is not None and (dropped := dropped_chips(benchmarks.values())):
        say(_left_out(dropped))
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    jobs = [
        Job(protocol.for_variant(variant), method, seed, benchmarks[variant.name].fingerprint, variant.name)
        for methods_now, seeds_now in ((chosen, seeds), (single, 1))
        for variant in variants
        if variant.name in benchmarks
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
    for job, record in _run_all(pending, benchmarks, folder, workers, runtime):
        records[job.key] = record
        if progress is not None:
            progress(len(records), len(jobs), job, record.get("timing", {}).get("images_per_second"))
    ordered = [records[key] for key in keys]
    rows = make_rows(protocol, ordered)
    about = describe(protocol, ordered, list(benchmarks.values()), skipped) if protocol.unit == "steps" else None
    write_rows(rows, folder / "results.json", about)
    return Outcome(protocol, benchmarks, rows, ordered, jobs, resumed, about)


def _load(
    name: str, variants: list[Variant], data: str | os.PathLike[str] | None, source: str, loading: Mapping[str, Any]
) -> tuple[dict[str, Benchmark], dict[str, str]]:
    """The benchmark of every variant; and why some have none, where that is the data's fault and others have one."""
    found: dict[str, Benchmark] = {}
    skipped: dict[str, str] = {}
    for variant in variants:
        try:
            found[variant.name] = load_dataset(name, data, source=source, **variant.options, **loading)
        except NothingToTestError as error:
            if len(variants) == 1:
                raise
            skipped[variant.name] = str(error)
    if not found:
        raise DataError("; ".join(skipped.values()))
    return found, skipped


def _left_out(dropped: Mapping[str, str]) -> str:
    named = ", ".join(f"{chip} ({why})" for chip, why in islice(dropped.items(), NAMED))
    more = f", … ({len(dropped)} in all; results.json names them)" if len(dropped) > NAMED else ""
    return f"left out, without a usable pixel: {named}{more}"


def _run_all(
    jobs: list[Job], benchmarks: Mapping[str, Benchmark], out: Path, workers: int, runtime: Runtime
) -> Iterable[tuple[Job, Record]]:
    if workers == 1 or len(jobs) <= 1:
        for job in jobs:
            yield job, run_job(job, benchmarks[job.variant], out, runtime)
        return
    # Fresh interpreters, not forks: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    waiting = iter(jobs)
    running: dict[Future[Record], Job] = {}
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context) as pool:
        while True:
            # No more than can run at once, so that an interruption leaves no queue to work off.
            for job in islice(waiting, workers - len(running)):
                running[pool.submit(run_job, job, benchmarks[job.variant], out, runtime)] = job
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
