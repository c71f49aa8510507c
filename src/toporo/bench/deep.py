"""What a user may choose about training networks for images, and what a results file says about how it came about."""

from __future__ import annotations

import itertools
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import toporo
from toporo.bench.assignment import Runtime
from toporo.bench.base import Benchmark
from toporo.bench.definitions import Protocol
from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.models import NETWORKS, read_weights
from toporo.training import StepSettings, pick_device
from toporo.types import Record

#: Networks that fit a task.
FITTING = {"images": ("resnet18", "resnet50"), "segmentation": ("fcn18", "fcn50", "unet")}
RANDOM = "a random start"
#: What a results file says of the data.
TOLD = ("chips", "subset", "tile", "splits", "size", "complete")


@dataclass(frozen=True)
class Deep:
    """Choices for a benchmark on images; None is what the protocol says.

    Attributes
    ----------
    device : ``"auto"``, ``"cpu"`` or ``"cuda"``.
    weights, style : see :func:`toporo.models.read_weights`; None is a random start.
    network : a name in :data:`toporo.models.NETWORKS`.
    steps, evaluate_every : steps a run, and from one evaluation to the next.
    per_group : images of every group in a step.
    precision : ``"fp32"`` or ``"bf16"``; by default the latter on a GPU.
    size : side of the images, or of the tiles.
    cache : folder for decoded images.
    penalty : λ of TRO-data and TRO with a uniform prior.
    keep_models : whether to store every run's network.
    """

    device: str = "auto"
    weights: str | None = None
    style: str | None = None
    network: str | None = None
    steps: int | None = None
    evaluate_every: int | None = None
    per_group: int | None = None
    precision: str | None = None
    size: int | None = None
    cache: Path | None = None
    penalty: float | None = None
    keep_models: bool = False


def settle(protocol: Protocol, deep: Deep, out: Path) -> tuple[Protocol, Runtime, dict[str, Any]]:
    """The protocol with these choices in it, where to run, and options for loading the data."""
    device = pick_device(deep.device)
    name = deep.network or protocol.network["name"]
    if name not in FITTING[protocol.task]:
        if name in NETWORKS:
            raise SettingError(
                f"the network {name} does not fit {protocol.benchmark}; it takes {', '.join(FITTING[protocol.task])}."
            )
        raise UnknownNameError("network", name, FITTING[protocol.task])
    source = RANDOM
    if deep.weights is not None:
        if protocol.task != "images":
            raise SettingError(
                f"weights {deep.weights}: networks for {protocol.benchmark} begin at random; leave them out."
            )
        weights = read_weights(deep.weights, depth=int(name.removeprefix("resnet")), style=deep.style)
        source = f"{weights.source}, style {weights.style.name}, sha256 {weights.digest}"
    elif deep.style is not None:
        raise SettingError(f"style {deep.style!r} without weights: it says how weights want to be used.")
    precision = deep.precision or ("bf16" if device == "cuda" else "fp32")
    steps = protocol.epochs if deep.steps is None else deep.steps
    # A quarter of the run, where the user asks for fewer steps than the protocol evaluates after.
    every = min(protocol.evaluate_every, max(1, steps // 4)) if deep.evaluate_every is None else deep.evaluate_every
    network = {"name": name} | ({"norm": protocol.network["norm"]} if protocol.task == "images" else {})
    if source == RANDOM and "norm" in network:
        network["norm"] = "batch"  # there are no statistics to freeze
    changes = _in_proportion(protocol, steps)
    notes = [note.replace("{steps}", str(steps)) for note in protocol.notes]
    if source == RANDOM and protocol.task == "images":
        notes.append(
            "Networks began at random here; the paper's began with weights of ImageNet, which counts for much."
        )
    settled = replace(
        protocol,
        epochs=steps,
        evaluate_every=every,
        per_group=protocol.per_group if deep.per_group is None else deep.per_group,
        network=network | {"precision": precision, "weights": source},
        changes=changes if deep.penalty is None else _with_penalty(changes, deep.penalty),
        notes=tuple(notes),
    )
    StepSettings(steps, settled.per_group, evaluate_every=every, precision=precision)  # a wrong one is an error now
    loading: dict[str, Any] = {}
    if protocol.task == "images":
        loading = {"cache": deep.cache or out / "cache"} | ({} if deep.size is None else {"size": deep.size})
    elif deep.size is not None:
        loading = {"tile": deep.size}
    return settled, Runtime(device, deep.weights, deep.style, deep.keep_models), loading


def _in_proportion(protocol: Protocol, steps: int) -> dict[str, Mapping[str, Any]]:
    """What of methods is particular, where what lasts for a share of the steps lasts for that share of these."""
    changes = dict(protocol.changes)
    for name, change in changes.items():
        settings = change.get("settings", {})
        if "anneal" in settings:
            anneal = settings["anneal"] * steps // protocol.epochs
            changes[name] = {**change, "settings": {**settings, "anneal": anneal}}
    return changes


def _with_penalty(found: Mapping[str, Mapping[str, Any]], penalty: float) -> dict[str, Mapping[str, Any]]:
    """What of methods is particular, with another λ for TRO; its step is made smaller where q would not settle."""
    if not 0 <= penalty < math.inf:
        raise SettingError(f"penalty is {penalty!r}: expected a number of at least 0.")
    changes = dict(found)
    for name in ("tro-data", "tro-uniform"):
        step = changes[name]["settings"]["step"]
        settings = {"penalty": penalty, "step": min(step, 1.0 / penalty) if penalty else step}
        changes[name] = {**changes[name], "settings": settings}
    return changes


def check_rows(protocol: Protocol, benchmarks: Iterable[Benchmark]) -> None:
    """An error, before the first run, where a training group has too few rows to train and to validate on."""
    least = next(count for count in itertools.count(2) if 0 < round(protocol.validation * count) < count)
    few = {
        name: size
        for each in benchmarks
        if each.about.get("splits") != "official"  # the publishers' lists say which rows validate
        for name, size in each.data.select(each.train).sizes.items()
        if size < least
    }
    if few:
        what, more = "images", "add some"
        if protocol.task == "segmentation":
            what, more = "tiles", "add chips, or cut them into smaller tiles with --size"
        raise DataError(
            f"too few {what} to train on and to set {protocol.validation:.0%} aside: "
            f"{', '.join(f'{name} ({size})' for name, size in few.items())}. Expected at least {least} of every "
            f"training {'domain' if what == 'images' else 'event'}: {more}."
        )


def describe(
    protocol: Protocol, records: Sequence[Record], benchmarks: Sequence[Benchmark], skipped: Mapping[str, str]
) -> dict[str, Any]:
    """Hardware, time and settings of a finished table."""
    timings = [record["timing"] for record in records if "timing" in record]
    seconds = [timing["seconds"] for timing in timings]
    speeds = [timing["images_per_second"] for timing in timings if timing["images_per_second"]]
    first = benchmarks[0]
    return {
        "benchmark": protocol.benchmark,
        "hardware": sorted({timing["device"] for timing in timings}),
        "software": {"toporo": toporo.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "runs": len(records),
        "seconds": round(float(np.sum(seconds)), 1),
        "seconds_a_run": round(float(np.median(seconds)), 2) if seconds else None,
        "images_per_second": round(float(np.median(speeds)), 1) if speeds else None,
        "settings": {
            "network": dict(protocol.network),
            "steps": protocol.epochs,
            "evaluate_every": protocol.evaluate_every,
            "per_group": protocol.per_group,
            "learning_rate": protocol.learning_rate,
            "validation": protocol.validation,
            "selection": protocol.headline,
            "topology": dict(protocol.data_topology),
            "prior": dict(protocol.priors),
            # As each run recorded them, not as the protocol has them now.
            "methods": {record["method"]: record["settings"] for record in records},
        },
        "data": {key: value for key, value in first.about.items() if key in TOLD}
        | {"source": first.source, "rows": len(first.data)}
        | ({"dropped": dropped_chips(benchmarks)} if "dropped" in first.about else {}),
        "skipped": dict(skipped),
        "priors": learned_priors(records),
    }


def dropped_chips(benchmarks: Iterable[Benchmark]) -> dict[str, str]:
    """Chips that none of the benchmarks could use, and why; each names only those of its own events."""
    return dict(
        sorted({chip: why for each in benchmarks for chip, why in each.about.get("dropped", {}).items()}.items())
    )


def learned_priors(records: Sequence[Record]) -> dict[str, list[dict[str, float]]]:
    """The learned priors, by variant: one a seed."""
    found: dict[str, list[dict[str, float]]] = {}
    for record in records:
        if record["method"] == "tro-data" and record["prior"]:
            weights = {str(name): round(value, 4) for name, value in record["prior"]["weights"]}
            found.setdefault(record["variant"], []).append(weights)
    return found
