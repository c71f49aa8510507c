"""One fitted model on one HTML page that opens offline: what it is, which groups it listens to, how it does."""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

import toporo
from toporo.data.encode import NumberRule
from toporo.files import write_text
from toporo.pages import model_figures as figures
from toporo.pages.model_words import (
    cautions,
    effective_groups,
    hops_text,
    interval_text,
    loss_name,
    number,
    penalty_scores,
    quoted,
    share,
    summary,
    test_hops,
)

if TYPE_CHECKING:
    from toporo.estimators.explain import GroupRow
    from toporo.tables.evaluate import Evaluation
    from toporo.tables.model import TableModel
    from toporo.tables.resample import Interval


#: Tables with more rows than this are folded away.
LONG = 30
#: Inputs in the figure of effects, and in the table for each of many classes.
MOST_EFFECTS, MOST_A_CLASS = 20, 5


@dataclass(frozen=True)
class Grid:
    """A table of text: ``words`` are columns of no numbers; folded, it opens at a click; wide, it leaves the column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ()
    title: str = ""
    folded: bool = False
    wide: bool = False


@dataclass(frozen=True)
class Part:
    """A section of the page."""

    name: str
    title: str
    text: str
    svgs: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()


def write_model_report(
    model: TableModel, out: Path, *, evaluation: Evaluation | None = None, source: str | None = None
) -> Path:
    """Write the page about ``model`` to ``out``, whole or not at all, and return its path.

    Parameters
    ----------
    evaluation : how it did on another table, from ``model.evaluate``; None leaves that section out.
    source : the name of that table, as the page shall call it.
    """
    rows = list(model.explain())
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(_resource("model_template.html")).render(
        title=f"A model of {model.target}",
        style=_style(),
        caption=_caption(model, source),
        summary=summary(model, rows, evaluation, source),
        parts=_parts(model, rows, evaluation, source),
        cautions=cautions(model, rows, evaluation, source),
        settings=_settings(model, evaluation),
    )
    write_text(out, page)
    return out


def describe_model(
    model: TableModel, *, evaluation: Evaluation | None = None, source: str | None = None
) -> dict[str, Any]:
    """What the page says, as plain values for JSON: not a number is null, an endless one is ``"inf"``."""
    rows = list(model.explain())
    estimator, prior = model.estimator, model.estimator.prior_
    scores = penalty_scores(estimator)
    content = {
        "task": model.task,
        "target": model.target,
        "group": model.group,
        "weight": model.weight,
        "classes": model.classes,
        "training_groups": len(rows),
        "test_groups": model.test_groups,
        "test_hops": test_hops(model),
        "estimator": type(estimator).__name__,
        "penalty": estimator.penalty_,
        "penalty_scores": scores and [
            {"penalty": s.penalty, "score": s.score, "spread": s.spread, "folds": s.folds} for s in scores
        ],
        "prior": None if prior is None else {
            "measure": prior.measure,
            "normalization": prior.normalization,
            "temperature": prior.temperature,
            "saw": prior.saw,
            "effective_groups": prior.effective_groups,
        },
        "effective_groups": effective_groups(row.weight for row in rows),
        "groups": [_row_dict(row) for row in rows],
        "effects": [
            {"of": title, "input": name, "change": value}
            for title, found in _effects(model).items()
            for name, value in found
        ],
        "columns": [
            {"name": c.name, "role": c.role, "kind": c.kind, "note": c.note} for c in model.columns
        ],
        "evaluation": None if evaluation is None else {"source": source, **evaluation.to_dict()},
        "summary": summary(model, rows, evaluation, source),
        "cautions": cautions(model, rows, evaluation, source),
        "settings": dict(_settings(model, evaluation)),
    }  # fmt: skip
    plain: dict[str, Any] = _plain(content)
    return plain


def _resource(name: str) -> str:
    return files("toporo.pages").joinpath(name).read_text(encoding="utf-8")


def _style() -> str:
    """The style of the other reports' template: the pages look alike and there is one place to change it."""
    found = re.search(r"<style>(.*?)</style>", _resource("template.html"), flags=re.DOTALL)
    return found.group(1) if found else ""


def _caption(model: TableModel, source: str | None) -> str:
    fitted = f"Fitted by toporo {model.about.get('toporo', toporo.__version__)}"
    judged = f", evaluated on {quoted(source)}" if source else ""
    return f"{fitted}{judged}; page made by toporo {toporo.__version__}."


# ---------------------------------------------------------------- parts


def _parts(
    model: TableModel, rows: Sequence[GroupRow], evaluation: Evaluation | None, source: str | None
) -> list[Part]:
    found: list[Part | None] = [
        _graph_part(model, rows),
        _prior_part(rows),
        _loss_part(model, rows),
        _evaluation_part(evaluation, source),
        _hop_part(evaluation),
        _penalty_part(model),
        _training_part(model),
        _effects_part(model),
        _groups_part(model, rows),
        _columns_part(model),
    ]
    return [part for part in found if part is not None]


def _drawn(name: str, figure: Figure) -> tuple[str]:
    return (figures.svg_of(name, figure),)


def _evaluation_part(evaluation: Evaluation | None, source: str | None) -> Part | None:
    if evaluation is None:
        return None
    metrics = tuple(evaluation.overall)
    lines: list[tuple[str, Mapping[str, Interval]]] = [
        ("mean over groups", evaluation.overall),
        ("all rows together", evaluation.pooled),
        (f"worst group: {evaluation.worst.group}", evaluation.worst.metrics),
    ]
    overall = Grid(
        ("over", *map(figures.metric_name, metrics)),
        tuple((title, *(interval_text(found[m]) for m in metrics)) for title, found in lines),
        words=("over",),
    )
    groups = Grid(
        ("group", "trained on", "edges away", "rows", *map(figures.metric_name, metrics)),
        tuple(
            (
                score.group,
                "yes" if score.trained else "no",
                hops_text(score.hops),
                f"{score.rows:,}",
                *(interval_text(score.metrics[m]) for m in metrics),
            )
            for score in evaluation.groups
        ),
        words=("group",),
        title=f"All {len(evaluation.groups)} groups evaluated",
        folded=True,
        wide=True,
    )
    where = f" of {quoted(source)}" if source else ""
    return Part(
        "evaluation",
        "How it does by group",
        f"Predictions for the rows{where}, worst group first, with {100 * evaluation.level:g} % intervals "
        f"({evaluation.resamples} resamples, seed {evaluation.seed}).",
        _drawn("evaluation", figures.metric_figure(evaluation)),
        (overall, groups),
    )


def _hop_part(evaluation: Evaluation | None) -> Part | None:
    if evaluation is None or len(evaluation.by_hop) < 2:
        return None
    metrics = tuple(evaluation.overall)
    grid = Grid(
        ("edges away", *map(figures.metric_name, metrics)),
        tuple((hop, *(interval_text(found[m]) for m in metrics)) for hop, found in evaluation.by_hop.items()),
        words=("edges away",),
    )
    return Part(
        "hops",
        "How it does by distance",
        "Mean over the groups that are so many edges from the nearest training group. If the graph says anything, near "
        "groups should do better than far ones.",
        _drawn("hops", figures.hop_figure(evaluation)),
        (grid,),
    )


def _graph_part(model: TableModel, rows: Sequence[GroupRow]) -> Part:
    if model.graph is None:
        figure = figures.weight_figure(rows)
        text = "There is no graph. Weight of every training group, coloured by its loss."
        return Part("groups", "The groups", text, _drawn("groups", figure))
    graph = model.graph
    sentences = [
        f"The {graph.origin.kind} graph has {len(graph)} groups and {len(graph.edges)} edges. Training groups: the "
        "larger the heavier, the darker the larger their loss."
    ]
    hops = test_hops(model)
    if hops:
        counts = {hop: sum(value == hop for value in hops.values()) for hop in sorted(set(hops.values()))}
        away = ", ".join(f"{count} at {_edges(hop)}" for hop, count in counts.items())
        sentences.append(f"Test groups by edges to the nearest training group: {away}.")
    outside = [row.group for row in rows if row.group not in graph]
    if outside:
        sentences.append(f"Not in the graph: {', '.join(map(quoted, outside[:5]))}{', …' if len(outside) > 5 else ''}.")
    if len(graph) > figures.NAMED:
        sentences.append(f"The {figures.NAMED_OF_MANY} heaviest are named.")
    figure = figures.graph_figure(graph, rows, set(model.test_groups))
    return Part("groups", "The groups and who is near whom", " ".join(sentences), _drawn("groups", figure))


def _edges(hops: float) -> str:
    return "no path" if math.isinf(hops) else f"{hops:.0f} edge{'' if hops == 1 else 's'}"


def _prior_part(rows: Sequence[GroupRow]) -> Part:
    return Part(
        "prior",
        "Prior and weight by training group",
        "The prior is the topology's say, the same for all groups without one; the losses pull the weights from there "
        "towards groups that do badly. A long bar: the losses decide how much a group counts. A short one: the prior.",
        _drawn("prior", figures.prior_figure(rows)),
    )


def _loss_part(model: TableModel, rows: Sequence[GroupRow]) -> Part:
    return Part(
        "losses",
        "Loss and weight by training group",
        "Worst first. A group with a large loss and a small weight is one that the prior keeps down, or that weight "
        "would not help.",
        _drawn("losses", figures.loss_figure(rows, loss_name(model))),
    )


def _penalty_part(model: TableModel) -> Part | None:
    scores = penalty_scores(model.estimator)
    if not scores:
        return None
    label = f"{loss_name(model)} held out"
    if model.classes is None and getattr(model.estimator, "standardize", False):
        label = "loss held out (standardised)"
    return Part(
        "penalty",
        "How the penalty was chosen",
        "Each penalty was tried with training groups held out; the one with the lowest loss there, the geometric mean "
        "over folds, was taken. Bars are spreads over folds: the standard deviation of the loss, in a fold relative to "
        "that of the other penalties there. Where they dwarf the differences, other penalties would have done as well.",
        _drawn("penalty", figures.penalty_figure(scores, model.estimator.penalty_, label)),
    )


def _training_part(model: TableModel) -> Part | None:
    history = [record for record in model.estimator.history_ if hasattr(record, "weights")]
    if not history:
        return None
    return Part(
        "training",
        "Training",
        f"The objective and the heaviest groups over {len(history)} epochs. Curves that still move at the end ask for "
        "more epochs.",
        _drawn("training", figures.training_figure(history)),
    )


# ---------------------------------------------------------------- coefficients


def _effects(model: TableModel) -> dict[str, list[tuple[str, float]]]:
    """By class or target the inputs that move it most, each by its unit; empty for a network."""
    coef = getattr(model.estimator, "coef_", None)
    if coef is None:
        return {}
    names = model.encoder.names
    table = np.asarray(coef, dtype=np.float64).reshape(-1, len(names)) * _units(model)[0]
    most = MOST_EFFECTS if len(table) == 1 else MOST_A_CLASS
    titles = [model.target] if model.classes is None else list(model.classes)[-len(table) :]
    found = {}
    for title, values in zip(titles, table, strict=True):
        order = sorted(range(len(values)), key=lambda i: (-abs(values[i]), names[i]))
        found[title] = [(names[i], float(values[i])) for i in order[:most] if values[i] != 0]
    return found


def _units(model: TableModel) -> tuple[npt.NDArray[np.float64], str]:
    """What makes inputs comparable, and its name: the standard deviation in training if known, else the range there."""
    scaling = getattr(model.estimator, "scaling_", None)
    if scaling is not None and getattr(model.estimator, "standardize", False):
        return np.asarray(scaling.scale, dtype=np.float64), "one standard deviation"
    found: list[float] = []
    for rule in model.encoder.rules:
        if isinstance(rule, NumberRule) and rule.low < rule.high:
            found += [rule.high - rule.low, *([1.0] * (len(rule.labels) - 1))]
        else:
            found += [1.0] * len(rule.labels)
    return np.asarray(found), "its training range"


def _effects_part(model: TableModel) -> Part | None:
    effects = _effects(model)
    if not any(effects.values()):
        return None
    inputs, unit = len(model.encoder.names), _units(model)[1]
    title = "What moves the prediction"
    if len(effects) == 1:
        ((target, found),) = effects.items()
        what = f"the log-odds of {quoted(target)}" if model.classes is not None else quoted(target)
        figure = figures.effect_figure(
            [name for name, _ in found], [value for _, value in found], f"change of {what} by {unit} of the input"
        )
        text = f"By how much {what} changes if an input grows by {unit}, the others as they are."
        if len(found) < inputs:
            text += f" The {len(found)} largest of {inputs}."
        return Part("effects", title, text, _drawn("effects", figure))
    rows = []
    for name, found in effects.items():
        rows += [("" if i else name, label, number(value)) for i, (label, value) in enumerate(found)]
    grid = Grid(
        ("class", "input", "change of its score"),
        tuple(rows),
        words=("class", "input"),
        title=f"All {len(effects)} classes" if len(rows) > LONG else "",
        folded=len(rows) > LONG,
    )
    text = (
        "By how much the score of a class (the log of its probability, up to what all classes share) changes if an "
        f"input grows by {unit}, the others as they are; the largest {min(MOST_A_CLASS, inputs)} of {inputs} a class."
    )
    return Part("effects", title, text, grids=(grid,))


# ---------------------------------------------------------------- tables


def _groups_part(model: TableModel, rows: Sequence[GroupRow]) -> Part:
    columns = ("group", "rows", f"loss ({loss_name(model)})", "centrality", "prior", "weight", "to a test group")
    cells = tuple(
        (
            str(row.group),
            f"{row.size:,}",
            number(row.loss),
            number(row.centrality),
            share(row.prior),
            share(row.weight),
            hops_text(row.hops),
        )
        for row in rows
    )
    keep = [i for i in range(len(columns)) if i not in (3, 6) or any(line[i] != "–" for line in cells)]
    grid = Grid(
        tuple(columns[i] for i in keep),
        tuple(tuple(line[i] for i in keep) for line in cells),
        words=("group",),
        title=f"All {len(rows)} training groups" if len(rows) > LONG else "",
        folded=len(rows) > LONG,
    )
    return Part("table", "Every training group", "Heaviest first.", grids=(grid,))


def _columns_part(model: TableModel) -> Part:
    used = [c for c in model.columns if c.role != "left out"]
    unused = [c for c in model.columns if c.role == "left out"]
    grids = [
        Grid(
            ("column", "role", "kind", "note"),
            tuple((c.name, c.role, c.kind, c.note) for c in used),
            words=("column", "role", "kind", "note"),
            title=f"{len(used)} columns used" if len(used) > LONG else "",
            folded=len(used) > LONG,
        )
    ]
    if unused:
        grids.append(
            Grid(
                ("column", "kind", "why"),
                tuple((c.name, c.kind, c.note) for c in unused),
                words=("column", "kind", "why"),
                title=f"Left out: {len(unused)}",
                folded=len(unused) > LONG,
            )
        )
    inputs = len(model.encoder.names)
    text = f"They become {inputs} input{'' if inputs == 1 else 's'} of the model."
    return Part("columns", "Columns of the training table", text, grids=tuple(grids))


def _row_dict(row: GroupRow) -> dict[str, Any]:
    return {
        "group": row.group,
        "size": row.size,
        "loss": row.loss,
        "centrality": row.centrality,
        "prior": row.prior,
        "weight": row.weight,
        "hops": row.hops,
    }


def _settings(model: TableModel, evaluation: Evaluation | None) -> list[tuple[str, str]]:
    estimator = model.estimator
    titles = {"source": "training table", "toporo": "fitted by toporo"}
    found = [(titles.get(key, key.replace("_", " ")), _setting(value)) for key, value in model.about.items()]
    found.append(("estimator", type(estimator).__name__))
    found += [(key.replace("_", " "), _setting(value)) for key, value in sorted(estimator.get_params().items())]
    for record in (record for record in estimator.history_ if hasattr(record, "relative_gap")):
        found.append(
            ("solver", f"{record.steps} steps; at most {record.relative_gap:.0e} of its value above the optimum")
        )
    if evaluation is not None:
        found.append(("evaluation", f"{evaluation.resamples} resamples, seed {evaluation.seed}"))
    found.append(("page", f"toporo {toporo.__version__}, Python {platform.python_version()}, numpy {np.__version__}"))
    return found


def _setting(value: Any) -> str:
    """A setting on one line; long ones are cut."""
    if isinstance(value, float):
        return number(value)
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else f"{text[:199]}…"


def _plain(value: Any) -> Any:
    """As JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
