"""Options of the roles of columns and groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from toporo.cli.options import choice, option, split_names
from toporo.tables.roles import TASKS

_GRAPH = (
    "Which groups touch: lines NY,PA (or NY,PA,2: lengths count if kriged), and HI alone if it touches nobody; JSON of "
    "toporo topology; or learn: from the features, uniform where resamples give another prior."
)
_TASK = "auto: text, and numbers of which only two differ, are classes."


@dataclass(frozen=True, kw_only=True)
class PointRoles:
    """Roles in a table whose rows are points, as keywords of :meth:`toporo.tables.roles.Roles.of`."""

    group: Annotated[str, option("Column with the group of every row.", "-g")]
    target: Annotated[str | None, option("Column to predict.", "-t")] = None
    features: Annotated[str | None, option("Columns to use, e.g. a,b,c.", callback=split_names)] = None
    exclude: Annotated[str | None, option("Columns not to use.", callback=split_names)] = None
    test_groups: Annotated[
        str | None, option("Groups not to train on, e.g. a,b or @FILE with one name per line.", callback=split_names)
    ] = None
    drop_rows: Annotated[
        bool, option("Leave out rows that lack target, group or weight, or whose group the graph lacks, else an error.")
    ] = False

    @property
    def given(self) -> dict[str, Any]:
        """The roles that were given, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class TableRoles(PointRoles):
    """Roles in a table to fit a model to."""

    weight: Annotated[str | None, option("Column with the weight of every row in its group.")] = None
    categorical: Annotated[str | None, option("Columns of numbers that are categories.", callback=split_names)] = None
    graph: Annotated[str | None, option(_GRAPH)] = None
    task: Annotated[str, option(**choice(_TASK, TASKS))] = "auto"


@dataclass(frozen=True, kw_only=True)
class FitRoles(TableRoles):
    """Roles in a table whose target must be known."""

    target: Annotated[str, option("Column to predict.", "-t")] = field()
