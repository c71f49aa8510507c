"""Plans: within their limit, complete, and honest about how many products they take."""

from __future__ import annotations

from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from toporo import machine
from toporo.checks import parse_memory
from toporo.errors import SettingError
from toporo.text import human
from toporo.topology.plan import Plan, free_memory, graph_bytes, make_plan

quick = settings(deadline=None, max_examples=150)

#: Orders of the filters of ten scales, about as a tolerance of 1e-6 leaves them.
LENGTHS = [2, 4, 8, 16, 26, 38, 54, 76, 108, 152, 152]

work = st.fixed_dictionaries(
    {
        "points": st.integers(1, 5000),
        "groups": st.integers(2, 150),
        "fixed": st.integers(0, 10**7),
        "lengths": st.lists(st.integers(0, 200), min_size=2, max_size=12),
        "widest": st.sampled_from([1, 3, 8, 24, 56, 64]),
    }
)


def planned(limit: int | None = None, **changes: Any) -> Plan:
    given_work = {"points": 1000, "groups": 20, "fixed": 0, "lengths": LENGTHS, "widest": 56}
    return make_plan(**(given_work | changes), limit=limit)


def bytes_of(found: Plan, points: int, fixed: int) -> int:
    """What is held at the worst moment: two states of the widest block and all fields, in vectors of eight columns."""
    widest = max(last - first for first, last in found.blocks)
    column = 8 * points * 8 * -(-widest // 8)
    return fixed + column * (2 + max(len(portion) for portion in found.filters) * found.resident)


# ---------------------------------------------------------------------- laws


@quick
@given(work, st.floats(0, 1))
def test_a_plan_is_within_its_limit_and_complete(given_work: dict[str, Any], tightness: float) -> None:
    free = planned(**given_work)
    least = given_work["fixed"] + 64 * given_work["points"] * 4
    limit = int(least + tightness * (free.peak - least))
    assume(limit >= least)  # enough for a vector of columns, one filter, two blocks
    found = planned(limit, **given_work)
    assert found.peak <= limit
    assert found.peak == bytes_of(found, given_work["points"], given_work["fixed"])

    columns = [column for first, last in found.blocks for column in range(first, last)]
    assert columns == list(range(given_work["groups"])), "every group is in one block"
    assert all(0 < last - first <= given_work["widest"] for first, last in found.blocks)
    every = sorted(k for portion in found.filters for k in portion)
    assert every == list(range(len(given_work["lengths"]))), "every filter is in one portion"


@quick
@given(work, st.floats(0, 1))
def test_every_pair_of_blocks_meets_once_and_products_are_counted(given_work: dict[str, Any], tightness: float) -> None:
    free = planned(**given_work)
    least = given_work["fixed"] + 64 * given_work["points"] * 4
    found = planned(max(least, int(least + tightness * (free.peak - least))), **given_work)
    met = []
    visits = 0
    for held, others in found.turns():
        assert len(held) + bool(others) <= found.resident
        met += [tuple(sorted(pair)) for pair in combinations_with_replacement(held, 2)]
        met += [tuple(sorted((a, b))) for b in others for a in held]
        visits += len(held) + len(others)
    assert sorted(met) == sorted(combinations_with_replacement(range(len(found.blocks)), 2))
    once = sum(max(given_work["lengths"][k] for k in portion) for portion in found.filters)
    assert found.products == visits * once


@quick
@given(work)
def test_without_a_limit_everything_is_done_once(given_work: dict[str, Any]) -> None:
    found = planned(**given_work)
    assert len(found.filters) == 1
    assert found.resident == len(found.blocks)
    assert len(list(found.turns())) == 1
    assert found.products == len(found.blocks) * max(given_work["lengths"])
    widths = {last - first for first, last in found.blocks[:-1]}
    assert len(widths) <= 1, "blocks are of one width"


@quick
@given(work)
def test_a_limit_that_is_just_enough_costs_nothing(given_work: dict[str, Any]) -> None:
    free = planned(**given_work)
    assert planned(free.peak, **given_work) == free
    assert planned(10 * free.peak, **given_work) == free


# ---------------------------------------------------------------------- by hand


def test_one_block_and_all_filters_by_hand() -> None:
    found = planned(points=1000, groups=20, fixed=77)
    assert found.blocks == ((0, 20),)
    assert found.filters == (tuple(range(11)),)
    assert (found.resident, found.products) == (1, 152)
    assert found.peak == 77 + 8 * 1000 * 24 * (2 + 11)


def test_two_filters_at_a_time_pair_the_long_with_the_long() -> None:
    found = planned(8 * 1000 * 24 * (2 + 2), lengths=[2, 50, 4, 60, 10])
    assert found.filters == ((1, 3), (2, 4), (0,))
    assert found.products == 60 + 10 + 2


def test_blocks_are_of_equal_width() -> None:
    assert planned(groups=60).blocks == ((0, 30), (30, 60))
    assert planned(groups=113).blocks == ((0, 38), (38, 76), (76, 113))


def test_turns_by_hand() -> None:
    five = tuple((b, b + 1) for b in range(5))
    assert list(Plan(five, ((0,),), 5, 0, 0).turns()) == [([0, 1, 2, 3, 4], [])]
    assert list(Plan(five, ((0,),), 3, 0, 0).turns()) == [([0, 1], [2, 3, 4]), ([2, 3, 4], [])]
    assert list(Plan(five, ((0,),), 2, 0, 0).turns()) == [
        ([0], [1, 2, 3, 4]),
        ([1], [2, 3, 4]),
        ([2], [3, 4]),
        ([3, 4], []),
    ]


def test_a_limit_that_is_too_small_names_itself_and_the_need() -> None:
    """The least: two states and one filter of a vector of eight columns."""
    least = 2**20 + 8 * 1024 * 8 * 3
    message = "memory_limit is 1.0 MiB, but 1024 points and 8 groups need at least 1.2 MiB: 1.0 MiB for the data graph"
    with pytest.raises(SettingError, match=message):
        planned(2**20, points=1024, groups=8, fixed=2**20)
    assert planned(least, points=1024, groups=8, fixed=2**20).peak == least
    with pytest.raises(SettingError, match="Raise the limit, use fewer neighbours"):
        planned(least - 1, points=1024, groups=8, fixed=2**20)


def test_the_least_that_an_error_names_is_enough() -> None:
    """Many groups: one block more has to be held beside the first."""
    with pytest.raises(SettingError, match=r"need at least 256.0 KiB"):
        planned(1, points=1024, groups=100)
    assert planned(256 * 2**10, points=1024, groups=100).peak <= 256 * 2**10


# ---------------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("given_limit", "expected"),
    [
        (None, None),
        (1, 1),
        (10**12, 10**12),
        (2.5e3, 2500),
        ("800", 800),
        ("800 B", 800),
        ("2K", 2048),
        ("2kib", 2048),
        ("2 kB", 2000),
        ("1.5 MiB", 3 * 2**19),
        (".5G", 2**29),
        ("4GiB", 4 * 2**30),
        (" 4 gb ", 4 * 10**9),
        ("1TB", 10**12),
        ("1T", 2**40),
        ("1.TiB", 2**40),
    ],
    ids=str,
)
def test_memory_as_number_or_text(given_limit: Any, expected: int | None) -> None:
    assert parse_memory(given_limit) == expected


@pytest.mark.parametrize(
    "bad",
    ["", "GiB", "4 XiB", "-4GiB", "4GiB 2", "1,5GB", "0", "0 MB", "nan", "inf", "9" * 400, 0, -1, float("nan"),
     float("inf"), 0.5, [1], b"4GiB", {}],
    ids=lambda value: repr(value)[:12],
)  # fmt: skip
def test_memory_that_is_none(bad: Any) -> None:
    with pytest.raises(SettingError, match=r"memory_limit is .*: expected a number of bytes or a text such as '4GiB'"):
        parse_memory(bad)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20, "1.0 MiB"),
        (2**30, "1.0 GiB"),
        (2.5 * 2**40, "2.5 TiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_bytes_for_people(size: float, text: str) -> None:
    assert human(size) == text


@given(st.integers(1, 2**60))
def test_bytes_for_people_can_be_read_back(size: int) -> None:
    back = parse_memory(human(size).replace(" bytes", ""))
    assert back == pytest.approx(size, rel=0.05)


def test_a_graph_takes_more_with_more_of_anything() -> None:
    building, held = graph_bytes(1000, 10, 15)
    assert building > held > 1000 * 15 * 12  # an entry is a float and a 32-bit index
    for more in ((2000, 10, 15), (1000, 10, 30)):
        assert all(a > b for a, b in zip(graph_bytes(*more), (building, held), strict=True))
    assert graph_bytes(1000, 50, 15)[0] > building
    assert graph_bytes(1000, 50, 15)[1] == held  # the operator is without the features


def test_a_dense_kernel_takes_more_while_it_is_built() -> None:
    building, held = graph_bytes(1000, 10, None)
    assert building > held > 8 * 1000**2


def test_free_memory_is_most_of_what_the_system_says_is_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "meminfo"
    monkeypatch.setattr(machine, "Path", lambda _: told)
    assert free_memory("cpu") is None  # no such file on other systems
    told.write_text("MemTotal: 10000 kB\nMemAvailable: 1000 kB\n")
    assert free_memory("cpu") == 921_600
    told.write_text("MemTotal: 10000 kB\n")
    assert free_memory("cpu") is None


def test_free_memory_of_a_gpu_is_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: ({"cuda:1": 1000}[device], 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: {"cuda:1": 300}[device])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: {"cuda:1": 100}[device])
    assert free_memory("cuda:1") == 1080  # what torch holds for later use is free to it
