"""Reports: the page of a benchmark with its tables, figures, sentences, notes and settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toporo import pages
from toporo.files import write_text
from toporo.paper.results import Results
from toporo.paper.sections import any_sections
from toporo.paper.sentences import caption, finding, headline, oracle, when
from toporo.paper.tables import overview_table, scores_table
from toporo.types import Record


def write_report(results: Results, out: Path) -> Path:
    """Write ``out/report.html`` and each figure as ``out/figures/*.svg``, and return the report's path.

    The page is one file that opens offline: it has every figure inside and no links.
    """
    benchmark, protocol, parts = results.benchmark, results.protocol, results.parts
    chapters: list[dict[str, Any]] = [
        {
            "title": part.title,
            "caption": caption(part),
            "table": scores_table(part),
            "findings": [text for text in [finding(part)] if text and len(parts) > 1],
            "sections": [*any_sections(part), *benchmark.sections(part)],
        }
        for part in parts
    ]
    for section in (section for chapter in chapters for section in chapter["sections"]):
        write_text(out / "figures" / f"{section.name}.svg", section.svg)
    page = pages.render.render(
        "benchmark.html",
        title=f"{protocol.title}: topology-aware robust optimisation",
        verdict=headline(results),
        metric=protocol.metric,
        oracle=oracle(protocol),
        when=when(protocol),
        notices=results.about.get("remarks", []),
        several=bool(protocol.variants[0].name),
        overview=overview_table(results) if len(chapters) > 1 else None,
        chapters=chapters,
        notes=[*protocol.notes, *_warnings(results.records)],
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
    """List the settings that decide the runs: of the protocol, the variants and the methods."""
    settings = dict(results.about.get("settings", {}))
    settings |= settings.pop("methods", {})
    settings |= {part.variant.title: part.variant.training for part in results.parts if part.variant.training}
    texts = (json.dumps(value, default=list, ensure_ascii=False) for value in settings.values())
    return [(name, text.strip('"').replace("Infinity", "∞")) for name, text in zip(settings, texts, strict=True)]
