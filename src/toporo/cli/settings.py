"""Expert settings of a command: a dataclass whose fields are given as ``--set NAME=VALUE`` and listed by ``--help``."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import field, fields
from typing import Any, get_args, get_type_hints

import msgspec
import typer

from toporo.cli.options import option
from toporo.errors import UnknownNameError

#: Types of settings, for people.
TYPES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def setting(default: Any, text: str, *, choices: Collection[str] = (), least: float = -math.inf) -> Any:
    """Return a field of a dataclass of expert settings.

    Parameters
    ----------
    default, text : its default and its description.
    choices : names that it may be instead of a number; a text must be one of them.
    least : the smallest number that it may be.
    """
    return field(default=default, metadata={"text": text, "choices": choices, "least": least})


def settings_option(kind: type) -> Any:
    """Return the option ``--set``: a list of pairs (name, value) with the types of a dataclass's fields."""
    expected, lines = _expected(kind), []
    for each in fields(kind):
        default = "" if each.default is None else f"={str(each.default).lower()}"
        lines.append(f"{each.name}{default} ({expected[each.name]}) {each.metadata.get('text', '')}".rstrip())
    text = "\n\n".join(["Expert settings, as often as needed:", *lines])
    return option(text, "--set", metavar="NAME=VALUE", parser=setting_parser(kind), show_default=False)


def setting_parser(kind: type) -> Callable[[str], tuple[str, Any]]:
    """Return a function from ``NAME=VALUE`` to the name of a dataclass's field and a value of its type."""
    types, rules, expected = get_type_hints(kind), {each.name: each.metadata for each in fields(kind)}, _expected(kind)

    def parse(text: str) -> tuple[str, Any]:
        name, sign, value = text.partition("=")
        if not sign:
            raise typer.BadParameter(f"{text!r}: expected NAME=VALUE, such as {next(iter(types))}=….")
        if name not in types:
            raise typer.BadParameter(str(UnknownNameError("setting", name, types)))
        choices, least = rules[name].get("choices", ()), rules[name].get("least", -math.inf)
        try:
            found = value if value in choices else msgspec.convert(value, types[name], strict=False)
        except msgspec.ValidationError:
            found = math.nan
        allowed = found in (choices or [found]) if isinstance(found, str) else found >= least
        if not allowed:
            raise typer.BadParameter(f"{text}: expected {expected[name]}.")
        return name, found

    return parse


def _expected(kind: type) -> dict[str, str]:
    """Describe the values that each field of a dataclass may have."""
    described = {}
    types = get_type_hints(kind)
    for each in fields(kind):
        choices, least = each.metadata.get("choices", ()), each.metadata.get("least", -math.inf)
        names = [TYPES[part] for part in get_args(types[each.name]) or [types[each.name]] if part in TYPES]
        values = [*choices, *([] if names == ["text"] and choices else names)]
        described[each.name] = " or ".join(values) + (f" of at least {least:g}" if least > -math.inf else "")
    return described
