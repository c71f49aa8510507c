"""The recurrence on a GPU, compiled by Triton, which CUDA builds of torch bring along.

The same pass as :mod:`.fused`: one program a row, which reads the rows it needs, writes its own and adds it to the
filters. No two programs write to the same place and every sum has its order, so the result is the same at every run;
torch's own sparse products (cuSPARSE) are not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl

from toporo.topology.chebyshev import Schedule
from toporo.topology.engine import Advance
from toporo.topology.torch_engine import TorchEngine
from toporo.types import Array

#: Points added up by one program, at least, and the most programs a filter; both fix the order of sums.
CHUNK, MOST_PARTS = 2048, 512


@triton.jit
def _step(  # type: ignore[no-untyped-def]
    indptr, columns, values, x, out, fields, stride, use, before, after, count, width, LANES: tl.constexpr  # noqa: N803
):  # fmt: skip
    """One row: out = 2 (values · rows of x) - out; fields += before · old + after · new."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    inside = lane < width
    total = tl.zeros([LANES], dtype=tl.float64)
    for place in range(tl.load(indptr + row), tl.load(indptr + row + 1)):
        column = tl.load(columns + place).to(tl.int64)
        total += tl.load(values + place) * tl.load(x + column * width + lane, mask=inside, other=0.0)
    own = row * width + lane
    old = tl.load(out + own, mask=inside, other=0.0)
    new = 2.0 * total - old
    tl.store(out + own, new, mask=inside)
    for k in range(count):
        field = fields + tl.load(use + k) * stride + own
        added = tl.load(before + k) * old + tl.load(after + k) * new
        tl.store(field, tl.load(field, mask=inside, other=0.0) + added, mask=inside)


@triton.jit
def _city_block(  # type: ignore[no-untyped-def]
    a, b, leave, out, points, chunk, width_a, width_b, A: tl.constexpr, B: tl.constexpr  # noqa: N803
):  # fmt: skip
    """Sums of |a_ix - b_iy| leave_i over one chunk of points, for one filter and all pairs of columns."""
    part, filter_ = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    x, y = tl.arange(0, A), tl.arange(0, B)
    total = tl.zeros([A, B], dtype=tl.float64)
    first = part * chunk
    for point in range(first, min(first + chunk, points)):
        place = filter_ * points + point
        left = tl.load(a + place * width_a + x, mask=x < width_a, other=0.0)
        right = tl.load(b + place * width_b + y, mask=y < width_b, other=0.0)
        total += tl.abs(left[:, None] - right[None, :]) * tl.load(leave + point)
    own = (filter_ * tl.num_programs(0) + part) * A * B
    tl.store(out + own + x[:, None] * B + y[None, :], total)


class TritonEngine(TorchEngine):
    """Like :class:`.TorchEngine`, with kernels of its own; for sparse operators on a GPU."""

    name = "triton"

    def _first(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        self._launch(x, out, out, out, [torch.zeros(1, dtype=torch.int64, device=x.device), out, out], 0)
        return out.mul_(0.5)  # a step takes 2 S x

    def _advance(self, schedule: Schedule, fields: torch.Tensor) -> Advance:
        tables = [self._array(part) for part in (schedule.use, schedule.before, schedule.after)]

        def advance(j: int, older: torch.Tensor, newer: torch.Tensor) -> None:
            start, stop = int(schedule.starts[j]), int(schedule.starts[j + 1])
            self._launch(newer, older, fields, fields[0], [table[start:] for table in tables], stop - start)

        return advance

    def _launch(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        fields: torch.Tensor,
        field: torch.Tensor,
        use: Sequence[torch.Tensor],
        count: int,
    ) -> None:
        matrix = self._matrix.crow_indices(), self._matrix.col_indices(), self._matrix.values()
        rows, width = out.shape
        lanes = max(32, triton.next_power_of_2(width))
        with torch.cuda.device(out.device):
            _step[(rows,)](
                *matrix, x, out, fields, field.numel(), *use, count, width, LANES=lanes, num_warps=1
            )  # fmt: skip

    def city_block(self, a: torch.Tensor, b: torch.Tensor) -> Array:
        """Distances between the columns of two blocks of fields, one matrix a filter."""
        filters, points, width_a = a.shape
        width_b = b.shape[2]
        chunk = CHUNK * -(-points // (CHUNK * MOST_PARTS))
        parts = -(-points // chunk)
        lanes_a, lanes_b = (max(16, triton.next_power_of_2(width)) for width in (width_a, width_b))
        sums = torch.empty((filters, parts, lanes_a, lanes_b), dtype=torch.float64, device=a.device)
        with torch.cuda.device(a.device):
            _city_block[(parts, filters)](
                a, b, self._leave, sums, points, chunk, width_a, width_b, A=lanes_a, B=lanes_b, num_warps=8
            )
        return np.asarray(sums.sum(dim=1)[:, :width_a, :width_b].cpu())
