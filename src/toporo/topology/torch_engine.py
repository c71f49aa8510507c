"""The recurrence in torch, for GPUs; nothing is copied back per step."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from toporo.topology.engine import Engine
from toporo.topology.operator import DiffusionOperator
from toporo.types import Array

#: Points compared at a time; fixed, so that the order of sums is.
CHUNK = 65536


class TorchEngine(Engine):
    """Fields and their distances by torch's sparse or dense products."""

    name = "torch"

    def __init__(self, operator: DiffusionOperator, device: str) -> None:
        self.device = device
        super().__init__(operator)
        matrix = operator.symmetric
        if operator.is_sparse:
            index = np.int32 if matrix.nnz < 2**31 else np.int64  # int32 is twice as fast
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sparse ", category=UserWarning)  # CSR tensors are in beta
                self._matrix = torch.sparse_csr_tensor(
                    torch.from_numpy(matrix.indptr.astype(index, copy=False)),
                    torch.from_numpy(matrix.indices.astype(index, copy=False)),
                    torch.from_numpy(matrix.data),
                    size=matrix.shape,
                    check_invariants=False,
                ).to(device)
        else:
            self._matrix = self._array(matrix)

    def city_block(self, a: torch.Tensor, b: torch.Tensor) -> Array:
        result = torch.zeros((len(a), a.shape[2], b.shape[2]), dtype=torch.float64, device=self.device)
        for start in range(0, a.shape[1], CHUNK):
            part = slice(start, start + CHUNK)
            scale = self._leave[part, None]
            left = (a[:, part] * scale).transpose(1, 2).contiguous()
            right = left if a is b else (b[:, part] * scale).transpose(1, 2).contiguous()
            result += torch.cdist(left, right, p=1.0)
        return result.cpu().numpy()

    def _array(self, values: Any) -> torch.Tensor:
        return torch.from_numpy(values).to(self.device)

    def _zeros(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=self.device)

    def _replace(self, older: Any, newer: Any) -> None:
        older.addmm_(self._matrix, newer, beta=-1.0, alpha=2.0)

    def _add(self, field: torch.Tensor, factor: float, term: torch.Tensor) -> None:
        field.add_(term, alpha=factor)
