"""Models compared on one HTML page that opens offline: one sentence, one figure, one table."""

from __future__ import annotations

import math
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import toporo
from toporo.files import write_text
from toporo.pages.charts import figure_section
from toporo.pages.model_text import FEW_GROUPS, interval_text, number, quoted
from toporo.pages.render import Section, Verdict, render
from toporo.pages.rows import Marks, Panel, row_chart
from toporo.pages.table import Table
from toporo.tables.contest import CONTROL, NOTHING, YOURS, Contest, Judgement, compare, metric_name
from toporo.tables.evaluate import Evaluation
from toporo.tables.resample import clear
from toporo.text import many
from toporo.topology.draw import TEST_COLOR

#: Looks of models by kind: toporo's, controls, and the user's own.
LOOKS: dict[str, dict[str, Any]] = {
    "model": {"label": "models"},
    CONTROL: {"label": "controls", "marker": "s", "color": "#6b7280", "filled": False},
    YOURS: {"label": "yours", "marker": "D", "color": TEST_COLOR},
}
#: An error more than this many times the lowest is outside of the figure.
FAR = 4.0


def write_comparison(contest: Contest, out: Path) -> Path:
    """Write the page about a comparison to ``out``, whole or not at all, and return its path.

    Parameters
    ----------
    contest : as :func:`toporo.compare_models` gives it.
    out : the file, which is replaced if it exists.
    """
    about, sentences = contest.about, contest.words()
    judged = [entrant for entrant in contest.entrants if entrant.regions is not None]
    best = min(judged, key=lambda entrant: _error(entrant.regions), default=None)
    page = render(
        "model.html",
        title=f"Models of {about['target']}",
        caption=f"{many(about['rows'], 'row')} of {many(about['groups'], 'group')} in {quoted(about['source'])}, "
        f"compared by toporo {toporo.__version__}.",
        verdict=Verdict(sentences[0], "bad" if best is not None and best.kind == CONTROL else ""),
        summary=sentences[1:],
        sections=[_section(contest, test=test) for test in (False, True) if contest.test_groups or not test],
        cautions=_cautions(contest),
        settings=_settings(contest),
    )
    write_text(out, page)
    return out


def _error(judged: Judgement | None) -> float:
    return math.inf if judged is None or math.isnan(judged.error.value) else judged.error.value


def _section(contest: Contest, *, test: bool) -> Section:
    where = (
        f"the {many(len(contest.test_groups), 'test group')}, by models of all training groups"
        if test
        else f"{many(sum(map(len, contest.regions)), 'group')}, by models fitted without them, in "
        f"{many(len(contest.regions), 'region')}"
    )
    text = (
        f"First {metric_name(contest.metric)} in {where}, mean over groups; then how much more or less that is than "
        f"{contest.reference}. Bars are {100 * contest.level:g} % intervals over groups; those of a difference are "
        "paired, so a bar across 0 is no clear difference."
    )
    name, title = ("test", "In the test groups") if test else ("regions", "In regions held out")
    tables = () if test else (_table(contest),)
    return figure_section(name, title, text, contest_figure(contest, test=test), tables)


def _table(contest: Contest) -> Table:
    columns, rows = contest.cells()
    notes = {entrant.name: entrant.note for entrant in contest.entrants if entrant.note}
    if notes:
        columns, rows = [*columns, "note"], [[*row, notes.get(row[0], "")] for row in rows]
    return Table(tuple(columns), tuple(map(tuple, rows)), ("model", "kind", "note"), wide=True)


def contest_figure(contest: Contest, *, test: bool = False) -> Figure:
    """Draw errors, and differences from the reference, a row per model, the best on top.

    Parameters
    ----------
    contest : the comparison.
    test : in the test groups instead of regions held out.
    """
    every = [(entrant, entrant.test if test else entrant.regions) for entrant in contest.entrants]
    shown = sorted(((e, judged) for e, judged in every if judged is not None), key=lambda pair: _error(pair[1]))
    far = FAR * min((_error(judged) for _, judged in shown), default=math.inf)
    notes = {
        row: f"{number(_error(j))}, outside of the figure" for row, (_, j) in enumerate(shown) if _error(j) > far > 0
    }

    def marks(kind: str, measure: str) -> Marks:
        intervals = [
            getattr(judged, measure) if entrant.kind == kind and row not in notes else NOTHING
            for row, (entrant, judged) in enumerate(shown)
        ]
        limit = far if measure == "error" else math.inf
        return Marks.of_intervals([replace(each, high=min(each.high, limit)) for each in intervals], **LOOKS[kind])

    kinds = [kind for kind in LOOKS if any(entrant.kind == kind for entrant, _ in shown)]
    metric = metric_name(contest.metric)
    errors = Panel([marks(kind, "error") for kind in kinds], f"{metric}, mean over groups", notes=notes)
    label = f"{metric} more than {contest.reference}"
    differences = Panel(
        [marks(kind, "difference") for kind in kinds], label, reference=0.0, notes=dict.fromkeys(notes, "")
    )
    return row_chart([entrant.name for entrant, _ in shown], [errors, differences])


def _cautions(contest: Contest) -> list[str]:
    groups = sum(map(len, contest.regions))
    sentences = {
        "The best of many models on the same regions is flattered: new regions will be less kind to it than its error "
        "here.": True,
        "Groups of one region share the models that judge them, and neighbours are alike: intervals over groups are "
        "rather too narrow.": True,
        f"There are {groups} groups to take means over: intervals of such means are rough.": groups < FEW_GROUPS,
        "The graph was shuffled once. Another shuffle would give other numbers.": contest.has_graph,
        "Inputs are encoded once, by all training rows and without their targets; models have their default settings.":
        True,
        "Regions of training groups stand for groups nobody has seen, which may be unlike them.":
        not contest.test_groups,
    }  # fmt: skip
    return [sentence for sentence, holds in sentences.items() if holds]


def _settings(contest: Contest) -> list[tuple[str, str]]:
    return [
        *((key.replace("_", " "), str(value)) for key, value in contest.about.items()),
        ("task", contest.task),
        ("regions", "; ".join(", ".join(region) for region in contest.regions)),
        ("test groups", ", ".join(contest.test_groups) or "–"),
        ("intervals", f"{contest.resamples} resamples, seed {contest.seed}"),
        ("page", f"toporo {toporo.__version__}, Python {platform.python_version()}, numpy {np.__version__}"),
    ]


def against_section(judged: Evaluation, name: str, other: Evaluation) -> Section:
    """Make the section of a model's page that compares it with another by group.

    Parameters
    ----------
    judged : the model's evaluation.
    name, other : the other model's name, and its evaluation on the same rows.
    """
    gain, names = compare(judged, other), ("this model", quoted(name))
    metric = metric_name(gain.metric)
    mine, theirs = ({s.group: s.metrics[gain.metric] for s in each.groups} for each in (judged, other))
    order = sorted(gain.gains, key=lambda name: (gain.gains[name], name))
    gains = [gain.gains[name] for name in order]
    verdicts = ["as good" if g == 0 else f"{'better' if g > 0 else 'worse'} by {number(abs(g))}" for g in gains]
    rows = tuple(
        (group, interval_text(mine[group]), interval_text(theirs[group]), text)
        for group, text in zip(order, verdicts, strict=True)
    )
    titles = ("group", f"{metric} of {names[0]}", f"{metric} of {names[1]}", f"{names[0]} is")
    title = f"All {len(rows)} groups, the worst for {names[0]} first"
    over = "groups" if gain.over is None else "groups not trained on"
    mean = gain.gain.value if clear(gain.gain) else math.nan
    bars = Marks(gains, marker="")
    label = f"gain in {metric}" + (f" (dotted: mean over {over})" if clear(gain.gain) else "")
    text = (
        f"{gain.words('This model', names[1])} Bars to the right: {names[0]} is better there, to the left: worse. The "
        "worst first."
    )
    figure = row_chart(order, [Panel([bars], label, reference=mean)])
    table = Table(titles, rows, ("group", titles[3]), title, folded=len(rows) > 12, wide=True)
    return figure_section("against", f"Beside {names[1]}", text, figure, (table,))
