"""Where a method's prior comes from: one function a kind, one registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toporo.bench.base import Benchmark
from toporo.bench.definitions import Protocol
from toporo.data.grouped import GroupedData
from toporo.errors import SettingError
from toporo.topology.graph import GroupGraph
from toporo.topology.learn import learn_topology
from toporo.topology.prior import Prior

Found = tuple[Prior | None, GroupGraph | None]
#: From settings of :func:`toporo.learn_topology` to the graph of the training groups, by features of an ERM model.
Learn = Callable[..., GroupGraph]


@dataclass(frozen=True)
class Given:
    """What a prior may be made from: the rows trained on, and a function that learns a graph from ERM features."""

    protocol: Protocol
    benchmark: Benchmark
    rows: GroupedData
    seed: int
    learn: Learn | None = None


def make_prior(kind: str | None, given: Given) -> Found:
    """A prior by its kind and, where it was learned, the graph behind it."""
    return (None, None) if kind is None else PRIORS[kind](given)


def _physical(given: Given) -> Prior:
    benchmark = given.benchmark
    return benchmark.graph.prior(benchmark.train, benchmark.test, **given.protocol.priors)


def _data(given: Given) -> Found:
    if given.learn is None:
        raise SettingError("a prior of kind 'data' comes from a network's features: use 'inputs' for other models.")
    graph = given.learn(**given.protocol.data_topology)
    return graph.prior(given.benchmark.train, **given.protocol.priors), graph


def _inputs(given: Given) -> Found:
    settings, how = _for_inputs(given.protocol)
    graph = learn_topology(given.rows.x, given.rows.ids, resamples=0, **settings)
    return graph.prior(given.benchmark.train, **how), graph


def _data_inputs(given: Given) -> Found:
    settings, how = _for_inputs(given.protocol)
    test = given.benchmark.data.select(given.benchmark.test)
    graph = learn_topology(
        given.rows.x, given.rows.ids, test_features=test.x, test_groups=test.ids, resamples=0, **settings
    )
    return graph.prior(given.benchmark.train, given.benchmark.test, **how), graph


def _for_inputs(protocol: Protocol) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings for learning from inputs, and for the prior that follows."""
    settings = dict(protocol.inputs_topology)
    measure = settings.pop("measure", None)
    return settings, dict(protocol.priors) | ({"measure": measure} if measure else {})


#: Kind to function: ``physical`` is the given graph, towards the test groups, ``shuffled`` the same handed to other
#: groups; ``data`` is a graph learned from the ERM features of the training groups, as in the paper, ``inputs`` one
#: learned from their raw inputs, and ``data-inputs`` one from raw inputs of all groups, the test groups' unlabelled.
PRIORS: dict[str, Callable[[Given], Found]] = {
    "uniform": lambda given: (Prior.uniform(given.benchmark.train), None),
    "physical": lambda given: (_physical(given), None),
    "shuffled": lambda given: (_physical(given).shuffled(given.seed), None),
    "data": _data,
    "inputs": _inputs,
    "data-inputs": _data_inputs,
}
