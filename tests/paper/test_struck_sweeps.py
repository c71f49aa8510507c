"""Sweeps that are struck down: the same figures in the end. Slow, and so a file of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from toporo.paper.runner import reproduce

WORDS = ("reproduce", "dg15", "--seeds", "1", "--methods", "erm,sd,tro-physical", "--source", "generated")
SWEEP = (sys.executable, "-m", "toporo", *WORDS, "--jobs", "2", "--out")
#: Signals that the sweep and its workers get, and what it says.
WAYS = {"a batch system's kill": (signal.SIGTERM, "terminated"), "Ctrl-C": (signal.SIGINT, "interrupted")}
#: When a sweep is struck: what is then in its folder.
MOMENTS = {"as workers start": "", "after a run": "runs/*-s0-????????????.json"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a sweep gives in one process that nobody strikes: this one, which has torch loaded."""
    folder = tmp_path_factory.mktemp("undisturbed")
    reproduce("dg15", folder, seeds=1, methods=["erm", "sd", "tro-physical"], source="generated")
    return (folder / "results.json").read_bytes()


def go_on(toporo: Callable[..., Any], folder: Path) -> bytes:
    """What the same command gives once more, in this process."""
    done = toporo(*WORDS, "--jobs", 1, "--out", folder)
    assert done.code == 0, done.err
    assert list(folder.rglob("*.damaged*")) == list(folder.rglob("*.part")) == []
    return (folder / "results.json").read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("no_data", "interrupts")
@pytest.mark.parametrize(("way", "moment"), [("a batch system's kill", "as workers start"), ("Ctrl-C", "after a run")])
def test_workers_end_with_their_parent_and_the_same_command_goes_on(
    way: str, moment: str, undisturbed: bytes, toporo: Callable[..., Any], tmp_path: Path
) -> None:
    """Two of them; `make torture` strikes in every way at every moment."""
    number, said = WAYS[way]
    moment = MOMENTS[moment]
    # A checkpoint of a short run is there for a moment only: a sweep that was not caught in one is started again.
    for folder in (tmp_path / str(attempt) for attempt in range(10)):
        victim = subprocess.Popen(
            [*SWEEP, folder], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            assert victim.stderr is not None
            assert "starting" in victim.stderr.readline()
            while victim.poll() is None and moment and not list(folder.glob(moment)):
                time.sleep(0.002)
            if victim.poll() is None:
                os.killpg(victim.pid, number)
            _, err = victim.communicate(timeout=120)  # workers have the other end of its pipe: it waits for them, too
        finally:
            with suppress(ProcessLookupError):
                os.killpg(victim.pid, signal.SIGKILL)
        if victim.returncode:
            break
    assert "Traceback" not in err
    assert victim.returncode == 128 + number
    assert err.endswith(f"toporo: {said}; what is done is kept, and the same command goes on from here.\n")
    assert list(folder.rglob("*.part")) == []
    assert go_on(toporo, folder) == undisturbed
