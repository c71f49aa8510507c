"""Blocks of groups: within their limit, as wide as fits, and errors that name the need."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toporo.errors import SettingError
from toporo.topology.memory import LIMIT, STATES, free_memory, least_bytes, plan_blocks


@settings(max_examples=100)
@given(st.integers(1, 5000), st.integers(2, 150), st.integers(2, 12), st.integers(0, 10**7), st.floats(0, 1))
def test_blocks_are_within_the_limit_and_hold_every_group_once(
    points: int, groups: int, filters: int, fixed: int, tightness: float
) -> None:
    free = plan_blocks(points, groups, filters, fixed, None, LIMIT)
    assert free.filters == filters, "without a limit all filters go together"
    assert plan_blocks(points, groups, filters, fixed, free.peak, LIMIT) == free
    least = least_bytes(points, groups, fixed)
    limit = int(least + tightness * (free.peak - least))
    found = plan_blocks(points, groups, filters, fixed, limit, LIMIT)
    columns = [column for start in found.starts for column in range(start, min(start + found.width, groups))]
    assert columns == list(range(groups))
    block = 8 * points * 8 * -(-found.width // 8)
    assert found.peak == fixed + block * (STATES + found.filters * len(found.starts)) <= limit
    assert 1 <= found.filters <= filters


def test_a_limit_that_is_too_small_names_itself_and_the_need() -> None:
    """The least is three states of eight columns, and one filter of all."""
    least = 2**20 + 8 * 1024 * 8 * (3 + 1)
    assert plan_blocks(1024, 8, 4, 2**20, least, LIMIT).peak == least
    message = "memory_limit is 1.0 MiB, but 1024 points and 8 groups need at least 1.2 MiB: 1.0 MiB for the data graph"
    with pytest.raises(SettingError, match=message):
        plan_blocks(1024, 8, 4, 2**20, 2**20, LIMIT)
    with pytest.raises(SettingError, match=r"free memory is .* Raise the limit, use fewer neighbours"):
        plan_blocks(1024, 8, 4, 2**20, least - 1, "free memory")
    with pytest.raises(SettingError, match=r"free memory of cuda:0 is .* Use device='cpu', use fewer neighbours"):
        plan_blocks(1024, 8, 4, 2**20, least - 1, "free memory of cuda:0")
    assert least_bytes(1024, 100, 0) == 8 * 1024 * 8 * (3 + 13)


def test_free_memory_of_a_gpu_is_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: ({"cuda:1": 1000}[device], 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: {"cuda:1": 300}[device])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: {"cuda:1": 100}[device])
    assert free_memory("cuda:1") == 1080  # what torch holds for later use is free to it
