"""The figures of a benchmark's report: plain functions from results to matplotlib figures."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from scipy.stats import rankdata

from toporo.data.grouped import GroupedData
from toporo.errors import DataError, GroupMismatchError, SettingError, listed
from toporo.pages import charts
from toporo.pages.charts import COLORS, GRID, INK, LOG_FROM, SOFT, TICK_STEPS
from toporo.text import many
from toporo.topology.draw import FIRM_COLOR, TEST_COLOR, TRAIN_COLOR, draw_graph, known_places, layout
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Name

Edge = tuple[Any, Any]
Numbers = npt.NDArray[Any]
#: A mean, and its standard deviation where there is one.
Spread = tuple[float, float | None]
Styles = Mapping[str, dict[str, Any]]

#: Colours of a table go over at least this share of its highest value: small differences look small.
SPAN = 0.15
#: Light enough for dark figures on it.
TABLE_COLORS = charts.part_of("YlGnBu", 0.0, 0.55)
#: An axis of errors further apart than this is logarithmic.
LOG_AXIS_FROM = 8.0
#: What the paper publishes.
PAPER: dict[str, Any] = {"marker": "D", "mfc": "white", "mec": TEST_COLOR, "mew": 1.2}


# ---------------------------------------------------------------- topologies


@charts.drawn
def topology(graph: GroupGraph, prior: Prior, train: Sequence[Name], test: Sequence[Name]) -> Figure:
    """The given graph, training groups sized by their centrality, and the prior that follows from it."""
    figure, (left, right) = charts.canvas(3.6, 2)
    draw_graph(graph, left, train=train, test=test, sizes=prior.centrality)
    left.set_title("Groups and who touches whom; area of training groups by centrality")
    _prior_bars(right, [prior])
    return figure


@charts.drawn
def two_topologies(true: GroupGraph, learned: GroupGraph, prior: Prior, test: Sequence[Name]) -> Figure:
    """The given graph beside one learned from data, on the groups the learned one spans, and the learned prior."""
    given = true.subgraph([name for name in learned.names if name in true])
    placed = GroupGraph(learned.names, learned.edges, origin=learned.origin, positions=given.positions)
    train = list(prior.weights)
    inside = [name for name in test if name in learned] or None
    figure, axes = charts.canvas(3.4, 3)
    draw_graph(given, axes[0], train=train, test=inside)
    axes[0].set_title(f"given: {len(given.edges)} edges")
    draw_graph(placed, axes[1], train=train, test=inside, sizes=prior.centrality)
    same = set(given.edges) & set(placed.edges)
    axes[1].set_title(f"learned: {len(placed.edges)} edges, {len(same)} of them given")
    _prior_bars(axes[2], [prior])
    return figure


@dataclass(frozen=True)
class TopologyRuns:
    """A topology as several runs learned it, each from its own features: one graph and one prior per run.

    Attributes
    ----------
    graphs, priors : in the order of the runs.
    """

    graphs: tuple[GroupGraph, ...]
    priors: tuple[Prior, ...]

    def __post_init__(self) -> None:
        if not self.graphs or len(self.graphs) != len(self.priors):
            raise SettingError(
                f"found {len(self.graphs)} learned graphs and {len(self.priors)} priors: expected one of each per "
                "run, and at least one run."
            )
        for graph, prior in zip(self.graphs, self.priors, strict=True):
            if set(graph.names) != set(self.names) or not set(prior.weights) <= set(self.names):
                raise GroupMismatchError(
                    f"runs learned topologies of different groups: {list(self.names)} and {list(graph.names)}. "
                    "Show runs of one benchmark and one split together."
                )

    @property
    def names(self) -> list[Name]:
        """The groups."""
        return list(self.graphs[0].names)

    @property
    def counts(self) -> dict[Edge, int]:
        """In how many runs two groups are joined; pairs that are joined in none are left out."""
        every = [edge for graph in self.graphs for edge in graph.edges]
        return {edge: every.count(edge) for edge in dict.fromkeys(every)}

    @property
    def kept(self) -> dict[Edge, float]:
        """The share of all runs' resamples that join two groups, largest first; empty where nothing was resampled."""
        draws = [draw for graph in self.graphs for draw in graph.bootstrap_edges]
        return {edge: count / len(draws) for edge, count in Counter(chain.from_iterable(draws)).most_common()}

    @property
    def union(self) -> GroupGraph:
        """The edges of all runs."""
        return GroupGraph(self.names, dict.fromkeys(self.counts, 1.0), origin=self.graphs[0].origin)

    @property
    def kinds(self) -> int:
        """How many different sets of edges the runs have."""
        return len({frozenset(graph.edges) for graph in self.graphs})

    def weights(self, name: Name) -> list[float]:
        """A group's weight in the prior of each run."""
        return [prior.weights[name] for prior in self.priors]

    @property
    def centrality(self) -> dict[Name, float]:
        """Mean over runs; the prior's weights where centralities were not kept."""
        values = [prior.centrality or prior.weights for prior in self.priors]
        return {name: float(np.mean([by_name[name] for by_name in values])) for name in self.priors[0].weights}


@charts.drawn
def learned_topology(learned: TopologyRuns, *, what: str = "group") -> Figure:
    """Which groups the runs join, and the prior that follows: bars are means, dots single runs."""
    figure, (left, right) = charts.canvas(3.6 if len(learned.names) > 5 else 3.0, 2)
    union = learned.union
    at = dict(layout(union)) if known_places(union) else _lying(layout(union))  # a map has its north up
    _margins(left, list(at.values()))
    placed = GroupGraph(union.names, union.edges, positions=at)
    draw_graph(placed, left, train=list(learned.priors[0].weights), sizes=learned.centrality)
    left.legend(handles=draw_counted_edges(left, at, learned), loc="upper center", bbox_to_anchor=(0.5, 0.0),
                ncols=2, fontsize=8)  # fmt: skip
    left.set_title(f"training {what}s, area by centrality (mean over seeds)")
    _prior_bars(right, learned.priors, what)
    return figure


def _lying(at: Mapping[Name, Any]) -> dict[Name, tuple[float, float]]:
    """The places turned where they stand taller than wide: names have more room side by side."""
    width, height = np.ptp(list(at.values()), axis=0)
    turned = {name: (-float(y), float(x)) for name, (x, y) in at.items()}
    return turned if height > width else {name: (float(x), float(y)) for name, (x, y) in at.items()}


def _margins(ax: Axes, places: Sequence[Any]) -> None:
    """Fixed limits around all places: large nodes stay inside, and a chain is drawn as wide as a cloud."""
    low, high = np.min(places, axis=0), np.max(places, axis=0)
    room = np.maximum(high - low, 0.5 * float((high - low).max()) or 1.0)
    middle = (low + high) / 2
    ax.set_xlim(*(middle[0] + room[0] * np.array([-0.68, 0.68])))
    ax.set_ylim(*(middle[1] + room[1] * np.array([-0.7, 0.7])))


def draw_counted_edges(ax: Axes, at: Mapping[Any, Any], learned: TopologyRuns) -> list[Line2D]:
    """Edges the thicker and darker the more runs have them; returns what a legend of the counts is made from."""
    runs = len(learned.graphs)
    edges = [(edge, count) for edge, count in learned.counts.items() if edge[0] in at and edge[1] in at]
    edges.sort(key=lambda pair: pair[1])  # firm ones on top
    looks = {count: (0.6 + 2.2 * count / runs, 0.3 + 0.7 * count / runs) for _, count in edges}
    ax.add_collection(
        LineCollection(
            [(at[a], at[b]) for (a, b), _ in edges],
            linewidths=[looks[count][0] for _, count in edges],
            colors=[(FIRM_COLOR, looks[count][1]) for _, count in edges],
            zorder=1.5,
        ),
        autolim=False,
    )
    return [
        charts.stroke(f"edge in {count} of {many(runs, 'seed')}", color=FIRM_COLOR, lw=width, ls="-", alpha=opacity)
        for count, (width, opacity) in sorted(looks.items(), reverse=True)
    ]


def _prior_bars(ax: Axes, priors: Sequence[Prior], what: str = "group") -> None:
    """The weight of every training group in a prior; of several priors, bars are means and dots the single ones."""
    first = next((prior for prior in priors if not prior.fallback_reason), priors[0])  # one that says how it was made
    names = list(first.weights)
    by_name = [[prior.weights[name] for prior in priors] for name in names]
    ax.bar(range(len(names)), [float(np.mean(weights)) for weights in by_name], color=TRAIN_COLOR, width=0.7)
    if len(priors) > 1:
        for i, weights in enumerate(by_name):
            places = i + 0.16 * (np.arange(len(weights)) - (len(weights) - 1) / 2)
            ax.plot(places, weights, ls="", marker="o", ms=3.5, mec="white", mew=0.6, color=INK,
                    label=None if i else "single seeds")  # fmt: skip
    ax.axhline(1.0 / len(names), color=TEST_COLOR, lw=1.0, ls="--", label="uniform")
    charts.name_ticks(ax, names, few=6)
    if 4 < len(names) <= 6 and max(len(str(name)) for name in names) > 3:
        ax.set_xticks(range(len(names)), map(str, names), rotation=45, ha="right", rotation_mode="anchor")
    ax.set_ylim(0.0, 1.05 * max(max(weights) for weights in by_name) + 0.12 * (len(priors) > 1))
    ax.set_xlabel(f"training {what}")
    temperature = "" if first.temperature is None else f"T = {first.temperature:g}"
    how = ", ".join(word for word in (first.normalization or "", temperature) if word)
    ax.set_title(f"prior: {first.measure}" + (f" ({how})" if how else ""))
    ax.legend(fontsize=8, loc="best" if len(priors) == 1 else "upper right", ncols=2)


# ---------------------------------------------------------------- over training


@charts.drawn
def weights_over_training(
    histories: Mapping[str, Sequence[Mapping[Name, float]]], *, at: Sequence[int] | None = None, moment: str = "epoch"
) -> Figure:
    """The weight of every training group after each epoch, one panel per method (title to weights by epoch).

    ``at`` are the epochs (from 1 on unless given), ``moment`` is what they are called.
    """
    figure, axes = charts.canvas(2.6, len(histories), sharey=True)
    names = list(next(iter(histories.values()))[0])
    largest = max(weight for history in histories.values() for weights in history for weight in weights.values())
    top = 1.0 if largest > 0.5 else 1.2 * largest  # of many groups, each has little
    for ax, (title, history) in zip(axes, histories.items(), strict=True):
        epochs = range(1, len(history) + 1) if at is None else at
        for i, name in enumerate(names):
            style = charts.line_style(i) | charts.few_points(epochs)
            ax.plot(epochs, [w[name] for w in history], lw=1.6, label=str(name), **style)
        ax.set_title(title)
        ax.set_xlabel(moment)
        ax.set_ylim(-0.02 * top, 1.02 * top)
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes[0].set_ylabel("weight q of the group")
    charts.key(figure, axes[-1].get_legend_handles_labels()[0], title="group")
    return figure


@charts.drawn
def metrics_by_epoch(
    panels: Mapping[str, Mapping[str, Numbers]],
    epochs: Sequence[int],
    styles: Styles,
    *,
    log: bool = False,
    moment: str = "epoch",
) -> Figure:
    """Metrics after these epochs: how much the choice of the epoch decides.

    Parameters
    ----------
    panels : label of a panel to title of a line to values of shape (seeds, epochs).
    epochs : when they were measured.
    styles : of the lines, by title.
    log : whether the upright axis is logarithmic.
    moment : what an epoch is called.
    """
    figure, axes = charts.canvas(3.2, len(panels))
    for ax, (label, curves) in zip(axes, panels.items(), strict=True):
        for title, values in curves.items():
            mean, sd = values.mean(axis=0), values.std(axis=0)
            low = np.maximum(mean - sd, 0.2 * mean) if log else mean - sd
            charts.curve(
                ax, epochs, mean, low, mean + sd, shade=0.12, label=title, **styles[title], **charts.few_points(epochs)
            )
        if log:
            ax.set_yscale("log")
            charts.log_ticks(ax.yaxis)
        ax.xaxis.set_major_locator(MaxNLocator(10 if len(panels) == 1 else 5, integer=True))
        ax.set_xlabel(moment)
        ax.set_ylabel(label)
        if len(epochs) > 1:
            ax.set_xlim(epochs[0], epochs[-1])
    charts.key(figure, axes[-1].get_legend_handles_labels()[0])
    return figure


# ---------------------------------------------------------------- by group


@charts.drawn
def accuracy_by_group(
    values: Mapping[str, Mapping[Name, float]], order: Sequence[Name], label: str, styles: Styles
) -> Figure:
    """Accuracy in every test group after the last epoch (title to per cent by group), groups in a meaningful order."""
    figure, (ax,) = charts.canvas(3.2)
    for title, by_group in values.items():
        y = [by_group[name] for name in order]
        ax.plot(range(len(order)), y, lw=1.3, marker="o", ms=3.5, label=title, **styles[title])
    ax.axhline(50, color="#9ca3af", lw=0.8, ls=":")
    charts.name_ticks(ax, order)
    ax.set_xlabel(label)
    ax.set_ylabel("accuracy (%)")
    ax.set_ylim(-3, 103)
    charts.key(figure, ax.get_legend_handles_labels()[0])
    return figure


@charts.drawn
def decision_boundaries(
    grids: Mapping[str, Numbers],
    extent: tuple[float, float, float, float],
    data: GroupedData,
    train: Sequence[Name],
    *,
    accuracy: Mapping[str, float] | None = None,
) -> Figure:
    """Where each model says class 1, over training and test points.

    Parameters
    ----------
    grids : title of a model to its probabilities on a square grid.
    extent : left, right, bottom and top of the grid.
    data : the points.
    train : names of the training groups.
    accuracy : test accuracy in per cent by the same titles, written over the panels.
    """
    rates = accuracy or {}
    inside = np.isin(data.codes, data.groups.encode(train))
    figure, axes = charts.canvas(2.3, len(grids), columns=2, sharex=True, sharey=True)
    for ax, (title, grid) in zip(axes, grids.items(), strict=True):
        side = np.linspace(extent[0], extent[1], grid.shape[1]), np.linspace(extent[2], extent[3], grid.shape[0])
        ax.contourf(*side, grid, levels=[0.0, 0.5, 1.0], colors=["#dbeafe", "#fde3cf"])
        ax.contour(*side, grid, levels=[0.5], colors="#374151", linewidths=1.0)
        for label, color in enumerate(COLORS[:2]):
            for mask, size, alpha in ((~inside, 1.0, 0.35), (inside, 2.5, 0.9)):
                points = data.x[mask & (data.y == label)]
                ax.scatter(points[:, 0], points[:, 1], s=size, color=color, alpha=alpha, lw=0, rasterized=True)
        ax.set_title(f"{title}: {rates[title]:.1f} %" if title in rates else title)
        ax.set_aspect("equal")
        ax.set_xticks([])
        ax.set_yticks([])
    return figure


@charts.drawn
def group_table(
    values: Mapping[str, Mapping[Name, float]],
    order: Sequence[Name],
    *,
    label: str,
    digits: int = 2,
    marked: Collection[Name] = (),
) -> Figure:
    """A value for every method and group as a coloured table; what is not defined (NaN) or not there is a dash.

    Parameters
    ----------
    values : title of a method to values by group.
    order : the groups, from left to right.
    label : what the colours are.
    digits : decimals in the cells.
    marked : groups with a frame around their column.
    """
    grid = np.array([[by_group.get(name, math.nan) for name in order] for by_group in values.values()], dtype=float)
    known = grid[np.isfinite(grid)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    low, high = min(low, high - SPAN * abs(high)), high if high else 1.0
    figure, (ax,) = charts.canvas(1.3 + 0.27 * len(values))
    looks: dict[str, Any] = {"cmap": TABLE_COLORS, "vmin": low, "vmax": high, "edgecolors": "white", "linewidth": 1.0}
    cells = ax.pcolormesh(np.ma.masked_invalid(grid), **looks)
    charts.bare(ax)
    for (i, j), value in np.ndenumerate(grid):
        text = f"{value:.{digits}f}" if math.isfinite(value) else "–"
        best = math.isfinite(value) and value == np.nanmax(grid[:, j]) > np.nanmin(grid[:, j])
        ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8, color=INK,
                fontweight="bold" if best else "normal")  # fmt: skip
    for j in (j for j, name in enumerate(order) if name in marked):
        ax.add_patch(Rectangle((j, 0), 1, len(values), fill=False, ec=TEST_COLOR, lw=1.8, clip_on=False))
    ax.set_yticks(np.arange(len(values)) + 0.5, list(values))
    long = max(len(str(name)) for name in order) > 9 and len(order) > 5
    ax.set_xticks(np.arange(len(order)) + 0.5, [str(name) for name in order], fontsize=8, rotation=30 * long,
                  ha="left" if long else "center")  # fmt: skip
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.invert_yaxis()
    charts.color_bar(figure, cells, label, ax=ax)
    return figure


@charts.drawn
def importance_bars(
    weights: Mapping[str, Mapping[str, float]], prior: Mapping[str, float], *, prior_label: str = "prior p"
) -> Figure:
    """The weight q of every training group (title to weights by group), a panel per method, by falling prior."""
    if not weights:
        raise SettingError("importance bars need at least one method; found none. Pass {title: {group: weight}}.")
    for title, by_group in weights.items():
        require_same(by_group, prior, f"weights of {title!r}", "groups of the prior")
    bad = {
        f"{title}: {name}": value
        for title, by_group in [*weights.items(), (prior_label, prior)]
        for name, value in by_group.items()
        if not (math.isfinite(value) and value >= 0)
    }
    if bad:
        raise DataError(f"weights must be finite and non-negative; found {bad}.")
    order = sorted(prior, key=lambda name: (-prior[name], str(name)))
    top = max(value for by_group in [*weights.values(), prior] for value in by_group.values())
    x = range(len(order))
    figure, axes = charts.canvas(0.4 + 1.55, len(weights), sharex=True, sharey=True)
    for ax, (title, by_group) in zip(axes, weights.items(), strict=True):
        bars = ax.bar(x, [by_group[name] for name in order], color=TRAIN_COLOR, width=0.68, label="weight q")
        even = ax.axhline(1 / len(order), color=SOFT, lw=0.8, ls=":", label="uniform", zorder=0)
        marks = ax.plot(x, [prior[name] for name in order], ls="", ms=4, clip_on=False, label=prior_label, **PAPER)
        ax.set_title(title, loc="left")
        ax.set_ylabel("weight")
        ax.yaxis.set_major_locator(MaxNLocator(4, steps=TICK_STEPS))
        ax.tick_params(axis="x", length=0)
    axes[0].set_ylim(0, top * 1.08 if top > 0 else 1.0)
    axes[0].set_xlim(-0.6, len(order) - 0.4)
    charts.name_ticks(axes[-1], order, few=15)
    axes[-1].set_xlabel("training group, by falling prior")
    axes[0].legend(
        handles=[bars, *marks, even], loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=3, fontsize=8, borderpad=0.2
    )
    return figure


# ---------------------------------------------------------------- by method


class Score(NamedTuple):
    """A method's figure in one panel: its value of every seed, what the paper has, whether it is a control."""

    title: str
    values: tuple[float, ...]
    paper: float | None = None
    control: bool = False

    @property
    def mean(self) -> float:
        """Mean over seeds, NaN without a value."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def sd(self) -> float | None:
        """Sample standard deviation over seeds."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None


@charts.drawn
def method_scores(
    panels: Mapping[str, Sequence[Score]],
    *,
    label: str = "",
    reference: str | None = None,
    highlight: Collection[str] = (),
) -> Figure:
    """Scores by method: mean ± sd over seeds, single seeds, and the paper's figure as a diamond.

    Parameters
    ----------
    panels : title of a panel to its scores; panels have axes of their own.
    label : below all axes.
    reference : the method whose mean is a dotted line.
    highlight : titles of methods in colour.
    """
    if not panels:
        raise SettingError("a figure of scores needs at least one panel; found none. Pass {title: [Score, …]}.")
    titles = list(dict.fromkeys(score.title for scores in panels.values() for score in scores))
    figure, axes = charts.canvas(0.75 + 0.21 * len(titles), len(panels), sharey=True)
    charts.name_rows(axes, titles)
    for ax, (panel, scores) in zip(axes, panels.items(), strict=True):
        for score in scores:
            color = COLORS[0] if score.title in highlight else "#b0b5bd" if score.control else COLORS[6]
            _score(ax, titles.index(score.title), score, color)
            if score.title == reference and score.values:
                ax.axvline(score.mean, color=SOFT, lw=1.0, ls=":", zorder=1)
        ax.margins(x=0.12)
        ax.xaxis.set_major_locator(MaxNLocator(4, min_n_ticks=3))
        ax.set_title(panel)
    if label:
        figure.supxlabel(label, fontsize=9)
    handles = [charts.mark("mean ± sd over seeds; dots: seeds", ms=5, color=COLORS[6])]
    if any(score.paper is not None for scores in panels.values() for score in scores):
        handles.append(charts.mark("the paper's figure", **PAPER | {"ms": 4.5}))
    if reference in titles:
        handles.append(charts.stroke(str(reference), lw=1.0))
    charts.key(figure, handles)
    return figure


def _score(ax: Axes, row: int, score: Score, color: str) -> None:
    if score.values:
        around = score.sd or 0.0
        charts.spread(ax, row, score.mean, score.mean - around, score.mean + around, color=color, capsize=2.5)
        if len(score.values) > 1:
            ax.plot(score.values, np.full(len(score.values), row + 0.28), ls="", marker="o", ms=1.8, color=color)
    if score.paper is not None:
        ax.plot(score.paper, row, ls="", ms=4.5, zorder=4, **PAPER)


@charts.drawn
def error_by_hop(
    table: Mapping[str, Mapping[str, Spread]],
    paper: Mapping[str, Mapping[str, Spread]] | None = None,
    *,
    reference: str | None = None,
    label: str = "test MSE",
    highlight: Collection[str] = (),
) -> Figure:
    """Error by method and hop class: a row per method, a panel per class, one axis.

    Parameters
    ----------
    table : title of a method to (mean, sd or None) by hop class; ``"all"`` comes last.
    paper : published values by the same titles; titles of its own get rows of their own.
    reference : the method whose mean is a line through every row.
    label : of the axis.
    highlight : titles written in bold.
    """
    published = paper or {}
    rows = list(dict.fromkeys([*table, *published]))
    both = [*table.values(), *published.values()]
    classes = sorted({hop for by_hop in both for hop in by_hop}, key=_hop_order)
    if not classes:
        raise SettingError("errors by hop need at least one value; found none. Pass {title: {hop: (mean, sd)}}.")
    unknown = [title for title in [*highlight, *([reference] if reference else [])] if title not in rows]
    if unknown:
        raise GroupMismatchError(
            f"methods to point out that are not in the table: {listed(unknown)}. It has {listed(rows)}."
        )
    shown = [mean for by_hop in both for mean, _ in by_hop.values() if math.isfinite(mean)]
    log = _far_apart(shown, LOG_AXIS_FROM)
    figure, axes = charts.canvas(0.8 + 0.22 * len(rows), len(classes), sharex=True, sharey=True)
    charts.name_rows(axes, rows)
    for ax, hop in zip(axes, classes, strict=True):
        if reference is not None and math.isfinite(table.get(reference, {}).get(hop, (math.nan, None))[0]):
            ax.axvline(table[reference][hop][0], color=SOFT, lw=0.8, ls=":", zorder=1)
        for row, title in enumerate(rows):
            ours, theirs = table.get(title, {}).get(hop), published.get(title, {}).get(hop)
            _error(ax, row, ours, log, color=TRAIN_COLOR)
            _error(ax, row, theirs, log, marker="D", ms=6, mew=1.2, color=TEST_COLOR, mfc="none")
            if ours is not None and not math.isfinite(ours[0]):
                charts.in_row(ax, row, "not finite", middle=True)
            elif ours is theirs is None and title in table:
                charts.in_row(ax, row, "no value", middle=True)
        ax.tick_params(axis="x", labelbottom=True)
        ax.set_title(hop_title(hop), loc="left")
        ax.set_xlabel(label + (", log scale" if log else ""))
    for text in axes[0].get_yticklabels():
        text.set_fontweight("bold" if text.get_text() in highlight else "normal")
    _error_axis(axes[0], shown, log)
    spreads = any(sd is not None for by_hop in table.values() for _, sd in by_hop.values())
    handles = [charts.mark("ours, mean ± sd" if spreads else "ours", ms=5, color=TRAIN_COLOR)] * bool(table)
    handles += [charts.mark("paper", "D", mfc="none", mec=TEST_COLOR)] * bool(published)
    handles += [charts.stroke(f"{reference}, ours", lw=1.0)] * (reference in table)
    charts.key(figure, handles)
    return figure


def _error(ax: Axes, row: int, value: Spread | None, log: bool, **style: Any) -> None:
    mean, sd = value or (math.nan, None)
    if not math.isfinite(mean):
        return
    around = sd if sd is not None and math.isfinite(sd) else 0.0
    low = mean - (min(around, mean * (1 - 1e-3)) if log else around)
    charts.spread(ax, row, mean, low, mean + around, **style)


def _error_axis(ax: Axes, shown: Sequence[float], log: bool) -> None:
    """From zero, or logarithmic around the means: a spread as large as its mean must not decide the axis."""
    if log:
        ax.set_xscale("log")
        ax.set_xlim(min(shown) / 1.35, max(shown) * 1.35)
        charts.log_ticks(ax.xaxis)
    else:
        if shown and min(shown) >= 0:
            ax.set_xlim(left=0)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=TICK_STEPS))


def hop_title(hop: str) -> str:
    """A class of test states in words."""
    if hop == "all":
        return "all test states"
    return many(int(hop), "hop") if hop.isdigit() else hop


def _hop_order(hop: str) -> tuple[int, int, str]:
    return (0, int(hop), "") if hop.isdigit() else (2 if hop == "all" else 1, 0, hop)


# ---------------------------------------------------------------- by setting


@charts.drawn
def penalty_curve(
    curves: Mapping[str, Mapping[float, Sequence[float]]], references: Mapping[str, float], *, label: str
) -> Figure:
    """A score against the penalty λ (title of a line to values of all seeds by λ), other methods as level lines."""
    if not any(curves.values()):
        raise SettingError("a figure of penalties needs at least one λ; found none.")
    figure, (ax,) = charts.canvas(3.4)
    for i, (title, by_penalty) in enumerate(curves.items()):
        scores = {penalty: Score(title, tuple(by_penalty[penalty])) for penalty in sorted(by_penalty)}
        sds = [score.sd or 0.0 for score in scores.values()]
        ax.errorbar(list(scores), [score.mean for score in scores.values()], yerr=sds if any(sds) else None,
                    marker="o", ms=4.5, lw=1.8, capsize=2.5, color=COLORS[i], label=title)  # fmt: skip
    for i, (title, value) in enumerate(references.items()):
        ax.axhline(value, color=SOFT, lw=1.1, ls=(":", "--", "-.")[i % 3], label=title)
    ax.set_xscale("log")
    charts.log_ticks(ax.xaxis, decades=True)
    ax.set_xlabel("penalty λ: weights may leave the prior (left) or must keep to it (right)")
    ax.set_ylabel(label)
    charts.key(figure, ax.get_legend_handles_labels()[0])
    return figure


class Configuration(NamedTuple):
    """What could have been chosen: two validation scores and the test error it would have had."""

    label: str
    honest: float
    in_distribution: float
    test: float


@charts.drawn
def selection_scatter(
    candidates: Sequence[Configuration | tuple[str, float, float, float]],
    *,
    rules: tuple[str, str] = ("honest validation", "in-distribution validation"),
    chosen: tuple[str | None, str | None] = (None, None),
    label: str = "MSE",
) -> Figure:
    """Test error against the validation score under either rule, a dot per configuration, the chosen one ringed.

    Parameters
    ----------
    candidates : the configurations.
    rules : what the two scores are called.
    chosen : labels of the configurations that the two rules chose; None for the one with the lowest score.
    label : of the errors.
    """
    rows = [Configuration(*candidate) for candidate in candidates]
    if not rows:
        raise SettingError("a selection needs at least one candidate; found none.")
    unknown = [name for name in chosen if name is not None and name not in {row.label for row in rows}]
    if unknown:
        raise GroupMismatchError(f"chosen but not among the candidates: {listed(unknown)}.")
    figure, axes = charts.canvas(3.4, 2, sharey=True)
    scores = ([row.honest for row in rows], [row.in_distribution for row in rows])
    for ax, rule, name, by_rule in zip(axes, rules, chosen, scores, strict=True):
        _one_rule(ax, rule, rows, by_rule, name, label)
    axes[0].set_ylabel(f"test {label}")
    if _far_apart([row.test for row in rows], LOG_FROM):
        axes[0].set_yscale("log")
        charts.log_ticks(axes[0].yaxis)
    handles = [
        charts.mark("configuration", ms=5, mfc=TRAIN_COLOR, mec="white", alpha=0.75),
        charts.mark("chosen", ms=10, mfc="none", mec=TEST_COLOR, mew=1.8),
        charts.stroke("lowest test error of all", ls="--"),
    ]
    charts.key(figure, handles)
    return figure


def _one_rule(
    ax: Axes, rule: str, rows: Sequence[Configuration], scores: Sequence[float], name: str | None, label: str
) -> None:
    shown = [i for i, row in enumerate(rows) if math.isfinite(scores[i]) and math.isfinite(row.test)]
    x, y = [scores[i] for i in shown], [rows[i].test for i in shown]
    ax.plot(x, y, ls="", marker="o", ms=5, mfc=TRAIN_COLOR, mec="white", mew=0.5, alpha=0.75)
    lines = [rule]
    if shown:
        best = min(row.test for row in rows if math.isfinite(row.test))
        ax.axhline(best, color=SOFT, lw=0.9, ls="--", zorder=0)
        taken = min(shown, key=lambda i: scores[i]) if name is None else [row.label for row in rows].index(name)
        lines.append(textwrap.fill(f"chosen: {rows[taken].label}", 64, max_lines=2, placeholder=" …"))
        numbers = f"test {label} {short_number(rows[taken].test)}, lowest of all {short_number(best)}"
        if len(set(x)) > 1 and len(set(y)) > 1:
            numbers += f", rank correlation {np.corrcoef(rankdata(x), rankdata(y))[0, 1]:.2f}"
        lines.append(numbers)
        if taken in shown:
            ax.plot(scores[taken], rows[taken].test, marker="o", ms=12, mfc="none", mec=TEST_COLOR, mew=1.8, zorder=4)
    if _far_apart(x, LOG_FROM):
        ax.set_xscale("log")
        charts.log_ticks(ax.xaxis)
    hidden = len(rows) - len(shown)
    ax.set_xlabel(f"validation {label}" + (f" ({hidden} of {len(rows)} not finite, not shown)" if hidden else ""))
    ax.set_title("\n".join(lines), loc="left", fontsize=8.5, linespacing=1.4)
    ax.grid(color=GRID, lw=0.6)
    ax.set_axisbelow(True)


# ---------------------------------------------------------------- shared


def require_same(names: Collection[str], expected: Collection[str], what: str, of: str) -> None:
    """An error that lists what is missing and what is too many, unless the names are the expected ones."""
    lacking = [name for name in expected if name not in names]
    extra = [name for name in names if name not in expected]
    if lacking or extra:
        parts = [f"missing {listed(lacking)}"] * bool(lacking) + [f"not expected {listed(extra)}"] * bool(extra)
        raise GroupMismatchError(f"{what} and the {of} differ: {'; '.join(parts)}. Give one number for each.")


def short_number(value: float) -> str:
    """Three decimals, or three digits that matter."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.3g}"


def _far_apart(values: Sequence[float], factor: float) -> bool:
    """Whether values are positive and the largest is more than so many times the smallest."""
    known = [value for value in values if math.isfinite(value)]
    return bool(known) and min(known) > 0 and max(known) / min(known) > factor
