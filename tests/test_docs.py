"""The pages in docs/: links lead somewhere, code runs, figures are those of the committed results and measurements."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.test_readme import rows_of_states
from toporo.paper.results import Results

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: All but what `make docs` puts there.
WRITTEN = sorted(path for folder in ("", "guides", "api") for path in (DOCS / folder).glob("*.md"))
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + WRITTEN
MEASURED = ROOT / "benchmarks" / "results"
RESULTS, SPEED, GUIDE = ((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("results", "speed", "guide"))


def prose(page: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"```.*?```", "", page, flags=re.DOTALL)


# ---------------------------------------------------------------- links


def links() -> list[tuple[Path, str]]:
    return [
        (page, target)
        for page in PAGES
        for target in sorted(set(re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8")))))
        if "://" not in target
    ]


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them: lower case, spaces to dashes, other signs left out."""
    titles = re.findall(r"^#+ (.+)$", prose(page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    ("page", "target"), [pytest.param(page, target, id=f"{page.name}:{target}") for page, target in links()]
)
def test_links_lead_somewhere(page: Path, target: str) -> None:
    file, _, anchor = target.partition("#")
    other = page.parent / file if file else page
    assert other.exists()
    if anchor:
        assert anchor in anchors(other)


def test_the_index_has_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = [str(page.relative_to(DOCS)) for page in WRITTEN if page.parent.name != "api"]
    assert [page for page in pages if page not in ("README.md", "index.md") and f"({page})" not in index] == []


def test_every_example_is_linked_from_a_page() -> None:
    linked = {target.rsplit("/", 1)[-1] for _, target in links() if "examples/" in target}
    assert linked == {path.name for path in (ROOT / "examples").glob("*.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_one_word_for_one_thing(page: Path) -> None:
    """The words that DESIGN's table and STYLE's page on prose replace."""
    text = " ".join(prose(page.read_text(encoding="utf-8")).split())
    replaced = (
        r"groups? to come|hang together|\btau\b|whatever the order|beyond all measure|all there is is"
        r"|\b(?:one|two|record|line|row|column) an? (?:row|group|line|state|evaluation)\b"
    )
    if page.name == "CHANGELOG.md":
        text = text.replace("`tau`", "")  # it tells of the renaming
    assert re.findall(replaced, text) == []


# ---------------------------------------------------------------- the guide


def blocks(heading: str) -> str:
    """All Python under a heading of the guide."""
    section = GUIDE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return "\n".join(re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL))


def write_states(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of the states and a file of their borders, in the folder that one is in from here on."""
    monkeypatch.chdir(folder)
    rng = np.random.default_rng(0)
    lines = [
        f"{state},{x:.3f},{(1 + place) * x + rng.normal():.3f}"
        for place, state in enumerate([*rows_of_states()["train"], "MO"])
        for x in rng.normal(size=20)
    ]
    (folder / "temperatures.csv").write_text("\n".join(["state,june,rest_of_year", *lines, ""]))
    (folder / "borders.csv").write_text("NY,PA\nPA,OH\nOH,IN\nIN,IL\nIL,MO\n")


def test_the_guide_says_how_far_a_model_reaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_states(tmp_path, monkeypatch)
    names = rows_of_states()
    exec(blocks("How far a model reaches"), names)
    assert names["rows"].by_group["MO"].hops == 1
    assert names["model"].evaluate("temperatures.csv").by_reach["inside"].rows > 60


def test_the_guide_runs_on_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_states(tmp_path, monkeypatch)
    names = rows_of_states()
    exec(blocks("A table"), names)
    assert set(names["model"].groups) == set(names["train"])
    assert (tmp_path / "model").is_dir()
    exec(blocks("Intervals"), names)
    assert (names["low"] < names["high"]).all()
    assert names["table"].least_covered.group == "MO"


def test_the_guide_runs_in_scikit_learn(capsys: pytest.CaptureFixture[str]) -> None:
    names = rows_of_states()
    exec(blocks("scikit-learn"), names)
    assert "hops" in capsys.readouterr().out
    assert "penalty" in names["search"].best_params_


def test_the_guide_runs_with_any_model() -> None:
    names = rows_of_states()
    exec(blocks("Any model"), names)
    assert names["model"].sample_weight(names["state"]).sum() == pytest.approx(150)
    assert set(names["tro"].losses_) == set(names["train"])


def test_the_guide_runs_with_votes(capsys: pytest.CaptureFixture[str]) -> None:
    names = rows_of_states()
    exec(blocks("Several models with a vote"), names)
    assert "trees with context" in capsys.readouterr().out
    assert sum(names["model"].votes_.values()) == pytest.approx(1.0)


def test_the_guide_runs_for_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sklearn.ensemble import RandomForestRegressor

    write_states(tmp_path, monkeypatch)
    names = rows_of_states() | {"RandomForestRegressor": RandomForestRegressor}
    exec(blocks("Which model"), names)
    assert "too few to tell" in capsys.readouterr().out
    assert (tmp_path / "models.csv").read_text().startswith("model,kind,error")


def test_the_guide_runs_in_pytorch() -> None:
    import torch

    names = rows_of_states()
    kept = np.isin(names["states"], ["NY", "PA", "OH"])
    net = torch.nn.Linear(2, 2)
    before = net.weight.detach().clone()
    names |= {
        "x": names["x"][kept].astype(np.float32),
        "y": (names["y"][kept] > 0).astype(np.int64),
        "states": names["states"][kept],
        "net": net,
        "optimizer": torch.optim.Adam(net.parameters()),
    }
    exec(blocks("PyTorch"), names)
    assert not torch.equal(before, net.weight)
    assert names["objective"].weights.keys() == {"NY", "PA", "OH"}


def test_the_guide_runs_on_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "borders.csv").write_text("NY,PA\nPA,OH\nOH,KY\nKY,MO\n")
    monkeypatch.chdir(tmp_path)
    names = rows_of_states() | {"train": ["NY", "PA", "OH"], "test": ["MO"]}
    exec(blocks("A map"), names)
    assert names["prior"].saw == ("test adjacency",)


def test_the_guide_runs_without_a_map() -> None:
    names = rows_of_states()
    names["features"] = names["features"] + 3 * np.repeat(np.arange(5.0), 30)[:, None]
    exec(blocks("No map"), names)
    assert set(names["graph"].names) == set(names["train"])


def test_the_guide_runs_for_weights_that_rows_can_bear(capsys: pytest.CaptureFixture[str]) -> None:
    names = rows_of_states()
    exec(blocks("Weights that rows can bear"), names)
    assert names["model"].rows_in_effect_ >= 30
    assert "rows" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*(three hops|far beyond)")
def test_the_guide_runs_for_coefficients_that_follow_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    write_states(tmp_path, monkeypatch)
    names = rows_of_states()
    names |= {
        "HistGradientBoostingRegressor": HistGradientBoostingRegressor,
        "borders": names["tr"].GroupGraph.from_edges([*names["borders"].edges, ("NY", "NV")]),
        "new_x": names["x"][:3],
        "kinds": np.where(names["y"] > 0, "wet", "dry"),
    }
    exec(blocks("Coefficients that follow a map"), names)
    assert (names["low"] < names["high"]).all()
    assert 0.0 <= names["model"].estimator.gate_ <= 1.0


def test_the_guide_runs_for_a_linear_model() -> None:
    names = rows_of_states()
    exec(blocks("A linear model"), names)
    assert names["fit"].relative_gap <= 1e-6
    assert len(names["fits"]) == 4


# ---------------------------------------------------------------- figures


def rounds_to(value: float, shown: str) -> bool:
    """Whether a figure is a measured value, rounded as far as it shows: 147000 stands for 147428."""
    mantissa, _, exponent = shown.partition("e")
    decimals = len(mantissa.partition(".")[2])
    thousands = 3 if mantissa.endswith("000") and not decimals else 0
    half = 0.5 * 10.0 ** (thousands - decimals + int(exponent or 0))
    return abs(value - float(shown)) <= half * (1 + 1e-9)


def test_what_counts_as_the_same_figure() -> None:
    assert rounds_to(15.8, "16")
    assert rounds_to(147428, "147000")
    assert rounds_to(5e-08, "5e-8")
    assert rounds_to(1.05, "1.1")
    assert not rounds_to(15.4, "16")
    assert not rounds_to(0.965, "0.98")


def measured(target: str) -> list[float]:
    """All numbers on a page of measurements, or at the head of a file of results."""
    file = (DOCS / target).resolve()
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        about = json.loads(text)["about"]
        values = [about[key] for key in ("runs", "seconds", "seconds_a_run", "images_per_second")]
        settings = about["settings"]
        return [
            *map(float, values),
            *(float(settings[key]) for key in ("steps", "rounds", "averaging") if settings.get(key)),
        ]
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", text.replace(" 000", "000"))]


def rows_of_figures() -> list[Any]:
    rows = []
    for line in SPEED.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        targets = re.findall(r"\]\((\.\./[^)]+)\)", cells[-1])
        if line.startswith("| ") and targets:
            rows.append(pytest.param(" ; ".join(cells[:-1]), targets, id=cells[0][:40]))
    return rows


@pytest.mark.parametrize(("said", "targets"), rows_of_figures())
def test_speeds_are_those_of_the_tables(said: str, targets: list[str]) -> None:
    known = [value for target in targets for value in measured(target)]
    said = re.sub(r"\([^()]*\b(?:19|20)\d\d\)", "", said)  # the year of a paper
    figures = re.findall(r"(?<![\w.-])\d+(?:\.\d+)?(?:e-?\d+)?", re.sub(r"[nm]\^", "", said))
    assert figures
    assert [figure for figure in figures if not any(rounds_to(value, figure) for value in known)] == []


def test_every_table_of_speed_is_there_and_says_how_it_was_made() -> None:
    pages = set(re.findall(r"\]\(\.\./benchmarks/results/(\w+)\.md\)", SPEED))
    assert len(pages) >= 12
    assert all("Made by `" in (MEASURED / f"{page}.md").read_text(encoding="utf-8") for page in pages)


def flat(page: str) -> str:
    return " ".join(page.split())


def cells_of(page: str, start: str) -> list[str]:
    """The cells of the first row of a measured table that begins like this."""
    lines = (MEASURED / f"{page}.md").read_text(encoding="utf-8").splitlines()
    return [cell.strip() for cell in next(line for line in lines if line.startswith(start)).strip("|").split("|")]


def test_results_say_how_lambda_matters_on_dg15() -> None:
    lambdas = ("1", "10", "100", "∞")
    given = [float(cells_of("penalty_sensitivity", f"| {each} ")[1].split()[0]) for each in lambdas]
    assert "λ = 1, 10, 100 and ∞ give {:.0f}, {:.0f}, {:.0f} and {:.0f}".format(*given) in flat(RESULTS)
    lines = (MEASURED / "prior_sensitivity.md").read_text(encoding="utf-8").splitlines()
    accuracies = [float(line.split("|")[5].split()[0]) for line in lines if re.match(r"\| (knn|median) ", line)]
    assert f"anything from {min(accuracies):.0f} to {max(accuracies):.0f}" in flat(RESULTS)


def test_results_say_how_far_tro_is_above_erm_on_dg15() -> None:
    rows = {
        row.method: row.mean for row in Results.read(ROOT / "results" / "dg15.json").rows if row.selection == "last"
    }
    assert f"TRO-physical is {rows['tro-physical'] - rows['erm']:.0f} points above ERM" in flat(RESULTS)


def test_results_say_what_validation_would_have_chosen_on_tpt48() -> None:
    cells = cells_of("choice_sensitivity", "| a fifth of every state's rows")
    assert cells[1::2] == ["uniform, λ = ∞", "uniform, λ = 10", "no"]
    given = tuple(float(cells[i]) for i in (2, 4))
    assert "uniform prior with λ = ∞ and λ = 10, which give {:.3f} and {:.3f}".format(*given) in flat(RESULTS)
    assert cells_of("choice_sensitivity", "| **every size")[1::2] == ["harmonic, λ = 1", "harmonic, λ = 1", "yes"]
    lines = (MEASURED / "choice_sensitivity.md").read_text(encoding="utf-8").splitlines()
    sizes = [line for line in lines if re.match(r"\| size \d+ alone", line)]
    assert sum(line.endswith("| yes |") for line in sizes) == 1, "of the other sizes only one meets both"
    ridge = cells_of("choice_sensitivity", "| the same, ridge chosen too")
    assert float(ridge[2]) > 0.26
    assert float(ridge[4]) > 0.21


def test_results_have_the_measured_figures_of_the_defaults() -> None:
    cells = cells_of("defaults", "| **auto")
    better = cells[9].split()
    assert f"On {better[2]} problems with the same temperatures" in flat(RESULTS)
    assert f"squared error is {float(cells[8]):.2f} of ERM's, and lower in {better[0]} of them" in flat(RESULTS)


def test_the_guide_has_the_measured_figures_of_weights() -> None:
    linear, trees = (
        {name: cells_of(f"weighted_{model}", f"| {name} |") for name in ("prior", "prior of a shuffled graph", "tro")}
        for model in ("linear", "trees")
    )
    prior, control, tro = linear.values()
    assert "{} times the error by rows (at worst {})".format(*prior[1:3]) in flat(GUIDE)
    assert "a shuffled graph's {}, by TRO {} ({})".format(control[1], *tro[1:3]) in flat(GUIDE)
    errors, worst = ([row[place] for row in trees.values()] for place in (1, 4))
    assert "{} by the prior, {} by a shuffled graph's, {} by TRO".format(*errors) in flat(GUIDE)
    assert "in the worst test group {}, {} and {}".format(*worst) in flat(GUIDE)


def test_results_say_why_on_frozen_features_of_pacs() -> None:
    uniform = {each: cells_of("pacs_linear", f"| uniform | {each} |") for each in ("∞", "10", "1", "0.1", "0")}
    averages = [row[-1] for row in uniform.values()]
    assert "falls from {} (λ = ∞, ERM) to {}, {}, {} and {} as λ falls to 10, 1, 0.1 and 0".format(*averages) in flat(
        RESULTS
    )
    learned = cells_of("pacs_linear", "| learned | ∞ |")
    cartoon, photo, sketch = (float(learned[i]) - float(uniform["∞"][i]) for i in (3, 4, 5))
    said = f"gains {sketch:.1f} points on Sketch and {cartoon:.1f} on Cartoon, and loses {-photo:.1f} on Photo"
    assert said in flat(RESULTS)


def joint_cells(part: str) -> dict[str, list[str]]:
    """Accuracy, difference to two phases and cost of a step, by method, in one part of the page."""
    text = (MEASURED / "joint.md").read_text(encoding="utf-8").split(f"\n## {part}\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    return {row[0]: row[1:] for row in rows[1:]}


def test_results_have_the_measured_figures_of_the_joint_topology() -> None:
    parts = ("DG-15", "DG-15, 12 generated sets", "DG-60", "PACS features, average over domains")
    first, made, second, pacs = (joint_cells(part) for part in parts)
    assert len(first) == 8
    for method, cells in first.items():
        row = [
            cells[0],
            made[method][0],
            second[method][0],
            pacs[method][0],
            cells[1],
            second[method][1],
            pacs[method][1],
        ]
        assert f"| {method} | {' | '.join(row)} |" in RESULTS
    joint, easy = "TRO-joint", "easy groups first, no topology (control)"
    stopped = f"{joint}, gradient through the prior stopped"
    said = [
        f"{made[joint][1].strip('+')} points above them on twelve generated ones",
        f"{mean(second[joint][1])[1:]} points below and {mean(pacs[joint][1])[1:]} above",
        f"level with TRO-joint on DG-15 ({mean(first[easy][0])} and {mean(first[joint][0])})",
        f"above it on PACS features ({mean(pacs[easy][0])} and {mean(pacs[joint][0])})",
        f"({first[joint][2]} on DG-15, {second[joint][2]} on DG-60, {pacs[joint][2]} on PACS features)",
        f"({first[stopped][2]}, {second[stopped][2]}, {pacs[stopped][2]})",
    ]
    changes = ("coupling = 10", "coupling = −10", "momentum = 0.9", "nothing", "sigma = 0.6")
    more, less, slow, none, wide = (
        [mean(cell) for cell in cells_of("joint_settings", f"| {x} |")[1:]] for x in changes
    )
    said += [
        f"through the prior gives {more[0]} and {more[1]}",
        f"the reversed one {less[0]} and {less[1]}",
        f"give {slow[0]} and {slow[1]} against {none[0]} and {none[1]} of",
        f"{wide[1]} on generated sets at twice the width",
    ]
    assert [each for each in said if each not in flat(RESULTS)] == []


def mean(cell: str) -> str:
    """What stands before the ±."""
    return cell.split(" ±")[0]


def test_results_say_how_few_chips_of_the_floods_there_were() -> None:
    about = Results.read(ROOT / "results" / "sen1floods11.json").about
    chips, skipped = about["data"]["chips"], about["skipped"]
    assert f"we had {chips['found']} of the {chips['listed']} hand-labelled chips" in flat(RESULTS)
    assert "Ghana (no water in its chips) and Paraguay (no measurement in its chip)" in flat(RESULTS)
    assert "no water" in skipped["Ghana"]
    assert "no measurement" in skipped["Paraguay"]
    assert len(skipped) == 2


def test_results_have_the_stored_figures_over_lambda_on_floods() -> None:
    rows = {
        row.method: f"{row.mean:.3f}"
        for row in Results.read(ROOT / "results" / "sen1floods11-lambda.json").rows
        if (row.metric, row.selection) == ("IoU", "validation")
    }
    *others, final = (rows[f"tro-data-{each}"] for each in ("0.001", "0.01", "0.1", "1", "10", "100"))
    assert f"IoU {', '.join(others)} and {final} for λ = 0.001, 0.01, 0.1, 1, 10 and 100" in flat(RESULTS)
    assert f"ERM has {rows['erm']}, TRO with a uniform prior (λ = 1) {rows['tro-uniform']}" in flat(RESULTS)


#: Rows and columns of the guide's table of kriged models, as the table of measurements names them.
KRIGED_ROWS = {
    "exact TRO": "exact TRO, λ = 10",
    "geographically weighted ridge": "geographically weighted ridge",
    "kriged, a shuffled graph": "kriged, shuffled graph",
    "**kriged**": "kriged",
}
KRIGED_COLUMNS = ("TPT-48, 1900–2007 (20)", "smooth (20)", "unrelated (20)", "no differences (20)", "turning (20)")


def test_the_guide_says_of_kriged_models_what_was_measured() -> None:
    text = (DOCS.parent / "benchmarks/results/kriged.md").read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    titles = next(cells for cells in lines if KRIGED_COLUMNS[0] in cells)
    said = {
        cells[0]: cells[1:]
        for cells in ([cell.strip() for cell in line.split("|")[1:-1]] for line in GUIDE.splitlines())
        if cells and cells[0] in KRIGED_ROWS
    }
    assert list(said) == list(KRIGED_ROWS)
    for name, cells in said.items():
        row = next(cells for cells in lines if cells[0] == KRIGED_ROWS[name])
        for cell, column in zip(cells, KRIGED_COLUMNS, strict=True):
            mean, _, worst = row[titles.index(column)].split(", ")
            assert cell == f"{mean}, {worst}"


#: Rows of the table of measurements, in the order of the columns of the guide's table of votes.
VOTED = (
    "linear", "CatBoost", "safe mean", "picked", "votes, no effect", "auto", "auto, no graph", "auto, shuffled graph",
    "best candidate",
)  # fmt: skip


@pytest.mark.parametrize("name", ["tables_suite", "tables_suite-judged"])
def test_the_guide_says_of_votes_what_was_measured(name: str) -> None:
    text = (MEASURED / f"{name}.md").read_text(encoding="utf-8")
    last = {
        cells[0]: cells[-1]
        for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
        if cells[0] in VOTED
    }
    shown = [f"{mean}, {worst}" for mean, _, worst in (last[name].split(", ") for name in VOTED)]
    assert f"| {' | '.join(shown)} |" in GUIDE
