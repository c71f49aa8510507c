"""Row charts: markers with intervals, one row per group, method or input."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from toporo.pages.charts import NAME_LETTERS, SHADE, SOFT, TICK_STEPS, Values, canvas, drawn, key, mark
from toporo.text import short_name, sign_width
from toporo.topology.draw import TRAIN_COLOR, mark_group

if TYPE_CHECKING:
    from toporo.tables.resample import Interval  # it needs all of the tables, which other charts do not

#: Inches of a row.
ROW = 0.2
#: Rows of a chart; further rows are in the table beside it.
SHOWN = 40


@dataclass(frozen=True)
class Marks:
    """Values of a row chart, drawn as markers with intervals.

    Attributes
    ----------
    values : by row; NaN is left out.
    label : in the key; an empty one is left out.
    low, high : ends of the intervals; NaN where there is none.
    marker : of matplotlib.
    color : of markers and intervals.
    filled : whether markers are filled.
    """

    values: Values
    label: str = ""
    low: Values | None = None
    high: Values | None = None
    marker: str = "o"
    color: str = TRAIN_COLOR
    filled: bool = True

    @classmethod
    def of_intervals(cls, intervals: Sequence[Interval | None], **looks: Any) -> Marks:
        """Make marks of values with intervals; None leaves a row out. ``looks`` are the other attributes."""
        missing = (math.nan, math.nan, math.nan)
        values, low, high = zip(*((i.value, i.low, i.high) if i else missing for i in intervals), strict=True)
        return cls(values=values, low=low, high=high, **looks)

    @property
    def style(self) -> dict[str, Any]:
        """Options of a matplotlib line."""
        fill = self.color if self.filled else "white"
        return {"ls": "", "marker": self.marker, "ms": 5.5, "color": self.color, "mfc": fill, "mew": 1.3}


@dataclass(frozen=True)
class Panel:
    """One axis of a row chart.

    Attributes
    ----------
    marks : values by row.
    label, title : below and above the axis.
    reference : value at which a dotted line is drawn.
    reference_label : of that line, in the key.
    zero : whether the axis starts at zero.
    """

    marks: Sequence[Marks]
    label: str = ""
    title: str = ""
    reference: float = math.nan
    reference_label: str = ""
    zero: bool = False


@drawn
def row_chart(names: Sequence[Hashable], panels: Sequence[Panel]) -> Figure:
    """Draw values by row, the first row on top; of very many rows, the first :data:`SHOWN`.

    Parameters
    ----------
    names : of the rows; a page highlights all marks with the same name.
    panels : one below the other, with the same rows.
    """
    count = len(names) if len(names) <= SHOWN + 1 else SHOWN
    rest = len(names) - count
    figure, axes = canvas(0.95 + ROW * max(count + bool(rest), 3), len(panels), sharey=True)
    for ax, panel in zip(axes, panels, strict=True):
        _shade_rows(ax, names[:count], count + bool(rest))
        _draw_panel(ax, panel, count)
        if rest:
            _in_row(ax, count, f"{rest} more: see the table")
    axes[0].set_yticks(range(count), [_row_name(name) for name in names[:count]])
    axes[0].set_ylim(count + bool(rest) - 0.5, -0.5)
    handles = {marks.label: mark(marks.label, **marks.style) for panel in panels for marks in panel.marks}
    for panel in panels:
        handles[panel.reference_label] = mark(panel.reference_label, "", ls=":", lw=0.9, color=SOFT)
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
    if math.isfinite(panel.reference):
        ax.axvline(panel.reference, color=SOFT, lw=0.9, ls=":", zorder=1)
    missing = set(range(count))
    for marks in panel.marks:
        missing -= _draw_marks(ax, marks, count)
    for row in missing:
        _in_row(ax, row, "no value")
    ax.margins(x=0.08)
    if panel.zero:
        ax.set_xlim(left=0.0)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=TICK_STEPS))
    ax.set_xlabel(panel.label)
    ax.set_title(panel.title)


def _draw_marks(ax: Axes, marks: Marks, count: int) -> set[int]:
    """Draw the marks of the first rows, and return the rows that have one."""
    values = np.asarray(marks.values, dtype=np.float64)[:count]
    rows = np.flatnonzero(np.isfinite(values))
    if rows.size:  # the layout would make room for an empty line, at the corner of the figure
        if marks.low is not None and marks.high is not None:
            low, high = (np.asarray(ends, dtype=np.float64)[rows] for ends in (marks.low, marks.high))
            ends = np.maximum([values[rows] - low, high - values[rows]], 0.0)
            ax.errorbar(values[rows], rows, xerr=ends, fmt="none", ecolor=marks.color, elinewidth=1.4, zorder=2.5)
        ax.plot(values[rows], rows, zorder=3, clip_on=False, **marks.style)
    return set(rows.tolist())


def _row_name(name: object) -> str:
    """Return a name for the left of an axis, with room for characters that a browser draws broader than matplotlib."""
    text = short_name(name, NAME_LETTERS)
    return "\u00a0" * math.ceil(1.3 * sum(sign_width(sign) == 2 for sign in text)) + text


def _in_row(ax: Axes, row: float, text: str) -> None:
    ax.text(0.01, row, text, transform=ax.get_yaxis_transform(), color=SOFT, va="center", zorder=5, size=8)
