"""Page about one fitted model: its errors by group, its parts, and its groups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

import toporo
from toporo.estimators.coefficients import CoefficientTable
from toporo.estimators.explain import GroupRow
from toporo.estimators.league import LeagueTable
from toporo.files import write_text
from toporo.pages.cells import explain_table, interval_text, number, quoted, versions
from toporo.pages.charts import COLORS, figure_section
from toporo.pages.maps import graph_chart
from toporo.pages.model_by_group import kriged_section, league_sections
from toporo.pages.model_text import ModelReport, cautions, summary, verdict
from toporo.pages.render import Section, render
from toporo.pages.rows import Marks, Panel, row_chart
from toporo.pages.table import Cell, Table
from toporo.tables.contest import metric_name
from toporo.tables.evaluate import MORE_IS_BETTER, Evaluation
from toporo.tables.model import TableModel
from toporo.tables.resample import Interval
from toporo.text import hops_text, many
from toporo.topology.draw import TEST_COLOR

#: Coefficients that are shown, and characters of a setting.
MOST_EFFECTS, MOST_LETTERS = 20, 200


def write_model_report(
    model: TableModel, out: Path, *, evaluation: Evaluation | None = None, source: str | None = None
) -> Path:
    """Write the page about ``model`` to ``out``, whole or not at all, and return its path.

    Parameters
    ----------
    model : from ``fit_table`` or ``load_model``.
    out : the file, which is replaced if it exists.
    evaluation : metrics on another table, from ``model.evaluate``; None leaves that section out.
    source : the name of that table on the page.

    >>> import tempfile
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> table = {"town": np.repeat(list("ABC"), 20), "x": rng.normal(size=60), "y": rng.normal(size=60)}
    >>> model = toporo.fit_table(table, target="y", group="town", model="linear", penalty=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model_report(model, Path(folder) / "report.html").name
    'report.html'
    """
    report = ModelReport(model, evaluation, source)
    evaluated = f", evaluated on {quoted(source)}" if source else ""
    page = render(
        "model.html",
        title=f"A model of {model.target}",
        caption=f"Fitted by toporo {model.about.get('toporo', toporo.__version__)}{evaluated}; page made by toporo "
        f"{toporo.__version__}.",
        verdict=verdict(report),
        summary=summary(report),
        sections=_sections(report),
        cautions=cautions(report),
        settings=_settings(report),
    )
    write_text(out, page)
    return out


def describe_model(
    model: TableModel, *, evaluation: Evaluation | None = None, source: str | None = None
) -> dict[str, Any]:
    """Return the content of the page as plain values for JSON: NaN is null, infinity is ``"inf"``.

    The table of the model is as ``toporo explain`` gives it, and metrics as ``toporo evaluate`` does.

    Parameters
    ----------
    model, evaluation, source : as for :func:`write_model_report`.
    """
    report = ModelReport(model, evaluation, source)
    table = report.table
    return {
        "verdict": verdict(report).text,
        "summary": summary(report),
        **table.about,
        table.key: table.to_dict(),
        "evaluation": None if evaluation is None else {"source": source, **evaluation.to_dict()},
        "groups_outside": report.groups_outside,
        "cautions": cautions(report),
        "settings": dict(_settings(report)),
    }


def _sections(report: ModelReport) -> list[Section]:
    """Return the sections in the order of the page: the evaluation, then the model."""
    table, evaluation = report.table, report.evaluation
    sections: list[Section | None] = []
    if evaluation is not None:
        sections.append(_evaluation_section(evaluation, report.source))
    if isinstance(table, CoefficientTable):
        sections.append(kriged_section(report, table))
    elif isinstance(table, LeagueTable):
        sections += league_sections(report, table)
    else:
        sections += [_graph_section(report), _weight_section(report), _penalty_section(report)]
        sections.append(_effects_section(report.model))
    sections.append(_columns_section(report.model))
    return [section for section in sections if section is not None]


# ---------------------------------------------------------------- the evaluation


def _evaluation_section(evaluation: Evaluation, source: str | None) -> Section:
    scores, metric = evaluation.groups, evaluation.metric
    marks = [
        Marks.of_intervals([score.metrics[metric] if score.trained == trained else None for score in scores], **looks)
        for trained, looks in (
            (True, {"label": "trained on"}),
            (False, {"label": "not trained on", "marker": "s", "color": TEST_COLOR, "filled": False}),
        )
        if any(score.trained == trained for score in scores)
    ]
    more = metric in MORE_IS_BETTER
    panel = Panel(
        marks,
        f"{metric_name(metric)} ({'higher' if more else 'lower'} is better)",
        reference=evaluation.headline[metric].value,
        reference_label=f"mean over groups{' not trained on' if evaluation.unseen else ''}",
        zero=not more,
    )
    lines = {"mean over groups not trained on": evaluation.unseen} if evaluation.unseen else {}
    lines |= {"mean over groups": evaluation.overall, "all rows together": evaluation.pooled}
    if "outside" in evaluation.by_reach:
        lines |= {f"rows {side} of what validation has seen": s.metrics for side, s in evaluation.by_reach.items()}
    groups = {
        "group": [score.group for score in scores],
        "trained on": ["yes" if score.trained else "no" for score in scores],
        "edges away": [hops_text(score.hops) or "–" for score in scores],
        "rows": [f"{score.rows:,}" for score in scores],
        **{metric_name(name): [interval_text(score.metrics[name]) for score in scores] for name in evaluation.overall},
    }
    tables = [_metric_table("over", lines)]
    if len(evaluation.by_hop) > 1:
        tables.append(_metric_table("edges to the nearest training group", evaluation.by_hop))
    return figure_section(
        "evaluation",
        "Errors by group",
        f"Predictions for the rows{f' of {quoted(source)}' if source else ''}, worst group first, with "
        f"{100 * evaluation.level:g} % intervals ({evaluation.resamples} resamples, seed {evaluation.seed}).",
        row_chart([score.group for score in scores], [panel]),
        (*tables, Table.from_columns(groups, f"All {len(scores)} groups evaluated")),
    )


def _metric_table(title: str, lines: Mapping[str, Mapping[str, Interval]]) -> Table:
    metrics = list(next(iter(lines.values())))
    rows = tuple((name, *(interval_text(values[metric]) for metric in metrics)) for name, values in lines.items())
    return Table((title, *map(metric_name, metrics)), rows, words=(title,))


# ---------------------------------------------------------------- weighted models


def _loss_name(model: TableModel) -> str:
    return "log loss" if model.task == "classification" else "mean squared error"


def _graph_section(report: ModelReport) -> Section | None:
    model, graph = report.model, report.model.graph
    if graph is None:
        return None
    inside = [row for row in report.table if row.group in graph]
    text = (
        f"The {graph.origin.kind} graph has {len(graph)} groups and {len(graph.edges)} edges. Training groups are "
        "larger the larger their weight, and darker the larger their loss. Names are shown where there is room."
    )
    figure = graph_chart(
        graph,
        {"": {row.group: row.loss for row in inside}},
        f"{_loss_name(model)} of training groups",
        squares={name for name in model.test_groups if name not in model.groups},
        sizes={row.group: row.weight for row in inside},
    )
    return figure_section("groups", "The groups and their neighbours", text, figure)


def _weight_section(report: ModelReport) -> Section:
    order: list[GroupRow] = sorted(report.table, key=lambda row: (-row.weight, -row.prior, str(row.group)))
    prior, weight, loss = (np.array([getattr(row, name) for row in order]) for name in ("prior", "weight", "loss"))
    shares = [
        Marks(weight, "weight q", np.minimum(prior, weight), np.maximum(prior, weight)),
        Marks(prior, "prior p", marker="D", color=TEST_COLOR, filled=False),
    ]
    name, uniform = _loss_name(report.model), 1 / len(order)
    panels = [
        Panel(shares, "share of the training objective", "", uniform, "the same for all groups", zero=True),
        Panel([Marks(loss, color=COLORS[1])], f"{name} (dotted: mean)", reference=loss.mean()),
    ]
    text = (
        "Heaviest first. The prior follows from the topology; without one it is the same for all groups. The losses, "
        f"the {name} of training rows, move the weights from the prior towards groups with large losses: a long bar "
        "means that the losses decide how much a group counts. They show where the model struggles, not its error in a "
        "new group. Hops are edges to the nearest test group."
    )
    return figure_section(
        "weights",
        "Prior, weight and loss by training group",
        text,
        row_chart([row.group for row in order], panels),
        (explain_table(report.table),),
    )


def _penalty_section(report: ModelReport) -> Section | None:
    estimator = report.model.estimator
    scores = sorted(getattr(estimator, "penalty_scores_", None) or (), key=lambda score: score.penalty)
    if not scores:
        return None
    rows = tuple(
        (
            f"{score.penalty:g}".replace("inf", "∞"),
            Cell(number(score.score), "best" if score.penalty == estimator.penalty_ else ""),
            number(score.spread),
        )
        for score in scores
    )
    text = (
        "Each penalty λ was evaluated with some training groups held out; the one in bold was chosen. The larger λ, "
        "the closer the weights are to the prior (∞: they are the prior). Losses are geometric means over folds. The "
        "spread over folds is relative to the other penalties; where it exceeds the differences, other penalties "
        "are as good."
    )
    notes = getattr(getattr(estimator, "choice_", None), "notes", ())
    table = Table(("penalty λ", "held-out loss", "spread over folds"), rows)
    return Section("penalty", "Choice of the penalty", " ".join([text, *notes]), tables=(table,))


def _effects_section(model: TableModel) -> Section | None:
    """Show the inputs with the largest coefficients; nothing for a network."""
    effects = model.coefficients[:MOST_EFFECTS]
    if not len(effects):
        return None
    what = quoted(effects[0].of)
    if model.classes is not None:
        what = f"the log-odds of {what}" if len(model.classes) == 2 else "the score of a class (log probability)"
    text = (
        f"Change of {what} if an input grows and the others stay as they are; the {len(effects)} largest of "
        f"{len(model.coefficients)}. Coefficients describe the model, not causes."
    )
    return Section("effects", "Effect of each input", text, tables=(explain_table(effects),))


# ---------------------------------------------------------------- columns and settings


def _columns_section(model: TableModel) -> Section:
    titles = ("name", "role", "kind", "note")
    rows = tuple(tuple(getattr(column, title) for title in titles) for column in model.columns)
    text = f"Encoded, the features are {many(len(model.encoder.names), 'input')} of the model."
    table = Table(titles, rows, titles, f"{len(rows)} columns")
    return Section("columns", "Columns of the training table", text, tables=(table,))


def _settings(report: ModelReport) -> list[tuple[str, str]]:
    model, evaluation = report.model, report.evaluation
    titles = {"source": "training table", "toporo": "fitted by toporo", "constant": "constant to beat"}
    settings = {titles.get(key, key): value for key, value in model.about.items()}
    settings |= {"estimator": type(model.estimator).__name__, **dict(sorted(model.estimator.get_params().items()))}
    lines = [(key.replace("_", " "), _setting(value)) for key, value in settings.items()]
    if evaluation is not None:
        lines.append(("evaluation", f"{evaluation.resamples} resamples, seed {evaluation.seed}"))
    return [*lines, ("page", versions())]


def _setting(value: Any) -> str:
    return number(value) if isinstance(value, float) else shorten(str(value), MOST_LETTERS, placeholder="…")
