"""Sections of a page about models with effects by group: kriged models, and means of several models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from toporo.estimators.coefficients import CoefficientTable
from toporo.estimators.leaderboard import Leaderboard
from toporo.pages.cells import explain_table, number
from toporo.pages.charts import figure_section
from toporo.pages.maps import graph_chart
from toporo.pages.model_text import ModelReport
from toporo.pages.render import Section
from toporo.pages.table import Table
from toporo.text import hops_text, short_name
from toporo.topology.graph import GroupGraph

#: Maps of coefficients or effects, and slopes in the table.
MOST_PANELS, MOST_SLOPES = 8, 6
#: Coefficients that vary by less than this share of the one that varies most have no map.
LEAST_VARIATION = 0.05


def _signed_chart(
    report: ModelReport, graph: GroupGraph, panels: Mapping[str, Mapping[Any, float]], label: str
) -> Figure:
    squares = [name for name in graph.names if name not in report.model.groups]
    return graph_chart(graph, panels, label, signed=True, squares=squares, ringed=report.groups_outside)


# ---------------------------------------------------------------- kriged models


def kriged_sections(report: ModelReport, table: CoefficientTable) -> list[Section | None]:
    """Make the sections about a kriged model; ``table`` is from its ``explain``."""
    evidence = [(name, number(value)) for name, value in table.about["evidence"].items()]
    text = (
        "Nested models, from one set of coefficients for all groups to coefficients that follow the graph and the mean "
        "inputs of a group. The share of each is how likely it makes the training rows, with a cost for its "
        "parameters."
    )
    share = Table(("model", "share of the evidence"), tuple(evidence), ("model",))
    columns = (
        "The most different groups are first. Hops: edges to the nearest training group. Trust: how well the "
        "coefficients of the group are known, from 0 to 1. Difference: distance of its predictions from those of the "
        "mean training group, root mean square over inputs spread as in training; without_graph: their change without "
        "the graph. Slopes are per unit of the input, those that vary most first."
    )
    most = len(table.columns) - max(0, len(table.inputs) - MOST_SLOPES)
    return [
        Section("evidence", "Evidence for the nested models", text, tables=(share,)),
        _coefficient_section(report, table),
        Section("table", "All groups", columns, tables=(explain_table(table, most),)),
    ]


def _coefficient_section(report: ModelReport, table: CoefficientTable) -> Section | None:
    model, (panels, left_out) = report.model, coefficient_panels(table)
    if not panels or model.graph is None:
        return None
    classes = model.classes or ()
    what = model.target if model.classes is None else f"share of {classes[-1] if len(classes) == 2 else 'a class'}"
    text = (
        "Difference of the level (the prediction at mean inputs) and of the slopes (per standard deviation of the "
        "input) from the mean of the training groups, which is in the titles; all maps have the same scale."
        f"{f' Not shown because they vary less: {left_out} more.' if left_out else ''}"
    )
    label = f"{short_name(what, 40)}: difference from the mean of the training groups"
    figure = _signed_chart(report, model.graph, panels, label)
    return figure_section("coefficients", "Coefficients by group", text, figure)


def coefficient_panels(table: CoefficientTable) -> tuple[dict[str, dict[Any, float]], int]:
    """Return differences from the mean training group by title, the most variable first, and how many are left out."""
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
    shown = [title for title in order[:MOST_PANELS] if spread[title] > least]
    return {title: panels[title] for title in shown}, len(panels) - len(shown)


# ---------------------------------------------------------------- means of several models


def leaderboard_sections(report: ModelReport, table: Leaderboard) -> list[Section | None]:
    """Make the sections about a mean of several models; ``table`` is from its ``explain``."""
    text = (
        "Each candidate was fitted repeatedly, each time without some training groups, and its errors were measured "
        "in those groups, on average and in the worst part of them. Errors are squared and relative to a safe mean of "
        "a few candidates: below 1 is better. Ensemble weights are shrunk towards that mean; a candidate "
        "with large errors in any part of the groups has none."
    )
    candidates = Section("leaderboard", "Candidates", text, tables=(explain_table(table),))
    graph = report.model.graph
    effects = [] if graph is None else [_effect_map(report, graph, table), _effect_table(report, graph, table)]
    return [candidates, *effects]


def _effect_map(report: ModelReport, graph: GroupGraph, table: Leaderboard) -> Section:
    model = report.model
    values = {row["group"]: np.atleast_1d(row["effect"]) for row in table.about["effects"]}
    classes = list(model.classes or [""])
    panels = {
        short_name(title, 40) if title else "group effect": {name: float(e[i]) for name, e in values.items()}
        for i, title in enumerate(classes[:MOST_PANELS])
        if i or len(classes) != 2  # of two classes the second is enough
    }
    text = (
        "The group effect is the part of the target that the candidates, fitted without the group, do not predict. It "
        "is estimated from the neighbours, and in a training group from its own rows. It is added to predictions only "
        "in groups that were not trained on."
        f"{f' The first {MOST_PANELS} of {len(classes)} classes.' if len(classes) > MOST_PANELS else ''}"
    )
    label = f"{short_name(model.target, 40)}: effect" + ("" if model.classes is None else " on the log-odds")
    figure = _signed_chart(report, graph, panels, label)
    return figure_section("effects", "Group effects", text, figure)


def _effect_table(report: ModelReport, graph: GroupGraph, table: Leaderboard) -> Section:
    model = report.model
    hops = graph.hops([name for name in model.groups if name in graph])
    effects = table.about["effects"]
    rows = sorted(effects, key=lambda row: (row["trained"], -abs(_single(row["effect"])), str(row["group"])))
    cells = {
        "group": [str(row["group"]) for row in rows],
        "trained on": ["yes" if row["trained"] else "no" for row in rows],
        "edges away": [hops_text(hops[row["group"]]) or "–" for row in rows],
        "effect": [number(_single(row["effect"])) for row in rows],
        "standard deviation": [number(_single(row["sd"])) for row in rows],
    }
    text = "Groups that were not trained on first, the largest effect first."
    if model.classes is not None:
        two = len(model.classes) == 2
        of = f"of “{short_name(model.classes[1], 40)}”" if two else "root mean square over classes"
        text += f" Effects are on log-odds, {of}."
    return Section("table", "All groups", text, tables=(Table.from_columns(cells, f"All {len(rows)} groups"),))


def _single(values: Any) -> float:
    """Return one number for an effect: of two classes that of the second, of more the root mean square."""
    several = np.atleast_1d(values)
    return float(np.sqrt(np.mean(np.square(several)))) if len(several) > 2 else float(several[-1])
