"""Memory: what graph and fields take, and blocks of groups that fit."""

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
#: Arrays as large as a block beside its fields: two terms of the recurrence, and a product.
STATES = 3


class Blocks(NamedTuple):
    """Blocks of groups that go through the recurrence together.

    Attributes
    ----------
    starts : the first group of each block.
    width : the number of groups in each but the last.
    held : the number of blocks whose fields are held while those of the others pass.
    peak : predicted bytes at the peak.
    """

    starts: range
    width: int
    held: int
    peak: int


def least_bytes(points: int, groups: int, filters: int, fixed: int) -> int:
    """Return the bytes that distances take with blocks of eight groups, two of them at a time."""
    return fixed + 8 * points * LINE * (STATES + filters * min(2, -(-groups // LINE)))


def plan_blocks(points: int, groups: int, filters: int, fixed: int, limit: int | None, given: bool) -> Blocks:
    """Return the widest blocks of groups of which two fit into the memory, and how many can be held.

    Parameters
    ----------
    points, groups, filters : the size of the work.
    fixed : bytes of the data graph.
    limit, given : bytes or None, and whether they are the user's limit and not the machine's.
    """
    least = least_bytes(points, groups, filters, fixed)
    if limit is not None and limit < least:
        raise SettingError(
            f"{'memory_limit is' if given else 'free memory is'} {human(limit)}, but {points} points and {groups} "
            f"groups need at least {human(least)}: {human(fixed)} for the data graph and the rest for a few groups "
            "at a time. Raise the limit, use fewer neighbours or scales, or give fewer points."
        )
    for widest in range(WIDEST, 0, -LINE):
        count = -(-groups // widest)
        width = -(-groups // count)  # blocks of equal width
        block = 8 * points * LINE * -(-width // LINE)
        fitting = count if limit is None else min(count, ((limit - fixed) // block - STATES) // filters)
        if fitting >= min(count, 2):
            break
    held = fitting if fitting == count else fitting - 1  # one passes
    return Blocks(range(0, groups, width), width, held, fixed + block * (STATES + filters * fitting))


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
