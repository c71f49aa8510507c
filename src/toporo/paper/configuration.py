"""Choose a prior and a penalty for the exact linear model without a label of any test group.

The rule ``"regions"`` holds out a region around every training group, in every size from that group alone to half of
all, because nothing says how far away the test groups will be. The rule ``"in-distribution"``, which sets rows of every
group aside, shows what ordinary validation would have chosen.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from toporo.choice import PENALTIES
from toporo.data import GroupedData
from toporo.errors import DataError, TopoRoWarning, UnknownNameError
from toporo.graphs import as_graph
from toporo.robust import RobustFit, SquaredLosses, path
from toporo.text import number_to_json
from toporo.topology import GroupGraph, Prior, make_prior
from toporo.types import Name

#: Priors that are compared; all of them by sum, since a softmax of raw path counts puts everything on one of 24 states.
PRIORS = ("uniform", "betweenness", "harmonic", "closeness", "degree")
#: Relative gap of fits that are only compared with one another, and of those whose test error is recorded.
ROUGH, FINE = 1e-4, 1e-6
#: The largest region that is held out, as a share of the groups.
LARGEST = 0.5
#: In-distribution validation: the number of splits, and the share of every group's rows that is set aside.
SPLITS, SET_ASIDE = 5, 0.2


@dataclass(frozen=True)
class Candidate:
    """A prior and a penalty, its validation score (lower is better) and, for the record, its test error (an oracle)."""

    prior: str
    penalty: float
    score: float
    test: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"penalty": number_to_json(self.penalty)}


@dataclass(frozen=True)
class ConfigurationChoice:
    """The prior and the penalty that a rule chose, and how well its validation resembled the test.

    Attributes
    ----------
    prior, settings : for :func:`~toporo.robust.linear.fit_linear` on all training groups.
    candidates : all of them with their scores; the chosen one has the lowest.
    folds : the number of folds.
    held_out_hops, test_hops : mean hops to the nearest group in training, in validation and in the test; None where no
        path leads to any group.
    """

    rule: str
    chosen: Candidate
    prior: Prior
    settings: dict[str, Any]
    candidates: tuple[Candidate, ...]
    folds: int
    held_out_hops: float | None
    test_hops: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; an infinite penalty is the text ``"inf"``."""
        return {
            "rule": self.rule,
            "chosen": self.chosen.to_dict(),
            "settings": self.settings | {"penalty": number_to_json(self.settings["penalty"])},
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "folds": self.folds,
            "held_out_hops": self.held_out_hops,
            "test_hops": self.test_hops,
        }


def choose_configuration(
    data: GroupedData,
    graph: Any,
    train: Sequence[Name],
    test: Sequence[Name],
    rule: str = "regions",
    *,
    ridge: float = 0.01,
) -> ConfigurationChoice:
    """Choose a prior and a penalty by a rule that sees no label of a test group.

    The prior of the graph sees the test groups' adjacency, in validation that of the held-out groups. Test errors of
    all candidates are recorded beside the scores, to show what a rule missed; they take no part.

    Parameters
    ----------
    data : rows of the training and the test groups.
    graph : over all of them, in any form that :func:`~toporo.graphs.as_graph` takes.
    train, test : the groups.
    rule : ``"regions"`` of training groups are held out, or rows of every group (``"in-distribution"``).
    ridge : as in :func:`~toporo.robust.linear.path`.
    """
    if rule not in RULES:
        raise UnknownNameError("rule", rule, RULES)
    graph, inside, outside = as_graph(graph), data.select(train), data.select(test)
    folds = list(RULES[rule](inside, graph, test))
    if not folds:
        raise DataError(f"{len(train)} training groups are too few to leave regions of them out.")
    scores = dict.fromkeys(((prior, penalty) for prior in PRIORS for penalty in PENALTIES), 0.0)
    for fold in folds:
        for key, fit in _paths(graph, fold.kept, fold.ahead, ridge, ROUGH).items():
            scores[key] += _error(fit, fold.held_out) / len(folds)
    final = _paths(graph, inside, test, ridge, FINE)
    candidates = tuple(Candidate(*key, score, _error(final[key], outside)) for key, score in scores.items())
    best = min(candidates, key=lambda candidate: candidate.score)
    hops = [fold.hops for fold in folds if fold.hops is not None]
    return ConfigurationChoice(
        rule=rule,
        chosen=best,
        prior=_prior(best.prior, graph, list(inside.groups), test),
        settings={"penalty": best.penalty, "ridge": ridge, "divergence": "l2"},
        candidates=candidates,
        folds=len(folds),
        held_out_hops=float(np.mean(hops)) if hops else None,
        test_hops=_mean_hops(graph, train, test),
    )


# ---------------------------------------------------------------- folds


@dataclass(frozen=True)
class _RowFold:
    """Rows to fit to and to measure errors on, the groups that the prior looks from, and hops to the held-out ones."""

    kept: GroupedData
    held_out: GroupedData
    ahead: Sequence[Name]
    hops: float | None


def grow_region(graph: GroupGraph, around: Name, size: int) -> tuple[Name, ...]:
    """Return the ``size`` groups nearest to one, which is among them; of equally near ones the first by name.

    In a connected graph the region is connected: every group has a neighbour that is nearer.
    """
    hops = graph.hops([around])
    near = sorted((name for name in graph.names if math.isfinite(hops[name])), key=lambda name: hops[name])
    return tuple(near[:size])


def regions(graph: GroupGraph, names: Sequence[Name]) -> Iterator[tuple[Name, ...]]:
    """Yield a region around each of these groups, within the graph they span, of every size up to half of them."""
    inner = graph.subgraph(names)
    for name in inner.names:
        for size in range(1, min(int(LARGEST * len(names)), len(names) - 2) + 1):
            region = grow_region(inner, name, size)
            if len(region) == size:  # a piece of the graph may be smaller
                yield region


def _mean_hops(graph: GroupGraph, sources: Sequence[Name], targets: Sequence[Name]) -> float | None:
    """Return the mean hops from targets to the nearest of the sources, over those that a path reaches, if any."""
    near = graph.hops(sources)
    hops = [near[name] for name in targets if math.isfinite(near[name])]
    return float(np.mean(hops)) if hops else None


def _leave_regions(data: GroupedData, graph: GroupGraph, _test: Sequence[Name]) -> Iterator[_RowFold]:
    train = data.groups.names
    inner = graph.subgraph(train)
    for region in regions(graph, train):
        kept = [name for name in train if name not in region]
        yield _RowFold(data.select(kept), data.select(region), region, _mean_hops(inner, kept, region))


def _leave_rows(data: GroupedData, _graph: GroupGraph, test: Sequence[Name]) -> Iterator[_RowFold]:
    for seed in range(SPLITS):
        split = data.split(SET_ASIDE, seed)
        yield _RowFold(split.train, split.validation, test, 0.0)


#: Rules by name: each yields the folds of the training rows.
RULES: dict[str, Callable[[GroupedData, GroupGraph, Sequence[Name]], Iterator[_RowFold]]] = {
    "regions": _leave_regions,
    "in-distribution": _leave_rows,
}


# ---------------------------------------------------------------- fits


def _prior(name: str, graph: GroupGraph, kept: Sequence[Name], ahead: Sequence[Name]) -> Prior:
    """Make one of :data:`PRIORS` over the kept groups, in the graph of these and of the groups that it looks from."""
    if name == "uniform":
        return Prior.uniform(kept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # about one candidate of many
        return make_prior(
            graph.subgraph([*kept, *ahead]), kept, ahead, measure=name, normalization="sum", cautious=False
        )


def _paths(
    graph: GroupGraph, rows: GroupedData, ahead: Sequence[Name], ridge: float, tol: float
) -> Mapping[tuple[str, float], RobustFit]:
    losses = SquaredLosses.from_arrays(rows.x, rows.y, rows.ids)
    return {
        (name, fit.penalty): fit
        for name in PRIORS
        for fit in path(
            losses, _prior(name, graph, list(rows.groups), ahead), penalties=PENALTIES, ridge=ridge, tol=tol
        )
    }


def _error(fit: RobustFit, data: GroupedData) -> float:
    """Return the squared error summed over outputs, mean over the rows of a group, then over groups."""
    squares = ((fit.predict(data.x) - data.y) ** 2).sum(axis=1)
    return float(np.mean(np.bincount(data.codes, squares) / np.bincount(data.codes)))
