"""Rows as tables, and the tables in docs/results.md against the results they claim to show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from toporo.pages.table import Table
from toporo.paper import BENCHMARKS
from toporo.paper.protocols import Protocol
from toporo.paper.results import AVERAGE, Results, Row
from toporo.paper.sentences import caption
from toporo.paper.tables import overview_table, paired_table, print_results, scores_table, search_table

ROOT = Path(__file__).parents[2]
ROW = Row("dg15", "erm", "test accuracy (%)", "last", 50.0, 1.234, [49.0, 51.0], 58.0, [], "generated", False)


def best(table: Table) -> list[set[int]]:
    """Columns with marked cells, by row."""
    return [{i for i, cell in enumerate(row) if "best" in getattr(cell, "style", "")} for row in table.rows]


def make_table(rows: list[Row], protocol: Protocol | None = None) -> Table:
    """The table of one variant under the benchmark's protocol."""
    return scores_table(Results(protocol or BENCHMARKS[rows[0].benchmark].protocol, rows))


@pytest.mark.parametrize(
    ("source", "words"), [("generated", "not the published file"), ("published", "the published data files")]
)
def test_the_caption_says_where_the_data_came_from(source: str, words: str) -> None:
    assert words in caption(Results(BENCHMARKS["dg15"].protocol, [replace(ROW, source=source)]))


TPT = Row(
    "tpt48", "erm", "all", "last", 0.5, 0.01, [0.49, 0.51], 1.716, [], "published", False, "east-west/all-sliding"
)
METRICS = ("hop 1", "hop 2", "hop 3", "all")


def errors(method: str, mean: float, **changes: object) -> list[Row]:
    """Rows of a network: hop 1 is 0.1 lower, the oracle 0.05."""
    base = replace(TPT, method=method, **changes)  # type: ignore[arg-type]
    return [
        replace(
            base,
            metric=metric,
            selection=rule,
            mean=mean - 0.1 * (metric == "hop 1") - 0.05 * (rule == "oracle"),
            paper=base.paper if metric == "all" else None,
        )
        for rule in ("last", "validation", "oracle")
        for metric in METRICS
    ]


def fixed(method: str, mean: float, **changes: object) -> list[Row]:
    """Rows of a method without epochs and seeds."""
    return [
        replace(row, sd=None, per_seed=[row.mean], paper=None)
        for row in errors(method, mean, **changes)
        if row.selection == "last"
    ]


def test_several_metrics_stand_side_by_side_with_the_papers() -> None:
    text = make_table(
        [*fixed("climatology", 0.3), *errors("erm", 0.5), *errors("tro-physical", 0.4, paper=1.466)]
    ).to_markdown()
    head, _, *lines = text.splitlines()
    assert head == (
        "| method | hop 1 | hop 2 | hop 3 | all | all, validation-selected | all, best epoch (oracle) "
        "| paper: hop 1 / 2 / 3 / all | saw of the test groups |"
    )
    assert lines[0] == "| Climatology | **0.200** | **0.300** | **0.300** | **0.300** | – | – | – | nothing |"
    assert lines[1].startswith("| MLP ERM | 0.400 ± 0.010 | 0.500 ± 0.010 |")
    assert "| – / – / – / 1.716 |" in lines[1]
    assert "| 0.400 ± 0.010 | **0.400 ± 0.010** | **0.350 ± 0.010** |" in lines[2]


def test_a_terminal_shows_all_tables_within_its_width(capsys: pytest.CaptureFixture[str]) -> None:
    """No figure is cut off."""
    protocol = BENCHMARKS["tpt48"].protocol
    rows = [
        row
        for name in (variant.name for variant in protocol.variants)
        for row in [
            *fixed("linear-chosen-id", 1.3, control=True, variant=name),
            *errors("erm", 0.5, variant=name, paper=protocol.paper(name, "erm", "all"), saw=["test adjacency"]),
        ]
    ]
    print_results(Results(protocol, rows))
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 132
    words = " ".join(text.split())
    assert "E→W, sliding windows in training and test: test MSE" in words
    assert "all variants: test MSE" in words
    assert "…" not in words
    for number in ("0.400", "0.450", "1.716", "1.300"):
        assert number in words
    assert "the epoch was chosen with test labels" in words


def test_pairs_are_of_the_same_variant_and_seed() -> None:
    """By hand: differences 1 and 3 on one variant, 2 and 6 on the other; 95 % by Student's t."""
    protocol = replace(BENCHMARKS["pacs"].protocol, headline="last")
    metric = protocol.whole.name

    def row(variant: str, method: str, values: list[float]) -> Row:
        return Row(
            "pacs", method, metric, "last", float(np.mean(values)), 0.0, values, None, [], "file", False, variant
        )

    rows = [
        row("photo", "erm", [10.0, 20.0]), row("sketch", "erm", [30.0, 40.0]),
        row("photo", "sd", [11.0, 23.0]), row("sketch", "sd", [32.0, 46.0]),
        row("photo", "coral", [11.0, 23.0]), row("photo", "irm", [1.0]), row("sketch", "irm", [1.0]),
    ]  # fmt: skip
    table = paired_table(Results(protocol, rows))
    assert table is not None
    pairs, means = 3.182446 * np.std([1, 3, 2, 6], ddof=1) / 2, 12.706205 * np.std([2, 4], ddof=1) / 2**0.5
    assert table.columns == ("method", "better than ERM by", "95 %, 4 pairs", "95 %, 2 means over seeds")
    spans = (f"{3 - half:+.2f} to {3 + half:+.2f}" for half in (pairs, means))
    assert table.rows == (("SD", "+3.00", *spans),)
    lower = paired_table(Results(replace(protocol, better="lower"), rows))
    assert lower is not None
    assert lower.rows[0][1] == "-3.00"
    assert paired_table(Results(protocol, rows[2:])) is None
    assert paired_table(Results(replace(protocol, average=None), rows)) is None


def test_the_best_of_a_column_has_as_many_seeds_as_any() -> None:
    """One lucky seed is not marked above a mean over several; what no seed changes takes part."""
    row = Row("pacs", "erm", "test accuracy (%)", "averaged", 80.0, 1.0, [79.0, 81.0], None, [], "file", False, "photo")
    lucky = replace(row, method="sd", mean=90.0, sd=None, per_seed=[90.0])
    assert [bool(places) for places in best(make_table([row, lucky]))] == [True, False]
    overview = overview_table(Results(BENCHMARKS["pacs"].protocol, [row, lucky]))
    assert [bool(places) for places in best(overview)] == [True, False]
    assert [bool(places) for places in best(make_table([lucky]))] == [True]


# ---------------------------------------------------------------- the stored results, and the page about them


@pytest.mark.parametrize("file", ["dg15", "dg60", "dg15-paper", "dg60-paper", "tpt48", "pacs", "sen1floods11"])
def test_the_stored_results_are_of_the_present_protocol(file: str) -> None:
    """Every variant, method, metric and rule, beside the figures of the paper, with the settings of the methods."""
    benchmark, _, kind = file.partition("-")
    stored = Results.read(ROOT / "results" / f"{file}.json", benchmark)
    protocol, about = stored.protocol, stored.about
    assert protocol.name == (kind or "fair")
    remarks = " ".join(about.get("remarks", []))
    variants = [variant.name for variant in protocol.variants if f"Not run: {variant.name}." not in remarks]
    assert {(row.variant, row.method, row.metric, row.selection) for row in stored.rows} >= {
        (variant, method.name, metric.name, rule)
        for variant in [*variants, *([AVERAGE] if protocol.average is not None else [])]
        for method in protocol.get_methods(protocol.methods)
        for metric in protocol.metrics
        for rule in (protocol.rules if method.trained else ("last",))
    }
    for row in stored.rows:
        assert row.control == protocol.method(row.method).control
        if row.variant != AVERAGE:
            assert row.paper == protocol.paper(row.variant, row.method, row.metric)
    settings = about.get("settings", {})
    for name, used in settings.get("methods", {}).items():
        method = protocol.method(name)
        assert used == {"objective": method.objective, **method.settings, "prior": method.prior}
    if settings:
        assert about["hardware"] == ["NVIDIA H200"]
        assert settings["rounds"] == protocol.rounds
        assert (settings.get("averaging"), settings["evaluate_every"]) == (protocol.averaging, protocol.evaluate_every)
    else:
        assert {row.source for row in stored.rows} == {"published"}


@pytest.mark.parametrize("file", ["dg15", "dg60", "dg15-paper", "dg60-paper", "tpt48", "pacs", "sen1floods11"])
def test_the_page_of_results_shows_the_stored_tables(file: str) -> None:
    """As `toporo reproduce BENCHMARK --show results/FILE.json --markdown` prints them."""
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    stored = Results.read(ROOT / "results" / f"{file}.json")
    table = overview_table(stored) if len(stored.parts) > 1 else scores_table(stored)
    assert table.to_markdown() in page
    if file == "pacs":
        paired = paired_table(stored)
        assert paired is not None
        assert paired.to_markdown() in page


@pytest.mark.parametrize("benchmark", ["dg15", "dg60"])
def test_under_the_papers_protocol_its_figures_come_back(benchmark: str) -> None:
    """Within two points."""
    stored = Results.read(ROOT / "results" / f"{benchmark}-paper.json")
    last = {row.method: row for row in stored.rows if row.selection == "last"}
    for method in ("erm", "tro-data"):
        assert last[method].mean == pytest.approx(last[method].paper, abs=2.0)


@pytest.mark.parametrize("file", ["dg15", "dg60", "tpt48", "dg15-paper", "dg60-paper"])
def test_the_page_of_results_shows_the_stored_searches(file: str) -> None:
    """As `toporo reproduce BENCHMARK --show results/FILE-search.json --markdown` prints them."""
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    benchmark, _, kind = file.partition("-")
    searched = Results.read(ROOT / "results" / f"{file}-search.json", benchmark)
    assert searched.protocol.name == (kind or "fair")
    for part in searched.parts:
        assert search_table(part).to_markdown() in page
