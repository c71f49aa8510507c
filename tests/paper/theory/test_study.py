"""The study behind ``toporo theory``: the same bytes every time, and the figures of the page of results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.paper.theory.cases import tiny_study
from toporo.paper.theory.page import tables
from toporo.paper.theory.study import StudySettings, run_study


def test_the_same_settings_give_the_same_bytes() -> None:
    assert run_study(tiny_study().settings).to_json() == tiny_study().to_json()


@pytest.mark.slow  # as much work as the command does
def test_the_page_of_results_has_the_figures_of_the_command() -> None:
    study = run_study(StudySettings())
    text = (Path(__file__).parents[3] / "docs" / "results.md").read_text(encoding="utf-8")
    table = tables(study)[2]
    for row in (table.columns, *table.rows):
        assert f"| {' | '.join(row)} |" in text
    text = " ".join(text.split())
    slopes = sorted(f"T^−{-rate.slope:.2f}" for rate in study.convergence)
    ratios = np.concatenate([rate.bounds / rate.means for rate in study.convergence])
    assert f"falls like {slopes[0]} to {slopes[-1]} and stays below" in text
    assert f"by a factor of {ratios.min():.0f} to {ratios.max():.0f}." in text
    by_group = list(zip(*(method.breakdowns for method in study.bounds), strict=True))
    vacuous = sum(breakdown.total >= 1.0 for group in by_group for breakdown in group)
    agree = sum(min(g, key=lambda b: b.total) is min(g, key=lambda b: b.test_risk) for g in by_group)
    assert f"Theorem 3's bound is vacuous in all {vacuous} cases" in text
    assert f"smaller risk in only {agree} of {len(by_group)} test groups" in text
    gradient = study.rates[0]
    limit = gradient.constants["theta"]
    informative = [steps for steps, bound in zip(gradient.horizons, gradient.bounds, strict=True) if bound < limit]
    assert f"With λ = 1 and T below {informative[0]} it is above {limit:.2f}," in text
