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
