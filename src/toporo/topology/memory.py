"""Estimates of the memory of graph and fields, and the blocks of groups and filters that fit."""

from __future__ import annotations

from typing import NamedTuple

from toporo.errors import SettingError
from toporo.machine import free_bytes
from toporo.text import human
from toporo.topology.neighbors import TREE_DIMENSIONS

#: Most groups that go through the recurrence together: seven AVX-512 registers hold their sums, or fourteen of AVX2.
WIDEST = 56
#: float64 in a cache line; memory is counted in vectors of so many groups.
LINE = 8
#: Arrays as large as a block of groups beside its fields: two terms of the recurrence, and a product.
STATES = 3
#: Name of a limit that the user set, in messages.
LIMIT = "memory_limit"


class Blocks(NamedTuple):
    """Blocks of groups that go through the recurrence one after the other, and filters whose fields fit the memory.

    Attributes
    ----------
    starts : the first group of each block.
    width : the number of groups in each but the last.
    filters : the number of filters at a time.
    peak : predicted bytes at the peak.
    """

    starts: range
    width: int
    filters: int
    peak: int


def least_bytes(points: int, groups: int, fixed: int) -> int:
    """Return the bytes that distances take with one filter at a time and blocks of eight groups."""
    return fixed + 8 * points * LINE * (STATES + -(-groups // LINE))


def plan_blocks(points: int, groups: int, filters: int, fixed: int, limit: int | None, source: str) -> Blocks:
    """Return the widest blocks of groups that leave room for a filter's fields of all groups, and how many filters fit.

    Parameters
    ----------
    points, groups, filters : the size of the work.
    fixed : bytes of the data graph.
    limit, source : bytes or None, and where they are from: :data:`LIMIT`, or the free memory of the machine or a GPU.
    """
    least = least_bytes(points, groups, fixed)
    if limit is not None and limit < least:
        instead = "Use device='cpu'" if "cuda" in source else "Raise the limit"
        raise SettingError(
            f"{source} is {human(limit)}, but {points} points and {groups} groups need at least {human(least)}: "
            f"{human(fixed)} for the data graph and the rest for one scale at a time. {instead}, use fewer neighbours, "
            "or give fewer points."
        )
    for widest in range(WIDEST, 0, -LINE):
        count = -(-groups // widest)
        width = -(-groups // count)  # blocks of equal width
        block = 8 * points * LINE * -(-width // LINE)
        fixed_and_states = fixed + block * STATES
        together = filters if limit is None else min(filters, (limit - fixed_and_states) // (block * count))
        if together >= 1:
            break
    return Blocks(range(0, groups, width), width, together, fixed_and_states + block * count * together)


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
    if device == "cpu":
        return free_bytes()
    import torch

    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch's own, to be reused
    return int(0.9 * (torch.cuda.mem_get_info(device)[0] + cached))
