"""Models compared on one HTML page that opens offline: one sentence, one picture, one table."""

from __future__ import annotations

import math
import platform
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

import toporo
from toporo.files import write_text
from toporo.pages import charts
from toporo.pages.model_words import interval_text, number, quoted, said
from toporo.pages.render import Section, Verdict, render
from toporo.pages.table import Table
from toporo.tables.contest import CONTROL, YOURS, Contest, Entrant, Judgement, compare, metric_name
from toporo.tables.evaluate import Evaluation
from toporo.tables.resample import Interval, clear
from toporo.text import many, short_name
from toporo.topology.draw import TEST_COLOR, TRAIN_COLOR

#: Inches of a row.
ROW = 0.24
#: How models look: toporo's, controls, and the user's own.
LOOKS: dict[str, dict[str, Any]] = {
    "model": {"marker": "o", "color": TRAIN_COLOR, "mfc": TRAIN_COLOR, "mew": 1.3},
    CONTROL: {"marker": "s", "color": "#6b7280", "mfc": "white", "mew": 1.3},
    YOURS: {"marker": "D", "color": TEST_COLOR, "mfc": TEST_COLOR, "mew": 1.3},
}
#: An error more than so many times the least is beyond the picture.
FAR = 4.0
#: Groups whose gains are drawn; the table has them all.
SHOWN = 40
#: Fewer groups make rough intervals.
FEW_GROUPS = 10


def write_comparison(contest: Contest, out: Path) -> Path:
    """Write the page about a contest to ``out``, whole or not at all, and return its path.

    Parameters
    ----------
    contest : as :func:`toporo.compare_models` gives it.
    out : the file, which is replaced if it is there.
    """
    about = contest.about
    page = render(
        "model.html",
        title=f"Models of {about['target']}",
        caption=f"{many(about['rows'], 'row')} of {many(about['groups'], 'group')} in {quoted(about['source'])}, "
        f"compared by toporo {toporo.__version__}.",
        verdict=_verdict(contest),
        summary=contest.words()[1:],
        sections=[_section(contest, test=False), *([_section(contest, test=True)] if contest.test_groups else [])],
        cautions=_cautions(contest),
        settings=_settings(contest),
    )
    write_text(out, page)
    return out


def _verdict(contest: Contest) -> Verdict:
    """Who is best; bad if that is a control."""
    judged = [entrant for entrant in contest.entrants if entrant.regions is not None]
    best = min(judged, key=lambda entrant: _error(entrant.regions), default=None)
    return Verdict(contest.words()[0], "bad" if best is not None and best.kind == CONTROL else "")


def _section(contest: Contest, *, test: bool) -> Section:
    metric, level = metric_name(contest.metric), f"{100 * contest.level:g} %"
    judged = {entrant.name: entrant.test if test else entrant.regions for entrant in contest.entrants}
    shown = [entrant for entrant in contest.entrants if judged[entrant.name] is not None]
    shown.sort(key=lambda entrant: _error(judged[entrant.name]))
    where = (
        f"the {many(len(contest.test_groups), 'test group')}, by models of all training groups"
        if test
        else f"{many(sum(map(len, contest.regions)), 'group')}, by models fitted without them, in "
        f"{many(len(contest.regions), 'region')}"
    )
    text = (
        f"Left: {metric} in {where}, mean over groups. Right: how much more or less that is than {contest.reference}. "
        f"Bars are {level} intervals over groups; on the right they are of the difference group by group, so a bar "
        "across 0 is no clear difference."
    )
    figure = contest_figure(contest, shown, test=test)
    name, title = ("test", "In the test groups") if test else ("regions", "In regions held out")
    left_out = [entrant for entrant in contest.entrants if entrant.regions is None]
    tables = [_grid(contest, shown, judged)]
    if left_out and not test:
        rows = tuple((entrant.name, entrant.note) for entrant in left_out)
        tables.append(Table(("model", "why"), rows, ("model", "why"), "Left out"))
    return charts.figure_section(name, title, text, figure, tuple(tables))


def _error(judged: Judgement | None) -> float:
    return math.inf if judged is None or math.isnan(judged.error.value) else judged.error.value


def _grid(contest: Contest, shown: list[Entrant], judged: dict[str, Judgement | None]) -> Table:
    metric, classes = metric_name(contest.metric), contest.task == "classification"
    titles = [
        "model",
        "kind",
        metric,
        *(["accuracy"] if classes else []),
        "times ERM",
        f"more than {contest.reference}",
    ]
    rows = []
    for entrant in shown:
        each = judged[entrant.name]
        if each is not None:
            share = [number(each.accuracy)] if classes else []
            name = f"{entrant.name} ({entrant.note})" if entrant.note else entrant.name
            numbers = [interval_text(each.error), *share, number(each.ratio), interval_text(each.difference)]
            rows.append((name, entrant.kind, *(_plain(cell) for cell in numbers)))
    return Table(tuple(titles), tuple(rows), ("model", "kind"), wide=True)


def _plain(cell: str) -> str:
    return "–" if cell == "no value" else cell


@charts.drawn
def contest_figure(contest: Contest, shown: list[Entrant], *, test: bool = False) -> Figure:
    """Errors, and differences from the reference, a row per model, the best on top.

    Parameters
    ----------
    contest : where they are from.
    shown : the models, in order.
    test : in the test groups instead of regions held out.
    """
    judged = [(entrant, entrant.test if test else entrant.regions) for entrant in shown]
    figure, (left, right) = charts.canvas(1.0 + ROW * max(len(shown), 3), 2, sharey=True)
    charts.name_rows([left, right], [short_name(entrant.name, 34) for entrant in shown], keys=[e.name for e in shown])
    errors = [_error(each) for _, each in judged]
    far = FAR * min(errors)
    for row, (entrant, each) in enumerate(judged):
        if each is None or not math.isfinite(each.error.value):
            charts.in_row(left, row, "no value")
        elif each.error.value > far > 0:
            charts.in_row(left, row, f"{number(each.error.value)}, beyond the picture")
        else:
            for ax, interval in ((left, each.error), (right, each.difference)):
                if math.isfinite(interval.value):
                    ends = min(interval.low, interval.value), min(interval.high, far) if ax is left else interval.high
                    charts.spread(ax, row, interval.value, *ends, **LOOKS[entrant.kind])
    right.axvline(0, color="#374151", lw=0.8, zorder=1)
    for ax in (left, right):
        ax.tick_params(axis="y", labelsize=8, pad=6)
        ax.xaxis.set_major_locator(MaxNLocator(6))
    metric = metric_name(contest.metric)
    left.set_xlabel(f"{metric}, mean over groups")
    right.set_xlabel(f"{metric} more than {contest.reference}")
    titles = {"model": "models", CONTROL: "controls", YOURS: "yours"}
    kinds = [kind for kind in titles if any(entrant.kind == kind for entrant in shown)]
    charts.key(figure, [charts.mark(titles[kind], **LOOKS[kind]) for kind in kinds])
    return figure


def _cautions(contest: Contest) -> list[str]:
    groups = sum(map(len, contest.regions))
    return said(
        (True, "Whoever picks the best of many models on the same regions is flattered: the next regions will be less "
         "kind to it than its error here."),
        (True, "Groups of one region share the models that judge them, and neighbours are alike: intervals over groups "
         "are rather too narrow."),
        (groups < FEW_GROUPS, f"There are {groups} groups to take means over: intervals of such means are rough."),
        (contest.has_graph, "The graph was shuffled once. Another shuffle would give other numbers."),
        (True, "Inputs are encoded once, by all training rows and without their targets; models are as they come, "
         "without settings chosen for this table, but what they choose themselves."),
        (not contest.test_groups, "Regions of training groups stand for groups nobody has seen, which may be unlike "
         "them."),
    )  # fmt: skip


def _settings(contest: Contest) -> list[tuple[str, str]]:
    return [
        *((key.replace("_", " "), str(value)) for key, value in contest.about.items()),
        ("task", contest.task),
        ("regions", "; ".join(", ".join(region) for region in contest.regions)),
        ("test groups", ", ".join(contest.test_groups) or "–"),
        ("intervals", f"{contest.resamples} resamples, seed {contest.seed}"),
        ("page", f"toporo {toporo.__version__}, Python {platform.python_version()}, numpy {np.__version__}"),
    ]


# ---------------------------------------------------------------- two models


def against_section(judged: Evaluation, name: str, other: Evaluation) -> Section:
    """A section of a model's page: how it does beside another, by group.

    Parameters
    ----------
    judged : the model on some rows.
    name, other : the other's name, and how it did on the same rows.
    """
    gain, names = compare(judged, other), ("this model", quoted(name))
    metric = metric_name(gain.metric)
    theirs = {score.group: score.metrics[gain.metric] for score in other.groups}
    order = sorted(gain.gains, key=lambda name: (gain.gains[name], name))
    mine = {score.group: score.metrics[gain.metric] for score in judged.groups}
    rows = tuple(
        (name, interval_text(mine[name]), interval_text(theirs[name]), _by(gain.gains[name])) for name in order
    )
    titles = ("group", f"{metric} of {names[0]}", f"{metric} of {names[1]}", f"{names[0]} is")
    title = f"All {len(rows)} groups, the worst for {names[0]} first"
    shown = order if len(order) <= SHOWN else [*order[: SHOWN // 2], *order[-SHOWN // 2 :]]
    part = "" if len(order) <= SHOWN else f" The {SHOWN // 2} worst and the {SHOWN // 2} best of {len(order)} groups."
    text = (
        f"{gain.words('This model', names[1])} Bars to the right: {names[0]} is better there, to the left: worse.{part}"
    )
    over = "groups" if gain.over is None else "groups not trained on"
    figure = _gain_figure(shown, [gain.gains[name] for name in shown], f"gain in {metric}", gain.gain, over)
    grid = Table(titles, rows, ("group", titles[3]), title, folded=len(rows) > 12, wide=True)
    return charts.figure_section("against", f"Beside {names[1]}", text, figure, (grid,))


def _by(gain: float) -> str:
    return "as good" if gain == 0 else f"{'better' if gain > 0 else 'worse'} by {number(abs(gain))}"


@charts.drawn
def _gain_figure(names: list[str], gains: list[float], label: str, mean: Interval, over: str) -> Figure:
    figure, (ax,) = charts.canvas(0.95 + 0.2 * max(len(names), 3))
    charts.name_rows([ax], [short_name(name) for name in names], keys=names)
    ax.barh(
        range(len(gains)), gains, height=0.68, color=[TRAIN_COLOR if g >= 0 else TEST_COLOR for g in gains], zorder=2
    )
    ax.axvline(0, color="#374151", lw=0.8, zorder=3)
    if clear(mean):
        ax.axvline(mean.value, color=charts.SOFT, lw=0.9, ls=":", zorder=1)
    ax.tick_params(axis="y", labelsize=8, pad=6)
    ax.set_xlabel(f"{label} (dotted: mean over {over})" if clear(mean) else label)
    return figure
