"""Choice of the engine and the device for an operator."""

from __future__ import annotations

import importlib.util
from functools import cache

import torch

from toporo.errors import SettingError, UnknownNameError
from toporo.progress import logger
from toporo.text import human
from toporo.topology.engine import Engine, TorchEngine
from toporo.topology.operator import DiffusionOperator
from toporo.topology.plan import free_memory

ENGINES = ("auto", "numba", "torch", "triton")
#: Multiplications from which on compiling (numba) or moving to a GPU is worth its time.
LARGE_WORK = 2e9
#: Multiplications from which on a run logs what it is about to do.
LOG_ABOVE = 2e10


def make_engine(name: str, operator: DiffusionOperator, device: str, work: float) -> Engine:
    """Return the engine by name; ``"auto"`` is the fused one for the device where it is installed and worth it.

    Parameters
    ----------
    name : one of :data:`ENGINES`.
    operator : what the engine is for.
    device : ``"cpu"`` or a GPU, as :func:`choose_device` gives it.
    work : multiplications to come.
    """
    if name not in ENGINES:
        raise UnknownNameError("engine", name, ENGINES)
    usable = {
        "numba": device == "cpu" and operator.is_sparse and operator.nonzeros < 2**31,
        "triton": device != "cpu" and operator.is_sparse,
    }
    if name == "auto":
        fused = next((kind for kind, fits in usable.items() if fits and installed(kind)), None)
        name = fused if fused and (device != "cpu" or work >= LARGE_WORK) else "torch"
        if usable["numba"] and not fused and work >= LOG_ABOVE:
            _mention_the_extra()
    elif not usable.get(name, True):
        where = {"numba": "the CPU", "triton": "a GPU (device='cuda')"}[name]
        raise SettingError(
            f"engine={name!r} works on {where} and on sparse kernels; use engine='auto' or kernel='knn'."
        )
    elif not installed(name):
        advice = "pip install 'toporo[fast]'" if name == "numba" else "install a build of torch with CUDA"
        raise SettingError(f"engine={name!r} needs {name}, which is not installed: {advice}.")
    if name == "numba":
        from toporo.topology.fused import FusedEngine  # numba is an extra, and takes a while to load

        return FusedEngine(operator)
    if name == "triton":
        from toporo.topology.gpu import TritonEngine  # triton comes with CUDA builds of torch alone

        return TritonEngine(operator, device)
    return TorchEngine(operator, device)


def installed(name: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # sys.modules[name] is None
        return False


@cache
def _mention_the_extra() -> None:
    """Log, once in a process, what would make large work faster; where nobody set up a log, on standard error."""
    logger.warning("diffusion EMD is about three times as fast with numba: pip install 'toporo[fast]'.")


def choose_device(device: str, work: float) -> str:
    """Return the device; ``"auto"`` is a GPU if there is one and the work is worth moving. Others must exist."""
    if device == "auto":
        return "cuda" if work >= LARGE_WORK and torch.cuda.is_available() else "cpu"
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


def with_room(operator: DiffusionOperator, device: str, *, insisted: bool) -> str:
    """Return the device if the operator and eight groups fit there, else the CPU.

    Groups are taken in blocks; the operator has to be there as a whole. If the user ``insisted`` on the device, it is
    an error.
    """
    free = None if device == "cpu" else free_memory(device)
    entry = (12 if operator.nonzeros < 2**31 else 16) if operator.is_sparse else 8
    needed = operator.nonzeros * entry + 8 * len(operator) * 8 * 4
    if free is None or needed <= free:
        return device
    if insisted:
        raise SettingError(
            f"{device} has {human(free)} free, but the data graph of {len(operator)} points and eight groups at a time "
            f"need {human(needed)}. Use device='cpu', fewer neighbours or fewer points: groups are taken in blocks, "
            "the graph is not."
        )
    return "cpu"
