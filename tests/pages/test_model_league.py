"""The page about a model by votes: its league, the effects of groups on the graph, and what it cannot show."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pages.page import Page
from tests.pages.test_model import HOSTILE
from tests.tables.cases import NEW, RIVER, STATIONS, floods, river
from toporo.estimators.league import Standing
from toporo.pages import model_figures as figures
from toporo.pages.model import describe_model, write_model_report
from toporo.tables import TableModel, fit_table

LEVELS = {name: 3.0 * np.sin(place / 2.5) for place, name in enumerate(STATIONS)}


def table(seed: int = 0) -> dict[str, list[Any]]:
    """The river, whose level rises and falls on the way."""
    rows = river(seed, groups=STATIONS)
    return rows | {"y": [y + LEVELS[name] for y, name in zip(rows["y"], rows["station"], strict=True)]}


def fit(rows: dict[str, list[Any]], names: tuple[str, ...] = STATIONS, **settings: Any) -> TableModel:
    given = {"target": "y", "group": "station", "graph": list(pairwise(names)), "test_groups": names[-2:]}
    return fit_table(rows, **{**given, **settings})


@pytest.fixture(scope="module")
def model() -> TableModel:
    return fit(table())


def written(model: TableModel, folder: Path, **more: Any) -> Page:
    return Page(write_model_report(model, folder / "page.html", **more).read_text(encoding="utf-8"))


def test_the_page_shows_the_league_effects_and_coverage(model: TableModel, tmp_path: Path) -> None:
    judged = model.evaluate(table(3), resamples=20)
    page = written(model, tmp_path, evaluation=judged, source="new.csv")
    ids = [attributes.get("id") for tag, attributes in page.tags if tag == "section"]
    assert ids[:5] == ["evaluation", "hops", "league", "effects", "table"]
    for words in (
        "A mean of several models that predicts the number “y”, fitted by votes",
        "to 280 rows in 7 groups",
        "It is carried by",
        "In what is left, the graph counts for",
        "Intervals that are to hold 90 % of the rows hold a share of",
        "They do not cover training again on other rows, the votes, or groups unlike these",
        "The model knew of the test groups their place in the graph",
        "No control was fitted",
        *(row.name for row in model.estimator.league_),
        *STATIONS,
    ):
        assert words in page.text
    for words in ("λ", "The prior", "worst case"):
        assert words not in page.text
    assert "Nothing was evaluated" in written(model, tmp_path).text


def test_the_same_model_has_the_same_page(model: TableModel, tmp_path: Path) -> None:
    pages = [write_model_report(each, tmp_path / "page.html").read_bytes() for each in (model, fit(table()))]
    assert pages[0] == pages[1]


def test_what_the_page_says_is_json(model: TableModel) -> None:
    content = json.loads(json.dumps(describe_model(model), allow_nan=False))
    assert content["training_groups"] == 7
    assert content["estimator"] == "AutoRegressor"
    assert [row["candidate"] for row in content["league"]] == [row.name for row in model.estimator.league_]
    assert {row["group"] for row in content["groups"] if not row["trained"]} == set(NEW)
    assert content["prior"] is content["penalty"] is None


def test_without_a_graph_there_are_no_effects(tmp_path: Path) -> None:
    page = written(fit(table(), graph=None, test_groups=()), tmp_path)
    assert page.sections == ["league", "columns", "cautions"]
    assert "There is no graph" in page.text


def test_effects_of_two_classes_are_of_the_second(tmp_path: Path) -> None:
    model = fit(floods(), target="flood", graph=RIVER, test_groups=["mouth"])
    page = written(model, tmp_path, evaluation=model.evaluate(floods(1), resamples=20))
    assert "Effects are on log-odds, of “yes”." in page.text
    assert "flood: effect on the log-odds" in page.text
    beds = fit(floods(), target="bed", graph=RIVER, test_groups=["mouth"], exclude=["flood"])
    assert "root mean square over classes" in written(beds, tmp_path).text


def test_names_are_text_whatever_signs_they_hold(tmp_path: Path) -> None:
    model = fit(river(groups=HOSTILE), HOSTILE)
    page = written(model, tmp_path)
    assert not {"script", "b", "i", "u"} & {tag for tag, _ in page.tags}


def test_a_candidate_that_failed_is_named(model: TableModel, tmp_path: Path) -> None:
    model.estimator.league_ += (Standing("<b>mine</b>", math.nan, math.nan, 0.0, "ValueError: no"),)
    try:
        page = written(model, tmp_path)
    finally:
        model.estimator.league_ = model.estimator.league_[:-1]
    assert "Candidates that were not fitted, as the league says why: “<b>mine</b>”" in page.text
    assert "ValueError: no" in page.text
    assert "b" not in {tag for tag, _ in page.tags}


def test_errors_far_apart_are_on_a_logarithmic_axis() -> None:
    near = [Standing("a", 0.9, 1.2, 0.6), Standing("b", 1.1, 1.4, 0.4)]
    far = [*near, replace(near[0], name="c", worst=30.0, vote=0.0)]
    scales = [figures.league_figure(rows).axes[1].get_xscale() for rows in (near, far)]
    assert scales == ["linear", "log"]
    many = [replace(near[0], name=f"candidate {place}", vote=1 / 60) for place in range(60)]
    texts = [text.get_text() for text in figures.league_figure(many).axes[0].texts]
    assert texts == ["20 more, together 0.333"]
