"""Threads of linear algebra: one while it is needed, and all of them back whoever ends last."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController, threadpool_info

import toporo
from toporo.machine import one_thread, signals_held


def blas() -> set[int]:
    """Threads of linear algebra; some builds, such as that of the solver scs, never have more than one."""
    pools = [pool for pool in threadpool_info() if pool.get("threading_layer") != "disabled"]
    return {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"}


def elsewhere(work: Callable[[], Any]) -> Any:
    """What a new thread sees."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@pytest.fixture(autouse=True)
def three() -> Iterator[None]:
    """Three threads each for BLAS, OpenMP and torch, on any machine; and they are there afterwards."""
    import sklearn.neighbors  # noqa: F401  # both bring libraries of their own

    every = ThreadpoolController().lib_controllers
    libraries = [library for library in every if getattr(library, "threading_layer", "") != "disabled"]
    before = torch.get_num_threads(), [library.get_num_threads() for library in libraries]
    torch.set_num_threads(3)
    for library in libraries:
        set_threads(library, 3)
    yield
    after = {library.get_num_threads() for library in libraries}, torch.get_num_threads()
    new = elsewhere(torch.get_num_threads)
    torch.set_num_threads(before[0])
    for library, count in zip(libraries, before[1], strict=True):
        set_threads(library, count)
    assert (*after, new) == ({3}, 3, 3)


def set_threads(library: Any, count: int) -> None:
    """Without threadpoolctl's claim to be the only thread that may."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


def test_one_thread_within_another_and_after_an_error() -> None:
    with one_thread(torch=True, openmp=True):
        with one_thread(torch=True):
            assert blas() == {1}
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}
        assert torch.get_num_threads() == 1
        assert elsewhere(torch.get_num_threads) == 3, "the setting is this thread's alone"
    with pytest.raises(ZeroDivisionError), one_thread(torch=True, openmp=True):
        _ = 1 // 0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)], ids=str)
def test_threads_that_overlap_leave_all_as_it_was(order: tuple[int, ...]) -> None:
    """All in, then out in this order: the first to come need not be the last to go."""
    with ExitStack() as stack:
        pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(3)]
        blocks = [one_thread(torch=True, openmp=True) for _ in pools]
        for pool, block in zip(pools, blocks, strict=True):
            pool.submit(block.__enter__).result()
            assert pool.submit(torch.get_num_threads).result() == 1
        for place, number in enumerate(order):
            assert blas() == {1}, f"after {place} of 3 had left"
            pools[number].submit(blocks[number].__exit__, None, None, None).result()
        assert [pool.submit(torch.get_num_threads).result() for pool in pools] == [3, 3, 3]


def test_eight_threads_fit_at_once_and_give_the_same_models() -> None:
    rng = np.random.default_rng(0)
    group = np.repeat(["a", "b", "c", "d"], 60)
    x = rng.normal(size=(240, 3)) + 2.0 * np.repeat(np.arange(4), 60)[:, None]
    y = x.sum(axis=1) + rng.normal(size=240)
    ready = threading.Barrier(8)

    def fit(number: int) -> bytes:
        ready.wait(timeout=60)
        for _ in range(3 if number % 2 else 1):  # some leave while others are in the midst of it
            graph = toporo.learn_topology(x, group, resamples=0)
            model = toporo.TRORegressor(graph=graph).fit(x, y, groups=group)
        return bytes(model.predict(x).tobytes())

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(fit, range(8)))) == 1
        assert blas() == {3}


# ---------------------------------------------------------------------- workers

PARENT = """
import multiprocessing, signal, sys, time
from toporo.files import replacing
from toporo.machine import follow, signals_held, tidily

def write(path):
    with replacing(path):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)  # these are its parent's
        print("writing", flush=True)
        while True:
            time.sleep(0.05)

def work(pipe, path):
    follow(pipe)
    if path:
        tidily(write, path)
    print("idle", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    with signals_held():
        worker = context.Process(target=work, args=(theirs, sys.argv[1]))
        worker.start()
    worker.join()
"""


@pytest.mark.parametrize("path", ["file", ""], ids=["at work", "idle"])
def test_a_worker_ends_with_its_parent_and_leaves_nothing_half_written(path: str, tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    command = [sys.executable, tmp_path / "parent.py", path]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == ("writing\n" if path else "idle\n")
        parent.kill()
        assert parent.communicate(timeout=60)[0] == ""  # the worker has the other end of the pipe
    assert sorted(place.name for place in tmp_path.iterdir() if place.is_file()) == ["parent.py"]


class Struck(BaseException):
    """A signal's handler was called."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_whichever_thread_they_are_given_to(number: signal.Signals) -> None:
    """Also to one that was there before, such as those of linear algebra, which masks nothing."""
    gone = threading.Event()
    other = threading.Thread(target=gone.wait)
    other.start()

    def strike(*_: object) -> None:
        raise Struck

    before = signal.signal(number, strike)
    try:
        for place in (other.ident, threading.get_ident()):
            waited = []

            def hold(place: int | None = place, waited: list[int] = waited) -> None:
                with signals_held():
                    signal.pthread_kill(place or 0, number)
                    time.sleep(0.05)
                    waited.append(1)

            with pytest.raises(Struck):
                hold()
            assert waited
            assert signal.getsignal(number) is strike
            assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.signal(number, before)
        gone.set()
        other.join()


def test_signals_that_are_ignored_stay_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals_held():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
