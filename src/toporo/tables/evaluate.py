"""How good predictions are: for each group, on average over groups, by distance from the training groups."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, SettingError, UnknownNameError, listed
from toporo.files import write_text
from toporo.groups import GroupIds, Groups
from toporo.tables.resample import Bootstrap, Interval, Whole
from toporo.tables.tally import ALL, INSIDE, LARGEST_TARGET, OUTSIDE, Cell, Judge, Seen, Tallies
from toporo.text import hops_text, many, number, number_to_json, short_name
from toporo.types import Array

#: The metric by which groups are ranked, for each task.
LEADING = {"regression": "rmse", "classification": "accuracy"}
#: Metrics of which more is better; of the others, less.
MORE_IS_BETTER = frozenset({"accuracy", "balanced_accuracy", "r2"})
#: What groups are called whose distance from the training groups is 0, infinite or unknown.
TRAINED, NOT_IN_GRAPH = "0 (trained on)", "not in the graph"

#: The least probability that the log loss reckons with.
SMALLEST = 1e-15


@dataclass(frozen=True)
class GroupScore:
    """How good the predictions for one group are.

    Attributes
    ----------
    group : its name.
    rows : how many it has.
    hops : to the nearest training group; ``inf`` if there is no path, None if that is not known.
    trained : whether it is a training group.
    metrics : by name.
    outside : the share of its rows that are outside of what validation has seen; None if that is not known.
    """

    group: str
    rows: int
    hops: float | None
    trained: bool
    metrics: dict[str, Interval]
    outside: float | None = None


@dataclass(frozen=True)
class ReachScore:
    """How good the predictions for rows inside, or outside, of what validation has seen are.

    Attributes
    ----------
    rows, groups : how many rows these are, and in how many groups.
    metrics : by name, over all of these rows together.
    """

    rows: int
    groups: int
    metrics: dict[str, Interval]


@dataclass(frozen=True)
class Evaluation:
    """How good predictions are; see :func:`evaluate`.

    Attributes
    ----------
    task, metric : ``"regression"`` is led by ``"rmse"``, ``"classification"`` by ``"accuracy"``.
    groups : by the leading metric, worst first.
    overall : means over all groups, each counting the same.
    unseen : means over the groups that were not trained on; empty unless there are others as well.
    pooled : over all rows together, where large groups count for more.
    worst : the first of ``groups``.
    by_hop : means over the groups at each distance from the training groups: ``"0 (trained on)"``, ``"1"``,
        ``"2"``, …, ``"no path"``, ``"not in the graph"``. Empty if distances are not known.
    constant : the leading metric by group of saying the same of every row; empty if it is not known what.
    level, resamples, seed : of the intervals.
    by_reach : ``"inside"`` and ``"outside"``, where there are such rows: those inside of what validation has seen, and
        the others. Empty if that is not known.
    skipped : rows that were left out, by group that the model does not know.
    """

    task: str
    metric: str
    groups: tuple[GroupScore, ...]
    overall: dict[str, Interval]
    pooled: dict[str, Interval]
    worst: GroupScore
    by_hop: dict[str, dict[str, Interval]] = field(default_factory=dict)
    constant: dict[str, float] = field(default_factory=dict)
    level: float = 0.95
    resamples: int = 1000
    seed: int = 0
    by_reach: dict[str, ReachScore] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    unseen: dict[str, Interval] = field(default_factory=dict)

    @property
    def headline(self) -> dict[str, Interval]:
        """Means over the groups that were not trained on; over all groups if there are no such, or no others."""
        return self.unseen or self.overall

    @property
    def headline_groups(self) -> tuple[str, ...]:
        """The groups that :attr:`headline` is of."""
        return tuple(score.group for score in self.groups if not (self.unseen and score.trained))

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it: a number that is not finite is None, but hops without a path are ``"inf"``."""
        return {
            "task": self.task,
            "metric": self.metric,
            "level": self.level,
            "resamples": self.resamples,
            "seed": self.seed,
            "overall": _plain(self.overall),
            "unseen": _plain(self.unseen),
            "pooled": _plain(self.pooled),
            "worst": self.worst.group,
            "by_hop": {hop: _plain(metrics) for hop, metrics in self.by_hop.items()},
            "by_reach": {
                where: {"rows": score.rows, "groups": score.groups, "metrics": _plain(score.metrics)}
                for where, score in self.by_reach.items()
            },
            "constant": self.constant,
            "skipped": self.skipped,
            "groups": [
                {
                    "group": score.group,
                    "rows": score.rows,
                    "hops": number_to_json(score.hops),
                    "trained": score.trained,
                    "outside": score.outside,
                    "metrics": _plain(score.metrics),
                }
                for score in self.groups
            ],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Evaluation:
        """The inverse of :meth:`to_dict`, but that every number that is not finite is ``nan``."""
        try:
            groups = tuple(
                GroupScore(
                    entry["group"],
                    int(entry["rows"]),
                    None if entry["hops"] is None else float(entry["hops"]),
                    bool(entry["trained"]),
                    _intervals(entry["metrics"]),
                    None if entry.get("outside") is None else float(entry["outside"]),
                )
                for entry in content["groups"]
            )
            return cls(
                task=content["task"],
                metric=content["metric"],
                groups=groups,
                overall=_intervals(content["overall"]),
                pooled=_intervals(content["pooled"]),
                worst={score.group: score for score in groups}[content["worst"]],
                by_hop={hop: _intervals(metrics) for hop, metrics in content["by_hop"].items()},
                constant={name: float(value) for name, value in content.get("constant", {}).items()},
                level=float(content["level"]),
                resamples=int(content["resamples"]),
                seed=int(content["seed"]),
                by_reach={
                    where: ReachScore(int(entry["rows"]), int(entry["groups"]), _intervals(entry["metrics"]))
                    for where, entry in content.get("by_reach", {}).items()
                },
                skipped={name: int(rows) for name, rows in content.get("skipped", {}).items()},
                unseen=_intervals(content.get("unseen", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DataError(f"not a stored evaluation ({type(error).__name__}: {error}). Evaluate again.") from None

    @property
    def least_covered(self) -> GroupScore | None:
        """The group of which the fewest rows lie in their intervals; None without intervals."""
        if "coverage" not in self.overall:
            return None
        return min(self.groups, key=lambda score: (score.metrics["coverage"].value, -score.rows, score.group))

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """One line per group, worst first; written to ``path`` too, if given (all of it or nothing).

        The columns are ``group, rows, hops, trained, outside`` (the share of rows outside of what validation has seen,
        if that is known) and, for each metric, ``rmse, rmse_low, rmse_high``. A cell is empty where there is no number;
        hops without a path are ``inf``.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [column for name in self.worst.metrics for column in (name, f"{name}_low", f"{name}_high")]
        share = ["outside"] * bool(self.by_reach)
        writer.writerow(["group", "rows", "hops", "trained", *share, *names])
        for score in self.groups:
            hops = "" if score.hops is None else f"{score.hops:g}"
            numbers = [x for entry in score.metrics.values() for x in (entry.value, entry.low, entry.high)]
            cells = ["" if math.isnan(x) else repr(x) for x in numbers]
            apart = [repr(score.outside)] * bool(self.by_reach)
            writer.writerow([score.group, score.rows, hops, str(score.trained).lower(), *apart, *cells])
        if path is not None:
            write_text(path, text.getvalue())
        return text.getvalue()

    def cells(self, most: int | None = None, *, intervals: bool = True) -> tuple[list[str], list[list[str]]]:
        """Return the table as text: titles, the summary, and the worst groups.

        Parameters
        ----------
        most : groups that are shown; all unless given.
        intervals : give intervals of all metrics, not of the leading one alone, and the sizes of those predicted.
        """
        names = [name for name in self.overall if intervals or name not in ("width", "set_size")]
        total = sum(score.rows for score in self.groups)
        new = [score.rows for score in self.groups if not score.trained]
        lines: list[tuple[str, int, str, Mapping[str, Interval]]] = []
        if self.unseen:
            lines.append((f"mean over {many(len(new), 'group')} not trained on", sum(new), "", self.unseen))
        lines.append((f"mean over {many(len(self.groups), 'group')}", total, "", self.overall))
        lines.append(("all rows together", total, "", self.pooled))
        for hop, metrics in self.by_hop.items():
            rows = sum(score.rows for score in self.groups if _label(score) == hop)
            lines.append((f"hops {hop}", rows, "", metrics))
        lines += [(f"rows {where}", part.rows, "", part.metrics) for where, part in self.by_reach.items()]
        least = self.least_covered
        shown = [(short_name(score.group, 40), score) for score in self.groups[:most]]
        for title, score in [*([] if least is None else [(f"least covered: {least.group}", least)]), *shown]:
            lines.append((title, score.rows, "0" if score.trained else hops_text(score.hops), score.metrics))
        cells = [
            [title, str(rows), hops, *(_text(values[name], intervals or name == self.metric) for name in names)]
            for title, rows, hops, values in lines
        ]
        return ["", "rows", "hops", *names], cells

    @property
    def notes(self) -> list[str]:
        """Sentences about the columns and rows of the table."""
        groups, level = many(len(self.groups), "group"), f"{100 * self.level:g} % intervals"
        sentences = [f"{groups}, worst first by {self.metric}; in brackets {level} of {self.resamples:,} resamples."]
        if self.by_hop:
            sentences.append("Hops are edges to the nearest group that the model was trained on.")
        if "outside" in self.by_reach:
            where = f"they are in {many(self.by_reach['outside'].groups, 'group')}"
            sentences.append(f"Rows outside are farther from those trained on than validation has been; {where}.")
        if "coverage" in self.overall:
            sentences.append("Coverage is the share of rows whose target is in their interval or set of classes.")
        return sentences

    def lines(self, most: int | None = None) -> list[str]:
        """Return an aligned table: the summary, then the worst ``most`` groups (all unless given)."""
        titles, cells = self.cells(most)
        widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (titles, *cells)]
        rest = 0 if most is None else len(self.groups) - most
        return [*lines, f"… and {rest} more group(s)"] if rest > 0 else lines

    def __str__(self) -> str:
        return "\n".join(self.lines(20))


def evaluate(
    task: str,
    y: npt.ArrayLike,
    predicted: npt.ArrayLike,
    groups: Sequence[str] | GroupIds,
    *,
    probabilities: npt.ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    inside: npt.ArrayLike | None = None,
    outside: npt.ArrayLike | None = None,
    widths: npt.ArrayLike | None = None,
    hops: Mapping[str, float] | None = None,
    trained: Collection[str] = (),
    constant: Any = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """Compare predictions with what was observed, group by group.

    Metrics of regression: ``rmse``, ``mae`` and ``r2`` (nan where the target does not vary). Of classification:
    ``accuracy``, ``log_loss`` (with ``probabilities``; none counts as less than 1e-15, and a class that the model does
    not know has none) and ``balanced_accuracy``, the mean over classes present of the portion that is recognised (nan
    with one class). With ``inside`` also ``coverage``, the share of rows that are, and with ``widths`` their mean: the
    ``width`` of intervals, or the ``set_size``.

    Intervals are percentiles of the metric over bootstrap resamples:

    - of a group: its rows are drawn with replacement;
    - of means over groups and of all rows together: groups are drawn with replacement, then rows within each: the
      interval speaks of groups like these; with a single group, rows only. With less than about ten groups it is
      too narrow, with groups that hardly differ too wide. Means over groups are moved to have their median at the
      value, because a metric such as rmse is biased in resamples of few rows.

    A group with a single row has the interval nan to nan, and resamples for which a metric does not exist do not
    count. A mean over groups is over those for which the metric exists. Numbers of hits are drawn as such (they are
    multinomial); the means of losses in groups of more than 500 rows are drawn from the normal distribution that
    they then follow closely, with the rows' covariance. Where all rows of a group are right, or all wrong, its
    accuracy has an interval without width: resampling cannot show what never happened.

    Neither the order of rows nor the names of groups make a difference to any number, and a group's interval does not
    depend on the other groups.

    Parameters
    ----------
    task : ``"regression"`` or ``"classification"``.
    y, predicted : numbers, or classes.
    groups : every row's group.
    probabilities, classes : rows × classes, and the classes in that order.
    inside : whether each target lies in the interval, or the set of classes, that was predicted for it.
    widths : of the intervals, or how many classes are in each set.
    outside : whether each row is outside of what validation has seen (:class:`toporo.tables.RowReach`).
    hops : by group, to the nearest training group; ``inf`` where there is no path. Groups left out are not in the
        graph.
    trained : the training groups.
    constant : a number or a class; how good it would be to say that of every row is kept beside the leading metric.
    resamples : bootstrap samples; 0 for no intervals.
    level : the share of resamples that an interval holds.
    seed : of the resamples.

    >>> result = evaluate("regression", [1, 2, 5, 6], [1, 3, 5, 9], ["NY", "NY", "PA", "PA"], resamples=0)
    >>> result.worst.group, round(result.worst.metrics["rmse"].value, 4)
    ('PA', 2.1213)
    >>> result.overall["mae"].value
    1.0
    """
    check_settings(task, resamples, level, seed)
    codes, names = _coded(groups)
    given: dict[str, Any] = {"probabilities": probabilities, "classes": classes, "inside": inside, "outside": outside}
    seen = look_at(task, y, predicted, len(codes), widths=widths, constant=constant, **given)
    settings: dict[str, Any] = {"resamples": resamples, "level": level, "seed": seed, "classes": classes}
    return summed(task, Tallies.of(seen, codes, names), hops=hops, trained=trained, **settings)


def summed(
    task: str,
    tallies: Tallies,
    *,
    classes: Sequence[Any] | None = None,
    hops: Mapping[str, float] | None = None,
    trained: Collection[str] = (),
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """What tallies of all rows say; see :func:`evaluate`.

    Parameters
    ----------
    task : ``"regression"`` or ``"classification"``.
    tallies : of :func:`look_at`'s rows.
    classes, hops, trained, resamples, level, seed : as for :func:`evaluate`.
    """
    check_settings(task, resamples, level, seed)
    drawing: dict[str, Any] = {"resamples": int(resamples), "level": level, "seed": int(seed)}
    bootstraps = [Bootstrap(*each, **drawing) for each in tallies.samples(ALL, list(classes or ()))]

    def each(way: Callable[[Bootstrap], dict[str, Interval]]) -> dict[str, Interval]:
        return {name: interval for bootstrap in bootstraps for name, interval in way(bootstrap).items()}

    members, outside = tallies.rows(ALL), tallies.rows(OUTSIDE)
    reached = INSIDE in tallies.groups or OUTSIDE in tallies.groups
    metric, known = LEADING[task], set(trained)
    scores = []
    for name, rows in members.items():
        far = _hops_of(name, hops, name in known)
        own = each(partial(Bootstrap.of_group, name=name))
        share = outside.get(name, 0) / rows if reached else None
        scores.append(GroupScore(name, rows, far, name in known, own, share))
    new = [name for name in members if name not in known]
    sign = -1.0 if metric in MORE_IS_BETTER else 1.0
    scores.sort(key=lambda score: (-sign * score.metrics[metric].value, -score.rows, score.group))
    by_hop: dict[str, list[str]] = {}
    if hops is not None:
        for score in sorted(scores, key=_distance):
            by_hop.setdefault(_label(score), []).append(score.group)
    return Evaluation(
        task=task,
        metric=metric,
        groups=tuple(scores),
        overall=each(lambda bootstrap: bootstrap.of_mean(list(members))),
        pooled=each(lambda bootstrap: bootstrap.of_all()),
        worst=scores[0],
        by_hop={label: each(partial(Bootstrap.of_mean, names=within)) for label, within in by_hop.items()},
        constant=tallies.constant(),
        level=float(level),
        resamples=int(resamples),
        seed=int(seed),
        by_reach={
            where: _reach_score(tallies, where, classes, drawing)
            for where in (INSIDE, OUTSIDE)
            if where in tallies.groups
        },
        unseen=each(lambda bootstrap: bootstrap.of_mean(new)) if 0 < len(new) < len(members) else {},
    )


def _reach_score(tallies: Tallies, where: str, classes: Sequence[Any] | None, drawing: dict[str, Any]) -> ReachScore:
    """All rows inside together, or all rows outside."""
    metrics: dict[str, Interval] = {}
    for each in tallies.samples(where, list(classes or ())):
        metrics |= Bootstrap(*each, **drawing).of_all()
    rows = tallies.rows(where)
    return ReachScore(sum(rows.values()), len(rows), metrics)


# ---------------------------------------------------------------- rows to be judged


def look_at(
    task: str,
    y: npt.ArrayLike,
    predicted: npt.ArrayLike,
    rows: int,
    *,
    probabilities: npt.ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    inside: npt.ArrayLike | None = None,
    outside: npt.ArrayLike | None = None,
    widths: npt.ArrayLike | None = None,
    constant: Any = None,
) -> Seen:
    """What is to be known of rows to judge their predictions.

    Parameters
    ----------
    rows : how many there are.
    task, y, predicted, probabilities, classes, inside, outside, widths, constant : as for :func:`evaluate`.
    """
    judges: list[tuple[Judge, Array, Whole | None, tuple[Cell, ...]]] = []
    off: Array | None = None
    if task == "regression":
        observed, guessed = _numbers(y, "y", rows), _numbers(predicted, "predicted", rows)
        judges.append((Judge("errors"), np.stack([observed, guessed - observed]), None, ()))
        off = None if constant is None else np.abs(observed - float(constant))
    else:
        judges.append(_classified(y, predicted, probabilities, classes, rows))
        if constant is not None:
            off = (np.asarray(y, dtype=object) == constant).astype(np.float64)
    if inside is not None:
        covered = np.asarray(inside, dtype=bool).reshape(rows).astype(np.int64)
        wide, what = np.empty((0, rows)), ""
        if widths is not None:
            wide = np.minimum(np.asarray(widths, dtype=np.float64).reshape(1, rows), LARGEST_TARGET)
            what = "width" if task == "regression" else "set_size"
        judges.append((Judge(what), wide, covered, ((None, False), (None, True))))
    out = None if outside is None else np.asarray(outside, dtype=bool).reshape(rows)
    each = list(zip(*judges, strict=True))
    return Seen(each[0], each[1], each[2], each[3], out, off)


def _classified(
    y: npt.ArrayLike,
    predicted: npt.ArrayLike,
    probabilities: npt.ArrayLike | None,
    classes: Sequence[Any] | None,
    rows: int,
) -> tuple[Judge, Array, Whole, tuple[Cell, ...]]:
    observed, guessed = _labels(y, "y", rows), _labels(predicted, "predicted", rows)
    if rows and isinstance(observed[0], str) != isinstance(guessed[0], str):
        raise DataError(
            f"y has classes such as {observed[0]!r}, predicted such as {guessed[0]!r}: text and numbers are never "
            "equal. Give both as one or the other."
        )
    known = None if classes is None else list(classes)
    if known is not None:
        strange = [label for label in dict.fromkeys(guessed) if label not in known]
        if strange:
            raise DataError(f"predicted has {listed(strange)}, which is not among the classes {listed(known)}.")
    labels = [*(known or ()), *dict.fromkeys(label for label in observed if label not in set(known or ()))]
    place_of: dict[Any, int] = {label: place for place, label in enumerate(labels)}
    code = np.asarray([place_of[label] for label in observed], dtype=np.int64)
    hit = np.asarray([a == b for a, b in zip(observed, guessed, strict=True)], dtype=bool)
    raw = np.empty((0, rows)) if probabilities is None else _log_loss(probabilities, known, code)[None, :]
    cells = tuple((label, right) for label in labels for right in (False, True))
    return Judge("" if probabilities is None else "loss", classes=True), raw, 2 * code + hit, cells


def _log_loss(probabilities: npt.ArrayLike, classes: list[Any] | None, code: Whole) -> Array:
    """Of every row; ``code`` is the place of its class among ``classes``, or beyond them."""
    if classes is None:
        raise SettingError("probabilities are given without classes: say which class each column is for.")
    chances = np.asarray(probabilities, dtype=np.float64)
    if chances.shape != (len(code), len(classes)):
        raise DataError(f"probabilities have the shape {chances.shape}, expected {(len(code), len(classes))}.")
    # Not `> 1e-4`: that would miss a sum that is no number.
    wrong = ~((chances >= 0.0).all(axis=1) & (np.abs(chances.sum(axis=1) - 1.0) <= 1e-4))
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{int(wrong.sum())} row(s) of probabilities are none, the first at place {row}: {chances[row].tolist()}. "
            "Expected numbers of at least 0 that sum to 1."
        )
    known = code < len(classes)
    chance = np.zeros(len(code))
    chance[known] = chances[known, code[known]]
    return np.asarray(-np.log(np.clip(chance, SMALLEST, 1.0)))


# ---------------------------------------------------------------- what is given


def check_settings(task: str, resamples: int, level: float, seed: int) -> None:
    """Refuse what :func:`evaluate` cannot take, before there is any work.

    Parameters
    ----------
    task, resamples, level, seed : as for :func:`evaluate`.
    """
    if task not in LEADING:
        raise UnknownNameError("task", task, LEADING)
    for what, value in (("resamples", resamples), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise SettingError(f"{what} is {value!r}: expected a whole number of at least 0.")
    if not 0.0 < level < 1.0:
        raise SettingError(f"level is {level!r}: expected a number between 0 and 1, such as 0.95.")


def _coded(groups: Sequence[str] | GroupIds) -> tuple[Whole, list[str]]:
    """Every row's group as a number, and the groups' names."""
    if not len(groups):
        raise DataError("there are no rows to evaluate: give at least one.")
    ids = groups if isinstance(groups, GroupIds) else Groups.of(groups)
    strange = [name for name in ids.groups if not isinstance(name, str)]
    if strange:
        raise DataError(f"groups are to be text, found {listed(strange)}: write their names as text.")
    return np.asarray(ids.codes, dtype=np.int64), [str(name) for name in ids.groups]


def _numbers(values: npt.ArrayLike, what: str, rows: int) -> Array:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{what} holds what is not a number: expected numbers for regression.") from None
    if numbers.shape != (rows,):
        raise DataError(f"{what} has the shape {numbers.shape}, expected ({rows},): one number for each row's group.")
    bad = ~np.isfinite(numbers)
    if bad.any():
        raise DataError(
            f"{what} has {int(bad.sum())} value(s) that are missing or infinite, the first at place "
            f"{int(bad.argmax())}. Leave those rows out."
        )
    if np.abs(numbers).max(initial=0.0) > LARGEST_TARGET:
        raise DataError(f"{what} holds numbers beyond {LARGEST_TARGET:g}: give the target in a larger unit.")
    return numbers


def _labels(values: npt.ArrayLike, what: str, rows: int) -> list[Any]:
    # A list of text and nan would otherwise become text, and nan the class "nan".
    classes = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if classes.shape != (rows,):
        raise DataError(f"{what} has the shape {classes.shape}, expected ({rows},): one class for each row's group.")
    labels: list[Any] = classes.tolist()
    for place, label in enumerate(labels):
        if label is None or label != label:
            raise DataError(f"{what} lacks a class at place {place}. Leave such rows out.")
        if isinstance(label, str) != isinstance(labels[0], str):
            raise DataError(
                f"{what} has both text and numbers for classes: {labels[0]!r} and {label!r}. Decide for one."
            )
    return labels


def _hops_of(name: str, hops: Mapping[str, float] | None, trained: bool) -> float | None:
    if hops is None:
        return None
    far = 0.0 if trained else hops.get(name)
    if far is None:
        return None
    if not far >= 0.0 or (far == 0.0) != trained:
        raise DataError(
            f"group {name!r} is {far!r} hops from the nearest training group: expected more than 0 for a group that "
            "was not trained on, or inf without a path. Name it in trained if it was."
        )
    return float(far)


# ---------------------------------------------------------------- how it is shown


def _label(score: GroupScore) -> str:
    if score.trained:
        return TRAINED
    return NOT_IN_GRAPH if score.hops is None else hops_text(score.hops)


def _text(interval: Interval, whole: bool) -> str:
    """Return a metric, with its interval if that is wanted and exists, all with equal decimals."""
    if not whole or math.isnan(interval.low):
        return number(interval.value, zeros=True)
    ends = (interval.value, interval.low, interval.high)
    value, low, high = (number(end, max(map(abs, ends))) for end in ends)
    return f"{value} [{low}, {high}]"


def _distance(score: GroupScore) -> tuple[bool, float]:
    return score.hops is None, score.hops or 0.0


def _plain(metrics: Mapping[str, Interval]) -> dict[str, dict[str, float | None]]:
    return {
        name: {key: x if math.isfinite(x) else None for key, x in vars(interval).items()}
        for name, interval in metrics.items()
    }


def _intervals(content: Mapping[str, Any]) -> dict[str, Interval]:
    return {
        name: Interval(*(math.nan if entry[key] is None else float(entry[key]) for key in ("value", "low", "high")))
        for name, entry in content.items()
    }
