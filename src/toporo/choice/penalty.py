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
from dataclasses import dataclass
from typing import Any

import numpy as np

from toporo.checks import whole
from toporo.choice.cross_fitting import Kind, folds
from toporo.errors import DataError, GraphError, SettingError, TopoRoError, TopoRoWarning, UnknownNameError, listed
from toporo.graphs import as_graph
from toporo.groups import GroupIds, Groups, plain_name
from toporo.progress import tracked
from toporo.robust.linear import RobustFit, path
from toporo.robust.logistic import LogisticLosses
from toporo.robust.losses import SquaredLosses
from toporo.topology.centrality import MEASURES, centrality
from toporo.topology.centrality_prior import default_measure, make_prior
from toporo.topology.effect import most_weight
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Array, Name

Losses = SquaredLosses | LogisticLosses
MakePrior = Callable[[Sequence[Name], Sequence[Name]], Prior | None]
#: The most weight of every group, from the groups that are fitted to; None where nothing limits it.
Limits = Callable[[Sequence[Name]], Mapping[Name, float] | None]

#: Losses of standardised targets, and log losses, are of the order of one, so one grid serves all data.
PENALTIES = (math.inf, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.0)
#: Relative gap of fits that are only compared with one another.
ROUGH = 1e-4
#: Scores this near to the lowest, in units of what a model of zeros loses, are as low: rounding must not choose.
SAME = 1e-9


# ---------------------------------------------------------------- priors


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
    def uniform(self) -> bool:
        """True if no centrality decides a prior that is not given."""
        return self.doubted or self.kind == "uniform"

    def most(self, groups: Iterable[Name]) -> dict[Name, float] | None:
        """Return the most weight that each group may have, by itself and in a worst case; None if nothing limits it."""
        if self.kind != "auto" or self.rows is None:
            return None
        return most_weight({name: self.rows[name] for name in groups}, self.columns)

    def prior(self, groups: Groups, test: Sequence[Name] | None) -> Prior:
        """Return the prior over the training groups, of which there are at least two."""
        if not isinstance(self.kind, str):
            given = self.kind if isinstance(self.kind, Prior) else Prior.from_weights(self.kind)
            groups.require_same(given.weights, what="the prior")
            return given
        if self.graph is None or self.uniform:
            return self._limited(Prior.uniform(groups))
        return self._limited(self._central(self.graph, list(groups), test))

    def fold(self, kept: Sequence[Name], held_out: Sequence[Name]) -> Prior | None:
        """Return the prior over ``kept`` where other training groups stand for test groups.

        None, which is uniform, where no graph decides it or nothing of a given prior is left.
        """
        if not isinstance(self.kind, str):
            weights = self.kind.weights if isinstance(self.kind, Prior) else self.kind
            left = {plain_name(name): float(weight) for name, weight in weights.items() if plain_name(name) in kept}
            return Prior.from_weights(left) if any(left.values()) else None
        if self.graph is None or self.uniform:
            return None
        world = self.graph.subgraph([*kept, *held_out])
        test = list(held_out) if self.with_test else None
        return self._limited(self._central(world, list(kept), test, cautious=False))

    def centrality(self, groups: Groups, test: Sequence[Name] | None, prior: Prior | None) -> dict[Name, float] | None:
        """Return the centrality of every training group: that of the prior, else that of an automatic prior."""
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

    def _central(
        self, graph: GroupGraph, train: list[Name], test: Sequence[Name] | None, cautious: bool | None = None
    ) -> Prior:
        # A softmax of raw path counts puts nearly all weight on one group, so it must be asked for.
        return make_prior(graph, train, test, measure=self.kind, normalization="sum", cautious=cautious)

    def _limited(self, prior: Prior) -> Prior:
        most = self.most(prior)
        return prior if most is None else prior.within(most)


# ---------------------------------------------------------------- a penalty


class NoChoiceError(DataError):
    """The data do not let a penalty be chosen."""


@dataclass(frozen=True)
class PenaltyScore:
    """Result of a penalty in the folds.

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

    def check(self) -> None:
        """Refuse numbers that no score can have."""
        for name in ("penalty", "score", "spread"):
            value = getattr(self, name)
            if not value >= 0 or (math.isinf(value) and name != "penalty"):
                raise DataError(f"the {name} of a penalty is {value!r}: expected a number of at least 0.")


@dataclass(frozen=True)
class PenaltyChoice:
    """The penalty that was chosen, from what, and how well the groups held out stood for the test groups.

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

    def check(self) -> None:
        """Refuse a penalty that has no score."""
        if self.penalty not in {score.penalty for score in self.scores}:
            raise DataError(f"the penalty chosen is {self.penalty!r}, which has no score.")


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
    most: Limits = lambda _: None,
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
    graph = None if graph is None else as_graph(graph)
    candidates = _largest_first(penalties)
    splitter, all_held_out = _folds(losses.groups, graph, test_groups, whole(max_folds, "max_folds", 2))
    settings = {"penalties": candidates, "divergence": divergence, "ridge": ridge}
    notes: list[str] = []
    for prior_of in (make_prior, _uniform):
        rows: list[list[float]] = []
        counted: list[tuple[Name, ...]] = []
        no_path = False
        for held_out in tracked(all_held_out, "choosing the penalty"):
            try:
                rows.append(_fold_losses(losses, held_out, prior_of, most, settings))
                counted.append(held_out)
            except (GraphError, NoChoiceError) as error:
                no_path |= isinstance(error, GraphError)
                notes.append(f"The fold that holds out {listed(held_out, 4)} does not count: {error}")
        if rows or not no_path:
            break
        notes = ["In no fold a path joins the groups kept to those held out: all have a uniform prior."]
    if not rows:
        raise NoChoiceError(
            f"the penalty cannot be chosen: none of {len(all_held_out)} folds can be fitted. {notes[-1]} "
            "Give a number instead, such as penalty=1.0."
        )
    equal = SAME * float(np.mean(losses.at(np.zeros(losses.shape)).losses))
    scores = _scores(candidates, np.array(rows), equal)
    lowest = min(score.score for score in scores)
    hops = [_mean_hops(graph, [name for name in names if name not in set(fold)], fold) for fold in counted]
    reached = [value for value in hops if value is not None]
    return PenaltyChoice(
        penalty=next(score.penalty for score in scores if score.score <= lowest + equal),
        scores=scores,
        held_out=tuple(counted),
        held_out_hops=float(np.mean(reached)) if reached else None,
        test_hops=_mean_hops(graph, names, test_groups),
        splitter=splitter,
        notes=tuple(notes),
    )


def _folds(
    groups: Groups, graph: GroupGraph | None, test_groups: Sequence[Name] | None, most: int
) -> tuple[str, list[tuple[Name, ...]]]:
    """Return the name of the splitter, and the groups that it holds out, fold by fold."""
    parts, splitter = most, "LeaveRegionOut"
    kind: Kind = "regions"
    if graph is None:
        kind, splitter = "turns", "LeaveOneGroupOut" if len(groups) <= most else "LeaveGroupsOut"
        parts = max(most, 3 if len(groups) == 3 else 0)  # two groups are always kept
    else:
        graph.require(groups, what="group(s) of the data")
        if test_groups:
            graph.require(test_groups, what="test group(s)")
            kind, splitter = "hops", "GraphHopSplit"
    masks = folds(GroupIds(np.arange(len(groups)), groups), graph, test_groups or (), kind=kind, parts=parts)[:most]
    return splitter, [tuple(groups.decode(np.flatnonzero(mask))) for mask in masks]


def _fold_losses(
    losses: Losses, held_out: Sequence[Name], make_prior: MakePrior, most: Limits, settings: Mapping[str, Any]
) -> list[float]:
    """Return the mean loss over the groups held out, by penalty; a :class:`NoChoiceError` if it does not count."""
    kept = tuple(name for name in losses.groups if name not in set(held_out))
    inside, outside = losses.select(kept), losses.select(held_out)
    if isinstance(inside, LogisticLosses):
        present = set(inside.memory.classes.tolist())
        absent = [label for code, label in enumerate(inside.classes) if code not in present]
        if absent:
            raise NoChoiceError(f"no row of the groups kept is of class {listed(absent)}.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # the fit to all groups says what is to be said
        prior, limits = make_prior(kept, held_out), most(kept)
        if limits is not None:
            prior = (prior or Prior.uniform(inside.groups)).within(limits)
        try:
            fits = path(inside, prior, **settings, tol=ROUGH, most=limits)
        except DataError as error:
            if settings["ridge"] > 0 or "singular" not in str(error):
                raise
            raise NoChoiceError(str(error)) from None
    return [float(held_out_losses(outside, fit).mean()) for fit in fits]


def _uniform(kept: Sequence[Name], held_out: Sequence[Name]) -> None:
    """Make no prior: all groups weigh the same."""


def held_out_losses(losses: Losses, fit: RobustFit) -> Array:
    """Return the loss of a model in each of these groups, which need not be those it was fitted to.

    A fit is in the units of the rows; losses are of shifted rows.
    """
    return losses.at(losses.model(fit.coef, fit.intercept)).losses


def _scores(penalties: Sequence[float], table: Array, least: float) -> tuple[PenaltyScore, ...]:
    """Score penalties by losses by fold and penalty, none of which counts as lower than ``least``."""
    logs = np.log(np.maximum(table, max(least, np.finfo(float).tiny)))
    means = np.exp(logs.mean(axis=0))
    relative = logs - logs.mean(axis=1, keepdims=True)
    spreads = means * (relative.std(axis=0, ddof=1) if len(table) > 1 else 0.0)
    return tuple(
        PenaltyScore(penalty, float(mean), float(spread), len(table))
        for penalty, mean, spread in zip(penalties, means, spreads, strict=True)
    )


def _mean_hops(graph: GroupGraph | None, sources: Sequence[Name], targets: Sequence[Name] | None) -> float | None:
    """Return the mean hops from targets to the nearest of the sources, over those that a path reaches, if any."""
    if graph is None or not targets:
        return None
    hops = graph.hops(sources)
    reached = [hops[name] for name in graph.require(targets) if math.isfinite(hops[name])]
    return float(np.mean(reached)) if reached else None


def _largest_first(penalties: Sequence[float]) -> list[float]:
    """Return each penalty once; all of them must be numbers that a fit takes."""
    try:
        values = sorted({float(penalty) for penalty in penalties}, reverse=True)
    except (TypeError, ValueError):
        values = []
    if not values or not all(value >= 0 for value in values):
        raise SettingError(
            f"penalties are {penalties!r}: expected at least one, numbers of at least 0 or infinity, e.g. (10, 1, 0.1)."
        )
    return values
