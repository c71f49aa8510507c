"""The data graph: a diffusion operator over points, and the groups on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from toporo.errors import DataError, listed, warn
from toporo.groups import GroupIds
from toporo.machine import one_thread
from toporo.topology.kernel import Sigma, gaussian_kernel
from toporo.topology.neighbors import locality_order
from toporo.topology.operator import DiffusionOperator
from toporo.types import Array

PointIndices: TypeAlias = npt.NDArray[np.intp]

#: Up to this many points ``kernel="auto"`` takes the dense kernel of the paper, beyond it the kNN kernel.
DENSE_LIMIT = 2000
#: Advice about a data graph in pieces, by kernel. Commands that only learn a graph on the way lack these settings.
PIECES_ADVICE = {
    "dense": "a larger sigma (toporo topology --set sigma; --graph of other commands takes the graph that it writes).",
    "knn": "more neighbours or kernel='dense' (toporo topology --set neighbors or kernel=dense; --graph of other "
    "commands takes the graph that it writes).",
}


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
        """Build the graph of finite points; the parameters are those of :func:`~toporo.diffusion_emd`."""
        _check_codes(len(points), ids)
        if kernel == "auto":
            kernel = "dense" if len(points) <= DENSE_LIMIT else "knn"
        distinct, point_of_row = np.unique(points, axis=0, return_inverse=True)  # in an order that rows do not decide
        point_of_row = point_of_row.ravel()
        if len(distinct) == 1:
            raise DataError(f"all {len(points)} points coincide: groups cannot be told apart.")
        if kernel == "knn":
            order = locality_order(distinct)
            distinct, point_of_row = distinct[order], np.argsort(order)[point_of_row]
        matrix, settings = gaussian_kernel(distinct, kernel, sigma, neighbors)
        with one_thread():
            operator = DiffusionOperator.from_kernel(matrix, np.bincount(point_of_row).astype(np.float64))
        graph = cls(operator, ids, point_of_row, settings)
        graph._warn_if_in_pieces()
        return graph

    def measures(self, row_weights: Array | None = None) -> sparse.csc_array:
        """Return columns :math:`1_{X_e} / n_e`, one per group, as means over the rows that each point stands for.

        ``row_weights`` gives each row a weight within its group.
        """
        codes = np.asarray(self.ids.codes)
        weights = np.ones(len(codes)) if row_weights is None else np.asarray(row_weights, dtype=np.float64)
        totals = np.bincount(codes, weights, minlength=len(self.ids.groups))
        if not (np.isfinite(weights).all() and (weights >= 0).all() and (totals > 0).all()):
            raise DataError("row_weights: expected finite numbers of at least 0, and some row of each group above 0.")
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

    @property
    def pieces(self) -> int:
        """The number of connected pieces."""
        return int(self.operator.pieces.max()) + 1

    def _warn_if_in_pieces(self) -> None:
        if self.pieces == 1:
            return
        pieces = self.operator.pieces[self.point_of_row]
        sizes = np.bincount(pieces)
        shown = []
        for piece in np.argsort(-sizes, kind="stable")[:3]:
            codes = np.unique(np.asarray(self.ids.codes)[pieces == piece])
            shown.append(f"{sizes[piece]} points of {listed(self.ids.groups.decode(codes), limit=3)}")
        warn(
            f"the data graph falls into {self.pieces} pieces that nothing diffuses between ({'; '.join(shown)}"
            f"{'; …' if self.pieces > 3 else ''}). Between groups in different pieces the distance is as large as it "
            f"can be, however near or far the pieces lie. Use {PIECES_ADVICE[self.settings['kernel']]}"
        )


def _check_codes(points: int, ids: GroupIds) -> None:
    """Check that there is one code per point, at least two groups, and a point in every group."""
    if len(ids.groups) < 2:
        raise DataError(f"only one group, {ids.groups.names[0]!r}: distances between groups need at least two.")
    if points != len(ids):
        raise DataError(f"{points} points but {len(ids)} group labels: give one label per point, in the same order.")
    counts = np.bincount(np.asarray(ids.codes), minlength=len(ids.groups))
    empty = [name for name, count in zip(ids.groups, counts, strict=True) if count == 0]
    if empty:
        raise DataError(f"group(s) without a single point: {listed(empty)}. Leave them out or give them points.")
