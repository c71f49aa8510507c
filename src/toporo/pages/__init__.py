"""Figures and one-file HTML pages. A module is loaded when it is first used: matplotlib takes half a second."""

from __future__ import annotations

import importlib
from typing import Any

# Each name is imported when first used. Type checkers read the same from __init__.pyi; a test keeps the two in step.
_HOME = {
    "Cell": "toporo.pages.table",
    "Section": "toporo.pages.render",
    "Table": "toporo.pages.table",
    "Verdict": "toporo.pages.render",
}
_MODULES = ("charts", "figures", "maps", "render")

__all__ = sorted([*_HOME, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"toporo.pages.{name}")
    raise AttributeError(f"module 'toporo.pages' has no attribute {name!r}")
