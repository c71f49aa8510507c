"""Divide rows into folds of whole groups, and predict rows by models that have not seen their group.

>>> from toporo.groups import Groups
>>> ids = Groups.of(["a", "a", "b", "c", "d"])
>>> [mask.astype(int).tolist() for mask in folds(ids, kind="turns", parts=2)]
[[1, 1, 0, 1, 0], [0, 0, 1, 0, 1]]
>>> x = np.array([1.0, 3.0, 5.0, 7.0, 9.0])
>>> cross_fit(lambda fold: np.full(len(fold.held_out), x[fold.kept].mean()), folds(ids, kind="turns", parts=2)).by_row()
array([7.        , 7.        , 3.66666667, 7.        , 3.66666667])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from toporo.choice.hops import hop_folds, matched_folds, region_folds
from toporo.data.grouped import group_rng
from toporo.groups import GroupIds
from toporo.machine import Fit
from toporo.progress import tracked
from toporo.topology.graph import GroupGraph
from toporo.types import Array, Name

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
Kind = Literal["random", "turns", "hops", "matched", "regions"]


def folds(
    ids: GroupIds,
    graph: GroupGraph | None = None,
    test_groups: Sequence[Name] = (),
    *,
    kind: Kind = "random",
    parts: int = 5,
    seed: int = 0,
) -> tuple[Mask, ...]:
    """Return masks of the rows that are held out together; rows of a group always are.

    Parameters
    ----------
    ids : the group of every row. Rows of a single group are divided at random as if each were a group.
    graph : over the groups; without one, every kind but ``"turns"`` is ``"random"``.
    test_groups : groups of the graph that the model is for.
    kind : ``"random"``: every group once, in parts of equal size. ``"turns"``: the same, without a draw, group by group
        in turn. ``"matched"``: every group once; all folds together are as far from the kept groups as the test groups
        are from all of them. ``"hops"``: each fold is as far away, so groups may be held out twice or never.
        ``"regions"``: connected regions of all sizes.
    parts : the number of folds; fewer where there are fewer groups.
    seed : of random and matched folds.
    """
    groups = ids.groups
    if kind == "regions" and graph is not None:
        chosen = region_folds(graph, groups.names, parts)
    elif kind == "hops" and graph is not None:
        chosen = [fold.held_out for fold in hop_folds(graph, groups.names, test_groups or None, parts)]
    elif kind == "matched" and graph is not None:
        chosen = [fold.held_out for fold in matched_folds(graph, groups.names, test_groups or None, parts, seed)]
    else:
        codes = np.arange(len(ids)) if len(groups) == 1 else np.asarray(ids.codes)
        count = len(ids) if len(groups) == 1 else len(groups)
        order = np.arange(count) if kind == "turns" else group_rng("folds", seed).permutation(count)
        return _some_kept(np.isin(codes, order[number::parts]) for number in range(min(parts, count)))
    return _some_kept(np.isin(ids.codes, groups.encode(names)) for names in chosen)


def _some_kept(masks: Iterable[Mask]) -> tuple[Mask, ...]:
    """Return the masks that do not hold out every row."""
    return tuple(mask for mask in masks if not mask.all())


@dataclass(frozen=True, eq=False)
class Fold:
    """The rows that a model is fitted to, and those that it predicts.

    Attributes
    ----------
    number : of the fold, from 0.
    kept, held_out : the places of the rows.
    """

    number: int
    kept: Rows
    held_out: Rows

    @classmethod
    def of(cls, masks: Sequence[Mask]) -> list[Fold]:
        """Return the folds whose held-out rows have these masks."""
        return [cls(number, np.flatnonzero(~mask), np.flatnonzero(mask)) for number, mask in enumerate(masks)]


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Predictions by models that have not seen a row's group.

    Attributes
    ----------
    folds : those that were predicted.
    values : predictions for the held-out rows of each.
    failures : the errors of folds that could not be predicted.
    """

    folds: list[Fold]
    values: list[Array]
    failures: list[Exception]

    @property
    def rows(self) -> Rows:
        """The held-out rows of all folds, one after the other."""
        return np.concatenate([np.zeros(0, np.intp), *(fold.held_out for fold in self.folds)])

    @property
    def fold_of_row(self) -> Rows:
        """The number of the fold of each of :attr:`rows`."""
        numbers = [np.full(len(fold.held_out), fold.number, np.intp) for fold in self.folds]
        return np.concatenate([np.zeros(0, np.intp), *numbers])

    def by_row(self) -> Array:
        """Return predictions in the order of the rows, each of which must be held out once."""
        return np.concatenate(self.values)[np.argsort(self.rows, kind="stable")]


class CrossFit:
    """Fits without the rows of each fold, which may run at the same time.

    Parameters
    ----------
    predict : returns predictions for the held-out rows of a fold by a model that is fitted to the kept rows.
    masks : of the folds, as :func:`folds` returns them.
    submit : starts a fit; by default each runs in the calling thread when its result is asked for.
    skip : errors of fits that are left out and kept in :attr:`OutOfFold.failures`; others end the whole.
    """

    def __init__(
        self,
        predict: Callable[[Fold], Array],
        masks: Sequence[Mask],
        *,
        submit: Callable[[Callable[[], Array]], Fit[Array]] = Fit,
        skip: tuple[type[Exception], ...] = (),
    ) -> None:
        self._folds, self._skip = Fold.of(masks), skip
        self._fits = [submit(partial(predict, fold)) for fold in self._folds]

    def result(self, title: str = "without some groups") -> OutOfFold:
        """Return the predictions of all folds; the title names the work while it is under way."""
        out = OutOfFold([], [], [])
        for fold, fit in zip(self._folds, tracked(self._fits, title), strict=True):
            try:
                values = fit.result()
            except self._skip as error:
                out.failures.append(error)
            else:
                out.folds.append(fold)
                out.values.append(values)
        return out

    def cancel(self) -> None:
        """Do not start fits that have not started."""
        for fit in self._fits:
            fit.cancel()


def cross_fit(predict: Callable[[Fold], Array], masks: Sequence[Mask], title: str = "", **how: Any) -> OutOfFold:
    """Return out-of-fold predictions.

    Parameters
    ----------
    predict, masks, how : see :class:`CrossFit`.
    title : names the work while it is under way.
    """
    return CrossFit(predict, masks, **how).result(title or "without some groups")
