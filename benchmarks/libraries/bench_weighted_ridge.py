"""Geographically weighted ridge over a graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from libraries.bench_statsmodels import standardised

#: Hops that a kernel is wide; infinitely wide is one ridge for all.
WIDTHS = (0.5, 1.0, 2.0, 4.0, math.inf)
RIDGE = 1e-3


def weighted_ridge(problem: Any) -> np.ndarray:
    """A ridge for every test group, training groups weighted by hops; the width by leaving one group out."""
    known, names = problem.known, list(problem.graph.names)
    x = np.column_stack([np.ones(len(known)), standardised(problem.x, known)])
    y = problem.y.reshape(len(known), -1)
    rows = {name: problem.groups == name for name in names}
    trained = [name for name in names if name not in problem.test]
    squares = np.array([x[rows[name]].T @ x[rows[name]] for name in trained])
    products = np.array([x[rows[name]].T @ y[rows[name]] for name in trained])
    hops = {name: np.array([problem.graph.hops([name])[other] for other in trained], float) for name in names}

    def fit(weights: np.ndarray) -> np.ndarray:
        inner = np.tensordot(weights, squares, axes=1)
        some = np.arange(1, len(inner))
        inner[some, some] += RIDGE * inner[0, 0]
        return np.linalg.solve(inner, np.tensordot(weights, products, axes=1))

    def weights(name: Any, width: float) -> np.ndarray:
        logs = -0.5 * (hops[name] / width) ** 2
        return np.exp(logs - logs[hops[name] > 0].max())

    def left_out(width: float) -> float:
        total = 0.0
        for place, name in enumerate(trained):
            others = weights(name, width)
            others[place] = 0.0
            total += float(np.sum((x[rows[name]] @ fit(others) - y[rows[name]]) ** 2))
        return total

    width = min(WIDTHS, key=left_out)
    out = np.zeros_like(y)
    for name in problem.test:
        out[rows[name]] = x[rows[name]] @ fit(weights(name, width))
    return out[~known].reshape(-1, *problem.y.shape[1:])
