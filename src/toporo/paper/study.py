"""The three theorems at work on DG-15: what ``toporo theory`` runs and reports."""

from __future__ import annotations

import functools
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
from toporo.paper.theory.convergence import Convergence, certified_constants, estimated_constants, measure_convergence
from toporo.paper.theory.results import MethodBounds, StudySettings, TheoryStudy, TrainingCurves
from toporo.paper.theory.stationarity import (
    Stationarity,
    StationarityRates,
    measure_stationarity,
    training_stationarity,
)
from toporo.progress import Progress, Report
from toporo.topology.prior import Prior
from toporo.training import MLP, Batches, TrainingPlan, fit
from toporo.types import Name

#: λ of TRO throughout; 0 is group DRO.
PENALTY = 1.0
#: λ for which Theorem 2's bound is evaluated.
RATE_PENALTIES = (PENALTY, 10.0)
_cross_entropy = functools.partial(F.cross_entropy, reduction="none")


def run_study(settings: StudySettings | None = None, *, progress: bool | Report | None = None) -> TheoryStudy:
    """Run all three theorems on generated DG-15 data; the same settings give the same bytes."""
    settings = settings or StudySettings()
    benchmark = load_dataset("dg15", source="generated")
    data = benchmark.data.select(benchmark.train)
    prior = benchmark.physical_prior(measure="betweenness")
    # Inputs in the unit ball: with R = 1 the ball binds, and the rate of the theorem is the rate that is seen.
    scale = float(np.linalg.norm(data.x, axis=1).max())
    scaled = GroupedData.from_arrays(data.x / scale, 2.0 * data.y - 1.0, data.ids)
    shown = [
        GroupedData.from_arrays(rows.x / scale, 2.0 * rows.y - 1.0, rows.ids)
        for rows in (benchmark.data.select([name]) for name in _shown_groups(benchmark, settings))
    ]
    steps = 4 + 2 * settings.training_seeds + len(RATE_PENALTIES) + 2 * len(shown)
    with Progress("theory", steps, progress) as bar, one_thread(torch=True):
        bar.say("Theorem 1: projected SGD against the bound")
        cases = _convergence(scaled, prior, settings, bar)
        bar.say("Theorem 2: stationarity while networks train")
        curves = _stationarity(data, prior, settings, bar)
        bar.say("Theorem 2: descent and ascent against the bound")
        rates = _rates(scaled, prior, settings, bar)
        bar.say("Theorem 3: bounds for unseen groups")
        bounds = _bounds(scaled, prior, shown, settings, bar)
    return TheoryStudy(settings, benchmark.source, benchmark.train, cases, curves, rates, bounds)


def _shown_groups(benchmark: BenchmarkData, settings: StudySettings) -> list[Name]:
    """Test groups by angle, which on this one-sided arc is by distance from training."""
    angles = benchmark.about["angles"]
    ordered = sorted(benchmark.test, key=lambda name: angles[name])
    return ordered if settings.every_group else [ordered[0], ordered[-1]]


def _convergence(data: GroupedData, prior: Prior, settings: StudySettings, bar: Progress) -> tuple[Convergence, ...]:
    results = []
    for loss in ("squared", "logistic"):
        for penalty in (0.0, PENALTY):
            problem = BallProblem.from_data(
                data, loss=loss, ball_radius=settings.ball_radius, penalty=penalty, prior=prior
            )
            for constants in (certified_constants(problem), estimated_constants(problem)):
                results.append(measure_convergence(problem, constants, settings.horizons, range(settings.seeds)))
            bar.step()
    return tuple(results)


def _stationarity(
    data: GroupedData, prior: Prior, settings: StudySettings, bar: Progress
) -> tuple[TrainingCurves, ...]:
    results = []
    for method in ("group DRO", f"TRO (λ={PENALTY:g})"):
        curves = []
        for seed in range(settings.training_seeds):
            objective: WeightedObjective = (
                GroupDRO(data.groups, step=0.1) if method == "group DRO" else TRO(prior, PENALTY, step=0.1)
            )

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
        norms, gaps = np.moveaxis(np.array(curves), 2, 0)
        results.append(TrainingCurves(method, norms, gaps))
    return tuple(results)


def _rates(data: GroupedData, prior: Prior, settings: StudySettings, bar: Progress) -> tuple[StationarityRates, ...]:
    results = []
    for penalty in RATE_PENALTIES:
        problem = BallProblem.from_data(
            data, loss="logistic", ball_radius=settings.ball_radius, penalty=penalty, prior=prior
        )
        results.append(measure_stationarity(problem, settings.horizons, range(settings.seeds)))
        bar.step()
    return tuple(results)


def _bounds(
    data: GroupedData, prior: Prior, shown: Sequence[GroupedData], settings: StudySettings, bar: Progress
) -> tuple[MethodBounds, ...]:
    results = []
    for method, penalty in (("group DRO", 0.0), (f"TRO (λ={PENALTY:g})", PENALTY)):
        problem = BallProblem.from_data(
            data,
            loss="logistic",
            ball_radius=settings.bound_ball_radius,
            penalty=penalty,
            prior=prior if penalty else None,
        )
        point = solve_saddle(problem)
        breakdowns = []
        for test in shown:
            breakdowns.append(
                bound_breakdown(
                    problem,
                    point.theta,
                    point.weights,
                    test,
                    delta=settings.delta,
                    signs=settings.signs,
                    classifier=settings.classifier,
                )
            )
            bar.step()
        results.append(MethodBounds(method, penalty, point.weights, point.gap, tuple(breakdowns)))
    return tuple(results)
