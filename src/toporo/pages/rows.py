"""Row charts: bars or markers with intervals, one row per group, method or setting."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from toporo.pages.charts import (
    GRID,
    NAME_LETTERS,
    SHADE,
    SOFT,
    TICK_STEPS,
    Values,
    canvas,
    drawn,
    key,
    log_ticks,
    stroke,
)
from toporo.text import short_name, sign_width
from toporo.topology.draw import TEST_COLOR, TRAIN_COLOR, mark_group
from toporo.types import Array

if TYPE_CHECKING:
    from toporo.tables.resample import Interval

#: Inches of a row.
ROW = 0.2
#: Rows of a chart; the table beside it has the others.
SHOWN = 40


@dataclass(frozen=True)
class Marks:
    """Values of a row chart, at most one per row: bars, or markers with intervals.

    Attributes
    ----------
    values : in the order of the rows; NaN is left out.
    label : in the key; nothing leaves it out.
    low, high : ends of the intervals; NaN where there is none.
    marker : of matplotlib; ``""`` draws bars.
    color : of marks, and of bars above zero; those below have another.
    filled : whether markers are filled.
    size : of markers, in points.
    at : rows of the values, where these are not 0, 1, 2, ….
    """

    values: Values
    label: str = ""
    low: Values | None = None
    high: Values | None = None
    marker: str = "o"
    color: str = TRAIN_COLOR
    filled: bool = True
    size: float = 5.5
    at: Sequence[float] | None = None

    @classmethod
    def of_intervals(cls, intervals: Sequence[Interval | None], **looks: Any) -> Marks:
        """Make marks of values with intervals; None leaves a row out.

        Parameters
        ----------
        intervals : by row.
        looks : the other attributes.
        """
        ends = [(math.nan,) * 3 if each is None else (each.value, each.low, each.high) for each in intervals]
        values, low, high = zip(*ends, strict=True)
        return cls(values=values, low=low, high=high, **looks)

    @property
    def looks(self) -> dict[str, Any]:
        """Options of a matplotlib line."""
        fill = self.color if self.filled else "white"
        return {"ls": "", "marker": self.marker, "ms": self.size, "color": self.color, "mfc": fill, "mew": 1.3}

    @property
    def handle(self) -> Any:
        """An entry of the key."""
        return Line2D([], [], label=self.label, **self.looks) if self.marker else Patch(fc=self.color, label=self.label)


@dataclass(frozen=True)
class Panel:
    """One axis of a row chart.

    Attributes
    ----------
    marks : values by row.
    label, title : below and above the axis.
    reference : value at which a dotted line is drawn.
    reference_label : of that line, in the key.
    band : ends of an interval around the reference.
    limits : of the axis; None where the values decide.
    log : whether the axis is logarithmic.
    notes : words in a row, by its number; rows without a value and a note say so.
    """

    marks: Sequence[Marks]
    label: str = ""
    title: str = ""
    reference: float = math.nan
    reference_label: str = ""
    band: tuple[float, float] = (math.nan, math.nan)
    limits: tuple[float | None, float | None] = (None, None)
    log: bool = False
    notes: Mapping[int, str] = field(default_factory=dict)


@drawn
def row_chart(
    names: Sequence[Hashable], panels: Sequence[Panel], *, shared: bool = False, bold: Collection[object] = ()
) -> Figure:
    """Draw values by row, the first row on top; of very many rows, the first :data:`SHOWN`.

    Parameters
    ----------
    names : of the rows; pages light up what stands for the same name.
    panels : one below the other, with the same rows.
    shared : whether the panels have one scale.
    bold : names to highlight.
    """
    count = len(names) if len(names) <= SHOWN + 1 else SHOWN
    rest = len(names) - count
    figure, axes = canvas(0.95 + ROW * max(count + bool(rest), 3), len(panels), sharex=shared, sharey=True)
    for ax, panel in zip(axes, panels, strict=True):
        _shade_rows(ax, names[:count], count + bool(rest))
        _draw_panel(ax, panel, count)
        if rest:
            _in_row(ax, count, f"{rest} more: see the table")
    for ax, panel in zip(axes, panels, strict=True):  # panels may share a scale
        ax.set_xlim(*panel.limits)
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=TICK_STEPS))
        if panel.log:
            log_ticks(ax.xaxis)
    axes[0].set_yticks(range(count), [_row_name(name) for name in names[:count]])
    axes[0].set_ylim(count + bool(rest) - 0.5, -0.5)
    for name, text in zip(names, axes[0].get_yticklabels(), strict=False):
        text.set_fontweight("bold" if name in bold else "normal")
    handles = {marks.label: marks.handle for panel in panels for marks in panel.marks}
    handles |= {panel.reference_label: stroke(panel.reference_label) for panel in panels}
    key(figure, [handle for label, handle in handles.items() if label])
    return figure


def _shade_rows(ax: Axes, names: Sequence[Hashable], count: int) -> None:
    """Shade every second row, and mark each for the script."""
    for row in range(0, count, 2):
        ax.axhspan(row - 0.5, row + 0.5, color=SHADE, lw=0, zorder=0)
    for row, name in enumerate(names):
        mark_group(ax.axhspan(row - 0.5, row + 0.5, facecolor="none", lw=0, zorder=9), name)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0, pad=6, labelsize=8)


def _draw_panel(ax: Axes, panel: Panel, count: int) -> None:
    if panel.log:
        ax.set_xscale("log")
    if all(map(math.isfinite, panel.band)):
        ax.axvspan(*panel.band, color=GRID, lw=0, zorder=0.5)
    if math.isfinite(panel.reference):
        ax.axvline(panel.reference, color=SOFT, lw=0.9, ls=":", zorder=1)
    missing = set(range(count))
    for marks in panel.marks:
        values = np.asarray(marks.values, dtype=np.float64)
        at = np.arange(len(values)) if marks.at is None else np.asarray(marks.at)
        shown = np.isfinite(values) & (at < count)
        missing -= set(at[shown].round().astype(int).tolist())
        _draw_marks(ax, marks, values, at, shown)
    for row in sorted(missing | panel.notes.keys() & set(range(count))):
        _in_row(ax, row, panel.notes.get(row, "no value"))
    ax.margins(x=0.08)
    ax.tick_params(axis="x", labelbottom=True)
    ax.set_xlabel(panel.label + (", log scale" if panel.log else ""))
    ax.set_title(panel.title, loc="left")


def _draw_marks(ax: Axes, marks: Marks, values: Array, at: Any, shown: Any) -> None:
    if not marks.marker:
        colors = [marks.color if value >= 0 else TEST_COLOR for value in values[shown]]
        ax.barh(at[shown], values[shown], height=0.68, color=colors, zorder=2)
        if (values[shown] < 0).any():
            ax.axvline(0, color="#374151", lw=0.8, zorder=3)
        return
    if marks.low is not None and marks.high is not None:
        low, high = (np.asarray(ends, dtype=np.float64)[shown] for ends in (marks.low, marks.high))
        ends = np.maximum([values[shown] - low, high - values[shown]], 0.0)
        ax.errorbar(values[shown], at[shown], xerr=ends, fmt="none", ecolor=marks.color, elinewidth=1.4, zorder=2.5)
    ax.plot(values[shown], at[shown], zorder=3, clip_on=False, label=marks.label or None, **marks.looks)


def _row_name(name: object) -> str:
    """A name left of an axis, with room for characters that a browser draws broader than matplotlib thinks."""
    text = short_name(name, NAME_LETTERS)
    return "\u00a0" * math.ceil(1.3 * sum(sign_width(sign) == 2 for sign in text)) + text


def _in_row(ax: Axes, row: float, text: str) -> None:
    ax.text(0.01, row, text, transform=ax.get_yaxis_transform(), color=SOFT, va="center", zorder=5, size=8)
