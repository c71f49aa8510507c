"""docs/tutorial.md: its outputs are what its commands print, and its pictures can be drawn again."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.documents import DOCS, ROOT, code, prose, text_of

#: Read once: the tutorial is run once for several tests, and others unset the variable.
DATA = os.environ.get("TOPORO_DATA")
PAGE = text_of(DOCS / "tutorial.md")
PROSE = re.sub(r"<!--.*?-->", "", prose(PAGE))


@pytest.fixture(scope="module")
def tool() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "tools"))
        yield importlib.import_module("tutorial_pictures")


# ---------------------------------------------------------------- without data


def test_every_picture_is_shown_and_described() -> None:
    shown = dict(re.findall(r"!\[([^\]]*)\]\(images/([^)]+)\)", PAGE))
    assert set(shown.values()) == {path.name for path in (DOCS / "images").glob("tutorial-*")}
    assert all(len(text.split()) >= 8 for text in shown)


def test_figures_in_the_text_are_those_in_the_outputs() -> None:
    printed = "".join(code(PAGE, "text"))
    figures = re.findall(r"(?<![\w.])\d+\.\d+", PROSE.replace("1.2 MB", ""))
    assert [figure for figure in figures if figure not in printed] == []


def test_outputs_are_filled_in(tool: Any) -> None:
    blocks = tool.BLOCK.findall(PAGE)
    run, shown = ([block for block in blocks if block[0] == kind] for kind in ("run", "output"))
    assert {name for _, name, *_ in shown} <= {name for _, name, *_ in run}
    assert all(source.strip() for *_, source in shown)
    assert PAGE.count("<!-- ") == len(blocks), "a marker without a block of its own would be passed over"


# ---------------------------------------------------------------- with data


@pytest.fixture(scope="module")
def done(tool: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """The whole tutorial, run once: its folder, and what every step printed."""
    if not DATA:
        pytest.skip("TOPORO_DATA is not set: this test needs the published data files")
    folder = tmp_path_factory.mktemp("tutorial")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TOPORO_DATA", str(Path(DATA).resolve()))
        yield folder, tool.run_steps(PAGE, folder)


@pytest.mark.slow
def test_outputs_are_what_the_commands_print_now(tool: Any, done: tuple[Path, dict[str, str]]) -> None:
    assert tool.same(tool.with_outputs(PAGE, done[1]), PAGE), "run python tools/tutorial_pictures.py"


@pytest.mark.slow
def test_pictures_can_be_drawn_again(tool: Any, done: tuple[Path, dict[str, str]]) -> None:
    drawn = tool.pictures(done[0])
    assert set(drawn) == {path.name for path in tool.IMAGES.glob("tutorial-*")}
    assert all(svg.rstrip().endswith("</svg>") for svg in drawn.values())
