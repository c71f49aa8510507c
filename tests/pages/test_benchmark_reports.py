"""Reports of benchmarks: sections appear with the runs they need, and sentences follow from the records."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pages.deep_cases import ACCURACY, SWEPT, flood_outcome, image_outcome, only
from tests.pages.page import Page, figures, loads_nothing
from tests.paper.conftest import shrink_tpt48
from tests.paper.fake_nclimdiv import write_fake
from toporo.errors import TopoRoWarning
from toporo.paper import sections, sentences, tpt48
from toporo.paper.report import write_report
from toporo.paper.results import Results
from toporo.paper.runner import reproduce
from toporo.paper.tables import mean_sd
from toporo.topology.graph import GroupGraph, Origin


@pytest.fixture(scope="module")
def pictures() -> Results:
    return image_outcome(("art_painting", "photo"))


@pytest.fixture(scope="module")
def chips() -> Results:
    return flood_outcome(("Bolivia",), ("erm", "tro-data", "tro-uniform", *SWEPT[::2]), seeds=2)


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


# ---------------------------------------------------------------- sections


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        (("erm",), {"scores", "groups", "steps"}),
        (("group-dro", "tro-uniform"), {"scores", "weights", "groups", "steps"}),
        (tuple(ACCURACY), {"scores", "learned", "weights", "groups", "steps"}),
    ],
)
def test_sections_appear_with_the_runs_they_need(
    methods: tuple[str, ...], expected: set[str], pictures: Results
) -> None:
    part = only(pictures, *methods).parts[0]
    assert {section.name.split("-")[0] for section in sections.any_sections(part)} == expected


def test_several_penalties_are_a_curve(pictures: Results, chips: Results) -> None:
    (part,) = image_outcome(("photo",), ("erm", "tro-data", "tro-data-0.1", "tro-data-10"), seeds=1).parts
    (section,) = sections.penalty_section(part)
    assert section.title == "Test accuracy (%) against λ"
    assert sections.penalty_section(pictures.parts[0]) == [], "one λ is no curve"
    (section,) = sections.penalty_section(chips.parts[0])
    lines = {"ERM, test", "TRO-data, test", "TRO-data, validation, training events"}
    assert {"0.001", "0.1", "1", "10"} | lines <= set(texts(section.svg))


# ---------------------------------------------------------------- sentences


def test_remarks_about_the_data_are_at_the_top_of_the_page(chips: Results, tmp_path: Path) -> None:
    html = write_report(chips, tmp_path).read_text(encoding="utf-8")
    assert html.count("Left out, without a usable pixel: &#39;Paraguay_34417&#39;.") == 1


def test_sentences_tell_whether_seeds_agree_on_the_topology(pictures: Results) -> None:
    part = pictures.parts[0]
    (sentence,) = sentences.topology_words(part)
    assert sentence == (
        "The learned topology differs among seeds (2 kinds in 3); its prior gives 45 % of the weight to domain photo; "
        "a uniform prior gives each domain 33 %."
    )
    agreeing = replace(part, records=[record for record in part.records if record["seed"] < 2])
    assert "is the same in all 2 seeds" in sentences.topology_words(agreeing)[0]
    alone = replace(part, records=[record for record in part.records if record["seed"] == 0])
    assert "comes from one seed" in sentences.topology_words(alone)[0]


@pytest.mark.filterwarnings("ignore:the prior is flat")
def test_a_flat_prior_is_reported(pictures: Results) -> None:
    part = pictures.parts[0]
    names = part.loaded.train
    ring = GroupGraph(names, {(names[0], names[1]): 1.0, (names[1], names[2]): 1.0, (names[0], names[2]): 1.0})
    prior = {"prior": ring.prior(names, measure="betweenness").to_dict()}
    records = [record | prior if record["method"] == "tro-data" else record for record in part.records]
    assert "its prior is flat" in sentences.topology_words(replace(part, records=records))[0]


def test_sentences_tell_whether_the_prior_was_trusted_and_why_not(pictures: Results) -> None:
    part = pictures.parts[0]
    names = part.loaded.train
    line, bent = ({(names[i], names[j]): 1.0 for i, j in pairs} for pairs in (((0, 1), (1, 2)), ((0, 1), (0, 2))))

    def run(record: dict[str, Any]) -> dict[str, Any]:
        draws = [line] * 20 if record["seed"] else [line, bent] * 10
        graph = GroupGraph(names, line, origin=Origin("learned"), bootstrap_edges=draws)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TopoRoWarning)
            prior = graph.prior(names, measure="betweenness", cautious=True)
        return record | {"topology": json.loads(graph.to_json()), "prior": prior.to_dict()}

    records = [run(record) if record["method"] == "tro-data" else record for record in part.records]
    now = replace(part, records=records)
    assert sentences.topology_words(now)[1:] == [
        "Resampling the rows confirms the prior in 2 of 3 seeds.",
        "The prior was not trusted in 1 of 3 seeds, and is uniform there: resampling the points moves the learned "
        "prior by 0.36, and it is 0.30 from uniform: it is not distinguishable from chance.",
    ]
    (section,) = sections.learned_section(now)
    a, b, c = names
    assert f"that join a pair: {a}–{b} 100 %, {b}–{c} 83 %, {a}–{c} 17 %." in section.text


# ---------------------------------------------------------------- TPT-48


METHODS = ("climatology", "linear-erm", "erm", "group-dro", "tro-physical", "tro-data", "linear-chosen")


def test_a_report_of_states(tmp_path: Path) -> None:
    write_fake(tmp_path / "data/tpt48/climdiv-tmpcst-v1.0.0-20200106")
    with pytest.MonkeyPatch.context() as patch:
        shrink_tpt48(patch)
        outcome = reproduce(
            "tpt48", tmp_path / "out", seeds=1, methods=METHODS, data=tmp_path / "data", variant="north-south/*"
        )
        html = write_report(outcome, tmp_path / "out").read_text(encoding="utf-8")
    page = Page(html)
    assert loads_nothing(html)
    assert len(html.encode()) < 2_800_000  # three of six variants
    names = {f"{name}-north-south-{w}" for name in ("scores", "topology", "learned", "epochs", "states")
             for w in tpt48.WINDOWS}  # fmt: skip
    assert {path.stem for path in (tmp_path / "out/figures").iterdir()} == names
    assert figures(html) == len(names)
    for row in outcome.rows:
        if row.selection == "last" or row.metric == "all":
            assert mean_sd(row.mean, row.sd, 3) in page.by_tag["td"]
    assert "0.889 / 0.991 / 1.678 / 1.177" in page.by_tag["td"], "the paper's"
    one = replace(outcome, rows=[row for row in outcome.rows if row.method == "erm" and row.variant.endswith("season")])
    again = write_report(only(one, "erm"), tmp_path / "one").read_text(encoding="utf-8")
    assert "All variants" not in again, "one variant needs no overview"
