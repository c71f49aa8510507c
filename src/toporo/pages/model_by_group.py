"""Sections of a page about models with effects by group: kriged models, and means of several models."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from toporo.estimators.coefficients import CoefficientTable
from toporo.estimators.league import LeagueTable
from toporo.pages.charts import far_apart, figure_section
from toporo.pages.maps import SIGNED_COLORS, graph_chart
from toporo.pages.model_text import explain_table, number
from toporo.pages.render import Section
from toporo.pages.rows import Marks, Panel, row_chart
from toporo.pages.table import Table
from toporo.tables.model import TableModel
from toporo.text import hops_text, short_name
from toporo.topology.draw import TEST_COLOR
from toporo.topology.graph import GroupGraph

#: Maps of coefficients or effects, and slopes in the table.
MOST_PANELS, MOST_SLOPES = 8, 6
#: Coefficients that vary by less than this share of the one that varies most have no map.
LEAST_VARIATION = 0.05
#: Share of the values that a scale of colours reaches, so a few outliers do not decide it.
NEARLY_ALL = 0.95


# ---------------------------------------------------------------- kriged models


def kriged_sections(model: TableModel, table: CoefficientTable, outside: Collection[str]) -> list[Section | None]:
    """Make the sections about a kriged model.

    Parameters
    ----------
    model : the model.
    table : as its ``explain`` gives it.
    outside : groups outside of what validation has seen.
    """
    return [_evidence_section(table), _coefficient_section(model, table, outside), _slopes_section(table)]


def _evidence_section(table: CoefficientTable) -> Section:
    evidence = table.about["evidence"]
    panel = Panel([Marks(list(evidence.values()), marker="")], "share of the evidence", limits=(0.0, 1.0))
    return figure_section(
        "evidence",
        "Evidence for the nested models",
        "Nested models, from one set of coefficients for all groups to ones that follow the graph and the mean inputs "
        "of a group. Each counts by how likely it makes the training rows, less what its parameters cost.",
        row_chart(list(evidence), [panel]),
    )


def _coefficient_section(model: TableModel, table: CoefficientTable, outside: Collection[str]) -> Section | None:
    panels, left = coefficient_panels(table)
    if not panels or model.graph is None:
        return None
    which = "a class" if len(model.classes or ()) > 2 else (model.classes or [""])[-1]
    what = model.target if model.classes is None else f"share of {which}"
    label = f"{short_name(what, 40)}: difference from the mean of the training groups"
    text = (
        "By group, how far the level (the prediction at mean inputs) and the slopes (by one standard deviation of the "
        "input) are from the mean of the training groups, which the titles give; one scale for all."
        f"{f' Not shown, for they vary less: {left} more.' if left else ''}"
    )
    figure = signed_chart(model.graph, panels, label, model, outside)
    return figure_section("coefficients", "Coefficients by group", text, figure)


def coefficient_panels(table: CoefficientTable) -> tuple[dict[str, dict[Any, float]], int]:
    """Return differences from the mean training group by title, the most variable first, and how many are left out."""
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
    shown = [panel for panel in panels[:MOST_PANELS] if panel[0] > max(0.0, LEAST_VARIATION * panels[0][0])]
    return {title: apart for _, title, apart in shown}, len(panels) - len(shown)


def signed_chart(
    graph: GroupGraph,
    panels: Mapping[str, Mapping[Any, float]],
    label: str,
    model: TableModel,
    outside: Collection[str],
) -> Figure:
    """Draw values above and below zero by group on the graph; a few outliers do not decide the scale of colours."""
    sizes = np.abs([value for values in panels.values() for value in values.values()])
    most = float(np.quantile(sizes, NEARLY_ALL)) or float(sizes.max()) or 1.0
    new = [name for name in graph.names if name not in model.groups]
    norm = Normalize(-most, most)
    return graph_chart(graph, panels, label, cmap=SIGNED_COLORS, norm=norm, squares=new, ringed=outside)


def _slopes_section(table: CoefficientTable) -> Section:
    text = (
        "The most different first. Hops: edges to the nearest training group. Trust: how much of its coefficients is "
        "known, from 0 to 1. Difference: how far predictions are from the mean training group's, root mean square over "
        "inputs spread as in training; without_graph: how far they would move without the graph. Slopes are by unit of "
        "the input, those that vary most first."
    )
    most = len(table.columns) - max(0, len(table.inputs) - MOST_SLOPES)
    return figure_section("table", "Every group", text, explain_table(table, most))


# ---------------------------------------------------------------- means of several models


def league_sections(model: TableModel, table: LeagueTable, outside: Collection[str]) -> list[Section]:
    """Make the sections about a mean of several models.

    Parameters
    ----------
    model : the model.
    table : as its ``explain`` gives it.
    outside : groups outside of what validation has seen.
    """
    return [_league_section(table), *_group_effect_sections(model, table, outside)]


def _league_section(table: LeagueTable) -> Section:
    error, worst, vote = (np.array([getattr(row, name) for row in table]) for name in ("error", "worst", "vote"))
    notes = {place: short_name(row.note or "could not be fitted", 44) for place, row in enumerate(table)}
    panels = [
        Panel([Marks(vote, marker="")], "vote", limits=(0.0, 1.04 * max(float(vote.max()), 0.5))),
        Panel(
            [
                Marks(error, "all groups left out", error, np.maximum(error, worst)),
                Marks(worst, "worst part", marker="|", color=TEST_COLOR, size=9),
            ],
            "squared error in groups left out (dotted: that of the safe mean)",
            reference=1.0,
            log=far_apart([*error, *worst]),
            notes={place: note for place, note in notes.items() if math.isnan(error[place])},
        ),
    ]
    return figure_section(
        "league",
        "The league",
        "Every candidate was fitted without some training groups at a time and judged on these. Errors are squared, "
        "over those of a safe mean of a few candidates: below 1 is better. Votes are drawn towards it, and a candidate "
        "that is far off in any part of the groups has none.",
        row_chart([row.name for row in table], panels),
        (explain_table(table),),
    )


def _group_effect_sections(model: TableModel, table: LeagueTable, outside: Collection[str]) -> list[Section]:
    graph = model.graph
    if graph is None:
        return []
    effects = table.about["effects"]
    classes = [""] if model.classes is None else list(model.classes)
    values = {row["group"]: np.atleast_1d(row["effect"]) for row in effects}
    panels = {
        short_name(title, 40) if title else "effect of the group": {name: float(e[i]) for name, e in values.items()}
        for i, title in enumerate(classes[:MOST_PANELS])
        if i or len(classes) != 2  # of two classes the second is enough
    }
    unit = f"{short_name(model.target, 40)}: effect" + ("" if model.classes is None else " on the log-odds")
    text = (
        "The group effect that its neighbours suggest, and for a training group its own rows: the part of the target "
        "that the candidates, fitted without the group, do not predict. It is added to predictions only in groups "
        "that were not trained on; the candidates know the others."
        f"{f' The first {MOST_PANELS} of {len(classes)} classes.' if len(classes) > MOST_PANELS else ''}"
    )
    figure = signed_chart(graph, panels, unit, model, outside)
    hops = graph.hops([name for name in model.groups if name in graph])
    rows = sorted(effects, key=lambda row: (row["trained"], -_magnitude(row["effect"]), str(row["group"])))
    cells = {
        "group": [str(row["group"]) for row in rows],
        "trained on": ["yes" if row["trained"] else "no" for row in rows],
        "edges away": [hops_text(hops[row["group"]]) or "–" for row in rows],
        "effect": [number(_single(row["effect"])) for row in rows],
        "standard deviation": [number(_single(row["sd"])) for row in rows],
    }
    words = "Groups that were not trained on first, the largest effect first."
    if model.classes is not None:
        of = f"of “{short_name(classes[1], 40)}”" if len(classes) == 2 else "root mean square over classes"
        words += f" Effects are on log-odds, {of}."
    return [
        figure_section("effects", "Effects of groups", text, figure),
        figure_section("table", "Every group", words, Table.from_columns(cells, f"All {len(rows)} groups")),
    ]


def _magnitude(effect: Any) -> float:
    return float(np.sqrt(np.mean(np.square(effect))))


def _single(values: Any) -> float:
    """One number for an effect: of two classes that of the second, of more the root mean square."""
    several = np.atleast_1d(values)
    return _magnitude(several) if len(several) > 2 else float(several[-1])
