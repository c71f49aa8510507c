"""Columns measured in units of their own spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError
from toporo.robust.rows import chunks
from toporo.types import Array

#: A column whose spread is below this share of its mean is constant but for rounding.
CONSTANT = 1e-12
#: A smaller spread cannot be divided by.
SMALLEST = 1e-290
#: Errors of targets with a spread beyond these have squares that are not finite, or zero.
LARGEST_TARGET, SMALLEST_TARGET = 1e150, 1e-150


@dataclass(frozen=True, eq=False)
class Scaling:
    """What is subtracted from each column, and what it is divided by afterwards."""

    center: Array
    scale: Array

    @classmethod
    def none(cls, columns: int) -> Scaling:
        """Leave everything as it is."""
        return cls(np.zeros(columns), np.ones(columns))

    @classmethod
    def of(cls, values: npt.NDArray[Any], weights: Array | None, *, center: bool, what: str) -> Scaling:
        """Means and standard deviations of the columns; of a constant one the deviation counts as 1.

        Without ``center`` nothing is subtracted, and the scale is the root of the mean square.
        """
        mass = float(len(values)) if weights is None else float(weights.sum())
        parts = chunks(len(values))
        with np.errstate(over="ignore", invalid="ignore"):
            low = np.min([values[part].min(axis=0) for part in parts], axis=0).astype(np.float64)
            high = np.max([values[part].max(axis=0) for part in parts], axis=0).astype(np.float64)
            middle = np.zeros(values.shape[1])
            if center:
                middle = np.sum([_sum(values[part], weights, part) for part in parts], axis=0) / mass
                # Of a constant column exactly its value; an overflow must not look like one.
                middle = np.where(np.isfinite(middle), np.clip(middle, low, high), np.inf)
            reach = np.maximum(np.abs(high - middle), np.abs(low - middle))
            unit = np.where(reach > 0, reach, 1.0)
            # In units of the farthest value no square overflows.
            squares = [_sum(((values[part] - middle) / unit) ** 2, weights, part) for part in parts]
            scale = unit * np.sqrt(np.sum(squares, axis=0) / mass)
        if not (np.isfinite(middle).all() and np.isfinite(scale).all()):
            raise DataError(f"{what} holds numbers too large to be added up: give it in a larger unit.")
        varies = scale > CONSTANT * np.abs(middle)
        if (scale[varies] < SMALLEST).any():
            raise DataError(f"{what} holds numbers too small to be divided by: give it in a smaller unit.")
        return cls(middle, np.where(varies, scale, 1.0))

    def check_squares(self, what: str) -> None:
        """Raise if errors on these scales have squares that are not finite, or zero."""
        if (self.scale > LARGEST_TARGET).any():
            raise DataError(f"{what} holds numbers too large to be squared: give it in a larger unit.")
        if (self.scale < SMALLEST_TARGET).any():
            raise DataError(f"{what} holds numbers too small to be squared: give it in a smaller unit.")

    def apply(self, values: npt.NDArray[Any], dtype: Any = np.float64) -> npt.NDArray[Any]:
        """A scaled copy."""
        out = np.empty(values.shape, dtype)
        for part in chunks(len(values)):
            out[part] = (values[part] - self.center) / self.scale
        return out


def _sum(values: npt.NDArray[Any], weights: Array | None, part: slice) -> Array:
    if weights is None:
        return np.asarray(values.sum(axis=0, dtype=np.float64))
    return np.asarray((values * weights[part, None]).sum(axis=0, dtype=np.float64))
