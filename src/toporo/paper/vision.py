"""Benchmarks on images and radar tiles: a user's choices, and the description of a results file."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from toporo.checks import whole
from toporo.errors import SettingError, UnknownNameError
from toporo.paper.base import Benchmark, VisionChoices
from toporo.paper.image_fits import initial_weights
from toporo.paper.loaded import BenchmarkData
from toporo.paper.protocols import Protocol
from toporo.training import pick_device
from toporo.types import Record
from toporo.version import __version__

RANDOM = "a random start"


def settle(benchmark: Benchmark, choices: VisionChoices) -> tuple[Benchmark, VisionChoices]:
    """Return the benchmark with these choices in its protocol, and the choices with the device."""
    protocol, device = benchmark.protocol, pick_device(choices.device)
    name = choices.network or protocol.network["name"]
    if name not in benchmark.networks:
        raise UnknownNameError(f"network for {benchmark.name}", name, benchmark.networks)
    network = {**protocol.network, "name": name, "precision": "bf16" if device == "cuda" else "fp32", "weights": RANDOM}
    notes = list(protocol.notes)
    if choices.weights is not None:
        if not name.startswith("resnet"):
            raise SettingError(f"weights {choices.weights}: a network {name} begins at random; leave them out.")
        weights = initial_weights(choices.weights, name)
        network["weights"] = f"{weights.source}, style {weights.style.name}, sha256 {weights.digest}"
    elif "norm" in network:
        network["norm"] = "batch"  # there are no statistics to freeze
        notes.append(
            "Networks began at random here; the paper's began with weights of ImageNet, which counts for much."
        )
    rounds = protocol.rounds if choices.steps is None else whole(choices.steps, "steps", 1)
    size = {} if choices.size is None else {"size": choices.size}
    settled = replace(
        protocol,
        rounds=rounds,
        evaluate_every=max(1, protocol.evaluate_every * rounds // protocol.rounds),
        averaging=None if protocol.averaging is None else protocol.averaging * rounds // protocol.rounds,
        per_group=protocol.per_group if choices.per_group is None else whole(choices.per_group, "per_group", 1),
        network=network,
        variants=tuple(replace(variant, options={**variant.options, **size}) for variant in protocol.variants),
        notes=tuple(note.replace("{rounds}", str(rounds)) for note in notes),
    )
    return replace(benchmark, protocol=settled), replace(choices, device=device)


def describe(protocol: Protocol, records: Sequence[Record], loaded: BenchmarkData) -> dict[str, Any]:
    """Return hardware, time and data of a finished table."""
    timings = [record["timing"] for record in records]
    seconds, speeds = ([timing[key] for timing in timings] for key in ("seconds", "images_per_second"))
    return {
        "hardware": sorted({timing["device"] for timing in timings}),
        "software": {"toporo": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "runs": len(records),
        "seconds": round(float(np.sum(seconds)), 1),
        "seconds_a_run": round(float(np.median(seconds)), 2),
        "images_per_second": round(float(np.median(speeds)), 1),
        "data": {**loaded.about, "source": loaded.source, "rows": len(loaded.data)},
        "priors": learned_priors(protocol, records),
    }


def learned_priors(protocol: Protocol, records: Sequence[Record]) -> dict[str, list[dict[str, float]]]:
    """Return the learned priors by variant, one per seed."""
    priors: dict[str, list[dict[str, float]]] = {}
    for record in records:
        if protocol.learned is not None and record["method"] == protocol.learned.name and record["prior"]:
            weights = {str(name): round(value, 4) for name, value in record["prior"]["weights"]}
            priors.setdefault(record["variant"], []).append(weights)
    return priors
