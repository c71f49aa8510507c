"""Golden parts of the benchmarks and the theory."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import toporo as tr
from toporo.paper import BENCHMARKS
from toporo.paper.runner import reproduce
from toporo.training import Batches, TrainingPlan, fit
from toporo.vision import images_on_device

from .commands import run_command
from .parts import part, patched, published

FLOAT32 = "networks are trained in single precision, and sums depend on the width of the processor's vectors"


def rows_of(name: str, out: Path, **settings: Any) -> dict[str, Any]:
    """Run a benchmark, and give its table: values by variant, method, selection rule and metric."""
    outcome = reproduce(name, out, **settings)
    keys = [(row.variant, row.method, row.selection, row.metric) for row in outcome.rows]
    facts = [{"values": row.per_seed, "saw": row.saw, "control": row.control} for row in outcome.rows]
    weights = {
        (record["variant"], record["method"], record["seed"]): record.get("prior") or {} for record in outcome.records
    }
    return {
        "rows": dict(zip(keys, facts, strict=True)),
        "priors": {key: prior.get("weights", prior) for key, prior in weights.items()},
    }


def short_dg(name: str, out: Path, methods: tuple[str, ...], **settings: Any) -> dict[str, Any]:
    """Five epochs of a DG benchmark on generated data."""
    benchmark = BENCHMARKS[name].under(settings.get("protocol", "fair"))
    with patched(benchmark, protocol=replace(benchmark.protocol, rounds=5, evaluate_every=5)):
        return rows_of(name, out, methods=methods, source="generated", **settings)


@part("dg15", tolerance=1e-6, reason=FLOAT32)
def dg15(folder: Path) -> Any:
    """Two methods with a prior and two without."""
    return short_dg("dg15", folder, ("erm", "sd", "iw-erm", "tro-physical"), seeds=2)


@part("dg60", tolerance=1e-6, reason=FLOAT32)
def dg60(folder: Path) -> Any:
    """Two methods with a prior, one of them learned, and two without."""
    return short_dg("dg60", folder, ("erm", "group-dro", "tro-physical", "tro-data"), seeds=2)


@part("dg15-paper", tolerance=1e-6, reason=FLOAT32)
def dg15_paper(folder: Path) -> Any:
    """The paper's protocol, with the prior as the paper prints it."""
    return short_dg("dg15", folder, ("erm", "tro-physical"), seeds=1, protocol="paper")


@part("tpt48", data="tpt48")
def tpt48(folder: Path) -> Any:
    """All linear rows of the season-aligned windows, and of one split of the sliding ones."""
    methods = [name for name in BENCHMARKS["tpt48"].protocol.methods if name.startswith("linear")]
    data = published(".")
    quick = [name for name in methods if "chosen" not in name]
    return {
        "season": rows_of("tpt48", folder / "season", seeds=1, methods=quick, data=data, variant="*/season"),
        "chosen": rows_of(
            "tpt48", folder / "chosen", seeds=1, methods=["linear-chosen"], data=data, variant="north-south/season",
        ),
        "sliding": rows_of(
            "tpt48", folder / "sliding", seeds=1, methods=quick, data=data, variant="east-west/sliding"
        ),
    }  # fmt: skip


class SmallNetwork(nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU())
            self.head = nn.Linear(16, classes)

    def with_features(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs and features."""
        features = self.body(x).mean((2, 3))
        return self.head(features), features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs."""
        return self.with_features(x)[0]


@part("pacs", tolerance=1e-5, reason=FLOAT32, modules=("PIL",), data="PACS")
def pacs(folder: Path) -> Any:
    """Load forty images of PACS and take three steps of TRO on them."""
    source = published("PACS")
    for domain in sorted(path for path in source.iterdir() if path.is_dir()):
        for kind in sorted(path for path in domain.iterdir() if path.is_dir())[:5]:
            place = folder / "PACS" / domain.name / kind.name
            place.mkdir(parents=True)
            for image in sorted(kind.iterdir())[:2]:
                shutil.copy(image, place / image.name)
    benchmark = tr.load_images(folder / "PACS", test="sketch", size=64, progress=False)
    train = benchmark.data.select(benchmark.train)
    x, y = images_on_device(benchmark.store, benchmark.data)
    network = SmallNetwork(len(benchmark.store.classes))
    objective = tr.objectives.TRO(
        tr.Prior.from_weights(dict(zip(benchmark.train, (0.5, 0.3, 0.2), strict=True))), penalty=1.0, step=0.1
    )

    def prepare(x: torch.Tensor, y: torch.Tensor, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.permute(0, 3, 1, 2) / 255.0 * (0.8 + 0.4 * uniforms[:, 0, None, None, None]), y

    batches = Batches(x, y, train, per_group=4, prepare=prepare, draws=1)
    plan = TrainingPlan(rounds=3, unit="steps", learning_rate=1e-3)
    done = fit(network, objective, batches, partial(F.cross_entropy, reduction="none"), plan)
    pixels = x.numpy()
    return {
        "classes": benchmark.store.classes,
        "domains": {name: len(benchmark.data.select([name])) for name in benchmark.data.groups},
        "pixels": {"shape": pixels.shape, "mean": pixels.mean(axis=(1, 2, 3), dtype=np.float64)},
        "losses": [record.loss for record in done.history],
        "weights": [record.weights for record in done.history],
        "parameters": [float(weights.detach().double().sum()) for weights in network.parameters()],
    }


@part("theory", tolerance=1e-6, reason="includes networks trained in single precision, and long runs of projected SGD")
def theory(folder: Path) -> Any:
    """The three theorems at their smallest size."""
    words = ["theory", "--quick", "--seeds", "1", "--json", "--out", str(folder / "theory")]
    return json.loads(run_command(words, folder))
