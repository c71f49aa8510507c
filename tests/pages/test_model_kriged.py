"""The page about a kriged model: its evidence, pictures of its coefficients, and what it cannot show."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pages.page import Page
from tests.pages.test_model import HOSTILE
from tests.tables.cases import STATIONS, STREAM, river
from toporo.pages import model_figures as figures
from toporo.pages.model import describe_model, write_model_report
from toporo.pages.model_kriged import _panels
from toporo.tables import TableModel, fit_table
from toporo.topology.graph import GroupGraph


def fit(names: tuple[str, ...] = STATIONS, **settings: Any) -> TableModel:
    given = {"target": "y", "group": "station", "graph": list(pairwise(names)), "test_groups": names[-2:]}
    return fit_table(river(groups=names), model="kriged", **{**given, **settings})


@pytest.fixture(scope="module")
def model() -> TableModel:
    return fit()


def written(model: TableModel, folder: Path, **more: Any) -> Page:
    return Page(write_model_report(model, folder / "page.html", **more).read_text(encoding="utf-8"))


def test_the_page_shows_evidence_coefficients_and_coverage(model: TableModel, tmp_path: Path) -> None:
    judged = model.evaluate(river(3, groups=STATIONS), resamples=20)
    page = written(model, tmp_path, evaluation=judged, source="new.csv")
    ids = [attributes.get("id") for tag, attributes in page.tags if tag == "section"]
    assert ids[:5] == ["evaluation", "hops", "evidence", "coefficients", "table"]
    for words in (
        "fitted by kriging (coefficients by group) to 280 rows in 7 groups",
        "The graph counts for over 99 %: neighbours are alike.",
        "Intervals that are to hold 90 % of the rows hold a share of",
        "The model knew of the test groups their place in the graph",
        "No control was fitted",
    ):
        assert words in page.text
    for words in ("prior", "λ", "Prior", "worst case"):
        assert words not in page.text
    assert "Nothing was evaluated" in written(model, tmp_path).text


def test_what_the_page_says_is_json(model: TableModel) -> None:
    content = json.loads(json.dumps(describe_model(model), allow_nan=False))
    assert content["training_groups"] == 7
    assert content["shares"]["graph"] > 0.99
    assert {row["group"] for row in content["groups"]} == set(STATIONS)


def test_pictures_are_of_what_varies_most(model: TableModel) -> None:
    panels, left = _panels(model.explain())
    first = next(iter(panels))
    assert first.startswith("slope: x\nmean 1.9")
    assert len(panels) + left == 7
    values = panels[first]
    assert abs(np.mean([values[name] for name in model.groups])) < 1e-9
    assert max(values, key=lambda name: values[name]) == "mouth"


def test_groups_that_are_states_are_on_a_map() -> None:
    codes = ("WA", "OR", "CA", "NV", "UT", "CO", "KS", "MO", "IL")
    values = {"slope: x": dict(zip(codes, np.linspace(-1, 1, 9), strict=True))}
    drawn = [
        figures.coefficient_figure(GroupGraph.from_edges(list(pairwise(names))), {"x": by_name}, names[:7], "y")
        for names, by_name in ((codes, values["slope: x"]), (STATIONS, dict.fromkeys(STATIONS, 0.0)))
    ]
    paths = [sum(len(c.get_paths()) for c in figure.axes[0].collections) for figure in drawn]
    assert paths[0] > 48 > paths[1]
    assert {f"group:{code}" for code in codes} <= {c.get_gid() for c in drawn[0].axes[0].collections}
    assert {f"group:{name}" for name in STATIONS} <= {line.get_gid() for line in drawn[1].axes[0].lines}
    assert not any(text.get_text() == "WA" for text in drawn[1].axes[0].texts)


def test_without_a_graph_there_are_strips(tmp_path: Path) -> None:
    page = written(fit(graph=None, test_groups=()), tmp_path)
    assert "There is no graph" in page.text
    assert "edges away" not in page.text


def test_hostile_names_are_names(tmp_path: Path) -> None:
    names = (*HOSTILE, "plain")
    page = written(fit(names), tmp_path)
    assert "script" not in {tag for tag, _ in page.tags}
    assert "</svg><script>alert(1)</script>" in page.text


def test_one_group_has_a_page_too(tmp_path: Path) -> None:
    with pytest.warns(match="of one group"):
        model = fit_table(
            {name: values[:40] for name, values in river(groups=STATIONS).items()},
            target="y",
            group="station",
            graph=STREAM,
            model="kriged",
        )
    assert "There is one training group" in written(model, tmp_path).text
