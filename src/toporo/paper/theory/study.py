"""A study of the three theorems on a benchmark, which ``toporo theory`` runs and reports."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import nn

from toporo.data import GroupedData
from toporo.machine import one_thread
from toporo.objectives import TRO, GroupDRO, WeightedObjective
from toporo.paper.base import BENCHMARKS, load_dataset
from toporo.paper.theory.ball import CONVEX, BallProblem
from toporo.paper.theory.bound import BoundBreakdown, bound_breakdown
from toporo.paper.theory.convergence import measure_convergence
from toporo.paper.theory.rates import Rate
from toporo.paper.theory.stationarity import measure_stationarity, training_stationarity
from toporo.progress import tracked
from toporo.topology import Prior
from toporo.training import MLP, Batches, TrainingPlan, fit
from toporo.types import Array, Name

SCHEMA = "toporo.theory/3"
#: Methods compared, with their λ.
METHODS = {"group DRO": 0.0, "TRO (λ=1)": 1.0}
#: λ for which Theorem 2's bound is evaluated.
RATE_PENALTIES = (1.0, 10.0)
#: R of Theorem 1 and of Theorem 3, as the page says.
BALL_RADIUS, BOUND_BALL_RADIUS = 1.0, 3.0
_cross_entropy = functools.partial(F.cross_entropy, reduction="none")


@dataclass(frozen=True)
class StudySettings:
    """Amount of work; :meth:`quick` is for a first look.

    Attributes
    ----------
    horizons, seeds : T and number of seeds of Theorem 1 and of Theorem 2's rate.
    epochs, training_seeds : of the networks trained for Theorem 2.
    every_group : evaluate Theorem 3 on all test groups; else on the nearest and the farthest.
    """

    horizons: tuple[int, ...] = tuple(2**k for k in range(6, 14))
    seeds: int = 10
    epochs: int = 60
    training_seeds: int = 3
    every_group: bool = True

    @classmethod
    def quick(cls) -> StudySettings:
        """Few steps, seeds, epochs and groups."""
        return cls(tuple(2**k for k in range(6, 12)), seeds=5, epochs=20, training_seeds=1, every_group=False)


@dataclass(frozen=True, eq=False)
class TrainingCurves:
    """Both quantities of Theorem 2 after each epoch of training with one method, (seeds, epochs)."""

    method: str
    gradient_norm: Array
    dual_suboptimality: Array


@dataclass(frozen=True)
class MethodBounds:
    """Theorem 3 for one method: its weights by group, certified duality gap, and one breakdown per test group."""

    method: str
    weights: tuple[tuple[Name, float], ...]
    gap: float
    breakdowns: tuple[BoundBreakdown, ...]


@dataclass(frozen=True, eq=False)
class TheoryStudy:
    """All three theorems on one data set.

    Attributes
    ----------
    benchmark, train : name of the benchmark, of which the data are generated, and training groups.
    settings : amount of work.
    convergence : Theorem 1 by problem (loss and λ).
    stationarity, rates : Theorem 2 in networks while they train, and its bound.
    bounds : Theorem 3, test groups from the nearest to the farthest.
    """

    benchmark: str
    train: tuple[Name, ...]
    settings: StudySettings
    convergence: Sequence[Rate]
    stationarity: Sequence[TrainingCurves]
    rates: Sequence[Rate]
    bounds: Sequence[MethodBounds]

    def to_json(self) -> str:
        """Return the results as JSON: fields and properties by name, values by group as pairs."""
        return json.dumps({"schema": SCHEMA, **_plain(self)}, default=_plain, indent=1, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Convert an array to a list, and a dataclass to a mapping of its fields and properties."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    properties = [name for name, member in vars(type(value)).items() if isinstance(member, property)]
    return {name: getattr(value, name) for name in (*(field.name for field in fields(value)), *properties)}


def run_study(settings: StudySettings) -> TheoryStudy:
    """Run all three theorems on generated data of a benchmark; the same settings give the same bytes.

    The benchmark is the one whose registration says which test groups are near and which are far.
    """
    benchmark, near_to_far = next((b, b.near_to_far) for b in BENCHMARKS.values() if b.near_to_far is not None)
    loaded = load_dataset(benchmark.name, source="generated")
    data, tests = loaded.data.select(loaded.train), near_to_far(loaded)
    if not settings.every_group:
        tests = [tests[0], tests[-1]]
    prior = loaded.physical_prior(**benchmark.protocol.priors)
    # Inputs in the unit ball: with R = 1 the ball binds, and the gap falls at the rate of the theorem.
    scale = float(np.linalg.norm(data.x, axis=1).max())
    scaled, *test_data = (_for_linear(part, scale) for part in (data, *(loaded.data.select([name]) for name in tests)))
    convex = [BallProblem(scaled, loss, prior, penalty, BALL_RADIUS) for loss in CONVEX for penalty in METHODS.values()]
    smooth = [BallProblem(scaled, "sigmoid", prior, penalty) for penalty in RATE_PENALTIES]
    effort, methods = (settings.horizons, range(settings.seeds)), list(METHODS)
    with one_thread(torch=True):
        return TheoryStudy(
            benchmark.name,
            loaded.train,
            settings,
            [measure_convergence(problem, *effort) for problem in tracked(convex, "Theorem 1: projected SGD")],
            [_train(method, data, prior, settings) for method in tracked(methods, "Theorem 2: networks in training")],
            [rate for task in tracked(smooth, "Theorem 2: our bound") for rate in measure_stationarity(task, *effort)],
            [_bound(method, scaled, prior, test_data) for method in tracked(methods, "Theorem 3: unseen groups")],
        )


def _for_linear(data: GroupedData, scale: float) -> GroupedData:
    """Divide inputs by a number, add a column of ones for the intercept, and turn classes 0 and 1 into -1 and 1."""
    return GroupedData.from_arrays(np.column_stack([data.x / scale, np.ones(len(data))]), 2.0 * data.y - 1.0, data.ids)


def _train(method: str, data: GroupedData, prior: Prior, settings: StudySettings) -> TrainingCurves:
    """Train a network for each seed and measure stationarity after each epoch."""
    penalty, curves = METHODS[method], []
    for seed in range(settings.training_seeds):
        objective: WeightedObjective = TRO(prior, penalty, step=0.1) if penalty else GroupDRO(data.groups, step=0.1)

        def measure(model: nn.Module, objective: WeightedObjective = objective) -> dict[str, float]:
            return training_stationarity(model, objective, data, _cross_entropy)._asdict()

        batches, plan = Batches.of(data, per_group=10), TrainingPlan(rounds=settings.epochs, seed=seed)
        network = MLP(data.x.shape[1], 2, seed=seed)
        history = fit(network, objective, batches, _cross_entropy, plan, evaluate=measure).history
        curves.append([list(record.metrics.values()) for record in history])
    return TrainingCurves(method, *np.moveaxis(np.array(curves), 2, 0))


def _bound(method: str, data: GroupedData, prior: Prior, tests: Sequence[GroupedData]) -> MethodBounds:
    """Solve a method's problem and bound its risk in each test group; without a penalty the prior plays no part."""
    penalty = METHODS[method]
    prior = prior if penalty else Prior.uniform(data.groups)
    problem = BallProblem(data, "logistic", prior, penalty, BOUND_BALL_RADIUS)
    saddle = problem.solve(problem.p, penalty)
    breakdowns = tuple(bound_breakdown(problem, saddle, test) for test in tests)
    return MethodBounds(method, tuple(data.groups.named(saddle.q).items()), saddle.gap, breakdowns)
