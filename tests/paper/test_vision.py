"""Tables on images and radar tiles: what is trained on what, where priors come from, what is stored and resumed."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests.paper.conftest import CHOICES, FLOODS, Found, Table, trainings_of_images
from tests.paper.small_network import SmallNet
from tests.paper.tiny_floods import chip_names, make_chip, write_chip, write_floods
from tests.paper.tiny_images import write_tiny
from toporo.data.grouped import GroupedData
from toporo.data.images import ImageStore, TileStore
from toporo.errors import DataError, SettingError, TopoRoWarning
from toporo.paper import BENCHMARKS, image_fits
from toporo.paper.base import VisionChoices
from toporo.paper.domainbed import SPECS
from toporo.paper.image_fits import standardize
from toporo.paper.protocols import Protocol
from toporo.paper.results import AVERAGE, Results
from toporo.paper.runner import reproduce
from toporo.paper.sen1floods11 import validation_rows
from toporo.paper.vision import settle
from toporo.topology.graph import GroupGraph
from toporo.topology.learn import learn_topology
from toporo.topology.prior import Prior
from toporo.training import FitResult, loop
from toporo.vision import UNet

DOMAINS = SPECS["pacs"].domains
TABLE = ("erm", "group-dro", "coral", "sd", "tro-data", "tro-uniform")
pytestmark = pytest.mark.usefixtures("no_data")


def trained(weights: dict[str, torch.Tensor], network: nn.Module) -> nn.Module:
    """The network with the weights that a training ended with."""
    network.load_state_dict(weights)
    return network.eval()


def pixels(store: ImageStore, rows: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(store.images[rows]).permute(0, 3, 1, 2).float() / 255


def without_time(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "timing"}


def same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


# ---------------------------------------------------------------------- what is trained on what


def test_each_domain_is_tested_in_turn_and_the_others_are_trained_on(pacs: Table) -> None:
    records = pacs.outcome.records
    assert list(dict.fromkeys(record["variant"] for record in records)) == list(DOMAINS)
    # In order of the runs; the topology of TRO-data comes from the stored ERM run and needs no training.
    assert len(pacs.trainings) == len(records) == 4 * 6 * 2
    for record, training in zip(records, pacs.trainings, strict=True):
        assert set(training.rows.groups) == set(DOMAINS) - {record["variant"]}
        store = pacs.outcome.data[record["variant"]].store
        assert isinstance(store, ImageStore)
        assert {store.names[row].split("/")[0] for row in training.rows.x} == set(training.rows.groups)


def test_nothing_of_the_test_domain_gets_into_a_network(pacs: Table, tmp_path: Path) -> None:
    """With noise in its place, networks, priors and the choice of the step are the same, to the last bit."""
    shutil.copytree(pacs.data, tmp_path / "data")
    rng = np.random.default_rng(1)
    for path in sorted((tmp_path / "data/PACS/sketch").glob("*/*")):
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(path)
    chosen: dict[str, Any] = {"methods": ["erm", "tro-data"], "vision": CHOICES, "variant": "sketch"}
    with trainings_of_images() as seen:
        again = reproduce("pacs", tmp_path / "out", seeds=1, data=tmp_path / "data", **chosen)
    for record, training in zip(again.records, seen, strict=True):
        expected, before = pacs.find(record["method"], 0, "sketch")
        assert record["key"] != expected["key"]
        assert same_weights(training.weights, before.weights)
        assert record["prior"] == expected["prior"]
        chosen_by = [[epoch["metrics"]["validation"] for epoch in one["history"]] for one in (record, expected)]
        assert chosen_by[0] == chosen_by[1]


@pytest.mark.parametrize(("changed", "test"), [("Bolivia", "India"), ("India", "India")])
def test_nothing_of_the_test_event_or_of_bolivia_gets_into_a_network(
    floods: Table, tmp_path: Path, changed: str, test: str
) -> None:
    """Its scale, above all: decibels a hundred times as large change nothing but the figures."""
    shutil.copytree(floods.data, tmp_path / "data")
    for chip in chip_names():
        if chip.startswith(changed):
            image, label = make_chip(chip)
            write_chip(tmp_path / "data/sen1floods11/v1.1", chip, 100 * image, label)
    chosen: dict[str, Any] = {"methods": ["tro-data"], "vision": FLOODS, "variant": test}
    with trainings_of_images() as seen:
        again = reproduce("sen1floods11", tmp_path / "out", seeds=1, data=tmp_path / "data", **chosen)
    (record,), (expected, before) = again.records, floods.find("tro-data", 0, test)
    assert record["prior"] == expected["prior"]
    assert same_weights(seen[-1].weights, before.weights)


# ---------------------------------------------------------------------- priors


def test_tro_data_has_the_topology_of_the_erm_network_of_its_seed(pacs: Table) -> None:
    """Computed again, from the ERM network and the images it was trained on."""
    for seed in (0, 1):
        erm, training = pacs.find("erm", seed, "photo")
        record, _ = pacs.find("tro-data", seed, "photo")
        benchmark = pacs.outcome.data["photo"]
        assert isinstance(benchmark.store, ImageStore)
        rows = benchmark.data.select(benchmark.train).split(0.2, seed).train
        network = trained(training.weights, SmallNet(3, channels=3, seed=99))
        with torch.no_grad():
            features = network.features(pixels(benchmark.store, rows.x)).numpy()  # type: ignore[operator]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TopoRoWarning)  # so few images do not settle a prior
            graph = learn_topology(features, rows.ids, seed=seed, **pacs.outcome.protocol.data_topology)
            prior = graph.prior(benchmark.train, measure="betweenness", cautious=True)
        assert record["topology"] == erm["topology"]
        found = GroupGraph.from_json(json.dumps(record["topology"]))
        assert set(found.edges) == set(graph.edges)
        assert [set(draw) for draw in found.bootstrap_edges] == [set(draw) for draw in graph.bootstrap_edges]
        stored = Prior.from_dict(record["prior"])
        assert (stored.saw, stored.fallback_reason) == ((), prior.fallback_reason)
        assert stored.bootstrap_rms == pytest.approx(prior.bootstrap_rms, abs=1e-6)
        assert dict(record["prior"]["weights"]) == pytest.approx(dict(prior.weights), abs=1e-6)


def test_the_prior_is_the_same_whether_or_not_the_erm_run_is_there(pacs: Table, tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"seeds": 1, "data": pacs.data, "vision": CHOICES, "variant": "cartoon"}
    expected = [without_time(pacs.find(method, 0, "cartoon")[0]) for method in TABLE]
    with trainings_of_images():
        alone = reproduce("pacs", tmp_path, methods=["tro-data"], **chosen)
        assert without_time(alone.records[0])["prior"] == expected[4]["prior"]
        with Found(1) as progress:
            later = reproduce("pacs", tmp_path, methods=TABLE, progress=progress, **chosen)
    for record, wanted in zip(map(without_time, later.records), expected, strict=True):
        assert record | {"warnings": []} == wanted | {"warnings": []}, "who learns a topology warns"


# ---------------------------------------------------------------------- figures


def test_accuracies_are_those_of_the_network(pacs: Table) -> None:
    """By hand: the last evaluation is of the network at the end."""
    record, training = pacs.find("coral", 1, "sketch")
    benchmark = pacs.outcome.data["sketch"]
    assert isinstance(benchmark.store, ImageStore)
    network = trained(training.weights, SmallNet(3, channels=3, seed=99))

    def accuracy(rows: GroupedData) -> dict[str, float]:
        found: dict[str, list[bool]] = {}
        with torch.no_grad():
            guesses = network(pixels(benchmark.store, rows.x)).argmax(dim=1).tolist()  # type: ignore[arg-type]
        for name, guess, true in zip(rows.ids.names, guesses, rows.y, strict=True):
            found.setdefault(str(name), []).append(guess == true)
        return {name: float(np.mean(right)) for name, right in found.items()}

    validation = accuracy(benchmark.data.select(benchmark.train).split(0.2, 1).validation)
    test = accuracy(benchmark.data.select(("sketch",)))
    last = {name.removeprefix("averaged_"): value for name, value in record["history"][-1]["metrics"].items()}
    assert dict(last["by_group"]) == pytest.approx(test)
    assert dict(last["validation_by_group"]) == pytest.approx(validation)
    assert last["validation"] == pytest.approx(np.mean(list(validation.values())))
    assert last["test"] == pytest.approx(test["sketch"])


def test_the_iou_is_that_of_the_network_over_all_valid_pixels(floods: Table) -> None:
    record, training = floods.find("erm", 0, "India")
    benchmark = floods.outcome.data["India"]
    store = benchmark.store
    assert isinstance(store, TileStore)
    split = validation_rows(benchmark, 0, 0.2)
    scaled = torch.as_tensor(standardize(store.x, split.train.x))
    network = trained(training.weights, UNet(seed=5))

    def counts(rows: GroupedData) -> tuple[int, int, int, int]:
        with torch.no_grad():
            water = network(scaled[rows.x]).argmax(dim=1).numpy() == 1
        true, valid = store.y[rows.x] == 1, store.y[rows.x] >= 0
        return tuple(int((a & b & valid).sum()) for a in (water, ~water) for b in (true, ~true))  # type: ignore[return-value]

    tp, fp, fn, tn = counts(benchmark.data.select(("India",)))
    last = record["history"][-1]["metrics"]
    assert last["test"] == pytest.approx(tp / (tp + fp + fn))
    assert last["f1"] == pytest.approx(2 * tp / (2 * tp + fp + fn))
    assert last["accuracy"] == pytest.approx((tp + tn) / (tp + fp + fn + tn))
    tp, fp, fn, _ = counts(split.validation)
    assert last["validation"] == pytest.approx(tp / (tp + fp + fn))


# ---------------------------------------------------------------------- choices


def settled(**choices: Any) -> Protocol:
    return settle(BENCHMARKS["pacs"], VisionChoices(device="cpu", **choices))[0].protocol


def test_evaluations_and_averaged_steps_keep_their_share_of_a_run() -> None:
    short, usual = settled(steps=50), settled()
    for protocol in (short, usual):
        assert protocol.method("irm").settings == {"penalty": 1.0, "warm_up_share": 0.25}, "whatever the run"
    assert (short.averaging, short.evaluate_every) == (7, 10)
    assert (usual.averaging, usual.evaluate_every) == (300, 400)
    assert any(note.startswith("50 steps per run") for note in short.notes)
    assert any(note.startswith("2000 steps per run") for note in usual.notes)
    assert any("began at random" in note for note in usual.notes)


@pytest.mark.parametrize("name", ["steps", "per_group"])
def test_a_setting_out_of_range_is_an_error_not_the_default(name: str) -> None:
    with pytest.raises(SettingError, match=name):
        settled(**{name: 0})


# ---------------------------------------------------------------------- stored, resumed


def test_results_say_how_they_came_about(pacs: Table) -> None:
    about = Results.read(pacs.out / "results.json").about
    assert about["hardware"] == ["CPU"]
    assert about["runs"] == len(pacs.outcome.records)
    used = about["settings"]
    assert (used["rounds"], used["averaging"]) == (5, 0)
    assert used["network"] == {"name": "resnet18", "norm": "batch", "precision": "fp32", "weights": "a random start"}
    assert set(used["methods"]) == set(TABLE)
    assert about["data"] == {"size": 16, "source": "file", "rows": 60}
    priors = [dict(pacs.find("tro-data", seed, "photo")[0]["prior"]["weights"]) for seed in (0, 1)]
    assert about["priors"]["photo"] == [pytest.approx(prior, abs=1e-4) for prior in priors]


class Stop(Exception):
    """In the middle of a table."""


def test_a_run_goes_on_from_its_checkpoint(pacs: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted in its third step of five, it does the others and comes out the same."""
    chosen: dict[str, Any] = {"seeds": 1, "methods": ["erm"], "data": pacs.data, "vision": CHOICES, "variant": "photo"}
    evaluated: list[int] = []
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    with trainings_of_images():
        real = image_fits.fit

        def counting(*arguments: Any, evaluate: Callable[..., dict[str, Any]], **more: Any) -> FitResult:
            def stop_at_the_third(network: nn.Module) -> dict[str, Any]:
                evaluated.append(1)
                if len(evaluated) == 5:  # a step's evaluations are of the raw weights and of their mean
                    raise Stop
                return evaluate(network)

            return real(*arguments, evaluate=stop_at_the_third, **more)

        monkeypatch.setattr(image_fits, "fit", counting)
        with pytest.raises(Stop):
            reproduce("pacs", tmp_path, **chosen)
        assert len(list((tmp_path / "runs").glob("*.checkpoint"))) == 1
        outcome = reproduce("pacs", tmp_path, **chosen)
    assert len(evaluated) == 5 + 2 * 3
    assert without_time(outcome.records[0]) == without_time(pacs.find("erm", 0, "photo")[0])
    assert list((tmp_path / "runs").glob("*.checkpoint")) == []


# ---------------------------------------------------------------------- little data


def test_events_that_cannot_be_tested_are_skipped_with_the_reason(floods: Table) -> None:
    assert list(floods.outcome.data) == ["Bolivia", "India", "Mekong"]
    remarks = Results.read(floods.out / "results.json").about["remarks"]
    skipped = {text.split(". ")[0].removeprefix("Not run: "): text for text in remarks if text.startswith("Not run: ")}
    assert "usable tile(s) of the test event 'Ghana', none with water" in skipped["Ghana"]
    assert "0 usable tile(s) of the test event 'Spain'" in skipped["Spain"]
    assert set(floods.outcome.data) | set(skipped) == {v.name for v in BENCHMARKS["sen1floods11"].protocol.variants}
    assert {row.variant for row in floods.outcome.rows} == {"Bolivia", "India", "Mekong", AVERAGE}


def test_few_images_have_as_many_neighbours_as_there_are_others(tmp_path: Path) -> None:
    write_tiny(tmp_path / "data", SPECS["pacs"], per_class=1)
    chosen: dict[str, Any] = {"methods": ["tro-data"], "vision": replace(CHOICES, steps=1), "variant": "photo"}
    with trainings_of_images():
        outcome = reproduce("pacs", tmp_path / "out", seeds=1, data=tmp_path / "data", **chosen)
    graph = GroupGraph.from_json(json.dumps(outcome.records[0]["topology"]))
    assert graph.origin is not None
    assert graph.origin.details["neighbors"] == 3 * 2 - 1


def test_too_few_images_or_tiles_to_validate_on_are_an_error_before_the_first_run(tmp_path: Path) -> None:
    write_tiny(tmp_path / "data", SPECS["pacs"], per_class=1, classes=("cat", "dog"))
    with pytest.raises(DataError, match=r"group 'art_painting' has 2 row\(s\): too few to set 20% aside"):
        reproduce("pacs", tmp_path / "out", data=tmp_path / "data", vision=CHOICES, variant="photo")
    write_floods(tmp_path / "data", counts={"train": 2})
    with pytest.raises(DataError, match=r"group 'Ghana' has 2 row\(s\): too few"):
        reproduce("sen1floods11", tmp_path / "out", data=tmp_path / "data", vision=replace(FLOODS, size=32))
    assert not (tmp_path / "out" / "runs").exists()
