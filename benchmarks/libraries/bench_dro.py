"""The linear group DRO of the dro package."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import numpy as np

from libraries import peers_folder


def dro_group_model() -> Any:
    """The linear group DRO of the dro package, without the rest of it, which wants torchvision and more."""
    if "dro" not in sys.modules:
        package = types.ModuleType("dro")
        package.__path__ = [str(peers_folder() / "dro")]
        sys.modules["dro"] = package
    return importlib.import_module("dro.linear_model.group_dro").GroupDRO


def solve_dro(x: np.ndarray, y: np.ndarray, codes: np.ndarray) -> float:
    """Its group column is a feature too, so ours gets it as one."""
    model = dro_group_model()(x.shape[1] + 1, group_idx=x.shape[1], model_type="ols")
    return float(model.fit(np.column_stack([x, codes]), y)["robust_loss"])
