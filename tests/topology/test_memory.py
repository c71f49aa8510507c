"""Blocks of groups: within their limit, as wide as fits, and errors that name the need."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toporo.errors import SettingError
from toporo.topology.memory import STATES, free_memory, least_bytes, plan_blocks


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 5000), st.integers(2, 150), st.integers(2, 12), st.integers(0, 10**7), st.floats(0, 1))
def test_blocks_are_within_the_limit_and_hold_every_group_once(
    points: int, groups: int, filters: int, fixed: int, tightness: float
) -> None:
    free = plan_blocks(points, groups, filters, fixed, None, True)
    assert free.held == len(free.starts), "without a limit all are held"
    assert plan_blocks(points, groups, filters, fixed, free.peak, True) == free
    least = least_bytes(points, groups, filters, fixed)
    limit = int(least + tightness * max(0, free.peak - least))
    found = plan_blocks(points, groups, filters, fixed, limit, True)
    columns = [column for start in found.starts for column in range(start, min(start + found.width, groups))]
    assert columns == list(range(groups))
    fields = found.held if found.held == len(found.starts) else found.held + 1
    padded = 8 * -(-found.width // 8)
    assert found.peak == fixed + 8 * points * padded * (STATES + filters * fields) <= limit


def test_a_limit_that_is_too_small_names_itself_and_the_need() -> None:
    """The least is three states and two blocks of eight columns, or one where there is no other."""
    least = 2**20 + 8 * 1024 * 8 * (3 + 4)
    assert plan_blocks(1024, 8, 4, 2**20, least, True).peak == least
    message = "memory_limit is 1.0 MiB, but 1024 points and 8 groups need at least 1.4 MiB: 1.0 MiB for the data graph"
    with pytest.raises(SettingError, match=message):
        plan_blocks(1024, 8, 4, 2**20, 2**20, True)
    with pytest.raises(SettingError, match=r"free memory is .* Raise the limit, use fewer neighbours"):
        plan_blocks(1024, 8, 4, 2**20, least - 1, False)
    assert least_bytes(1024, 100, 4, 0) == 8 * 1024 * 8 * (3 + 8)


def test_free_memory_of_a_gpu_is_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: ({"cuda:1": 1000}[device], 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: {"cuda:1": 300}[device])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: {"cuda:1": 100}[device])
    assert free_memory("cuda:1") == 1080  # what torch holds for later use is free to it
