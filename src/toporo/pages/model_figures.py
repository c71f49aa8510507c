"""The figures of a page about one fitted model: plain functions from its groups, scores and coefficients to figures."""

from __future__ import annotations

import math
import unicodedata
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from toporo.pages.figures import COLORS, STYLE, to_svg
from toporo.pages.us_map import color_scale, part_of
from toporo.tables.evaluate import MORE_IS_BETTER, TRAINED
from toporo.topology.draw import DARK, EDGE_COLOR, OTHER_COLOR, TEST_COLOR, TRAIN_COLOR, layout

if TYPE_CHECKING:
    from toporo.choice.penalty import PenaltyScore
    from toporo.estimators.explain import GroupRow
    from toporo.tables.evaluate import Evaluation, GroupScore
    from toporo.tables.resample import Interval
    from toporo.topology.graph import GroupGraph
    from toporo.training.loop import RoundRecord


#: Groups with a row of their own in a figure; the table has them all.
SHOWN = 40
#: Groups named on the graph, where it has more than can all be named.
NAMED, NAMED_OF_MANY = 60, 15
WIDTH, ROW = 9.2, 0.2
SOFT, GRID = "#6b7280", "#e5e7eb"
#: Names are text, whatever signs they hold: a dollar starts no formula.
LOOKS: dict[Any, Any] = STYLE | {"text.parse_math": False}
#: Light to dark, without the palest end, which would be lost on white.
LOSS_COLORS = part_of("YlOrRd", 0.12, 1.0)


def svg_of(name: str, figure: Figure) -> str:
    """The figure as text for a page; signs that matplotlib's font lacks are the reader's browser's to draw."""
    with warnings.catch_warnings(), mpl.rc_context({"text.parse_math": False}):
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support .* natively")
        return to_svg(name, figure)


def short_name(name: object, most: int = 30) -> str:
    """A name on one line, at most this many columns wide; what is too long loses its middle."""
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in str(name)).split()) or "(blank)"
    widths = [_columns(sign) for sign in text]
    if sum(widths) <= most:
        return text
    head = tail = 0
    left = most - 1
    while True:
        at = head if head <= tail else len(text) - 1 - tail
        left -= widths[at]
        if left < 0:
            return f"{text[:head].rstrip()}…{text[len(text) - tail :].lstrip()}"
        head, tail = (head + 1, tail) if head <= tail else (head, tail + 1)


def _columns(sign: str) -> int:
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def _tick(name: object, most: int = 30) -> str:
    """A name left of an axis, with room for signs that a browser draws broader than matplotlib thinks."""
    text = short_name(name, most)
    return "\u00a0" * math.ceil(1.3 * sum(_columns(sign) == 2 for sign in text)) + text


def metric_name(metric: str) -> str:
    """As people write it."""
    return {"rmse": "RMSE", "mae": "MAE", "r2": "R²"}.get(metric, metric.replace("_", " "))


# ---------------------------------------------------------------- groups


def graph_figure(graph: GroupGraph, rows: Sequence[GroupRow], test: Collection[object]) -> Figure:
    """The graph: training groups with an area by weight and a colour by loss, test groups marked, others small."""
    by_name: dict[Any, GroupRow] = {row.group: row for row in rows}
    at = layout(graph)
    side = min(7.5, max(4.2, 1.1 * len(graph) ** 0.5))
    with mpl.rc_context(LOOKS):
        figure = Figure(figsize=(WIDTH, side), layout="constrained")
        ax = figure.subplots()
        lines = [[at[a], at[b]] for a, b in graph.edges]
        ax.add_collection(LineCollection(lines, colors=EDGE_COLOR, linewidths=0.8, alpha=0.6, zorder=1))
        trained = [name for name in graph.names if name in by_name]
        coming = [name for name in graph.names if name in test and name not in by_name]
        others = [name for name in graph.names if name not in by_name and name not in test]
        base = 240.0 if len(graph) <= 20 else 110.0 if len(graph) <= 80 else 60.0
        if others:
            _nodes(ax, at, others, marker="o", s=0.3 * base, color=OTHER_COLOR, label="no rows in training")
        if coming:
            hollow = {"facecolor": "white", "edgecolor": TEST_COLOR, "linewidth": 1.6}
            _nodes(ax, at, coming, marker="s", s=0.5 * base, label="test groups", **hollow)
        shown = [by_name[name] for name in trained]
        heaviest = max((row.weight for row in shown), default=0.0)
        areas = [base * (0.25 + 2.75 * (row.weight / heaviest if heaviest > 0 else 0.0)) for row in shown]
        marks = _nodes(
            ax, at, trained, marker="o", s=areas, c=[row.loss for row in shown], cmap=LOSS_COLORS,
            norm=color_scale(row.loss for row in rows), edgecolor="#374151", linewidth=0.7, zorder=3,
        )  # fmt: skip
        ax.margins(0.1)
        reach = dict(zip(trained, [math.sqrt(area / math.pi) for area in areas], strict=True))
        named = graph.names
        if len(graph) > NAMED:
            named = tuple(sorted(trained, key=lambda name: -by_name[name].weight)[:NAMED_OF_MANY])
        for name in named:
            below = reach.get(name, math.sqrt(0.5 * base) / 2) + 2
            ax.annotate(
                short_name(name, 18 if len(graph) > 20 else 24), at[name], (0, -below), textcoords="offset points",
                size=7.5, color=DARK, ha="center", va="top", zorder=4,
                bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.6},  # a rim would make text paths
            )  # fmt: skip
        ax.set_axis_off()
        _loss_bar(figure, ax, marks, "loss of training groups")
        handles = [_dot("o", "#d1d5db", "#374151", "training groups (area: weight)")]
        handles += [_dot("s", "white", TEST_COLOR, "test groups")] * bool(coming)
        handles += [_dot("o", OTHER_COLOR, OTHER_COLOR, "no rows in training")] * bool(others)
        figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8)
        return figure


def _nodes(ax: Axes, at: Mapping[Any, Any], names: Sequence[Any], **style: Any) -> Any:
    places = np.array([at[name] for name in names], dtype=np.float64).reshape(-1, 2)
    return ax.scatter(places[:, 0], places[:, 1], **({"zorder": 2} | style))


def _loss_bar(figure: Figure, ax: Axes, marks: Any, label: str) -> None:
    log = isinstance(marks.norm, LogNorm)
    key = figure.colorbar(marks, ax=ax, shrink=0.8, aspect=24, pad=0.01)
    key.set_label(label + (", log scale" if log else ""), size=8)
    key.ax.yaxis.set_minor_locator(NullLocator())
    if log:
        key.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        key.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        key.ax.yaxis.set_major_locator(MaxNLocator(4))
    key.ax.tick_params(labelsize=8, length=2)
    key.outline.set_visible(False)


def weight_figure(rows: Sequence[GroupRow]) -> Figure:
    """The weight of every training group, the heaviest first, coloured by its loss: where there is no graph to draw."""
    shown, rest = _first(sorted(rows, key=lambda row: (-row.weight, str(row.group))))
    norm = color_scale(row.loss for row in rows)
    with mpl.rc_context(LOOKS):
        figure, ax = _rows_figure([row.group for row in shown], bool(rest), least=6)
        colors = LOSS_COLORS(norm([row.loss for row in shown]))
        ax.barh(np.arange(len(shown)), [row.weight for row in shown], height=0.68, color=colors, zorder=2)
        if rest:
            _in_row(ax, len(shown), f"{len(rest)} more groups, together: {math.fsum(row.weight for row in rest):.3f}")
        _loss_bar(figure, ax, mpl.cm.ScalarMappable(norm, LOSS_COLORS), "loss of the group")
        ax.set_xlim(left=0)
        ax.set_xlabel("weight q")
        return figure


def prior_figure(rows: Sequence[GroupRow]) -> Figure:
    """Prior against weight, the heaviest group first, a dumbbell each."""
    shown, rest = _first(sorted(rows, key=lambda row: (-row.weight, -row.prior, str(row.group))))
    with mpl.rc_context(LOOKS):
        figure, ax = _rows_figure([row.group for row in shown], bool(rest))
        y, priors, weights = np.arange(len(shown)), [row.prior for row in shown], [row.weight for row in shown]
        ax.axvline(1 / len(rows), color=SOFT, lw=0.8, ls=":", zorder=1)
        ax.hlines(y, priors, weights, color="#9ca3af", lw=2.0, zorder=2)
        ax.plot(priors, y, ls="", marker="D", ms=5, mfc="white", mec=TEST_COLOR, mew=1.3, zorder=3, clip_on=False)
        ax.plot(weights, y, ls="", marker="o", ms=6, mfc=TRAIN_COLOR, mec="white", mew=0.5, zorder=4, clip_on=False)
        if rest:
            prior, weight = math.fsum(row.prior for row in rest), math.fsum(row.weight for row in rest)
            _in_row(ax, len(shown), f"{len(rest)} more groups, together: prior {prior:.3f}, weight {weight:.3f}")
        ax.set_xlim(0, 1.04 * max(*priors, *weights))
        ax.set_xlabel("share of the training objective")
        even = Line2D([], [], color=SOFT, lw=0.8, ls=":", label="the same for all groups")
        handles = [_dot("D", "white", TEST_COLOR, "prior p"), _dot("o", TRAIN_COLOR, TRAIN_COLOR, "weight q"), even]
        figure.legend(handles=handles, loc="outside lower right", ncols=3, fontsize=8)
        return figure


def loss_figure(rows: Sequence[GroupRow], what: str) -> Figure:
    """The loss of every training group beside its weight, the worst first."""
    order = sorted(rows, key=lambda row: (-row.loss, str(row.group)))
    shown, rest = _first(order)
    with mpl.rc_context(LOOKS):
        figure, left = _rows_figure([row.group for row in shown], bool(rest), panels=2)
        right = figure.axes[1]
        y = np.arange(len(shown))
        left.barh(y, [row.loss for row in shown], height=0.68, color=COLORS[1], zorder=2)
        right.barh(y, [row.weight for row in shown], height=0.68, color=TRAIN_COLOR, zorder=2)
        mean = math.fsum(row.loss for row in rows) / len(rows)
        left.axvline(mean, color=SOFT, lw=0.8, ls=":", zorder=3)
        right.axvline(1 / len(rows), color=SOFT, lw=0.8, ls=":", zorder=3)
        left.set_xlabel(f"loss: {what}\n(dotted: mean over groups)")
        right.set_xlabel("weight q\n(dotted: the same for all groups)")
        if rest:
            _in_row(left, len(shown), f"{len(rest)} more, {_number(rest[-1].loss)} to {_number(rest[0].loss)}")
            _in_row(right, len(shown), f"together {math.fsum(row.weight for row in rest):.3f}")
        return figure


# ---------------------------------------------------------------- evaluation


def metric_figure(evaluation: Evaluation) -> Figure:
    """The leading metric of every group with its interval, the worst first; groups trained on apart from new ones."""
    metric = evaluation.metric
    shown, rest = _first(evaluation.groups)
    with mpl.rc_context(LOOKS):
        figure, ax = _rows_figure([score.group for score in shown], bool(rest))
        overall = evaluation.overall[metric]
        if _finite(overall.low, overall.high):
            ax.axvspan(overall.low, overall.high, color=GRID, lw=0, zorder=0.5)
        if _finite(overall.value):
            ax.axvline(overall.value, color=SOFT, lw=0.9, ls=":", zorder=1)
        for i, score in enumerate(shown):
            found = score.metrics[metric]
            if _finite(found.value):
                _interval(ax, found, i, _style(score.trained), across=True)
            else:
                _in_row(ax, i, "no value")
        if rest:
            values = [s.metrics[metric].value for s in rest if _finite(s.metrics[metric].value)]
            span = f", {_number(min(values))} to {_number(max(values))}" if values else ", no value"
            _in_row(ax, len(shown), f"{len(rest)} more groups{span}")
        _metric_axis(ax.set_xlim, evaluation, shown)
        ax.set_xlabel(_metric_label(evaluation))
        kinds = {score.trained for score in evaluation.groups}
        handles = [_trained_dot(kind) for kind in (True, False) if kind in kinds]
        handles.append(Line2D([], [], color=SOFT, lw=0.9, ls=":", label="mean over groups, shaded: its interval"))
        figure.legend(handles=handles, loc="outside lower right", ncols=3, fontsize=8)
        return figure


def hop_figure(evaluation: Evaluation) -> Figure:
    """The leading metric, mean over groups, by how many edges the nearest training group is away."""
    found = {hop: metrics[evaluation.metric] for hop, metrics in evaluation.by_hop.items()}
    with mpl.rc_context(LOOKS):
        figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
        ax = figure.subplots()
        for i, (hop, interval) in enumerate(found.items()):
            if _finite(interval.value):
                _interval(ax, interval, i, _style(hop == TRAINED), across=False)
            else:
                ax.text(i, 0.5, "no value", transform=ax.get_xaxis_transform(), size=8, color=SOFT, ha="center")
        ax.set_xticks(range(len(found)), list(found))
        ax.set_xlim(-0.6, len(found) - 0.4)
        ax.set_xlabel("edges to the nearest training group")
        ax.set_ylabel(_metric_label(evaluation))
        ax.grid(axis="y", color=GRID, lw=0.6)
        ax.set_axisbelow(True)
        kinds = sorted({hop == TRAINED for hop in found}, reverse=True)
        figure.legend(handles=[_trained_dot(kind) for kind in kinds], loc="outside lower right", ncols=2, fontsize=8)
        return figure


def _interval(ax: Axes, found: Interval, place: float, style: dict[str, Any], *, across: bool) -> None:
    """A value with its interval; without one where it has none."""
    spread = None
    if _finite(found.low, found.high):
        spread = [[max(found.value - found.low, 0.0)], [max(found.high - found.value, 0.0)]]
    looks: dict[str, Any] = {"ls": "", "capsize": 0, "elinewidth": 1.4, "mew": 1.3, "zorder": 3, **style}
    if across:
        ax.errorbar(found.value, place, xerr=spread, **looks)
    else:
        ax.errorbar(place, found.value, yerr=spread, **looks)


def _style(trained: bool) -> dict[str, Any]:
    if trained:
        return {"marker": "o", "ms": 5, "color": TRAIN_COLOR, "mfc": TRAIN_COLOR}
    return {"marker": "s", "ms": 5, "color": TEST_COLOR, "mfc": "white"}


def _trained_dot(trained: bool) -> Line2D:
    if trained:
        return _dot("o", TRAIN_COLOR, TRAIN_COLOR, "trained on")
    return _dot("s", "white", TEST_COLOR, "not trained on")


def _metric_label(evaluation: Evaluation) -> str:
    better = "higher is better" if evaluation.metric in MORE_IS_BETTER else "lower is better"
    return f"{metric_name(evaluation.metric)} ({better})"


def _metric_axis(limit: Callable[..., Any], evaluation: Evaluation, shown: Sequence[GroupScore]) -> None:
    """Errors from zero, shares up to one; an endless interval must not decide the axis."""
    if evaluation.metric == "accuracy":
        limit(-0.02, 1.02)
        return
    found = [score.metrics[evaluation.metric] for score in shown]
    ends = [end for each in found for end in (each.value, each.low, each.high) if math.isfinite(end)]
    limit(0, 1.05 * max(ends, default=1.0) or 1.0)


# ---------------------------------------------------------------- settings and coefficients


def penalty_figure(scores: Sequence[PenaltyScore], chosen: float, label: str) -> Figure:
    """Score and spread over folds by penalty on a log axis; no penalty and an endless one stand apart at its ends."""
    order = sorted(scores, key=lambda score: score.penalty)
    places, labels = _penalty_places([score.penalty for score in order])
    with mpl.rc_context(LOOKS):
        figure = Figure(figsize=(WIDTH, 3.1), layout="constrained")
        ax = figure.subplots()
        drawn = [(x, score) for x, score in zip(places, order, strict=True) if _finite(score.score)]
        x, y = np.array([x for x, _ in drawn]), np.array([score.score for _, score in drawn])
        between = np.array([0 < score.penalty < math.inf for _, score in drawn], dtype=bool)
        spread = np.array([score.spread if _finite(score.spread) else 0.0 for _, score in drawn])
        ax.plot(x[between], y[between], color=TRAIN_COLOR, lw=1.2, alpha=0.6)
        ax.errorbar(x, y, yerr=spread, ls="", marker="o", ms=5, color=TRAIN_COLOR, elinewidth=1.1, capsize=0)
        for at, score in drawn:
            if score.penalty == chosen:
                ax.plot(at, score.score, marker="o", ms=13, mfc="none", mec=TEST_COLOR, mew=2.0, zorder=4)
                break
        for at, score in zip(places, order, strict=True):
            if not _finite(score.score):
                ax.text(at, 0.5, "no value", transform=ax.get_xaxis_transform(), size=7, color=SOFT, ha="center")
            if not 0 < score.penalty < math.inf and len(order) > 1:
                ax.axvline(at + (0.5 if score.penalty == 0 else -0.5), color=GRID, lw=1.0, ls="--", zorder=0)
        ax.set_xticks(places, labels)
        ax.set_xlim(min(places) - 0.4, max(places) + 0.4)
        ax.set_xlabel("penalty λ: the larger, the nearer the weights stay to the prior (∞: they are the prior)")
        ax.set_ylabel(label)
        ax.grid(axis="y", color=GRID, lw=0.6)
        ax.set_axisbelow(True)
        ring = Line2D([], [], ls="", marker="o", ms=10, mfc="none", mec=TEST_COLOR, mew=2.0, label="chosen")
        dots = Line2D([], [], ls="-", lw=1.1, marker="o", ms=5, color=TRAIN_COLOR,
                      label="geometric mean over folds, bar: spread over folds")  # fmt: skip
        figure.legend(handles=[dots, ring], loc="outside lower right", ncols=2, fontsize=8)
        return figure


def _penalty_places(penalties: Sequence[float]) -> tuple[list[float], list[str]]:
    """Where penalties stand: decades apart, zero and infinity one step beyond the others; and their labels."""
    inner = [math.log10(value) for value in penalties if 0 < value < math.inf] or [0.0]
    places = []
    for value in penalties:
        if value == 0:
            places.append(min(inner) - 1.0)
        else:
            places.append(max(inner) + 1.0 if value == math.inf else math.log10(value))
    return places, ["∞" if value == math.inf else f"{value:g}" for value in penalties]


def effect_figure(names: Sequence[str], values: Sequence[float], label: str) -> Figure:
    """Effects as bars to the left and right of zero, in the order given."""
    with mpl.rc_context(LOOKS):
        figure, ax = _rows_figure(names, False)
        colors = [TRAIN_COLOR if value >= 0 else TEST_COLOR for value in values]
        ax.barh(np.arange(len(names)), values, height=0.68, color=colors, zorder=2)
        ax.axvline(0, color="#374151", lw=0.8, zorder=3)
        ax.set_xlabel(label)
        return figure


def training_figure(history: Sequence[RoundRecord]) -> Figure:
    """The objective after each epoch, and the weights of the groups that ended heaviest."""
    epochs = [record.round for record in history]
    heaviest = sorted(history[-1].weights.items(), key=lambda item: (-item[1], str(item[0])))[: len(COLORS)]
    with mpl.rc_context(LOOKS):
        figure = Figure(figsize=(WIDTH, 3.1), layout="constrained")
        left, right = figure.subplots(1, 2)
        mark = "o" if len(epochs) == 1 else None
        left.plot(epochs, [record.loss for record in history], color=TRAIN_COLOR, lw=1.6, marker=mark)
        left.set_ylabel("training objective")
        for (name, _), color in zip(heaviest, COLORS, strict=False):
            weights = [record.weights.get(name, math.nan) for record in history]
            right.plot(epochs, weights, color=color, lw=1.4, marker=mark, label=short_name(name, 22))
        right.set_ylabel("weight q")
        right.set_ylim(bottom=0)
        for ax in (left, right):
            ax.set_xlabel("epoch")
            ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            ax.grid(axis="y", color=GRID, lw=0.6)
        right.legend(bbox_to_anchor=(1.0, 1.0), loc="upper left", fontsize=8)
        return figure


# ---------------------------------------------------------------- shared


def _first(order: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Those with a row of their own, and the rest; one that alone is left over has one too."""
    cut = len(order) if len(order) <= SHOWN + 1 else SHOWN
    return order[:cut], order[cut:]


def _rows_figure(names: Sequence[object], rest: bool, *, panels: int = 1, least: int = 3) -> tuple[Figure, Axes]:
    """A figure with a row a name, the first on top, and one more for the rest; as high as ``least`` rows at least."""
    count = len(names) + rest
    figure = Figure(figsize=(WIDTH, 0.95 + ROW * max(count, least)), layout="constrained")
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    for ax in axes:
        for i in range(0, count, 2):
            ax.axhspan(i - 0.5, i + 0.5, color="#f6f7f9", lw=0, zorder=0)
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0, labelsize=8, pad=6)
        ax.xaxis.set_major_locator(MaxNLocator(6))
    axes[0].set_yticks(range(len(names)), [_tick(name) for name in names])
    axes[0].set_ylim(count - 0.5, -0.5)
    return figure, axes[0]


def _in_row(ax: Axes, row: float, text: str) -> None:
    ax.text(0.01, row, text, transform=ax.get_yaxis_transform(), size=8, color=SOFT, va="center", zorder=5)


def _dot(marker: str, face: str, edge: str, label: str) -> Line2D:
    return Line2D([], [], ls="", marker=marker, ms=6, mfc=face, mec=edge, mew=1.3, label=label)


def _finite(*values: float) -> bool:
    return all(math.isfinite(value) for value in values)


def _number(value: float) -> str:
    """Three digits that matter."""
    return f"{value:.3g}"
