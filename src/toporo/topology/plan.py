"""Blocks of groups and filters whose fields fit the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from toporo.errors import SettingError
from toporo.machine import free_bytes
from toporo.text import human
from toporo.topology.neighbors import TREE_DIMENSIONS


@dataclass(frozen=True)
class Plan:
    """Blocks of groups that go through the recurrence together, for some of the filters at a time.

    Attributes
    ----------
    blocks : first group of each block, and the one after its last.
    filters : indices of the filters computed together; short ones apart, so that repeating them is cheap.
    resident : how many blocks' fields are held at a time.
    products : sparse products in all, each over one block.
    peak : predicted bytes at the peak, on top of what the process held before.
    """

    blocks: tuple[tuple[int, int], ...]
    filters: tuple[tuple[int, ...], ...]
    resident: int
    products: int
    peak: int

    def turns(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yield blocks to hold, and blocks to compare with them one after the other, until every pair has met."""
        return _turns(len(self.blocks), self.resident)


def _turns(count: int, resident: int) -> Iterator[tuple[list[int], list[int]]]:
    rest = list(range(count))
    while rest:
        held = len(rest) if len(rest) <= resident else resident - 1
        yield rest[:held], rest[held:]
        rest = rest[held:]


def make_plan(
    *, points: int, groups: int, lengths: Sequence[int], fixed: int, widest: int, padded: Callable[[int], int],
    limit: int | None, given: bool = True,
) -> Plan:  # fmt: skip
    """Return the cheapest plan that stays within ``limit`` bytes.

    Parameters
    ----------
    points, groups, lengths : the size of the work, and the order of every filter.
    fixed : bytes of the data graph.
    widest, padded : most groups in a block of an engine, and columns that it takes for so many.
    limit, given : bytes, and whether they are the user's limit and not the machine's.
    """
    plans: dict[int, Plan] = {}
    peaks = []
    longest_first = sorted(range(len(lengths)), key=lambda k: (-lengths[k], k))
    widest = min(widest, groups)
    for width in (widest, *range(8 * ((widest - 1) // 8), 0, -8)):
        count = -(-groups // width)
        size = -(-groups // count)  # blocks of equal width
        blocks = tuple((first, min(first + size, groups)) for first in range(0, groups, size))
        column = 8 * points * padded(size)
        for together in range(len(lengths), 0, -1):
            fitting = count if limit is None else ((limit - fixed) // column - 2) // together
            resident = min(count, max(fitting, 2))
            peaks.append(fixed + column * (2 + together * resident))  # two terms of the recurrence, and the fields
            if limit is None or peaks[-1] <= limit:
                starts = range(0, len(lengths), together)
                filters = tuple(tuple(sorted(longest_first[start : start + together])) for start in starts)
                passes = sum(len(held) + len(others) for held, others in _turns(count, resident))
                products = passes * sum(max(lengths[k] for k in some) for some in filters)
                # Reading the matrix costs as much as eight columns (measured at 100 000 points).
                plans.setdefault(products * (padded(size) + 8), Plan(blocks, filters, resident, products, peaks[-1]))
    if not plans:
        raise SettingError(
            f"{'memory_limit is' if given else 'free memory is'} {human(limit or 0)}, but {points} points and {groups} "
            f"groups need at least {human(min(peaks))}: {human(fixed)} for the data graph and the rest for one group "
            "and one scale at a time. Raise the limit, use fewer neighbours, or give fewer points."
        )
    return plans[min(plans)]


def operator_bytes(entries: int, points: int, *, is_sparse: bool) -> int:
    """Estimate the bytes of an operator with so many entries, its factors and the groups on it."""
    return entries * (16 if is_sparse else 8) + 100 * points


def graph_bytes(points: int, dimensions: int, neighbors: int | None) -> tuple[int, int]:
    """Estimate the bytes at the peak of building a kernel, and of its operator afterwards.

    A kNN kernel has about 1.3 times as many entries per point as neighbours were asked for, since the relation is made
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
    """Return nine tenths of the bytes free on a device, or None where the system does not tell."""
    if device != "cpu":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch's own, to be reused
        return int(0.9 * (torch.cuda.mem_get_info(device)[0] + cached))
    return free_bytes()
