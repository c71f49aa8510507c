"""The figures that benchmarks of images and of tiles share: learned topologies over seeds, scores by method."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter

from toporo.errors import GroupMismatchError, SettingError
from toporo.pages.figures import COLORS, STYLE
from toporo.pages.us_map import part_of
from toporo.topology.draw import FIRM_COLOR, TEST_COLOR, TRAIN_COLOR, draw_graph, layout
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Name

Edge = tuple[Any, Any]

WIDTH = 9.2
SOFT, GRID_COLOR, INK = "#6b7280", "#e5e7eb", "#111827"
#: Panels of scores side by side.
ACROSS = 5
#: Colours of a table go over at least this share of its highest value: small differences look small.
SPAN = 0.15
#: Light enough for dark figures on it.
TABLE_COLORS = part_of("YlGnBu", 0.0, 0.55)


@dataclass(frozen=True)
class Learned:
    """A topology as several runs learned it, each from its own features: one graph and one prior a run."""

    graphs: tuple[GroupGraph, ...]
    priors: tuple[Prior, ...]

    def __post_init__(self) -> None:
        if not self.graphs or len(self.graphs) != len(self.priors):
            raise SettingError(
                f"found {len(self.graphs)} learned graphs and {len(self.priors)} priors: expected one of each a run, "
                "and at least one run."
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
        found = [prior.centrality or prior.weights for prior in self.priors]
        return {name: float(np.mean([values[name] for values in found])) for name in self.priors[0].weights}


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


def learned_topology(learned: Learned, *, what: str = "group") -> Figure:
    """Which groups the runs join, and the prior that follows: bars are means, dots single runs."""
    with mpl.rc_context(STYLE):
        many = len(learned.names) > 5
        figure = Figure(figsize=(WIDTH, 4.3 if many else 3.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        union = learned.union
        at = _lying(layout(union))
        placed = GroupGraph(union.names, union.edges, positions=at)
        _margins(left, list(at.values()))
        draw_graph(placed, left, train=list(learned.priors[0].weights), sizes=learned.centrality)
        left.legend(handles=draw_counted_edges(left, at, learned), loc="upper center", bbox_to_anchor=(0.5, 0.0),
                    ncols=len(learned.graphs), fontsize=8)  # fmt: skip
        left.set_title(f"training {what}s, area by centrality (mean over seeds)")
        _prior_bars(right, learned, what)
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


def draw_counted_edges(ax: Axes, at: Mapping[Any, Any], learned: Learned) -> list[Line2D]:
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
    unit = "seed" if runs == 1 else "seeds"
    return [
        Line2D([], [], color=FIRM_COLOR, lw=width, alpha=opacity, label=f"edge in {count} of {runs} {unit}")
        for count, (width, opacity) in sorted(looks.items(), reverse=True)
    ]


def _prior_bars(ax: Axes, learned: Learned, what: str) -> None:
    names = list(learned.priors[0].weights)
    first = learned.priors[0]
    x = np.arange(len(names))
    ax.bar(x, [float(np.mean(learned.weights(name))) for name in names], color=TRAIN_COLOR, width=0.7, alpha=0.85)
    if len(learned.graphs) > 1:
        for i, name in enumerate(names):
            found = learned.weights(name)
            spots = i + 0.16 * (np.arange(len(found)) - (len(found) - 1) / 2)
            ax.plot(spots, found, ls="", marker="o", ms=3.5, mec="white", mew=0.6, color=INK,
                    label="single seeds" if not i else None)  # fmt: skip
    ax.axhline(1.0 / len(names), color=TEST_COLOR, lw=1.2, ls="--", label="uniform")
    tall = len(names) > 4
    ax.set_xticks(x, [str(name) for name in names], fontsize=8, rotation=45 * tall, ha="right" if tall else "center",
                  rotation_mode="anchor" if tall else None)  # fmt: skip
    ax.set_ylim(0.0, 1.05 * max(max(learned.weights(name)) for name in names) + 0.12)
    ax.set_xlabel(f"training {what}")
    how = ", ".join(
        part
        for part in (first.normalization or "", f"T = {first.temperature:g}" if first.temperature is not None else "")
        if part
    )
    ax.set_title(f"prior: {first.measure}" + (f" ({how})" if how else ""))
    ax.legend(fontsize=8, loc="upper right", ncols=2)


def method_scores(
    panels: Mapping[str, Sequence[Score]],
    *,
    label: str = "",
    reference: str | None = None,
    highlight: Collection[str] = (),
) -> Figure:
    """Scores by method, a panel a test group: mean ± sd over seeds, single seeds, and the paper's figure as a diamond.

    Panels have axes of their own; the dotted line is the reference method's mean.
    """
    if not panels:
        raise SettingError("a figure of scores needs at least one panel; found none. Pass {title: [Score, …]}.")
    titles = list(dict.fromkeys(score.title for scores in panels.values() for score in scores))
    place = {title: i for i, title in enumerate(titles)}
    columns = min(ACROSS, len(panels))
    rows = -(-len(panels) // columns)
    with mpl.rc_context(STYLE):
        height = rows * (0.75 + 0.21 * len(titles)) + 0.35
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, columns, sharey=True, squeeze=False)
        for ax, (title, scores) in zip(axes.ravel(), panels.items(), strict=False):
            _score_panel(ax, scores, place, reference, highlight)
            ax.set_title(title)
        for ax in axes.ravel()[len(panels) :]:
            ax.set_visible(False)
        for ax in axes[:, 0]:
            ax.set_yticks(range(len(titles)), titles)
            ax.set_ylim(len(titles) - 0.4, -0.6)
        if label:
            figure.supxlabel(label, fontsize=9)
        handles = [Line2D([], [], ls="", marker="o", ms=5, color=COLORS[6], label="mean ± sd over seeds; dots: seeds")]
        if any(score.paper is not None for scores in panels.values() for score in scores):
            handles.append(_paper_mark(label="the paper's figure"))
        if reference in place:
            handles.append(Line2D([], [], color=SOFT, lw=1.0, ls=":", label=str(reference)))
        figure.legend(handles=handles, loc="outside upper right", ncols=3, fontsize=8)
        return figure


def _paper_mark(**more: Any) -> Line2D:
    return Line2D([], [], ls="", marker="D", ms=4.5, mfc="white", mec=TEST_COLOR, mew=1.2, **more)


def _score_panel(
    ax: Axes, scores: Sequence[Score], place: Mapping[str, int], reference: str | None, highlight: Collection[str]
) -> None:
    for score in scores:
        y = place[score.title]
        color = COLORS[0] if score.title in highlight else "#b0b5bd" if score.control else COLORS[6]
        if score.values:
            ax.errorbar(score.mean, y, xerr=score.sd, fmt="o", ms=5, color=color, elinewidth=1.4, capsize=2.5, zorder=3)
            if len(score.values) > 1:
                spots = np.full(len(score.values), y + 0.28)
                ax.plot(score.values, spots, ls="", marker="o", ms=1.8, color=color, zorder=2)
        if score.paper is not None:
            ax.plot(score.paper, y, ls="", marker="D", ms=4.5, mfc="white", mec=TEST_COLOR, mew=1.2, zorder=4)
        if score.title == reference and score.values:
            ax.axvline(score.mean, color=SOFT, lw=1.0, ls=":", zorder=1)
    ax.grid(axis="y", color=GRID_COLOR, lw=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.12)
    ax.xaxis.set_major_locator(MaxNLocator(4, min_n_ticks=3))


def group_table(
    values: Mapping[str, Mapping[Name, float]],
    order: Sequence[Name],
    *,
    label: str,
    digits: int = 2,
    marked: Collection[Name] = (),
) -> Figure:
    """A value for every method (title to values by group) and group as a coloured table; marked groups are framed.

    Values that are not defined (NaN), or not there, are dashes on white.
    """
    grid = np.array([[by_group.get(name, math.nan) for name in order] for by_group in values.values()], dtype=float)
    known = grid[np.isfinite(grid)]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.3 + 0.27 * len(values)), layout="constrained")
        ax = figure.subplots()
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
        low, high = min(low, high - SPAN * abs(high)), high if high else 1.0
        mesh = ax.pcolormesh(
            np.ma.masked_invalid(grid), cmap=TABLE_COLORS, vmin=low, vmax=high,
            edgecolors="white", linewidth=1.0,
        )  # fmt: skip
        for (i, j), value in np.ndenumerate(grid):
            text = f"{value:.{digits}f}" if math.isfinite(value) else "–"
            best = math.isfinite(value) and value == np.nanmax(grid[:, j]) > np.nanmin(grid[:, j])
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8, color=INK,
                    fontweight="bold" if best else "normal")  # fmt: skip
        for j in (j for j, name in enumerate(order) if name in marked):
            ax.add_patch(
                mpl.patches.Rectangle((j, 0), 1, len(values), fill=False, ec=TEST_COLOR, lw=1.8, clip_on=False)
            )
        ax.set_yticks(np.arange(len(values)) + 0.5, list(values))
        long = max(len(str(name)) for name in order) > 9 and len(order) > 5
        ax.set_xticks(np.arange(len(order)) + 0.5, [str(name) for name in order], fontsize=8,
                      rotation=30 * long, ha="left" if long else "center")  # fmt: skip
        ax.xaxis.tick_top()
        ax.tick_params(length=0)
        ax.invert_yaxis()
        for spine in ax.spines.values():
            spine.set_visible(False)
        bar = figure.colorbar(mesh, ax=ax, shrink=0.8, aspect=18, pad=0.02)
        bar.set_label(label)
        bar.outline.set_visible(False)
        return figure


def penalty_curve(
    curves: Mapping[str, Mapping[float, Sequence[float]]], references: Mapping[str, float], *, label: str
) -> Figure:
    """A score against the penalty λ (title of a line to values of all seeds by λ), other methods as level lines."""
    if not any(curves.values()):
        raise SettingError("a figure of penalties needs at least one λ; found none.")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
        ax = figure.subplots()
        for i, (title, by_penalty) in enumerate(curves.items()):
            at = sorted(by_penalty)
            mean = np.array([float(np.mean(by_penalty[value])) for value in at])
            sd = np.array([float(np.std(by_penalty[v], ddof=1)) if len(by_penalty[v]) > 1 else 0.0 for v in at])
            ax.errorbar(at, mean, yerr=sd if sd.any() else None, marker="o", ms=4.5, lw=1.8, capsize=2.5,
                        color=COLORS[i], label=title)  # fmt: skip
        for i, (title, value) in enumerate(references.items()):
            ax.axhline(value, color=SOFT, lw=1.1, ls=(":", "--", "-.")[i % 3], label=title)
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0,), numticks=20))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("penalty λ: weights may leave the prior (left) or must keep to it (right)")
        ax.set_ylabel(label)
        ax.legend(bbox_to_anchor=(1.0, 1.0), loc="upper left", fontsize=8)
        return figure
