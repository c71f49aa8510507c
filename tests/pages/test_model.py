"""The page about a model: complete, safe for any names, and clear about its limits."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.pages.page import Page
from tests.tables.cases import RIVER, STATIONS, STREAM, floods, river
from toporo.doctor import examine
from toporo.pages.cells import interval_text, number, share
from toporo.pages.charts import NAME_LETTERS
from toporo.pages.doctor import write_doctor_report
from toporo.pages.model import describe_model, write_model_report
from toporo.pages.model_by_group import coefficient_panels
from toporo.pages.model_text import ModelReport, cautions, summary, verdict
from toporo.tables import Evaluation, Interval, TableModel, fit_table, load_model
from toporo.text import printable, short_name

#: Names that break pages or pictures if they are taken for anything but text.
HOSTILE = (
    "<b>bold</b> & \"quoted\"",
    "$\\alpha_1$ and $",
    "</svg><script>alert(1)</script>",
    "北海道と東北地方の観測所番号十二三四",
    "مستشفى",
    "🏥 Île-de-France",
    "a name that is far too long for a figure, " * 4 + "the end",
    "x\u200by\u2028z",
)  # fmt: skip
#: Characters that XML does not allow, or that command a terminal, shared out among the names of five groups.
CONTROLS = [*map(chr, (*range(32), *range(0x7F, 0xA0))), "\ufffe", "\uffff"]
UNRULY = tuple(f"{number}{'-'.join(CONTROLS[number::5])}." for number in range(5))
#: Settings of a model of each kind.
KINDS: dict[str, dict[str, Any]] = {"linear": {"penalty": 1.0}, "kriged": {"model": "kriged"}, "auto": {}}


def page_of(model: TableModel, folder: Path, **more: Any) -> Page:
    return Page(write_model_report(model, folder / "page.html", **more).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model() -> TableModel:
    return fit_table(river(), target="y", group="station", graph=RIVER, test_groups=["mouth"], model="linear")


@pytest.fixture(scope="module")
def evaluation(model: TableModel) -> Evaluation:
    return model.evaluate(river(1), resamples=100)


@pytest.fixture(scope="module")
def kriged() -> TableModel:
    about: dict[str, Any] = {"graph": list(pairwise(STATIONS)), "test_groups": STATIONS[-2:]}
    return fit_table(river(groups=STATIONS), target="y", group="station", model="kriged", **about)


# ---------------------------------------------------------------- the page


def test_the_page_has_the_numbers_of_every_group_and_column(
    model: TableModel, evaluation: Evaluation, tmp_path: Path
) -> None:
    text = page_of(model, tmp_path, evaluation=evaluation).text
    for row in model.explain():
        assert share(row.weight) in text
    for column in model.columns:
        assert column.name in text
        assert column.note in text
    metrics = (evaluation.overall, evaluation.pooled, *(score.metrics for score in evaluation.groups))
    for interval in (interval for by_name in metrics for interval in by_name.values()):
        assert interval_text(interval) in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_model_has_the_same_page(kind: str, tmp_path: Path) -> None:
    table = river(groups=STATIONS)
    model = fit_table(table, target="y", group="station", graph=list(pairwise(STATIONS)), **KINDS[kind])
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    pages = [write_model_report(m, tmp_path / "page.html").read_bytes() for m in (model, again)]
    assert pages[0] == pages[1]
    assert describe_model(again) == describe_model(model)


@pytest.mark.filterwarnings("ignore:.*far beyond what was seen in training")
@pytest.mark.parametrize("kind", KINDS)
def test_names_are_text_whatever_characters_they_have(kind: str, tmp_path: Path) -> None:
    names = (*HOSTILE, "plain")
    table = river(groups=names)
    table["<i>x</i> {{ y }}"] = table.pop("x")
    edges = list(pairwise(names))
    settings = {"test_groups": HOSTILE[2:4], **KINDS[kind]}
    model = fit_table(table, target="y", group="station", graph=edges, **settings)
    page = page_of(model, tmp_path, evaluation=model.evaluate(table, resamples=20), source="<u>new</u>.csv")
    assert not {"script", "b", "i", "u"} & {tag for tag, _ in page.tags}
    for name in (*HOSTILE, "<i>x</i> {{ y }}", "<u>new</u>.csv"):
        assert printable(name) in page.text
    assert "mathdefault" not in page.text
    assert short_name(short_name(HOSTILE[6]), NAME_LETTERS) in page.text


def test_no_page_and_no_picture_has_control_characters(tmp_path: Path) -> None:
    table = river(groups=UNRULY)
    table = {f"{name}{UNRULY[at]}": cells for at, (name, cells) in enumerate(table.items())}
    target, group = (next(name for name in table if name.startswith(start)) for start in ("y", "station"))
    graph = list(pairwise(UNRULY))
    fitted = fit_table(table, target=target, group=group, graph=graph, test_groups=UNRULY[-1:], penalty=1.0)
    pages = [tmp_path / "model.html", tmp_path / "doctor.html"]
    write_model_report(fitted, pages[0], evaluation=fitted.evaluate(table, resamples=20), source=UNRULY[0])
    write_doctor_report(examine(table, group=group, target=target, graph=graph, test_groups=UNRULY[-1:]), pages[1])
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert set(CONTROLS) & set(text) <= {"\n", "\t"}
        assert "\\u001b" in Page(text).text
        pictures = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
        assert pictures
        for picture in pictures:
            ElementTree.fromstring(picture)  # our own


def test_two_hundred_groups_stay_below_a_megabyte(tmp_path: Path) -> None:
    names = tuple(f"site {i:03d}" for i in range(220))
    table = river(rows=4, groups=names)
    about: dict[str, Any] = {"graph": list(pairwise(names)), "test_groups": names[200:]}
    model = fit_table(table, target="y", group="station", penalty=1.0, **about)
    page = page_of(model, tmp_path, evaluation=model.evaluate(table, resamples=20))
    assert (tmp_path / "page.html").stat().st_size < 1_000_000
    assert "180 more: see the table" in page.text
    assert {*names} <= {*page.by_tag["td"]}
    assert sum(tag == "details" for tag, _ in page.tags) == 3, "two tables and the settings are folded"


@pytest.mark.filterwarnings("ignore:all .* rows are of one group", "ignore:.*of one group")
@pytest.mark.parametrize(
    ("groups", "settings", "sections", "words"),
    [
        (("a", "b"), {"model": "linear"}, ["weights", "effects", "columns"], "of the test groups it used nothing"),
        (("a",), {"model": "linear"}, ["weights", "effects", "columns"], "the model used nothing"),
        (("a",), {"model": "kriged"}, ["coefficients", "columns"], "There is one training group"),
        (STATIONS, {"model": "kriged"}, ["coefficients", "columns"], "There is no graph"),
        (STATIONS, {}, ["league", "columns"], "There is no graph"),
    ],
)
def test_pages_without_a_graph(
    groups: tuple[str, ...], settings: dict[str, Any], sections: list[str], words: str, tmp_path: Path
) -> None:
    model = fit_table(river(groups=groups), target="y", group="station", **settings)
    page = page_of(model, tmp_path)
    assert [name for name in page.sections if name not in ("penalty", "cautions")] == sections
    assert words in page.text


def test_effects_of_two_classes_are_of_the_second(tmp_path: Path) -> None:
    about: dict[str, Any] = {"target": "flood", "group": "station", "graph": RIVER, "test_groups": ["mouth"]}
    auto, linear = fit_table(floods(), **about), fit_table(floods(), **about, penalty=1.0)
    assert "effect on yes" in page_of(auto, tmp_path).by_tag["th"]
    assert "Change of the log-odds of “yes” if an input grows" in page_of(linear, tmp_path).text


def test_maps_are_of_the_coefficients_that_vary_most(kriged: TableModel) -> None:
    panels = coefficient_panels(kriged.explain())
    first = next(iter(panels))
    assert first.startswith("slope: x\nmean 1.9")
    assert 1 < len(panels) <= 4
    values = panels[first]
    assert abs(np.mean([values[name] for name in kriged.groups])) < 1e-9
    assert max(values, key=lambda name: values[name]) == "mouth"


# ---------------------------------------------------------------- sentences


def test_the_summary_and_verdict_have_the_numbers(model: TableModel, evaluation: Evaluation) -> None:
    report = ModelReport(model, evaluation, "new.csv")
    text = " ".join(summary(report))
    for words in (
        "A linear model (method tro) that predicts the number “y”, fitted to 160 rows in 4 groups (column “station”)",
        "The prior (harmonic, 50 % of it uniform) has",
        "of the test groups it used their place in the graph",
        *model.explain().effect,
        "Evaluated on new.csv, 200 rows in 5 groups (1 not trained on)",
        interval_text(evaluation.worst.metrics["rmse"]),
    ):
        assert words in text
    assert interval_text(evaluation.unseen["rmse"]) in verdict(report).text


def test_a_model_that_loses_to_a_constant_is_called_so(model: TableModel, evaluation: Evaluation) -> None:
    better = replace(evaluation, constant=dict.fromkeys(evaluation.constant or (), 0.0))
    result = verdict(ModelReport(model, better))
    assert result.tone == "bad"
    assert "constant" in result.text
    assert verdict(ModelReport(model, evaluation)).tone == "good"
    assert "was not evaluated" in verdict(ModelReport(model)).text


def test_cautions_name_what_is_uncertain(model: TableModel, evaluation: Evaluation) -> None:
    def cautious(changed: Evaluation | None) -> str:
        return " ".join(cautions(ModelReport(model, changed)))

    text = cautious(evaluation)
    for words in ("No control was fitted", "4 of 5 groups evaluated were trained on", "Means are over 5 groups"):
        assert words in text
    trained = tuple(score for score in evaluation.groups if score.trained)
    assert "without rows to evaluate: 'mouth'" in cautious(replace(evaluation, groups=trained))
    assert "without rows to evaluate" not in text
    assert "resamples" not in cautious(replace(evaluation, resamples=0))
    assert "Means are over" not in cautious(None)


def test_the_page_names_groups_outside_of_what_validation_has_seen(model: TableModel, tmp_path: Path) -> None:
    assert model.reach is not None
    near = replace(model, reach=replace(model.reach, most_hops=1))
    table = river(1)
    table["x"] = [30.0 if name == "spring" else x / 2 for name, x in zip(table["station"], table["x"], strict=True)]
    evaluation = near.evaluate(table, resamples=20)
    assert describe_model(near, evaluation=evaluation)["groups_outside"] == ["spring"]
    assert ModelReport(near).groups_outside == []
    assert "Outside of what validation has seen: 'spring'." in page_of(near, tmp_path, evaluation=evaluation).text


def test_numbers_have_three_digits_that_matter() -> None:
    cases = {0.0: "0", 0.12345: "0.123", 1.0: "1.00", 12.345: "12.3", 1234.5: "1,234", -0.5: "−0.500", 1e-7: "1.00e−07"}
    for value, text in cases.items():
        assert number(value) == text
    assert [number(value) for value in (None, math.nan, math.inf, -math.inf)] == ["–", "–", "∞", "−∞"]
    assert interval_text(Interval(0.5, 0.25, 1.123456)) == "0.50 (0.25 to 1.12)"
    assert interval_text(Interval(0.5, math.nan, math.nan)) == "0.500"
    assert interval_text(Interval(math.nan, 0.0, 1.0)) == "no value"
    assert interval_text(Interval(0.0, 0.0, 0.25)) == "0.000 (0.000 to 0.250)"
    assert [share(value) for value in (0.0, 1e-5, 0.25, 1.0)] == ["0", "< 0.001", "0.250", "1.000"]


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize("kind", KINDS)
def test_json_has_the_table_of_every_kind_of_model(kind: str) -> None:
    model = fit_table(river(groups=STATIONS), target="y", group="station", graph=STREAM, **KINDS[kind])
    content, table = json.loads(json.dumps(describe_model(model))), model.explain()
    assert content[table.key] == table.to_dict()
    assert content["settings"]["estimator"] == type(model.estimator).__name__


def test_json_has_what_the_page_has(model: TableModel, evaluation: Evaluation) -> None:
    content = json.loads(json.dumps(describe_model(model, evaluation=evaluation, source="new.csv"), allow_nan=False))
    assert content["groups"] == model.explain().to_dict()
    assert content["evaluation"] == {"source": "new.csv", **evaluation.to_dict()}
    assert content["summary"] == summary(ModelReport(model, evaluation, "new.csv"))
    assert describe_model(model)["evaluation"] is None
