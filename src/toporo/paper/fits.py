"""How a method is fitted and measured: where its prior comes from, what its targets are, one function per model."""

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

from toporo.choice.penalty import choose_configuration
from toporo.data.grouped import GroupedData, Split
from toporo.errors import DataError, SettingError
from toporo.objectives import OBJECTIVES, Objective, make_objective
from toporo.paper.base import BENCHMARKS, Benchmark
from toporo.paper.loaded import BenchmarkData, ByGroup, mse_by_group
from toporo.paper.protocols import BENCH_METHODS, BenchMethod, Protocol
from toporo.paper.results import Job
from toporo.registry import Registry
from toporo.robust.linear import fit_linear
from toporo.topology.graph import GroupGraph
from toporo.topology.learn import learn_topology
from toporo.topology.prior import Prior
from toporo.training import MLP, Batches, RoundRecord, TrainingPlan, fit, outputs_of
from toporo.types import Array, Name

#: A prior and, where it was learned, the graph behind it.
PriorAndGraph: TypeAlias = tuple[Prior | None, GroupGraph | None]
#: From settings of :func:`toporo.learn_topology` to the graph of the training groups, by features of an ERM model.
Learn: TypeAlias = Callable[..., GroupGraph]


@dataclass(frozen=True)
class Runtime:
    """Where and with what networks for images are trained; what of it decides a result is in the protocol too.

    Attributes
    ----------
    device : ``"cpu"`` or ``"cuda"``.
    weights, style : see :func:`toporo.vision.read_weights`; None is a random start.
    keep_models : whether to store every run's network.
    """

    device: str = "cpu"
    weights: str | None = None
    style: str | None = None
    keep_models: bool = False


@dataclass(frozen=True)
class Assignment:
    """What is to be fitted: a method, under a protocol, to a benchmark's data.

    Attributes
    ----------
    protocol, method, seed, loaded : what decides the outcome.
    checkpoint : from a phase to its file.
    shared : from a name to the file that all runs of a seed share, made by the ERM run among them.
    runtime : for networks on images.
    """

    protocol: Protocol
    method: BenchMethod
    seed: int
    loaded: BenchmarkData
    checkpoint: Callable[[str], Path]
    shared: Callable[[str], Path]
    runtime: Runtime = Runtime()

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

    def split(self) -> Split:
        """Rows of the training groups to train on and to validate on."""
        return self.benchmark.split(self.loaded, self.seed, self.protocol.validation)

    def prior(self, rows: GroupedData, learn: Learn | None = None) -> PriorAndGraph:
        """The method's prior, made from these rows, and the graph behind it where it was learned."""
        kind = self.method.prior
        if kind is None:
            return None, None
        if kind in self.benchmark.priors:
            return self.benchmark.priors[kind](self.loaded), None
        return PRIORS[kind](self, rows, learn)


@dataclass(frozen=True)
class Fitted:
    """What a fit leaves.

    Attributes
    ----------
    history : one entry per evaluated round; a single one where there are no rounds.
    tensors : the model.
    prior, graph, choice : how groups were weighed, and how that was chosen.
    samples : predictions for a report to show.
    timing : how fast training was.
    """

    history: list[RoundRecord]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    prior: Prior | None = None
    graph: GroupGraph | None = None
    choice: Mapping[str, Any] | None = None
    samples: Mapping[str, Any] | None = None
    timing: Mapping[str, Any] | None = None


#: Kind of model to how it is fitted.
FITS: Registry[Callable[[Assignment], Fitted]] = Registry("fit")


# ---------------------------------------------------------------------- priors

#: Kind of prior to how it is made from an assignment, the rows trained on and a function that learns from features.
PRIORS: Registry[Callable[[Assignment, GroupedData, Learn | None], PriorAndGraph]] = Registry("kind of prior")


@PRIORS.register("uniform")
def _uniform(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    return Prior.uniform(given.loaded.train), None


@PRIORS.register("physical")
def _physical(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    """The given graph, looking at the test groups."""
    return given.loaded.graph.prior(given.loaded.train, given.loaded.test, **given.protocol.priors), None


@PRIORS.register("shuffled")
def _shuffled(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    """The physical one handed to other groups."""
    prior = given.loaded.graph.prior(given.loaded.train, given.loaded.test, **given.protocol.priors)
    return prior.shuffled(given.seed), None


@PRIORS.register("data")
def _data(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    """A graph learned from the ERM features of the training groups, as in the paper."""
    if learn is None:
        raise SettingError("a prior of kind 'data' comes from a network's features: use 'inputs' for other models.")
    graph = learn(**given.protocol.data_topology)
    return graph.prior(given.loaded.train, **given.protocol.priors), graph


@PRIORS.register("inputs")
def _inputs(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    """A graph learned from the raw inputs of the training groups."""
    settings, how = _for_inputs(given.protocol)
    graph = learn_topology(rows.x, rows.ids, resamples=0, **settings)
    return graph.prior(given.loaded.train, **how), graph


@PRIORS.register("data-inputs")
def _data_inputs(given: Assignment, rows: GroupedData, learn: Learn | None) -> PriorAndGraph:
    """A graph learned from raw inputs of all groups, those of the test groups unlabelled."""
    settings, how = _for_inputs(given.protocol)
    graph = learn_topology(
        rows.x, rows.ids, test_features=given.test.x, test_groups=given.test.ids, resamples=0, **settings
    )
    return graph.prior(given.loaded.train, given.loaded.test, **how), graph


def _for_inputs(protocol: Protocol) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings for learning from inputs, and for the prior that follows."""
    settings = dict(protocol.inputs_topology)
    measure = settings.pop("measure", None)
    return settings, dict(protocol.priors) | ({"measure": measure} if measure else {})


# ---------------------------------------------------------------------- networks on plain rows


@dataclass(frozen=True)
class TargetKind:
    """What classification and regression differ in.

    Attributes
    ----------
    loss : per-sample loss ``(outputs, targets) -> (n,)``.
    outputs : how many outputs a network needs.
    by_group : accuracy or error in every group, from a network's outputs for its rows.
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    outputs: Callable[[GroupedData], int]
    by_group: Callable[[npt.NDArray[Any], GroupedData], ByGroup]


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs.reshape(targets.shape) - targets) ** 2).reshape(len(targets), -1).sum(dim=1)


def _floored_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """As the published code of the paper has it: no probability counts as less than 1e-4."""
    return F.nll_loss((outputs.softmax(dim=1) + 1e-4).log(), targets, reduction="none")


def _accuracy(outputs: npt.NDArray[Any], data: GroupedData) -> ByGroup:
    right = np.bincount(data.codes, outputs.argmax(axis=1) == data.y, len(data.groups))
    return data.groups.named((right / np.bincount(data.codes, minlength=len(data.groups))).tolist())


_CLASSES = TargetKind(
    loss=functools.partial(F.cross_entropy, reduction="none"),
    outputs=lambda data: int(data.y.max()) + 1,
    by_group=_accuracy,
)
#: Task to what its targets are.
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
    """The protocol's network for a benchmark, freshly initialised."""
    data = loaded.data
    return MLP(data.x.shape[1], TARGETS[protocol.task].outputs(data), protocol.hidden, seed=seed, **protocol.network)


def class_probabilities(job: Job, loaded: BenchmarkData, out: Path, points: npt.NDArray[Any]) -> Array:
    """What the network that a run left in the folder of results makes of these inputs: ``(points, classes)``."""
    model = build_model(job.protocol, loaded, job.seed)
    try:
        model.load_state_dict({name: torch.as_tensor(value) for name, value in job.read_tensors(out).items()})
    except RuntimeError as error:
        raise DataError(f"{job.model_path(out)} has another network: delete it, and run again ({error}).") from None
    probabilities: Array = model(torch.as_tensor(points)).detach().softmax(dim=1).numpy()
    return probabilities


def method_objective(
    method: BenchMethod, batches: Batches, prior: Prior | None, network: nn.Module, plan: TrainingPlan
) -> Objective:
    """The method's objective for a run of this plan on these batches.

    It gets the number of features and the learning rate if its constructor takes them. A ``warm_up_share`` among the
    method's settings becomes a number of steps.
    """
    name = method.objective or "erm"
    known: dict[str, Any] = {"width": network.width, "learning_rate": plan.learning_rate}
    wanted = inspect.signature(OBJECTIVES[name]).parameters
    arguments = {key: value for key, value in known.items() if key in wanted} | dict(method.settings)
    if (share := arguments.pop("warm_up_share", None)) is not None:
        arguments["warm_up"] = round(share * batches.steps(plan))
    return make_objective(name, batches.rows.groups, prior, **arguments)


@FITS.register("mlp")
def _network(given: Assignment) -> Fitted:
    split = given.split()
    prior, graph = network_prior(given, split)
    model = build_model(given.protocol, given.loaded, given.seed)
    history = train_network(
        given,
        split,
        model,
        given.method,
        prior,
        evaluate=lambda network: _evaluate(network, given, split.validation),
        checkpoint=given.checkpoint("main"),
    )
    return Fitted([epoch for epoch in history if epoch.metrics], model.state_dict(), prior, graph)


def network_prior(given: Assignment, split: Split) -> PriorAndGraph:
    """The prior of a network's method; where it is learned from features, an ERM network is trained for them."""

    def learn(**settings: Any) -> GroupGraph:
        model = build_model(given.protocol, given.loaded, given.seed)
        # Not evaluated: where training groups stand for test groups, a benchmark's summary knows nothing of them.
        train_network(given, split, model, BENCH_METHODS["erm"], None, checkpoint=given.checkpoint("features"))
        features = outputs_of(model, split.train, given.runtime.device, features=True)
        return learn_topology(features, split.train.ids, resamples=0, **settings)

    return given.prior(split.train, learn)


def train_network(
    given: Assignment,
    split: Split,
    model: nn.Module,
    method: BenchMethod,
    prior: Prior | None,
    *,
    evaluate: Callable[[nn.Module], dict[str, Any]] | None = None,
    on_record: Callable[[RoundRecord], None] | None = None,
    checkpoint: Path | None = None,
) -> list[RoundRecord]:
    """Train a network by epochs, as the protocol says."""
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
    if checkpoint is not None:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
    return fit(
        model,
        method_objective(method, batches, prior, model, plan),
        batches,
        TARGETS[protocol.task].loss,
        plan,
        evaluate=evaluate,
        on_record=on_record,
        checkpoint=checkpoint,
    ).history


def _evaluate(model: nn.Module, given: Assignment, validation: GroupedData) -> dict[str, Any]:
    by_group = TARGETS[given.protocol.task].by_group
    held_out = by_group(outputs_of(model, validation), validation)
    metrics = given.benchmark.summary(by_group(outputs_of(model, given.test), given.test), given.loaded)
    return {"validation": float(np.mean(list(held_out.values()))), **metrics}


# ---------------------------------------------------------------------- regressions without rounds


def _measured(
    given: Assignment, predict: Callable[[Array], Array], weights: Mapping[Name, float] | None = None, **kept: Any
) -> Fitted:
    """The one entry of a regression without rounds: its training loss, its weights, its errors."""
    loss = float(np.mean(list(mse_by_group(predict(given.train.x), given.train).values())))
    metrics = given.benchmark.summary(mse_by_group(predict(given.test.x), given.test), given.loaded)
    return Fitted([RoundRecord(1, loss, dict(weights or {}), metrics)], **kept)


@FITS.register("linear")
def _linear(given: Assignment) -> Fitted:
    """The convex problem solved exactly, on all rows of the training groups: there is no round to validate."""
    prior, graph = given.prior(given.train)
    return _solved(given, prior, given.method.settings, graph=graph)


@FITS.register("linear-chosen")
def _linear_chosen(given: Assignment) -> Fitted:
    """The same under a prior and a penalty that a rule chooses without a label of any test group."""
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
    """A prediction that is written down, not fitted: the benchmark's rule of the method's name."""
    rule = given.benchmark.rules[given.method.name](given.train, given.loaded)
    return _measured(given, rule.predict, tensors={name: torch.as_tensor(value) for name, value in rule.kept.items()})
