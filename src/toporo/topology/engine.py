"""Where the work is done: filters applied to groups, and l1 distances between the results."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from scipy.spatial.distance import cdist

from toporo.machine import cores
from toporo.topology.operator import DiffusionOperator
from toporo.types import Array

Tick: TypeAlias = Callable[[], None]
Advance: TypeAlias = Callable[[int, torch.Tensor, torch.Tensor], None]

#: Columns that the torch engine takes through the recurrence at a time.
TORCH_WIDTH = 64
#: Points compared at a time, on the CPU and on a GPU; fixed, so that the order of sums is.
CHUNK, CUDA_CHUNK = 4096, 65536


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
        """T_1 = S x."""
        return self._matrix @ x

    def _advance(self, rows: Sequence[Array], fields: torch.Tensor) -> Advance:
        """A step: T_j = 2 S T_{j-1} - T_{j-2} in the place of T_{j-2}, and its part in the filters."""

        def advance(j: int, older: torch.Tensor, newer: torch.Tensor) -> None:
            older.addmm_(self._matrix, newer, beta=-1.0, alpha=2.0)
            for field, row in zip(fields, rows, strict=True):
                if len(row) > j and row[j] != 0.0:
                    field.add_(older, alpha=float(row[j]))

        return advance

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


@dataclass(frozen=True)
class Schedule:
    """By step j of the recurrence: which filters are added to, and with what coefficients of T_{j-2} and of T_j.

    T_{j-2} is still there when T_j replaces it, so two terms go in at a time, every fourth step and at the end; T_0 and
    T_1 go in apart. Odd terms above the first do not occur (see :class:`~toporo.topology.operator.DyadicFilters`).

    Attributes
    ----------
    starts : step j's part of the others is starts[j] to starts[j + 1].
    use, before, after : filters, coefficients of T_{j-2}, coefficients of T_j.
    """

    starts: npt.NDArray[np.int64]
    use: npt.NDArray[np.int64]
    before: Array
    after: Array

    @classmethod
    def of(cls, rows: Sequence[Array]) -> Schedule:
        """The schedule of filters with these coefficients."""
        lengths = np.array([len(row) for row in rows])
        order = int(lengths.max()) - 1
        table = np.zeros((len(rows), order + 1))
        for row, own in zip(table, rows, strict=True):
            row[: len(own)] = own
        use: list[npt.NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
        before, after = [np.zeros(0)], [np.zeros(0)]
        counts = np.zeros(max(order, 1) + 2, dtype=np.int64)
        for j in range(2, order + 1, 2):
            pair = j % 4 == 0  # else T_{j-2} has had its turn
            if pair or j + 2 > order:
                taken = np.flatnonzero(lengths > (j - 2 if pair else j))
                counts[j + 1] = len(taken)
                use.append(taken)
                before.append(table[taken, j - 2] * pair)
                after.append(table[taken, j])
        return cls(np.cumsum(counts), np.concatenate(use), np.concatenate(before), np.concatenate(after))


def available_threads() -> int:
    """Threads to use: torch's setting, within what the process may run on."""
    return max(1, min(torch.get_num_threads(), cores()))


@contextmanager
def quiet() -> Iterator[None]:
    """Without torch's notices that CSR tensors are in beta and are not checked."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse ", category=UserWarning)
        yield
