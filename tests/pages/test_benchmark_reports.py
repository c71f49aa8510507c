"""Reports of benchmarks: sections appear with the runs they need, and samples and sentences follow from the records."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tests.pages.deep_cases import ACCURACY, CLASSES, SWEPT, flood_outcome, image_outcome, only
from tests.pages.page import Page, figures, loads_nothing
from tests.paper.conftest import shrink_tpt48
from tests.paper.fake_nclimdiv import write_fake
from tests.paper.tiny_floods import make_chip
from toporo.errors import DataError
from toporo.pages.pictures import LAND, MISSED, MISSING, WATER, Tile
from toporo.paper import domainbed as images
from toporo.paper import sections, tpt48
from toporo.paper import sen1floods11 as floods
from toporo.paper.report import write_report
from toporo.paper.results import Results
from toporo.paper.runner import reproduce
from toporo.paper.runs import Store
from toporo.paper.tables import mean_sd


@pytest.fixture(scope="module")
def pictures() -> Results:
    return image_outcome(("art_painting", "photo"))


@pytest.fixture(scope="module")
def chips(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("floods")
    return flood_outcome(folder, ("Bolivia",), ("erm", "tro-data", "tro-uniform", *SWEPT[::2]), seeds=2)


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


# ---------------------------------------------------------------- sections


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        (("erm",), {"scores", "steps", "samples"}),
        (("group-dro", "tro-uniform"), {"scores", "weights", "steps"}),
        (tuple(ACCURACY), {"scores", "learned", "weights", "steps", "samples"}),
    ],
)
def test_sections_appear_with_the_runs_they_need(
    methods: tuple[str, ...], expected: set[str], pictures: Results
) -> None:
    part = only(pictures, *methods).parts[0]
    assert {section.name.split("-")[0] for section in images.sections(part)} == expected


def test_several_penalties_are_a_curve(pictures: Results, chips: Results) -> None:
    (part,) = image_outcome(("photo",), ("erm", "tro-data", "tro-data-0.1", "tro-data-10"), seeds=1).parts
    (section,) = sections.penalty_section(part)
    assert section.title == "Test accuracy (%) against λ"
    assert sections.penalty_section(pictures.parts[0]) == [], "one λ is no curve"
    (section,) = sections.penalty_section(chips.parts[0])
    lines = {"ERM, test", "TRO-data, test", "TRO-data, validation, training events"}
    assert {"0.001", "0.1", "1", "10"} | lines <= set(texts(section.svg))


# ---------------------------------------------------------------- pictures


def test_samples_show_every_case_and_who_was_right(pictures: Results) -> None:
    part = pictures.parts[0]
    (section,) = images._samples(part)
    guesses = [text for text in texts(section.svg) if text[0] in "✓✗"]
    assert len([text for text in texts(section.svg) if text in CLASSES]) == 12
    pairs = {tuple(guess[0] for guess in guesses[i : i + 2]) for i in range(0, len(guesses), 2)}
    assert pairs == {("✓", "✓"), ("✓", "✗"), ("✗", "✓"), ("✗", "✗")}
    assert section.svg.count("data:image/png;base64,") == 12
    with pytest.raises(DataError, match="no store of images"):
        images._samples(replace(part, data={part.variant.name: replace(part.loaded, store=None)}))


def test_tiles_have_their_score(chips: Results) -> None:
    (section,) = floods._samples(chips.parts[0])
    shown = texts(section.svg)
    assert {"radar, VV", "label", "water missed", "land taken for water"} <= set(shown)
    assert sum(text.startswith("IoU 0.") for text in shown) == 6
    assert shown.count("no water, none found") == 2


def test_a_run_without_its_tiles_is_named(chips: Results, tmp_path: Path) -> None:
    part = replace(chips.parts[0], store=Store(tmp_path))
    with pytest.raises(DataError, match=r"has no model of erm-s0-.*run it again"):
        floods._samples(part)
    path = Store(tmp_path).path(next(one["key"] for one in part.records if one["method"] == "erm"), "safetensors")
    path.parent.mkdir()
    save_file({"other": np.zeros(1, np.float32)}, path)
    with pytest.raises(DataError, match=r"no tensor 'sample.water'"):
        floods._samples(part)


def test_tiles_of_another_size_are_refused() -> None:
    radar, label = make_chip("Ghana_100", side=64)
    with pytest.raises(DataError, match=r"\(64, 64\), ERM \(32, 32\).*another tile size"):
        Tile("a tile", radar[0], label, {"ERM": np.zeros((32, 32), np.float16)})


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0))
def test_iou_counts_only_pixels_with_a_label_and_a_measurement(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    label = rng.integers(-1, 2, (6, 6)).astype(np.int8)
    radar = np.where(rng.random((6, 6)) < 0.2, np.nan, -10.0)
    water = (rng.random((6, 6)) < share).astype(np.float16)
    counted = (label >= 0) & np.isfinite(radar)
    both, either = (counted & pixels for pixels in ((label == 1) & (water > 0.5), (label == 1) | (water > 0.5)))
    expected = both.sum() / either.sum() if either.any() else math.nan
    assert Tile("t", radar, label, {"m": water}).iou("m") == pytest.approx(expected, nan_ok=True)


def test_pixels_have_the_kind_of_their_label_and_prediction() -> None:
    radar = np.array([[-20.0, -20.0, -5.0, np.nan]])
    tile = Tile("t", radar, np.array([[1, 1, 0, -1]], dtype=np.int8), {"m": np.array([[0.9, 0.1, 0.1, 0.9]])})
    assert tile.kinds("m").tolist() == [[WATER, MISSED, LAND, MISSING]]


# ---------------------------------------------------------------- sentences


def test_a_subset_of_the_chips_is_marked(chips: Results) -> None:
    loaded = list(chips.data.values())
    left_out = "Left out, without a usable pixel: 'Paraguay_34417'."
    assert floods.remarks(loaded)[1:] == [left_out]
    assert floods.remarks(loaded)[0].startswith("A subset: 14 of the 446 hand-labelled chips were at hand.")
    assert floods.remarks([replace(each, about={**each.about, "subset": False}) for each in loaded]) == [left_out]
    assert floods.remarks([replace(each, about={"subset": False, "dropped": []}) for each in loaded]) == []


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
    names = {f"{name}-north-south-{w}" for name in ("scores", "states", "importance", "epochs", "learned")
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
    assert "How much each training state counts" not in again
