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
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg.lapack import dposv

from toporo.groups import GroupIds, Groups
from toporo.robust.factors import GroupFactors
from toporo.types import Array, Name


@dataclass(frozen=True, eq=False)
class Point:
    """Group losses and their gradients at a model.

    Attributes
    ----------
    theta : the model, D × k.
    losses : of each group, (m,).
    jacobian : gradient of each group's loss, m × Dk.
    """

    theta: Array
    losses: Array
    jacobian: Array


@dataclass(frozen=True, eq=False)
class GroupLosses(ABC):
    """Convex losses of a linear model by group; a base class.

    Attributes
    ----------
    groups : in the order of the losses.
    input_shift, target_shift : subtracted from inputs and targets, so that few digits are lost. A model is one of
        shifted data; :meth:`coefficients` gives that of the data as they came.
    intercept : whether the last row of a model is an intercept.
    """

    groups: Groups
    input_shift: Array
    target_shift: Array | float
    intercept: bool

    #: Whether :meth:`suboptimality` costs no more than a step.
    cheap: ClassVar[bool] = False

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a model, D and k."""

    @abstractmethod
    def at(self, theta: Array) -> Point:
        """Evaluate a model."""

    @abstractmethod
    def hessian(self, theta: Array, q: Array) -> Array:
        """Return the Hessian of the q-weighted loss at a model, Dk × Dk."""

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
    groups, input_shift, target_shift, intercept : as for :class:`~toporo.robust.losses.GroupLosses`.
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
        gram, cross = (design.transpose(0, 2, 1) @ part for part in (design, targets))
        square = np.einsum("grk,grk->g", targets, targets) + factors.residual.sum(axis=1) / factors.mass
        return cls(factors.groups, input_shift, target_shift, intercept, gram, cross, square)

    def select(self, names: Iterable[Name]) -> Self:
        """Return the losses of some of the groups; shifts stay, so a model is worth the same here and there."""
        groups = Groups(names)
        codes = self.groups.encode(groups)
        arrays = {name: getattr(self, name)[codes] for name in ("gram", "cross", "square")}
        return replace(self, groups=groups, **arrays)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a model, D and k."""
        return self.cross.shape[1], self.cross.shape[2]

    def at(self, theta: Array) -> Point:
        """Evaluate a model."""
        size, outputs = self.shape
        products = (self.gram.reshape(-1, size) @ theta).reshape(-1, size, outputs)  # A_e theta
        inner = np.einsum("edk,dk->e", products - 2.0 * self.cross, theta)
        jacobian = (2.0 * (products - self.cross)).reshape(len(self.groups), -1)
        return Point(theta, np.maximum(self.square + inner, 0.0), jacobian)

    def hessian(self, theta: Array, q: Array) -> Array:
        """Return the Hessian of the q-weighted loss: the same block for every output."""
        return np.asarray(np.kron(2.0 * self._weighted_gram(q), np.eye(theta.shape[1])))

    def _weighted_gram(self, q: Array) -> Array:
        size, _ = self.shape
        return np.asarray((q @ self.gram.reshape(len(q), -1)).reshape(size, size))

    def suboptimality(self, point: Point, q: Array, ridge: Array) -> float:
        r"""Exactly :math:`\frac12 \langle g, H^{-1} g\rangle`: the loss is quadratic, with gradient g and Hessian H."""
        gradient = (q @ point.jacobian).reshape(self.shape) + ridge * point.theta
        hessian = 2.0 * self._weighted_gram(q) + np.diag(ridge[:, 0])
        _, solved, failed = dposv(hessian, gradient)
        if not failed:
            return 0.5 * float(np.sum(gradient * solved))
        # Weights on groups that leave a direction free; the gradient has no part in it.
        units = np.sqrt(np.maximum(hessian.diagonal(), np.finfo(float).tiny))
        values, vectors = np.linalg.eigh(hessian / np.outer(units, units))
        seen = values > len(values) * np.finfo(float).eps * values[-1]
        return 0.5 * float(np.sum((vectors.T @ (gradient / units[:, None]))[seen] ** 2 / values[seen, None]))
