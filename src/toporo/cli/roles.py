"""Options of the roles of columns and groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any

from toporo.cli.options import COLUMN, DATA, choice, names_or_file, option, replaced, split_names
from toporo.tables.roles import TASKS, Roles

_ROLES: dict[str, tuple[Any, Any]] = {
    "target": (str, option("Column to predict.", DATA, "--target", "-t", **COLUMN)),
    "group": (str, option("Column with the group of every row.", DATA, "--group", "-g", **COLUMN)),
    "weight": (str | None, option("Column with the weight of every row in its group.", DATA, **COLUMN)),
    "features": (
        str | None,
        option("Columns to use, e.g. a,b,c.", DATA, metavar="NAMES", show_default="all that are of use"),
    ),
    "exclude": (str | None, option("Columns not to use.", DATA, metavar="NAMES")),
    "categorical": (str | None, option("Columns of numbers that are categories.", DATA, metavar="NAMES")),
    "test_groups": (
        str | None,
        option("Groups not to train on, e.g. a,b or @FILE with one name per line.", DATA, metavar="NAMES"),
    ),
    "graph": (
        str | None,
        option(
            "Which groups touch: lines NY,PA (or NY,PA,2: lengths count if kriged), and HI alone if it touches nobody; "
            "JSON of toporo topology; or learn: from the features, uniform where resamples give another prior.",
            DATA,
            metavar="FILE",
        ),
    ),
    "task": (
        str,
        choice("auto: text, and numbers of which only two differ, are classes.", DATA, TASKS, metavar="TASK"),
    ),
    "drop_rows": (
        bool,
        option(
            "Leave out rows that lack target, group or weight, or whose group the graph does not have, and say how "
            "many; else they are an error.",
            DATA,
            "--drop-rows",
            metavar="",
        ),
    ),
}


def takes_roles(
    *, without: Collection[str] = (), optional: Collection[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make options of the parameter ``roles``, a :class:`~toporo.tables.roles.Roles`.

    Parameters
    ----------
    without : roles that have no option.
    optional : roles that other commands require.
    """
    options: dict[str, tuple[Any, Any]] = {}
    for name, (kind, given) in _ROLES.items():
        default = {"task": "auto", "drop_rows": False}.get(name)
        if name in ("target", "group"):
            required = name not in optional
            kind, default = (str, inspect.Parameter.empty) if required else (str | None, None)
        if name not in without:
            options[name] = (Annotated[kind, given], default)
    return lambda function: replaced(function, "roles", options, _roles)


def _roles(**given: Any) -> Roles:
    for name, default in (("features", None), ("exclude", []), ("categorical", [])):
        if name in given:
            given[name] = split_names(given[name], f"--{name}") or default
    if "test_groups" in given:
        given["test_groups"] = names_or_file(given["test_groups"], "--test-groups") or []
    return Roles.of(**given)
