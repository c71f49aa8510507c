"""A fitted model in sentences: what it is, and what its page cannot show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from toporo.choice.penalty import PenaltyScore
from toporo.estimators.explain import GroupRow
from toporo.pages.render import Verdict
from toporo.tables.contest import compare, constant_in_words, metric_name, over_constant
from toporo.tables.evaluate import Evaluation
from toporo.tables.model import INTERVAL, TableModel
from toporo.tables.resample import Interval, clear
from toporo.text import SAW, many, short_name
from toporo.text import number as plain
from toporo.topology.effect import PER_COLUMN, groups_in_effect, too_few
from toporo.topology.prior import Prior

#: Names in sentences are cut here: a page can be told apart from a list.
NAME = 48
#: A group with fewer rows has a loss that the next sample would change.
FEW_ROWS = 30
#: Means over fewer groups have intervals that are too narrow.
FEW_GROUPS = 10
METHODS = {
    "tro": "topology-aware robust optimisation",
    "group-dro": "group DRO (the worst group decides)",
    "erm": "all groups weighed alike",
    "kriged": "kriging (coefficients by group)",
    "auto": "votes (each candidate's by how it does in groups left out)",
}
#: Of groups that are farther from those trained on than validation has been.
OUTSIDE = "outside of what validation has seen"
#: Sources that are no names of files.
PLACES = ("standard input", "the data given", "the data", "the data frame")


def number(value: float | None, like: float | None = None) -> str:
    """Three digits that matter, with a sign as pages have it; see :func:`toporo.text.number`."""
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


def loss_name(model: TableModel) -> str:
    """What the loss of a group is."""
    return "log loss" if model.task == "classification" else "mean squared error"


def penalty_scores(estimator: Any) -> tuple[PenaltyScore, ...]:
    """The candidates of a penalty that was chosen; none where it was given."""
    return tuple(getattr(estimator, "penalty_scores_", None) or ())


def test_hops(model: TableModel) -> dict[str, float]:
    """Of every test group, the edges to the nearest training group; empty without a graph."""
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


def penalty_text(penalty: float) -> str:
    """A penalty and what it means at its ends."""
    if math.isinf(penalty):
        return "∞ (the weights are the prior)"
    return "0 (the worst group decides)" if penalty == 0 else f"{penalty:.3g}"


# ---------------------------------------------------------------- the summary


def verdict(model: TableModel, evaluation: Evaluation | None, against: tuple[str, Evaluation] | None) -> Verdict:
    """The page in a sentence: a model that loses to a constant or to another is called so.

    Parameters
    ----------
    model, evaluation, against : as :func:`~toporo.pages.model.write_model_report` takes them.
    """
    if evaluation is None:
        return Verdict(
            f"Nobody knows yet how this model of {quoted(model.target)} does in a new group: evaluate it on rows of "
            "groups that it was not trained on."
        )
    loses = constant_in_words(evaluation, "The model")
    if loses:
        return Verdict(loses, "bad")
    metric, over, names = evaluation.metric, over_constant(evaluation), evaluation.headline_groups
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
    model: TableModel, rows: Sequence[GroupRow], evaluation: Evaluation | None, source: str | None
) -> list[str]:
    """The page in sentences."""
    sentences = [fitted(model, len(rows)), _penalty(model), _prior(model), _worst(model, rows), _effective(model, rows)]
    if evaluation is not None:
        sentences += evaluated(evaluation, source)
    return [sentence for sentence in sentences if sentence]


def fitted(model: TableModel, groups: int) -> str:
    """What the model is, how and to what it was fitted."""
    count, source = model.about.get("rows"), model.about.get("source")
    linear = model.kriged or getattr(model.estimator, "coef_", None) is not None
    kind = "linear model" if linear else "mean of several models" if model.by_group else "network"
    what = "the number" if model.classes is None else f"one of {len(model.classes)} classes of"
    method = METHODS.get(str(model.about.get("method")), type(model.estimator).__name__)
    rows = f"{many(count, 'row')} in " if isinstance(count, int) else ""
    where = f" of {_place(source)}" if source else ""
    weighed = f"; rows are weighted by {quoted(model.weight)}" if model.weight else ""
    return (
        f"A {kind} that predicts {what} {quoted(model.target)}, fitted by {method} to {rows}{many(groups, 'group')} "
        f"(column {quoted(model.group)}){where}{weighed}."
    )


def _penalty(model: TableModel) -> str:
    if model.about.get("method") in ("erm", "group-dro"):
        return ""
    penalty, radius = getattr(model.estimator, "penalty_", None), getattr(model.estimator, "radius", None)
    scores = penalty_scores(model.estimator)
    if scores and penalty is not None:
        folds = many(max(score.folds for score in scores), "fold")
        how = f"chosen among {len(scores)} by the loss in training groups held out ({folds})"
        return f"The penalty λ is {penalty_text(penalty)}, {how}."
    if radius is not None:
        takes = "" if penalty is None else f", which takes a penalty λ of {penalty:.3g}"
        return f"The weights stay within {radius:g} of the prior (radius){takes}."
    if penalty is None or model.estimator.prior_ is None:
        return ""
    return f"The penalty λ is {penalty_text(penalty)}, as set."


def _prior(model: TableModel) -> str:
    prior: Prior | None = model.estimator.prior_
    if prior is None:
        return "There is one group, so there is no worst case: this is an ordinary regression."
    if prior.measure == "uniform":
        but = f", but for {100 * prior.capped_mass:.2g} % taken from groups of few rows" if prior.capped_mass else ""
        return f"The prior is the same for all groups{but}: no topology takes part."
    how = prior.normalization or ""
    if prior.uniform_share:
        how += f", {100 * prior.uniform_share:g} % of it even"
    if prior.capped_mass:
        how += f", {100 * prior.capped_mass:.2g} % taken from groups of few rows"
    if prior.temperature is not None:
        how += f", temperature {prior.temperature:g}"
    kind = "" if model.graph is None else f" in the {model.graph.origin.kind} graph"
    made = "given" if prior.measure == "given" else f"{prior.measure}{kind}{f' ({how})' if how else ''}"
    seen = f" Of the test groups it saw: {_seen(prior.saw) or 'nothing'}." if model.test_groups or prior.saw else ""
    return f"The prior: {made}.{seen}"


def _seen(saw: Iterable[str]) -> str:
    return " and ".join(SAW.get(what, what) for what in saw)


def _worst(model: TableModel, rows: Sequence[GroupRow]) -> str:
    worst = max(rows, key=lambda row: (row.loss, str(row.group)))
    mean = math.fsum(row.loss for row in rows) / len(rows)
    return (
        f"The worst training group is {quoted(worst.group)}: its {loss_name(model)} is {number(worst.loss)} (mean over "
        f"groups: {number(mean)}), its weight {share(worst.weight)}, its prior {share(worst.prior)}."
    )


def _effective(model: TableModel, rows: Sequence[GroupRow]) -> str:
    prior, weights = (groups_in_effect(values) for values in ([r.prior for r in rows], [r.weight for r in rows]))
    every, used = sum(row.size for row in rows), model.estimator.rows_in_effect_
    return (
        f"Effective number of groups: {prior:.1f} by the prior and {weights:.1f} by the weights, of {len(rows)}; of "
        f"rows: {used:.0f} by the weights, of {every}."
    )


def evaluated(evaluation: Evaluation, source: str | None) -> list[str]:
    """How it did on a table, and by distance."""
    metric, title, worst = evaluation.metric, metric_name(evaluation.metric), evaluation.worst
    new = sum(not score.trained for score in evaluation.groups)
    rows = many(sum(score.rows for score in evaluation.groups), "row")
    place = f"{quoted(worst.group)}{'' if worst.trained else ', not trained on'}"
    brackets = f" In brackets: {100 * evaluation.level:g} % intervals." if evaluation.resamples else ""
    mean = f"{interval_text(evaluation.overall[metric])}, mean over groups"
    if evaluation.unseen:
        unseen = interval_text(evaluation.unseen[metric])
        mean = f"{unseen}, mean over groups not trained on (over all {interval_text(evaluation.overall[metric])})"
    sentences = [
        f"On {_place(source or 'the data given')}, {rows} in {many(len(evaluation.groups), 'group')} ({new} not "
        f"trained on): {title} {mean}; worst group {place}: "
        f"{interval_text(worst.metrics[metric])}.{brackets}"
    ]
    if len(evaluation.by_hop) > 1:
        by = "; ".join(f"{hop}: {interval_text(metrics[metric])}" for hop, metrics in evaluation.by_hop.items())
        sentences.append(f"By edges to the nearest training group, {title}: {by}.")
    if evaluation.by_reach:
        sentences.append(_inside_and_outside(evaluation))
    if (least := evaluation.least_covered) is not None:
        by = "; ".join(f"{hop}: {interval_text(metrics['coverage'])}" for hop, metrics in evaluation.by_hop.items())
        what = "Sets of classes" if "set_size" in evaluation.overall else "Intervals"
        where = " not trained on" if evaluation.unseen else ""
        sentences.append(
            f"{what} that are to hold {100 * INTERVAL:g} % of the rows hold a share of "
            f"{interval_text(evaluation.headline['coverage'])}, mean over groups{where}"
            f"{f' (by edges: {by})' if len(evaluation.by_hop) > 1 else ''}; the least, of {quoted(least.group)}: "
            f"{interval_text(least.metrics['coverage'])}."
        )
    return sentences


def _inside_and_outside(evaluation: Evaluation) -> str:
    parts, metric = evaluation.by_reach, evaluation.metric
    if "outside" not in parts:
        return "No row is farther from those trained on than validation has been."
    out, inside = parts["outside"], parts.get("inside")
    told = (
        "" if inside is None else f", and {interval_text(inside.metrics[metric])} for the {many(inside.rows, 'other')}"
    )
    return (
        f"{many(out.rows, 'row')} in {many(out.groups, 'group')} are farther from those trained on than validation has "
        f"been: {metric_name(metric)} {interval_text(out.metrics[metric])} there{told}."
    )


# ---------------------------------------------------------------- cautions


def no_control(against: object) -> str:
    """A sentence that there is no other model on the page, if so."""
    return "" if against is not None else "No control was fitted for this page. "


def cautions(
    model: TableModel, rows: Sequence[GroupRow], evaluation: Evaluation | None, source: str | None, against: Any = None
) -> list[str]:
    """What a reader might take from the page and should not."""
    weighty, used = groups_in_effect(row.weight for row in rows), model.estimator.rows_in_effect_
    scarce = len(rows) > 1 and too_few(used, len(model.encoder.names))
    few = [row.group for row in rows if row.size < FEW_ROWS]
    who = "Every training group has" if len(few) == len(rows) else f"{len(few)} of {len(rows)} training groups have"
    lost = [name for name, hops in test_hops(model).items() if math.isinf(hops)]
    control = model.about.get("method") == "erm"
    beyond = groups_outside(model, evaluation)
    return said(
        (True, "Losses and weights by group are of the rows trained on: they say where the model struggles, not how "
         "it does in a new group."),
        (evaluation is None, "Nothing was evaluated. It takes a table with targets, best of groups that were not "
         "trained on."),
        *([] if evaluation is None else about_evaluation(model, evaluation, source)),
        (control, "This is a control. Whether a robust model does better only shows beside one, on the same groups."),
        (not control, f"{no_control(against)}Whether the topology helps only shows beside models with a uniform prior "
         "and with all groups weighed alike (erm), on the same groups."),
        (model.graph is not None, "A graph is a claim that neighbouring groups are alike, which the page does not "
         "test."),
        (True, "The model cannot know what no training group shows: in a new group the target may depend on the "
         "inputs in another way, or on something that is no column of the table."),
        *_about_choice(model),
        (weighty < 2 and len(rows) > 2, f"The weights amount to {weighty:.1f} groups: the other {len(rows) - 1} hardly "
         "count."),
        (scarce, f"{used:.0f} rows are in effect for {many(len(model.encoder.names), 'input')}, fewer than "
         f"{PER_COLUMN} each: the coefficients follow the noise of few rows."),
        (few, f"{who} fewer than {FEW_ROWS} rows: such losses, and so the weights, are uncertain ({_names(few)})."),
        (lost, f"No path leads from a training group to {_names(lost)}: the graph says nothing about them."),
        (beyond, f"{OUTSIDE.capitalize()}: {_names(beyond)} ({many(len(beyond), 'group')}). Nobody knows how well the "
         "model does that far out."),
        (getattr(model.estimator, "coef_", None) is not None, "Coefficients describe the model, not causes; features "
         "that move together share theirs in ways that another sample may change."),
    )  # fmt: skip


def said(*sentences: tuple[Any, str]) -> list[str]:
    """The sentences whose condition holds."""
    return [sentence for condition, sentence in sentences if condition]


def about_evaluation(model: TableModel, evaluation: Evaluation, source: str | None) -> list[tuple[Any, str]]:
    """What an evaluation does not say, each with whether that is so."""
    count, prior = len(evaluation.groups), model.estimator.prior_
    saw = model.estimator.saw_ if model.by_group else () if prior is None else prior.saw
    chosen = "" if model.kriged else ", the votes" if model.by_group else ", the choice of the penalty"
    sure = any(score.rows > 1 and _certain(score.metrics[evaluation.metric]) for score in evaluation.groups)
    seen = sum(score.trained for score in evaluation.groups)
    same = source is not None and source == model.about.get("source")
    who = "Every group evaluated was" if seen == count else f"{seen} of {count} groups evaluated were"
    absent = set(model.test_groups) - {score.group for score in evaluation.groups}
    return [
        (evaluation.resamples, f"Intervals come from {many(evaluation.resamples, 'resample')} of the rows evaluated, "
         f"with the model as it is. They do not cover training again on other rows{chosen}, or groups unlike these."),
        (1 < count < FEW_GROUPS, f"There are {count} groups to take means over: intervals of such means are rough."),
        (count > 1, "The worst of many groups looks worse than it is: being the worst is partly bad luck."),
        (sure, "An interval without width is no certainty: resampling cannot show what never happened."),
        (same, f"The table is called {quoted(source)} like the training table. If it is that one, scores in groups "
         "trained on are flattering."),
        (seen and not same, f"{who} trained on: where these rows were, too, scores are flattering."),
        (saw and seen < count, f"The {'model' if model.by_group else 'prior'} knew of the test groups {_seen(saw)}. In "
         "groups that nobody foresaw, scores may be worse."),
        (absent, f"Test groups without rows to judge by: {_names(absent)} ({len(absent)} in all)."),
    ]  # fmt: skip


def _certain(interval: Interval) -> bool:
    return math.isfinite(interval.value) and interval.low == interval.high


def _about_choice(model: TableModel) -> list[tuple[Any, str]]:
    choice = getattr(model.estimator, "choice_", None)
    scores = [score for score in penalty_scores(model.estimator) if math.isfinite(score.score)]
    if len(scores) < 2:
        return []
    chosen = min(scores, key=lambda score: score.score)
    error = chosen.spread / math.sqrt(max(chosen.folds, 1)) if math.isfinite(chosen.spread) else 0.0
    alike = sum(score.score <= chosen.score + error for score in scores)
    kept, ahead = getattr(choice, "held_out_hops", None), getattr(choice, "test_hops", None)
    nearer = kept is not None and ahead is not None and ahead > 1.5 * kept
    return [
        (True, "The penalty was chosen on training groups held out, which may be unlike the test groups."),
        (alike > 1, f"{alike} of {len(scores)} penalties score within a standard error of the best: the choice is "
         "loose."),
        (nearer, f"It was chosen nearer than it is used: groups held out were {kept or 0:.1f} edges away on average, "
         f"test groups are {ahead or 0:.1f}."),
        *((True, f"Of the choice: {note.rstrip('.')}.") for note in getattr(choice, "notes", ())),
    ]  # fmt: skip


# ---------------------------------------------------------------- names


def quoted(name: object) -> str:
    """A name in a sentence, short enough to read."""
    return f"“{short_name(name, NAME)}”"


def _place(source: object) -> str:
    """Where rows came from: a file's name in quotation marks, words as they are."""
    return str(source) if source in PLACES else quoted(source)


def _names(names: Iterable[object], most: int = 5) -> str:
    everything = sorted(map(str, names))
    return ", ".join([*map(quoted, everything[:most]), *["…"] * (len(everything) > most)])
