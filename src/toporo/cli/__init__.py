"""The command line: one file per command, imported when the command runs.

A command is a function, or a ``typer.Typer`` of several, marked with ``@register("name")``. Those of toporo stand in
:data:`OWN`; another package brings one by an entry point of the group ``toporo.commands``.
"""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from toporo.cli.options import LimitedFlags, takes_options
from toporo.cli.running import COMMANDS, USER_ERROR, interruptible, log_on_stderr, printable_usage, terminable, use_utf8
from toporo.cli.terminal import say
from toporo.errors import TopoRoError, warn
from toporo.version import __version__

__all__ = ["OWN", "app", "main"]

#: Each command of toporo, ``fit`` in ``toporo.cli.fit`` and so on, with the first line of its help.
OWN = {
    "doctor": "Examine a table for what is wrong or risky before training on it.",
    "compare": "Compare models and controls on groups of a table held out.",
    "fit": "Fit a model for groups that are absent from training.",
    "predict": "Predict every row of a table, which may be larger than memory.",
    "evaluate": "Evaluate a model by group, the worst first, and by distance from the training groups.",
    "explain": "Show what a model is made of: candidates or groups by weight.",
    "report": "Write a page about a model: its groups, weights and losses.",
    "topology": "Learn from a table which groups are related.",
    "reproduce": "Run one of the paper's tables: methods, controls, and the paper's figures beside them.",
    "theory": "Check the paper's three theorems on DG-15.",
    "data": "List, download and check the benchmarks' data.",
}


class Commands(TyperGroup):
    """Commands that are imported when they run; the page of help needs no more of toporo's own than :data:`OWN`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=line) for name, line in OWN.items()}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # as typer calls it
        """List toporo's own commands, then those of other packages; one that cannot be used is a warning."""
        for name in COMMANDS:
            if name not in OWN:
                try:
                    self.commands[name] = load_command(name)
                except Exception as error:  # whatever typer makes of a stranger's function
                    warn(f"the command {name!r} cannot be used ({type(error).__name__}: {error}). It is left out.")
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that the first word names."""
        if args[0] in OWN:
            self.commands[args[0]] = load_command(args[0])
        else:
            self.list_commands(ctx)
        return super().resolve_command(ctx, args)

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Parse the words before the command."""
        with printable_usage():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Import the command and run it."""
        with terminable(), interruptible(), printable_usage():
            return super().invoke(ctx)


def load_command(name: str) -> Any:
    """Import the command of this name, as typer runs it."""
    if name in OWN:
        importlib.import_module(f"toporo.cli.{name}")
    thing = COMMANDS[name]
    holder = typer.Typer()
    if isinstance(thing, typer.Typer):
        holder.add_typer(thing, name=name)
    else:
        holder.command(name)(thing)
    return typer.main.get_group(holder).commands[name]


app = typer.Typer(
    name="toporo",
    cls=Commands,
    help="Topology-aware robust optimisation: models that hold in groups nobody has seen.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"toporo {__version__}")
        raise typer.Exit


@app.callback()
@takes_options
def _root(
    flags: LimitedFlags,  # commands find them in the context
    version: Annotated[  # its callback does the work
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.", metavar="")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; a user's mistake is a message and an exit code, never a traceback."""
    use_utf8()
    try:
        with log_on_stderr():
            app(prog_name="toporo")
        return
    except TopoRoError as error:
        message = str(error)
    except MemoryError as error:
        why = f" ({error})" if str(error) else ""
        message = f"there is not enough memory{why}. Use fewer rows or columns, or a machine with more."
    except OSError as error:  # a full disk, a folder that may not be written
        message = f"{error}. Check that the path can be written and that there is space."
    say(f"toporo: {message}", err=True)
    sys.exit(USER_ERROR)
