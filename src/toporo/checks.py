"""Settings checked: each returns the value in its plain type, or raises an error that says what was expected."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from toporo.errors import SettingError, UnknownNameError

_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9,
          "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip


def as_number(value: Any) -> float:
    """A number as a float; NaN for text, booleans and whatever else is none."""
    if isinstance(value, str | bytes | bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def number(
    value: Any,
    what: str,
    expected: str,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    infinite: bool = False,
) -> float:
    """A finite number within bounds.

    Parameters
    ----------
    value : what was given.
    what : the setting's name.
    expected : what the error says was expected.
    least : the smallest number allowed.
    above, below : bounds that are not allowed themselves.
    infinite : whether infinity is allowed too.

    >>> number(0.5, "share", "a number from 0 to 1", least=0, below=1)
    0.5
    """
    given = as_number(value)
    if not (given >= least and given > above and (given < below or (infinite and given == math.inf))):
        raise SettingError(f"{what} is {value!r}: expected {expected}.")
    return given


def positive(value: Any, what: str, expected: str = "a positive number") -> float:
    """A finite number above 0."""
    return number(value, what, expected, above=0.0)


def non_negative(value: Any, what: str, expected: str = "a finite number of at least 0") -> float:
    """A finite number of at least 0."""
    return number(value, what, expected, least=0.0)


def penalty_number(value: Any, what: str = "penalty") -> float:
    """A penalty λ from 0 to infinity, both included."""
    return number(value, what, "a number of at least 0, or infinity", least=0.0, infinite=True)


def whole(value: Any, what: str, low: int, high: int | None = None, hint: str = "") -> int:
    """A whole number within bounds, both included.

    >>> whole(3.0, "scales", 1)
    3
    """
    given = as_number(value)
    if not (math.isfinite(given) and given == int(given) and given >= low and (high is None or given <= high)):
        expected = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise SettingError(f"{what} is {value!r}: expected a whole number {expected}{hint}.")
    return int(given)


def one_of(value: Any, kind: str, names: Iterable[str]) -> str:
    """One of the names; another one is an :class:`~toporo.errors.UnknownNameError` that lists them."""
    known = tuple(names)
    if value not in known:
        raise UnknownNameError(kind, value, known)
    return str(value)


def parse_memory(limit: int | float | str | None) -> int | None:
    """Bytes from a number or a text such as ``"4GiB"`` or ``"800 MB"``; None where there is no limit.

    >>> parse_memory("2GiB"), parse_memory("500MB"), parse_memory("1024")
    (2147483648, 500000000, 1024)
    """
    if limit is None:
        return None
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*", limit)
        unit = _UNITS.get(match[2].upper()) if match else None
        value = float(match[1]) * unit if match and unit else -1.0
    else:
        try:
            value = float(limit)
        except (TypeError, ValueError):
            value = -1.0
    if not 1 <= value < float("inf"):
        raise SettingError(f"memory_limit is {limit!r}: expected a number of bytes or a text such as '4GiB'.")
    return int(value)
