"""Heat maps: a square matrix by pairs of groups."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
from matplotlib.figure import Figure

from toporo.pages.charts import NAME_LETTERS, color_bar, drawn, readable
from toporo.pages.svg import WIDE, WIDTH
from toporo.text import short_name
from toporo.topology.draw import TEST_COLOR
from toporo.types import Array

#: Inches of a row, and of a character of a name.
CELL, LETTER = 0.165, 0.075
#: Rows that have a label, and up to which each cell has its number.
MOST_LABELS, MOST_NUMBERS = 60, 12


@drawn
def heat_map(
    matrix: Array,
    names: Sequence[str],
    label: str,
    *,
    limits: tuple[float, float],
    title: str = "",
    line: float = math.nan,
    marked: Collection[str] = (),
    axes: tuple[str, str] = ("", ""),
) -> Figure:
    """Draw a matrix as coloured cells; NaN is left blank.

    Parameters
    ----------
    matrix : the values.
    names : of rows and columns; of many, every second, third, … is written.
    label : of the colours.
    limits : of the colours.
    title : above the map.
    line : value to mark on the scale of colours.
    marked : names to highlight.
    axes : labels of rows and columns.
    """
    places = list(range(0, len(names), -(-len(names) // MOST_LABELS)))
    texts = [short_name(names[place], NAME_LETTERS) for place in places]
    room = LETTER * max(map(len, texts)) + 0.2 * any(axes)
    side = max(CELL * len(names), WIDTH - room - 0.3)
    figure = Figure(figsize=(min(side, WIDE) + room + 0.3, min(side, WIDE) + room + 1.0), layout="constrained", dpi=200)
    ax = figure.subplots()
    image = ax.imshow(matrix, cmap="YlGnBu", vmin=limits[0], vmax=limits[1], aspect="auto", interpolation="none")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=8.5)
    ax.set_xticks(places, texts, rotation=90)
    ax.set_yticks(places, texts)
    for place, *ticks in zip(places, ax.get_xticklabels(), ax.get_yticklabels(), strict=True):
        if names[place] in marked:
            for tick in ticks:
                tick.set(color=TEST_COLOR, fontweight="bold")
    ax.set(ylabel=axes[0], xlabel=axes[1])
    ax.set_title(title)
    if len(matrix) <= MOST_NUMBERS:
        fills = image.to_rgba(matrix)
        for i, j in np.argwhere(np.isfinite(matrix)):
            color = readable(fills[i, j])
            ax.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", fontsize=7, color=color)
    bar = color_bar(figure, image, label, np.ravel(matrix), ax=ax)
    if math.isfinite(line):
        bar.ax.axvline(line, color=TEST_COLOR, lw=2.0)
    return figure
