"""One fitted model on one HTML page that opens offline: what it is, which groups it listens to, how it does."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import toporo
from toporo.estimators.coefficients import CoefficientTable
from toporo.estimators.explain import GroupRow
from toporo.estimators.league import LeagueTable
from toporo.files import write_text
from toporo.pages import model_figures as figures
from toporo.pages.charts import figure_section
from toporo.pages.compare import against_section
from toporo.pages.model_kriged import LONG, Parts, fold, kriged_parts
from toporo.pages.model_league import league_parts
from toporo.pages.model_words import (
    cautions,
    groups_outside,
    interval_text,
    loss_name,
    number,
    penalty_scores,
    quoted,
    share,
    summary,
    test_hops,
    verdict,
)
from toporo.pages.render import Section, render
from toporo.pages.table import Table
from toporo.tables.contest import compare, constant_in_words, metric_name, unfair
from toporo.tables.evaluate import Evaluation
from toporo.tables.model import TableModel
from toporo.tables.resample import Interval
from toporo.text import NO_PATH, hops_text, many, number_to_json
from toporo.topology.effect import groups_in_effect

#: Inputs in the figure of effects, and in the table for each of several classes.
MOST_EFFECTS, MOST_PER_CLASS = 20, 5


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
    model : as ``fit_table`` or ``load_model`` gives it.
    out : the file, which is replaced if it is there.
    evaluation : how it did on another table, from ``model.evaluate``; None leaves that section out.
    source : the name of that table, as the page shall call it.
    against : another model's name and how it did on the same rows, to compare with.

    >>> import tempfile
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> table = {"town": np.repeat(list("ABC"), 20), "x": rng.normal(size=60), "y": rng.normal(size=60)}
    >>> model = toporo.fit_table(table, target="y", group="town", model="linear", penalty=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model_report(model, Path(folder) / "report.html").name
    'report.html'
    """
    parts = _parts(model, evaluation, source, against)
    fitted = f"Fitted by toporo {model.about.get('toporo', toporo.__version__)}"
    judged = f", evaluated on {quoted(source)}" if source else ""
    comes_to = verdict(model, evaluation, against)
    page = render(
        "model.html",
        title=f"A model of {model.target}",
        caption=f"{fitted}{judged}; page made by toporo {toporo.__version__}.",
        verdict=comes_to,
        summary=[words for words in _summary(parts, evaluation, against) if words not in comes_to.text],
        sections=_sections(model, parts, evaluation, source, against),
        cautions=parts.cautions,
        settings=_settings(model, evaluation),
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
    """What the page says, as plain values for JSON: not a number is null, an endless one is ``"inf"``.

    Parameters
    ----------
    model, evaluation, source, against : as :func:`write_model_report` takes them.
    """
    parts = _parts(model, evaluation, source, against)
    estimator, prior = model.estimator, model.estimator.prior_
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
            for score in penalty_scores(estimator)
        ],
        "prior": None if prior is None else {key: getattr(prior, key) for key in kept},
        **parts.facts,
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
        "summary": _summary(parts, evaluation, against),
        "cautions": parts.cautions,
        "settings": dict(_settings(model, evaluation)),
    })  # fmt: skip
    return plain


def _plain(value: Any) -> Any:
    """As JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return number_to_json(value) if isinstance(value, float) else value


# ---------------------------------------------------------------- sections


def _parts(
    model: TableModel, evaluation: Evaluation | None, source: str | None, against: tuple[str, Evaluation] | None
) -> Parts:
    """What differs with the kind of model."""
    table = model.explain()
    if isinstance(table, CoefficientTable):
        return kriged_parts(model, table, evaluation, source, against)
    if isinstance(table, LeagueTable):
        return league_parts(model, table, evaluation, source, against)
    rows = list(table)
    return Parts(
        summary(model, rows, evaluation, source),
        cautions(model, rows, evaluation, source, against),
        {
            "effective_groups": groups_in_effect(row.weight for row in rows),
            "rows_in_effect": model.estimator.rows_in_effect_,
            "ridge": model.estimator.ridge_,
            "groups": [asdict(row) for row in rows],
        },
        partial(_group_sections, model, rows, groups_outside(model, evaluation)),
        partial(_last_sections, model, rows),
    )


def _summary(parts: Parts, evaluation: Evaluation | None, against: tuple[str, Evaluation] | None) -> list[str]:
    """The page in sentences; what a model loses to is said first."""
    if evaluation is None:
        return parts.summary
    first = [constant_in_words(evaluation, "The model")]
    if against is not None:
        name, other = quoted(against[0]), against[1]
        first += [compare(evaluation, other).words("The model", name), unfair(evaluation, other, "the model", name)]
    return [*filter(None, first), *parts.summary]


def _sections(
    model: TableModel,
    parts: Parts,
    evaluation: Evaluation | None,
    source: str | None,
    against: tuple[str, Evaluation] | None,
) -> list[Section]:
    """What was judged comes first."""
    sections = [
        None if evaluation is None else _evaluation_section(evaluation, source),
        None if evaluation is None or against is None else against_section(evaluation, *against),
        None if evaluation is None or len(evaluation.by_hop) < 2 else _hop_section(evaluation),
        *parts.first(),
        *parts.last(),
        _columns_section(model),
    ]
    return [section for section in sections if section is not None]


def _group_sections(model: TableModel, rows: Sequence[GroupRow], outside: Collection[str]) -> list[Section]:
    return [
        _graph_section(model, rows, outside),
        figure_section(
            "prior",
            "Prior and weight by training group",
            "The prior is the topology's say, the same for all groups without one; the losses pull the weights from "
            "there towards groups that do badly. A long bar: the losses decide how much a group counts. A short one: "
            "the prior.",
            figures.prior_figure(rows),
        ),
        figure_section(
            "losses",
            "Loss and weight by training group",
            "Worst first. A group with a large loss and a small weight is one that the prior keeps down, or that "
            "weight would not help.",
            figures.loss_figure(rows, loss_name(model)),
        ),
    ]


def _last_sections(model: TableModel, rows: Sequence[GroupRow]) -> list[Section | None]:
    of_model = [_penalty_section(model), _training_section(model), _effects_section(model)]
    return [*of_model, _groups_section(model, rows)]


def _graph_section(model: TableModel, rows: Sequence[GroupRow], beyond: Collection[str]) -> Section:
    graph = model.graph
    if graph is None:
        text = "There is no graph. Weight of every training group, coloured by its loss."
        return figure_section("groups", "The groups", text, figures.weight_figure(rows))
    sentences = [
        f"The {graph.origin.kind} graph has {len(graph)} groups and {len(graph.edges)} edges. Training groups: the "
        "larger the heavier, the darker the larger their loss."
    ]
    counts = sorted(Counter(test_hops(model).values()).items())
    if counts:
        away = ", ".join(f"{count} at {_edges(hops)}" for hops, count in counts)
        sentences.append(f"Test groups by edges to the nearest training group: {away}.")
    outside = [row.group for row in rows if row.group not in graph]
    if outside:
        sentences.append(f"Not in the graph: {', '.join(map(quoted, outside[:5]))}{', …' if len(outside) > 5 else ''}.")
    if len(graph) > figures.NAMED:
        sentences.append("Names are written where there is room, those of the heaviest groups first.")
    figure = figures.graph_figure(graph, rows, set(model.test_groups), beyond)
    return figure_section("groups", "The groups and who is near whom", " ".join(sentences), figure)


def _edges(hops: float) -> str:
    text = hops_text(hops)
    return text if text == NO_PATH else many(int(hops), "edge")


def _evaluation_section(evaluation: Evaluation, source: str | None) -> Section:
    lines = {
        **({"mean over groups not trained on": evaluation.unseen} if evaluation.unseen else {}),
        "mean over groups": evaluation.overall,
        "all rows together": evaluation.pooled,
        f"worst group: {evaluation.worst.group}": evaluation.worst.metrics,
    }
    groups = Table(
        ("group", "trained on", "edges away", "rows", *map(metric_name, evaluation.overall)),
        tuple(
            (
                score.group,
                "yes" if score.trained else "no",
                hops_text(score.hops) or "–",
                f"{score.rows:,}",
                *(interval_text(score.metrics[metric]) for metric in evaluation.overall),
            )
            for score in evaluation.groups
        ),
        words=("group",),
        title=f"All {len(evaluation.groups)} groups evaluated",
        folded=True,
        wide=True,
    )
    where = f" of {quoted(source)}" if source else ""
    return figure_section(
        "evaluation",
        "How it does by group",
        f"Predictions for the rows{where}, worst group first, with {100 * evaluation.level:g} % intervals "
        f"({evaluation.resamples} resamples, seed {evaluation.seed}).",
        figures.metric_figure(evaluation),
        (_metric_grid("over", lines), groups),
    )


def _metric_grid(over: str, lines: Mapping[str, Mapping[str, Interval]]) -> Table:
    """Metrics with their intervals, one line per title."""
    metrics = list(next(iter(lines.values())))
    rows = tuple((title, *(interval_text(values[m]) for m in metrics)) for title, values in lines.items())
    return Table((over, *map(metric_name, metrics)), rows, words=(over,), wide=len(metrics) > 3)


def _hop_section(evaluation: Evaluation) -> Section:
    return figure_section(
        "hops",
        "How it does by distance",
        "Mean over the groups that are so many edges from the nearest training group. If the graph says anything, near "
        "groups should do better than far ones.",
        figures.hop_figure(evaluation),
        (_metric_grid("edges away", evaluation.by_hop),),
    )


def _penalty_section(model: TableModel) -> Section | None:
    scores = penalty_scores(model.estimator)
    if not scores:
        return None
    standardised = model.classes is None and getattr(model.estimator, "standardize", False)
    label = "loss held out (standardised)" if standardised else f"{loss_name(model)} held out"
    return figure_section(
        "penalty",
        "How the penalty was chosen",
        "Each penalty was tried with training groups held out; the one with the lowest loss there, the geometric mean "
        "over folds, was taken. Bars are spreads over folds: the standard deviation of the loss, in a fold relative to "
        "that of the other penalties there. Where they dwarf the differences, other penalties would have done as well.",
        figures.penalty_figure(scores, model.estimator.penalty_, label),
    )


def _training_section(model: TableModel) -> Section | None:
    history = [record for record in model.estimator.history_ if hasattr(record, "weights")]
    if not history:
        return None
    return figure_section(
        "training",
        "Training",
        f"The objective and the heaviest groups over {len(history)} epochs. Curves that still move at the end ask for "
        "more epochs.",
        figures.training_figure(history),
    )


# ---------------------------------------------------------------- coefficients


def _effects(model: TableModel) -> dict[str, list[tuple[str, float]]]:
    """By class or target the inputs that move it most, each by its unit; empty for a network."""
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
        figure = figures.effect_figure(names, values, f"change of {what} by {unit} of the input")
        return figure_section("effects", title, text, figure)
    rows = [
        ("" if i else name, label, number(value))
        for name, changes in effects.items()
        for i, (label, value) in enumerate(changes)
    ]
    text = (
        "By how much the score of a class (the log of its probability, up to what all classes share) changes if an "
        f"input grows by {unit}, the others as they are; the largest {min(MOST_PER_CLASS, inputs)} of {inputs} per "
        "class."
    )
    columns = ("class", "input", "change of its score")
    return Section("effects", title, text, tables=(fold(columns, rows, columns[:2], f"All {len(effects)} classes"),))


# ---------------------------------------------------------------- tables


def _groups_section(model: TableModel, rows: Sequence[GroupRow]) -> Section:
    cells = {
        "group": [str(row.group) for row in rows],
        "rows": [f"{row.size:,}" for row in rows],
        f"loss ({loss_name(model)})": [number(row.loss) for row in rows],
        "centrality": [number(row.centrality) for row in rows],
        "prior": [share(row.prior) for row in rows],
        "weight": [share(row.weight) for row in rows],
        "to a test group": [hops_text(row.hops) or "–" for row in rows],
    }
    for title in ("centrality", "to a test group"):
        if set(cells[title]) == {"–"}:
            del cells[title]
    lines = list(zip(*cells.values(), strict=True))
    grid = fold(list(cells), lines, ["group"], f"All {len(rows)} training groups")
    return Section("table", "Every training group", "Heaviest first.", tables=(grid,))


def _columns_section(model: TableModel) -> Section:
    used = [(c.name, c.role, c.kind, c.note) for c in model.columns if c.role != "left out"]
    unused = tuple((c.name, c.kind, c.note) for c in model.columns if c.role == "left out")
    titles = ("column", "role", "kind", "note")
    tables = [fold(titles, used, titles, f"{len(used)} columns used")]
    if unused:
        why = ("column", "kind", "why")
        tables.append(Table(why, unused, why, f"Left out: {len(unused)}", folded=len(unused) > LONG))
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
