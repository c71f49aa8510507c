"""Options of commands: parsers, types that commands share, and decorators that make options of dataclasses."""

from __future__ import annotations

import csv
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from toporo.checks import parse_memory
from toporo.errors import DataError, SettingError

#: Seconds of a unit of time.
UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
DATA, OUTPUT, EVERYWHERE = "Data", "Output", "Of every command"

# ---------------------------------------------------------------- values


def split_names(text: str | None, flag: str) -> list[str] | None:
    """Names between commas; one that holds a comma stands in double quotes."""
    if text is None:
        return None
    try:
        names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error as error:
        raise typer.BadParameter(f"cannot be read as names between commas ({error}).", param_hint=flag) from None
    if not all(names) or not names:
        raise typer.BadParameter(f"{text!r} has an empty name: expected names between commas.", param_hint=flag)
    return names


def names_or_file(text: str | None, flag: str) -> list[str] | None:
    """Names between commas, or ``@FILE`` with one name per line."""
    if text is None or not text.startswith("@"):
        if text is not None and Path(text).suffix and Path(text).is_file():
            raise typer.BadParameter(f"{text} is a file: to read names from it, say @{text}.", param_hint=flag)
        return split_names(text, flag)
    path = Path(text[1:])
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise DataError(
            f"{flag} {text}: cannot read {path} ({why}). Expected a text file with one name per line."
        ) from None
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise typer.BadParameter(f"{path} holds no names: expected one per line.", param_hint=flag)
    return names


def delimiter_sign(text: str) -> str:
    """What stands between cells, from an option that may spell a tab out."""
    sign = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(sign) != 1 or sign in '"\r\n':
        raise typer.BadParameter(f"{text!r} is not a single character such as , or ; (for a tab say tab).")
    return sign


def seconds(text: str | None) -> float | None:
    """A time from an option: a number of seconds, or one with its unit.

    >>> seconds("90"), seconds("90s"), seconds("2min"), seconds("1.5h")
    (90.0, 90.0, 120.0, 5400.0)
    """
    if text is None:
        return None
    parts = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+) *([a-z]*)", text.strip(), flags=re.ASCII)
    if parts is None or parts[2] not in UNITS or float(parts[1]) <= 0:
        raise typer.BadParameter(f"{text!r} is no time above 0, such as 90s, 2min or 1h.")
    return float(parts[1]) * UNITS[parts[2]]


def memory(text: str) -> int:
    """Bytes from an option, as a number or with a unit.

    >>> memory("2GiB"), memory("500MB")
    (2147483648, 500000000)
    """
    try:
        return parse_memory(text) or 0
    except SettingError:
        raise typer.BadParameter(f"{text!r} is no size above 0, such as 2GiB, 500MB or a number of bytes.") from None


def data_source(text: str) -> str | BinaryIO:
    """Where a table is read from: a path, or standard input for ``-``."""
    if text != "-":
        return text
    if sys.stdin is None:
        raise DataError("standard input is closed: give the name of a file, or a pipe.")
    return sys.stdin.buffer


# ---------------------------------------------------------------- single options


def option(help: str, panel: str, *names: str, **settings: Any) -> Any:  # noqa: A002  # as typer calls it
    """A typer option in one of the panels of a help page."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **settings)


def choice(text: str, panel: str, names: Collection[str], *flags: str, checked: bool = True, **settings: Any) -> Any:
    """An option that is one of these names: its help has them all, a shell completes them.

    Where something else is allowed too, or the work itself refuses a wrong name, it is not ``checked`` here.
    """
    if checked:
        settings["callback"] = one_of(names)
    return option(in_help(text, names), panel, *flags, autocompletion=completing(names), **settings)


def in_help(text: str, names: Iterable[str]) -> str:
    """A text of help that has all of these names.

    >>> in_help("dense: all pairs; knn: nearest ones.", ["dense", "knn"]), in_help("Of a graph.", ["knn", "tree"])
    ('dense: all pairs; knn: nearest ones.', 'knn or tree. Of a graph.')
    """
    known = set(re.findall(r"[\w-]+", text))
    names = list(names)
    return text if known.issuperset(names) else f"{either(names)}. {text}".rstrip()


def completing(names: Iterable[str]) -> Callable[[str], list[str]]:
    """What a shell asks when one of these names is being typed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def completing_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Columns of the CSV file that was typed before, for a shell; none of other tables."""
    words = [ctx.params.get("data"), *ctx.args]  # a line that ends in an option is not parsed to its end
    data = next((word for word in words if word is not None), "")
    try:
        with Path(data).open(encoding="utf-8-sig", newline="") as stream:
            header = next(csv.reader([stream.readline(1 << 16)], delimiter=ctx.params.get("delimiter") or ","), [])
    except (OSError, ValueError, TypeError, csv.Error):
        return []
    return [name for name in header if name.startswith(incomplete) and name.isprintable()]


def either(names: Iterable[str]) -> str:
    """Names to choose from, for people.

    >>> either(["l2", "kl", "chi2"])
    'l2, kl or chi2'
    """
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def one_of(names: Collection[str]) -> Callable[[str | None], str | None]:
    """A callback that lets an option be one of these names, or not given; a registry is asked when it is read."""

    def check(text: str | None) -> str | None:
        if text is not None and text not in names:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(repr(name) for name in names)}.")
        return text

    return check


COLUMN: dict[str, Any] = {"metavar": "COLUMN", "autocompletion": completing_columns}
DataFile = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="CSV (also .gz), Parquet or Feather file, a folder of them, a pattern such as 'sales/*.parquet', or an "
        "address such as s3://bucket/sales; - is CSV on standard input.",
    ),
]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, written by toporo fit.")]
Delimiter = Annotated[
    str, option("What stands between cells; tab for a tab.", DATA, callback=delimiter_sign, metavar="SIGN")
]
DropUnknown = Annotated[
    bool,
    option(
        "Leave out rows of groups that the graph does not have, and say how many; else they are an error.",
        DATA,
        "--drop-rows",
        metavar="",
    ),
]
Engine = Annotated[
    str,
    option(
        "local: this machine; ray: the cluster that $RAY_ADDRESS names, else one of this machine; or a running Ray "
        "cluster's address, e.g. head-node:6379.",
        DATA,
        metavar="ENGINE",
        autocompletion=completing(("local", "ray")),
    ),
]
Coordinates = Annotated[
    Path | None,
    option(
        "Where groups lie, to draw the graph as a map: a table with group, lat and lon, or group, x and y.",
        OUTPUT,
        metavar="FILE",
        show_default="states of the USA are known",
    ),
]
Unseen = Annotated[bool, option("Only groups that the model was not trained on.", DATA, "--unseen", metavar="")]
Against = Annotated[
    Path | None, option("Another model of the same target, to compare with: a control, say.", DATA, metavar="FOLDER")
]


def out_option(text: str, **settings: Any) -> Any:
    """Return the option ``--out`` for files whose suffix says what is written."""
    return option(text, OUTPUT, "--out", "-o", metavar="FILE", **settings)


# ---------------------------------------------------------------- several options at once


def replaced(
    function: Callable[..., Any], name: str, options: dict[str, tuple[Any, Any]], make: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a command with a parameter replaced by options, from whose values ``make`` computes it.

    Parameters
    ----------
    function, name : the command and the parameter.
    options : annotation and default of each option by name; ``inspect.Parameter.empty`` if it is required.
    make : called with the values of the options.
    """
    signature = inspect.signature(function, eval_str=True)
    if name not in signature.parameters:
        raise TypeError(f"{function.__name__} has no parameter {name!r} to make options of.")

    shared = {"ctx"} & signature.parameters.keys()  # the context may be for both

    @wraps(function)
    def run(**values: Any) -> Any:
        given = {option: values[option] for option in options}
        own = {option: value for option, value in values.items() if option in shared or option not in options}
        return function(**own, **{name: make(**given)})

    found: dict[str, tuple[Any, Any]] = {}
    for parameter in signature.parameters.values():
        found |= options if parameter.name == name else {parameter.name: (parameter.annotation, parameter.default)}
    parameters = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for option, (annotation, default) in found.items()
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # as inspect reads it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@dataclass(frozen=True)
class Flags:
    """Options of every command, which may stand before or after its name.

    Attributes
    ----------
    quiet : show no progress.
    verbose : print every line of long tables.
    json : print JSON instead of text.
    memory_limit : bytes that the process may take; None for no limit.
    """

    quiet: bool = False
    verbose: bool = False
    json: bool = False
    memory_limit: int | None = None

    @property
    def silent(self) -> bool:
        """Whether progress is hidden."""
        return self.quiet or self.json


_FLAGS: dict[str, Any] = {
    "quiet": Annotated[bool, option("Show no progress.", EVERYWHERE, "--quiet", "-q", metavar="")],
    "verbose": Annotated[bool, option("Print every line of long tables.", EVERYWHERE, "--verbose", "-v", metavar="")],
    "as_json": Annotated[bool, option("Print JSON instead of text.", EVERYWHERE, "--json", metavar="")],
}
_MEMORY = Annotated[
    int | None,
    option(
        "Memory that the command may take in all, e.g. 2GiB. It never changes the result.",
        EVERYWHERE,
        "--memory-limit",
        parser=memory,
        metavar="SIZE",
        show_default="none",
    ),
]


def takes_flags(*, memory_limit: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the options of every command of the parameter ``flags``, a :class:`Flags`.

    Parameters
    ----------
    memory_limit : whether the command keeps to a memory limit.
    """
    options: dict[str, tuple[Any, Any]] = {name: (annotation, False) for name, annotation in _FLAGS.items()}
    if memory_limit:
        options["memory_limit"] = (_MEMORY, None)

    def make(ctx: typer.Context, as_json: bool, **given: Any) -> Flags:
        before = ctx.obj if isinstance(ctx.obj, Flags) else Flags()
        if before.memory_limit is not None and not memory_limit:
            raise typer.BadParameter(
                f"toporo {ctx.info_name} keeps to no memory limit: leave it out.", param_hint="--memory-limit"
            )
        given["json"] = as_json
        flags = Flags(**{each.name: given.get(each.name) or getattr(before, each.name) for each in fields(Flags)})
        ctx.obj = flags  # for a command that comes next
        return flags

    own = {"ctx": (typer.Context, inspect.Parameter.empty)} | options
    return lambda function: replaced(function, "flags", own, make)
