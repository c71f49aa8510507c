"""Numbers, intervals, names and sentences as text of pages."""

from __future__ import annotations

import math
import platform
from typing import Any

import numpy as np

import toporo
from toporo.estimators.explain import RowTable
from toporo.pages.table import Table
from toporo.tables.resample import Interval
from toporo.text import hops_text, short_name
from toporo.text import number as plain

#: Characters of a name in a sentence.
NAME = 48
#: Means over fewer groups have rough intervals.
FEW_GROUPS = 10


def number(value: float | None, like: float | None = None) -> str:
    """Return three significant digits with a typographic minus; see :func:`toporo.text.number`."""
    return plain(value, like, zeros=True).replace("-", "−")


def share(value: float) -> str:
    """Return a weight with three decimals; only a weight of zero is a plain 0."""
    return "0" if value == 0 else "< 0.001" if value < 0.0005 else f"{value:.3f}"


def interval_text(interval: Interval) -> str:
    """Return ``0.830 (0.801 to 0.862)``, with equal decimals; without the interval where there is none."""
    ends = (interval.value, interval.low, interval.high)
    if not math.isfinite(interval.value):
        return "no value"
    if not all(map(math.isfinite, ends)):
        return number(interval.value)
    value, low, high = (number(end, max(map(abs, ends))) for end in ends)
    return f"{value} ({low} to {high})"


def versions() -> str:
    """Return the versions that make a page, for its settings."""
    return f"toporo {toporo.__version__}, Python {platform.python_version()}, numpy {np.__version__}"


def quoted(name: object) -> str:
    """Return a name in quotation marks, shortened if it is long."""
    return f"“{short_name(name, NAME)}”"


def explain_table(table: RowTable[Any], most: int | None = None) -> Table:
    """Make the table that a model's ``explain`` gives, with at most so many columns."""
    rows, names = [table.cells(row) for row in table], table.columns[:most]
    columns = {name: [_cell(name, row[name]) for row in rows] for name in names}
    return Table.from_columns(columns, f"All {len(rows)} rows", words=(names[0], "note"))


def _cell(column: str, value: Any) -> str:
    if column == "hops":
        return hops_text(value) or "–"
    if column in ("prior", "weight"):
        return share(value)
    return number(value) if value is None or isinstance(value, float) else str(value)
