"""How a method of each kind of model is fitted and measured: one function a kind, one registry."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from toporo.bench.assignment import Assignment, Fitted
from toporo.bench.base import Benchmark
from toporo.bench.deep_fits import fit_images, fit_segmentation
from toporo.bench.definitions import Protocol
from toporo.bench.methods import METHODS, Method
from toporo.bench.tasks import TASKS
from toporo.bench.tpt48 import mse_by_group
from toporo.choice.penalty import choose_configuration
from toporo.data.grouped import GroupedData, Split
from toporo.models import MLP
from toporo.objectives import make_objective
from toporo.robust.linear import fit_linear
from toporo.topology.graph import GroupGraph
from toporo.topology.learn import learn_topology
from toporo.topology.prior import Prior
from toporo.training import EpochRecord, TrainSettings, features_of, train

# ---------------------------------------------------------------------- networks


def build_model(protocol: Protocol, benchmark: Benchmark, seed: int) -> MLP:
    """The protocol's network for a benchmark, freshly initialised."""
    data = benchmark.data
    return MLP(data.x.shape[1], TASKS[protocol.task].outputs(data), protocol.hidden, seed=seed)


def _network(given: Assignment) -> Fitted:
    split = given.train.split(given.protocol.validation, given.seed)

    def learn(**settings: Any) -> GroupGraph:
        model = build_model(given.protocol, given.benchmark, given.seed)
        _train(given, split, model, METHODS["erm"], None, given.checkpoint("features"))
        return learn_topology(features_of(model, split.train), split.train.ids, resamples=0, **settings)

    prior, graph = given.prior(split.train, learn)
    model = build_model(given.protocol, given.benchmark, given.seed)
    history = _train(given, split, model, given.method, prior, given.checkpoint("main"))
    return Fitted([epoch for epoch in history if epoch.metrics], model.state_dict(), prior, graph)


def _train(
    given: Assignment, split: Split, model: nn.Module, method: Method, prior: Prior | None, checkpoint: Path
) -> list[EpochRecord]:
    protocol = given.protocol
    objective = make_objective(method.objective or "erm", split.train.groups, prior, **method.settings)
    settings = TrainSettings(
        epochs=protocol.epochs, per_group=protocol.per_group, learning_rate=protocol.learning_rate, seed=given.seed
    )
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    return train(
        model,
        objective,
        split.train,
        TASKS[protocol.task].loss,
        settings,
        evaluate=lambda network: _evaluate(network, given, split.validation),
        evaluate_every=protocol.evaluate_every,
        checkpoint=checkpoint,
        checkpoint_every=max(25, protocol.epochs // 8),
    )


def _evaluate(model: nn.Module, given: Assignment, validation: GroupedData) -> dict[str, Any]:
    task = TASKS[given.protocol.task]
    held_out = task.by_group(model, validation)
    found = task.summary(task.by_group(model, given.test), given.benchmark)
    return {"validation": float(np.mean(list(held_out.values()))), **found}


# ---------------------------------------------------------------------- models without epochs


def _measured(
    given: Assignment,
    predict: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
    weights: Mapping[Hashable, float] | None = None,
    **kept: Any,
) -> Fitted:
    """The one entry of a regression without epochs: its training loss, its weights, its errors."""
    loss = float(np.mean(list(mse_by_group(predict(given.train.x), given.train).values())))
    errors = mse_by_group(predict(given.test.x), given.test)
    metrics = TASKS[given.protocol.task].summary(errors, given.benchmark)
    return Fitted([EpochRecord(1, loss, dict(weights or {}), metrics)], **kept)


def _linear(given: Assignment) -> Fitted:
    """The convex problem solved exactly, on all rows of the training groups: there is no epoch to validate."""
    prior, graph = given.prior(given.train)
    return _solved(given, prior, given.method.settings, graph=graph)


def _linear_chosen(given: Assignment) -> Fitted:
    """The same under a prior and a penalty that a rule chooses without a label of any test group."""
    case = given.benchmark
    choice = choose_configuration(case.data, case.graph, case.train, case.test, **given.method.settings)
    return _solved(given, choice.prior, choice.settings, choice=choice.to_dict())


def _solved(given: Assignment, prior: Prior | None, settings: Mapping[str, Any], **kept: Any) -> Fitted:
    fit = fit_linear(given.train.x, given.train.y, given.train.ids, prior, **settings)
    tensors = {"coef": torch.as_tensor(fit.coef), "intercept": torch.as_tensor(fit.intercept)}
    return _measured(given, fit.predict, fit.weights, tensors=tensors, prior=prior, **kept)


def _persistence(given: Assignment) -> Fitted:
    """The last month that is given, for every month to come."""
    ahead = given.train.y.shape[1]
    return _measured(given, lambda x: np.repeat(x[:, -1:], ahead, axis=1))


def _climatology(given: Assignment) -> Fitted:
    """What the training states' months to come were on average: for test windows, the mean July to December."""
    step = SLIDES[given.benchmark.about["window"]]
    rows = np.concatenate([given.train.rows(name)[::step] for name in given.train.groups])
    usual = given.train.y[rows].mean(axis=0)
    return _measured(
        given, lambda x: np.broadcast_to(usual, (len(x), len(usual))), tensors={"mean": torch.as_tensor(usual)}
    )


#: Windows of a training state from one that starts in January to the next.
SLIDES = {"season": 1, "sliding": 12}

#: Kind of model to how it is fitted.
FITS: dict[str, Callable[[Assignment], Fitted]] = {
    "mlp": _network,
    "images": fit_images,
    "segmentation": fit_segmentation,
    "linear": _linear,
    "linear-chosen": _linear_chosen,
    "persistence": _persistence,
    "climatology": _climatology,
}
