"""Result rows as tables: on the terminal, in Markdown, as JSON, and as cells for the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from rich.markup import escape
from rich.table import Table

from toporo.errors import DataError
from toporo.paper.base import BENCHMARKS, listed_benchmarks
from toporo.paper.page import Cell, ScoreLine, ScoreTable
from toporo.paper.protocols import BenchMethod, Metric, Protocol, Variant
from toporo.paper.results import AVERAGE, BETTER, SELECTIONS, Paired, Row, pair_up, read_about, read_rows
from toporo.paper.search import EPOCH_TOO, Search, VariantSearch
from toporo.progress import make_console
from toporo.text import write_data

NONE = "–"
#: Characters of a terminal's 132 that figures may take beside the methods' names, which are wrapped if need be.
ACROSS = 108
#: The longest name of a method that is not wrapped.
UNWRAPPED = 36
ORACLE = "Oracle: the {} was chosen with test labels, to show what a column could at best be."
PAIRED = "Each method less ERM, on the same variant with the same seed:"
SAW, NOTHING = "saw of the test groups", "nothing"


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


def make_columns(protocol: Protocol) -> list[Column]:
    """Every metric under the protocol's rule, then the one over all test groups under the other rules too."""
    *parts, whole = protocol.metrics
    columns = [Column(metric.name, protocol.headline, metric.name, False) for metric in parts]
    for rule in (SELECTIONS[name] for name in protocol.rules):
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


def make_table(rows: Sequence[Row], protocol: Protocol | None = None) -> ScoreTable:
    """One line per method of a variant: a cell per column, the paper's figures, what was seen; the best are marked.

    Parameters
    ----------
    rows : of one variant.
    protocol : the variant's own, where the paper's column is to name that variant's metrics alone.
    """
    if len({row.variant for row in rows}) > 1:
        raise DataError("rows of several variants: a table shows one of them.")
    protocol = protocol or BENCHMARKS[rows[0].benchmark].protocol
    columns = make_columns(protocol)
    by_method: dict[str, dict[tuple[str, str], Row]] = {}
    for row in rows:
        by_method.setdefault(row.method, {})[row.metric, row.selection] = row
    tops = {c.key: _top([own[c.key] for own in by_method.values() if c.key in own], protocol) for c in columns}
    lines = {}
    for name, own in by_method.items():
        scores = [_cell(own.get(c.key), tops[c.key], protocol.digits, oracle=c.oracle) for c in columns]
        saw = ", ".join(next(iter(own.values())).saw) or NOTHING
        lines[name] = [*scores, Cell(_paper(protocol, own), paper=True), Cell(saw)]
    heads = [Cell("method"), *(Cell(c.title, oracle=c.oracle) for c in columns), Cell(paper_title(protocol)), Cell(SAW)]
    return ScoreTable(heads, _lines(protocol, lines))


def _lines(protocol: Protocol, cells: Mapping[str, Sequence[Cell]]) -> list[ScoreLine]:
    """Lines of methods; where another kind of method begins, so does a section."""
    lines, before = [], None
    for name, own in cells.items():
        method = protocol.method(name)
        lines.append(ScoreLine([Cell(method.title), *own], method.control, before not in (None, _kind(method))))
        before = _kind(method)
    return lines


def _cell(row: Row | None, tops: Sequence[Row], digits: int, *, oracle: bool = False) -> Cell:
    return Cell(NONE if row is None else mean_sd(row, digits), oracle=oracle, best=row is not None and row in tops)


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


def _paper(protocol: Protocol, own: Mapping[tuple[str, str], Row]) -> str:
    rows = [own.get((metric.name, "last")) for metric in _published(protocol)]
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


def make_overview(protocol: Protocol, rows: Sequence[Row]) -> ScoreTable:
    """All variants side by side, under the protocol's rule, each with the paper's figures where it has some."""
    every = [*protocol.variants, *([Variant(AVERAGE, AVERAGE)] if protocol.average is not None else [])]
    variants = [variant for variant in every if any(row.variant == variant.name for row in rows)]
    headlines = _headlines(protocol, rows)
    heads, columns = [Cell("method")], []
    for variant in variants:
        own = {method: row for (name, method), row in headlines.items() if name == variant.name}
        tops = _top(list(own.values()), protocol)
        heads.append(Cell(variant.title))
        columns.append({method: _cell(row, tops, protocol.digits) for method, row in own.items()})
        published = {method: row.paper for method, row in own.items() if row.paper is not None}
        if published:
            heads.append(Cell("paper", oracle=True))
            columns.append({m: Cell(f"{value:.{protocol.digits}f}", oracle=True) for m, value in published.items()})
    lines = {
        method.name: [column.get(method.name, Cell(NONE)) for column in columns]
        for method in protocol.get_methods()
        if any(method.name in column for column in columns)
    }
    return ScoreTable(heads, _lines(protocol, lines))


def _headlines(protocol: Protocol, rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    """The row that stands for a method on a variant: under the protocol's rule, or the only one there is."""
    headlines: dict[tuple[str, str], Row] = {}
    for row in rows:
        place = row.variant, row.method
        if row.metric == protocol.whole.name and (
            row.selection == protocol.headline or (row.selection == "last" and place not in headlines)
        ):
            headlines[place] = row
    return headlines


# ---------------------------------------------------------------------- Markdown and the terminal


def _label(line: ScoreLine) -> str:
    return f"{line.cells[0].text} (control)" if line.control else line.cells[0].text


def _markdown(table: ScoreTable) -> str:
    marks = [":" if head.text not in ("method", SAW) else "" for head in table.heads]
    lines = [f"| {' | '.join(head.text for head in table.heads)} |", f"|{''.join(f'---{mark}|' for mark in marks)}"]
    for line in table.lines:
        cells = [f"**{cell.text}**" if cell.best else cell.text for cell in line.cells[1:]]
        lines.append(f"| {' | '.join([_label(line), *cells])} |")
    return "\n".join(lines)


def markdown_table(rows: Sequence[Row], protocol: Protocol | None = None) -> str:
    """The table of one variant in Markdown, for a README or a notebook."""
    return _markdown(make_table(rows, protocol))


def overview_markdown(protocol: Protocol, rows: Sequence[Row]) -> str:
    """The overview in Markdown."""
    return _markdown(make_overview(protocol, rows))


def make_paired(protocol: Protocol, rows: Sequence[Row]) -> ScoreTable | None:
    """Differences to ERM, pair by pair, where the average over variants means something and there are several seeds."""
    pairs = pair_up(protocol, rows) if protocol.average is not None else []
    if not pairs:
        return None
    variants, seeds = pairs[0].differences.shape

    def within(pair: Paired, *, of_variants: bool) -> Cell:
        low, high = pair.interval(of_variants=of_variants)
        return Cell(f"{low:+.{digits}f} to {high:+.{digits}f}")

    digits = protocol.digits + 1
    heads = ["method", "better than ERM by", f"95 %, {variants * seeds} pairs", f"95 %, {variants} means over seeds"]
    lines = {
        pair.method: [
            Cell(f"{pair.mean:+.{digits}f}"), within(pair, of_variants=False), within(pair, of_variants=True)
        ]
        for pair in pairs
    }  # fmt: skip
    return ScoreTable([Cell(head) for head in heads], _lines(protocol, lines))


def _terminal(table: ScoreTable, title: str, places: Sequence[int], widths: Sequence[int] | None = None) -> Table:
    """These columns of a table, beside the methods' names; without widths, scores are not wrapped."""
    shown = Table(title=escape(title), title_justify="left", title_style="", caption_justify="left")
    short = all(len(_label(line)) <= UNWRAPPED for line in table.lines)
    shown.add_column("method", no_wrap=widths is None and short)
    for i in places:
        head = table.heads[i].text
        score = not head.startswith("paper") and head != SAW
        shown.add_column(
            head,
            justify="left" if head == SAW else "right",
            no_wrap=widths is None and score,
            width=None if widths is None else widths[i],
        )
    for line in table.lines:
        if line.starts_section:
            shown.add_section()
        cells = [f"[bold]{escape(cell.text)}[/]" if cell.best else escape(cell.text) for cell in line.cells]
        shown.add_row(escape(_label(line)), *(cells[i] for i in places))
    return shown


def overview_tables(protocol: Protocol, rows: Sequence[Row]) -> list[Table]:
    """The overview for a terminal; in several tables where it is too wide for one."""
    overview = make_overview(protocol, rows)
    title = (
        f"{protocol.title}, all variants: {protocol.metric}, over all test groups, "
        f"{SELECTIONS[protocol.headline].titled(protocol.unit)}."
    )
    widths = [
        max(len(text) for text in (*head.text.split(), *(line.cells[i].text for line in overview.lines)))
        for i, head in enumerate(overview.heads)
    ]
    papers = [head.oracle for head in overview.heads]
    parts: list[list[int]] = [[]]
    for i in range(1, len(widths)):
        # The paper's figures stay beside ours.
        together = widths[i] + 3 + (widths[i + 1] + 3 if [*papers, False][i + 1] else 0)
        if parts[-1] and not papers[i] and sum(widths[j] + 3 for j in parts[-1]) + together > ACROSS:
            parts.append([])
        parts[-1].append(i)
    titles = [title, *["The same, continued."] * (len(parts) - 1)]
    return [_terminal(overview, title, part, widths) for part, title in zip(parts, titles, strict=True)]


def terminal_tables(protocol: Protocol, rows: Sequence[Row], about: Mapping[str, Any] | None = None) -> list[Table]:
    """The table of one variant for a terminal; in two parts where there are several metrics.

    The first then has the metrics, the second the choice of the round, of the methods that have one.
    """
    columns, table, title = make_columns(protocol), make_table(rows, protocol), caption(protocol, rows, about)
    oracle, saw = ORACLE.format(protocol.moment), len(table.heads) - 1
    if len(protocol.metrics) == 1:
        whole = _terminal(table, title, range(1, saw + 1))
        whole.caption = oracle
        return [whole]
    places = [i for i, column in enumerate(columns, 1) if column.selection == protocol.headline]
    by_metric = _terminal(table, title, [*places, saw - 1])
    by_metric.caption = escape(_who_saw(table) or "") or None
    trained = [
        line for line in table.lines if line.cells[0].text in {m.title for m in protocol.get_methods() if m.trained}
    ]
    if not trained:
        return [by_metric]
    of_whole = {i: column for i, column in enumerate(columns, 1) if column.metric == protocol.whole.name}
    titled = {i: Cell(SELECTIONS[column.selection].titled(protocol.unit)) for i, column in of_whole.items()}
    by_rule = _terminal(
        ScoreTable([titled.get(i, head) for i, head in enumerate(table.heads)], trained),
        f"{protocol.title} {protocol.variants[0].title}: the same over all test groups, by how the {protocol.moment} "
        "is chosen.",
        [*of_whole, saw],
    )
    by_rule.caption = oracle
    return [by_metric, by_rule]


def _who_saw(table: ScoreTable) -> str | None:
    """What of the test groups went into which methods, where there is no column for it."""
    by_sight: dict[str, list[str]] = {}
    for line in table.lines:
        if line.cells[-1].text != NOTHING:
            by_sight.setdefault(line.cells[-1].text, []).append(line.cells[0].text)
    return " ".join(f"Saw {what}: {'; '.join(who)}." for what, who in by_sight.items()) or None


# ---------------------------------------------------------------------- whole files


def stored_table(benchmark: str, path: Path) -> tuple[Protocol, list[Row], Mapping[str, Any]]:
    """A table that was made before: the protocol as it was run, its rows, and what is said about them."""
    rows = read_rows(path)
    other = sorted({row.benchmark for row in rows} - {benchmark})
    if other or not rows:
        content = f"results of {', '.join(other)}" if other else "no rows"
        raise DataError(f"{path} has {content}: expected those of {benchmark}.")
    about = read_about(path)
    protocol = BENCHMARKS[benchmark].under(about.get("protocol", "fair")).protocol
    settings = about.get("settings", {})
    # Files written before rounds had that name call them steps.
    rounds = settings.get("rounds", settings.get("steps", protocol.rounds))
    return replace(protocol, rounds=rounds), rows, about


def print_rows(
    protocol: Protocol, rows: Sequence[Row], about: Mapping[str, Any] | None = None, *, style: str = "terminal"
) -> None:
    """Print all tables of a results file: for a ``"terminal"``, as ``"markdown"`` or as ``"json"``."""
    if style == "json":
        write_data(sys.stdout, json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n")
        return
    parts = [
        (protocol.for_variant(variant), own)
        for variant in protocol.variants
        if (own := [row for row in rows if row.variant == variant.name])
    ]
    if style == "markdown":
        tables = [f"{caption(each, own, about)}\n\n{markdown_table(own, protocol)}" for each, own in parts]
        if len(tables) > 1:
            tables.insert(0, overview_markdown(protocol, rows))
        if (paired := make_paired(protocol, rows)) is not None:
            tables.insert(1, f"{PAIRED}\n\n{_markdown(paired)}")
        write_data(sys.stdout, "\n\n".join(tables) + "\n")
        return
    console = make_console(width=None if sys.stdout.isatty() else 132, highlight=True)
    for each, own in parts:
        for table in terminal_tables(each, own, about):
            console.print(table)
    if len(parts) > 1:
        for table in overview_tables(protocol, rows):
            console.print(table)
    if (paired := make_paired(protocol, rows)) is not None:
        console.print(_terminal(paired, PAIRED, range(1, len(paired.heads))))


def print_search(outcome: Search, *, style: str = "terminal") -> None:
    """Print what a search found: for a ``"terminal"``, as ``"markdown"`` or as ``"json"``."""
    if style == "json":
        write_data(sys.stdout, json.dumps(to_builtins(outcome), indent=1, ensure_ascii=False) + "\n")
        return
    metric = BENCHMARKS[outcome.benchmark].under(outcome.protocol).protocol.metric
    console = make_console(width=None if sys.stdout.isatty() else 132, highlight=True)
    for part in outcome.variants:
        said = (
            f"{part.title}: {metric} with settings as each rule chooses them, mean ± sd over {outcome.seeds} seed(s), "
            f"and in brackets how much the best of all tried would be better; {part.runs:,} runs."
        )
        if style == "markdown":
            write_data(sys.stdout, f"{said}\n\n{search_markdown(part)}\n\n")
            continue
        titles, rows = part.table()
        later = next(place for place, title in enumerate(titles) if title.endswith(EPOCH_TOO))
        for places, head in (
            (range(later), said),
            ((0, *range(later, len(titles))), "The same with the epoch chosen, too."),
        ):
            table = Table(title=escape(head), title_justify="left", title_style="")
            for place in places:
                table.add_column(titles[place], justify="right" if place else "left", no_wrap=not place)
            for cells in rows:
                table.add_row(*(escape(cells[place]) for place in places))
            console.print(table)


def search_markdown(part: VariantSearch) -> str:
    """What was found for a variant, in Markdown."""
    titles, rows = part.table()
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, ["---", *["---:"] * (len(titles) - 1)], *rows))


def methods_text() -> str:
    """The methods of every benchmark, those of several with the same ones together."""
    tables: dict[tuple[str, ...], list[str]] = {}
    for benchmark in listed_benchmarks():
        methods = benchmark.protocol.get_methods()
        lines = [f"  {m.name:<20} {m.title}{' (control)' if m.control else ''}" for m in methods]
        tables.setdefault(tuple(lines), []).append(benchmark.name)
    return "\n".join("\n".join([f"{', '.join(names)}:", *lines]) for lines, names in tables.items())
