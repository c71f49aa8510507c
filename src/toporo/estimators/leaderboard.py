"""Table of the candidates of an ensemble, with the group effect."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from toporo.estimators.coefficients import conclusion
from toporo.estimators.effects import GroupEffect
from toporo.estimators.explain import RowTable
from toporo.types import Name

#: Candidates that carry an ensemble have so much of the weight together.
CARRIED = 0.5


@dataclass(frozen=True)
class CandidateScore:
    """A candidate on the leaderboard.

    Attributes
    ----------
    name : of the candidate.
    error : its squared error, or that of its probabilities, over that of the safe mean, in held-out groups.
    worst : the same in the part of the groups where it is largest.
    weight : its ensemble weight.
    note : why it has no weight, if something is the matter with it; else nothing.
    """

    name: str
    error: float
    worst: float
    weight: float
    note: str = ""


@dataclass(frozen=True)
class Leaderboard(RowTable[CandidateScore]):
    """The candidates of an ensemble, those with the largest weights first.

    Attributes
    ----------
    rows : in that order.
    facts : evidence and size of the group effects, as plain values.
    parts : what was held out to judge candidates: groups, or rows where all are of one group.

    >>> scores = CandidateScore("trees", 1.02, 1.1, 0.7), CandidateScore("linear", 1.3, 2.4, 0.0, "far off somewhere")
    >>> print(Leaderboard(scores).lines())
    candidate  error  worst  weight  note
    trees       1.02    1.1     0.7
    linear       1.3    2.4       0  far off somewhere
    """

    facts: Mapping[str, Any] | None = None
    parts: str = "groups"

    who: ClassVar[str] = "Candidates"
    first: ClassVar[str] = "with the largest weights"
    key: ClassVar[str] = "leaderboard"

    @property
    def columns(self) -> list[str]:
        """Those of :class:`CandidateScore`."""
        return ["candidate", "error", "worst", "weight", "note"]

    def cells(self, row: CandidateScore) -> dict[str, Any]:
        """Return a row by column; a candidate that was not fitted has no errors."""
        error, worst = (None if math.isnan(value) else value for value in (row.error, row.worst))
        return dict(zip(self.columns, (row.name, error, worst, row.weight, row.note or None), strict=True))

    def to_dict(self) -> list[dict[str, Any]]:
        """Return one mapping per candidate, as JSON can hold it."""
        return [self.cells(row) for row in self.rows]

    def __str__(self) -> str:
        return "\n".join([self.lines(), *self.notes])

    @property
    def about(self) -> dict[str, Any]:
        """Evidence and size of the group effects."""
        return dict(self.facts or {})

    @property
    def notes(self) -> tuple[str, ...]:
        """Conclusions, and an explanation of the columns."""
        return (
            *self.about.get("words", ()),
            *self.remarks,
            f"Errors are squared, in {self.parts} left out, and relative to a safe mean of a few candidates; worst is "
            f"the part of the {self.parts} where a candidate does worst.",
        )


def effect_facts(
    scores: tuple[CandidateScore, ...],
    evidence: Mapping[str, float],
    gate: float | None,
    effects: Mapping[Name, GroupEffect],
) -> dict[str, Any]:
    """Return the evidence and size of group effects, with sentences about them.

    Parameters
    ----------
    scores : of the candidates, the largest weight first.
    evidence, gate : weights of the nested models and of those with the graph; ``gate`` is None without a graph.
    effects : of all groups of the graph.
    """
    carriers, left = [], CARRIED
    for row in scores:
        if left > 0:
            carriers.append(f"{row.name} ({_share(row.weight)})")
            left -= row.weight
    words = [f"It is carried by {' and '.join(carriers)}."]
    if gate is None:
        words.append("There is no graph, so nothing is added for the group.")
    else:
        words.append(conclusion("In the residuals, the graph counts", gate))
    rows = [{"group": n, "effect": e.value, "sd": e.sd, "trained": e.trained} for n, e in effects.items()]
    return {"evidence": dict(evidence), "shares": {"graph": gate}, "effects": rows, "words": words}


def effect_size(effect: GroupEffect) -> float:
    """Return how far an effect moves predictions: root mean square over classes."""
    return float(np.sqrt(np.mean(np.square(effect.value))))


def _share(weight: float) -> str:
    return "under 1 %" if 0 < weight < 0.005 else f"{100 * weight:.0f} %"
