"""Page about a diagnosis: findings, distances between groups, features that distinguish them, and groups."""

from __future__ import annotations

import os
from collections.abc import Collection

import numpy as np
from matplotlib.figure import Figure

from toporo.doctor.results import (
    SEVERITIES,
    Diagnosis,
    Distances,
    Separability,
    first_step,
    group_table,
    percent,
    shifts_in_words,
)
from toporo.files import write_text
from toporo.pages.charts import NAME_LETTERS, VALUE_COLORS, color_bar, color_scale, drawn, figure_section, readable
from toporo.pages.render import Section, Verdict, render
from toporo.pages.rows import Marks, Panel, row_chart
from toporo.pages.svg import WIDE, WIDTH
from toporo.pages.table import Table
from toporo.text import many, short_name
from toporo.topology.draw import TEST_COLOR

#: Columns in the figure of features that distinguish groups.
SHOWN_FEATURES = 12
#: Inches of a row of the map, and of a character of a name.
ROW, LETTER = 0.165, 0.075
#: Labels of the map, and the groups up to which each cell has its number.
MOST_LABELS, MOST_NUMBERS = 60, 12


# ---------------------------------------------------------------- the map of distances


@drawn
def distance_map(distances: Distances, test: Collection[str] = ()) -> Figure:
    """Draw the distances between groups as a square of coloured cells, near groups side by side.

    Parameters
    ----------
    distances : between all pairs.
    test : groups whose names are highlighted.
    """
    names = distances.order
    order = [distances.names.index(name) for name in names]
    matrix = distances.matrix[np.ix_(order, order)]
    diagonal = np.eye(len(matrix), dtype=bool)
    off = matrix[~diagonal]
    norm = color_scale(off)
    labelled = list(range(0, len(names), -(-len(names) // MOST_LABELS)))
    texts = [short_name(names[i], NAME_LETTERS) for i in labelled]
    room = LETTER * max(map(len, texts)) + 0.3
    side = min(max(ROW * len(names), WIDTH - room), WIDE)
    figure = Figure(figsize=(side + room, side + room + 0.7), layout="constrained", dpi=200)
    ax = figure.subplots()
    shown = np.where(diagonal, np.nan, matrix)
    image = ax.imshow(shown, cmap=VALUE_COLORS, norm=norm, aspect="auto", interpolation="none")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=8.5)
    ax.set_xticks(labelled, texts, rotation=90)
    ax.set_yticks(labelled, texts)
    for i, *ticks in zip(labelled, ax.get_xticklabels(), ax.get_yticklabels(), strict=True):
        for tick in ticks:
            if names[i] in test:
                tick.set(color=TEST_COLOR, fontweight="bold")
    ax.set_title("Distances between groups" + "\ntest groups in orange" * bool(set(names) & set(test)))
    if len(matrix) <= MOST_NUMBERS:
        fills = image.to_rgba(shown)
        for i, j in np.argwhere(~diagonal):
            text = f"{matrix[i, j]:.2f}"
            ax.text(j, i, text, ha="center", va="center", fontsize=7, color=readable(fills[i, j]))
    marked = bool(off.min() < distances.chance < off.max())
    bar = color_bar(figure, norm, VALUE_COLORS, f"diffusion EMD{' (orange line: by chance)' * marked}", ax)
    if marked:
        bar.ax.axvline(distances.chance, color=TEST_COLOR, lw=2.0)
    return figure


# ---------------------------------------------------------------- the page


def write_doctor_report(diagnosis: Diagnosis, path: str | os.PathLike[str]) -> None:
    """Write the page of a diagnosis: findings, distances, groups.

    Parameters
    ----------
    diagnosis : from :func:`toporo.doctor.examine`.
    path : the file, which is replaced if it exists.
    """
    facts = diagnosis.facts
    without = facts.get("measured_without") or []
    aside = f" Columns that identify groups were left out: {', '.join(map(repr, without))}." if without else ""
    sections = []
    if diagnosis.distances is not None:
        sections.append(_distance_section(diagnosis.distances, facts["test_groups"], aside))
    if diagnosis.separability is not None:
        sections.append(_feature_section(diagnosis.separability, aside))
    page = render(
        "doctor.html",
        title=f"Before training on {facts['source']}",
        caption=_caption(diagnosis),
        verdict=_verdict(diagnosis),
        counts=[(severity, diagnosis.count(severity)) for severity in SEVERITIES],
        findings=diagnosis.findings,
        sections=[*sections, _groups_section(diagnosis)],
        settings=_settings(diagnosis),
        first_step=first_step(facts["first"]),
        next=facts["next"],
    )
    write_text(path, page)


def _verdict(diagnosis: Diagnosis) -> Verdict:
    serious, risky = (diagnosis.count(severity) for severity in ("serious", "risky"))
    if serious:
        return Verdict(f"Do not train yet: resolve {many(serious, 'serious finding')} first.", "bad")
    if risky:
        return Verdict(f"You can train with care: no finding is serious, but {many(risky, 'finding')} may mislead.")
    return Verdict("You can train: no problem was found.", "good")


def _caption(diagnosis: Diagnosis) -> str:
    facts = diagnosis.facts
    groups = many(facts["groups"], "group")
    if facts["training_groups"] < facts["groups"]:
        groups += f" ({facts['training_groups']} to train on)"
    target = f"target {facts['target']!r} ({facts['task']})" if facts["target"] is not None else "no target named"
    return (
        f"{many(facts['rows'], 'row')}, {groups} in column {facts['group']!r}, "
        f"{many(len(facts['features']), 'feature')}, {target}."
    )


def _groups_section(diagnosis: Diagnosis) -> Section:
    table = group_table(diagnosis)
    words = tuple(column for i, column in enumerate(table.columns) if i not in table.numbers)
    test = {i: "test" for i, row in enumerate(table.rows) if "test" in row[1:2]}
    text = (
        "Recognised: the share of a group's rows that a classifier of groups gets right. Prior: the default weight of "
        "a training group. Hops: edges to the nearest training group. Targets of test groups are not used."
    )
    return Section("groups", "Groups", text, tables=(Table(table.columns, table.rows, words, row_styles=test),))


def _distance_section(distances: Distances, test: Collection[str], aside: str) -> Section:
    result = (
        "The groups differ in their features."
        if distances.beyond_chance
        else "This is no more than expected by chance."
    )
    text = (
        f"Diffusion EMD between groups, on {many(distances.points, 'sampled row')} with standardised features; lighter "
        f"is nearer. The mean is {distances.typical:.3g}; if rows are assigned to groups at random, it is "
        f"{distances.chance:.3g} ± {distances.chance_spread:.1g}. {result}{aside}"
    )
    return figure_section("heat", "Distances between groups", text, distance_map(distances, test))


def _feature_section(found: Separability, aside: str) -> Section:
    text = (
        f"A cross-validated classifier ({found.classifier}, {found.folds} folds, "
        f"{many(found.points, 'sampled row')}) recognises {percent(found.accuracy)} of a group's rows on average; "
        f"guessing gives {percent(found.chance)}. Near 100 %, a new group will look unlike all others; near "
        f"guessing, groups look alike.{aside} Below, the share of each column in the decisions of trees that "
        "distinguish the groups."
    )
    names, shares = zip(*found.features[:SHOWN_FEATURES], strict=True)
    figure = row_chart(names, [Panel([Marks(shares)], "share", zero=True)])
    return figure_section("features", "Features that distinguish the groups", text, figure)


def _settings(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    facts = diagnosis.facts
    rows = [
        ("features", ", ".join(facts["features"]) or "–"),
        ("columns left out", "; ".join(f"{name}: {why}" for name, why in facts["left_out"].items()) or "–"),
    ]
    if facts["graph"] is not None:
        rows.append(("graph", f"{facts['graph']['groups']} groups, {facts['graph']['edges']} edges"))
    rows += [(what.lower(), text) for what, text in shifts_in_words(facts).items()]
    rows += [(f"{what} not measured", str(why)) for what, why in facts["not_measured"].items()]
    return [*rows, ("seed", str(facts["seed"]))]
