"""Templates: one base, names escaped, nothing silently left out."""

from __future__ import annotations

from importlib.resources import files
from types import SimpleNamespace

import pytest
from jinja2 import UndefinedError

from tests.pages.page import Page
from toporo.pages.render import Grid, Section, Verdict, render

PAGES = ("benchmark.html", "doctor.html", "model.html", "theory.html")
SECTION = Section(
    "one",
    "Title",
    "Text",
    "<svg></svg>",
    grids=(
        Grid(("a", "b"), (("x", "1"), ("total", "2")), words=("a",), marked={1: "total"}),
        Grid(("c",), (("3",),), title="More", folded=True, wide=True),
    ),
    statement="Claim",
    findings=("Seen",),
    assumptions=("If",),
)


def cell(text: str, **more: bool) -> SimpleNamespace:
    return SimpleNamespace(**({"text": text, "oracle": False, "best": False, "paper": False} | more))


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
    page = render("theory.html", title="A <b>", caption="C.", verdict=None, sections=[SECTION], settings=[("k", "<v>")])
    text = texts(page)
    assert text["h1"] == ["A <b>"]
    assert text["td"] == ["x", "1", "total", "2", "3", "k", "<v>"]
    words = ("Claim", "Text", "<svg>", "Seen", 'class="total">', "More", "What this rests on:", "If", "Settings")
    places = [page.index(word) for word in words]
    assert places == sorted(places)


def test_what_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="settings"):
        render("theory.html", title="A", caption="C.", verdict=None, sections=[])


@pytest.mark.parametrize("several", [False, True])
def test_a_benchmark_has_chapters_only_where_there_are_several(several: bool) -> None:
    line = SimpleNamespace(cells=[cell("ERM"), cell("0.5", best=True)], control=True, starts_section=False)
    table = SimpleNamespace(heads=[cell("method"), cell("last", oracle=True)], lines=[line])
    chapter = SimpleNamespace(title="N→S", caption="Seen.", table=table, findings=["Level."], sections=[SECTION])
    page = render(
        "benchmark.html", title="T", verdict=Verdict("Level."), metric="error", moment="epoch",
        when="after the last epoch", several=several,
        notices=["A subset."], overview=table if several else None, shared=[], chapters=[chapter], notes=["Not run."],
        settings=[],
    )  # fmt: skip
    text = texts(page)
    assert ("All variants" in text["h2"]) == ("N→S" in text["h2"]) == several
    assert "Title" in text["h3" if several else "h2"]
    assert {"Level.", "Not run."} <= set(text["li"])
    assert text["td"].count("0.5") == 1 + several
