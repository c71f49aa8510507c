"""The paper's three theorems as programs: convergence, stationarity while training, a bound for unseen groups."""

from toporo.paper.theory.ball import BallProblem
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
    "Rate",
    "SmoothConstants",
    "Stationarity",
    "StationarityRates",
    "bound_breakdown",
    "certified_constants",
    "estimated_constants",
    "measure_convergence",
    "measure_stationarity",
    "training_stationarity",
]
