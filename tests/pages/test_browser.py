"""Pages in a real browser: any screen, dark mode, mouse and keyboard, and without the script."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pages.conftest import STATES

PAGES = ("linear", "auto", "doctor", "compare", "benchmark", "theory")
OPEN_ALL = "document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"
TEXT_SIZES = """() => [...document.querySelectorAll(".plot svg")].flatMap((svg) => {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return [...svg.querySelectorAll("text")].map((text) => scale * parseFloat(getComputedStyle(text).fontSize));
})"""


@pytest.fixture
def visit(browser: Any, written_page: Callable[[str], Path]) -> Iterator[Callable[..., Any]]:
    """Open a page in a window of its own; it must not complain, and request nothing but itself."""
    contexts, complaints, requests = [], [], []

    def open_page(name: str, width: int = 1400, scheme: str = "light", **options: Any) -> Any:
        options = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme, **options}
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(written_page(name).as_uri())
        return page

    yield open_page
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    for context in contexts:
        context.close()


def brightness(page: Any, query: str = "body") -> float:
    from PIL import Image

    shot = page.locator(query).first.screenshot(animations="disabled")
    return float(np.asarray(Image.open(io.BytesIO(shot)).convert("L"), dtype=float).mean())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_any_screen_and_everybody_can_read_it(visit: Callable[..., Any], name: str) -> None:
    """Accessibility is checked by axe-core, with all rules."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for width, scheme in ((1400, "light"), (360, "dark")):
        page = visit(name, width, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator(".plot svg:visible").count() == page.locator("figure").count()
        assert np.median(page.evaluate(TEXT_SIZES)) >= 8.5
        page.evaluate(OPEN_ALL)
        results = axe.run(page)
        assert results.violations_count == 0, results.generate_report()
        assert brightness(page) > 200 if scheme == "light" else brightness(page) < 90
    page.emulate_media(media="print")
    assert brightness(page, "header.top") > 200, "paper is white"


def test_the_switch_of_modes_is_kept(visit: Callable[..., Any]) -> None:
    page = visit("linear")
    page.click("#theme")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.click("#theme")
    assert brightness(page) > 200


def test_a_group_is_highlighted_everywhere_by_mouse_and_by_keyboard(visit: Callable[..., Any]) -> None:
    page = visit("linear", 420)
    mark = page.locator('#weights svg .hit[data-key="Texas"]').first
    mark.scroll_into_view_if_needed()
    mark.hover()
    for section in ("#groups", "#weights", "#evaluation"):
        assert page.locator(f'{section} .hit.lit[data-key="Texas"]').count()
    assert page.locator('tr.lit[data-key="Texas"]').count() == 2
    facts = page.locator("#card").inner_text()
    for words in ("Texas", "rows", "prior", "weight", "loss", "edges away"):
        assert words in facts
    page.mouse.move(2, 2)
    assert page.locator(".lit").count() == 0
    page.locator("#weights .plot").focus()
    keys = []
    for arrow in ("ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(arrow)
        keys.append(page.locator("#card b").inner_text())
    assert keys[0] == keys[2] != keys[1]
    page.keyboard.press("Escape")
    assert page.locator(".lit").count() == 0


def test_a_line_is_set_off_from_the_others(visit: Callable[..., Any]) -> None:
    page = visit("benchmark")
    figure = page.locator("[id^=epochs] figure").first
    figure.locator('.line[data-key="Group DRO"]').last.hover()
    page.wait_for_timeout(300)

    def opacity(key: str) -> float:
        line = figure.locator(f'.line[data-key="{key}"]').first
        return float(line.evaluate("line => getComputedStyle(line).opacity"))

    assert opacity("Group DRO") == 1.0
    assert opacity("ERM") < 0.5
    page.mouse.move(2, 2)
    figure.locator(".plot").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_timeout(300)
    shown = page.locator("#card b").inner_text()
    assert (opacity(shown), opacity("Group DRO" if shown == "ERM" else "ERM")) == (1.0, pytest.approx(0.15))


def test_tables_sort(visit: Callable[..., Any]) -> None:
    page = visit("linear")
    page.evaluate(OPEN_ALL)
    table = page.locator("#evaluation details table")
    assert table.locator("tbody tr:visible").count() == len(STATES)
    head = table.locator("th", has_text="RMSE")
    column = table.locator(f"tbody tr td:nth-child({head.evaluate('head => head.cellIndex') + 1})")
    for order in ("descending", "ascending"):
        head.locator("button").click()
        numbers = [float(text.split()[0]) for text in column.all_inner_texts()]
        assert numbers == sorted(numbers, reverse=order == "descending")
        assert head.get_attribute("aria-sort") == order


def test_without_its_script_a_page_shows_everything(visit: Callable[..., Any]) -> None:
    page = visit("linear", java_script_enabled=False)
    page.locator("#weights summary").click()
    assert page.locator("#weights tbody tr:visible").count() == len(STATES) - 4
    assert page.locator("figure svg:visible").count() == page.locator("figure").count()
    assert page.locator(".hit > title").count() > len(STATES)
    assert not page.locator("#theme").is_visible()
