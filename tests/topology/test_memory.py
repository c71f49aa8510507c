"""Blocks of groups: within their limit, as wide as fits, and errors that name the need."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toporo.errors import SettingError
from toporo.topology import memory
from toporo.topology.memory import STATES, plan_blocks, usable_memory


@settings(max_examples=100)
@given(st.integers(1, 5000), st.integers(2, 150), st.integers(2, 12), st.integers(0, 10**7), st.floats(0, 1))
def test_blocks_are_within_the_limit_and_hold_every_group_once(
    points: int, groups: int, filters: int, fixed: int, tightness: float
) -> None:
    free = plan_blocks(points, groups, filters, fixed, None)
    assert free.filters == filters, "without a limit all filters go together"
    assert plan_blocks(points, groups, filters, fixed, free.peak) == free
    least = fixed + 8 * points * 8 * (STATES + -(-groups // 8))  # three states of eight columns, one filter of all
    limit = int(least + tightness * (free.peak - least))
    found = plan_blocks(points, groups, filters, fixed, limit)
    columns = [column for start in found.starts for column in range(start, min(start + found.width, groups))]
    assert columns == list(range(groups))
    block = 8 * points * 8 * -(-found.width // 8)
    assert found.peak == fixed + block * (STATES + found.filters * len(found.starts)) <= limit
    assert 1 <= found.filters <= filters
    with pytest.raises(SettingError):
        plan_blocks(points, groups, filters, fixed, least - 1)


def test_a_limit_that_is_too_small_names_itself_and_the_need() -> None:
    message = r"1024 points and 8 groups need at least 1.2 MiB, and there may be used 1.0 MiB \(memory_limit"
    with pytest.raises(SettingError, match=message):
        plan_blocks(1024, 8, 4, 2**20, 2**20)


def test_what_is_free_on_the_device_is_the_limit_unless_a_smaller_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: 2000)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: ({"cuda:1": 1000}[device], 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 300)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    assert usable_memory("cuda:1", None) == 1080  # what torch holds for later use is free to it
    assert [usable_memory("cpu", limit) for limit in (None, 3000, 300)] == [2000, 2000, 300]
    monkeypatch.setattr(memory, "free_bytes", lambda: None)  # the system does not tell
    assert [usable_memory("cpu", limit) for limit in (None, 3000)] == [None, 3000]
