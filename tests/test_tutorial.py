"""docs/tutorial.md: its commands can be typed, its outputs are what they print, and what it says of them is so."""

from __future__ import annotations

import importlib
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import all_options, check_line

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


def typed() -> list[str]:
    """Every toporo command of the page."""
    lines = [line for language, source in BLOCKS.findall(PAGE) if language == "sh"
             for line in source.replace("\\\n", " ").splitlines()]  # fmt: skip
    return [line for line in lines if line.startswith("toporo ")]


# ---------------------------------------------------------------- without data


def test_every_command_of_the_way_is_shown() -> None:
    names = {line.split()[1] for line in typed()}
    assert {"data", "doctor", "fit", "explain", "evaluate", "predict", "report", "topology"} <= names


@pytest.mark.parametrize("line", sorted(set(typed())))
def test_every_command_can_be_typed(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    check_line(words[: words.index(">")] if ">" in words else words)


def test_options_in_the_text_exist() -> None:
    asked = set(re.findall(r"`[^`]*?(--[a-z-]+)", PROSE)) - {
        "--help",
        "--install-completion",
    }  # every command has the one, toporo itself the other
    assert len(asked) >= 5
    assert asked <= all_options()


def test_links_and_pictures_lead_somewhere() -> None:
    targets = {target.split("#")[0] for target in re.findall(r"\]\(([^)]+)\)", PROSE)}
    assert [target for target in targets if not (ROOT / "docs" / target).exists()] == []
    shown = {Path(target).name for target in targets if target.startswith("images/")}
    assert shown == {path.name for path in (ROOT / "docs" / "images").glob("tutorial-*")}


def test_every_picture_is_described_for_those_who_cannot_see_it() -> None:
    described = re.findall(r"!\[([^\]]*)\]", PAGE)
    assert len(described) == 5
    assert all(len(text.split()) >= 8 for text in described)


def test_pictures_are_readable_on_a_dark_page(tool: Any) -> None:
    for path in tool.IMAGES.glob("tutorial-*.svg"):
        start = path.read_text(encoding="utf-8")[:3000]
        assert 'fill="white"' in start or "fill: #ffffff" in start, path.name


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


def test_nothing_on_the_page_is_of_one_machine_alone() -> None:
    assert re.findall(r"(?:/home|/tmp|/root|/Users|/work)\b", PAGE) == []


def test_chosen_lines_show_where_others_were(tool: Any) -> None:
    lines = list("abcdef")
    assert tool._chosen(lines, "") == lines
    assert tool._chosen(lines, " [:2] [-1:]") == ["a", "b", "…", "f"]
    assert tool._chosen(lines, " [2:4]") == ["…", "c", "d", "…"]
    assert tool._chosen(lines, " [:3] [3:]") == lines


def test_pages_are_the_same_but_for_digits_that_are_the_machines(tool: Any) -> None:
    assert tool.same("66.08642535363637 and 2.02", "66.08642535363652 and 2.02")
    assert not tool.same("66.08642535363637", "66.08652535363637")
    assert not tool.same("2.02", "2.03")


def test_a_step_that_fails_stops_the_page(tool: Any, tmp_path: Path) -> None:
    page = "<!-- run: broken -->\n```sh\ntoporo explain nowhere\n```\n"
    with pytest.raises(RuntimeError, match="not a model folder"):
        tool.run_steps(page, tmp_path)


@pytest.mark.usefixtures("no_data")
def test_without_data_the_tool_says_so_and_writes_nothing(
    tool: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tutorial_pictures.py"])
    assert tool.main() == 1
    assert "toporo data get tpt48" in capsys.readouterr().err
    assert tool.PAGE.read_text(encoding="utf-8") == PAGE


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
def test_what_is_said_of_the_weights_is_so(done: tuple[Path, dict[str, str]]) -> None:
    from toporo.tables import load_model

    table = {row.group: row for row in load_model(done[0] / "model").explain()}
    assert max(table.values(), key=lambda row: row.prior).group == "MO"
    assert table["MO"].centrality > 0.5, "most walkers arrive there"
    assert table["MO"].weight < table["MO"].prior / 2, "it gave up most of its share"
    most = max(row.weight for row in table.values())
    assert table["RI"].weight == pytest.approx(most), "it counts as much as any"
    assert most == pytest.approx(12 / 70), "all that twelve rows may have"
    assert sum(row.weight == pytest.approx(most) for row in table.values()) == 3
    assert max(table.values(), key=lambda row: row.loss).group == "RI"
    assert table["RI"].hops > 3


@pytest.mark.slow
def test_what_is_said_of_the_errors_is_so(done: tuple[Path, dict[str, str]]) -> None:
    from toporo.tables import load_model

    model, control, hindsight = (
        load_model(done[0] / name).evaluate(done[0] / "temperatures.csv", unseen=True, resamples=20)
        for name in ("model", "control", "hindsight")
    )
    mine, theirs = ({hop: scores["rmse"].value for hop, scores in each.by_hop.items()} for each in (model, control))
    assert mine["1"] < mine["2"] < mine["3"], "the error grows over the first three hops"
    assert mine["1"] < theirs["1"]
    assert all(mine[hop] > theirs[hop] for hop in ("2", "3"))
    worse, better = map(float, re.findall(r"from (\S+) worse to (\S+) better", done[1]["evaluate"])[0])
    assert worse > 0.05
    assert better > 0.05, "zero lies well inside"
    corner = {"MT", "WY", "ID", "CO", "WA", "OR"}
    assert sum(score.group in corner for score in model.groups[:5]) >= 3
    assert model.worst.group == "ND"
    assert model.worst.metrics["rmse"].low < model.groups[1].metrics["rmse"].value
    assert model.pooled["r2"].value > 0.9
    assert sum(score.metrics["r2"].value < 0 for score in model.groups) > 20
    ahead = re.search(r"better in (\d+) of 24", done[1]["hindsight"])
    assert ahead is not None
    assert int(ahead[1]) > 12
    assert hindsight.overall["rmse"].value < control.overall["rmse"].value


@pytest.mark.slow
def test_what_is_said_of_the_penalty_is_so(done: tuple[Path, dict[str, str]]) -> None:
    from toporo.tables import load_model

    choice = load_model(done[0] / "model").estimator.choice_
    scores = [score.score for score in choice.scores]
    longest = max(2 * score.spread for score in choice.scores)
    assert longest > max(scores) - min(scores), "bars are longer than differences"
    assert choice.penalty < 1, "the larger penalty of the last section is another one"
