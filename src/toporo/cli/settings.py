"""Expert settings of a command: a dataclass whose fields are given as ``--set NAME=VALUE`` and listed by ``--help``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import Field, field, fields
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
import typer

from toporo.cli.options import either, in_help, option, replaced
from toporo.errors import SettingError, UnknownNameError


def setting(
    default: Any,
    text: str,
    *,
    choices: Collection[str] = (),
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
) -> Any:
    """Return a field of a dataclass of expert settings.

    Parameters
    ----------
    default, text : its default and its description.
    choices : texts that it may be; one of type ``str`` must be one of them.
    least, above, most : the smallest number that it may be, one that it must exceed, and the largest.
    """
    limits = {"least": least, "above": above, "most": most}
    return field(default=default, metadata={"text": text, "choices": choices, **limits})


def takes_settings(kind: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the option ``--set`` of the parameter ``settings``: those given, by name.

    Parameters
    ----------
    kind : a dataclass whose fields are made by :func:`setting`.
    """
    listed = "\n\n".join(map(_described, fields(kind)))
    text = f"Expert settings, as often as needed:\n\n{listed}"
    annotation = Annotated[list[str] | None, option(text, "Settings", "--set", metavar="NAME=VALUE")]

    def make(settings: list[str] | None) -> dict[str, Any]:
        try:
            parsed = parse_settings(settings or (), kind)
            kind(**parsed)  # which may check how settings go together
        except SettingError as error:
            raise typer.BadParameter(str(error)) from None
        return parsed

    return lambda function: replaced(function, "settings", {"settings": (annotation, None)}, make)


def _described(each: Field[Any]) -> str:
    """Describe a setting with its default and its choices."""
    default = "" if each.default is None else f" ({str(each.default).lower()})"
    return f"{each.name}{default}: {in_help(each.metadata['text'], each.metadata['choices'])}"


def parse_settings(given: Iterable[str], kind: type) -> dict[str, Any]:
    """Return the settings of ``NAME=VALUE``, with the types of a dataclass's fields.

    >>> from toporo.training import TrainingPlan
    >>> parse_settings(["learning_rate=0.1", "average=3"], TrainingPlan)
    {'learning_rate': 0.1, 'average': 3}
    """
    types, rules = get_type_hints(kind), {each.name: each.metadata for each in fields(kind)}
    settings = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            raise SettingError(f"--set {text}: expected NAME=VALUE, such as {next(iter(types))}=….")
        if name not in types:
            raise UnknownNameError("setting", name, types)
        settings[name] = _value(text, value, types[name], rules[name])
    return settings


def _value(text: str, value: str, kind: Any, rule: Any) -> Any:
    """Return a value in the first form that its type and its rule allow."""
    choices, least = rule.get("choices", ()), rule.get("least", -math.inf)
    above, most = rule.get("above", -math.inf), rule.get("most", math.inf)
    if value in choices:
        return value
    values: list[Any] = [] if choices and kind is str else [value]
    for convert in (float, json.loads):  # a number or true; if the setting takes neither, it is text
        with suppress(ValueError):
            values.insert(0, convert(value))
    for candidate in values:
        with suppress(msgspec.ValidationError, TypeError):
            found = msgspec.convert(candidate, kind, strict=False, dec_hook=lambda wanted, plain: wanted(plain))
            if not isinstance(found, int | float) or (least <= found <= most and found > above):
                return found
    words = {int: "a whole number", float: "a number", bool: "true or false"}
    bound = f" of at least {least:g}" if least > -math.inf else f" above {above:g}" if above > -math.inf else ""
    bound += "" if most == math.inf else f"{' and' if bound else ''} at most {most:g}"
    expected = [f"{words[part]}{bound}" for part in (get_args(kind) or (kind,)) if part in words]
    raise SettingError(f"--set {text}: expected {either([*choices, *expected])}.")
