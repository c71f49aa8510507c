"""Keys of runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from toporo.objectives import OBJECTIVES
from toporo.paper import BENCHMARKS, runs
from toporo.paper.methods import BENCH_METHODS
from toporo.paper.runs import Run

RUN = Run(BENCHMARKS["dg15"].protocol, BENCH_METHODS["tro-physical"], 0, "data")


def test_a_key_changes_with_whatever_decides_the_outcome() -> None:
    others = [
        replace(RUN, seed=1),
        replace(RUN, fingerprint="other data"),
        replace(RUN, fold=1),
        replace(RUN, variant="other"),
        replace(RUN, protocol=replace(RUN.protocol, rounds=21)),
        replace(RUN, protocol=replace(RUN.protocol, priors={"normalization": "sum"})),
        replace(RUN, protocol=replace(RUN.protocol, code_version=2)),
        replace(RUN, method=replace(RUN.method, settings={"penalty": 10.0, "step": 0.01})),
        replace(RUN, method=replace(RUN.method, prior="uniform")),
    ]
    assert len({RUN.key, *(other.key for other in others)}) == 1 + len(others)


def test_a_key_changes_with_versions_of_the_code_but_not_with_texts_or_source_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user who edits a method must not see its old figures; one who edits a label need not repeat all runs."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
        texts = replace(RUN.protocol, variants=(), title="other", notes=("new",))
        assert replace(RUN, protocol=texts).key == RUN.key
    with monkeypatch.context() as patch:
        patch.setattr(OBJECTIVES["tro"], "code_version", 2)
        assert replace(RUN).key != RUN.key
    with monkeypatch.context() as patch:
        patch.setattr(runs, "CODE_VERSION", runs.CODE_VERSION + 1)
        assert replace(RUN).key != RUN.key
    assert replace(RUN).key == RUN.key


def test_keys_of_stored_runs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is stored in somebody's folder is found there by another version of toporo with the same results."""
    monkeypatch.setattr(runs, "version", lambda name: "2.0")
    keys = [
        Run(protocol.for_variant(protocol.variants[0]), protocol.method("tro-data"), 1, "data", fold=2).key
        for protocol in (BENCHMARKS[name].protocol for name in ("dg15", "tpt48", "pacs"))
    ]
    assert keys == ["tro-data-s1-d77fc5bc11a6", "tro-data-s1-2646bbd826f2", "tro-data-s1-d3074d7e34aa"]
