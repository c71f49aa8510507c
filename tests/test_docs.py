"""The documentation: links lead somewhere, code runs, commands can be typed, options exist."""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import distributed as dist

from tests.commands import all_options, check_line
from tests.documents import DOCS, ROOT, code, commands, prose, run_commands, text_of

#: All but what `make docs` puts there.
WRITTEN = sorted(path for folder in ("", "guides", "api") for path in (DOCS / folder).glob("*.md"))
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + WRITTEN
#: Pages with code that other files of tests run.
ELSEWHERE = ("CONTRIBUTING.md", "errors.md", "tutorial.md")
#: Options that no command lists, and one of a benchmark.
OTHER_OPTIONS = {"--help", "--install-completion", "--judge"}


# ---------------------------------------------------------------- links


def links() -> list[tuple[Path, str]]:
    return [
        (page, target)
        for page in PAGES
        for target in sorted(set(re.findall(r"\]\(([^)\s]+)\)", prose(text_of(page)))))
        if "://" not in target
    ]


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them: lower case, spaces to dashes, other signs left out."""
    titles = re.findall(r"^#+ (.+)$", prose(text_of(page)), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in (target for other, target in links() if other == page):
        file, _, anchor = target.partition("#")
        other = page.parent / file if file else page
        if not other.exists() or (anchor and anchor not in anchors(other)):
            broken.append(target)
    assert broken == []


def test_every_page_and_every_example_is_linked() -> None:
    index = text_of(DOCS / "README.md")
    pages = [str(page.relative_to(DOCS)) for page in WRITTEN if page.parent.name != "api"]
    assert [page for page in pages if page not in ("README.md", "index.md") and f"({page})" not in index] == []
    linked = re.findall(r"\]\(\.\./examples/(\w+\.py)\)", index)  # in this order they are in the gallery
    assert sorted(linked) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))


# ---------------------------------------------------------------- Python


def states() -> dict[str, Any]:
    """Five states in a line and a sixth to predict for: the names that code on pages takes for granted."""
    import toporo as tr

    rng = np.random.default_rng(0)
    names = ["NY", "PA", "OH", "IN", "IL"]
    slopes = np.repeat(np.arange(1.0, 6.0), 30)
    x = rng.normal(size=(150, 2))
    groups = np.repeat(names, 30)
    borders = tr.GroupGraph.from_edges([("NY", "PA"), ("PA", "OH"), ("OH", "IN"), ("IN", "IL"), ("IL", "MO")])
    return {
        "tr": tr, "borders": borders, "graph": borders, "west": ["MO"], "train": names, "test": ["MO"],
        "X": x, "x": x, "features": x, "y": slopes * x[:, 0] + x[:, 1],
        "state": groups, "states": groups, "groups": groups, "X_new": x[:3], "x_new": x[:3], "new_x": x[:3],
        "new_states": ["MO"] * 3, "prior": borders.prior(names, ["MO"]),
    }  # fmt: skip


def write_states(folder: Path) -> None:
    """Write a table of the states and a file of their borders."""
    rng = np.random.default_rng(0)
    lines = [
        f"{state},{x:.3f},{slope * x + rng.normal():.3f}"
        for slope, state in enumerate(["NY", "PA", "OH", "IN", "IL", "MO"], start=1)
        for x in rng.normal(size=20)
    ]
    (folder / "temperatures.csv").write_text("\n".join(["state,june,rest_of_year", *lines, ""]))
    (folder / "borders.csv").write_text("NY,PA\nPA,OH\nOH,IN\nIN,IL\nIL,MO\n")


def sections() -> dict[str, list[str]]:
    """Python to run from top to bottom: a section of the README or of the guide, or another page."""
    parts = {}
    for page in (ROOT / "README.md", DOCS / "guide.md"):
        for section in re.split(r"^## ", text_of(page), flags=re.MULTILINE)[1:]:
            parts[f"{page.stem}: {section.splitlines()[0]}"] = section
    parts |= {page.name: text_of(page) for page in PAGES if page.name not in (*ELSEWHERE, "README.md", "guide.md")}
    return {name: sources for name, part in parts.items() if (sources := code(part, "python"))}


#: Code to run before a section, for names that it takes for granted; and what holds after it.
BEFORE = {
    "guide: Intervals": "".join(sections()["guide: A table"]),
    "guide: Which model": "from sklearn.ensemble import RandomForestRegressor",
    "guide: A map": """
train, test = ["NY", "PA", "OH"], ["MO"]
Path("borders.csv").write_text("NY,PA\\nPA,OH\\nOH,KY\\nKY,MO\\n")
""",
    "guide: No map": "features = features + 3 * np.repeat(np.arange(5.0), 30)[:, None]",
    "guide: Coefficients that follow a map": """
from sklearn.ensemble import HistGradientBoostingRegressor
borders = tr.GroupGraph.from_edges([*borders.edges, ("NY", "NV")])
kinds = np.where(y > 0, "wet", "dry")
""",
    "guide: PyTorch": """
import torch
kept = np.isin(states, ["NY", "PA", "OH"])
x, y, states = x[kept].astype(np.float32), (y[kept] > 0).astype(np.int64), states[kept]
net = torch.nn.Linear(2, 2)
optimizer, before = torch.optim.Adam(net.parameters()), net.weight.detach().clone()
""",
    "README: If you use scikit-learn": "from sklearn.ensemble import HistGradientBoostingRegressor",
    "README: If you train in PyTorch": """
import torch, torch.nn.functional as F
kept = np.isin(states, ["NY", "PA", "OH"])
data = tr.GroupedData.from_arrays(x[kept].astype(np.float32), (y[kept] > 0).astype(np.int64), states[kept])
net = torch.nn.Linear(2, 2)
""",
    "README: If you have images": """
from tests.paper.tiny_images import write_tiny
from toporo.paper.image_folder import ImageFolder
cameras = ("new_camera", "old_camera", "other_camera")
write_tiny(Path(), ImageFolder("photos", "Photos", "photos", cameras))
""",
}
BEFORE["images.md"] = BEFORE["README: If you have images"]
BEFORE["README: If you have a map of your groups, or none"] = BEFORE["guide: No map"]
AFTER = {
    "guide: A table": "set(model.groups) == set(train) and Path('model').is_dir()",
    "guide: How far a model reaches": "rows.by_group['MO'].hops == 1",
    "guide: Intervals": "(low < high).all() and table.least_covered.group == 'MO'",
    "guide: scikit-learn": "'hops' in printed and 'penalty' in search.best_params_",
    "guide: Several models with a vote": "'trees with context' in printed and sum(model.votes_.values()) > 0.999",
    "guide: Weights that rows can bear": "model.rows_in_effect_ >= 30 and 'rows' in printed",
    "guide: Which model": "'too few to tell' in printed and Path('models.csv').read_text().startswith('model,kind')",
    "guide: Any model": "abs(model.sample_weight(state).sum() - 150) < 1e-6 and set(tro.losses_) == set(train)",
    "guide: PyTorch": "not torch.equal(before, net.weight) and objective.weights.keys() == {'NY', 'PA', 'OH'}",
    "guide: A map": "prior.saw == ('test adjacency',)",
    "guide: No map": "set(graph.names) == set(train)",
    "guide: Coefficients that follow a map": "(low < high).all() and 0.0 <= model.estimator.gate_ <= 1.0",
    "guide: A linear model": "fit.relative_gap <= 1e-6 and len(fits) == 4",
    "README: If you use scikit-learn": "'hops' in printed and 0.0 <= model.gate_ <= 1.0",
    "README: If you train in PyTorch": "objective.weights.keys() == {'NY', 'PA', 'OH'} and loss.requires_grad",
    "README: If you have images": "images.shape == (27, 224, 224, 3) and set(objective.weights) == set(cameras[1:])",
    "README: If you have a map of your groups, or none": "max(prior.weights, key=prior.weights.get) == 'IL'"
    " and set(learned.names) == set(train)",
    "README: If a linear model will do": "fit.relative_gap <= 1e-6 and fits[0].penalty == np.inf",
    "images.md": "benchmark.train == cameras[1:] and len(train) == 18",
    "quickstart.md": "(low < high).all() and 'best' in printed",
}


@pytest.mark.parametrize("name", sections())
@pytest.mark.filterwarnings("ignore:.*(three hops|far beyond)")
def test_the_python_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_states(tmp_path)
    names = states() | {"math": math, "np": np, "Path": Path}
    try:
        for source in (BEFORE.get(name, ""), *sections()[name]):
            exec(source.replace('"cuda"', '"cpu"'), names)
    finally:
        if dist.is_initialized():
            time.sleep(0.5)  # as the page says
            dist.destroy_process_group()
    assert eval(AFTER.get(name, "True"), names | {"printed": capsys.readouterr().out})


# ---------------------------------------------------------------- commands


def typed() -> set[str]:
    """Commands of toporo on all pages, without what they are redirected to; errors.md shows mistakes."""
    texts = [text_of(page) for page in PAGES if page.name != "errors.md"]
    blocks = [block for text in texts for language in ("sh", "") for block in code(text, language)]
    return {shlex.join(words).split(" '>' ")[0] for block in blocks for words in commands(block)}


@pytest.mark.parametrize("line", sorted(typed()))
def test_every_command_on_a_page_can_be_typed(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r"@([\w.-]+)", line):
        (tmp_path / name).write_text("MO\n")
    check_line(shlex.split(line)[1:])


def test_options_in_the_text_exist() -> None:
    """Where a page names one in code, beside its blocks."""
    text = "".join(prose(text_of(page)) for page in WRITTEN if page.name not in ("results.md", "speed.md"))
    named = set(re.findall(r"`(?:toporo [^`]*)?(--[a-z][a-z-]+)", text))
    assert len(named) > 25
    assert sorted(named - all_options() - OTHER_OPTIONS) == []


def test_the_commands_of_the_quick_start_run(toporo: Callable[..., Any], tmp_path: Path) -> None:
    exec(code(text_of(DOCS / "quickstart.md"), "python")[0], {})
    lines = commands(code(text_of(DOCS / "quickstart.md"), "sh")[1])
    # Fitting the ensemble takes its time, and has tests of its own.
    run_commands(toporo, [[*words, "--model", "linear"] if words[1] == "fit" else words for words in lines], tmp_path)
    assert (tmp_path / "report.html").exists()


def test_the_session_of_the_readme_runs_from_a_table_to_a_report(
    real_data: Path, toporo: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = text_of(ROOT / "README.md")
    monkeypatch.setenv("TOPORO_DATA", str(real_data))
    lines = commands(code(readme.split("## If you have a table\n", 1)[1], "")[0])
    # The download has tests of its own, against a server here.
    printed = run_commands(toporo, [words for words in lines if words[1:3] != ["data", "get"]], tmp_path)
    better = re.findall(r"better in (\d+) of (\d+) groups", printed)
    assert better
    for some, all_of_them in better:
        assert f"({some} of {all_of_them} states are better with votes)" in " ".join(readme.split())
    written = {path.name for path in tmp_path.iterdir()}
    assert {"doctor.html", "model", "control", "effects.svg", "predictions.csv", "report.html"} <= written
