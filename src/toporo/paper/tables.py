"""Tables of result rows, for pages, Markdown, JSON and the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from toporo.errors import DataError
from toporo.pages import Cell, Table
from toporo.paper.methods import BenchMethod
from toporo.paper.protocols import Protocol, Variant
from toporo.paper.results import AVERAGE, SELECTIONS, Results, Row
from toporo.paper.sentences import PAIRED, caption, headline, oracle, overview_caption
from toporo.progress import make_console
from toporo.text import write_data

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

NONE = "–"
METHOD, SAW, NOTHING = "method", "saw of the test groups", "nothing"
#: Width of a terminal's tables, and the largest width of the methods' titles.
WIDTH, TITLE_WIDTH = 132, 36


def scores_table(part: Results) -> Table:
    """Return a variant's table: every metric under the protocol's rule, then the last one under the other rules.

    Beside them are the paper's figures and what methods saw of the test groups.
    """
    protocol, rows = part.protocol, part.rows
    if len({row.variant for row in rows}) > 1:
        raise DataError("rows of several variants: a table shows one of them.")
    *parts, whole = protocol.metrics
    columns: list[tuple[str, str, str]] = [(metric.name, metric.name, protocol.headline) for metric in parts]
    for rule in (SELECTIONS[name] for name in protocol.rules):
        title = rule.titled(protocol.unit)
        if parts:
            title = whole.name if rule.name == protocol.headline else f"{whole.name}, {title}"
        columns.append((title, whole.name, rule.name))
    cells = {
        (metric, rule): _column(protocol, [r for r in rows if (r.metric, r.selection) == (metric, rule)])
        for _, metric, rule in columns
    }
    published = {name for variant in protocol.variants for figures in variant.paper.values() for name in figures}
    names = [metric.name for metric in protocol.metrics if metric.name in published]
    last = {(row.method, row.metric): row for row in rows if row.selection == "last"}
    lines: dict[str, list[str]] = {}
    for row in rows:
        if row.method not in lines:  # a method's first row is under a rule that saw nothing of the test groups
            scores = [cells[metric, rule].get(row.method, NONE) for _, metric, rule in columns]
            paper = Cell(_published([last.get((row.method, name)) for name in names], protocol.digits), "paper")
            lines[row.method] = [*scores, paper, ", ".join(row.saw) or NOTHING]
    of = f": {' / '.join([*names[:1], *(name.removeprefix('hop ') for name in names[1:])])}"
    titles = [Cell(title, "oracle" if SELECTIONS[rule].saw else "") for title, _, rule in columns]
    return _table(protocol, [*titles, f"paper{'' if names in ([], [whole.name]) else of}", SAW], lines)


def overview_table(results: Results) -> Table:
    """Return all variants side by side under the protocol's rule, each with the paper's figures if it has some."""
    protocol = results.protocol
    variants = [*protocol.variants, *([Variant(AVERAGE, AVERAGE)] if protocol.average is not None else [])]
    headlines = results.headlines()
    titles: list[str] = []
    columns: list[dict[str, str]] = []
    for variant in variants:
        rows = [row for (name, _), row in headlines.items() if name == variant.name]
        if not rows:
            continue
        titles.append(variant.title)
        columns.append(_column(protocol, rows))
        paper = {row.method: row.paper for row in rows if row.paper is not None}
        if paper:
            titles.append(Cell("paper", "oracle"))
            columns.append({name: Cell(f"{value:.{protocol.digits}f}", "oracle") for name, value in paper.items()})
    lines = {
        method.name: [column.get(method.name, NONE) for column in columns]
        for method in protocol.get_methods()
        if any(method.name in column for column in columns)
    }
    return _table(protocol, titles, lines)


def paired_table(results: Results) -> Table | None:
    """Return differences to the baseline pair by pair; None unless averages mean something and seeds are several."""
    protocol = results.protocol
    pairs = results.pairs() if protocol.average is not None else []
    if not pairs:
        return None
    variants, seeds = pairs[0].differences.shape
    digits = protocol.digits + 1
    titles = ["better than ERM by", f"95 %, {variants * seeds} pairs", f"95 %, {variants} means over seeds"]
    lines = {}
    for pair in pairs:
        intervals = (pair.interval(of_variants=of_variants) for of_variants in (False, True))
        spans = [f"{low:+.{digits}f} to {high:+.{digits}f}" for low, high in intervals]
        lines[pair.method] = [f"{pair.mean:+.{digits}f}", *spans]
    return _table(protocol, titles, lines)


def _column(protocol: Protocol, rows: Sequence[Row]) -> dict[str, str]:
    """Return the cells of a column by method; the best is marked, unless it ran with fewer seeds than others."""
    most = max((len(row.per_seed) for row in rows), default=0)
    sure = [row for row in rows if len(row.per_seed) == most or not protocol.method(row.method).seeded]
    top = max((protocol.sign * row.mean for row in sure), default=None)
    cells: dict[str, str] = {}
    for row in rows:
        style = "oracle" if SELECTIONS[row.selection].saw else ""
        best = "best" if row in sure and protocol.sign * row.mean == top else ""
        cells[row.method] = Cell(mean_sd(row.mean, row.sd, protocol.digits), f"{style} {best}".strip())
    return cells


def _table(protocol: Protocol, titles: Sequence[str], lines: Mapping[str, Sequence[str]]) -> Table:
    """Return a table with a line per method; controls are marked, and every kind of model begins a section."""
    rows, styles, before = [], {}, None
    for number, (name, cells) in enumerate(lines.items()):
        method = protocol.method(name)
        start = "start" if before not in (None, _kind(method)) else ""
        styles[number] = f"{'control' if method.control else ''} {start}".strip()
        rows.append((method.title, *cells))
        before = _kind(method)
    return Table((METHOD, *titles), tuple(rows), (METHOD, SAW), row_styles=styles)


def _kind(method: BenchMethod) -> str:
    return "trained" if method.trained else "rule" if method.model == "rule" else "solved"


def _published(rows: Sequence[Row | None], digits: int) -> str:
    values = [row.paper if row else None for row in rows]
    if all(value is None for value in values):
        return NONE
    return " / ".join(NONE if value is None else f"{value:.{digits}f}" for value in values)


def mean_sd(mean: float, sd: float | None, digits: int = 2) -> str:
    """Return ``72.81 ± 1.56``, or the mean alone for a single seed."""
    return f"{mean:.{digits}f}" if sd is None else f"{mean:.{digits}f} ± {sd:.{digits}f}"


# ---------------------------------------------------------------------- whole files


def print_results(results: Results, style: str = "terminal") -> None:
    """Print all tables and the headline: for a ``"terminal"``, as ``"markdown"``, or only the rows as ``"json"``."""
    parts = results.parts
    titled = [(caption(part), scores_table(part)) for part in parts]
    summary = []
    if len(parts) > 1:
        summary.append((overview_caption(results.protocol), overview_table(results)))
    if (paired := paired_table(results)) is not None:
        summary.append((PAIRED, paired))
    titled = [*summary, *titled] if style == "markdown" else [*titled, *summary]
    notes = [oracle(results.protocol)] * (style == "terminal") + [headline(results).text]
    print_tables([asdict(row) for row in results.rows], titled, style, notes)


def print_tables(content: Any, titled: Iterable[tuple[str, Table]], style: str, notes: Sequence[str] = ()) -> None:
    """Print tables below their titles and notes, or ``content`` as JSON; ``style`` is as in :func:`print_results`."""
    if style == "json":
        write_data(sys.stdout, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    elif style == "markdown":
        text = [f"{title}\n\n{table.to_markdown()}" for title, table in titled]
        write_data(sys.stdout, "\n\n".join([*text, *notes]) + "\n")
    else:
        console = make_console(width=None if sys.stdout.isatty() else WIDTH, highlight=True)
        for title, table in titled:
            for part in _fitting(replace(table, title=title), console):
                console.print(part)
        for note in notes:
            console.print(note)


def _fitting(table: Table, console: Console) -> Iterator[RichTable]:
    """Cut a table into several that fit a terminal: each has the methods, and the paper's figures stay beside ours."""

    def part(start: int, end: int) -> RichTable:
        shown = replace(
            table,
            columns=(table.columns[0], *table.columns[start:end]),
            rows=tuple((row[0], *row[start:end]) for row in table.rows),
            title=table.title if start == 1 else "The same, continued.",
        ).to_rich()
        shown.columns[0].max_width = TITLE_WIDTH
        return shown

    start, count, unlimited = 1, len(table.columns), console.options.update(width=10_000)
    while start < count:
        ends = (end for end in range(count, start + 1, -1) if table.columns[end : end + 1] != ("paper",))
        widths = {end: console.measure(part(start, end), options=unlimited).maximum for end in ends}
        fits = (end for end, width in widths.items() if width <= console.width)
        end = next(fits, start + 1)
        yield part(start, end)
        start = end
