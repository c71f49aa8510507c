"""Result rows as tables: on the terminal, in Markdown, as JSON, and as cells for the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from toporo.bench.base import BENCHMARKS, listed_benchmarks
from toporo.bench.methods import BenchMethod
from toporo.bench.protocols import Metric, Protocol, Variant
from toporo.bench.results import AVERAGE, Row, read_about, read_rows
from toporo.choice.selection import BETTER, SELECTIONS
from toporo.errors import DataError

NONE = "–"
#: Characters of a terminal's 132 that figures may take beside the methods' names, which are wrapped if need be.
ACROSS = 108
ORACLE = "Oracle: the {} was chosen with test labels, to show what a column could at best be."


@dataclass(frozen=True)
class Column:
    """A metric under a selection rule."""

    metric: str
    selection: str
    title: str
    oracle: bool

    @property
    def key(self) -> tuple[str, str]:
        """What it finds its cells by."""
        return self.metric, self.selection


@dataclass(frozen=True)
class Line:
    """One method: ``mean ± sd`` by column, the paper's figure(s), what the method itself saw."""

    title: str
    cells: dict[tuple[str, str], str]
    paper: str
    saw: str
    control: bool
    best: frozenset[tuple[str, str]]
    method: BenchMethod
    starts_section: bool = False

    @property
    def label(self) -> str:
        """The title, with a word if it is a control."""
        return f"{self.title} (control)" if self.control else self.title


def make_columns(protocol: Protocol) -> list[Column]:
    """Every metric under the protocol's rule, then the one over all test groups under the other rules too."""
    *parts, whole = protocol.metrics
    columns = [Column(metric.name, protocol.headline, metric.name, False) for metric in parts]
    for rule in SELECTIONS.values():
        chosen = rule.name == protocol.headline
        named = rule.titled(protocol.unit)
        title = named if not parts else whole.name if chosen else f"{whole.name}, {named}"
        columns.append(Column(whole.name, rule.name, title, bool(rule.saw)))
    return columns


def paper_title(protocol: Protocol) -> str:
    """The head of the paper's column: ``paper``, or with the metrics that its figures are."""
    names = [metric.name for metric in _published(protocol)]
    if names in ([], [protocol.whole.name]):
        return "paper"
    first, *others = names
    return f"paper: {' / '.join([first, *(name.removeprefix('hop ') for name in others)])}"


def _published(protocol: Protocol) -> list[Metric]:
    """The metrics that the paper has figures of."""
    names = {name for variant in protocol.variants for figures in variant.paper.values() for name in figures}
    return [metric for metric in protocol.metrics if metric.name in names]


def make_lines(rows: Sequence[Row]) -> list[Line]:
    """Group the rows of one variant by method; the best mean of each column is marked."""
    if len({row.variant for row in rows}) > 1:
        raise DataError("rows of several variants: a table shows one of them.")
    if not rows:
        return []
    protocol = BENCHMARKS[rows[0].benchmark].protocol
    by_method: dict[str, dict[tuple[str, str], Row]] = {}
    for row in rows:
        by_method.setdefault(row.method, {})[row.metric, row.selection] = row
    keys = [column.key for column in make_columns(protocol)]
    tops = {key: _top([cells[key] for cells in by_method.values() if key in cells], protocol) for key in keys}
    lines: list[Line] = []
    for name, cells in by_method.items():
        method = protocol.method(name)
        last = next(iter(cells.values()))
        lines.append(
            Line(
                title=method.title,
                cells={key: mean_sd(cells[key], protocol.digits) if key in cells else NONE for key in keys},
                paper=_paper(protocol, cells),
                saw=", ".join(last.saw) or "nothing",
                control=last.control,
                best=frozenset(key for key in keys if key in cells and cells[key] in tops[key]),
                method=method,
                starts_section=bool(lines) and _kind(lines[-1].method) != _kind(method),
            )
        )
    return lines


def _top(rows: Sequence[Row], protocol: Protocol) -> list[Row]:
    """The best of a column; what ran with fewer seeds than others is too uncertain to be called that."""
    most = max((len(row.per_seed) for row in rows), default=0)
    sure = [row for row in rows if len(row.per_seed) == most or not protocol.method(row.method).seeded]
    best = BETTER[protocol.better]([row.mean for row in sure] or [0.0])
    return [row for row in sure if row.mean == best]


def _kind(method: BenchMethod) -> str:
    """What stands together in a long table: rules of thumb, networks, linear models."""
    if method.trained:
        return "trained"
    return "rule of thumb" if method.model == "rule" else "solved"


def _paper(protocol: Protocol, cells: dict[tuple[str, str], Row]) -> str:
    rows = [cells.get((metric.name, "last")) for metric in _published(protocol)]
    values = [row.paper if row else None for row in rows]
    if all(value is None for value in values):
        return NONE
    return " / ".join(NONE if value is None else f"{value:.{protocol.digits}f}" for value in values)


def mean_sd(row: Row, digits: int = 2) -> str:
    """``72.81 ± 1.56``, or the mean alone for a single seed."""
    return f"{row.mean:.{digits}f}" if row.sd is None else f"{row.mean:.{digits}f} ± {row.sd:.{digits}f}"


def caption(protocol: Protocol, rows: Sequence[Row], about: Mapping[str, Any] | None = None) -> str:
    """What the figures are, in a sentence; ``protocol`` is the variant's own, ``about`` that of the results file."""
    seeds = max(len(row.per_seed) for row in rows)
    title = f"{protocol.title} {protocol.variants[0].title}".strip()
    origin = BENCHMARKS[protocol.benchmark].origin(rows[0].source, (about or {}).get("data", {}))
    return (
        f"{title}: {protocol.metric}, {f'mean ± sd over {seeds} seeds' if seeds > 1 else 'one seed'}, "
        f"{protocol.rounds} {protocol.unit}; from {origin}."
    )


def markdown_table(rows: Sequence[Row]) -> str:
    """The table of one variant in Markdown, for a README or a notebook."""
    protocol = BENCHMARKS[rows[0].benchmark].protocol
    columns = make_columns(protocol)
    head = ["method", *(column.title for column in columns), paper_title(protocol), "saw of the test groups"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 2) + "---|"]
    for line in make_lines(rows):
        cells = [f"**{line.cells[c.key]}**" if c.key in line.best else line.cells[c.key] for c in columns]
        lines.append(f"| {' | '.join([line.label, *cells, line.paper, line.saw])} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Overview:
    """All variants side by side, under the protocol's rule; ``paper`` marks the paper's columns."""

    heads: list[str]
    paper: list[bool]
    lines: list[OverviewLine]


@dataclass(frozen=True)
class OverviewLine:
    """One method in an overview; ``best`` are numbers of columns."""

    label: str
    title: str
    control: bool
    cells: list[str]
    best: frozenset[int]
    starts_section: bool


def make_overview(protocol: Protocol, rows: Sequence[Row]) -> Overview:
    """A column per variant, and the paper's figures after those that share them."""
    whole = protocol.whole.name
    every = [*protocol.variants, *([Variant(AVERAGE, AVERAGE)] if protocol.average is not None else [])]
    variants = [variant for variant in every if any(row.variant == variant.name for row in rows)]
    last = _headlines(protocol, rows, whole)
    heads, paper, columns = [], [], []
    for i, variant in enumerate(variants):
        heads.append(variant.title)
        paper.append(False)
        columns.append({m: row for (v, m), row in last.items() if v == variant.name})
        shared = i + 1 < len(variants) and variants[i + 1].paper == variant.paper
        if not shared and any(row.paper is not None for row in columns[-1].values()):
            heads.append("paper")
            paper.append(True)
            columns.append(columns[-1])
    tops = [_top(list(column.values()), protocol) for column in columns]
    lines: list[OverviewLine] = []
    before: BenchMethod | None = None
    for method in protocol.get_methods():
        row_by_column = [column.get(method.name) for column in columns]
        if not any(row_by_column):
            continue
        lines.append(
            OverviewLine(
                label=f"{method.title} (control)" if method.control else method.title,
                title=method.title,
                control=method.control,
                cells=[
                    NONE if row is None or (published and row.paper is None)
                    else f"{row.paper:.{protocol.digits}f}" if published
                    else mean_sd(row, protocol.digits)
                    for row, published in zip(row_by_column, paper, strict=True)
                ],
                best=frozenset(
                    i for i, row in enumerate(row_by_column) if row is not None and not paper[i] and row in tops[i]
                ),
                starts_section=before is not None and _kind(before) != _kind(method),
            )
        )  # fmt: skip
        before = method
    return Overview(heads, paper, lines)


def _headlines(protocol: Protocol, rows: Sequence[Row], metric: str) -> dict[tuple[str, str], Row]:
    """The row that stands for a method on a variant: under the protocol's rule, or the only one there is."""
    headlines: dict[tuple[str, str], Row] = {}
    for row in rows:
        place = row.variant, row.method
        if row.metric == metric and (
            row.selection == protocol.headline or (row.selection == "last" and place not in headlines)
        ):
            headlines[place] = row
    return headlines


def overview_markdown(protocol: Protocol, rows: Sequence[Row]) -> str:
    """The overview in Markdown."""
    overview = make_overview(protocol, rows)
    lines = [f"| {' | '.join(['method', *overview.heads])} |", "|---|" + "---:|" * len(overview.heads)]
    for line in overview.lines:
        cells = [f"**{cell}**" if i in line.best else cell for i, cell in enumerate(line.cells)]
        lines.append(f"| {' | '.join([line.label, *cells])} |")
    return "\n".join(lines)


def overview_tables(protocol: Protocol, rows: Sequence[Row]) -> list[Table]:
    """The overview for a terminal; in several tables where it is too wide for one."""
    overview = make_overview(protocol, rows)
    title = (
        f"{protocol.title}, all variants: {protocol.metric}, over all test groups, "
        f"{SELECTIONS[protocol.headline].titled(protocol.unit)}."
    )
    widths = [
        max(len(text) for text in (*head.split(), *(line.cells[i] for line in overview.lines)))
        for i, head in enumerate(overview.heads)
    ]
    parts: list[list[int]] = [[]]
    for i, width in enumerate(widths):
        # The paper's figures stay beside ours.
        together = width + 3 + (widths[i + 1] + 3 if [*overview.paper, False][i + 1] else 0)
        if parts[-1] and not overview.paper[i] and sum(widths[j] + 3 for j in parts[-1]) + together > ACROSS:
            parts.append([])
        parts[-1].append(i)
    titles = [title, *["The same, continued."] * (len(parts) - 1)]
    return [_overview_part(overview, part, widths, title) for part, title in zip(parts, titles, strict=True)]


def _overview_part(overview: Overview, places: Sequence[int], widths: Sequence[int], title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="")
    table.add_column("method")
    for i in places:
        table.add_column(overview.heads[i], justify="right", width=widths[i])
    for line in overview.lines:
        if line.starts_section:
            table.add_section()
        cells = [f"[bold]{line.cells[i]}[/]" if i in line.best else line.cells[i] for i in places]
        table.add_row(line.label, *cells)
    return table


def terminal_tables(protocol: Protocol, rows: Sequence[Row], about: Mapping[str, Any] | None = None) -> list[Table]:
    """The table of one variant for a terminal; in two parts where there are several metrics.

    The first then has the metrics, the second the choice of the round, of the methods that have one.
    """
    columns, lines = make_columns(protocol), make_lines(rows)
    title = caption(protocol, rows, about)
    if len(protocol.metrics) == 1:
        whole = _terminal_table(title, columns, lines, paper=paper_title(protocol), saw=True)
        whole.caption = ORACLE.format(protocol.moment)
        return [whole]
    whole_metric = protocol.whole.name
    by_metric = _terminal_table(
        title, [c for c in columns if c.selection == protocol.headline], lines, paper=paper_title(protocol), saw=False
    )
    by_metric.caption = _who_saw(lines)
    trained = [line for line in lines if line.method.trained]
    if not trained:
        return [by_metric]
    by_rule = _terminal_table(
        f"{protocol.title} {protocol.variants[0].title}: the same over all test groups, by how the "
        f"{protocol.unit.removesuffix('s')} is chosen.",
        [
            Column(c.metric, c.selection, SELECTIONS[c.selection].titled(protocol.unit), c.oracle)
            for c in columns
            if c.metric == whole_metric
        ],
        trained,
        paper=None,
        saw=True,
    )
    by_rule.caption = ORACLE.format(protocol.moment)
    return [by_metric, by_rule]


def _who_saw(lines: Iterable[Line]) -> str | None:
    """What of the test groups went into which methods, where there is no column for it."""
    by_sight: dict[str, list[str]] = {}
    for line in lines:
        if line.saw != "nothing":
            by_sight.setdefault(line.saw, []).append(line.title)
    return " ".join(f"Saw {what}: {'; '.join(who)}." for what, who in by_sight.items()) or None


def _terminal_table(
    title: str, columns: Sequence[Column], lines: Sequence[Line], *, paper: str | None, saw: bool
) -> Table:
    table = Table(title=title, title_justify="left", title_style="", caption_justify="left")
    table.add_column("method", no_wrap=all(len(line.label) <= 36 for line in lines))
    for column in columns:
        table.add_column(column.title, justify="right", no_wrap=True)
    if paper is not None:
        table.add_column(paper, justify="right")
    if saw:
        table.add_column("saw of the test groups")
    for line in lines:
        if line.starts_section:
            table.add_section()
        cells = [f"[bold]{line.cells[c.key]}[/]" if c.key in line.best else line.cells[c.key] for c in columns]
        table.add_row(line.label, *cells, *([line.paper] if paper is not None else []), *([line.saw] if saw else []))
    return table


# ---------------------------------------------------------------------- whole files


def stored_table(benchmark: str, path: Path) -> tuple[Protocol, list[Row], Mapping[str, Any]]:
    """A table that was made before: the protocol as it was run, its rows, and what is said about them."""
    protocol, rows = BENCHMARKS[benchmark].protocol, read_rows(path)
    other = sorted({row.benchmark for row in rows} - {benchmark})
    if other or not rows:
        content = f"results of {', '.join(other)}" if other else "no rows"
        raise DataError(f"{path} has {content}: expected those of {benchmark}.")
    about = read_about(path)
    settings = about.get("settings", {})
    # Files written before rounds had that name call them steps.
    rounds = settings.get("rounds", settings.get("steps", protocol.rounds))
    return replace(protocol, rounds=rounds), rows, about


def print_rows(
    protocol: Protocol, rows: Sequence[Row], about: Mapping[str, Any] | None = None, *, style: str = "terminal"
) -> None:
    """Print all tables of a results file: for a ``"terminal"``, as ``"markdown"`` or as ``"json"``."""
    if style == "json":
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n")
        return
    parts = [
        (protocol.for_variant(variant), own)
        for variant in protocol.variants
        if (own := [row for row in rows if row.variant == variant.name])
    ]
    if style == "markdown":
        tables = [f"{caption(each, own, about)}\n\n{markdown_table(own)}" for each, own in parts]
        if len(tables) > 1:
            tables.insert(0, overview_markdown(protocol, rows))
        sys.stdout.write("\n\n".join(tables) + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 132)
    for each, own in parts:
        for table in terminal_tables(each, own, about):
            console.print(table)
    if len(parts) > 1:
        for table in overview_tables(protocol, rows):
            console.print(table)


def methods_text() -> str:
    """The methods of every benchmark, those of several with the same ones together."""
    tables: dict[tuple[str, ...], list[str]] = {}
    for benchmark in listed_benchmarks():
        methods = benchmark.protocol.get_methods()
        lines = [f"  {m.name:<20} {m.title}{' (control)' if m.control else ''}" for m in methods]
        tables.setdefault(tuple(lines), []).append(benchmark.name)
    return "\n".join("\n".join([f"{', '.join(names)}:", *lines]) for lines, names in tables.items())
