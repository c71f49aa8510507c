"""Engines apply the filters to groups and compute l1 distances between the results."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import numpy as np
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
        """Round the number of groups up to whole vectors of eight."""
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
