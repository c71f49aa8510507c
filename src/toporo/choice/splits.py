"""scikit-learn splitters that hold out groups as the test will: far from the rest, or a whole region.

Holding out random groups asks an easy question: every held-out group lies among the kept ones. Test groups often lie
together and beyond the edge of the training groups. :class:`LeaveRegionOut` holds out connected regions of a group
graph, and :class:`GraphHopSplit` holds out groups that are as far from the kept groups as the test groups are from the
training groups; with ``repeats``, every group equally often.

Both go by the names of groups: the order of the rows changes nothing. Only ``repeats`` draws at random, by a seed. Of
equal folds, the first by name is taken.

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
from sklearn.model_selection import BaseCrossValidator

from toporo.checks import whole
from toporo.choice.cross_fitting import random_parts
from toporo.choice.hops import HopFold, hop_folds, hops_of_test, likeness, matched_folds, region_folds
from toporo.errors import DataError, SettingError, listed
from toporo.graphs import as_graph
from toporo.groups import Groups
from toporo.topology.graph import GroupGraph
from toporo.types import Name

Masks = npt.NDArray[np.bool_]


class _GraphSplitter(BaseCrossValidator):  # type: ignore[misc]  # scikit-learn has no types
    """A splitter of rows by the groups that a subclass holds out."""

    #: Splitters over groups get them without being asked, with and without metadata routing.
    __metadata_request__split = {"groups": True}  # noqa: RUF012  # read by scikit-learn under exactly this name

    graph: GroupGraph | None

    @abstractmethod
    def regions(self, names: Iterable[Name]) -> list[tuple[Name, ...]]:
        """Return the groups held out of these, fold by fold."""

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
        """Return the groups in canonical order, all of them in the graph and enough of them."""
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
        """Return the regions that are held out of these groups: smaller ones first, each in the order of its names."""
        return region_folds(self.graph, self._names(names, least=2), self.max_splits, self._given_sizes())

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:  # noqa: ARG002, N803
        """Return the number of regions that are held out of ``groups``; ``X`` and ``y`` do not matter."""
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

    With ``repeats`` all folds together are like the test, and every group is held out equally often: each of so many
    rounds divides the groups into ``n_splits`` folds, for the least Wasserstein-1 distance pooled over folds and rounds
    (:mod:`toporo.choice.matching` says how). No fold has more than half of the groups, so where the test is very far
    away no division may be like it; :meth:`likeness` says how near the folds come.

    Parameters
    ----------
    graph : over the groups of the data and the test groups, in any form that :func:`~toporo.graphs.as_graph` takes.
        With ``repeats`` it may be None: then folds are whole groups drawn at random.
    test_groups : names in the graph of groups that the model is for, none of them in the data. By default (None) a fold
        should hold out groups that each touch a kept one.
    n_splits : how many folds (5), in each round if there are several.
    repeats : how many times every group is held out. By default (None) folds are taken one by one, as above, and some
        groups may be held out more often than others, or never.
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
        seed: int = 0,
    ) -> None:
        self.repeats = None if repeats is None else whole(repeats, "repeats", 1)
        self.n_splits = whole(n_splits, "n_splits", 1 if repeats is None else 2)
        self.seed = whole(seed, "seed", 0)
        self.graph = None if graph is None and repeats is not None else as_graph(graph)
        self.test_groups = None if test_groups is None else self._given_test(test_groups)

    def regions(self, names: Iterable[Name]) -> list[tuple[Name, ...]]:
        """Return the groups held out of ``names``: the fold most like the test first, or round by round."""
        return [fold.held_out for fold in self.folds(names)]

    def folds(self, names: Iterable[Name]) -> tuple[HopFold, ...]:
        """Return the folds over the groups ``names``, with their hops and likeness."""
        known = self._names(names, least=3 if self.repeats is None else 2)
        if self.graph is None:
            folds = tuple(fold for place in range(self.repeats or 1) for fold in self._random(known, self.seed + place))
        elif self.repeats is None:
            folds = hop_folds(self.graph, known, self.test_groups, self.n_splits)
        else:
            folds = matched_folds(self.graph, known, self.test_groups, self.n_splits, self.repeats, self.seed)
        ways = len(folds) // (self.repeats or 1)
        if ways < self.n_splits:
            raise DataError(
                f"{len(known)} groups can be held out in {ways} ways, fewer than n_splits = {self.n_splits}: use "
                f"n_splits={ways} or less, or data with more groups."
            )
        return folds

    def _random(self, known: Sequence[Name], seed: int) -> Iterator[HopFold]:
        parts = random_parts(len(known), self.n_splits, seed)
        for part in range(parts.max() + 1):
            yield HopFold(tuple(name for name, of in zip(known, parts, strict=True) if of == part), {}, math.nan)

    def likeness(self, names: Iterable[Name]) -> float:
        """Return the likeness of all folds over ``names`` together: 0 if hops are distributed as in the test."""
        known = self._names(names, least=1)
        folds = self.folds(known)
        return math.nan if self.graph is None else likeness(self.graph, known, self.test_groups, folds)

    def test_hops(self, names: Iterable[Name]) -> dict[Name, float]:
        """Return the hops from every test group to the nearest of ``names``; empty without test groups."""
        known = self._names(names, least=1)
        return {} if self.graph is None else hops_of_test(self.graph, known, self.test_groups)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:  # noqa: ARG002, N803
        """Return ``n_splits``, in every round; ``X``, ``y`` and ``groups`` do not matter."""
        return self.n_splits * (self.repeats or 1)

    def _given_test(self, test_groups: Iterable[Name]) -> tuple[Name, ...]:
        if self.graph is None:
            raise SettingError("test_groups are given, but not how far away they are: give a graph.")
        test = tuple(self.graph.require(test_groups, what="test group(s)"))
        if not test:
            raise SettingError("test_groups is empty: name at least one group, or leave it out.")
        return test
