"""Ray's seam: what is done elsewhere is done once more if it is lost, and fails as it would fail here."""

from __future__ import annotations

import errno
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toporo import cluster as seam
from toporo.cluster import Cluster, Threads, cluster
from toporo.errors import DataError, SettingError, TopoRoError, UnknownNameError
from toporo.files import write_text

pytestmark = pytest.mark.slow
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    """A cluster of this machine."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra ray")
    os.environ.pop("RAY_ADDRESS", None)
    before = signal.getsignal(signal.SIGTERM)
    with cluster("ray") as made:
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
    if kind == "disk":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.part")
    if kind == "braces":
        raise ValueError("cannot read {path} {0}")
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
def test_what_is_no_engine_is_refused(engine: str) -> None:
    with pytest.raises(SettingError, match="expected local, ray, or the address"), cluster(engine):
        pass


def test_local_needs_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with cluster("local") as here:
        assert list(here.each(square, [("a", (2,))])) == [("a", 4)]
    with pytest.raises(SettingError, match=r"pip install 'toporo\[ray\]'"), cluster("ray"):
        pass


@needs_ray
def test_a_cluster_that_is_not_there_is_an_error_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    address = f"127.0.0.1:{port}"
    with pytest.raises(TopoRoError, match=rf"no Ray cluster answers at {address}.*`ray status`"), cluster(address):
        pass
    assert time.monotonic() - began < 2 * seam.PATIENCE


@needs_ray
def test_a_server_that_is_not_ray_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "PATIENCE", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TopoRoError, match="something else than Ray answers"), cluster(f"127.0.0.1:{port}"):
            pass
        thread.join()
        with pytest.raises(TopoRoError, match=r"no Ray cluster answers.*timed out"), cluster(f"127.0.0.1:{port}"):
            pass


@needs_ray
def test_a_machine_without_toporo_can_say_so() -> None:
    """The question travels whole: it needs nothing of toporo where it is asked."""
    from ray import cloudpickle

    code = (
        "import sys; sys.modules['toporo'] = None; from ray import cloudpickle;"
        f"print(cloudpickle.loads({cloudpickle.dumps(seam._about_machine())!r})())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    there = eval(done.stdout)
    assert there.keys() >= {"Python", "numpy", "torch"}
    assert seam._differences("node b", there) == ["node b has no toporo"]


@needs_ray
def test_what_a_machine_reports_is_shown_as_it_is() -> None:
    """Braces in it are no places for other text."""
    node = {"Alive": True, "Resources": {"CPU": 1}, "NodeID": "ab" * 28}
    node |= {"NodeManagerHostname": "b", "NodeManagerAddress": "10.0.0.2"}
    task = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: "answer"))
    ray = SimpleNamespace(
        nodes=lambda: [node],
        remote=lambda **_: lambda _: task,
        wait=lambda asked, **_: (asked, []),
        get=lambda _: fail("braces"),
    )
    with pytest.raises(TopoRoError, match=r"node b .*: cannot read \{path\} \{0\}\. Install there.*toporo==\d"):
        seam._probe(ray)


# ---------------------------------------------------------------- with Ray


@pytest.fixture(params=["serial", "threads", "ray"])
def pool(request: pytest.FixtureRequest) -> Cluster:
    """Each kind of workers."""
    made = {"serial": Cluster, "threads": lambda: Threads(2), "ray": lambda: request.getfixturevalue("two")}
    return made[request.param]()


def test_results_come_in_order(pool: Cluster) -> None:
    table = pool.share((1, 2))
    calls = [(f"job {number}", (number, table)) for number in range(7)]
    expected = [(f"job {number}", number**2 + 3) for number in range(7)]
    assert list(pool.each(square, calls)) == expected
    assert pool.workers >= 1


def test_calls_are_taken_as_there_is_room(pool: Cluster) -> None:
    taken = []

    def calls() -> Iterator[tuple[int, tuple[Any, ...]]]:
        for number in range(20):
            taken.append(number)
            yield number, (number,)

    with closing(pool.each(square, calls(), ahead=3)) as results:
        next(results)
        assert len(taken) == 3
        next(results)
        assert len(taken) == 4


def test_what_a_worker_raises_is_raised_here(pool: Cluster) -> None:
    with pytest.raises(DataError) as dry:
        list(pool.each(fail, [("a", ("data",))]))
    assert str(dry.value) == "the river is dry."
    assert type(dry.value) is DataError
    with pytest.raises(UnknownNameError, match="Did you mean 'erm'"):
        list(pool.each(fail, [("a", ("name",))]))


def test_an_error_on_the_cluster_says_where_it_was_raised(two: Cluster) -> None:
    with pytest.raises(ZeroDivisionError) as zero:
        list(two.each(fail, [("a", ("zero",))]))
    assert "in fail" in zero.value.__notes__[0], "where on the worker it was raised"
    with pytest.raises(TopoRoError, match="Odd: strange"):
        list(two.each(fail, [("a", ("own",))]))


def test_a_full_disk_names_the_machine(two: Cluster) -> None:
    with pytest.raises(TopoRoError, match=rf"disk of node {socket.gethostname()} is full.*kept"):
        list(two.each(fail, [("erm seed 0", ("disk",))]))


def test_what_is_lost_is_done_again_and_not_for_ever(
    two: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seam, "PAUSE", 0.01)
    calls = [(name, (tmp_path / name,)) for name in "ab"]
    assert sorted(two.each(die_at_first, calls)) == [("a", "done"), ("b", "done")]
    with pytest.raises(TopoRoError, match=r"job q was lost 4 times.*fewer jobs at a time"):
        list(two.each(always_die, [("job q", ())]))


def test_calls_under_way_end_with_the_generator(two: Cluster, tmp_path: Path) -> None:
    note = tmp_path / "note"
    with closing(two.each(wait_long, [("a", (None,)), ("b", (note,))])) as results:
        assert next(results) == ("a", None)
        assert until(note.exists)
    assert until(lambda: not alive(int(note.read_text())))
    assert list(two.each(square, [("a", (2,))])) == [("a", 4)]


def test_another_version_on_a_machine_is_an_error_before_the_work(
    two: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = seam._here()
    for changed, words in (
        ({"toporo": "9.9"}, r"node \S+ \(.*\) has toporo \d.*, this machine 9\.9"),
        ({"toporo's sources": "0"}, "has toporo's sources [0-9a-f]+, this machine 0"),
        ({"Python": "3.99"}, r"has Python 3\.\d+, this machine 3\.99"),
        ({"torch": "0.1"}, r"has torch .*, this machine 0\.1"),
    ):
        monkeypatch.setattr(seam, "_here", lambda changed=changed: here | changed)
        with pytest.raises(TopoRoError, match=f"{words}.*Nothing was begun"), cluster("ray"):
            pass


PROGRAM = """
import sys, toporo.cli.running as running
from contextlib import closing
from pathlib import Path
from tests import test_cluster as here
from toporo.cluster import cluster
folder = Path(sys.argv[1])
if __name__ == "__main__":
    with running.terminable(), cluster("ray") as two:
        print(*two.each(here.die_at_first, [("a", (folder / "flag",))]), flush=True)
        with closing(two.each(here.wait_long, [("b", (folder / "note",))])) as waiting:
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
    assert (out, err) == ("('a', 'done')\n" + "terminated\n" * terminated, "")
    assert running.returncode == (0 if terminated else -number)
    assert until(lambda: not alive(int((tmp_path / "note").read_text())))
