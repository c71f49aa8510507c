"""What a fit is given, and what it leaves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from toporo.bench.base import Benchmark
from toporo.bench.definitions import Protocol
from toporo.bench.methods import Method
from toporo.bench.priors import Given, Learn, make_prior
from toporo.data.grouped import GroupedData
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.training import RoundRecord


@dataclass(frozen=True)
class Runtime:
    """Where and with what networks for images are trained; what of it decides a result is in the protocol too.

    Attributes
    ----------
    device : ``"cpu"`` or ``"cuda"``.
    weights, style : see :func:`toporo.models.read_weights`; None is a random start.
    keep_models : whether to store every run's network.
    """

    device: str = "cpu"
    weights: str | None = None
    style: str | None = None
    keep_models: bool = False


@dataclass(frozen=True)
class Assignment:
    """What is to be fitted: a method, under a protocol, to a benchmark.

    ``checkpoint`` gives a phase's file; ``shared`` one for what all runs of a seed have from the ERM run among them.
    """

    protocol: Protocol
    method: Method
    seed: int
    benchmark: Benchmark
    checkpoint: Callable[[str], Path]
    shared: Callable[[str], Path]
    runtime: Runtime = Runtime()

    @functools.cached_property
    def train(self) -> GroupedData:
        """All rows of the training groups."""
        return self.benchmark.data.select(self.benchmark.train)

    @functools.cached_property
    def test(self) -> GroupedData:
        """All rows of the test groups."""
        return self.benchmark.data.select(self.benchmark.test)

    def prior(self, rows: GroupedData, learn: Learn | None = None) -> tuple[Prior | None, GroupGraph | None]:
        """The method's prior, made from these rows, and the graph behind it where it was learned."""
        return make_prior(self.method.prior, Given(self.protocol, self.benchmark, rows, self.seed, learn))


@dataclass(frozen=True)
class Fitted:
    """What a fit leaves: an entry an evaluated epoch (one where there are none), the model, and how it was weighed.

    ``samples`` are predictions for a report to show, ``timing`` how fast training was.
    """

    history: list[RoundRecord]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    prior: Prior | None = None
    graph: GroupGraph | None = None
    choice: Mapping[str, Any] | None = None
    samples: Mapping[str, Any] | None = None
    timing: Mapping[str, Any] | None = None
