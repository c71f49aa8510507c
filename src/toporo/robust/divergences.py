r"""Divergences D(q‖p) that keep the worst-case weights q near the prior p.

Each is four pure functions of arrays (numpy or torch; the last axis runs over groups, leading axes are a batch):

- ``value(q, p)`` is :math:`D(q\|p)`;
- ``gradient(q, p)`` is :math:`\nabla_q D(q\|p)`;
- ``best_response(losses, p, penalty)`` is
  :math:`\arg\max_{q \in \Delta} \langle q, \ell\rangle - \lambda D(q\|p)` for a finite :math:`\lambda > 0`, a number or
  an array that broadcasts against the batch with a trailing axis of one;
- ``mobility(q, p)`` is the derivative of the best response: with w its value at a best response q,
  :math:`\partial q / \partial (\ell/\lambda) = \mathrm{diag}(w) - w w^\top / \sum w`, for all three divergences.

:func:`best_response` adds the two ends: all weight on the worst groups at 0, the prior itself at infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from array_api_compat import array_namespace

from toporo.errors import SettingError
from toporo.registry import Registry
from toporo.robust.simplex import project_simplex


class Divergence:
    """Value, gradient, best response and mobility of a divergence; a base class, never instantiated.

    The head of this module says what each function returns.

    Attributes
    ----------
    name : under which it is registered.
    bounded : whether D stays finite where the prior is zero, so a group outside the prior may get weight.
    """

    name: ClassVar[str]
    bounded: ClassVar[bool] = False

    @staticmethod
    def value(q: Any, p: Any) -> Any: ...

    @staticmethod
    def gradient(q: Any, p: Any) -> Any: ...

    @staticmethod
    def best_response(losses: Any, p: Any, penalty: Any) -> Any: ...

    @staticmethod
    def mobility(q: Any, p: Any) -> Any: ...


#: Name to divergence.
DIVERGENCES: Registry[type[Divergence]] = Registry("divergence")


def register(name: str) -> Callable[[type[Divergence]], type[Divergence]]:
    """Register the class of a divergence; the property tests pick it up."""

    def add(divergence: type[Divergence]) -> type[Divergence]:
        divergence.name = name
        return DIVERGENCES.register(name)(divergence)

    return add


def _below_worst(losses: Any, inside: Any) -> Any:
    """Return losses relative to the worst inside the prior's support, where they are at most 0 and cannot overflow."""
    xp = array_namespace(losses)
    spread = losses + xp.zeros_like(xp.astype(inside, losses.dtype))
    top = xp.max(xp.where(inside, spread, xp.full_like(spread, -math.inf)), axis=-1, keepdims=True)
    return xp.where(inside, spread - top, xp.zeros_like(spread))


@register("l2")
class L2(Divergence):
    """Half the squared distance, as in the paper."""

    bounded = True

    @staticmethod
    def value(q: Any, p: Any) -> Any:
        r""":math:`\tfrac12 \|q - p\|_2^2`; the half makes the gradient :math:`q - p`, as in Eq. 7 of the paper."""
        xp = array_namespace(q, p)
        return 0.5 * xp.sum((q - p) ** 2, axis=-1)

    @staticmethod
    def gradient(q: Any, p: Any) -> Any:
        return q - p

    @staticmethod
    def best_response(losses: Any, p: Any, penalty: Any) -> Any:
        r""":math:`\mathrm{Proj}_\Delta(p + \ell / \lambda)`, by completing the square."""
        xp = array_namespace(losses, p)
        # Losses relative to the worst: a tiny lambda must not drown p in large numbers where losses are equal.
        return project_simplex(p + (losses - xp.max(losses, axis=-1, keepdims=True)) / penalty)

    @staticmethod
    def mobility(q: Any, p: Any) -> Any:
        """One inside the support: the derivative of a projection is the projection onto the support's tangent space."""
        xp = array_namespace(q, p)
        return xp.astype(q > 0, q.dtype)


@register("kl")
class KullbackLeibler(Divergence):
    """Kullback–Leibler divergence."""

    @staticmethod
    def value(q: Any, p: Any) -> Any:
        r""":math:`\sum_e q_e \log(q_e / p_e)`, with 0 log 0 = 0 and infinity where q puts weight outside p's support.

        Summed as :math:`\sum_e p_e ((1 + r_e) \log(1 + r_e) - r_e)` with :math:`r = q/p - 1`, which is the same for
        distributions: no term is negative, and near the prior none drowns in rounding.
        """
        xp = array_namespace(q, p)
        supported = p > 0
        ratio = xp.where(supported, (q - p) / xp.where(supported, p, xp.ones_like(p)), xp.zeros_like(q - p))
        inside = ratio > -1.0
        grown = xp.where(inside, (1.0 + ratio) * xp.log1p(xp.where(inside, ratio, xp.zeros_like(ratio))), 0.0 * ratio)
        terms = p * xp.clip(grown - ratio, min=0.0)
        infinite = xp.full_like(terms, math.inf)
        return xp.sum(xp.where((q > 0) & ~supported, infinite, terms), axis=-1)

    @staticmethod
    def gradient(q: Any, p: Any) -> Any:
        r""":math:`\log(q_e / p_e)`, kept finite at the edge of the simplex."""
        xp = array_namespace(q, p)
        tiny = xp.finfo(q.dtype).tiny
        return xp.log(xp.clip(q, min=tiny)) - xp.log(xp.clip(p, min=tiny))

    @staticmethod
    def best_response(losses: Any, p: Any, penalty: Any) -> Any:
        r""":math:`q_e \propto p_e \exp(\ell_e / \lambda)`; groups outside p's support stay outside."""
        xp = array_namespace(losses, p)
        inside = p > 0
        weights = p * xp.exp(xp.where(inside, _below_worst(losses, inside) / penalty, xp.zeros_like(losses + p)))
        return weights / xp.sum(weights, axis=-1, keepdims=True)

    @staticmethod
    def mobility(q: Any, p: Any) -> Any:
        """The weights themselves: the derivative of a softmax."""
        return q + 0.0 * p


@register("chi2")
class ChiSquare(Divergence):
    """Pearson's chi-square divergence."""

    @staticmethod
    def value(q: Any, p: Any) -> Any:
        r""":math:`\tfrac12 \sum_e (q_e - p_e)^2 / p_e`, infinite where q puts weight outside p's support."""
        xp = array_namespace(q, p)
        inside = p > 0
        safe = xp.where(inside, p, xp.ones_like(p))
        terms = xp.where(inside, 0.5 * (q - p) ** 2 / safe, xp.zeros_like(q - p))
        infinite = xp.full_like(terms, math.inf)
        return xp.sum(xp.where((q > 0) & ~inside, infinite, terms), axis=-1)

    @staticmethod
    def gradient(q: Any, p: Any) -> Any:
        xp = array_namespace(q, p)
        return (q - p) / xp.clip(p, min=xp.finfo(p.dtype).tiny)

    @staticmethod
    def best_response(losses: Any, p: Any, penalty: Any) -> Any:
        r""":math:`q_e = p_e \max(0, 1 + (\ell_e - \nu)/\lambda)` with the one :math:`\nu` that makes it sum to one.

        A simplex projection in the metric of p: sort by loss, take the threshold of the support that fits itself.
        """
        xp = array_namespace(losses, p)
        inside = p > 0
        scaled = _below_worst(losses, inside) / penalty
        # Groups without prior mass can never receive weight; rank them last so that they cannot open a support.
        lowest = xp.min(scaled, axis=-1, keepdims=True) - 1.0
        order = xp.argsort(xp.where(inside, scaled, lowest + xp.zeros_like(scaled)), axis=-1, descending=True)
        mass = xp.take_along_axis(p + xp.zeros_like(scaled), order, axis=-1)
        sorted_losses = xp.take_along_axis(scaled, order, axis=-1)
        total = xp.cumulative_sum(mass, axis=-1)
        weighted = xp.cumulative_sum(mass * sorted_losses, axis=-1)
        safe = xp.clip(total, min=xp.finfo(scaled.dtype).tiny)
        thresholds = (weighted + total - 1.0) / safe
        # sum_S p (1 + l - nu) = 1 for the k largest losses; the true support's nu is the largest, as on the simplex.
        highest = xp.max(xp.where(total > 0, thresholds, xp.full_like(thresholds, -math.inf)), axis=-1, keepdims=True)
        weights = xp.where(inside, p * xp.clip(1.0 + scaled - highest, min=0.0), xp.zeros_like(scaled))
        return weights / xp.sum(weights, axis=-1, keepdims=True)

    @staticmethod
    def mobility(q: Any, p: Any) -> Any:
        """The prior's weight inside the support."""
        xp = array_namespace(q, p)
        return xp.where(q > 0, p, xp.zeros_like(p))


def get_divergence(name: str | type[Divergence]) -> type[Divergence]:
    """Return a divergence by its name.

    Parameters
    ----------
    name : a key of :data:`DIVERGENCES`, or the divergence itself.

    >>> import numpy as np
    >>> float(get_divergence("l2").value(np.array([1.0, 0.0]), np.array([0.5, 0.5])))
    0.25
    """
    return name if isinstance(name, type) and issubclass(name, Divergence) else DIVERGENCES[name]


def best_response(losses: Any, p: Any, penalty: float, divergence: str | type[Divergence] = "l2") -> Any:
    r""":math:`\arg\max_{q \in \Delta} \langle q, \ell\rangle - \lambda D(q\|p)` for :math:`\lambda \in [0, \infty]`.

    At 0 the weight is shared equally by the groups with the largest loss (for KL and chi-square: among those in the
    prior's support, since D is infinite elsewhere).

    Parameters
    ----------
    losses : :math:`\ell`, by group along the last axis.
    p : the prior.
    penalty : :math:`\lambda`.
    divergence : D, or its name.

    >>> import numpy as np
    >>> best_response(np.array([1.0, 2.0]), np.array([0.5, 0.5]), penalty=2.0)
    array([0.25, 0.75])
    """
    chosen = get_divergence(divergence)
    if not penalty >= 0:
        raise SettingError(f"penalty is {penalty!r}: expected a number of at least 0, or infinity.")
    xp = array_namespace(losses, p)
    if math.isinf(penalty):
        return p + xp.zeros_like(losses)
    if penalty > 0:
        return chosen.best_response(losses, p, penalty)
    allowed = losses if chosen.bounded else xp.where(p > 0, losses, xp.full_like(losses, -math.inf))
    worst = xp.astype(allowed == xp.max(allowed, axis=-1, keepdims=True), losses.dtype)
    return worst / xp.sum(worst, axis=-1, keepdims=True)
