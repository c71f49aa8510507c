"""The page of a comparison, and the part of a model's page that is about another model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.pages.page import Page
from tests.tables.cases import RIVER, river
from tests.tables.test_contest import EVEN, WAVY, made
from toporo.pages.compare import contest_figure, write_comparison
from toporo.pages.model import describe_model, write_model_report
from toporo.tables import Contest, compare, fit_table
from toporo.tables.contest import SHUFFLED, YOURS

ABOUT = {"source": "<b>sales</b>.csv", "target": "sold & kept", "rows": 80, "groups": 8}


@pytest.fixture(scope="module")
def contest() -> Contest:
    errors = {"auto": EVEN, SHUFFLED["auto"]: [1.5] * 8, "<mine>": WAVY, "constant": [9.0] * 8}
    return replace(made(errors, {"<mine>": YOURS}), about=ABOUT)


def test_the_page_says_first_what_it_comes_to_and_shows_everybody(contest: Contest, tmp_path: Path) -> None:
    page = Page(write_comparison(contest, tmp_path / "page.html").read_text(encoding="utf-8"))
    assert contest.words()[0] in page.text
    for words in ("Models of sold & kept", "<b>sales</b>.csv", "In regions held out", "<mine>", SHUFFLED["auto"]):
        assert words in page.text
    assert "In the test groups" not in page.text
    assert "a bar across 0 is no clear difference" in page.text


def test_the_same_contest_gives_the_same_bytes(contest: Contest, tmp_path: Path) -> None:
    pages = [write_comparison(contest, tmp_path / f"{number}.html").read_bytes() for number in range(2)]
    assert pages[0] == pages[1]


def test_an_error_outside_of_the_figure_is_written_out(contest: Contest) -> None:
    left, right = contest_figure(contest).axes
    assert [text.get_text() for text in left.texts] == ["9.00, outside of the figure"]
    assert left.get_xlim()[1] < 9
    assert "more than auto" in right.get_xlabel()


def test_a_model_is_set_beside_another_by_group(tmp_path: Path) -> None:
    table = river()
    model = fit_table(table, target="y", group="station", graph=RIVER, penalty=1.0)
    other = fit_table(table, target="y", group="station", graph=RIVER, penalty=1.0, features=["bed"])
    mine, theirs = (each.evaluate(table, resamples=50) for each in (model, other))
    page = Page(
        write_model_report(model, tmp_path / "page.html", evaluation=mine, against=("old", theirs)).read_text("utf-8")
    )
    gain = compare(mine, theirs)
    assert gain.words("The model", "“old”") in page.text
    assert "Beside “old”" in page.text
    assert page.text.count("better by") >= 5
    content = describe_model(model, evaluation=mine, against=("old", theirs))
    assert content["against"]["gain"]["better"] == gain.better == 5
    assert content["summary"][0] == gain.words("The model", "“old”")
    worse = describe_model(other, evaluation=theirs, against=("new", mine))
    assert "The model is worse by " in worse["summary"][0] + worse["summary"][1]
    assert describe_model(model, evaluation=mine)["against"] is None
