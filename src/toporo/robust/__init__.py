"""Worst mixtures of groups near a prior, and linear models that are fitted exactly under them."""

from __future__ import annotations

import importlib
from typing import Any

# Each name is imported when first used. Type checkers read the same from __init__.pyi; a test keeps the two in step.
_HOME = {
    "DIVERGENCES": "toporo.robust.divergences",
    "RULES": "toporo.robust.weights",
    "Divergence": "toporo.robust.divergences",
    "LogisticLosses": "toporo.robust.logistic",
    "RobustFit": "toporo.robust.linear",
    "Saddle": "toporo.robust.saddle",
    "SaddleProblem": "toporo.robust.saddle",
    "SquaredLosses": "toporo.robust.losses",
    "ascent": "toporo.robust.weights",
    "best_response": "toporo.robust.divergences",
    "constrained": "toporo.robust.weights",
    "constrained_response": "toporo.robust.weights",
    "exact": "toporo.robust.weights",
    "fit_linear": "toporo.robust.linear",
    "fit_logistic": "toporo.robust.linear",
    "get_divergence": "toporo.robust.divergences",
    "mirror": "toporo.robust.weights",
    "path": "toporo.robust.linear",
    "project_simplex": "toporo.robust.simplex",
    "solve": "toporo.robust.linear",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'toporo.robust' has no attribute {name!r}")
