"""Figures of a report for any benchmark: scores, weights, topologies and curves, from rows and records of runs.

:func:`any_sections` are those of every benchmark; its file may add figures of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import product, zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from toporo import pages
from toporo.groups import name_from_json
from toporo.paper.loaded import ByGroup
from toporo.paper.methods import WORST_CASE, BenchMethod
from toporo.paper.protocols import Metric, Protocol
from toporo.paper.results import Results, select
from toporo.paper.sentences import when
from toporo.types import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from toporo.pages import Table

#: Groups that fit beside each other in a table.
MOST_COLUMNS = 16
#: Pairs of groups whose shares of resamples are written out.
SHOWN_PAIRS = 12
#: Groups whose lines can be told apart in a panel.
MOST_LINES = 16
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
    return _mean_by_group([_metrics(run["history"][-1])[key] for run in runs])


def _weights(entry: Record) -> ByGroup:
    return {name_from_json(name): weight for name, weight in entry["weights"]}


def _metrics(entry: Record) -> dict[str, Any]:
    """Return the metrics of an evaluation, with group names as in the data."""
    from toporo.training import RoundRecord  # torch takes seconds that loading a data set need not wait for

    return RoundRecord.from_dict(entry).metrics


def _evaluations(run: Record) -> list[Record]:
    return [entry for entry in run["history"] if entry["metrics"]]


def _selected(protocol: Protocol, runs: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the metrics of the evaluation that the protocol's rule selects, by run."""
    histories = [[_metrics(entry) for entry in _evaluations(run)] for run in runs]
    return [select(history, protocol.headline, protocol.better) for history in histories]


def _floats(values: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Return numbers with NaN for None."""
    return np.array(values, dtype=np.float64)


def _mean_by_group(runs: Sequence[Mapping[Any, float | None]]) -> ByGroup:
    """Return values by group, mean over runs; NaN where one of them has none."""
    return {name: float(np.mean(_floats([values.get(name) for values in runs]))) for name in runs[0]}


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


# ---------------------------------------------------------------------- sections


def file_name(figure: str, variant: str) -> str:
    """Return a name for a variant's figure that is valid in file names and identifiers.

    >>> file_name("samples", "Real World")
    'samples-real-world'
    """
    return re.sub(r"[^a-z0-9]+", "-", f"{figure}-{variant}".lower()).strip("-")


def section(part: Results, name: str, title: str, text: str, figure: Figure, *tables: Table) -> Sections:
    """Return a section of a variant as a list, so sections without content can be empty lists."""
    return [pages.charts.figure_section(file_name(name, part.variant.name), title, text, figure, tables)]


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def scores_section(part: Results) -> Sections:
    """Show every metric by method, one panel each."""
    protocol = part.protocol
    panels = {metric.name: _scores(part, metric, protocol.main_methods) for metric in protocol.metrics}
    panels = {name: scores for name, scores in panels.items() if any(s.values or s.paper is not None for s in scores)}
    if not panels:
        return []
    figure = pages.figures.method_scores(
        panels,
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
    method, learned, what = part.protocol.learned, part.learned_topologies(), part.benchmark.group
    if method is None or learned is None:
        return []
    text = (
        f"Training {what}s that {method.title} joins by the distances between their ERM features, "
        f"without the held-out {what}. Every seed has its own features and so its own topology: a thin edge is in few "
        "of them. Sizes show mean centralities, from which the prior follows."
    )
    if learned.kept:
        shown = [f"{a}–{b} {100 * share:.0f} %" for (a, b), share in learned.kept.items()]
        more = f", … ({len(shown)} pairs in all)" if len(shown) > SHOWN_PAIRS else ""
        text += f" Share of all resamples of the rows that join a pair: {', '.join(shown[:SHOWN_PAIRS])}{more}."
    figure = pages.figures.topology(learned.union, learned.centrality, list(learned.priors[0].weights))
    table = pages.figures.prior_table(learned.priors, what)
    return section(part, "learned", f"The topology of the training {what}s", text, figure, table)


def weights_section(part: Results) -> Sections:
    """Show the weights over training of all methods whose weights move, in the run with the lowest seed."""
    first, moment = lowest_seeds(part.records), part.protocol.moment
    histories = {m.title: first[m.name]["history"] for m in part.protocol.main_methods if m.trained and m.name in first}
    weights = {title: [_weights(entry) for entry in history] for title, history in histories.items()}
    lines = {
        title: [pages.charts.Line([weights[name] for weights in moving], str(name)) for name in moving[0]]
        for title, moving in weights.items()
        if any(entry != moving[0] for entry in moving)
    }
    if not lines or len(part.loaded.train) > MOST_LINES:
        return []
    at = [entry["round"] for entry in next(iter(histories.values()))]
    text = (
        f"Weight of each training {part.benchmark.group} in the run with the lowest seed. Without a prior the weights "
        "follow the losses; with one they stay closer to it for larger λ."
    )
    figure = pages.charts.line_chart(at, lines, moment, shared=True)
    return section(part, "weights", "Group weights over training", text, figure)


def curves_section(part: Results, panels: Mapping[str, str], title: str, text: str, *, log: bool = False) -> Sections:
    """Show metrics (label to key) over the rounds, in the unit of the table."""
    protocol = part.protocol
    runs = {m.title: of_method(part.records, m.name) for m in protocol.main_methods if m.trained}
    runs = {title: records for title, records in runs.items() if records}
    if not runs:
        return []
    at = [entry["round"] for entry in _evaluations(next(iter(runs.values()))[0])]
    # The same colours and dashes in all figures of a report.
    styles = pages.charts.line_styles(method.title for method in protocol.get_methods() if method.trained)
    lines: dict[str, list[pages.charts.Line]] = {label: [] for label in panels}
    for (label, key), (method, records) in product(panels.items(), runs.items()):
        values = _floats([[entry["metrics"].get(key) for entry in _evaluations(run)] for run in records])
        lines[label].append(pages.charts.Line.over_seeds(protocol.whole.scale * values, method, styles[method]))
    figure = pages.charts.line_chart(at, lines, protocol.moment, log="y" * log)
    return section(part, protocol.unit, title, text, figure)


def groups_section(part: Results) -> Sections:
    """Show the metric in the groups held out and, on their validation rows, in the others."""
    protocol, what = part.protocol, part.benchmark.group
    scale, label = protocol.whole.scale, protocol.whole.name
    values: dict[str, ByGroup] = {}
    for method in protocol.main_methods:
        if runs := of_method(part.records, method.name):
            metrics = _selected(protocol, runs)
            means = _mean_by_group([{**m.get("validation_by_group", {}), **m.get("by_group", {})} for m in metrics])
            values[method.title] = {name: scale * value for name, value in means.items()}
    names = {name for by_group in values.values() for name in by_group}
    order = [name for name in (*part.loaded.train, *part.loaded.test) if name in names]
    if not 2 <= len(order) <= MOST_COLUMNS:
        return []
    table = pages.figures.group_table(values, order, label=label, digits=1 if scale > 1 else 2, marked=part.loaded.test)
    text = (
        f"{_capital(when(protocol))}, mean over seeds; the best of each column is bold. Groups other than the {what} "
        f"held out are measured on their validation rows. A dash: not defined in some seed."
    )
    name = file_name("groups", part.variant.name)
    return [pages.Section(name, f"{_capital(label)} in every {what}", text, tables=(table,))]


def penalty_section(part: Results) -> Sections:
    """Show the metric against λ, if the method with the learned topology was run with several."""
    protocol, metric, learned = part.protocol, part.protocol.whole, part.protocol.learned
    if learned is None:
        return []
    selected: dict[float, list[dict[str, Any]]] = {}
    for method in protocol.get_methods():
        penalty, runs = float(method.settings.get("penalty", 0.0)), of_method(part.records, method.name)
        if learned.name in (method.name, method.varies) and runs and 0 < penalty < math.inf:
            # Of two methods with the same λ, the one that is there to vary it comes last.
            selected[penalty] = _selected(protocol, runs)
    if len(selected) < 2:
        return []
    penalties, lines = sorted(selected), []
    for title, key in (("test", "test"), (f"validation, training {part.benchmark.group}s", "validation")):
        values = [[metrics.get(key) for metrics in selected[penalty]] for penalty in penalties]
        by_seed = metric.scale * _floats(list(zip_longest(*values)))
        if np.isfinite(by_seed).any():
            lines.append(pages.charts.Line.over_seeds(by_seed, f"{learned.title}, {title}"))
    if not lines:
        return []
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
    metric, moment = part.protocol.whole.name, part.protocol.moment
    return [
        *scores_section(part),
        *topology_section(part),
        *learned_section(part),
        *weights_section(part),
        *groups_section(part),
        *curves_section(
            part,
            {f"validation, training {part.benchmark.group}s: {metric}": "validation", f"test: {metric}": "test"},
            f"{_capital(metric)} over the {moment}s",
            f"Mean over seeds, shaded ± 1 sd. If the curves still move at the end, the number of {moment}s is part of "
            "the result.",
        ),
        *penalty_section(part),
    ]
