"""``toporo topology``."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from rich.text import Text

from toporo.cli.options import Coordinates, DataFile, Delimiter, Flags, choice, data_source, out_option, takes_flags
from toporo.cli.outputs import PICTURES, graph_figure, outputs, write_picture
from toporo.cli.roles import takes_roles
from toporo.cli.running import register, working
from toporo.cli.settings import setting, takes_settings
from toporo.cli.terminal import say, say_data, say_more, tell
from toporo.coordinates import read_coordinates
from toporo.errors import DataError, SettingError, UnknownNameError, listed, muted
from toporo.files import write_text
from toporo.progress import make_console
from toporo.tables.read import Points, read_points
from toporo.tables.roles import Roles
from toporo.text import many, number, printable
from toporo.topology.cuts import CUTS
from toporo.topology.diffusion import GroupDistances, Settings, diffusion_emd
from toporo.topology.graph import GroupGraph
from toporo.topology.learn import learn_topology

#: Edges shown; --verbose, --out and --json have all.
SHOWN = 25


#: What ``--out`` writes, by suffix.
KINDS = {"graph": ("json",), "distances": ("csv",), "picture": tuple(PICTURES)}


@dataclass(frozen=True)
class TopologySettings:
    """Expert settings of ``toporo topology``."""

    scale: bool = setting(True, "centre every feature and divide it by its standard deviation, as columns have units")
    percentile: float = setting(80.0, "of all distances, for --cut percentile", above=0, most=100)
    resamples: int | None = setting(
        None, "how often to draw the points anew, to see which edges stay; 20, or 0 beyond 10 000 points", least=0
    )
    seed: int = setting(0, "of the resamples", least=0)
    kernel: str = setting(
        "auto",
        "dense: all pairs of points; knn: nearest ones; auto: dense up to 2000",
        choices=("auto", "dense", "knn"),
    )
    neighbors: int = setting(15, "nearest points that a point is joined to", least=1)
    sigma: float = setting("knn", "width of the kernel: a number, knn or median", choices=("knn", "median"), above=0)
    scales: int = setting(10, "diffusion times go up to 2 to the power of it", least=1, most=20)
    alpha: float = setting(0.5, "how strongly short times are damped")
    device: str = setting("auto", "auto, cpu, cuda, cuda:1, …")

    def __post_init__(self) -> None:
        if self.resamples == 1:
            raise SettingError("--set resamples=1: 1 says nothing about spread: use at least 2, or 0 for none.")


@register("topology")
@takes_flags(memory_limit=True)
@takes_roles(optional=["target"], without=["weight", "categorical", "graph", "task"])
@takes_settings(TopologySettings)
def topology(
    data: DataFile,
    roles: Roles,
    settings: dict[str, Any],
    delimiter: Delimiter = ",",
    cut: Annotated[
        str,
        choice(
            "mst-knn: nearest groups and a spanning tree; mst-knn-ties: and all pairs as short up to a tenth; "
            "knn: nearest groups; percentile: small distances.",
            "Graph",
            CUTS,
            metavar="CUT",
        ),
    ] = "mst-knn",
    coordinates: Coordinates = None,
    out: Annotated[
        list[Path] | None,
        out_option(
            "Write the graph to a .json file, all distances between groups to a .csv file, or draw the graph: .png, "
            ".svg or .pdf."
        ),
    ] = None,
    *,
    flags: Flags,
) -> None:
    """Learn from a table which groups are related.

    Rows are points, joined to the nearest others; text becomes categories, and
    missing features are filled in. Two groups are near if what diffuses from
    one soon looks like what diffuses from the other; the nearest become edges.
    Beside an edge: its share of resamples that keep it. With test groups, the
    graph records that it saw their inputs.

    Example: toporo topology sales.csv --group state --out states.png
    """
    files = outputs(out, KINDS, data=data)
    places = None if coordinates is None else read_coordinates(coordinates)
    scale = settings.pop("scale", True)
    with working("learning the graph", "nothing was written", quiet=flags.silent):
        points = read_points(data_source(data), roles, delimiter=delimiter)
        _say_columns(points)
        points = points.standardised() if scale else points
        test = _test_groups(points, roles.test_groups)
        settings["memory_limit"] = flags.memory_limit
        graph = learn_topology(points.features, points.ids, test_groups=test, cut=cut, **settings)
        details = {**graph.origin.details, "features": list(points.names), "standardised": scale}
        graph = graph.replace(origin=replace(graph.origin, details=details))
        graph = graph if places is None else places.place(graph)
        if "distances" in files:
            emd = {name: value for name, value in settings.items() if name in Settings.__dataclass_fields__}
            with muted():  # learning the graph has warned already
                _write_distances(files["distances"], diffusion_emd(points.features, points.ids, **emd))
    if "graph" in files:
        graph.to_json(files["graph"])
    if "picture" in files:
        train = [name for name in graph.names if name not in test] if test else None
        with working("drawing the graph", "the picture was not written", quiet=flags.silent):
            write_picture(
                files["picture"],
                lambda: graph_figure(lambda ax: graph.plot(ax, train=train, test=test or None), len(graph)),
            )
    if flags.json:
        say_data(graph.to_json())
    else:
        console = make_console(width=None if sys.stdout.isatty() else 132)
        pieces = many(len(graph.components()), "connected piece")
        say(f"{len(graph)} groups, {many(len(graph.edges), 'edge')}, in {pieces}")
        console.print(_edges(graph, test, None if flags.verbose else SHOWN))
        if not flags.verbose:
            say_more(len(graph.edges) - SHOWN, "edge")
        for sentence in _how(graph, test):
            tell(sentence)
    for what, path in files.items():
        say(f"{what + ':':<10} {path}", err=flags.json)


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
        lines.append("Stability was not measured: --set resamples=20 does that.")
    if graph.isolates:
        lines.append(f"Without an edge: {listed(graph.isolates)}.")
    if graph.origin.saw_test_inputs:
        lines.append(f"Inputs of the test groups were seen: {listed(test)}.")
    return lines
