"""Report of the three theorems: tables, figures and one HTML file that opens offline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from toporo import pages
from toporo.files import write_text
from toporo.pages import Table, Verdict
from toporo.paper.base import BENCHMARKS
from toporo.paper.theory.bound import BoundBreakdown
from toporo.paper.theory.convergence import Convergence
from toporo.paper.theory.rates import Rate
from toporo.paper.theory.stationarity import StationarityRates
from toporo.paper.theory.study import MethodBounds, TheoryStudy, TrainingCurves
from toporo.text import many

#: Quantities bounded by Theorem 2: title, axis title, and power of T at which the bound falls.
BOUNDED = {
    "gradient_norm": ("‖∇R‖", "‖∇θ R(θ, q)‖", "−1/5"),
    "dual_suboptimality": ("sub-optimality of q", "max over q′ of R(θ, q′), less R(θ, q)", "−2/5"),
}
#: The four terms of Theorem 3 with their titles and colours, from the bottom of a bar to its top.
TERMS = {
    "empirical": ("empirical risk under q", pages.charts.COLORS[0]),
    "complexity": ("2 × Rademacher complexity", pages.charts.COLORS[4]),
    "distance": ("B × total variation (lower bound)", pages.charts.COLORS[5]),
    "confidence": ("confidence term", "#c4c9d1"),
}
#: Names and titles of the page's sections.
SECTIONS = {
    "convergence": "Theorem 1: the duality gap falls like one over the square root of the steps",
    "stationarity": "Theorem 2: distance of training from a stationary point",
    "rate": "Theorem 2: our bound and the quantities it bounds",
    "bound": "Theorem 3: a bound on the risk in an unseen group",
}
STEPS = "steps T (separate runs for each T)"


def write_theory_report(study: TheoryStudy, out: Path) -> Path:
    """Write ``out/theory.json``, ``out/figures/*.svg`` and ``out/report.html``, and return the report's path."""
    figures = (
        convergence_figure(study.convergence),
        training_figure(study.stationarity),
        rate_figure(study.rates),
        bound_figure(study.bounds),
    )
    sections = [
        pages.charts.figure_section(name, title, "", figure, (table,))
        for (name, title), figure, table in zip(SECTIONS.items(), figures, tables(study), strict=True)
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
    """Summary of which bounds held; that of Theorem 3 may fail with probability δ."""
    breakdowns = [breakdown for method in study.bounds for breakdown in method.breakdowns]
    proven = [run.gap.holds for run in study.convergence]
    proven += [result.gradient_norm.holds and result.dual_suboptimality.holds for result in study.rates]
    above = [b.test_risk <= b.total for b in breakdowns]
    vacuous = sum(b.vacuous for b in breakdowns)
    held = f"FAIL in {proven.count(False)} of {len(proven)}" if not all(proven) else f"hold in all {len(proven)}"
    empty = f", and vacuous (at least B) in {vacuous} of {len(breakdowns)}" if vacuous else ""
    return Verdict(
        f"The bound of Theorem 1 and our bound for Theorem 2 {held} checks; that of Theorem 3 is above the true risk "
        f"in {sum(above)} of {len(above)} cases{empty}.",
        "bad" if not all(proven) else "good" if all(above) else "",
    )


# ---------------------------------------------------------------- tables


def tables(study: TheoryStudy) -> tuple[Table, Table, Table, Table]:
    """One table each for Theorem 1, networks in training, the bound of Theorem 2, and Theorem 3."""
    return (
        _convergence_table(study.convergence),
        _training_table(study.stationarity),
        rates_table(study.rates),
        _bound_table(study.bounds),
    )


def _table(title: str, rows: Sequence[dict[str, str]], words: tuple[str, ...]) -> Table:
    """Make a table of rows whose cells have the titles of their columns."""
    return Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows), words=words, title=title)


def _convergence_table(runs: Sequence[Convergence]) -> Table:
    rows = [
        {
            "loss": run.loss,
            "λ": f"{run.penalty:g}",
            "constants": run.constants.how,
            "Gθ": f"{run.constants.theta:.2f}",
            "Gq": f"{run.constants.q:.2f}",
            f"gap, T = {run.gap.horizons[-1]}": f"{run.gap.means[-1]:.4f}",
            "bound": f"{run.gap.bounds[-1]:.3f}",
            "bound / gap": f"{run.gap.bounds[-1] / run.gap.means[-1]:.0f} ×",
            "slope": f"{_signed(run.gap.slope)} ± {run.gap.slope_spread:.2f}",
            "gap below bound": _held(run.gap) + ("" if run.covered else "; gradients exceeded the constants"),
        }
        for run in runs
    ]
    return _table("Theorem 1: duality gap of averaged projected SGD", rows, ("loss", "gap below bound"))


def _training_table(curves: Sequence[TrainingCurves]) -> Table:
    rows = [
        {"method": method.method}
        | {
            f"{title}, epoch {epoch}": f"{getattr(method, name)[:, epoch - 1].mean():.2g}"
            for name, (title, _, _) in BOUNDED.items()
            for epoch in (1, method.gradient_norm.shape[1])
        }
        for method in curves
    ]
    return _table("Theorem 2: stationarity of a network in training", rows, ("method",))


def rates_table(results: Sequence[StationarityRates]) -> Table:
    """Both sides of Theorem 2 at the largest T, and how fast they fall."""
    rows = []
    for result in results:
        for name, (title, _, power) in BOUNDED.items():
            rate: Rate = getattr(result, name)
            left, right = rate.means[-1], rate.bounds[-1]
            rows.append(
                {
                    "quantity": title,
                    "λ": f"{result.constants.penalty:g}",
                    f"left, T = {rate.horizons[-1]}": f"{left:.2g}",
                    "right (bound)": f"{right:.2g}",
                    "right / left": "–" if left == 0 else f"{_rounded(right / left)} ×",
                    "slope, left": _signed(rate.slope),
                    "slope, right": _signed(rate.bound_slope),
                    "rate": power,
                    "left below right": _held(rate),
                }
            )
    title = "Our bound for Theorem 2: descent and ascent with its steps"
    return _table(title, rows, ("quantity", "left below right"))


def _bound_table(bounds: Sequence[MethodBounds]) -> Table:
    """The nearest and the farthest test group, every method."""
    cells = {
        f"{word} group {method.breakdowns[at].test_group}: {method.method}": _bound_cells(method.breakdowns[at])
        for word, at in (("near", 0), ("far", -1))
        for method in bounds
    }
    terms = list(next(iter(cells.values())))
    rows = tuple((term, *(column[term] for column in cells.values())) for term in terms)
    title = "Theorem 3: bound on the risk in an unseen group"
    return Table(("term", *cells), rows, words=("term",), title=title, row_styles={terms.index("total"): "total"})


def _bound_cells(b: BoundBreakdown) -> dict[str, str]:
    """A breakdown, term by term."""
    errors = {"complexity": b.complexity_error, "distance": b.distance_error}
    terms = {
        TERMS[name][0]: f"{value:.3f}" + (f" ± {errors[name]:.3f}" if name in errors else "")
        for name, value in b.terms.items()
    }
    factor = "" if b.rows_factor is None else f" ({_rounded(b.rows_factor)} ×)"
    return terms | {
        "total": f"{b.total:.3f}",
        "below B (or × rows it takes)": f"no{factor}" if b.vacuous else "yes",
        "total, q chosen on the rows": f"{b.total_if_chosen:.3f}",
        "true risk (oracle)": f"{b.test_risk:.3f}",
        "diffusion EMD (not in the sum)": f"{b.emd:.2f}",
    }


def _held(rate: Rate) -> str:
    return "at every T" if rate.holds else "NOT at every T"


def _signed(number: float) -> str:
    """Two decimals and a true minus sign."""
    return f"{number:.2f}".replace("-", "−")


def _rounded(number: float) -> str:
    """Two significant digits, with separators of thousands."""
    return f"{float(f'{number:.2g}'):,g}"


# ---------------------------------------------------------------- figures


def _rate_lines(rate: Rate, color: str, mean: str, bound: str) -> list[pages.charts.Line]:
    """Lines of the mean over seeds, with a band from the smallest to the largest, and of the bound, dashed."""
    ends = rate.values.min(axis=1), rate.values.max(axis=1)
    return [
        pages.charts.Line(rate.means, mean, *ends, style={"color": color}),
        pages.charts.Line(rate.bounds, bound, style={"color": color, "ls": "--"}),
    ]


def convergence_figure(results: Sequence[Convergence]) -> Figure:
    """Gap and bound against T on log axes; one panel per problem, certified and estimated constants."""
    panels: dict[str, list[pages.charts.Line]] = {}
    for (loss, penalty), runs in groupby(results, key=lambda run: (run.loss, run.penalty)):
        lines = panels[f"duality gap: {loss} loss, λ = {penalty:g}"] = []
        for run, color in zip(runs, pages.charts.COLORS, strict=False):
            how = f"{run.constants.how} constants"
            lines += _rate_lines(run.gap, color, f"gap, {how}", f"bound, {how}")
    return pages.charts.line_chart(results[0].gap.horizons, panels, STEPS, log="xy", shared=True)


def training_figure(curves: Sequence[TrainingCurves]) -> Figure:
    """Both quantities of Theorem 2 after each epoch, mean over seeds, with a band from the smallest to the largest."""
    panels: dict[str, list[pages.charts.Line]] = {title: [] for _, title, _ in BOUNDED.values()}
    for lines, name in zip(panels.values(), BOUNDED, strict=True):
        for method in curves:
            runs = getattr(method, name)
            lines.append(pages.charts.Line(runs.mean(axis=0), method.method, runs.min(axis=0), runs.max(axis=0)))
    return pages.charts.line_chart(range(1, curves[0].gradient_norm.shape[1] + 1), panels, "epoch", log="y")


def rate_figure(results: Sequence[StationarityRates]) -> Figure:
    """Both sides of Theorem 2 against T on log axes, a panel per quantity."""
    panels: dict[str, list[pages.charts.Line]] = {}
    for name, (_, title, power) in BOUNDED.items():
        lines = panels[f"{title}: rate {power}"] = []
        for result, color in zip(results, pages.charts.COLORS, strict=False):
            label = f"λ = {result.constants.penalty:g}"
            lines += _rate_lines(getattr(result, name), color, f"left, {label}", f"right (bound), {label}")
    return pages.charts.line_chart(results[0].gradient_norm.horizons, panels, STEPS, log="xy")


@pages.charts.drawn
def bound_figure(bounds: Sequence[MethodBounds]) -> Figure:
    """The terms of Theorem 3 stacked, test groups from near to far, a bar per method; true risks as dots."""
    names = [b.test_group for b in bounds[0].breakdowns]
    width = 0.8 / len(bounds)
    figure, (ax,) = pages.charts.canvas(4.0)
    handles: list[Any] = [Patch(color=color, label=title) for title, color in reversed(TERMS.values())]
    for i, (method, hatch) in enumerate(zip(bounds, ("", "///"), strict=True)):
        x = np.arange(len(names)) + (i - (len(bounds) - 1) / 2) * width
        bottom = np.zeros(len(names))
        for term, (_, color) in TERMS.items():
            heights = np.array([b.terms[term] for b in method.breakdowns])
            ax.bar(x, heights, width * 0.92, bottom=bottom, color=color, hatch=hatch, edgecolor="white", lw=0.5)
            bottom += heights
        risks = [b.test_risk for b in method.breakdowns]
        ax.plot(x, risks, ls="none", marker="D", ms=5, color="black", mec="white", mew=0.8, zorder=4)
        handles.append(
            Patch(facecolor=pages.charts.GRID, edgecolor=pages.charts.SOFT, hatch=hatch, label=method.method)
        )
    ax.axhline(1.0, color="#374151", lw=1.0, ls="--")
    ax.text(len(names) - 0.45, 1.0, " B: a bound above\n it is vacuous", fontsize=8, va="center")
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_ylim(bottom=-0.05)
    ax.set_xticks(range(len(names)), [str(name) for name in names])
    ax.set_xlabel("test group, from near to far")
    ax.set_ylabel("loss")
    pages.charts.key(figure, [*handles, pages.charts.mark("true risk (oracle)", "D", ms=5, color="black")])
    return figure
