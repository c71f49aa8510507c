"""The command line: one module a command, each with a ``register(app)`` that :data:`COMMANDS` calls."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from toporo import __version__
from toporo.cli import data, doctor, evaluate, explain, fit, predict, report, reproduce, theory, topology
from toporo.cli.common import USER_ERROR, log_on_stderr, use_utf8
from toporo.errors import TopoRoError

__all__ = ["COMMANDS", "app", "main"]

COMMANDS = (
    doctor,
    fit,
    predict,
    evaluate,
    explain,
    report,
    topology,
    reproduce,
    theory,
    data,
)

app = typer.Typer(
    name="toporo",
    help="Topology-aware robust optimisation: models that hold in groups nobody has seen.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toporo {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


for command in COMMANDS:
    command.register(app)


def main() -> None:
    """Run the command line; a user's mistake is a message and an exit code, never a traceback."""
    use_utf8()
    try:
        with log_on_stderr():
            app()
    except TopoRoError as error:
        typer.echo(f"toporo: {error}", err=True)
        sys.exit(USER_ERROR)
    except MemoryError as error:
        why = f" ({error})" if str(error) else ""
        typer.echo(
            f"toporo: there is not enough memory{why}. Use fewer rows or columns, or a machine with more.", err=True
        )
        sys.exit(USER_ERROR)
    except OSError as error:  # a full disk, a folder that may not be written
        typer.echo(f"toporo: {error}. Check that the path can be written and that there is space.", err=True)
        sys.exit(USER_ERROR)
