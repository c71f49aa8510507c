"""Pages about kriged models and about means of several models."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pages.page import Page
from tests.pages.test_model import HOSTILE, written
from tests.tables.cases import NEW, RIVER, STATIONS, STREAM, floods, river
from toporo.estimators.league import Standing
from toporo.pages.charts import to_svg
from toporo.pages.model import describe_model, write_model_report
from toporo.pages.model_by_group import coefficient_panels, signed_chart
from toporo.tables import TableModel, fit_table

LEVELS = {name: 3.0 * np.sin(place / 2.5) for place, name in enumerate(STATIONS)}


def levels(seed: int = 0) -> dict[str, list[Any]]:
    """The river, whose level rises and falls on the way."""
    rows = river(seed, groups=STATIONS)
    return rows | {"y": [y + LEVELS[name] for y, name in zip(rows["y"], rows["station"], strict=True)]}


def fit(rows: dict[str, list[Any]], names: tuple[str, ...] = STATIONS, **settings: Any) -> TableModel:
    given = {"target": "y", "group": "station", "graph": list(pairwise(names)), "test_groups": names[-2:]}
    return fit_table(rows, **{**given, **settings})


@pytest.fixture(scope="module")
def kriged() -> TableModel:
    return fit(river(groups=STATIONS), model="kriged")


@pytest.fixture(scope="module")
def mean() -> TableModel:
    return fit(levels())


def check(page: Page, sections: list[str], words: tuple[str, ...], absent: tuple[str, ...]) -> None:
    assert page.sections[: len(sections)] == sections
    for text in words:
        assert text in page.text
    for text in absent:
        assert text not in page.text


def test_a_kriged_model_shows_evidence_and_coefficients(kriged: TableModel, tmp_path: Path) -> None:
    judged = kriged.evaluate(river(3, groups=STATIONS), resamples=20)
    words = (
        "fitted by kriging (coefficients by group) to 280 rows in 7 groups",
        "The graph counts for over 99 %: neighbours are alike.",
        "The model knew of the test groups their place in the graph",
        "No control was fitted",
        "coverage",
    )
    page = written(kriged, tmp_path, evaluation=judged, source="new.csv")
    check(page, ["evaluation", "hops", "evidence", "coefficients", "table"], words, ("prior", "λ", "worst case"))
    assert "Nothing was evaluated" in written(kriged, tmp_path).text


def test_a_mean_of_models_shows_the_league_and_effects(mean: TableModel, tmp_path: Path) -> None:
    judged = mean.evaluate(levels(3), resamples=20)
    words = (
        "A mean of several models that predicts the number “y”, fitted by votes",
        "to 280 rows in 7 groups",
        "It is carried by",
        "In what is left, the graph counts for",
        "They do not cover training again on other rows, the votes, or groups unlike these",
        "The model knew of the test groups their place in the graph",
        *(row.name for row in mean.estimator.league_),
        *STATIONS,
    )
    page = written(mean, tmp_path, evaluation=judged, source="new.csv")
    check(page, ["evaluation", "hops", "league", "effects", "table"], words, ("λ", "The prior", "worst case"))


def test_the_same_model_has_the_same_page(mean: TableModel, tmp_path: Path) -> None:
    pages = [write_model_report(each, tmp_path / "page.html").read_bytes() for each in (mean, fit(levels()))]
    assert pages[0] == pages[1]


def test_the_content_of_a_page_is_json(kriged: TableModel, mean: TableModel) -> None:
    content = json.loads(json.dumps(describe_model(kriged), allow_nan=False))
    assert content["training_groups"] == 7
    assert content["shares"]["graph"] > 0.99
    assert {row["group"] for row in content["groups"]} == set(STATIONS)
    content = json.loads(json.dumps(describe_model(mean), allow_nan=False))
    assert content["estimator"] == "AutoRegressor"
    assert [row["candidate"] for row in content["league"]] == [row.name for row in mean.estimator.league_]
    assert {row["group"] for row in content["groups"] if not row["trained"]} == set(NEW)
    assert content["prior"] is content["penalty"] is None


def test_maps_are_of_the_coefficients_that_vary_most(kriged: TableModel) -> None:
    panels, left = coefficient_panels(kriged.explain())
    first = next(iter(panels))
    assert first.startswith("slope: x\nmean 1.9")
    assert len(panels) + left == 7
    values = panels[first]
    assert abs(np.mean([values[name] for name in kriged.groups])) < 1e-9
    assert max(values, key=lambda name: values[name]) == "mouth"


def test_groups_that_are_states_stand_on_their_land(tmp_path: Path) -> None:
    names = ("Washington", "Oregon", "California", "Nevada", "Utah", "Colorado", "Kansas", "Missouri", "Illinois")
    model = fit(river(groups=names), names, model="kriged")
    figure = signed_chart(model.graph, {"x": dict.fromkeys(names, 1.0)}, "y", model, {"Illinois"})
    assert len(figure.axes[0].patches) == 48
    assert {f"group:{name}" for name in names} <= {line.get_gid() for line in figure.axes[0].lines}
    assert "ring: outside" in to_svg("map", figure)


def test_without_a_graph_there_are_no_maps(tmp_path: Path) -> None:
    page = written(fit(river(groups=STATIONS), model="kriged", graph=None, test_groups=()), tmp_path)
    assert page.sections == ["evidence", "table", "columns", "cautions"]
    assert "edges away" not in page.text
    page = written(fit(levels(), graph=None, test_groups=()), tmp_path)
    assert page.sections == ["league", "columns", "cautions"]
    assert "There is no graph" in page.text


def test_effects_of_two_classes_are_of_the_second(tmp_path: Path) -> None:
    model = fit(floods(), target="flood", graph=RIVER, test_groups=["mouth"])
    page = written(model, tmp_path, evaluation=model.evaluate(floods(1), resamples=20))
    assert "Effects are on log-odds, of “yes”." in page.text
    assert "flood: effect on the log-odds" in page.text
    beds = fit(floods(), target="bed", graph=RIVER, test_groups=["mouth"], exclude=["flood"])
    assert "root mean square over classes" in written(beds, tmp_path).text


def test_names_are_text_whatever_characters_they_hold(tmp_path: Path) -> None:
    for names, settings in (((*HOSTILE, "plain"), {"model": "kriged"}), (HOSTILE, {})):
        page = written(fit(river(groups=names), names, **settings), tmp_path)
        assert not {"script", "b", "i", "u"} & {tag for tag, _ in page.tags}
        assert "</svg><script>alert(1)</script>" in page.text


def test_one_group_has_a_page_too(tmp_path: Path) -> None:
    rows = {name: values[:40] for name, values in river(groups=STATIONS).items()}
    with pytest.warns(match="of one group"):
        model = fit_table(rows, target="y", group="station", graph=STREAM, model="kriged")
    assert "There is one training group" in written(model, tmp_path).text


def test_a_candidate_that_failed_is_named(mean: TableModel, tmp_path: Path) -> None:
    league = mean.estimator.league_
    mean.estimator.league_ = (*league, Standing("<b>mine</b>", math.nan, math.nan, 0.0, "ValueError: no"))
    try:
        page = written(mean, tmp_path)
    finally:
        mean.estimator.league_ = league
    assert "not fitted, for the reasons in the league: “<b>mine</b>”" in page.text
    assert "ValueError: no" in page.text
    assert "b" not in {tag for tag, _ in page.tags}
