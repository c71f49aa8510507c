"""Each thing that can be added, as a stranger would: CONTRIBUTING.md word for word, in a package of one's own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.documents import ROOT, recipes
from tests.stranger import Run, commands, install

#: Entry point group to the section of the recipe and the name it registers.
THINGS = {
    "toporo.objectives": ("Add a method", "my-method"),
    "toporo.divergences": ("Add a divergence", "double-l2"),
    "toporo.centralities": ("Add a centrality", "nearness"),
    "toporo.cuts": ("Add a cut", "half"),
    "toporo.benchmarks": ("Add a benchmark", "rivers"),
    "toporo.commands": ("Add a command", "greet"),
}


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An installed package that brings one of each by entry points: the environment in which Python finds it."""
    modules = {f"stranger_{name.replace('-', '_')}": recipes(section)[0] for section, name in THINGS.values()}
    points = {group: {name: module} for (group, (_, name)), module in zip(THINGS.items(), modules, strict=True)}
    return install(tmp_path_factory.mktemp("stranger") / "site", modules, points)


@pytest.fixture(scope="module")
def process(stranger: dict[str, str]) -> Iterator[Run]:
    with commands(stranger) as run:
        yield run


@pytest.fixture
def toporo(process: Run, tmp_path: Path) -> Run:
    """``toporo …`` in a process that has the package: what it prints, and what it complains of if it fails."""
    return partial(process, tmp_path)


def test_every_recipe_registers_the_name_that_is_tried_here() -> None:
    for section, name in THINGS.values():
        assert re.search(rf"register\(\s*\"{name}\"\)|benchmark=\"{name}\"", recipes(section)[0]), section


@pytest.mark.slow
def test_a_method_and_a_divergence_are_held_to_the_laws(stranger: dict[str, str]) -> None:
    """They are in the conformance suites, which pass."""
    objectives = ["tests/objectives/test_conformance.py", "tests/objectives/test_ranks.py"]
    suites = [*objectives, "tests/robust/test_divergences.py"]
    options = ["-vv", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "my-method or double-l2"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *suites, *options],
        cwd=ROOT, env=stranger, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    passed = [line for line in done.stdout.splitlines() if "PASSED" in line]
    assert sum("my-method" in line for line in passed) >= 15
    assert sum("double-l2" in line for line in passed) >= 15


@pytest.mark.slow
def test_a_method_and_a_benchmark_are_in_the_table_and_in_the_figures(toporo: Run, tmp_path: Path) -> None:
    table = toporo(
        "reproduce", "rivers", "--methods", "erm,tro-uniform,my-method", "--seeds", 1, "--jobs", 1, "--out", "out"
    )
    assert "my-method" in table
    rows = json.loads((tmp_path / "out/results.json").read_text(encoding="utf-8"))
    assert {row["method"] for row in rows} == {"erm", "tro-uniform", "my-method"}
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    figures = [file.read_text(encoding="utf-8") for file in (tmp_path / "out/figures").glob("*.svg")]
    assert "my-method" in page
    assert any("my-method" in figure for figure in figures), "by the text of its line"
    assert "united states" not in page.lower()
    assert "levels of a made-up river" in toporo("data", "list")


@pytest.mark.slow
def test_a_divergence_and_a_centrality_are_choices_of_fit(toporo: Run, tmp_path: Path) -> None:
    _write_table(tmp_path)
    common = ("fit", "rows.csv", "--target", "y", "--group", "valley", "--graph", "edges.csv", "--test-groups", "d")
    said = toporo(
        *common, "--set", "divergence=double-l2", "--set", "prior=nearness", "--set", "penalty=1", "--out", "model"
    )
    assert "nearness" in said
    assert "double-l2" in (tmp_path / "model/model.json").read_text(encoding="utf-8")
    assert "valley" in toporo("predict", "model", "rows.csv").splitlines()[0]
    for setting, name in (("divergence", "double-l2"), ("prior", "nearness")):
        printed = toporo(*common, "--set", f"{setting}=no-such", "--out", "other", fails=True)
        assert name in printed, "the error lists it"


@pytest.mark.slow
def test_a_cut_is_a_choice_of_topology(toporo: Run, tmp_path: Path) -> None:
    _write_table(tmp_path)
    common = ("topology", "rows.csv", "--group", "valley", "--target", "y", "--set", "resamples=0")
    graph = json.loads(toporo(*common, "--cut", "half", "--json"))
    assert graph["origin"]["details"]["cut"] == "half"
    assert graph["edges"]
    assert "half" in toporo(*common, "--cut", "no-such", fails=True)


def test_a_command_is_one_of_toporos(toporo: Run) -> None:
    assert "Say hello to somebody." in toporo("--help")
    assert toporo("greet", "river") == "Hello, river!\n"


def _write_table(folder: Path) -> None:
    lines = ["valley,x,y"]
    lines += [f"{valley},{0.3 * i + place},{0.7 * i - place}" for place, valley in enumerate("abcd") for i in range(12)]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "edges.csv").write_text("from,to\na,b\nb,c\nc,d\n", encoding="utf-8")
