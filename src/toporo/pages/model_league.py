"""The parts of a page about a model by votes: its league, and the effects of groups."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from toporo.estimators.coefficients import UNLIKELY
from toporo.estimators.league import LeagueTable
from toporo.estimators.league import share as vote_text
from toporo.pages import model_figures as figures
from toporo.pages.charts import figure_section
from toporo.pages.model_kriged import FAR, MOST_PANELS, Parts, fold, some_names
from toporo.pages.model_words import about_evaluation, evaluated, fitted, no_control, number, said, test_hops
from toporo.pages.render import Section
from toporo.pages.table import Table
from toporo.tables.evaluate import Evaluation
from toporo.tables.model import TableModel
from toporo.text import hops_text, short_name
from toporo.topology.graph import GroupGraph


def league_parts(
    model: TableModel, table: LeagueTable, evaluation: Evaluation | None, source: str | None, against: Any = None
) -> Parts:
    """The parts of a model by votes.

    Parameters
    ----------
    model, evaluation, source, against : as :func:`~toporo.pages.model.write_model_report` takes them.
    table : its candidates.
    """
    about = dict(table.about)
    effects = about.pop("effects")
    sentences = [fitted(model, len(model.groups)), *about["words"]]
    return Parts(
        [*sentences, *([] if evaluation is None else evaluated(evaluation, source))],
        _cautions(model, table, evaluation, source, against),
        {**about, "league": table.to_dict(), "groups": effects},
        partial(_first, model, table),
        partial(_last, model, table),
    )


def _cautions(
    model: TableModel, table: LeagueTable, evaluation: Evaluation | None, source: str | None, against: Any
) -> list[str]:
    hops = test_hops(model)
    lost = [name for name, away in hops.items() if math.isinf(away)]
    far = [name for name, away in hops.items() if FAR <= away < math.inf]
    failed = [row.name for row in table if math.isnan(row.error)]
    silent = model.graph is not None and model.estimator.gate_ < UNLIKELY
    return said(
        (True, "Errors in the league are of training groups left out a few at a time. Groups to come may be farther "
         "from those trained on, or differ in ways that no training group shows."),
        (evaluation is None, "Nothing was evaluated. It takes a table with targets, best of groups that were not "
         "trained on."),
        *([] if evaluation is None else about_evaluation(model, evaluation, source)),
        (True, f"{no_control(against)}Whether votes help only shows beside a linear model (--fast) and one with all "
         "groups weighed alike (erm), on the same groups."),
        (failed, f"Candidates that were not fitted, as the league says why: {some_names(failed)}."),
        (silent, "The graph hardly counts: in what the candidates leave, neighbours are no more alike than other "
         "groups."),
        (far, f"Groups {FAR} edges and more from those trained on: {some_names(far)}. The graph says little of them."),
        (lost, f"No path leads from a training group to {some_names(lost)}: the graph says nothing about them."),
        (True, "A mean of several models has no coefficients to read. What moves its predictions is not on this page."),
    )  # fmt: skip


# ---------------------------------------------------------------- sections


def _first(model: TableModel, table: LeagueTable) -> list[Section | None]:
    titles = ("candidate", "error", "worst part", "vote", "note")
    rows = [(row.name, number(row.error), number(row.worst), vote_text(row.vote), row.note) for row in table]
    league = figure_section(
        "league",
        "The league",
        "Every candidate was fitted without some training groups at a time and judged on these. Errors are squared, "
        "over those of a safe mean of a few candidates: below 1 is better. Votes are drawn towards it, and a candidate "
        "that is far off in any part of the groups has none.",
        figures.league_figure(table.rows),
        (Table(titles, tuple(rows), words=("candidate", "note")),),
    )
    return [league, None if model.graph is None else _effect_section(model, model.graph, table)]


def _effect_section(model: TableModel, graph: GroupGraph, table: LeagueTable) -> Section:
    of_class = [""] if model.classes is None else list(model.classes)
    panels: dict[str, Mapping[Any, float]] = {}
    for place, title in list(enumerate(of_class))[-1 if len(of_class) == 2 else None :][:MOST_PANELS]:
        values = {row["group"]: float(np.atleast_1d(row["effect"])[place]) for row in table.about["effects"]}
        panels[short_name(title, 40) if title else "effect of the group"] = values
    unit = f"{short_name(model.target, 40)}: effect" + ("" if model.classes is None else " on the log-odds")
    text = (
        "What the neighbours of a group suggest, and of a training group its own rows: what the candidates, fitted "
        "without it, leave of it. Only in groups that were not trained on is it added to predictions; in training "
        "groups nothing is, as the candidates have seen the rows themselves."
        f"{f' The first {MOST_PANELS} of {len(of_class)} classes.' if len(of_class) > MOST_PANELS else ''}"
    )
    figure = figures.coefficient_figure(graph, panels, set(model.groups), unit)
    return figure_section("effects", "Effects of groups", text, figure)


def _last(model: TableModel, table: LeagueTable) -> list[Section | None]:
    if model.graph is None:
        return []
    hops = model.graph.hops([name for name in model.groups if name in model.graph])
    rows = sorted(table.about["effects"], key=lambda row: (row["trained"], -_size(row["effect"]), str(row["group"])))
    titles = ("group", "trained on", "edges away", "effect", "standard deviation")
    lines = [
        (
            str(row["group"]),
            "yes" if row["trained"] else "no",
            hops_text(hops[row["group"]]) or "–",
            number(_shown(row["effect"])),
            number(_shown(row["sd"])),
        )
        for row in rows
    ]
    text = "Groups that were not trained on first, the largest effect first."
    if model.classes is not None:
        which = (
            f"of “{short_name(model.classes[1], 40)}”" if len(model.classes) == 2 else "root mean square over classes"
        )
        text += f" Effects are on log-odds, {which}."
    return [Section("table", "Every group", text, tables=(fold(titles, lines, ["group"], f"All {len(lines)} groups"),))]


def _size(effect: Any) -> float:
    return float(np.sqrt(np.mean(np.square(effect))))


def _shown(values: Any) -> float:
    """One number of an effect: of two classes that of the second, of more the root mean square."""
    several = np.atleast_1d(values)
    return _size(several) if len(several) > 2 else float(several[-1])
