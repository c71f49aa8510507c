"""``toporo data``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from toporo.cli.options import Flags, completing, in_help, takes_flags
from toporo.cli.outputs import check_writable
from toporo.cli.running import USER_ERROR, register, working
from toporo.cli.terminal import say, say_data
from toporo.errors import SettingError
from toporo.files import write_text
from toporo.paper.base import BENCHMARKS, Benchmark, export, listed_benchmarks
from toporo.paper.loaded import data_folder
from toporo.progress import tracked
from toporo.text import many

#: Benchmarks that can be downloaded, and those that can be written as tables.
FETCHED = [name for name, benchmark in BENCHMARKS.items() if benchmark.fetch is not None]
TABLES = [name for name, benchmark in BENCHMARKS.items() if benchmark.table is not None]
_Folder = Annotated[
    Path | None, typer.Option("--data", help="Folder to look in.", show_default="$TOPORO_DATA, else ~/.cache/toporo")
]


@takes_flags()
def list_data(data: _Folder = None, *, flags: Flags) -> None:
    """List the benchmarks and where each one's data would come from.

    Example: toporo data list
    """
    for row in _all_states(data, flags):
        if not flags.json:
            say(f"{row['name']:<12} {row['title']}\n{'':<12} {row['status']}: {row['file']}")


@takes_flags()
def verify_data(data: _Folder = None, *, flags: Flags) -> None:
    """Check every benchmark file that is there against its checksum; exit 1 if one differs.

    A file without a published checksum is read instead. Images and radar chips
    have none: those that are there are counted, and read when they are loaded.

    Example: toporo data verify --data downloads
    """
    rows = _all_states(data, flags)
    if not flags.json:
        _say_states(rows)
    bad = {row["status"].split(" (")[0] for row in rows} & {"differs", "damaged"}
    if bad:
        say("A file differs from what was published or fetched: fetch it again, or expect other figures.", err=True)
        raise typer.Exit(USER_ERROR)


@takes_flags()
def get_data(
    name: Annotated[
        str,
        typer.Argument(
            help=in_help("tpt48; for others it says how to get them.", FETCHED), autocompletion=completing(FETCHED)
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder to put it in; made if need be.", show_default="$TOPORO_DATA, else ~/.cache/toporo"),
    ] = None,
    url: Annotated[str | None, typer.Option(help="Another place that serves the same files.")] = None,
    *,
    flags: Flags,
) -> None:
    """Download a benchmark's data from its publisher and check it.

    What is there and intact is not fetched again.

    Example: toporo data get tpt48 --data downloads
    """
    benchmark = BENCHMARKS[name]
    if benchmark.fetch is None:
        can = ", ".join(other.name for other in BENCHMARKS.values() if other.fetch is not None)
        raise SettingError(f"{name} has no place to fetch it from. {benchmark.how_to_get} To fetch: {can}.")
    folder = data_folder(data, new=True)
    with working(f"fetching {name}", "nothing was kept", quiet=flags.silent):
        benchmark.fetch(folder, url)
    rows = _file_states([benchmark], folder)
    if flags.json:
        say_data(json.dumps(rows, indent=1))
        return
    _say_states(rows)
    if data is not None and data_folder(new=True) != folder:
        say(f"toporo: use it with --data {folder}, or set TOPORO_DATA to that folder.", err=True)


@takes_flags()
def table_data(
    name: Annotated[str, typer.Argument(help=in_help("", TABLES), autocompletion=completing(TABLES))],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Write the rows to this CSV file.")],
    graph: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the edges to this CSV file.")] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the test groups to this file, one name per line.")
    ] = None,
    data: _Folder = None,
    *,
    flags: Flags,
) -> None:
    """Write a benchmark as files like those of one's own data, to try the other commands on.

    Example: toporo data table tpt48 --out temperatures.csv --graph
    borders.csv --test west.txt
    """
    files = {"--out": out, "--graph": graph, "--test": test}
    check_writable("-", files)
    with working(f"reading {name}", "nothing was written", quiet=flags.silent):
        exported = export(name, data)
    for path, text in zip(files.values(), (exported.table, exported.edges, exported.test), strict=True):
        if path is not None:
            write_text(path, text)
    written = {flag.removeprefix("--"): str(path) for flag, path in files.items() if path is not None}
    if flags.json:
        say_data(json.dumps(written | {"group": exported.group, "target": exported.target}, indent=1))
        return
    rows, edges, groups = (text.count("\n") for text in (exported.table, exported.edges, exported.test))
    say(f"{rows - 1} rows: {out} (--group {exported.group} --target {exported.target})")
    if graph is not None:
        say(f"{many(edges - 1, 'edge')}: {graph}")
    if test is not None:
        say(f"{many(groups, 'test group')}: {test}")


def _all_states(data: Path | None, flags: Flags) -> list[dict[str, str]]:
    """Return the files of every benchmark with their states; print them as JSON if asked."""
    with working("looking at files", "", quiet=flags.silent):
        benchmarks = tracked(listed_benchmarks(), lambda benchmark: f"looking at {benchmark.name}")
        rows = _file_states(benchmarks, data_folder(data))
    if flags.json:
        say_data(json.dumps(rows, indent=1))
    return rows


def _file_states(benchmarks: Iterable[Benchmark], folder: Path) -> list[dict[str, str]]:
    return [
        {"name": benchmark.name, "title": benchmark.title, "status": status, "file": file}
        for benchmark in benchmarks
        for file, status in [benchmark.state(folder)]
    ]


def _say_states(rows: list[dict[str, str]]) -> None:
    for row in rows:
        say(f"{row['status']}: {row['file']}")


commands = register("data")(
    typer.Typer(help="The benchmarks' data: what there is, getting it, checking it.", no_args_is_help=True)
)
for _name, _function in {"list": list_data, "get": get_data, "verify": verify_data, "table": table_data}.items():
    commands.command(_name)(_function)
