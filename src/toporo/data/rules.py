"""How one column of a table becomes numbers: rules found in training, and kept with the model."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from toporo.data.frame import Column, Numbers
from toporo.errors import DataError, listed
from toporo.types import Array

#: Text with more levels than this, and no level twice, is taken for an identifier.
FEW_LEVELS = 10
#: The largest finite number.
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class NumberRule:
    """A column of numbers or dates, as it is.

    Attributes
    ----------
    name : the column.
    kind : ``"number"`` or ``"date"`` (days since 1970-01-01).
    fill : what stands for a missing value: the median in training.
    flag : whether a further output says where a value was missing; only if one was in training.
    low, high : the range in training. Where they are equal, the flag is all that is used.
    """

    name: str
    kind: str
    fill: float
    flag: bool
    low: float
    high: float

    @property
    def labels(self) -> tuple[str, ...]:
        """What its outputs would be called if no other column had such a name."""
        return (self.name,) * (self.low < self.high) + (f"{self.name} is missing",) * self.flag

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON can hold it."""
        return asdict(self)


@dataclass(frozen=True)
class CategoryRule:
    """A column of text: an output a level, 1 where a row has it and 0 elsewhere.

    Attributes
    ----------
    name : the column.
    levels : those with an output of their own, in ascending order.
    other : whether one output stands for all other levels; only if training had more than were kept.
    missing : whether one output says where a value was missing; only if one was in training.
    """

    name: str
    levels: tuple[str, ...]
    other: bool
    missing: bool

    @property
    def labels(self) -> tuple[str, ...]:
        """What its outputs would be called if no other column had such a name."""
        known = (*self.levels, *("other",) * self.other)
        return (*(f"{self.name} = {level}" for level in known), *(f"{self.name} is missing",) * self.missing)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON can hold it."""
        return {
            "name": self.name,
            "kind": "text",
            "levels": list(self.levels),
            "other": self.other,
            "missing": self.missing,
        }


Rule = NumberRule | CategoryRule


def find_rule(name: str, column: Column, most_levels: int, required: bool) -> Rule | str:
    """The rule for a column, or the reason why it has none."""
    lacking = bool(column.missing.any())
    if isinstance(column, Numbers):
        known = column.values[~column.missing] if lacking else column.values
        if not len(known):
            return "empty"
        low, high = float(known.min()) + 0.0, float(known.max()) + 0.0  # + 0.0: no negative zero
        if not (math.isfinite(low) and math.isfinite(high)):
            raise DataError(f"column {name!r} holds infinite values. Correct them, or leave the column out.")
        if low == high and not lacking:
            return "constant"
        return NumberRule(name, column.kind, _median(known), lacking, low, high)
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.levels))
    count_of = {level: int(count) for level, count in zip(column.levels, counts, strict=True) if count}
    if not count_of:
        return "empty"
    if len(count_of) == 1 and not lacking:
        return "constant"
    if not required and len(count_of) > most_levels:
        return (
            f"text with {len(count_of)} levels, more than {most_levels}: an identifier? Name it as a feature to use it"
        )
    if not required and len(count_of) > FEW_LEVELS and max(count_of.values()) == 1:
        return "text that differs in every row: an identifier? Name it as a feature to use it"
    kept = sorted(count_of, key=lambda level: (-count_of[level], level))[:most_levels]
    return CategoryRule(name, tuple(sorted(kept)), other=len(kept) < len(count_of), missing=lacking)


def _median(values: Array) -> float:
    """The middle value, or half way between the two in the middle."""
    upper = len(values) // 2
    lower = (len(values) - 1) // 2
    ordered = np.partition(values, (lower, upper))
    a, b = float(ordered[lower]), float(ordered[upper])
    middle = (a + b) / 2
    return (middle if math.isfinite(middle) else a / 2 + b / 2) + 0.0


# ---------------------------------------------------------------- reading them back


def require_stored(condition: bool, problem: str) -> None:
    """Refuse content that no encoder has written."""
    if not condition:
        raise DataError(f"not a stored preprocessing: {problem}. Fit the model again, or copy its files anew.")


def rule_from_dict(entry: object) -> Rule:
    """The inverse of ``to_dict`` of either rule; whatever that cannot have written is refused."""
    require_stored(isinstance(entry, dict), f"a rule is {entry!r}")
    given: dict[str, Any] = entry  # type: ignore[assignment]  # checked in the line above
    name, kind = given.get("name"), given.get("kind")
    require_stored(isinstance(name, str), f"a rule has the column name {name!r}")
    where = f"the rule for column {name!r}"
    require_stored(kind in ("number", "date", "text"), f"{where} is of kind {kind!r}")
    keys = ["levels", "other", "missing"] if kind == "text" else ["fill", "flag", "low", "high"]
    require_stored(
        set(given) == {"name", "kind", *keys},
        f"{where} has {listed(given)}, expected {listed(['name', 'kind', *keys])}",
    )
    for key in ("other", "missing") if kind == "text" else ("flag",):
        require_stored(isinstance(given[key], bool), f"{where} has {key} = {given[key]!r}")
    if kind == "text":
        levels = given["levels"]
        proper = isinstance(levels, list) and bool(levels) and all(isinstance(level, str) for level in levels)
        require_stored(proper and levels == sorted(set(levels)), f"{where} has no ascending list of levels")
        return CategoryRule(str(name), tuple(levels), given["other"], given["missing"])
    for key in ("fill", "low", "high"):
        require_stored(_is_number(given[key]), f"{where} has {key} = {given[key]!r}")
    low, fill, high = float(given["low"]), float(given["fill"]), float(given["high"])
    require_stored(low <= fill <= high, f"{where} fills {fill!r} in, outside its range from {low!r} to {high!r}")
    require_stored(low < high or given["flag"], f"{where} has a range of a single value, {low!r}")
    return NumberRule(str(name), str(kind), fill, given["flag"], low, high)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
