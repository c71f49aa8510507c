"""Fits of networks on images and radar tiles, and the topologies that runs of a seed share."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toporo.data import GroupedData, Split, group_rng
from toporo.paper.fits import FITS, Assignment, Fitted, method_objective
from toporo.paper.loaded import ByGroup, mean_by_group
from toporo.paper.methods import BenchMethod
from toporo.topology import GroupGraph, Prior, learn_topology
from toporo.training import Batches, FitResult, TrainingPlan, fit, outputs_at
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
    """

    batches: Batches
    split: Split
    outputs: int
    channels: int
    loss: Callable[[Tensor, Tensor], Tensor]
    prepare: Callable[[Tensor], Tensor] | None
    evaluate: Callable[[nn.Module], dict[str, Any]]


@FITS.register("images")
def _fit_images(given: Assignment) -> Fitted:
    """Fit a residual network to photographs, drawings, …"""
    store: Any = given.loaded.store
    split, plan = given.split(), _plan(given)
    x, y = images_on_device(store, given.loaded.data, given.runtime.device)

    def correct(network: nn.Module, rows: GroupedData) -> ByGroup:
        portions = outputs_at(network, x, rows.x, plan, prepare=_pixels)
        return mean_by_group(torch.cat([logits.argmax(dim=1) == y[part] for part, logits in portions]).cpu(), rows)

    def evaluate(network: nn.Module) -> dict[str, Any]:
        validation, test = correct(network, split.validation), correct(network, given.test)
        return {
            "validation": float(np.mean(list(validation.values()))),
            "test": float(np.mean(list(test.values()))),
            "by_group": test,
            "validation_by_group": validation,
        }

    batches = Batches(x, y, split.train, given.run.protocol.per_group, prepare=_augmented, draws=DRAWS)
    loss = functools.partial(F.cross_entropy, reduction="none")
    return _fit(given, Task(batches, split, len(store.classes), 3, loss, _pixels, evaluate), plan)


@FITS.register("segmentation")
def _fit_segmentation(given: Assignment) -> Fitted:
    """Fit a network that predicts for every pixel of a radar tile whether it is water."""
    store: Any = given.loaded.store
    split, plan, device = given.split(), _plan(given), given.runtime.device
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

    batches = Batches(x, y, split.train, given.run.protocol.per_group, prepare=flip_rotate, draws=DRAWS_TILES)
    return _fit(given, Task(batches, split, 2, store.x.shape[1], pixel_loss, None, evaluate), plan)


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
        mean, sd = float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))
        scaled[:, number] = np.nan_to_num((channel - mean) / sd, posinf=0.0, neginf=0.0)
    return scaled


def _fit(given: Assignment, task: Task, plan: TrainingPlan) -> Fitted:
    """Train the method's network; the baseline's record has the topology that other runs of its seed use."""

    def learn(**_: Any) -> GroupGraph:
        stored = given.store.read(replace(given.run, method=given.baseline).key)
        if stored is not None:
            return GroupGraph.from_json(json.dumps(stored["topology"]))
        return _learn(task, _trained(given, task, plan, given.baseline, None, "features")[0], given, plan)

    prior, graph = given.prior(task.split.train, learn)
    network, trained = _trained(given, task, plan, given.run.method, prior, "main")
    if given.run.method == given.run.protocol.baseline:
        graph = _learn(task, network, given, plan)
    timing = {
        "seconds": round(trained.seconds, 3),
        "images_per_second": round(trained.steps_per_second * task.batches.size, 1),
        "device": torch.cuda.get_device_name() if plan.on_gpu else "CPU",
    }
    return Fitted(trained.history, prior=prior, graph=graph, timing=timing)


def _trained(
    given: Assignment, task: Task, plan: TrainingPlan, method: BenchMethod, prior: Prior | None, phase: str
) -> tuple[nn.Module, FitResult]:
    options = {k: v for k, v in given.run.protocol.network.items() if k not in ("precision", "weights")}
    source = given.runtime.weights
    weights = None if source is None else initial_weights(source, options["name"])
    network = make_network(
        outputs=task.outputs, channels=task.channels, weights=weights, seed=given.run.seed, **options
    )
    objective = method_objective(method, task.batches, prior, network, plan)
    how: dict[str, Any] = {"evaluate": task.evaluate, "checkpoint": given.checkpoint(phase)}
    return network, fit(network, objective, task.batches, task.loss, plan, **how)


@functools.lru_cache(maxsize=1)
def initial_weights(source: str, network: str) -> Weights:
    """Read weights for a residual network, such as ``"resnet50"``."""
    return read_weights(source, depth=int(network.removeprefix("resnet")))


def _learn(task: Task, network: nn.Module, given: Assignment, plan: TrainingPlan) -> GroupGraph:
    """Learn the graph of the training groups from the network's features of at most :data:`POINTS` rows per group."""
    train = task.split.train
    chosen = [group_rng(name, given.run.seed).permutation(train.rows(name))[:POINTS] for name in train.groups]
    rows = train.take(np.sort(np.concatenate(chosen)))
    portions = outputs_at(network, task.batches.x, rows.x, plan, prepare=task.prepare, features=True, batch=250)
    features = torch.cat([values for _, values in portions]).cpu().numpy()
    neighbors = min(NEIGHBORS, len(np.unique(features, axis=0)) - 1)
    settings = {"neighbors": neighbors, "resamples": 0, "seed": given.run.seed} | dict(given.run.protocol.data_topology)
    return learn_topology(features, rows.ids, **settings)


def _plan(given: Assignment) -> TrainingPlan:
    protocol, device = given.run.protocol, given.runtime.device
    return TrainingPlan(
        rounds=protocol.rounds,
        unit="steps",
        learning_rate=protocol.learning_rate,
        seed=given.run.seed,
        evaluate_every=protocol.evaluate_every,
        average=protocol.averaging,
        precision=protocol.network["precision"],
        device=device,
        graph=device == "cuda",
    )


# Functions of the module, not of a run: compiled once, they serve all runs.


def _pixels(x: Tensor) -> Tensor:
    return unit_range(x.permute(0, 3, 1, 2))


def _augmented(x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    return augment(x.permute(0, 3, 1, 2), u), y
