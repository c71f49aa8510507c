"""The tables as data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import toporo.paper.vision  # noqa: F401  # it registers how networks on images are fitted
from toporo.data import GroupedData
from toporo.errors import DatasetNotFoundError, SettingError, UnknownNameError
from toporo.objectives import OBJECTIVES
from toporo.paper import BENCHMARKS, load_dataset
from toporo.paper.fits import FITS, LOSSES, PRIORS, method_objective
from toporo.paper.methods import BENCH_METHODS
from toporo.paper.protocols import Protocol
from toporo.training import MLP, Batches, TrainingPlan

EVERY = pytest.mark.parametrize("protocol", [each.protocol for each in BENCHMARKS.values()], ids=list(BENCHMARKS))


@EVERY
def test_a_protocol_speaks_only_of_what_exists(protocol: Protocol) -> None:
    assert protocol.benchmark in BENCHMARKS
    titles, names = zip(*((method.title, method.name) for method in protocol.get_methods()), strict=True)
    assert len(set(titles)) == len(titles)
    assert protocol.model in FITS
    assert protocol.model != "mlp" or protocol.task in LOSSES
    assert protocol.better in ("higher", "lower")
    assert set(names) <= set(BENCH_METHODS)
    assert set(protocol.changes) <= set(names)
    assert set(protocol.average or ()) <= set(names)
    for variant in protocol.variants:
        assert set(variant.paper) <= set(names)
        for figures in variant.paper.values():
            assert set(figures) <= {metric.name for metric in protocol.metrics}


def test_every_network_has_an_objective_and_a_prior_exactly_if_it_takes_one() -> None:
    for method in BENCH_METHODS.values():
        assert method.model in FITS
        own = {kind for benchmark in BENCHMARKS.values() for kind in benchmark.priors}
        assert method.prior is None or method.prior in PRIORS or method.prior in own
        assert (method.objective is not None) == (method.model == "mlp")
        if method.objective is not None:
            assert OBJECTIVES[method.objective].takes_prior == (method.prior is not None)


@EVERY
def test_the_controls_that_any_claim_needs_are_there(protocol: Protocol) -> None:
    """On images there is no given graph: importance weighting has the learned prior."""
    weighted = "iw-erm-data" if BENCHMARKS[protocol.benchmark].networks else "iw-erm"
    wanted = {weighted, "tro-uniform", "tro-lambda0"}
    wanted |= {"tro-shuffled", "linear-tro-uniform", "linear-tro-shuffled"} if protocol.benchmark == "tpt48" else set()
    assert wanted <= {method.name for method in protocol.get_methods() if method.control}


@EVERY
def test_no_tro_setting_makes_the_weights_cycle(protocol: Protocol) -> None:
    for method in protocol.get_methods():
        if method.objective == "tro":
            assert method.settings["step"] * method.settings["penalty"] < 2
        assert method.settings.get("warm_up_share", 0.0) < 1.0, "the run would end within its warm-up"


def test_variants_are_chosen_by_their_names() -> None:
    benchmark = BENCHMARKS["tpt48"]
    protocol = benchmark.protocol
    assert benchmark.get_variants() == benchmark.get_variants("*") == list(protocol.variants)
    assert [one.name for one in benchmark.get_variants("*/season, east-west/sliding")] == [
        "east-west/season", "east-west/sliding", "north-south/season",
    ]  # fmt: skip
    (one,) = benchmark.get_variants("north-south/sliding")
    assert one.options == {"split": "north-south", "window": "sliding"}
    assert protocol.for_variant(one).rounds == one.training["rounds"]
    with pytest.raises(UnknownNameError, match=r"unknown variant of tpt48 'east-west/seasons'.*Did you mean 'east"):
        benchmark.get_variants("east-west/season,east-west/seasons")
    with pytest.raises(SettingError, match=r"dg15 has no variants \(found 'season'\): leave --variant out"):
        BENCHMARKS["dg15"].get_variants("season")


def test_the_papers_figures_stand_beside_the_task_they_are_nearest_to() -> None:
    """Season-aligned test windows are an easier task: there is nothing to compare there."""
    protocol = BENCHMARKS["tpt48"].protocol
    assert protocol.paper("east-west/all-sliding", "tro-data", "hop 3") == 1.392
    assert protocol.paper("east-west/all-sliding", "irm", "hop 1") is None
    assert protocol.paper("east-west/all-sliding", "linear-erm", "all") is None
    for variant in protocol.variants:
        assert bool(variant.paper) == (variant.options["window"] == "all-sliding")
    assert BENCHMARKS["dg60"].protocol.paper("", "tro-data", "test accuracy (%)") == 90.72


def test_unknown_names_list_the_valid_ones() -> None:
    protocol = BENCHMARKS["dg15"].protocol
    with pytest.raises(UnknownNameError, match=r"unknown method 'tro-phys'.*Did you mean 'tro-physical'.*group-dro"):
        protocol.get_methods(["tro-phys"])
    with pytest.raises(UnknownNameError, match=r"unknown method 'linear-erm'"):
        protocol.get_methods(["linear-erm"])
    with pytest.raises(UnknownNameError, match=r"unknown benchmark 'dg16'.*dg15, dg60"):
        BENCHMARKS["dg16"]
    with pytest.raises(SettingError, match="no method named"):
        protocol.get_methods([" "])


@pytest.mark.parametrize(
    ("plan", "steps"), [(TrainingPlan(rounds=20), 40), (TrainingPlan(rounds=2000, unit="steps"), 500)]
)
def test_the_warm_up_of_a_method_is_a_share_of_the_run(plan: TrainingPlan, steps: int) -> None:
    """DG-15's table has 160 steps, of 80 rows a group; those on images have 2,000."""
    data = GroupedData.from_arrays(np.zeros((160, 4)), np.zeros(160, dtype=int), np.repeat(["a", "b"], 80))
    for name in ("irm", "vrex"):
        method = BENCHMARKS["dg15"].protocol.method(name)
        made = method_objective(method, Batches.of(data, per_group=10), None, MLP(4, 2), plan)
        assert made.warm_up == steps
        assert made.penalty == BENCHMARKS["dg15"].protocol.method(name).settings["penalty"]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_no_method_of_a_table_ends_its_run_within_its_warm_up(name: str) -> None:
    for protocol in (BENCHMARKS[name].protocol, *BENCHMARKS[name].others.values()):
        for method in protocol.get_methods():
            assert "warm_up" not in method.settings, "a number of steps, whatever the length of the run"
            assert method.settings.get("warm_up_share", 0.0) < 1.0


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize(
    ("name", "expected", "how"),
    [
        ("terra", "terra_incognita", "DomainBed's download script gets it.*location_100"),
        ("tpt48", r"tpt48/climdiv-tmpcst-v\*", r"Fetch the newest release with: toporo data get tpt48 \(or by hand"),
        ("sen1floods11", r"sen1floods11/v1\.1", "Copy gs://sen1floods11/v1.1"),
    ],
)
def test_real_data_that_are_not_there_come_with_the_way_to_get_them(
    name: str, expected: str, how: str, tmp_path: Path
) -> None:
    with pytest.raises(DatasetNotFoundError, match=rf"{name}: no {expected} in .*/toporo\. {how}"):
        load_dataset(name)
    with pytest.raises(DatasetNotFoundError, match=rf"{name}: no {expected} in {tmp_path}\. {how}"):
        load_dataset(name, tmp_path)
    with pytest.raises(SettingError, match=f"{name} is made of real data and cannot be generated. {how}"):
        load_dataset(name, source="generated")
