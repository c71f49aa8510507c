"""Reports of benchmarks: sections appear with the runs they need, and sentences follow from the records."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pages.deep_cases import ACCURACY, SWEPT, flood_outcome, image_outcome, only
from tests.pages.page import Page, figures, loads_nothing
from tests.paper.conftest import shrink_tpt48
from tests.paper.fake_nclimdiv import write_fake
from toporo.paper import sections, tpt48
from toporo.paper.report import write_report
from toporo.paper.results import Results
from toporo.paper.runner import reproduce
from toporo.paper.tables import mean_sd


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
        (("erm",), {"scores", "steps"}),
        (("group-dro", "tro-uniform"), {"scores", "steps"}),
        (tuple(ACCURACY), {"scores", "learned", "steps"}),
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
    remarks = [remark for loaded in chips.data.values() for remark in loaded.remarks]
    html = write_report(replace(chips, about={"remarks": remarks}), tmp_path).read_text(encoding="utf-8")
    assert html.count("Left out, without a usable pixel: &#39;Paraguay_34417&#39;.") == 1


def test_the_learned_topology_is_drawn_over_seeds(pictures: Results) -> None:
    """A thin edge is in few of them; without centralities, weights stand in."""
    part = pictures.parts[0]
    (section,) = sections.learned_section(part)
    assert section.title == "The topology of the training domains"
    assert section.tables[0].columns == ("domain", "weight", "over seeds")
    assert sections.learned_section(only(part, "erm")) == []


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
