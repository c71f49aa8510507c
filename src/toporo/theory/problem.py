r"""The convex–concave problem that Theorem 1 is about: a linear model on a ball against the worst mixture of groups.

.. math:: \min_{\|\theta\|_2 \le R}\ \max_{q \in \Delta}\ R(\theta, q) = \sum_e q_e \ell_e(\theta) - \lambda D(q\|p),
          \qquad D(q\|p) = \tfrac12 \|q - p\|_2^2 .
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toporo.data.grouped import GroupedData
from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.groups import Groups
from toporo.topology.prior import Prior
from toporo.types import Array


class Loss(NamedTuple):
    r"""A convex loss of a prediction z and a target y, its derivatives in z, and its suprema over :math:`|z| \le r`."""

    name: str
    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    curvature: Callable[[Array, Array], Array]
    largest: Callable[[Array, Array], Array]
    steepest: Callable[[Array, Array], Array]


def _sigmoid(z: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z)))


#: Name to loss: half the squared error, and the logistic loss of targets -1 and 1.
LOSSES: dict[str, Loss] = {
    "squared": Loss(
        "squared",
        value=lambda z, y: 0.5 * (z - y) ** 2,
        slope=lambda z, y: z - y,
        curvature=lambda z, y: np.ones_like(z - y),
        largest=lambda r, y: 0.5 * (r + np.abs(y)) ** 2,
        steepest=lambda r, y: r + np.abs(y),
    ),
    "logistic": Loss(
        "logistic",
        value=lambda z, y: np.logaddexp(0.0, -y * z),
        slope=lambda z, y: -y * _sigmoid(-y * z),
        curvature=lambda z, y: _sigmoid(z) * _sigmoid(-z),
        largest=lambda r, y: np.logaddexp(0.0, r),
        steepest=lambda r, y: _sigmoid(r),
    ),
}


@dataclass(frozen=True, eq=False)
class SaddleProblem:
    """The convex–concave problem at the head of this module; build it with :meth:`from_data`.

    Attributes
    ----------
    x, y : inputs, with a column of ones if there is an intercept, and targets (-1 and 1 for the logistic loss), the
        rows of a group together.
    counts : rows by group.
    groups : the groups, in the order of the rows, of ``counts`` and of ``prior``.
    loss : a key of :data:`LOSSES`.
    radius, penalty, prior : R, λ and p.

    θ is a vector, q has one weight a group; a leading axis of both runs over a batch of points.
    """

    x: Array
    y: Array
    counts: npt.NDArray[np.int64]
    groups: Groups
    loss: str
    radius: float
    penalty: float
    prior: Array

    @classmethod
    def from_data(
        cls,
        data: GroupedData,
        *,
        loss: str,
        radius: float,
        penalty: float = 0.0,
        prior: Prior | Mapping[Any, float] | None = None,
        intercept: bool = True,
    ) -> SaddleProblem:
        """From grouped data; the prior is uniform unless given, the logistic loss takes any two targets."""
        if loss not in LOSSES:
            raise UnknownNameError("loss", loss, LOSSES)
        if not 0 < radius < math.inf:
            raise SettingError(f"radius is {radius!r}: expected a positive number, the largest norm of θ.")
        if not 0 <= penalty < math.inf:
            raise SettingError(f"penalty is {penalty!r}: expected a finite number of at least 0.")
        if prior is None:
            prior = Prior.uniform(data.groups)
        elif not isinstance(prior, Prior):
            prior = Prior(prior)
        order = np.argsort(data.codes, kind="stable")
        return cls(
            x=design(data.x, intercept)[order],
            y=(signs_of(data.y) if loss == "logistic" else targets(data.y))[order],
            counts=np.bincount(data.codes, minlength=len(data.groups)),
            groups=data.groups,
            loss=loss,
            radius=float(radius),
            penalty=float(penalty),
            prior=data.groups.align(prior.weights, what="the prior"),
        )

    @cached_property
    def row_shares(self) -> Array:
        """1 / n_e of every row's group."""
        return np.repeat(1.0 / self.counts, self.counts)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of every group."""
        return np.concatenate([[0], np.cumsum(self.counts)[:-1]])

    def losses(self, theta: Array) -> Array:
        """The groups' losses at θ: (…, d) to (…, m)."""
        rows = LOSSES[self.loss].value(theta @ self.x.T, self.y) * self.row_shares
        return np.asarray(np.add.reduceat(rows, self.starts, axis=-1))

    def value(self, theta: Array, q: Array) -> Array:
        """R(θ, q)."""
        return np.asarray((q * self.losses(theta)).sum(axis=-1) - self.penalty * self.divergence(q))

    def divergence(self, q: Array) -> Array:
        """D(q‖p)."""
        return np.asarray(0.5 * ((q - self.prior) ** 2).sum(axis=-1))

    def gradient(self, theta: Array, q: Array) -> Array:
        """The gradient of R in θ."""
        slopes = LOSSES[self.loss].slope(theta @ self.x.T, self.y)
        return np.asarray((slopes * self.row_weights(q)) @ self.x)

    def hessian(self, theta: Array, q: Array) -> Array:
        """The second derivative of R in θ."""
        bends = LOSSES[self.loss].curvature(theta @ self.x.T, self.y) * self.row_weights(q)
        return np.asarray(np.swapaxes(bends[..., None] * self.x, -1, -2) @ self.x)

    def row_weights(self, q: Array) -> Array:
        """q_e / n_e of every row's group."""
        return np.asarray(np.repeat(q, self.counts, axis=-1) * self.row_shares)


def design(x: Any, intercept: bool) -> Array:
    """Inputs as a matrix of floats, one row a sample, with a column of ones at the end for an intercept."""
    inputs = np.asarray(x, dtype=np.float64)
    if inputs.ndim != 2:
        raise DataError(f"x has shape {inputs.shape}: linear models take one row of numbers a sample.")
    return np.column_stack([inputs, np.ones(len(inputs))]) if intercept else inputs


def targets(y: Any) -> Array:
    """One number a sample."""
    values = np.asarray(y, dtype=np.float64)
    if values.ndim != 1:
        raise DataError(f"y has shape {values.shape}: expected one target a sample.")
    return values


def signs_of(y: Any) -> Array:
    """Two classes as -1 and 1, in the order of their labels."""
    values = targets(y)
    found = np.unique(values)
    if len(found) != 2:
        raise DataError(f"y holds {len(found)} different value(s): the logistic loss is for two classes.")
    return np.asarray(np.where(values == found[1], 1.0, -1.0))


def project_ball(theta: Array, radius: float) -> Array:
    """The nearest point of the ball, along the last axis."""
    norm = np.sqrt((theta**2).sum(axis=-1, keepdims=True))
    return np.asarray(theta * (radius / np.maximum(norm, radius)))
