"""Tables of result rows, for pages, Markdown, JSON and the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
from scipy.stats import sem
from scipy.stats import t as student

from toporo.errors import DataError
from toporo.pages import Cell, Table
from toporo.paper.base import listed_benchmarks
from toporo.paper.protocols import Protocol, Variant
from toporo.paper.results import AVERAGE, SELECTIONS, Results, Row
from toporo.paper.search import EPOCH_TOO, LABEL_FREE, RULES
from toporo.paper.sentences import PAIRED, caption, headline, oracle, overview_caption, search_caption
from toporo.progress import make_console
from toporo.text import write_data

NONE = "–"
METHOD, SAW, NOTHING = "method", "saw of the test groups", "nothing"
#: Width of tables where no terminal says another.
WIDTH = 132


def scores_table(part: Results) -> Table:
    """Return a variant's table: every metric under the protocol's rule, then the last one under the other rules.

    Beside them are the paper's figures and what methods saw of the test groups.
    """
    protocol, rows = part.protocol, part.rows
    *parts, whole = protocol.metrics
    columns: list[tuple[str, str, str]] = [(metric.name, metric.name, protocol.headline) for metric in parts]
    for rule in (SELECTIONS[name] for name in protocol.rules):
        title = rule.titled(protocol.unit)
        if parts:
            title = whole.name if rule.name == protocol.headline else f"{whole.name}, {title}"
        columns.append((Cell(title, "oracle" if rule.saw else ""), whole.name, rule.name))
    cells = [_column(protocol, [r for r in rows if (r.metric, r.selection) == (m, rule)]) for _, m, rule in columns]
    published = {name for variant in protocol.variants for figures in variant.paper.values() for name in figures}
    names = [metric.name for metric in protocol.metrics if metric.name in published]
    paper = {(row.method, row.metric): row.paper for row in rows if row.selection == "last"}
    lines: dict[str, list[str]] = {}
    for row in rows:
        if row.method not in lines:  # a method's first row is under a rule that saw nothing of the test groups
            figures = _published([paper.get((row.method, name)) for name in names], protocol.digits)
            scores = [column.get(row.method, NONE) for column in cells]
            lines[row.method] = [*scores, figures, ", ".join(row.saw) or NOTHING]
    of = f": {' / '.join([*names[:1], *(name.removeprefix('hop ') for name in names[1:])])}"
    titles = [*(title for title, _, _ in columns), f"paper{'' if names in ([], [whole.name]) else of}", SAW]
    return _table(protocol, titles, lines)


def overview_table(results: Results) -> Table:
    """Return all variants side by side under the protocol's rule, each with the paper's figures if it has some."""
    protocol, headlines = results.protocol, results.headlines()
    titles: list[str] = []
    columns: list[dict[str, str]] = []
    for variant in (*protocol.variants, Variant(AVERAGE, AVERAGE)):
        if rows := [row for (name, _), row in headlines.items() if name == variant.name]:
            titles.append(variant.title)
            columns.append(_column(protocol, rows))
        if paper := {row.method: row.paper for row in rows if row.paper is not None}:
            titles.append(Cell("paper", "oracle"))
            columns.append({name: Cell(f"{value:.{protocol.digits}f}", "oracle") for name, value in paper.items()})
    lines = {
        method.name: [column.get(method.name, NONE) for column in columns]
        for method in protocol.get_methods()
        if any(method.name in column for column in columns)
    }
    return _table(protocol, titles, lines)


def paired_table(results: Results) -> Table | None:
    """Return differences to the baseline on the same variant with the same seed, and their 95 % intervals.

    None unless averages over variants mean something, and the baseline ran on several with the same two or more seeds.
    """
    protocol, digits = results.protocol, results.protocol.digits + 1
    figures: dict[str, dict[str, list[float]]] = {}
    for (variant, method), row in results.headlines().items():
        if variant != AVERAGE:
            figures.setdefault(method, {})[variant] = row.per_seed
    reference = figures.pop(protocol.baseline.name, {}) if protocol.baseline is not None else {}
    seeds = {variant: len(values) for variant, values in reference.items()}
    if protocol.average is None or len(seeds) < 2 or len(set(seeds.values())) > 1 or 1 in seeds.values():
        return None
    lines: dict[str, list[str]] = {}
    for method, ours in figures.items():
        if {variant: len(values) for variant, values in ours.items()} == seeds:
            gains = [protocol.sign * np.subtract(ours[variant], reference[variant]) for variant in seeds]
            mean = np.mean(gains)
            lines[method] = [f"{mean:+.{digits}f}"]
            for draws in (np.ravel(gains), np.mean(gains, axis=1)):
                half = student.ppf(0.975, len(draws) - 1) * sem(draws)
                lines[method].append(f"{mean - half:+.{digits}f} to {mean + half:+.{digits}f}")
    pairs = f"95 %, {sum(seeds.values())} pairs"
    return _table(protocol, ["better than ERM by", pairs, f"95 %, {len(seeds)} means over seeds"], lines)


def search_table(part: Results) -> Table:
    """Return a variant's search: figure and mean regret of every rule, and how well rules rank settings."""
    rows, digits = {(row.method, row.selection): row for row in part.rows}, part.protocol.digits
    rules = [rule.name for rule in RULES]
    too = [f"{rule}{EPOCH_TOO}" for rule in rules[1:]]

    def cells(method: str, rules: Sequence[str]) -> list[str]:
        *others, best = [rows[method, rule] for rule in rules]
        shown = [f"{mean_sd(r.mean, r.sd, digits)} ({abs(best.mean - r.mean):.{digits}f})" for r in others]
        return [*shown, mean_sd(best.mean, best.sd, digits)]

    lines = []
    try:
        for name, tried in part.tried[part.variant.name].items():
            ranks = [NONE if (rank := tried.ranks[rule]) is None else f"{rank:.2f}" for rule in LABEL_FREE]
            title, count = part.protocol.method(name).title, str(len(tried.settings))
            lines.append((title, count, *cells(name, rules), *ranks, *cells(name, too)))
    except KeyError as missing:
        raise DataError(f"the results of the search are incomplete, without {missing}: run it again.") from None
    titles = (METHOD, "settings", *rules, *(f"rank by {rule}" for rule in LABEL_FREE), *too)
    return Table(titles, tuple(lines), (METHOD,))


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
    """Return a table with a line per method; controls are marked."""
    methods = [protocol.method(name) for name in lines]
    rows = tuple((method.title, *lines[method.name]) for method in methods)
    styles = {number: "control" for number, method in enumerate(methods) if method.control}
    return Table((METHOD, *titles), rows, (METHOD, SAW), row_styles=styles)


def _published(values: Sequence[float | None], digits: int) -> str:
    shown = [NONE if value is None else f"{value:.{digits}f}" for value in values]
    return Cell(NONE if set(shown) <= {NONE} else " / ".join(shown), "paper")


def mean_sd(mean: float, sd: float | None, digits: int = 2) -> str:
    """Return ``72.81 ± 1.56``, or the mean alone for a single seed."""
    return f"{mean:.{digits}f}" if sd is None else f"{mean:.{digits}f} ± {sd:.{digits}f}"


# ---------------------------------------------------------------------- whole files


def print_results(results: Results, style: str = "terminal") -> None:
    """Print all tables and the headline: for a ``"terminal"``, as ``"markdown"``, or only the rows as ``"json"``."""
    if style == "json":
        rows = [asdict(row) for row in results.rows]
        write_data(sys.stdout, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        return
    parts = results.parts
    if results.tried:
        titled, notes = [(search_caption(part), search_table(part)) for part in parts], []
    else:
        titled = [(caption(part), scores_table(part)) for part in parts]
        if len(parts) > 1:
            titled.append((overview_caption(results.protocol), overview_table(results)))
        if (paired := paired_table(results)) is not None:
            titled.append((PAIRED, paired))
        notes = [*results.about.get("remarks", []), oracle(results.protocol), headline(results).text]
    if style == "markdown":
        write_data(sys.stdout, "\n\n".join([*(f"{title}\n\n{t.to_markdown()}" for title, t in titled), *notes]) + "\n")
        return
    console = make_console(width=None if sys.stdout.isatty() else WIDTH, highlight=True)
    for title, table in titled:
        shown = replace(table, title=title).to_rich()
        for column in shown.columns:
            column.overflow = "fold"  # no figure is cut off
        console.print(shown)
    for note in notes:
        console.print(note)


def methods_text() -> str:
    """Return the methods of every benchmark; benchmarks with the same methods are listed together."""
    tables: dict[tuple[str, ...], list[str]] = {}
    for benchmark in listed_benchmarks():
        methods = benchmark.protocol.get_methods()
        lines = [f"  {m.name:<20} {m.title}{' (control)' if m.control else ''}" for m in methods]
        tables.setdefault(tuple(lines), []).append(benchmark.name)
    return "\n".join("\n".join([f"{', '.join(names)}:", *lines]) for lines, names in tables.items())
