"""The theorems at work: tables, figures and one HTML file that opens offline."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from toporo.files import write_text
from toporo.pages import charts
from toporo.pages.charts import COLORS, GRID, SOFT
from toporo.pages.render import Section, Verdict, render
from toporo.pages.table import Table
from toporo.paper.theory.bound import BoundBreakdown
from toporo.paper.theory.results import CHOICES, ConvergenceCase, MethodBounds, StationarityCurves, TheoryStudy
from toporo.paper.theory.stationarity import StationarityRates
from toporo.text import many

#: The columns that say whether a bound held.
BELOW, LEFT_BELOW = "gap below bound", "left below right"
#: What Theorem 2 bounds, how a table names it, and in how many fifths of log T the logarithm of its bound falls.
BOUNDED = {"gradient_norm": ("‖∇R‖", 1), "dual_suboptimality": ("sub-optimality of q", 2)}
#: The four terms of Theorem 3 with their titles and colours, from the bottom of a bar to its top.
TERMS = {
    "empirical": ("empirical risk under q", COLORS[0]),
    "complexity": ("2 × Rademacher complexity", COLORS[4]),
    "distance": ("B × total variation (lower bound)", COLORS[5]),
    "confidence": ("confidence term", "#c4c9d1"),
}
HATCHES = ("", "///", "...", "xx")


class Formula(str):
    """Text that a page shows with the sign after an underscore set low, and powers high: G_θ, T^−1/5 as printed."""

    __slots__ = ()

    def __html__(self) -> str:
        low = re.sub(r"_([θqeΛ])", r"<sub>\1</sub>", html.escape(self))
        return re.sub(r"\^(−\d/\d)", r"<sup>\1</sup>", low)


#: Theorem 3 as the paper states it, and as it is computed.
DEPARTURES = (
    ("term", "in the paper", "here", "why"),
    (
        "loss",
        "any loss of at most B",
        "the ramp of a linear score, ‖θ‖ ≤ R; B = 1",
        "The logistic loss that is trained with has no small B. The ramp is never below the error rate.",
    ),
    (
        "distance",
        "B × a divergence D(P‖P_Λ) between the test group's distribution and the mixture's",
        "B × total variation between their inputs, as far as a classifier tells them apart",
        "Densities are unknown, and the test group has no labels. For a loss between 0 and B the total variation "
        "suffices. What a classifier sees of it is too small rather than too large, so the sum is an estimate.",
    ),
    (
        "complexity",
        "2 × Rademacher complexity",
        "2 L × that of the rows at hand, which weigh q_e / n_e; mean over random signs",
        "It can be computed. L is there because the class is one of scores, on which the loss comes.",
    ),
    (
        "confidence",
        "a confidence term",
        "3 B √(½ log(2/δ) Σ q_e² / n_e)",
        "A row counts by its weight: the fewer groups hold q, the larger the term. The 3 pays for the complexity of "
        "these rows in place of its mean.",
    ),
    (
        "weights q",
        "as they are",
        "fixed beforehand in the total; found from the rows in “total, q chosen on the rows”",
        "DRO and TRO find q from the same rows. A union over the groups covers every q.",
    ),
)


def write_theory_report(study: TheoryStudy, out: Path) -> Path:
    """Write ``out/theory.json``, ``out/figures/*.svg`` and ``out/report.html``, and return the report's path."""
    sections = _sections(study)
    page = render(
        "theory.html",
        title="Three theorems at work on DG-15",
        verdict=_verdict_of(study),
        caption=f"Generated data, training groups {', '.join(str(name) for name in study.train)}.",
        sections=sections,
        settings=[(key.replace("_", " "), json.dumps(value)) for key, value in asdict(study.settings).items()],
    )
    write_text(out / "theory.json", json.dumps(study.to_dict(), indent=1, ensure_ascii=False))
    for section in sections:
        write_text(out / "figures" / f"{section.name}.svg", section.svg)
    path = out / "report.html"
    write_text(path, page)
    return path


def _verdict_of(study: TheoryStudy) -> Verdict:
    """Whether every bound held: the third one may fail in a share δ of all samples."""
    sums = [b for method in study.bounds for b in method.breakdowns]
    proven = [run.holds for case in study.convergence for run in case.runs] + [each.holds for each in study.rates]
    known = [b.test_risk <= b.total for b in sums if b.test_risk is not None]
    held = (
        f"hold in all {len(proven)} checks" if all(proven) else f"FAIL in {proven.count(False)} of {len(proven)} checks"
    )
    third = f"that of Theorem 3 is above the true risk in {sum(known)} of {len(known)} groups"
    vacuous = sum(b.vacuous for b in sums)
    empty = f", and says nothing (at least B) in {vacuous} of {len(sums)}" if vacuous else ""
    tone = "bad" if not all(proven) else "good" if all(known) else ""
    return Verdict(f"The bound of Theorem 1 and our bound for Theorem 2 {held}; {third}{empty}.", tone)


# ---------------------------------------------------------------- tables


def tables(study: TheoryStudy) -> tuple[Table, Table, Table, Table]:
    """One table per theorem, of Theorem 2 one more for its bound."""
    return (
        _convergence_table(study.convergence),
        _stationarity_table(study.stationarity),
        rates_table(study.rates),
        _bound_table(study.bounds),
    )


def _convergence_table(cases: Sequence[ConvergenceCase]) -> Table:
    last = cases[0].runs[0].horizons[-1]
    rows = []
    for case in cases:
        for run in case.runs:
            gap, limit = float(run.means[-1]), float(run.bounds[-1])
            verdict = "at every T" if run.holds else "NOT at every T"
            if not run.covered:
                verdict += "; gradients exceeded the constants"
            rows.append(
                (
                    case.loss,
                    f"{case.penalty:g}",
                    run.constants.how,
                    f"{run.constants.theta:.2f}",
                    f"{run.constants.q:.2f}",
                    f"{gap:.4f}",
                    f"{limit:.3f}",
                    f"{limit / gap:.0f} ×",
                    f"{_signed(run.slope)} ± {run.slope_spread:.2f}",
                    verdict,
                )
            )
    constants = (Formula("G_θ"), Formula("G_q"))
    columns = ("loss", "λ", "constants", *constants, f"gap, T = {last}", "bound", "bound / gap", "slope", BELOW)
    title = "Theorem 1: duality gap of averaged projected SGD"
    return Table(columns, tuple(rows), words=("loss", BELOW), title=title)


def _signed(number: float) -> str:
    """Two decimals and a true minus sign."""
    return f"{number:.2f}".replace("-", "−")


def _stationarity_table(curves: Sequence[StationarityCurves]) -> Table:
    last = curves[0].gradient_norm.shape[1]
    quantities = ("‖∇R‖", "sub-optimality of q")
    columns = ("method", *(f"{quantity}, epoch {epoch}" for quantity in quantities for epoch in (1, last)))
    rows = tuple(
        (
            each.method,
            *(
                f"{values[:, epoch].mean():.2g}"
                for values in (each.gradient_norm, each.dual_suboptimality)
                for epoch in (0, -1)
            ),
        )
        for each in curves
    )
    title = "Theorem 2: stationarity of a network in training"
    return Table(columns, rows, words=("method",), title=title)


def rates_table(rates: Sequence[StationarityRates]) -> Table:
    """Both sides of Theorem 2 at the largest T, and how fast they fall."""
    rows = []
    for each in rates:
        for name, (title, fifths) in BOUNDED.items():
            left, right = (float(side[-1]) for side in each.sides[name])
            times = "–" if left == 0 else f"{_rounded(right / left)} ×"
            below = bool((each.sides[name][0] <= each.sides[name][1]).all())
            slopes = (_signed(slope) for slope in each.slopes[name])
            verdict = "at every T" if below else "NOT at every T"
            rows.append(
                (
                    title,
                    f"{each.constants.penalty:g}",
                    f"{left:.2g}",
                    f"{right:.2g}",
                    times,
                    *slopes,
                    f"−{fifths}/5",
                    verdict,
                )
            )
    last = rates[0].horizons[-1]
    sides = (f"left, T = {last}", "right (bound)", "right / left", "slope, left", "slope, right", "rate")
    title = "Our bound for Theorem 2: descent and ascent with its steps"
    return Table(("quantity", "λ", *sides, LEFT_BELOW), tuple(rows), words=("quantity", LEFT_BELOW), title=title)


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
    title = {term: name for term, (name, _) in TERMS.items()}
    return {
        title["empirical"]: f"{b.empirical:.3f}",
        title["complexity"]: f"{b.complexity:.3f} ± {b.complexity_error:.3f}",
        title["distance"]: f"{b.terms['distance']:.3f} ± {b.largest_loss * b.distance_error:.3f}",
        title["confidence"]: f"{b.confidence:.3f}",
        "total": f"{b.total:.3f}",
        "below B (or × rows it takes)": _verdict(b),
        "total, q chosen on the rows": f"{b.total_if_chosen:.3f}",
        "true risk (oracle)": "–" if b.test_risk is None else f"{b.test_risk:.3f}",
        "diffusion EMD (not in the sum)": f"{b.emd:.2f}",
    }


def _verdict(breakdown: BoundBreakdown) -> str:
    if not breakdown.vacuous:
        return "yes"
    factor = breakdown.rows_factor
    return "no" if factor is None else f"no ({_rounded(factor)} ×)"


# ---------------------------------------------------------------- figures


@charts.drawn
def convergence_figure(cases: Sequence[ConvergenceCase]) -> Figure:
    """Gap against T on log axes, the bound above it; one panel per problem, certified and estimated constants."""
    figure, axes = charts.canvas(2.7, len(cases), sharex=True, sharey=True)
    for ax, case in zip(axes, cases, strict=False):
        t = np.array(case.runs[0].horizons, dtype=np.float64)
        for run, color in zip(case.runs, COLORS, strict=False):
            how = run.constants.how
            ax.plot(t, run.bounds, color=color, ls="--", lw=1.2, label=f"bound, {how} constants")
            ends = run.gaps.min(axis=1), run.gaps.max(axis=1)
            charts.curve(ax, t, run.means, *ends, color=color, marker="o", ms=3.5, label=f"gap, {how} constants")
        guide = float(case.runs[0].means[-1]) * 0.18 * np.sqrt(t[-1] / t)
        ax.plot(t, guide, color=SOFT, lw=0.9, ls=":", label="slope −1/2")
        slopes = " and ".join(_signed(run.slope) for run in case.runs)
        ax.set_title(f"{case.loss} loss, λ = {case.penalty:g}: slopes {slopes}")
    axes[0].set_xscale("log", base=2)
    axes[0].set_yscale("log")
    charts.log_ticks(axes[0].yaxis, decades=True)
    axes[0].set_xticks(cases[0].runs[0].horizons, [str(steps) for steps in cases[0].runs[0].horizons], minor=False)
    axes[0].set_xticks([], minor=True)
    axes[-1].set_xlabel("steps T (each T is a run of its own)")
    for ax in axes:
        ax.set_ylabel("duality gap")
    handles, _ = axes[0].get_legend_handles_labels()
    charts.key(figure, handles)
    return figure


@charts.drawn
def stationarity_figure(curves: Sequence[StationarityCurves]) -> Figure:
    """Both quantities of Theorem 2 after each epoch, mean over seeds, shaded from the smallest to the largest."""
    figure, axes = charts.canvas(3.0, 2)
    for i, each in enumerate(curves):
        color = COLORS[(1, 0)[i] if len(curves) == 2 else i % len(COLORS)]
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
def rate_figure(rates: Sequence[StationarityRates]) -> Figure:
    """Both sides of Theorem 2 against T on log axes, a panel per quantity."""
    figure, axes = charts.canvas(3.2, 2)
    for ax, (name, (_, fifths)) in zip(axes, BOUNDED.items(), strict=True):
        for each, color in zip(rates, COLORS, strict=False):
            (left, right), label = each.sides[name], f"λ = {each.constants.penalty:g}"
            ax.plot(each.horizons, right, color=color, ls="--", lw=1.2, label=f"right (bound), {label}")
            ax.plot(each.horizons, left, color=color, marker="o", ms=3.5, label=f"left, {label}")
        t = np.array(rates[0].horizons, dtype=np.float64)
        guide = rates[0].sides[name][1][-1] * 0.6 * (t[-1] / t) ** (fifths / 5)
        ax.plot(t, guide, color=SOFT, lw=0.9, ls=":", label="the bound's rate")
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        charts.log_ticks(ax.yaxis, decades=True)
        ax.set_xticks(rates[0].horizons, [str(steps) for steps in rates[0].horizons], minor=False)
        ax.set_xlabel("steps T (each T is runs of its own)")
    axes[0].set_title("‖∇θ R(θ, q)‖: rate −1/5")
    axes[1].set_title("max over q′ of R(θ, q′), less R(θ, q): rate −2/5")
    handles, _ = axes[0].get_legend_handles_labels()
    charts.key(figure, handles)
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
        risks = [np.nan if b.test_risk is None else b.test_risk for b in method.breakdowns]
        ax.plot(x, risks, ls="none", marker="D", ms=5, color="black", mec="white", mew=0.8, zorder=4)
    largest = bounds[0].breakdowns[0].largest_loss
    ax.axhline(largest, color="#374151", lw=1.0, ls="--")
    ax.text(len(names) - 0.45, largest, " B: above it the bound\n says nothing", fontsize=8, va="center", ha="left")
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


# ---------------------------------------------------------------- the page


def _sections(study: TheoryStudy) -> list[Section]:
    first, second, rates, third = (replace(table, title="") for table in tables(study))
    columns, *rows = (tuple(map(Formula, row)) for row in DEPARTURES)
    departures = Table(columns, tuple(rows), words=columns, title="Where this departs from the paper's bound, and why")
    settings = study.settings
    sections = [
        charts.figure_section(
            name="convergence",
            title="Theorem 1: the duality gap shrinks like one over the root of the steps",
            statement="With steps η_θ = 2R / (G_θ √T) and η_q = 2 / (G_q √T), the averages of T iterates of projected "
            "primal–dual SGD have an expected duality gap of at most (3 R G_θ + 3 G_q) / √T.",
            text=f"Linear models on the ball R = {settings.ball_radius:g}, inputs scaled into the unit ball, one row "
            f"of each group per step, {many(settings.seeds, 'seed')}. Solid: the gap, computed exactly, mean over "
            "seeds, shaded from the smallest to the largest. Dashed: the bound with the same constants. Certified "
            "constants bound the gradients on the whole ball; estimated ones are the largest met in pilot runs.",
            figure=convergence_figure(study.convergence),
            tables=(first,),
            findings=_convergence_findings(study),
            assumptions=(
                "The losses are convex in θ: linear models with the squared or the logistic loss.",
                "Rows are drawn with replacement, so gradients are unbiased; the start is θ = 0 and q = p.",
                "G_θ and G_q bound the root mean square of the stochastic gradients. Certified constants do so by "
                "proof, for estimated ones it was checked on the gradients that were met.",
                "The slope is a least-squares fit over the upper half of the T; ± is its standard deviation over "
                "seeds. The theorem bounds the gap from above: a problem whose solution lies inside the ball "
                "may do better than −1/2.",
                CHOICES["convergence"],
            ),
        ),
        charts.figure_section(
            name="stationarity",
            title="Theorem 2: how near training is to a stationary point",
            statement="A point (θ, q) is (ε, δ)-stationary if ‖∇θ R(θ, q)‖ ≤ ε and q is within δ of the worst mixture: "
            "max over q′ of R(θ, q′) − R(θ, q) ≤ δ.",
            text=f"A network (two hidden layers of 64) on DG-15, {settings.epochs} epochs of Adam on group-balanced "
            f"batches, {many(settings.training_seeds, 'seed')}. Both quantities are computed over all training rows "
            "after each epoch.",
            figure=stationarity_figure(study.stationarity),
            tables=(second,),
            findings=_stationarity_findings(study.stationarity),
            assumptions=(
                "This is a measurement, no guarantee: the theorem's rate is for SGD with its own step sizes and smooth "
                "losses, and these runs use Adam and a ReLU network. Both sides of it are below, where they are known.",
                "The inner maximum is exact, in closed form; R includes −λ D(q‖p).",
            ),
        ),
        charts.figure_section(
            name="rate",
            title="The rate of Theorem 2, and our bound beside what it bounds",
            statement="With steps η_θ ∝ T^−3/5 and η_q ∝ T^−2/5, stochastic descent in θ and projected ascent in q are "
            "on average over T iterates within ε = O(T^−1/5) and δ = O(T^−2/5) of a stationary point.",
            text="A linear model, free to go anywhere, with the sigmoid of the margin as loss, which is not convex; "
            "inputs scaled into the unit ball, the physical prior, one row of each group per step, "
            f"{many(settings.seeds, 'seed')}. Solid: left, the root of the mean squared gradient and the mean "
            "sub-optimality over all iterates and seeds, computed over all rows. Dashed: right, the bound. For its "
            "formula and proof see help(toporo.paper.theory.stationarity).",
            figure=rate_figure(study.rates),
            tables=(rates,),
            findings=_rate_findings(study.rates),
            assumptions=(
                "The bound is ours, not the paper's: its constants and proof follow the standard argument for problems "
                "that are strongly concave in q; those of the paper may differ. It needs λ > 0: group DRO has no such "
                "bound here.",
                "Every constant is proven, none estimated: the sigmoid's slope is at most 1/4, its curvature at most "
                "1/(6√3), and the losses lie between 0 and 1 for any θ. A network has no such constants.",
                "The start is θ = 0 and q = p. There all groups have the same loss and q is its own best response, of "
                "which the bound knows nothing: hence the large factors for q.",
                "Slopes are least-squares fits over the upper half of the T. That of the bound is steeper than its "
                "rate as long as terms of lower order count.",
            ),
        ),
        charts.figure_section(
            name="bound",
            title="Theorem 3: what bounds the risk in a group nobody has seen",
            statement="Risk in the test group ≤ empirical risk under q + 2 × Rademacher complexity + B × distance "
            "between the test group and the q-mixture + a confidence term.",
            text=f"Logistic models on the ball R = {settings.bound_ball_radius:g}, solved to a duality gap of at most "
            f"{max(method.gap for method in study.bounds):.0e}; the loss that is bounded is the ramp, which is never "
            "below the error rate. "
            + " ".join(f"Weights of {method.method}: {_weights(method)}." for method in study.bounds),
            figure=bound_figure(study.bounds),
            tables=(third, departures),
            findings=_bound_findings(study.bounds),
            assumptions=(*study.bounds[0].breakdowns[0].assumptions, CHOICES["bound"]),
        ),
    ]
    return [
        replace(each, statement=Formula(each.statement), assumptions=tuple(map(Formula, each.assumptions)))
        for each in sections
    ]


def _weights(method: MethodBounds) -> str:
    large = {name: value for name, value in method.weights.items() if value >= 0.005}
    return ", ".join(f"{value:.2f} on group {name}" for name, value in large.items())


def _convergence_findings(study: TheoryStudy) -> tuple[str, ...]:
    runs = [run for case in study.convergence for run in case.runs]
    below = sum(run.holds for run in runs)
    slopes = [run.slope for run in runs]
    ratio = [float(run.bounds[-1] / run.means[-1]) for run in runs]
    return (
        f"The mean gap is below the bound at every T in {below} of {len(runs)} settings.",
        f"Slopes run from {_signed(min(slopes))} to {_signed(max(slopes))}; the theorem's rate is −0.50.",
        f"At the largest T the bound is {min(ratio):.0f} to {max(ratio):.0f} times the gap: true, and loose.",
    )


def _stationarity_findings(curves: Sequence[StationarityCurves]) -> tuple[str, ...]:
    sentences = []
    for what, values in (
        ("The gradient's norm", [each.gradient_norm for each in curves]),
        ("The sub-optimality of q", [each.dual_suboptimality for each in curves]),
    ):
        falls = [float(v[:, 0].mean() / max(v[:, -1].mean(), np.finfo(np.float64).tiny)) for v in values]
        by = "; ".join(f"{_rounded(fall)} with {each.method}" for each, fall in zip(curves, falls, strict=True))
        sentences.append(f"{what} is divided, from the first epoch to the last, by {by}.")
    return tuple(sentences)


def _rate_findings(rates: Sequence[StationarityRates]) -> tuple[str, ...]:
    below = sum(each.holds for each in rates)
    ratios = [[float(side[1][-1] / max(side[0][-1], 1e-300)) for side in each.sides.values()] for each in rates]
    norms, gaps = zip(*ratios, strict=True)
    slopes = [each.slopes["gradient_norm"][0] for each in rates]
    trivial = rates[0].constants.theta
    first = next(
        (t for t, b in zip(rates[0].horizons, rates[0].bounds, strict=True) if b.gradient_norm < trivial), None
    )
    return (
        f"Left is below right at every T for {below} of {len(rates)} λ.",
        f"At the largest T the bound is {_rounded(min(norms))} to {_rounded(max(norms))} times the gradient's norm "
        f"and {_rounded(min(gaps))} to {_rounded(max(gaps))} times the sub-optimality of q: true, and loose.",
        f"The gradient's norm falls with slopes from {_signed(min(slopes))} to {_signed(max(slopes))}. The theorem "
        "says how fast the bound falls; what is below it may be slower.",
        f"No gradient can exceed {trivial:.2f}. With λ = {rates[0].constants.penalty:g} the bound says less than that "
        + (f"for T below {first}." if first else "at every T here."),
    )


def _rounded(number: float) -> str:
    """Two digits that matter, thousands apart."""
    return f"{float(f'{number:.2g}'):,g}"


def _bound_findings(bounds: Sequence[MethodBounds]) -> tuple[str, ...]:
    everything = [b for method in bounds for b in method.breakdowns]
    vacuous = sum(b.vacuous for b in everything)
    known = [b for b in everything if b.test_risk is not None]
    above = sum(b.total >= (b.test_risk or 0.0) for b in known)
    sentences = [
        f"The sum is vacuous (at least B) in {vacuous} of {len(everything)} cases: read the terms against each other, "
        "not the sum as a promise."
    ]
    if known:
        sentences.append(f"The true risk is below the sum in {above} of {len(known)} cases.")
        agreed = sum(
            min(b.total for b in group) == min(group, key=lambda b: b.test_risk or 0.0).total
            for group in zip(*(method.breakdowns for method in bounds), strict=True)
        )
        sentences.append(
            f"The method with the smallest sum also has the smallest true risk in {agreed} of "
            f"{len(bounds[0].breakdowns)} test groups."
        )
    for place, word in ((0, "near"), (-1, "far")):
        rows = "; ".join(
            f"{method.method} {method.breakdowns[place].distance:.2f}"
            + (f", true risk {method.breakdowns[place].test_risk:.2f}" if known else "")
            for method in bounds
        )
        name = bounds[0].breakdowns[place].test_group
        sentences.append(f"Distance between the mixture and the {word} group {name}: {rows}.")
    return tuple(sentences)
