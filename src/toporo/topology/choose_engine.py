"""Choice of the device and the engine for an operator."""

from __future__ import annotations

import importlib.util
from typing import Any

from toporo.errors import SettingError, UnknownNameError
from toporo.topology.engine import Engine
from toporo.topology.memory import free_memory
from toporo.topology.operator import DiffusionOperator

ENGINES = ("auto", "numba", "scipy", "torch", "triton")
#: Multiplications from which on compiling (numba) or moving to a GPU is worth its time.
LARGE_WORK = 2e9
#: Advice for engines that are not installed.
INSTALL = {
    "numba": "pip install 'toporo[fast]'",
    "torch": "pip install torch",
    "triton": "install a build of torch with CUDA",
}


def check_device(device: Any) -> str:
    """Return the name of a device, which must exist; ``"auto"`` is chosen later."""
    if str(device) in ("auto", "cpu"):
        return str(device)
    import torch

    try:
        kind = torch.device(device)
    except (RuntimeError, TypeError):
        raise UnknownNameError("device", device, ["auto", "cpu", "cuda", "cuda:0"]) from None
    if kind.type not in ("cpu", "cuda"):
        raise UnknownNameError("device", device, ["auto", "cpu", "cuda", "cuda:0"])
    if kind.type == "cuda" and (kind.index or 0) >= torch.cuda.device_count():
        raise SettingError(
            f"device={device!r}, but torch sees {torch.cuda.device_count()} GPU(s) here. Use device='cpu' or 'auto', "
            "or install a build of torch with CUDA."
        )
    return "cpu" if kind.type == "cpu" else str(kind)


def choose_device(device: str, work: float, size: int) -> str:
    """Return the device; ``"auto"`` is a GPU if the work is worth moving there and fits, else the CPU.

    Parameters
    ----------
    device : a checked name or ``"auto"``.
    work : multiplications to come.
    size : bytes that the work takes at least.
    """
    if device != "auto":
        return device
    if work < LARGE_WORK or not installed("torch"):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() and size <= (free_memory("cuda") or 0) else "cpu"


def make_engine(name: str, operator: DiffusionOperator, device: str, work: float) -> Engine:
    """Return the engine by name; ``"auto"`` is the compiled one of the device where it is installed and worth it.

    Parameters
    ----------
    name : one of :data:`ENGINES`.
    operator, device, work : the operator, where to run, and the multiplications to come.
    """
    plain, compiled = ("scipy", "numba") if device == "cpu" else ("torch", "triton")
    can_compile = operator.is_sparse and (device != "cpu" or operator.nonzeros < 2**31)
    if name == "auto":
        worth_it = can_compile and (device != "cpu" or work >= LARGE_WORK)
        name = compiled if worth_it and installed(compiled) else plain
    if name not in (plain, "torch", compiled) or (name == compiled and not can_compile):
        where = "a GPU (device='cuda')" if name == "triton" else "the CPU"
        few = " of fewer than 2**31 entries" if name == "numba" else ""
        kernels = "" if name == "scipy" else f" and on sparse kernels{few}"
        raise SettingError(f"engine={name!r} works on {where}{kernels}; use engine='auto' or kernel='knn'.")
    if not installed(name):
        raise SettingError(f"engine={name!r} needs {name}, which is not installed: {INSTALL[name]}.")
    if name == "numba":
        from toporo.topology.fused import FusedEngine  # numba is an extra, and takes a while to load

        return FusedEngine(operator)
    if name == "triton":
        from toporo.topology.gpu import TritonEngine  # triton comes with CUDA builds of torch alone

        return TritonEngine(operator, device)
    if name == "torch":
        from toporo.topology.torch_engine import TorchEngine

        return TorchEngine(operator, device)
    return Engine(operator)


def installed(name: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # sys.modules[name] is None
        return False
