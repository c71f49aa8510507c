"""A study of the three theorems on a benchmark, which ``toporo theory`` runs and reports."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import nn

from toporo.data import GroupedData
from toporo.groups import name_to_json
from toporo.machine import one_thread
from toporo.objectives import TRO, GroupDRO, WeightedObjective
from toporo.paper.base import BENCHMARKS, load_dataset
from toporo.paper.theory.ball import CONVEX, BallProblem
from toporo.paper.theory.bound import BoundBreakdown, bound_breakdown
from toporo.paper.theory.convergence import Convergence, certified_constants, estimated_constants, measure_convergence
from toporo.paper.theory.stationarity import (
    Stationarity,
    StationarityRates,
    measure_stationarity,
    training_stationarity,
)
from toporo.progress import Progress, Report
from toporo.topology import Prior
from toporo.training import MLP, Batches, TrainingPlan, fit
from toporo.types import Array, Name

SCHEMA = "toporo.theory/2"
#: Methods compared, with their λ.
METHODS = {"group DRO": 0.0, "TRO (λ=1)": 1.0}
#: λ for which Theorem 2's bound is evaluated.
RATE_PENALTIES = (1.0, 10.0)
_cross_entropy = functools.partial(F.cross_entropy, reduction="none")


@dataclass(frozen=True)
class StudySettings:
    """Amount of work; :meth:`quick` is for a first look.

    Attributes
    ----------
    horizons, seeds, ball_radius : T and number of seeds of Theorem 1 and of Theorem 2's rate; R of Theorem 1.
    epochs, training_seeds : of the networks trained for Theorem 2.
    bound_ball_radius, delta, signs : R of Theorem 3, and arguments of :func:`~toporo.paper.theory.bound_breakdown`.
    every_group : evaluate Theorem 3 on all test groups; else on the nearest and the farthest.
    """

    horizons: tuple[int, ...] = tuple(2**k for k in range(6, 14))
    seeds: int = 10
    ball_radius: float = 1.0
    epochs: int = 60
    training_seeds: int = 3
    bound_ball_radius: float = 3.0
    delta: float = 0.05
    signs: int = 1000
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
    """Theorem 3 for one method: its λ, weights and certified duality gap, and one breakdown per test group."""

    method: str
    penalty: float
    weights: Mapping[Name, float]
    gap: float
    breakdowns: tuple[BoundBreakdown, ...]


@dataclass(frozen=True, eq=False)
class TheoryStudy:
    """All three theorems on one data set.

    Attributes
    ----------
    benchmark, source, train : name of the benchmark, origin of its data, and training groups.
    settings : amount of work.
    convergence : Theorem 1 by problem (loss and λ) and constants.
    stationarity, rates : Theorem 2 in networks while they train, and its bound.
    bounds : Theorem 3, test groups from the nearest to the farthest.
    """

    benchmark: str
    settings: StudySettings
    source: str
    train: tuple[Name, ...]
    convergence: tuple[Convergence, ...]
    stationarity: tuple[TrainingCurves, ...]
    rates: tuple[StationarityRates, ...]
    bounds: tuple[MethodBounds, ...]

    @property
    def agreements(self) -> int:
        """Number of test groups in which the method with the smallest bound also has the smallest true risk."""
        by_group = list(zip(*(method.breakdowns for method in self.bounds), strict=True))
        return sum(min(g, key=lambda b: b.total) is min(g, key=lambda b: b.test_risk) for g in by_group)

    def to_json(self) -> str:
        """Return the results as JSON: fields and properties by name, values by group as pairs."""
        return json.dumps({"schema": SCHEMA, **_plain(self)}, indent=1, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Convert to what JSON holds."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return [[name_to_json(name), _plain(item)] for name, item in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        names += [name for name, member in vars(type(value)).items() if isinstance(member, property)]
        return {name: _plain(getattr(value, name)) for name in names}
    return value


# ---------------------------------------------------------------------- the study


def run_study(settings: StudySettings | None = None, *, progress: bool | Report | None = None) -> TheoryStudy:
    """Run all three theorems on generated data of a benchmark; the same settings give the same bytes.

    The benchmark is the one whose registration says which test groups are near and which are far.
    """
    settings = settings or StudySettings()
    benchmark, near_to_far = next((b, b.near_to_far) for b in BENCHMARKS.values() if b.near_to_far is not None)
    loaded = load_dataset(benchmark.name, source="generated")
    seeds, data = range(settings.seeds), loaded.data.select(loaded.train)
    prior, tests = loaded.physical_prior(**benchmark.protocol.priors), near_to_far(loaded)
    if not settings.every_group:
        tests = [tests[0], tests[-1]]
    # Inputs in the unit ball: with R = 1 the ball binds, and the gap falls at the rate of the theorem.
    scale = float(np.linalg.norm(data.x, axis=1).max())
    scaled, *test_data = (_for_linear(part, scale) for part in (data, *(loaded.data.select([name]) for name in tests)))
    convergence, rates = [], []
    steps = len(METHODS) * (2 + settings.training_seeds + len(tests)) + len(RATE_PENALTIES)
    with Progress("theory", steps, progress) as bar, one_thread(torch=True):
        bar.say("Theorem 1: projected SGD against the bound")
        for loss, penalty in itertools.product(CONVEX, METHODS.values()):
            problem = BallProblem(scaled, loss, penalty, settings.ball_radius, prior)
            for constants in (certified_constants(problem), estimated_constants(problem)):
                convergence.append(measure_convergence(problem, constants, settings.horizons, seeds))
            bar.step()
        bar.say("Theorem 2: stationarity while networks train")
        curves = [_train(method, data, prior, settings, bar) for method in METHODS]
        bar.say("Theorem 2: descent and ascent against the bound")
        for penalty in RATE_PENALTIES:
            problem = BallProblem(scaled, "sigmoid", penalty, prior=prior)
            rates.append(measure_stationarity(problem, settings.horizons, seeds))
            bar.step()
        bar.say("Theorem 3: bounds for unseen groups")
        bounds = [_bound(method, scaled, prior, test_data, settings, bar) for method in METHODS]
    return TheoryStudy(
        benchmark.name,
        settings,
        loaded.source,
        loaded.train,
        tuple(convergence),
        tuple(curves),
        tuple(rates),
        tuple(bounds),
    )


def _for_linear(data: GroupedData, scale: float) -> GroupedData:
    """Divide inputs by a number, add a column of ones for the intercept, and turn classes 0 and 1 into -1 and 1."""
    return GroupedData.from_arrays(np.column_stack([data.x / scale, np.ones(len(data))]), 2.0 * data.y - 1.0, data.ids)


def _train(method: str, data: GroupedData, prior: Prior, settings: StudySettings, bar: Progress) -> TrainingCurves:
    """Train a network for each seed and measure stationarity after each epoch."""
    curves = []
    for seed in range(settings.training_seeds):
        penalty = METHODS[method]
        objective: WeightedObjective = TRO(prior, penalty, step=0.1) if penalty else GroupDRO(data.groups, step=0.1)

        def measure(model: nn.Module, objective: WeightedObjective = objective) -> dict[str, float]:
            return training_stationarity(model, objective, data, _cross_entropy)._asdict()

        result = fit(
            MLP(data.x.shape[1], 2, seed=seed),
            objective,
            Batches.of(data, per_group=10),
            _cross_entropy,
            TrainingPlan(rounds=settings.epochs, seed=seed),
            evaluate=measure,
        )
        curves.append([[record.metrics[name] for name in Stationarity._fields] for record in result.history])
        bar.step()
    return TrainingCurves(method, *np.moveaxis(np.array(curves), 2, 0))


def _bound(
    method: str, data: GroupedData, prior: Prior, tests: Sequence[GroupedData], settings: StudySettings, bar: Progress
) -> MethodBounds:
    """Solve a method's problem and bound its risk in each test group; without a penalty the prior plays no part."""
    penalty = METHODS[method]
    problem = BallProblem(data, "logistic", penalty, settings.bound_ball_radius, prior if penalty else None)
    saddle, breakdowns = problem.solve(problem.p, penalty), []
    weights = data.groups.named(saddle.q)
    for test in tests:
        breakdowns.append(
            bound_breakdown(
                problem, saddle.point.theta[:, 0], weights, test, delta=settings.delta, signs=settings.signs
            )
        )
        bar.step()
    return MethodBounds(method, penalty, weights, saddle.gap, tuple(breakdowns))
