r"""Cross-validation over related groups: scikit-learn splitters that hold out what the test will be like.

Holding out random groups asks an easy question: every held-out group lies among the kept ones. Test groups often lie
together and beyond the edge of the training groups. :class:`LeaveRegionOut` holds out connected regions of a group
graph, and :class:`GraphHopSplit` holds out groups that are as far from the kept groups as the test groups are from the
training groups; with ``repeats``, every group equally often.

Both know groups by name: the order of the rows changes nothing. Nothing is drawn at random but with ``repeats``, and
then by a seed. Ties go to the first by name.

>>> import numpy as np
>>> from toporo.topology import GroupGraph
>>> chain = GroupGraph.from_edges([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "x"), ("x", "y")])
>>> split = GraphHopSplit(chain, test_groups=["x", "y"], n_splits=2)
>>> for fold in split.folds(["a", "b", "c", "d", "e"]):
...     print(fold.held_out, fold.hops, fold.likeness)
('a', 'b') {'a': 2, 'b': 1} 0.0
('d', 'e') {'d': 1, 'e': 2} 0.0
>>> groups = np.repeat(["a", "b", "c", "d", "e"], 2)
>>> [test.tolist() for _, test in split.split(np.zeros((10, 1)), groups=groups)]
[[0, 1, 2, 3], [6, 7, 8, 9]]
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph
from sklearn.model_selection import BaseCrossValidator

from toporo.checks import whole
from toporo.choice.matching import Between, HopFold, apart, matched_folds, never_trained_on, warn_of_unreached
from toporo.errors import DataError, SettingError, listed
from toporo.graphs import as_graph
from toporo.groups import Groups
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

Masks = npt.NDArray[np.bool_]
Hops = npt.NDArray[np.float32]

#: The largest region left out unless sizes are given, as a share of the groups.
LARGEST = 0.5
#: The most that :class:`GraphHopSplit` holds out, as a share of the groups: enough must be left to train on.
MOST_HELD_OUT = 2 / 3
#: With more groups than this, regions are grown around this many, spread over the graph ...
MOST_CENTRES = 100
#: ... and in this many sizes.
MOST_SIZES = 40


# ---------------------------------------------------------------- regions


def grow_region(graph: GroupGraph, around: Name, size: int) -> tuple[Name, ...]:
    """The ``size`` groups nearest to one, itself among them; of equally near ones the first by name.

    In a connected graph the region is connected: every group has a neighbour that is nearer.
    """
    hops = graph.hops([around])
    near = sorted((name for name in graph.names if math.isfinite(hops[name])), key=lambda name: hops[name])
    return tuple(near[:size])


def regions(graph: GroupGraph, names: Sequence[Name], *, largest: float = LARGEST) -> Iterator[tuple[Name, ...]]:
    """Around each of these groups, within the graph they span, a region of every size up to a share of them."""
    inner = graph.subgraph(names)
    for name in inner.names:
        for size in range(1, min(int(largest * len(names)), len(names) - 2) + 1):
            region = grow_region(inner, name, size)
            if len(region) == size:  # a piece of the graph may be smaller
                yield region


# ---------------------------------------------------------------- splitters


class _GraphSplitter(BaseCrossValidator):  # type: ignore[misc]  # scikit-learn has no types
    """From groups to hold out, by name, to rows."""

    #: Splitters over groups get them without being asked, with and without metadata routing.
    __metadata_request__split = {"groups": True}  # noqa: RUF012  # read by scikit-learn under exactly this name

    graph: GroupGraph | None

    @abstractmethod
    def regions(self, names: Iterable[Name]) -> list[tuple[Name, ...]]:
        """What is held out of these groups, fold by fold."""

    def split(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        groups: Any = None,
    ) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
        """Yield, fold by fold, the indices of the rows to train on and of the rows held out.

        Parameters
        ----------
        X : the rows; only their number counts.
        y : not used.
        groups : the name of every row's group.
        """
        yield from super().split(X, y, groups)

    def _iter_test_masks(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[Masks]:  # noqa: ARG002, N803
        ids = Groups.of(self._given(groups))
        for held_out in self.regions(ids.groups):
            yield np.isin(ids.codes, ids.groups.encode(held_out))

    def _given(self, groups: Any) -> Any:
        if groups is None:
            raise DataError(
                f"{type(self).__name__} needs to know every row's group: pass groups=..., to cross_validate and "
                "GridSearchCV.fit too (with metadata routing, params={'groups': ...})."
            )
        return groups

    def _names(self, names: Iterable[Name], least: int) -> tuple[Name, ...]:
        """The groups in canonical order; all of them in the graph, and enough of them."""
        known = Groups(names).names
        if self.graph is not None:
            self.graph.require(known, what="group(s) of the data")
        if len(known) < least:
            raise DataError(
                f"{type(self).__name__} found {len(known)} group(s), {listed(known)}: it needs at least {least}. Use "
                "data with more groups, or a splitter that divides rows, such as sklearn.model_selection.KFold."
            )
        return known

    def __sklearn_clone__(self) -> Self:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)  # settings are never changed in place
        return copy


class LeaveRegionOut(_GraphSplitter):
    """Hold out connected regions: the groups nearest to one, around every group, in several sizes.

    Parameters
    ----------
    graph : over the groups of the data, in any form that :func:`~toporo.graphs.as_graph` takes; it may have other
        groups too. Regions are connected among the groups of the data.
    sizes : how many groups a region has: a number, or several. By default (None) every size from one to half of them.
    max_splits : at most this many regions (60). Of more, as many of each size as possible (of more sizes than splits,
        evenly spaced ones), each time the region whose groups were held out the fewest times so far. A region that is
        the same around two groups counts once.

    >>> splitter = LeaveRegionOut([("a", "b"), ("b", "c"), ("c", "d")], sizes=2)
    >>> state = ["a", "b", "c", "d"]
    >>> [[state[row] for row in held_out] for _, held_out in splitter.split(state, groups=state)]
    [['a', 'b'], ['b', 'c'], ['c', 'd']]
    """

    graph: GroupGraph

    def __init__(self, graph: Any, *, sizes: int | Sequence[int] | None = None, max_splits: int = 60) -> None:
        self.graph = as_graph(graph)
        self.sizes = sizes
        self.max_splits = whole(max_splits, "max_splits", 1)
        self._given_sizes()

    def regions(self, names: Iterable[Name]) -> list[tuple[Name, ...]]:
        """The regions that are held out of these groups: smaller ones first, each in the order of its names."""
        known = self._names(names, least=2)
        wanted = self._given_sizes()
        inner = self.graph.subgraph(known)
        piece = max(len(part) for part in inner.components())
        if wanted is None:
            largest = max(1, min(int(LARGEST * len(known)), piece))
            sizes = _evenly(list(range(1, largest + 1)), self.max_splits)
        else:
            too_large = [size for size in wanted if size >= len(known)]
            if too_large:
                raise DataError(
                    f"sizes has {listed(too_large)}, but there are {len(known)} groups and at least one must be kept: "
                    f"use sizes of at most {len(known) - 1}."
                )
            sizes = _evenly(wanted, self.max_splits)
        hops = _hops_among(inner, known)
        pools = {size: _balls(hops, [size], max(MOST_CENTRES, self.max_splits)) for size in sizes}
        empty = [size for size, pool in pools.items() if not len(pool)]
        if empty and wanted is not None:
            raise DataError(
                f"no connected region has {listed(empty)} groups: the largest connected piece of the graph has "
                f"{piece} of the {len(known)} groups. Use smaller sizes, or add the edges that join the pieces."
            )
        chosen = _spread_out([pool for pool in pools.values() if len(pool)], self.max_splits)
        return [_members(known, mask) for mask in chosen]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:  # noqa: ARG002, N803
        """How many regions are held out of ``groups``; ``X`` and ``y`` do not matter."""
        return len(self.regions(Groups.of(self._given(groups)).groups))

    def _given_sizes(self) -> list[int] | None:
        if self.sizes is None:
            return None
        given = self.sizes if isinstance(self.sizes, Sequence | np.ndarray | range) else [self.sizes]
        sizes = sorted({whole(size, "a size", 1) for size in given})
        if not sizes:
            raise SettingError("sizes is empty: give at least one size of a region, or None for every size up to half.")
        return sizes


class GraphHopSplit(_GraphSplitter):
    r"""Hold out groups that are as far from the kept ones as the test groups are from the training groups.

    A fold's *likeness* is the Wasserstein-1 distance between two distributions of hops: from its held-out groups to the
    nearest kept one, and from the test groups to the nearest training group (without test groups, the aim is that every
    held-out group touches a kept one: one hop). Hops are counted in the whole graph; "no path" counts as one hop more
    than the longest path. Candidates R are the connected regions of every size around every group (of hundreds of
    groups, around some spread over the graph), sides of the graph (the groups nearer to one end than to the opposite
    one), and the groups nearest to and farthest from the test groups; at least a third of the groups, and two, are
    kept. Folds are taken one by one, each time the least of

    .. math:: \text{likeness}(R) + \frac{1}{|R|} \sum_{e \in R} \#\{\text{earlier folds that hold out } e\},

    so a fold may be one hop less like the test if that saves holding out the same groups once more. Of equal ones, the
    one with nearest to ``1 / n_splits`` of the groups, then the first by name.

    With ``repeats`` it is all folds together that are like the test, and every group is held out equally often: each
    of so many rounds divides the groups into ``n_splits`` folds, for the least Wasserstein-1 distance pooled over folds
    and rounds (:mod:`toporo.choice.matching` says how). No fold has more than half of the groups, so where the test is
    very far away no division may be like it; :meth:`likeness` says how near the folds come.

    Parameters
    ----------
    graph : over the groups of the data and the test groups, in any form that :func:`~toporo.graphs.as_graph` takes.
        With ``repeats`` it may be None: then folds follow ``distances`` or, without, are whole groups drawn at random.
    test_groups : names in the graph of groups that the model is for, none of them in the data. By default (None) a fold
        should hold out groups that each touch a kept one.
    n_splits : how many folds (5), in each round if there are several.
    repeats : how many times every group is held out. By default (None) folds are taken one by one, as above, and some
        groups may be held out more often than others, or never.
    distances : between groups of the data and test groups, in place of hops, if ``repeats`` is given: what
        :func:`~toporo.diffusion_emd` returns, or a square data frame whose index and columns are the groups' names.
    seed : of what is drawn, if ``repeats`` is given.

    >>> splitter = GraphHopSplit([("a", "b"), ("b", "c"), ("c", "d"), ("d", "new")], ["new"], n_splits=2)
    >>> [fold.held_out for fold in splitter.folds(["a", "b", "c", "d"])]
    [('b', 'c'), ('a',)]
    """

    def __init__(
        self,
        graph: Any = None,
        test_groups: Iterable[Name] | None = None,
        *,
        n_splits: int = 5,
        repeats: int | None = None,
        distances: Any = None,
        seed: int = 0,
    ) -> None:
        self.repeats = None if repeats is None else whole(repeats, "repeats", 1)
        self.n_splits = whole(n_splits, "n_splits", 1 if repeats is None else 2)
        self.seed = whole(seed, "seed", 0)
        if distances is not None and (repeats is None or graph is not None):
            raise SettingError(
                "distances come in place of a graph, and for folds with repeats: use graph=None and repeats=1."
            )
        if distances is not None and test_groups is None:
            raise SettingError("distances are given, but no test_groups that folds could be like: name them.")
        self.graph = None if graph is None and repeats is not None else as_graph(graph)
        self.distances = None if distances is None else Between.of(distances)
        self.test_groups = None if test_groups is None else self._given_test(test_groups)

    def regions(self, names: Iterable[Name]) -> list[tuple[Name, ...]]:
        """Which of ``names`` are held out, fold by fold: the fold most like the test first, or round by round."""
        return [fold.held_out for fold in self.folds(names)]

    def folds(self, names: Iterable[Name]) -> tuple[HopFold, ...]:
        """The folds over the groups ``names``, with their hops and likeness."""
        known = self._names(names, least=3 if self.repeats is None else 2)
        if self.graph is not None and self.repeats is None:
            folds = hop_folds(self.graph, known, self.test_groups, self.n_splits)
        else:
            hops, aim, beyond = self._far(known)
            folds = matched_folds(known, hops, aim, self.n_splits, self.repeats or 1, self.seed, beyond=beyond)
        ways = len(folds) // (self.repeats or 1)
        if ways < self.n_splits:
            raise DataError(
                f"{len(known)} groups can be held out in {ways} ways, fewer than n_splits = {self.n_splits}: use "
                f"n_splits={ways} or less, or data with more groups."
            )
        return folds

    def likeness(self, names: Iterable[Name]) -> float:
        """The likeness of all folds over ``names`` together: 0 if their hops are distributed as the test's are."""
        known = self._names(names, least=1)
        hops = [hop for fold in self.folds(known) for hop in fold.hops.values()]
        _, aim, beyond = self._far(known)
        return apart(np.minimum(hops, beyond), np.minimum(aim, beyond)) if aim else math.nan

    def test_hops(self, names: Iterable[Name]) -> dict[Name, float]:
        """Hops from every test group to the nearest of ``names``; empty without test groups."""
        known = self._names(names, least=1)
        if self.graph is not None:
            return _test_hops(self.graph, known, self.test_groups)
        test = never_trained_on(self.test_groups or (), known)
        return {} if self.distances is None else self.distances.nearest(test, known)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:  # noqa: ARG002, N803
        """``n_splits``, in every round; ``X``, ``y`` and ``groups`` do not matter."""
        return self.n_splits * (self.repeats or 1)

    def _given_test(self, test_groups: Iterable[Name]) -> tuple[Name, ...]:
        space = self.graph if self.graph is not None else self.distances
        if space is None:
            raise SettingError("test_groups are given, but not how far away they are: give a graph, or distances.")
        test = tuple(space.require(test_groups, what="test group(s)"))
        if not test:
            raise SettingError("test_groups is empty: name at least one group, or leave it out.")
        return test

    def _far(self, known: Sequence[Name]) -> tuple[Array, list[float], float]:
        """Hops between these groups, those to be like (of none, whole groups will do), and what "no path" counts as."""
        if self.graph is not None:
            hops, aim, beyond = _aimed(self.graph, known, self.test_groups)
            return hops.astype(np.float64), aim, beyond
        away = np.zeros((len(known), len(known))) if self.distances is None else self.distances.among(known)
        return away, list(self.test_hops(known).values()), math.inf


def hop_folds(
    graph: GroupGraph, names: Sequence[Name], test_groups: Sequence[Name] | None, most: int
) -> tuple[HopFold, ...]:
    """Return the folds of :class:`GraphHopSplit`.

    Parameters
    ----------
    graph, names, test_groups : as its ``graph`` and ``test_groups``, and the groups to train on.
    most : number of folds; all of them where there are fewer.
    """
    known = Groups(names).names
    hops, aim, beyond = _aimed(graph, known, test_groups)
    warn_of_unreached(aim)
    masks, likeness = _judged(graph, known, test_groups, hops, aim, beyond)
    size = masks.sum(axis=1)
    first = sorted(range(len(masks)), key=lambda i: (abs(size[i] - len(known) / most), (~masks[i]).tobytes()))
    masks, likeness, size = masks[first], likeness[first], size[first]
    times = np.zeros(len(known))
    taken: list[int] = []
    for _ in range(min(most, len(masks))):
        cost = np.round(likeness + masks @ times / size, 9)
        cost[taken] = math.inf
        best = int(np.argmin(cost))
        taken.append(best)
        times += masks[best]
    return tuple(_hop_fold(graph, known, masks[best], float(likeness[best])) for best in taken)


def _hop_fold(graph: GroupGraph, known: Sequence[Name], mask: Masks, likeness: float) -> HopFold:
    held_out, hops = _members(known, mask), graph.hops(_members(known, ~mask))
    return HopFold(held_out, {name: hops[name] for name in held_out}, likeness)


def _test_hops(graph: GroupGraph, known: Sequence[Name], test_groups: Sequence[Name] | None) -> dict[Name, float]:
    test, hops = never_trained_on(test_groups or (), known), graph.hops(known)
    return {name: hops[name] for name in test}


def _aimed(
    graph: GroupGraph, known: Sequence[Name], test_groups: Sequence[Name] | None
) -> tuple[Hops, list[float], float]:
    """Hops between these groups, those to be like, and what "no path" counts as."""
    aim = list(_test_hops(graph, known, test_groups).values()) or [1.0]
    hops = _hops_among(graph, known)
    longest = float(np.max(hops, where=np.isfinite(hops), initial=1.0))
    return hops, aim, 1.0 + max([longest, *filter(math.isfinite, aim)])


# ---------------------------------------------------------------- candidates


def _judged(
    graph: GroupGraph,
    known: Sequence[Name],
    test_groups: Sequence[Name] | None,
    hops: Hops,
    aim: Sequence[float],
    beyond: float,
) -> tuple[Masks, npt.NDArray[np.float64]]:
    """Different sets of groups to hold out, one per row, and how like the aim each is."""
    most = len(known) - max(2, math.ceil(len(known) * (1 - MOST_HELD_OUT)))
    sizes = _sizes_to_try(most)
    distinct: dict[bytes, tuple[Masks, float]] = {}
    levels = np.arange(beyond)
    aimed = (np.minimum(aim, beyond)[:, None] <= levels).mean(axis=0)
    for order, reach in _orders(graph, known, test_groups, hops):
        cuts = sizes[sizes <= reach]
        for mask, value in zip(_prefixes(order, cuts), _unlikeness(order, cuts, hops, aimed, beyond), strict=True):
            distinct.setdefault(mask.tobytes(), (mask, float(value)))
    masks = np.array([mask for mask, _ in distinct.values()], dtype=bool).reshape(-1, len(known))
    return masks, np.array([value for _, value in distinct.values()])


def _orders(
    graph: GroupGraph, known: Sequence[Name], test_groups: Sequence[Name] | None, hops: Hops
) -> Iterator[tuple[npt.NDArray[np.intp], int]]:
    """Orders of the groups whose beginnings, up to a length, are worth holding out."""
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


def _unlikeness(
    order: npt.NDArray[np.intp], cuts: npt.NDArray[np.intp], hops: Hops, aimed: npt.NDArray[np.float64], beyond: float
) -> npt.NDArray[np.float64]:
    """The Wasserstein-1 distance to the aim when the first ``cut`` groups of an order are held out, for every cut.

    For whole numbers it is the sum, over all levels, of how far apart the two cumulative shares are.
    """
    if not len(cuts):
        return np.zeros(0)
    rows = hops[np.ix_(order[: cuts[-1]], order)]
    between = np.minimum.reduceat(rows, cuts, axis=1)  # from each held-out group to those from one cut to the next
    nearest = np.minimum.accumulate(between[:, ::-1], axis=1)[:, ::-1]  # held-out group × cut
    nearest = np.where(np.arange(cuts[-1])[:, None] < cuts, np.minimum(nearest, beyond), math.inf)
    apart = [np.abs((nearest <= level).sum(axis=0) / cuts - share) for level, share in enumerate(aimed)]
    return np.asarray(np.sum(apart, axis=0))


def _balls(hops: Hops, sizes: Sequence[int], most_centres: int) -> Masks:
    """Different connected regions of these sizes, in the order of their centres."""
    distinct: dict[bytes, Masks] = {}
    for centre in _centres(hops, most_centres):
        order, reach = np.argsort(hops[centre], kind="stable"), np.isfinite(hops[centre]).sum()
        for mask in _prefixes(order, np.array([size for size in sizes if size <= reach], dtype=np.intp)):
            distinct.setdefault(mask.tobytes(), mask)
    return np.array(list(distinct.values()), dtype=bool).reshape(-1, len(hops))


def _prefixes(order: npt.NDArray[np.intp], cuts: npt.NDArray[np.intp]) -> Masks:
    """For every cut, which groups are among the first of an order."""
    position = np.empty(len(order), dtype=np.intp)
    position[order] = np.arange(len(order))
    mask: Masks = position < cuts[:, None]
    return mask


def _spread_out(pools: Sequence[Masks], most: int) -> list[Masks]:
    """At most so many regions from pools by size, in turn, each time one whose groups were taken the fewest times."""
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
    """Hops between any two of these groups by any path of the graph; infinite where there is none."""
    codes = graph.groups.encode(names)
    pairs = np.array([graph.groups.encode(pair) for pair in graph.edges], dtype=np.int64).reshape(-1, 2)
    edges = sparse.csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(graph), len(graph)))
    hops = csgraph.dijkstra(edges, directed=False, unweighted=True, indices=codes)[:, codes]
    return np.asarray(hops, dtype=np.float32)


def _centres(hops: Hops, most: int) -> list[int]:
    """All groups, or of more than ``most`` so many: each time the one farthest from those taken, the first by name."""
    if len(hops) <= most:
        return list(range(len(hops)))
    taken, away = [0], hops[0].copy()
    while len(taken) < most:
        taken.append(int(np.argmax(away)))
        away = np.minimum(away, hops[taken[-1]])
    return sorted(taken)


def _sizes_to_try(largest: int) -> npt.NDArray[np.intp]:
    """All sizes, or of many some, closer together where they are small."""
    if largest <= MOST_SIZES:
        return np.arange(1, largest + 1)
    return np.unique(np.round(np.geomspace(1, largest, MOST_SIZES)).astype(np.intp))


def _evenly(items: Sequence[int], most: int) -> list[int]:
    """At most so many of the items, evenly spaced, the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[i] for i in np.round(np.linspace(len(items) - 1, 0, most)).astype(int)[::-1]]


def _members(names: Sequence[Name], mask: Masks) -> tuple[Name, ...]:
    return tuple(name for name, inside in zip(names, mask, strict=True) if inside)
