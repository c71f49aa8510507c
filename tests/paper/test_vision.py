"""Tables on images and radar tiles: what is trained on what, where priors come from, what is stored and resumed."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from tests.paper.conftest import CHOICES, FLOODS, Found, Trainings
from tests.paper.small_network import SmallNet
from tests.paper.tiny_floods import chip_names, make_chip, write_chip, write_floods
from tests.paper.tiny_images import write_tiny
from toporo.data.grouped import GroupedData
from toporo.data.images import ImageStore, TileStore
from toporo.errors import DataError, SettingError, TopoRoWarning, UnknownNameError
from toporo.paper import BENCHMARKS, image_fits
from toporo.paper.domainbed import SPECS
from toporo.paper.image_fits import standardize
from toporo.paper.results import AVERAGE, Results
from toporo.paper.runner import reproduce
from toporo.paper.runs import Store
from toporo.paper.sen1floods11 import validation_rows
from toporo.paper.sentences import caption
from toporo.paper.vision import VisionChoices, settle
from toporo.topology.graph import GroupGraph
from toporo.topology.learn import learn_topology
from toporo.topology.prior import Prior
from toporo.training import FitResult, loop
from toporo.vision import NETWORKS, UNet

DOMAINS = SPECS["pacs"].domains
TABLE = ("erm", "group-dro", "coral", "sd", "tro-data", "tro-uniform")


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    """ResNet-18 costs a second a run; nothing here is about it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NETWORKS, "resnet18", partial(SmallNet))
        patch.delenv("TOPORO_DATA", raising=False)
        yield


def record_of(done: Trainings, method: str, seed: int, variant: str) -> dict[str, Any]:
    wanted = (method, seed, variant)
    (one,) = (r for r in done.outcome.records if (r["method"], r["seed"], r["variant"]) == wanted)
    return one


def stored_network(record: dict[str, Any], out: Path, network: nn.Module) -> nn.Module:
    """The network with what was stored of it, and nothing else."""
    tensors = {k: v for k, v in load_file(model_of(record, out)).items() if not k.startswith("sample.")}
    network.load_state_dict(tensors)
    return network.eval()


def pixels(store: ImageStore, rows: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(store.images[rows]).permute(0, 3, 1, 2).float() / 255


def model_of(record: dict[str, Any], out: Path) -> Path:
    """The file with a run's model."""
    return Store(out).path(record["key"], "safetensors")


def without_time(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "timing"}


# ---------------------------------------------------------------------- what is trained on what


def test_each_domain_is_tested_in_turn_and_the_others_are_trained_on(pacs: Trainings) -> None:
    records = pacs.outcome.records
    assert list(dict.fromkeys(record["variant"] for record in records)) == list(DOMAINS)
    # In order of the runs; the topology of TRO-data comes from the stored ERM run and needs no training.
    assert len(pacs.rows) == len(records) == 4 * (6 * 2 + 2)
    for record, rows in zip(records, pacs.rows, strict=True):
        assert set(rows.groups) == set(DOMAINS) - {record["variant"]}
        store = pacs.outcome.data[record["variant"]].store
        assert isinstance(store, ImageStore)
        assert {store.names[row].split("/")[0] for row in rows.x} == set(rows.groups)


def noisy_copy(source: Path, target: Path, domain: str) -> None:
    """The same folder with noise for all images of one domain."""
    shutil.copytree(source, target)
    rng = np.random.default_rng(1)
    for path in (path for path in sorted(target.rglob("*")) if path.is_file() and domain in path.parts):
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(path)


def test_nothing_of_the_test_domain_gets_into_a_network(pacs: Trainings, tmp_path: Path) -> None:
    """With noise in its place, networks, priors and the choice of the step are the same, to the last bit."""
    noisy_copy(pacs.data, tmp_path / "data", "sketch")
    again = reproduce(
        "pacs", tmp_path / "out", seeds=1, methods=["erm", "tro-data"], data=tmp_path / "data", vision=CHOICES,
        variant="sketch",
    )  # fmt: skip
    for record in again.records:
        expected = record_of(pacs, record["method"], 0, "sketch")
        assert record["key"] != expected["key"]
        assert model_of(record, tmp_path / "out").read_bytes() == model_of(expected, pacs.out).read_bytes()
        assert record["prior"] == expected["prior"]
        chosen = [[epoch["metrics"]["validation"] for epoch in one["history"]] for one in (record, expected)]
        assert chosen[0] == chosen[1]


@pytest.mark.parametrize(("changed", "test"), [("Bolivia", "India"), ("India", "India")])
def test_nothing_of_the_test_event_or_of_bolivia_gets_into_a_network(
    flooded: Path, floods: Trainings, tmp_path: Path, changed: str, test: str
) -> None:
    """Its scale, above all: decibels a hundred times as large change nothing but the figures."""
    shutil.copytree(flooded, tmp_path / "data")
    for chip in chip_names():
        if chip.startswith(changed):
            image, label = make_chip(chip)
            write_chip(tmp_path / "data/sen1floods11/v1.1", chip, 100 * image, label)
    again = reproduce(
        "sen1floods11",
        tmp_path / "out",
        seeds=1,
        methods=["tro-data"],
        data=tmp_path / "data",
        vision=FLOODS,
        variant=test,
    )
    (record,), expected = again.records, record_of(floods, "tro-data", 0, test)
    assert record["key"] != expected["key"]
    assert record["prior"] == expected["prior"]
    found, wanted = (load_file(p) for p in (model_of(record, tmp_path / "out"), model_of(expected, floods.out)))
    assert set(found) == set(wanted)
    for name, value in found.items():
        if name != "sample.water":
            assert torch.equal(value, wanted[name]), name


# ---------------------------------------------------------------------- priors


def test_tro_data_has_the_topology_of_the_erm_network_of_its_seed(pacs: Trainings) -> None:
    """Computed again, from the stored ERM network and the images it was trained on."""
    for seed in (0, 1):
        erm = record_of(pacs, "erm", seed, "photo")
        record = record_of(pacs, "tro-data", seed, "photo")
        benchmark = pacs.outcome.data["photo"]
        assert isinstance(benchmark.store, ImageStore)
        rows = benchmark.data.select(benchmark.train).split(0.2, seed).train
        network = stored_network(erm, pacs.out, SmallNet(3, channels=3, seed=99))
        with torch.no_grad():
            features = network.features(pixels(benchmark.store, rows.x)).numpy()  # type: ignore[operator]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TopoRoWarning)  # so few images do not settle a prior
            graph = learn_topology(features, rows.ids, seed=seed, **pacs.outcome.protocol.data_topology)
            prior = graph.prior(benchmark.train, measure="betweenness", cautious=True)
        found = GroupGraph.from_json(json.dumps(record["topology"]))
        assert set(found.edges) == set(graph.edges)
        assert [set(draw) for draw in found.bootstrap_edges] == [set(draw) for draw in graph.bootstrap_edges]
        assert Prior.from_dict(record["prior"]).saw == ()
        assert Prior.from_dict(record["prior"]).bootstrap_rms == pytest.approx(prior.bootstrap_rms, abs=1e-6)
        assert Prior.from_dict(record["prior"]).fallback_reason == prior.fallback_reason
        assert dict(record["prior"]["weights"]) == pytest.approx(dict(prior.weights), abs=1e-6)


def test_the_prior_is_the_same_whether_or_not_the_erm_run_is_there(pacs: Trainings, tmp_path: Path) -> None:
    alone = reproduce(
        "pacs", tmp_path, seeds=1, methods=["tro-data"], data=pacs.data, vision=CHOICES, variant="cartoon"
    )
    expected = record_of(pacs, "tro-data", 0, "cartoon")
    assert without_time(alone.records[0]) == without_time(expected)
    chosen: dict[str, Any] = {"seeds": 1, "data": pacs.data, "vision": CHOICES, "variant": "cartoon"}
    with Found(1) as progress:
        later = reproduce("pacs", tmp_path, methods=TABLE, progress=progress, **chosen)
    assert [without_time(r) for r in later.records] == [
        without_time(record_of(pacs, method, 0, "cartoon")) for method in TABLE
    ]


# ---------------------------------------------------------------------- figures


def test_accuracies_are_those_of_the_stored_network(pacs: Trainings) -> None:
    """By hand: the last evaluation is of the network that was kept."""
    record = record_of(pacs, "coral", 1, "sketch")
    benchmark = pacs.outcome.data["sketch"]
    assert isinstance(benchmark.store, ImageStore)
    network = stored_network(record, pacs.out, SmallNet(3, channels=3, seed=99))

    def accuracy(rows: GroupedData) -> dict[str, float]:
        found: dict[str, list[bool]] = {}
        with torch.no_grad():
            guesses = network(pixels(benchmark.store, rows.x)).argmax(dim=1).tolist()  # type: ignore[arg-type]
        for name, guess, true in zip(rows.ids.names, guesses, rows.y, strict=True):
            found.setdefault(str(name), []).append(guess == true)
        return {name: float(np.mean(right)) for name, right in found.items()}

    validation = accuracy(benchmark.data.select(benchmark.train).split(0.2, 1).validation)
    test = accuracy(benchmark.data.select(("sketch",)))
    last = record["history"][-1]["metrics"]
    assert dict(last["by_group"]) == pytest.approx(test)
    assert dict(last["validation_by_group"]) == pytest.approx(validation)
    assert last["validation"] == pytest.approx(np.mean(list(validation.values())))
    assert last["test"] == pytest.approx(test["sketch"])
    shown = record["samples"]
    with torch.no_grad():
        sure, best = network(pixels(benchmark.store, np.array(shown["rows"]))).softmax(dim=1).max(dim=1)
    assert shown["predicted"] == best.tolist()
    assert shown["confidence"] == pytest.approx(sure.tolist(), abs=1e-4)
    assert shown["true"] == benchmark.data.y[shown["rows"]].tolist()


def test_the_iou_is_that_of_the_stored_network_over_all_valid_pixels(floods: Trainings) -> None:
    record = record_of(floods, "erm", 0, "India")
    benchmark = floods.outcome.data["India"]
    store = benchmark.store
    assert isinstance(store, TileStore)
    split = validation_rows(benchmark, 0, 0.2)
    scaled = torch.as_tensor(standardize(store.x, split.train.x))
    network = stored_network(record, floods.out, UNet(seed=5))

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
    shown = load_file(model_of(record, floods.out))["sample.water"]
    with torch.no_grad():
        expected = network(scaled[record["samples"]["rows"]])
    assert torch.allclose(shown.float(), expected.softmax(dim=1)[:, 1], atol=1e-3)


def test_averages_are_over_the_domains_seed_by_seed(pacs: Trainings) -> None:
    rows = {(row.selection, row.variant, row.method): row for row in pacs.outcome.rows}
    for rule in ("last", "averaged", "validation", "oracle"):
        by_domain, mean = [rows[rule, domain, "erm"].per_seed for domain in DOMAINS], rows[rule, AVERAGE, "erm"]
        assert mean.per_seed == pytest.approx(np.mean(by_domain, axis=0), abs=1e-5)
        assert (mean.sd, mean.paper) == (pytest.approx(np.std(mean.per_seed, ddof=1), abs=1e-5), 85.7)
    assert (len(rows["last", AVERAGE, "irm"].per_seed), rows["last", AVERAGE, "irm"].sd) == (1, None)


# ---------------------------------------------------------------------- choices


def test_another_penalty_is_another_setting_of_tro_alone() -> None:
    settled, _, _ = settle(BENCHMARKS["pacs"], VisionChoices(device="cpu", penalty=20.0), Path())
    usual = BENCHMARKS["pacs"].protocol
    changed = {name for name in usual.methods if settled.method(name) != usual.method(name)}
    assert changed == {"tro-data", "tro-uniform"}
    assert settled.method("tro-data").settings == {"penalty": 20.0, "step": 0.05}, "a step at which the weights settle"


def test_a_short_run_is_told_as_one_and_averaged_from_its_middle() -> None:
    short, _, _ = settle(BENCHMARKS["pacs"], VisionChoices(device="cpu", steps=50), Path())
    usual, _, _ = settle(BENCHMARKS["pacs"], VisionChoices(device="cpu"), Path())
    for protocol in (short, usual):
        assert protocol.method("irm").settings == {"penalty": 1.0, "warm_up_share": 0.25}, "whatever the run"
    assert (short.averaging, usual.averaging) == (25, 300)
    assert any(note.startswith("50 steps per run") for note in short.notes)
    assert any(note.startswith("2000 steps per run") for note in usual.notes)
    assert any("began at random" in note for note in usual.notes)


@pytest.mark.parametrize(("average", "averaging", "headline"), [
    ("none", None, "validation"), (7, 7, "averaged"), ("swad", "swad", "averaged"),
])  # fmt: skip
def test_how_weights_are_averaged_can_be_chosen(average: int | str, averaging: int | str | None, headline: str) -> None:
    protocol, _, _ = settle(BENCHMARKS["pacs"], VisionChoices(device="cpu", steps=50, average=average), Path())
    assert (protocol.averaging, protocol.headline) == (averaging, headline)
    assert ("averaged" in protocol.rules) == (averaging is not None)


def test_swads_window_is_found_by_the_loss_of_the_validation_rows(pacs: Trainings, tmp_path: Path) -> None:
    chosen = replace(CHOICES, average="swad", steps=5, evaluate_every=1)
    outcome = reproduce("pacs", tmp_path, seeds=1, methods=["erm"], data=pacs.data, vision=chosen, variant="photo")
    metrics = [entry["metrics"] for entry in outcome.records[0]["history"]]
    losses = [each["validation_loss"] for each in metrics]
    assert all(0 < loss < 10 for loss in losses)
    begun = [i for i in range(2, 5) if losses[i - 2] == min(losses[i - 2 : i + 1])]
    assert ["averaged_test" in each for each in metrics] == [bool(begun) and i >= begun[0] for i in range(5)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 0), ("evaluate_every", 0), ("per_group", 0), ("penalty", float("nan")), ("average", 2000)],
)
def test_a_setting_out_of_range_is_an_error_not_the_default(name: str, value: float) -> None:
    with pytest.raises(SettingError, match=name):
        settle(BENCHMARKS["pacs"], VisionChoices(device="cpu", **{name: value}), Path())  # type: ignore[arg-type]


# ---------------------------------------------------------------------- stored, resumed


def test_results_say_how_they_came_about(pacs: Trainings) -> None:
    about = Results.read(pacs.out / "results.json").about
    assert about["hardware"] == ["CPU"]
    assert about["runs"] == len(pacs.outcome.records)
    used = about["settings"]
    assert (used["rounds"], used["unit"], used["selection"]) == (5, "steps", "averaged")
    assert used["network"] == {"name": "resnet18", "norm": "batch", "precision": "fp32", "weights": "a random start"}
    assert set(used["methods"]) == {*TABLE, "irm", "tro-data-10"}
    assert about["data"] == {"size": 16, "complete": False, "source": "file", "rows": 60}
    assert about["skipped"] == {}
    priors = [dict(record_of(pacs, "tro-data", seed, "photo")["prior"]["weights"]) for seed in (0, 1)]
    assert about["priors"]["photo"] == [pytest.approx(prior, abs=1e-4) for prior in priors]


class Stop(Exception):
    """In the middle of a table."""


def test_a_run_goes_on_from_its_checkpoint(pacs: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted after step 4 of 5, it does the last one and comes out the same."""
    real = image_fits.fit
    trained: list[int] = []

    def counting(*arguments: Any, evaluate: Callable[..., dict[str, Any]], **more: Any) -> FitResult:
        def stop_at_the_third(network: nn.Module) -> dict[str, Any]:
            trained.append(1)
            if len(trained) == 4:  # the second is of the raw weights and of their mean
                raise Stop
            return evaluate(network)

        return real(*arguments, evaluate=stop_at_the_third, **more)

    monkeypatch.setattr(image_fits, "fit", counting)
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    chosen: dict[str, Any] = {"seeds": 1, "methods": ["erm"], "data": pacs.data, "vision": CHOICES, "variant": "photo"}
    with pytest.raises(Stop):
        reproduce("pacs", tmp_path, **chosen)
    assert len(list((tmp_path / "runs").glob("*.checkpoint"))) == 1
    outcome = reproduce("pacs", tmp_path, **chosen)
    assert len(trained) == 4 + 2
    assert without_time(outcome.records[0]) == without_time(record_of(pacs, "erm", 0, "photo"))
    assert list((tmp_path / "runs").glob("*.checkpoint")) == []


def test_networks_are_made_again_where_they_are_wanted_and_were_not_kept(pacs: Trainings, tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"seeds": 1, "methods": ["erm"], "data": pacs.data, "variant": "photo"}
    without = reproduce("pacs", tmp_path, vision=replace(CHOICES, keep_models=False), **chosen)
    assert load_file(model_of(without.records[0], tmp_path)) == {}
    with Found(0) as progress:
        kept = reproduce("pacs", tmp_path, vision=CHOICES, progress=progress, **chosen)
    assert set(load_file(model_of(kept.records[0], tmp_path))) == {
        "hidden.weight",
        "hidden.bias",
        "fc.weight",
        "fc.bias",
    }
    assert kept.rows == without.rows
    with Found(1) as progress:  # one that was kept serves where none is wanted
        reproduce("pacs", tmp_path, vision=replace(CHOICES, keep_models=False), progress=progress, **chosen)


# ---------------------------------------------------------------------- floods


def test_events_that_cannot_be_tested_are_skipped_with_the_reason(floods: Trainings) -> None:
    assert list(floods.outcome.data) == ["Bolivia", "India", "Mekong"]
    skipped = Results.read(floods.out / "results.json").about["skipped"]
    assert "no water" in skipped["Ghana"]
    assert "no usable tile" in skipped["Spain"]
    assert "name no chip" in skipped["Nigeria"]
    assert set(floods.outcome.data) | set(skipped) == {v.name for v in BENCHMARKS["sen1floods11"].protocol.variants}
    assert {row.variant for row in floods.outcome.rows} == {"Bolivia", "India", "Mekong", AVERAGE}
    spain = [chip for chip in chip_names() if chip.startswith("Spain")]
    dropped = Results.read(floods.out / "results.json").about["data"]["dropped"]
    assert dropped == spain


@pytest.mark.parametrize("per_class", [1, 3])
def test_few_images_have_as_many_neighbours_as_there_are_others(per_class: int, tmp_path: Path) -> None:
    """The command line has no option for neighbours; a topology of so few says little, and the run says that."""
    write_tiny(tmp_path / "data", SPECS["pacs"], per_class=per_class)
    outcome = reproduce(
        "pacs", tmp_path / "out", seeds=1, methods=["erm", "tro-data"], data=tmp_path / "data",
        vision=replace(CHOICES, steps=1), variant="photo",
    )  # fmt: skip
    erm, tro = outcome.records
    trained_on = 3 * (3 * per_class - round(0.2 * 3 * per_class))
    graph = GroupGraph.from_json(json.dumps(tro["topology"]))
    assert graph.origin is not None
    assert graph.origin.details["neighbors"] == min(15, trained_on - 1)
    assert len(graph.components()) == 1
    warned = [text for text in erm["warnings"] if "--set size" in text]
    told = [text for text in tro["warnings"] if "--set size" in text]
    assert warned == told, "who uses a topology says what it is worth"
    assert bool(warned) is (trained_on <= 15)
    if warned:
        assert f"learned from {trained_on} training rows" in warned[0]


def test_too_few_images_or_tiles_to_validate_on_are_an_error_before_the_first_run(tmp_path: Path) -> None:
    write_tiny(tmp_path / "data", SPECS["pacs"], per_class=1, classes=("cat", "dog"))
    with pytest.raises(
        DataError, match=r"too few images .* 20% aside: art_painting \(2\), cartoon \(2\), .*least 3 .*domain: add some"
    ):
        reproduce("pacs", tmp_path / "out", data=tmp_path / "data", vision=CHOICES, variant="photo")
    write_floods(tmp_path / "data", counts={"train": 2})
    with pytest.raises(DataError, match=r"too few tiles .* Ghana \(2\), .*training event: .*tiles with --set size"):
        reproduce("sen1floods11", tmp_path / "out", data=tmp_path / "data", vision=replace(FLOODS, size=32))
    assert not (tmp_path / "out" / "runs").exists()


# ---------------------------------------------------------------------- tables


def test_captions_say_how_much_of_the_data_there_was(pacs: Trainings, floods: Trainings) -> None:
    assert "5 steps; from data files that match no published checksum." in caption(pacs.outcome.parts[0])
    assert floods.outcome.about["remarks"] == floods.outcome.benchmark.remarks(list(floods.outcome.data.values()))


@pytest.mark.parametrize("network", ["unet", "resnet34"])
def test_a_network_of_another_task_or_none_is_refused(network: str) -> None:
    with pytest.raises(UnknownNameError, match=f"network for pacs '{network}'.*resnet18, resnet50"):
        settle(BENCHMARKS["pacs"], VisionChoices(device="cpu", network=network), Path())
