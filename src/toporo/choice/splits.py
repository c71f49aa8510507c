"""scikit-learn splitters that hold out groups as the test will: far from the rest, or a whole region.

Holding out random groups asks an easy question: every held-out group lies among the kept ones. Test groups often lie
together and beyond the edge of the training groups. :class:`LeaveRegionOut` holds out connected regions of a group
graph, and :class:`GraphHopSplit` holds out groups that are as far from the kept groups as the test groups are from the
training groups.

Both go by the names of groups: the order of the rows changes nothing. Of equal folds, the first by name is taken.

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

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import BaseCrossValidator

from toporo.checks import whole
from toporo.choice.hops import HopFold, hop_folds, region_folds
from toporo.errors import DataError, SettingError, listed
from toporo.graphs import as_graph
from toporo.groups import Groups
from toporo.topology.graph import GroupGraph
from toporo.types import Name


class _GraphSplitter(BaseCrossValidator):  # type: ignore[misc]  # scikit-learn has no types
    """A splitter of rows by the groups that a subclass holds out."""

    #: Splitters over groups get them without being asked, with and without metadata routing.
    __metadata_request__split = {"groups": True}  # noqa: RUF012  # read by scikit-learn under exactly this name

    graph: GroupGraph

    @abstractmethod
    def regions(self, names: Iterable[Name]) -> list[tuple[Name, ...]]:
        """Return the groups held out of these, fold by fold."""

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:  # noqa: ARG002, N803
        """Return the number of folds over ``groups``, one name per row; ``X`` and ``y`` do not matter."""
        return len(self.regions(self._given(groups).groups))

    def _iter_test_masks(
        self,
        X: Any = None,  # noqa: ARG002, N803
        y: Any = None,  # noqa: ARG002
        groups: Any = None,
    ) -> Iterator[npt.NDArray[np.bool_]]:
        ids = self._given(groups)
        for held_out in self.regions(ids.groups):
            yield np.isin(ids.codes, ids.groups.encode(held_out))

    def _given(self, groups: Any) -> Any:
        if groups is None:
            raise DataError(
                f"{type(self).__name__} needs to know every row's group: pass groups=..., to cross_validate and "
                "GridSearchCV.fit too (with metadata routing, params={'groups': ...})."
            )
        return Groups.of(groups)

    def _names(self, names: Iterable[Name], least: int) -> tuple[Name, ...]:
        """Return the groups in canonical order, all of them in the graph and enough of them."""
        known = Groups(names).names
        self.graph.require(known, what="group(s) of the data")
        if len(known) < least:
            raise DataError(
                f"{type(self).__name__} found {len(known)} group(s), {listed(known)}: it needs at least {least}. Use "
                "data with more groups, or a splitter that divides rows, such as sklearn.model_selection.KFold."
            )
        return known


class LeaveRegionOut(_GraphSplitter):
    """Hold out connected regions: the groups nearest to one, around every group, in every size up to half of them.

    Parameters
    ----------
    graph : over the groups of the data, in any form that :func:`~toporo.graphs.as_graph` takes; it may have other
        groups too. Regions are connected among the groups of the data.
    max_splits : at most this many regions (60). Of more, as many of each size as possible (of more sizes than splits,
        evenly spaced ones), each time the region whose groups were held out the fewest times so far. A region that is
        the same around two groups counts once.

    >>> splitter = LeaveRegionOut([("a", "b"), ("b", "c"), ("c", "d")])
    >>> state = ["a", "b", "c", "d"]
    >>> [[state[row] for row in held_out] for _, held_out in splitter.split(state, groups=state)]
    [['a'], ['b'], ['c'], ['d'], ['a', 'b'], ['b', 'c'], ['c', 'd']]
    """

    def __init__(self, graph: Any, *, max_splits: int = 60) -> None:
        self.graph = as_graph(graph)
        self.max_splits = whole(max_splits, "max_splits", 1)

    def regions(self, names: Iterable[Name]) -> list[tuple[Name, ...]]:
        """Return the regions that are held out of these groups: smaller ones first, each in the order of its names."""
        return region_folds(self.graph, self._names(names, least=2), self.max_splits)


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
    one with nearest to ``1 / n_splits`` of the groups, then the first by name. Some groups may be held out more often
    than others, or never.

    Parameters
    ----------
    graph : over the groups of the data and the test groups, in any form that :func:`~toporo.graphs.as_graph` takes.
    test_groups : names in the graph of groups that the model is for, none of them in the data. By default (None) a fold
        should hold out groups that each touch a kept one.
    n_splits : how many folds (5).

    >>> splitter = GraphHopSplit([("a", "b"), ("b", "c"), ("c", "d"), ("d", "new")], ["new"], n_splits=2)
    >>> [fold.held_out for fold in splitter.folds(["a", "b", "c", "d"])]
    [('b', 'c'), ('a',)]
    """

    def __init__(self, graph: Any, test_groups: Iterable[Name] | None = None, *, n_splits: int = 5) -> None:
        self.graph = as_graph(graph)
        self.test_groups = None
        if test_groups is not None:
            self.test_groups = tuple(self.graph.require(test_groups, what="test group(s)"))
            if not self.test_groups:
                raise SettingError("test_groups is empty: name at least one group, or leave it out.")
        self.n_splits = whole(n_splits, "n_splits", 1)

    def folds(self, names: Iterable[Name]) -> tuple[HopFold, ...]:
        """Return the folds over the groups ``names``, with their hops and likeness: the most like the test first."""
        known = self._names(names, least=3)
        folds = hop_folds(self.graph, known, self.test_groups, self.n_splits)
        if len(folds) < self.n_splits:
            raise DataError(
                f"{len(known)} groups can be held out in {len(folds)} ways, fewer than n_splits = {self.n_splits}: use "
                f"n_splits={len(folds)} or less, or data with more groups."
            )
        return folds

    def regions(self, names: Iterable[Name]) -> list[tuple[Name, ...]]:
        """Return the groups held out of ``names``, fold by fold."""
        return [fold.held_out for fold in self.folds(names)]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:  # noqa: ARG002, N803
        """Return ``n_splits``; ``X``, ``y`` and ``groups`` do not matter."""
        return self.n_splits
