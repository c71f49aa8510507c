"""Group losses, worst cases and random problems from their definitions, in plain numpy: nothing of toporo is used."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import logsumexp

KINDS = ("squared", "outputs", "binary", "softmax")


class Rows(NamedTuple):
    """A problem: targets are numbers (one or two outputs) or the codes of two or three classes."""

    x: np.ndarray
    y: np.ndarray
    group: np.ndarray
    kind: str

    @property
    def logistic(self) -> bool:
        return self.kind in ("binary", "softmax")


def random_rows(seed, kind="squared", *, n=120, d=3, m=4, noise=0.5, differ=0.6):
    """Groups with different slopes and noise levels; every group has rows of every class."""
    rng = np.random.default_rng(seed)
    k = {"squared": 1, "outputs": 2, "binary": 1, "softmax": 3}[kind]
    group = rng.permutation(np.concatenate([np.repeat(np.arange(m), k), rng.integers(0, m, n - k * m)]))
    x = rng.normal(size=(n, d)) + rng.normal(size=d)
    slopes = rng.normal(size=(d, k)) + differ * rng.normal(size=(m, d, k))
    levels = noise * rng.uniform(0.3, 1.7, m)[group][:, None]
    z = np.einsum("nd,ndk->nk", x, slopes[group]) + rng.normal(size=k) + levels * rng.normal(size=(n, k))
    z = (z - z.mean(0)) / z.std(0)
    if kind in ("squared", "outputs"):
        return Rows(x, z[:, 0] if kind == "squared" else z, group, kind)
    y = (z[:, 0] > 0).astype(int) if kind == "binary" else z.argmax(axis=1)
    for e in range(m):  # no group of one class
        y[np.flatnonzero(group == e)[: max(k, 2)]] = np.arange(max(k, 2))[: (group == e).sum()]
    return Rows(x, y, group, kind)


# ---------------------------------------------------------------- losses


def row_losses(rows: Rows, coef, intercept):
    scores = rows.x @ coef + intercept
    if not rows.logistic:
        return ((scores - rows.y.reshape(len(rows.x), -1)) ** 2).sum(axis=1)
    if scores.shape[1] == 1:
        return np.logaddexp(0.0, np.where(rows.y == 1, -scores[:, 0], scores[:, 0]))
    return logsumexp(scores, axis=1) - scores[np.arange(len(scores)), rows.y]


def group_losses(rows: Rows, coef, intercept, weight=None):
    each = row_losses(rows, coef, intercept)
    weight = np.ones(len(each)) if weight is None else weight
    return np.array([np.average(each[rows.group == e], weights=weight[rows.group == e]) for e in np.unique(rows.group)])


# ---------------------------------------------------------------- the worst mixture


def divergence_value(q, p, divergence):
    if divergence == "l2":
        return 0.5 * ((q - p) ** 2).sum()
    q, p = q[p > 0], p[p > 0]
    if divergence == "chi2":
        return 0.5 * ((q - p) ** 2 / p).sum()
    off = (q - p) / p  # near the prior log(q / p) and q - p cancel to second order: log1p keeps the digits
    near, safe = np.abs(off) < 0.5, np.where(q > 0, q, p)
    return (q * np.where(near, np.log1p(np.where(near, off, 0.0)), np.log(safe / p)) - (q - p)).sum()


def response(losses, p, divergence, penalty):
    """The best q for a positive, finite penalty, from its optimality conditions: a root in one multiplier."""
    top = losses[p > 0].max() if divergence != "l2" else losses.max()
    relative = (losses - top) / penalty
    if divergence == "kl":
        weights = np.where(p > 0, p * np.exp(np.minimum(relative, 0.0)), 0.0)
        return weights / weights.sum()
    scale = np.ones_like(p) if divergence == "l2" else p
    if divergence == "chi2":
        relative = np.where(p > 0, relative, -math.inf)

    def weights_at(level):
        with np.errstate(invalid="ignore"):
            return np.where(scale > 0, np.maximum(p + scale * (relative - level), 0.0), 0.0)

    low = relative[np.isfinite(relative)].min() - 2.0 / len(p)
    high = 2.0 / scale[scale > 0].min()
    level = brentq(lambda v: weights_at(v).sum() - 1.0, low - 1.0, high, xtol=1e-300, rtol=1e-15)
    return weights_at(level) / weights_at(level).sum()


def worst(losses, p, divergence, penalty=None, radius=None):
    r"""The largest :math:`\langle q, \ell\rangle - \lambda D(q\|p)`, or with D within the radius."""
    losses, p = np.asarray(losses, float), np.asarray(p, float)
    inside = losses if divergence == "l2" else losses[p > 0]
    if radius is None:
        if math.isinf(penalty):
            return p @ losses
        if penalty == 0:
            return inside.max()
        q = response(losses, p, divergence, penalty)
        return q @ losses - penalty * divergence_value(q, p, divergence)
    spread = np.ptp(inside)
    if radius == 0 or spread == 0:
        return p @ losses

    def excess(exponent):
        q = response(losses, p, divergence, spread * math.exp(exponent))
        return math.log(max(divergence_value(q, p, divergence), 1e-300)) - math.log(radius)

    if excess(-25.0) <= 0:  # even the worst group alone is inside
        return inside.max()
    return response(losses, p, divergence, spread * math.exp(brentq(excess, -25.0, 40.0, xtol=1e-13))) @ losses


def upper_bound(fit, rows: Rows, coef=None, intercept=None, weight=None):
    """Worst-case value of a model: an upper bound of the optimal value for any model."""
    coef, intercept = (fit.coef, fit.intercept) if coef is None else (coef, intercept)
    losses = group_losses(rows, coef, intercept, weight)
    prior = np.array(list(fit.prior.values()))
    penalty = fit.penalty if fit.radius is None else None
    return worst(losses, prior, fit.divergence, penalty, fit.radius) + fit.ridge * np.sum(coef**2)


def lower_bound(fit, rows: Rows, intercept=True):
    """The least any model loses against the reported weights: a lower bound, whatever the weights."""
    q, p = np.array(list(fit.weights.values())), np.array(list(fit.prior.values()))
    free = fit.radius is not None or math.isinf(fit.penalty) or fit.penalty == 0
    cost = 0.0 if free else fit.penalty * divergence_value(q, p, fit.divergence)
    return least(rows, q, fit.ridge, intercept) - cost


def least(rows: Rows, q, ridge, intercept=True):
    """The least of the q-weighted losses plus the ridge over all models."""
    names, counts = np.unique(rows.group, return_counts=True)
    share = (q / counts)[np.searchsorted(names, rows.group)]
    ones = np.ones((len(rows.x), int(intercept)))
    design = np.column_stack([rows.x - (share @ rows.x) * intercept, ones])
    pull = np.append(np.full(rows.x.shape[1], ridge), np.zeros(int(intercept)))
    if not rows.logistic:
        y = rows.y.reshape(len(rows.x), -1)
        stacked = np.vstack([np.sqrt(share)[:, None] * design, np.diag(np.sqrt(pull))])
        target = np.vstack([np.sqrt(share)[:, None] * y, np.zeros((len(pull), y.shape[1]))])
        residual = target - stacked @ np.linalg.lstsq(stacked, target, rcond=None)[0]
        return float((residual**2).sum())
    k = 1 if rows.kind == "binary" else int(rows.y.max()) + 1

    def loss(flat: Any):
        theta = flat.reshape(-1, k)
        scores = design @ theta
        if k == 1:
            sign = 2.0 * rows.y - 1.0
            value = share @ np.logaddexp(0.0, -sign * scores[:, 0])
            off = (-sign / (1.0 + np.exp(np.minimum(sign * scores[:, 0], 700.0))))[:, None]
        else:
            total = logsumexp(scores, axis=1, keepdims=True)
            value = share @ (total[:, 0] - scores[np.arange(len(scores)), rows.y])
            off = np.exp(scores - total) - np.eye(k)[rows.y]
        gradient = design.T @ (share[:, None] * off) + 2.0 * pull[:, None] * theta
        return value + (pull[:, None] * theta**2).sum(), gradient.reshape(-1)

    start = np.zeros(design.shape[1] * k)
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-11, "maxcor": 30}
    return float(minimize(loss, start, jac=True, method="L-BFGS-B", options=options).fun)
