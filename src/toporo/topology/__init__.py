"""Phase 1: how the groups are related, and what prior follows from it."""

from __future__ import annotations

import importlib
from typing import Any

# Each name is imported when first used. Type checkers read the same from __init__.pyi; a test keeps the two in step.
_HOME = {
    "CUTS": "toporo.topology.cuts",
    "MEASURES": "toporo.topology.centrality",
    "STATES": "toporo.topology.states",
    "GroupDiffusion": "toporo.topology.diffusion",
    "GroupDistances": "toporo.topology.diffusion",
    "GroupGraph": "toporo.topology.graph",
    "Origin": "toporo.topology.graph",
    "Prior": "toporo.topology.prior",
    "cut_graph": "toporo.topology.learn",
    "diffusion_emd": "toporo.topology.diffusion",
    "learn_topology": "toporo.topology.learn",
    "make_prior": "toporo.topology.centrality_prior",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'toporo.topology' has no attribute {name!r}")
