"""Options that commands share, and the decorator that makes options of dataclasses."""

from __future__ import annotations

import csv
import inspect
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Self, cast

import typer

from toporo.checks import parse_memory
from toporo.errors import DataError, SettingError, UnknownNameError

# ---------------------------------------------------------------- values


def split_names(text: str | None) -> list[str] | None:
    """Return the names between commas, or the lines of a file for ``@FILE``.

    A name that holds a comma, or begins with @, stands in double quotes.
    """
    if text is None:
        return None
    expected = "expected names between commas, or @FILE, a text file in UTF-8 with one name per line"
    try:
        if text.startswith("@"):
            lines = Path(text[1:]).read_text(encoding="utf-8-sig").splitlines()
            names = [line.strip() for line in lines if line.strip()]
        else:
            names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    except (OSError, ValueError, csv.Error) as error:
        raise typer.BadParameter(f"cannot read {text.removeprefix('@')} ({error}): {expected}.") from None
    if not names or not all(names):
        raise typer.BadParameter(f"{text!r} has {'an empty name' if names else 'no names'}: {expected}.")
    return names


def read_delimiter(text: str) -> str:
    """Return the character between cells, from an option that may spell a tab out."""
    sign = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(sign) != 1 or sign in '"\r\n':
        raise typer.BadParameter(f"{text!r} is not a single character such as , or ; (for a tab say tab).")
    return sign


def read_memory(text: str) -> int:
    """Return bytes from a number or a number with a unit.

    >>> read_memory("2GiB"), read_memory("500MB")
    (2147483648, 500000000)
    """
    try:
        return parse_memory(text) or 0
    except SettingError:
        raise typer.BadParameter(f"{text!r} is no size above 0, such as 2GiB, 500MB or a number of bytes.") from None


def data_source(text: str) -> str | BinaryIO:
    """Return where a table is read from: a path, or standard input for ``-``."""
    if text != "-":
        return text
    if sys.stdin is None:
        raise DataError("standard input is closed: give the name of a file, or a pipe.")
    return sys.stdin.buffer


# ---------------------------------------------------------------- single options


def option(help: str, *short: str, **settings: Any) -> Any:  # noqa: A002  # as typer calls it
    """Return an option of a command that :func:`takes_options`, with its short names beside that of its parameter."""
    return typer.Option(..., *short, help=help, **settings)


def choice(text: str, names: Collection[str]) -> dict[str, Any]:
    """Return the settings of an option or argument that is one of these names: its help and the shell list them."""

    def check(text: str | None) -> str | None:
        if text is not None and text not in names:
            raise typer.BadParameter(str(UnknownNameError("value", text, names)))
        return text

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    text = f"{text} One of {', '.join(names)}.".lstrip()
    return {"help": text, "callback": check, "autocompletion": complete}


_TABLE = (
    "CSV (also .gz), Parquet or Feather file, a folder of them, a pattern such as 'sales/*.parquet', or an address such"
    " as s3://bucket/sales; - is CSV on standard input."
)
DataFile = Annotated[str, typer.Argument(metavar="DATA", help=_TABLE)]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, written by toporo fit.")]
Delimiter = Annotated[str, option("Character between cells; tab for a tab.", callback=read_delimiter)]
DropUnknown = Annotated[bool, option("Leave out rows of groups that the graph does not have, else an error.")]
Engine = Annotated[
    str, option("local, ray ($RAY_ADDRESS or this machine), or a Ray cluster's address: head-node:6379.")
]
Coordinates = Annotated[Path | None, option("Table with group, lat and lon (or x and y), to draw the graph as a map.")]
Unseen = Annotated[bool, option("Only groups that the model was not trained on.")]
Minutes = Annotated[float | None, option("Minutes after which no further model is tried.", min=0.01)]

# ---------------------------------------------------------------- several options at once


@dataclass(frozen=True)
class Flags:
    """Options of every command, which may stand before or after its name."""

    quiet: Annotated[bool, option("Show no progress.", "-q")] = False
    verbose: Annotated[bool, option("Print every line of long tables.", "-v")] = False
    json: Annotated[bool, option("Print JSON instead of text.")] = False

    @property
    def silent(self) -> bool:
        """True if progress is hidden."""
        return self.quiet or self.json

    @classmethod
    def from_options(cls, ctx: typer.Context, **given: Any) -> Self:
        """Combine options after a command's name with those before it."""
        for name, value in vars(ctx.obj or Flags()).items():
            if value and name not in given:
                raise typer.BadParameter(f"toporo {ctx.info_name} keeps to no memory limit: leave --memory-limit out.")
            given[name] = given.get(name) or value
        ctx.obj = flags = cls(**{each.name: given[each.name] for each in fields(cls)})
        return flags


_LIMIT = "Memory that the command may take in all, e.g. 2GiB. It never changes the result."


@dataclass(frozen=True)
class LimitedFlags(Flags):
    """Options of every command that keeps to a memory limit."""

    memory_limit: Annotated[int | None, option(_LIMIT, parser=read_memory, metavar="SIZE")] = None


def takes_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make options of a command's parameters, and of the fields of those that are dataclasses."""
    parameters = [inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    parts: dict[str, Any] = {}
    for each in inspect.signature(function, eval_str=True).parameters.values():
        kind: Any = each.annotation
        if is_dataclass(kind):
            parts[each.name] = kind
            parameters += inspect.signature(cast(type, kind), eval_str=True).parameters.values()
        else:
            parameters.append(each)
    parameters = [_named(each) for each in parameters]

    @wraps(function)
    def run(ctx: typer.Context, **values: Any) -> Any:
        for name, kind in parts.items():
            given = {each.name: values.pop(each.name) for each in fields(kind)}
            values[name] = kind.from_options(ctx, **given) if issubclass(kind, Flags) else kind(**given)
        return function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # as inspect reads it
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _named(parameter: inspect.Parameter) -> inspect.Parameter:
    """Give an option the name of its parameter beside short ones, and a flag none that begins with ``--no-``."""
    for info in getattr(parameter.annotation, "__metadata__", ()):
        names = getattr(info, "param_decls", None)
        if names is not None and isinstance(info, typer.models.OptionInfo):
            long = f"--{parameter.name.replace('_', '-')}"
            info.param_decls = names if any(name.startswith("--") for name in names) else (long, *names)
            info.metavar = "" if isinstance(parameter.default, bool) else info.metavar
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
