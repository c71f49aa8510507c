"""Tables end to end: the same figures however often they are interrupted."""

from __future__ import annotations

import json
import math
import multiprocessing
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.paper.conftest import Found
from toporo.errors import DataError, DatasetNotFoundError, DivergedError, SettingError, TopoRoWarning, UnknownNameError
from toporo.paper import BENCHMARKS, fits, runner
from toporo.paper.protocols import Protocol
from toporo.paper.report import write_report
from toporo.paper.results import Results, make_rows
from toporo.paper.runner import reproduce
from toporo.paper.runs import Store
from toporo.training import Batches, loop


def test_every_method_runs_once_and_every_row_says_what_it_saw(
    small: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = reproduce("dg15", tmp_path, seeds=2)
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert len(rows) == 3 * len(small.methods)
    saw = {(row["method"], row["selection"]): row["saw"] for row in rows}
    assert saw["erm", "last"] == []
    assert saw["erm", "oracle"] == ["test labels"]
    assert saw["tro-physical", "validation"] == ["test adjacency"]
    assert saw["tro-data", "last"] == []
    assert saw["tro-data-inputs", "last"] == ["test inputs"]
    assert saw["tro-uniform", "last"] == []
    mean = {(row["method"], row["selection"]): row["mean"] for row in rows}
    for row in rows:
        assert row["mean"] == pytest.approx(np.mean(row["per_seed"]))
        assert row["sd"] == pytest.approx(np.std(row["per_seed"], ddof=1), abs=1e-6)
        assert row["mean"] <= mean[row["method"], "oracle"]
        assert row["source"] == "generated"
        assert row["paper"] == small.paper("", row["method"], row["metric"])
    assert [row.__dict__ for row in Results.read(tmp_path / "results.json").rows] == rows
    assert make_rows(outcome.protocol, outcome.records[::-1]) == outcome.rows
    before = (tmp_path / "results.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(fits, "fit", lambda *a, **k: pytest.fail("trained again"))
        with Found(len(outcome.records)) as progress:
            reproduce("dg15", tmp_path, seeds=2, progress=progress)
    assert (tmp_path / "results.json").read_bytes() == before
    model = Store(tmp_path).path(outcome.records[0]["key"], "safetensors")
    model.unlink()
    with Found(len(outcome.records) - 1) as progress:
        reproduce("dg15", tmp_path, seeds=2, progress=progress)
    assert model.is_file(), "a lost model is trained again"


@pytest.mark.slow
def test_parallel_and_serial_runs_give_the_same_bytes(small: Protocol, tmp_path: Path) -> None:
    """And torch keeps its threads in this process."""
    methods, before = ["erm", "tro-physical"], torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        serial = reproduce("dg15", tmp_path / "one", seeds=1, methods=methods, workers=1)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    parallel = reproduce("dg15", tmp_path / "two", seeds=1, methods=methods, workers=2)
    assert serial.records == parallel.records
    assert (tmp_path / "one/results.json").read_bytes() == (tmp_path / "two/results.json").read_bytes()


@pytest.mark.parametrize("method", ["tro-physical", "tro-data"])
def test_a_run_stopped_inside_a_phase_resumes_to_the_same_record(
    method: str, no_data: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between two checkpoints, in the feature phase or the main one, it ends as if nothing had happened."""
    protocol = replace(BENCHMARKS["dg15"].protocol, rounds=60)
    monkeypatch.setattr(BENCHMARKS["dg15"], "protocol", protocol)
    whole = reproduce("dg15", tmp_path / "whole", seeds=1, methods=[method])
    draw, calls = Batches.draw, iter(range(1000))

    def failing(*args: object, **kwargs: object) -> object:  # once an epoch
        if next(calls) == 40:
            raise KeyboardInterrupt
        return draw(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Batches, "draw", failing)
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        reproduce("dg15", tmp_path / "broken", seeds=1, methods=[method])
    assert list((tmp_path / "broken/runs").glob("*.checkpoint")), "nothing was left to resume from"
    resumed = reproduce("dg15", tmp_path / "broken", seeds=1, methods=[method])
    phases = 2 if method == "tro-data" else 1
    assert next(calls) == 41 + phases * 60 - 40, "it did not go on from the checkpoint after epoch 40"
    assert resumed.records == whole.records
    assert not list((tmp_path / "broken/runs").glob("*.checkpoint"))


def test_a_run_that_diverges_is_an_error_that_names_it_also_the_second_time(
    small: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BENCHMARKS["dg15"], "protocol", replace(small, learning_rate=1e30))
    for _ in range(2):
        with pytest.raises(DivergedError, match="erm seed 0: the training loss became"):
            reproduce("dg15", tmp_path, seeds=1, methods=["erm"])
    assert not (tmp_path / "results.json").exists()


# ---------------------------------------------------------------- stored files are checked


def edited(content: bytes) -> bytes:
    """Set the accuracy after every epoch to 1."""
    record = json.loads(content)
    for entry in record["history"]:
        entry["metrics"]["test"] = 1.0
    return json.dumps(record).encode()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "noise": lambda content: b"\xff" * 100,
    "flipped": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
}


@pytest.mark.parametrize(
    ("which", "how"),
    [("json", how) for how in (*DAMAGE.values(), edited)] + [("safetensors", how) for how in DAMAGE.values()],
    ids=[f"record {name}" for name in (*DAMAGE, "edited")] + [f"model {name}" for name in DAMAGE],
)
def test_a_damaged_run_is_repeated(which: str, how: Callable[[bytes], bytes], small: Protocol, tmp_path: Path) -> None:
    first = reproduce("dg15", tmp_path, seeds=1, methods=["erm"])
    results = (tmp_path / "results.json").read_bytes()
    path = Store(tmp_path).path(first.records[0]["key"], which)
    path.write_bytes(how(path.read_bytes()))
    with pytest.warns(TopoRoWarning, match=rf"{re.escape(path.name)} .* run is repeated"):
        again = reproduce("dg15", tmp_path, seeds=1, methods=["erm"])
    assert again.records == first.records
    assert (tmp_path / "results.json").read_bytes() == results
    with Found(1) as progress:
        reproduce("dg15", tmp_path, seeds=1, methods=["erm"], progress=progress)


def test_a_damaged_checkpoint_is_an_error_that_says_what_to_do(
    small: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", lambda *a, **k: pytest.fail("as if it was killed before it could store the run"))
        with pytest.raises(pytest.fail.Exception):
            reproduce("dg15", tmp_path, seeds=1, methods=["tro-physical"])
    (path,) = (tmp_path / "runs").glob("*.checkpoint")
    path.write_bytes(DAMAGE["flipped"](path.read_bytes()))
    with pytest.raises(DataError, match=r"main\.checkpoint is damaged.*Delete it to start over"):
        reproduce("dg15", tmp_path, seeds=1, methods=["tro-physical"])


def test_a_model_that_is_damaged_before_the_report_is_an_error(small: Protocol, tmp_path: Path) -> None:
    outcome = reproduce("dg15", tmp_path, seeds=1, methods=["erm"])
    Store(tmp_path).path(outcome.records[0]["key"], "safetensors").write_bytes(b"")
    with pytest.raises(DataError, match=r"has no model of erm-s0-.*: run it again"):
        write_report(outcome, tmp_path)


# ---------------------------------------------------------------- processes


@pytest.mark.slow
def test_runs_of_a_worker_that_is_killed_are_done_by_others(
    small: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system does where memory runs out."""
    whole = reproduce("dg15", tmp_path / "whole", seeds=1, methods=["erm", "sd"])
    real = runner.do_run

    def kill_helpers(*given: Any) -> Any:
        for helper in multiprocessing.active_children():
            helper.kill()
        return real(*given)

    monkeypatch.setattr(runner, "do_run", kill_helpers)
    done = reproduce("dg15", tmp_path / "out", seeds=1, methods=["erm", "sd"], workers=3)
    assert done.records == whole.records
    assert not multiprocessing.active_children()


# ---------------------------------------------------------------- requests


def test_bad_requests_are_refused_before_anything_is_written(small: Protocol, tmp_path: Path) -> None:
    target = tmp_path / "out"
    with pytest.raises(UnknownNameError, match="unknown method"):
        reproduce("dg15", target, methods=["nope"])
    with pytest.raises(UnknownNameError, match="unknown source"):
        reproduce("dg15", target, source="somewhere")
    with pytest.raises(SettingError, match="seeds is 0"):
        reproduce("dg15", target, seeds=0)
    with pytest.raises(DatasetNotFoundError, match="no such data folder"):
        reproduce("dg15", target, data=tmp_path / "absent")
    assert not target.exists()
    (tmp_path / "file").write_text("kept")
    with pytest.raises(DataError, match="is a file"):
        reproduce("dg15", tmp_path / "file", methods=["erm"])
    assert (tmp_path / "file").read_text() == "kept"


def test_published_dg15_reaches_the_papers_figure_under_the_fixed_protocol(real_data: Path, tmp_path: Path) -> None:
    """The paper's claim, with aligned priors: TRO-physical at least 67.6 at the last epoch and 8 points above ERM."""
    outcome = reproduce("dg15", tmp_path, seeds=3, methods=["erm", "tro-physical"], data=real_data)
    last = {row.method: row for row in outcome.rows if row.selection == "last"}
    assert last["tro-physical"].source == "published"
    assert last["tro-physical"].mean >= 67.6
    assert last["tro-physical"].mean - last["erm"].mean >= 8.0
    assert math.isclose(last["tro-physical"].paper or 0, 67.56)


def test_a_method_can_be_added_without_repeating_the_others(small: Protocol, tmp_path: Path) -> None:
    first = reproduce("dg15", tmp_path, seeds=2, methods=["erm", "tro-physical"])
    with Found(4) as progress:
        second = reproduce("dg15", tmp_path, seeds=2, methods=["erm", "tro-physical", "sd"], progress=progress)
    assert [row for row in second.rows if row.method != "sd"] == first.rows
    with Found(0) as progress, pytest.MonkeyPatch.context() as patch:
        patch.setattr(BENCHMARKS["dg15"], "protocol", replace(small, learning_rate=0.5))
        reproduce("dg15", tmp_path, seeds=1, methods=["sd"], progress=progress)
