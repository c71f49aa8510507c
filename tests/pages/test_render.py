"""Templates: one base, names escaped, nothing silently left out."""

from __future__ import annotations

from importlib.resources import files
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from jinja2 import UndefinedError

from tests.pages.page import Page
from toporo.pages.charts import COLORS
from toporo.pages.render import Section, Verdict, night_colors, render
from toporo.pages.table import Cell, Table
from toporo.topology.draw import OTHER_COLOR, TEST_COLOR, TRAIN_COLOR

PAGES = ("benchmark.html", "doctor.html", "model.html", "theory.html")
SECTION = Section(
    "one",
    "Title",
    "Text",
    "<svg></svg>",
    tables=(
        Table(("a", "b"), (("x", "1"), ("total", "2")), words=("a",), row_styles={1: "total"}),
        Table(("c",), (("3",),), title="More", folded=True, wide=True),
    ),
)


def texts(page: str) -> dict[str, list[str]]:
    """By tag."""
    assert page.startswith("<!doctype html>")
    return Page(page).by_tag


@pytest.mark.parametrize("name", PAGES)
def test_the_style_has_one_home(name: str) -> None:
    text = files("toporo.pages").joinpath(name).read_text(encoding="utf-8")
    assert text.startswith('{% extends "base.html" %}')
    assert "<style>" not in text
    assert "font: 16px" not in text


def test_a_section_shows_all_it_has_in_order() -> None:
    page = render("base.html", title="A <b>", caption="C.", verdict=None, sections=[SECTION], settings=[("k", "<v>")])
    text = texts(page)
    assert text["h1"] == ["A <b>"]
    assert text["td"] == ["x", "1", "total", "2", "3", "k", "<v>"]
    words = ("Text", "<svg>", 'class="total">', "More", "Settings")
    places = [page.index(word) for word in words]
    assert places == sorted(places)


def test_what_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="settings"):
        render("base.html", title="A", caption="C.", verdict=None, sections=[])


@pytest.mark.parametrize("several", [False, True])
def test_a_benchmark_has_chapters_only_where_there_are_several(several: bool) -> None:
    table = Table(("method", Cell("last", "oracle")), (("ERM", Cell("0.5", "best")),), row_styles={0: "control"})
    chapter = SimpleNamespace(title="N→S", caption="Seen.", table=table, findings=["Level."], sections=[SECTION])
    page = render(
        "benchmark.html", title="T", verdict=Verdict("Level."), metric="error", oracle="Oracle.",
        when="after the last epoch", several=several,
        notices=["A subset."], overview=table if several else None, shared=[], chapters=[chapter], notes=["Not run."],
        settings=[],
    )  # fmt: skip
    text = texts(page)
    assert ("All variants" in text["h2"]) == ("N→S" in text["h2"]) == several
    assert "Title" in text["h3" if several else "h2"]
    assert {"Level.", "Not run."} <= set(text["li"])
    assert text["td"].count("0.5") == 1 + several


#: Linear RGB as people without one kind of cone see it (Machado, Oliveira and Fernandes 2009, severity 1).
BLIND = {
    "red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "none": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
}
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]


def seen(color: str, cones: str) -> np.ndarray:
    """A colour as it is seen, in CIELAB, where 10 is a difference that nobody overlooks."""
    parts = np.array(list(bytes.fromhex(color[1:]))) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = np.array(TO_XYZ) @ np.clip(np.array(BLIND[cones]) @ linear, 0, 1) / (0.95047, 1.0, 1.08883)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("cones", BLIND)
@pytest.mark.parametrize("colors", [COLORS, (TRAIN_COLOR, TEST_COLOR, OTHER_COLOR)])
def test_colours_are_told_apart_by_day_and_night_whatever_cones_are_missing(
    colors: tuple[str, ...], cones: str
) -> None:
    for shown in (colors, [night_colors()[color] for color in colors]):
        apart = {pair: np.linalg.norm(np.subtract(*(seen(c, cones) for c in pair))) for pair in combinations(shown, 2)}
        assert min(apart.values()) > 15, min(apart, key=apart.__getitem__)
