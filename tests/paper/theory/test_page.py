"""The theory's report: one page, its tables, and files that agree with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pages.page import Page
from tests.paper.theory.cases import tiny_study
from toporo.paper.theory import page as theory
from toporo.paper.theory.study import TheoryStudy


@pytest.fixture(scope="module")
def study() -> TheoryStudy:
    return tiny_study()


def test_the_files_and_the_page(study: TheoryStudy, tmp_path: Path) -> None:
    path = theory.write_theory_report(study, tmp_path / "new" / "folder")
    written = sorted(p.relative_to(path.parent).as_posix() for p in path.parent.rglob("*") if p.is_file())
    names = ("bound", "convergence", "rate", "stationarity")
    assert written == [*(f"figures/{name}.svg" for name in names), "report.html", "theory.json"]
    assert json.loads((path.parent / "theory.json").read_text()) == json.loads(study.to_json())
    page = Page(path.read_text())
    assert "The bound of Theorem 1 and our bound for Theorem 2 hold in all 10 checks; that of Theorem 3" in page.text


def test_the_tables_have_the_numbers_of_the_study(study: TheoryStudy) -> None:
    gaps, training, rates, bounds = theory.tables(study)
    for row, run in zip(gaps.rows, study.convergence, strict=True):
        cells = dict(zip(gaps.columns, row, strict=True))
        assert (cells["constants"], cells["gap below bound"]) == (run.constants.how, "at every T")
        assert float(cells["gap, T = 256"]) == pytest.approx(run.gap.means[-1], abs=1e-4)
        assert float(cells["bound"]) == pytest.approx(run.gap.bounds[-1], abs=1e-3)
    assert [row[0] for row in training.rows] == ["group DRO", "TRO (λ=1)"]
    for row, result in zip(rates.rows[::2], study.rates, strict=True):
        cells = dict(zip(rates.columns, row, strict=True))
        assert float(cells["left, T = 256"]) == pytest.approx(result.gradient_norm.means[-1], rel=0.05)
        assert float(cells["right (bound)"]) == pytest.approx(result.gradient_norm.bounds[-1], rel=0.05)
        assert (cells["rate"], cells["left below right"]) == ("−1/5", "at every T")
    by_term = {row[0]: row[1:] for row in bounds.rows}
    shown = [method.breakdowns[at] for at in (0, -1) for method in study.bounds]
    assert [float(cell) for cell in by_term["total"]] == pytest.approx([b.total for b in shown], abs=1e-3)
    assert bounds.columns[1] == f"near group {shown[0].test_group}: group DRO"


def test_a_bound_that_fails_is_reported(study: TheoryStudy, tmp_path: Path) -> None:
    first, *others = study.convergence
    broken = replace(first, gap=replace(first.gap, values=first.gap.values + 1e3), covered=False)
    rate = study.rates[0]
    worse = replace(rate, gradient_norm=replace(rate.gradient_norm, values=rate.gradient_norm.values + 1e3))
    failed = replace(study, convergence=(broken, *others), rates=(worse, *study.rates[1:]))
    gaps, _, rates, _ = theory.tables(failed)
    assert gaps.rows[0][-1] == "NOT at every T; gradients exceeded the constants"
    assert [row[-1] for row in rates.rows[:2]] == ["NOT at every T", "at every T"]
    text = Page(theory.write_theory_report(failed, tmp_path).read_text()).text
    assert "The bound of Theorem 1 and our bound for Theorem 2 FAIL in 2 of 10 checks" in text


def test_a_vacuous_bound_is_called_so(study: TheoryStudy) -> None:
    method = study.bounds[0]
    breakdown = replace(method.breakdowns[0], empirical=0.1, complexity=0.3, distance=0.2, confidence=0.5)
    cases = {"no (1.3 ×)": breakdown, "no": replace(breakdown, distance=1.0), "yes": replace(breakdown, confidence=0.1)}
    for expected, changed in cases.items():
        table = theory.tables(replace(study, bounds=(replace(method, breakdowns=(changed,)),)))[3]
        assert {row[0]: row[1] for row in table.rows}["below B (or × rows it takes)"] == expected
