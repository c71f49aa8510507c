"""Identity of an objective: its class and constructor arguments, as JSON values.

Checkpoints and ranks compare identities, so two different settings must never share one. As in scikit-learn, a
constructor keeps each argument as an attribute of the same name, from which it is read here.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from toporo.errors import SettingError
from toporo.groups import Groups, name_to_json
from toporo.topology.prior import Prior
from toporo.types import Record


def identity_of(instance: Any) -> Record:
    """Return the class of an object and its constructor arguments.

    Only the instance's own plain attributes count. Class attributes, properties, buffers and submodules may exist
    whatever the constructor was given, or change during training.

    >>> class Method:
    ...     def __init__(self, penalty=1.0):
    ...         self.penalty = penalty
    >>> identity_of(Method(2.0))["penalty"]
    2.0
    """
    kind, attributes = type(instance), vars(instance)
    identity: Record = {"class": f"{kind.__module__}.{kind.__qualname__}"}
    for name in inspect.signature(kind).parameters:
        if name not in attributes:
            raise SettingError(
                f"{kind.__name__} does not keep its constructor argument {name!r} as an attribute, so a checkpoint "
                f"cannot tell one run from another. Write self.{name} = {name} in its __init__, with a plain value: "
                "no module, parameter or buffer."
            )
        try:
            identity[name] = to_json(attributes[name])
        except (TypeError, RecursionError):
            raise SettingError(
                f"{name} of {kind.__name__} is a {type(attributes[name]).__name__} that cannot be written down, so a "
                "checkpoint cannot tell one run from another. Use numbers, text, arrays, or collections of these, or "
                "train without a checkpoint."
            ) from None
    return identity


def to_json(value: Any) -> Any:
    """Return a value as JSON that is equal for equal values, in every process, and only for those.

    Other types than those of settings raise TypeError.

    >>> to_json({"b": (1, 2.5), "a": math.inf})
    {'mapping': [['a', {'number': 'inf'}], ['b', [1, 2.5]]]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Prior):
        return {"mapping": [[name_to_json(name), weight] for name, weight in value.weights.items()]}
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, float):
        return {"number": repr(value)}
    if isinstance(value, Groups):
        return [name_to_json(name) for name in value]
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {"mapping": sorted(([to_json(key), to_json(item)] for key, item in value.items()), key=json.dumps)}
    if isinstance(value, np.ndarray | Tensor) and value.dtype != object:
        return {"array": [str(value.dtype), list(value.shape), to_json(value.tolist())]}
    raise TypeError(f"values of type {type(value).__name__} cannot be compared")
