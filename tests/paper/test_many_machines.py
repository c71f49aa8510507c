"""Sweeps past one process: claims on the runs of a folder."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toporo.paper import BENCHMARKS, runner
from toporo.paper.protocols import Protocol
from toporo.paper.runner import reproduce
from toporo.paper.runs import Run

METHODS = ["erm", "sd", "tro-physical"]


def table(folder: Path) -> bytes:
    return (folder / "results.json").read_bytes()


# ---------------------------------------------------------------- two at once


#: Claim a run and be killed with it.
HOLD = """
import sys, time
from pathlib import Path
from toporo.files import Claims

with Claims(Path(sys.argv[1])) as claims:
    print(claims.take(sys.argv[2]), flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_run_of_another_process_is_waited_for_and_taken_over_when_that_dies(small: Protocol, tmp_path: Path) -> None:
    whole = reproduce("dg15", tmp_path / "whole", seeds=1, methods=["erm", "sd"])
    command = [sys.executable, "-c", HOLD, tmp_path / "out/runs", whole.records[0]["key"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        ended: list[str] = []

        def progress(done: int, total: int, run: Run | None) -> None:
            ended.append(str(run))
            if str(run) == "sd seed 0":  # the other run, done meanwhile
                threading.Timer(0.5, other.kill).start()

        try:
            reproduce("dg15", tmp_path / "out", seeds=1, methods=["erm", "sd"], progress=progress)
        finally:
            other.kill()
    assert ended == ["None", "sd seed 0", "erm seed 0"]
    assert table(tmp_path / "out") == table(tmp_path / "whole")


def sweep(folder: Path, ran: Any) -> None:
    """Do the same runs in both processes, and report which ones each did."""
    real = runner.do_run

    def told(run: Run, *given: Any) -> Any:
        ran.put(str(run))
        return real(run, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BENCHMARKS["dg15"], "protocol", replace(BENCHMARKS["dg15"].protocol, rounds=4))
        patched.setattr(runner, "do_run", told)
        ran.put("ready")
        reproduce("dg15", folder, seeds=2, methods=METHODS)


@pytest.mark.slow
def test_two_processes_on_one_store_share_the_work(small: Protocol, tmp_path: Path) -> None:
    """None collides, none is lost, and no run is done by both."""
    whole = reproduce("dg15", tmp_path / "whole", seeds=2, methods=METHODS)
    context = multiprocessing.get_context("spawn")
    ran = context.Queue()
    other = context.Process(target=sweep, args=(tmp_path / "out", ran))
    other.start()
    assert ran.get(timeout=120) == "ready"
    sweep(tmp_path / "out", ran)
    other.join(120)
    assert other.exitcode == 0
    runs = [ran.get(timeout=60) for _ in range(1 + len(whole.records))]
    assert ran.empty()
    assert sorted(runs) == sorted(["ready", *(f"{one['method']} seed {one['seed']}" for one in whole.records)])
    assert table(tmp_path / "out") == table(tmp_path / "whole")
