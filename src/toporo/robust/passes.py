r"""Logistic losses of rows that are not at hand: every look at them is a pass, which others make.

A pass at a model gives every group's loss, gradient and curvature by the intercept; another one the Hessian for given
weights. :func:`portion_sums` and :func:`portion_hessian` are what a pass adds up, portion by portion.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.groups import Groups
from toporo.robust.group_losses import Curve, Place
from toporo.robust.logistic import INTERCEPT_SLACK, TriedCurve, chances_of, excess_over, residuals_of, row_losses
from toporo.types import Array

#: Losses (m), gradients (m × D × k) and curvatures by the intercept (m × k × k).
Sums = tuple[Array, Array, Array]


@dataclass(frozen=True, eq=False)
class PassedLosses:
    """Negative log-likelihood by group of a logistic (two classes) or softmax (more) model, in passes over the rows.

    Attributes
    ----------
    groups, counts : and the weight of the rows of each.
    classes : what they are called.
    width : inputs and, if there is one, the intercept.
    look : makes a pass at a model (D × k).
    bend : makes a pass for the Hessian (Dk × Dk) at a model, for weights of the groups.
    input_shift : what was subtracted from the inputs.
    intercept : whether the last row of a model is an intercept.
    """

    groups: Groups
    counts: Array
    classes: tuple[Any, ...]
    width: int
    look: Callable[[Array], Sums]
    bend: Callable[[Array, Array], Array]
    input_shift: Array
    intercept: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a model."""
        return self.width, 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def quick(self) -> bool:
        """It takes several passes over the rows."""
        return False

    def at(self, theta: Array) -> PassedPlace:
        """Evaluate a model, once somebody asks for what that gives."""
        return PassedPlace(self, theta)

    def excess(self, place: Place, q: Array, pull: Array) -> float:
        """By Fenchel's inequality, as for :class:`~toporo.robust.logistic.LogisticLosses`."""
        best = self._best_intercept(place, q) if self.intercept else place
        return math.inf if best is None else excess_over(place, best, q, pull)

    def _best_intercept(self, place: Place, q: Array) -> Place | None:
        """Newton's method on the intercept alone, a pass a step, until its gradient is rounding."""
        here = place if isinstance(place, PassedPlace) else self.at(place.theta)
        for _ in range(30):
            gradient = q @ here.sums[1][:, -1]
            if np.abs(gradient).max() <= INTERCEPT_SLACK:
                return here
            curvature = np.tensordot(q, here.sums[2], axes=1)
            step = -np.linalg.pinv(curvature, rcond=1e-12, hermitian=True) @ gradient
            theta = here.theta.copy()
            theta[-1] += step
            there = self.at(theta)
            if q @ there.losses > float(q @ here.losses) * (1.0 + 1e-14):
                return here if np.abs(gradient).max() <= 1e3 * INTERCEPT_SLACK else None
            here = there
        return None

    def coefficients(self, theta: Array) -> tuple[Array, Array]:
        """Coefficients (features × outputs) and intercepts for the data as they came."""
        if not self.intercept:
            return theta.copy(), np.zeros(theta.shape[1])
        return theta[:-1].copy(), theta[-1] - self.input_shift @ theta[:-1]

    def model(self, coef: Array, intercept: Array) -> Array:
        """The inverse of :meth:`coefficients`."""
        return np.vstack([coef, intercept + self.input_shift @ coef]) if self.intercept else coef


@dataclass(frozen=True, eq=False)
class PassedPlace:
    """A model; see :class:`~toporo.robust.group_losses.Place`."""

    problem: PassedLosses
    theta: Array

    @cached_property
    def sums(self) -> Sums:
        """What a pass gives."""
        return self.problem.look(self.theta)

    @property
    def losses(self) -> Array:
        """Every group's loss; that of a model that says nothing is known beforehand."""
        if not self.theta.any():
            return np.full(len(self.problem.groups), math.log(len(self.problem.classes)))
        return self.sums[0]

    @property
    def jacobian(self) -> Array:
        """The gradient of every group's loss, m × Dk."""
        return self.sums[1].reshape(len(self.problem.groups), -1)

    def hessian(self, q: Array) -> Array:
        """Of the q-weighted loss."""
        return self.problem.bend(self.theta, q)

    def along(self, direction: Array) -> Curve:
        """The line in a direction."""
        return TriedCurve(lambda t: self.problem.at(self.theta + t * direction))


# ---------------------------------------------------------------- a portion


def portion_sums(
    inputs: Array, targets: npt.NDArray[np.integer], codes: npt.NDArray[np.integer], share: Array, m: int, theta: Array
) -> Sums:
    """What a portion of rows adds to a pass.

    Parameters
    ----------
    inputs : shifted and scaled, a one at the end for the intercept, n × D.
    targets, codes : the number of every row's class, and of its group.
    share : every row's weight within its group.
    m : how many groups there are.
    theta : the model, D × k.
    """
    scores = inputs @ theta
    chances, rows = chances_of(scores), row_losses(scores, targets)
    outputs = scores.shape[1]
    off = residuals_of(chances, targets, share)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(codes[order]) > 0])
    at = codes[order][starts]
    losses, slopes, bends = np.zeros(m), np.zeros((m, inputs.shape[1], outputs)), np.zeros((m, outputs, outputs))
    losses[at] = np.add.reduceat((rows * share)[order], starts)
    sorted_inputs, sorted_off = inputs[order], off[order]
    for a in range(outputs):
        slopes[at, :, a] = np.add.reduceat(sorted_inputs * sorted_off[:, a, None], starts, axis=0)
        for b in range(a + 1):
            curved = share * chances[:, a] * (float(a == b) - chances[:, b])
            bends[at, a, b] = bends[at, b, a] = np.add.reduceat(curved[order], starts)
    return losses, slopes, bends


def portion_hessian(inputs: Array, weights: Array, theta: Array) -> Array:
    """What a portion of rows adds to the Hessian, D × k × D × k.

    Parameters
    ----------
    inputs, theta : as in :func:`portion_sums`.
    weights : of the rows: the group's times the share within it.
    """
    chances = chances_of(inputs @ theta)
    size, outputs = theta.shape
    total = np.zeros((size, outputs, size, outputs))
    for a in range(outputs):
        for b in range(a + 1):
            curvature = weights * chances[:, a] * (float(a == b) - chances[:, b])
            total[:, a, :, b] = inputs.T @ (inputs * curvature[:, None])
            total[:, b, :, a] = total[:, a, :, b]
    return total
