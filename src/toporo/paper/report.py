"""Reports: the page of a benchmark with its tables, figures, sentences, notes and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toporo import pages
from toporo.files import write_text
from toporo.paper.results import Results
from toporo.paper.runs import PROTOCOL_FIELDS_NOT_IN_KEY
from toporo.paper.sections import any_sections
from toporo.paper.sentences import caption, headline, oracle, topology_words, when
from toporo.paper.tables import overview_table, scores_table
from toporo.types import Record

#: Most entries of a mapping that is written out among the settings: values by group are in the figures.
LONGEST = 10


def write_report(results: Results, out: Path) -> Path:
    """Write ``out/report.html`` and each figure as ``out/figures/*.svg``, and return the report's path.

    The page is one file that opens offline: it has every figure inside and no links.
    """
    benchmark, protocol = results.benchmark, results.protocol
    chapters: list[dict[str, Any]] = [
        {
            "title": part.title,
            "caption": caption(part),
            "table": scores_table(part),
            "findings": topology_words(part),
            "sections": [*any_sections(part), *benchmark.sections(part)],
        }
        for part in results.parts
    ]
    for section in (section for chapter in chapters for section in chapter["sections"]):
        if section.svg:
            write_text(out / "figures" / f"{section.name}.svg", section.svg)
    skipped = [f"Not run: {name}. {why}" for name, why in results.about.get("skipped", {}).items()]
    page = pages.render.render(
        "benchmark.html",
        title=f"{protocol.title}: topology-aware robust optimisation",
        verdict=headline(results),
        metric=protocol.metric,
        oracle=oracle(protocol),
        when=when(protocol),
        notices=list(dict.fromkeys(remark for loaded in results.data.values() for remark in loaded.remarks)),
        several=bool(protocol.variants[0].name),
        overview=overview_table(results) if len(chapters) > 1 else None,
        chapters=chapters,
        notes=[*protocol.notes, *skipped, *_warnings(results.records)],
        settings=_settings(results),
    )
    path = out / "report.html"
    write_text(path, page)
    return path


def _warnings(records: Sequence[Record]) -> list[str]:
    by_text: dict[str, list[str]] = {}
    for record in records:
        where = ", ".join(part for part in (record["variant"], f"seed {record['seed']}") if part)
        for text in record["warnings"]:
            by_text.setdefault(text, []).append(f"{record['method']} ({where})")
    return [f"Warned in {', '.join(who)}: {text}" for text, who in by_text.items()]


def _settings(results: Results) -> list[tuple[str, str]]:
    """List the settings that decide the runs: of the protocol, the methods, the variants and their data."""
    used = {record["method"] for record in results.records}
    varied = {key for part in results.parts for key in part.variant.training}
    settings = {
        key.replace("_", " "): value
        for key, value in asdict(results.protocol).items()
        if key not in (*PROTOCOL_FIELDS_NOT_IN_KEY, *varied)
    }
    for method in results.protocol.get_methods():
        if method.name in used:
            about = {"model": method.model, "objective": method.objective, **method.settings, "prior": method.prior}
            settings[method.title] = {key: value for key, value in about.items() if value is not None}
    for part in results.parts:
        lead = f"{part.variant.title}: " if part.variant.title else ""
        if part.variant.training:
            settings[f"{lead}training"] = part.variant.training
        facts = part.loaded.about.items()
        about = {key: fact for key, fact in facts if not (isinstance(fact, Mapping) and len(fact) > LONGEST)}
        settings[f"{lead}data"] = {"source": part.loaded.source, **about}
        settings[f"{lead}training groups"] = ", ".join(str(name) for name in part.loaded.train)
    return [(name, _text(value)) for name, value in settings.items()]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, default=list, ensure_ascii=False).replace("Infinity", "∞")
