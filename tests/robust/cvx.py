"""The same problem handed to a general convex solver: cvxpy's modelling and Clarabel's interior points.

Nothing of toporo is used. The inner maximum over q is replaced by its convex dual, group losses by epigraph variables:

- penalised: the least of ``nu + sum_e c_e(t_e - nu)`` over nu, with c the conjugate of ``lambda D(.||p)`` on q >= 0;
- with a radius: the same with lambda a variable and ``lambda * radius`` added.
"""

import math
import warnings
from typing import NamedTuple

import numpy as np
import pytest

cp = pytest.importorskip("cvxpy")


class Optimum(NamedTuple):
    value: float
    coef: np.ndarray
    intercept: np.ndarray


def solve(x, y, group, prior, *, kind, divergence, ridge, penalty=None, radius=None, intercept=True):
    """``group`` are codes 0 … m-1 and ``prior`` m weights; ``kind`` is squared, binary or softmax (y are codes)."""
    n, d = x.shape
    prior = np.asarray(prior, dtype=float)
    chosen = np.arange(len(prior)) if divergence == "l2" else np.flatnonzero(prior > 0)
    y = np.asarray(y, dtype=float).reshape(n, -1) if kind == "squared" else y
    outputs = {"squared": y.shape[-1], "binary": 1, "softmax": int(np.max(y)) + 1}[kind]
    coef, bias = cp.Variable((d, outputs)), cp.Variable((1, outputs))
    losses = cp.hstack([_loss(x[group == e], y[group == e], coef, bias, kind) for e in chosen])
    worst, constraints = _worst(losses, prior[chosen], divergence, penalty, radius)
    if not intercept:
        constraints.append(bias == 0)
    problem = cp.Problem(cp.Minimize(worst + ridge * cp.sum_squares(coef)), constraints)
    for tol in (1e-8, 1e-7):  # where lambda goes to zero an exponential cone ends a digit early
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate")
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
        if problem.status == cp.OPTIMAL:
            return Optimum(float(problem.value), coef.value, bias.value[0])
    raise RuntimeError(f"Clarabel gave up: {problem.status}")


def _loss(x, y, coef, bias, kind):
    if kind == "squared":  # a rotation leaves as many rows as there are columns, and no squares of small numbers
        triangle = np.linalg.qr(np.column_stack([x, np.ones(len(x)), y]) / math.sqrt(len(x)), mode="r")
        return cp.sum_squares(triangle @ cp.vstack([coef, bias, -np.eye(y.shape[1])]))
    scores = x @ coef + np.ones((len(x), 1)) @ bias
    if kind == "binary":
        return cp.sum(cp.logistic(cp.multiply(1.0 - 2.0 * y[:, None], scores))) / len(x)
    own = cp.sum(cp.multiply(scores, np.eye(coef.shape[1])[y]))
    return (cp.sum(cp.log_sum_exp(scores, axis=1)) - own) / len(x)


def _worst(losses, prior, divergence, penalty, radius):
    """The largest <q, losses> - penalty D(q||prior), or the largest with D at most the radius, and its constraints."""
    if radius is None and math.isinf(penalty):
        return prior @ losses, []
    if radius is None and penalty == 0:
        return cp.max(losses), []
    m = len(prior)
    level, above, slack = cp.Variable(), cp.Variable(m), cp.Variable(m, nonneg=True)
    multiplier = penalty if radius is None else cp.Variable(nonneg=True)
    extra = 0.0 if radius is None else multiplier * radius
    if divergence == "kl":  # p_e lambda (exp((t_e - nu) / lambda) - 1)
        raised = cp.Variable(m)
        cone = cp.ExpCone(above, multiplier * np.ones(m), raised)
        return level + prior @ raised - multiplier + extra, [above >= losses - level, cone]
    # p_e v_e + w_e v_e^2 / (2 lambda), v_e = t_e - nu + s_e with a multiplier s_e >= 0 for q_e >= 0
    root = np.ones(m) if divergence == "l2" else np.sqrt(prior)
    square = cp.Variable()  # a constraint: with a radius the best lambda may be zero
    bounded = cp.quad_over_lin(cp.multiply(root, above + slack), multiplier) <= 2 * square
    return level + prior @ (above + slack) + square + extra, [above >= losses - level, bounded]
