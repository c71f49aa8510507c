"""Phase 2's inner problem: the worst mixture of groups near a prior, and the convex case solved exactly."""

from __future__ import annotations

import importlib
from typing import Any

# Each name is imported when first used. Type checkers read the same from __init__.pyi; a test keeps the two in step.
_HOME = {
    "DIVERGENCES": "toporo.robust.divergences",
    "Divergence": "toporo.robust.divergences",
    "RULES": "toporo.robust.weights",
    "RobustFit": "toporo.robust.linear",
    "WeightRule": "toporo.robust.weights",
    "ascent": "toporo.robust.weights",
    "best_response": "toporo.robust.divergences",
    "constrained": "toporo.robust.weights",
    "constrained_response": "toporo.robust.weights",
    "exact": "toporo.robust.weights",
    "fit_linear": "toporo.robust.linear",
    "fit_logistic": "toporo.robust.linear",
    "get_divergence": "toporo.robust.divergences",
    "linear_path": "toporo.robust.linear",
    "logistic_path": "toporo.robust.linear",
    "make_rule": "toporo.robust.weights",
    "mirror": "toporo.robust.weights",
    "project_simplex": "toporo.robust.simplex",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'toporo.robust' has no attribute {name!r}")
