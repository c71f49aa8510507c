"""The paper's three theorems made executable: convergence, stationarity while training, a bound for unseen groups."""

from toporo.theory.ball import BallProblem, DualityGap, SaddlePoint, duality_gap, minimum_on_ball, solve_saddle
from toporo.theory.bound import BoundBreakdown, Estimate, bound_breakdown, classifier_distance, mixture_emd, rademacher
from toporo.theory.convergence import (
    Constants,
    Convergence,
    averaged_iterates,
    certified_constants,
    compare_constants,
    estimated_constants,
    gap_bound,
    measure_convergence,
    step_sizes,
)
from toporo.theory.stationarity import (
    SigmoidProblem,
    SmoothConstants,
    Stationarity,
    StationarityPoint,
    StationarityRates,
    inner_suboptimality,
    measure_stationarity,
    stationarity_bound,
    stationarity_steps,
)

__all__ = [
    "BallProblem",
    "BoundBreakdown",
    "Constants",
    "Convergence",
    "DualityGap",
    "Estimate",
    "SaddlePoint",
    "SigmoidProblem",
    "SmoothConstants",
    "Stationarity",
    "StationarityPoint",
    "StationarityRates",
    "averaged_iterates",
    "bound_breakdown",
    "certified_constants",
    "classifier_distance",
    "compare_constants",
    "duality_gap",
    "estimated_constants",
    "gap_bound",
    "inner_suboptimality",
    "measure_convergence",
    "measure_stationarity",
    "minimum_on_ball",
    "mixture_emd",
    "rademacher",
    "solve_saddle",
    "stationarity_bound",
    "stationarity_steps",
    "step_sizes",
]
