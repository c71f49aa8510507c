"""A diagnosis on one HTML page that opens offline: findings, groups, and maps of them."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from typing import Any

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
from toporo.pages.charts import figure_section
from toporo.pages.heat import heat_map
from toporo.pages.render import Section, Verdict, render
from toporo.pages.rows import Marks, Panel, row_chart
from toporo.pages.table import Table
from toporo.text import many

#: Columns of the table that tell groups apart.
SHOWN_FEATURES = 12


def distance_map(distances: Distances, test: Collection[str] = ()) -> Figure:
    """Draw the distances between groups, near groups side by side.

    Parameters
    ----------
    distances : between all pairs.
    test : groups to highlight.
    """
    order = [distances.names.index(name) for name in distances.order]
    matrix = distances.matrix[np.ix_(order, order)]
    off = matrix[~np.eye(len(matrix), dtype=bool)]
    # One small group far from all others must not make the rest look alike.
    largest = float(min(off.max(), 3.0 * np.median(off))) or 1.0
    # From zero on, unless that would leave most colours unused.
    smallest = 0.9 * float(off.min()) if off.min() > 0.4 * largest else 0.0
    marked = smallest < distances.chance < largest
    shown = np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)
    label = f"diffusion EMD{' (orange line: by chance)' if marked else ''}"
    line = distances.chance if marked else math.nan
    title = _map_title("Distances between groups", distances.order, test)
    return heat_map(shown, distances.order, label, limits=(smallest, largest), line=line, marked=test, title=title)


def confusion_map(found: Separability, order: Sequence[str] = (), test: Collection[str] = ()) -> Figure:
    """Draw the share of each group's rows that a classifier assigns to each group; rows of the map sum to 1.

    Parameters
    ----------
    found : by the classifier.
    order : of the groups; those not in it come last.
    test : groups to highlight.
    """
    names = [name for name in order if name in found.names] or list(found.names)
    names += [name for name in found.names if name not in names]
    places = [found.names.index(name) for name in names]
    matrix = found.confusion[np.ix_(places, places)]
    title = _map_title("Predictions of a classifier of groups", names, test)
    looks: dict[str, Any] = {"limits": (0.0, float(matrix.max())), "marked": test, "axes": ("group", "predicted")}
    return heat_map(matrix, names, "share of the group's rows", title=title, **looks)


def _map_title(title: str, names: Collection[str], test: Collection[str]) -> str:
    return f"{title}\ntest groups in orange" if set(names) & set(test) else title


# ---------------------------------------------------------------- the page


def write_doctor_report(diagnosis: Diagnosis, path: str | os.PathLike[str]) -> None:
    """Write the page of a diagnosis: findings, groups, maps.

    Parameters
    ----------
    diagnosis : as :func:`toporo.doctor.examine` gives it.
    path : the file, which is replaced if it exists.
    """
    facts = diagnosis.facts
    page = render(
        "doctor.html",
        title=f"Before training on {facts['source']}",
        caption=_caption(diagnosis),
        verdict=_verdict(diagnosis),
        counts=[(severity, diagnosis.count(severity)) for severity in SEVERITIES],
        findings=diagnosis.findings,
        sections=[*_map_sections(diagnosis, list(facts["test_groups"])), _groups_section(diagnosis)],
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
    distances, found = diagnosis.distances, diagnosis.separability
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
        figure = distance_map(distances, test)
        sections.append(figure_section("heat", "How far apart the groups are", text, figure))
    if found is not None:
        text = (
            f"A cross-validated classifier ({found.classifier}, {found.folds} folds, "
            f"{many(found.points, 'sampled row')}) recognises {percent(found.accuracy)} of a group's rows on average; "
            f"guessing gives {percent(found.chance)}. Near 100 %, a new group will look like nothing seen; "
            f"near guessing, groups look alike.{aside}"
        )
        figure = confusion_map(found, distances.order if distances is not None else (), test)
        sections.append(figure_section("confusion", "How well the groups can be told apart", text, figure))
        names, shares = zip(*found.features[:SHOWN_FEATURES], strict=True)
        text = "The share of each column in the decisions of trees that tell groups apart."
        figure = row_chart(names, [Panel([Marks(shares, marker="")], "share", limits=(0.0, None))])
        sections.append(figure_section("features", "What tells the groups apart", text, figure))
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
