"""A diagnosis as pictures and as one HTML file that opens offline."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
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
from toporo.pages import charts
from toporo.pages.render import Section, Verdict, render
from toporo.pages.table import Table
from toporo.text import many, short_name
from toporo.topology.draw import TEST_COLOR
from toporo.types import Array

#: Groups with a label each; of more, every second, third, … has one.
MOST_LABELS = 60
#: Letters of a name that are shown beside a map.
LONGEST = 18
#: Inches of a map by group, and in all; points of the names beside it.
CELL, SMALLEST, LARGEST = 0.165, 3.0, 10.0
LABEL_SIZE = 8.5
#: Inches around all that is drawn.
RIM = 0.06
#: Groups up to which a map has numbers in its cells.
MOST_NUMBERS = 12
#: Columns of the table that tell groups apart.
SHOWN_FEATURES = 12


@charts.drawn
def heat_map(distances: Distances, test: Collection[str] = ()) -> Figure:
    """Distances between groups, near ones side by side; test groups marked."""
    order = [distances.names.index(name) for name in distances.order]
    matrix = distances.matrix[np.ix_(order, order)]
    off = matrix[~np.eye(len(matrix), dtype=bool)]
    # One small group far from all others must not make the rest look alike.
    largest = float(min(off.max(), 3.0 * np.median(off))) or 1.0
    # From zero on, unless that would leave most colours unused.
    smallest = 0.9 * float(off.min()) if off.min() > 0.4 * largest else 0.0
    marked = smallest < distances.chance < largest
    label = f"diffusion EMD{' (orange line: by chance)' if marked else ''}"
    shown = np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)
    figure, ax, bar = _map(shown, distances.order, test, (smallest, largest), label)
    if marked:
        bar.ax.axvline(distances.chance, color=TEST_COLOR, lw=2.0)
    ax.set_title("Distances between groups" + _marked(distances.order, test))
    return _trim(figure)


@charts.drawn
def confusion_map(told: Separability, order: Sequence[str] = (), test: Collection[str] = ()) -> Figure:
    """Which group a classifier takes a row for; rows of the map sum to 1."""
    names = [name for name in order if name in told.names] or list(told.names)
    names += [name for name in told.names if name not in names]
    places = [told.names.index(name) for name in names]
    matrix = told.confusion[np.ix_(places, places)]
    figure, ax, _ = _map(matrix, names, test, (0.0, float(matrix.max())), "share of the group's rows")
    ax.set_xlabel("taken for")
    ax.set_ylabel("group")
    ax.set_title("What a classifier takes rows for" + _marked(names, test))
    return _trim(figure)


def _map(
    matrix: Array, names: Sequence[str], test: Collection[str], between: tuple[float, float], label: str
) -> tuple[Figure, Axes, Any]:
    """A square map that grows with the groups, until only some of them have a label; NaN is left blank."""
    longest = LABEL_SIZE / 72 * 0.65 * max(len(short_name(name, LONGEST)) for name in names)
    side = float(np.clip(CELL * len(names), SMALLEST, LARGEST))
    figure = Figure(figsize=(side + longest + 0.3, side + longest + 1.0), layout="compressed", dpi=200)
    ax = figure.subplots()
    charts.bare(ax)
    image = ax.imshow(matrix, cmap="YlGnBu", vmin=between[0], vmax=between[1])
    extend = "max" if np.nanmax(matrix) > between[1] else "neither"
    bar = charts.color_bar(figure, image, label, across=True, ax=ax, extend=extend)
    places = list(range(0, len(names), -(-len(names) // MOST_LABELS)))
    texts = [short_name(names[place], LONGEST) for place in places]
    ax.set_xticks(places, texts, rotation=90, fontsize=LABEL_SIZE)
    ax.set_yticks(places, texts, fontsize=LABEL_SIZE)
    ax.tick_params(length=0)
    for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
        for tick in (tick for place, tick in zip(places, ticks, strict=True) if names[place] in test):
            tick.set_color(TEST_COLOR)
            tick.set_fontweight("bold")
    if len(matrix) <= MOST_NUMBERS:
        fills = image.to_rgba(matrix)
        for i, j in np.argwhere(np.isfinite(matrix)):
            color = charts.readable(fills[i, j])
            ax.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", fontsize=7, color=color)
    return figure, ax, bar


def _trim(figure: Figure) -> Figure:
    """The figure without what its margins have beyond a rim: a map is square, whatever room there is."""
    figure.draw_without_rendering()
    around = figure.get_tightbbox()
    figure.set_size_inches(around.width + 2 * RIM, around.height + 2 * RIM)
    return figure


def _marked(names: Sequence[str], test: Collection[str]) -> str:
    return "\ntest groups in orange" if set(names) & set(test) else ""


# ---------------------------------------------------------------- the page


def write_doctor_report(diagnosis: Diagnosis, path: str | os.PathLike[str]) -> None:
    """Write the page: findings, groups, maps."""
    facts = diagnosis.facts
    features = [] if diagnosis.separability is None else diagnosis.separability.features[:SHOWN_FEATURES]
    page = render(
        "doctor.html",
        title=f"Before training on {facts['source']}",
        caption=_caption(diagnosis),
        verdict=_verdict(diagnosis),
        counts=[(severity, diagnosis.count(severity)) for severity in SEVERITIES],
        findings=diagnosis.findings,
        sections=[*_map_sections(diagnosis, list(facts["test_groups"])), _groups_section(diagnosis)],
        features=[(name, share, percent(share)) for name, share in features],
        settings=_settings(diagnosis),
        first_step=first_step(facts["first"]),
        next=facts["next"],
    )
    write_text(path, page)


def _verdict(diagnosis: Diagnosis) -> Verdict:
    serious, risky = (diagnosis.count(severity) for severity in ("serious", "risky"))
    if serious:
        return Verdict(f"Not yet: {many(serious, 'serious finding')} to settle before you train.", "bad")
    if risky:
        return Verdict(f"You can train, with care: nothing is serious, {many(risky, 'finding')} may mislead.")
    return Verdict("You can train: nothing stands in the way.", "good")


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
    words = tuple(column for place, column in enumerate(table.columns) if place not in table.numbers)
    test = {i: "test" for i, row in enumerate(table.rows) if "test" in row[1:2]}
    return Section(
        "groups",
        "Groups",
        "Recognised: the share of a group's rows that a classifier of groups gets right. Prior: the default weight of "
        "a training group. Hops: edges to the nearest training group. Targets of test groups are not looked at.",
        tables=(Table(table.columns, table.rows, words, row_styles=test),),
    )


def _map_sections(diagnosis: Diagnosis, test: Sequence[str]) -> list[Section]:
    sections = []
    distances, told = diagnosis.distances, diagnosis.separability
    without = diagnosis.facts.get("measured_without") or []
    aside = f" Without {', '.join(repr(name) for name in without)}, which would settle it." if without else ""
    if distances is not None:
        verdict = "No more than chance: by their features the groups are alike."
        if distances.beyond_chance:
            verdict = "More than chance: the groups differ in their features."
        text = (
            f"Diffusion EMD on {many(distances.points, 'sampled row')}, features standardised: the lighter a field, "
            f"the nearer. On average {distances.typical:.3g}, and {distances.chance:.3g} ± "
            f"{distances.chance_spread:.1g} if rows are dealt to groups at random. {verdict}{aside}"
        )
        figure = heat_map(distances, test)
        sections.append(charts.figure_section("heat", "How far apart the groups are", text, figure))
    if told is not None:
        confused = "; ".join(f"{a!r} for {b!r} ({percent(share)})" for a, b, share in told.confused(4))
        text = (
            f"A cross-validated classifier ({told.classifier}, {told.folds} folds, {many(told.points, 'sampled row')}) "
            f"recognises {percent(told.accuracy)} of a group's rows on average; guessing gives {percent(told.chance)}. "
            "Near 100 %, a new group will look like nothing seen; near guessing, groups look alike."
            f"{aside}{f' Most often mistaken: {confused}.' if confused else ''}"
        )
        figure = confusion_map(told, distances.order if distances is not None else (), test)
        sections.append(charts.figure_section("confusion", "How well the groups can be told apart", text, figure))
    return sections


def _settings(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    facts = diagnosis.facts
    left = "; ".join(f"{name}: {why}" for name, why in facts["left_out"].items()) or "–"
    rows = [
        ("features", ", ".join(facts["features"]) or "–"),
        ("columns left out", left),
        ("inputs after encoding", str(facts["encoded_columns"])),
    ]
    if facts["graph"] is not None:
        rows.append(("graph", f"{facts['graph']['groups']} groups, {facts['graph']['edges']} edges"))
    if facts["prior"] is not None:
        prior = facts["prior"]
        rows.append(("default prior", f"{prior['measure']}, {prior['effective_groups']:.1f} groups in effect"))
    rows += [(what.lower(), text) for what, text in shifts_in_words(facts).items()]
    for what, why in facts["not_measured"].items():
        rows.append((f"{what} not measured", str(why)))
    if "sampled_rows" in facts:
        rows.append(("sample", f"{facts['sampled_rows']} rows of {facts['sampled_groups']} groups"))
    return [*rows, ("seed", str(facts["seed"]))]
