"""One fitted model on one HTML page that opens offline: what it is, which groups count, and how it does."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

import toporo
from toporo.estimators.coefficients import CoefficientTable
from toporo.estimators.explain import GroupRow, RowTable
from toporo.estimators.league import LeagueTable
from toporo.files import write_text
from toporo.pages.charts import COLORS, Line, figure_section, line_chart
from toporo.pages.compare import against_section
from toporo.pages.maps import graph_chart
from toporo.pages.model_by_group import kriged_sections, league_sections
from toporo.pages.model_text import (
    Against,
    cautions,
    explain_table,
    groups_outside,
    interval_text,
    loss_name,
    number,
    penalty_scores,
    quoted,
    summary,
    test_hops,
    verdict,
)
from toporo.pages.render import Section, render
from toporo.pages.rows import Marks, Panel, row_chart
from toporo.pages.table import Table
from toporo.tables.contest import compare, metric_name
from toporo.tables.evaluate import MORE_IS_BETTER, TRAINED, Evaluation
from toporo.tables.model import TableModel
from toporo.tables.resample import Interval
from toporo.text import NO_PATH, hops_text, many, number_to_json, short_name
from toporo.topology.draw import TEST_COLOR, TRAIN_COLOR
from toporo.topology.effect import groups_in_effect

#: Inputs in the figure of effects, and in the table for each of several classes.
MOST_EFFECTS, MOST_PER_CLASS = 20, 5


def write_model_report(
    model: TableModel,
    out: Path,
    *,
    evaluation: Evaluation | None = None,
    source: str | None = None,
    against: Against = None,
) -> Path:
    """Write the page about ``model`` to ``out``, whole or not at all, and return its path.

    Parameters
    ----------
    model : as ``fit_table`` or ``load_model`` gives it.
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
    table = model.explain()
    fitted = f"Fitted by toporo {model.about.get('toporo', toporo.__version__)}"
    judged = f", evaluated on {quoted(source)}" if source else ""
    leading = verdict(model, evaluation, against)
    sentences = summary(model, table, evaluation, source, against)
    page = render(
        "model.html",
        title=f"A model of {model.target}",
        caption=f"{fitted}{judged}; page made by toporo {toporo.__version__}.",
        verdict=leading,
        summary=[sentence for sentence in sentences if sentence not in leading.text],
        sections=_sections(model, table, evaluation, source, against),
        cautions=cautions(model, table, evaluation, source, against),
        settings=_settings(model, evaluation),
    )
    write_text(out, page)
    return out


def describe_model(
    model: TableModel, *, evaluation: Evaluation | None = None, source: str | None = None, against: Against = None
) -> dict[str, Any]:
    """Return the content of the page as plain values for JSON: NaN is null, infinity is ``"inf"``.

    Parameters
    ----------
    model, evaluation, source, against : as :func:`write_model_report` takes them.
    """
    table, estimator, prior = model.explain(), model.estimator, model.estimator.prior_
    kept = ("measure", "normalization", "temperature", "saw", "effective_groups", "capped_mass")
    plain: dict[str, Any] = _plain({
        "task": model.task,
        "target": model.target,
        "group": model.group,
        "weight": model.weight,
        "classes": model.classes,
        "training_groups": len(model.groups),
        "test_groups": model.test_groups,
        "test_hops": test_hops(model),
        "groups_outside": sorted(groups_outside(model, evaluation)),
        "estimator": type(estimator).__name__,
        "penalty": estimator.penalty_,
        "penalty_scores": [
            {key: getattr(score, key) for key in ("penalty", "score", "spread", "folds")}
            for score in penalty_scores(model)
        ],
        "prior": None if prior is None else {key: getattr(prior, key) for key in kept},
        **_facts(model, table),
        "effects": [
            {"of": title, "input": name, "change": value}
            for title, changes in _effects(model).items()
            for name, value in changes
        ],
        "columns": [{key: getattr(c, key) for key in ("name", "role", "kind", "note")} for c in model.columns],
        "evaluation": None if evaluation is None else {"source": source, **evaluation.to_dict()},
        "against": None
        if evaluation is None or against is None
        else {"name": against[0], **against[1].to_dict(), "gain": compare(evaluation, against[1]).to_dict()},
        "verdict": verdict(model, evaluation, against).text,
        "summary": summary(model, table, evaluation, source, against),
        "cautions": cautions(model, table, evaluation, source, against),
        "settings": dict(_settings(model, evaluation)),
    })  # fmt: skip
    return plain


def _facts(model: TableModel, table: RowTable[Any]) -> dict[str, Any]:
    """Facts that depend on the kind of model."""
    if isinstance(table, LeagueTable):
        about = dict(table.about)
        return {"groups": about.pop("effects"), "league": table.to_dict(), **about}
    if isinstance(table, CoefficientTable):
        return {**table.about, "groups": [asdict(row) for row in table]}
    return {
        "effective_groups": groups_in_effect(row.weight for row in table),
        "rows_in_effect": model.estimator.rows_in_effect_,
        "ridge": model.estimator.ridge_,
        "groups": [asdict(row) for row in table],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return number_to_json(value) if isinstance(value, float) else value


# ---------------------------------------------------------------- sections


def _sections(
    model: TableModel, table: RowTable[Any], evaluation: Evaluation | None, source: str | None, against: Against
) -> list[Section]:
    """The sections in the order of the page: the evaluation, then what was fitted."""
    outside = groups_outside(model, evaluation)
    sections: list[Section | None] = []
    if evaluation is not None:
        sections += [_evaluation_section(evaluation, source)]
        sections += [None if against is None else against_section(evaluation, *against), _hop_section(evaluation)]
    if isinstance(table, CoefficientTable):
        sections += kriged_sections(model, table, outside)
    elif isinstance(table, LeagueTable):
        sections += league_sections(model, table, outside)
    else:
        rows = list(table)
        sections += [_graph_section(model, rows, outside), _weight_section(model, rows), _penalty_section(model)]
        text = f"Heaviest first. The loss is the {loss_name(model)}; hops are edges to the nearest test group."
        sections += [_training_section(model), _effects_section(model)]
        sections += [figure_section("table", "Every training group", text, explain_table(table))]
    sections.append(_columns_section(model))
    return [section for section in sections if section is not None]


def _evaluation_section(evaluation: Evaluation, source: str | None) -> Section:
    scores, metric = evaluation.groups, evaluation.metric
    mean = evaluation.headline[metric]
    marks = [
        Marks.of_intervals([score.metrics[metric] if score.trained == trained else None for score in scores], **looks)
        for trained, looks in ((True, {"label": "trained on"}), (False, _NEW))
        if any(score.trained == trained for score in scores)
    ]
    ends = [end for score in scores[:40] for end in vars(score.metrics[metric]).values() if math.isfinite(end)]
    limits = (-0.02, 1.02) if metric == "accuracy" else (0.0, 1.05 * max(ends, default=1.0) or 1.0)
    over = "groups not trained on" if evaluation.unseen else "groups"
    panel = Panel(marks, _metric_label(evaluation), limits=limits, reference=mean.value, band=(mean.low, mean.high),
                  reference_label=f"mean over {over}, shaded: its interval")  # fmt: skip
    lines = {
        **({"mean over groups not trained on": evaluation.unseen} if evaluation.unseen else {}),
        "mean over groups": evaluation.overall,
        "all rows together": evaluation.pooled,
        **{
            f"rows {where} of what validation has seen": part.metrics
            for where, part in evaluation.by_reach.items()
            if "outside" in evaluation.by_reach
        },
        f"worst group: {evaluation.worst.group}": evaluation.worst.metrics,
    }
    groups = {
        "group": [score.group for score in scores],
        "trained on": ["yes" if score.trained else "no" for score in scores],
        "edges away": [hops_text(score.hops) or "–" for score in scores],
        "rows": [f"{score.rows:,}" for score in scores],
        **{metric_name(name): [interval_text(score.metrics[name]) for score in scores] for name in evaluation.overall},
    }
    table = replace(Table.from_columns(groups, ""), title=f"All {len(scores)} groups evaluated", folded=True, wide=True)
    return figure_section(
        "evaluation",
        "How it does by group",
        f"Predictions for the rows{f' of {quoted(source)}' if source else ''}, worst group first, with "
        f"{100 * evaluation.level:g} % intervals ({evaluation.resamples} resamples, seed {evaluation.seed}).",
        row_chart([score.group for score in scores], [panel]),
        (_metric_table("over", lines), table),
    )


_NEW: dict[str, Any] = {"label": "not trained on", "marker": "s", "color": TEST_COLOR, "filled": False}


def _metric_label(evaluation: Evaluation) -> str:
    better = "higher is better" if evaluation.metric in MORE_IS_BETTER else "lower is better"
    return f"{metric_name(evaluation.metric)} ({better})"


def _metric_table(over: str, lines: Mapping[str, Mapping[str, Interval]]) -> Table:
    metrics = list(next(iter(lines.values())))
    rows = tuple((title, *(interval_text(values[m]) for m in metrics)) for title, values in lines.items())
    return Table((over, *map(metric_name, metrics)), rows, words=(over,), wide=len(metrics) > 3)


def _hop_section(evaluation: Evaluation) -> Section | None:
    if len(evaluation.by_hop) < 2:
        return None
    intervals = {hop: metrics[evaluation.metric] for hop, metrics in evaluation.by_hop.items()}
    marks = [
        Marks.of_intervals([each if (hop == TRAINED) == trained else None for hop, each in intervals.items()], **looks)
        for trained, looks in ((True, {"label": "trained on"}), (False, _NEW))
    ]
    return figure_section(
        "hops",
        "How it does by distance",
        "Mean over the groups by edges to the nearest training group. If the graph is informative, near groups do "
        "better than far ones.",
        row_chart(list(intervals), [Panel(marks, _metric_label(evaluation))]),
        (_metric_table("edges away", evaluation.by_hop),),
    )


# ---------------------------------------------------------------- weighted models


def _graph_section(model: TableModel, rows: Sequence[GroupRow], outside: Collection[str]) -> Section | None:
    graph = model.graph
    if graph is None:
        return None
    away = ", ".join(
        f"{count} at {many(int(hops), 'edge') if math.isfinite(hops) else NO_PATH}"
        for hops, count in sorted(Counter(test_hops(model).values()).items())
    )
    missing = [quoted(row.group) for row in rows if row.group not in graph]
    some = ", ".join([*missing[:5], *["…"] * (len(missing) > 5)])
    text = (
        f"The {graph.origin.kind} graph has {len(graph)} groups and {len(graph.edges)} edges. Training groups: the "
        "larger the heavier, the darker the larger their loss. Names are written where there is room."
        f"{f' Test groups by edges to the nearest training group: {away}.' if away else ''}"
        f"{f' Not in the graph: {some}.' if missing else ''}"
    )
    inside = [row for row in rows if row.group in graph]
    figure = graph_chart(
        graph,
        {"": {row.group: row.loss for row in inside}},
        f"{loss_name(model)} of training groups",
        squares={name for name in model.test_groups if name not in model.groups},
        sizes={row.group: row.weight for row in inside},
        ringed=outside,
        kinds=("training groups (area: weight)", "test groups", "no rows in training"),
    )
    return figure_section("groups", "The groups and their neighbours", text, figure)


def _weight_section(model: TableModel, rows: Sequence[GroupRow]) -> Section:
    order = sorted(rows, key=lambda row: (-row.weight, -row.prior, str(row.group)))
    prior, weight, loss = (np.array([getattr(row, name) for row in order]) for name in ("prior", "weight", "loss"))
    low, high = np.minimum(prior, weight), np.maximum(prior, weight)
    panels = [
        Panel(
            [
                Marks(weight, "weight q", low, high),
                Marks(prior, "prior p", marker="D", color=TEST_COLOR, filled=False, size=4.5),
            ],
            "share of the training objective",
            reference=1 / len(rows),
            reference_label="the same for all groups",
            limits=(0.0, 1.04 * float(high.max())),
        ),
        Panel([Marks(loss, marker="", color=COLORS[1])], f"{loss_name(model)} (dotted: mean)", reference=loss.mean()),
    ]
    return figure_section(
        "weights",
        "Prior, weight and loss by training group",
        "Heaviest first. The prior follows from the topology, and is the same for all groups without one; the losses "
        "pull the weights from there towards groups that do badly. A long bar: the losses decide how much a group "
        "counts. A large loss with a small weight: the prior keeps the group down, or weight would not help it.",
        row_chart([row.group for row in order], panels),
    )


def _penalty_section(model: TableModel) -> Section | None:
    scores = sorted(penalty_scores(model), key=lambda score: score.penalty)
    if not scores:
        return None
    names = ["∞" if math.isinf(score.penalty) else f"{score.penalty:g}" for score in scores]
    values, spread = (np.array([getattr(score, name) for score in scores]) for name in ("score", "spread"))
    chosen = [place for place, score in enumerate(scores) if score.penalty == model.estimator.penalty_]
    marks = [
        Marks([values[place] for place in chosen], "chosen", size=11, color=TEST_COLOR, filled=False, at=chosen),
        Marks(values, "geometric mean over folds, bar: spread over folds", values - spread, values + spread),
    ]
    standardised = model.classes is None and getattr(model.estimator, "standardize", False)
    label = "loss held out (standardised)" if standardised else f"{loss_name(model)} held out"
    return figure_section(
        "penalty",
        "How the penalty was chosen",
        "Each penalty λ was tried with training groups held out; the one with the lowest loss there was taken. The "
        "larger λ, the nearer the weights stay to the prior (∞: they are the prior). The spread is relative to the "
        "other penalties in a fold; where it exceeds the differences, other penalties would have done as well.",
        row_chart([f"λ = {name}" for name in names], [Panel(marks, label)]),
    )


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
        f"The objective and the heaviest groups over {len(history)} epochs. Curves that still move at the end ask for "
        "more epochs.",
        line_chart([record.round for record in history], panels, "epoch"),
    )


def _effects(model: TableModel) -> dict[str, list[tuple[str, float]]]:
    """The inputs with the largest effects by class or target; empty for a network."""
    most = MOST_PER_CLASS if len(model.classes or ()) > 2 else MOST_EFFECTS
    effects = {} if model.by_group else model.coefficients.by_target(most)
    return {name: effects[name] for name in model.classes or (model.target,) if name in effects}


def _effects_section(model: TableModel) -> Section | None:
    effects = _effects(model)
    if not any(effects.values()):
        return None
    inputs, unit = len(model.encoder.names), model.coefficients.unit
    title = "What moves the prediction"
    if len(effects) == 1:
        ((target, changes),) = effects.items()
        what = f"the log-odds of {quoted(target)}" if model.classes is not None else quoted(target)
        names, values = zip(*changes, strict=True)
        text = f"By how much {what} changes if an input grows by {unit}, the others as they are."
        if len(changes) < inputs:
            text += f" The {len(changes)} largest of {inputs}."
        panel = Panel([Marks(values, marker="")], f"change of {what} by {unit} of the input")
        return figure_section("effects", title, text, row_chart(names, [panel]))
    rows = [(of, name, number(value)) for of, changes in effects.items() for name, value in changes]
    columns = dict(zip(("class", "input", "change of its score"), zip(*rows, strict=True), strict=True))
    text = (
        "By how much the score of a class (the log of its probability, up to what all classes share) changes if an "
        f"input grows by {unit}, the others as they are; the largest {min(MOST_PER_CLASS, inputs)} of {inputs} per "
        "class."
    )
    return figure_section(
        "effects", title, text, Table.from_columns(columns, f"All {len(effects)} classes", ("class", "input"))
    )


# ---------------------------------------------------------------- columns and settings


def _columns_section(model: TableModel) -> Section:
    tables = []
    for what, columns in (
        ("columns used", [column for column in model.columns if column.role != "left out"]),
        ("columns left out", [column for column in model.columns if column.role == "left out"]),
    ):
        cells = {title: [getattr(c, title) for c in columns] for title in ("name", "role", "kind", "note")}
        tables += [Table.from_columns(cells, f"{len(columns)} {what}", tuple(cells))] * bool(columns)
    text = f"They become {many(len(model.encoder.names), 'input')} of the model."
    return Section("columns", "Columns of the training table", text, tables=tuple(tables))


def _settings(model: TableModel, evaluation: Evaluation | None) -> list[tuple[str, str]]:
    estimator = model.estimator
    titles = {"source": "training table", "toporo": "fitted by toporo", "constant": "constant to beat"}
    return [
        *((titles.get(key, key.replace("_", " ")), _setting(value)) for key, value in model.about.items()),
        ("estimator", type(estimator).__name__),
        *((key.replace("_", " "), _setting(value)) for key, value in sorted(estimator.get_params().items())),
        *(
            ("solver", f"{record.steps} steps; at most {record.relative_gap:.0e} of its value above the optimum")
            for record in estimator.history_
            if hasattr(record, "relative_gap")
        ),
        *([] if evaluation is None else [("evaluation", f"{evaluation.resamples} resamples, seed {evaluation.seed}")]),
        ("page", f"toporo {toporo.__version__}, Python {platform.python_version()}, numpy {np.__version__}"),
    ]


def _setting(value: Any) -> str:
    """A setting on one line; long ones are cut."""
    if isinstance(value, float):
        return number(value)
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else f"{text[:199]}…"
