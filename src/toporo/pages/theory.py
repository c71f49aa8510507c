"""The theorems at work: tables, figures and one HTML file that opens offline."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

import toporo
from toporo.bench.study import CHOICES, ConvergenceCase, MethodBounds, StationarityCurves, TheoryStudy
from toporo.files import write_text
from toporo.pages.figures import COLORS, STYLE, to_svg
from toporo.theory.bound import BoundBreakdown

#: The column that says whether a bound held.
BELOW = "gap below bound"
#: The four terms of Theorem 3 with their colours, from the bottom of a bar to its top.
TERM_COLORS = {
    "empirical": COLORS[0],
    "complexity": COLORS[4],
    "distance": COLORS[5],
    "confidence": "#c4c9d1",
}
TERM_TITLES = {
    "empirical": "empirical risk under q",
    "complexity": "2 × Rademacher complexity",
    "distance": "B × total variation (lower bound)",
    "confidence": "confidence term",
}


@dataclass(frozen=True)
class TextTable:
    """A table of text: for the terminal and the page alike."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """One theorem: what it says, what was seen, under which assumptions."""

    name: str
    title: str
    statement: str
    reading: str
    svg: str
    table: TextTable
    findings: tuple[str, ...]
    assumptions: tuple[str, ...]


def write_theory_report(study: TheoryStudy, out: Path) -> Path:
    """Write ``out/theory.json``, ``out/figures/*.svg`` and ``out/report.html``, and return the report's path."""
    sections = _sections(study)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["subscripts"] = _subscripts
    page = environment.from_string(_resource("theory_template.html")).render(
        title="Three theorems at work on DG-15",
        version=toporo.__version__,
        style=_style(),
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


def _resource(name: str) -> str:
    return files("toporo.pages").joinpath(name).read_text(encoding="utf-8")


def _subscripts(text: str) -> str:
    """Text as HTML, with the sign after an underscore set low: G_θ as it is printed."""
    return re.sub(r"_([θq])", r"<sub>\1</sub>", html.escape(text))


def _style() -> str:
    """The style of the other report's template: both pages look alike and there is one place to change it."""
    found = re.search(r"<style>(.*?)</style>", _resource("template.html"), flags=re.DOTALL)
    return found.group(1) if found else ""


# ---------------------------------------------------------------- tables


def tables(study: TheoryStudy) -> tuple[TextTable, TextTable, TextTable]:
    """One table a theorem."""
    return (
        _convergence_table(study.convergence),
        _stationarity_table(study.stationarity),
        _bound_table(study.bounds),
    )


def _convergence_table(cases: Sequence[ConvergenceCase]) -> TextTable:
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
    columns = ("loss", "λ", "constants", "G_θ", "G_q", f"gap, T = {last}", "bound", "bound / gap", "slope", BELOW)
    return TextTable("Theorem 1: duality gap of averaged projected SGD", columns, tuple(rows))


def _signed(number: float) -> str:
    """Two decimals and a true minus sign."""
    return f"{number:.2f}".replace("-", "−")


def _stationarity_table(curves: Sequence[StationarityCurves]) -> TextTable:
    last = curves[0].gradient_norm.shape[1]
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
    columns = (
        "method",
        "‖∇R‖, epoch 1",
        f"‖∇R‖, epoch {last}",
        "sub-optimality of q, epoch 1",
        f"sub-optimality of q, epoch {last}",
    )
    return TextTable("Theorem 2: stationarity of a network in training", columns, rows)


def _bound_table(bounds: Sequence[MethodBounds]) -> TextTable:
    """The nearest and the farthest test group, every method."""
    shown = [(place, method) for place in (0, -1) for method in bounds]
    found = [method.breakdowns[place] for place, method in shown]
    columns = (
        "term",
        *(
            f"{'near' if place == 0 else 'far'} group {b.test_group}: {method.method}"
            for (place, method), b in zip(shown, found, strict=True)
        ),
    )
    rows = [
        ("empirical risk under q", *(f"{b.empirical:.3f}" for b in found)),
        ("2 × Rademacher complexity", *(f"{b.complexity:.3f} ± {b.complexity_error:.3f}" for b in found)),
        (
            "B × total variation (lower bound)",
            *(f"{b.terms['distance']:.3f} ± {b.largest_loss * b.distance_error:.3f}" for b in found),
        ),
        ("confidence term", *(f"{b.confidence:.3f}" for b in found)),
        ("total", *(f"{b.total:.3f}" for b in found)),
        ("below B (or × rows it takes)", *(_verdict(b) for b in found)),
        ("total, q chosen on the rows", *(f"{b.total_if_chosen:.3f}" for b in found)),
        (
            "true risk (oracle)",
            *("–" if b.test_risk is None else f"{b.test_risk:.3f}" for b in found),
        ),
        ("diffusion EMD (not in the sum)", *(f"{b.emd:.2f}" for b in found)),
    ]
    return TextTable("Theorem 3: bound on the risk in an unseen group", columns, tuple(rows))


def _verdict(breakdown: BoundBreakdown) -> str:
    if not breakdown.vacuous:
        return "yes"
    factor = breakdown.rows_factor
    return "no" if factor is None else f"no ({_rounded(factor)} ×)"


# ---------------------------------------------------------------- figures


def convergence_figure(cases: Sequence[ConvergenceCase]) -> Figure:
    """Gap against T on log axes, the bound above it; one panel a problem, certified and estimated constants."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 5.8), layout="constrained")
        axes = figure.subplots(2, -(-len(cases) // 2), sharex=True, sharey=True, squeeze=False).ravel()
        for ax, case in zip(axes, cases, strict=False):
            for run, color in zip(case.runs, (COLORS[0], COLORS[1]), strict=False):
                t = np.array(run.horizons, dtype=np.float64)
                how = run.constants.how
                ax.plot(t, run.bounds, color=color, ls="--", lw=1.2, label=f"bound, {how} constants")
                low, high = run.gaps.min(axis=1), run.gaps.max(axis=1)
                ax.fill_between(t, low, high, color=color, alpha=0.15, lw=0)
                ax.plot(t, run.means, color=color, lw=1.6, marker="o", ms=3.5, label=f"gap, {how} constants")
            first = case.runs[0]
            t = np.array(first.horizons, dtype=np.float64)
            guide = float(first.means[-1]) * 0.18 * np.sqrt(t[-1] / t)
            ax.plot(t, guide, color="#6b7280", lw=0.9, ls=":", label="slope −1/2")
            slopes = " and ".join(_signed(run.slope) for run in case.runs)
            ax.set_title(f"{case.loss} loss, λ = {case.penalty:g}: slopes {slopes}")
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
        for ax in axes[len(axes) // 2 :]:
            ax.set_xlabel("steps T (each T is a run of its own)")
        for ax in axes[:: len(axes) // 2]:
            ax.set_ylabel("duality gap")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
        return figure


def stationarity_figure(curves: Sequence[StationarityCurves]) -> Figure:
    """Both quantities of Theorem 2 after each epoch, mean over seeds, shaded from the smallest to the largest."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 3.2), layout="constrained")
        axes = figure.subplots(1, 2)
        for i, each in enumerate(curves):
            for ax, values in zip(axes, (each.gradient_norm, each.dual_suboptimality), strict=True):
                epochs = np.arange(1, values.shape[1] + 1)
                color = COLORS[(1, 0)[i] if len(curves) == 2 else i % len(COLORS)]
                ax.plot(epochs, values.mean(axis=0), color=color, lw=1.6, label=each.method)
                ax.fill_between(epochs, values.min(axis=0), values.max(axis=0), color=color, alpha=0.15, lw=0)
        axes[0].set_title("‖∇θ R(θ, q)‖ over all training rows")
        axes[1].set_title("max over q′ of R(θ, q′), less R(θ, q)")
        for ax in axes:
            ax.set_yscale("log")
            ax.set_xlabel("epoch")
            ax.set_xlim(left=1)
            ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes[1].legend(fontsize=8)
        return figure


def bound_figure(bounds: Sequence[MethodBounds]) -> Figure:
    """The terms of Theorem 3 stacked, test groups from near to far, a bar a method; true risks as dots."""
    hatches = ("", "///", "...", "xx")
    names = [b.test_group for b in bounds[0].breakdowns]
    width = 0.8 / len(bounds)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 4.0), layout="constrained")
        ax = figure.subplots()
        for i, method in enumerate(bounds):
            x = np.arange(len(names)) + (i - (len(bounds) - 1) / 2) * width
            bottom = np.zeros(len(names))
            for term, color in TERM_COLORS.items():
                heights = np.array([b.terms[term] for b in method.breakdowns])
                ax.bar(
                    x,
                    heights,
                    width * 0.92,
                    bottom=bottom,
                    color=color,
                    hatch=hatches[i % 4],
                    edgecolor="white",
                    lw=0.5,
                )
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
        handles: list[Any] = [Patch(color=color, label=TERM_TITLES[term]) for term, color in TERM_COLORS.items()][::-1]
        handles += [
            Patch(facecolor="#e5e7eb", edgecolor="#6b7280", hatch=hatches[i % 4], label=method.method)
            for i, method in enumerate(bounds)
        ]
        handles += ax.plot([], [], ls="none", marker="D", ms=5, color="black", label="true risk (oracle)")
        figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
        return figure


# ---------------------------------------------------------------- the page


def _sections(study: TheoryStudy) -> list[Section]:
    first, second, third = tables(study)
    settings = study.settings
    return [
        Section(
            name="convergence",
            title="Theorem 1: the duality gap shrinks like one over the root of the steps",
            statement="With steps η_θ = 2R / (G_θ √T) and η_q = 2 / (G_q √T), the averages of T iterates of projected "
            "primal–dual SGD have an expected duality gap of at most (3 R G_θ + 3 G_q) / √T.",
            reading=f"Linear models on the ball R = {settings.ball_radius:g}, inputs scaled into the unit ball, one "
            f"row of each group a step, {_many(settings.seeds, 'seed')}. Solid: the gap, computed exactly, mean over "
            "seeds, shaded from the smallest to the largest. Dashed: the bound with the same constants. Certified "
            "constants bound the gradients on the whole ball; estimated ones are the largest met in pilot runs.",
            svg=to_svg("convergence", convergence_figure(study.convergence)),
            table=first,
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
        Section(
            name="stationarity",
            title="Theorem 2: how near training is to a stationary point",
            statement="A point (θ, q) is (ε, δ)-stationary if ‖∇θ R(θ, q)‖ ≤ ε and q is within δ of the worst mixture: "
            "max over q′ of R(θ, q′) − R(θ, q) ≤ δ.",
            reading=f"A network (two hidden layers of 64) on DG-15, {settings.epochs} epochs of Adam on group-balanced "
            f"batches, {_many(settings.training_seeds, 'seed')}. Both quantities are computed over all training rows "
            "after each epoch.",
            svg=to_svg("stationarity", stationarity_figure(study.stationarity)),
            table=second,
            findings=_stationarity_findings(study.stationarity),
            assumptions=(
                "This is a measurement, no guarantee: the theorem's rate is for SGD with its own step sizes and smooth "
                "losses, and these runs use Adam and a ReLU network.",
                "The inner maximum is exact, in closed form; R includes −λ D(q‖p).",
            ),
        ),
        Section(
            name="bound",
            title="Theorem 3: what bounds the risk in a group nobody has seen",
            statement="Risk in the test group ≤ empirical risk under q + 2 × Rademacher complexity + B × distance "
            "between the test group and the q-mixture + a confidence term.",
            reading=f"Logistic models on the ball R = {settings.bound_radius:g}, solved to a duality gap of at most "
            f"{max(method.gap for method in study.bounds):.0e}; the loss that is bounded is the ramp, which is never "
            "below the error rate. "
            + " ".join(f"Weights of {method.method}: {_weights(method)}." for method in study.bounds),
            svg=to_svg("bound", bound_figure(study.bounds)),
            table=third,
            findings=_bound_findings(study.bounds),
            assumptions=(*study.bounds[0].breakdowns[0].assumptions, CHOICES["bound"]),
        ),
    ]


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


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
    found = []
    for what, values in (
        ("The gradient's norm", [each.gradient_norm for each in curves]),
        ("The sub-optimality of q", [each.dual_suboptimality for each in curves]),
    ):
        falls = [float(v[:, 0].mean() / max(v[:, -1].mean(), np.finfo(np.float64).tiny)) for v in values]
        by = "; ".join(f"{_rounded(fall)} with {each.method}" for each, fall in zip(curves, falls, strict=True))
        found.append(f"{what} is divided, from the first epoch to the last, by {by}.")
    return tuple(found)


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
        "not the sum as a promise.",
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
