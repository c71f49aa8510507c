"""The figures of a page about one fitted model: plain functions from its groups, scores and coefficients to figures."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from toporo.choice.penalty import PenaltyScore
from toporo.estimators.explain import GroupRow
from toporo.estimators.league import Standing
from toporo.pages import charts
from toporo.pages.charts import COLORS, GRID, SOFT
from toporo.pages.maps import contiguous_states, draw_ground, draw_states
from toporo.pages.model_words import OUTSIDE
from toporo.pages.outlines import load_outlines
from toporo.tables.contest import metric_name
from toporo.tables.evaluate import MORE_IS_BETTER, TRAINED, Evaluation
from toporo.tables.resample import Interval
from toporo.text import short_name, sign_width
from toporo.topology.draw import DARK, EDGE_COLOR, FIRM_COLOR, OTHER_COLOR, TEST_COLOR, TRAIN_COLOR, add_hits, layout
from toporo.topology.graph import GroupGraph
from toporo.topology.labels import NodeNames
from toporo.training import RoundRecord

#: Groups with a row of their own in a figure; the table has them all.
SHOWN = 40
#: Groups on a graph whose names all have room, as a rule, and on one of several small graphs.
NAMED, NAMED_OF_MANY = 60, 15
#: Inches of a row.
ROW = 0.2
#: Light to dark, without the palest end, which would be lost on white.
LOSS_COLORS = charts.part_of("YlOrRd", 0.12, 1.0)
#: Below and above the mean group.
APART = charts.part_of("RdBu_r", 0.06, 0.94)
#: The share of coefficients that a scale of colours reaches: a few that are far out must not decide it.
NEARLY_ALL = 0.95
#: Errors of candidates further apart than this factor have a logarithmic axis.
ERRORS_FAR = 8.0
#: How groups look that were trained on, and others.
LOOKS: dict[bool, dict[str, Any]] = {
    True: {"marker": "o", "color": TRAIN_COLOR, "mfc": TRAIN_COLOR, "mew": 1.3},
    False: {"marker": "s", "color": TEST_COLOR, "mfc": "white", "mew": 1.3},
}


# ---------------------------------------------------------------- groups


@charts.drawn
def graph_figure(
    graph: GroupGraph, rows: Sequence[GroupRow], test: Collection[object], outside: Collection[object] = ()
) -> Figure:
    """The graph: training groups with an area by weight and a colour by loss, test groups marked, others small.

    Groups outside of what validation has seen have a ring.
    """
    by_name: dict[Any, GroupRow] = {row.group: row for row in rows}
    at = layout(graph)
    trained = [name for name in graph.names if name in by_name]
    trained.sort(key=lambda name: -by_name[name].weight)  # small nodes on top of large ones
    held_out = [name for name in graph.names if name in test and name not in by_name]
    others = [name for name in graph.names if name not in by_name and name not in test]
    base = 240.0 if len(graph) <= 20 else 110.0 if len(graph) <= 80 else 60.0
    figure, (ax,) = charts.canvas(4.0)
    frame = draw_ground(ax, graph, at)
    if frame is not None:
        west, east, south, north = frame
        figure.set_figheight(min(5.5, charts.WIDTH * (north - south) / (east - west) + 0.9))
    lines = [[at[a], at[b]] for a, b in graph.edges]
    ax.add_collection(LineCollection(lines, colors=EDGE_COLOR, linewidths=0.8, alpha=0.6, zorder=1))
    if others:
        _nodes(ax, at, others, marker="o", s=0.3 * base, color=OTHER_COLOR)
    if held_out:
        _nodes(ax, at, held_out, marker="s", s=0.5 * base, facecolor="white", edgecolor=TEST_COLOR, linewidth=1.6)
    heaviest = max((by_name[name].weight for name in trained), default=0.0) or 1.0
    areas = {name: base * (0.25 + 2.75 * by_name[name].weight / heaviest) for name in trained}
    marks = _nodes(
        ax, at, trained, marker="o", s=list(areas.values()), c=[by_name[name].loss for name in trained],
        cmap=LOSS_COLORS, norm=charts.color_scale(row.loss for row in rows), edgecolor="#374151", linewidth=0.7,
        zorder=3,
    )  # fmt: skip
    beyond = _rings(ax, at, [name for name in graph.names if name in outside], 1.6 * base)
    ax.margins(0.1)
    sizes = dict.fromkeys(others, 0.3 * base) | dict.fromkeys(held_out, 0.5 * base) | areas
    reach = {name: math.sqrt(sizes[name]) / 2 for name in graph.names}
    order = [*trained, *held_out, *others]
    texts = {name: short_name(name, 18 if len(graph) > 20 else 24) for name in order}
    NodeNames(ax, at, reach, texts, graph.edges, size=7.5)
    add_hits(ax, at, reach)
    ax.set_axis_off()
    charts.color_bar(figure, marks, "loss of training groups", across=True, ax=ax, aspect=30, pad=0.01)
    handles = [charts.mark("training groups (area: weight)", mfc="#d1d5db", mec="#374151")]
    handles += [charts.mark("test groups", "s", mfc="white", mec=TEST_COLOR)] * bool(held_out)
    handles += [charts.mark("no rows in training", color=OTHER_COLOR)] * bool(others)
    charts.key(figure, [*handles, *beyond])
    return figure


def _rings(ax: Axes, at: Mapping[Any, Any], names: Sequence[Any], size: float) -> list[Line2D]:
    """Dashed rings around groups, and what a key says of them; nothing without any."""
    if not names:
        return []
    ring: dict[str, Any] = {"marker": "o", "s": size, "facecolor": "none", "zorder": 5}
    _nodes(ax, at, names, edgecolor="white", linewidth=2.0, **ring)
    _nodes(ax, at, names, edgecolor=DARK, linewidth=1.0, linestyle="--", **ring)
    return [charts.stroke(f"ring: {OUTSIDE}", color=DARK, ls="--")]


def _nodes(ax: Axes, at: Mapping[Any, Any], names: Sequence[Any], **style: Any) -> Any:
    places = np.array([at[name] for name in names], dtype=np.float64).reshape(-1, 2)
    return ax.scatter(places[:, 0], places[:, 1], **({"zorder": 2} | style))


@charts.drawn
def weight_figure(rows: Sequence[GroupRow]) -> Figure:
    """The weight of every training group, the heaviest first, coloured by its loss: where there is no graph to draw."""
    shown, rest = _first(sorted(rows, key=lambda row: (-row.weight, str(row.group))))
    norm = charts.color_scale(row.loss for row in rows)
    figure, (ax,) = _rows_figure([row.group for row in shown], rest, least=6)
    _bars(ax, [row.weight for row in shown], LOSS_COLORS(norm([row.loss for row in shown])), "weight q")
    if rest:
        charts.in_row(ax, len(shown), f"{len(rest)} more groups, together: {_total(row.weight for row in rest)}")
    charts.color_bar(figure, ScalarMappable(norm, LOSS_COLORS), "loss of the group", ax=ax, aspect=24, pad=0.01)
    ax.set_xlim(left=0)
    return figure


@charts.drawn
def prior_figure(rows: Sequence[GroupRow]) -> Figure:
    """Prior against weight, the heaviest group first, a dumbbell each."""
    shown, rest = _first(sorted(rows, key=lambda row: (-row.weight, -row.prior, str(row.group))))
    figure, (ax,) = _rows_figure([row.group for row in shown], rest)
    y, priors, weights = range(len(shown)), [row.prior for row in shown], [row.weight for row in shown]
    ax.axvline(1 / len(rows), color=SOFT, lw=0.8, ls=":", zorder=1)
    ax.hlines(y, priors, weights, color="#9ca3af", lw=2.0, zorder=2)
    ax.plot(priors, y, ls="", marker="D", ms=5, mfc="white", mec=TEST_COLOR, mew=1.3, zorder=3, clip_on=False)
    ax.plot(weights, y, ls="", marker="o", ms=6, mfc=TRAIN_COLOR, mec="white", mew=0.5, zorder=4, clip_on=False)
    if rest:
        prior, weight = _total(row.prior for row in rest), _total(row.weight for row in rest)
        charts.in_row(ax, len(shown), f"{len(rest)} more groups, together: prior {prior}, weight {weight}")
    ax.set_xlim(0, 1.04 * max(*priors, *weights))
    ax.set_xlabel("share of the training objective")
    handles = [charts.mark("prior p", "D", mfc="white", mec=TEST_COLOR), charts.mark("weight q", color=TRAIN_COLOR)]
    charts.key(figure, [*handles, charts.stroke("the same for all groups", lw=0.8)])
    return figure


@charts.drawn
def loss_figure(rows: Sequence[GroupRow], what: str) -> Figure:
    """The loss of every training group beside its weight, the worst first; ``what`` is the loss."""
    shown, rest = _first(sorted(rows, key=lambda row: (-row.loss, str(row.group))))
    figure, (left, right) = _rows_figure([row.group for row in shown], rest, panels=2)
    _bars(left, [row.loss for row in shown], COLORS[1], f"loss: {what}\n(dotted: mean over groups)")
    _bars(right, [row.weight for row in shown], TRAIN_COLOR, "weight q\n(dotted: the same for all groups)")
    for ax, mean in ((left, math.fsum(row.loss for row in rows) / len(rows)), (right, 1 / len(rows))):
        ax.axvline(mean, color=SOFT, lw=0.8, ls=":", zorder=3)
    if rest:
        charts.in_row(left, len(shown), f"{len(rest)} more, {rest[-1].loss:.3g} to {rest[0].loss:.3g}")
        charts.in_row(right, len(shown), f"together {_total(row.weight for row in rest)}")
    return figure


# ---------------------------------------------------------------- evaluation


@charts.drawn
def metric_figure(evaluation: Evaluation) -> Figure:
    """The leading metric of every group with its interval, the worst first; groups trained on apart from new ones."""
    shown, rest = _first(evaluation.groups)
    figure, (ax,) = _rows_figure([score.group for score in shown], rest)
    mean = evaluation.headline[evaluation.metric]
    if math.isfinite(mean.low) and math.isfinite(mean.high):
        ax.axvspan(mean.low, mean.high, color=GRID, lw=0, zorder=0.5)
    if math.isfinite(mean.value):
        ax.axvline(mean.value, color=SOFT, lw=0.9, ls=":", zorder=1)
    intervals = [score.metrics[evaluation.metric] for score in evaluation.groups]
    for i, (score, interval) in enumerate(zip(shown, intervals, strict=False)):
        if math.isfinite(interval.value):
            charts.spread(ax, i, interval.value, interval.low, interval.high, **LOOKS[score.trained])
        else:
            charts.in_row(ax, i, "no value")
    if rest:
        values = [interval.value for interval in intervals[len(shown) :] if math.isfinite(interval.value)]
        span = f"{min(values):.3g} to {max(values):.3g}" if values else "no value"
        charts.in_row(ax, len(shown), f"{len(rest)} more groups, {span}")
    _metric_axis(ax, evaluation.metric, intervals[: len(shown)])
    ax.set_xlabel(_metric_label(evaluation))
    handles = _trained_marks(score.trained for score in evaluation.groups)
    over = "groups not trained on" if evaluation.unseen else "groups"
    charts.key(figure, [*handles, charts.stroke(f"mean over {over}, shaded: its interval")])
    return figure


@charts.drawn
def hop_figure(evaluation: Evaluation) -> Figure:
    """The leading metric, mean over groups, by how many edges the nearest training group is away."""
    figure, (ax,) = charts.canvas(2.9)
    for i, (hop, metrics) in enumerate(evaluation.by_hop.items()):
        interval = metrics[evaluation.metric]
        if math.isfinite(interval.value):
            ends = (interval.low, interval.high)
            charts.spread(ax, i, interval.value, *ends, across=False, **LOOKS[hop == TRAINED])
        else:
            _in_column(ax, i, "no value")
    ax.set_xticks(range(len(evaluation.by_hop)), list(evaluation.by_hop))
    ax.set_xlim(-0.6, len(evaluation.by_hop) - 0.4)
    ax.set_xlabel("edges to the nearest training group")
    ax.set_ylabel(_metric_label(evaluation))
    charts.level_lines(ax)
    charts.key(figure, _trained_marks(hop == TRAINED for hop in evaluation.by_hop))
    return figure


def _trained_marks(trained: Iterable[bool]) -> list[Line2D]:
    kinds = {True: "trained on", False: "not trained on"}
    there = set(trained)
    return [charts.mark(words, **LOOKS[kind]) for kind, words in kinds.items() if kind in there]


def _metric_label(evaluation: Evaluation) -> str:
    better = "higher is better" if evaluation.metric in MORE_IS_BETTER else "lower is better"
    return f"{metric_name(evaluation.metric)} ({better})"


def _metric_axis(ax: Axes, metric: str, shown: Sequence[Interval]) -> None:
    """Errors from zero, shares up to one; an endless interval must not decide the axis."""
    if metric == "accuracy":
        ax.set_xlim(-0.02, 1.02)
        return
    ends = [end for each in shown for end in (each.value, each.low, each.high) if math.isfinite(end)]
    ax.set_xlim(0, 1.05 * max(ends, default=1.0) or 1.0)


# ---------------------------------------------------------------- settings and coefficients


@charts.drawn
def penalty_figure(scores: Sequence[PenaltyScore], chosen: float, label: str) -> Figure:
    """Score and spread over folds by penalty on a log axis; no penalty and an endless one stand apart at its ends."""
    order = sorted(scores, key=lambda score: score.penalty)
    places, labels = _penalty_places([score.penalty for score in order])
    figure, (ax,) = charts.canvas(3.1)
    joined: list[tuple[float, float]] = []
    for at, score in zip(places, order, strict=True):
        inner = 0 < score.penalty < math.inf
        if not math.isfinite(score.score):
            _in_column(ax, at, "no value", size=7)
        else:
            around = score.spread if math.isfinite(score.spread) else 0.0
            ends = (score.score - around, score.score + around)
            charts.spread(ax, at, score.score, *ends, across=False, color=TRAIN_COLOR, elinewidth=1.1)
            joined += [(at, score.score)] * inner
            if score.penalty == chosen:
                ax.plot(at, score.score, marker="o", ms=13, mfc="none", mec=TEST_COLOR, mew=2.0, zorder=4)
        if not inner and len(order) > 1:
            ax.axvline(at + (0.5 if score.penalty == 0 else -0.5), color=GRID, lw=1.0, ls="--", zorder=0)
    ax.plot(*np.reshape(joined, (-1, 2)).T, color=TRAIN_COLOR, lw=1.2, alpha=0.6)
    ax.set_xticks(places, labels, fontsize=8, rotation=45 * (len(labels) > 8))
    ax.set_xlim(min(places) - 0.4, max(places) + 0.4)
    ax.set_xlabel("penalty λ: the larger, the nearer the weights stay to the prior (∞: they are the prior)")
    ax.set_ylabel(label)
    charts.level_lines(ax)
    mean = "geometric mean over folds, bar: spread over folds"
    dots = charts.stroke(mean, ls="-", lw=1.1, marker="o", ms=5, color=TRAIN_COLOR)
    charts.key(figure, [dots, charts.mark("chosen", ms=10, mfc="none", mec=TEST_COLOR, mew=2.0)])
    return figure


def _penalty_places(penalties: Sequence[float]) -> tuple[list[float], list[str]]:
    """Where penalties stand: decades apart, zero and infinity one step beyond the others; and their labels."""
    inner = [math.log10(value) for value in penalties if 0 < value < math.inf] or [0.0]
    ends = {0.0: min(inner) - 1.0, math.inf: max(inner) + 1.0}
    places = [ends[value] if value in ends else math.log10(value) for value in penalties]
    return places, ["∞" if value == math.inf else f"{value:g}" for value in penalties]


@charts.drawn
def effect_figure(names: Sequence[str], values: Sequence[float], label: str) -> Figure:
    """Effects as bars to the left and right of zero, in the order given."""
    figure, (ax,) = _rows_figure(names)
    _bars(ax, values, [TRAIN_COLOR if value >= 0 else TEST_COLOR for value in values], label)
    ax.axvline(0, color="#374151", lw=0.8, zorder=3)
    return figure


# ---------------------------------------------------------------- votes


@charts.drawn
def league_figure(rows: Sequence[Standing]) -> Figure:
    """Votes as bars, and beside them errors over that of the safe mean, with a line to the worst part."""
    shown, rest = _first(rows)
    figure, (left, right) = _rows_figure([row.name for row in shown], rest, panels=2)
    _bars(left, [row.vote for row in shown], TRAIN_COLOR, "vote")
    left.set_xlim(0, 1.04 * max(max(row.vote for row in shown), 0.5))
    for place, row in enumerate(shown):
        if not math.isfinite(row.error):
            charts.in_row(right, place, short_name(row.note or "could not be fitted", 44))
            continue
        right.plot([row.error, row.worst], [place, place], color="#9ca3af", lw=2.0, zorder=2)
        right.plot(row.worst, place, ls="", marker="|", ms=9, mew=1.6, color=TEST_COLOR, zorder=3)
        right.plot(row.error, place, ls="", marker="o", ms=6, mfc=TRAIN_COLOR, mec="white", mew=0.5, zorder=4)
    right.axvline(1.0, color=SOFT, lw=0.8, ls=":", zorder=1)
    ends = [end for row in shown for end in (row.error, row.worst) if math.isfinite(end) and end > 0]
    if ends and max(ends) > ERRORS_FAR * min(ends):
        right.set_xscale("log")
        charts.log_ticks(right.xaxis)
    right.set_xlabel("squared error in groups left out\n(dotted: that of the safe mean)")
    if rest:
        charts.in_row(left, len(shown), f"{len(rest)} more, together {_total(row.vote for row in rest)}")
    handles = [charts.mark("all groups left out", color=TRAIN_COLOR), charts.mark("worst part", "|", color=TEST_COLOR)]
    charts.key(figure, handles)
    return figure


# ---------------------------------------------------------------- coefficients by group


@charts.drawn
def evidence_figure(evidence: Mapping[str, float]) -> Figure:
    """The weight of every nested model as bars."""
    figure, (ax,) = _rows_figure(list(evidence))
    _bars(ax, list(evidence.values()), TRAIN_COLOR, "share of the evidence")
    ax.set_xlim(0, 1)
    return figure


@charts.drawn
def coefficient_figure(
    graph: GroupGraph,
    panels: Mapping[str, Mapping[Any, float]],
    trained: Collection[object],
    label: str,
    outside: Collection[object] = (),
) -> Figure:
    """Small multiples: by title a number of every group, on the graph, or on a map where groups are states.

    Groups outside of what validation has seen have a ring, on a map at the middle of the state.
    """
    columns = 1 if len(panels) <= 2 else 2
    new: list[Any] = [name for name in graph.names if name not in trained]
    codes = contiguous_states(graph.names)
    high = charts.WIDTH / columns * (0.62 if codes else 0.75)
    figure, axes = charts.canvas(high + 0.4, len(panels), columns=columns)
    sizes = np.abs([value for values in panels.values() for value in values.values()])
    most = float(np.quantile(sizes, NEARLY_ALL)) or float(sizes.max()) or 1.0
    norm, more = Normalize(-most, most), bool(sizes.max() > most)
    at: Mapping[Any, Any] = layout(graph)
    if codes:
        at = {name: load_outlines().labels[code] for name, code in codes.items()}
    beyond, rings = [name for name in graph.names if name in outside], list[Line2D]()
    for ax, (title, values) in zip(axes, panels.items(), strict=True):
        if codes:
            draw_states(
                ax,
                {codes[name]: value for name, value in values.items()},
                cmap=APART,
                norm=norm,
                outlined=[codes[name] for name in new],
                labels=columns == 1,
                label_size=5.0,
                groups={code: name for name, code in codes.items()},
            )
        else:
            _colored_graph(ax, graph, at, values, new, norm, columns)
        rings = _rings(ax, at, beyond, 240.0 / columns)
        ax.set_title(title, fontsize=9)
    place: dict[str, Any] = {"ax": axes, "aspect": 40, "pad": 0.03, "shrink": 0.6}
    label, ends = (f"{label}; more at the arrows", "both") if more else (label, "neither")
    charts.color_bar(figure, ScalarMappable(norm, APART), label, across=True, extend=ends, **place)
    handles: list[Line2D] = []
    if new and codes:
        handles = [Line2D([], [], color=FIRM_COLOR, lw=0.8, label="not trained on (outlined together)")]
    elif new:
        handles = [charts.mark("trained on", mfc="#d1d5db", mec="#374151")]
        handles += [charts.mark("not trained on", "s", mfc="#d1d5db", mec=TEST_COLOR)]
    if handles or rings:
        charts.key(figure, [*handles, *rings])
    return figure


def _colored_graph(
    ax: Axes, graph: GroupGraph, at: Mapping[Any, Any], values: Mapping[Any, float], new: Sequence[Any],
    norm: Normalize, columns: int,
) -> None:  # fmt: skip
    """Groups in the colours of their values; those not trained on are squares."""
    size = (150.0 if len(graph) <= 20 else 80.0 if len(graph) <= 80 else 36.0) / math.sqrt(columns)
    draw_ground(ax, graph, at)
    lines = [[at[a], at[b]] for a, b in graph.edges]
    ax.add_collection(LineCollection(lines, colors=EDGE_COLOR, linewidths=0.7, alpha=0.6, zorder=1))
    for names, looks in (
        ([name for name in graph.names if name not in new], {"marker": "o", "edgecolor": SOFT, "linewidth": 0.4}),
        (list(new), {"marker": "s", "edgecolor": TEST_COLOR, "linewidth": 1.4}),
    ):
        if names:
            _nodes(ax, at, names, c=[values[name] for name in names], cmap=APART, norm=norm, s=size, **looks)
    ax.margins(0.12)
    reach = dict.fromkeys(graph.names, math.sqrt(size) / 2)
    if len(graph) <= NAMED_OF_MANY:
        NodeNames(ax, at, reach, {name: short_name(name, 14) for name in graph.names}, graph.edges, size=7.0)
    add_hits(ax, at, reach)
    ax.set_axis_off()


@charts.drawn
def strip_figure(panels: Mapping[str, Mapping[Any, float]], label: str) -> Figure:
    """A row by title, a mark for every group: where there is no graph to draw."""
    figure, (ax,) = _rows_figure(list(panels))
    for row, values in enumerate(panels.values()):
        ax.plot(list(values.values()), [row] * len(values), ls="", marker="|", ms=11, mew=1.2, color=TRAIN_COLOR)
    ax.axvline(0, color="#374151", lw=0.8, zorder=1)
    ax.set_xlabel(label)
    return figure


@charts.drawn
def training_figure(history: Sequence[RoundRecord]) -> Figure:
    """The objective after each epoch, and the weights of the groups that ended heaviest."""
    epochs = [record.round for record in history]
    heaviest = sorted(history[-1].weights.items(), key=lambda item: (-item[1], str(item[0])))[: len(COLORS)]
    figure, (left, right) = charts.canvas(3.0, 2)
    dot = "o" if len(epochs) == 1 else None
    left.plot(epochs, [record.loss for record in history], color=TRAIN_COLOR, lw=1.6, marker=dot)
    left.set_ylabel("training objective")
    for (name, _), color in zip(heaviest, COLORS, strict=False):
        weights = [record.weights.get(name, math.nan) for record in history]
        right.plot(epochs, weights, color=color, lw=1.4, marker=dot, label=short_name(name, 22))
    right.set_ylabel("weight q")
    right.set_ylim(bottom=0)
    for ax in (left, right):
        ax.set_xlabel("epoch")
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        charts.level_lines(ax)
    charts.key(figure, right.get_legend_handles_labels()[0])
    return figure


# ---------------------------------------------------------------- rows


def _first(order: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Those with a row of their own, and the rest; one that alone is left over has one too."""
    cut = len(order) if len(order) <= SHOWN + 1 else SHOWN
    return order[:cut], order[cut:]


def _rows_figure(
    names: Sequence[Hashable], rest: Sequence[Any] = (), *, panels: int = 1, least: int = 3
) -> tuple[Figure, list[Axes]]:
    """A figure with one row per name, and one more for the rest; as high as ``least`` rows at least."""
    height = 0.95 + ROW * max(len(names) + bool(rest), least)
    figure, axes = charts.canvas(height, panels, sharey=True)
    charts.name_rows(axes, [_tick(name) for name in names], keys=names, rest=bool(rest))
    for ax in axes:
        ax.tick_params(axis="y", labelsize=8, pad=6)
        ax.xaxis.set_major_locator(MaxNLocator(6))
    return figure, axes


def _tick(name: object) -> str:
    """A name left of an axis, with room for signs that a browser draws broader than matplotlib thinks."""
    text = short_name(name)
    return "\u00a0" * math.ceil(1.3 * sum(sign_width(sign) == 2 for sign in text)) + text


def _bars(ax: Axes, values: Sequence[float], color: Any, label: str) -> None:
    ax.barh(range(len(values)), values, height=0.68, color=color, zorder=2)
    ax.set_xlabel(label)


def _in_column(ax: Axes, place: float, text: str, size: float = 8) -> None:
    ax.text(place, 0.5, text, transform=ax.get_xaxis_transform(), size=size, color=SOFT, ha="center")


def _total(values: Iterable[float]) -> str:
    return f"{math.fsum(values):.3f}"
