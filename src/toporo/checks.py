"""Checks of settings that many modules share."""

from __future__ import annotations

import math
from typing import Any

from toporo.errors import SettingError


def whole(value: Any, what: str, low: int, high: int | None = None, hint: str = "") -> int:
    """A whole number within bounds, or a :class:`SettingError` that says what was expected.

    Parameters
    ----------
    value : as a user gave it.
    what : the setting's name, for the message.
    low, high : the bounds, both allowed; None for no upper one.
    hint : more for the message, e.g. ``" (the paper uses 10)"``.

    >>> whole(3.0, "scales", 1)
    3
    """
    number = as_number(value)
    if not (math.isfinite(number) and number == int(number) and number >= low and (high is None or number <= high)):
        expected = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise SettingError(f"{what} is {value!r}: expected a whole number {expected}{hint}.")
    return int(number)


def as_number(value: Any) -> float:
    """A setting as a float; NaN, which is within no bounds, for what is none, text that reads like one included."""
    if isinstance(value, str | bytes):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
