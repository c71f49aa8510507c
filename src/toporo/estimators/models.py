"""Fitted models as values: what a fit found, in arrays that can be stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.choice.penalty import PenaltyChoice
from toporo.errors import DataError
from toporo.estimators.packing import UNSTORED
from toporo.estimators.rows import Scaling
from toporo.robust.rows import chunks
from toporo.schema import SHOWN
from toporo.types import Array, Name


class Model(ABC):
    """Function of rows: rows × targets, log-odds of the second of two classes, or a score per class."""

    @abstractmethod
    def __call__(self, x: npt.NDArray[Any]) -> Array:
        """Predict rows × features in the units of the data."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of inputs and of outputs, of which two classes have one."""


@dataclass(frozen=True, eq=False)
class LinearModel(Model):
    """Coefficients (outputs × features) and intercepts in the units of the data."""

    coef: Array
    intercept: Array

    def __call__(self, x: npt.NDArray[Any]) -> Array:
        # Unlike a product of matrices, this gives a row the same bits beside any other rows.
        return np.asarray(np.einsum("ij,kj->ik", x, self.coef) + self.intercept)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of coefficients per output, and of outputs."""
        return self.coef.shape[1], self.coef.shape[0]

    def check(self) -> None:
        """Raise unless every output has coefficients and an intercept."""
        if self.coef.ndim != 2 or self.intercept.shape != self.coef.shape[:1]:
            raise DataError(f"its coefficients have shape {self.coef.shape}, its intercepts {self.intercept.shape}.")


@dataclass(frozen=True, eq=False)
class Layer:
    """Weights (outputs × inputs) and biases of a layer."""

    weight: Array
    bias: Array


@dataclass(frozen=True, eq=False)
class Perceptron(Model):
    """Trained network of layers with rectifiers between them, on scaled rows; it predicts without torch.

    Attributes
    ----------
    inputs, targets : scaling of inputs and of numbers that are predicted; classes have none.
    layers : the last one gives a number per target, or a score per class.
    """

    inputs: Scaling
    targets: Scaling | None
    layers: tuple[Layer, ...]

    def __call__(self, x: npt.NDArray[Any]) -> Array:
        parts = [self._outputs(self.inputs.apply(x[part])) for part in chunks(len(x))]
        return as_scores(np.concatenate(parts), self.targets)

    def _outputs(self, rows: Array) -> Array:
        for layer in self.layers[:-1]:
            rows = np.maximum(rows @ layer.weight.T + layer.bias, 0.0)
        return np.asarray(rows @ self.layers[-1].weight.T + self.layers[-1].bias)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of inputs of the first layer, and of outputs of the last."""
        outputs = len(self.layers[-1].bias)
        return self.layers[0].weight.shape[1], 1 if self.targets is None and outputs == 2 else outputs

    def check(self) -> None:
        """Raise unless the layers follow one another from the inputs to the targets."""
        if not self.layers or any(layer.weight.ndim != 2 for layer in self.layers):
            raise DataError("it has no layers, or weights that are no matrices.")
        widths = [len(self.inputs.scale), *(len(layer.weight) for layer in self.layers)]
        expected = list(zip(widths[1:], widths[:-1], strict=True))
        found = [layer.weight.shape for layer in self.layers]
        if found != expected or [layer.bias.shape for layer in self.layers] != [(width,) for width in widths[1:]]:
            raise DataError(f"its layers have shapes {found}, expected {expected} and a bias per row.")
        if self.targets is not None and len(self.targets.scale) != widths[-1]:
            raise DataError(f"its layers give {widths[-1]} target(s), expected {len(self.targets.scale)}.")


def as_scores(outputs: Array, targets: Scaling | None) -> Array:
    """Convert the outputs of a network to the units of the data, or two scores to log-odds."""
    if targets is not None:
        return np.asarray(outputs * targets.scale + targets.center)
    return outputs[:, 1:] - outputs[:, :1] if outputs.shape[1] == 2 else outputs


# ---------------------------------------------------------------- how they were found


@dataclass(frozen=True, eq=False)
class Fit:
    """Model that was fitted, and how; every field is an attribute of the estimator.

    Attributes
    ----------
    model : function of rows.
    scaling : of the inputs.
    group_losses : by the model.
    penalty : λ; that of a radius is the multiplier, which a network does not have (None).
    ridge : ρ.
    choice : of the penalty; None where it was given.
    history : one record per epoch, or the one solution in scaled units; not stored.
    """

    model: Model
    scaling: Scaling
    group_losses: dict[Name, float]
    penalty: float | None
    ridge: float
    choice: PenaltyChoice | None
    history: tuple[Any, ...] = field(default=(), metadata=UNSTORED)

    def check(self) -> None:
        """Raise unless the scaling is that of the model's inputs, and losses are numbers that a figure can show."""
        if not all(0 <= loss <= SHOWN for loss in self.group_losses.values()):
            raise DataError("the losses of its groups are not numbers from 0 to 1e307.")
        if self.scaling.scale.shape != self.model.shape[:1]:
            raise DataError(f"its array 'scaling.scale' has shape {self.scaling.scale.shape}, for {self.model.shape}.")
