r"""Update rules for the group weights q while a model trains.

A rule is a pure function ``update(q, losses, prior) -> q`` of numpy or torch arrays whose last axis runs over groups; q
starts at the prior. No rule branches on a value, so on a GPU none of them waits for the device.

==============  ====================================================================================
``ascent``      :math:`q \leftarrow \mathrm{Proj}_\Delta(q + \eta(\ell - \lambda \nabla D(q\|p)))`, the paper's Eq. 7
``mirror``      :math:`q \propto q\,\exp(\eta(\ell - \lambda \nabla D(q\|p)))`, the same step in the entropy's geometry
``exact``       :math:`q = \arg\max_q \langle q, \ell\rangle - \lambda D(q\|p)`, in closed form
``constrained`` :math:`q = \arg\max_q \langle q, \ell\rangle` s.t. :math:`D(q\|p) \le \tau`, the paper's Eq. 5
==============  ====================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from array_api_compat import array_namespace

from toporo.checks import number, penalty_number, positive
from toporo.errors import warn
from toporo.robust.divergences import Divergence, best_response, get_divergence
from toporo.robust.simplex import project_simplex

#: An update rule: a pure function ``rule(q, losses, prior) -> q``.
WeightRule: TypeAlias = Callable[[Any, Any, Any], Any]


def ascent(step: float = 0.1, penalty: float = 1.0, divergence: str | type[Divergence] = "l2") -> WeightRule:
    r"""Projected gradient ascent on the penalised dual (Eq. 7 of the paper).

    At fixed losses this converges only if ``step * penalty`` times the curvature of D is below 2; above that q
    overshoots and cycles. The curvature is 1 for l2, as in the paper, and one over the smallest prior weight for KL and
    chi-square, for which ``mirror`` or ``exact`` are better rules.

    Parameters
    ----------
    step : :math:`\eta`.
    penalty : :math:`\lambda`; infinity pins q to the prior.
    divergence : D, or its name.

    >>> import numpy as np
    >>> rule, prior = ascent(step=0.1, penalty=0.0), np.array([0.5, 0.5])
    >>> rule(prior, np.array([1.0, 3.0]), prior).round(2)
    array([0.4, 0.6])
    """
    return _stepping(_ascend, step, penalty, divergence)


def _ascend(q: Any, losses: Any, prior: Any, *, step: float, penalty: float, divergence: type[Divergence]) -> Any:
    target = q + step * (losses - penalty * divergence.gradient(q, prior))
    if not divergence.bounded:  # D is infinite outside the prior's support: stay in it
        xp = array_namespace(target)
        target = xp.where(prior > 0, target, xp.full_like(target, -math.inf))
    return project_simplex(target)


def mirror(step: float = 0.1, penalty: float = 0.0, divergence: str | type[Divergence] = "kl") -> WeightRule:
    r"""Exponentiated-gradient ascent; with ``penalty=0`` it is the update of group DRO (Sagawa et al. 2020).

    With a penalty it converges only if ``step * penalty < 2``.

    Parameters
    ----------
    step : :math:`\eta`.
    penalty : :math:`\lambda`; infinity pins q to the prior.
    divergence : D, or its name.

    >>> import numpy as np
    >>> rule, prior = mirror(step=1.0), np.array([0.5, 0.5])
    >>> rule(prior, np.array([1.0, 3.0]), prior).round(3)
    array([0.119, 0.881])
    """
    return _stepping(_tilt, step, penalty, divergence)


def _tilt(q: Any, losses: Any, prior: Any, *, step: float, penalty: float, divergence: type[Divergence]) -> Any:
    xp = array_namespace(losses)
    tilted = step * (losses - penalty * divergence.gradient(q, prior) if penalty else losses)
    inside = q > 0  # a weight of zero stays zero, and must not set the scale for the others
    top = xp.max(xp.where(inside, tilted, xp.full_like(tilted, -math.inf)), axis=-1, keepdims=True)
    weights = q * xp.exp(xp.where(inside, tilted - top, xp.zeros_like(tilted)))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def _stepping(
    update: Callable[..., Any], step: float, penalty: float, divergence: str | type[Divergence]
) -> WeightRule:
    """Check the settings of a rule that moves q by steps, and bind them."""
    positive(step, "step")
    at_prior = exact(penalty, divergence)
    if math.isinf(penalty):
        return at_prior
    if step * penalty >= 2.0:
        warn(
            f"step * penalty = {step:g} * {penalty:g} = {step * penalty:g} ≥ 2: the weights q will not settle but "
            f"cycle around the prior. Use a step below {2.0 / penalty:g}, or update='exact', which needs no step."
        )
    return partial(update, step=step, penalty=penalty, divergence=get_divergence(divergence))


def exact(penalty: float = 1.0, divergence: str | type[Divergence] = "l2") -> WeightRule:
    r"""The best response to the losses at hand. For l2 it equals one ``ascent`` step of size ``1 / penalty``.

    Parameters
    ----------
    penalty : :math:`\lambda`, from 0 to infinity.
    divergence : D, or its name.

    >>> import numpy as np
    >>> prior = np.array([0.5, 0.5])
    >>> exact(penalty=2.0)(prior, np.array([1.0, 2.0]), prior)
    array([0.25, 0.75])
    """
    penalty_number(penalty)
    return partial(_respond, penalty=penalty, divergence=get_divergence(divergence))


def _respond(q: Any, losses: Any, prior: Any, *, penalty: float, divergence: type[Divergence]) -> Any:
    return best_response(losses, prior, penalty, divergence)


def constrained(radius: float, divergence: str | type[Divergence] = "l2") -> WeightRule:
    r"""The worst mixture within ``D(q‖p) <= radius`` (Eq. 5 of the paper).

    Parameters
    ----------
    radius : :math:`\tau`; 0 pins q to the prior.
    divergence : D, or its name.

    >>> import numpy as np
    >>> prior = np.array([0.5, 0.5])
    >>> constrained(radius=0.04)(prior, np.array([1.0, 2.0]), prior).round(3)  # 0.04 = (0.2² + 0.2²) / 2
    array([0.3, 0.7])
    """
    number(radius, "radius", "a number of at least 0 (0 keeps q at the prior)", least=0.0, infinite=True)
    if radius == 0:
        return exact(math.inf, divergence)
    return partial(_respond_within, radius=radius, divergence=get_divergence(divergence))


def _respond_within(q: Any, losses: Any, prior: Any, *, radius: float, divergence: type[Divergence]) -> Any:
    return constrained_response(losses, prior, radius, divergence)


#: The multiplier is searched for between 1e±16 times the losses' spread; so many halvings leave nothing of that range.
_DECADES, _HALVINGS = 16.0, 54


def constrained_response(losses: Any, prior: Any, radius: float, divergence: str | type[Divergence] = "l2") -> Any:
    r""":math:`\arg\max_{q \in \Delta} \langle q, \ell\rangle` subject to :math:`D(q\|p) \le \tau`.

    The optimum is the penalised best response at the multiplier :math:`\lambda` for which :math:`D = \tau`, or at
    :math:`\lambda \to 0` if even that stays inside. D falls as :math:`\lambda` grows, so the multiplier is found by
    bisection of its logarithm, in a fixed number of steps: no branch depends on a value, which keeps a GPU busy. The
    end that satisfies the constraint is returned.

    Parameters
    ----------
    losses : :math:`\ell`, by group along the last axis.
    prior : p.
    radius : :math:`\tau`, above 0.
    divergence : D, or its name.

    >>> import numpy as np
    >>> constrained_response(np.array([1.0, 2.0]), np.array([0.5, 0.5]), radius=0.04).round(3)
    array([0.3, 0.7])
    """
    divergence = get_divergence(divergence)
    xp = array_namespace(losses, prior)
    spread = xp.max(losses, axis=-1, keepdims=True) - xp.min(losses, axis=-1, keepdims=True)
    # With equal losses every q is optimal and the prior comes out.
    scale = xp.where(spread > 0, spread, xp.ones_like(spread))
    low, high = xp.zeros_like(spread) - _DECADES, xp.zeros_like(spread) + _DECADES
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        response = divergence.best_response(losses, prior, scale * 10.0**middle)
        inside = divergence.value(response, prior)[..., None] <= radius
        low, high = xp.where(inside, low, middle), xp.where(inside, middle, high)
    return divergence.best_response(losses, prior, scale * 10.0**high)


#: Name to rule.
RULES: dict[str, Callable[..., WeightRule]] = {
    "ascent": ascent,
    "exact": exact,
    "mirror": mirror,
    "constrained": constrained,
}
