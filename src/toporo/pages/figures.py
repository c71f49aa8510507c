"""The figures of benchmarks: functions from results of runs to charts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from toporo.data.grouped import GroupedData
from toporo.pages import charts
from toporo.pages.charts import COLORS, INK, Line, far_apart, line_chart
from toporo.pages.maps import ERROR_COLORS, draw_globe, draw_ground, state_maps
from toporo.pages.outlines import Point
from toporo.pages.rows import Marks, Panel, row_chart
from toporo.pages.table import Cell, Table
from toporo.text import many, number
from toporo.topology.draw import FIRM_COLOR, TEST_COLOR, TRAIN_COLOR, draw_graph, layout
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array, Name

Edge = tuple[Any, Any]
Styles = Mapping[str, dict[str, Any]]

#: Test states by distance from the training states: the farther, the paler; beyond the last, as the last.
HOP_FILLS = ("#b4bbc5", "#d0d5dc", "#e8ebee")
#: Training states on a map of test errors.
TRAIN_FILL = "#d9dde3"


# ---------------------------------------------------------------- topologies


@charts.drawn
def topology(graph: GroupGraph, prior: Prior, train: Sequence[Name], test: Sequence[Name]) -> Figure:
    """Draw the given graph, training groups sized by their centrality, and the prior that follows from it."""
    figure, (left, right) = charts.canvas(3.6, 2)
    draw_graph(graph, left, train=train, test=test, sizes=prior.centrality)
    left.set_title("Group graph; node area shows centrality")
    _prior_bars(right, [prior])
    return figure


@dataclass(frozen=True)
class TopologyRuns:
    """A topology as several runs learned it: one graph and one prior per run, on the same groups.

    Attributes
    ----------
    graphs, priors : in the order of the runs.
    """

    graphs: tuple[GroupGraph, ...]
    priors: tuple[Prior, ...]

    @property
    def names(self) -> list[Name]:
        """The groups."""
        return list(self.graphs[0].names)

    @property
    def counts(self) -> dict[Edge, int]:
        """Number of runs by edge."""
        return dict(Counter(edge for graph in self.graphs for edge in graph.edges))

    @property
    def kept(self) -> dict[Edge, float]:
        """Share of all runs' resamples by edge, largest first; empty where nothing was resampled."""
        draws = [draw for graph in self.graphs for draw in graph.bootstrap_edges]
        return {edge: count / len(draws) for edge, count in Counter(chain.from_iterable(draws)).most_common()}

    @property
    def kinds(self) -> int:
        """Number of different sets of edges."""
        return len({frozenset(graph.edges) for graph in self.graphs})

    def weights(self, name: Name) -> list[float]:
        """Weight of a group in the prior of each run."""
        return [prior.weights[name] for prior in self.priors]

    @property
    def centrality(self) -> dict[Name, float]:
        """Mean over runs; of the prior's weights where centralities were not kept."""
        values = [prior.centrality or prior.weights for prior in self.priors]
        return {name: float(np.mean([by_name[name] for by_name in values])) for name in self.priors[0].weights}


@charts.drawn
def learned_topology(learned: TopologyRuns, *, what: str = "group") -> Figure:
    """Draw the edges of all runs, and the prior that follows: bars are means, dots single runs."""
    figure, (left, right) = charts.canvas(3.6, 2)
    union = GroupGraph(learned.names, dict.fromkeys(learned.counts, 1.0), origin=learned.graphs[0].origin)
    at = layout(union)
    draw_ground(left, union, at)
    draw_graph(union, left, train=list(learned.priors[0].weights), sizes=learned.centrality)
    left.legend(handles=_counted_edges(left, at, learned), loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2)
    left.set_title(f"training {what}s, area by centrality (mean over seeds)")
    _prior_bars(right, learned.priors, what)
    return figure


def _counted_edges(ax: Axes, at: Mapping[Any, Any], learned: TopologyRuns) -> list[Line2D]:
    """Draw edges the thicker and darker the more runs have them; return the entries of a key."""
    runs, handles = len(learned.graphs), {}
    for (a, b), count in sorted(learned.counts.items(), key=lambda pair: pair[1]):  # frequent ones on top
        looks: dict[str, Any] = {"lw": 0.6 + 2.2 * count / runs, "alpha": 0.3 + 0.7 * count / runs, "ls": "-"}
        looks["color"] = FIRM_COLOR
        if a in at and b in at:
            ax.plot(*np.transpose([at[a], at[b]]), zorder=1.5, scalex=False, scaley=False, **looks)
            handles[count] = charts.stroke(f"edge in {count} of {many(runs, 'seed')}", **looks)
    return list(handles.values())[::-1]


def _prior_bars(ax: Axes, priors: Sequence[Prior], what: str = "group") -> None:
    """The weight of every training group in a prior; of several priors, bars are means and dots the single ones."""
    first = next((prior for prior in priors if not prior.fallback_reason), priors[0])  # one with a measure
    names = list(first.weights)
    weights = np.array([[prior.weights[name] for name in names] for prior in priors])
    ax.bar(range(len(names)), weights.mean(axis=0), color=TRAIN_COLOR, width=0.68)
    if len(priors) > 1:
        at = np.arange(len(names)) + 0.16 * (np.arange(len(priors)) - (len(priors) - 1) / 2)[:, None]
        ax.plot(at.ravel(), weights.ravel(), ls="", marker="o", ms=3.5, mec="white", mew=0.6, color=INK,
                label="single seeds")  # fmt: skip
    ax.axhline(1.0 / len(names), color=TEST_COLOR, lw=1.0, ls="--", label="uniform")
    charts.name_ticks(ax, names, few=6)
    ax.set_ylim(0.0, 1.2 * weights.max())
    ax.set_xlabel(f"training {what}")
    temperature = "" if first.temperature is None else f"T = {first.temperature:g}"
    how = ", ".join(word for word in (first.normalization or "", temperature) if word)
    ax.set_title(f"prior: {first.measure}" + (f" ({how})" if how else ""))
    ax.legend(fontsize=8, loc="upper right", ncols=2)


# ---------------------------------------------------------------- maps


@charts.drawn
def event_map(
    learned: TopologyRuns | None, positions: Mapping[Name, Point], train: Collection[Name], test: Collection[Name]
) -> Figure:
    """Draw events on the globe, training events sized by centrality, test events square, and the learned edges.

    Parameters
    ----------
    learned : the edges, if there are any.
    positions : longitude and latitude; events without are left out.
    train, test : names of the events.
    """
    at = {name: positions[name] for name in (*train, *test) if name in positions}
    figure, (ax,) = charts.canvas(2.6)
    draw_globe(ax)
    sizes = {name: value for name, value in learned.centrality.items() if name in at} if learned else {}
    graph = GroupGraph(list(at), {}, positions=at)
    draw_graph(graph, ax, train=[n for n in train if n in at], test=[n for n in test if n in at], sizes=sizes)
    legend = ax.get_legend()
    if legend is not None:
        legend.remove()
    handles = [charts.mark("training events, area by centrality", ms=7, color=TRAIN_COLOR),
               charts.mark("held-out event", "s", ms=7, color=TEST_COLOR)]  # fmt: skip
    charts.key(figure, [*handles, *(_counted_edges(ax, at, learned) if learned else [])])
    return figure


def centrality_map(
    centrality: Mapping[str, Mapping[str, float]], hops: Mapping[str, Mapping[str, int]], *, label: str = "centrality"
) -> Figure:
    """Draw training states by their centrality and test states in grey by distance, a map per split.

    Parameters
    ----------
    centrality : by training state, by title of the split.
    hops : borders between a test state and the training states, by title of the split.
    label : of the colours.
    """
    fills = {
        title: {code: HOP_FILLS[min(max(hop, 1), len(HOP_FILLS)) - 1] for code, hop in by_state.items()}
        for title, by_state in hops.items()
    }
    classes = sorted({min(hop, len(HOP_FILLS)) for by_state in hops.values() for hop in by_state.values()})
    handles = [_patch(HOP_FILLS[hop - 1], f"test, {many(hop, 'hop')}{' or more' * (hop == 3)}") for hop in classes]
    return state_maps(centrality, f"{label} of training states", fills=fills, handles=handles)


def error_map(errors: Mapping[str, Mapping[str, float]], train: Sequence[str], *, label: str = "test MSE") -> Figure:
    """Draw the error in every test state, a map per method on one colour scale.

    Parameters
    ----------
    errors : by test state, by title of the method.
    train : training states, which are grey.
    label : of the colours.
    """
    means = {title: number(math.fsum(by.values()) / len(by)) for title, by in errors.items()}
    panels = {f"{title}\nmean {means[title]}": by_state for title, by_state in errors.items()}
    fills = {title: dict.fromkeys(train, TRAIN_FILL) for title in panels}
    return state_maps(panels, label, cmap=ERROR_COLORS, fills=fills, handles=[_patch(TRAIN_FILL, "training states")])


def _patch(color: str, label: str) -> Patch:
    return Patch(facecolor=color, edgecolor="#9ca3af", lw=0.5, label=label)


# ---------------------------------------------------------------- over training, and by group


def weights_over_training(
    histories: Mapping[str, Sequence[Mapping[Name, float]]], *, at: Sequence[int], moment: str = "epoch"
) -> Figure:
    """Draw the weight q of every training group over training, a panel per method.

    Parameters
    ----------
    histories : weights by group at each moment, by title of the method.
    at : the moments.
    moment : name of the unit.
    """
    panels = {
        title: [Line([weights[name] for weights in history], str(name)) for name in history[0]]
        for title, history in histories.items()
    }
    return line_chart(at, panels, moment, limits=(0.0, None), shared=True, title="weight q of group")


def metrics_by_epoch(
    panels: Mapping[str, Mapping[str, Array]],
    epochs: Sequence[int],
    styles: Styles,
    *,
    log: bool = False,
    moment: str = "epoch",
) -> Figure:
    """Draw metrics over training: mean and standard deviation over seeds.

    Parameters
    ----------
    panels : values of shape (seeds, epochs) by title of the line, by title of the panel.
    epochs : when they were measured.
    styles : of the lines, by title.
    log : whether the upright axis is logarithmic.
    moment : name of the unit.
    """
    lines: dict[str, list[Line]] = {}
    for panel, curves in panels.items():
        for title, values in curves.items():
            mean, sd = values.mean(axis=0), values.std(axis=0)
            low = np.maximum(mean - sd, 0.2 * mean) if log else mean - sd
            lines.setdefault(panel, []).append(Line(mean, title, low, mean + sd, styles[title]))
    return line_chart(epochs, lines, moment, log="y" * log)


@charts.drawn
def decision_boundaries(
    grids: Mapping[str, Array],
    extent: tuple[float, float, float, float],
    data: GroupedData,
    train: Sequence[Name],
    *,
    accuracy: Mapping[str, float],
) -> Figure:
    """Draw the regions that each model assigns to class 1, over training and test points.

    Parameters
    ----------
    grids : probabilities on a square grid by title of the model.
    extent : left, right, bottom and top of the grid.
    data : the points.
    train : names of the training groups.
    accuracy : test accuracy in per cent by title of the model.
    """
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
        ax.set_title(f"{title}: {accuracy[title]:.1f} %" if title in accuracy else title)
        ax.set_aspect("equal")
        ax.set_xticks([])
        ax.set_yticks([])
    return figure


def group_table(
    values: Mapping[str, Mapping[Name, float]],
    order: Sequence[Name],
    *,
    label: str,
    digits: int = 2,
    marked: Collection[Name] = (),
) -> Table:
    """Tabulate a value for every method and group; the best of each column is bold, and what is missing a dash.

    Parameters
    ----------
    values : by group, by title of the method; NaN is missing.
    order : the groups, from left to right.
    label : of the values.
    digits : decimals.
    marked : groups whose title is marked as held out.
    """
    known = {name: [v for by in values.values() if math.isfinite(v := by.get(name, math.nan))] for name in order}
    rows = tuple(
        (title, *(_cell(by.get(name, math.nan), known[name], digits) for name in order)) for title, by in values.items()
    )
    columns = (label, *(f"{name} (held out)" if name in marked else str(name) for name in order))
    return Table(columns, rows, words=(label,), wide=len(order) > 4)


def _cell(value: float, column: Sequence[float], digits: int) -> str:
    best = len(set(column)) > 1 and value == max(column)
    return Cell(f"{value:.{digits}f}", "best" * best) if math.isfinite(value) else "–"


# ---------------------------------------------------------------- by method and setting


class Score(NamedTuple):
    """A method's score in one panel: its value with every seed, the published value, and whether it is a control."""

    title: str
    values: tuple[float, ...]
    paper: float | None = None
    control: bool = False

    @property
    def mean(self) -> float:
        """Mean over seeds, NaN without a value."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def sd(self) -> float:
        """Sample standard deviation over seeds, 0 with a single one."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0


def method_scores(
    panels: Mapping[str, Sequence[Score]],
    *,
    label: str = "",
    reference: str | None = None,
    highlight: Collection[str] = (),
    shared: bool = False,
) -> Figure:
    """Draw scores by method: mean ± sd over seeds, single seeds, and the published value as a diamond.

    Parameters
    ----------
    panels : scores by title of the panel.
    label : below the axes.
    reference : the method whose mean is a dotted line.
    highlight : titles of methods in colour.
    shared : whether the panels have one scale.
    """
    titles = list(dict.fromkeys(score.title for scores in panels.values() for score in scores))
    log = shared and far_apart([score.mean for scores in panels.values() for score in scores if score.values])
    rows = {title: row for row, title in enumerate(titles)}
    drawn = []
    for panel, scores in panels.items():
        marks = [
            _score_marks([score for score in scores if _color(score, highlight) == color], rows, color, log=log)
            for color in dict.fromkeys(_color(score, highlight) for score in scores)
        ]
        seeds = {score.title: score.values for score in scores if len(score.values) > 1}
        at = [rows[title] + 0.3 for title, values in seeds.items() for _ in values]
        if seeds:
            marks.append(Marks([*chain(*seeds.values())], "single seeds", size=1.8, color=COLORS[6], at=at))
        paper = {score.title: score.paper for score in scores if score.paper is not None}
        if paper:
            at = [rows[title] for title in paper]
            marks.append(Marks([*paper.values()], "paper", marker="D", color=TEST_COLOR, filled=False, size=4.5, at=at))
        mean = next((score.mean for score in scores if score.title == reference), math.nan)
        drawn.append(Panel(marks, label, panel, reference=mean, reference_label=reference or "", log=log))
    return row_chart(titles, drawn, shared=shared, bold=highlight)


def _color(score: Score, highlight: Collection[str]) -> str:
    return COLORS[0] if score.title in highlight else "#b0b5bd" if score.control else COLORS[6]


def _score_marks(scores: Sequence[Score], rows: Mapping[str, int], color: str, *, log: bool) -> Marks:
    means, sds = (np.array([getattr(score, name) for score in scores]) for name in ("mean", "sd"))
    low = np.maximum(means - sds, 0.2 * means) if log else means - sds
    label = "mean ± sd over seeds" if color == COLORS[6] else ""
    return Marks(means, label, low, means + sds, color=color, at=[rows[score.title] for score in scores])


def penalty_curve(
    curves: Mapping[str, Mapping[float, Sequence[float]]], references: Mapping[str, float], *, label: str
) -> Figure:
    """Draw a score against the penalty λ, mean ± sd over seeds, and other methods as level lines.

    Parameters
    ----------
    curves : values of all seeds by λ, by title of the line.
    references : scores of other methods, by title.
    label : of the score.
    """
    penalties = sorted({penalty for by_penalty in curves.values() for penalty in by_penalty})
    lines = []
    for title, by_penalty in curves.items():
        scores = [Score(title, tuple(by_penalty.get(penalty, ()))) for penalty in penalties]
        mean, sd = (np.array([getattr(score, name) for score in scores]) for name in ("mean", "sd"))
        lines.append(Line(mean, title, mean - sd, mean + sd))
    text = "penalty λ: weights may leave the prior (left) or must keep to it (right)"
    return line_chart(penalties, {label: lines}, text, log="x", levels=references)
