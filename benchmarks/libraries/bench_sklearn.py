"""scikit-learn's Gaussian process on inputs and coordinates of the graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

import toporo as tr
from libraries.bench_statsmodels import standardised
from toporo.estimators.places import placed

#: Rows that a Gaussian process is fitted to at most, drawn anew for every problem, and modes of the graph it sees.
GP_ROWS, GP_MODES = 300, 4


def graph_places(graph: tr.GroupGraph, groups: np.ndarray, count: int) -> np.ndarray:
    """Coordinates of every row's group: the smoothest modes of the Laplacian, mean square 1."""
    ids = tr.Groups.of(groups)
    modes, places = placed(graph, ids.groups)
    return modes.first(count).vectors[places][ids.codes] * math.sqrt(len(graph.names))


def gaussian_process(problem: Any) -> np.ndarray:
    """Linear plus squared exponential with a length for every input and coordinate, by marginal likelihood."""
    known = problem.known
    x = np.column_stack([standardised(problem.x, known), graph_places(problem.graph, problem.groups, GP_MODES)])
    rows = np.flatnonzero(known)
    if len(rows) > GP_ROWS:
        rows = np.random.default_rng(0).choice(rows, GP_ROWS, replace=False)
    kernel = ConstantKernel(1.0) * RBF(np.ones(x.shape[1])) + DotProduct() + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(x[rows], problem.y[rows])
    return np.asarray(model.predict(x[~known]))
