"""Phase 1: how the groups are related, and what prior follows from it."""

from __future__ import annotations

import importlib
from typing import Any

from toporo.topology.centrality import MEASURES, centrality
from toporo.topology.cuts import CUTS
from toporo.topology.graph import GroupGraph, Origin
from toporo.topology.prior import Prior, make_prior

__all__ = [
    "CUTS",
    "MEASURES",
    "GroupDistances",
    "GroupGraph",
    "Origin",
    "Prior",
    "centrality",
    "cut_graph",
    "diffusion_emd",
    "learn_topology",
    "make_prior",
]

# What learns a topology needs torch, which a given graph does not: it loads when first used.
_HOME = {"GroupDistances": "diffusion", "cut_graph": "learn", "diffusion_emd": "diffusion", "learn_topology": "learn"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"toporo.topology.{_HOME[name]}"), name)
    raise AttributeError(f"module 'toporo.topology' has no attribute {name!r}")
