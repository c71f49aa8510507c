"""Protocols small enough to run in a test, and small tables on images and tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from tests.paper.small_network import SmallNet
from tests.paper.tiny_floods import chip_names, make_chip, write_chip, write_floods
from tests.paper.tiny_images import write_tiny
from toporo.data.grouped import GroupedData
from toporo.paper import BENCHMARKS, configuration, image_fits
from toporo.paper.base import VisionChoices
from toporo.paper.domainbed import SPECS
from toporo.paper.protocols import Protocol
from toporo.paper.results import Results
from toporo.paper.runner import reproduce
from toporo.training import Batches, FitResult
from toporo.vision import NETWORKS

CHOICES = VisionChoices(device="cpu", network="resnet18", steps=5, per_group=4, size=16)
FLOODS = VisionChoices(device="cpu", network="unet", steps=3, per_group=2, size=16)


class Found:
    """Reports progress, and checks how many runs were done before."""

    def __init__(self, expected: int) -> None:
        self.expected, self.calls = expected, list[int]()

    def __call__(self, done: int, *_: object) -> None:
        self.calls.append(done)

    def __enter__(self) -> Found:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:
            assert self.calls[0] == self.expected


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, no_data: None) -> Protocol:
    """DG-15 with four epochs, registered under its own name."""
    protocol = replace(BENCHMARKS["dg15"].protocol, rounds=4)
    monkeypatch.setattr(BENCHMARKS["dg15"], "protocol", protocol)
    return protocol


@pytest.fixture
def small_tpt48(monkeypatch: pytest.MonkeyPatch) -> Protocol:
    """TPT-48 with four epochs, and few candidates to choose from."""
    return shrink_tpt48(monkeypatch)


def shrink_tpt48(patch: pytest.MonkeyPatch) -> Protocol:
    """Register TPT-48 with the least of everything that still takes every path."""
    protocol = BENCHMARKS["tpt48"].protocol
    training = {"rounds": 4, "per_group": 50, "evaluate_every": 2}
    protocol = replace(protocol, variants=tuple(replace(v, training=training) for v in protocol.variants))
    patch.setattr(BENCHMARKS["tpt48"], "protocol", protocol)
    patch.setattr(configuration, "LARGEST", 1 / 24)
    patch.setattr(configuration, "PENALTIES", (math.inf, 1.0))
    patch.setattr(configuration, "SPLITS", 1)
    return protocol


@dataclass(frozen=True)
class Training:
    """Rows that a network was trained on, and its weights afterwards."""

    rows: GroupedData
    weights: dict[str, Tensor]


@contextmanager
def trainings_of_images() -> Iterator[list[Training]]:
    """Record the trainings of networks on images, which are small ones in place of ResNet-18, in order."""
    seen: list[Training] = []
    real = image_fits.fit

    def spy(network: nn.Module, objective: Any, batches: Batches, *rest: Any, **more: Any) -> FitResult:
        result = real(network, objective, batches, *rest, **more)
        seen.append(Training(batches.rows, {name: value.clone() for name, value in network.state_dict().items()}))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NETWORKS, "resnet18", partial(SmallNet))
        patch.setattr(image_fits, "fit", spy)
        yield seen


@dataclass(frozen=True)
class Table:
    """Results of a table, and the training of every record."""

    outcome: Results
    data: Path
    out: Path
    trainings: list[Training]

    def find(self, method: str, seed: int, variant: str) -> tuple[dict[str, Any], Training]:
        """Return the record and the training of a run."""
        runs = zip(self.outcome.records, self.trainings, strict=True)
        (one,) = (
            run for run in runs if (run[0]["method"], run[0]["seed"], run[0]["variant"]) == (method, seed, variant)
        )
        return one


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    write_tiny(root, SPECS["pacs"], per_class=5)
    return root


@pytest.fixture(scope="session")
def pacs(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """The whole table of PACS, two seeds."""
    out = tmp_path_factory.mktemp("pacs")
    with trainings_of_images() as seen:
        outcome = reproduce("pacs", out, seeds=2, data=pictures, vision=CHOICES)
    return Table(outcome, pictures, out, seen)


@pytest.fixture(scope="session")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events of which Ghana has no water and Spain no measurement; the others of the eleven have no chips."""
    root = tmp_path_factory.mktemp("flooded")
    bucket = write_floods(root)
    for chip in chip_names():
        image, label = make_chip(chip)
        if chip.startswith("Ghana"):
            write_chip(bucket, chip, image, np.where(label == 1, 0, label).astype(np.int16))
        if chip.startswith("Spain"):
            write_chip(bucket, chip, np.full_like(image, np.nan), label)
    return root


@pytest.fixture(scope="session")
def floods(flooded: Path, tmp_path_factory: pytest.TempPathFactory) -> Table:
    out = tmp_path_factory.mktemp("floods")
    with trainings_of_images() as seen:
        outcome = reproduce("sen1floods11", out, seeds=1, methods=["erm", "tro-data"], data=flooded, vision=FLOODS)
    return Table(outcome, flooded, out, seen)
