"""Choose a prior and a penalty for the exact linear model without a label of any test group.

The rule ``"regions"`` holds out a region around every training group, in every size from that group alone to half of
all, because nothing says how far away the test groups will be. The rule ``"in-distribution"``, which sets rows of every
group aside, shows what ordinary validation would have chosen.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from toporo.choice import PENALTIES
from toporo.data import GroupedData, Split
from toporo.errors import DataError, TopoRoWarning
from toporo.paper.loaded import mse_by_group
from toporo.robust import SquaredLosses, path
from toporo.topology import GroupGraph, Prior, make_prior
from toporo.types import Name

#: Priors that are compared; all of them by sum, since a softmax of raw path counts puts everything on one of 24 states.
PRIORS = ("uniform", "betweenness", "harmonic", "closeness", "degree")
#: Relative gap of fits that are only compared with one another.
ROUGH = 1e-4
#: The largest region that is held out, as a share of the groups.
LARGEST = 0.5
#: In-distribution validation: the number of splits, and the share of every group's rows that is set aside.
SPLITS, SET_ASIDE = 5, 0.2


@dataclass(frozen=True)
class Configuration:
    """A prior and a penalty.

    Attributes
    ----------
    measure : the centrality behind the prior, or ``"uniform"``.
    prior, penalty : for :func:`~toporo.robust.linear.fit_linear` on all training groups.
    scores : mean error on held-out rows of every candidate ``(measure, penalty)``; the chosen one has the lowest.
    """

    measure: str
    prior: Prior
    penalty: float
    scores: dict[tuple[str, float], float]


def choose_configuration(
    rows: GroupedData, graph: GroupGraph, test: Sequence[Name], rule: str, *, ridge: float
) -> Configuration:
    """Choose a prior and a penalty by a rule that sees no row of a test group.

    The prior of the graph sees the test groups' adjacency, in validation that of the held-out groups.

    Parameters
    ----------
    rows : of the training groups.
    graph : over these and the test groups.
    test : the test groups.
    rule : ``"regions"`` of training groups are held out, or rows of every group (``"in-distribution"``).
    ridge : as in :func:`~toporo.robust.linear.path`.
    """
    if rule == "regions":
        folds = [Split(_without(rows, region), rows.select(region)) for region in regions(graph, rows.groups.names)]
    else:
        folds = [rows.split(SET_ASIDE, seed) for seed in range(SPLITS)]
    if not folds:
        raise DataError(f"{len(rows.groups)} training groups are too few to leave regions of them out.")
    scores = dict.fromkeys(((measure, penalty) for measure in PRIORS for penalty in PENALTIES), 0.0)
    for kept, held_out in ((fold.train, fold.validation) for fold in folds):
        losses = SquaredLosses.from_arrays(kept.x, kept.y, kept.ids)
        ahead = test if kept.groups == held_out.groups else held_out.groups.names
        for measure in PRIORS:
            prior = _prior(measure, graph, kept.groups.names, ahead)
            for fit in path(losses, prior, penalties=PENALTIES, ridge=ridge, tol=ROUGH):
                errors = mse_by_group(fit.predict(held_out.x), held_out)
                scores[measure, fit.penalty] += float(np.mean(list(errors.values()))) / len(folds)
    measure, penalty = min(scores, key=scores.__getitem__)
    return Configuration(measure, _prior(measure, graph, rows.groups.names, test), penalty, scores)


def _prior(measure: str, graph: GroupGraph, kept: Sequence[Name], ahead: Sequence[Name]) -> Prior:
    """Make one of :data:`PRIORS` over the kept groups, in the graph of these and of the groups that it looks from."""
    if measure == "uniform":
        return Prior.uniform(kept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # about one candidate of many
        inner = graph.subgraph([*kept, *ahead])
        return make_prior(inner, kept, ahead, measure=measure, normalization="sum", cautious=False)


def _without(rows: GroupedData, names: Sequence[Name]) -> GroupedData:
    return rows.select([name for name in rows.groups.names if name not in names])


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
