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

from toporo.choice.matching import matched, wasserstein
from toporo.errors import DataError, GroupMismatchError, listed, warn
from toporo.groups import Groups
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

Masks = npt.NDArray[np.bool_]
Hops = npt.NDArray[np.float32]

#: The largest region left out unless sizes are given, as a share of the groups.
LARGEST = 0.5
#: The most that a fold of :func:`hop_folds` holds out, as a share of the groups: enough must be left to train on.
MOST_HELD_OUT = 2 / 3
#: With more groups than this, regions are grown around this many, spread over the graph ...
MOST_CENTRES = 100
#: ... and in this many sizes.
MOST_SIZES = 40


@dataclass(frozen=True)
class HopFold:
    """Groups held out, the hops from each to the nearest kept group, and how like the test that is.

    ``likeness`` is the Wasserstein-1 distance, in hops, between the distribution of ``hops`` and that of the test
    groups' hops to the nearest training group: 0 is the same. Without a graph there are no hops and it is NaN.
    """

    held_out: tuple[Name, ...]
    hops: dict[Name, float]
    likeness: float


@dataclass(frozen=True, eq=False)
class _Aim:
    """Hops between the known groups, and the hops from test groups to the nearest of them, which folds should match."""

    graph: GroupGraph
    known: tuple[Name, ...]
    between: Hops
    aim: list[float]
    beyond: float

    @classmethod
    def of(cls, graph: GroupGraph, names: Sequence[Name], test_groups: Sequence[Name] | None) -> _Aim:
        """Count hops; without test groups the aim is that every held-out group touches a kept one."""
        known = Groups(names).names
        aim = list(hops_of_test(graph, known, test_groups).values()) or [1.0]
        between = _hops_among(graph, known)
        longest = float(np.max(between, where=np.isfinite(between), initial=1.0))
        return cls(graph, known, between, aim, 1.0 + max([longest, *filter(math.isfinite, aim)]))

    def warn(self) -> None:
        """Warn of test groups that no path leads to."""
        unreached = sum(math.isinf(hop) for hop in self.aim)
        if unreached:
            warn(
                f"no path leads from the training groups to {unreached} of {len(self.aim)} test groups: the farthest "
                "groups that can be held out stand for them. Add the edges that join the pieces of the graph, or leave "
                "those test groups out."
            )

    def unlike(self, hops: Sequence[float]) -> float:
        """Return the Wasserstein-1 distance from hops of held-out groups to the aim."""
        return wasserstein(np.minimum(hops, self.beyond), np.minimum(self.aim, self.beyond))

    def fold(self, mask: Masks, likeness: float | None = None) -> HopFold:
        """Describe the fold that holds these groups out."""
        held_out, near = _members(self.known, mask), self.graph.hops(_members(self.known, ~mask))
        hops = {name: near[name] for name in held_out}
        return HopFold(held_out, hops, self.unlike(list(hops.values())) if likeness is None else likeness)


def hops_of_test(graph: GroupGraph, known: Sequence[Name], test_groups: Sequence[Name] | None) -> dict[Name, float]:
    """Return the hops from every test group to the nearest known group; a known test group is an error."""
    both = [name for name in test_groups or () if name in set(known)]
    if both:
        raise GroupMismatchError(
            f"test group(s) in the data: {listed(both)}. A test group is one that training never sees; leave its rows "
            "out, or take it out of test_groups."
        )
    hops = graph.hops(known)
    return {name: hops[name] for name in graph.require(test_groups or (), what="test group(s)")}


def likeness(
    graph: GroupGraph, names: Sequence[Name], test_groups: Sequence[Name] | None, folds: Sequence[HopFold]
) -> float:
    """Return the likeness of all folds together: 0 if their hops are distributed as those of the test groups are."""
    return _Aim.of(graph, names, test_groups).unlike([hop for fold in folds for hop in fold.hops.values()])


def matched_folds(
    graph: GroupGraph, names: Sequence[Name], test_groups: Sequence[Name] | None, parts: int, repeats: int, seed: int
) -> tuple[HopFold, ...]:
    """Divide the groups into folds that are as far from the rest as the test groups are, in rounds.

    A round holds out every group once.

    Parameters
    ----------
    graph, names, test_groups : the graph, the groups of the data and, perhaps, those that the model is for.
    parts : folds of a round; of fewer groups, each is one.
    repeats : rounds; they are matched together (:mod:`toporo.choice.matching`).
    seed : of the draws.
    """
    case = _Aim.of(graph, names, test_groups)
    case.warn()
    parts = min(parts, len(case.known))
    between = np.minimum(case.between.astype(np.float64), case.beyond)
    labels = matched(between, np.minimum(case.aim, case.beyond), parts, repeats, seed)
    return tuple(case.fold(mask) for fold_of in labels for mask in fold_of == np.arange(parts)[:, None])


def hop_folds(
    graph: GroupGraph, names: Sequence[Name], test_groups: Sequence[Name] | None, most: int
) -> tuple[HopFold, ...]:
    """Return the folds of :class:`toporo.GraphHopSplit`: as far from the kept groups as the test groups are.

    Parameters
    ----------
    graph, names, test_groups : as its ``graph`` and ``test_groups``, and the groups to train on.
    most : the number of folds; all of them where there are fewer.
    """
    case = _Aim.of(graph, names, test_groups)
    case.warn()
    masks, unlike = _candidates(case, test_groups)
    size = masks.sum(axis=1)
    first = sorted(range(len(masks)), key=lambda i: (abs(size[i] - len(case.known) / most), (~masks[i]).tobytes()))
    masks, unlike, size = masks[first], unlike[first], size[first]
    times = np.zeros(len(case.known))
    taken: list[int] = []
    for _ in range(min(most, len(masks))):
        cost = np.round(unlike + masks @ times / size, 9)
        cost[taken] = math.inf
        best = int(np.argmin(cost))
        taken.append(best)
        times += masks[best]
    return tuple(case.fold(masks[best], float(unlike[best])) for best in taken)


def region_folds(
    graph: GroupGraph, names: Sequence[Name], most: int, sizes: Sequence[int] | None = None
) -> list[tuple[Name, ...]]:
    """Choose at most so many connected regions to hold out, smaller ones first.

    Parameters
    ----------
    graph, names : the graph, and the groups of the data, among which regions are connected.
    most : the number of regions; of more sizes, evenly spaced ones count.
    sizes : numbers of groups in a region; by default every number up to half of the groups.
    """
    known = Groups(names).names
    inner = graph.subgraph(known)
    piece = max(len(part) for part in inner.components())
    if sizes is None:
        wanted = list(range(1, max(1, min(int(LARGEST * len(known)), piece)) + 1))
    else:
        wanted = list(sizes)
        too_large = [size for size in wanted if size >= len(known)]
        if too_large:
            raise DataError(
                f"sizes has {listed(too_large)}, but there are {len(known)} groups and at least one must be kept: "
                f"use sizes of at most {len(known) - 1}."
            )
    wanted = _evenly(wanted, most)
    hops = _hops_among(inner, known)
    pools = {size: _balls(hops, size, max(MOST_CENTRES, most)) for size in wanted}
    empty = [size for size, pool in pools.items() if not len(pool)]
    if empty and sizes is not None:
        raise DataError(
            f"no connected region has {listed(empty)} groups: the largest connected piece of the graph has "
            f"{piece} of the {len(known)} groups. Use smaller sizes, or add the edges that join the pieces."
        )
    chosen = _spread_out([pool for pool in pools.values() if len(pool)], most)
    return [_members(known, mask) for mask in chosen]


# ---------------------------------------------------------------- candidates


def _candidates(case: _Aim, test_groups: Sequence[Name] | None) -> tuple[Masks, Array]:
    """Return different sets of groups to hold out, one per row, and how unlike the aim each is."""
    most = len(case.known) - max(2, math.ceil(len(case.known) * (1 - MOST_HELD_OUT)))
    sizes = _sizes_to_try(most)
    distinct: dict[bytes, tuple[Masks, float]] = {}
    levels = np.arange(case.beyond)
    aimed = (np.minimum(case.aim, case.beyond)[:, None] <= levels).mean(axis=0)
    for order, reach in _orders(case, test_groups):
        cuts = sizes[sizes <= reach]
        for mask, value in zip(_prefixes(order, cuts), _unlikeness(case, order, cuts, aimed), strict=True):
            distinct.setdefault(mask.tobytes(), (mask, float(value)))
    masks = np.array([mask for mask, _ in distinct.values()], dtype=bool).reshape(-1, len(case.known))
    return masks, np.array([value for _, value in distinct.values()])


def _orders(case: _Aim, test_groups: Sequence[Name] | None) -> Iterator[tuple[npt.NDArray[np.intp], int]]:
    """Yield orders of the groups whose beginnings, up to a length, are worth holding out."""
    graph, known, hops = case.graph, case.known, case.between
    inner = _hops_among(graph.subgraph(known), known)
    for centre in _centres(hops, MOST_CENTRES):
        near = np.argsort(inner[centre], kind="stable")
        yield near, int(np.isfinite(inner[centre]).sum())
        away = np.where(np.isfinite(hops[centre]), hops[centre], -1.0)
        opposite = hops[int(np.argmax(away))]
        reached = np.isfinite(hops[centre])
        side = np.full(len(known), math.inf)
        side[reached] = hops[centre][reached] - opposite[reached]
        yield np.lexsort((hops[centre], side)), int(reached.sum())
    if test_groups is not None:
        from_test = graph.hops(test_groups)
        far = np.array([from_test[name] for name in known])
        yield np.argsort(far, kind="stable"), len(known)
        yield np.argsort(-far, kind="stable"), len(known)


def _unlikeness(case: _Aim, order: npt.NDArray[np.intp], cuts: npt.NDArray[np.intp], aimed: Array) -> Array:
    """Return the Wasserstein-1 distance to the aim when the first ``cut`` groups of an order are held out, by cut.

    For whole numbers it is the sum, over all levels, of the difference of the two cumulative shares.
    """
    if not len(cuts):
        return np.zeros(0)
    rows = case.between[np.ix_(order[: cuts[-1]], order)]
    between = np.minimum.reduceat(rows, cuts, axis=1)  # from each held-out group to those from one cut to the next
    nearest = np.minimum.accumulate(between[:, ::-1], axis=1)[:, ::-1]  # held-out group × cut
    nearest = np.where(np.arange(cuts[-1])[:, None] < cuts, np.minimum(nearest, case.beyond), math.inf)
    apart = [np.abs((nearest <= level).sum(axis=0) / cuts - share) for level, share in enumerate(aimed)]
    return np.asarray(np.sum(apart, axis=0))


def _balls(hops: Hops, size: int, most_centres: int) -> Masks:
    """Return different connected regions of a size, in the order of their centres."""
    distinct: dict[bytes, Masks] = {}
    for centre in _centres(hops, most_centres):
        if size <= np.isfinite(hops[centre]).sum():
            mask = _prefixes(np.argsort(hops[centre], kind="stable"), np.array([size]))[0]
            distinct.setdefault(mask.tobytes(), mask)
    return np.array(list(distinct.values()), dtype=bool).reshape(-1, len(hops))


def _prefixes(order: npt.NDArray[np.intp], cuts: npt.NDArray[np.intp]) -> Masks:
    """Return, for every cut, a mask of the first groups of an order."""
    position = np.empty(len(order), dtype=np.intp)
    position[order] = np.arange(len(order))
    mask: Masks = position < cuts[:, None]
    return mask


def _spread_out(pools: Sequence[Masks], most: int) -> list[Masks]:
    """Take at most so many regions from pools by size, in turn, each time the one with groups taken least often."""
    left = [list(pool) for pool in pools]
    taken: list[list[Masks]] = [[] for _ in pools]
    times = np.zeros(pools[0].shape[1])
    while any(left) and sum(map(len, taken)) < most:
        for pool, chosen in zip(left, taken, strict=True):
            if pool and sum(map(len, taken)) < most:
                used = np.array(pool) @ times
                chosen.append(pool.pop(int(np.argmin(used))))
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


def _sizes_to_try(largest: int) -> npt.NDArray[np.intp]:
    """Return all sizes, or of many some, closer together where they are small."""
    if largest <= MOST_SIZES:
        return np.arange(1, largest + 1)
    return np.unique(np.round(np.geomspace(1, largest, MOST_SIZES)).astype(np.intp))


def _evenly(items: Sequence[int], most: int) -> list[int]:
    """Return at most so many of the items, evenly spaced, the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[i] for i in np.round(np.linspace(len(items) - 1, 0, most)).astype(int)[::-1]]


def _members(names: Sequence[Name], mask: Masks) -> tuple[Name, ...]:
    return tuple(name for name, inside in zip(names, mask, strict=True) if inside)
