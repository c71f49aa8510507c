"""Report of the three theorems: tables, figures and one HTML file that opens offline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from matplotlib.figure import Figure

from toporo import pages
from toporo.files import write_text
from toporo.pages import Table, Verdict
from toporo.paper.base import BENCHMARKS
from toporo.paper.theory.bound import BoundBreakdown
from toporo.paper.theory.rates import Rate
from toporo.paper.theory.study import MethodBounds, TheoryStudy, TrainingCurves
from toporo.text import many

#: Quantities that are measured, and the power of T at which the theorems say that they fall.
QUANTITIES = {
    "gap": ("duality gap", "−1/2"),
    "gradient_norm": ("‖∇R‖", "−1/5"),
    "dual_suboptimality": ("sub-optimality of q", "−2/5"),
}
#: Theorem 3's terms, their sum, and what it bounds.
TERMS = {
    "empirical": "empirical risk under q",
    "complexity": "2 × Rademacher complexity",
    "distance": "B × total variation (lower bound)",
    "confidence": "confidence term",
    "total": "total",
    "test_risk": "true risk (oracle)",
}


def write_theory_report(study: TheoryStudy, out: Path) -> Path:
    """Write ``out/theory.json``, ``out/figures/*.svg`` and ``out/report.html``, and return the report's path."""
    figures = {
        "convergence": rate_figure(study.convergence),
        "stationarity": training_figure(study.stationarity),
        "rate": rate_figure(study.rates),
        "bound": bound_figure(study.bounds),
    }
    sections = [
        pages.charts.figure_section(name, table.title, "", figure, (table,))
        for (name, figure), table in zip(figures.items(), tables(study), strict=True)
    ]
    benchmark = BENCHMARKS[study.benchmark].protocol.title
    page = pages.render.render(
        "theory.html",
        title=f"Three theorems at work on {benchmark}",
        benchmark=benchmark,
        verdict=_verdict(study),
        caption=f"Generated data, training groups {', '.join(str(name) for name in study.train)}.",
        sections=sections,
        study=study,
        many=many,
        settings=[(key.replace("_", " "), json.dumps(value)) for key, value in asdict(study.settings).items()],
    )
    write_text(out / "theory.json", study.to_json())
    for section in sections:
        write_text(out / "figures" / f"{section.name}.svg", section.svg)
    path = out / "report.html"
    write_text(path, page)
    return path


def _verdict(study: TheoryStudy) -> Verdict:
    """Summarise which bounds hold; that of Theorem 3 may fail with probability δ."""
    proven = [rate.holds for rate in (*study.convergence, *study.rates)]
    breakdowns = [breakdown for method in study.bounds for breakdown in method.breakdowns]
    above, vacuous = sum(b.test_risk <= b.total for b in breakdowns), sum(b.total >= 1.0 for b in breakdowns)
    held = f"hold in all {len(proven)}" if all(proven) else f"FAIL in {proven.count(False)} of {len(proven)}"
    return Verdict(
        f"The bound of Theorem 1 and our bound for Theorem 2 {held} checks; that of Theorem 3 is above the true risk "
        f"in {above} of {len(breakdowns)} cases, and vacuous (at least B) in {vacuous}.",
        "bad" if not all(proven) else "good" if above == len(breakdowns) else "",
    )


# ---------------------------------------------------------------- tables


def tables(study: TheoryStudy) -> tuple[Table, Table, Table, Table]:
    """Return one table each for Theorem 1, networks in training, the bound of Theorem 2, and Theorem 3."""
    return (
        rate_table(study.convergence, "Theorem 1: duality gap of averaged projected SGD"),
        _training_table(study.stationarity),
        rate_table(study.rates, "Theorem 2: our bound, and the quantities it bounds"),
        _bound_table(study.bounds),
    )


def _table(rows: Sequence[dict[str, str]], title: str, words: tuple[str, ...]) -> Table:
    """Make a table of rows whose cells have the titles of their columns."""
    totals = {number: "total" for number, row in enumerate(rows) if "total" in row.values()}
    return Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows), words, title, totals)


def rate_table(rates: Sequence[Rate], title: str) -> Table:
    """Return measured quantities and their bounds at the largest T, and how fast both fall."""
    rows = [
        {
            "quantity": QUANTITIES[rate.quantity][0],
            "loss": rate.loss,
            "λ": f"{rate.penalty:g}",
            f"measured, T = {rate.horizons[-1]}": f"{rate.means[-1]:.2g}",
            "bound": f"{rate.bounds[-1]:.2g}",
            "bound / measured": f"{float(f'{rate.bounds[-1] / rate.means[-1]:.2g}'):,g} ×",
            "slope": f"{rate.slope:.2f}".replace("-", "−"),
            "slope of the bound": f"{rate.bound_slope:.2f}".replace("-", "−"),
            "rate": QUANTITIES[rate.quantity][1],
            "below the bound": "at every T" if rate.holds else "NOT at every T",
        }
        for rate in rates
    ]
    return _table(rows, title, ("quantity", "loss", "below the bound"))


def _training_table(curves: Sequence[TrainingCurves]) -> Table:
    rows = [
        {"method": method.method}
        | {
            f"{QUANTITIES[name][0]}, epoch {epoch}": f"{getattr(method, name)[:, epoch - 1].mean():.2g}"
            for name in ("gradient_norm", "dual_suboptimality")
            for epoch in (1, method.gradient_norm.shape[1])
        }
        for method in curves
    ]
    return _table(rows, "Theorem 2: stationarity of a network in training", ("method",))


def _bound_table(bounds: Sequence[MethodBounds]) -> Table:
    """Return the terms for the nearest and the farthest test group, every method."""
    shown = [(word, method, method.breakdowns[at]) for word, at in (("near", 0), ("far", -1)) for method in bounds]
    rows = [
        {"term": title} | {f"{word} group {b.test_group}: {method.method}": _cell(b, name) for word, method, b in shown}
        for name, title in TERMS.items()
    ]
    return _table(rows, "Theorem 3: bound on the risk in an unseen group", ("term",))


def _cell(breakdown: BoundBreakdown, name: str) -> str:
    """Return a term, with its standard error if it is an estimate."""
    error = getattr(breakdown, f"{name}_error", None)
    return f"{getattr(breakdown, name):.3f}" + ("" if error is None else f" ± {error:.3f}")


# ---------------------------------------------------------------- figures


def rate_figure(rates: Sequence[Rate]) -> Figure:
    """Draw quantities and their bounds (dashed) against T on log axes, a panel per quantity and loss.

    A line is the mean over seeds, with a band from the smallest to the largest.
    """
    panels: dict[str, list[pages.charts.Line]] = {}
    for rate in rates:
        lines = panels.setdefault(f"{QUANTITIES[rate.quantity][0]}: {rate.loss} loss", [])
        color, penalty = pages.charts.COLORS[len(lines) // 2], f"λ = {rate.penalty:g}"
        ends = rate.values.min(axis=1), rate.values.max(axis=1)
        lines.append(pages.charts.Line(rate.means, penalty, *ends, style={"color": color}))
        lines.append(pages.charts.Line(rate.bounds, f"bound, {penalty}", style={"color": color, "ls": "--"}))
    return pages.charts.line_chart(rates[0].horizons, panels, "steps T (separate runs for each T)", log="xy")


def training_figure(curves: Sequence[TrainingCurves]) -> Figure:
    """Draw both quantities of Theorem 2 after each epoch: means over seeds, with a band of one standard deviation."""
    panels = {
        QUANTITIES[name][0]: [pages.charts.Line.over_seeds(getattr(method, name), method.method) for method in curves]
        for name in ("gradient_norm", "dual_suboptimality")
    }
    return pages.charts.line_chart(range(1, curves[0].gradient_norm.shape[1] + 1), panels, "epoch", log="y")


def bound_figure(bounds: Sequence[MethodBounds]) -> Figure:
    """Draw the terms of Theorem 3 and the true risk, test groups from near to far, a panel per method."""
    panels = {
        method.method: [
            pages.charts.Line([getattr(b, name) for b in method.breakdowns], title) for name, title in TERMS.items()
        ]
        for method in bounds
    }
    groups = [str(b.test_group) for b in bounds[0].breakdowns]
    label = f"test group, from near to far: {', '.join(groups)}"
    return pages.charts.line_chart(
        range(1, len(groups) + 1), panels, label, levels={"B: a larger bound is vacuous": 1.0}
    )
