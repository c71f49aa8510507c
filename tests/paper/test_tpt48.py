"""TPT-48 end to end on a made-up file: every method, both splits, all samplings; errors checked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.paper.conftest import shrink_tpt48
from tests.paper.fake_nclimdiv import write_fake
from toporo.paper.configuration import PRIORS
from toporo.paper.nclimdiv import read_temperatures
from toporo.paper.results import Results, Row
from toporo.paper.runner import reproduce
from toporo.paper.tpt48 import SPLITS, WINDOWS, hop_classes
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior

FILE = "tpt48/climdiv-tmpcst-v1.0.0-20200106"
METRICS = ("hop 1", "hop 2", "hop 3", "all")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    write_fake(root / FILE)
    return root


@pytest.fixture(scope="module")
def outcome(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    """One run of everything, for the tests that only look."""
    out = tmp_path_factory.mktemp("tpt48")
    with pytest.MonkeyPatch.context() as patch:
        shrink_tpt48(patch)
        return reproduce("tpt48", out, seeds=2, data=folder), out


def by_key(rows: list[Row]) -> dict[tuple[str, str, str, str], Row]:
    return {(row.variant, row.method, row.metric, row.selection): row for row in rows}


def first(part: Results, method: str) -> dict[str, Any]:
    return next(record for record in part.records if record["method"] == method)


def test_all_is_the_mean_over_states_and_hops_are_the_means_of_their_states(outcome: tuple[Results, Path]) -> None:
    found = outcome[0]
    rows = by_key(found.rows)
    for part in found.parts:
        hops = hop_classes(SPLITS[part.variant.options["split"]])
        for method in ("persistence", "erm", "linear-tro-physical"):
            errors = first(part, method)["history"][-1]["metrics"]["by_group"]
            assert set(errors) == set(hops)
            for metric in METRICS:
                chosen = [errors[s] for s in hops if metric == "all" or hops[s] == int(metric.removeprefix("hop "))]
                value = rows[part.variant.name, method, metric, "last"].per_seed[0]
                assert value == pytest.approx(np.mean(chosen), abs=1e-6)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("split", SPLITS)
def test_persistence_and_climatology_as_computed_from_the_file(
    split: str, window: str, outcome: tuple[Results, Path], folder: Path
) -> None:
    """The last month repeated, and the training states' mean of the same months, in units of their months."""
    temperatures = {state: years.ravel() for state, years in read_temperatures(folder / FILE).items()}
    train, test = SPLITS[split].train, SPLITS[split].test
    scale = np.stack([temperatures[state] for state in train]).std()
    starts = range(0, 133, WINDOWS[window][1])
    last, mean = dict.fromkeys(test, 0.0), dict.fromkeys(test, 0.0)
    for start in starts:
        same = range(start % 12, 133, 12)  # windows that start in the same month
        usual = np.mean([temperatures[state][at + 6 : at + 12] for state in train for at in same], axis=0)
        for state in test:
            given, later = temperatures[state][start + 5], temperatures[state][start + 6 : start + 12]
            last[state] += (((later - given) / scale) ** 2).sum() / len(starts)
            mean[state] += (((later - usual) / scale) ** 2).sum() / len(starts)
    part = next(part for part in outcome[0].parts if part.variant.name == f"{split}/{window}")
    for method, expected in (("persistence", last), ("climatology", mean)):
        found = first(part, method)["history"][-1]["metrics"]
        assert found["by_group"] == pytest.approx(expected, rel=1e-9)
        assert found["test"] == pytest.approx(np.mean(list(expected.values())), rel=1e-9)


def test_priors_are_what_their_methods_claim(outcome: tuple[Results, Path]) -> None:
    for part in outcome[0].parts:
        graph, train, test = part.loaded.graph, part.loaded.train, part.loaded.test
        physical = graph.prior(train, test, measure="betweenness", normalization="sum")
        for method in ("iw-erm", "tro-physical", "linear-iw-erm", "linear-tro-physical"):
            assert Prior.from_dict(first(part, method)["prior"]) == physical
        for method in ("tro-shuffled", "linear-tro-shuffled"):
            records = [record for record in part.records if record["method"] == method]
            for seed, record in enumerate(records):
                assert Prior.from_dict(record["prior"]) == physical.shuffled(seed)
        for method in ("tro-data", "linear-tro-data"):
            learned = GroupGraph.from_json(json.dumps(first(part, method)["topology"]))
            assert set(learned.names) == set(train)


def test_a_choice_is_stored(outcome: tuple[Results, Path]) -> None:
    for part in outcome[0].parts:
        for method in ("linear-chosen", "linear-chosen-id"):
            choice = first(part, method)["choice"]
            assert choice["measure"] in PRIORS
            assert choice["penalty"] in ("inf", 1.0)
        assert first(part, "linear-erm")["choice"] is None
