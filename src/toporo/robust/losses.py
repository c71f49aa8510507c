r"""Convex losses of a linear model by group, with the derivatives that the exact solver needs.

A model is a matrix :math:`\theta` of D rows and k columns: D is the number of features, plus one row (the last) for the
intercept; k is the number of outputs. Two losses:

- :class:`SquaredLosses`: :math:`\ell_e(\theta) = \frac{1}{n_e}\sum_{i \in e} \|y_i - \theta^\top x_i\|^2`, summed over
  outputs. The Gram matrix of each group decides them: an evaluation costs :math:`m D^2`, however many rows there are.
- :class:`~toporo.robust.logistic.LogisticLosses`:
  :math:`\ell_e(\theta) = \frac{1}{n_e}\sum_{i \in e} -\log \Pr(y_i \mid \theta^\top x_i)`, for two classes (k = 1) or
  more (k classes, softmax), from passes over the rows.

Rows may carry weights; :math:`n_e` is then their sum in a group. The same bytes come out on any number of threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.linalg.lapack import dposv

from toporo.errors import DataError
from toporo.groups import GroupIds, Groups
from toporo.robust.factors import GroupFactors
from toporo.types import Array, Name


class SearchLine(NamedTuple):
    """Points on a straight line.

    Attributes
    ----------
    losses : maps distances to the losses of the groups, (distances, m).
    point : maps a distance to the point there.
    """

    losses: Callable[[Array], Array]
    point: Callable[[float], Point]


class Point(ABC):
    """A model at which losses are evaluated, keeping what the derivatives can reuse; a base class.

    Attributes
    ----------
    theta : the model, D × k.
    """

    theta: Array

    @property
    @abstractmethod
    def losses(self) -> Array:
        """Loss of each group, (m,)."""

    @property
    @abstractmethod
    def jacobian(self) -> Array:
        """Gradient of each group's loss, m × Dk."""

    @abstractmethod
    def hessian(self, q: Array) -> Array:
        """Return the Hessian of the q-weighted loss: D × D if it is the same block for every output, else Dk × Dk."""

    @abstractmethod
    def along(self, direction: Array) -> SearchLine:
        """Return the line in a direction."""


@dataclass(frozen=True, eq=False)
class GroupLosses(ABC):
    """Convex losses of a linear model by group; a base class.

    Attributes
    ----------
    groups, counts : the groups, and the total weight of the rows of each.
    input_shift, target_shift : subtracted from inputs and targets, so that few digits are lost. A model is one of
        shifted data; :meth:`coefficients` gives that of the data as they came.
    intercept : whether the last row of a model is an intercept.
    """

    groups: Groups
    counts: Array
    input_shift: Array
    target_shift: Array | float
    intercept: bool

    #: Whether a step costs much more than losses along its line, and no less than :meth:`suboptimality`.
    cheap: ClassVar[bool] = False

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a model, D and k."""

    @abstractmethod
    def at(self, theta: Array) -> Point:
        """Evaluate a model."""

    @abstractmethod
    def suboptimality(self, point: Point, q: Array, ridge: Array) -> float:
        r"""Bound how far the loss at a point is above the least of any model, under weights q and the ridge.

        The loss is :math:`L(\theta) = \sum_e q_e \ell_e(\theta) + \frac12\langle\theta, r \odot \theta\rangle` with
        r = ``ridge`` (D × k).
        """

    def coefficients(self, theta: Array) -> tuple[Array, Array]:
        """Return coefficients (features × outputs) and intercepts for the data as they came."""
        if not self.intercept:
            return theta.copy(), np.zeros(theta.shape[1])
        return theta[:-1].copy(), theta[-1] + self.target_shift - self.input_shift @ theta[:-1]

    def model(self, coef: Array, intercept: Array) -> Array:
        """Invert :meth:`coefficients`."""
        if not self.intercept:
            return coef
        return np.vstack([coef, intercept - self.target_shift + self.input_shift @ coef])


# ---------------------------------------------------------------- squared error


@dataclass(frozen=True, eq=False)
class SquaredLosses(GroupLosses):
    r"""Squared error by group: :math:`\langle\theta, A_e\theta\rangle - 2\langle B_e, \theta\rangle + c_e`.

    Attributes
    ----------
    groups, counts, input_shift, target_shift, intercept : as for :class:`~toporo.robust.losses.GroupLosses`.
    gram, cross, square : :math:`A_e` (m × D × D), :math:`B_e` (m × D × k) and :math:`c_e` (m), all means over rows.
    """

    gram: Array
    cross: Array
    square: Array

    cheap = True

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any, groups: Iterable[Name] | GroupIds, *, intercept: bool = True, sample_weight: Any = None
    ) -> SquaredLosses:
        """Read the rows once and keep the Gram matrix of each group.

        Parameters
        ----------
        x, y, groups : one row per sample; y may have several columns.
        intercept : whether models have one.
        sample_weight : one weight per row, within its group.
        """
        return cls.from_factors(GroupFactors.from_rows(x, y, groups, sample_weight), intercept=intercept)

    @classmethod
    def from_factors(cls, factors: GroupFactors, *, intercept: bool) -> SquaredLosses:
        """Compute Gram matrices from the factors of each group.

        Parameters
        ----------
        factors : of the rows.
        intercept : whether models have one.
        """
        shift = factors.mean if intercept else np.zeros(factors.width + factors.outputs)
        input_shift, target_shift = np.split(shift, [factors.width])
        # A square root of the Gram matrix of each group, by its number of rows.
        first, scale = factors.roots[:, :, :1], 1.0 / np.sqrt(factors.mass)[:, None, None]
        design = scale * (factors.roots[:, :, 1:] - first * input_shift)
        targets = scale * (factors.targets - first * target_shift)
        if intercept:
            design = np.concatenate([design, scale * first], axis=2)
        with np.errstate(over="ignore", invalid="ignore"):
            gram, cross = (design.transpose(0, 2, 1) @ part for part in (design, targets))
            square = np.einsum("grk,grk->g", targets, targets) + factors.residual.sum(axis=1) / factors.mass
        if not (np.isfinite(gram).all() and np.isfinite(cross).all() and np.isfinite(square).all()):
            raise DataError("x or y holds numbers too large to be squared: scale the columns first.")
        return cls(factors.groups, factors.mass, input_shift, target_shift, intercept, gram, cross, square)

    def select(self, names: Iterable[Name]) -> Self:
        """Return the losses of some of the groups; shifts stay, so a model is worth the same here and there."""
        groups = Groups(names)
        codes = self.groups.encode(groups)
        arrays = (self.gram[codes], self.cross[codes], self.square[codes])
        return type(self)(groups, self.counts[codes], self.input_shift, self.target_shift, self.intercept, *arrays)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a model, D and k."""
        return self.cross.shape[1], self.cross.shape[2]

    def at(self, theta: Array) -> Point:
        """Evaluate a model."""
        return _SquaredPoint(self, theta, self._products(theta))

    def _products(self, theta: Array) -> Array:
        r""":math:`A_e \theta` for every group."""
        size, outputs = self.shape
        return (self.gram.reshape(-1, size) @ theta).reshape(-1, size, outputs)

    def suboptimality(self, point: Point, q: Array, ridge: Array) -> float:
        r"""Exactly :math:`\frac12 \langle g, H^{-1} g\rangle`: the loss is quadratic, with gradient g and Hessian H."""
        gradient = (q @ point.jacobian).reshape(self.shape) + ridge * point.theta
        hessian = point.hessian(q) + np.diag(ridge[:, 0])
        _, solved, failed = dposv(hessian, gradient)
        if not failed:
            return 0.5 * float(np.sum(gradient * solved))
        # Weights on groups that leave a direction free; the gradient has no part in it.
        units = np.sqrt(np.maximum(hessian.diagonal(), np.finfo(float).tiny))
        values, vectors = np.linalg.eigh(hessian / np.outer(units, units))
        seen = values > len(values) * np.finfo(float).eps * values[-1]
        return 0.5 * float(np.sum((vectors.T @ (gradient / units[:, None]))[seen] ** 2 / values[seen, None]))


@dataclass(frozen=True, eq=False)
class _SquaredPoint(Point):
    problem: SquaredLosses
    theta: Array
    products: Array
    _hessians: dict[bytes, Array] = field(default_factory=dict)

    @cached_property
    def losses(self) -> Array:
        inner: Array = np.einsum("edk,dk->e", self.products - 2.0 * self.problem.cross, self.theta)
        return np.maximum(self.problem.square + inner, 0.0)

    @cached_property
    def jacobian(self) -> Array:
        flat: Array = (2.0 * (self.products - self.problem.cross)).reshape(len(self.losses), -1)
        return flat

    def hessian(self, q: Array) -> Array:
        key = q.tobytes()  # asked for once to step and once to certify
        if key not in self._hessians:
            size, _ = self.problem.shape
            self._hessians[key] = ((2.0 * q) @ self.problem.gram.reshape(len(q), -1)).reshape(size, size)
        return self._hessians[key]

    def along(self, direction: Array) -> SearchLine:
        """Losses along a line are parabolas, whose coefficients take one pass over the Gram matrices."""
        problem, products = self.problem, self.problem._products(direction)
        slope = self.jacobian @ direction.reshape(-1)
        bend = np.einsum("edk,dk->e", products, direction)

        def losses(ts: Array) -> Array:
            return np.asarray(np.maximum(self.losses + ts[:, None] * slope + (ts**2)[:, None] * bend, 0.0))

        def point(t: float) -> Point:
            return _SquaredPoint(problem, self.theta + t * direction, self.products + t * products)

        return SearchLine(losses, point)
