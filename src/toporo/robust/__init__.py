"""Phase 2's inner problem: the worst mixture of groups near a prior. Knows no model."""

from toporo.robust.penalties import PENALTIES, Penalty, best_response, get_penalty
from toporo.robust.simplex import project_simplex
from toporo.robust.weights import RULES, WeightRule, ascent, constrained, constrained_response, exact, make_rule, mirror

__all__ = [
    "PENALTIES",
    "RULES",
    "Penalty",
    "WeightRule",
    "ascent",
    "best_response",
    "constrained",
    "constrained_response",
    "exact",
    "get_penalty",
    "make_rule",
    "mirror",
    "project_simplex",
]
