"""Check rows of inputs, targets and groups, and work on them in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, listed
from toporo.groups import GroupIds, Groups
from toporo.machine import cores, one_thread
from toporo.types import Array, Name

T = TypeVar("T")

#: Rows that are processed at a time, so that copies stay small beside the data.
CHUNK = 1 << 16
#: Numbers up to this size can be squared and added up.
LARGEST = 1e100


def as_inputs(x: Any, groups: Iterable[Name] | GroupIds) -> tuple[npt.NDArray[Any], GroupIds]:
    """Check inputs and groups against each other; return a matrix and the groups of its rows."""
    inputs = as_numbers(x, "x")
    if inputs.ndim != 2 or not len(inputs):
        raise DataError(f"x has shape {inputs.shape}: expected rows × features, at least one row.")
    ids = groups if isinstance(groups, GroupIds) else Groups.of(groups)
    if len(ids) != len(inputs):
        raise DataError(f"x has {len(inputs)} rows and groups {len(ids)}: they must agree, in the same order.")
    ids = GroupIds(as_numbers(ids.codes, "groups").astype(np.int64), ids.groups)
    ids.require_in_range()
    return inputs, ids


def as_numbers(values: Any, what: str) -> npt.NDArray[Any]:
    """Convert an array, a list or a tensor of numbers to an array; ``what`` names it in errors."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{what} must hold numbers; found {array.dtype}. Encode text and categories first.")
    return array


def as_targets(y: Any, rows: int) -> npt.NDArray[Any]:
    """Convert targets to a matrix with one row per row of inputs."""
    targets = as_numbers(y, "y")
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.ndim != 2 or len(targets) != rows or not targets.shape[1]:
        raise DataError(f"y has shape {targets.shape}: expected {rows} rows, as x has, and one column per output.")
    return targets


def as_labels(y: Any, rows: int) -> npt.NDArray[Any]:
    """Check that there is one label per row."""
    labels = np.asarray(y)
    if labels.shape != (rows,):
        raise DataError(f"y has shape {labels.shape}: expected {rows} labels, one per row of x.")
    refuse_infinite(labels, "y")
    return labels


def as_classes(labels: npt.NDArray[Any]) -> tuple[tuple[Any, ...], npt.NDArray[np.int64]]:
    """Return the sorted classes and the code of each label among them."""
    try:
        classes, codes = np.unique(labels, return_inverse=True)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels})
        raise DataError(f"y holds labels of types {', '.join(kinds)}, which have no order: use one type.") from None
    if len(classes) < 2:
        raise DataError(f"y holds a single class, {classes.tolist()[0]!r}: at least two are needed.")
    return tuple(classes.tolist()), codes.astype(np.int64)


def as_weights(sample_weight: Any, ids: GroupIds) -> Array | None:
    """Check row weights; return None for equal ones. Every group must have some weight."""
    weights = None if sample_weight is None else as_numbers(sample_weight, "sample_weight").astype(np.float64)
    if weights is not None:
        if weights.shape != (len(ids),) or not (weights >= 0).all():
            raise DataError(
                f"sample_weight has shape {weights.shape}: expected {len(ids)} numbers of at least 0, one per row."
            )
        refuse_huge(weights, "sample_weight")
    mass = np.bincount(ids.codes, weights, minlength=len(ids.groups))
    empty = [name for name, count in zip(ids.groups, mass, strict=True) if not count > 0]
    if empty:
        raise DataError(f"empty group(s), without a row that counts: {listed(empty)}. Drop them or give them rows.")
    return weights


def weighted_rows(
    inputs: npt.NDArray[Any], targets: npt.NDArray[Any], ids: GroupIds, sample_weight: Any
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], GroupIds, Array | None]:
    """Check row weights and drop the rows whose weight is zero; weights are None if all are equal."""
    weights = as_weights(sample_weight, ids)
    if weights is None or weights.all():
        return inputs, targets, ids, weights
    counted = weights > 0
    return inputs[counted], targets[counted], GroupIds(ids.codes[counted], ids.groups), weights[counted]


def refuse_infinite(values: npt.NDArray[Any], what: str) -> None:
    """Raise an error that names the first row if a number is NaN or infinite."""
    if values.dtype.kind != "f":
        return
    bad = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if bad.any():
        raise DataError(
            f"{what} holds NaN or infinite values in {int(bad.sum())} of {len(values)} rows (first: row "
            f"{int(np.argmax(bad))}). Impute or drop those rows first."
        )


def refuse_huge(values: npt.NDArray[Any], what: str) -> None:
    """Raise an error if a number is NaN, infinite, or too large to be squared and added up."""
    refuse_infinite(values, what)
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    if largest > LARGEST:
        raise DataError(
            f"{what} holds numbers up to {largest:.2g}, too large to be squared and added up (the limit is "
            f"{LARGEST:g}): scale the columns first."
        )


def chunks(rows: int) -> list[slice]:
    """Split rows into slices of at most ``CHUNK``."""
    return [slice(start, start + CHUNK) for start in range(0, rows, CHUNK)]


def for_each(items: Sequence[Any], work: Callable[[Any], T], rows: int) -> list[T]:
    """Apply a function to each item, on all cores if there are many rows; results do not depend on their number."""
    with one_thread():
        if len(items) == 1 or rows < CHUNK or cores() == 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(cores()) as pool:
            return list(pool.map(work, items))
