"""What the reports of images and of floods share: topologies, weights and scores of networks trained by steps."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from toporo.experiments.protocols import Method, Metric, Protocol
from toporo.experiments.runner import Part
from toporo.groups import name_from_json
from toporo.report import figures
from toporo.report.network_figures import Learned, Score, group_table, learned_topology
from toporo.report.sections import Section, figure_section, lowest_seeds, of_method, styles
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.training import EpochRecord

__all__ = [
    "LEARNED",
    "comparisons",
    "curves_section",
    "file_name",
    "groups_section",
    "last_value",
    "learned_of",
    "learned_section",
    "main_methods",
    "moment",
    "scores",
    "swept",
    "topology_words",
    "weights_section",
    "whole_metric",
]

Record = dict[str, Any]
#: The method whose topology is shown, and those with its topology and another λ: its name, a dash, the λ.
LEARNED = "tro-data"
#: Relative differences of weights below this are none.
FLAT = 0.01
SHOWN_WEIGHTS = ("group-dro", "tro-lambda0", "tro-uniform", LEARNED)


def moment(protocol: Protocol) -> str:
    """What a model is evaluated after: an epoch or a step."""
    return str(getattr(protocol, "unit", "epochs")).removesuffix("s")


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


def last_value(record: Record, key: str) -> float:
    """A number after the last evaluation; NaN where it is not defined."""
    value = record["history"][-1]["metrics"].get(key)
    return math.nan if value is None else float(value)


def scores(part: Part, metric: Metric, methods: Sequence[Method]) -> list[Score]:
    """A metric after the last step: each method's values by seed, beside the paper's."""
    found = []
    for method in methods:
        runs = of_method(part.records, method.name)
        if runs:
            values = [metric.scale * last_value(run, metric.key) for run in sorted(runs, key=lambda r: r["seed"])]
            paper = part.protocol.paper(part.variant.name, method.name, metric.name)
            known = tuple(value for value in values if math.isfinite(value))
            found.append(Score(method.title, known, paper, method.control))
    return found


# ---------------------------------------------------------------------- sections


def learned_of(part: Part, method: str = LEARNED) -> Learned | None:
    """The topology of every seed, where the method was run."""
    runs = [r for r in of_method(part.records, method) if r["topology"] and r["prior"]]
    if not runs:
        return None
    runs.sort(key=lambda run: run["seed"])
    return Learned(
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
        "edge is in few of them. The weights start from the prior on the right."
    )
    name = file_name("learned", part.variant.name)
    return [figure_section(name, f"The topology of the training {what}s", text, learned_topology(learned, what=what))]


def weights_section(part: Part, what: str) -> list[Section]:
    """How the weights move, in the run with the lowest seed of each method that has weights to move."""
    first = lowest_seeds(part.records)
    shown = [name for name in SHOWN_WEIGHTS if name in first and name in part.protocol.methods]
    if not shown:
        return []
    moving = {
        part.protocol.method(name).title: [
            {name_from_json(n): w for n, w in epoch["weights"]} for epoch in first[name]["history"]
        ]
        for name in shown
    }
    at = [epoch["epoch"] for epoch in first[shown[0]]["history"]]
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
    at = [epoch["epoch"] for epoch in first["history"] if epoch["metrics"]]
    curves = {
        label: {
            method.title: np.array([_values(run, key, scale) for run in of_method(part.records, method.name)])
            for method in methods
        }
        for label, key in panels.items()
    }
    figure = figures.metrics_by_epoch(curves, at, styles(part.protocol), moment=moment(part.protocol))
    return [figure_section(file_name("steps", part.variant.name), title, text, figure)]


def _values(run: Record, key: str, scale: float) -> list[float]:
    evaluated = (epoch["metrics"] for epoch in run["history"] if epoch["metrics"])
    found = (metrics.get(key) for metrics in evaluated)
    return [math.nan if value is None else scale * float(value) for value in found]


def groups_section(part: Part, what: str, label: str) -> list[Section]:
    """The test metric in every group of which runs have it, where that is more than the one held out."""
    metric = whole_metric(part.protocol)
    values: dict[str, dict[Hashable, float]] = {}
    for method in main_methods(part.protocol):
        runs = of_method(part.records, method.name)
        if runs:
            found = [_by_group(run) for run in runs]
            names = list(dict.fromkeys(name for by_group in found for name in by_group))
            values[method.title] = {
                name: metric.scale * float(np.mean([by_group.get(name, math.nan) for by_group in found]))
                for name in names
            }
    order = list(dict.fromkeys(name for by_group in values.values() for name in by_group))
    if len(order) < 2:
        return []
    held_out = [name for name in order if name in part.benchmark.test]
    order = [name for name in order if name not in held_out] + held_out
    figure = group_table(values, order, label=label, digits=1 if metric.scale > 1 else 2, marked=held_out)
    text = (
        f"After the last {moment(part.protocol)}, mean over seeds; the best of each column is bold. Framed: held out. "
        f"The other {what}s are measured on what training left aside of them. A dash: not defined."
    )
    title = f"{label[0].upper()}{label[1:]} in every {what}"
    return [figure_section(file_name("groups", part.variant.name), title, text, figure)]


def _by_group(run: Record) -> dict[Hashable, float]:
    found = EpochRecord.from_dict(run["history"][-1]).metrics.get("by_group", {})
    return {name: math.nan if value is None else float(value) for name, value in found.items()}


# ---------------------------------------------------------------------- sentences


def comparisons(part: Part, compared: Mapping[str, Sequence[str]], *, digits: int, unit: str = "") -> list[str]:
    """A method against what it has to beat, in the test metric after the last step, from the table's rows."""
    whole = whole_metric(part.protocol).name
    last = {row.method: row for row in part.rows if row.selection == "last" and row.metric == whole}
    last = {name: row for name, row in last.items() if math.isfinite(row.mean)}
    sentences = []
    for method, references in compared.items():
        found = [reference for reference in references if reference in last]
        if method not in last or not found:
            continue
        ours, words = last[method], []
        for name in found:
            theirs = last[name]
            gap, spread = ours.mean - theirs.mean, max(ours.sd or 0.0, theirs.sd or 0.0)
            size = f"{abs(gap):.{digits}f}{unit} {'above' if gap >= 0 else 'below'} {part.protocol.method(name).title}"
            seeds = min(len(ours.per_seed), len(theirs.per_seed))
            how = (
                "one seed"
                if seeds < 2
                else "within the spread over seeds"
                if abs(gap) <= spread
                else "beyond the spread"
            )
            words.append(f"{size} ({how})")
        title = part.protocol.method(method).title
        mean = f"{ours.mean:.{digits}f}"
        sentences.append(f"{title} ({mean}) at the last {moment(part.protocol)} is {', '.join(words)}.")
    return sentences


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
    best = max(means, key=means.__getitem__)
    if means[best] - min(means.values()) < FLAT * means[best]:
        return [f"The learned topology {same}; its prior is flat: no {what} has more weight than another."]
    agree = sum(max(prior.weights.values()) == prior.weights[best] for prior in learned.priors)
    agreed = f", the most in {agree} of {runs} seeds" if runs > 1 else ""
    return [
        f"The learned topology {same}; its prior gives {best} {means[best]:.2f} of the weight{agreed} (uniform: "
        f"{1 / len(means):.2f})."
    ]
