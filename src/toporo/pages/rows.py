"""Row charts: bars or markers with intervals, one row per group, method or setting."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from toporo.pages.charts import NAME_LETTERS, SHADE, SOFT, TICK_STEPS, Values, canvas, drawn, key, mark
from toporo.text import short_name, sign_width
from toporo.topology.draw import TEST_COLOR, TRAIN_COLOR, mark_group

if TYPE_CHECKING:
    from toporo.tables.resample import Interval  # it needs all of the tables, which other charts do not

#: Inches of a row.
ROW = 0.2
#: Rows of a chart; further rows are in the table beside it.
SHOWN = 40


@dataclass(frozen=True)
class Marks:
    """Values of a row chart: bars, or markers with intervals.

    Attributes
    ----------
    values : by row; NaN is left out.
    label : in the key; an empty one is left out.
    low, high : ends of the intervals; NaN where there is none.
    marker : of matplotlib; ``""`` draws bars.
    color : of marks, and of bars above zero; those below have another.
    filled : whether markers are filled.
    size : of markers, in points.
    rows : positions of the values, if these are not 0, 1, 2, ….
    """

    values: Values
    label: str = ""
    low: Values | None = None
    high: Values | None = None
    marker: str = "o"
    color: str = TRAIN_COLOR
    filled: bool = True
    size: float = 5.5
    rows: Sequence[float] | None = None

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
        return {"ls": "", "marker": self.marker, "ms": self.size, "color": self.color, "mfc": fill, "mew": 1.3}

    @property
    def handle(self) -> Any:
        """Entry of the key."""
        return Line2D([], [], label=self.label, **self.style) if self.marker else Patch(fc=self.color, label=self.label)


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
    notes : words in a row, by its number; a row without a value and a note says "no value".
    """

    marks: Sequence[Marks]
    label: str = ""
    title: str = ""
    reference: float = math.nan
    reference_label: str = ""
    zero: bool = False
    notes: Mapping[int, str] = field(default_factory=dict)


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
    handles = {marks.label: marks.handle for panel in panels for marks in panel.marks}
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
    for row in sorted(missing | panel.notes.keys() & set(range(count))):
        _in_row(ax, row, panel.notes.get(row, "no value"))
    ax.margins(x=0.08)
    if panel.zero:
        ax.set_xlim(left=0.0)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=TICK_STEPS))
    ax.set_xlabel(panel.label)
    ax.set_title(panel.title, loc="left")


def _draw_marks(ax: Axes, marks: Marks, count: int) -> set[int]:
    """Draw the marks of the first rows, and return the rows that have one."""
    values = np.asarray(marks.values, dtype=np.float64)
    rows = np.arange(len(values)) if marks.rows is None else np.asarray(marks.rows)
    shown = np.isfinite(values) & (rows < count)
    x, y = values[shown], rows[shown]
    if not x.size:  # the layout would make room for an empty line, at the corner of the figure
        return set()
    if marks.marker:
        if marks.low is not None and marks.high is not None:
            low, high = (np.asarray(ends, dtype=np.float64)[shown] for ends in (marks.low, marks.high))
            ends = np.maximum([x - low, high - x], 0.0)
            ax.errorbar(x, y, xerr=ends, fmt="none", ecolor=marks.color, elinewidth=1.4, zorder=2.5)
        ax.plot(x, y, zorder=3, clip_on=False, **marks.style)
    else:
        ax.barh(y, x, height=0.68, color=[marks.color if value >= 0 else TEST_COLOR for value in x], zorder=2)
        if (x < 0).any():
            ax.axvline(0, color="#374151", lw=0.8, zorder=3)
    return set(y.round().astype(int).tolist())


def _row_name(name: object) -> str:
    """Return a name for the left of an axis, with room for characters that a browser draws broader than matplotlib."""
    text = short_name(name, NAME_LETTERS)
    return "\u00a0" * math.ceil(1.3 * sum(sign_width(sign) == 2 for sign in text)) + text


def _in_row(ax: Axes, row: float, text: str) -> None:
    ax.text(0.01, row, text, transform=ax.get_yaxis_transform(), color=SOFT, va="center", zorder=5, size=8)
