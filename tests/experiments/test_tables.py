"""Rows as tables, and the README's tables against the results they claim to show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from toporo.experiments.protocols import PROTOCOLS
from toporo.experiments.results import Row, read_rows
from toporo.experiments.tables import caption, make_lines, markdown_table

ROOT = Path(__file__).parents[2]
ROW = Row("dg15", "erm", "test accuracy (%)", "last", 50.0, 1.234, [49.0, 51.0], 58.0, [], "generated", False)


def rows(method: str, mean: float, **changes: object) -> list[Row]:
    base = replace(ROW, method=method, mean=mean, **changes)  # type: ignore[arg-type]
    return [replace(base, selection=rule) for rule in ("last", "validation", "oracle")]


def test_the_best_mean_of_each_rule_is_marked() -> None:
    lines = make_lines([*rows("erm", 50.0), *rows("tro-physical", 60.0)])
    assert [sorted(line.best) for line in lines] == [[], ["last", "oracle", "validation"]]


def test_markdown_has_a_line_a_method_with_the_papers_figure_and_what_it_saw() -> None:
    text = markdown_table([*rows("erm", 50.0), *rows("iw-erm", 40.0, paper=None, saw=["test adjacency"], control=True)])
    assert "| ERM | **50.00 ± 1.23** | **50.00 ± 1.23** | **50.00 ± 1.23** | 58.00 | nothing |" in text
    assert (
        "| IW-ERM, physical prior (control) | 40.00 ± 1.23 | 40.00 ± 1.23 | 40.00 ± 1.23 | – | test adjacency |" in text
    )


def test_a_single_seed_has_no_spread() -> None:
    assert "| ERM | **50.00** |" in markdown_table(rows("erm", 50.0, sd=None))


@pytest.mark.parametrize(
    ("source", "words"), [("generated", "not the published file"), ("published", "the published data file")]
)
def test_the_caption_says_where_the_data_came_from(source: str, words: str) -> None:
    assert words in caption(PROTOCOLS["dg15"], [replace(ROW, source=source)])


@pytest.mark.parametrize("benchmark", ["dg15", "dg60"])
def test_the_readme_shows_the_committed_results(benchmark: str) -> None:
    """The table in the README is what `toporo reproduce --markdown` printed when results/*.json was written."""
    found = read_rows(ROOT / "results" / f"{benchmark}.json")
    assert {row.source for row in found} == {"published"}
    assert markdown_table(found) in (ROOT / "README.md").read_text(encoding="utf-8")
