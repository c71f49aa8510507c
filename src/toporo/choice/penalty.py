"""Choose the penalty of the exact linear model without a label of any test group.

Test groups often lie together and beyond the edge of the training groups. So validation holds out training groups that
lie like that, fits the rest with a prior that looks from the held-out groups, and measures the loss there. The solver
makes this cheap: a fit takes milliseconds, and a path over all penalties little more.

:func:`choose_penalty` implements ``penalty="auto"``. Folds come from the graph where there is one: as far from the
kept groups as the test groups are from the training groups (:class:`~toporo.choice.splits.GraphHopSplit`), or, where no
test groups are named, connected regions (:class:`~toporo.choice.splits.LeaveRegionOut`). Without a graph, groups are
held out one at a time, or a few at a time where there are many. No row is read: losses by group are selected, not
computed again. The score of a penalty is the geometric mean over the folds, so each fold counts the same, however hard
its groups are to predict. An arithmetic mean would let a few groups that are far off decide.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np

from toporo.checks import whole
from toporo.choice.cross_fitting import Kind, folds
from toporo.errors import DataError, GraphError, SettingError, TopoRoError, TopoRoWarning, UnknownNameError, listed
from toporo.graphs import as_graph
from toporo.groups import GroupIds, Groups, name_from_json, name_to_json, plain_name
from toporo.progress import tracked
from toporo.robust.linear import RobustFit, path
from toporo.robust.logistic import LogisticLosses
from toporo.robust.losses import SquaredLosses
from toporo.schema import Count, NonNegative, OrInfinite, as_type
from toporo.text import number_to_json
from toporo.topology.centrality import MEASURES, centrality
from toporo.topology.centrality_prior import default_measure, make_prior
from toporo.topology.effect import most_weight
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array, Name


@dataclass(frozen=True)
class PriorMaker:
    """The settings of a prior, and the graph it comes from.

    Parameters
    ----------
    kind : ``"auto"``, ``"uniform"``, a measure, a :class:`~toporo.Prior` or ``{group: weight}``.
    graph : of the groups; None where there is none.
    with_test : whether the prior looks from the test groups, or in a fold from the groups held out.
    rows, columns : rows in effect by training group, and columns of features: an automatic prior gives no group more
        than its rows can bear (:func:`~toporo.topology.effect.most_weight`). None: no limit.
    doubted : whether resamples of a learned graph do not bear an automatic prior out: then it is uniform, in folds too.
    """

    kind: Any
    graph: GroupGraph | None
    with_test: bool
    rows: Mapping[Any, float] | None = None
    columns: int = 0
    doubted: bool = False

    def __post_init__(self) -> None:
        kind = self.kind
        if isinstance(kind, str):
            known = ("auto", "uniform", *MEASURES)
            if kind not in known:
                raise UnknownNameError("prior", kind, known)
            if kind in MEASURES and self.graph is None:
                raise SettingError(
                    f"prior={kind!r} is a centrality in a graph, and there is none: give a graph (graph=, "
                    "--graph), or use the prior 'uniform'."
                )
            if kind == "harmonic" and not self.with_test:
                raise SettingError(
                    "prior='harmonic' walks from the test groups: name them (test_groups=, --test-groups), or use "
                    "another prior."
                )
        elif not isinstance(kind, Prior | Mapping):
            raise SettingError(
                f"prior is of type {type(kind).__name__}: expected 'auto', 'uniform', a measure "
                f"({', '.join(MEASURES)}), a Prior or {{group: weight}}."
            )

    @property
    def measure(self) -> str | None:
        """The centrality that the prior comes from, or ``"auto"``; None for a uniform or a given prior."""
        if self.graph is None or self.doubted or self.kind == "uniform" or not isinstance(self.kind, str):
            return None
        return self.kind

    def most(self, groups: Iterable[Name]) -> dict[Name, float] | None:
        """By group, the most weight that it may have, by itself and in a worst case; None where nothing limits it."""
        if self.kind != "auto" or self.rows is None:
            return None
        return most_weight({name: self.rows[name] for name in groups}, self.columns)

    def prior(self, groups: Groups, test: Sequence[Name] | None) -> Prior:
        """Over the training groups, of which there are at least two."""
        if isinstance(self.kind, Prior | Mapping):
            given = self.kind if isinstance(self.kind, Prior) else Prior.from_weights(self.kind)
            groups.require_same(given.weights, what="the prior")
            return given
        if self.graph is None or self.measure is None:
            return self._held(Prior.uniform(groups))
        return self._made(self.graph, self.measure, list(groups), test)

    def fold(self, kept: Sequence[Name], held_out: Sequence[Name]) -> Prior | None:
        """The prior over ``kept`` where other training groups stand for test groups.

        None, which is uniform, where no graph decides it or nothing of a given prior is left.
        """
        if isinstance(self.kind, Prior | Mapping):
            weights = self.kind.weights if isinstance(self.kind, Prior) else self.kind
            left = {plain_name(name): float(weight) for name, weight in weights.items() if plain_name(name) in kept}
            return Prior.from_weights(left) if any(left.values()) else None
        if self.graph is None or self.measure is None:
            return None
        world = self.graph.subgraph([*kept, *held_out])
        return self._made(world, self.measure, list(kept), list(held_out) if self.with_test else None, cautious=False)

    def centrality(self, groups: Groups, test: Sequence[Name] | None, prior: Prior | None) -> dict[Name, float] | None:
        """Of every training group: that of the prior, or where it has none, that of an automatic prior."""
        if self.graph is None or len(groups) < 2:
            return None
        if prior is not None and prior.centrality:
            return dict(prior.centrality)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TopoRoWarning)
            try:
                return centrality(self.graph, groups, test, measure=default_measure(test))
            except TopoRoError:
                return None

    def _made(
        self,
        graph: GroupGraph,
        measure: str,
        train: list[Name],
        test: Sequence[Name] | None,
        *,
        cautious: bool | None = None,
    ) -> Prior:
        # A softmax of raw path counts puts nearly all weight on one group, so it must be asked for.
        return self._held(make_prior(graph, train, test, measure=measure, normalization="sum", cautious=cautious))

    def _held(self, prior: Prior) -> Prior:
        most = self.most(prior)
        return prior if most is None else prior.within(most)


Losses = SquaredLosses | LogisticLosses
MakePrior = Callable[[Sequence[Name], Sequence[Name]], Prior | None]

#: Losses of standardised targets, and log losses, are of the order of one, so one grid serves all data.
PENALTIES = (math.inf, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.0)
#: Relative gap of fits that are only compared with one another.
ROUGH = 1e-4
#: Scores this near to the lowest, in units of what a model of zeros loses, are as low: rounding must not choose.
SAME = 1e-9


# ---------------------------------------------------------------- a penalty


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


class StoredScore(msgspec.Struct):
    """A :class:`PenaltyScore` as JSON has it."""

    penalty: OrInfinite
    score: NonNegative
    spread: NonNegative
    folds: Count


class StoredChoice(msgspec.Struct):
    """What :meth:`PenaltyChoice.to_dict` gives."""

    penalty: OrInfinite
    scores: list[StoredScore]
    held_out: list[list[Any]]
    held_out_hops: NonNegative | None
    test_hops: NonNegative | None
    splitter: str
    notes: list[str]


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
            "penalty": number_to_json(self.penalty),
            "scores": [asdict(score) | {"penalty": number_to_json(score.penalty)} for score in self.scores],
            "held_out": [[name_to_json(name) for name in fold] for fold in self.held_out],
            "held_out_hops": self.held_out_hops,
            "test_hops": self.test_hops,
            "splitter": self.splitter,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, content: Any) -> PenaltyChoice:
        """The inverse of :meth:`to_dict`."""
        stored = as_type(content, StoredChoice, "not a stored choice of a penalty")
        return cls(
            penalty=float(stored.penalty),
            scores=tuple(PenaltyScore(float(s.penalty), s.score, s.spread, s.folds) for s in stored.scores),
            held_out=tuple(tuple(name_from_json(name) for name in fold) for fold in stored.held_out),
            held_out_hops=stored.held_out_hops,
            test_hops=stored.test_hops,
            splitter=stored.splitter,
            notes=tuple(stored.notes),
        )


def choose_penalty(
    losses: Losses,
    graph: Any,
    test_groups: Sequence[Name] | None,
    make_prior: MakePrior,
    *,
    penalties: Sequence[float] = PENALTIES,
    divergence: str = "l2",
    ridge: float = 0.0,
    max_folds: int = 12,
    most: Callable[[Sequence[Name]], Mapping[Name, float] | None] = lambda _: None,
) -> PenaltyChoice:
    """Choose the penalty under which groups that were held out lose the least.

    Parameters
    ----------
    losses : of all training groups.
    graph : decides the folds (see the module), in any form that :func:`~toporo.graphs.as_graph` takes; or None.
    test_groups : names in the graph, or None. Without a graph they take no part.
    make_prior : the prior for a fold from the groups kept and those held out; None is the uniform one.
    penalties, divergence, ridge : as in :func:`~toporo.robust.linear.path`.
    max_folds : at most this many folds, and at least two.
    most : the most weight of every group from the groups kept, as :func:`~toporo.robust.linear.path` takes it.

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
    max_folds = whole(max_folds, "max_folds", 2)
    graph = None if graph is None else as_graph(graph)
    candidates = _largest_first(penalties)
    splitter, all_held_out = _folds(names, graph, test_groups, max_folds)
    judge = partial(_judge, losses, penalties=candidates, divergence=divergence, ridge=ridge, most=most)
    verdicts = [judge(held_out, make_prior) for held_out in tracked(all_held_out, "choosing the penalty")]
    notes = [verdict.why for verdict in verdicts if verdict.why]
    if all(verdict.scores is None for verdict in verdicts) and any(verdict.no_path for verdict in verdicts):
        notes = ["In no fold a path joins the groups kept to those held out: all have a uniform prior."]
        verdicts = [judge(held_out, lambda *_: None) for held_out in all_held_out]
        notes += [verdict.why for verdict in verdicts if verdict.why]
    counted = [held_out for held_out, verdict in zip(all_held_out, verdicts, strict=True) if verdict.scores is not None]
    rows = [verdict.scores for verdict in verdicts if verdict.scores is not None]
    if not rows:
        raise NoChoiceError(
            f"the penalty cannot be chosen: none of {len(all_held_out)} folds can be fitted. {notes[-1]} "
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

    A fit is in the units of the rows; losses are of shifted rows.
    """
    return losses.at(losses.model(fit.coef, fit.intercept)).losses


# ---------------------------------------------------------------- folds


def _folds(
    names: Sequence[Name], graph: GroupGraph | None, test_groups: Sequence[Name] | None, most: int
) -> tuple[str, list[tuple[Name, ...]]]:
    """Return the name of the splitter, and the groups that it holds out, fold by fold."""
    groups, parts, splitter = Groups(names), most, "LeaveRegionOut"
    kind: Kind = "regions"
    if graph is None:
        kind, splitter = "turns", "LeaveOneGroupOut" if len(groups) <= most else "LeaveGroupsOut"
        parts = max(most, 3 if len(groups) == 3 else 0)  # two groups are always kept
    else:
        graph.require(groups, what="group(s) of the data")
        if test_groups:
            graph.require(test_groups, what="test group(s)")
            kind, splitter = "hops", "GraphHopSplit"
    ids = GroupIds(np.arange(len(groups)), groups)
    masks = folds(ids, graph, test_groups or (), kind=kind, parts=parts)[:most]
    return splitter, [tuple(groups.decode(np.flatnonzero(mask))) for mask in masks]


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
    most: Callable[[Sequence[Name]], Mapping[Name, float] | None],
) -> _Verdict:
    kept = tuple(name for name in losses.groups if name not in set(held_out))
    inside, outside = losses.select(kept), losses.select(held_out)
    fold = f"The fold that holds out {listed(held_out, 4)} does not count:"
    if isinstance(inside, LogisticLosses):
        present = set(inside.memory.classes.tolist())
        absent = [label for code, label in enumerate(inside.classes) if code not in present]
        if absent:
            return _Verdict(None, f"{fold} no row of the groups kept is of class {listed(absent)}.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # the fit to all groups says what is to be said
        try:
            prior, limits = make_prior(kept, held_out), most(kept)
        except GraphError as error:
            return _Verdict(None, f"{fold} {error}", no_path=True)
        if limits is not None:
            prior = (prior or Prior.uniform(inside.groups)).within(limits)
        try:
            fits = path(inside, prior, penalties=penalties, divergence=divergence, ridge=ridge, tol=ROUGH, most=limits)
        except DataError as error:
            if ridge > 0 or "singular" not in str(error):
                raise
            return _Verdict(None, f"{fold} {error}")
    return _Verdict([float(held_out_losses(outside, fit).mean()) for fit in fits])


# ---------------------------------------------------------------- small parts


def _held_out_hops(graph: GroupGraph | None, names: Sequence[Name], folds: Sequence[tuple[Name, ...]]) -> float | None:
    return _mean([_mean_hops(graph, [name for name in names if name not in set(fold)], fold) for fold in folds])


def _mean_hops(graph: GroupGraph | None, sources: Sequence[Name], targets: Sequence[Name] | None) -> float | None:
    """Return the mean hops from targets to the nearest of the sources, over those that a path reaches, if any."""
    if graph is None or not targets:
        return None
    hops = graph.hops(sources)
    return _mean([hops[name] for name in graph.require(targets) if math.isfinite(hops[name])])


def _mean(values: Sequence[float | None]) -> float | None:
    """Of the values that there are."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


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
