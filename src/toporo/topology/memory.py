"""Blocks of groups and filters that fit the memory."""

from __future__ import annotations

from typing import NamedTuple

from toporo.errors import SettingError
from toporo.machine import free_bytes
from toporo.text import human

#: Most groups that go through the recurrence together: seven AVX-512 registers hold their sums, or fourteen of AVX2.
WIDEST = 56
#: float64 in a cache line; memory is counted in vectors of so many groups.
LINE = 8
#: Arrays as large as a block of groups beside its fields: two terms of the recurrence, and a product.
STATES = 3


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


def plan_blocks(points: int, groups: int, filters: int, fixed: int, limit: int | None) -> Blocks:
    """Return the widest blocks of groups that leave room for a filter's fields of all groups, and how many filters fit.

    Parameters
    ----------
    points, groups, filters : the size of the work.
    fixed : bytes of the data graph.
    limit : bytes to stay within, or None.
    """
    for widest in range(WIDEST, 0, -LINE):
        count = -(-groups // widest)
        width = -(-groups // count)  # blocks of equal width
        block = 8 * points * LINE * -(-width // LINE)
        least = fixed + block * STATES
        together = filters if limit is None else min(filters, (limit - least) // (block * count))
        if together >= 1:
            return Blocks(range(0, groups, width), width, together, least + block * count * together)
    raise SettingError(
        f"{points} points and {groups} groups need at least {human(least + block * count)}, and there may be used "
        f"{human(limit or 0)} (memory_limit, or what is free). Raise the limit, use device='cpu' or fewer neighbours, "
        "or give fewer points."
    )


def usable_memory(device: str, limit: int | None) -> int | None:
    """Return the bytes that may be used on a device: a limit, or what is free if that is less; None if unknown."""
    free = free_bytes()
    if device != "cpu":
        import torch

        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch's own, to be reused
        free = int(0.9 * (torch.cuda.mem_get_info(device)[0] + cached))
    return min((size for size in (limit, free) if size is not None), default=None)
