"""Tables of records: as text, CSV, HTML, a data frame and JSON; and that of the training groups of a fitted model."""

from __future__ import annotations

import csv
import io
import math
import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from html import escape
from typing import Any, ClassVar, Self, TypeVar, overload

from toporo.errors import SettingError
from toporo.files import write_text
from toporo.text import NO_PATH, number, number_to_json
from toporo.topology.effect import PER_COLUMN, groups_in_effect
from toporo.types import Name


@dataclass(frozen=True)
class GroupRow:
    """Training group.

    Attributes
    ----------
    group : its name.
    size : its rows.
    loss : the model's loss on them: log loss, or mean squared error in the target's own unit.
    centrality : in the graph; None without one.
    prior, weight : the group's share before, and in the worst case that the model was fitted against.
    hops : edges to the nearest test group (inf: no path); None without test groups.
    """

    group: Name
    size: int
    loss: float
    centrality: float | None
    prior: float
    weight: float
    hops: float | None


#: Coefficients that are printed below the groups.
MOST_BELOW = 12
#: Columns of the table of groups.
COLUMNS = tuple(each.name for each in fields(GroupRow))
Row = TypeVar("Row")


@dataclass(frozen=True)
class RowTable(Sequence[Row]):
    """Records of a fitted model, such as its groups, those that matter most first.

    Attributes
    ----------
    rows : in that order.
    remarks : further sentences that go with the table.
    """

    rows: tuple[Row, ...]
    remarks: tuple[str, ...] = field(default=(), kw_only=True)

    #: Title of the rows, property of those that come first, and name of the rows in JSON.
    who: ClassVar[str]
    first: ClassVar[str]
    key: ClassVar[str] = "groups"

    @abstractmethod
    def cells(self, row: Row) -> dict[str, Any]:
        """Return a row by column, as it is."""

    @property
    def about(self) -> dict[str, Any]:
        """Facts about the model beside its rows, as plain values for JSON."""
        return {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that go with the table."""
        return self.remarks

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Row | Self:
        return replace(self, rows=self.rows[index]) if isinstance(index, slice) else self.rows[index]

    def to_dict(self) -> list[dict[str, Any]]:
        """Return one mapping per row, as JSON can hold it: hops without a path are ``"inf"``."""
        return [self.cells(row) | {"hops": number_to_json(self.cells(row)["hops"])} for row in self.rows]

    def to_pandas(self) -> Any:
        """Return a pandas data frame."""
        try:
            import pandas as pd
        except ImportError:
            raise SettingError(
                "to_pandas() needs pandas, which is not installed: pip install 'toporo[frames]', or use to_dict()."
            ) from None
        return pd.DataFrame([self.cells(row) for row in self.rows], columns=self.columns)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return CSV text, with every digit and an empty cell where there is no value.

        Parameters
        ----------
        path : a file to write the text to as well, whole or not at all.
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(list(self.cells(row).values()) for row in self.rows)
        if path is not None:
            write_text(path, out.getvalue())
        return out.getvalue()

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """Names of all that a row has."""

    def _shown(self) -> list[str]:
        """Return the columns for people: without those, such as hops, of which no row has a value."""
        cells = [self.cells(row) for row in self.rows]
        return [name for name in self.columns if not cells or any(cell[name] is not None for cell in cells)]

    def _cells(self) -> list[list[str]]:
        shown = self._shown()
        return [[_text(self.cells(row)[name]) for name in shown] for row in self.rows]

    def lines(self) -> str:
        """Return the rows as text, a line each below the names of the columns."""
        shown = self._shown()
        lines = [shown, *self._cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if name in (shown[0], "note") else cell.rjust(width)
                for name, cell, width in zip(shown, line, widths, strict=True)
            ).rstrip()
            for line in lines
        )

    def title(self, shown: int) -> str:
        """Return the title above the rows, of which so many are shown."""
        return f"{self.who}{f', the {shown} {self.first} of {len(self)}' if shown < len(self) else ''}:"

    def below(self, most: int | None) -> str:  # noqa: ARG002  # of others
        """Return what is printed below the rows: at most so many lines of it, all unless given."""
        return ""

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.lines(), self.below(MOST_BELOW))))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(column)}</th>" for column in self._shown())
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in self._cells())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class GroupTable(RowTable[GroupRow]):
    """Training groups of a fitted model, heaviest weight first.

    >>> print(GroupTable.of([GroupRow("NY", 120, 0.8, 2.0, 0.3, 0.1, 2), GroupRow("PA", 80, 1.5, 4.0, 0.7, 0.9, 1)]))
    group  size  loss  centrality  prior  weight  hops
    PA       80   1.5           4    0.7     0.9     1
    NY      120   0.8           2    0.3     0.1     2
    """

    who = "Training groups"
    first = "heaviest"
    #: Groups and rows in effect by the weights; None where they are not known.
    in_effect: tuple[float, float] | None = None
    #: The share of the prior that was taken from groups of few rows.
    capped: float = 0.0
    #: Coefficients of a linear model of a table; None where the inputs have no names.
    coefficients: RowTable[Any] | None = None

    @classmethod
    def of(cls, rows: Iterable[GroupRow], rows_in_effect: float | None = None, capped: float = 0.0) -> GroupTable:
        """Sort groups; those of equal weight stay as they come.

        Parameters
        ----------
        rows : the groups.
        rows_in_effect : by their weights.
        capped : the share of the prior that was taken from groups of few rows.
        """
        ordered = tuple(sorted(rows, key=lambda row: -row.weight))
        weights = {row.group: row.weight for row in ordered}
        known = None if rows_in_effect is None else (groups_in_effect(weights.values()), rows_in_effect)
        return cls(ordered, known, capped)

    def cells(self, row: GroupRow) -> dict[str, Any]:
        """Return a row by column, as it is."""
        return asdict(row)

    @property
    def columns(self) -> list[str]:
        """Fields of :class:`GroupRow`."""
        return list(COLUMNS)

    @property
    def about(self) -> dict[str, Any]:
        """Coefficients, where they are known."""
        return {} if self.coefficients is None else {"coefficients": self.coefficients.to_dict()}

    def below(self, most: int | None) -> str:
        """Return the coefficients, the largest first."""
        if self.coefficients is None:
            return ""
        some = self.coefficients[:most]
        return "\n".join(["", self.coefficients.title(len(some)), *([some.lines()] if len(some) else [])])

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about hops, and about groups and rows in effect."""
        known = any(row.hops is not None for row in self.rows)
        return ("Hops are edges to the nearest test group.",) * known + self.effect + self.remarks

    @property
    def effect(self) -> tuple[str, ...]:
        """Sentences about groups and rows in effect, and what was done about them."""
        said: tuple[str, ...] = ()
        if self.in_effect is not None:
            groups, rows = self.in_effect
            said = (f"By their weights, {groups:.1f} groups and {rows:,.0f} rows are in effect.",)
        if self.capped >= 0.0005:
            said += (
                f"{100 * self.capped:.2g} % of the prior was taken from groups of few rows, so that a column has "
                f"{PER_COLUMN} rows in effect or, in a short table, half of the rows are.",
            )
        return said


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return NO_PATH if math.isinf(value) else number(value, digits=4)
    return str(value)
