"""The page about a model: figures and sentences that show what was fitted, whatever groups are called, offline."""

from __future__ import annotations

import copy
import json
import math
import re
import unicodedata
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages.page import Page, loads_nothing
from tests.tables.cases import RIVER, STATIONS, STREAM, floods, only, river
from toporo.choice.penalty import PenaltyScore
from toporo.doctor import examine
from toporo.pages.charts import NAME_LETTERS
from toporo.pages.doctor import write_doctor_report
from toporo.pages.model import _effects, _effects_section, describe_model, write_model_report
from toporo.pages.model_text import cautions, groups_outside, interval_text, number, share, summary, verdict
from toporo.tables import Evaluation, Interval, TableModel, fit_table, load_model
from toporo.text import printable, short_name
from toporo.topology.effect import groups_in_effect
from toporo.topology.graph import GroupGraph

#: Names that break pages, pictures or both if they are taken for anything but text.
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


#: Signs that XML knows not, or that command a terminal, shared out among the names of five groups.
CONTROLS = [*map(chr, (*range(32), *range(0x7F, 0xA0))), "\ufffe", "\uffff"]
UNRULY = tuple(f"{number}{'-'.join(CONTROLS[number::5])}." for number in range(5))


def written(model: TableModel, folder: Path, **more: Any) -> Page:
    return Page(write_model_report(model, folder / "page.html", **more).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model() -> TableModel:
    return fit_table(river(), target="y", group="station", graph=RIVER, test_groups=["mouth"], model="linear")


@pytest.fixture(scope="module")
def evaluation(model: TableModel) -> Evaluation:
    return model.evaluate(river(1), resamples=100)


@pytest.fixture(scope="module")
def network() -> TableModel:
    return fit_table(
        floods(),
        target="flood",
        group="station",
        graph=RIVER,
        test_groups=["mouth"],
        model="mlp",
        epochs=4,
        hidden=(4,),
    )


@pytest.fixture(scope="module")
def whole(model: TableModel, evaluation: Evaluation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with an evaluation."""
    out = tmp_path_factory.mktemp("pages") / "new" / "page.html"
    return write_model_report(model, out, evaluation=evaluation, source="held-out.csv")


# ---------------------------------------------------------------- the page


def test_a_page_is_one_file_that_opens_offline(whole: Path) -> None:
    text = whole.read_text(encoding="utf-8")
    page = Page(text)
    assert [file.name for file in whole.parent.iterdir()] == ["page.html"]
    assert loads_nothing(text)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    references = [
        value or "" for _, attrs in page.tags for key, value in attrs.items() if key.endswith(("href", "src"))
    ]
    assert all(value.startswith(("#", "data:image/png;base64,")) for value in references)
    assert "@import" not in text
    identifiers = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(set(identifiers)) == len(identifiers)


def test_a_stored_model_has_the_same_page(
    model: TableModel, evaluation: Evaluation, whole: Path, network: TableModel, tmp_path: Path
) -> None:
    for name, fitted in (("linear", model), ("network", network)):
        fitted.save(tmp_path / name)
    again = load_model(tmp_path / "linear")
    path = write_model_report(again, tmp_path / "again.html", evaluation=evaluation, source="held-out.csv")
    assert path.read_bytes() == whole.read_bytes()
    assert describe_model(load_model(tmp_path / "network")) == describe_model(network)


def test_a_page_has_a_section_for_all_there_is_to_say(
    model: TableModel, whole: Path, network: TableModel, tmp_path: Path
) -> None:
    page = Page(whole.read_text(encoding="utf-8"))
    assert page.sections == [
        "evaluation", "hops", "groups", "weights", "penalty", "effects", "table", "columns", "cautions",
    ]  # fmt: skip
    bare = written(model, tmp_path)
    assert [name for name in page.sections if name not in bare.sections] == ["evaluation", "hops"]
    assert "Nothing was evaluated" in bare.text
    assert "Nothing was evaluated" not in page.text
    trained = written(network, tmp_path)
    assert "training" in trained.sections
    assert "over 4 epochs" in trained.text
    assert not {"penalty", "effects"} & set(trained.sections)


def test_the_page_holds_every_group_and_column_and_every_score(
    model: TableModel, evaluation: Evaluation, whole: Path
) -> None:
    text = Page(whole.read_text(encoding="utf-8")).text
    for row in model.explain():
        assert str(row.group) in text
        assert share(row.weight) in text
    for column in model.columns:
        assert column.name in text
        assert column.note in text
    for score in evaluation.groups:
        for interval in score.metrics.values():
            assert interval_text(interval) in text
    for interval in (*evaluation.overall.values(), *evaluation.pooled.values()):
        assert interval_text(interval) in text


def test_names_are_text_whatever_signs_they_hold(tmp_path: Path) -> None:
    table = river(groups=HOSTILE)
    table["<i>x</i> {{ y }}"] = table.pop("x")
    edges = list(pairwise(HOSTILE))
    model = fit_table(table, target="y", group="station", graph=edges, test_groups=HOSTILE[2:4], model="linear")
    page = written(model, tmp_path, evaluation=model.evaluate(table, resamples=20), source="<u>held-out</u>.csv")
    assert not {"script", "b", "i", "u"} & {tag for tag, _ in page.tags}
    for name in (*HOSTILE, "<i>x</i> {{ y }}", "<u>held-out</u>.csv"):
        assert printable(name) in page.text
    assert "mathdefault" not in page.text
    long = HOSTILE[6]
    assert page.by_tag["td"].count(long) == 2  # in the two tables; figures and sentences shorten it
    assert page.text.count(short_name(short_name(long), NAME_LETTERS)) >= 3


def test_two_groups_without_a_graph_are_enough(tmp_path: Path) -> None:
    table = river(groups=("a", "b"))
    model = fit_table(table, target="y", group="station", model="linear")
    page = written(model, tmp_path, evaluation=model.evaluate(table, resamples=20))
    assert page.sections == ["evaluation", "weights", "effects", "table", "columns", "cautions"]
    assert "no topology takes part" in page.text


@pytest.mark.filterwarnings("ignore:all .* rows are of one group")
def test_one_group_is_an_ordinary_regression_and_says_so(tmp_path: Path) -> None:
    model = fit_table(river(groups=("a",)), target="y", group="station", model="linear")
    page = written(model, tmp_path)
    assert "an ordinary regression" in page.text
    assert "penalty λ" not in page.text


def test_two_hundred_groups_stay_readable(tmp_path: Path) -> None:
    names = tuple(f"site {i:03d}" for i in range(220))
    table = river(rows=4, groups=names)
    edges = list(pairwise(names))
    model = fit_table(table, target="y", group="station", graph=edges, test_groups=names[200:], penalty=1.0)
    evaluation = model.evaluate(table, resamples=20)
    page = written(model, tmp_path, evaluation=evaluation)
    assert (tmp_path / "page.html").stat().st_size < 1_000_000
    assert page.text.count("160 more: see the table") == 2
    assert "180 more: see the table" in page.text
    assert all(name in page.text for name in names)  # in the folded tables
    assert sum(tag == "details" for tag, _ in page.tags) == 3


def test_many_classes_have_a_table_of_effects_and_two_a_figure(tmp_path: Path) -> None:
    table = river()
    table["level"] = [("low", "middling", "<high>")[int(value > -0.5) + int(value > 0.7)] for value in table.pop("y")]
    model = fit_table(table, target="level", group="station", graph=RIVER, test_groups=["mouth"], penalty=1.0)
    effects = _effects(model)
    assert list(effects) == ["<high>", "low", "middling"]
    coef = np.asarray(model.estimator.coef_) * model.estimator.scaling_.scale
    for title, values in zip(effects, coef, strict=True):
        best = int(np.abs(values).argmax())
        assert effects[title][0] == (model.encoder.names[best], pytest.approx(values[best]))
        assert len(effects[title]) == 5
    page = written(model, tmp_path, evaluation=model.evaluate(table, resamples=20))
    assert "change of its score" in page.text
    assert "one of 3 classes of “level”" in page.text
    two = fit_table(floods(), target="flood", group="station", penalty=1.0)
    assert list(_effects(two)) == ["yes"]
    section = _effects_section(two)
    assert section is not None
    assert "the log-odds of “yes”" in section.text
    assert "<svg" in section.svg


def test_without_standardised_inputs_effects_go_over_the_training_range() -> None:
    model = fit_table(river(), target="y", group="station", penalty=1.0, standardize=False)
    x = river()["x"]
    coef = dict(zip(model.encoder.names, np.ravel(model.estimator.coef_), strict=True))
    effects = dict(_effects(model)["y"])
    assert effects["x"] == pytest.approx(coef["x"] * (max(x) - min(x)))
    assert effects["bed = rock"] == pytest.approx(coef["bed = rock"])
    assert effects["depth is missing"] == pytest.approx(coef["depth is missing"])


# ---------------------------------------------------------------- sentences


def test_the_summary_says_what_was_fitted_to_what(model: TableModel, evaluation: Evaluation) -> None:
    rows = list(model.explain())
    text = " ".join(summary(model, model.explain(), evaluation, "held-out.csv"))
    assert "A linear model that predicts the number “y”" in text
    assert "160 rows in 4 groups (column “station”)" in text
    assert (
        f"chosen among 10 by the loss in training groups held out ({model.estimator.penalty_scores_[0].folds}" in text
    )
    assert "The prior: harmonic in the given graph" in text
    assert "Of the test groups it saw: their place in the graph" in text
    assert f"{groups_in_effect(row.weight for row in rows):.1f} by the weights, of 4" in text
    assert f"of rows: {model.estimator.rows_in_effect_:.0f} by the weights, of" in text
    assert "Evaluated on “held-out.csv”, 200 rows in 5 groups (1 not trained on)" in text
    leading = verdict(model, evaluation, None).text
    assert leading.startswith("In 1 group that it was not trained on, the model's RMSE is ")
    assert interval_text(evaluation.unseen["rmse"]) in leading
    assert interval_text(evaluation.worst.metrics["rmse"]) in text


@pytest.mark.parametrize(
    ("settings", "words", "missing"),
    [
        ({"penalty": 0.5}, "λ is 0.5, as set", "chosen"),
        ({"penalty": math.inf}, "λ is ∞ (the weights are the prior)", "chosen"),
        ({"penalty": 0.0}, "λ is 0 (the worst group decides)", "chosen"),
        ({"radius": 0.05}, "within 0.05 of the prior (radius), which takes a penalty λ of", "as set"),
        ({"method": "erm"}, "fitted by all groups weighed alike", "penalty"),
        ({"method": "group-dro"}, "fitted by group DRO (the worst group decides)", "penalty"),
    ],
)
def test_the_summary_says_how_groups_were_weighed(settings: dict[str, Any], words: str, missing: str) -> None:
    model = fit_table(river(), target="y", group="station", **settings)
    text = " ".join(summary(model, model.explain(), None, None))
    assert words in text
    assert missing not in text


def test_cautions_name_what_is_uncertain(model: TableModel, evaluation: Evaluation) -> None:
    table = model.explain()

    def said(judged: Evaluation | None = evaluation, source: str | None = "new.csv", **changes: Any) -> str:
        return " ".join(cautions(replace(model, **changes), table, judged, source))

    assert "No control was fitted" in said()
    assert "This is a control" in said(about=model.about | {"method": "erm"})
    assert "4 of 5 groups evaluated were trained on" in said()
    assert "called “new.csv” like the training table" in said(about=model.about | {"source": "new.csv"})
    assert "There are 5 groups to take means over" in said()
    assert "The prior knew of the test groups their place in the graph" in said()
    assert "resamples of the rows" in said()
    assert "resamples of the rows" not in said(replace(evaluation, resamples=0))
    assert "without rows to judge by" not in said()
    trained = tuple(score for score in evaluation.groups if score.trained)
    assert "Test groups without rows to judge by: “mouth” (1 in all)" in said(replace(evaluation, groups=trained))
    assert "fewer than 30 rows" not in said()
    smaller = replace(table, rows=(replace(table[0], size=29), *table[1:]))
    few = " ".join(cautions(model, smaller, evaluation, None))
    assert "1 of 4 training groups have fewer than 30 rows" in few
    assert f"uncertain (“{table[0].group}”)" in few
    apart = GroupGraph([*model.groups, "mouth"], {("spring", "upper"): 1.0})
    assert "No path leads from a training group to “mouth”" in said(graph=apart)
    assert "No path" not in said()


def test_a_loose_choice_is_called_so(model: TableModel) -> None:
    def said(*scores: PenaltyScore) -> str:
        estimator = copy.copy(model.estimator)
        estimator.penalty_scores_, estimator.choice_ = scores, None
        return " ".join(cautions(replace(model, estimator=estimator), model.explain(), None, None))

    best, other = PenaltyScore(1.0, 0.50, 0.2, 4), PenaltyScore(2.0, 0.59, 0.2, 4)
    text = "2 of 2 penalties score within a standard error of the best: the choice is loose"
    assert text in said(best, other)
    assert text not in said(best, replace(other, score=0.61))


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
    assert groups_in_effect([0.25] * 4) == pytest.approx(4)
    assert groups_in_effect([1.0, 0.0]) == pytest.approx(1)


# ---------------------------------------------------------------- JSON


def test_json_says_what_the_page_says(model: TableModel, evaluation: Evaluation) -> None:
    content = describe_model(model, evaluation=evaluation, source="held-out.csv")
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["groups"] == model.explain().to_dict()
    assert content["evaluation"] == {"source": "held-out.csv", **evaluation.to_dict()}
    assert content["summary"] == summary(model, model.explain(), evaluation, "held-out.csv")
    assert content["test_hops"] == {"mouth": 1}
    assert content["prior"]["saw"] == ["test adjacency"]
    assert content["penalty_scores"][0]["penalty"] == "inf"
    assert len(content["penalty_scores"]) == len(model.estimator.penalty_scores_)
    assert {effect["of"] for effect in content["effects"]} == {"y"}
    assert describe_model(model)["evaluation"] is None


def test_json_of_a_network_has_no_effects(network: TableModel) -> None:
    content = describe_model(network)
    assert content["effects"] == []
    assert content["penalty_scores"] == []
    assert content["classes"] == ["no", "yes"]


# ---------------------------------------------------------------- groups and names


def test_the_page_names_groups_outside(model: TableModel, tmp_path: Path) -> None:
    assert model.reach is not None
    near = replace(model, reach=replace(model.reach, most_hops=1))
    table = river(1)
    table["x"] = [30.0 if name == "spring" else x / 2 for name, x in zip(table["station"], table["x"], strict=True)]
    judged = near.evaluate(table, resamples=20)
    assert groups_outside(near, None) == set()
    assert groups_outside(near, judged) == {"spring"}
    assert groups_outside(replace(model, reach=None), judged) == set()
    text = written(near, tmp_path, evaluation=judged).text
    assert "Outside of what validation has seen: “spring” (1 group)." in text
    assert "rows outside of what validation has seen" in text
    assert describe_model(near, evaluation=judged)["groups_outside"] == ["spring"]


def test_test_groups_too_many_hops_away_are_outside_without_an_evaluation() -> None:
    long = fit_table(
        river(groups=STATIONS), target="y", group="station", graph=STREAM, test_groups=STATIONS[-4:], penalty=1.0
    )
    assert long.reach is not None
    assert groups_outside(replace(long, reach=replace(long.reach, most_hops=3)), None) == {"mouth"}


@given(st.text(max_size=80), st.integers(min_value=6, max_value=40))
def test_a_short_name_fits_on_a_line(name: str, most: int) -> None:
    shown = short_name(name, most)
    assert shown.isprintable()
    assert shown == " ".join(shown.split()) != ""
    assert sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in shown) <= max(most, len("(blank)"))
    clean = " ".join("".join(sign if sign.isprintable() else " " for sign in name).split())
    head, _, tail = shown.partition("…") if shown != clean and clean else (clean or "(blank)", "", "")
    assert (clean or "(blank)").startswith(head)
    assert clean.endswith(tail)


def test_a_model_that_only_saw_some_rows_reports_those(tmp_path: Path) -> None:
    table = only(river(), station=("spring", "upper", "middle", "lower"))
    model = fit_table(table, target="y", group="station", graph=RIVER, penalty=1.0, weight=None)
    text = written(model, tmp_path).text
    assert "no rows in training" in text  # the mouth is in the graph, and neither trained on nor a test group
    assert "Of the test groups" not in text


def test_no_page_and_no_picture_holds_a_sign_that_commands(tmp_path: Path) -> None:
    """In names of groups, columns and tables: each picture is XML, and pages hold none of these signs."""
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
