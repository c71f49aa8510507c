"""Fits of methods: priors, targets, and one function per kind of model."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toporo.data import GroupedData, Split
from toporo.errors import DivergedError, SettingError
from toporo.objectives import OBJECTIVES, Objective, make_objective
from toporo.paper.base import BENCHMARKS, ON_CPU, Benchmark, VisionChoices
from toporo.paper.loaded import BenchmarkData, ByGroup, mean_by_group, mse_by_group
from toporo.paper.methods import BenchMethod
from toporo.paper.protocols import Protocol
from toporo.paper.results import Results
from toporo.paper.runs import Run, Store
from toporo.registry import Registry
from toporo.robust import fit_linear
from toporo.text import number_to_json
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
    def baseline(self) -> BenchMethod:
        """The method whose features topologies are learned from."""
        name = self.run.protocol.benchmark
        if self.run.protocol.baseline is None:
            raise SettingError(f"{name} has no baseline whose features a topology is learned from.")
        return self.run.protocol.baseline

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark's definition."""
        return BENCHMARKS[self.run.protocol.benchmark]

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
        return self.benchmark.split(self.loaded, self.run.seed, self.run.protocol.validation)

    def prior(self, rows: GroupedData, learn: Learn | None = None) -> PriorAndGraph:
        """Return the method's prior, computed from these rows, and its graph if that was learned."""
        kind = self.run.method.prior
        if kind is None:
            return None, None
        if kind in self.benchmark.priors:
            return self.benchmark.priors[kind](self.loaded), None
        return PRIORS[kind](self, rows, learn)


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
    return given.loaded.graph.prior(given.loaded.train, given.loaded.test, **given.run.protocol.priors), None


@PRIORS.register("shuffled")
def _shuffled(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    """The physical prior, assigned to other groups at random."""
    prior = given.loaded.graph.prior(given.loaded.train, given.loaded.test, **given.run.protocol.priors)
    return prior.shuffled(given.run.seed), None


@PRIORS.register("data")
def _data(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    """The prior of a graph learned from the ERM features of the training groups, as in the paper."""
    if learn is None:
        raise SettingError("a prior of kind 'data' comes from a network's features: use 'inputs' for other models.")
    graph = learn(**given.run.protocol.data_topology)
    return graph.prior(given.loaded.train, **given.run.protocol.priors), graph


def _inputs(given: Assignment, rows: GroupedData, learn: Any, test: GroupedData | None = None) -> PriorAndGraph:
    """The prior of a graph learned from the raw inputs of the training groups, and of test groups if they are given."""
    settings, priors = dict(given.run.protocol.inputs_topology), dict(given.run.protocol.priors)
    if measure := settings.pop("measure", None):
        priors["measure"] = measure
    features, names = rows.x, rows.ids.names
    if test is not None:
        features, names = np.concatenate([rows.x, test.x]), [*names, *test.ids.names]
        settings["test_groups"] = test.ids.groups
    graph = learn_topology(features, names, resamples=0, **settings)
    return graph.prior(given.loaded.train, None if test is None else given.loaded.test, **priors), graph


PRIORS.register("inputs")(_inputs)
PRIORS.register("data-inputs")(lambda given, rows, learn: _inputs(given, rows, learn, given.test))


# ---------------------------------------------------------------------- networks on plain rows


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs.reshape(targets.shape) - targets) ** 2).reshape(len(targets), -1).sum(dim=1)


def _floored_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy as in the paper's published code: no probability counts as less than 1e-4."""
    return F.nll_loss((outputs.softmax(dim=1) + 1e-4).log(), targets, reduction="none")


#: Loss per sample, ``(outputs, targets) -> (n,)``, by task.
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "classification": functools.partial(F.cross_entropy, reduction="none"),
    "floored-classification": _floored_cross_entropy,
    "regression": _squared_error,
}


def _score_by_group(task: str, outputs: npt.NDArray[Any], data: GroupedData) -> ByGroup:
    """Return the accuracy, or the error in a regression, of a network's outputs for these rows."""
    if task == "regression":
        return mse_by_group(outputs.reshape(data.y.shape), data)
    return mean_by_group(outputs.argmax(axis=1) == data.y, data)


def build_model(protocol: Protocol, loaded: BenchmarkData, seed: int) -> MLP:
    """Return the protocol's network for a benchmark, freshly initialised."""
    x, y = loaded.data.x, loaded.data.y
    outputs = int(np.prod(y.shape[1:], dtype=int)) if protocol.task == "regression" else int(y.max()) + 1
    return MLP(x.shape[1], outputs, protocol.hidden, seed=seed, **protocol.network)


def class_probabilities(part: Results, record: Record, points: npt.NDArray[Any]) -> Array:
    """Return the class probabilities of a run's network for these inputs, of shape ``(points, classes)``."""
    model = build_model(part.protocol, part.loaded, record["seed"])
    tensors = part.store.tensors(record["key"])
    model.load_state_dict({name: torch.as_tensor(value) for name, value in tensors.items()})
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
    run = given.run
    model = build_model(run.protocol, given.loaded, run.seed)
    by_group = functools.partial(_score_by_group, run.protocol.task)

    def learn(**settings: Any) -> GroupGraph:
        """Learn a graph from the features of the baseline, trained for that."""
        teacher = build_model(run.protocol, given.loaded, run.seed)
        _train(given, split, teacher, given.baseline, None, "features")
        features = outputs_of(teacher, split.train, given.runtime.device, features=True)
        return learn_topology(features, split.train.ids, resamples=0, **settings)

    prior, graph = given.prior(split.train, learn)

    def evaluate(network: nn.Module) -> dict[str, Any]:
        held_out = by_group(outputs_of(network, split.validation), split.validation)
        test = by_group(outputs_of(network, given.test), given.test)
        return {"validation": float(np.mean(list(held_out.values()))), **given.benchmark.summary(test, given.loaded)}

    try:
        history = _train(given, split, model, run.method, prior, "main", evaluate=evaluate)
    except DivergedError as error:
        return Fitted([], prior=prior, graph=graph, diverged=str(error))
    return Fitted([epoch for epoch in history if epoch.metrics], model.state_dict(), prior, graph)


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
    protocol = given.run.protocol
    plan = TrainingPlan(
        rounds=protocol.rounds,
        learning_rate=protocol.learning_rate,
        seed=given.run.seed,
        half_life=protocol.half_life,
        evaluate_every=protocol.evaluate_every,
        device=given.runtime.device,
    )
    batches = Batches.of(split.train, protocol.per_group, paired=protocol.paired)
    objective = method_objective(method, batches, prior, model, plan)
    loss = LOSSES[protocol.task]
    return fit(model, objective, batches, loss, plan, evaluate=evaluate, checkpoint=given.checkpoint(phase)).history


# ---------------------------------------------------------------------- regressions without rounds


def _measured(
    given: Assignment, predict: Callable[[Array], Array], weights: Mapping[Name, float] | None = None, **kept: Any
) -> Fitted:
    """Return the only evaluation of a regression without rounds: its training loss, weights and errors."""
    loss = float(np.mean(list(mse_by_group(predict(given.train.x), given.train).values())))
    metrics = given.benchmark.summary(mse_by_group(predict(given.test.x), given.test), given.loaded)
    return Fitted([RoundRecord(1, loss, dict(weights or {}), metrics)], **kept)


@FITS.register("linear")
def _linear(given: Assignment) -> Fitted:
    """Solve the convex problem exactly on all rows of the training groups: there is no round to validate."""
    prior, graph = given.prior(given.train)
    return _solved(given, prior, given.run.method.settings, graph=graph)


@FITS.register("linear-chosen")
def _linear_chosen(given: Assignment) -> Fitted:
    """Solve it under a prior and a penalty that a rule chooses without test labels."""
    from toporo.paper.configuration import choose_configuration  # few methods need it

    choice = choose_configuration(given.train, given.loaded.graph, given.loaded.test, **given.run.method.settings)
    settings = {"penalty": choice.penalty, "ridge": given.run.method.settings["ridge"]}
    chosen = {"measure": choice.measure, "penalty": number_to_json(choice.penalty)}
    return _solved(given, choice.prior, settings, choice=chosen)


def _solved(given: Assignment, prior: Prior | None, settings: Mapping[str, Any], **kept: Any) -> Fitted:
    fit = fit_linear(given.train.x, given.train.y, given.train.ids, prior, **settings)
    tensors = {"coef": torch.as_tensor(fit.coef), "intercept": torch.as_tensor(fit.intercept)}
    return _measured(given, fit.predict, fit.weights, tensors=tensors, prior=prior, **kept)


@FITS.register("rule")
def _rule_of_thumb(given: Assignment) -> Fitted:
    """Apply a written prediction rule, which is not fitted: the benchmark's rule of the method's name."""
    return _measured(given, given.benchmark.rules[given.run.method.name](given.train, given.loaded))
