"""The figures of a report: plain functions from results to matplotlib figures, and figures to SVG text."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from toporo.data.grouped import GroupedData
from toporo.topology.draw import TEST_COLOR, TRAIN_COLOR, draw_graph
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Name

Array = npt.NDArray[Any]

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#6b7280",
    "axes.grid": False,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "toporo",
}
#: Colour-blind safe (Okabe & Ito 2008).
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f", "#000000")
CLASS_COLORS = ("#0072b2", "#d55e00")
#: Lines of no more points than this have a mark at each.
MARKED = 8
#: Numbers with more decimals than a path on a page needs: a hundredth of a point is enough.
_LONG = re.compile(r"-?\d+\.\d{3,}")


def line_style(index: int) -> dict[str, Any]:
    """Colour and dash of the index-th method, the same in every figure."""
    return {"color": COLORS[index % len(COLORS)], "ls": "-" if index < len(COLORS) else "--"}


def few_points(epochs: Sequence[int] | Array) -> dict[str, Any]:
    """A mark at each point where they are so few that the line between them is a guess."""
    return {"marker": "o", "ms": 3.0, "clip_on": False} if len(epochs) <= MARKED else {}


def to_svg(name: str, figure: Figure) -> str:
    """The figure as an SVG element to put into a page: the same bytes at every call, identifiers of its own."""
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    svg = re.sub(r"^.*?(?=<svg)", "", text, count=1, flags=re.DOTALL)
    svg = re.sub(r'(?<= d=")[^"]*', _shortened, svg)
    svg = re.sub(r' id="image[0-9a-f]+"', "", svg)  # which two pictures alike would share, and nothing refers to
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)


def _shortened(path: re.Match[str]) -> str:
    """A path without the decimals and the blanks that nobody sees."""
    return _LONG.sub(_rounded, re.sub(r"\s*([A-Za-z])\s*", r"\1", path[0].strip()))


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def topology(graph: GroupGraph, prior: Prior, train: Sequence[Name], test: Sequence[Name]) -> Figure:
    """The given graph, training groups sized by their centrality, and the prior that follows from it."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        draw_graph(graph, left, train=train, test=test, sizes=prior.centrality)
        left.set_title("Groups and who touches whom; area of training groups by centrality")
        _bars(right, prior)
        return figure


def two_topologies(true: GroupGraph, learned: GroupGraph, prior: Prior, test: Sequence[Name]) -> Figure:
    """The given graph beside one learned from data, on the groups the learned one spans, and the learned prior."""
    shown = [name for name in learned.names if name in true]
    placed = GroupGraph(learned.names, learned.edges, origin=learned.origin, positions=true.subgraph(shown).positions)
    train = list(prior.weights)
    inside = [name for name in test if name in learned] or None
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 3.6), layout="constrained")
        axes = figure.subplots(1, 3, width_ratios=(2, 2, 1.6))
        same = set(true.subgraph(shown).edges) & set(placed.edges)
        draw_graph(true.subgraph(shown), axes[0], train=train, test=inside)
        axes[0].set_title(f"given: {len(true.subgraph(shown).edges)} edges")
        draw_graph(placed, axes[1], train=train, test=inside, sizes=prior.centrality)
        axes[1].set_title(f"learned: {len(placed.edges)} edges, {len(same)} of them given")
        _bars(axes[2], prior)
        return figure


def weights_over_training(
    histories: Mapping[str, Sequence[Mapping[Name, float]]], *, at: Sequence[int] | None = None, moment: str = "epoch"
) -> Figure:
    """The weight of every training group after each epoch, one panel a method (title to weights by epoch).

    ``at`` are the epochs (from 1 on unless given), ``moment`` is what they are called.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 2.9), layout="constrained")
        axes = np.atleast_1d(figure.subplots(1, len(histories), sharey=True))
        names = list(next(iter(histories.values()))[0])
        largest = max(weight for history in histories.values() for weights in history for weight in weights.values())
        top = 1.0 if largest > 0.5 else 1.2 * largest  # of many groups, each has little
        for ax, (title, history) in zip(axes, histories.items(), strict=True):
            epochs = np.arange(1, len(history) + 1) if at is None else np.asarray(at)
            for i, name in enumerate(names):
                style = line_style(i) | few_points(epochs)
                ax.plot(epochs, [w[name] for w in history], lw=1.6, label=str(name), **style)
            ax.set_title(title)
            ax.set_xlabel(moment)
            ax.set_ylim(-0.02 * top, 1.02 * top)
            ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes[0].set_ylabel("weight q of the group")
        axes[-1].legend(title="group", bbox_to_anchor=(1.0, 1.0), loc="upper left", fontsize=8)
        return figure


def metrics_by_epoch(
    panels: Mapping[str, Mapping[str, Array]],
    epochs: Sequence[int],
    styles: Mapping[str, dict[str, Any]],
    *,
    log: bool = False,
    moment: str = "epoch",
) -> Figure:
    """Metrics after these epochs (panel to title to (seeds, epochs)): how much the choice of the epoch decides."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 3.4), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for ax, (label, curves) in zip(axes, panels.items(), strict=True):
            for title, values in curves.items():
                mean, spread = values.mean(axis=0), values.std(axis=0)
                lower = np.maximum(mean - spread, 0.2 * mean) if log else mean - spread
                ax.plot(epochs, mean, lw=1.6, label=title, **styles[title], **few_points(epochs))
                ax.fill_between(epochs, lower, mean + spread, color=styles[title]["color"], alpha=0.12, lw=0)
            if log:
                ax.set_yscale("log")
                ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
                ax.yaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_locator(MaxNLocator(10 if len(panels) == 1 else 5, integer=True))
            ax.set_xlabel(moment)
            ax.set_ylabel(label)
            if len(epochs) > 1:
                ax.set_xlim(epochs[0], epochs[-1])
        axes[-1].legend(bbox_to_anchor=(1.0, 1.0), loc="upper left", fontsize=8)
        return figure


def accuracy_by_group(
    values: Mapping[str, Mapping[Name, float]],
    order: Sequence[Name],
    label: str,
    styles: Mapping[str, dict[str, Any]],
) -> Figure:
    """Accuracy in every test group after the last epoch (title to per cent by group), groups in a meaningful order."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 3.2), layout="constrained")
        ax = figure.subplots()
        x = np.arange(len(order))
        for title, by_group in values.items():
            y = [by_group[name] for name in order]
            ax.plot(x, y, lw=1.3, marker="o", ms=3.5, label=title, **styles[title])
        ax.axhline(50, color="#9ca3af", lw=0.8, ls=":")
        ax.set_xticks(x, [str(name) for name in order], fontsize=8 if len(order) <= 20 else 6)
        if len(order) > 20:
            ax.tick_params(axis="x", rotation=90)
        ax.set_xlabel(label)
        ax.set_ylabel("accuracy (%)")
        ax.set_ylim(-3, 103)
        ax.legend(bbox_to_anchor=(1.0, 1.0), loc="upper left", fontsize=8)
        return figure


def decision_boundaries(
    grids: Mapping[str, Array], extent: tuple[float, float, float, float], data: GroupedData, train: Sequence[Name]
) -> Figure:
    """Where each model says class 1 (title to probabilities on a square grid), over training and test points."""
    inside = np.isin(data.codes, data.groups.encode(train))
    columns = min(3, len(grids))
    rows = -(-len(grids) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 3.1 * rows), layout="constrained")
        axes = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)).ravel()
        for ax, (title, grid) in zip(axes, grids.items(), strict=False):
            side = np.linspace(extent[0], extent[1], grid.shape[1]), np.linspace(extent[2], extent[3], grid.shape[0])
            ax.contourf(*side, grid, levels=[0.0, 0.5, 1.0], colors=["#dbeafe", "#fde3cf"])
            ax.contour(*side, grid, levels=[0.5], colors="#374151", linewidths=1.0)
            for label, color in enumerate(CLASS_COLORS):
                for mask, size, alpha in ((~inside, 1.0, 0.35), (inside, 2.5, 0.9)):
                    points = data.x[mask & (data.y == label)]
                    ax.scatter(points[:, 0], points[:, 1], s=size, color=color, alpha=alpha, lw=0, rasterized=True)
            ax.set_title(title)
            ax.set_aspect("equal")
            ax.set_xticks([])
            ax.set_yticks([])
        for ax in axes[len(grids) :]:
            ax.set_visible(False)
        return figure


def _bars(ax: Any, prior: Prior) -> None:
    names = list(prior.weights)
    ax.bar(range(len(names)), [prior.weights[name] for name in names], color=TRAIN_COLOR, width=0.7)
    ax.axhline(1.0 / len(names), color=TEST_COLOR, lw=1.0, ls="--", label="uniform")
    many = len(names) > 12
    ax.set_xticks(range(len(names)), [str(name) for name in names], fontsize=6 if many else None, rotation=90 * many)
    ax.set_xlabel("training group")
    how = prior.normalization or ""
    if prior.temperature is not None:
        how += f", T = {prior.temperature:g}"
    ax.set_title(f"prior: {prior.measure} ({how})" if how else f"prior: {prior.measure}")
    ax.legend(fontsize=8)
