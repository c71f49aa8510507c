"""Engines apply the filters to groups and compute l1 distances between the results; the choice of engine and device."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from scipy import sparse
from scipy.spatial.distance import cdist

from toporo.errors import SettingError, UnknownNameError
from toporo.machine import cores
from toporo.progress import logger
from toporo.text import human
from toporo.topology.operator import DiffusionOperator
from toporo.topology.plan import free_memory
from toporo.types import Array

Tick: TypeAlias = Callable[[], None]
Advance: TypeAlias = Callable[[int, torch.Tensor, torch.Tensor], None]

ENGINES = ("auto", "numba", "torch", "triton")
#: Multiplications from which on compiling (numba) or moving to a GPU is worth its time.
LARGE_WORK = 2e9
#: Multiplications from which on a run logs what it is about to do.
LOG_ABOVE = 2e10
#: Columns that the torch engine takes through the recurrence at a time.
TORCH_WIDTH = 64
#: Points compared at a time, on the CPU and on a GPU; fixed, so that the order of sums is.
CHUNK, CUDA_CHUNK = 4096, 65536


class Engine(Protocol):
    """Runs the recurrence of one operator.

    ``fields`` gives a block (filters, points, columns) in a form of the engine's own that lives where it works;
    ``city_block`` takes two of them, which may be the same, and gives an array (filters, columns of a, columns of b) on
    the host.

    Attributes
    ----------
    widest : the most columns to take through the recurrence at a time.
    """

    name: str
    device: str
    widest: int

    @staticmethod
    def padded(columns: int) -> int:
        """Columns in memory for so many groups."""
        ...

    def fields(self, measures: sparse.csc_array, rows: Sequence[Array], tick: Tick) -> Any:
        """Apply the filters with these Chebyshev coefficients to the columns of ``measures``."""
        ...

    def city_block(self, a: Any, b: Any) -> Array:
        """Compute l1 distances over all points between the columns of two blocks of fields."""
        ...


class TorchEngine:
    """The plain engine: torch's sparse or dense products, on the CPU or a GPU; nothing is copied back per step."""

    name = "torch"
    widest = TORCH_WIDTH

    def __init__(self, operator: DiffusionOperator, device: str = "cpu") -> None:
        self.device = device
        if operator.is_sparse:
            matrix = operator.symmetric
            index = np.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else np.int64  # int32 is twice as fast
            with quiet():
                self._matrix = torch.sparse_csr_tensor(
                    torch.from_numpy(matrix.indptr.astype(index, copy=False)),
                    torch.from_numpy(matrix.indices.astype(index, copy=False)),
                    torch.from_numpy(matrix.data),
                    size=matrix.shape,
                    check_invariants=False,
                ).to(device)
        else:
            self._matrix = torch.from_numpy(operator.symmetric).to(device)
        self._enter = torch.from_numpy(operator.enter).to(device)[:, None]
        self._leave = torch.from_numpy(operator.leave).to(device)[:, None]

    @staticmethod
    def padded(columns: int) -> int:
        """Columns in memory for so many groups, vectors of eight."""
        return 8 * -(-columns // 8)

    def fields(self, measures: sparse.csc_array, rows: Sequence[Array], tick: Tick) -> torch.Tensor:
        """Apply every filter to every column of ``measures``: shape (filters, points, columns)."""
        entries = measures.tocoo()
        older = torch.zeros(measures.shape, dtype=torch.float64, device=self.device)
        coordinates = tuple(
            torch.from_numpy(np.asarray(axis, dtype=np.int64)).to(self.device) for axis in entries.coords
        )
        older[coordinates] = torch.from_numpy(entries.data).to(self.device)
        older *= self._enter
        newer = self._first(older)
        tick()
        fields = torch.empty((len(rows), *older.shape), dtype=torch.float64, device=self.device)
        for field, row in zip(fields, rows, strict=True):
            torch.mul(older, float(row[0]), out=field)
            if len(row) > 1:
                field.add_(newer, alpha=float(row[1]))
        advance = self._advance(rows, fields)
        for j in range(2, max(len(row) for row in rows)):
            advance(j, older, newer)
            older, newer = newer, older
            tick()
        return fields

    def _first(self, x: torch.Tensor) -> torch.Tensor:
        """Compute T_1 = S x."""
        return self._matrix @ x

    def _advance(self, rows: Sequence[Array], fields: torch.Tensor) -> Advance:
        """Return the step that replaces T_{j-2} by T_j = 2 S T_{j-1} - T_{j-2} and adds it to the filters."""

        def advance(j: int, older: torch.Tensor, newer: torch.Tensor) -> None:
            older.addmm_(self._matrix, newer, beta=-1.0, alpha=2.0)
            for field, row in zip(fields, rows, strict=True):
                if len(row) > j and row[j] != 0.0:
                    field.add_(older, alpha=float(row[j]))

        return advance

    def city_block(self, a: torch.Tensor, b: torch.Tensor) -> Array:
        """Compute distances between the columns of two blocks of fields, one matrix per filter."""
        filters, points, _ = a.shape
        result = torch.zeros((filters, a.shape[2], b.shape[2]), dtype=torch.float64, device=self.device)
        chunk = CHUNK if self.device == "cpu" else CUDA_CHUNK
        for start in range(0, points, chunk):
            part = slice(start, start + chunk)
            left = (a[:, part] * self._leave[part]).transpose(1, 2).contiguous()
            right = left if a is b else (b[:, part] * self._leave[part]).transpose(1, 2).contiguous()
            if self.device == "cpu":  # scipy's is three times as fast there
                for k in range(filters):
                    result[k] += torch.from_numpy(cdist(left[k].numpy(), right[k].numpy(), "cityblock"))
            else:
                result += torch.cdist(left, right, p=1.0)
        return result.cpu().numpy()


def available_threads() -> int:
    """Return how many threads to use: torch's setting, within what the process may run on."""
    return max(1, min(torch.get_num_threads(), cores()))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch's notices that CSR tensors are in beta and are not checked."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse ", category=UserWarning)
        yield


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
