"""The page of a benchmark as one HTML file that opens offline: no links, every figure inside.

It takes plain data and knows no benchmark; ``toporo.paper.report`` says what there is to show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toporo.files import write_text
from toporo.pages.render import Section, Verdict, render


@dataclass(frozen=True)
class Cell:
    """A cell of a table of scores: its text, and whether it is chosen with test labels, the best, or the paper's."""

    text: str
    oracle: bool = False
    best: bool = False
    paper: bool = False


@dataclass(frozen=True)
class ScoreLine:
    """A method's line; a control is marked, and a line that starts a section is set off."""

    cells: Sequence[Cell]
    control: bool = False
    starts_section: bool = False


@dataclass(frozen=True)
class ScoreTable:
    """Methods by columns."""

    heads: Sequence[Cell]
    lines: Sequence[ScoreLine]


@dataclass(frozen=True)
class Chapter:
    """A variant on the page: its table, what it says, its figures."""

    title: str
    caption: str
    table: ScoreTable
    findings: Sequence[str]
    sections: Sequence[Section]


def write_benchmark_page(
    out: Path,
    *,
    title: str,
    verdict: Verdict,
    metric: str,
    moment: str,
    when: str,
    chapters: Sequence[Chapter],
    several: bool = False,
    overview: ScoreTable | None = None,
    shared: Sequence[Section] = (),
    notices: Sequence[str] = (),
    notes: Sequence[str] = (),
    settings: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write ``out/report.html`` and each figure as ``out/figures/*.svg`` beside it; return the page's path.

    Parameters
    ----------
    out : the folder.
    title, verdict : of the page.
    metric : what its figures are.
    moment, when : what a model is evaluated after (an epoch, a step), and which evaluation counts, in words.
    chapters : one per variant.
    several : whether variants have names, and so headings.
    overview, shared : a table and figures over all variants.
    notices, notes : what has to be known first, and what else there is to say.
    settings : name and value.
    """
    for section in [*shared, *(section for chapter in chapters for section in chapter.sections)]:
        if section.svg:
            write_text(out / "figures" / f"{section.name}.svg", section.svg)
    page = render(
        "benchmark.html",
        title=title,
        verdict=verdict,
        metric=metric,
        moment=moment,
        when=when,
        notices=notices,
        several=several,
        overview=overview,
        shared=shared,
        chapters=chapters,
        notes=notes,
        settings=settings,
    )
    path = out / "report.html"
    write_text(path, page)
    return path
