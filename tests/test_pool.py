"""Pools: lost calls are made again, and errors are those that a call in this thread would raise."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toporo import pool as pools
from toporo.errors import DataError, SettingError, TopoRoError, UnknownNameError
from toporo.files import write_text
from toporo.pool import Pool, Threads, open_pool

pytestmark = pytest.mark.slow
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")


@pytest.fixture(scope="module")
def two() -> Iterator[Pool]:
    """A cluster of this machine."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra ray")
    os.environ.pop("RAY_ADDRESS", None)
    before = signal.getsignal(signal.SIGTERM)
    with open_pool("ray") as made:
        assert signal.getsignal(signal.SIGTERM) is before, "Ray has put its own handler there"
        yield made
    assert signal.getsignal(signal.SIGTERM) is before


def square(number: int, table: tuple[int, ...] = ()) -> int:
    return number**2 + sum(table)


def fail(kind: str) -> None:
    if kind == "data":
        raise DataError("the river is dry.")
    if kind == "name":
        raise UnknownNameError("method", "emr", ["erm", "irm"])
    if kind == "own":

        class Odd(Exception):
            """Cannot be pickled."""

        raise Odd("strange")
    raise ZeroDivisionError("nothing to divide by")


def die_at_first(flag: Path) -> str:
    """End the worker without a word, the first time."""
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return "done"
    os._exit(1)


def always_die() -> None:
    os._exit(1)


def wait_long(note: Path | None) -> None:
    """Leave a note of who waits, and wait; return at once without one."""
    if note is not None:
        write_text(note, str(os.getpid()))
        time.sleep(600)


def until(true: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")  # a zombie has ended
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


# ---------------------------------------------------------------- without Ray


@pytest.mark.parametrize(
    "engine", ["", "cloud", "auto", "head node:6379", "host:port", "http://host:80", "ray://host:10001"]
)
def test_other_engines_are_refused(engine: str) -> None:
    with pytest.raises(SettingError, match="expected local, ray, or the address"), open_pool(engine):
        pass


def test_local_needs_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with open_pool("local") as here:
        assert list(here.map(square, [(2,)])) == [4]
    with pytest.raises(SettingError, match=r"pip install 'toporo\[ray\]'"), open_pool("ray"):
        pass


@needs_ray
def test_a_cluster_that_does_not_answer_is_an_error_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    address = f"127.0.0.1:{port}"
    with pytest.raises(TopoRoError, match=rf"no Ray cluster answers at {address}.*`ray status`"), open_pool(address):
        pass
    assert time.monotonic() - began < 2 * pools.PATIENCE


# ---------------------------------------------------------------- with Ray


@pytest.fixture(params=["serial", "threads", "ray"])
def pool(request: pytest.FixtureRequest) -> Pool:
    """Each kind of workers."""
    made = {"serial": Pool, "threads": lambda: Threads(2), "ray": lambda: request.getfixturevalue("two")}
    return made[request.param]()


def test_results_come_in_the_order_of_the_calls(pool: Pool) -> None:
    table = pool.share((1, 2))
    assert list(pool.map(square, [(number, table) for number in range(7)])) == [n**2 + 3 for n in range(7)]
    assert pool.workers >= 1


def test_calls_are_taken_as_there_is_room(pool: Pool) -> None:
    taken = []

    def calls() -> Iterator[tuple[Any, ...]]:
        for number in range(20):
            taken.append(number)
            yield (number,)

    with closing(pool.map(square, calls(), ahead=3)) as results:
        next(results)
        first = len(taken)
        assert first <= 3
        next(results)
        assert len(taken) == first + 1


def test_errors_of_workers_are_raised_here(pool: Pool) -> None:
    with pytest.raises(DataError) as dry:
        list(pool.map(fail, [("data",)]))
    assert str(dry.value) == "the river is dry."
    assert type(dry.value) is DataError
    with pytest.raises(UnknownNameError, match="Did you mean 'erm'"):
        list(pool.map(fail, [("name",)]))


def test_an_error_on_the_cluster_says_where_it_was_raised(two: Pool) -> None:
    with pytest.raises(ZeroDivisionError) as zero:
        list(two.map(fail, [("zero",)]))
    assert "in fail" in zero.value.__notes__[0], "where on the worker it was raised"
    with pytest.raises(TopoRoError, match="Odd: strange"):
        list(two.map(fail, [("own",)]))


def test_lost_calls_are_made_again_but_not_for_ever(two: Pool, tmp_path: Path) -> None:
    assert list(two.map(die_at_first, [(tmp_path / name,) for name in "ab"])) == ["done", "done"]
    with pytest.raises(TopoRoError, match=r"Ray could not make a call: .*made again 3 times"):
        list(two.map(always_die, [()]))


def test_calls_under_way_end_with_the_generator(two: Pool, tmp_path: Path) -> None:
    note = tmp_path / "note"
    with closing(two.map(wait_long, [(None,), (note,)])) as results:
        assert next(results) is None
        assert until(note.exists)
    assert until(lambda: not alive(int(note.read_text())))
    assert list(two.map(square, [(2,)])) == [4]


def test_another_version_on_a_machine_is_an_error(two: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    here = pools._versions()
    for changed, words in (
        ({"toporo": "9.9"}, r"node \S+ of the Ray cluster has toporo \d.*, this machine 9\.9"),
        ({"Python": "3.99"}, r"has Python 3\.\d+, this machine 3\.99"),
    ):
        monkeypatch.setattr(pools, "_versions", lambda changed=changed: here | changed)
        with pytest.raises(TopoRoError, match=words):
            list(two.map(square, [(2,)]))


PROGRAM = """
import sys, toporo.cli.running as running
from contextlib import closing
from pathlib import Path
from tests import test_pool as here
from toporo.pool import open_pool
folder = Path(sys.argv[1])
if __name__ == "__main__":
    with running.terminable(), open_pool("ray") as two:
        print(*two.map(here.die_at_first, [(folder / "flag",)]), flush=True)
        with closing(two.map(here.wait_long, [(folder / "note",)])) as waiting:
            try:
                list(waiting)
            except running.Terminated:
                print("terminated")
"""


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_cluster_ends_with_its_driver_however_that_ends(number: signal.Signals, tmp_path: Path) -> None:
    """And says nothing by itself, also not of workers that die."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    path = os.pathsep.join(entry for entry in (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")) if entry)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    running = subprocess.Popen(
        [sys.executable, script, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment | {"PYTHONPATH": path, "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    )
    try:
        assert until((tmp_path / "note").exists, 120), running.communicate(timeout=1)
        running.send_signal(number)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    terminated = number == signal.SIGTERM
    assert (out, err) == ("done\n" + "terminated\n" * terminated, "")
    assert running.returncode == (0 if terminated else -number)
    assert until(lambda: not alive(int((tmp_path / "note").read_text())))
