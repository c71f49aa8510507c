"""The page of a fitted model in sentences: its verdict, its summary, and what it does not show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from toporo.choice.penalty import PenaltyScore
from toporo.estimators.coefficients import CoefficientTable
from toporo.estimators.explain import RowTable
from toporo.estimators.league import LeagueTable
from toporo.pages.maps import OUTSIDE
from toporo.pages.render import Verdict
from toporo.pages.table import Table
from toporo.tables.contest import compare, constant_in_words, metric_name, over_constant, unfair
from toporo.tables.evaluate import Evaluation
from toporo.tables.model import TableModel
from toporo.tables.resample import Interval, clear
from toporo.text import SAW, hops_text, many, short_name
from toporo.text import number as plain
from toporo.topology.effect import PER_COLUMN, groups_in_effect, too_few
from toporo.topology.prior import Prior

Against = tuple[str, Evaluation] | None

#: Characters of a name in a sentence.
NAME = 48
#: A group with fewer rows has a loss that another sample would change.
FEW_ROWS = 30
#: Means over fewer groups have rough intervals.
FEW_GROUPS = 10
#: Groups this many edges from those trained on are farther than the graph was seen to help.
FAR = 3
METHODS = {
    "tro": "topology-aware robust optimisation",
    "group-dro": "group DRO (the worst group decides)",
    "erm": "all groups weighed alike",
    "kriged": "kriging (coefficients by group)",
    "auto": "votes (each candidate's by how it does in groups left out)",
}
#: Sources that are not names of files.
PLACES = ("standard input", "the data given", "the data", "the data frame")


# ---------------------------------------------------------------- numbers and names


def number(value: float | None, like: float | None = None) -> str:
    """Three significant digits with a typographic minus; see :func:`toporo.text.number`."""
    return plain(value, like, zeros=True).replace("-", "−")


def share(value: float) -> str:
    """A weight: three decimals, and a plain 0 only for none at all."""
    return "0" if value == 0 else "< 0.001" if value < 0.0005 else f"{value:.3f}"


def interval_text(interval: Interval) -> str:
    """``0.830 (0.801 to 0.862)``, all with as many decimals, without the interval where there is none."""
    ends = (interval.value, interval.low, interval.high)
    if not math.isfinite(interval.value):
        return "no value"
    if not all(map(math.isfinite, ends)):
        return number(interval.value)
    value, low, high = (number(end, max(map(abs, ends))) for end in ends)
    return f"{value} ({low} to {high})"


def explain_table(table: RowTable[Any], most: int | None = None) -> Table:
    """Make the table that a model's ``explain`` gives.

    Parameters
    ----------
    table : the table.
    most : number of columns, the first ones.
    """
    rows, names = [table.cells(row) for row in table], table.columns[:most]
    columns = {name: [_cell(name, row[name]) for row in rows] for name in names}
    return Table.from_columns(columns, f"All {len(rows)} rows", words=(names[0], "note"))


def _cell(column: str, value: Any) -> str:
    if column == "hops":
        return hops_text(value) or "–"
    if column in ("prior", "weight"):
        return share(value)
    return number(value) if value is None or isinstance(value, float) else str(value)


def quoted(name: object) -> str:
    """A name in a sentence, short enough to read."""
    return f"“{short_name(name, NAME)}”"


def _place(source: object) -> str:
    return str(source) if source in PLACES else quoted(source)


def _names(names: Iterable[object], most: int = 5) -> str:
    everything = sorted(map(str, names))
    return ", ".join([*map(quoted, everything[:most]), *["…"] * (len(everything) > most)])


# ---------------------------------------------------------------- facts


def loss_name(model: TableModel) -> str:
    """Name of the loss by group."""
    return "log loss" if model.task == "classification" else "mean squared error"


def penalty_scores(model: TableModel) -> tuple[PenaltyScore, ...]:
    """Scores of the candidates of a penalty that was chosen; empty where it was given."""
    return tuple(getattr(model.estimator, "penalty_scores_", None) or ())


def test_hops(model: TableModel) -> dict[str, float]:
    """Edges from every test group to the nearest training group; empty without a graph."""
    if model.graph is None:
        return {}
    near = model.graph.hops([name for name in model.groups if name in model.graph])
    return {name: near[name] for name in model.test_groups if name in near}


def groups_outside(model: TableModel, evaluation: Evaluation | None) -> set[str]:
    """Groups outside of what validation has seen: test groups by their hops, others if most of their rows are."""
    reach = model.reach
    if reach is None:
        return set()
    far = {name for name, hops in test_hops(model).items() if reach.too_many(hops)}
    judged = () if evaluation is None else evaluation.groups
    return far | {score.group for score in judged if (score.outside or 0.0) > 0.5}


# ---------------------------------------------------------------- the verdict and the summary


def verdict(model: TableModel, evaluation: Evaluation | None, against: Against) -> Verdict:
    """The page in one sentence; it says so if the model loses to a constant or to the other model.

    Parameters
    ----------
    model, evaluation, against : as :func:`~toporo.pages.model.write_model_report` takes them.
    """
    if evaluation is None:
        return Verdict(
            f"Nobody knows yet how this model of {quoted(model.target)} does in a new group: evaluate it on rows of "
            "groups that it was not trained on."
        )
    metric, over = evaluation.metric, over_constant(evaluation)
    lost = constant_in_words(evaluation, "The model")
    if lost:
        return Verdict(lost, "bad")
    names = evaluation.headline_groups
    known = all(score.trained for score in evaluation.groups)
    which = f"{many(len(names), 'group')} that it was {'' if known else 'not '}trained on"
    error = interval_text(evaluation.headline[metric])
    text = f"In {which}, the model's {metric_name(metric)} is {error}, mean over groups"
    if evaluation.unseen:
        text += f" (in all {len(evaluation.groups)} groups {interval_text(evaluation.overall[metric])})"
    if over is not None:
        constant = math.fsum(evaluation.constant[name] for name in names) / len(names)
        text += f"; a constant has {number(constant)}"
    if against is None:
        return Verdict(f"{text}.", "good" if over is not None else "")
    gain = compare(evaluation, against[1])
    tone = {1: "good", 0: "", -1: "bad"}[clear(gain.gain)]
    return Verdict(f"{gain.words('The model', quoted(against[0]))} {text}.", tone)


def summary(
    model: TableModel, table: RowTable[Any], evaluation: Evaluation | None, source: str | None, against: Against = None
) -> list[str]:
    """What was fitted to what, and how it was evaluated; what the model loses to comes first.

    Parameters
    ----------
    model, evaluation, source, against : as :func:`~toporo.pages.model.write_model_report` takes them.
    table : as the model's ``explain`` gives it.
    """
    sentences = []
    if evaluation is not None:
        sentences.append(constant_in_words(evaluation, "The model"))
        if against is not None:
            name, other = quoted(against[0]), against[1]
            sentences += [compare(evaluation, other).words("The model", name)]
            sentences += [unfair(evaluation, other, "the model", name)]
    sentences.append(_fitted(model))
    sentences += table.about["words"] if model.by_group else [_penalty(model), _prior(model), _effective(model, table)]
    if evaluation is not None:
        new = sum(not score.trained for score in evaluation.groups)
        rows = many(sum(score.rows for score in evaluation.groups), "row")
        sentences.append(
            f"Evaluated on {_place(source or 'the data given')}, {rows} in {many(len(evaluation.groups), 'group')} "
            f"({new} not trained on). The worst group is {quoted(evaluation.worst.group)}: "
            f"{metric_name(evaluation.metric)} {interval_text(evaluation.worst.metrics[evaluation.metric])}."
        )
    return [sentence for sentence in sentences if sentence]


def _fitted(model: TableModel) -> str:
    count, source = model.about.get("rows"), model.about.get("source")
    linear = model.kriged or getattr(model.estimator, "coef_", None) is not None
    kind = "linear model" if linear else "mean of several models" if model.by_group else "network"
    what = "the number" if model.classes is None else f"one of {len(model.classes)} classes of"
    method = METHODS.get(str(model.about.get("method")), type(model.estimator).__name__)
    rows = f"{many(count, 'row')} in " if isinstance(count, int) else ""
    where = f" of {_place(source)}" if source else ""
    weighed = f"; rows are weighted by {quoted(model.weight)}" if model.weight else ""
    return (
        f"A {kind} that predicts {what} {quoted(model.target)}, fitted by {method} to {rows}"
        f"{many(len(model.groups), 'group')} (column {quoted(model.group)}){where}{weighed}."
    )


def _penalty(model: TableModel) -> str:
    penalty, radius = getattr(model.estimator, "penalty_", None), getattr(model.estimator, "radius", None)
    if model.about.get("method") in ("erm", "group-dro"):
        return ""
    if radius is not None:
        takes = "" if penalty is None else f", which takes a penalty λ of {penalty:.3g}"
        return f"The weights stay within {radius:g} of the prior (radius){takes}."
    if penalty is None or model.estimator.prior_ is None:
        return ""
    ends = {math.inf: "∞ (the weights are the prior)", 0.0: "0 (the worst group decides)"}
    scores, how = penalty_scores(model), "as set"
    if scores:
        folds = many(max(score.folds for score in scores), "fold")
        how = f"chosen among {len(scores)} by the loss in training groups held out ({folds})"
    return f"The penalty λ is {ends.get(penalty, f'{penalty:.3g}')}, {how}."


def _prior(model: TableModel) -> str:
    prior: Prior | None = model.estimator.prior_
    if prior is None:
        return "There is one group, so there is no worst case: this is an ordinary regression."
    capped = f"{100 * prior.capped_mass:.2g} % taken from groups of few rows" if prior.capped_mass else ""
    if prior.measure == "uniform":
        return f"The prior is the same for all groups{capped and f', but for {capped}'}: no topology takes part."
    even = f"{100 * prior.uniform_share:g} % of it even" if prior.uniform_share else ""
    temperature = "" if prior.temperature is None else f"temperature {prior.temperature:g}"
    how = ", ".join(filter(None, [prior.normalization, even, capped, temperature]))
    kind = f" in the {model.graph.origin.kind} graph" if model.graph is not None and prior.measure != "given" else ""
    seen = f" Of the test groups it saw: {_seen(prior.saw) or 'nothing'}." if model.test_groups or prior.saw else ""
    return f"The prior: {prior.measure}{kind}{how and f' ({how})'}.{seen}"


def _seen(saw: Iterable[str]) -> str:
    return " and ".join(SAW.get(what, what) for what in saw)


def _effective(model: TableModel, rows: Sequence[Any]) -> str:
    prior, weights = (groups_in_effect(values) for values in ([r.prior for r in rows], [r.weight for r in rows]))
    return (
        f"Effective number of groups: {prior:.1f} by the prior and {weights:.1f} by the weights, of {len(rows)}; of "
        f"rows: {model.estimator.rows_in_effect_:.0f} by the weights, of {sum(row.size for row in rows)}."
    )


# ---------------------------------------------------------------- cautions


def cautions(
    model: TableModel, table: RowTable[Any], evaluation: Evaluation | None, source: str | None, against: Against = None
) -> list[str]:
    """Conclusions that the page does not support.

    Parameters
    ----------
    model, evaluation, source, against : as :func:`~toporo.pages.model.write_model_report` takes them.
    table : as the model's ``explain`` gives it.
    """
    hops, outside = test_hops(model), groups_outside(model, evaluation)
    lost = [name for name, away in hops.items() if math.isinf(away)]
    far = [name for name, away in hops.items() if FAR <= away < math.inf]
    if isinstance(table, CoefficientTable):
        own, control = _about_kriged(model), "a linear model (erm) and a kriged one without the graph"
    elif isinstance(table, LeagueTable):
        own, control = _about_league(table), "a linear model (--fast) and one with all groups weighed alike (erm)"
    else:
        own, control = _about_weights(model, table), "models with a uniform prior and with all groups alike (erm)"
    alone = "" if against is not None else "No control was fitted for this page. "
    shown = f"{alone}Whether the method helps only shows beside {control}, on the same groups."
    if model.about.get("method") == "erm":
        shown = "This is a control. Whether a robust model does better only shows beside one, on the same groups."
    linear = model.kriged or getattr(model.estimator, "coef_", None) is not None
    return _where(
        *own,
        (evaluation is None, "Nothing was evaluated. It takes a table with targets, best of groups that were not "
         "trained on."),
        *([] if evaluation is None else _about_evaluation(model, evaluation, source)),
        (True, shown),
        (True, "In a new group the target may depend on the inputs in another way, or on something that is no column "
         "of the table: no model can know what no training group shows."),
        (far and model.by_group, f"Groups {FAR} edges and more from those trained on: {_names(far)}. The graph says "
         "little of them, and misleads where a trend turns around on the way there."),
        (lost, f"No path leads from a training group to {_names(lost)}: the graph says nothing about them."),
        (outside, f"{OUTSIDE.capitalize()}: {_names(outside)} ({many(len(outside), 'group')}). Nobody knows how well "
         "the model does that far out."),
        (linear, "Coefficients describe the model, not causes; features that move together share theirs in ways that "
         "another sample may change."),
    )  # fmt: skip


def _where(*sentences: tuple[Any, str]) -> list[str]:
    """The sentences whose condition holds."""
    return [sentence for condition, sentence in sentences if condition]


def _about_weights(model: TableModel, rows: Sequence[Any]) -> list[tuple[Any, str]]:
    used, inputs = model.estimator.rows_in_effect_, len(model.encoder.names)
    few = [row.group for row in rows if row.size < FEW_ROWS]
    who = "Every training group has" if len(few) == len(rows) else f"{len(few)} of {len(rows)} training groups have"
    scores = [score for score in penalty_scores(model) if math.isfinite(score.score)]
    best = min(scores, key=lambda score: score.score, default=None)
    error = best.spread / math.sqrt(max(best.folds, 1)) if best and math.isfinite(best.spread) else 0.0
    alike = sum(score.score <= best.score + error for score in scores) if best else 0
    notes = getattr(getattr(model.estimator, "choice_", None), "notes", ())
    return [
        (True, "Losses and weights by group are of the rows trained on: they show where the model struggles, not how "
         "it does in a new group."),
        (few, f"{who} fewer than {FEW_ROWS} rows: such losses, and so the weights, are uncertain ({_names(few)})."),
        (len(rows) > 1 and too_few(used, inputs), f"{used:.0f} rows are in effect for {many(inputs, 'input')}, fewer "
         f"than {PER_COLUMN} each: the coefficients follow the noise of few rows."),
        (len(scores) > 1, "The penalty was chosen on training groups held out, which may be unlike the test groups."),
        (alike > 1, f"{alike} of {len(scores)} penalties score within a standard error of the best: the choice is "
         "loose."),
        *((len(scores) > 1, f"Of the choice: {note.rstrip('.')}.") for note in notes),
    ]  # fmt: skip


def _about_kriged(model: TableModel) -> list[tuple[Any, str]]:
    return [
        (True, "The evidence compares models of one kind. It cannot say that none of them is right, and it is of the "
         "training groups, not of new ones."),
        (model.classes is None, "Intervals rest on the model: normal errors of one spread in all groups, not shared by "
         "the rows of a group beyond its coefficients."),
    ]  # fmt: skip


def _about_league(table: LeagueTable) -> list[tuple[Any, str]]:
    failed = [row.name for row in table if math.isnan(row.error)]
    return [
        (True, "Errors in the league are of training groups left out a few at a time. New groups may be farther from "
         "those trained on, or differ in ways that no training group shows."),
        (failed, f"Candidates that were not fitted, for the reasons in the league: {_names(failed)}."),
    ]  # fmt: skip


def _about_evaluation(model: TableModel, evaluation: Evaluation, source: str | None) -> list[tuple[Any, str]]:
    count, prior = len(evaluation.groups), model.estimator.prior_
    saw = model.estimator.saw_ if model.by_group else () if prior is None else prior.saw
    chosen = "" if model.kriged else ", the votes" if model.by_group else ", the choice of the penalty"
    seen = sum(score.trained for score in evaluation.groups)
    same = source is not None and source == model.about.get("source")
    who = "Every group evaluated was" if seen == count else f"{seen} of {count} groups evaluated were"
    absent = set(model.test_groups) - {score.group for score in evaluation.groups}
    return [
        (evaluation.resamples, f"Intervals come from {many(evaluation.resamples, 'resample')} of the rows evaluated, "
         f"with the model as it is. They do not cover training again on other rows{chosen}, or groups unlike these."),
        (1 < count < FEW_GROUPS, f"There are {count} groups to take means over: intervals of such means are rough."),
        (same, f"The table is called {quoted(source)} like the training table. If it is that one, scores in groups "
         "trained on are flattering."),
        (seen and not same, f"{who} trained on: where these rows were, too, scores are flattering."),
        (saw and seen < count, f"The {'model' if model.by_group else 'prior'} knew of the test groups {_seen(saw)}. In "
         "groups that nobody foresaw, scores may be worse."),
        (absent, f"Test groups without rows to judge by: {_names(absent)} ({len(absent)} in all)."),
    ]  # fmt: skip
