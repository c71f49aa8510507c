"""Distances between groups, and how well they can be told apart, on a sample of the rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from toporo.doctor.case import Codes
from toporo.doctor.results import Distances, Separability
from toporo.errors import TopoRoWarning
from toporo.groups import GroupIds, Groups
from toporo.machine import one_thread
from toporo.topology.diffusion import GroupDiffusion
from toporo.topology.learn import contrast, cut_graph, resample
from toporo.types import Array

#: Rows per group, points in all, and cells in all, of the sample.
EACH, POINTS, CELLS = 200, 4000, 2_000_000
#: Groups that take part in what is costly.
MOST_GROUPS = 100
#: Neighbours of a point in the data graph, where there are so many.
NEIGHBORS = 15
#: Dyadic scales: after 2^4 steps what diffuses has told near groups from far ones, and the few points that nothing is
#: near to, which rule at long times, have not.
SCALES = 4
#: Relative accuracy of a distance; a sample is far less accurate.
TOL = 1e-3
#: By number of groups: up to so many groups, so many resamples and so many random deals of rows to groups.
EFFORT = ((40, 10, 8), (MOST_GROUPS, 4, 5))
#: Rows a group needs to take part in cross-validation.
FEWEST_ROWS = 5
TREES = 40
#: Up to so many groups a linear classifier is quick enough to be tried beside the trees.
FEW_GROUPS = 50


def sample_size(groups: int, width: int) -> int:
    """Return how many rows to take of every group."""
    points = min(POINTS, max(500, CELLS // max(1, width)))
    return max(2, min(EACH, points // max(1, groups)))


def standardised(matrix: Array) -> Array:
    """Return columns centred and divided by their standard deviation; those that are constant become zeros."""
    centred = matrix - matrix.mean(axis=0)
    spread = centred.std(axis=0)
    varies = spread > 1e-12 * np.abs(matrix).max(axis=0, initial=0.0)
    return np.asarray(np.where(varies, centred / np.where(varies, spread, 1.0), 0.0))


def group_distances(matrix: Array, codes: Codes, names: Sequence[str], seed: int = 0) -> Distances | str:
    """Return the diffusion EMD between groups with what chance would give, or why there is none.

    Chance is measured by dealing the rows to groups of the same sizes at random, on the same data graph.
    """
    points = standardised(matrix)
    points = np.ascontiguousarray(points[:, points.any(axis=0)])
    if len(names) < 2:
        return "there is a single group"
    distinct = len(np.unique(points, axis=0)) if points.shape[1] else 1
    if distinct < 3:
        return f"the sampled rows have {'one single point' if distinct == 1 else 'only two points'} in their features"
    ids = GroupIds(codes, Groups(names))
    _, resamples, deals = next((e for e in EFFORT if len(names) <= e[0]), EFFORT[-1])
    rng = np.random.default_rng([seed, len(names)])
    # On small samples several threads wait for each other.
    with one_thread(torch=True, openmp=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # what they warn of is looked at here
        near = min(NEIGHBORS, distinct - 1)
        kernel = "knn" if distinct > 3 * near else "dense"
        prepared = GroupDiffusion.prepare(points, ids, kernel=kernel, neighbors=near, scales=SCALES, tol=TOL)
        measured = prepared.distances(TOL)
        draws = resample(prepared, resamples, seed=seed, tol=TOL)
        shuffled = (GroupIds(rng.permutation(codes), ids.groups) for _ in range(deals))
        dealt = [replace(prepared, graph=replace(prepared.graph, ids=some)).distances(TOL) for some in shuffled]
        edges = set(cut_graph(measured).edges)
        kept = [len(edges & set(cut_graph(draw).edges)) / len(edges) for draw in draws]
    pairs = np.triu_indices(len(names), 1)
    typical = float(measured.matrix[pairs].mean())
    means = np.asarray([draw.matrix[pairs].mean() for draw in dealt])
    spread = float(means.std(ddof=1))
    return Distances(
        names=tuple(names),
        matrix=measured.matrix,
        order=_seriated(measured.matrix, names),
        typical=typical,
        chance=float(means.mean()),
        chance_spread=spread,
        by_chance=np.asarray(np.mean([draw.matrix for draw in dealt], axis=0)),
        beyond_chance=bool(typical > means.max() and typical > means.mean() + 3 * spread),
        contrast=contrast(measured, draws),
        stability=float(np.mean(kept)),
        points=len(points),
    )


def _seriated(matrix: Array, names: Sequence[str]) -> tuple[str, ...]:
    """Return names with near ones side by side: the leaves of average linkage, turned so that neighbours are near."""
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    if len(names) < 3:
        return tuple(names)
    condensed = squareform(matrix, checks=False)
    leaves = leaves_list(optimal_leaf_ordering(linkage(condensed, "average"), condensed))
    order = [names[leaf] for leaf in leaves]
    return tuple(order if order[0] <= order[-1] else order[::-1])


def group_separability(
    matrix: Array, codes: Codes, names: Sequence[str], columns: Sequence[str], seed: int = 0
) -> Separability | str:
    """Return how well a classifier tells the groups apart, or why that was not measured.

    Extremely randomised trees, and for few groups logistic regression beside them (the better of the two counts),
    in stratified folds. ``columns`` names the table's column behind every column of the matrix.
    """
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    sizes = np.bincount(codes, minlength=len(names))
    taking = np.flatnonzero(sizes >= FEWEST_ROWS)
    if len(taking) < 2:
        return f"fewer than two groups have {FEWEST_ROWS} rows"
    rows = np.isin(codes, taking)
    x, y = standardised(matrix[rows]), np.searchsorted(taking, codes[rows])
    if not x.any():
        return "the features are constant"
    count = len(taking)
    folds = 5 if count <= FEW_GROUPS // 5 else 3
    makers: dict[str, Any] = {
        "extremely randomised trees": lambda: ExtraTreesClassifier(
            TREES, min_samples_leaf=2, class_weight="balanced", random_state=seed
        )
    }
    if count <= FEW_GROUPS:
        makers["logistic regression"] = lambda: LogisticRegression(class_weight="balanced", max_iter=300)
    tables = {name: np.zeros((count, count)) for name in makers}
    shares = np.zeros(x.shape[1])
    splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
    with one_thread(openmp=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a linear model that has not quite converged classifies well enough
        for inside, outside in splitter.split(x, y):
            for name, make in makers.items():
                model = make().fit(x[inside], y[inside])
                np.add.at(tables[name], (y[outside], model.predict(x[outside])), 1.0)
                shares += getattr(model, "feature_importances_", 0.0)
    best = max(tables, key=lambda name: float((np.diag(tables[name]) / sizes[taking]).sum()))
    confusion = tables[best] / tables[best].sum(axis=1, keepdims=True)
    recall = np.diag(confusion)
    by_column: dict[str, float] = {}
    for name, share in zip(columns, shares / max(float(shares.sum()), 1e-300), strict=True):
        by_column[name] = by_column.get(name, 0.0) + float(share)
    kept = tuple(names[int(i)] for i in taking)
    return Separability(
        accuracy=float(recall.mean()),
        chance=1.0 / count,
        error=float(np.sqrt((recall * (1 - recall) / sizes[taking]).sum()) / count),
        names=kept,
        confusion=confusion,
        features=tuple(sorted(by_column.items(), key=lambda item: (-item[1], item[0]))),
        classifier=best,
        folds=folds,
        points=len(y),
        left_out=tuple(name for name in names if name not in kept),
    )
