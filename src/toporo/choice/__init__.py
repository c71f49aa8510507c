"""Choosing without test labels: regions held out, scores on them, which penalty, which prior, which epoch."""

from __future__ import annotations

import importlib
from typing import Any

# Each name is imported when first used. Type checkers read the same from __init__.pyi; a test keeps the two in step.
_HOME = {
    "GraphHopSplit": "toporo.choice.splits",
    "LeaveRegionOut": "toporo.choice.splits",
    "choose_configuration": "toporo.choice.penalty",
    "hop_folds": "toporo.choice.splits",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'toporo.choice' has no attribute {name!r}")
