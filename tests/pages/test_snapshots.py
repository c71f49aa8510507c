"""Text of one page of every kind, as stored in ``snapshots``.

After a change of texts, run these tests with ``TOPORO_SNAPSHOTS=write`` and read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.pages.conftest import WRITERS
from tests.pages.page import Page, figures, loads_nothing

SNAPSHOTS = Path(__file__).with_name("snapshots")
#: Figures of each page.
FIGURES = {"linear": 3, "network": 2, "classes": 3, "kriged": 2, "auto": 2, "doctor": 2, "compare": 1,
           "benchmark": 5, "images": 6, "chips": 8, "theory": 4}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_a_page_has_the_stored_text(name: str, written_page: Callable[[str], Path]) -> None:
    text = Page(written_page(name).read_text(encoding="utf-8")).snapshot
    stored = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("TOPORO_SNAPSHOTS") == "write":
        stored.write_text(text, encoding="utf-8")
    assert text == stored.read_text(encoding="utf-8"), "after a change of texts: TOPORO_SNAPSHOTS=write"


@pytest.mark.parametrize("name", WRITERS)
def test_a_page_is_one_valid_file_that_loads_nothing(name: str, written_page: Callable[[str], Path]) -> None:
    html = written_page(name).read_text(encoding="utf-8")
    page = Page(html)
    assert loads_nothing(html)
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(identifiers)) == len(identifiers)
    described = [attributes["aria-label"] or "" for _, attributes in page.tags if attributes.get("role") == "img"]
    assert all(re.fullmatch(r".+\. .+", text) for text in described), "a title alone describes no figure"
    pictures = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(pictures) == figures(html) == FIGURES[name]
    for picture in pictures:
        ElementTree.fromstring(picture)  # our own
        used = set(re.findall(r"url\(#([^)]+)\)", picture))
        assert used <= set(re.findall(r'\bid="([^"]+)"', picture)), "a clip path of another figure would cut it"


@pytest.mark.parametrize("name", ["linear", "auto", "doctor", "compare", "images"])
def test_the_same_input_gives_the_same_bytes(name: str, written_page: Callable[[str], Path], tmp_path: Path) -> None:
    WRITERS[name](tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == written_page(name).read_bytes()
