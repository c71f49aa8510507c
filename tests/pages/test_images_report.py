"""The report of images in domains: scores, topologies and samples of what was run, from records alone."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.pages.deep_cases import ACCURACY, CLASSES, DOMAINS, image_outcome, only
from tests.pages.page import figures, loads_nothing
from tests.pages.test_html import Page
from toporo.errors import DataError, TopoRoWarning
from toporo.pages.charts import to_svg
from toporo.pages.pictures import Guess, Photo, photo_samples
from toporo.paper import BENCHMARKS, sections, sentences
from toporo.paper import domainbed as images
from toporo.paper.report import write_report
from toporo.paper.results import Results
from toporo.topology.graph import GroupGraph, Origin

EACH = ("scores", "learned", "weights", "groups", "steps", "samples")


@pytest.fixture(scope="module")
def outcome() -> Results:
    return image_outcome(("art_painting", "photo"))


@pytest.fixture(scope="module")
def page(outcome: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(replace(outcome, about={"skipped": {"sketch": "No images."}}), tmp_path_factory.mktemp("pacs"))


def written(figure: Figure) -> list[str]:
    """The texts of a figure."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", to_svg("f", figure))


# ---------------------------------------------------------------- the page


def test_the_page_holds_every_figure_of_each_domain(outcome: Results, page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    parsed = Page()
    parsed.feed(html)
    assert parsed.stack == []
    assert [h for h in parsed.text["h2"] if h.startswith("PACS ")] == ["PACS art_painting", "PACS photo"]
    names = {f"{each}-{domain.replace('_', '-')}" for each in EACH for domain in ("art_painting", "photo")}
    drawn = {path.stem for path in (page.parent / "figures").iterdir()}
    assert drawn == {name for name in names if not name.startswith("groups")}, "groups are a table"
    assert figures(html) == len(drawn)


def test_the_page_loads_nothing_and_its_pictures_are_inside(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert loads_nothing(html)
    assert "<link" not in html
    targets = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert all(target.startswith(("#", "data:image/png;base64,")) for target in targets)
    samples = (page.parent / "figures" / "samples-photo.svg").read_text(encoding="utf-8")
    assert samples.count("data:image/png;base64,") == 12
    identifiers = re.findall(r'\bid="([^"]+)"', html)
    assert len(set(identifiers)) == len(identifiers)


def test_a_page_of_steps_speaks_of_no_epochs(page: Path) -> None:
    """But in the settings, where names are those of the protocol."""
    html = page.read_text(encoding="utf-8").split("<details>")[0]
    assert "epoch" not in re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)
    assert "with averaged weights" in html


def test_the_same_results_give_the_same_bytes(outcome: Results, page: Path) -> None:
    part = outcome.parts[0]
    for section in (*images._samples(part), *sections.learned_section(part)):
        assert section.svg == (page.parent / "figures" / f"{section.name}.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("methods", [("erm",), ("group-dro", "tro-uniform")])
def test_without_tro_data_there_is_no_topology_to_show(methods: tuple[str, ...], outcome: Results) -> None:
    found = only(outcome, *methods)
    names = {section.name.split("-")[0] for section in images.sections(found.parts[0])}
    assert "learned" not in names
    assert ("weights" in names) == ("group-dro" in methods)
    assert ("samples" in names) == ("erm" in methods)
    assert sentences.topology_words(found.parts[0]) == []


def test_why_a_domain_was_not_run_is_said(page: Path) -> None:
    assert "Not run: sketch. No images." in page.read_text(encoding="utf-8")


# ---------------------------------------------------------------- samples


def test_samples_show_every_case_and_who_was_right(outcome: Results) -> None:
    part = outcome.parts[0]
    (section,) = images._samples(part)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", section.svg)
    guesses = [text for text in texts if text[0] in "✓✗"]
    assert len(guesses) == 2 * 12
    titles = [text for text in texts if text in CLASSES]
    assert len(titles) == 12
    for mark, title, taken in (re.match(r"(.) (ERM|TRO-data): (\w+), \d+ %", g).groups() for g in guesses):  # type: ignore[union-attr]
        assert title in ("ERM", "TRO-data")
        assert taken in CLASSES
        assert mark in "✓✗"
    pairs = {tuple(guess[0] for guess in guesses[i : i + 2]) for i in range(0, len(guesses), 2)}
    assert pairs == {("✓", "✓"), ("✓", "✗"), ("✗", "✓"), ("✗", "✗")}


def test_samples_need_the_pixels(outcome: Results) -> None:
    part = outcome.parts[0]
    with pytest.raises(DataError, match="no store of images"):
        images._samples(replace(part, data={part.variant.name: replace(part.loaded, store=None)}))


def test_a_picture_is_shown_as_it_is_and_marked_by_its_guesses() -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    texts = written(photo_samples([Photo(pixels, "dog", {"A": Guess("dog", 0.874), "B": Guess("cat", 1.0)})]))
    assert set(texts) == {"dog", "✓ A: dog, 87 %", "✗ B: cat, 100 %"}


# ---------------------------------------------------------------- sentences


def test_sentences_say_whether_seeds_agree_on_the_topology(outcome: Results) -> None:
    part = outcome.parts[0]
    (sentence,) = sentences.topology_words(part)
    assert sentence.startswith("The learned topology differs among seeds (2 kinds in 3); its prior gives photo 0.45 of")
    agreeing = replace(part, records=[record for record in part.records if record["seed"] < 2])
    assert "is the same in all 2 seeds" in sentences.topology_words(agreeing)[0]
    alone = replace(part, records=[record for record in part.records if record["seed"] == 0])
    assert "comes from one seed" in sentences.topology_words(alone)[0]


@pytest.mark.filterwarnings("ignore:the prior is flat")
def test_a_flat_prior_is_said_to_be_flat(outcome: Results) -> None:
    part = outcome.parts[0]
    names = part.loaded.train
    ring = GroupGraph(names, {(names[0], names[1]): 1.0, (names[1], names[2]): 1.0, (names[0], names[2]): 1.0})
    records = [
        record | {"prior": ring.prior(names, measure="betweenness").to_dict()}
        if record["method"] == "tro-data"
        else record
        for record in part.records
    ]
    assert "its prior is flat" in sentences.topology_words(replace(part, records=records))[0]


def test_sentences_say_whether_the_prior_was_trusted_and_why_not(outcome: Results) -> None:
    part = outcome.parts[0]
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
    assert f"so many join two: {a}–{b} 100 %, {b}–{c} 83 %, {a}–{c} 17 %." in section.text


# ---------------------------------------------------------------- penalties


def test_a_sweep_of_images_has_its_figure(outcome: Results) -> None:
    (part,) = image_outcome(("photo",), ("erm", "tro-data", "tro-data-0.1", "tro-data-10"), seeds=1).parts
    (section,) = sections.penalty_section(part)
    assert section.title == "Test accuracy (%) against λ"
    assert sections.penalty_section(outcome.parts[0]) == [], "one λ is no curve"


def test_the_fake_outcome_is_one_of_the_real_protocol() -> None:
    """So that these tests follow what is really run."""
    protocol = BENCHMARKS["pacs"].protocol
    assert tuple(variant.name for variant in protocol.variants) == DOMAINS
    assert tuple(ACCURACY) == protocol.methods
