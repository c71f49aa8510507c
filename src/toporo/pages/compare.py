"""Page that compares models: one sentence, one figure, one table."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import toporo
from toporo.files import write_text
from toporo.pages.cells import FEW_GROUPS, quoted, versions
from toporo.pages.charts import figure_section
from toporo.pages.render import Section, Verdict, render
from toporo.pages.rows import Marks, Panel, row_chart
from toporo.pages.table import Table
from toporo.tables.contest import CONTROL, YOURS, Contest, Judgement, metric_name
from toporo.text import many
from toporo.topology.draw import TEST_COLOR

#: Looks of models by kind: toporo's, controls, and the user's own.
LOOKS: dict[str, dict[str, Any]] = {
    "model": {"label": "models"},
    CONTROL: {"label": "controls", "marker": "s", "color": "#6b7280", "filled": False},
    YOURS: {"label": "yours", "marker": "D", "color": TEST_COLOR},
}
#: Models with an error more than this many times the lowest are in the table alone.
FAR = 4.0


def write_comparison(contest: Contest, out: Path) -> Path:
    """Write the page about a comparison to ``out``, whole or not at all, and return its path.

    Parameters
    ----------
    contest : from :func:`toporo.compare_models`.
    out : the file, which is replaced if it exists.
    """
    about, sentences = contest.about, contest.words()
    best = min(contest.entrants, key=lambda entrant: _error(entrant.regions))
    page = render(
        "model.html",
        title=f"Models of {about['target']}",
        caption=f"{many(about['rows'], 'row')} of {many(about['groups'], 'group')} in {quoted(about['source'])}, "
        f"compared by toporo {toporo.__version__}.",
        verdict=Verdict(sentences[0], "bad" if best.kind == CONTROL else ""),
        summary=sentences[1:],
        sections=[_section(contest)],
        cautions=_cautions(contest),
        settings=_settings(contest),
    )
    write_text(out, page)
    return out


def _error(judged: Judgement | None) -> float:
    return math.inf if judged is None or math.isnan(judged.error.value) else judged.error.value


def _section(contest: Contest) -> Section:
    groups, regions = many(sum(map(len, contest.regions)), "group"), many(len(contest.regions), "region")
    text = (
        f"Above, {metric_name(contest.metric)} in {groups}, by models fitted without them, in {regions}, mean over "
        f"groups; below, its difference from {contest.reference}. Bars are {100 * contest.level:g} % intervals over "
        "groups. Those of differences are paired: if one contains 0, the difference is not clear. Errors above "
        f"{FAR:g} times the lowest are in the table alone."
    )
    return figure_section("regions", "In held-out regions", text, contest_figure(contest), (_table(contest),))


def _table(contest: Contest) -> Table:
    columns, rows = contest.cells()
    notes = {entrant.name: entrant.note for entrant in contest.entrants if entrant.note}
    if notes:
        columns, rows = [*columns, "note"], [[*row, notes.get(row[0], "")] for row in rows]
    return Table(tuple(columns), tuple(map(tuple, rows)), ("model", "kind", "note"))


def contest_figure(contest: Contest) -> Figure:
    """Draw errors, and differences from the reference, a row per model, the best on top."""
    pairs = [(entrant, entrant.regions) for entrant in contest.entrants if entrant.regions is not None]
    pairs.sort(key=lambda pair: _error(pair[1]))
    shown = [pair for pair in pairs if _error(pair[1]) <= FAR * _error(pairs[0][1])]

    def panel(measure: str, label: str, reference: float = math.nan) -> Panel:
        marks = []
        for kind, looks in LOOKS.items():
            values = [getattr(result, measure) if entrant.kind == kind else None for entrant, result in shown]
            if any(values):
                marks.append(Marks.of_intervals(values, **looks))
        return Panel(marks, label, reference=reference)

    metric = metric_name(contest.metric)
    errors = panel("error", f"{metric}, mean over groups")
    differences = panel("difference", f"{metric} more than {contest.reference}", reference=0.0)
    return row_chart([entrant.name for entrant, _ in shown], [errors, differences])


def _cautions(contest: Contest) -> list[str]:
    groups = sum(map(len, contest.regions))
    sentences = [
        "The best of many models in these regions looks better than it is: expect a larger error in new regions.",
        "Groups of one region are evaluated by the same models, and neighbours are alike: intervals over groups are "
        "rather too narrow.",
    ]
    if groups < FEW_GROUPS:
        sentences.append(f"Means are over {groups} groups: their intervals are rough.")
    if contest.has_graph:
        sentences.append("The graph was shuffled once. Another shuffle would give other numbers.")
    return sentences


def _settings(contest: Contest) -> list[tuple[str, str]]:
    return [
        *((key.replace("_", " "), str(value)) for key, value in contest.about.items()),
        ("task", contest.task),
        ("regions", "; ".join(", ".join(region) for region in contest.regions)),
        ("test groups", ", ".join(contest.test_groups) or "–"),
        ("intervals", f"{contest.resamples} resamples, seed {contest.seed}"),
        ("page", versions()),
    ]
