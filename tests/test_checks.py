"""Memory limits as numbers or text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toporo.checks import parse_memory
from toporo.errors import SettingError
from toporo.text import human


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, None), (2.5e3, 2500), ("800 B", 800), ("2kib", 2048), ("2 kB", 2000), ("1.5 MiB", 3 * 2**19),
     (".5G", 2**29), (" 4 gb ", 4 * 10**9), ("1.TiB", 2**40)],
    ids=str,
)  # fmt: skip
def test_memory_as_number_or_text(limit: Any, expected: int | None) -> None:
    assert parse_memory(limit) == expected


@pytest.mark.parametrize(
    "bad",
    ["", "GiB", "4 XiB", "-4GiB", "4GiB 2", "1,5GB", "0 MB", "nan", "9" * 400, 0, -1, float("nan"), float("inf"), [1]],
    ids=lambda value: repr(value)[:12],
)
def test_memory_that_is_none(bad: Any) -> None:
    with pytest.raises(SettingError, match=r"memory_limit is .*: expected a number of bytes or a text such as '4GiB'"):
        parse_memory(bad)


@given(st.integers(1, 2**60))
def test_bytes_for_people_can_be_read_back(size: int) -> None:
    assert parse_memory(human(size).replace(" bytes", "")) == pytest.approx(size, rel=0.05)
