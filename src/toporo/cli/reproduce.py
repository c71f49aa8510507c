"""``toporo reproduce``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from toporo.cli.common import INTERRUPTED, RunProgress
from toporo.machine import cores

__all__ = ["register", "reproduce"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(reproduce)


def _list_methods(wanted: bool) -> None:
    if wanted:
        from toporo.experiments.protocols import PROTOCOLS

        tables: dict[tuple[str, ...], list[str]] = {}
        for protocol in PROTOCOLS.values():
            lines = [f"  {m.name:<20} {m.title}{' (control)' if m.control else ''}" for m in protocol.get_methods()]
            tables.setdefault(tuple(lines), []).append(protocol.benchmark)
        for lines_of, benchmarks in tables.items():
            typer.echo("\n".join([f"{', '.join(benchmarks)}:", *lines_of]))
        raise typer.Exit


def reproduce(
    benchmark: Annotated[str, typer.Argument(help="dg15, dg60 or tpt48.")],
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
    split: Annotated[
        str | None, typer.Option(help="For tpt48: east-west, north-south or both.", show_default="both")
    ] = None,
    window: Annotated[str | None, typer.Option(help="For tpt48: season, sliding or both.", show_default="both")] = None,
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
    from toporo.experiments.tables import (
        caption,
        markdown_table,
        overview_markdown,
        overview_table,
        terminal_tables,
    )
    from toporo.report.html import write_report

    if as_json and as_markdown:
        raise typer.BadParameter("--json and --markdown exclude each other.")
    folder = out or Path("runs") / benchmark
    try:
        with RunProgress(benchmark) as progress:
            outcome = run(
                benchmark,
                folder,
                seeds=seeds,
                methods=methods.split(",") if methods is not None else None,
                data=data,
                source=source,
                workers=jobs or cores(),
                progress=progress,
                split=split,
                window=window,
            )
    except KeyboardInterrupt:
        typer.echo("toporo: interrupted. What is done is kept; the same command goes on from here.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    report = write_report(outcome, folder)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in outcome.rows], indent=1, ensure_ascii=False))
    elif as_markdown:
        tables = [f"{caption(part.protocol, part.rows)}\n\n{markdown_table(part.rows)}" for part in outcome.parts]
        if len(tables) > 1:
            tables.insert(0, overview_markdown(outcome.protocol, outcome.rows))
        typer.echo("\n\n".join(tables))
    else:
        console = Console(width=None if sys.stdout.isatty() else 132)
        for part in outcome.parts:
            for table in terminal_tables(part.protocol, part.rows):
                console.print(table)
        if len(outcome.parts) > 1:
            console.print(overview_table(outcome.protocol, outcome.rows))
    typer.echo(f"results: {folder / 'results.json'}\nreport:  {report}", err=as_json or as_markdown)
