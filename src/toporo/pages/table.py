"""One table of text that renders to HTML (``base.html``), Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table as RichTable


#: A page folds a table with a title and more rows than this.
LONG = 12
#: A table with more columns than this is wider than the text of a page.
MANY_COLUMNS = 4


class Cell(str):
    """Text of a cell, or the title of a column, with a CSS class.

    ``"best"`` is bold everywhere; ``"oracle"`` is pale on a page. A style may be several classes, separated by spaces.

    >>> Cell("0.95 ± 0.01", "best")
    '0.95 ± 0.01'
    """

    style: str

    def __new__(cls, text: str, style: str = "") -> Cell:
        """Attach the style to the text."""
        cell = super().__new__(cls, text)
        cell.style = style
        return cell


@dataclass(frozen=True)
class Table:
    """Table of text.

    Attributes
    ----------
    columns : titles.
    rows : one cell per column, the name of the row first. Cells are text, :class:`Cell` where they have a style.
    words : titles of the columns that hold words; the others hold numbers and are aligned to the right.
    title : heading, or the text to click where a page folds the table.
    row_styles : CSS classes by row number. ``"control"`` marks a control, ``"start"`` begins a section, ``"total"`` is
        bold.

    >>> print(Table(("method", "error"), (("ERM", "0.9"), ("TRO", Cell("0.8", "best"))), ("method",)).to_markdown())
    | method | error |
    |---|---:|
    | ERM | 0.9 |
    | TRO | **0.8** |
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ()
    title: str = ""
    row_styles: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, Sequence[str]], title: str = "", words: Sequence[str] = ("group",)
    ) -> Table:
        """Make a table from cells by title, without columns that hold only dashes; ``title`` is that of a long one."""
        kept = {name: cells for name, cells in columns.items() if set(cells) != {"–"}}
        rows = tuple(zip(*kept.values(), strict=True))
        return cls(tuple(kept), rows, tuple(words), title if len(rows) > LONG else "")

    @property
    def folded(self) -> bool:
        """True if a page shows only the title until it is clicked."""
        return bool(self.title) and len(self.rows) > LONG

    @property
    def wide(self) -> bool:
        """True if a page shows the table wider than its text."""
        return len(self.columns) > MANY_COLUMNS

    def to_markdown(self) -> str:
        """Return the table in Markdown; the best cells are bold and controls are marked."""
        lines = [self.columns, tuple("---" if column in self.words else "---:" for column in self.columns)]
        for number, row in enumerate(self.rows):
            lines.append((self._name(number), *(f"**{cell}**" if _is_best(cell) else cell for cell in row[1:])))
        header, rule, *body = lines
        return "\n".join([f"| {' | '.join(header)} |", f"|{'|'.join(rule)}|", *(f"| {' | '.join(r)} |" for r in body)])

    def to_rich(self) -> RichTable:
        """Return the table for a terminal."""
        from rich.markup import escape
        from rich.table import Table as RichTable

        table = RichTable(title=escape(self.title), title_justify="left", title_style="bold")
        for column in self.columns:
            table.add_column(escape(column), justify="left" if column in self.words else "right")
        for number, (_, *cells) in enumerate(self.rows):
            if self._has(number, "start") or self._has(number, "total"):
                table.add_section()
            shown = [f"[bold]{escape(cell)}[/]" if _is_best(cell) else escape(cell) for cell in cells]
            table.add_row(escape(self._name(number)), *shown, style="bold" if self._has(number, "total") else None)
        return table

    def style_of(self, column: int, cell: str) -> str:
        """Return the CSS classes of a cell, or of a title, in a column given by its number."""
        words = "words" if self.columns[column] in self.words else ""
        return f"{getattr(cell, 'style', '')} {words}".strip()

    def _name(self, row: int) -> str:
        return f"{self.rows[row][0]} (control)" if self._has(row, "control") else self.rows[row][0]

    def _has(self, row: int, style: str) -> bool:
        return style in self.row_styles.get(row, "").split()


def _is_best(cell: str) -> bool:
    return isinstance(cell, Cell) and "best" in cell.style.split()
