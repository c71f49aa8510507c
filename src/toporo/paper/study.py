"""The three theorems at work on DG-15: what ``toporo theory`` runs and reports."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np
import torch.nn.functional as F
from torch import nn

from toporo.data.grouped import GroupedData
from toporo.machine import one_thread
from toporo.objectives import TRO, GroupDRO, WeightedObjective
from toporo.paper.base import load_dataset
from toporo.paper.loaded import BenchmarkData
from toporo.paper.theory.ball import BallProblem, solve_saddle
from toporo.paper.theory.bound import bound_breakdown
from toporo.paper.theory.convergence import certified_constants, estimated_constants, measure_convergence
from toporo.paper.theory.results import MethodBounds, StudySettings, TheoryStudy, TrainingCurves
from toporo.paper.theory.stationarity import Stationarity, measure_stationarity, training_stationarity
from toporo.progress import Progress, Report
from toporo.topology.prior import Prior
from toporo.training import MLP, Batches, TrainingPlan, fit
from toporo.types import Name

#: Methods compared, with their λ.
METHODS = {"group DRO": 0.0, "TRO (λ=1)": 1.0}
#: λ for which Theorem 2's bound is evaluated.
RATE_PENALTIES = (1.0, 10.0)
_cross_entropy = functools.partial(F.cross_entropy, reduction="none")


def run_study(settings: StudySettings | None = None, *, progress: bool | Report | None = None) -> TheoryStudy:
    """Run all three theorems on generated DG-15 data; the same settings give the same bytes."""
    settings = settings or StudySettings()
    seeds = range(settings.seeds)
    benchmark = load_dataset("dg15", source="generated")
    data = benchmark.data.select(benchmark.train)
    prior = benchmark.physical_prior(measure="betweenness")
    # Inputs in the unit ball: with R = 1 the ball binds, and the gap falls at the rate of the theorem.
    scale = float(np.linalg.norm(data.x, axis=1).max())
    problem = functools.partial(BallProblem.from_data, _scaled(data, scale), ball_radius=settings.ball_radius)
    tests = [_scaled(benchmark.data.select([name]), scale) for name in _test_groups(benchmark, settings)]
    convergence, rates = [], []
    steps = 2 * len(METHODS) + len(METHODS) * (settings.training_seeds + len(tests)) + len(RATE_PENALTIES)
    with Progress("theory", steps, progress) as bar, one_thread(torch=True):
        bar.say("Theorem 1: projected SGD against the bound")
        for loss, penalty in itertools.product(("squared", "logistic"), METHODS.values()):
            task = problem(loss=loss, penalty=penalty, prior=prior)
            for constants in (certified_constants(task), estimated_constants(task)):
                convergence.append(measure_convergence(task, constants, settings.horizons, seeds))
            bar.step()
        bar.say("Theorem 2: stationarity while networks train")
        curves = [_train(method, data, prior, settings, bar) for method in METHODS]
        bar.say("Theorem 2: descent and ascent against the bound")
        for penalty in RATE_PENALTIES:
            task = problem(loss="logistic", penalty=penalty, prior=prior)
            rates.append(measure_stationarity(task, settings.horizons, seeds))
            bar.step()
        bar.say("Theorem 3: bounds for unseen groups")
        problem = functools.partial(problem, loss="logistic", ball_radius=settings.bound_ball_radius)
        dro, tro = METHODS.values()
        tasks = problem(penalty=dro), problem(penalty=tro, prior=prior)
        bounds = [_bound(method, task, tests, settings, bar) for method, task in zip(METHODS, tasks, strict=True)]
    return TheoryStudy(
        settings, benchmark.source, benchmark.train, tuple(convergence), tuple(curves), tuple(rates), tuple(bounds)
    )


def _scaled(data: GroupedData, scale: float) -> GroupedData:
    """Divide inputs by a number, and turn classes 0 and 1 into -1 and 1."""
    return GroupedData.from_arrays(data.x / scale, 2.0 * data.y - 1.0, data.ids)


def _test_groups(benchmark: BenchmarkData, settings: StudySettings) -> list[Name]:
    """Test groups by angle, which on this one-sided arc is by distance from training."""
    angles = benchmark.about["angles"]
    ordered = sorted(benchmark.test, key=lambda name: angles[name])
    return ordered if settings.every_group else [ordered[0], ordered[-1]]


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
    method: str, problem: BallProblem, tests: Sequence[GroupedData], settings: StudySettings, bar: Progress
) -> MethodBounds:
    """Solve a method's problem and bound its risk in each test group."""
    point, breakdowns = solve_saddle(problem), []
    bound = functools.partial(
        bound_breakdown, delta=settings.delta, signs=settings.signs, classifier=settings.classifier
    )
    for test in tests:
        breakdowns.append(bound(problem, point.theta, point.weights, test))
        bar.step()
    return MethodBounds(method, problem.penalty, point.weights, point.gap, tuple(breakdowns))
