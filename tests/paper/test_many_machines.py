"""Sweeps past one process: claims, a cluster that loses a machine; data frames."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.test_cluster import needs_ray
from toporo import cluster as seam
from toporo import paper
from toporo.errors import DataError, SettingError, TopoRoError
from toporo.paper import BENCHMARKS, runner
from toporo.paper.protocols import Protocol
from toporo.paper.runner import reproduce
from toporo.paper.runs import Run
from toporo.paper.search import search_settings

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
    command = [sys.executable, "-c", HOLD, tmp_path / "out/runs", whole.runs[0].key]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        said: list[str] = []
        ended: list[str] = []

        def progress(done: int, total: int, run: Run | None) -> None:
            ended.append(str(run))
            if str(run) == "sd seed 0":  # the other run, done meanwhile
                threading.Timer(0.5, other.kill).start()

        try:
            reproduce("dg15", tmp_path / "out", seeds=1, methods=["erm", "sd"], progress=progress, say=said.append)
        finally:
            other.kill()
    assert ended == ["None", "sd seed 0", "erm seed 0"]
    assert len(said) == 1
    assert "1 run under way in another process" in said[0]
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
    runs = [ran.get(timeout=60) for _ in range(1 + len(whole.runs))]
    assert ran.empty()
    assert sorted(runs) == sorted(["ready", *(str(run) for run in whole.runs)])
    assert table(tmp_path / "out") == table(tmp_path / "whole")


# ---------------------------------------------------------------- a cluster


@needs_ray
def test_a_cluster_that_is_not_there_leaves_no_trace(
    toporo: Callable[..., Any], small: Protocol, tmp_path: Path
) -> None:
    done = toporo("reproduce", "dg15", "--methods", "erm", "--engine", "127.0.0.1:9", "--out", "out")
    assert done.code == 1
    assert "no Ray cluster answers at 127.0.0.1:9 (" in done.err
    assert not (tmp_path / "out").exists()
    assert "expected local, ray, or the address" in toporo("reproduce", "dg15", "--engine", "cloud").err


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    """Two machines, as far as Ray knows: the first has the driver, the second is there to be killed.

    They are connected to once, so that workers, which load torch, serve several tests.
    """
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra ray")
    seam._ray()
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=node)
    made.add_node(**{name: value for name, value in node.items() if name != "include_dashboard"})
    try:
        with seam.cluster(made.address):
            yield made
    finally:
        made.shutdown()


@pytest.mark.slow
def test_a_full_disk_leaves_the_store_as_it_was(
    small: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_nodes: Any
) -> None:
    """And the same command goes on once there is room."""
    if not Path("/dev/full").exists():
        pytest.skip("the system has no /dev/full")
    reproduce("dg15", tmp_path / "out", seeds=1, methods=["erm"])
    before = {path.name: path.read_bytes() for path in (tmp_path / "out/runs").iterdir()}
    scratch = runner._do_in_scratch
    monkeypatch.setattr(runner, "_do_in_scratch", write_to_full_disk)
    with pytest.raises(TopoRoError, match=r"the disk of node .* is full .*ran: sd seed 0.*run it again to go on"):
        reproduce("dg15", tmp_path / "out", seeds=1, methods=["erm", "sd"], engine=two_nodes.address)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out/runs").iterdir()} == before
    monkeypatch.setattr(runner, "_do_in_scratch", scratch)
    assert reproduce("dg15", tmp_path / "out", seeds=1, methods=["erm", "sd"], engine=two_nodes.address).resumed == 1


def write_to_full_disk(*_: Any) -> None:
    with open("/dev/full", "wb") as stream:  # noqa: PTH123
        stream.write(b"model")


@pytest.mark.slow
def test_another_version_leaves_no_trace(
    small: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_nodes: Any
) -> None:
    here = seam._here()
    monkeypatch.setattr(seam, "_here", lambda: here | {"toporo": "9.9"})
    with pytest.raises(TopoRoError, match=r"has toporo .*, this machine 9\.9; .*this machine 9\.9\. Install") as error:
        reproduce("dg15", tmp_path / "out", seeds=1, methods=["erm"], engine=two_nodes.address)
    assert str(error.value).count("node ") >= 2, "both machines are named"
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_search_on_a_cluster_finds_the_same(no_data: None, tmp_path: Path, two_nodes: Any, monkeypatch: Any) -> None:
    protocol = replace(BENCHMARKS["dg15"].protocol, rounds=2)
    monkeypatch.setattr(BENCHMARKS["dg15"], "protocol", protocol)
    for name, engine in (("local", "local"), ("ray", two_nodes.address)):
        search_settings("dg15", tmp_path / name, seeds=1, methods=["erm"], engine=engine)
    assert (tmp_path / "ray/search.json").read_bytes() == (tmp_path / "local/search.json").read_bytes()


@pytest.mark.slow
def test_a_sweep_that_loses_a_machine_gives_the_same_bytes(no_data: None, tmp_path: Path, two_nodes: Any) -> None:
    """One of two is killed while it has runs under way. The last test on this cluster."""
    whole = reproduce("dg15", tmp_path / "whole", seeds=2, methods=METHODS)
    victim = two_nodes.list_all_nodes()[-1]
    ended: list[str] = []

    def progress(done: int, total: int, run: Run | None) -> None:
        ended.append(str(run))
        if len(ended) == 2:  # one run has ended, others are under way
            two_nodes.remove_node(victim, allow_graceful=False)

    outcome = reproduce(
        "dg15", tmp_path / "out", seeds=2, methods=METHODS, engine=two_nodes.address, workers=4, progress=progress
    )
    assert sorted(ended[1:]) == sorted(str(run) for run in whole.runs), "each is stored once"
    assert outcome.records == whole.records
    assert table(tmp_path / "out") == table(tmp_path / "whole")
    assert not list((tmp_path / "out/runs").glob("*.checkpoint"))


# ---------------------------------------------------------------- as a data frame


def test_records_as_a_data_frame(small: Protocol, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="needs the extra frames")
    outcome = reproduce("dg15", tmp_path, seeds=2, methods=["erm", "tro-physical"])
    frame = paper.load(tmp_path)
    assert list(frame.columns[: len(paper.frame.COLUMNS)]) == list(paper.frame.COLUMNS)
    assert len(frame) == sum(len(record["history"]) for record in outcome.records)
    last = frame[frame["last"]].set_index(["method", "seed"])
    for record in outcome.records:
        assert last.loc[(record["method"], record["seed"]), "test"] == record["history"][-1]["metrics"]["test"]
    assert last["settings/penalty"].isna().tolist() == [True, True, False, False]
    assert any(name.startswith("by_group/") for name in frame.columns)
    assert frame.equals(paper.load(str(tmp_path)))


def test_records_that_cannot_be_read_are_an_error(
    small: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas", reason="needs the extra frames")
    with pytest.raises(DataError, match=r"no runs in .*give the folder that `toporo reproduce` was given"):
        paper.load(tmp_path)
    reproduce("dg15", tmp_path, seeds=1, methods=["erm"])
    (path,) = (tmp_path / "runs").glob("*.json")
    whole = path.read_text()
    for damaged in (whole[:100], json.dumps({**json.loads(whole), "seed": 1}), "[]"):
        path.write_text(damaged)
        with pytest.raises(DataError, match=rf"{path.name}.*Run `toporo reproduce` again"):
            paper.load(tmp_path)
        assert path.read_text() == damaged, "reading changes nothing"
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SettingError, match=r"pip install 'toporo\[frames\]'"):
        paper.load(tmp_path)
