"""Which engine computes the distances, on which device, and how many groups and filters are in memory at a time."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from toporo.errors import SettingError, UnknownNameError
from toporo.machine import free_bytes
from toporo.progress import logger
from toporo.text import human
from toporo.topology.engine import Engine, TorchEngine
from toporo.topology.neighbors import TREE_DIMENSIONS
from toporo.topology.operator import DiffusionOperator

ENGINES = ("auto", "numba", "torch", "triton")
#: Multiplications below which compiling (numba) or moving to the GPU takes longer than the work.
WORTH_COMPILING = 2e9
WORTH_MOVING = 2e9
#: Multiplications from which on a run says what it is about to do.
WORTH_SAYING = 2e10


def make_engine(name: str, operator: DiffusionOperator, device: str, work: float) -> Engine:
    """The engine by name; ``"auto"`` is the fused one for the device where it is installed, usable and worth it.

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
        worth = [kind for kind, fits in usable.items() if fits and installed(kind)]
        name = worth[0] if worth and (device != "cpu" or work >= WORTH_COMPILING) else "torch"
        if usable["numba"] and not worth and work >= WORTH_SAYING:
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
    """Whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # sys.modules[name] is None
        return False


@cache
def _mention_the_extra() -> None:
    """Say, once in a process, what would make large work faster; where nobody set up a log, on standard error."""
    logger.warning("diffusion EMD is about three times as fast with numba: pip install 'toporo[fast]'.")


def choose_device(device: str, work: float) -> str:
    """``"auto"`` is the GPU where there is one and the work is worth moving; anything else must exist."""
    if device == "auto":
        return "cuda" if work >= WORTH_MOVING and torch.cuda.is_available() else "cpu"
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


@dataclass(frozen=True)
class Plan:
    """What is held at a time.

    Every block of groups is taken through the recurrence as often as needed: once where all blocks and filters fit,
    more often where they have to take turns.

    Attributes
    ----------
    blocks : (first, last) group of each block; columns that go through the recurrence together.
    filters : indices of the filters computed in one go; short ones together, so that repeating them is cheap.
    resident : blocks whose fields are held at a time.
    products : sparse products in all, each over one block.
    peak : predicted bytes at the peak, on top of what the process held before.
    """

    blocks: tuple[tuple[int, int], ...]
    filters: tuple[tuple[int, ...], ...]
    resident: int
    products: int
    peak: int

    @property
    def widest(self) -> int:
        """The most groups in a block."""
        return max(last - first for first, last in self.blocks)

    def turns(self) -> Iterator[tuple[list[int], list[int]]]:
        """Blocks to hold, and blocks to compare with them one after the other, until every pair has met."""
        return _turns(len(self.blocks), self.resident)


def _turns(count: int, resident: int) -> Iterator[tuple[list[int], list[int]]]:
    """Turns of ``count`` blocks of which ``resident`` are held at a time; see :meth:`Plan.turns`."""
    rest = list(range(count))
    while rest:
        held = len(rest) if len(rest) <= resident else resident - 1
        yield rest[:held], rest[held:]
        rest = rest[held:]


def make_plan(
    *, points: int, groups: int, fixed: int, lengths: Sequence[int], widest: int, limit: int | None, given: bool = True
) -> Plan:
    """The cheapest plan that stays within ``limit`` bytes.

    ``fixed`` is what the graph holds, ``lengths`` the order of every filter, ``widest`` the most columns an engine
    takes at a time; ``given`` says whether the limit is the user's or the machine's.
    """
    plans: list[Plan] = []
    least = None
    widest = min(widest, groups)
    for width in (widest, *range(8 * ((widest - 1) // 8), 0, -8)):
        count = -(-groups // width)
        even = -(-groups // count)  # blocks of equal width
        column = 8 * points * _padded(even)
        blocks = tuple((first, min(first + even, groups)) for first in range(0, groups, even))
        for at_once in range(len(lengths), 0, -1):
            fitting = count if limit is None else ((limit - fixed) // column - 2) // at_once
            resident = min(count, max(fitting, 2))
            peak = fixed + column * (2 + at_once * resident)
            least = peak if least is None else min(least, peak)
            if limit is None or peak <= limit:
                filters = _portions(lengths, at_once)
                visits = sum(len(held) + len(others) for held, others in _turns(count, resident))
                products = visits * sum(max(lengths[k] for k in portion) for portion in filters)
                plans.append(Plan(blocks, filters, resident, products, peak))
    if not plans:
        told = "memory_limit is" if given else "free memory is"
        raise SettingError(
            f"{told} {human(limit or 0)}, but {points} points and {groups} groups need at least {human(least or 0)}: "
            f"{human(fixed)} for the data graph and the rest for one group and one scale at a time. Raise the limit, "
            "use fewer neighbours, or give fewer points."
        )
    return min(plans, key=lambda plan: _cost(plan.products, plan.widest))


def _cost(products: int, columns: int) -> int:
    """What products cost, in columns; reading the matrix costs as much as eight (measured at 100 000 points)."""
    return products * (_padded(columns) + 8)


def _padded(columns: int) -> int:
    """Columns in memory: engines work in vectors of eight."""
    return 8 * -(-columns // 8)


def _portions(lengths: Sequence[int], at_once: int) -> tuple[tuple[int, ...], ...]:
    """Filters in portions, longest first: a portion takes as many products as its longest."""
    order = sorted(range(len(lengths)), key=lambda k: (-lengths[k], k))
    return tuple(tuple(sorted(order[start : start + at_once])) for start in range(0, len(order), at_once))


def with_room(operator: DiffusionOperator, device: str, *, insisted: bool) -> str:
    """The device if the operator fits there with eight columns; else the CPU, or an error if the user ``insisted``.

    What is portioned are the groups; the operator has to be there as a whole.
    """
    free = None if device == "cpu" else free_memory(device)
    entry = (12 if operator.nonzeros < 2**31 else 16) if operator.is_sparse else 8
    needed = operator.nonzeros * entry + 8 * len(operator) * 8 * 4
    if free is None or needed <= free:
        return device
    if insisted:
        raise SettingError(
            f"{device} has {human(free)} free, but the data graph of {len(operator)} points and eight groups at a time "
            f"need {human(needed)}. Use device='cpu', fewer neighbours or fewer points: groups are taken in portions, "
            "the graph is not."
        )
    return "cpu"


def operator_bytes(entries: int, points: int, *, is_sparse: bool) -> int:
    """Bytes of an operator with so many entries, its factors and the groups on it."""
    return entries * (16 if is_sparse else 8) + 100 * points


def graph_bytes(points: int, dimensions: int, neighbors: int | None) -> tuple[int, int]:
    """Bytes at the peak of building a kernel, and of its operator afterwards (estimates).

    A kNN kernel has about 1.3 times as many entries a point as neighbours were asked for, since the relation is made
    symmetric, and one more. ``neighbors`` is None for a dense kernel.
    """
    if neighbors is None:
        return 28 * points**2, operator_bytes(points**2, points, is_sparse=False)  # distances, transpose, a mask
    entries = int(points * (1.3 * neighbors + 1))
    blocks = min(2.0**28, 16.0 * points**2) if dimensions > TREE_DIMENSIONS else 0.0  # brute force works in blocks
    copies = 40.0 if dimensions > TREE_DIMENSIONS else 16.0  # of the points, in bytes a number
    building = points * (copies * dimensions + 62.0 * neighbors + 48.0) + blocks
    return int(max(building, entries * 32)), operator_bytes(entries, points, is_sparse=True)


def free_memory(device: str) -> int | None:
    """Nine tenths of the bytes free on a device, or None where the system does not tell."""
    if device != "cpu":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch's own, to be reused
        return int(0.9 * (torch.cuda.mem_get_info(device)[0] + cached))
    return free_bytes()
