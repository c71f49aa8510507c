"""``toporo topology``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from toporo.cli import options as opt
from toporo.cli.outputs import PICTURES, graph_figure, outputs, write_picture
from toporo.cli.roles import PointRoles
from toporo.cli.running import register, working
from toporo.cli.settings import setting, settings_option
from toporo.cli.terminal import print_table, say, say_data, say_files, say_more, tell
from toporo.coordinates import read_coordinates
from toporo.errors import DataError, UnknownNameError, listed
from toporo.tables.read import Points, read_points
from toporo.tables.roles import Roles
from toporo.text import many
from toporo.topology.cuts import CUTS
from toporo.topology.graph import GroupGraph, Origin
from toporo.topology.learn import learn_topology

#: Edges shown; --verbose, --out and --json have all.
SHOWN = 25
_CUT = (
    "mst-knn: nearest groups and a spanning tree; mst-knn-ties: and all pairs as short up to a tenth; knn: nearest "
    "groups; percentile: small distances."
)


@dataclass(frozen=True)
class TopologySettings:
    """Expert settings of ``toporo topology``."""

    scale: bool = setting(True, "centre every feature and divide it by its standard deviation, as columns have units")
    nearest_groups: int | None = setting(None, "nearest groups to keep; the log of their number unless given", least=1)
    percentile: float = setting(80.0, "of all distances, for --cut percentile", least=0)
    resamples: int | None = setting(None, "of the points, for stability; 20, or 0 beyond 10 000 points", least=0)
    seed: int = setting(0, "of the resamples", least=0)
    kernel: str = setting("auto", "all pairs of points, or nearest ones", choices=("auto", "dense", "knn"))
    neighbors: int = setting(15, "nearest points that a point is joined to", least=1)
    sigma: float = setting("knn", "width of the kernel", choices=("knn", "median"), least=0)
    scales: int = setting(10, "diffusion times go up to 2 to the power of it", least=1)
    alpha: float = setting(0.5, "how strongly short times are damped")
    device: str = setting("auto", "auto, cpu, cuda, cuda:1, …")


@register("topology")
@opt.takes_options
def topology(
    data: opt.DataFile,
    roles: PointRoles,
    settings: Annotated[list[Any] | None, settings_option(TopologySettings)] = None,
    delimiter: opt.Delimiter = ",",
    cut: Annotated[str, opt.option(**opt.choice(_CUT, CUTS))] = "mst-knn",
    coordinates: opt.Coordinates = None,
    out: Annotated[list[Path] | None, opt.option("Graph: .json. Picture: .png, .svg or .pdf.", "-o")] = None,
    *,
    flags: opt.LimitedFlags,
) -> None:
    """Learn from a table which groups are related.

    Rows are points, joined to the nearest others; text becomes categories, and
    missing features are filled in. Two groups are near if what diffuses from
    one soon looks like what diffuses from the other; the nearest become edges.
    Beside an edge: its share of resamples that keep it. With test groups, the
    graph records that it saw their inputs.

    Example: toporo topology sales.csv --group state --out states.png
    """
    files = outputs(out, {"graph": ("json",), "picture": PICTURES}, data)
    places = None if coordinates is None else read_coordinates(coordinates)
    chosen = {"cut": cut, "memory_limit": flags.memory_limit, **dict(settings or ())}
    test = list(roles.test_groups or ())
    with working("learning the graph", quiet=flags.silent):
        points = read_points(opt.data_source(data), Roles.of(**roles.given), delimiter=delimiter)
        _say_columns(points)
        graph = _learn(points, test, **chosen)
        graph = graph if places is None else places.place(graph)
        if "graph" in files:
            graph.to_json(files["graph"])
        if "picture" in files:
            train = [name for name in graph.names if name not in test] if test else None
            figure = graph_figure(lambda ax: graph.plot(ax, train=train, test=test or None), len(graph))
            write_picture(files["picture"], lambda: figure)
    if flags.json:
        say_data(graph.to_json())
    else:
        _show(graph, test, flags.verbose)
    say_files(files, err=flags.json)


def _say_columns(points: Points) -> None:
    left = [f"{name!r} ({why})" for name, why in points.left_out.items()]
    lines = [f"features: {listed(points.names, limit=20)}", *points.remarks]
    lines += [f"left out: {', '.join(left[:20])}{', …' * (len(left) > 20)}"] * bool(left)
    lines += [f"dropped {many(points.dropped, 'row')} without a group"] * bool(points.dropped)
    for line in lines:
        say(f"toporo: {line}", err=True)


def _learn(points: Points, test: list[str], *, scale: bool = True, **settings: Any) -> GroupGraph:
    """Learn the graph over the groups of a table, with the table's part in its making on record."""
    known = [str(name) for name in points.ids.groups]
    for name in test:
        if name not in known:
            raise UnknownNameError("test group", name, known)
    if set(test) == set(known):
        raise DataError(f"every group is a test group ({listed(known)}): leave at least one to train on.")
    points = points.standardised() if scale else points
    graph = learn_topology(points.features, points.ids, **settings)
    details = {**graph.origin.details, "features": list(points.names), "standardised": scale}
    return graph.replace(origin=Origin(graph.origin.kind, bool(test), details))


def _show(graph: GroupGraph, test: list[str], verbose: bool) -> None:
    how, stability = graph.origin.details, graph.stability
    pieces = many(len(graph.components()), "connected piece")
    tell(f"{len(graph)} groups, {many(len(graph.edges), 'edge')}, in {pieces}")
    rows = []
    for pair, length in list(graph.edges.items())[: None if verbose else SHOWN]:
        kept = [] if stability is None else [f"{100 * stability[pair]:.0f} %"]
        rows.append([*(f"{name} (test)" if name in test else str(name) for name in pair), f"{length:.4g}", *kept])
    titles = ["group", "group", "distance"] + ["stability"] * (stability is not None)
    print_table(titles, rows, numbers=(2, 3))
    say_more(len(graph.edges) - len(rows), "edge")
    points = f"{many(how['points'], 'point')} in {many(len(how['features']), 'feature')}"
    scaled = " (standardised)" if how["standardised"] else ""
    tell(
        f"From {points}{scaled}: {how['kernel']} kernel, {how['scales']} scales, {how['engine']} on {how['device']}.",
        f"Stability: the share of {how['resamples']} resamples of the points that keep the edge."
        if "resamples" in how
        else "Stability was not measured: --set resamples=20 does that.",
        f"Without an edge: {listed(graph.isolates)}." if graph.isolates else "",
        f"Inputs of the test groups were seen: {listed(test)}." if test else "",
    )
