"""Choosing the penalty of the exact linear model by holding groups out, without a label of any test group.

Folds come from the graph where there is one: as far from the kept groups as the test groups are from the training
groups (:class:`~toporo.choice.splits.GraphHopSplit`), or, where no test groups are named, connected regions
(:class:`~toporo.choice.splits.LeaveRegionOut`). Without a graph, groups are held out one at a time, or a few where
there are many. In every fold one path over all penalties is fitted to the kept groups and judged by the mean loss over
the groups held out. No row is read: losses by group are selected, not computed anew.

A penalty's score is the geometric mean over the folds: each fold counts the same, however hard its groups are to
predict. By arithmetic means a few far-off groups would decide alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from toporo.choice.splits import GraphHopSplit, LeaveRegionOut, hop_folds
from toporo.errors import DataError, GraphError, SettingError, TopoRoWarning, listed
from toporo.groups import name_from_json, name_to_json
from toporo.robust.group_losses import SquaredLosses
from toporo.robust.linear import RobustFit, path
from toporo.robust.logistic import LogisticLosses
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array, Name

Losses = SquaredLosses | LogisticLosses
MakePrior = Callable[[Sequence[Name], Sequence[Name]], Prior | None]

#: Losses of standardised targets, and log losses, are of the order of one, so one grid serves all data.
GRID = (math.inf, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.0)
#: Relative gap of fits that are only compared with one another.
ROUGH = 1e-4
#: Scores this near to the lowest, in units of what a model of zeros loses, are as low: rounding must not choose.
SAME = 1e-9


class NoChoiceError(DataError):
    """The data do not let a penalty be chosen."""


@dataclass(frozen=True)
class PenaltyScore:
    """How a penalty did in the folds.

    Attributes
    ----------
    score : the geometric mean over the folds of the loss in groups held out; lower is better.
    spread : how much the folds differ about it: the standard deviation of the loss, in a fold relative to that of the
        other penalties there.
    folds : how many there were.
    """

    penalty: float
    score: float
    spread: float
    folds: int


@dataclass(frozen=True)
class PenaltyChoice:
    """Which penalty was chosen, from what, and how well the groups held out stood for the test groups.

    Attributes
    ----------
    penalty : the one with the lowest score; of equal ones the largest.
    scores : of all penalties, the largest first.
    held_out : the groups held out in each fold that counted.
    held_out_hops, test_hops : mean hops to the nearest training group, in the folds and in the test, over the groups
        that a path reaches; None where there is no graph, or no test group.
    splitter : what chose the folds.
    notes : which folds did not count, and why.
    """

    penalty: float
    scores: tuple[PenaltyScore, ...]
    held_out: tuple[tuple[Name, ...], ...]
    held_out_hops: float | None
    test_hops: float | None
    splitter: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON; an infinite penalty is the text ``"inf"``."""
        return {
            "penalty": _plain(self.penalty),
            "scores": [
                {"penalty": _plain(s.penalty), "score": s.score, "spread": s.spread, "folds": s.folds}
                for s in self.scores
            ],
            "held_out": [[name_to_json(name) for name in fold] for fold in self.held_out],
            "held_out_hops": self.held_out_hops,
            "test_hops": self.test_hops,
            "splitter": self.splitter,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, content: Any) -> PenaltyChoice:
        """The inverse of :meth:`to_dict`."""
        try:
            return cls(
                penalty=float(content["penalty"]),
                scores=tuple(
                    PenaltyScore(float(s["penalty"]), float(s["score"]), float(s["spread"]), int(s["folds"]))
                    for s in content["scores"]
                ),
                held_out=tuple(tuple(name_from_json(name) for name in fold) for fold in content["held_out"]),
                held_out_hops=_number_or_none(content["held_out_hops"]),
                test_hops=_number_or_none(content["test_hops"]),
                splitter=str(content["splitter"]),
                notes=tuple(str(note) for note in content["notes"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a stored choice of a penalty: {type(error).__name__}: {error}.") from None


def choose_penalty(
    losses: Losses,
    graph: GroupGraph | None,
    test_groups: Sequence[Name] | None,
    make_prior: MakePrior,
    *,
    penalties: Sequence[float] = GRID,
    divergence: str = "l2",
    ridge: float = 0.0,
    max_folds: int = 12,
) -> PenaltyChoice:
    """Choose the penalty under which groups that were held out lose the least.

    Parameters
    ----------
    losses : of all training groups.
    graph, test_groups : decide the folds (see the module); test groups without a graph take no part.
    make_prior : the prior for a fold from the groups kept and those held out; None is the uniform one.
    penalties, divergence, ridge : as in :func:`~toporo.robust.linear.path`.
    max_folds : at most this many folds, of at least two.

    A fold does not count, and is named in the notes, where the kept groups lack a class that others have, where no path
    joins them to the groups held out and the prior needs one (if no fold is left, all have a uniform prior), or
    where without a ridge they leave the model undetermined.
    """
    names = losses.groups.names
    if len(names) < 3:
        raise NoChoiceError(
            f"the penalty cannot be chosen from {len(names)} group(s), {listed(names)}: one is held out and at least "
            "two are kept. Give a number instead, such as penalty=1.0."
        )
    if isinstance(max_folds, bool) or not isinstance(max_folds, int) or max_folds < 2:
        raise SettingError(f"max_folds is {max_folds!r}: expected a whole number of at least 2.")
    candidates = _largest_first(penalties)
    splitter, folds = _folds(names, graph, test_groups, max_folds)
    judge = partial(_judge, losses, penalties=candidates, divergence=divergence, ridge=ridge)
    found = [judge(held_out, make_prior) for held_out in folds]
    notes = [verdict.why for verdict in found if verdict.why]
    if all(verdict.scores is None for verdict in found) and any(verdict.no_path for verdict in found):
        notes = ["In no fold a path joins the groups kept to those held out: all have a uniform prior."]
        found = [judge(held_out, lambda *_: None) for held_out in folds]
        notes += [verdict.why for verdict in found if verdict.why]
    counted = [held_out for held_out, verdict in zip(folds, found, strict=True) if verdict.scores is not None]
    rows = [verdict.scores for verdict in found if verdict.scores is not None]
    if not rows:
        raise NoChoiceError(
            f"the penalty cannot be chosen: none of {len(folds)} folds can be fitted. {notes[-1]} "
            "Give a number instead, such as penalty=1.0."
        )
    scale = float(np.mean(losses.at(np.zeros(losses.shape)).losses))
    scores = _scores(candidates, np.array(rows), SAME * scale)
    lowest = min(score.score for score in scores)
    return PenaltyChoice(
        penalty=next(score.penalty for score in scores if score.score <= lowest + SAME * scale),
        scores=scores,
        held_out=tuple(counted),
        held_out_hops=_held_out_hops(graph, names, counted),
        test_hops=_mean_hops(graph, names, test_groups),
        splitter=splitter,
        notes=tuple(notes),
    )


def _scores(penalties: Sequence[float], table: Array, least: float) -> tuple[PenaltyScore, ...]:
    """From losses by fold and penalty; none counts as lower than ``least``."""
    logs = np.log(np.maximum(table, max(least, np.finfo(float).tiny)))
    means = np.exp(logs.mean(axis=0))
    relative = logs - logs.mean(axis=1, keepdims=True)
    spreads = means * (relative.std(axis=0, ddof=1) if len(table) > 1 else 0.0)
    return tuple(
        PenaltyScore(penalty, float(mean), float(spread), len(table))
        for penalty, mean, spread in zip(penalties, means, np.broadcast_to(spreads, means.shape), strict=True)
    )


def held_out_losses(losses: Losses, fit: RobustFit) -> Array:
    """What a model loses in each of these groups, which need not be those it was fitted to.

    A fit is of the data as they came; losses know a model of shifted data.
    """
    if not losses.intercept:
        return losses.at(fit.coef).losses
    target_shift = losses.target_shift if isinstance(losses, SquaredLosses) else 0.0
    constant = fit.intercept - target_shift + losses.input_shift @ fit.coef
    return losses.at(np.vstack([fit.coef, constant])).losses


# ---------------------------------------------------------------- folds


def _folds(
    names: Sequence[Name], graph: GroupGraph | None, test_groups: Sequence[Name] | None, most: int
) -> tuple[str, list[tuple[Name, ...]]]:
    """What chose the groups to hold out, and which they are, fold by fold."""
    if graph is None:
        return "LeaveOneGroupOut" if len(names) <= most else "LeaveGroupsOut", _dealt(names, most)
    if test_groups:
        split = GraphHopSplit(graph, test_groups, n_splits=most)
        graph.require(names, what="group(s) of the data")
        return "GraphHopSplit", [fold.held_out for fold in hop_folds(graph, names, split.test_groups, most)]
    return "LeaveRegionOut", LeaveRegionOut(graph, max_splits=most).regions(names)


def _dealt(names: Sequence[Name], most: int) -> list[tuple[Name, ...]]:
    """Every group by itself, or, of more groups than folds, dealt out in turn; two are always kept."""
    hands = max(min(len(names), most), math.ceil(len(names) / (len(names) - 2)))
    return [tuple(names[start::hands]) for start in range(hands)][:most]


@dataclass(frozen=True)
class _Verdict:
    """A fold's mean loss over the groups held out, by penalty; or why it does not count."""

    scores: list[float] | None
    why: str = ""
    no_path: bool = False


def _judge(
    losses: Losses,
    held_out: Sequence[Name],
    make_prior: MakePrior,
    *,
    penalties: Sequence[float],
    divergence: str,
    ridge: float,
) -> _Verdict:
    kept = tuple(name for name in losses.groups if name not in set(held_out))
    inside, outside = losses.select(kept), losses.select(held_out)
    fold = f"The fold that holds out {listed(held_out, 4)} does not count:"
    if isinstance(inside, LogisticLosses):
        present = set(inside.targets.tolist())
        absent = [label for code, label in enumerate(inside.classes) if code not in present]
        if absent:
            return _Verdict(None, f"{fold} no row of the groups kept is of class {listed(absent)}.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # the fit to all groups says what is to be said
        try:
            prior = make_prior(kept, held_out)
        except GraphError as error:
            return _Verdict(None, f"{fold} {error}", no_path=True)
        try:
            fits = path(inside, prior, penalties=penalties, divergence=divergence, ridge=ridge, tol=ROUGH)
        except DataError as error:
            if ridge > 0 or "singular" not in str(error):
                raise
            return _Verdict(None, f"{fold} {error}")
    return _Verdict([float(held_out_losses(outside, fit).mean()) for fit in fits])


# ---------------------------------------------------------------- small parts


def _held_out_hops(graph: GroupGraph | None, names: Sequence[Name], folds: Sequence[tuple[Name, ...]]) -> float | None:
    means = [_mean_hops(graph, [name for name in names if name not in set(fold)], fold) for fold in folds]
    known = [mean for mean in means if mean is not None]
    return float(np.mean(known)) if known else None


def _mean_hops(graph: GroupGraph | None, sources: Sequence[Name], targets: Sequence[Name] | None) -> float | None:
    if graph is None or not targets:
        return None
    hops = graph.hops(sources)
    reached = [hops[name] for name in graph.require(targets) if math.isfinite(hops[name])]
    return float(np.mean(reached)) if reached else None


def _largest_first(penalties: Sequence[float]) -> list[float]:
    """Each penalty once; all of them numbers that a fit takes."""
    try:
        values = sorted({float(penalty) for penalty in penalties}, reverse=True)
    except (TypeError, ValueError):
        values = []
    if not values or not all(value >= 0 for value in values):
        raise SettingError(
            f"penalties are {penalties!r}: expected at least one, numbers of at least 0 or infinity, e.g. (10, 1, 0.1)."
        )
    return values


def _plain(penalty: float) -> float | str:
    return "inf" if math.isinf(penalty) else penalty


def _number_or_none(value: Any) -> float | None:
    return None if value is None else float(value)
