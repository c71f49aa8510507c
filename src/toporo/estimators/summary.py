"""Training rows that are not at hand: known by their moments, or looked at in passes that somebody else makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from toporo.estimators.rows import Rows, Scaling
from toporo.groups import Groups
from toporo.robust.factors import GroupFactors
from toporo.robust.logistic import LogisticLosses
from toporo.robust.losses import SquaredLosses
from toporo.types import Array, Name


class Counted:
    """Rows by group, from their moments."""

    moments: GroupFactors

    @property
    def groups(self) -> Groups:
        """The groups, all of which occur."""
        return self.moments.groups

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self.moments.rows.sum())

    @property
    def sizes(self) -> dict[Name, int]:
        """Rows by group."""
        return {name: int(count) for name, count in zip(self.groups, self.moments.rows, strict=True)}

    @property
    def in_effect(self) -> dict[Name, float]:
        """Rows in effect by group: fewer where they do not count alike."""
        return self.groups.named(self.moments.mass**2 / self.moments.squares)


@dataclass(frozen=True, eq=False)
class Summary(Counted):
    """What a regression needs of rows: their moments by group, and the range of every column.

    Where an estimator has :class:`~toporo.estimators.rows.Rows`, it may have this.

    Attributes
    ----------
    moments : of [x, y], in the units of the data.
    low, high : the least and the largest value of every column of [x, y].
    outputs : how many of these columns, the last, are targets.
    inputs, targets : how columns are scaled.
    """

    moments: GroupFactors
    low: Array
    high: Array
    outputs: int
    inputs: Scaling
    targets: Scaling

    #: The target is a number.
    classes = None

    @classmethod
    def of(
        cls, moments: GroupFactors, low: Array, high: Array, *, outputs: int = 1, standardize: bool, center: bool
    ) -> Summary:
        """Measure the columns."""
        d = len(low) - outputs
        inputs, targets = Scaling.none(d), Scaling.none(outputs)
        if standardize:
            mean, variance = moments.mean, moments.variance
            middle = mean if center else np.zeros(len(low))
            spread = np.sqrt(variance if center else variance + mean**2)
            inputs = Scaling.known(middle[:d], spread[:d], low[:d], high[:d], what="X")
            targets = Scaling.known(middle[d:], spread[d:], low[d:], high[d:], what="y")
        return cls(moments, low, high, outputs, inputs, targets)

    @property
    def width(self) -> int:
        """How many inputs there are."""
        return len(self.low) - self.outputs

    def squared_losses(self, units: Array, *, intercept: bool) -> SquaredLosses:
        """Losses by group of scaled inputs, and of targets in these units.

        Parameters
        ----------
        units : of the targets.
        intercept : whether models have one.
        """
        # Inputs are left where they are: the losses subtract their mean, or nothing.
        center = np.append(np.zeros(self.width), self.targets.center)
        scaled = self.moments.scaled(center, np.append(self.inputs.scale, units))
        return SquaredLosses.from_factors(scaled, intercept=intercept)

    def scaled(self) -> GroupFactors:
        """Factors of scaled columns."""
        return self.moments.scaled(
            np.append(self.inputs.center, self.targets.center), np.append(self.inputs.scale, self.targets.scale)
        )

    def losses_of(self, coef: Array, intercept: Array) -> dict[Name, float]:
        """By group: mean squared error over rows and outputs of a linear model in the units of the data."""
        left = self.moments.targets - self.moments.roots @ np.vstack([intercept, coef])
        squares = np.einsum("grk,grk->g", left, left) + self.moments.residual.sum(axis=1)
        return self.groups.named(squares / self.moments.mass / self.outputs)

    def warn_of_one_class(self, penalty: float | None) -> None:
        """Numbers have none."""


@dataclass(frozen=True, eq=False)
class PassedRows(Counted):
    """Rows of classes that are looked at in passes; see :class:`~toporo.robust.LogisticLosses`.

    Attributes
    ----------
    moments : of the inputs, in the units of the data; they say how columns are scaled.
    some : rows at hand, drawn from all of them, to choose a penalty and a start by; of every group and class some.
    inputs : how columns are scaled.
    labels : the classes, in order.
    passes : makes losses whose passes scale inputs so, with an intercept or without.
    """

    moments: GroupFactors
    some: Rows
    inputs: Scaling
    labels: tuple[Any, ...]
    passes: Callable[[Scaling, bool], LogisticLosses]

    #: Classes are not scaled.
    targets = None

    @property
    def classes(self) -> int:
        """How many there are."""
        return len(self.labels)

    @property
    def width(self) -> int:
        """How many inputs there are."""
        return self.moments.width

    def warn_of_one_class(self, penalty: float | None) -> None:
        """As far as the rows at hand tell."""
        self.some.warn_of_one_class(penalty)
