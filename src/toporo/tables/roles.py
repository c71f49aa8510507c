"""Roles of a table's columns and groups: what to predict and from what, checked in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypedDict, Unpack

from toporo.errors import SettingError, UnknownNameError, listed
from toporo.graphs import as_graph, with_text_names
from toporo.groups import plain_name
from toporo.topology.graph import GroupGraph

TASKS = ("auto", "classification", "regression")
#: As a graph: learn it from the features.
LEARN = "learn"


class RoleKeywords(TypedDict, total=False):
    """Keyword arguments of :meth:`Roles.of` that have defaults; see :class:`Roles`."""

    weight: str | None
    features: Iterable[str] | None
    exclude: Iterable[str]
    categorical: Iterable[str]
    test_groups: Iterable[Any]
    graph: Any
    task: str
    drop_rows: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Roles:
    """Purposes of the columns and groups of a table; contradictions are errors.

    Attributes
    ----------
    group, target, weight : columns with the group of every row, what to predict, and the weight of every row within its
        group.
    features : columns to use as inputs; None for all that are of use.
    exclude : columns not to use.
    categorical : columns of numbers that are categories.
    test_groups : groups never trained on.
    graph : the graph over the groups in any form that :func:`toporo.graphs.as_graph` takes, or ``"learn"``.
    task : ``"classification"``, ``"regression"`` or ``"auto"``.
    drop_rows : leave out rows that lack a group, a target or a weight, or whose group the graph does not have; else
        they are an error.
    """

    group: str
    target: str | None = None
    weight: str | None = None
    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    test_groups: tuple[str, ...] = ()
    graph: Any = None
    task: str = "auto"
    drop_rows: bool = False

    @classmethod
    def of(cls, *, group: str, target: str | None = None, **given: Unpack[RoleKeywords]) -> Self:
        """Create roles from lists of names.

        Parameters
        ----------
        group, target : columns.
        given : other roles; see the class. Names of groups become text.

        >>> Roles.of(group="town", target="flood", exclude=["id"]).exclude
        ('id',)
        """
        roles: dict[str, Any] = dict(given)
        for what in ("features", "exclude", "categorical", "test_groups"):
            if what in roles and not (what == "features" and roles[what] is None):
                roles[what] = _names(roles[what], what)
        return cls(group=group, target=target, **roles)

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise UnknownNameError("task", self.task, TASKS)
        both = [name for name in self.named if name in self.exclude]
        if both:
            raise SettingError(f"column(s) both named for use and excluded: {listed(both)}. Choose one.")
        taken: dict[str, str] = {}
        for what, name in self.columns.items():
            if name in taken:
                raise SettingError(f"column {name!r} cannot be both {taken[name]} and {what}: name two columns.")
            taken[name] = what
            for names, use in (
                (self.features or (), "a feature"),
                (self.exclude, "excluded"),
                (self.categorical, "a categorical feature"),
            ):
                if name in names:
                    hint = " Classes that are numbers are a matter of the task: --task classification."
                    raise SettingError(
                        f"column {name!r} is {what}, so it cannot be {use}."
                        f"{hint if names is self.categorical and what == 'the target' else ''}"
                    )

    @property
    def columns(self) -> Mapping[str, str]:
        """Columns that are no features, by what they are: ``{"the group": "state"}``."""
        columns = {"the target": self.target, "the group": self.group, "the weight": self.weight}
        return {what: name for what, name in columns.items() if name is not None}

    def require_target(self) -> str:
        """Return the column to predict; without one there is nothing to fit."""
        if self.target is None:
            raise SettingError("no target is named: say which column to predict (target=, --target).")
        return self.target

    @property
    def named(self) -> tuple[str, ...]:
        """Columns named for use as inputs."""
        return tuple(dict.fromkeys([*(self.features or ()), *self.categorical]))

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that are read as text whatever their cells are."""
        return (self.group, *self.categorical)

    @property
    def learns_graph(self) -> bool:
        """Whether the graph is to be learned from the features."""
        return isinstance(self.graph, str) and self.graph == LEARN

    def read_graph(self) -> Self:
        """Return the same roles with a :class:`~toporo.GroupGraph` whose group names are text.

        A graph that is to be learned remains ``"learn"``.
        """
        if self.graph is None or self.learns_graph:
            return self
        return replace(self, graph=with_text_names(as_graph(self.graph)))

    @property
    def given_graph(self) -> GroupGraph | None:
        """The graph after :meth:`read_graph`; None if there is none or it is to be learned."""
        return self.graph if isinstance(self.graph, GroupGraph) else None


def _names(given: Iterable[Any], what: str) -> tuple[str, ...]:
    """Return the names of a list, each once; a single text would be taken for its letters."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise SettingError(f"{what} is {given!r}: expected a list of names, such as [{given!r}].")
    return tuple(dict.fromkeys(str(plain_name(name)) if what == "test_groups" else name for name in given))
