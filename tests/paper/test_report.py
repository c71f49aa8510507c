"""The headline of a benchmark's page: the right rows are compared, and what is said follows from them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from toporo.paper import BENCHMARKS
from toporo.paper.methods import BENCH_METHODS, TOPOLOGY, WORST_CASE
from toporo.paper.results import Results, Row
from toporo.paper.sentences import headline

RESULTS = Path(__file__).parents[2] / "results"


def row(method: str, mean: float, sd: float | None = 0.1) -> Row:
    """A row of DG-15's table."""
    return Row("dg15", method, "test accuracy (%)", "last", mean, sd, [mean], None, [], "generated", False)


def test_the_headline_of_several_variants_counts_them() -> None:
    verdict = headline(Results.read(RESULTS / "tpt48.json"))
    assert verdict.tone == ""
    assert verdict.text == (
        "The best TRO of each variant is better than ERM in 3 of 6 and worse in 1, better than the best method with "
        "only the topology or only the worst case in 3 of 6 and worse in 1."
    )


@pytest.mark.parametrize(
    ("name", "variant", "text"),
    [
        ("dg15", "", "TRO-data, with test inputs (79.15) is 33.81 points better than ERM (45.33) and 4.81 points "
         "better than IW-ERM, physical prior (74.33), the best method with only the topology or only the worst case."),
        ("tpt48", "east-west/season", "Linear TRO, chosen without test labels (0.250) is 0.042 better than Linear ERM "
         "(0.292) and 0.020 better than Linear TRO, uniform (0.269), the best method with only the topology or only "
         "the worst case."),
    ],
)  # fmt: skip
def test_the_headline_of_one_variant_compares_tro_with_erm_and_with_the_best_control(
    name: str, variant: str, text: str
) -> None:
    parts = Results.read(RESULTS / f"{name}.json").parts
    assert [headline(part).text for part in parts if part.variant.name == variant] == [text]


@pytest.mark.parametrize(
    ("means", "said", "tone"),
    [
        ({"tro-physical": 70.0}, "ERM (50.00); the best method with only the topology or only the worst case was not "
         "run.", "good"),
        ({"tro-physical": 70.0, "iw-erm": 70.05}, "and within the spread over seeds of IW-ERM, physical prior "
         "(70.05), the best", ""),
        ({"tro-physical": 70.0, "group-dro": 50.05}, "and 19.95 points better than Group DRO (50.05)", "good"),
        ({"tro-physical": 50.0, "iw-erm": 70.0}, "TRO-physical (50.00) is within the spread over seeds of ERM (50.00) "
         "and 20.00 points worse than IW-ERM", ""),
        ({"tro-physical": 45.0, "irm": 55.0}, "TRO-physical (45.00) is 5.00 points worse than ERM (50.00)", "bad"),
        ({"tro-physical": 45.0, "irm": 55.0}, "The best of all methods is IRM (55.00).", "bad"),
        ({"group-dro": 70.0}, "There is nothing to compare yet", ""),
    ],
)  # fmt: skip
def test_what_the_headline_says_follows_from_the_rows(means: dict[str, float], said: str, tone: str) -> None:
    rows = [row("erm", 50.0), *(row(method, mean) for method, mean in means.items())]
    verdict = headline(Results(BENCHMARKS["dg15"].protocol, rows))
    assert said in verdict.text
    assert verdict.tone == tone


def test_methods_declare_what_they_use() -> None:
    """By what they are made of: a prior that is a topology's, and weights that are the worst case."""
    for name, method in BENCH_METHODS.items():
        topology = method.prior not in (None, "uniform", "shuffled")
        worst_case = method.objective in ("tro", "group-dro")
        if method.model == "linear":
            worst_case = method.settings["penalty"] < math.inf
        chosen = method.model == "linear-chosen"  # prior and penalty by a rule
        parts = {TOPOLOGY: topology or chosen, WORST_CASE: worst_case or chosen}
        assert method.uses == {part for part, used in parts.items() if used}, name
