"""Plans: within their limit, complete, and every pair of blocks meets once."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from toporo.errors import SettingError
from toporo.topology.plan import Plan, free_memory, graph_bytes, make_plan

quick = settings(deadline=None, max_examples=100)

work = st.fixed_dictionaries(
    {
        "points": st.integers(1, 5000),
        "groups": st.integers(2, 150),
        "fixed": st.integers(0, 10**7),
        "lengths": st.lists(st.integers(1, 200), min_size=2, max_size=12),
        "widest": st.sampled_from([1, 3, 8, 24, 56, 64]),
    }
)


def padded(columns: int) -> int:
    return 8 * -(-columns // 8)


#: Orders of the filters of ten scales, about as a tolerance of 1e-6 leaves them.
LENGTHS = [2, 4, 8, 16, 26, 38, 54, 76, 108, 152, 152]


def planned(limit: int | None = None, **changes: Any) -> Plan:
    given_work = {"points": 1000, "groups": 20, "fixed": 0, "lengths": LENGTHS, "widest": 56, "padded": padded}
    return make_plan(**(given_work | changes), limit=limit)


@quick
@given(work, st.floats(0, 1))
def test_a_plan_is_within_its_limit_and_every_pair_of_blocks_meets_once(
    given_work: dict[str, Any], tightness: float
) -> None:
    lengths = given_work["lengths"]
    free = planned(**given_work)
    assert (len(free.filters), free.resident) == (1, len(free.blocks)), "without a limit all is done once"
    assert free.products == len(free.blocks) * max(lengths)
    assert planned(free.peak, **given_work) == free
    least = given_work["fixed"] + 64 * given_work["points"] * 4
    limit = int(least + tightness * (free.peak - least))
    assume(limit >= least)  # enough for a vector of columns, one filter, two blocks
    found = planned(limit, **given_work)

    width = max(last - first for first, last in found.blocks)
    fields = max(len(portion) for portion in found.filters) * found.resident
    assert found.peak == given_work["fixed"] + 8 * given_work["points"] * padded(width) * (2 + fields) <= limit
    columns = [column for first, last in found.blocks for column in range(first, last)]
    assert columns == list(range(given_work["groups"])), "every group is in one block"
    assert width <= given_work["widest"]
    assert sorted(k for portion in found.filters for k in portion) == list(range(len(lengths)))
    met, visits = [], 0
    for held, others in found.turns():
        assert len(held) + bool(others) <= found.resident
        met += [*combinations_with_replacement(held, 2), *((a, b) for b in others for a in held)]
        visits += len(held) + len(others)
    assert sorted(met) == sorted(combinations_with_replacement(range(len(found.blocks)), 2))
    assert found.products == visits * sum(max(lengths[k] for k in portion) for portion in found.filters)


def test_two_filters_at_a_time_pair_the_long_with_the_long() -> None:
    found = planned(8 * 1000 * 24 * (2 + 2), lengths=[2, 50, 4, 60, 10])
    assert found.filters == ((1, 3), (2, 4), (0,))
    assert found.products == 60 + 10 + 2


def test_a_limit_that_is_too_small_names_itself_and_the_need() -> None:
    """The least: two states and one filter of a vector of eight columns; of many groups, a second block."""
    least = 2**20 + 8 * 1024 * 8 * 3
    message = "memory_limit is 1.0 MiB, but 1024 points and 8 groups need at least 1.2 MiB: 1.0 MiB for the data graph"
    with pytest.raises(SettingError, match=message):
        planned(2**20, points=1024, groups=8, fixed=2**20)
    assert planned(least, points=1024, groups=8, fixed=2**20).peak == least
    with pytest.raises(SettingError, match=r"free memory is .* Raise the limit, use fewer neighbours"):
        planned(least - 1, points=1024, groups=8, fixed=2**20, given=False)
    with pytest.raises(SettingError, match=r"need at least 256.0 KiB"):
        planned(1, points=1024, groups=100)
    assert planned(256 * 2**10, points=1024, groups=100).peak <= 256 * 2**10


def test_a_graph_takes_more_with_more_of_anything() -> None:
    building, held = graph_bytes(1000, 10, 15)
    assert building > held > 1000 * 15 * 12  # an entry is a float and a 32-bit index
    for more in ((2000, 10, 15), (1000, 10, 30)):
        assert all(a > b for a, b in zip(graph_bytes(*more), (building, held), strict=True))
    assert graph_bytes(1000, 50, 15)[0] > building
    building, held = graph_bytes(1000, 10, None)
    assert building > held > 8 * 1000**2


def test_free_memory_of_a_gpu_is_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: ({"cuda:1": 1000}[device], 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: {"cuda:1": 300}[device])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: {"cuda:1": 100}[device])
    assert free_memory("cuda:1") == 1080  # what torch holds for later use is free to it
