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
    assert "The bound of Theorem 1 and our bound for Theorem 2 hold in all 8 checks; that of Theorem 3" in page.text


def test_the_tables_have_the_numbers_of_the_study(study: TheoryStudy) -> None:
    gaps, training, rates, bounds = theory.tables(study)
    for table, measured in ((gaps, study.convergence), (rates, study.rates)):
        for row, rate in zip(table.rows, measured, strict=True):
            cells = dict(zip(table.columns, row, strict=True))
            assert (cells["loss"], cells["below the bound"]) == (rate.loss, "at every T")
            assert float(cells["measured, T = 256"]) == pytest.approx(rate.means[-1], rel=0.05)
            assert float(cells["bound"]) == pytest.approx(rate.bounds[-1], rel=0.05)
    assert [row[0] for row in training.rows] == ["group DRO", "TRO (λ=1)"]
    by_term = {row[0]: row[1:] for row in bounds.rows}
    shown = [method.breakdowns[at] for at in (0, -1) for method in study.bounds]
    assert [float(cell) for cell in by_term["total"]] == pytest.approx([b.total for b in shown], abs=1e-3)
    assert bounds.columns[1] == f"near group {shown[0].test_group}: group DRO"


def test_bounds_that_fail_or_are_vacuous_are_reported(study: TheoryStudy, tmp_path: Path) -> None:
    broken, *others = study.convergence
    method = study.bounds[0]
    lowest = replace(method.breakdowns[0], empirical=0.1, complexity=0.3, distance=0.2, confidence=0.1, test_risk=0.9)
    failed = replace(
        study,
        convergence=[replace(broken, values=broken.values + 1e3), *others],
        bounds=[replace(method, breakdowns=(lowest, replace(lowest, confidence=0.5)))],
    )
    assert [row[-1] for row in theory.tables(failed)[0].rows[:2]] == ["NOT at every T", "at every T"]
    text = Page(theory.write_theory_report(failed, tmp_path).read_text()).text
    assert "The bound of Theorem 1 and our bound for Theorem 2 FAIL in 1 of 8 checks" in text
    assert "that of Theorem 3 is above the true risk in 1 of 2 cases, and vacuous (at least B) in 1." in text
