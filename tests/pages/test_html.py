"""The report: one file, offline, with everything in it."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.pages.page import figures, loads_nothing
from toporo.paper import BENCHMARKS
from toporo.paper.report import write_report
from toporo.paper.results import Results
from toporo.paper.runner import reproduce

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Collects headings and table cells, and checks that tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.text: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and data.strip():
            self.text.setdefault(self.stack[-1], []).append(data.strip())


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TOPORO_DATA", raising=False)
        patch.setattr(BENCHMARKS["dg15"], "protocol", replace(BENCHMARKS["dg15"].protocol, rounds=3))
        outcome = reproduce("dg15", folder, seeds=2)
        write_report(outcome, folder)
        return outcome, folder


def test_the_page_holds_the_table_and_every_figure(outcome: tuple[Results, Path]) -> None:
    found, folder = outcome
    html = (folder / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(html)
    assert page.stack == []
    headings = " | ".join(page.text["h2"])
    for part in ("topology", "weights over training", "in every group", "over the epochs", "boundaries"):
        assert part in headings
    assert figures(html) == 6
    for row in found.rows:
        assert f"{row.mean:.2f} ± {row.sd:.2f}" in page.text["td"]
    assert "not the published file" in html


def test_the_page_loads_nothing_from_anywhere(outcome: tuple[Results, Path]) -> None:
    html = (outcome[1] / "report.html").read_text(encoding="utf-8")
    assert loads_nothing(html)


def test_the_same_results_give_the_same_bytes(outcome: tuple[Results, Path]) -> None:
    found, folder = outcome
    before = (folder / "report.html").read_bytes()
    assert write_report(found, folder).read_bytes() == before


def test_a_few_methods_give_a_smaller_page(outcome: tuple[Results, Path], tmp_path: Path) -> None:
    found, folder = outcome
    keep = {"erm"}
    part = replace(
        found,
        rows=[r for r in found.rows if r.method in keep],
        records=[r for r in found.records if r["method"] in keep],
        runs=[j for j in found.runs if j.method.name in keep],
    )
    html = write_report(part, folder).read_text(encoding="utf-8")
    assert "Group weights over training" not in html
    assert "Decision boundaries" in html
