"""What reports show of any benchmark: scores, weights, topologies and curves, from the records of runs.

A benchmark's file puts its page together from these, beside what it alone has. :func:`any_sections` and
:func:`any_findings` are the page of one that says nothing about it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from toporo import pages
from toporo.groups import name_from_json
from toporo.paper.loaded import ByGroup
from toporo.paper.protocols import BenchMethod, Metric, Protocol
from toporo.paper.results import Row, VariantOutcome, select
from toporo.text import many
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from toporo.pages.table import Table

#: The method whose topology is shown, and those with its topology and another λ: its name, a dash, the λ.
LEARNED = "tro-data"
#: What pages on images show samples of, whose weights, and what is compared with what.
SAMPLED = ("erm", LEARNED)
SHOWN_WEIGHTS = ("group-dro", "tro-lambda0", "tro-uniform", LEARNED)
COMPARED = {LEARNED: ("erm", "group-dro", "coral", "iw-erm-data", "tro-uniform"), "tro-uniform": ("erm",)}
#: Relative differences of weights below this are none.
FLAT = 0.01
#: Pairs of groups whose shares of resamples are written out.
SHOWN_PAIRS = 12
#: What else is shown beside the penalties.
REFERENCES = ("erm", "group-dro", "tro-uniform")
Sections: TypeAlias = "list[pages.render.Section]"


# ---------------------------------------------------------------------- values from records


def styles(protocol: Protocol) -> dict[str, dict[str, Any]]:
    """Colour and dash of every network's line by its title, the same in all figures of a report."""
    return pages.charts.line_styles(method.title for method in protocol.get_methods() if method.trained)


def of_method(records: Sequence[Record], method: str) -> list[Record]:
    """The runs of a method."""
    return [record for record in records if record["method"] == method]


def lowest_seeds(records: Sequence[Record]) -> dict[str, Record]:
    """The run with the lowest seed of each method."""
    return {record["method"]: record for record in reversed(records)}


def metrics_of(entry: Record) -> dict[str, Any]:
    """The metrics in a record's history, group names as they were."""
    from toporo.training import RoundRecord  # torch takes seconds that loading a data set need not wait for

    return RoundRecord.from_dict(entry).metrics


def weights_of(entry: Record) -> ByGroup:
    """The groups' weights in a record's history."""
    return {name_from_json(name): weight for name, weight in entry["weights"]}


def mean_by_group(each: Sequence[Mapping[Any, float | None]]) -> ByGroup:
    """Values by group, mean over runs; NaN where one of them has none."""
    return {name: float(np.mean([number(values.get(name)) for values in each])) for name in each[0]}


def last_metrics(runs: Sequence[Record], key: str) -> ByGroup:
    """A metric by group after the last round, mean over runs."""
    return mean_by_group([metrics_of(run["history"][-1])[key] for run in runs])


def last_weights(runs: Sequence[Record]) -> ByGroup:
    """The weight of every training group after the last round, mean over runs."""
    return mean_by_group([weights_of(run["history"][-1]) for run in runs])


def counted(protocol: Protocol, record: Record) -> dict[str, Any]:
    """The metrics of the evaluation that stands for a run, as the protocol chooses it."""
    metrics = [metrics_of(entry) for entry in record["history"] if entry["metrics"]]
    return select(metrics, protocol.headline, protocol.better)


def number(value: float | None, scale: float = 1.0) -> float:
    """NaN for what is not defined."""
    return math.nan if value is None else scale * float(value)


def when(protocol: Protocol) -> str:
    """Which evaluation of a run its figures are from, in words."""
    words = {
        "last": "after the last {}",
        "validation": "at the {} that validation chose",
        "averaged": "with averaged weights",
    }
    return words.get(protocol.headline, f"at the {{}} of the rule “{protocol.headline}”").format(protocol.moment)


def swept(protocol: Protocol) -> dict[str, float]:
    """λ of the methods that differ from TRO-data in it alone, TRO-data among them: ``tro-data-0.01`` and so on."""
    by_penalty: dict[float, str] = {}
    for method in protocol.get_methods():
        rest = method.name.removeprefix(LEARNED)
        if "penalty" in method.settings and (not rest or re.fullmatch(r"-[0-9.e+-]+", rest)):
            by_penalty[float(method.settings["penalty"])] = method.name  # the one with λ in its name, if there are two
    return {name: value for value, name in sorted(by_penalty.items())}


def main_methods(protocol: Protocol) -> list[BenchMethod]:
    """The methods, each once: those that are there to vary λ left out."""
    return [m for m in protocol.get_methods() if not re.fullmatch(rf"{LEARNED}-[0-9.e+-]+", m.name)]


def scores(
    protocol: Protocol, rows: Sequence[Row], metric: Metric, methods: Sequence[BenchMethod]
) -> list[pages.figures.Score]:
    """From the rows of one variant: each method's values by seed under the protocol's rule, beside the paper's."""
    headlines = {row.method: row for row in rows if row.metric == metric.name and row.selection == "last"}
    headlines |= {row.method: row for row in rows if row.metric == metric.name and row.selection == protocol.headline}
    return [
        pages.figures.Score(
            method.title,
            tuple(value for value in row.per_seed if math.isfinite(number(value))),
            row.paper,
            method.control,
        )
        for method in methods
        if (row := headlines.get(method.name)) is not None
    ]


# ---------------------------------------------------------------------- sections


def file_name(figure: str, variant: str) -> str:
    """A figure's name with the variant's, as file names and identifiers may be.

    >>> file_name("samples", "Real World")
    'samples-real-world'
    """
    return re.sub(r"[^a-z0-9]+", "-", f"{figure}-{variant}".lower()).strip("-")


def section(part: VariantOutcome, name: str, title: str, text: str, figure: Figure | Table) -> Sections:
    """A section of a variant, as a list of one: there may be none where there is nothing to show."""
    return [pages.charts.figure_section(file_name(name, part.variant.name), title, text, figure)]


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def scores_section(part: VariantOutcome, text: str = "") -> Sections:
    """Every metric by method, a panel each."""
    protocol, methods = part.protocol, main_methods(part.protocol)
    panels = {metric.name: scores(protocol, part.rows, metric, methods) for metric in protocol.metrics}
    panels = {title: each for title, each in panels.items() if any(s.values or s.paper is not None for s in each)}
    if not panels:
        return []
    titles = {method.name: method.title for method in methods}
    figure = pages.figures.method_scores(
        panels, reference=titles.get("erm"), highlight=[titles[name] for name in (LEARNED,) if name in titles]
    )
    words = f"{_capital(when(protocol))}; each panel has an axis of its own. Controls are pale.{text}"
    return section(part, "scores", "Scores by method", words, figure)


def topology_section(part: VariantOutcome) -> Sections:
    """The given graph with the prior that follows from it, where there is one."""
    loaded = part.loaded
    if not loaded.graph.edges:
        return []
    prior = loaded.physical_prior(**part.protocol.priors)
    text = (
        "Training groups (circles) are sized by how central they are on the way to the test groups. The physical "
        "prior follows from that."
    )
    figure = pages.figures.topology(loaded.graph, prior, loaded.train, loaded.test)
    return section(part, "topology", "The groups' topology", text, figure)


def learned_of(part: VariantOutcome, method: str = LEARNED) -> pages.figures.TopologyRuns | None:
    """The topology of every seed, where the method was run."""
    runs = [r for r in of_method(part.records, method) if r["topology"] and r["prior"]]
    if not runs:
        return None
    runs.sort(key=lambda run: run["seed"])
    return pages.figures.TopologyRuns(
        tuple(GroupGraph.from_json(json.dumps(run["topology"])) for run in runs),
        tuple(Prior.from_dict(run["prior"]) for run in runs),
    )


def learned_section(part: VariantOutcome, what: str) -> Sections:
    """The learned topology and its prior, over seeds."""
    learned = learned_of(part)
    if learned is None:
        return []
    text = (
        f"Which training {what}s {part.protocol.method(LEARNED).title} joins, by the distances between their ERM "
        f"features; the {what} held out takes no part. Every seed has features, and so a topology, of its own: a thin "
        "edge is in few of them. The prior on the right follows from the centralities."
    )
    if learned.kept:
        shown = [f"{a}–{b} {share:.0%}".replace("%", " %") for (a, b), share in learned.kept.items()]
        more = f", … ({len(shown)} pairs in all)" if len(shown) > SHOWN_PAIRS else ""
        text += f" Of all resamples of the rows, so many join two: {', '.join(shown[:SHOWN_PAIRS])}{more}."
    figure = pages.figures.learned_topology(learned, what=what)
    return section(part, "learned", f"The topology of the training {what}s", text, figure)


def weights_section(part: VariantOutcome, what: str, shown: Sequence[str] | None = None) -> Sections:
    """How the weights move in the run with the lowest seed, of these methods or of all whose weights move."""
    first = lowest_seeds(part.records)
    methods = [m for m in main_methods(part.protocol) if m.trained and m.name in first]
    moving = {
        method.title: weights
        for method in methods
        if (weights := [weights_of(entry) for entry in first[method.name]["history"]])
        and (method.name in shown if shown is not None else any(each != weights[0] for each in weights))
    }
    if not moving:
        return []
    at = [entry["round"] for entry in first[methods[0].name]["history"]]
    text = (
        f"How much each training {what} counts in the run with the lowest seed. Without a prior the weights follow the "
        "losses; with one they stay the nearer to it the larger λ."
    )
    figure = pages.figures.weights_over_training(moving, at=at, moment=part.protocol.moment)
    return section(part, "weights", "Group weights over training", text, figure)


def curves_section(
    part: VariantOutcome, panels: Mapping[str, str], title: str, text: str, *, log: bool = False
) -> Sections:
    """Metrics (label to key) over the rounds, in the unit of the table."""
    methods = [m for m in main_methods(part.protocol) if m.trained and of_method(part.records, m.name)]
    if not methods:
        return []
    scale = part.protocol.whole.scale
    first = of_method(part.records, methods[0].name)[0]
    at = [entry["round"] for entry in first["history"] if entry["metrics"]]
    curves = {
        label: {
            method.title: np.array(
                [
                    [number(entry["metrics"].get(key), scale) for entry in run["history"] if entry["metrics"]]
                    for run in of_method(part.records, method.name)
                ]
            )
            for method in methods
        }
        for label, key in panels.items()
    }
    figure = pages.figures.metrics_by_epoch(curves, at, styles(part.protocol), moment=part.protocol.moment, log=log)
    return section(part, part.protocol.unit, title, text, figure)


def groups_section(part: VariantOutcome, what: str, label: str) -> Sections:
    """The metric in the groups held out and, on what training left aside of them, in the others."""
    protocol = part.protocol
    scale = protocol.whole.scale
    values = {
        method.title: {name: scale * value for name, value in _by_group(protocol, runs).items()}
        for method in main_methods(protocol)
        if (runs := of_method(part.records, method.name))
    }
    names = dict.fromkeys(name for by_group in values.values() for name in by_group)
    order = [name for name in (*part.loaded.train, *part.loaded.test) if name in names]
    if len(order) < 2:
        return []
    figure = pages.figures.group_table(
        values, order, label=label, digits=1 if scale > 1 else 2, marked=part.loaded.test
    )
    text = (
        f"{_capital(when(protocol))}, mean over seeds; the best of each column is bold. The others than the "
        f"{what} held out are measured on what training left aside of them. A dash: not defined in some seed."
    )
    return section(part, "groups", f"{_capital(label)} in every {what}", text, figure)


def _by_group(protocol: Protocol, runs: Sequence[Record]) -> ByGroup:
    each = [counted(protocol, run) for run in runs]
    return mean_by_group([{**m.get("validation_by_group", {}), **m.get("by_group", {})} for m in each])


def penalty_section(part: VariantOutcome, label: str, what: str) -> Sections:
    """The metric against λ, where TRO-data was run with several."""
    protocol, metric = part.protocol, part.protocol.whole
    penalties = {
        name: value for name, value in swept(protocol).items() if 0 < value < math.inf and of_method(part.records, name)
    }
    if len(penalties) < 2:
        return []
    curves: dict[str, dict[float, list[float]]] = {}
    for title, key in (("test", "test"), (f"validation, training {what}s", "validation")):
        values = {
            value: [number(counted(protocol, run).get(key), metric.scale) for run in of_method(part.records, name)]
            for name, value in penalties.items()
        }
        known = {value: [v for v in each if math.isfinite(v)] for value, each in values.items()}
        curves[f"{protocol.method(LEARNED).title}, {title}"] = {value: each for value, each in known.items() if each}
    if not any(curves.values()):
        return []
    others = [method for method in main_methods(protocol) if method.name in REFERENCES]
    references = {
        f"{score.title}, test": score.mean for score in scores(protocol, part.rows, metric, others) if score.values
    }
    text = (
        f"TRO with the learned topology for several λ, {when(protocol)}, mean ± sd over seeds. λ may be chosen by the "
        "validation line alone: the test line is there to see how much depends on it."
    )
    figure = pages.figures.penalty_curve(curves, references, label=label)
    return section(part, "lambda", f"{_capital(label)} against λ", text, figure)


def any_sections(part: VariantOutcome, out: Path, what: str = "group") -> Sections:  # noqa: ARG001  # one signature
    """Return the figures that suit any benchmark; ``what`` is what its groups are."""
    metric, moment = part.protocol.whole.name, part.protocol.moment
    return [
        *scores_section(part),
        *topology_section(part),
        *learned_section(part, what),
        *weights_section(part, what),
        *groups_section(part, what, metric),
        *curves_section(
            part,
            {f"validation, training {what}s: {metric}": "validation", f"test: {metric}": "test"},
            f"{_capital(metric)} over the {moment}s",
            f"Mean over seeds, shaded ± 1 sd. Where the curves still move at the end, the number of {moment}s is part "
            "of the result.",
        ),
        *penalty_section(part, metric, what),
    ]


# ---------------------------------------------------------------------- sentences


def comparisons(
    part: VariantOutcome, compared: Mapping[str, Sequence[str]], *, digits: int, unit: str = ""
) -> list[str]:
    """A method against what it has to beat, in the test metric, from the table's rows."""
    protocol, whole = part.protocol, part.protocol.whole.name
    rows = {row.method: row for row in part.rows if row.selection == protocol.headline and row.metric == whole}
    rows = {name: row for name, row in rows.items() if math.isfinite(number(row.mean))}
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


def topology_words(part: VariantOutcome, what: str) -> list[str]:
    """Whether seeds agree on the topology, which group the prior favours, and whether resamples bear that out."""
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
        flat = f"The learned topology {same}; its prior is flat: no {what} has more weight than another."
        return [flat, *_trust_words(learned.priors)]
    each = " each" if len(tops) > 1 else ""
    return [
        f"The learned topology {same}; its prior gives {' and '.join(tops)} {high:.2f} of the weight{each}, where "
        f"uniform would be {1 / len(means):.2f}.",
        *_trust_words(learned.priors),
    ]


def _trust_words(priors: Sequence[Prior]) -> list[str]:
    """In how many runs resamples bear the prior out, where that was measured."""
    measured = [(prior, prior.bootstrap_rms) for prior in priors if prior.bootstrap_rms is not None]
    seeds = many(len(measured), "seed")
    doubts = [prior.fallback_reason for prior, _ in measured if prior.fallback_reason]
    followed = [(prior.distance_to_uniform, rms) for prior, rms in measured if not prior.fallback_reason]
    trusted = [(distance, rms) for distance, rms in followed if distance >= FLAT]
    even = len(measured) - len(doubts) - len(trusted)
    sentences = []
    if trusted:
        distance, rms = min(distance for distance, _ in trusted), max(rms for _, rms in trusted)
        sentences.append(
            f"The prior was trusted in {len(trusted)} of {seeds}: resampling the rows moves it by at most {rms:.2f}, "
            f"and it is at least {distance:.2f} from uniform."
        )
    if even:
        sentences.append(f"The prior is uniform in {even} of {seeds}: the graph makes none more central than another.")
    if doubts:
        sentences.append(f"The prior was not trusted in {len(doubts)} of {seeds}, and is uniform there: {doubts[0]}.")
    return sentences


def any_findings(part: VariantOutcome) -> list[str]:
    """What the table of any benchmark says: every method against ERM and the controls of its kind."""
    methods = part.protocol.get_methods()
    compared = {
        method.name: [m.name for m in methods if m.model == method.model and (m.control or m.name.endswith("erm"))]
        for method in methods
        if not method.control and not method.name.endswith("erm")
    }
    return [*comparisons(part, compared, digits=part.protocol.digits), *topology_words(part, "group")]
