"""Sentences of the page about a model: its verdict, its summary, and its limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toporo.choice.penalty import PenaltyScore
from toporo.estimators.coefficients import CoefficientTable
from toporo.estimators.explain import RowTable
from toporo.estimators.league import LeagueTable
from toporo.estimators.settings import Radius
from toporo.pages.cells import interval_text, number, quoted, quoted_names, where
from toporo.pages.maps import OUTSIDE
from toporo.pages.render import Verdict
from toporo.tables.contest import compare, constant_in_words, metric_name, over_constant, unfair
from toporo.tables.evaluate import Evaluation
from toporo.tables.model import TableModel
from toporo.tables.resample import clear
from toporo.text import SAW, many
from toporo.topology.effect import PER_COLUMN, groups_in_effect, too_few

#: Groups with fewer rows have uncertain losses.
FEW_ROWS = 30
#: Means over fewer groups have rough intervals.
FEW_GROUPS = 10
METHODS = {
    "tro": "topology-aware robust optimisation",
    "group-dro": "group DRO (the worst group decides)",
    "erm": "minimising the mean loss over groups (ERM)",
    "kriged": "kriging (coefficients by group)",
    "auto": "cross-validation over groups",
}
#: Sources that are not names of files.
UNNAMED = ("standard input", "the data given", "the data", "the data frame")


@dataclass(frozen=True)
class ModelReport:
    """Model and its evaluation, as a page and its JSON show them.

    Attributes
    ----------
    model : the model.
    evaluation : metrics on another table; None if there is none.
    source : name of that table.
    against : another model's name and its evaluation on the same rows.
    """

    model: TableModel
    evaluation: Evaluation | None = None
    source: str | None = None
    against: tuple[str, Evaluation] | None = None

    @cached_property
    def table(self) -> RowTable[Any]:
        """Table that the model's ``explain`` gives."""
        table: RowTable[Any] = self.model.explain()
        return table

    @cached_property
    def test_hops(self) -> dict[str, float]:
        """Edges from every test group to the nearest training group; empty without a graph."""
        graph = self.model.graph
        if graph is None:
            return {}
        hops = graph.hops([name for name in self.model.groups if name in graph])
        return {name: hops[name] for name in self.model.test_groups if name in hops}

    @cached_property
    def groups_outside(self) -> set[str]:
        """Groups outside of what validation has seen: test groups by their hops, others if most of their rows are."""
        reach = self.model.reach
        if reach is None:
            return set()
        scores = () if self.evaluation is None else self.evaluation.groups
        far = {name for name, hops in self.test_hops.items() if reach.too_many(hops)}
        return far | {score.group for score in scores if (score.outside or 0.0) > 0.5}

    @cached_property
    def penalty_scores(self) -> list[PenaltyScore]:
        """Scores of the candidates of a penalty that was chosen, in order; empty where it was given."""
        scores = getattr(self.model.estimator, "penalty_scores_", None) or ()
        return sorted(scores, key=lambda score: score.penalty)

    @property
    def loss_name(self) -> str:
        """Name of the loss by group."""
        return "log loss" if self.model.task == "classification" else "mean squared error"

    @property
    def linear(self) -> bool:
        """True if the model has coefficients."""
        return self.model.kriged or getattr(self.model.estimator, "coef_", None) is not None


# ---------------------------------------------------------------- the verdict and the summary


def verdict(report: ModelReport) -> Verdict:
    """Return the main result in one sentence, which names a constant or another model that is better."""
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
    trained = all(score.trained for score in evaluation.groups)
    text = (
        f"In {many(len(names), 'group')} that it was {'' if trained else 'not '}trained on, the model's "
        f"{metric_name(metric)} is {interval_text(evaluation.headline[metric])}, mean over groups"
    )
    if evaluation.unseen:
        text += f" (in all {len(evaluation.groups)} groups {interval_text(evaluation.overall[metric])})"
    has_constant = over_constant(evaluation) is not None
    if has_constant:
        text += f"; a constant has {number(math.fsum(evaluation.constant[name] for name in names) / len(names))}"
    if report.against is None:
        return Verdict(f"{text}.", "good" if has_constant else "")
    gain = compare(evaluation, report.against[1])
    tone = {1: "good", 0: "", -1: "bad"}[clear(gain.gain)]
    return Verdict(f"{gain.words('The model', quoted(report.against[0]))} {text}.", tone)


def summary(report: ModelReport) -> list[str]:
    """Return sentences about the fit and the evaluation; a comparison that the model loses comes first."""
    model, evaluation = report.model, report.evaluation
    sentences = []
    if evaluation is not None:
        sentences.append(constant_in_words(evaluation, "The model"))
        if report.against is not None:
            name, other = quoted(report.against[0]), report.against[1]
            sentences += [compare(evaluation, other).words("The model", name)]
            sentences += [unfair(evaluation, other, "the model", name)]
    sentences.append(_fitted(report))
    sentences += (
        report.table.about["words"] if model.by_group else [_penalty(report), _prior(model), _effective(report)]
    )
    if evaluation is not None:
        new = sum(not score.trained for score in evaluation.groups)
        rows = many(sum(score.rows for score in evaluation.groups), "row")
        sentences.append(
            f"Evaluated on {_source(report.source or 'the data given')}, {rows} in "
            f"{many(len(evaluation.groups), 'group')} ({new} not trained on). The worst group is "
            f"{quoted(evaluation.worst.group)}: {metric_name(evaluation.metric)} "
            f"{interval_text(evaluation.worst.metrics[evaluation.metric])}."
        )
    return [sentence for sentence in sentences if sentence]


def _source(name: object) -> str:
    return str(name) if name in UNNAMED else quoted(name)


def _fitted(report: ModelReport) -> str:
    model = report.model
    count, source = model.about.get("rows"), model.about.get("source")
    kind = "linear model" if report.linear else "weighted mean of several models" if model.by_group else "network"
    what = "the number" if model.classes is None else f"one of {len(model.classes)} classes of"
    method = METHODS.get(str(model.about.get("method")), type(model.estimator).__name__)
    rows = f"{many(count, 'row')} in " if isinstance(count, int) else ""
    where = f" of {_source(source)}" if source else ""
    weighted = f"; rows are weighted by {quoted(model.weight)}" if model.weight else ""
    return (
        f"A {kind} that predicts {what} {quoted(model.target)}, fitted by {method} to {rows}"
        f"{many(len(model.groups), 'group')} (column {quoted(model.group)}){where}{weighted}."
    )


def _penalty(report: ModelReport) -> str:
    estimator, scores = report.model.estimator, report.penalty_scores
    penalty, given = getattr(estimator, "penalty_", None), getattr(estimator, "penalty", None)
    if report.model.about.get("method") in ("erm", "group-dro"):
        return ""
    if isinstance(given, Radius):
        implied = "" if penalty is None else f", which takes a penalty λ of {penalty:.3g}"
        return f"The weights stay within {given.value:g} of the prior (radius){implied}."
    if penalty is None or estimator.prior_ is None:
        return ""
    how = "as set"
    if scores:
        folds = many(max(score.folds for score in scores), "fold")
        how = f"chosen among {len(scores)} by the loss in held-out training groups ({folds})"
    ends = {math.inf: "∞ (the weights are the prior)", 0.0: "0 (the worst group decides)"}
    return f"The penalty λ is {ends.get(penalty, f'{penalty:.3g}')}, {how}."


def _prior(model: TableModel) -> str:
    prior = model.estimator.prior_
    if prior is None:
        return "There is one training group, so this is an ordinary regression."
    capped = f"{100 * prior.capped_mass:.2g} % taken from groups of few rows" if prior.capped_mass else ""
    if prior.measure == "uniform":
        return f"The prior is the same for all groups{capped and f', except for {capped}'}; it uses no topology."
    uniform = f"{100 * prior.uniform_share:g} % of it uniform" if prior.uniform_share else ""
    temperature = "" if prior.temperature is None else f"temperature {prior.temperature:g}"
    how = ", ".join(filter(None, [prior.normalization, uniform, capped, temperature]))
    graph = "" if model.graph is None else f" in the {model.graph.origin.kind} graph"
    measure = "the harmonic measure" if prior.measure == "harmonic" else f"{prior.measure} centrality"
    origin = "was given" if prior.measure == "given" else f"follows from {measure}{graph}"
    used = f" Of the test groups it uses {_seen(prior.saw)}." if model.test_groups or prior.saw else ""
    return f"The prior {origin}{how and f' ({how})'}.{used}"


def _seen(saw: Sequence[str]) -> str:
    return " and ".join(SAW.get(kind, kind) for kind in saw) or "nothing"


def _effective(report: ModelReport) -> str:
    rows = report.table
    prior, weights = (groups_in_effect(values) for values in ([r.prior for r in rows], [r.weight for r in rows]))
    return (
        f"Effective number of groups: {prior:.1f} by the prior and {weights:.1f} by the weights, of {len(rows)}; of "
        f"rows: {report.model.estimator.rows_in_effect_:.0f} by the weights, of {sum(row.size for row in rows)}."
    )


# ---------------------------------------------------------------- cautions


def cautions(report: ModelReport) -> list[str]:
    """Return the limits of what the page shows."""
    model, table = report.model, report.table
    unreachable = [name for name, hops in report.test_hops.items() if math.isinf(hops)]
    if isinstance(table, CoefficientTable):
        about, control = _about_kriged(model), "a linear model (erm) and a kriged one without the graph"
    elif isinstance(table, LeagueTable):
        about, control = _about_league(table), "a linear model (--model linear) and one fitted with equal weights (erm)"
    else:
        about, control = _about_weights(report), "models with a uniform prior and with equal weights (erm)"
    alone = "" if report.against is not None else "No control was fitted for this page. "
    needs_control = f"{alone}To see whether the method helps, compare it with {control} on the same groups."
    if model.about.get("method") == "erm":
        needs_control = "This is a control: compare a robust model with it on the same groups."
    return where(
        *about,
        *_about_evaluation(report),
        (True, needs_control),
        (True, "In a new group the target may depend on the inputs in another way, or on something that is not in the "
         "table: no model can know what no training group shows."),
        (unreachable, f"No path leads from a training group to {quoted_names(unreachable)}: the graph has no "
         "information about them."),
        (report.groups_outside, f"{OUTSIDE.capitalize()}: {quoted_names(report.groups_outside)} "
         f"({many(len(report.groups_outside), 'group')}). Errors there are unknown."),
        (report.linear, "Coefficients describe the model, not causes; correlated features share theirs in ways that "
         "another sample may change."),
    )  # fmt: skip


def _about_weights(report: ModelReport) -> list[tuple[Any, str]]:
    estimator, rows = report.model.estimator, report.table
    inputs, chosen = len(report.model.encoder.names), len(report.penalty_scores) > 1
    few = [row.group for row in rows if row.size < FEW_ROWS]
    who = "Every training group has" if len(few) == len(rows) else f"{len(few)} of {len(rows)} training groups have"
    notes = getattr(getattr(estimator, "choice_", None), "notes", ())
    return [
        (True, "Losses and weights by group are of training rows: they show where the model struggles, not its error "
         "in a new group."),
        (few, f"{who} fewer than {FEW_ROWS} rows: such losses, and so the weights, are uncertain "
         f"({quoted_names(few)})."),
        (len(rows) > 1 and too_few(estimator.rows_in_effect_, inputs), f"{estimator.rows_in_effect_:.0f} rows are in "
         f"effect for {many(inputs, 'input')}, fewer than {PER_COLUMN} each: the model follows the noise of few rows."),
        (chosen, "The penalty was chosen on held-out training groups, which may differ from the test groups."),
        *((chosen, f"About this choice: {note.rstrip('.')}.") for note in notes),
    ]  # fmt: skip


def _about_kriged(model: TableModel) -> list[tuple[Any, str]]:
    return [
        (True, "The evidence compares models of one kind in the training groups. It cannot show that all of them are "
         "wrong, and it says nothing about new groups."),
        (model.classes is None, "Intervals assume the model: normal errors with the same spread in all groups, "
         "independent between rows given the coefficients of the group."),
    ]  # fmt: skip


def _about_league(table: LeagueTable) -> list[tuple[Any, str]]:
    failed = [row.name for row in table if math.isnan(row.error)]
    return [
        (True, "Errors of candidates are measured in training groups that were left out, a few at a time. New groups "
         "may be farther from those trained on, or differ in ways that no training group shows."),
        (failed, f"Candidates that were not fitted, for the reasons in their table: {quoted_names(failed)}."),
    ]  # fmt: skip


def _about_evaluation(report: ModelReport) -> list[tuple[Any, str]]:
    model, evaluation = report.model, report.evaluation
    if evaluation is None:
        return [(True, "Nothing was evaluated. This takes a table with targets, preferably of groups that the model "
                 "was not trained on.")]  # fmt: skip
    count, prior = len(evaluation.groups), model.estimator.prior_
    saw = model.estimator.saw_ if model.by_group else () if prior is None else prior.saw
    chosen = "" if model.kriged else ", another ensemble" if model.by_group else ", another choice of the penalty"
    seen = sum(score.trained for score in evaluation.groups)
    who = "Every group evaluated was" if seen == count else f"{seen} of {count} groups evaluated were"
    absent = set(model.test_groups) - {score.group for score in evaluation.groups}
    return [
        (evaluation.resamples, f"Intervals come from {many(evaluation.resamples, 'resample')} of the evaluated rows "
         f"for the same model. They do not cover fitting to other rows{chosen}, or groups unlike these."),
        (1 < count < FEW_GROUPS, f"Means are over {count} groups: their intervals are rough."),
        (seen, f"{who} trained on: if rows were in the training table, their scores are too good."),
        (saw and seen < count, f"Of the test groups, the {'model' if model.by_group else 'prior'} used "
         f"{_seen(saw)}. In other new groups, scores may be worse."),
        (absent, f"Test groups without rows to evaluate: {quoted_names(absent)} ({len(absent)} in all)."),
    ]  # fmt: skip
