"""What a report shows of images in domains: PACS, VLCS, TerraIncognita, Office-Home; one part a domain held out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from toporo.bench.definitions import Protocol
from toporo.bench.records import lowest_seeds
from toporo.bench.results import AVERAGE
from toporo.bench.runner import Outcome, Part
from toporo.data.stores import ImageStore
from toporo.errors import DataError
from toporo.pages.charts import figure_section
from toporo.pages.figures import Score, method_scores
from toporo.pages.networks import (
    LEARNED,
    comparisons,
    curves_section,
    file_name,
    groups_section,
    learned_section,
    main_methods,
    moment,
    penalty_section,
    scores,
    topology_words,
    weights_section,
    when,
    whole_metric,
)
from toporo.pages.pictures import Guess, Photo, photo_samples
from toporo.pages.render import Section
from toporo.types import Record

SAMPLED = ("erm", LEARNED)
SHOWN_SAMPLES = 8
COMPARED = {LEARNED: ("erm", "group-dro", "coral", "iw-erm-data", "tro-uniform"), "tro-uniform": ("erm",)}


def overall(outcome: Outcome) -> list[Section]:
    """Accuracy by domain held out and method, and the average over domains."""
    parts = [part for part in outcome.parts if part.rows]
    if not parts:
        return []
    protocol = outcome.protocol
    metric, methods = whole_metric(protocol), main_methods(protocol)
    panels = {_title(part): scores(protocol, part.rows, metric, methods) for part in parts}
    average = scores(protocol, [row for row in outcome.rows if row.variant == AVERAGE], metric, methods)
    if average:
        panels[AVERAGE] = average
    titles = _titles(protocol)
    figure = method_scores(panels, label=metric.name, reference=titles.get("erm"), highlight=[titles[LEARNED]])
    text = (
        f"{when(protocol).capitalize()}, a panel for each domain held out; each has an axis of its own. Controls are "
        f"pale.{_average_words(average, titles, len(parts))}"
    )
    return [figure_section("domains", "Accuracy in the domain held out", text, figure)]


def _title(part: Part) -> str:
    return (part.variant.title or part.title).replace("_", " ")


def _titles(protocol: Protocol) -> dict[str, str]:
    return {method.name: method.title for method in protocol.get_methods()}


def _average_words(average: Sequence[Score], titles: Mapping[str, str], domains: int) -> str:
    by_title = {score.title: score for score in average if score.values}
    ours = by_title.get(titles[LEARNED])
    if ours is None:
        return ""
    others = [by_title[titles[name]] for name in COMPARED[LEARNED] if titles.get(name) in by_title]
    gaps = [(ours.mean - other.mean, other) for other in others]
    words = [
        (f"{abs(gap):.1f} points {'above' if gap > 0 else 'below'}" if round(gap, 1) else "level with")
        + f" {other.title} ({other.mean:.1f})"
        for gap, other in gaps
    ]
    spread = f" ± {ours.sd:.1f}" if ours.sd is not None else ""
    lead = f" Averaged over the {domains} domains, {ours.title} has {ours.mean:.1f}{spread}"
    return f"{lead}: {', '.join(words)}." if words else f"{lead}."


def sections(part: Part, out: Path) -> list[Section]:  # noqa: ARG001  # kinds of reports share one signature
    """The figures of one domain held out, in the order of the page."""
    step = moment(part.protocol)
    return [
        *learned_section(part, "domain"),
        *weights_section(part, "domain"),
        *groups_section(part, "domain", "accuracy (%)"),
        *curves_section(
            part,
            {"validation accuracy, training domains (%)": "validation", "test accuracy (%)": "test"},
            f"Accuracy over the {step}s",
            f"Mean over seeds, shaded ± 1 sd. Where the curves on the right still cross, the number of {step}s is part "
            "of the result.",
        ),
        *penalty_section(part, "accuracy (%)", "domain"),
        *_samples(part),
    ]


def _samples(part: Part) -> list[Section]:
    """Pictures of the domain held out, and what ERM and TRO-data take them for."""
    first = lowest_seeds(part.records)
    found = {name: first[name]["samples"] for name in SAMPLED if first.get(name, {}).get("samples")}
    if not found:
        return []
    store = part.benchmark.store
    if not isinstance(store, ImageStore):
        raise DataError(f"{part.benchmark.name} has no store of images, though its runs have samples of them.")
    guesses = {name: _by_row(samples) for name, samples in found.items()}
    rows = [row for row in next(iter(guesses.values())) if all(row in known for known in guesses.values())]
    cases = {row: tuple(true == taken for true, taken, _ in (guesses[name][row] for name in guesses)) for row in rows}
    chosen = _chosen(cases)
    if not chosen:
        return []
    titles = _titles(part.protocol)
    photos = [
        Photo(
            np.asarray(store.images[row]),
            store.classes[next(iter(guesses.values()))[row][0]],
            {titles[name]: Guess(store.classes[known[row][1]], known[row][2]) for name, known in guesses.items()},
        )
        for row in chosen
    ]
    counts = Counter(cases.values())
    by_case = {_case(case, [titles[name] for name in guesses]): counts[case] for case in sorted(counts, reverse=True)}
    picked = " (those shown are picked so that every case occurs)" if len(chosen) < len(rows) else ""
    total = ", ".join(f"{case} {count}" for case, count in by_case.items())
    text = (
        f"Pictures of the domain {part.benchmark.test[0]}, which no method trained on: their class above, what "
        "networks take them for below, with the probability given to it, after the last "
        f"{moment(part.protocol)} of the runs with the lowest seed. Of {len(rows)} pictures{picked}: {total}."
    )
    name = file_name("samples", part.variant.name)
    return [figure_section(name, "Samples of the domain held out", text, photo_samples(photos))]


def _by_row(samples: Record) -> dict[int, tuple[int, int, float]]:
    """Row to its class, the class it is taken for, and the probability given to that."""
    columns = (samples["rows"], samples["true"], samples["predicted"], samples["confidence"])
    return {int(row): (int(true), int(taken), float(sure)) for row, true, taken, sure in zip(*columns, strict=True)}


def _chosen(cases: dict[int, tuple[bool, ...]], count: int = SHOWN_SAMPLES) -> list[int]:
    """Rows, one after another from each case in turn, so that none is left out; the mixed cases first."""
    order = sorted(dict.fromkeys(cases.values()), key=lambda case: (all(case) or not any(case), case))
    queues = [[row for row, of in cases.items() if of == case] for case in order]
    taken = [row for turn in range(count) for queue in queues for row in queue[turn : turn + 1]][:count]
    return sorted(taken, key=lambda row: (order.index(cases[row]), row))


def _case(case: tuple[bool, ...], titles: Sequence[str]) -> str:
    if all(case):
        return "both right" if len(case) == 2 else "right"
    if not any(case):
        return "both wrong" if len(case) == 2 else "wrong"
    return f"only {titles[case.index(True)]} right"


# ---------------------------------------------------------------------- sentences


def findings(part: Part) -> list[str]:
    """What the table says of one domain: against the controls, the paper, and what the topology is worth."""
    return [
        *comparisons(part, COMPARED, digits=1, unit=" points"),
        *_against_paper(part),
        *topology_words(part, "domain"),
    ]


def _against_paper(part: Part) -> list[str]:
    protocol, titles = part.protocol, _titles(part.protocol)
    shown = [
        f"{score.paper:.1f} for {score.title} (ours {score.mean:.1f})"
        for score in scores(protocol, part.rows, whole_metric(protocol), main_methods(protocol))
        if score.paper is not None and score.values and score.title in (titles["erm"], titles[LEARNED])
    ]
    return [f"The paper's figures here: {', '.join(shown)}."] if shown else []
