"""What a fitted model made of each group, as a table."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from html import escape
from typing import Any, overload

from toporo.errors import SettingError
from toporo.files import write_text
from toporo.text import NO_PATH, number_to_json
from toporo.types import Name


@dataclass(frozen=True)
class GroupRow:
    """One training group.

    Attributes
    ----------
    group : its name.
    size : its rows.
    loss : the model's loss on them: log loss, or mean squared error in the target's own unit.
    centrality : in the graph; None without one.
    prior, weight : how much the group counted before and in the worst case that the model was fitted against.
    hops : edges to the nearest test group (inf: no path); None without test groups.
    """

    group: Name
    size: int
    loss: float
    centrality: float | None
    prior: float
    weight: float
    hops: float | None


COLUMNS = tuple(field.name for field in fields(GroupRow))


@dataclass(frozen=True)
class GroupTable(Sequence[GroupRow]):
    """The training groups of a fitted model, heaviest weight first.

    >>> print(GroupTable.of([GroupRow("NY", 120, 0.8, 2.0, 0.3, 0.1, 2), GroupRow("PA", 80, 1.5, 4.0, 0.7, 0.9, 1)]))
    group  size  loss  centrality  prior  weight  hops
    PA       80   1.5           4    0.7     0.9     1
    NY      120   0.8           2    0.3     0.1     2
    """

    rows: tuple[GroupRow, ...]

    @classmethod
    def of(cls, rows: Iterable[GroupRow]) -> GroupTable:
        """In the table's order; groups of equal weight stay as they come."""
        return cls(tuple(sorted(rows, key=lambda row: -row.weight)))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> GroupRow: ...
    @overload
    def __getitem__(self, index: slice) -> GroupTable: ...
    def __getitem__(self, index: int | slice) -> GroupRow | GroupTable:
        return GroupTable(self.rows[index]) if isinstance(index, slice) else self.rows[index]

    def to_dict(self) -> list[dict[str, Any]]:
        """One mapping per row, as JSON can hold it: hops without a path are ``"inf"``."""
        return [asdict(row) | {"hops": number_to_json(row.hops)} for row in self.rows]

    def to_pandas(self) -> Any:
        """As a pandas data frame."""
        try:
            import pandas as pd
        except ImportError:
            raise SettingError(
                "to_pandas() needs pandas, which is not installed: pip install 'toporo[frames]', or use to_dict()."
            ) from None
        return pd.DataFrame([asdict(row) for row in self.rows], columns=list(COLUMNS))

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """As CSV text, every digit kept and an empty cell where there is no value.

        Parameters
        ----------
        path : a file to write the text to as well, whole or not at all.
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([getattr(row, column) for column in COLUMNS] for row in self.rows)
        if path is not None:
            write_text(path, out.getvalue())
        return out.getvalue()

    def _cells(self) -> list[list[str]]:
        return [[_shown(getattr(row, column)) for column in self._columns()] for row in self.rows]

    def _columns(self) -> list[str]:
        """Those to be shown: without centrality and hops where no group has any."""
        return [c for c in COLUMNS if not self.rows or any(getattr(row, c) is not None for row in self.rows)]

    def __str__(self) -> str:
        lines = [self._columns(), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(column)}</th>" for column in self._columns())
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in self._cells())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return NO_PATH if math.isinf(value) else f"{value:.4g}"
    return str(value)
