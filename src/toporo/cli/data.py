"""``toporo data``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from toporo.cli import options as opt
from toporo.cli.outputs import check_writable
from toporo.cli.running import USER_ERROR, register, working
from toporo.cli.terminal import say, say_data, say_files
from toporo.errors import SettingError
from toporo.files import write_text
from toporo.paper.base import BENCHMARKS, Benchmark, export, listed_benchmarks
from toporo.paper.loaded import data_folder, download_folder
from toporo.progress import tracked

Folder = Annotated[Path | None, opt.option("Folder of data; unless given $TOPORO_DATA, else ~/.cache/toporo.")]
commands = typer.Typer(help="List, download and check the benchmarks' data.", no_args_is_help=True)
register("data")(commands)


@commands.command("list")
@opt.takes_options
def list_data(data: Folder = None, *, flags: opt.Flags) -> None:
    """List the benchmarks and where each one's data would come from.

    Example: toporo data list
    """
    _show(listed_benchmarks(), data_folder(data), flags)


@commands.command("verify")
@opt.takes_options
def verify_data(data: Folder = None, *, flags: opt.Flags) -> None:
    """Check every benchmark file that is there against its checksum; exit 1 if one differs.

    A file without a published checksum is read instead. Images and radar chips
    have none: those that are there are counted, and read when they are loaded.

    Example: toporo data verify --data downloads
    """
    states = _show(listed_benchmarks(), data_folder(data), flags)
    if {state.split(" (")[0] for state in states} & {"differs", "damaged"}:
        say("A file differs from what was published or fetched: fetch it again, or expect other figures.", err=True)
        raise typer.Exit(USER_ERROR)


@commands.command("get")
@opt.takes_options
def get_data(
    name: Annotated[str, typer.Argument(**opt.choice("Of most it says how to get them.", BENCHMARKS))],
    data: Folder = None,
    url: Annotated[str | None, opt.option("Another place that serves the same files.")] = None,
    *,
    flags: opt.Flags,
) -> None:
    """Download a benchmark's data from its publisher and check it.

    What is there and intact is not fetched again.

    Example: toporo data get tpt48 --data downloads
    """
    benchmark = BENCHMARKS[name]
    if benchmark.fetch is None:
        can = ", ".join(other.name for other in BENCHMARKS.values() if other.fetch is not None)
        raise SettingError(f"{name} has no place to fetch it from. {benchmark.how_to_get} To fetch: {can}.")
    folder = download_folder(data)
    with working(f"fetching {name}", quiet=flags.silent):
        benchmark.fetch(folder, url)
    _show([benchmark], folder, flags)
    if data is not None and download_folder() != folder:
        say(f"toporo: use it with --data {folder}, or set TOPORO_DATA to that folder.", err=True)


@commands.command("table")
@opt.takes_options
def table_data(
    name: Annotated[str, typer.Argument(**opt.choice("", BENCHMARKS))],
    out: Annotated[Path, opt.option("Write the rows to this CSV file.", "-o")],
    graph: Annotated[Path | None, opt.option("Write the edges to this CSV file.")] = None,
    test: Annotated[Path | None, opt.option("Write the test groups to this file, one name per line.")] = None,
    data: Folder = None,
    *,
    flags: opt.Flags,
) -> None:
    """Write a benchmark as files like those of one's own data, to try the other commands on.

    Example: toporo data table tpt48 --out temperatures.csv --graph
    borders.csv --test west.txt
    """
    files = {what: check_writable(path) for what, path in {"out": out, "graph": graph, "test": test}.items() if path}
    with working(f"reading {name}", quiet=flags.silent):
        exported = export(name, data)
    for what, path in files.items():
        write_text(path, {"out": exported.table, "graph": exported.edges, "test": exported.test}[what])
    columns = {"group": exported.group, "target": exported.target}
    if flags.json:
        say_data({what: str(path) for what, path in files.items()} | columns)
    else:
        say_files(files, err=False)
        say(" ".join(f"--{role} {column}" for role, column in columns.items()))


def _show(benchmarks: Collection[Benchmark], folder: Path | None, flags: opt.Flags) -> list[str]:
    """Print the files of benchmarks with their states, and return the states."""
    rows = []
    with working("looking at files", quiet=flags.silent):
        for benchmark in tracked(benchmarks, lambda benchmark: f"looking at {benchmark.name}"):
            file, status = benchmark.state(folder)
            rows.append({"name": benchmark.name, "title": benchmark.title, "status": status, "file": file})
    if flags.json:
        say_data(rows)
    else:
        for row in rows:
            say(f"{row['name']:<12} {row['title']}\n{'':<12} {row['status']}: {row['file']}")
    return [row["status"] for row in rows]
