"""Engines by name, for tests that run over all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from toporo.topology.choose_engine import installed
from toporo.topology.diffusion import GroupDiffusion, GroupDistances
from toporo.topology.engine import Engine
from toporo.topology.operator import DiffusionOperator
from toporo.topology.torch_engine import TorchEngine

needs_numba = pytest.mark.skipif(not installed("numba"), reason="needs numba; this machine has none")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine has none")

#: Engines of the CPU for sparse kernels.
ON_CPU = ["scipy", pytest.param("numba", marks=needs_numba)]


def make(name: str, operator: DiffusionOperator) -> Engine:
    """Return the engine of a name: ``"scipy"``, ``"numba"``, ``"torch"`` (on the CPU), ``"cuda"`` or ``"triton"``."""
    if name == "numba":
        from toporo.topology.fused import FusedEngine

        return FusedEngine(operator)
    if name == "triton":
        from toporo.topology.gpu import TritonEngine

        return TritonEngine(operator, "cuda")
    return Engine(operator) if name == "scipy" else TorchEngine(operator, "cpu" if name == "torch" else "cuda")


def prepare(features: Any, groups: Any, engine: str, **settings: Any) -> GroupDiffusion:
    """Prepare a diffusion that this engine runs."""
    prepared = GroupDiffusion.prepare(features, groups, **settings)
    return replace(prepared, engine=make(engine, prepared.graph.operator))


def emd(features: Any, groups: Any, engine: str, **settings: Any) -> GroupDistances:
    """Compute distances by this engine."""
    return prepare(features, groups, engine, **settings).distances()
