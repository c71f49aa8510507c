"""Phase 2's inner problem: the worst mixture of groups near a prior, and the convex case solved exactly."""

from toporo.robust.divergences import DIVERGENCES, Divergence, best_response, get_divergence
from toporo.robust.linear import RobustFit, fit_linear, fit_logistic, linear_path, logistic_path
from toporo.robust.simplex import project_simplex
from toporo.robust.weights import RULES, WeightRule, ascent, constrained, constrained_response, exact, make_rule, mirror

__all__ = [
    "DIVERGENCES",
    "RULES",
    "Divergence",
    "RobustFit",
    "WeightRule",
    "ascent",
    "best_response",
    "constrained",
    "constrained_response",
    "exact",
    "fit_linear",
    "fit_logistic",
    "get_divergence",
    "linear_path",
    "logistic_path",
    "make_rule",
    "mirror",
    "project_simplex",
]
