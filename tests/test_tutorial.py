"""docs/tutorial.md: its commands can be typed, its outputs are what they print, and what it says of them is so."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toporo.tables import load_model

ROOT = Path(__file__).parents[1]
#: Read once: the tutorial is run once for several tests, and others unset the variable.
DATA = os.environ.get("TOPORO_DATA")
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.compile(r"```(\w+)\n(.*?)```\n", flags=re.DOTALL)
PROSE = re.sub(r"<!--.*?-->", "", BLOCKS.sub("", PAGE))


@pytest.fixture(scope="module")
def tool() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "tools"))
        yield importlib.import_module("tutorial_pictures")


# ---------------------------------------------------------------- without data


def test_every_picture_is_shown_and_described() -> None:
    shown = dict(re.findall(r"!\[([^\]]*)\]\(images/([^)]+)\)", PAGE))
    assert set(shown.values()) == {path.name for path in (ROOT / "docs" / "images").glob("tutorial-*")}
    assert all(len(text.split()) >= 8 for text in shown)


def test_figures_in_the_text_are_those_in_the_outputs() -> None:
    printed = "".join(source for language, source in BLOCKS.findall(PAGE) if language == "text")
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


@pytest.mark.slow
def test_what_is_said_of_the_model_is_so(done: tuple[Path, dict[str, str]]) -> None:
    model = load_model(done[0] / "model")
    table = {row.group: row for row in model.explain()}
    assert max(table.values(), key=lambda row: row.prior).group == "MO"
    assert table["MO"].weight < table["MO"].prior / 2, "it gave up most of its share"
    most = max(row.weight for row in table.values())
    assert table["RI"].weight == pytest.approx(most), "it counts as much as any"
    assert most == pytest.approx(12 / 70), "all that twelve rows may have"
    assert sum(row.weight == pytest.approx(most) for row in table.values()) == 3
    assert max(table.values(), key=lambda row: row.loss).group == "RI"
    choice = model.estimator.choice_
    scores = [score.score for score in choice.scores]
    assert max(2 * score.spread for score in choice.scores) > max(scores) - min(scores), "bars longer than differences"
    assert choice.penalty < 1, "the larger penalty of the last section is another one"


@pytest.mark.slow
def test_what_is_said_of_the_errors_is_so(done: tuple[Path, dict[str, str]]) -> None:
    model, control, hindsight = (
        load_model(done[0] / name).evaluate(done[0] / "temperatures.csv", unseen=True, resamples=20)
        for name in ("model", "control", "hindsight")
    )
    ours, theirs = ({hop: scores["rmse"].value for hop, scores in e.by_hop.items()} for e in (model, control))
    assert ours["1"] < ours["2"] < ours["3"], "the error grows over the first three hops"
    assert ours["1"] < theirs["1"]
    assert all(ours[hop] > theirs[hop] for hop in ("2", "3"))
    worse, better = map(float, re.findall(r"from (\S+) worse to (\S+) better", done[1]["evaluate"])[0])
    assert min(worse, better) > 0.05, "zero lies well inside"
    assert model.worst.group == "ND"
    assert model.pooled["r2"].value > 0.9
    assert sum(score.metrics["r2"].value < 0 for score in model.groups) > 20
    ahead = re.search(r"better in (\d+) of 24", done[1]["hindsight"])
    assert ahead is not None
    assert int(ahead[1]) > 12
    assert hindsight.overall["rmse"].value < control.overall["rmse"].value
