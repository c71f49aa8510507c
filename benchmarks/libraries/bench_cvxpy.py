"""The convex problem of the exact solver, stated in cvxpy."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from toporo.groups import Groups
from toporo.robust.losses import SquaredLosses

VERSION = cp.__version__


def worst_case(losses: Any, m: int, penalty: float) -> Any:
    r""":math:`\max_q \langle q, \ell\rangle - \frac\lambda2\|q - p\|^2` with uniform p, as a convex expression."""
    if penalty == 0:
        return cp.max(losses)
    level, slack = cp.Variable(), cp.Variable(m, nonneg=True)
    above = losses - level + slack
    return level + cp.sum(above) / m + cp.sum_squares(above) / (2 * penalty)


def solve_cvxpy(x: np.ndarray, y: np.ndarray, codes: np.ndarray, penalty: float, ridge: float, *, kind: str) -> float:
    """The same problem, stated row by row, from each group's normal equations, or for the logistic loss."""
    m, d = int(codes.max()) + 1, x.shape[1]
    weights, intercept = cp.Variable(d), cp.Variable()
    by_group: list[Any] = []
    moments = SquaredLosses.from_arrays(x, y, Groups.of(codes)) if kind == "moments" else None
    for e in range(m):
        rows = codes == e
        if kind == "rows":
            by_group.append(cp.sum_squares(y[rows] - x[rows] @ weights - intercept) / rows.sum())
        elif kind == "moments":
            assert moments is not None
            model = cp.hstack([weights, intercept])
            root = np.linalg.cholesky(moments.gram[e]).T
            linear = moments.cross[e, :, 0] @ model
            by_group.append(cp.sum_squares(root @ model) - 2 * linear + moments.square[e])
        else:
            signs = np.where(y[rows] > 0, 1.0, -1.0)
            margins = cp.multiply(signs, x[rows] @ weights + intercept)
            by_group.append(cp.sum(cp.logistic(-margins)) / rows.sum())
    bounds = cp.Variable(m)
    objective = worst_case(bounds, m, penalty) + ridge * cp.sum_squares(weights)
    problem = cp.Problem(cp.Minimize(objective), [bounds >= cp.hstack(by_group)])
    return float(problem.solve(solver=cp.CLARABEL))
