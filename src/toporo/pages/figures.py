"""Figures of benchmarks: functions from results of runs to charts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from toporo.data.grouped import GroupedData
from toporo.pages.charts import COLORS, SOFT, canvas, drawn
from toporo.pages.rows import Marks, Panel, row_chart
from toporo.pages.table import Table
from toporo.topology.draw import TEST_COLOR
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array, Name

# ---------------------------------------------------------------- topologies


@drawn
def topology(
    graph: GroupGraph, centrality: Mapping[Any, float], train: Sequence[Name], test: Sequence[Name] = ()
) -> Figure:
    """Draw a graph with training groups sized by their centrality, and test groups as squares."""
    figure, (ax,) = canvas(3.6)
    graph.plot(ax, train=train, test=test, sizes=centrality)
    return figure


def prior_table(priors: Sequence[Prior], what: str = "group") -> Table:
    """Tabulate the weight of every training group in a prior; of several priors, the mean and the range."""
    columns, rows = [what, "weight"], []
    if len(priors) > 1:
        columns.append("over seeds")
    for name in priors[0].weights:
        weights = [prior.weights[name] for prior in priors]
        cells = (str(name), f"{np.mean(weights):.3f}", f"{min(weights):.3f} to {max(weights):.3f}")
        rows.append(cells[: len(columns)])
    first = next((prior for prior in priors if not prior.fallback_reason), priors[0])  # one with a measure
    temperature = "" if first.temperature is None else f"T = {first.temperature:g}"
    how = ", ".join(filter(None, (first.normalization, temperature)))
    return Table(tuple(columns), tuple(rows), (what,), f"Prior: {first.measure}" + (f" ({how})" if how else ""))


# ---------------------------------------------------------------- by group


@drawn
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
    figure, axes = canvas(2.3, len(grids), columns=2, sharex=True, sharey=True)
    for ax, (title, grid) in zip(axes, grids.items(), strict=True):
        side = np.linspace(extent[0], extent[1], grid.shape[1]), np.linspace(extent[2], extent[3], grid.shape[0])
        ax.contourf(*side, grid, levels=[0.0, 0.5, 1.0], colors=["#dbeafe", "#fde3cf"])
        ax.contour(*side, grid, levels=[0.5], colors="#374151", linewidths=1.0)
        for label, color in enumerate(COLORS[:2]):
            for mask, size, alpha in ((~inside, 1.0, 0.35), (inside, 2.5, 0.9)):
                points = data.x[mask & (data.y == label)]
                ax.scatter(points[:, 0], points[:, 1], s=size, color=color, alpha=alpha, lw=0, rasterized=True)
        ax.set_title(f"{title}: {accuracy[title]:.1f} %")
        ax.set(aspect="equal", xticks=[], yticks=[])
    return figure


# ---------------------------------------------------------------- by method


class Score(NamedTuple):
    """Score of a method in one panel: the values of all seeds, the published value, and whether it is a control."""

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
    panels: Mapping[str, Sequence[Score]], *, reference: str | None = None, highlight: Collection[str] = ()
) -> Figure:
    """Draw scores by method: mean ± sd over seeds, single seeds, and the published value as a diamond.

    Parameters
    ----------
    panels : scores by title of the panel.
    reference : the method whose mean is a dotted line.
    highlight : titles of methods in colour.
    """
    titles = list(dict.fromkeys(score.title for scores in panels.values() for score in scores))
    charts = []
    for panel, scores in panels.items():
        by_title = {score.title: score for score in scores}
        rows = [by_title.get(title, Score(title, ())) for title in titles]
        colors = np.array([_color(row, highlight) for row in rows])
        mean, sd, paper = (np.array([getattr(row, name) for row in rows], float) for name in ("mean", "sd", "paper"))
        marks = []
        for color in dict.fromkeys(colors.tolist()):
            shown = np.where(colors == color, mean, math.nan)
            label = "mean ± sd over seeds" if color == COLORS[6] else ""
            marks.append(Marks(shown, label, shown - sd, shown + sd, color=color))
        for seed in range(max(len(row.values) for row in rows)):
            values = [row.values[seed] if seed < len(row.values) > 1 else math.nan for row in rows]
            marks.append(Marks(values, "single seeds", marker="|", color=SOFT))
        if np.isfinite(paper).any():
            marks.append(Marks(paper, "paper", marker="D", color=TEST_COLOR, filled=False))
        means = {row.title: row.mean for row in rows}
        reached = means.get(reference or "", math.nan)
        charts.append(Panel(marks, title=panel, reference=reached, reference_label=reference or ""))
    return row_chart(titles, charts)


def _color(score: Score, highlight: Collection[str]) -> str:
    return COLORS[0] if score.title in highlight else "#b0b5bd" if score.control else COLORS[6]
