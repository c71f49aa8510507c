"""The documentation site: every block of code on its pages runs, and what builds it does what it says."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import distributed as dist

from tests.commands import check_line
from tests.test_docs import DOCS, PAGES, ROOT, WRITTEN, write_states
from tests.test_readme import rows_of_states

BUILT = DOCS / "_build" / "html"
BLOCKS = re.compile(r"^```([^\n`]*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
#: Pages whose Python is run here, from the top to the bottom of a page.
RUN = (
    "quickstart.md",
    "method.md",
    "faq.md",
    "api/index.md",
    "guides/choosing-penalty.md",
    "guides/saw.md",
    "guides/distributed.md",
    "guides/many-machines.md",
)
#: Where the other pages' blocks are held, and by which words a test there asks for them.
HELD = {
    "README.md": ("test_readme.py", 'block("{}"'),
    "guide.md": ("test_docs.py", 'blocks("{}")'),
    "CONTRIBUTING.md": ("recipes.py", None),  # tests/test_add_a_thing.py and others follow them word for word
    "images.md": ("test_images_page.py", None),
    "tutorial.md": ("test_tutorial.py", None),
    "errors.md": ("test_errors_page.py", None),
}


def blocks(page: Path, language: str) -> list[str]:
    return [source for of, source in BLOCKS.findall(page.read_text(encoding="utf-8")) if of == language]


@pytest.fixture(scope="module")
def extensions() -> Iterator[Callable[[str], Any]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(DOCS / "_ext"))
        patched.syspath_prepend(str(ROOT / "tools"))
        yield importlib.import_module


# ---------------------------------------------------------------- code on pages


@pytest.mark.parametrize("name", RUN)
def test_the_python_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_states(tmp_path, monkeypatch)
    sources = blocks(DOCS / name, "python")
    assert sources
    names = rows_of_states()
    try:
        for source in sources:
            exec(source, names)
    finally:
        if dist.is_initialized():
            time.sleep(0.5)  # as the page says
            dist.destroy_process_group()
    if name == "quickstart.md":
        assert (names["low"] < names["high"]).all()
        assert "best" in capsys.readouterr().out


def test_the_commands_of_the_quick_start_run(toporo: Callable[..., Any], tmp_path: Path) -> None:
    exec(blocks(DOCS / "quickstart.md", "python")[0], {})
    lines = blocks(DOCS / "quickstart.md", "sh")[1].replace("\\\n", " ").splitlines()
    assert len(lines) == 6
    for line in lines:
        words = shlex.split(line)
        words = words[: words.index(">")] if ">" in words else words
        if words[1] == "fit":
            words += ["--fast"]  # the vote takes its time, and has tests of its own
        done = toporo(*words[1:])
        assert done.code == 0, f"{line}\n{done.err}"
    assert (tmp_path / "report.html").exists()


def typed() -> list[Any]:
    """Lines of shell that call toporo, by page; errors.md shows mistakes."""
    pages = [page for page in PAGES if page.name != "errors.md"]
    lines = [
        (page, line)
        for page in pages
        for source in [*blocks(page, "sh"), *blocks(page, "")]
        for line in source.replace("\\\n", " ").splitlines()
        if line.startswith("toporo ")
    ]
    return [pytest.param(line, id=f"{page.name}:{line[:50]}") for page, line in dict.fromkeys(lines)]


@pytest.mark.parametrize("line", typed())
def test_every_command_on_a_page_can_be_typed(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    check_line(words[: words.index(">")] if ">" in words else words)


def test_every_page_with_code_is_held() -> None:
    run = {DOCS / name for name in RUN}
    bare = [page for page in PAGES if page not in run and page.name not in HELD and blocks(page, "python")]
    assert bare == []
    assert [name for name, (file, _) in HELD.items() if not (ROOT / "tests" / file).exists()] == []


@pytest.mark.parametrize("name", ["README.md", "guide.md"])
def test_every_section_with_code_is_held(name: str) -> None:
    page = ROOT / name if name == "README.md" else DOCS / name
    file, words = HELD[name]
    tests = (ROOT / "tests" / file).read_text(encoding="utf-8")
    _, *sections = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    titles = [section.split("\n", 1)[0] for section in sections if "```python" in section]
    assert len(titles) >= 5
    assert [title for title in titles if words.format(title) not in tests] == []


# ---------------------------------------------------------------- the built site, in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not (BUILT / "search.html").exists():
        pytest.skip("the site is not built: make docs")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no Chromium here")
    with api.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


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


@pytest.mark.slow
def test_search_works_offline(browser: Any) -> None:
    page = browser.new_page()
    page.goto((BUILT / "search.html").as_uri() + "?q=betweenness")
    page.wait_for_selector("#search-results li a:has-text('The method')")  # they come one after the other


@pytest.mark.slow
def test_nothing_on_the_site_keeps_people_from_reading_it(browser: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for scheme in ("light", "dark"):
        page = browser.new_context(color_scheme=scheme).new_page()
        for name in ("index", "gallery/region_folds", "method"):
            page.goto((BUILT / f"{name}.html").as_uri())
            faults = axe.run(page).response["violations"]
            assert [(each["id"], each["nodes"][0]["html"][:80]) for each in faults] == [], (name, scheme)


# ---------------------------------------------------------------- what builds it


def test_links_lead_to_the_page_that_shows_a_file(extensions: Callable[[str], Any]) -> None:
    tool = extensions("repository")
    here = DOCS / "speed.md"
    code = "\n```\n[e](f)\n```"
    text = "[a](guide.md#no-map) [b](../examples/images.py) [c](../src/toporo/files.py) ![d](images/x.svg)"
    led = "[a](_pages/guides/no-map.md) [b](gallery/images.rst) c ![d](images/x.svg)"
    assert tool.relinked(text + code, here, here) == led + code
    copy = tool.COPIES / "contributing.md"
    assert tool.relinked("[g](docs/glossary.md#groups)", ROOT / "CONTRIBUTING.md", copy) == "[g](../glossary.md#groups)"


def test_a_page_ends_with_the_pictures_of_its_examples(extensions: Callable[[str], Any]) -> None:
    tool = extensions("repository")
    page = tool.with_pictures("# A\n[b](../examples/images.py), [c](../../examples/images.py)\n")
    assert page.count("\n   ../examples/images.py\n") == 1
    assert page.count(".. minigallery::") == 1
    assert tool.with_pictures("# A\n") == "# A\n"


def test_every_section_of_the_guide_is_a_page_of_the_site(extensions: Callable[[str], Any]) -> None:
    pages = extensions("repository").guide_pages()
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert len(pages) >= 14
    assert [page.stem for page in pages if f"_pages/guides/{page.stem}" not in index] == []


def test_every_page_is_in_the_sites_contents() -> None:
    index = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("index.md", "api/index.md"))
    names = {str(page.relative_to(DOCS).with_suffix("")).removeprefix("api/") for page in WRITTEN}
    assert [name for name in names - {"README", "index", "guide"} if name not in index] == []


def test_parameters_become_lists(extensions: Callable[[str], Any]) -> None:
    lines = ["It does.", "", "Parameters", "----------", "x, y : inputs, and", "    targets.", "", ">>> 1", "1"]
    done = extensions("house_docstrings").sections(lines)
    assert "**x**, **y**" in done
    assert done[done.index("**x**, **y**") + 1 :][:2] == ["    inputs, and", "    targets."]
    assert done[-2:] == [">>> 1", "1"]


def test_requests_to_the_net_are_seen(extensions: Callable[[str], Any]) -> None:
    asked = extensions("build_site").requests_of
    assert (
        asked('<img src="a.png"><a href="https://example.org">read</a><svg xmlns="http://www.w3.org/2000/svg">') == []
    )
    assert (
        len(asked('<script src="https://example.org/a.js"></script><link rel="stylesheet" href="//b.org/c.css">')) == 2
    )
    assert len(asked("@font-face { src: url(https://example.org/a.woff2) }")) == 1


def test_pages_are_mended_once(extensions: Callable[[str], Any]) -> None:
    mended = extensions("accessible").mended
    page = mended('<pre><span></span>a</pre><a class="reference internal" href="b.html"><span class="doc">B</span></a>')
    assert '<pre tabindex="0">' in page
    assert 'href="b.html" aria-label="B"' in page
    assert mended(page) == page


def test_every_example_has_its_place_in_the_gallery(extensions: Callable[[str], Any]) -> None:
    names = [path.stem for path in (ROOT / "examples").glob("*.py")]
    assert len(names) >= 15
    assert sorted(extensions("gallery_look").ORDER) == sorted(names)
    for name in names:
        text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
        title, line = text.splitlines()[1:3]
        assert line == "=" * len(title), name
        assert text.rstrip().endswith("plt.show()"), f"{name} draws something"
