"""A table from start to end: jobs, in parallel and resumable; rows; files."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from toporo.datasets import Benchmark, load_dataset
from toporo.errors import DataError, SettingError
from toporo.experiments.jobs import Job, run_job
from toporo.experiments.protocols import Protocol, get_methods, get_protocol
from toporo.experiments.results import Row, make_rows, write_rows

__all__ = ["Outcome", "reproduce"]

#: Called with (jobs done, jobs in all, the job that just ended or None at the start).
Progress = Callable[[int, int, Job | None], None]


@dataclass(frozen=True)
class Outcome:
    """What a reproduction gives: the rows of the table, the records behind them, and the benchmark."""

    protocol: Protocol
    benchmark: Benchmark
    rows: list[Row]
    records: list[dict[str, Any]]
    jobs: list[Job]
    resumed: int


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
) -> Outcome:
    """Run one of the paper's tables and write ``out/results.json``.

    Every run is stored under ``out/runs`` as it ends and checkpointed while it goes, so calling this again after an
    interruption goes on from there and gives the same figures.
    """
    protocol = get_protocol(name)
    chosen = get_methods(methods)
    if seeds < 1 or workers < 1:
        raise SettingError(f"seeds={seeds}, jobs={workers}: expected at least 1 of each.")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file: give a folder for the results.")
    benchmark = load_dataset(name, data, source=source)
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    jobs = [Job(protocol, method, seed, benchmark.fingerprint) for method in chosen for seed in range(seeds)]
    records = {job.key: record for job in jobs if (record := job.finished(folder)) is not None}
    resumed = len(records)
    pending = [job for job in jobs if job.key not in records]
    if progress is not None:
        progress(resumed, len(jobs), None)
    for job, record in _run_all(pending, benchmark, folder, workers):
        records[job.key] = record
        if progress is not None:
            progress(len(records), len(jobs), job)
    ordered = [records[job.key] for job in jobs]
    rows = make_rows(protocol, ordered)
    write_rows(rows, folder / "results.json")
    return Outcome(protocol, benchmark, rows, ordered, jobs, resumed)


def _run_all(jobs: list[Job], benchmark: Benchmark, out: Path, workers: int) -> Iterable[tuple[Job, dict[str, Any]]]:
    if workers == 1 or len(jobs) <= 1:
        for job in jobs:
            yield job, run_job(job, benchmark, out)
        return
    # Fresh interpreters, not forks: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    waiting = iter(jobs)
    running: dict[Future[dict[str, Any]], Job] = {}
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context) as pool:
        while True:
            # No more than can run at once, so that an interruption leaves no queue to work off.
            for job in islice(waiting, workers - len(running)):
                running[pool.submit(run_job, job, benchmark, out)] = job
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
