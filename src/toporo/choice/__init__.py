"""Model choice without test labels: folds of groups, cross-fitting, and the penalty."""

from __future__ import annotations

import importlib
from typing import Any

# Each name is imported when first used. Type checkers read the same from __init__.pyi; a test keeps the two in step.
_HOME = {
    "PENALTIES": "toporo.choice.penalty",
    "GraphHopSplit": "toporo.choice.splits",
    "LeaveRegionOut": "toporo.choice.splits",
    "choose_penalty": "toporo.choice.penalty",
    "cross_fit": "toporo.choice.cross_fitting",
    "folds": "toporo.choice.cross_fitting",
    "hop_folds": "toporo.choice.hops",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'toporo.choice' has no attribute {name!r}")
