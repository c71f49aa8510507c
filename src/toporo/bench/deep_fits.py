"""How networks for images and for radar tiles are fitted and measured."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toporo.bench.assignment import Assignment, Fitted
from toporo.bench.base import Benchmark
from toporo.bench.methods import METHODS, Method
from toporo.bench.sen1floods11 import validation_rows
from toporo.bench.tile_scaling import apply_scaling, fit_scaling
from toporo.data.grouped import GroupedData, Split, group_rng
from toporo.data.stores import ImageStore, TileStore
from toporo.errors import DataError, warn
from toporo.files import write_text
from toporo.groups import Groups
from toporo.models import make_network, read_weights
from toporo.models.weights import Weights
from toporo.objectives import OBJECTIVES, Objective, make_objective
from toporo.topology.graph import GroupGraph
from toporo.topology.learn import learn_topology
from toporo.topology.prior import Prior
from toporo.training.images import (
    DRAWS,
    DRAWS_TILES,
    Counts,
    accuracy,
    augment,
    count_pixels,
    f1,
    flip_rotate,
    iou,
    pixel_loss,
    unit_range,
)
from toporo.training.steps import Prepare, Resident, StepSettings, Trained, outputs_at, train_steps

Rows = npt.NDArray[np.int64]
#: Rows of a group whose features the topology is learned from.
POINTS = 500
#: Rows nearest to a row that it is joined to, where there are as many.
NEIGHBORS = 15
#: Test rows whose predictions are kept for the report.
SHOWN_IMAGES, SHOWN_TILES = 8, 3


@dataclass(frozen=True)
class Kit:
    """What images and tiles differ in, for one split of one benchmark."""

    data: Resident
    split: Split
    network: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    prepare: Prepare
    draws: int
    plain: Callable[[Tensor], Tensor]
    evaluate: Callable[[nn.Module], dict[str, Any]]
    samples: Callable[[nn.Module], tuple[dict[str, Any], dict[str, Tensor]]]


def fit_images(given: Assignment) -> Fitted:
    """A residual network on photographs, drawings, …"""
    store = given.benchmark.store
    if not isinstance(store, ImageStore):
        raise DataError(f"{given.benchmark.name} has no images: load it with toporo.load_dataset.")
    data = _resident_images(given.benchmark, store.digest, given.runtime.device)
    split = given.train.split(given.protocol.validation, given.seed)
    settings = _settings(given)
    weights = _weights(given)

    def guesses(network: nn.Module, rows: Rows) -> Tensor:
        found = outputs_at(network, data, rows, settings, prepare=_pixels)
        return torch.cat([logits for _, logits in found])

    def evaluate(network: nn.Module) -> dict[str, Any]:
        rows = np.concatenate([split.validation.x, given.test.x])
        right = (
            (guesses(network, rows).argmax(dim=1) == data.y[torch.as_tensor(rows, device=data.y.device)]).cpu().numpy()
        )
        held_out = _mean_by_group(right[: len(split.validation)], split.validation)
        test = _mean_by_group(right[len(split.validation) :], given.test)
        return {
            "validation": float(np.mean(list(held_out.values()))),
            "test": float(np.mean(list(test.values()))),
            "by_group": test,
            "validation_by_group": held_out,
        }

    def samples(network: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
        rows = group_rng("samples", 0).permutation(given.test.x)[:SHOWN_IMAGES]
        sure, best = guesses(network, rows).softmax(dim=1).max(dim=1)
        return {
            "rows": rows.tolist(),
            "true": given.benchmark.data.y[rows].tolist(),
            "predicted": best.tolist(),
            "confidence": [round(c, 4) for c in sure.tolist()],
        }, {}

    outputs = len(store.classes)
    return _fit(
        given,
        Kit(
            data,
            split,
            lambda: make_network(outputs=outputs, channels=3, weights=weights, seed=given.seed, **_architecture(given)),
            functools.partial(F.cross_entropy, reduction="none"),
            _augmented,
            DRAWS,
            _pixels,
            evaluate,
            samples,
        ),
        settings,
    )


def fit_segmentation(given: Assignment) -> Fitted:
    """A network that tells water from land in every pixel of a radar tile."""
    store = given.benchmark.store
    if not isinstance(store, TileStore):
        raise DataError(f"{given.benchmark.name} has no tiles: load it with toporo.load_dataset.")
    split = validation_rows(given.benchmark, given.seed, given.protocol.validation)
    used = np.concatenate([split.train.x, split.validation.x, given.test.x])
    place = np.zeros(len(store), dtype=np.int64)
    place[used] = np.arange(len(used))  # only what is used goes to the device
    scaled = apply_scaling(store.x[used], fit_scaling(store, split.train.x))
    device = given.runtime.device
    data = Resident(torch.as_tensor(scaled, dtype=torch.float32).to(device), torch.as_tensor(store.y[used]).to(device))
    split = Split(_replaced(split.train, place), _replaced(split.validation, place))
    test = _replaced(given.test, place)
    settings = _settings(given)
    weights = _weights(given)

    def counts(network: nn.Module, rows: GroupedData) -> Counts:
        codes = torch.zeros(len(used), dtype=torch.long)
        codes[torch.as_tensor(rows.x)] = torch.as_tensor(rows.codes)
        codes = codes.to(device)
        total = Counts.zero(len(rows.groups), device)
        for part, logits in outputs_at(network, data, rows.x, settings, prepare=_same, batch=64):
            total += count_pixels(logits.argmax(dim=1), data.y[part], codes[part], len(rows.groups))
        return total

    def evaluate(network: nn.Module) -> dict[str, Any]:
        held_out, found = counts(network, split.validation), counts(network, test)
        pooled = found.pooled()
        return {
            # Nothing to find and nothing found is no mistake.
            "validation": 1.0 if (validation := _number(iou(held_out.pooled()))) is None else validation,
            "test": _number(iou(pooled)),
            "f1": _number(f1(pooled)),
            "accuracy": _number(accuracy(pooled)),
            "by_group": _named(test, iou(found)),
            "validation_by_group": _named(split.validation, iou(held_out)),
        }

    def samples(network: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
        water = (store.y[given.test.x] == 1).mean(axis=(1, 2))
        rows = given.test.x[np.argsort(np.abs(water - 0.5), kind="stable")[:SHOWN_TILES]]
        found = outputs_at(network, data, place[rows], settings, prepare=_same, batch=64)
        probability = torch.cat([logits.softmax(dim=1)[:, 1] for _, logits in found])
        return {"rows": rows.tolist()}, {"sample.water": probability.to(torch.float16).cpu()}

    return _fit(
        given,
        Kit(
            data,
            split,
            lambda: make_network(
                outputs=2, channels=store.x.shape[1], weights=weights, seed=given.seed, **_architecture(given)
            ),
            pixel_loss,
            _turned,
            DRAWS_TILES,
            _same,
            evaluate,
            samples,
        ),
        settings,
    )


def _fit(given: Assignment, kit: Kit, settings: StepSettings) -> Fitted:
    shared = given.shared("topology.json")

    def learned(network: nn.Module) -> GroupGraph:
        graph = _learn(kit, network, given, settings)
        write_text(shared, graph.to_json())
        return graph

    def learn(**_: Any) -> GroupGraph:
        if shared.is_file():
            return GroupGraph.from_json(shared.read_text(encoding="utf-8"))
        network, _trained_by_erm = _trained(kit, settings, METHODS["erm"], None, given.checkpoint("features"))
        return learned(network)

    prior, graph = given.prior(kit.split.train, learn)
    network, trained = _trained(kit, settings, given.method, prior, given.checkpoint("main"))
    if given.method.name == "erm":
        learned(network)
    samples, tensors = kit.samples(network)
    if given.runtime.keep_models:
        tensors |= {key: value.detach().cpu() for key, value in network.state_dict().items()}
    timing = {
        "seconds": round(trained.seconds, 3),
        "training_seconds": round(trained.training_seconds, 3),
        "steps_per_second": round(trained.steps_per_second, 2),
        "images_per_second": round(trained.images_per_second, 1),
        "device": torch.cuda.get_device_name() if settings.on_gpu else "CPU",
        "precision": settings.precision,
    }
    return Fitted(trained.history, tensors, prior, graph, samples=samples, timing=timing)


def _trained(
    kit: Kit, settings: StepSettings, method: Method, prior: Prior | None, checkpoint: Path
) -> tuple[nn.Module, Trained]:
    network = kit.network()
    objective = _objective(method, kit.split.train.groups, prior, network)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    return network, train_steps(
        network,
        objective,
        kit.data,
        kit.split.train,
        kit.loss,
        settings,
        prepare=kit.prepare,
        draws=kit.draws,
        evaluate=kit.evaluate,
        checkpoint=checkpoint,
    )


def _objective(method: Method, groups: Groups, prior: Prior | None, network: nn.Module) -> Objective:
    """The method's objective; one that looks at features is told how many there are."""
    name = method.objective or "erm"
    extra = {"width": network.width} if "width" in inspect.signature(OBJECTIVES[name]).parameters else {}
    return make_objective(name, groups, prior, **method.settings, **extra)


def _learn(kit: Kit, network: nn.Module, given: Assignment, settings: StepSettings) -> GroupGraph:
    """The graph of the training groups by the network's features of their training rows, at most so many a group."""
    train = kit.split.train
    chosen = np.concatenate(
        [group_rng(name, given.seed).permutation(train.rows(name))[:POINTS] for name in train.groups]
    )
    some = train.take(np.sort(chosen))
    parts = outputs_at(network, kit.data, some.x, settings, prepare=kit.plain, of=_features, batch=250)
    features = torch.cat([values for _, values in parts]).cpu().numpy()
    how = {"neighbors": NEIGHBORS} | dict(given.protocol.data_topology)
    others = len(np.unique(features, axis=0)) - 1
    if 0 < others < how["neighbors"]:
        warn(
            f"the topology is learned from {len(features)} training rows with {others + 1} different features, "
            f"{others} neighbour(s) each instead of {how['neighbors']}: it says little. Give more images or chips, or "
            "cut chips into smaller tiles (--size)."
        )
        how["neighbors"] = others
    return learn_topology(features, some.ids, resamples=0, **how)


def _settings(given: Assignment) -> StepSettings:
    protocol = given.protocol
    return StepSettings(
        rounds=protocol.epochs,
        per_group=protocol.per_group,
        learning_rate=protocol.learning_rate,
        seed=given.seed,
        evaluate_every=protocol.evaluate_every,
        precision=protocol.network.get("precision", "fp32"),
        device=given.runtime.device,
    )


def _architecture(given: Assignment) -> dict[str, Any]:
    """What of the protocol's network its builder wants to know."""
    return {key: value for key, value in given.protocol.network.items() if key not in ("precision", "weights", "tile")}


def _weights(given: Assignment) -> Weights | None:
    runtime = given.runtime
    if runtime.weights is None:
        return None
    return _read(runtime.weights, runtime.style, int(given.protocol.network["name"].removeprefix("resnet")))


@functools.lru_cache(maxsize=1)
def _read(source: str, style: str | None, depth: int) -> Weights:
    return read_weights(source, style=style, depth=depth)


_KEPT: dict[tuple[str, str], Resident] = {}


def _resident_images(benchmark: Benchmark, digest: str, device: str) -> Resident:
    """All images on the device, once a process: the runs of a table share them."""
    key = (digest, device)
    if key not in _KEPT:
        _KEPT.clear()
        _KEPT[key] = Resident.of(benchmark.store, benchmark.data, device)
    return _KEPT[key]


def _replaced(rows: GroupedData, place: Rows) -> GroupedData:
    return GroupedData(place[rows.x], rows.y, rows.codes, rows.groups)


# Functions of the module, not of a run: compiled once, they serve all runs.


def _pixels(x: Tensor) -> Tensor:
    return unit_range(x.permute(0, 3, 1, 2))


def _augmented(x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    return augment(x.permute(0, 3, 1, 2), u), y


def _same(x: Tensor) -> Tensor:
    return x


def _turned(x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    return flip_rotate(x, y, u)


def _features(network: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = network.features(x)  # type: ignore[operator]  # networks for images have features()
    return found


def _mean_by_group(right: npt.NDArray[Any], rows: GroupedData) -> dict[Any, float]:
    sums = np.bincount(rows.codes, weights=right.astype(np.float64), minlength=len(rows.groups))
    return rows.groups.named((sums / np.bincount(rows.codes, minlength=len(rows.groups))).tolist())


def _number(value: npt.NDArray[Any]) -> float | None:
    """Without NaN, which JSON has no word for: None where a measure is undefined."""
    return None if np.isnan(value).any() else float(value.item())


def _named(rows: GroupedData, values: npt.NDArray[Any]) -> dict[Any, float | None]:
    return {name: _number(value) for name, value in zip(rows.groups, values, strict=True)}
