"""Fits of networks on images and radar tiles, and the topologies that runs of a seed share."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toporo.data import GroupedData, ImageStore, Split, TileStore, group_rng
from toporo.errors import DataError, TopoRoWarning, warn
from toporo.paper.fits import FITS, Assignment, Fitted, method_objective
from toporo.paper.loaded import BenchmarkData, mean_by_group
from toporo.paper.methods import BenchMethod
from toporo.paper.runs import read_sealed, write_sealed
from toporo.topology import GroupGraph, Prior, learn_topology
from toporo.training import SWAD, Batches, FitResult, TrainingPlan, fit, outputs_at
from toporo.types import Record
from toporo.vision import (
    DRAWS,
    DRAWS_TILES,
    Weights,
    accuracy,
    augment,
    count_pixels,
    f1,
    flip_rotate,
    images_on_device,
    iou,
    make_network,
    pixel_loss,
    read_weights,
    unit_range,
)

#: Rows of a group whose features the topology is learned from, and nearest rows that a row is joined to.
POINTS, NEIGHBORS = 500, 15
#: Test rows whose predictions are kept for the report.
SHOWN_IMAGES, SHOWN_TILES = 8, 3


@dataclass(frozen=True)
class Task:
    """The parts in which images and tiles differ, for one split of one benchmark.

    Attributes
    ----------
    batches, split : training rows on the device, and rows to train and to validate on.
    outputs, channels : of the network.
    loss : per sample.
    prepare : from stored inputs to the network's.
    evaluate : metrics of a network.
    samples : predictions for the report, and tensors to store with them.
    """

    batches: Batches
    split: Split
    outputs: int
    channels: int
    loss: Callable[[Tensor, Tensor], Tensor]
    prepare: Callable[[Tensor], Tensor] | None
    evaluate: Callable[[nn.Module], dict[str, Any]]
    samples: Callable[[nn.Module], tuple[dict[str, Any], dict[str, Tensor]]]


@FITS.register("images")
def _fit_images(given: Assignment) -> Fitted:
    """Fit a residual network to photographs, drawings, …"""
    store, split, plan = given.loaded.store, given.split(), _plan(given)
    if not isinstance(store, ImageStore):
        raise DataError(f"{given.loaded.name} has no images: load it with toporo.load_dataset.")
    x, y = _images_on_device(given.loaded, store, given.runtime.device)

    def predict(network: nn.Module, rows: npt.NDArray[np.int64]) -> Tensor:
        return torch.cat([logits for _, logits in outputs_at(network, x, rows, plan, prepare=_pixels)])

    def evaluate(network: nn.Module) -> dict[str, Any]:
        rows = np.concatenate([split.validation.x, given.test.x])
        right = (predict(network, rows).argmax(dim=1) == y[torch.as_tensor(rows, device=y.device)]).cpu().numpy()
        validation = mean_by_group(right[: len(split.validation)], split.validation)
        test = mean_by_group(right[len(split.validation) :], given.test)
        return {
            "validation": float(np.mean(list(validation.values()))),
            "test": float(np.mean(list(test.values()))),
            "by_group": test,
            "validation_by_group": validation,
        }

    def samples(network: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
        rows = group_rng("samples", 0).permutation(given.test.x)[:SHOWN_IMAGES]
        confidence, predicted = predict(network, rows).softmax(dim=1).max(dim=1)
        return {
            "rows": rows.tolist(),
            "true": given.loaded.data.y[rows].tolist(),
            "predicted": predicted.tolist(),
            "confidence": [round(c, 4) for c in confidence.tolist()],
        }, {}

    batches = Batches(x, y, split.train, given.protocol.per_group, prepare=_augmented, draws=DRAWS)
    loss = functools.partial(F.cross_entropy, reduction="none")
    return _fit(given, Task(batches, split, len(store.classes), 3, loss, _pixels, evaluate, samples), plan)


@FITS.register("segmentation")
def _fit_segmentation(given: Assignment) -> Fitted:
    """Fit a network that predicts for every pixel of a radar tile whether it is water."""
    store, split, plan = given.loaded.store, given.split(), _plan(given)
    if not isinstance(store, TileStore):
        raise DataError(f"{given.loaded.name} has no tiles: load it with toporo.load_dataset.")
    device = given.runtime.device
    x, y = torch.as_tensor(standardize(store.x, split.train.x)).to(device), torch.as_tensor(store.y).to(device)

    def counts(network: nn.Module, rows: GroupedData) -> Tensor:
        codes = torch.zeros(len(store), dtype=torch.long)
        codes[torch.as_tensor(rows.x)] = torch.as_tensor(rows.codes)
        codes, groups = codes.to(device), len(rows.groups)
        portions = outputs_at(network, x, rows.x, plan, batch=64)
        by_portion = [count_pixels(logits.argmax(dim=1), y[part], codes[part], groups) for part, logits in portions]
        return torch.stack(by_portion).sum(dim=0)

    def evaluate(network: nn.Module) -> dict[str, Any]:
        held_out, test = counts(network, split.validation), counts(network, given.test)
        validation = _numbers(iou(held_out.sum(1, keepdim=True)))[0]
        scores = {"test": iou, "f1": f1, "accuracy": accuracy}
        return {
            # Nothing to find and nothing found is no mistake.
            "validation": 1.0 if validation is None else validation,
            **{name: _numbers(score(test.sum(1, keepdim=True)))[0] for name, score in scores.items()},
            "by_group": dict(zip(given.test.groups, _numbers(iou(test)), strict=True)),
            "validation_by_group": dict(zip(split.validation.groups, _numbers(iou(held_out)), strict=True)),
        }

    def samples(network: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
        water = (store.y[given.test.x] == 1).mean(axis=(1, 2))
        rows = given.test.x[np.argsort(np.abs(water - 0.5), kind="stable")[:SHOWN_TILES]]
        outputs = outputs_at(network, x, rows, plan, batch=64)
        probability = torch.cat([logits.softmax(dim=1)[:, 1] for _, logits in outputs])
        return {"rows": rows.tolist()}, {"sample.water": probability.to(torch.float16).cpu()}

    batches = Batches(x, y, split.train, given.protocol.per_group, prepare=flip_rotate, draws=DRAWS_TILES)
    return _fit(given, Task(batches, split, 2, store.x.shape[1], pixel_loss, None, evaluate, samples), plan)


def _numbers(values: npt.NDArray[Any]) -> list[float | None]:
    """Return None in place of NaN, which JSON lacks, where a measure is undefined."""
    return [None if np.isnan(value) else float(value) for value in values]


def standardize(x: npt.NDArray[np.float32], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Scale every channel to mean 0 and standard deviation 1 over the measurements in some rows.

    Parameters
    ----------
    x : tiles, ``(n, channels, height, width)``; NaN marks a missing measurement and becomes 0.
    rows : the tiles that mean and standard deviation are computed from: those to train on.
    """
    scaled = np.empty_like(x)
    for number, channel in enumerate(np.moveaxis(x, 1, 0)):
        values = channel[rows]
        values = values[np.isfinite(values)]
        if not values.size or values.min() == values.max():
            found = f"is {values[0]:g} in every pixel" if values.size else "has no measurement"
            raise DataError(
                f"channel {number} {found} of the {len(rows)} row(s) to scale by: expected measurements that differ."
            )
        mean, sd = float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))
        scaled[:, number] = np.nan_to_num((channel - mean) / sd, posinf=0.0, neginf=0.0)
    return scaled


def _fit(given: Assignment, task: Task, plan: TrainingPlan) -> Fitted:
    """Train the method's network; the runs of a seed share the topology learned from the baseline's features."""
    shared = given.store.topology(given.run)

    def learn_from(network: nn.Module) -> GroupGraph:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TopoRoWarning)
            graph = _learn(task, network, given, plan)
        texts = [str(warning.message) for warning in caught if issubclass(warning.category, TopoRoWarning)]
        topology = {"graph": json.loads(graph.to_json()), "warnings": texts}
        write_sealed(shared, topology)
        return _as_stored(topology)

    def learn(**_: Any) -> GroupGraph:
        if (stored := read_sealed(shared)) is not None:
            return _as_stored(stored)
        return learn_from(_trained(given, task, plan, given.baseline, None, "features")[0])

    prior, graph = given.prior(task.split.train, learn)
    network, trained = _trained(given, task, plan, given.method, prior, "main")
    if given.method == given.protocol.baseline:
        learn_from(network)
    samples, tensors = task.samples(network)
    if given.runtime.keep_models:
        tensors |= {key: value.detach().cpu() for key, value in network.state_dict().items()}
    timing = {
        "seconds": round(trained.seconds, 3),
        "steps_per_second": round(trained.steps_per_second, 2),
        "images_per_second": round(trained.steps_per_second * task.batches.size, 1),
        "device": torch.cuda.get_device_name() if plan.on_gpu else "CPU",
        "precision": plan.precision,
    }
    return Fitted(trained.history, tensors, prior, graph, samples=samples, timing=timing)


def _as_stored(topology: Record) -> GroupGraph:
    """Return the graph that runs of a seed share; every run repeats the warnings of its learning."""
    for text in topology["warnings"]:
        warn(text)
    return GroupGraph.from_json(json.dumps(topology["graph"]))


def _trained(
    given: Assignment, task: Task, plan: TrainingPlan, method: BenchMethod, prior: Prior | None, phase: str
) -> tuple[nn.Module, FitResult]:
    options = {k: v for k, v in given.protocol.network.items() if k not in ("precision", "weights")}
    source, style = given.runtime.weights, given.runtime.style
    weights = None if source is None else initial_weights(source, style, options["name"])
    network = make_network(outputs=task.outputs, channels=task.channels, weights=weights, seed=given.seed, **options)

    def evaluate(network: nn.Module) -> dict[str, Any]:
        extra = {"validation_loss": _validation_loss(task, network, plan)} if plan.average == SWAD else {}
        return task.evaluate(network) | extra

    objective = method_objective(method, task.batches, prior, network, plan)
    checkpoint = given.checkpoint(phase)
    return network, fit(network, objective, task.batches, task.loss, plan, evaluate=evaluate, checkpoint=checkpoint)


@functools.lru_cache(maxsize=1)
def initial_weights(source: str, style: str | None, network: str) -> Weights:
    """Read weights for a residual network, such as ``"resnet50"``."""
    return read_weights(source, style=style, depth=int(network.removeprefix("resnet")))


def _validation_loss(task: Task, network: nn.Module, plan: TrainingPlan) -> float:
    """Return the mean loss of a group's validation rows, mean over groups."""
    rows = task.split.validation
    portions = outputs_at(network, task.batches.x, rows.x, plan, prepare=task.prepare, batch=64)
    losses = torch.cat([task.loss(outputs, task.batches.y[part]) for part, outputs in portions])
    return float(np.mean(list(mean_by_group(losses.cpu().numpy(), rows).values())))


def _learn(task: Task, network: nn.Module, given: Assignment, plan: TrainingPlan) -> GroupGraph:
    """Learn the graph of the training groups from the network's features of at most :data:`POINTS` rows per group."""
    train = task.split.train
    chosen = [group_rng(name, given.seed).permutation(train.rows(name))[:POINTS] for name in train.groups]
    rows = train.take(np.sort(np.concatenate(chosen)))
    portions = outputs_at(network, task.batches.x, rows.x, plan, prepare=task.prepare, features=True, batch=250)
    features = torch.cat([values for _, values in portions]).cpu().numpy()
    settings = {"neighbors": NEIGHBORS, "resamples": 0, "seed": given.seed} | dict(given.protocol.data_topology)
    others = len(np.unique(features, axis=0)) - 1
    if 0 < others < settings["neighbors"]:
        warn(
            f"the topology is learned from {len(features)} training rows with {others + 1} different features, "
            f"{others} neighbour(s) each instead of {settings['neighbors']}: it says little. Give more images or "
            "chips, or cut chips into smaller tiles (--set size)."
        )
        settings["neighbors"] = others
    return learn_topology(features, rows.ids, **settings)


def _plan(given: Assignment) -> TrainingPlan:
    protocol, device = given.protocol, given.runtime.device
    return TrainingPlan(
        rounds=protocol.rounds,
        unit="steps",
        learning_rate=protocol.learning_rate,
        seed=given.seed,
        evaluate_every=protocol.evaluate_every,
        average=protocol.averaging,
        precision=protocol.network.get("precision", "fp32"),
        device=device,
        graph=device == "cuda",
    )


_ON_DEVICE: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}


def _images_on_device(loaded: BenchmarkData, store: ImageStore, device: str) -> tuple[Tensor, Tensor]:
    """Return all images on the device, copied once per process: the runs of a table share them."""
    key = (store.digest, device)
    if key not in _ON_DEVICE:
        _ON_DEVICE.clear()
        _ON_DEVICE[key] = images_on_device(store, loaded.data, device)
    return _ON_DEVICE[key]


# Functions of the module, not of a run: compiled once, they serve all runs.


def _pixels(x: Tensor) -> Tensor:
    return unit_range(x.permute(0, 3, 1, 2))


def _augmented(x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    return augment(x.permute(0, 3, 1, 2), u), y
