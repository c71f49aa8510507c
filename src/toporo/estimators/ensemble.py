r"""Weighted mean of candidates, with weights from their out-of-fold predictions.

With :math:`P_{ik}` the prediction of candidate k for row i, fitted without the row's group, weights are

.. math:: v = \arg\min_{v \in \Delta} \sum_i w_i \bigl(y_i - (Pv)_i\bigr)^2 + w_i \bigl((Pv)_i - (Ps)_i\bigr)^2

with s the mean of the safe candidates: predictions move half of the way from the safe mean to where the rows alone
would have them. Of classes, y and P are indicators and probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize, minimize_scalar

from toporo.choice.cross_fitting import Mask
from toporo.errors import DataError, SettingError, listed
from toporo.estimators.effects import LEAST
from toporo.estimators.leaderboard import CandidateScore
from toporo.estimators.places import Context, Places
from toporo.estimators.predictors import OfEstimator, Predictor
from toporo.groups import GroupIds
from toporo.types import Array

#: How much predictions are drawn to the safe mean, beside what the rows themselves say.
CAUTION = 1.0
#: A candidate whose squared error in any part is more than so many times that of the safe mean has no weight.
FAR = 2.0


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Candidates and their weights.

    Attributes
    ----------
    weights : by name, above 0 and summing to 1.
    members : the candidates of these names.
    sharpness : power of the probabilities of classes, at most 1; 1 for numbers.
    """

    weights: dict[str, float]
    members: dict[str, Predictor]
    sharpness: float = 1.0

    def __call__(self, x: Array, at: Places) -> Array:
        """Predict rows: (rows, classes or 1)."""
        if at.context is None:
            at = replace(at, context=self.group_context(x, at.ids))
        mean = np.sum([weight * self.members[name](x, at) for name, weight in self.weights.items()], axis=0)
        return sharpened(mean, self.sharpness)

    def group_context(self, x: Array, ids: GroupIds) -> Context:
        """Return the means of inputs by group that the candidates take, from some of the rows to predict."""
        found: dict[str, Any] = {}
        for member in self.members.values():
            found |= member.group_context(x, ids)
        return found

    def packed(self) -> Ensemble:
        """Return itself if it can be stored."""
        own = sorted(name for name, member in self.members.items() if isinstance(member, OfEstimator))
        if own:
            raise SettingError(
                f"candidate(s) of one's own have a weight and cannot be stored: {listed(own)}. Only their code "
                "can make them again: keep the model with joblib, and load only what you trust."
            )
        return self

    def check(self) -> None:
        """Raise unless there is a candidate for every weight, and weights sum to one."""
        sound = all(0.0 < weight <= 1.0 for weight in self.weights.values())
        if not sound or abs(math.fsum(self.weights.values()) - 1.0) > 1e-6 or set(self.weights) != set(self.members):
            raise DataError("the weights of its candidates do not sum to one.")
        if not 0.0 <= self.sharpness <= 1.0:
            raise DataError("its sharpness is not between 0 and 1.")


@dataclass(frozen=True, eq=False)
class OutOfFoldTable:
    """Out-of-fold predictions of candidates, and what they are compared with.

    Attributes
    ----------
    predictions : by candidate, (rows, classes or 1).
    wanted : values or indicators of the classes.
    mass : weights of rows.
    parts : the rows that were held out together.
    """

    predictions: Mapping[str, Array]
    wanted: Array
    mass: Array
    parts: tuple[Mask, ...]

    def errors(self, predictions: Array) -> Array:
        """Return the mean squared error in each part."""
        squares = ((predictions - self.wanted) ** 2).sum(axis=1)
        return np.array([np.average(squares[part], weights=self.mass[part]) for part in self.parts])

    def mean_of(self, names: list[str]) -> Array:
        """Return the mean of the predictions of some candidates."""
        return np.asarray(np.mean([self.predictions[name] for name in names], axis=0))

    def safe(self, always: list[str], unless_far: list[str]) -> list[str]:
        """Return the names of the safe candidates: the first of them and those of the second that are not far off."""
        if not always:
            return unless_far
        base = FAR * self.errors(self.mean_of(always))
        return [*always, *(name for name in unless_far if (self.errors(self.predictions[name]) <= base).all())]

    def weigh(
        self, safe: list[str], failed: Mapping[str, str], far: str
    ) -> tuple[dict[str, float], tuple[CandidateScore, ...]]:
        """Return the weights of all candidates, and the leaderboard.

        Parameters
        ----------
        safe : names of the safe candidates.
        failed : reasons of candidates that could not be fitted.
        far : note of a candidate that is far off.
        """
        mean = self.mean_of(safe)
        base = np.maximum(self.errors(mean), 1e-300)
        errors = {name: self.errors(values) for name, values in self.predictions.items()}
        running = [name for name in errors if name in safe or (errors[name] <= FAR * base).all()]
        predictions = np.stack([self.predictions[name] for name in running], axis=-1)
        found = ensemble_weights(predictions, self.wanted, mean, self.mass)
        weights = dict.fromkeys(errors, 0.0) | dict(zip(running, map(float, found), strict=True))
        by_part = np.array([self.mass[part].sum() for part in self.parts])
        scores = [
            CandidateScore(
                name,
                float(error @ by_part / (base @ by_part)),
                float((error / base).max()),
                weights[name],
                "" if name in running else far,
            )
            for name, error in errors.items()
        ]
        scores += [CandidateScore(name, math.nan, math.nan, 0.0, why) for name, why in failed.items()]
        order = sorted(scores, key=lambda row: (-row.weight, np.nan_to_num(row.error, nan=np.inf), row.name))
        return weights, tuple(order)


def ensemble_weights(predictions: Array, wanted: Array, safe: Array, mass: Array) -> Array:
    """Return the weights of candidates.

    Parameters
    ----------
    predictions : out of fold, (rows, outputs, candidates).
    wanted, safe : the targets and the safe mean, (rows, outputs).
    mass : weights of rows.
    """
    root = np.sqrt(mass)[:, None]
    # Weights sum to 1, so deviations from the safe mean will do.
    apart = ((predictions - safe[..., None]) * root[..., None]).reshape(-1, predictions.shape[-1])
    left = ((wanted - safe) * root).ravel()
    squares, products = (1.0 + CAUTION) * apart.T @ apart, apart.T @ left
    scale = float(np.trace(squares)) or 1.0
    count = predictions.shape[-1]
    end = minimize(
        lambda v: ((v @ squares @ v - 2.0 * products @ v) / scale, 2.0 * (squares @ v - products) / scale),
        np.full(count, 1.0 / count),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda v: v.sum() - 1.0, "jac": lambda _: np.ones(count)},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    weights = np.where(end.x > 1e-4, end.x, 0.0)
    return np.asarray(weights / weights.sum())


def sharpened(chances: Array, power: float) -> Array:
    """Return probabilities to a power, summing to 1 again; to the power of 1 they stay as they are."""
    if power == 1.0:
        return chances
    raised = np.maximum(chances, LEAST) ** power
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def best_sharpness(chances: Array, right: npt.NDArray[Any], mass: Array) -> float:
    """Return the power with the least log loss, 1 unless another is better."""

    def loss(power: float) -> float:
        chance = np.maximum((sharpened(chances, power) * right).sum(axis=1), LEAST)
        return float(-np.average(np.log(chance), weights=mass))

    end = minimize_scalar(loss, bounds=(0.01, 1.0), method="bounded")
    return float(end.x) if end.fun < loss(1.0) else 1.0
