"""The command line."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toporo import __version__
from toporo.errors import DataError, SettingError, TopoRoError, TopoRoWarning, UnknownNameError, listed
from toporo.machine import cores

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from toporo.data.tables import Table
    from toporo.experiments.jobs import Job
    from toporo.topology.diffusion import GroupDistances
    from toporo.topology.graph import GroupGraph
    from toporo.topology.learn import Learned

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
                workers=jobs or cores(),
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


class Cut(StrEnum):
    """How a graph is cut out of distances."""

    MST_KNN = "mst-knn"
    KNN = "knn"
    PERCENTILE = "percentile"


class Kernel(StrEnum):
    """How points are joined."""

    AUTO = "auto"
    DENSE = "dense"
    KNN = "knn"


#: Kinds of pictures, with what keeps the time of writing out of each.
PICTURES: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def _names(text: str | None, option: str) -> list[str] | None:
    """Names between commas; one that holds a comma stands in double quotes."""
    import csv

    if text is None:
        return None
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not all(names) or not names:
        raise typer.BadParameter(f"{text!r} has an empty name: expected names between commas.", param_hint=option)
    return names


def _delimiter(text: str) -> str:
    sign = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(sign) != 1 or sign in '"\r\n':
        raise typer.BadParameter(f"{text!r} is not a single character such as , or ; (for a tab say tab).")
    return sign


def _sigma(text: str) -> str:
    try:
        usable = 0 < float(text) < float("inf")
    except ValueError:
        usable = text in ("knn", "median")
    if not usable:
        raise typer.BadParameter(f"{text!r} is neither a positive number nor knn nor median.")
    return text


def _percentile(value: float) -> float:
    if not 0 < value <= 100:
        raise typer.BadParameter(f"{value:g} is not above 0 and at most 100.")
    return value


def _resamples(count: int | None) -> int | None:
    if count == 1:
        raise typer.BadParameter("1 says nothing about spread: use at least 2, or 0 for none.")
    return count


def _option(help: str, panel: str, *names: str, **settings: Any) -> Any:  # noqa: A002  # as typer calls it
    return typer.Option(*names, help=help, rich_help_panel=panel, **settings)


_DATA, _GRAPH, _DISTANCES, _OUTPUT = "Data", "Graph", "Distances", "Output"


@app.command()
def topology(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="CSV file, its first line naming the columns; - is standard input.")
    ],
    group: Annotated[str, _option("Column with the group of every row.", _DATA, metavar="COLUMN")],
    features: Annotated[
        str | None,
        _option("Columns to use, e.g. a,b,c.", _DATA, metavar="NAMES", show_default="every column of numbers"),
    ] = None,
    exclude: Annotated[str | None, _option("Columns not to use.", _DATA, metavar="NAMES")] = None,
    test_groups: Annotated[
        str | None,
        _option("Groups to come: their rows are unlabelled inputs, and the graph records it.", _DATA, metavar="NAMES"),
    ] = None,
    delimiter: Annotated[
        str, _option("What stands between cells; tab for a tab.", _DATA, callback=_delimiter, metavar="SIGN")
    ] = ",",
    scale: Annotated[
        bool,
        _option(
            "Centre every feature and divide it by its standard deviation, as columns have units.", _DATA, metavar=""
        ),
    ] = True,
    drop_missing: Annotated[
        bool,
        _option(
            "Leave out rows that lack a group or a feature; else they are an error.",
            _DATA,
            "--drop-missing",
            metavar="",
        ),
    ] = False,
    cut: Annotated[
        Cut,
        _option(
            "mst-knn: nearest groups and a spanning tree; knn: nearest groups; percentile: small distances.",
            _GRAPH,
            metavar="CUT",
        ),
    ] = Cut.MST_KNN,
    nearest_groups: Annotated[
        int | None,
        _option("How many nearest groups to keep.", _GRAPH, min=1, metavar="N", show_default="log of their number"),
    ] = None,
    percentile: Annotated[
        float, _option("Of all distances, for --cut percentile.", _GRAPH, callback=_percentile, metavar="P")
    ] = 80.0,
    resamples: Annotated[
        int | None,
        _option(
            "How often to draw the points anew, to see which edges stay; 0 is never.",
            _GRAPH,
            min=0,
            callback=_resamples,
            metavar="N",
            show_default="20, or 0 beyond 10 000 points",
        ),
    ] = None,
    seed: Annotated[int, _option("Of the resamples.", _GRAPH, min=0, metavar="N")] = 0,
    kernel: Annotated[
        Kernel,
        _option("dense: all pairs of points; knn: nearest ones; auto: dense up to 2000.", _DISTANCES, metavar="KERNEL"),
    ] = Kernel.AUTO,
    neighbors: Annotated[
        int, _option("Nearest points that a point is joined to.", _DISTANCES, min=1, metavar="N")
    ] = 15,
    sigma: Annotated[
        str, _option("Width of the kernel: a number, knn or median.", _DISTANCES, callback=_sigma, metavar="WIDTH")
    ] = "knn",
    scales: Annotated[
        int, _option("Diffusion times go up to 2 to the power N.", _DISTANCES, min=1, max=20, metavar="N")
    ] = 10,
    alpha: Annotated[float, _option("How strongly short times are damped.", _DISTANCES, metavar="NUMBER")] = 0.5,
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1, …", _DISTANCES, metavar="NAME")] = "auto",
    search: Annotated[
        str, _option("How neighbours are found: auto, exact or a backend.", _DISTANCES, metavar="NAME")
    ] = "auto",
    memory_limit: Annotated[
        str | None,
        _option("Memory to stay within, e.g. 4GiB.", _DISTANCES, metavar="SIZE", show_default="what is free"),
    ] = None,
    out: Annotated[Path | None, _option("Write the graph to this file, as JSON.", _OUTPUT, metavar="FILE")] = None,
    plot: Annotated[Path | None, _option("Draw the graph: a .png, .svg or .pdf file.", _OUTPUT, metavar="FILE")] = None,
    distances: Annotated[
        Path | None, _option("Write all distances between groups to this CSV file.", _OUTPUT, metavar="FILE")
    ] = None,
    as_json: Annotated[
        bool, _option("Print the graph as JSON instead of a table.", _OUTPUT, "--json", metavar="")
    ] = False,
) -> None:
    """Learn from a table which groups hang together.

    Rows are points, joined to the nearest others. Two groups are near if what
    diffuses from one soon looks like what diffuses from the other; the nearest
    become edges. Beside an edge: its share of resamples that keep it.

    Example: toporo topology sales.csv --group state --plot states.png
    """
    wanted = {"--out": out, "--plot": plot, "--distances": distances}
    _check_files(data, {option: path for option, path in wanted.items() if path is not None})
    columns, excluded = _names(features, "--features"), _names(exclude, "--exclude") or []
    coming = _names(test_groups, "--test-groups") or []
    try:
        with _plain_warnings():
            table = _read(data, group, columns, excluded, delimiter, drop_missing)
            table = table.standardised() if scale else table
            _say_columns(table)
            test = _test_groups(table, coming)
            emd: dict[str, Any] = {
                "kernel": kernel.value,
                "neighbors": neighbors,
                "sigma": sigma if sigma in ("knn", "median") else float(sigma),
                "scales": scales,
                "alpha": alpha,
                "device": device,
                "search": search,
                "memory_limit": memory_limit,
            }
            cuts = {"cut": cut.value, "percentile": percentile, "nearest_groups": nearest_groups}
            learned = _learn(table, test, scale, **cuts, resamples=resamples, seed=seed, **emd)
            graph = learned.graph
    except KeyboardInterrupt:
        typer.echo("toporo: interrupted; nothing was written.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if out is not None:
        graph.to_json(out)
    if distances is not None:
        _write_distances(distances, learned.distances)
    if plot is not None:
        _write_picture(plot, graph, test)
    if as_json:
        typer.echo(graph.to_json())
    else:
        from rich.console import Console

        console = Console(width=None if sys.stdout.isatty() else 132, highlight=False)
        pieces = _many(len(graph.components()), "connected piece")
        typer.echo(f"{len(graph)} groups, {_many(len(graph.edges), 'edge')}, in {pieces}")
        console.print(_edges(graph, test))
        typer.echo(_how(graph, test))
    for what, path in (("graph", out), ("distances", distances), ("picture", plot)):
        if path is not None:
            typer.echo(f"{what + ':':<10} {path}", err=as_json)


def _check_files(data: str, wanted: dict[str, Path]) -> None:
    """What would keep a file from being written is an error before the work, not after."""
    taken = {} if data == "-" else {Path(data).resolve(): "the table itself"}
    for option, path in wanted.items():
        suffix = path.suffix.lower().removeprefix(".")
        if option == "--plot" and suffix not in PICTURES:
            raise SettingError(f"{option} {path}: expected a name that ends in {', '.join('.' + s for s in PICTURES)}.")
        if not path.parent.is_dir():
            raise SettingError(f"{option} {path}: there is no folder {path.parent}. Make it first, or choose another.")
        if path.exists() and not path.is_file():
            raise SettingError(f"{option} {path}: that is not a plain file. Give the name of one.")
        if not os.access(path.parent, os.W_OK):
            raise SettingError(f"{option} {path}: the folder {path.parent} may not be written to. Choose another.")
        other = taken.setdefault(path.resolve(), option)
        if other != option:
            raise SettingError(f"{option} {path} is {other}: give every file a name of its own.")


def _read(
    data: str, group: str, features: list[str] | None, exclude: list[str], delimiter: str, drop_missing: bool
) -> Table:
    from toporo.data.tables import read_table

    source = sys.stdin.buffer if data == "-" else data
    return read_table(source, group, features=features, exclude=exclude, delimiter=delimiter, drop_missing=drop_missing)


def _say_columns(table: Table) -> None:
    """What of the table is used, on standard error."""
    left = ", ".join(f"{name!r} ({why})" for name, why in list(table.left_out.items())[:20])
    more = f", … ({len(table.left_out)} in all)" if len(table.left_out) > 20 else ""
    typer.echo(f"toporo: features: {listed(table.names, limit=20)}", err=True)
    if left:
        typer.echo(f"toporo: left out: {left}{more}", err=True)
    if table.dropped:
        lost = f"; nothing is left of {listed(table.lost)}" if table.lost else ""
        total = len(table) + table.dropped
        typer.echo(f"toporo: dropped {table.dropped} of {total} rows that lack a value{lost}", err=True)


def _test_groups(table: Table, names: list[str]) -> list[str]:
    """The groups to come, each once; all must have rows, and others must be there beside them."""
    known = [str(name) for name in table.ids.groups]
    for name in names:
        if name in table.lost:
            raise DataError(f"test group {name!r} has no row left: each of its rows lacks a value.")
        if name not in known:
            raise UnknownNameError("test group", name, known)
    if set(names) == set(known):
        raise DataError(f"every group is a test group ({listed(known)}): leave at least one to train on.")
    return list(dict.fromkeys(names))


def _learn(table: Table, test: list[str], scaled: bool, **settings: Any) -> Learned:
    """The topology of a table, with the table's part in its making on record."""
    import numpy as np

    from toporo.groups import Groups
    from toporo.topology.graph import GroupGraph, Origin
    from toporo.topology.learn import learn

    if test:
        coming = np.isin(table.ids.codes, table.ids.groups.encode(test))
        labels = [Groups.of(table.ids.groups.decode(table.ids.codes[rows])) for rows in (~coming, coming)]
        settings |= {"test_features": table.features[coming], "test_groups": labels[1]}
        learned = learn(table.features[~coming], labels[0], **settings)
    else:
        learned = learn(table.features, table.ids, **settings)
    graph = learned.graph
    details = dict(graph.origin.details) | {"features": list(table.names), "standardised": scaled}
    origin = Origin(graph.origin.kind, graph.origin.saw_test_inputs, details)
    return replace(learned, graph=GroupGraph(graph.names, graph.edges, origin=origin, stability=graph.stability))


def _write_distances(path: Path, distances: GroupDistances) -> None:
    import csv
    import io

    from toporo.files import write_text

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", *distances.names])
    writer.writerows([name, *row] for name, row in zip(distances.names, distances.matrix.tolist(), strict=True))
    write_text(path, text.getvalue())


def _write_picture(path: Path, graph: GroupGraph, test: list[str]) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from toporo.files import write_whole

    kind = path.suffix.lower().removeprefix(".")
    side = min(14.0, max(5.0, 1.5 * len(graph) ** 0.5))
    with mpl.rc_context({"svg.hashsalt": "toporo"}):
        figure = Figure(figsize=(1.2 * side, side), layout="constrained")
        train = [name for name in graph.names if name not in test] if test else None
        graph.plot(figure.subplots(), train=train, test=test or None)
        write_whole(path, lambda part: figure.savefig(part, format=kind, dpi=150, metadata=PICTURES[kind]))


def _edges(graph: GroupGraph, test: list[str]) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    def shown(name: object) -> Text:
        return Text(f"{name} (test)" if name in test else str(name))

    table = RichTable()
    table.add_column("group", overflow="fold")
    table.add_column("group", overflow="fold")
    table.add_column("distance", justify="right", no_wrap=True)
    if graph.stability is not None:
        table.add_column("stability", justify="right", no_wrap=True)
    for (a, b), length in graph.edges.items():
        kept = [] if graph.stability is None else [f"{graph.stability[a, b]:.0%}".replace("%", " %")]
        table.add_row(shown(a), shown(b), f"{length:.4f}" if length >= 1e-3 else f"{length:.1e}", *kept)
    return table


def _how(graph: GroupGraph, test: list[str]) -> str:
    """How a graph was learned, for people."""
    how = graph.origin.details
    joined = f", {how['neighbors']} neighbours" if "neighbors" in how else ""
    lines = [
        f"From {how['points']} points in {_many(len(how['features']), 'feature')}"
        f"{' (standardised)' if how['standardised'] else ''}: {how['kernel']} kernel{joined}, {how['scales']} scales, "
        f"Chebyshev order {how['order']}, {how['engine']} on {how['device']}; distances are within "
        f"{how['error']:.0e} of exact ones."
    ]
    if "resamples" in how:
        lines.append(f"Stability: the share of {how['resamples']} resamples of the points that keep the edge.")
    else:
        lines.append("Stability was not measured: --resamples 20 does that.")
    lone = [name for name in graph.names if not graph.neighbors(name)]
    if lone:
        lines.append(f"Without an edge: {listed(lone)}.")
    if graph.origin.saw_test_inputs:
        lines.append(f"Inputs of the test groups were seen: {listed(test)}.")
    return "\n".join(lines)


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """toporo's warnings as lines on standard error, without the file names of Python's."""
    import warnings

    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, TopoRoWarning):
                typer.echo(f"toporo: warning: {message}", err=True)
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        warnings.simplefilter("always", TopoRoWarning)
        yield


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
        with _log_on_stderr():
            app()
    except TopoRoError as error:
        typer.echo(f"toporo: {error}", err=True)
        sys.exit(USER_ERROR)
    except OSError as error:  # a full disk, a folder that may not be written
        typer.echo(f"toporo: {error}. Check that the path can be written and that there is space.", err=True)
        sys.exit(USER_ERROR)


@contextmanager
def _log_on_stderr() -> Iterator[None]:
    """What long work says where no terminal shows a bar."""
    log, handler = logging.getLogger("toporo"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("toporo: %(message)s"))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
