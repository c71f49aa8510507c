"""``toporo topology``."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from toporo.cli.common import (
    PICTURES,
    Delimiter,
    Exclude,
    GroupColumn,
    Quiet,
    Verbose,
    check_writable,
    choice,
    completing_columns,
    coordinates_option,
    data_source,
    graph_figure,
    names_or_file,
    option,
    register,
    say,
    say_data,
    say_more,
    split_names,
    tell,
    working,
    write_picture,
)
from toporo.coordinates import read_coordinates
from toporo.errors import DataError, UnknownNameError, listed
from toporo.files import write_text
from toporo.groups import Groups
from toporo.progress import make_console
from toporo.tables.read import Points, read_points
from toporo.tables.roles import Roles
from toporo.text import many, number, printable
from toporo.topology.cuts import CUTS
from toporo.topology.diffusion import GroupDistances
from toporo.topology.graph import GroupGraph, Origin
from toporo.topology.learn import Learned, learn

KERNELS = ("auto", "dense", "knn")
#: Edges shown; --verbose, --out and --json have all.
SHOWN = 25


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


_DATA, _GRAPH, _DISTANCES, _OUTPUT = "Data", "Graph", "Distances", "Output"


@register("topology")
def topology(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Table: CSV (also .gz), its first line naming the columns, Parquet or Feather; - is CSV on standard "
            "input.",
        ),
    ],
    group: GroupColumn,
    features: Annotated[
        str | None, option("Columns to use, e.g. a,b,c.", _DATA, metavar="NAMES", show_default="all that are of use")
    ] = None,
    target: Annotated[
        str | None,
        option(
            "Column that is to be predicted; a topology must not see it.",
            _DATA,
            metavar="COLUMN",
            autocompletion=completing_columns,
        ),
    ] = None,
    exclude: Exclude = None,
    test_groups: Annotated[
        str | None,
        option(
            "Groups not to train on, e.g. a,b or @FILE with one name per line. The graph records that it saw their "
            "inputs.",
            _DATA,
            metavar="NAMES",
        ),
    ] = None,
    delimiter: Delimiter = ",",
    scale: Annotated[
        bool,
        option(
            "Centre every feature and divide it by its standard deviation, as columns have units.", _DATA, metavar=""
        ),
    ] = True,
    drop_rows: Annotated[
        bool,
        option(
            "Leave out rows that lack a group; else they are an error. Missing features are filled in.",
            _DATA,
            "--drop-rows",
            metavar="",
        ),
    ] = False,
    cut: Annotated[
        str,
        choice(
            "mst-knn: nearest groups and a spanning tree; mst-knn-ties: and all pairs as short up to a tenth; "
            "knn: nearest groups; percentile: small distances.",
            _GRAPH,
            CUTS,
            metavar="CUT",
        ),
    ] = "mst-knn",
    nearest_groups: Annotated[
        int | None,
        option("How many nearest groups to keep.", _GRAPH, min=1, metavar="N", show_default="log of their number"),
    ] = None,
    percentile: Annotated[
        float, option("Of all distances, for --cut percentile.", _GRAPH, callback=_percentile, metavar="P")
    ] = 80.0,
    resamples: Annotated[
        int | None,
        option(
            "How often to draw the points anew, to see which edges stay; 0 is never.",
            _GRAPH,
            min=0,
            callback=_resamples,
            metavar="N",
            show_default="20, or 0 beyond 10 000 points",
        ),
    ] = None,
    seed: Annotated[int, option("Of the resamples.", _GRAPH, min=0, metavar="N")] = 0,
    kernel: Annotated[
        str,
        choice(
            "dense: all pairs of points; knn: nearest ones; auto: dense up to 2000.",
            _DISTANCES,
            KERNELS,
            metavar="KERNEL",
        ),
    ] = "auto",
    neighbors: Annotated[int, option("Nearest points that a point is joined to.", _DISTANCES, min=1, metavar="N")] = 15,
    sigma: Annotated[
        str,
        choice(
            "Width of the kernel: a number, knn or median.",
            _DISTANCES,
            ("knn", "median"),
            checked=False,
            callback=_sigma,
            metavar="WIDTH",
        ),
    ] = "knn",
    scales: Annotated[
        int, option("Diffusion times go up to 2 to the power N.", _DISTANCES, min=1, max=20, metavar="N")
    ] = 10,
    alpha: Annotated[float, option("How strongly short times are damped.", _DISTANCES, metavar="NUMBER")] = 0.5,
    device: Annotated[str, option("auto, cpu, cuda, cuda:1, …", _DISTANCES, metavar="NAME")] = "auto",
    memory_limit: Annotated[
        str | None, option("Memory to stay within, e.g. 4GiB.", _DISTANCES, metavar="SIZE", show_default="what is free")
    ] = None,
    coordinates: Annotated[Path | None, coordinates_option(_GRAPH)] = None,
    out: Annotated[Path | None, option("Write the graph to this file, as JSON.", _OUTPUT, metavar="FILE")] = None,
    plot: Annotated[Path | None, option("Draw the graph: a .png, .svg or .pdf file.", _OUTPUT, metavar="FILE")] = None,
    distances: Annotated[
        Path | None, option("Write all distances between groups to this CSV file.", _OUTPUT, metavar="FILE")
    ] = None,
    as_json: Annotated[
        bool, option("Print the graph as JSON instead of a table.", _OUTPUT, "--json", metavar="")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Learn from a table which groups are related.

    Rows are points, joined to the nearest others; text becomes categories, and
    missing features are filled in. Two groups are near if what diffuses from
    one soon looks like what diffuses from the other; the nearest become edges.
    Beside an edge: its share of resamples that keep it.

    Example: toporo topology sales.csv --group state --plot states.png
    """
    check_writable(data, {"--out": out, "--plot": plot, "--distances": distances}, endings={"--plot": PICTURES})
    roles = Roles.of(
        group=group,
        target=target,
        features=split_names(features, "--features"),
        exclude=split_names(exclude, "--exclude") or [],
        test_groups=names_or_file(test_groups, "--test-groups") or [],
        drop_rows=drop_rows,
    )
    places = None if coordinates is None else read_coordinates(coordinates)
    with working("learning the graph", "nothing was written", quiet=as_json or quiet):
        points = read_points(data_source(data), roles, delimiter=delimiter)
        _say_columns(points)
        points = points.standardised() if scale else points
        test = _test_groups(points, roles.test_groups)
        learned = _learn(
            points,
            test,
            scale,
            cut=cut,
            percentile=percentile,
            nearest_groups=nearest_groups,
            resamples=resamples,
            seed=seed,
            kernel=kernel,
            neighbors=neighbors,
            sigma=sigma if sigma in ("knn", "median") else float(sigma),
            scales=scales,
            alpha=alpha,
            device=device,
            memory_limit=memory_limit,
        )
        graph = learned.graph if places is None else places.place(learned.graph)
    if out is not None:
        graph.to_json(out)
    if distances is not None:
        _write_distances(distances, learned.distances)
    if plot is not None:
        train = [name for name in graph.names if name not in test] if test else None
        with working("drawing the graph", plot, quiet=as_json or quiet):
            write_picture(
                plot, lambda: graph_figure(lambda ax: graph.plot(ax, train=train, test=test or None), len(graph))
            )
    if as_json:
        say_data(graph.to_json())
    else:
        console = make_console(width=None if sys.stdout.isatty() else 132)
        pieces = many(len(graph.components()), "connected piece")
        say(f"{len(graph)} groups, {many(len(graph.edges), 'edge')}, in {pieces}")
        console.print(_edges(graph, test, None if verbose else SHOWN))
        if not verbose:
            say_more(len(graph.edges) - SHOWN, "edge")
        for sentence in _how(graph, test):
            tell(sentence)
    for what, path in (("graph", out), ("distances", distances), ("picture", plot)):
        if path is not None:
            say(f"{what + ':':<10} {path}", err=as_json)


def _say_columns(points: Points) -> None:
    """What of the table is used, on standard error."""
    left = ", ".join(f"{name!r} ({why})" for name, why in list(points.left_out.items())[:20])
    more = f", … ({len(points.left_out)} in all)" if len(points.left_out) > 20 else ""
    say(f"toporo: features: {listed(points.names, limit=20)}", err=True)
    if left:
        say(f"toporo: left out: {left}{more}", err=True)
    for remark in points.remarks:
        say(f"toporo: {remark}", err=True)
    if points.dropped:
        total = len(points) + points.dropped
        say(f"toporo: dropped {points.dropped} of {total} rows that lack a group", err=True)


def _test_groups(points: Points, names: tuple[str, ...]) -> list[str]:
    """Return the test groups; all must have rows, and there must be others to train on."""
    known = [str(name) for name in points.ids.groups]
    for name in names:
        if name not in known:
            raise UnknownNameError("test group", name, known)
    if set(names) == set(known):
        raise DataError(f"every group is a test group ({listed(known)}): leave at least one to train on.")
    return list(names)


def _learn(points: Points, test: list[str], scaled: bool, **settings: Any) -> Learned:
    """The topology of a table, with the table's part in its making on record."""
    if test:
        apart = np.isin(points.ids.codes, points.ids.groups.encode(test))
        labels = [Groups.of(points.ids.groups.decode(points.ids.codes[rows])) for rows in (~apart, apart)]
        settings |= {"test_features": points.features[apart], "test_groups": labels[1]}
        learned = learn(points.features[~apart], labels[0], **settings)
    else:
        learned = learn(points.features, points.ids, **settings)
    graph = learned.graph
    details = dict(graph.origin.details) | {"features": list(points.names), "standardised": scaled}
    origin = Origin(graph.origin.kind, graph.origin.saw_test_inputs, details)
    return replace(learned, graph=graph.replace(origin=origin))


def _write_distances(path: Path, distances: GroupDistances) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", *distances.names])
    writer.writerows([name, *row] for name, row in zip(distances.names, distances.matrix.tolist(), strict=True))
    write_text(path, text.getvalue())


def _edges(graph: GroupGraph, test: list[str], most: int | None) -> Table:
    def shown(name: object) -> Text:
        return Text(printable(f"{name} (test)" if name in test else str(name), keep=""))

    table, stability = Table(), graph.stability
    table.add_column("group", overflow="fold")
    table.add_column("group", overflow="fold")
    table.add_column("distance", justify="right", no_wrap=True)
    if stability is not None:
        table.add_column("stability", justify="right", no_wrap=True)
    for (a, b), length in list(graph.edges.items())[:most]:
        kept = [] if stability is None else [f"{stability[a, b]:.0%}".replace("%", " %")]
        table.add_row(shown(a), shown(b), f"{length:.4f}" if length >= 1e-3 else number(length), *kept)
    return table


def _how(graph: GroupGraph, test: list[str]) -> list[str]:
    """How a graph was learned, for people, one sentence each."""
    how = graph.origin.details
    joined = f", {how['neighbors']} neighbours" if "neighbors" in how else ""
    lines = [
        f"From {many(how['points'], 'point')} in {many(len(how['features']), 'feature')}"
        f"{' (standardised)' if how['standardised'] else ''}: {how['kernel']} kernel{joined}, {how['scales']} scales, "
        f"Chebyshev order {how['order']}, {how['engine']} on {how['device']}; distances are within "
        f"{how['error']:.0e} of exact ones."
    ]
    if "resamples" in how:
        lines.append(f"Stability: the share of {how['resamples']} resamples of the points that keep the edge.")
    else:
        lines.append("Stability was not measured: --resamples 20 does that.")
    if graph.isolates:
        lines.append(f"Without an edge: {listed(graph.isolates)}.")
    if graph.origin.saw_test_inputs:
        lines.append(f"Inputs of the test groups were seen: {listed(test)}.")
    return lines
