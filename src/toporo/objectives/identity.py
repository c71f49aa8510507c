"""Identity of an objective: its class and its constructor arguments, as JSON values.

Checkpoints and ranks compare identities, so two different settings must never share one. As in scikit-learn, a
constructor keeps each argument as an attribute of the same name, from which it is read here.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toporo.errors import SettingError
from toporo.groups import Groups, name_to_json
from toporo.topology.prior import Prior
from toporo.types import Record


def arguments_of(instance: Any) -> Record:
    """The constructor arguments of an object, by name, read from its attributes.

    Only the instance's own plain attributes count. Class attributes, properties, buffers and submodules may exist
    whatever the constructor was given, or change during training.

    >>> class Method:
    ...     def __init__(self, penalty=1.0):
    ...         self.penalty = penalty
    >>> arguments_of(Method(2.0))
    {'penalty': 2.0}
    """
    attributes, names = vars(instance), list(inspect.signature(type(instance)).parameters)
    for name in names:
        if name not in attributes:
            raise SettingError(
                f"{type(instance).__name__} does not keep its constructor argument {name!r} as an attribute, so a "
                f"checkpoint cannot tell one run from another. Write self.{name} = {name} in its __init__, with a "
                "plain value: no module, parameter or buffer."
            )
    return {name: attributes[name] for name in names}


def identity_of(instance: Any) -> Record:
    """The class of an object and its constructor arguments, as JSON values."""
    kind = type(instance)
    values: Record = {"class": f"{kind.__module__}.{kind.__qualname__}"}
    for name, value in arguments_of(instance).items():
        try:
            values[name] = plain(value)
        except (TypeError, RecursionError):
            raise SettingError(
                f"{name} of {kind.__name__} is a {type(value).__name__} that cannot be written down, so a checkpoint "
                "cannot tell one run from another. Use numbers, text, arrays, or collections of these, or train "
                "without a checkpoint."
            ) from None
    return values


def plain(value: Any) -> Any:
    """A value as JSON that is equal for equal values, in every process, and only for those.

    Arrays and tensors become digests of their content. Other types raise TypeError.

    >>> plain({"b": (1, 2.5), "a": math.inf})
    {'mapping': [['a', {'number': 'inf'}], ['b', [1, 2.5]]]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, float):
        return {"number": repr(value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Groups):
        return [name_to_json(name) for name in value]
    if isinstance(value, Prior):
        return [[name_to_json(name), weight] for name, weight in value.weights.items()]
    if isinstance(value, Mapping):
        return {"mapping": sorted(([plain(key), plain(item)] for key, item in value.items()), key=json.dumps)}
    if isinstance(value, np.ndarray) and value.dtype != object:
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return {"array": [str(value.dtype), list(value.shape), digest]}
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        return {"tensor": [str(value.dtype), list(value.shape), hashlib.sha256(content.tobytes()).hexdigest()]}
    raise TypeError(f"values of type {type(value).__name__} cannot be compared")
