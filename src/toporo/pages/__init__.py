"""Figures and one-file HTML pages. A module is loaded when it is first used: matplotlib takes half a second."""

from __future__ import annotations

import importlib
from typing import Any

#: Type checkers read the same from __init__.pyi.
__all__ = ["charts", "figures", "maps", "pictures", "render"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"toporo.pages.{name}")
    raise AttributeError(f"module 'toporo.pages' has no attribute {name!r}")
