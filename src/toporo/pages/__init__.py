"""Figures and one-file HTML pages. A module is loaded when it is first used: matplotlib takes half a second."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers see of the modules below
    from toporo.pages import (
        benchmark,
        figures,
        network_figures,
        pictures,
        regression,
        sections,
        topology_map,
        world_map,
    )

__all__ = [
    "benchmark",
    "figures",
    "network_figures",
    "pictures",
    "regression",
    "sections",
    "topology_map",
    "world_map",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"toporo.pages.{name}")
    raise AttributeError(f"module 'toporo.pages' has no attribute {name!r}")
