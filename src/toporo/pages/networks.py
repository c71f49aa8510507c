"""What the reports of images and of floods share: topologies, weights and scores of networks trained by steps."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from toporo.bench.definitions import Metric, Protocol
from toporo.bench.methods import Method
from toporo.bench.records import lowest_seeds, of_method, trained_titles
from toporo.bench.results import Row
from toporo.bench.runner import Part
from toporo.choice.selection import select
from toporo.groups import name_from_json
from toporo.pages import figures
from toporo.pages.charts import figure_section, line_styles
from toporo.pages.figures import Score, TopologyRuns, group_table, learned_topology, penalty_curve
from toporo.pages.render import Section
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.training import RoundRecord
from toporo.types import Record

#: The method whose topology is shown, and those with its topology and another λ: its name, a dash, the λ.
LEARNED = "tro-data"
#: Relative differences of weights below this are none.
FLAT = 0.01
#: What else is shown beside the penalties.
REFERENCES = ("erm", "group-dro", "tro-uniform")
SHOWN_WEIGHTS = ("group-dro", "tro-lambda0", "tro-uniform", LEARNED)


def moment(protocol: Protocol) -> str:
    """What a model is evaluated after: an epoch or a step."""
    return protocol.unit.removesuffix("s")


def when(protocol: Protocol) -> str:
    """Which evaluation of a run its figures are from, in words."""
    words = {"last": "after the last {}", "validation": "at the {} that validation chose"}
    return words.get(protocol.headline, f"at the {{}} of the rule “{protocol.headline}”").format(moment(protocol))


def file_name(figure: str, variant: str) -> str:
    """A figure's name with the variant's, as file names and identifiers may be.

    >>> file_name("samples", "Real World")
    'samples-real-world'
    """
    return re.sub(r"[^a-z0-9]+", "-", f"{figure}-{variant}".lower()).strip("-")


def swept(protocol: Protocol) -> dict[str, float]:
    """λ of the methods that differ from TRO-data in it alone, TRO-data among them: ``tro-data-0.01`` and so on."""
    found: dict[float, str] = {}
    for method in protocol.get_methods():
        rest = method.name.removeprefix(LEARNED)
        if "penalty" in method.settings and (not rest or re.fullmatch(r"-[0-9.e+-]+", rest)):
            found[float(method.settings["penalty"])] = method.name  # the one with λ in its name, if there are two
    return {name: value for value, name in sorted(found.items())}


def main_methods(protocol: Protocol) -> list[Method]:
    """The methods, each once: those that are there to vary λ left out."""
    extra = {m.name for m in protocol.get_methods() if re.fullmatch(rf"{LEARNED}-[0-9.e+-]+", m.name)}
    return [method for method in protocol.get_methods() if method.name not in extra]


def whole_metric(protocol: Protocol) -> Metric:
    """The metric over all test groups."""
    return protocol.metrics[-1]


def counted(protocol: Protocol, record: Record) -> dict[str, Any]:
    """The metrics of the evaluation that stands for a run, as the protocol chooses it."""
    metrics = [RoundRecord.from_dict(epoch).metrics for epoch in record["history"] if epoch["metrics"]]
    return metrics[select(metrics, protocol.headline, protocol.better)]


def scores(protocol: Protocol, rows: Sequence[Row], metric: Metric, methods: Sequence[Method]) -> list[Score]:
    """From the rows of one variant: each method's values by seed under the protocol's rule, beside the paper's."""
    by_method = {row.method: row for row in rows if row.selection == protocol.headline and row.metric == metric.name}
    found = []
    for method in methods:
        row = by_method.get(method.name)
        if row is not None:
            known = tuple(value for value in row.per_seed if math.isfinite(_number(value)))
            found.append(Score(method.title, known, row.paper, method.control))
    return found


def _number(value: float | None, scale: float = 1.0) -> float:
    """NaN for what is not defined."""
    return math.nan if value is None else scale * float(value)


# ---------------------------------------------------------------------- sections


def learned_of(part: Part, method: str = LEARNED) -> TopologyRuns | None:
    """The topology of every seed, where the method was run."""
    runs = [r for r in of_method(part.records, method) if r["topology"] and r["prior"]]
    if not runs:
        return None
    runs.sort(key=lambda run: run["seed"])
    return TopologyRuns(
        tuple(GroupGraph.from_json(json.dumps(run["topology"])) for run in runs),
        tuple(Prior.from_dict(run["prior"]) for run in runs),
    )


def learned_section(part: Part, what: str) -> list[Section]:
    """The learned topology and its prior, over seeds."""
    learned = learned_of(part)
    if learned is None:
        return []
    text = (
        f"Which training {what}s {part.protocol.method(LEARNED).title} joins, by the distances between their ERM "
        f"features; the {what} held out takes no part. Every seed has features, and so a topology, of its own: a thin "
        "edge is in few of them. The prior on the right follows from the centralities."
    )
    name = file_name("learned", part.variant.name)
    return [figure_section(name, f"The topology of the training {what}s", text, learned_topology(learned, what=what))]


def weights_section(part: Part, what: str) -> list[Section]:
    """How the weights move, in the run with the lowest seed of each method that has weights to move."""
    first = lowest_seeds(part.records)
    shown = [name for name in SHOWN_WEIGHTS if name in first and name in part.protocol.known]
    if not shown:
        return []
    moving = {
        part.protocol.method(name).title: [
            {name_from_json(n): w for n, w in epoch["weights"]} for epoch in first[name]["history"]
        ]
        for name in shown
    }
    at = [epoch["round"] for epoch in first[shown[0]]["history"]]
    text = (
        f"How much each training {what} counts in the run with the lowest seed. Without a prior the weights follow the "
        "losses; with one they stay the nearer to it the larger λ."
    )
    figure = figures.weights_over_training(moving, at=at, moment=moment(part.protocol))
    return [figure_section(file_name("weights", part.variant.name), "Group weights over training", text, figure)]


def curves_section(part: Part, panels: Mapping[str, str], title: str, text: str) -> list[Section]:
    """Metrics (label to key) over the steps, in the unit of the table."""
    methods = [m for m in main_methods(part.protocol) if m.has_epochs and of_method(part.records, m.name)]
    if not methods:
        return []
    scale = whole_metric(part.protocol).scale
    first = of_method(part.records, methods[0].name)[0]
    at = [epoch["round"] for epoch in first["history"] if epoch["metrics"]]
    curves = {
        label: {
            method.title: np.array([_values(run, key, scale) for run in of_method(part.records, method.name)])
            for method in methods
        }
        for label, key in panels.items()
    }
    figure = figures.metrics_by_epoch(
        curves, at, line_styles(trained_titles(part.protocol)), moment=moment(part.protocol)
    )
    return [figure_section(file_name("steps", part.variant.name), title, text, figure)]


def _values(run: Record, key: str, scale: float) -> list[float]:
    evaluated = (epoch["metrics"] for epoch in run["history"] if epoch["metrics"])
    return [_number(metrics.get(key), scale) for metrics in evaluated]


def groups_section(part: Part, what: str, label: str) -> list[Section]:
    """The metric in the group held out and, on what training left aside of them, in the others."""
    protocol = part.protocol
    scale = whole_metric(protocol).scale
    values = {
        method.title: {name: scale * value for name, value in _by_group(protocol, runs).items()}
        for method in main_methods(protocol)
        if (runs := of_method(part.records, method.name))
    }
    names = dict.fromkeys(name for by_group in values.values() for name in by_group)
    order = [name for name in (*part.benchmark.train, *part.benchmark.test) if name in names]
    if len(order) < 2:
        return []
    figure = group_table(values, order, label=label, digits=1 if scale > 1 else 2, marked=part.benchmark.test)
    text = (
        f"{when(protocol).capitalize()}, mean over seeds; the best of each column is bold. Framed: the {what} held "
        f"out. The others are measured on what training left aside of them. A dash: not defined in some seed."
    )
    title = f"{label[0].upper()}{label[1:]} in every {what}"
    return [figure_section(file_name("groups", part.variant.name), title, text, figure)]


def _by_group(protocol: Protocol, runs: Sequence[Record]) -> dict[Hashable, float]:
    """The metric by group, mean over runs; NaN where it is not defined in one of them."""
    found = [counted(protocol, run) for run in runs]
    every = [{**metrics.get("validation_by_group", {}), **metrics.get("by_group", {})} for metrics in found]
    return {name: float(np.mean([_number(by_group.get(name)) for by_group in every])) for name in every[0]}


def penalty_section(part: Part, label: str, what: str) -> list[Section]:
    """The metric against λ, where TRO-data was run with several."""
    protocol = part.protocol
    penalties = {name: value for name, value in swept(protocol).items() if of_method(part.records, name)}
    penalties = {name: value for name, value in penalties.items() if 0 < value < math.inf}
    if len(penalties) < 2:
        return []
    metric = whole_metric(protocol)
    curves: dict[str, dict[float, list[float]]] = {}
    for title, key in (("test", "test"), (f"validation, training {what}s", "validation")):
        values = {
            value: [_number(counted(protocol, run).get(key), metric.scale) for run in of_method(part.records, name)]
            for name, value in penalties.items()
        }
        known = {value: [number for number in found if math.isfinite(number)] for value, found in values.items()}
        curves[f"{protocol.method(LEARNED).title}, {title}"] = {value: found for value, found in known.items() if found}
    if not any(curves.values()):
        return []
    others = [method for method in main_methods(protocol) if method.name in REFERENCES]
    references = {
        f"{score.title}, test": score.mean for score in scores(protocol, part.rows, metric, others) if score.values
    }
    text = (
        f"TRO with the learned topology for several λ, {when(protocol)}, mean ± sd over seeds. λ may be chosen by the "
        "validation line alone: the test line is there to see how much hangs on it."
    )
    title = f"{label[0].upper()}{label[1:]} against λ"
    figure = penalty_curve(curves, references, label=label)
    return [figure_section(file_name("lambda", part.variant.name), title, text, figure)]


# ---------------------------------------------------------------------- sentences


def comparisons(part: Part, compared: Mapping[str, Sequence[str]], *, digits: int, unit: str = "") -> list[str]:
    """A method against what it has to beat, in the test metric, from the table's rows."""
    protocol, whole = part.protocol, whole_metric(part.protocol).name
    rows = {row.method: row for row in part.rows if row.selection == protocol.headline and row.metric == whole}
    rows = {name: row for name, row in rows.items() if math.isfinite(_number(row.mean))}
    sentences = []
    for method, references in compared.items():
        against = [reference for reference in references if reference in rows]
        if method in rows and against:
            ours = rows[method]
            words = [_gap(ours, rows[name], protocol.method(name).title, digits, unit) for name in against]
            title = protocol.method(method).title
            sentences.append(f"{title} ({ours.mean:.{digits}f} {when(protocol)}) is {', '.join(words)}.")
    return sentences


def _gap(ours: Row, theirs: Row, title: str, digits: int, unit: str) -> str:
    gap, spread = ours.mean - theirs.mean, max(ours.sd or 0.0, theirs.sd or 0.0)
    seeds = min(len(ours.per_seed), len(theirs.per_seed))
    how = "one seed" if seeds < 2 else "within the spread over seeds" if abs(gap) <= spread else "beyond the spread"
    if round(gap, digits) == 0:
        return f"level with {title} ({how})"
    return f"{abs(gap):.{digits}f}{unit} {'above' if gap > 0 else 'below'} {title} ({how})"


def topology_words(part: Part, what: str) -> list[str]:
    """Whether seeds agree on the topology, and which group the prior favours."""
    learned = learned_of(part)
    if learned is None:
        return []
    runs = len(learned.graphs)
    same = f"differs among seeds ({learned.kinds} kinds in {runs})"
    if learned.kinds == 1:
        same = f"is the same in all {runs} seeds" if runs > 1 else "comes from one seed"
    means = {name: float(np.mean(learned.weights(name))) for name in learned.priors[0].weights}
    high = max(means.values())
    tops = [str(name) for name, weight in means.items() if weight >= (1 - FLAT) * high]
    if len(tops) == len(means):
        return [f"The learned topology {same}; its prior is flat: no {what} has more weight than another."]
    each = " each" if len(tops) > 1 else ""
    return [
        f"The learned topology {same}; its prior gives {' and '.join(tops)} {high:.2f} of the weight{each}, where "
        f"uniform would be {1 / len(means):.2f}."
    ]
