"""Identity of an objective: its class and constructor arguments, as JSON values.

Checkpoints and ranks compare identities, so two different settings must never share one. As in scikit-learn, a
constructor keeps each argument as an attribute of the same name, from which it is read here.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np

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
        try:
            identity[name] = to_json(attributes[name])
        except (KeyError, TypeError):
            found = f"holds a {type(attributes[name]).__name__}" if name in attributes else "is not set"
            raise SettingError(
                f"self.{name} of {kind.__name__} {found}, so a checkpoint cannot tell one run from another: expected "
                f"__init__ to set self.{name} = {name}, and numbers, text, lists of these, groups or a prior in it."
            ) from None
    return identity


def to_json(value: Any) -> Any:
    """Return a value as JSON that is equal for equal values, in every process, and only for those.

    Other types than those of settings raise TypeError.

    >>> to_json((1, 2.5, math.inf))
    [1, 2.5, {'number': 'inf'}]
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
    raise TypeError(f"values of type {type(value).__name__} cannot be compared")


def differences(one: Record, other: Record, here: str, there: str) -> list[str]:
    """Return a text for each entry in which two identities differ, with both values.

    >>> differences({"penalty": 1.0, "seed": 3}, {"penalty": 2.0, "seed": 3}, "on rank 0", "on rank 1")
    ['penalty is 1.0 on rank 0 and 2.0 on rank 1']
    """
    return [
        f"{key} is {one.get(key, 'absent')!s:.120} {here} and {other.get(key, 'absent')!s:.120} {there}"
        for key in one | other
        if one.get(key) != other.get(key)
    ]
