"""Which epoch of a run counts. A rule works on stored records and says what it had to see to decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toporo.errors import DataError, UnknownNameError

__all__ = ["SELECTIONS", "SelectionRule", "select"]

Record = dict[str, Any]


@dataclass(frozen=True)
class SelectionRule:
    """``pick`` gets one metrics record an epoch and returns the index of the chosen one."""

    name: str
    title: str
    pick: Callable[[Sequence[Record]], int]
    saw: tuple[str, ...] = ()


def _first_best(key: str) -> Callable[[Sequence[Record]], int]:
    def pick(history: Sequence[Record]) -> int:
        values = [record[key] for record in history]
        return values.index(max(values))

    return pick


#: The rules every table shows. Higher metrics are better; of equal epochs the earliest is taken.
SELECTIONS: dict[str, SelectionRule] = {
    rule.name: rule
    for rule in (
        SelectionRule("last", "last epoch", lambda history: len(history) - 1),
        SelectionRule("validation", "validation-selected", _first_best("validation")),
        SelectionRule("oracle", "best epoch (oracle)", _first_best("test"), saw=("test labels",)),
    )
}


def select(history: Sequence[Record], rule: str) -> int:
    """The index of the epoch a rule chooses."""
    if rule not in SELECTIONS:
        raise UnknownNameError("selection rule", rule, SELECTIONS)
    if not history:
        raise DataError("there is no epoch to select from: the run has not trained yet.")
    return SELECTIONS[rule].pick(history)
