"""Compare a result with a stored one: numbers to a tolerance, names exactly, sentences not at all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

#: Digits that are stored: enough for the tightest tolerance, 1e-9.
DIGITS = 12
#: Stored in the place of a sentence: that there is one is compared, its words are not.
PROSE = "(prose)"


def to_json(value: Any) -> Any:
    """Convert a result to lists, dictionaries, numbers and names.

    >>> to_json({("a", "b"): np.float64(1 / 3), "note": "some words", "ok": np.True_})
    {'a|b': 0.333333333333, 'note': '(prose)', 'ok': True}
    """
    if isinstance(value, Mapping):
        return {_key(key): to_json(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    if isinstance(value, np.generic):
        return to_json(value.item())
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, str):
        return PROSE if " " in value else value
    return value


def _key(key: Any) -> str:
    return "|".join(map(str, key)) if isinstance(key, tuple) else str(key)


def differences(found: Any, expected: Any, tolerance: float, where: str = "") -> Iterator[str]:
    """Describe every place in which two results differ.

    Parameters
    ----------
    found, expected : as :func:`to_json` gives them.
    tolerance : the largest difference between two numbers that counts as none, relative to the larger of them and 1.
    where : the path to this place, for the description.

    >>> list(differences({"a": 1.0, "b": [1, 2]}, {"a": 1.1, "b": [1, 2, 3]}, 1e-9))
    ['a: found 1.0, expected 1.1', 'b: found 2 entries, expected 3']
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            place = f"{where}.{key}" if where else key
            if key not in found:
                yield f"{place}: missing"
            elif key not in expected:
                yield f"{place}: not expected"
            else:
                yield from differences(found[key], expected[key], tolerance, place)
    elif isinstance(expected, list) and isinstance(found, list):
        if len(found) != len(expected):
            yield f"{where}: found {len(found)} entries, expected {len(expected)}"
            return
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(one, other, tolerance, f"{where}[{number}]")
    elif not _same(found, expected, tolerance):
        yield f"{where}: found {found!r}, expected {expected!r}"


def _same(found: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(found, bool) or isinstance(expected, bool):
        return found is expected
    if isinstance(found, int | float) and isinstance(expected, int | float):
        if math.isnan(found) or math.isnan(expected):
            return math.isnan(found) and math.isnan(expected)
        return math.isclose(found, expected, rel_tol=tolerance, abs_tol=tolerance)
    return bool(found == expected)
