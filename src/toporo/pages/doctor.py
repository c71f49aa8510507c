"""A diagnosis as pictures and as one HTML file that opens offline."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from importlib.resources import files
from typing import Any

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

import toporo
from toporo.doctor.results import SEVERITIES, Diagnosis, Distances, Separability, first_step, group_table, percent
from toporo.files import write_text
from toporo.pages.figures import STYLE, to_svg
from toporo.text import many
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
#: Rows of the page's table of groups that are shown at once.
SHOWN_GROUPS = 40


def heat_map(distances: Distances, test: Collection[str] = ()) -> Figure:
    """Distances between groups, near ones side by side; test groups marked."""
    order = [distances.names.index(name) for name in distances.order]
    matrix = distances.matrix[np.ix_(order, order)]
    with mpl.rc_context(STYLE):
        figure, ax = _square(distances.order)
        off = matrix[~np.eye(len(matrix), dtype=bool)]
        # One small group far from all others must not make the rest look alike.
        largest = float(min(off.max(), 3.0 * np.median(off))) or 1.0
        shown = np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)
        # From zero on, unless that would leave most colours unused.
        smallest = 0.9 * float(off.min()) if off.min() > 0.4 * largest else 0.0
        image = ax.imshow(shown, cmap="YlGnBu", vmin=smallest, vmax=largest)
        bar = figure.colorbar(image, ax=ax, shrink=0.8, pad=0.02, extend="max" if off.max() > largest else "neither")
        bar.outline.set_visible(False)
        marked = smallest < distances.chance < largest
        bar.set_label(f"diffusion EMD{' (orange line: by chance)' if marked else ''}")
        if marked:
            bar.ax.axhline(distances.chance, color=TEST_COLOR, lw=2.0)
        _label(ax, distances.order, set(test))
        _numbers(ax, matrix, (smallest, largest), diagonal=False)
        ax.set_title("Distances between groups" + _marked(distances.order, test))
        return _trim(figure)


def confusion_map(told: Separability, order: Sequence[str] = (), test: Collection[str] = ()) -> Figure:
    """Which group a classifier takes a row for; rows of the map sum to 1."""
    names = [name for name in order if name in told.names] or list(told.names)
    names += [name for name in told.names if name not in names]
    places = [told.names.index(name) for name in names]
    matrix = told.confusion[np.ix_(places, places)]
    with mpl.rc_context(STYLE):
        figure, ax = _square(names)
        largest = float(matrix.max())
        image = ax.imshow(matrix, cmap="YlGnBu", vmin=0.0, vmax=largest)
        bar = figure.colorbar(image, ax=ax, shrink=0.8, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label("share of the group's rows")
        _label(ax, names, set(test))
        _numbers(ax, matrix, (0.0, largest), diagonal=True)
        ax.set_xlabel("taken for")
        ax.set_ylabel("group")
        ax.set_title("What a classifier takes rows for" + _marked(names, test))
        return _trim(figure)


def _square(names: Sequence[str]) -> tuple[Figure, Any]:
    """A figure whose map grows with the groups, until only some of them have a label."""
    side = float(np.clip(CELL * len(names), SMALLEST, LARGEST))
    longest = LABEL_SIZE / 72 * 0.65 * max(len(_short(name)) for name in names)
    figure = Figure(figsize=(side + longest + 1.6, side + longest + 0.6), layout="compressed", dpi=200)
    ax = figure.subplots()
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return figure, ax


def _trim(figure: Figure) -> Figure:
    """The figure without what its margins have beyond a rim: a map is square, whatever room there is."""
    figure.draw_without_rendering()
    drawn = figure.get_tightbbox()
    figure.set_size_inches(drawn.width + 2 * RIM, drawn.height + 2 * RIM)
    return figure


def _marked(names: Sequence[str], test: Collection[str]) -> str:
    return "; test groups in orange" if set(names) & set(test) else ""


def _label(ax: Any, names: Sequence[str], test: set[str]) -> None:
    step = -(-len(names) // MOST_LABELS)
    places = list(range(0, len(names), step))
    texts = [_short(names[place]) for place in places]
    ax.set_xticks(places, texts, rotation=90, fontsize=LABEL_SIZE)
    ax.set_yticks(places, texts, fontsize=LABEL_SIZE)
    for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
        for place, tick in zip(places, ticks, strict=True):
            tick.set_parse_math(False)
            if names[place] in test:
                tick.set_color(TEST_COLOR)
                tick.set_fontweight("bold")


def _short(name: str) -> str:
    """A name on one line; a long one loses its middle, as many differ at their ends."""
    plain = " ".join(name.split())
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST // 2].rstrip()}…{plain[1 - LONGEST // 2 :].lstrip()}"


def _numbers(ax: Any, matrix: Array, between: tuple[float, float], *, diagonal: bool) -> None:
    if len(matrix) > MOST_NUMBERS:
        return
    for i, j in np.ndindex(*matrix.shape):
        if diagonal or i != j:
            dark = matrix[i, j] - between[0] > 0.55 * (between[1] - between[0])
            color = "white" if dark else "#374151"
            ax.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", fontsize=7, color=color)


# ---------------------------------------------------------------- the page


def write_doctor_report(diagnosis: Diagnosis, path: str | os.PathLike[str]) -> None:
    """Write the page: findings, groups, maps."""
    facts = diagnosis.facts
    test = list(facts["test_groups"])
    table = group_table(diagnosis)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(_resource("doctor_template.html")).render(
        title=f"Before training on {facts['source']}",
        version=toporo.__version__,
        style=_style(),
        caption=_caption(diagnosis),
        counts=[(severity, diagnosis.count(severity)) for severity in SEVERITIES],
        findings=diagnosis.findings,
        table=table,
        first=table.rows[:SHOWN_GROUPS],
        rest=table.rows[SHOWN_GROUPS:],
        maps=_maps(diagnosis, test),
        features=[] if diagnosis.separability is None else diagnosis.separability.features[:12],
        percent=percent,
        settings=_settings(diagnosis),
        first_step=first_step(facts["first"]),
        next=facts["next"],
    )
    write_text(path, page)


def _resource(name: str) -> str:
    return files("toporo.pages").joinpath(name).read_text(encoding="utf-8")


def _style() -> str:
    """The style of the experiments' report, so that all pages look alike."""
    found = re.search(r"<style>(.*?)</style>", _resource("template.html"), flags=re.DOTALL)
    return found.group(1) if found else ""


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


def _maps(diagnosis: Diagnosis, test: Sequence[str]) -> list[dict[str, str]]:
    maps = []
    found, told = diagnosis.distances, diagnosis.separability
    without = diagnosis.facts.get("measured_without") or []
    aside = f" Without {', '.join(repr(name) for name in without)}, which would settle it." if without else ""
    if found is not None:
        verdict = (
            "More than chance: the groups differ in their features."
            if found.beyond_chance
            else "No more than chance: by their features the groups are alike."
        )
        maps.append(
            {
                "title": "How far apart the groups are",
                "text": f"Diffusion EMD on {many(found.points, 'sampled row')}, features standardised: the lighter "
                f"a field, the nearer. On average {found.typical:.3g}, and {found.chance:.3g} ± "
                f"{found.chance_spread:.1g} if rows are dealt to groups at random. {verdict}{aside}",
                "svg": to_svg("heat", heat_map(found, test)),
            }
        )
    if told is not None:
        confused = "; ".join(f"{a!r} for {b!r} ({percent(share)})" for a, b, share in told.confused(4))
        maps.append(
            {
                "title": "How well the groups can be told apart",
                "text": f"A cross-validated classifier ({told.classifier}, {told.folds} folds, "
                f"{many(told.points, 'sampled row')}) recognises {percent(told.accuracy)} of a group's rows on "
                f"average; guessing gives {percent(told.chance)}. Near 100 %, a new group will look like nothing seen; "
                f"near guessing, groups look alike.{aside}"
                + (f" Most often mistaken: {confused}." if confused else ""),
                "svg": to_svg("confusion", confusion_map(told, found.order if found is not None else (), test)),
            }
        )
    return maps


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
    for what, why in facts["not_measured"].items():
        rows.append((f"{what} not measured", str(why)))
    if "sampled_rows" in facts:
        rows.append(("sample", f"{facts['sampled_rows']} rows of {facts['sampled_groups']} groups"))
    return [*rows, ("seed", str(facts["seed"]))]
