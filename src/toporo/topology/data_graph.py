"""The data graph: a diffusion operator over points, and the groups on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from toporo.errors import DataError, GroupMismatchError, listed, warn
from toporo.groups import GroupIds
from toporo.machine import one_thread
from toporo.topology.kernel import Sigma, bandwidth, check_features, dense_affinity, knn_kernel
from toporo.topology.neighbors import TREE_DIMENSIONS, locality_order, nearest
from toporo.topology.operator import DiffusionOperator, check_kernel, reordered
from toporo.types import Array

PointIndices: TypeAlias = npt.NDArray[np.intp]

#: Advice about a data graph in pieces, by kernel. Commands that only learn a graph on the way lack these settings.
PIECES_ADVICE = {
    "dense": "a larger sigma (toporo topology --set sigma; --graph of other commands takes the graph that it writes).",
    "knn": "more neighbours or kernel='dense' (toporo topology --set neighbors or kernel=dense; --graph of other "
    "commands takes the graph that it writes).",
    "given": "an affinity that joins them.",
}
#: A group with a larger share of the points makes the data graph its own.
LARGEST_SHARE = 0.95


@dataclass(frozen=True)
class DataGraph:
    """A diffusion operator and the groups on it.

    Attributes
    ----------
    operator : the diffusion operator.
    ids : the groups of the rows given.
    point_of_row : for each row given, its point in the operator.
    settings : what the graph was made from.
    """

    operator: DiffusionOperator
    ids: GroupIds
    point_of_row: PointIndices
    settings: dict[str, Any]

    @classmethod
    def from_points(cls, points: Array, ids: GroupIds, kernel: str, sigma: Sigma, neighbors: int) -> DataGraph:
        """Build the graph of checked points; the parameters are those of :func:`~toporo.diffusion_emd`."""
        distinct, point_of_row = merge_points(points)
        if len(distinct) == 1:
            raise DataError(f"all {len(points)} points coincide: groups cannot be told apart.")
        if kernel == "knn":
            order = locality_order(distinct)
            distinct, point_of_row = distinct[order], np.argsort(order)[point_of_row]
        settings: dict[str, Any] = {"kernel": kernel, "sigma": sigma if isinstance(sigma, str) else float(sigma)}
        found = None
        if kernel == "knn" or sigma == "knn":
            if neighbors >= len(distinct) < len(points):
                raise DataError(
                    f"{len(distinct)} distinct points (of {len(points)}) cannot have {neighbors} neighbours each: give "
                    f"more points or neighbors={len(distinct) - 1}."
                )
            found = nearest(distinct, neighbors)
            search = "kd-tree" if distinct.shape[1] <= TREE_DIMENSIONS else "scikit-learn"
            settings |= {"neighbors": neighbors, "search": search, "recall": 1.0}  # the search is exact
        width = settings["sigma_value"] = bandwidth(distinct, sigma, neighbors=neighbors, found=found)
        with one_thread():
            matrix = knn_kernel(found, width) if kernel == "knn" and found else dense_affinity(distinct, width)
            counts = np.bincount(point_of_row).astype(np.float64)
            operator = DiffusionOperator.from_kernel(matrix, counts, checked=True)
        return cls(operator, ids, point_of_row, settings)

    @classmethod
    def from_affinity(cls, affinity: Any, ids: GroupIds, features: Any = None) -> DataGraph:
        """Build the graph of a given kernel; a large one is reordered, by the features if given, for locality."""
        matrix = check_kernel(affinity)
        check_codes(matrix.shape[0], ids)
        points = None if features is None else check_features(features)
        if points is not None and len(points) != matrix.shape[0]:
            raise DataError(f"features have {len(points)} rows, the affinity {matrix.shape[0]}: they must agree.")
        matrix, order = reordered(matrix, points)
        with one_thread():
            operator = DiffusionOperator.from_kernel(matrix, checked=True)
        point_of_row = np.arange(len(operator)) if order is None else np.argsort(order)
        return cls(operator, ids, point_of_row, {"kernel": "given"})

    def measures(self, row_weights: Array | None = None) -> sparse.csc_array:
        """Return columns :math:`1_{X_e} / n_e`, one per group, as means over the rows that each point stands for.

        ``row_weights`` gives each row a weight within its group.
        """
        codes = np.asarray(self.ids.codes)
        weights = np.ones(len(codes)) if row_weights is None else np.asarray(row_weights, dtype=np.float64)
        if weights.shape != codes.shape:
            raise DataError(f"row_weights have shape {weights.shape} for {len(codes)} rows: give one weight per row.")
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise DataError("row_weights hold negative or NaN or infinite values: weights are finite and at least 0.")
        totals = np.bincount(codes, weights, minlength=len(self.ids.groups))
        if (totals == 0).any():
            weightless = [name for name, total in zip(self.ids.groups, totals, strict=True) if total == 0]
            raise DataError(
                f"row_weights add up to 0 in group(s) {listed(weightless)}: give some row of each a weight."
            )
        values = weights / totals[codes] / self.operator.weights[self.point_of_row]
        shape = (len(self.operator), len(self.ids.groups))
        entries = sparse.coo_array((values, (self.point_of_row, codes)), shape=shape)
        return entries.tocsc()  # adds up the rows of one point

    def spread(self, measures: sparse.csc_array) -> float:
        r"""Bound the error of a distance if the filters, weighted, are together off by at most 1 in operator norm.

        In the frame of S, :math:`\|\delta\|_2 \le \|(wD)^{1/2} x\|_2`, and back in the walk's frame
        :math:`\|(w/D)^{1/2}\delta\|_1 \le \|(w/D)^{1/2}\|_2\,\|\delta\|_2`; a distance has two groups.
        """
        start = np.sqrt((measures.power(2).T @ self.operator.enter**2).max())
        return float(2.0 * start * np.sqrt((self.operator.leave**2).sum()))  # no BLAS: its last bits depend on threads

    @cached_property
    def pieces(self) -> int:
        """The number of connected pieces."""
        return int(self.operator.pieces.max()) + 1

    def warn_of_pieces(self) -> None:
        """Warn if the data graph is not connected."""
        if self.pieces == 1:
            return
        pieces = self.operator.pieces
        sizes = np.bincount(pieces, weights=self.operator.weights).astype(int)
        shown = []
        for piece in range(min(self.pieces, 3)):
            codes = np.unique(np.asarray(self.ids.codes)[pieces[self.point_of_row] == piece])
            shown.append(f"{sizes[piece]} points of {listed([self.ids.groups.names[c] for c in codes], limit=3)}")
        warn(
            f"the data graph falls into {self.pieces} pieces that nothing diffuses between ({'; '.join(shown)}"
            f"{'; …' if self.pieces > 3 else ''}). Between groups in different pieces the distance is as large as it "
            f"can be, however near or far the pieces lie. Use {PIECES_ADVICE[self.settings['kernel']]}"
        )

    def warn_of_giants(self) -> None:
        """Warn of a group that holds nearly all points."""
        counts = np.bincount(np.asarray(self.ids.codes))
        share = counts.max() / counts.sum()
        if share > LARGEST_SHARE:
            largest = self.ids.groups.names[int(counts.argmax())]
            warn(
                f"group {largest!r} holds {share:.1%} of the points: the data graph is nearly its own, and the others' "
                "distances rest on few points. Consider a subsample of it."
            )


def merge_points(rows: Array) -> tuple[Array, PointIndices]:
    """Merge coincident rows; return the distinct points, and for each row its point.

    The points are sorted by their first coordinate, then the second, …, so their order does not depend on the rows'.
    """
    order = np.argsort(rows[:, 0], kind="stable")
    first = rows[order, 0]
    tied = np.zeros(len(rows), dtype=bool)
    tied[1:] = first[1:] == first[:-1]
    tied[:-1] |= tied[1:]
    if tied.any():  # the other coordinates decide; sorting by all of them takes seconds for 2000 dimensions
        among = order[tied]
        order[tied] = among[np.lexsort(rows[among].T[::-1])]
    points = rows[order]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (points[1:] != points[:-1]).any(axis=1)
    point_of_row = np.empty(len(rows), dtype=np.intp)
    point_of_row[order] = np.cumsum(new) - 1
    return points[new], point_of_row


def check_codes(points: int, ids: GroupIds) -> None:
    """Check that there is one code per point, at least two groups, and a point in every group."""
    if len(ids.groups) < 2:
        raise DataError(f"only one group, {ids.groups.names[0]!r}: distances between groups need at least two.")
    if points != len(ids):
        raise DataError(f"{points} points but {len(ids)} group labels: give one label per point, in the same order.")
    codes = np.asarray(ids.codes.detach().cpu() if hasattr(ids.codes, "detach") else ids.codes)
    if codes.shape != (points,) or codes.dtype.kind not in "iu":
        raise GroupMismatchError(
            f"group codes are {codes.dtype} of shape {codes.shape}: expected one integer per point."
        )
    if not 0 <= codes.min() <= codes.max() < len(ids.groups):
        raise GroupMismatchError(
            f"group codes are {codes.dtype} from {codes.min()} to {codes.max()}: expected integers from 0 to "
            f"{len(ids.groups) - 1}."
        )
    counts = np.bincount(codes, minlength=len(ids.groups))
    if (counts == 0).any():
        empty = [name for name, count in zip(ids.groups, counts, strict=True) if count == 0]
        raise DataError(f"group(s) without a single point: {listed(empty)}. Leave them out or give them points.")
