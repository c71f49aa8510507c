"""The paper's three theorems as programs: convergence, stationarity while training, a bound for unseen groups."""

from toporo.paper.theory.ball import BallProblem
from toporo.paper.theory.bound import BoundBreakdown, bound_breakdown
from toporo.paper.theory.convergence import measure_convergence
from toporo.paper.theory.rates import Rate
from toporo.paper.theory.stationarity import Stationarity, measure_stationarity, training_stationarity

__all__ = [
    "BallProblem",
    "BoundBreakdown",
    "Rate",
    "Stationarity",
    "bound_breakdown",
    "measure_convergence",
    "measure_stationarity",
    "training_stationarity",
]
