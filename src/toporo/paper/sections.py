"""Figures of a report for any benchmark: scores, weights, topologies and curves, from rows and records of runs.

:func:`any_sections` are those of every benchmark; its file may add figures of its own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import product, zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from toporo import pages
from toporo.paper.loaded import ByGroup
from toporo.paper.methods import WORST_CASE, BenchMethod
from toporo.paper.protocols import Metric
from toporo.paper.results import Results, select
from toporo.paper.sentences import when
from toporo.topology import GroupGraph, Prior
from toporo.types import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from toporo.pages import Table

Sections: TypeAlias = "list[pages.Section]"


# ---------------------------------------------------------------------- values from records


def of_method(records: Sequence[Record], method: str) -> list[Record]:
    """Return the runs of a method."""
    return [record for record in records if record["method"] == method]


def lowest_seeds(records: Sequence[Record]) -> dict[str, Record]:
    """Return the run with the lowest seed of each method."""
    return {record["method"]: record for record in reversed(records)}


def last_metrics(runs: Sequence[Record], key: str) -> ByGroup:
    """Return a metric by group after the last round, mean over runs."""
    from toporo.training import RoundRecord  # torch takes seconds that loading a data set need not wait for

    return _mean_by_group([RoundRecord.from_dict(run["history"][-1]).metrics[key] for run in runs])


def _metrics(run: Record) -> list[dict[str, Any]]:
    """Return the metrics of a run's evaluations."""
    return [entry["metrics"] for entry in run["history"] if entry["metrics"]]


def _floats(values: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Return numbers with NaN for None."""
    return np.array(values, dtype=np.float64)


def _mean_by_group(runs: Sequence[Mapping[Any, float]]) -> ByGroup:
    """Return values by group, mean over runs."""
    return {name: float(np.mean([values[name] for values in runs])) for name in runs[0]}


def _scores(part: Results, metric: Metric, methods: Sequence[BenchMethod]) -> list[pages.figures.Score]:
    """Return each method's values by seed under the protocol's rule, and the paper's figure."""
    rows = {name: row for (_, name), row in part.headlines(metric.name).items()}
    scores = []
    for method in methods:
        if (row := rows.get(method.name)) is not None:
            values = _floats(row.per_seed)
            finite = tuple(values[np.isfinite(values)].tolist())
            scores.append(pages.figures.Score(method.title, finite, row.paper, method.control))
    return scores


def join_graphs(graphs: Sequence[GroupGraph]) -> GroupGraph:
    """Return a graph of all edges; its resamples are the graphs, so a drawing shows how many of them have an edge."""
    edges = [graph.edges for graph in graphs]
    every = {edge: 1.0 for of_graph in edges for edge in of_graph}
    return GroupGraph(graphs[0].names, every, origin=graphs[0].origin, bootstrap_edges=edges)


# ---------------------------------------------------------------------- sections


def section(part: Results, name: str, title: str, text: str, figure: Figure, *tables: Table) -> Sections:
    """Return a section of a variant as a list, so sections without content can be empty lists."""
    # The name is valid in file names and identifiers.
    name = re.sub(r"[^a-z0-9]+", "-", f"{name}-{part.variant.name}".lower()).strip("-")
    return [pages.charts.figure_section(name, title, text, figure, tables)]


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def scores_section(part: Results) -> Sections:
    """Show every metric by method, one panel each."""
    protocol = part.protocol
    figure = pages.figures.method_scores(
        {metric.name: _scores(part, metric, protocol.main_methods) for metric in protocol.metrics},
        reference=protocol.baseline.title if protocol.baseline else None,
        highlight=[protocol.learned.title] if protocol.learned else [],
    )
    text = f"{_capital(when(protocol))}; each panel has an axis of its own. Controls are pale."
    return section(part, "scores", "Scores by method", text, figure)


def topology_section(part: Results) -> Sections:
    """Show the given graph with its prior, if there is one."""
    loaded = part.loaded
    if not loaded.graph.edges:
        return []
    prior = loaded.physical_prior(**part.protocol.priors)
    text = (
        "The larger a training group (circle), the more central it is between the training and the test groups "
        "(squares). The physical prior follows from these centralities."
    )
    figure = pages.figures.topology(loaded.graph, prior.centrality, loaded.train, loaded.test)
    return section(part, "topology", "The groups' topology", text, figure, pages.figures.prior_table([prior]))


def learned_section(part: Results) -> Sections:
    """Show the learned topology and its prior over seeds."""
    method, what = part.protocol.learned, part.benchmark.group
    runs = [run for run in part.records if method and run["method"] == method.name and run["topology"] and run["prior"]]
    if method is None or not runs:
        return []
    priors = [Prior.from_dict(run["prior"]) for run in runs]
    graph = join_graphs([GroupGraph.from_json(json.dumps(run["topology"])) for run in runs])
    # A prior that resamples do not support is uniform and has no centralities.
    centrality = _mean_by_group([prior.centrality or prior.weights for prior in priors])
    text = (
        f"Training {what}s that {method.title} joins by the distances between their ERM features, "
        f"without the held-out {what}. Every seed has its own features and so its own topology: a thin edge is in few "
        "of them. Sizes show mean centralities, from which the prior follows."
    )
    figure = pages.figures.topology(graph, centrality, list(priors[0].weights))
    table = pages.figures.prior_table(priors, what)
    return section(part, "learned", f"The topology of the training {what}s", text, figure, table)


def curves_section(part: Results) -> Sections:
    """Show the metric over the rounds in validation and test; errors on a logarithmic axis."""
    protocol, log = part.protocol, part.protocol.better == "lower"
    runs = {m.title: of_method(part.records, m.name) for m in protocol.main_methods if m.trained}
    runs = {title: records for title, records in runs.items() if records}
    if not runs:
        return []
    at = [entry["round"] for entry in next(iter(runs.values()))[0]["history"] if entry["metrics"]]
    styles = pages.charts.line_styles(runs)
    panels = {f"validation, training {part.benchmark.group}s": "validation", "test": "test"}
    lines: dict[str, list[pages.charts.Line]] = {label: [] for label in panels}
    for (label, key), (method, records) in product(panels.items(), runs.items()):
        values = protocol.whole.scale * _floats([[metrics.get(key) for metrics in _metrics(run)] for run in records])
        lines[label].append(pages.charts.Line.over_seeds(values, method, styles[method]))
    figure = pages.charts.line_chart(at, lines, protocol.moment, log="y" * log)
    text = (
        "Mean over seeds, shaded ± 1 sd. Where the test gets worse while validation gets better, validation on "
        f"training {part.benchmark.group}s cannot choose the {protocol.moment}. If the curves still move at the end, "
        f"the number of {protocol.moment}s is part of the result."
    )
    return section(part, protocol.unit, f"Scores over the {protocol.moment}s", text, figure)


def penalty_section(part: Results) -> Sections:
    """Show the metric against λ, if the method with the learned topology was run with several."""
    protocol, metric, learned = part.protocol, part.protocol.whole, part.protocol.learned
    selected: dict[float, list[dict[str, Any]]] = {}
    for method in protocol.get_methods():
        penalty, runs = float(method.settings.get("penalty", 0.0)), of_method(part.records, method.name)
        if learned is not None and learned.name in (method.name, method.varies) and runs and 0 < penalty < math.inf:
            # Of two methods with the same λ, the one that is there to vary it comes last.
            selected[penalty] = [select(_metrics(run), protocol.headline, protocol.better) for run in runs]
    if learned is None or len(selected) < 2:
        return []
    penalties, lines = sorted(selected), []
    for title, key in (("test", "test"), (f"validation, training {part.benchmark.group}s", "validation")):
        values = [[metrics.get(key) for metrics in selected[penalty]] for penalty in penalties]
        by_seed = metric.scale * _floats(list(zip_longest(*values)))
        lines.append(pages.charts.Line.over_seeds(by_seed, f"{learned.title}, {title}"))
    others = [m for m in protocol.main_methods if m.baseline or m.uses == {WORST_CASE}]
    references = {f"{score.title}, test": score.mean for score in _scores(part, metric, others) if score.values}
    text = (
        f"TRO with the learned topology for several λ, {when(protocol)}, mean ± sd over seeds. λ may be chosen by the "
        "validation line alone; the test line shows how much depends on it."
    )
    axis = "penalty λ: weights may leave the prior (left) or must keep to it (right)"
    figure = pages.charts.line_chart(penalties, {metric.name: lines}, axis, log="x", levels=references)
    return section(part, "lambda", f"{_capital(metric.name)} against λ", text, figure)


def any_sections(part: Results) -> Sections:
    """Return the figures that suit any benchmark."""
    shown = scores_section, topology_section, learned_section, curves_section, penalty_section
    return [section for make in shown for section in make(part)]
