"""The data graph built where the products are made: distinct points, neighbours, kernel, operator and pieces in torch.

The same graph as on the host, by the same rules (:mod:`.operator`, :mod:`.grid`): points are sorted and merged, equal
distances are broken by the place in that order, sums over a row are taken in the order of its entries. Only the
exponential of the kernel may differ, in its last bit. No sum is taken by atomic additions, so the bytes are the same at
every run. The points then stand in the order of the grid's cells, which keeps neighbours near each other in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from toporo.errors import DataError
from toporo.topology.engine import quiet
from toporo.topology.grid import default_budget, nearest_in_cells
from toporo.topology.neighbors import Neighbors, on_device, scaled
from toporo.topology.operator import DiffusionOperator, Sigma, bandwidth
from toporo.types import Array

#: Bytes per entry that sorting a portion of rows takes: keys, places and values, each with a copy, and the sort's own.
ENTRY_BYTES = 80


def device_bytes(points: int, dimensions: int, neighbors: int) -> int:
    """Bytes at the peak of building the graph on a device, but for blocks of candidates and entries (an estimate)."""
    return int(points * (40.0 * dimensions + 42.0 * neighbors + 200.0))


class DeviceOperator(DiffusionOperator):
    """A :class:`~toporo.topology.operator.DiffusionOperator` whose S is a CSR tensor on the device it was built on."""

    @property
    def is_sparse(self) -> bool:
        """It is."""
        return True

    @property
    def nonzeros(self) -> int:
        """Stored entries of S."""
        return len(self.symmetric.values())

    def pieces(self) -> npt.NDArray[np.int32]:
        """For every point, the number of the connected piece it lies in; the largest piece is 0."""
        rows = SortedRows.of(self.symmetric.crow_indices())
        roots, piece = torch.unique(_components(rows, self.symmetric.col_indices()), return_inverse=True)
        if len(roots) == 1:
            return np.zeros(len(self), dtype=np.int32)
        labels = piece.cpu().numpy()
        by_size = np.argsort(-np.bincount(labels), kind="stable")
        rank = np.empty_like(by_size)
        rank[by_size] = np.arange(len(by_size))
        return np.asarray(rank[labels], dtype=np.int32)


@dataclass(frozen=True)
class SortedRows:
    """Rows of a CSR matrix, the longest first, so that the j-th entries of all rows that have one stand side by side.

    Attributes
    ----------
    order : row numbers by falling length.
    starts : first entry of each, in that order.
    left : entry j is how many rows have more than j entries.
    """

    order: Tensor
    starts: Tensor
    left: list[int]

    @classmethod
    def of(cls, indptr: Tensor) -> SortedRows:
        """Sort the rows."""
        lengths = indptr.diff()
        order = torch.argsort(lengths, descending=True, stable=True)
        falling = lengths[order]
        longest = int(falling[0])
        steps = torch.arange(longest, device=indptr.device, dtype=falling.dtype)
        left = len(falling) - torch.searchsorted(falling.flip(0).contiguous(), steps, right=True)
        return cls(order, indptr[:-1][order].long(), left.tolist())

    def sums(self, columns: Tensor, values: Tensor, weights: Tensor) -> Tensor:
        """The matrix times ``weights``, each row added up from its first entry to its last."""
        totals = torch.zeros(len(self.order), dtype=torch.float64, device=values.device)
        for j, count in enumerate(self.left):
            entry = self.starts[:count] + j
            totals[:count] += values[entry] * weights[columns[entry].long()]
        return torch.empty_like(totals).scatter_(0, self.order, totals)

    def least(self, columns: Tensor, labels: Tensor) -> Tensor:
        """The least label in each row."""
        least = labels[self.order]
        for j, count in enumerate(self.left):
            part = least[:count]
            torch.minimum(part, labels[columns[self.starts[:count] + j].long()], out=part)
        return torch.empty_like(least).scatter_(0, self.order, least)


def build_operator(
    rows: Array, sigma: Sigma, neighbors: int, device: str, budget: int | None = None
) -> tuple[DeviceOperator, npt.NDArray[np.intp], dict[str, Any]]:
    """The operator of the kNN kernel over the distinct rows, the point of every row in it, and how it was made.

    Parameters
    ----------
    rows : (n, d), finite; d within what the grid takes.
    sigma, neighbors : of the kernel.
    device : a torch device.
    budget : bytes for blocks, on top of :func:`device_bytes`; as :func:`~toporo.topology.grid.nearest_in_cells` has it
        unless given.
    """
    size = budget or default_budget(torch.device(device))
    given, scale = scaled(rows)
    points, place, counts = distinct(on_device(given, device))
    if len(points) == 1:
        raise DataError(f"all {len(rows)} points coincide: there is nothing to tell groups apart by.")
    if neighbors >= len(points):
        raise DataError(
            f"{len(points)} distinct points (of {len(rows)}) cannot have {neighbors} neighbours each: give more points "
            f"or neighbors={len(points) - 1}."
        )
    distances, indices, order = nearest_in_cells(points, neighbors, size)
    distances *= scale
    known = Neighbors(distances[:, -1:].cpu().numpy(), np.empty((0, 0), dtype=np.int32), "grid", 1.0)
    host = points.cpu().numpy() * scale if sigma == "median" else np.empty((0, 0))
    width = bandwidth(host, sigma, neighbors=neighbors, known=known)
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    near = _taken(rank.to(indices.dtype), indices, order, size)
    del indices, points
    values = (distances[order] / width).square_().neg_().exp_()
    del distances
    indptr, columns, entries = symmetrised(near, values, size)
    del near, values
    operator = _normalised(indptr, columns, entries, counts[order], size)
    described = {"neighbors": neighbors, "search": known.backend, "recall": known.recall, "sigma_value": width}
    return operator, rank[place].cpu().numpy().astype(np.intp, copy=False), described


def distinct(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Points sorted by their first coordinate, then the second, …, without repetition; every row's point; counts."""
    order = torch.arange(len(rows), device=rows.device)
    for axis in reversed(rows.unbind(1)):
        order = order[torch.argsort(axis[order] + 0.0, stable=True)]  # + 0.0 makes -0.0 and 0.0 one
    points = rows[order]
    new = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    new[1:] = (points[1:] != points[:-1]).any(dim=1)
    place = torch.empty_like(order).scatter_(0, order, new.cumsum(0) - 1)
    first = torch.nonzero(new)[:, 0]
    counts = torch.diff(first, append=torch.tensor([len(rows)], device=rows.device)).double()
    return points[new], place, counts


def symmetrised(near: Tensor, values: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """CSR rows of the union of a neighbour relation with its reverse, and a diagonal of ones; columns sorted.

    ``values`` belong to the pairs and are the same from either side; pairs whose value underflows to 0 are none.
    """
    n = len(near)
    row, column, value = _one_sided(near, values, size)
    firsts = torch.searchsorted(row, torch.arange(n + 1, device=near.device))
    indptr = firsts.clone()
    indptr[1:] += torch.cumsum((values > 0.0).sum(dim=1) + 1, 0)
    kind = torch.int32 if int(indptr[-1]) < 2**31 else torch.int64
    columns = torch.empty(int(indptr[-1]), dtype=kind, device=near.device)
    entries = torch.empty(len(columns), dtype=torch.float64, device=near.device)
    for a, b in _portions(indptr, size // ENTRY_BYTES):
        own = torch.arange(a, b, device=near.device)
        extra = slice(int(firsts[a]), int(firsts[b]))
        kept = values[a:b] > 0.0
        keys = torch.cat([(own[:, None] * n + near[a:b])[kept], row[extra] * n + column[extra], own * n + own])
        numbers = torch.cat([values[a:b][kept], value[extra], torch.ones_like(own, dtype=torch.float64)])
        keys, place = keys.sort()
        part = slice(int(indptr[a]), int(indptr[b]))
        columns[part] = (keys % n).to(kind)
        entries[part] = numbers[place]
    return indptr.to(kind), columns, entries


def _one_sided(near: Tensor, values: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The reverse of pairs (i, j) of which i is not among j's neighbours: rows j, columns i, values; sorted by both."""
    n, k = near.shape
    keys, numbers = [], []
    step = max(1, size // (16 * k * k))
    for start in range(0, n, step):
        others = near[start : start + step].long()
        own = torch.arange(start, start + len(others), device=near.device)
        alone = ~(near[others] == own[:, None, None]).any(dim=2) & (values[start : start + step] > 0.0)
        keys.append((others * n + own[:, None])[alone])
        numbers.append(values[start : start + step][alone])
    key, place = torch.cat(keys).sort()
    return key // n, key % n, torch.cat(numbers)[place]


def _normalised(indptr: Tensor, columns: Tensor, values: Tensor, weights: Tensor, size: int) -> DeviceOperator:
    """S of a kernel, which is overwritten; see :class:`~toporo.topology.operator.DiffusionOperator`."""
    rows = SortedRows.of(indptr)
    w = weights.cpu().numpy()
    degree = rows.sums(columns, values, weights)
    _scale(indptr, columns, values, 1.0 / degree, size)
    density = rows.sums(columns, values, weights).cpu().numpy()
    _scale(indptr, columns, values, torch.from_numpy(np.sqrt(w / density)).to(values.device), size)
    n = len(w)
    with quiet():
        matrix = torch.sparse_csr_tensor(indptr, columns, values, size=(n, n), check_invariants=False)
    return DeviceOperator(matrix, density, w)


def _scale(indptr: Tensor, columns: Tensor, values: Tensor, factors: Tensor, size: int) -> None:
    """``diag(f) A diag(f)`` in place."""
    for a, b in _portions(indptr, size // ENTRY_BYTES):
        part = slice(int(indptr[a]), int(indptr[b]))
        values[part] *= factors[columns[part].long()]
        values[part] *= torch.repeat_interleave(factors[a:b], indptr[a : b + 1].diff())


def _components(rows: SortedRows, columns: Tensor) -> Tensor:
    """For every point the lowest point that it is connected with: labels are hooked onto lower ones, and shortened."""
    labels = torch.arange(len(rows.order), device=columns.device)
    while True:
        least = rows.least(columns, labels)
        new = labels.scatter_reduce(0, labels, least, "amin")  # of whole numbers: in any order the same
        new = torch.minimum(new, least)
        while not torch.equal(shorter := new[new], new):
            new = shorter
        if torch.equal(new, labels):
            return labels
        labels = new


def _taken(rank: Tensor, indices: Tensor, order: Tensor, size: int) -> Tensor:
    """``rank[indices[order]]``, a portion of rows at a time."""
    result = torch.empty_like(indices)
    step = max(1, size // (32 * indices.shape[1]))
    for start in range(0, len(order), step):
        part = slice(start, start + step)
        result[part] = rank[indices[order[part]].long()]
    return result


def _portions(indptr: Tensor, entries: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most so many entries each, or of one row."""
    a, n = 0, len(indptr) - 1
    total = int(indptr[-1])
    while a < n:
        until = min(total, int(indptr[a]) + max(entries, 1))  # not beyond what the indices can be
        b = max(a + 1, int(torch.searchsorted(indptr, until, right=True)) - 1)
        yield a, b
        a = b
