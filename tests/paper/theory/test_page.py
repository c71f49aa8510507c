"""The theory's report: figures that show what was computed, one page that opens offline, files that agree with it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.pages.page import Page, figures
from tests.paper.theory.cases import tiny_study
from toporo.errors import SettingError
from toporo.paper.theory import page as theory
from toporo.paper.theory.results import CHOICES, StudySettings, TheoryStudy


@pytest.fixture(scope="module")
def study() -> TheoryStudy:
    return tiny_study()


def test_the_files_and_the_page(study: TheoryStudy, tmp_path: Path) -> None:
    path = theory.write_theory_report(study, tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "report.html"
    written = sorted(p.relative_to(path.parent).as_posix() for p in path.parent.rglob("*") if p.is_file())
    assert written == [
        "figures/bound.svg", "figures/convergence.svg", "figures/rate.svg", "figures/stationarity.svg", "report.html",
        "theory.json",
    ]  # fmt: skip
    assert json.loads((path.parent / "theory.json").read_text()) == json.loads(json.dumps(study.to_dict()))
    text = path.read_text()
    page = Page(text)
    assert not [tag for tag, _ in page.tags if tag in ("script", "link", "img", "iframe")]
    urls = [value for _, attrs in page.tags for key, value in attrs.items() if key in ("href", "src", "xlink:href")]
    assert all((value or "").startswith("#") for value in urls)
    assert figures(text) == 4
    assert "The bound of Theorem 1 and our bound for Theorem 2 hold in all 10 checks; that of Theorem 3" in page.text
    assert "The rate of Theorem 2, and our bound beside what it bounds" in page.text, "the paper gives no constants"
    identifiers = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(set(identifiers)) == len(identifiers)
    for number in (1, 2, 3):
        assert f"Theorem {number}" in page.text
    departures = (cell.replace("_", "") for row in theory.DEPARTURES for cell in row)
    for sentence in (*study.bounds[0].breakdowns[0].assumptions, *CHOICES.values(), *departures):
        assert sentence in page.text
    assert "--accent:" in text  # the style of the other report
    assert theory.write_theory_report(study, tmp_path / "again").read_text() == text


def test_the_tables_say_what_the_study_found(study: TheoryStudy) -> None:
    first, second, rates, third = theory.tables(study)
    assert len(first.rows) == 8
    for row, run in zip(first.rows, (run for case in study.convergence for run in case.runs), strict=True):
        assert len(row) == len(first.columns)
        cells = dict(zip(first.columns, row, strict=True))
        assert cells["constants"] == run.constants.how
        assert float(cells["gap, T = 256"]) == pytest.approx(run.means[-1], abs=1e-4)
        assert float(cells["bound"]) == pytest.approx(run.bounds[-1], abs=1e-3)
        assert cells[theory.BELOW] == "at every T"
    assert [row[0] for row in second.rows] == ["group DRO", "TRO (λ=1)"]
    for row, each in zip(rates.rows[::2], study.rates, strict=True):
        cells = dict(zip(rates.columns, row, strict=True))
        left, right = each.sides["gradient_norm"]
        assert float(cells["left, T = 256"]) == pytest.approx(left[-1], rel=0.05)
        assert float(cells["right (bound)"]) == pytest.approx(right[-1], rel=0.05)
        assert cells["slope, right"] == f"{each.slopes['gradient_norm'][1]:.2f}".replace("-", "−")
        assert (cells["rate"], cells[theory.LEFT_BELOW]) == ("−1/5", "at every T")
    by_term = {row[0]: row[1:] for row in third.rows}
    assert len(third.columns) == 5
    near = [method.breakdowns[0] for method in study.bounds]
    far = [method.breakdowns[-1] for method in study.bounds]
    assert [float(cell) for cell in by_term["total"]] == pytest.approx([b.total for b in near + far], abs=1e-3)
    assert [float(cell) for cell in by_term["true risk (oracle)"]] == pytest.approx(
        [b.test_risk for b in near + far], abs=1e-3
    )
    assert third.columns[1] == f"near group {near[0].test_group}: group DRO"


def test_a_bound_that_fails_is_said_to_fail(study: TheoryStudy) -> None:
    case = study.convergence[0]
    broken = replace(case.runs[0], gaps=case.runs[0].gaps + 1e3, covered=False)
    table = theory.tables(replace(study, convergence=(replace(case, runs=(broken, case.runs[1])),)))[0]
    assert table.rows[0][-1] == "NOT at every T; gradients exceeded the constants"
    assert table.rows[1][-1] == "at every T"
    worse = replace(study.rates[0], gradient_norm=study.rates[0].gradient_norm + 1e3)
    table = theory.tables(replace(study, rates=(worse,)))[2]
    assert [row[-1] for row in table.rows] == ["NOT at every T", "at every T"]


def test_a_vacuous_bound_is_called_so(study: TheoryStudy) -> None:
    method = study.bounds[0]
    breakdown = replace(method.breakdowns[0], empirical=0.1, complexity=0.3, distance=0.2, confidence=0.5)
    cases = {"no (1.3 ×)": breakdown, "no": replace(breakdown, distance=1.0), "yes": replace(breakdown, confidence=0.1)}
    for expected, each in cases.items():
        table = theory.tables(replace(study, bounds=(replace(method, breakdowns=(each,)),)))[3]
        assert {row[0]: row[1] for row in table.rows}["below B (or × rows it takes)"] == expected


def test_unlabelled_groups_have_no_true_risk_and_names_are_text(study: TheoryStudy, tmp_path: Path) -> None:
    blind = tuple(
        replace(
            method, method="<b>bold</b> & co", breakdowns=tuple(replace(b, test_risk=None) for b in method.breakdowns)
        )
        for method in study.bounds
    )
    text = theory.write_theory_report(replace(study, bounds=blind), tmp_path).read_text()
    assert "true risk is below" not in text
    assert "<b>bold" not in text


def test_the_convergence_figure_shows_gap_below_bound_on_log_axes(study: TheoryStudy) -> None:
    figure = theory.convergence_figure(study.convergence)
    assert len(figure.axes) == 4
    for ax, case in zip(figure.axes, study.convergence, strict=True):
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        lines = {str(line.get_label()): np.asarray(line.get_ydata()) for line in ax.lines}
        for run in case.runs:
            how = run.constants.how
            assert lines[f"gap, {how} constants"] == pytest.approx(run.means)
            assert (lines[f"gap, {how} constants"] < lines[f"bound, {how} constants"]).all()
        guide = lines["slope −1/2"]
        assert math.log(guide[-1] / guide[0]) / math.log(run.horizons[-1] / run.horizons[0]) == pytest.approx(-0.5)


def test_the_stationarity_figure_has_both_quantities(study: TheoryStudy) -> None:
    left, right = theory.stationarity_figure(study.stationarity).axes
    for i, curves in enumerate(study.stationarity):
        assert np.asarray(left.lines[i].get_ydata()) == pytest.approx(curves.gradient_norm.mean(axis=0))
        assert np.asarray(right.lines[i].get_ydata()) == pytest.approx(curves.dual_suboptimality.mean(axis=0))


def test_the_rate_figure_has_both_sides_on_log_axes(study: TheoryStudy) -> None:
    for ax, name, rate in zip(theory.rate_figure(study.rates).axes, theory.BOUNDED, (-0.2, -0.4), strict=True):
        lines = {str(line.get_label()): np.asarray(line.get_ydata()) for line in ax.lines}
        left, right = study.rates[1].sides[name]
        assert lines["left, λ = 10"] == pytest.approx(left)
        assert lines["right (bound), λ = 10"] == pytest.approx(right)
        guide = lines["the bound's rate"]
        assert math.log(guide[-1] / guide[0]) / math.log(256 / 64) == pytest.approx(rate)


def test_the_bars_add_up_to_the_bound(study: TheoryStudy) -> None:
    ax = theory.bound_figure(study.bounds).axes[0]
    groups = len(study.bounds[0].breakdowns)
    tops = {}
    for bar in ax.patches:
        tops[bar.get_x()] = max(tops.get(bar.get_x(), 0.0), bar.get_y() + bar.get_height())
    assert len(tops) == 2 * groups
    assert sorted(tops.values()) == pytest.approx(sorted(b.total for m in study.bounds for b in m.breakdowns))


def test_settings_are_checked() -> None:
    for bad in ({"seeds": 0}, {"epochs": 0}, {"horizons": ()}):
        with pytest.raises(SettingError):
            StudySettings(**bad)
    assert StudySettings.quick(seeds=2).seeds == 2
    assert StudySettings.quick().horizons < StudySettings().horizons
