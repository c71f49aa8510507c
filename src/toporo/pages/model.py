"""Page about one fitted model: its errors by group, its parts, and its groups."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import toporo
from toporo.estimators.coefficients import CoefficientTable
from toporo.estimators.explain import GroupRow
from toporo.estimators.league import LeagueTable
from toporo.files import write_text
from toporo.pages.cells import explain_table, interval_text, number, quoted, versions
from toporo.pages.charts import COLORS, Line, figure_section, line_chart
from toporo.pages.compare import against_section
from toporo.pages.maps import graph_chart
from toporo.pages.model_by_group import kriged_sections, league_sections
from toporo.pages.model_text import ModelReport, cautions, summary, verdict
from toporo.pages.render import Section, render
from toporo.pages.rows import Marks, Panel, row_chart
from toporo.pages.table import Cell, Table
from toporo.tables.contest import compare, metric_name
from toporo.tables.evaluate import MORE_IS_BETTER, Evaluation
from toporo.tables.model import TableModel
from toporo.tables.resample import Interval
from toporo.text import hops_text, many, number_to_json, short_name
from toporo.topology.draw import TEST_COLOR, TRAIN_COLOR

#: Coefficients that are shown.
MOST_EFFECTS = 20
#: What JSON has of a prior; its weights are in the table of groups.
PRIOR_FIELDS = ("measure", "normalization", "temperature", "saw", "effective_groups", "capped_mass")


def write_model_report(
    model: TableModel,
    out: Path,
    *,
    evaluation: Evaluation | None = None,
    source: str | None = None,
    against: tuple[str, Evaluation] | None = None,
) -> Path:
    """Write the page about ``model`` to ``out``, whole or not at all, and return its path.

    Parameters
    ----------
    model : from ``fit_table`` or ``load_model``.
    out : the file, which is replaced if it exists.
    evaluation : metrics on another table, from ``model.evaluate``; None leaves that section out.
    source : the name of that table on the page.
    against : another model's name and its evaluation on the same rows, to compare with.

    >>> import tempfile
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> table = {"town": np.repeat(list("ABC"), 20), "x": rng.normal(size=60), "y": rng.normal(size=60)}
    >>> model = toporo.fit_table(table, target="y", group="town", model="linear", penalty=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model_report(model, Path(folder) / "report.html").name
    'report.html'
    """
    report = ModelReport(model, evaluation, source, against)
    fitted = f"Fitted by toporo {model.about.get('toporo', toporo.__version__)}"
    evaluated = f", evaluated on {quoted(source)}" if source else ""
    main = verdict(report)
    page = render(
        "model.html",
        title=f"A model of {model.target}",
        caption=f"{fitted}{evaluated}; page made by toporo {toporo.__version__}.",
        verdict=main,
        summary=[sentence for sentence in summary(report) if sentence not in main.text],
        sections=_sections(report),
        cautions=cautions(report),
        settings=_settings(report),
    )
    write_text(out, page)
    return out


def describe_model(
    model: TableModel,
    *,
    evaluation: Evaluation | None = None,
    source: str | None = None,
    against: tuple[str, Evaluation] | None = None,
) -> dict[str, Any]:
    """Return the content of the page as plain values for JSON: NaN is null, infinity is ``"inf"``.

    The table of the model is as ``toporo explain`` gives it, and metrics as ``toporo evaluate`` does.

    Parameters
    ----------
    model, evaluation, source, against : as for :func:`write_model_report`.
    """
    report = ModelReport(model, evaluation, source, against)
    table, prior = report.table, model.estimator.prior_
    compared = None
    if evaluation is not None and against is not None:
        name, other = against
        compared = {"name": name, **other.to_dict(), "gain": compare(evaluation, other).to_dict()}
    return {
        "task": model.task,
        "target": model.target,
        "group": model.group,
        "classes": model.classes,
        "training_groups": len(model.groups),
        "test_groups": model.test_groups,
        "groups_outside": sorted(report.groups_outside),
        "estimator": type(model.estimator).__name__,
        "penalty": number_to_json(model.estimator.penalty_),
        "prior": None if prior is None else {key: getattr(prior, key) for key in PRIOR_FIELDS},
        **table.about,
        table.key: table.to_dict(),
        "evaluation": None if evaluation is None else {"source": source, **evaluation.to_dict()},
        "against": compared,
        "verdict": verdict(report).text,
        "summary": summary(report),
        "cautions": cautions(report),
        "settings": dict(_settings(report)),
    }


def _sections(report: ModelReport) -> list[Section]:
    """Return the sections in the order of the page: the evaluation, then the model."""
    model, table, evaluation = report.model, report.table, report.evaluation
    sections: list[Section | None] = []
    if evaluation is not None:
        sections.append(_evaluation_section(evaluation, report.source))
        sections.append(None if report.against is None else against_section(evaluation, *report.against))
    if isinstance(table, CoefficientTable):
        sections += kriged_sections(report, table)
    elif isinstance(table, LeagueTable):
        sections += league_sections(report, table)
    else:
        sections += [_graph_section(report), _weight_section(report), _penalty_section(report)]
        sections += [_training_section(model), _effects_section(model)]
        text = f"Heaviest first. The loss is the {report.loss_name}; hops are edges to the nearest test group."
        sections.append(Section("table", "All training groups", text, tables=(explain_table(table),)))
    sections.append(_columns_section(model))
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
    lines[f"worst group: {evaluation.worst.group}"] = evaluation.worst.metrics
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


def _graph_section(report: ModelReport) -> Section | None:
    model, graph = report.model, report.model.graph
    if graph is None:
        return None
    hops = sorted({int(away) for away in report.test_hops.values() if math.isfinite(away)})
    away = "" if not hops else many(hops[0], "edge") if len(hops) == 1 else f"{hops[0]} to {hops[-1]} edges"
    inside = [row for row in report.table if row.group in graph]
    absent = many(len(report.table) - len(inside), "training group")
    text = (
        f"The {graph.origin.kind} graph has {len(graph)} groups and {len(graph.edges)} edges. Training groups are "
        "larger the larger their weight, and darker the larger their loss. Names are shown where there is room."
        f"{f' Test groups are {away} from the nearest training group.' if away else ''}"
        f"{f' Not in the graph: {absent}.' if len(inside) < len(report.table) else ''}"
    )
    figure = graph_chart(
        graph,
        {"": {row.group: row.loss for row in inside}},
        f"{report.loss_name} of training groups",
        squares={name for name in model.test_groups if name not in model.groups},
        sizes={row.group: row.weight for row in inside},
        ringed=report.groups_outside,
    )
    return figure_section("groups", "The groups and their neighbours", text, figure)


def _weight_section(report: ModelReport) -> Section:
    order: list[GroupRow] = sorted(report.table, key=lambda row: (-row.weight, -row.prior, str(row.group)))
    prior, weight, loss = (np.array([getattr(row, name) for row in order]) for name in ("prior", "weight", "loss"))
    shares = [
        Marks(weight, "weight q", np.minimum(prior, weight), np.maximum(prior, weight)),
        Marks(prior, "prior p", marker="D", color=TEST_COLOR, filled=False, size=4.5),
    ]
    label, uniform = "share of the training objective", 1 / len(order)
    losses = Marks(loss, marker="", color=COLORS[1])
    panels = [
        Panel(shares, label, reference=uniform, reference_label="the same for all groups", zero=True),
        Panel([losses], f"{report.loss_name} (dotted: mean)", reference=loss.mean()),
    ]
    return figure_section(
        "weights",
        "Prior, weight and loss by training group",
        "Heaviest first. The prior follows from the topology; without one it is the same for all groups. The losses "
        "move the weights from the prior towards groups with large losses: a long bar means that the losses decide "
        "how much a group counts. A large loss with a small weight means that the prior gives the group little "
        "weight, or that more weight would not reduce its loss.",
        row_chart([row.group for row in order], panels),
    )


def _penalty_section(report: ModelReport) -> Section | None:
    scores = report.penalty_scores
    if not scores:
        return None
    estimator = report.model.estimator
    rows = tuple(
        (
            "∞" if math.isinf(score.penalty) else f"{score.penalty:g}",
            Cell(number(score.score), "best" if score.penalty == estimator.penalty_ else ""),
            number(score.spread),
        )
        for score in scores
    )
    label = "held-out loss (standardised)" if report.model.classes is None else f"held-out {report.loss_name}"
    text = (
        "Each penalty λ was evaluated with some training groups held out; the one in bold was chosen. The larger λ, "
        "the closer the weights are to the prior (∞: they are the prior). Losses are geometric means over folds. The "
        "spread over folds is relative to the other penalties; where it exceeds the differences, other penalties "
        "are as good."
    )
    table = Table(("penalty λ", label, "spread over folds"), rows)
    return Section("penalty", "Choice of the penalty", text, tables=(table,))


def _training_section(model: TableModel) -> Section | None:
    history = [record for record in model.estimator.history_ if hasattr(record, "weights")]
    if not history:
        return None
    heaviest = sorted(history[-1].weights.items(), key=lambda item: (-item[1], str(item[0])))[: len(COLORS)]
    weights = [
        Line([record.weights.get(name, math.nan) for record in history], short_name(name, 22)) for name, _ in heaviest
    ]
    objective = Line([record.loss for record in history], style={"color": TRAIN_COLOR})
    panels = {"training objective": [objective], "weight q of the heaviest groups": weights}
    return figure_section(
        "training",
        "Training",
        f"The objective and the heaviest groups over {len(history)} epochs. Train longer if the curves still move at "
        "the end.",
        line_chart([record.round for record in history], panels, "epoch"),
    )


def _effects_section(model: TableModel) -> Section | None:
    """Show the inputs with the largest coefficients; nothing for a network."""
    effects = model.coefficients[:MOST_EFFECTS]
    if not len(effects):
        return None
    classes, unit = model.classes, model.coefficients.unit
    what = quoted(effects[0].of)
    if classes is not None:
        what = f"the log-odds of {what}" if len(classes) == 2 else "the score of a class (log probability)"
    text = f"Change of {what} if an input grows by {unit} and the others stay as they are."
    if len(effects) < len(model.coefficients):
        text += f" The {len(effects)} largest of {len(model.coefficients)}."
    title = "Effect of each input"
    if len(classes or ()) > 2:
        return Section("effects", title, text, tables=(explain_table(effects),))
    panel = Panel([Marks([row.comparable for row in effects], marker="")], f"change of {what} by {unit} of the input")
    return figure_section("effects", title, text, row_chart([row.input for row in effects], [panel]))


# ---------------------------------------------------------------- columns and settings


def _columns_section(model: TableModel) -> Section:
    tables = []
    for what, columns in (
        ("columns used", [column for column in model.columns if column.role != "left out"]),
        ("columns left out", [column for column in model.columns if column.role == "left out"]),
    ):
        titles = ("name", "role", "kind", "note")
        rows = tuple(tuple(getattr(column, title) for title in titles) for column in columns)
        if columns:
            tables.append(Table(titles, rows, titles, f"{len(columns)} {what}"))
    text = f"Encoded, they are {many(len(model.encoder.names), 'input')} of the model."
    return Section("columns", "Columns of the training table", text, tables=tuple(tables))


def _settings(report: ModelReport) -> list[tuple[str, str]]:
    model, evaluation = report.model, report.evaluation
    titles = {"source": "training table", "toporo": "fitted by toporo", "constant": "constant to beat"}
    settings = {titles.get(key, key): value for key, value in model.about.items()}
    settings |= {"estimator": type(model.estimator).__name__, **dict(sorted(model.estimator.get_params().items()))}
    lines = [(key.replace("_", " "), _setting(value)) for key, value in settings.items()]
    for record in model.estimator.history_:
        if hasattr(record, "relative_gap"):
            gap = f"at most {record.relative_gap:.0e} of its value above the optimum"
            lines.append(("solver", f"{record.steps} steps; {gap}"))
    if evaluation is not None:
        lines.append(("evaluation", f"{evaluation.resamples} resamples, seed {evaluation.seed}"))
    return [*lines, ("page", versions())]


def _setting(value: Any) -> str:
    """Return a setting on one line, cut if it is long."""
    if isinstance(value, float):
        return number(value)
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else f"{text[:199]}…"
