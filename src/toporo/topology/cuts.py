"""From distances between groups to edges: which pairs a cut keeps.

A cut is a function ``(matrix, percentile, k) -> mask`` of the symmetric (m, m) matrix of distances, the setting
``percentile`` and the number ``k`` of nearest groups. The mask, of the same shape, is symmetric and True
where a pair is kept; its diagonal does not count. ``@register("name")`` adds one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import minimum_spanning_tree

from toporo.registry import Registry
from toporo.types import Array

Mask: TypeAlias = npt.NDArray[np.bool_]
Cut: TypeAlias = Callable[[Array, float, int], Mask]

#: Name of a cut to its function; entry points of the group ``toporo.cuts`` add to it.
CUTS: Registry[Cut] = Registry("cut")
register = CUTS.register

#: Distances that differ by no more than this share of the shorter one are as good as equal. Settled by how well edges
#: of DG-15, DG-60 and TPT-48 agree with their given graphs, with PACS' distances in view and no test error.
TIE = 0.1


@register("percentile")
def percentile_cut(matrix: Array, percentile: float, k: int) -> Mask:
    """Pairs closer than this percentile of the whole matrix, its diagonal included."""
    return np.asarray(matrix < np.percentile(matrix, percentile))


@register("knn")
def knn_cut(matrix: Array, percentile: float, k: int) -> Mask:
    """Pairs of which one is among the other's k nearest."""
    others = matrix + np.diag(np.full(len(matrix), np.inf))
    order = np.argsort(others, axis=1, kind="stable")[:, :k]
    keep = np.zeros(matrix.shape, dtype=bool)
    keep[np.arange(len(matrix))[:, None], order] = True
    return keep | keep.T


@register("mst-knn")
def mst_knn_cut(matrix: Array, percentile: float, k: int) -> Mask:
    """The same, united with the minimum spanning tree: the graph is connected."""
    positive = np.maximum(matrix, np.finfo(np.float64).tiny)  # a zero would read as 'no edge'
    # Sparse on purpose: scipy reads very short lengths in a dense matrix as missing edges.
    tree = minimum_spanning_tree(sparse.csr_array(np.triu(positive, 1))).toarray() > 0
    return np.asarray(tree | tree.T | knn_cut(matrix, percentile, k))


@register("mst-knn-ties")
def mst_knn_ties_cut(matrix: Array, percentile: float, k: int) -> Mask:
    r"""The same, united with every pair that is as short up to a tenth, so that groups can be equally far apart.

    :math:`W(e, e') \le (1 + \tau) \max(r_e, r_{e'}, b_{ee'})`, where :math:`\tau = 0.1`, :math:`r_e` is the distance
    from e to its k-th nearest group, and :math:`b_{ee'}` the longest step on the way from e to e' by other groups whose
    longest step is shortest: the height at which single linkage joins the two.

    A spanning tree must leave pairs out, however little longer they are, and so makes a chain of any three groups;
    here a pair is left out only if it is clearly longer than the way around it. Then equal distances give the complete
    graph, and hence a uniform prior, and ties never depend on the order of the groups. With one nearest group
    :math:`r \le b`: three groups are a chain if their longest distance is more than a tenth above the next.
    """
    from scipy.cluster.hierarchy import cophenet, linkage  # takes longer to import than all else here
    from scipy.spatial.distance import squareform

    others = matrix + np.diag(np.full(len(matrix), np.inf))
    kth = np.sort(others, axis=1)[:, k - 1]
    around = squareform(cophenet(linkage(squareform(matrix, checks=False), "single")))
    return np.asarray(matrix <= (1 + TIE) * np.maximum(around, np.maximum.outer(kth, kth)))
