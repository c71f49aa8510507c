"""The command line."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toporo import __version__
from toporo.errors import TopoRoError

if TYPE_CHECKING:
    from toporo.experiments.jobs import Job

__all__ = ["app", "main"]

app = typer.Typer(
    name="toporo",
    help="Topology-aware robust optimisation: models that hold in groups nobody has seen.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
data_app = typer.Typer(help="The benchmarks' data: what there is, and whether it is intact.", no_args_is_help=True)
app.add_typer(data_app, name="data")

#: Exit codes: 0 all went well, 1 a mistake in what was asked or given, 2 a mistake in how it was typed.
USER_ERROR = 1
INTERRUPTED = 130


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toporo {__version__}")
        raise typer.Exit


def _list_methods(wanted: bool) -> None:
    if wanted:
        from toporo.experiments.protocols import METHODS

        for method in METHODS.values():
            typer.echo(f"{method.name:<17} {method.title}{' (control)' if method.control else ''}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def reproduce(
    benchmark: Annotated[str, typer.Argument(help="dg15 or dg60.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds: 0, 1, …")] = 3,
    methods: Annotated[
        str | None,
        typer.Option(help="Comma-separated names, e.g. erm,tro-physical. All unless given; see --list-methods."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; a table there is replaced.", show_default="runs/BENCHMARK")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the published data.", show_default="$TOPORO_DATA, else generated data"),
    ] = None,
    source: Annotated[
        str, typer.Option(help="auto, published (insist on the file) or generated (never look for it).")
    ] = "auto",
    jobs: Annotated[int, typer.Option(min=0, help="Runs at a time; 0 is one a core.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result rows as JSON instead of a table.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table in Markdown.")] = False,
    list_methods: Annotated[  # noqa: ARG001  # its callback does the work
        bool, typer.Option("--list-methods", callback=_list_methods, is_eager=True, help="List the methods and exit.")
    ] = False,
) -> None:
    """Run one of the paper's tables: every method, honest controls, the paper's figures beside.

    Writes results.json and report.html (one file, opens offline). Interrupt it at any time: the same command goes on
    from where it was and gives the same figures.
    """
    from rich.console import Console

    from toporo.experiments.runner import reproduce as run
    from toporo.experiments.tables import caption, markdown_table, terminal_table
    from toporo.report.html import write_report

    if as_json and as_markdown:
        raise typer.BadParameter("--json and --markdown exclude each other.")
    folder = out or Path("runs") / benchmark
    try:
        with _Progress(benchmark) as progress:
            outcome = run(
                benchmark,
                folder,
                seeds=seeds,
                methods=methods.split(",") if methods is not None else None,
                data=data,
                source=source,
                workers=jobs or _cores(),
                progress=progress,
            )
    except KeyboardInterrupt:
        typer.echo("toporo: interrupted. What is done is kept; the same command goes on from here.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    report = write_report(outcome, folder)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in outcome.rows], indent=1, ensure_ascii=False))
    elif as_markdown:
        typer.echo(f"{caption(outcome.protocol, outcome.rows)}\n\n{markdown_table(outcome.rows)}")
    else:
        console = Console(width=None if sys.stdout.isatty() else 132)
        console.print(terminal_table(outcome.protocol, outcome.rows))
    typer.echo(f"results: {folder / 'results.json'}\nreport:  {report}", err=as_json or as_markdown)


def _cores() -> int:
    """The cores this process may use, which under a batch system are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@data_app.command("list")
def list_data(
    data: Annotated[Path | None, typer.Option(help="Folder to look in.", show_default="$TOPORO_DATA")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List the benchmarks and where each one's data would come from."""
    rows = _data_rows(data)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        typer.echo(f"{row['name']:<6} {row['title']}\n       {row['status']}: {row['file']}")


@data_app.command("verify")
def verify_data(
    data: Annotated[Path | None, typer.Option(help="Folder to look in.", show_default="$TOPORO_DATA")] = None,
) -> None:
    """Check every benchmark file that is there against its published checksum; exit 1 if one differs."""
    rows = _data_rows(data)
    for row in rows:
        typer.echo(f"{row['status']}: {row['file']}")
    if any(row["status"] == "differs" for row in rows):
        typer.echo("A file differs from the published one: fetch it again, or expect other figures.", err=True)
        raise typer.Exit(USER_ERROR)


def _data_rows(data: Path | None) -> list[dict[str, Any]]:
    from toporo.datasets import DATASETS, data_folder, find_file, sha256

    folder = data_folder(data)
    rows = []
    for name, dataset in DATASETS.items():
        for file, checksum in dataset.files.items():
            path = find_file(folder, file, Path(file).name) if folder is not None else None
            absent = "absent (generated when needed)" if dataset.generated else "absent"
            status = absent if path is None else "intact" if sha256(path) == checksum else "differs"
            rows.append({"name": name, "title": dataset.title, "status": status, "file": str(path or file)})
    return rows


class _Progress:
    """A bar on a terminal, a line a run elsewhere; always on standard error."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self._live = console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not self._live,
        )
        self._task = self._bar.add_task(title, total=None)
        self._title = title

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int, job: Job | None) -> None:
        self._bar.update(self._task, completed=done, total=total)
        if job is not None:
            self._bar.update(self._task, description=f"{self._title} {job.method.name} seed {job.seed}")
        if not self._live:
            what = f"{job.method.name} seed {job.seed}" if job else f"{done} found from before" if done else "starting"
            typer.echo(f"{self._title}: {done}/{total} runs ({what})", err=True)


def main() -> None:
    """Run the command line; a user's mistake is a message and an exit code, never a traceback."""
    try:
        app()
    except TopoRoError as error:
        typer.echo(f"toporo: {error}", err=True)
        sys.exit(USER_ERROR)
    except OSError as error:  # a full disk, a folder that may not be written
        typer.echo(f"toporo: {error}. Check that the path can be written and that there is space.", err=True)
        sys.exit(USER_ERROR)
