"""The three theorems at work on DG-15: what ``toporo theory`` runs and reports."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch.nn.functional as F

from toporo.data.grouped import GroupedData
from toporo.machine import one_thread
from toporo.objectives import TRO, GroupDRO, WeightedObjective
from toporo.paper.base import load_dataset
from toporo.paper.loaded import BenchmarkData
from toporo.paper.theory.ball import BallProblem, solve_saddle
from toporo.paper.theory.bound import bound_breakdown
from toporo.paper.theory.convergence import certified_constants, compare_constants, estimated_constants
from toporo.paper.theory.results import ConvergenceCase, MethodBounds, StationarityCurves, StudySettings, TheoryStudy
from toporo.paper.theory.stationarity import SigmoidProblem, Stationarity, StationarityRates, measure_stationarity
from toporo.progress import Progress, Report
from toporo.topology.prior import Prior
from toporo.training import MLP, TrainSettings, train
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
    shown = _shown_groups(benchmark, settings)
    steps = 4 + 2 * settings.training_seeds + len(RATE_PENALTIES) + 2 * len(shown)
    with Progress("theory", steps, progress) as bar, one_thread(torch=True):
        bar.say("Theorem 1: projected SGD against the bound")
        cases = _convergence(scaled, prior, settings, bar)
        bar.say("Theorem 2: stationarity while networks train")
        curves = _stationarity(data, prior, settings, bar)
        bar.say("Theorem 2: descent and ascent against the bound")
        rates = _rates(scaled, prior, settings, bar)
        bar.say("Theorem 3: bounds for unseen groups")
        bounds = _bounds(scaled, benchmark, prior, scale, shown, settings, bar)
    return TheoryStudy(settings, benchmark.source, benchmark.train, cases, curves, rates, bounds)


def _shown_groups(benchmark: BenchmarkData, settings: StudySettings) -> list[Name]:
    """Test groups by angle, which on this one-sided arc is by distance from training."""
    angles = benchmark.about["angles"]
    ordered = sorted(benchmark.test, key=lambda name: angles[name])
    return ordered if settings.every_group else [ordered[0], ordered[-1]]


def _convergence(
    data: GroupedData, prior: Prior, settings: StudySettings, bar: Progress
) -> tuple[ConvergenceCase, ...]:
    cases = []
    for loss in ("squared", "logistic"):
        for penalty in (0.0, PENALTY):
            problem = BallProblem.from_data(
                data, loss=loss, ball_radius=settings.ball_radius, penalty=penalty, prior=prior
            )
            constants = (certified_constants(problem), estimated_constants(problem))
            runs = compare_constants(problem, settings.horizons, constants, seeds=range(settings.seeds))
            cases.append(ConvergenceCase(loss, penalty, settings.ball_radius, runs))
            bar.step()
    return tuple(cases)


def _stationarity(
    data: GroupedData, prior: Prior, settings: StudySettings, bar: Progress
) -> tuple[StationarityCurves, ...]:
    results = []
    for method in ("group DRO", f"TRO (λ={PENALTY:g})"):
        curves: dict[str, list[list[float]]] = {"gradient_norm": [], "dual_suboptimality": []}
        for seed in range(settings.training_seeds):
            objective: WeightedObjective = (
                GroupDRO(data.groups, step=0.1) if method == "group DRO" else TRO(prior, PENALTY, step=0.1)
            )
            history = train(
                MLP(data.x.shape[1], 2, seed=seed),
                objective,
                data,
                _cross_entropy,
                TrainSettings(rounds=settings.epochs, per_group=10, seed=seed),
                evaluate=Stationarity(objective, data, _cross_entropy),
            )
            for key, values in curves.items():
                values.append([record.metrics[key] for record in history])
            bar.step()
        results.append(StationarityCurves(method, *(np.array(values) for values in curves.values())))
    return tuple(results)


def _rates(data: GroupedData, prior: Prior, settings: StudySettings, bar: Progress) -> tuple[StationarityRates, ...]:
    results = []
    for penalty in RATE_PENALTIES:
        rows = BallProblem.from_data(
            data, loss="logistic", ball_radius=settings.ball_radius, penalty=penalty, prior=prior
        )
        results.append(measure_stationarity(SigmoidProblem(rows), settings.horizons, seeds=range(settings.seeds)))
        bar.step()
    return tuple(results)


def _bounds(
    data: GroupedData,
    benchmark: BenchmarkData,
    prior: Prior,
    scale: float,
    shown: Sequence[Name],
    settings: StudySettings,
    bar: Progress,
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
        for name in shown:
            rows = benchmark.data.rows(name)
            breakdowns.append(
                bound_breakdown(
                    point.theta,
                    data,
                    point.weights,
                    benchmark.data.x[rows] / scale,
                    ball_radius=settings.bound_ball_radius,
                    test_group=name,
                    test_labels=2.0 * benchmark.data.y[rows] - 1.0,
                    delta=settings.delta,
                    signs=settings.signs,
                    classifier=settings.classifier,
                    emd={"scales": 5},
                )
            )
            bar.step()
        results.append(MethodBounds(method, penalty, point.weights, point.gap, tuple(breakdowns)))
    return tuple(results)
