"""Sentences of the page about a model: its verdict, its summary, and its limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toporo.errors import listed
from toporo.estimators.explain import RowTable
from toporo.pages.cells import FEW_GROUPS, interval_text, number, quoted
from toporo.pages.render import Verdict
from toporo.tables.contest import constant_in_words, metric_name
from toporo.tables.evaluate import Evaluation
from toporo.tables.model import TableModel
from toporo.text import SAW, many, short_name


@dataclass(frozen=True)
class ModelReport:
    """Model and its evaluation, as a page and its JSON show them.

    Attributes
    ----------
    model : the model.
    evaluation : metrics on another table; None if there is none.
    source : name of that table.
    """

    model: TableModel
    evaluation: Evaluation | None = None
    source: str | None = None

    @cached_property
    def table(self) -> RowTable[Any]:
        """Table that the model's ``explain`` gives."""
        table: RowTable[Any] = self.model.explain()
        return table

    @property
    def groups_outside(self) -> list[str]:
        """Groups most of whose evaluated rows are outside of what validation has seen."""
        scores = () if self.evaluation is None else self.evaluation.groups
        return sorted(score.group for score in scores if (score.outside or 0.0) > 0.5)


def verdict(report: ModelReport) -> Verdict:
    """Return the main result in one sentence, which names a constant that is as good."""
    evaluation = report.evaluation
    if evaluation is None:
        return Verdict(
            f"This model of {quoted(report.model.target)} was not evaluated: its error in a new group is unknown. "
            "Evaluate it on rows of groups that it was not trained on."
        )
    no_better = constant_in_words(evaluation, "The model")
    if no_better:
        return Verdict(no_better, "bad")
    metric, names = evaluation.metric, evaluation.headline_groups
    text = (
        f"In {many(len(names), 'group')} that it was {'not ' if evaluation.unseen else ''}trained on, the model's "
        f"{metric_name(metric)} is {interval_text(evaluation.headline[metric])}, mean over groups"
    )
    if evaluation.unseen:
        text += f" (in all {len(evaluation.groups)} groups {interval_text(evaluation.overall[metric])})"
    if not evaluation.constant:
        return Verdict(f"{text}.")
    constant = math.fsum(evaluation.constant[name] for name in names) / len(names)
    return Verdict(f"{text}; a constant has {number(constant)}.", "good")


def summary(report: ModelReport) -> list[str]:
    """Return sentences about the fit, those of the model about itself, and what the evaluation found."""
    evaluation, table = report.evaluation, report.table
    words = table.about.get("words", getattr(table, "effect", ()))
    sentences = [_fitted(report), *words, *_used(report.model), *_penalty(report.model), *table.remarks]
    if evaluation is not None:
        new = sum(not score.trained for score in evaluation.groups)
        rows = many(sum(score.rows for score in evaluation.groups), "row")
        sentences.append(
            f"Evaluated on {short_name(report.source or 'the data given')}, {rows} in "
            f"{many(len(evaluation.groups), 'group')} ({new} not trained on). The worst group is "
            f"{quoted(evaluation.worst.group)}: {metric_name(evaluation.metric)} "
            f"{interval_text(evaluation.worst.metrics[evaluation.metric])}."
        )
    return sentences


def _fitted(report: ModelReport) -> str:
    model, about = report.model, report.model.about
    linear = model.kriged or getattr(model.estimator, "coef_", None) is not None
    kind = "linear model" if linear else "weighted mean of several models" if model.by_group else "network"
    what = "the number" if model.classes is None else f"one of {len(model.classes)} classes of"
    count = about.get("rows")
    rows = f"{many(count, 'row')} in " if isinstance(count, int) else ""
    weighted = f"; rows are weighted by {quoted(model.weight)}" if model.weight else ""
    for key, fate in (("rows_set_aside", "of test groups set aside"), ("rows_dropped", "left out")):
        weighted += f"; {many(about[key], 'row')} {fate}" if about.get(key) else ""
    return (
        f"A {kind} (method {about.get('method')}) that predicts {what} {quoted(model.target)}, fitted to {rows}"
        f"{many(len(model.groups), 'group')} (column {quoted(model.group)}) of {short_name(about.get('source'))}"
        f"{weighted}."
    )


def _used(model: TableModel) -> list[str]:
    """Return what the prior, or a mean of models, used of the test groups; a kriged model says it itself."""
    prior = model.estimator.prior_
    if prior is None and model.kriged:
        return []
    saw = getattr(model.estimator, "saw_", ()) if prior is None else prior.saw
    used = " and ".join(SAW.get(kind, kind) for kind in saw) or "nothing"
    if prior is None:
        return [f"Of the test groups, the model used {used}."]
    share = f", {100 * prior.uniform_share:g} % of it uniform" if prior.uniform_share else ""
    groups = f"{prior.effective_groups:.1f} groups"
    return [f"The prior ({prior.measure}{share}) has {groups} in effect; of the test groups it used {used}."]


def _penalty(model: TableModel) -> list[str]:
    """Return which penalty a weighted model has, and how it was chosen."""
    penalty, scores = model.estimator.penalty_, model.estimator.penalty_scores_
    if penalty is None:
        return []
    chosen = f", the best of {len(scores)} over {many(scores[0].folds, 'fold')} of groups left out" if scores else ""
    return [f"The penalty is {penalty:g}{chosen}."]


def cautions(report: ModelReport) -> list[str]:
    """Return the limits of what the page shows."""
    model, evaluation, outside = report.model, report.evaluation, report.groups_outside
    sentences = []
    if evaluation is not None:
        count, seen = len(evaluation.groups), sum(score.trained for score in evaluation.groups)
        absent = {*model.test_groups} - {score.group for score in evaluation.groups}
        checks = {
            "Intervals come from resamples of the evaluated rows for the same model. They do not cover fitting to "
            "other rows, or groups unlike these.": evaluation.resamples,
            f"Means are over {count} groups: their intervals are rough.": 1 < count < FEW_GROUPS,
            f"{seen} of {count} groups evaluated were trained on: if rows were in the training table, their scores are "
            "too good.": seen,
            f"Test groups without rows to evaluate: {listed(sorted(absent))}.": absent,
            f"Outside of what validation has seen: {listed(outside)}. Errors in "
            "other such groups are unknown.": outside,
        }
        sentences += [sentence for sentence, holds in checks.items() if holds]
    return [
        *sentences,
        "No control was fitted for this page. To see whether the method helps, compare it with others on the same "
        "groups: toporo compare.",
        "In a new group the target may depend on the inputs in another way, or on something that is not in the table: "
        "no model can know what no training group shows.",
    ]
