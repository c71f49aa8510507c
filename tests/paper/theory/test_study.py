"""The study behind ``toporo theory``: the same bytes every time, and the figures of the page of results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paper.theory.cases import spiral, tiny_study
from toporo.paper import load_dataset
from toporo.paper.theory import BallProblem, measure_stationarity
from toporo.paper.theory import page as theory
from toporo.paper.theory.study import RATE_PENALTIES, StudySettings, run_study


def test_the_same_settings_give_the_same_bytes_and_every_part_is_counted() -> None:
    seen: list[tuple[int, int]] = []
    again = run_study(tiny_study().settings, progress=lambda *step: seen.append(step))
    assert again.to_json() == tiny_study().to_json()
    assert seen == [(i, 12) for i in range(1, 13)]


@pytest.mark.slow  # as many steps as the command takes
def test_the_page_of_results_has_both_sides_of_theorem_2() -> None:
    benchmark, settings = load_dataset("dg15", source="generated"), StudySettings()
    prior = benchmark.physical_prior(measure="betweenness")
    problems = [BallProblem(spiral(), loss="sigmoid", penalty=value, prior=prior) for value in RATE_PENALTIES]
    rates = [measure_stationarity(problem, settings.horizons, range(settings.seeds)) for problem in problems]
    table = theory.rates_table(rates)
    text = (Path(__file__).parents[3] / "docs" / "results.md").read_text(encoding="utf-8")
    for row in (table.columns, *table.rows):
        assert f"| {' | '.join(row)} |" in text
