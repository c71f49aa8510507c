"""Choosing a prior and a penalty for the exact linear model without a label of any test group.

Groups to come lie together and beyond the edge of what was seen, so that is what validation plays: a connected region
of training groups is left out, the model is fitted to the rest with a prior that looks towards the region, and judged
there. A region is grown around every training group in turn, in every size from that group alone to half of all,
because nothing says how far the test groups will be. ``"in-distribution"``, which sets rows of every group aside, is
there to show what it would have chosen.

The solver makes this affordable: a fit costs a few milliseconds, and a path over all penalties little more than one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toporo.bench.loaded import BenchmarkData
from toporo.choice.splits import regions
from toporo.data.grouped import GroupedData
from toporo.errors import DataError, UnknownNameError
from toporo.robust.group_losses import SquaredLosses
from toporo.robust.linear import RobustFit, path
from toporo.topology.graph import GroupGraph
from toporo.topology.prior import Prior
from toporo.types import Name

#: How priors are made; all of them by sum, since a softmax of raw path counts puts everything on one of 24 states.
PRIOR_GRID: dict[str, dict[str, Any] | None] = {
    "uniform": None,
    "betweenness": {"measure": "betweenness", "normalization": "sum"},
    "harmonic": {"measure": "harmonic"},
    "closeness": {"measure": "closeness", "normalization": "sum"},
    "degree": {"measure": "degree", "normalization": "sum"},
}
PENALTY_GRID = (math.inf, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.0)
#: The largest region left out, as a share of the training groups.
LARGEST = 0.5
#: In-distribution validation: how often, and which share of every group's rows.
SPLITS, SET_ASIDE = 5, 0.2
#: Relative gap of fits that are only compared with one another.
ROUGH = 1e-4


@dataclass(frozen=True)
class Candidate:
    """A prior and a penalty, its validation score (lower is better) and, for the record, its test error (an oracle)."""

    prior: str
    penalty: float
    score: float
    test: float

    @property
    def label(self) -> str:
        """For a figure."""
        return f"{self.prior}, λ = {'∞' if math.isinf(self.penalty) else f'{self.penalty:g}'}"


@dataclass(frozen=True)
class Choice:
    """What a rule chose, from what, and how well its validation resembled the test.

    Attributes
    ----------
    prior, settings : for :func:`~toporo.robust.linear.fit_linear` on all training groups.
    candidates : all of them with their scores; the chosen one has the lowest.
    held_out_hops, test_hops : mean hops to the nearest group in training, in validation and in the test.
    folds : how many times something was left out.
    """

    rule: str
    chosen: Candidate
    prior: Prior
    settings: dict[str, Any]
    candidates: tuple[Candidate, ...]
    folds: int
    held_out_hops: float
    test_hops: float

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON; an infinite penalty is the text ``"inf"``."""
        return {
            "rule": self.rule,
            "chosen": _plain(self.chosen),
            "settings": {k: "inf" if v == math.inf else v for k, v in self.settings.items()},
            "candidates": [_plain(candidate) for candidate in self.candidates],
            "folds": self.folds,
            "held_out_hops": self.held_out_hops,
            "test_hops": self.test_hops,
        }


def choose(benchmark: BenchmarkData, rule: str = "regions", *, ridge: float = 0.01) -> Choice:
    """Choose a prior and a penalty for a benchmark by a rule that sees no label of a test group.

    The prior of the physical graph sees the test groups' adjacency, in validation that of the groups left out. Test
    errors of all candidates are recorded beside the scores, to show what a rule missed; they take no part.
    """
    if rule not in RULES:
        raise UnknownNameError("rule", rule, RULES)
    train, test = benchmark.data.select(benchmark.train), benchmark.data.select(benchmark.test)
    folds = list(RULES[rule](benchmark, train))
    if not folds:
        raise DataError(f"{len(benchmark.train)} training groups are too few to leave regions of them out.")
    totals = dict.fromkeys(_keys(), 0.0)
    for fold in folds:
        for key, fit in _fits(benchmark.graph, fold.train, fold.towards, ridge).items():
            totals[key] += _error(fit, fold.validation) / len(folds)
    final = _fits(benchmark.graph, train, benchmark.test, ridge, tol=1e-6)
    candidates = tuple(
        Candidate(prior, penalty, totals[prior, penalty], _error(final[prior, penalty], test))
        for prior, penalty in _keys()
    )
    best = min(candidates, key=lambda candidate: candidate.score)
    hops = benchmark.graph.hops(benchmark.train)
    return Choice(
        rule=rule,
        chosen=best,
        prior=_prior(benchmark.graph, best.prior, train, benchmark.test),
        settings={"penalty": best.penalty, "ridge": ridge, "divergence": "l2"},
        candidates=candidates,
        folds=len(folds),
        held_out_hops=float(np.nanmean([fold.hops for fold in folds])),
        test_hops=float(np.mean([hops[name] for name in benchmark.test])),
    )


# ---------------------------------------------------------------- what is left out


@dataclass(frozen=True)
class _Fold:
    train: GroupedData
    validation: GroupedData
    towards: Sequence[Name]
    hops: float


def _leave_regions(benchmark: BenchmarkData, train: GroupedData) -> Iterator[_Fold]:
    world = benchmark.graph.subgraph(benchmark.train)
    for region in regions(benchmark.graph, benchmark.train, largest=LARGEST):
        kept = [name for name in benchmark.train if name not in region]
        hops = world.hops(kept)
        far = [hops[name] for name in region if math.isfinite(hops[name])]
        yield _Fold(train.select(kept), train.select(region), region, float(np.mean(far)) if far else math.nan)


def _leave_rows(benchmark: BenchmarkData, train: GroupedData) -> Iterator[_Fold]:
    for seed in range(SPLITS):
        split = train.split(SET_ASIDE, seed)
        yield _Fold(split.train, split.validation, benchmark.test, 0.0)


#: Name to rule: what each leaves out in turn.
RULES: dict[str, Callable[[BenchmarkData, GroupedData], Iterator[_Fold]]] = {
    "regions": _leave_regions,
    "in-distribution": _leave_rows,
}


# ---------------------------------------------------------------- fitting and judging


def _keys() -> list[tuple[str, float]]:
    return [(prior, penalty) for prior in PRIOR_GRID for penalty in PENALTY_GRID]


def _fits(
    graph: GroupGraph, train: GroupedData, towards: Sequence[Name], ridge: float, *, tol: float = ROUGH
) -> Mapping[tuple[str, float], RobustFit]:
    losses = SquaredLosses.from_arrays(train.x, train.y, train.ids)
    return {
        (name, fit.penalty): fit
        for name in PRIOR_GRID
        for fit in path(losses, _prior(graph, name, train, towards), penalties=PENALTY_GRID, ridge=ridge, tol=tol)
    }


def _prior(graph: GroupGraph, name: str, train: GroupedData, towards: Sequence[Name]) -> Prior:
    settings = PRIOR_GRID[name]
    if settings is None:
        return Prior.uniform(train.groups)
    return graph.subgraph([*train.groups, *towards]).prior(list(train.groups), list(towards), **settings)


def _error(fit: RobustFit, data: GroupedData) -> float:
    """Squared error summed over outputs, mean over a group's rows, then over groups."""
    squares = ((fit.predict(data.x) - data.y) ** 2).sum(axis=1)
    return float(np.mean(np.bincount(data.codes, squares) / np.bincount(data.codes)))


def _plain(candidate: Candidate) -> dict[str, Any]:
    penalty = "inf" if math.isinf(candidate.penalty) else candidate.penalty
    return {"prior": candidate.prior, "penalty": penalty, "score": candidate.score, "test": candidate.test}
