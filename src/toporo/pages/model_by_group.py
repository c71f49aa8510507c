"""Sections of a page about models with effects by group: kriged models, and means of several models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from toporo.estimators.coefficients import CoefficientTable
from toporo.estimators.league import LeagueTable
from toporo.pages.cells import explain_table, number
from toporo.pages.charts import figure_section
from toporo.pages.maps import graph_chart
from toporo.pages.model_text import ModelReport
from toporo.pages.render import Section
from toporo.pages.table import Table
from toporo.text import short_name

#: Maps of coefficients or effects, and slopes in the table.
MOST_PANELS, MOST_SLOPES = 4, 6
#: Coefficients that vary by less than this share of the one that varies most have no map.
LEAST_VARIATION = 0.05


def _signed_chart(report: ModelReport, panels: Mapping[str, Mapping[Any, float]], label: str) -> Figure:
    graph: Any = report.model.graph
    squares = [group for group in graph.names if group not in report.model.groups]
    return graph_chart(graph, panels, f"{short_name(report.model.target, 40)}: {label}", signed=True, squares=squares)


def kriged_section(report: ModelReport, table: CoefficientTable) -> Section:
    """Make the section about a kriged model; ``table`` is from its ``explain``."""
    text = (
        "Level: the prediction at mean inputs. Slopes: per unit of the input, in maps per standard deviation. Trust: "
        "how well the coefficients of a group are known, from 0 to 1. Difference: distance of its predictions from "
        "those of the mean training group; without_graph: their change without the graph. Hops: edges to the nearest "
        "training group. Maps show differences from the mean of the training groups, which is in the titles, of the "
        "coefficients that vary most. Coefficients describe the model, not causes."
    )
    most = len(table.columns) - max(0, len(table.inputs) - MOST_SLOPES)
    name, title, tables = "coefficients", "Coefficients by group", (explain_table(table, most),)
    if report.model.graph is None:
        return Section(name, title, text, tables=tables)
    figure = _signed_chart(report, coefficient_panels(table), "difference from the mean of the training groups")
    return figure_section(name, title, text, figure, tables)


def coefficient_panels(table: CoefficientTable) -> dict[str, dict[Any, float]]:
    """Return differences from the mean training group by title, of the coefficients that vary most."""
    deviations = table.deviations or {}
    values = {name: {row.group: row.levels[name] for row in table} for name in table[0].levels}
    for name in table.inputs:
        values[f"slope: {short_name(name, 20)}"] = {row.group: deviations[name] * row.slopes[name] for row in table}
    panels: dict[str, dict[Any, float]] = {}
    for title, by_group in values.items():
        mean = float(np.mean([by_group[row.group] for row in table if row.size]))
        panels[f"{title}\nmean {number(mean)}"] = {name: value - mean for name, value in by_group.items()}
    spread = {title: float(np.std(list(by_group.values()))) for title, by_group in panels.items()}
    order = sorted(panels, key=lambda title: -spread[title])
    least = LEAST_VARIATION * spread[order[0]]
    return {title: panels[title] for title in order[:MOST_PANELS] if spread[title] >= least}


def league_sections(report: ModelReport, table: LeagueTable) -> list[Section]:
    """Make the sections about a mean of several models; ``table`` is from its ``explain``."""
    text = (
        "Each candidate was fitted repeatedly, each time without some training groups. Its error is that in these "
        "groups, on average and in the worst part of them, squared and relative to a safe mean of a few candidates: "
        "below 1 is better. The column vote has the ensemble weights."
    )
    candidates = Section("league", "Candidates", text, tables=(explain_table(table),))
    return [candidates] if report.model.graph is None else [candidates, _effect_section(report, table)]


def _effect_section(report: ModelReport, table: LeagueTable) -> Section:
    """Show the effect of each group, of classes on the log-odds of each of the first ones."""
    classes = report.model.classes or [""]
    rows = sorted(table.about["effects"], key=lambda row: (row["trained"], str(row["group"])))
    effects, deviations = (
        np.array([np.broadcast_to(row[name], len(classes)) for row in rows], dtype=float) for name in ("effect", "sd")
    )
    cells = {
        "group": [str(row["group"]) for row in rows],
        "trained on": ["yes" if row["trained"] else "no" for row in rows],
    }
    panels: dict[str, dict[Any, float]] = {}
    for i, name in enumerate(classes[:MOST_PANELS]):
        if i or len(classes) != 2:  # of two classes the second is enough
            title = f"effect on {short_name(name, 40)}" if name else "effect"
            panels[title] = {row["group"]: float(value) for row, value in zip(rows, effects[:, i], strict=True)}
            pairs = zip(effects[:, i], deviations[:, i], strict=True)
            cells[title] = [f"{number(float(value))} ± {number(float(sd))}" for value, sd in pairs]
    text = (
        "The group effect is the part of the target that the candidates, fitted without the group, do not predict; of "
        "classes, on the log-odds. It is estimated from the neighbours, and in a training group from its own rows. It "
        "is added to predictions only in groups that were not trained on."
    )
    figure = _signed_chart(report, panels, "effect")
    return figure_section(
        "effects", "Group effects", text, figure, (Table.from_columns(cells, f"All {len(rows)} groups"),)
    )
