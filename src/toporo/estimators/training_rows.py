"""Rows to train on, in memory or elsewhere: their groups, their scales and the losses of linear models."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from toporo.choice.penalty import Losses
from toporo.errors import SettingError, listed, warn
from toporo.estimators.models import LinearModel
from toporo.estimators.rows import Rows, Scaling, draw, sizes_of
from toporo.groups import Groups
from toporo.robust.factors import GroupFactors
from toporo.robust.linear import RobustFit
from toporo.robust.logistic import LogisticLosses, row_losses
from toporo.robust.losses import SquaredLosses
from toporo.types import Array, Name

#: Rows at most, about, on which the penalty of a logistic model is chosen.
MOST_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows to train on, wherever they are.

    Attributes
    ----------
    groups : all of which occur.
    sizes, in_effect : rows by group, and rows in effect: fewer where they do not count alike.
    inputs, targets : scaling of the columns; classes are not scaled.
    labels : the classes, in order; None for numbers.
    rows : in memory: all rows, or a sample of rows that are passed over; None where there are only sums.
    sums : moments by group of inputs and targets; None where they come from the rows, or for classes.
    passes : makes logistic losses of rows that are not in memory from the scaling of their inputs.
    """

    groups: Groups
    sizes: dict[Name, int]
    in_effect: dict[Name, float]
    inputs: Scaling
    targets: Scaling | None
    labels: tuple[Any, ...] | None = None
    rows: Rows | None = None
    sums: GroupFactors | None = None
    passes: Callable[[Scaling], LogisticLosses] | None = None

    @classmethod
    def of(cls, rows: Rows, labels: tuple[Any, ...] | None = None) -> Self:
        """Measure rows in memory; those of classes have the codes of their labels as targets."""
        inputs = Scaling.of(rows.x, rows.weights, what="X")
        targets = None if labels is not None else Scaling.of(rows.y, rows.weights, what="y")
        return cls(rows.ids.groups, sizes_of(rows.ids), rows.in_effect, inputs, targets, labels, rows)

    @classmethod
    def of_moments(cls, moments: GroupFactors, low: Array, high: Array) -> Self:
        """Measure rows that are known by sums.

        Parameters
        ----------
        moments : of inputs and targets by group.
        low, high : the least and the largest value of each column, inputs first.
        """
        d, mean, deviation = moments.width, moments.mean, np.sqrt(moments.variance)
        inputs, targets = (
            Scaling.known(mean[part], deviation[part], low[part], high[part], what=what)
            for part, what in ((slice(d), "X"), (slice(d, None), "y"))
        )
        sizes = {name: int(count) for name, count in zip(moments.groups, moments.rows, strict=True)}
        in_effect = moments.groups.named(moments.mass**2 / moments.squares)
        return cls(moments.groups, sizes, in_effect, inputs, targets, sums=moments)

    @classmethod
    def of_passes(
        cls, summed: Self, sample: Rows, labels: tuple[Any, ...], passes: Callable[[Scaling], LogisticLosses]
    ) -> Self:
        """Return rows of classes that are passed over; ``summed`` are the sums of their inputs."""
        return replace(summed, targets=None, labels=labels, rows=sample, sums=None, passes=passes)

    @property
    def width(self) -> int:
        """Number of inputs."""
        return len(self.inputs.scale)

    @property
    def outputs(self) -> int:
        """Number of targets, or of classes."""
        return len(self.labels) if self.targets is None else len(self.targets.scale)  # type: ignore[arg-type]

    @property
    def in_memory(self) -> Rows:
        """Rows at hand; an error where there are only sums."""
        if self.rows is None or self.passes is not None:
            raise SettingError("a network is trained on rows, not on their sums: use fit, or model='linear'.")
        return self.rows

    @cached_property
    def moments(self) -> GroupFactors:
        """Sums by group of inputs and numbers."""
        rows = self.in_memory if self.sums is None else None
        return self.sums if rows is None else GroupFactors.from_rows(rows.x, rows.y, rows.ids, rows.weights)  # type: ignore[return-value]

    # ------------------------------------------------------------ losses of linear models, in scaled columns

    def losses(self) -> Losses:
        """Prepare the losses by group of models of scaled columns."""
        if self.passes is not None:
            return self.passes(self.inputs)
        if self.labels is not None:
            return self._logistic(self.in_memory)
        center = np.append(np.zeros(self.width), self.targets.center)  # type: ignore[union-attr]
        scaled = self.moments.scaled(center, np.append(self.inputs.scale, self._target_units))
        return SquaredLosses.from_factors(scaled, intercept=True)

    def sample_losses(self) -> LogisticLosses | None:
        """Prepare the losses of the rows in memory; None unless these are a sample of rows that are passed over."""
        return None if self.passes is None or self.rows is None else self._logistic(self.rows)

    def losses_to_choose_by(self, losses: Losses, seed: int) -> Losses:
        """Return what a penalty is chosen by: of a logistic model, the losses of a sample of many rows."""
        if self.labels is None or self.rows is None:
            return losses
        rows = self.rows
        if len(rows.y) > MOST_ROWS:
            some = rows.take(draw(rows.ids, max(MOST_ROWS // len(self.groups), 1), seed))
            rows = some if len(np.unique(some.y)) == self.outputs else rows
        return self._logistic(rows)

    def _logistic(self, rows: Rows) -> LogisticLosses:
        x = rows.x / self.inputs.scale
        losses = LogisticLosses.from_arrays(x, rows.y, rows.ids, sample_weight=rows.weights)
        return replace(losses, classes=self.labels or losses.classes)

    @property
    def _target_units(self) -> Array:
        """Units of the targets in which a model that knows only the means has squared errors of 1 in all."""
        return np.ones(1) if self.targets is None else self.targets.scale * math.sqrt(self.outputs)

    def model(self, solved: RobustFit) -> LinearModel:
        """Return the model of a solution in the units of the data."""
        units = self._target_units
        coef, intercept = solved.coef / self.inputs.scale[:, None] * units, solved.intercept * units
        center = 0.0 if self.targets is None else self.targets.center
        return LinearModel(np.ascontiguousarray(coef.T), intercept + center)

    # ------------------------------------------------------------ losses in the units of the data

    def squared_errors(self, model: LinearModel) -> dict[Name, float]:
        """Return the mean squared error over rows and targets by group."""
        moments = self.moments
        left = moments.targets - moments.roots @ np.vstack([model.intercept, model.coef.T])
        squares = np.einsum("grk,grk->g", left, left) + moments.residual.sum(axis=1)
        return self.groups.named(squares / moments.mass / self.outputs)

    def losses_of_scores(self, scores: Array) -> dict[Name, float]:
        """Return the mean squared error, or log loss, by group of what a model predicts for the rows in memory."""
        rows = self.in_memory
        values = row_losses(scores, rows.y) if self.labels is not None else ((scores - rows.y) ** 2).mean(axis=1)
        return self.groups.named(np.bincount(rows.ids.codes, values * rows.shares) / rows.mass)

    def warn_of_one_class(self, penalty: float | None) -> None:
        """Name groups that have rows of one class only, unless the penalty leaves no worst case."""
        if self.labels is None or self.rows is None or len(self.groups) == 1 or penalty == math.inf:
            return
        low, high = np.full(len(self.groups), self.outputs), np.full(len(self.groups), -1)
        np.minimum.at(low, self.rows.ids.codes, self.rows.y)
        np.maximum.at(high, self.rows.ids.codes, self.rows.y)
        lone = [name for name, a, b in zip(self.groups, low, high, strict=True) if a == b]
        if lone:
            warn(
                f"{len(lone)} of {len(self.groups)} group(s) have rows of one class only: {listed(lone)}. The worst "
                "case over groups can be met there by answering by the group. Merge such groups with others, or "
                "raise the penalty."
            )
