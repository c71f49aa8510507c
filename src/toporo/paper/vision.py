"""Networks on images and radar tiles: a user's choices, fits, and the description of a results file."""

from __future__ import annotations

import functools
import itertools
import json
import platform
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toporo.checks import non_negative, whole
from toporo.data.grouped import GroupedData, Split, group_rng
from toporo.data.images import ImageStore, TileStore
from toporo.errors import DataError, SettingError, TopoRoWarning, UnknownNameError, warn
from toporo.paper.base import Benchmark, Vision
from toporo.paper.fits import FITS, Assignment, Fitted, Runtime, method_objective
from toporo.paper.flood_chips import standardize
from toporo.paper.loaded import BenchmarkData, mean_by_group
from toporo.paper.protocols import BenchMethod, Protocol
from toporo.paper.results import SELECTIONS
from toporo.paper.runs import TOPOLOGY, read_sealed, write_sealed
from toporo.topology.graph import GroupGraph
from toporo.topology.learn import learn_topology
from toporo.topology.prior import Prior
from toporo.training import Batches, FitResult, TrainingPlan, fit, outputs_at, pick_device
from toporo.training.average import SWAD
from toporo.types import Record
from toporo.version import __version__
from toporo.vision import NETWORKS, Weights, images_on_device, make_network, read_weights
from toporo.vision.augmentation import DRAWS, DRAWS_TILES, augment, flip_rotate, unit_range
from toporo.vision.label_maps import accuracy, count_pixels, f1, iou, pixel_loss

RANDOM = "a random start"
#: Rows of a group whose features the topology is learned from.
POINTS = 500
#: Rows nearest to a row that it is joined to, if there are as many.
NEIGHBORS = 15
#: Test rows whose predictions are kept for the report.
SHOWN_IMAGES, SHOWN_TILES = 8, 3


# ---------------------------------------------------------------------- a user's choices


@dataclass(frozen=True)
class VisionChoices:
    """Choices for a benchmark on images; None is the protocol's.

    Attributes
    ----------
    device : ``"auto"``, ``"cpu"`` or ``"cuda"``.
    weights, style : see :func:`toporo.vision.read_weights`; None is a random start.
    network : a name in :data:`toporo.vision.NETWORKS`.
    steps, evaluate_every : steps per run, and from one evaluation to the next.
    average : ``average`` of :class:`toporo.training.TrainingPlan`, or ``"none"``.
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
    average: int | str | None = None
    per_group: int | None = None
    precision: str | None = None
    size: int | None = None
    cache: Path | None = None
    penalty: float | None = None
    keep_models: bool = False


def _vision(benchmark: Benchmark) -> Vision:
    if benchmark.vision is None:
        raise SettingError(f"{benchmark.name} is no benchmark on images.")
    return benchmark.vision


def settle(benchmark: Benchmark, choices: VisionChoices | None, out: Path) -> tuple[Protocol, Runtime, dict[str, Any]]:
    """Return the protocol with these choices in it, where to run, and options for loading the data."""
    protocol, vision = benchmark.protocol, _vision(benchmark)
    choices = choices or VisionChoices()
    device = pick_device(choices.device)
    name = choices.network or protocol.network["name"]
    if name not in vision.networks:
        if name in NETWORKS:
            raise SettingError(
                f"the network {name} does not fit {benchmark.name}; it takes {', '.join(vision.networks)}."
            )
        raise UnknownNameError("network", name, vision.networks)
    source = _weights_source(benchmark, vision, choices, name)
    network = {**protocol.network, "name": name}
    notes = [note.replace("{rounds}", str(choices.steps or protocol.rounds)) for note in protocol.notes]
    if vision.pretrained and source == RANDOM:
        network["norm"] = "batch"  # there are no statistics to freeze
        notes.append(
            "Networks began at random here; the paper's began with weights of ImageNet, which counts for much."
        )
    rounds = protocol.rounds if choices.steps is None else whole(choices.steps, "steps", 1)
    precision = choices.precision or ("bf16" if device == "cuda" else "fp32")
    averaging = _averaging(protocol, choices, rounds)
    plain = tuple(rule for rule in protocol.rules if not SELECTIONS[rule].averaged)
    headline = protocol.headline if protocol.headline in plain else "validation"
    # A quarter of the run, if the user asks for fewer steps than the protocol evaluates after.
    usual = min(protocol.evaluate_every, max(1, rounds // 4))
    settled = replace(
        protocol,
        rounds=rounds,
        evaluate_every=usual if choices.evaluate_every is None else choices.evaluate_every,
        averaging=averaging,
        rules=plain if averaging is None else ("averaged", *plain),
        headline=headline if averaging is None else "averaged",
        per_group=protocol.per_group if choices.per_group is None else whole(choices.per_group, "per_group", 1),
        network=network | {"precision": precision, "weights": source},
        changes=protocol.changes if choices.penalty is None else _with_penalty(protocol, choices.penalty),
        notes=tuple(notes),
    )
    # A wrong setting is an error now.
    TrainingPlan(rounds, "steps", evaluate_every=settled.evaluate_every, precision=precision, average=averaging)
    loading: dict[str, Any] = {} if choices.size is None else {vision.side: choices.size}
    if vision.cached:
        loading["cache"] = choices.cache or out / "cache"
    return settled, Runtime(device, choices.weights, choices.style, choices.keep_models), loading


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
    weights = read_weights(choices.weights, depth=_depth(network), style=choices.style)
    return f"{weights.source}, style {weights.style.name}, sha256 {weights.digest}"


def _depth(network: str) -> int:
    return int(network.removeprefix("resnet"))


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
    few: dict[Any, int] = {}
    for each in loaded:
        try:
            benchmark.split(each, 0, fraction)
        except DataError:
            sizes = each.data.select(each.train).sizes
            few |= {name: size for name, size in sizes.items() if size < least}
    if few:
        raise DataError(
            f"too few {vision.row}s to train on and to set {fraction:.0%} aside: "
            f"{', '.join(f'{name} ({size})' for name, size in few.items())}. Expected at least {least} of every "
            f"training {benchmark.group}: {vision.too_few}."
        )


# ---------------------------------------------------------------------- fits


@dataclass(frozen=True)
class Kit:
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

    def guesses(network: nn.Module, rows: npt.NDArray[np.int64]) -> Tensor:
        return torch.cat([logits for _, logits in outputs_at(network, x, rows, plan, prepare=_pixels)])

    def evaluate(network: nn.Module) -> dict[str, Any]:
        rows = np.concatenate([split.validation.x, given.test.x])
        right = (guesses(network, rows).argmax(dim=1) == y[torch.as_tensor(rows, device=y.device)]).cpu().numpy()
        held_out = mean_by_group(right[: len(split.validation)], split.validation)
        test = mean_by_group(right[len(split.validation) :], given.test)
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
            "true": given.loaded.data.y[rows].tolist(),
            "predicted": best.tolist(),
            "confidence": [round(c, 4) for c in sure.tolist()],
        }, {}

    batches = Batches(x, y, split.train, given.protocol.per_group, prepare=_augmented, draws=DRAWS)
    loss = functools.partial(F.cross_entropy, reduction="none")
    return _fit(given, Kit(batches, split, len(store.classes), 3, loss, _pixels, evaluate, samples), plan)


@FITS.register("segmentation")
def _fit_segmentation(given: Assignment) -> Fitted:
    """Fit a network that predicts for every pixel of a radar tile whether it is water."""
    store, split, plan = given.loaded.store, given.split(), _plan(given)
    if not isinstance(store, TileStore):
        raise DataError(f"{given.loaded.name} has no tiles: load it with toporo.load_dataset.")
    x, y = (torch.as_tensor(each).to(given.runtime.device) for each in (standardize(store.x, split.train.x), store.y))

    def counts(network: nn.Module, rows: GroupedData) -> Tensor:
        codes = torch.zeros(len(store), dtype=torch.long)
        codes[torch.as_tensor(rows.x)] = torch.as_tensor(rows.codes)
        codes, m = codes.to(x.device), len(rows.groups)
        parts = outputs_at(network, x, rows.x, plan, batch=64)
        each = [count_pixels(logits.argmax(dim=1), y[part], codes[part], m) for part, logits in parts]
        return torch.stack(each).sum(dim=0)

    def evaluate(network: nn.Module) -> dict[str, Any]:
        held_out, test = counts(network, split.validation), counts(network, given.test)
        validation = _numbers(iou(held_out.sum(1, keepdim=True)))[0]
        return {
            # Nothing to find and nothing found is no mistake.
            "validation": 1.0 if validation is None else validation,
            **{
                name: _numbers(score(test.sum(1, keepdim=True)))[0]
                for name, score in (("test", iou), ("f1", f1), ("accuracy", accuracy))
            },
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
    return _fit(given, Kit(batches, split, 2, store.x.shape[1], pixel_loss, None, evaluate, samples), plan)


def _numbers(values: npt.NDArray[Any]) -> list[float | None]:
    """Return None in place of NaN, which JSON lacks, where a measure is undefined."""
    return [None if np.isnan(value) else float(value) for value in values]


def _fit(given: Assignment, kit: Kit, plan: TrainingPlan) -> Fitted:
    shared = given.shared(TOPOLOGY)

    def learned(network: nn.Module) -> GroupGraph:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TopoRoWarning)
            graph = _learn(kit, network, given, plan)
        texts = [str(warning.message) for warning in caught if issubclass(warning.category, TopoRoWarning)]
        topology = {"graph": json.loads(graph.to_json()), "warnings": texts}
        write_sealed(shared, topology)
        return _as_stored(topology)

    def learn(**_: Any) -> GroupGraph:
        if (stored := read_sealed(shared)) is not None:
            return _as_stored(stored)
        return learned(_trained(given, kit, plan, given.baseline, None, "features")[0])

    prior, graph = given.prior(kit.split.train, learn)
    network, trained = _trained(given, kit, plan, given.method, prior, "main")
    if given.method == given.protocol.baseline:
        learned(network)
    samples, tensors = kit.samples(network)
    if given.runtime.keep_models:
        tensors |= {key: value.detach().cpu() for key, value in network.state_dict().items()}
    timing = {
        "seconds": round(trained.seconds, 3),
        "steps_per_second": round(trained.steps_per_second, 2),
        "images_per_second": round(trained.steps_per_second * kit.batches.size, 1),
        "device": torch.cuda.get_device_name() if plan.on_gpu else "CPU",
        "precision": plan.precision,
    }
    return Fitted(trained.history, tensors, prior, graph, samples=samples, timing=timing)


def _as_stored(topology: Record) -> GroupGraph:
    """Return the graph that runs of a seed share; each repeats the warnings of its learning."""
    for text in topology["warnings"]:
        warn(text)
    return GroupGraph.from_json(json.dumps(topology["graph"]))


def _trained(
    given: Assignment, kit: Kit, plan: TrainingPlan, method: BenchMethod, prior: Prior | None, phase: str
) -> tuple[nn.Module, FitResult]:
    options = {k: v for k, v in given.protocol.network.items() if k not in ("precision", "weights", "tile")}
    weights = _weights(given.runtime, options["name"])
    network = make_network(outputs=kit.outputs, channels=kit.channels, weights=weights, seed=given.seed, **options)

    def evaluate(network: nn.Module) -> dict[str, Any]:
        extra = {"validation_loss": _validation_loss(kit, network, plan)} if plan.average == SWAD else {}
        return kit.evaluate(network) | extra

    objective = method_objective(method, kit.batches, prior, network, plan)
    return network, fit(
        network, objective, kit.batches, kit.loss, plan, evaluate=evaluate, checkpoint=given.checkpoint(phase)
    )


def _validation_loss(kit: Kit, network: nn.Module, plan: TrainingPlan) -> float:
    """Return the mean loss of a group's validation rows, mean over groups."""
    rows = kit.split.validation
    parts = outputs_at(network, kit.batches.x, rows.x, plan, prepare=kit.prepare, batch=64)
    losses = torch.cat([kit.loss(outputs, kit.batches.y[part]) for part, outputs in parts])
    return float(np.mean(list(mean_by_group(losses.cpu().numpy(), rows).values())))


def _learn(kit: Kit, network: nn.Module, given: Assignment, plan: TrainingPlan) -> GroupGraph:
    """Learn the graph of the training groups from the network's features, of at most so many rows per group."""
    train = kit.split.train
    chosen = [group_rng(name, given.seed).permutation(train.rows(name))[:POINTS] for name in train.groups]
    some = train.take(np.sort(np.concatenate(chosen)))
    parts = outputs_at(network, kit.batches.x, some.x, plan, prepare=kit.prepare, features=True, batch=250)
    features = torch.cat([values for _, values in parts]).cpu().numpy()
    how = {"neighbors": NEIGHBORS, "resamples": 0, "seed": given.seed} | dict(given.protocol.data_topology)
    others = len(np.unique(features, axis=0)) - 1
    if 0 < others < how["neighbors"]:
        warn(
            f"the topology is learned from {len(features)} training rows with {others + 1} different features, "
            f"{others} neighbour(s) each instead of {how['neighbors']}: it says little. Give more images or chips, or "
            "cut chips into smaller tiles (--size)."
        )
        how["neighbors"] = others
    return learn_topology(features, some.ids, **how)


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


@functools.lru_cache(maxsize=1)
def _weights(runtime: Runtime, network: str) -> Weights | None:
    if runtime.weights is None:
        return None
    return read_weights(runtime.weights, style=runtime.style, depth=_depth(network))


_KEPT: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}


def _images_on_device(loaded: BenchmarkData, store: ImageStore, device: str) -> tuple[Tensor, Tensor]:
    """Return all images on the device, copied once per process: the runs of a table share them."""
    key = (store.digest, device)
    if key not in _KEPT:
        _KEPT.clear()
        _KEPT[key] = images_on_device(store, loaded.data, device)
    return _KEPT[key]


# Functions of the module, not of a run: compiled once, they serve all runs.


def _pixels(x: Tensor) -> Tensor:
    return unit_range(x.permute(0, 3, 1, 2))


def _augmented(x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    return augment(x.permute(0, 3, 1, 2), u), y


# ---------------------------------------------------------------------- the description of a results file


def describe(
    benchmark: Benchmark,
    protocol: Protocol,
    records: Sequence[Record],
    loaded: Sequence[BenchmarkData],
    skipped: Mapping[str, str],
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
        "data": {**benchmark.facts(loaded), "source": loaded[0].source, "rows": len(loaded[0].data)},
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
