"""Benchmarks on images and radar tiles: a user's choices, and the description of a results file."""

from __future__ import annotations

import itertools
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from toporo.checks import non_negative, whole
from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.paper.base import Benchmark, Vision, VisionChoices
from toporo.paper.image_fits import initial_weights
from toporo.paper.loaded import BenchmarkData
from toporo.paper.protocols import Protocol
from toporo.paper.results import SELECTIONS
from toporo.training import TrainingPlan, pick_device
from toporo.types import Record
from toporo.version import __version__

RANDOM = "a random start"


# ---------------------------------------------------------------------- a user's choices


def _vision(benchmark: Benchmark) -> Vision:
    if benchmark.vision is None:
        raise SettingError(f"{benchmark.name} is no benchmark on images.")
    return benchmark.vision


def settle(benchmark: Benchmark, choices: VisionChoices, out: Path) -> tuple[Protocol, VisionChoices, dict[str, Any]]:
    """Return the protocol with these choices in it, where to run, and options for loading the data."""
    protocol, vision = benchmark.protocol, _vision(benchmark)
    device = pick_device(choices.device)
    name = choices.network or protocol.network["name"]
    if name not in vision.networks:
        raise UnknownNameError(f"network for {benchmark.name}", name, vision.networks)
    source = _weights_source(benchmark, vision, choices, name)
    precision = choices.precision or ("bf16" if device == "cuda" else "fp32")
    network = {**protocol.network, "name": name, "precision": precision, "weights": source}
    rounds = protocol.rounds if choices.steps is None else whole(choices.steps, "steps", 1)
    notes = [note.replace("{rounds}", str(rounds)) for note in protocol.notes]
    if vision.pretrained and source == RANDOM:
        network["norm"] = "batch"  # there are no statistics to freeze
        notes.append(
            "Networks began at random here; the paper's began with weights of ImageNet, which counts for much."
        )
    averaging = _averaging(protocol, choices, rounds)
    single = tuple(rule for rule in protocol.rules if not SELECTIONS[rule].averaged)
    headline = protocol.headline if protocol.headline in single else "validation"
    # A quarter of the run, if the user asks for fewer steps than the protocol evaluates after.
    usual = min(protocol.evaluate_every, max(1, rounds // 4))
    settled = replace(
        protocol,
        rounds=rounds,
        evaluate_every=usual if choices.evaluate_every is None else choices.evaluate_every,
        averaging=averaging,
        rules=single if averaging is None else ("averaged", *single),
        headline=headline if averaging is None else "averaged",
        per_group=protocol.per_group if choices.per_group is None else whole(choices.per_group, "per_group", 1),
        network=network,
        changes=protocol.changes if choices.penalty is None else _with_penalty(protocol, choices.penalty),
        notes=tuple(notes),
    )
    # A wrong setting is an error now.
    TrainingPlan(rounds, "steps", evaluate_every=settled.evaluate_every, precision=precision, average=averaging)
    loading: dict[str, Any] = {} if choices.size is None else {vision.side: choices.size}
    if vision.cached:
        loading["cache"] = choices.cache or out / "cache"
    return settled, replace(choices, device=device), loading


def _averaging(protocol: Protocol, choices: VisionChoices, rounds: int) -> int | str | None:
    """Return the step from which weights are averaged; the middle of a run that is shorter than the protocol's."""
    if choices.average is not None:
        return None if choices.average == "none" else choices.average
    short = isinstance(protocol.averaging, int) and protocol.averaging >= rounds
    return rounds // 2 if short else protocol.averaging


def _weights_source(benchmark: Benchmark, vision: Vision, choices: VisionChoices, network: str) -> str:
    """Return where initial weights come from, for the record; wrong ones are an error now."""
    if choices.weights is None:
        if choices.style is not None:
            raise SettingError(f"style {choices.style!r} without weights: it says how weights want to be used.")
        return RANDOM
    if not vision.pretrained:
        raise SettingError(f"weights {choices.weights}: networks for {benchmark.name} begin at random; leave them out.")
    weights = initial_weights(choices.weights, choices.style, network)
    return f"{weights.source}, style {weights.style.name}, sha256 {weights.digest}"


def _with_penalty(protocol: Protocol, penalty: float) -> dict[str, Mapping[str, Any]]:
    """Change λ in the methods of the table that have a prior; a smaller step of q keeps its updates stable."""
    penalty = non_negative(penalty, "penalty", "a number of at least 0")
    changes = dict(protocol.changes)
    for method in map(protocol.method, protocol.methods):
        if method.prior is not None and "penalty" in method.settings:
            step = method.settings["step"]
            settings = {"penalty": penalty, "step": min(step, 1.0 / penalty) if penalty else step}
            changes[method.name] = {**changes.get(method.name, {}), "settings": settings}
    return changes


def check_rows(benchmark: Benchmark, loaded: Iterable[BenchmarkData]) -> None:
    """Raise an error, before the first run, if a training group has too few rows to train and to validate on."""
    vision, fraction = _vision(benchmark), benchmark.protocol.validation
    least = next(count for count in itertools.count(2) if 0 < round(fraction * count) < count)
    for data in loaded:
        try:
            benchmark.split(data, 0, fraction)
        except DataError:
            sizes = data.data.select(data.train).sizes
            few = [f"{name} ({size})" for name, size in sizes.items() if size < least]
            if not few:
                raise
            raise DataError(
                f"too few {vision.row}s to train on and to set {fraction:.0%} aside: {', '.join(few)}. Expected at "
                f"least {least} of every training {benchmark.group}: {vision.too_few}."
            ) from None


# ---------------------------------------------------------------------- the description of a results file


def describe(
    protocol: Protocol, records: Sequence[Record], loaded: Sequence[BenchmarkData], skipped: Mapping[str, str]
) -> dict[str, Any]:
    """Return hardware, time and settings of a finished table, with the protocol as it was settled."""
    timings = [record["timing"] for record in records if "timing" in record]
    seconds = [timing["seconds"] for timing in timings]
    speeds = [timing["images_per_second"] for timing in timings if timing["images_per_second"]]
    fields = ("rounds", "unit", "evaluate_every", "averaging", "per_group", "learning_rate", "validation")
    return {
        "benchmark": protocol.benchmark,
        "hardware": sorted({timing["device"] for timing in timings}),
        "software": {"toporo": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "runs": len(records),
        "seconds": round(float(np.sum(seconds)), 1),
        "seconds_a_run": round(float(np.median(seconds)), 2) if seconds else None,
        "images_per_second": round(float(np.median(speeds)), 1) if speeds else None,
        "settings": {
            "network": dict(protocol.network),
            **{name: getattr(protocol, name) for name in fields},
            "selection": protocol.headline,
            "topology": dict(protocol.data_topology),
            "prior": dict(protocol.priors),
            # As each run recorded them, not as the protocol has them now.
            "methods": {record["method"]: record["settings"] for record in records},
        },
        "data": {**loaded[0].about, "source": loaded[0].source, "rows": len(loaded[0].data)},
        "skipped": dict(skipped),
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
