"""Figures in the README, the guide and the pages of results and speed are those of the committed measurements."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.documents import DOCS, ROOT, text_of
from toporo.paper.results import AVERAGE, Results, Row

MEASURED = ROOT / "benchmarks" / "results"
PAGES = {name: text_of(DOCS / f"{name}.md") for name in ("guide", "results", "speed")}
PAGES["README"] = text_of(ROOT / "README.md")


def rows_of(page: str) -> list[list[str]]:
    """The cells of all rows of the tables on a page of measurements."""
    lines = (MEASURED / f"{page}.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def row(page: str, start: str) -> list[str]:
    """The first row that begins like this."""
    rows = [cells for cells in rows_of(page) if f"{' | '.join(cells)} ".startswith(start)]
    assert rows, f"{page}.md has no row {start!r}"
    return rows[0]


def last(benchmark: str, **where: Any) -> dict[tuple[str, str], Row]:
    """Rows of a benchmark at the last round, by variant and method."""
    where = {"selection": "last"} | where
    rows = Results.read(ROOT / "results" / f"{benchmark}.json").rows
    return {(r.variant, r.method): r for r in rows if all(getattr(r, key) == value for key, value in where.items())}


# ---------------------------------------------------------------- sentences


def of_benchmarks() -> Iterator[tuple[str, str]]:
    for benchmark, sentences in {
        "dg15": {"erm": "{} % with ERM", "tro-physical": "{} % with TRO on the true graph",
                 "iw-erm": "same prior and no worst case, has {} %"},
        "dg60": {"erm": "ERM has {} %", "tro-physical": "and TRO {} %", "tro-lambda0": "TRO without a prior has {} %"},
    }.items():  # fmt: skip
        means = {method: r.mean for (_, method), r in last(benchmark).items()}
        yield from (("README", words.format(f"{means[method]:.1f}")) for method, words in sentences.items())
        if benchmark == "dg15":
            yield "results", f"TRO-physical is {means['tro-physical'] - means['erm']:.0f} points above ERM"
    climate = last("tpt48", metric="all")
    for split, words in {"east-west": "{} to {} (east to west)", "north-south": "{} to {} (north to south)"}.items():
        values = (f"{climate[f'{split}/season', name].mean:.3f}" for name in ("linear-erm", "linear-chosen"))
        yield "README", words.format(*values)
    pacs = last("pacs", selection="averaged", metric="test accuracy (%)")
    ours, erm = (pacs[AVERAGE, method].mean for method in ("tro-data", "erm"))
    yield "README", f"TRO does not gain on ERM ({ours:.1f} and {erm:.1f} with averaged weights)"
    floods = last("sen1floods11-lambda", metric="IoU", selection="validation")
    iou = {method: f"{r.mean:.3f}" for (_, method), r in floods.items()}
    *others, final = (iou[f"tro-data-{penalty}"] for penalty in ("0.001", "0.01", "0.1", "1", "10", "100"))
    yield "results", f"IoU {', '.join(others)} and {final} for λ = 0.001, 0.01, 0.1, 1, 10 and 100"
    yield "results", f"ERM has {iou['erm']}, TRO with a uniform prior (λ = 1) {iou['tro-uniform']}"
    chips = Results.read(ROOT / "results" / "sen1floods11.json").about["data"]["chips"]
    yield "results", f"we had {chips['found']} of the {chips['listed']} hand-labelled chips"


def of_measurements() -> Iterator[tuple[str, str]]:
    given = [float(row("penalty_sensitivity", f"{penalty} ")[1].split()[0]) for penalty in ("1", "10", "100", "∞")]
    yield "results", "λ = 1, 10, 100 and ∞ give {:.0f}, {:.0f}, {:.0f} and {:.0f}".format(*given)
    rows = [cells for cells in rows_of("prior_sensitivity") if cells[0].split()[0] in ("knn", "median")]
    accuracies = [float(cells[4].split()[0]) for cells in rows]
    yield "results", f"anything from {min(accuracies):.0f} to {max(accuracies):.0f}"
    chosen = row("choice_sensitivity", "a fifth of every state's rows")
    yield "results", f"λ = ∞ and λ = 10, which give {float(chosen[2]):.3f} and {float(chosen[4]):.3f}"
    auto = row("defaults", "**auto")
    better, ratio = auto[9].split(), float(auto[8])
    yield "README", f"On {better[2]} problems"
    yield "README", f"squared error is {ratio:.2f} of ERM's and lower in {better[0]}"
    yield "results", f"On {better[2]} problems with the same temperatures"
    yield "results", f"squared error is {ratio:.2f} of ERM's, and lower in {better[0]} of them"
    names = ("prior", "prior of a shuffled graph", "tro")
    prior, control, tro = (row("weighted_linear", f"{name} |") for name in names)
    yield "guide", "{} times the error by rows (at worst {})".format(*prior[1:3])
    yield "guide", "a shuffled graph's {}, by TRO {} ({})".format(control[1], *tro[1:3])
    trees = [row("weighted_trees", f"{name} |") for name in names]
    yield "guide", "{} by the prior, {} by a shuffled graph's, {} by TRO".format(*(cells[1] for cells in trees))
    yield "guide", "in the worst test group {}, {} and {}".format(*(cells[4] for cells in trees))
    uniform = [row("pacs_linear", f"uniform | {penalty} |") for penalty in ("∞", "10", "1", "0.1", "0")]
    averages = (cells[-1] for cells in uniform)
    yield "results", "falls from {} (λ = ∞, ERM) to {}, {}, {} and {} as λ falls to 10, 1, 0.1 and 0".format(*averages)
    learned = row("pacs_linear", "learned | ∞ |")
    cartoon, photo, sketch = (float(learned[i]) - float(uniform[0][i]) for i in (3, 4, 5))
    yield (
        "results",
        f"gains {sketch:.1f} points on Sketch and {cartoon:.1f} on Cartoon, and loses {-photo:.1f} on Photo",
    )


def of_tables() -> Iterator[tuple[str, str]]:
    """Rows of the guide's tables of kriged models and of votes."""
    columns = ("TPT-48, 1900–2007 (20)", "smooth (20)", "unrelated (20)", "no differences (20)", "turning (20)")
    titles = next(cells for cells in rows_of("kriged") if columns[0] in cells)
    for shown, name in {
        "exact TRO": "exact TRO, λ = 10", "geographically weighted ridge": "geographically weighted ridge",
        "kriged, a shuffled graph": "kriged, shuffled graph", "**kriged**": "kriged",
    }.items():  # fmt: skip
        values = [row("kriged", f"{name} |")[titles.index(column)].split(", ") for column in columns]
        yield "guide", f"| {shown} | {' | '.join(f'{mean}, {worst}' for mean, _, worst in values)} |"
    models = ("linear", "CatBoost", "safe mean", "picked", "votes, no effect", "auto", "auto, no graph")
    for page in ("tables_suite", "tables_suite-judged"):
        ends = {cells[0]: cells[-1].split(", ") for cells in rows_of(page) if cells[-1].count(", ") == 2}
        cells = [ends[name] for name in (*models, "auto, shuffled graph", "best candidate")]
        yield "guide", f"| {' | '.join(f'{mean}, {worst}' for mean, _, worst in cells)} |"


@pytest.mark.parametrize(("page", "sentence"), [*of_benchmarks(), *of_measurements(), *of_tables()])
def test_a_sentence_has_the_measured_figures(page: str, sentence: str) -> None:
    assert sentence in " ".join(PAGES[page].split())


def test_what_the_readme_says_without_a_figure_is_so() -> None:
    climate = last("tpt48", metric="all")
    for split in ("east-west", "north-south"):
        networks = [
            r.mean
            for (variant, method), r in climate.items()
            if variant == f"{split}/season" and r.sd is not None and not method.startswith("linear")
        ]
        assert climate[f"{split}/season", "linear-erm"].mean < min(networks), "plain linear ERM beats every network"
    pacs = last("pacs", selection="averaged", metric="test accuracy (%)")
    assert pacs[AVERAGE, "tro-data"].mean < pacs[AVERAGE, "erm"].mean
    assert len(PAGES["README"].encode()) <= 10_240, "it is short"


# ---------------------------------------------------------------- speed


def rounds_to(value: float, shown: str) -> bool:
    """Whether a figure is a measured value, rounded as far as it shows.

    >>> rounds_to(15.8, "16"), rounds_to(147428, "147000"), rounds_to(5e-08, "5e-8"), rounds_to(15.4, "16")
    (True, True, True, False)
    """
    mantissa, _, exponent = shown.partition("e")
    decimals = len(mantissa.partition(".")[2])
    thousands = 3 if mantissa.endswith("000") and not decimals else 0
    half = 0.5 * 10.0 ** (thousands - decimals + int(exponent or 0))
    return abs(value - float(shown)) <= half * (1 + 1e-9)


def measured(target: str) -> list[float]:
    """All numbers on a page of measurements, or at the head of a file of results."""
    file = (DOCS / target).resolve()
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        about = json.loads(text)["about"]
        settings = [about["settings"].get(key) for key in ("steps", "rounds", "averaging")]
        values = [about[key] for key in ("runs", "seconds", "seconds_a_run", "images_per_second")]
        return [float(value) for value in (*values, *settings) if value]
    assert file.name == "README.md" or "Made by `" in text, "it says how it was made"
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", text.replace(" 000", "000"))]


def rows_of_speed() -> Iterator[Any]:
    for line in PAGES["speed"].splitlines():
        *cells, sources = [cell.strip() for cell in line.strip("|").split("|")]
        targets = re.findall(r"\]\((\.\./[^)]+)\)", sources)
        if line.startswith("| ") and targets:
            yield pytest.param(" ; ".join(cells), targets, id=cells[0][:40])


@pytest.mark.parametrize(("text", "targets"), list(rows_of_speed()))
def test_speeds_are_those_of_the_tables(text: str, targets: list[str]) -> None:
    values = [value for target in targets for value in measured(target)]
    text = re.sub(r"\([^()]*\b(?:19|20)\d\d\)|[nm]\^", "", text)  # the year of a paper, and exponents
    figures = re.findall(r"(?<![\w.-])\d+(?:\.\d+)?(?:e-?\d+)?", text)
    assert figures
    assert [figure for figure in figures if not any(rounds_to(value, figure) for value in values)] == []
