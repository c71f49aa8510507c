"""Projection onto the probability simplex, on numpy and torch arrays alike."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace


def project_simplex(values: Any) -> Any:
    r"""Project onto the probability simplex, along the last axis:

    .. math:: \arg\min_{q} \tfrac12 \|q - v\|_2^2 \quad\text{s.t.}\quad q \ge 0,\ \textstyle\sum_e q_e = 1 .

    The solution is :math:`q = \max(v - \tau, 0)` with the one :math:`\tau` that makes it sum to one, found by sorting
    (Held, Wolfe & Crowder 1974). Batched over leading axes; differentiable in torch, where the derivative is the
    projection onto the tangent space of the support; never copies anything off a GPU.

    Parameters
    ----------
    values : v, an array of any shape.

    >>> import numpy as np
    >>> project_simplex(np.array([0.9, 0.5, -1.0]))
    array([0.7, 0.3, 0. ])
    """
    xp = array_namespace(values)
    values = values - xp.max(values, axis=-1, keepdims=True)  # changes nothing but the digits that are left
    ordered = xp.sort(values, axis=-1, descending=True, stable=False)
    ranks = xp.arange(1, values.shape[-1] + 1, dtype=values.dtype, device=getattr(values, "device", None))
    # The threshold if exactly the k largest entries stay positive; the true support is the largest k that is
    # consistent with itself, and its threshold is the largest of them all.
    threshold = xp.max((xp.cumulative_sum(ordered, axis=-1) - 1.0) / ranks, axis=-1, keepdims=True)
    return xp.clip(values - threshold, min=0.0)


def project_capped(values: Any, most: Any) -> Any:
    r"""Project onto the simplex with caps, along the last axis:

    .. math:: \arg\min_{q} \tfrac12 \|q - v\|_2^2 \quad\text{s.t.}\quad 0 \le q \le c,\ \textstyle\sum_e q_e = 1 .

    The solution is :math:`q = \min(\max(v - \tau, 0), c)`. Its sum is piecewise linear in :math:`\tau`, with a break
    where an entry leaves 0 or reaches its cap: pieces are added from the largest break on, until the sum is one.

    Parameters
    ----------
    values : v, an array of any shape.
    most : c, positive; the caps sum to one at least.

    >>> import numpy as np
    >>> project_capped(np.array([0.9, 0.5, -1.0]), np.array([0.6, 0.6, 0.6]))
    array([0.6, 0.4, 0. ])
    """
    xp = array_namespace(values, most)
    values = values - xp.max(values, axis=-1, keepdims=True)
    caps = most + xp.zeros_like(values)
    one = xp.ones_like(values)
    breaks = xp.concat([values, values - caps], axis=-1)
    order = xp.argsort(breaks, axis=-1, descending=True)
    breaks = xp.take_along_axis(breaks, order, axis=-1)
    moving = xp.cumulative_sum(xp.take_along_axis(xp.concat([one, -one], axis=-1), order, axis=-1), axis=-1)
    reached = xp.cumulative_sum(moving[..., :-1] * (breaks[..., :-1] - breaks[..., 1:]), axis=-1)
    # The first break where the sum is one; where rounding keeps it below, the last.
    piece = xp.sum(xp.astype(reached < 1.0, xp.int64), axis=-1, keepdims=True)
    piece = xp.clip(piece, max=reached.shape[-1] - 1)
    last = xp.take_along_axis(breaks, piece, axis=-1)
    inside = (values >= last) & (values - caps < last)  # between 0 and the cap on that line
    sums = xp.where(inside, values, xp.where(values >= last, caps, xp.zeros_like(values)))
    number = xp.clip(xp.sum(xp.astype(inside, values.dtype), axis=-1, keepdims=True), min=1.0)
    threshold = (xp.sum(sums, axis=-1, keepdims=True) - 1.0) / number
    return xp.clip(xp.where(values - threshold < caps, values - threshold, caps), min=0.0)
