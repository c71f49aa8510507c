"""The documentation site: it opens in a browser, and what builds it does what it says."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.documents import DOCS, ROOT, text_of

BUILT = DOCS / "_build" / "html"


# ---------------------------------------------------------------- the built site, in a browser


built = pytest.mark.skipif(not (BUILT / "search.html").exists(), reason="the site is not built: make docs")


@built
@pytest.mark.slow
def test_the_site_opens_offline_on_any_screen(browser: Any) -> None:
    page = browser.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if asked.url.startswith("http") else None)
    for name in ("index", "gallery/index", "gallery/images", "method", "api/names/toporo.TRORegressor", "faq"):
        for width in (360, 1400):
            page.set_viewport_size({"width": width, "height": 800})
            page.goto((BUILT / f"{name}.html").as_uri())
            wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, f"{name} scrolls sideways at {width} pixels"
    assert wrong == []
    page.goto((BUILT / "search.html").as_uri() + "?q=betweenness")  # a file may not fetch others for excerpts
    page.wait_for_selector("#search-results li a:has-text('The method')")  # they come one after the other


@built
@pytest.mark.slow
def test_nothing_on_the_site_keeps_people_from_reading_it(browser: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for scheme in ("light", "dark"):
        page = browser.new_context(color_scheme=scheme).new_page()
        for name in ("index", "gallery/region_folds", "method"):
            page.goto((BUILT / f"{name}.html").as_uri())
            faults = axe.run(page).response["violations"]
            assert [(fault["id"], fault["nodes"][0]["html"][:80]) for fault in faults] == [], (name, scheme)


# ---------------------------------------------------------------- what builds it


def test_requests_to_the_net_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    asked = importlib.import_module("build_site").requests_of
    harmless = '<img src="a.png"><a href="https://example.org">read</a><svg xmlns="http://www.w3.org/2000/svg">'
    asking = '<script src="https://example.org/a.js"></script><link rel="stylesheet" href="//b.org/c.css">'
    style = "@font-face { src: url(https://b.org/a.woff2) }"
    assert [len(asked(text)) for text in (harmless, asking, style)] == [0, 2, 1]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_has_a_title_and_a_picture(path: Path) -> None:
    text = text_of(path)
    title, line = text.splitlines()[1:3]
    assert line == "=" * len(title)
    assert text.rstrip().endswith("plt.show()")
