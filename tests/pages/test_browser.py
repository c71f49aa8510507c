"""Pages in a real browser: they fit any screen, follow the dark, can be explored and read by everybody."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.paper.theory.cases import tiny_study
from tests.tables.cases import river
from tests.tables.test_contest import EVEN, WAVY, made
from toporo.doctor import examine
from toporo.pages.compare import write_comparison
from toporo.pages.doctor import write_doctor_report
from toporo.pages.model import write_model_report
from toporo.paper.report import write_report
from toporo.paper.runner import reproduce
from toporo.paper.theory.page import write_theory_report
from toporo.tables import fit_table

api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
BROWSER = os.environ.get("TOPORO_BROWSER") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium: install it, or name it by TOPORO_BROWSER")

PAGES = ("model", "auto", "doctor", "compare", "benchmark", "theory")
STATES = ("Washington", "Oregon", "California", "Nevada", "Idaho", "Utah", "Arizona", "Montana", "Wyoming", "Colorado",
          "New Mexico", "Texas", "Oklahoma", "Kansas", "Nebraska", "South Dakota", "North Dakota",
          "Minnesota")  # fmt: skip
BORDERS = list(pairwise(STATES))
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One page of every kind."""
    out = tmp_path_factory.mktemp("browser")
    table = river(groups=STATES, rows=12)
    about: dict[str, Any] = {"target": "y", "group": "station", "graph": BORDERS, "test_groups": list(STATES[-4:])}
    model = fit_table(table, **about, model="linear")
    judged = model.evaluate(river(1, groups=STATES, rows=12), resamples=50)
    write_model_report(model, out / "model.html", evaluation=judged, source="new.csv")
    votes = fit_table(table, **about)
    write_model_report(votes, out / "auto.html", evaluation=judged, against=("control", judged))
    write_doctor_report(examine(table, **about), out / "doctor.html")
    contest = made({"auto": EVEN, "mine": WAVY, "constant": [9.0] * 8}, {})
    facts = {"source": "sales.csv", "target": "sold", "rows": 80, "groups": 8}
    write_comparison(type(contest)(**(vars(contest) | {"about": facts})), out / "compare.html")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TOPORO_DATA", raising=False)
        methods = ["erm", "group-dro", "iw-erm", "sd", "tro-physical"]
        outcome = reproduce("dg15", out / "dg15", seeds=1, methods=methods, source="generated")
    write_report(outcome, out / "dg15").rename(out / "benchmark.html")
    write_theory_report(tiny_study(), out / "theory").rename(out / "theory.html")
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield chromium
        chromium.close()


class View:
    """A page in a window of its own, and what it complained of or asked for."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def count(self, query: str) -> int:
        return int(self.page.locator(query).count())

    def picture(self, query: str = "body") -> Any:
        """Of the first such element, as rows of pixels from 0 to 255."""
        from PIL import Image

        shot = self.page.locator(query).first.screenshot(animations="disabled")
        return np.asarray(Image.open(io.BytesIO(shot)).convert("L"), dtype=float)


@pytest.fixture
def view(browser: Any, folder: Path) -> Iterator[Any]:
    opened: list[View] = []

    def open_page(name: str, width: int = 1400, scheme: str = "light") -> View:
        opened.append(View(browser, folder / f"{name}.html", width, scheme))
        return opened[-1]

    yield open_page
    for each in opened:
        assert each.complaints == []
        assert [url for url in each.requests if not url.startswith(("file:", "data:"))] == []
        each.context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_any_screen(view: Any, name: str) -> None:
    for width in (360, 420, 1400):
        seen = view(name, width)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        shown = seen.page.locator(".plot svg:visible")
        assert shown.count() == seen.count("figure")
        # What figures say is large enough to read, however narrow the screen.
        sizes = seen.page.evaluate(
            """() => [...document.querySelectorAll(".plot svg")].filter((svg) => svg.getClientRects().length)
            .flatMap((svg) => {
              const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
              const size = (text) => scale * parseFloat(getComputedStyle(text).fontSize);
              return [...svg.querySelectorAll("text")].map(size);
            })"""
        )
        assert np.median(sizes) >= 8.5


@pytest.mark.parametrize("name", PAGES)
def test_everybody_can_read_it(view: Any, name: str) -> None:
    """By axe-core, with nothing left out."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for width, scheme in ((1400, "light"), (360, "dark")):
        seen = view(name, width, scheme)
        seen.page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        results = axe.run(seen.page)
        assert results.violations_count == 0, results.generate_report()
    seen.page.evaluate("document.querySelector('h1').style.color = '#222'")
    assert axe.run(seen.page, options={"runOnly": ["color-contrast"]}).violations_count == 1, "what is wrong is found"


@pytest.mark.parametrize("name", PAGES)
def test_figures_follow_the_dark(view: Any, name: str) -> None:
    day, night = (view(name, 1400, scheme) for scheme in ("light", "dark"))
    assert day.picture().mean() > 200
    assert night.picture().mean() < 90
    for seen in (day, night):
        paper = seen.picture("figure svg")[:3, :3].mean()  # no box around a figure
        assert abs(paper - seen.picture("h1")[0, 0]) < 3
    night.page.emulate_media(media="print")
    assert night.picture("header.top").mean() > 200, "paper is white"


def test_the_switch_is_kept_and_reverses(view: Any) -> None:
    seen = view("model")
    assert seen.page.evaluate("document.documentElement.dataset.theme") == "light"
    seen.page.click("#theme")
    assert seen.page.evaluate("document.documentElement.dataset.theme") == "dark"
    seen.page.reload()
    assert seen.page.evaluate("document.documentElement.dataset.theme") == "dark"
    seen.page.click("#theme")
    assert seen.picture().mean() > 200


@pytest.mark.parametrize("width", [1400, 420])
def test_a_group_lights_up_wherever_it_stands(view: Any, width: int) -> None:
    seen = view("model", width)
    mark = seen.page.locator('#weights svg:visible .hit[data-key="Texas"]').first
    mark.scroll_into_view_if_needed()
    mark.hover()
    places = ["#groups", "#weights", "#evaluation"]
    assert all(seen.count(f'{place} .hit.lit[data-key="Texas"]') for place in places)
    assert seen.count('tr.lit[data-key="Texas"]') == 2
    card = seen.page.locator("#card")
    assert card.is_visible()
    facts = card.inner_text()
    for words in ("Texas", "rows", "prior", "weight", "loss", "edges away"):
        assert words in facts
    seen.page.mouse.move(2, 2)
    assert seen.count(".lit") == 0
    assert not card.is_visible()


def test_arrows_go_from_group_to_group(view: Any) -> None:
    seen = view("model")
    box = seen.page.locator("#weights .plot")
    box.focus()
    keys = []
    for arrow in ("ArrowDown", "ArrowDown", "ArrowUp"):
        seen.page.keyboard.press(arrow)
        keys.append(seen.page.locator("#card b").inner_text())
    assert keys[0] == keys[2] != keys[1]
    assert set(keys) <= set(STATES)
    seen.page.keyboard.press("Escape")
    assert seen.count(".lit") == 0


def test_tables_sort_filter_and_fold(view: Any) -> None:
    seen = view("model")
    seen.page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    table = seen.page.locator("#evaluation details table")
    rows = table.locator("tbody tr:visible")
    assert rows.count() == 12, "a long table shows its beginning"
    seen.page.locator("#evaluation details .more button").click()
    assert rows.count() == len(STATES)
    head = table.locator("th", has_text="RMSE")
    column = head.evaluate("head => head.cellIndex")

    def numbers() -> list[float]:
        return [
            float(text.split()[0]) for text in table.locator(f"tbody tr td:nth-child({column + 1})").all_inner_texts()
        ]

    head.locator("button").click()
    assert numbers() == sorted(numbers(), reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    assert numbers() == sorted(numbers())
    table.locator("th").first.locator("button").click()
    names = table.locator("tbody tr td:first-child").all_inner_texts()
    assert names == sorted(names)
    seen.page.locator("#evaluation details input").fill("dakota")
    assert rows.count() == 2
    assert "2 of 18" in seen.page.locator("#evaluation details .tools").inner_text()


def test_curves_can_be_switched_off(view: Any) -> None:
    seen = view("benchmark")
    figure = seen.page.locator("[id^=epochs] figure").first
    button = figure.locator(".series button", has_text="Group DRO")
    lines = figure.locator('svg [data-series="Group DRO"]')
    assert lines.count() >= 2
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert all("off" in (lines.nth(i).get_attribute("class") or "") for i in range(lines.count()))
    others = figure.locator('svg [data-series="ERM"]')
    assert not any("off" in (others.nth(i).get_attribute("class") or "") for i in range(others.count()))
    button.dblclick()
    assert all("off" in (others.nth(i).get_attribute("class") or "") for i in range(others.count()))


def test_without_its_script_a_page_shows_all_there_is(browser: Any, folder: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "model.html").as_uri())
    assert page.locator("#table tbody tr").count() == len(STATES) - 4
    assert page.locator("figure svg:visible").count() == page.locator("figure").count()
    assert not page.locator("#theme").is_visible()
    context.close()
