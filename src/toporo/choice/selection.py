"""Which epoch of a run counts. A rule works on stored records and says what it had to see to decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toporo.errors import DataError, UnknownNameError
from toporo.types import Record

Best = Callable[[Sequence[float]], float]
#: Which of several values is the best one.
BETTER: dict[str, Best] = {"higher": max, "lower": min}


@dataclass(frozen=True)
class SelectionRule:
    """A rule by name.

    Attributes
    ----------
    name, title : on the command line, and in tables.
    pick : from one metrics record per evaluation and :data:`BETTER`'s function to the index of the chosen record.
    saw : what the rule had to see of the test groups.
    """

    name: str
    title: str
    pick: Callable[[Sequence[Record], Best], int]
    saw: tuple[str, ...] = ()

    def titled(self, unit: str = "epochs") -> str:
        """The title for records of another unit than epochs."""
        return self.title.replace("epoch", unit.removesuffix("s"))


def _first_best(key: str) -> Callable[[Sequence[Record], Best], int]:
    def pick(history: Sequence[Record], best: Best) -> int:
        values = [record[key] for record in history]
        return values.index(best(values))

    return pick


#: The rules every table shows. Of equal epochs the earliest is taken.
SELECTIONS: dict[str, SelectionRule] = {
    rule.name: rule
    for rule in (
        SelectionRule("last", "last epoch", lambda history, best: len(history) - 1),
        SelectionRule("validation", "validation-selected", _first_best("validation")),
        SelectionRule("oracle", "best epoch (oracle)", _first_best("test"), saw=("test labels",)),
    )
}


def select(history: Sequence[Record], rule: str, better: str = "higher") -> int:
    """The index of the epoch a rule chooses; ``better`` says whether ``"higher"`` or ``"lower"`` metrics are."""
    if rule not in SELECTIONS:
        raise UnknownNameError("selection rule", rule, SELECTIONS)
    if better not in BETTER:
        raise UnknownNameError("direction", better, BETTER)
    if not history:
        raise DataError("there is no epoch to select from: the run has not trained yet.")
    return SELECTIONS[rule].pick(history, BETTER[better])
