"""Where the work is done: filters applied to groups, and l1 distances between the results."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from toporo.errors import SettingError, UnknownNameError
from toporo.topology.operator import DiffusionOperator

__all__ = ["ENGINES", "Engine", "TorchEngine", "available_threads", "choose_device", "make_engine", "one_thread"]

Array = npt.NDArray[np.float64]
Tick: TypeAlias = Callable[[], None]

ENGINES = ("auto", "numba", "torch")
#: Columns that the torch engine takes through the recurrence at a time.
TORCH_WIDTH = 64
#: Points compared at a time, on the CPU and on a GPU; fixed, so that the order of sums is.
CHUNK, CUDA_CHUNK = 4096, 65536
#: Multiplications below which compiling (numba) or moving to the GPU takes longer than the work.
WORTH_COMPILING = 2e9
WORTH_MOVING = 2e9


class Engine(Protocol):
    """What does the work for one operator.

    ``fields`` gives a block (filters, points, columns) in a form of the engine's own that lives where it works;
    ``city_block`` takes two of them, which may be the same, and gives an array (filters, columns of a, columns of b) on
    the host.
    """

    name: str
    device: str

    def widest(self) -> int:
        """The most columns to take through the recurrence at a time."""
        ...

    def fields(self, measures: sparse.csc_array, rows: Sequence[Array], tick: Tick) -> Any:
        """Apply the filters with these Chebyshev coefficients to the columns of ``measures``."""
        ...

    def city_block(self, a: Any, b: Any) -> Array:
        """l1 distances over all points between the columns of two blocks of fields."""
        ...


class TorchEngine:
    """The plain engine: torch's sparse or dense products, on the CPU or a GPU; nothing is copied back per step."""

    name = "torch"

    def __init__(self, operator: DiffusionOperator, device: str = "cpu") -> None:
        self.device = device
        if operator.is_sparse:
            matrix = operator.symmetric
            index = np.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else np.int64  # int32 is twice as fast
            with _quiet():
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
    def widest() -> int:
        """The most columns to take through the recurrence at a time."""
        return TORCH_WIDTH

    def fields(self, measures: sparse.csc_array, rows: Sequence[Array], tick: Tick) -> torch.Tensor:
        """Every filter applied to every column of ``measures``: shape (filters, points, columns)."""
        entries = measures.tocoo()
        older = torch.zeros(measures.shape, dtype=torch.float64, device=self.device)
        place = tuple(torch.from_numpy(np.asarray(axis, dtype=np.int64)).to(self.device) for axis in entries.coords)
        older[place] = torch.from_numpy(entries.data).to(self.device)
        older *= self._enter
        newer = self._matrix @ older
        tick()
        fields = torch.empty((len(rows), *older.shape), dtype=torch.float64, device=self.device)
        for field, row in zip(fields, rows, strict=True):
            torch.mul(older, float(row[0]), out=field)
            if len(row) > 1:
                field.add_(newer, alpha=float(row[1]))
        for j in range(2, max(len(row) for row in rows)):
            older.addmm_(self._matrix, newer, beta=-1.0, alpha=2.0)
            older, newer = newer, older
            for field, row in zip(fields, rows, strict=True):
                if len(row) > j and row[j] != 0.0:
                    field.add_(newer, alpha=float(row[j]))
            tick()
        return fields

    def city_block(self, a: torch.Tensor, b: torch.Tensor) -> Array:
        """Distances between the columns of two blocks of fields, one matrix a filter."""
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


def make_engine(name: str, operator: DiffusionOperator, device: str, work: float) -> Engine:
    """The engine by name; ``"auto"`` is numba where it is installed, can be used and is worth compiling."""
    if name not in ENGINES:
        raise UnknownNameError("engine", name, ENGINES)
    usable = device == "cpu" and operator.is_sparse and operator.nonzeros < 2**31
    if name == "numba" and not usable:
        raise SettingError("engine='numba' works on the CPU and on sparse kernels; use engine='auto' or kernel='knn'.")
    if name == "numba" or (name == "auto" and usable and work >= WORTH_COMPILING and has_numba()):
        if not has_numba():
            raise SettingError("engine='numba' needs numba, which is not installed: pip install 'toporo[fast]'.")
        from toporo.topology.fused import FusedEngine

        return FusedEngine(operator)
    return TorchEngine(operator, device)


def has_numba() -> bool:
    """Whether numba can be imported, without importing it."""
    try:
        return importlib.util.find_spec("numba") is not None
    except ValueError:  # sys.modules["numba"] is None
        return False


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
    return str(device)


def available_threads() -> int:
    """Threads to use: torch's setting, within what the process may run on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(torch.get_num_threads(), cores))


@contextmanager
def one_thread() -> Iterator[None]:
    """Dense products on one thread: several would change the order of sums, and so the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's notice that CSR tensors are in beta."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support", category=UserWarning)
        yield
