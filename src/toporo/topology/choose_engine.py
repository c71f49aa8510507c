"""Choice of the device and the engine for a diffusion."""

from __future__ import annotations

import importlib.util
from typing import Any

from toporo.checks import one_of
from toporo.errors import SettingError
from toporo.topology.engine import Engine
from toporo.topology.operator import DiffusionOperator

#: Multiplications from which on compiling (numba) or moving to a GPU is worth its time.
LARGE_WORK = 2e9


def check_device(device: Any) -> str:
    """Return the name of a device, which must exist; ``"auto"`` is chosen later."""
    kind, _, number = str(device).partition(":")
    if one_of(kind, "device", ["auto", "cpu", "cuda"]) != "cuda":
        return kind
    count = 0
    if installed("torch"):
        import torch

        count = torch.cuda.device_count()
    if not (number or "0").isdecimal() or int(number or 0) >= count:
        raise SettingError(
            f"device={str(device)!r}, but torch sees {count} GPU(s) here. Use device='cpu' or 'auto', or install a "
            "build of torch with CUDA."
        )
    return str(device)


def choose_device(device: str, work: float) -> str:
    """Return the device; ``"auto"`` is a GPU if torch sees one and the work is worth moving there, else the CPU.

    Parameters
    ----------
    device : a checked name or ``"auto"``.
    work : multiplications to come.
    """
    if device != "auto":
        return device
    if work < LARGE_WORK or not installed("torch"):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def make_engine(operator: DiffusionOperator, device: str, work: float) -> Engine:
    """Return the engine for an operator: the compiled one of the device if it is installed and worth compiling.

    Parameters
    ----------
    operator, device, work : the operator, where to run, and the multiplications to come.
    """
    if device != "cpu":
        if operator.is_sparse and installed("triton"):
            from toporo.topology.gpu import TritonEngine  # triton comes with CUDA builds of torch alone

            return TritonEngine(operator, device)
        from toporo.topology.torch_engine import TorchEngine

        return TorchEngine(operator, device)
    if operator.is_sparse and operator.nonzeros < 2**31 and work >= LARGE_WORK and installed("numba"):
        from toporo.topology.fused import FusedEngine  # numba is an extra, and takes a while to load

        return FusedEngine(operator)
    return Engine(operator)


def installed(name: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    return importlib.util.find_spec(name) is not None
