"""Page that compares models: one sentence, one figure, one table."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import toporo
from toporo.files import write_text
from toporo.pages.cells import interval_text, number, quoted, versions, where
from toporo.pages.charts import figure_section
from toporo.pages.model_text import FEW_GROUPS
from toporo.pages.render import Section, Verdict, render
from toporo.pages.rows import Marks, Panel, row_chart
from toporo.pages.table import Table
from toporo.tables.contest import CONTROL, YOURS, Contest, Judgement, compare, metric_name
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
    contest : from :func:`toporo.compare_models`.
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
    if test:
        name, title = "test", "In the test groups"
        where = f"the {many(len(contest.test_groups), 'test group')}, by models of all training groups"
    else:
        name, title = "regions", "In held-out regions"
        groups, regions = many(sum(map(len, contest.regions)), "group"), many(len(contest.regions), "region")
        where = f"{groups}, by models fitted without them, in {regions}"
    text = (
        f"Above, {metric_name(contest.metric)} in {where}, mean over groups; below, its difference from "
        f"{contest.reference}. Bars are {100 * contest.level:g} % intervals over groups. Those of differences are "
        "paired: if one contains 0, the difference is not clear."
    )
    return figure_section(name, title, text, contest_figure(contest, test=test), () if test else (_table(contest),))


def _table(contest: Contest) -> Table:
    columns, rows = contest.cells()
    notes = {entrant.name: entrant.note for entrant in contest.entrants if entrant.note}
    if notes:
        columns, rows = [*columns, "note"], [[*row, notes.get(row[0], "")] for row in rows]
    return Table(tuple(columns), tuple(map(tuple, rows)), ("model", "kind", "note"))


def contest_figure(contest: Contest, *, test: bool = False) -> Figure:
    """Draw errors, and differences from the reference, a row per model, the best on top.

    Parameters
    ----------
    contest : the comparison.
    test : in the test groups instead of held-out regions.
    """
    pairs = [(entrant, entrant.test if test else entrant.regions) for entrant in contest.entrants]
    shown = sorted(((e, judged) for e, judged in pairs if judged is not None), key=lambda pair: _error(pair[1]))
    far = FAR * min((_error(judged) for _, judged in shown), default=math.inf)
    notes = {i: f"{number(_error(j))}, outside of the figure" for i, (_, j) in enumerate(shown) if _error(j) > far > 0}

    def marks(kind: str, measure: str, limit: float = math.inf) -> Marks:
        intervals = []
        for row, (entrant, judged) in enumerate(shown):
            interval = getattr(judged, measure)
            inside = entrant.kind == kind and row not in notes
            intervals.append(replace(interval, high=min(interval.high, limit)) if inside else None)
        return Marks.of_intervals(intervals, **LOOKS[kind])

    kinds = [kind for kind in LOOKS if any(entrant.kind == kind for entrant, _ in shown)]
    metric = metric_name(contest.metric)
    errors = Panel([marks(kind, "error", far) for kind in kinds], f"{metric}, mean over groups", notes=notes)
    differences = Panel(
        [marks(kind, "difference") for kind in kinds],
        f"{metric} more than {contest.reference}",
        reference=0.0,
        notes=dict.fromkeys(notes, ""),
    )
    return row_chart([entrant.name for entrant, _ in shown], [errors, differences])


def _cautions(contest: Contest) -> list[str]:
    groups = sum(map(len, contest.regions))
    return where(
        (True, "The best of many models in these regions looks better than it is: expect a larger error in new "
         "regions."),
        (True, "Groups of one region are evaluated by the same models, and neighbours are alike: intervals over groups "
         "are rather too narrow."),
        (groups < FEW_GROUPS, f"Means are over {groups} groups: their intervals are rough."),
        (contest.has_graph, "The graph was shuffled once. Another shuffle would give other numbers."),
        (True, "Inputs are encoded once, from all training rows without their targets; models have their default "
         "settings."),
        (not contest.test_groups, "Regions of training groups stand for new groups, which may differ from them."),
    )  # fmt: skip


def _settings(contest: Contest) -> list[tuple[str, str]]:
    return [
        *((key.replace("_", " "), str(value)) for key, value in contest.about.items()),
        ("task", contest.task),
        ("regions", "; ".join(", ".join(region) for region in contest.regions)),
        ("test groups", ", ".join(contest.test_groups) or "–"),
        ("intervals", f"{contest.resamples} resamples, seed {contest.seed}"),
        ("page", versions()),
    ]


def against_section(evaluation: Evaluation, name: str, other: Evaluation) -> Section:
    """Make the section of a model's page that compares it with another by group.

    Parameters
    ----------
    evaluation : of the model.
    name, other : the other model's name, and its evaluation on the same rows.
    """
    comparison, control = compare(evaluation, other), quoted(name)
    metric = metric_name(comparison.metric)
    mine, theirs = (
        {score.group: score.metrics[comparison.metric] for score in judged.groups} for judged in (evaluation, other)
    )
    order = sorted(comparison.gains, key=lambda group: (comparison.gains[group], group))
    gains = [comparison.gains[group] for group in order]
    cells = {
        "group": order,
        f"{metric} of this model": [interval_text(mine[group]) for group in order],
        f"{metric} of {control}": [interval_text(theirs[group]) for group in order],
        "gain": [number(gain) for gain in gains],
    }
    over = "groups" if comparison.over is None else "groups not trained on"
    is_clear = clear(comparison.gain) != 0
    label = f"gain in {metric}" + (f" (dotted: mean over {over})" if is_clear else "")
    panel = Panel([Marks(gains, marker="")], label, reference=comparison.gain.value if is_clear else math.nan)
    text = "Bars to the right: this model is better there, to the left: worse. The groups where it is worst are first."
    table = Table.from_columns(cells, f"All {len(order)} groups, the worst for this model first")
    return figure_section("against", f"Compared with {control}", text, row_chart(order, [panel]), (table,))
