"""Fits of methods: priors, targets, and one function per kind of model."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toporo.data import GroupedData, Split
from toporo.errors import DataError, DivergedError, SettingError
from toporo.objectives import OBJECTIVES, Objective, make_objective
from toporo.paper.base import BENCHMARKS, ON_CPU, Benchmark, VisionChoices
from toporo.paper.loaded import BenchmarkData, ByGroup, mean_by_group, mean_of_groups, mse_by_group
from toporo.paper.methods import BenchMethod
from toporo.paper.protocols import Protocol
from toporo.paper.results import Results
from toporo.paper.runs import Run, Store
from toporo.registry import Registry
from toporo.robust import fit_linear
from toporo.topology import GroupGraph, Prior, learn_topology
from toporo.training import MLP, Batches, RoundRecord, TrainingPlan, fit, outputs_of
from toporo.types import Array, Name, Record

#: A prior and, if it was learned, the graph behind it.
PriorAndGraph: TypeAlias = tuple[Prior | None, GroupGraph | None]
#: From settings of :func:`toporo.learn_topology` to the graph of the training groups by features of an ERM model.
Learn: TypeAlias = Callable[..., GroupGraph]


@dataclass(frozen=True)
class Assignment:
    """A run with the data to fit.

    Attributes
    ----------
    run : method, protocol and seed.
    loaded : the data.
    store : folder for checkpoints and files that runs share.
    runtime : device, and initial weights of networks on images.
    """

    run: Run
    loaded: BenchmarkData
    store: Store
    runtime: VisionChoices = ON_CPU

    @property
    def protocol(self) -> Protocol:
        """The protocol of the run."""
        return self.run.protocol

    @property
    def method(self) -> BenchMethod:
        """The method of the run."""
        return self.run.method

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.run.seed

    @property
    def baseline(self) -> BenchMethod:
        """The method whose features topologies are learned from."""
        if self.protocol.baseline is None:
            raise SettingError(f"{self.protocol.benchmark} has no baseline whose features a topology is learned from.")
        return self.protocol.baseline

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark's definition."""
        return BENCHMARKS[self.protocol.benchmark]

    @functools.cached_property
    def train(self) -> GroupedData:
        """All rows of the training groups."""
        return self.loaded.data.select(self.loaded.train)

    @functools.cached_property
    def test(self) -> GroupedData:
        """All rows of the test groups."""
        return self.loaded.data.select(self.loaded.test)

    def checkpoint(self, phase: str) -> Path:
        """Return the path of the checkpoint of a training phase; its folder exists."""
        self.store.folder.mkdir(parents=True, exist_ok=True)
        return self.store.path(self.run.key, f"{phase}.checkpoint")

    def split(self) -> Split:
        """Return the rows of the training groups to train on and to validate on."""
        return self.benchmark.split(self.loaded, self.seed, self.protocol.validation)

    def prior(self, rows: GroupedData, learn: Learn | None = None) -> PriorAndGraph:
        """Return the method's prior, computed from these rows, and its graph if that was learned."""
        kind = self.method.prior
        if kind is None:
            return None, None
        if kind in self.benchmark.priors:
            return self.benchmark.priors[kind](self.loaded), None
        return PRIORS[kind](self, rows, learn)

    def summary(self, by_group: ByGroup) -> dict[str, Any]:
        """Return the metrics of an evaluation from the values of the test groups."""
        if not self.run.fold:
            return self.benchmark.summary(by_group, self.loaded)
        metrics = mean_of_groups(by_group, self.loaded)  # a benchmark's summary may know its own test groups only
        return {self.protocol.whole.key: metrics["test"], **metrics}


@dataclass(frozen=True)
class Fitted:
    """Result of a fit.

    Attributes
    ----------
    history : one entry per evaluated round; a single one for models without rounds, none if training diverged.
    tensors : the model.
    prior, graph, choice : the prior, the learned graph behind it, and how a rule chose it.
    timing : speed of training.
    diverged : error message if training diverged.
    """

    history: list[RoundRecord]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    prior: Prior | None = None
    graph: GroupGraph | None = None
    choice: Mapping[str, Any] | None = None
    timing: Mapping[str, Any] | None = None
    diverged: str | None = None


#: Fit by kind of model.
FITS: Registry[Callable[[Assignment], Fitted]] = Registry("fit")


# ---------------------------------------------------------------------- priors

#: Prior by kind, from an assignment, the rows to train on and a function that learns a graph from features.
PRIORS: Registry[Callable[[Assignment, GroupedData, Learn | None], PriorAndGraph]] = Registry("kind of prior")


@PRIORS.register("uniform")
def _uniform(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    return Prior.uniform(given.loaded.train), None


@PRIORS.register("physical")
def _physical(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    """The prior of the given graph, which sees the adjacency of the test groups."""
    return given.loaded.graph.prior(given.loaded.train, given.loaded.test, **given.protocol.priors), None


@PRIORS.register("shuffled")
def _shuffled(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    """The physical prior, assigned to other groups at random."""
    prior = given.loaded.graph.prior(given.loaded.train, given.loaded.test, **given.protocol.priors)
    return prior.shuffled(given.seed), None


@PRIORS.register("data")
def _data(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    """The prior of a graph learned from the ERM features of the training groups, as in the paper."""
    if learn is None:
        raise SettingError("a prior of kind 'data' comes from a network's features: use 'inputs' for other models.")
    graph = learn(**given.protocol.data_topology)
    return graph.prior(given.loaded.train, **given.protocol.priors), graph


@PRIORS.register("inputs")
def _inputs(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    """The prior of a graph learned from the raw inputs of the training groups."""
    return _from_inputs(given, rows)


@PRIORS.register("data-inputs")
def _data_inputs(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    """The prior of a graph learned from the raw inputs of all groups, those of the test groups unlabelled."""
    return _from_inputs(given, rows, given.test)


def _from_inputs(given: Assignment, rows: GroupedData, test: GroupedData | None = None) -> PriorAndGraph:
    """Return the prior of a graph learned from raw inputs, those of test groups too if they are given."""
    settings, priors = dict(given.protocol.inputs_topology), dict(given.protocol.priors)
    if measure := settings.pop("measure", None):
        priors["measure"] = measure
    if test is not None:
        settings |= {"test_features": test.x, "test_groups": test.ids}
    graph = learn_topology(rows.x, rows.ids, resamples=0, **settings)
    return graph.prior(given.loaded.train, None if test is None else given.loaded.test, **priors), graph


# ---------------------------------------------------------------------- networks on plain rows


@dataclass(frozen=True)
class TargetKind:
    """The parts in which classification and regression differ.

    Attributes
    ----------
    loss : per-sample loss ``(outputs, targets) -> (n,)``.
    outputs : number of outputs of a network.
    by_group : accuracy or error in every group from a network's outputs for its rows.
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    outputs: Callable[[GroupedData], int]
    by_group: Callable[[npt.NDArray[Any], GroupedData], ByGroup]


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs.reshape(targets.shape) - targets) ** 2).reshape(len(targets), -1).sum(dim=1)


def _floored_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy as in the paper's published code: no probability counts as less than 1e-4."""
    return F.nll_loss((outputs.softmax(dim=1) + 1e-4).log(), targets, reduction="none")


def _accuracy(outputs: npt.NDArray[Any], data: GroupedData) -> ByGroup:
    return mean_by_group(outputs.argmax(axis=1) == data.y, data)


_CLASSES = TargetKind(
    loss=functools.partial(F.cross_entropy, reduction="none"),
    outputs=lambda data: int(data.y.max()) + 1,
    by_group=_accuracy,
)
#: Kind of target by task.
TARGETS: dict[str, TargetKind] = {
    "classification": _CLASSES,
    "floored-classification": replace(_CLASSES, loss=_floored_cross_entropy),
    "regression": TargetKind(
        loss=_squared_error,
        outputs=lambda data: int(np.prod(data.y.shape[1:], dtype=int)),
        by_group=lambda outputs, data: mse_by_group(outputs.reshape(data.y.shape), data),
    ),
}


def build_model(protocol: Protocol, loaded: BenchmarkData, seed: int) -> MLP:
    """Return the protocol's network for a benchmark, freshly initialised."""
    data = loaded.data
    return MLP(data.x.shape[1], TARGETS[protocol.task].outputs(data), protocol.hidden, seed=seed, **protocol.network)


def class_probabilities(part: Results, record: Record, points: npt.NDArray[Any]) -> Array:
    """Return the class probabilities of a run's network for these inputs, of shape ``(points, classes)``."""
    model = build_model(part.protocol, part.loaded, record["seed"])
    tensors = part.store.tensors(record["key"])
    try:
        model.load_state_dict({name: torch.as_tensor(value) for name, value in tensors.items()})
    except RuntimeError as error:
        path = part.store.path(record["key"], "safetensors")
        raise DataError(f"{path} has another network: delete it, and run again ({error}).") from None
    probabilities: Array = model(torch.as_tensor(points)).detach().softmax(dim=1).numpy()
    return probabilities


def method_objective(
    method: BenchMethod, batches: Batches, prior: Prior | None, network: nn.Module, plan: TrainingPlan
) -> Objective:
    """Return the method's objective for a run of this plan on these batches.

    It gets the number of features and the learning rate if its constructor takes them. A ``warm_up_share`` among the
    method's settings becomes a number of steps.
    """
    if method.objective is None:
        raise SettingError(f"the method {method.name} has no objective to train a network with.")
    of_run: dict[str, Any] = {"width": network.width, "learning_rate": plan.learning_rate}
    accepted = inspect.signature(OBJECTIVES[method.objective]).parameters
    arguments = {name: value for name, value in of_run.items() if name in accepted} | dict(method.settings)
    if (share := arguments.pop("warm_up_share", None)) is not None:
        arguments["warm_up"] = round(share * batches.steps(plan))
    return make_objective(method.objective, batches.rows.groups, prior, **arguments)


@FITS.register("mlp")
def _network(given: Assignment) -> Fitted:
    split = given.split()
    prior, graph = _network_prior(given, split)
    model = build_model(given.protocol, given.loaded, given.seed)
    by_group = TARGETS[given.protocol.task].by_group

    def evaluate(network: nn.Module) -> dict[str, Any]:
        held_out = by_group(outputs_of(network, split.validation), split.validation)
        metrics = given.summary(by_group(outputs_of(network, given.test), given.test))
        return {"validation": float(np.mean(list(held_out.values()))), **metrics}

    try:
        history = _train(given, split, model, given.method, prior, "main", evaluate=evaluate)
    except DivergedError as error:
        return Fitted([], prior=prior, graph=graph, diverged=str(error))
    return Fitted([epoch for epoch in history if epoch.metrics], model.state_dict(), prior, graph)


def _network_prior(given: Assignment, split: Split) -> PriorAndGraph:
    """Return the prior of a network's method; if it is learned from features, train the baseline for them."""

    def learn(**settings: Any) -> GroupGraph:
        model = build_model(given.protocol, given.loaded, given.seed)
        _train(given, split, model, given.baseline, None, "features")
        features = outputs_of(model, split.train, given.runtime.device, features=True)
        return learn_topology(features, split.train.ids, resamples=0, **settings)

    return given.prior(split.train, learn)


def _train(
    given: Assignment,
    split: Split,
    model: nn.Module,
    method: BenchMethod,
    prior: Prior | None,
    phase: str,
    evaluate: Callable[[nn.Module], dict[str, Any]] | None = None,
) -> list[RoundRecord]:
    """Train a network by epochs under the protocol."""
    protocol = given.protocol
    plan = TrainingPlan(
        rounds=protocol.rounds,
        learning_rate=protocol.learning_rate,
        seed=given.seed,
        half_life=protocol.half_life,
        evaluate_every=protocol.evaluate_every,
        device=given.runtime.device,
    )
    batches = Batches.of(split.train, protocol.per_group, paired=protocol.paired)
    objective = method_objective(method, batches, prior, model, plan)
    loss = TARGETS[protocol.task].loss
    return fit(model, objective, batches, loss, plan, evaluate=evaluate, checkpoint=given.checkpoint(phase)).history


# ---------------------------------------------------------------------- regressions without rounds


def _measured(
    given: Assignment, predict: Callable[[Array], Array], weights: Mapping[Name, float] | None = None, **kept: Any
) -> Fitted:
    """Return the only evaluation of a regression without rounds: its training loss, weights and errors."""
    loss = float(np.mean(list(mse_by_group(predict(given.train.x), given.train).values())))
    metrics = given.summary(mse_by_group(predict(given.test.x), given.test))
    return Fitted([RoundRecord(1, loss, dict(weights or {}), metrics)], **kept)


@FITS.register("linear")
def _linear(given: Assignment) -> Fitted:
    """Solve the convex problem exactly on all rows of the training groups: there is no round to validate."""
    prior, graph = given.prior(given.train)
    return _solved(given, prior, given.method.settings, graph=graph)


@FITS.register("linear-chosen")
def _linear_chosen(given: Assignment) -> Fitted:
    """Solve it under a prior and a penalty that a rule chooses without test labels."""
    from toporo.paper.configuration import choose_configuration  # few methods need it

    choice = choose_configuration(
        given.loaded.data, given.loaded.graph, given.loaded.train, given.loaded.test, **given.method.settings
    )
    return _solved(given, choice.prior, choice.settings, choice=choice.to_dict())


def _solved(given: Assignment, prior: Prior | None, settings: Mapping[str, Any], **kept: Any) -> Fitted:
    fit = fit_linear(given.train.x, given.train.y, given.train.ids, prior, **settings)
    tensors = {"coef": torch.as_tensor(fit.coef), "intercept": torch.as_tensor(fit.intercept)}
    return _measured(given, fit.predict, fit.weights, tensors=tensors, prior=prior, **kept)


@FITS.register("rule")
def _rule_of_thumb(given: Assignment) -> Fitted:
    """Apply a written prediction rule, which is not fitted: the benchmark's rule of the method's name."""
    return _measured(given, given.benchmark.rules[given.method.name](given.train, given.loaded))
