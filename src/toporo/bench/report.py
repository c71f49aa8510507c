"""What a benchmark's page shows of an outcome: its tables, its own figures and sentences, notes and settings."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from toporo.bench.base import BENCHMARKS
from toporo.bench.results import Outcome, VariantOutcome
from toporo.bench.sections import number, when
from toporo.bench.tables import caption, make_overview, make_table
from toporo.pages.benchmark import Chapter, write_benchmark_page
from toporo.pages.render import Verdict
from toporo.text import many
from toporo.types import Record

#: What of a benchmark's description is in figures, or too long for a line.
UNLISTED = ("angles", "hops", "positions", "counts")
#: What of a protocol is no setting.
UNSET = ("title", "methods", "extra", "metrics", "variants", "changes", "digits", "notes", "average")


def write_report(outcome: Outcome, out: Path) -> Path:
    """Write ``out/report.html``, each figure as ``out/figures/*.svg`` beside it, and return the report's path."""
    benchmark, protocol, parts = BENCHMARKS[outcome.protocol.benchmark], outcome.protocol, outcome.parts
    chapters = [
        Chapter(
            title=part.title,
            caption=caption(part.protocol, part.rows, outcome.about),
            table=make_table(part.rows, protocol),
            findings=benchmark.findings(part),
            sections=benchmark.sections(part, out),
        )
        for part in parts
    ]
    return write_benchmark_page(
        out,
        title=f"{protocol.title}: topology-aware robust optimisation",
        verdict=_verdict(outcome),
        metric=protocol.metric,
        moment=protocol.moment,
        when=when(protocol),
        notices=benchmark.notices(outcome),
        several=bool(protocol.variants[0].name),
        overview=make_overview(protocol, outcome.rows) if len(chapters) > 1 else None,
        shared=benchmark.overall(outcome),
        chapters=chapters,
        notes=[*protocol.notes, *_skipped(outcome), *_timings(outcome.records), *_warnings(outcome.records)],
        settings=_settings(outcome),
    )


def _verdict(outcome: Outcome) -> Verdict:
    """Whether the best method with a topology beats the best without one, in the mean over seeds."""
    protocol = outcome.protocol
    sign, ahead, sentences = (1 if protocol.better == "higher" else -1), [], []
    for part in outcome.parts:
        rows = [row for row in part.rows if row.metric == protocol.whole.name and row.selection == protocol.headline]
        rows = [row for row in rows if math.isfinite(number(row.mean))]
        ours = [row for row in rows if not row.control and protocol.method(row.method).prior is not None]
        theirs = [row for row in rows if row not in ours]
        if not ours or not theirs:
            continue
        best, other = (max(some, key=lambda row: sign * row.mean) for some in (ours, theirs))
        gap, spread = sign * (best.mean - other.mean), max(best.sd or 0.0, other.sd or 0.0)
        ahead.append(0 if abs(gap) <= spread else 1 if gap > 0 else -1)
        titles = [f"{protocol.method(row.method).title} ({row.mean:.{protocol.digits}f})" for row in (best, other)]
        how = {1: "is ahead of", 0: "is within the spread over seeds of", -1: "is behind"}[ahead[-1]]
        sentences.append(f"{titles[0]} {how} {titles[1]}, the best of the others.")
    if not ahead:
        return Verdict("There is nothing to compare yet: it takes a method with a topology and one without.")
    tone = "good" if min(ahead) > 0 else "bad" if max(ahead) < 0 else ""
    if len(ahead) == 1:
        return Verdict(sentences[0], tone)
    wins, losses = ahead.count(1), ahead.count(-1)
    return Verdict(
        f"The best method with a topology is ahead of the best of the others in {wins} of {len(ahead)} variants, "
        f"behind in {losses}, and within the spread over seeds in {len(ahead) - wins - losses}.",
        tone,
    )


def _warnings(records: Sequence[Record]) -> list[str]:
    by_text: dict[str, list[str]] = {}
    for record in records:
        where = ", ".join(part for part in (record["variant"], f"seed {record['seed']}") if part)
        for text in record["warnings"]:
            by_text.setdefault(text, []).append(f"{record['method']} ({where})")
    return [f"Warned in {', '.join(who)}: {text}" for text, who in by_text.items()]


def _skipped(outcome: Outcome) -> list[str]:
    """Which variants have no figures, and why."""
    return [f"Not run: {name}. {why}" for name, why in (outcome.about or {}).get("skipped", {}).items()]


def _timings(records: Sequence[Record]) -> list[str]:
    """How long runs took, and on what, where they say so."""
    by_machine: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for timing in (record["timing"] for record in records if record.get("timing")):
        by_machine.setdefault((timing["device"], timing["precision"]), []).append(timing)
    return [
        f"{many(len(timings), 'run')} on {device} in {precision}: "
        f"{sum(timing['seconds'] for timing in timings) / 60:.1f} minutes in all, median "
        f"{median(timing['steps_per_second'] for timing in timings):.3g} steps and "
        f"{median(timing['images_per_second'] for timing in timings):,.0f} samples per second."
        for (device, precision), timings in by_machine.items()
    ]


def _settings(outcome: Outcome) -> list[tuple[str, str]]:
    used = {record["method"] for record in outcome.records}
    varied = {key for part in outcome.parts for key in part.variant.training}
    protocol = {k: v for k, v in asdict(outcome.protocol).items() if k not in UNSET and k not in varied}
    settings = [(key.replace("_", " "), _text(value)) for key, value in protocol.items()]
    for method in (method for method in outcome.protocol.get_methods() if method.name in used):
        about = {"model": method.model, "objective": method.objective, **method.settings, "prior": method.prior}
        settings.append((method.title, _text({key: value for key, value in about.items() if value is not None})))
    return [*settings, *(line for part in outcome.parts for line in _data_settings(part))]


def _data_settings(part: VariantOutcome) -> list[tuple[str, str]]:
    lead = f"{part.variant.title}: " if part.variant.title else ""
    about = {k: v for k, v in part.loaded.about.items() if k not in UNLISTED}
    return [
        *([(f"{lead}training", _text(part.variant.training))] if part.variant.training else []),
        (f"{lead}data", _text({"source": part.loaded.source, **about})),
        (f"{lead}training groups", ", ".join(str(name) for name in part.loaded.train)),
    ]


def _text(value: Any) -> str:
    return json.dumps(value, default=list, ensure_ascii=False).replace("Infinity", "∞")
