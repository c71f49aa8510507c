"""What the commands share: their registry, exit codes, options, progress and messages on standard error."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from os.path import realpath  # unlike Path.resolve, it bears links in a loop
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, Self, get_args, get_type_hints

import msgspec
import typer

from toporo.checks import parse_memory
from toporo.errors import DataError, SettingError, TopoRoWarning, UnknownNameError, warn
from toporo.files import write_whole
from toporo.progress import Bar, Watch, above_bar, all_quiet, make_console
from toporo.registry import Registry
from toporo.text import is_address, many, printable, write_data

#: Commands that were imported: functions as typer takes them, or a ``typer.Typer`` of several.
COMMANDS: Registry[Any] = Registry("command")
register = COMMANDS.register

#: Exit codes: 0 all went well, 1 a mistake in what was asked or given, 2 a mistake in how it was typed.
USER_ERROR = 1
INTERRUPTED, TERMINATED = 130, 143
#: Seconds of a unit of time.
UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}


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


def check_writable(
    data: str, wanted: Mapping[str, Path | None], *, endings: Mapping[str, Iterable[str]] | None = None
) -> None:
    """What would keep a file from being written is an error before the work, not after.

    ``wanted`` holds paths by flag, ``data`` the table that none of them may overwrite, and ``endings`` by flag how a
    name may end, without the dot.
    """
    taken = {} if data == "-" or is_address(data) else {realpath(data): "the table itself"}
    for flag, path in wanted.items():
        if path is None:
            continue
        allowed = list((endings or {}).get(flag, ()))
        if allowed and path.suffix.lower().removeprefix(".") not in allowed:
            raise SettingError(f"{flag} {path}: expected a name that ends in {', '.join('.' + s for s in allowed)}.")
        if not path.parent.is_dir():
            raise SettingError(f"{flag} {path}: there is no folder {path.parent}. Make it first, or choose another.")
        if path.exists() and not path.is_file():
            raise SettingError(f"{flag} {path}: that is not a plain file. Give the name of one.")
        if not os.access(path.parent, os.W_OK):
            raise SettingError(f"{flag} {path}: the folder {path.parent} may not be written to. Choose another.")
        if Path(data).is_dir() and Path(realpath(path)).is_relative_to(realpath(data)):
            raise SettingError(f"{flag} {path} is in the folder of the table: choose a place of its own.")
        other = taken.setdefault(realpath(path), flag)
        if other != flag:
            raise SettingError(f"{flag} {path} is {other}: give every file a name of its own.")


def option(help: str, panel: str, *names: str, **settings: Any) -> Any:  # noqa: A002  # as typer calls it
    """A typer option in one of the panels of a help page."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **settings)


def parse_settings(given: Iterable[str], kind: type) -> dict[str, Any]:
    """Return the settings of ``NAME=VALUE``, with the types of a dataclass's fields.

    >>> from toporo.training import TrainingPlan
    >>> parse_settings(["learning_rate=0.1", "average=swad"], TrainingPlan)
    {'learning_rate': 0.1, 'average': 'swad'}
    """
    types, settings = get_type_hints(kind), {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            raise SettingError(f"--set {text}: expected NAME=VALUE, such as {next(iter(types))}=….")
        if name not in types:
            raise UnknownNameError("setting", name, types)
        values: list[Any] = [value]
        with suppress(ValueError):
            values.insert(0, json.loads(value))  # a number or true; if the setting takes neither, it is text
        for candidate in values:
            with suppress(msgspec.ValidationError, TypeError):
                settings[name] = msgspec.convert(
                    candidate, types[name], strict=False, dec_hook=lambda wanted, plain: wanted(plain)
                )
                break
        else:
            words = {int: "a whole number", float: "a number", bool: "true or false"}
            expected = [words[part] for part in (get_args(types[name]) or (types[name],)) if part in words]
            raise SettingError(f"--set {text}: expected {' or '.join(expected)}.")
    return settings


def coordinates_option(panel: str) -> Any:
    """The option that says where a graph's groups lie."""
    return option(
        "Where groups lie, to draw the graph as a map: a table with group, lat and lon, or group, x and y.",
        panel,
        "--coordinates",
        metavar="FILE",
        show_default="states of the USA are known",
    )


def engine_option(panel: str) -> Any:
    """The option that says which machines do the work."""
    return option(
        "local: this machine; ray: the cluster that $RAY_ADDRESS names, else one of this machine; or a running Ray "
        "cluster's address, e.g. head-node:6379.",
        panel,
        "--engine",
        metavar="ENGINE",
        autocompletion=completing(("local", "ray")),
    )


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


def use_utf8() -> None:
    """Let what goes into a file or a pipe be UTF-8 wherever it is written, and a terminal show what it can.

    What goes to a stream that is closed goes nowhere.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # for as long as the command runs
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
            if not stream.isatty():
                stream.reconfigure(encoding="utf-8", newline="\n")


def say(message: str, *, err: bool = False) -> None:
    """A line for people, on standard output or standard error: names in it cannot command the terminal."""
    if not (err and above_bar(message)):
        typer.echo(printable(message), err=err)


def tell(sentence: str) -> None:
    """A sentence for people on standard output: on a terminal no word is broken at the end of a line."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    say(sentence if width is None else fill(sentence, width, **WHOLE_WORDS))


def say_data(text: str) -> None:
    """Data for programs on standard output; see :func:`write_data`."""
    write_data(sys.stdout, f"{text}\n")


_DATA = "Data"
#: Options and arguments that several commands have.
DataFile = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="CSV (also .gz), Parquet or Feather file, a folder of them, a pattern such as 'sales/*.parquet', or an "
        "address such as s3://bucket/sales; - is CSV on standard input.",
    ),
]
Features = Annotated[
    str | None, option("Columns to use, e.g. a,b,c.", _DATA, metavar="NAMES", show_default="all that are of use")
]
Delimiter = Annotated[
    str, option("What stands between cells; tab for a tab.", _DATA, callback=delimiter_sign, metavar="SIGN")
]
Exclude = Annotated[str | None, option("Columns not to use.", _DATA, metavar="NAMES")]
Categorical = Annotated[str | None, option("Columns of numbers that are names of things.", _DATA, metavar="NAMES")]
_COLUMN: dict[str, Any] = {"metavar": "COLUMN", "autocompletion": completing_columns}
GroupColumn = Annotated[str, option("Column with the group of every row.", _DATA, **_COLUMN)]
TargetColumn = Annotated[str, option("Column to predict.", _DATA, **_COLUMN)]
WeightColumn = Annotated[str | None, option("Column with the weight of every row in its group.", _DATA, **_COLUMN)]
DropRows = Annotated[
    bool,
    option(
        "Leave out rows that lack target, group or weight, or whose group the graph does not have, and say how many; "
        "else they are an error.",
        _DATA,
        "--drop-rows",
        metavar="",
    ),
]
MemoryLimit = Annotated[
    int | None,
    option(
        "Memory that the command may take in all, e.g. 2GiB. It never changes the result.",
        _DATA,
        "--memory-limit",
        parser=memory,
        metavar="SIZE",
        show_default="none",
    ),
]
Quiet = Annotated[bool, option("Show no progress.", "Output", "--quiet", "-q", metavar="")]
Verbose = Annotated[bool, option("Print every line of long tables.", "Output", "--verbose", "-v", metavar="")]
DropUnknown = Annotated[
    bool,
    option(
        "Leave out rows of groups that the graph does not have, and say how many; else they are an error.",
        _DATA,
        "--drop-rows",
        metavar="",
    ),
]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, written by toporo fit.")]


def columns_asked(features: str | None, exclude: str | None, categorical: str | None) -> dict[str, Any]:
    """Columns that were named, as the functions behind the commands take them."""
    return {
        "features": split_names(features, "--features"),
        "exclude": split_names(exclude, "--exclude") or [],
        "categorical": split_names(categorical, "--categorical") or [],
    }


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


@contextmanager
def interruptible(outcome: str | Path = "") -> Iterator[None]:
    """Ctrl-C ends a command with a sentence that says what is left of its work, and exit code 130; SIGTERM with 143.

    ``outcome`` is that sentence; or the file that is the work, which by then has been replaced or has not.

    Where SIGINT is ignored it stays so, and the command goes on: a script that starts a job with ``&`` has it ignored,
    because Ctrl-C is then meant for the script.
    """
    before = _inode(outcome)
    try:
        yield
    except KeyboardInterrupt as end:
        if isinstance(outcome, Path):
            outcome = "nothing was written" if _inode(outcome) == before else f"{outcome} had been written"
        what, code = ("terminated", TERMINATED) if isinstance(end, Terminated) else ("interrupted", INTERRUPTED)
        say(f"toporo: {what}{f'; {outcome}' if outcome else ''}.", err=True)
        raise typer.Exit(code) from None


@contextmanager
def working(title: str, outcome: str | Path, *, quiet: bool) -> Iterator[None]:
    """Work that people wait for: progress is shown unless it is to be quiet, and it can be interrupted.

    ``title`` is what is being done, ``outcome`` what :func:`interruptible` takes.
    """
    with interruptible(outcome), Watch(title, quiet=quiet):
        yield


def _inode(path: str | Path) -> int | None:
    """What changes when another file takes a file's place."""
    return path.stat().st_ino if isinstance(path, Path) and path.exists() else None


class Terminated(KeyboardInterrupt):
    """SIGTERM came: whatever tidies up after Ctrl-C does so now, too."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises :class:`Terminated`, unless it is ignored or the program around has plans of its own for it."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: object) -> None:  # noqa: ARG001  # as Python calls it
    raise Terminated


@contextmanager
def printable_usage() -> Iterator[None]:
    """Mistakes in how a command was typed repeat it; see :func:`say`."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's, or click's in older releases of typer
            error.format_message = partial(printable, error.format_message())
        raise


@contextmanager
def plain_warnings() -> Iterator[None]:
    """toporo's warnings as lines on standard error, without the file names of Python's."""
    with warnings.catch_warnings():

        def show(
            message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
        ) -> None:
            if issubclass(category, TopoRoWarning):
                say(f"toporo: warning: {message}", err=True)
            else:
                say(warnings.formatwarning(message, category, filename, lineno).rstrip(), err=True)

        warnings.showwarning = show
        warnings.simplefilter("always", TopoRoWarning)
        yield


class SayingHandler(logging.Handler):
    """Lines of the log, said."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say the line of a record, unless a command is to be quiet and nothing is the matter."""
        if record.levelno >= logging.WARNING or not all_quiet():
            say(f"toporo: {self.format(record)}", err=True)


@contextmanager
def log_on_stderr() -> Iterator[None]:
    """What long work says where no terminal shows a bar."""
    log, handler = logging.getLogger("toporo"), SayingHandler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class RunProgress(Bar):
    """A bar of runs on a terminal, a line per run elsewhere."""

    def __init__(self, title: str, *, quiet: bool = False) -> None:
        super().__init__(title, "items", stays=True, mark="toporo: ", quiet=quiet)
        self._title = title
        self._silent = Watch(title, quiet=True) if quiet else nullcontext()

    def __enter__(self) -> Self:
        self._silent.__enter__()  # which silences what the runs have to show
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._silent.__exit__(None, None, None)

    def say(self, text: str) -> None:
        """A remark that is no progress: quiet does not silence it."""
        if self.quiet:
            say(f"toporo: {text}", err=True)
        else:
            super().say(text)

    def report(self, done: int, total: int, run: Any) -> None:
        """Show how many runs are done and which one ended last; without a run, none has ended yet."""
        self(done, total, f"{self._title} {run}" if run is not None else None)
        if not self.live and not self.quiet:
            what = run or (f"{done} found from before" if done else "starting")
            say(f"{self._title}: {done:,}/{total:,} runs ({what})", err=True)


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Kinds of pictures, with what keeps the time of writing out of each.
PICTURES: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
#: A longer name is broken where there is little room.
LONG_WORD = 24
#: Names and options stay in one piece.
WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
#: Width of tables where no terminal says another.
WIDTH = 132


def refuse_inside(model: Path, wanted: Mapping[str, Path | None]) -> None:
    """A file among those of a model would damage it, or be lost when it is replaced."""
    for flag, path in wanted.items():
        if path is not None and Path(realpath(path)).parent == Path(realpath(model)):
            raise SettingError(f"{flag} {path} is in the folder of the model: choose a place of its own.")


def print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Collection[int] = (),
    most: int | None = None,
    thing: str = "row",
) -> None:
    """A table on standard output, as wide as the terminal; columns of ``numbers`` stand to the right.

    Where there is little room, heads and cells break between words, and the last columns of numbers are left out.
    Of more rows than ``most`` the first are shown, and how many more of that ``thing`` there are.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    console = make_console(width=None if sys.stdout.isatty() else WIDTH)
    heads = [printable(title, keep="") for title in titles]
    cells = [[printable(cell, keep="") for cell in row] for row in rows[: shown_of(len(rows), most)]]
    places, room = list(range(len(heads))), console.width
    own = [max((cell_len(row[place]) for row in cells), default=0) for place in places]
    widths = [max(own[place], cell_len(heads[place]), 1) for place in places]
    table = Table()
    if sum(widths) + 3 * len(heads) >= room:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        words = [" ".join([heads[place], *(row[place] for row in cells)]).split() for place in places]
        least = [max(map(cell_len, each), default=1) for each in words]
        least = [size if place in numbers else min(size, LONG_WORD) for place, size in enumerate(least)]
        while (
            sum(least[place] + 2 for place in places) >= room and (last := max({*places} & {*numbers}, default=1)) > 1
        ):
            places.remove(last)
        widths = [max(size, each) for size, each in zip(own, least, strict=True)]
        while sum(widths[place] + 2 for place in places) >= room:
            widest = max(places, key=lambda place: widths[place] - least[place])
            if widths[widest] <= least[widest]:
                break
            widths[widest] -= 1
    for place in places:
        justify: Literal["right", "left"] = "right" if place in numbers else "left"
        table.add_column(Text(heads[place]), justify=justify, overflow="fold", width=widths[place])
    for row in cells:
        table.add_row(*(Text(row[place]) for place in places))
    console.print(table)
    if len(places) < len(heads):
        say(f"No room for {', '.join(titles[place] for place in range(len(heads)) if place not in places)}.")
    say_more(len(rows) - len(cells), thing)


def shown_of(count: int, most: int | None) -> int:
    """How many of so many lines are shown, of which at most so many have room: one alone is not left out.

    >>> shown_of(9, 10), shown_of(11, 10), shown_of(12, 10), shown_of(12, None)
    (9, 11, 10, 12)
    """
    return count if most is None or count <= most + 1 else most


def say_more(count: int, thing: str) -> None:
    """How many more there are than were shown, if any."""
    if count > 0:
        say(f"… {many(count, f'more {thing}')} (--verbose)")


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


def write_picture(path: Path, draw: Callable[[], Figure]) -> None:
    """Draw a figure and write it in the form its name asks for; the same bytes every time."""
    import matplotlib as mpl

    kind = path.suffix.lower().removeprefix(".")
    signs = "the picture's font lacks signs that are in names: they are drawn as boxes."
    with (
        mpl.rc_context({"svg.hashsalt": "toporo", "text.parse_math": False}),  # a dollar in a name is one
        warnings.catch_warnings(record=True) as met,
    ):
        warnings.simplefilter("always")
        figure = draw()
        write_whole(path, lambda stream: figure.savefig(stream, format=kind, dpi=150, metadata=PICTURES[kind]))
    for message in dict.fromkeys(signs if "Glyph" in str(one.message) else str(one.message) for one in met):
        warn(message)


def graph_figure(draw: Callable[[Axes], object], groups: int) -> Figure:
    """A figure whose size suits so many groups, its axes filled by ``draw``."""
    from matplotlib.figure import Figure

    side = min(14.0, max(5.0, 1.5 * groups**0.5))
    figure = Figure(figsize=(1.2 * side, side), layout="constrained")
    ax = figure.subplots()
    draw(ax)
    if ax.get_aspect() != "auto" and ax.dataLim.width > 0:  # a map is as high as it is, for its width
        figure.set_figheight(min(side, max(0.5 * side, 1.3 * side * ax.dataLim.height / ax.dataLim.width)))
    return figure
