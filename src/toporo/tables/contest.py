"""Models side by side on the same rows, two evaluations or many models: paired intervals, tables and words."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toporo.errors import DataError, SettingError, UnknownNameError, listed
from toporo.files import write_text
from toporo.tables.evaluate import MORE_IS_BETTER, Evaluation
from toporo.tables.resample import Interval, clear, in_words, mean_over_groups
from toporo.text import many, number, number_to_json

#: Metrics as people write them.
METRICS = {"rmse": "RMSE", "mae": "MAE", "r2": "R²"}
#: What a constant is, by task.
CONSTANTS = {
    "regression": "the mean of the training target",
    "classification": "the commonest class of the training rows",
}
#: Models that sentences speak of.
AUTO, TRO, ERM, KRIGED, CONSTANT = "auto", "linear, TRO", "linear, ERM", "kriged", "constant"
#: Those that use a graph, with its groups at other places.
SHUFFLED = {name: f"{name}, shuffled graph" for name in (AUTO, KRIGED, TRO)}
#: All that look at a graph as it is.
WITH_GRAPH = (*SHUFFLED, "trees on a kriged model", "linear, by prior")
#: What an entrant is.
MODEL, CONTROL, YOURS = "model", "control", "yours"
#: Of the intervals between many models.
RESAMPLES, LEVEL = 2000, 0.95
NOTHING = Interval(math.nan, math.nan, math.nan)
#: A difference that is so small a share of the error is rounding.
ROUNDING = 1e-6
#: With fewer groups, all of them on one side would still be luck in more than one case of twenty.
FEWEST_CLEAR = 6
#: Models that a sentence names.
NAMED = 3


# ---------------------------------------------------------------- two models


@dataclass(frozen=True)
class Comparison:
    """What a model gains over a control, by the leading metric.

    Attributes
    ----------
    metric : which.
    gains : by group; above 0 the model is better, whether more or less of the metric is good.
    gain : the mean over groups: over those not trained on, if there are any. Its interval is of the differences: what
        makes a group hard for both models is no part of it; two intervals that overlap say nothing about it.
    better : in how many of these groups the model is better.
    over : these groups, where they are not all.
    """

    metric: str
    gains: dict[str, float]
    gain: Interval
    better: int
    over: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON; an interval that does not exist is null."""
        gain = {key: number_to_json(value) for key, value in vars(self.gain).items()}
        over = list(self.gains if self.over is None else self.over)
        return {"metric": self.metric, "gain": gain, "better": self.better, "over": over, "gains": self.gains}

    def words(self, name: str, control: str) -> str:
        """One sentence.

        Parameters
        ----------
        name, control : what the two models are called.

        >>> Comparison("rmse", dict.fromkeys("abcdef", -2.0), Interval(-2.0, -3.0, -1.0), 0).words("new", "old")
        'new is worse by 2 (1 to 3) than old in RMSE, mean over groups; it is better in 0 of 6 groups.'
        """
        how, size = in_words(self.gain, control, metric_name(self.metric)), len(self.gains)
        where = ""
        if self.over is not None:
            size, where = len(self.over), " not trained on"
        count = many(size, "group")
        few = f"{count} are too few to be sure." if 1 < size < FEWEST_CLEAR else ""
        return f"{name} is {how}, mean over groups{where}; it is better in {self.better} of {count}. {few}".rstrip()


def compare(model: Evaluation, control: Evaluation, *, seed: int = 0) -> Comparison:
    """What ``model`` gains over ``control`` on the same rows.

    The interval is a percentile bootstrap over groups, with as many resamples and of the level of the evaluations;
    with a single group there is none.

    Parameters
    ----------
    model, control : two evaluations on the same rows.
    seed : of the resamples.
    """
    if (model.task, model.metric) != (control.task, control.metric):
        raise SettingError(f"a {model.task} cannot be compared with a {control.task}.")
    mine, theirs = (
        {score.group: (score.rows, score.metrics[model.metric].value) for score in evaluation.groups}
        for evaluation in (model, control)
    )
    other = [name for name in {**mine, **theirs} if mine.get(name, (0,))[0] != theirs.get(name, (0,))[0]]
    if other:
        counts = ", ".join(
            f"{name!r} ({mine.get(name, (0,))[0]} and {theirs.get(name, (0,))[0]})" for name in other[:6]
        )
        raise DataError(
            f"the two were not judged by the same rows: they differ in {many(len(other), 'group')}, with so many rows: "
            f"{counts}{', …' if len(other) > 6 else ''}. Judge both on all groups (without --unseen), fit both with "
            "the same test groups, or take the rows of these groups out of the table."
        )
    knew = {score.group for score in control.groups if score.trained}
    over = [name for name in model.headline_groups if name not in knew] or model.headline_groups
    return _gains(model, {name: value for name, (_, value) in theirs.items()}, over, seed)


def unfair(model: Evaluation, control: Evaluation, name: str, other: str) -> str:
    """A sentence about groups that one of two models was trained on and the other was not; nothing if there are none.

    Parameters
    ----------
    model, control : two evaluations on the same rows.
    name, other : what the two are called.
    """
    knew = [{score.group for score in each.groups if score.trained} for each in (model, control)]
    more = ((name, other, knew[0] - knew[1]), (other, name, knew[1] - knew[0]))
    told = [f"{one} was trained on {listed(sorted(own), 3)}, and {two} was not" for one, two, own in more if own]
    if not told:
        return ""
    return f"This is not fair: {'; '.join(told)}. Fit both with the same test groups, or judge both on other groups."


def over_constant(judged: Evaluation, *, seed: int = 0) -> Comparison | None:
    """What a model gains over a constant; None where the evaluation knows of none.

    Parameters
    ----------
    judged : of a model fitted by this version or a later one.
    seed : of the resamples.
    """
    return _gains(judged, judged.constant, judged.headline_groups, seed) if judged.constant else None


def constant_in_words(judged: Evaluation, name: str) -> str:
    """A sentence about a model that is no better than a constant, and nothing about others.

    Parameters
    ----------
    judged : how the model did.
    name : what it is called.
    """
    gained = over_constant(judged)
    if gained is None:  # a model of an earlier version: its training mean is not known, but that of these rows is
        fit = judged.pooled.get("r2")
        if fit is None or not fit.value < 0:
            return ""
        return (
            f"{name} loses to a constant: the mean of these rows is nearer to them than its predictions (R² "
            f"{number(fit.value)}, all rows together)."
        )
    sign = clear(gained.gain)
    if sign > 0:
        return ""
    how = f"{CONSTANTS[judged.task]}: it is {in_words(gained.gain, 'that', metric_name(judged.metric))}"
    verdict = "loses to a constant" if sign < 0 else "is not clearly better than a constant"
    return f"{name} {verdict}, {how}, mean over groups{' not trained on' if gained.over else ''}."


def _gains(model: Evaluation, theirs: dict[str, float], over: Sequence[str], seed: int) -> Comparison:
    sign = 1.0 if model.metric in MORE_IS_BETTER else -1.0
    mine = {score.group: score.metrics[model.metric].value for score in model.groups}
    gains = {name: sign * (value - theirs[name]) for name, value in mine.items()}
    counted = [gains[name] for name in over]
    gain = mean_over_groups(counted, model.resamples, model.level, seed)
    better = sum(value > 0 for value in counted)
    return Comparison(model.metric, gains, gain, better, tuple(over) if len(over) < len(gains) else None)


# ---------------------------------------------------------------- many models


@dataclass(frozen=True)
class Judgement:
    """How an entrant did in one place: in regions held out, or in the test groups.

    Attributes
    ----------
    error : RMSE or log loss, mean over groups, with an interval over groups.
    accuracy : mean over groups; nan for numbers.
    ratio : of the error to that of ``linear, ERM``.
    difference : of the error from that of the reference, with a paired interval over groups; above 0 is worse.
    by_group : the error in every group.
    """

    error: Interval
    accuracy: float
    ratio: float
    difference: Interval
    by_group: dict[str, float]


@dataclass(frozen=True)
class Entrant:
    """A model in the contest.

    Attributes
    ----------
    name : unique.
    kind : ``"model"``, ``"control"`` or ``"yours"``.
    regions : how it did in regions held out; None if it was left out.
    test : the same in the test groups; None without targets of them.
    note : why it was left out, or what else is to be known.
    """

    name: str
    kind: str
    regions: Judgement | None
    test: Judgement | None = None
    note: str = ""


@dataclass(frozen=True)
class Contest:
    """Models side by side; see :func:`compare_models`.

    Attributes
    ----------
    task, metric : ``"regression"`` is judged by ``"rmse"``, ``"classification"`` by ``"log_loss"``.
    entrants : the least error in regions held out first, those left out last.
    reference : the entrant that differences are from.
    regions : the groups that were held out together.
    test_groups : those with targets to judge by.
    has_graph : whether there is a graph to be worth something.
    notes : what went otherwise than asked.
    about : the source, rows, and so on.
    level, resamples, seed : of the intervals.
    """

    task: str
    metric: str
    entrants: tuple[Entrant, ...]
    reference: str
    regions: tuple[tuple[str, ...], ...]
    test_groups: tuple[str, ...]
    has_graph: bool
    notes: tuple[str, ...]
    about: dict[str, Any]
    level: float = LEVEL
    resamples: int = RESAMPLES
    seed: int = 0

    def __getitem__(self, name: str) -> Entrant:
        for entrant in self.entrants:
            if entrant.name == name:
                return entrant
        raise UnknownNameError("model", name, [entrant.name for entrant in self.entrants])

    def __contains__(self, name: object) -> bool:
        return any(entrant.name == name for entrant in self.entrants)

    def difference(self, name: str, other: str, *, test: bool = False) -> Interval:
        """The error of one less that of another, mean over groups, with a paired interval: below 0 the first is better.

        Parameters
        ----------
        name, other : of entrants.
        test : in the test groups instead of regions held out.
        """
        mine, theirs = (self[each].test if test else self[each].regions for each in (name, other))
        if mine is None or theirs is None:
            return NOTHING
        return error_difference(mine.by_group, theirs.by_group, self.resamples, self.level, self.seed)

    def words(self) -> list[str]:
        """What it comes to: who is best and what the graph is worth, then the rest, one sentence each."""
        return list(_words(self))

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it: a number that is not finite is None."""
        return {
            "task": self.task,
            "metric": self.metric,
            "reference": self.reference,
            "level": self.level,
            "resamples": self.resamples,
            "seed": self.seed,
            "words": self.words(),
            "regions": [list(region) for region in self.regions],
            "test_groups": list(self.test_groups),
            "notes": list(self.notes),
            "about": self.about,
            "models": [
                {
                    "name": entrant.name,
                    "kind": entrant.kind,
                    "note": entrant.note,
                    "regions": _plain(entrant.regions),
                    "test": _plain(entrant.test),
                }
                for entrant in self.entrants
            ],
        }

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """One line per model, the best first; written to ``path`` too, if given (all of it or nothing).

        The columns are ``model, kind``, then ``error, error_low, error_high, accuracy, ratio, difference,
        difference_low, difference_high``, the same for the test groups with ``test_`` before, and ``note``. A cell is
        empty where there is no number.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        ends = ("", "_low", "_high")
        titles = [f"error{end}" for end in ends] + ["accuracy", "ratio"] + [f"difference{end}" for end in ends]
        writer.writerow(["model", "kind", *titles, *(f"test_{title}" for title in titles), "note"])
        for entrant in self.entrants:
            numbers = [*_numbers(entrant.regions), *_numbers(entrant.test)]
            cells = ["" if math.isnan(x) else repr(x) for x in numbers]
            writer.writerow([entrant.name, entrant.kind, *cells, entrant.note])
        if path is not None:
            write_text(path, text.getvalue())
        return text.getvalue()

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """The table as text: titles, and a line per entrant."""
        classes, metric = self.task == "classification", metric_name(self.metric)
        titles = [
            "model",
            "kind",
            metric,
            *(["accuracy"] if classes else []),
            "of ERM",
            f"difference to {self.reference}",
        ]
        titles += [f"{metric} in test groups", "of ERM there"] if self.test_groups else []
        lines = []
        for entrant in self.entrants:
            here, there = entrant.regions, entrant.test
            line = [entrant.name, entrant.kind, "left out" if here is None else number(here.error.value)]
            line += [number(math.nan if here is None else here.accuracy)] if classes else []
            line += ["", ""] if here is None else [number(here.ratio), _signed(here.difference)]
            if self.test_groups:
                line += ["", ""] if there is None else [number(there.error.value), number(there.ratio)]
            lines.append(line)
        return titles, lines

    def __str__(self) -> str:
        titles, lines = self.cells()
        widths = [max(map(len, column)) for column in zip(titles, *lines, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in (titles, *lines)]
        return "\n".join([*self.words(), "", *table])


def error_difference(
    mine: Mapping[str, float], theirs: Mapping[str, float], resamples: int, level: float, seed: int
) -> Interval:
    """The mean over groups of one error less another, with a paired interval; nothing but rounding is 0.

    Parameters
    ----------
    mine, theirs : errors by group, of the same groups.
    resamples, level, seed : of the bootstrap.
    """
    apart = [value - theirs[name] for name, value in mine.items()]
    if not np.isfinite(apart).all():
        return NOTHING
    if max(map(abs, apart)) <= ROUNDING * max(map(abs, theirs.values())):
        return Interval(0.0, 0.0, 0.0)
    return mean_over_groups(apart, resamples, level, seed)


def _numbers(judged: Judgement | None) -> list[float]:
    if judged is None:
        return [math.nan] * 8
    ends = [(each.value, each.low, each.high) for each in (judged.error, judged.difference)]
    return [*ends[0], judged.accuracy, judged.ratio, *ends[1]]


def _plain(judged: Judgement | None) -> dict[str, Any] | None:
    if judged is None:
        return None
    intervals = {"error": judged.error, "difference": judged.difference}
    return {
        **{name: {key: number_to_json(x) for key, x in vars(each).items()} for name, each in intervals.items()},
        "accuracy": number_to_json(judged.accuracy),
        "ratio": number_to_json(judged.ratio),
        "by_group": {name: number_to_json(value) for name, value in judged.by_group.items()},
    }


def _signed(interval: Interval) -> str:
    """A difference with its interval."""
    if math.isnan(interval.value):
        return "–"
    if interval.value == interval.low == interval.high == 0:
        return "0"
    ends = [interval.value] if math.isnan(interval.low) else [interval.value, interval.low, interval.high]
    texts = [number(end, max(map(abs, ends)), digits=2) for end in ends]
    value, *around = [f"+{text}" if end > 0 else text for end, text in zip(ends, texts, strict=True)]
    return f"{value} [{', '.join(around)}]" if around else value


# ---------------------------------------------------------------- words


def metric_name(metric: str) -> str:
    """As people write it."""
    return METRICS.get(metric, metric.replace("_", " "))


def _words(contest: Contest) -> Iterator[str]:
    first = f"{_best(contest, test=False)}; {_graph(contest)}."
    yield first[0].upper() + first[1:]
    ranked, reference = _ranked(contest, test=False), contest.reference
    metric = metric_name(contest.metric)
    if ranked and ranked[0].name != reference:
        yield f"{_called(contest[reference])} is {_gain(contest, reference, ranked[0].name, metric)}."
    if CONSTANT in contest:
        lost = [e for e in ranked if e.name != CONSTANT and _clear(contest, CONSTANT, e.name) < 0]
        if lost:
            yield f"{'Loses' if len(lost) == 1 else 'Lose'} to a constant: {', '.join(map(_called, lost))}."
    for entrant in ranked:
        if entrant.kind == YOURS and entrant.name not in (reference, ranked[0].name):
            yield f"{_called(entrant)} is {_gain(contest, entrant.name, reference, metric)}."
    if contest.test_groups:
        yield f"In {many(len(contest.test_groups), 'test group')} {_best(contest, test=True)}."
    out = [entrant for entrant in contest.entrants if entrant.regions is None]
    if out:
        yield f"Left out: {'; '.join(f'{_called(entrant)} ({entrant.note})' for entrant in out)}."
    yield from contest.notes


def _ranked(contest: Contest, *, test: bool, shuffled: bool = False) -> list[Entrant]:
    """Those with an error, the least first; on shuffled graphs only if asked for: nobody would take them."""
    errors = {}
    for entrant in contest.entrants:
        judged = entrant.test if test else entrant.regions
        asked = shuffled or entrant.name not in SHUFFLED.values()
        if asked and judged is not None and math.isfinite(judged.error.value):
            errors[entrant.name] = judged.error.value
    return [contest[name] for name in sorted(errors, key=lambda name: (errors[name], name))]


def _best(contest: Contest, *, test: bool) -> str:
    """Who is best, if anybody is: clearly better than each of the others."""
    ranked = _ranked(contest, test=test)
    if not ranked:
        return "no model could be judged"
    first, *others = ranked
    metric, plural = metric_name(contest.metric), first.name.startswith("trees")
    count = len(contest.test_groups) if test else sum(map(len, contest.regions))
    if count < FEWEST_CLEAR:
        few = f"{many(count, 'group')} {'is' if count == 1 else 'are'} too few to tell"
        return f"{_called(first)} {'have' if plural else 'has'} the lowest {metric}, but {few}"
    models = [entrant for entrant in ranked if entrant.kind != CONTROL]
    if CONSTANT in [entrant.name for entrant in ranked] and not any(
        _clear(contest, CONSTANT, entrant.name, test=test) > 0 for entrant in models
    ):
        return f"no model is clearly better than a constant (the lowest {metric}: {_called(first)})"
    near = [e for e in others if _clear(contest, e.name, first.name, test=test) <= 0]
    if not near:
        return f"{_called(first)} {'are' if plural else 'is'} best"
    shown = ", ".join(map(_called, near[:NAMED])) + (f" and {len(near) - NAMED} more" if len(near) > NAMED else "")
    return f"{_called(first)} {'have' if plural else 'has'} the lowest {metric}, not clearly lower than {shown}"


def _graph(contest: Contest) -> str:
    """What the graph is worth: its best model, against the same with the groups shuffled and the best without it."""
    if not contest.has_graph:
        return "there is no graph"
    ranked = _ranked(contest, test=False, shuffled=True)
    judged = [entrant.name for entrant in ranked]
    name = next((name for name in judged if SHUFFLED.get(name) in judged), None)
    if name is None:
        return "what the graph is worth could not be judged"
    free = [e.name for e in ranked if e.kind != YOURS and e.name not in {*WITH_GRAPH, *SHUFFLED.values()}]
    gains = [
        (_clear(contest, other, name), contest.difference(other, name).value, other)
        for other in (SHUFFLED[name], *free[:1])
    ]
    sign, gain, other = min(gains)
    mine, size = _called(contest[name]), f"by {number(abs(gain))} in {metric_name(contest.metric)}"
    rival = "with its groups shuffled" if other == SHUFFLED[name] else f"{_called(contest[other])} without it"
    if sign > 0:
        return f"the graph helps: {mine} is better {size} than {rival}"
    if sign < 0:
        verdict = "misleads" if other == SHUFFLED[name] else "does not help"
        return f"the graph {verdict}: {mine} is worse {size} than {rival}"
    return f"the graph adds nothing that shows: {mine} is not clearly better than {rival}"


def _clear(contest: Contest, name: str, other: str, *, test: bool = False) -> int:
    """1 if one is clearly worse than the other, -1 if it is clearly better, 0 else and with few groups."""
    count = len(contest.test_groups) if test else sum(map(len, contest.regions))
    return 0 if count < FEWEST_CLEAR else clear(contest.difference(name, other, test=test))


def _gain(contest: Contest, name: str, other: str, metric: str) -> str:
    apart = contest.difference(name, other)
    return in_words(Interval(-apart.value, -apart.high, -apart.low), _called(contest[other]), metric)


def _called(entrant: Entrant) -> str:
    return f"“{entrant.name}”" if entrant.kind == YOURS or "," in entrant.name else entrant.name
