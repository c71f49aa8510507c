"""What all stored estimators have: arrays of known shapes, and classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from toporo.errors import DataError, listed

Arrays = Mapping[str, npt.NDArray[Any]]

#: The most bytes that all classes may take.
MOST_BYTES = 1 << 26


def check_arrays(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise unless these are the arrays: finite numbers in double precision, and scales above 0.

    Parameters
    ----------
    arrays, shapes : by name.
    """
    if set(arrays) != set(shapes):
        raise DataError(f"its arrays are {listed(sorted(arrays))}, expected {listed(sorted(shapes))}.")
    for key, shape in shapes.items():
        array = arrays[key]
        if array.dtype != np.float64 or array.shape != shape or not np.isfinite(array).all():
            raise DataError(
                f"its array {key!r} has shape {array.shape} and type {array.dtype}: expected finite numbers (float64) "
                f"of shape {shape}."
            )
        if key.endswith(".scale") and not (array > 0).all():
            raise DataError(f"its array {key!r} holds numbers that are not positive.")


class StoredClasses(msgspec.Struct):
    """Classes, and the type of their array."""

    type: Annotated[str, msgspec.Meta(pattern=r"^[<>|=]?[biufUO]\d{0,9}$")]
    values: list[bool | int | float | str]


def classes_to_json(classes: npt.NDArray[Any]) -> dict[str, Any]:
    """Classes as JSON holds them.

    Parameters
    ----------
    classes : text, numbers or booleans.
    """
    values = classes.tolist()
    if not all(isinstance(value, bool | int | float | str) for value in values):
        raise DataError(
            f"classes such as {values[0]!r} ({type(values[0]).__name__}) cannot be stored: use text, numbers or "
            "booleans as classes."
        )
    return {"type": classes.dtype.str, "values": values}


def classes_from_json(stored: StoredClasses | None) -> npt.NDArray[Any]:
    """The inverse of :func:`classes_to_json`: at least two classes, all of the type they are said to be.

    Parameters
    ----------
    stored : what was read.
    """
    if stored is None:
        raise DataError("it has no classes.")
    values = stored.values
    try:
        kind = np.dtype(stored.type)
        if kind.itemsize * len(values) > MOST_BYTES:
            raise OverflowError
        classes = np.empty(len(values), dtype=kind)
        classes[:] = values
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"its classes {listed(values)} are not of type {stored.type!r}.") from None
    kept = classes.tolist()
    if len(set(values)) < max(2, len(values)) or [*map(type, kept)] != [*map(type, values)] or kept != values:
        raise DataError(f"its classes {listed(values)} are not at least two distinct values of type {kind}.")
    return classes
