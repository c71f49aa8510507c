"""The identity of an objective: its class and its constructor arguments, as JSON values.

Arguments follow scikit-learn's convention: the constructor keeps each one as an attribute of the same name, from which
it is read again. Checkpoints and ranks compare identities, so two different settings must never share one. Values that
cannot be compared safely are errors.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import sys
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toporo.errors import SettingError
from toporo.groups import Groups, name_to_json
from toporo.topology.prior import Prior
from toporo.types import Record


def arguments_of(made: Any) -> Record:
    """The constructor arguments of an object, by name, read from its attributes.

    Only the instance's own plain attributes count. Class attributes, properties, buffers and submodules may exist
    whatever the constructor was given, or change during training.

    >>> class Made:
    ...     def __init__(self, penalty=1.0):
    ...         self.penalty = penalty
    >>> arguments_of(Made(2.0))
    {'penalty': 2.0}
    """
    kind, attributes = type(made), vars(made)
    arguments = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise SettingError(
                f"the constructor of {kind.__name__} takes {parameter}, so its settings cannot be read from attributes "
                "and a checkpoint could not tell one run from another. Name every argument in the signature."
            )
        if name not in attributes:
            raise SettingError(
                f"{kind.__name__} does not keep its constructor argument {name!r} as an attribute, so a checkpoint "
                f"could not tell one run from another. Write self.{name} = {name} in its __init__, with a plain value: "
                "no module, parameter or buffer."
            )
        arguments[name] = attributes[name]
    return arguments


def identity_of(made: Any) -> Record:
    """The class of an object and its constructor arguments, as JSON values."""
    kind = type(made)
    values: Record = {"class": qualified(kind)}
    for name, value in arguments_of(made).items():
        try:
            values[name] = plain(value)
        except (SettingError, RecursionError) as error:
            why = error if isinstance(error, SettingError) else "it contains itself"
            raise SettingError(
                f"{name} of {kind.__name__} is a {type(value).__name__} that cannot be written down ({why}), so a "
                "checkpoint could not tell one run from another. Use numbers, text, arrays, or functions and classes "
                "defined at the top level of a module, or train without a checkpoint."
            ) from None
    return values


def qualified(thing: Any) -> str:
    """The name of a class or function, with its module."""
    return f"{thing.__module__}.{thing.__qualname__}"


def plain(value: Any) -> Any:
    """A value as JSON that is equal for equal values, in every process.

    Arrays and tensors become digests of their content. Functions and classes become their names.

    >>> plain({"b": (1, 2.5), "a": math.inf})
    {'a': {'number': 'inf'}, 'b': [1, 2.5]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": repr(value)}
    if isinstance(value, Groups):
        return [name_to_json(name) for name in value]
    if isinstance(value, Prior):
        return [[name_to_json(name), weight] for name, weight in value.weights.items()]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return {"set": _ordered(value)}
    if isinstance(value, Mapping):
        pairs = _ordered(value.items())
        return dict(pairs) if all(isinstance(key, str) for key, _ in pairs) else {"pairs": pairs}
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return {"array": [str(value.dtype), list(value.shape), _digest(content)]}
    if isinstance(value, np.ndarray) and value.dtype != object:
        return {"array": [str(value.dtype), list(value.shape), _digest(np.ascontiguousarray(value).tobytes())]}
    if isinstance(value, bytes):
        return {"bytes": _digest(value)}
    if callable(value) and _found_by_name(value):
        return {"name": qualified(value)}
    kind = type(value).__name__
    if callable(value):
        raise SettingError(f"a {kind} that its module does not have under its own name, such as a lambda or closure")
    raise SettingError(f"values of type {kind} are not compared")


def _ordered(values: Any) -> list[Any]:
    return sorted((plain(value) for value in values), key=json.dumps)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _found_by_name(value: Any) -> bool:
    """Whether the name of a function or class leads to that very object, so that no other can have its name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module not in sys.modules or name is None:
        return False
    try:
        return reduce(getattr, name.split("."), sys.modules[module]) is value
    except AttributeError:
        return False
