r"""Choose groups to hold out by their place in a graph: connected regions, and groups as far away as the test groups.

Hops are counted in the whole graph. Where no path leads to a group, it counts as one hop beyond the longest path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from toporo.choice.matching import match_folds
from toporo.errors import GroupMismatchError, listed, warn
from toporo.groups import Groups
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

Masks = npt.NDArray[np.bool_]
Hops = npt.NDArray[np.float32]

#: The largest region that is held out, as a share of the groups.
LARGEST_REGION = 0.5
#: The most that a fold of :func:`hop_folds` holds out, as a share of the groups: enough must be left to train on.
MOST_HELD_OUT = 2 / 3
#: With more groups than this, regions are grown around this many, spread over the graph ...
MOST_CENTRES = 100
#: ... and in this many sizes.
MOST_SIZES = 40


@dataclass(frozen=True)
class HopFold:
    """Groups held out, and their distance to the kept groups.

    Attributes
    ----------
    held_out : the groups.
    hops : from each of them to the nearest kept group.
    likeness : Wasserstein-1 distance, in hops, between the distribution of ``hops`` and that of the test groups' hops
        to the nearest training group: 0 if they are equal.
    """

    held_out: tuple[Name, ...]
    hops: dict[Name, float]
    likeness: float


@dataclass(frozen=True, eq=False)
class _Problem:
    """Hops among the training groups, and the distribution of hops that folds should match.

    Attributes
    ----------
    graph, known : the graph, and the training groups in canonical order.
    between : hops between any two of them.
    aim : hops from each test group to the nearest of them.
    beyond : hops of a group that no path reaches.
    """

    graph: GroupGraph
    known: tuple[Name, ...]
    between: Hops
    aim: Array
    beyond: float

    @classmethod
    def of(cls, graph: GroupGraph, names: Sequence[Name], test_groups: Sequence[Name] | None) -> _Problem:
        """Count hops; without test groups the aim is that every held-out group touches a kept one."""
        known = Groups(names).names
        both = [name for name in test_groups or () if name in set(known)]
        if both:
            raise GroupMismatchError(
                f"test group(s) in the data: {listed(both)}. A test group is one that training never sees; leave its "
                "rows out, or take it out of test_groups."
            )
        near = graph.hops(known)
        aim = np.array([near[name] for name in graph.require(test_groups or (), what="test group(s)")] or [1.0])
        if unreached := int(np.isinf(aim).sum()):
            warn(
                f"no path leads from the training groups to {unreached} of {len(aim)} test groups: the farthest "
                "groups that can be held out stand for them. Add the edges that join the pieces of the graph, or leave "
                "those test groups out."
            )
        between = _hops_among(graph, known)
        beyond = 1.0 + max(float(np.max(hops, where=np.isfinite(hops), initial=1.0)) for hops in (between, aim))
        return cls(graph, known, between, np.minimum(aim, beyond), beyond)

    def fold(self, mask: Masks) -> HopFold:
        """Describe the fold that holds these groups out."""
        from scipy.stats import wasserstein_distance

        held_out, near = _members(self.known, mask), self.graph.hops(_members(self.known, ~mask))
        hops = {name: near[name] for name in held_out}
        return HopFold(held_out, hops, float(wasserstein_distance(np.minimum([*hops.values()], self.beyond), self.aim)))


def matched_folds(
    graph: GroupGraph, names: Sequence[Name], test_groups: Sequence[Name] | None, parts: int, seed: int
) -> tuple[HopFold, ...]:
    """Divide the groups into folds that together are as far from the kept groups as the test groups are from all.

    Parameters
    ----------
    graph, names, test_groups : the graph, the groups of the data and, perhaps, those that the model is for.
    parts : the number of folds; one per group if there are fewer groups.
    seed : of the draws (:mod:`toporo.choice.matching`).
    """
    problem = _Problem.of(graph, names, test_groups)
    parts = min(parts, len(problem.known))
    between = np.minimum(problem.between.astype(np.float64), problem.beyond)
    fold_of = match_folds(between, problem.aim, parts, seed)
    return tuple(problem.fold(fold_of == number) for number in range(parts))


def hop_folds(
    graph: GroupGraph, names: Sequence[Name], test_groups: Sequence[Name] | None, most: int
) -> tuple[HopFold, ...]:
    """Return the folds of :class:`toporo.GraphHopSplit`: each as far from the kept groups as the test groups are.

    Parameters
    ----------
    graph, names, test_groups : as its ``graph`` and ``test_groups``, and the groups to train on.
    most : the number of folds; all of them where there are fewer.
    """
    problem = _Problem.of(graph, names, test_groups)
    masks, unlike = _candidates(problem, test_groups)
    size = masks.sum(axis=1)
    usual = len(problem.known) / most
    order = sorted(range(len(masks)), key=lambda i: (abs(size[i] - usual), (~masks[i]).tobytes()))
    masks, unlike, size = masks[order], unlike[order], size[order]
    times = np.zeros(len(problem.known))  # that each group was held out so far
    taken: list[int] = []
    for _ in range(min(most, len(masks))):
        cost = np.round(unlike + masks @ times / size, 9)
        cost[taken] = math.inf
        taken.append(int(np.argmin(cost)))
        times += masks[taken[-1]]
    return tuple(problem.fold(masks[i]) for i in taken)


def region_folds(graph: GroupGraph, names: Sequence[Name], most: int) -> list[tuple[Name, ...]]:
    """Choose at most so many connected regions to hold out, smaller ones first.

    Parameters
    ----------
    graph, names : the graph, and the groups of the data, among which regions are connected.
    most : the number of regions; of more sizes, evenly spaced ones count.
    """
    known = Groups(names).names
    inner = graph.subgraph(known)
    largest = max(1, min(int(LARGEST_REGION * len(known)), max(map(len, inner.components()))))
    sizes = np.arange(1, largest + 1)
    if largest > most:
        sizes = 1 + np.round(np.linspace(largest - 1, 0, most)).astype(np.intp)[::-1]
    hops = _hops_among(inner, known)
    pools = [pool for size in sizes.tolist() if len(pool := _regions(hops, size, max(MOST_CENTRES, most)))]
    return [_members(known, mask) for mask in _spread_out(pools, most)]


# ---------------------------------------------------------------- candidates


def _candidates(problem: _Problem, test_groups: Sequence[Name] | None) -> tuple[Masks, Array]:
    """Return different sets of groups to hold out, one per row, and how unlike the aim each is."""
    groups = len(problem.known)
    largest = groups - max(2, math.ceil(groups * (1 - MOST_HELD_OUT)))
    sizes = np.arange(1, largest + 1)
    if largest > MOST_SIZES:  # closer together where they are small
        sizes = np.unique(np.round(np.geomspace(1, largest, MOST_SIZES)).astype(np.intp))
    distinct: dict[bytes, tuple[Masks, float]] = {}
    for order, reach in _orders(problem, test_groups):
        cuts = sizes[sizes <= reach]
        for mask, value in zip(_first(order, cuts), _unlikeness(problem, order, cuts), strict=True):
            distinct.setdefault(mask.tobytes(), (mask, float(value)))
    masks = np.array([mask for mask, _ in distinct.values()], dtype=bool).reshape(-1, groups)
    return masks, np.array([value for _, value in distinct.values()])


def _orders(problem: _Problem, test_groups: Sequence[Name] | None) -> Iterator[tuple[npt.NDArray[np.intp], int]]:
    """Yield orders of the groups whose first ones, up to a number, are worth holding out."""
    known, hops = problem.known, problem.between
    inner = _hops_among(problem.graph.subgraph(known), known)
    for centre in _centres(hops, MOST_CENTRES):
        yield np.argsort(inner[centre], kind="stable"), int(np.isfinite(inner[centre]).sum())
        reached = np.isfinite(hops[centre])
        opposite = hops[int(np.argmax(np.where(reached, hops[centre], -1.0)))]
        side = np.full(len(known), math.inf)
        side[reached] = hops[centre][reached] - opposite[reached]
        yield np.lexsort((hops[centre], side)), int(reached.sum())
    if test_groups is not None:
        from_test = problem.graph.hops(test_groups)
        far = np.array([from_test[name] for name in known])
        yield np.argsort(far, kind="stable"), len(known)
        yield np.argsort(-far, kind="stable"), len(known)


def _unlikeness(problem: _Problem, order: npt.NDArray[np.intp], cuts: npt.NDArray[np.intp]) -> Array:
    """Return the Wasserstein-1 distance to the aim when the first ``cut`` groups of an order are held out, by cut.

    For whole numbers it is the sum, over all levels, of the difference of the two cumulative shares.
    """
    if not len(cuts):
        return np.zeros(0)
    rows = problem.between[np.ix_(order[: cuts[-1]], order)]
    between = np.minimum.reduceat(rows, cuts, axis=1)  # from each held-out group to those from one cut to the next
    nearest = np.minimum.accumulate(between[:, ::-1], axis=1)[:, ::-1]  # held-out group × cut
    nearest = np.where(np.arange(cuts[-1])[:, None] < cuts, np.minimum(nearest, problem.beyond), math.inf)
    levels = np.arange(problem.beyond)
    shares = [(nearest <= level).sum(axis=0) / cuts - (problem.aim <= level).mean() for level in levels]
    return np.asarray(np.abs(shares).sum(axis=0))


def _regions(hops: Hops, size: int, most_centres: int) -> Masks:
    """Return different connected regions of a size, in the order of their centres."""
    distinct: dict[bytes, Masks] = {}
    for centre in _centres(hops, most_centres):
        if size <= np.isfinite(hops[centre]).sum():
            mask = _first(np.argsort(hops[centre], kind="stable"), np.array([size]))[0]
            distinct.setdefault(mask.tobytes(), mask)
    return np.array(list(distinct.values()), dtype=bool).reshape(-1, len(hops))


def _spread_out(pools: Sequence[Masks], most: int) -> list[Masks]:
    """Take at most so many regions from pools by size, in turn, each time the one with groups taken least often."""
    left = [list(pool) for pool in pools]
    taken: list[list[Masks]] = [[] for _ in pools]
    times = np.zeros(pools[0].shape[1])
    while any(left) and sum(map(len, taken)) < most:
        for pool, chosen in zip(left, taken, strict=True):
            if pool and sum(map(len, taken)) < most:
                chosen.append(pool.pop(int(np.argmin(np.array(pool) @ times))))
                times += chosen[-1]
    return [mask for chosen in taken for mask in sorted(chosen, key=lambda mask: (~mask).tobytes())]


# ---------------------------------------------------------------- small parts


def _hops_among(graph: GroupGraph, names: Sequence[Name]) -> Hops:
    """Return the hops between any two of these groups by any path of the graph; infinite where there is none."""
    codes = graph.groups.encode(names)
    pairs = np.array([graph.groups.encode(pair) for pair in graph.edges], dtype=np.int64).reshape(-1, 2)
    edges = sparse.csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(graph), len(graph)))
    hops = csgraph.dijkstra(edges, directed=False, unweighted=True, indices=codes)[:, codes]
    return np.asarray(hops, dtype=np.float32)


def _centres(hops: Hops, most: int) -> list[int]:
    """Return all groups, or of more than ``most`` so many: each time the one farthest from those taken."""
    if len(hops) <= most:
        return list(range(len(hops)))
    taken, away = [0], hops[0].copy()
    while len(taken) < most:
        taken.append(int(np.argmax(away)))
        away = np.minimum(away, hops[taken[-1]])
    return sorted(taken)


def _first(order: npt.NDArray[np.intp], cuts: npt.NDArray[np.intp]) -> Masks:
    """Return, for every cut, a mask of the first groups of an order."""
    position = np.empty(len(order), dtype=np.intp)
    position[order] = np.arange(len(order))
    mask: Masks = position < cuts[:, None]
    return mask


def _members(names: Sequence[Name], mask: Masks) -> tuple[Name, ...]:
    return tuple(name for name, inside in zip(names, mask, strict=True) if inside)
