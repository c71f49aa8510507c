"""Report of the three theorems: tables, figures and one HTML file that opens offline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from toporo.files import write_text
from toporo.pages import charts
from toporo.pages.charts import COLORS, GRID, SOFT
from toporo.pages.render import Verdict, render
from toporo.pages.table import Table
from toporo.paper.theory.bound import LARGEST_LOSS, BoundBreakdown
from toporo.paper.theory.convergence import Convergence
from toporo.paper.theory.rates import Rate
from toporo.paper.theory.stationarity import StationarityRates
from toporo.paper.theory.study import MethodBounds, TheoryStudy, TrainingCurves
from toporo.text import many

#: Quantities bounded by Theorem 2: name, title, and the rate of the bound as fifths in the power of T.
BOUNDED = {"gradient_norm": ("‖∇R‖", 1), "dual_suboptimality": ("sub-optimality of q", 2)}
#: The four terms of Theorem 3 with their titles and colours, from the bottom of a bar to its top.
TERMS = {
    "empirical": ("empirical risk under q", COLORS[0]),
    "complexity": ("2 × Rademacher complexity", COLORS[4]),
    "distance": ("B × total variation (lower bound)", COLORS[5]),
    "confidence": ("confidence term", "#c4c9d1"),
}
#: Names and titles of the page's sections.
SECTIONS = {
    "convergence": "Theorem 1: the duality gap shrinks like one over the root of the steps",
    "stationarity": "Theorem 2: how near training is to a stationary point",
    "rate": "The rate of Theorem 2, and our bound beside what it bounds",
    "bound": "Theorem 3: what bounds the risk in a group nobody has seen",
}
HATCHES = ("", "///", "...", "xx")


def write_theory_report(study: TheoryStudy, out: Path) -> Path:
    """Write ``out/theory.json``, ``out/figures/*.svg`` and ``out/report.html``, and return the report's path."""
    figures = (
        convergence_figure(study.convergence),
        training_figure(study.stationarity),
        rate_figure(study.rates),
        bound_figure(study.bounds),
    )
    sections = [
        charts.figure_section(name, title, "", figure, (table,))
        for (name, title), figure, table in zip(SECTIONS.items(), figures, tables(study), strict=True)
    ]
    page = render(
        "theory.html",
        title="Three theorems at work on DG-15",
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
    proven += [all(rate.holds for rate in each.rates().values()) for each in study.rates]
    above = [b.test_risk <= b.total for b in breakdowns]
    held = (
        f"hold in all {len(proven)} checks" if all(proven) else f"FAIL in {proven.count(False)} of {len(proven)} checks"
    )
    third = f"that of Theorem 3 is above the true risk in {sum(above)} of {len(above)} cases"
    vacuous = sum(b.vacuous for b in breakdowns)
    empty = f", and says nothing (at least B) in {vacuous} of {len(breakdowns)}" if vacuous else ""
    tone = "bad" if not all(proven) else "good" if all(above) else ""
    return Verdict(f"The bound of Theorem 1 and our bound for Theorem 2 {held}; {third}{empty}.", tone)


# ---------------------------------------------------------------- tables


def tables(study: TheoryStudy) -> tuple[Table, Table, Table, Table]:
    """One table each for Theorem 1, networks in training, the bound of Theorem 2, and Theorem 3."""
    return (
        _convergence_table(study.convergence),
        _training_table(study.stationarity),
        rates_table(study.rates),
        _bound_table(study.bounds),
    )


def _convergence_table(runs: Sequence[Convergence]) -> Table:
    rows = tuple(
        (
            run.loss,
            f"{run.penalty:g}",
            run.constants.how,
            f"{run.constants.theta:.2f}",
            f"{run.constants.q:.2f}",
            f"{run.gap.means[-1]:.4f}",
            f"{run.gap.bounds[-1]:.3f}",
            f"{run.gap.bounds[-1] / run.gap.means[-1]:.0f} ×",
            f"{_signed(run.gap.slope)} ± {run.gap.slope_spread:.2f}",
            _held(run.gap) + ("" if run.covered else "; gradients exceeded the constants"),
        )
        for run in runs
    )
    gap, last = f"gap, T = {runs[0].gap.horizons[-1]}", "gap below bound"
    columns = ("loss", "λ", "constants", "Gθ", "Gq", gap, "bound", "bound / gap", "slope", last)
    return Table(columns, rows, words=("loss", last), title="Theorem 1: duality gap of averaged projected SGD")


def _training_table(curves: Sequence[TrainingCurves]) -> Table:
    last = curves[0].gradient_norm.shape[1]
    titles = [f"{title}, epoch {epoch}" for title, _ in BOUNDED.values() for epoch in (1, last)]
    rows = tuple(
        (each.method, *(f"{getattr(each, name)[:, epoch].mean():.2g}" for name in BOUNDED for epoch in (0, -1)))
        for each in curves
    )
    title = "Theorem 2: stationarity of a network in training"
    return Table(("method", *titles), rows, words=("method",), title=title)


def rates_table(results: Sequence[StationarityRates]) -> Table:
    """Both sides of Theorem 2 at the largest T, and how fast they fall."""
    rows = []
    for result in results:
        for name, (title, fifths) in BOUNDED.items():
            rate = result.rates()[name]
            left, right = rate.means[-1], rate.bounds[-1]
            ratio = "–" if left == 0 else f"{_rounded(right / left)} ×"
            slopes = _signed(rate.slope), _signed(rate.bound_slope), f"−{fifths}/5"
            penalty = f"{result.constants.penalty:g}"
            rows.append((title, penalty, f"{left:.2g}", f"{right:.2g}", ratio, *slopes, _held(rate)))
    left_title, last = f"left, T = {results[0].gradient_norm.horizons[-1]}", "left below right"
    sides = (left_title, "right (bound)", "right / left", "slope, left", "slope, right", "rate")
    title = "Our bound for Theorem 2: descent and ascent with its steps"
    return Table(("quantity", "λ", *sides, last), tuple(rows), words=("quantity", last), title=title)


def _bound_table(bounds: Sequence[MethodBounds]) -> Table:
    """The nearest and the farthest test group, every method."""
    shown = [(word, method, method.breakdowns[at]) for at, word in ((0, "near"), (-1, "far")) for method in bounds]
    columns = ("term", *(f"{word} group {each.test_group}: {method.method}" for word, method, each in shown))
    cells = [_bound_cells(each) for _, _, each in shown]
    rows = tuple((title, *(column[title] for column in cells)) for title in cells[0])
    title = "Theorem 3: bound on the risk in an unseen group"
    return Table(columns, rows, words=("term",), title=title, row_styles={list(cells[0]).index("total"): "total"})


def _bound_cells(b: BoundBreakdown) -> dict[str, str]:
    """A breakdown, term by term."""
    errors = {"complexity": b.complexity_error, "distance": LARGEST_LOSS * b.distance_error}
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


def _plot_rate(ax: Axes, rate: Rate, color: str, bound: str, mean: str) -> None:
    """Plot the mean over seeds, shaded from the smallest to the largest, and the bound, dashed."""
    ax.plot(rate.horizons, rate.bounds, color=color, ls="--", lw=1.2, label=bound)
    ends = rate.values.min(axis=1), rate.values.max(axis=1)
    charts.curve(ax, rate.horizons, rate.means, *ends, color=color, marker="o", ms=3.5, label=mean)


def _plot_guide(ax: Axes, horizons: Sequence[int], end: float, power: float, label: str) -> None:
    """Plot a dotted line that falls like a power of T to a value at the largest T, and make both axes logarithmic."""
    ax.plot(horizons, end * (horizons[-1] / np.array(horizons)) ** power, color=SOFT, lw=0.9, ls=":", label=label)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    charts.log_ticks(ax.yaxis, decades=True)
    ax.set_xticks(horizons, [str(steps) for steps in horizons], minor=False)
    ax.set_xticks([], minor=True)
    ax.set_xlabel("steps T (each T is runs of its own)")


@charts.drawn
def convergence_figure(results: Sequence[Convergence]) -> Figure:
    """Gap and bound against T on log axes; one panel per problem, certified and estimated constants."""
    problems = [list(runs) for _, runs in groupby(results, key=lambda run: (run.loss, run.penalty))]
    figure, axes = charts.canvas(2.7, len(problems), sharex=True, sharey=True)
    for ax, runs in zip(axes, problems, strict=True):
        for run, color in zip(runs, COLORS, strict=False):
            how = f"{run.constants.how} constants"
            _plot_rate(ax, run.gap, color, f"bound, {how}", f"gap, {how}")
        _plot_guide(ax, runs[0].gap.horizons, 0.18 * runs[0].gap.means[-1], 1 / 2, "slope −1/2")
        slopes = " and ".join(_signed(run.gap.slope) for run in runs)
        ax.set_title(f"{runs[0].loss} loss, λ = {runs[0].penalty:g}: slopes {slopes}")
        ax.set_ylabel("duality gap")
    for ax in axes[:-1]:
        ax.set_xlabel("")
    charts.key(figure, axes[0].get_legend_handles_labels()[0])
    return figure


@charts.drawn
def training_figure(curves: Sequence[TrainingCurves]) -> Figure:
    """Both quantities of Theorem 2 after each epoch, mean over seeds, shaded from the smallest to the largest."""
    figure, axes = charts.canvas(3.0, 2)
    for each, color in zip(curves, (COLORS[1], COLORS[0]), strict=True):
        for ax, values in zip(axes, (each.gradient_norm, each.dual_suboptimality), strict=True):
            epochs = np.arange(1, values.shape[1] + 1)
            ends = values.min(axis=0), values.max(axis=0)
            charts.curve(ax, epochs, values.mean(axis=0), *ends, color=color, label=each.method)
    axes[0].set_title("‖∇θ R(θ, q)‖ over all training rows")
    axes[1].set_title("max over q′ of R(θ, q′), less R(θ, q)")
    for ax in axes:
        ax.set_yscale("log")
        charts.log_ticks(ax.yaxis)
        ax.set_xlabel("epoch")
        ax.set_xlim(left=1)
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes[1].legend(fontsize=8)
    return figure


@charts.drawn
def rate_figure(results: Sequence[StationarityRates]) -> Figure:
    """Both sides of Theorem 2 against T on log axes, a panel per quantity."""
    figure, axes = charts.canvas(3.2, 2)
    for ax, (name, (_, fifths)) in zip(axes, BOUNDED.items(), strict=True):
        for result, color in zip(results, COLORS, strict=False):
            label = f"λ = {result.constants.penalty:g}"
            _plot_rate(ax, result.rates()[name], color, f"right (bound), {label}", f"left, {label}")
        first = results[0].rates()[name]
        _plot_guide(ax, first.horizons, 0.6 * first.bounds[-1], fifths / 5, "the bound's rate")
    axes[0].set_title("‖∇θ R(θ, q)‖: rate −1/5")
    axes[1].set_title("max over q′ of R(θ, q′), less R(θ, q): rate −2/5")
    charts.key(figure, axes[0].get_legend_handles_labels()[0])
    return figure


@charts.drawn
def bound_figure(bounds: Sequence[MethodBounds]) -> Figure:
    """The terms of Theorem 3 stacked, test groups from near to far, a bar per method; true risks as dots."""
    names = [b.test_group for b in bounds[0].breakdowns]
    width = 0.8 / len(bounds)
    figure, (ax,) = charts.canvas(4.0)
    for i, method in enumerate(bounds):
        x = np.arange(len(names)) + (i - (len(bounds) - 1) / 2) * width
        bottom = np.zeros(len(names))
        looks: dict[str, Any] = {"hatch": HATCHES[i % 4], "edgecolor": "white", "lw": 0.5}
        for term, (_, color) in TERMS.items():
            heights = np.array([b.terms[term] for b in method.breakdowns])
            ax.bar(x, heights, width * 0.92, bottom=bottom, color=color, **looks)
            bottom += heights
        ax.plot(
            x,
            [b.test_risk for b in method.breakdowns],
            ls="none",
            marker="D",
            ms=5,
            color="black",
            mec="white",
            mew=0.8,
            zorder=4,
        )
    ax.axhline(LARGEST_LOSS, color="#374151", lw=1.0, ls="--")
    ax.text(
        len(names) - 0.45, LARGEST_LOSS, " B: above it the bound\n says nothing", fontsize=8, va="center", ha="left"
    )
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_ylim(bottom=-0.05)
    ax.set_xticks(range(len(names)), [str(name) for name in names])
    ax.set_xlabel("test group, from near to far")
    ax.set_ylabel("loss")
    handles: list[Any] = [Patch(color=color, label=title) for title, color in reversed(TERMS.values())]
    handles += [
        Patch(facecolor=GRID, edgecolor=SOFT, hatch=HATCHES[i % 4], label=method.method)
        for i, method in enumerate(bounds)
    ]
    handles.append(charts.mark("true risk (oracle)", "D", ms=5, color="black"))
    charts.key(figure, handles)
    return figure
