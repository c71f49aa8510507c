"""The parts of a model's page that differ with its kind, and those of a kriged model."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from toporo.estimators.coefficients import CoefficientTable
from toporo.pages import model_figures as figures
from toporo.pages.charts import figure_section
from toporo.pages.model_words import (
    OUTSIDE,
    about_evaluation,
    evaluated,
    fitted,
    groups_outside,
    no_control,
    number,
    quoted,
    said,
    test_hops,
)
from toporo.pages.render import Section
from toporo.pages.table import Table
from toporo.tables.evaluate import Evaluation
from toporo.tables.model import TableModel
from toporo.text import hops_text, many, short_name

#: Tables with more rows than this are folded away.
LONG = 30
#: Pictures of coefficients, and slopes in the table.
MOST_PANELS, MOST_SLOPES = 8, 6
#: What varies by less than this share of what varies most has no picture.
HARDLY = 0.05
#: Groups this far from those trained on are beyond what was seen to work.
FAR = 3


@dataclass(frozen=True)
class Parts:
    """What differs with the kind of model: sentences, facts for JSON, sections before and after the evaluation."""

    summary: list[str]
    cautions: list[str]
    facts: dict[str, Any]
    first: Callable[[], Sequence[Section | None]]
    last: Callable[[], Sequence[Section | None]]


def fold(columns: Sequence[str], rows: Sequence[tuple[str, ...]], words: Sequence[str], title: str) -> Table:
    """A table that is folded, and has a title then, if it is long.

    Parameters
    ----------
    columns, rows, words, title : as of a :class:`~toporo.pages.table.Table`.
    """
    long = len(rows) > LONG
    return Table(tuple(columns), tuple(rows), tuple(words), title if long else "", folded=long)


def kriged_parts(
    model: TableModel, table: CoefficientTable, evaluation: Evaluation | None, source: str | None, against: Any = None
) -> Parts:
    """The parts of a kriged model.

    Parameters
    ----------
    model, evaluation, source, against : as :func:`~toporo.pages.model.write_model_report` takes them.
    table : what the model says of its groups.
    """
    sentences = [fitted(model, len(model.groups)), *table.about["words"]]
    return Parts(
        [*sentences, *([] if evaluation is None else evaluated(evaluation, source))],
        _cautions(model, evaluation, source, against),
        {**table.about, "groups": [asdict(row) for row in table]},
        partial(_first, model, table, groups_outside(model, evaluation)),
        partial(_last, table),
    )


def _cautions(model: TableModel, evaluation: Evaluation | None, source: str | None, against: Any) -> list[str]:
    hops = test_hops(model)
    lost = [name for name, away in hops.items() if math.isinf(away)]
    far = [name for name, away in hops.items() if FAR <= away < math.inf]
    beyond = sorted(groups_outside(model, evaluation))
    return said(
        (True, "The evidence weighs models of one kind against each other. It cannot say that none of them is "
         "right, and it is of the training groups, not of new ones."),
        (evaluation is None, "Nothing was evaluated. It takes a table with targets, best of groups that were not "
         "trained on."),
        *([] if evaluation is None else about_evaluation(model, evaluation, source)),
        (True, f"{no_control(against)}Whether kriging helps only shows beside a linear model with all groups weighed "
         "alike (erm) and a kriged one without the graph, on the same groups."),
        (far, f"Groups {FAR} edges and more from those trained on: {some_names(far)}. A trend over the graph that "
         "turns around on the way there makes predictions worse than without it."),
        (lost, f"No path leads from a training group to {some_names(lost)}: the graph says nothing about them."),
        (beyond, f"{OUTSIDE.capitalize()}: {some_names(beyond)} ({many(len(beyond), 'group')}). Nobody knows how "
         "well the model does that far out."),
        (model.classes is None, "Intervals rest on the model: errors of one spread in all groups, normal, and none of "
         "them shared by rows of a group beyond its coefficients."),
        (True, "Coefficients describe the model, not causes; features that move together share theirs in ways that "
         "another sample may change."),
    )  # fmt: skip


def some_names(names: Sequence[object], most: int = 5) -> str:
    """A few of them, quoted."""
    return ", ".join([*map(quoted, names[:most]), *["…"] * (len(names) > most)])


# ---------------------------------------------------------------- sections


def _first(model: TableModel, table: CoefficientTable, outside: Collection[str]) -> list[Section | None]:
    evidence = figure_section(
        "evidence",
        "What the rows speak for",
        "Nested models, from one set of coefficients for all groups to ones that follow the graph and the mean inputs "
        "of a group. Each counts by how likely it makes the training rows, less what its parameters cost.",
        figures.evidence_figure(table.about["evidence"]),
    )
    return [evidence, _coefficient_section(model, table, outside)]


def _coefficient_section(model: TableModel, table: CoefficientTable, outside: Collection[str]) -> Section | None:
    panels, left = _panels(table)
    if not panels:
        return None
    share = "" if model.classes is None else "share of " + (model.classes[1] if len(model.classes) == 2 else "a class")
    label = f"{short_name(share or model.target, 40)}: difference from the mean of the training groups"
    text = (
        "By group, how far the level (the prediction at mean inputs) and the slopes (by one standard deviation of the "
        "input) are from the mean of the training groups, which the titles give; one scale for all."
        f"{f' Not shown, for they vary less: {left} more.' if left else ''}"
    )
    if model.graph is None:
        rows = {title.replace("\n", ", "): values for title, values in panels.items()}
        figure = figures.strip_figure(rows, label)
    else:
        figure = figures.coefficient_figure(model.graph, panels, set(model.groups), label, outside)
    return figure_section("coefficients", "Coefficients by group", text, figure)


def _panels(table: CoefficientTable) -> tuple[dict[str, dict[Any, float]], int]:
    """Differences from the mean training group by title, those that vary most first, and how many are left out."""
    of_group: dict[str, Mapping[Any, float]] = {
        name: {row.group: row.levels[name] for row in table} for name in table[0].levels
    }
    for name in table.inputs:
        deviation = (table.deviations or {})[name]
        of_group[f"slope: {short_name(name, 20)}"] = {row.group: deviation * row.slopes[name] for row in table}
    trained = [row.group for row in table if row.size]
    panels: list[tuple[float, str, dict[Any, float]]] = []
    for title, values in of_group.items():
        mean = math.fsum(values[name] for name in trained) / len(trained)
        apart = {name: value - mean for name, value in values.items()}
        panels.append((float(np.std(list(apart.values()))), f"{title}\nmean {number(mean)}", apart))
    panels.sort(key=lambda panel: -panel[0])
    shown = [panel for panel in panels[:MOST_PANELS] if panel[0] > max(0.0, HARDLY * panels[0][0])]
    return {title: apart for _, title, apart in shown}, len(panels) - len(shown)


def _last(table: CoefficientTable) -> list[Section | None]:
    slopes = table.inputs[:MOST_SLOPES]
    cells = {
        "group": [str(row.group) for row in table],
        "rows": [f"{row.size:,}" for row in table],
        "edges away": [hops_text(row.hops) or "–" for row in table],
        "trust": [f"{row.trust:.2f}" for row in table],
        "difference": [number(row.difference) for row in table],
        "without the graph": [number(row.without_graph) for row in table],
        **{name: [number(row.levels[name]) for row in table] for name in table[0].levels},
        **{f"slope of {name}": [number(row.slopes[name]) for row in table] for name in slopes},
    }
    for title in ("edges away", "without the graph"):
        if set(cells[title]) == {"–"}:
            del cells[title]
    grid = fold(list(cells), list(zip(*cells.values(), strict=True)), ["group"], f"All {len(table)} groups")
    text = (
        "The most different first. Trust: how much of its coefficients is known, from 0 to 1. Difference: how far "
        "predictions are from the mean training group's, root mean square over inputs spread as in training. Without "
        "the graph: how far they would move. Slopes are by unit of the input."
    )
    if len(slopes) < len(table.inputs):
        text += f" The {len(slopes)} of {len(table.inputs)} slopes that vary most."
    return [Section("table", "Every group", text, tables=(replace(grid, wide=True),))]
