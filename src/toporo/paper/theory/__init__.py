"""The paper's three theorems as programs: convergence, stationarity while training, a bound for unseen groups."""

from toporo.paper.theory.ball import BallProblem, DualityGap, duality_gap, solve_saddle
from toporo.paper.theory.bound import BoundBreakdown, bound_breakdown
from toporo.paper.theory.convergence import (
    Constants,
    Convergence,
    certified_constants,
    estimated_constants,
    measure_convergence,
)
from toporo.paper.theory.rates import Rate
from toporo.paper.theory.stationarity import (
    SmoothConstants,
    Stationarity,
    StationarityRates,
    measure_stationarity,
    training_stationarity,
)

__all__ = [
    "BallProblem",
    "BoundBreakdown",
    "Constants",
    "Convergence",
    "DualityGap",
    "Rate",
    "SmoothConstants",
    "Stationarity",
    "StationarityRates",
    "bound_breakdown",
    "certified_constants",
    "duality_gap",
    "estimated_constants",
    "measure_convergence",
    "measure_stationarity",
    "solve_saddle",
    "training_stationarity",
]
