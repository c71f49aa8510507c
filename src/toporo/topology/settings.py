"""Checks of the settings that all forms of diffusion EMD share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, GroupMismatchError, SettingError, listed
from toporo.groups import GroupIds

#: The coarsest diffusion time is 2^scales; beyond this nothing is left to diffuse, only memory to fill.
MOST_SCALES = 20
#: The smallest distance to expect; the first series is cut for it.
LIKELY_SMALLEST = 0.05


def whole(value: Any, what: str, low: int, high: int | None = None, hint: str = "") -> int:
    """A whole number within bounds, or a :class:`SettingError` that says what was expected."""
    number = _number(value)
    if not (np.isfinite(number) and number == int(number) and number >= low and (high is None or number <= high)):
        expected = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise SettingError(f"{what} is {value!r}: expected a whole number {expected}{hint}.")
    return int(number)


def check_scales(scales: Any, alpha: Any, tol: Any) -> tuple[int, float, float]:
    """The number of scales, the damping of fine ones and the accuracy, as numbers within their bounds."""
    count = whole(scales, "scales", 1, MOST_SCALES, " (the paper uses 10)")
    damping, accuracy = _number(alpha), _number(tol)
    if not (damping > 0 and np.isfinite(damping)):
        raise SettingError(f"alpha is {alpha!r}: expected a positive number (the paper uses 0.5).")
    if not 0 < accuracy < 1:
        raise SettingError(f"tol is {tol!r}: expected a relative accuracy between 0 and 1.")
    return count, damping, accuracy


def check_codes(points: int, ids: GroupIds) -> npt.NDArray[Any]:
    """One code a point, at least two groups, every group with a point."""
    if len(ids.groups) < 2:
        raise DataError(f"only one group, {ids.groups.names[0]!r}: distances between groups need at least two.")
    if points != len(ids):
        raise DataError(f"{points} points but {len(ids)} group labels: give one label a point, in the same order.")
    codes = np.asarray(ids.codes.detach().cpu() if hasattr(ids.codes, "detach") else ids.codes)
    if codes.shape != (points,) or codes.dtype.kind not in "iu":
        raise GroupMismatchError(f"group codes are {codes.dtype} of shape {codes.shape}: expected one integer a point.")
    if not 0 <= codes.min() <= codes.max() < len(ids.groups):
        raise GroupMismatchError(
            f"group codes are {codes.dtype} from {codes.min()} to {codes.max()}: expected integers from 0 to "
            f"{len(ids.groups) - 1}."
        )
    counts = np.bincount(codes, minlength=len(ids.groups))
    if (counts == 0).any():
        empty = [name for name, count in zip(ids.groups, counts, strict=True) if count == 0]
        raise DataError(f"group(s) without a single point: {listed(empty)}. Leave them out or give them points.")
    return codes


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
