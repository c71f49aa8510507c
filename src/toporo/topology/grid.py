r"""Exact nearest neighbours in few dimensions by a grid of many levels, in plain torch on any device.

Points are sorted by the Morton code of their cell in a fine grid (the bits of their coordinates, interleaved). A cell
of level L is then one run of points, for every L at once: its side is :math:`2^L` fine cells. Each point looks at its
cell and the :math:`3^d - 1` around it, at a level where its own holds a few points. Its k-th distance is certified if
it is shorter than the way out of those cells; a point that is not certified looks again at the level whose cells are as
wide as that distance, and so certain to do.

Neighbours are in the order of their squared distance, and of their index where those are equal. A squared distance is
:math:`((a_1-b_1)^2 + (a_2-b_2)^2) + \dots`, every step rounded by itself, which is what scipy's k-d tree computes in up
to seven dimensions. Nothing is added up in an order that could change: the bytes are the same on every device.

Cost: for 15 neighbours a point looks at some 120 candidates in two dimensions, 400 in three, 1400 in four and 4000 in
six (clouds of ``benchmarks/gpu.py``); :data:`CANDIDATE_BYTES` bytes are held for each, and about 300 moved. Ten million
points in three dimensions thus move 1.2 TB, a quarter of a second at an H200's 4.8 TB/s. That is an ESTIMATE from
counts, not a measurement: it leaves out sorting, launches and the selection. Crowds tighter than a fine cell cost the
square of their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor

#: The most dimensions; a code has 62 bits, and the cells around one are 3^d.
MOST_DIMENSIONS = 6
#: Bytes that a block takes for each candidate: place, index, distance, difference, and what is selected from.
CANDIDATE_BYTES = 64
#: Bytes of a block of candidates at most, on the CPU (where a cache holds it) and on a GPU.
CPU_BYTES, GPU_BYTES = 1 << 24, 1 << 31
#: Candidates taken beyond those asked for: as many of the last distance are put in order without another look.
SPARE = 4
#: A point looks at the level where its own cell holds at least this many times (k + 1) / V_d points.
CROWD = 0.6
#: Points, evenly taken, whose middle gives the box of the grid; its border cells reach to infinity.
SAMPLE = 1 << 16
#: Share of that sample left out on either side.
TAIL = 1.0 / 256
#: What rounding may take off a way out, relative and in fine cells; the least side of a fine cell: squares underflow.
SHARP, BLUNT, LEAST_SIDE = 1e-9, 1e-5, 1e-140


def nearest_in_cells(points: Tensor, k: int, budget: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Distances and indices of the ``k`` nearest other points, (n, k) each, and an order that keeps near points near.

    Parameters
    ----------
    points : (n, d) of float64 on any device, finite, d at most :data:`MOST_DIMENSIONS`.
    k : less than n.
    budget : bytes that a block of candidates may take, or the candidates of one point where those are more; a quarter
        of what is free on the device, at most :data:`GPU_BYTES`, unless given.
    """
    cells = Cells.of(points, k)
    size = max(1, (budget or default_budget(points.device)) // CANDIDATE_BYTES)
    n = len(points)
    distances = torch.full((n, k), torch.inf, dtype=torch.float64, device=points.device)
    indices = torch.zeros((n, k), dtype=torch.int32 if n < 2**31 else torch.int64, device=points.device)
    levels = cells.levels(k)
    for level in range(cells.bits + 1):
        waiting = torch.nonzero(levels == level)[:, 0]
        for rows, ranges in cells.blocks(waiting, level, size):
            near, which = cells.select(rows, ranges, k)
            places = cells.order[rows]
            distances[places], indices[places] = near, which.to(indices.dtype)
            last = near[:, -1].sqrt() * cells.scale
            short = torch.nonzero(~(last < cells.way_out(rows, level)))[:, 0]
            if level < cells.bits and len(short):
                levels[rows[short]] = _wide_enough(last[short], level, cells.bits)
    return roots(distances), indices, cells.order


def roots(squares: Tensor) -> Tensor:
    """Square roots in place, rounded correctly: on the CPU by numpy, as torch's may be off by the last bit there."""
    if squares.device.type == "cpu":
        np.sqrt(squares.numpy(), out=squares.numpy())
        return squares
    return squares.sqrt_()


def default_budget(device: torch.device) -> int:
    """Bytes for a block of candidates."""
    if device.type != "cuda":
        return CPU_BYTES
    return min(GPU_BYTES, torch.cuda.mem_get_info(device)[0] // 4)


@dataclass(frozen=True)
class Cells:
    """Points in the order of their codes, and those of them that can be anyone's neighbours.

    Of points that coincide only the k + 1 of the lowest index can be, as every point has k nearer or before them: the
    rest are left out of the candidates.

    Attributes
    ----------
    order : index of every sorted point.
    codes : of every sorted point.
    here : coordinates of every sorted point, one tensor per dimension.
    axes : coordinates of the candidates.
    candidates : codes of the candidates.
    names : index of every candidate.
    own : for every sorted point, its own place among the candidates, or -1.
    low : the box's lowest corner.
    scale : fine cells per unit of length.
    bits : levels of the grid; at the last there is one cell.
    """

    order: Tensor
    codes: Tensor
    here: tuple[Tensor, ...]
    axes: tuple[Tensor, ...]
    candidates: Tensor
    names: Tensor
    own: Tensor
    low: Tensor
    scale: float
    bits: int

    @classmethod
    def of(cls, points: Tensor, k: int) -> Cells:
        """Sort the points into cells."""
        dimensions = points.shape[1]
        bits = min(30, 62 // dimensions)
        low, side = _box(points)
        scale = 2.0**bits / max(side, LEAST_SIDE * 2.0**bits)
        codes, order = torch.sort(interleave(_fine_cells((points - low) * scale, bits), bits), stable=True)
        here = tuple(axis[order] for axis in points.unbind(1))
        kept = _first_of_coincident(here, codes, k + 1)
        if kept is None:
            own = torch.arange(len(order), device=order.device)
            return cls(order, codes, here, here, codes, order, own, low, scale, bits)
        own = torch.where(kept, kept.cumsum(0) - 1, -1)
        axes = tuple(axis[kept] for axis in here)
        return cls(order, codes, here, axes, codes[kept], order[kept], own, low, scale, bits)

    def levels(self, k: int) -> Tensor:
        """For every sorted point, the level at which to look first: the least where its cell holds a small crowd."""
        dimensions = len(self.axes)
        ball = math.pi ** (dimensions / 2) / math.gamma(dimensions / 2 + 1)
        crowd = min(len(self.codes), max(2, math.ceil(CROWD * (k + 1) / ball)))
        apart = self.codes[crowd - 1 :] ^ self.codes[: len(self.codes) - crowd + 1]
        shared = -(-torch.frexp(apart.double())[1] // dimensions)  # the least level at which both ends share a cell
        least = torch.full((len(self.codes),), self.bits, dtype=shared.dtype, device=shared.device)
        for first in range(crowd):  # of all runs that a point is in
            part = least[first : first + len(shared)]
            torch.minimum(part, shared, out=part)
        return least

    def blocks(self, waiting: Tensor, level: int, size: int) -> Iterator[tuple[Tensor, tuple[Tensor, Tensor, Tensor]]]:
        """Portions of sorted points at most ``size`` candidates in all, and where those are.

        With each portion come the runs of candidates, (cells, 3^d) starts and lengths, and every point's cell.
        """
        dimensions = len(self.axes)
        per_cell = 3**dimensions * (dimensions + 4)
        step = max(1, size * CANDIDATE_BYTES // (8 * per_cell))
        for start in range(0, len(waiting), step):
            portion = waiting[start : start + step]
            _, cell, members = torch.unique_consecutive(
                self.codes[portion] >> (dimensions * level), return_inverse=True, return_counts=True
            )
            firsts = members.cumsum(0) - members
            starts, lengths = self._runs(_fine_cells(self._places(portion[firsts]), self.bits) >> level, level)
            widths = lengths.sum(dim=1)
            rank = torch.argsort(widths[cell], stable=True)  # rows of like width side by side
            for part in _even_blocks(widths[cell[rank]], size):
                mine = rank[part]
                used, own = torch.unique(cell[mine], return_inverse=True)
                yield portion[mine], (starts[used], lengths[used], own)

    def _runs(self, corner: Tensor, level: int) -> tuple[Tensor, Tensor]:
        """Starts and lengths of the runs of candidates in the cells around each of those given, themselves included."""
        dimensions = corner.shape[1]
        steps = torch.tensor(list(product((-1, 0, 1), repeat=dimensions)), device=corner.device)
        around = corner[:, None, :] + steps
        inside = ((around >= 0) & (around < 1 << (self.bits - level))).all(dim=2)
        code = interleave(around.clamp_(min=0), self.bits) << (dimensions * level)
        starts = torch.searchsorted(self.candidates, code)
        ends = torch.searchsorted(self.candidates, code + (1 << (dimensions * level)))
        return starts, (ends - starts) * inside

    def select(self, rows: Tensor, ranges: tuple[Tensor, Tensor, Tensor], k: int) -> tuple[Tensor, Tensor]:
        """Squared distances and indices of the ``k`` nearest candidates of each row; infinity where there are fewer."""
        spots, squares = self._squares(rows, *ranges)
        width = squares.shape[1]
        wanted = min(k + SPARE, width)
        near, column = squares.topk(wanted, dim=1, largest=False, sorted=True)
        near, which = _in_order(near, self.names[spots.gather(1, column)])
        if wanted < k:
            near = torch.nn.functional.pad(near, (0, k - wanted), value=torch.inf)
            which = torch.nn.functional.pad(which, (0, k - wanted))
        elif wanted < width:  # more of the last distance than were taken: all of them are put in order
            cut = torch.nonzero((near[:, k - 1] == near[:, -1]) & near[:, -1].isfinite())[:, 0]
            if len(cut):
                all_near, all_which = _in_order(squares[cut], self.names[spots[cut]])
                near[cut, :k], which[cut, :k] = all_near[:, :k], all_which[:, :k]
        return near[:, :k], which[:, :k]

    def _squares(self, rows: Tensor, starts: Tensor, lengths: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Places of every row's candidates and their squared distances, (rows, most); infinite where there is none."""
        count, around = lengths.shape
        widths = lengths.sum(dim=1)
        flat = lengths.reshape(-1)
        run = torch.repeat_interleave(torch.arange(count * around, device=rows.device), flat)
        number = torch.arange(len(run), device=rows.device)
        spot = starts.reshape(-1)[run] + number - (flat.cumsum(0) - flat)[run]
        owner = run // around
        table = torch.full((count, max(1, int(widths.max()))), -1, dtype=torch.int64, device=rows.device)
        table[owner, number - (widths.cumsum(0) - widths)[owner]] = spot
        spots = table[cell]
        none = (spots < 0) | (spots == self.own[rows, None])
        spots.clamp_(min=0)
        squares = torch.zeros(spots.shape, dtype=torch.float64, device=rows.device)
        for axis, mine in zip(self.axes, self.here, strict=True):
            difference = axis[spots]
            difference -= mine[rows, None]
            difference *= difference
            squares += difference
        return spots, squares.masked_fill_(none, torch.inf)

    def way_out(self, rows: Tensor, level: int) -> Tensor:
        """How far each row is from the border of the cells it looked at, in fine cells, less what rounding may do.

        Border cells of the grid hold all that is beyond them, so there is no way out on that side.
        """
        place = self._places(rows)
        corner = _fine_cells(place, self.bits) >> level
        below = place - ((corner - 1) << level)
        above = ((corner + 2) << level) - place
        below[corner <= 1] = torch.inf
        above[corner + 2 >= 1 << (self.bits - level)] = torch.inf
        return torch.minimum(below, above).amin(dim=1) * (1.0 - SHARP) - BLUNT

    def _places(self, rows: Tensor) -> Tensor:
        """Where sorted points lie, in fine cells; beyond the box too."""
        return (torch.stack([axis[rows] for axis in self.here], dim=1) - self.low) * self.scale


def interleave(corner: Tensor, bits: int) -> Tensor:
    """Morton codes: bit b of coordinate j becomes bit b d + j.

    >>> interleave(torch.tensor([[0b11, 0b00], [0b10, 0b01]]), 2).tolist()
    [5, 6]
    """
    dimensions = corner.shape[-1]
    chunk = min(10, bits)
    table = torch.zeros(1 << chunk, dtype=torch.int64, device=corner.device)
    number = torch.arange(1 << chunk, device=corner.device)
    for bit in range(chunk):
        table |= ((number >> bit) & 1) << (bit * dimensions)
    codes = torch.zeros(corner.shape[:-1], dtype=torch.int64, device=corner.device)
    for shift in range(0, bits, chunk):
        for j in range(dimensions):
            codes |= table[(corner[..., j] >> shift) & ((1 << chunk) - 1)] << (shift * dimensions + j)
    return codes


def _box(points: Tensor) -> tuple[Tensor, float]:
    """The lowest corner and the side of a cube around most points: far ones must not make the cells of others wide."""
    sample = points[:: max(1, len(points) // SAMPLE)].sort(dim=0).values
    out = int(TAIL * len(sample))
    middle = sample[out], sample[len(sample) - 1 - out]
    width = middle[1] - middle[0]
    least, most = points.amin(dim=0), points.amax(dim=0)
    low = torch.maximum(least, middle[0] - width)
    high = torch.minimum(most, middle[1] + width)
    return low, float((high - low).max())


def _fine_cells(place: Tensor, bits: int) -> Tensor:
    return place.floor().clamp_(0, 2**bits - 1).long()


def _first_of_coincident(axes: tuple[Tensor, ...], codes: Tensor, most: int) -> Tensor | None:
    """Which sorted points are among the first ``most`` by index of those that coincide with them; None for all."""
    crowded = torch.zeros_like(codes, dtype=torch.bool)
    same = codes[most:] == codes[: len(codes) - most]
    if not bool(same.any()):  # no run of equal codes is longer
        return None
    for first in range(most + 1):
        crowded[first : first + len(same)] |= same
    among = torch.nonzero(crowded)[:, 0]
    for axis in reversed(axes):  # by code, then by coordinates; equal ones stay in the order of their index
        among = among[torch.argsort(axis[among], stable=True)]
    among = among[torch.argsort(codes[among], stable=True)]
    new = torch.ones(len(among), dtype=torch.bool, device=codes.device)
    new[1:] = torch.stack([axis[among[1:]] != axis[among[:-1]] for axis in axes]).any(dim=0)
    number = torch.arange(len(among), device=codes.device)
    first_of = torch.where(new, number, 0).cummax(0).values
    kept = torch.ones_like(crowded)
    kept[among] = number - first_of < most
    return kept


def _even_blocks(widths: Tensor, size: int) -> Iterator[slice]:
    """Slices of rows sorted by width whose rows times the last width are at most ``size``, or one row."""
    sorted_widths = widths.cpu().numpy()
    start = 0
    while start < len(sorted_widths):
        least, most = start + 1, len(sorted_widths)
        while least < most:
            middle = (least + most + 1) // 2
            if int(sorted_widths[middle - 1]) * (middle - start) <= size:
                least = middle
            else:
                most = middle - 1
        yield slice(start, least)
        start = least


def _in_order(squares: Tensor, names: Tensor) -> tuple[Tensor, Tensor]:
    """Columns of each row by squared distance, then by index."""
    names, column = names.sort(dim=1)
    squares, column = squares.gather(1, column).sort(dim=1, stable=True)
    return squares, names.gather(1, column)


def _wide_enough(last: Tensor, level: int, bits: int) -> Tensor:
    """The level whose cells are wider than each k-th distance, in fine cells; the next if there are too few points."""
    wide = torch.frexp(last * (1.0 + 2.0 * SHARP) + 2.0 * BLUNT)[1].clamp(level + 1, bits)
    return torch.where(last.isfinite(), wide, level + 1)
