"""What a model by votes says: the league of its candidates, who carries it, and what the graph adds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from toporo.estimators.base import plot_bars
from toporo.estimators.coefficients import UNLIKELY, counts
from toporo.estimators.effects import GroupEffect
from toporo.estimators.explain import RowTable
from toporo.groups import Groups
from toporo.text import number, short_name
from toporo.topology.graph import GroupGraph
from toporo.types import Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Those who carry a model have so much of the votes together.
CARRIED = 0.5
#: Notes are cut here in the table for people; the CSV has all of them.
NOTE = 60


@dataclass(frozen=True)
class Standing:
    """A candidate in the league.

    Attributes
    ----------
    name : of the candidate.
    error : its squared error, or that of its probabilities, over that of the safe mean, in groups left out.
    worst : the same in the part of the groups where it is largest.
    vote : how much of what is predicted is its.
    note : why it has no vote, if something is the matter with it; else nothing.
    """

    name: str
    error: float
    worst: float
    vote: float
    note: str = ""


@dataclass(frozen=True)
class LeagueTable(RowTable[Standing]):
    """The candidates of a model by votes, those with the most votes first.

    Attributes
    ----------
    rows : in that order.
    story : how much the graph counts, what it adds to predictions in which group, and what follows, as plain values.
    parts : what was left out to judge candidates: groups, or rows where all are of one group.

    >>> table = LeagueTable((Standing("trees", 1.02, 1.1, 0.7), Standing("linear", 1.3, 2.4, 0.0, "far off somewhere")))
    >>> print(table.lines())
    candidate  error  worst  vote  note
    trees      1.020  1.100  70 %
    linear     1.300  2.400   0 %  far off somewhere
    """

    story: Mapping[str, Any] | None = None
    parts: str = "groups"

    who: ClassVar[str] = "Candidates"
    first: ClassVar[str] = "with the most votes"
    key: ClassVar[str] = "league"

    @property
    def columns(self) -> list[str]:
        """Those of :class:`Standing`."""
        return ["candidate", "error", "worst", "vote", "note"]

    def cells(self, row: Standing) -> dict[str, Any]:
        """A row by column, as it is; a candidate that was not fitted has no errors."""
        error, worst = (None if math.isnan(value) else value for value in (row.error, row.worst))
        return dict(zip(self.columns, (row.name, error, worst, row.vote, row.note), strict=True))

    def to_dict(self) -> list[dict[str, Any]]:
        """One mapping per candidate, as JSON can hold it."""
        return [self.cells(row) for row in self.rows]

    def _shown(self) -> list[str]:
        return [name for name in self.columns if name != "note" or any(row.note for row in self.rows)]

    def _cells(self) -> list[list[str]]:
        lines = [
            [row.name, _error(row.error), _error(row.worst), share(row.vote), row.note and short_name(row.note, NOTE)]
            for row in self.rows
        ]
        return [line[: len(self._shown())] for line in lines]

    def __str__(self) -> str:
        return "\n".join([self.lines(), *self.notes])

    @property
    def about(self) -> dict[str, Any]:
        """How much the graph counts, and what it adds."""
        return dict(self.story or {})

    @property
    def notes(self) -> tuple[str, ...]:
        """Who carries it and what the graph adds, in words, and what the columns are."""
        return (
            *self.about.get("words", ()),
            *self.remarks,
            f"Errors are squared, in {self.parts} left out, and relative to the safe mean that votes lean towards (1 "
            f"is as good); worst is the part of the {self.parts} where a candidate does worst.",
            "A mean of several models has no coefficients of its own: a linear one has some to read (--model linear).",
        )


def _error(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def share(vote: float) -> str:
    """A vote in whole percent.

    >>> share(1.0), share(0.004), share(0.0)
    ('100 %', 'under 1 %', '0 %')
    """
    return "under 1 %" if 0 < vote < 0.005 else f"{100 * vote:.0f} %"


class LeaguePart:
    """What models by votes are asked about themselves; they have no prior and no worst case to speak of."""

    prior_: ClassVar[None] = None
    penalty_: ClassVar[None] = None
    penalty_scores_: ClassVar[None] = None
    choice_: ClassVar[None] = None
    history_: ClassVar[tuple[()]] = ()

    league_: tuple[Standing, ...]
    topology_: GroupGraph | None
    groups_: Groups
    evidence_: dict[str, float]
    gate_: float

    def explain(self) -> LeagueTable:
        """The league as a table: who votes, how well each does in groups (or rows) left out, what the graph adds."""
        check_is_fitted(self, "league_")
        return LeagueTable(self.league_, self._story(), "groups" if len(self.groups_) > 1 else "rows")

    def _story(self) -> dict[str, Any]:
        graph: Any = self.topology_
        everyone = {} if graph is None else self._effects(graph.names)
        new = {name: size_of(effect) for name, effect in everyone.items() if not effect.trained}
        words = [_carried(self.league_)]
        if graph is None:
            words.append("There is no graph, so nothing is added for the group.")
        else:
            words.append(counts("In what is left, the graph counts", self.gate_, "graph"))
            follow = [row for row in self.league_ if "kriged" in row.name and row.vote > 0]
            if follow:
                votes = share(math.fsum(row.vote for row in follow))
                words.append(f"Beside that, candidates that may follow the graph themselves have {votes} of the votes.")
        if new and self.gate_ >= UNLIKELY:
            most = max(new, key=lambda name: new[name])
            unit = "" if not hasattr(self, "classes_") else " in log-odds"
            mean = math.sqrt(math.fsum(size**2 for size in new.values()) / len(new))
            words.append(
                f"It moves predictions in groups that were not trained on ({len(new)}) by {number(mean)}{unit} "
                f"(root mean square), most in {most!r} ({number(new[most])})."
            )
        return {
            "evidence": dict(self.evidence_),
            "shares": {"graph": None if graph is None else self.gate_},
            "effects": [
                {"group": name, "effect": effect.value, "sd": effect.sd, "trained": effect.trained}
                for name, effect in everyone.items()
            ],
            "words": words,
        }

    def _effects(self, names: Iterable[Name]) -> dict[Name, GroupEffect]:
        effects: dict[Name, GroupEffect] = self.effect(names)  # type: ignore[attr-defined]  # of tr.Kriged
        return effects

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the graph with the effects of groups as sizes, or without a graph the votes as bars.

        Parameters
        ----------
        ax : the matplotlib axes to draw on; by default new ones.
        """
        import matplotlib as mpl

        check_is_fitted(self, "league_")
        with mpl.rc_context({"text.parse_math": False}):  # a dollar in a name is one
            if self.topology_ is None:
                return plot_bars(ax, {row.name: row.vote for row in self.league_}, "vote")
            sizes = {name: size_of(effect) for name, effect in self._effects(self.topology_.names).items()}
            test = [name for name in self.topology_.names if name not in self.groups_]
            return self.topology_.plot(ax, train=list(self.groups_), test=test or None, sizes=sizes)


def size_of(effect: GroupEffect) -> float:
    """How far an effect moves predictions, in units of the target or of log-odds (root mean square over classes)."""
    return float(np.sqrt(np.mean(np.square(effect.value))))


def _carried(league: Sequence[Standing]) -> str:
    """Who has more than half of the votes together."""
    carriers: list[str] = []
    left = CARRIED
    for row in league:
        if left > 0:
            carriers.append(f"{row.name} ({share(row.vote)})")
            left -= row.vote
    *others, last = carriers
    return f"It is carried by {', '.join(others)}{' and ' if others else ''}{last}."
