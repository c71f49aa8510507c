"""The report of TPT-48: tables, sentences and maps of the variants that were run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pages.page import figures, loads_nothing
from tests.pages.test_html import Page
from tests.paper.conftest import shrink_tpt48
from tests.paper.fake_nclimdiv import write_fake
from toporo.paper import tpt48
from toporo.paper.report import write_report
from toporo.paper.results import Results
from toporo.paper.runner import reproduce
from toporo.paper.tables import mean_sd

METHODS = (
    "persistence", "climatology", "linear-erm", "erm", "group-dro", "tro-physical", "tro-data", "tro-uniform",
    "linear-dro", "linear-tro-physical", "linear-tro-data", "linear-chosen", "linear-chosen-id",
)  # fmt: skip
EACH = ("scores", "states", "importance", "epochs", "learned")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    root = tmp_path_factory.mktemp("tpt48")
    write_fake(root / "data/tpt48/climdiv-tmpcst-v1.0.0-20200106")
    with pytest.MonkeyPatch.context() as patch:
        shrink_tpt48(patch)
        found = reproduce("tpt48", root / "out", seeds=1, methods=METHODS, data=root / "data", split="north-south")
        write_report(found, root / "out")
        return found, root / "out"


def test_the_page_holds_a_table_and_every_figure_of_each_variant(outcome: tuple[Results, Path]) -> None:
    found, folder = outcome
    html = (folder / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(html)
    assert page.stack == []
    headings = page.text["h2"]
    assert "Which states the shift passes through" in headings
    assert [h for h in headings if h.startswith("TPT-48")] == [
        "TPT-48 N→S, season-aligned windows",
        "TPT-48 N→S, sliding windows in training",
        "TPT-48 N→S, sliding windows in training and test",
    ]
    assert figures(html) == 1 + 3 * len(EACH)
    names = {path.stem for path in (folder / "figures").iterdir()}
    assert names == {"centrality", *(f"{f}-north-south-{w}" for f in EACH for w in tpt48.WINDOWS)}
    for row in found.rows:
        if row.selection == "last" or row.metric == "all":
            assert mean_sd(row.mean, row.sd, 3) in page.text["td"]
    assert "0.889 / 0.991 / 1.678 / 1.177" in page.text["td"]
    assert "says neither which windows it used" in html
    assert "an easier task than the paper&#39;s" in html


def test_the_page_loads_nothing_and_stays_small(outcome: tuple[Results, Path]) -> None:
    """Identifiers are unique: two figures with the same clip path would cut each other."""
    html = (outcome[1] / "report.html").read_text(encoding="utf-8")
    assert loads_nothing(html)
    assert len(html.encode()) < 2_800_000  # three of six variants
    for figure in re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL):
        assert set(re.findall(r"url\(#([^)]+)\)", figure)) <= set(re.findall(r'\bid="([^"]+)"', figure))
    names = re.findall(r'<clipPath id="([^"]+)"', html)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("method", ["climatology", "linear-erm", "erm"])
def test_a_single_method_gives_a_smaller_page(method: str, outcome: tuple[Results, Path], tmp_path: Path) -> None:
    found, _ = outcome
    part = replace(
        found,
        rows=[
            row
            for row in found.rows
            if row.method == method and (method == "climatology" or row.variant == "north-south/season")
        ],
        records=[record for record in found.records if record["method"] == method],
        runs=[job for job in found.runs if job.method.name == method],
    )
    html = write_report(part, tmp_path).read_text(encoding="utf-8")
    assert "Scores by method" in html
    assert "How much each training state counts" not in html
    assert ("Error over the epochs" in html) == (method == "erm")
