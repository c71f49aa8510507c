"""The data-driven topology: features and groups to distances to a graph (Qiao & Peng 2023, Sec. 3.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import minimum_spanning_tree

from toporo.errors import DataError, GroupMismatchError, SettingError, UnknownNameError, listed, warn
from toporo.groups import GroupIds, Groups
from toporo.topology.affinity import check_features
from toporo.topology.diffusion import GroupDistances, diffusion_emd
from toporo.topology.graph import GroupGraph, Origin

__all__ = ["CUTS", "cut_graph", "learn_topology"]

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def learn_topology(
    features: Any,
    groups: Any,
    *,
    test_features: Any = None,
    test_groups: Any = None,
    cut: str = "mst-knn",
    percentile: float = 80.0,
    nearest_groups: int | None = None,
    **emd: Any,
) -> GroupGraph:
    """Learn which groups hang together: diffusion EMD between them, then a cut.

    Parameters
    ----------
    features, groups : of the training rows; penultimate activations of an ERM model (as in the paper) or raw inputs.
    test_features, test_groups : unlabelled rows of groups to come. The graph then spans them too, and it and every
        prior made from it record that test inputs were seen.
    cut, percentile, nearest_groups : see :func:`cut_graph`.
    emd : settings of :func:`~toporo.topology.diffusion.diffusion_emd` (``sigma``, ``scales``, ``kernel``, …).

    Returns
    -------
    GroupGraph
        Edges carry the distances as lengths; ``graph.origin.details`` says how it was learned.
    """
    ids = groups if isinstance(groups, GroupIds) else Groups.of(groups)
    seen_test = test_features is not None or test_groups is not None
    if seen_test:
        if test_features is None or test_groups is None:
            raise DataError("test_features and test_groups go together: give both or neither.")
        features, ids = _append_test(features, ids, test_features, test_groups)
    return cut_graph(
        diffusion_emd(features, ids, **emd),
        cut,
        percentile=percentile,
        nearest_groups=nearest_groups,
        saw_test_inputs=seen_test,
    )


def cut_graph(
    distances: GroupDistances,
    cut: str = "mst-knn",
    *,
    percentile: float = 80.0,
    nearest_groups: int | None = None,
    saw_test_inputs: bool = False,
) -> GroupGraph:
    """Keep the short distances as edges.

    - ``"percentile"``: pairs closer than this percentile of the whole distance matrix, its zero diagonal included (the
      published code's rule; it uses 80 for DG-15 and 40 for DG-60). Closer means strictly: the pair at it is left out.
    - ``"knn"``: pairs of which one is among the other's ``nearest_groups`` nearest.
    - ``"mst-knn"``: the same, united with the minimum spanning tree, so that the graph is connected.

    ``nearest_groups`` is the natural logarithm of the number of groups, rounded, unless given.
    """
    if cut not in CUTS:
        raise UnknownNameError("cut", cut, CUTS)
    if not 0 < percentile <= 100:
        raise SettingError(f"percentile is {percentile!r}: expected a number above 0 and at most 100.")
    m = len(distances.groups)
    k = max(1, round(math.log(m))) if nearest_groups is None else nearest_groups
    if int(k) != k or not k >= 1:
        raise SettingError(f"nearest_groups is {k!r}: expected a whole number of at least 1.")
    keep = CUTS[cut](distances.matrix, percentile, min(int(k), m - 1))
    details = dict(distances.settings) | {"error": distances.error, "cut": cut}
    details |= {"percentile": float(percentile)} if cut == "percentile" else {"nearest_groups": int(k)}
    names = distances.names
    # Two groups with the same points are at distance 0; an edge needs a positive length.
    shortest = np.finfo(np.float64).tiny
    lengths = {
        (names[i], names[j]): max(float(distances.matrix[i, j]), shortest) for i, j in np.argwhere(np.triu(keep, 1))
    }
    graph = GroupGraph(names, lengths, origin=Origin("learned", saw_test_inputs, details))
    if len(parts := graph.components()) > 1:
        warn(
            f"cut={cut!r} leaves the learned graph in {len(parts)} pieces (largest: {listed(parts[0])}). "
            "Use cut='mst-knn' for a connected graph.",
        )
    return graph


def _percentile(matrix: Array, percentile: float, k: int) -> Mask:
    return np.asarray(matrix < np.percentile(matrix, percentile))


def _knn(matrix: Array, percentile: float, k: int) -> Mask:
    others = matrix + np.diag(np.full(len(matrix), np.inf))
    order = np.argsort(others, axis=1, kind="stable")[:, :k]
    keep = np.zeros(matrix.shape, dtype=bool)
    keep[np.arange(len(matrix))[:, None], order] = True
    return keep | keep.T


def _mst_knn(matrix: Array, percentile: float, k: int) -> Mask:
    positive = np.maximum(matrix, np.finfo(np.float64).tiny)  # a zero would read as 'no edge'
    # Sparse on purpose: scipy reads very short lengths in a dense matrix as missing edges.
    tree = minimum_spanning_tree(sparse.csr_array(np.triu(positive, 1))).toarray() > 0
    return np.asarray(tree | tree.T | _knn(matrix, percentile, k))


#: Name of a cut to (distance matrix, percentile, k) -> which pairs to keep.
CUTS: dict[str, Callable[[Array, float, int], Mask]] = {
    "percentile": _percentile,
    "knn": _knn,
    "mst-knn": _mst_knn,
}


def _append_test(features: Any, ids: GroupIds, test_features: Any, test_groups: Any) -> tuple[Array, GroupIds]:
    train = check_features(features)
    test = check_features(test_features, what="test_features")
    if train.shape[1] != test.shape[1]:
        raise DataError(f"features have {train.shape[1]} columns but test_features {test.shape[1]}: they must agree.")
    test_ids = test_groups if isinstance(test_groups, GroupIds) else Groups.of(test_groups)
    both = [name for name in test_ids.groups if name in ids.groups]
    if both:
        raise GroupMismatchError(
            f"group(s) both in training and in test: {listed(both)}. A test group is one that training never sees."
        )
    for what, found, labels in (("features", train, ids), ("test_features", test, test_ids)):
        if len(found) != len(labels):
            raise DataError(f"{what} has {len(found)} rows but {len(labels)} group labels: give one label a row.")
    return np.concatenate([train, test]), Groups.of([*ids.names, *test_ids.names])
