"""Scaling of radar tiles by the measurements of training rows alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np
import numpy.typing as npt

from toporo.bench.flood_chips import CHANNELS
from toporo.data.stores import TileStore
from toporo.errors import DataError

#: Tiles whose sums are taken at a time.
_BLOCK = 64


@dataclass(frozen=True)
class Scaling:
    """Mean and standard deviation of every channel, in decibels."""

    mean: tuple[float, ...]
    sd: tuple[float, ...]


def fit_scaling(store: TileStore, rows: npt.ArrayLike) -> Scaling:
    """Mean and standard deviation of the measurements in these rows of a store; pixels without one do not count."""
    chosen = _checked_rows(store, rows)
    channels = [_moments(store, chosen, channel) for channel in range(store.x.shape[1])]
    return Scaling(tuple(mean for mean, _ in channels), tuple(sd for _, sd in channels))


def _moments(store: TileStore, rows: npt.NDArray[np.int64], channel: int) -> tuple[float, float]:
    """In two passes, block by block: a bucket's pixels in double precision would not fit beside themselves."""

    def measured() -> Iterator[npt.NDArray[np.float64]]:
        for start in range(0, len(rows), _BLOCK):
            values = store.x[rows[start : start + _BLOCK], channel]
            yield values[np.isfinite(values)].astype(np.float64)

    count, total, lowest, highest = 0, 0.0, math.inf, -math.inf
    for values in measured():
        count, total = count + values.size, total + float(values.sum())
        lowest = min(lowest, float(values.min(initial=math.inf)))
        highest = max(highest, float(values.max(initial=-math.inf)))
    if not count:
        raise DataError(
            f"{_channel(channel)} has no measurement in the {len(rows)} row(s) to scale by: expected at least one."
        )
    if lowest == highest:
        raise DataError(
            f"{_channel(channel)} is {lowest:g} in every pixel of the {len(rows)} row(s) to scale by: expected "
            "measurements that differ."
        )
    mean = total / count
    return mean, math.sqrt(sum(float(((values - mean) ** 2).sum()) for values in measured()) / count)


def apply_scaling(x: Any, scaling: Scaling) -> Any:
    """Standardise ``(…, channels, height, width)``, a numpy array or a torch tensor; what is missing becomes 0."""
    if x.ndim < 3 or x.shape[-3] != len(scaling.mean):
        raise DataError(
            f"x has shape {tuple(x.shape)}, expected (…, {len(scaling.mean)}, height, width): the scaling is of "
            f"{len(scaling.mean)} channels."
        )
    xp = array_api_compat.array_namespace(x)
    mean, sd = (
        xp.reshape(xp.asarray(values, dtype=x.dtype, device=array_api_compat.device(x)), (-1, 1, 1))
        for values in (scaling.mean, scaling.sd)
    )
    scaled = (x - mean) / sd
    return xp.where(xp.isfinite(scaled), scaled, xp.zeros_like(scaled))


def _checked_rows(store: TileStore, rows: npt.ArrayLike) -> npt.NDArray[np.int64]:
    chosen = np.asarray(rows)
    if chosen.ndim != 1 or not len(chosen) or chosen.dtype.kind not in "iu":
        raise DataError(
            f"the rows to scale by are {chosen.dtype} of shape {chosen.shape}: expected a list of row numbers, at "
            "least one."
        )
    if chosen.min() < 0 or chosen.max() >= len(store):
        raise DataError(
            f"the rows to scale by run from {chosen.min()} to {chosen.max()}, but the store has rows 0 to "
            f"{len(store) - 1}."
        )
    return chosen.astype(np.int64)


def _channel(number: int) -> str:
    return f"channel {number} ({CHANNELS[number]})" if number < len(CHANNELS) else f"channel {number}"
