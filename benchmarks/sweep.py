"""A sweep as programs of many runs against the same runs one by one, both on all cores, in processes that are warm."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

import toporo as tr
from toporo.bench.base import BENCHMARKS
from toporo.bench.fits import FITS, Assignment, build_model
from toporo.bench.sweep import Program, SweepPlan, Trial, make_plan, run_program
from toporo.data.batches import steps_per_epoch
from toporo.machine import cores, one_thread

#: Milliseconds a step of DG-15 takes in the paper's published code, on a CPU like the one the tables are made on.
REFERENCE = 12.0
#: Runs of either kind that are compared; one by one they take long.
ALONE, ROUNDS = 16, 3


def _together(program: Program, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "search").mkdir()
        run_program(program, data, Path(folder))


def _alone(program: Program, trial: Trial, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder, one_thread(torch=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        place = Path(folder).joinpath
        FITS["mlp"](Assignment(program.protocol, trial.method, trial.seed, data, place, place))


def _seconds(pool: ProcessPoolExecutor, calls: Sequence[Callable[[], None]]) -> float:
    begun = time.perf_counter()
    for future in [pool.submit(call) for call in calls]:
        future.result()
    return time.perf_counter() - begun


def bench_sweep() -> list[str]:
    lines = [
        "The grid of TRO-physical, λ × η × 3 seeds, on DG-15's generated data: training and 20 evaluations a run.",
        "",
        "| protocol | weights | runs | alone (ms a step and run) | as programs (ms a step and run) | ratio, median "
        "of 3 (each) | the reference's 12 ms over it |",
        "|---|---|---|---|---|---|---|",
    ]
    loaded = tr.load_dataset("dg15", source="generated")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores(), context) as pool:
        _seconds(pool, [partial(torch.zeros, 1)] * 8 * cores())
        for name in ("fair", "paper"):
            benchmark = BENCHMARKS["dg15"].under(name)
            (variant,) = benchmark.get_variants()
            plan: SweepPlan = make_plan(benchmark, variant, loaded, methods=["tro-physical"])
            programs = [program for program in plan.programs if not program.fold]
            trials = [(p, trial) for p in programs for trial in p.trials]
            steps = plan.protocol.rounds * steps_per_epoch(
                benchmark.split(loaded, 0, plan.protocol.validation).train, plan.protocol.per_group
            )
            some = trials[:: max(1, len(trials) // ALONE)][:ALONE]
            few = programs if name == "fair" else programs[: 2 * cores()]
            together = [partial(_together, program, loaded) for program in few]
            alone = [partial(_alone, program, trial, loaded) for program, trial in some]
            runs = sum(len(program.trials) for program in few)
            _seconds(pool, [*together[: cores()], *alone[: cores()]])
            pairs = [(_seconds(pool, alone) / len(alone), _seconds(pool, together) / runs) for _ in range(ROUNDS)]
            ratios = sorted(one / many for one, many in pairs)
            one, many = (sorted(each)[ROUNDS // 2] * 1e3 / steps for each in zip(*pairs, strict=True))
            weights = sum(p.numel() for p in build_model(plan.protocol, loaded, 0).parameters())
            lines.append(
                f"| {name} | {weights} | {runs} | {one:.3f} | {many:.3f} | {ratios[ROUNDS // 2]:.1f}× "
                f"({', '.join(f'{ratio:.1f}' for ratio in ratios)}) | {REFERENCE / many:.0f}× |"
            )
    return lines
