"""A reproduction as one HTML file that opens offline: no scripts, no links, every figure inside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from jinja2 import Environment, StrictUndefined

import toporo
from toporo.bench.runner import Outcome, Part
from toporo.bench.tables import Column, Line, caption, make_columns, make_lines, make_overview, paper_title
from toporo.files import write_text
from toporo.pages import classification, floods, images, tpt48
from toporo.pages.networks import moment, when
from toporo.pages.render import Section
from toporo.types import Record

#: Task to the module with its ``overall(outcome)``, ``sections(part, out)`` and ``findings(part)``; one may also have
#: ``notices(outcome)``, for the top of the page.
KINDS: dict[str, ModuleType] = {
    "classification": classification,
    "regression": tpt48,
    "images": images,
    "segmentation": floods,
}
#: What of a benchmark's description is in figures, or too long for a line.
UNLISTED = ("angles", "hops", "positions", "counts")
#: What of a protocol is no setting.
UNSET = ("title", "methods", "extra", "metrics", "variants", "changes", "digits", "notes", "average")


@dataclass(frozen=True)
class Chapter:
    """A variant on the page: its table, what it says, its figures."""

    title: str
    caption: str
    columns: list[Column]
    lines: list[Line]
    findings: list[str]
    sections: list[Section]


def write_report(outcome: Outcome, out: Path) -> Path:
    """Write ``out/report.html``, each figure as ``out/figures/*.svg`` beside it, and return the report's path."""
    kind = KINDS[outcome.protocol.task]
    chapters = [
        Chapter(
            part.title,
            caption(part.protocol, part.rows, outcome.about),
            make_columns(part.protocol),
            make_lines(part.rows),
            kind.findings(part),
            kind.sections(part, out),
        )
        for part in outcome.parts
    ]
    shared: list[Section] = kind.overall(outcome)
    notices: list[str] = kind.notices(outcome) if hasattr(kind, "notices") else []
    for section in [*shared, *(section for chapter in chapters for section in chapter.sections)]:
        write_text(out / "figures" / f"{section.name}.svg", section.svg)
    template = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string(files("toporo.pages").joinpath("template.html").read_text(encoding="utf-8"))
    page = template.render(
        title=f"{outcome.protocol.title}: topology-aware robust optimisation",
        version=toporo.__version__,
        metric=outcome.protocol.metric,
        moment=moment(outcome.protocol),
        when=when(outcome.protocol),
        notices=notices,
        many=bool(outcome.protocol.variants[0].name),
        overview=make_overview(outcome.protocol, outcome.rows) if len(chapters) > 1 else None,
        shared=shared,
        chapters=chapters,
        paper=paper_title(outcome.protocol),
        notes=[*outcome.protocol.notes, *_skipped(outcome), *_timings(outcome.records), *_warnings(outcome.records)],
        settings=_settings(outcome),
    )
    path = out / "report.html"
    write_text(path, page)
    return path


def _warnings(records: Sequence[Record]) -> list[str]:
    found: dict[str, list[str]] = {}
    for record in records:
        where = ", ".join(part for part in (record["variant"], f"seed {record['seed']}") if part)
        for text in record["warnings"]:
            found.setdefault(text, []).append(f"{record['method']} ({where})")
    return [f"Warned in {', '.join(who)}: {text}" for text, who in found.items()]


def _skipped(outcome: Outcome) -> list[str]:
    """Which variants have no figures, and why."""
    return [f"Not run: {name}. {why}" for name, why in (outcome.about or {}).get("skipped", {}).items()]


def _timings(records: Sequence[Record]) -> list[str]:
    """How long runs took, and on what, where they say so."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for timing in (record["timing"] for record in records if record.get("timing")):
        found.setdefault((timing["device"], timing["precision"]), []).append(timing)
    return [
        f"{len(timings)} run{'s' * (len(timings) != 1)} on {device} in {precision}: "
        f"{sum(timing['seconds'] for timing in timings) / 60:.1f} minutes in all, median "
        f"{median(timing['steps_per_second'] for timing in timings):.3g} steps and "
        f"{median(timing['images_per_second'] for timing in timings):,.0f} samples a second."
        for (device, precision), timings in found.items()
    ]


def _settings(outcome: Outcome) -> list[tuple[str, str]]:
    used = {record["method"] for record in outcome.records}
    varied = {key for part in outcome.parts for key in part.variant.training}
    protocol = {k: v for k, v in asdict(outcome.protocol).items() if k not in UNSET and k not in varied}
    found = [(key.replace("_", " "), _text(value)) for key, value in protocol.items()]
    for method in (method for method in outcome.protocol.get_methods() if method.name in used):
        about = {"model": method.model, "objective": method.objective, **method.settings, "prior": method.prior}
        found.append((method.title, _text({key: value for key, value in about.items() if value is not None})))
    for part in outcome.parts:
        found += _data_settings(part)
    return found


def _data_settings(part: Part) -> list[tuple[str, str]]:
    lead = f"{part.variant.title}: " if part.variant.title else ""
    about = {k: v for k, v in part.benchmark.about.items() if k not in UNLISTED}
    found = [(f"{lead}training", _text(part.variant.training))] if part.variant.training else []
    return [
        *found,
        (f"{lead}data", _text({"source": part.benchmark.source, **about})),
        (f"{lead}training groups", ", ".join(str(name) for name in part.benchmark.train)),
    ]


def _text(value: Any) -> str:
    return json.dumps(value, default=list, ensure_ascii=False).replace("Infinity", "∞")
